//! Case `split`: the time of a packet divided into time per instruction × average number of instructions + auxiliary
//! time, and the time of an instruction that does nothing, which is the overhead of interpretation (Swift, table 6).
//!
//! | engine | instructions counted | does nothing |
//! |---|---|---|
//! | `libpcap` | executed for the frame, counted by an interpreter with the same verdicts | `ja 0` |
//! | `reference` | evaluated for the frame by the evaluator that takes frames one by one, as in the paper | `Nop` |
//! | `fyke` | evaluated for a batch, times its frames | `Nop` |
//!
//! Auxiliary is the time of a filter without instructions. A program of libpcap has at least one; the time of one that
//! does nothing is subtracted for it. Frames are those of the cache, as they come.

use super::super::engine::{Engine, Fyke, Interpreter, reader_of, words};
use super::super::filters::static_filters;
use super::super::frames::{Arena, Load};
use super::super::measure::{Turn, rounds, time_of};
use super::super::report::Measurement;
use super::super::traffic::Traffic;
use super::lineup::{SNAPLEN, compiled};
use super::{BENCH, Bench, BenchError};
use fyke_frame::bpf::{Instruction, code};
use fyke_frame::{Frame, LinkType};
use fyke_pass::{Opcode, PassSet, Reader};

/// The case's name.
pub(super) const CASE: &str = "split";
/// Instructions that do nothing in the program that measures them.
const NOTHINGS: usize = 24;
const ENGINES: [&str; 3] = ["libpcap", "reference", "fyke"];
/// Names of the programs that come before the filters.
const EMPTY: &str = "no instruction";
const IDLE: &str = "no-op instructions";

/// A program of one engine.
struct Program {
    name: String,
    engine: Box<dyn Engine>,
    /// Instructions for an average frame.
    instructions: f64,
}

/// Measures all engines.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), BenchError> {
    let frames = bench.scale.cache_frames;
    let arena = Arena::synthetic(&mut Traffic::new(bench.options.seed), frames, 0);
    let load = Load::new(&arena, (0..arena.len() as u32).collect());
    for engine in ENGINES.into_iter().filter(|engine| bench.options.wants_engine(engine)) {
        let programs = match engine {
            "libpcap" => libpcap(bench, &load)?,
            _ => ours(engine, &load)?,
        };
        if !programs.is_empty() {
            one_engine(bench, engine, programs, &arena);
        }
    }
    Ok(())
}

/// Measures the programs of an engine in turn, and reports the parts of their times.
fn one_engine(bench: &mut Bench<'_>, engine: &str, mut programs: Vec<Program>, arena: &Arena) {
    let mut load = Load::new(arena, (0..arena.len() as u32).collect());
    let mut verdicts = vec![0; words(load.len())];
    let random = &mut bench.random;
    let samples = rounds(
        &mut load,
        programs.len(),
        bench.scale.cache_rounds,
        |load| load.shuffle(random),
        |load, index| {
            load.touch();
            let count = load.len();
            let time = time_of(false, || programs[index].engine.judge(load, count, &mut verdicts));
            std::hint::black_box(&verdicts);
            Turn { time, units: count }
        },
    );
    let runs = samples.first().map_or(0, super::super::measure::Samples::len);
    let times: Vec<f64> = samples.iter().map(super::super::measure::Samples::median).collect();
    let mut push = |setting: &str, value: f64, unit: &str| {
        let one = Measurement::value(BENCH, CASE, engine, setting, value, unit);
        bench.report.push(one.runs(runs));
    };
    let more = programs[1].instructions - programs[0].instructions;
    let nothing = (more > 0.5).then(|| ((times[1] - times[0]) / more).max(0.0));
    let auxiliary = times[0] - nothing.unwrap_or_default() * programs[0].instructions;
    push("auxiliary", auxiliary, "ns");
    if let Some(ns) = nothing {
        push("a no-op instruction", ns, "ns");
    }
    for (program, &time) in programs.iter().zip(&times).skip(2) {
        let setting = |what: &str| format!("{}, {what}", program.name);
        push(&setting("a packet"), time, "ns");
        push(&setting("instructions per packet"), program.instructions, "instructions");
        if program.instructions < 0.05 {
            continue;
        }
        let each = (time - auxiliary) / program.instructions;
        push(&setting("an instruction"), each, "ns");
        if let Some(nothing) = nothing.filter(|_| each > 0.0) {
            push(&setting("no-op of an instruction"), 100.0 * nothing / each, "%");
        }
    }
    if nothing.is_none() {
        bench.report.note(format!("{CASE}: {engine} does not evaluate no-op instructions"));
    }
}

/// Programs of our engines.
fn ours(engine: &'static str, load: &Load) -> Result<Vec<Program>, BenchError> {
    let link = LinkType::EN10MB;
    let mut readers =
        vec![(EMPTY.to_owned(), reader_of(link, &[])?), (IDLE.to_owned(), idle_reader()?)];
    for (name, text) in static_filters() {
        readers.push((name.to_owned(), reader_of(link, &[compiled(name, &text)?])?));
    }
    let program = |(name, mut reader): (String, Reader)| {
        let frames = load.len().max(1) as f64;
        let instructions = match engine {
            "reference" => {
                let all = load.batches().iter().flat_map(|batch| batch.frames());
                all.map(|frame| u64::from(reader.judge_one(frame).evaluated)).sum::<u64>()
            }
            _ => {
                let before = reader.work().instructions;
                for batch in load.batches() {
                    let _verdicts = reader.evaluate(batch, batch.all());
                }
                reader.work().instructions - before
            }
        };
        let engine: Box<dyn Engine> = match engine {
            "reference" => Box::new(Fyke::reference(reader)),
            name => Box::new(Fyke::new(name, reader)),
        };
        Program { name, engine, instructions: instructions as f64 / frames }
    };
    Ok(readers.into_iter().map(program).collect())
}

/// A pass of instructions that do nothing.
fn idle_reader() -> Result<Reader, BenchError> {
    let text = |error: fyke_pass::EditError| BenchError::Other(error.to_string());
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let pass = edit.new_pass().map_err(text)?;
    for index in 0..NOTHINGS {
        edit.set_instruction(pass, index, fyke_pass::Instruction::new(Opcode::Nop, 0))
            .map_err(text)?;
    }
    edit.commit();
    let mut reader = set.reader();
    reader.refresh();
    Ok(reader)
}

/// Programs of libpcap; none, with a note, without the library.
fn libpcap(bench: &mut Bench<'_>, load: &Load) -> Result<Vec<Program>, BenchError> {
    let Some(libpcap) = &bench.libpcap else { return Ok(Vec::new()) };
    let end = Instruction::new(code::RET_K, SNAPLEN);
    let idle: Vec<_> =
        std::iter::repeat_n(Instruction::new(code::JA, 0), NOTHINGS).chain([end]).collect();
    let mut made = vec![(EMPTY, libpcap.program(vec![end])), (IDLE, libpcap.program(idle))];
    for (name, text) in static_filters() {
        let program = libpcap.compile(LinkType::EN10MB, SNAPLEN, &text, true);
        let message = |message| BenchError::Text { case: name.to_owned(), message };
        made.push((name, Some(program.map_err(message)?)));
    }
    let mut programs = Vec::new();
    for (name, program) in made {
        let program = program
            .ok_or_else(|| BenchError::Other(format!("libpcap refuses the program of {name}")))?;
        let mut all = 0;
        for frame in load.batches().iter().flat_map(|batch| batch.frames()) {
            let counted = execute(program.instructions(), frame);
            let accepted = program.matches(frame.data, frame.wire_len);
            match counted {
                Some((verdict, count)) if verdict == accepted => all += count,
                _ => {
                    let message = format!("{CASE}, {name}: the counting interpreter errs");
                    return Err(BenchError::Other(message));
                }
            }
        }
        let instructions = all as f64 / load.len().max(1) as f64;
        let engine = Box::new(Interpreter(program));
        programs.push(Program { name: name.to_owned(), engine, instructions });
    }
    Ok(programs)
}

/// Runs a program as far as the papers' filters need it; returns the verdict and the number of instructions. `None` for
/// an instruction that they do not have.
fn execute(program: &[Instruction], frame: &Frame<'_>) -> Option<(bool, u64)> {
    let load = |at: u64, len: usize| -> Option<u32> {
        let at = usize::try_from(at).ok()?;
        let bytes = frame.data.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    };
    let (mut a, mut x, mut at, mut count) = (0u32, 0u32, 0, 0);
    loop {
        let one = *program.get(at)?;
        count += 1;
        at += 1;
        let (k, indexed) = (u64::from(one.k), u64::from(x) + u64::from(one.k));
        let loaded = match one.code {
            code::LD_W_ABS => load(k, 4),
            code::LD_H_ABS => load(k, 2),
            code::LD_B_ABS => load(k, 1),
            code::LD_W_IND => load(indexed, 4),
            code::LD_H_IND => load(indexed, 2),
            code::LD_B_IND => load(indexed, 1),
            code::LDX_MSH => load(k, 1).map(|byte| 4 * (byte & 15)),
            _ => Some(0),
        };
        // A load outside the frame rejects it.
        let Some(loaded) = loaded else { return Some((false, count)) };
        let holds = match one.code {
            code::RET_K => return Some((one.k != 0, count)),
            code::LDX_MSH => {
                x = loaded;
                continue;
            }
            code::LD_W_ABS
            | code::LD_H_ABS
            | code::LD_B_ABS
            | code::LD_W_IND
            | code::LD_H_IND
            | code::LD_B_IND => {
                a = loaded;
                continue;
            }
            code::JA => {
                at += one.k as usize;
                continue;
            }
            code::JEQ => a == one.k,
            code::JGT => a > one.k,
            code::JGE => a >= one.k,
            code::JSET => a & one.k != 0,
            given if given == code::ALU | code::AND => {
                a &= one.k;
                continue;
            }
            _ => return None,
        };
        at += usize::from(if holds { one.jt } else { one.jf });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_counted_up_to_the_verdict() {
        let program = [
            Instruction::new(code::LD_H_ABS, 12),
            Instruction::jump(code::JEQ, 0, 1, 0x800),
            Instruction::new(code::RET_K, 1),
            Instruction::new(code::RET_K, 0),
        ];
        let mut bytes = [0; 20];
        let run = |bytes: &[u8]| execute(&program, &Frame::new(LinkType::EN10MB, bytes));
        assert_eq!(run(&bytes), Some((false, 3)));
        bytes[12] = 8;
        assert_eq!(run(&bytes), Some((true, 3)));
        assert_eq!(run(&bytes[..13]), Some((false, 1)));
        let unknown = [Instruction::new(code::TAX, 0)];
        assert_eq!(execute(&unknown, &Frame::new(LinkType::EN10MB, &bytes)), None);
    }
}
