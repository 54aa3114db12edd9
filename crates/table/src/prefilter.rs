//! Deri's deletable Bloom pre-filter: decides if a frame certainly matches no rule or may match one, at a cost that
//! does not depend on the number of rules.
//!
//! A rule names any of VLAN, protocol, port and address or network: `ip=192.168.0.10,port=80`. A frame is looked up
//! with its source and its destination, at every level of encapsulation. A frame that passes may be a false positive; a
//! second stage must check it. A frame that matches a rule always passes, even while other rules are added and removed.
//!
//! | | cost |
//! |---|---|
//! | add, remove | two bits of one array, O(1); memory of an array 256 KiB whatever the number of rules |
//! | frame | its headers, and per end, space and wildcard pattern *in use* one hash, mostly not a second one |
//! | batch | a quarter of that for each of its frames ([`PrefilterReader::decide`]) |
//!
//! [`ArrayCopy`] is a second place for the arrays, such as memory that a kernel program reads.
//!
//! Source: Deri, *High-Speed Dynamic Packet Filtering* (2007). Kept exactly: two hash functions, of which the second is
//! computed only if the first one hits, the collision list ([`counting`]), 0 for wildcards, look-ups with source and
//! destination, one array per prefix length. DEPARTURE: rules can be listed, and the removal of an absent rule is
//! refused (the paper keeps only bits). DEPARTURE: without a rule, every frame passes. DEPARTURE: only wildcard
//! patterns of existing rules are tried, because the others cannot hit. DEPARTURE: a frame with unreadable ports (a
//! later fragment, a truncated frame) passes if any rule names a port. DEPARTURE: [`PrefilterOptions::hash_pairs`] may
//! be two, for four hash functions.

mod batch;
mod block;
mod copy;
pub mod counting;
mod ends;
mod plain;
mod prefixes;
mod reader;
mod rule;
pub mod shared;
mod space;

pub use copy::{ArrayCopy, Probe, ProbeFamily, Room};
pub use counting::expected_rate;
pub use prefixes::{PrefixLengths, PrefixLengthsError};
pub use reader::{Answer, Decided, PrefilterCounts, PrefilterReader};
pub use rule::{Command, Rule, RuleTextError};

use crate::hash::Seed;
use crate::published::Publisher;
use reader::{Plan, Switches};
use space::Space;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sizes and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefilterOptions {
    /// Number of bits of each array, at most 2^32.
    pub bits: u64,
    /// Number of pairs of hash functions of each array, 1 (the paper's) or 2.
    pub hash_pairs: u8,
    /// Limit on arrays: address spaces, that is prefix lengths in use.
    pub max_spaces: usize,
    /// The prefix lengths that rules may have; `None`: any.
    pub prefixes: Option<PrefixLengths>,
    /// Limit on rules that are kept for listing.
    pub max_rules: usize,
}

impl Default for PrefilterOptions {
    /// 256 KiB per array: one false positive in a million at 1,000 rules.
    fn default() -> Self {
        PrefilterOptions {
            bits: 1 << 21,
            hash_pairs: 1,
            max_spaces: 16,
            prefixes: None,
            max_rules: 1 << 20,
        }
    }
}

/// Refusal of a rule; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefilterError {
    /// The rule to remove does not exist.
    #[error("there is no rule `{rule}`")]
    NoSuchRule {
        /// The rule in the form of the listing.
        rule: String,
    },
    /// The limit on prefix lengths is reached.
    #[error("{limit} prefix lengths are in use already, and `{rule}` needs another")]
    TooManySpaces {
        /// The rule in the form of the listing.
        rule: String,
        /// The limit.
        limit: usize,
    },
    /// Rules may have other prefix lengths only.
    #[error("`{rule}` needs an array of its own; there are arrays for {allowed} only")]
    PrefixLength {
        /// The rule in the form of the listing.
        rule: String,
        /// The lengths that there are.
        allowed: PrefixLengths,
    },
    /// The limit on combinations of fields is reached.
    #[error("rules name {limit} combinations of fields already, and `{rule}` needs another")]
    TooManyPatterns {
        /// The rule in the form of the listing.
        rule: String,
        /// The limit.
        limit: usize,
    },
    /// The arrays do not fit into the memory that a copy has.
    #[error("there is room for {arrays} arrays of {bits} bits and {probes} combinations of fields")]
    NoRoom {
        /// Number of arrays with room.
        arrays: usize,
        /// Number of bits of each.
        bits: u64,
        /// Number of combinations.
        probes: usize,
    },
    /// The limit on rules is reached.
    #[error("there are {limit} rules already")]
    TooManyRules {
        /// The limit.
        limit: usize,
    },
}

/// State of one array.
#[derive(Debug, Clone, PartialEq)]
pub struct SpaceStats {
    /// `any`, `ip/24`, `ip6/64`, …
    pub name: String,
    /// Number of rules in it.
    pub rules: u64,
    /// Number of bits of the array.
    pub bits: u64,
    /// Number of look-ups of a frame of this address family with ports: both ends, and each combination of fields that
    /// rules name.
    pub look_ups: u32,
    /// False positives per look-up by the paper's formula, (1 − e^(−nk/m))^k.
    pub expected_false_positives: f64,
    /// False positives per look-up, computed from the number of set bits.
    pub filled_false_positives: f64,
    /// Number of entries of the collision list.
    pub collisions: usize,
}

/// Writer of the pre-filter.
#[derive(Debug)]
pub struct Prefilter {
    options: PrefilterOptions,
    seed: Seed,
    spaces: Vec<Space>,
    rules: BTreeMap<Rule, u32>,
    rule_count: usize,
    switches: Arc<Switches>,
    publisher: Publisher<Plan>,
    /// A second place for the arrays.
    copy: Option<Box<dyn ArrayCopy>>,
}

/// The copy in the form for a call.
fn lent(copy: &mut Option<Box<dyn ArrayCopy>>) -> Option<&mut dyn ArrayCopy> {
    match copy {
        Some(copy) => Some(&mut **copy),
        None => None,
    }
}

impl Prefilter {
    /// Creates an enabled pre-filter without rules: it passes everything until there is one.
    pub fn new(options: PrefilterOptions, seed: Seed) -> Self {
        Prefilter {
            options,
            seed,
            spaces: Vec::new(),
            rules: BTreeMap::new(),
            rule_count: 0,
            switches: Arc::new(Switches::default()),
            publisher: Publisher::new(Plan::default()),
            copy: None,
        }
    }

    /// Returns the sizes and limits.
    pub fn options(&self) -> &PrefilterOptions {
        &self.options
    }

    /// Creates a reader, for any thread.
    pub fn reader(&self) -> PrefilterReader {
        PrefilterReader::new(self.publisher.subscribe(), Arc::clone(&self.switches))
    }

    /// Adds a rule. A rule that is added several times must be removed as often.
    pub fn add(&mut self, rule: Rule) -> Result<(), PrefilterError> {
        if self.rule_count == self.options.max_rules {
            return Err(PrefilterError::TooManyRules { limit: self.options.max_rules });
        }
        let kind = rule.space();
        let known = self.spaces.iter().position(|space| space.kind() == kind);
        self.check_room(&rule, known)?;
        match known {
            Some(at) => self.spaces[at].add(&rule, lent(&mut self.copy)),
            None => {
                let used = |array: &usize| self.spaces.iter().any(|space| space.array() == *array);
                let array = (0..).find(|array| !used(array)).unwrap_or_default();
                let size = (self.options.bits, self.options.hash_pairs);
                let mut space = Space::new(array, kind, size, &mut self.seed);
                if let Some(copy) = &mut self.copy {
                    copy.clear(array);
                }
                space.add(&rule, lent(&mut self.copy));
                self.spaces.push(space);
                self.publish();
            }
        }
        *self.rules.entry(rule).or_default() += 1;
        self.rule_count += 1;
        Ok(())
    }

    /// Checks the limits for a rule; `known` is the index of its array.
    fn check_room(&self, rule: &Rule, known: Option<usize>) -> Result<(), PrefilterError> {
        if let (Some(allowed), Some((address, bits))) = (self.options.prefixes, rule.net())
            && !allowed.has(address, bits)
        {
            return Err(PrefilterError::PrefixLength { rule: rule.to_string(), allowed });
        }
        let room = self.copy.as_ref().map(|copy| copy.room());
        let arrays = room.map_or(self.options.max_spaces, |room| room.arrays);
        let limit = arrays.min(self.options.max_spaces);
        if known.is_none() && self.spaces.len() >= limit {
            return Err(PrefilterError::TooManySpaces { rule: rule.to_string(), limit });
        }
        let Some(Room { probes: limit, .. }) = room else { return Ok(()) };
        let has_pattern = known.is_some_and(|at| self.spaces[at].has_pattern_of(rule));
        if !has_pattern && self.pattern_count() >= limit {
            return Err(PrefilterError::TooManyPatterns { rule: rule.to_string(), limit });
        }
        Ok(())
    }

    fn pattern_count(&self) -> usize {
        self.spaces.iter().map(Space::pattern_count).sum()
    }

    /// Writes the arrays to a second place, and every later change.
    ///
    /// # Errors
    /// It has too little room for the arrays; nothing is written.
    pub fn copy_to(&mut self, mut copy: Box<dyn ArrayCopy>) -> Result<(), PrefilterError> {
        let Room { arrays, bits, probes } = copy.room();
        let fits = self.spaces.iter().all(|space| space.array() < arrays)
            && self.options.bits <= bits
            && self.pattern_count() <= probes;
        if !fits {
            return Err(PrefilterError::NoRoom { arrays, bits, probes });
        }
        self.spaces.iter().for_each(|space| space.copy_to(&mut *copy));
        copy.set_switches(self.is_enabled(), self.is_negative());
        self.copy = Some(copy);
        Ok(())
    }

    /// Removes a rule.
    pub fn remove(&mut self, rule: &Rule) -> Result<(), PrefilterError> {
        let Some(count) = self.rules.get_mut(rule) else {
            return Err(PrefilterError::NoSuchRule { rule: rule.to_string() });
        };
        *count -= 1;
        if *count == 0 {
            self.rules.remove(rule);
        }
        self.rule_count -= 1;
        let kind = rule.space();
        if let Some(at) = self.spaces.iter().position(|space| space.kind() == kind) {
            self.spaces[at].remove(rule, lent(&mut self.copy));
            if self.spaces[at].rule_count() == 0 {
                self.spaces.remove(at);
                self.publish();
            }
        }
        Ok(())
    }

    /// Removes all rules.
    pub fn reset(&mut self) {
        if let Some(copy) = &mut self.copy {
            self.spaces.iter().for_each(|space| space.leave(&mut **copy));
        }
        self.spaces.clear();
        self.rules.clear();
        self.rule_count = 0;
        self.publish();
    }

    /// Enables or disables the pre-filter. Enabled, it rejects frames that match no rule; disabled, or without a rule,
    /// it passes everything.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.switches.set_enabled(enabled);
        self.copy_switches();
    }

    fn copy_switches(&mut self) {
        let (enabled, negative) = (self.is_enabled(), self.is_negative());
        if let Some(copy) = &mut self.copy {
            copy.set_switches(enabled, negative);
        }
    }

    /// True if it is enabled.
    pub fn is_enabled(&self) -> bool {
        self.switches.enabled()
    }

    /// Sets negative mode: frames that match a rule are dropped, all others pass. False positives are then lost frames.
    pub fn set_negative(&mut self, negative: bool) {
        self.switches.set_negative(negative);
        self.copy_switches();
    }

    /// True in negative mode.
    pub fn is_negative(&self) -> bool {
        self.switches.negative()
    }

    /// Executes a command; returns the text to print.
    pub fn apply(&mut self, command: Command) -> Result<String, PrefilterError> {
        match command {
            Command::Add(rule) => self.add(rule)?,
            Command::Remove(rule) => self.remove(&rule)?,
            Command::Reset => self.reset(),
            Command::Enable(enabled) => self.set_enabled(enabled),
            Command::Negative(negative) => self.set_negative(negative),
            Command::List => return Ok(self.listing()),
        }
        Ok(String::new())
    }

    /// Returns the rules, sorted, with the number of times that each was added.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, u32)> {
        self.rules.iter().map(|(rule, &count)| (rule, count))
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rule_count
    }

    /// True if there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rule_count == 0
    }

    /// Returns the state of the arrays.
    pub fn stats(&self) -> Vec<SpaceStats> {
        self.spaces.iter().map(Space::stats).collect()
    }

    fn listing(&self) -> String {
        let mut text = String::new();
        for (rule, count) in self.rules() {
            for _ in 0..count {
                text += &format!("+{rule}\n");
            }
        }
        text
    }

    fn publish(&mut self) {
        self.publisher.publish(Plan { spaces: self.spaces.iter().map(Space::view).collect() });
    }
}

#[cfg(test)]
mod tests;
