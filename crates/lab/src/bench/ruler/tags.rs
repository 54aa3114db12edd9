//! What tags cost: a header line whose name and value are wanted, with and without saying where they are.

use super::{BENCH, Bench, matcher};
use crate::bench::BenchError;
use crate::bench::measure::{Turn, rounds, time_of};
use crate::bench::report::{Measurement, Report};
use fyke_ruler::matcher::Room;
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use std::hint::black_box;

const PATTERN: &str = "\"\\r\\n\" name:[A-Za-z\\-]{1,40} \": \" value:[^\\r]{1,} \"\\r\\n\"";
const REGEX: &str = "\\r\\n(?<name>[A-Za-z\\-]{1,40}): (?<value>[^\\r]+)\\r\\n";

/// Where name and value begin, added up; none without a match. The untagged engine knows no place.
type Judge = Box<dyn FnMut(&[u8]) -> Option<u64>>;

fn engines() -> Result<Vec<(&'static str, Judge)>, BenchError> {
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
        Some((name.start + value.start) as u64)
    };
    let own = move |packet: &[u8]| {
        tagged.first_match(&mut room, packet)?;
        let start = |slot| tagged.slot(&room, slot, packet.len()).map_or(0, |(start, _)| start);
        Some((start(0) + start(1)) as u64)
    };
    let untagged =
        move |packet: &[u8]| plain.first_match(&mut plain_room, packet).map(|rule| rule as u64);
    Ok(vec![
        ("fyke", Box::new(own)),
        ("fyke-without-tags", Box::new(untagged)),
        (
            "regex-meta-captures",
            Box::new(move |packet| {
                meta.captures(packet, &mut meta_slots);
                starts(&meta_slots)
            }),
        ),
        (
            "regex-pikevm",
            Box::new(move |packet| {
                pike.captures(&mut cache, packet, &mut pike_slots);
                starts(&pike_slots)
            }),
        ),
    ])
}

/// Runs the case.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<(), BenchError> {
    let mut engines = engines()?;
    engines.retain(|(name, _)| bench.options.wants_engine(name));
    let most = if bench.options.smoke { 50 } else { 8_000 };
    let packets = &bench.packets[..bench.packets.len().min(most)];
    let mut expected: Option<Vec<Option<u64>>> = None;
    for (name, judge) in &mut engines {
        let found: Vec<Option<u64>> = packets.iter().map(|packet| judge(packet)).collect();
        let expected = expected.get_or_insert_with(|| found.clone());
        let same = |(a, b): (&Option<u64>, &Option<u64>)| {
            if *name == "fyke-without-tags" { a.is_some() == b.is_some() } else { a == b }
        };
        if let Some(frame) = expected.iter().zip(&found).position(|pair| !same(pair)) {
            return Err(BenchError::Mismatch {
                case: "tags".to_owned(),
                setting: bench.source.to_owned(),
                engine: (*name).to_owned(),
                reference: "the first engine".to_owned(),
                frame,
                frames: packets.len(),
                accepted: found[frame].is_some(),
            });
        }
    }
    let accepted = expected.unwrap_or_default().iter().flatten().count() as u64;
    let count = engines.len();
    let turn = |engines: &mut Vec<(&str, Judge)>, number: usize| {
        let judge = &mut engines[number].1;
        let time = time_of(true, || {
            packets.iter().for_each(|packet| {
                black_box(judge(packet));
            });
        });
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
