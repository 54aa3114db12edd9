//! A reader of aligned PER for H.225.0 and H.245: bits, lengths, choices, and parts that are skipped.
//!
//! Every step checks its bounds; what cannot be read is refused with a reason. Lengths above 16,383, which PER sends in
//! pieces, are refused. Cost: O(bytes), no copies. Source: ITU-T X.691, sections 11 to 24.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Most parts of a list, and most additions of a sequence.
pub(super) const PARTS: usize = 64;

/// The reason for which a message is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// It ends within a value.
    #[error("the message ends within a value, {missing} bits too early")]
    Short {
        /// Number of bits that are missing.
        missing: usize,
    },
    /// A length is sent in pieces.
    #[error("a length above 16383, in pieces, is not read")]
    Pieces,
    /// A list is too long.
    #[error("a list has {given} parts; the limit is {PARTS}")]
    Many {
        /// Its length.
        given: usize,
    },
    /// A choice or a part that is not read.
    #[error("{0} is not read")]
    NotRead(&'static str),
}

impl Refusal {
    /// True if the message is damaged, not only of a kind that is not read.
    pub(super) fn is_damage(self) -> bool {
        !matches!(self, Refusal::NotRead(_))
    }
}

pub(super) type Read<T> = Result<T, Refusal>;

/// Index of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    /// An alternative of the root; its value follows.
    Root(u32),
    /// An addition, with its value.
    Added(u32, Per<'a>),
}

/// A place in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Per<'a> {
    bytes: &'a [u8],
    /// Number of bits read.
    bit: usize,
}

impl<'a> Per<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Per<'a> {
        Per { bytes, bit: 0 }
    }

    /// Skips bits.
    pub(super) fn skip_bits(&mut self, count: usize) -> Read<()> {
        let left = self.bytes.len() * 8 - self.bit;
        if count > left {
            return Err(Refusal::Short { missing: count - left });
        }
        self.bit += count;
        Ok(())
    }

    /// Reads up to 32 bits as a number.
    pub(super) fn bits(&mut self, count: usize) -> Read<u32> {
        let first = self.bit;
        self.skip_bits(count)?;
        let one = |bit: usize| u32::from(self.bytes[bit / 8] >> (7 - bit % 8) & 1);
        Ok((first..self.bit).fold(0, |number, bit| number << 1 | one(bit)))
    }

    pub(super) fn flag(&mut self) -> Read<bool> {
        Ok(self.bits(1)? == 1)
    }

    /// Reads flags: whether each optional part is there.
    pub(super) fn flags<const COUNT: usize>(&mut self) -> Read<[bool; COUNT]> {
        let mut flags = [false; COUNT];
        for flag in &mut flags {
            *flag = self.flag()?;
        }
        Ok(flags)
    }

    /// Reads bytes from the next whole byte on.
    pub(super) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let at = self.bit.div_ceil(8);
        let left = self.bytes.len() - at;
        if count > left {
            return Err(Refusal::Short { missing: (count - left) * 8 });
        }
        self.bit = (at + count) * 8;
        Ok(&self.bytes[at..at + count])
    }

    fn array<const COUNT: usize>(&mut self) -> Read<[u8; COUNT]> {
        let bytes = self.take(COUNT)?;
        bytes.try_into().map_err(|_| Refusal::Short { missing: 0 })
    }

    /// A number of 256 values.
    pub(super) fn byte(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// A number of 257 to 65,536 values.
    pub(super) fn word(&mut self) -> Read<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Skips a number of more values, of up to four bytes.
    pub(super) fn skip_large(&mut self) -> Read<()> {
        let length = self.bits(2)? as usize + 1;
        self.take(length).map(drop)
    }

    pub(super) fn four(&mut self) -> Read<Ipv4Addr> {
        Ok(self.array::<4>()?.into())
    }

    pub(super) fn six(&mut self) -> Read<Ipv6Addr> {
        Ok(self.array::<16>()?.into())
    }

    /// A length without bounds.
    pub(super) fn length(&mut self) -> Read<usize> {
        let first = self.byte()?;
        match first {
            0..0x80 => Ok(first.into()),
            0x80..0xc0 => Ok(usize::from(first & 0x3f) << 8 | usize::from(self.byte()?)),
            _ => Err(Refusal::Pieces),
        }
    }

    /// Bytes with their length before them: octet strings, object identifiers, open types.
    pub(super) fn string(&mut self) -> Read<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    /// The number of parts of a list.
    pub(super) fn count(&mut self) -> Read<usize> {
        match self.length()? {
            count @ 0..=PARTS => Ok(count),
            given => Err(Refusal::Many { given }),
        }
    }

    /// The octet strings of a list.
    pub(super) fn strings(&mut self) -> Read<Vec<&'a [u8]>> {
        let count = self.count()?;
        (0..count).map(|_| self.string()).collect()
    }

    /// A small number: of an addition, or how many there are.
    fn small(&mut self) -> Read<u32> {
        match self.flag()? {
            true => Err(Refusal::NotRead("an addition with a number above 63")),
            false => self.bits(6),
        }
    }

    /// A choice with additions; the index of its root takes this number of bits.
    pub(super) fn choice(&mut self, bits: usize) -> Read<Choice<'a>> {
        if !self.flag()? {
            return Ok(Choice::Root(self.bits(bits)?));
        }
        let index = self.small()?;
        Ok(Choice::Added(index, Per::new(self.string()?)))
    }

    /// Skips a choice without values.
    pub(super) fn skip_choice(&mut self, bits: usize) -> Read<()> {
        self.choice(bits).map(drop)
    }

    /// The additions of a sequence, if it has any.
    pub(super) fn additions(&mut self, extended: bool) -> Read<Additions<'a>> {
        let mut parts = Vec::new();
        if extended {
            let count = self.small()? as usize + 1;
            let present: Vec<_> = (0..count).map(|_| self.flag()).collect::<Read<_>>()?;
            for is_there in present {
                parts.push(if is_there { Some(Per::new(self.string()?)) } else { None });
            }
        }
        Ok(Additions(parts))
    }

    /// Skips the additions of a sequence.
    pub(super) fn end(&mut self, extended: bool) -> Read<()> {
        self.additions(extended).map(drop)
    }
}

/// The additions of a sequence.
pub(super) struct Additions<'a>(Vec<Option<Per<'a>>>);

impl<'a> Additions<'a> {
    /// The addition of a number.
    pub(super) fn get(&self, index: usize) -> Option<Per<'a>> {
        self.0.get(index).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_their_bits_and_bytes() {
        let bytes = [0b1010_0000, 7, 0x81, 2, 1, 2, 3];
        let mut per = Per::new(&bytes);
        assert_eq!((per.flags::<2>(), per.bits(2)), (Ok([true, false]), Ok(2)));
        assert_eq!((per.byte(), per.length()), (Ok(7), Ok(258)));
        assert_eq!(per.take(4), Err(Refusal::Short { missing: 8 }));
        assert_eq!(per.take(3), Ok(&[1, 2, 3][..]));
        assert_eq!(per.flag(), Err(Refusal::Short { missing: 1 }));
        let mut large = Per::new(&[0b1000_0000, 1, 2, 3, 9]);
        assert_eq!((large.skip_large(), large.byte()), (Ok(()), Ok(9)));
    }

    #[test]
    fn what_is_not_read_has_a_reason() {
        assert_eq!(Per::new(&[0xc1]).length(), Err(Refusal::Pieces));
        assert_eq!(Per::new(&[65]).count(), Err(Refusal::Many { given: 65 }));
        let mut per = Per::new(&[0xc0]);
        assert_eq!(per.choice(1).map(drop).map_err(Refusal::is_damage), Err(false));
        let said = Refusal::Many { given: 65 }.to_string();
        assert_eq!(said, "a list has 65 parts; the limit is 64");
    }

    #[test]
    fn additions_are_found_by_their_numbers() {
        // Two additions, of which the second is there.
        let bytes = [0b0000_0010, 0b1000_0000, 1, 9];
        let additions = Per::new(&bytes).additions(true).unwrap();
        assert!(additions.get(0).is_none() && additions.get(2).is_none());
        assert_eq!(additions.get(1).map(|mut one| one.byte()), Some(Ok(9)));
        assert!(matches!(Per::new(&bytes[..3]).additions(true), Err(Refusal::Short { .. })));
    }
}
