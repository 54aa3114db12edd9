//! Block of up to [`LANES`] frames: the fields of their keys, in columns.
//!
//! Every frame is first read as if it were of the most frequent kind, Ethernet and IPv4 without options, with an offset
//! of four bytes after a tag: eight loads, no branches. One loop of vector instructions over the columns then finds the
//! frames for which that was right ([`Block::plain_v4`]). The others are added one by one ([`Block::put`]) as
//! [`plain`](super::plain) reads them, or are left out.

use super::counting::{LANES, Lanes, packed};
use super::ends::PortsSeen;
use super::plain::{Addresses, Head, is_tunnel};
use fyke_frame::ethertype;

/// Length of a tag.
const TAG_LEN: usize = 4;
/// Bytes from the start of a frame with a tag to the eighth byte of its transport.
const HEAD_LEN: usize = TAG_LEN + 42;

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
    /// Raw words of the frames: the bytes at the offset of a tag; EtherType and version; total length; fragment and
    /// protocol; length of UDP.
    tag: Lanes,
    start: Lanes,
    total: Lanes,
    place: Lanes,
    udp: Lanes,
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
            tag: lanes,
            start: lanes,
            total: lanes,
            place: lanes,
            udp: lanes,
        }
    }
}

impl Block {
    /// Lays out a frame as if it were plain IPv4.
    #[inline(always)]
    pub fn lay_out(&mut self, lane: usize, data: &[u8]) {
        let Some(head) = data.first_chunk::<HEAD_LEN>() else {
            // Version 0 is not IPv4.
            self.start[lane] = 0;
            return;
        };
        let behind = usize::from(head[12..14] == ethertype::VLAN.to_be_bytes()) * TAG_LEN;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        self.tag[lane] = word(12);
        self.start[lane] = word(behind + 12);
        self.total[lane] = word(behind + 16);
        self.place[lane] = word(behind + 20);
        self.v4[0][0][lane] = word(behind + 26);
        self.v4[1][0][lane] = word(behind + 30);
        self.port[0][lane] = word(behind + 34);
        self.udp[lane] = word(behind + 38);
    }

    /// Returns the laid-out lanes that are plain IPv4, and puts exactly these into the sets.
    #[inline(always)]
    pub fn plain_v4(&mut self, lanes: u64) -> u64 {
        let mut plain = [0; LANES];
        let [mut ported, mut later, mut tagged] = [plain; 3];
        for lane in 0..LANES {
            let (start, place) = (u32::from_be(self.start[lane]), u32::from_be(self.place[lane]));
            let (total, udp) = (u32::from_be(self.total[lane]) >> 16, u32::from_be(self.udp[lane]));
            let (ports, tag) = (u32::from_be(self.port[0][lane]), u32::from_be(self.tag[lane]));
            let (destination, protocol) = (ports & 0xffff, place & 0xff);
            // The header's length leaves space for eight bytes of a transport (0 means all of the frame); the capture
            // has these bytes.
            let v4 = (start & 0xffff_ff00 == 0x0800_4500) & ((total == 0) | (total >= 28));
            let is_later = place & 0x1fff_0000 != 0;
            let udp_lies = (udp >> 16).wrapping_sub(1) < 7;
            let clear = !udp_lies & !is_tunnel(destination as u16);
            let with_ports = !is_later & ((protocol == 6) | ((protocol == 17) & clear));
            let without = (protocol == 1) | (protocol == 58) | (protocol == 50);
            let is_tagged = tag >> 16 == u32::from(ethertype::VLAN);
            plain[lane] = u8::from(v4 & (is_later | with_ports | without));
            ported[lane] = u8::from(with_ports);
            later[lane] = u8::from(is_later);
            tagged[lane] = u8::from(is_tagged);
            self.kind[lane] = protocol | if is_tagged { (tag & 0xfff) << 8 } else { 0 };
            self.port[0][lane] = ports >> 16;
            self.port[1][lane] = destination;
            for end in &mut self.v4 {
                end[0][lane] = u32::from_be(end[0][lane]);
            }
        }
        self.v4_lanes = lanes & packed(&plain);
        self.ported = self.v4_lanes & packed(&ported);
        self.hidden = self.v4_lanes & packed(&later);
        self.tagged = self.v4_lanes & packed(&tagged);
        self.v6_lanes = 0;
        self.v4_lanes
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

/// Writes two addresses in frame byte order into columns.
#[inline(always)]
fn set<const WORDS: usize>(columns: &mut [[Lanes; WORDS]; 2], lane: usize, bytes: &[u8]) {
    let columns = columns.iter_mut().flat_map(|end| end.iter_mut().rev());
    for (column, word) in columns.zip(bytes.as_chunks().0) {
        column[lane] = u32::from_be_bytes(*word);
    }
}
