//! Figure 6.1 of the thesis and the example of Ruler's overview page, as printed.

use fyke_frame::LinkType;
use fyke_ruler::anonymise::Anonymiser;
use fyke_ruler::matcher::Engine;
use fyke_ruler::{Limits, Program, Ruler, Verdict};
use fyke_testkit::packet::Packet;

/// Figure 6.1.
const FIGURE: &str = r#"
filter test1
    "ABC" => accept 1;
    "A" * "B" * "C" => accept 2;

filter test2
    ("A"|"a") * ("B"|"b") * ("C"|"c") => accept;

filter test3
    "A" * "B12" * "C456" => accept;

filter test4
    "ABBBCCC" * => accept;
    "AAB" * => reject;

filter test5
    start:("aaa") * middle:("ZZ" * "ZZ") end:(*) =>
        end start middle;
"#;

/// The example of the overview page.
const WWW: &str = r#"
include "layouts.rli"

filter www
  eh:Ethernet_IPv4 ih:IPv4_TCP th:TCP with [dest=80~2] p:*
     =>
  eh with [e_dest=0#6,e_src=0#6]
  ih with [src=0~4,dest=0~4]
  th
  p;
"#;

fn ruler(text: &str) -> Ruler {
    let program = Program::from_text(text).unwrap_or_else(|error| panic!("{error}"));
    Ruler::new(program, Limits::default(), Anonymiser::new(&[3; 32], &[4; 16])).expect("small")
}

fn run(ruler: &mut Ruler, filter: &str, packet: &[u8]) -> (Verdict, Vec<u8>) {
    let filter = ruler.program().filter(filter).expect("a filter of the text");
    let mut out = Vec::new();
    let (verdict, _) = ruler.run(filter, packet, LinkType::EN10MB, &mut out);
    (verdict, out)
}

#[test]
fn figure_6_1_classifies() {
    let mut ruler = ruler(FIGURE);
    let one = Verdict::Accept(Some(1));
    let two = Verdict::Accept(Some(2));
    let plain = Verdict::Accept(None);
    for (filter, packet, expected) in [
        ("test1", "ABC", one),
        ("test1", "AxBC", two),
        ("test1", "A--B--C", two),
        ("test1", "A--B--C-", Verdict::Reject),
        ("test1", "", Verdict::Reject),
        ("test1", "ABBBCCC", two),
        ("test2", "abc", plain),
        ("test2", "AxbyC", plain),
        ("test2", "AxxC", Verdict::Reject),
        ("test3", "AB12C456", plain),
        ("test3", "AAAB12B12xC45C456", plain),
        ("test3", "AB12C4567", Verdict::Reject),
        ("test4", "ABBBCCC", plain),
        ("test4", "ABBBCCC and more", plain),
        ("test4", "AAB", Verdict::Reject),
        ("test4", "something else", Verdict::Reject),
    ] {
        assert_eq!(run(&mut ruler, filter, packet.as_bytes()).0, expected, "{filter} {packet}");
    }
}

/// `*` matches as few bytes as possible, from left to right: the worked example of the language document.
#[test]
fn figure_6_1_rewrites() {
    let mut ruler = ruler(FIGURE);
    for (packet, expected) in [
        ("aaaZZZZ", Some("aaaZZZZ")),
        ("aaa--ZZ==ZZend", Some("endaaaZZ==ZZ")),
        // The first ZZ begins the middle, and the first ZZ after it ends the middle.
        ("aaa1ZZ2ZZ3ZZ4ZZ5", Some("3ZZ4ZZ5aaaZZ2ZZ")),
        ("aaaZZZZZ", Some("ZaaaZZZZ")),
        ("aaaZZZ", None),
        ("aaZZZZ", None),
    ] {
        let (verdict, out) = run(&mut ruler, "test5", packet.as_bytes());
        match expected {
            Some(expected) => {
                assert_eq!(verdict, Verdict::Rewrite, "{packet}");
                assert_eq!(String::from_utf8_lossy(&out), expected, "{packet}");
            }
            None => assert_eq!(verdict, Verdict::Reject, "{packet}"),
        }
    }
}

/// The bytes that no rule looks at, such as both link addresses here, are one step of the automaton and not one each.
#[test]
fn bytes_that_no_rule_looks_at_are_jumped_over() {
    let program = Program::from_text(WWW).unwrap_or_else(|error| panic!("{error}"));
    let limits = Limits { gate: false, ..Limits::default() };
    let ruler = Ruler::new(program, limits, Anonymiser::new(&[3; 32], &[4; 16])).expect("small");
    let parts = ruler.matcher(ruler.program().filter("www").unwrap()).parts();
    let Engine::Dense(dense) = &parts[0].engine else { panic!("no table for so small a filter") };
    let drawn = fyke_ruler::dot("www", dense, &|_| String::new());
    assert!(drawn.contains("label=\"jump 12\""), "{drawn}");
}

#[test]
fn the_www_example_zeroes_addresses() {
    let mut ruler = ruler(WWW);
    let packet = |port| {
        let packet = Packet::ethernet().ipv4([10, 1, 2, 3], [192, 0, 2, 9]).tcp(4321, port);
        packet.payload(b"GET / HTTP/1.0\r\n\r\n").build()
    };
    let given = packet(80);
    let (verdict, out) = run(&mut ruler, "www", &given);
    assert_eq!(verdict, Verdict::Rewrite);
    let mut expected = given.clone();
    expected[..12].fill(0);
    expected[26..34].fill(0);
    assert_eq!(out, expected);
    assert_eq!(run(&mut ruler, "www", &packet(81)).0, Verdict::Reject);

    // IPv4 options move the bytes after them.
    let mut with_options = given[..14].to_vec();
    with_options.push(0x47);
    with_options.extend(&given[15..34]);
    with_options.extend([1; 8]);
    with_options.extend(&given[34..]);
    let (verdict, out) = run(&mut ruler, "www", &with_options);
    assert_eq!(verdict, Verdict::Rewrite);
    assert_eq!(out[34..], with_options[34..]);
    assert_eq!(out[26..34], [0; 8]);
    assert_eq!(run(&mut ruler, "www", &given[..40]).0, Verdict::Reject);
}
