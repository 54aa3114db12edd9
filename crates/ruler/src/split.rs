//! Assigns rules to automata: one for all, one per filter, or neighbours joined while their states do not multiply
//! (the thesis' state explosion, solved by splitting). Cost: as [`determinise`], once more for each attempt that
//! exceeds a limit.

use crate::dense::Dense;
use crate::determinise::{Exploded, Tdfa, determinise};
use crate::matcher::{Engine, Limits, Part};
use crate::minimise::minimise;
use crate::nfa::{Nfa, TooLarge};
use crate::program::Rule;
use crate::registers::allocate;
use std::time::Instant;

/// Rules, and the filter of each, in ascending order.
#[derive(Clone, Copy)]
pub struct Source<'r> {
    pub rules: &'r [Rule],
    pub filters: &'r [u32],
}

/// Remaining budget for automata.
pub struct Budget {
    /// Bytes of their tables.
    pub bytes: usize,
    until: Instant,
}

impl Budget {
    /// The whole budget that the limits allow.
    pub fn new(limits: Limits) -> Budget {
        Budget { bytes: limits.bytes, until: Instant::now() + limits.time }
    }
}

/// Refuses rules that have too many positions, and reports the largest rule.
pub fn check_size(rules: &[Rule], limits: Limits) -> Result<(), TooLarge> {
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

/// Builds one automaton of all of these rules, if it is within the limits.
fn whole(
    source: Source<'_>,
    numbers: &[u32],
    limits: Limits,
    budget: &Budget,
) -> Result<Part, Box<Nfa>> {
    let mut nfa = Nfa::build(source.rules, numbers);
    nfa.filters = numbers.iter().map(|number| source.filters[*number as usize]).collect();
    let in_time = Instant::now() < budget.until;
    let dense = in_time.then(|| dense(&nfa, limits).ok()).flatten();
    match dense.filter(|dense| dense.bytes() <= budget.bytes) {
        Some(dense) => {
            // A deterministic automaton needs only the slots of it from here on.
            let (states, universal, owner) = (Vec::new(), Vec::new(), Vec::new());
            let nfa = Nfa { states, universal, owner, ..nfa };
            Ok(Part::new(numbers.to_vec(), Engine::Dense(dense), nfa))
        }
        None => Err(Box::new(nfa)),
    }
}

/// Builds the automata of some rules: one, or one for each filter or rule, of which neighbours are joined while the
/// result stays small.
pub fn add(
    source: Source<'_>,
    numbers: &[u32],
    limits: Limits,
    budget: &mut Budget,
    parts: &mut Vec<Part>,
) {
    let lazy = |nfa: Box<Nfa>, number: &u32| Part::new(vec![*number], Engine::Lazy, *nfa);
    let filter = |number: &u32| source.filters[*number as usize];
    let one_filter = filter(&numbers[0]) == filter(&numbers[numbers.len() - 1]);
    let cost = |number: &u32| source.rules[*number as usize].pattern.cost();
    let positions = numbers.iter().map(cost).fold(0, u64::saturating_add);
    // The rules of one filter are within the limit on positions already.
    if one_filter || positions <= limits.nfa_states as u64 {
        match whole(source, numbers, limits, budget) {
            Ok(part) => {
                budget.bytes = budget.bytes.saturating_sub(part.bytes());
                parts.push(part);
                return;
            }
            Err(nfa) if numbers.len() == 1 => return parts.push(lazy(nfa, &numbers[0])),
            Err(_) => {}
        }
    }
    let mut row: Vec<Part> = Vec::new();
    if one_filter {
        for number in numbers {
            let part = whole(source, &[*number], limits, budget);
            let part = part.unwrap_or_else(|nfa| lazy(nfa, number));
            budget.bytes = budget.bytes.saturating_sub(part.bytes());
            row.push(part);
        }
    } else {
        for own in numbers.chunk_by(|a, b| filter(a) == filter(b)) {
            add(source, own, limits, budget, &mut row);
        }
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
            match whole(source, &both, tight, budget) {
                Ok(part) => {
                    let freed = first.bytes() + second.bytes();
                    budget.bytes = (budget.bytes + freed).saturating_sub(part.bytes());
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

/// Limits of a joint automaton of two parts: not much larger than both, or their states have multiplied. Parts of
/// two filters may be as large as a single one may be, since joining them saves a pass over every packet.
fn joint_limits(first: &Part, second: &Part, limits: Limits) -> Option<Limits> {
    let several = first.filters() + second.filters() > 2 || first.filter() != second.filter();
    let (Engine::Dense(first), Engine::Dense(second)) = (&first.engine, &second.engine) else {
        return None;
    };
    if several {
        return Some(limits);
    }
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
