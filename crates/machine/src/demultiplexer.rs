//! Runs many programs on a packet in one pass: collapse at installation, dispatch by one look-up, fragments.
//!
//! Programs that are equal except for the values of their keys share a [group](Demultiplexer::install): the program
//! runs once, and its match instruction looks the scratch words up among the keys of all sessions of the group. A
//! hash of the program without its keys finds the group, so installation costs O(program), independent of the
//! number of installed programs (`DEPARTURE:` the paper compares with every installed program). Programs without a
//! match run separately.
//!
//! A group has a static memory (data stored by `register_data`) and a queue of packets that `postpone` has put off.
//! The paper reprocesses all postponed packets after each new one. But the result for a postponed packet can change
//! only when the data that `ret_match_data` did not find is registered, or when a session is installed; so by
//! default packets are reprocessed only then ([`Reprocess`]). The deadline of a packet counts from its arrival.
//!
//! Cost of a packet: one run for each group and each other program; memory: see [`Limits`].
//! [`Demultiplexer::batch`] takes many packets at once: their look-ups overlap, so a table larger than the cache
//! costs little more than one inside it. Source: the MPF paper, sections 2 and 3.

mod batch;
mod group;
mod memory;
pub mod sessions;

use crate::bpf::run::Outcome;
use crate::jit::{Answer, Compiled};
use crate::{bpf, cspf};
pub use batch::Dispatched;
use fyke_flow::Clock;
use fyke_flow::postponed::Limits as RoomLimits;
use fyke_frame::Frame;
use group::{Group, Kept};
pub use sessions::Hashing;
use std::collections::HashMap;
use std::fmt;

/// Recipient of packets: the number of an installed program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecipientId(pub u32);

impl fmt::Display for RecipientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A program for any of the machines.
#[derive(Debug, Clone)]
pub enum AnyProgram {
    /// The stack machine.
    Cspf(cspf::Program),
    /// The register machines.
    Register(bpf::run::Program),
}

/// Time at which postponed packets are reprocessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reprocess {
    /// When data that they missed is registered, and when a session is installed.
    #[default]
    WhenItCanHelp,
    /// After every packet, as in the paper. The results are the same.
    EveryTime,
}

/// Limits of a demultiplexer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Installed programs.
    pub programs: usize,
    /// Entries of a group's static memory.
    pub registered: usize,
    /// Postponed packets of a group.
    pub postponed: RoomLimits,
    /// Programs outside groups that run as machine code. Translation of one takes some 100 µs, and code much larger
    /// than the cache runs slower than the interpreter.
    pub translated: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            programs: 1 << 22,
            registered: 65_536,
            postponed: RoomLimits::default(),
            translated: 32,
        }
    }
}

/// Options of a demultiplexer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Look-up method of sessions.
    pub hashing: Hashing,
    /// Time at which postponed packets are reprocessed.
    pub reprocess: Reprocess,
    /// Runs programs as machine code if possible.
    pub translate: bool,
    /// Bounds.
    pub limits: Limits,
}

/// Reason why a program was not installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The number of installed programs has reached the limit.
    #[error("{limit} programs are installed; there is no room for more")]
    Full {
        /// Maximum number of programs.
        limit: usize,
    },
}

/// A packet for a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Its recipient.
    pub recipient: RecipientId,
    /// Maximum number of bytes of it.
    pub bytes: u32,
    /// Number of the packet, from 0.
    pub sequence: u64,
    /// True if it was postponed before.
    pub late: bool,
}

/// Reason why a postponed packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GivenUp {
    /// Its deadline passed, or the input ended.
    Expired,
    /// The queue was full.
    NoRoom,
    /// The program rejected it when it was reprocessed.
    Rejected,
    /// The last program of the group was removed.
    Abandoned,
}

/// Destinations of packets: endpoints of any kind (channels, sockets, files).
pub trait Endpoints {
    /// Receives a packet for a recipient.
    fn deliver(&mut self, frame: &Frame<'_>, delivery: Delivery);

    /// Notes that a group has postponed a packet; [`Self::settled`] follows once.
    fn postponed(&mut self, _sequence: u64) {}

    /// Notes that a group has dropped a postponed packet.
    fn given_up(&mut self, _sequence: u64, _why: GivenUp) {}

    /// Notes that a group has finished with a postponed packet: it delivered it to all its recipients, or dropped
    /// it.
    fn settled(&mut self, _frame: &Frame<'_>, _sequence: u64) {}
}

impl<F: FnMut(&Frame<'_>, Delivery)> Endpoints for F {
    fn deliver(&mut self, frame: &Frame<'_>, delivery: Delivery) {
        self(frame, delivery);
    }
}

/// Immediate result for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Number of the packet.
    pub sequence: u64,
    /// Deliveries.
    pub delivered: u32,
    /// Groups that postponed it.
    pub postponed: u32,
}

/// Totals of a demultiplexer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Packets that were delivered immediately.
    pub accepted: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Times a group postponed a packet for the first time.
    pub postponed: u64,
    /// Times a postponed packet was reprocessed.
    pub reprocessed: u64,
    /// Postponed packets that were delivered later.
    pub late: u64,
    /// Postponed packets that were dropped because their deadline passed.
    pub expired: u64,
    /// Postponed packets that were dropped because the queue was full.
    pub no_room: u64,
    /// Postponed packets that were rejected when reprocessed.
    pub rejected_late: u64,
    /// Postponed packets that were dropped because the last program of the group was removed.
    pub abandoned: u64,
    /// Entries of static memories that were dropped before they expired.
    pub forgotten: u64,
}

/// Location of a program.
#[derive(Debug)]
enum Place {
    Group { group: u32, next: u32 },
    Alone(u32),
}

/// A program that runs separately.
#[derive(Debug)]
struct Alone {
    number: u32,
    program: AnyProgram,
    compiled: Option<Compiled>,
}

impl Alone {
    fn new(number: u32, program: AnyProgram, translate: bool) -> Alone {
        let compiled = match &program {
            AnyProgram::Register(program) if translate => Compiled::new(program).ok(),
            _ => None,
        };
        Alone { number, program, compiled }
    }

    /// Number of bytes of a packet that the program accepts.
    #[inline]
    fn run(&self, frame: &Frame<'_>, random: &mut u64) -> Option<u32> {
        if let Some(compiled) = &self.compiled {
            match compiled.run(frame, &mut [0; bpf::SCRATCH_WORDS]) {
                Answer::Bytes(bytes) => return (bytes > 0).then_some(bytes),
                Answer::Match(_) | Answer::AskInterpreter => {}
            }
        }
        match &self.program {
            AnyProgram::Cspf(program) => program.run(frame).then_some(bpf::ALL),
            AnyProgram::Register(program) => {
                let mut memory = bpf::run::Alone { keys: &[] };
                match program.run_with(frame, &mut memory, random) {
                    Outcome::Accept { bytes } => Some(bytes),
                    _ => None,
                }
            }
        }
    }
}

const NOBODY: u32 = u32::MAX;

/// The demultiplexer.
#[derive(Debug, Default)]
pub struct Demultiplexer {
    options: Options,
    groups: Vec<Option<Group>>,
    free_groups: Vec<usize>,
    by_shape: HashMap<Vec<bpf::Instruction>, u32>,
    alone: Vec<Alone>,
    places: Vec<Option<Place>>,
    free: Vec<u32>,
    clock: Clock,
    random: u64,
    counters: Counters,
    installed: usize,
    /// Results of a batch of packets; kept to reuse their memory.
    found: batch::Found,
}

impl Demultiplexer {
    /// Creates an empty demultiplexer.
    pub fn new(options: Options) -> Self {
        Demultiplexer { options, random: 1, ..Demultiplexer::default() }
    }

    /// Number of installed programs.
    pub fn len(&self) -> usize {
        self.installed
    }

    /// Returns true if no program is installed.
    pub fn is_empty(&self) -> bool {
        self.installed == 0
    }

    /// Number of groups.
    pub fn group_count(&self) -> usize {
        self.groups.iter().flatten().count()
    }

    /// Totals so far.
    pub fn counters(&self) -> Counters {
        let forgotten = self.groups.iter().flatten().map(Group::forgotten).sum();
        Counters { forgotten, ..self.counters }
    }

    /// Number of packets that wait now, counted once for each group.
    pub fn waiting(&self) -> usize {
        self.groups.iter().flatten().map(Group::waiting).sum()
    }

    /// Installs a program: it joins the group of its shape, starts a new group, or runs separately.
    ///
    /// # Errors
    /// If the limit on programs is reached.
    pub fn install(&mut self, program: AnyProgram) -> Result<RecipientId, InstallError> {
        let limit = self.options.limits.programs.min(NOBODY as usize);
        if self.installed >= limit {
            return Err(InstallError::Full { limit });
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        let place = match program {
            AnyProgram::Register(program) if program.keys().is_some() || program.is_stateful() => {
                self.join(number, program)
            }
            program => {
                let Options { translate, limits, .. } = self.options;
                let translate = translate && self.alone.len() < limits.translated;
                self.alone.push(Alone::new(number, program, translate));
                Place::Alone(self.alone.len() as u32 - 1)
            }
        };
        self.places[number as usize] = Some(place);
        self.installed += 1;
        Ok(RecipientId(number))
    }

    fn join(&mut self, number: u32, program: bpf::run::Program) -> Place {
        let shape = program.shape();
        let keys = program.keys().map(<[u32]>::to_vec);
        let index = match self.by_shape.get(&shape) {
            Some(&index) => index,
            None => {
                let index = self.free_groups.pop().unwrap_or_else(|| {
                    self.groups.push(None);
                    self.groups.len() - 1
                });
                self.groups[index] = Some(Group::new(program, &self.options));
                self.by_shape.insert(shape, index as u32);
                index as u32
            }
        };
        let next = match &mut self.groups[index as usize] {
            Some(group) => group.join(keys.as_deref(), number),
            None => NOBODY,
        };
        Place::Group { group: index, next }
    }

    /// Removes a program; false if there is none with this number. Packets that its group has postponed continue to
    /// wait for the other programs of the group; if there are none, the packets are dropped.
    pub fn remove(&mut self, recipient: RecipientId, endpoints: &mut impl Endpoints) -> bool {
        let Some(place) = self.places.get_mut(recipient.0 as usize).and_then(Option::take) else {
            return false;
        };
        self.installed -= 1;
        match place {
            Place::Alone(index) => {
                self.alone.swap_remove(index as usize);
                if let Some(moved) = self.alone.get(index as usize) {
                    self.places[moved.number as usize] = Some(Place::Alone(index));
                }
            }
            Place::Group { group: index, next } => self.leave(recipient.0, index, next, endpoints),
        }
        self.free.push(recipient.0);
        true
    }

    fn leave(&mut self, number: u32, index: u32, next: u32, endpoints: &mut impl Endpoints) {
        let Some(group) = &mut self.groups[index as usize] else { return };
        // Sessions with the same keys form a chain; the session before this one is linked to the session after it.
        let mut before = group.first_like(number);
        if before == number {
            group.replace_first(number, next);
        } else {
            while let Some(Some(Place::Group { next: after, .. })) =
                self.places.get_mut(before as usize)
            {
                if *after == number {
                    *after = next;
                    break;
                }
                before = *after;
            }
            group.forget(number);
        }
        if group.is_empty() {
            group.abandon(&mut self.counters, endpoints);
            let shape = group.shape();
            self.groups[index as usize] = None;
            self.free_groups.push(index as usize);
            self.by_shape.remove(&shape);
        }
    }

    /// Dispatches a packet, then postponed packets that are due.
    pub fn frame(&mut self, frame: &Frame<'_>, endpoints: &mut impl Endpoints) -> Verdict {
        let now_ns = self.clock.advance(frame.timestamp_ns);
        let sequence = self.counters.packets;
        self.counters.packets += 1;
        let mut verdict = Verdict { sequence, ..Verdict::default() };
        for alone in &self.alone {
            if let Some(bytes) = alone.run(frame, &mut self.random) {
                verdict.delivered += 1;
                let recipient = RecipientId(alone.number);
                endpoints.deliver(frame, Delivery { recipient, bytes, sequence, late: false });
            }
        }
        for group in self.groups.iter_mut().flatten() {
            let mut kept = Kept {
                places: &self.places,
                counters: &mut self.counters,
                random: &mut self.random,
                reprocess: self.options.reprocess,
                now_ns,
            };
            group.frame(frame, &mut kept, &mut verdict, endpoints);
        }
        self.counters.accepted += u64::from(verdict.delivered > 0);
        self.counters.deliveries += u64::from(verdict.delivered);
        verdict
    }

    /// Drops packets that have waited too long, for times without new packets.
    pub fn expire(&mut self, now_ns: u64, endpoints: &mut impl Endpoints) {
        let now_ns = self.clock.advance(now_ns);
        for group in self.groups.iter_mut().flatten() {
            group.expire(now_ns, &mut self.counters, endpoints);
        }
    }

    /// Drops all waiting packets at the end of the input.
    pub fn finish(&mut self, endpoints: &mut impl Endpoints) {
        for group in self.groups.iter_mut().flatten() {
            group.expire(u64::MAX, &mut self.counters, endpoints);
        }
    }
}
