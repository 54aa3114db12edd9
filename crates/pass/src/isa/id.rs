//! Numbers of passes, filters and epochs. None is used twice within a [`crate::PassSet`].

use crate::state::RowRef;
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

/// A row of a declared shape: the pass that it is, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowId {
    /// The number under which matches name it.
    pub pass: PassId,
    pub(crate) row: RowRef,
}
