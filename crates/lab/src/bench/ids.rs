//! `fyke bench ids`: rules of Snort and Suricata on traffic.
//!
//! | case | measured | peers |
//! |---|---|---|
//! | `search` | which rules have all their contents and expressions in a payload | Hyperscan with PCRE2 after it |
//! | `whole` | `fyke ids` on frames: flows, streams, messages, rules, alerts | |
//! | `edit` | one rule added or removed while there are many | all literals compiled again |
//! | `prefilter` | the share of the frames that the pre-filter of the rules accepts | |
//!
//! Rules are drawn by the seed from those of `--real-filters`, a file of rules; without it they are generated. Packets
//! come from `--trace`. In `search` a rule is all its contents and regular expressions, wherever they are in the
//! payload and in whichever order: this is the part of the work for which both have engines. Verdicts are compared
//! on all payloads before anything is measured.

mod search;

use super::frames::Arena;
use super::measure::{Samples, Turn, rounds, time_of};
use super::report::{Measurement, Report};
use super::ruler::packets;
use super::ruler::patterns::Contents;
use super::traffic::Random;
use super::{BenchError, Options, Progress};
use fyke_filter::compile;
use fyke_ids::engine::Armed;
use fyke_ids::{Engine, Index, Limits, Rule, Translation, Variables, prefilter};
use search::{Conditions, Search};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const BENCH: &str = "ids";
/// Engines of this bench.
pub const ENGINES: [&str; 3] = ["fyke", "hyperscan-pcre2", "fyke-again"];
const CASES: [&str; 4] = ["search", "whole", "edit", "prefilter"];
/// Rules that are edited, one after the other.
const EDITS: usize = 500;

/// Runs the bench.
///
/// # Errors
/// [`BenchError::Mismatch`] if two engines find different rules.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let mut report = Report::new(options);
    let (arena, source) = packets(options)?;
    let mut random = Random::new(options.seed);
    let mut texts = rules(options, &mut random)?;
    if options.real_filters.is_some() {
        random.shuffle(&mut texts);
    }
    let counts: &[usize] = if options.smoke { &[20, 60] } else { &[100, 500, 1_500] };
    let bench = Bench { options, source, arena, texts };
    for (number, case) in CASES.into_iter().enumerate() {
        if !options.wants_case(case) {
            continue;
        }
        for count in counts {
            progress(case, number, CASES.len());
            match case {
                "search" => bench.search(*count, &mut report)?,
                "whole" => bench.whole(*count, &mut report),
                "edit" => bench.edit(*count, &mut report),
                _ => bench.prefilter(*count, &mut report)?,
            }
        }
    }
    progress("done", CASES.len(), CASES.len());
    if report.measurements.is_empty() {
        return Err(BenchError::NothingChosen { there: CASES.join(", ") });
    }
    Ok(report)
}

/// The rules of the file that are translated, or generated ones, as texts.
fn rules(options: &Options, random: &mut Random) -> Result<Vec<String>, BenchError> {
    let Some(path) = &options.real_filters else {
        let literals = Contents::made(random).literals(1_500);
        let literals = literals.iter().filter_map(|pattern| pattern.literal());
        return Ok((1..)
            .zip(literals)
            .map(|(sid, bytes)| {
                let ports = ["any", "80", "1024:"][sid % 3];
                format!(
                    "alert tcp any any -> any {ports} (content:\"|{}|\"; sid:{sid};)",
                    hex(bytes)
                )
            })
            .collect());
    };
    let failed = |message: String| BenchError::File { path: path.clone(), message };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let found = Translation::new(&text, None, &Variables::default());
    if found.rules.is_empty() {
        return Err(failed("there is no rule in it that is judged".to_owned()));
    }
    Ok(found.rules.iter().map(|rule| rule.text.to_string()).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

fn translated(texts: &[String]) -> Vec<Rule> {
    Translation::new(texts.join("\n").as_bytes(), None, &Variables::default()).rules
}

/// Compares the verdicts of the engines; returns the number of matches.
fn same(
    conditions: &[Conditions],
    setting: &str,
    payloads: &[&[u8]],
    engines: &mut [(usize, Search)],
) -> Result<u64, BenchError> {
    let mut expected: Option<Vec<(u32, u32)>> = None;
    for (number, engine) in engines {
        let mut found = Vec::new();
        for (at, payload) in (0..).zip(payloads) {
            engine.judge(payload, &mut |rule| found.push((at, rule)));
        }
        found.sort_unstable();
        let before = expected.get_or_insert_with(|| found.clone());
        if *before != found {
            let differs = before.iter().zip(&found).position(|(one, other)| one != other);
            let at = differs.unwrap_or(before.len().min(found.len()));
            let place = [before.get(at), found.get(at)].into_iter().flatten().min();
            let (frame, rule) = place.copied().unwrap_or_default();
            return Err(BenchError::Mismatch {
                case: format!("search: {}", conditions[rule as usize].text),
                setting: setting.to_owned(),
                engine: ENGINES[*number].to_owned(),
                reference: "fyke".to_owned(),
                frame: frame as usize,
                frames: payloads.len(),
                accepted: found.contains(&(frame, rule)),
            });
        }
    }
    Ok(expected.map_or(0, |found| found.len() as u64))
}

/// Data that all cases need.
struct Bench<'a> {
    options: &'a Options,
    source: &'static str,
    arena: Arena,
    /// Rules in random order.
    texts: Vec<String>,
}

impl Bench<'_> {
    fn rounds(&self) -> usize {
        if self.options.smoke { 1 } else { 5 }
    }

    /// The first rules; all if there are fewer.
    fn texts(&self, count: usize) -> &[String] {
        &self.texts[..count.min(self.texts.len())]
    }

    fn wants(&self, number: usize) -> bool {
        self.options.wants_engine(ENGINES[number])
    }

    fn search(&self, count: usize, report: &mut Report) -> Result<(), BenchError> {
        let conditions: Vec<Conditions> =
            self.texts(count).iter().filter_map(|text| Conditions::of(text)).collect();
        let setting = format!("{} rules, {}", conditions.len(), self.source);
        let payloads: Vec<&[u8]> = (0..self.arena.len())
            .map(|number| search::payload(&self.arena.frame(number)))
            .filter(|payload| !payload.is_empty())
            .collect();
        let bytes: usize = payloads.iter().map(|payload| payload.len()).sum();
        let mut engines: Vec<(usize, Search)> = Vec::new();
        let start = Instant::now();
        if self.wants(0) {
            engines.push((0, Search::fyke(&conditions)));
        }
        let own = start.elapsed();
        let start = Instant::now();
        if self.wants(1) {
            match Search::hyperscan(&conditions) {
                Ok(engine) => engines.push((1, engine)),
                Err(reason) => report.note(format!("search: {reason}")),
            }
        }
        let compiled = [own, start.elapsed()];
        let matches = same(&conditions, &setting, &payloads, &mut engines)?;
        let count = engines.len();
        let samples = rounds(
            &mut engines,
            count,
            self.rounds(),
            |_| {},
            |engines, number| {
                let mut matches = 0u32;
                let engine = &mut engines[number].1;
                let work = || {
                    payloads.iter().for_each(|payload| engine.judge(payload, &mut |_| matches += 1))
                };
                let time = time_of(true, work);
                black_box(matches);
                Turn { time, units: payloads.len() }
            },
        );
        for ((number, _), samples) in engines.iter().zip(&samples) {
            let name = ENGINES[*number];
            self.speed("search", name, &setting, samples, (bytes, payloads.len()), matches, report);
            let ms = compiled[*number].as_secs_f64() * 1e3;
            let setting = format!("{setting}, compile time");
            report.push(Measurement::value(BENCH, "search", name, &setting, ms, "ms"));
        }
        Ok(())
    }

    /// Reports a time per packet, and the bits per second that it gives.
    #[allow(clippy::too_many_arguments, reason = "one line of a report")]
    fn speed(
        &self,
        case: &str,
        engine: &str,
        setting: &str,
        samples: &Samples,
        (bytes, packets): (usize, usize),
        accepted: u64,
        report: &mut Report,
    ) {
        let ns = samples.median();
        let mut one = Measurement::per_packet(BENCH, case, engine, setting, ns).runs(samples.len());
        one.accepted = Some(accepted);
        report.push(one);
        let rate = bytes as f64 * 8.0 / (ns * packets as f64).max(1.0);
        report.push(
            Measurement::value(BENCH, case, engine, setting, rate, "Gbit/s").runs(samples.len()),
        );
    }

    fn whole(&self, count: usize, report: &mut Report) {
        if !self.wants(0) {
            return;
        }
        let rules = translated(self.texts(count));
        let setting = format!("{} rules, {}", rules.len(), self.source);
        let bytes: usize = (0..self.arena.len()).map(|at| self.arena.frame(at).data.len()).sum();
        let mut alerts = 0;
        let mut engine = None;
        let prepare = |engine: &mut Option<Engine>| {
            *engine = Some(Engine::new(Index::new(rules.clone()), Limits::default()));
        };
        let samples = rounds(&mut engine, 1, self.rounds(), prepare, |engine, _| {
            alerts = 0;
            let Some(engine) = engine else { return Turn { time: Default::default(), units: 1 } };
            let time = time_of(true, || {
                for number in 0..self.arena.len() {
                    let mut frame = self.arena.frame(number);
                    frame.timestamp_ns = number as u64 * 1_000;
                    engine.frame(&frame, &mut |_| alerts += 1);
                }
            });
            Turn { time, units: self.arena.len() }
        });
        for samples in &samples {
            let size = (bytes, self.arena.len());
            self.speed("whole", ENGINES[0], &setting, samples, size, alerts, report);
        }
    }

    fn edit(&self, count: usize, report: &mut Report) {
        let rules = translated(self.texts(count));
        let setting = format!("{} rules", rules.len());
        let edits = if self.options.smoke { 80 } else { EDITS };
        let mut value = |engine: usize, what: &str, value: f64| {
            if self.wants(engine) {
                let setting = format!("{setting}, {what}");
                let one = Measurement::value(BENCH, "edit", ENGINES[engine], &setting, value, "us");
                report.push(one.runs(edits));
            }
        };
        let mut index = Index::new(rules.clone());
        let (mut added, mut removed) = (Samples::default(), Samples::default());
        for number in 0..edits {
            // Rules from all over the file, with identifiers of their own; every second one is removed.
            let mut rule = rules[number * 7 % rules.len()].clone();
            (rule.gid, rule.sid) = (9, number as u32);
            let start = Instant::now();
            index.add(Arc::new(Armed::new(rule)));
            added.push(start.elapsed().as_secs_f64() * 1e6);
            if number % 2 == 1 {
                let start = Instant::now();
                index.remove(9, number as u32);
                removed.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        black_box(index.len());
        for (what, samples) in [("added", &added), ("removed", &removed)] {
            for (name, part) in [("p50", 0.5), ("p99", 0.99), ("slowest", 1.0)] {
                value(0, &format!("{what}, {name}"), samples.quantile(part));
            }
        }
        let mut again = Samples::default();
        for _ in 0..self.rounds() {
            let rules = rules.clone();
            let start = Instant::now();
            black_box(Index::new(rules).len());
            again.push(start.elapsed().as_secs_f64() * 1e6);
        }
        value(2, "all compiled again", again.median());
        let conditions: Vec<Conditions> =
            self.texts(count).iter().filter_map(|text| Conditions::of(text)).collect();
        let mut hyperscan = Samples::default();
        for _ in 0..self.rounds() {
            let start = Instant::now();
            if Search::literals(&conditions).is_ok() {
                hyperscan.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        if !hyperscan.is_empty() {
            value(1, "all compiled again", hyperscan.median());
        }
    }

    fn prefilter(&self, count: usize, report: &mut Report) -> Result<(), BenchError> {
        if !self.wants(0) {
            return Ok(());
        }
        let text = self.texts(count).join("\n");
        let failed = |message: String| BenchError::Other(format!("prefilter: {message}"));
        let found = prefilter(text.as_bytes(), &Variables::default())
            .map_err(|error| failed(error.to_string()))?;
        let predicate = compile(&found.expression, &fyke_filter::Options::default())
            .map_err(|error| failed(error.to_string()))?;
        let kept =
            (0..self.arena.len()).filter(|at| predicate.accepts(&self.arena.frame(*at))).count();
        let setting = format!("{} rules, {} headers, {}", found.rules, found.headers, self.source);
        let share = kept as f64 * 100.0 / self.arena.len() as f64;
        let mut one = Measurement::value(BENCH, "prefilter", ENGINES[0], &setting, share, "% pass");
        one.accepted = Some(kept as u64);
        report.push(one);
        Ok(())
    }
}
