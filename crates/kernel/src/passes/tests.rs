//! Tests of the list in private memory, without a kernel: they walk it after every edit, as the program would.

use super::*;
use crate::sys::ROWS_BYTES;

fn passes() -> KernelPasses {
    let memory = |len| Mapped::anonymous(len).unwrap();
    let counters = Arc::new(Counters::without_kernel());
    let bytes = KernelPasses::BYTES;
    KernelPasses::new(memory(bytes), memory(ROWS_BYTES), counters, Options::default())
}

/// An instruction that its number identifies.
fn marked(number: u32) -> Instruction {
    Instruction::new(Opcode::DEq, 0).with_operands(&[number]).unwrap()
}

/// The operands of all instructions by pass, as met by a program for which every pass fails at its last instruction.
fn walk(passes: &KernelPasses) -> Vec<Vec<u32>> {
    let word = |place: u32, word: usize| passes.memory.get(at(place) + 4 * word);
    let mut found = Vec::new();
    let mut place = passes.memory.get(offset_of!(Control, head));
    while place != 0 && place != start(ACCEPT_SLOT) {
        let mut pass = Vec::new();
        loop {
            let command = word(place, 0);
            if command & fyke_pass::layout::OPCODE_MASK == OP_TRAILER {
                place = word(place, 1 + CONTINUE);
                continue;
            }
            pass.push(word(place, 1));
            if command & LAST != 0 {
                break;
            }
            place += 1;
        }
        found.push(pass);
        place = word(place | TRAILER as u32, 1 + NEXT);
        assert!(found.len() <= SLOTS, "the list has no end");
    }
    found
}

#[test]
fn the_list_is_a_model_s_after_any_splices() {
    let mut passes = passes();
    let mut model: Vec<(KernelPassId, Vec<u32>)> = Vec::new();
    let mut seed = 0x1234_5678_u64;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % limit
    };
    for round in 0..6_000_u32 {
        let from = below(model.len() + 1);
        let to = (from + below(4)).min(model.len());
        let bodies: Vec<Vec<Instruction>> = (0..below(4))
            .map(|pass| {
                (0..1 + below(64)).map(|n| marked(round << 8 | (pass * 64 + n) as u32)).collect()
            })
            .collect();
        let added: Vec<NewPass<'_>> = bodies
            .iter()
            .map(|body| NewPass { instructions: body, counts_for: None, class: 0 })
            .collect();
        let removed: Vec<KernelPassId> = model[from..to].iter().map(|(id, _)| *id).collect();
        let after = from.checked_sub(1).map(|last| model[last].0);
        let Ok(ids) = passes.splice(after, &removed, &added) else {
            // The budget is used up, so the test starts again with an empty list.
            let all: Vec<KernelPassId> = model.drain(..).map(|(id, _)| id).collect();
            passes.splice(None, &all, &[]).unwrap();
            continue;
        };
        let operand = |instruction: &Instruction| instruction.params[0];
        let new = ids.into_iter().zip(bodies.iter().map(|body| body.iter().map(operand).collect()));
        model.splice(from..to, new);
        if !model.is_empty() {
            let chosen = below(model.len());
            let (id, body) = &mut model[chosen];
            let index = below(body.len());
            passes.set_instruction(*id, index, marked(round)).unwrap();
            body[index] = round;
        }
        assert!(walk(&passes).iter().eq(model.iter().map(|(_, body)| body)), "round {round}");
        assert!(passes.ids().eq(model.iter().map(|(id, _)| *id)));
    }
}

#[test]
fn a_poked_word_is_that_word_of_that_instruction() {
    let mut passes = passes();
    let first = passes.add(&[marked(1), marked(2)]).unwrap();
    let second = passes.add(&[marked(3), marked(4)]).unwrap();
    passes.poke(first, 1, 1, 20).unwrap();
    assert_eq!(walk(&passes), [[1, 20], [3, 4]]);
    passes.poke(second, 0, 1, 30).unwrap();
    assert_eq!(walk(&passes), [[1, 20], [30, 4]]);
    passes.poke(second, 1, 1, 40).unwrap();
    passes.poke(first, 0, 1, 10).unwrap();
    assert_eq!(walk(&passes), [[10, 20], [30, 40]]);
}

#[test]
fn a_refused_edit_changes_nothing() {
    let mut passes = passes();
    let first = passes.add(&[marked(1)]).unwrap();
    let before = walk(&passes);
    let gone = KernelPassId(99);
    assert_eq!(passes.remove(gone), Err(KernelEditError::NoPass { given: 99 }));
    assert_eq!(passes.poke(first, 0, 8, 0), Err(KernelEditError::NoWord { given: 8 }));
    assert!(matches!(passes.poke(first, 0, 0, 0x7e), Err(KernelEditError::Instruction(_))));
    let long = vec![marked(2); MAX_INSTRUCTIONS + 1];
    assert!(matches!(passes.add(&long), Err(KernelEditError::PassFull { .. })));
    let condition = Instruction::new(Opcode::Cond, 0).with_operands(&[1]).unwrap();
    assert!(matches!(passes.add(&[condition]), Err(KernelEditError::Unsupported { .. })));
    assert_eq!(walk(&passes), before);
}

#[test]
fn the_papers_127_passes_of_30_instructions_fit_many_times() {
    let mut passes = passes();
    let pass: Vec<Instruction> = (0..30).map(marked).collect();
    let mut count = 0;
    let error = loop {
        match passes.add(&pass) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(count >= 127, "{count}: {error}");
    assert!(matches!(error, KernelEditError::Budget { limit: 8192, .. }));
}

#[test]
fn an_empty_list_accepts_or_rejects() {
    let mut passes = passes();
    let head = |passes: &KernelPasses| passes.memory.get(offset_of!(Control, head));
    assert_eq!(head(&passes), start(ACCEPT_SLOT));
    let id = passes.add(&[marked(1)]).unwrap();
    passes.set_empty_accepts(false);
    assert_ne!(head(&passes), 0);
    passes.remove(id).unwrap();
    assert_eq!(head(&passes), 0);
    passes.set_empty_accepts(true);
    assert_eq!(head(&passes), start(ACCEPT_SLOT));
}
