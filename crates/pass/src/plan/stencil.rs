//! Stencils, the quickest form of a plan: templates of masked words that are compared with a frame's bytes in place.
//!
//! Many filters test only places that are the same in every frame: this ethertype, that protocol, two nets. The words
//! of a pass, at most 32 bytes from the first to the last, are a *stencil*: one exclusive or and one masked compare
//! test all of them. Nothing is laid out in columns, a frame's cache line is touched once, and a frame costs about four
//! machine instructions for each stencil. The few stencils of a plan are compared with 64 frames, and the rest is
//! arithmetic with masks. Plans that need more (sets, intervals, ports after a header of variable length, more than
//! [`MAX_STENCILS`]) go to the fused tier.
//!
//! Frames that are too short for a stencil, or so short that a filter's order matters, are left to the fused tier,
//! unless every text of the plan rejects frames of that length.

use super::chunks::NO_BASE;
use super::chunks::{Column, word_at};
use super::word_test::WordTest;
use super::{MAX_PASSES, Op, Plan, PlanExtent, PlanPass, PlanTest};

/// Bytes that a stencil covers.
pub(crate) const STENCIL: usize = 32;
/// Largest number of stencils of a plan: with more, columns cost less.
pub(crate) const MAX_STENCILS: usize = 4;

/// For each stencil: those of 64 frames in which it holds.
pub(crate) type There = [u64; MAX_STENCILS];

/// Four bytes of a frame, read with the first as the lowest; masked, they must equal the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameWord {
    pub offset: u32,
    pub mask: u32,
    pub value: u32,
}

/// Words that must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stencil {
    /// Start of the 32 bytes.
    pub offset: u32,
    pub value: [u8; STENCIL],
    pub mask: [u8; STENCIL],
    words: Box<[FrameWord]>,
}

/// A condition: one of a few stencils must hold, or none of them.
#[derive(Debug)]
pub(crate) struct StencilCondition {
    pub stencils: Box<[u32]>,
    pub negated: bool,
}

/// The conditions of a pass.
#[derive(Debug)]
pub(crate) struct StencilPass {
    pub conditions: Vec<StencilCondition>,
    /// Its instructions: those evaluated for the first time, and those shared with earlier passes.
    pub instructions: u64,
    pub skipped: u64,
}

/// A plan in the form of stencils.
#[derive(Debug, Default)]
pub(crate) struct Stenciled {
    pub stencils: Vec<Stencil>,
    pub passes: Vec<StencilPass>,
    /// Shortest length of an accepted frame.
    pub least: u32,
    /// Frames of this length contain all bytes that the plan needs.
    pub enough: u32,
}

impl FrameWord {
    /// Start and end of the bytes that the mask selects.
    fn extent(self) -> (u32, u32) {
        let first = self.mask.trailing_zeros() / 8;
        let last = 4 - self.mask.leading_zeros() / 8;
        (self.offset + first.min(last), self.offset + last)
    }
}

impl Stencil {
    /// Lays out words. `None` if they are too far apart, or if no frame can satisfy two of them.
    pub fn new(words: &[FrameWord]) -> Option<Stencil> {
        let start = words.iter().map(|word| word.extent().0).min()?;
        let end = words.iter().map(|word| word.extent().1).max()?;
        // No byte after the last one is read, unless the frame's start is near.
        let offset = end.saturating_sub(STENCIL as u32);
        if start < offset {
            return None;
        }
        let (value, mask) = ([0; STENCIL], [0; STENCIL]);
        let mut stencil = Stencil { offset, value, mask, words: words.into() };
        for word in words {
            let bytes = word.mask.to_le_bytes().into_iter().zip(word.value.to_le_bytes());
            for (at, (mask, value)) in bytes.enumerate().filter(|(_, (mask, _))| *mask != 0) {
                let at = word.offset as usize + at - offset as usize;
                let both = stencil.mask[at] & mask;
                if stencil.value[at] & both != value & both {
                    return None;
                }
                stencil.mask[at] |= mask;
                stencil.value[at] |= value;
            }
        }
        Some(stencil)
    }

    /// End of the bytes of a frame that are read.
    pub fn end(&self) -> u32 {
        self.offset + STENCIL as u32
    }

    /// Tests a frame; missing bytes are zero.
    #[inline]
    pub fn holds(&self, data: &[u8]) -> bool {
        self.words.iter().all(|word| word_at(data, word.offset.into()) & word.mask == word.value)
    }
}

/// Words that an instruction demands.
enum Demand {
    All(Vec<FrameWord>),
    /// All words of one of these.
    Any(Vec<Vec<FrameWord>>),
}

/// Words that an instruction demands; `None` if it tests something else.
fn demand(plan: &Plan, test: &PlanTest) -> Option<Demand> {
    let offset = |&column: &u32| match plan.columns[column as usize] {
        Column::At(location) if location.base == NO_BASE => {
            Some(plan.chunk_offsets[location.chunk as usize] + 4 * u32::from(location.word))
        }
        _ => None,
    };
    let offsets: Vec<u32> = test.columns.iter().map(offset).collect::<Option<_>>()?;
    // A value with bits outside of the mask never matches, which bytes cannot express.
    let word = |offset: &u32, mask: u32, value: u32| {
        (value & !mask == 0).then_some(FrameWord { offset: *offset, mask, value })
    };
    let run = |offsets: &[u32], terms: &[(u32, u32)]| -> Option<Vec<FrameWord>> {
        offsets.iter().zip(terms).map(|(at, &(mask, value))| word(at, mask, value)).collect()
    };
    match &test.op {
        Op::AllOf(terms) => Some(Demand::All(run(&offsets, terms)?)),
        Op::AnyRun(runs) => {
            let places = offsets.chunks(runs.first()?.len().max(1));
            let each = places.flat_map(|place| runs.iter().map(|terms| run(place, terms)));
            Some(Demand::Any(each.collect::<Option<_>>()?))
        }
        Op::AnyOf(tests) => {
            let equal = |(at, word_test): (&u32, &WordTest)| match *word_test {
                WordTest::Equal { mask, value } => word(at, mask, value),
                _ => None,
            };
            let words: Vec<FrameWord> =
                offsets.iter().zip(tests).map(equal).collect::<Option<_>>()?;
            Some(match words.len() {
                1 => Demand::All(words),
                _ => Demand::Any(words.into_iter().map(|one| vec![one]).collect()),
            })
        }
        _ => None,
    }
}

impl Stenciled {
    /// The form of a plan as stencils, if it has one.
    pub fn of(plan: &Plan) -> Option<Stenciled> {
        if !plan.shapes.is_empty() || plan.passes.len() > MAX_PASSES {
            return None;
        }
        let mut stenciled = Stenciled::default();
        let mut seen = Vec::new();
        for pass in &plan.passes {
            stenciled.add_pass(plan, pass, &mut seen)?;
        }
        if !(1..=MAX_STENCILS).contains(&stenciled.stencils.len()) {
            return None;
        }
        let tests = plan.passes.iter().flat_map(|pass| plan.steps_of(pass));
        let columns = tests.flat_map(|step| &plan.tests[step.test as usize].columns);
        let read = columns.filter_map(|&column| match plan.columns[column as usize] {
            Column::At(location) => Some(location.end),
            Column::Computed { .. } => None,
        });
        let ends = stenciled.stencils.iter().map(Stencil::end).chain(read);
        stenciled.enough = ends.max().unwrap_or(0);
        let alone = plan.is_one_filter();
        for need in plan.needs.iter().flat_map(|needs| &needs.list) {
            let PlanExtent::Fixed(end) = need.extent else { return None };
            let bound =
                if need.must && alone { &mut stenciled.least } else { &mut stenciled.enough };
            *bound = end.max(*bound);
        }
        Some(stenciled)
    }

    fn add_pass(&mut self, plan: &Plan, pass: &PlanPass, seen: &mut Vec<u32>) -> Option<()> {
        // Words that must hold; alternatives of which one must hold, or none.
        let (mut must, mut others) = (Vec::new(), Vec::new());
        let (mut instructions, mut skipped) = (0, 0);
        for step in plan.steps_of(pass) {
            let test = &plan.tests[step.test as usize];
            match (demand(plan, test)?, test.compiled.negated) {
                (Demand::All(words), false) => must.extend(words),
                (Demand::All(words), true) => others.push((vec![words], true)),
                (Demand::Any(alternatives), negated) => others.push((alternatives, negated)),
            }
            match seen.contains(&step.record) {
                true => skipped += 1,
                false => {
                    instructions += 1;
                    seen.push(step.record);
                }
            }
        }
        // Alternatives include the words that must hold in any case, if they fit.
        let with = |alternative: &Vec<FrameWord>| [&must[..], alternative].concat();
        let fits = |words: &Vec<FrameWord>| Stencil::new(words).is_some();
        let joined = others.iter().position(|(alternatives, negated)| {
            !negated && alternatives.iter().map(with).all(|words| fits(&words))
        });
        match joined {
            Some(at) => others[at].0 = others[at].0.iter().map(with).collect(),
            None if must.is_empty() => {}
            None => others.insert(0, (vec![must], false)),
        }
        let mut conditions = Vec::new();
        for (alternatives, negated) in others {
            let numbers = alternatives.iter().map(|words| self.number(Stencil::new(words)?));
            conditions
                .push(StencilCondition { stencils: numbers.collect::<Option<_>>()?, negated });
        }
        self.passes.push(StencilPass { conditions, instructions, skipped });
        Some(())
    }

    /// The number of a stencil; equal stencils have the same number.
    fn number(&mut self, stencil: Stencil) -> Option<u32> {
        let known = self.stencils.iter().position(|known| *known == stencil);
        let number = known.unwrap_or(self.stencils.len());
        if known.is_none() {
            self.stencils.push(stencil);
        }
        (number < MAX_STENCILS).then_some(number as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(offset: u32, mask: u32, value: u32) -> FrameWord {
        FrameWord { offset, mask, value }
    }

    #[test]
    fn words_near_each_other_are_one_stencil() {
        let words = [word(30, 0xff, 10), word(12, 0xffff, 8), word(26, 0xff_ffff, 0x02_a8c0)];
        let stencil = Stencil::new(&words).expect("21 bytes");
        assert_eq!((stencil.offset, stencil.end()), (0, 32));
        assert_eq!((&stencil.mask[12..14], stencil.value[30]), (&[0xff; 2][..], 10));
        let mut frame = [0; 60];
        (frame[12], frame[30]) = (8, 10);
        frame[26..29].copy_from_slice(&[0xc0, 0xa8, 2]);
        assert!(stencil.holds(&frame) && !stencil.holds(&frame[..30]));
        // Bytes that no mask selects do not count.
        let words = [word(31, 0xffff_0000, 7 << 16), word(60, 1, 1)];
        assert_eq!(
            Stencil::new(&words).map(|stencil| (stencil.offset, stencil.end())),
            Some((29, 61))
        );
        assert_eq!(Stencil::new(&[word(28, 1, 1), word(60, 1, 1)]), None);
        assert_eq!(Stencil::new(&[word(31, 0xff, 2), word(31, 0xffff, 3)]), None);
    }
}
