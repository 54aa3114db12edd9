//! The laid-out automaton and its run over a packet.
//!
//! One row per state, one 32-bit cell per byte class: the offset of the next row, and a flag when something is to be
//! done beyond going there. So the common step is one load that depends on the one before it and a test that is
//! predicted. Flagged cells: registers to write, or a state in which bytes need not be looked at one by one:
//!
//! | kind | what | how |
//! |---|---|---|
//! | dead | no rule can match any more | the packet is done |
//! | settled | whatever comes, the answer is the same | the packet is done |
//! | jump | no rule looks at the next n bytes | goes over them at once |
//! | hunt | all bytes but one, two or three stay here | vector search for these |
//!
//! States are numbered in the order of their distance from the start, so what is hot lies together (the thesis keeps
//! near states in code and far ones in memory; here the caches do that).

use crate::determinise::{Accept, FinalTag, Tdfa};
use crate::nfa::NONE;
use crate::registers::{POSITION, Step};

/// Flag of a cell.
const SPECIAL: u32 = 1 << 31;

/// What is special about a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// No rule can match.
    Dead,
    /// Every rest ends here.
    Settled,
    /// So many bytes lead to the state of that offset, whatever they are.
    Jump(u32, u32),
    /// All bytes but this one stay.
    Hunt1(u8),
    /// All bytes but these stay.
    Hunt2(u8, u8),
    /// All bytes but these stay.
    Hunt3(u8, u8, u8),
}

/// A deterministic automaton, ready to run.
#[derive(Debug)]
pub struct Dense {
    classes: Box<[u8; 256]>,
    shift: u32,
    cells: Vec<u32>,
    /// Per cell, the number of its steps; empty when no transition has any.
    cell_steps: Vec<u32>,
    steps: Vec<Vec<Step>>,
    kinds: Vec<Kind>,
    accepts: Vec<Option<Accept>>,
    start: u32,
    registers: usize,
    classes_used: usize,
}

/// Registers of a run; kept between packets.
pub type Registers = Vec<u32>;

impl Dense {
    /// Lays an automaton out.
    pub fn new(tdfa: &Tdfa, steps: Vec<Vec<Step>>, registers: usize) -> Dense {
        let width = tdfa.class_count;
        let shift = width.next_power_of_two().trailing_zeros();
        let states = tdfa.accepts.len();
        let kinds = kinds(tdfa, shift);
        let mut cells = vec![0; states << shift];
        let has_steps = tdfa.next.iter().any(|(_, steps)| *steps != 0);
        let mut cell_steps = vec![0; if has_steps { cells.len() } else { 0 }];
        for state in 0..states {
            for class in 0..width {
                let (target, steps) = tdfa.next[state * width + class];
                let special = steps != 0 || kinds[target as usize] != Kind::Plain;
                let at = (state << shift) + class;
                cells[at] = target << shift | if special { SPECIAL } else { 0 };
                if has_steps {
                    cell_steps[at] = steps;
                }
            }
        }
        Dense {
            classes: Box::new(tdfa.classes),
            shift,
            cells,
            cell_steps,
            steps,
            kinds,
            accepts: tdfa.accepts.clone(),
            start: 1 << shift,
            registers,
            classes_used: width,
        }
    }

    /// Number of states, the dead one included.
    pub fn states(&self) -> usize {
        self.accepts.len()
    }

    /// Number of byte classes.
    pub fn classes(&self) -> usize {
        self.classes_used
    }

    /// Number of registers; 0 when no tag needs one.
    pub fn registers(&self) -> usize {
        if self.cell_steps.is_empty() { 0 } else { self.registers }
    }

    /// Memory of the tables in bytes.
    pub fn bytes(&self) -> usize {
        (self.cells.len() + self.cell_steps.len()) * 4
            + self.kinds.len() * size_of::<Kind>()
            + self.accepts.len() * size_of::<Option<Accept>>()
    }

    /// What is special about a state.
    pub fn kind(&self, state: usize) -> Kind {
        self.kinds[state]
    }

    /// What a state accepts.
    pub fn accept(&self, state: usize) -> Option<&Accept> {
        self.accepts[state].as_ref()
    }

    /// Where a byte leads from a state, and what is written on the way.
    pub fn next(&self, state: usize, byte: u8) -> (usize, &[Step]) {
        let at = (state << self.shift) + usize::from(self.classes[usize::from(byte)]);
        let steps = self.cell_steps.get(at).map_or(0, |steps| *steps as usize);
        (((self.cells[at] & !SPECIAL) >> self.shift) as usize, &self.steps[steps])
    }

    /// Which rule matches all of `bytes`; its tags go to `tags`.
    pub fn first_match(
        &self,
        bytes: &[u8],
        registers: &mut Registers,
        tags: &mut Vec<u32>,
    ) -> Option<u32> {
        if !self.cell_steps.is_empty() {
            registers.clear();
            registers.resize(self.registers, NONE);
        }
        let state = self.walk(bytes, registers);
        let accept = self.accepts[state].as_ref()?;
        tags.clear();
        tags.extend(accept.tags.iter().map(|tag| match tag {
            FinalTag::Unset => NONE,
            FinalTag::Register(register) => registers[*register as usize],
            FinalTag::End => u32::try_from(bytes.len()).unwrap_or(NONE - 1),
        }));
        Some(accept.rule)
    }

    /// State after all of `bytes`.
    fn walk(&self, bytes: &[u8], registers: &mut Registers) -> usize {
        let classes = &*self.classes;
        let mut row = self.start;
        let mut at = self.special(row, bytes, 0).map_or(0, |moved| {
            row = moved.1;
            moved.0
        });
        while let Some(byte) = bytes.get(at) {
            let index = row as usize + usize::from(classes[usize::from(*byte)]);
            let cell = self.cells[index];
            at += 1;
            if cell & SPECIAL == 0 {
                row = cell;
                continue;
            }
            if let Some(steps) = self.cell_steps.get(index)
                && *steps != 0
            {
                let position = u32::try_from(at - 1).unwrap_or(NONE - 1);
                for (to, from) in &self.steps[*steps as usize] {
                    registers[usize::from(*to)] =
                        if *from == POSITION { position } else { registers[usize::from(*from)] };
                }
            }
            row = cell & !SPECIAL;
            if let Some((to, next)) = self.special(row, bytes, at) {
                at = to;
                row = next;
            }
        }
        (row >> self.shift) as usize
    }

    /// Where a special state goes without looking at bytes one by one.
    #[inline]
    fn special(&self, row: u32, bytes: &[u8], at: usize) -> Option<(usize, u32)> {
        let rest = bytes.get(at..).unwrap_or_default();
        let hunt = |found: Option<usize>| Some((at + found.unwrap_or(rest.len()), row));
        match self.kinds[(row >> self.shift) as usize] {
            Kind::Plain => None,
            Kind::Dead | Kind::Settled => Some((bytes.len(), row)),
            Kind::Jump(len, to) if rest.len() >= len as usize => {
                let at = at + len as usize;
                // A jump can end at a state that is special too; two jumps never follow each other.
                self.special(to, bytes, at).or(Some((at, to)))
            }
            Kind::Jump(..) => None,
            Kind::Hunt1(a) => hunt(memchr::memchr(a, rest)),
            Kind::Hunt2(a, b) => hunt(memchr::memchr2(a, b, rest)),
            Kind::Hunt3(a, b, c) => hunt(memchr::memchr3(a, b, c, rest)),
        }
    }
}

fn kinds(tdfa: &Tdfa, shift: u32) -> Vec<Kind> {
    let width = tdfa.class_count;
    let states = tdfa.accepts.len();
    let row = |state: usize| &tdfa.next[state * width..][..width];
    // The one state that every byte leads to, with nothing written.
    let only: Vec<Option<usize>> = (0..states)
        .map(|state| {
            let first = row(state)[0];
            let same = first.1 == 0 && row(state).iter().all(|next| *next == first);
            same.then_some(first.0 as usize)
        })
        .collect();
    let kind = |state: usize| match only[state] {
        Some(next) if next == state && tdfa.accepts[state].is_none() => Kind::Dead,
        Some(next) if next == state => Kind::Settled,
        Some(_) => {
            let (mut len, mut to) = (0u32, state);
            while let Some(next) = only[to]
                && next != to
                && (len as usize) < states
            {
                len += 1;
                to = next;
            }
            Kind::Jump(len, u32::try_from(to << shift).unwrap_or(0))
        }
        None => hunt(tdfa, state),
    };
    (0..states).map(kind).collect()
}

/// A state that few bytes leave.
fn hunt(tdfa: &Tdfa, state: usize) -> Kind {
    let row = &tdfa.next[state * tdfa.class_count..][..tdfa.class_count];
    let leaves = |byte: &u8| {
        let (next, steps) = row[usize::from(tdfa.classes[usize::from(*byte)])];
        next as usize != state || steps != 0
    };
    let mut bytes = (0..=255u8).filter(leaves);
    match (bytes.next(), bytes.next(), bytes.next(), bytes.next()) {
        (Some(a), None, _, _) => Kind::Hunt1(a),
        (Some(a), Some(b), None, _) => Kind::Hunt2(a, b),
        (Some(a), Some(b), Some(c), None) => Kind::Hunt3(a, b, c),
        _ => Kind::Plain,
    }
}
