//! The gate: which rules cannot match since bytes that they need are not there.
//!
//! Rules that begin with `*` multiply each other's states in one automaton. Where that goes over the limit, those with
//! bytes that must stand together somewhere (at least three) get a small automaton each, and one scan over the packet
//! finds the few that are worth running: the first bytes of each rule's needed run, letters folded, are hashed into a
//! bitmap of 8 KiB; a position whose hash is in it is compared in full. Positions do not depend on each other, so the
//! processor works on several at a time, which a table of states cannot have.
//!
//! Cost: one multiplication and one load per byte; false alarms at (rules / 65536) of the positions.

use crate::byte_set::ByteSet;
use crate::node::Node;

/// Fewest bytes that are needed together.
pub const MIN_RUN: usize = 3;
/// More are not compared.
const MAX_RUN: usize = 16;
const BUCKETS: usize = 1 << 16;

/// Needed runs of rules, ready to scan for.
#[derive(Debug)]
pub struct Gate {
    /// Which of the first four bytes of a position count.
    mask: u32,
    bitmap: Vec<u64>,
    /// Start of each bucket's entries, by hash; one more than there are buckets.
    starts: Vec<u32>,
    /// Index of the run.
    entries: Vec<u32>,
    runs: Vec<Vec<ByteSet>>,
}

/// The longest run of certain bytes (either case of a letter is certain enough) that every match of `node` has.
pub fn needed_run(node: &Node) -> Option<Vec<ByteSet>> {
    let mut runs = vec![Vec::new()];
    collect(node, &mut runs);
    let longest = runs.into_iter().max_by_key(Vec::len)?;
    (longest.len() >= MIN_RUN).then(|| longest.into_iter().take(MAX_RUN).collect())
}

fn collect(node: &Node, runs: &mut Vec<Vec<ByteSet>>) {
    match node {
        Node::Empty => {}
        Node::Set(set) if is_certain(set) => {
            if let Some(run) = runs.last_mut() {
                run.push(*set);
            }
        }
        Node::Sequence(nodes) => nodes.iter().for_each(|node| collect(node, runs)),
        Node::Capture(_, node) => collect(node, runs),
        _ => runs.push(Vec::new()),
    }
}

fn is_certain(set: &ByteSet) -> bool {
    let first = set.iter().next();
    set.len() == 1 || (set.len() == 2 && first.is_some_and(|byte| ByteSet::folded(byte) == *set))
}

/// Letters folded (and other bytes that differ in that bit, which does no harm).
fn fold(word: u32) -> u32 {
    word | 0x2020_2020
}

fn hash(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> 16) as usize
}

impl Gate {
    /// A gate for runs of at least [`MIN_RUN`] bytes.
    pub fn new(runs: Vec<Vec<ByteSet>>) -> Gate {
        let shortest = runs.iter().map(Vec::len).min().unwrap_or(MIN_RUN);
        let mask = if shortest >= 4 { u32::MAX } else { 0x00ff_ffff };
        let mut buckets: Vec<(usize, u32)> = Vec::new();
        for (number, run) in (0u32..).zip(&runs) {
            let mut word = [0u8; 4];
            for (byte, set) in word.iter_mut().zip(run) {
                *byte = set.iter().next().unwrap_or_default();
            }
            buckets.push((hash(fold(u32::from_le_bytes(word)) & mask), number));
        }
        buckets.sort_unstable();
        let mut bitmap = vec![0u64; BUCKETS / 64];
        let mut starts = vec![0u32; BUCKETS + 1];
        for (bucket, _) in &buckets {
            bitmap[bucket / 64] |= 1 << (bucket % 64);
            starts[bucket + 1] += 1;
        }
        for bucket in 0..BUCKETS {
            starts[bucket + 1] += starts[bucket];
        }
        let entries = buckets.into_iter().map(|(_, number)| number).collect();
        Gate { mask, bitmap, starts, entries, runs }
    }

    /// Calls `found` with the number of each run that is in `bytes`, perhaps several times.
    pub fn scan(&self, bytes: &[u8], mut found: impl FnMut(u32)) {
        for (at, window) in bytes.windows(4).enumerate() {
            let word = u32::from_le_bytes([window[0], window[1], window[2], window[3]]);
            self.position(word, bytes, at, &mut found);
        }
        // The last position can hold a run of three only.
        if let Some([a, b, c]) = bytes.last_chunk::<3>() {
            let at = bytes.len() - 3;
            self.position(u32::from_le_bytes([*a, *b, *c, 0]), bytes, at, &mut found);
        }
    }

    #[inline(always)]
    fn position(&self, word: u32, bytes: &[u8], at: usize, found: &mut impl FnMut(u32)) {
        let bucket = hash(fold(word) & self.mask);
        if self.bitmap[bucket / 64] >> (bucket % 64) & 1 == 1 {
            self.compare(bucket, bytes, at, found);
        }
    }

    #[cold]
    fn compare(&self, bucket: usize, bytes: &[u8], at: usize, found: &mut impl FnMut(u32)) {
        let range = self.starts[bucket] as usize..self.starts[bucket + 1] as usize;
        for number in &self.entries[range] {
            let run = &self.runs[*number as usize];
            let there = bytes.get(at..at + run.len());
            if there
                .is_some_and(|bytes| run.iter().zip(bytes).all(|(set, byte)| set.contains(*byte)))
            {
                found(*number);
            }
        }
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bitmap.len() * 8
            + (self.starts.len() + self.entries.len()) * 4
            + self.runs.iter().map(|run| run.len() * size_of::<ByteSet>()).sum::<usize>()
    }
}
