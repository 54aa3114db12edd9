//! The matcher of last resort: all states of the TNFA side by side, in order of preference (Pike's machine).
//!
//! For rules whose deterministic automaton is over the limits, and as a second opinion in tests. Cost: states × bytes
//! at worst, never more; memory is bounded by the states and their tags.

use crate::nfa::{NONE, Nfa, State, StateId};

/// Room for a run; kept between packets.
#[derive(Debug, Default)]
pub struct Room {
    now: Threads,
    next: Threads,
    stack: Vec<Step>,
    scratch: Vec<u32>,
}

/// Threads in order of preference, at most one per state.
#[derive(Debug, Default)]
struct Threads {
    order: Vec<StateId>,
    /// Generation at which a state was last put into the order.
    seen: Vec<u32>,
    generation: u32,
    /// Tags of the threads, `width` each, in the order.
    tags: Vec<u32>,
}

#[derive(Debug)]
enum Step {
    Visit(StateId),
    Restore(u32, u32),
}

impl Threads {
    fn clear(&mut self, states: usize) {
        self.order.clear();
        self.tags.clear();
        if self.seen.len() != states || self.generation == u32::MAX {
            self.seen = vec![0; states];
            self.generation = 0;
        }
        self.generation += 1;
    }
}

/// The first rule of the automaton that matches all of `bytes`; its tags go to `tags`.
pub fn first_match(nfa: &Nfa, room: &mut Room, bytes: &[u8], tags: &mut Vec<u32>) -> Option<u32> {
    let width = nfa.rules.iter().map(|rule| rule.tags as usize).max().unwrap_or(0);
    room.now.clear(nfa.states.len());
    room.scratch.clear();
    room.scratch.resize(width, NONE);
    let Room { now, next, stack, scratch } = room;
    follow(nfa, now, stack, scratch, nfa.start, 0);
    for (at, byte) in bytes.iter().enumerate() {
        next.clear(nfa.states.len());
        for (number, state) in now.order.iter().enumerate() {
            let State::Byte { set, next: target } = nfa.states[*state as usize] else { continue };
            if nfa.sets[set as usize].contains(*byte) {
                scratch.copy_from_slice(&now.tags[number * width..][..width]);
                let position = u32::try_from(at + 1).unwrap_or(NONE - 1);
                follow(nfa, next, stack, scratch, target, position);
            }
            if nfa.universal[*state as usize] {
                // This thread accepts whatever comes: nothing after it can win.
                break;
            }
        }
        std::mem::swap(now, next);
        if now.order.is_empty() {
            return None;
        }
    }
    for (number, state) in now.order.iter().enumerate() {
        if let State::Match { rule } = nfa.states[*state as usize] {
            tags.clear();
            tags.extend_from_slice(&now.tags[number * width..][..width]);
            return Some(rule);
        }
    }
    None
}

fn follow(
    nfa: &Nfa,
    threads: &mut Threads,
    stack: &mut Vec<Step>,
    tags: &mut [u32],
    start: StateId,
    position: u32,
) {
    stack.push(Step::Visit(start));
    while let Some(step) = stack.pop() {
        let state = match step {
            Step::Restore(tag, value) => {
                tags[tag as usize] = value;
                continue;
            }
            Step::Visit(state) => state,
        };
        let seen = &mut threads.seen[state as usize];
        if *seen == threads.generation {
            continue;
        }
        *seen = threads.generation;
        match &nfa.states[state as usize] {
            State::Split(targets) => {
                stack.extend(targets.iter().rev().map(|target| Step::Visit(*target)));
            }
            State::Tag { tag, next } => {
                stack.push(Step::Restore(*tag, tags[*tag as usize]));
                tags[*tag as usize] = position;
                stack.push(Step::Visit(*next));
            }
            State::Byte { .. } | State::Match { .. } => {
                threads.order.push(state);
                threads.tags.extend_from_slice(tags);
            }
        }
    }
}
