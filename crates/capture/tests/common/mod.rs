//! What the tests of this crate share: the folder of captures beside the repository, and the peer `tcpdump`.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod network;

use fyke_capture::{Next, ReadError, Source};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A frame with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    pub data: Vec<u8>,
    pub wire_len: u32,
    pub timestamp_ns: u64,
    pub link: u16,
    pub interface: u32,
}

/// All frames of a source, and how it ended.
pub fn drain(source: &mut dyn Source) -> (Vec<Owned>, Option<ReadError>) {
    let mut frames = Vec::new();
    loop {
        match source.next() {
            Ok(Next::Frames(batch, _)) => {
                assert!(!batch.is_empty(), "a batch has at least one frame");
                assert_eq!(batch.first_sequence, frames.len() as u64, "sequence without gaps");
                frames.extend(batch.frames().iter().map(|frame| Owned {
                    data: frame.data.to_vec(),
                    wire_len: frame.wire_len,
                    timestamp_ns: frame.timestamp_ns,
                    link: frame.link.0,
                    interface: frame.interface,
                }));
            }
            Ok(Next::Idle) => {}
            Ok(Next::End) => return (frames, None),
            Err(error) => {
                assert!(matches!(source.next(), Ok(Next::End)), "the end follows an error");
                return (frames, Some(error));
            }
        }
    }
}

/// The folder of captures, or `None` with a line that says so.
pub fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("FYKE_SHARED").map_or(beside, PathBuf::from);
    let traces = shared.join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    println!("SKIPPED: no folder {} (set FYKE_SHARED)", traces.display());
    None
}

/// All captures below a folder, in order of name.
pub fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".pcap") || name.ends_with(".pcapng") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Whether `tcpdump` can be run; says so when not.
pub fn have_tcpdump() -> bool {
    let there = Command::new("tcpdump").arg("--version").output().is_ok();
    if !there {
        println!("SKIPPED: no tcpdump");
    }
    there
}

/// What libpcap reads from a file, through `tcpdump -w -` with nanoseconds; and its error text.
pub fn tcpdump_reads(path: &Path) -> (Vec<Owned>, Option<String>) {
    let output = Command::new("tcpdump")
        .args(["--time-stamp-precision=nano", "-w", "-", "-r"])
        .arg(path)
        .output()
        .expect("tcpdump runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let failed = (!output.status.success() || errors.contains("pcap_loop")).then_some(errors);
    (parse_native(&output.stdout), failed)
}

/// Reads what libpcap wrote on this machine: the plain pcap format with nanoseconds, this byte order.
pub fn parse_native(bytes: &[u8]) -> Vec<Owned> {
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let mut frames = Vec::new();
    if bytes.len() < 24 {
        return frames;
    }
    let scale = match word(0) {
        0xa1b2_3c4d => 1,
        0xa1b2_c3d4 => 1000,
        other => panic!("not the magic of this machine: {other:08x}"),
    };
    let mut at = 24;
    while at < bytes.len() {
        let captured = word(at + 8) as usize;
        frames.push(Owned {
            data: bytes[at + 16..at + 16 + captured].to_vec(),
            wire_len: word(at + 12),
            timestamp_ns: u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * scale,
            link: (word(20) & 0x03ff_ffff) as u16,
            interface: 0,
        });
        at += 16 + captured;
    }
    frames
}
