//! `fyke bench ruler`: patterns and rewriting compared with peers, and the measurements of the thesis' chapter 7.
//!
//! | case | content | peers |
//! |---|---|---|
//! | `literals`, `regular` | 10 … 1,000 rules, the first that matches | Hyperscan, aho-corasick, regex-automata |
//! | `filters` | 2, 4 and 8 filters in one pass | the same filters one after the other |
//! | `tags` | one pattern with two names, with and without them | re2c, regex-automata's engines with captures |
//! | `r34` | every byte inspected, 64 … 1470 bytes (table 7.1) | the thesis' figure |
//! | `r35` | an automaton in memory only, largest packets | the thesis' figure |
//! | `r36` | addresses of all IPv4 packets zeroed or replaced | the thesis' figure |
//!
//! Answers are compared on all packets before anything is measured. Rules come from `--real-filters` if that is a
//! file of Snort rules, packets from `--trace`.

pub mod engines;
mod filters;
pub mod patterns;
mod sets;
mod tags;
mod thesis;

pub use engines::NAMES as ENGINES;
pub use tags::ENGINES as TAG_ENGINES;

use super::frames::Arena;
use super::measure::Samples;
use super::report::{Measurement, Report};
use super::traffic::{Random, Traffic};
use super::{BenchError, Options, Progress};
use fyke_ruler::{Limits, Matcher, Program};
use patterns::Contents;

const BENCH: &str = "ruler";
const CASES: [&str; 7] = ["literals", "regular", "filters", "tags", "r34", "r35", "r36"];

/// Runs the bench.
///
/// # Errors
/// [`BenchError::Mismatch`] if two engines give different answers.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let mut report = Report::new(options);
    let (arena, source) = packets(options)?;
    let packets: Vec<&[u8]> = (0..arena.len()).map(|number| arena.frame(number).data).collect();
    let bench = Bench { options, source, packets };
    let contents = match &options.real_filters {
        Some(path) => Contents::of_file(path)?,
        None => Contents::made(&mut Random::new(options.seed)),
    };
    for (number, case) in CASES.iter().enumerate() {
        if !options.wants_case(case) {
            continue;
        }
        progress(case, number, CASES.len());
        match *case {
            "literals" => bench.sets(case, &|count| contents.literals(count), &mut report)?,
            "regular" => bench.sets(case, &|count| contents.regular(count), &mut report)?,
            "filters" => filters::run(&bench, &contents, &mut report)?,
            "tags" => tags::run(&bench, &mut report)?,
            "r34" => thesis::every_byte(&bench, &mut report)?,
            "r35" => thesis::in_memory(&bench, &mut report)?,
            _ => thesis::addresses(&bench, &mut report)?,
        }
    }
    progress("done", CASES.len(), CASES.len());
    if report.measurements.is_empty() {
        return Err(BenchError::NothingChosen { there: CASES.join(", ") });
    }
    Ok(report)
}

/// Returns the packets of the trace, or generated ones that contain text.
pub(super) fn packets(options: &Options) -> Result<(Arena, &'static str), BenchError> {
    let bytes = if options.smoke { 200_000 } else { 16 << 20 };
    if let Some(path) = &options.trace {
        return Ok((Arena::from_file(path, bytes)?, "real"));
    }
    let mut traffic = Traffic::new(options.seed);
    let made = Arena::synthetic(&mut traffic, 1, bytes);
    let mut random = Random::new(options.seed ^ 7);
    let contents = Contents::made(&mut Random::new(options.seed));
    let needles = contents.literals(1_000);
    let mut arena = Arena::default();
    let mut text = Vec::new();
    for number in 0..made.len() {
        let frame = made.frame(number);
        text.clear();
        text.extend_from_slice(frame.data);
        // Payload: lines like those of HTTP, and in one packet of eight a needle of the rules.
        let line =
            b"\r\nAccept-Language: en\r\nUser-Agent: example/1.0 (X11) /cgi-bin/index.php?admin=no";
        for (at, byte) in text.iter_mut().enumerate().skip(66) {
            *byte = if number % 3 == 0 { random.number() as u8 } else { line[at % line.len()] };
        }
        // Half of the needles are among the first ten.
        let among = if number % 16 == 0 { 10 } else { needles.len() };
        if let Some(needle) = needles[random.below(among)].literal()
            && number % 8 == 0
            && text.len() > 66 + needle.len()
        {
            let at = 66 + random.below(text.len() - 66 - needle.len());
            text[at..at + needle.len()].copy_from_slice(needle);
        }
        arena.push(&text, frame.wire_len);
    }
    Ok((arena, "synthetic"))
}

/// Data that all cases need.
struct Bench<'a> {
    options: &'a Options,
    source: &'static str,
    packets: Vec<&'a [u8]>,
}

impl Bench<'_> {
    fn rounds(&self) -> usize {
        if self.options.smoke { 1 } else { 9 }
    }

    fn per_packet(&self, case: &str, name: &str, setting: &str, samples: &Samples) -> Measurement {
        Measurement::per_packet(BENCH, case, name, setting, samples.median()).runs(samples.len())
    }
}

/// Builds the automata of a text's only filter.
fn matcher(text: &str) -> Result<Matcher, BenchError> {
    let program = Program::from_text(text).map_err(|error| BenchError::Other(error.to_string()))?;
    Matcher::new(&program.filters[0].rules, Limits::default())
        .map_err(|error| BenchError::Other(format!("{} states", error.states)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_run_and_all_engines_agree() {
        let options = Options { smoke: true, seed: 1, ..Options::default() };
        let report = run(&options, &mut |_, _, _| {}).unwrap();
        for case in CASES {
            let own = report.measurements.iter().filter(|one| one.case == case);
            let figures: Vec<f64> = own.map(|one| one.figure()).collect();
            assert!(figures.len() > 1 && figures.iter().all(|&figure| figure > 0.0), "{case}");
        }
        let found = report.measurements.iter().filter(|one| one.case == "literals");
        assert!(found.filter_map(|one| one.accepted).all(|accepted| accepted > 0));
        let wrong = Options { cases: vec!["r99".to_owned()], ..options };
        assert!(matches!(run(&wrong, &mut |_, _, _| {}), Err(BenchError::NothingChosen { .. })));
    }
}
