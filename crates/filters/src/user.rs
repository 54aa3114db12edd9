//! The filter texts of a running fyke: one list, evaluated on every link type that occurs, editable from any thread.
//!
//! A text tests different bytes on different link types, so there is one pass set per link type, made when its first
//! frame arrives. A text that fits none of the link types in use is refused and changes nothing. A text that fits some
//! evaluates frames of these. Frames of a link type that no text fits are rejected and counted.
//!
//! No packet loop waits for an edit or a query. An edit has three steps:
//!
//! | step | lock | cost for 100,000 passes |
//! |---|---|---|
//! | parse and lower the text; at low priority if it is long | none | 560 ms |
//! | apply it to every pass set, invisible to readers | the writer's | 110 ms |
//! | reveal it: exchange one reference per link type, raise the epoch | the readers' | 1 µs |
//!
//! A thread at low priority, never a reader, frees the data that an edit replaced. Views and counts: `view.rs`.

mod by_hand;
mod counts;
mod cuts;
pub(crate) mod edits;
mod expiry;
mod news;
mod past;
mod priority;
mod reader;
mod view;

#[cfg(feature = "kernel")]
pub(crate) use by_hand::NAME as BY_HAND;
pub use by_hand::{CallsRefused, CarryOut, HandCalls, HandEdit, HandError};
pub use counts::FilterCounts;
pub use edits::{Edit, EditLog, EditRecord, Edited, RecordedChange};
pub use news::Row;
pub use reader::FilterReader;
#[cfg(feature = "kernel")]
pub(crate) use view::{IN_ORDER, in_words};

use crate::error::{FilterError, GroupError};
use crate::inputs::Inputs;
use crate::journal::{Applied, Entry, Journal};
use crate::lowered::{Fit, FittingTexts, LoweredTexts};
use crate::superset::{FIRST_ROW, Listing, Superset};
use crate::texts::{Change, Removed, Resolved, Texts};
use edits::Group;
use fyke_filter::{Fragments, Options, Reading};
use fyke_frame::LinkType;
use fyke_pass::{FilterId, LoweredFilter, PassId, PassSet, Reader, Staged, Viewer};
use news::News;
use priority::at_low_priority;
pub(crate) use priority::lower_own_priority;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Length of a text from which lowering takes more than about a millisecond.
const LONG_TEXT: usize = 8 << 10;
/// Most replaced passes that an edit frees itself.
const FREE_LIMIT: usize = 256;
/// Number and interval of the attempts to free a large state that readers may still hold.
const FREE_TRIES: usize = 100;
const FREE_PAUSE: Duration = Duration::from_millis(10);

/// Largest snap length of a filter, in bytes.
const MAX_SNAP_LENGTH: u32 = 262_144;
/// Refusal of a program without outputs that cut frames.
pub(crate) const NO_CUTS: &str =
    "a snap length for one filter is for `fyke dump` with one worker; omit it here";

/// The writer of the filters; clones share the filters.
#[derive(Debug, Clone)]
pub struct FilterSet {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Held while an edit is applied. A reader takes it only for a new link type.
    writer: Mutex<Writer>,
    /// Held while references are copied and while an edit is revealed.
    listed: Mutex<Listed>,
    /// Held while the pass sets of an edit are revealed, O(link types), and while a reader adopts the new state.
    revealing: Mutex<()>,
    epoch: AtomicU64,
    /// True once there has been a reader.
    read: AtomicBool,
    /// True if there are filters; changes while an edit is revealed.
    filtered: AtomicBool,
    /// True once a tracker edits rows.
    tracked: AtomicBool,
    options: Options,
    inputs: Inputs,
    /// Fragment table for compiling texts; used in the scoped reading.
    known: Fragments,
    /// Fragment table that readers update, shared by all filters; `None` in compat.
    fragments: Option<Fragments>,
    /// Frames are evaluated as the device delivered them, with the tag that it removed in the metadata.
    as_received: bool,
    /// Frames are evaluated without their VLAN tags and MPLS labels.
    without_tags: bool,
    orphans: AtomicU64,
    /// Frames that readers have counted for any pass.
    credited: AtomicU64,
    /// True if the outputs cut frames to the lengths of their filters.
    cuts_allowed: AtomicBool,
    /// True once a filter has had a snap length.
    cuts: AtomicBool,
    /// True while a thread removes filters at the end of their time.
    expires: AtomicBool,
    /// Entered by threads of this set before they take a lock.
    guard: OnceLock<Guard>,
}

/// A function; a thread keeps its result while it has locks ([`FilterSet::guard_threads`]).
type Guard = fn() -> Box<dyn Any>;

/// State that only the writer uses.
#[derive(Debug)]
struct Writer {
    /// One for each link type in use, in the order of [`Listed::links`].
    passes: Vec<PassSet>,
    /// The lower spaces.
    supersets: Vec<Arc<dyn Superset>>,
    /// Passes of the first link type that were made by hand.
    by_hand: BTreeSet<PassId>,
}

/// The filters in force.
#[derive(Debug, Default)]
struct Listed {
    texts: Texts,
    /// Frames accepted by filters that have been removed.
    removed: u64,
    /// Names of trackers with passes of their own.
    trackers: BTreeSet<String>,
    rows: Rows,
    news: News,
    links: Vec<ListedLink>,
    journal: Journal,
}

/// The rows of trackers by number, for lower spaces.
#[derive(Debug, Default)]
struct Rows {
    texts: Listing,
    last: u64,
}

impl Rows {
    fn add(&mut self, rows: &[Row]) -> Vec<u64> {
        let number = |row: &Row| {
            self.last += 1;
            self.texts.insert(FIRST_ROW + self.last, row.text.as_str().into());
            FIRST_ROW + self.last
        };
        rows.iter().map(number).collect()
    }

    fn remove(&mut self, rows: &[u64]) {
        rows.iter().for_each(|row| drop(self.texts.remove(row)));
    }
}

/// The filters on one link type.
#[derive(Debug)]
struct ListedLink {
    link: LinkType,
    viewer: Viewer,
    ids: BTreeMap<u64, FilterId>,
}

/// Treatment of VLAN tags and MPLS labels by a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tags {
    /// Texts can test them, as in libpcap.
    Read,
    /// Frames are evaluated as if they had none.
    Skip,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in another thread leaves no partial edit: changes are prepared, then made by plain stores.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FilterSet {
    /// Makes a set without filters, which accepts every frame. Texts are checked against `options.link` until frames
    /// of another link type arrive.
    pub fn new(options: Options) -> Self {
        let inputs = Inputs { links: vec![options.link] };
        FilterSet::over(inputs, options, Tags::Read)
    }

    /// Makes a set for frames of these sources. Texts are checked against all their link types, or against any link
    /// type while no source is open.
    pub fn over(inputs: Inputs, options: Options, tags: Tags) -> Self {
        let known = Fragments::default();
        let passes: Vec<_> = inputs.links.iter().copied().map(new_passes).collect();
        let links = passes.iter().map(|one| ListedLink::new(one, BTreeMap::new())).collect();
        let shared = Shared {
            writer: Mutex::new(Writer { passes, supersets: Vec::new(), by_hand: BTreeSet::new() }),
            listed: Mutex::new(Listed { links, ..Listed::default() }),
            revealing: Mutex::new(()),
            epoch: AtomicU64::new(0),
            read: AtomicBool::new(false),
            filtered: AtomicBool::new(false),
            tracked: AtomicBool::new(false),
            options,
            inputs,
            fragments: (options.reading == Reading::Scoped).then(|| known.clone()),
            known,
            as_received: options.live && options.reading == Reading::Compat,
            without_tags: tags == Tags::Skip && options.reading == Reading::Compat,
            orphans: AtomicU64::new(0),
            credited: AtomicU64::new(0),
            cuts_allowed: AtomicBool::new(false),
            cuts: AtomicBool::new(false),
            expires: AtomicBool::new(false),
            guard: OnceLock::new(),
        };
        FilterSet { shared: Arc::new(shared) }
    }

    /// Calls `guard` in threads that this set starts, before they take a lock, and drops the result afterwards, for
    /// programs that may fork: a child then finds no lock taken. Only the first call has an effect.
    pub fn guard_threads(&self, guard: fn() -> Box<dyn Any>) {
        let _first = self.shared.guard.set(guard);
    }

    /// In a child after a fork: starts the thread again that removes filters at the end of their time.
    pub fn resume_expiry(&self) {
        self.shared.expires.store(false, Ordering::Release);
        if self.shared.has_timed() {
            self.shared.expire_later();
        }
    }

    /// Makes a reader for one worker.
    pub fn reader(&self) -> FilterReader {
        self.shared.read.store(true, Ordering::Relaxed);
        FilterReader::new(Arc::clone(&self.shared))
    }

    /// Permits snap lengths of filters ([`Label::snaplen`](crate::Label)): the outputs cut frames to them
    /// ([`FilterReader::snap_lengths`]).
    pub fn allow_snap_lengths(&self) {
        self.shared.cuts_allowed.store(true, Ordering::Relaxed);
    }

    fn check_snap_length(&self, given: Option<u32>) -> Result<(), FilterError> {
        let message = match given {
            _ if !self.shared.cuts_allowed.load(Ordering::Relaxed) => NO_CUTS.to_owned(),
            Some(given) if !(1..=MAX_SNAP_LENGTH).contains(&given) => {
                format!(
                    "the snap length of a filter is from 1 to {MAX_SNAP_LENGTH} bytes, not {given}"
                )
            }
            _ => {
                // Before the edit is revealed, so that readers see it with the edit.
                self.shared.cuts.store(true, Ordering::Release);
                return Ok(());
            }
        };
        Err(FilterError::SnapLength(message))
    }

    /// Number of fragments so far without their first fragment, in the scoped reading. Tests of ports reject them.
    pub fn orphans(&self) -> u64 {
        self.shared.orphans.load(Ordering::Relaxed)
    }

    /// Options for compiling texts, for code that adds passes of its own; the link type is that of the first source.
    pub fn reading(&self) -> (Options, Fragments) {
        (self.shared.options, self.shared.known.clone())
    }

    /// Applies a group of changes as one edit, all of it or nothing. Returns the number of each new text.
    ///
    /// # Errors
    /// The first change that is refused.
    pub fn edit(&self, changes: &[Change<'_>]) -> Result<Vec<Option<u64>>, GroupError> {
        Ok(self.edit_as(&Edit::of(changes))?.ids)
    }

    /// Adds a filter: frames that it matches are accepted, too. Returns its number.
    pub fn add(&self, text: &str) -> Result<u64, FilterError> {
        let ids = self.edit(&[Change::Add(text)]).map_err(|refused| refused.error)?;
        Ok(ids.into_iter().flatten().next().unwrap_or_default())
    }

    /// Replaces all filters by one, in one epoch; an empty text accepts every frame. Returns its number.
    pub fn set(&self, text: &str) -> Result<Option<u64>, FilterError> {
        let ids = self.edit(&[Change::Set(text)]).map_err(|refused| refused.error)?;
        Ok(ids.into_iter().flatten().next())
    }

    /// Removes a filter, but not the last one, because without a filter every frame is accepted. For that,
    /// [`set`](Self::set) takes an empty text.
    pub fn remove(&self, id: u64) -> Result<(), FilterError> {
        self.edit(&[Change::Remove(id)]).map(drop).map_err(|refused| refused.error)
    }

    /// Edits the pass set of one link type directly; the changes of `edit` are one epoch. Waits while another edit is
    /// being applied, but not while its text is being lowered. Lower spaces pass every frame from now on, because
    /// what the new passes accept is not known; [`edit_rows`](Self::edit_rows) declares it.
    pub fn edit_passes<T>(
        &self,
        link: LinkType,
        edit: impl FnOnce(&mut PassSet) -> T,
    ) -> Result<T, FilterError> {
        let mut writer = lock(&self.shared.writer);
        let index = self.shared.link(&mut writer, link)?;
        for superset in writer.supersets.drain(..) {
            superset.open_for_good("a tracker adds passes of its own");
        }
        let result = edit(&mut writer.passes[index]);
        let _forgotten = lock(&self.shared.listed).journal.tracked(self.shared.publish());
        Ok(result)
    }

    /// Edits the pass set of one link type, as trackers do. Frames that the new passes accept must be accepted by one
    /// of the rows `added`: lower spaces get these before the edit takes effect. Nothing else may become accepted. The
    /// rows `removed` leave the lower spaces afterwards. Returns the result of `edit` and the numbers of the new rows.
    ///
    /// # Errors
    /// A text is too large for a link type that is new, or a lower space cannot be reached.
    pub fn edit_rows<T>(
        &self,
        link: LinkType,
        added: &[Row],
        removed: &[u64],
        edit: impl FnOnce(&mut PassSet) -> T,
    ) -> Result<(T, Vec<u64>), FilterError> {
        let mut writer = lock(&self.shared.writer);
        let index = self.shared.link(&mut writer, link)?;
        let (numbers, unfiltered) = {
            let mut listed = lock(&self.shared.listed);
            (listed.rows.add(added), listed.texts.listed().is_empty())
        };
        let texts = added.iter().map(|row| row.text.as_str());
        let new: Vec<_> = numbers.iter().copied().zip(texts).collect();
        writer.supersets.iter().for_each(|superset| superset.widen(&new, unfiltered));
        if let Some(why) = refusal(&writer.supersets) {
            lock(&self.shared.listed).rows.remove(&numbers);
            let listing = || lock(&self.shared.listed).listing();
            writer.supersets.iter().for_each(|superset| superset.narrow(&listing, &numbers));
            return Err(FilterError::Space(why));
        }
        let result = edit(&mut writer.passes[index]);
        let epoch = self.shared.publish();
        let _forgotten = {
            let mut listed = lock(&self.shared.listed);
            listed.rows.remove(removed);
            listed.news.add(epoch, added);
            listed.journal.tracked(epoch)
        };
        let listing = || lock(&self.shared.listed).listing();
        writer.supersets.iter().for_each(|superset| superset.narrow(&listing, removed));
        Ok((result, numbers))
    }

    /// Adds a lower space that filters before this set does: it gets the texts, and every edit of them. Frames that
    /// it rejects reach no reader. The set must be read as for a live capture, in compat.
    pub fn add_superset(&self, superset: Arc<dyn Superset>) {
        let mut writer = lock(&self.shared.writer);
        superset.narrow(&|| lock(&self.shared.listed).listing(), &[]);
        writer.supersets.push(superset);
    }

    /// Remarks of the lower spaces on the texts in force.
    pub(crate) fn remarks_below(&self) -> Vec<String> {
        let supersets = lock(&self.shared.writer).supersets.clone();
        supersets.iter().filter_map(|superset| superset.remark()).collect()
    }

    /// Takes a lower space away again, before it filters.
    pub fn remove_superset(&self, superset: &Arc<dyn Superset>) {
        let is_other = |one: &Arc<dyn Superset>| !Arc::ptr_eq(one, superset);
        lock(&self.shared.writer).supersets.retain(is_other);
    }

    /// Number of applied edits.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }
}

impl Shared {
    /// Raises the epoch; returns the new one.
    fn publish(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::Release) + 1
    }

    /// Compiles and lowers a text for a link type; returns the reason if it does not fit.
    fn lower(&self, text: &str, link: LinkType) -> Result<Fit, FilterError> {
        let options = Options { link, ..self.options };
        match fyke_filter::compile_with(text, &options, &self.known) {
            Ok(predicate) => Ok(Ok(LoweredFilter::new(&predicate)?)),
            Err(unfit) => Ok(Err(unfit)),
        }
    }

    /// Checks that each text fits a link type in use, or, while none is known, any link type.
    fn check(&self, changes: &[Change<'_>], lowered: &LoweredTexts) -> Result<(), GroupError> {
        for (place, fits) in lowered.iter() {
            if let (true, Some(text)) = (fits.is_empty(), changes[place].text()) {
                let checked = self.inputs.check(text, &self.options);
                checked.map_err(|refused| GroupError { place, error: refused.error.into() })?;
            }
            if let Some(Err(unfit)) = fits.first()
                && fits.iter().all(Result::is_err)
            {
                return Err(GroupError { place, error: unfit.clone().into() });
            }
        }
        Ok(())
    }

    /// Applies one edit to every pass set. Everything is prepared before the first pass set changes, and applied before
    /// readers see the first change.
    fn edit(self: &Arc<Self>, group: &Group<'_>) -> Result<Edited, GroupError> {
        let changes = group.changes;
        if changes.is_empty() {
            return Ok(Edited { epoch: self.epoch.load(Ordering::Acquire), ids: Vec::new() });
        }
        let links: Vec<_> = lock(&self.listed).links.iter().map(|one| one.link).collect();
        let lower = || {
            let mut lowered = LoweredTexts::default();
            lowered.lower(changes, &links, |text, link| self.lower(text, link)).map(|()| lowered)
        };
        let bytes: usize = changes.iter().filter_map(|change| change.text()).map(str::len).sum();
        let in_background = bytes >= LONG_TEXT && self.read.load(Ordering::Relaxed);
        let mut lowered = if in_background { at_low_priority(lower) } else { lower() }?;
        let mut writer = lock(&self.writer);
        // For link types that have appeared since the texts were lowered.
        let links: Vec<_> = writer.passes.iter().map(PassSet::link).collect();
        lowered.lower(changes, &links, |text, link| self.lower(text, link))?;
        self.check(changes, &lowered)?;
        let resolved = {
            let listed = lock(&self.listed);
            group.still_holds(&listed)?;
            let resolved = listed.texts.resolve(changes, false)?;
            group.check_names(&listed, &resolved)?;
            resolved
        };
        let supersets = writer.supersets.clone();
        let leaving = self.widen(&supersets, changes, &resolved);
        let applied = match refusal(&supersets) {
            Some(why) => Err(GroupError { place: 0, error: FilterError::Space(why) }),
            None => self.apply(&mut writer, group, lowered.fitting(), &resolved),
        };
        let removed = match &applied {
            Ok(_) => leaving,
            Err(_refused) => resolved.added.iter().map(|(id, _)| *id).collect(),
        };
        let listing = || lock(&self.listed).listing();
        supersets.iter().for_each(|superset| superset.narrow(&listing, &removed));
        let epoch = applied?;
        let retired = writer.passes.iter().map(PassSet::retired_passes).sum::<usize>();
        drop(writer);
        if retired > FREE_LIMIT {
            self.free_later();
        }
        if group.expires() {
            self.expire_later();
        }
        Ok(Edited { epoch, ids: resolved.ids })
    }

    /// Lets lower spaces pass what a group adds; returns the numbers of the texts that it removes.
    fn widen(
        &self,
        supersets: &[Arc<dyn Superset>],
        changes: &[Change<'_>],
        resolved: &Resolved,
    ) -> Vec<u64> {
        if supersets.is_empty() {
            return Vec::new();
        }
        let text = |&(id, place): &(u64, usize)| Some((id, changes[place].text()?));
        let added: Vec<_> = resolved.added.iter().filter_map(text).collect();
        let (texts, removed) = {
            let listed = lock(&self.listed);
            (listed.texts.left(resolved), resolved.removed.numbers(&listed.texts))
        };
        supersets.iter().for_each(|superset| superset.widen(&added, texts == 0));
        removed
    }

    fn apply(
        &self,
        writer: &mut Writer,
        group: &Group<'_>,
        mut lowered: FittingTexts,
        resolved: &Resolved,
    ) -> Result<u64, GroupError> {
        let mut edits = Vec::new();
        for (index, passes) in writer.passes.iter_mut().enumerate() {
            let mut edit = passes.edit();
            for filter in resolved.removed.of(&lock(&self.listed).links[index].ids) {
                edit.remove_filter(filter).map_err(GroupError::at(0))?;
            }
            let mut added = Vec::new();
            for &(id, place) in &resolved.added {
                let Some(lowered) = lowered.take(place, index) else { continue };
                added.push((id, edit.add_lowered(lowered).map_err(GroupError::at(place))?));
            }
            edits.push((edit, added));
        }
        let (mut staged, added): (Vec<Staged<'_>>, Vec<Vec<(u64, FilterId)>>) =
            edits.into_iter().map(|(edit, added)| (edit.stage(), added)).unzip();
        staged.iter().for_each(Staged::lay_out);
        let mut listed = lock(&self.listed);
        let leaving = listed.leaving(&resolved.removed);
        listed.removed += leaving.values().sum::<u64>();
        let filtered = listed.texts.left(resolved) > 0;
        let epoch = {
            let _revealing = lock(&self.revealing);
            self.filtered.store(filtered, Ordering::Relaxed);
            for staged in &mut staged {
                staged.publish();
            }
            self.publish()
        };
        let (gone, forgotten) = listed.update(epoch, group, resolved, added, &leaving);
        drop(listed);
        drop((gone, forgotten));
        drop(staged);
        Ok(epoch)
    }

    /// The index of the pass set for `link`; makes it from the texts that fit if the link type is new.
    fn link(&self, writer: &mut Writer, link: LinkType) -> Result<usize, FilterError> {
        if let Some(index) = writer.passes.iter().position(|passes| passes.link() == link) {
            return Ok(index);
        }
        // Only a writer changes the list, so the lock may be released.
        let texts = lock(&self.listed).texts.listed().clone();
        let (mut passes, mut ids) = (new_passes(link), BTreeMap::new());
        let mut edit = passes.edit();
        for (id, text) in texts {
            if let Ok(lowered) = self.lower(&text, link)? {
                ids.insert(id, edit.add_lowered(lowered)?);
            }
        }
        edit.commit();
        lock(&self.listed).links.push(ListedLink::new(&passes, ids));
        writer.passes.push(passes);
        Ok(writer.passes.len() - 1)
    }

    /// Makes a reader of the passes for `link`.
    fn reader(&self, link: LinkType) -> Result<Reader, FilterError> {
        let known = |listed: &Listed| {
            Some(listed.links.iter().find(|one| one.link == link)?.viewer.reader())
        };
        if let Some(reader) = known(&lock(&self.listed)) {
            return Ok(reader);
        }
        let mut writer = lock(&self.writer);
        let index = self.link(&mut writer, link)?;
        Ok(writer.passes[index].reader())
    }

    /// Frees a large replaced state once no reader holds it. If that takes longer than a second, the next edit of a
    /// text tries again.
    fn free_later(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let free = move || {
            for _ in 0..FREE_TRIES {
                std::thread::sleep(FREE_PAUSE);
                let _guard = shared.guard.get().map(|guard| guard());
                let mut writer = lock(&shared.writer);
                let unused: Vec<_> = writer.passes.iter_mut().map(PassSet::take_retired).collect();
                let left = writer.passes.iter().map(PassSet::retired_passes).sum::<usize>();
                drop(writer);
                if left <= FREE_LIMIT {
                    lower_own_priority();
                    return drop(unused);
                }
                at_low_priority(|| drop(unused));
            }
        };
        // If no thread can be started, the next edit tries again.
        let _no_thread = std::thread::Builder::new().name("fyke-free".into()).spawn(free);
    }
}

/// Reason why one of the lower spaces does not let the frames of an edit pass.
fn refusal(supersets: &[Arc<dyn Superset>]) -> Option<String> {
    supersets.iter().find_map(|superset| superset.refusal())
}

/// Makes the pass set for a link type. It does not free the data that a large edit replaced, because a tracker's edit,
/// in the packet loop, might have to do so.
fn new_passes(link: LinkType) -> PassSet {
    let mut passes = PassSet::new(link);
    passes.set_free_limit(FREE_LIMIT);
    passes
}

impl Listed {
    /// The texts and rows for a lower space; none if every frame is accepted.
    fn listing(&self) -> Listing {
        let mut listing = self.texts.listed().clone();
        if !listing.is_empty() {
            listing.extend(self.rows.texts.iter().map(|(&id, text)| (id, Arc::clone(text))));
        }
        listing
    }

    /// Frames that the filters accepted which an edit removes, by number.
    fn leaving(&self, removed: &Removed) -> BTreeMap<u64, u64> {
        let mut leaving = BTreeMap::new();
        for one in &self.links {
            let passes = one.viewer.snapshot();
            for (id, filter) in removed.entries(&one.ids) {
                let accepted = passes.filter(filter).map_or(0, |filter| filter.accepted());
                *leaving.entry(id).or_default() += accepted;
            }
        }
        leaving
    }

    /// Removes filters and adds others. Returns the removed data, and entries that the journal no longer keeps, so that
    /// the caller can drop them without a lock.
    fn update(
        &mut self,
        epoch: u64,
        group: &Group<'_>,
        resolved: &Resolved,
        added: Vec<Vec<(u64, FilterId)>>,
        leaving: &BTreeMap<u64, u64>,
    ) -> (Vec<Box<dyn Any>>, Vec<Entry>) {
        let was_unfiltered = self.texts.listed().is_empty();
        let removed = resolved.removed.entries(self.texts.listed()).into_iter();
        let removed = removed.map(|(id, text)| {
            let accepted = leaving.get(&id).copied().unwrap_or_default();
            (id, text, accepted)
        });
        let removed = removed.collect();
        let mut gone: Vec<Box<dyn Any>> = vec![Box::new(self.texts.apply(resolved, group.changes))];
        for (one, added) in self.links.iter_mut().zip(added) {
            gone.push(Box::new(resolved.removed.take_from(&mut one.ids)));
            one.ids.extend(added);
        }
        let listed = self.texts.listed();
        let new = resolved.added.iter().filter_map(|&(id, place)| {
            Some((id, Arc::clone(listed.get(&id)?), group.label(place)))
        });
        let applied = Applied {
            epoch,
            author: &group.author,
            undoes: group.undoes(),
            back: group.back(),
            was_unfiltered,
            added: new.collect(),
            removed,
        };
        let forgotten = self.journal.record(applied);
        (gone, forgotten)
    }
}

impl ListedLink {
    fn new(passes: &PassSet, ids: BTreeMap<u64, FilterId>) -> ListedLink {
        ListedLink { link: passes.link(), viewer: passes.viewer(), ids }
    }
}
