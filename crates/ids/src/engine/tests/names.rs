//! Numbers of flows, names of hosts, different ports, alerts of rules that let pass, and resets.

use super::*;

#[test]
fn numbers_of_a_flow_are_tested_and_changed() {
    let mut talk = Talk::new(
        "alert udp any any -> any 53 (content:\"one\"; flowint:n,+,1; noalert; sid:1;)\n\
         alert udp any any -> any 53 (content:\"ask\"; flowint:n,notset; sid:2;)\n\
         alert udp any any -> any 53 (content:\"ask\"; flowint:n,>=,2; sid:3;)\n\
         alert udp any any -> any 53 (content:\"ask\"; flowint:n,<,2; sid:4;)\n\
         alert udp any any -> any 53 (content:\"ask\"; flowint:n,==,m; sid:5;)\n\
         alert udp any any -> any 53 (content:\"set\"; flowint:m,=,3; flowint:m,-,1; noalert; sid:6;)",
    );
    talk.udp(true, b"ask");
    assert_eq!(talk.sids(), [2]);
    talk.udp(true, b"one");
    talk.udp(true, b"ask");
    assert_eq!(talk.sids(), [4]);
    talk.udp(true, b"one");
    talk.udp(true, b"set");
    talk.udp(true, b"ask");
    assert_eq!(talk.sids(), [3, 5]);
}

#[test]
fn names_of_hosts_are_those_of_the_source_or_the_destination() {
    let mut talk = Talk::new(
        "alert udp any any -> any 53 (content:\"set\"; hostbits:set,a,dst; noalert; sid:1;)\n\
         alert udp any 53 -> any any (content:\"ask\"; hostbits:isset,a; sid:2;)\n\
         alert udp any 53 -> any any (content:\"ask\"; hostbits:isset,a,dst; sid:3;)\n\
         alert udp any 53 -> any any (content:\"ask\"; xbits:isset,a,track ip_src; sid:4;)",
    );
    talk.udp(false, b"ask");
    assert_eq!(talk.sids(), [0; 0]);
    talk.udp(true, b"set");
    talk.udp(false, b"ask");
    assert_eq!(talk.sids(), [2, 4]);
}

#[test]
fn different_ports_are_counted_once_each() {
    let mut talk = Talk::new(
        "alert udp any any -> any any (content:\"scan\"; detection_filter:track by_src, count 2, seconds 60, \
         unique_on dst_port; sid:1;)",
    );
    let mut to = |port: u16| {
        let bytes = Bytes::ethernet().ipv4([1, 1, 1, 1], [2, 2, 2, 2]).udp(9, port);
        talk.raw(&bytes.payload(b"scan").build());
        talk.sids().len()
    };
    assert_eq!([to(1), to(1), to(2), to(2), to(1), to(3), to(1)], [0, 0, 0, 0, 0, 1, 1]);
}

#[test]
fn a_rule_that_lets_pass_alerts_if_it_is_told_to() {
    let mut talk = Talk::new(
        "pass udp any any -> any 53 (alert; content:\"fine\"; sid:1;)\n\
         alert udp any any -> any 53 (content:\"e\"; content:\"fine\"; sid:2;)\n\
         pass udp any 53 -> any any (content:\"mute\"; sid:3;)",
    );
    talk.udp(true, b"fine");
    assert_eq!(talk.sids(), [1]);
    talk.udp(false, b"mute");
    assert_eq!(talk.sids(), [0; 0]);
}

#[test]
fn bytes_of_a_reset_are_no_part_of_the_stream() {
    const RST: u8 = 4;
    let mut talk = Talk::new(
        "alert tcp any any -> any any (flow:only_stream; content:\"denied\"; sid:1;)\n\
         alert tcp-pkt any any -> any any (content:\"denied\"; sid:2;)\n\
         alert tcp any any -> any any (content:\"denied\"; sid:3;)\n\
         alert tcp any any -> any any (content:\"access denied\"; sid:4;)",
    );
    talk.open();
    talk.send(true, ACK, b"access ");
    talk.send(true, RST | ACK, b"denied");
    assert_eq!(talk.sids(), [2, 3]);
}

#[test]
fn one_direction_of_a_handshake_is_enough_if_it_is_told_so() {
    let text = "alert tcp any any -> any any (flow:established,to_server; content:\"abc\"; sid:1;)\n\
                alert tcp any any -> any any (flow:established,to_client; content:\"abc\"; sid:2;)";
    for (to_server, one_direction) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut talk = Talk::new(text);
        talk.engine = Engine::new(rules(text), Limits { one_direction, ..Limits::default() });
        talk.send(to_server, if to_server { SYN } else { SYN | ACK }, b"");
        talk.send(to_server, ACK, b"");
        talk.send(to_server, ACK, b"abc");
        let sids = talk.sids();
        let wanted = if to_server { vec![1] } else { vec![2] };
        assert_eq!(sids, if one_direction { wanted } else { vec![] }, "{to_server}");
    }
}

#[test]
fn icmp_of_one_version_is_told_apart() {
    let mut talk = Talk::new(
        "alert icmpv4 any any -> any any (itype:8; sid:1;)\nalert icmpv6 any any -> any any (itype:8; sid:2;)\n\
         alert icmp any any -> any any (itype:8; sid:3;)",
    );
    let four = Bytes::ethernet().ipv4([1, 1, 1, 1], [2, 2, 2, 2]);
    talk.raw(&four.icmp(8, 0, 0).build());
    assert_eq!(talk.sids(), [1, 3]);
}

#[test]
fn packets_after_an_alert_are_recorded_up_to_the_limit() {
    for (tag, expected) in [
        ("session", 4),
        ("session,2,packets", 2),
        ("session,1,bytes", 1),
        ("host,3,packets,dst", 3),
        ("host,1,seconds,src", 4),
    ] {
        let mut talk = Talk::new(&format!(
            "alert udp any any -> any 53 (content:\"begin\"; tag:{tag}; sid:1;)"
        ));
        talk.udp(true, b"begin");
        assert_eq!(talk.engine.take_records(), [""; 0]);
        talk.engine.record(Kinds { packet: true, ..Kinds::default() });
        talk.udp(true, b"begin");
        for number in 0..4 {
            talk.udp(number % 2 == 0, b"more");
        }
        let lines = talk.engine.take_records();
        assert_eq!(lines.len(), expected, "{tag}: {lines:?}");
        let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
        assert_eq!(line["event_type"], "packet");
        assert_eq!(line["packet_info"]["linktype"], 1);
        assert!(line["packet"].as_str().is_some_and(|text| text.len() > 56), "{line}");
    }
}

#[test]
fn options_of_headers_and_an_mtu_are_tested() {
    let mut talk = Talk::new(
        "alert ip any any -> any any (ipopts:rr; sid:1;)\nalert ip any any -> any any (ipopts:any; sid:2;)\n\
         alert ip any any -> any any (ipopts:ssrr; sid:3;)\n\
         alert tcp any any -> any any (tcp.mss:<536; sid:4;)\n\
         alert tcp any any -> any any (tcp.mss:536; sid:5;)\n\
         alert icmpv6 any any -> any any (icmpv6.mtu:<1280; sid:6;)\n\
         alert icmpv6 any any -> any any (icmpv6.mtu:>1280; sid:7;)",
    );
    talk.engine = Engine::new(
        Index::new(talk.engine.rules().iter().map(|armed| armed.rule.clone()).collect()),
        Limits { checksums: Checksums::Ignored, ..Limits::default() },
    );
    let ends = [[192, 168, 0, 1], [8, 8, 8, 8]].concat();
    let ethernet = |number: [u8; 2]| [&[2; 12][..], &number].concat();
    let four = |words: u8, protocol: u8, options: &[u8], rest: &[u8]| {
        let len = 20 + options.len() + rest.len();
        let begin = [0x40 | words, 0, 0, len as u8, 0, 1, 0, 0, 64, protocol, 0, 0];
        [&ethernet([8, 0])[..], &begin, &ends, options, rest].concat()
    };
    let segment = |mss: [u8; 2]| {
        let begin = [0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, SYN, 1, 0, 0, 0, 0, 0];
        [&begin[..], &[2, 4], &mss].concat()
    };
    for (frame, sids) in [
        // No operation, a recorded route, the end.
        (four(7, 17, &[1, 7, 3, 4, 0, 9, 9, 9], &[0, 9, 0, 9, 0, 8, 0, 0]), vec![1, 2]),
        // A length beyond the header.
        (four(6, 17, &[7, 40, 0, 0], &[0, 9, 0, 9, 0, 8, 0, 0]), vec![]),
        // A length below that of every option; a route without a pointer, with a wrong one, and one that leads beyond.
        (four(6, 17, &[7, 0, 0, 0], &[0, 9, 0, 9, 0, 8, 0, 0]), vec![]),
        (four(6, 17, &[7, 2, 0, 0], &[0, 9, 0, 9, 0, 8, 0, 0]), vec![2]),
        (four(6, 17, &[7, 3, 5, 0], &[0, 9, 0, 9, 0, 8, 0, 0]), vec![2]),
        (four(6, 17, &[7, 3, 8, 0], &[0, 9, 0, 9, 0, 8, 0, 0]), vec![2]),
        // The last byte is no option; the one before it is intact.
        (four(6, 17, &[137, 3, 4, 7], &[0, 9, 0, 9, 0, 8, 0, 0]), vec![2, 3]),
        (four(5, 6, &[], &segment([2, 23])), vec![4]),
        (four(5, 6, &[], &segment([2, 24])), vec![5]),
    ] {
        talk.raw(&frame);
        assert_eq!(talk.sids(), sids, "{frame:02x?}");
    }
    for (kind, mtu, sids) in [(2, 1000u32, vec![6]), (2, 1500, vec![7]), (1, 1000, vec![])] {
        let begin = [0x60, 0, 0, 0, 0, 8, 58, 64];
        let message = [&[kind, 0, 0, 0][..], &mtu.to_be_bytes()].concat();
        let frame = [&ethernet([0x86, 0xdd])[..], &begin, &[1; 16], &[2; 16], &message].concat();
        talk.raw(&frame);
        assert_eq!(talk.sids(), sids, "{kind} {mtu}");
    }
}

#[test]
fn a_rule_that_takes_too_long_does_not_stop_the_others() {
    let mut talk = Talk::new(
        "alert udp any any -> any any (pcre:\"/(a*)*(a*)*\\1b$/\"; sid:1;)\n\
         alert udp any any -> any any (content:\"aaaa\"; sid:2;)",
    );
    for _ in 0..40 {
        talk.udp(true, &[b'a'; 1200]);
    }
    assert_eq!(talk.sids(), [2; 40]);
    let counters = talk.engine.counters();
    assert_eq!(counters.limited, u64::from(suspend::STRIKES));
    assert_eq!(counters.suspended, 40 - counters.limited);
    // Later, it is tried again.
    talk.time_ns += 2_000_000_000;
    talk.udp(true, b"aab");
    assert_eq!(talk.sids(), [1]);
}
