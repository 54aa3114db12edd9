//! Edits: an edited set equals a set that was built in that form; counters survive; readers see whole epochs.

mod support;

use fyke_filter::{Options, compile};
use fyke_frame::{Condition, Frame, LinkType};
use fyke_pass::{
    Capacity, EditError, Epoch, Instruction, InstructionError, MatchMode, Matches, Opcode, PassId,
    PassSet, ValueSet, primitive,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::Random;

fn random_instruction(random: &mut Random) -> Instruction {
    let host = random.pick(&support::HOSTS);
    let port = random.pick(&support::PORTS);
    let instruction = match random.below(9) {
        0 => primitive::ether_ip(),
        1 => primitive::ether_ip_tcp_nonfrag(),
        2 => primitive::ip_src_host(host),
        3 => primitive::ip_host_either(host),
        4 => primitive::tcp_port_either(&[port, 443]).unwrap(),
        5 => primitive::ip_port_dst(&[port]).unwrap(),
        6 => primitive::ip_src_net(0xff00_0000, host & 0xff00_0000),
        7 => primitive::ip_portrange_either(port.min(30), port.max(30)).unwrap(),
        _ => primitive::ether_ip_udp_nonfrag(),
    };
    if random.chance(25) { instruction.negated() } else { instruction }
}

/// Model of a pass.
#[derive(Clone, Debug)]
struct Model {
    instructions: Vec<Instruction>,
    parent: Option<PassId>,
    /// Instructions of the parent that have not been changed since, a bit each.
    copied: u64,
    accepted: u64,
}

fn rebuilt(model: &BTreeMap<PassId, Model>) -> PassSet {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    for pass in model.values() {
        let id = edit.new_pass().unwrap();
        for (index, instruction) in pass.instructions.iter().enumerate() {
            edit.set_instruction(id, index, *instruction).unwrap();
        }
    }
    edit.commit();
    set
}

fn random_edit(random: &mut Random, set: &mut PassSet, model: &mut BTreeMap<PassId, Model>) {
    let mut working = model.clone();
    let mut edit = set.edit();
    for _ in 0..1 + random.below(5) {
        let ids: Vec<PassId> = working.keys().copied().collect();
        let some = (!ids.is_empty()).then(|| random.pick(&ids));
        match (random.below(10), some) {
            (0, _) | (_, None) => {
                let id = edit.new_pass().unwrap();
                let instructions = vec![random_instruction(random)];
                edit.set_instruction(id, 0, instructions[0]).unwrap();
                working.insert(id, Model { instructions, parent: None, copied: 0, accepted: 0 });
            }
            (1 | 2, Some(parent)) => {
                let id = edit.duplicate_pass(parent).unwrap();
                let original = working[&parent].clone();
                let copied = (1 << original.instructions.len()) - 1;
                let copy = Model { parent: Some(parent), copied, accepted: 0, ..original };
                working.insert(id, copy);
            }
            (3, Some(id)) if ids.len() > 2 => {
                edit.delete_pass(id).unwrap();
                let gone = working.remove(&id).unwrap();
                for pass in working.values_mut().filter(|pass| pass.parent == Some(id)) {
                    pass.parent = gone.parent;
                }
            }
            (4..=7, Some(id)) => {
                let pass = working.get_mut(&id).unwrap();
                let index = random.below(pass.instructions.len().min(4) as u64 + 1) as usize;
                let instruction = random_instruction(random);
                edit.set_instruction(id, index, instruction).unwrap();
                pass.copied &= !(1 << index);
                match pass.instructions.get_mut(index) {
                    Some(slot) => *slot = instruction,
                    None => pass.instructions.push(instruction),
                }
            }
            (_, Some(id)) => {
                let pass = working.get_mut(&id).unwrap();
                let index = random.below(pass.instructions.len() as u64) as usize;
                let value = random.below(900) as u32;
                let mut expected = pass.instructions[index];
                let given = edit.add_operand(id, index, value).is_ok();
                assert_eq!(given, expected.add_operand(value).is_ok());
                if given {
                    pass.copied &= !(1 << index);
                    pass.instructions[index] = expected;
                    if random.chance(50) {
                        edit.remove_operand(id, index, value).unwrap();
                        pass.instructions[index].remove_operand(value).unwrap();
                    }
                }
            }
        }
    }
    if random.chance(80) {
        edit.commit();
        *model = working;
    }
}

#[test]
fn an_edited_set_is_the_set_built_anew() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut set = PassSet::new(LinkType::EN10MB);
        let mut model = BTreeMap::new();
        let mut reader = set.reader();
        let mut matches = Matches::new(MatchMode::First);
        let bytes: Vec<Vec<u8>> = (0..256).map(|_| support::frame_bytes(&mut random)).collect();
        let frames = support::frames(&mut random, &bytes);
        let batch = support::batch(&frames);
        for step in 0..40 {
            random_edit(&mut random, &mut set, &mut model);
            assert_eq!(reader.refresh(), set.epoch());
            let edited = reader.evaluate_matches(&batch, batch.all(), &mut matches);
            let built = rebuilt(&model).reader().evaluate(&batch, batch.all());
            assert_eq!(edited, built, "seed {seed} step {step}");
            for frame in edited.iter() {
                if let Some(found) = matches.of(frame).next() {
                    model.get_mut(&found.pass).unwrap().accepted += 1;
                }
            }
            assert_eq!(set.pass_count(), model.len());
            for pass in set.passes() {
                let expected = &model[&pass.id];
                assert_eq!(pass.instructions, expected.instructions);
                assert_eq!(pass.parent, expected.parent, "seed {seed} step {step}");
                assert_eq!(pass.accepted(), expected.accepted, "seed {seed} step {step}");
                assert_eq!(pass.copied, expected.copied, "seed {seed} step {step}");
            }
            let order: Vec<PassId> = set.passes().map(|pass| pass.id).collect();
            for pass in set.passes() {
                let at = |id| order.iter().position(|&other| other == id);
                assert!(pass.parent.is_none_or(|parent| at(parent) < at(pass.id)));
            }
        }
    }
}

#[test]
fn sets_are_edited_through_their_instruction_and_never_shared_by_accident() {
    let text = (0..100).map(|n| format!("ip host 10.0.0.{n}")).collect::<Vec<_>>().join(" or ");
    let predicate = compile(&text, &Options::default()).unwrap();
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let filter = edit.add_filter(&predicate).unwrap();
    edit.commit();
    assert_eq!(set.pass_count(), 1);
    let first = set.passes().next().unwrap().id;
    let index = set.passes().next().unwrap().instructions.len() - 1;
    let accepts = |set: &PassSet, host: u32| {
        let mut bytes = vec![0; 60];
        bytes[12] = 8;
        bytes[26..30].copy_from_slice(&host.to_be_bytes());
        let frames = [Frame::new(LinkType::EN10MB, &bytes)];
        let batch = support::batch(&frames);
        let mut matches = Matches::new(MatchMode::All);
        set.reader().evaluate_matches(&batch, batch.all(), &mut matches);
        matches.of(0).map(|found| found.pass).collect::<Vec<_>>()
    };
    let mut edit = set.edit();
    let second = edit.duplicate_pass(first).unwrap();
    edit.add_operand(second, index, 0x0b00_0001).unwrap();
    edit.remove_operand(second, index, 0x0a00_0005).unwrap();
    edit.commit();
    assert_eq!(accepts(&set, 0x0b00_0001), [second]);
    assert_eq!(accepts(&set, 0x0a00_0005), [first]);
    assert!(!set.filter(filter).unwrap().is_modified());
    let mut edit = set.edit();
    edit.add_operand(first, index, 0x0b00_0002).unwrap();
    edit.add_operand(first, index, 0x0b00_0003).unwrap();
    let third = edit.duplicate_pass(first).unwrap();
    edit.add_operand(first, index, 0x0b00_0004).unwrap();
    assert_eq!(
        edit.remove_operand(first, index, 77),
        Err(InstructionError::OperandAbsent { given: 77 }.into())
    );
    edit.commit();
    assert!(set.filter(filter).unwrap().is_modified());
    assert_eq!(accepts(&set, 0x0b00_0003), [first, third]);
    assert_eq!(accepts(&set, 0x0b00_0004), [first]);
    let mut edit = set.edit();
    let ids = edit.new_set(ValueSet::words(&[1, 2]));
    let named = Instruction::new(Opcode::DSet, 26)
        .with_param(0, u32::MAX)
        .with_operands(&[ids.number()])
        .unwrap();
    edit.set_instruction(third, index, named).unwrap();
    edit.commit();
    assert_eq!(accepts(&set, 2), [third]);
    let mut edit = set.edit();
    edit.delete_pass(third).unwrap();
    edit.commit();
    let mut edit = set.edit();
    let gone = edit.set_instruction(first, index, named);
    assert_eq!(gone, Err(EditError::NoSet { given: ids.number() }));
    edit.commit();
}

#[test]
fn an_edit_that_is_dropped_leaves_no_trace_and_errors_change_nothing() {
    let mut set = PassSet::with_capacity(LinkType::EN10MB, Capacity { passes: 3, instructions: 2 });
    let mut edit = set.edit();
    let id = edit.new_pass().unwrap();
    edit.set_instruction(id, 0, primitive::ether_ip()).unwrap();
    assert_eq!(edit.commit(), Epoch(1));
    let mut edit = set.edit();
    edit.delete_pass(id).unwrap();
    edit.new_pass().unwrap();
    drop(edit);
    assert_eq!((set.epoch(), set.pass_count()), (Epoch(1), 1));
    assert_eq!(set.edit().commit(), Epoch(1));

    let mut edit = set.edit();
    let none = PassId(99);
    assert_eq!(edit.delete_pass(none), Err(EditError::NoPass { given: none }));
    assert_eq!(edit.duplicate_pass(none), Err(EditError::NoPass { given: none }));
    let absent = EditError::NoInstruction { given: 5, length: 1 };
    assert_eq!(edit.set_instruction(id, 5, primitive::ether_ip()), Err(absent));
    assert_eq!(edit.add_operand(id, 5, 1), Err(absent));
    assert_eq!(edit.poke(id, 0, 8, 1), Err(EditError::NoWord { given: 8 }));
    assert!(matches!(edit.poke(id, 0, 0, 0x7f), Err(EditError::Instruction(_))));
    assert_eq!(edit.set_instruction(id, 1, primitive::ether_arp()), Ok(()));
    assert_eq!(
        edit.set_instruction(id, 2, primitive::ether_arp()),
        Err(EditError::PassFull { limit: 2 })
    );
    edit.new_pass().unwrap();
    edit.new_pass().unwrap();
    assert_eq!(edit.new_pass(), Err(EditError::Full { limit: 3 }));
    assert_eq!(edit.duplicate_pass(id), Err(EditError::Full { limit: 3 }));
    edit.commit();
    assert_eq!(set.pass_count(), 3);
    let predicate = compile("udp", &Options::default()).unwrap();
    assert!(set.edit().add_filter(&predicate).is_err());
    let other = Options { link: LinkType::RAW, ..Options::default() };
    let error = set.edit().add_filter(&compile("udp", &other).unwrap()).unwrap_err();
    assert!(error.to_string().contains("RAW"), "{error}");
}

#[test]
fn an_empty_set_accepts_everything_and_a_filter_that_cannot_match_nothing() {
    let mut set = PassSet::new(LinkType::EN10MB);
    let bytes = [vec![], vec![1; 60]];
    let frames = bytes.each_ref().map(|bytes| Frame::new(LinkType::EN10MB, bytes));
    let batch = support::batch(&frames);
    assert_eq!(set.reader().evaluate(&batch, batch.all()).count(), 2);
    let mut edit = set.edit();
    let both = [0x0800, 0x0806].map(support::ethertype).to_vec();
    let filter = edit.add_condition(Arc::new(Condition::All(both)), "ip and arp").unwrap();
    edit.commit();
    assert_eq!((set.pass_count(), set.reader().evaluate(&batch, batch.all()).count()), (0, 0));
    let mut edit = set.edit();
    edit.remove_filter(filter).unwrap();
    assert_eq!(edit.remove_filter(filter), Err(EditError::NoFilter { given: filter }));
    edit.commit();
    assert_eq!(set.reader().evaluate(&batch, batch.all()).count(), 2);
    let mut edit = set.edit();
    let id = edit.new_pass().unwrap();
    edit.set_instruction(id, 0, primitive::never()).unwrap();
    edit.commit();
    assert!(set.reader().evaluate(&batch, batch.all()).is_empty());
}

#[test]
fn looking_back_asks_only_the_passes_that_changed() {
    let mut random = Random(11);
    let bytes: Vec<Vec<u8>> = (0..256).map(|_| support::frame_bytes(&mut random)).collect();
    let frames = support::frames(&mut random, &bytes);
    let batch = support::batch(&frames);
    let [arp, udp, tcp] =
        ["arp", "udp", "tcp port 80"].map(|text| compile(text, &Options::default()).unwrap());
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    edit.add_filter(&arp).unwrap();
    edit.add_filter(&udp).unwrap();
    let before = edit.commit();
    let mut old = set.reader();
    let mut edit = set.edit();
    let added = edit.add_filter(&tcp).unwrap();
    edit.commit();
    let mut new = old.clone();
    new.refresh();
    let seen = old.evaluate(&batch, batch.all());
    let mut matches = Matches::new(MatchMode::First);
    let rejected = batch.all().without(seen);
    let late = new.evaluate_changed(&batch, rejected, before, Some(&mut matches));
    assert!(rejected.iter().all(|at| late.get(at) == tcp.accepts(&frames[at])));
    assert!(
        late.count() > 0
            && late.iter().all(|at| matches.of(at).next().unwrap().filter == Some(added))
    );
    assert_eq!(set.filter(added).unwrap().accepted(), late.count() as u64);
}

#[test]
fn a_text_that_is_judged_in_order_gives_the_same_verdicts() {
    let predicate = compile("tcp port 80 or arp or ip6", &Options::default()).unwrap();
    let mut random = Random(5);
    let bytes: Vec<Vec<u8>> = (0..256).map(|_| support::frame_bytes(&mut random)).collect();
    let frames = support::frames(&mut random, &bytes);
    let batch = support::batch(&frames);
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    edit.add_ordered(&predicate).unwrap();
    edit.commit();
    let mut reader = set.reader();
    let verdicts = reader.evaluate(&batch, batch.all());
    assert!((0..256).all(|at| verdicts.get(at) == predicate.accepts(&frames[at])));
    assert_eq!(reader.work().ordered, 256);
}

/// The verdict of a frame shows the epoch under which it was judged: epoch e accepts exactly the frames of port e mod
/// 8.
#[test]
fn readers_on_other_threads_judge_every_frame_under_exactly_one_epoch() {
    const EDITS: u64 = 3_000;
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let id = edit.new_pass().unwrap();
    edit.set_instruction(id, 0, primitive::ether_ip_tcp_nonfrag()).unwrap();
    edit.set_instruction(id, 1, primitive::ip_port_dst(&[1]).unwrap()).unwrap();
    edit.commit();
    let committed = Arc::new(AtomicU64::new(set.epoch().0));
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (mut reader, committed, done) = (set.reader(), committed.clone(), done.clone());
            std::thread::spawn(move || {
                let bytes: Vec<Vec<u8>> = (0..64_u8).map(|n| tcp_to(n % 8)).collect();
                let frames: Vec<Frame> =
                    bytes.iter().map(|bytes| Frame::new(LinkType::EN10MB, bytes)).collect();
                let batch = support::batch(&frames);
                let (mut judged, mut epochs) = (0_u64, 0_u64);
                while !done.load(Ordering::Acquire) {
                    let at_least = committed.load(Ordering::Acquire);
                    let stale = reader.is_stale();
                    let before = reader.epoch();
                    let epoch = reader.refresh();
                    assert!(epoch.0 >= at_least, "{epoch} after {at_least} was committed");
                    assert!(epoch >= before && (!stale || epoch > before));
                    epochs += u64::from(epoch > before);
                    let accepted = reader.evaluate(&batch, batch.all());
                    assert!(accepted.iter().eq((0..64).filter(|n| n % 8 == epoch.0 as usize % 8)));
                    judged += accepted.count() as u64;
                }
                (judged, epochs)
            })
        })
        .collect();
    for _ in 0..EDITS {
        let old = (set.epoch().0 % 8) as u32;
        let mut edit = set.edit();
        edit.remove_operand(id, 1, old).unwrap();
        edit.add_operand(id, 1, (old + 1) % 8).unwrap();
        let epoch = edit.commit();
        committed.store(epoch.0, Ordering::Release);
        if epoch.0.is_multiple_of(16) {
            std::thread::yield_now();
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    done.store(true, Ordering::Release);
    let mut judged = 0;
    for reader in readers {
        let (frames, epochs) = reader.join().unwrap();
        assert!(epochs > 0);
        judged += frames;
    }
    assert_eq!(set.pass(id).unwrap().accepted(), judged, "no count was lost across {EDITS} edits");
}

fn tcp_to(port: u8) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[14], bytes[23], bytes[37]) = (8, 0x45, 6, port);
    bytes
}
