//! Damaged and hostile files, look-back, memory limits: tests that need the internals of a file source.

use super::*;
use crate::memory::MemorySource;
use crate::sink::{Format, WriteOptions, create_file};
use fyke_testkit::faults::Faulty;
use fyke_testkit::random::Random;
use std::io::{Cursor, Write};

/// A capture of frames of many lengths, as a file in memory.
fn capture(format: Format, frames: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    let mut memory = MemorySource::new(LinkType::EN10MB);
    for number in 0..frames {
        let data = vec![number as u8; 20 + number * 37 % 200];
        let timestamp_ns = number as u64 * 1_000_000_007;
        memory.push(&Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, &data) });
    }
    let options = WriteOptions { format: Some(format), ..Default::default() };
    let mut sink = create_file(&path, options).expect("a new file");
    while let Ok(Next::Frames(batch, look_back)) = memory.next() {
        for frame in batch.frames() {
            sink.write(&look_back.interfaces()[0], frame).expect("written");
        }
    }
    sink.finish().expect("whole");
    std::fs::read(path).expect("the file")
}

fn open(bytes: Vec<u8>) -> Result<FileSource, ReadError> {
    FileSource::from_reader("test", Cursor::new(bytes), FileOptions::default())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(bytes).expect("packed");
    packer.finish().expect("packed")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut packer = lz4_flex::frame::FrameEncoder::new(Vec::new());
    packer.write_all(bytes).expect("packed");
    packer.finish().expect("packed")
}

/// Lengths and times of all frames, and the error at the end.
fn drain(bytes: Vec<u8>) -> (Vec<(usize, u64)>, Option<String>) {
    drain_reader(Cursor::new(bytes))
}

fn drain_reader(reader: impl Read + Send + 'static) -> (Vec<(usize, u64)>, Option<String>) {
    let mut frames = Vec::new();
    let mut source = match FileSource::from_reader("test", reader, FileOptions::default()) {
        Ok(source) => source,
        Err(error) => return (frames, Some(error.to_string())),
    };
    loop {
        match source.next() {
            Ok(Next::Frames(batch, _)) => {
                frames.extend(batch.frames().iter().map(|f| (f.data.len(), f.timestamp_ns)));
            }
            Ok(Next::Idle) => {}
            Ok(Next::End) => return (frames, None),
            Err(error) => {
                assert!(matches!(source.next(), Ok(Next::End)));
                return (frames, Some(error.to_string()));
            }
        }
    }
}

#[test]
fn every_truncation_delivers_what_is_whole() {
    for format in [Format::Pcap, Format::Pcapng] {
        let whole = capture(format, 30);
        let (all, none) = drain(whole.clone());
        assert_eq!((all.len(), none), (30, None));
        let mut clean_ends = 0;
        for len in 0..whole.len() {
            let (frames, error) = drain(whole[..len].to_vec());
            assert!(frames == all[..frames.len()], "{format:?} cut to {len}");
            match error {
                // The cut is between two records, so it cannot be detected.
                None => clean_ends += 1,
                Some(text) => {
                    assert!(text.starts_with("test: at byte "), "{text}");
                    assert!(text.contains("the file is cut short: "), "{text}");
                }
            }
        }
        // Before every frame, and in pcapng also after the section header.
        assert_eq!(clean_ends, if format == Format::Pcap { 30 } else { 31 }, "{format:?}");
    }
}

#[test]
fn packed_files_and_every_truncation_of_them() {
    let plain = capture(Format::Pcap, 30);
    let (all, _) = drain(plain.clone());
    let packed = [("gzip", gzip(&plain)), ("zstd", zstd(&plain)), ("lz4", lz4(&plain))];
    for (what, packed) in packed {
        assert_eq!(drain(packed.clone()), (all.clone(), None), "{what}");
        for len in 0..packed.len() {
            let (frames, error) = drain(packed[..len].to_vec());
            assert!(frames == all[..frames.len()], "{what} cut to {len}");
            assert!(error.is_some(), "{what} cut to {len} of {} is noticed", packed.len());
        }
    }
}

#[test]
fn several_members_and_frames_are_one_file() {
    let plain = capture(Format::Pcap, 30);
    let (all, _) = drain(plain.clone());
    let (first, second) = plain.split_at(plain.len() / 2);
    let skippable = [0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    assert_eq!(drain([gzip(first), gzip(second)].concat()), (all.clone(), None));
    assert_eq!(drain([lz4(first), lz4(second)].concat()), (all.clone(), None));
    let parts = [&skippable[..], &zstd(first), &skippable, &zstd(second), &skippable].concat();
    assert_eq!(drain(parts), (all, None));
}

#[test]
fn damaged_zstd_hands_out_what_came_before() {
    // Many blocks; the last one is damaged in its checksum or its content.
    let plain = capture(Format::Pcap, 20_000);
    let (all, _) = drain(plain.clone());
    let mut packed = zstd(&plain);
    let len = packed.len();
    packed.truncate(len - 100);
    let (frames, error) = drain(packed);
    let error = error.expect("noticed");
    assert!(frames.len() > all.len() / 2, "{} of {} frames: {error}", frames.len(), all.len());
    assert!(frames == all[..frames.len()]);
}

#[test]
fn a_slow_reader_gives_the_same_frames() {
    struct OneByOne(Cursor<Vec<u8>>);
    impl Read for OneByOne {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let len = buffer.len().min(1);
            self.0.read(&mut buffer[..len])
        }
    }
    for format in [Format::Pcap, Format::Pcapng] {
        let bytes = capture(format, 50);
        let reader = OneByOne(Cursor::new(bytes));
        let mut source =
            FileSource::from_reader("slow", reader, FileOptions::default()).expect("a capture");
        let mut count = 0;
        while let Ok(Next::Frames(batch, _)) = source.next() {
            count += batch.len();
        }
        assert_eq!(count, 50);
    }
}

/// Checks that interruptions and short reads change nothing; an error is reported once, after all earlier frames.
#[test]
fn faults_of_reading_lose_nothing_before_them() {
    let plain = [capture(Format::Pcap, 3000), capture(Format::Pcapng, 3000)];
    let (all, none) = drain(plain[0].clone());
    assert_eq!((all.len(), none), (3000, None));
    let packed = [gzip(&plain[0]), zstd(&plain[1]), lz4(&plain[1])];
    let files = plain.iter().chain(&packed);
    for (number, bytes) in files.enumerate() {
        for seed in 0..60 {
            let what = format!("file {number}, seed {seed}");
            let faulty = || Faulty::new(Cursor::new(bytes.clone()), seed);
            // A read from a pipe with a compressed capture waits.
            let soft = if number < 2 { faulty().blocks() } else { faulty() };
            assert!(drain_reader(soft) == (all.clone(), None), "{what}");
            let at = Random::new(seed).below(bytes.len());
            let (frames, error) = drain_reader(faulty().breaks(at as u64, 5));
            assert!(frames == all[..frames.len()], "{what}");
            let error = error.unwrap_or_else(|| panic!("{what}: no error"));
            assert!(error.contains("Input/output error"), "{what}: {error}");
            if number < 2 {
                // Every record that arrived completely.
                let (expected, _) = drain(bytes[..at].to_vec());
                assert_eq!(frames.len(), expected.len(), "{what}");
            }
        }
    }
}

#[test]
fn random_damage_neither_panics_nor_hangs() {
    let files = [
        capture(Format::Pcap, 40),
        capture(Format::Pcapng, 40),
        gzip(&capture(Format::Pcap, 40)),
        zstd(&capture(Format::Pcapng, 40)),
        lz4(&capture(Format::Pcap, 40)),
    ];
    let mut random = 12_345u64;
    let mut roll = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for round in 0..4000 {
        let mut bytes = files[round % files.len()].clone();
        for _ in 0..1 + roll(4) {
            let at = roll(bytes.len());
            bytes[at] = [0, 0xff, 0x7f, bytes[at] ^ 1 << roll(8)][roll(4)];
        }
        let len = bytes.len();
        let (frames, _) = drain(bytes);
        // A damaged compressed file may expand to more; a plain one cannot have more frames than record headers.
        assert!(round % files.len() > 1 || frames.len() <= len / 16, "round {round}");
    }
}

#[test]
fn lies_about_lengths_cost_no_memory() {
    let mut pcap = capture(Format::Pcap, 1);
    pcap[32..36].copy_from_slice(&200_000u32.to_ne_bytes());
    let mut pcapng = capture(Format::Pcapng, 1);
    let packet = pcapng.len() - (32 + 20);
    pcapng[packet + 4..packet + 8].copy_from_slice(&(16u32 << 20).to_ne_bytes());
    for bytes in [pcap, pcapng] {
        let mut source = open(bytes).expect("a capture");
        let text = source.next().expect_err("cut short").to_string();
        assert!(text.contains("cut short"), "{text}");
        assert_eq!(source.buffer.capacity(), 1 << 18);
    }
}

#[test]
fn what_is_stepped_over_is_not_kept() {
    /// 100 MiB of unknown blocks.
    struct Unknown(u64);
    impl Read for Unknown {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let mut block = [0; 64];
            block[..4].copy_from_slice(&0x0bad_u32.to_ne_bytes());
            block[4..8].copy_from_slice(&64u32.to_ne_bytes());
            block[60..].copy_from_slice(&64u32.to_ne_bytes());
            let count = (buffer.len() / 64).min(self.0 as usize);
            for room in buffer.chunks_exact_mut(64).take(count) {
                room.copy_from_slice(&block);
            }
            self.0 -= count as u64;
            Ok(count * 64)
        }
    }
    let head = capture(Format::Pcapng, 1);
    let reader = Cursor::new(head).chain(Unknown(100 << 14));
    let mut source =
        FileSource::from_reader("unknown", reader, FileOptions::default()).expect("a capture");
    assert!(matches!(source.next(), Ok(Next::Frames(..))));
    assert!(matches!(source.next(), Ok(Next::End)));
    assert_eq!(source.buffer.capacity(), 1 << 18);
}

#[test]
fn look_back_by_bytes() {
    let bytes = capture(Format::Pcap, 5000);
    for look_back_bytes in [0, 10_000, 1 << 22] {
        let options = FileOptions { look_back_bytes, ..FileOptions::default() };
        let mut source = FileSource::from_reader("test", Cursor::new(bytes.clone()), options)
            .expect("a capture");
        let mut lent: Vec<(Vec<u8>, u64)> = Vec::new();
        while let Ok(Next::Frames(batch, look_back)) = source.next() {
            let back: Vec<_> = look_back.frames().collect();
            let held: usize = back.iter().map(|(_, frame)| frame.data.len() + 16).sum();
            assert!(held <= look_back_bytes);
            let full = lent.len() < back.len() + 1 || held + 16 + 220 > look_back_bytes;
            assert!(full || look_back_bytes == 0, "as many as fit");
            let first = lent.len() - back.len();
            for (index, (sequence, frame)) in back.iter().enumerate() {
                assert_eq!(*sequence, (first + index) as u64);
                assert_eq!(frame.data, lent[first + index].0);
                assert_eq!(frame.timestamp_ns, lent[first + index].1);
            }
            for frame in batch.frames() {
                lent.push((frame.data.to_vec(), frame.timestamp_ns));
            }
        }
        assert_eq!(lent.len(), 5000);
    }
}

/// A pcap file header and one record header with a packet of 4 bytes, in the given byte order and with the given
/// numbers.
fn pcap(magic: u32, version: (u16, u16), snaplen: u32, first: u32, second: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&magic.to_be_bytes());
    bytes.extend_from_slice(&version.0.to_be_bytes());
    bytes.extend_from_slice(&version.1.to_be_bytes());
    for word in [0, 0, snaplen, 1, 7, 5, first, second] {
        bytes.extend_from_slice(&u32::to_be_bytes(word));
    }
    if magic == 0xa1b2_cd34 {
        bytes.extend_from_slice(&[0, 0, 0, 9, 8, 0, 4, 0]);
    }
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    bytes
}

#[test]
fn old_and_odd_pcap_files() {
    let micro = 0xa1b2_c3d4;
    // Version, snapshot length, the two length fields; captured length and wire length.
    for (version, snaplen, first, second, captured, wire_len) in [
        ((2, 4), 100, 4, 60, 4, 60),
        ((2, 4), 0, 4, 60, 4, 60),
        ((2, 4), u32::MAX, 4, 60, 4, 60),
        ((2, 4), 3, 4, 60, 3, 60),
        ((2, 4), 100, 4, 2, 4, 2),
        ((2, 3), 100, 4, 60, 4, 60),
        ((2, 3), 100, 60, 4, 4, 60),
        ((2, 2), 100, 60, 4, 4, 60),
        ((543, 0), 100, 60, 4, 4, 60),
    ] {
        let mut source = open(pcap(micro, version, snaplen, first, second)).expect("a capture");
        let Ok(Next::Frames(batch, _)) = source.next() else { panic!("one frame") };
        let frame = &batch.frames()[0];
        assert_eq!((frame.data.len(), frame.wire_len), (captured, wire_len), "{version:?}");
        assert_eq!(frame.timestamp_ns, 7_000_005_000);
    }
    let mut source = open(pcap(0xa1b2_3c4d, (2, 4), 9, 4, 4)).expect("nanoseconds");
    let Ok(Next::Frames(batch, _)) = source.next() else { panic!("one frame") };
    assert_eq!(batch.frames()[0].timestamp_ns, 7_000_000_005);
    let mut source = open(pcap(0xa1b2_cd34, (2, 4), 9, 4, 4)).expect("Kuznetsov's");
    let Ok(Next::Frames(batch, _)) = source.next() else { panic!("one frame") };
    let meta = batch.frames()[0].meta;
    assert_eq!((meta.ifindex, meta.direction), (9, Direction::Outbound));
    assert_eq!(batch.frames()[0].data, [1, 2, 3, 4]);

    for (version, text) in [((1, 9), "version 1.9 of pcap"), ((2, 5), "version 2.5 of pcap")] {
        let error = open(pcap(micro, version, 100, 4, 4)).err().expect("refused").to_string();
        assert!(error.contains(text), "{error}");
    }
    let (_, error) = drain(pcap(micro, (2, 4), 100, 300_000, 300_000));
    assert_eq!(
        error.as_deref(),
        Some("test: at byte 24: captured length 300000 is more than 262144")
    );
    let error = open(b"#!/bin/sh\n".to_vec()).err().expect("refused").to_string();
    assert!(error.starts_with("test: at byte 0: neither pcap nor pcapng"), "{error}");
}
