//! Sets of byte values: the bytes that one position of a pattern accepts.

use std::fmt;

/// A set of byte values, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct ByteSet([u64; 4]);

impl ByteSet {
    /// No byte.
    pub const EMPTY: ByteSet = ByteSet([0; 4]);
    /// Every byte.
    pub const ALL: ByteSet = ByteSet([u64::MAX; 4]);

    /// One byte.
    pub fn one(byte: u8) -> ByteSet {
        let mut set = ByteSet::EMPTY;
        set.insert(byte);
        set
    }

    /// A byte; for an ASCII letter also the letter in the other case.
    pub fn folded(byte: u8) -> ByteSet {
        let mut set = ByteSet::one(byte.to_ascii_lowercase());
        set.insert(byte.to_ascii_uppercase());
        set
    }

    /// The bytes from `low` to `high`, both included.
    pub fn range(low: u8, high: u8) -> ByteSet {
        (low..=high).collect()
    }

    /// The bytes that equal `value` in the bits of `mask`.
    pub fn masked(mask: u8, value: u8) -> ByteSet {
        (0..=u8::MAX).filter(|byte| byte & mask == value & mask).collect()
    }

    /// Adds a byte.
    pub fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    /// Returns true if a byte is in the set.
    #[inline]
    pub fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    /// Intersection.
    #[must_use]
    pub fn and(&self, other: &ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// Union.
    #[must_use]
    pub fn or(&self, other: &ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// Complement.
    #[must_use]
    pub fn not(&self) -> ByteSet {
        ByteSet(self.0.map(|word| !word))
    }

    /// Adds the other case of each letter.
    #[must_use]
    pub fn fold(&self) -> ByteSet {
        self.iter().fold(ByteSet::EMPTY, |set, byte| set.or(&ByteSet::folded(byte)))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == ByteSet::EMPTY
    }

    /// The bytes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|byte| self.contains(*byte))
    }

    /// The byte, if the set has exactly one.
    pub fn single(&self) -> Option<u8> {
        (self.len() == 1).then(|| self.iter().next()).flatten()
    }
}

impl FromIterator<u8> for ByteSet {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> ByteSet {
        let mut set = ByteSet::EMPTY;
        bytes.into_iter().for_each(|byte| set.insert(byte));
        set
    }
}

impl fmt::Debug for ByteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Shortest readable form: `a`, `a-z0-9`, `^\n`, `any`.
impl fmt::Display for ByteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (set, sign) = if self.len() > 200 { (self.not(), "^") } else { (*self, "") };
        if set.is_empty() {
            return f.write_str(if sign.is_empty() { "none" } else { "any" });
        }
        f.write_str(sign)?;
        let mut bytes = set.iter().peekable();
        while let Some(low) = bytes.next() {
            let mut high = low;
            while bytes.peek().is_some_and(|next| Some(*next) == high.checked_add(1)) {
                high += 1;
                bytes.next();
            }
            write!(f, "{}", low.escape_ascii())?;
            if high > low {
                write!(f, "-{}", high.escape_ascii())?;
            }
        }
        Ok(())
    }
}
