//! `pcapng`, and the variants of pcap: byte orders, units of time, sections, interfaces, options, compression.

use super::CaptureFile;
use super::payload;
use super::scene::{Scene, v4};
use super::talk::Talk;
use crate::packet::Packet;
use crate::pcap::{Layout, Record};
use crate::pcapng::Pcapng;
use std::io::Write;

/// Returns a few frames of all kinds.
pub fn sample() -> Scene {
    let mut scene = Scene::new(1);
    let mut talk = Talk::open((v4(1), 40_000), (v4(2), 80));
    talk.client(&payload::http_request("www.example.org", "/")).server(b"HTTP/1.1 204 No\r\n\r\n");
    talk.close();
    talk.frames().into_iter().for_each(|frame| scene.push(frame));
    scene.wait_ns(3_000_000_000);
    let four = || Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    scene.push(four().udp(40_000, 53).payload(&payload::dns_query(1, "example.org", 1)).build());
    scene.push(Packet::ethernet().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]).build());
    scene.push(Packet::ethernet().ipv6([0x20; 8], [0x21; 8]).icmpv6(128, 0, 1).build());
    scene
}

/// Converts a record's time to a unit of the given number per second.
fn time(record: &Record, a_second: u64) -> u64 {
    let (seconds, rest) =
        (record.timestamp_ns / 1_000_000_000, record.timestamp_ns % 1_000_000_000);
    seconds * a_second + (u128::from(rest) * u128::from(a_second) / 1_000_000_000) as u64
}

fn all_of(file: &mut Pcapng, interface: u32, scene: &Scene, a_second: u64) {
    for record in &scene.records {
        let data = (&record.data[..], record.wire_len);
        file.packet(interface, time(record, a_second), data, &[]);
    }
}

/// Describes an interface with this time unit, in the encoding of `if_tsresol`.
fn unit(big_endian: bool, resolution: u8, a_second: u64) -> Vec<u8> {
    let mut file = Pcapng::new(big_endian);
    file.interface(1, 0, &[(2, b"eth0"), (9, &[resolution])]);
    all_of(&mut file, 0, &sample(), a_second);
    file.bytes()
}

/// Makes a file with every content that a block can have: comments, names, statistics, flags, unknown blocks.
fn annotated(big_endian: bool) -> Vec<u8> {
    let scene = sample();
    let mut file = Pcapng::new(big_endian);
    file.section(
        big_endian,
        &[(1, b"a comment"), (2, b"hardware"), (3, b"system"), (4, b"testkit")],
    );
    let offset = if big_endian { 7u64.to_be_bytes() } else { 7u64.to_le_bytes() };
    file.interface(
        1,
        65_535,
        &[(2, b"eth0"), (3, b"the first"), (6, &[2, 0, 0, 0, 0, 1]), (9, &[9]), (14, &offset)],
    );
    // Names of addresses, a custom block, a custom block that may not be copied, a block of unknown type.
    file.block(4, &[0; 4]).block(0xbad, &[0, 0, 0, 9, 1, 2, 3, 4]);
    file.block(0x4000_0bad, &[0, 0, 0, 9, 5, 6, 7, 8]).block(0x7777_7777, b"unknown");
    for (number, record) in scene.records.iter().enumerate() {
        let flags = if big_endian { 1u32.to_be_bytes() } else { 1u32.to_le_bytes() };
        let data = (&record.data[..], record.wire_len);
        let comment = format!("frame {number}");
        file.packet(0, time(record, 1_000_000_000), data, &[(1, comment.as_bytes()), (2, &flags)]);
    }
    let mut statistics = vec![0; 12];
    statistics.extend(file_option(big_endian, 4, &[0, 0, 0, 0, 0, 0, 0, 9]));
    file.block(5, &statistics);
    file.bytes()
}

fn file_option(big_endian: bool, code: u16, value: &[u8]) -> Vec<u8> {
    let half = |half: u16| if big_endian { half.to_be_bytes() } else { half.to_le_bytes() };
    [&half(code)[..], &half(value.len() as u16), value, &[0; 4]].concat()
}

/// Makes interfaces of one link type with different units and alternating packets.
fn interfaces(big_endian: bool) -> Vec<u8> {
    let mut file = Pcapng::new(big_endian);
    let units: [(u8, u64); 4] = [(6, 1_000_000), (9, 1_000_000_000), (3, 1_000), (0x94, 1 << 20)];
    for (number, (resolution, _)) in units.iter().enumerate() {
        let name = format!("eth{number}");
        file.interface(1, 262_144, &[(2, name.as_bytes()), (9, &[*resolution])]);
    }
    for (number, record) in sample().records.iter().enumerate() {
        let (_, a_second) = units[number % 4];
        let data = (&record.data[..], record.wire_len);
        file.packet((number % 4) as u32, time(record, a_second), data, &[]);
    }
    file.bytes()
}

/// Makes interfaces of several link types.
fn several_links() -> Vec<u8> {
    let mut file = Pcapng::new(false);
    file.interface(1, 0, &[(2, b"eth0")]).interface(101, 0, &[(2, b"tun0")]);
    file.interface(113, 0, &[(2, b"any")]);
    let raw = Packet::raw().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let cooked = Packet::sll().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    for record in &sample().records {
        let at = time(record, 1_000_000);
        file.packet(0, at, (&record.data, record.wire_len), &[]);
        file.packet(1, at, (&raw, raw.len() as u32), &[]);
        file.packet(2, at, (&cooked, cooked.len() as u32), &[]);
    }
    file.bytes()
}

/// Makes consecutive sections; the second may have the other byte order.
fn sections(first: bool, second: bool) -> Vec<u8> {
    let scene = sample();
    let mut file = Pcapng::new(first);
    file.interface(1, 0, &[]);
    all_of(&mut file, 0, &scene, 1_000_000);
    file.section(second, &[]).interface(1, 0, &[]);
    all_of(&mut file, 0, &scene, 1_000_000);
    file.bytes()
}

fn pcapng_files() -> Vec<(&'static str, Vec<u8>)> {
    let mut simple = Pcapng::new(false);
    simple.interface(1, 64, &[]);
    let mut old = Pcapng::new(true);
    old.interface(1, 0, &[]);
    let mut snapped = Pcapng::new(false);
    snapped.interface(1, 40, &[]);
    for record in &sample().records {
        let cut = &record.data[..record.data.len().min(64)];
        simple.simple(cut, record.wire_len);
        old.old_packet(0, time(record, 1_000_000), &record.data);
        let cut = &record.data[..record.data.len().min(40)];
        snapped.packet(0, time(record, 1_000_000), (cut, record.wire_len), &[]);
    }
    let mut no_frames = Pcapng::new(false);
    no_frames.interface(1, 0, &[(2, b"quiet")]);
    vec![
        ("little.pcapng", unit(false, 6, 1_000_000)),
        ("big.pcapng", unit(true, 6, 1_000_000)),
        ("nanoseconds.pcapng", unit(false, 9, 1_000_000_000)),
        ("nanoseconds-big.pcapng", unit(true, 9, 1_000_000_000)),
        ("milliseconds.pcapng", unit(false, 3, 1_000)),
        ("powers-of-two.pcapng", unit(false, 0x8a, 1 << 10)),
        ("annotated.pcapng", annotated(false)),
        ("annotated-big.pcapng", annotated(true)),
        ("interfaces.pcapng", interfaces(false)),
        ("interfaces-big.pcapng", interfaces(true)),
        ("several-links.pcapng", several_links()),
        ("sections.pcapng", sections(false, false)),
        ("sections-big.pcapng", sections(true, true)),
        ("sections-of-both-orders.pcapng", sections(false, true)),
        ("simple.pcapng", simple.bytes()),
        ("old.pcapng", old.bytes()),
        ("snapped.pcapng", snapped.bytes()),
        ("no-frames.pcapng", no_frames.bytes()),
        ("no-interface.pcapng", Pcapng::new(false).bytes()),
    ]
}

/// Compresses bytes with gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// Compresses bytes with Zstandard.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Returns the files: `pcapng`, and the variants of pcap in `mixed`.
pub fn files() -> Vec<CaptureFile> {
    let of = |(name, bytes): (&str, Vec<u8>)| CaptureFile::new("pcapng", name, bytes);
    let mut files: Vec<_> = pcapng_files().into_iter().map(of).collect();
    let scene = sample();
    for (name, nanoseconds, big_endian, snaplen) in [
        ("layout-little-us", false, false, 262_144),
        ("layout-little-ns", true, false, 262_144),
        ("layout-big-us", false, true, 262_144),
        ("layout-big-ns", true, true, 262_144),
        ("layout-no-snaplen", false, false, 0),
        ("layout-small-snaplen", false, false, 96),
    ] {
        let cut = if snaplen == 96 { 96 } else { usize::MAX };
        let bytes =
            scene.clone().snapped(cut).laid_out(Layout { nanoseconds, big_endian, snaplen });
        files.push(CaptureFile::new("mixed", &format!("{name}.pcap"), bytes));
    }
    files
}

/// Returns compressed captures with their names; libpcap's own tools do not read them.
pub fn compressed() -> Vec<(&'static str, Vec<u8>)> {
    let (pcap, pcapng) = (sample().pcap(), unit(false, 6, 1_000_000));
    vec![
        ("sample.pcap.gz", gzip(&pcap)),
        ("sample.pcapng.gz", gzip(&pcapng)),
        ("sample.pcap.zst", zstd(&pcap)),
        ("sample.pcapng.zst", zstd(&pcapng)),
    ]
}
