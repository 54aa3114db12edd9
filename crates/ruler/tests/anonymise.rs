//! The rule set that anonymises captures, on packets built for this test.

use fyke_frame::LinkType;
use fyke_ruler::anonymise::Anonymiser;
use fyke_ruler::{ANONYMISE, Limits, Program, Ruler, Verdict};
use fyke_testkit::packet::Packet;

fn ruler(key: u8) -> Ruler {
    let program = Program::from_text(ANONYMISE).unwrap_or_else(|error| panic!("{error}"));
    Ruler::new(program, Limits::default(), Anonymiser::new(&[key; 32], &[9; 16])).expect("small")
}

fn run(ruler: &mut Ruler, packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let filter = ruler.program().filter("ethernet").expect("a filter of the text");
    let (verdict, _) = ruler.run(filter, packet, LinkType::EN10MB, &mut out);
    assert_eq!(verdict, Verdict::Rewrite);
    assert_eq!(out.len(), packet.len());
    out
}

fn holds(packet: &[u8], part: &[u8]) -> bool {
    packet.windows(part.len()).any(|window| window == part)
}

#[test]
fn http_keeps_its_structure_and_nothing_private() {
    let text = b"GET /private?user=alice HTTP/1.1\r\nHost: secret.example\r\nCookie: id=4711\r\n\
                 Cookie: second=cookie\r\nContent-Length: 4\r\n\r\nbody";
    let given =
        Packet::ethernet().ipv4([10, 1, 2, 3], [192, 0, 2, 9]).tcp(4321, 80).payload(text).build();
    let mut first = ruler(1);
    let out = run(&mut first, &given);
    for secret in [
        &b"private"[..],
        b"alice",
        b"secret",
        b"4711",
        b"second=",
        b"body",
        &given[26..30],
        &given[30..34],
    ] {
        assert!(!holds(&out, secret), "{:?}", String::from_utf8_lossy(secret));
    }
    for kept in [&b"GET xxxx"[..], b" HTTP/1.1\r\nHost:", b"Cookie:", b"Content-Length: 4\r\n\r\n"]
    {
        assert!(holds(&out, kept), "{:?}", String::from_utf8_lossy(kept));
    }
    assert_eq!(out, run(&mut first, &given), "one key, one answer");
    assert_ne!(out, run(&mut ruler(2), &given), "another key, another answer");
    // A correct checksum stays correct: the sum over a header with its checksum is all ones.
    assert_eq!(sum(&out[14..34]), 0xffff);
    let mut pseudo = out[26..34].to_vec();
    pseudo.extend([0, 6]);
    pseudo.extend(u16::try_from(out.len() - 34).expect("short").to_be_bytes());
    pseudo.extend(&out[34..]);
    assert_eq!(sum(&pseudo), 0xffff);
}

fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[test]
fn dns_names_and_answers_are_replaced_in_place() {
    let mut text =
        b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0\x03www\x06secret\x07example\0\0\x01\0\x01".to_vec();
    text.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04");
    text.extend([203, 0, 113, 77]);
    let given =
        Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(53, 9999).payload(&text).build();
    let out = run(&mut ruler(1), &given);
    let dns = &out[42..];
    assert_eq!(dns[..13], text[..13]);
    assert_eq!((dns[16], dns[23]), (6, 7), "lengths of labels");
    assert!(!holds(dns, b"www") && !holds(dns, b"secret") && !holds(dns, &[203, 0, 113, 77]));
    assert_eq!(dns[31..45], text[31..45], "types, classes and the pointer");
}

#[test]
fn what_is_not_understood_becomes_zeros() {
    let given = Packet::ethernet()
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 2)
        .payload(b"who knows what")
        .build();
    let out = run(&mut ruler(1), &given);
    assert!(out[42..].iter().all(|byte| *byte == 0));
    let out = run(&mut ruler(1), &given[..30]);
    assert!(out[14..].iter().all(|byte| *byte == 0), "a packet cut in its header");
}

/// Builds a packet with an IPv6 header, these extension headers and bytes, in Ethernet.
fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    packet.extend(u16::try_from(body.len()).expect("short").to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([0x20, 1, 0xd, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    packet.extend([0x20, 1, 0xd, 0xb8, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32]);
    packet.extend(body);
    packet
}

#[test]
fn extension_headers_keep_their_structure_and_the_payload_is_rewritten() {
    // Hop-by-hop options, a routing header with an address in it, then HTTP.
    let mut body = vec![43, 0, 5, 2, 0, 0, 1, 0, 6, 2, 4, 1, 0, 0, 0, 0];
    body.extend([0x20, 1, 0xd, 0xb8, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88]);
    body.extend([0x10, 0xe1, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 4, 0, 0xab, 0xcd, 0, 0]);
    body.extend(b"GET /private HTTP/1.1\r\nHost: secret.example\r\n\r\n");
    let given = ipv6(0, &body);
    let out = run(&mut ruler(1), &given);
    let kept = [54, 55, 62, 63];
    assert_eq!(kept.map(|at| out[at]), [43, 0, 6, 2], "next headers and lengths");
    assert!(holds(&out, b"GET xxxxxxxx HTTP/1.1\r\nHost:") && !holds(&out, b"secret"));
    assert!(!holds(&out, &[77, 78, 79, 80]) && !holds(&out, &given[22..38]));
    let mut pseudo = out[22..54].to_vec();
    pseudo.extend([0, 6]);
    pseudo.extend(u16::try_from(out.len() - 86).expect("short").to_be_bytes());
    pseudo.extend(&out[86..]);
    assert_eq!(sum(&pseudo), 0xffff, "the checksum after them");
    // A fragment: its payload is hidden completely.
    let mut fragment = vec![17, 0, 0, 1, 0, 0, 0, 9];
    fragment.extend(b"0123456789 secret");
    let out = run(&mut ruler(1), &ipv6(44, &fragment));
    assert_eq!(out[54..62], fragment[..8]);
    assert!(out[62..].iter().all(|byte| *byte == 0));
}

#[test]
fn packets_in_packets_are_rewritten_to_the_innermost() {
    let inner = Packet::ethernet().ipv4([10, 9, 8, 7], [192, 0, 2, 9]).udp(1, 2);
    let inner = inner.payload(b"secret").build();
    for (kind, head) in [
        (0x8847u16, &[0, 0x10, 0, 64, 0, 0x20, 1, 64][..]),
        (0x8864, &[0x11, 0, 0, 7, 0, 36, 0, 0x21]),
    ] {
        let mut given = inner[..12].to_vec();
        given.extend(kind.to_be_bytes());
        given.extend(head);
        given.extend(&inner[14..]);
        let out = run(&mut ruler(1), &given);
        assert_eq!(out[12..22], given[12..22]);
        assert!(!holds(&out, b"secret") && !holds(&out, &[10, 9, 8, 7]), "{kind:x}");
        assert_eq!(out[31], 17, "the protocol of the inner packet");
        assert_eq!(sum(&out[22..42]), 0xffff, "{kind:x}: the checksum inside");
    }
    // IPv4 in IPv4: both headers get new checksums, since the old ones would reveal the original bytes.
    let mut given = inner[..34].to_vec();
    given[23] = 4;
    given[16..18]
        .copy_from_slice(&u16::try_from(inner.len() - 14 + 20).expect("short").to_be_bytes());
    given.extend(&inner[14..]);
    let out = run(&mut ruler(1), &given);
    assert_eq!((sum(&out[14..34]), sum(&out[34..54])), (0xffff, 0xffff));
    assert!(!holds(&out, b"secret") && !holds(&out, &[10, 9, 8, 7]));
}
