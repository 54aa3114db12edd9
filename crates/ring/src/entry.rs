//! An entry of an index: six words of 32 bits, so that 32-bit programs read them whole, too.
//!
//! ```text
//!   place │ class │ length 18, flags 6, buffer 8 │ sequence │ epoch │ pass
//! ```
//!
//! Two of them are one word of the shared memory, the first in its lower half. Counters wrap
//! around. Source: FFPF, section 3.6.3 of the thesis (position, classification, packet buffer).

use crate::protocol::ENTRY;
use fyke_frame::{Direction, Meta};

/// Largest length that an entry can have; a longer frame has this one, and its own length in the
/// packet buffer.
pub const MAX_LENGTH: u32 = (1 << 18) - 1;

const LATE: u8 = 1;
const RESTORED: u8 = 2;
const TAGGED: u8 = 4;
const DIRECTION: u32 = 3;

/// Knowledge of the writer about a frame, besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Class value that the last classifying node gave the frame.
    pub class: u32,
    /// State of the filters under which it was accepted; 0 if it is not known.
    pub epoch: u32,
    /// Number of the pass that accepted it; 0 if it is not known.
    pub pass: u32,
}

/// A frame in a packet buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Place, in words since the start of the buffer.
    pub place: u64,
    /// Number of the frame in its buffer.
    pub number: u64,
    /// Its bytes; at most [`MAX_LENGTH`].
    pub length: u32,
    /// Its flags.
    pub flags: Flags,
}

/// Properties of a frame in six bits: late, restored, tagged, and the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The flags of a frame's metadata.
    pub fn of(meta: &Meta) -> Flags {
        let of = |set: bool, flag: u8| if set { flag } else { 0 };
        let direction = (meta.direction as u8) << DIRECTION;
        let tagged = of(meta.vlan.is_some(), TAGGED);
        Flags(of(meta.late, LATE) | of(meta.restored, RESTORED) | tagged | direction)
    }

    /// True if the frame was captured before the edit that accepts it.
    pub fn is_late(self) -> bool {
        self.0 & LATE != 0
    }

    /// True if the source has reinserted a VLAN tag that the device had removed.
    pub fn is_restored(self) -> bool {
        self.0 & RESTORED != 0
    }

    /// True if the frame has a VLAN tag that is not in its bytes.
    pub fn is_tagged(self) -> bool {
        self.0 & TAGGED != 0
    }

    /// Direction of the frame.
    pub fn direction(self) -> Direction {
        match self.0 >> DIRECTION & 7 {
            1 => Direction::Inbound,
            2 => Direction::Broadcast,
            3 => Direction::Multicast,
            4 => Direction::OtherHost,
            5 => Direction::Outbound,
            _ => Direction::Unknown,
        }
    }
}

/// An entry as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// Lower 32 bits of the place of the frame in its packet buffer, in words.
    pub place: u32,
    /// Class value of the frame.
    pub class: u32,
    /// Bytes of the frame, at most [`MAX_LENGTH`]; 0 if the writer did not tell.
    pub length: u32,
    /// Flags of the frame.
    pub flags: Flags,
    /// Packet buffer that holds the frame.
    pub buffer: u8,
    /// Lower 32 bits of the number of the frame in its packet buffer.
    pub sequence: u32,
    /// State of the filters under which the frame was accepted; 0 if it is not known.
    pub epoch: u32,
    /// Number of the pass that accepted it; 0 if it is not known.
    pub pass: u32,
}

impl Entry {
    /// The entry of a frame.
    pub fn new(buffer: u8, placed: &Placed, mark: Mark) -> Entry {
        let Mark { class, epoch, pass } = mark;
        Entry {
            place: placed.place as u32,
            class,
            length: placed.length.min(MAX_LENGTH),
            flags: placed.flags,
            buffer,
            sequence: placed.number as u32,
            epoch,
            pass,
        }
    }

    #[inline]
    pub(crate) fn to_words(self) -> [u64; ENTRY] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let flags = u32::from(self.flags.0 & 0x3f) << 18 | u32::from(self.buffer) << 24;
        [
            pair(self.place, self.class),
            pair(self.length.min(MAX_LENGTH) | flags, self.sequence),
            pair(self.epoch, self.pass),
        ]
    }

    #[inline]
    pub(crate) fn from_words(words: [u64; ENTRY]) -> Entry {
        let [place, packed, state] = words;
        let (class, sequence, pass) = (place >> 32, packed >> 32, state >> 32);
        let packed = packed as u32;
        Entry {
            place: place as u32,
            class: class as u32,
            length: packed & MAX_LENGTH,
            flags: Flags((packed >> 18 & 0x3f) as u8),
            buffer: (packed >> 24) as u8,
            sequence: sequence as u32,
            epoch: state as u32,
            pass: pass as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_six_words_of_32_bits() {
        let flags = Flags(0x2d);
        let entry = Entry {
            place: 0xffff_fff0,
            class: 7,
            length: MAX_LENGTH,
            flags,
            buffer: 0xf5,
            sequence: u32::MAX,
            epoch: 3,
            pass: u32::MAX,
        };
        let words = entry.to_words();
        let halves = words.map(|word| [word as u32, (word >> 32) as u32]);
        let packed = MAX_LENGTH | 0x2d << 18 | 0xf5 << 24;
        assert_eq!(halves, [[0xffff_fff0, 7], [packed, u32::MAX], [3, u32::MAX]]);
        assert_eq!(Entry::from_words(words), entry);
        let placed = Placed { place: 1 << 40 | 5, number: 1 << 33 | 9, length: 1 << 20, flags };
        let entry = Entry::new(2, &placed, Mark { class: 1, epoch: 2, pass: 3 });
        assert_eq!((entry.place, entry.sequence, entry.length), (5, 9, MAX_LENGTH));
        assert_eq!(Entry::from_words([u64::MAX; ENTRY]).to_words(), [u64::MAX; ENTRY]);
    }

    #[test]
    fn flags_keep_the_metadata() {
        for direction in [
            Direction::Unknown,
            Direction::Inbound,
            Direction::Broadcast,
            Direction::Multicast,
            Direction::OtherHost,
            Direction::Outbound,
        ] {
            for bits in 0..8u8 {
                let (late, restored) = (bits & 1 != 0, bits & 2 != 0);
                let vlan = (bits & 4 != 0).then_some(5);
                let flags = Flags::of(&Meta {
                    direction,
                    ifindex: 3,
                    vlan,
                    restored,
                    late,
                    unsummed: false,
                });
                assert!(flags.0 < 64);
                assert_eq!(flags.direction(), direction);
                assert_eq!((flags.is_late(), flags.is_restored()), (late, restored));
                assert_eq!(flags.is_tagged(), vlan.is_some());
            }
        }
    }
}
