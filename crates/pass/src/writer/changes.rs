//! Changes of an edit so far: to the state, and to rows of declared shapes.

use crate::isa::id::{FilterId, PassId, RowRef};
use crate::state::State;
use fyke_frame::Condition;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Changes of an edit to the state.
#[derive(Debug)]
pub(crate) struct Changes {
    pub state: State,
    /// Passes that were added or removed, or of which instructions changed.
    pub touched: BTreeSet<PassId>,
    /// Passes that got a child, so that they cannot be rows any more.
    pub regrouped: Vec<PassId>,
    /// True if the passes of a filter no longer equal its text.
    pub detached: bool,
    /// Removed filters; `None` if all were removed.
    pub removed_filters: Option<Vec<FilterId>>,
    /// Sets that this edit made, each with the only place that may still be changed without a copy.
    pub own_sets: HashMap<u32, Option<(PassId, usize)>>,
    pub new_conditions: HashMap<Arc<Condition>, u32>,
}

impl Changes {
    /// Numbers of the sets that the edit made.
    pub fn new_sets(&self) -> impl Iterator<Item = u32> {
        self.own_sets.keys().copied()
    }
}

/// A change of a row of a declared shape, in one word, so that it can be undone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowChange(u64);

impl RowChange {
    /// Shapes have small numbers, so the highest bit is free.
    const ENDED: u64 = 1 << 63;

    #[inline]
    pub fn added(row: RowRef) -> RowChange {
        RowChange(row.0)
    }

    #[inline]
    pub fn ended(row: RowRef) -> RowChange {
        RowChange(row.0 | RowChange::ENDED)
    }

    #[inline]
    pub fn row(self) -> RowRef {
        RowRef(self.0 & !RowChange::ENDED)
    }

    #[inline]
    pub fn is_end(self) -> bool {
        self.0 & RowChange::ENDED != 0
    }
}
