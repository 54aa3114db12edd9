//! Random programs: every program that the validator accepts ends, reads nothing outside the packet, and has the
//! same result in the interpreter and as machine code; printed programs are read back; random bytes and texts never
//! panic.

use fyke_frame::{Frame, LinkType};
use fyke_machine::bpf::disassemble::{Format, disassemble};
use fyke_machine::bpf::run::Program;
use fyke_machine::bpf::{Dialect, Instruction, assemble, code, numbers, pseudo};
use fyke_machine::cspf::{self, ByteOrder};
use fyke_machine::{AnyProgram, Delivery, Demultiplexer, Options, Symbols};
use fyke_testkit::random::Random;

const PLAIN: &[u16] = &[
    0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04,
    0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84,
    0x94, 0x9c, 0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07,
    0x87,
];

const MPF: &[u16] = &[0x1e, 0x26, 0x55, 0x17, 0x1f, 0x27, 0x0400];

fn immediate(random: &mut Random) -> u32 {
    match random.below(6) {
        0 => random.number() as u32,
        1 => 0xffff_f000_u32.wrapping_add(random.below(64) as u32 & !3),
        2 => 0xffe0_0000_u32.wrapping_add(random.below(0x10_0040) as u32),
        3 => u32::MAX - random.below(40) as u32,
        _ => random.below(40) as u32,
    }
}

/// Builds a program that is partly correct; the validator must find the errors.
fn program(random: &mut Random, dialect: Dialect) -> Vec<Instruction> {
    let len = 1 + random.below(24);
    let mut program: Vec<Instruction> = Vec::new();
    while program.len() < len {
        let left = (len - program.len()) as u8;
        let given = match dialect {
            Dialect::Mpf if random.chance(5) => random.pick(MPF),
            _ => random.pick(PLAIN),
        };
        let mut one = Instruction::jump(
            given,
            random.below(left.into()) as u8,
            random.below(left.into()) as u8,
            immediate(random),
        );
        match given {
            0x60 | 0x61 | 0x02 | 0x03 => one.k %= 16 + u32::from(random.chance(50)),
            0x05 => one.k = random.below(left.into()) as u32,
            0x64 | 0x74 => one.k %= 33,
            code::RET_K => one.k *= u32::from(dialect == Dialect::Bpf),
            code::RET_MATCH_IMM | code::JMP_MATCH_IMM => {
                one.jt = if given == code::JMP_MATCH_IMM { 2 + one.jt } else { 2 };
                one.jf += 2;
                one.k = if given == code::JMP_MATCH_IMM { 2 } else { one.k };
                program.push(one);
                program.extend([Instruction::new(code::KEY, 5), Instruction::new(code::KEY, 6)]);
                continue;
            }
            code::RET_MATCH_DATA | code::REGISTER_DATA => one.jt = 1 + one.jt % 3,
            _ => {}
        }
        program.push(one);
    }
    program.push(Instruction::new(code::RET_K, 0));
    program
}

fn packet(random: &mut Random) -> Vec<u8> {
    let byte = |random: &mut Random| if random.chance(2) { 0 } else { random.number() as u8 };
    (0..random.below(80)).map(|_| byte(random)).collect()
}

#[cfg(not(feature = "jit"))]
#[test]
fn without_the_code_generator_the_interpreter_runs_every_program() {
    use fyke_machine::jit::{Compiled, JitError};
    let program = Program::new(vec![Instruction::new(code::RET_K, 7)], Dialect::Bpf).unwrap();
    assert!(matches!(Compiled::new(&program), Err(JitError::Generator(_))));
    let mut machine = Demultiplexer::new(Options { translate: true, ..Options::default() });
    machine.install(AnyProgram::Register(program)).expect("there is room");
    let mut delivered = 0;
    let frame = Frame::new(LinkType::EN10MB, &[0; 60]);
    machine.frame(&frame, &mut |_: &Frame<'_>, _: Delivery| delivered += 1);
    assert_eq!(delivered, 1);
}

#[cfg(feature = "jit")]
#[test]
fn machine_code_and_interpreter_agree() {
    use fyke_machine::bpf::run::Outcome;
    use fyke_machine::jit::{Answer, Compiled, JitError};
    let (mut random, seed) = Random::seeded(11);
    let (mut translated, mut accepted, mut refused) = (0, 0, 0);
    for round in 0..4000 {
        let dialect = if random.chance(4) { Dialect::Mpf } else { Dialect::Bpf };
        let Ok(program) = Program::new(program(&mut random, dialect), dialect) else {
            refused += 1;
            continue;
        };
        let compiled = match Compiled::new(&program) {
            Ok(compiled) => compiled,
            Err(JitError::Interpreter { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        translated += 1;
        for _ in 0..20 {
            let bytes = packet(&mut random);
            let mut frame = Frame::new(LinkType::EN10MB, &bytes);
            frame.wire_len = random.number() as u32;
            let interpreted = program.run(&frame);
            let mut scratch = [0; 16];
            let coded = match compiled.run(&frame, &mut scratch) {
                Answer::AskInterpreter => continue,
                Answer::Bytes(0) => Outcome::Reject,
                Answer::Bytes(bytes) => Outcome::Accept { bytes },
                Answer::Match(bytes) if bytes > 0 && scratch[..2] == [5, 6] => {
                    Outcome::Recipient { bytes, who: 0 }
                }
                Answer::Match(_) => Outcome::Reject,
            };
            assert_eq!(coded, interpreted, "seed {seed}, round {round}: {program:?} on {bytes:?}");
            accepted += u32::from(interpreted != Outcome::Reject);
        }
    }
    assert!(translated > 500 && accepted > 1000, "{translated} {accepted} {refused}");
}

#[test]
fn what_is_printed_is_read_back() {
    let (mut random, seed) = Random::seeded(12);
    let mut tried = 0;
    for _ in 0..5000 {
        let dialect = if random.chance(2) { Dialect::Mpf } else { Dialect::Bpf };
        let mut instructions = program(&mut random, dialect);
        let Ok(_) = Program::new(instructions.clone(), dialect) else { continue };
        for one in &mut instructions {
            // Fields that an operation does not use are not printed.
            let jumps = one.code & 7 == 5 && one.code != code::JA;
            let counts = matches!(one.code, 0x1e | 0x26 | 0x1f);
            one.jf *= u8::from(jumps);
            one.jt *= u8::from(jumps || counts);
            let bare = matches!(one.code, 0x80 | 0x81 | 0x84 | 0x16 | 0x07 | 0x87 | 0x0400);
            let with_x = matches!(one.code & 7, 4 | 5) && one.code & 8 != 0;
            one.k *= u32::from(!bare && !with_x);
        }
        tried += 1;
        for format in [Format::Assembler, Format::Listing, Format::C, Format::Decimal] {
            let text = disassemble(&instructions, dialect, format);
            let read = match numbers::is_numbers(&text) {
                true => numbers::read(&text),
                false => assemble::assemble(&text, dialect, &Symbols::new(&[("ALL", u32::MAX)]))
                    .map(|assembled| assembled.program),
            };
            let read = read.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
            assert_eq!(read, instructions, "seed {seed}\n{text}");
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn random_instructions_never_run_away() {
    let (mut random, seed) = Random::seeded(13);
    println!("seed {seed}");
    let mut machine = Demultiplexer::new(Options::default());
    let mut installed = 0;
    for _ in 0..20_000 {
        let mut instructions = program(&mut random, Dialect::Mpf);
        if random.chance(2) {
            let at = random.below(instructions.len());
            instructions[at].code = random.number() as u16;
        }
        if let Ok(program) = Program::new(instructions, Dialect::Mpf) {
            if machine.len() > 40 {
                let victim = random.below(60) as u32;
                let mut nobody = |_: &Frame<'_>, _: Delivery| {};
                machine.remove(fyke_machine::RecipientId(victim), &mut nobody);
            }
            machine.install(AnyProgram::Register(program)).unwrap();
            installed += 1;
        }
        let bytes = packet(&mut random);
        let mut frame = Frame::new(LinkType::EN10MB, &bytes);
        frame.timestamp_ns = random.number() >> random.below(64);
        machine.frame(&frame, &mut |_: &Frame<'_>, _: Delivery| {});
    }
    assert!(installed > 1000, "{installed}");
}

#[test]
fn cspf_words_run_or_are_refused_and_print_back() {
    let (mut random, seed) = Random::seeded(14);
    let (mut ran, mut accepted) = (0, 0);
    for _ in 0..30_000 {
        let words: Vec<u16> = (0..random.below(9))
            .map(|_| match random.below(3) {
                0 => random.number() as u16,
                _ => (random.below(18) as u16) << 10 | random.pick(&[0, 1, 2, 3, 14, 16, 20, 992]),
            })
            .collect();
        let Ok(program) = cspf::Program::new(words.clone(), ByteOrder::Network) else { continue };
        let bytes = packet(&mut random);
        accepted += u32::from(program.run(&Frame::new(LinkType::EN10MB, &bytes)));
        ran += 1;
        let text = cspf::disassemble::disassemble(&program);
        let read = cspf::assemble::assemble(&text, &Symbols::default());
        assert_eq!(read.as_ref(), Ok(&words), "seed {seed}\n{text}");
        let numbers = cspf::disassemble::numbers(&program);
        assert_eq!(cspf::assemble::read_numbers(&numbers), Ok(words), "seed {seed}");
    }
    assert!(ran > 1000 && accepted > 100, "{ran} {accepted}");
}

#[test]
fn random_texts_are_errors_and_no_panics() {
    let (mut random, seed) = Random::seeded(15);
    println!("seed {seed}");
    let pieces = [
        "ldh",
        "P[",
        "[",
        "x",
        "+",
        "12",
        "]",
        "jeq",
        "#",
        "0x800",
        ",",
        "L1",
        "L1:",
        "\n",
        "ret",
        ";",
        "/*",
        "*/",
        "M[0]",
        "4*(",
        "&0xf)",
        "key",
        "ret_match_imm",
        "(000)",
        "jt",
        "jf",
        "{",
        "}",
        "pushlit",
        "|",
        "cand",
        "pushword",
        "if (",
        "P[proto]",
        "==",
        "IP",
        ")",
        "else",
        "return",
        "é",
        "-1",
        "!",
        "99999999999",
        "POSTPONE",
        "(",
        "%x",
        "ja",
        "\t",
    ];
    let symbols = Symbols::new(&[("IP", 1)]);
    for _ in 0..30_000 {
        let count = random.below(20);
        let text: Vec<&str> = (0..count).map(|_| random.pick(&pieces)).collect();
        let text = text.join(if random.chance(2) { " " } else { "" });
        let _ = assemble::assemble(&text, Dialect::Mpf, &symbols);
        let _ = pseudo::compile(&format!("if ({text}"), &symbols);
        let _ = numbers::read(&text);
        let _ = cspf::assemble::assemble(&text, &symbols);
        let _ = cspf::assemble::read_numbers(&text);
    }
}
