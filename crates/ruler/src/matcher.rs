//! One filter, ready to match: which rule a packet meets, and what its slots are.

use crate::nfa::{Nfa, TooLarge};
use crate::pike;
use crate::program::Rule;

/// Bounds of a matcher.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// States of the non-deterministic automaton.
    pub nfa_states: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { nfa_states: 4 << 20 }
    }
}

/// The automaton of a filter.
#[derive(Debug)]
pub struct Matcher {
    nfa: Nfa,
}

/// Room for runs of a matcher; one per thread.
#[derive(Debug, Default)]
pub struct Room {
    pike: pike::Room,
    tags: Vec<u32>,
    rule: u32,
}

impl Matcher {
    /// Makes the automaton of `rules`.
    ///
    /// # Errors
    /// When it would be over a limit.
    pub fn new(rules: &[Rule], limits: Limits) -> Result<Matcher, TooLarge> {
        let numbers: Vec<u32> = (0..u32::try_from(rules.len()).unwrap_or(u32::MAX)).collect();
        Ok(Matcher { nfa: Nfa::build(rules, &numbers, limits.nfa_states)? })
    }

    /// The first rule that matches all of `bytes`. Its slots can be asked for until the next call.
    pub fn first_match(&self, room: &mut Room, bytes: &[u8]) -> Option<usize> {
        room.rule = pike::first_match(&self.nfa, &mut room.pike, bytes, &mut room.tags)?;
        Some(self.nfa.numbers[room.rule as usize] as usize)
    }

    /// A slot of the rule that was found for a packet of `len` bytes; none when its part of the pattern was not used,
    /// or the rule's action does not need it.
    pub fn slot(&self, room: &Room, slot: u32, len: usize) -> Option<(usize, usize)> {
        self.nfa.rules[room.rule as usize].span(slot, &room.tags, len)
    }
}
