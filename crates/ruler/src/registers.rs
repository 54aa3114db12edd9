//! Register allocation: uses as few registers as there are positions in use at a time, and removes copies.
//!
//! The subset construction gives every new value a register of its own. Registers that are live in one state must
//! differ; both ends of a copy get the same register if possible. Assignments that no state needs are dropped. Then
//! the assignments of each transition, which happen simultaneously, are put into an order.
//!
//! Cost: registers × states in which they are live.

use crate::determinise::{Assignments, FinalTag, Tdfa, Value};
use std::collections::HashMap;

/// An assignment in order: destination and source; [`POSITION`] means the position.
pub type Step = (u16, u16);

/// Source of a [`Step`] that means the position of the current byte.
pub const POSITION: u16 = u16::MAX;

/// Error: more registers are live at a time than there are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

/// Renames registers and orders assignments; states and transitions do not change. Returns the steps, indexed by
/// the numbers in the transitions, and the number of registers.
pub fn allocate(tdfa: &mut Tdfa) -> Result<(Vec<Vec<Step>>, usize), TooMany> {
    let names = colour(tdfa)?;
    let temporary = names.iter().filter(|name| **name != u16::MAX).max().map_or(0, |most| most + 1);
    for accept in tdfa.accepts.iter_mut().flatten() {
        for tag in &mut accept.tags {
            if let FinalTag::Register(register) = tag {
                *register = u32::from(names[*register as usize]);
            }
        }
    }
    let mut numbers: HashMap<Vec<Step>, u32> = HashMap::from([(Vec::new(), 0)]);
    let mut steps = vec![Vec::new()];
    let renamed: Vec<u32> = tdfa
        .assignments
        .iter()
        .map(|assignments| {
            let order = order(assignments, &names, temporary);
            let fresh = u32::try_from(steps.len()).unwrap_or(u32::MAX);
            let number = *numbers.entry(order.clone()).or_insert(fresh);
            if number == fresh {
                steps.push(order);
            }
            number
        })
        .collect();
    for (_, assignments) in &mut tdfa.next {
        *assignments = renamed[*assignments as usize];
    }
    Ok((steps, usize::from(temporary) + 1))
}

/// Assigns a number to each register, so that those live in one state differ.
fn colour(tdfa: &Tdfa) -> Result<Vec<u16>, TooMany> {
    const NONE: u16 = u16::MAX;
    let mut names = vec![NONE; tdfa.registers as usize];
    let mut states_of: HashMap<u32, Vec<u32>> = HashMap::new();
    for (state, live) in (0u32..).zip(&tdfa.live) {
        for register in live {
            states_of.entry(*register).or_default().push(state);
        }
    }
    let mut wanted: HashMap<u32, Vec<u32>> = HashMap::new();
    for (destination, value) in tdfa.assignments.iter().flatten() {
        if let Value::Register(source) = value {
            wanted.entry(*destination).or_default().push(*source);
            wanted.entry(*source).or_default().push(*destination);
        }
    }
    for live in &tdfa.live {
        for register in live.iter().copied() {
            if names[register as usize] != NONE {
                continue;
            }
            let mut taken: Vec<u16> = states_of[&register]
                .iter()
                .flat_map(|state| &tdfa.live[*state as usize])
                .map(|other| names[*other as usize])
                .filter(|name| *name != NONE)
                .collect();
            taken.sort_unstable();
            taken.dedup();
            let free = |name: &u16| *name != NONE && taken.binary_search(name).is_err();
            let partners = wanted.get(&register).into_iter().flatten();
            let partner = partners.map(|partner| names[*partner as usize]).find(free);
            let lowest = (0..NONE - 1).find(free).ok_or(TooMany)?;
            names[register as usize] = partner.unwrap_or(lowest);
        }
    }
    // A register that is live nowhere is never read; its number does not matter.
    Ok(names)
}

/// Puts simultaneous assignments into an order: a register is written once no other assignment has to read it; a
/// cycle is broken with the temporary register.
fn order(assignments: &Assignments, names: &[u16], temporary: u16) -> Vec<Step> {
    let mut copies: Vec<Step> = Vec::new();
    let mut positions: Vec<Step> = Vec::new();
    for (destination, value) in assignments {
        let destination = names[*destination as usize];
        match value {
            _ if destination == u16::MAX => {}
            Value::Position => positions.push((destination, POSITION)),
            Value::Register(source) => {
                let source = names[*source as usize];
                if source != destination && source != u16::MAX {
                    copies.push((destination, source));
                }
            }
        }
    }
    let mut steps = Vec::new();
    while let Some((last_to, last_from)) = copies.last().copied() {
        let ready = copies.iter().position(|(to, _)| copies.iter().all(|(_, from)| from != to));
        match ready {
            Some(at) => steps.push(copies.swap_remove(at)),
            None => {
                steps.push((temporary, last_from));
                copies.pop();
                copies.push((last_to, temporary));
            }
        }
    }
    // Positions come last: a copy may still read their registers.
    positions.dedup();
    steps.extend(positions);
    steps
}
