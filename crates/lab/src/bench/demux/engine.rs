//! Engines of the demux bench: the machines and the pass engine, with sessions installed.

use super::session::{Session, register};
use crate::bench::BenchError;
use fyke_frame::{Batch, Frame, LinkType};
use fyke_machine::bpf::Dialect;
use fyke_machine::{Delivery, Demultiplexer, Hashing, Limits};
use fyke_pass::{MatchMode, Matches, PassSet, Reader};
use std::hint::black_box;

/// Three programs for protocols other than TCP.
const OTHERS: [&str; 3] = [
    "ldh [12]\njeq #0x806, yes, no\nyes: ret #-1\nno: ret #0\n",
    "ldh [12]\njeq #0x86dd, yes, no\nyes: ret #-1\nno: ret #0\n",
    "ldh [12]\njeq #0x800, L, no\nL: ldb [23]\njeq #17, yes, no\nyes: ret #-1\nno: ret #0\n",
];

/// An engine with its sessions installed.
pub(super) enum Engine {
    Machine { machine: Box<Demultiplexer>, at_once: bool },
    Pass { reader: Box<Reader>, matches: Box<Matches>, _set: Box<PassSet> },
}

/// Options of an engine, by its name.
pub(super) fn options(engine: &str) -> fyke_machine::Options {
    let limits = Limits { translated: usize::MAX, ..Limits::default() };
    fyke_machine::Options {
        limits,
        hashing: if engine == "mpf-sum" { Hashing::Sum } else { Hashing::Seeded },
        translate: engine.contains("-jit"),
        ..fyke_machine::Options::default()
    }
}

/// Parses a filter text.
pub(super) fn predicate(text: &str) -> Result<fyke_filter::Predicate, BenchError> {
    let options = fyke_filter::Options::default();
    fyke_filter::compile(text, &options).map_err(|error| BenchError::Other(error.to_string()))
}

/// Adds filters to a set, in one edit.
pub(super) fn installed(
    set: &mut PassSet,
    texts: impl Iterator<Item = String>,
) -> Result<(), BenchError> {
    let mut edit = set.edit();
    for text in texts {
        let added = edit.add_filter(&predicate(&text)?);
        added.map_err(|error| BenchError::Other(error.to_string()))?;
    }
    edit.commit();
    Ok(())
}

impl Engine {
    pub fn new(name: &str, sessions: &[Session], others: bool) -> Result<Engine, BenchError> {
        let other = |error: &dyn std::fmt::Display| BenchError::Other(error.to_string());
        if name == "pass" {
            let mut set = PassSet::new(LinkType::EN10MB);
            let texts = sessions.iter().map(|session| session.text());
            let more = ["arp", "ip6", "udp"].iter().filter(|_| others).map(|t| (*t).to_owned());
            installed(&mut set, texts.chain(more))?;
            let reader = Box::new(set.reader());
            let matches = Box::new(Matches::new(MatchMode::First));
            return Ok(Engine::Pass { reader, matches, _set: Box::new(set) });
        }
        let mut machine = Demultiplexer::new(options(name));
        let symbols = fyke_machine::Symbols::default();
        for text in OTHERS.iter().filter(|_| others) {
            let program = register(text, Dialect::Bpf, &symbols)?;
            machine.install(program).map_err(|e| other(&e))?;
        }
        for session in sessions {
            machine.install(session.program(name)?).map_err(|e| other(&e))?;
        }
        let at_once = name.ends_with("-batch");
        Ok(Engine::Machine { machine: Box::new(machine), at_once })
    }

    /// Runs batches; returns the number of deliveries.
    pub fn run(&mut self, batches: &[Batch<'_>]) -> u64 {
        match self {
            Engine::Machine { machine, at_once } => {
                let mut delivered = 0u64;
                let mut count = |_: &Frame<'_>, delivery: Delivery| {
                    delivered += 1;
                    black_box(delivery.recipient);
                };
                for batch in batches {
                    match at_once {
                        true => drop(machine.batch(batch, &mut count)),
                        false => batch.frames().iter().for_each(|frame| {
                            machine.frame(frame, &mut count);
                        }),
                    }
                }
                delivered
            }
            Engine::Pass { reader, matches, .. } => {
                let mut delivered = 0;
                for batch in batches {
                    let accepted = reader.evaluate_matches(batch, batch.all(), matches);
                    for index in accepted.iter() {
                        delivered += matches.of(index).count() as u64;
                    }
                }
                delivered
            }
        }
    }
}
