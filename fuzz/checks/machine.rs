//! Properties of the pseudo machines that hold for any input: shared by the fuzz targets and `cargo test`.
//!
//! A panic is a finding. The input has a program, then packets.

use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType};
use fyke_machine::bpf::disassemble::{Format, disassemble};
use fyke_machine::bpf::run::{Outcome, Program};
use fyke_machine::bpf::{Dialect, Instruction, SCRATCH_WORDS, assemble, numbers, pseudo};
use fyke_machine::cspf::{self, ByteOrder};
use fyke_machine::jit::{Answer, Compiled};
use fyke_machine::{AnyProgram, Delivery, Demultiplexer, Options, Symbols};

/// Maximum number of instructions built from the input.
const MOST: usize = 64;

/// Removes and returns the first `count` bytes, or all if there are fewer.
fn take<'d>(data: &mut &'d [u8], count: usize) -> &'d [u8] {
    let (taken, rest) = data.split_at(count.min(data.len()));
    *data = rest;
    taken
}

fn byte(data: &mut &[u8]) -> u8 {
    take(data, 1).first().copied().unwrap_or_default()
}

/// Reads instructions of eight bytes, in the kernel's format.
fn instructions(data: &mut &[u8]) -> Vec<Instruction> {
    let count = usize::from(byte(data)) % MOST;
    let of = |bytes: &[u8]| {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        let k = u32::from_be_bytes([all[4], all[5], all[6], all[7]]);
        Instruction::jump(u16::from_be_bytes([all[0], all[1]]), all[2], all[3], k)
    };
    (0..count).map(|_| of(take(data, 8))).collect()
}

/// Reads packets (a length, then that many bytes), one tenth of a second apart.
fn packets<'d>(data: &mut &'d [u8]) -> Vec<Frame<'d>> {
    let mut frames = Vec::new();
    while !data.is_empty() && frames.len() < BATCH_CAPACITY {
        let length = usize::from(byte(data)) % 96;
        let mut frame = Frame::new(LinkType::EN10MB, take(data, length));
        frame.timestamp_ns = frames.len() as u64 * 100_000_000;
        frames.push(frame);
    }
    frames
}

/// Runs programs of any bytes on packets of any bytes: a valid program terminates, machine code and interpreter
/// give the same result, and a batch has the same deliveries as single packets. Returns the number of valid
/// programs.
pub fn programs(mut data: &[u8]) -> usize {
    let kind = byte(&mut data);
    if kind.is_multiple_of(4) {
        let count = usize::from(byte(&mut data)) % MOST;
        let words = take(&mut data, 2 * count).chunks_exact(2);
        let words = words.map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        let order = if kind & 4 == 0 { ByteOrder::Network } else { ByteOrder::Little };
        let Ok(program) = cspf::Program::new(words, order) else { return 0 };
        for frame in packets(&mut data) {
            let _ = program.run(&frame);
        }
        return 1;
    }
    let dialect = if kind & 4 == 0 { Dialect::Bpf } else { Dialect::Mpf };
    let count = 1 + usize::from(byte(&mut data)) % 3;
    let programs = (0..count).filter_map(|_| Program::new(instructions(&mut data), dialect).ok());
    let programs: Vec<Program> = programs.collect();
    let frames = packets(&mut data);
    for program in &programs {
        let printed = disassemble(program.instructions(), dialect, Format::Decimal);
        assert_eq!(numbers::read(&printed).as_deref(), Ok(program.instructions()));
        if let Ok(compiled) = Compiled::new(program) {
            frames.iter().for_each(|frame| equal(program, &compiled, frame));
        }
    }
    one_by_one_and_at_once(&programs, &frames);
    programs.len()
}

fn equal(program: &Program, compiled: &Compiled, frame: &Frame<'_>) {
    let mut scratch = [0; SCRATCH_WORDS];
    let keys = program.keys().unwrap_or_default();
    let coded = match compiled.run(frame, &mut scratch) {
        Answer::AskInterpreter => return,
        Answer::Bytes(0) => Outcome::Reject,
        Answer::Bytes(bytes) => Outcome::Accept { bytes },
        Answer::Match(bytes) if bytes > 0 && scratch[..keys.len()] == *keys => {
            Outcome::Recipient { bytes, who: 0 }
        }
        Answer::Match(_) => Outcome::Reject,
    };
    assert_eq!(coded, program.run(frame), "{program:?} on {:?}", frame.data);
}

fn one_by_one_and_at_once(programs: &[Program], frames: &[Frame<'_>]) {
    /// Linux's `rand`: packets processed in another order get other numbers.
    const RANDOM: u32 = 0xffff_f000 + 56;
    let random = |program: &Program| program.instructions().iter().any(|one| one.k == RANDOM);
    if programs.iter().any(random) {
        return;
    }
    let run = |translate: bool, at_once: bool| {
        let mut machine = Demultiplexer::new(Options { translate, ..Options::default() });
        for program in programs {
            let installed = machine.install(AnyProgram::Register(program.clone()));
            assert!(installed.is_ok());
        }
        let mut log: Vec<(u32, u64, u32, bool)> = Vec::new();
        let mut note = |_: &Frame<'_>, got: Delivery| {
            log.push((got.recipient.0, got.sequence, got.bytes, got.late));
        };
        if at_once {
            let mut batch = Batch::new();
            for frame in frames {
                let _ = batch.push(*frame);
            }
            machine.batch(&batch, &mut note);
        } else {
            for frame in frames {
                machine.frame(frame, &mut note);
            }
        }
        machine.finish(&mut note);
        // Deliveries have an order per recipient only.
        log.sort_by_key(|&(recipient, ..)| recipient);
        (log, machine.counters())
    };
    let expected = run(false, false);
    assert_eq!(run(false, true), expected);
    assert_eq!(run(true, true), expected);
}

/// Assembles any text: the result is an error with its location, or a program that is valid or refused. Returns the
/// number of programs.
pub fn texts(data: &[u8]) -> usize {
    let text = String::from_utf8_lossy(data);
    let symbols = Symbols::new(&[("IP", 1)]);
    let _ = pseudo::compile(&text, &symbols);
    let _ = numbers::read(&text);
    let _ = cspf::assemble::read_numbers(&text);
    let mut found = 0;
    if let Ok(words) = cspf::assemble::assemble(&text, &symbols)
        && let Ok(program) = cspf::Program::new(words.clone(), ByteOrder::Network)
    {
        let printed = cspf::disassemble::numbers(&program);
        assert_eq!(cspf::assemble::read_numbers(&printed), Ok(words));
        found += 1;
    }
    for dialect in [Dialect::Bpf, Dialect::Mpf] {
        let Ok(assembled) = assemble::assemble(&text, dialect, &symbols) else { continue };
        if assembled.program.is_empty() {
            continue; // The validator refuses it.
        }
        let printed = disassemble(&assembled.program, dialect, Format::Decimal);
        assert_eq!(numbers::read(&printed), Ok(assembled.program.clone()));
        found += usize::from(Program::new(assembled.program, dialect).is_ok());
    }
    found
}
