//! Packets after an alert of a rule with `tag`: of the flow, or of a host. Bounded; the oldest host is dropped.

use super::Engine;
use super::flow::Flow;
use super::left::Left;
use super::packet::Packet;
use crate::eve;
use crate::rule::{Owner, Tag};
use fyke_flow::Ageing;
use fyke_frame::Frame;
use serde_json::Map;
use std::net::IpAddr;

/// Most hosts of which packets are recorded.
const MAX_HOSTS: usize = 1 << 12;

/// Hosts of which packets are recorded, and the record of the current frame without its bytes.
#[derive(Debug)]
pub struct Tags {
    hosts: Ageing<IpAddr, Left>,
    record: Option<String>,
}

impl Default for Tags {
    fn default() -> Self {
        Tags { hosts: Ageing::new(MAX_HOSTS), record: None }
    }
}

impl Engine {
    /// Begins to record packets, if records of them are wanted.
    pub(super) fn tag(&mut self, tag: &Tag, packet: &Packet<'_>, flow: &mut Flow) {
        if !self.wanted.packet {
            return;
        }
        let until_ns = packet.time_ns.saturating_add(tag.time_ns);
        let left = Left::of(tag, until_ns);
        match tag.owner {
            Owner::Source => self.tags.hosts.insert(packet.source.0, left, until_ns),
            Owner::Destination => self.tags.hosts.insert(packet.destination.0, left, until_ns),
            Owner::Flow | Owner::Pair => flow.tag = Some(left),
        }
    }

    /// Notes that a packet is recorded, if it is; its bytes are added with its frame.
    pub(super) fn note_tagged(&mut self, packet: &Packet<'_>, flow: &mut Flow) {
        if !self.wanted.packet {
            return;
        }
        let mut is_tagged = flow.tag.as_mut().is_some_and(|left| left.take(packet));
        for address in [packet.source.0, packet.destination.0] {
            is_tagged |= self.tags.hosts.peek_mut(&address).is_some_and(|left| left.take(packet));
        }
        if is_tagged {
            let to_server = flow.is_to_server(packet);
            let line = eve::record(flow, packet.time_ns, to_server, "packet", Map::new());
            self.tags.record = Some(line);
        }
    }

    /// Records a frame of which a packet was noted.
    pub(super) fn record_frame(&mut self, frame: &Frame<'_>) {
        if let Some(record) = self.tags.record.take() {
            self.lines.push(eve::with_frame(record, frame));
        }
    }
}
