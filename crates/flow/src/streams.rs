//! TCP streams: the bytes of each direction of a connection, in order, once, with every loss
//! counted.
//!
//! A segment that is next in order is delivered at once, without a copy. A segment that arrives
//! early is held; where it overlaps held segments, the policy of the receiver's system decides
//! which bytes are kept ([`Policies`]). The stream waits for missing bytes until the direction or
//! all directions hold too much, or until a time limit; then the gap is skipped and counted. Time
//! is taken from the connection's own segments: as long as no limit is reached, a stream depends on
//! them alone, whatever other traffic there is. To let time pass without segments, call
//! [`Streams::expire`]. Sequence numbers wrap around; a connection without a captured beginning
//! begins with its first segment ([`Handling::midstream`]); keep-alives and retransmissions add
//! nothing. Nothing is sent, so missing bytes are never requested again.
//!
//! A flow has a small number while it is in the table ([`Flow`]), an index for the tables of readers
//! of its pieces. They may have seen enough of it: a direction that is [settled](Streams::settle) is not
//! put together any more, and its segments cost a look-up. Flows of UDP and others have numbers,
//! too, and no pieces ([`Streams::datagram`]).
//!
//! Memory: at most [`Limits`]; 145 bytes for a flow that waits for nothing. If the table is full,
//! flows that have ended are removed first, then those that have had one segment if they are more than
//! a quarter, then those that have been silent for longest. Cost:
//! one look-up per segment, O(log n) for an early segment. Source: RFC 9293; overlaps as in
//! Suricata's table.

mod direction;
mod limits;
mod policy;
mod segment;
mod table;
mod unusual;

pub use limits::{Counters, Handling, Limits};
pub use policy::{Policies, Policy, PolicyError};
pub use segment::Segment;

use crate::clock::Clock;
use direction::Direction;
use fyke_frame::walk::view::tcp_flags::{ACK, FIN, RST, SYN};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use table::{Ahead, Connection, Key, List, Table};

const TCP: u8 = 6;
/// Most connections.
const MOST: usize = 1 << 24;

/// Flow of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Number of the flow, from 1 and at most the most flows at a time; used again after the flow
    /// has been removed.
    pub number: u32,
    /// Number of the connection, from 1, never used again.
    pub connection: u64,
    /// True if the frame is from the end that sent the first captured segment.
    pub forward: bool,
}

/// A delivered piece of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Number of its flow ([`Flow::number`]).
    pub flow: u32,
    /// Number of the connection, from 1, never used again.
    pub connection: u64,
    /// True for the direction of the end that sent the first captured segment.
    pub forward: bool,
    /// Number of bytes missing just before it.
    pub missing: u64,
    /// Number of bytes of its direction before it, missing ones included.
    pub offset: u64,
    /// The bytes; empty at the end of the direction.
    pub bytes: &'a [u8],
}

/// Events of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece, or the end of a direction.
    Piece(Piece<'a>),
    /// A flow has been removed, and its number is free.
    Removed {
        /// Number of the flow.
        flow: u32,
        /// Number of its connection.
        connection: u64,
    },
}

/// All connections.
#[derive(Debug)]
pub struct Streams {
    limits: Limits,
    handling: Handling,
    table: Table,
    ahead: Ahead,
    /// Directions that hold bytes, with the time since which they wait: time, number of the
    /// connection, place in the table, direction.
    waiting: BTreeSet<(u64, u64, u32, usize)>,
    clock: Clock,
    held_bytes: usize,
    counters: Counters,
}

/// Receives pieces in order.
pub type Give<'g> = &'g mut dyn FnMut(Piece<'_>);
/// Receives missing bytes before a piece, its offset, and its bytes.
type GiveBytes<'g> = &'g mut dyn FnMut(u64, u64, &[u8]);
/// Receives events in order.
pub type On<'g> = &'g mut dyn FnMut(Event<'_>);

/// Receives the pieces among events.
fn pieces(give: Give<'_>) -> impl FnMut(Event<'_>) {
    move |event| {
        if let Event::Piece(piece) = event {
            give(piece);
        }
    }
}

impl Streams {
    /// A table without connections, with one policy for all receivers.
    pub fn new(limits: Limits, policy: Policy) -> Streams {
        Streams::with(limits, Handling { policies: policy.into(), ..Handling::default() })
    }

    /// A table without connections.
    pub fn with(limits: Limits, handling: Handling) -> Streams {
        let limits = Limits { connections: limits.connections.clamp(1, MOST), ..limits };
        Streams {
            limits,
            handling,
            table: Table::new(limits.connections),
            ahead: Ahead::default(),
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
        self.table.len()
    }

    /// True if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Counts a fragment.
    pub fn fragment(&mut self) {
        self.counters.fragments += 1;
    }

    /// Takes a segment; bytes that are now in order are passed to `give`. Returns its flow, if it has one.
    pub fn segment(
        &mut self,
        segment: &Segment<'_>,
        timestamp_ns: u64,
        give: Give<'_>,
    ) -> Option<Flow> {
        self.segment_events(segment, timestamp_ns, &mut pieces(give))
    }

    /// As [`segment`](Self::segment), also with the flows that are removed.
    pub fn segment_events(
        &mut self,
        segment: &Segment<'_>,
        timestamp_ns: u64,
        on: On<'_>,
    ) -> Option<Flow> {
        let near = self.ahead.step(&self.table);
        let (key, from) = Key::new(TCP, segment.source, segment.destination);
        self.counters.segments += u64::from(segment.payload_len > 0);
        let mut found = None;
        if let Some(known) = self.table.at_if(near, &key) {
            if known.is_unwanted(from, segment, timestamp_ns, self.limits.idle_ns) {
                known.note_segment(timestamp_ns);
                let forward = known.forward() == from;
                return Some(Flow { number: near + 1, connection: known.number, forward });
            }
            found = Some(near);
        }
        self.clock.advance(timestamp_ns);
        let found = found.or_else(|| self.table.find(self.table.hash(&key), &key));
        let (place, flow) = self.open((found, &key), from, segment, timestamp_ns, on)?;
        if segment.flags & (SYN | FIN | RST | ACK) != ACK && self.is_refused(place, from, segment) {
            self.counters.ignored += 1;
            return Some(flow);
        }
        let known = self.table.at_mut(place)?;
        if let Some(number) = segment.acknowledged
            && !known.heads[1 - from].is_settled()
            && known.heads[1 - from].learns_from(number)
            && self.learn(place, from, (segment, number), timestamp_ns, on)
        {
            return Some(flow);
        }
        let known = self.table.at_mut(place)?;
        if let Some(offset) = known.heads[from].take_next(segment) {
            if !segment.payload.is_empty() {
                self.counters.delivered_bytes += segment.payload.len() as u64;
                let Flow { number, connection, forward } = flow;
                let (missing, bytes) = (0, segment.payload);
                let piece = Piece { flow: number, connection, forward, missing, offset, bytes };
                on(Event::Piece(piece));
            }
            return Some(flow);
        }
        if known.heads[from].is_settled() {
            self.pass_settled(place, from, segment, on);
            return Some(flow);
        }
        if !known.heads[from].has_begun() {
            let policy = self.handling.policies.of(segment.destination);
            known.change(from, |direction| direction.set_policy(policy));
        }
        self.take(place, from, segment, timestamp_ns, on);
        Some(flow)
    }

    /// Takes a segment that is early, repeated, or a beginning or an end.
    fn take(&mut self, place: u32, from: usize, segment: &Segment<'_>, now_ns: u64, on: On<'_>) {
        let (bytes, segments) = (self.limits.direction_bytes, self.handling.direction_segments);
        if segment.flags & RST != 0 {
            // Its bytes are no part of the stream (RFC 9293, 3.5.3).
            self.counters.dropped_bytes += u64::from(segment.payload_len);
            self.reset(place, from, segment, on);
        } else {
            self.work(place, from, on, |direction, counters, handling, give| {
                direction.take(segment, now_ns, handling, counters, give);
                while direction.held_bytes() > bytes || direction.holds_more_than(segments) {
                    direction.skip(now_ns, counters, give);
                }
            });
        }
        self.note_end(place);
        self.make_room(now_ns, on);
    }

    /// Skips gaps until all directions hold no more than the limit.
    fn make_room(&mut self, now_ns: u64, on: On<'_>) {
        while self.held_bytes > self.limits.bytes
            && let Some(&(_, _, place, from)) = self.waiting.first()
        {
            self.skip(place, from, now_ns, on);
        }
    }

    /// The known flow of a segment that changes nothing, because its receiver ignores it.
    pub fn ignore(&mut self, segment: &Segment<'_>) -> Option<Flow> {
        self.counters.damaged += 1;
        let (key, from) = Key::new(TCP, segment.source, segment.destination);
        let place = self.table.find(self.table.hash(&key), &key)?;
        let known = self.table.at(place)?;
        let forward = known.forward() == from;
        Some(Flow { number: place + 1, connection: known.number, forward })
    }

    /// Counts a fragment that its receiver ignores.
    pub fn ignore_fragment(&mut self) {
        self.counters.damaged += 1;
    }

    /// Finds or makes the flow of a datagram of any protocol between these ends. The flow has no pieces.
    pub fn datagram(
        &mut self,
        protocol: u8,
        source: SocketAddr,
        destination: SocketAddr,
        timestamp_ns: u64,
        on: On<'_>,
    ) -> Flow {
        self.clock.advance(timestamp_ns);
        let (key, from) = Key::new(protocol, source, destination);
        let hash = self.table.hash(&key);
        if let Some(place) = self.table.find(hash, &key)
            && let Some(known) = self.table.at_mut(place)
        {
            if timestamp_ns.saturating_sub(known.last_ns) <= self.limits.idle_ns {
                known.note_segment(timestamp_ns);
                let is_new = known.list() == List::New;
                let forward = known.forward() == from;
                let flow = Flow { number: place + 1, connection: known.number, forward };
                if is_new {
                    self.table.renew(place, List::Open);
                }
                return flow;
            }
            self.end(place, on);
        }
        self.counters.datagram_flows += 1;
        let place = self.insert((hash, &key), from, timestamp_ns, on);
        Flow { number: place + 1, connection: self.number(), forward: true }
    }

    /// Offset of a segment's first byte in its direction, as [`Piece::offset`]; negative before the first byte.
    pub fn offset(&self, flow: Flow, segment: &Segment<'_>) -> Option<i64> {
        let known = self.table.at(flow.number.wrapping_sub(1))?;
        let first = known.forward();
        let from = if flow.forward { first } else { 1 - first };
        let syn = u32::from(segment.flags & SYN != 0);
        known.heads[from].offset_of(segment.sequence.wrapping_add(syn))
    }

    /// True if both directions of a flow have ended, or there is no such flow.
    pub fn is_over(&self, flow: u32) -> bool {
        let known = self.table.at(flow.wrapping_sub(1));
        known.is_none_or(Connection::is_over)
    }

    /// Removes a flow; held bytes after gaps are delivered. Does nothing if the flow has another connection now.
    pub fn remove(&mut self, flow: u32, connection: u64, give: Give<'_>) {
        let place = flow.wrapping_sub(1);
        if self.table.at(place).is_some_and(|known| known.number == connection) {
            self.end(place, &mut pieces(give));
        }
    }

    /// Ends the delivery of pieces of one direction of a flow, after `voters` calls for it: its readers have seen
    /// enough. Does nothing if the flow has another connection now, or without voters.
    pub fn settle(&mut self, flow: u32, connection: u64, forward: bool, voters: u8) {
        let place = flow.wrapping_sub(1);
        let Some(known) = self.table.at_mut(place) else { return };
        if known.number != connection || voters == 0 {
            return;
        }
        let first = known.forward();
        let from = if forward { first } else { 1 - first };
        let votes = &mut known.rests[from].votes;
        *votes = votes.saturating_add(1);
        if *votes < voters || known.heads[from].is_settled() {
            return;
        }
        known.heads[from].settle();
        self.counters.settled += 1;
        if let Some(since) = known.rests[from].waits_since() {
            self.waiting.remove(&(since, connection, place, from));
        }
        self.held_bytes -= known.rests[from].held_bytes();
        self.counters.dropped_bytes += known.change(from, |direction| direction.forget());
    }

    /// Tells which segments come next, at most as many as a batch has, so that their states are loaded while others are
    /// handled; returns how many of them. Worth its time if the table is larger than the cache.
    pub fn warm<'s>(&mut self, segments: impl Iterator<Item = Segment<'s>>) -> usize {
        let Streams { ahead, table, .. } = self;
        let key = |one: Segment<'_>| Key::new(TCP, one.source, one.destination).0;
        ahead.begin(table, segments.map(|one| table.hash(&key(one))))
    }

    /// Number of the last connection.
    fn number(&self) -> u64 {
        self.counters.connections + self.counters.datagram_flows
    }

    /// Returns the connection at the place where its key was found, or makes it; `None` if the segment is useless for
    /// a stream.
    fn open(
        &mut self,
        (found, key): (Option<u32>, &Key),
        from: usize,
        segment: &Segment<'_>,
        now_ns: u64,
        on: On<'_>,
    ) -> Option<(u32, Flow)> {
        let opens = segment.flags & (SYN | RST) == SYN;
        let mut answered = None;
        if let Some(place) = found
            && let Some(known) = self.table.at_mut(place)
        {
            let silent = now_ns.saturating_sub(known.last_ns) > self.limits.idle_ns;
            if opens {
                answered = unusual::answered(known, from, segment);
            }
            let renews = opens && (answered.is_some() || unusual::renews(known, from, segment));
            if renews && !silent && !self.handling.renewal {
                self.counters.ignored += 1;
                return None;
            }
            if !silent && !renews {
                known.note_segment(now_ns);
                let is_new = known.list() == List::New;
                let forward = known.forward() == from;
                let flow = Flow { number: place + 1, connection: known.number, forward };
                if known.heads.iter().any(|head| head.is_late()) {
                    self.skip_overdue(place, now_ns, on);
                }
                if is_new && self.table.at(place).is_some_and(|known| known.list() == List::New) {
                    self.table.renew(place, List::Open);
                }
                return Some((place, flow));
            }
            // The same ports, but a new connection.
            self.end(place, on);
        }
        let is_useless = segment.payload_len == 0 || segment.flags & (RST | ACK) != ACK;
        if !opens && (is_useless || !self.handling.midstream) {
            self.counters.ignored += u64::from(!is_useless);
            return None;
        }
        self.counters.connections += 1;
        self.counters.midstream += u64::from(!opens);
        let both_syn = segment.flags & (SYN | ACK) == SYN | ACK;
        let first = if both_syn { 1 - from } else { from };
        let place = self.insert((self.table.hash(key), key), first, now_ns, on);
        if let Some((number, known)) = answered.zip(self.table.at_mut(place)) {
            let policy = self.handling.policies.of(segment.source);
            known.heads[first].begin(number);
            known.change(first, |direction| direction.set_policy(policy));
        }
        Some((place, Flow { number: place + 1, connection: self.number(), forward: !both_syn }))
    }

    /// Adds a flow with the last number, after making room for it.
    fn insert(&mut self, (hash, key): (u32, &Key), first: usize, now_ns: u64, on: On<'_>) -> u32 {
        while self.table.len() >= self.limits.connections {
            self.evict(on);
        }
        let place = self.table.insert(hash, Connection::new(*key, self.number(), first, now_ns));
        self.counters.most_flows = self.counters.most_flows.max(self.table.len() as u64);
        place
    }

    /// Removes a flow that has ended, else one that has had one segment if these are many, else the oldest of those
    /// that have been silent since the last look at them.
    fn evict(&mut self, on: On<'_>) {
        if let Some(place) = self.table.oldest(List::Ended) {
            return self.end(place, on);
        }
        let are_many = self.table.len_of(List::New) > self.table.len() / 4;
        if let Some(place) = self.table.oldest(List::New)
            && (are_many || self.table.len_of(List::Open) == 0)
        {
            return self.end_early(place, on);
        }
        // Each flow is moved at most once, because that makes it inactive.
        while let Some(place) = self.table.oldest(List::Open) {
            let Some(oldest) = self.table.at(place) else { return };
            if oldest.is_active() {
                self.table.renew(place, List::Open);
                continue;
            }
            return self.end_early(place, on);
        }
    }

    /// Removes a flow for lack of room.
    fn end_early(&mut self, place: u32, on: On<'_>) {
        let Some(known) = self.table.at(place) else { return };
        let last = known.last_ns.saturating_add(self.limits.idle_ns);
        self.counters.evicted += u64::from(last >= self.clock.now_ns());
        self.end(place, on);
    }

    /// Skips gaps of a connection that have lasted too long.
    fn skip_overdue(&mut self, place: u32, now_ns: u64, on: On<'_>) {
        for from in [0, 1] {
            while let Some(known) = self.table.at(place)
                && let Some(since) = known.rests[from].waits_since()
                && now_ns.saturating_sub(since) > self.limits.gap_ns
            {
                self.skip(place, from, now_ns, on);
            }
        }
    }

    /// Runs an action on one direction, and updates the number of bytes that it holds.
    fn work(
        &mut self,
        place: u32,
        from: usize,
        on: On<'_>,
        act: impl FnOnce(&mut Direction<'_>, &mut Counters, &Handling, GiveBytes<'_>),
    ) {
        let Some(known) = self.table.at_mut(place) else { return };
        let (connection, forward) = (known.number, known.forward() == from);
        let (held, since) = (known.rests[from].held_bytes(), known.rests[from].waits_since());
        let ended = known.heads[from].is_over();
        let mut delivered = 0;
        let head =
            Piece { flow: place + 1, connection, forward, missing: 0, offset: 0, bytes: &[] };
        let mut give = |missing, offset, bytes: &[u8]| {
            delivered += bytes.len() as u64;
            if !bytes.is_empty() {
                on(Event::Piece(Piece { missing, offset, bytes, ..head }));
            }
        };
        let (counters, handling) = (&mut self.counters, &self.handling);
        known.change(from, |direction| act(direction, counters, handling, &mut give));
        self.counters.delivered_bytes += delivered;
        if known.heads[from].is_over() && !ended {
            on(Event::Piece(Piece { offset: known.heads[from].end(), ..head }));
        }
        self.held_bytes = self.held_bytes + known.rests[from].held_bytes() - held;
        let since_now = known.rests[from].waits_since();
        if since_now != since {
            since.map(|since| self.waiting.remove(&(since, connection, place, from)));
            since_now.map(|since| self.waiting.insert((since, connection, place, from)));
        }
    }

    /// Handles a segment of a settled direction: only its end matters.
    fn pass_settled(&mut self, place: u32, from: usize, segment: &Segment<'_>, on: On<'_>) {
        if segment.flags & (FIN | RST) == 0 {
            // The connection continues, so a SYN before was none of it.
            let known =
                self.table.at_mut(place).filter(|known| known.rests[from].rival().is_some());
            known.into_iter().for_each(|known| {
                known.change(from, |direction| direction.forget());
            });
            return;
        }
        let both = segment.flags & RST != 0;
        for direction in [0, 1].into_iter().filter(|direction| both || *direction == from) {
            self.close(place, direction, on);
        }
        self.note_end(place);
    }

    /// Handles a reset: it ends both directions if the receiver accepts it.
    fn reset(&mut self, place: u32, from: usize, segment: &Segment<'_>, on: On<'_>) {
        let Some(known) = self.table.at_mut(place) else { return };
        if known.change(from, |direction| direction.accepts_reset(segment.sequence)) {
            for direction in [0, 1] {
                self.close(place, direction, on);
            }
        }
    }

    /// Delivers the held bytes of a direction, with their gaps, and ends it: if the capture lacks a segment, its
    /// receiver may have read them before the connection ended.
    fn close(&mut self, place: u32, from: usize, on: On<'_>) {
        self.work(place, from, on, |direction, counters, _, give| {
            while direction.waits_since().is_some() {
                direction.skip(u64::MAX, counters, give);
            }
            counters.dropped_bytes += direction.abandon();
        });
    }

    /// Moves a connection to those that are removed first if both directions have ended.
    fn note_end(&mut self, place: u32) {
        let Some(known) = self.table.at(place) else { return };
        if known.list() != List::Ended && known.is_over() {
            self.table.renew(place, List::Ended);
        }
    }

    fn skip(&mut self, place: u32, from: usize, now_ns: u64, on: On<'_>) {
        self.work(place, from, on, |direction, counters, _, give| {
            direction.skip(now_ns, counters, give);
        });
        self.note_end(place);
    }

    /// Advances the time: skips gaps that have lasted too long, removes silent connections.
    pub fn expire(&mut self, now_ns: u64, give: Give<'_>) {
        self.expire_events(now_ns, &mut pieces(give));
    }

    /// As [`expire`](Self::expire), also with the flows that are removed.
    pub fn expire_events(&mut self, now_ns: u64, on: On<'_>) {
        while let Some(&(since, _, place, from)) = self.waiting.first()
            && now_ns.saturating_sub(since) > self.limits.gap_ns
        {
            self.skip(place, from, now_ns, on);
        }
        for list in List::ALL {
            while let Some(place) = self.table.oldest(list)
                && let Some(oldest) = self.table.at(place)
            {
                if oldest.last_ns.saturating_add(self.limits.idle_ns) < now_ns {
                    self.end(place, on);
                } else if oldest.is_active() {
                    self.table.renew(place, list);
                } else {
                    break;
                }
            }
        }
    }

    /// Ends all connections; held bytes after gaps are delivered. Gives each piece the time of the
    /// last segment of its connection.
    pub fn finish(&mut self, give: &mut dyn FnMut(u64, Piece<'_>)) {
        self.finish_events(&mut |time_ns, event| {
            if let Event::Piece(piece) = event {
                give(time_ns, piece);
            }
        });
    }

    /// As [`finish`](Self::finish), also with the flows that are removed.
    pub fn finish_events(&mut self, on: &mut dyn FnMut(u64, Event<'_>)) {
        for place in self.table.all() {
            let last_ns = self.table.at(place).map_or(0, |known| known.last_ns);
            self.end(place, &mut |event| on(last_ns, event));
        }
    }

    /// Delivers the held bytes of a connection, with their gaps, ends both directions and removes it.
    fn end(&mut self, place: u32, on: On<'_>) {
        let Some(known) = self.table.at(place) else { return };
        let (connection, first) = (known.number, known.forward());
        for from in [first, 1 - first] {
            let is_wanted = self
                .table
                .at(place)
                .map(|known| known.heads[from])
                .is_some_and(|head| head.has_begun() && !head.is_settled());
            self.work(place, from, on, |direction, counters, _, give| {
                while direction.waits_since().is_some() {
                    direction.skip(u64::MAX, counters, give);
                }
                if is_wanted {
                    direction.abandon();
                }
            });
        }
        self.table.remove(place);
        on(Event::Removed { flow: place + 1, connection });
    }
}

#[cfg(test)]
mod tests;
