//! Numbers of passes, filters and epochs. None is used twice within a [`crate::PassSet`].

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Number of a pass, from 1.
    PassId
);
number!(
    /// Number of a filter text, from 1.
    FilterId
);
number!(
    /// Number of applied edits. Every frame is judged under exactly one epoch.
    Epoch
);

impl Epoch {
    pub(crate) fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// Number of a declared shape within its [`crate::PassSet`]; used again when the shape is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeId(pub u32);

impl fmt::Display for ShapeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A row of a declared shape: its pass and its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowId {
    /// The number under which matches name it.
    pub pass: PassId,
    pub(crate) row: RowRef,
}

/// A row: shape and slot, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowRef(pub u64);

impl RowRef {
    #[inline]
    pub fn new(shape: u32, slot: u32) -> RowRef {
        RowRef(u64::from(shape) << 32 | u64::from(slot))
    }

    #[inline]
    pub fn shape(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// Position of a pass in the order of evaluation, for rows and for passes outside of tables alike: the first two
/// numbers of its label, that is its root and the ancestor below the root (0 for a root).
pub(crate) type OrderKey = [u64; 2];
