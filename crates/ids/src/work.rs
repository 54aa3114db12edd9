//! Work of verifications, counted instead of timed, so that the same bytes and rules always come to the same result.
//!
//! A unit is a step of an expression, a test, or a search through 64 bytes. One verification, which is one rule on one
//! packet, piece of a stream or message, has at most [`MAX_WORK`] units; what [`crate::engine`] grants is less when all
//! rules together need too much.

/// Most units of one verification.
pub const MAX_WORK: u64 = 1 << 20;

/// The units that a verification may still use.
#[derive(Debug)]
pub struct Work {
    granted: u64,
    /// Below zero if what was done already has cost more than was left.
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

    /// Uses units for what is done next; false if there are not enough left, and it must not be done.
    #[inline]
    pub fn take(&mut self, units: usize) -> bool {
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        let are_left = self.left > units;
        if are_left {
            self.left -= units;
        } else {
            self.end();
        }
        are_left
    }

    /// Uses units for what was done already.
    pub fn owe(&mut self, units: usize) {
        self.left = self.left.saturating_sub(i64::try_from(units).unwrap_or(i64::MAX));
    }

    /// Uses all that is left.
    pub fn end(&mut self) {
        self.left = self.left.min(0);
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
