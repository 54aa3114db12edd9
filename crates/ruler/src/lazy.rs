//! A deterministic automaton built on demand, for rules with too large a full automaton: a state is built
//! when a packet first reaches it, and all states are dropped when there are too many.
//!
//! It finds which rule matches, not where its parts are: if names are needed, the simulation runs afterwards on
//! packets that match. A state is the sorted list of TNFA states. The states of a rule come after those of the
//! rules before it, so the list is cut after a rule that accepts every continuation.
//!
//! Cost: one look-up per byte in known states, in the worst case the states of the TNFA per byte; `CELLS`
//! transitions and `LIST_WORDS` words of lists per automaton, plus one state.

use crate::determinise::classes;
use crate::fold::Fold;
use crate::nfa::{Nfa, State, StateId};
use std::collections::HashMap;

/// Maximum number of transitions kept, and of words in all lists.
const CELLS: usize = 1 << 16;
const LIST_WORDS: usize = 1 << 18;
/// A transition that is not yet computed.
const UNKNOWN: u32 = u32::MAX;
/// The state from which nothing matches.
const DEAD: u32 = 0;

/// States built so far; one per thread.
#[derive(Debug)]
pub struct Lazy {
    classes: [u8; 256],
    width: usize,
    known: HashMap<Box<[StateId]>, u32, Fold>,
    states: Vec<Made>,
    next: Vec<u32>,
    seen: Vec<u32>,
    generation: u32,
    stack: Vec<StateId>,
    list_words: usize,
    /// List of the state under construction.
    list: Vec<StateId>,
}

#[derive(Debug)]
struct Made {
    list: Box<[StateId]>,
    /// Rule that is accepted if the packet ends here.
    accept: Option<u32>,
    /// True if that is the answer for every continuation.
    settled: bool,
}

impl Lazy {
    /// Creates it with the start state only.
    pub fn new(nfa: &Nfa) -> Lazy {
        let (classes, width) = classes(nfa);
        let mut lazy = Lazy {
            classes,
            width,
            known: HashMap::default(),
            states: Vec::new(),
            next: Vec::new(),
            seen: vec![0; nfa.states.len()],
            generation: 0,
            stack: Vec::new(),
            list_words: 0,
            list: Vec::new(),
        };
        lazy.begin(nfa);
        lazy
    }

    /// Adds the dead state and the start, which is state 1 unless nothing can match.
    fn begin(&mut self, nfa: &Nfa) {
        self.known.clear();
        self.states.clear();
        self.next.clear();
        self.list.clear();
        self.list_words = 0;
        self.add(nfa);
        self.new_generation();
        self.close(nfa, nfa.start);
        self.add(nfa);
    }

    /// Returns the first rule of the automaton that matches all of `bytes`.
    pub fn first_match(&mut self, nfa: &Nfa, bytes: &[u8]) -> Option<u32> {
        let mut state = if self.states.len() > 1 { 1 } else { DEAD };
        for byte in bytes {
            let cell = state as usize * self.width + usize::from(self.classes[usize::from(*byte)]);
            let next = self.next[cell];
            state = if next == UNKNOWN { self.step(nfa, state, *byte) } else { next };
            if state == DEAD || self.states[state as usize].settled {
                break;
            }
        }
        self.states[state as usize].accept
    }

    #[cold]
    fn step(&mut self, nfa: &Nfa, state: u32, byte: u8) -> u32 {
        self.new_generation();
        self.list.clear();
        let list = std::mem::take(&mut self.states[state as usize].list);
        for at in &list {
            if let State::Byte { set, next } = nfa.states[*at as usize]
                && nfa.sets[set as usize].contains(byte)
            {
                self.close(nfa, next);
            }
        }
        self.states[state as usize].list = list;
        self.list.sort_unstable();
        if self.next.len() >= CELLS || self.list_words >= LIST_WORDS {
            let list = std::mem::take(&mut self.list);
            self.begin(nfa);
            self.list = list;
            return self.add(nfa);
        }
        let next = self.add(nfa);
        self.next[state as usize * self.width + usize::from(self.classes[usize::from(byte)])] =
            next;
        next
    }

    fn new_generation(&mut self) {
        if self.generation == u32::MAX {
            self.seen.fill(0);
            self.generation = 0;
        }
        self.generation += 1;
    }

    fn close(&mut self, nfa: &Nfa, from: StateId) {
        self.stack.push(from);
        while let Some(at) = self.stack.pop() {
            if std::mem::replace(&mut self.seen[at as usize], self.generation) == self.generation {
                continue;
            }
            match &nfa.states[at as usize] {
                State::Split(targets) => self.stack.extend(targets),
                State::Tag { next, .. } => self.stack.push(*next),
                State::Byte { .. } | State::Match { .. } => self.list.push(at),
            }
        }
    }

    /// Returns the state of the list, known or new.
    fn add(&mut self, nfa: &Nfa) -> u32 {
        self.list.sort_unstable();
        let universal = self.list.iter().find(|at| nfa.universal[**at as usize]);
        let settling = universal.map(|at| nfa.owner[*at as usize]);
        if let Some(rule) = settling {
            // Later rules cannot win any more, and one path of the rule itself is enough.
            let accepts = |at: StateId| {
                nfa.universal[at as usize] || matches!(nfa.states[at as usize], State::Match { .. })
            };
            let owner = |at: StateId| nfa.owner[at as usize];
            self.list.retain(|at| owner(*at) < rule || (owner(*at) == rule && accepts(*at)));
        }
        if let Some(known) = self.known.get(&self.list[..]) {
            return *known;
        }
        let accept = self.list.iter().find_map(|at| match nfa.states[*at as usize] {
            State::Match { rule } => Some(rule),
            _ => None,
        });
        let first = self.list.first().map(|at| nfa.owner[*at as usize]);
        let settled = accept.is_some() && first == settling && accept == settling;
        self.list_words += self.list.len();
        let number = u32::try_from(self.states.len()).unwrap_or(DEAD);
        let list: Box<[StateId]> = self.list[..].into();
        self.known.insert(list.clone(), number);
        self.states.push(Made { list, accept, settled });
        self.next.resize(self.states.len() * self.width, UNKNOWN);
        number
    }
}
