//! State that rules share: limits of alerts, and names that are set for hosts. Bounded; the oldest entry is dropped.

use super::packet::Packet;
use crate::rule::{Change, Mark, Owner, Threshold, ThresholdKind, Track, UniquePort};
use fyke_flow::Ageing;
use std::net::IpAddr;
use std::sync::Arc;

/// Most counts of limits, and most names of hosts.
const MAX_COUNTS: usize = 1 << 16;
const MAX_NAMES: usize = 1 << 16;

/// The key by which a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Address(IpAddr),
    Pair(IpAddr, IpAddr),
    Flow(u64),
    Rule,
}

#[derive(Debug, Clone)]
struct Count {
    since_ns: u64,
    matches: u32,
    /// The different ports that were counted, in order; at most as many as the limit counts, and one.
    ports: Vec<u16>,
}

/// Counts of all limits.
#[derive(Debug)]
pub struct Thresholds(Ageing<(u32, u32, Key), Count>);

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds(Ageing::new(MAX_COUNTS))
    }
}

impl Thresholds {
    /// Counts a match of the rule; true if it alerts.
    pub fn alerts(
        &mut self,
        id: (u32, u32),
        limit: &Threshold,
        packet: &Packet<'_>,
        flow: u64,
    ) -> bool {
        let (source, destination) = (packet.source.0, packet.destination.0);
        let key = match limit.track {
            Track::Source => Key::Address(source),
            Track::Destination => Key::Address(destination),
            Track::Both => Key::Pair(source, destination),
            Track::Flow => Key::Flow(flow),
            Track::Rule => Key::Rule,
        };
        let (key, now_ns) = ((id.0, id.1, key), packet.time_ns);
        let deadline_ns = now_ns.saturating_add(limit.time_ns);
        let is_current = |count: &&mut Count| now_ns.saturating_sub(count.since_ns) < limit.time_ns;
        let known = self.0.peek_mut(&key).filter(is_current);
        let is_known = known.is_some();
        let mut fresh = Count { since_ns: now_ns, matches: 0, ports: Vec::new() };
        let count = known.unwrap_or(&mut fresh);
        count.take(limit, packet);
        let alerts = match limit.kind {
            ThresholdKind::Limit => count.matches <= limit.count,
            ThresholdKind::Every => count.matches.is_multiple_of(limit.count),
            ThresholdKind::Both => count.matches == limit.count,
            ThresholdKind::Detection => count.matches > limit.count,
        };
        if !is_known {
            self.0.insert(key, fresh, deadline_ns);
        }
        alerts
    }
}

impl Count {
    /// Counts a match, unless its port was counted before.
    fn take(&mut self, limit: &Threshold, packet: &Packet<'_>) {
        let port = match limit.unique {
            None => {
                self.matches = self.matches.saturating_add(1);
                return;
            }
            Some(UniquePort::Source) => packet.source.1,
            Some(UniquePort::Destination) => packet.destination.1,
        };
        if self.matches <= limit.count
            && let Err(place) = self.ports.binary_search(&port)
        {
            self.ports.insert(place, port);
            self.matches += 1;
        }
    }
}

/// Names that are set for addresses.
#[derive(Debug)]
pub struct HostNames(Ageing<(Hosts, Arc<str>), ()>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Hosts {
    One(IpAddr),
    Two(IpAddr, IpAddr),
}

impl Default for HostNames {
    fn default() -> Self {
        HostNames(Ageing::new(MAX_NAMES))
    }
}

impl HostNames {
    fn hosts(owner: Owner, packet: &Packet<'_>) -> Hosts {
        let (source, destination) = (packet.source.0, packet.destination.0);
        match owner {
            Owner::Flow | Owner::Pair => {
                Hosts::Two(source.min(destination), source.max(destination))
            }
            Owner::Source => Hosts::One(source),
            Owner::Destination => Hosts::One(destination),
        }
    }

    /// True if a name is set.
    pub fn has(&self, owner: Owner, name: &Arc<str>, packet: &Packet<'_>) -> bool {
        self.0.get(&(Self::hosts(owner, packet), Arc::clone(name)), packet.time_ns).is_some()
    }

    /// Changes a name.
    pub fn change(&mut self, mark: &Mark, packet: &Packet<'_>) {
        let key = (Self::hosts(mark.owner, packet), Arc::clone(&mark.name));
        let set = match mark.change {
            Change::Set => true,
            Change::Unset => false,
            Change::Toggle => self.0.get(&key, packet.time_ns).is_none(),
        };
        match set {
            true => self.0.insert(key, (), packet.time_ns.saturating_add(mark.expires_ns)),
            false => {
                self.0.remove(&key);
            }
        }
    }
}
