//! Hierarchical execution: marks change the work, never the verdict.

mod support;

use fyke_frame::{Frame, LinkType};
use fyke_pass::{PassId, PassSet, Sharing, primitive};
use support::Random;

/// Swift, figure 4: two passes duplicated from a first one, each with one instruction changed.
fn figure_4() -> (PassSet, [PassId; 3]) {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let first = edit.new_pass().unwrap();
    edit.set_instruction(first, 0, primitive::ether_ip_tcp_nonfrag()).unwrap();
    edit.set_instruction(first, 1, primitive::ip_host_either(support::HOSTS[0])).unwrap();
    edit.set_instruction(first, 2, primitive::tcp_port_either(&[21]).unwrap()).unwrap();
    let second = edit.duplicate_pass(first).unwrap();
    edit.set_instruction(second, 2, primitive::tcp_port_either(&[80]).unwrap()).unwrap();
    let third = edit.duplicate_pass(first).unwrap();
    edit.set_instruction(third, 1, primitive::ip_host_either(support::HOSTS[1])).unwrap();
    edit.commit();
    (set, [first, second, third])
}

fn frames() -> Vec<Vec<u8>> {
    let mut random = Random(4);
    (0..256).map(|_| support::frame_bytes(&mut random)).collect()
}

#[test]
fn copied_instructions_are_marked_until_they_change() {
    let (set, [first, second, third]) = figure_4();
    let copied = |id| set.pass(id).unwrap().copied;
    assert_eq!([copied(first), copied(second), copied(third)], [0, 0b011, 0b101]);
    assert_eq!(set.pass(third).unwrap().parent, Some(first));
}

#[test]
fn marks_save_work_and_keep_the_verdict() {
    let (set, _) = figure_4();
    let bytes = frames();
    let frames: Vec<Frame> = bytes.iter().map(|b| Frame::new(LinkType::EN10MB, b)).collect();
    let batch = support::batch(&frames);
    let mut evaluated = Vec::new();
    let mut verdicts = Vec::new();
    for sharing in [Sharing::All, Sharing::Copied, Sharing::Nothing] {
        let mut reader = set.reader();
        reader.set_sharing(sharing);
        verdicts.push(reader.evaluate(&batch, batch.all()));
        evaluated.push(reader.work().instructions);
        let one_by_one: u64 =
            frames.iter().map(|frame| u64::from(reader.judge_one(frame).evaluated)).sum();
        if sharing != Sharing::All {
            assert_eq!(one_by_one, reader.work().instructions, "{sharing:?}: batch and reference");
        }
    }
    assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]));
    assert!(evaluated[1] < evaluated[2], "{evaluated:?}");
    assert!(evaluated[0] <= evaluated[1], "{evaluated:?}");
}

#[test]
fn editing_or_deleting_the_parent_costs_only_the_saving() {
    let (mut set, [first, second, third]) = figure_4();
    let bytes = frames();
    let frames: Vec<Frame> = bytes.iter().map(|b| Frame::new(LinkType::EN10MB, b)).collect();
    let batch = support::batch(&frames);
    let check = |set: &PassSet| {
        let mut plain = set.reader();
        plain.set_sharing(Sharing::Nothing);
        let mut marked = set.reader();
        marked.set_sharing(Sharing::Copied);
        let verdict = plain.evaluate(&batch, batch.all());
        assert_eq!(verdict, marked.evaluate(&batch, batch.all()));
        let reference = |at: usize| marked.judge_one(&frames[at]).accepted;
        assert!((0..frames.len()).all(|at| verdict.get(at) == reference(at)));
    };
    let mut edit = set.edit();
    edit.set_instruction(first, 0, primitive::ether_ip_udp_nonfrag()).unwrap();
    let grandchild = edit.duplicate_pass(second).unwrap();
    edit.add_operand(grandchild, 2, 23).unwrap();
    edit.commit();
    check(&set);
    let mut edit = set.edit();
    edit.delete_pass(second).unwrap();
    edit.commit();
    assert_eq!(set.pass(grandchild).unwrap().parent, Some(first));
    check(&set);
    let mut edit = set.edit();
    edit.delete_pass(first).unwrap();
    edit.commit();
    assert_eq!(set.pass(grandchild).unwrap().parent, None);
    assert_eq!(set.passes().map(|pass| pass.id).collect::<Vec<_>>(), [grandchild, third]);
    check(&set);
}
