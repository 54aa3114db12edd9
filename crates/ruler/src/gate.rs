//! The gate: finds the rules that cannot match because the packet lacks bytes that they need.
//!
//! Rules that begin with `*` multiply each other's states in one automaton. Rules that need at least three certain
//! bytes in a row (a *run*) stay out of it: one scan finds the runs that are in the packet, and a rule is matched
//! further only if its run is present. A rule of the form `* "bytes" *` is decided by the scan itself.
//!
//! There are two kinds of scan:
//! 1. *Vectors*: memchr searches for a single run, aho-corasick's packed search for up to [`MAX_VECTOR`] runs, if
//!    no run folds case.
//! 2. *Hashed n-grams*: up to four adjacent bytes at every `stride`-th position (1, 2, 4 or 8), with letters folded,
//!    are hashed into a table. A run of n bytes is entered with its grams at `stride` consecutive offsets, so that
//!    one of them is found wherever the run is in the packet. `stride` is as large as the shortest run allows, and
//!    the grams are taken from the rarest bytes of a run. Eight positions are looked up at once: they are
//!    independent, so the processor executes them in parallel, which is not possible with a table of states.
//!
//! A long stride needs long runs, and a few short runs would shorten it for all. These are searched for by vectors
//! in a separate scan if that is cheaper ([`Gate::new`] estimates the cost).
//!
//! Candidates of the first stage are compared in full: 16 bytes at once under a mask, then the rest.
//!
//! Cost: one multiplication and one load per `stride` bytes; the table has 64 KiB, or 512 KiB for more than 1,024
//! grams.

use crate::byte_set::ByteSet;
use crate::node::Node;
use aho_corasick::packed;
use memchr::memmem;
use std::sync::Arc;

/// Minimum length of a run …
pub const MIN_RUN: usize = 3;
/// … and the minimum if there are so few runs that vectors find them.
pub const MIN_VECTOR_RUN: usize = 2;
/// Maximum length of a run; the automaton checks the rest.
pub const MAX_RUN: usize = 256;
/// Maximum number of runs for the search by vectors.
pub const MAX_VECTOR: usize = 48;
/// Maximum number of runs of one byte value that are searched for one at a time.
const MAX_ALONE: usize = 4;
/// Number of positions looked up before a branch.
const LANES: usize = 8;
/// Sizes of the filter. The larger one is used if more than one in 64 positions of the smaller one would be a false
/// hit.
const SMALL: usize = 1 << 16;
const LARGE: usize = 1 << 19;

/// The runs that rules need, prepared for scanning.
#[derive(Debug)]
pub struct Gate {
    runs: Vec<Run>,
    /// Scans that run in turn over the same bytes.
    scans: Vec<Scan>,
}

#[derive(Debug)]
enum Scan {
    /// Searches for the run with this number.
    One(memmem::Finder<'static>, u32),
    /// Searches for the runs with these numbers.
    Vectors(packed::Searcher, Vec<u32>),
    Grams(Grams),
}

/// Bytes that are in every match of a pattern.
#[derive(Debug)]
pub struct Needed {
    /// The bytes; a letter may be in either case.
    pub run: Vec<ByteSet>,
    /// The pattern is exactly these bytes, with any bytes on both sides.
    pub decisive: bool,
    /// The pattern is any bytes, then these, then more.
    pub leads: bool,
    /// A second run, if its bytes are exact, including the case of letters.
    pub also: Option<Also>,
}

/// Further bytes that are in every match.
#[derive(Debug, Clone)]
pub struct Also {
    finder: memmem::Finder<'static>,
    /// The pattern is any bytes, then these, then more.
    leads: bool,
}

impl Also {
    /// Earliest position in `bytes` where a match can begin; none if there is no match.
    pub fn earliest(&self, bytes: &[u8]) -> Option<usize> {
        let at = self.finder.find(bytes)?;
        Some(if self.leads { at } else { 0 })
    }
}

/// Returns the rarest run of bytes that is in every match of `node`.
pub fn needed_run(node: &Node, least: usize) -> Option<Needed> {
    let mut runs = vec![Vec::new()];
    let mut others = Vec::new();
    collect(node, &mut runs, &mut others);
    // Prefers the rarest of the runs that are long enough: zeros are in every packet.
    let worth = |at: &usize| {
        let run: &[ByteSet] = &runs[*at];
        let rare = run.iter().map(|set| rarity(set.iter().next().unwrap_or_default())).sum::<u32>();
        (run.len() >= least, rare, run.len())
    };
    let rarest = (0..runs.len()).max_by_key(worth)?;
    let after_any = runs[0].is_empty() && others.first().is_some_and(|node| node.is_any());
    let leads = rarest == 1 && after_any;
    let alone = others.len() == 2 && others[1].is_any() && runs[2].is_empty();
    let exact = |run: &[ByteSet]| run.iter().map(ByteSet::single).collect::<Option<Vec<u8>>>();
    let others = (0..runs.len()).filter(|at| *at != rarest && runs[*at].len() >= MIN_VECTOR_RUN);
    let also = others.max_by_key(worth).and_then(|at| {
        let finder = memmem::Finder::new(&exact(&runs[at])?).into_owned();
        Some(Also { finder, leads: at == 1 && after_any })
    });
    let mut run = runs.swap_remove(rarest);
    let decisive = leads && alone && run.len() <= MAX_RUN;
    run.truncate(MAX_RUN);
    (run.len() >= least).then_some(Needed { run, decisive, leads, also })
}

fn collect<'n>(node: &'n Node, runs: &mut Vec<Vec<ByteSet>>, others: &mut Vec<&'n Node>) {
    match node {
        Node::Empty => {}
        Node::Set(set) if is_certain(set) => {
            if let Some(run) = runs.last_mut() {
                run.push(*set);
            }
        }
        Node::Sequence(nodes) => nodes.iter().for_each(|node| collect(node, runs, others)),
        Node::Capture(_, node) => collect(node, runs, others),
        _ => {
            runs.push(Vec::new());
            others.push(node);
        }
    }
}

fn is_certain(set: &ByteSet) -> bool {
    let first = set.iter().next();
    set.len() == 1 || (set.len() == 2 && first.is_some_and(|byte| ByteSet::folded(byte) == *set))
}

/// A run, prepared for comparison.
#[derive(Debug)]
struct Run {
    /// The first 16 bytes, and a mask of the bits that are compared.
    value: u128,
    mask: u128,
    /// Byte sets of all positions, which other gates may share.
    sets: Arc<[ByteSet]>,
}

impl Run {
    fn new(sets: Arc<[ByteSet]>) -> Run {
        let (mut value, mut mask) = ([0u8; 16], [0u8; 16]);
        for ((value, mask), set) in value.iter_mut().zip(&mut mask).zip(&*sets) {
            *mask = if set.len() == 1 { 0xff } else { 0xdf };
            *value = set.iter().next().unwrap_or_default() & *mask;
        }
        let (value, mask) = (u128::from_le_bytes(value), u128::from_le_bytes(mask));
        Run { value, mask, sets }
    }

    /// One of the possible bytes at each position.
    fn bytes(&self) -> Vec<u8> {
        self.sets.iter().map(|set| set.iter().next().unwrap_or_default()).collect()
    }

    /// Finds the offset from which grams are rarest, and if all of them have more than one byte value: a gram
    /// of zeros would be found in every packet. An offset is rated by the worst of its grams.
    fn start(&self, width: usize, stride: usize) -> (usize, bool) {
        let bytes = self.bytes();
        let taken = width + stride - 1;
        let worth = |at: &usize| {
            let grams = bytes[*at..at + taken].windows(width);
            let worth = grams.map(|gram| {
                let varied = gram.iter().any(|byte| *byte != gram[0]);
                (varied, gram.iter().map(|byte| rarity(*byte)).sum::<u32>())
            });
            worth.min()
        };
        // On a tie the first offset wins: for a run of one byte value that is its start, which skipping of
        // stretches relies on.
        let start = (0..=bytes.len() - taken).rev().max_by_key(worth).unwrap_or(0);
        (start, worth(&start).is_some_and(|(varied, _)| varied))
    }

    /// Returns true if its first bytes, which the search by vectors looks for, are not padding: they are not all
    /// the same, or their value is rarely repeated in packets.
    fn begins_varied(&self) -> bool {
        self.sets.iter().take(4).any(|set| *set != self.sets[0])
            || self.sets[0].single().is_some_and(|byte| rarity(byte) > 0)
    }

    /// Returns true if it is one byte value repeated.
    fn is_stretch(&self) -> bool {
        self.sets[0].len() == 1 && self.sets.iter().all(|set| *set == self.sets[0])
    }

    fn is_folded(&self) -> bool {
        self.sets.iter().any(|set| set.len() > 1)
    }

    /// Returns true if `bytes` starts with the run.
    #[inline]
    fn is_at(&self, bytes: &[u8]) -> bool {
        if let Some(first) = bytes.first_chunk::<16>() {
            if u128::from_le_bytes(*first) & self.mask != self.value {
                return false;
            }
            if self.sets.len() <= 16 {
                return true;
            }
        }
        bytes.len() >= self.sets.len()
            && self.sets.iter().zip(bytes).all(|(set, byte)| set.contains(*byte))
    }
}

impl Gate {
    /// Creates a gate for runs of at least [`MIN_RUN`] bytes, or of [`MIN_VECTOR_RUN`] if [`by_vectors`] is true.
    pub fn new(runs: &[Vec<ByteSet>]) -> Gate {
        Gate::shared(runs.iter().map(|sets| Arc::from(&sets[..])).collect())
    }

    /// Creates a gate as [`new`](Self::new) does, without copies of the runs.
    pub fn shared(runs: Vec<Arc<[ByteSet]>>) -> Gate {
        let own: Vec<Run> = runs.into_iter().map(Run::new).collect();
        let all = 0..u32::try_from(own.len()).unwrap_or(u32::MAX);
        // A run of one byte value, such as zeros, is in most packets at many positions: only the first position is
        // needed.
        let (alone, mut others): (Vec<u32>, Vec<u32>) = all.partition(|number| {
            let run = &own[*number as usize];
            run.is_stretch() || (own.len() == 1 && !run.is_folded())
        });
        let mut scans: Vec<Scan> =
            alone.iter().take(MAX_ALONE).filter_map(|number| vectors(&own, &[*number])).collect();
        others.extend(alone.iter().skip(MAX_ALONE));
        others.sort_unstable();
        // Vectors search for runs below a length, and for those that a long stride would find in every packet;
        // grams search for the others. The cheapest split is chosen.
        let split = |least: &usize| -> (Vec<u32>, Vec<u32>) {
            let (width, stride) = shape(*least);
            others.iter().partition(|number| {
                let run = &own[**number as usize];
                let spoils = |run: &Run| stride > 1 && !run.start(width, stride).1;
                run.sets.len() < *least || (spoils(run) && run.begins_varied())
            })
        };
        let cost = |least: &usize| {
            let (short, long) = split(least);
            let may = by_vectors(short.iter().map(|at| &own[*at as usize].sets));
            let may = may && short.iter().all(|at| own[*at as usize].begins_varied());
            let shortest = long.iter().map(|at| own[*at as usize].sets.len()).min();
            let grams = shortest.map_or(0, |len| GRAMS_COST / shape(len).1);
            if may { vectors_cost(short.len()) + grams } else { usize::MAX }
        };
        let least = SPLITS.into_iter().min_by_key(cost).unwrap_or(0);
        let (short, mut long) = split(&least);
        if !short.is_empty() {
            match vectors(&own, &short) {
                Some(scan) => scans.push(scan),
                None => long.clone_from(&others),
            }
        }
        if !long.is_empty() {
            scans.push(Scan::Grams(Grams::new(&own, &long)));
        }
        Gate { runs: own, scans }
    }

    /// Calls `found` with the number and position of each run that is in `bytes`, possibly several times. The
    /// return value is a bound: runs with that number or a higher one are no longer needed.
    #[inline]
    pub fn scan(&self, bytes: &[u8], mut bound: u32, found: &mut impl FnMut(u32, usize) -> u32) {
        for scan in &self.scans {
            if bound == 0 {
                return;
            }
            bound = match scan {
                Scan::One(_, number) if *number >= bound => bound,
                Scan::One(finder, number) => match finder.find(bytes) {
                    Some(at) => found(*number, at),
                    None => bound,
                },
                Scan::Vectors(searcher, runs) => self.vectors(searcher, runs, bytes, bound, found),
                Scan::Grams(grams) => grams.scan(&self.runs, bytes, bound, found),
            };
        }
    }

    /// Searches by vectors. The packed search reports only the first run at a position, so all runs are compared
    /// there.
    fn vectors(
        &self,
        searcher: &packed::Searcher,
        runs: &[u32],
        bytes: &[u8],
        mut bound: u32,
        found: &mut impl FnMut(u32, usize) -> u32,
    ) -> u32 {
        let mut at = 0;
        let mut span = aho_corasick::Span { start: 0, end: bytes.len() };
        while let Some(hit) = searcher.find_in(bytes, span) {
            at = hit.start().max(at);
            for number in runs {
                if *number >= bound {
                    break;
                }
                if self.runs[*number as usize].is_at(&bytes[at..]) {
                    bound = found(*number, at);
                }
            }
            if bound == 0 {
                return bound;
            }
            at += 1;
            span.start = at;
        }
        bound
    }

    /// Description of the scans, for users.
    pub fn describe(&self) -> String {
        let scan = |scan: &Scan| match scan {
            Scan::One(..) => "one run, by vectors".to_owned(),
            Scan::Vectors(_, runs) => format!("{} runs, by vectors", runs.len()),
            Scan::Grams(grams) => format!(
                "{} runs, grams of {} at every {}. byte",
                grams.runs, grams.width, grams.stride
            ),
        };
        self.scans.iter().map(scan).collect::<Vec<_>>().join(" and ")
    }

    /// Length of the longest run.
    pub fn longest(&self) -> usize {
        self.runs.iter().map(|run| run.sets.len()).max().unwrap_or(0)
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        let runs = self.runs.iter().map(|run| run.sets.len() * size_of::<ByteSet>());
        let scan = |scan: &Scan| match scan {
            Scan::One(finder, _) => finder.needle().len(),
            Scan::Vectors(searcher, _) => searcher.memory_usage(),
            Scan::Grams(grams) => grams.bytes(),
        };
        let scans: usize = self.scans.iter().map(scan).sum();
        runs.sum::<usize>() + self.runs.len() * size_of::<Run>() + scans
    }
}

/// Returns true if vectors can find these runs: there are few of them and none folds case.
pub fn by_vectors<'r, R: AsRef<[ByteSet]> + 'r>(runs: impl IntoIterator<Item = &'r R>) -> bool {
    let mut count = 0;
    runs.into_iter().all(|run| {
        count += 1;
        count <= MAX_VECTOR && run.as_ref().iter().all(|set| set.len() == 1)
    })
}

fn vectors(runs: &[Run], numbers: &[u32]) -> Option<Scan> {
    let bytes = |number: &u32| {
        runs[*number as usize].sets.iter().filter_map(ByteSet::single).collect::<Vec<u8>>()
    };
    if let [number] = numbers {
        return Some(Scan::One(memmem::Finder::new(&bytes(number)).into_owned(), *number));
    }
    let mut builder = packed::Config::new().match_kind(packed::MatchKind::LeftmostFirst).builder();
    builder.extend(numbers.iter().map(bytes));
    builder.build().map(|searcher| Scan::Vectors(searcher, numbers.to_vec()))
}

/// Lengths below which vectors may search for runs: none, those that would halve the stride, all.
const SPLITS: [usize; 5] = [0, 5, 7, 11, MAX_RUN + 1];
/// Estimated time of a scan by grams with stride 1, in hundredths of a nanosecond a byte …
const GRAMS_COST: usize = 100;

/// … and of a scan by vectors.
fn vectors_cost(runs: usize) -> usize {
    match runs {
        0 => 0,
        1 => 5,
        _ => 15 + runs,
    }
}

/// Width and stride of the grams for runs of at least `shortest` bytes.
fn shape(shortest: usize) -> (usize, usize) {
    let width = shortest.clamp(1, 4);
    let stride = match (shortest + 1).saturating_sub(width) {
        8.. => 8,
        4.. => 4,
        stride => stride.min(2),
    };
    (width, stride)
}

/// A gram of a run in the hash table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    word: u32,
    run: u32,
    /// Number of bytes of the run before the gram.
    before: u32,
}

/// The scan by hashed n-grams.
#[derive(Debug)]
struct Grams {
    /// Grams of one byte value belong only to runs of that value.
    skips_stretches: bool,
    /// Number of runs.
    runs: usize,
    stride: usize,
    /// Width of a gram, 2 to 4.
    width: usize,
    /// [`FOLD`] if some run folds case, else 0.
    fold: u32,
    /// Mask of the bytes of a gram.
    mask: u32,
    /// Hash multiplier; its zero bits drop the bytes outside the gram.
    factor: u32,
    /// Indexed by the highest bits of a hash: 1 if a gram has it. [`SMALL`] or [`LARGE`] bytes.
    filter: Vec<u8>,
    /// Shift from a hash to its bucket of entries.
    entry_shift: u32,
    starts: Vec<u32>,
    entries: Vec<Entry>,
}

/// Folds case of letters (and equates other bytes that differ in that bit, which is harmless).
const FOLD: u32 = 0x2020_2020;

/// Estimates how rare a byte is in packets: bytes common in headers and text are the least rare.
pub fn rarity(byte: u8) -> u32 {
    match byte {
        0 | 0xff | b' ' => 0,
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' | b'c' | b'm' | b'.' | b'/' => 1,
        b'0'..=b'9' | b'a'..=b'z' | b'\r' | b'\n' | b':' | b'-' => 2,
        b'A'..=b'Z' | b'=' | b'&' | b';' | b',' | 1..=8 => 2,
        _ => 4,
    }
}

impl Grams {
    /// Builds the grams for the runs with these numbers.
    fn new(runs: &[Run], numbers: &[u32]) -> Grams {
        let chosen = || numbers.iter().map(|number| &runs[*number as usize]);
        let shortest = chosen().map(|run| run.sets.len()).min().unwrap_or(MIN_RUN);
        let (width, stride) = shape(shortest);
        let mask = u32::MAX >> (32 - 8 * width);
        let factor = 0x9e37_79b1 << (32 - 8 * width);
        let fold = if chosen().any(Run::is_folded) { FOLD } else { 0 };
        let mut entries = Vec::new();
        for (number, run) in numbers.iter().copied().zip(chosen()) {
            let (start, bytes) = (run.start(width, stride).0, run.bytes());
            for at in start..start + stride {
                let mut word = [0u8; 4];
                word[..width].copy_from_slice(&bytes[at..at + width]);
                let word = (u32::from_le_bytes(word) | fold) & mask;
                entries.push(Entry { word, run: number, before: at as u32 });
            }
        }
        let size = if entries.len() * 64 > SMALL { LARGE } else { SMALL };
        let shift = 32 - size.trailing_zeros();
        let buckets = entries.len().next_power_of_two().clamp(2, 1 << 20);
        let entry_shift = 32 - buckets.trailing_zeros();
        let mut filter = vec![0u8; size];
        let mut starts = vec![0u32; buckets + 1];
        let bucket = |entry: &Entry| (entry.word.wrapping_mul(factor) >> entry_shift) as usize;
        entries.sort_unstable_by_key(|entry| (bucket(entry), entry.run));
        for entry in &entries {
            filter[(entry.word.wrapping_mul(factor) >> shift) as usize] = 1;
            starts[bucket(entry) + 1] += 1;
        }
        for bucket in 0..buckets {
            starts[bucket + 1] += starts[bucket];
        }
        let skips_stretches = stride == 1 && width == 4;
        Grams {
            skips_stretches,
            runs: numbers.len(),
            stride,
            width,
            fold,
            mask,
            factor,
            filter,
            entry_shift,
            starts,
            entries,
        }
    }

    #[inline]
    fn scan(
        &self,
        runs: &[Run],
        bytes: &[u8],
        bound: u32,
        found: &mut impl FnMut(u32, usize) -> u32,
    ) -> u32 {
        // PERF: with a constant length the compiler drops bounds checks and uses constant shifts.
        if let Ok(filter) = <&[u8; SMALL]>::try_from(&self.filter[..]) {
            match self.stride {
                1 => self.scan_by::<SMALL, 1>(filter, runs, bytes, bound, found),
                2 => self.scan_by::<SMALL, 2>(filter, runs, bytes, bound, found),
                4 => self.scan_by::<SMALL, 4>(filter, runs, bytes, bound, found),
                _ => self.scan_by::<SMALL, 8>(filter, runs, bytes, bound, found),
            }
        } else if let Ok(filter) = <&[u8; LARGE]>::try_from(&self.filter[..]) {
            match self.stride {
                1 => self.scan_by::<LARGE, 1>(filter, runs, bytes, bound, found),
                2 => self.scan_by::<LARGE, 2>(filter, runs, bytes, bound, found),
                4 => self.scan_by::<LARGE, 4>(filter, runs, bytes, bound, found),
                _ => self.scan_by::<LARGE, 8>(filter, runs, bytes, bound, found),
            }
        } else {
            bound
        }
    }

    fn scan_by<const SIZE: usize, const STRIDE: usize>(
        &self,
        filter: &[u8; SIZE],
        runs: &[Run],
        bytes: &[u8],
        mut bound: u32,
        found: &mut impl FnMut(u32, usize) -> u32,
    ) -> u32 {
        let (fold, factor) = (self.fold, self.factor);
        let look = |word: u32| {
            let hash = (word | fold).wrapping_mul(factor) >> (32 - SIZE.trailing_zeros());
            filter[hash as usize]
        };
        let mut base = 0;
        let (mut last, mut next) = (None, usize::MAX);
        while let Some(chunk) = bytes.get(base..base + (LANES - 1) * STRIDE + 4) {
            let word = |lane: usize| {
                let word = &chunk[lane * STRIDE..lane * STRIDE + 4];
                u32::from_le_bytes([word[0], word[1], word[2], word[3]])
            };
            let mut any = 0;
            for lane in 0..LANES {
                any |= look(word(lane));
            }
            if any != 0 {
                // Word before the first lane. After a block without hits that word was no hit, so it is not needed.
                let mut before = if base == next { last } else { None };
                for lane in 0..LANES {
                    let word = word(lane);
                    // Inside a stretch of one byte value, such as padding, only the first position can begin a
                    // match.
                    let again = self.skips_stretches && before == Some(word);
                    if look(word) != 0 && !(again && word == word.rotate_left(8)) {
                        let at = base + lane * STRIDE;
                        bound = self.compare(runs, bytes, at, bound, found);
                    }
                    before = Some(word);
                }
                (last, next) = (before, base + LANES * STRIDE);
                if bound == 0 {
                    return bound;
                }
            }
            base += LANES * STRIDE;
        }
        for at in (base..bytes.len().saturating_sub(self.width - 1)).step_by(STRIDE) {
            if look(word_at(bytes, at)) != 0 {
                bound = self.compare(runs, bytes, at, bound, found);
            }
        }
        bound
    }

    #[inline(never)]
    fn compare(
        &self,
        runs: &[Run],
        bytes: &[u8],
        at: usize,
        mut bound: u32,
        found: &mut impl FnMut(u32, usize) -> u32,
    ) -> u32 {
        let word = (word_at(bytes, at) | self.fold) & self.mask;
        let bucket = (word.wrapping_mul(self.factor) >> self.entry_shift) as usize;
        let range = self.starts[bucket] as usize..self.starts[bucket + 1] as usize;
        for entry in &self.entries[range] {
            if entry.run >= bound {
                break;
            }
            if entry.word == word
                && let Some(start) = at.checked_sub(entry.before as usize)
                && runs[entry.run as usize].is_at(&bytes[start..])
            {
                bound = found(entry.run, start);
            }
        }
        bound
    }

    fn bytes(&self) -> usize {
        self.filter.len() + self.starts.len() * 4 + self.entries.len() * size_of::<Entry>()
    }
}

/// Reads four bytes from a position; bytes past the end are zero.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0u8; 4];
    let there = bytes.get(at..).unwrap_or_default();
    let len = there.len().min(4);
    word[..len].copy_from_slice(&there[..len]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(text: &str, folded: bool) -> Vec<ByteSet> {
        let set = |byte| if folded { ByteSet::folded(byte) } else { ByteSet::one(byte) };
        text.bytes().map(set).collect()
    }

    /// Both scans find every run at every position of packets of all small lengths, and nothing else.
    #[test]
    fn every_run_is_found_wherever_it_stands() {
        for (texts, folded) in [
            (&["abc", "xabc", "/index.php"][..], false),
            (&["abcd", "efgh"], true),
            (&["abcdefgh", "bcdefghi", "a much longer run than sixteen"], true),
            (&["abcdefghijklmno", "bcdefghijklmnop"], false),
            (&["----", "-----x", "x-----", "------", "--x-"], false),
            (&["ab", "cabd", "abcdefghijklm", "bcdefghijklmn", "cdefghijklmno"], false),
        ] {
            let runs: Vec<Vec<ByteSet>> = texts.iter().map(|text| sets(text, folded)).collect();
            let gate = Gate::new(&runs);
            let own = runs.iter().map(|sets| Run::new(sets[..].into())).collect::<Vec<_>>();
            let all: Vec<u32> = (0u32..).take(runs.len()).collect();
            let grams = Gate { scans: vec![Scan::Grams(Grams::new(&own, &all))], runs: own };
            for (number, text) in texts.iter().enumerate() {
                for before in 0..70 {
                    for after in [0, 1, 2, 3, 4, 30, 100] {
                        let mut packet = vec![b'-'; before];
                        let shown = if folded { text.to_uppercase() } else { (*text).to_owned() };
                        packet.extend(shown.bytes());
                        packet.resize(packet.len() + after, b'-');
                        if before > 40 {
                            // Two stretches with another byte between them.
                            packet[before - 20] = b'+';
                        }
                        let expected: Vec<u32> = (0u32..)
                            .zip(&runs)
                            .filter(|(_, run)| {
                                packet.windows(run.len()).any(|gram| {
                                    run.iter().zip(gram).all(|(set, byte)| set.contains(*byte))
                                })
                            })
                            .map(|(number, _)| number)
                            .collect();
                        assert!(expected.contains(&(number as u32)));
                        for gate in [&gate, &grams] {
                            let mut found = Vec::new();
                            gate.scan(&packet, u32::MAX, &mut |run, at| {
                                assert!(at < packet.len());
                                found.push(run);
                                u32::MAX
                            });
                            found.sort_unstable();
                            found.dedup();
                            assert_eq!(found, expected, "{text} after {before}, {after} follow");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_certain_in_a_pattern() {
        let literal = Node::sets(sets("abc", false));
        let any = || Node::any(false);
        let alone = Node::Sequence(vec![any(), literal.clone(), any()]);
        let needed = |node: &Node| {
            let Needed { run, decisive, leads, .. } = needed_run(node, 3)?;
            assert_eq!(run, sets("abc", false));
            Some((decisive, leads))
        };
        assert_eq!(needed(&alone), Some((true, true)));
        let anchored = Node::Sequence(vec![literal.clone(), any()]);
        assert_eq!(needed(&anchored), Some((false, false)));
        let open = Node::Sequence(vec![any(), literal.clone()]);
        assert_eq!(needed(&open), Some((false, true)));
        let digit = Node::Set(ByteSet::range(b'0', b'9'));
        let behind = Node::Sequence(vec![any(), digit.clone(), literal.clone(), any()]);
        assert_eq!(needed(&behind), Some((false, false)));
        let before = Node::Sequence(vec![any(), literal.clone(), digit, any()]);
        assert_eq!(needed(&before), Some((false, true)));
        let branches = Node::Alternation(vec![literal.clone(), literal]);
        assert_eq!(needed(&branches), None);
    }
}
