//! One filter, ready to match: which rule a packet meets, and what its slots are.
//!
//! 1. Rules that may begin anywhere and need certain bytes stand behind a `Gate`; those with the same bytes share an
//!    automaton, and those that are nothing but these bytes need none.
//! 2. All others are one deterministic automaton as long as that has at most [`Limits::states`] states. When it would
//!    have more, each rule gets its own, and neighbours are joined as long as the states do not multiply.
//! 3. The states of a rule that is too large by itself, or comes when [`Limits::bytes`] are spent, are made when
//!    packets come to them, a bounded number at a time.
//!
//! Automata behind the gate are made when the first packet needs them once there are more than [`Limits::eager`]. The
//! first rule wins whatever was done; what was done is in [`Matcher::parts`], for `fyke ruler check`.

use crate::byte_set::ByteSet;
use crate::dense::{Dense, Registers};
use crate::determinise::{Exploded, Tdfa, determinise};
use crate::fold::Fold;
use crate::gate::{Also, Gate, MIN_RUN, MIN_VECTOR_RUN, Needed, by_vectors, needed_run};
use crate::lazy::Lazy;
use crate::minimise::minimise;
use crate::nfa::{Nfa, TooLarge};
use crate::node::Node;
use crate::pike;
use crate::program::Rule;
use crate::registers::allocate;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Bounds of a matcher.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// States of the non-deterministic automaton of one part, and positions of all rules together.
    pub nfa_states: usize,
    /// States of a deterministic automaton.
    pub states: usize,
    /// Configurations looked at while making one automaton.
    pub work: usize,
    /// Bytes of the tables of all parts; what comes later is made lazily.
    pub bytes: usize,
    /// Most groups behind the gate whose automata are made at once.
    pub eager: usize,
    /// Whether there may be a gate. Without, all that is possible is in one automaton, as one draws it.
    pub gate: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            nfa_states: 4 << 20,
            states: 8192,
            work: 2_000_000,
            bytes: 192 << 20,
            eager: 512,
            gate: true,
        }
    }
}

/// What an automaton behind the gate may have: there are many, and few packets come to them.
const GATED_STATES: usize = 512;
const GATED_WORK: usize = 20_000;

/// The automata of a filter.
#[derive(Debug)]
pub struct Matcher {
    /// Parts that every packet is given to, in the order of their rules.
    parts: Vec<Part>,
    gate: Option<Gate>,
    /// Behind the gate, by the number of the run that they need.
    groups: Vec<Group>,
    /// Rules that an earlier one with the same bytes always beats.
    beaten: Vec<u32>,
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

/// Rules that need the same bytes.
#[derive(Debug)]
struct Group {
    /// Which rules, in order.
    numbers: Vec<u32>,
    /// Whether the bytes are all that the first rule needs.
    decisive: bool,
    /// Whether all rules begin with any bytes and then these: no match begins before they stand for the first time.
    leads: bool,
    /// Other bytes that all rules need.
    also: Option<Also>,
    /// The rules themselves, until the automata are made.
    rules: Vec<Rule>,
    limits: Limits,
    parts: OnceLock<Vec<Part>>,
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

    /// Bytes of its tables.
    pub fn bytes(&self) -> usize {
        match &self.engine {
            Engine::Dense(dense) => dense.bytes(),
            Engine::Lazy => self.nfa.bytes(),
        }
    }

    /// The first rule that matches all of `bytes`; what is before `from` is any bytes to all of them.
    fn first_match(&self, room: &mut Room, bytes: &[u8], from: usize) -> Option<u32> {
        let rule = match &self.engine {
            Engine::Dense(dense) => {
                dense.first_match(bytes, from, &mut room.registers, &mut room.tags)?
            }
            Engine::Lazy => {
                let lazy = room.lazy.entry(self.rules[0]).or_insert_with(|| Lazy::new(&self.nfa));
                let rule = lazy.first_match(&self.nfa, &bytes[from..])?;
                if self.nfa.rules[rule as usize].tags > 0 {
                    pike::first_match(&self.nfa, &mut room.pike, bytes, &mut room.tags)?;
                }
                rule
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
    /// By a deterministic automaton whose states are made when packets come to them; names by following all ways at
    /// once.
    Lazy,
}

impl Group {
    fn new(decisive: bool, limits: Limits) -> Group {
        let (numbers, rules) = (Vec::new(), Vec::new());
        Group { numbers, decisive, leads: true, also: None, rules, limits, parts: OnceLock::new() }
    }

    fn parts(&self) -> &[Part] {
        self.parts.get_or_init(|| {
            let own: Vec<u32> = (0u32..).take(self.rules.len()).collect();
            let mut budget = self.limits.bytes;
            let mut parts = Vec::new();
            add(&self.rules, &own, self.limits, &mut budget, &mut parts);
            for part in &mut parts {
                for rule in &mut part.rules {
                    *rule = self.numbers[*rule as usize];
                }
            }
            parts
        })
    }
}

/// Room for runs of a matcher; one per thread.
#[derive(Debug, Default)]
pub struct Room {
    pike: pike::Room,
    /// States made so far, by the first rule of the part.
    lazy: HashMap<u32, Lazy, Fold>,
    registers: Registers,
    tags: Vec<u32>,
    /// Tags of the winner so far, while others are tried.
    won: Vec<u32>,
    /// Groups whose bytes are in the packet, and where first.
    found: Vec<(u32, usize)>,
    /// Where the winner's slots are.
    winner: Winner,
    /// The winner's number in its part.
    rule: u32,
}

#[derive(Debug, Clone, Copy, Default)]
enum Winner {
    /// A part that every packet is given to.
    #[default]
    First,
    Part(u32),
    /// A part of a group.
    Group(u32, u32),
    /// The first rule of a group, decided by the gate: nobody needs slots.
    Decided,
}

impl Matcher {
    /// Makes the automata of `rules`.
    ///
    /// # Errors
    /// When a rule would be over a limit even by itself, or all together are.
    pub fn new(rules: &[Rule], limits: Limits) -> Result<Matcher, TooLarge> {
        check_size(rules, limits)?;
        let mut matcher =
            Matcher { parts: Vec::new(), gate: None, groups: Vec::new(), beaten: Vec::new() };
        let others = matcher.put_behind_gate(rules, limits);
        let mut budget = limits.bytes;
        if !others.is_empty() {
            add(rules, &others, limits, &mut budget, &mut matcher.parts);
        }
        let share = budget / matcher.groups.len().max(1);
        for group in &mut matcher.groups {
            group.limits.bytes = share.max(1 << 14);
            group.limits.states = limits.states.min(GATED_STATES);
            group.limits.work = limits.work.min(GATED_WORK);
        }
        if matcher.groups.len() <= limits.eager {
            matcher.groups.iter().filter(|group| !group.decisive).for_each(|group| {
                group.parts();
            });
        }
        Ok(matcher)
    }

    /// Groups the rules that need certain bytes; gives the others.
    fn put_behind_gate(&mut self, rules: &[Rule], limits: Limits) -> Vec<u32> {
        let needed = |rule: &Rule| {
            let may = limits.gate && floats(&rule.pattern);
            if may { needed_run(&rule.pattern, MIN_VECTOR_RUN) } else { None }
        };
        let needed: Vec<Option<Needed>> = rules.iter().map(needed).collect();
        let mut places: HashMap<&[ByteSet], usize> = HashMap::new();
        let mut runs: Vec<Vec<ByteSet>> = Vec::new();
        for Needed { run, .. } in needed.iter().flatten() {
            places.entry(run).or_insert_with(|| {
                runs.push(run.clone());
                runs.len() - 1
            });
        }
        let least = if by_vectors(&runs) { MIN_VECTOR_RUN } else { MIN_RUN };
        places.clear();
        runs.clear();
        let mut others = Vec::new();
        for ((number, rule), needed) in (0u32..).zip(rules).zip(&needed) {
            let Some(needed) = needed.as_ref().filter(|needed| needed.run.len() >= least) else {
                others.push(number);
                continue;
            };
            let decisive = needed.decisive && !rule.used.contains(&true);
            let place = *places.entry(&needed.run).or_insert_with(|| {
                runs.push(needed.run.clone());
                self.groups.push(Group::new(decisive, limits));
                self.groups.len() - 1
            });
            let group = &mut self.groups[place];
            group.leads &= needed.leads;
            group.also = needed.also.clone().filter(|_| group.numbers.is_empty());
            if group.decisive && !group.numbers.is_empty() {
                self.beaten.push(number);
            } else {
                group.numbers.push(number);
                group.rules.push(rule.clone());
            }
        }
        self.gate = (!runs.is_empty()).then(|| Gate::new(&runs));
        others
    }

    /// How the rules are matched that every packet is compared with.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// How the rules are matched that need bytes which few packets have; what has not been made yet is made now.
    pub fn gated(&self) -> impl Iterator<Item = &Part> {
        self.groups.iter().filter(|group| !group.decisive).flat_map(Group::parts)
    }

    /// Rules behind the gate that never win, since an earlier one takes all that has their bytes.
    pub fn beaten(&self) -> &[u32] {
        &self.beaten
    }

    /// Rules that the scan for bytes decides alone.
    pub fn decided(&self) -> usize {
        self.groups.iter().filter(|group| group.decisive).count()
    }

    /// Memory of the gate.
    pub fn gate_bytes(&self) -> usize {
        self.gate.as_ref().map_or(0, Gate::bytes)
    }

    /// How the gate scans, for people.
    pub fn gate(&self) -> Option<String> {
        self.gate.as_ref().map(Gate::describe)
    }

    /// The first rule that matches all of `bytes`. Its slots can be asked for until the next call.
    #[inline]
    pub fn first_match(&self, room: &mut Room, bytes: &[u8]) -> Option<usize> {
        let mut best = u32::MAX;
        for (number, part) in (0u32..).zip(&self.parts) {
            if let Some(rule) = part.first_match(room, bytes, 0) {
                room.winner = Winner::Part(number);
                best = rule;
                break;
            }
        }
        if let Some(gate) = &self.gate {
            best = self.through_gate(gate, room, bytes, best);
        }
        (best != u32::MAX).then_some(best as usize)
    }

    /// The best of `best` and the rules behind the gate.
    fn through_gate(&self, gate: &Gate, room: &mut Room, bytes: &[u8], best: u32) -> u32 {
        let mut found = std::mem::take(&mut room.found);
        found.clear();
        let mut decided = best;
        // Groups come in the order of their first rules.
        let mut bound = u32::MAX;
        if best != u32::MAX {
            let before = self.groups.partition_point(|group| group.numbers[0] < best);
            bound = u32::try_from(before).unwrap_or(u32::MAX);
        }
        gate.scan(bytes, bound, &mut |run, at| {
            let group = &self.groups[run as usize];
            if group.decisive {
                decided = group.numbers[0];
                bound = run;
            } else if found.last().is_none_or(|(last, _)| *last != run) {
                found.push((run, at));
            }
            bound
        });
        if decided < best {
            room.winner = Winner::Decided;
        }
        let mut winner = decided;
        if !found.is_empty() {
            // By run; of several places of one, the first.
            found.sort_unstable();
            found.dedup_by_key(|(run, _)| *run);
            winner = self.groups_of(&found, room, bytes, decided);
        }
        room.found = found;
        winner
    }

    /// The best of `best` and the groups whose bytes were found.
    fn groups_of(
        &self,
        found: &[(u32, usize)],
        room: &mut Room,
        bytes: &[u8],
        mut best: u32,
    ) -> u32 {
        for (number, at) in found {
            let group = &self.groups[*number as usize];
            if group.numbers[0] >= best {
                break;
            }
            let also = group.also.as_ref().map_or(Some(0), |also| also.earliest(bytes));
            let Some(from) = also else { continue };
            let from = if group.leads { *at } else { from };
            for (at, part) in (0u32..).zip(group.parts()) {
                if part.rules[0] >= best {
                    break;
                }
                let rule = room.rule;
                std::mem::swap(&mut room.won, &mut room.tags);
                match part.first_match(room, bytes, from) {
                    Some(found) if found < best => {
                        best = found;
                        room.winner = Winner::Group(*number, at);
                        break;
                    }
                    _ => {
                        std::mem::swap(&mut room.won, &mut room.tags);
                        room.rule = rule;
                    }
                }
            }
        }
        best
    }

    /// The first rules of several packets, several at a time where that is faster; slots cannot be asked for.
    pub fn first_matches(&self, room: &mut Room, packets: &[&[u8]], found: &mut [Option<usize>]) {
        if let ([part], None) = (&self.parts[..], &self.gate)
            && let Engine::Dense(dense) = &part.engine
        {
            dense.each_state(packets, &mut room.registers, |packet, state| {
                let accept = dense.accept(state);
                found[packet] = accept.map(|accept| part.rules[accept.rule as usize] as usize);
            });
            return;
        }
        for (packet, found) in packets.iter().zip(found) {
            *found = self.first_match(room, packet);
        }
    }

    /// A slot of the rule that was found for a packet of `len` bytes; none when its part of the pattern was not used,
    /// or the rule's action does not need it.
    #[inline]
    pub fn slot(&self, room: &Room, slot: u32, len: usize) -> Option<(usize, usize)> {
        let part = match room.winner {
            Winner::First => self.parts.first()?,
            Winner::Part(number) => &self.parts[number as usize],
            Winner::Group(group, part) => &self.groups[group as usize].parts()[part as usize],
            Winner::Decided => return None,
        };
        part.nfa.rules[room.rule as usize].span(slot, &room.tags, len)
    }
}

/// Refuses rules that have too many positions, and says which is to blame.
fn check_size(rules: &[Rule], limits: Limits) -> Result<(), TooLarge> {
    let narrow = |cost: u64| usize::try_from(cost).unwrap_or(usize::MAX);
    let costs = rules.iter().map(|rule| rule.pattern.cost().saturating_add(2));
    let (mut all, mut largest) = (0u64, (0, 0));
    for (number, cost) in costs.enumerate() {
        all = all.saturating_add(cost);
        if cost > largest.1 {
            largest = (number, cost);
        }
        if all > limits.nfa_states as u64 {
            let (rule, own) = (largest.0, narrow(largest.1));
            return Err(TooLarge { states: narrow(all), limit: limits.nfa_states, rule, own });
        }
    }
    Ok(())
}

/// Whether a pattern may begin anywhere: where it does not, an automaton soon knows that it does not match.
fn floats(node: &Node) -> bool {
    match node {
        Node::Sequence(nodes) => nodes.first().is_some_and(floats),
        Node::Capture(_, node) => floats(node),
        Node::Repeat { max: None, .. } => true,
        _ => false,
    }
}

fn whole(rules: &[Rule], numbers: &[u32], limits: Limits, budget: usize) -> Result<Part, Box<Nfa>> {
    // All rules together are within the limit on positions.
    let nfa = Nfa::build(rules, numbers);
    match dense(&nfa, limits).ok().filter(|dense| dense.bytes() <= budget) {
        Some(dense) => {
            // What a deterministic automaton still needs of it is where the slots are.
            let (states, universal, owner) = (Vec::new(), Vec::new(), Vec::new());
            let nfa = Nfa { states, universal, owner, ..nfa };
            Ok(Part { rules: numbers.to_vec(), engine: Engine::Dense(dense), nfa })
        }
        None => Err(Box::new(nfa)),
    }
}

/// Makes the automata of some rules: one, or one for each whose neighbours are joined while that stays small.
fn add(rules: &[Rule], numbers: &[u32], limits: Limits, budget: &mut usize, parts: &mut Vec<Part>) {
    match whole(rules, numbers, limits, *budget) {
        Ok(part) => {
            *budget = budget.saturating_sub(part.bytes());
            parts.push(part);
            return;
        }
        Err(nfa) if numbers.len() == 1 => {
            parts.push(Part { rules: numbers.to_vec(), engine: Engine::Lazy, nfa: *nfa });
            return;
        }
        Err(_) => {}
    }
    let mut row: Vec<Part> = Vec::new();
    for number in numbers {
        let part = whole(rules, &[*number], limits, *budget).unwrap_or_else(|nfa| Part {
            rules: vec![*number],
            engine: Engine::Lazy,
            nfa: *nfa,
        });
        *budget = budget.saturating_sub(part.bytes());
        row.push(part);
    }
    let mut joined = true;
    while joined && row.len() > 1 {
        joined = false;
        let mut next: Vec<Part> = Vec::new();
        let mut left = row.into_iter().peekable();
        while let Some(first) = left.next() {
            let pair = left.next_if(|second| joint_limits(&first, second, limits).is_some());
            let Some(second) = pair else {
                next.push(first);
                continue;
            };
            let both: Vec<u32> = first.rules.iter().chain(&second.rules).copied().collect();
            let tight = joint_limits(&first, &second, limits).unwrap_or(limits);
            match whole(rules, &both, tight, *budget) {
                Ok(part) => {
                    *budget =
                        (*budget + first.bytes() + second.bytes()).saturating_sub(part.bytes());
                    next.push(part);
                    joined = true;
                }
                Err(_) => next.extend([first, second]),
            }
        }
        row = next;
    }
    parts.append(&mut row);
}

/// How large two parts may be together: not much more than both, or their states have multiplied.
fn joint_limits(first: &Part, second: &Part, limits: Limits) -> Option<Limits> {
    let (Engine::Dense(first), Engine::Dense(second)) = (&first.engine, &second.engine) else {
        return None;
    };
    let states = (2 * (first.states() + second.states()) + 64).min(limits.states);
    Some(Limits { states, work: (states * 200).min(limits.work), ..limits })
}

fn dense(nfa: &Nfa, limits: Limits) -> Result<Dense, Exploded> {
    let mut tdfa: Tdfa = determinise(nfa, limits.states, limits.work)?;
    let (steps, registers) =
        allocate(&mut tdfa).map_err(|_| Exploded { states: tdfa.accepts.len() })?;
    minimise(&mut tdfa);
    Ok(Dense::new(&tdfa, steps, registers))
}
