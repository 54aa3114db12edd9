//! Built packets of every protocol that the walk knows, with the layers that it must find.

use Protocol::*;
use fyke_frame::walk::{Protocol, Stop};
use fyke_testkit::packet::Packet;

pub struct Sample {
    pub name: &'static str,
    pub packet: Packet,
    /// Protocol and level.
    pub layers: Vec<(Protocol, u8)>,
    pub stop: Stop,
}

pub const A4: [u8; 4] = [10, 0, 0, 1];
pub const B4: [u8; 4] = [10, 0, 0, 2];
pub const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
pub const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];

fn done(name: &'static str, packet: Packet, layers: &[(Protocol, u8)]) -> Sample {
    Sample { name, packet: packet.payload(b"payload"), layers: layers.to_vec(), stop: Stop::Done }
}

fn ends(name: &'static str, packet: Packet, layers: &[(Protocol, u8)], stop: Stop) -> Sample {
    Sample { name, packet: packet.payload(b"payload"), layers: layers.to_vec(), stop }
}

fn v4() -> Packet {
    Packet::ethernet().ipv4(A4, B4)
}

fn v6() -> Packet {
    Packet::ethernet().ipv6(A6, B6)
}

pub fn all() -> Vec<Sample> {
    [links(), ip(), transports(), tunnels(), nested()].into_iter().flatten().collect()
}

fn links() -> Vec<Sample> {
    let tcp4 = |packet: Packet| packet.ipv4(A4, B4).tcp(1234, 80);
    vec![
        done("ethernet", tcp4(Packet::ethernet()), &[(Ethernet, 0), (Ipv4, 0), (Tcp, 0)]),
        done("raw 4", tcp4(Packet::raw()), &[(Ipv4, 0), (Tcp, 0)]),
        done("raw 6", Packet::raw().ipv6(A6, B6).udp(1, 2), &[(Ipv6, 0), (Udp, 0)]),
        done("sll", tcp4(Packet::sll()), &[(Link, 0), (Ipv4, 0), (Tcp, 0)]),
        done("sll2", tcp4(Packet::sll2()), &[(Link, 0), (Ipv4, 0), (Tcp, 0)]),
        done("null 6", Packet::null().ipv6(A6, B6).udp(1, 2), &[(Link, 0), (Ipv6, 0), (Udp, 0)]),
        done("loop", tcp4(Packet::loopback()), &[(Link, 0), (Ipv4, 0), (Tcp, 0)]),
        done(
            "vlan",
            tcp4(Packet::ethernet().vlan(5)),
            &[(Ethernet, 0), (Vlan, 0), (Ipv4, 0), (Tcp, 0)],
        ),
        done(
            "eight tags",
            tcp4((1..9).fold(Packet::ethernet(), Packet::qinq)),
            &[(Ethernet, 0), (Vlan, 0), (Ipv4, 0), (Tcp, 0)],
        ),
        done(
            "snap in vlan",
            tcp4(Packet::ethernet().vlan(7).snap()),
            &[(Ethernet, 0), (Vlan, 0), (Llc, 0), (Ipv4, 0), (Tcp, 0)],
        ),
        done(
            "mpls",
            tcp4(Packet::ethernet().mpls(16).mpls(17).mpls(18)),
            &[(Ethernet, 0), (Mpls, 0), (Ipv4, 0), (Tcp, 0)],
        ),
        done(
            "pseudowire",
            tcp4(Packet::ethernet().mpls(16).control_word().ether().vlan(3)),
            &[
                (Ethernet, 0),
                (Mpls, 0),
                (ControlWord, 0),
                (Ethernet, 1),
                (Vlan, 1),
                (Ipv4, 1),
                (Tcp, 1),
            ],
        ),
        done(
            "pppoe",
            Packet::ethernet().vlan(2).pppoe(9).ppp().ipv6(A6, B6).tcp(1, 2),
            &[(Ethernet, 0), (Vlan, 0), (Pppoe, 0), (Ppp, 0), (Ipv6, 0), (Tcp, 0)],
        ),
        done("arp", Packet::ethernet().arp(1, A4, B4), &[(Ethernet, 0), (Arp, 0)]),
        ends(
            "spanning tree",
            Packet::ethernet().llc([0x42, 0x42, 3]),
            &[(Ethernet, 0), (Llc, 0)],
            Stop::UnknownProtocol(fyke_frame::walk::Numbered::Llc(0x4242)),
        ),
    ]
}

fn ip() -> Vec<Sample> {
    vec![
        done(
            "ip options",
            v4().ip_options(&[7, 7, 4, 0, 0, 0, 0]).tcp(1, 2),
            &[(Ethernet, 0), (Ipv4, 0), (Tcp, 0)],
        ),
        done(
            "first fragment",
            v4().fragment(7, 0, true).udp(1, 2),
            &[(Ethernet, 0), (Ipv4, 0), (Udp, 0)],
        ),
        ends(
            "later fragment",
            v4().protocol(17).fragment(7, 1480, false),
            &[(Ethernet, 0), (Ipv4, 0)],
            Stop::Fragment,
        ),
        done(
            "extension headers",
            v6().hop_by_hop()
                .destination_options()
                .routing()
                .fragment6(1, 0, true)
                .authentication()
                .extension(135, &[0; 6])
                .extension(139, &[0; 14])
                .extension(140, &[0; 6])
                .tcp(1, 2),
            &[
                (Ethernet, 0),
                (Ipv6, 0),
                (HopByHop, 0),
                (DestinationOptions, 0),
                (Routing, 0),
                (Fragment, 0),
                (Authentication, 0),
                (Mobility, 0),
                (Hip, 0),
                (Shim6, 0),
                (Tcp, 0),
            ],
        ),
        ends(
            "later fragment 6",
            v6().fragment6(7, 1448, false),
            &[(Ethernet, 0), (Ipv6, 0), (Fragment, 0)],
            Stop::Fragment,
        ),
        ends("esp", v4().esp(99), &[(Ethernet, 0), (Ipv4, 0), (Esp, 0)], Stop::Encrypted),
        done(
            "ah 4",
            v4().authentication().tcp(1, 2),
            &[(Ethernet, 0), (Ipv4, 0), (Authentication, 0), (Tcp, 0)],
        ),
        ends(
            "unknown protocol",
            v4().protocol(89),
            &[(Ethernet, 0), (Ipv4, 0)],
            Stop::UnknownProtocol(fyke_frame::walk::Numbered::Ip(89)),
        ),
        ends("no next header", v6().protocol(59), &[(Ethernet, 0), (Ipv6, 0)], Stop::Done),
    ]
}

fn transports() -> Vec<Sample> {
    let e4 = |last| [(Ethernet, 0), (Ipv4, 0), (last, 0)];
    let e6 = |last| [(Ethernet, 0), (Ipv6, 0), (last, 0)];
    vec![
        done("tcp options", v4().tcp(1, 2).tcp_options(&[2, 4, 5, 0xb4, 1, 3, 3, 7]), &e4(Tcp)),
        done("udp", v6().udp(53, 5353), &e6(Udp)),
        done("udp-lite", v4().udp_lite(5, 6), &e4(UdpLite)),
        done("sctp", v4().sctp(36412, 36412), &e4(Sctp)),
        done("icmp", v4().icmp(8, 0, 0x0001_0001), &e4(Icmp)),
        done("icmpv6", v6().icmpv6(128, 0, 0x0001_0001), &e6(Icmpv6)),
        done("igmp", v4().ip_payload(2, &[0x16, 0, 0, 0, 224, 0, 0, 9]), &e4(Igmp)),
        done(
            "dccp",
            v4().ip_payload(33, &[0, 1, 0, 2, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            &e4(Dccp),
        ),
    ]
}

fn tunnels() -> Vec<Sample> {
    let inner4 = |packet: Packet| packet.ipv4([192, 168, 0, 1], [192, 168, 0, 2]).tcp(5, 6);
    let around = |tunnel: &[Protocol], inside: &[Protocol]| -> Vec<(Protocol, u8)> {
        let outer = [Ethernet, Ipv4].iter().chain(tunnel).map(|kind| (*kind, 0));
        outer.chain(inside.iter().map(|kind| (*kind, 1))).collect()
    };
    vec![
        done("gre", inner4(v4().gre()), &around(&[Gre], &[Ipv4, Tcp])),
        done(
            "gre with all",
            inner4(v4().gre_with(Some(1), Some(2), true).ether()),
            &around(&[Gre], &[Ethernet, Ipv4, Tcp]),
        ),
        done("pptp", inner4(v4().pptp(3, Some(1)).ppp()), &around(&[Gre], &[Ppp, Ipv4, Tcp])),
        done("pptp acknowledgement", v4().pptp(3, None), &around(&[Gre], &[])),
        done(
            "erspan ii",
            inner4(v4().gre_with(None, Some(1), false).erspan(2).ether()),
            &around(&[Gre, Erspan], &[Ethernet, Ipv4, Tcp]),
        ),
        done(
            "erspan iii",
            inner4(v4().gre_with(None, Some(1), false).erspan(3).ether()),
            &around(&[Gre, Erspan], &[Ethernet, Ipv4, Tcp]),
        ),
        done("ip in ip", inner4(v4()), &around(&[], &[Ipv4, Tcp])),
        done("6in4", v4().ipv6(A6, B6).udp(1, 2), &around(&[], &[Ipv6, Udp])),
        done("4in6", inner4(v6()), &[(Ethernet, 0), (Ipv6, 0), (Ipv4, 1), (Tcp, 1)]),
        done(
            "mpls in ip",
            inner4(v4().mpls(40)),
            &around(&[Mpls], &[]).iter().copied().chain([(Ipv4, 0), (Tcp, 0)]).collect::<Vec<_>>(),
        ),
        done(
            "etherip",
            inner4(v4().ether_ip().ether()),
            &around(&[EtherIp], &[Ethernet, Ipv4, Tcp]),
        ),
        done("ethernet in ip", inner4(v4().ether()), &around(&[], &[Ethernet, Ipv4, Tcp])),
        done(
            "vxlan",
            inner4(v4().vxlan(7).ether()),
            &around(&[Udp, Vxlan], &[Ethernet, Ipv4, Tcp]),
        ),
        done(
            "geneve",
            inner4(v4().geneve(7, &[0, 1, 2, 1, 9, 9, 9, 9]).ether().vlan(8)),
            &around(&[Udp, Geneve], &[Ethernet, Vlan, Ipv4, Tcp]),
        ),
        done("geneve ip", inner4(v4().geneve(7, &[])), &around(&[Udp, Geneve], &[Ipv4, Tcp])),
        done("gtp-u", inner4(v4().gtpu(1)), &around(&[Udp, Gtpu], &[Ipv4, Tcp])),
        done(
            "gtp-u numbered",
            v4().gtpu_numbered(1, 2).ipv6(A6, B6).udp(1, 2),
            &around(&[Udp, Gtpu], &[Ipv6, Udp]),
        ),
    ]
}

fn nested() -> Vec<Sample> {
    let inner4 = |packet: Packet| packet.ipv4([192, 168, 0, 1], [192, 168, 0, 2]).tcp(5, 6);
    vec![done(
        "three levels",
        inner4(v4().vxlan(1).ether().ipv6(A6, B6).gre()),
        &[
            (Ethernet, 0),
            (Ipv4, 0),
            (Udp, 0),
            (Vxlan, 0),
            (Ethernet, 1),
            (Ipv6, 1),
            (Gre, 1),
            (Ipv4, 2),
            (Tcp, 2),
        ],
    )]
}
