//! The arrays in mapped memory, and their one writer.

use super::layout::{
    BITS_AT, ENABLED_AT, FIELDS_AT, FIRST_AT, MORE_MULTIPLIERS_AT, MORE_OFFSETS_AT, MULTIPLIERS,
    MULTIPLIERS_AT, NEGATIVE_AT, NET_AT, OFFSETS_AT, PROBE_BYTES, PROBE_COUNT_AT, PROBE_PAIRS,
    PROBE_PORT, PROBE_V4, PROBE_V6, PROBE_VLAN, PROBES, PROBES_AT, WORDS_AT,
};
use crate::error::advised;
use crate::sys::objects::{self, MapFacts};
use crate::sys::{self, Mapped};
use fyke_table::hash::KeyHash;
use fyke_table::prefilter::shared::ArrayView;
use fyke_table::prefilter::{ArrayCopy, Prefilter, PrefilterOptions, Probe, ProbeFamily, Room};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most words of all arrays together: 64 MiB.
const MAX_WORDS: usize = 1 << 24;

/// Byte offsets in a probe of each pair of hash functions: the numbers that they add, and their multipliers.
const PAIRS: [(usize, usize); 2] =
    [(OFFSETS_AT, MULTIPLIERS_AT), (MORE_OFFSETS_AT, MORE_MULTIPLIERS_AT)];

/// Arrays that programs read: those of this process, or of another one.
#[derive(Debug)]
pub struct Arrays {
    map: OwnedFd,
    words: usize,
}

impl Arrays {
    /// Makes memory for the arrays of a pre-filter.
    ///
    /// # Errors
    /// The system refuses, or the arrays would take more than 64 MiB.
    pub fn new(options: &PrefilterOptions) -> io::Result<Arrays> {
        let words = words_of(options);
        if words > MAX_WORDS {
            let (arrays, bits) = (options.max_spaces, options.bits);
            let text = format!("{arrays} arrays of {bits} bits take more than 64 MiB");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Arrays { map: sys::single_value_map(WORDS_AT + 4 * words).map_err(advised)?, words })
    }

    /// Opens the arrays of another process by the number of their map. Needs root (`CAP_SYS_ADMIN`).
    ///
    /// # Errors
    /// There is no such map, or it does not hold arrays, or the right is missing.
    pub fn of_number(number: u32) -> io::Result<Arrays> {
        let map = objects::map_by_number(number)?;
        let MapFacts { value_bytes, .. } = objects::map_facts(map.as_fd())?;
        let words = (value_bytes as usize).saturating_sub(WORDS_AT) / 4;
        if value_bytes as usize != WORDS_AT + 4 * words || !(2..=MAX_WORDS).contains(&words) {
            return Err(io::Error::other(format!("map {number} holds no arrays of rules")));
        }
        Ok(Arrays { map, words: 1 << words.ilog2() })
    }

    /// Returns the number of the map, by which other processes find it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn number(&self) -> io::Result<u32> {
        Ok(objects::map_facts(self.map.as_fd())?.number)
    }

    /// The map.
    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Number of words, a power of two.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Writes the arrays of a pre-filter, and every later change of them, to this memory.
    ///
    /// # Errors
    /// The memory cannot be mapped, or has too little room.
    pub fn follow(&self, rules: &mut Prefilter) -> io::Result<()> {
        let memory = Mapped::new(self.map.as_fd(), WORDS_AT + 4 * self.words)?;
        let options = rules.options();
        let bits = options.bits.clamp(64, 1 << 32).next_multiple_of(32);
        let arrays = self.words / (bits / 32) as usize;
        let room = Room { arrays: arrays.min(options.max_spaces), bits, probes: PROBES };
        let writer = Writer { memory, room, probes: [None; PROBES] };
        rules.copy_to(Box::new(writer)).map_err(io::Error::other)
    }
}

impl Arrays {
    /// Opens the arrays for look-ups in user space.
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn view(&self) -> io::Result<ArraysView> {
        let memory = Mapped::new(self.map.as_fd(), WORDS_AT + 4 * self.words)?;
        Ok(ArraysView { memory, words: self.words })
    }
}

/// Arrays that another process writes.
#[derive(Debug)]
pub struct ArraysView {
    memory: Mapped,
    words: usize,
}

impl ArrayView for ArraysView {
    fn switches(&self) -> (bool, bool) {
        (self.memory.get_published(ENABLED_AT) != 0, self.memory.get_published(NEGATIVE_AT) != 0)
    }

    fn probe_count(&self) -> usize {
        (self.memory.get_published(PROBE_COUNT_AT) as usize).min(PROBES)
    }

    fn probe(&self, number: usize) -> Option<(usize, Probe)> {
        let at = PROBES_AT + number * PROBE_BYTES;
        let word = |place: usize| self.memory.get(at + place);
        let double = |place: usize| self.memory.get_double(at + place);
        let flags = self.memory.get_published(at);
        let family = match flags & (PROBE_V4 | PROBE_V6) {
            0 => return None,
            PROBE_V4 => ProbeFamily::V4,
            PROBE_V6 => ProbeFamily::V6,
            _ => ProbeFamily::Both,
        };
        let pair = |(offsets_at, multipliers_at): (usize, usize)| {
            [0, 1].map(|function| KeyHash {
                offset: double(offsets_at + 8 * function),
                multipliers: std::array::from_fn(|n| match n < MULTIPLIERS {
                    true => double(multipliers_at + 8 * (function * MULTIPLIERS + n)),
                    false => 0,
                }),
            })
        };
        let probe = Probe {
            array: 0,
            pattern: 0,
            family,
            names_port: flags & PROBE_PORT != 0,
            names_vlan: flags & PROBE_VLAN != 0,
            fields: [0, 1].map(|n| word(FIELDS_AT + 4 * n)),
            net: [0, 1, 2, 3].map(|n| word(NET_AT + 4 * n)),
            bits: double(BITS_AT),
            hashes: pair(PAIRS[0]),
            more_hashes: (flags & PROBE_PAIRS != 0).then(|| pair(PAIRS[1])),
        };
        Some((word(FIRST_AT) as usize, probe))
    }

    fn word(&self, index: usize) -> u32 {
        // The owner may write any numbers.
        if index < self.words { self.memory.get_published(WORDS_AT + 4 * index) } else { 0 }
    }
}

fn words_of(options: &PrefilterOptions) -> usize {
    let each = options.bits.clamp(64, 1 << 32).div_ceil(32) as usize;
    each.saturating_mul(options.max_spaces.max(1)).max(2).next_power_of_two()
}

/// Writer of the memory.
#[derive(Debug)]
struct Writer {
    memory: Mapped,
    room: Room,
    /// Array and pattern of each probe in use.
    probes: [Option<(usize, u8)>; PROBES],
}

impl Writer {
    /// Index of the first word of an array.
    fn first(&self, array: usize) -> usize {
        array * (self.room.bits / 32) as usize
    }

    fn publish_count(&self) {
        let count = self.probes.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.memory.publish(PROBE_COUNT_AT, count as u32);
    }
}

impl ArrayCopy for Writer {
    fn room(&self) -> Room {
        self.room
    }

    fn set_switches(&mut self, enabled: bool, negative: bool) {
        // Disabled first: between the two stores, no frame is rejected by rules of the wrong sense.
        if !enabled {
            self.memory.publish(ENABLED_AT, 0);
        }
        self.memory.publish(NEGATIVE_AT, u32::from(negative));
        self.memory.publish(ENABLED_AT, u32::from(enabled));
    }

    fn clear(&mut self, array: usize) {
        let (first, count) = (self.first(array), (self.room.bits / 32) as usize);
        for word in first..first + count {
            self.memory.prepare(WORDS_AT + 4 * word, 0);
        }
    }

    fn store(&mut self, array: usize, word: usize, value: u32) {
        self.memory.publish(WORDS_AT + 4 * (self.first(array) + word), value);
    }

    fn add(&mut self, probe: &Probe) {
        // The pre-filter checks the room before.
        let Some(index) = self.probes.iter().position(Option::is_none) else { return };
        self.probes[index] = Some((probe.array, probe.pattern));
        let (memory, at) = (&self.memory, PROBES_AT + index * PROBE_BYTES);
        let double = |place: usize, value: u64| memory.publish_double(at + place, value);
        memory.prepare(at + FIRST_AT, self.first(probe.array) as u32);
        for (n, field) in probe.fields.into_iter().enumerate() {
            memory.prepare(at + FIELDS_AT + 4 * n, field);
        }
        for (n, net) in probe.net.into_iter().enumerate() {
            memory.prepare(at + NET_AT + 4 * n, net);
        }
        double(BITS_AT, probe.bits);
        let pairs = [Some(probe.hashes), probe.more_hashes].into_iter().flatten();
        for (pair, (offsets_at, multipliers_at)) in pairs.zip(PAIRS) {
            for (function, hash) in pair.iter().enumerate() {
                double(offsets_at + 8 * function, hash.offset);
                for (n, multiplier) in hash.multipliers.into_iter().take(MULTIPLIERS).enumerate() {
                    double(multipliers_at + 8 * (function * MULTIPLIERS + n), multiplier);
                }
            }
        }
        memory.publish(at, flags(probe));
        self.publish_count();
    }

    fn remove(&mut self, array: usize, pattern: u8) {
        let known = self.probes.iter().position(|probe| *probe == Some((array, pattern)));
        let Some(index) = known else { return };
        // Without a rule every frame passes, so the number becomes 0 before the last look-up ends.
        self.probes[index] = None;
        self.publish_count();
        self.memory.publish(PROBES_AT + index * PROBE_BYTES, 0);
    }
}

/// The owner has ended its rules: everything passes.
impl Drop for Writer {
    fn drop(&mut self) {
        self.memory.publish(ENABLED_AT, 0);
    }
}

fn flags(probe: &Probe) -> u32 {
    let family = match probe.family {
        ProbeFamily::V4 => PROBE_V4,
        ProbeFamily::V6 => PROBE_V6,
        ProbeFamily::Both => PROBE_V4 | PROBE_V6,
    };
    let flag = |named: bool, flag| if named { flag } else { 0 };
    family
        | flag(probe.names_port, PROBE_PORT)
        | flag(probe.names_vlan, PROBE_VLAN)
        | flag(probe.more_hashes.is_some(), PROBE_PAIRS)
}
