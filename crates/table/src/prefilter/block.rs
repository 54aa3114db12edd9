//! Block of up to [`LANES`] frames: the fields of their keys, in columns.
//!
//! Every frame is first read as if it were of the most frequent kind, Ethernet and IPv4 without options: 32 bytes, its
//! row, from two bytes before the EtherType to the eighth byte of the transport, or four bytes later if there is a tag.
//! Rows are transposed into columns, eight at a time, without branches. Loops of vector instructions over the columns
//! then find the frames for which that was right, those that are IPv6 ([`Block::put_v6`] reads their ports) and ARP
//! ([`Block::sort`]). The others are added one by one ([`Block::put`]) as [`plain`](super::plain) reads them, or are
//! left out.
//!
//! PERF: `fyke bench bloom --case array1`, AVX-512, nanoseconds for a frame: eight loads and stores in place of a
//! row 9.5, rows 8.6, with IPv6 and ARP found in the columns 7.2, with loops of a few columns in place of a single one
//! 6.9. Without vector instructions a single loop took 18.3 in place of 15.5.

use super::counting::{LANES, Lanes};
use super::ends::PortsSeen;
use super::plain::{Addresses, Head, is_tunnel};
use crate::arch::{Probe, ROW_WORDS, ROWS};
use fyke_frame::ethertype;

/// Length of a tag.
const TAG_LEN: usize = 4;
/// Bytes from the start of a frame with a tag to the eighth byte of its transport after IPv4 without options.
const HEAD_LEN: usize = TAG_LEN + 42;
/// The same with IPv6.
const HEAD_LEN_V6: usize = TAG_LEN + 62;
/// Length of a row.
const ROW_LEN: usize = 4 * ROW_WORDS;
/// Prefetch distance: frames between the current one and the one with its header being prefetched.
const AHEAD: usize = 16;

/// Columns of a block; a lane is valid only if it is in one of the sets.
#[derive(Debug, Clone)]
pub struct Block {
    /// VLAN and protocol in the form of keys.
    pub kind: Lanes,
    /// Source and destination ports.
    pub port: [Lanes; 2],
    /// Source and destination IPv4 addresses.
    pub v4: [[Lanes; 1]; 2],
    /// Source and destination IPv6 addresses, least significant word first.
    pub v6: [[Lanes; 4]; 2],
    /// Lanes with IPv4 and with IPv6 packets.
    pub v4_lanes: u64,
    pub v6_lanes: u64,
    /// Lanes with readable ports, and lanes with ports that are not in this frame.
    pub ported: u64,
    pub hidden: u64,
    /// Lanes with a tag.
    pub tagged: u64,
    /// Words of the rows in host order: VLAN if there is a tag, and EtherType; version, total length; IPv4's number and
    /// fragment or IPv6's length and protocol; IPv4's protocol; addresses (two words); ports; length of UDP.
    words: [Lanes; ROW_WORDS],
    /// 1 for a frame with a tag, else 0.
    tags: [u8; LANES],
}

impl Default for Block {
    fn default() -> Self {
        let lanes = [0; LANES];
        Block {
            kind: lanes,
            port: [lanes; 2],
            v4: [[lanes; 1]; 2],
            v6: [[lanes; 4]; 2],
            v4_lanes: 0,
            v6_lanes: 0,
            ported: 0,
            hidden: 0,
            tagged: 0,
            words: [lanes; ROW_WORDS],
            tags: [0; LANES],
        }
    }
}

/// Lanes that are sorted but in no set of the block.
#[derive(Debug, Clone, Copy)]
pub struct Sorted {
    /// Lanes with an IPv6 header; their transport is not in the row.
    pub v6: u64,
    /// Lanes that certainly contain nothing that rules can name.
    pub nothing: u64,
}

impl Block {
    /// Lays out these lanes of up to [`LANES`] frames as if they were plain IPv4. Further lanes may change, too.
    #[inline(always)]
    pub fn lay_out<P: Probe>(&mut self, probe: P, frames: &[&[u8]], lanes: u64) {
        for group in 0..LANES / ROWS {
            let first = group * ROWS;
            if lanes >> first & 0xff == 0 {
                continue;
            }
            if let Some(soon) = frames.get(first + AHEAD..first + AHEAD + ROWS) {
                for soon in soon {
                    if let Some(soon) = soon.first_chunk::<42>() {
                        // The header may lie in either of two cache lines.
                        probe.prefetch(&soon[12]);
                        probe.prefetch(&soon[41]);
                    }
                }
            }
            let here = &frames[first..];
            match here.first_chunk() {
                Some(eight) => self.lay_out_rows(probe, first, eight),
                None => {
                    let mut eight: [&[u8]; ROWS] = [&[]; ROWS];
                    eight[..here.len()].copy_from_slice(here);
                    self.lay_out_rows(probe, first, &eight);
                }
            }
        }
    }

    #[inline(always)]
    fn lay_out_rows<P: Probe>(&mut self, probe: P, first: usize, frames: &[&[u8]; ROWS]) {
        let mut tags = [0; ROWS];
        let rows = std::array::from_fn(|n| {
            // EtherType 0 is nothing that the loops look for.
            let head: &[u8; HEAD_LEN] = frames[n].first_chunk().unwrap_or(&[0; HEAD_LEN]);
            let tagged = head[12..14] == ethertype::VLAN.to_be_bytes();
            tags[n] = u8::from(tagged);
            let start = 10 + TAG_LEN * usize::from(tagged);
            head[start..start + ROW_LEN].first_chunk().unwrap_or(&[0; ROW_LEN])
        });
        self.tags[first..first + ROWS].copy_from_slice(&tags);
        probe.transpose(&rows, &mut self.words, first);
    }

    /// Sorts the laid-out lanes: puts exactly those with plain IPv4 into the sets.
    #[inline(always)]
    pub fn sort<P: Probe>(&mut self, probe: P, lanes: u64) -> Sorted {
        let words = &self.words;
        let is = |lane: usize, number: u16| words[0][lane] & 0xffff == u32::from(number);
        let (mut v6, mut arp) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let (first, third) = (words[0][lane], words[2][lane]);
            let is_v6 = is(lane, ethertype::IPV6);
            let protocol = if is_v6 { third >> 8 } else { words[3][lane] >> 16 } & 0xff;
            let vlan = if self.tags[lane] != 0 { first >> 16 & 0xfff } else { 0 };
            self.kind[lane] = vlan << 8 | protocol;
            // The packet has space for eight bytes of a transport; 0 means all of the frame.
            let space = (third >> 16 == 0) | (third >> 16 >= 8);
            v6[lane] = u8::from(is_v6 & (words[1][lane] >> 28 == 6) & space);
        }
        for lane in 0..LANES {
            // Lengths of Ethernet and IPv4 addresses: all of them are in the row's frame.
            let addresses = words[2][lane] >> 16 == 0x0604;
            arp[lane] = u8::from(is(lane, ethertype::ARP) & addresses & (self.tags[lane] == 0));
        }
        for (lane, &ports) in words[6].iter().enumerate() {
            (self.port[0][lane], self.port[1][lane]) = (ports >> 16, ports & 0xffff);
        }
        self.v4 = [[words[4]], [words[5]]];
        self.sort_v4(probe, lanes);
        Sorted { v6: lanes & probe.packed(&v6), nothing: lanes & probe.packed(&arp) }
    }

    #[inline(always)]
    fn sort_v4<P: Probe>(&mut self, probe: P, lanes: u64) {
        let mut plain = [0; LANES];
        let [mut ported, mut later] = [plain; 2];
        for lane in 0..LANES {
            let word = |n: usize| self.words[n][lane];
            let (number, total, protocol) =
                (word(0) & 0xffff, word(1) & 0xffff, self.kind[lane] & 0xff);
            let is_v4 = (number == u32::from(ethertype::IPV4)) & (word(1) >> 24 == 0x45);
            let is_later = word(2) & 0x1fff != 0;
            let with_ports = !is_later & has_ports(protocol, word(6), word(7));
            // The header's length leaves space for eight bytes of a transport (0 means all of the frame); the capture
            // has these bytes.
            let space = (total == 0) | (total >= 28);
            plain[lane] = u8::from(is_v4 & space & (is_later | with_ports | is_portless(protocol)));
            ported[lane] = u8::from(with_ports);
            later[lane] = u8::from(is_later);
        }
        self.v4_lanes = lanes & probe.packed(&plain);
        self.ported = self.v4_lanes & probe.packed(&ported);
        self.hidden = self.v4_lanes & probe.packed(&later);
        self.tagged = lanes & probe.packed(&self.tags);
        self.v6_lanes = 0;
    }

    /// Puts the frame of a lane with an IPv6 header into the sets if it is plain; `addresses`: with its addresses,
    /// which only some rules need.
    #[inline(always)]
    pub fn put_v6(&mut self, lane: usize, data: &[u8], addresses: bool) {
        let Some(head) = data.first_chunk::<HEAD_LEN_V6>() else { return };
        let packet = &head[TAG_LEN * usize::from(self.tags[lane] & 1)..][..HEAD_LEN_V6 - TAG_LEN];
        let word = |at: usize| {
            packet[at..at + 4].iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
        };
        let (protocol, ports) = (self.kind[lane] & 0xff, word(54));
        let with_ports = has_ports(protocol, ports, word(58));
        (self.port[0][lane], self.port[1][lane]) = (ports >> 16, ports & 0xffff);
        self.ported |= u64::from(with_ports) << lane;
        self.v6_lanes |= u64::from(with_ports | is_portless(protocol)) << lane;
        if let (true, Some(both)) = (addresses, packet[22..].first_chunk::<32>()) {
            set(&mut self.v6, lane, both);
        }
    }

    /// Puts a packet into a lane that is in no set.
    pub fn put(&mut self, lane: usize, head: &Head<'_>) {
        let bit = 1 << lane;
        self.kind[lane] = u32::from(head.vlan.unwrap_or(0)) << 8 | u32::from(head.protocol);
        self.tagged |= if head.vlan.is_some() { bit } else { 0 };
        match head.ports {
            PortsSeen::Known { source, destination } => {
                (self.port[0][lane], self.port[1][lane]) = (source.into(), destination.into());
                self.ported |= bit;
            }
            PortsSeen::Hidden => self.hidden |= bit,
            PortsSeen::None => {}
        }
        match head.addresses {
            Addresses::V4(both) => {
                self.v4_lanes |= bit;
                set(&mut self.v4, lane, both);
            }
            Addresses::V6(both) => {
                self.v6_lanes |= bit;
                set(&mut self.v6, lane, both);
            }
        }
    }
}

/// True for TCP, and for UDP with a valid length in which the walk does not look for a tunnel; `ports` and `udp` are
/// the first two words of the transport. Without branches, as everything in loops over many frames.
#[inline(always)]
fn has_ports(protocol: u32, ports: u32, udp: u32) -> bool {
    // A UDP length of 0 means all of the packet.
    let lies = (udp >> 16).wrapping_sub(1) < 7;
    (protocol == 6) | ((protocol == 17) & !lies & !is_tunnel(ports & 0xffff))
}

/// True for ICMP, ICMPv6 and ESP, which have no ports and carry no other packet.
#[inline(always)]
fn is_portless(protocol: u32) -> bool {
    (protocol == 1) | (protocol == 58) | (protocol == 50)
}

/// Writes two addresses in frame byte order into columns.
#[inline(always)]
fn set<const WORDS: usize>(columns: &mut [[Lanes; WORDS]; 2], lane: usize, bytes: &[u8]) {
    let columns = columns.iter_mut().flat_map(|end| end.iter_mut().rev());
    for (column, word) in columns.zip(bytes.as_chunks().0) {
        column[lane] = u32::from_be_bytes(*word);
    }
}
