//! Any 32 bytes are refused or are an instruction; nothing panics, and the batch evaluator and the reference evaluator
//! agree on the meaning.

mod support;

use fyke_frame::LinkType;
use fyke_pass::{Instruction, MatchMode, Matches, Opcode, PassSet};
use support::Random;

fn random_bits(random: &mut Random) -> Instruction {
    let word = |random: &mut Random| match random.below(5) {
        0 => 0,
        1 => random.below(200) as u32,
        2 => random.pick(&[14, 0xffff, 0x00ff, u32::MAX, 0xff00_0000, 128, 64]),
        3 => (random.below(40) as u32) << 16 | random.below(40) as u32,
        _ => (random.next() << 16 ^ random.next()) as u32,
    };
    let opcode = random.pick(Opcode::ALL) as u32;
    let count = random.below(4) as u32;
    let offset = random.pick(&[0, 12, 26, 30, 54, 60_000, 65_535]);
    let flags = random.pick(&[0, 0, 0, 1 << 12, 1 << 13, 1 << 15]) | (random.below(2) as u32) << 7;
    let command =
        if random.chance(5) { word(random) } else { opcode | count << 8 | flags | offset << 16 };
    let used = random.below(8) as usize;
    let mut params = [0; 7];
    params[..used].iter_mut().for_each(|param| *param = word(random));
    if random.chance(50) {
        params[6] = 14;
    }
    Instruction { command, params }
}

#[test]
fn every_bit_pattern_is_refused_or_evaluated() {
    let mut random = Random(31);
    let bytes: Vec<Vec<u8>> = (0..128).map(|_| support::frame_bytes(&mut random)).collect();
    let frames = support::frames(&mut random, &bytes);
    let batch = support::batch(&frames);
    let mut matches = Matches::new(MatchMode::First);
    let (mut valid, mut kinds) = (0, std::collections::BTreeSet::new());
    for _ in 0..60_000 {
        let instruction = random_bits(&mut random);
        assert!(!instruction.to_string().is_empty());
        if instruction.validate().is_err() {
            continue;
        }
        let mut set = PassSet::new(LinkType::EN10MB);
        let mut edit = set.edit();
        let pass = edit.new_pass().unwrap();
        if edit.set_instruction(pass, 0, instruction).is_err() {
            continue;
        }
        edit.commit();
        valid += 1;
        kinds.insert(instruction.opcode());
        let mut reader = set.reader();
        let verdict = reader.evaluate_matches(&batch, batch.all(), &mut matches);
        for (at, frame) in frames.iter().enumerate() {
            assert_eq!(verdict.get(at), reader.judge_one(frame).accepted, "{instruction}");
        }
        assert!(!set.pass(pass).unwrap().to_string().is_empty());
    }
    println!("{valid} valid instructions of {} kinds", kinds.len());
    assert!(valid > 5_000 && kinds.len() > 25, "{valid} {}", kinds.len());
}

/// An out-of-bounds load fails a pass made by hand, negated or not.
#[test]
fn out_of_bounds_fails_the_pass_also_under_negation() {
    let test = fyke_pass::primitive::ip_dst_host(9);
    for instruction in [test, test.negated()] {
        let mut set = PassSet::new(LinkType::EN10MB);
        let mut edit = set.edit();
        let pass = edit.new_pass().unwrap();
        edit.set_instruction(pass, 0, instruction).unwrap();
        edit.commit();
        let bytes = [vec![0; 33], vec![0; 34]];
        let frames = bytes.each_ref().map(|b| fyke_frame::Frame::new(LinkType::EN10MB, b));
        let batch = support::batch(&frames);
        let verdict = set.reader().evaluate(&batch, batch.all());
        assert!(!verdict.get(0));
        assert_eq!(verdict.get(1), instruction.is_negated());
    }
}
