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
