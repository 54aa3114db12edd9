//! Expectations: the data connections that trackers wait for and follow, in one table with one clock.
//!
//! An expectation is an end that listens, perhaps the only other end, a protocol, a label, the call that it belongs to
//! and a lifetime. Trackers [announce](Expectations::expect) them, frames [arrive](Expectations::datagram) at them, and
//! each becomes an [`Event::Open`] and, later, one [`Event::Close`]; the [keeper](crate::keeper) turns these into rows
//! of the filter.
//!
//! | ends | when |
//! |---|---|
//! | TCP | FIN of both ends or RST, after a short time for the last segments |
//! | unused | nothing arrived in its lifetime; it and its call were silent |
//! | idle | it and its call were silent too long |
//! | cancelled | its call was [cancelled](Expectations::cancel), after a short time for the last frames |
//! | replaced | its call has announced [others instead](Expectations::replace), and it has been silent since |
//! | evicted | its call, its end or the table had no room for a newer one |
//!
//! Keyed by the listening end. TCP: a segment is matched by the connecting end if that is known, else by its address,
//! else the oldest announced connection takes it: the connecting end may differ from the announced one (address
//! translation, transfers between two servers). UDP: the other end must be an end that the call has announced, or, for
//! each listening end, one more host, which must appear within [`TAKE_OVER_NS`] of an announcement of the call: media
//! that address translation has changed. While only one end is announced, the other may be any host.
//!
//! Memory: at most [`Limits::data_connections`] and [`PER_CALL`] for a call, about 400 bytes each. Cost: one or two
//! hash look-ups per frame, O(expectations of the call) for the first datagram of a host.
//!
//! PERF: a datagram at an expected end reads a bucket of the table of ends and the 128 bytes of its slot,
//! nothing of the call: the last host that was allowed and the time of the last frame are in the slot. What only
//! announcements, first frames and the end read is in a box. `fyke bench calls --case frames` compares 100,000
//! expectations with 100.

mod ends;

use crate::segment::{FIN, RST, SYN, Segment};
use crate::{CallFrame, Closed, Connection, Event, Limits, Protocol, Reason};
use ends::{End, Ends, NONE};
use fyke_flow::AgeingSlots;
use fyke_frame::BATCH_CAPACITY;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Most connections of one listening end, so that a look-up stays short. The oldest one is removed.
const PER_ENDPOINT: usize = 16;

/// Most expectations of one call. The oldest one that has not arrived is removed, else the oldest.
pub const PER_CALL: usize = 64;

/// Time after an announcement of a call in which a host that is not announced may take over an end, in nanoseconds.
pub const TAKE_OVER_NS: u64 = 5_000_000_000;

/// Longest silence of a replaced expectation, in nanoseconds: the announcement that replaced it may be refused.
const REPLACED_NS: u64 = 5_000_000_000;

/// Most expectations of a table, whatever the limits are.
const MOST: usize = 1 << 20;

/// From this number of expectations on, the slots of frames that come next are loaded ahead: some 256 KiB.
const LOADED: usize = 2_048;

/// An announcement, for [`Expectations::expect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The expectation; its number is ignored.
    pub connection: Connection,
    /// Number of what announced it, within its call. TCP connections of one origin are alternatives: if one arrives,
    /// the others are closed. UDP ends of one origin are replaced together.
    pub origin: u64,
    /// Longest time until it arrives, in nanoseconds.
    pub lifetime_ns: u64,
    /// True if it lasts as long as other parts of its call are active.
    pub follows_call: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Announced,
    Open,
    Closing(Reason),
}

/// State that every frame reads or writes: with the deadline two lines of the cache.
#[derive(Debug)]
struct Data {
    end: End,
    stage: Stage,
    finished: [bool; 2],
    /// Host of the last datagram that was allowed.
    peer: Option<IpAddr>,
    /// The next expectation at the same end, or [`NONE`].
    next: u32,
    call: u64,
    label: &'static str,
    /// Time of the last frame.
    last_ns: u64,
    frame_count: u64,
    wire_bytes: u64,
    /// True if its call has announced others instead.
    replaced: bool,
    rest: Box<Rest>,
}

const _: () = assert!(size_of::<Data>() <= 104, "more than two lines with its deadline");

/// State that few frames read.
#[derive(Debug)]
struct Rest {
    connection: Connection,
    origin: u64,
    lifetime_ns: u64,
    follows_call: bool,
    client: Option<SocketAddr>,
    /// Host that took over: not announced, and heard in time.
    taken: Option<IpAddr>,
    from_syn: bool,
}

/// State that the expectations of a call share.
#[derive(Debug, Default)]
struct Call {
    slots: Vec<u32>,
    /// The host that listens, of each of them.
    hosts: Vec<IpAddr>,
    /// Time of the last announcement.
    announced_ns: u64,
    /// Time of the last announcement, or frame at an expectation that has ended.
    active_ns: u64,
    /// True if any host may be the other end.
    is_open: bool,
}

/// Result of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announcement {
    /// A new expectation of this number.
    New(u64),
    /// The call has announced it before, and it is still expected.
    Repeated(u64),
    /// No peer can listen there ([`is_refused`]).
    Refused,
}

impl Announcement {
    /// Number of the expectation, if there is one.
    pub fn id(self) -> Option<u64> {
        match self {
            Announcement::New(id) | Announcement::Repeated(id) => Some(id),
            Announcement::Refused => None,
        }
    }
}

/// True if an announced end is refused: addresses that no other host can reach (unspecified, loopback, broadcast), and
/// ports below 1,024, which belong to services: an announcement must not open the filter for these (RFC 2577, section
/// 3).
pub fn is_refused(end: SocketAddr) -> bool {
    let address = end.ip().to_canonical();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    end.port() < 1_024 || address.is_unspecified() || address.is_loopback() || is_broadcast
}

/// As [`is_refused`], for protocols with and without ports.
fn is_refused_of(protocol: Protocol, end: SocketAddr) -> bool {
    match protocol {
        Protocol::Gre => is_refused(SocketAddr::new(end.ip(), 1_024)),
        Protocol::Tcp | Protocol::Udp => is_refused(end),
    }
}

/// An expectation as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expected {
    /// The expectation, with its cause and its time.
    pub connection: Connection,
    /// True once a frame has arrived.
    pub arrived: bool,
    /// True if it ends soon.
    pub closing: bool,
    /// Frames so far.
    pub frame_count: u64,
    /// Total length of these frames on the wire.
    pub wire_bytes: u64,
}

/// Expectation to which a frame belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Number of its call.
    pub call: u64,
    /// Its label.
    pub label: &'static str,
}

impl Hit {
    /// The part of the frame in its call.
    pub fn in_call(self) -> CallFrame {
        CallFrame { call: self.call, label: Some(self.label) }
    }
}

/// The table.
#[derive(Debug)]
pub struct Expectations {
    limits: Limits,
    table: AgeingSlots<Data>,
    ends: Ends,
    calls: HashMap<u64, Call>,
    next_id: u64,
    foreign_frames: u64,
    refused: u64,
    evicted: u64,
}

impl Expectations {
    /// A table without expectations.
    pub fn new(limits: Limits) -> Self {
        let most = limits.data_connections.min(MOST);
        let (table, ends) = (AgeingSlots::new(most), Ends::new(most));
        Expectations {
            limits,
            table,
            ends,
            calls: HashMap::new(),
            next_id: 1,
            foreign_frames: 0,
            refused: 0,
            evicted: 0,
        }
    }

    /// Number of expectations, with those that have arrived.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Number of datagrams at an announced end from or to a host that was neither announced nor could take over.
    pub fn foreign_frames(&self) -> u64 {
        self.foreign_frames
    }

    /// Numbers of what the limits refused, by the names of [`NOTICES`](crate::NOTICES).
    pub fn notices(&self) -> Vec<(&'static str, u64)> {
        vec![("refused_ends", self.refused), ("evicted", self.evicted)]
    }

    /// The expectations, in no order.
    pub fn list(&self) -> impl Iterator<Item = Expected> + '_ {
        self.table.values().map(Data::listed)
    }

    /// The expectations at a listening end, oldest first.
    pub fn at(&self, protocol: Protocol, end: SocketAddr) -> impl Iterator<Item = Expected> + '_ {
        self.ends.at(&self.table, &End::new(protocol, end)).map(|(_, data)| data.listed())
    }

    /// True if a call still expects or follows something.
    pub fn has_call(&self, call: u64) -> bool {
        self.calls.contains_key(&call)
    }

    /// Adds an expectation, or prolongs it if the call has announced it before.
    pub fn expect(&mut self, wanted: Wanted, events: &mut Vec<Event>) -> Announcement {
        let connection = wanted.connection;
        let (call, now_ns) = (connection.call, connection.announced_ns);
        if is_refused_of(connection.protocol, SocketAddr::new(connection.server, connection.port)) {
            self.refused += 1;
            return Announcement::Refused;
        }
        let deadline = now_ns.saturating_add(wanted.lifetime_ns);
        if let Some(known) = self.calls.get_mut(&call) {
            known.announced_ns = now_ns;
            known.active_ns = known.active_ns.max(now_ns);
        }
        if let Some(slot) = self.known(&connection)
            && let Some(data) = self.table.touch(slot, deadline)
        {
            let arrived = data.frame_count > 0;
            data.stage = if arrived { Stage::Open } else { Stage::Announced };
            (data.peer, data.replaced) = (None, false);
            (data.rest.origin, data.rest.taken) = (wanted.origin, None);
            data.rest.follows_call = wanted.follows_call;
            return Announcement::Repeated(data.rest.connection.id);
        }
        self.make_room(&connection, events);
        let id = self.next_id;
        self.next_id += 1;
        let connection = Connection { id, ..connection };
        let data = Data {
            end: End::of(&connection),
            stage: Stage::Announced,
            finished: [false; 2],
            peer: None,
            next: NONE,
            call,
            label: connection.label,
            last_ns: now_ns,
            frame_count: 0,
            wire_bytes: 0,
            replaced: false,
            rest: Box::new(Rest {
                connection,
                origin: wanted.origin,
                lifetime_ns: wanted.lifetime_ns,
                follows_call: wanted.follows_call,
                client: None,
                taken: None,
                from_syn: false,
            }),
        };
        // There is room, so this cannot be refused.
        if let Ok(slot) = self.table.insert(data, deadline) {
            self.ends.insert(&mut self.table, slot, &End::of(&connection));
            let parent = self.calls.entry(call).or_default();
            parent.slots.push(slot);
            parent.hosts.push(connection.server);
            (parent.announced_ns, parent.active_ns) = (now_ns, now_ns);
            events.push(Event::Open(connection));
        }
        Announcement::New(id)
    }

    /// The same expectation of the same call: for TCP one that waits, because an open connection does not take another
    /// one.
    fn known(&self, connection: &Connection) -> Option<u32> {
        let same = |data: &Data| {
            data.call == connection.call
                && data.rest.connection.only_host() == connection.only_host()
                && (connection.protocol != Protocol::Tcp || data.stage == Stage::Announced)
        };
        let mut known = self.ends.at(&self.table, &End::of(connection));
        known.find(|(_, data)| same(data)).map(|(slot, _)| slot)
    }

    /// Removes older expectations where a new one has no room.
    fn make_room(&mut self, connection: &Connection, events: &mut Vec<Event>) {
        let end = End::of(connection);
        if self.ends.at(&self.table, &end).count() >= PER_ENDPOINT {
            self.close(self.ends.first(&self.table, &end), Reason::Evicted, events);
        }
        let slots = self.slots_of(connection.call);
        if slots.len() >= PER_CALL {
            let waits =
                |slot: &&u32| self.table.get(**slot).is_some_and(|data| data.frame_count == 0);
            let oldest = slots.iter().find(waits).or(slots.first()).copied();
            oldest.into_iter().for_each(|slot| self.close(slot, Reason::Evicted, events));
        }
        if self.table.is_full()
            && let Some(slot) = self.table.first_due(u64::MAX)
        {
            self.close(slot, Reason::Evicted, events);
        }
    }

    fn slots_of(&self, call: u64) -> &[u32] {
        self.calls.get(&call).map_or(&[], |call| &call.slots)
    }

    /// Prolongs everything that a call expects: its signalling is active.
    pub fn refresh(&mut self, call: u64, now_ns: u64) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.active_ns = call.active_ns.max(now_ns);
        }
    }

    /// Lets any host be the other end of what a call expects, at any time.
    pub fn admit_all(&mut self, call: u64) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.is_open = true;
        }
    }

    /// Ends everything that a call expects, `linger_ns` from now.
    pub fn cancel(&mut self, call: u64, now_ns: u64, linger_ns: u64) {
        let slots = self.calls.get(&call).map_or(&[][..], |call| &call.slots);
        for &slot in slots {
            let Some(data) = self.table.touch(slot, now_ns.saturating_add(linger_ns)) else {
                continue;
            };
            if !matches!(data.stage, Stage::Closing(_)) {
                let arrived = data.frame_count > 0;
                let reason = if arrived { Reason::Finished } else { Reason::Unused };
                data.stage = Stage::Closing(reason);
            }
        }
    }

    /// Takes a [`cancel`](Self::cancel) back: the call continues.
    pub fn resume(&mut self, call: u64, now_ns: u64) {
        let slots = self.calls.get(&call).map_or(&[][..], |call| &call.slots);
        for &slot in slots {
            let Some(data) = self.table.get_mut(slot) else { continue };
            if data.end.protocol() == Protocol::Tcp || !matches!(data.stage, Stage::Closing(_)) {
                continue;
            }
            data.stage = if data.frame_count > 0 { Stage::Open } else { Stage::Announced };
            let deadline = now_ns.saturating_add(data.patience_ns(&self.limits));
            self.table.touch(slot, deadline);
        }
    }

    /// Ends the expectations of an origin of a call that are not among `kept`, once they are silent.
    pub fn replace(&mut self, call: u64, origin: u64, kept: &[u64], now_ns: u64) {
        let slots = self.calls.get(&call).map_or(&[][..], |call| &call.slots);
        for &slot in slots {
            let replaced = |data: &Data| {
                let Rest { connection, origin: of, follows_call, .. } = &*data.rest;
                *of == origin && *follows_call && !kept.contains(&connection.id)
            };
            if !self.table.get(slot).is_some_and(replaced) {
                continue;
            }
            if let Some(data) = self.table.touch(slot, now_ns.saturating_add(REPLACED_NS)) {
                (data.rest.follows_call, data.replaced) = (false, true);
            }
        }
    }

    /// Takes a TCP segment: `None` if it belongs to no expectation.
    pub fn segment(
        &mut self,
        segment: &Segment,
        wire_len: u32,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) -> Option<Hit> {
        let (source, destination) = (segment.source, segment.destination);
        let to_listener = self.find(destination, source, segment.flags);
        let slot = to_listener.or_else(|| self.find(source, destination, segment.flags))?;
        let client = if to_listener.is_none() { destination } else { source };
        let arrived = Arrived {
            flags: segment.flags,
            client,
            from_listener: to_listener.is_none(),
            wire_len,
        };
        self.advance(slot, arrived, now_ns, events)
    }

    /// Takes a datagram: `None` if it belongs to no expectation.
    pub fn datagram(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        wire_len: u32,
        now_ns: u64,
    ) -> Option<Hit> {
        self.packet(Protocol::Udp, source, destination, wire_len, now_ns)
    }

    /// Takes a packet of a protocol without connections; the ports are 0 if it has none. `None` if it belongs to no
    /// expectation.
    pub fn packet(
        &mut self,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        wire_len: u32,
        now_ns: u64,
    ) -> Option<Hit> {
        if self.table.is_empty() {
            return None;
        }
        let to_listener = self.claim(protocol, destination, source.ip(), now_ns);
        let claimed = match to_listener {
            Claim::Of(slot) => Claim::Of(slot),
            other => match self.claim(protocol, source, destination.ip(), now_ns) {
                Claim::None => other,
                claim => claim,
            },
        };
        let from_listener = !matches!(to_listener, Claim::Of(_));
        let Claim::Of(slot) = claimed else {
            self.foreign_frames += u64::from(matches!(claimed, Claim::Foreign));
            return None;
        };
        let other = if from_listener { destination } else { source };
        let arrived = Arrived { flags: 0, client: other, from_listener, wire_len };
        self.advance(slot, arrived, now_ns, &mut Vec::new())
    }

    /// Loads what packets between these ends will read, so that they do not wait for memory one after the other. With
    /// few expectations everything is in the cache anyway.
    pub fn load(&self, packets: impl Iterator<Item = (Protocol, SocketAddr, SocketAddr)>) {
        if self.table.len() < LOADED {
            return;
        }
        let (mut hashes, mut count) = ([[0; 2]; BATCH_CAPACITY], 0);
        for (hash, (protocol, source, destination)) in hashes.iter_mut().zip(packets) {
            *hash = [destination, source].map(|end| self.ends.load(&End::new(protocol, end)));
            count += 1;
        }
        let slots = hashes.map(|[destination, source]| {
            match self.ends.load_slot(&self.table, destination) {
                NONE => self.ends.load_slot(&self.table, source),
                slot => slot,
            }
        });
        slots[..count].iter().for_each(|slot| self.ends.load_rest(&self.table, *slot));
    }

    /// The expectation at a listening end that takes a packet of another host.
    fn claim(
        &mut self,
        protocol: Protocol,
        listener: SocketAddr,
        other: IpAddr,
        now_ns: u64,
    ) -> Claim {
        let first = self.ends.first(&self.table, &End::new(protocol, listener));
        if first == NONE {
            return Claim::None;
        }
        let (mut found, mut taker, mut next) = (None, None, first);
        while let Some(data) = self.table.get(next) {
            let slot = std::mem::replace(&mut next, data.next);
            if data.peer == Some(other) {
                return Claim::Of(slot);
            }
            if let Some(host) = data.rest.connection.only_host() {
                if same_host(host, other) {
                    return Claim::Of(slot);
                }
                continue;
            }
            let Some(call) = self.calls.get(&data.call) else { continue };
            if call.is_open
                || data.rest.taken.is_some_and(|host| same_host(host, other))
                || call.hosts.iter().any(|host| same_host(*host, other))
            {
                found = Some(slot);
                break;
            }
            let in_time = now_ns <= call.announced_ns.saturating_add(TAKE_OVER_NS);
            let alone = call.hosts.iter().all(|host| same_host(*host, listener.ip()));
            if data.rest.taken.is_none() && (in_time || alone) {
                taker = taker.or(Some(slot));
            }
        }
        let Some(slot) = found.or(taker) else { return Claim::Foreign };
        if let Some(data) = self.table.get_mut(slot) {
            data.peer = Some(other);
            if found.is_none() {
                data.rest.taken = Some(other);
            }
        }
        Claim::Of(slot)
    }

    /// Closes expectations that have been silent too long.
    pub fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        while let Some(slot) = self.table.first_due(now_ns) {
            let Some(data) = self.table.get(slot) else { return };
            let reason = match data.stage {
                Stage::Announced => Reason::Unused,
                Stage::Open => Reason::Idle,
                Stage::Closing(reason) => reason,
            };
            let lasts = data.rest.follows_call && !matches!(data.stage, Stage::Closing(_));
            let active = if lasts { self.active_ns(data.call) } else { 0 };
            let until = active.saturating_add(data.patience_ns(&self.limits));
            // At the end of a capture, the time is the largest there is.
            if lasts && until > now_ns && now_ns != u64::MAX {
                self.table.touch(slot, until);
                continue;
            }
            self.close(slot, reason, events);
        }
    }

    /// Time of the last announcement or frame of a call.
    fn active_ns(&self, call: u64) -> u64 {
        let Some(call) = self.calls.get(&call) else { return 0 };
        let data = call.slots.iter().filter_map(|slot| self.table.get(*slot));
        data.map(|data| data.last_ns).fold(call.active_ns, u64::max)
    }

    fn find(&self, listener: SocketAddr, client: SocketAddr, flags: u8) -> Option<u32> {
        let end = End::new(Protocol::Tcp, listener);
        let each = || self.ends.at(&self.table, &end);
        let known = each().find(|(_, data)| data.rest.client == Some(client));
        let reopened = |data: &Data| matches!(data.stage, Stage::Closing(_)) && flags & SYN != 0;
        if let Some((slot, _)) = known.filter(|(_, data)| !reopened(data)) {
            return Some(slot);
        }
        if flags & RST != 0 {
            return known.map(|(slot, _)| slot);
        }
        let waiting = || each().filter(|(_, data)| data.stage == Stage::Announced);
        waiting()
            .find(|(_, data)| same_host(data.rest.connection.client, client.ip()))
            .or_else(|| waiting().next())
            .or(known)
            .map(|(slot, _)| slot)
    }

    fn advance(
        &mut self,
        slot: u32,
        arrived: Arrived,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) -> Option<Hit> {
        let Arrived { flags, client, from_listener, wire_len } = arrived;
        let data = self.table.get_mut(slot)?;
        data.frame_count += 1;
        data.last_ns = data.last_ns.max(now_ns);
        data.wire_bytes += u64::from(wire_len);
        let opened = data.stage == Stage::Announced;
        if opened {
            data.stage = Stage::Open;
            data.rest.client = Some(client);
            data.rest.from_syn = flags & SYN != 0 && !from_listener;
        }
        data.finished[usize::from(from_listener)] |= flags & FIN != 0;
        let was_closing = matches!(data.stage, Stage::Closing(_));
        if data.stage == Stage::Open {
            if flags & RST != 0 {
                data.stage = Stage::Closing(Reason::Reset);
            } else if data.finished == [true; 2] {
                data.stage = Stage::Closing(Reason::Finished);
            }
        }
        let (stage, protocol) = (data.stage, data.end.protocol());
        let patience = match stage {
            Stage::Closing(_) => self.limits.linger_ns,
            Stage::Open | Stage::Announced => data.idle_ns(&self.limits),
        };
        let hit = Hit { call: data.call, label: data.label };
        let opened = match opened && protocol == Protocol::Tcp {
            true => Some((data.rest.connection, data.rest.origin)),
            false => None,
        };
        // A cancelled UDP end keeps its deadline: the sender may never stop.
        if protocol == Protocol::Tcp || !was_closing {
            self.table.touch(slot, now_ns.saturating_add(patience));
        }
        if let Some((connection, origin)) = opened {
            self.drop_alternatives(&connection, origin, events);
        }
        if matches!(stage, Stage::Closing(_)) && self.limits.linger_ns == 0 {
            self.expire(now_ns, events);
        }
        Some(hit)
    }

    /// Removes the alternatives of a connection that arrived at this address.
    fn drop_alternatives(&mut self, of: &Connection, origin: u64, events: &mut Vec<Event>) {
        let alternative = |slot: &u32| {
            self.table.get(*slot).is_some_and(|data| {
                // Alternatives are announced together, so their numbers are adjacent.
                data.rest.connection.id.abs_diff(of.id) == 1
                    && data.end.protocol() == Protocol::Tcp
                    && data.rest.origin == origin
                    && data.stage == Stage::Announced
            })
        };
        let slots: Vec<u32> = self.slots_of(of.call).iter().copied().filter(alternative).collect();
        slots.into_iter().for_each(|slot| self.close(slot, Reason::OtherAddress, events));
    }

    fn close(&mut self, slot: u32, reason: Reason, events: &mut Vec<Event>) {
        self.ends.remove(&mut self.table, slot);
        let Some(data) = self.table.remove(slot) else { return };
        let call = data.call;
        if let Some(known) = self.calls.get_mut(&call) {
            if let Some(at) = known.slots.iter().position(|&other| other == slot) {
                known.slots.remove(at);
                known.hosts.remove(at);
            }
            known.active_ns = known.active_ns.max(data.last_ns);
            // The call has a host less, so what it allowed may be over.
            for sibling in &known.slots {
                if let Some(data) = self.table.get_mut(*sibling) {
                    data.peer = None;
                }
            }
            if known.slots.is_empty() {
                self.calls.remove(&call);
            }
        }
        let reason = match data.stage {
            Stage::Closing(reason) => reason,
            Stage::Announced | Stage::Open => reason,
        };
        self.evicted += u64::from(reason == Reason::Evicted);
        events.push(Event::Close(Closed {
            connection: data.rest.connection,
            reason,
            client_port: data.rest.client.map(|client| client.port()),
            frame_count: data.frame_count,
            wire_bytes: data.wire_bytes,
            from_syn: data.rest.from_syn,
        }));
    }
}

impl Data {
    fn listed(&self) -> Expected {
        Expected {
            connection: self.rest.connection,
            arrived: self.frame_count > 0,
            closing: matches!(self.stage, Stage::Closing(_)),
            frame_count: self.frame_count,
            wire_bytes: self.wire_bytes,
        }
    }

    /// Longest silence in its stage.
    fn patience_ns(&self, limits: &Limits) -> u64 {
        match self.stage {
            Stage::Announced => self.rest.lifetime_ns,
            Stage::Open | Stage::Closing(_) => self.idle_ns(limits),
        }
    }

    /// Longest silence after its first frame.
    fn idle_ns(&self, limits: &Limits) -> u64 {
        if self.replaced { REPLACED_NS } else { limits.idle_ns }
    }
}

/// A frame at an expectation.
struct Arrived {
    flags: u8,
    client: SocketAddr,
    from_listener: bool,
    wire_len: u32,
}

/// Result of the search for a datagram's expectation.
#[derive(Clone, Copy)]
enum Claim {
    /// Nothing is expected at this end.
    None,
    /// The other end is not one that the call knows.
    Foreign,
    Of(u32),
}

fn same_host(left: IpAddr, right: IpAddr) -> bool {
    left.to_canonical() == right.to_canonical()
}

#[cfg(test)]
mod tests;
