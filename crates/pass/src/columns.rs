//! Words of all frames of a batch, side by side.
//!
//! The frame's bytes are loaded in *windows* of sixteen, which become four columns each; where they lie is chosen
//! when the plan is laid out ([`windows`]), so that the words that instructions read lie in few of them and that no
//! window reaches farther into the frame than needed. A window is filled, sixteen frames at a time, when somebody
//! asks about frames in it, and kept until the next batch. Two widths and many places share a window's words.
//!
//! What lies behind an IPv4 header lies in a window too when the header has no options, which is nearly always:
//! only the other frames have it loaded one by one (with the offsets of their headers kept, NPF's computation
//! cache). A window is 4 KiB, a column of the slow way 1 KiB.

use crate::arch::{Level, Quad, WINDOW, Words};
use crate::lanes::Lanes;
use crate::plan::Plan;
use crate::test::{Base, Place};
use fyke_frame::{BATCH_CAPACITY, Frame, Mask, OutOfBounds};

/// A place in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Index of the window.
    pub window: u32,
    /// Which of its words.
    pub lane: u8,
    /// How far the word is shifted right.
    pub shift: u8,
    /// Bytes that the frame must have.
    pub end: u32,
}

/// Where the words of a place come from.
#[derive(Debug)]
pub(crate) enum Column {
    /// A fixed offset.
    Direct(Spot),
    /// Behind a header of variable length.
    Behind {
        place: Place,
        /// Index of the base.
        base: u32,
        /// Index of the column of frames that are loaded one by one.
        slow: u32,
        /// Where it lies in frames whose IPv4 header has no options.
        plain: Option<Spot>,
    },
}

/// A base, and the byte that says how long its IPv4 header is.
#[derive(Debug)]
pub(crate) struct PlanBase {
    pub base: Base,
    pub header: Option<Spot>,
}

/// A stretch of bytes that somebody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stretch {
    pub offset: u32,
    pub width: u8,
}

/// Chooses windows for stretches: their offsets, ascending, for [`spot`].
pub(crate) fn windows(mut stretches: Vec<Stretch>) -> Vec<u32> {
    const SIZE: u32 = WINDOW as u32;
    stretches.sort_unstable();
    let mut found: Vec<(u32, u32)> = Vec::new();
    for Stretch { offset, width } in stretches {
        let fits = |&(start, _): &(u32, u32)| {
            let from = offset - start;
            from + u32::from(width) <= SIZE && from % 4 + u32::from(width) <= 4
        };
        let end = offset + u32::from(width);
        let near = found.iter_mut().rev().take_while(|(start, _)| start + SIZE > offset);
        match { near }.find(|window| fits(window)) {
            Some((_, used)) => *used = end.max(*used),
            None => found.push((offset, end)),
        }
    }
    let mut windows: Vec<u32> = found
        .into_iter()
        .map(|(start, end)| start - (start + SIZE - end).min(start) / 4 * 4)
        .collect();
    windows.sort_unstable();
    windows
}

/// Where a stretch lies.
pub(crate) fn spot(windows: &[u32], stretch: Stretch, needed: u8) -> Option<Spot> {
    let Stretch { offset, width } = stretch;
    let above = windows.partition_point(|&start| start <= offset);
    (0..above).rev().find_map(|index| {
        let from = offset - windows[index];
        let inside = from + u32::from(width) <= WINDOW as u32 && from % 4 + u32::from(width) <= 4;
        inside.then(|| Spot {
            window: index as u32,
            lane: (from / 4) as u8,
            shift: (8 * (4 - from % 4 - u32::from(width))) as u8,
            end: offset + u32::from(needed),
        })
    })
}

/// Sixteen bytes of the frames that are `known`.
#[derive(Debug)]
struct Window {
    stamp: u64,
    known: Mask,
    quad: Box<Quad>,
}

/// A column that is filled one by one: `known` frames are, `inside` are those whose bytes lie in the frame.
#[derive(Debug)]
struct Slow {
    stamp: u64,
    known: Mask,
    inside: Mask,
    words: Box<Words>,
}

/// The frames whose IPv4 header has no options.
#[derive(Debug, Clone, Copy, Default)]
struct Plain {
    stamp: u64,
    known: Mask,
    plain: Mask,
}

impl Slow {
    fn new() -> Slow {
        let words = Box::new(Words::ZERO);
        Slow { stamp: 0, known: Mask::EMPTY, inside: Mask::EMPTY, words }
    }

    fn start(&mut self, stamp: u64) {
        if self.stamp != stamp {
            (self.stamp, self.known, self.inside) = (stamp, Mask::EMPTY, Mask::EMPTY);
        }
    }

    fn fill(&mut self, frame: usize, word: Result<u32, OutOfBounds>) {
        if let Ok(word) = word {
            self.words.0[frame] = word;
            self.inside.set(frame);
        }
    }
}

/// The batch that is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a, 'f> {
    pub plan: &'a Plan,
    pub frames: &'a [Frame<'f>],
    /// Number of the batch.
    pub stamp: u64,
    pub level: Level,
}

/// The columns of one reader.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    windows: Vec<Window>,
    slow: Vec<Slow>,
    bases: Vec<Slow>,
    plain: Vec<Plain>,
    /// Captured lengths, of the batch `lengths_stamp`.
    lengths: Option<Box<Words>>,
    lengths_stamp: u64,
    shortest: u32,
}

impl Columns {
    /// Makes room for the columns of a plan and forgets everything: columns mean something else now.
    pub fn fit(&mut self, plan: &Plan) {
        let window = || Window { stamp: 0, known: Mask::EMPTY, quad: Box::new([Words::ZERO; 4]) };
        self.windows.resize_with(plan.windows.len().max(self.windows.len()), window);
        self.slow.resize_with(plan.slow.max(self.slow.len()), Slow::new);
        self.bases.resize_with(plan.bases.len().max(self.bases.len()), Slow::new);
        self.plain.resize(plan.bases.len().max(self.plain.len()), Plain::default());
        self.windows.iter_mut().for_each(|window| window.stamp = 0);
        self.slow.iter_mut().chain(&mut self.bases).for_each(|column| column.stamp = 0);
        self.plain.iter_mut().for_each(|plain| plain.stamp = 0);
    }

    /// The frames with at least `length` captured bytes.
    pub fn at_least(&mut self, look: Look, length: u32, among: Mask) -> Mask {
        let lengths = self.lengths.get_or_insert_with(|| Box::new(Words::ZERO));
        if self.lengths_stamp != look.stamp {
            self.lengths_stamp = look.stamp;
            let mut shortest = u32::MAX;
            for (word, frame) in lengths.0.iter_mut().zip(look.frames) {
                *word = u32::try_from(frame.data.len()).unwrap_or(u32::MAX);
                shortest = shortest.min(*word);
            }
            self.shortest = shortest;
        }
        if length <= self.shortest {
            return among;
        }
        let long = Lanes::from(length);
        look.level.select(lengths, 0, among, &long)
    }

    /// The frames of `among` in which the spot lies; they are loaded afterwards.
    #[inline]
    fn ensure(&mut self, look: Look, spot: Spot, among: Mask) -> Mask {
        let inside = self.at_least(look, spot.end, among);
        let window = &mut self.windows[spot.window as usize];
        if window.stamp != look.stamp {
            (window.stamp, window.known) = (look.stamp, Mask::EMPTY);
        }
        let missing = inside.without(window.known);
        if !missing.is_empty() {
            window.fill(look, look.plan.windows[spot.window as usize], missing);
        }
        inside
    }

    fn words(&self, spot: Spot) -> &Words {
        &self.windows[spot.window as usize].quad[usize::from(spot.lane)]
    }

    /// The frames of `among` in which the spot lies, and those of them for which its word satisfies the test.
    #[inline]
    fn at(&mut self, look: Look, spot: Spot, among: Mask, lanes: &Lanes) -> (Mask, Mask) {
        let inside = self.ensure(look, spot, among);
        (inside, look.level.select(self.words(spot), spot.shift, inside, lanes))
    }

    /// Copies the masked words of the frames of `among` in which the place lies; those frames.
    pub fn gather(
        &mut self,
        look: Look,
        column: &Column,
        mask: u32,
        among: Mask,
        out: &mut [u32; BATCH_CAPACITY],
    ) -> Mask {
        let (spot, behind, fast) = match *column {
            Column::Direct(spot) => (Some(spot), None, among),
            Column::Behind { place, base, slow, plain } => {
                let fast = plain.map_or(Mask::EMPTY, |_| self.plain(look, base, among));
                (plain, Some((place, base, slow)), fast)
            }
        };
        let mut inside = Mask::EMPTY;
        if let Some(spot) = spot {
            inside = self.ensure(look, spot, fast);
            for (out, word) in out.iter_mut().zip(&self.words(spot).0) {
                *out = word >> spot.shift & mask;
            }
        }
        let rest = among.without(fast);
        if let (false, Some((place, base, slow))) = (rest.is_empty(), behind) {
            self.fill_slow(look, place, base, slow, rest);
            let column = &self.slow[slow as usize];
            for frame in (column.inside & rest).iter() {
                out[frame] = column.words.0[frame] & mask;
            }
            inside = inside | (column.inside & rest);
        }
        inside
    }

    /// The frames of `among` whose IPv4 header at the base has no options.
    pub fn plain(&mut self, look: Look, base: u32, among: Mask) -> Mask {
        let Some(header) = look.plan.bases[base as usize].header else { return Mask::EMPTY };
        let mut record = self.plain[base as usize];
        if record.stamp != look.stamp {
            record = Plain { stamp: look.stamp, ..Plain::default() };
        }
        let missing = among.without(record.known);
        if !missing.is_empty() {
            let test = Lanes::Equal { mask: 0xf, value: 5 };
            let (_, plain) = self.at(look, header, missing, &test);
            record.known = record.known | missing;
            record.plain = record.plain | plain;
            self.plain[base as usize] = record;
        }
        record.plain & among
    }

    /// The frames of `among` in which the column's place lies, and those of them for which the test holds.
    pub fn select(
        &mut self,
        look: Look,
        column: &Column,
        among: Mask,
        lanes: &Lanes,
    ) -> (Mask, Mask) {
        match *column {
            Column::Direct(spot) => self.at(look, spot, among, lanes),
            Column::Behind { place, base, slow, plain } => {
                let (mut inside, mut truth, mut rest) = (Mask::EMPTY, Mask::EMPTY, among);
                if let Some(spot) = plain {
                    let plain = self.plain(look, base, among);
                    (inside, truth) = self.at(look, spot, plain, lanes);
                    rest = rest.without(plain);
                }
                if !rest.is_empty() {
                    self.fill_slow(look, place, base, slow, rest);
                    let column = &self.slow[slow as usize];
                    inside = inside | (column.inside & rest);
                    truth =
                        truth | look.level.select(&column.words, 0, column.inside & rest, lanes);
                }
                (inside, truth)
            }
        }
    }

    fn fill_slow(&mut self, look: Look, place: Place, base: u32, slow: u32, among: Mask) {
        let column = &mut self.slow[slow as usize];
        column.start(look.stamp);
        let missing = among.without(column.known);
        if missing.is_empty() {
            return;
        }
        column.known = column.known | missing;
        let bases = &mut self.bases[base as usize];
        bases.start(look.stamp);
        for frame in missing.without(bases.known).iter() {
            let start = place.base.start(look.frames[frame].data);
            bases.fill(frame, start.map(|start| u32::try_from(start).unwrap_or(u32::MAX)));
        }
        bases.known = bases.known | missing;
        for frame in (missing & bases.inside).iter() {
            let start = bases.words.0[frame] as usize;
            column.fill(frame, place.load_from(look.frames[frame].data, start));
        }
    }
}

impl Window {
    /// Loads the frames `missing` and, where there are several of them in sixteen, their neighbours.
    fn fill(&mut self, look: Look, offset: u32, missing: Mask) {
        const FEW: u32 = 3;
        let mut groups = 0;
        let mut loaded = missing;
        for index in 0..16 {
            let (part, shift) = (index / 4, index % 4 * 16);
            let bits = (missing.0[part] >> shift) as u16;
            if bits == u16::MAX {
                groups |= 1 << index;
                continue;
            }
            if bits.count_ones() > FEW {
                groups |= 1 << index;
                loaded.0[part] |= 0xffff << shift;
            } else if bits != 0 {
                for frame in (0..16).filter(|bit| bits >> bit & 1 == 1) {
                    let at = 16 * index + frame;
                    crate::arch::load_one(look.frames, offset as usize, at, &mut self.quad);
                }
            }
        }
        look.level.load(look.frames, offset as usize, groups, &mut self.quad);
        self.known = self.known | loaded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(offset: u32, width: u8) -> Stretch {
        Stretch { offset, width }
    }

    #[test]
    fn two_windows_hold_what_ethernet_filters_read() {
        let read = [(12, 2), (12, 4), (14, 1), (20, 4), (26, 4), (30, 4), (34, 2), (36, 2)];
        let read = read.map(|(offset, width)| stretch(offset, width));
        let windows = windows(read.to_vec());
        assert_eq!(windows, [8, 22]);
        assert!(read.iter().all(|&one| spot(&windows, one, one.width).is_some()));
        let header = spot(&windows, stretch(14, 1), 1).unwrap();
        assert_eq!(header, Spot { window: 0, lane: 1, shift: 8, end: 15 });
    }

    #[test]
    fn every_stretch_finds_a_window() {
        let mut seed = 3_u32;
        let mut next = |limit: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 12) % limit
        };
        for _ in 0..2_000 {
            let count = next(20);
            let read: Vec<Stretch> =
                (0..count).map(|_| stretch(next(70), [1, 2, 4][next(3) as usize])).collect();
            let windows = windows(read.clone());
            for one in read {
                let spot = spot(&windows, one, one.width).expect("a window");
                let start = windows[spot.window as usize] + 4 * u32::from(spot.lane);
                let end = start + 4 - u32::from(spot.shift) / 8;
                assert_eq!(end, one.offset + u32::from(one.width));
            }
        }
    }
}
