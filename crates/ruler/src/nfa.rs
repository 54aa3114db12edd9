//! The tagged non-deterministic automaton (TNFA) of a list of rules.
//!
//! Built from the end, so that every state knows its successors; one state per byte set of the rules, with bounded
//! repetitions expanded. The order of a split is the order of preference, and the first split is over the rules:
//! this alone implements "first rule wins" and "shortest first".
//!
//! A position that an action needs costs a tag only if it has no constant distance from a known position: the start
//! of the packet, its end, or another tag of the same branch (fixed tags; Borsotti and Trafimovich 2022). So
//! nothing inside headers of fixed length needs a tag.

use crate::byte_set::ByteSet;
use crate::node::Node;
use crate::program::Rule;
use std::collections::HashMap;

/// Number of a state.
pub type StateId = u32;

/// A state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Takes a byte of a set.
    Byte {
        /// Index into [`Nfa::sets`].
        set: u32,
        /// Next state.
        next: StateId,
    },
    /// Continues at any of these; the first is preferred.
    Split(Vec<StateId>),
    /// Stores the position.
    Tag {
        /// Index into the tags of the rule.
        tag: u32,
        /// Next state.
        next: StateId,
    },
    /// Accepts the rule at the end of the packet.
    Match {
        /// Number of the rule.
        rule: u32,
    },
}

/// A position, relative to a known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Number of bytes after the start of the packet.
    Start(u32),
    /// Number of bytes before its end.
    End(u32),
    /// Number of bytes after a tag.
    Tag(u32, i32),
}

/// Tags and slots of a rule.
#[derive(Debug, Clone, Default)]
pub struct RuleTags {
    /// First and last position of each slot; none for slots that are not used.
    pub slots: Vec<Option<(Place, Place)>>,
    /// Number of tags of the rule.
    pub tags: u32,
}

/// The automaton.
#[derive(Debug, Clone)]
pub struct Nfa {
    /// All states.
    pub states: Vec<State>,
    /// Byte sets of the states.
    pub sets: Vec<ByteSet>,
    /// Start state.
    pub start: StateId,
    /// Tags and slots per rule.
    pub rules: Vec<RuleTags>,
    /// Filter of each rule, in ascending order; the first rule of each filter that matches wins.
    pub filters: Vec<u32>,
    /// True for states from which every continuation matches.
    pub universal: Vec<bool>,
    /// Rule that a state belongs to.
    pub owner: Vec<u32>,
}

/// Error: the rules have more positions than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// Positions of the rules up to this one.
    pub states: usize,
    /// The limit.
    pub limit: usize,
    /// The rule with the most positions.
    pub rule: usize,
    /// Number of its positions.
    pub own: usize,
}

impl Nfa {
    /// Builds the automaton of the rules with these numbers, in that order. It has about as many states as the sum
    /// of [`Node::cost`], which the caller has bounded.
    pub fn build(rules: &[Rule], numbers: &[u32]) -> Nfa {
        let mut builder = Builder::default();
        let mut starts = Vec::new();
        let mut all_tags = Vec::new();
        for (at, number) in numbers.iter().enumerate() {
            let rule = &rules[*number as usize];
            builder.rule = u32::try_from(at).unwrap_or(u32::MAX);
            builder.real.clear();
            let tags = Tagger::tags(rule, &mut builder.real);
            let end =
                builder.push(State::Match { rule: u32::try_from(at).unwrap_or(u32::MAX) }, true);
            starts.push(builder.node(&rule.pattern, end));
            all_tags.push(tags);
        }
        let start = builder.push(State::Split(starts), false);
        Nfa {
            states: builder.states,
            sets: builder.sets,
            start,
            filters: vec![0; all_tags.len()],
            rules: all_tags,
            universal: builder.universal,
            owner: builder.owner,
        }
    }

    /// Memory of the states in bytes.
    pub fn bytes(&self) -> usize {
        let split = |state: &State| match state {
            State::Split(targets) => targets.len() * size_of::<StateId>(),
            _ => 0,
        };
        let splits: usize = self.states.iter().map(split).sum();
        self.states.len() * (size_of::<State>() + 5) + splits + self.sets.len() * 32
    }
}

/// Ends of slots that are real tags.
type Real = HashMap<(u32, bool), u32>;

#[derive(Default)]
struct Builder {
    states: Vec<State>,
    /// True if the end of the packet can be accepted here.
    accepts: Vec<bool>,
    universal: Vec<bool>,
    owner: Vec<u32>,
    rule: u32,
    sets: Vec<ByteSet>,
    set_numbers: HashMap<ByteSet, u32>,
    /// Real tags of the current rule: slot, and true for the opening end.
    real: Real,
}

impl Builder {
    fn push(&mut self, state: State, accepts: bool) -> StateId {
        self.states.push(state);
        self.accepts.push(accepts);
        self.universal.push(false);
        self.owner.push(self.rule);
        u32::try_from(self.states.len() - 1).unwrap_or(u32::MAX)
    }

    fn byte(&mut self, set: ByteSet, next: StateId) -> StateId {
        let sets = &mut self.sets;
        let set = *self.set_numbers.entry(set).or_insert_with(|| {
            sets.push(set);
            u32::try_from(sets.len() - 1).unwrap_or(u32::MAX)
        });
        self.push(State::Byte { set, next }, false)
    }

    fn split(&mut self, targets: Vec<StateId>) -> StateId {
        let accepts = targets.iter().any(|target| self.accepts[*target as usize]);
        self.push(State::Split(targets), accepts)
    }

    fn tag(&mut self, slot: u32, open: bool, next: StateId) -> StateId {
        match self.real.get(&(slot, open)) {
            None => next,
            Some(tag) => {
                let accepts = self.accepts[next as usize];
                self.push(State::Tag { tag: *tag, next }, accepts)
            }
        }
    }

    fn node(&mut self, node: &Node, next: StateId) -> StateId {
        match node {
            Node::Empty => next,
            Node::Set(set) => self.byte(*set, next),
            Node::Sequence(nodes) => {
                nodes.iter().rev().fold(next, |next, node| self.node(node, next))
            }
            Node::Alternation(nodes) => {
                let targets = nodes.iter().map(|node| self.node(node, next)).collect();
                self.split(targets)
            }
            Node::Repeat { node, min, max, greedy } => self.repeat(node, *min, *max, *greedy, next),
            Node::Capture(slot, node) => {
                let close = self.tag(*slot, false, next);
                let inner = self.node(node, close);
                self.tag(*slot, true, inner)
            }
            Node::Variable { head, variants, slot } => self.variable(head, variants, *slot, next),
        }
    }

    fn repeat(
        &mut self,
        node: &Node,
        min: u32,
        max: Option<u32>,
        greedy: bool,
        next: StateId,
    ) -> StateId {
        let order = |body, exit| if greedy { vec![body, exit] } else { vec![exit, body] };
        let mut at = next;
        match max {
            Some(max) => {
                for _ in min..max {
                    let body = self.node(node, at);
                    at = self.split(order(body, next));
                }
            }
            None => {
                at = self.push(State::Split(Vec::new()), self.accepts[next as usize]);
                let body = self.node(node, at);
                self.states[at as usize] = State::Split(order(body, next));
                let accepts = self.accepts[next as usize];
                self.universal[body as usize] |= *node == Node::Set(ByteSet::ALL) && accepts;
            }
        }
        (0..min).fold(at, |at, _| self.node(node, at))
    }

    fn variable(
        &mut self,
        head: &[Node],
        variants: &[(ByteSet, u32)],
        slot: Option<u32>,
        next: StateId,
    ) -> StateId {
        let next = slot.map_or(next, |slot| self.tag(slot, false, next));
        let longest = variants.iter().map(|(_, len)| *len).max().unwrap_or(0);
        let mut chain = vec![next];
        for _ in 0..longest {
            let last = chain[chain.len() - 1];
            chain.push(self.byte(ByteSet::ALL, last));
        }
        let mut targets = Vec::new();
        for (set, len) in variants {
            let mut at = chain[*len as usize];
            at = slot.map_or(at, |slot| self.tag(slot, true, at));
            at = head[1..].iter().rev().fold(at, |next, node| self.node(node, next));
            targets.push(self.first(&head[0], *set, at));
        }
        self.split(targets)
    }

    /// Adds the length byte, with one of its values.
    fn first(&mut self, node: &Node, set: ByteSet, next: StateId) -> StateId {
        match node {
            Node::Capture(slot, node) => {
                let close = self.tag(*slot, false, next);
                let inner = self.first(node, set, close);
                self.tag(*slot, true, inner)
            }
            _ => self.byte(set, next),
        }
    }
}

/// A known position during the walk through a pattern.
#[derive(Debug, Clone, Copy)]
enum Base {
    Start(u32),
    End(u32),
    Tag(u32, i32),
}

impl Base {
    fn forward(self, len: u64) -> Option<Base> {
        let wide = u32::try_from(len).ok()?;
        Some(match self {
            Base::Start(at) => Base::Start(at.checked_add(wide)?),
            Base::End(at) => Base::End(at.checked_sub(wide)?),
            Base::Tag(tag, at) => Base::Tag(tag, at.checked_add_unsigned(wide)?),
        })
    }

    fn place(self) -> Place {
        match self {
            Base::Start(at) => Place::Start(at),
            Base::End(at) => Place::End(at),
            Base::Tag(tag, at) => Place::Tag(tag, at),
        }
    }
}

/// Determines which positions need a tag.
struct Tagger<'a> {
    rule: &'a Rule,
    real: &'a mut Real,
    from_end: HashMap<(u32, bool), u32>,
    found: HashMap<(u32, bool), Place>,
    tags: u32,
}

impl Tagger<'_> {
    fn tags(rule: &Rule, real: &mut Real) -> RuleTags {
        let mut tagger =
            Tagger { rule, real, from_end: HashMap::new(), found: HashMap::new(), tags: 0 };
        tagger.backward(&rule.pattern, &mut Some(0));
        tagger.forward(&rule.pattern, &mut Some(Base::Start(0)));
        let slot = |slot: u32| {
            Some((*tagger.found.get(&(slot, true))?, *tagger.found.get(&(slot, false))?))
        };
        let slots = (0..rule.slots.len()).map(|at| slot(u32::try_from(at).ok()?)).collect();
        RuleTags { slots, tags: tagger.tags }
    }

    /// Computes distances from the end, on the level that every match passes.
    fn backward(&mut self, node: &Node, distance: &mut Option<u32>) {
        match node {
            Node::Sequence(nodes) => {
                for node in nodes.iter().rev() {
                    self.backward(node, distance);
                }
            }
            Node::Capture(slot, node) => {
                self.from_end.extend(distance.map(|at| ((*slot, false), at)));
                self.backward(node, distance);
                self.from_end.extend(distance.map(|at| ((*slot, true), at)));
            }
            Node::Variable { slot, .. } => {
                let close = slot.zip(*distance).map(|(slot, at)| ((slot, false), at));
                self.from_end.extend(close);
                *distance = None;
            }
            _ => {
                let len = node.fixed_len().and_then(|len| u32::try_from(len).ok());
                *distance = distance.zip(len).and_then(|(at, len)| at.checked_add(len));
            }
        }
    }

    fn forward(&mut self, node: &Node, at: &mut Option<Base>) {
        match node {
            Node::Empty => {}
            Node::Set(_) => *at = at.and_then(|base| base.forward(1)),
            Node::Sequence(nodes) => nodes.iter().for_each(|node| self.forward(node, at)),
            Node::Capture(slot, node) => {
                self.end_of(*slot, true, at);
                self.forward(node, at);
                self.end_of(*slot, false, at);
            }
            Node::Variable { head, slot, .. } => {
                head.iter().for_each(|node| self.forward(node, at));
                if let Some(slot) = slot {
                    self.end_of(*slot, true, at);
                }
                *at = None;
                if let Some(slot) = slot {
                    self.end_of(*slot, false, at);
                }
            }
            Node::Alternation(nodes) => {
                // A branch that may be skipped needs tags of its own, to record that it was skipped: positions
                // outside are no base.
                nodes.iter().for_each(|node| self.forward(node, &mut None));
                *at = at.and_then(|base| base.forward(node.fixed_len()?));
            }
            Node::Repeat { node: inner, .. } => {
                self.forward(inner, &mut None);
                *at = at.and_then(|base| base.forward(node.fixed_len()?));
            }
        }
    }

    fn end_of(&mut self, slot: u32, open: bool, at: &mut Option<Base>) {
        if !self.rule.used[slot as usize] {
            return;
        }
        let base = match (*at, self.from_end.get(&(slot, open))) {
            (Some(base), _) => base,
            (None, Some(distance)) => Base::End(*distance),
            (None, None) => {
                self.real.insert((slot, open), self.tags);
                self.tags += 1;
                Base::Tag(self.tags - 1, 0)
            }
        };
        *at = Some(base);
        self.found.insert((slot, open), base.place());
    }
}

/// No position.
pub const NONE: u32 = u32::MAX;

impl RuleTags {
    /// Returns the span of a slot, from the positions of the tags; none if the slot was not used.
    #[inline]
    pub fn span(&self, slot: u32, tags: &[u32], len: usize) -> Option<(usize, usize)> {
        let (open, close) = (*self.slots.get(slot as usize)?)?;
        let at = |place| match place {
            Place::Start(at) => Some(at as usize),
            Place::End(at) => len.checked_sub(at as usize),
            Place::Tag(tag, _) if tags[tag as usize] == NONE => None,
            Place::Tag(tag, at) => (tags[tag as usize] as usize).checked_add_signed(at as isize),
        };
        Some((at(open)?, at(close)?))
    }
}
