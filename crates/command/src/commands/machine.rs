//! `fyke machine`: assembles, prints and checks programs of the pseudo machines, and runs them on capture files.

mod tally;

use super::Failure;
use super::privilege::Needs;
use crate::cli::{Isa, MachineAction, MachineArgs, MachineFormat};
use anyhow::Context;
use fyke_capture::{Next, Source};
use fyke_machine::bpf::disassemble::{Format, disassemble};
use fyke_machine::cspf::{self, ByteOrder};
use fyke_machine::load::{self, Reading, Values, split};
use fyke_machine::{AnyProgram, Demultiplexer, Options};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use tally::Tally;

/// Runs the command.
pub fn run(args: MachineArgs) -> Result<(), Failure> {
    check_options(&args)?;
    if let Some(path) = &args.read {
        return run_programs(&args, path);
    }
    let mut programs = Programs::new(&args)?;
    let loaded =
        args.files.iter().map(|file| programs.load(file)).collect::<Result<Vec<_>, _>>()?;
    programs.finish()?;
    let mut out = super::output();
    for (file, program) in args.files.iter().zip(&loaded) {
        let format = args.format.unwrap_or(match args.action {
            MachineAction::Asm => MachineFormat::Decimal,
            _ => MachineFormat::Asm,
        });
        match args.action {
            MachineAction::Check => writeln!(out, "{}: {}", file.display(), describe(program))?,
            _ => out.write_all(print(program, format).as_bytes())?,
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
        wrong(file, format!("not a text file: invalid UTF-8 at byte {at}"))
    })
}

/// The programs of a command line, loaded.
struct Programs<'a> {
    args: &'a MachineArgs,
    shared: Values,
    read: HashSet<String>,
    /// Warnings already printed; a file may be given several times, with different values.
    warned: HashSet<String>,
    /// True if one of the programs is for CSPF, the machine that `--little-endian` applies to.
    stack: bool,
}

impl<'a> Programs<'a> {
    fn new(args: &'a MachineArgs) -> Result<Programs<'a>, Failure> {
        let mut shared = Values::default();
        for definition in &args.define {
            let added = shared.add(definition);
            added.map_err(|problem| Failure::Usage(format!("-D {definition}: {problem}")))?;
        }
        let (read, warned) = (HashSet::new(), HashSet::new());
        Ok(Programs { args, shared, read, warned, stack: false })
    }

    /// Reads, assembles and validates a program in any notation: `FILE` or `FILE:NAME=VALUE,…`.
    fn load(&mut self, given: &Path) -> Result<AnyProgram, Failure> {
        let (file, own) = match given.to_str() {
            Some(text) => split(text).map_err(|problem| wrong(given, problem))?,
            None => ("", Values::default()),
        };
        let file = if file.is_empty() { given } else { Path::new(file) };
        let text = read_text(file)?;
        let reading = Reading {
            isa: self.args.isa.map(|isa| match isa {
                Isa::Cspf => load::Isa::Cspf,
                Isa::Bpf => load::Isa::Bpf,
                Isa::Mpf => load::Isa::Mpf,
            }),
            order: if self.args.little_endian { ByteOrder::Little } else { ByteOrder::Network },
            shared: &self.shared,
            own: &own,
        };
        let loaded = load::load(&text, &reading).map_err(|error| wrong(given, error))?;
        for warning in &loaded.warnings {
            let line = format!("fyke: {}: {warning}", file.display());
            if !self.warned.contains(&line) {
                note!("{line}");
                self.warned.insert(line);
            }
        }
        self.read.extend(loaded.read);
        self.stack |= loaded.isa == load::Isa::Cspf;
        Ok(loaded.program)
    }

    /// Refuses arguments without effect on any of the programs.
    fn finish(self) -> Result<(), Failure> {
        if let Some(name) = self.shared.names().find(|name| !self.read.contains(*name)) {
            return Err(Failure::Usage(format!(
                "-D {name}: no program has a name `{name}` without its own value"
            )));
        }
        if self.args.little_endian && !self.stack {
            return Err(Failure::Usage(
                "--little-endian is for programs of CSPF; programs of BPF and MPF load in network \
                 order"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// Refuses options that the action does not use.
fn check_options(args: &MachineArgs) -> Result<(), Failure> {
    let name = match args.action {
        MachineAction::Asm => "asm",
        MachineAction::Disasm => "disasm",
        MachineAction::Check => "check",
        MachineAction::Run => "run",
    };
    let frames = "reads no frames; use `machine run`";
    let text = "prints no program; use `machine asm` or `machine disasm`";
    let runs = args.action == MachineAction::Run;
    let prints = matches!(args.action, MachineAction::Asm | MachineAction::Disasm);
    for (option, given, takes, why) in [
        ("-r", args.read.is_some(), runs, frames),
        ("--count", args.count, runs, frames),
        ("--interpret", args.interpret, runs, frames),
        ("--format", args.format.is_some(), prints, text),
    ] {
        if given && !takes {
            return Err(Failure::Usage(format!("{option}: `machine {name}` {why}")));
        }
    }
    match runs && args.read.is_none() {
        true => Err(Failure::Usage("`machine run` needs packets: -r FILE".to_owned())),
        false => Ok(()),
    }
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

/// Returns the names of the programs for verdicts: the stem of the file name; if it is not unique, the argument as
/// given; if that is not unique either, the argument with a number.
fn names(files: &[PathBuf]) -> Vec<String> {
    if files.len() == 1 {
        return vec!["accept".to_owned()];
    }
    let given: Vec<String> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
    let stem = |text: &String| {
        let file = split(text).map_or(text.as_str(), |(file, _)| file);
        Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = given.iter().map(stem).collect();
    for better in
        [given.clone(), given.iter().zip(1..).map(|(text, n)| format!("{text}#{n}")).collect()]
    {
        let mut count: HashMap<String, usize> = HashMap::new();
        names.iter().for_each(|name| *count.entry(name.clone()).or_default() += 1);
        for (name, better) in names.iter_mut().zip(better) {
            if count[name.as_str()] > 1 {
                *name = better;
            }
        }
    }
    names
}

fn run_programs(args: &MachineArgs, path: &Path) -> Result<(), Failure> {
    let options = Options { translate: !args.interpret, ..Options::default() };
    let mut machine = Demultiplexer::new(options);
    let mut programs = Programs::new(args)?;
    for file in &args.files {
        machine.install(programs.load(file)?)?;
    }
    programs.finish()?;
    let mut tally = Tally::new(names(&args.files));
    let mut needs = Needs::default();
    needs.makes_code = true;
    super::privilege::read_only(&args.privilege, path, &needs)?;
    let mut source = fyke_capture::open_file(path)?;
    let result = feed(&mut source, &mut machine, &mut tally);
    machine.finish(&mut tally);
    tally.end_batch(machine.counters().packets);
    let mut out = super::output();
    if args.count {
        writeln!(out, "{}", tally.accepted())?;
    } else {
        for (verdict, frames) in tally.verdicts() {
            writeln!(out, "{verdict}\t{frames}")?;
        }
    }
    let counters = machine.counters();
    if counters.postponed > 0 {
        note!(
            "{} frames postponed: {} delivered later, {} rejected, {} timed out, {} dropped (no space)",
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
                machine.batch(&batch, tally);
                tally.end_batch(machine.counters().packets);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart() {
        let named = |files: &[&str]| names(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(named(&["x/one.mpf"]), ["accept"]);
        assert_eq!(named(&["x/one.mpf:a=1", "two.mpf"]), ["one", "two"]);
        assert_eq!(named(&["p.mpf:a=1", "p.mpf:a=2", "q"]), ["p.mpf:a=1", "p.mpf:a=2", "q"]);
        assert_eq!(named(&["x/p", "x/p", "y/p"]), ["x/p#1", "x/p#2", "y/p"]);
    }
}
