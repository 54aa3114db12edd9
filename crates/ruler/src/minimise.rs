//! Minimisation: merges states that are equivalent.
//!
//! Moore's refinement by hashing: two states are equivalent if they accept the same rules with the same registers,
//! and each class leads to equivalent states with the same steps. It runs after register allocation, since
//! transitions with different steps count as different letters. Cost: rounds × states × classes; rounds are
//! bounded, and the result of an unfinished refinement is not used.

use crate::determinise::Tdfa;
use crate::fold::Fold;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// Number of rounds after which it stops.
const MAX_ROUNDS: usize = 4096;
/// Number of transitions processed after which it stops.
const MAX_WORK: usize = 50_000_000;
/// Number of passes over the states that merge equal rows.
const ROW_PASSES: usize = 4;

/// Merges equivalent states; the dead state remains 0, the start is 1.
pub fn minimise(tdfa: &mut Tdfa) {
    merge_equal_rows(tdfa);
    let width = tdfa.class_count;
    let states = tdfa.accepts.len();
    let hasher = Fold::default();
    let mut first: HashMap<_, u32, Fold> = HashMap::default();
    let mut block: Vec<u32> = Vec::with_capacity(states);
    for accept in &tdfa.accepts {
        let fresh = u32::try_from(first.len()).unwrap_or(u32::MAX);
        block.push(*first.entry(accept).or_insert(fresh));
    }
    let mut count = first.len();
    drop(first);
    let mut work = 0;
    for round in 0.. {
        work += states * width;
        if round == MAX_ROUNDS || work > MAX_WORK {
            return;
        }
        // Signatures have 128 bits: two hashes with different keys. A collision would merge states wrongly; its
        // probability is 2^-100.
        let other = Fold::default();
        let mut numbers: HashMap<(u32, u64, u64), u32, Fold> = HashMap::default();
        let mut next = Vec::with_capacity(states);
        let mut signature: Vec<(u32, u32)> = Vec::with_capacity(width);
        for state in 0..states {
            let row = &tdfa.next[state * width..][..width];
            signature.clear();
            signature.extend(row.iter().map(|(target, steps)| (block[*target as usize], *steps)));
            let key = (block[state], hasher.hash_one(&signature), other.hash_one(&signature));
            let fresh = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            next.push(*numbers.entry(key).or_insert(fresh));
        }
        let refined = numbers.len();
        block = next;
        if refined == count {
            break;
        }
        count = refined;
    }
    merge(tdfa, &block, count);
}

/// Merges states with equal rows, the last first: chains, which layouts mostly produce, merge in one pass, where
/// the refinement would need as many rounds as the chain has states.
fn merge_equal_rows(tdfa: &mut Tdfa) {
    let width = tdfa.class_count;
    let states = tdfa.accepts.len();
    let (hasher, other) = (Fold::default(), Fold::default());
    let mut block: Vec<u32> = (0..u32::try_from(states).unwrap_or(u32::MAX)).collect();
    for _ in 0..ROW_PASSES {
        let mut known: HashMap<(u64, u64), u32, Fold> = HashMap::default();
        let mut merged = false;
        for state in (0..states).rev() {
            let row = &tdfa.next[state * width..][..width];
            let own = block[state];
            // A transition to the same state is compared as such.
            let target = |target: u32| {
                if block[target as usize] == own { u32::MAX } else { block[target as usize] }
            };
            let row: Vec<(u32, u32)> =
                row.iter().map(|(to, steps)| (target(*to), *steps)).collect();
            let key = (&tdfa.accepts[state], row);
            let key = (hasher.hash_one(&key), other.hash_one(&key));
            let first = *known.entry(key).or_insert(own);
            merged |= first != own;
            block[state] = first;
        }
        if !merged {
            break;
        }
    }
    // Numbers the blocks by their first state, the order that the merge needs.
    let mut numbers: HashMap<u32, u32, Fold> = HashMap::default();
    for block in &mut block {
        let fresh = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *block = *numbers.entry(*block).or_insert(fresh);
    }
    merge(tdfa, &block, numbers.len());
}

fn merge(tdfa: &mut Tdfa, block: &[u32], count: usize) {
    let width = tdfa.class_count;
    let mut number = vec![u32::MAX; count];
    let mut members: Vec<usize> = Vec::with_capacity(count);
    for (state, block) in block.iter().enumerate() {
        // The start is state 1 even if it is equivalent to the dead state.
        if number[*block as usize] == u32::MAX || state == 1 {
            if state != 1 || number[*block as usize] == u32::MAX {
                number[*block as usize] = u32::try_from(members.len()).unwrap_or(u32::MAX);
            }
            members.push(state);
        }
    }
    let target = |state: u32| number[block[state as usize] as usize];
    let next = members.iter().flat_map(|state| &tdfa.next[state * width..][..width]);
    let next: Vec<(u32, u32)> = next.map(|(state, steps)| (target(*state), *steps)).collect();
    tdfa.accepts = members.iter().map(|state| tdfa.accepts[*state].clone()).collect();
    tdfa.live = members.iter().map(|state| tdfa.live[*state].clone()).collect();
    tdfa.next = next;
}
