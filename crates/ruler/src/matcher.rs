//! One filter, ready to match: which rule a packet meets, and what its slots are.
//!
//! All rules of a filter are one deterministic automaton as long as that has at most [`Limits::states`] states. When
//! it would have more, the list of rules is halved until each part is small enough; the parts are asked in order, so
//! the first rule still wins. A single rule that is too large by itself is simulated. What was done is in
//! [`Matcher::parts`], for `fyke ruler check`.

use crate::dense::{Dense, Registers};
use crate::determinise::{Exploded, Tdfa, determinise};
use crate::minimise::minimise;
use crate::nfa::{Nfa, TooLarge};
use crate::pike;
use crate::program::Rule;
use crate::registers::allocate;
use std::ops::Range;

/// Bounds of a matcher.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// States of the non-deterministic automaton of one part.
    pub nfa_states: usize,
    /// States of a deterministic automaton.
    pub states: usize,
    /// Configurations looked at while making one automaton.
    pub work: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { nfa_states: 4 << 20, states: 8192, work: 4_000_000 }
    }
}

/// The automata of a filter.
#[derive(Debug)]
pub struct Matcher {
    parts: Vec<Part>,
}

/// Some rules of a filter, and how they are matched.
#[derive(Debug)]
pub struct Part {
    /// Which rules.
    pub rules: Range<usize>,
    /// Their automaton.
    pub engine: Engine,
    nfa: Nfa,
}

/// How rules are matched.
#[derive(Debug)]
pub enum Engine {
    /// By a deterministic automaton, in one pass.
    Dense(Dense),
    /// By following all ways at once: slow, and small.
    Simulated,
}

/// Room for runs of a matcher; one per thread.
#[derive(Debug, Default)]
pub struct Room {
    pike: pike::Room,
    registers: Registers,
    tags: Vec<u32>,
    part: usize,
    rule: u32,
}

impl Matcher {
    /// Makes the automata of `rules`.
    ///
    /// # Errors
    /// When a rule would be over a limit even by itself.
    pub fn new(rules: &[Rule], limits: Limits) -> Result<Matcher, TooLarge> {
        let mut parts = Vec::new();
        add(rules, 0..rules.len(), limits, &mut parts)?;
        Ok(Matcher { parts })
    }

    /// How the rules are matched.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The first rule that matches all of `bytes`. Its slots can be asked for until the next call.
    pub fn first_match(&self, room: &mut Room, bytes: &[u8]) -> Option<usize> {
        for (number, part) in self.parts.iter().enumerate() {
            let found = match &part.engine {
                Engine::Dense(dense) => {
                    dense.first_match(bytes, &mut room.registers, &mut room.tags)
                }
                Engine::Simulated => {
                    pike::first_match(&part.nfa, &mut room.pike, bytes, &mut room.tags)
                }
            };
            if let Some(rule) = found {
                room.part = number;
                room.rule = rule;
                return Some(part.rules.start + rule as usize);
            }
        }
        None
    }

    /// A slot of the rule that was found for a packet of `len` bytes; none when its part of the pattern was not used,
    /// or the rule's action does not need it.
    pub fn slot(&self, room: &Room, slot: u32, len: usize) -> Option<(usize, usize)> {
        self.parts[room.part].nfa.rules[room.rule as usize].span(slot, &room.tags, len)
    }
}

fn add(
    rules: &[Rule],
    range: Range<usize>,
    limits: Limits,
    parts: &mut Vec<Part>,
) -> Result<(), TooLarge> {
    let numbers = |range: &Range<usize>| -> Vec<u32> {
        range.clone().map(|rule| u32::try_from(rule).unwrap_or(u32::MAX)).collect()
    };
    let halves = |range: &Range<usize>| {
        let middle = range.start + range.len() / 2;
        (range.start..middle, middle..range.end)
    };
    let nfa = match Nfa::build(rules, &numbers(&range), limits.nfa_states) {
        Ok(nfa) => nfa,
        Err(too_large) if range.len() < 2 => return Err(too_large),
        Err(_) => {
            let (first, second) = halves(&range);
            add(rules, first, limits, parts)?;
            return add(rules, second, limits, parts);
        }
    };
    let engine = match dense(&nfa, limits) {
        Ok(dense) => Engine::Dense(dense),
        Err(_) if range.len() < 2 => Engine::Simulated,
        Err(_) => {
            let (first, second) = halves(&range);
            add(rules, first, limits, parts)?;
            return add(rules, second, limits, parts);
        }
    };
    let nfa = match engine {
        Engine::Simulated => nfa,
        // What a deterministic automaton still needs of it is where the slots are.
        Engine::Dense(_) => {
            Nfa { states: Vec::new(), universal: Vec::new(), owner: Vec::new(), ..nfa }
        }
    };
    parts.push(Part { rules: range, engine, nfa });
    Ok(())
}

fn dense(nfa: &Nfa, limits: Limits) -> Result<Dense, Exploded> {
    let mut tdfa: Tdfa = determinise(nfa, limits.states, limits.work)?;
    let (steps, registers) =
        allocate(&mut tdfa).map_err(|_| Exploded { states: tdfa.accepts.len() })?;
    minimise(&mut tdfa);
    Ok(Dense::new(&tdfa, steps, registers))
}
