//! The scoped reading on built packets: every encapsulation, scopes, tags, fragments, cuts, and
//! refused texts.

use fyke_filter::{Options, Predicate, Reading, compile};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;

fn scoped(text: &str, link: LinkType) -> Predicate {
    let options = Options { link, reading: Reading::Scoped, ..Options::default() };
    compile(text, &options).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn accepts(text: &str, packet: &Packet) -> bool {
    let link = LinkType(packet.link_type());
    scoped(text, link).accepts(&Frame::new(link, &packet.build()))
}

#[track_caller]
fn check(packet: &Packet, accepted: &[&str], rejected: &[&str]) {
    for text in accepted {
        assert!(accepts(text, packet), "{text} should accept {packet:?}");
    }
    for text in rejected {
        assert!(!accepts(text, packet), "{text} should reject {packet:?}");
    }
}

/// The innermost packet of all frames below.
fn inner(packet: Packet) -> Packet {
    packet.ipv4([10, 1, 1, 1], [10, 1, 1, 2]).tcp(1234, 80).flags(0x02).payload(b"hello")
}

fn tunnel(packet: Packet) -> Packet {
    packet.ipv4([192, 0, 2, 1], [192, 0, 2, 2])
}

fn tunnel6(packet: Packet) -> Packet {
    let [from, to] = ["2001:db8::1", "2001:db8::2"]
        .map(|text| text.parse::<std::net::Ipv6Addr>().expect("an address"));
    packet.ipv6(from, to)
}

#[test]
fn the_innermost_packet_is_asked_in_every_tunnel() {
    let ethernet = Packet::ethernet;
    let tunnels = [
        ("gre", inner(tunnel(ethernet()).gre()), "ip proto 47"),
        ("gre with key", inner(tunnel(ethernet()).gre_with(Some(7), Some(1), true)), "ip proto 47"),
        ("gre with ethernet", inner(tunnel(ethernet()).gre().ether()), "ip proto 47"),
        ("pptp", inner(tunnel(ethernet()).pptp(5, Some(1)).ppp()), "ip proto 47"),
        (
            "erspan 2",
            inner(tunnel(ethernet()).gre_with(None, Some(1), false).erspan(2).ether()),
            "ip proto 47",
        ),
        (
            "erspan 3",
            inner(tunnel(ethernet()).gre_with(None, Some(1), false).erspan(3).ether()),
            "ip proto 47",
        ),
        ("ip in ip", inner(tunnel(ethernet())), "ip proto 4"),
        ("ip in ip6", inner(tunnel6(ethernet())), "ip6 proto 4"),
        ("vxlan", inner(tunnel(ethernet()).vxlan(9).ether()), "udp dst port 4789"),
        ("geneve", inner(tunnel(ethernet()).geneve(9, &[]).ether()), "udp dst port 6081"),
        (
            "geneve with options",
            inner(tunnel(ethernet()).geneve(9, &[1; 8]).ether()),
            "udp port 6081",
        ),
        ("gtp-u", inner(tunnel(ethernet()).gtpu(3)), "udp port 2152"),
        ("gtp-u numbered", inner(tunnel(ethernet()).gtpu_numbered(3, 4)), "udp port 2152"),
        ("etherip", inner(tunnel(ethernet()).ether_ip().ether()), "ip proto 97"),
        ("after a tag", inner(tunnel(ethernet().vlan(5)).gre()), "vlan 5"),
        ("in cooked capture", inner(tunnel(Packet::sll()).gre()), "ip proto 47"),
        ("in cooked capture 2", inner(tunnel(Packet::sll2()).vxlan(1).ether()), "port 4789"),
        ("without link header", inner(tunnel(Packet::raw()).gre()), "ip proto 47"),
    ];
    for (name, packet, outer) in tunnels {
        println!("{name}");
        check(
            &packet,
            &[
                "tcp port 80",
                "src host 10.1.1.1 and dst net 10.1.0.0/16",
                "tcp[tcpflags] & tcp-syn != 0",
                "ip[12:4] = 0x0a010101",
                &format!("outer ({outer})"),
                &format!("outer ({outer}) and tcp dst port 80"),
                &format!("any ({outer}) and any (tcp port 80)"),
                "layer 1 (tcp)",
                "not outer (tcp)",
                "any (ip or ip6) and not layer 2 (ip)",
            ],
            &[
                "udp",
                "host 192.0.2.1 or host 2001:db8::1",
                "outer (host 10.1.1.1)",
                "layer 2 (ip)",
                "layer 2 (not ip)",
                &format!("any (({outer}) and tcp)"),
                outer,
            ],
        );
    }
}

#[test]
fn a_scope_binds_negation_to_one_packet() {
    let packet = tunnel(Packet::ethernet()).vxlan(9).ether().ipv4([10, 1, 1, 1], [10, 1, 1, 2]);
    let web = packet.clone().tcp(1234, 80);
    // Is any packet TCP without port 80? The only TCP packet has port 80.
    check(
        &web,
        &["any (not tcp)", "any (not port 80)", "not any (tcp and not port 80)"],
        &["any (tcp and not port 80)", "not any (tcp)", "layer 1 (tcp and not port 80)"],
    );
    check(&packet.tcp(1234, 81), &["any (tcp and not port 80)"], &["any (port 80)"]);
}

#[test]
fn tags_labels_and_sessions_shift_nothing() {
    let texts = ["vlan 5", "tcp port 80", "vlan 5 and tcp port 80", "tcp port 80 and vlan 5"];
    check(&inner(Packet::ethernet().vlan(5)), &texts, &["vlan 6", "not vlan", "vlan and udp"]);
    let double = inner(Packet::ethernet().qinq(7).vlan(5));
    check(&double, &texts, &["vlan 6"]);
    check(&double, &["vlan 7", "vlan 7 and vlan 5", "vlan 5 and vlan 7", "vlan 9 or tcp"], &[]);
    check(&double, &["ether proto 0x88a8", "ether proto 0x8100", "ip"], &["ether proto 0x9100"]);
    let labels = inner(Packet::ethernet().mpls(100).mpls(200));
    check(&labels, &["mpls 200", "mpls 100 and tcp port 80", "mpls"], &["mpls 300", "vlan"]);
    let session = inner(Packet::ethernet().pppoe(17).ppp());
    check(&session, &["pppoes 17", "pppoes and tcp port 80", "tcp"], &["pppoes 18", "pppoed"]);
    let wire = inner(Packet::ethernet().mpls(1).control_word().ether());
    check(&wire, &["tcp port 80", "outer (mpls 1)"], &["mpls 1", "outer (tcp)"]);
    // A tag inside a tunnel belongs to the inner packet, a tag outside does not.
    let both = inner(tunnel(Packet::ethernet().vlan(5)).vxlan(1).ether().vlan(6));
    check(&both, &["vlan 6", "outer (vlan 5)", "any (vlan 5)"], &["vlan 5", "outer (vlan 6)"]);
}

#[test]
fn link_layer_arp_and_ip6() {
    let ask = Packet::ethernet().vlan(3).arp(1, [10, 0, 0, 1], [10, 0, 0, 9]);
    check(
        &ask,
        &["arp", "host 10.0.0.9", "arp src host 10.0.0.1", "arp[6:2] = 1", "net 10.0.0.0/24"],
        &["ip", "rarp", "ip host 10.0.0.9", "ip6", "arp[100] = 0", "not arp[100] = 0"],
    );
    let cast = Packet::ethernet().macs([2, 0, 0, 0, 0, 1], [0xff; 6]).arp(1, [1; 4], [2; 4]);
    check(&cast, &["broadcast", "multicast", "ether src 02:00:00:00:00:01"], &["ip multicast"]);
    let chain = tunnel6(Packet::ethernet()).hop_by_hop().destination_options().tcp(1, 443);
    check(
        &chain,
        &[
            "tcp port 443",
            "ip6 proto 60",
            "tcp[2:2] = 443",
            "ip6 net 2001:db8::/32",
            "portrange 440-450",
        ],
        &["udp", "ip proto 6", "portrange 1000-2000", "ip6 proto 43"],
    );
    check(&chain.clone(), &["port 443", "less 1000", "greater 20"], &["greater 1000"]);
    let authenticated = tunnel(Packet::ethernet()).authentication().udp(53, 53);
    check(&authenticated, &["ah", "udp port 53", "ah and udp[0:2] = 53"], &["esp", "tcp"]);
    let llc = Packet::ethernet().llc([0x42, 0x42, 3]).payload(&[0; 40]);
    check(&llc, &["stp", "llc", "llc u"], &["ip", "llc i", "ipx"]);
    check(&inner(Packet::ethernet().snap()), &["llc", "ip", "tcp port 80"], &["stp"]);
    check(&inner(Packet::null()), &["tcp port 80"], &["vlan", "broadcast"]);
    check(&inner(Packet::loopback()), &["tcp port 80"], &["ether host 02:00:00:00:00:01"]);
}

#[test]
fn padding_and_cuts_belong_to_nobody() {
    let mut bytes = tunnel(Packet::ethernet()).udp(1, 2).build();
    bytes.resize(60, 0);
    let frame = Frame::new(LinkType::EN10MB, &bytes);
    let judge = |text| scoped(text, LinkType::EN10MB).accepts(&frame);
    assert!(judge("udp[7] = udp[7]"));
    assert!(!judge("udp[8] = 0") && !judge("not udp[8] = 1") && !judge("ip[0] / 0 = 1"));
    assert!(compile("udp[8] = 0", &Options::default()).unwrap().accepts(&frame));
    // A cut before the ports: neither the port nor its negation holds.
    let whole = inner(tunnel(Packet::ethernet()).gre()).build();
    let ports_at = whole.len() - 5 - 20;
    for length in 0..whole.len() {
        let frame = Frame { data: &whole[..length], ..Frame::new(LinkType::EN10MB, &whole) };
        let judge = |text| scoped(text, LinkType::EN10MB).accepts(&frame);
        assert_eq!(judge("tcp port 80"), length >= ports_at + 4, "{length}");
        let innermost_cut = (ports_at..ports_at + 4).contains(&length);
        assert!(!(innermost_cut && judge("not port 80")), "{length}");
    }
}

#[test]
fn fragments_take_the_ports_of_their_first() {
    let filter = scoped("udp port 53", LinkType::EN10MB);
    let not = scoped("not udp port 53", LinkType::EN10MB);
    let host = scoped("host 192.0.2.1", LinkType::EN10MB);
    let first = |id| tunnel(Packet::ethernet()).fragment(id, 0, true).udp(9, 53).payload(&[0; 16]);
    let later =
        |id: u16| tunnel(Packet::ethernet()).protocol(17).fragment(id, 24, false).payload(&[7; 16]);
    let at = |packet: &Packet, timestamp_ns, judge: &dyn Fn(&Frame) -> bool| {
        let bytes = packet.build();
        judge(&Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, &bytes) })
    };
    // Before the first fragment: every test of ports rejects, negated or not.
    assert!(!at(&later(1), 10, &|frame| filter.accepts(frame) || not.accepts(frame)));
    assert!(at(&later(1), 10, &|frame| host.accepts(frame)));
    assert!(at(&first(1), 20, &|frame| filter.accepts(frame) && !not.accepts(frame)));
    assert!(at(&later(1), 30, &|frame| filter.accepts(frame)));
    assert!(at(&later(1), 15, &|frame| !filter.accepts(frame)), "captured before its first");
    assert!(!at(&later(2), 30, &|frame| filter.accepts(frame)), "another packet");
    assert!(!at(&later(1), 31_000_000_000, &|frame| filter.accepts(frame)), "too late");
    // In IPv6, inside a tunnel.
    let six = |offset, more| {
        let packet = tunnel6(tunnel(Packet::ethernet()).gre()).fragment6(77, offset, more);
        if offset == 0 { packet.udp(9, 53).payload(&[0; 16]) } else { packet.payload(&[7; 8]) }
    };
    assert!(at(&six(0, true), 40, &|frame| filter.accepts(frame)));
    let mut bytes = six(24, false).build();
    let header = bytes.len() - 8 - 8;
    bytes[header] = 17;
    let frame = Frame { timestamp_ns: 50, ..Frame::new(LinkType::EN10MB, &bytes) };
    assert!(filter.accepts(&frame) && !not.accepts(&frame));
    let bytes_of = scoped("udp[0] = 0 or not udp[0] = 0", LinkType::EN10MB);
    assert!(!bytes_of.accepts(&frame), "the bytes are in the first fragment");
}

#[test]
fn texts_print_and_parse_back_and_bad_ones_say_why() {
    let options = Options { reading: Reading::Scoped, ..Options::default() };
    for text in ["outer (vlan 5 or tcp) and not any (udp port 53)", "layer 3 (ip6) or port 80"] {
        let predicate = compile(text, &options).unwrap();
        let again = compile(&predicate.to_string(), &options).unwrap();
        assert!(predicate == again, "{text} became {predicate}");
    }
    for (text, message) in [
        ("any (outer (tcp))", "inside the brackets of another scope"),
        ("layer 8 (tcp)", "there is no layer 8"),
        ("layer 1 tcp", "is not expected here"),
        ("outer (tcp", "ends too early"),
        ("outer (80)", "a number alone"),
        ("decnet host 1.5", "not in the scoped reading"),
        ("outer", "not a word of the filter language"),
    ] {
        let error = compile(text, &options).expect_err(text);
        assert!(error.message().contains(message), "{text}: {error}");
    }
    assert!(compile("outer (tcp)", &Options::default()).is_err(), "compat has no scopes");
    // A text that compat refuses as impossible can test two packets.
    assert!(compile("outer (udp) and tcp and port 80", &options).is_ok());
    let deep = format!("{}tcp{}", "any (".repeat(600), ")".repeat(600));
    assert!(compile(&deep, &options).is_err());
    let long = vec!["tcp and not any (port 1) or udp"; 20_000].join(" and ");
    let predicate = compile(&long, &options).expect("long chains are fine");
    assert!(!predicate.accepts(&Frame::new(LinkType::EN10MB, &[0; 60])));
}

#[test]
fn no_bytes_make_it_panic() {
    let mut draw = fyke_testkit::random::Random::new(0x5c0e);
    let texts = ["tcp port 80", "any (not udp[4:2] > 8)", "layer 2 (vlan)", "ip6[40] = 3 or arp"];
    let filters = texts.map(|text| scoped(text, LinkType::EN10MB));
    let whole = inner(tunnel(Packet::ethernet().vlan(5)).vxlan(1).ether().vlan(6)).build();
    for _ in 0..20_000 {
        let mut bytes = whole[..draw.below(whole.len() + 1)].to_vec();
        for _ in 0..3 {
            if !bytes.is_empty() {
                let at = draw.below(bytes.len());
                bytes[at] = draw.below(256) as u8;
            }
        }
        for filter in &filters {
            let frame = Frame::new(LinkType::EN10MB, &bytes);
            assert_eq!(filter.holds(&frame), filter.holds(&frame));
        }
    }
}
