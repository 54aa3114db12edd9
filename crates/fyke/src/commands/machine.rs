//! `fyke machine`: programs of the pseudo machines, assembled, printed, checked and run over capture files.

use super::Failure;
use crate::cli::{Isa, MachineAction, MachineArgs, MachineFormat};
use anyhow::Context;
use fyke_capture::{Next, Source};
use fyke_frame::Frame;
use fyke_machine::bpf::disassemble::{Format, disassemble};
use fyke_machine::bpf::run::Program;
use fyke_machine::bpf::{Dialect, assemble, numbers, pseudo};
use fyke_machine::cspf::{self, ByteOrder};
use fyke_machine::{
    AnyProgram, Delivery, Demultiplexer, Endpoints, GivenUp, Options, Symbols, papers,
};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::io::{Read, Write};
use std::path::Path;

/// Runs the command.
pub fn run(args: MachineArgs) -> Result<(), Failure> {
    match args.action {
        MachineAction::Run => return run_programs(&args),
        MachineAction::Asm | MachineAction::Disasm | MachineAction::Check => {}
    }
    let mut out = std::io::stdout().lock();
    for file in &args.files {
        let loaded = load(&args, file)?;
        let format = args.format.unwrap_or(match args.action {
            MachineAction::Asm => MachineFormat::Decimal,
            _ => MachineFormat::Asm,
        });
        match args.action {
            MachineAction::Check => writeln!(out, "{}: {}", file.display(), describe(&loaded))?,
            _ => out.write_all(print(&loaded, format).as_bytes())?,
        }
    }
    Ok(())
}

fn wrong(file: &Path, problem: impl Display) -> Failure {
    Failure::Usage(format!("{}: {problem}", file.display()))
}

fn read_text(file: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let limit = fyke_machine::text::MAX_TEXT as u64 + 1;
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().take(limit).read_to_end(&mut bytes),
        false => {
            std::fs::File::open(file).and_then(|file| file.take(limit).read_to_end(&mut bytes))
        }
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        wrong(file, format!("not a text: byte {at} is no UTF-8"))
    })
}

/// Reads, assembles and validates a program in any notation.
fn load(args: &MachineArgs, file: &Path) -> Result<AnyProgram, Failure> {
    let text = read_text(file)?;
    let order = if args.little_endian { ByteOrder::Little } else { ByteOrder::Network };
    let mut symbols = match args.isa {
        Isa::Cspf => papers::stack_machine(order),
        Isa::Bpf | Isa::Mpf => papers::register_machine(),
    };
    for definition in &args.define {
        symbols
            .define_text(definition)
            .map_err(|problem| Failure::Usage(format!("-D {definition}: {problem}")))?;
    }
    let are_numbers = numbers::is_numbers(&text);
    if args.isa == Isa::Cspf {
        let words = match are_numbers {
            true => cspf::assemble::read_numbers(&text),
            false => cspf::assemble::assemble(&text, &symbols),
        };
        let words = words.map_err(|error| wrong(file, error))?;
        let program = cspf::Program::new(words, order).map_err(|error| wrong(file, error))?;
        return Ok(AnyProgram::Cspf(program));
    }
    let dialect = if args.isa == Isa::Mpf { Dialect::Mpf } else { Dialect::Bpf };
    let instructions = match are_numbers {
        true => numbers::read(&text).map_err(|error| wrong(file, error))?,
        false => assembled(file, &text, dialect, &symbols)?,
    };
    let program = Program::new(instructions, dialect).map_err(|error| wrong(file, error))?;
    Ok(AnyProgram::Register(program))
}

fn assembled(
    file: &Path,
    text: &str,
    dialect: Dialect,
    symbols: &Symbols,
) -> Result<Vec<fyke_machine::bpf::Instruction>, Failure> {
    let assembled = match dialect {
        Dialect::Mpf if pseudo::is_pseudo(text) => pseudo::compile(text, symbols),
        _ => assemble::assemble(text, dialect, symbols),
    };
    let assembled = assembled.map_err(|error| wrong(file, error))?;
    for warning in &assembled.warnings {
        note!("fyke: {}: {warning}", file.display());
    }
    Ok(assembled.program)
}

fn print(program: &AnyProgram, format: MachineFormat) -> String {
    match (program, format) {
        (AnyProgram::Register(program), format) => {
            let format = match format {
                MachineFormat::Asm => Format::Assembler,
                MachineFormat::Listing => Format::Listing,
                MachineFormat::C => Format::C,
                MachineFormat::Decimal => Format::Decimal,
            };
            disassemble(program.instructions(), program.dialect(), format)
        }
        (AnyProgram::Cspf(program), MachineFormat::Asm | MachineFormat::Listing) => {
            cspf::disassemble::disassemble(program)
        }
        (AnyProgram::Cspf(program), MachineFormat::C | MachineFormat::Decimal) => {
            cspf::disassemble::numbers(program)
        }
    }
}

fn describe(program: &AnyProgram) -> String {
    match program {
        AnyProgram::Cspf(program) => format!("ok, {} words", program.words().len()),
        AnyProgram::Register(program) => {
            let count = program.instructions().len();
            let keys = program.keys().map_or(String::new(), |keys| {
                format!(", {} keys, collapses with programs of its shape", keys.len())
            });
            let state = if program.is_stateful() { ", with static memory" } else { "" };
            format!("ok, {count} instructions{keys}{state}")
        }
    }
}

/// Frames by verdict. A frame for several programs counts for all of them together, so that the sum is all frames.
struct Tally {
    names: Vec<String>,
    verdicts: BTreeMap<String, u64>,
    /// The names that the current frame went to.
    current: Vec<usize>,
    /// Frames that a group still holds, with the names they went to so far and the number of groups.
    open: HashMap<u64, (Vec<usize>, u32)>,
    frames: u64,
    accepted: u64,
}

impl Endpoints for Tally {
    fn deliver(&mut self, _: &Frame<'_>, delivery: Delivery) {
        let name = delivery.recipient.0 as usize;
        if !delivery.late {
            self.current.push(name);
            return;
        }
        if let Some((names, _)) = self.open.get_mut(&delivery.sequence) {
            names.push(name);
            self.settle(delivery.sequence);
        }
    }

    fn given_up(&mut self, sequence: u64, _: GivenUp) {
        self.settle(sequence);
    }
}

impl Tally {
    fn settle(&mut self, sequence: u64) {
        let Some((_, groups)) = self.open.get_mut(&sequence) else { return };
        *groups -= 1;
        if *groups == 0
            && let Some((names, _)) = self.open.remove(&sequence)
        {
            self.count(names);
        }
    }

    fn count(&mut self, mut names: Vec<usize>) {
        names.sort_unstable();
        names.dedup();
        self.frames += 1;
        self.accepted += u64::from(!names.is_empty());
        let name = match names.is_empty() {
            true => "reject".to_owned(),
            false => {
                let names: Vec<&str> = names.iter().map(|&n| self.names[n].as_str()).collect();
                names.join("+")
            }
        };
        *self.verdicts.entry(name).or_default() += 1;
    }
}

fn run_programs(args: &MachineArgs) -> Result<(), Failure> {
    let Some(path) = &args.read else {
        return Err(Failure::Usage("`machine run` needs packets: -r FILE".to_owned()));
    };
    let mut machine = Demultiplexer::new(Options::default());
    let mut names = Vec::new();
    for file in &args.files {
        machine.install(load(args, file)?)?;
        names.push(match args.files.len() {
            1 => "accept".to_owned(),
            _ => file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        });
    }
    let mut verdicts: BTreeMap<String, u64> = names.iter().map(|name| (name.clone(), 0)).collect();
    verdicts.insert("reject".to_owned(), 0);
    let mut tally = Tally {
        names,
        verdicts,
        current: Vec::new(),
        open: HashMap::new(),
        frames: 0,
        accepted: 0,
    };
    let mut source = fyke_capture::open_file(path)?;
    let result = feed(&mut source, &mut machine, &mut tally);
    machine.finish(&mut tally);
    let mut out = std::io::stdout().lock();
    if args.count {
        writeln!(out, "{}", tally.accepted)?;
    } else {
        for (verdict, frames) in &tally.verdicts {
            writeln!(out, "{verdict}\t{frames}")?;
        }
    }
    let counters = machine.counters();
    if counters.postponed > 0 {
        note!(
            "{} frames postponed: {} delivered later, {} rejected, {} not in time, {} without room",
            counters.postponed,
            counters.late,
            counters.rejected_late,
            counters.expired,
            counters.no_room
        );
    }
    result
}

fn feed(
    source: &mut dyn Source,
    machine: &mut Demultiplexer,
    tally: &mut Tally,
) -> Result<(), Failure> {
    loop {
        match source.next()? {
            Next::End => return Ok(()),
            Next::Idle => {}
            Next::Frames(batch, _) => {
                for frame in batch.frames() {
                    let verdict = machine.frame(frame, tally);
                    let names = std::mem::take(&mut tally.current);
                    if verdict.postponed > 0 {
                        tally.open.insert(verdict.sequence, (names, verdict.postponed));
                    } else {
                        tally.count(names);
                    }
                }
            }
        }
    }
}
