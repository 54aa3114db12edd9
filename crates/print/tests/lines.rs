//! One packet for each protocol that network devices and servers send, with tcpdump's line for it; and damaged
//! packets of each of them.

use fyke_frame::{Frame, LinkType};
use fyke_print::{PrintOptions, Printer, TimeStyle};
use fyke_testkit::packet::Packet;

/// Transport of a payload.
#[derive(Clone, Copy)]
enum Over {
    /// UDP from and to these ports.
    Udp(u16, u16),
    /// TCP with these ports.
    Tcp(u16, u16),
    /// IPv4 with this protocol.
    Ip(u8),
    /// 802.3 and LLC.
    Llc([u8; 3]),
    /// An Ethernet frame with this type.
    Ether(u16),
    /// 802.11.
    Wireless,
    /// 802.11 with radiotap.
    Radio,
}

use Over::{Ether, Ip, Llc, Radio, Tcp, Udp, Wireless};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn frame(over: Over, payload: &[u8]) -> (LinkType, Vec<u8>) {
    let v4 = || Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let packet = match over {
        Udp(from, to) => v4().udp(from, to).payload(payload),
        Tcp(from, to) => v4().tcp(from, to).flags(0x18).payload(payload),
        Ip(protocol) => v4().ip_payload(protocol, payload),
        Llc(header) => Packet::ethernet().llc(header).payload(payload),
        Ether(number) => {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
            frame.extend(number.to_be_bytes());
            frame.extend(payload);
            return (LinkType::EN10MB, frame);
        }
        Wireless => return (LinkType::IEEE802_11, payload.to_vec()),
        Radio => return (LinkType::IEEE802_11_RADIO, payload.to_vec()),
    };
    (LinkType::EN10MB, packet.build())
}

/// Payloads in hexadecimal, each with the text after the addresses, ports and TCP fields.
const LINES: &[(Over, &str, &str)] = &[
    (
        Udp(4000, 161),
        "302602010104067075626c6963a01902012a020100020100300e300c06082b060102010101000500",
        " GetRequest(25)  .1.3.6.1.2.1.1.1.0",
    ),
    (
        Udp(161, 4000),
        "30290201010402616ea22002012a020100020100301530130608 2b0601020101050004075231 2e6c6162 2e",
        " C=\"an\" GetResponse(32)  .1.3.6.1.2.1.1.5.0=\"R1.lab.\"",
    ),
    (Udp(4000, 162), "3006020107040130ff", " [1 extra after iSEQ]SNMP [version = 7]"),
    (Udp(88, 4000), "6b0301", " v5"),
    (
        Udp(4000, 1812),
        "012e0014000102030405060708090a0b0c0d0e0f",
        "RADIUS, Access-Request (1), id: 0x2e length: 20",
    ),
    (
        Udp(500, 500),
        "0102030405060708000000000000000001100200000000000000001c",
        "isakmp: phase 1 I ident",
    ),
    (
        Udp(500, 500),
        "0102030405060708111213141516171829202208000000000000001c",
        "isakmp: parent_sa ikev2_init[I]",
    ),
    (Udp(4500, 4500), "ff", "isakmp-nat-keep-alive"),
    (
        Udp(4500, 4500),
        "0000000701020304aabbccdd",
        "UDP-encap: ESP(spi=0x00000007,seq=0x1020304), length 12",
    ),
    (Udp(1701, 1701), "c802000c0001000200030004", " l2tp:[TLS](1/2)Ns=3,Nr=4 ZLB"),
    (
        Udp(646, 646),
        "000100180a0000010000020000 0e 00000001040000 060000 00000000",
        "LDP, Label-Space-ID: 10.0.0.1:0, pdu-length: 24",
    ),
    (
        Udp(49153, 3784),
        "20c0031800000001000000020003d09000 03d09000000000",
        "BFDv1, Control, State Up, Flags: [none], length: 24",
    ),
    (
        Udp(1985, 1985),
        "00001003 0a640100 636973636f000000 0a000001",
        "HSRPv0-hello 20: state=active group=1 addr=10.0.0.1",
    ),
    (
        Udp(521, 521),
        "02010000 20010db8000000000000000000000000 00004001",
        " ripng-resp 1: 2001:db8::/64 (1)",
    ),
    (Udp(6696, 6696), "2a02000a 0406000000010190 0000", "babel 2 (10) hello pad1 pad1"),
    (Udp(4342, 4342), "10000001 000000000000000100000000", "LISP-Map-Request,"),
    (
        Udp(4000, 6343),
        "0000000500000001 0a000001 00000000 00000001 00000001 00000000",
        "sFlowv5, IPv4 agent 10.0.0.1, agent-id 0, length 28",
    ),
    (Udp(7001, 7000), "00000001000000020000000300000004000000050100000000000000", " rx data (28)"),
    (
        Tcp(4000, 23),
        "fffd03fffb18fffa1801fff0",
        " [telnet DO SUPPRESS GO AHEAD, WILL TERMINAL TYPE, SB TERMINAL TYPE SEND SE]",
    ),
    (Tcp(4000, 179), "ffffffffffffffffffffffffffffffff001304", ": BGP"),
    (Tcp(4000, 1723), "001000011a2b3c4d0005000000000001", ": pptp CTRL_MSGTYPE=ECHORQ ID(1)"),
    (Ip(113), "04d2162e00000000010203040506000c", "10.0.0.1.1234 > 10.0.0.2.5678: PGM, length 12"),
    (
        Llc([0x42, 0x42, 3]),
        "0000000000 8000 020000000001 00000000 8000 020000000001 8001 0000 1400 0200 0f00",
        "STP 802.1d, Config, Flags [none], bridge-id 8000.02:00:00:00:00:01.8001, length 35",
    ),
    (
        Llc([0xaa, 0xaa, 3]),
        "00000c2000 02b40000 0001000652 31",
        "CDPv2, ttl: 180s, Device-ID 'R1', length 10",
    ),
    (Llc([0xaa, 0xaa, 3]), "00000c2004 01", "DTPv1, length 1"),
    (Llc([0xf0, 0xf0, 3]), "2c00ffef", "NetBeui Unnumbered, ui, Flags [Command], length 7"),
    (
        Llc([0xe0, 0xe0, 3]),
        "ffff002800010000000 0ffffffffffff0453 00000000 020000000001 0453 0001 ffffffff ffff ffff",
        "IPX 00000000.02:00:00:00:00:01.0453 > 00000000.ff:ff:ff:ff:ff:ff.0453: ipx-rip-req ffffffff/65535.65535",
    ),
    (
        Llc([0xfe, 0xfe, 3]),
        "831401001101000003 111111111111 001e 0014 00",
        "IS-IS, p2p IIH, src-id 1111.1111.1111, length 20",
    ),
    (
        Ether(0x9000),
        "000001000000 0000",
        "Loopback, skipCount 0, Reply, receipt number 0, data (2 octets)",
    ),
    (Ether(0x88cc), "0207040200000000010403057031060200780a0272310000", "LLDP, length 24: r1"),
    (
        Wireless,
        "80000000ffffffffffff020000000001020000000001 0000 0000000000000000 6400 1100 0003 616263 0102 8c12 030106",
        "Beacon (abc) [6.0* 9.0 Mbit] ESS CH: 6, PRIVACY",
    ),
    (Wireless, "d4000000020000000001", "Acknowledgment RA:02:00:00:00:00:01 "),
    (
        Radio,
        "00000f002c00000002006c09a000b4 b4000000020000000001020000000002",
        "1.0 Mb/s 2412 MHz 11b -76dBm signal Request-To-Send TA:02:00:00:00:00:02 ",
    ),
];

fn line(options: &PrintOptions, link: LinkType, frame: &[u8]) -> String {
    let mut text = String::new();
    Printer::new(options.clone()).line(&Frame::new(link, frame), &mut text);
    text
}

fn plain() -> PrintOptions {
    PrintOptions { time: TimeStyle::None, ..PrintOptions::default() }
}

/// The text after the addresses, ports and TCP fields.
fn after_addresses(over: Over, text: &str) -> &str {
    let after = |mark: &str| text.split_once(mark).map_or("", |(_, rest)| rest);
    match over {
        Udp(..) | Ip(_) => after(": "),
        Tcp(..) => after(", length ").trim_start_matches(|c: char| c.is_ascii_digit()),
        Llc([0xf0, ..]) => text.splitn(4, ' ').nth(3).unwrap_or(""),
        _ => text,
    }
}

#[test]
fn lines_of_devices_and_servers() {
    for (over, payload, expected) in LINES {
        let (link, frame) = frame(*over, &bytes(payload));
        let text = line(&plain(), link, &frame);
        println!("{text}");
        assert_eq!(after_addresses(*over, &text), *expected, "{text}");
    }
}

#[test]
fn damaged_packets_have_bounded_lines_without_control_characters() {
    let mut state = 0x5eed_0000_1234_9abc_u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % limit
    };
    let sets: Vec<PrintOptions> = [0, 1, 2, 3]
        .into_iter()
        .flat_map(|verbose| {
            [false, true].map(|exact| PrintOptions {
                verbose,
                like_tcpdump: exact,
                link_header: exact,
                ..plain()
            })
        })
        .collect();
    for (over, payload, _) in LINES {
        let payload = bytes(payload);
        for round in 0..400 {
            let mut damaged = payload.clone();
            for _ in 0..=below(4) {
                let at = below(damaged.len());
                damaged[at] = [0, 0xff, 0x80, below(256) as u8][below(4)];
            }
            if round % 3 == 0 {
                damaged.truncate(below(damaged.len() + 1));
            }
            let (link, frame) = frame(*over, &damaged);
            let kept = if round % 4 == 0 { below(frame.len() + 1) } else { frame.len() };
            let mut cut = Frame::new(link, &frame[..kept]);
            cut.wire_len = frame.len() as u32;
            for options in &sets {
                let mut text = String::new();
                Printer::new(options.clone()).line(&cut, &mut text);
                let printable = |c: char| matches!(c, ' '..='~' | '\n' | '\t');
                assert!(text.chars().all(printable), "{text:?} {:02x?}", cut.data);
                assert!(options.verbose > 0 || !text.contains('\n'), "{text:?}");
                assert!(text.len() < 4_000, "{} bytes: {text}", text.len());
            }
        }
    }
}

#[test]
fn tunnels_are_followed_unless_tcpdump_does_not() {
    let inner = |packet: Packet| packet.ipv4([1; 4], [2; 4]).icmp(8, 0, 1).build();
    let v4 = || Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let exact = PrintOptions { like_tcpdump: true, ..plain() };
    let cases = [
        (inner(v4().gtpu_numbered(9, 1)), "UDP, length 40"),
        (inner(v4().gre_with(None, Some(1), false).erspan(2).ether()), "gre-proto-0x88be"),
        (inner(v4().vxlan(7).ether()), "VXLAN, flags [I] (0x08), vni 7\nIP 1.1.1.1"),
    ];
    for (bytes, expected) in cases {
        let more = line(&plain(), LinkType::EN10MB, &bytes);
        let same = line(&exact, LinkType::EN10MB, &bytes);
        assert!(more.contains("IP 1.1.1.1 > 2.2.2.2: ICMP echo request"), "{more}");
        assert!(same.contains(expected), "{same}");
    }
}

fn verbose(level: u8) -> PrintOptions {
    PrintOptions { verbose: level, ..plain() }
}

#[test]
fn checksums_have_the_final_destination_of_a_source_route() {
    let corpus = fyke_testkit::corpus::Corpus::open();
    let Some(path) = corpus.shared("traces/ipv6/tcpdump__ipv6-routing-header.pcap") else { return };
    let Some((1, records)) = fyke_testkit::pcap::read(&path, 1) else { return };
    for record in records {
        let text = line(&verbose(1), LinkType::EN10MB, &record.data);
        assert!(text.contains("[icmp6 sum ok]"), "{text}");
        // Without a hop left, the destination in the IP header is the final one.
        let mut arrived = record.data.to_vec();
        arrived[14 + 40 + 3] = 0;
        let text = line(&verbose(1), LinkType::EN10MB, &arrived);
        assert!(text.contains("[bad icmp6 cksum 0xd3ab -> 0xd37b!]"), "{text}");
    }
}

#[test]
fn quiet_lines_have_the_protocols_over_ethernet_and_ip() {
    let quiet = PrintOptions { quiet: true, ..plain() };
    let cases = [
        (Ether(0x88cc), "0000", "LLDP, length 2"),
        (
            Ether(0x9000),
            "0000 0100 0000 aaaa",
            "Loopback, skipCount 0, Reply, receipt number 0, data (2 octets)",
        ),
        (Ip(89), "02010004", "IP 10.0.0.1 > 10.0.0.2: OSPFv2, Hello, length 4"),
    ];
    for (over, payload, expected) in cases {
        let (link, frame) = frame(over, &bytes(payload));
        assert_eq!(line(&quiet, link, &frame), expected);
    }
}

#[test]
fn details_with_verbose() {
    let dhcp = |options: &str| format!("01010600{}63825363{options}ff", "00".repeat(232));
    let ntp = |poll: &str| format!("2302{poll}fa{}", "00".repeat(44));
    let cases = [
        (2, Udp(68, 67), dhcp(""), ", Flags [none] (0x0000)\n"),
        (1, Udp(68, 67), dhcp("37020279"), "Time-Zone (2), Classless-Static-Route (121)"),
        (1, Udp(68, 67), dhcp("1a0205dc"), "MTU (26), length 2: 1500"),
        (1, Udp(68, 67), dhcp("130101"), "IPF (19), length 1: Y"),
        (1, Udp(123, 123), ntp("06"), ", poll 6 (64s), precision -6"),
        (1, Udp(123, 123), ntp("fd"), ", poll -3 (1/8s), precision -6"),
        (1, Udp(123, 123), ntp("28"), ", poll 40, precision -6"),
        (1, Udp(49152, 4000), "00022800".into(), ": \n    BCM-LI-SHIM: direction unknown"),
        (1, Udp(49152, 4000), "00022800".into(), "li-id 141312\n     (invalid)"),
        (1, Udp(4000, 6697), "2a02000804060000000a0190".into(), "babel 2 (8)\n\thello"),
    ];
    for (level, over, payload, expected) in cases {
        let (link, frame) = frame(over, &bytes(&payload));
        let text = line(&verbose(level), link, &frame);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn short_and_invalid_headers() {
    let cases = [
        (Udp(4789, 5000), "0800000000000700", "VXLAN, flags [I] (0x08), vni 7"),
        (Udp(5000, 4789), "0000000000000700", "VXLAN, flags [invalid] (0x00), vni 7"),
        (Udp(5000, 4789), "08000000000007", "VXLAN (invalid)"),
        (Udp(5000, 6081), "000065", "Geneve [length 3 < 8] (invalid)"),
        (Udp(5000, 6081), "4000655800000700", "Geneve ERROR: unknown-version 1"),
        (
            Udp(5000, 6081),
            "0300655800000700aa",
            "Geneve, Flags [none], vni 0x7 truncated-geneve - 11 bytes missing",
        ),
        (Udp(4000, 6697), "2a02001404 04000a0190", "babel 2 (20) (invalid)"),
        (Ip(112), "2201640100010000", "VRRPv2, unknown type (2), (ttl 64)"),
        (Ip(2), "", " [|igmp]"),
        (Ip(2), "1164", "igmp query v2 [|igmp]"),
        (Ip(2), "2200", "igmp v3 report [invalid len 2]"),
        (Ip(2), "99", "igmp-153"),
        (Ether(0x806), "000108000604", " [|arp]"),
        (Ether(3), "aaaa", " [|llc]"),
    ];
    for (over, payload, expected) in cases {
        let (link, frame) = frame(over, &bytes(payload));
        let text = line(&plain(), link, &frame);
        assert_eq!(after_addresses(over, &text), expected, "{text}");
    }
    assert_eq!(line(&plain(), LinkType::EN10MB, &[2; 7]), " [|ether]");
}

#[test]
fn ppp_over_a_serial_line() {
    let ip = "4500001d00000000401100000a0000010a000002 0005000600090000 78";
    let udp = "IP 10.0.0.1.5 > 10.0.0.2.6: UDP, length 1";
    let cases = [
        (format!("ff030021{ip}"), udp),
        (format!("0f000800{ip}"), udp),
        ("ff03c0210901000800000000".into(), "LCP, Echo-Request (0x09), id 1, length 10"),
        ("8f001234".into(), "unknown CHDLC protocol (0x1234)"),
        ("00214500".into(), "unknown addr 00; ctrl 21"),
        ("ff0300".into(), " [|ppp_hdlc]"),
    ];
    for (frame, expected) in cases {
        assert_eq!(line(&plain(), LinkType(50), &bytes(&frame)), expected);
    }
}
