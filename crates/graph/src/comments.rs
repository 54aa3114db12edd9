//! Comments of a capture file: one for each edit of the filters before it and, if requested, one for each frame.
//!
//! An edit's comment is at the first frame that is written after it, or at the end of the file. While another thread
//! edits, the packet loop does not wait for it: the comment is then at the first frame of a later batch. With
//! comments for frames the epoch of each frame is exact: that of its verdict. Cost: an atomic load for each batch; with
//! comments for frames, the text of each.

use crate::node::Arrival;
use fyke_filters::{Author, EditRecord, FilterSet};
use fyke_print::Credit;
use std::fmt::Write;

/// Most edits with a comment of their own between two batches.
const MOST: usize = 100;

/// The comments of one output.
pub(crate) struct Comments {
    /// True if each frame has one.
    each: bool,
    filters: Option<FilterSet>,
    /// Epoch of the last edit with a comment.
    told: u64,
    /// Comments of edits, for the next frame.
    edits: Vec<String>,
}

impl Comments {
    pub fn new(each: bool) -> Comments {
        Comments { each, filters: None, told: 0, edits: Vec::new() }
    }

    /// Sets the filters before the output. Earlier edits get no comment.
    pub fn connect(&mut self, filters: &FilterSet) {
        self.told = filters.epoch();
        self.filters = Some(filters.clone());
    }

    /// Collects the edits since the last batch.
    pub fn begin_batch(&mut self) {
        self.look(false);
    }

    fn look(&mut self, waits: bool) {
        let Some(filters) = &self.filters else { return };
        let epoch = filters.epoch();
        if epoch == self.told {
            return;
        }
        let Some(records) = filters.edits_after(self.told, MOST, waits) else { return };
        let more = (epoch - self.told).saturating_sub(MOST as u64);
        if more > 0 && records.len() == MOST {
            self.edits.push(format!("fyke: {more} edits before the next one"));
        }
        self.edits.extend(records.iter().map(|record| of_edit(record, epoch)));
        self.told = epoch;
    }

    /// Most frames that are written together: the comments of a frame are given before it.
    pub fn run(&self) -> usize {
        if self.each { 1 } else { usize::MAX }
    }

    /// The comments of a frame that is written now.
    pub fn of(&mut self, arrival: &Arrival<'_>, index: usize) -> Vec<String> {
        let mut texts = std::mem::take(&mut self.edits);
        if self.each {
            let late = arrival.batch().frames()[index].meta.late;
            texts.extend(of_frame(arrival.credit(index), late));
        }
        texts
    }

    /// Comments of edits after the last frame.
    pub fn rest(&mut self) -> Vec<String> {
        self.look(true);
        std::mem::take(&mut self.edits)
    }
}

/// The comment of a frame; `None` if nothing is known.
fn of_frame(credit: Option<Credit>, late: bool) -> Option<String> {
    let late = if late { ", late" } else { "" };
    let Some(credit) = credit else { return (!late.is_empty()).then(|| "fyke: late".to_owned()) };
    let epoch = credit.epoch;
    Some(match (credit.filter, credit.pass) {
        (Some(filter), Some(pass)) => {
            format!("fyke: filter {filter}, pass {pass}, epoch {epoch}{late}")
        }
        (None, Some(pass)) => format!("fyke: pass {pass}, epoch {epoch}{late}"),
        _ => format!("fyke: no filter, epoch {epoch}{late}"),
    })
}

/// The comment of an edit, or of edits by trackers up to `epoch`.
fn of_edit(record: &EditRecord, epoch: u64) -> String {
    if record.author == Author::Tracker {
        return format!("fyke: epoch {}: edits by a tracker", record.epoch.max(epoch));
    }
    let mut text = format!("fyke: epoch {}, by {}", record.epoch, record.author);
    if let Some(undone) = record.undoes {
        let _infallible = write!(text, ", takes back epoch {undone}");
    }
    if let Some(calls) = record.calls {
        let _infallible = write!(text, ": {calls} calls on passes");
    }
    for (at, change) in record.changes.iter().enumerate() {
        let before = if at == 0 { ": " } else { "; " };
        let verb = if change.added { "adds" } else { "removes" };
        let label = change.label.as_ref().and_then(|label| label.name.as_deref());
        let name = label.map(|name| format!(" {name}")).unwrap_or_default();
        let (id, filter) = (change.id, &change.text);
        let _infallible = write!(text, "{before}{verb} filter {id}{name} ({filter})");
    }
    if record.more_changes > 0 {
        let _infallible = write!(text, "; {} more changes", record.more_changes);
    }
    text
}
