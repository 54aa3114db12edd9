//! The look-up of a whole batch, compiled once per [`Level`](crate::Level).
//!
//! Tiers: lanes that nobody asks about cost nothing per group of 16; most others end at their Bloom word; the rest
//! pay two bucket lines and, when they are found, an entry line.
//!
//! 1. Hash 16 lanes at once from the key columns. A word may be at one of two places; each way to choose a place for
//!    every such word is a hash of its own, whose parts are shared with the others'.
//! 2. Load their Bloom words and test both bits of all of them.
//! 3. Note the survivors and start loading their buckets.
//! 4. Compare each survivor's two buckets, start loading the entry of the first slot with its hash.
//! 5. Compare the keys. Whoever has the hash but not the key (one in 2^32), had its slot taken out between the last two
//!    steps, or may be in the spill bucket, is looked up again the slow way.

use super::Rows;
use crate::arch::Probe;
use crate::layout::{BUCKET_SLOTS, Column, slot_parts};
use crate::protocol;
use crate::sync::Ordering;
use fyke_frame::{BATCH_CAPACITY, Mask};

/// Lanes hashed at once.
const GROUP: usize = 16;
/// Stands for "no candidate".
const NONE: u32 = u32::MAX;
/// Stands for "had a candidate that was taken out since"; there may be another row with its hash.
const GONE: u32 = u32::MAX - 1;

/// Most words of a key that may be at one of two places.
pub const MAX_EITHER: usize = 2;
/// Most ways to choose their places.
const MAX_CHOICES: usize = 1 << MAX_EITHER;
/// Most keys that are looked up for a batch.
const MAX_KEYS: usize = MAX_CHOICES * BATCH_CAPACITY;

/// A word of the keys: a column, or a column and another one of which either may hold the word.
#[derive(Debug, Clone, Copy)]
pub struct KeyColumn<'a> {
    /// The words.
    pub words: &'a Column,
    /// The words at the other place.
    pub others: Option<&'a Column>,
}

/// A row that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Candidate {
    /// Of which lane.
    pub lane: u8,
    /// Bit *n*: word *n* of the key is at its other place.
    pub choice: u8,
    /// There may be more rows with this key.
    pub more: bool,
    /// The row's value.
    pub value: u32,
}

/// What a look-up writes down on its way; kept by the reader, so that it need not be cleared for every batch.
#[derive(Debug, Clone)]
pub struct Scratch {
    /// Keys that passed the Bloom test: lane, choice, hash, and the entries that they may have.
    lanes: [u8; MAX_KEYS],
    choices: [u8; MAX_KEYS],
    hashes: [u32; MAX_KEYS],
    entries: [u32; MAX_KEYS],
    /// What was found.
    found: [Candidate; MAX_KEYS],
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            lanes: [0; MAX_KEYS],
            choices: [0; MAX_KEYS],
            hashes: [0; MAX_KEYS],
            entries: [NONE; MAX_KEYS],
            found: [Candidate::default(); MAX_KEYS],
        }
    }
}

/// What is looked up.
pub struct Query<'a> {
    /// One for each word of a key.
    pub columns: &'a [KeyColumn<'a>],
    /// The lanes that matter.
    pub lanes: Mask,
}

/// The lanes' rows, at most one for each key; a lane has several keys when words may be at two places, which are
/// looked up once each when the places hold the same.
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
    let mut count = 0;
    for start in (0..BATCH_CAPACITY).step_by(GROUP) {
        let asked = (lanes.0[start / 64] >> (start % 64)) as u16;
        if asked != 0 {
            count = filter_group(probe, rows, columns, (start, asked), scratch, count);
        }
    }
    choose_entries(probe, rows, scratch, count);
    compare_keys(probe, rows, columns, scratch, count)
}

#[inline(always)]
fn words(column: &Column, start: usize) -> &[u32; GROUP] {
    column[start..].first_chunk().unwrap_or(&[0; GROUP])
}

/// Hashes the keys of a group of lanes and notes those that pass the Bloom test.
#[inline(always)]
fn filter_group<P: Probe, const K: usize>(
    probe: P,
    rows: &Rows,
    columns: &[KeyColumn; K],
    (start, asked): (usize, u16),
    scratch: &mut Scratch,
    mut count: usize,
) -> usize {
    let mut sums = [probe.sums(rows.hash.offset); MAX_CHOICES];
    let mut lanes = [asked; MAX_CHOICES];
    let mut choices = [0_u8; MAX_CHOICES];
    let mut used = 1;
    for (at, (column, &multiplier)) in columns.iter().zip(&rows.hash.multipliers).enumerate() {
        let first = words(column.words, start);
        let Some(others) = column.others.filter(|_| 2 * used <= MAX_CHOICES) else {
            for sums in &mut sums[..used] {
                *sums = probe.add(*sums, first, multiplier);
            }
            continue;
        };
        let second = words(others, start);
        let differ = first.iter().zip(second).enumerate();
        let differ = differ.fold(0_u16, |all, (n, (a, b))| all | u16::from(a != b) << n);
        for choice in 0..used {
            let other = used + choice;
            choices[other] = choices[choice] | 1 << at;
            lanes[other] = lanes[choice] & differ;
            sums[other] = probe.add(sums[choice], second, multiplier);
            sums[choice] = probe.add(sums[choice], first, multiplier);
        }
        used *= 2;
    }
    let mut hashes = [0; GROUP];
    for choice in 0..used {
        let mut maybe = probe.may_contain(rows.bloom(), sums[choice], &mut hashes) & lanes[choice];
        while maybe != 0 {
            let lane = maybe.trailing_zeros() as usize;
            maybe &= maybe - 1;
            let hash = hashes[lane % GROUP];
            let (first, second) = rows.homes(hash);
            probe.prefetch(&rows.buckets[first]);
            probe.prefetch(&rows.buckets[second]);
            let at = count % MAX_KEYS;
            scratch.lanes[at] = (start + lane) as u8;
            scratch.choices[at] = choices[choice];
            scratch.hashes[at] = hash;
            count += 1;
        }
    }
    count
}

/// The entry of the first slot with the hash of each survivor, and whether there are several such slots.
#[inline(always)]
fn choose_entries<P: Probe>(probe: P, rows: &Rows, scratch: &mut Scratch, count: usize) {
    for number in 0..count.min(MAX_KEYS) {
        let hash = scratch.hashes[number];
        let (first, second) = rows.homes(hash);
        let one = probe.scan(&rows.buckets[first], hash).matches;
        let two = probe.scan(&rows.buckets[second], hash).matches;
        let both = u32::from(one) | u32::from(two) << 16;
        let index = both.trailing_zeros() as usize / 2;
        let bucket = if index < BUCKET_SLOTS { first } else { second };
        let slot = rows.buckets[bucket].0[index % BUCKET_SLOTS].load(Ordering::Acquire);
        scratch.entries[number] = match slot_parts(slot) {
            Some((_, entry)) if both != 0 => {
                probe.prefetch(rows.entry_line(entry));
                entry
            }
            None if both != 0 => GONE,
            _ => NONE,
        };
        scratch.found[number].more = both & both.wrapping_sub(1) != 0;
    }
}

#[inline(always)]
fn compare_keys<P: Probe, const K: usize>(
    probe: P,
    rows: &Rows,
    columns: &[KeyColumn; K],
    scratch: &mut Scratch,
    count: usize,
) -> usize {
    let spilled = rows.spilled() != 0;
    let mut hits = 0;
    for number in 0..count.min(MAX_KEYS) {
        let (lane, choice) = (scratch.lanes[number], scratch.choices[number]);
        let entry = scratch.entries[number];
        if entry == NONE && !spilled {
            continue;
        }
        let key: [u32; K] = std::array::from_fn(|at| columns[at].word(lane, choice >> at & 1 == 1));
        let mut value = None;
        if entry < GONE {
            value = protocol::read_entry(rows.entry(entry), &key);
        }
        if let Some(value) = value.or_else(|| rows.find(probe, &key, scratch.hashes[number])) {
            let more = spilled || scratch.found[number].more;
            scratch.found[hits] = Candidate { lane, choice, more, value };
            hits += 1;
        }
    }
    hits
}

impl KeyColumn<'_> {
    /// The word of a lane, at the first place or at the other.
    #[inline(always)]
    pub fn word(&self, lane: u8, other: bool) -> u32 {
        let column = if other { self.others.unwrap_or(self.words) } else { self.words };
        column[usize::from(lane)]
    }
}
