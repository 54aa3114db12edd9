//! Frames as bytes: 32 bytes of metadata for each, and its captured bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | time stamp, nanoseconds since 1970 |
//! | 4, 4 | captured bytes, bytes on the wire |
//! | 2 | link type |
//! | 1, 1 | direction, flags |
//! | 2, 2 | tag that the device has removed, zero |
//! | 4, 4 | index of the interface there, number of the interface |
//!
//! All numbers are little-endian.

use fyke_capture::DEFAULT_SNAPLEN;
use fyke_frame::{Direction, Frame, LinkType, Meta};
use std::ops::Range;

/// Bytes of metadata.
pub const HEAD: usize = 32;
/// A message of frames has at most this many bytes, and one frame more.
pub const FULL: usize = 256 << 10;
/// Most bytes of a message of frames.
pub const MAX_BYTES: usize = FULL + HEAD + DEFAULT_SNAPLEN as usize;

const TAGGED: u8 = 1;
const RESTORED: u8 = 2;
const LATE: u8 = 4;
const UNSUMMED: u8 = 8;

/// Appends a frame.
pub fn append(frame: &Frame<'_>, into: &mut Vec<u8>) {
    let meta = &frame.meta;
    let flags = [
        (meta.vlan.is_some(), TAGGED),
        (meta.restored, RESTORED),
        (meta.late, LATE),
        (meta.unsummed, UNSUMMED),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
    into.extend_from_slice(&frame.timestamp_ns.to_le_bytes());
    into.extend_from_slice(&(frame.data.len() as u32).to_le_bytes());
    into.extend_from_slice(&frame.wire_len.to_le_bytes());
    into.extend_from_slice(&frame.link.0.to_le_bytes());
    into.extend_from_slice(&[meta.direction as u8, flags]);
    into.extend_from_slice(&meta.vlan.unwrap_or(0).to_le_bytes());
    into.extend_from_slice(&[0; 2]);
    into.extend_from_slice(&meta.ifindex.to_le_bytes());
    into.extend_from_slice(&frame.interface.to_le_bytes());
    into.extend_from_slice(frame.data);
}

/// Frames of a message, checked.
#[derive(Debug, Default)]
pub struct Received {
    bytes: Vec<u8>,
    /// The place of each frame's metadata.
    starts: Vec<usize>,
}

impl Received {
    /// Checks a message.
    ///
    /// # Errors
    /// It is no message of frames of these many interfaces.
    pub fn new(bytes: Vec<u8>, interfaces: usize) -> Result<Received, String> {
        let (mut starts, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let head = bytes.get(at..at + HEAD).ok_or("the metadata of a frame are cut")?;
            let word = |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[from + byte]));
            let (len, interface) = (word(8), word(28));
            if len > DEFAULT_SNAPLEN {
                return Err(format!("a frame has {len} bytes; at most {DEFAULT_SNAPLEN}"));
            }
            if interface as usize >= interfaces {
                return Err(format!("a frame of interface {interface} of {interfaces}"));
            }
            if direction(head[18]).is_none() || head[19] > TAGGED + RESTORED + LATE + UNSUMMED {
                return Err("a frame has unknown flags".to_owned());
            }
            starts.push(at);
            at += HEAD + len as usize;
        }
        match at == bytes.len() {
            true => Ok(Received { bytes, starts }),
            false => Err("the bytes of a frame are cut".to_owned()),
        }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes of the message.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A frame.
    ///
    /// # Panics
    /// There are fewer.
    pub fn frame(&self, index: usize) -> Frame<'_> {
        let start = self.starts[index];
        let head = &self.bytes[start..start + HEAD];
        let word = |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[from + byte]));
        let half = |from: usize| u16::from_le_bytes([head[from], head[from + 1]]);
        let flag = |flag: u8| head[19] & flag != 0;
        let data: Range<usize> = start + HEAD..start + HEAD + word(8) as usize;
        Frame {
            wire_len: word(12),
            timestamp_ns: u64::from(word(0)) | u64::from(word(4)) << 32,
            interface: word(28),
            meta: Meta {
                direction: direction(head[18]).unwrap_or_default(),
                ifindex: word(24),
                vlan: flag(TAGGED).then_some(half(20)),
                restored: flag(RESTORED),
                late: flag(LATE),
                unsummed: flag(UNSUMMED),
            },
            ..Frame::new(LinkType(half(16)), &self.bytes[data])
        }
    }
}

fn direction(byte: u8) -> Option<Direction> {
    let all = [
        Direction::Unknown,
        Direction::Inbound,
        Direction::Broadcast,
        Direction::Multicast,
        Direction::OtherHost,
        Direction::Outbound,
    ];
    all.into_iter().find(|direction| *direction as u8 == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<u8> {
        let meta = Meta {
            direction: Direction::Outbound,
            ifindex: 7,
            vlan: Some(0x2005),
            restored: true,
            late: false,
            unsummed: true,
        };
        let first = Frame {
            wire_len: 1_500,
            timestamp_ns: u64::MAX - 1,
            interface: 1,
            meta,
            ..Frame::new(LinkType::EN10MB, b"abc")
        };
        let mut bytes = Vec::new();
        append(&first, &mut bytes);
        append(&Frame::new(LinkType::LINUX_SLL2, b""), &mut bytes);
        bytes
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let received = Received::new(two(), 2).unwrap();
        assert_eq!(received.len(), 2);
        let first = received.frame(0);
        assert_eq!(
            (first.data, first.wire_len, first.timestamp_ns),
            (&b"abc"[..], 1_500, u64::MAX - 1)
        );
        assert_eq!((first.link, first.interface), (LinkType::EN10MB, 1));
        assert_eq!((first.meta.vlan, first.meta.ifindex), (Some(0x2005), 7));
        assert!(first.meta.restored && first.meta.unsummed && !first.meta.late);
        assert_eq!(first.meta.direction, Direction::Outbound);
        let second = received.frame(1);
        assert_eq!((second.data.len(), second.link), (0, LinkType::LINUX_SLL2));
        assert_eq!(second.meta, Meta::default());
    }

    #[test]
    fn damaged_messages_are_refused() {
        let whole = two();
        for end in 1..whole.len() {
            let cut = Received::new(whole[..end].to_vec(), 2);
            assert_eq!(cut.is_ok(), end == HEAD + 3, "{end}");
        }
        assert!(Received::new(whole.clone(), 1).unwrap_err().contains("interface 1 of 1"));
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                if let Ok(received) = Received::new(damaged, 2) {
                    (0..received.len())
                        .for_each(|index| assert!(received.frame(index).data.len() < whole.len()));
                }
            }
        }
        let mut long = whole;
        long[8..12].copy_from_slice(&(DEFAULT_SNAPLEN + 1).to_le_bytes());
        assert!(Received::new(long, 2).unwrap_err().contains("262145 bytes"));
    }
}
