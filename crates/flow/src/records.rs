//! Flow records: one for each conversation of two ends, with its packets, bytes and TCP flags in both directions and
//! the reason why it ended.
//!
//! A flow is the innermost IP packets between two addresses and ports of one protocol, whatever tags and tunnels are
//! around them. Its source is the sender of its first packet. It ends if it is silent for the idle time, if both
//! directions of a TCP connection are closed or one is reset, if the table is full, or at the end of the capture. A
//! flow that lasts longer than the active time is reported in parts. Time is taken from the packets.
//!
//! Later fragments have no ports; those of two addresses and one protocol form a flow with ports 0.
//!
//! Memory: some 200 bytes for each of the flows at a time, of which there are at most [`Limits::flows`]. Cost: one
//! hash look-up per packet. Source: RFC 7011 and RFC 5103 (flows in two directions).

use crate::ageing::Ageing;
use crate::clock::Clock;
use fyke_frame::Frame;
use fyke_frame::walk::Layers;
use fyke_frame::walk::view::tcp_flags::{ACK, FIN, RST, SYN};
use std::net::SocketAddr;

const TCP: u8 = 6;
/// Time for which the last segments of a closed connection still belong to it.
const LINGER_NS: u64 = 2_000_000_000;

/// Limits of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most flows at a time; the one that would end first is then removed.
    pub flows: usize,
    /// Silence that ends a flow, in nanoseconds.
    pub idle_ns: u64,
    /// Time after which a flow that has not ended is reported, in nanoseconds.
    pub active_ns: u64,
}

impl Default for Limits {
    /// 65,536 flows, 60 seconds, 300 seconds.
    fn default() -> Self {
        Limits { flows: 1 << 16, idle_ns: 60_000_000_000, active_ns: 300_000_000_000 }
    }
}

/// Reason why a record is complete. The values are those of IPFIX's `flowEndReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    /// It was silent for the idle time.
    Idle = 1,
    /// It has not ended, and has lasted for the active time.
    Active = 2,
    /// The connection was closed or reset.
    Closed = 3,
    /// The capture ended.
    Stopped = 4,
    /// The table was full.
    Evicted = 5,
}

impl End {
    /// All reasons.
    pub const ALL: [End; 5] = [End::Idle, End::Active, End::Closed, End::Stopped, End::Evicted];

    /// Name of the reason.
    pub fn name(self) -> &'static str {
        ["idle", "active", "closed", "stopped", "evicted"][self as usize - 1]
    }
}

/// One direction of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Side {
    /// Number of packets.
    pub packets: u64,
    /// Their length in bytes, from the IP header on, as their headers give it.
    pub bytes: u64,
    /// The TCP flags of all of them.
    pub tcp_flags: u8,
    /// Bytes of its TCP stream that were not captured, as far as that is known.
    pub missing_bytes: u64,
}

/// Most rules that a record names.
pub const MOST_RULES: usize = 4;

/// A flow, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Protocol number of the IP packets.
    pub protocol: u8,
    /// Sender of the first packet; port 0 if the protocol has none.
    pub source: SocketAddr,
    /// Receiver of the first packet.
    pub destination: SocketAddr,
    /// Time of the first packet, in nanoseconds since 1970.
    pub start_ns: u64,
    /// Time of the last packet.
    pub end_ns: u64,
    /// Packets from the source.
    pub forward: Side,
    /// Packets to the source.
    pub backward: Side,
    /// Reason why the record is complete.
    pub end: End,
    /// Numbers of the rules that its packets matched, in the order of their first match; 0 = none.
    pub rules: [u32; MOST_RULES],
}

/// A packet, as far as flows need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Protocol number.
    pub protocol: u8,
    /// Sender; port 0 if the packet has none.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// Length from the IP header on, in bytes.
    pub bytes: u64,
    /// TCP flags; 0 for other protocols.
    pub tcp_flags: u8,
    /// Number of the rule that it matched; 0 = none.
    pub rule: u32,
}

impl Packet {
    /// The innermost packet of a frame; `None` if that is not an IP packet.
    pub fn of(frame: &Frame<'_>, layers: &Layers<'_>) -> Option<Packet> {
        let scope = layers.innermost_level()?;
        let ip = scope.ip()?;
        let header = scope.layers().iter().find(|layer| layer.protocol.is_ip())?;
        let in_header = match (scope.ipv4(), scope.ipv6()) {
            (Some(v4), _) => u64::from(v4.total_len()),
            (_, Some(v6)) if v6.payload_len() > 0 => 40 + u64::from(v6.payload_len()),
            _ => 0,
        };
        // Packets that the network card will cut have the length 0.
        let on_wire = u64::from(frame.wire_len).saturating_sub(header.header_range().start as u64);
        let is_later_fragment = scope.fragment().is_some_and(|fragment| fragment.offset > 0);
        let ports = scope.ports().filter(|_| !is_later_fragment);
        let (from, to) = ports.map_or((0, 0), |ports| (ports.source, ports.destination));
        Some(Packet {
            protocol: scope.ip_protocol()?,
            source: SocketAddr::new(ip.source(), from),
            destination: SocketAddr::new(ip.destination(), to),
            bytes: if in_header > 0 { in_header } else { on_wire },
            tcp_flags: scope.tcp().and_then(|tcp| tcp.flags()).unwrap_or(0),
            rule: 0,
        })
    }
}

/// Protocol, and the two ends in the order of their addresses.
type Key = (u8, SocketAddr, SocketAddr);

fn key(protocol: u8, source: SocketAddr, destination: SocketAddr) -> Key {
    (protocol, source.min(destination), source.max(destination))
}

/// A flow that has not ended.
#[derive(Debug)]
struct Open {
    record: Record,
    /// Directions in which the connection is closed: forward, backward.
    closed: [bool; 2],
}

impl Open {
    fn is_closed(&self) -> bool {
        self.closed == [true, true]
    }

    fn ended(mut self, end: End) -> Record {
        self.record.end = if self.is_closed() { End::Closed } else { end };
        self.record
    }
}

/// Flows that have not ended.
#[derive(Debug)]
pub struct Flows {
    limits: Limits,
    open: Ageing<Key, Open>,
    clock: Clock,
}

impl Flows {
    /// No flows yet.
    pub fn new(limits: Limits) -> Flows {
        Flows { limits, open: Ageing::new(limits.flows), clock: Clock::default() }
    }

    /// Number of flows that have not ended.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Adds a packet; `report` receives the records that are complete before it.
    pub fn packet(&mut self, packet: &Packet, timestamp_ns: u64, report: &mut impl FnMut(&Record)) {
        let now_ns = self.clock.advance(timestamp_ns);
        self.expire_at(now_ns, report);
        let key = key(packet.protocol, packet.source, packet.destination);
        let (mut source, mut destination) = (packet.source, packet.destination);
        let mut closed = [false; 2];
        if let Some(flow) = self.open.peek_mut(&key) {
            let is_new = flow.is_closed() && packet.tcp_flags & (SYN | ACK | RST) == SYN;
            let is_long = now_ns.saturating_sub(flow.record.start_ns) >= self.limits.active_ns;
            if !is_new && !is_long {
                let deadline_ns = add(flow, packet, timestamp_ns, now_ns, self.limits.idle_ns);
                self.open.touch(&key, deadline_ns);
                return;
            }
            if is_long && !is_new {
                (source, destination) = (flow.record.source, flow.record.destination);
                closed = flow.closed;
            }
            let ended = self.open.remove(&key).map(|flow| flow.ended(End::Active));
            ended.iter().for_each(&mut *report);
        }
        while self.open.is_full() {
            let Some((_, flow)) = self.open.pop_oldest() else { break };
            report(&flow.ended(End::Evicted));
        }
        let record = Record {
            protocol: packet.protocol,
            source,
            destination,
            start_ns: timestamp_ns,
            end_ns: timestamp_ns,
            forward: Side::default(),
            backward: Side::default(),
            end: End::Stopped,
            rules: [0; MOST_RULES],
        };
        let mut flow = Open { record, closed };
        let deadline_ns = add(&mut flow, packet, timestamp_ns, now_ns, self.limits.idle_ns);
        self.open.insert(key, flow, deadline_ns);
    }

    /// Adds bytes of the TCP stream between two ends that were not captured; does nothing if the flow has ended.
    pub fn missing(&mut self, source: SocketAddr, destination: SocketAddr, bytes: u64) {
        let Some(flow) = self.open.peek_mut(&key(TCP, source, destination)) else { return };
        let is_forward = flow.record.source == source && flow.record.destination == destination;
        let Record { forward, backward, .. } = &mut flow.record;
        (if is_forward { forward } else { backward }).missing_bytes += bytes;
    }

    /// Lets time pass without packets.
    pub fn expire(&mut self, now_ns: u64, report: &mut impl FnMut(&Record)) {
        let now_ns = self.clock.advance(now_ns);
        self.expire_at(now_ns, report);
    }

    fn expire_at(&mut self, now_ns: u64, report: &mut impl FnMut(&Record)) {
        while let Some((_, flow)) = self.open.pop_expired(now_ns) {
            report(&flow.ended(End::Idle));
        }
    }

    /// Ends all flows.
    pub fn finish(&mut self, report: &mut impl FnMut(&Record)) {
        while let Some((_, flow)) = self.open.pop_oldest() {
            report(&flow.ended(End::Stopped));
        }
    }
}

/// Adds a packet to its flow; returns when the flow ends if no other packet comes.
fn add(flow: &mut Open, packet: &Packet, timestamp_ns: u64, now_ns: u64, idle_ns: u64) -> u64 {
    let record = &mut flow.record;
    record.start_ns = record.start_ns.min(timestamp_ns);
    record.end_ns = record.end_ns.max(timestamp_ns);
    let is_forward = (packet.source, packet.destination) == (record.source, record.destination);
    let side = if is_forward { &mut record.forward } else { &mut record.backward };
    side.packets += 1;
    side.bytes += packet.bytes;
    side.tcp_flags |= packet.tcp_flags;
    if packet.rule != 0
        && let Some(place) = record.rules.iter_mut().find(|known| [0, packet.rule].contains(known))
    {
        *place = packet.rule;
    }
    if packet.protocol == TCP && packet.tcp_flags & RST != 0 {
        flow.closed = [true, true];
    } else if packet.protocol == TCP && packet.tcp_flags & FIN != 0 {
        flow.closed[usize::from(!is_forward)] = true;
    }
    now_ns.saturating_add(if flow.is_closed() { LINGER_NS.min(idle_ns) } else { idle_ns })
}

#[cfg(test)]
mod tests;
