//! Words of all frames of a batch, side by side.
//!
//! Bytes of frames are loaded in chunks (`plan/chunks.rs`), four columns each. The first chunks, which a filter's
//! first instructions read, are loaded when a batch begins, sixteen frames at a time; the others on first use. Loaded
//! chunks are kept until the next batch.
//!
//! A word after an IPv4 header is loaded from its place for a header without options, which nearly all headers are.
//! Frames with options (`odd`) have such words corrected one by one. Their length is kept without the options, so that
//! the test if a place lies in the frame is the same comparison for all frames. The headers' ends are kept (NPF's
//! computation cache). Computed values (`program.rs`) are computed one by one here. A chunk is 4 KiB, a column 1 KiB.

use crate::judge::arch::{ChunkWords, Level, TERMS, Term, Vectors, Words, load_one};
use crate::plan::Plan;
use crate::plan::chunks::{Chunk, Column, Location, NO_BASE, PlanBase, word_at};
use crate::plan::word_test::{WordTest, number};
use fyke_frame::condition::Relation;
use fyke_frame::{BATCH_CAPACITY, Batch, Lengths, Mask};

/// The batch that is judged.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a, 'f> {
    pub plan: &'a Plan,
    pub batch: &'a Batch<'f>,
    pub level: Level,
}

/// Frames of which a chunk is loaded, and those of them with corrected words after a header.
#[derive(Debug, Clone, Copy, Default)]
struct Loaded {
    known: Mask,
    corrected: Mask,
}

/// State of a header.
#[derive(Debug)]
struct Header {
    /// Frames of which the header has been read.
    checked: Mask,
    /// Those of them with options in the header, or with a truncated header.
    odd: Mask,
    /// End of the header, for odd frames.
    ends: Box<Words>,
    /// Lengths without the options; valid if there are odd frames.
    lengths: Box<Lengths>,
    shortest: u32,
}

/// A column that is filled one by one: `known` frames are filled, `inside` are those that have a value.
#[derive(Debug, Clone, Copy, Default)]
struct Computed {
    known: Mask,
    inside: Mask,
}

/// The columns of one reader.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    chunk_words: Vec<ChunkWords>,
    loaded: Vec<Loaded>,
    headers: Vec<Header>,
    computed: Vec<Computed>,
}

impl Columns {
    /// Makes room for the columns of a plan.
    pub fn fit(&mut self, plan: &Plan) {
        let header = || Header {
            checked: Mask::EMPTY,
            odd: Mask::EMPTY,
            ends: Box::new(Words::ZERO),
            lengths: Box::new(Lengths([0; BATCH_CAPACITY])),
            shortest: 0,
        };
        let computed = plan.programs.len();
        self.chunk_words.resize(plan.chunks.len() + computed.div_ceil(4), [Words::ZERO; 4]);
        self.loaded.resize(plan.chunks.len(), Loaded::default());
        self.headers.resize_with(plan.bases.len(), header);
        self.computed.resize(computed, Computed::default());
    }

    /// The words of chunks, for callers that load them by other means.
    pub fn chunk_words(&mut self) -> &mut [ChunkWords] {
        &mut self.chunk_words
    }

    /// Drops the last batch and loads the first chunks of this one.
    #[inline]
    pub fn start(&mut self, look: Look, within: Mask) {
        self.loaded.fill(Loaded::default());
        for header in &mut self.headers {
            (header.checked, header.odd) = (Mask::EMPTY, Mask::EMPTY);
        }
        self.computed.fill(Computed::default());
        self.fill(look, 0..look.plan.first_chunks, within);
    }

    /// Loads the column for `among`; returns the frames that contain its place.
    #[inline]
    pub fn prepare(&mut self, look: Look, column: &Column, among: Mask) -> Mask {
        match *column {
            Column::At(location) if location.base == NO_BASE => {
                let inside = at_least(look, location.end, among);
                self.load(look, location.chunk as usize, inside);
                inside
            }
            Column::At(location) => {
                self.check(look, location.base as usize, among);
                let header = &self.headers[location.base as usize];
                let (odd, inside) = if header.odd.is_empty() {
                    (Mask::EMPTY, at_least(look, location.end, among))
                } else if location.end <= header.shortest {
                    (header.odd, among)
                } else {
                    (header.odd, look.level.at_least(&header.lengths.0, location.end, among))
                };
                self.load(look, location.chunk as usize, inside);
                let rest = (inside & odd).without(self.loaded[location.chunk as usize].corrected);
                if !rest.is_empty() {
                    self.correct(look, location.chunk as usize, rest);
                }
                inside
            }
            Column::Computed { program, location } => {
                let column = &mut self.computed[program as usize];
                let missing = among.without(column.known);
                column.known = column.known | missing;
                let program = &look.plan.programs[program as usize];
                let words =
                    &mut self.chunk_words[location.chunk as usize][usize::from(location.word & 3)];
                for at in missing.iter() {
                    if let Ok(value) = program.value(&look.batch.frames()[at]) {
                        words.0[at] = value.swap_bytes();
                        column.inside.set(at);
                    }
                }
                column.inside & among
            }
        }
    }

    /// The column's words; valid for frames that were prepared.
    #[inline]
    pub fn words(&self, column: &Column) -> &Words {
        self.words_at(column.location())
    }

    /// The frames of `among` that contain the column's place, and those of them for which the test holds.
    #[inline]
    pub fn select(
        &mut self,
        look: Look,
        column: &Column,
        among: Mask,
        word_test: &WordTest,
    ) -> (Mask, Mask) {
        let inside = self.prepare(look, column, among);
        (inside, look.level.select(self.words(column), inside, word_test))
    }

    /// The frames of `among` that contain all places, and those of them for which all comparisons hold.
    #[inline]
    pub fn all_of(
        &mut self,
        look: Look,
        columns: &[u32],
        terms: &[(u32, u32)],
        among: Mask,
    ) -> (Mask, Mask) {
        let column = |index: u32| &look.plan.columns[index as usize];
        let prepared = |inside, &index: &u32| self.prepare(look, column(index), inside);
        let inside = columns.iter().fold(among, prepared);
        let mut found = inside;
        for (columns, terms) in columns.chunks(TERMS).zip(terms.chunks(TERMS)) {
            let Some(&first) = columns.first() else { break };
            let none = Term { words: self.words(column(first)), mask: 0, value: 0 };
            let mut some = [none; TERMS];
            for ((some, &index), &(mask, value)) in some.iter_mut().zip(columns).zip(terms) {
                *some = Term { words: self.words(column(index)), mask, value };
            }
            found = look.level.all_of(&some[..columns.len()], found);
        }
        (inside, found)
    }

    /// The frames of `among` that contain both places, and those of them in which the first compares to the second.
    pub fn compare(
        &mut self,
        look: Look,
        relation: Relation,
        columns: &[u32],
        among: Mask,
    ) -> (Mask, Mask) {
        let &[left, right] = columns else { return (Mask::EMPTY, Mask::EMPTY) };
        let [left, right] = [left, right].map(|index| &look.plan.columns[index as usize]);
        let inside = self.prepare(look, left, among);
        let inside = self.prepare(look, right, inside);
        let words = [left, right].map(|column| (self.words(column), column.shift()));
        let mut found = Mask::EMPTY;
        let holds = |at: &usize| {
            compares(relation, words.map(|(words, shift)| number(words.0[*at], shift)))
        };
        inside.iter().filter(holds).for_each(|at| found.set(at));
        (inside, found)
    }

    /// Copies the masked words of prepared frames, as numbers without gaps.
    pub fn gather(
        &self,
        look: Look,
        column: &Column,
        mask: u32,
        among: Mask,
        out: &mut [u32; BATCH_CAPACITY],
    ) {
        look.level.numbers((self.words(column), column.shift()), mask, among, out);
    }

    /// The frames of `among` that contain the header that ends at the base and at least `fixed` more bytes.
    pub fn reaches(&mut self, look: Look, base: usize, fixed: u32, among: Mask) -> Mask {
        let header = look.plan.bases[base].header;
        let inside = self.prepare(look, &Column::At(header), among);
        let words = (self.words_at(header), header.shift);
        look.level.reaches(words, fixed, &look.batch.lengths().0, inside)
    }

    fn words_at(&self, location: Location) -> &Words {
        &self.chunk_words[location.chunk as usize][usize::from(location.word & 3)]
    }

    /// Loads those of the frames that are not loaded yet.
    #[inline]
    fn load(&mut self, look: Look, chunk: usize, frames: Mask) {
        let missing = frames.without(self.loaded[chunk].known);
        if !missing.is_empty() {
            self.fill(look, chunk..chunk + 1, missing);
        }
    }

    /// Loads the frames `missing` and, if there are several of them in a group of sixteen, the whole group.
    fn fill(&mut self, look: Look, chunks: std::ops::Range<usize>, missing: Mask) {
        let offsets = &look.plan.chunk_offsets[chunks.clone()];
        let (mut groups, mut loaded) = (0, Mask::EMPTY);
        for (index, &part) in missing.0.iter().enumerate() {
            let (some, all) = if part == u64::MAX { (0xf, part) } else { crowded(part) };
            groups |= some << (4 * index);
            loaded.0[index] = all;
        }
        for at in missing.without(loaded).iter() {
            for (&offset, one_chunk) in offsets.iter().zip(&mut self.chunk_words[chunks.clone()]) {
                load_one(look.batch, offset, at, one_chunk);
            }
        }
        if groups != 0 {
            look.level.load(look.batch, offsets, groups, &mut self.chunk_words[chunks.clone()]);
        }
        let loaded = loaded | missing;
        for chunk in &mut self.loaded[chunks] {
            chunk.known = chunk.known | loaded;
            chunk.corrected = chunk.corrected.without(loaded);
        }
    }

    /// Finds the frames with options in the header, and the end of that header.
    #[inline]
    fn check(&mut self, look: Look, base: usize, frames: Mask) {
        let missing = frames.without(self.headers[base].checked);
        if missing.is_empty() {
            return;
        }
        let header = look.plan.bases[base].header;
        let no_options = WordTest::equal(0xf, 5, header.shift);
        let (_, plain) = self.select(look, &Column::At(header), missing, &no_options);
        let header = &mut self.headers[base];
        header.checked = header.checked | missing;
        let odd = missing.without(plain);
        if !odd.is_empty() {
            header.add_odd(look, &look.plan.bases[base], odd);
        }
    }

    /// Loads the words after the header for frames with options in it.
    #[cold]
    fn correct(&mut self, look: Look, index: usize, frames: Mask) {
        let chunk = look.plan.chunks[index];
        let base = &look.plan.bases[chunk.base as usize];
        let header = &self.headers[chunk.base as usize];
        for at in frames.iter() {
            let end = header.ends.0[at];
            correct_one(look.batch, (chunk, base.plain_end), end, at, &mut self.chunk_words[index]);
        }
        self.loaded[index].corrected = self.loaded[index].corrected | frames;
    }
}

/// Loads the words of a chunk that are after a header, if the header ends at `end` and not at `plain_end`, where
/// headers without options end.
pub(crate) fn correct_one(
    batch: &Batch,
    (chunk, plain_end): (Chunk, u32),
    end: u32,
    at: usize,
    one_chunk: &mut ChunkWords,
) {
    let data = batch.bytes()[at];
    for (lane, words) in one_chunk.iter_mut().enumerate() {
        if chunk.behind >> lane & 1 == 1 {
            let behind = i64::from(chunk.offset) + 4 * lane as i64 - i64::from(plain_end);
            words.0[at] = word_at(data, i64::from(end) + behind);
        }
    }
}

impl Header {
    #[cold]
    fn add_odd(&mut self, look: Look, base: &PlanBase, odd: Mask) {
        if self.odd.is_empty() {
            *self.lengths = *look.batch.lengths();
            self.shortest = look.batch.shortest();
        }
        self.odd = self.odd | odd;
        for at in odd.iter() {
            let data = look.batch.bytes()[at];
            // A frame without the header's first byte has no bytes after the header.
            let (end, length) = match base.base.start(data) {
                Ok(end) => (end, (data.len() + base.plain_end as usize).saturating_sub(end)),
                Err(_) => (0, 0),
            };
            self.ends.0[at] = u32::try_from(end).unwrap_or(u32::MAX);
            self.lengths.0[at] = u32::try_from(length).unwrap_or(u32::MAX);
            self.shortest = self.shortest.min(self.lengths.0[at]);
        }
    }
}

/// The groups of sixteen with more than a few frames, a bit each, and all frames of these groups.
pub(crate) fn crowded(part: u64) -> (u16, u64) {
    const SPARSE: u32 = 3;
    (0..4).fold((0, 0), |(groups, all), group| {
        let bits = part >> (16 * group) & 0xffff;
        let many = u64::from(bits.count_ones() > SPARSE);
        (groups | (many as u16) << group, all | (many * 0xffff) << (16 * group))
    })
}

/// Compares two numbers.
#[inline]
pub(crate) fn compares(relation: Relation, [left, right]: [u32; 2]) -> bool {
    match relation {
        Relation::Equal => left == right,
        Relation::Greater => left > right,
        Relation::GreaterOrEqual => left >= right,
    }
}

/// The frames of `among` with at least `length` captured bytes.
#[inline]
pub(crate) fn at_least(look: Look, length: u32, among: Mask) -> Mask {
    if length <= look.batch.shortest() {
        return among;
    }
    look.level.at_least(&look.batch.lengths().0, length, among)
}
