//! One filter, ready to match: which rule a packet meets, and what its slots are.
//!
//! All rules of a filter are one deterministic automaton as long as that has at most [`Limits::states`] states. When
//! it would have more:
//! 1. Rules that need certain bytes somewhere are put behind a `Gate`, with a small automaton each.
//! 2. The list of the others is halved until each part is small enough; parts are asked in order.
//! 3. A single rule that is too large by itself is simulated.
//!
//! The first rule wins whatever was done; what was done is in [`Matcher::parts`], for `fyke ruler check`.

use crate::dense::{Dense, Registers};
use crate::determinise::{Exploded, Tdfa, determinise};
use crate::gate::{Gate, needed_run};
use crate::minimise::minimise;
use crate::nfa::{Nfa, TooLarge};
use crate::pike;
use crate::program::Rule;
use crate::registers::allocate;

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
    /// Parts that every packet is given to, in the order of their rules.
    parts: Vec<Part>,
    gate: Option<Gate>,
    /// Parts of one rule each, in the order of the rules: those behind the gate.
    gated: Vec<Part>,
}

/// Some rules of a filter, and how they are matched.
#[derive(Debug)]
pub struct Part {
    /// Which rules, in order.
    pub rules: Vec<u32>,
    /// Their automaton.
    pub engine: Engine,
    nfa: Nfa,
}

impl Part {
    /// Tags that need a register.
    pub fn tags(&self) -> usize {
        self.nfa.rules.iter().map(|rule| rule.tags as usize).sum()
    }

    /// Positions that actions use and that are told without one.
    pub fn fixed_positions(&self) -> usize {
        let used = self.nfa.rules.iter().flat_map(|rule| &rule.slots).flatten().count();
        (used * 2).saturating_sub(self.tags())
    }

    fn first_match(&self, room: &mut Room, bytes: &[u8]) -> Option<u32> {
        let rule = match &self.engine {
            Engine::Dense(dense) => {
                dense.first_match(bytes, &mut room.registers, &mut room.tags)?
            }
            Engine::Simulated => {
                pike::first_match(&self.nfa, &mut room.pike, bytes, &mut room.tags)?
            }
        };
        room.rule = rule;
        Some(self.rules[rule as usize])
    }
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
    /// Tags of the winner so far, while others are tried.
    won: Vec<u32>,
    /// Runs that the gate found.
    found: Vec<u32>,
    /// Part of the winner, those behind the gate counted after the others.
    part: usize,
    /// The winner's number in its part.
    rule: u32,
}

impl Matcher {
    /// Makes the automata of `rules`.
    ///
    /// # Errors
    /// When a rule would be over a limit even by itself.
    pub fn new(rules: &[Rule], limits: Limits) -> Result<Matcher, TooLarge> {
        let all: Vec<u32> = (0..u32::try_from(rules.len()).unwrap_or(u32::MAX)).collect();
        let mut matcher = Matcher { parts: Vec::new(), gate: None, gated: Vec::new() };
        if let Ok(part) = whole(rules, &all, limits) {
            matcher.parts.push(part);
            return Ok(matcher);
        }
        let (mut others, mut runs) = (Vec::new(), Vec::new());
        for number in all {
            match needed_run(&rules[number as usize].pattern) {
                Some(run) => {
                    runs.push(run);
                    add(rules, &[number], limits, &mut matcher.gated)?;
                }
                None => others.push(number),
            }
        }
        if !runs.is_empty() {
            matcher.gate = Some(Gate::new(runs));
        }
        if !others.is_empty() {
            add(rules, &others, limits, &mut matcher.parts)?;
        }
        Ok(matcher)
    }

    /// How the rules are matched that every packet is compared with.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// How the rules are matched that need bytes which few packets have.
    pub fn gated(&self) -> &[Part] {
        &self.gated
    }

    /// Memory of the gate.
    pub fn gate_bytes(&self) -> usize {
        self.gate.as_ref().map_or(0, Gate::bytes)
    }

    /// The first rule that matches all of `bytes`. Its slots can be asked for until the next call.
    pub fn first_match(&self, room: &mut Room, bytes: &[u8]) -> Option<usize> {
        let mut best: Option<u32> = None;
        for (number, part) in self.parts.iter().enumerate() {
            best = part.first_match(room, bytes);
            if best.is_some() {
                room.part = number;
                break;
            }
        }
        if let Some(gate) = &self.gate {
            best = self.through_gate(gate, room, bytes, best);
        }
        best.map(|rule| rule as usize)
    }

    /// The best of `best` and the rules behind the gate.
    fn through_gate(
        &self,
        gate: &Gate,
        room: &mut Room,
        bytes: &[u8],
        best: Option<u32>,
    ) -> Option<u32> {
        let mut found = std::mem::take(&mut room.found);
        found.clear();
        gate.scan(bytes, |run| found.push(run));
        found.sort_unstable();
        found.dedup();
        let mut winner = best;
        if !found.is_empty() {
            let (rule, part) = (room.rule, room.part);
            std::mem::swap(&mut room.won, &mut room.tags);
            let bound = best.unwrap_or(u32::MAX);
            let candidates = found.iter().map(|run| *run as usize);
            let gated = candidates
                .take_while(|run| self.gated[*run].rules[0] < bound)
                .find(|run| self.gated[*run].first_match(room, bytes).is_some());
            match gated {
                Some(run) => {
                    room.part = self.parts.len() + run;
                    winner = Some(self.gated[run].rules[0]);
                }
                None => {
                    std::mem::swap(&mut room.won, &mut room.tags);
                    (room.rule, room.part) = (rule, part);
                }
            }
        }
        room.found = found;
        winner
    }

    /// A slot of the rule that was found for a packet of `len` bytes; none when its part of the pattern was not used,
    /// or the rule's action does not need it.
    pub fn slot(&self, room: &Room, slot: u32, len: usize) -> Option<(usize, usize)> {
        let part = match room.part.checked_sub(self.parts.len()) {
            Some(gated) => &self.gated[gated],
            None => &self.parts[room.part],
        };
        part.nfa.rules[room.rule as usize].span(slot, &room.tags, len)
    }
}

/// Why some rules are not one automaton.
enum Failure {
    TooLarge(TooLarge),
    Exploded(Box<Nfa>),
}

fn whole(rules: &[Rule], numbers: &[u32], limits: Limits) -> Result<Part, Failure> {
    let nfa = Nfa::build(rules, numbers, limits.nfa_states).map_err(Failure::TooLarge)?;
    match dense(&nfa, limits) {
        Ok(dense) => {
            // What a deterministic automaton still needs of it is where the slots are.
            let (states, universal, owner) = (Vec::new(), Vec::new(), Vec::new());
            let nfa = Nfa { states, universal, owner, ..nfa };
            Ok(Part { rules: numbers.to_vec(), engine: Engine::Dense(dense), nfa })
        }
        Err(_) => Err(Failure::Exploded(Box::new(nfa))),
    }
}

fn add(
    rules: &[Rule],
    numbers: &[u32],
    limits: Limits,
    parts: &mut Vec<Part>,
) -> Result<(), TooLarge> {
    match whole(rules, numbers, limits) {
        Ok(part) => parts.push(part),
        Err(_) if numbers.len() > 1 => {
            let (first, second) = numbers.split_at(numbers.len() / 2);
            add(rules, first, limits, parts)?;
            add(rules, second, limits, parts)?;
        }
        Err(Failure::TooLarge(too_large)) => return Err(too_large),
        Err(Failure::Exploded(nfa)) => {
            parts.push(Part { rules: numbers.to_vec(), engine: Engine::Simulated, nfa: *nfa });
        }
    }
    Ok(())
}

fn dense(nfa: &Nfa, limits: Limits) -> Result<Dense, Exploded> {
    let mut tdfa: Tdfa = determinise(nfa, limits.states, limits.work)?;
    let (steps, registers) =
        allocate(&mut tdfa).map_err(|_| Exploded { states: tdfa.accepts.len() })?;
    minimise(&mut tdfa);
    Ok(Dense::new(&tdfa, steps, registers))
}
