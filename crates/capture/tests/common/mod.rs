//! Helpers of this crate's tests: all captures, and the peer `tcpdump`.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod network;

use fyke_capture::{Next, ReadError, Source};
use fyke_testkit::corpus::Corpus;
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

/// All frames of a source, and its error, if any.
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

/// All captures of the corpus.
pub fn captures() -> Vec<PathBuf> {
    Corpus::open().traces("")
}

/// True if `tcpdump` can be run; prints a skip if not.
pub fn have_tcpdump() -> bool {
    let there = Command::new("tcpdump").arg("--version").output().is_ok();
    if !there {
        println!("skipped: no tcpdump");
    }
    there
}

/// The frames that libpcap reads from a file, through `tcpdump -w -` with nanoseconds; and its error text.
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

/// Reads a file that libpcap wrote on this machine: the plain pcap format with nanoseconds, in this byte order.
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
