//! One Bloom array: all rules with networks of one prefix length, or all rules without an address.

use super::copy::{ArrayCopy, Probe};
use super::counting::{Bits, CountingBloom};
use super::{Rule, SpaceStats};
use crate::hash::Seed;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpKind {
    V4,
    V6,
}

/// An address as words in host order, the most significant first; IPv4 is in the last word.
pub type Words = [u32; 4];

impl IpKind {
    pub fn of(address: IpAddr) -> (Self, Words) {
        match address {
            IpAddr::V4(v4) => (IpKind::V4, [0, 0, 0, v4.to_bits()]),
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                (IpKind::V6, [96, 64, 32, 0].map(|shift| (bits >> shift) as u32))
            }
        }
    }

    pub fn bits(self) -> u8 {
        if self == IpKind::V4 { 32 } else { 128 }
    }

    pub fn masked(self, words: Words, prefix: u8) -> Words {
        // Number of significant bits of all four words; an IPv4 address is in the last word.
        let length = u32::from(prefix.min(self.bits())) + 128 - u32::from(self.bits());
        std::array::from_fn(|n| {
            let kept = length.saturating_sub(32 * n as u32).min(32);
            words[n] & u32::MAX.checked_shl(32 - kept).unwrap_or(0)
        })
    }

    pub fn address(self, words: Words) -> IpAddr {
        let bits = words.iter().fold(0u128, |bits, &word| bits << 32 | u128::from(word));
        match self {
            IpKind::V4 => IpAddr::V4((words[3]).into()),
            IpKind::V6 => IpAddr::V6(bits.into()),
        }
    }
}

/// Kind of the rules that share an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceKind {
    /// Rules without an address.
    Any,
    /// Rules with a network of this prefix length.
    Net(IpKind, u8),
}

/// Fields that a rule names, as bits of a pattern.
pub const PORT: u8 = 1;
/// See [`PORT`].
pub const PROTOCOL: u8 = 2;
/// See [`PORT`].
pub const VLAN: u8 = 4;
const PATTERNS: usize = 8;

/// Key of a source or destination: VLAN and protocol, port, address; 0 for open fields. It has only as many words as
/// the array's rules need.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    words: [u32; 6],
    len: usize,
}

impl Key {
    #[inline]
    pub fn words(&self) -> &[u32] {
        &self.words[..self.len]
    }
}

/// Returns the masks of a pattern for the key words before the address.
#[inline(always)]
pub fn field_masks(pattern: u8) -> [u32; 2] {
    let pick = |bit, mask: u32| if pattern & bit != 0 { mask } else { 0 };
    [pick(VLAN, 0xffff_ff00) | pick(PROTOCOL, 0xff), pick(PORT, u32::MAX)]
}

impl SpaceKind {
    /// Returns the masks for the address words, in the order of the key.
    #[inline(always)]
    pub fn net_masks(self) -> Words {
        let [a, b, c, d] = match self {
            SpaceKind::Any => [0; 4],
            SpaceKind::Net(kind, prefix) => kind.masked([u32::MAX; 4], prefix),
        };
        [d, c, b, a]
    }

    /// Makes a key for such an array; fields that are not in `pattern` become 0.
    #[inline]
    pub fn key(self, pattern: u8, vlan: u16, protocol: u8, port: u16, address: Words) -> Key {
        let [of_kind, of_port] = field_masks(pattern);
        let kind = (u32::from(vlan) << 8 | u32::from(protocol)) & of_kind;
        let [a, b, c, d] = address;
        let len = match self {
            SpaceKind::Any => 2,
            SpaceKind::Net(IpKind::V4, _) => 3,
            SpaceKind::Net(IpKind::V6, _) => 6,
        };
        Key { words: [kind, u32::from(port) & of_port, d, c, b, a], len }
    }
}

/// Writer of an array.
#[derive(Debug)]
pub struct Space {
    /// Number of the array in a copy.
    array: usize,
    kind: SpaceKind,
    bloom: CountingBloom,
    counts: [u32; PATTERNS],
    patterns: Arc<AtomicU8>,
}

/// Shared part of an array, for readers.
#[derive(Debug)]
pub struct SpaceView {
    pub kind: SpaceKind,
    pub bits: Arc<Bits>,
    /// Bit *p* is set if some rule has pattern *p*.
    patterns: Arc<AtomicU8>,
}

impl SpaceView {
    #[inline]
    pub fn patterns(&self) -> u8 {
        self.patterns.load(Ordering::Acquire)
    }
}

fn pattern_of(rule: &Rule) -> u8 {
    let bit = |named: bool, bit| if named { bit } else { 0 };
    bit(rule.port().is_some(), PORT)
        | bit(rule.protocol().is_some(), PROTOCOL)
        | bit(rule.vlan().is_some(), VLAN)
}

fn key_of(kind: SpaceKind, rule: &Rule) -> Key {
    let address = rule.net().map_or([0; 4], |(address, _)| IpKind::of(address).1);
    let (vlan, protocol, port) = (rule.vlan(), rule.protocol(), rule.port());
    let (vlan, protocol) = (vlan.unwrap_or(0), protocol.unwrap_or(0));
    kind.key(pattern_of(rule), vlan, protocol, port.unwrap_or(0), address)
}

impl Space {
    pub fn new(array: usize, kind: SpaceKind, (bits, pairs): (u64, u8), seed: &mut Seed) -> Self {
        let bloom = CountingBloom::with_pairs(bits, pairs, seed);
        Space { array, kind, bloom, counts: [0; PATTERNS], patterns: Arc::default() }
    }

    pub fn kind(&self) -> SpaceKind {
        self.kind
    }

    pub fn array(&self) -> usize {
        self.array
    }

    pub fn rule_count(&self) -> u64 {
        self.bloom.key_count()
    }

    /// Number of combinations of fields in use.
    pub fn pattern_count(&self) -> usize {
        self.counts.iter().filter(|&&count| count > 0).count()
    }

    /// True if a rule names the same fields as this one.
    pub fn has_pattern_of(&self, rule: &Rule) -> bool {
        self.counts[usize::from(pattern_of(rule))] > 0
    }

    pub fn add(&mut self, rule: &Rule, mut copy: Option<&mut dyn ArrayCopy>) {
        let array = self.array;
        let key = key_of(self.kind, rule);
        self.bloom.add_and(key.words(), |index, word| {
            if let Some(copy) = copy.as_deref_mut() {
                copy.store(array, index, word);
            }
        });
        let pattern = pattern_of(rule);
        self.counts[usize::from(pattern)] += 1;
        self.patterns.fetch_or(1 << pattern, Ordering::Release);
        if self.counts[usize::from(pattern)] == 1
            && let Some(copy) = copy
        {
            copy.add(&self.probe(pattern));
        }
    }

    pub fn remove(&mut self, rule: &Rule, mut copy: Option<&mut dyn ArrayCopy>) {
        let (array, pattern) = (self.array, pattern_of(rule));
        self.counts[usize::from(pattern)] -= 1;
        if self.counts[usize::from(pattern)] == 0 {
            self.patterns.fetch_and(!(1 << pattern), Ordering::Release);
            if let Some(copy) = copy.as_deref_mut() {
                copy.remove(array, pattern);
            }
        }
        let key = key_of(self.kind, rule);
        self.bloom.remove_and(key.words(), |index, word| {
            if let Some(copy) = copy.as_deref_mut() {
                copy.store(array, index, word);
            }
        });
    }

    fn probe(&self, pattern: u8) -> Probe {
        Probe::new(self.array, self.kind, pattern, self.bloom.bits())
    }

    fn patterns_in_use(&self) -> impl Iterator<Item = u8> {
        (0..PATTERNS as u8).filter(|&pattern| self.counts[usize::from(pattern)] > 0)
    }

    /// Writes the array to a copy that does not have it.
    pub fn copy_to(&self, copy: &mut dyn ArrayCopy) {
        copy.clear(self.array);
        self.bloom.bits().filled().for_each(|(index, word)| copy.store(self.array, index, word));
        self.patterns_in_use().for_each(|pattern| copy.add(&self.probe(pattern)));
    }

    /// Ends all look-ups of a copy in the array.
    pub fn leave(&self, copy: &mut dyn ArrayCopy) {
        self.patterns_in_use().for_each(|pattern| copy.remove(self.array, pattern));
    }

    pub fn view(&self) -> SpaceView {
        SpaceView {
            kind: self.kind,
            bits: Arc::clone(self.bloom.bits()),
            patterns: Arc::clone(&self.patterns),
        }
    }

    /// Number of look-ups of a frame with this address family and both ports.
    fn look_ups(&self) -> u32 {
        let has_ends = |pattern: u8| self.kind != SpaceKind::Any || pattern & PORT != 0;
        self.patterns_in_use().map(|pattern| 1 + u32::from(has_ends(pattern))).sum()
    }

    pub fn stats(&self) -> SpaceStats {
        let name = match self.kind {
            SpaceKind::Any => "any".to_owned(),
            SpaceKind::Net(IpKind::V4, prefix) => format!("ip/{prefix}"),
            SpaceKind::Net(IpKind::V6, prefix) => format!("ip6/{prefix}"),
        };
        SpaceStats {
            name,
            rules: self.bloom.key_count(),
            bits: self.bloom.bits().bit_count(),
            look_ups: self.look_ups(),
            expected_false_positives: self.bloom.expected_false_positives(),
            filled_false_positives: self.bloom.filled_false_positives(),
            collisions: self.bloom.collision_count(),
        }
    }
}
