//! Packets, streams and messages of a conversation, with the rules that alert on them.

mod names;
mod work;

use super::*;
use crate::endpoints::Variables;
use crate::translate::Translation;
use fyke_frame::LinkType;
use fyke_testkit::packet::Packet as Bytes;

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

fn rules(text: &str) -> Index {
    let found = Translation::new(text.as_bytes(), None, &Variables::default());
    assert_eq!(found.refused, []);
    Index::new(found.rules)
}

/// A connection of two hosts: frames with their times.
struct Talk {
    engine: Engine,
    /// Next numbers of the client and the server.
    next: [u32; 2],
    time_ns: u64,
    /// VLAN of the segments; 0 = no tag.
    vlan: u16,
    alerts: Vec<(u32, bool)>,
}

impl Talk {
    fn new(text: &str) -> Talk {
        Talk {
            engine: Engine::new(rules(text), Limits::default()),
            next: [1000, 5000],
            time_ns: 1,
            vlan: 0,
            alerts: Vec::new(),
        }
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.time_ns += 1_000_000;
        let frame = Frame { timestamp_ns: self.time_ns, ..Frame::new(LinkType::EN10MB, bytes) };
        let alerts = &mut self.alerts;
        self.engine.frame(&frame, &mut |alert| alerts.push((alert.rule.sid, alert.to_server)));
    }

    fn send(&mut self, to_server: bool, flags: u8, payload: &[u8]) {
        let (client, server) = ([192, 168, 0, 1], [8, 8, 8, 8]);
        let [own, other] = if to_server { self.next } else { [self.next[1], self.next[0]] };
        let ether = match self.vlan {
            0 => Bytes::ethernet(),
            id => Bytes::ethernet().vlan(id),
        };
        let bytes = match to_server {
            true => ether.ipv4(client, server).tcp(40_000, 80),
            false => ether.ipv4(server, client).tcp(80, 40_000),
        };
        self.raw(&bytes.flags(flags).seq_ack(own, other).payload(payload).build());
        let moved = payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.next[usize::from(!to_server)] = own.wrapping_add(moved);
    }

    fn open(&mut self) {
        self.send(true, SYN, b"");
        self.send(false, SYN | ACK, b"");
        self.send(true, ACK, b"");
    }

    fn udp(&mut self, to_server: bool, payload: &[u8]) {
        let (client, server) = ([192, 168, 0, 1], [8, 8, 8, 8]);
        let ether = Bytes::ethernet();
        let bytes = match to_server {
            true => ether.ipv4(client, server).udp(40_000, 53),
            false => ether.ipv4(server, client).udp(53, 40_000),
        };
        self.raw(&bytes.payload(payload).build());
    }

    fn sids(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.alerts).into_iter().map(|(sid, _)| sid).collect()
    }
}

#[test]
fn a_content_over_two_segments_is_found_in_the_stream_and_alerts_once() {
    let mut talk = Talk::new(
        "alert tcp any any -> any 80 (content:\"needle\"; sid:1;)\n\
         alert tcp any any -> any 80 (content:\"needle\"; dsize:<100; sid:2;)\n\
         alert tcp any any -> any 80 (content:\"needle\"; content:\"thread\"; distance:0; sid:3;)\n\
         alert tcp any any -> any 80 (flow:to_client; content:\"needle\"; sid:4;)",
    );
    talk.open();
    talk.send(true, ACK, b"xxx nee");
    assert_eq!(talk.sids(), [0; 0]);
    talk.send(true, ACK, b"dle xxx");
    assert_eq!(talk.sids(), [1]);
    talk.send(true, ACK, b"a thread");
    assert_eq!(talk.sids(), [3]);
    talk.send(true, ACK, b"needle");
    assert_eq!(talk.sids(), [2, 1]);
    assert_eq!(talk.engine.counters().alerts, 4);
}

#[test]
fn a_retransmission_and_a_middle_without_beginning_give_no_stream() {
    let text = "alert tcp any any -> any 80 (flow:established; content:\"needle\"; sid:1;)\n\
                alert tcp any any -> any 80 (content:\"needle\"; sid:2;)\n\
                alert tcp any any -> any 80 (flow:only_stream; content:\"needle\"; sid:3;)";
    let mut talk = Talk::new(text);
    talk.open();
    talk.send(true, ACK, b"needle");
    talk.next[0] -= 6;
    talk.send(true, ACK, b"needle");
    assert_eq!(talk.sids(), [1, 2, 3]);
    let mut middle = Talk::new(text);
    middle.send(true, ACK, b"needle");
    assert_eq!(middle.sids(), [2]);
    let mut wanted = Talk::new(text);
    wanted.engine = Engine::new(rules(text), Limits { midstream: true, ..Limits::default() });
    wanted.send(true, ACK, b"nee");
    wanted.send(true, ACK, b"dle");
    assert_eq!(wanted.sids(), [1, 2, 3]);
}

#[test]
fn names_of_a_flow_join_rules() {
    let mut talk = Talk::new(
        "alert tcp any any -> any any (content:\"second\"; flowbits:isset,seen; sid:2;)\n\
         alert tcp any any -> any any (content:\"first\"; flowbits:set,seen; flowbits:noalert; sid:1;)\n\
         alert tcp any any -> any any (content:\"second\"; flowbits:isnotset,seen; sid:3;)\n\
         alert tcp any any -> any any (content:\"end\"; flowbits:unset,seen; sid:4;)",
    );
    talk.open();
    talk.send(true, ACK, b"second");
    assert_eq!(talk.sids(), [3]);
    talk.send(true, ACK, b"first");
    talk.send(false, ACK, b"the second");
    assert_eq!(talk.sids(), [2]);
    talk.send(true, ACK, b"end");
    talk.send(true, ACK, b"second");
    assert_eq!(talk.sids(), [4, 3]);
    let counters = talk.engine.counters();
    assert_eq!(counters.matches, counters.alerts + counters.held_back + counters.silent);
}

#[test]
fn limits_hold_alerts_back() {
    let mut talk = Talk::new(
        "alert udp any any -> any 53 (msg:\"limit\"; content:\"abc\"; \
            threshold:type limit, track by_src, count 2, seconds 1; sid:1;)\n\
         alert udp any any -> any 53 (content:\"abc\"; \
             threshold:type threshold, track by_src, count 3, seconds 1; sid:2;)\n\
         alert udp any any -> any 53 (content:\"abc\"; threshold:type both, track by_dst, count 2, seconds 1; \
             sid:3;)\n\
         alert udp any any -> any 53 (content:\"abc\"; detection_filter:track by_rule, count 4, seconds 1; sid:4;)",
    );
    let mut found = Vec::new();
    for _ in 0..6 {
        talk.udp(true, b"abc");
        found.push(talk.sids());
    }
    assert_eq!(found, [vec![1], vec![1, 3], vec![2], vec![], vec![4], vec![2, 4]]);
    talk.time_ns += 1_000_000_000;
    talk.udp(true, b"abc");
    assert_eq!(talk.sids(), [1]);
    let counters = talk.engine.counters();
    assert_eq!((counters.matches, counters.held_back), (28, 28 - counters.alerts));
}

#[test]
fn buffers_of_messages_are_judged_with_the_headers_and_the_payload() {
    let mut talk = Talk::new(
        "alert http $HOME_NET any -> $EXTERNAL_NET any (http.method; content:\"GET\"; http.uri; \
            content:\"/admin\"; startswith; sid:1;)\n\
         alert http any any -> any any (http.uri; content:\"/admin\"; http.host; dotprefix; \
             content:\".example.org\"; endswith; sid:2;)\n\
         alert http any any -> any any (flow:to_client,established; http.stat_code; content:\"404\"; file.data; \
             content:\"nothing here\"; sid:3;)\n\
         alert http any any -> any any (http.user_agent; content:!\"Mozilla\"; content:\"curl\"; sid:4;)\n\
         alert http any any -> any any (http.uri; content:\"/x\"; content:\"X-Raw\"; http_raw_header; sid:5;)\n"
            .replace("http.uri; content:\"/x\"; content:\"X-Raw\"; http_raw_header;", "content:\"/x\"; \
                http_uri; content:\"X-Raw\";")
            .as_str(),
    );
    talk.open();
    talk.send(true, ACK, b"GET /admin HTTP/1.1\r\nHost: www.Exam");
    talk.send(true, ACK, b"ple.org\r\nUser-Agent: curl/8\r\n\r\n");
    let mut found = talk.sids();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 4]);
    talk.send(false, ACK, b"HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\n\r\nnothing");
    assert_eq!(talk.sids(), [0; 0]);
    talk.send(false, ACK, b" here");
    assert_eq!(talk.alerts, [(3, false)]);
    talk.sids();
    talk.send(true, ACK, b"GET /x HTTP/1.1\r\nX-Raw: 1\r\n\r\n");
    assert_eq!(talk.sids(), [5]);
    assert_eq!(talk.engine.counters().messages, 3);
}

#[test]
fn rules_about_headers_and_questions_are_judged_on_packets() {
    let mut talk = Talk::new(
        "alert tcp any any -> any 80 (flags:S,12; sid:1;)\n\
         alert udp any any -> any 53 (dsize:>20; sid:2;)\n\
         alert dns any any -> any any (dns.query; content:\"example.org\"; bsize:11; sid:3;)\n\
         alert icmp any any -> any any (itype:8; icode:0; sid:4;)\n\
         alert ip 192.168.0.0/16 any -> 8.8.8.8 any (sid:5;)\n\
         alert dns any any -> any 53 (content:\"|03|org|00|\"; sid:6;)",
    );
    talk.send(true, SYN, b"");
    assert_eq!(talk.sids(), [1, 5]);
    talk.next[0] -= 1;
    talk.send(true, SYN, b"");
    assert_eq!(talk.sids(), [1]);
    talk.udp(true, b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01");
    let mut found = talk.sids();
    found.sort_unstable();
    assert_eq!(found, [2, 3, 5, 6]);
    let echo = Bytes::ethernet()
        .ipv4([192, 168, 0, 1], [1, 1, 1, 1])
        .icmp(8, 0, 1)
        .payload(b"ping")
        .build();
    talk.raw(&echo);
    talk.raw(&[0; 60]);
    talk.raw(
        &Bytes::ethernet()
            .ipv4([1, 1, 1, 1], [2, 2, 2, 2])
            .fragment(1, 8, true)
            .ip_payload(17, &[0; 24])
            .build(),
    );
    assert_eq!(talk.sids(), [4]);
    let counters = talk.engine.counters();
    assert_eq!(
        (counters.frames, counters.judged, counters.fragments, counters.other),
        (6, 4, 1, 1)
    );
}

#[test]
fn flows_and_their_bytes_are_bounded() {
    const LIMIT: usize = 50 * connections::FLOW_BYTES;
    let mut talk = Talk::new("alert tcp any any -> any any (content:\"needle\"; sid:1;)");
    talk.engine = Engine::new(
        rules("alert tcp any any -> any any (content:\"needle\"; sid:1;)"),
        Limits { bytes: LIMIT, ..Limits::default() },
    );
    for port in 0..300 {
        let ether = |flags, sequence| {
            Bytes::ethernet()
                .ipv4([1, 1, 1, 1], [2, 2, 2, 2])
                .tcp(port, 80)
                .flags(flags)
                .seq_ack(sequence, 0)
        };
        talk.raw(&ether(SYN, 0).build());
        for part in 0..5 {
            talk.raw(&ether(ACK, 1 + part * 1000).payload(&[b'a'; 1000]).build());
        }
        assert!(
            talk.engine.flows.len() <= 50 && talk.engine.held_bytes <= LIMIT + 16_384,
            "{}",
            talk.engine.held_bytes
        );
        assert!(talk.engine.connections.len() <= 50);
    }
    assert!(talk.engine.counters().forgotten > 200);
    let held: usize = talk.engine.flows.len();
    talk.time_ns += 2 * Limits::default().idle_ns;
    talk.send(true, SYN, b"");
    talk.send(true, SYN, b"");
    assert!(held > 1 && talk.engine.flows.len() <= 2 && talk.engine.held_bytes < LIMIT);
}

#[test]
fn the_search_of_a_rule_is_readable() {
    let index = rules("alert tcp any any -> any any (content:\"0149EeDd|00|\"; nocase; sid:1;)");
    let found: Vec<String> = index.iter().map(|armed| armed.found_by()).collect();
    assert_eq!(found, ["0149eedd\\x00, any case, in payload"]);
}

#[test]
fn bytes_after_the_limit_of_a_stream_are_counted() {
    let mut talk = Talk::new("alert tcp any any -> any 80 (content:\"needle\"; sid:1;)");
    talk.open();
    for _ in 0..flow::MAX_STREAM / 1024 {
        talk.send(true, ACK, &[b'a'; 1024]);
    }
    assert_eq!(talk.engine.counters().beyond_bytes, 0);
    talk.send(true, ACK, b"a needle");
    assert_eq!((talk.sids(), talk.engine.counters().beyond_bytes), (vec![], 8));
}

#[test]
fn the_same_ends_in_two_vlans_are_two_connections_unless_tags_are_ignored() {
    let text = "alert tcp any any -> any 80 (content:\"needle\"; sid:1;)";
    for (ignore_vlan, vlans, alerts) in
        [(false, [5, 6], 2), (false, [5, 0], 2), (false, [5, 5], 1), (true, [5, 6], 1)]
    {
        let mut talk = Talk::new(text);
        talk.engine = Engine::new(rules(text), Limits { ignore_vlan, ..Limits::default() });
        for vlan in vlans {
            (talk.vlan, talk.next) = (vlan, [1000, 5000]);
            talk.open();
            talk.send(true, ACK, b"a nee");
            talk.send(true, ACK, b"dle");
        }
        assert_eq!(talk.sids().len(), alerts, "{vlans:?} {ignore_vlan}");
    }
}

#[test]
fn a_passed_flow_gives_no_alerts() {
    let mut talk = Talk::new(
        "alert tcp any any -> any 80 (content:\"needle\"; \
            sid:1;)\npass tcp any any -> any 80 (content:\"friend\"; sid:2;)",
    );
    talk.open();
    talk.send(true, ACK, b"friend");
    talk.send(true, ACK, b"needle");
    assert_eq!(talk.sids(), [0; 0]);
}

#[test]
fn rules_are_added_and_removed_one_by_one() {
    let mut index = rules("alert tcp any any -> any any (content:\"number 0\"; sid:1;)");
    let one = |sid: u32| {
        let text = format!(
            "alert tcp any any -> any any (content:\"number {sid}!\"; rev:{sid}; sid:{sid};)"
        );
        let found = Translation::new(text.as_bytes(), None, &Variables::default());
        found.rules.into_iter().next().map(Armed::new).map(Arc::new).unwrap()
    };
    for sid in 2..200 {
        index.add(one(sid));
    }
    index.add(one(5));
    assert!(index.remove(1, 7) && !index.remove(1, 7));
    assert_eq!(index.len(), 198);
    let mut candidates = Candidates::default();
    for sid in [2, 5, 7, 199] {
        candidates.clear();
        index.scan_payload(
            Payload::Stream,
            format!("the number {sid}! is").as_bytes(),
            &mut candidates,
        );
        let found: Vec<u32> =
            candidates.rules.iter().filter_map(|rule| Some(index.get(*rule)?.rule.sid)).collect();
        assert_eq!(found, if sid == 7 { vec![] } else { vec![sid] });
    }
    index.add(one(7));
    assert_eq!((index.len(), index.iter().count()), (199, 199));
}

#[test]
fn rules_are_found_before_during_and_after_a_merge() {
    use super::group::{Group, MERGE};
    use fyke_ruler::byte_set::ByteSet;
    let run = |rule: u32| format!("rule {rule:03}!").bytes().map(ByteSet::one).collect::<Vec<_>>();
    let find = |group: &Group| {
        let mut candidates = Candidates::default();
        candidates.clear();
        let text: String = (0..200).map(|rule| format!("rule {rule:03}! ")).collect();
        group.scan(text.as_bytes(), &mut candidates);
        candidates.rules.sort_unstable();
        candidates.rules
    };
    // The index skips numbers that no rule has any more.
    let mut gone = std::collections::HashSet::new();
    let find = |group: &Group, gone: &std::collections::HashSet<u32>| {
        find(group).into_iter().filter(|rule| !gone.contains(rule)).collect::<Vec<_>>()
    };
    let mut group = Group::new((0..50).map(|rule| (run(rule).into(), rule)).collect(), vec![500]);
    let mut expected: Vec<u32> = (0..50).chain([500]).collect();
    for rule in 50..180 {
        group.add(Some(run(rule).into()), rule);
        expected.push(rule);
        if rule % 3 == 0 {
            // One of the old ones, one of the merging ones, or the new one itself.
            let removed = [rule - 40, rule - 1, rule][rule as usize / 3 % 3];
            group.remove(removed);
            gone.insert(removed);
            expected.retain(|own| *own != removed);
        }
        expected.sort_unstable();
        assert_eq!(find(&group, &gone), expected, "{rule}");
    }
    while group.is_merging() {
        group.settle();
        std::thread::yield_now();
    }
    assert_eq!(find(&group, &gone), expected);
    assert!(group.recent() < MERGE && group.longest() == 9);
    group.add(Some(run(180)[..4].into()), 180);
    assert_eq!(find(&group, &gone), [&expected[..expected.len() - 1], &[180, 500]].concat());
}
