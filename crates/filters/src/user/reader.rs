//! A worker's reader of the filters: evaluates batches, and adopts edits between two batches.
//!
//! A reader waits at most for the exchange of a few references, even while texts are parsed, lowered, applied or
//! formatted. Only the first frame of a new link type waits for an edit that is being applied.

use super::cuts::Cuts;
use super::{Listed, Shared, lock};
use crate::error::FilterError;
use crate::received;
use fyke_filter::scoped::Part;
use fyke_frame::{Batch, LinkType, Mask};
use fyke_pass::{FilterId, MatchMode, Matches, Reader};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The passes of one link type, as the reader last adopted them.
#[derive(Debug)]
struct LinkReader {
    link: LinkType,
    passes: Reader,
    /// True if there are filters and none of them fits the link type.
    unfit: bool,
    /// Numbers of the filters in the order of their ids, if all that accept a frame are reported.
    numbers: Vec<(FilterId, u64)>,
    /// Snap lengths, while a filter has one.
    cuts: Option<Cuts>,
}

/// A worker's reader: evaluates batches under the filters of the last refresh.
#[derive(Debug)]
pub struct FilterReader {
    shared: Arc<Shared>,
    epoch: u64,
    links: Vec<LinkReader>,
    current: usize,
    /// Frames of link types that no filter fits.
    unfit: BTreeMap<LinkType, u64>,
    /// Frames of the last evaluated batch that are fragments without their first fragment.
    orphans: Mask,
    /// Buffer for frames as the device delivered them.
    received: Vec<u8>,
    /// The passes that accepted the frames of the last evaluated batch; `None` unless they are reported.
    matches: Option<Matches>,
    /// Frames of the last evaluated batch that are to be cut, and their lengths.
    lengths: Vec<(usize, u32)>,
}

impl FilterReader {
    pub(super) fn new(shared: Arc<Shared>) -> FilterReader {
        FilterReader {
            shared,
            epoch: 0,
            links: Vec::new(),
            current: 0,
            unfit: BTreeMap::new(),
            orphans: Mask::EMPTY,
            received: Vec::new(),
            matches: None,
            lengths: Vec::new(),
        }
    }

    /// Reports from now on which pass accepts a frame: [`FilterReader::credit`].
    pub fn report(&mut self) {
        self.matches = Some(Matches::new(MatchMode::First));
    }

    /// True if it reports the passes that accept frames.
    pub fn reports(&self) -> bool {
        self.matches.is_some()
    }

    /// Reports from now on all filters that accept a frame: [`FilterReader::accepting`]. To be called before the first
    /// evaluation. An edit then costs a reader O(filters).
    pub fn report_all(&mut self) {
        self.matches = Some(Matches::new(MatchMode::All));
    }

    /// Adds the numbers of the filters that accepted frame `index` of the last evaluated batch, if they are
    /// [reported](Self::report_all). A number may be added several times.
    pub fn accepting(&self, index: usize, into: &mut Vec<u64>) {
        let Some((matches, one)) = self.matches.as_ref().zip(self.links.get(self.current)) else {
            return;
        };
        let number = |filter: FilterId| {
            let found = one.numbers.binary_search_by_key(&filter, |(filter, _)| *filter).ok()?;
            Some(one.numbers[found].1)
        };
        for number in matches.of(index).filter_map(|found| number(found.filter?)) {
            if into.last() != Some(&number) {
                into.push(number);
            }
        }
    }

    /// Numbers of the filter and of the pass that accepted frame `index` of the last evaluated batch. `None` if there
    /// is no filter, or none is [reported](Self::report); no filter for a pass of a tracker, and for a filter that has
    /// been removed since the evaluation.
    pub fn credit(&self, index: usize) -> Option<(Option<u64>, u64)> {
        let found = self.matches.as_ref()?.of(index).next()?;
        let link = self.links.get(self.current)?.link;
        let listed = lock(&self.shared.listed);
        let filters = listed.links.iter().find(|one| one.link == link);
        let number = filters.and_then(|one| {
            let own = one.ids.iter().find(|(_, filter)| Some(**filter) == found.filter);
            own.map(|(number, _)| *number)
        });
        Some((number, found.pass.0))
    }

    /// Adopts the edits since the last call; returns true if there were any.
    pub fn refresh(&mut self) -> bool {
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        if epoch == self.epoch {
            return false;
        }
        // The list is locked before, as by an edit that is being revealed: then the numbers are those of the epoch.
        let listed = self.needs_list().then(|| lock(&self.shared.listed));
        // Makes an edit visible on all link types at once. Held for the exchange only.
        let _revealing = lock(&self.shared.revealing);
        self.epoch = self.shared.epoch.load(Ordering::Acquire);
        for one in &mut self.links {
            one.refresh(&self.shared, listed.as_deref());
        }
        true
    }

    /// The epoch under which frames are evaluated.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// True if a tracker adds rows to the filters: then [`ports_since`](Self::ports_since) may know their ports.
    pub fn is_tracked(&self) -> bool {
        self.shared.tracked.load(Ordering::Relaxed)
    }

    /// The ports of the rows that were added between an epoch and that of the reader, if nothing else was: then only
    /// frames with one of these ports can have become acceptable, and fragments and tunnels with ports elsewhere.
    pub fn ports_since(&self, epoch: u64) -> Option<Vec<u16>> {
        lock(&self.shared.listed).news.between(epoch, self.epoch)
    }

    /// Returns the frames of `within` that a filter accepts. The first frame of a link type that is new to all readers
    /// lowers all texts for it, about 3 µs per primitive. Fails if a text is too large for a new link type.
    pub fn evaluate(&mut self, batch: &Batch<'_>, within: Mask) -> Result<Mask, FilterError> {
        let Some(first) = batch.frames().first() else { return Ok(Mask::EMPTY) };
        if let Some(fragments) = &self.shared.fragments {
            // In capture order and for all filters, even if only some of them evaluate the frame.
            self.orphans = Mask::EMPTY;
            for index in within.iter() {
                if fragments.observe(&batch.frames()[index]) == Part::Orphan {
                    self.orphans.set(index);
                }
            }
        }
        if self.links.get(self.current).is_none_or(|one| one.link != first.link) {
            self.current = self.link(first.link)?;
        }
        let one = &mut self.links[self.current];
        self.lengths.clear();
        if one.unfit {
            return Ok(Mask::EMPTY);
        }
        let mut judge = |batch: &Batch<'_>| match &mut self.matches {
            Some(matches) => one.passes.evaluate_matches_uncounted(batch, within, matches),
            None => one.passes.evaluate_uncounted(batch, within),
        };
        let accepted = if self.shared.without_tags {
            received::without_tags(batch, &mut self.received, judge)
        } else if self.shared.as_received {
            received::as_received(batch, &mut self.received, judge)
        } else {
            judge(batch)
        };
        if let Some(cuts) = &mut one.cuts {
            let find = |batch: &Batch<'_>| cuts.evaluate(batch, accepted);
            if self.shared.without_tags {
                received::without_tags(batch, &mut self.received, find);
            } else if self.shared.as_received {
                received::as_received(batch, &mut self.received, find);
            } else {
                cuts.evaluate(batch, accepted);
            }
            let length = |index| Some((index, cuts.length(index)?));
            self.lengths.extend(accepted.iter().filter_map(length));
        }
        Ok(accepted)
    }

    /// True if there are no filters, so that every frame of the link type of the last evaluated batch is accepted, and
    /// counted for none.
    pub fn accepts_all(&self) -> bool {
        let one = self.links.get(self.current);
        self.matches.is_none() && one.is_some_and(|one| !one.unfit && one.passes.is_empty())
    }

    /// Frames of the last evaluated batch that outputs cut, and their lengths in bytes, by index: the longest of the
    /// filters that accept the frame. A filter without a length accepts the whole frame.
    pub fn snap_lengths(&self) -> &[(usize, u32)] {
        &self.lengths
    }

    /// Frames that were rejected because no filter fits their link type, by link type.
    pub fn unfit(&self) -> &BTreeMap<LinkType, u64> {
        &self.unfit
    }

    /// Counts the frames `settled` of the last evaluated batch, for the passes that accepted them. Must be called when
    /// the verdict of a frame is final, before the next evaluation.
    pub fn count(&mut self, settled: Mask) {
        let orphans = (settled & self.orphans).count() as u64;
        self.shared.orphans.fetch_add(orphans, Ordering::Relaxed);
        self.orphans = self.orphans.without(settled);
        match self.links.get_mut(self.current) {
            Some(one) if one.unfit => {
                *self.unfit.entry(one.link).or_default() += settled.count() as u64;
            }
            Some(one) => {
                let credited = one.passes.count(settled);
                self.shared.credited.fetch_add(credited, Ordering::Relaxed);
            }
            None => {}
        }
    }

    /// True if an edit may change what a reader takes from the list of filters.
    fn needs_list(&self) -> bool {
        self.reports_all() || self.shared.cuts.load(Ordering::Acquire)
    }

    fn reports_all(&self) -> bool {
        self.matches.as_ref().is_some_and(|matches| matches.mode() == MatchMode::All)
    }

    fn link(&mut self, link: LinkType) -> Result<usize, FilterError> {
        if let Some(index) = self.links.iter().position(|known| known.link == link) {
            return Ok(index);
        }
        let (passes, numbers) = (self.shared.reader(link)?, Vec::new());
        let mut one = LinkReader { link, passes, unfit: false, numbers, cuts: None };
        let listed = self.needs_list().then(|| lock(&self.shared.listed));
        let _revealing = lock(&self.shared.revealing);
        one.refresh(&self.shared, listed.as_deref());
        self.links.push(one);
        Ok(self.links.len() - 1)
    }
}

impl LinkReader {
    /// Adopts the newest edit; called while none is being revealed. With the list, the numbers of the filters, too.
    fn refresh(&mut self, shared: &Shared, listed: Option<&Listed>) {
        self.passes.refresh();
        let filters = listed.and_then(|all| all.links.iter().find(|one| one.link == self.link));
        if let Some(filters) = filters {
            self.cuts = listed.and_then(|all| Cuts::refresh(self.cuts.take(), self.link, all));
            let ids = filters.ids.iter();
            self.numbers = ids.map(|(&number, &filter)| (filter, number)).collect();
            self.numbers.sort_unstable();
        }
        self.unfit = self.passes.is_empty() && shared.filtered.load(Ordering::Relaxed);
    }
}
