//! The rule set that makes captures fit for sharing, on packets made for it.

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
    // What was right before is right afterwards: the sum over a header with its checksum is all ones.
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
