//! The static memory of a group, as one run of its program accesses it.
//!
//! [`Seen`] executes `ret_match_data` and `register_data`, and records both in a [`Trail`]: a postponed packet
//! waits for all data that it did not find, and data that a packet stores triggers the packets that wait for it. A
//! packet that misses more than [`MAX_MISSES`] data waits for any data. Cost: nothing for a run that uses no data;
//! memory: 68 bytes per datum.

use super::sessions::Sessions;
use crate::bpf::SCRATCH_WORDS;
use crate::bpf::run::Memory;
use fyke_flow::Ageing;
use std::hash::{Hash, Hasher};

/// Maximum number of data that a postponed packet waits for individually.
pub(super) const MAX_MISSES: usize = 8;

/// Scratch words used as a key of the static memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    len: u8,
    words: [u32; SCRATCH_WORDS],
}

impl Data {
    /// Key of packets that wait for any data; no program registers data without words.
    pub const ANY: Data = Data { len: 0, words: [0; SCRATCH_WORDS] };

    fn new(given: &[u32]) -> Data {
        let mut words = [0; SCRATCH_WORDS];
        let len = given.len().min(SCRATCH_WORDS);
        words[..len].copy_from_slice(&given[..len]);
        Data { len: len as u8, words }
    }

    fn used(&self) -> &[u32] {
        &self.words[..usize::from(self.len)]
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        self.used() == other.used()
    }
}

impl Eq for Data {}

impl Hash for Data {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.used().hash(state);
    }
}

/// Data that one run of a program did not find, and data that it stored. [`Data::ANY`] is stored with any other.
#[derive(Debug, Default)]
pub(super) struct Trail {
    pub missed: Vec<Data>,
    pub stored: Vec<Data>,
}

impl Trail {
    fn miss(&mut self, data: Data) {
        if self.missed.contains(&data) || self.missed.first() == Some(&Data::ANY) {
            return;
        }
        if self.missed.len() == MAX_MISSES {
            self.missed.clear();
            self.missed.push(Data::ANY);
            return;
        }
        self.missed.push(data);
    }

    fn store(&mut self, data: Data) {
        if self.stored.is_empty() {
            self.stored.push(Data::ANY);
        }
        self.stored.push(data);
    }
}

/// The group's memory with static memory.
pub(super) struct Seen<'a> {
    pub sessions: &'a Sessions,
    pub registered: &'a mut Ageing<Data, u32>,
    pub now_ns: u64,
    /// Arrival time of the packet; later than the clock if the packet's time leapt ahead.
    pub arrival_ns: u64,
    pub trail: Trail,
}

impl Memory for Seen<'_> {
    #[inline]
    fn find(&mut self, keys: &[u32]) -> Option<u32> {
        self.sessions.find(keys)
    }

    fn recall(&mut self, data: &[u32]) -> Option<u32> {
        let data = Data::new(data);
        let found = self.registered.get(&data, self.now_ns).copied();
        if found.is_none() {
            self.trail.miss(data);
        }
        found
    }

    fn register(&mut self, data: &[u32], who: u32, ms: u32) {
        let data = Data::new(data);
        let deadline = self.arrival_ns.saturating_add(u64::from(ms) * 1_000_000);
        while self.registered.pop_expired(self.now_ns).is_some() {}
        self.registered.insert(data, who, deadline);
        self.trail.store(data);
    }
}

/// The group's memory without static memory.
pub(super) struct Find<'a>(pub &'a Sessions);

impl Memory for Find<'_> {
    #[inline]
    fn find(&mut self, keys: &[u32]) -> Option<u32> {
        self.0.find(keys)
    }

    fn recall(&mut self, _: &[u32]) -> Option<u32> {
        None
    }

    fn register(&mut self, _: &[u32], _: u32, _: u32) {}
}
