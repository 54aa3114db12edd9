//! The checks of the fuzz targets `machine_programs` and `machine_texts` on seeded input.
//!
//! Inputs are nearly correct: operation codes that exist, jumps inside the program, lengths that fit, so that many
//! pass the validator. The fuzzer does not need this help.

use fyke_machine::bpf::code;
use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/machine.rs"]
mod checks;

const CODES: &[u16] = &[
    0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0xb1, 0x02, 0x03, 0x04, 0x0c,
    0x24, 0x2c, 0x34, 0x44, 0x54, 0x64, 0x74, 0x84, 0x94, 0xa4, 0x05, 0x15, 0x1d, 0x25, 0x35, 0x45,
    0x06, 0x07, 0x87, 0x1e, 0x26, 0x17, 0x1f, 0x27,
];

fn instruction(data: &mut Vec<u8>, given: u16, jt: u8, jf: u8, k: u32) {
    data.extend(given.to_be_bytes());
    data.extend([jt, jf]);
    data.extend(k.to_be_bytes());
}

/// Builds a program of loads and stores, random instructions, a match on one word, and a return; then packets that
/// often match.
fn input(random: &mut Random) -> Vec<u8> {
    let kind = if random.chance(5) { 0 } else { 1 + 4 * random.below(2) as u8 };
    let mut data = vec![kind, random.below(3) as u8];
    for _ in 0..=data[1] % 3 {
        let (free, matches) = (random.below(12) as u8, kind & 4 != 0 && random.below(3) > 0);
        data.push(2 + free + if matches { 2 } else { 0 } + 1);
        instruction(&mut data, 0x30, 0, 0, random.below(4) as u32);
        instruction(&mut data, 0x02, 0, 0, 0);
        for left in (0..free).rev() {
            let given = random.pick(CODES);
            let jump = |random: &mut Random| random.below(usize::from(left) + 1) as u8;
            let (jt, jf, mut k) = (jump(random), jump(random), random.below(24) as u32);
            match given {
                0x60 | 0x61 | 0x02 | 0x03 => k %= 16,
                0x05 => k = jt.into(),
                0x06 => k = if kind & 4 == 0 { k } else { 0 },
                _ => {}
            }
            let counts = matches!(given, 0x17 | 0x1f | 0x1e);
            instruction(&mut data, given, if counts { 1 + jt % 3 } else { jt }, jf, k);
        }
        if matches {
            instruction(&mut data, code::RET_MATCH_IMM, 1, 0, 1 + random.below(3) as u32);
            instruction(&mut data, code::KEY, 0, 0, random.below(4) as u32);
        }
        instruction(&mut data, code::RET_K, 0, 0, if kind & 4 == 0 { 1 } else { 0 });
    }
    for _ in 0..random.below(40) {
        let length = random.below(24);
        data.push(length as u8);
        data.extend((0..length).map(|_| random.below(5) as u8));
    }
    if random.chance(4) {
        let at = random.below(data.len());
        data[at] = random.number() as u8;
    }
    data
}

#[test]
fn programs_of_any_bytes() {
    let (mut random, seed) = Random::seeded(31);
    println!("seed {seed}");
    let ran: usize = (0..800).map(|_| checks::programs(&input(&mut random))).sum();
    for _ in 0..2000 {
        let noise: Vec<u8> = (0..random.below(200)).map(|_| random.number() as u8).collect();
        checks::programs(&noise);
    }
    assert!(ran > 400, "{ran}");
}

#[test]
fn texts_of_any_bytes() {
    const PIECES: &[&str] = &[
        "ldh [12]\n",
        "ldb [",
        "x + 3]\n",
        "jeq #0x800, L1, L2\n",
        "L1: ",
        "L2: ",
        "ret #0\n",
        "ret #-1\n",
        "st M[1]\n",
        "ret_match_imm #1, #ALL\n",
        "key #5\n",
        "postpone #3\n",
        "begin\n",
        "pushlit ",
        "pushword P[3]\n",
        "| eq\n",
        "16\n",
        "4,40 0 0 12,21 0 1 2048,6 0 0 1,6 0 0 0",
        "(000) ldh [12]\n",
        "if (P[",
        "/*",
        "*/",
        "é",
        "\0",
        "#99999999999",
        ";",
    ];
    let (mut random, seed) = Random::seeded(32);
    println!("seed {seed}");
    let mut found = 0;
    for _ in 0..20_000 {
        let count = random.below(8);
        let mut text: Vec<u8> = (0..count).flat_map(|_| random.pick(PIECES).bytes()).collect();
        if random.chance(8) && !text.is_empty() {
            let at = random.below(text.len());
            text[at] = random.number() as u8;
        }
        found += checks::texts(&text);
    }
    assert!(found > 500, "{found}");
}
