//! Several consumers of the frames of one source before one lower space, which passes what any of them needs.
//!
//! | member | passes | changes |
//! |---|---|---|
//! | [`Member::of_filters`] | what a [`FilterSet`](crate::FilterSet) accepts | with each edit of the set |
//! | [`Member::of_texts`] | what one of some texts accepts | by [`Member::widen_to`], then [`Member::narrow_to`] |
//!
//! The lower space passes everything while a set accepts every frame, and while the union is [open](Union::set_open).
//! Edits of different members may run at the same time: a text that one of them adds stays in the lower space until
//! that member removes it. Cost: O(change) for an edit; O(texts) after the lower space was open.

use crate::superset::{FIRST_ROW, Listing, Superset};
use fyke_filter::needs_netmask;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The members before a lower space; clones share them.
#[derive(Debug, Clone)]
pub struct Union(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lower: Arc<dyn Superset>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Last number given to a text of the lower space.
    last_text: u64,
    last_member: u64,
    members: BTreeMap<u64, Needed>,
    /// Reason why every frame passes, whatever the members need.
    open: Option<String>,
}

/// The frames that a member needs.
#[derive(Debug, Default)]
struct Needed {
    /// For each text of the member its number in the lower space.
    texts: BTreeMap<u64, (u64, Arc<str>)>,
    /// True if it needs every frame, or will after an edit that is being applied.
    unfiltered: bool,
    /// True for a set of filters, which accepts every frame while it has none.
    is_set: bool,
    /// True once a set has handed over its texts.
    begun: bool,
    /// True from the first half of an edit, if the lower space got it, to the second.
    widened: bool,
    /// True if texts of other members cover the rows of trackers.
    rows_covered: bool,
    /// True for a set that reads its texts with another netmask than the lower space.
    has_other_netmask: bool,
    /// Texts of such a set that need the netmask, so that the lower space cannot have them.
    apart: BTreeSet<u64>,
}

/// Reason why every frame passes for a text that the lower space would read differently.
const OTHER_NETMASK: &str =
    "a filter with `ip broadcast` is read with another netmask than the filters beside it";

/// A consumer of the frames; clones are the same member.
#[derive(Debug, Clone)]
pub struct Member {
    shared: Arc<Shared>,
    number: u64,
}

impl Union {
    /// Makes a union without members; the lower space is not told anything yet.
    pub fn new(lower: Arc<dyn Superset>) -> Union {
        Union(Arc::new(Shared { lower, state: Mutex::default() }))
    }

    /// Adds a set of filters, which gets the member as its lower space
    /// ([`FilterSet::add_superset`](crate::FilterSet::add_superset)). `rows_covered` is true if texts of other members
    /// accept every frame that a tracker's rows accept, so that rows need not reach the lower space.
    /// `has_other_netmask` is true if the set reads its texts with another netmask than the lower space: it needs every
    /// frame while it has a text that depends on the netmask.
    pub fn of_filters(&self, rows_covered: bool, has_other_netmask: bool) -> Member {
        self.add(Needed { is_set: true, rows_covered, has_other_netmask, ..Needed::default() })
    }

    /// Adds a consumer of the frames that one of some texts accepts; at first it has none.
    pub fn of_texts(&self) -> Member {
        self.add(Needed::default())
    }

    fn add(&self, needed: Needed) -> Member {
        let state = &mut *self.0.lock();
        state.last_member += 1;
        state.members.insert(state.last_member, needed);
        Member { shared: Arc::clone(&self.0), number: state.last_member }
    }

    /// Passes every frame from now on, for the given reason; `None` lets the members decide again.
    pub fn set_open(&self, reason: Option<String>) {
        let state = &mut *self.0.lock();
        let (was, is) = (state.open.is_some(), reason.is_some());
        state.open = reason;
        match (was, is) {
            (false, true) => self.0.lower.widen(&[], true),
            (true, false) => self.0.lower.narrow(&|| state.listing(), &[]),
            _ => {}
        }
    }

    /// Reason why every frame passes, whatever the members need.
    pub fn reason(&self) -> Option<String> {
        self.0.lock().open.clone()
    }

    /// The same, or the reason why a member needs every frame, if the lower space does not know it.
    pub fn passes_all(&self) -> Option<String> {
        let state = self.0.lock();
        let has_some_apart = state.members.values().any(|member| !member.apart.is_empty());
        state.open.clone().or_else(|| has_some_apart.then(|| OTHER_NETMASK.to_owned()))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves texts too many, which let more frames pass.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn passes_all(&self) -> bool {
        self.open.is_some() || self.members.values().any(|member| member.unfiltered)
    }

    /// The texts of all members; none if every frame passes.
    fn listing(&self) -> Listing {
        if self.passes_all() {
            return Listing::new();
        }
        let all = self.members.values().flat_map(|member| member.texts.values());
        all.map(|(number, text)| (*number, Arc::clone(text))).collect()
    }

    /// Adds texts of a member and lets their frames pass.
    fn widen<'t>(
        &mut self,
        number: u64,
        texts: impl Iterator<Item = (u64, &'t str)>,
        unfiltered: bool,
        lower: &dyn Superset,
    ) {
        let Some(member) = self.members.get_mut(&number) else { return };
        let mut added = Vec::new();
        for (id, text) in texts {
            if id >= FIRST_ROW && member.rows_covered {
                continue;
            }
            if member.has_other_netmask && needs_netmask(text) {
                member.apart.insert(id);
                continue;
            }
            self.last_text += 1;
            member.texts.insert(id, (self.last_text, text.into()));
            added.push((self.last_text, text));
        }
        let unfiltered = unfiltered || !member.apart.is_empty();
        member.unfiltered |= unfiltered;
        if !added.is_empty() || unfiltered {
            member.widened = true;
            lower.widen(&added, self.passes_all());
        }
    }

    /// Removes texts of a member, and rejects what only these accepted.
    fn narrow(&mut self, number: u64, removed: &[u64], lower: &dyn Superset) {
        let Some(member) = self.members.get_mut(&number) else { return };
        let gone: Vec<_> = removed.iter().filter_map(|id| member.texts.remove(id)).collect();
        let has_fewer_apart = removed.iter().filter(|id| member.apart.remove(id)).count() > 0;
        member.unfiltered = member.is_set && (member.has_no_text() || !member.apart.is_empty());
        let gone: Vec<_> = gone.into_iter().map(|(number, _)| number).collect();
        if std::mem::take(&mut member.widened) || !gone.is_empty() || has_fewer_apart {
            lower.narrow(&|| self.listing(), &gone);
        }
    }
}

impl Needed {
    /// True if no filter is left, so that a set accepts every frame; rows of trackers are no filters.
    fn has_no_text(&self) -> bool {
        self.texts.range(..FIRST_ROW).next().is_none() && self.apart.is_empty()
    }
}

impl Member {
    /// Lets through what the given texts accept, before the consumer needs it. Only for a member of texts.
    pub fn widen_to(&self, texts: &BTreeSet<String>) {
        let state = &mut *self.shared.lock();
        let Some(member) = state.members.get(&self.number) else { return };
        let known: BTreeSet<&str> = member.texts.values().map(|(_, text)| &**text).collect();
        let missing = texts.iter().map(String::as_str).filter(|text| !known.contains(text));
        let first = member.texts.last_key_value().map_or(1, |(id, _)| id + 1);
        let added: Vec<_> = (first..).zip(missing).collect();
        state.widen(self.number, added.into_iter(), false, &*self.shared.lower);
    }

    /// Rejects what none of the given texts accepts, after the consumer needs it no longer.
    pub fn narrow_to(&self, texts: &BTreeSet<String>) {
        let state = &mut *self.shared.lock();
        let Some(member) = state.members.get(&self.number) else { return };
        let gone = member.texts.iter().filter(|(_, (_, text))| !texts.contains(&**text));
        let gone: Vec<_> = gone.map(|(id, _)| *id).collect();
        state.narrow(self.number, &gone, &*self.shared.lower);
    }

    /// Ends the membership: what only this member needs passes no longer.
    pub fn leave(&self) {
        let state = &mut *self.shared.lock();
        let Some(gone) = state.members.remove(&self.number) else { return };
        let gone: Vec<_> = gone.texts.into_values().map(|(number, _)| number).collect();
        self.shared.lower.narrow(&|| state.listing(), &gone);
    }
}

/// Edits of a set of filters.
impl Superset for Member {
    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        let state = &mut *self.shared.lock();
        state.widen(self.number, added.iter().copied(), unfiltered, &*self.shared.lower);
    }

    fn refusal(&self) -> Option<String> {
        self.shared.lower.refusal()
    }

    fn remark(&self) -> Option<String> {
        self.shared.lower.remark()
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        let state = &mut *self.shared.lock();
        let Some(member) = state.members.get_mut(&self.number) else { return };
        if !std::mem::replace(&mut member.begun, true) {
            let texts = texts();
            let borrowed = texts.iter().map(|(&id, text)| (id, &**text));
            state.widen(self.number, borrowed, texts.is_empty(), &*self.shared.lower);
        }
        state.narrow(self.number, removed, &*self.shared.lower);
    }

    fn open_for_good(&self, reason: &'static str) {
        let _state = self.shared.lock();
        self.shared.lower.open_for_good(reason);
    }
}
