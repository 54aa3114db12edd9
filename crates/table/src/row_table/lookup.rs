//! The look-up of a whole batch, compiled once per [`Level`](crate::Level).
//!
//! Tiers: lanes that nobody asks about cost nothing per group of 16; most others end at their Bloom word; the rest
//! pay two bucket lines and, when they are found, an entry line.
//!
//! 1. Hash 16 lanes at once from the key columns.
//! 2. Load their Bloom words and test both bits of all of them.
//! 3. Note the survivors and start loading their buckets.
//! 4. Compare each survivor's buckets, start loading the entry of the first slot with its hash.
//! 5. Compare the keys. Whoever has the hash but not the key (one in 2^32), or may be in the spill bucket, is looked
//!    up again the slow way.

use super::Rows;
use crate::arch::Probe;
use crate::bloom::bits_of;
use crate::layout::{Column, MAX_KEY_WORDS, slot_parts};
use crate::protocol;
use crate::sync::Ordering;
use fyke_frame::{BATCH_CAPACITY, Mask};

/// Lanes hashed at once.
const GROUP: usize = 16;
/// Stands for "no candidate".
const NONE: u32 = u32::MAX;

/// The lanes of `lanes` whose key is there, and in `found` the values of those lanes.
#[inline(always)]
pub fn find_columns<P: Probe>(
    probe: P,
    rows: &Rows,
    columns: &[&Column],
    lanes: Mask,
    found: &mut Column,
) -> Mask {
    let mut hashes = [0; BATCH_CAPACITY];
    let mut survivors = [0u8; BATCH_CAPACITY];
    let mut count = 0;
    for group in 0..BATCH_CAPACITY / GROUP {
        let start = group * GROUP;
        let asked = (lanes.0[start / 64] >> (start % 64)) as u16;
        if asked == 0 {
            continue;
        }
        let group_hashes = hash_group(rows, columns, start);
        hashes[start..start + GROUP].copy_from_slice(&group_hashes);
        let mut maybe = bloom_group(probe, rows, &group_hashes) & asked;
        while maybe != 0 {
            let lane = maybe.trailing_zeros() as usize;
            maybe &= maybe - 1;
            let (first, second) = rows.homes(group_hashes[lane]);
            probe.prefetch(&rows.buckets[first]);
            probe.prefetch(&rows.buckets[second]);
            survivors[count] = (start + lane) as u8;
            count += 1;
        }
    }
    probe_survivors(probe, rows, columns, &survivors[..count], &hashes, found)
}

#[inline(always)]
fn hash_group(rows: &Rows, columns: &[&Column], start: usize) -> [u32; GROUP] {
    let mut sums = [rows.hash.offset; GROUP];
    for (column, &multiplier) in columns.iter().zip(&rows.hash.multipliers) {
        for (sum, &word) in sums.iter_mut().zip(&column[start..start + GROUP]) {
            *sum = sum.wrapping_add(multiplier.wrapping_mul(u64::from(word)));
        }
    }
    sums.map(|sum| crate::hash::spread((sum >> 32) as u32))
}

#[inline(always)]
fn bloom_group<P: Probe>(probe: P, rows: &Rows, hashes: &[u32; GROUP]) -> u16 {
    let (words, shift) = (rows.bloom().words(), rows.bloom().shift());
    let words = hashes.map(|hash| words[(hash >> shift) as usize].load(Ordering::Acquire));
    probe.contains_bits(&words, &hashes.map(bits_of))
}

#[inline(always)]
fn probe_survivors<P: Probe>(
    probe: P,
    rows: &Rows,
    columns: &[&Column],
    survivors: &[u8],
    hashes: &Column,
    found: &mut Column,
) -> Mask {
    let mut entries = [NONE; BATCH_CAPACITY];
    for &lane in survivors {
        let lane = usize::from(lane);
        let hash = hashes[lane];
        let (first, second) = rows.homes(hash);
        let mut bucket = first;
        let mut matches = probe.scan(&rows.buckets[first], hash).matches;
        if matches == 0 {
            bucket = second;
            matches = probe.scan(&rows.buckets[second], hash).matches;
        }
        if matches != 0 {
            let index = matches.trailing_zeros() as usize / 2;
            let slot = rows.buckets[bucket].0[index].load(Ordering::Acquire);
            if let Some((_, entry)) = slot_parts(slot) {
                probe.prefetch(rows.entry_line(entry));
                entries[lane] = entry;
            }
        }
    }
    let spilled = rows.spilled() != 0;
    let mut hits = Mask::EMPTY;
    for &lane in survivors {
        let lane = usize::from(lane);
        if entries[lane] == NONE && !spilled {
            continue;
        }
        let mut key = [0; MAX_KEY_WORDS];
        for (part, column) in key.iter_mut().zip(columns) {
            *part = column[lane];
        }
        let key = &key[..rows.key_words()];
        let mut value = None;
        if entries[lane] != NONE {
            value = protocol::read_entry(rows.entry(entries[lane]), key);
        }
        if let Some(value) = value.or_else(|| rows.find(probe, key, hashes[lane])) {
            found[lane] = value;
            hits.set(lane);
        }
    }
    hits
}
