//! A group: one program, the keys of all its sessions, its static memory and its postponed packets.

use super::sessions::Sessions;
use super::{
    Counters, Delivery, Endpoints, GivenUp, NOBODY, Options, Place, RecipientId, Reprocess, Verdict,
};
use crate::bpf::run::{Memory, Outcome, Program};
use crate::bpf::{Instruction, SCRATCH_WORDS};
use crate::jit::{Answer, Compiled};
use fyke_flow::{Ageing, Held, Postponed};
use fyke_frame::Frame;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// Scratch words as a key of the static memory.
#[derive(Debug, Clone, Copy)]
struct Data {
    len: u8,
    words: [u32; SCRATCH_WORDS],
}

impl Data {
    fn new(given: &[u32]) -> Data {
        let mut words = [0; SCRATCH_WORDS];
        let len = given.len().min(SCRATCH_WORDS);
        words[..len].copy_from_slice(&given[..len]);
        Data { len: len as u8, words }
    }

    fn used(&self) -> &[u32] {
        &self.words[..usize::from(self.len)]
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        self.used() == other.used()
    }
}

impl Eq for Data {}

impl Hash for Data {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.used().hash(state);
    }
}

/// What is noted on a postponed packet.
#[derive(Debug, Clone, Copy)]
struct Note {
    sequence: u64,
}

/// What the demultiplexer lends its groups for a packet.
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
    /// Everybody, with the keys; what leaving needs.
    members: HashMap<u32, Box<[u32]>>,
    registered: Ageing<Data, u32>,
    postponed: Postponed<Data, Note>,
    /// A session came while packets waited: it may be theirs.
    retry: bool,
    /// Sessions whose keys a newer session has too.
    hidden: usize,
    /// A program that does nothing but match at its end; packets need not be taken one by one.
    pub(super) plain: bool,
}

/// What the program sees of its group, and what it did there.
struct Seen<'a> {
    sessions: &'a Sessions,
    registered: &'a mut Ageing<Data, u32>,
    now_ns: u64,
    /// When the packet came; later than the clock when it leapt.
    arrival_ns: u64,
    missed: Option<Data>,
    stored: Option<Data>,
}

/// What a program sees that has no static memory.
struct Find<'a>(&'a Sessions);

impl Memory for Find<'_> {
    #[inline]
    fn find(&mut self, keys: &[u32]) -> Option<u32> {
        self.0.find(keys)
    }

    fn recall(&mut self, _: &[u32]) -> Option<u32> {
        None
    }

    fn register(&mut self, _: &[u32], _: u32, _: u32) {}
}

impl Memory for Seen<'_> {
    #[inline]
    fn find(&mut self, keys: &[u32]) -> Option<u32> {
        self.sessions.find(keys)
    }

    fn recall(&mut self, data: &[u32]) -> Option<u32> {
        let data = Data::new(data);
        let found = self.registered.get(&data, self.now_ns).copied();
        if found.is_none() {
            self.missed = Some(data);
        }
        found
    }

    fn register(&mut self, data: &[u32], who: u32, ms: u32) {
        let data = Data::new(data);
        let deadline = self.arrival_ns.saturating_add(u64::from(ms) * 1_000_000);
        while self.registered.pop_expired(self.now_ns).is_some() {}
        self.registered.insert(data, who, deadline);
        self.stored = Some(data);
    }
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

    /// Adds a session; gives the one with the same keys that was there before.
    pub fn join(&mut self, keys: Option<&[u32]>, number: u32) -> u32 {
        let keys = keys.unwrap_or(&[]);
        self.members.insert(number, keys.into());
        self.retry |= !self.postponed.is_empty();
        let before = self.sessions.insert(keys, number);
        self.hidden += usize::from(before.is_some());
        before.unwrap_or(NOBODY)
    }

    /// The newest session with the same keys as this one.
    pub fn first_like(&self, number: u32) -> u32 {
        let keys = self.members.get(&number);
        keys.and_then(|keys| self.sessions.find(keys)).unwrap_or(NOBODY)
    }

    /// The newest session with its keys goes; the next one takes its place.
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

    /// A session goes that others with the same keys hide.
    pub fn forget(&mut self, number: u32) {
        self.members.remove(&number);
        self.hidden -= 1;
        self.unregister(number, NOBODY);
    }

    fn unregister(&mut self, number: u32, next: u32) {
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
        let (outcome, missed, stored) = self.run(frame, kept);
        match outcome {
            Outcome::Reject => {}
            Outcome::Postpone { ms } => {
                verdict.postponed += 1;
                kept.counters.postponed += 1;
                // Time from the packet's own arrival, which need not be what the clock says.
                let deadline = frame.timestamp_ns.saturating_add(u64::from(ms) * 1_000_000);
                let note = Note { sequence: verdict.sequence };
                let counters = &mut *kept.counters;
                self.postponed.hold(frame, missed, deadline, note, |held| {
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
            self.reprocess(stored, kept, endpoints);
        }
    }

    /// Runs the program: what it says, what it missed in the static memory and what it stored there.
    #[inline]
    fn run(
        &mut self,
        frame: &Frame<'_>,
        kept: &mut Kept<'_>,
    ) -> (Outcome, Option<Data>, Option<Data>) {
        if let Some(outcome) = self.run_compiled(frame) {
            return (outcome, None, None);
        }
        if !self.program.is_stateful() {
            let mut memory = Find(&self.sessions);
            return (self.program.run_with(frame, &mut memory, kept.random), None, None);
        }
        let mut seen = Seen {
            sessions: &self.sessions,
            registered: &mut self.registered,
            now_ns: kept.now_ns,
            arrival_ns: frame.timestamp_ns.max(kept.now_ns),
            missed: None,
            stored: None,
        };
        let outcome = self.program.run_with(frame, &mut seen, kept.random);
        (outcome, seen.missed, seen.stored)
    }

    /// The machine code's answer; `None` when the interpreter has to give it.
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
            // A program without a match: everybody who installed it has the same, empty keys.
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

    fn reprocess(
        &mut self,
        stored: Option<Data>,
        kept: &mut Kept<'_>,
        endpoints: &mut impl Endpoints,
    ) {
        self.expire(kept.now_ns, kept.counters, endpoints);
        let everything = self.retry || kept.reprocess == Reprocess::EveryTime;
        self.retry = false;
        let mut queue = match stored {
            _ if everything => self.postponed.wake_all(),
            Some(data) => self.postponed.wake(&data),
            None => return,
        };
        // A packet that is looked at again may register something itself; each waiting packet gets so many chances.
        let mut budget = 2 * (queue.len() + self.postponed.len()) + 16;
        while !queue.is_empty() {
            let mut stored_late = Vec::new();
            for held in queue.drain(..) {
                kept.counters.reprocessed += 1;
                budget = budget.saturating_sub(1);
                if let Some(data) = self.again(held, kept, endpoints) {
                    stored_late.push(data);
                }
            }
            if budget == 0 {
                return;
            }
            queue = stored_late.iter().flat_map(|data| self.postponed.wake(data)).collect();
        }
    }

    fn again(
        &mut self,
        held: Held<Note>,
        kept: &mut Kept<'_>,
        endpoints: &mut impl Endpoints,
    ) -> Option<Data> {
        let sequence = held.note.sequence;
        let (outcome, missed, stored) = self.run(&held.frame(), kept);
        let counters = &mut *kept.counters;
        match outcome {
            Outcome::Postpone { .. } => {
                self.postponed.hold_again(held, missed, |held| no_room(&held, counters, endpoints));
            }
            Outcome::Reject => {
                counters.rejected_late += 1;
                endpoints.given_up(sequence, GivenUp::Rejected);
            }
            outcome => {
                counters.late += 1;
                let frame = held.frame();
                self.deliver(&frame, outcome, sequence, true, kept.places, |f, d| {
                    counters.deliveries += 1;
                    endpoints.deliver(f, d);
                });
            }
        }
        stored
    }

    pub fn expire(&mut self, now_ns: u64, counters: &mut Counters, endpoints: &mut impl Endpoints) {
        while let Some(held) = self.postponed.pop_expired(now_ns) {
            counters.expired += 1;
            endpoints.given_up(held.note.sequence, GivenUp::Expired);
        }
    }
}

fn no_room(held: &Held<Note>, counters: &mut Counters, endpoints: &mut impl Endpoints) {
    counters.no_room += 1;
    endpoints.given_up(held.note.sequence, GivenUp::NoRoom);
}
