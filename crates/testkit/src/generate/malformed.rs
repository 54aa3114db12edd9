//! `malformed`: files that are truncated or inconsistent, and frames that are truncated, inconsistent or contain loops.

use super::CaptureFile;
use super::formats::sample;
use super::payload;
use super::scene::Scene;
use super::tunnels;
use crate::packet::Packet;
use crate::pcap::Layout;
use crate::pcapng::Pcapng;
use crate::random::Random;

/// Makes a classic file with one changed word.
fn with_word(at: usize, word: u32) -> Vec<u8> {
    let mut bytes = sample().pcap();
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    bytes
}

/// Makes classic files.
fn pcap_files() -> Vec<(String, Vec<u8>)> {
    let whole = sample().pcap();
    let mut files = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| files.push((format!("{name}.pcap"), bytes));
    // Truncated in the magic number, the header, a record's header, its bytes; and at the end of each.
    for cut in [0, 1, 4, 10, 23, 24, 25, 32, 39, 40, 41, 60, whole.len() - 1] {
        add(&format!("file-cut-at-{cut}"), whole[..cut].to_vec());
    }
    for (name, at, word) in [
        ("magic", 0, 0xa1b2_c3d5),
        ("magic-modified", 0, 0xa1b2_cd34),
        ("version-old", 4, 0x0002_0002),
        ("version-new", 4, 0x0009_0009),
        ("link-unknown", 20, 0x0000_ffff),
        ("link-with-flags", 20, 0x1400_0001),
        ("snaplen-huge", 16, 0xffff_ffff),
        ("length-huge", 24 + 8, 0xffff_ffff),
        ("length-negative", 24 + 8, 0x8000_0000),
        ("length-beyond-file", 24 + 8, 60_000),
        ("length-over-a-megabyte", 24 + 8, 0x0020_0000),
        ("wire-length-less", 24 + 12, 1),
        ("wire-length-huge", 24 + 12, 0xffff_ffff),
        ("wire-length-zero", 24 + 12, 0),
        ("seconds-late", 24, 0xffff_ffff),
        ("fraction-too-much", 24 + 4, 0xffff_ffff),
        ("fraction-a-second", 24 + 4, 1_000_000),
    ] {
        add(&format!("file-{name}"), with_word(at, word));
    }
    let mut empty = Scene::new(1);
    (0..5).for_each(|_| empty.push(Vec::new()));
    add("frames-of-no-bytes", empty.pcap());
    let mut short = Scene::new(1);
    (0..20u8).for_each(|len| short.push(vec![len; usize::from(len)]));
    add("frames-of-few-bytes", short.pcap());
    let mut backwards = sample();
    backwards.records.reverse();
    add("time-runs-back", backwards.pcap());
    add("text", b"this is no capture at all, only a line of text\n".to_vec());
    add("zeros", vec![0; 400]);
    add("ones", vec![0xff; 400]);
    add("snapped-to-nothing", sample().snapped(0).pcap());
    add("big-endian-cut", {
        let mut bytes = sample().laid_out(Layout { big_endian: true, ..Layout::default() });
        bytes.truncate(bytes.len() - 7);
        bytes
    });
    files
}

/// Makes pcapng files.
fn pcapng_files() -> Vec<(String, Vec<u8>)> {
    let scene = sample();
    let frame = &scene.records[0];
    let data = (&frame.data[..], frame.wire_len);
    let start = || {
        let mut file = Pcapng::new(false);
        file.interface(1, 0, &[(2, b"eth0")]);
        file.packet(0, 1_700_000_000_000_000, data, &[]);
        file
    };
    let whole = {
        let mut file = start();
        file.packet(0, 1_700_000_000_000_009, data, &[(1, b"last")]);
        file.bytes()
    };
    let mut files = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| files.push((format!("{name}.pcapng"), bytes));
    for cut in [3, 8, 12, 27, 28, 30, 36, 47, 60, 90, 120, whole.len() - 4, whole.len() - 1] {
        add(&format!("blocks-cut-at-{cut}"), whole[..cut].to_vec());
    }
    let then = |change: &dyn Fn(&mut Pcapng) -> &mut Pcapng| {
        let mut file = start();
        change(&mut file);
        file.packet(0, 1_700_000_000_000_009, data, &[]);
        file.bytes()
    };
    let block = |kind: u32, len: u32, end: u32| {
        [kind.to_le_bytes(), len.to_le_bytes(), [0; 4], end.to_le_bytes()].concat()
    };
    add("block-length-zero", then(&|file| file.raw(&block(0x99, 0, 0))));
    add("block-length-eight", then(&|file| file.raw(&block(0x99, 8, 8))));
    add("block-length-odd", then(&|file| file.raw(&block(0x99, 15, 15))));
    add("block-length-huge", then(&|file| file.raw(&block(0x99, 0xffff_fff0, 0))));
    add("block-lengths-differ", then(&|file| file.raw(&block(0x99, 16, 20))));
    add("packet-of-no-interface", then(&|file| file.packet(7, 0, data, &[])));
    add("packet-shorter-than-said", {
        then(&|file| file.block(6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 255, 0]))
    });
    add("packet-block-empty", then(&|file| file.block(6, &[])));
    add("interface-block-short", then(&|file| file.block(1, &[1, 0])));
    add(
        "option-beyond-block",
        then(&|file| file.block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 255, 0])),
    );
    add("resolution-of-nothing", then(&|file| file.interface(1, 0, &[(9, &[])])));
    add("resolution-too-fine", then(&|file| file.interface(1, 0, &[(9, &[0xff])])));
    let mut before = Pcapng::new(false);
    before.packet(0, 1, data, &[]);
    add("packet-before-interface", before.bytes());
    let mut magic = whole.clone();
    magic[8] ^= 1;
    add("byte-order-unknown", magic);
    let mut version = whole.clone();
    version[12] = 9;
    add("version-unknown", version);
    files
}

fn four() -> Packet {
    Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2])
}

fn six() -> Packet {
    Packet::ethernet().ipv6([0x20; 8], [0x21; 8])
}

fn tcp() -> Vec<u8> {
    four().tcp(40_000, 80).flags(0x18).payload(b"GET / HTTP/1.1\r\n").build()
}

fn udp() -> Vec<u8> {
    four().udp(40_000, 53).payload(&payload::dns_query(1, "example.org", 1)).build()
}

/// Replaces one byte of the frame by each of these values.
fn changed(frame: &dyn Fn() -> Vec<u8>, at: usize, values: &[u8]) -> Vec<Vec<u8>> {
    let change = |&value: &u8| {
        let mut bytes = frame();
        bytes[at] = value;
        bytes
    };
    values.iter().map(change).collect()
}

/// Makes headers with wrong fields, on Ethernet.
fn lying() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    vec![
        ("ip-header-length", changed(&tcp, 14, &[0x40, 0x41, 0x44, 0x46, 0x4f])),
        ("ip-version", changed(&tcp, 14, &[0x05, 0x25, 0x65, 0xf5])),
        ("ip-total-length", changed(&tcp, 17, &[0, 1, 19, 20, 40, 255])),
        ("ip-total-length-huge", changed(&tcp, 16, &[0xff])),
        ("ip-fragment-offset", changed(&tcp, 20, &[0x1f, 0x3f, 0x7f, 0x80])),
        ("tcp-header-length", changed(&tcp, 46, &[0x00, 0x10, 0x40, 0x60, 0xf0])),
        ("tcp-flags", changed(&tcp, 47, &[0, 0x3f, 0xff, 0xc0, 0x03])),
        ("udp-length", changed(&udp, 39, &[0, 1, 7, 8, 9, 255])),
        ("udp-length-huge", changed(&udp, 38, &[0xff])),
        ("dns-counts", changed(&udp, 47, &[0, 2, 255])),
        ("dns-label-length", changed(&udp, 54, &[0x3f, 0x40, 0x80, 0xc0, 0xff])),
    ]
}

/// Makes options, headers and messages with wrong lengths or without an end, on Ethernet.
fn endless() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let nested = |levels: usize, step: &dyn Fn(Packet) -> Packet, start: Packet| {
        vec![(0..levels).fold(start, |packet, _| step(packet)).udp(1, 2).build()]
    };
    vec![
        ("ip-options-of-no-length", vec![four().ip_options(&[7, 0, 68, 1]).udp(1, 2).build()]),
        ("ip-options-too-long", vec![four().ip_options(&[7, 60, 4, 0]).udp(1, 2).build()]),
        ("tcp-options-of-no-length", vec![four().tcp(1, 2).tcp_options(&[2, 0, 8, 1]).build()]),
        ("tcp-options-too-long", vec![four().tcp(1, 2).tcp_options(&[3, 60, 5, 9]).build()]),
        (
            "six-headers-without-end",
            vec![six().extension(0, &[1, 200, 0, 0, 0, 0]).udp(1, 2).build()],
        ),
        ("six-length", changed(&|| six().udp(1, 2).build(), 19, &[0, 1, 7, 200])),
        ("six-option-lengths", vec![six().extension(60, &[4, 255, 1, 1, 1, 1]).tcp(1, 2).build()]),
        ("six-many-headers", nested(40, &Packet::destination_options, six())),
        ("vlans-without-end", nested(60, &|packet| packet.vlan(7), Packet::ethernet())),
        ("labels-without-end", nested(60, &|packet| packet.mpls(7), Packet::ethernet())),
        (
            "tunnels-without-end",
            nested(50, &|packet| packet.ipv4([9; 4], [8; 4]), Packet::ethernet()),
        ),
        (
            "gre-without-end",
            nested(20, &|packet| packet.ipv4([9; 4], [8; 4]).gre(), Packet::ethernet()),
        ),
        ("icmp-of-icmp", vec![four().icmp(3, 1, 0).payload(&tcp()[14..20]).build()]),
        (
            "dns-pointer-to-itself",
            vec![{
                let bytes = [0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1];
                four().udp(1, 53).payload(&bytes).build()
            }],
        ),
        (
            "snmp-lengths",
            vec![four().udp(1, 161).payload(&[0x30, 0x84, 255, 255, 255, 255]).build()],
        ),
        ("dhcp-short", vec![four().udp(68, 67).payload(&payload::dhcp(1, 2)[..200]).build()]),
        ("sip-without-end", vec![four().udp(1, 5060).payload(b"INVITE sip:").build()]),
        (
            "arp-sizes",
            changed(
                &|| Packet::ethernet().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]).build(),
                18,
                &[0, 1, 255],
            ),
        ),
        (
            "llc-length",
            changed(&|| Packet::ethernet().llc([0x42, 0x42, 3]).build(), 13, &[0, 1, 255]),
        ),
    ]
}

/// Makes frames of every encapsulation, each truncated and with some changed bytes, one file of each.
fn spoilt() -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(515);
    let mut files = Vec::new();
    for (name, around) in tunnels::all() {
        let inner = around.clone().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        let whole = inner.udp(40_000, 53).payload(&payload::dns_query(1, "example.org", 1)).build();
        let (mut cut, mut changed) =
            (Scene::new(around.link_type()), Scene::new(around.link_type()));
        for _ in 0..12 {
            let mut frame = whole.clone();
            frame.truncate(random.below(whole.len()));
            cut.push(frame);
            let mut frame = whole.clone();
            for _ in 0..1 + random.below(4) {
                let place = random.below(frame.len());
                frame[place] = random.pick(&[0, 1, 0x45, 0x60, 0x7f, 0xff, frame[place] ^ 1]);
            }
            changed.push(frame);
        }
        files.push((format!("cut-{name}.pcap"), cut.pcap()));
        files.push((format!("changed-{name}.pcap"), changed.pcap()));
        let snaplen = 10 + random.below(80);
        let mut snapped = Scene::new(around.link_type());
        (0..4).for_each(|_| snapped.push(whole.clone()));
        files.push((format!("snapped-{name}.pcap"), snapped.snapped(snaplen).pcap()));
    }
    files
}

/// Returns the files of the folder.
pub fn files() -> Vec<CaptureFile> {
    let lying = lying().into_iter().chain(endless()).map(|(name, frames)| {
        let mut scene = Scene::new(1);
        frames.into_iter().for_each(|frame| scene.push(frame));
        (format!("{name}.pcap"), scene.pcap())
    });
    let all = pcap_files().into_iter().chain(pcapng_files()).chain(lying).chain(spoilt());
    all.map(|(name, bytes)| CaptureFile::new("malformed", &name, bytes)).collect()
}
