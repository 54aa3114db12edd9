//! One capture of each protocol: `voip` and `ipv6`, and parts of `mixed`.

use super::CaptureFile;
use super::payload;
use super::scene::{Scene, v4};
use super::talk::Talk;
use crate::packet::Packet;
use std::net::Ipv6Addr;

fn ether() -> Packet {
    Packet::ethernet()
}

fn four(packet: Packet) -> Packet {
    packet.ipv4([192, 0, 2, 5], [198, 51, 100, 7])
}

fn host(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

fn six() -> Packet {
    ether().ipv6(host(1), host(2))
}

/// Makes a call: invitation, ringing, answer, speech in both directions, end.
fn call(around: fn() -> Packet, port: u16) -> Vec<Packet> {
    let there = |bytes: &[u8]| around().udp(port, 5060).payload(bytes);
    let back = |bytes: &[u8]| around().udp(5060, port).payload(bytes);
    let mut packets = vec![
        there(&payload::sip("INVITE sip:chair@example.net SIP/2.0", 7, 16_000)),
        back(b"SIP/2.0 100 Trying\r\nCSeq: 1 INVITE\r\n\r\n"),
        back(&payload::sip("SIP/2.0 180 Ringing", 7, 17_000)),
        back(&payload::sip("SIP/2.0 200 OK", 7, 17_000)),
        there(b"ACK sip:chair@example.net SIP/2.0\r\nCSeq: 1 ACK\r\n\r\n"),
    ];
    for sequence in 0..15 {
        packets.push(around().udp(16_000, 17_000).payload(&payload::rtp(sequence, 1)));
        packets.push(around().udp(17_000, 16_000).payload(&payload::rtp(sequence, 2)));
    }
    packets.push(around().udp(16_001, 17_001).payload(&[0x80, 200, 0, 6, 0, 0, 0, 1]));
    packets.push(there(b"BYE sip:chair@example.net SIP/2.0\r\nCSeq: 2 BYE\r\n\r\n"));
    packets.push(back(b"SIP/2.0 200 OK\r\nCSeq: 2 BYE\r\n\r\n"));
    packets
}

fn voip() -> Vec<(&'static str, Vec<Packet>)> {
    let over_tcp = {
        let mut talk = Talk::open((v4(5), 40_005), (v4(7), 5060));
        talk.client(&payload::sip("REGISTER sip:example.org SIP/2.0", 9, 16_002));
        talk.server(&payload::sip("SIP/2.0 401 Unauthorized", 9, 16_002)).close();
        talk.pieces.iter().map(|piece| talk.packet(piece)).collect()
    };
    let stream = {
        let mut talk = Talk::open((v4(5), 40_006), (v4(7), 554));
        talk.client(b"OPTIONS rtsp://example.org/lamp RTSP/1.0\r\nCSeq: 1\r\n\r\n");
        talk.server(b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nPublic: PLAY\r\n\r\n").close();
        talk.pieces.iter().map(|piece| talk.packet(piece)).collect()
    };
    let stun = |port| four(ether()).udp(port, 3478).payload(&payload::stun());
    vec![
        ("call", call(|| four(ether()), 5060)),
        ("call-vlan", call(|| four(ether().vlan(100)), 5060)),
        ("call-six", call(six, 5062)),
        ("call-sll", call(|| four(Packet::sll()), 5060)),
        ("call-pppoe", call(|| four(ether().pppoe(3).ppp()), 5061)),
        ("over-tcp", over_tcp),
        ("rtsp", stream),
        ("stun", (0..8).map(|more| stun(40_010 + more)).collect()),
    ]
}

fn ipv6() -> Vec<(&'static str, Vec<Packet>)> {
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let ends = |packet: Packet| {
        vec![
            packet.clone().udp(40_000, 53).payload(&payload::dns_query(1, "example.org", 28)),
            packet.clone().tcp(40_001, 80).seq_ack(5, 0),
            packet.clone().icmpv6(128, 0, 1).payload(&[1; 16]),
            packet.payload(b"nothing"),
        ]
    };
    let target = host(9).octets();
    let advertise = [&[64, 0, 7, 8][..], &[0; 8], &[1, 1, 2, 0, 0, 0, 0, 1], &[3, 4, 64, 0xc0]];
    let mut neighbours = vec![
        ether().ipv6(link_local, all_nodes).ttl(255).icmpv6(133, 0, 0),
        ether().ipv6(link_local, all_nodes).ttl(255).icmpv6(134, 0, 0).payload(&advertise.concat()),
        ether().ipv6(link_local, all_nodes).ttl(255).icmpv6(135, 0, 0).payload(&target),
        ether().ipv6(host(9), link_local).ttl(255).icmpv6(136, 0, 0x6000_0000).payload(&target),
        ether().ipv6(link_local, all_nodes).hop_by_hop().icmpv6(143, 0, 1).payload(&[4; 20]),
    ];
    for (kind, code) in [(1, 0), (1, 1), (1, 3), (1, 4), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1)] {
        let inner = Packet::raw().ipv6(host(1), host(3)).udp(9, 10).payload(&[0; 8]).build();
        neighbours.push(six().icmpv6(kind, code, 1280).payload(&inner));
    }
    vec![
        ("plain", ends(six())),
        ("hop-by-hop", ends(six().hop_by_hop())),
        ("destination-options", ends(six().destination_options())),
        ("routing", ends(six().routing())),
        ("segments", ends(six().extension(43, &[2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]))),
        ("mobility", ends(six().extension(135, &[5, 0, 0, 0, 0, 0]))),
        ("all-headers", ends(six().hop_by_hop().destination_options().routing().authentication())),
        ("jumbo", ends(six().extension(0, &[0xc2, 4, 0, 1, 0, 0]))),
        ("alert", ends(six().extension(0, &[5, 2, 0, 0, 1, 0]))),
        ("nothing-next", vec![six().protocol(59).payload(b"nobody reads this")]),
        ("esp", vec![six().esp(1).payload(&[2; 30]), six().authentication().esp(2)]),
        ("neighbours", neighbours),
        ("flow-label", ends(six().flow_label(0xabcde).tos(0xb8))),
        ("vlan", ends(ether().vlan(6).ipv6(host(1), host(2)))),
        ("sctp", vec![six().sctp(5_000, 36_412).payload(&[0, 3, 0, 4]), six().udp_lite(1, 2)]),
    ]
}

/// Builds an Ethernet frame of any type.
fn numbered(number: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = ether().payload(rest).build();
    frame[12..14].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Builds frames of Ethernet types other than IP and ARP.
fn other_types() -> Vec<Vec<u8>> {
    let name = [2, 7, 4, 2, 0, 0, 0, 0, 1, 4, 3, 7, b'g', b'1', 6, 2, 0, 120, 0, 0];
    vec![
        // Reverse ARP, AppleTalk and its ARP, DECnet, IPX, LLDP, EAPOL, slow protocols, time, wake-up, loopback.
        numbered(0x8035, &[0, 1, 8, 0, 6, 4, 0, 3, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
        numbered(0x809b, &[0, 20, 0, 0, 1, 2]),
        numbered(0x80f3, &[0, 1, 0x80, 0x9b, 6, 4, 0, 1]),
        numbered(0x6003, &[0, 5, 0x81, 2, 0]),
        numbered(0x8137, &[0xff, 0xff, 0, 30]),
        numbered(0x88cc, &name),
        numbered(0x888e, &[1, 1, 0, 0]),
        numbered(0x8809, &[1, 1, 1, 20, 0, 1]),
        numbered(0x88f7, &[0, 2, 0, 44]),
        numbered(0x0842, &[255; 6]),
        numbered(0x9000, &[0, 0, 2, 0]),
        numbered(0x8863, &[0x11, 9, 0, 0, 0, 4, 1, 1, 0, 0]),
    ]
}

/// Builds packets of protocols of the link and network layers without ports.
pub fn without_ports() -> Vec<Vec<u8>> {
    let v4 = || ether().ipv4([10, 0, 0, 1], [224, 0, 0, 5]);
    let unreachable = Packet::raw().ipv4([10; 4], [11; 4]).tcp(40_000, 80).build();
    let mut packets = vec![
        ether().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]),
        ether().arp(2, [10, 0, 0, 2], [10, 0, 0, 1]),
        ether().arp(1, [10, 0, 0, 9], [10, 0, 0, 9]),
        ether().vlan(5).arp(1, [10, 0, 0, 1], [10, 0, 0, 2]),
        ether().llc([0x42, 0x42, 3]).payload(&[0; 35]),
        ether().llc([0xfe, 0xfe, 3]).payload(&[0x83, 27, 1, 0, 15, 1, 0, 0]),
        ether().llc([0xe0, 0xe0, 3]).payload(&[0xff, 0xff, 0, 30, 0, 17]),
        ether().llc([0xf0, 0xf0, 3]).payload(&[0x2c, 0, 0xff, 0xef, 8]),
        ether().snap().payload(&[2, 180, 0, 0, 0, 1, 0, 8]),
        v4().ip_payload(2, &[0x11, 100, 0, 0, 0, 0, 0, 0]),
        v4().ip_payload(2, &[0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 239, 1, 2, 3]),
        v4().ip_payload(89, &[2, 1, 0, 44, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        v4().ip_payload(103, &[0x20, 0, 0, 0, 0, 1, 0, 2, 0, 105]),
        v4().ip_payload(112, &[0x21, 1, 100, 1, 0, 1, 0, 0, 10, 0, 0, 254]),
        v4().ip_payload(88, &[2, 5, 0, 0, 0, 0, 0, 0]),
        v4().ip_payload(108, &[6, 0, 0, 1]),
        v4().ip_payload(77, &[1, 2, 3, 4]),
    ];
    for (kind, code) in
        [(0, 0), (3, 0), (3, 1), (3, 3), (3, 4), (3, 13), (4, 0), (5, 1), (11, 0), (11, 1), (12, 0)]
    {
        let icmp = ether().ipv4([10, 0, 0, 9], [10, 0, 0, 1]).icmp(kind, code, 1);
        packets.push(icmp.payload(&unreachable));
    }
    for host in 3..40 {
        let asks = ether().macs([2, 0, 0, 0, 0, 1], [255; 6]);
        packets.push(asks.arp(1, [10, 0, 0, host], [10, 0, 0, host + 1]));
        packets.push(ether().arp(2, [10, 0, 0, host + 1], [10, 0, 0, host]));
    }
    packets.iter().map(Packet::build).chain(other_types()).collect()
}

/// Builds datagrams of every protocol with its own port, in both directions.
pub fn over_udp() -> Vec<Packet> {
    let both = payload::datagrams().into_iter().flat_map(|(_, port, bytes)| {
        let there = four(ether()).udp(40_000, port).payload(&bytes);
        let back = six().udp(port, 40_000).payload(&bytes);
        [there, back]
    });
    let names = ["www.example.org", "example.net", "a.b.c.d.example.com"];
    let asked = names.into_iter().enumerate().flat_map(|(number, name)| {
        payload::DNS_TYPES.into_iter().flat_map(move |(kind, _)| {
            let id = 100 * number as u16 + kind;
            let query = payload::dns_query(id, name, kind);
            let answer = payload::dns_answer(id, name, kind);
            [
                four(ether()).udp(40_053, 53).payload(&query),
                four(ether()).udp(53, 40_053).payload(&answer),
            ]
        })
    });
    let failed = [2, 3, 5].map(|code| {
        four(ether()).udp(53, 40_053).payload(&payload::dns_failure(9, "no.example.org", code))
    });
    both.chain(asked).chain(failed).collect()
}

/// Returns the files of the folders.
pub fn files() -> Vec<CaptureFile> {
    let file = |folder: &str, name: &str, packets: &[Packet]| {
        CaptureFile::new(folder, &format!("{name}.pcap"), Scene::of(packets).pcap())
    };
    let mut files = Vec::new();
    for (folder, captures) in [("voip", voip()), ("ipv6", ipv6())] {
        let captures = captures.iter();
        files.extend(captures.map(|(name, packets)| file(folder, name, packets)));
    }
    let mut scene = Scene::new(1);
    without_ports().into_iter().for_each(|frame| scene.push(frame));
    files.push(CaptureFile::new("mixed", "without-ports.pcap", scene.pcap()));
    files.push(file("mixed", "datagrams", &over_udp()));
    files
}
