//! Class `mpf`: passes frames that one of several programs of the register machines accepts, fragments included.
//!
//! Programs that differ only in their keys run once and are found by one look-up. A frame's class value is the number
//! of the first program that takes it, from 1 on in the order they are written. A fragment that a program postpones is
//! held until its first fragment has come, and then emitted. Bounded by the demultiplexer's limits. Cost: one run for
//! each group of programs. Source: the MPF paper, sections 2 and 3.

use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError};
use crate::node::{Parameter, Settings};
use fyke_frame::{Frame, Mask};
use fyke_machine::bpf::{Dialect, assemble, numbers, pseudo, run::Program};
use fyke_machine::{AnyProgram, Delivery, Demultiplexer, Endpoints, GivenUp, Options, papers};
use std::collections::HashSet;

/// Where the demultiplexer's packets go.
#[derive(Default)]
struct Recipients {
    /// The lowest recipient of the current frame, from 1 on.
    first: Option<u32>,
    /// Frames that were postponed and went to nobody at once.
    held: HashSet<u64>,
    /// What is delivered late, with the source of the frames at hand.
    late: Emitted,
    source: u32,
    given_up: u64,
}

impl Endpoints for Recipients {
    fn deliver(&mut self, frame: &Frame<'_>, delivery: Delivery) {
        let number = delivery.recipient.0 + 1;
        if !delivery.late {
            self.first = Some(self.first.map_or(number, |first| first.min(number)));
        } else if self.held.remove(&delivery.sequence) {
            self.late.push(self.source, frame);
        }
    }

    fn given_up(&mut self, sequence: u64, _: GivenUp) {
        self.given_up += u64::from(self.held.remove(&sequence));
    }
}

struct Registers {
    machine: Demultiplexer,
    recipients: Recipients,
}

impl Node for Registers {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.recipients.source = arrival.source();
        let mut passed = Mask::EMPTY;
        for (index, frame) in arrival.frames() {
            self.recipients.first = None;
            let verdict = self.machine.frame(frame, &mut self.recipients);
            if let Some(number) = self.recipients.first {
                arrival.classify(index, number);
                passed.set(index);
            } else if verdict.postponed > 0 {
                self.recipients.held.insert(verdict.sequence);
                arrival.take(index);
            }
        }
        arrival.emit_all(&mut self.recipients.late);
        Ok(passed)
    }

    fn finish(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        self.machine.finish(&mut self.recipients);
        emitted.append(&mut self.recipients.late);
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![
            Counter::count("programs", self.machine.len() as u64),
            Counter::count("groups", self.machine.group_count() as u64),
            Counter::count("postponed", self.machine.counters().postponed),
            Counter::count("given_up", self.recipients.given_up),
        ]
    }
}

fn program(path: &str, settings: &Settings) -> Result<Program, MakeError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| MakeError::refused("expression", format!("{path}: {error}")))?;
    let dialect = [Dialect::Mpf, Dialect::Bpf][settings.choice("isa", &["mpf", "bpf"])?];
    let mut symbols = papers::register_machine();
    for (_, definition) in settings.pairs().iter().filter(|(name, _)| name == "define") {
        symbols.define_text(definition).map_err(|problem| MakeError::new("define", problem))?;
    }
    let instructions = match dialect {
        _ if numbers::is_numbers(&text) => numbers::read(&text),
        Dialect::Mpf if pseudo::is_pseudo(&text) => {
            pseudo::compile(&text, &symbols).map(|assembled| assembled.program)
        }
        _ => assemble::assemble(&text, dialect, &symbols).map(|assembled| assembled.program),
    };
    let blame = |error: String| MakeError::new("expression", format!("{path}: {error}"));
    let instructions = instructions.map_err(|error| blame(error.to_string()))?;
    Program::new(instructions, dialect).map_err(|error| blame(error.to_string()))
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let mut machine = Demultiplexer::new(Options::default());
    for (_, path) in settings.pairs().iter().filter(|(name, _)| name == "expression") {
        let installed = machine.install(AnyProgram::Register(program(path, settings)?));
        installed.map_err(|error| MakeError::new("expression", error))?;
    }
    Ok(Box::new(Registers { machine, recipients: Recipients::default() }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "mpf",
    summary: "passes what one of the register machines' programs in the files `expression` takes",
    parameters: &[
        Parameter { name: "expression", summary: "file of a program; may be repeated" },
        Parameter { name: "isa", summary: "mpf (default) or bpf" },
        Parameter { name: "define", summary: "NAME=VALUE for the programs; may be repeated" },
    ],
    classifies: true,
    // Programs of mpf may postpone frames, for so long by the time of all frames.
    ordered: |settings| !matches!(settings.choice("isa", &["mpf", "bpf"]), Ok(1)),
    check: Some(|settings| settings.required("expression").map(drop)),
    make,
    ..Class::NODE
};
