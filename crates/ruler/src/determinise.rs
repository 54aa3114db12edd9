//! TNFA to tagged deterministic automaton: the subset construction with registers, TDFA(1).
//!
//! A state is a list of configurations in order of preference. A configuration is a TNFA state, a register for each
//! tag of its rule, and the tags passed since the last byte (its look-ahead). Tags are written on the *outgoing*
//! transition, one byte late: by then most paths that would have written in vain have ended. A new state that
//! equals a known one except for the names of registers is replaced by the known one, and the registers are copied.
//! (Trafimovich 2017, Borsotti and Trafimovich 2022; `DEPARTURE:` names inside repetitions keep their last value,
//! so there are no negative tags, and packets are matched as a whole, so there is no fallback.)
//!
//! Two additions to the papers: configurations after one that accepts every continuation are dropped;
//! configurations of rules without tags are sorted, so that for these rules this is the plain subset construction.
//!
//! Cost: states × (classes that differ there) × configurations; states are bounded by the caller.

use crate::byte_set::ByteSet;
use crate::fold::Fold;
use crate::nfa::{Nfa, State, StateId};
use std::collections::HashMap;

/// A register that has no position and is never written.
pub const NIL: u32 = u32::MAX;

/// Source of a register's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// The position of the byte that the transition takes.
    Position,
    /// Another register.
    Register(u32),
}

/// All assignments of a transition, which happen simultaneously: destination and value.
pub type Assignments = Vec<(u32, Value)>;

/// Location of a tag in an accepting state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinalTag {
    /// The tag was not passed.
    Unset,
    /// In a register.
    Register(u32),
    /// At the end of the packet.
    End,
}

/// A rule that a state accepts, and its tags.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Accept {
    /// Number of the rule in the automaton.
    pub rule: u32,
    /// Its tags.
    pub tags: Vec<FinalTag>,
}

/// A deterministic automaton before its tables are built. State 0 is dead, state 1 the start.
#[derive(Debug)]
pub struct Tdfa {
    /// Class of each byte value.
    pub classes: [u8; 256],
    /// Number of classes.
    pub class_count: usize,
    /// Per state and class: the next state, and the number of its list of assignments.
    pub next: Vec<(u32, u32)>,
    /// Lists of assignments by number; number 0 is empty.
    pub assignments: Vec<Assignments>,
    /// Accepted rules per state; of each filter at most one.
    pub accepts: Vec<Vec<Accept>>,
    /// Registers in use in each state.
    pub live: Vec<Vec<u32>>,
    /// Number of registers.
    pub registers: u32,
}

/// Error: the automaton needs more states than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exploded {
    /// The limit.
    pub states: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Config {
    state: StateId,
    rule: u32,
    /// Number of the look-ahead set.
    look: u32,
    /// One register per tag of the rule.
    registers: Vec<u32>,
}

/// Builds the automaton, with at most `max_states` states and at most `max_work` configurations processed.
///
/// # Errors
/// If it would exceed a limit.
pub fn determinise(nfa: &Nfa, max_states: usize, max_work: usize) -> Result<Tdfa, Exploded> {
    let (classes, class_count) = classes(nfa);
    let mut work = Work {
        nfa,
        seen: vec![0; nfa.states.len()],
        generation: 0,
        looks: vec![Vec::new()],
        look_numbers: HashMap::from_iter([(Vec::new(), 0)]),
        known: HashMap::default(),
        states: Vec::new(),
        assignment_numbers: HashMap::from_iter([(Vec::new(), 0)]),
        tdfa: Tdfa {
            classes,
            class_count,
            next: Vec::new(),
            assignments: vec![Vec::new()],
            accepts: Vec::new(),
            live: Vec::new(),
            registers: 0,
        },
        left: max_work,
    };
    work.add(Vec::new());
    let mut start = Vec::new();
    work.next_generation();
    let tags = nfa.rules.iter().map(|rule| rule.tags as usize).max().unwrap_or(0);
    work.close(nfa.start, &vec![NIL; tags], &mut start);
    work.normalise(&mut start);
    work.add(start);
    let representatives: Vec<u8> = (0..class_count)
        .map(|class| (0..=255).find(|byte| usize::from(classes[usize::from(*byte)]) == class))
        .map(Option::unwrap_or_default)
        .collect();
    let mut state = 0;
    while state < work.states.len() {
        work.transitions(state, &representatives)?;
        if work.states.len() > max_states {
            return Err(Exploded { states: max_states });
        }
        state += 1;
    }
    Ok(work.tdfa)
}

/// Computes the byte classes: bytes that no set of the automaton distinguishes are one class.
pub fn classes(nfa: &Nfa) -> ([u8; 256], usize) {
    let mut classes = [0u8; 256];
    let mut count = 1usize;
    for set in &nfa.sets {
        let mut renamed: HashMap<(u8, bool), u8> = HashMap::new();
        let mut next = [0u8; 256];
        for byte in 0..=255u8 {
            let key = (classes[usize::from(byte)], set.contains(byte));
            let fresh = u8::try_from(renamed.len()).unwrap_or(u8::MAX);
            next[usize::from(byte)] = *renamed.entry(key).or_insert(fresh);
        }
        count = renamed.len();
        classes = next;
        if count == 256 {
            break;
        }
    }
    (classes, count)
}

struct Work<'a> {
    nfa: &'a Nfa,
    seen: Vec<u32>,
    generation: u32,
    looks: Vec<Vec<u32>>,
    look_numbers: HashMap<Vec<u32>, u32, Fold>,
    /// States by their configurations without registers.
    known: HashMap<Vec<u32>, Vec<u32>, Fold>,
    states: Vec<Vec<Config>>,
    assignment_numbers: HashMap<Assignments, u32, Fold>,
    tdfa: Tdfa,
    left: usize,
}

impl Work<'_> {
    fn next_generation(&mut self) {
        self.generation += 1;
    }

    /// Adds the configurations reachable from `start` without a byte, the preferred first.
    fn close(&mut self, start: StateId, registers: &[u32], out: &mut Vec<Config>) {
        let mut stack = vec![(start, 0u32)];
        while let Some((state, look)) = stack.pop() {
            if self.seen[state as usize] == self.generation {
                continue;
            }
            self.seen[state as usize] = self.generation;
            match &self.nfa.states[state as usize] {
                State::Split(targets) => {
                    stack.extend(targets.iter().rev().map(|target| (*target, look)));
                }
                State::Tag { tag, next } => stack.push((*next, self.look_with(look, *tag))),
                State::Byte { .. } | State::Match { .. } => {
                    let rule = self.nfa.owner[state as usize];
                    let tags = self.nfa.rules[rule as usize].tags as usize;
                    let registers = registers[..tags].to_vec();
                    out.push(Config { state, rule, look, registers });
                }
            }
        }
    }

    fn look_with(&mut self, look: u32, tag: u32) -> u32 {
        let mut set = self.looks[look as usize].clone();
        if let Err(at) = set.binary_search(&tag) {
            set.insert(at, tag);
        }
        let fresh = u32::try_from(self.looks.len()).unwrap_or(u32::MAX);
        let number = *self.look_numbers.entry(set.clone()).or_insert(fresh);
        if number == fresh {
            self.looks.push(set);
        }
        number
    }

    /// Drops configurations that cannot win, and sorts those of rules without tags, for which order is irrelevant. Each
    /// filter has its own winner, so this is done filter by filter.
    fn normalise(&self, configs: &mut Vec<Config>) {
        let filter = |config: &Config| self.nfa.filters[config.rule as usize];
        if configs.first().map(filter) == configs.last().map(filter) {
            return self.normalise_filter(configs);
        }
        let all = std::mem::take(configs);
        for own in all.chunk_by(|a, b| filter(a) == filter(b)) {
            let mut own = own.to_vec();
            self.normalise_filter(&mut own);
            configs.append(&mut own);
        }
    }

    /// Does the same for the configurations of one filter.
    fn normalise_filter(&self, configs: &mut Vec<Config>) {
        let universal = |config: &Config| self.nfa.universal[config.state as usize];
        if let Some(at) = configs.iter().position(universal) {
            let rule = configs[at].rule;
            let is_match = |config: &Config| {
                matches!(self.nfa.states[config.state as usize], State::Match { .. })
            };
            let own =
                configs[at + 1..].iter().find(|config| config.rule == rule && is_match(config));
            let own = own.cloned();
            configs.truncate(at + 1);
            configs.extend(own);
            if self.nfa.rules[rule as usize].tags == 0 {
                // Without tags, one path on which the rule matches is as good as another.
                let keep =
                    |config: &Config| config.rule != rule || universal(config) || is_match(config);
                configs.retain(keep);
            }
        }
        // At the end of the packet the first match wins: later matches are dropped.
        let mut matched = false;
        configs.retain(|config| {
            let is_match = matches!(self.nfa.states[config.state as usize], State::Match { .. });
            !is_match || !std::mem::replace(&mut matched, true)
        });
        let untagged = |config: &Config| self.nfa.rules[config.rule as usize].tags == 0;
        let mut at = 0;
        while at < configs.len() {
            let end =
                at + configs[at..].iter().take_while(|next| next.rule == configs[at].rule).count();
            if untagged(&configs[at]) {
                configs[at..end].sort_unstable_by_key(|config| config.state);
            }
            at = end;
        }
    }

    fn key(configs: &[Config]) -> Vec<u32> {
        configs.iter().flat_map(|config| [config.state, config.look]).collect()
    }

    /// Registers with values that are still needed: those of tags that are not about to be written.
    fn needed<'c>(&'c self, config: &'c Config) -> impl Iterator<Item = (usize, u32)> + 'c {
        let look = &self.looks[config.look as usize];
        let tags = config.registers.iter().enumerate();
        tags.filter(|(tag, _)| !look.contains(&(*tag as u32)))
            .map(|(tag, register)| (tag, *register))
    }

    fn add(&mut self, configs: Vec<Config>) -> u32 {
        let number = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        let accepts = configs.iter().filter_map(|config| {
            let State::Match { rule } = self.nfa.states[config.state as usize] else { return None };
            let look = &self.looks[config.look as usize];
            let tag = |(tag, register): (usize, &u32)| match *register {
                _ if look.contains(&(tag as u32)) => FinalTag::End,
                NIL => FinalTag::Unset,
                register => FinalTag::Register(register),
            };
            Some(Accept { rule, tags: config.registers.iter().enumerate().map(tag).collect() })
        });
        let accepts = accepts.collect();
        let mut live: Vec<u32> = configs
            .iter()
            .flat_map(|config| self.needed(config))
            .map(|(_, register)| register)
            .collect();
        live.sort_unstable();
        live.dedup();
        live.retain(|register| *register != NIL);
        self.tdfa.accepts.push(accepts);
        self.tdfa.live.push(live);
        self.known.entry(Self::key(&configs)).or_default().push(number);
        self.states.push(configs);
        number
    }

    fn transitions(&mut self, state: usize, representatives: &[u8]) -> Result<(), Exploded> {
        // The sets that contain a byte determine which configurations move. Bytes that the sets of this state do
        // not distinguish share one step; if no set inspects the byte, that is one step for all classes.
        let takes: Vec<Option<ByteSet>> = self.states[state]
            .iter()
            .map(|config| match self.nfa.states[config.state as usize] {
                State::Byte { set, .. } => Some(self.nfa.sets[set as usize]),
                _ => None,
            })
            .collect();
        let all: Vec<u32> =
            (0u32..).zip(&takes).filter(|(_, set)| set.is_some()).map(|(at, _)| at).collect();
        if takes.iter().flatten().all(|set| *set == ByteSet::ALL) {
            let step = self.step(state, &all);
            self.tdfa.next.extend(std::iter::repeat_n(step, representatives.len()));
            return self.spend(all.len() + 1);
        }
        let mut done: HashMap<Vec<u32>, (u32, u32), Fold> = HashMap::default();
        for byte in representatives {
            let takes = |at: &u32| takes[*at as usize].is_some_and(|set| set.contains(*byte));
            let moving: Vec<u32> = all.iter().copied().filter(takes).collect();
            self.spend(moving.len() + 1)?;
            let step = match done.get(&moving) {
                Some(step) => *step,
                None => {
                    let step = self.step(state, &moving);
                    done.insert(moving, step);
                    step
                }
            };
            self.tdfa.next.push(step);
        }
        Ok(())
    }

    fn spend(&mut self, work: usize) -> Result<(), Exploded> {
        self.left = self.left.saturating_sub(work);
        if self.left == 0 { Err(Exploded { states: self.states.len() }) } else { Ok(()) }
    }

    /// Computes the state after the moving configurations have taken a byte, and the assignments of the transition.
    fn step(&mut self, state: usize, moving: &[u32]) -> (u32, u32) {
        self.next_generation();
        let first_new = self.tdfa.registers;
        let mut fresh: HashMap<(u32, u32), u32, Fold> = HashMap::default();
        let mut target = Vec::new();
        for at in moving {
            let config = self.states[state][*at as usize].clone();
            let State::Byte { next, .. } = self.nfa.states[config.state as usize] else { continue };
            let mut registers = config.registers;
            for tag in &self.looks[config.look as usize] {
                let next = first_new + u32::try_from(fresh.len()).unwrap_or(0);
                registers[*tag as usize] = *fresh.entry((config.rule, *tag)).or_insert(next);
            }
            self.close(next, &registers, &mut target);
        }
        self.normalise(&mut target);
        let candidates = self.known.get(&Self::key(&target)).into_iter().flatten();
        let known = candidates
            .filter_map(|known| Some((*known, self.rename(&target, *known, first_new)?)))
            .next();
        if let Some((candidate, assignments)) = known {
            return (candidate, self.assignment_number(assignments));
        }
        let mut assignments: Assignments = Vec::new();
        let used: Vec<u32> = target
            .iter()
            .flat_map(|config| self.needed(config))
            .map(|(_, register)| register)
            .collect();
        for register in
            used.into_iter().filter(|register| *register != NIL && *register >= first_new)
        {
            assignments.push((register, Value::Position));
        }
        self.tdfa.registers = first_new + u32::try_from(fresh.len()).unwrap_or(0);
        (self.add(target), self.assignment_number(assignments))
    }

    /// Computes the assignments with which a known state can replace `target`; none if it cannot.
    fn rename(&self, target: &[Config], known: u32, first_new: u32) -> Option<Assignments> {
        let known = &self.states[known as usize];
        let mut to: HashMap<u32, u32, Fold> = HashMap::default();
        let mut from: HashMap<u32, u32, Fold> = HashMap::default();
        for (new, old) in target.iter().zip(known) {
            for ((_, new), (_, old)) in self.needed(new).zip(self.needed(old)) {
                if (new == NIL) != (old == NIL) {
                    return None;
                }
                if *to.entry(new).or_insert(old) != old || *from.entry(old).or_insert(new) != new {
                    return None;
                }
            }
        }
        to.remove(&NIL);
        let assignments = to.into_iter().filter(|(new, old)| new != old).map(|(new, old)| {
            (old, if new >= first_new { Value::Position } else { Value::Register(new) })
        });
        Some(assignments.collect())
    }

    fn assignment_number(&mut self, mut assignments: Assignments) -> u32 {
        assignments.sort_unstable();
        assignments.dedup();
        let fresh = u32::try_from(self.tdfa.assignments.len()).unwrap_or(u32::MAX);
        let number = *self.assignment_numbers.entry(assignments.clone()).or_insert(fresh);
        if number == fresh {
            self.tdfa.assignments.push(assignments);
        }
        number
    }
}
