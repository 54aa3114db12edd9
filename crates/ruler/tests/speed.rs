//! Speed beside peers, at smoke size in the test suite; for figures:
//! `FYKE_FULL=1 cargo test --release -p fyke-ruler --test speed -- --nocapture --test-threads 1`.
//!
//! Answers are compared before anything is timed. Each figure is the median of interleaved runs.

use fyke_frame::LinkType;
use fyke_ruler::anonymise::Anonymiser;
use fyke_ruler::matcher::Room;
use fyke_ruler::{Limits, Matcher, Program, Ruler, Verdict};
use regex_automata::meta::Regex;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

fn full() -> bool {
    std::env::var_os("FYKE_FULL").is_some()
}

fn shared(path: &str) -> Option<Vec<u8>> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("FYKE_SHARED").map_or(beside, PathBuf::from);
    let bytes = std::fs::read(folder.join(path)).ok();
    if bytes.is_none() {
        println!("skipped the part on {path}: no such file");
    }
    bytes
}

/// Frames of a pcap file of this machine's byte order, or made ones where there is no file.
fn packets() -> Vec<Vec<u8>> {
    let made = |number: usize| {
        let mut state = number as u64 * 77 + 1;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..60 + number % 1400).map(|_| next()).collect::<Vec<u8>>()
    };
    let Some(file) = shared("traces/mixed/dev-mix.pcap") else {
        return (0..500).map(made).collect();
    };
    let mut packets = Vec::new();
    let mut at = 24;
    while let Some(header) = file.get(at..at + 16) {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some(packet) = file.get(at + 16..at + 16 + len) else { break };
        packets.push(packet.to_vec());
        at += 16 + len;
        if packets.len() == if full() { 50_000 } else { 500 } {
            break;
        }
    }
    packets
}

/// Strings that people search for, different from each other.
fn literals(count: usize) -> Vec<String> {
    let rules = shared("rules/snort-community.rules").unwrap_or_default();
    let rules = String::from_utf8_lossy(&rules);
    let mut found: Vec<String> = Vec::new();
    for text in rules.split("content:\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let plain =
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" ./_=".contains(&byte));
        if plain && text.len() >= 5 && !found.iter().any(|known| known == text) {
            found.push(text.to_owned());
        }
        if found.len() == count {
            return found;
        }
    }
    (found.len()..count).for_each(|number| found.push(format!("needle-{number:05}")));
    found
}

/// Median seconds of each, run in turn.
fn medians(runs: &mut [&mut dyn FnMut() -> u64]) -> Vec<f64> {
    let rounds = if full() { 7 } else { 1 };
    let mut times = vec![Vec::new(); runs.len()];
    for _ in 0..rounds {
        for (times, run) in times.iter_mut().zip(runs.iter_mut()) {
            let start = Instant::now();
            black_box(run());
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect()
}

fn matcher(text: &str) -> Matcher {
    let program = Program::from_text(text).unwrap_or_else(|error| panic!("{error}"));
    Matcher::new(&program.filters[0].rules, Limits::default()).expect("within limits")
}

#[test]
fn literal_rules_beside_peers() {
    let packets = packets();
    let bytes: usize = packets.iter().map(Vec::len).sum();
    for count in if full() { vec![10, 100, 1000] } else { vec![10, 1000] } {
        let literals = literals(count);
        let mut text = String::from("filter f\n");
        for (number, literal) in literals.iter().enumerate() {
            text += &format!("* \"{literal}\" * => accept {number};\n");
        }
        let start = Instant::now();
        let ours = matcher(&text);
        let compiled = start.elapsed();
        let peer = aho_corasick::AhoCorasick::new(&literals).expect("small");
        let patterns: Vec<String> =
            literals.iter().map(|literal| literal.replace('.', "\\.")).collect();
        let regex = Regex::new_many(&patterns).expect("small");
        let mut room = Room::default();
        for packet in &packets {
            let expected =
                literals.iter().position(|literal| memchr_find(packet, literal.as_bytes()));
            assert_eq!(ours.first_match(&mut room, packet), expected);
            assert_eq!(peer.is_match(packet), expected.is_some());
            assert_eq!(regex.is_match(packet), expected.is_some());
        }
        let count_of = |matches: &mut dyn FnMut(&[u8]) -> bool| {
            packets.iter().filter(|packet| matches(packet)).count() as u64
        };
        let times = medians(&mut [
            &mut || count_of(&mut |packet| ours.first_match(&mut room, packet).is_some()),
            &mut || count_of(&mut |packet| peer.is_match(packet)),
            &mut || count_of(&mut |packet| regex.is_match(packet)),
        ]);
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!(
            "{count} literals, GB/s: own {:.2}, aho-corasick {:.2}, regex-automata {:.2}; {:.0} ms",
            rate(times[0]),
            rate(times[1]),
            rate(times[2]),
            compiled.as_secs_f64() * 1e3
        );
    }
}

fn memchr_find(packet: &[u8], needle: &[u8]) -> bool {
    packet.windows(needle.len()).any(|window| window == needle)
}

/// Table 7.1: every byte is inspected. The second pattern has no state that a vector search could leap over.
#[test]
fn all_bytes_inspected() {
    for (name, pattern) in [("self loop", "[^\\xff]{0,}"), ("two states", "(. [^\\xff]){0,}")] {
        let ours = matcher(&format!("filter f {pattern} => accept;"));
        for size in [64, 128, 256, 512, 1024, 1470] {
            let packet: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let mut room = Room::default();
            assert_eq!(ours.first_match(&mut room, &packet), Some(0));
            let times = if full() { 200_000_000 / size } else { 1000 };
            let mut run = || {
                (0..times)
                    .filter(|_| ours.first_match(&mut room, black_box(&packet)).is_some())
                    .count() as u64
            };
            let seconds = medians(&mut [&mut run])[0];
            let rate = (times * size) as f64 * 8.0 / seconds / 1e6;
            println!("{name}, {size} bytes: {rate:.0} Mbit/s");
        }
    }
}

/// Zeroing the addresses of IPv4 packets, with and without the checksum.
#[test]
fn addresses_zeroed() {
    let packets = packets();
    for fix in ["", "fix checksums"] {
        let text = format!(
            "include \"layouts.rli\" filter f eh:Ethernet_IPv4 ih:IPv4 p:* =>
             eh ih with [src=0, dest=0] p {fix}; * => accept;"
        );
        let program = Program::from_text(&text).unwrap_or_else(|error| panic!("{error}"));
        let mut ruler = Ruler::new(program, Limits::default(), Anonymiser::new(&[1; 32], &[2; 16]))
            .expect("small");
        let mut out = Vec::new();
        let mut rewritten = 0;
        let mut run = || {
            rewritten = 0;
            for packet in &packets {
                let (verdict, _) = ruler.run(0, packet, LinkType::EN10MB, &mut out);
                rewritten += u64::from(verdict == Verdict::Rewrite);
                assert!(verdict.passes());
            }
            rewritten
        };
        let seconds = medians(&mut [&mut run])[0];
        let rate = packets.len() as f64 / seconds / 1e6;
        println!(
            "addresses zeroed {fix}: {rate:.2} Mpps, {rewritten} of {} rewritten",
            packets.len()
        );
    }
}

/// What tags cost: the same pattern with and without names that the action uses.
#[test]
fn tags_cost() {
    let packets = packets();
    let bytes: usize = packets.iter().map(Vec::len).sum();
    let pattern = "before:* \"\\r\\n\" name:[A-Za-z\\-]+ \": \" value:[^\\r]+ \"\\r\\n\" rest:*";
    let plain = matcher(&format!("filter f {pattern} => accept;"));
    let tagged = matcher(&format!("filter f {pattern} => rest name value;"));
    let (mut room, mut other) = (Room::default(), Room::default());
    for packet in &packets {
        let found = plain.first_match(&mut room, packet);
        assert_eq!(found, tagged.first_match(&mut other, packet));
    }
    let times = medians(&mut [
        &mut || {
            packets.iter().filter(|packet| plain.first_match(&mut room, packet).is_some()).count()
                as u64
        },
        &mut || {
            packets.iter().filter(|packet| tagged.first_match(&mut other, packet).is_some()).count()
                as u64
        },
    ]);
    println!(
        "tags: {:.2} GB/s without, {:.2} GB/s with, ratio {:.2}",
        bytes as f64 / times[0] / 1e9,
        bytes as f64 / times[1] / 1e9,
        times[1] / times[0]
    );
}
