//! The backtracking engine: a program made of the syntax tree, run with a stack of its own.
//!
//! Invariants: no recursion but into look-around and atomic groups, which the parser bounds in depth; every
//! instruction costs a unit of work, those over many bytes more, and a search ends when its work is used up. What a
//! branch changed (groups, counters) is on the stack above the branch and is restored when it is taken.

use super::ast::{Kind, Node, Place};
use crate::work::Work;
use fyke_ruler::byte_set::ByteSet;

/// Most entries of the stack.
const MAX_STACK: usize = 1 << 18;
const NO_PLACE: usize = usize::MAX;

#[derive(Debug, Clone)]
enum Step {
    Set(Box<ByteSet>),
    /// A repetition of one byte.
    Run {
        set: Box<ByteSet>,
        min: usize,
        max: usize,
        lazy: bool,
    },
    Split {
        first: usize,
        second: usize,
    },
    Jump(usize),
    Save(usize),
    At(Place),
    Back(u32, bool),
    /// Sets a counter to zero.
    Zero(usize),
    /// The head of a counted loop; its exit is the next step but one.
    Count {
        counter: usize,
        min: u32,
        max: u32,
        lazy: bool,
    },
    /// Begins an iteration of a loop; the body follows.
    Enter(usize),
    /// The body follows; it ends with `Stop`, after which `after` is.
    Look {
        behind: Option<usize>,
        negated: bool,
        after: usize,
    },
    Atomic {
        after: usize,
    },
    /// End of a body, or of the pattern.
    Stop,
}

/// A pattern as steps.
#[derive(Debug, Clone)]
pub struct Program {
    steps: Vec<Step>,
    counters: usize,
    slots: usize,
    /// Bytes with which a match may begin; none if it may be empty or that is not known.
    first: Option<ByteSet>,
}

impl Program {
    /// Makes the program of a tree with `groups` groups.
    pub fn new(node: &Node, groups: u32) -> Program {
        let mut program = Program {
            steps: Vec::new(),
            counters: 0,
            slots: 2 * (groups as usize + 1),
            first: first(node),
        };
        program.add(node);
        program.steps.push(Step::Stop);
        program.steps.shrink_to_fit();
        program
    }

    fn add(&mut self, node: &Node) {
        match node {
            Node::Empty => {}
            Node::Set(set) => self.steps.push(Step::Set(set.clone())),
            Node::Sequence(nodes) => nodes.iter().for_each(|node| self.add(node)),
            Node::Alternation(nodes) => self.add_alternation(nodes),
            Node::Repeat { node, min, max, kind } => self.add_repeat(node, *min, *max, *kind),
            Node::Group(number, node) => {
                self.steps.push(Step::Save(2 * *number as usize));
                self.add(node);
                self.steps.push(Step::Save(2 * *number as usize + 1));
            }
            Node::At(place) => self.steps.push(Step::At(*place)),
            Node::Back(group, caseless) => self.steps.push(Step::Back(*group, *caseless)),
            Node::Look { node, behind, negated } => {
                let at = self.steps.len();
                self.steps.push(Step::Stop);
                self.add(node);
                self.steps.push(Step::Stop);
                let after = self.steps.len();
                self.steps[at] = Step::Look { behind: *behind, negated: *negated, after };
            }
            Node::Atomic(node) => self.add_atomic(|program| program.add(node)),
        }
    }

    fn add_atomic(&mut self, body: impl FnOnce(&mut Program)) {
        let at = self.steps.len();
        self.steps.push(Step::Stop);
        body(self);
        self.steps.push(Step::Stop);
        let after = self.steps.len();
        self.steps[at] = Step::Atomic { after };
    }

    fn add_alternation(&mut self, nodes: &[Node]) {
        let mut ends = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            let split = self.steps.len();
            let last = number + 1 == nodes.len();
            if !last {
                self.steps.push(Step::Stop);
            }
            self.add(node);
            if !last {
                ends.push(self.steps.len());
                self.steps.push(Step::Stop);
                self.steps[split] = Step::Split { first: split + 1, second: self.steps.len() };
            }
        }
        let end = self.steps.len();
        for jump in ends {
            self.steps[jump] = Step::Jump(end);
        }
    }

    fn add_repeat(&mut self, node: &Node, min: u32, max: Option<u32>, kind: Kind) {
        if kind == Kind::Possessive {
            self.add_atomic(|program| program.add_repeat(node, min, max, Kind::Greedy));
            return;
        }
        let lazy = kind == Kind::Lazy;
        if let Node::Set(set) = node {
            let (min, max) = (min as usize, max.map_or(usize::MAX, |max| max as usize));
            self.steps.push(Step::Run { set: set.clone(), min, max, lazy });
            return;
        }
        let counter = self.counters;
        self.counters += 1;
        self.steps.push(Step::Zero(counter));
        let head = self.steps.len();
        self.steps.push(Step::Count { counter, min, max: max.unwrap_or(u32::MAX), lazy });
        self.steps.push(Step::Stop);
        self.steps.push(Step::Enter(counter));
        self.add(node);
        self.steps.push(Step::Jump(head));
        self.steps[head + 1] = Step::Jump(self.steps.len());
    }
}

/// Bytes with which a match of a tree may begin.
fn first(node: &Node) -> Option<ByteSet> {
    match node {
        Node::Set(set) => Some(**set),
        Node::Sequence(nodes) => nodes
            .iter()
            .find(|node| !matches!(node, Node::At(_) | Node::Empty | Node::Look { .. }))
            .and_then(first),
        Node::Alternation(nodes) => {
            nodes.iter().map(first).try_fold(ByteSet::EMPTY, |all, one| Some(all.or(&one?)))
        }
        Node::Repeat { node, min, .. } if *min > 0 => first(node),
        Node::Group(_, node) | Node::Atomic(node) => first(node),
        Node::Empty | Node::At(_) | Node::Back(..) | Node::Look { .. } | Node::Repeat { .. } => {
            None
        }
    }
}

/// A choice to try, or a value to restore, when a branch has failed.
#[derive(Debug, Clone, Copy)]
enum Undo {
    Branch(usize, usize),
    /// A repetition of one byte may also end at any place from `low` to `high`.
    Ends {
        step: usize,
        low: usize,
        high: usize,
        lazy: bool,
    },
    Slot(usize, usize),
    Counter(usize, u32, usize),
}

/// One search.
pub struct Backtracker<'t> {
    program: &'t Program,
    text: &'t [u8],
    slots: Vec<usize>,
    counters: Vec<(u32, usize)>,
    stack: Vec<Undo>,
    work: &'t mut Work,
}

/// The limit was reached.
#[derive(Debug)]
pub struct LimitReached;

impl<'t> Backtracker<'t> {
    /// A search in a text.
    pub fn new(program: &'t Program, text: &'t [u8], work: &'t mut Work) -> Backtracker<'t> {
        work.take(1 + program.counters / 16);
        Backtracker {
            program,
            text,
            slots: vec![NO_PLACE; program.slots],
            counters: vec![(0, NO_PLACE); program.counters],
            stack: Vec::new(),
            work,
        }
    }

    /// Finds the end of the match that begins at `start`.
    pub fn run(&mut self, start: usize) -> Result<Option<usize>, LimitReached> {
        if let Some(first) = &self.program.first
            && !self.text.get(start).is_some_and(|byte| first.contains(*byte))
        {
            return Ok(None);
        }
        self.take(self.slots.len() / 32)?;
        self.slots.fill(NO_PLACE);
        self.stack.clear();
        self.body(0, start)
    }

    fn take(&mut self, units: usize) -> Result<(), LimitReached> {
        if self.work.take(units) { Ok(()) } else { Err(LimitReached) }
    }

    /// Runs from a step to the next `Stop` that is not inside a body.
    fn body(&mut self, step: usize, start: usize) -> Result<Option<usize>, LimitReached> {
        let base = self.stack.len();
        let (mut step, mut at) = (step, start);
        loop {
            self.take(1)?;
            if self.stack.len() > MAX_STACK {
                return Err(LimitReached);
            }
            if matches!(self.program.steps[step], Step::Stop) {
                return Ok(Some(at));
            }
            match self.step(step, at)? {
                Some(next) => (step, at) = next,
                None => match self.undo(base) {
                    Some(next) => (step, at) = next,
                    None => return Ok(None),
                },
            }
        }
    }

    /// Runs one step; none if it fails.
    fn step(&mut self, step: usize, at: usize) -> Result<Option<(usize, usize)>, LimitReached> {
        let program = self.program;
        Ok(match &program.steps[step] {
            Step::Set(set) => self
                .text
                .get(at)
                .is_some_and(|byte| set.contains(*byte))
                .then_some((step + 1, at + 1)),
            Step::Run { set, min, max, lazy } => {
                return self.run_of(step, at, set, (*min, *max), *lazy);
            }
            Step::Split { first, second } => {
                self.stack.push(Undo::Branch(*second, at));
                Some((*first, at))
            }
            Step::Jump(to) => Some((*to, at)),
            Step::Save(slot) => {
                self.stack.push(Undo::Slot(*slot, self.slots[*slot]));
                self.slots[*slot] = at;
                Some((step + 1, at))
            }
            Step::At(place) => self.is_at(*place, at).then_some((step + 1, at)),
            Step::Back(group, caseless) => {
                self.back(*group, *caseless, at)?.map(|end| (step + 1, end))
            }
            Step::Zero(counter) => {
                self.set_counter(*counter, (0, NO_PLACE));
                Some((step + 1, at))
            }
            Step::Count { counter, min, max, lazy } => {
                let (count, place) = self.counters[*counter];
                let (exit, enter) = (step + 1, step + 2);
                match () {
                    () if count < *min && place != at => Some((enter, at)),
                    () if place == at || count >= *max => Some((exit, at)),
                    () => {
                        let (now, later) = if *lazy { (exit, enter) } else { (enter, exit) };
                        self.stack.push(Undo::Branch(later, at));
                        Some((now, at))
                    }
                }
            }
            Step::Enter(counter) => {
                let (count, _) = self.counters[*counter];
                self.set_counter(*counter, (count + 1, at));
                Some((step + 1, at))
            }
            Step::Look { behind, negated, after } => {
                self.look(step + 1, at, *behind, *negated)?.then_some((*after, at))
            }
            Step::Atomic { after } => {
                let base = self.stack.len();
                let end = self.body(step + 1, at)?;
                self.keep_changes(base);
                end.map(|end| (*after, end))
            }
            Step::Stop => None,
        })
    }

    fn set_counter(&mut self, counter: usize, value: (u32, usize)) {
        let (count, place) = std::mem::replace(&mut self.counters[counter], value);
        self.stack.push(Undo::Counter(counter, count, place));
    }

    /// A repetition of one byte.
    fn run_of(
        &mut self,
        step: usize,
        at: usize,
        set: &ByteSet,
        (min, max): (usize, usize),
        lazy: bool,
    ) -> Result<Option<(usize, usize)>, LimitReached> {
        let rest = &self.text[at..];
        // Eight bytes of a run cost as much as one step.
        let most = self.work.left().saturating_mul(8);
        let rest = &rest[..rest.len().min(max).min(most)];
        let count = rest.iter().position(|byte| !set.contains(*byte)).unwrap_or(rest.len());
        self.take(count / 8)?;
        if count < min {
            return Ok(None);
        }
        let (low, high) = (at + min, at + count);
        let end = if lazy { low } else { high };
        if low < high {
            let (low, high) = if lazy { (low + 1, high) } else { (low, high - 1) };
            self.stack.push(Undo::Ends { step: step + 1, low, high, lazy });
        }
        Ok(Some((step + 1, end)))
    }

    /// Takes the last branch that is left; none if there is none above `base`.
    fn undo(&mut self, base: usize) -> Option<(usize, usize)> {
        while self.stack.len() > base
            && let Some(undo) = self.stack.pop()
        {
            match undo {
                Undo::Branch(step, at) => return Some((step, at)),
                Undo::Ends { step, low, high, lazy } => {
                    if low < high {
                        let (low, high) = if lazy { (low + 1, high) } else { (low, high - 1) };
                        self.stack.push(Undo::Ends { step, low, high, lazy });
                    }
                    return Some((step, if lazy { low } else { high }));
                }
                Undo::Slot(slot, old) => self.slots[slot] = old,
                Undo::Counter(counter, count, place) => self.counters[counter] = (count, place),
            }
        }
        None
    }

    /// Drops the branches above `base` and restores groups and counters.
    fn take_back(&mut self, base: usize) {
        for undo in self.stack.drain(base..).rev() {
            match undo {
                Undo::Branch(..) | Undo::Ends { .. } => {}
                Undo::Slot(slot, old) => self.slots[slot] = old,
                Undo::Counter(counter, count, place) => self.counters[counter] = (count, place),
            }
        }
    }

    /// Drops the branches above `base` and keeps what restores groups and counters.
    fn keep_changes(&mut self, base: usize) {
        let mut kept = base;
        for at in base..self.stack.len() {
            if matches!(self.stack[at], Undo::Slot(..) | Undo::Counter(..)) {
                self.stack.swap(kept, at);
                kept += 1;
            }
        }
        self.stack.truncate(kept);
    }

    fn look(
        &mut self,
        body: usize,
        at: usize,
        behind: Option<usize>,
        negated: bool,
    ) -> Result<bool, LimitReached> {
        let base = self.stack.len();
        let found = match at.checked_sub(behind.unwrap_or(0)) {
            Some(start) => self.body(body, start)?.is_some(),
            None => false,
        };
        match found && !negated {
            true => self.keep_changes(base),
            false => self.take_back(base),
        }
        Ok(found != negated)
    }

    fn back(
        &mut self,
        group: u32,
        caseless: bool,
        at: usize,
    ) -> Result<Option<usize>, LimitReached> {
        let (from, to) = (self.slots[2 * group as usize], self.slots[2 * group as usize + 1]);
        // A group that has matched nothing fails.
        let own = self.text.get(from..to).filter(|_| from != NO_PLACE && to != NO_PLACE);
        let Some(own) = own else { return Ok(None) };
        let Some(here) = self.text.get(at..at + own.len()) else { return Ok(None) };
        self.take(own.len() / 8)?;
        let same = if caseless { own.eq_ignore_ascii_case(here) } else { own == here };
        Ok(same.then_some(at + own.len()))
    }

    fn is_at(&self, place: Place, at: usize) -> bool {
        let (text, len) = (self.text, self.text.len());
        let word = |at: Option<usize>| {
            at.and_then(|at| text.get(at))
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        let boundary = || word(at.checked_sub(1)) != word(Some(at));
        match place {
            Place::Start => at == 0,
            // PCRE: not after a line feed that is the last byte.
            Place::LineStart => at == 0 || (text[at - 1] == b'\n' && at < len),
            Place::End => at == len,
            Place::LastLine => at == len || (at + 1 == len && text[at] == b'\n'),
            Place::LineEnd => at == len || text[at] == b'\n',
            Place::Boundary => boundary(),
            Place::NoBoundary => !boundary(),
        }
    }
}
