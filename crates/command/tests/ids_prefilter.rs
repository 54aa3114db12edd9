//! The pre-filter of rules: on every capture, an engine after it gives the alerts that it gives without it.
//!
//! Rules are made from the packets of each capture, so that they match; headers are exact, wide, negated or lists.

use fyke_capture::{Next, Source, open_file};
use fyke_filter::{Options, compile};
use fyke_frame::walk::{Layers, walk_again};
use fyke_frame::{Frame, LinkType};
use fyke_ids::engine::{End, Packet};
use fyke_ids::{Engine, Index, Limits, Translation, Variables, prefilter};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::random::Random;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

/// Most frames that are read of a capture.
const MAX_FRAMES: usize = 2_000;
/// Sets of rules for each capture.
const SETS: usize = 3;

struct Record {
    time_ns: u64,
    link: LinkType,
    wire_len: u32,
    data: Vec<u8>,
}

impl Record {
    fn frame(&self) -> Frame<'_> {
        let mut frame = Frame::new(self.link, &self.data);
        (frame.timestamp_ns, frame.wire_len) = (self.time_ns, self.wire_len);
        frame
    }
}

fn records(path: &Path) -> Vec<Record> {
    let mut found = Vec::new();
    let Ok(mut source) = open_file(path) else { return found };
    while found.len() < MAX_FRAMES {
        match source.next() {
            Ok(Next::Frames(batch, _)) => found.extend(batch.frames().iter().map(|frame| Record {
                time_ns: frame.timestamp_ns,
                link: frame.link,
                wire_len: frame.wire_len,
                data: frame.data.to_vec(),
            })),
            Ok(Next::Idle) => {}
            Ok(Next::End) | Err(_) => break,
        }
    }
    found.truncate(MAX_FRAMES);
    // Files put together have times that go back or jump by years: flows end by time, and which frame moves the clock
    // would decide. Here no frame is earlier than the last one, or more than a minute later.
    let (mut before, mut latest) = (0, 0);
    for record in &mut found {
        let step = record.time_ns.saturating_sub(before).min(60_000_000_000);
        before = record.time_ns;
        latest += step;
        record.time_ns = latest;
    }
    found
}

fn address(random: &mut Random, address: IpAddr) -> String {
    let wide = if address.is_ipv4() { 8 + random.below(20) } else { 16 + random.below(100) };
    match random.below(8) {
        0 => format!("{address}"),
        1 => format!("{address}/{wide}"),
        2 => format!("[203.0.113.0/24,{address}/{wide},!198.51.100.7]"),
        3 => format!("!{address}"),
        4 => "![203.0.113.0/24,2001:db8:ffff::/48]".to_owned(),
        _ => "any".to_owned(),
    }
}

fn port(random: &mut Random, port: u16) -> String {
    match random.below(7) {
        0 => format!("{port}"),
        1 => format!("[9,{}:{}]", port.saturating_sub(3), port.saturating_add(5)),
        2 => format!("!{}", port ^ 1),
        3 => format!("[1:65535,!{}]", port ^ 1),
        _ => "any".to_owned(),
    }
}

/// A rule that the packet may match.
fn rule(random: &mut Random, packet: &Packet<'_>, sid: usize) -> String {
    let transport = match packet.protocol {
        6 => "tcp",
        17 => "udp",
        _ if packet.is_icmp() => "icmp",
        _ => "ip",
    };
    let protocol = match random.below(8) {
        0 => "ip",
        1 if transport == "tcp" => random.pick(&["http", "tls", "tcp-pkt"]),
        1 if transport == "udp" => "dns",
        _ => transport,
    };
    let (mut left, mut right) = (packet.source, packet.destination);
    if random.chance(4) {
        (left, right) = (right, left);
    }
    let mut end = |(ip, number): End| format!("{} {}", address(random, ip), port(random, number));
    let (left, right) = (end(left), end(right));
    let arrow = random.pick(&["->", "->", "<>"]);
    let mut text = format!("alert {protocol} {left} {arrow} {right} (msg:\"x\"; ");
    if packet.payload.len() >= 4 && !random.chance(4) {
        let at = random.below(packet.payload.len() - 3);
        text.push_str("content:\"|");
        for byte in packet.payload[at..].iter().take(3 + random.below(5)) {
            let _ = write!(text, "{byte:02x} ");
        }
        text.push_str("|\"; ");
    } else if random.chance(2) {
        text.push_str("ttl:>1; ");
    }
    text.push_str(random.pick(&[
        "",
        "",
        "",
        "flow:established; ",
        "flow:to_server; ",
        "flow:established,to_client; ",
        "xbits:set,seen,track ip_dst; ",
        "xbits:isset,seen,track ip_src; ",
        "threshold:type both,track by_src,count 2,seconds 60; ",
    ]));
    let _ = writeln!(text, "sid:{sid};)");
    text
}

/// The compared parts of an alert: its rule, direction, ends and time.
type Found = (u32, bool, End, End, u64);

fn alerts<'r>(text: &str, records: impl Iterator<Item = &'r Record>) -> Vec<Found> {
    let translation = Translation::new(text.as_bytes(), None, &Variables::default());
    assert!(translation.refused.is_empty(), "{:?}", translation.refused);
    let mut engine = Engine::new(Index::new(translation.rules), Limits::default());
    let mut found = Vec::new();
    let mut give = |alert: &fyke_ids::Alert<'_>| {
        let packet = alert.packet;
        let ends = (packet.source, packet.destination);
        found.push((alert.rule.sid, alert.to_server, ends.0, ends.1, packet.time_ns));
    };
    records.for_each(|record| engine.frame(&record.frame(), &mut give));
    engine.finish(&mut give);
    // Streams that have not ended are finished in the order of a table.
    found.sort_unstable();
    found
}

#[test]
fn alerts_are_the_same_behind_the_prefilter() {
    let corpus = Corpus::open();
    let (mut random, seed) = Random::seeded(2323);
    println!("seed {seed}");
    let (mut seen, mut passed, mut given, mut unread) = (0, 0, 0, 0);
    for path in corpus.traces("") {
        let records = records(&path);
        let Some(link) = records.first().map(|record| record.link) else { continue };
        if records.iter().any(|record| record.link != link) {
            continue;
        }
        for _ in 0..SETS {
            let mut text = String::new();
            for sid in 1..=1 + random.below(6) {
                let record = &records[random.below(records.len())];
                let (frame, mut layers) = (record.frame(), Layers::new());
                walk_again(&frame, &mut layers);
                let levels: Vec<_> = layers.levels().collect();
                let of = |level| Packet::of(level, layers.data(), 0, 0);
                let packets = levels.iter().filter_map(of);
                let packets: Vec<_> = packets.collect();
                if let Some(packet) = packets.get(random.below(packets.len().max(1))) {
                    text.push_str(&rule(&mut random, packet, sid));
                }
            }
            if text.is_empty() {
                continue;
            }
            let filter = prefilter(text.as_bytes(), &Variables::default()).expect(&text);
            let options = Options { link, ..Options::default() };
            let Ok(predicate) = compile(&filter.expression, &options) else {
                unread += 1;
                continue;
            };
            let kept: Vec<bool> =
                records.iter().map(|record| predicate.accepts(&record.frame())).collect();
            let behind = records.iter().zip(&kept).filter(|(_, kept)| **kept);
            let (all, less) =
                (alerts(&text, records.iter()), alerts(&text, behind.map(|(record, _)| record)));
            if all != less {
                let missing: Vec<_> = all.iter().filter(|one| !less.contains(one)).collect();
                let more: Vec<_> = less.iter().filter(|one| !all.contains(one)).collect();
                panic!(
                    "{}:\n{text}{}\nmissing {missing:?}\nmore {more:?}",
                    path.display(),
                    filter.expression
                );
            }
            seen += records.len();
            passed += kept.iter().filter(|kept| **kept).count();
            given += all.len();
        }
    }
    println!("{seen} frames, {passed} pass, {given} alerts, {unread} not for the link type");
    assert!(given > 500 && passed < seen && unread * 20 < seen, "{seen} {passed} {given} {unread}");
}
