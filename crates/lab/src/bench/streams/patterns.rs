//! Patterns and substitutions that are suspended at the end of each segment, and resumed at the next.
//!
//! `resumed`: pieces of 1 byte, so that the time is that of finding, resuming and storing the automaton's state, and of
//! one step; and of 512 bytes. The peer is the automaton of `regex-automata`, of which a stream keeps one number; it
//! finds where the pattern ends, as this rule does.
//!
//! `rewritten`: each segment boundary divides a word that is replaced by as many bytes. The peers cannot suspend a
//! search that replaces: they get each stream whole, which costs a program the memory of the stream.

use super::BENCH;
use crate::bench::measure::{Turn, rounds, time_of};
use crate::bench::report::{Measurement, Report};
use crate::bench::traffic::Random;
use crate::bench::{BenchError, Options};
use fyke_ruler::anonymise::Anonymiser;
use fyke_ruler::matcher::Room;
use fyke_ruler::{Limits, Matcher, Program, Progress, Stream, Substitution};
use regex_automata::dfa::{Automaton, dense};
use regex_automata::meta::Regex;
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Engines of these cases.
const ENGINES: [&str; 2] = ["fyke", "regex-automata"];
const SEARCH: &str = "filter f\n* \"attack\" * => accept 1;\n";
const REPLACE: &str = "filter hide\n\
    before:* \"PASS \" word:[^\\r\\n]{1,64} rest:** => before \"PASS \" fill(word, \"x\") hide(rest);\n\
    * => accept;\n";
/// Bytes of a segment.
const SEGMENT: usize = 512;

fn other(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Other(error.to_string())
}

fn chosen(options: &Options) -> Vec<usize> {
    (0..ENGINES.len()).filter(|number| options.wants_engine(ENGINES[*number])).collect()
}

/// Pieces of streams: the number of the stream, and the bytes.
struct Pieces {
    streams: usize,
    text: Vec<u8>,
    /// Stream, and place in the text.
    all: Vec<(u32, u32)>,
    len: usize,
}

impl Pieces {
    /// Pieces of random streams, each from a text with one pattern in some 4,000 bytes.
    fn new(streams: usize, len: usize, count: usize, random: &mut Random) -> Pieces {
        let mut text: Vec<u8> = (0..1 << 20).map(|_| b"abcdktx "[random.below(8)]).collect();
        for _ in 0..text.len() / 4_000 {
            let at = random.below(text.len() - 6);
            text[at..at + 6].copy_from_slice(b"attack");
        }
        let mut next: Vec<u32> =
            (0..streams).map(|_| random.below(text.len() - 8 * SEGMENT) as u32).collect();
        let all = (0..count).map(|_| {
            let stream = random.below(streams);
            let at = next[stream] as usize;
            next[stream] = if at + 2 * len > text.len() { 0 } else { (at + len) as u32 };
            (stream as u32, at as u32)
        });
        let all = all.collect();
        Pieces { streams, text, all, len }
    }

    fn pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let piece = |at: u32| &self.text[at as usize..at as usize + self.len];
        self.all.iter().map(move |(stream, at)| (*stream as usize, piece(*at)))
    }
}

/// An engine with the states of all streams.
enum Search {
    Fyke(Box<Matcher>, Box<Room>, Vec<Stream>),
    Dfa(Box<dense::DFA<Vec<u32>>>, Vec<StateID>),
}

impl Search {
    fn new(engine: usize, streams: usize) -> Result<Search, BenchError> {
        if engine == 0 {
            let program = Program::from_text(SEARCH).map_err(|error| other(&error))?;
            let matcher = Matcher::new(&program.filters[0].rules, Limits::default());
            let matcher = matcher.map_err(|error| other(&format!("{} states", error.states)))?;
            let all = (0..streams).map(|_| matcher.stream()).collect();
            return Ok(Search::Fyke(Box::new(matcher), Box::default(), all));
        }
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        let dfa = dense::Builder::new().syntax(syntax).build("attack");
        let dfa = dfa.map_err(|error| other(&error))?;
        let start = dfa.start_state_forward(&Input::new("").anchored(Anchored::No));
        let start = start.map_err(|error| other(&error))?;
        Ok(Search::Dfa(Box::new(dfa), vec![start; streams]))
    }

    /// Reads all pieces.
    fn run(&mut self, pieces: &Pieces) {
        match self {
            Search::Fyke(matcher, room, all) => {
                for (stream, bytes) in pieces.pieces() {
                    matcher.feed(&mut all[stream], room, bytes);
                }
            }
            Search::Dfa(dfa, all) => {
                for (stream, bytes) in pieces.pieces() {
                    let mut state = all[stream];
                    for byte in bytes {
                        // What was found is not searched for again.
                        if dfa.is_match_state(state) {
                            break;
                        }
                        state = dfa.next_state(state, *byte);
                    }
                    all[stream] = state;
                }
            }
        }
    }

    /// Number of streams with the pattern.
    fn found(&mut self) -> usize {
        match self {
            Search::Fyke(matcher, room, all) => {
                let progress = all.iter_mut().map(|stream| matcher.feed(stream, room, &[]));
                progress.filter(|progress| *progress == Progress::Settled).count()
            }
            Search::Dfa(dfa, all) => {
                let is_match = |state: &&StateID| {
                    dfa.is_match_state(**state) || dfa.is_match_state(dfa.next_eoi_state(**state))
                };
                all.iter().filter(is_match).count()
            }
        }
    }
}

/// Measures how long it takes to resume a pattern.
pub fn resumed(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let engines = chosen(options);
    let sizes: &[usize] = if options.smoke { &[100] } else { &[1_000, 100_000] };
    for streams in sizes {
        for len in [1, SEGMENT] {
            let count = if options.smoke { 20_000 } else { 1 << 20 };
            let pieces = Pieces::new(*streams, len, count, &mut Random::new(options.seed));
            let mut found = Vec::new();
            for engine in &engines {
                let mut search = Search::new(*engine, pieces.streams)?;
                search.run(&pieces);
                found.push(search.found());
            }
            if let Some(differs) = found.iter().find(|count| **count != found[0]) {
                let message = format!("resumed: {} and {differs} streams match", found[0]);
                return Err(BenchError::Other(message));
            }
            let mut turn = |place: usize| -> Result<Turn, BenchError> {
                let mut search = Search::new(engines[place], pieces.streams)?;
                let time = time_of(!options.smoke, || search.run(&pieces));
                Ok(Turn { time, units: pieces.all.len() })
            };
            let unit = if len == 1 { "byte" } else { "bytes" };
            let setting = format!("{streams} streams, pieces of {len} {unit}");
            measure("resumed", &setting, &engines, options, report, &mut turn)?;
        }
    }
    Ok(())
}

/// Has the engines take turns, and adds their figures.
fn measure(
    case: &str,
    setting: &str,
    engines: &[usize],
    options: &Options,
    report: &mut Report,
    turn: &mut dyn FnMut(usize) -> Result<Turn, BenchError>,
) -> Result<(), BenchError> {
    let count = options.rounds.unwrap_or(if options.smoke { 1 } else { 5 });
    let mut failed = None;
    let samples = rounds(
        &mut failed,
        engines.len(),
        count,
        |_| {},
        |failed, place| {
            let nothing = Turn { time: std::time::Duration::ZERO, units: 1 };
            turn(place).unwrap_or_else(|error| {
                *failed = Some(error);
                nothing
            })
        },
    );
    if let Some(error) = failed {
        return Err(error);
    }
    for (engine, samples) in engines.iter().zip(samples) {
        let (name, ns) = (ENGINES[*engine], samples.median());
        let one = Measurement::per_packet(BENCH, case, name, setting, ns);
        report.push(one.runs(samples.len()));
    }
    Ok(())
}

/// A stream in which words to replace lie across the ends of the segments.
fn words(segments: usize, random: &mut Random) -> Vec<u8> {
    let mut text: Vec<u8> =
        (0..segments * SEGMENT).map(|_| b"abcdPASe\r"[random.below(9)]).collect();
    for end in (SEGMENT..text.len()).step_by(SEGMENT) {
        let at = end - 1 - random.below(12);
        text[at..at + 16].copy_from_slice(b"PASS secretword\r");
    }
    text
}

fn by_fyke(substitution: &mut Substitution, streams: &mut [Vec<u8>]) {
    for stream in streams {
        let mut open = substitution.begin(0);
        let mut changes: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut note = |at: u64, new: &[u8]| changes.push((at as usize, new.to_vec()));
        for segment in stream.chunks(SEGMENT) {
            substitution.feed(&mut open, segment, &mut note);
        }
        substitution.end(&mut open, &mut note);
        for (at, new) in changes {
            stream[at..at + new.len()].copy_from_slice(&new);
        }
    }
}

fn by_regex(regex: &Regex, streams: &mut [Vec<u8>]) {
    for stream in streams {
        let found: Vec<_> = regex.find_iter(&*stream).map(|one| one.range()).collect();
        for range in found {
            stream[range.start + 5..range.end].fill(b'x');
        }
    }
}

/// Measures substitutions across segments.
pub fn rewritten(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let engines = chosen(options);
    let mut random = Random::new(options.seed);
    let (count, segments) = if options.smoke { (4, 8) } else { (64, 256) };
    let streams: Vec<Vec<u8>> = (0..count).map(|_| words(segments, &mut random)).collect();
    let program = Program::from_text(REPLACE).map_err(|error| other(&error))?;
    let built = Substitution::new(&program, 0, Anonymiser::new(&[7; 32], &[0; 16]));
    let built = built.map_err(|error| other(&error))?;
    let mut substitution = built.map_err(|error| other(&error))?;
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    let regex = Regex::builder().syntax(syntax).build("PASS [^\\r\\n]{1,64}");
    let regex = regex.map_err(|error| other(&error))?;
    let mut run = |engine: usize, streams: &mut [Vec<u8>]| match engine {
        0 => by_fyke(&mut substitution, streams),
        _ => by_regex(&regex, streams),
    };
    let mut results = Vec::new();
    for engine in &engines {
        let mut copy = streams.clone();
        run(*engine, &mut copy);
        results.push(copy);
    }
    let is_changed = results.first().is_none_or(|first| *first != streams);
    if !is_changed || results.iter().any(|result| *result != results[0]) {
        return Err(BenchError::Other("rewritten: the engines write different bytes".to_owned()));
    }
    let mut turn = |place: usize| {
        let mut copy = streams.clone();
        let time = time_of(!options.smoke, || run(engines[place], &mut copy));
        Ok(Turn { time, units: count * segments })
    };
    let setting = "a word at the end of each segment of 512 bytes";
    measure("rewritten", setting, &engines, options, report, &mut turn)
}
