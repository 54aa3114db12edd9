//! Cost of tags: a header line, with and without the positions of its name and value; compared with re2c.

use super::{BENCH, Bench, matcher};
use crate::bench::BenchError;
use crate::bench::measure::{Turn, rounds, time_of};
use crate::bench::report::{Measurement, Report};
use crate::peers::re2c::HeaderLine;
use fyke_ruler::matcher::Room;
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use std::hint::black_box;

const PATTERN: &str = "\"\\r\\n\" name:[A-Za-z\\-]{1,40} \": \" value:[^\\r]{1,} \"\\r\\n\"";
const REGEX: &str = "\\r\\n(?<name>[A-Za-z\\-]{1,40}): (?<value>[^\\r]+)\\r\\n";

/// Function that writes the sum of the start positions of name and value, plus 1; 0 without a match. Untagged
/// engines report no positions.
type Judge = Box<dyn FnMut(&[&[u8]], &mut [u64])>;

/// Makes an engine of a function that returns the bounds of a match, one packet at a time.
fn each(mut find: impl FnMut(&[u8]) -> Option<(usize, usize)> + 'static) -> Judge {
    Box::new(move |packets, found| {
        for (packet, found) in packets.iter().zip(found) {
            *found = find(packet).map_or(0, |(name, value)| (name + value + 1) as u64);
        }
    })
}

fn engines(report: &mut Report) -> Result<Vec<(&'static str, Judge)>, BenchError> {
    let other = |error: &dyn std::fmt::Display| BenchError::Other(error.to_string());
    let plain = matcher(&format!("filter f * {PATTERN} * => accept;"))?;
    let tagged = matcher(&format!("filter f * {PATTERN} rest:* => name value rest;"))?;
    let bytes = syntax::Config::new().unicode(false).utf8(false);
    let meta = Regex::builder().syntax(bytes).build(REGEX).map_err(|error| other(&error))?;
    let pike = PikeVM::builder().syntax(bytes).build(REGEX).map_err(|error| other(&error))?;
    let (mut room, mut plain_room) = (Room::default(), Room::default());
    let (mut meta_slots, mut pike_slots) = (meta.create_captures(), pike.create_captures());
    let mut cache = pike.create_cache();
    let starts = |slots: &Captures| {
        let (name, value) = slots.get_group(1).zip(slots.get_group(2))?;
        Some((name.start, value.start))
    };
    let own = move |packet: &[u8]| {
        tagged.first_match(&mut room, packet)?;
        let start = |slot| tagged.slot(&room, slot, packet.len()).map_or(0, |(start, _)| start);
        Some((start(0), start(1)))
    };
    let untagged =
        move |packet: &[u8]| plain.first_match(&mut plain_room, packet).map(|rule| (rule, 0));
    let mut engines: Vec<(&'static str, Judge)> = vec![
        ("fyke", each(own)),
        ("fyke-without-tags", each(untagged)),
        (
            "regex-meta-captures",
            each(move |packet| {
                meta.captures(packet, &mut meta_slots);
                starts(&meta_slots)
            }),
        ),
        (
            "regex-pikevm",
            each(move |packet| {
                pike.captures(&mut cache, packet, &mut pike_slots);
                starts(&pike_slots)
            }),
        ),
    ];
    for (name, tags) in [("re2c", true), ("re2c-without-tags", false)] {
        match HeaderLine::new(tags) {
            Ok(line) => engines.push((name, Box::new(move |all, found| line.judge(all, found)))),
            Err(why) => report.note(format!("{name}: {why}")),
        }
    }
    Ok(engines)
}

/// Engines of this case.
pub const ENGINES: [&str; 6] = [
    "fyke",
    "fyke-without-tags",
    "regex-meta-captures",
    "regex-pikevm",
    "re2c",
    "re2c-without-tags",
];

/// Runs the case.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<(), BenchError> {
    let mut engines = engines(report)?;
    engines.retain(|(name, _)| bench.options.wants_engine(name));
    let most = if bench.options.smoke { 50 } else { 8_000 };
    let packets = &bench.packets[..bench.packets.len().min(most)];
    let mut found = vec![0; packets.len()];
    let mut expected: Option<Vec<u64>> = None;
    for (name, judge) in &mut engines {
        judge(packets, &mut found);
        let expected = expected.get_or_insert_with(|| found.clone());
        let same = |(a, b): (&u64, &u64)| {
            if name.ends_with("without-tags") { (*a == 0) == (*b == 0) } else { a == b }
        };
        if let Some(frame) = expected.iter().zip(&found).position(|pair| !same(pair)) {
            return Err(BenchError::Mismatch {
                case: "tags".to_owned(),
                setting: bench.source.to_owned(),
                engine: (*name).to_owned(),
                reference: "the first engine".to_owned(),
                frame,
                frames: packets.len(),
                accepted: found[frame] != 0,
            });
        }
    }
    let accepted = expected.unwrap_or_default().iter().filter(|one| **one != 0).count() as u64;
    let count = engines.len();
    let turn = |engines: &mut Vec<(&str, Judge)>, number: usize| {
        let judge = &mut engines[number].1;
        let time = time_of(true, || judge(packets, &mut found));
        black_box(&found);
        Turn { time, units: packets.len() }
    };
    let samples = rounds(&mut engines, count, bench.rounds(), |_| {}, turn);
    let setting = format!("name and value of a header line, {}", bench.source);
    for ((name, _), samples) in engines.iter().zip(samples) {
        let ns = samples.median();
        let mut one = Measurement::per_packet(BENCH, "tags", name, &setting, ns);
        one.accepted = Some(accepted);
        report.push(one.runs(samples.len()));
    }
    Ok(())
}
