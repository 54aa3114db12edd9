//! One block of the ring: a sequence of frames, each with a header that has the offset of the next one.
//!
//! A frame is *prepared* once, in place: the tag that the network card removed is reinserted, and a cooked header is
//! put in front. The kernel leaves space for both. After that the block can be walked any number of times. Everything
//! that the kernel wrote is checked against the block before it is used. Source: the kernel's packet_mmap.rst and
//! if_packet.h (`tpacket_block_desc`, `tpacket3_hdr`).
//!
//! Of two tags the kernel (observed with 6.18) removes one. For cooked frames it then reports the protocol after both
//! tags, while the content of the inner tag still precedes the payload. Such a frame cannot be distinguished from one
//! without an inner tag, so it looks as libpcap shows it; to see both tags, capture from the interface itself.

use crate::cooked::{self, Sender};
use fyke_frame::{Direction, LinkType};

/// Header of a frame; a `sockaddr_ll` follows.
const HEADER_LEN: usize = 48;
/// Smallest offset of packet bytes in a frame.
const DATA_MIN: usize = HEADER_LEN + Sender::LEN;
/// Padding that the kernel leaves zero; used here as the mark that a tag was reinserted.
const RESTORED_AT: usize = 38;
/// Bytes of a VLAN tag.
const TAG_LEN: usize = 4;
/// Space in front of every packet that is requested from the kernel: a cooked header needs 20 bytes and a tag 4, of
/// which alignment already gives 28 to cooked packets and 14 to others.
pub(super) const RESERVE: u32 = TAG_LEN as u32;

const ETHERTYPE_VLAN: u16 = 0x8100;
const VLAN_VALID: u32 = libc::TP_STATUS_VLAN_VALID;
const TPID_VALID: u32 = libc::TP_STATUS_VLAN_TPID_VALID;
const UNSUMMED: u32 = libc::TP_STATUS_CSUMNOTREADY;

/// Offset in the block of inconsistent data from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged(pub(super) u32);

/// Treatment of link headers by a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Link type of the frames.
    pub(super) link: LinkType,
    /// Longest frame that is delivered; longer ones are cut.
    pub(super) snaplen: u32,
    /// The loopback interface: packets that it sends also appear as received, so the outgoing copy is ignored.
    pub(super) loopback: u32,
}

/// Offset of the next frame, and the number of frames left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    pub(super) at: u32,
    pub(super) left: u32,
}

/// A prepared frame, without its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) data_at: u32,
    pub(super) captured: u32,
    pub(super) wire_len: u32,
    pub(super) timestamp_ns: u64,
    pub(super) ifindex: u32,
    pub(super) direction: Direction,
    /// True if a tag was reinserted.
    pub(super) restored: bool,
    /// True if a device still has to compute the checksum.
    pub(super) unsummed: bool,
    /// True if the frame is not delivered.
    pub(super) ignored: bool,
}

/// Starts a walk over the frames of a block that has just been taken.
pub(super) fn start(block: &[u8]) -> Result<Walk, Damaged> {
    let (count, first) = (word(block, 12)?, word(block, 16)?);
    Ok(Walk { at: first, left: count })
}

/// The sequence number of a block that has been taken: the kernel counts those that it fills.
pub(super) fn sequence(block: &[u8]) -> Option<u64> {
    block.get(24..32)?.try_into().ok().map(u64::from_ne_bytes)
}

/// Prepares the next frame of a block and advances.
pub(super) fn prepare(block: &mut [u8], walk: &mut Walk, shape: &Shape) -> Result<View, Damaged> {
    let frame = Header::read(block, walk.at)?;
    let mut data = Data { at: frame.mac as usize, len: frame.snaplen, wire_len: frame.len };
    let sender = frame.sender;
    let tag = frame.tag();
    let bytes = frame_bytes(block, walk.at)?;
    match shape.link {
        // A process before this one has prepared it: the kernel puts a cooked packet at its network header.
        LinkType::LINUX_SLL | LinkType::LINUX_SLL2 if frame.mac < frame.net => Some(()),
        LinkType::LINUX_SLL => data.put_in_front(bytes, &sender.sll()),
        LinkType::LINUX_SLL2 => data.put_in_front(bytes, &sender.sll2()),
        _ => Some(()),
    }
    .ok_or(Damaged(walk.at))?;
    let len_before_tag = data.len;
    if let Some(tag) = tag {
        data.insert_tag(bytes, tag, shape.link).ok_or(Damaged(walk.at))?;
    }
    let restored = data.len != len_before_tag;
    if frame.mac as usize != data.at || tag.is_some() {
        data.store(bytes, restored);
    }
    view(block, walk, shape)
}

/// Reads the next frame of a block, already prepared, and advances.
pub(super) fn view(block: &[u8], walk: &mut Walk, shape: &Shape) -> Result<View, Damaged> {
    let frame = Header::read(block, walk.at)?;
    let sender = frame.sender;
    let outgoing = sender.packet_type == cooked::OUTGOING;
    let view = View {
        data_at: walk.at + frame.mac,
        captured: frame.snaplen.min(shape.snaplen),
        wire_len: frame.len,
        timestamp_ns: u64::from(frame.seconds) * 1_000_000_000 + u64::from(frame.nanoseconds),
        ifindex: sender.ifindex,
        direction: cooked::direction(sender.packet_type),
        restored: frame.restored,
        unsummed: frame.status & UNSUMMED != 0,
        ignored: outgoing && sender.ifindex == shape.loopback,
    };
    walk.left -= 1;
    if walk.left > 0 {
        if frame.next == 0 {
            return Err(Damaged(walk.at));
        }
        walk.at = walk.at.checked_add(frame.next).ok_or(Damaged(walk.at))?;
    }
    Ok(view)
}

/// The fields of a `tpacket3_hdr`, checked to lie in the block.
struct Header {
    next: u32,
    seconds: u32,
    nanoseconds: u32,
    snaplen: u32,
    len: u32,
    status: u32,
    mac: u32,
    net: u32,
    tci: u32,
    tpid: u16,
    restored: bool,
    sender: Sender,
}

impl Header {
    fn read(block: &[u8], at: u32) -> Result<Self, Damaged> {
        let bytes = block.get(at as usize..).ok_or(Damaged(at))?;
        let header = bytes.first_chunk::<DATA_MIN>().ok_or(Damaged(at))?;
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let sender = header.last_chunk::<{ Sender::LEN }>().ok_or(Damaged(at))?;
        let frame = Header {
            next: word(0),
            seconds: word(4),
            nanoseconds: word(8),
            snaplen: word(12),
            len: word(16),
            status: word(20),
            mac: u32::from(half(24)),
            net: u32::from(half(26)),
            tci: word(32),
            tpid: half(36),
            restored: half(RESTORED_AT) != 0,
            sender: Sender::read(sender),
        };
        let end = frame.mac as usize + frame.snaplen as usize;
        let inside = frame.mac as usize >= DATA_MIN && end <= bytes.len();
        if inside { Ok(frame) } else { Err(Damaged(at)) }
    }

    /// Protocol and content of the tag that was removed, if there was one.
    fn tag(&self) -> Option<[u8; TAG_LEN]> {
        if self.tci == 0 && self.status & VLAN_VALID == 0 {
            return None;
        }
        let told = self.tpid != 0 || self.status & TPID_VALID != 0;
        let [t0, t1] = if told { self.tpid } else { ETHERTYPE_VLAN }.to_be_bytes();
        let [c0, c1] = (self.tci as u16).to_be_bytes();
        Some([t0, t1, c0, c1])
    }
}

/// Offset of the bytes of a frame, from its header, and their lengths.
struct Data {
    at: usize,
    len: u32,
    wire_len: u32,
}

impl Data {
    fn grow(&mut self, by: usize) -> Option<()> {
        self.at = self.at.checked_sub(by).filter(|&at| at >= DATA_MIN)?;
        self.len += by as u32;
        self.wire_len = self.wire_len.saturating_add(by as u32);
        Some(())
    }

    fn put_in_front(&mut self, frame: &mut [u8], header: &[u8]) -> Option<()> {
        self.grow(header.len())?;
        frame[self.at..self.at + header.len()].copy_from_slice(header);
        Some(())
    }

    /// Reinserts a tag at its original position: before the field with the next protocol.
    ///
    /// DEPARTURE: libpcap 1.10 leaves the tag out of version 2 cooked headers, which have no other place for it.
    fn insert_tag(&mut self, frame: &mut [u8], tag: [u8; TAG_LEN], link: LinkType) -> Option<()> {
        // Bytes of the link header before the protocol field.
        let before = match link {
            LinkType::EN10MB => 12,
            LinkType::LINUX_SLL => cooked::SLL_LEN - 2,
            LinkType::LINUX_SLL2 => return self.insert_sll2_tag(frame, tag),
            _ => return Some(()),
        };
        if (self.len as usize) < before {
            return Some(());
        }
        self.grow(TAG_LEN)?;
        let at = self.at;
        frame.copy_within(at + TAG_LEN..at + TAG_LEN + before, at);
        frame[at + before..at + before + TAG_LEN].copy_from_slice(&tag);
        Some(())
    }

    /// Reinserts a tag after a version 2 cooked header, where the protocol field comes first: the tag's protocol
    /// replaces it, and the rest of the tag and the protocol follow the header.
    fn insert_sll2_tag(&mut self, frame: &mut [u8], tag: [u8; TAG_LEN]) -> Option<()> {
        self.grow(TAG_LEN)?;
        let at = self.at;
        frame.copy_within(at + TAG_LEN..at + TAG_LEN + cooked::SLL2_LEN, at);
        let [t0, t1, c0, c1] = tag;
        let protocol = [frame[at], frame[at + 1]];
        frame[at..at + 2].copy_from_slice(&[t0, t1]);
        let after = at + cooked::SLL2_LEN;
        frame[after..after + 4].copy_from_slice(&[c0, c1, protocol[0], protocol[1]]);
        Some(())
    }

    /// Writes the new position of the frame to its header, and marks the tag as present.
    fn store(&self, frame: &mut [u8], restored: bool) {
        frame[12..16].copy_from_slice(&self.len.to_ne_bytes());
        frame[16..20].copy_from_slice(&self.wire_len.to_ne_bytes());
        frame[24..26].copy_from_slice(&(self.at as u16).to_ne_bytes());
        frame[32..36].copy_from_slice(&0u32.to_ne_bytes());
        frame[RESTORED_AT..RESTORED_AT + 2].copy_from_slice(&u16::from(restored).to_ne_bytes());
        let status = u32::from_ne_bytes([frame[20], frame[21], frame[22], frame[23]]) & !VLAN_VALID;
        frame[20..24].copy_from_slice(&status.to_ne_bytes());
    }
}

fn frame_bytes(block: &mut [u8], at: u32) -> Result<&mut [u8], Damaged> {
    block.get_mut(at as usize..).ok_or(Damaged(at))
}

fn word(block: &[u8], at: usize) -> Result<u32, Damaged> {
    let field = block.get(at..at + 4).and_then(|field| field.try_into().ok());
    field.map(u32::from_ne_bytes).ok_or(Damaged(at as u32))
}
