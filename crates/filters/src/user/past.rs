//! Frames of the past under filters: under those in force, and under one that is not in force. Nothing is counted, and
//! the packet loop does not notice.

use super::{FilterReader, FilterSet, Tags, lock};
use crate::error::FilterError;
use crate::received;
use crate::texts::Change;
use fyke_filter::{Options, Predicate};
use fyke_frame::{Batch, LinkType};

impl FilterSet {
    /// A set without filters that reads its texts as this one does.
    pub fn alike(&self) -> FilterSet {
        let shared = &self.shared;
        let tags = if shared.without_tags { Tags::Skip } else { Tags::Read };
        FilterSet::over(shared.inputs.clone(), shared.options, tags)
    }

    /// A reader of the filters in force for frames of the past. In the scoped reading it has a fragment table of its
    /// own, and no passes of trackers.
    ///
    /// # Errors
    /// A text is too large; none that is in force.
    pub fn past_reader(&self) -> Result<FilterReader, FilterError> {
        if self.shared.fragments.is_none() {
            return Ok(self.reader());
        }
        let texts = lock(&self.shared.listed).texts.listed().clone();
        let changes: Vec<_> = texts.values().map(|text| Change::Add(text)).collect();
        let copy = self.alike();
        copy.edit(&changes).map_err(|refused| refused.error)?;
        Ok(copy.reader())
    }

    /// The filters in force, compiled for a link type, oldest first: at most `most` texts of at most `bytes` bytes
    /// together. A text that does not fit the link type is `None`. Returns the number of further filters, too.
    pub fn predicates(
        &self,
        link: LinkType,
        most: usize,
        bytes: usize,
    ) -> (Vec<(u64, Option<Predicate>)>, usize) {
        let texts = lock(&self.shared.listed).texts.listed().clone();
        let options = Options { link, ..self.shared.options };
        let mut left = bytes;
        let mut compiled = Vec::new();
        for (&id, text) in texts.iter().take(most) {
            let Some(rest) = left.checked_sub(text.len()) else { break };
            left = rest;
            let predicate = fyke_filter::compile_with(text, &options, &self.shared.known);
            compiled.push((id, predicate.ok()));
        }
        let more = texts.len() - compiled.len();
        (compiled, more)
    }

    /// Calls `judge` with the frames as this set evaluates them: as the device delivered them, without tags, or as they
    /// are.
    pub fn as_evaluated<T>(&self, batch: &Batch<'_>, judge: impl FnOnce(&Batch<'_>) -> T) -> T {
        let mut room = Vec::new();
        if self.shared.without_tags {
            received::without_tags(batch, &mut room, judge)
        } else if self.shared.as_received {
            received::as_received(batch, &mut room, judge)
        } else {
            judge(batch)
        }
    }
}
