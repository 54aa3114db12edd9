//! A second place for the arrays, such as memory that a kernel program reads.
//!
//! The writer stores each change into its own arrays and into the copy, so a look-up in either gives the same answer.
//! An edit is a few stores there, too. The order keeps every rule in force in sight: bits before the look-up that reads
//! them, and at the end the look-up before the bits.

use super::counting::Bits;
use super::space::{IpKind, PORT, SpaceKind, VLAN, Words, field_masks};
use crate::hash::KeyHash;
use std::fmt::Debug;

/// Address family of the packets that a look-up concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeFamily {
    /// IPv4 packets.
    V4,
    /// IPv6 packets.
    V6,
    /// All packets: the rules name no address.
    Both,
}

/// A look-up that finds the rules of one array that name the same fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Number of the array.
    pub array: usize,
    /// Number of the combination of fields, unique in its array.
    pub pattern: u8,
    /// Packets that it concerns.
    pub family: ProbeFamily,
    /// True if the rules name a port.
    pub names_port: bool,
    /// True if the rules name a VLAN.
    pub names_vlan: bool,
    /// Masks of the key's first two words: VLAN and protocol, port.
    pub fields: [u32; 2],
    /// Masks of the address, least significant word first.
    pub net: Words,
    /// Number of bits of the array.
    pub bits: u64,
    /// The hash functions: one pair.
    pub hashes: [KeyHash; 2],
    /// The second pair, if the array has two.
    pub more_hashes: Option<[KeyHash; 2]>,
}

impl Probe {
    pub(super) fn new(array: usize, kind: SpaceKind, pattern: u8, bits: &Bits) -> Probe {
        let pair = |at: usize| bits.hashes()[at..].first_chunk().copied();
        Probe {
            array,
            pattern,
            family: match kind {
                SpaceKind::Any => ProbeFamily::Both,
                SpaceKind::Net(IpKind::V4, _) => ProbeFamily::V4,
                SpaceKind::Net(IpKind::V6, _) => ProbeFamily::V6,
            },
            names_port: pattern & PORT != 0,
            names_vlan: pattern & VLAN != 0,
            fields: field_masks(pattern),
            net: kind.net_masks(),
            bits: bits.bit_count(),
            hashes: pair(0).unwrap_or_else(|| unreachable!("an array has a pair")),
            more_hashes: if bits.hashes().len() > 2 { pair(2) } else { None },
        }
    }
}

/// Capacity of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Number of arrays.
    pub arrays: usize,
    /// Number of bits of each array.
    pub bits: u64,
    /// Number of look-ups.
    pub probes: usize,
}

/// A copy of the arrays. The writer never exceeds its [`Room`].
pub trait ArrayCopy: Debug + Send {
    /// Returns its capacity, which never changes.
    fn room(&self) -> Room;

    /// Takes over the switches of the pre-filter.
    fn set_switches(&mut self, enabled: bool, negative: bool);

    /// Clears all bits of an array; no look-up uses it.
    fn clear(&mut self, array: usize);

    /// Stores a word of 32 bits of an array.
    fn store(&mut self, array: usize, word: usize, value: u32);

    /// Makes a look-up happen, after all earlier stores.
    fn add(&mut self, probe: &Probe);

    /// Ends a look-up.
    fn remove(&mut self, array: usize, pattern: u8);
}
