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
//! bounded by [`Limits`].

pub mod flow;
mod index;
mod judge;
mod packet;
mod state;

pub use index::{Armed, Index};
pub use packet::{End, Packet};

use crate::app::Message;
use crate::buffer::Application;
use crate::rule::Rule;
use flow::{Flow, FlowKey};
use fyke_flow::streams::{self, Policy, Segment, Streams};
use fyke_flow::{Ageing, Clock};
use fyke_frame::Frame;
use fyke_frame::walk::{Layers, walk_again};
use index::Candidates;
use packet::TCP;
use state::{HostNames, Thresholds};
use std::collections::HashMap;
use std::sync::Arc;

/// Limits of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most flows.
    pub flows: usize,
    /// Most bytes that all flows hold; the flow that has been silent longest is forgotten first.
    pub bytes: usize,
    /// Time after which a silent flow is forgotten, in nanoseconds.
    pub idle_ns: u64,
    /// Judge streams without a captured beginning.
    pub midstream: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { flows: 16_384, bytes: 512 << 20, idle_ns: 600_000_000_000, midstream: false }
    }
}

/// Counters so far: `frames = packets of IP + other`, where a tunnel's packets are counted with their frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames.
    pub frames: u64,
    /// Frames with a packet of IP that was judged.
    pub judged: u64,
    /// Frames with a fragment, which is not judged.
    pub fragments: u64,
    /// Frames without a packet of IP.
    pub other: u64,
    /// Flows.
    pub flows: u64,
    /// Flows that were forgotten for lack of room.
    pub forgotten: u64,
    /// Messages of applications.
    pub messages: u64,
    /// Rules that were verified.
    pub verified: u64,
    /// Verifications that reached a limit.
    pub limited: u64,
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

/// A delivered piece of a stream: connection, forward, missing bytes, and where its bytes are in the room.
struct Delivered {
    connection: u64,
    forward: bool,
    missing: u64,
    start: usize,
    end: usize,
    /// Messages that it completes.
    messages: Vec<Message>,
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
    clock: Clock,
    counters: Counters,
    thresholds: Thresholds,
    names: HostNames,
    candidates: Candidates,
    room: Vec<u8>,
    held_bytes: usize,
}

impl Engine {
    /// An engine with rules.
    pub fn new(rules: Index, limits: Limits) -> Engine {
        let of_streams = streams::Limits {
            connections: limits.flows,
            idle_ns: limits.idle_ns,
            ..streams::Limits::default()
        };
        Engine {
            rules: Arc::new(rules),
            limits,
            flows: Ageing::new(limits.flows),
            connections: HashMap::new(),
            streams: Streams::new(of_streams, Policy::First),
            clock: Clock::default(),
            counters: Counters::default(),
            thresholds: Thresholds::default(),
            names: HostNames::default(),
            candidates: Candidates::default(),
            room: Vec::new(),
            held_bytes: 0,
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
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
    pub fn add_rule(&mut self, rule: Rule) {
        // The index is shared only while a frame is judged.
        if let Some(index) = Arc::get_mut(&mut self.rules) {
            index.add(rule);
        }
    }

    /// Removes a rule, from the next frame on; false if there is none with this identifier.
    pub fn remove_rule(&mut self, gid: u32, sid: u32) -> bool {
        Arc::get_mut(&mut self.rules).is_some_and(|index| index.remove(gid, sid))
    }

    /// Replaces all rules, from the next frame on. Streams and messages that have begun are judged by the new rules
    /// with their next bytes.
    pub fn set_rules(&mut self, rules: Index) {
        self.rules = Arc::new(rules);
        self.flows.retain(|_, flow| {
            flow.iter_mut().for_each(|flow| flow.forget_rules());
            true
        });
    }

    /// Judges a frame.
    pub fn frame(&mut self, frame: &Frame<'_>, give: Give<'_>) {
        self.counters.frames += 1;
        let now_ns = self.clock.advance(frame.timestamp_ns);
        let mut layers = Layers::new();
        walk_again(frame, &mut layers);
        let (mut judged, mut fragments) = (false, false);
        for level in layers.levels() {
            if level.fragment().is_some_and(|fragment| !fragment.is_whole()) {
                fragments = true;
                break;
            }
            if let Some(packet) = Packet::of(&level, frame.timestamp_ns, frame.wire_len) {
                judged = true;
                let segment = level.tcp().and_then(|tcp| {
                    Some(Segment {
                        source: packet.source.into(),
                        destination: packet.destination.into(),
                        sequence: tcp.sequence()?,
                        flags: tcp.flags()?,
                        payload: tcp.payload(),
                        payload_len: u32::try_from(tcp.wire_payload_len()).ok()?,
                    })
                });
                self.packet(&packet, segment.as_ref(), now_ns, give);
            }
        }
        match (judged, fragments) {
            (true, _) => self.counters.judged += 1,
            (false, true) => self.counters.fragments += 1,
            (false, false) => self.counters.other += 1,
        }
    }

    /// Judges a packet.
    fn packet(
        &mut self,
        packet: &Packet<'_>,
        segment: Option<&Segment<'_>>,
        now_ns: u64,
        give: Give<'_>,
    ) {
        let key = flow::key(packet);
        while let Some((_, old)) = self.flows.pop_expired(now_ns) {
            self.forget(old);
        }
        let deadline_ns = now_ns.saturating_add(self.limits.idle_ns);
        let known = self.flows.touch(&key, deadline_ns).and_then(Option::take);
        let is_known = known.is_some();
        let mut flow = known.unwrap_or_else(|| self.new_flow(packet));
        let mut pieces = Vec::new();
        if let Some(segment) = segment {
            let before = self.streams.counters();
            self.take_segment(segment, packet.time_ns, &mut pieces);
            let after = self.streams.counters();
            if after.connections > before.connections {
                // The pieces of the connection before it, with the same ends, come first.
                let own =
                    pieces.iter().take_while(|piece| piece.connection != after.connections).count();
                let mut old: Vec<Delivered> = pieces.drain(..own).collect();
                self.parse(&mut flow, &mut old);
                self.pieces(packet, &mut flow, &old, &[], give);
                if is_known {
                    let fresh = self.new_flow(packet);
                    self.forget(Some(std::mem::replace(&mut flow, fresh)));
                }
                flow.connection = Some(after.connections);
                flow.midstream = after.midstream > before.midstream && !self.limits.midstream;
                self.connections.insert(after.connections, key);
            }
        }
        flow.count(packet);
        // The application is known before rules ask for it.
        self.parse(&mut flow, &mut pieces);
        let mut messages = Vec::new();
        if packet.is_udp() && !packet.payload.is_empty() {
            flow.parser.datagram(packet.payload, &mut |message| messages.push(message));
        }
        let alerted = self.judge_packet(packet, &mut flow, give);
        self.pieces(packet, &mut flow, &pieces, &alerted, give);
        for message in &messages {
            self.judge_message(packet, &mut flow, message, give);
        }
        let held = flow.held();
        self.held_bytes = self.held_bytes + held - std::mem::replace(&mut flow.held_bytes, held);
        match self.flows.peek_mut(&key) {
            Some(room) => *room = Some(flow),
            None => {
                self.make_room(true);
                self.flows.insert(key, Some(flow), deadline_ns);
            }
        }
        self.make_room(false);
    }

    /// Forgets flows until there is room for the bytes of all and, if wanted, for another flow.
    fn make_room(&mut self, another: bool) {
        while (another && self.flows.is_full())
            || (self.held_bytes > self.limits.bytes && self.flows.len() > 1)
        {
            let Some((_, old)) = self.flows.pop_oldest() else { return };
            self.counters.forgotten += 1;
            self.forget(old);
        }
    }

    fn new_flow(&mut self, packet: &Packet<'_>) -> Box<Flow> {
        self.counters.flows += 1;
        Box::new(Flow::new(flow_id(packet, self.counters.flows), packet))
    }

    fn forget(&mut self, flow: Option<Box<Flow>>) {
        let Some(flow) = flow else { return };
        self.held_bytes -= flow.held_bytes;
        if let Some(connection) = flow.connection {
            self.connections.remove(&connection);
        }
    }

    /// Passes a segment to the streams; the bytes that are in order now are copied to the room.
    fn take_segment(&mut self, segment: &Segment<'_>, time_ns: u64, pieces: &mut Vec<Delivered>) {
        self.room.clear();
        let room = &mut self.room;
        self.streams.segment(segment, time_ns, &mut |piece| pieces.push(delivered(&piece, room)));
    }

    /// Passes the pieces of a flow to its application.
    fn parse(&self, flow: &mut Flow, pieces: &mut [Delivered]) {
        let own = flow.connection;
        for piece in pieces.iter_mut().filter(|piece| Some(piece.connection) == own) {
            piece.messages =
                flow.parse(piece.forward, piece.missing, &self.room[piece.start..piece.end]);
        }
    }

    /// Judges pieces of streams. Those of other flows are there if a connection had to make room.
    fn pieces(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        pieces: &[Delivered],
        alerted: &[u32],
        give: Give<'_>,
    ) {
        let room = std::mem::take(&mut self.room);
        for piece in pieces {
            let bytes = &room[piece.start..piece.end];
            if Some(piece.connection) == flow.connection {
                self.judge_piece(packet, flow, piece, bytes, alerted, give);
                continue;
            }
            let key = self.connections.get(&piece.connection).copied();
            let other = key.and_then(|key| self.flows.peek_mut(&key)).and_then(Option::take);
            if let (Some(key), Some(mut other)) = (key, other) {
                let messages = other.parse(piece.forward, piece.missing, bytes);
                let piece = Delivered { messages, ..*piece };
                self.judge_piece(packet, &mut other, &piece, bytes, &[], give);
                if let Some(room) = self.flows.peek_mut(&key) {
                    *room = Some(other);
                }
            }
        }
        self.room = room;
    }

    /// Ends all streams: what they hold after gaps, and bodies up to the end of a connection, are judged.
    pub fn finish(&mut self, give: Give<'_>) {
        let mut pieces = Vec::new();
        self.room.clear();
        let room = &mut self.room;
        self.streams.finish(&mut |time_ns, piece| pieces.push((time_ns, delivered(&piece, room))));
        let room = std::mem::take(&mut self.room);
        for (time_ns, mut piece) in pieces {
            let key = self.connections.get(&piece.connection).copied();
            let flow = key.and_then(|key| self.flows.peek_mut(&key)).and_then(Option::take);
            let (Some(key), Some(mut flow)) = (key, flow) else { continue };
            let packet = Packet::between(flow.client, flow.server, TCP, time_ns);
            let bytes = &room[piece.start..piece.end];
            piece.messages = flow.parse(piece.forward, piece.missing, bytes);
            self.judge_piece(&packet, &mut flow, &piece, bytes, &[], give);
            if let Some(room) = self.flows.peek_mut(&key) {
                *room = Some(flow);
            }
        }
    }
}

/// Notes a piece, and copies its bytes.
fn delivered(piece: &streams::Piece<'_>, room: &mut Vec<u8>) -> Delivered {
    let start = room.len();
    room.extend_from_slice(piece.bytes);
    Delivered {
        connection: piece.connection,
        forward: piece.forward,
        missing: piece.missing,
        start,
        end: room.len(),
        messages: Vec::new(),
    }
}

/// Number of a flow for alerts: the same in every run over the same packets, and below 2⁵³, as programs that read
/// JSON expect.
fn flow_id(packet: &Packet<'_>, serial: u64) -> u64 {
    let mut value = packet.time_ns ^ serial.rotate_left(32);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value ^ value >> 31) >> 11
}

#[cfg(test)]
mod tests;
