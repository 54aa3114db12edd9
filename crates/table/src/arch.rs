//! Vector instructions, chosen at run time: AVX-512, AVX2, or none.
//!
//! A [`Level`] exists only for instructions that this processor has, so it is safe to pass one. The look-up is written
//! once (`row_table/lookup.rs`, `prefilter/batch.rs`, generic over `Probe`) and compiled once per level; only the
//! comparison of a bucket, hashing, the Bloom test, the transposition of headers, the packing of flags and prefetching
//! are written for each level. The tests of `row_table` and `prefilter` compare all levels bit by bit.
//!
//! Buckets are read by an `asm!` load, because the writer may store into them at the same time: a vector load through a
//! reference would be a data race in Rust's model. Each 8-byte lane of an aligned load is a value that was stored
//! there. The result is only a hint: the slot is loaded again, atomically, before it is followed.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions of one processor family")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions of one processor family")]
mod avx512;
mod portable;

use crate::bloom::BlockedBloom;
use crate::layout::{Bucket, Column};
use crate::register_set::RegisterSet;
use fyke_frame::{BATCH_CAPACITY, Mask};
use std::fmt;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;

/// A level of vector instructions that this processor has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Level(Kind);

/// The level, with a proof that the processor has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only instructions that every processor has.
    Portable,
    /// AVX2: eight words at a time.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512: sixteen words at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

/// Result of a comparison: slots with a hash (`matches`) and free slots (`free`); slot *n* is bit 2*n*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scan {
    pub matches: u16,
    pub free: u16,
}

/// Limit on keys that are looked up for a batch; some lanes are looked up with several keys.
pub(crate) const MAX_KEYS: usize = 4 * BATCH_CAPACITY;

/// Keys that passed the Bloom test.
#[derive(Debug, Clone)]
pub(crate) struct Sifted {
    pub count: usize,
    /// Creates the list with space for a vector after the last key.
    pub hashes: [u32; MAX_KEYS + 16],
    pub tags: [u32; MAX_KEYS + 16],
}

impl Default for Sifted {
    fn default() -> Self {
        Sifted { count: 0, hashes: [0; MAX_KEYS + 16], tags: [0; MAX_KEYS + 16] }
    }
}

impl Sifted {
    /// Adds the keys with a set bit; their hashes must all be computed.
    #[inline(always)]
    fn note(&mut self, hashes: &[u32; 16], mut maybe: u16, tag: u32) {
        while maybe != 0 {
            let at = maybe.trailing_zeros();
            maybe &= maybe - 1;
            self.hashes[self.count] = hashes[at as usize % 16];
            self.tags[self.count] = tag + at;
            self.count += 1;
        }
    }
}

/// Number of rows that are transposed together.
pub(crate) const ROWS: usize = 8;
/// Number of words of a row.
pub(crate) const ROW_WORDS: usize = 8;
/// Words at one place of each of many rows.
pub(crate) type RowColumn = [u32; 64];

/// Operations that are written for each level.
pub(crate) trait Probe: Copy {
    /// Compares the eight slots of a bucket.
    fn scan(self, bucket: &Bucket, hash: u32) -> Scan;
    /// State of sixteen keys during hashing, in registers.
    type Sums: Copy;
    /// Starts with the hash's offset.
    fn sums(self, offset: u64) -> Self::Sums;
    /// Computes the contribution of a word of each key to the sums.
    fn term(self, words: &[u32; 16], multiplier: u64) -> Self::Sums;
    /// Adds a contribution.
    fn plus(self, one: Self::Sums, other: Self::Sums) -> Self::Sums;
    /// Compares two words of each key; bit *n*: they differ.
    fn differ(self, one: &[u32; 16], other: &[u32; 16]) -> u16;
    /// Finishes the hashes and adds those keys of `requested` (bit *n*: key *n*) to the list that may be in the
    /// filter. The first key has this tag, the others the following tags.
    fn sift(
        self,
        bloom: &BlockedBloom,
        sums: Self::Sums,
        requested: u16,
        tag: u32,
        out: &mut Sifted,
    );
    /// Writes the words of rows, which are big-endian, to columns, in host order: word *n* of row *m* becomes word
    /// `first + m` of column *n*.
    ///
    /// # Panics
    /// If the columns have no such words.
    fn transpose(
        self,
        rows: &[&[u8; 4 * ROW_WORDS]; ROWS],
        columns: &mut [RowColumn; ROW_WORDS],
        first: usize,
    );
    /// Packs flags, 0 or 1, into bits: bit *n* is flag *n*.
    fn packed(self, flags: &[u8; 64]) -> u64;
    /// Prefetches a cache line.
    fn prefetch<T>(self, line: &T);
}

/// Work that is written once and compiled for each level. `run` must be `#[inline(always)]`.
pub(crate) trait Job {
    /// Result of the work.
    type Output;
    /// Runs the work.
    fn run<P: Probe>(self, probe: P) -> Self::Output;
}

impl Level {
    /// Returns the fastest level of this processor.
    pub fn best() -> Self {
        Self::all().pop().unwrap_or(Level(Kind::Portable))
    }

    /// Returns all levels of this processor, slowest first.
    pub fn all() -> Vec<Self> {
        let mut levels = vec![Level(Kind::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(Avx2::detect().map(|token| Level(Kind::Avx2(token))));
            levels.extend(Avx512::detect().map(|token| Level(Kind::Avx512(token))));
        }
        levels
    }

    /// Returns the name: `portable`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
        }
    }

    /// Returns the kind of the level, for code of other crates that is compiled for each.
    #[inline]
    pub fn kind(self) -> Kind {
        self.0
    }

    /// Prefetches the cache line of data that will be read soon; the portable level does nothing.
    #[inline]
    pub fn prefetch<T>(self, line: &T) {
        match self.0 {
            Kind::Portable => {}
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => token.prefetch(line),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => token.prefetch(line),
        }
    }

    /// Runs a job that is compiled with this level's instructions.
    #[inline]
    pub(crate) fn run<J: Job>(self, job: J) -> J::Output {
        match self.0 {
            Kind::Portable => job.run(portable::Portable),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => token.run(job),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => token.run(job),
        }
    }

    /// Returns the lanes of a column with a word in a set.
    pub(crate) fn register_set(self, set: &RegisterSet, column: &Column) -> Mask {
        match self.0 {
            Kind::Portable => set.column(column),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => token.register_set(set, column),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => token.register_set(set, column),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Seed;

    struct Pack([u8; 64]);

    impl Job for Pack {
        type Output = u64;

        fn run<P: Probe>(self, probe: P) -> u64 {
            probe.packed(&self.0)
        }
    }

    #[test]
    fn flags_are_packed_in_order() {
        let mut random = Seed::fixed(4);
        for _ in 0..1_000 {
            let bits = random.next();
            let flags = std::array::from_fn(|lane| (bits >> lane & 1) as u8);
            for level in Level::all() {
                assert_eq!(level.run(Pack(flags)), bits, "{level}");
            }
        }
    }

    struct Transpose<'a>([&'a [u8; 4 * ROW_WORDS]; ROWS], &'a mut [RowColumn; ROW_WORDS], usize);

    impl Job for Transpose<'_> {
        type Output = ();

        fn run<P: Probe>(self, probe: P) {
            probe.transpose(&self.0, self.1, self.2);
        }
    }

    #[test]
    fn rows_become_columns_and_other_words_stay() {
        let rows: [[u8; 4 * ROW_WORDS]; ROWS] =
            std::array::from_fn(|row| std::array::from_fn(|at| (32 * row + at) as u8));
        for level in Level::all() {
            for first in [0, 3, 56] {
                let mut columns = [[7; 64]; ROW_WORDS];
                level.run(Transpose(rows.each_ref(), &mut columns, first));
                for (word, column) in columns.iter().enumerate() {
                    for (lane, &found) in column.iter().enumerate() {
                        let row = lane.checked_sub(first).and_then(|row| rows.get(row));
                        let bytes = row.map(|row| row.as_chunks().0[word]);
                        let expected = bytes.map_or(7, u32::from_be_bytes);
                        assert_eq!(found, expected, "{level} {first} {word} {lane}");
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn rows_are_not_written_behind_the_columns() {
        let row = [0; 4 * ROW_WORDS];
        Level::best().run(Transpose([&row; ROWS], &mut [[0; 64]; ROW_WORDS], 57));
    }
}
