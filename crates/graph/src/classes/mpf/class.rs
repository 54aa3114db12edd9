//! Class `mpf`: passes frames that one of several programs of the pseudo machines accepts, fragments included.
//!
//! Programs that differ only in their keys run once; one look-up selects those that accept. The class values of a
//! frame are the numbers of all programs that accept it, from 1 on, in the order in which they are written. A frame
//! that a program postpones is held until all programs have decided about it; then it is emitted once, with all its
//! class values (`held.rs`).
//!
//! Programs can be added and removed while the node runs; packets that a remaining group has postponed continue to
//! wait. Bounded by the demultiplexer's limits. Cost: one run for each group of programs. Source: the MPF paper,
//! sections 2 and 3.

mod held;

use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens};
use crate::node::{Parameter, Settings};
use crate::programs::{Loader, isa_of};
use fyke_frame::Mask;
use fyke_machine::cspf::ByteOrder;
use fyke_machine::{AnyProgram, Demultiplexer, Options, RecipientId};
use held::Recipients;
use std::collections::HashMap;

/// Most programs of a node: as many as there are class values from 1 on.
const MAX_PROGRAMS: usize = 65_535;

struct Machines {
    machine: Demultiplexer,
    /// Programs as they are written, in order.
    installed: Vec<(String, RecipientId)>,
    recipients: Recipients,
}

impl Machines {
    /// Installs and removes programs so that those of `wanted` are installed; programs with `None` stay. New ones are
    /// installed first: a group that would otherwise become empty keeps its packets.
    fn install(&mut self, wanted: Vec<(String, Option<AnyProgram>)>) -> Result<(), MakeError> {
        let mut old: HashMap<String, Vec<RecipientId>> = HashMap::new();
        for (text, recipient) in self.installed.drain(..).rev() {
            old.entry(text).or_default().push(recipient);
        }
        for (text, program) in wanted {
            let recipient = match program {
                None => old.get_mut(&text).and_then(Vec::pop),
                Some(program) => Some(
                    self.machine
                        .install(program)
                        .map_err(|error| MakeError::new("expression", error).of(&text))?,
                ),
            };
            self.installed.extend(recipient.map(|recipient| (text, recipient)));
        }
        self.recipients.number(self.installed.iter().map(|&(_, recipient)| recipient));
        for recipient in old.into_values().flatten() {
            self.recipients.forget(recipient);
            self.machine.remove(recipient, &mut self.recipients);
        }
        Ok(())
    }
}

impl Node for Machines {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let (batch, mask) = (arrival.batch(), arrival.mask());
        self.recipients.begin(arrival.source(), self.machine.counters().packets, mask);
        self.machine.batch_of(batch, mask, &mut self.recipients);
        let passed = self.recipients.end(arrival);
        arrival.emit_all(&mut self.recipients.late);
        Ok(passed)
    }

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        emitted.append(&mut self.recipients.late);
        Ok(())
    }

    fn finish(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        self.machine.finish(&mut self.recipients);
        emitted.append(&mut self.recipients.late);
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![
            Counter::count("programs", self.machine.len() as u64).state(),
            Counter::count("groups", self.machine.group_count() as u64).state(),
            Counter::count("postponed", self.machine.counters().postponed),
            Counter::count("waiting", self.recipients.waiting() as u64),
            Counter::count("given_up", self.recipients.given_up),
        ]
    }

    /// Adds and removes programs; programs with the same text keep their state, and their files are not read again.
    fn change(&mut self, settings: &Settings) -> bool {
        let mut there: HashMap<&str, usize> = HashMap::new();
        for (text, _) in &self.installed {
            *there.entry(text).or_default() += 1;
        }
        let Ok(wanted) = programs(settings, |text| match there.get_mut(text) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        }) else {
            return false;
        };
        self.install(wanted).is_ok()
    }
}

/// Reads the programs in their order, and loads those for which `wanted` holds.
fn programs(
    settings: &Settings,
    mut wanted: impl FnMut(&str) -> bool,
) -> Result<Vec<(String, Option<AnyProgram>)>, MakeError> {
    settings.required("expression")?;
    let mut loader = Loader::new(settings, ByteOrder::Network, isa_of)?;
    let texts = settings.pairs().iter().filter(|(name, _)| name == "expression");
    let mut all = true;
    let mut load = |(_, text): &(String, String)| {
        let program = wanted(text).then(|| loader.program(settings, text)).transpose()?;
        all &= program.is_some();
        Ok((text.clone(), program))
    };
    let programs: Vec<_> = texts.map(&mut load).collect::<Result<_, MakeError>>()?;
    if programs.len() > MAX_PROGRAMS {
        let problem = format!("{} programs; at most {MAX_PROGRAMS}", programs.len());
        return Err(MakeError::new("expression", problem));
    }
    // If only some programs are loaded, values for the others were checked when these were loaded.
    if all {
        loader.finish()?;
    }
    Ok(programs)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let options = Options { translate: !settings.flag("interpret")?, ..Options::default() };
    let (machine, recipients) = (Demultiplexer::new(options), Recipients::default());
    let mut machines = Machines { machine, installed: Vec::new(), recipients };
    machines.install(programs(settings, |_| true)?)?;
    Ok(Box::new(machines))
}

/// The class.
pub const CLASS: Class = Class {
    name: "mpf",
    summary: "passes frames that a pseudo machine's program in the files `expression` accepts",
    parameters: &[
        Parameter { name: "expression", summary: "FILE or FILE:NAME=VALUE,…; may be repeated" },
        Parameter { name: "isa", summary: "mpf, bpf or cspf (default: by the first word)" },
        Parameter { name: "define", summary: "NAME=VALUE for all programs; may be repeated" },
        Parameter { name: "interpret", summary: "y: do not translate to machine code" },
    ],
    classifies: true,
    several_classes: true,
    live: &["expression"],
    // Programs of MPF may postpone frames; how long depends on the time of all frames.
    ordered: |settings| !matches!(settings.choice("isa", &["mpf", "bpf", "cspf"]), Ok(1 | 2)),
    check: Some(|settings| {
        settings.flag("interpret")?;
        programs(settings, |_| true).map(drop)
    }),
    make_checks: true,
    make,
    replaces: crate::node::always,
    opens: |_| Opens::File,
    ..Class::NODE
};
