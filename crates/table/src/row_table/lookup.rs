//! Look-up of a whole batch, compiled once per [`Level`](crate::Level).
//!
//! Tiers: a group of sixteen lanes that are not requested costs a test; most others end at their Bloom word; the rest
//! cost two bucket lines and, if they are found, an entry line. Keys that pass the Bloom test form a list, processed
//! [`BLOCK`] keys at a time, so that the cache lines of some keys are loading while others are processed.
//!
//! 1. Hash 16 lanes at once from the key columns. A word may be in one of two columns; each combination of choices for
//!    all such words has its own hash, and the combinations share partial sums.
//! 2. Load their Bloom words and test both bits of each. Keys that pass are appended to the list.
//! 3. Prefetch their buckets.
//! 4. Compare both buckets of each key; prefetch the entry of the first slot with its hash.
//! 5. Compare the keys. A key takes the slow path if its hash matches but its key does not (one in 2^32), if its slot
//!    was removed between the last two steps, or if it may be in the spill bucket.

use super::Rows;
use crate::arch::{MAX_KEYS, Probe, Sifted};
use crate::layout::{BUCKET_SLOTS, Column, slot_parts};
use crate::protocol;
use crate::sync::Ordering;
use fyke_frame::{BATCH_CAPACITY, Mask};
use std::hint::select_unpredictable;
use std::ops::Range;

/// Number of lanes that are hashed at once.
const GROUP: usize = 16;
/// Number of listed keys with loads in flight together: twice the number that first-level caches can have.
const BLOCK: usize = 32;
/// Marks a key without a candidate entry.
const NONE: u32 = u32::MAX;
/// Marks a key with a candidate that was removed since; another row may have its hash.
const GONE: u32 = u32::MAX - 1;

/// Limit on key words that may be in one of two columns.
pub const MAX_EITHER: usize = 2;
/// Limit on combinations of choices.
const MAX_CHOICES: usize = 1 << MAX_EITHER;
const _: () = assert!(MAX_CHOICES * BATCH_CAPACITY == MAX_KEYS);

/// A tag is the lane, the combination, and a flag for several slots with the hash.
const CHOICE_SHIFT: u32 = 8;
const SEVERAL: u32 = 1 << 16;

/// A word of the keys: one column, or two columns of which either may hold the word.
#[derive(Debug, Clone, Copy)]
pub struct KeyColumn<'a> {
    /// Words of the first column.
    pub words: &'a Column,
    /// Words of the other column.
    pub others: Option<&'a Column>,
}

/// A row that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Candidate {
    /// Lane of the key.
    pub lane: u8,
    /// Bit *n* is set if word *n* of the key is in its other column.
    pub choice: u8,
    /// True if there may be more rows with this key.
    pub more: bool,
    /// Value of the row.
    pub value: u32,
}

/// Scratch memory of a look-up, kept by the reader so that it need not be cleared for every batch.
#[derive(Debug, Clone)]
pub struct Scratch {
    /// Keys that passed the Bloom test.
    sifted: Sifted,
    /// Candidate entries of these keys.
    entries: [u32; MAX_KEYS],
    /// Rows that were found.
    found: [Candidate; MAX_KEYS],
}

impl Default for Scratch {
    fn default() -> Self {
        let (entries, found) = ([NONE; MAX_KEYS], [Candidate::default(); MAX_KEYS]);
        Scratch { sifted: Sifted::default(), entries, found }
    }
}

/// Input of a look-up.
pub struct Query<'a> {
    /// One column for each word of a key.
    pub columns: &'a [KeyColumn<'a>],
    /// Requested lanes.
    pub lanes: Mask,
}

/// Finds the rows of the lanes, at most one for each key. A lane has several keys if words may be in two columns; equal
/// keys are looked up only once.
#[inline(always)]
pub fn find_columns<'s, P: Probe>(
    probe: P,
    rows: &Rows,
    query: &Query<'_>,
    scratch: &'s mut Scratch,
) -> &'s [Candidate] {
    let count = match *query.columns {
        [a] => find::<P, 1>(probe, rows, &[a], query.lanes, scratch),
        [a, b] => find::<P, 2>(probe, rows, &[a, b], query.lanes, scratch),
        [a, b, c] => find::<P, 3>(probe, rows, &[a, b, c], query.lanes, scratch),
        [a, b, c, d] => find::<P, 4>(probe, rows, &[a, b, c, d], query.lanes, scratch),
        [a, b, c, d, e] => find::<P, 5>(probe, rows, &[a, b, c, d, e], query.lanes, scratch),
        [a, b, c, d, e, f] => find::<P, 6>(probe, rows, &[a, b, c, d, e, f], query.lanes, scratch),
        _ => 0,
    };
    &scratch.found[..count]
}

#[inline(always)]
fn find<P: Probe, const K: usize>(
    probe: P,
    rows: &Rows,
    columns: &[KeyColumn; K],
    lanes: Mask,
    scratch: &mut Scratch,
) -> usize {
    scratch.sifted.count = 0;
    for start in (0..BATCH_CAPACITY).step_by(GROUP) {
        let requested = (lanes.0[start / 64] >> (start % 64)) as u16;
        if requested != 0 {
            sift_group(probe, rows, columns, (start, requested), &mut scratch.sifted);
        }
    }
    let count = scratch.sifted.count.min(MAX_KEYS);
    let block = |from: usize| from.min(count)..(from + BLOCK).min(count);
    prefetch_homes(probe, rows, scratch, block(0));
    // In this loop over the list, a block's entries are compared while the next block's buckets are loading.
    let (mut hits, mut chosen, mut compared) = (0, 0, 0);
    for from in (0..count).step_by(BLOCK) {
        prefetch_homes(probe, rows, scratch, block(from + BLOCK));
        let before = chosen;
        chosen = choose_entries(probe, rows, scratch, block(from), chosen);
        hits = compare_keys(probe, rows, columns, scratch, compared..before, hits);
        compared = before;
    }
    compare_keys(probe, rows, columns, scratch, compared..chosen, hits)
}

#[inline(always)]
fn words(column: &Column, start: usize) -> &[u32; GROUP] {
    column[start..].first_chunk().unwrap_or(&[0; GROUP])
}

/// Hashes the keys of a group of lanes and lists those that pass the Bloom test.
#[inline(always)]
fn sift_group<P: Probe, const K: usize>(
    probe: P,
    rows: &Rows,
    columns: &[KeyColumn; K],
    (start, requested): (usize, u16),
    sifted: &mut Sifted,
) {
    let mut sums = [probe.sums(rows.hash.offset); MAX_CHOICES];
    let mut lanes = [requested; MAX_CHOICES];
    let mut choices = [0_u32; MAX_CHOICES];
    let mut used = 1;
    for (at, (column, &multiplier)) in columns.iter().zip(&rows.hash.multipliers).enumerate() {
        let first = words(column.words, start);
        let one = probe.term(first, multiplier);
        if let Some(others) = column.others.filter(|_| 2 * used <= MAX_CHOICES) {
            let second = words(others, start);
            let other = probe.term(second, multiplier);
            let differ = probe.differ(first, second);
            for choice in 0..used {
                choices[used + choice] = choices[choice] | 1 << at;
                lanes[used + choice] = lanes[choice] & differ;
                sums[used + choice] = probe.plus(sums[choice], other);
            }
            for sums in &mut sums[..used] {
                *sums = probe.plus(*sums, one);
            }
            used *= 2;
        } else {
            for sums in &mut sums[..used] {
                *sums = probe.plus(*sums, one);
            }
        }
    }
    for choice in 0..used {
        let tag = start as u32 | choices[choice] << CHOICE_SHIFT;
        probe.sift(rows.bloom(), sums[choice], lanes[choice], tag, sifted);
    }
}

#[inline(always)]
fn prefetch_homes<P: Probe>(probe: P, rows: &Rows, scratch: &Scratch, block: Range<usize>) {
    for &hash in &scratch.sifted.hashes[block] {
        let (first, second) = rows.homes(hash);
        probe.prefetch(&rows.buckets[first]);
        probe.prefetch(&rows.buckets[second]);
    }
}

/// Finds the entry of the first slot with the hash of each key of the block. Keys without one are dropped, unless they
/// may be in the spill bucket; the others are moved to index `kept` and up. Returns the new end.
#[inline(always)]
fn choose_entries<P: Probe>(
    probe: P,
    rows: &Rows,
    scratch: &mut Scratch,
    block: Range<usize>,
    mut kept: usize,
) -> usize {
    let spilled = rows.spilled() != 0;
    let Scratch { sifted, entries, .. } = scratch;
    for number in block {
        let (hash, tag) = (sifted.hashes[number], sifted.tags[number]);
        let (first, second) = rows.homes(hash);
        let one = probe.scan(&rows.buckets[first], hash).matches;
        let two = probe.scan(&rows.buckets[second], hash).matches;
        let both = u32::from(one) | u32::from(two) << 16;
        let index = both.trailing_zeros() as usize / 2;
        // The branch would be unpredictable.
        let bucket = select_unpredictable(index < BUCKET_SLOTS, first, second);
        let slot = rows.buckets[bucket].0[index % BUCKET_SLOTS].load(Ordering::Acquire);
        // Without a match, a useless prefetch costs less than a test.
        let entry = slot_parts(slot).map_or(GONE, |(_, entry)| entry);
        probe.prefetch(rows.entry_line(entry.min(rows.capacity() - 1)));
        let entry = select_unpredictable(both == 0, NONE, entry);
        let several = select_unpredictable(both & both.wrapping_sub(1) != 0, SEVERAL, 0);
        // No unread key is overwritten: `kept` is at most `number`.
        (sifted.hashes[kept], sifted.tags[kept], entries[kept]) = (hash, tag | several, entry);
        kept += usize::from(both != 0 || spilled);
    }
    kept
}

/// Compares the keys of the block and writes the rows that are present from index `hits` on; returns the new end.
#[inline(always)]
fn compare_keys<P: Probe, const K: usize>(
    probe: P,
    rows: &Rows,
    columns: &[KeyColumn; K],
    scratch: &mut Scratch,
    block: Range<usize>,
    mut hits: usize,
) -> usize {
    let spilled = rows.spilled() != 0;
    let Scratch { sifted, entries, found } = scratch;
    for number in block {
        let (tag, entry) = (sifted.tags[number], entries[number]);
        let (lane, choice) = (tag as u8, (tag >> CHOICE_SHIFT) as u8);
        let key: [u32; K] = std::array::from_fn(|at| columns[at].word(lane, choice >> at & 1 == 1));
        let mut value = None;
        if entry < GONE {
            value = protocol::read_entry(rows.entry_of::<K>(entry), &key);
        }
        if let Some(value) = value.or_else(|| rows.find(probe, &key, sifted.hashes[number])) {
            let more = spilled || tag & SEVERAL != 0;
            found[hits] = Candidate { lane, choice, more, value };
            hits += 1;
        }
    }
    hits
}

impl KeyColumn<'_> {
    /// Returns the word of a lane in the first or in the other column.
    #[inline(always)]
    pub fn word(&self, lane: u8, other: bool) -> u32 {
        let others = self.others.unwrap_or(self.words);
        let column = select_unpredictable(other, others, self.words);
        column[usize::from(lane)]
    }
}
