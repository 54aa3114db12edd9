//! The check of the fuzz target `capture_files` on 10,000 mutants of each kind of file, under every verbosity.

use fyke_testkit::packet::Packet;
use fyke_testkit::pcap::{self, Layout, Record};
use fyke_testkit::pcapng::Pcapng;
use fyke_testkit::random::Random;
use std::io::Write;

#[path = "../../../fuzz/checks/files.rs"]
mod checks;

const MUTANTS: usize = 10_000;

fn frames() -> Vec<Vec<u8>> {
    let v4 = || Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    vec![
        v4().tcp(80, 2).flags(0x18).payload(b"HTTP/1.1 200 OK\r\n\r\n").build(),
        Packet::ethernet().vlan(7).ipv6([0x20; 8], [0x21; 8]).udp(5060, 9).build(),
        v4().icmp(8, 0, 1).payload(&[7; 30]).build(),
    ]
}

fn classic(layout: Layout) -> Vec<u8> {
    let record = |data: Vec<u8>| Record {
        timestamp_ns: 1_700_000_000_123_456_789,
        wire_len: data.len() as u32,
        data,
    };
    let records: Vec<_> = frames().into_iter().map(record).collect();
    pcap::encode(1, &records, layout)
}

/// With a header of 24 bytes per record, as a patched libpcap wrote it.
fn patched() -> Vec<u8> {
    let mut file = classic(Layout::default())[..24].to_vec();
    file[..4].copy_from_slice(&0xa1b2_cd34_u32.to_le_bytes());
    for frame in frames() {
        let words = [1_700_000_000, 5, frame.len() as u32, frame.len() as u32, 3, 0x0800];
        file.extend(words.iter().flat_map(|word: &u32| word.to_le_bytes()));
        file.extend(frame);
    }
    file
}

fn next_generation(big_endian: bool) -> Vec<u8> {
    let mut file = Pcapng::new(big_endian);
    file.interface(1, 0, &[(2, b"eth0"), (9, &[9])]);
    file.interface(113, 96, &[]);
    for (number, frame) in frames().iter().enumerate() {
        let time = 1_700_000_000_000_000_000 + number as u64;
        file.packet(0, time, (frame, frame.len() as u32), &[]);
        file.simple(frame, frame.len() as u32);
    }
    file.block(4, &[0; 8]).block(5, &[0; 12]).block(0x0bad, b"another block");
    file.section(big_endian, &[(3, b"a second section")]);
    file.interface(101, 0, &[]);
    file.bytes()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("memory");
    packer.finish().expect("memory")
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut packer = lz4_flex::frame::FrameEncoder::new(Vec::new());
    packer.write_all(bytes).expect("memory");
    packer.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn mutated(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=random.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, random.number() as u8),
            3 => bytes.extend_from_within(at..),
            4 => bytes[at] ^= 1 << random.below(8),
            5 => bytes[at] = random.pick(&[0, 0xff, 0x7f, 0x80]),
            _ => bytes[at] = random.number() as u8,
        }
    }
    bytes
}

/// Mutants give frames and lines, or a clear error; most kinds of damage give both.
fn check(name: &str, file: &[u8]) {
    let (mut random, seed) = Random::seeded(47);
    println!("{name}: seed {seed}");
    let (whole, error) = checks::read(file.to_vec());
    assert!(whole >= 3 && error.is_none(), "{name}: {whole} frames, {error:?}");
    let (mut frames, mut errors) = (0, 0);
    for _ in 0..MUTANTS {
        let (count, error) = checks::read(mutated(file, &mut random));
        frames += count;
        errors += usize::from(error.is_some());
    }
    assert!(frames > MUTANTS as u64 / 10 && errors > MUTANTS / 20, "{name}: {frames}, {errors}");
}

#[test]
fn mutants_of_pcap() {
    check("pcap", &classic(Layout::default()));
    let foreign = Layout { big_endian: true, nanoseconds: true, ..Layout::default() };
    check("pcap, big-endian, nanoseconds", &classic(foreign));
    check("pcap, patched", &patched());
}

#[test]
fn mutants_of_pcapng() {
    check("pcapng", &next_generation(false));
    check("pcapng, big-endian", &next_generation(true));
}

#[test]
fn mutants_of_compressed_files() {
    check("gzip", &gzip(&classic(Layout::default())));
    check("zstd", &zstd(&next_generation(false)));
    check("lz4", &lz4(&classic(Layout::default())));
}
