//! The engine: packets in, alerts out.
//!
//! Each packet updates its flow and, for TCP, the streams; then rules are judged in three steps:
//!
//! 1. on the packet: rules about headers, and about the payload of packets;
//! 2. on the stream, if the packet has brought bytes in order: the last [`flow::WINDOW`] bytes;
//! 3. on the messages of the application that these bytes complete.
//!
//! In each step a search finds the rules with a literal that is there, and only those are verified. Invariants: every
//! packet of IP is judged or counted as a fragment; nothing is judged twice by a rule after it has alerted; memory is
//! bounded by [`Limits`], and the work of all rules by the bytes that arrive (`budget`).

mod budget;
mod connections;
pub mod flow;
mod group;
mod index;
mod judge;
mod left;
mod packet;
mod records;
mod state;
mod sums;
mod suspend;
mod tags;

pub use budget::{MOST as MOST_WORK, PER_BYTE as WORK_PER_BYTE, PER_FRAME as WORK_PER_FRAME};
pub use fyke_flow::streams::Policies;
pub use index::{Armed, Candidates, Index, Payload};
pub use packet::{End, Packet};
pub use records::Kinds;
pub use sums::Checksums;

use crate::app::Message;
use crate::buffer::Application;
use crate::rule::Rule;
use budget::Budget;
use connections::FLOW_BYTES;
use flow::{Flow, FlowKey};
use fyke_flow::streams::{self, Handling, Policy, Segment, Streams};
use fyke_flow::{Ageing, Clock, reassembly};
use fyke_frame::Frame;
use fyke_frame::walk::{Layers, walk_again};
use reassembly::Reassembler;
use state::{HostNames, Thresholds};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use sums::{Parts, Sum};
use tags::Tags;

/// Limits of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most bytes that all flows take, with what they hold; flows that have ended are forgotten first, then those that
    /// got no answer, then those that have been silent longest.
    pub bytes: usize,
    /// Time after which a silent flow is forgotten, in nanoseconds; after a minute if it is not established.
    pub idle_ns: u64,
    /// Judge streams without a captured beginning.
    pub midstream: bool,
    /// Of some connections, only one direction is captured: their handshake is complete with its part of it.
    pub one_direction: bool,
    /// Frames of one connection may have different VLAN tags.
    pub ignore_vlan: bool,
    /// Treatment of packets with a wrong checksum.
    pub checksums: Checksums,
}

impl Limits {
    /// Most flows.
    fn flows(&self) -> usize {
        (self.bytes / FLOW_BYTES).max(8)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bytes: 512 << 20,
            idle_ns: 600_000_000_000,
            midstream: false,
            one_direction: false,
            ignore_vlan: false,
            checksums: Checksums::default(),
        }
    }
}

/// Counters so far: `frames = judged + fragments + damaged + other`, where a tunnel's packets are counted with their
/// frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames.
    pub frames: u64,
    /// Frames with a packet of IP that was judged.
    pub judged: u64,
    /// Frames with a fragment that does not complete its packet.
    pub fragments: u64,
    /// Frames with a wrong checksum, which are not judged.
    pub damaged: u64,
    /// Packets with a wrong checksum that were judged, because their sender has not used a right one in the flow.
    pub unsummed: u64,
    /// Frames without a packet of IP.
    pub other: u64,
    /// Flows.
    pub flows: u64,
    /// Flows that were forgotten for lack of room.
    pub forgotten: u64,
    /// Established flows among them.
    pub forgotten_open: u64,
    /// Messages of applications.
    pub messages: u64,
    /// Messages with a body in a compression that is not undone; they are judged as they are.
    pub encoded: u64,
    /// Messages with a head that is longer than is judged.
    pub cut_heads: u64,
    /// Messages with a body in chunks of which one has no length.
    pub damaged_bodies: u64,
    /// Bytes of streams after the first [`flow::MAX_STREAM`] of a direction, which rules for streams do not see.
    pub beyond_bytes: u64,
    /// Rules that were verified.
    pub verified: u64,
    /// Verifications that reached a limit.
    pub limited: u64,
    /// Verifications that were left out, because the rule had reached a limit too often.
    pub suspended: u64,
    /// Verifications that were left out or ended early, because all rules together had no more work left.
    pub unjudged: u64,
    /// Units of work of all rules ([`crate::work`]).
    pub work: u64,
    /// Matches of rules, before limits of alerts.
    pub matches: u64,
    /// Matches that a limit of alerts held back.
    pub held_back: u64,
    /// Matches of rules without alerts.
    pub silent: u64,
    /// Alerts.
    pub alerts: u64,
}

/// An alert.
#[derive(Debug)]
pub struct Alert<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The packet by which it was found; its ends have the direction of the match.
    pub packet: &'a Packet<'a>,
    /// The flow.
    pub flow: &'a Flow,
    /// True if the match was sent to the server.
    pub to_server: bool,
    /// The application, if it is known.
    pub application: Option<Application>,
    /// The message that matched.
    pub message: Option<&'a Message>,
    /// Number of the frame, from 1.
    pub frame: u64,
}

/// Receives alerts.
pub type Give<'g> = &'g mut dyn FnMut(&Alert<'_>);

/// Packets of a frame.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    judged: bool,
    fragment: bool,
    damaged: bool,
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    rules: Arc<Index>,
    limits: Limits,
    /// A flow is none only while its packet is judged.
    flows: Ageing<FlowKey, Option<Box<Flow>>>,
    connections: HashMap<u64, FlowKey>,
    streams: Streams,
    /// None only while a packet is judged that was put together.
    fragments: Option<Box<Reassembler>>,
    clock: Clock,
    counters: Counters,
    thresholds: Thresholds,
    names: HostNames,
    tags: Tags,
    candidates: Candidates,
    budget: Budget,
    /// Records that are wanted, and those that were not taken yet.
    wanted: Kinds,
    lines: Vec<String>,
    room: Vec<u8>,
    held_bytes: usize,
    /// Key of the addresses that replace those of a VLAN.
    vlans: RandomState,
}

impl Engine {
    /// An engine with rules, for which the older bytes count where segments or fragments overlap.
    pub fn new(rules: Index, limits: Limits) -> Engine {
        Engine::with_policies(rules, limits, Policies::from(Policy::First))
    }

    /// An engine with rules and the bytes that count where segments or fragments overlap. Receivers in a VLAN have the
    /// default of the policies, unless tags are ignored.
    pub fn with_policies(rules: Index, limits: Limits, policies: Policies) -> Engine {
        let of_streams = streams::Limits {
            connections: limits.flows() + 1,
            bytes: limits.bytes / 8,
            idle_ns: limits.idle_ns,
            ..streams::Limits::default()
        };
        Engine {
            rules: Arc::new(rules),
            limits,
            flows: Ageing::new(limits.flows()),
            fragments: Some(Box::new(Reassembler::new(
                reassembly::Limits::default(),
                policies.clone(),
            ))),
            connections: HashMap::new(),
            streams: Streams::with(of_streams, Handling { policies, ..Handling::default() }),
            clock: Clock::default(),
            counters: Counters::default(),
            thresholds: Thresholds::default(),
            names: HostNames::default(),
            tags: Tags::default(),
            candidates: Candidates::default(),
            budget: Budget::default(),
            wanted: Kinds::default(),
            lines: Vec::new(),
            room: Vec::new(),
            held_bytes: 0,
            vlans: RandomState::new(),
        }
    }

    /// The end by which the table of streams knows a sender or receiver: an unpredictable address replaces
    /// one in a VLAN, as the table has no place for tags.
    fn end_of_stream(&self, vlan: u32, end: End) -> SocketAddr {
        if vlan == 0 {
            return end.into();
        }
        let half = |number: u64| self.vlans.hash_one((number, vlan, end.0));
        let address = u128::from(half(0)) << 64 | u128::from(half(1));
        SocketAddr::new(Ipv6Addr::from_bits(address).into(), end.1)
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        Counters { work: self.budget.used(), ..self.counters }
    }

    /// Counters of the packets that are put together from fragments.
    pub fn fragment_counters(&self) -> reassembly::Counters {
        self.fragments.as_ref().map(|fragments| fragments.counters()).unwrap_or_default()
    }

    /// Counters of the streams.
    pub fn stream_counters(&self) -> streams::Counters {
        self.streams.counters()
    }

    /// The rules in force.
    pub fn rules(&self) -> &Index {
        &self.rules
    }

    /// Adds a rule, in force from the next frame on; one with the same identifier is replaced.
    pub fn add_rule(&mut self, rule: Arc<Armed>) {
        // The index is shared only while a frame is judged.
        if let Some(index) = Arc::get_mut(&mut self.rules) {
            index.add(rule);
        }
    }

    /// Removes a rule, from the next frame on; false if there is none with this identifier.
    pub fn remove_rule(&mut self, gid: u32, sid: u32) -> bool {
        Arc::get_mut(&mut self.rules).is_some_and(|index| index.remove(gid, sid))
    }

    /// Takes the searches that were made in the background since rules were added; cheap if there are none.
    pub fn settle(&mut self) {
        if let Some(index) = Arc::get_mut(&mut self.rules) {
            index.settle();
        }
    }

    /// Replaces all rules, from the next frame on, and returns the old ones, which take time to free. Streams and
    /// messages that have begun are judged by the new rules with their next bytes.
    pub fn set_rules(&mut self, rules: Index) -> Arc<Index> {
        let old = std::mem::replace(&mut self.rules, Arc::new(rules));
        self.flows.retain(|_, flow| {
            flow.iter_mut().for_each(|flow| flow.forget_rules());
            true
        });
        old
    }

    /// Judges a frame.
    pub fn frame(&mut self, frame: &Frame<'_>, give: Give<'_>) {
        self.counters.frames += 1;
        self.budget.earn(frame.data.len());
        let now_ns = self.clock.advance(frame.timestamp_ns);
        let mut layers = Layers::new();
        walk_again(frame, &mut layers);
        let vlan = match self.limits.ignore_vlan {
            true => 0,
            // The outer two of 12 bits each; no tag is as one with the number 0.
            false => layers.all().vlan().map_or(0, |stack| {
                stack.tags().take(2).fold(0, |vlan, tag| vlan << 12 | u32::from(tag.id))
            }),
        };
        let mut found = self.levels(frame, &layers, (vlan, true), now_ns, give);
        if found.fragment
            && let Some(mut fragments) = self.fragments.take()
        {
            let whole = fragments.add(frame, &layers);
            if let Some(whole) = &whole {
                let mut layers = Layers::new();
                walk_again(whole, &mut layers);
                let inner = self.levels(whole, &layers, (vlan, false), now_ns, give);
                found = Found { fragment: false, ..inner };
            }
            self.fragments = Some(fragments);
        }
        self.record_frame(frame);
        match found {
            Found { damaged: true, .. } => self.counters.damaged += 1,
            Found { fragment: true, .. } => self.counters.fragments += 1,
            Found { judged: true, .. } => self.counters.judged += 1,
            _ => self.counters.other += 1,
        }
    }

    /// Judges the packets of a frame, the outer ones first. `is_captured` is false for a packet that was put together.
    fn levels(
        &mut self,
        frame: &Frame<'_>,
        layers: &Layers<'_>,
        (vlan, is_captured): (u32, bool),
        now_ns: u64,
        give: Give<'_>,
    ) -> Found {
        let mut found = Found::default();
        for (number, level) in layers.levels().enumerate() {
            found.fragment = level.fragment().is_some_and(|fragment| !fragment.is_whole());
            let parts = Parts {
                header: is_captured || number > 0,
                transport: !(is_captured && frame.meta.unsummed),
                joined: self.limits.checksums == Checksums::Learned,
            };
            let sum = match self.limits.checksums {
                Checksums::Ignored => Sum::Unknown,
                _ => sums::of(&level, layers.data(), parts),
            };
            if found.fragment {
                found.damaged = sum == Sum::Wrong && self.limits.checksums == Checksums::Required;
                found.fragment = !found.damaged;
                break;
            }
            if let Some(mut packet) =
                Packet::of(&level, layers.data(), frame.timestamp_ns, frame.wire_len)
            {
                packet.vlan = vlan;
                let end = |end| self.end_of_stream(vlan, end);
                let (source, destination) = (end(packet.source), end(packet.destination));
                let segment =
                    level.tcp().and_then(|tcp| Segment::between(source, destination, &tcp));
                if !self.packet(&packet, segment.as_ref(), sum, now_ns, give) {
                    found.damaged = true;
                    break;
                }
                found.judged = true;
            }
        }
        found
    }
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
