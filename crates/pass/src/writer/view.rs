//! Views of filters that do not delay edits.
//!
//! A [`PassSnapshot`] is one epoch of a set, separate from it: taking one copies a few references, and using it delays
//! neither the writer nor readers. While it exists its rows are not reused, so that counters stay those of their
//! passes.

use crate::isa::id::RowRef;
use crate::isa::id::{Epoch, FilterId, PassId};
use crate::lower::LowerError;
use crate::lower::needs::{Extent, MAX_IPV4_HEADER, Needs};
use crate::lower::oracle::Oracle;
use crate::plan::snapshot::{Shared, Snapshot};
use crate::state::published::PublishedShape;
use crate::state::published::RowCounts;
use crate::state::rows::ReaderEpoch;
use crate::state::{FilterRow, State};
use crate::writer::describe::PassView;
use fyke_filter::Predicate;
use fyke_frame::{Condition, LinkType};
use std::sync::Arc;

/// Source of snapshots of a pass set, on any thread, while others edit the set.
#[derive(Debug, Clone)]
pub struct Viewer {
    pub(crate) shared: Arc<Shared>,
}

impl Viewer {
    pub(crate) fn new(shared: Arc<Shared>) -> Viewer {
        Viewer { shared }
    }

    /// The set as of the last commit. O(tables).
    pub fn snapshot(&self) -> PassSnapshot {
        let pinned = self.shared.readers.join(|| self.shared.epoch());
        let snapshot = self.shared.current();
        pinned.pin(snapshot.epoch);
        let mut shapes = Vec::new();
        for published in snapshot.shapes() {
            let number = published.number as usize;
            shapes.resize(shapes.len().max(number + 1), None);
            shapes[number] = Some(published.clone());
        }
        PassSnapshot { snapshot, rows: PublishedRows(shapes), _pinned: pinned }
    }
}

/// View of a pass set at one epoch. Passes of later edits are not in it; counters have their current values. Rows of
/// declared shapes are not in it.
#[derive(Debug)]
pub struct PassSnapshot {
    snapshot: Arc<Snapshot>,
    rows: PublishedRows,
    /// Pins the epoch, so that its rows are kept.
    _pinned: ReaderEpoch,
}

impl PassSnapshot {
    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.snapshot.epoch
    }

    /// All passes, in the order of evaluation.
    pub fn passes(&self) -> impl Iterator<Item = PassView<'_>> {
        let (state, link) = (&self.snapshot.state, self.snapshot.link);
        state.in_order().map(move |(id, row)| PassView::new(id, row, state, &self.rows, link))
    }

    /// One filter.
    pub fn filter(&self, id: FilterId) -> Option<FilterView<'_>> {
        FilterView::new(id, &self.snapshot.state, &self.rows, self.snapshot.link)
    }
}

/// Shapes by number.
#[derive(Debug)]
struct PublishedRows(Vec<Option<Arc<PublishedShape>>>);

impl RowCounts for PublishedRows {
    /// Counts of readers at earlier epochs for a pass's former rows are added when those rows are removed.
    fn accepted(&self, _: PassId, row: Option<RowRef>) -> u64 {
        let Some(row) = row else { return 0 };
        let published = self.0.get(row.shape() as usize).and_then(Option::as_ref);
        published.map_or(0, |published| published.accepted(row.slot()))
    }
}

/// View of the ordered evaluation of a filter.
#[derive(Debug, Clone, Copy)]
pub struct Ordered<'a> {
    /// The text, or the condition, that defines it.
    pub predicate: Result<&'a Predicate, &'a Condition>,
    needs: &'a Needs,
}

impl Ordered<'_> {
    /// Shortest lengths (whole frame; bytes after the IPv4 header at `ip`, if there is one) of frames for which the
    /// passes equal the ordered evaluation. `None` if the lengths alone do not decide.
    pub fn complete(&self, ip: u32) -> Option<(u32, u32)> {
        let mut least = (0, 0);
        for (_, extent, _) in self.needs.each() {
            match extent {
                Extent::Fixed(end) => least.0 = least.0.max(end),
                Extent::Behind { ip: at, end } if at == ip => least.1 = least.1.max(end),
                // Assume the longest header.
                Extent::Behind { ip: at, end } => {
                    let end = at.saturating_add(MAX_IPV4_HEADER).saturating_add(end);
                    least.0 = least.0.max(end);
                }
                Extent::Value(_) | Extent::Other => return None,
            }
        }
        Some(least)
    }
}

/// View of a filter text.
#[derive(Debug, Clone, Copy)]
pub struct FilterView<'a> {
    /// Its number.
    pub id: FilterId,
    row: &'a FilterRow,
    state: &'a State,
    rows: &'a dyn RowCounts,
    link: LinkType,
}

impl<'a> FilterView<'a> {
    pub(crate) fn new(
        id: FilterId,
        state: &'a State,
        rows: &'a dyn RowCounts,
        link: LinkType,
    ) -> Option<FilterView<'a>> {
        Some(FilterView { id, row: state.filters.get(id.0)?, state, rows, link })
    }

    /// The text from which it was made.
    pub fn text(&self) -> &'a str {
        &self.row.text
    }

    /// True if its passes were edited and no longer equal the text.
    pub fn is_modified(&self) -> bool {
        self.row.ordered.is_none()
    }

    /// Frame length from which on passes judge frames without a further test; `None` if the filter was modified or
    /// there is no such length.
    pub fn complete_from(&self) -> Option<u32> {
        let (_, needs) = self.row.ordered.as_ref()?;
        (needs.bound() < u32::MAX).then_some(needs.bound())
    }

    /// True if the ordered evaluator judges all frames, one by one: the text is scoped or too large for passes.
    pub fn is_in_order(&self) -> bool {
        self.row.ordered.as_ref().is_some_and(|(_, needs)| needs.is_never())
    }

    /// The reason why the text did not become passes, if it was too large for them.
    pub fn too_large(&self) -> Option<&'a LowerError> {
        self.row.too_large.as_deref()
    }

    /// The evaluation that judges frames too short for the passes; `None` if the filter was modified: then the passes
    /// judge them.
    pub fn ordered(&self) -> Option<Ordered<'a>> {
        let (oracle, needs) = self.row.ordered.as_ref()?;
        Some(match oracle {
            Oracle::Condition(condition) => Ordered { predicate: Err(condition), needs },
            Oracle::Predicate(predicate) => Ordered { predicate: Ok(predicate), needs },
        })
    }

    /// Its passes.
    pub fn passes(&self) -> impl Iterator<Item = PassView<'a>> + use<'a> {
        let (id, state, rows, link) = (self.id, self.state, self.rows, self.link);
        self.row.passes.clone().filter_map(move |number| {
            let row = state.pass(PassId(number)).filter(|row| row.filter == Some(id))?;
            Some(PassView::new(PassId(number), row, state, rows, link))
        })
    }

    /// Number of frames that its passes accepted.
    pub fn accepted(&self) -> u64 {
        self.passes().map(|pass| pass.accepted()).sum()
    }
}
