//! One direction of a connection: delivered bytes, held bytes, and its end.
//!
//! Offsets count from the first byte of the direction; held pieces do not overlap each other,
//! because the policy was applied when they arrived.

use super::{Counters, Segment};
use fyke_frame::walk::view::tcp_flags::{FIN, SYN};
use std::collections::BTreeMap;

/// Largest distance of a segment from the next byte: larger than any receive window in use.
const WINDOW: i64 = 1 << 26;
/// Memory of a held piece besides its bytes (an upper estimate).
const OVERHEAD_BYTES: usize = 64;

/// Policy for overlapping segments: which bytes a family of systems keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Keep the bytes that arrived first.
    #[default]
    First,
    /// Keep the bytes that arrived last, unless already delivered.
    Last,
    /// Keep new bytes if they begin before the old ones.
    Bsd,
    /// Keep new bytes if they begin before the old ones, or begin at the same offset and end after
    /// them.
    Linux,
    /// As BSD.
    Windows,
    /// Keep new bytes if they cover the old ones, or begin inside them and end after them.
    Solaris,
}

impl Policy {
    /// Names of all policies, as used in parameters.
    pub const NAMES: [&'static str; 6] = ["first", "last", "bsd", "linux", "windows", "solaris"];
    /// All policies in the order of [`Policy::NAMES`].
    pub const ALL: [Policy; 6] =
        [Policy::First, Policy::Last, Policy::Bsd, Policy::Linux, Policy::Windows, Policy::Solaris];

    /// True if new bytes from `start` to `end` replace old ones from `old_start` to `old_end`.
    fn prefers_new(self, (start, end): (u64, u64), (old_start, old_end): (u64, u64)) -> bool {
        match self {
            Policy::First => false,
            Policy::Last => true,
            Policy::Bsd | Policy::Windows => start < old_start,
            Policy::Linux => start < old_start || (start == old_start && end > old_end),
            Policy::Solaris => {
                (start <= old_start && end >= old_end) || (start > old_start && end > old_end)
            }
        }
    }
}

/// The direction.
#[derive(Debug, Default)]
pub struct Direction {
    /// Sequence number of offset 0, if known.
    base: Option<u32>,
    /// Offset of the next byte to deliver.
    next: u64,
    held: BTreeMap<u64, Box<[u8]>>,
    held_bytes: usize,
    /// Offset of the end, if known.
    fin: Option<u64>,
    /// Time since which bytes have been missing.
    since: Option<u64>,
    over: bool,
    /// Bytes missing just before the next piece.
    missing: u64,
}

/// Receives pieces: the number of missing bytes before it, and the bytes.
type On<'g> = &'g mut dyn FnMut(u64, &[u8]);

impl Direction {
    /// True if a byte, or the beginning, was seen.
    pub fn has_begun(&self) -> bool {
        self.base.is_some()
    }

    /// True if no more bytes will be delivered.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Memory in use by the estimate.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Time since which bytes have been missing.
    pub fn waits_since(&self) -> Option<u64> {
        self.since
    }

    /// True if a SYN with this number begins another stream.
    pub fn begins_elsewhere(&self, sequence: u32) -> bool {
        self.base.is_some_and(|base| base != sequence.wrapping_add(1))
    }

    /// True if the receiver accepts a reset with this number.
    pub fn accepts_reset(&self, sequence: u32, policy: Policy) -> bool {
        let Some(far) = self.distance(sequence) else { return true };
        let in_window =
            matches!(policy, Policy::Linux | Policy::Solaris) && (0..1 << 20).contains(&far);
        // After a FIN, the number of the FIN is valid too.
        far == 0 || in_window || (self.fin.is_some() && far == 1)
    }

    /// Distance of a number from that of the next byte.
    fn distance(&self, sequence: u32) -> Option<i64> {
        let next = self.base?.wrapping_add(self.next as u32);
        Some(i64::from(sequence.wrapping_sub(next) as i32))
    }

    /// Takes a segment: bytes in order are delivered, the rest is held.
    pub fn take(
        &mut self,
        segment: &Segment<'_>,
        now_ns: u64,
        policy: Policy,
        counters: &mut Counters,
        on: On<'_>,
    ) {
        let syn = segment.flags & SYN != 0;
        let sequence = segment.sequence.wrapping_add(u32::from(syn));
        let says = syn || segment.payload_len > 0 || segment.flags & FIN != 0;
        if !says {
            return;
        }
        let len = u64::from(segment.payload_len);
        if self.over {
            counters.repeated_bytes += len;
            return;
        }
        self.base.get_or_insert(sequence);
        let far = self.distance(sequence).unwrap_or(0);
        if !(-WINDOW..=WINDOW).contains(&far) {
            counters.outside += 1;
            return;
        }
        // Bytes before the next one were delivered already, or are before the beginning.
        let before = u64::try_from(-far).unwrap_or(0);
        let repeated = before.min(len);
        counters.repeated_bytes += repeated;
        let start = self.next + u64::try_from(far).unwrap_or(0);
        let bytes = segment.payload.get(repeated as usize..).unwrap_or_default();
        let rest = len - repeated;
        if segment.flags & FIN != 0 && before <= len {
            self.fin.get_or_insert(start + rest);
        }
        let passed = self.next;
        if rest > 0 {
            self.bytes(start, bytes, rest, policy, counters, on);
        }
        self.drain(on);
        self.judge(now_ns, passed, counters);
    }

    /// Takes new bytes from `start` on; `len` bytes were on the wire, the last may not be captured.
    fn bytes(
        &mut self,
        start: u64,
        bytes: &[u8],
        len: u64,
        policy: Policy,
        counters: &mut Counters,
        on: On<'_>,
    ) {
        let end = start + len;
        let touches = self.held.first_key_value().is_some_and(|(&first, _)| first < end);
        if start > self.next || touches {
            self.hold(start, bytes, policy, counters);
            return;
        }
        self.give(bytes, on);
        let cut = len - bytes.len() as u64;
        if cut > 0 {
            self.lose(cut, counters);
        }
    }

    fn give(&mut self, bytes: &[u8], on: On<'_>) {
        if !bytes.is_empty() {
            on(std::mem::take(&mut self.missing), bytes);
            self.next += bytes.len() as u64;
        }
    }

    fn lose(&mut self, count: u64, counters: &mut Counters) {
        counters.gaps += 1;
        counters.missing_bytes += count;
        self.missing += count;
        self.next += count;
    }

    /// Holds bytes; where they overlap held bytes, one copy is dropped.
    fn hold(&mut self, start: u64, bytes: &[u8], policy: Policy, counters: &mut Counters) {
        let end = start + bytes.len() as u64;
        let before = self.held.range(..start).next_back();
        let from = before.filter(|(at, old)| *at + old.len() as u64 > start).map(|(&at, _)| at);
        let within = self.held.range(start..end).map(|(&at, _)| at);
        let overlapping: Vec<u64> = from.into_iter().chain(within).collect();
        let mut at = start;
        for old_start in overlapping {
            let Some(old) = self.take_held(old_start) else { continue };
            let old_end = old_start + old.len() as u64;
            let (low, high) = (start.max(old_start), end.min(old_end));
            let same = bytes[(low - start) as usize..(high - start) as usize]
                .iter()
                .zip(&old[(low - old_start) as usize..]);
            counters.repeated_bytes += high - low;
            counters.contradicting_bytes += same.filter(|(new, old)| new != old).count() as u64;
            if policy.prefers_new((start, end), (old_start, old_end)) {
                self.put(old_start, &old[..(low - old_start) as usize]);
                self.put(high, &old[(high - old_start) as usize..]);
            } else {
                if old_start > at {
                    self.put(at, &bytes[(at - start) as usize..(old_start - start) as usize]);
                }
                self.put(old_start, &old);
                at = at.max(old_end);
            }
        }
        if at < end {
            self.put(at, &bytes[(at - start) as usize..]);
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.held_bytes += bytes.len() + OVERHEAD_BYTES;
            self.held.insert(at, bytes.into());
        }
    }

    fn take_held(&mut self, at: u64) -> Option<Box<[u8]>> {
        let bytes = self.held.remove(&at)?;
        self.held_bytes -= bytes.len() + OVERHEAD_BYTES;
        Some(bytes)
    }

    /// Delivers held bytes that are in order.
    fn drain(&mut self, on: On<'_>) {
        while let Some((&at, _)) = self.held.first_key_value()
            && at <= self.next
            && let Some(bytes) = self.take_held(at)
        {
            let known = (self.next - at) as usize;
            self.give(bytes.get(known..).unwrap_or_default(), on);
        }
    }

    /// Updates whether bytes are missing, and whether this is the end; `passed` is the previous
    /// value of `next`.
    fn judge(&mut self, now_ns: u64, passed: u64, counters: &mut Counters) {
        self.over |= self.fin.is_some_and(|fin| self.next >= fin);
        let waits = !self.over && (!self.held.is_empty() || self.fin.is_some());
        let since = self.since.filter(|_| self.next == passed);
        self.since = waits.then(|| since.unwrap_or(now_ns));
        if self.over {
            // Bytes held after the end are dropped.
            counters.dropped_bytes += self.abandon();
        }
    }

    /// Skips the bytes that are missing before the first held piece, or before the end.
    pub fn skip(&mut self, now_ns: u64, counters: &mut Counters, on: On<'_>) {
        let first = self.held.first_key_value().map(|(&at, _)| at);
        let Some(to) = first.or(self.fin) else {
            self.since = None;
            return;
        };
        let passed = self.next;
        self.lose(to.saturating_sub(passed), counters);
        self.drain(on);
        self.judge(now_ns, passed, counters);
    }

    /// Ends the direction and drops the held bytes; returns their number.
    pub fn abandon(&mut self) -> u64 {
        let dropped = self.held.values().map(|bytes| bytes.len() as u64).sum();
        self.held.clear();
        (self.held_bytes, self.since, self.over) = (0, None, true);
        dropped
    }
}
