//! `linktypes`: the same few packets with the headers of many link types, and frames that only one link type has.

use super::CaptureFile;
use super::payload;
use super::scene::Scene;
use crate::packet::Packet;

const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// LLC and SNAP before an EtherType.
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

/// Returns packets from the network header on, with their EtherTypes.
fn packets() -> Vec<(u16, Vec<u8>)> {
    let raw = Packet::raw;
    let four = || raw().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let six = || raw().ipv6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]);
    let query = payload::dns_query(3, "www.example.org", 1);
    let answer = payload::dns_answer(3, "www.example.org", 1);
    let web = payload::http_request("www.example.org", "/");
    let four_packets = [
        four().tcp(40_000, 80),
        four().tcp(80, 40_000).flags(0x12).seq_ack(7, 2),
        four().tcp(40_000, 80).flags(0x18).seq_ack(2, 8).payload(&web),
        four().udp(40_001, 53).payload(&query),
        four().udp(53, 40_001).payload(&answer),
        four().icmp(8, 0, 1).payload(&[7; 48]),
        four().fragment(9, 0, true).udp(1, 2).payload(&[1; 40]),
        four().fragment(9, 48, false).ip_payload(17, &[1; 16]),
    ];
    let six_packets = [
        six().tcp(40_002, 443).flags(0x10).seq_ack(3, 4),
        six().udp(40_003, 53).payload(&query),
        six().icmpv6(135, 0, 0).payload(&[0x20; 16]),
    ];
    let mut packets: Vec<_> = four_packets.iter().map(|one| (0x0800, one.build())).collect();
    packets.extend(six_packets.iter().map(|one| (0x86dd, one.build())));
    packets.push((0x0806, raw().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]).build()));
    packets
}

/// Returns the PPP protocol number for an EtherType.
fn ppp(number: u16) -> [u8; 2] {
    match number {
        0x0800 => [0x00, 0x21],
        0x86dd => [0x00, 0x57],
        _ => [0xc0, 0x21],
    }
}

/// Returns BSD's address family for an EtherType.
fn family(number: u16) -> u32 {
    if number == 0x86dd { 30 } else { 2 }
}

/// Builds the header of an 802.11 data frame: to or from the distribution system, with or without a QoS field.
fn wlan(number: u16, quality: bool, from_system: bool) -> Vec<u8> {
    let mut bytes = vec![if quality { 0x88 } else { 0x08 }, if from_system { 2 } else { 1 }, 0, 0];
    bytes.extend([TO, FROM, [2, 0, 0, 0, 0, 3]].concat());
    bytes.extend([0x10, 0]);
    bytes.extend(if quality { &[0, 0][..] } else { &[] });
    [&bytes[..], &SNAP, &number.to_be_bytes()].concat()
}

/// Builds the radio header of the link types that have one before 802.11.
fn radio(link: u16) -> Vec<u8> {
    match link {
        119 => {
            let mut bytes = [0x44u32, 144].map(u32::to_le_bytes).concat();
            bytes.resize(144, 0);
            bytes
        }
        127 => vec![0, 0, 14, 0, 0x2e, 0, 0, 0, 0, 12, 0x85, 9, 0xa0, 0],
        163 => {
            let mut bytes = [0x8021_1001u32, 64].map(u32::to_be_bytes).concat();
            bytes.resize(64, 0);
            bytes
        }
        192 => vec![0, 0, 8, 0, 105, 0, 0, 0],
        _ => Vec::new(),
    }
}

/// Builds the headers before a packet in frames of these link types.
fn header(link: u16, number: u16) -> Vec<u8> {
    let snap = || [&SNAP[..], &number.to_be_bytes()].concat();
    match link {
        0 => family(number).to_le_bytes().to_vec(),
        108 => family(number).to_be_bytes().to_vec(),
        109 => [family(number).to_le_bytes(), [0; 4], [0; 4]].concat(),
        6 => [vec![0x10, 0x40], [TO, FROM].concat(), snap()].concat(),
        10 => [vec![0x50], [TO, FROM].concat(), snap()].concat(),
        100 | 106 => snap(),
        122 => [vec![0, 0], TO.to_vec(), vec![0, 0], FROM.to_vec(), snap()].concat(),
        7 => vec![1, 2, if number == 0x0800 { 212 } else { 196 }, 0, 0, 1],
        129 => vec![1, 2, 0, 0, if number == 0x0800 { 212 } else { 196 }, 0, 0, 1],
        8 => [vec![1], vec![0; 15]].concat(),
        9 | 50 => [&[0xff, 3], &ppp(number)[..]].concat(),
        51 => [&[0x11, 0, 0, 5, 0, 80], &ppp(number)[..]].concat(),
        166 => [&[1, 3], &ppp(number)[..]].concat(),
        104 => [[0x0f, 0], number.to_be_bytes()].concat(),
        107 => [vec![0x18, 0x41, 3, 0x80, 0, 0, 0], number.to_be_bytes().to_vec()].concat(),
        99 => {
            let mut bytes = [&[0; 6][..], &number.to_be_bytes()].concat();
            bytes.resize(44, 0);
            bytes
        }
        117 => {
            let mut bytes = vec![61, if number == 0x86dd { 10 } else { 2 }, 0, 0];
            bytes.extend(b"em0\0\0\0\0\0\0\0\0\0\0\0\0\0rules\0\0\0\0\0\0\0\0\0\0\0");
            bytes.resize(60, 0);
            bytes.push(1);
            bytes.resize(64, 0);
            bytes
        }
        123 => [vec![2, 0, 0, 16], snap()].concat(),
        138 => [&[1; 16][..], &number.to_be_bytes()].concat(),
        226 => {
            let mut bytes = vec![1, if number == 0x86dd { 26 } else { 2 }, 0, 1];
            bytes.resize(24, 0);
            bytes
        }
        240 | 241 => {
            let before = vec![0; if link == 240 { 4 } else { 12 }];
            [before, [TO, FROM].concat(), number.to_be_bytes().to_vec()].concat()
        }
        113 => [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &number.to_be_bytes()].concat(),
        276 => {
            let rest = [0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
            [&number.to_be_bytes()[..], &rest].concat()
        }
        105 => wlan(number, false, false),
        119 | 127 | 163 | 192 => {
            let quality = link == 127;
            [radio(link), wlan(number, quality, quality)].concat()
        }
        _ => Vec::new(),
    }
}

/// Makes files of link types for which a packet's network header is found.
const CARRIERS: &[(u16, &str)] = &[
    (0, "null"),
    (6, "token-ring"),
    (7, "arcnet"),
    (8, "slip"),
    (9, "ppp"),
    (10, "fddi"),
    (50, "ppp-serial"),
    (51, "ppp-ether"),
    (99, "symantec"),
    (100, "atm-rfc1483"),
    (101, "raw"),
    (104, "hdlc"),
    (105, "wlan"),
    (106, "atm-clip"),
    (107, "frame-relay"),
    (108, "loop"),
    (109, "enc"),
    (113, "sll"),
    (117, "pflog"),
    (119, "prism"),
    (122, "fibre-channel"),
    (123, "sunatm"),
    (127, "radiotap"),
    (129, "arcnet-linux"),
    (138, "firewire"),
    (163, "avs"),
    (166, "ppp-pppd"),
    (192, "ppi"),
    (226, "ipnet"),
    (228, "ipv4"),
    (229, "ipv6"),
    (240, "netanalyzer"),
    (241, "netanalyzer-transparent"),
    (276, "sll2"),
];

/// Makes files of link types that are known by number, by name or not at all, with one frame.
const OTHERS: &[(u16, &str, &[u8])] = &[
    (114, "localtalk", &[1, 2, 1, 0, 5, 0, 0, 0, 0]),
    (140, "mtp2", &[0x80, 0x81, 2, 0x85, 1, 2, 3, 4, 5]),
    (139, "mtp2-phdr", &[1, 0, 0, 1, 0x80, 0x81, 2, 0x85, 1, 2, 3]),
    (141, "mtp3", &[0x85, 1, 2, 3, 4, 5, 6, 7]),
    (142, "sccp", &[9, 0, 3, 5, 9, 2, 0x42, 8]),
    (143, "docsis", &[0, 1, 0, 20, 2, 0, 0, 0, 0, 1]),
    (147, "private-use", b"anything"),
    (165, "bacnet", &[0x55, 0xff, 0, 2, 1, 0, 0, 0x44]),
    (178, "juniper-ether", &[0x4d, 0x47, 0x43, 0x80, 0, 6, 1, 1, 1, 2, 2, 0]),
    (182, "mfr", &[0xc0, 1, 3, 0xcc, 0x45, 0, 0, 20]),
    (189, "usb", &[0; 48]),
    (195, "802.15.4", &[3, 8, 0x21, 0xff, 0xff, 0xff, 0xff, 7, 0x55, 0x66]),
    (197, "erf", &[0; 40]),
    (201, "bluetooth", &[0, 0, 0, 1, 1, 3, 0x0c, 0]),
    (220, "usb-mmapped", &[0; 64]),
    (227, "can", &[0, 0, 1, 0x23, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
    (230, "802.15.4-nofcs", &[3, 8, 0x21, 0xff, 0xff, 0xff, 0xff, 7]),
    (231, "dbus", b"l\x01\0\x01\0\0\0\0\x01\0\0\0\0\0\0\0"),
    (249, "usbpcap", &[27, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (253, "netlink", &[0, 4, 3, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (258, "pktap", &[108, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
    (284, "dsa", &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0xc0, 8, 0, 5, 8, 0, 0x45, 0]),
    (285, "edsa", &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0xda, 0xda, 0, 0, 0xc0, 8, 0, 5, 8, 0]),
];

/// Makes management and control frames of 802.11, after the radio header of the link type.
fn management(link: u16) -> Vec<Vec<u8>> {
    let beacon = [
        &[0x80, 0, 0, 0, 255, 255, 255, 255, 255, 255][..],
        &FROM,
        &FROM,
        &[0x20, 0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 0, 0x11, 4, 0, 4],
        b"lamp",
        &[1, 4, 0x82, 0x84, 0x8b, 0x96, 3, 1, 6],
    ];
    let probe = [&[0x40, 0, 0, 0][..], &[255; 6], &FROM, &[255; 6], &[0x30, 0, 0, 0, 1, 1, 0x82]];
    let leave = [&[0xc0, 0, 0, 0][..], &TO, &FROM, &FROM, &[0x40, 0, 7, 0]];
    let ready = [&[0xb4, 0, 40, 0][..], &TO, &FROM];
    let confirm = [&[0xd4, 0, 0, 0][..], &TO];
    // Four addresses, and an encrypted payload.
    let relayed = [&[0x08, 0x43, 0, 0][..], &TO, &FROM, &TO, &[0x50, 0], &FROM, &[9; 40]];
    let frames = [
        beacon.concat(),
        probe.concat(),
        leave.concat(),
        ready.concat(),
        confirm.concat(),
        relayed.concat(),
    ];
    frames.into_iter().map(|frame| [radio(link), frame].concat()).collect()
}

/// Makes a netfilter packet log: values with lengths, the last of which is the packet.
fn nflog(packet: &[u8]) -> Vec<u8> {
    let value = |kind: u16, value: &[u8]| {
        let len = 4 + value.len() as u16;
        let mut bytes = [len.to_le_bytes(), kind.to_le_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    [vec![2, 0, 0, 1], value(1, &[8, 0, 1, 0]), value(10, b"logged\0"), value(9, packet)].concat()
}

/// Returns the files of the folder.
pub fn files() -> Vec<CaptureFile> {
    let mut files = Vec::new();
    let mut add = |link: u16, name: &str, frames: Vec<Vec<u8>>| {
        let mut scene = Scene::new(link);
        frames.into_iter().for_each(|frame| scene.push(frame));
        files.push(CaptureFile::new("linktypes", &format!("{name}.pcap"), scene.pcap()));
    };
    for &(link, name) in CARRIERS {
        let fits = |number: u16| match link {
            228 => number == 0x0800,
            0 | 8 | 101 | 108 | 109 | 117 | 226 => number != 0x0806,
            229 => number == 0x86dd,
            _ => true,
        };
        let packets = packets().into_iter().filter(|(number, _)| fits(*number));
        let mut frames: Vec<_> =
            packets.map(|(number, packet)| [header(link, number), packet].concat()).collect();
        if matches!(link, 105 | 119 | 127 | 163 | 192) {
            frames.extend(management(link));
        }
        add(link, name, frames);
    }
    for &(link, name, frame) in OTHERS {
        add(link, name, vec![frame.to_vec(), frame[..frame.len() / 2].to_vec()]);
    }
    let logged = packets().into_iter().filter(|(number, _)| *number != 0x0806);
    add(239, "nflog", logged.map(|(_, packet)| nflog(&packet)).collect());
    files
}
