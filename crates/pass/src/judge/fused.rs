//! The fused tier for a small plan: 64 frames at a time, from bytes to verdict in one loop.
//!
//! The hot function of the engine ([`FusedJob`]). It judges plans with few passes outside of tables, which most filters
//! have. Its steps:
//!
//! 1. The first chunks of 64 frames are loaded, which costs more than all other steps.
//! 2. Instruction after instruction narrows a mask of 64 bits. Results that several passes need are kept.
//! 3. Exceptional frames are left to columns (`by_columns.rs`): those so short that the filter's order matters. IPv4
//!    options cost a few loads a frame.
//!
//! If there are tables, the keys of the frames that may be in one are collected in the same way (`fused/keys.rs`), from
//! the loaded chunks and the kept results.
//!
//! Compiled once per level, with all functions that it calls, so that masks stay in registers.
//!
//! PERF: for the same 256 frames, the column tier needs about 700 cycles for masks of four words that go through
//! memory; `examples/static.rs` measures the rest.

mod keys;

use super::arch::{self, ChunkWords, Isa, Job, Part, TERMS, Term, load_one};
use super::columns::{compares, correct_one, crowded};
use super::work::{InnerEvaluator, SMALL_BATCH, Verdicts};
use crate::plan::chunks::{Column, Location, NO_BASE};
use crate::plan::fused::{FusedPlan, FusedStep, MAX_KEPT, MAX_PLACES, NOT_KEPT};
use crate::plan::program::{Stack, Step};
use crate::plan::word_test::{self, placed};
use crate::plan::{Op, Plan, PlanExtent, PlanNeed, PlanTest};
use fyke_frame::condition::Relation;
use fyke_frame::{BATCH_CAPACITY, Batch, Mask};
pub(crate) use keys::{Collect, Keys};

/// Input and output of the fused tier.
pub(crate) struct FusedJob<'a, 'f> {
    pub plan: &'a Plan,
    pub fused: &'a FusedPlan,
    pub batch: &'a Batch<'f>,
    pub within: Mask,
    /// One for each chunk of the plan.
    pub chunk_words: &'a mut [ChunkWords],
    /// One for each pass of the plan: receives the frames that it accepted. A frame that several passes after the early
    /// ones match is credited to the first of them.
    pub found: &'a mut [Mask],
    pub states: &'a mut States,
    /// One for each inner set of the plan.
    pub inner: &'a mut dyn InnerEvaluator,
}

/// State of the frames of a batch.
#[derive(Debug, Default)]
pub(crate) struct States {
    /// Frames that must be judged by columns.
    pub left: Mask,
    /// A single state is enough if no keys are collected.
    each: [State; BATCH_CAPACITY / 64],
}

/// State of 64 frames.
#[derive(Debug, Default)]
struct State {
    /// Frames that this tier can judge, as far as is known.
    open: u64,
    /// Frames left to columns.
    left: u64,
    /// Frames that may lack a byte that some instruction reads.
    short: u64,
    /// For each chunk: frames of which it is loaded.
    loaded: [u64; MAX_PLACES],
    /// Bit n: header n has been read.
    checked: u32,
    ready: [u64; MAX_PLACES],
    /// For each header: frames with options, after the correction of their words.
    corrected: [u64; MAX_PLACES],
    /// For each program: frames for which it was run, and those that have a value.
    computed: [u64; MAX_PLACES],
    valued: [u64; MAX_PLACES],
    /// Kept results: frames that have one, frames for which it is true.
    known: [u64; MAX_KEPT],
    truth: [u64; MAX_KEPT],
}

/// Judges the batch.
impl Job for FusedJob<'_, '_> {
    type Output = Verdicts;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Verdicts {
        let FusedJob { plan, fused, batch, within, chunk_words, found, states, inner } = self;
        let mut verdicts = Verdicts { instructions: 0, skipped: 0 };
        found.fill(Mask::EMPTY);
        states.left = Mask::EMPTY;
        for (index, &requested) in within.0.iter().enumerate() {
            let state = &mut states.each[if plan.shapes.is_empty() { 0 } else { index }];
            (state.open, state.left, state.checked) = (requested, 0, 0);
            if requested == 0 {
                continue;
            }
            state.computed[..plan.programs.len()].fill(0);
            state.known[..fused.kept].fill(0);
            state.truth[..fused.kept].fill(0);
            let (chunk_words, inner) = (&mut *chunk_words, &mut *inner);
            let (instructions, skipped) = (0, 0);
            let mut word = Frames64 {
                isa,
                plan,
                fused,
                batch,
                chunk_words,
                index,
                state,
                inner,
                instructions,
                skipped,
            };
            word.load_first();
            word.leave_short();
            word.passes(found);
            verdicts.instructions += word.instructions;
            verdicts.skipped += word.skipped;
            states.left.0[index] = word.state.left;
        }
        verdicts
    }
}

/// 64 frames of a batch as a mask of the batch.
fn only_word(index: usize, frames: u64) -> Mask {
    let mut mask = Mask::EMPTY;
    mask.0[index] = frames;
    mask
}

struct Frames64<'a, 'f, I> {
    isa: I,
    plan: &'a Plan,
    fused: &'a FusedPlan,
    batch: &'a Batch<'f>,
    chunk_words: &'a mut [ChunkWords],
    index: usize,
    state: &'a mut State,
    inner: &'a mut dyn InnerEvaluator,
    instructions: u64,
    skipped: u64,
}

impl<I: Isa> Frames64<'_, '_, I> {
    #[inline(always)]
    fn part(&self, bits: u64) -> Part {
        Part { index: self.index, bits }
    }

    /// The groups of sixteen that contain the frames.
    #[inline(always)]
    fn groups(&self, frames: u64) -> u16 {
        let group = |group: usize| u16::from(frames >> (16 * group) & 0xffff != 0) << group;
        (group(0) | group(1) | group(2) | group(3)) << (4 * self.index)
    }

    #[inline(always)]
    fn load_first(&mut self) {
        let count = self.plan.first_chunks;
        self.state.loaded[..self.plan.chunks.len()].fill(0);
        // Chunks of a few frames are loaded on first use.
        if self.state.open.count_ones() > SMALL_BATCH as u32 {
            let groups = self.groups(self.state.open);
            let offsets = &self.plan.chunk_offsets[..count];
            self.isa.load(self.batch, offsets, groups, &mut self.chunk_words[..count]);
            self.state.loaded[..count].fill(u64::MAX);
        }
    }

    /// Finds the short frames, and leaves those to columns for which a filter's order matters.
    #[inline(always)]
    fn leave_short(&mut self) {
        let (bound, lengths) = (self.fused.bound, &self.batch.lengths().0);
        self.state.short = 0;
        if bound > self.batch.shortest() {
            let long = self.isa.at_least(lengths, bound, self.part(self.state.open));
            self.state.short = self.state.open & !long.bits;
            let doubtful = self.doubtful();
            if doubtful != 0 {
                self.leave_lacking(doubtful);
            }
        }
        if self.fused.computed_needs {
            self.leave_without_value();
        }
    }

    /// Short frames that may lack needed bytes; only those with IPv4 options if every frame is as long as frames
    /// without options have to be.
    #[inline(always)]
    fn doubtful(&mut self) -> u64 {
        let mut doubtful = self.state.short;
        if doubtful != 0 && self.fused.plain_bound <= self.batch.shortest() {
            for &(base, _) in &self.fused.behind {
                self.behind(base, 0);
                doubtful &= !self.state.ready[base as usize % MAX_PLACES];
            }
            doubtful = if self.fused.behind.is_empty() { 0 } else { doubtful };
        }
        doubtful
    }

    /// Leaves short frames that lack bytes which the filter's text would read, as the guards hold.
    fn leave_lacking(&mut self, doubtful: u64) {
        let (plan, lengths) = (self.plan, &self.batch.lengths().0);
        for need in plan.needs.iter().flat_map(|needs| &needs.list) {
            let short = self.part(doubtful & self.state.open);
            if short.bits == 0 {
                break;
            }
            let there = match need.extent {
                PlanExtent::Fixed(end) => self.isa.at_least(lengths, end, short),
                PlanExtent::Behind { base, fixed } => {
                    let header = plan.bases[base as usize].header;
                    self.load(header.chunk, short.bits);
                    let words = (self.words(header), header.shift);
                    self.isa.reaches(words, fixed, lengths, short)
                }
                // `FusedPlan::of` has refused others.
                PlanExtent::Computed(_) | PlanExtent::Other => continue,
            };
            self.settle(need, short.bits & !there.bits);
        }
    }

    /// Leaves frames for which a filter's text computes something that has no value.
    #[inline(never)]
    fn leave_without_value(&mut self) {
        let plan = self.plan;
        for need in plan.needs.iter().flat_map(|needs| &needs.list) {
            if let PlanExtent::Computed(column) = need.extent
                && let Column::Computed { program, .. } = plan.columns[column as usize]
            {
                let requested = self.guarded(need, self.state.open);
                let valued = self.computed(program, requested);
                self.settle(need, requested & !valued);
            }
        }
    }

    /// Rejects frames that lack needed bytes, or leaves them to columns if the rejection is not certain.
    #[inline(always)]
    fn settle(&mut self, need: &PlanNeed, lacking: u64) {
        if need.must && self.fused.alone {
            self.state.open &= !lacking;
        } else {
            let lacking = self.guarded(need, lacking);
            self.leave(lacking);
        }
    }

    /// The frames for which all guards of a need hold.
    #[inline(always)]
    fn guarded(&mut self, need: &PlanNeed, frames: u64) -> u64 {
        let mut part = self.part(frames);
        for (column, word_test) in &need.guards {
            if part.bits == 0 {
                break;
            }
            let location = column.location();
            self.load(location.chunk, part.bits);
            part = self.isa.select(self.words(location), part, word_test);
        }
        part.bits
    }

    /// Runs a program; returns the frames for which it has a value.
    #[inline(always)]
    fn computed(&mut self, program: u32, frames: u64) -> u64 {
        let at = program as usize % MAX_PLACES;
        let missing = frames & !self.state.computed[at];
        if missing != 0 {
            self.compute(program as usize, missing);
        }
        frames & self.state.valued[at] & self.state.open
    }

    #[inline(never)]
    fn compute(&mut self, number: usize, frames: u64) {
        let (plan, first) = (self.plan, 64 * self.index);
        let mut stack = Stack::new();
        let mut valued = frames;
        for &step in &plan.programs[number].steps {
            if let Step::Word { column, mask } = step {
                let location = plan.columns[column as usize].location();
                valued = self.reach_word(location, valued);
                let words: &[u32] = &self.words(location).0[first..first + 64];
                stack.push(|at| word_test::number(words[at], location.shift) & mask);
            } else {
                valued = stack.step(step, self.batch, first, valued);
            }
        }
        let (chunk, word) = (plan.chunks.len() + number / 4, number % 4);
        let words = &mut self.chunk_words[chunk][word].0[first..first + 64];
        for (at, (word, value)) in words.iter_mut().zip(stack.last()).enumerate() {
            *word = if frames >> at & 1 == 1 { value.swap_bytes() } else { *word };
        }
        let at = number % MAX_PLACES;
        let before = self.state.valued[at] & self.state.computed[at];
        self.state.valued[at] = before & !frames | valued;
        self.state.computed[at] |= frames;
    }

    /// Loads the words of a location; returns the frames that contain it.
    #[inline(always)]
    fn reach_word(&mut self, location: Location, frames: u64) -> u64 {
        self.load(location.chunk, frames);
        let behind = match location.base {
            NO_BASE => frames,
            base => self.behind(base, frames),
        };
        self.inside(location, behind)
    }

    /// The frames that contain the location, of those with the right words after headers.
    #[inline(always)]
    fn inside(&self, location: Location, frames: u64) -> u64 {
        let doubtful = frames & self.state.short;
        if doubtful == 0 || location.end <= self.batch.shortest() {
            return frames;
        }
        let there =
            self.isa.at_least(&self.batch.lengths().0, location.end, self.part(doubtful)).bits;
        let corrected = match location.base {
            NO_BASE => 0,
            base => self.state.corrected[base as usize % MAX_PLACES],
        };
        frames & (!doubtful | there | corrected)
    }

    #[inline(always)]
    fn leave(&mut self, frames: u64) {
        self.state.left |= self.state.open & frames;
        self.state.open &= !frames;
    }

    #[inline(always)]
    fn passes(&mut self, found: &mut [Mask]) {
        let fused = self.fused;
        // Frames that later passes accept stay open: a row may come before these passes.
        let mut taken = 0;
        for (pass, found) in found.iter_mut().enumerate() {
            let mut rest = self.state.open & !taken;
            if rest == 0 {
                break;
            }
            for step in fused.steps(pass) {
                rest = self.step(step, rest);
                if rest == 0 {
                    break;
                }
            }
            found.0[self.index] = rest;
            if pass < fused.early {
                self.state.open &= !rest;
            } else {
                taken |= rest;
            }
        }
    }

    /// The frames of `open` for which the instruction is true.
    #[inline(always)]
    fn step(&mut self, step: &FusedStep, open: u64) -> u64 {
        let plan = self.plan;
        let test = &plan.tests[step.test as usize];
        if step.kept == NOT_KEPT {
            self.instructions += u64::from(open.count_ones());
            return self.instruction(test, open);
        }
        let kept = usize::from(step.kept) % MAX_KEPT;
        let missing = open & !self.state.known[kept];
        self.instructions += u64::from(missing.count_ones());
        self.skipped += u64::from((open & !missing).count_ones());
        if missing != 0 {
            let truth = self.instruction(test, missing);
            self.state.known[kept] |= missing;
            self.state.truth[kept] |= truth;
        }
        // Frames that were left to columns meanwhile have no result.
        self.state.truth[kept] & open & self.state.open
    }

    #[inline(always)]
    fn instruction(&mut self, test: &PlanTest, frames: u64) -> u64 {
        let plan = self.plan;
        let location = |index: u32| plan.columns[index as usize].location();
        let mut frames = frames;
        for &column in &test.columns {
            frames = match plan.columns[column as usize] {
                Column::At(location) => self.reach_word(location, frames),
                Column::Computed { program, .. } => self.computed(program, frames),
            };
        }
        let part = self.part(frames);
        let truth = match &test.op {
            Op::AllOf(terms) => self.all_of(&test.columns, terms, part, location),
            Op::Halves(values) => {
                self.isa.halves(self.words(location(test.columns[0])), part, values).bits
            }
            Op::AnyOf(tests) => {
                let pairs = test.columns.iter().zip(tests);
                pairs.fold(0, |found, (&column, word_test)| {
                    found | self.isa.select(self.words(location(column)), part, word_test).bits
                })
            }
            Op::AnyRun(runs) => {
                let words = runs.first().map_or(1, |run| run.len().max(1));
                let places = test.columns.chunks(words);
                let pairs = places.flat_map(|place| runs.iter().map(move |run| (place, run)));
                pairs.fold(0, |found, (place, run)| found | self.all_of(place, run, part, location))
            }
            Op::Compare(relation) => {
                self.compare(*relation, [0, 1].map(|at| location(test.columns[at])), frames)
            }
            Op::Passes(set) => {
                let frames = only_word(self.index, frames);
                self.inner.evaluate(*set, self.batch, frames).0[self.index]
            }
            Op::OneByOne => self.one_by_one(test, frames),
        };
        match (&test.op, test.compiled.negated) {
            (Op::OneByOne, _) | (_, false) => truth & frames,
            (_, true) => frames & !truth,
        }
    }

    #[inline(always)]
    fn all_of(
        &self,
        columns: &[u32],
        terms: &[(u32, u32)],
        part: Part,
        location: impl Fn(u32) -> Location,
    ) -> u64 {
        let mut found = part;
        for (columns, terms) in columns.chunks(TERMS).zip(terms.chunks(TERMS)) {
            let term = |at: usize| {
                let (column, (mask, value)) = (columns[at], terms[at]);
                Term { words: self.words(location(column)), mask, value }
            };
            found = match columns.len().min(terms.len()) {
                0 => found,
                1 => self.isa.all_of(&[term(0)], found),
                2 => self.isa.all_of(&[term(0), term(1)], found),
                3 => self.isa.all_of(&[term(0), term(1), term(2)], found),
                _ => self.isa.all_of(&[term(0), term(1), term(2), term(3)], found),
            };
        }
        found.bits
    }

    /// Compares two computed words.
    #[inline(never)]
    fn compare(&self, relation: Relation, locations: [Location; 2], frames: u64) -> u64 {
        let [left, right] =
            locations.map(|location| &self.words(location).0[64 * self.index..][..64]);
        let holds = |at: usize| compares(relation, [left[at], right[at]].map(u32::swap_bytes));
        (0..64).fold(0, |found, at| found | u64::from(holds(at)) << at) & frames
    }

    /// Evaluates a test without a column; the negation is applied.
    #[inline(never)]
    fn one_by_one(&self, test: &PlanTest, frames: u64) -> u64 {
        let (mut rest, mut found) = (frames, 0);
        while rest != 0 {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            let frame = &self.batch.frames()[64 * self.index + bit as usize];
            let holds = test.compiled.test.holds(frame);
            found |= u64::from(holds.is_ok_and(|holds| holds != test.compiled.negated)) << bit;
        }
        found
    }

    #[inline(always)]
    fn words(&self, location: Location) -> &arch::Words {
        &self.chunk_words[location.chunk as usize][usize::from(location.word & 3)]
    }

    /// Loads a chunk of some frames, unless it is loaded.
    #[inline(always)]
    fn load(&mut self, chunk: u32, frames: u64) {
        let missing = frames & !self.state.loaded[chunk as usize % MAX_PLACES];
        if missing != 0 {
            self.load_late(chunk as usize, missing);
        }
    }

    /// Loads only the missing frames if they are few of a group of sixteen: IPv6 packets are rare in most networks.
    /// Chunks with words after a header are loaded for all frames, as frames with options are corrected only once.
    #[inline(never)]
    fn load_late(&mut self, chunk: usize, missing: u64) {
        let plan = self.plan;
        let (groups, loaded) = match plan.chunks[chunk].behind {
            0 => crowded(missing),
            _ => (self.groups(self.state.open) >> (4 * self.index), u64::MAX),
        };
        let (offsets, chunk_words) = (&plan.chunk_offsets[chunk..=chunk], &mut *self.chunk_words);
        let mut rest = missing & !loaded;
        while rest != 0 {
            let at = 64 * self.index + rest.trailing_zeros() as usize;
            rest &= rest - 1;
            load_one(self.batch, offsets[0], at, &mut chunk_words[chunk]);
        }
        if groups != 0 {
            self.isa.load(
                self.batch,
                offsets,
                groups << (4 * self.index),
                &mut chunk_words[chunk..=chunk],
            );
        }
        self.state.loaded[chunk] |= missing | loaded;
    }

    /// The frames for which the chunks have the right words after the header. Frames with options are corrected on
    /// first use; those that are too short are left to columns.
    #[inline(always)]
    fn behind(&mut self, base: u32, frames: u64) -> u64 {
        let at = base as usize % MAX_PLACES;
        if self.state.checked >> at & 1 == 0 {
            let header = self.plan.bases[base as usize].header;
            self.load(header.chunk, self.state.open);
            let term = Term {
                words: self.words(header),
                mask: placed(0xf, header.shift),
                value: placed(5, header.shift),
            };
            self.state.ready[at] = self.isa.all_of(&[term], self.part(self.state.open)).bits;
            self.state.corrected[at] = 0;
            self.state.checked |= 1 << at;
        }
        let odd = frames & !self.state.ready[at];
        if odd != 0 {
            let corrected = self.correct(base, odd);
            self.state.ready[at] |= corrected;
            self.state.corrected[at] |= corrected;
            self.leave(odd & !corrected);
        }
        frames & self.state.ready[at]
    }

    /// Corrects the words after a header with options; returns the frames that are long enough.
    #[inline(never)]
    fn correct(&mut self, number: u32, odd: u64) -> u64 {
        let (plan, batch) = (self.plan, self.batch);
        let base = &plan.bases[number as usize];
        let behind = |chunk: &usize| plan.chunks[*chunk].base == number;
        let reach = self.fused.reach[number as usize] as usize;
        (0..plan.chunks.len()).filter(behind).for_each(|chunk| self.load(chunk as u32, odd));
        let (mut rest, mut corrected) = (odd, 0);
        while rest != 0 {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let at = 64 * self.index + bit;
            let data = batch.bytes()[at];
            match base.base.start(data) {
                Ok(end) if end + reach <= data.len() => {
                    for chunk in (0..plan.chunks.len()).filter(behind) {
                        let place = (plan.chunks[chunk], base.plain_end);
                        correct_one(batch, place, end as u32, at, &mut self.chunk_words[chunk]);
                    }
                    corrected |= 1 << bit;
                }
                _ => {}
            }
        }
        corrected
    }
}

#[cfg(test)]
mod tests;
