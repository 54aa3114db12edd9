//! The filter texts of a running fyke: one list, judged on every link type that turns up, editable from any thread.
//!
//! A text means different bytes on different link types, so there is one pass set per link type, made when its first
//! frame arrives. A text that fits none of the link types in use is refused and changes nothing; one that fits some
//! judges frames of those. Frames of a link type that no text fits are rejected and counted.
//!
//! No packet loop waits for what somebody asks here. An edit has three steps:
//!
//! | step | lock | cost for 100,000 passes |
//! |---|---|---|
//! | parse and lower the text, at low priority when it is long | none | 560 ms |
//! | apply it to every pass set, unseen by readers | the writer's | 110 ms |
//! | reveal it: exchange a reference per link type, raise the epoch | the readers' | 1 µs |
//!
//! What an edit replaced is freed by a thread at low priority, never by a reader. Views and counts: `view.rs`.

mod counts;
mod priority;
mod reader;
mod view;

pub use counts::FilterCounts;
pub use reader::FilterReader;
pub use view::{FilterCount, FilterView, PassDescription};

use crate::Inputs;
use fyke_filter::{Fragments, Options, Reading};
use fyke_frame::LinkType;
use fyke_pass::{EditError, FilterId, LowerError, LoweredFilter, PassSet, Reader, Staged, Viewer};
use priority::{at_low_priority, lower_own_priority};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a text from which on lowering takes more than about a millisecond.
const LONG_TEXT: usize = 8 << 10;
/// Passes that an edit frees on its own.
const FREE_LIMIT: usize = 256;
/// How often and how long readers are waited for before a large state is freed.
const FREE_TRIES: usize = 100;
const FREE_PAUSE: Duration = Duration::from_millis(10);

/// Why filters cannot be what somebody asked for.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The text is not a filter for this link type.
    #[error("{0}")]
    Text(#[from] fyke_filter::Error),
    /// There is no room for the filter.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The pass set does not take the change.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// There is no filter of this number.
    #[error("there is no filter {given}; the filters are: {}", list(.present))]
    NoSuchFilter {
        /// What was asked for.
        given: u64,
        /// What there is.
        present: Vec<u64>,
    },
    /// Without a filter every frame would be accepted, which is the opposite of what a removal asks for.
    #[error(
        "filter {0} is the last one, and without a filter every frame is accepted; \
             `set ''` accepts everything, ending the capture stops it"
    )]
    LastFilter(u64),
}

fn list(ids: &[u64]) -> String {
    match ids {
        [] => "none".to_owned(),
        ids => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The writer's side; clones share the filters.
#[derive(Debug, Clone)]
pub struct FilterSet {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Held while an edit is applied; by no reader, except one that meets a new link type.
    writer: Mutex<Writer>,
    /// Held while references are copied and while an edit is revealed.
    listed: Mutex<Listed>,
    /// Held while the pass sets of an edit are revealed, O(link types), and while a reader goes on.
    revealing: Mutex<()>,
    epoch: AtomicU64,
    /// There has been a reader.
    read: AtomicBool,
    /// Whether there are filters; changes while an edit is revealed.
    filtered: AtomicBool,
    options: Options,
    inputs: Inputs,
    /// What texts know of fragments; only the scoped reading asks.
    known: Fragments,
    /// What the scoped reading knows of fragments, for all filters; `None` in compat.
    fragments: Option<Fragments>,
    /// Frames are judged as the device gave them, the tag that it took out in the metadata.
    as_received: bool,
    /// Frames are judged without their VLAN tags and MPLS labels.
    without_tags: bool,
    orphans: AtomicU64,
    /// Frames that readers have counted for a pass, whosever it is.
    credited: AtomicU64,
}

/// What only the writer touches.
#[derive(Debug)]
struct Writer {
    next_id: u64,
    /// One for each link type in use, in the order of [`Listed::links`].
    passes: Vec<PassSet>,
}

/// The filters in force.
#[derive(Debug, Default)]
struct Listed {
    texts: BTreeMap<u64, Arc<str>>,
    /// Frames that filters accepted which are no longer there.
    removed: u64,
    /// Who has passes of his own here.
    trackers: BTreeSet<String>,
    links: Vec<ListedLink>,
}

/// The filters on one link type.
#[derive(Debug)]
struct ListedLink {
    link: LinkType,
    viewer: Viewer,
    ids: BTreeMap<u64, FilterId>,
}

/// What a filter does about VLAN tags and MPLS labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    /// Texts ask about them, as in libpcap.
    Read,
    /// Frames are judged as if they had none.
    Skip,
}

/// The filters that an edit takes away.
enum Removed {
    None,
    One(u64),
    All,
}

/// A text on one link type: lowered, or why it does not fit.
type Fit = Result<LoweredFilter, fyke_filter::Error>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere cannot leave anything half edited: changes are prepared, then made by plain stores.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FilterSet {
    /// No filter: every frame is accepted. `options.link` is the link type that texts are checked against until a
    /// frame says otherwise.
    pub fn new(options: Options) -> Self {
        let inputs = Inputs { links: vec![options.link], ..Inputs::default() };
        FilterSet::over(inputs, options, Tags::Read)
    }

    /// The same for frames of these sources: texts are checked against all their link types, or, when none is open
    /// yet, against any.
    pub fn over(inputs: Inputs, options: Options, tags: Tags) -> Self {
        let known = Fragments::default();
        let passes: Vec<_> = inputs.links.iter().copied().map(new_passes).collect();
        let links = passes.iter().map(|one| ListedLink::new(one, BTreeMap::new())).collect();
        let shared = Shared {
            writer: Mutex::new(Writer { next_id: 1, passes }),
            listed: Mutex::new(Listed { links, ..Listed::default() }),
            revealing: Mutex::new(()),
            epoch: AtomicU64::new(0),
            read: AtomicBool::new(false),
            filtered: AtomicBool::new(false),
            options,
            inputs,
            fragments: (options.reading == Reading::Scoped).then(|| known.clone()),
            known,
            as_received: options.live && options.reading == Reading::Compat,
            without_tags: tags == Tags::Skip && options.reading == Reading::Compat,
            orphans: AtomicU64::new(0),
            credited: AtomicU64::new(0),
        };
        FilterSet { shared: Arc::new(shared) }
    }

    /// A reader for one worker.
    pub fn reader(&self) -> FilterReader {
        self.shared.read.store(true, Ordering::Relaxed);
        FilterReader::new(Arc::clone(&self.shared))
    }

    /// In the scoped reading: fragments so far whose first was not seen. What asks for their ports rejects them.
    pub fn orphans(&self) -> u64 {
        self.shared.orphans.load(Ordering::Relaxed)
    }

    /// How the filters are read, for those who add passes of their own; the link type is that of the first source.
    pub fn reading(&self) -> (Options, Fragments) {
        (self.shared.options, self.shared.known.clone())
    }

    /// Adds a filter: frames it matches are accepted too. Returns its number.
    pub fn add(&self, text: &str) -> Result<u64, FilterError> {
        let id = self.shared.edit(Some(text), |_| Ok(Removed::None))?;
        Ok(id.unwrap_or_default())
    }

    /// Replaces all filters by one, in one epoch; an empty text accepts everything. Returns its number.
    pub fn set(&self, text: &str) -> Result<Option<u64>, FilterError> {
        let text = (!text.trim().is_empty()).then_some(text);
        self.shared.edit(text, |_| Ok(Removed::All))
    }

    /// Removes a filter, but not the last one: without any filter every frame is accepted, and
    /// [`set`](Self::set) with an empty text says that.
    pub fn remove(&self, id: u64) -> Result<(), FilterError> {
        let removed = |listed: &Listed| match listed.texts.contains_key(&id) {
            true if listed.texts.len() == 1 => Err(FilterError::LastFilter(id)),
            true => Ok(Removed::One(id)),
            false => {
                let present = listed.texts.keys().copied().collect();
                Err(FilterError::NoSuchFilter { given: id, present })
            }
        };
        self.shared.edit(None, removed).map(drop)
    }

    /// Edits the pass set of one link type directly, as trackers do; what `edit` changes is one epoch. Waits while
    /// another edit is being applied, not while its text is being lowered.
    pub fn edit_passes<T>(
        &self,
        link: LinkType,
        edit: impl FnOnce(&mut PassSet) -> T,
    ) -> Result<T, FilterError> {
        let mut writer = lock(&self.shared.writer);
        let index = self.shared.link(&mut writer, link)?;
        let result = edit(&mut writer.passes[index]);
        self.shared.publish();
        Ok(result)
    }

    /// Number of applied edits.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }
}

impl Shared {
    fn publish(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Compiles and lowers a text for a link type; says why it does not fit.
    fn lower(&self, text: &str, link: LinkType) -> Result<Fit, FilterError> {
        let options = Options { link, ..self.options };
        match self.inputs.compile(text, &options, &self.known) {
            Ok(predicate) => Ok(Ok(LoweredFilter::new(&predicate)?)),
            Err(unfit) => Ok(Err(unfit)),
        }
    }

    /// What was lowered for each link type; fails when the text fits none of them, or none that there may be.
    fn fitting(
        &self,
        text: &str,
        lowered: Vec<Fit>,
    ) -> Result<Vec<Option<LoweredFilter>>, FilterError> {
        if lowered.is_empty() {
            self.inputs.check(text, &self.options).map_err(|refused| refused.error)?;
        }
        if lowered.iter().all(Result::is_err)
            && let Some(Err(unfit)) = lowered.first()
        {
            return Err(unfit.clone().into());
        }
        Ok(lowered.into_iter().map(Result::ok).collect())
    }

    /// One edit of every pass set: takes filters away and adds one of this text. Returns its number. All of it is
    /// prepared before the first pass set changes, and applied before readers see the first of them.
    fn edit(
        self: &Arc<Self>,
        text: Option<&str>,
        removed: impl FnOnce(&Listed) -> Result<Removed, FilterError>,
    ) -> Result<Option<u64>, FilterError> {
        let mut lowered = Vec::new();
        if let Some(text) = text {
            let links: Vec<_> = lock(&self.listed).links.iter().map(|one| one.link).collect();
            let lower = || links.iter().map(|&link| self.lower(text, link)).collect();
            let aside = text.len() >= LONG_TEXT && self.read.load(Ordering::Relaxed);
            let made: Result<Vec<_>, _> = if aside { at_low_priority(lower) } else { lower() };
            lowered = made?;
        }
        let mut writer = lock(&self.writer);
        if let Some(text) = text {
            // Link types that have turned up since.
            for passes in &writer.passes[lowered.len()..] {
                lowered.push(self.lower(text, passes.link())?);
            }
        }
        let lowered = match text {
            Some(text) => self.fitting(text, lowered)?,
            None => Vec::new(),
        };
        let removed = removed(&lock(&self.listed))?;
        let id = self.apply(&mut writer, text, lowered, &removed)?;
        let retired = writer.passes.iter().map(PassSet::retired_passes).sum::<usize>();
        drop(writer);
        if retired > FREE_LIMIT {
            self.free_later();
        }
        Ok(id)
    }

    fn apply(
        &self,
        writer: &mut Writer,
        text: Option<&str>,
        lowered: Vec<Option<LoweredFilter>>,
        removed: &Removed,
    ) -> Result<Option<u64>, FilterError> {
        let id = text.map(|_| writer.next_id);
        let mut lowered = lowered.into_iter();
        let mut edits = Vec::new();
        for (index, passes) in writer.passes.iter_mut().enumerate() {
            let mut edit = passes.edit();
            for filter in lock(&self.listed).links[index].removed(removed) {
                edit.remove_filter(filter)?;
            }
            let added = lowered.next().flatten().map(|lowered| edit.add_lowered(lowered));
            edits.push((edit, added.transpose()?));
        }
        let (mut staged, added): (Vec<Staged<'_>>, Vec<Option<FilterId>>) =
            edits.into_iter().map(|(edit, added)| (edit.stage(), added)).unzip();
        staged.iter().for_each(Staged::lay_out);
        let mut listed = lock(&self.listed);
        listed.removed += listed.links.iter().map(|one| one.leaving(removed)).sum::<u64>();
        let filtered = id.is_some() || listed.keeps_some(removed);
        {
            let _revealing = lock(&self.revealing);
            self.filtered.store(filtered, Ordering::Relaxed);
            for staged in &mut staged {
                staged.publish();
            }
            self.publish();
        }
        let gone = listed.update(removed, id.zip(text), &added);
        drop(listed);
        drop(gone);
        drop(staged);
        writer.next_id += u64::from(id.is_some());
        Ok(id)
    }

    /// The index of the pass set for `link`; made from the texts that fit when it is new.
    fn link(&self, writer: &mut Writer, link: LinkType) -> Result<usize, FilterError> {
        if let Some(index) = writer.passes.iter().position(|passes| passes.link() == link) {
            return Ok(index);
        }
        // Only a writer changes the list.
        let texts = lock(&self.listed).texts.clone();
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

    /// A reader of the passes for `link`.
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

    /// Frees a large state that was replaced once no reader holds it; unless that takes longer than a second, when
    /// the next edit of a text tries again.
    fn free_later(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let free = move || {
            for _ in 0..FREE_TRIES {
                std::thread::sleep(FREE_PAUSE);
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
        // Without a thread the next edit tries again.
        let _no_thread = std::thread::Builder::new().name("fyke-free".into()).spawn(free);
    }
}

/// The pass set for a link type. It does not free what a large edit replaced: a tracker's edit, in the packet loop,
/// might get to do it.
fn new_passes(link: LinkType) -> PassSet {
    let mut passes = PassSet::new(link);
    passes.set_free_limit(FREE_LIMIT);
    passes
}

impl Listed {
    /// Whether a filter is left.
    fn keeps_some(&self, removed: &Removed) -> bool {
        match removed {
            Removed::None => !self.texts.is_empty(),
            Removed::One(id) => self.texts.keys().any(|present| present != id),
            Removed::All => false,
        }
    }

    /// Takes filters away and adds one; what is gone is given back, for dropping without a lock.
    fn update(
        &mut self,
        removed: &Removed,
        added: Option<(u64, &str)>,
        ids: &[Option<FilterId>],
    ) -> Vec<Box<dyn Any>> {
        let mut gone: Vec<Box<dyn Any>> = Vec::new();
        match removed {
            Removed::None => {}
            Removed::One(id) => {
                self.texts.remove(id);
                for one in &mut self.links {
                    one.ids.remove(id);
                }
            }
            Removed::All => {
                gone.push(Box::new(std::mem::take(&mut self.texts)));
                for one in &mut self.links {
                    gone.push(Box::new(std::mem::take(&mut one.ids)));
                }
            }
        }
        if let Some((id, text)) = added {
            self.texts.insert(id, text.into());
            for (one, filter) in self.links.iter_mut().zip(ids) {
                one.ids.extend(filter.map(|filter| (id, filter)));
            }
        }
        gone
    }
}

impl ListedLink {
    fn new(passes: &PassSet, ids: BTreeMap<u64, FilterId>) -> ListedLink {
        ListedLink { link: passes.link(), viewer: passes.viewer(), ids }
    }

    /// Frames that the filters accepted so far which an edit takes away.
    fn leaving(&self, removed: &Removed) -> u64 {
        let passes = self.viewer.snapshot();
        let filters = self.removed(removed).into_iter();
        filters.filter_map(|filter| Some(passes.filter(filter)?.accepted())).sum()
    }

    /// The filters of an edit, by their numbers in the pass set.
    fn removed(&self, removed: &Removed) -> Vec<FilterId> {
        match removed {
            Removed::None => Vec::new(),
            Removed::One(id) => self.ids.get(id).copied().into_iter().collect(),
            Removed::All => self.ids.values().copied().collect(),
        }
    }
}
