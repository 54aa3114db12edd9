//! Engines of the ruler bench: each finds the lowest pattern that is in a packet.
//!
//! Engines named `…-any` only find if any pattern is in it, which is less; some peers can do that faster.

use super::patterns::{Pattern, filter};
use crate::bench::BenchError;
use crate::peers::hyperscan::Hyperscan;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use fyke_ruler::matcher::Room;
use fyke_ruler::{Limits, Matcher, Program};
use regex_automata::dfa::dense;
use regex_automata::hybrid::dfa as lazy;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind, PatternSet};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Result for a packet without any pattern.
pub const NONE: u32 = u32::MAX;
/// Maximum size of an automaton; a larger one is not built.
const MAX_BYTES: usize = 256 << 20;
/// Maximum size of the automaton that is built in full; a much larger one takes about a minute.
const MAX_DFA_BYTES: usize = 8 << 20;
/// Maximum size of the state cache of an automaton built on demand.
const MAX_CACHE_BYTES: usize = 64 << 20;

/// Function that writes the lowest pattern of each packet, or [`NONE`].
type Judge = Box<dyn FnMut(&[&[u8]], &mut [u32])>;

/// An engine with its patterns.
pub struct Finder {
    /// Its name in reports.
    pub name: &'static str,
    /// Time of compilation.
    pub compiled: Duration,
    /// True if it finds which pattern matched.
    pub which: bool,
    bytes: Bytes,
    judge: Judge,
}

/// Function that returns the memory of the compiled engine, including states built on demand.
type Bytes = Box<dyn Fn() -> usize>;

impl std::fmt::Debug for Finder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finder").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Names of all engines, fyke's first.
pub const NAMES: [&str; 8] = [
    "fyke",
    "aho-corasick",
    "aho-corasick-any",
    "regex-meta",
    "regex-meta-any",
    "regex-hybrid",
    "regex-dfa",
    "hyperscan",
];

impl Finder {
    /// Creates an engine; none if it does not support these patterns, with the reason in `note`.
    ///
    /// # Errors
    /// If fyke's engine refuses them.
    pub fn new(
        name: &'static str,
        patterns: &[Pattern],
        note: &mut dyn FnMut(String),
    ) -> Result<Option<Finder>, BenchError> {
        let start = Instant::now();
        let made = match name {
            "fyke" => Ok(own(patterns)?),
            "hyperscan" => hyperscan(patterns),
            "regex-meta" | "regex-meta-any" => meta(patterns, name == "regex-meta"),
            "regex-hybrid" => hybrid(patterns),
            "regex-dfa" => dfa(patterns),
            _ => match patterns.iter().map(Pattern::literal).collect::<Option<Vec<_>>>() {
                Some(literals) => aho_corasick(&literals, name == "aho-corasick"),
                None => return Ok(None),
            },
        };
        let compiled = start.elapsed();
        match made {
            Ok((judge, bytes)) => {
                let which = !name.ends_with("-any");
                Ok(Some(Finder { name, compiled, bytes, which, judge }))
            }
            Err(why) => {
                note(format!("{name}, {} patterns: {why}", patterns.len()));
                Ok(None)
            }
        }
    }

    /// Memory of the compiled engine, including states built on demand.
    pub fn bytes(&self) -> usize {
        (self.bytes)()
    }

    /// Finds the patterns of packets.
    pub fn judge(&mut self, packets: &[&[u8]], found: &mut [u32]) {
        (self.judge)(packets, found);
    }
}

type Made = (Judge, Bytes);

/// Makes an engine of a function that takes one packet at a time.
fn each(mut first: impl FnMut(&[u8]) -> u32 + 'static) -> Judge {
    Box::new(move |packets, found| {
        for (packet, found) in packets.iter().zip(found) {
            *found = first(packet);
        }
    })
}

fn own(patterns: &[Pattern]) -> Result<Made, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Other(format!("fyke: {error}"));
    let program = Program::from_text(&filter(patterns)).map_err(|error| failed(&error))?;
    let matcher = Matcher::new(&program.filters[0].rules, Limits::default())
        .map_err(|error| failed(&format!("rule {} is too large", error.rule)))?;
    let matcher = Rc::new(matcher);
    let shown = Rc::clone(&matcher);
    let bytes = Box::new(move || fyke_ruler::report(&program, 0, &shown).bytes);
    let mut room = Room::default();
    let mut rules = Vec::new();
    let judge: Judge = Box::new(move |packets: &[&[u8]], found: &mut [u32]| {
        rules.resize(packets.len(), None);
        matcher.first_matches(&mut room, packets, &mut rules);
        for (rule, found) in rules.iter().zip(found) {
            *found = rule.map_or(NONE, |rule| rule as u32);
        }
    });
    Ok((judge, bytes))
}

fn hyperscan(patterns: &[Pattern]) -> Result<Made, String> {
    let library = Hyperscan::load().map_err(|error| error.to_string())?;
    let texts: Vec<String> = patterns.iter().map(Pattern::regex).collect();
    let mut database = library.compile(&texts).map_err(|error| error.to_string())?;
    let bytes = database.bytes();
    Ok((each(move |packet| database.first(packet).unwrap_or(NONE)), Box::new(move || bytes)))
}

fn aho_corasick(literals: &[&[u8]], which: bool) -> Result<Made, String> {
    let mut builder = AhoCorasick::builder();
    builder.kind(Some(AhoCorasickKind::DFA));
    if !which {
        // The library chooses the kind, with vector search if possible.
        builder.kind(None).match_kind(aho_corasick::MatchKind::LeftmostFirst);
    }
    let automaton = builder.build(literals).map_err(|error| error.to_string())?;
    let bytes = automaton.memory_usage();
    let judge = match which {
        true => each(move |packet| {
            let all = automaton.find_overlapping_iter(packet);
            all.map(|found| found.pattern().as_u32()).min().unwrap_or(NONE)
        }),
        false => each(move |packet| if automaton.is_match(packet) { 0 } else { NONE }),
    };
    Ok((judge, Box::new(move || bytes)))
}

fn as_bytes() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false).dot_matches_new_line(true)
}

fn meta(patterns: &[Pattern], which: bool) -> Result<Made, String> {
    let texts: Vec<String> = patterns.iter().map(Pattern::regex).collect();
    let kind = if which { MatchKind::All } else { MatchKind::LeftmostFirst };
    let config = Regex::config()
        .match_kind(kind)
        .utf8_empty(false)
        .nfa_size_limit(Some(MAX_BYTES))
        .hybrid_cache_capacity(MAX_CACHE_BYTES);
    let mut builder = Regex::builder();
    let built = builder.configure(config).syntax(as_bytes()).build_many(&texts);
    let regex = built.map_err(|error| error.to_string())?;
    let bytes = regex.memory_usage();
    if !which {
        return Ok((
            each(move |packet| if regex.is_match(packet) { 0 } else { NONE }),
            Box::new(move || bytes),
        ));
    }
    let mut set = PatternSet::new(regex.pattern_len());
    let first = move |packet: &[u8]| {
        set.clear();
        regex.which_overlapping_matches(&Input::new(packet), &mut set);
        set.iter().next().map_or(NONE, |pattern| pattern.as_u32())
    };
    Ok((each(first), Box::new(move || bytes)))
}

/// Builds the multi-pattern automaton on demand. A full cache is emptied, and the search never gives up (unlike the
/// meta engine's, which then simulates).
fn hybrid(patterns: &[Pattern]) -> Result<Made, String> {
    let texts: Vec<String> = patterns.iter().map(Pattern::regex).collect();
    let config = lazy::Config::new()
        .match_kind(MatchKind::All)
        .cache_capacity(MAX_CACHE_BYTES)
        .skip_cache_capacity_check(true);
    let built = lazy::Builder::new().configure(config).syntax(as_bytes()).build_many(&texts);
    let dfa = built.map_err(|error| error.to_string())?;
    let cache = Rc::new(RefCell::new(dfa.create_cache()));
    let shown = Rc::clone(&cache);
    let mut set = PatternSet::new(dfa.pattern_len());
    let fixed = dfa.memory_usage();
    let first = move |packet: &[u8]| {
        set.clear();
        // It fails only on quit bytes and when it gives up; neither is configured.
        let input = Input::new(packet);
        let _ = dfa.try_which_overlapping_matches(&mut cache.borrow_mut(), &input, &mut set);
        set.iter().next().map_or(NONE, |pattern| pattern.as_u32())
    };
    Ok((each(first), Box::new(move || fixed + shown.borrow().memory_usage())))
}

/// Builds the multi-pattern automaton in full.
fn dfa(patterns: &[Pattern]) -> Result<Made, String> {
    use regex_automata::dfa::Automaton;
    let texts: Vec<String> = patterns.iter().map(Pattern::regex).collect();
    let config = dense::Config::new()
        .match_kind(MatchKind::All)
        .dfa_size_limit(Some(MAX_DFA_BYTES))
        .determinize_size_limit(Some(MAX_DFA_BYTES));
    let built = dense::Builder::new().configure(config).syntax(as_bytes()).build_many(&texts);
    let dfa = built.map_err(|error| error.to_string())?;
    let bytes = dfa.memory_usage();
    let mut set = PatternSet::new(dfa.pattern_len());
    let first = move |packet: &[u8]| {
        set.clear();
        let input = Input::new(packet).anchored(Anchored::No);
        // It fails only on quit bytes, and none are configured.
        let _ = dfa.try_which_overlapping_matches(&input, &mut set);
        set.iter().next().map_or(NONE, |pattern| pattern.as_u32())
    };
    Ok((each(first), Box::new(move || bytes)))
}
