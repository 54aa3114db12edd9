//! Frames with times, and the files that contain them. The clock starts at a fixed second and advances by a millisecond
//! per frame; the machine's clock is not used.

use crate::packet::Packet;
use crate::pcap::{self, Layout, Record};
use std::net::IpAddr;

/// 2024-01-02 03:04:05 UTC.
pub const START_NS: u64 = 1_704_164_645_000_000_000;

/// A capture under construction.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Link type of all frames.
    pub link: u16,
    /// Frames so far.
    pub records: Vec<Record>,
    now_ns: u64,
}

impl Scene {
    /// Creates a capture without frames.
    pub fn new(link: u16) -> Scene {
        Scene { link, records: Vec::new(), now_ns: START_NS }
    }

    /// Creates a capture of these packets; the link type is that of the first.
    pub fn of(packets: &[Packet]) -> Scene {
        let mut scene = Scene::new(packets.first().map_or(1, Packet::link_type));
        packets.iter().for_each(|packet| scene.push(packet.build()));
        scene
    }

    /// Adds a frame, somewhat more than a millisecond after the previous one.
    pub fn push(&mut self, data: Vec<u8>) {
        let wire_len = data.len() as u32;
        self.records.push(Record { timestamp_ns: self.now_ns, wire_len, data });
        self.now_ns += 1_000_123;
    }

    /// Advances the clock.
    pub fn wait_ns(&mut self, pause_ns: u64) {
        self.now_ns += pause_ns;
    }

    /// Keeps only this many bytes of each frame, like a snapshot length.
    pub fn snapped(mut self, snaplen: usize) -> Scene {
        self.records.iter_mut().for_each(|record| record.data.truncate(snaplen));
        self
    }

    /// Returns the file in the usual layout.
    pub fn pcap(&self) -> Vec<u8> {
        self.laid_out(Layout::default())
    }

    /// Returns the file in this layout.
    pub fn laid_out(&self, layout: Layout) -> Vec<u8> {
        pcap::encode(self.link, &self.records, layout)
    }
}

/// Adds an IP header between these addresses, of their version, after the packet's last header.
///
/// # Panics
/// When the addresses have different versions.
pub fn ip(outer: Packet, from: IpAddr, to: IpAddr) -> Packet {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => outer.ipv4(from, to),
        (IpAddr::V6(from), IpAddr::V6(to)) => outer.ipv6(from, to),
        _ => panic!("{from} and {to} are of two versions"),
    }
}

/// Returns 10.0.0.`host`.
pub fn v4(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

/// Returns 2001:db8::`host`.
pub fn v6(host: u16) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host])
}
