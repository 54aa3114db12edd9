//! A group: one program, the keys of all its sessions, its static memory and its postponed packets.

use super::memory::{Data, Find, Seen, Trail};
use super::sessions::Sessions;
use super::{
    Counters, Delivery, Endpoints, GivenUp, NOBODY, Options, Place, RecipientId, Reprocess, Verdict,
};
use crate::bpf::run::{Outcome, Program};
use crate::bpf::{Instruction, SCRATCH_WORDS};
use crate::jit::{Answer, Compiled};
use fyke_flow::{Ageing, Held, Postponed};
use fyke_frame::Frame;
use std::collections::HashMap;

/// Data stored with a postponed packet.
#[derive(Debug, Clone, Copy)]
struct Note {
    sequence: u64,
}

/// State of the demultiplexer that a group uses for one packet.
pub(super) struct Kept<'a> {
    pub places: &'a [Option<Place>],
    pub counters: &'a mut Counters,
    pub random: &'a mut u64,
    pub reprocess: Reprocess,
    pub now_ns: u64,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) program: Program,
    pub(super) compiled: Option<Compiled>,
    pub(super) key_count: usize,
    pub(super) sessions: Sessions,
    /// All sessions with their keys; needed for removal.
    members: HashMap<u32, Box<[u32]>>,
    registered: Ageing<Data, u32>,
    postponed: Postponed<Data, Note>,
    /// True if a session was added or removed while packets waited, so that the program's result may have changed.
    retry: bool,
    /// Number of sessions with the same keys as a newer session.
    hidden: usize,
    /// True if the program only returns the result of its match, so that packets can be processed in batches.
    pub(super) plain: bool,
}

impl Group {
    pub fn new(program: Program, options: &Options) -> Group {
        let key_count = program.keys().map_or(0, <[u32]>::len);
        let compiled = options.translate.then(|| Compiled::new(&program).ok()).flatten();
        let plain = program.only_returns_matches();
        Group {
            plain,
            hidden: 0,
            program,
            compiled,
            key_count,
            sessions: Sessions::new(key_count, options.hashing),
            members: HashMap::new(),
            registered: Ageing::new(options.limits.registered),
            postponed: Postponed::new(options.limits.postponed),
            retry: false,
        }
    }

    /// Adds a session; returns the previous one with the same keys.
    pub fn join(&mut self, keys: Option<&[u32]>, number: u32) -> u32 {
        let keys = keys.unwrap_or(&[]);
        self.members.insert(number, keys.into());
        self.retry |= !self.postponed.is_empty();
        let before = self.sessions.insert(keys, number);
        self.hidden += usize::from(before.is_some());
        before.unwrap_or(NOBODY)
    }

    /// Returns the newest session with the same keys as this one.
    pub fn first_like(&self, number: u32) -> u32 {
        let keys = self.members.get(&number);
        keys.and_then(|keys| self.sessions.find(keys)).unwrap_or(NOBODY)
    }

    /// Removes the newest session with its keys; `next` replaces it.
    pub fn replace_first(&mut self, number: u32, next: u32) {
        if let Some(keys) = self.members.remove(&number) {
            match next {
                NOBODY => self.sessions.remove(&keys),
                next => {
                    self.sessions.insert(&keys, next);
                    self.hidden -= 1;
                }
            }
        }
        self.unregister(number, next);
    }

    /// Removes a session that is hidden by a newer one with the same keys.
    pub fn forget(&mut self, number: u32) {
        self.members.remove(&number);
        self.hidden -= 1;
        self.unregister(number, NOBODY);
    }

    fn unregister(&mut self, number: u32, next: u32) {
        self.retry |= !self.postponed.is_empty();
        self.registered.retain(|_, who| {
            if *who == number {
                *who = next;
            }
            *who != NOBODY
        });
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn shape(&self) -> Vec<Instruction> {
        self.program.shape()
    }

    pub fn forgotten(&self) -> u64 {
        self.registered.evicted()
    }

    pub fn waiting(&self) -> usize {
        self.postponed.len()
    }

    /// Runs the program over a new packet, then over postponed ones.
    #[inline]
    pub fn frame(
        &mut self,
        frame: &Frame<'_>,
        kept: &mut Kept<'_>,
        verdict: &mut Verdict,
        endpoints: &mut impl Endpoints,
    ) {
        let (outcome, trail) = self.run(frame, kept);
        match outcome {
            Outcome::Reject => {}
            Outcome::Postpone { ms } => {
                verdict.postponed += 1;
                kept.counters.postponed += 1;
                endpoints.postponed(verdict.sequence);
                // The deadline counts from the packet's own arrival time, which may differ from the clock.
                let deadline = frame.timestamp_ns.saturating_add(u64::from(ms) * 1_000_000);
                let note = Note { sequence: verdict.sequence };
                let counters = &mut *kept.counters;
                self.postponed.hold(frame, &trail.missed, deadline, note, |held| {
                    no_room(&held, counters, endpoints);
                });
            }
            outcome => {
                let mut delivered = 0;
                self.deliver(frame, outcome, verdict.sequence, false, kept.places, |f, d| {
                    delivered += 1;
                    endpoints.deliver(f, d);
                });
                verdict.delivered += delivered;
            }
        }
        if !self.postponed.is_empty() {
            self.reprocess(&trail.stored, kept, endpoints);
        }
    }

    /// Runs the program: returns its result, the data that it did not find in the static memory, and the data it
    /// stored.
    #[inline]
    fn run(&mut self, frame: &Frame<'_>, kept: &mut Kept<'_>) -> (Outcome, Trail) {
        if let Some(outcome) = self.run_compiled(frame) {
            return (outcome, Trail::default());
        }
        if !self.program.is_stateful() {
            let mut memory = Find(&self.sessions);
            let outcome = self.program.run_with(frame, &mut memory, kept.random);
            return (outcome, Trail::default());
        }
        let mut seen = Seen {
            sessions: &self.sessions,
            registered: &mut self.registered,
            now_ns: kept.now_ns,
            arrival_ns: frame.timestamp_ns.max(kept.now_ns),
            trail: Trail::default(),
        };
        let outcome = self.program.run_with(frame, &mut seen, kept.random);
        (outcome, seen.trail)
    }

    /// Runs the machine code; `None` if the interpreter has to run instead.
    #[inline]
    fn run_compiled(&self, frame: &Frame<'_>) -> Option<Outcome> {
        let mut scratch = [0; SCRATCH_WORDS];
        match self.compiled.as_ref()?.run(frame, &mut scratch) {
            Answer::Bytes(0) => Some(Outcome::Reject),
            Answer::Bytes(bytes) => Some(Outcome::Accept { bytes }),
            Answer::Match(bytes) => {
                let keys = &scratch[..self.key_count.min(SCRATCH_WORDS)];
                let found = self.sessions.find(keys).filter(|_| bytes > 0);
                Some(found.map_or(Outcome::Reject, |who| Outcome::Recipient { bytes, who }))
            }
            Answer::AskInterpreter => None,
        }
    }

    #[inline]
    pub(super) fn deliver(
        &self,
        frame: &Frame<'_>,
        outcome: Outcome,
        sequence: u64,
        late: bool,
        places: &[Option<Place>],
        mut give: impl FnMut(&Frame<'_>, Delivery),
    ) {
        let (bytes, mut who) = match outcome {
            Outcome::Recipient { bytes, who } => (bytes, who),
            // A program without a match: all its sessions have the same, empty keys.
            Outcome::Accept { bytes } => (bytes, self.sessions.find(&[]).unwrap_or(NOBODY)),
            Outcome::Reject | Outcome::Postpone { .. } => return,
        };
        while who != NOBODY {
            give(frame, Delivery { recipient: RecipientId(who), bytes, sequence, late });
            if self.hidden == 0 {
                return;
            }
            who = match places.get(who as usize) {
                Some(Some(Place::Group { next, .. })) => *next,
                _ => NOBODY,
            };
        }
    }

    fn reprocess(&mut self, stored: &[Data], kept: &mut Kept<'_>, endpoints: &mut impl Endpoints) {
        self.expire(kept.now_ns, kept.counters, endpoints);
        let everything = self.retry || kept.reprocess == Reprocess::EveryTime;
        self.retry = false;
        let mut queue = match everything {
            true => self.postponed.wake_all(),
            false => self.postponed.wake(stored),
        };
        // A reprocessed packet may register data itself, so the number of runs has a limit.
        let mut budget = 2 * (queue.len() + self.postponed.len()) + 16;
        while !queue.is_empty() {
            let mut stored_late = Vec::new();
            for held in queue.drain(..) {
                kept.counters.reprocessed += 1;
                budget = budget.saturating_sub(1);
                stored_late.extend(self.again(held, kept, endpoints));
            }
            if budget == 0 {
                return;
            }
            queue = self.postponed.wake(&stored_late);
        }
    }

    fn again(
        &mut self,
        held: Held<Note>,
        kept: &mut Kept<'_>,
        endpoints: &mut impl Endpoints,
    ) -> Vec<Data> {
        let sequence = held.note.sequence;
        let (outcome, trail) = self.run(&held.frame(), kept);
        let counters = &mut *kept.counters;
        match outcome {
            Outcome::Postpone { .. } => {
                let missed = &trail.missed;
                self.postponed.hold_again(held, missed, |held| no_room(&held, counters, endpoints));
            }
            Outcome::Reject => {
                counters.rejected_late += 1;
                given_up(&held, GivenUp::Rejected, endpoints);
            }
            outcome => {
                counters.late += 1;
                let frame = held.frame();
                self.deliver(&frame, outcome, sequence, true, kept.places, |f, d| {
                    counters.deliveries += 1;
                    endpoints.deliver(f, d);
                });
                endpoints.settled(&frame, sequence);
            }
        }
        trail.stored
    }

    pub fn expire(&mut self, now_ns: u64, counters: &mut Counters, endpoints: &mut impl Endpoints) {
        while let Some(held) = self.postponed.pop_expired(now_ns) {
            counters.expired += 1;
            given_up(&held, GivenUp::Expired, endpoints);
        }
    }

    /// Drops all waiting packets, because the group has no sessions left.
    pub fn abandon(&mut self, counters: &mut Counters, endpoints: &mut impl Endpoints) {
        for held in self.postponed.wake_all() {
            counters.abandoned += 1;
            given_up(&held, GivenUp::Abandoned, endpoints);
        }
    }
}

fn no_room(held: &Held<Note>, counters: &mut Counters, endpoints: &mut impl Endpoints) {
    counters.no_room += 1;
    given_up(held, GivenUp::NoRoom, endpoints);
}

fn given_up(held: &Held<Note>, why: GivenUp, endpoints: &mut impl Endpoints) {
    endpoints.given_up(held.note.sequence, why);
    endpoints.settled(&held.frame(), held.note.sequence);
}
