//! The deterministic automaton as a table, and its run over a packet.
//!
//! One row per state, one 32-bit cell per byte class: the offset of the next row, and a flag if the transition
//! needs more work. So the common step is one dependent load and one well-predicted branch. A flagged cell has
//! registers to write, or leads to a state in which not every byte needs to be inspected:
//!
//! | kind | condition | action |
//! |---|---|---|
//! | dead | no rule can match any more | ends the packet |
//! | settled | no further byte changes the answer | ends the packet |
//! | jump | no rule inspects the next n bytes | skips them at once |
//! | hunt | all bytes except one, two or three stay here | searches for these with vector instructions |
//! | loop | all bytes except some rare ones stay here | looks up eight at once |
//!
//! Without tags, [`LANES`] packets are processed in parallel: the steps of one packet depend on each other, those
//! of different packets do not.
//!
//! States are numbered by their distance from the start, so frequently used rows are adjacent (the thesis keeps
//! near states in code and far ones in memory; here the CPU caches have that effect).

use crate::determinise::{Accept, FinalTag, Tdfa};
use crate::nfa::NONE;
use crate::registers::{POSITION, Step};

/// Flag of a cell.
const SPECIAL: u32 = 1 << 31;

/// Special property of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No special property.
    Plain,
    /// No rule can match.
    Dead,
    /// Every continuation ends here.
    Settled,
    /// Number of bytes to skip, and offset of the state after them.
    Jump(u32, u32),
    /// All bytes except this one stay.
    Hunt1(u8),
    /// All bytes except these stay.
    Hunt2(u8, u8),
    /// All bytes except these stay.
    Hunt3(u8, u8, u8),
    /// All bytes except those of the set with this number stay.
    Loop(u32),
}

/// Number of packets that are processed in parallel.
pub const LANES: usize = 4;
/// Minimum length of a jump; a shorter one costs more than it saves.
const MIN_JUMP: u32 = 4;
/// Maximum number of byte values that leave a loop, and how many of them may be frequent.
const LEAVE: (usize, usize) = (64, 3);

/// A deterministic automaton, ready to run.
#[derive(Debug)]
pub struct Dense {
    classes: Box<[u8; 256]>,
    shift: u32,
    cells: Vec<u32>,
    /// Number of the step list of each cell; empty if no transition has steps.
    cell_steps: Vec<u32>,
    steps: Vec<Vec<Step>>,
    kinds: Vec<Kind>,
    /// Per loop set: 1 for bytes that leave the loop.
    leaving: Vec<[u8; 256]>,
    accepts: Vec<Vec<Accept>>,
    start: u32,
    registers: usize,
    classes_used: usize,
}

/// Registers of a run; reused for the next packet.
pub type Registers = Vec<u32>;

impl Dense {
    /// Builds the tables of an automaton.
    pub fn new(tdfa: &Tdfa, steps: Vec<Vec<Step>>, registers: usize) -> Dense {
        let width = tdfa.class_count;
        let shift = width.next_power_of_two().trailing_zeros();
        let states = tdfa.accepts.len();
        let (kinds, leaving) = kinds(tdfa, shift);
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
            leaving,
            accepts: tdfa.accepts.clone(),
            start: 1 << shift,
            registers,
            classes_used: width,
        }
    }

    /// Number of states, including the dead one.
    pub fn states(&self) -> usize {
        self.accepts.len()
    }

    /// Number of byte classes.
    pub fn classes(&self) -> usize {
        self.classes_used
    }

    /// Number of registers; 0 if no tag needs one.
    pub fn registers(&self) -> usize {
        if self.cell_steps.is_empty() { 0 } else { self.registers }
    }

    /// Memory of the tables in bytes.
    pub fn bytes(&self) -> usize {
        (self.cells.len() + self.cell_steps.len()) * 4
            + (1 + self.leaving.len()) * 256
            + self.kinds.len() * size_of::<Kind>()
            + self.accepts.len() * size_of::<Vec<Accept>>()
            + self.accepts.iter().flatten().count() * size_of::<Accept>()
    }

    /// Special property of a state.
    pub fn kind(&self, state: usize) -> Kind {
        self.kinds[state]
    }

    /// Rules that a state accepts: at most one of each filter.
    #[inline]
    pub fn accepts(&self, state: usize) -> &[Accept] {
        &self.accepts[state]
    }

    /// Next state after a byte, and the steps of the transition.
    pub fn next(&self, state: usize, byte: u8) -> (usize, &[Step]) {
        let at = (state << self.shift) + usize::from(self.classes[usize::from(byte)]);
        let steps = self.cell_steps.get(at).map_or(0, |steps| *steps as usize);
        (((self.cells[at] & !SPECIAL) >> self.shift) as usize, &self.steps[steps])
    }

    /// Returns the state after all of `bytes`. The bytes before `from` are known to keep the automaton in its start
    /// state.
    #[inline]
    pub fn state_after(&self, bytes: &[u8], from: usize, registers: &mut Registers) -> usize {
        self.clear(registers);
        self.walk(bytes, from, registers)
    }

    /// Row of the start state, for [`Dense::resume`].
    pub fn start(&self) -> u32 {
        self.start
    }

    /// The state of a row.
    pub fn state(&self, row: u32) -> usize {
        (row >> self.shift) as usize
    }

    /// Continues at a row with more bytes, the first of which is at position `base`; returns the row after them.
    pub fn resume(&self, row: u32, bytes: &[u8], base: usize, registers: &mut [u32]) -> u32 {
        let (at, row) = self.special(row, bytes).unwrap_or((0, row));
        let mut lane = Lane { rest: &bytes[at..], row, packet: 0 };
        self.finish(&mut lane, base + bytes.len(), registers);
        lane.row
    }

    /// Positions of the tags of an accepting state, for a packet of `len` bytes.
    #[inline]
    pub fn tags(&self, accept: &Accept, registers: &[u32], len: usize, tags: &mut Vec<u32>) {
        tags.clear();
        tags.extend(accept.tags.iter().map(|tag| match tag {
            FinalTag::Unset => NONE,
            FinalTag::Register(register) => registers[*register as usize],
            FinalTag::End => u32::try_from(len).unwrap_or(NONE - 1),
        }));
    }

    fn clear(&self, registers: &mut Registers) {
        if !self.cell_steps.is_empty() {
            registers.clear();
            registers.resize(self.registers, NONE);
        }
    }

    /// Returns the state after all of `bytes`.
    fn walk(&self, bytes: &[u8], from: usize, registers: &mut Registers) -> usize {
        let mut lane = self.lane(0, &bytes[from..]);
        self.finish(&mut lane, bytes.len(), registers);
        (lane.row >> self.shift) as usize
    }

    /// Starts a packet.
    #[inline]
    fn lane<'b>(&self, packet: usize, bytes: &'b [u8]) -> Lane<'b> {
        let (at, row) = self.special(self.start, bytes).unwrap_or((0, self.start));
        Lane { rest: &bytes[at..], row, packet }
    }

    /// Runs a lane to the end of its packet of `len` bytes.
    fn finish(&self, lane: &mut Lane<'_>, len: usize, registers: &mut [u32]) {
        let classes = &*self.classes;
        let (mut row, mut rest) = (lane.row, lane.rest);
        while let Some((byte, after)) = rest.split_first() {
            let index = row as usize + usize::from(classes[usize::from(*byte)]);
            let cell = self.cells[index];
            if cell & SPECIAL == 0 {
                row = cell;
                rest = after;
                continue;
            }
            if let Some(steps) = self.cell_steps.get(index)
                && *steps != 0
            {
                let position = u32::try_from(len - rest.len()).unwrap_or(NONE - 1);
                for (to, from) in &self.steps[*steps as usize] {
                    registers[usize::from(*to)] =
                        if *from == POSITION { position } else { registers[usize::from(*from)] };
                }
            }
            row = cell & !SPECIAL;
            rest = after;
            if let Some((at, next)) = self.special(row, rest) {
                rest = &rest[at..];
                row = next;
            }
        }
        (lane.row, lane.rest) = (row, rest);
    }

    /// Calls `done` with each packet's number and the state after it; processes several packets in parallel.
    pub fn each_state(
        &self,
        packets: &[&[u8]],
        registers: &mut Registers,
        mut done: impl FnMut(usize, usize),
    ) {
        let first = if self.cell_steps.is_empty() { packets.first_chunk::<LANES>() } else { None };
        let Some(first) = first else {
            for (number, packet) in packets.iter().enumerate() {
                self.clear(registers);
                done(number, self.walk(packet, 0, registers));
            }
            return;
        };
        let mut lanes: [Lane<'_>; LANES] = std::array::from_fn(|at| self.lane(at, first[at]));
        let mut waiting = packets.iter().enumerate().skip(LANES);
        loop {
            for lane in &mut lanes {
                while lane.rest.is_empty() && lane.packet != usize::MAX {
                    done(lane.packet, (lane.row >> self.shift) as usize);
                    let next = waiting.next().map(|(number, packet)| self.lane(number, packet));
                    *lane = next.unwrap_or(Lane { rest: &[], row: 0, packet: usize::MAX });
                }
            }
            if lanes.iter().any(|lane| lane.packet == usize::MAX) {
                break;
            }
            self.together(&mut lanes);
        }
        for lane in lanes.iter_mut().filter(|lane| lane.packet != usize::MAX) {
            self.finish(lane, 0, registers);
            done(lane.packet, (lane.row >> self.shift) as usize);
        }
    }

    /// Steps each lane in turn until one of them has no bytes left or reaches a special state.
    #[inline]
    fn together(&self, lanes: &mut [Lane<'_>; LANES]) {
        let classes = &*self.classes;
        let common = lanes.iter().map(|lane| lane.rest.len()).min().unwrap_or(0);
        let [mut a, mut b, mut c, mut d] = lanes.each_ref().map(|lane| lane.row);
        let heads = lanes.each_ref().map(|lane| lane.rest[..common].iter());
        let [first, second, third, fourth] = heads;
        let step =
            |row: u32, byte: u8| self.cells[row as usize + usize::from(classes[usize::from(byte)])];
        let mut taken = 0;
        for (((one, two), three), four) in first.zip(second).zip(third).zip(fourth) {
            (a, b, c, d) = (step(a, *one), step(b, *two), step(c, *three), step(d, *four));
            taken += 1;
            if (a | b | c | d) & SPECIAL != 0 {
                break;
            }
        }
        let rows = [a, b, c, d];
        for (lane, row) in lanes.iter_mut().zip(rows) {
            lane.rest = &lane.rest[taken..];
            lane.row = row & !SPECIAL;
            if row & SPECIAL != 0
                && let Some((at, next)) = self.special(lane.row, lane.rest)
            {
                lane.rest = &lane.rest[at..];
                lane.row = next;
            }
        }
    }

    /// Skips the bytes that a special state does not inspect one by one: returns how many, and the next row.
    #[inline]
    fn special(&self, row: u32, rest: &[u8]) -> Option<(usize, u32)> {
        let hunt = |found: Option<usize>| Some((found.unwrap_or(rest.len()), row));
        match self.kinds[(row >> self.shift) as usize] {
            Kind::Plain => None,
            Kind::Dead | Kind::Settled => Some((rest.len(), row)),
            Kind::Jump(len, to) => {
                let len = len as usize;
                // The target of a jump can be special too; a jump never follows a jump.
                let after = rest.get(len..)?;
                let further = self.special(to, after).map(|(at, row)| (len + at, row));
                further.or(Some((len, to)))
            }
            Kind::Hunt1(a) => hunt(memchr::memchr(a, rest)),
            Kind::Hunt2(a, b) => hunt(memchr::memchr2(a, b, rest)),
            Kind::Hunt3(a, b, c) => hunt(memchr::memchr3(a, b, c, rest)),
            Kind::Loop(set) => Some((leave(&self.leaving[set as usize], rest), row)),
        }
    }
}

/// A packet in progress.
#[derive(Debug, Clone, Copy)]
struct Lane<'b> {
    rest: &'b [u8],
    row: u32,
    /// Number of the packet; the largest number = none.
    packet: usize,
}

/// Number of bytes before the first that leaves a loop.
fn leave(leaving: &[u8; 256], bytes: &[u8]) -> usize {
    let mut at = 0;
    for chunk in bytes.chunks_exact(8) {
        let any = chunk.iter().fold(0, |any, byte| any | leaving[usize::from(*byte)]);
        if any != 0 {
            break;
        }
        at += 8;
    }
    let first = bytes[at..].iter().position(|byte| leaving[usize::from(*byte)] != 0);
    first.map_or(bytes.len(), |first| at + first)
}

/// Computes the special property of each state, and the sets of loops.
fn kinds(tdfa: &Tdfa, shift: u32) -> (Vec<Kind>, Vec<[u8; 256]>) {
    let mut sets: Vec<[u8; 256]> = Vec::new();
    let width = tdfa.class_count;
    let states = tdfa.accepts.len();
    let row = |state: usize| &tdfa.next[state * width..][..width];
    // The state that all bytes lead to, if there is only one and nothing is written.
    let only: Vec<Option<usize>> = (0..states)
        .map(|state| {
            let first = row(state)[0];
            let same = first.1 == 0 && row(state).iter().all(|next| *next == first);
            same.then_some(first.0 as usize)
        })
        .collect();
    let mut kind = |state: usize| match only[state] {
        Some(next) if next == state && tdfa.accepts[state].is_empty() => Kind::Dead,
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
            if len < MIN_JUMP {
                return Kind::Plain;
            }
            Kind::Jump(len, u32::try_from(to << shift).unwrap_or(0))
        }
        None => hunt(tdfa, state, &mut sets),
    };
    let kinds = (0..states).map(&mut kind).collect();
    (kinds, sets)
}

/// Detects a state that few byte values leave.
fn hunt(tdfa: &Tdfa, state: usize, sets: &mut Vec<[u8; 256]>) -> Kind {
    let row = &tdfa.next[state * tdfa.class_count..][..tdfa.class_count];
    let leaves = |byte: &u8| {
        let (next, steps) = row[usize::from(tdfa.classes[usize::from(*byte)])];
        next as usize != state || steps != 0
    };
    let bytes: Vec<u8> = (0..=255u8).filter(leaves).collect();
    match bytes[..] {
        [a] => return Kind::Hunt1(a),
        [a, b] => return Kind::Hunt2(a, b),
        [a, b, c] => return Kind::Hunt3(a, b, c),
        _ => {}
    }
    let frequent = bytes.iter().filter(|byte| crate::gate::rarity(**byte) < 2).count();
    if bytes.len() > LEAVE.0 || frequent > LEAVE.1 {
        return Kind::Plain;
    }
    let mut set = [0u8; 256];
    bytes.iter().for_each(|byte| set[usize::from(*byte)] = 1);
    let known = sets.iter().position(|other| *other == set);
    let number = known.unwrap_or_else(|| {
        sets.push(set);
        sets.len() - 1
    });
    u32::try_from(number).map_or(Kind::Plain, Kind::Loop)
}
