//! The matcher of last resort: simulates all states of the TNFA in parallel, in order of preference (Pike's
//! machine).
//!
//! It serves rules with a deterministic automaton over the limits, and as a second reference in tests. Cost: at
//! most states × bytes; memory is bounded by the states and their tags.

use crate::nfa::{NONE, Nfa, State, StateId};

/// Working memory of a run; reused for the next packet.
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
    /// Generation in which a state was last added to the order.
    seen: Vec<u32>,
    generation: u32,
    /// Tags of the threads, `width` each, in order.
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

/// Finds the first rule of the automaton that matches all of `bytes`; stores its tags in `tags`.
pub fn first_match(nfa: &Nfa, room: &mut Room, bytes: &[u8], tags: &mut Vec<u32>) -> Option<u32> {
    let width = width(nfa);
    room.start(nfa, 0);
    room.feed(nfa, bytes, 0);
    let (number, rule) = accepted(nfa, &room.now.order)?;
    tags.clear();
    tags.extend_from_slice(&room.now.tags[number * width..][..width]);
    Some(rule)
}

/// Maximum number of tags of a rule.
fn width(nfa: &Nfa) -> usize {
    nfa.rules.iter().map(|rule| rule.tags as usize).max().unwrap_or(0)
}

/// Returns the first thread that accepts, and its rule.
fn accepted(nfa: &Nfa, order: &[StateId]) -> Option<(usize, u32)> {
    order.iter().enumerate().find_map(|(number, state)| match nfa.states[*state as usize] {
        State::Match { rule } => Some((number, rule)),
        _ => None,
    })
}

impl Room {
    fn start(&mut self, nfa: &Nfa, at: u32) {
        self.now.clear(nfa.states.len());
        self.scratch.clear();
        self.scratch.resize(width(nfa), NONE);
        follow(nfa, &mut self.now, &mut self.stack, &mut self.scratch, nfa.start, at);
    }

    /// Moves all threads over `bytes`, the first of which is at position `base`.
    fn feed(&mut self, nfa: &Nfa, bytes: &[u8], base: u32) {
        let Room { now, next, stack, scratch } = self;
        let width = width(nfa);
        for (at, byte) in (base..).zip(bytes) {
            if now.order.is_empty() {
                return;
            }
            next.clear(nfa.states.len());
            for (number, state) in now.order.iter().enumerate() {
                let State::Byte { set, next: target } = nfa.states[*state as usize] else {
                    continue;
                };
                if nfa.sets[set as usize].contains(*byte) {
                    scratch.copy_from_slice(&now.tags[number * width..][..width]);
                    follow(nfa, next, stack, scratch, target, at.saturating_add(1));
                }
                if nfa.universal[*state as usize] {
                    // This thread accepts every continuation: no later thread can win.
                    break;
                }
            }
            std::mem::swap(now, next);
        }
    }
}

/// Threads between two pieces of a stream.
#[derive(Debug, Clone)]
pub struct Suspended {
    order: Vec<StateId>,
    tags: Vec<u32>,
}

impl Suspended {
    /// Creates the threads at the start, which is at a position of the stream.
    pub fn new(nfa: &Nfa, at: u32) -> Suspended {
        let mut room = Room::default();
        room.start(nfa, at);
        Suspended { order: room.now.order, tags: room.now.tags }
    }

    /// Continues with more bytes, the first of which is at position `base`.
    pub fn feed(&mut self, nfa: &Nfa, room: &mut Room, bytes: &[u8], base: u32) {
        room.now.clear(nfa.states.len());
        room.scratch.clear();
        room.scratch.resize(width(nfa), NONE);
        std::mem::swap(&mut room.now.order, &mut self.order);
        std::mem::swap(&mut room.now.tags, &mut self.tags);
        room.feed(nfa, bytes, base);
        self.order.clone_from(&room.now.order);
        self.tags.clone_from(&room.now.tags);
    }

    /// Tags of the thread that wins if there are no more bytes.
    pub fn accepted(&self, nfa: &Nfa) -> Option<&[u32]> {
        let (number, _) = accepted(nfa, &self.order)?;
        let width = width(nfa);
        Some(&self.tags[number * width..][..width])
    }

    /// Returns true if some thread accepts every continuation.
    pub fn is_universal(&self, nfa: &Nfa) -> bool {
        self.order.iter().any(|state| nfa.universal[*state as usize])
    }

    /// Returns true if no byte can change the answer.
    pub fn is_done(&self, nfa: &Nfa) -> bool {
        self.order.first().is_none_or(|state| nfa.universal[*state as usize])
    }

    /// Memory of the threads in bytes.
    pub fn bytes(&self) -> usize {
        (self.order.len() + self.tags.len()) * 4
    }
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
