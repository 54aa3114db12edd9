//! Choice of the bytes of a frame that are loaded together: chunks of sixteen bytes, four words each.
//!
//! Chosen when a plan is laid out: the words that instructions read lie in few chunks, and no chunk extends farther
//! into the frame than necessary. A word after an IPv4 header has a word of its own in a chunk, at its place for a
//! header without options; in frames with options that word is corrected (`columns.rs`). So a word of a chunk belongs
//! either to fixed offsets or to one such header, never to both.

use crate::isa::test::Base;

/// Number of bytes of a chunk.
pub(crate) const CHUNK_LEN: usize = 16;
const SIZE: u32 = CHUNK_LEN as u32;

/// "After no header" in [`Stretch::base`] and [`Location::base`].
pub(crate) const NO_BASE: u32 = u32::MAX;

/// A stretch of one, two or four bytes that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stretch {
    /// Its offset if the header before it (if any) has no options.
    pub offset: u32,
    pub width: u8,
    /// The header before it, or [`NO_BASE`].
    pub base: u32,
}

/// Location of a value in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// Index of the chunk.
    pub chunk: u32,
    /// Index of the word in the chunk.
    pub word: u8,
    /// Number of bits by which the word, read as a number, is shifted right.
    pub shift: u8,
    /// Frame length that is necessary if the header before it (if any) has no options.
    pub end: u32,
    /// The header before it, or [`NO_BASE`].
    pub base: u32,
}

/// Sixteen bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub offset: u32,
    /// The header before some of its words, or [`NO_BASE`].
    pub base: u32,
    /// Bit n: word n is after that header.
    pub behind: u8,
}

/// Source of the words of a place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    /// A location in a chunk.
    At(Location),
    /// A computed value.
    Computed {
        /// Index into [`Plan::programs`].
        program: u32,
        /// Location where the value is kept like a word; after the chunks.
        location: Location,
    },
}

impl Column {
    /// Location of the words.
    pub fn location(&self) -> Location {
        match *self {
            Column::At(location) | Column::Computed { location, .. } => location,
        }
    }

    /// Number of bits by which a word, read as a number, is shifted right.
    pub fn shift(&self) -> u8 {
        self.location().shift
    }
}

/// An IPv4 header before a place that is read.
#[derive(Debug)]
pub(crate) struct PlanBase {
    pub base: Base,
    /// The byte with its length.
    pub header: Location,
    /// Its end if it has no options.
    pub plain_end: u32,
}

/// A chunk while stretches are being placed.
struct Draft {
    start: u32,
    end: u32,
    base: u32,
    /// Bits of words with fixed places, and of words after the header.
    fixed: u8,
    behind: u8,
}

impl Draft {
    /// Takes a stretch, unless it crosses two words or a word would have two bases.
    fn take(&mut self, stretch: Stretch) -> bool {
        let Some(word) = word_index_of(self.start, stretch) else { return false };
        let bit = 1 << word;
        match stretch.base {
            NO_BASE if self.behind & bit == 0 => self.fixed |= bit,
            base if base != NO_BASE
                && self.fixed & bit == 0
                && (self.base == NO_BASE || self.base == base) =>
            {
                self.base = base;
                self.behind |= bit;
            }
            _ => return false,
        }
        self.end = self.end.max(stretch.offset + u32::from(stretch.width));
        true
    }
}

/// Index of the word that holds the stretch, in a chunk at `start`.
fn word_index_of(start: u32, stretch: Stretch) -> Option<u8> {
    let from = stretch.offset.checked_sub(start)?;
    let width = u32::from(stretch.width);
    (from + width <= SIZE && from % 4 + width <= 4).then_some((from / 4) as u8)
}

/// Adds chunks for the stretches that are in none of `chunks`, in ascending order.
pub(crate) fn add_chunks(chunks: &mut Vec<Chunk>, mut stretches: Vec<Stretch>) {
    stretches.retain(|&stretch| location(chunks, stretch, stretch.width).is_none());
    stretches.sort_unstable();
    let mut drafts: Vec<Draft> = Vec::new();
    for stretch in stretches {
        let near = drafts.iter_mut().rev().take_while(|draft| draft.start + SIZE > stretch.offset);
        if !{ near }.any(|draft| draft.take(stretch)) {
            let start = stretch.offset;
            let mut draft = Draft { start, end: start, base: NO_BASE, fixed: 0, behind: 0 };
            draft.take(stretch);
            drafts.push(draft);
        }
    }
    // Move a chunk towards the frame's start, by whole words, as far as its last stretch allows.
    let moved = drafts.iter().map(|draft| {
        let back = (draft.start + SIZE - draft.end).min(draft.start) / 4;
        let behind = draft.behind << back;
        Chunk { offset: draft.start - 4 * back, base: draft.base, behind }
    });
    let first = chunks.len();
    chunks.extend(moved);
    chunks[first..].sort_unstable_by_key(|chunk| chunk.offset);
}

/// The location of a stretch; `needed` of its bytes must be in the frame.
pub(crate) fn location(chunks: &[Chunk], stretch: Stretch, needed: u8) -> Option<Location> {
    chunks.iter().enumerate().find_map(|(index, chunk)| {
        let word = word_index_of(chunk.offset, stretch)?;
        let behind = chunk.behind >> word & 1 == 1;
        let own = if behind { chunk.base } else { NO_BASE };
        let from = (stretch.offset - chunk.offset) % 4;
        (own == stretch.base).then(|| Location {
            chunk: index as u32,
            word,
            shift: (8 * (4 - from - u32::from(stretch.width))) as u8,
            end: stretch.offset + u32::from(needed),
            base: stretch.base,
        })
    })
}

/// Four bytes of a frame, in the frame's order; those outside are zero.
#[inline]
pub(crate) fn word_at(data: &[u8], place: i64) -> u32 {
    let rest = usize::try_from(place).ok().and_then(|place| data.get(place..));
    match rest.and_then(|rest| rest.first_chunk()) {
        Some(&bytes) => u32::from_le_bytes(bytes),
        None => cut_word(data, place),
    }
}

#[cold]
fn cut_word(data: &[u8], place: i64) -> u32 {
    let byte = |index| usize::try_from(place + index).ok().and_then(|at| data.get(at)).copied();
    u32::from_le_bytes([0, 1, 2, 3].map(|index| byte(index).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(offset: u32, width: u8) -> Stretch {
        Stretch { offset, width, base: NO_BASE }
    }

    fn laid_out(stretches: &[Stretch]) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        add_chunks(&mut chunks, stretches.to_vec());
        chunks
    }

    #[test]
    fn two_windows_hold_what_ethernet_filters_read() {
        let mut read = [(12, 2), (12, 4), (14, 1), (20, 4), (26, 4), (30, 4), (34, 2), (36, 2)]
            .map(|(offset, width)| stretch(offset, width));
        (read[6].base, read[7].base) = (0, 0);
        let chunks = laid_out(&read);
        assert_eq!(chunks.iter().map(|chunk| chunk.offset).collect::<Vec<_>>(), [8, 22]);
        assert_eq!((chunks[1].base, chunks[1].behind), (0, 0b1000));
        assert!(read.iter().all(|&one| location(&chunks, one, one.width).is_some()));
        let header = location(&chunks, stretch(14, 1), 1).unwrap();
        assert_eq!(header, Location { chunk: 0, word: 1, shift: 8, end: 15, base: NO_BASE });
    }

    #[test]
    fn a_word_belongs_to_one_header_or_none() {
        let behind = |offset, base| Stretch { offset, width: 2, base };
        let read = [stretch(34, 4), behind(34, 0), behind(36, 0), behind(38, 1), stretch(40, 2)];
        let chunks = laid_out(&read);
        for one in read {
            let location = location(&chunks, one, one.width).expect("a chunk");
            let chunk = chunks[location.chunk as usize];
            assert_eq!(chunk.behind >> location.word & 1 == 1, one.base != NO_BASE);
            assert!(one.base == NO_BASE || chunk.base == one.base);
        }
    }

    #[test]
    fn every_stretch_finds_a_window() {
        let mut seed = 3_u32;
        let mut next = |limit: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 12) % limit
        };
        for _ in 0..2_000 {
            let mut some = |most: u32| -> Vec<Stretch> {
                let count = next(most);
                let mut one = || Stretch {
                    offset: next(70),
                    width: [1, 2, 4][next(3) as usize],
                    base: [NO_BASE, NO_BASE, 0, 1][next(4) as usize],
                };
                (0..count).map(|_| one()).collect()
            };
            let (read, more) = (some(20), some(5));
            let mut chunks = laid_out(&read);
            add_chunks(&mut chunks, more.clone());
            for one in read.into_iter().chain(more) {
                let location = location(&chunks, one, one.width).expect("a chunk");
                let start = chunks[location.chunk as usize].offset + 4 * u32::from(location.word);
                let end = start + 4 - u32::from(location.shift) / 8;
                assert_eq!(end, one.offset + u32::from(one.width));
            }
        }
    }
}
