//! Filters by meaning, and fragments that follow their first.
//!
//! Every filter is read in the scoped reading; all share one memory of first fragments, so a later fragment has its
//! packet's ports. A fragment goes where its own verdict sends it and where its first one went. One that comes before
//! its first waits, bounded in number, bytes and time, and is judged when the first is there, as if it had come then.
//!
//! Cost: a walk of the headers and of the tree for each filter and frame; nothing collapses in this reading.

use super::Rules;
use fyke_filter::{Fragments, Options, Predicate};
use fyke_flow::{Bounds, Clock, Counters, Fragment, FragmentTracker, Held};
use fyke_frame::{Frame, LinkType, walk};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// What is kept with a frame that waits: the source it came from, and its own verdict.
type Note = (u32, Rules);

/// A frame that has waited, and where it goes.
pub struct Late {
    pub held: Held<Note>,
    pub rules: Rules,
}

/// The filters and what is known of fragments.
pub struct Scoped {
    texts: Vec<Arc<str>>,
    options: Options,
    /// Nothing for a filter that does not fit the link type.
    links: BTreeMap<LinkType, Vec<Option<Predicate>>>,
    /// Frames of link types that no filter fits.
    unfit: BTreeMap<LinkType, u64>,
    /// First fragments, for the filters.
    known: Fragments,
    /// First fragments, for who follows them.
    tracker: FragmentTracker<Rules, Note>,
    clock: Clock,
}

impl Scoped {
    /// Nothing is known; filters are read when a link type is seen.
    pub fn new(texts: Vec<Arc<str>>, options: Options, bounds: Bounds) -> Scoped {
        Scoped {
            texts,
            options,
            links: BTreeMap::new(),
            unfit: BTreeMap::new(),
            known: Fragments::default(),
            tracker: FragmentTracker::new(bounds),
            clock: Clock::default(),
        }
    }

    /// The filters for a link type.
    fn filters_of(&mut self, link: LinkType) -> &[Option<Predicate>] {
        match self.links.entry(link) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let options = Options { link, ..self.options };
                let read =
                    |text: &Arc<str>| fyke_filter::compile_with(text, &options, &self.known).ok();
                entry.insert(self.texts.iter().map(read).collect())
            }
        }
    }

    /// Frames that were rejected because no filter fits their link type.
    pub fn unfit(&self) -> &BTreeMap<LinkType, u64> {
        &self.unfit
    }

    /// Judges a frame; nothing when it has to wait. Frames that wait no more are added to `late`.
    pub fn frame(&mut self, source: u32, frame: &Frame<'_>, late: &mut Vec<Late>) -> Option<Rules> {
        let now_ns = self.clock.advance(frame.timestamp_ns);
        // Later than the clock when time leaps; what is noted now lives from here.
        let arrival_ns = now_ns.max(frame.timestamp_ns);
        let own = self.judge(frame);
        let given_up = |held: Held<Note>| Late { rules: Arc::clone(&held.note.1), held };
        self.tracker.expire(now_ns, |held| late.push(given_up(held)));
        let Some(fragment) = Fragment::of(&walk(frame)) else { return Some(own) };
        if fragment.info.is_first() {
            for held in self.tracker.first(fragment.key, Arc::clone(&own), arrival_ns) {
                let timestamp_ns = frame.timestamp_ns;
                let again = self.judge(&Frame { timestamp_ns, ..held.frame() });
                late.push(Late { rules: either(&again, &own), held });
            }
            return Some(own);
        }
        let note = (source, Arc::clone(&own));
        let dropped = |held| late.push(given_up(held));
        let first = self.tracker.follow(fragment.key, frame, note, arrival_ns, dropped);
        first.map(|first| either(&own, &first))
    }

    /// Ends the waiting of all that still wait: they go where their own verdict sends them.
    pub fn finish(&mut self) -> Vec<Late> {
        let mut left = Vec::new();
        self.tracker.finish(|held| left.push(Late { rules: Arc::clone(&held.note.1), held }));
        left
    }

    /// What became of fragments.
    pub fn counters(&self) -> Counters {
        self.tracker.counters()
    }

    fn judge(&mut self, frame: &Frame<'_>) -> Rules {
        let filters = self.filters_of(frame.link);
        let unfit = filters.iter().all(Option::is_none);
        let accepts = |filter: &Option<Predicate>| {
            filter.as_ref().is_some_and(|filter| filter.accepts(frame))
        };
        let numbered = (0u32..).zip(filters);
        let rules = numbered.filter(|(_, filter)| accepts(filter)).map(|(rule, _)| rule).collect();
        if unfit {
            *self.unfit.entry(frame.link).or_default() += 1;
        }
        rules
    }
}

/// Numbers of either list, ascending.
fn either(one: &[u32], other: &[u32]) -> Rules {
    let mut both = [one, other].concat();
    both.sort_unstable();
    both.dedup();
    both.into()
}
