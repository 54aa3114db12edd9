//! Filters in the scoped reading, and fragments that follow their first.
//!
//! All filters share one memory of first fragments, so a later fragment has its packet's ports. The class values of a
//! fragment are those of its own evaluation and those of its first fragment. A fragment that arrives before its first
//! waits, with bounds on number, bytes and time, and is evaluated when the first arrives, as if it had arrived then.
//!
//! Cost: a walk of the headers and of the tree for each filter and frame; shapes do not collapse in this reading.

use super::Rules;
use fyke_filter::{Fragments, Options, Predicate};
use fyke_flow::{Bounds, Clock, Counters, Fragment, FragmentTracker, Held};
use fyke_frame::{Frame, LinkType, walk};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Data kept with a waiting frame: its source and its own verdict.
type Note = (u32, Rules);

/// A frame that has waited, and the filters that accept it.
pub struct Late {
    pub held: Held<Note>,
    pub rules: Rules,
}

/// The filters and the known fragments.
pub struct Scoped {
    texts: Vec<Arc<str>>,
    options: Options,
    /// Filters by link type; `None` for a filter that does not fit it.
    links: BTreeMap<LinkType, Vec<Option<Predicate>>>,
    /// Rejected frames by link type, for link types that no filter fits.
    unfit: BTreeMap<LinkType, u64>,
    /// First fragments, used by the filters.
    known: Fragments,
    /// First fragments, used to let later fragments follow them.
    tracker: FragmentTracker<Rules, Note>,
    clock: Clock,
}

impl Scoped {
    /// Creates a state without link types; filters are compiled when a link type is seen.
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

    /// Evaluates a frame; `None` if it has to wait. Frames whose wait has ended are added to `late`.
    pub fn frame(&mut self, source: u32, frame: &Frame<'_>, late: &mut Vec<Late>) -> Option<Rules> {
        let now_ns = self.clock.advance(frame.timestamp_ns);
        // Later than the clock if time leaps; new records are valid from this time.
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

    /// Ends the wait of all waiting frames: they get the class values of their own verdict.
    pub fn finish(&mut self) -> Vec<Late> {
        let mut left = Vec::new();
        self.tracker.finish(|held| left.push(Late { rules: Arc::clone(&held.note.1), held }));
        left
    }

    /// Counters of fragments.
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
