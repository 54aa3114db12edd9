//! The look-up of a whole batch, compiled once per [`Level`](crate::Level).
//!
//! Tiers: lanes that nobody asks about cost nothing per group of 16; most others end at their Bloom word; the rest
//! pay two bucket lines and, when they are found, an entry line.
//!
//! 1. Hash 16 lanes at once from the key columns.
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

/// What a look-up writes down on its way; kept by the reader, so that it need not be cleared for every batch.
#[derive(Debug, Clone)]
pub struct Scratch {
    hashes: [u32; BATCH_CAPACITY],
    /// Lanes that passed the Bloom test, and the entries that they may have.
    lanes: [u8; BATCH_CAPACITY],
    entries: [u32; BATCH_CAPACITY],
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            hashes: [0; BATCH_CAPACITY],
            lanes: [0; BATCH_CAPACITY],
            entries: [NONE; BATCH_CAPACITY],
        }
    }
}

/// What is looked up, and where the answers go.
pub struct Query<'a> {
    /// One column per key word.
    pub columns: &'a [&'a Column],
    /// The lanes that matter.
    pub lanes: Mask,
    /// The values of the lanes that are found.
    pub found: &'a mut Column,
    /// Working memory.
    pub scratch: &'a mut Scratch,
}

/// The lanes whose key is there, with the value of one row of each in `query.found`; and the lanes that may have more
/// rows than this one.
#[inline(always)]
pub fn find_columns<P: Probe>(probe: P, rows: &Rows, query: Query<'_>) -> (Mask, Mask) {
    match *query.columns {
        [a] => find::<P, 1>(probe, rows, [a], query),
        [a, b] => find::<P, 2>(probe, rows, [a, b], query),
        [a, b, c] => find::<P, 3>(probe, rows, [a, b, c], query),
        [a, b, c, d] => find::<P, 4>(probe, rows, [a, b, c, d], query),
        [a, b, c, d, e] => find::<P, 5>(probe, rows, [a, b, c, d, e], query),
        [a, b, c, d, e, f] => find::<P, 6>(probe, rows, [a, b, c, d, e, f], query),
        _ => (Mask::EMPTY, Mask::EMPTY),
    }
}

#[inline(always)]
fn find<P: Probe, const K: usize>(
    probe: P,
    rows: &Rows,
    columns: [&Column; K],
    query: Query<'_>,
) -> (Mask, Mask) {
    let scratch = query.scratch;
    let mut count = 0;
    for start in (0..BATCH_CAPACITY).step_by(GROUP) {
        let asked = (query.lanes.0[start / 64] >> (start % 64)) as u16;
        if asked == 0 {
            continue;
        }
        let hashes = hash_group(rows, &columns, start);
        scratch.hashes[start..start + GROUP].copy_from_slice(&hashes);
        let mut maybe = probe.may_contain(rows.bloom(), &hashes) & asked;
        while maybe != 0 {
            let lane = start + maybe.trailing_zeros() as usize;
            maybe &= maybe - 1;
            let (first, second) = rows.homes(scratch.hashes[lane]);
            probe.prefetch(&rows.buckets[first]);
            probe.prefetch(&rows.buckets[second]);
            scratch.lanes[count] = lane as u8;
            count += 1;
        }
    }
    let more = choose_entries(probe, rows, scratch, count);
    let hits = compare_keys(probe, rows, &columns, scratch, count, query.found);
    (hits, if rows.spilled() == 0 { more & hits } else { hits })
}

#[inline(always)]
fn hash_group<const K: usize>(rows: &Rows, columns: &[&Column; K], start: usize) -> [u32; GROUP] {
    let mut sums = [rows.hash.offset; GROUP];
    for (column, multiplier) in columns.iter().zip(rows.hash.multipliers) {
        let words: &[u32; GROUP] = column[start..].first_chunk().unwrap_or(&[0; GROUP]);
        for (sum, &word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(multiplier.wrapping_mul(u64::from(word)));
        }
    }
    sums.map(|sum| crate::hash::spread((sum >> 32) as u32))
}

/// The entry of the first slot with the hash of each survivor; the lanes that have several such slots.
#[inline(always)]
fn choose_entries<P: Probe>(probe: P, rows: &Rows, scratch: &mut Scratch, count: usize) -> Mask {
    let mut several = Mask::EMPTY;
    for number in 0..count {
        let lane = usize::from(scratch.lanes[number]);
        let hash = scratch.hashes[lane];
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
        several.0[lane / 64] |= u64::from(both & both.wrapping_sub(1) != 0) << (lane % 64);
    }
    several
}

#[inline(always)]
fn compare_keys<P: Probe, const K: usize>(
    probe: P,
    rows: &Rows,
    columns: &[&Column; K],
    scratch: &Scratch,
    count: usize,
    found: &mut Column,
) -> Mask {
    let spilled = rows.spilled() != 0;
    let mut hits = Mask::EMPTY;
    for number in 0..count {
        let (lane, entry) = (usize::from(scratch.lanes[number]), scratch.entries[number]);
        if entry == NONE && !spilled {
            continue;
        }
        let key: [u32; K] = columns.map(|column| column[lane]);
        let mut value = None;
        if entry < GONE {
            value = protocol::read_entry(rows.entry(entry), &key);
        }
        if let Some(value) = value.or_else(|| rows.find(probe, &key, scratch.hashes[lane])) {
            found[lane] = value;
            hits.set(lane);
        }
    }
    hits
}
