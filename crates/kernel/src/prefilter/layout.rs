//! Layout of the memory that the pre-filter's programs read; `bpf/prefilter.h` is its other side.
//!
//! ```text
//! arrays   switches │ probe 0 │ … │ probe 63 │ words of all arrays    one map, shared by all programs of an interface
//! tap      on │ bytes to accept │ another program follows             one map of each program
//! counts   per processor: rejected │ passed │ not read │ scratch      one map of each program
//! ```
//!
//! A probe is one look-up: an array, the fields that its rules name, one or two pairs of hash functions. The flags of a
//! probe make it happen; they are stored last and cleared first. A probe is never moved, so a run of the program that
//! has passed it misses nothing.

/// Most probes.
pub const PROBES: usize = 64;
/// Flag of a probe: IPv4 packets.
pub const PROBE_V4: u32 = 1;
/// Flag of a probe: IPv6 packets.
pub const PROBE_V6: u32 = 2;
/// Flag of a probe: its rules name a port.
pub const PROBE_PORT: u32 = 4;
/// Flag of a probe: its rules name a VLAN.
pub const PROBE_VLAN: u32 = 8;

/// Flag of a probe: its array has a second pair of hash functions.
pub const PROBE_PAIRS: u32 = 16;

/// Byte offset of the switch that enables the rules.
pub const ENABLED_AT: usize = 0;
/// Byte offset of the switch for negative rules.
pub const NEGATIVE_AT: usize = 4;
/// Byte offset of the number above all probes in use.
pub const PROBE_COUNT_AT: usize = 8;
/// Byte offset of the first probe.
pub const PROBES_AT: usize = 64;
/// Bytes of a probe.
pub const PROBE_BYTES: usize = 320;
/// Byte offset of the words.
pub const WORDS_AT: usize = PROBES_AT + PROBES * PROBE_BYTES;

/// Byte offset in a probe of its first word.
pub const FIRST_AT: usize = 4;
/// Byte offset in a probe of the masks of VLAN, protocol and port.
pub const FIELDS_AT: usize = 8;
/// Byte offset in a probe of the masks of the address.
pub const NET_AT: usize = 16;
/// Byte offset in a probe of the number of bits.
pub const BITS_AT: usize = 32;
/// Byte offset in a probe of the numbers that the hash functions add.
pub const OFFSETS_AT: usize = 40;
/// Byte offset in a probe of the multipliers of the hash functions.
pub const MULTIPLIERS_AT: usize = 56;
/// Byte offset in a probe of the numbers that the second pair of hash functions adds.
pub const MORE_OFFSETS_AT: usize = 192;
/// Byte offset in a probe of the multipliers of the second pair.
pub const MORE_MULTIPLIERS_AT: usize = 208;
/// Multipliers of a hash function.
pub const MULTIPLIERS: usize = 6;

/// Byte offset of a tap's switch.
pub const TAP_ON_AT: usize = 0;
/// Byte offset of the number of bytes that a tap accepts.
pub const TAP_ACCEPT_AT: usize = 4;
/// Byte offset of the switch for the program after the tap.
pub const TAP_FOLLOWS_AT: usize = 8;
/// Byte offset of the number of the interface that gets copies.
pub const TAP_COPY_TO_AT: usize = 12;
/// Bytes of a tap's settings.
pub const TAP_BYTES: usize = 64;
/// Bytes of one processor's counters and scratch memory.
pub const TAP_COUNTS_BYTES: usize = 192;
/// Index of the counter of rejected frames.
pub const TAP_REJECTED: usize = 0;
/// Index of the counter of frames that passed, at XDP.
pub const TAP_PASSED: usize = 1;
/// Index of the counter of frames that passed because their headers were not read, at XDP.
pub const TAP_UNREAD: usize = 2;
/// Index of the counter of frames that passed at tcx on their way in; the next one is that of rejected frames.
pub const TAP_IN: usize = 3;
/// The same on their way out.
pub const TAP_OUT: usize = 5;
/// Index of the counter of copies that an interface did not take.
pub const TAP_NOT_COPIED: usize = 7;

/// Address in the object that the loader replaces by that of the arrays.
pub const ARRAYS_PLACE: u64 = 0x6679_6b04_6679_6b05;

const _: () = assert!(WORDS_AT == 20544 && PROBE_BYTES.is_multiple_of(64));
const _: () = assert!(MULTIPLIERS_AT + 2 * MULTIPLIERS * 8 <= MORE_OFFSETS_AT);
const _: () = assert!(MORE_MULTIPLIERS_AT + 2 * MULTIPLIERS * 8 <= PROBE_BYTES);
const _: () = assert!(BITS_AT == 32 && FIELDS_AT == 8 && NET_AT == 16);
