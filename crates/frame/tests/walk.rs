//! The header walk on built packets: every protocol, every truncation, seeded mutations, and a
//! comparison with etherparse.

mod samples;

use fyke_frame::walk::view::{IpView, MacAddr, tcp_flags};
use fyke_frame::walk::{
    FragmentInfo, Layers, MAX_LAYERS, MAX_LEVELS, Numbered, Ports, Protocol, Start, Stop, walk,
    walk_again, walk_from,
};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use samples::{A4, A6, B4, B6, Sample};

fn walk_of<'a>(sample: &Sample, bytes: &'a [u8], wire_len: usize) -> Layers<'a> {
    walk_from(bytes, wire_len, Start::Link(LinkType(sample.packet.link_type())))
}

fn shape(layers: &Layers) -> Vec<(Protocol, u8)> {
    layers.iter().map(|layer| (layer.protocol, layer.level)).collect()
}

/// Checks the invariants, which hold for any bytes.
fn check_invariants(layers: &Layers, data_len: usize, wire_len: usize) {
    let (mut at, mut end, mut wire_end, mut level) = (0, data_len, wire_len.max(data_len), 0);
    assert!(layers.len() <= MAX_LAYERS);
    for layer in layers {
        assert!(layer.offset as usize == at, "headers follow each other: {layer:?} at {at}");
        assert!(layer.header_end() <= layer.end as usize && layer.end <= layer.wire_end);
        assert!(layer.end as usize <= end && layer.wire_end as usize <= wire_end);
        assert!(layer.level == level || layer.level == level + 1);
        assert!(layer.level < MAX_LEVELS);
        at = layer.header_end();
        (end, wire_end, level) = (layer.end as usize, layer.wire_end as usize, layer.level);
    }
    read_everything(layers);
}

/// Calls every getter of every view; none may panic.
fn read_everything(layers: &Layers) {
    let mut text = format!("{:?} {:?} {:?}", layers.stop(), layers.ports(), layers.payload().len());
    for scope in layers.levels().chain([layers.all()]) {
        text += &format!("{:?} {:?}", scope.fragment(), scope.ip_protocol());
        if let Some(arp) = scope.arp() {
            text += &format!("{:?} {:?}", arp.sender_ipv4(), arp.target_ipv4());
            text += &format!("{:?} {:?}", arp.sender_hardware(), arp.target_hardware());
        }
        if let Some(tcp) = scope.tcp() {
            text += &format!("{:?} {:?} {:?}", tcp.sequence(), tcp.flags(), tcp.urgent());
            text += &format!("{:?} {}", tcp.options().count(), tcp.wire_payload_len());
        }
        if let Some(udp) = scope.udp() {
            text += &format!("{:?} {:?}", udp.length(), udp.checksum());
        }
        if let Some(icmp) = scope.icmp() {
            text += &format!("{:?} {:?} {:?}", icmp.kind(), icmp.code(), icmp.rest());
        }
        let tags = scope.vlan().map_or(0, |vlan| vlan.tags().map(|tag| usize::from(tag.id)).sum());
        let labels = scope.mpls().map_or(0, |mpls| mpls.labels().map(|label| label.label).sum());
        text +=
            &format!("{tags} {labels} {:?}", scope.ip().map(|ip| (ip.source(), ip.hop_limit())));
    }
    assert!(!text.is_empty());
}

#[test]
fn every_protocol_is_found() {
    for sample in samples::all() {
        let bytes = sample.packet.build();
        let layers = walk_of(&sample, &bytes, bytes.len());
        assert_eq!(shape(&layers), sample.layers, "{}", sample.name);
        assert_eq!(layers.stop(), sample.stop, "{}", sample.name);
        assert!(layers.payload().ends_with(b"payload"), "{}: {:?}", sample.name, layers.payload());
        check_invariants(&layers, bytes.len(), bytes.len());
    }
}

#[test]
fn a_cut_frame_gives_a_prefix_of_its_layers() {
    for sample in samples::all() {
        let bytes = sample.packet.build();
        for cut in 0..bytes.len() {
            let layers = walk_of(&sample, &bytes[..cut], bytes.len());
            check_invariants(&layers, cut, bytes.len());
            let found = shape(&layers);
            assert!(sample.layers.starts_with(&found), "{} cut at {cut}: {found:?}", sample.name);
            let complete = found.len() == sample.layers.len() && layers.stop() == sample.stop;
            assert!(complete || layers.stop() == Stop::Truncated, "{} cut at {cut}", sample.name);
            // The same bytes as a whole frame: the length fields are wrong, and nothing else
            // changes.
            let whole = walk_of(&sample, &bytes[..cut], cut);
            check_invariants(&whole, cut, cut);
            assert_eq!(shape(&whole), found, "{} ends at {cut}", sample.name);
        }
    }
}

#[test]
fn walking_again_is_walking() {
    let built: Vec<_> =
        samples::all().iter().map(|s| (s.packet.link_type(), s.packet.build())).collect();
    let mut layers = Layers::new();
    for (link, bytes) in built.iter().chain(built.iter().rev()) {
        let frame = Frame::new(LinkType(*link), bytes);
        walk_again(&frame, &mut layers);
        let anew = walk(&frame);
        assert_eq!(layers.as_slice(), anew.as_slice());
        assert_eq!((layers.stop(), layers.payload()), (anew.stop(), anew.payload()));
    }
}

#[test]
fn padding_is_nobodys_payload() {
    for sample in samples::all().iter().filter(|sample| sample.name == "tcp options") {
        let mut bytes = sample.packet.build();
        bytes.extend([0xee; 10]);
        let layers = walk_of(sample, &bytes, bytes.len());
        assert_eq!(layers.payload(), b"payload");
        assert_eq!(layers.tcp().map(|tcp| tcp.wire_payload_len()), Some(7));
    }
}

#[test]
fn mutated_frames_keep_the_invariants() {
    let samples = samples::all();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..60_000 {
        let sample = &samples[random(samples.len())];
        let mut bytes = sample.packet.build();
        for _ in 0..=random(6) {
            let at = random(bytes.len());
            bytes[at] = match random(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ 1 << random(8),
                _ => random(256) as u8,
            };
        }
        bytes.truncate(random(bytes.len() + 1).max(random(bytes.len() + 1)));
        let wire_len = bytes.len() + random(2) * random(2000);
        let layers = walk_of(sample, &bytes, wire_len);
        check_invariants(&layers, bytes.len(), wire_len);
    }
}

#[test]
fn depth_is_limited_and_stacks_are_not() {
    let nested = (0..40).fold(Packet::raw(), |packet, _| packet.ipv4(A4, B4)).udp(1, 2).build();
    let layers = walk_from(&nested, nested.len(), Start::Ip);
    assert_eq!((layers.len(), layers.stop()), (usize::from(MAX_LEVELS), Stop::TooDeep));

    let chain = (0..40).fold(Packet::raw().ipv6(A6, B6), |packet, _| packet.destination_options());
    let chain = chain.tcp(1, 2).build();
    let layers = walk_from(&chain, chain.len(), Start::Ip);
    assert_eq!((layers.len(), layers.stop()), (MAX_LAYERS, Stop::TooDeep));

    let tagged = (0..300).fold(Packet::ethernet(), |packet, id| packet.vlan(id));
    let tagged = tagged.mpls(1).ipv4(A4, B4).tcp(1, 2).build();
    let layers = walk(&Frame::new(LinkType::EN10MB, &tagged));
    assert_eq!(layers.stop(), Stop::Done);
    let ids: Vec<u16> =
        layers.all().vlan().into_iter().flat_map(|v| v.tags()).map(|t| t.id).collect();
    assert_eq!(ids, (0..300).collect::<Vec<_>>());
}

#[test]
fn views_read_the_fields() {
    let bytes = Packet::ethernet()
        .tag(0x88a8, 0xe005)
        .vlan(6)
        .ipv4(A4, B4)
        .ttl(3)
        .tos(0xb8)
        .dont_fragment()
        .tcp(1234, 80)
        .flags(tcp_flags::SYN | tcp_flags::ACK)
        .seq_ack(7, 8)
        .tcp_options(&[1, 2, 4, 5, 0xb4])
        .payload(b"abc")
        .build();
    let layers = walk(&Frame::new(LinkType::EN10MB, &bytes));
    let all = layers.all();
    let ethernet = all.ethernet().unwrap();
    assert_eq!(ethernet.source(), MacAddr([2, 0, 0, 0, 0, 1]));
    assert_eq!(ethernet.destination().to_string(), "02:00:00:00:00:02");
    let tags: Vec<_> = all.vlan().unwrap().tags().collect();
    assert_eq!((tags[0].id, tags[0].priority, tags[0].drop_eligible), (5, 7, false));
    assert_eq!((tags[1].id, tags[1].ethertype), (6, 0x0800));
    let ip = all.ipv4().unwrap();
    assert_eq!((ip.source().octets(), ip.destination().octets()), (A4, B4));
    assert_eq!((ip.ttl(), ip.tos(), ip.protocol(), ip.id()), (3, 0xb8, 6, 1));
    assert_eq!((ip.dont_fragment(), ip.fragment(), ip.total_len()), (true, None, 51));
    let tcp = layers.tcp().unwrap();
    assert_eq!((tcp.source_port(), tcp.destination_port()), (1234, 80));
    assert_eq!((tcp.sequence(), tcp.acknowledgement()), (Some(7), Some(8)));
    assert!(tcp.has(tcp_flags::SYN | tcp_flags::ACK) && !tcp.has(tcp_flags::FIN));
    assert_eq!(
        tcp.options().map(|option| (option.kind, option.data)).collect::<Vec<_>>(),
        [(2, &[5, 0xb4][..])]
    );
    assert_eq!((tcp.payload(), tcp.header_len()), (&b"abc"[..], Some(28)));
    let ports = Ports { protocol: Protocol::Tcp, source: 1234, destination: 80 };
    assert_eq!(layers.ports(), Some(ports));
}

#[test]
fn levels_are_asked_one_by_one() {
    let bytes =
        Packet::ethernet().vlan(1).ipv4(A4, B4).vxlan(7).ether().ipv6(A6, B6).udp(53, 54).build();
    let layers = walk(&Frame::new(LinkType::EN10MB, &bytes));
    assert_eq!(layers.levels().count(), 2);
    let outer = layers.level(0).unwrap();
    assert!(outer.has(Protocol::Vlan) && !layers.level(1).unwrap().has(Protocol::Vlan));
    assert_eq!(outer.ports().map(|ports| ports.destination), Some(4789));
    assert_eq!(layers.ports().map(|ports| ports.destination), Some(54));
    assert!(matches!(layers.outermost_ip(), Some(IpView::V4(_))));
    assert!(matches!(layers.innermost_ip(), Some(IpView::V6(_))));
    assert!(layers.level(2).is_none());
    // The packet in the tunnel has no ports: the tunnel's own ports are not its ports.
    let bytes = Packet::ethernet().ipv4(A4, B4).vxlan(7).ether().arp(1, A4, B4).build();
    assert_eq!(walk(&Frame::new(LinkType::EN10MB, &bytes)).ports(), None);
}

#[test]
fn fragments_say_which_part_they_are() {
    let four = Packet::ethernet().ipv4(A4, B4).protocol(17).fragment(9, 1480, true).payload(b"x");
    let bytes = four.build();
    let layers = walk(&Frame::new(LinkType::EN10MB, &bytes));
    let info = FragmentInfo { id: 9, offset: 1480, more: true, protocol: 17 };
    assert_eq!(layers.all().fragment(), Some(info));
    assert_eq!((layers.ports(), layers.all().ip_protocol()), (None, Some(17)));

    let six = Packet::raw().ipv6(A6, B6).hop_by_hop().fragment6(0x12345, 0, false).udp(5, 6);
    let bytes = six.build();
    let layers = walk_from(&bytes, bytes.len(), Start::Ip);
    let info = layers.all().fragment().unwrap();
    assert!(info.is_whole() && info.id == 0x12345 && info.protocol == 17);
    assert_eq!(layers.ports().map(|ports| ports.source), Some(5));

    // The ports of a first fragment may be in the next one.
    let first = Packet::raw().ipv4(A4, B4).protocol(6).fragment(9, 0, true).payload(b"ab").build();
    let layers = walk_from(&first, first.len(), Start::Ip);
    assert_eq!((layers.len(), layers.stop()), (1, Stop::Fragment));
}

#[test]
fn lying_headers_end_the_walk() {
    let good = Packet::raw().ipv4(A4, B4).tcp(1, 2).payload(b"abc").build();
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = good.clone();
        changes.iter().for_each(|(at, value)| bytes[*at] = *value);
        let layers = walk_from(&bytes, bytes.len(), Start::Link(LinkType::IPV4));
        (layers.len(), layers.stop())
    };
    assert_eq!(with(&[]), (2, Stop::Done));
    assert_eq!(with(&[(0, 0x44)]), (0, Stop::LengthLies), "header of 16 bytes");
    assert_eq!(with(&[(0, 0x65)]), (0, Stop::WrongVersion(6)));
    assert_eq!(with(&[(3, 19)]), (1, Stop::LengthLies), "total length in the header");
    assert_eq!(with(&[(3, 30)]), (2, Stop::LengthLies), "total length in the TCP header");
    assert_eq!(with(&[(2, 0), (3, 0)]), (2, Stop::Done), "segmentation off-load");
    assert_eq!(with(&[(32, 0x40)]), (2, Stop::LengthLies), "TCP header of 16 bytes");
    assert_eq!(with(&[(32, 0xf0)]), (2, Stop::LengthLies), "TCP header beyond the packet");
    let unknown = Stop::UnknownProtocol(Numbered::LinkType(9999));
    assert_eq!(walk_from(&good, good.len(), Start::Link(LinkType(9999))).stop(), unknown);
    assert!(unknown.to_string().contains("9999"));
}

/// Compares the outermost packet with etherparse's result; false if that has nothing comparable.
fn agrees_with_etherparse(name: &str, bytes: &[u8]) -> bool {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    let Ok(theirs) = SlicedPacket::from_ethernet(bytes) else { return false };
    let layers = walk(&Frame::new(LinkType::EN10MB, bytes));
    let Some(outer) = layers.level(0) else { panic!("{name}: nothing found") };
    if layers.stop() == Stop::TooDeep {
        return false;
    }
    let ends: (std::net::IpAddr, std::net::IpAddr) = match &theirs.net {
        Some(NetSlice::Ipv4(ip)) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        Some(NetSlice::Ipv6(ip)) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        _ => return false,
    };
    let missing = || format!("{name}: {:?} {:?}", shape(&layers), layers.stop());
    let ip = layers.outermost_ip().unwrap_or_else(|| panic!("{}", missing()));
    assert_eq!((ip.source(), ip.destination()), ends, "{name}");
    match &theirs.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let ours = outer.tcp().unwrap_or_else(|| panic!("{}", missing()));
            let ports = (ours.source_port(), ours.destination_port());
            assert_eq!(ports, (tcp.source_port(), tcp.destination_port()), "{name}");
            let numbers = (ours.sequence(), ours.acknowledgement(), ours.window());
            let expected = (tcp.sequence_number(), tcp.acknowledgment_number(), tcp.window_size());
            assert_eq!(numbers, (Some(expected.0), Some(expected.1), Some(expected.2)), "{name}");
            assert_eq!((ours.payload(), ours.option_bytes()), (tcp.payload(), tcp.options()));
        }
        Some(TransportSlice::Udp(udp)) => {
            let ours = outer.udp().unwrap_or_else(|| panic!("{}", missing()));
            let ports = (ours.source_port(), ours.destination_port());
            assert_eq!(ports, (udp.source_port(), udp.destination_port()), "{name}");
            assert_eq!(ours.payload(), udp.payload(), "{name}");
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            assert_eq!(
                outer.icmp().unwrap_or_else(|| panic!("{}", missing())).kind(),
                icmp.type_u8(),
                "{name}"
            );
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            assert_eq!(
                outer.icmp().unwrap_or_else(|| panic!("{}", missing())).kind(),
                icmp.type_u8(),
                "{name}"
            );
        }
        None => return false,
    }
    true
}

#[test]
fn etherparse_agrees_on_plain_frames_and_their_mutations() {
    let samples = samples::all();
    let ethernet: Vec<_> = samples.iter().filter(|s| s.packet.link_type() == 1).collect();
    let (mut plain, mut mutated) = (0, 0);
    for sample in ethernet {
        let good = sample.packet.build();
        plain += usize::from(agrees_with_etherparse(sample.name, &good));
        for at in 0..good.len() {
            for flip in [1, 0x10, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= flip;
                mutated += usize::from(agrees_with_etherparse(sample.name, &bytes));
            }
        }
    }
    println!("compared {plain} plain and {mutated} mutated frames");
    assert!(plain >= 14 && mutated >= 4000, "only {plain} and {mutated} compared");
}

/// The invariants hold for every captured frame, whole and cut, and etherparse agrees on whole
/// frames.
#[test]
fn captured_frames() {
    let (mut frames, mut compared) = (0, 0);
    for path in Corpus::open().traces("") {
        let Some((link, records)) = pcap::read(&path, 500) else { continue };
        for record in &records {
            let start = Start::Link(LinkType(link));
            let (data, wire_len) = (&record.data[..], record.wire_len as usize);
            let whole = walk_from(data, wire_len, start);
            check_invariants(&whole, data.len(), wire_len);
            let found = shape(&whole);
            for cut in [14, 18, 20, 33, 38, 42, 54, 60, 96] {
                let cut = cut.min(data.len());
                let layers = walk_from(&data[..cut], wire_len, start);
                check_invariants(&layers, cut, wire_len);
                assert!(found.starts_with(&shape(&layers)), "{} cut at {cut}", path.display());
            }
            frames += 1;
            let whole = link == 1 && data.len() == wire_len;
            let name = path.display().to_string();
            compared += usize::from(whole && agrees_with_etherparse(&name, data));
        }
    }
    println!("{frames} frames, {compared} compared with etherparse");
    assert!(frames > 10_000 && compared > 6_000, "{frames} frames, {compared} compared");
}
