//! The tracker on invented calls, and on damaged ones.

use super::*;
use crate::{Closed, Reason, Tracker};
use fyke_frame::LinkType;
use fyke_testkit::packet::Packet;
use fyke_testkit::random::rounds;

const SECOND: u64 = 1_000_000_000;
const CALLER: [u8; 4] = [10, 0, 0, 1];
const CALLEE: [u8; 4] = [10, 0, 0, 2];
const STRANGER: [u8; 4] = [192, 0, 2, 7];

/// A tracker with a clock, and the events so far.
struct Bench {
    sip: Sip,
    events: Vec<Event>,
    now_ns: u64,
}

fn sdp(host: [u8; 4], version: u32, media: &str) -> String {
    let [a, b, c, d] = host;
    let host = format!("{a}.{b}.{c}.{d}");
    format!("v=0\r\no=x 1 {version} IN IP4 {host}\r\ns=-\r\nc=IN IP4 {host}\r\nt=0 0\r\n{media}")
}

fn message(start: &str, id: &str, sequence: &str, body: &str) -> String {
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    let length = body.len();
    format!(
        "{start}\r\nVia: SIP/2.0/UDP a\r\nCall-ID: {id}\r\nCSeq: 1 {sequence}\r\n{kind}Content-Length: \
         {length}\r\n\r\n{body}"
    )
}

fn invite(id: &str, body: &str) -> String {
    message("INVITE sip:b@c SIP/2.0", id, "INVITE", body)
}

fn answer(id: &str, code: &str, body: &str) -> String {
    message(&format!("SIP/2.0 {code}"), id, "INVITE", body)
}

impl Bench {
    fn new() -> Bench {
        Bench { sip: Sip::default(), events: Vec::new(), now_ns: SECOND }
    }

    fn frame(&mut self, bytes: &[u8]) -> Option<u64> {
        let mut frame = Frame::new(LinkType::EN10MB, bytes);
        self.now_ns += 1_000_000;
        frame.timestamp_ns = self.now_ns;
        self.sip.frame(&frame, &mut self.events);
        self.sip.call().map(|part| part.call)
    }

    fn udp(&mut self, from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Option<u64> {
        let packet = Packet::ethernet().ipv4(from.0, to.0).udp(from.1, to.1).payload(payload);
        self.frame(&packet.build())
    }

    fn caller_sends(&mut self, text: &str) {
        self.udp((CALLER, 5060), (CALLEE, 5060), text.as_bytes());
    }

    fn callee_sends(&mut self, text: &str) {
        self.udp((CALLEE, 5060), (CALLER, 5060), text.as_bytes());
    }

    /// Runs a call up to its answer: 4000 and 4001 at the caller, 5000 and 5001 at the callee.
    fn call(&mut self, id: &str) {
        self.caller_sends(&invite(id, &sdp(CALLER, 1, "m=audio 4000 RTP/AVP 0\r\n")));
        self.callee_sends(&answer(id, "200 OK", &sdp(CALLEE, 1, "m=audio 5000 RTP/AVP 0\r\n")));
        self.caller_sends(&message("ACK sip:b@c SIP/2.0", id, "ACK", ""));
    }

    fn wait(&mut self, seconds: u64) {
        self.now_ns += seconds * SECOND;
        self.sip.expire(self.now_ns, &mut self.events);
    }

    fn opened(&self) -> Vec<String> {
        let each = self.events.iter().filter_map(|event| match event {
            Event::Open(open) => Some(format!("{}:{} {}", open.server, open.port, open.label)),
            Event::Close(_) => None,
        });
        each.collect()
    }

    fn closed(&self) -> Vec<Closed> {
        let each = self.events.iter().filter_map(|event| match event {
            Event::Close(closed) => Some(*closed),
            Event::Open(_) => None,
        });
        each.collect()
    }
}

#[test]
fn a_call_from_invite_to_bye() {
    let mut bench = Bench::new();
    bench.call("a");
    assert_eq!(
        bench.opened(),
        [
            "10.0.0.1:4000 RTP audio",
            "10.0.0.1:4001 RTCP audio",
            "10.0.0.2:5000 RTP audio",
            "10.0.0.2:5001 RTCP audio"
        ]
    );
    assert_eq!(bench.udp((CALLER, 4000), (CALLEE, 5000), b"media"), Some(1));
    assert_eq!(bench.udp((CALLEE, 5000), (CALLER, 4000), b"media"), Some(1));
    assert_eq!(bench.udp((CALLEE, 5001), (CALLER, 4001), b"control"), Some(1));
    assert_eq!(bench.udp((CALLEE, 5002), (CALLER, 4003), b"other"), None);
    bench.callee_sends(&message("BYE sip:a SIP/2.0", "a", "BYE", ""));
    assert_eq!(bench.udp((CALLER, 4000), (CALLEE, 5000), b"late"), Some(1));
    assert!(bench.closed().is_empty());
    bench.caller_sends(&message("SIP/2.0 200 OK", "a", "BYE", ""));
    bench.wait(1);
    let closed = bench.closed();
    assert_eq!((closed.len(), bench.sip.expectation_count()), (4, 0));
    assert_eq!(closed.iter().map(|one| one.frame_count).sum::<u64>(), 4);
    let finished = closed.iter().filter(|one| one.reason == Reason::Finished);
    assert_eq!(finished.count(), 3, "one RTCP end had no frame");
    bench.wait(40);
    assert_eq!(bench.sip.call_count(), 0);
}

#[test]
fn early_media_short_names_and_several_media() {
    let mut bench = Bench::new();
    let media = "m=audio 4000 RTP/AVP 0\r\nm=video 4002 RTP/AVP 31\r\na=rtcp:4444\r\nm=image 4006 udptl t38\r\n";
    let body = sdp(CALLER, 1, media);
    bench.caller_sends(&format!(
        "INVITE sip:b@c SIP/2.0\r\ni: short\r\nCSeq: 1 INVITE\r\nc: application/sdp\r\nl: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(bench.opened().len(), 5);
    // While nothing else is announced, any host may be the other end.
    assert_eq!(bench.udp((CALLEE, 5000), (CALLER, 4000), b"early"), Some(1));
    bench.callee_sends(&answer(
        "short",
        "183 Session Progress",
        &sdp(CALLEE, 1, "m=audio 5000 RTP/AVP 0\r\n"),
    ));
    assert_eq!(bench.opened().len(), 7);
    // Silence of a minute and more while it rings.
    bench.wait(150);
    assert!(bench.closed().is_empty());
    bench.callee_sends(&answer("short", "486 Busy Here", ""));
    bench.wait(1);
    assert_eq!((bench.closed().len(), bench.sip.expectation_count()), (7, 0));
}

#[test]
fn cancel_ends_a_call_that_was_not_answered_only() {
    let mut bench = Bench::new();
    bench.call("a");
    bench.caller_sends(&message("CANCEL sip:b SIP/2.0", "a", "CANCEL", ""));
    bench.wait(2);
    assert_eq!(bench.sip.expectation_count(), 4);
    bench.caller_sends(&invite("b", &sdp(CALLER, 1, "m=audio 6000 RTP/AVP 0\r\n")));
    bench.caller_sends(&message("CANCEL sip:b SIP/2.0", "b", "CANCEL", ""));
    bench.wait(2);
    assert_eq!(bench.sip.expectation_count(), 4);
    // The challenge of a proxy, and the same INVITE again.
    bench.caller_sends(&invite("c", &sdp(CALLER, 1, "m=audio 7000 RTP/AVP 0\r\n")));
    bench.callee_sends(&answer("c", "407 Proxy Authentication Required", ""));
    bench.caller_sends(&invite("c", &sdp(CALLER, 1, "m=audio 7000 RTP/AVP 0\r\n")));
    bench.wait(2);
    assert_eq!(bench.sip.expectation_count(), 6);
    assert_eq!(bench.sip.counters().calls, 3);
}

/// A message with tags: of its sender, and of the other end.
fn tagged(start: &str, sequence: &str, tags: [&str; 2], body: &str) -> String {
    let tag = |tag: &str| if tag.is_empty() { String::new() } else { format!(";tag={tag}") };
    let fields =
        format!("From: <sip:a@b>{}\r\nTo: <sip:c@d>{}\r\nCall-ID", tag(tags[0]), tag(tags[1]));
    message(start, "t", sequence, body).replace("Call-ID", &fields)
}

#[test]
fn a_bye_that_is_refused_or_of_another_dialogue_ends_nothing() {
    const BYE: &str = "BYE sip:b SIP/2.0";
    let mut bench = Bench::new();
    let (offer, other) = ("m=audio 4000 RTP/AVP 0\r\n", "m=audio 6000 RTP/AVP 0\r\n");
    bench.caller_sends(&tagged(
        "INVITE sip:b SIP/2.0",
        "INVITE",
        ["x", ""],
        &sdp(CALLER, 1, offer),
    ));
    let answer = sdp(CALLEE, 1, "m=audio 5000 RTP/AVP 0\r\n");
    bench.callee_sends(&tagged("SIP/2.0 200 OK", "INVITE", ["x", "y"], &answer));
    // From anywhere, with the Call-ID only, or with one tag that fits.
    for tags in [["", ""], ["a", "b"], ["x", ""], ["x", "b"], ["a", "x"], ["y", "b"]] {
        let (stranger, other) = ((STRANGER, 5060), ([192, 0, 2, 8], 5060));
        bench.udp(stranger, other, tagged(BYE, "BYE", tags, "").as_bytes());
        let cancel = tagged("CANCEL sip:b SIP/2.0", "CANCEL", tags, "");
        bench.udp(stranger, other, cancel.as_bytes());
        bench.udp(other, stranger, tagged("SIP/2.0 200 OK", "BYE", tags, "").as_bytes());
    }
    bench.wait(10);
    assert_eq!(bench.udp((CALLER, 4000), (CALLEE, 5000), b"media"), Some(1));
    assert!(bench.closed().is_empty());
    // Another call with the same Call-ID is another call.
    bench.caller_sends(&tagged(
        "INVITE sip:b SIP/2.0",
        "INVITE",
        ["z", ""],
        &sdp(CALLER, 1, other),
    ));
    assert_eq!((bench.sip.counters().calls, bench.sip.expectation_count()), (2, 6));
    // The callee leaves: it is challenged first.
    bench.callee_sends(&tagged(BYE, "BYE", ["y", "x"], ""));
    bench.wait(2);
    bench.caller_sends(&tagged("SIP/2.0 401 Unauthorized", "BYE", ["y", "x"], ""));
    bench.wait(10);
    assert_eq!(bench.udp((CALLER, 4000), (CALLEE, 5000), b"media"), Some(1));
    assert!(bench.closed().is_empty());
    bench.callee_sends(&tagged(BYE, "BYE", ["y", "x"], ""));
    bench.caller_sends(&tagged("SIP/2.0 200 OK", "BYE", ["y", "x"], ""));
    bench.wait(1);
    assert_eq!((bench.closed().len(), bench.sip.expectation_count()), (4, 2));
}

#[test]
fn a_bye_without_an_answer_ends_the_call_too() {
    let mut bench = Bench::new();
    bench.call("a");
    bench.callee_sends(&message("BYE sip:a SIP/2.0", "a", "BYE", ""));
    bench.wait(4);
    assert!(bench.closed().is_empty());
    bench.wait(2);
    assert_eq!(bench.closed().len(), 4);
}

#[test]
fn ends_at_which_no_media_can_be_are_refused_and_counted() {
    let mut bench = Bench::new();
    let ends = [(CALLER, 53), ([127, 0, 0, 1], 4000), ([255; 4], 4000), (CALLER, 1023)];
    for (version, (host, port)) in (1..).zip(ends) {
        let media = format!("m=audio {port} RTP/AVP 0\r\na=rtcp:{port}\r\n");
        bench.caller_sends(&invite("a", &sdp(host, version, &media)));
    }
    let named = |notices: Vec<(&str, u64)>, name| {
        notices.iter().find(|(known, _)| *known == name).map(|(_, count)| *count)
    };
    assert!(bench.events.is_empty());
    assert_eq!(named(bench.sip.notices(), "refused_ends"), Some(8));
    let many = "m=audio 4000 RTP/AVP 0\r\n".repeat(20);
    bench.caller_sends(&invite("b", &sdp(CALLER, 1, &many)));
    assert_eq!(named(bench.sip.notices(), "over_limit"), Some(4));
    let known = |name: &str| crate::NOTICES.iter().any(|(known, _)| *known == name);
    assert!(bench.sip.notices().iter().all(|(name, _)| known(name)));
}

#[test]
fn a_change_replaces_ends_once_they_are_silent() {
    let mut bench = Bench::new();
    bench.call("a");
    bench.caller_sends(&invite("a", &sdp(CALLER, 2, "m=image 4100 udptl t38\r\n")));
    for _ in 0..4 {
        bench.wait(3);
        // The change has been refused: the old media continues.
        assert_eq!(bench.udp((CALLEE, 5000), (CALLER, 4000), b"old"), Some(1));
    }
    bench.wait(6);
    let gone: Vec<_> = bench.closed().iter().map(|one| one.connection.port).collect();
    assert!(gone.contains(&4001) && gone.contains(&4000), "{gone:?}");
    assert!(!gone.contains(&4100) && !gone.contains(&5000), "{gone:?}");
    // A medium on hold keeps its ends.
    let hold =
        sdp([0, 0, 0, 0], 3, "m=audio 5000 RTP/AVP 0\r\n").replace("o=x 1 3 IN IP4 0.0.0.0", "o=y");
    bench.callee_sends(&invite("a", &hold));
    bench.wait(20);
    assert!(!bench.closed().iter().any(|one| one.connection.port == 5000));
}

#[test]
fn one_stranger_takes_over_in_time_and_no_other() {
    let mut bench = Bench::new();
    bench.call("a");
    assert_eq!(bench.udp((STRANGER, 9), (CALLEE, 5000), b"translated"), Some(1));
    assert_eq!(bench.udp((CALLEE, 5000), (STRANGER, 9), b"back"), Some(1));
    assert_eq!(bench.udp(([192, 0, 2, 8], 9), (CALLEE, 5000), b"second"), None);
    bench.wait(6);
    assert_eq!(bench.udp(([192, 0, 2, 8], 9), (CALLER, 4000), b"too late"), None);
    assert_eq!(bench.udp((STRANGER, 9), (CALLEE, 5000), b"still"), Some(1));
    assert_eq!(bench.sip.counters().foreign_frames, 2);
}

#[test]
fn silence_ends_a_call_and_media_keep_it() {
    let mut bench = Bench::new();
    bench.call("a");
    for _ in 0..10 {
        bench.wait(100);
        assert_eq!(bench.udp((CALLER, 4000), (CALLEE, 5000), b"media"), Some(1));
    }
    // The ends without frames have stayed with the call.
    assert_eq!(bench.sip.expectation_count(), 4);
    bench.wait(301);
    assert_eq!((bench.sip.expectation_count(), bench.closed().len()), (0, 4));
}

#[test]
fn messages_over_tcp_in_pieces_and_over_ipv6() {
    let mut bench = Bench::new();
    let text = invite("t", &sdp(CALLER, 1, "m=audio 4000 RTP/AVP 0\r\n"));
    let tcp = |sequence: usize, part: &[u8]| {
        let packet = Packet::ethernet().ipv4(CALLER, CALLEE).tcp(4444, 5060).flags(16);
        packet.seq_ack(sequence as u32, 1).payload(part).build()
    };
    // From the end to the beginning.
    let parts: Vec<_> = text.as_bytes().chunks(40).collect();
    bench.frame(
        &Packet::ethernet().ipv4(CALLER, CALLEE).tcp(4444, 5060).flags(2).seq_ack(99, 0).build(),
    );
    for (at, part) in parts.iter().enumerate().rev() {
        bench.frame(&tcp(100 + at * 40, part));
    }
    assert_eq!(bench.opened().len(), 2);
    let six = |last: u16| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last];
    let body =
        "v=0\r\no=a 1 1 IN IP6 2001:db8::1\r\nc=IN IP6 2001:db8::1\r\nm=audio 4000 RTP/AVP 0\r\n";
    let text = invite("six", body);
    let (from, to) = (six(1).into(), six(2).into());
    let packet = |from: std::net::Ipv6Addr, to| Packet::ethernet().ipv6(from, to);
    bench.frame(&packet(from, to).udp(5060, 5060).payload(text.as_bytes()).build());
    assert_eq!(bench.opened()[2], "2001:db8::1:4000 RTP audio");
    assert_eq!(bench.frame(&packet(to, from).udp(5000, 4000).payload(b"media").build()), Some(2));
}

#[test]
fn what_is_no_call_announces_nothing() {
    let mut bench = Bench::new();
    let body = sdp(CALLER, 1, "m=audio 4000 RTP/AVP 0\r\n");
    for text in [
        message("SIP/2.0 200 OK", "o", "OPTIONS", &body),
        message("OPTIONS sip:b SIP/2.0", "o", "OPTIONS", &body),
        message("BYE sip:b SIP/2.0", "unknown", "BYE", ""),
        message("ACK sip:b SIP/2.0", "unknown", "ACK", &body),
        invite("", &body),
        invite(&"x".repeat(300), &body),
        invite("e", &body).replace("Content-Type", "Content-Encoding: gzip\r\nContent-Type"),
        invite("t", &body).replace("application/sdp", "text/plain"),
    ] {
        bench.caller_sends(&text);
    }
    assert!(bench.events.is_empty());
    assert_eq!(bench.sip.counters().malformed, 3);
}

#[test]
fn floods_are_bounded_and_every_open_gets_its_close() {
    let limits = Limits { control_connections: 50, data_connections: 200, ..Limits::default() };
    let mut bench = Bench { sip: Sip::at_ports(&[5060], limits), ..Bench::new() };
    let media = |port| format!("m=audio {port} RTP/AVP 0\r\n");
    bench.caller_sends(&invite("answered", &sdp(CALLEE, 1, &media(50_000))));
    bench.callee_sends(&answer("answered", "200 OK", &sdp(CALLER, 1, &media(50_002))));
    for call in 0..2_000_u16 {
        let body = sdp(CALLER, 1, &media(1_024 + call * 2));
        bench.caller_sends(&invite(&call.to_string(), &body));
        assert!(bench.sip.call_count() <= 50 && bench.sip.expectation_count() <= 200);
    }
    // The call that was answered is there, those that were not have made room for others.
    assert_eq!(bench.udp((CALLEE, 50_000), (CALLER, 50_002), b"media"), Some(1));
    assert_eq!(bench.sip.counters().calls_evicted, 1_951);
    // One call with more and more ends.
    for version in 0..200 {
        let body = sdp([10, 0, 1, version as u8], version, &media(2_000 + version as u16 * 2));
        bench.caller_sends(&invite("one", &body));
    }
    let of_one = bench.sip.expected();
    let calls: Vec<_> = of_one.iter().map(|one| one.connection.call).collect();
    let most = calls.iter().map(|call| calls.iter().filter(|other| *other == call).count()).max();
    assert!(most <= Some(crate::expectations::PER_CALL), "{most:?}");
    bench.sip.expire(u64::MAX, &mut bench.events);
    assert_eq!(bench.opened().len(), bench.closed().len());
    assert_eq!((bench.sip.expectation_count(), bench.sip.call_count()), (0, 0));
}

#[test]
fn any_bytes_are_survived() {
    rounds(300, |random| {
        let limits = Limits { control_connections: 8, data_connections: 40, ..Limits::default() };
        let mut bench = Bench { sip: Sip::at_ports(&[5060], limits), ..Bench::new() };
        let media = "m=audio 4000/2 RTP/AVP 0\r\na=rtcp:9 IN IP4 10.0.0.9\r\n\
                     a=candidate:1 1 UDP 1 10.0.0.8 77 typ host\r\n";
        for _ in 0..20 {
            let body = sdp(CALLER, 1, media);
            let id = ["a", "b", "c"][random.below(3)];
            let texts = [
                invite(id, &body),
                answer(id, "200 OK", &body),
                message("BYE sip:b SIP/2.0", id, "BYE", ""),
            ];
            let mut text = texts[random.below(3)].clone().into_bytes();
            for _ in 0..random.below(6) {
                let at = random.below(text.len());
                match random.below(4) {
                    0 => text[at] = random.number() as u8,
                    1 => text.truncate(at.max(1)),
                    2 => text.insert(at, b"0\r\n:=/9-"[random.below(8)]),
                    _ => drop(text.remove(at)),
                }
                if text.is_empty() {
                    text.push(b'v');
                }
            }
            if random.chance(2) {
                bench.udp((CALLER, 5060), (CALLEE, 5060), &text);
            } else {
                let packet = Packet::ethernet().ipv4(CALLER, CALLEE).tcp(4444, 5060).flags(16);
                let sequence = random.below(3_000) as u32;
                bench.frame(&packet.seq_ack(sequence, 1).payload(&text).build());
            }
            assert!(bench.sip.expectation_count() <= 40 && bench.sip.call_count() <= 8);
            if random.chance(5) {
                bench.wait(random.below(400) as u64);
            }
        }
        bench.sip.expire(u64::MAX, &mut bench.events);
        assert_eq!(bench.opened().len(), bench.closed().len());
    });
}
