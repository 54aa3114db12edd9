//! Minimisation: states that nobody can tell apart become one.
//!
//! Moore's refinement by hashing: two states are one when they accept the same with the same registers, and each class
//! leads to states that are one with the same steps. After register allocation, since transitions with different steps
//! are different letters. Cost: rounds × states × classes; rounds are bounded, and an unfinished refinement is not
//! used.

use crate::determinise::Tdfa;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Rounds after which it is given up.
const MAX_ROUNDS: usize = 4096;
/// Transitions looked at after which it is given up.
const MAX_WORK: usize = 400_000_000;

/// Merges states that are one; the dead state stays 0, the start is 1.
pub fn minimise(tdfa: &mut Tdfa) {
    let width = tdfa.class_count;
    let states = tdfa.accepts.len();
    let hasher = RandomState::new();
    let mut first: HashMap<_, u32> = HashMap::new();
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
        // Signatures of 128 bits: two hashes with different keys; a clash would merge states wrongly, at 2^-100.
        let other = RandomState::new();
        let mut numbers: HashMap<(u32, u64, u64), u32> = HashMap::new();
        let mut next = Vec::with_capacity(states);
        for state in 0..states {
            let row = &tdfa.next[state * width..][..width];
            let signature: Vec<(u32, u32)> =
                row.iter().map(|(target, steps)| (block[*target as usize], *steps)).collect();
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

fn merge(tdfa: &mut Tdfa, block: &[u32], count: usize) {
    let width = tdfa.class_count;
    let mut number = vec![u32::MAX; count];
    let mut members: Vec<usize> = Vec::with_capacity(count);
    for (state, block) in block.iter().enumerate() {
        // The start is state 1 even where it is one with the dead state.
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
