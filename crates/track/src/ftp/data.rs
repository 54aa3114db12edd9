//! The data connections of a tracker: announced, open, closing.
//!
//! Keyed by the listening end. A frame is matched by the connecting end if that is known, else by
//! its address, else the oldest announced connection takes it: the connecting end may differ from
//! the client of the control connection (address translation, transfers between two servers). Cost:
//! one hash look-up per frame and end.

use crate::segment::{FIN, RST, SYN, Segment};
use crate::{Closed, Connection, Event, Limits, Reason};
use fyke_flow::Ageing;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Most connections of one listening end, so that a look-up stays short. The oldest one is removed.
const PER_ENDPOINT: usize = 16;

/// Number of the control connection of an announcement, and of the announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// Control connection.
    pub(super) control: u64,
    /// Announcement: its connections are alternatives.
    pub(super) announcement: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Announced,
    Open,
    Closing(Reason),
}

struct Data {
    connection: Connection,
    origin: Origin,
    stage: Stage,
    client: Option<SocketAddr>,
    finished: [bool; 2],
    frame_count: u64,
    wire_bytes: u64,
    from_syn: bool,
}

/// Result of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announcement {
    New,
    /// The same control connection has announced it before, and it has not arrived yet.
    Repeated,
}

/// The table.
pub(super) struct DataTable {
    limits: Limits,
    table: Ageing<u64, Data>,
    endpoints: HashMap<SocketAddr, Vec<u64>>,
    next_id: u64,
}

impl DataTable {
    pub(super) fn new(limits: Limits) -> Self {
        let table = Ageing::new(limits.data_connections);
        DataTable { limits, table, endpoints: HashMap::new(), next_id: 1 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds an expected connection and sets `connection.id`.
    pub(super) fn announce(
        &mut self,
        connection: Connection,
        origin: Origin,
        events: &mut Vec<Event>,
    ) -> Announcement {
        let endpoint = SocketAddr::new(connection.server, connection.port);
        let deadline = connection.announced_ns.saturating_add(self.limits.announced_ns);
        let ids = self.endpoints.get(&endpoint).map_or(&[][..], Vec::as_slice);
        let known = ids.iter().copied().find(|id| {
            self.table.peek(id).is_some_and(|data| {
                data.stage == Stage::Announced && data.origin.control == origin.control
            })
        });
        if let Some(id) = known {
            if let Some(data) = self.table.touch(&id, deadline) {
                data.origin = origin;
            }
            return Announcement::Repeated;
        }
        if let Some(&oldest) = ids.first().filter(|_| ids.len() >= PER_ENDPOINT) {
            self.close(oldest, Reason::Evicted, events);
        }
        if self.table.is_full()
            && let Some((id, data)) = self.table.pop_oldest()
        {
            self.forget(id, &data, Reason::Evicted, events);
        }
        let connection = Connection { id: self.next_id, ..connection };
        self.next_id += 1;
        let data = Data {
            connection,
            origin,
            stage: Stage::Announced,
            client: None,
            finished: [false; 2],
            frame_count: 0,
            wire_bytes: 0,
            from_syn: false,
        };
        if self.table.try_insert(connection.id, data, deadline).is_ok() {
            self.endpoints.entry(endpoint).or_default().push(connection.id);
            events.push(Event::Open(connection));
        }
        Announcement::New
    }

    /// Processes a TCP segment; true if it belongs to a data connection.
    pub(super) fn segment(
        &mut self,
        segment: &Segment,
        wire_len: u32,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) -> bool {
        let to_listener = self.find(segment.destination, segment.source, segment.flags);
        let found =
            to_listener.or_else(|| self.find(segment.source, segment.destination, segment.flags));
        let Some(id) = found else { return false };
        let from_listener = to_listener.is_none();
        let client = if from_listener { segment.destination } else { segment.source };
        self.advance(id, segment.flags, client, from_listener, wire_len, now_ns, events);
        true
    }

    /// Closes connections that have been silent too long.
    pub(super) fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        while let Some((id, data)) = self.table.pop_due(now_ns) {
            let reason = match data.stage {
                Stage::Announced => Reason::Unused,
                Stage::Open => Reason::Idle,
                Stage::Closing(reason) => reason,
            };
            self.forget(id, &data, reason, events);
        }
    }

    fn find(&self, listener: SocketAddr, client: SocketAddr, flags: u8) -> Option<u64> {
        let ids = self.endpoints.get(&listener)?;
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

    #[allow(clippy::too_many_arguments)]
    fn advance(
        &mut self,
        id: u64,
        flags: u8,
        client: SocketAddr,
        from_listener: bool,
        wire_len: u32,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        let Some(data) = self.table.peek_mut(&id) else { return };
        data.frame_count += 1;
        data.wire_bytes += u64::from(wire_len);
        let opened = data.stage == Stage::Announced;
        if opened {
            data.stage = Stage::Open;
            data.client = Some(client);
            data.from_syn = flags & SYN != 0 && !from_listener;
        }
        data.finished[usize::from(from_listener)] |= flags & FIN != 0;
        if data.stage == Stage::Open {
            if flags & RST != 0 {
                data.stage = Stage::Closing(Reason::Reset);
            } else if data.finished == [true; 2] {
                data.stage = Stage::Closing(Reason::Finished);
            }
        }
        let patience = match data.stage {
            Stage::Closing(_) => self.limits.linger_ns,
            Stage::Open | Stage::Announced => self.limits.idle_ns,
        };
        let (origin, stage) = (data.origin, data.stage);
        self.table.touch(&id, now_ns.saturating_add(patience));
        if opened {
            self.drop_alternatives(id, origin, events);
        }
        if matches!(stage, Stage::Closing(_)) && self.limits.linger_ns == 0 {
            self.expire(now_ns, events);
        }
    }

    /// Removes the alternatives of a connection that arrived at this address.
    fn drop_alternatives(&mut self, id: u64, origin: Origin, events: &mut Vec<Event>) {
        // Alternatives are announced together, so their numbers are adjacent.
        for other in [id.wrapping_sub(1), id + 1] {
            let alternative = self
                .table
                .peek(&other)
                .is_some_and(|data| data.origin == origin && data.stage == Stage::Announced);
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
        let endpoint = SocketAddr::new(data.connection.server, data.connection.port);
        if let Some(ids) = self.endpoints.get_mut(&endpoint) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.endpoints.remove(&endpoint);
            }
        }
        let reason = match data.stage {
            Stage::Closing(reason) => reason,
            Stage::Announced | Stage::Open => reason,
        };
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

fn same_host(left: IpAddr, right: IpAddr) -> bool {
    left.to_canonical() == right.to_canonical()
}
