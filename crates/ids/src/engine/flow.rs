//! A flow: its client, how far its handshake is, the last bytes of its streams, its application and its names.

use super::Limits;
use super::left::Left;
use super::packet::{End, Packet, TCP};
use super::records::Notes;
use crate::app::{Message, Parser};
use crate::rule::{FlowCount, FlowNumber, NumberChange, NumberKind, NumberTest, Side, Unit};
use fyke_frame::walk::view::tcp_flags::{ACK, RST, SYN};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Bytes of a stream that are judged together: what is older than this is forgotten.
pub const WINDOW: usize = 32 << 10;
/// Bytes of a direction that rules for streams see, as in Suricata.
pub const MAX_STREAM: u64 = 1 << 20;

/// Both ends of a flow, the smaller first, its protocol and VLAN: version, address and port of each, in bytes, so that
/// one step hashes them.
pub type FlowKey = [u8; 43];

/// The key of a packet's flow.
pub fn key(packet: &Packet<'_>) -> FlowKey {
    let (source, destination) = (packet.source, packet.destination);
    let mut key = [0; 43];
    key[38] = packet.protocol;
    key[39..].copy_from_slice(&packet.vlan.to_be_bytes());
    for (place, (address, port)) in
        key[..38].chunks_exact_mut(19).zip([source.min(destination), source.max(destination)])
    {
        match address {
            IpAddr::V4(four) => place[1..5].copy_from_slice(&four.octets()),
            IpAddr::V6(six) => place[1..17].copy_from_slice(&six.octets()),
        }
        place[0] = u8::from(address.is_ipv6());
        place[17..].copy_from_slice(&port.to_be_bytes());
    }
    key
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
pub struct Window {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Place of the first in the stream.
    pub start: u64,
    /// Rules with a literal in the bytes that have not matched.
    pub waiting: Vec<u32>,
    /// Places up to which rules have alerted.
    pub done: HashMap<u32, u64>,
}

impl Window {
    /// Adds bytes; returns how many of them are new to rules.
    pub fn add(&mut self, missing: u64, bytes: &[u8]) -> usize {
        if missing > 0 {
            // Nothing is known to join the bytes on both sides.
            self.start += self.bytes.len() as u64 + missing;
            self.bytes.clear();
            self.waiting.clear();
        }
        let room = MAX_STREAM.saturating_sub(self.end());
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if self.bytes.len() + count > 2 * WINDOW {
            let dropped = self.bytes.len() - self.bytes.len().min(WINDOW);
            self.bytes.drain(..dropped);
            self.start += dropped as u64;
        }
        self.bytes.extend_from_slice(&bytes[..count]);
        count
    }

    /// Place after the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The bytes that a rule has not alerted on, and whether they begin the stream.
    pub fn open_to(&self, rule: u32) -> (&[u8], bool) {
        let from = self.done.get(&rule).copied().unwrap_or(0).max(self.start);
        let skipped = usize::try_from(from - self.start).unwrap_or(usize::MAX);
        (self.bytes.get(skipped..).unwrap_or_default(), from == 0)
    }
}

/// Progress of TCP's handshake.
#[derive(Debug, Clone, Copy, Default)]
struct Handshake {
    asked: bool,
    answered: bool,
}

/// Checksums that a sender has used in a flow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sums {
    /// A right one, with a SYN or with payload.
    pub right: bool,
    /// A wrong one before.
    pub wrong: bool,
}

/// A flow.
#[derive(Debug)]
pub struct Flow {
    /// Number for alerts.
    pub id: u64,
    /// The end that began it.
    pub client: End,
    /// The other end.
    pub server: End,
    /// Time of the first packet.
    pub start_ns: u64,
    /// Time of the last packet.
    pub end_ns: u64,
    /// Protocol of IP.
    pub protocol: u8,
    /// The connection has ended.
    pub is_over: bool,
    /// Parts of records that wait for others.
    pub notes: Option<Box<Notes>>,
    /// Outer VLAN tags, 12 bits each; 0 without.
    pub vlan: u32,
    /// Packets and bytes, to the server and to the client.
    pub packets: [u64; 2],
    /// Bytes on the wire.
    pub bytes: [u64; 2],
    /// Numbers of TCP of each direction: the first, and the one after the last byte.
    sequences: [Option<(u32, u32)>; 2],
    handshake: Handshake,
    /// TCP: the handshake is complete; else: both ends have sent.
    pub established: bool,
    /// Number of the flow and of the connection in the table of streams.
    pub stream: Option<(u32, u64)>,
    /// Checksums so far, to the server and to the client.
    pub sums: [Sums; 2],
    /// Packets with wrong checksums before its first one were not part of it.
    pub is_restarted: bool,
    /// Streams are not judged: the beginning was not captured.
    pub midstream: bool,
    /// The streams, to the server and to the client.
    pub windows: [Window; 2],
    /// The application.
    pub parser: Parser,
    /// Names that are set.
    pub names: HashSet<Arc<str>>,
    /// Packets that are recorded.
    pub tag: Option<Left>,
    /// Numbers that it has.
    pub numbers: HashMap<Arc<str>, u32>,
    /// Bytes that it held when they were last counted.
    pub held_bytes: usize,
    /// A rule lets the flow pass.
    pub passed: bool,
    /// Rules that have alerted on the current message of each direction.
    pub alerted: [Vec<u32>; 2],
    /// Rules about addresses only, which alert once a direction.
    pub alerted_once: HashSet<(u32, bool)>,
}

impl Flow {
    /// The flow that a packet begins.
    pub fn new(id: u64, packet: &Packet<'_>) -> Flow {
        let answers = packet.flags().is_some_and(|flags| flags & (SYN | ACK) == SYN | ACK);
        let (client, server) = match answers {
            true => (packet.destination, packet.source),
            false => (packet.source, packet.destination),
        };
        Flow {
            id,
            client,
            server,
            start_ns: packet.time_ns,
            end_ns: packet.time_ns,
            protocol: packet.protocol,
            is_over: false,
            notes: None,
            vlan: packet.vlan,
            packets: [0; 2],
            bytes: [0; 2],
            sequences: [None; 2],
            handshake: Handshake::default(),
            established: false,
            stream: None,
            sums: [Sums::default(); 2],
            is_restarted: false,
            midstream: false,
            windows: Default::default(),
            parser: Parser::New,
            names: HashSet::new(),
            numbers: HashMap::new(),
            tag: None,
            held_bytes: 0,
            passed: false,
            alerted: Default::default(),
            alerted_once: HashSet::new(),
        }
    }

    /// True if the packet is sent to the server.
    pub fn is_to_server(&self, packet: &Packet<'_>) -> bool {
        packet.source == self.client && packet.destination == self.server
    }

    /// True if both ends take part: the handshake is complete, or was not captured and both have sent.
    pub fn is_open(&self) -> bool {
        let both = self.packets.iter().all(|count| *count > 0);
        self.established || (both && !self.handshake.asked && !self.handshake.answered)
    }

    /// Bytes that the flow holds.
    pub fn held(&self) -> usize {
        let of_rules =
            |window: &Window| 4 * window.waiting.capacity() + 16 * window.done.capacity();
        let window = |window: &Window| window.bytes.capacity() + of_rules(window);
        self.windows.iter().map(window).sum::<usize>()
            + self.parser.held()
            + self.notes.as_ref().map_or(0, |notes| notes.held())
            + self.alerted.iter().map(|alerted| 4 * alerted.capacity()).sum::<usize>()
            + 32 * (self.names.capacity() + self.numbers.capacity() + self.alerted_once.capacity())
    }

    /// Forgets what is known of rules.
    pub fn forget_rules(&mut self) {
        for window in &mut self.windows {
            window.waiting.clear();
            window.done.clear();
        }
        self.alerted.iter_mut().for_each(Vec::clear);
        self.alerted_once.clear();
    }

    /// Counts a packet; the limits tell which parts of a connection may be missing in the capture.
    pub fn count(&mut self, packet: &Packet<'_>, limits: &Limits) {
        let to_server = self.is_to_server(packet);
        let at = usize::from(!to_server);
        self.end_ns = self.end_ns.max(packet.time_ns);
        self.packets[at] += 1;
        self.bytes[at] += u64::from(packet.wire_len);
        if let Some((from, to)) = packet.sequences() {
            let opens = packet.flags().is_some_and(|flags| flags & SYN != 0);
            let (first, last) = self.sequences[at].filter(|_| !opens).unwrap_or((from, to));
            // Numbers wrap around.
            let is_later = to.wrapping_sub(last) < 1 << 31;
            self.sequences[at] = Some((first, if is_later { to } else { last }));
        }
        match packet.flags() {
            Some(flags) => {
                self.handshake.asked |= to_server && flags & (SYN | ACK) == SYN;
                self.handshake.answered |= !to_server && flags & (SYN | ACK) == SYN | ACK;
                let acknowledges = flags & (SYN | RST | ACK) == ACK;
                let Handshake { asked, answered } = self.handshake;
                let is_alone = limits.one_direction && self.packets[1 - at] == 0;
                self.established |= acknowledges
                    && match (asked, answered) {
                        (true, true) => to_server,
                        (false, false) => limits.midstream,
                        _ => is_alone,
                    };
            }
            None => self.established |= self.packets.iter().all(|count| *count > 0),
        }
    }

    fn number(&self, number: &FlowNumber) -> u32 {
        match number {
            FlowNumber::Given(number) => *number,
            FlowNumber::Named(name) => self.numbers.get(name).copied().unwrap_or(0),
        }
    }

    /// Judges a test of one of its numbers.
    pub fn has_number(&self, test: &NumberTest) -> bool {
        let own = self.numbers.get(&test.name);
        let compares = |other: &FlowNumber| own.map(|own| own.cmp(&self.number(other)));
        match &test.test {
            NumberKind::IsSet => own.is_some(),
            NumberKind::IsNotSet => own.is_none(),
            NumberKind::Compares(wanted, other) => compares(other) == Some(*wanted),
            NumberKind::ComparesNot(unwanted, other) => {
                compares(other).is_some_and(|found| found != *unwanted)
            }
        }
    }

    /// Changes one of its numbers; one that it does not have begins with 0.
    pub fn change_number(&mut self, change: &NumberChange) {
        let value = self.number(&change.value);
        let own = self.numbers.entry(Arc::clone(&change.name)).or_default();
        *own = match change.operator {
            b'+' => own.wrapping_add(value),
            b'-' => own.wrapping_sub(value),
            _ => value,
        };
    }

    /// Judges a test of what the flow has carried.
    pub fn fits(&self, count: &FlowCount) -> bool {
        let numbers: [Option<u64>; 2] = match count.unit {
            Unit::Packets => self.packets.map(Some),
            Unit::PacketBytes => self.bytes.map(Some),
            Unit::StreamBytes => self
                .sequences
                .map(|numbers| numbers.map(|(first, last)| last.wrapping_sub(first).into())),
        };
        if self.protocol != TCP && count.unit == Unit::StreamBytes {
            return false;
        }
        let [client, server] = numbers.map(|number| count.bound.contains(number.unwrap_or(0)));
        match count.side {
            Side::Client => client,
            Side::Server => server,
            Side::Both => client && server,
            Side::Either => client || server,
        }
    }

    /// Passes a piece of a stream to the application; an empty piece ends the direction. Returns the messages that are
    /// complete now.
    pub fn parse(&mut self, to_server: bool, missing: u64, bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        if !self.midstream {
            match bytes.is_empty() {
                true => self.parser.end(to_server, &mut |message| messages.push(message)),
                false => self
                    .parser
                    .stream(to_server, missing, bytes, &mut |message| messages.push(message)),
            }
        }
        messages
    }
}
