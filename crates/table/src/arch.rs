//! Vector instructions, chosen at run time: AVX-512, AVX2, or none.
//!
//! A [`Level`] can only be had for what this processor has, so that passing one is safe. The look-up itself is
//! written once (`row_table/lookup.rs`, generic over `Probe`) and compiled once per level; only the comparison of a
//! bucket, hashing, the Bloom test and prefetching are written per level. The tests of `row_table` compare all levels
//! bit by bit.
//!
//! Buckets are read by an `asm!` load, because the writer may store into them at the same time: a vector load through
//! a reference would be a data race in Rust's model. Each 8-byte lane of an aligned load is some value that was stored
//! there. What is found is a hint in any case: the slot is loaded again, atomically, before it is followed.

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

/// A way to compute that this processor has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Level(Kind);

/// Which way, with a proof that the processor has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing but what every processor has.
    Portable,
    /// Eight words at a time.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// Sixteen words at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

/// Which slots of a bucket have a hash (`matches`), and which are free (`free`): slot *n* is bit 2*n*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scan {
    pub matches: u16,
    pub free: u16,
}

/// Most keys that are looked up for a batch: some lanes are looked up under several keys.
pub(crate) const MAX_KEYS: usize = 4 * BATCH_CAPACITY;

/// Keys that passed the Bloom test.
#[derive(Debug, Clone)]
pub(crate) struct Sifted {
    pub count: usize,
    /// With room for a vector behind the last one.
    pub hashes: [u32; MAX_KEYS + 16],
    pub tags: [u32; MAX_KEYS + 16],
}

impl Default for Sifted {
    fn default() -> Self {
        Sifted { count: 0, hashes: [0; MAX_KEYS + 16], tags: [0; MAX_KEYS + 16] }
    }
}

impl Sifted {
    /// Notes keys, the hashes of which are all computed, by their bits.
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

/// What a level does in its own way.
pub(crate) trait Probe: Copy {
    /// Compares the eight slots of a bucket.
    fn scan(self, bucket: &Bucket, hash: u32) -> Scan;
    /// Sixteen keys that are being hashed, in registers.
    type Sums: Copy;
    /// Begins with the hash's offset.
    fn sums(self, offset: u64) -> Self::Sums;
    /// What a word of each key adds to the sums.
    fn term(self, words: &[u32; 16], multiplier: u64) -> Self::Sums;
    /// Adds.
    fn plus(self, one: Self::Sums, other: Self::Sums) -> Self::Sums;
    /// Bit *n*: words *n* are different.
    fn differ(self, one: &[u32; 16], other: &[u32; 16]) -> u16;
    /// Ends the hashes and notes those of `asked` (bit *n*: key *n*) whose keys may be in the filter, the first with
    /// this tag, the others with the following ones.
    fn sift(self, bloom: &BlockedBloom, sums: Self::Sums, asked: u16, tag: u32, out: &mut Sifted);
    /// Starts loading a cache line.
    fn prefetch<T>(self, line: &T);
}

/// Work that is written once and compiled for each level. `run` has to be `#[inline(always)]`.
pub(crate) trait Job {
    /// What comes out.
    type Output;
    /// Does it.
    fn run<P: Probe>(self, probe: P) -> Self::Output;
}

impl Level {
    /// The fastest of this processor.
    pub fn best() -> Self {
        Self::all().pop().unwrap_or(Level(Kind::Portable))
    }

    /// All of this processor, slowest first.
    pub fn all() -> Vec<Self> {
        let mut levels = vec![Level(Kind::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(Avx2::detect().map(|token| Level(Kind::Avx2(token))));
            levels.extend(Avx512::detect().map(|token| Level(Kind::Avx512(token))));
        }
        levels
    }

    /// `portable`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
        }
    }

    /// Which way it is, for code of other crates that is compiled for each.
    #[inline]
    pub fn kind(self) -> Kind {
        self.0
    }

    /// Starts loading the cache line of what will be looked at soon; the portable level does not.
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

    /// Does a job with this level's instructions, all of it compiled for them.
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

    /// The lanes of a column whose word is in a set.
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
