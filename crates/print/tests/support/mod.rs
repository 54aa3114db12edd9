//! The shared captures: where they are, and a reader of classic pcap files that is enough for them.

use std::path::{Path, PathBuf};

/// One record of a capture file.
#[allow(dead_code, reason = "not every test looks at times")]
pub struct Record {
    pub timestamp_ns: u64,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

/// The folder with captures, or `None` with a line that says so.
pub fn traces() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = root.join("../shared");
    let shared = std::env::var_os("FYKE_SHARED").map_or(beside, PathBuf::from);
    let traces = shared.join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    println!("skipped: no captures (set FYKE_SHARED)");
    None
}

/// Files of a folder, sorted by name.
#[allow(dead_code, reason = "not every test walks folders")]
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Link type and records of a classic pcap file; `None` for other formats. Stops at the first record that is cut.
pub fn read_pcap(path: &Path, limit: usize) -> Option<(u16, Vec<Record>)> {
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
    while let (Some(seconds), Some(fraction), Some(len), Some(wire_len)) =
        (word(at), word(at + 4), word(at + 8), word(at + 12))
    {
        let Some(data) = bytes.get(at + 16..at + 16 + len as usize) else { break };
        let timestamp_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit_ns;
        records.push(Record { timestamp_ns, wire_len, data: data.to_vec() });
        at += 16 + len as usize;
        if records.len() == limit {
            break;
        }
    }
    Some((link, records))
}
