//! Reads and makes classic pcap files, for tests of the crates below `capture`, which has the real reader.

use std::path::Path;

/// One record of a capture file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Capture time in nanoseconds since 1970.
    pub timestamp_ns: u64,
    /// Length on the wire, in bytes.
    pub wire_len: u32,
    /// Captured bytes.
    pub data: Vec<u8>,
}

/// Link type and the first `limit` records of a classic pcap file (microseconds or nanoseconds, both byte orders);
/// `None` for other formats. Ends at the first record that is cut.
pub fn read(path: &Path, limit: usize) -> Option<(u16, Vec<Record>)> {
    let bytes = std::fs::read(path).ok()?;
    let magic = u32::from_le_bytes(*bytes.first_chunk()?);
    let (swapped, unit_ns) = match magic {
        0xa1b2_c3d4 => (false, 1000),
        0xa1b2_3c4d => (false, 1),
        0xd4c3_b2a1 => (true, 1000),
        0x4d3c_b2a1 => (true, 1),
        _ => return None,
    };
    let word = |at: usize| {
        let word = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        Some(if swapped { word.swap_bytes() } else { word })
    };
    let link = word(20)? as u16;
    let (mut at, mut records) = (24, Vec::new());
    while records.len() < limit {
        let header = (word(at), word(at + 4), word(at + 8), word(at + 12));
        let (Some(seconds), Some(fraction), Some(len), Some(wire_len)) = header else { break };
        let Some(data) = bytes.get(at + 16..at + 16 + len as usize) else { break };
        let timestamp_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit_ns;
        records.push(Record { timestamp_ns, wire_len, data: data.to_vec() });
        at += 16 + len as usize;
    }
    Some((link, records))
}

/// A little-endian capture file of these frames, one a second from 1970 on.
pub fn file(link: u16, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4u32.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(262_144u32.to_le_bytes());
    file.extend(u32::from(link).to_le_bytes());
    for (second, frame) in (0u32..).zip(frames) {
        let length = (frame.len() as u32).to_le_bytes();
        file.extend([second.to_le_bytes(), [0; 4], length, length].concat());
        file.extend(frame);
    }
    file
}
