//! Flows and the connections of their streams: which of them a packet belongs to, and which are forgotten.
//!
//! A flow is forgotten after a silence: short if it has ended or got no answer, long if it is established. If the
//! memory is full, the flow that would be forgotten first goes, so a flood of openings cannot push out established
//! connections. The connection in the table of streams goes with its flow.

use super::flow::{self, Flow};
use super::packet::{Packet, TCP};
use super::records::Reason;
use super::sums::{Checksums, Sum};
use super::{Engine, Give, Message};
use fyke_flow::streams::{self, Segment};
use fyke_frame::walk::view::tcp_flags::{RST, SYN};

/// Longest silence of a flow that has ended, in nanoseconds: late segments still belong to it.
const LINGER_NS: u64 = 10_000_000_000;
/// Longest silence of a flow that is not established, in nanoseconds.
const OPENING_NS: u64 = 60_000_000_000;
/// Memory of a flow that holds nothing, with its places in all tables, in bytes.
pub(super) const FLOW_BYTES: usize = size_of::<Flow>() + 600;

/// A delivered piece of a stream: connection, forward, missing bytes, and where its bytes are in the room.
pub(super) struct Delivered {
    connection: u64,
    pub(super) forward: bool,
    pub(super) missing: u64,
    start: usize,
    end: usize,
    /// Messages that it completes.
    pub(super) messages: Vec<Message>,
}

impl Engine {
    /// Judges a packet; false if it is not judged because its checksum is wrong.
    pub(super) fn packet(
        &mut self,
        packet: &Packet<'_>,
        segment: Option<&Segment<'_>>,
        sum: Sum,
        now_ns: u64,
        give: Give<'_>,
    ) -> bool {
        let key = flow::key(packet);
        while let Some((_, old)) = self.flows.pop_expired(now_ns) {
            self.forget(old, Reason::Timeout, give);
        }
        let known = self.flows.peek_mut(&key).and_then(Option::take);
        let is_known = known.is_some();
        let mut flow = known.unwrap_or_else(|| self.new_flow(packet));
        let to_server = flow.is_to_server(packet);
        if self.limits.checksums != Checksums::Ignored
            && !self.check(packet, to_server, sum, &mut flow, give)
        {
            match is_known {
                true => self.put_back(&key, flow),
                false => self.counters.flows -= 1,
            }
            return false;
        }
        let mut pieces = Vec::new();
        let mut over = false;
        if let Some(segment) = segment {
            let begun = self.streams.counters().midstream;
            let stream = self.take_segment(segment, packet.time_ns, &mut pieces);
            over = stream.is_some_and(|stream| self.streams.is_over(stream.number));
            if let Some(stream) = stream
                && flow.stream.is_none_or(|(_, own)| own != stream.connection)
            {
                // The pieces of the connection before it, with the same ends, come first.
                let is_old = |piece: &Delivered| piece.connection != stream.connection;
                let own = pieces.iter().take_while(|piece| is_old(piece)).count();
                let mut old: Vec<Delivered> = pieces.drain(..own).collect();
                self.parse(&mut flow, &mut old);
                self.pieces(packet, &mut flow, &old, &[], give);
                let opens = segment.flags & SYN != 0;
                if is_known && (opens || flow.stream.is_some()) {
                    let fresh = self.fresh(packet, &flow);
                    self.forget(Some(std::mem::replace(&mut flow, fresh)), Reason::Renewed, give);
                }
                flow.stream = Some((stream.number, stream.connection));
                let midstream = self.streams.counters().midstream > begun;
                flow.midstream = midstream && !self.limits.midstream && !flow.is_restarted;
                self.connections.insert(stream.connection, key);
            }
        }
        flow.count(packet, &self.limits);
        self.note_tagged(packet, &mut flow);
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
        let held = flow.held() + FLOW_BYTES;
        self.held_bytes = self.held_bytes + held - std::mem::replace(&mut flow.held_bytes, held);
        flow.is_over = over;
        let deadline_ns = now_ns.saturating_add(self.patience_ns(&flow, over));
        match self.flows.touch(&key, deadline_ns) {
            Some(room) => *room = Some(flow),
            None => {
                self.make_room(true, give);
                self.flows.insert(key, Some(flow), deadline_ns);
            }
        }
        self.make_room(false, give);
        true
    }

    /// Learns from the checksum of a packet, in a flow of its ends; false if the packet is not judged.
    fn check(
        &mut self,
        packet: &Packet<'_>,
        to_server: bool,
        sum: Sum,
        flow: &mut Box<Flow>,
        give: Give<'_>,
    ) -> bool {
        let at = usize::from(!to_server);
        let counts = packet.flags().is_some_and(|flags| flags & SYN != 0);
        match sum {
            Sum::Unknown => {}
            Sum::Wrong if self.limits.checksums == Checksums::Required => return false,
            Sum::Wrong if flow.sums[at].right => return false,
            Sum::Wrong => {
                flow.sums[at].wrong = true;
                self.counters.unsummed += 1;
            }
            Sum::Right if flow.sums[at].right || !(counts || packet.payload_len > 0) => {}
            Sum::Right => {
                // The receiver has seen nothing of what came before.
                if std::mem::replace(&mut flow.sums[at].wrong, false) {
                    let fresh = self.fresh(packet, flow);
                    self.forget(Some(std::mem::replace(flow, fresh)), Reason::Renewed, give);
                    flow.is_restarted = true;
                }
                let at = usize::from(!flow.is_to_server(packet));
                flow.sums[at].right = true;
            }
        }
        true
    }

    /// Time of silence after which a flow is forgotten; `over` is true if its connection has ended.
    fn patience_ns(&self, flow: &Flow, over: bool) -> u64 {
        let most = match () {
            () if over => LINGER_NS,
            () if flow.is_open() => u64::MAX,
            () => OPENING_NS,
        };
        self.limits.idle_ns.min(most)
    }

    /// Returns a flow to the table.
    fn put_back(&mut self, key: &flow::FlowKey, flow: Box<Flow>) {
        if let Some(room) = self.flows.peek_mut(key) {
            *room = Some(flow);
        }
    }

    /// Forgets flows until there is room for the bytes of all and, if wanted, for another flow.
    fn make_room(&mut self, another: bool, give: Give<'_>) {
        while (another && self.flows.is_full())
            || (self.held_bytes > self.limits.bytes && self.flows.len() > 1)
        {
            let Some((_, old)) = self.flows.pop_oldest() else { return };
            let open = old.as_ref().is_some_and(|old| old.is_open());
            self.counters.forgotten += 1;
            self.counters.forgotten_open += u64::from(open);
            self.forget(old, Reason::Room, give);
        }
    }

    /// A flow of a packet that takes the place of another one between the same ends.
    fn fresh(&mut self, packet: &Packet<'_>, old: &Flow) -> Box<Flow> {
        let mut fresh = self.new_flow(packet);
        fresh.sums = old.sums;
        if fresh.client != old.client {
            fresh.sums.reverse();
        }
        fresh
    }

    fn new_flow(&mut self, packet: &Packet<'_>) -> Box<Flow> {
        self.counters.flows += 1;
        Box::new(Flow::new(flow_id(packet, self.counters.flows), packet))
    }

    /// Forgets one of the flows that are left when all streams have ended; false if there is none.
    pub fn end_flow(&mut self) -> bool {
        let Some((_, flow)) = self.flows.pop_oldest() else { return false };
        self.forget(flow, Reason::Shutdown, &mut |_| ());
        true
    }

    /// Forgets a flow with its connection, after judging what is held of its streams.
    fn forget(&mut self, flow: Option<Box<Flow>>, reason: Reason, give: Give<'_>) {
        let Some(mut flow) = flow else { return };
        self.held_bytes -= flow.held_bytes;
        self.end_streams(&mut flow, give);
        self.note_end(&flow, reason);
    }

    /// Removes the connection of a flow, after judging what is held of its streams.
    fn end_streams(&mut self, flow: &mut Flow, give: Give<'_>) {
        let Some((number, connection)) = flow.stream else { return };
        self.connections.remove(&connection);
        let (mut room, mut pieces) = (Vec::new(), Vec::new());
        self.streams.remove(number, connection, &mut |piece| {
            pieces.push(delivered(&piece, &mut room));
        });
        let packet = Packet::between(flow.client, flow.server, TCP, self.clock.now_ns());
        for mut piece in pieces {
            let bytes = &room[piece.start..piece.end];
            self.budget.earn(bytes.len());
            piece.messages = flow.parse(piece.forward, piece.missing, bytes);
            self.judge_piece(&packet, flow, &piece, bytes, &[], give);
        }
    }

    /// Passes a segment to the streams; the bytes that are in order now are copied to the room.
    fn take_segment(
        &mut self,
        segment: &Segment<'_>,
        time_ns: u64,
        pieces: &mut Vec<Delivered>,
    ) -> Option<streams::Flow> {
        self.room.clear();
        let room = &mut self.room;
        // Bytes in a reset are a text about it, not a part of the stream (RFC 9293, 3.5.3).
        let reset = Segment { payload: &[], payload_len: 0, ..*segment };
        let segment = if segment.flags & RST != 0 { &reset } else { segment };
        self.streams.segment(segment, time_ns, &mut |piece| pieces.push(delivered(&piece, room)))
    }

    /// Passes the pieces of a flow to its application.
    fn parse(&self, flow: &mut Flow, pieces: &mut [Delivered]) {
        let own = flow.stream.map(|(_, connection)| connection);
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
            if flow.stream.is_some_and(|(_, own)| own == piece.connection) {
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
            self.budget.earn(bytes.len());
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
