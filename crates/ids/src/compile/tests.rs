//! Refused rules with their reasons, and the differences of the languages.

use super::*;
use crate::Translation;

fn translation(text: &str) -> Translation {
    Translation::new(text.as_bytes(), None, &Variables::default())
}

fn reason(options: &str) -> String {
    let found = translation(&format!("alert tcp any any -> any any ({options} sid:7;)"));
    assert!(found.rules.is_empty(), "{options}");
    assert_eq!((found.refused[0].line, found.refused[0].sid), (1, Some(7)));
    found.refused[0].reason.clone()
}

fn rule(text: &str) -> Rule {
    let mut found = translation(text);
    assert_eq!(found.refused, [], "{text}");
    found.rules.remove(0)
}

#[test]
fn wrong_options_are_refused_by_their_name() {
    for (options, part) in [
        ("content:\"a\"; lua:x.lua;", "lua: this option is not judged"),
        ("nocase;", "nocase: no content"),
        ("content:\"abc\"; depth:2;", "3 bytes"),
        ("content:\"a\"; offset:1; distance:1;", "place from the beginning"),
        ("content:\"a\"; nocase; nocase;", "twice"),
        ("content:\"\";", "empty"),
        ("content:abc;", "quotation marks"),
        ("pcre:\"/a(/\";", "missing"),
        ("pcre:\"/a/k\";", "flag k"),
        ("http.uri;", "no content follows"),
        ("http.uri; content:\"a\"; tls.sni; content:\"b\";", "the rule is about http"),
        ("flow:to_client; http.uri; content:\"a\";", "direction"),
        ("http.uri; content:\"a\"; http.stat_code; content:\"200\";", "direction"),
        ("flow:established,not_established;", "contradicts"),
        ("flow:what;", "what"),
        ("flags:Q;", "Q is no flag"),
        ("icode:3;", "icode: no packet of the rule's protocol"),
        ("udp.hdr; content:\"a\";", "udp.hdr: no packet of the rule's protocol"),
        ("ipopts:cipso;", "not judged"),
        ("dsize:9<>9;", "nothing is in the range"),
        ("http.uri; content:\"a\"; dsize:5;", "beside buffers"),
        ("byte_test:9,=,1,0;", "9 bytes"),
        ("byte_test:1,=,nothing,0;", "no number or variable"),
        ("byte_jump:1;", "expected bytes"),
        ("threshold:type limit, track by_src, count 0, seconds 1;", "0 is not within"),
        ("threshold:type limit, track by_src, count 1;", "seconds"),
        (
            "detection_filter:track by_src, count 1, seconds 1; \
             threshold:type limit, track by_src, count 1, seconds 1;",
            "limit already",
        ),
        ("flowbits:set;", "no name"),
        ("xbits:set,a;", "track"),
        ("msg:\"a\"; msg:\"b\";", "twice"),
        ("dotprefix; content:\"a\";", "follows a buffer"),
        ("base64_decode;", "without base64_data"),
        ("rev:x;", "no number"),
        ("alert; noalert;", "contradict"),
        ("flowint:a,**,1;", "no operator"),
        ("flowint:a,isset,1;", "no value"),
        ("flowint:a,+;", "expected a value"),
        ("flowint:a,+,4294967296;", "not within"),
        ("hostbits:set,a,both;", "src or dst"),
        ("app-layer-protocol:http,original;", "mode original"),
        ("pcre:\"/a/i,what:b\";", "expected pkt:NAME"),
        ("detection_filter:track by_src, count 257, seconds 1, unique_on dst_port;", "over 256"),
        (
            "threshold:type limit, track by_src, count 1, seconds 1, unique_on dst_port;",
            "unique_on",
        ),
    ] {
        let reason = reason(options);
        assert!(reason.contains(part), "{options}: {reason}");
    }
}

#[test]
fn tests_of_headers_that_the_protocol_lacks_are_refused() {
    for (protocol, options, fits) in [
        ("udp", "tcp.mss:<500;", false),
        ("udp", "flags:S;", false),
        ("udp", "tcp.hdr; content:\"a\";", false),
        ("icmp", "window:5;", false),
        ("icmpv4", "icmpv6.mtu:<1280;", false),
        ("http", "itype:8;", false),
        ("tls", "udp.hdr; content:\"a\";", false),
        ("udp", "ipopts:rtralt;", true),
        ("ip", "tcp.mss:<500;", true),
        ("ipv6", "icmpv6.mtu:<1280;", true),
        ("icmp", "icmpv4.hdr; content:\"a\";", true),
        ("icmpv6", "itype:128;", true),
        ("http", "flags:S;", true),
        ("dns", "udp.hdr; content:\"a\";", true),
    ] {
        let found = translation(&format!("alert {protocol} any any -> any any ({options} sid:7;)"));
        assert_eq!(found.rules.len(), usize::from(fits), "{protocol} {options}");
        assert!(fits || found.refused[0].reason.contains("this header"), "{:?}", found.refused);
    }
}

#[test]
fn rules_without_a_number_and_older_revisions_are_refused() {
    let sids = translation(
        "alert tcp any any -> any any (content:\"a\";)\nalert tcp any any -> any any (sid:0;)",
    );
    assert_eq!(sids.refused.len(), 2);
    let twice = translation(
        "alert tcp any any -> any any (sid:1; rev:1;)\nalert tcp any any -> any any (sid:1; rev:2;)\n\
         alert tcp any any -> any any (sid:1; rev:2;)",
    );
    let lines: Vec<usize> = twice.refused.iter().map(|refused| refused.line).collect();
    assert_eq!((lines, twice.rules[0].rev, twice.total()), (vec![1, 3], 2, 3));
}

#[test]
fn the_three_languages_give_the_same_tests() {
    let suricata = rule(
        "alert http any any -> any any (http.method; content:\"GET\"; http.uri; content:\"/a\"; startswith; \
         content:\"b\"; nocase; distance:1; sid:1;)",
    );
    let snort2 = rule(
        "alert http any any -> any any (content:\"GET\"; http_method; content:\"/a\"; depth:2; http_uri; \
         content:\"b\"; nocase; distance:1; http_uri; sid:1;)",
    );
    let snort3 = rule(
        "alert http any any -> any any (http_method; content:\"GET\"; http_uri; content:\"/a\",depth 2; \
         content:\"b\",nocase,distance 1; sid:1;)",
    );
    let shown = |rule: &Rule| format!("{:?}", rule.lists);
    assert_eq!(shown(&suricata), shown(&snort2));
    assert_eq!(shown(&suricata), shown(&snort3));
    assert_eq!(suricata.flow.to_server, Some(true));
}

#[test]
fn words_with_two_meanings_follow_the_language() {
    let text = |rest: &str| {
        format!("alert tcp any any -> any any (content:\"Abc\"; fast_pattern:only; {rest} sid:1;)")
    };
    let nocase =
        |rule: &Rule| matches!(&rule.lists[0].tests[0], Test::Content(content) if content.nocase);
    assert!(nocase(&rule(&text("metadata:ruleset community;"))));
    assert!(!nocase(&rule(&text("app-layer-protocol:http;"))));
    let ends = |text: &str, dialect| {
        let raw = format!("alert tcp any any -> any any ({text} sid:1;)");
        let rule =
            Translation::new(raw.as_bytes(), Some(dialect), &Variables::default()).rules.remove(0);
        format!("{:?}", rule.packet)
    };
    assert_eq!(ends("dsize:10<>20;", Dialect::Snort2), ends("dsize:9<>21;", Dialect::Suricata));
}

#[test]
fn payloads_of_packets_and_streams_are_told_apart() {
    let scope = |text: &str| {
        let scope = rule(&format!("{text} sid:1;)")).scope;
        (scope.packets, scope.streams, scope.alone)
    };
    let tcp = "alert tcp any any -> any any (content:\"abc\";";
    assert_eq!(scope(tcp), (false, true, true));
    assert_eq!(scope(&format!("{tcp} depth:5;")), (true, true, true));
    assert_eq!(scope(&format!("{tcp} dsize:5;")), (true, false, true));
    assert_eq!(scope(&format!("{tcp} flow:only_stream;")), (false, true, false));
    assert_eq!(scope(&tcp.replace("tcp", "tcp-pkt")), (true, false, true));
    assert_eq!(scope(&tcp.replace("tcp", "udp")), (true, false, true));
}

#[test]
fn a_large_file_is_read_in_one_pass() {
    let mut text = String::new();
    for sid in 1..=20_000 {
        text += &format!(
            "alert tcp any any -> any {} (msg:\"rule\"; content:\"number {sid}\"; sid:{sid};)\n",
            sid % 65_536
        );
    }
    text += &"# comment\n".repeat(100_000);
    let found = translation(&text);
    assert_eq!((found.rules.len(), found.total()), (20_000, 20_000));
}

#[test]
fn two_applications_by_name_both_count() {
    let both = rule(
        "alert tcp any any -> any any (app-layer-protocol:!http; app-layer-protocol:!tls; sid:1;)",
    );
    assert_eq!(both.flow.applications, [Some(false), Some(false), None]);
    assert!(reason("app-layer-protocol:tls; app-layer-protocol:!tls;").contains("twice"));
}

#[test]
fn numbers_in_buffers_and_absent_buffers_are_read() {
    let bound = |options: &str| {
        let rule = rule(&format!("alert tcp any any -> any any ({options} sid:1;)"));
        match rule.lists[0].tests[..] {
            [Test::Number(bound)] => (bound.low, bound.high, bound.negated),
            _ => panic!("{rule:?}"),
        }
    };
    assert_eq!(bound("tls.version:1.2;"), (0x0303, 0x0303, false));
    assert_eq!(bound("dns.rcode:!NXDOMAIN;"), (3, 3, true));
    // The ends of a range of Suricata do not belong to it.
    assert_eq!(bound("dns.opcode:7-15;"), (8, 14, false));
    let absent = rule("alert http any any -> any any (http.request_body; absent; sid:1;)");
    assert_eq!(absent.lists[0].presence, Presence::Absent);
    for (options, part) in [
        ("tls.version:1.9;", "expected 1.0"),
        ("dns.rcode:WHAT;", "no number"),
        ("http.request_body; absent; content:\"a\";", "absent buffer"),
        ("http.request_body; content:\"a\"; absent;", "directly after"),
        ("tls.sni; absent;", "in parts"),
        ("ja3.hash; content:\"a\"; dsize:3;", "headers"),
        ("tcp.hdr; content:\"a\"; http.uri; content:\"b\";", "headers"),
        ("stream_size:server,~,9;", "no operator"),
        ("flow.pkts:upwards,>9;", "upwards"),
    ] {
        let reason = reason(options);
        assert!(reason.contains(part), "{options}: {reason}");
    }
}
