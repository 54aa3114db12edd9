//! The assignment of data connections to passes, and the change that an event requires. Does not
//! access the pass set.
//!
//! A pass belongs to one server and protocol and holds up to [`PORTS_PER_PASS`] of its ports as operands of one
//! instruction. A port is held once, whatever the number of connections at it. The first pass is
//! made from scratch; every other pass is a duplicate: of a pass of the same server if there is one
//! (the host instruction stays as it is), else of the oldest
//! pass of the protocol.
//!
//! Cost: O(passes of the server) per event. Source: Swift, section 5.2; NPF, section 5.4.

use crate::{Connection, Protocol};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Most ports in one instruction.
pub const PORTS_PER_PASS: usize = 12;

/// Change for an opened connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening<P> {
    /// None: a pass has its port already.
    Held(P),
    /// Add the port to this pass.
    AddPort(P),
    /// Duplicate this pass; the server stays the same.
    DuplicateForPorts(P),
    /// Duplicate this pass for another server.
    DuplicateForServer(P),
    /// Make a pass from scratch.
    Create,
}

/// Change for a closed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing<P> {
    /// None: it was never held.
    Unknown,
    /// None: another connection uses the same port.
    Shared,
    /// Remove the port from this pass.
    RemovePort(P, u16),
    /// Delete this pass: the port was its last one.
    Delete(P),
}

/// A host that listens, and for what.
type Server = (IpAddr, Protocol);

/// The bookkeeping. `P` names a pass.
#[derive(Debug)]
pub(super) struct Plan<P> {
    servers: HashMap<Server, Vec<Slot<P>>>,
    held: HashMap<u64, (Server, u16)>,
    /// Passes of each protocol by age, to duplicate from.
    by_age: BTreeMap<(Protocol, u64), P>,
    created: u64,
}

#[derive(Debug)]
struct Slot<P> {
    pass: P,
    serial: u64,
    /// Port and number of connections at it.
    ports: Vec<(u16, u32)>,
}

impl<P> Default for Plan<P> {
    fn default() -> Self {
        Plan { servers: HashMap::new(), held: HashMap::new(), by_age: BTreeMap::new(), created: 0 }
    }
}

impl<P: Copy + PartialEq> Plan<P> {
    /// Number of passes.
    pub(super) fn pass_count(&self) -> usize {
        self.by_age.len()
    }

    /// Number of connections held.
    pub(super) fn connection_count(&self) -> usize {
        self.held.len()
    }

    /// The change for an announced connection.
    pub(super) fn opening(&self, connection: &Connection) -> Opening<P> {
        let slots = self.servers.get(&server(connection)).map_or(&[][..], Vec::as_slice);
        let holds = |slot: &&Slot<P>| slot.ports.iter().any(|(port, _)| *port == connection.port);
        if let Some(slot) = slots.iter().find(holds) {
            return Opening::Held(slot.pass);
        }
        if let Some(slot) = slots.iter().find(|slot| slot.ports.len() < PORTS_PER_PASS) {
            return Opening::AddPort(slot.pass);
        }
        if let Some(slot) = slots.first() {
            return Opening::DuplicateForPorts(slot.pass);
        }
        let protocol = connection.protocol;
        match self.by_age.range((protocol, 0)..=(protocol, u64::MAX)).next() {
            Some((_, pass)) => Opening::DuplicateForServer(*pass),
            None => Opening::Create,
        }
    }

    /// Records that the opening was carried out: the connection's port is in `pass` now.
    pub(super) fn opened(&mut self, connection: &Connection, pass: P) {
        self.held.insert(connection.id, (server(connection), connection.port));
        let slots = self.servers.entry(server(connection)).or_default();
        let Some(slot) = slots.iter_mut().find(|slot| slot.pass == pass) else {
            self.created += 1;
            self.by_age.insert((connection.protocol, self.created), pass);
            let ports = vec![(connection.port, 1)];
            slots.push(Slot { pass, serial: self.created, ports });
            return;
        };
        match slot.ports.iter_mut().find(|(port, _)| *port == connection.port) {
            Some((_, count)) => *count += 1,
            None => slot.ports.push((connection.port, 1)),
        }
    }

    /// The change for a closed connection.
    pub(super) fn closing(&self, id: u64) -> Closing<P> {
        let Some((slot, index)) = self.place(id) else { return Closing::Unknown };
        match (slot.ports[index], slot.ports.len()) {
            ((_, 2..), _) => Closing::Shared,
            (_, 1) => Closing::Delete(slot.pass),
            ((port, _), _) => Closing::RemovePort(slot.pass, port),
        }
    }

    /// Records that the closing was carried out.
    pub(super) fn closed(&mut self, id: u64) {
        let Some((server, port)) = self.held.remove(&id) else { return };
        let Some(slots) = self.servers.get_mut(&server) else { return };
        for slot in slots.iter_mut() {
            for (_, count) in slot.ports.iter_mut().filter(|(held, _)| *held == port) {
                *count -= 1;
            }
            slot.ports.retain(|(_, count)| *count > 0);
            if slot.ports.is_empty() {
                self.by_age.remove(&(server.1, slot.serial));
            }
        }
        slots.retain(|slot| !slot.ports.is_empty());
        if slots.is_empty() {
            self.servers.remove(&server);
        }
    }

    fn place(&self, id: u64) -> Option<(&Slot<P>, usize)> {
        let (server, port) = self.held.get(&id)?;
        self.servers.get(server)?.iter().find_map(|slot| {
            let index = slot.ports.iter().position(|(held, _)| held == port)?;
            Some((slot, index))
        })
    }
}

fn server(connection: &Connection) -> Server {
    (connection.server, connection.protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use crate::ftp::PASSIVE;
    use std::collections::BTreeSet;

    fn connection(id: u64, host: u8, port: u16) -> Connection {
        Connection {
            id,
            server: [10, 0, 0, host].into(),
            port,
            client: [10, 0, 1, 1].into(),
            protocol: Protocol::Tcp,
            pair: false,
            call: 1,
            label: "FTP data",
            cause: PASSIVE,
            announced_ns: 0,
        }
    }

    /// A pass set as a model: pass number → server and ports.
    #[derive(Default)]
    struct Model {
        passes: BTreeMap<u32, (IpAddr, BTreeSet<u16>)>,
        next: u32,
    }

    impl Model {
        fn open(&mut self, plan: &mut Plan<u32>, connection: &Connection) -> Opening<u32> {
            let opening = plan.opening(connection);
            let pass = match opening {
                Opening::Held(pass) => pass,
                Opening::AddPort(pass) => {
                    assert!(self.passes.get_mut(&pass).unwrap().1.insert(connection.port));
                    pass
                }
                Opening::DuplicateForPorts(from) | Opening::DuplicateForServer(from) => {
                    assert!(self.passes.contains_key(&from));
                    self.insert(connection)
                }
                Opening::Create => self.insert(connection),
            };
            plan.opened(connection, pass);
            opening
        }

        fn insert(&mut self, connection: &Connection) -> u32 {
            self.next += 1;
            self.passes.insert(self.next, (connection.server, BTreeSet::from([connection.port])));
            self.next
        }

        fn close(&mut self, plan: &mut Plan<u32>, id: u64) {
            match plan.closing(id) {
                Closing::Unknown | Closing::Shared => {}
                Closing::RemovePort(pass, port) => {
                    assert!(self.passes.get_mut(&pass).unwrap().1.remove(&port));
                }
                Closing::Delete(pass) => assert!(self.passes.remove(&pass).is_some()),
            }
            plan.closed(id);
        }
    }

    #[test]
    fn ports_fill_a_pass_and_then_a_duplicate() {
        let (mut plan, mut model) = (Plan::default(), Model::default());
        assert_eq!(model.open(&mut plan, &connection(1, 1, 5_000)), Opening::Create);
        for id in 2..=12 {
            let opening = model.open(&mut plan, &connection(id, 1, 5_000 + id as u16));
            assert_eq!(opening, Opening::AddPort(1));
        }
        let thirteenth = model.open(&mut plan, &connection(13, 1, 6_000));
        assert_eq!(thirteenth, Opening::DuplicateForPorts(1));
        assert_eq!(model.open(&mut plan, &connection(14, 1, 6_000)), Opening::Held(2));
        assert_eq!(
            model.open(&mut plan, &connection(15, 2, 6_000)),
            Opening::DuplicateForServer(1)
        );
        assert_eq!(plan.closing(13), Closing::Shared);
        model.close(&mut plan, 13);
        assert_eq!(plan.closing(14), Closing::Delete(2));
        assert_eq!(plan.closing(99), Closing::Unknown);
    }

    #[test]
    fn the_passes_hold_exactly_the_open_connections() {
        let (mut plan, mut model) = (Plan::default(), Model::default());
        let mut open: BTreeMap<u64, (u8, u16)> = BTreeMap::new();
        let mut state = 7u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        for id in 0..3_000 {
            if random(100) < 55 {
                let (host, port) = (random(4) as u8, 5_000 + random(40) as u16);
                model.open(&mut plan, &connection(id, host, port));
                open.insert(id, (host, port));
            } else if let Some(&id) = open.keys().nth(random(open.len().max(1) as u64) as usize) {
                model.close(&mut plan, id);
                open.remove(&id);
            }
            let wanted: BTreeSet<(IpAddr, u16)> =
                open.values().map(|(host, port)| ([10, 0, 0, *host].into(), *port)).collect();
            let held: Vec<(IpAddr, u16)> = model
                .passes
                .values()
                .flat_map(|(server, ports)| ports.iter().map(|port| (*server, *port)))
                .collect();
            assert_eq!(held.len(), wanted.len(), "a port is held once");
            assert_eq!(BTreeSet::from_iter(held), wanted);
            assert!(model.passes.values().all(|(_, ports)| ports.len() <= PORTS_PER_PASS));
            assert_eq!(plan.pass_count(), model.passes.len());
            assert_eq!(plan.connection_count(), open.len());
        }
    }
}
