//! Expressions by meaning, and fragments that follow their first.
//!
//! Every expression is read in the scoped reading; all share one memory of first fragments, so a later fragment has its
//! packet's ports. A fragment goes where its own verdict sends it and where its first one went. One that comes before
//! its first waits, bounded in number, bytes and time, and is judged when the first is there, as if it had come then.
//!
//! Cost: a walk of the headers and of the tree for each expression and frame; nothing collapses in this reading.

use super::{Rule, Rules};
use crate::commands::Failure;
use fyke_filter::{Fragments, Options, Predicate, Reading};
use fyke_flow::{Bounds, Clock, Counters, Fragment, FragmentTracker};
use fyke_frame::{Frame, LinkType, walk};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Takes a frame and the numbers of its rules.
pub type Give<'g> = &'g mut dyn FnMut(&Frame<'_>, &[u32]) -> Result<(), Failure>;

/// The expressions and what is known of fragments.
pub struct Scoped {
    texts: Vec<String>,
    snaplen: u32,
    links: BTreeMap<LinkType, Vec<Predicate>>,
    /// First fragments, for the expressions.
    known: Fragments,
    /// First fragments, for who follows them.
    tracker: FragmentTracker<Rules, Rules>,
    clock: Clock,
}

impl Scoped {
    /// Nothing is known; expressions are read when a link type is seen.
    pub fn new(rules: &[Rule], snaplen: u32, bounds: Bounds) -> Scoped {
        Scoped {
            texts: rules.iter().map(|rule| rule.expression.clone()).collect(),
            snaplen,
            links: BTreeMap::new(),
            known: Fragments::default(),
            tracker: FragmentTracker::new(bounds),
            clock: Clock::default(),
        }
    }

    /// The expressions for a link type.
    ///
    /// # Errors
    /// When one of them is wrong.
    pub fn filters_of(&mut self, link: LinkType) -> Result<&[Predicate], Failure> {
        Ok(match self.links.entry(link) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let (snaplen, reading) = (self.snaplen, Reading::Scoped);
                let options = Options { link, snaplen, reading, ..Options::default() };
                let read = |text: &String| {
                    fyke_filter::compile_with(text, &options, &self.known)
                        .map_err(|error| Failure::Usage(error.to_string()))
                };
                entry.insert(self.texts.iter().map(read).collect::<Result<_, _>>()?)
            }
        })
    }

    /// Judges a frame; `give` gets it now, later or, when nothing wants it, with no rules.
    pub fn frame(&mut self, frame: &Frame<'_>, give: Give<'_>) -> Result<(), Failure> {
        let now_ns = self.clock.advance(frame.timestamp_ns);
        // Later than the clock when time leaps; what is noted now lives from here.
        let arrival_ns = now_ns.max(frame.timestamp_ns);
        let mut given_up = Vec::new();
        self.tracker.expire(now_ns, |held| given_up.push(held));
        let own = self.judge(frame)?;
        match Fragment::of(&walk(frame)) {
            None => give(frame, &own)?,
            Some(fragment) if fragment.info.is_first() => {
                let woken = self.tracker.first(fragment.key, own.clone().into(), arrival_ns);
                give(frame, &own)?;
                for held in woken {
                    let timestamp_ns = frame.timestamp_ns;
                    let again = self.judge(&Frame { timestamp_ns, ..held.frame() })?;
                    give(&held.frame(), &either(&again, &own))?;
                }
            }
            Some(fragment) => {
                let note = Rules::from(own.as_slice());
                let dropped = |held| given_up.push(held);
                if let Some(first) =
                    self.tracker.follow(fragment.key, frame, note, arrival_ns, dropped)
                {
                    give(frame, &either(&own, &first))?;
                }
            }
        }
        given_up.iter().try_for_each(|held| give(&held.frame(), &held.note))
    }

    /// Ends the waiting of all that still wait: they go where their own verdict sends them.
    pub fn finish(&mut self, give: Give<'_>) -> Result<Counters, Failure> {
        let mut left = Vec::new();
        self.tracker.finish(|held| left.push(held));
        left.iter().try_for_each(|held| give(&held.frame(), &held.note))?;
        Ok(self.tracker.counters())
    }

    fn judge(&mut self, frame: &Frame<'_>) -> Result<Vec<u32>, Failure> {
        let filters = self.filters_of(frame.link)?;
        let numbered = (0u32..).zip(filters);
        Ok(numbered.filter(|(_, filter)| filter.accepts(frame)).map(|(rule, _)| rule).collect())
    }
}

/// Rules of either list, ascending.
fn either(one: &[u32], other: &[u32]) -> Vec<u32> {
    let mut both = [one, other].concat();
    both.sort_unstable();
    both.dedup();
    both
}
