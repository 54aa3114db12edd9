//! The automata of a regular pattern: a lazy one, which makes its states when they are needed, and a simulation for
//! patterns of which it would need too many.
//!
//! Cost: O(bytes) for the lazy automaton, and its states; O(bytes × positions in the pattern) for the simulation, which
//! is used only if that much work is left. Memory of all patterns together: [`MAX_HELD`] bytes and the automata in use;
//! beyond that, states are forgotten, and patterns that are new are left to backtracking.

use crate::work::Work;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures, pikevm::PikeVM};
use regex_automata::{Input, MatchKind, hybrid};
use regex_syntax::hir::Hir;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Largest automaton of a pattern, in bytes.
const MAX_AUTOMATON_BYTES: usize = 2 << 20;
/// Most bytes of lazy states of one direction of a pattern.
const MAX_CACHE_BYTES: usize = 1 << 20;
/// Most bytes of the automata of all patterns.
pub const MAX_HELD: usize = 512 << 20;
/// Bytes of the automata of all patterns.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The automata of a pattern.
#[derive(Debug)]
pub struct Automaton {
    lazy: hybrid::regex::Regex,
    simulation: PikeVM,
    /// Positions in the pattern.
    positions: usize,
    /// Bytes without the lazy states.
    bytes: usize,
    states: Mutex<States>,
}

/// The states that were made so far.
#[derive(Debug)]
struct States {
    cache: hybrid::regex::Cache,
    /// Their bytes, and how often they were forgotten, when this was last counted.
    bytes: usize,
    cleared: usize,
}

impl Automaton {
    /// Makes the automata; none if they are too large, or those of all patterns are.
    pub fn new(hir: &Hir) -> Option<Automaton> {
        if HELD.load(Ordering::Relaxed) > MAX_HELD {
            return None;
        }
        let machine = |reverse: bool| -> Option<NFA> {
            let captures = if reverse { WhichCaptures::None } else { WhichCaptures::Implicit };
            let config = thompson::Config::new()
                .utf8(false)
                .reverse(reverse)
                .which_captures(captures)
                .nfa_size_limit(Some(MAX_AUTOMATON_BYTES));
            thompson::Compiler::new().configure(config).build_from_hir(hir).ok()
        };
        let lazy = |machine: NFA, kind: MatchKind| {
            let config = hybrid::dfa::Config::new()
                .match_kind(kind)
                .cache_capacity(MAX_CACHE_BYTES)
                .skip_cache_capacity_check(true)
                .minimum_cache_clear_count(Some(3))
                .minimum_bytes_per_state(Some(10));
            hybrid::dfa::Builder::new().configure(config).build_from_nfa(machine).ok()
        };
        let (forward, reverse) = (machine(false)?, machine(true)?);
        let positions = forward.states().len();
        let bytes = forward.memory_usage() + reverse.memory_usage();
        let simulation = PikeVM::new_from_nfa(forward.clone()).ok()?;
        let lazy = hybrid::regex::Builder::new().build_from_dfas(
            lazy(forward, MatchKind::LeftmostFirst)?,
            lazy(reverse, MatchKind::All)?,
        );
        let cache = lazy.create_cache();
        let states = States { bytes: cache.memory_usage(), cleared: 0, cache };
        HELD.fetch_add(bytes + states.bytes, Ordering::Relaxed);
        Some(Automaton { lazy, simulation, positions, bytes, states: Mutex::new(states) })
    }

    /// Bytes of the automata without lazy states.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Finds the first match of an input; of one that asks for the earliest end only, the beginning means nothing.
    ///
    /// # Errors
    /// There is not enough work left for a search by automata.
    pub fn search(&self, input: &Input<'_>, work: &mut Work) -> Result<Option<(usize, usize)>, ()> {
        if !work.take(1 + input.get_range().len() / 8) {
            return Err(());
        }
        let found = {
            let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
            let cache = &mut states.cache;
            let found = match input.get_earliest() {
                true => {
                    let end = self.lazy.forward().try_search_fwd(cache.as_parts_mut().0, input);
                    end.map(|end| end.map(|end| (end.offset(), end.offset())))
                }
                false => {
                    let found = self.lazy.try_search(cache, input);
                    found.map(|found| found.map(|found| (found.start(), found.end())))
                }
            };
            states.count(&self.lazy, work);
            found
        };
        found.or_else(|_| {
            // Too many states.
            let steps = (1 + input.get_range().len()).saturating_mul(self.positions) / 2;
            if steps >= work.left() {
                return Err(());
            }
            work.take(steps);
            let found = self.simulation.find(&mut self.simulation.create_cache(), input.clone());
            Ok(found.map(|found| (found.start(), found.end())))
        })
    }
}

impl States {
    /// Counts the states that a search has made.
    fn count(&mut self, lazy: &hybrid::regex::Regex, work: &mut Work) {
        let cleared = self.cache.forward().clear_count() + self.cache.reverse().clear_count();
        let before = std::mem::replace(&mut self.bytes, self.cache.memory_usage());
        let forgotten = (cleared - std::mem::replace(&mut self.cleared, cleared)) * MAX_CACHE_BYTES;
        if before == self.bytes && forgotten == 0 {
            return;
        }
        work.owe((self.bytes.saturating_sub(before) + forgotten) / 4);
        HELD.fetch_add(self.bytes, Ordering::Relaxed);
        if HELD.fetch_sub(before, Ordering::Relaxed) - before > MAX_HELD {
            self.cache = lazy.create_cache();
            let before = std::mem::replace(&mut self.bytes, self.cache.memory_usage());
            self.cleared = 0;
            HELD.fetch_add(self.bytes, Ordering::Relaxed);
            HELD.fetch_sub(before, Ordering::Relaxed);
        }
    }
}

impl Drop for Automaton {
    fn drop(&mut self) {
        let states = self.states.get_mut().unwrap_or_else(PoisonError::into_inner);
        HELD.fetch_sub(self.bytes + states.bytes, Ordering::Relaxed);
    }
}
