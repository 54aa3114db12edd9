//! The grammar: the published examples, precedence, positions of errors, hostile texts.

use super::*;

fn reading(text: &str) -> String {
    parse(text).unwrap_or_else(|error| panic!("{text}\n{error}")).tree.to_string()
}

fn refusal(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

/// FFPF, Fig. 2.9, verbatim.
const PRINTED: [&str; 5] = [
    "(device, expression = eth0) > (accept)",
    "(device, expression = eth0, export = y) > (accept, export = y)",
    "[(device, expression = pcap0, export = y)|(device, expression = eth0)] > (accept, export = y)",
    "(device, expression = eth0) > (sampler, expression = 2, mbufsize = 4, export = y)",
    "[{pcap}(device, expression = pcap0) > (accept)|{pcap}() > (debug, export = y)] > (drop)",
];

#[test]
fn printed_examples_parse_and_their_readings_parse_to_the_same() {
    let readings = [
        "(device, expression=eth0) > (accept)",
        "(device, expression=eth0, export=y) > (accept, export=y)",
        "[(device, expression=pcap0, export=y) | (device, expression=eth0)] > (accept, export=y)",
        "(device, expression=eth0) > (sampler, expression=2, mbufsize=4, export=y)",
        "{pcap}(device, expression=pcap0) > [(accept) | {pcap}()] > (debug, export=y) > (drop)",
    ];
    for (text, expected) in PRINTED.into_iter().zip(readings) {
        let once = reading(text);
        assert_eq!(once, expected, "{text}");
        assert_eq!(reading(&once), once, "{text}");
    }
    assert!(refusal("[{p}(device)) > (accept)]").contains("this `)` closes nothing"));
}

#[test]
fn the_arrow_form_of_2004() {
    let text = "(device,eth0) | (device,eth1) -> (sampler,2,4) -> \
                (FPL-2,\"x>y\") | (BPF,\"udp\") -> (bytecount,,8)";
    let parsed = parse(text).unwrap();
    assert!(parsed.mixed);
    assert_eq!(
        parsed.tree.to_string(),
        "[(device, expression=eth0) | (device, expression=eth1)] > \
         (sampler, expression=2, mbufsize=4) > [(FPL-2, expression=\"x>y\") | (BPF, \
         expression=udp)] > (bytecount, expression=\"\", mbufsize=8)"
    );
}

#[test]
fn beside_binds_tighter_than_feeds_and_both_tighter_than_beside() {
    assert_eq!(reading("(d) > (f) | (g) > (h)"), "(d) > [(f) | (g)] > (h)");
    assert_eq!(reading("(a) | (b) & !(c)"), "[(a) | [(b) & !(c)]]");
    assert_eq!(reading("(a) > [(b) > (c)]"), "(a) > [(b) > (c)]");
    assert!(!parse("(d) > [(f) | (g)] > (h)").unwrap().mixed);
}

#[test]
fn class_edges_and_flags() {
    let text = "(pcapin,expression=\"trace\") > (tcp) > (sourceport) -80-> (inspect,export)";
    assert_eq!(
        reading(text),
        "(pcapin, expression=trace) > (tcp) > (sourceport) -80-> (inspect, export=y)"
    );
    assert!(refusal("(a) -4294967296-> (b)").contains("from 0 to 4294967295"));
    assert!(refusal("(a) -8 (b)").contains("has no end"));
}

#[test]
fn identifier_is_a_tag_and_values_keep_their_blanks() {
    assert_eq!(
        reading("(bpf, identifier=web, expression= tcp port 80 )"),
        "{web}(bpf, expression=\"tcp port 80\")"
    );
    assert_eq!(reading(r#"(x, e="a\"b\\c\n")"#), r#"(x, e="a\"b\\c\\n")"#);
}

#[test]
fn errors_show_the_place() {
    assert_eq!(
        refusal("(a) >\n  (b | (c)"),
        "line 2: this character is not allowed here without quotes\n    (b | (c)\n       ^\n\
         expected: `,` or `)`\nhint: put the whole value in \"quotes\""
    );
    for (text, part) in [
        ("", "a node is missing"),
        ("(a) >", "a node is missing"),
        ("[(a)", "never closed"),
        ("(a", "never closed"),
        ("{t}", "a tag names a node"),
        ("{a-b}(c)", "not a tag"),
        ("()", "an empty node"),
        ("(x=1)", "the class comes first"),
        ("(a, \"b)", "quotes are never closed"),
        ("(a, =3)", "no name"),
        ("(a,1,2,3)", "a third value"),
        ("(a) (b)", "should end here"),
        ("port 80", "this is not a node"),
        ("(a, “b”)", "typographic"),
    ] {
        assert!(refusal(text).contains(part), "{text}: {}", refusal(text));
    }
}

#[test]
fn depth_and_size_are_limited() {
    assert!(refusal(&"[".repeat(100_000)).contains("nested"));
    assert!(refusal(&"!".repeat(100_000)).contains("nested"));
    assert!(refusal(&"(a)|".repeat(5_000)).contains("nodes"));
    assert!(refusal(&" ".repeat(MAX_TEXT_BYTES + 1)).contains("bytes"));
}

/// Parses or refuses every prefix of the examples and every replacement of a byte, and never panics.
#[test]
fn mutilated_texts_do_not_panic() {
    for text in PRINTED {
        for at in 0..text.len() {
            let _ = parse(&text[..at]);
            for put in ["(", ")", "[", "]", "{", "}", ">", "|", "!", "-", "\"", ",", "=", "é", "\n"]
            {
                let _ = parse(&format!("{}{put}{}", &text[..at], &text[at + 1..]))
                    .map_err(|e| e.to_string());
            }
        }
    }
}

#[test]
fn the_nearest_name() {
    assert_eq!(nearest("packetcont", ["packetcount", "bytecount"]), Some("packetcount"));
    assert_eq!(nearest("zzzz", ["packetcount", "bytecount"]), None);
}
