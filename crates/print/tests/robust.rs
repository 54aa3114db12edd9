//! For any bytes: no panic, no control characters, one line unless more was requested, bounded
//! text.

use checks::Lines;
use fyke_frame::LinkType;
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;

#[path = "../../../fuzz/checks/print.rs"]
mod checks;

/// A small and fast generator; the seed is fixed, so a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn captures_and_their_prefixes() {
    let corpus = Corpus::open();
    let mut checker = Lines::default();
    let (mut frames, mut cuts) = (0, 0);
    for folder in ["malformed", "encapsulation", "ipv6", "linktypes", "voip"] {
        for path in corpus.traces(folder) {
            let Some((link, records)) = pcap::read(&path, 40) else { continue };
            for record in &records {
                checker.check(LinkType(link), &record.data, record.wire_len);
                frames += 1;
            }
            // Every cut of the first frames, as a snapshot length and as a short frame.
            for record in records.iter().take(2) {
                for cut in 0..record.data.len().min(160) {
                    checker.check(LinkType(link), &record.data[..cut], record.wire_len);
                    checker.check(LinkType(link), &record.data[..cut], cut as u32);
                    cuts += 2;
                }
            }
        }
    }
    println!("{frames} frames, {cuts} cuts");
    assert!(frames > 3000 && cuts > 50_000, "{frames} frames, {cuts} cuts");
}

fn packets() -> Vec<Packet> {
    let v4 = || Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let v6 = || Packet::ethernet().ipv6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0; 8]);
    let dns = b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\x01\x03www\x07example\x03org\0\0\x01\0\x01\
        \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03web\xc0\x10\xc0\x2d\0\x01\0\x01\0\0\0\x3c\0\x04\
        \xc0\0\x02\x01\0\0\x29\x10\0\0\0\0\0\0\0";
    vec![
        v4().tcp(1, 2)
            .tcp_options(&[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7]),
        v4().tcp(80, 2).flags(0x18).payload(b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n"),
        v4().tcp(22, 2).flags(0x18).payload(b"SSH-2.0-test\r\n"),
        v4().udp(53, 4000).payload(dns),
        v6().udp(5353, 5353).payload(dns),
        v4().udp(68, 67).payload(&[1; 300]),
        v4().udp(123, 123).payload(&[0x24; 48]),
        v4().udp(1, 69).payload(b"\0\x01file\0octet\0"),
        v4().udp(1, 514).payload(b"<34>message"),
        v6().udp(546, 547).payload(&[1, 0, 0, 1]),
        v4().icmp(8, 0, 0x0001_0001).payload(&[7; 56]),
        v4().icmp(3, 3, 0).payload(&Packet::raw().ipv4([1; 4], [2; 4]).udp(5, 6).build()),
        v6().icmpv6(1, 4, 0).payload(&Packet::raw().ipv6([1; 8], [2; 8]).udp(5, 6).build()),
        v6().icmpv6(134, 0, 0).payload(&[3, 4, 64, 0xc0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0]),
        v6().icmpv6(143, 0, 1).payload(&[1; 40]),
        v6().hop_by_hop().routing().fragment6(1, 0, true).destination_options().tcp(1, 2),
        v4().sctp(1, 2).payload(&[0, 3, 0, 20, 0, 0, 0, 1, 0, 2, 0, 3, 0, 0, 0, 18, 1, 2, 3, 4]),
        v4().ip_payload(2, &[0x11, 100, 0, 0, 224, 0, 0, 9, 2, 125, 0, 1, 10, 0, 0, 1]),
        v4().ip_payload(89, &[2, 1, 0, 44, 1, 1, 1, 1, 0, 0, 0, 0]),
        v4().vxlan(7).ether().vlan(3).ipv4([1; 4], [2; 4]).udp(53, 9).payload(dns),
        v4().geneve(7, &[0, 1, 2, 1, 9, 9, 9, 9]).ether().arp(1, [1; 4], [2; 4]),
        v4().gtpu_numbered(9, 1).ipv4([1; 4], [2; 4]).icmp(0, 0, 1),
        v4().gre_with(Some(1), Some(2), true).erspan(2).ether().ipv4([1; 4], [2; 4]).tcp(1, 2),
        v4().pptp(1, Some(3)).ppp().ipv4([1; 4], [2; 4]).esp(77),
        Packet::ethernet().pppoe(9).ppp().ipv4([1; 4], [2; 4]).authentication().udp(1, 2),
        Packet::ethernet().mpls(16).mpls(17).control_word().ether().arp(2, [1; 4], [2; 4]),
        Packet::ethernet().llc([0x42, 0x42, 3]).payload(&[0; 35]),
        Packet::sll2().ipv4([1; 4], [2; 4]).tcp(1, 2),
        Packet::sll().vlan(2).ipv6([1; 8], [2; 8]).tcp(1, 2),
        Packet::null().ipv6([1; 8], [2; 8]).udp(1, 2),
    ]
}

#[test]
fn built_packets_and_their_mutations() {
    let mut checker = Lines::default();
    let mut random = Random(0x5eed_1234_5678_9abc);
    let packets: Vec<_> = packets().iter().map(|p| (LinkType(p.link_type()), p.build())).collect();
    for (link, bytes) in &packets {
        for cut in 0..=bytes.len() {
            checker.check(*link, &bytes[..cut], bytes.len() as u32);
        }
    }
    for _ in 0..20_000 {
        let (link, bytes) = &packets[random.below(packets.len())];
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(8) {
            let at = random.below(bytes.len());
            bytes[at] = [0, 0xff, 0xc0, random.below(256) as u8][random.below(4)];
        }
        checker.check(*link, &bytes, bytes.len() as u32);
    }
}

#[test]
fn random_bytes() {
    let mut checker = Lines::default();
    let mut random = Random(0x0bad_cafe_0bad_cafe);
    let links = [0, 1, 12, 101, 108, 113, 228, 229, 276, 9999];
    for _ in 0..20_000 {
        let len = random.below(200);
        let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        let link = LinkType(links[random.below(links.len())]);
        checker.check(link, &bytes, (len + random.below(3) * 1000) as u32);
    }
}

#[test]
fn long_names_and_pointer_chains_end() {
    // A message of records only, with names that all point at the longest possible name.
    let mut message = b"\0\x01\x81\x80\0\0\xff\xff\0\0\0\0".to_vec();
    let name_at = message.len() as u16;
    for _ in 0..4 {
        message.push(62);
        message.extend([0xff; 62]);
    }
    message.push(0);
    message.extend([0, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
    while message.len() < 60_000 {
        message.extend((0xc000 | name_at).to_be_bytes());
        message.extend([0, 5, 0, 1, 0, 0, 0, 0, 0, 2]);
        message.extend((0xc000 | name_at).to_be_bytes());
    }
    let mut checker = Lines::default();
    let packet = Packet::raw().ipv4([1; 4], [2; 4]).udp(53, 9).payload(&message).build();
    checker.check(LinkType::RAW, &packet, packet.len() as u32);
    // Pointers through the whole message, each to the one before.
    let mut message = b"\0\x01\x81\x80\0\0\xff\xff\0\0\0\0".to_vec();
    message.extend([1, b'a', 0, 0]);
    while message.len() < 16_000 {
        let before = message.len() as u16 - 2;
        message.extend((0xc000 | before).to_be_bytes());
    }
    let packet = Packet::raw().ipv4([1; 4], [2; 4]).udp(53, 9).payload(&message).build();
    checker.check(LinkType::RAW, &packet, packet.len() as u32);
}

/// Bytes as protocols have them: small numbers, letters, lengths, and anything.
fn payload(random: &mut Random) -> Vec<u8> {
    let len = random.below(64);
    (0..len)
        .map(|_| match random.below(4) {
            0 => random.below(4) as u8,
            1 => b"0aZ :/\r\n="[random.below(9)],
            2 => [0xff, 0x80, 0x30, 0x45, 0xc0, 4, 8, 16][random.below(8)],
            _ => random.below(256) as u8,
        })
        .collect()
}

#[test]
fn any_payload_of_every_port_protocol_and_type() {
    let mut lines = Lines::default();
    let mut random = Random(0x1234_5eed_9abc_5678);
    for port in 0..=u16::MAX {
        let v4 = Packet::raw().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        let v4 = v4.udp(port, 40_000).payload(&payload(&mut random));
        let v6 = Packet::raw().ipv6([0x2001; 8], [0x2002; 8]);
        let v6 = v6.tcp(40_000, port).flags(0x18).payload(&payload(&mut random));
        for bytes in [v4.build(), v6.build()] {
            lines.check(LinkType::RAW, &bytes, bytes.len() as u32);
        }
        // The type of Ethernet, or the length before a header of LLC.
        let mut bytes = vec![1; 12];
        bytes.extend(port.to_be_bytes());
        bytes.extend(payload(&mut random));
        lines.check(LinkType::EN10MB, &bytes, bytes.len() as u32);
    }
}

#[test]
fn any_payload_of_every_protocol_of_ip() {
    let mut lines = Lines::default();
    let mut random = Random(0x9abc_5678_1234_5eed);
    for protocol in 0..=u8::MAX {
        for _ in 0..200 {
            let v4 = Packet::raw().ipv4([10, 0, 0, 1], [224, 0, 0, 2]);
            let bytes = v4.ip_payload(protocol, &payload(&mut random)).build();
            lines.check(LinkType::RAW, &bytes, bytes.len() as u32);
            let v6 = Packet::raw().ipv6([0xfe80; 8], [0xff02; 8]);
            let bytes = v6.ip_payload(protocol, &payload(&mut random)).build();
            lines.check(LinkType::RAW, &bytes, bytes.len() as u32);
        }
    }
}
