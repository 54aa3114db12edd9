//! Filters one after the other before one lower space, which rejects what any of them rejects, and counts for each.
//!
//! ```text
//! frame ─▶ texts that accept: (a) and (b), for every a and b ──▶ user space, which evaluates a, then b
//!             └ none ─▶ texts that count, in their order: (a) for every a ──▶ accepted by a, rejected by the next
//!                          └ none ──▶ rejected by the first filter
//! ```
//!
//! A chain of three counts `(a) and (b)` before `(a)`; a filter without a text accepts every frame. Of several texts of
//! a filter, a frame counts for the first, as in user space. So nothing is stored for a frame that passes, and all
//! counts are exact.
//!
//! | edit of | before it takes effect | afterwards |
//! |---|---|---|
//! | the last filter | the new conjunctions pass | the old ones do not |
//! | another filter | what the first filter accepts passes; nothing is counted below | the conjunctions decide again |
//!
//! The first filter alone decides while the space cannot count, there are more than [`MOST_TEXTS`] conjunctions or
//! [`LATER`] counters, or the texts are long ([`Chain::reason`]). A counter belongs to the texts that it was given for
//! until another needs it; its count is kept then. Cost: O(conjunctions) for an edit.

use crate::superset::{AND, FIRST_ROW, LATER, Listing, Superset};
use crate::union::{Member, Union};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most conjunctions of a chain.
const MOST_TEXTS: usize = 64;
/// Most bytes of all conjunctions; longer texts are brought into the space by a thread.
const MOST_BYTES: usize = 3 << 10;

/// Reads the counters of the space.
type Read = dyn Fn() -> [u64; LATER] + Send + Sync;

/// A chain of filters; clones are the same chain.
#[derive(Clone)]
pub struct Chain(Arc<Shared>);

struct Shared {
    member: Member,
    lower: Arc<dyn Superset>,
    read: Box<Read>,
    state: Mutex<State>,
}

/// Numbers of the texts that a conjunction consists of, one of each filter from the first on; 0 for a filter without a
/// text.
type Key = Vec<u64>;

/// Texts with their keys.
type Keyed = Vec<(Key, String)>;

#[derive(Debug, Default)]
struct State {
    filters: Vec<Filter>,
    /// The texts in the space that accept, with their numbers there.
    placed: BTreeMap<Key, u64>,
    last: u64,
    accounts: Vec<Account>,
    /// The texts that count, while the conjunctions decide.
    counting: Option<Vec<Key>>,
    /// Reason why the first filter alone decides.
    why: Option<String>,
    /// The same, until the owner of the chain ends it.
    apart: Option<String>,
}

#[derive(Debug, Default)]
struct Filter {
    texts: Listing,
    /// True once it has handed over its texts.
    begun: bool,
    /// True from the first half of an edit to the second.
    is_edited: bool,
}

/// Frames that the texts of a key accepted and the next filter rejected.
#[derive(Debug)]
struct Account {
    key: Key,
    /// The counter, and its value when the account got it.
    slot: Option<(usize, u64)>,
    /// Frames counted before the counter was given away.
    before: u64,
}

impl Account {
    fn count(&self, later: &[u64; LATER]) -> u64 {
        self.before + self.slot.map_or(0, |(slot, base)| later[slot].saturating_sub(base))
    }
}

/// Frames that the space rejected for later filters of a chain, for each filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChainCounts(pub Vec<FilterRejects>);

/// The part of a filter in the frames that the space rejected for later filters of its chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterRejects {
    /// Frames that the filters before it accepted.
    pub arrived: u64,
    /// Those of them that it accepted.
    pub passed: u64,
    /// Those of them that its texts accepted, by their numbers, also for texts that have been removed.
    pub texts: BTreeMap<u64, u64>,
}

impl ChainCounts {
    /// Frames that the first filter accepted.
    pub fn total(&self) -> u64 {
        self.0.first().map_or(0, |first| first.passed)
    }
}

impl Chain {
    /// Makes a chain of some filters, two or more, as a member of the union before `lower`. Each filter gets its
    /// [link](Self::link) as its lower space. `read` returns the counters of the space
    /// ([`Superset::count_later`]).
    pub fn new(
        union: &Union,
        lower: Arc<dyn Superset>,
        filters: usize,
        read: impl Fn() -> [u64; LATER] + Send + Sync + 'static,
    ) -> Chain {
        let filters = (0..filters).map(|_| Filter::default()).collect();
        let state = Mutex::new(State { filters, ..State::default() });
        let member = union.of_filters(false, false);
        Chain(Arc::new(Shared { member, lower, read: Box::new(read), state }))
    }

    /// The lower space of a filter of the chain, from 0.
    pub fn link(&self, filter: usize) -> ChainLink {
        ChainLink { chain: self.clone(), filter }
    }

    /// Reason why the first filter alone decides in the space; `None` if all of them do.
    pub fn reason(&self) -> Option<String> {
        let state = self.0.lock();
        state.apart.clone().or_else(|| state.why.clone())
    }

    /// Lets the first filter alone decide from now on, for this reason; `None` lets all of them decide again.
    pub fn stand_apart(&self, why: Option<&str>) {
        let state = &mut *self.0.lock();
        state.apart = why.map(str::to_owned);
        self.0.settle(state);
    }

    /// Ends the chain: what only its filters need passes no longer, and its counters are free. To be called after
    /// [`stand_apart`](Self::stand_apart), and when no frame is under evaluation that met its texts.
    pub fn leave(&self) {
        let state = &mut *self.0.lock();
        let later = (self.0.read)();
        for account in &mut state.accounts {
            account.before = account.count(&later);
            account.slot = None;
        }
        self.0.member.leave();
    }

    /// The counts, from the counters of the space at one moment.
    pub fn counts(&self, later: &[u64; LATER]) -> ChainCounts {
        let state = self.0.lock();
        let mut all = vec![FilterRejects::default(); state.filters.len()];
        for account in &state.accounts {
            let (depth, count) = (account.key.len(), account.count(later));
            for (at, one) in all.iter_mut().enumerate() {
                one.arrived += if at <= depth { count } else { 0 };
                let Some(&text) = account.key.get(at) else { continue };
                one.passed += count;
                if text > 0 {
                    *one.texts.entry(text).or_default() += count;
                }
            }
        }
        ChainCounts(all)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves texts too many, which let more frames pass.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the texts decide that the filters have now.
    fn settle(&self, state: &mut State) {
        match state.conjunctions() {
            Ok((accepting, counting)) => {
                self.widen(state, &accepting);
                match self.count(state, counting) {
                    Ok(()) => {
                        state.why = None;
                        self.narrow(state, &accepting);
                    }
                    Err(why) => self.first_alone(state, why),
                }
            }
            Err(why) => self.first_alone(state, why),
        }
    }

    fn first_alone(&self, state: &mut State, why: String) {
        let first = state.product(1);
        self.widen(state, &first);
        self.count_none(state);
        self.narrow(state, &first);
        state.why = Some(why);
    }

    fn widen(&self, state: &mut State, wanted: &[(Key, String)]) {
        if accepts_all(wanted) {
            return self.member.widen(&[], true);
        }
        let mut added = Vec::new();
        for (key, text) in wanted {
            if !state.placed.contains_key(key) {
                state.last += 1;
                state.placed.insert(key.clone(), state.last);
                added.push((state.last, text.as_str()));
            }
        }
        self.member.widen(&added, false);
    }

    fn narrow(&self, state: &mut State, wanted: &[(Key, String)]) {
        let wanted: BTreeSet<&Key> = match accepts_all(wanted) {
            true => BTreeSet::new(),
            false => wanted.iter().map(|(key, _)| key).collect(),
        };
        let mut removed = Vec::new();
        state.placed.retain(|key, number| {
            let stays = wanted.contains(key);
            removed.extend((!stays).then_some(*number));
            stays
        });
        // The member knows all texts already.
        self.member.narrow(&Listing::new, &removed);
    }

    /// Counts with these texts, and gives each a counter.
    fn count(&self, state: &mut State, texts: Keyed) -> Result<(), String> {
        let keys: Vec<Key> = texts.iter().map(|(key, _)| key.clone()).collect();
        if state.counting.as_ref() == Some(&keys) {
            return Ok(());
        }
        let later = (self.read)();
        let with_slots =
            texts.into_iter().map(|(key, text)| (text, state.slot(key, &keys, &later)));
        let with_slots: Vec<_> = with_slots.collect();
        let counted = self.lower.count_later(&with_slots);
        state.counting = counted.is_ok().then_some(keys);
        counted
    }

    fn count_none(&self, state: &mut State) {
        if state.counting.take().is_some() {
            // Removing is not refused.
            let _removed = self.lower.count_later(&[]);
        }
    }
}

/// True if one of the texts accepts every frame.
fn accepts_all(texts: &[(Key, String)]) -> bool {
    texts.iter().any(|(_, text)| text.is_empty())
}

impl State {
    /// The conjunctions of the first filters, in the order of their texts.
    fn product(&self, depth: usize) -> Keyed {
        let mut all = vec![(Key::new(), String::new())];
        for filter in &self.filters[..depth] {
            let texts = filter.alternatives();
            let each = |(key, before): &(Key, String)| {
                let (key, before) = (key.clone(), before.clone());
                texts.clone().into_iter().map(move |(id, text)| {
                    let mut key = key.clone();
                    key.push(id);
                    (key, joined(&before, &text))
                })
            };
            all = all.iter().flat_map(each).collect();
        }
        all
    }

    /// The texts that accept, and those that count; or the reason why the first filter alone decides.
    fn conjunctions(&self) -> Result<(Keyed, Keyed), String> {
        if let Some(why) = &self.apart {
            return Err(why.clone());
        }
        let has_row = |filter: &Filter| filter.texts.range(FIRST_ROW..).next().is_some();
        if self.filters.iter().any(has_row) {
            return Err("a tracker edits one of them".to_owned());
        }
        let (last, before) = self.filters.split_last().ok_or("there is no filter")?;
        if !last.begun || before.iter().any(|filter| !filter.begun || filter.is_edited) {
            return Err("it is taking over the filters".to_owned());
        }
        let sizes = |filters: &[Filter]| -> usize {
            filters.iter().fold(1, |all, filter| all.saturating_mul(filter.texts.len().max(1)))
        };
        let counters: usize = (1..self.filters.len()).map(|depth| sizes(&before[..depth])).sum();
        if counters > LATER {
            return Err(format!("{counters} counters for them, the limit is {LATER}"));
        }
        let count = sizes(&self.filters);
        if count > MOST_TEXTS {
            return Err(format!("{count} conjunctions of their texts, the limit is {MOST_TEXTS}"));
        }
        let accepting = self.product(self.filters.len());
        let bytes: usize = accepting.iter().map(|(_, text)| text.len()).sum();
        if bytes > MOST_BYTES {
            return Err(format!("{bytes} bytes of conjunctions, the limit is {MOST_BYTES}"));
        }
        let counting = (1..self.filters.len()).rev().flat_map(|depth| self.product(depth));
        Ok((accepting, counting.collect()))
    }

    /// The counter of a key; one that is unused, or no longer used by a key of `keys`.
    fn slot(&mut self, key: Key, keys: &[Key], later: &[u64; LATER]) -> usize {
        let known = self.accounts.iter().position(|account| account.key == key);
        if let Some((slot, _)) = known.and_then(|at| self.accounts[at].slot) {
            return slot;
        }
        let taken: BTreeSet<usize> =
            self.accounts.iter().filter_map(|account| Some(account.slot?.0)).collect();
        let free = (0..LATER).find(|slot| !taken.contains(slot)).unwrap_or_else(|| {
            let mut unused = self.accounts.iter_mut().filter(|one| !keys.contains(&one.key));
            let oldest = unused.find(|one| one.slot.is_some());
            oldest.map_or(0, |one| {
                one.before = one.count(later);
                one.slot.take().map_or(0, |(slot, _)| slot)
            })
        });
        let slot = Some((free, later[free]));
        match known {
            Some(at) => self.accounts[at].slot = slot,
            None => self.accounts.push(Account { key, slot, before: 0 }),
        }
        free
    }
}

impl Filter {
    /// Its texts; without one, a text that accepts every frame.
    fn alternatives(&self) -> Vec<(u64, Arc<str>)> {
        match self.accepts_all() {
            true => vec![(0, "".into())],
            false => self.texts.iter().map(|(&id, text)| (id, Arc::clone(text))).collect(),
        }
    }

    /// True without a text; rows of trackers are none.
    fn accepts_all(&self) -> bool {
        self.texts.range(..FIRST_ROW).next().is_none()
    }
}

/// The text that holds if both do.
fn joined(before: &str, text: &str) -> String {
    match (before.is_empty(), text.trim().is_empty()) {
        (_, true) => before.to_owned(),
        (true, false) => text.to_owned(),
        (false, false) => format!("{before}{AND}{text}"),
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("state", &*self.0.lock()).finish_non_exhaustive()
    }
}

/// The lower space of a filter of a chain.
#[derive(Debug, Clone)]
pub struct ChainLink {
    chain: Chain,
    filter: usize,
}

impl Superset for ChainLink {
    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        let shared = &*self.chain.0;
        let state = &mut *shared.lock();
        let is_last = self.filter + 1 == state.filters.len();
        let filter = &mut state.filters[self.filter];
        let was_unfiltered = filter.accepts_all();
        filter.texts.extend(added.iter().map(|&(id, text)| (id, text.into())));
        filter.is_edited = true;
        let has_room = |state: &State| state.conjunctions().is_ok();
        if is_last && !unfiltered && state.counting.is_some() && has_room(state) {
            let all = state.product(state.filters.len());
            return shared.widen(state, &all);
        }
        let first = state.product(1);
        match self.filter == 0 && (unfiltered || was_unfiltered) {
            true => shared.member.widen(&[], true),
            false => shared.widen(state, &first),
        }
        shared.count_none(state);
    }

    fn refusal(&self) -> Option<String> {
        self.chain.0.lower.refusal()
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        let shared = &*self.chain.0;
        let state = &mut *shared.lock();
        let filter = &mut state.filters[self.filter];
        filter.is_edited = false;
        if !std::mem::replace(&mut filter.begun, true) {
            filter.texts = texts();
        }
        removed.iter().for_each(|id| drop(filter.texts.remove(id)));
        shared.settle(state);
    }

    fn open_for_good(&self, reason: &'static str) {
        self.chain.stand_apart(Some(reason));
        self.chain.0.member.open_for_good(reason);
    }
}
