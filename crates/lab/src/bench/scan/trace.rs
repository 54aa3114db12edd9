//! The capture that the bench makes: TCP segments and datagrams of different lengths, on average about 340 bytes; a
//! fifth of the frames match [`FIFTH`].

use crate::bench::BenchError;
use fyke_capture::{Next, Source};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Expression of which a fifth of the frames match.
pub(super) const FIFTH: &str = "udp port 4711";
/// Words of which payloads are made, so that they can be compressed about as well as real ones.
const WORDS: [&str; 8] =
    ["GET ", "/index ", "Host: ", "example ", "Accept: ", "text ", "keep-alive ", "\r\n"];

/// Writes the capture; returns how many frames match [`FIFTH`].
pub(super) fn make(path: &Path, frames: u64, seed: u64) -> io::Result<u64> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
    let mut header = Vec::new();
    header.extend(0xa1b2_c3d4u32.to_ne_bytes());
    header.extend([2u16, 4].map(u16::to_ne_bytes).concat());
    header.extend([0, 0, 262_144, 1u32].map(u32::to_ne_bytes).concat());
    file.write_all(&header)?;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut frame = Vec::new();
    for number in 0..frames {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        fill(&mut frame, number, state);
        let (seconds, micros) = (1_700_000_000 + number / 100_000, number % 100_000 * 10);
        let len = frame.len() as u32;
        let record = [seconds as u32, micros as u32, len, len].map(u32::to_ne_bytes);
        file.write_all(&record.concat())?;
        file.write_all(&frame)?;
    }
    // Pages that are written can be dropped from the cache.
    file.into_inner()?.sync_all()?;
    Ok(frames.div_ceil(5))
}

/// Builds one frame: every fifth a datagram to port 4711, the others TCP segments.
fn fill(frame: &mut Vec<u8>, number: u64, random: u64) {
    let is_udp = number.is_multiple_of(5);
    let payload_len = match random % 10 {
        0..6 => (random >> 8) % 100,
        6..9 => 100 + (random >> 8) % 500,
        _ => 1_400,
    };
    frame.clear();
    frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
    let header_len = if is_udp { 8 } else { 20 };
    frame.extend((20 + header_len + payload_len as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, if is_udp { 17 } else { 6 }, 0, 0]);
    frame.extend([10, 0, 0, (random >> 16) as u8, 10, 1, 0, (random >> 24) as u8]);
    let port = 40_000 + (random >> 32) as u16 % 1_000;
    frame.extend(port.to_be_bytes());
    if is_udp {
        frame.extend(4_711u16.to_be_bytes());
        frame.extend((8 + payload_len as u16).to_be_bytes());
        frame.extend([0, 0]);
    } else {
        frame.extend(50_001u16.to_be_bytes());
        frame.extend((number as u32).to_be_bytes());
        frame.extend([0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    }
    let end = frame.len() + payload_len as usize;
    let mut word = random;
    while frame.len() < end {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        frame.extend(WORDS[(word >> 61) as usize].bytes());
        frame.push((word >> 32) as u8);
    }
    frame.truncate(end);
}

/// Number of frames of a capture, and how many of them match an expression, each by our own reader and filter.
pub(super) fn counts(path: &Path, text: &str) -> Result<(u64, u64), BenchError> {
    let failed = |message: String| BenchError::File { path: path.to_owned(), message };
    let mut source = fyke_capture::open_file(path).map_err(|error| failed(error.to_string()))?;
    let mut filters = Vec::new();
    let (mut frames, mut hits) = (0, 0);
    loop {
        match source.next().map_err(|error| failed(error.to_string()))? {
            Next::Frames(batch, _) => {
                for frame in batch.frames() {
                    frames += 1;
                    hits += u64::from(matches(&mut filters, text, frame).map_err(failed)?);
                }
            }
            Next::Idle => {}
            Next::End => return Ok((frames, hits)),
        }
    }
}

/// The expression for each link type of a capture.
type Filters = Vec<(fyke_frame::LinkType, fyke_filter::Predicate)>;

fn matches(
    filters: &mut Filters,
    text: &str,
    frame: &fyke_frame::Frame<'_>,
) -> Result<bool, String> {
    if !filters.iter().any(|(link, _)| *link == frame.link) {
        let options = fyke_filter::Options { link: frame.link, ..Default::default() };
        let compiled = fyke_filter::compile(text, &options).map_err(|error| error.to_string())?;
        filters.push((frame.link, compiled));
    }
    let found = filters.iter().find(|(link, _)| *link == frame.link);
    Ok(found.is_some_and(|(_, predicate)| predicate.accepts(frame)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_frames_match() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capture.pcap");
        assert_eq!(make(&path, 1_001, 7).unwrap(), 201);
        assert_eq!(counts(&path, FIFTH).unwrap(), (1_001, 201));
        assert_eq!(counts(&path, "tcp port 50001").unwrap(), (1_001, 800));
        assert!(make(&path, 1, 7).is_err(), "no file is overwritten");
        assert!(counts(&folder.path().join("none"), FIFTH).is_err());
    }
}
