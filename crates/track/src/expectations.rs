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
//! Memory: at most [`Limits::data_connections`] and [`PER_CALL`] for a call, about 300 bytes each. Cost: one or two
//! hash look-ups per frame, O(expectations of the call) for the first datagram of an unknown host.

use crate::segment::{FIN, RST, SYN, Segment};
use crate::{CallFrame, Closed, Connection, Event, Limits, Protocol, Reason};
use fyke_flow::Ageing;
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

#[derive(Debug)]
struct Data {
    connection: Connection,
    origin: u64,
    stage: Stage,
    lifetime_ns: u64,
    idle_ns: u64,
    follows_call: bool,
    client: Option<SocketAddr>,
    /// Host that took over: not announced, and heard in time.
    taken: Option<IpAddr>,
    finished: [bool; 2],
    frame_count: u64,
    wire_bytes: u64,
    from_syn: bool,
}

/// State that the expectations of a call share.
#[derive(Debug, Default)]
struct Call {
    ids: Vec<u64>,
    /// The host that listens, of each of them.
    hosts: Vec<IpAddr>,
    /// Time of the last announcement.
    announced_ns: u64,
    /// Time of the last announcement or frame.
    active_ns: u64,
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
    /// Number of the expectation.
    pub id: u64,
    /// Number of its call.
    pub call: u64,
    /// Its label.
    pub label: &'static str,
    /// True if it was the first frame.
    pub first: bool,
}

impl Hit {
    /// The part of the frame in its call.
    pub fn in_call(self) -> CallFrame {
        CallFrame { call: self.call, label: Some(self.label) }
    }
}

type End = (Protocol, SocketAddr);

/// The table.
#[derive(Debug)]
pub struct Expectations {
    limits: Limits,
    table: Ageing<u64, Data>,
    ends: HashMap<End, Vec<u64>>,
    calls: HashMap<u64, Call>,
    next_id: u64,
    foreign_frames: u64,
    refused: u64,
    evicted: u64,
}

impl Expectations {
    /// A table without expectations.
    pub fn new(limits: Limits) -> Self {
        let table = Ageing::new(limits.data_connections);
        let (ends, calls) = (HashMap::new(), HashMap::new());
        Expectations {
            limits,
            table,
            ends,
            calls,
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
        let ids = self.calls.values().flat_map(|call| &call.ids);
        ids.filter_map(|id| self.table.peek(id)).map(Data::listed)
    }

    /// The expectations at a listening end, oldest first.
    pub fn at(&self, protocol: Protocol, end: SocketAddr) -> impl Iterator<Item = Expected> + '_ {
        let ids = self.ends.get(&(protocol, end)).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| self.table.peek(id)).map(Data::listed)
    }

    /// True if a call still expects or follows something.
    pub fn has_call(&self, call: u64) -> bool {
        self.calls.contains_key(&call)
    }

    /// Adds an expectation, or prolongs it if the call has announced it before.
    pub fn expect(&mut self, wanted: Wanted, events: &mut Vec<Event>) -> Announcement {
        let connection = wanted.connection;
        let (call, now_ns) = (connection.call, connection.announced_ns);
        if is_refused_of(connection.protocol, end(&connection).1) {
            self.refused += 1;
            return Announcement::Refused;
        }
        let deadline = now_ns.saturating_add(wanted.lifetime_ns);
        if let Some(known) = self.calls.get_mut(&call) {
            known.announced_ns = now_ns;
            known.active_ns = known.active_ns.max(now_ns);
        }
        if let Some(id) = self.known(&connection) {
            let Some(data) = self.table.touch(&id, deadline) else {
                return Announcement::Repeated(id);
            };
            let arrived = data.frame_count > 0;
            data.stage = if arrived { Stage::Open } else { Stage::Announced };
            (data.origin, data.taken) = (wanted.origin, None);
            data.idle_ns = self.limits.idle_ns;
            data.follows_call = wanted.follows_call;
            return Announcement::Repeated(id);
        }
        self.make_room(&connection, events);
        let id = self.next_id;
        self.next_id += 1;
        let connection = Connection { id, ..connection };
        let data = Data {
            connection,
            origin: wanted.origin,
            stage: Stage::Announced,
            lifetime_ns: wanted.lifetime_ns,
            idle_ns: self.limits.idle_ns,
            follows_call: wanted.follows_call,
            client: None,
            taken: None,
            finished: [false; 2],
            frame_count: 0,
            wire_bytes: 0,
            from_syn: false,
        };
        // There is room, so this cannot be refused.
        if self.table.try_insert(id, data, deadline).is_ok() {
            self.ends.entry(end(&connection)).or_default().push(id);
            let parent = self.calls.entry(call).or_default();
            parent.ids.push(id);
            parent.hosts.push(connection.server);
            (parent.announced_ns, parent.active_ns) = (now_ns, now_ns);
            events.push(Event::Open(connection));
        }
        Announcement::New(id)
    }

    /// The number of the same expectation of the same call: for TCP one that waits, because an open connection does not
    /// take another one.
    fn known(&self, connection: &Connection) -> Option<u64> {
        let ids = self.ends.get(&end(connection))?;
        ids.iter().copied().find(|id| {
            self.table.peek(id).is_some_and(|data| {
                data.connection.call == connection.call
                    && data.connection.only_host() == connection.only_host()
                    && (connection.protocol != Protocol::Tcp || data.stage == Stage::Announced)
            })
        })
    }

    /// Removes older expectations where a new one has no room.
    fn make_room(&mut self, connection: &Connection, events: &mut Vec<Event>) {
        let ids = self.ends.get(&end(connection)).map_or(&[][..], Vec::as_slice);
        if let Some(&oldest) = ids.first().filter(|_| ids.len() >= PER_ENDPOINT) {
            self.close(oldest, Reason::Evicted, events);
        }
        let ids = self.calls.get(&connection.call).map_or(&[][..], |call| &call.ids);
        if ids.len() >= PER_CALL {
            let waits = |id: &&u64| self.table.peek(id).is_some_and(|data| data.frame_count == 0);
            let oldest = ids.iter().find(waits).or(ids.first()).copied();
            oldest.into_iter().for_each(|id| self.close(id, Reason::Evicted, events));
        }
        if self.table.is_full()
            && let Some((id, data)) = self.table.pop_oldest()
        {
            self.forget(id, &data, Reason::Evicted, events);
        }
    }

    /// Prolongs everything that a call expects: its signalling is active.
    pub fn refresh(&mut self, call: u64, now_ns: u64) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.active_ns = call.active_ns.max(now_ns);
        }
    }

    /// Ends everything that a call expects, `linger_ns` from now.
    pub fn cancel(&mut self, call: u64, now_ns: u64, linger_ns: u64) {
        let ids = self.calls.get(&call).map_or(&[][..], |call| &call.ids);
        for id in ids {
            let Some(data) = self.table.touch(id, now_ns.saturating_add(linger_ns)) else {
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
        let ids = self.calls.get(&call).map_or(&[][..], |call| &call.ids);
        for id in ids {
            let Some(data) = self.table.peek_mut(id) else { continue };
            if data.connection.protocol == Protocol::Tcp || !matches!(data.stage, Stage::Closing(_))
            {
                continue;
            }
            data.stage = if data.frame_count > 0 { Stage::Open } else { Stage::Announced };
            let deadline = now_ns.saturating_add(data.patience_ns());
            self.table.touch(id, deadline);
        }
    }

    /// Ends the expectations of an origin of a call that are not among `kept`, once they are silent.
    pub fn replace(&mut self, call: u64, origin: u64, kept: &[u64], now_ns: u64) {
        let ids = self.calls.get(&call).map_or(&[][..], |call| &call.ids);
        for id in ids.iter().filter(|id| !kept.contains(id)) {
            let replaced = |data: &Data| data.origin == origin && data.follows_call;
            if !self.table.peek(id).is_some_and(replaced) {
                continue;
            }
            if let Some(data) = self.table.touch(id, now_ns.saturating_add(REPLACED_NS)) {
                (data.follows_call, data.idle_ns) = (false, REPLACED_NS);
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
        let id = to_listener.or_else(|| self.find(source, destination, segment.flags))?;
        let client = if to_listener.is_none() { destination } else { source };
        let arrived = Arrived {
            flags: segment.flags,
            client,
            from_listener: to_listener.is_none(),
            wire_len,
        };
        self.advance(id, arrived, now_ns, events)
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
            Claim::Of(id) => Claim::Of(id),
            other => match self.claim(protocol, source, destination.ip(), now_ns) {
                Claim::None => other,
                claim => claim,
            },
        };
        let from_listener = !matches!(to_listener, Claim::Of(_));
        let Claim::Of(id) = claimed else {
            self.foreign_frames += u64::from(matches!(claimed, Claim::Foreign));
            return None;
        };
        let other = if from_listener { destination } else { source };
        let arrived = Arrived { flags: 0, client: other, from_listener, wire_len };
        self.advance(id, arrived, now_ns, &mut Vec::new())
    }

    /// The expectation at a listening end that takes a packet of another host.
    fn claim(
        &mut self,
        protocol: Protocol,
        listener: SocketAddr,
        other: IpAddr,
        now_ns: u64,
    ) -> Claim {
        let Some(ids) = self.ends.get(&(protocol, listener)) else { return Claim::None };
        let mut taker = None;
        for id in ids {
            let Some(data) = self.table.peek(id) else { continue };
            let Some(call) = self.calls.get(&data.connection.call) else { continue };
            if let Some(host) = data.connection.only_host() {
                match same_host(host, other) {
                    true => return Claim::Of(*id),
                    false => continue,
                }
            }
            if data.taken.is_some_and(|host| same_host(host, other))
                || call.hosts.iter().any(|host| same_host(*host, other))
            {
                return Claim::Of(*id);
            }
            let in_time = now_ns <= call.announced_ns.saturating_add(TAKE_OVER_NS);
            let alone = call.hosts.iter().all(|host| same_host(*host, listener.ip()));
            if data.taken.is_none() && (in_time || alone) {
                taker = taker.or(Some(*id));
            }
        }
        let Some(id) = taker else { return Claim::Foreign };
        if let Some(data) = self.table.peek_mut(&id) {
            data.taken = Some(other);
        }
        Claim::Of(id)
    }

    /// Closes expectations that have been silent too long.
    pub fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        while let Some((id, data)) = self.table.pop_due(now_ns) {
            let reason = match data.stage {
                Stage::Announced => Reason::Unused,
                Stage::Open => Reason::Idle,
                Stage::Closing(reason) => reason,
            };
            let active = self.calls.get(&data.connection.call).map_or(0, |call| call.active_ns);
            let until = active.saturating_add(data.patience_ns());
            let lasts = data.follows_call && !matches!(data.stage, Stage::Closing(_));
            // At the end of a capture, the time is the largest there is.
            if lasts && until > now_ns && now_ns != u64::MAX {
                // It has just been removed, so there is room.
                let _ = self.table.try_insert(id, data, until);
                continue;
            }
            self.forget(id, &data, reason, events);
        }
    }

    fn find(&self, listener: SocketAddr, client: SocketAddr, flags: u8) -> Option<u64> {
        let ids = self.ends.get(&(Protocol::Tcp, listener))?;
        let each = || ids.iter().filter_map(|id| Some((*id, self.table.peek(id)?)));
        let known = each().find(|(_, data)| data.client == Some(client));
        let reopened = |data: &Data| matches!(data.stage, Stage::Closing(_)) && flags & SYN != 0;
        if let Some((id, _)) = known.filter(|(_, data)| !reopened(data)) {
            return Some(id);
        }
        if flags & RST != 0 {
            return known.map(|(id, _)| id);
        }
        let waiting = || each().filter(|(_, data)| data.stage == Stage::Announced);
        waiting()
            .find(|(_, data)| same_host(data.connection.client, client.ip()))
            .or_else(|| waiting().next())
            .or(known)
            .map(|(id, _)| id)
    }

    fn advance(
        &mut self,
        id: u64,
        arrived: Arrived,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) -> Option<Hit> {
        let Arrived { flags, client, from_listener, wire_len } = arrived;
        let data = self.table.peek_mut(&id)?;
        data.frame_count += 1;
        data.wire_bytes += u64::from(wire_len);
        let opened = data.stage == Stage::Announced;
        if opened {
            data.stage = Stage::Open;
            data.client = Some(client);
            data.from_syn = flags & SYN != 0 && !from_listener;
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
        let (origin, stage, connection) = (data.origin, data.stage, data.connection);
        let patience = match stage {
            Stage::Closing(_) => self.limits.linger_ns,
            Stage::Open | Stage::Announced => data.idle_ns,
        };
        let hit = Hit {
            id,
            call: connection.call,
            label: connection.label,
            first: data.frame_count == 1,
        };
        // A cancelled UDP end keeps its deadline: the sender may never stop.
        if connection.protocol == Protocol::Tcp || !was_closing {
            self.table.touch(&id, now_ns.saturating_add(patience));
        }
        if let Some(call) = self.calls.get_mut(&connection.call) {
            call.active_ns = call.active_ns.max(now_ns);
        }
        if opened && connection.protocol == Protocol::Tcp {
            self.drop_alternatives(id, origin, events);
        }
        if matches!(stage, Stage::Closing(_)) && self.limits.linger_ns == 0 {
            self.expire(now_ns, events);
        }
        Some(hit)
    }

    /// Removes the alternatives of a connection that arrived at this address.
    fn drop_alternatives(&mut self, id: u64, origin: u64, events: &mut Vec<Event>) {
        // Alternatives are announced together, so their numbers are adjacent.
        for other in [id.wrapping_sub(1), id + 1] {
            let alternative = self.table.peek(&other).is_some_and(|data| {
                let tcp = data.connection.protocol == Protocol::Tcp;
                tcp && data.origin == origin && data.stage == Stage::Announced
            });
            if alternative {
                self.close(other, Reason::OtherAddress, events);
            }
        }
    }

    fn close(&mut self, id: u64, reason: Reason, events: &mut Vec<Event>) {
        if let Some(data) = self.table.remove(&id) {
            self.forget(id, &data, reason, events);
        }
    }

    fn forget(&mut self, id: u64, data: &Data, reason: Reason, events: &mut Vec<Event>) {
        let end = end(&data.connection);
        if let Some(ids) = self.ends.get_mut(&end) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.ends.remove(&end);
            }
        }
        let call = data.connection.call;
        if let Some(known) = self.calls.get_mut(&call) {
            if let Some(at) = known.ids.iter().position(|&other| other == id) {
                known.ids.remove(at);
                known.hosts.remove(at);
            }
            if known.ids.is_empty() {
                self.calls.remove(&call);
            }
        }
        let reason = match data.stage {
            Stage::Closing(reason) => reason,
            Stage::Announced | Stage::Open => reason,
        };
        self.evicted += u64::from(reason == Reason::Evicted);
        events.push(Event::Close(Closed {
            connection: data.connection,
            reason,
            client_port: data.client.map(|client| client.port()),
            frame_count: data.frame_count,
            wire_bytes: data.wire_bytes,
            from_syn: data.from_syn,
        }));
    }
}

impl Data {
    fn listed(&self) -> Expected {
        Expected {
            connection: self.connection,
            arrived: self.frame_count > 0,
            closing: matches!(self.stage, Stage::Closing(_)),
            frame_count: self.frame_count,
            wire_bytes: self.wire_bytes,
        }
    }

    /// Longest silence in its stage.
    fn patience_ns(&self) -> u64 {
        if self.stage == Stage::Announced { self.lifetime_ns } else { self.idle_ns }
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
    Of(u64),
}

fn end(connection: &Connection) -> End {
    (connection.protocol, SocketAddr::new(connection.server, connection.port))
}

fn same_host(left: IpAddr, right: IpAddr) -> bool {
    left.to_canonical() == right.to_canonical()
}
