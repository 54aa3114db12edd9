//! Work of verifications, counted instead of timed, so that the same bytes and rules always come to the same result.
//!
//! A unit takes about five nanoseconds: a step of an expression, a test, or a search through 64 bytes. One verification,
//! which is one rule on one packet, piece of a stream or message, has at most [`MAX_WORK`] units, whatever its tests
//! are; [`crate::engine`] gives less when all rules together need too much.

/// Most units of one verification.
pub const MAX_WORK: u64 = 1 << 20;

/// The units that a verification may still use.
#[derive(Debug)]
pub struct Work {
    granted: u64,
    /// Below zero if the last part was larger than what was left.
    left: i64,
}

impl Default for Work {
    fn default() -> Self {
        Work::new(MAX_WORK)
    }
}

impl Work {
    /// Grants units.
    pub fn new(granted: u64) -> Work {
        Work { granted, left: i64::try_from(granted).unwrap_or(i64::MAX) }
    }

    /// Uses units; false if nothing is left.
    #[inline]
    pub fn take(&mut self, units: usize) -> bool {
        self.left = self.left.saturating_sub(i64::try_from(units).unwrap_or(i64::MAX));
        self.left > 0
    }

    /// Units that are left.
    pub fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(0)
    }

    /// True if nothing is left.
    pub fn is_out(&self) -> bool {
        self.left <= 0
    }

    /// Units that were used.
    pub fn used(&self) -> u64 {
        let granted = i64::try_from(self.granted).unwrap_or(i64::MAX);
        u64::try_from(granted.saturating_sub(self.left)).unwrap_or(0)
    }
}
