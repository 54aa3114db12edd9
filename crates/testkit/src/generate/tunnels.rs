//! `encapsulation`: every header that can precede a packet, alone and combined.

use super::CaptureFile;
use super::payload;
use super::scene::{Scene, v4, v6};
use super::talk::Talk;
use crate::packet::Packet;

/// Options of the classes with names, one with data that may not be passed over, and of classes without.
#[rustfmt::skip]
const GENEVE_OPTIONS: &[u8] = &[
    0, 0, 1, 0, 1, 0, 2, 0, 1, 1, 3, 0, 1, 2, 0x84, 1, 0, 0, 0, 7,
    1, 3, 5, 0, 1, 4, 6, 0, 0x7f, 0, 7, 0, 0xff, 0xf1, 8, 0,
];

/// Builds IPv4 between two routers.
fn outer(link: Packet) -> Packet {
    link.ipv4([192, 0, 2, 1], [192, 0, 2, 2])
}

/// Builds IPv6 between two routers.
fn outer_six(link: Packet) -> Packet {
    link.ipv6([0x2001, 0xdb8, 1, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 1, 0, 0, 0, 0, 2])
}

/// Returns the headers before the IP header of the inner packets, by name.
pub fn all() -> Vec<(&'static str, Packet)> {
    let ether = Packet::ethernet;
    vec![
        ("vlan", ether().vlan(10)),
        ("vlan-priority", ether().tag(0x8100, 0xa00a)),
        ("vlan-zero", ether().vlan(0)),
        ("vlan-9100", ether().tag(0x9100, 30).vlan(31)),
        ("qinq", ether().qinq(20).vlan(21)),
        ("two-vlans", ether().vlan(22).vlan(23)),
        ("three-vlans", ether().qinq(24).vlan(25).vlan(26)),
        ("mpls", ether().mpls(100)),
        ("mpls-stack", ether().mpls(16).mpls(17).mpls(1_048_575)),
        ("vlan-mpls", ether().vlan(10).mpls(100)),
        ("mpls-ethernet", ether().mpls(100).ether()),
        ("mpls-control-word", ether().mpls(100).control_word().ether()),
        ("pppoe", ether().pppoe(5).ppp()),
        ("qinq-pppoe", ether().qinq(40).vlan(41).pppoe(6).ppp()),
        ("snap", ether().snap()),
        ("ipip", outer(ether())),
        ("6in4-or-4in4", outer(ether().vlan(3))),
        ("ip-in-6", outer_six(ether())),
        ("gre", outer(ether()).gre()),
        ("gre-all", outer(ether()).gre_with(Some(9), Some(8), true)),
        ("gre-key", outer_six(ether()).gre_with(Some(77), None, false)),
        ("gre-ethernet", outer(ether()).gre().ether()),
        ("gre-vlan", outer(ether().vlan(10)).gre().ether().vlan(11)),
        ("pptp", outer(ether()).pptp(5, Some(1)).ppp()),
        ("erspan-2", outer(ether()).gre_with(None, Some(1), false).erspan(2).ether()),
        ("erspan-3", outer(ether()).gre_with(None, Some(1), false).erspan(3).ether()),
        ("vxlan", outer(ether()).vxlan(7).ether()),
        ("vxlan-six", outer_six(ether()).vxlan(0xff_ffff).ether()),
        ("vxlan-vlan", outer(ether().vlan(4)).vxlan(8).ether().vlan(5)),
        ("geneve", outer(ether()).geneve(9, &[]).ether()),
        ("geneve-options", outer(ether()).geneve(9, GENEVE_OPTIONS).ether()),
        ("geneve-ip", outer(ether()).geneve(10, &[])),
        ("gtpu", outer(ether()).gtpu(0x11)),
        ("gtpu-numbered", outer(ether()).gtpu_numbered(0x22, 5)),
        ("gtpu-vlan", outer(ether().qinq(6).vlan(7)).gtpu(0x33)),
        ("etherip", outer(ether()).ether_ip().ether()),
        ("authentication", outer(ether()).authentication()),
        ("sll-vlan", Packet::sll().vlan(12)),
        ("sll2-vlan", Packet::sll2().vlan(13)),
        ("sll-vxlan", outer(Packet::sll()).vxlan(14).ether()),
        ("raw-gre", outer(Packet::raw()).gre()),
        ("nested", outer(outer(ether().vlan(1)).gre()).vxlan(2).ether().vlan(3)),
        ("vxlan-in-gtpu", outer(outer(ether()).gtpu(1)).vxlan(2).ether()),
    ]
}

/// Builds packets of every kind after these headers.
fn inside(around: &Packet) -> Vec<Vec<u8>> {
    let four = || around.clone().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let six = || {
        let host = |last| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last];
        around.clone().ipv6(host(1), host(2))
    };
    let mut packets = vec![
        four().udp(40_000, 53).payload(&payload::dns_query(5, "www.example.org", 1)),
        four().udp(53, 40_000).payload(&payload::dns_answer(5, "www.example.org", 1)),
        six().udp(40_001, 53).payload(&payload::dns_query(6, "www.example.org", 28)),
        four().udp(7, 9).payload(b"discard"),
        six().udp(7, 9).payload(&[0; 200]),
        four().icmp(8, 0, 0x0001_0001).payload(&[5; 56]),
        four().icmp(0, 0, 0x0001_0001).payload(&[5; 56]),
        six().icmpv6(128, 0, 0x0001_0002).payload(&[6; 32]),
        four().icmp(3, 1, 0).payload(&Packet::raw().ipv4([10; 4], [11; 4]).udp(1, 2).build()),
        four()
            .sctp(5_000, 80)
            .payload(&[0, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 2, 3, 4]),
        four().ip_options(&[7, 7, 4, 0, 0, 0, 0, 1]).udp(5_002, 5_001).payload(b"recorded"),
        four().fragment(3, 0, true).udp(1, 2).payload(&[4; 24]),
        four().fragment(3, 32, false).ip_payload(17, &[4; 8]),
        six().hop_by_hop().udp(3, 4).payload(b"x"),
        four().esp(0x77).payload(&[8; 40]),
    ];
    for flags in [0x02, 0x12, 0x10, 0x18, 0x11, 0x14] {
        packets.push(four().tcp(40_002, 80).flags(flags).seq_ack(9, 10).payload(b""));
    }
    let mut frames: Vec<_> = packets.iter().map(Packet::build).collect();
    for (client, server) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        let first = [3_000_000_000, 4_000_000_000];
        let mut talk = Talk::new(around.clone(), (client, 40_003), (server, 443), first);
        talk.handshake().client(&payload::client_hello("www.example.net"));
        talk.segment_len(300).server(&[9; 700]).close();
        frames.extend(talk.frames());
    }
    frames.push(around.clone().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]).build());
    frames.push(around.clone().arp(2, [10, 0, 0, 2], [10, 0, 0, 1]).build());
    frames
}

/// Returns the files of the folder.
pub fn files() -> Vec<CaptureFile> {
    let files = all().into_iter().map(|(name, around)| {
        let mut scene = Scene::new(around.link_type());
        inside(&around).into_iter().for_each(|frame| scene.push(frame));
        CaptureFile::new("encapsulation", &format!("{name}.pcap"), scene.pcap())
    });
    files.collect()
}
