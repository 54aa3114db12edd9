//! TCP streams: the bytes of each direction of a connection, in order, once, with every loss
//! counted.
//!
//! A segment that is next in order is delivered at once, without a copy. A segment that arrives
//! early is held; where it overlaps held segments, the policy of the receiver's system decides
//! which bytes are kept ([`Policy`]). The stream waits for missing bytes until the direction or all
//! directions hold too much, or until a time limit; then the gap is skipped and counted. Time is
//! taken from the connection's own segments: as long as no limit is reached, a stream depends on
//! them alone, whatever other traffic there is. To let time pass without segments, call
//! [`Streams::expire`]. Sequence numbers wrap around; a connection without a captured beginning
//! begins with its first segment; keep-alives and retransmissions add nothing. Nothing is sent, so
//! missing bytes are never requested again.
//!
//! Memory: at most [`Limits`]; the connection that has been silent longest is removed first. Cost:
//! one hash look-up per segment, O(log n) for an early segment. Source: RFC 9293; overlaps as in
//! Suricata's table.

mod direction;

pub use direction::Policy;

use crate::ageing::Ageing;
use crate::clock::Clock;
use direction::Direction;
use fyke_frame::walk::Layers;
use fyke_frame::walk::view::tcp_flags::{ACK, RST, SYN};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const TCP: u8 = 6;

/// A TCP segment.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Flags of its header.
    pub flags: u8,
    /// Captured part of its payload.
    pub payload: &'a [u8],
    /// Length of its payload on the wire, in bytes.
    pub payload_len: u32,
}

impl<'a> Segment<'a> {
    /// The segment of the innermost packet; `None` if that is no TCP segment, or if it or a packet
    /// around it is a fragment. Lengths come from the IP header, so link-layer padding is not part
    /// of the payload.
    pub fn of(layers: &Layers<'a>) -> Option<Segment<'a>> {
        let scope = layers.innermost_level()?;
        if is_cut(layers) {
            return None;
        }
        let (ip, tcp) = (scope.ip()?, scope.tcp()?);
        Some(Segment {
            source: SocketAddr::new(ip.source(), tcp.source_port()),
            destination: SocketAddr::new(ip.destination(), tcp.destination_port()),
            sequence: tcp.sequence()?,
            flags: tcp.flags()?,
            payload: tcp.payload(),
            payload_len: u32::try_from(tcp.wire_payload_len()).ok()?,
        })
    }

    /// True if a packet is a fragment of a segment, or of a tunnel's packet around one.
    pub fn is_fragment(layers: &Layers<'_>) -> bool {
        let tcp = layers.innermost_level().and_then(|scope| scope.ip_protocol()) == Some(TCP);
        tcp && is_cut(layers)
    }
}

/// True if the packet or one around it is a fragment.
fn is_cut(layers: &Layers<'_>) -> bool {
    layers.levels().any(|level| level.fragment().is_some_and(|fragment| !fragment.is_whole()))
}

/// Limits for memory and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most connections.
    pub connections: usize,
    /// Most bytes that one direction holds.
    pub direction_bytes: usize,
    /// Most bytes that all directions hold, with an estimate for each piece.
    pub bytes: usize,
    /// Longest wait for missing bytes, in nanoseconds.
    pub gap_ns: u64,
    /// Time after which a silent connection is removed, in nanoseconds.
    pub idle_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            direction_bytes: 1 << 20,
            bytes: 64 << 20,
            gap_ns: 10_000_000_000,
            idle_ns: 300_000_000_000,
        }
    }
}

/// Counters so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections, including those that began again.
    pub connections: u64,
    /// Connections that were first seen after their beginning.
    pub midstream: u64,
    /// Connections removed for lack of room before their idle time was over.
    pub evicted: u64,
    /// Segments with payload.
    pub segments: u64,
    /// Bytes that were delivered.
    pub delivered_bytes: u64,
    /// Bytes that were received again.
    pub repeated_bytes: u64,
    /// Bytes that were received again with another value, while both copies were available.
    pub contradicting_bytes: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// Bytes missing in gaps.
    pub missing_bytes: u64,
    /// Held bytes that were dropped, after a reset or with their connection.
    pub dropped_bytes: u64,
    /// Segments with a number too far from the expected one.
    pub outside: u64,
    /// Fragments of segments, and of tunnels' packets around segments, which are not reassembled here.
    pub fragments: u64,
}

/// A delivered piece of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Number of the connection, from 1, never used again.
    pub connection: u64,
    /// True for the direction of the end that sent the first captured segment.
    pub forward: bool,
    /// Number of bytes missing just before it.
    pub missing: u64,
    /// The bytes; empty at the end of the direction.
    pub bytes: &'a [u8],
}

/// A connection: both ends, the smaller address first.
type Ends = (SocketAddr, SocketAddr);

#[derive(Debug)]
struct Connection {
    number: u64,
    /// Directions from the smaller end, and from the other.
    directions: [Direction; 2],
    /// The index of the direction that sent first.
    forward: usize,
    last_ns: u64,
}

/// All connections.
#[derive(Debug)]
pub struct Streams {
    limits: Limits,
    policy: Policy,
    connections: Ageing<Ends, Connection>,
    /// Directions that hold bytes, with the time since which they wait.
    waiting: BTreeSet<(u64, u64, Ends, usize)>,
    clock: Clock,
    held_bytes: usize,
    counters: Counters,
}

/// Receives pieces in order.
pub type Give<'g> = &'g mut dyn FnMut(Piece<'_>);

impl Streams {
    /// A table without connections.
    pub fn new(limits: Limits, policy: Policy) -> Streams {
        Streams {
            limits,
            policy,
            connections: Ageing::new(limits.connections),
            waiting: BTreeSet::new(),
            clock: Clock::default(),
            held_bytes: 0,
            counters: Counters::default(),
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes held now, with an estimate for each piece.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// True if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Counts a fragment.
    pub fn fragment(&mut self) {
        self.counters.fragments += 1;
    }

    /// Takes a segment; bytes that are now in order are passed to `give`.
    pub fn segment(&mut self, segment: &Segment<'_>, timestamp_ns: u64, give: Give<'_>) {
        self.clock.advance(timestamp_ns);
        let now_ns = timestamp_ns;
        let lesser = segment.source <= segment.destination;
        let ends = if lesser {
            (segment.source, segment.destination)
        } else {
            (segment.destination, segment.source)
        };
        let from = usize::from(!lesser);
        self.counters.segments += u64::from(segment.payload_len > 0);
        if !self.open(ends, from, segment, now_ns, give) {
            return;
        }
        let most = self.limits.direction_bytes;
        self.work(ends, from, give, |direction, counters, policy, give| {
            direction.take(segment, now_ns, policy, counters, give);
            while direction.held_bytes() > most {
                direction.skip(now_ns, counters, give);
            }
        });
        if segment.flags & RST != 0 {
            self.reset(ends, from, segment, give);
        }
        self.make_room(now_ns, give);
    }

    /// Finds or makes the connection; false if the segment is useless for a stream.
    fn open(
        &mut self,
        ends: Ends,
        from: usize,
        segment: &Segment<'_>,
        now_ns: u64,
        give: Give<'_>,
    ) -> bool {
        let opens = segment.flags & (SYN | RST) == SYN;
        if let Some(known) = self.connections.get_mut(&ends, 0) {
            let over = known.directions.iter().all(Direction::is_over);
            let other = opens && known.directions[from].begins_elsewhere(segment.sequence);
            let silent = now_ns.saturating_sub(known.last_ns) > self.limits.idle_ns;
            if !silent && !(other && (over || segment.flags & ACK == 0)) {
                known.last_ns = now_ns;
                self.skip_overdue(ends, now_ns, give);
                return true;
            }
            // The same ports, but a new connection.
            if let Some(old) = self.connections.remove(&ends) {
                self.end(ends, old, give);
            }
        }
        if !opens && (segment.payload_len == 0 || segment.flags & RST != 0) {
            return false;
        }
        while self.connections.len() >= self.limits.connections {
            self.evict(give);
        }
        self.counters.connections += 1;
        self.counters.midstream += u64::from(!opens);
        let both_syn = segment.flags & (SYN | ACK) == SYN | ACK;
        let connection = Connection {
            number: self.counters.connections,
            directions: [Direction::default(), Direction::default()],
            forward: if both_syn { 1 - from } else { from },
            last_ns: now_ns,
        };
        self.connections.insert(ends, connection, now_ns.saturating_add(self.limits.idle_ns));
        true
    }

    /// Removes the connection that has been silent longest. A deadline in the table is computed at
    /// the beginning of the connection, or when this function last examined it.
    fn evict(&mut self, give: Give<'_>) {
        while let Some((ends, oldest)) = self.connections.pop_expired(u64::MAX) {
            let last = oldest.last_ns.saturating_add(self.limits.idle_ns);
            // Each connection is moved at most once: afterwards its deadline is right.
            if self.connections.next_deadline().is_some_and(|next| next < last) {
                self.connections.insert(ends, oldest, last);
                continue;
            }
            self.counters.evicted += u64::from(last >= self.clock.now_ns());
            return self.end(ends, oldest, give);
        }
    }

    /// Skips gaps of a connection that have lasted too long.
    fn skip_overdue(&mut self, ends: Ends, now_ns: u64, give: Give<'_>) {
        for from in [0, 1] {
            while let Some(known) = self.connections.get_mut(&ends, 0)
                && let Some(since) = known.directions[from].waits_since()
                && now_ns.saturating_sub(since) > self.limits.gap_ns
            {
                self.skip(ends, from, now_ns, give);
            }
        }
    }

    /// Runs an action on one direction, and updates the number of bytes that it holds.
    fn work(
        &mut self,
        ends: Ends,
        from: usize,
        give: Give<'_>,
        act: impl FnOnce(&mut Direction, &mut Counters, Policy, &mut dyn FnMut(u64, &[u8])),
    ) {
        let Some(connection) = self.connections.get_mut(&ends, 0) else { return };
        let (number, forward) = (connection.number, connection.forward == from);
        let direction = &mut connection.directions[from];
        let (held, since) = (direction.held_bytes(), direction.waits_since());
        let ended = direction.is_over();
        let delivered = &mut 0;
        let mut on = |missing, bytes: &[u8]| {
            *delivered += bytes.len() as u64;
            if !bytes.is_empty() {
                give(Piece { connection: number, forward, missing, bytes });
            }
        };
        act(direction, &mut self.counters, self.policy, &mut on);
        self.counters.delivered_bytes += *delivered;
        if direction.is_over() && !ended {
            give(Piece { connection: number, forward, missing: 0, bytes: &[] });
        }
        self.held_bytes = self.held_bytes + direction.held_bytes() - held;
        let since_now = direction.waits_since();
        if since_now != since {
            since.map(|since| self.waiting.remove(&(since, number, ends, from)));
            since_now.map(|since| self.waiting.insert((since, number, ends, from)));
        }
    }

    /// Handles a reset: it ends both directions if the receiver accepts it.
    fn reset(&mut self, ends: Ends, from: usize, segment: &Segment<'_>, give: Give<'_>) {
        let Some(known) = self.connections.get_mut(&ends, 0) else { return };
        if known.directions[from].accepts_reset(segment.sequence, self.policy) {
            for direction in [0, 1] {
                self.work(ends, direction, give, |direction, counters, _, _| {
                    counters.dropped_bytes += direction.abandon();
                });
            }
        }
    }

    /// Skips gaps if too many bytes are held.
    fn make_room(&mut self, now_ns: u64, give: Give<'_>) {
        while self.held_bytes > self.limits.bytes
            && let Some(&(_, _, ends, from)) = self.waiting.first()
        {
            self.skip(ends, from, now_ns, give);
        }
    }

    fn skip(&mut self, ends: Ends, from: usize, now_ns: u64, give: Give<'_>) {
        self.work(ends, from, give, |direction, counters, _, give| {
            direction.skip(now_ns, counters, give);
        });
    }

    /// Advances the time: skips gaps that have lasted too long, removes silent connections.
    pub fn expire(&mut self, now_ns: u64, give: Give<'_>) {
        while let Some(&(since, _, ends, from)) = self.waiting.first()
            && now_ns.saturating_sub(since) > self.limits.gap_ns
        {
            self.skip(ends, from, now_ns, give);
        }
        while let Some((ends, connection)) = self.connections.pop_expired(now_ns) {
            let deadline = connection.last_ns.saturating_add(self.limits.idle_ns);
            if deadline >= now_ns {
                self.connections.insert(ends, connection, deadline);
            } else {
                self.end(ends, connection, give);
            }
        }
    }

    /// Ends all connections; held bytes after gaps are delivered. Gives each piece the time of the
    /// last segment of its connection.
    pub fn finish(&mut self, give: &mut dyn FnMut(u64, Piece<'_>)) {
        while let Some((ends, connection)) = self.connections.pop_expired(u64::MAX) {
            let last_ns = connection.last_ns;
            self.end(ends, connection, &mut |piece| give(last_ns, piece));
        }
    }

    /// Delivers the held bytes of a connection, with their gaps, and ends both directions.
    fn end(&mut self, ends: Ends, mut connection: Connection, give: Give<'_>) {
        for from in [connection.forward, 1 - connection.forward] {
            let number = connection.number;
            let forward = connection.forward == from;
            let direction = &mut connection.directions[from];
            if let Some(since) = direction.waits_since() {
                self.waiting.remove(&(since, number, ends, from));
            }
            self.held_bytes -= direction.held_bytes();
            let (ended, mut delivered) = (direction.is_over(), 0);
            let mut on = |missing, bytes: &[u8]| {
                delivered += bytes.len() as u64;
                give(Piece { connection: number, forward, missing, bytes });
            };
            while direction.waits_since().is_some() {
                direction.skip(u64::MAX, &mut self.counters, &mut on);
            }
            self.counters.delivered_bytes += delivered;
            if !ended && direction.has_begun() {
                give(Piece { connection: number, forward, missing: 0, bytes: &[] });
            }
        }
    }
}

#[cfg(test)]
mod tests;
