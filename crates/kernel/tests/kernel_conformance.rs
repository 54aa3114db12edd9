//! The kernel program and the reference evaluator give the same verdict for the same passes and frames. Conditions come
//! from filter texts, and from a generator of unusual ones; frames are whole and truncated.

#[path = "../../pass/tests/support/mod.rs"]
mod support;

use fyke_frame::{Direction, Frame, LinkType};
use fyke_kernel::direct::Access;
use fyke_kernel::{Form, KernelEditError, Mirror, OpenError, Options, Space};
use fyke_pass::{Instruction, Opcode, PassSet, Verdict};
use fyke_testkit::skip::unless_missing;
use std::sync::Arc;
use support::Random;

const SEED: u64 = 0x5eed_f00d;
const FILTERS: usize = 400;
const FRAMES: usize = 60;
/// Interpreted, and specialised with each access to a frame's bytes.
const FORMS: [Option<fn() -> Access>; 3] = [None, Some(Access::best), Some(|| Access::Copied)];

#[test]
fn random_passes_judge_random_frames_alike() {
    judged_alike(Form::Loop, Access::best());
    judged_alike(Form::Loop, Access::Copied);
}

#[test]
fn the_form_for_older_kernels_judges_alike() {
    judged_alike(Form::Callbacks, Access::Copied);
}

fn judged_alike(form: Form, access: Access) {
    let opened = match Space::open(Options { form: Some(form), access, ..Options::default() }) {
        Err(error) if error.is_by_verifier() => {
            return println!("skipped: the loop needs Linux 6.9, and not 6.12");
        }
        opened => unless_missing(opened, OpenError::is_unavailable),
    };
    let Some(mut space) = opened else { return };
    assert_eq!(space.form(), form);
    if space.access() != access {
        return println!("skipped: programs that read frames where they are need Linux 6.17");
    }
    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    let mut mirror = Mirror::default();
    let mut passes = PassSet::new(LinkType::EN10MB);
    let (mut judged, mut accepted, mut refused) = (0, 0, 0);
    let (mut covered, mut left) = (0, 0);
    for number in 0..FILTERS {
        let condition = Arc::new(support::condition(&mut random, 3));
        let mut edit = passes.edit();
        edit.clear();
        let Ok(filter) = edit.add_condition(condition.clone(), "") else { continue };
        edit.commit();
        // Every other filter keeps its text's order; the passes of the others are detached from their text.
        if number % 4 < 2 {
            detach(&mut passes, filter);
        }
        match mirror.sync(space.passes(), &passes) {
            Ok(()) => {}
            Err(KernelEditError::Unsupported { .. }) if number % 4 < 2 => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        let form = FORMS[number % FORMS.len()];
        if let Some(wanted) = form {
            let made = space.snapshot().unwrap().specialise_with(wanted()).unwrap();
            if made.access() != wanted() {
                println!("skipped: programs that read frames where they are need Linux 6.17");
            }
            covered += made.covered();
            space.adopt(made).unwrap();
            left += space.view().interpreted();
        }
        let reader = passes.reader();
        for _ in 0..FRAMES {
            let mut bytes = support::frame_bytes(&mut random);
            if bytes.len() < 14 {
                bytes.resize(14, 0);
            }
            let mut frame = Frame::new(LinkType::EN10MB, &bytes);
            // Metadata of a frame in BPF_PROG_TEST_RUN: received for this host, on the loopback device.
            (frame.meta.direction, frame.meta.ifindex) = (Direction::Inbound, 1);
            let Verdict { accepted: expected, .. } = reader.judge_one(&frame);
            let returned = space.test_run(&bytes, 1).unwrap().returned;
            let shown: Vec<String> = passes.passes().map(|pass| pass.to_string()).collect();
            let shown = shown.join("\n");
            let access = form.map(|form| form());
            assert_eq!(returned != 0, expected, "{access:?} {bytes:02x?}\n{shown}");
            judged += 1;
            accepted += usize::from(expected);
        }
        if form.is_some() {
            space.forget_specialised().unwrap();
        }
    }
    println!("{covered} passes specialised, {left} left to the interpreter");
    assert!(covered > left);
    println!("{judged} frames judged alike, {accepted} accepted; {refused} filters refused");
    assert!(judged > FILTERS * FRAMES / 2 && accepted > judged / 20);
}

/// Detaches the passes from their text, so that an out-of-bounds load fails only the pass with the load.
fn detach(passes: &mut PassSet, filter: fyke_pass::FilterId) {
    let first = passes.filter(filter).and_then(|filter| {
        let pass = filter.passes().next()?;
        let nothing = Instruction::new(Opcode::Nop, 0);
        Some((pass.id, pass.instructions.first().copied().unwrap_or(nothing)))
    });
    if let Some((id, instruction)) = first {
        let mut edit = passes.edit();
        edit.set_instruction(id, 0, instruction).unwrap();
        edit.commit();
    }
}
