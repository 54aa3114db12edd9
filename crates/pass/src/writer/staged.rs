//! Edits that are applied but not yet visible to readers.

use crate::isa::id::Epoch;
use crate::plan::Sharing;
use crate::plan::snapshot::Snapshot;
use crate::writer::edit::Edit;
use std::sync::Arc;

/// An edit that is applied but not yet visible to readers. Publishing or dropping it makes it visible; dropping also
/// frees memory after the edit.
#[derive(Debug)]
pub struct Staged<'a> {
    /// The edit; its changes are applied.
    edit: Edit<'a>,
    snapshot: Option<Arc<Snapshot>>,
    published: bool,
}

impl<'a> Staged<'a> {
    pub(crate) fn new(mut edit: Edit<'a>) -> Staged<'a> {
        let snapshot = match edit.work.take() {
            Some(changes) => edit.set.stage(*changes),
            None => edit.set.stage_rows(),
        };
        Staged { edit, snapshot, published: false }
    }

    /// Lays out the plan that readers will evaluate, so that no reader has to: O(passes outside of tables), if those
    /// changed.
    pub fn lay_out(&self) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.plan(Sharing::All);
        }
    }

    /// Makes the edit visible to readers and returns its epoch. O(1).
    pub fn publish(&mut self) -> Epoch {
        if !std::mem::replace(&mut self.published, true) {
            self.edit.set.reveal(self.snapshot.take());
        }
        self.edit.set.epoch
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        self.publish();
        self.edit.set.settle();
    }
}
