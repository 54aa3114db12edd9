//! State of a pass set: passes in a forest, filters, sets, conditions.
//!
//! All of it lives in [`RadixMap`]s, so a copy of the whole state is a few references: the writer works on a copy,
//! a snapshot is a copy, a dropped edit is a dropped copy. Passes are linked as first child, last child, previous and
//! next, and are evaluated depth first, parents before children. A row is about 150 bytes plus 32 per instruction.

pub(crate) mod protocol;
pub(crate) mod published;
pub(crate) mod radix;
pub(crate) mod rows;
mod sync;

use crate::isa::id::OrderKey;
use crate::isa::id::{Epoch, FilterId, PassId, RowRef};
use crate::isa::layout::Instruction;
use crate::isa::test::{Compiled, SideTables};
use crate::isa::value_set::ValueSet;
use crate::lower::LowerError;
use crate::lower::needs::Needs;
use crate::lower::oracle::Oracle;
use crate::state::radix::RadixMap;
use fyke_frame::Condition;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Instructions of a pass. Several states share it until it is edited.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub instructions: Vec<Instruction>,
    /// Bit n: instruction n was copied from the parent and has not been changed.
    pub copied: u64,
    /// One for each instruction; `commit` fills it.
    pub compiled: Vec<Arc<Compiled>>,
}

/// A pass and its place in the forest.
#[derive(Debug, Clone)]
pub(crate) struct PassRow {
    pub filter: Option<FilterId>,
    pub parent: Option<PassId>,
    pub first_child: Option<PassId>,
    pub last_child: Option<PassId>,
    pub previous: Option<PassId>,
    pub next: Option<PassId>,
    pub body: Arc<Body>,
    /// Frames accepted; exists as long as the pass.
    pub accepted: Arc<AtomicU64>,
    /// The edit that made or last changed it.
    pub changed: Epoch,
    /// The pass and its ancestors, oldest first; `None` = it has no parent. It never changes, even after ancestors are
    /// deleted, and its order is the order of evaluation.
    pub label: Option<Arc<[u64]>>,
    /// Its row in a table, since the last commit.
    pub row: Option<RowRef>,
}

impl PassRow {
    /// The pass's label.
    pub fn label(&self, id: PassId) -> Vec<u64> {
        self.label.as_ref().map_or_else(|| vec![id.0], |label| label.to_vec())
    }

    /// The first two passes of its label.
    pub fn order_key(&self, id: PassId) -> OrderKey {
        self.label.as_ref().map_or([id.0, 0], |label| [label[0], label[1]])
    }
}

/// A filter text.
#[derive(Debug, Clone)]
pub(crate) struct FilterRow {
    pub text: Arc<str>,
    /// `None` after a pass of it was edited: from then on its passes are judged without the text.
    pub ordered: Option<(Oracle, Arc<Needs>)>,
    /// The reason if the text was too large for passes, so that the ordered evaluator judges all frames.
    pub too_large: Option<Arc<LowerError>>,
    /// The numbers that its passes got; some passes may have been deleted since.
    pub passes: Range<u64>,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub passes: RadixMap<PassRow>,
    pub filters: RadixMap<FilterRow>,
    pub sets: RadixMap<Arc<ValueSet>>,
    pub conditions: RadixMap<Arc<Condition>>,
    pub first: Option<PassId>,
    pub last: Option<PassId>,
    pub last_pass: u64,
    pub last_filter: u64,
    pub last_set: u32,
    pub last_condition: u32,
    /// Number of filters with passes that no longer equal their texts.
    pub modified_filters: usize,
}

/// Sets and conditions of a state while its passes are being changed.
pub(crate) struct Sides<'a>(pub &'a RadixMap<Arc<ValueSet>>, pub &'a RadixMap<Arc<Condition>>);

impl SideTables for Sides<'_> {
    fn set(&self, number: u32) -> Option<&Arc<ValueSet>> {
        self.0.get(number.into())
    }

    fn condition(&self, number: u32) -> Option<&Arc<Condition>> {
        self.1.get(number.into())
    }
}

impl SideTables for State {
    fn set(&self, number: u32) -> Option<&Arc<ValueSet>> {
        self.sets.get(number.into())
    }

    fn condition(&self, number: u32) -> Option<&Arc<Condition>> {
        self.conditions.get(number.into())
    }
}

impl State {
    /// True if there is nothing: such a set accepts every frame.
    pub fn is_empty(&self) -> bool {
        self.passes.len() == 0 && self.filters.len() == 0
    }

    pub fn pass(&self, id: PassId) -> Option<&PassRow> {
        self.passes.get(id.0)
    }

    /// The pass that is evaluated after this one.
    pub fn following(&self, id: PassId) -> Option<PassId> {
        let mut row = self.pass(id)?;
        if row.first_child.is_some() {
            return row.first_child;
        }
        while row.next.is_none() {
            row = self.pass(row.parent?)?;
        }
        row.next
    }

    /// All passes in the order of evaluation.
    pub fn in_order(&self) -> impl Iterator<Item = (PassId, &PassRow)> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            let id = at?;
            at = self.following(id);
            Some((id, self.pass(id)?))
        })
    }

    /// Appends a new pass to its parent's children, or to the top level.
    pub fn append(&mut self, row: PassRow) -> PassId {
        self.last_pass += 1;
        let id = PassId(self.last_pass);
        let parent = row.parent;
        let previous = match parent {
            Some(parent) => self.pass(parent).and_then(|row| row.last_child),
            None => self.last,
        };
        let label = parent.and_then(|parent| {
            let mut label = self.pass(parent)?.label(parent);
            label.push(id.0);
            Some(label.into())
        });
        self.passes.insert(id.0, PassRow { previous, next: None, label, row: None, ..row });
        self.set_next(parent, previous, Some(id));
        self.set_last(parent, Some(id));
        id
    }

    /// Removes a pass; its children replace it among its parent's children.
    pub fn remove(&mut self, id: PassId) -> Option<PassRow> {
        let row = self.passes.remove(id.0)?;
        let mut child = row.first_child;
        while let Some(at) = child {
            let Some(child_row) = self.passes.get_mut(at.0) else { break };
            child_row.parent = row.parent;
            child = child_row.next;
        }
        let first = row.first_child.or(row.next);
        let last = row.last_child.or(row.previous);
        self.set_next(row.parent, row.previous, first);
        match row.next {
            Some(next) => self.set_previous(next, last),
            None => self.set_last(row.parent, last),
        }
        if let (Some(first), Some(last)) = (row.first_child, row.last_child) {
            self.set_previous(first, row.previous);
            if let Some(last_row) = self.passes.get_mut(last.0) {
                last_row.next = row.next;
            }
        }
        Some(row)
    }

    /// Makes `id` the successor of `previous` among the children of `parent`.
    fn set_next(&mut self, parent: Option<PassId>, previous: Option<PassId>, id: Option<PassId>) {
        match (previous, parent) {
            (Some(previous), _) => {
                if let Some(row) = self.passes.get_mut(previous.0) {
                    row.next = id;
                }
            }
            (None, Some(parent)) => {
                if let Some(row) = self.passes.get_mut(parent.0) {
                    row.first_child = id;
                }
            }
            (None, None) => self.first = id,
        }
    }

    fn set_previous(&mut self, id: PassId, previous: Option<PassId>) {
        if let Some(row) = self.passes.get_mut(id.0) {
            row.previous = previous;
        }
    }

    fn set_last(&mut self, parent: Option<PassId>, id: Option<PassId>) {
        match parent {
            Some(parent) => {
                if let Some(row) = self.passes.get_mut(parent.0) {
                    row.last_child = id;
                }
            }
            None => self.last = id,
        }
    }
}
