//! Class `strsearch`: passes frames that contain one of several strings; one search finds all of them.
//!
//! The strings become one automaton (Aho and Corasick 1975), a table of 256 successors per state, so a byte costs one
//! load whatever the number of strings. A frame's class value is the number of the first string that ends in it, from
//! 1 on, in the order in which they are written. With `stream`, strings are found across the segments of a connection
//! ([`tcp`](super::tcp)): its frames pass from the match on, or, where frames are pieces of streams, the piece in which
//! the string ends passes. Memory: 512 bytes per state, at
//! most one state per byte of the strings. Source: FFPF, section 3.4 (pattern matching); MAPI's STR_SEARCH for
//! `offset` and `depth`.

use crate::judged::{Answer, Judge, Judged};
use crate::node::{
    Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
use crate::waiting::{self, Bounds, Waiting};
use fyke_flow::Ageing;
use fyke_frame::Mask;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;

/// Most streams with a kept state; beyond it, the stream that has been silent for longest is dropped.
const MAX_STREAMS: usize = 1 << 20;
/// Most bytes of all strings together.
const MAX_BYTES: usize = 60_000;

struct Automaton {
    /// Successor of a state, by byte.
    next: Vec<[u16; 256]>,
    /// Number of the first string that ends in a state, from 1 on; 0 = none.
    ends: Vec<u16>,
}

impl Automaton {
    fn new(strings: &[Vec<u8>]) -> Automaton {
        let mut automaton = Automaton { next: vec![[0; 256]], ends: vec![0] };
        for (number, string) in (1..).zip(strings) {
            let mut state = 0;
            for &byte in string {
                if automaton.next[state][usize::from(byte)] == 0 {
                    automaton.next[state][usize::from(byte)] = automaton.next.len() as u16;
                    automaton.next.push([0; 256]);
                    automaton.ends.push(0);
                }
                state = usize::from(automaton.next[state][usize::from(byte)]);
            }
            if automaton.ends[state] == 0 {
                automaton.ends[state] = number;
            }
        }
        automaton.complete();
        automaton
    }

    /// Fills in missing successors, breadth first: a state without a successor for a byte takes that of its longest
    /// suffix.
    fn complete(&mut self) {
        let mut fallback = vec![0; self.next.len()];
        let mut queue: VecDeque<usize> =
            self.next[0].iter().filter(|&&next| next != 0).map(|&next| usize::from(next)).collect();
        while let Some(state) = queue.pop_front() {
            let suffix: usize = fallback[state];
            if self.ends[state] == 0 {
                self.ends[state] = self.ends[suffix];
            }
            for byte in 0..256 {
                let own = usize::from(self.next[state][byte]);
                let other = self.next[suffix][byte];
                if own == 0 {
                    self.next[state][byte] = other;
                } else {
                    fallback[own] = usize::from(other);
                    queue.push_back(own);
                }
            }
        }
    }

    fn find(&self, bytes: &[u8]) -> u16 {
        let mut state = 0;
        for &byte in bytes {
            state = usize::from(self.next[state][usize::from(byte)]);
            if self.ends[state] != 0 {
                return self.ends[state];
            }
        }
        0
    }

    /// Continues a search from a state; returns the first string that ends in `bytes`, and the state after them.
    fn resume(&self, state: u16, bytes: &[u8]) -> (u16, u16) {
        let (mut state, mut found) = (usize::from(state), 0);
        for &byte in bytes {
            state = usize::from(self.next[state][usize::from(byte)]);
            if found == 0 {
                found = self.ends[state];
            }
        }
        (found, state as u16)
    }
}

/// The strings and their counts.
struct Strings {
    automaton: Automaton,
    lower: bool,
    found: Vec<u64>,
    names: Vec<String>,
    scratch: Vec<u8>,
}

impl Strings {
    /// Continues a search from a state; returns the first string that ends in `bytes`, and the state after them.
    fn resume(&mut self, state: u16, bytes: &[u8]) -> (u16, u16) {
        let mut part = bytes;
        if self.lower {
            self.scratch.clear();
            self.scratch.extend(part.iter().map(u8::to_ascii_lowercase));
            part = &self.scratch;
        }
        self.automaton.resume(state, part)
    }

    /// Finds the first string that ends in `bytes`.
    fn find(&mut self, bytes: &[u8]) -> u16 {
        if !self.lower {
            return self.automaton.find(bytes);
        }
        self.scratch.clear();
        self.scratch.extend(bytes.iter().map(u8::to_ascii_lowercase));
        self.automaton.find(&self.scratch)
    }

    /// Counts a string that was found.
    fn count(&mut self, found: u16) -> Option<u32> {
        let number = usize::from(found).checked_sub(1)?;
        self.found[number] += 1;
        Some(found.into())
    }

    fn counters(&self) -> impl Iterator<Item = Counter> {
        let pairs = self.names.iter().zip(&self.found);
        pairs.map(|(name, &found)| Counter::count(name.clone(), found))
    }

    /// Takes new strings, and keeps the counts of those that stay.
    fn change(&mut self, settings: &Settings) -> bool {
        let Ok((automaton, names)) = automaton(settings, self.lower) else { return false };
        // A string that is there twice has two counts.
        let mut old: HashMap<String, VecDeque<u64>> = HashMap::new();
        for (name, found) in self.names.drain(..).zip(self.found.drain(..)) {
            old.entry(name).or_default().push_back(found);
        }
        let mut count = |name| old.get_mut(name)?.pop_front();
        self.found = names.iter().map(|name| count(name).unwrap_or(0)).collect();
        (self.automaton, self.names) = (automaton, names);
        true
    }
}

impl Judge for Strings {
    type State = u16;

    fn begin(&mut self) -> u16 {
        0
    }

    fn take(&mut self, state: &mut u16, bytes: &[u8]) -> Answer {
        let found;
        (found, *state) = self.resume(*state, bytes);
        self.count(found).map_or(Answer::Open, Answer::Accept)
    }

    fn end(&mut self, _: u16) -> Option<u32> {
        None
    }

    fn alone(&mut self, payload: &[u8]) -> Option<u32> {
        let found = self.find(payload);
        self.count(found)
    }
}

/// Searches each frame for itself.
struct Search {
    strings: Strings,
    offset: usize,
    depth: usize,
}

impl Node for Search {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut passed = Mask::EMPTY;
        for (index, frame) in arrival.frames() {
            let rest = frame.data.get(self.offset..).unwrap_or_default();
            let found = self.strings.find(&rest[..rest.len().min(self.depth)]);
            arrival.classify(index, found.into());
            if self.strings.count(found).is_some() {
                passed.set(index);
            }
        }
        Ok(passed)
    }

    fn counters(&self) -> Vec<Counter> {
        self.strings.counters().collect()
    }

    fn change(&mut self, settings: &Settings) -> bool {
        self.strings.change(settings)
    }
}

/// Searches streams.
struct StreamSearch {
    judged: Judged<Strings>,
    /// State of each stream of pieces, by its number.
    pieces: Ageing<NonZeroU64, u16>,
}

impl Node for StreamSearch {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let first = arrival.frames().next();
        if first.is_none_or(|(index, _)| arrival.stream(index).is_none()) {
            return Ok(self.judged.process(arrival));
        }
        let (strings, pieces) = (&mut self.judged.judge, &mut self.pieces);
        let mut passed = Mask::EMPTY;
        for (index, frame) in arrival.frames() {
            let Some(stream) = arrival.stream(index) else { continue };
            if frame.data.is_empty() {
                pieces.remove(&stream);
                continue;
            }
            let state = pieces.get(&stream, 0).copied().unwrap_or(0);
            let (found, after) = strings.resume(state, frame.data);
            pieces.insert(stream, after, 0);
            arrival.classify(index, found.into());
            if strings.count(found).is_some() {
                passed.set(index);
            }
        }
        Ok(passed)
    }

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        self.judged.tick(emitted)
    }

    fn counters(&self) -> Vec<Counter> {
        let mut all: Vec<_> = self.judged.judge.counters().collect();
        all.extend(self.judged.counters());
        all.push(Counter::count("forgotten_streams", self.pieces.evicted()));
        all
    }

    fn change(&mut self, settings: &Settings) -> bool {
        // The states of streams belong to the old automaton.
        let taken = self.judged.judge.change(settings);
        self.judged.restart();
        self.pieces.retain(|_, _| false);
        taken
    }
}

/// Parses a string with `|41 42|` for bytes in hexadecimal, as in Snort's rules.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for (index, part) in text.split('|').enumerate() {
        if index % 2 == 0 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        for word in part.split_whitespace() {
            bytes.push(u8::from_str_radix(word, 16).ok().filter(|_| word.len() == 2)?);
        }
    }
    (!bytes.is_empty() && text.matches('|').count().is_multiple_of(2)).then_some(bytes)
}

/// Builds the automaton, and returns it with the strings as they are written.
fn automaton(settings: &Settings, lower: bool) -> Result<(Automaton, Vec<String>), MakeError> {
    settings.required("expression")?;
    let texts = settings.pairs().iter().filter(|(name, _)| name == "expression");
    let names: Vec<_> = texts.map(|(_, value)| value.clone()).collect();
    let mut strings = Vec::new();
    for name in &names {
        let Some(string) = bytes(name) else {
            let message = format!("{name:?} is not a string: text, with |41 42| for bytes in hex");
            return Err(MakeError::new("expression", message).of(name));
        };
        strings.push(if lower { string.to_ascii_lowercase() } else { string });
    }
    let total: usize = strings.iter().map(Vec::len).sum();
    if total > MAX_BYTES {
        let message = format!("the strings have {total} bytes; {MAX_BYTES} are allowed");
        return Err(MakeError::new("expression", message));
    }
    Ok((Automaton::new(&strings), names))
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let lower = settings.flag("nocase")?;
    let (automaton, names) = automaton(settings, lower)?;
    let stream = settings.flag("stream")?;
    if stream && (settings.text("offset").is_some() || settings.text("depth").is_some()) {
        return Err(MakeError::new(
            "stream",
            "`offset` and `depth` are for frames, not for streams",
        ));
    }
    let bounds = Bounds::read(settings)?;
    let found = vec![0; names.len()];
    let strings = Strings { automaton, lower, found, names, scratch: Vec::new() };
    if stream {
        let judged = Judged::new(strings, bounds.map(Waiting::new));
        return Ok(Box::new(StreamSearch { judged, pieces: Ageing::new(MAX_STREAMS) }));
    }
    Ok(Box::new(Search {
        strings,
        offset: settings.number_or("offset", 0..=262_144, 0)? as usize,
        depth: settings.number_or("depth", 1..=262_144, 262_144)? as usize,
    }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "strsearch",
    aliases: &["str_search", "string", "ahocorasick"],
    summary: "passes frames that contain one of the strings `expression`",
    parameters: &[
        Parameter { name: "expression", summary: "a string; |41 42| = bytes; may be repeated" },
        Parameter { name: "offset", summary: "first byte of the frame to look at (0)" },
        Parameter { name: "depth", summary: "bytes to look at (all)" },
        Parameter { name: "nocase", summary: "y: ignore upper and lower case" },
        Parameter { name: "stream", summary: "y: search streams, after `tcp`" },
        waiting::PARAMETERS[0],
        waiting::PARAMETERS[1],
        waiting::PARAMETERS[2],
        waiting::PARAMETERS[3],
    ],
    classifies: true,
    replaces: waiting::is_wanted,
    ordered: waiting::is_wanted,
    make,
    wants_pieces: |settings| settings.flag("stream").unwrap_or(false),
    parallel: true,
    live: &["expression"],
    opens: Opens::nothing,
    ..Class::NODE
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_naive_search_finds() {
        let strings: Vec<Vec<u8>> =
            ["he", "she", "hers", "his", "aab", "ab"].map(|s| s.as_bytes().to_vec()).to_vec();
        let automaton = Automaton::new(&strings);
        let mut state = 7u32;
        for _ in 0..5_000 {
            let mut text = Vec::new();
            for _ in 0..state % 12 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                text.push(b"hersiab"[(state >> 24) as usize % 7]);
            }
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let naive = strings.iter().any(|s| text.windows(s.len()).any(|window| window == s));
            assert_eq!(automaton.find(&text) != 0, naive, "{}", String::from_utf8_lossy(&text));
        }
        assert_eq!(automaton.find(b"ushers"), 2);
    }

    #[test]
    fn bytes_in_hexadecimal() {
        assert_eq!(bytes("a|00 ff|b"), Some(vec![b'a', 0, 255, b'b']));
        assert_eq!((bytes("|0|"), bytes("|00"), bytes("")), (None, None, None));
    }
}
