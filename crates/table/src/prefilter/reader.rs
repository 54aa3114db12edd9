//! Reader of the pre-filter: looks up frames in the arrays.
//!
//! Source and destination of every IP packet in the frame are looked up in every array of their address family, without
//! the fields that the rules leave open. The first hit ends the search: no second hash, no destination, no deeper
//! packet is tried.
//!
//! PERF: frames with one plain packet, the majority, are read without the header walk ([`plain`]), and a key has only
//! the words that its array's rules need. For a batch, use [`batch`](super::batch): it takes a quarter of the time
//! (`fyke bench bloom --case array1`, engines `fyke-prefilter` and `fyke-prefilter-frames`).

use super::batch::{Answers, Ask};
use super::block::Block;
use super::ends::{Ends, Packet, PortsSeen};
use super::plain::{Plain, plain};
use super::space::{PORT, PROTOCOL, SpaceKind, SpaceView, VLAN};
use crate::arch::Level;
use crate::published::Subscriber;
use fyke_frame::{Batch, Frame, LinkType, Mask};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Arrays in use.
#[derive(Debug, Default)]
pub struct Plan {
    pub spaces: Vec<SpaceView>,
}

/// Settings that are independent of the rules.
#[derive(Debug)]
pub struct Switches {
    enabled: AtomicBool,
    negative: AtomicBool,
}

impl Default for Switches {
    fn default() -> Self {
        Switches { enabled: AtomicBool::new(true), negative: AtomicBool::new(false) }
    }
}

impl Switches {
    pub fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }

    pub fn negative(&self) -> bool {
        self.negative.load(Ordering::Acquire)
    }

    pub fn set_negative(&self, negative: bool) {
        self.negative.store(negative, Ordering::Release);
    }
}

/// Answer of the rules for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The frame certainly matches no rule.
    No,
    /// The frame matches a rule, or is a false positive.
    Maybe,
    /// The fields that rules name cannot be read from this frame alone: a later fragment, a truncated header.
    Undecided,
}

/// Exact counts of one reader, in frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefilterCounts {
    /// Frames evaluated.
    pub seen: u64,
    /// Frames passed.
    pub passed: u64,
    /// Frames dropped.
    pub dropped: u64,
    /// Frames passed because they could not be decided.
    pub undecided: u64,
}

/// Evaluates frames. One per thread.
#[derive(Debug, Clone)]
pub struct PrefilterReader {
    plan: Subscriber<Plan>,
    switches: Arc<Switches>,
    counts: PrefilterCounts,
    level: Level,
    block: Box<Block>,
}

/// Result for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decided {
    /// Frames that pass.
    pub passed: Mask,
    /// Frames that pass because they could not be decided.
    pub undecided: Mask,
}

impl PrefilterReader {
    pub(super) fn new(plan: Subscriber<Plan>, switches: Arc<Switches>) -> Self {
        let (counts, block) = (PrefilterCounts::default(), Box::default());
        PrefilterReader { plan, switches, counts, level: Level::best(), block }
    }

    /// Selects another instruction level, for tests and benches.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// Looks up a frame, even if the pre-filter is disabled. Sees every edit that was finished before.
    pub fn ask(&mut self, frame: &Frame<'_>) -> Answer {
        let plan = self.plan.latest();
        if plan.spaces.is_empty() {
            return Answer::No;
        }
        let read = match frame.link {
            LinkType::EN10MB => plain(frame.data),
            _ => Plain::Unclear,
        };
        match read {
            Plain::Packet(head) => plan.packet(&head.packet(), head.vlan.as_slice()),
            Plain::Nothing => Answer::No,
            Plain::Unclear => plan.walk(frame),
        }
    }

    /// Looks up a frame with the header walk only, without the fast path.
    #[cfg(test)]
    pub(super) fn ask_by_walk(&mut self, frame: &Frame<'_>) -> Answer {
        let plan = self.plan.latest();
        if plan.spaces.is_empty() { Answer::No } else { plan.walk(frame) }
    }

    /// True if the frame passes; counts it.
    pub fn passes(&mut self, frame: &Frame<'_>) -> bool {
        self.counts.seen += 1;
        let passes = !self.switches.enabled() || self.plan.latest().spaces.is_empty() || {
            let answer = self.ask(frame);
            self.counts.undecided += u64::from(answer == Answer::Undecided);
            // In negative mode, an undecided frame must pass, because it may not match a rule.
            if self.switches.negative() { answer != Answer::Maybe } else { answer != Answer::No }
        };
        *if passes { &mut self.counts.passed } else { &mut self.counts.dropped } += 1;
        passes
    }

    /// Returns the frames of `among` that pass and counts them: the result of [`passes`](Self::passes) for each of
    /// them, with the rules at the start of the batch or later ones.
    pub fn decide(&mut self, batch: &Batch<'_>, among: Mask) -> Decided {
        let among = among & batch.all();
        let mut decided = Decided { passed: among, undecided: Mask::EMPTY };
        if self.switches.enabled() && !self.plan.latest().spaces.is_empty() {
            let Answers { maybe, undecided } = self.ask_all(batch, among);
            let negative = self.switches.negative();
            decided.passed = if negative { among.without(maybe) } else { maybe | undecided };
            decided.undecided = undecided;
        }
        let (seen, passed) = (among.count() as u64, decided.passed.count() as u64);
        self.counts.seen += seen;
        self.counts.passed += passed;
        self.counts.dropped += seen - passed;
        self.counts.undecided += decided.undecided.count() as u64;
        decided
    }

    fn ask_all(&mut self, batch: &Batch<'_>, among: Mask) -> Answers {
        let plan = self.plan.latest();
        if plan.spaces.is_empty() {
            return Answers::default();
        }
        self.level.run(Ask { plan, batch, among, block: &mut self.block })
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> PrefilterCounts {
        self.counts
    }
}

impl Plan {
    /// Looks up any frame with the header walk.
    pub fn walk(&self, frame: &Frame<'_>) -> Answer {
        let ends = &Ends::of(frame);
        let mut undecided = ends.incomplete;
        for packet in ends.packets() {
            match self.packet(packet, ends.vlans()) {
                Answer::Maybe => return Answer::Maybe,
                Answer::Undecided => undecided = true,
                Answer::No => {}
            }
        }
        // Rules that name only a VLAN apply to frames of all kinds.
        let any = self.spaces.iter().filter(|space| space.kind == SpaceKind::Any);
        let mut vlan_only = any.filter(|space| space.patterns() >> VLAN & 1 == 1);
        let hit = |space: &SpaceView| {
            let mut vlans = ends.vlans().iter();
            vlans.any(|&vlan| {
                let key = space.kind.key(VLAN, vlan, 0, 0, [0; 4]);
                space.bits.may_contain(key.words())
            })
        };
        if vlan_only.any(hit) {
            return Answer::Maybe;
        }
        if undecided { Answer::Undecided } else { Answer::No }
    }

    fn packet(&self, packet: &Packet, vlans: &[u16]) -> Answer {
        let mut answer = Answer::No;
        let (source, destination) = match packet.ports {
            PortsSeen::Known { source, destination } => (source, destination),
            PortsSeen::None | PortsSeen::Hidden => (0, 0),
        };
        for space in &self.spaces {
            let addresses = match space.kind {
                SpaceKind::Any => [[0; 4]; 2],
                SpaceKind::Net(kind, _) if kind != packet.kind => continue,
                SpaceKind::Net(kind, prefix) => {
                    [packet.source, packet.destination].map(|words| kind.masked(words, prefix))
                }
            };
            let ends = [(addresses[0], source), (addresses[1], destination)];
            let mut patterns = space.patterns();
            while patterns != 0 {
                let pattern = patterns.trailing_zeros() as u8;
                patterns &= patterns - 1;
                match applies(pattern, packet) {
                    Answer::No => continue,
                    Answer::Undecided => {
                        answer = Answer::Undecided;
                        continue;
                    }
                    Answer::Maybe => {}
                }
                let protocol = packet.protocol.unwrap_or(0);
                let hit = ends.iter().any(|&(address, port)| {
                    let holds = |vlan| {
                        let key = space.kind.key(pattern, vlan, protocol, port, address);
                        space.bits.may_contain(key.words())
                    };
                    match pattern & VLAN {
                        0 => holds(0),
                        _ => vlans.iter().any(|&vlan| holds(vlan)),
                    }
                });
                if hit {
                    return Answer::Maybe;
                }
            }
        }
        answer
    }
}

/// True if rules of this pattern can be looked up for this packet.
fn applies(pattern: u8, packet: &Packet) -> Answer {
    let hidden = (pattern & PORT != 0 && packet.ports == PortsSeen::Hidden)
        || (pattern & PROTOCOL != 0 && packet.protocol.is_none());
    if hidden {
        return Answer::Undecided;
    }
    if pattern & PORT != 0 && packet.ports == PortsSeen::None {
        return Answer::No;
    }
    Answer::Maybe
}
