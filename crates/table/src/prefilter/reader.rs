//! The reader's end: frames against the arrays.
//!
//! Both ends of every IP packet in the frame are looked up in every array of their address family, with the fields
//! left out that rules leave out. The first hit ends it: neither the second hash, nor the other end, nor deeper packets
//! are looked at.
//!
//! PERF: frames of one plain packet, which most are, are read without the header walk ([`plain`]), and a key has only
//! the words that its array's rules have (`fyke bench bloom --case rules10`, before and after: docs/papers/deri.md).

use super::ends::{Ends, Packet, PortsSeen, plain};
use super::space::{PORT, PROTOCOL, SpaceKind, SpaceView, VLAN};
use crate::published::Subscriber;
use fyke_frame::{Batch, Frame, Mask};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The arrays in use.
#[derive(Debug, Default)]
pub struct Plan {
    pub spaces: Vec<SpaceView>,
}

/// What is switched without touching rules.
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

/// What the rules say about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Certainly no rule names it.
    No,
    /// A rule names it, or it is a false positive.
    Maybe,
    /// What rules name cannot be read from this frame alone: a later fragment, a header that is cut off.
    Undecided,
}

/// Exact counts of one reader, in frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefilterCounts {
    /// Judged.
    pub seen: u64,
    /// Let through.
    pub passed: u64,
    /// Not let through.
    pub dropped: u64,
    /// Of those let through: nobody could tell.
    pub undecided: u64,
}

/// Judges frames. One per thread.
#[derive(Debug, Clone)]
pub struct PrefilterReader {
    plan: Subscriber<Plan>,
    switches: Arc<Switches>,
    counts: PrefilterCounts,
}

impl PrefilterReader {
    pub(super) fn new(plan: Subscriber<Plan>, switches: Arc<Switches>) -> Self {
        PrefilterReader { plan, switches, counts: PrefilterCounts::default() }
    }

    /// What the rules say, switched on or not. Sees every edit that was finished before.
    pub fn ask(&mut self, frame: &Frame<'_>) -> Answer {
        let plan = self.plan.latest();
        if plan.spaces.is_empty() {
            return Answer::No;
        }
        match plain(frame) {
            Some(packet) => plan.packet(&packet, &[]),
            None => plan.ask(&Ends::of(frame)),
        }
    }

    /// Whether the frame goes on, which is counted.
    pub fn passes(&mut self, frame: &Frame<'_>) -> bool {
        self.counts.seen += 1;
        let passes = !self.switches.enabled() || {
            let answer = self.ask(frame);
            self.counts.undecided += u64::from(answer == Answer::Undecided);
            // Whoever drops what matches must be sure that it does.
            if self.switches.negative() { answer != Answer::Maybe } else { answer != Answer::No }
        };
        *if passes { &mut self.counts.passed } else { &mut self.counts.dropped } += 1;
        passes
    }

    /// The frames of `among` that go on.
    pub fn passing(&mut self, batch: &Batch<'_>, among: Mask) -> Mask {
        if !self.switches.enabled() {
            let count = among.count() as u64;
            self.counts.seen += count;
            self.counts.passed += count;
            return among;
        }
        let mut passing = Mask::EMPTY;
        for index in among.iter() {
            if batch.frames().get(index).is_some_and(|frame| self.passes(frame)) {
                passing.set(index);
            }
        }
        passing
    }

    /// The counts so far.
    pub fn counts(&self) -> PrefilterCounts {
        self.counts
    }
}

impl Plan {
    fn ask(&self, ends: &Ends) -> Answer {
        let mut undecided = ends.incomplete;
        for packet in ends.packets() {
            match self.packet(packet, ends.vlans()) {
                Answer::Maybe => return Answer::Maybe,
                Answer::Undecided => undecided = true,
                Answer::No => {}
            }
        }
        // Rules that name nothing but a VLAN hold for frames of all kinds.
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

/// Whether rules of this pattern can be looked up for this packet.
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
