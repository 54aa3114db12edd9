//! Reader and writer of classic pcap files, for tests of the crates below `capture`, which has the real reader.

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

/// Format of the header and the records of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// True for times in nanoseconds, false for microseconds.
    pub nanoseconds: bool,
    /// True for big-endian files.
    pub big_endian: bool,
    /// Snapshot length in the header.
    pub snaplen: u32,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { nanoseconds: false, big_endian: false, snaplen: 262_144 }
    }
}

/// Reads the link type and the first `limit` records of a classic pcap file (microseconds or nanoseconds, both byte
/// orders); `None` for other formats. Stops at the first truncated record.
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

/// Makes a little-endian capture file of these frames, one per second from 1970 on.
pub fn file(link: u16, frames: &[Vec<u8>]) -> Vec<u8> {
    let record = |(second, frame): (u64, &Vec<u8>)| Record {
        timestamp_ns: second * 1_000_000_000,
        wire_len: frame.len() as u32,
        data: frame.clone(),
    };
    let records: Vec<_> = (0..).zip(frames).map(record).collect();
    encode(link, &records, Layout::default())
}

/// Makes a capture file of these records; times are truncated to the unit of the layout.
pub fn encode(link: u16, records: &[Record], layout: Layout) -> Vec<u8> {
    let order = |word: u32| match layout.big_endian {
        true => word.to_be_bytes(),
        false => word.to_le_bytes(),
    };
    let (magic, unit_ns) = if layout.nanoseconds { (0xa1b2_3c4d, 1) } else { (0xa1b2_c3d4, 1_000) };
    let version = if layout.big_endian { 0x0002_0004 } else { 0x0004_0002 };
    let header = [magic, version, 0, 0, layout.snaplen, u32::from(link)];
    let mut file: Vec<u8> = header.iter().flat_map(|&word| order(word)).collect();
    for record in records {
        let seconds = (record.timestamp_ns / 1_000_000_000) as u32;
        let fraction = (record.timestamp_ns % 1_000_000_000 / unit_ns) as u32;
        let words = [seconds, fraction, record.data.len() as u32, record.wire_len];
        file.extend(words.iter().flat_map(|&word| order(word)));
        file.extend(&record.data);
    }
    file
}
