//! The filter texts of a running fyke: one list, judged on every link type that turns up, editable from any thread.
//!
//! A text means different bytes on different link types, so there is one pass set per link type, made when its first
//! frame arrives. An edit is applied to all of them under one lock and published by one epoch; readers notice it by
//! one atomic load. An edit that does not fit one of the link types changes nothing.

use fyke_filter::scoped::Part;
use fyke_filter::{Fragments, Options, Predicate, Reading};
use fyke_frame::{Batch, Frame, LinkType, Mask};
use fyke_pass::{EditError, LowerError, PassSet, PassView, Reader};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why filters cannot be what somebody asked for.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The text is not a filter for this link type.
    #[error("{0}")]
    Text(#[from] fyke_filter::Error),
    /// The text is a filter, but too large to run.
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
}

fn list(ids: &[u64]) -> String {
    match ids {
        [] => "none".to_owned(),
        ids => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// A filter as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterView {
    /// Number for `ctl del`; never used twice.
    pub id: u64,
    /// The text as it was given.
    pub text: String,
    /// Accepted frames that this filter matched.
    pub accepted: u64,
    /// Its passes on the link types seen so far.
    pub passes: Vec<PassDescription>,
}

/// A pass as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassDescription {
    /// The link type it is for.
    pub link: LinkType,
    /// Its number within the link type's pass set.
    pub id: u64,
    /// Its instructions, in words.
    pub text: String,
    /// Accepted frames that it matched.
    pub accepted: u64,
}

/// The writer's side; clones share the filters.
#[derive(Debug, Clone)]
pub struct FilterSet {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    epoch: AtomicU64,
    /// What the scoped reading knows of fragments, for all filters; `None` in compat.
    fragments: Option<Fragments>,
    /// Frames are judged as the device gave them, the tag that it took out in the metadata.
    as_received: bool,
    orphans: AtomicU64,
}

#[derive(Debug)]
struct State {
    options: Options,
    next_id: u64,
    texts: BTreeMap<u64, String>,
    links: Vec<LinkPasses>,
    fragments: Fragments,
}

/// The pass set of one link type.
#[derive(Debug)]
struct LinkPasses {
    link: LinkType,
    passes: PassSet,
    ids: BTreeMap<u64, fyke_pass::FilterId>,
}

impl FilterSet {
    /// No filter: every frame is accepted. `options.link` is the link type that texts are checked against until a
    /// frame says otherwise.
    pub fn new(options: Options) -> Self {
        let first = LinkPasses::new(options.link);
        let fragments = (options.reading == Reading::Scoped).then(Fragments::default);
        let state = State {
            options,
            next_id: 1,
            texts: BTreeMap::new(),
            links: vec![first],
            fragments: fragments.clone().unwrap_or_default(),
        };
        FilterSet {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                epoch: AtomicU64::new(0),
                fragments,
                as_received: options.live && options.reading == Reading::Compat,
                orphans: AtomicU64::new(0),
            }),
        }
    }

    /// A reader for one worker.
    pub fn reader(&self) -> FilterReader {
        FilterReader {
            shared: Arc::clone(&self.shared),
            epoch: 0,
            links: Vec::new(),
            current: 0,
            orphans: Mask::EMPTY,
            received: Vec::new(),
        }
    }

    /// In the scoped reading: fragments so far whose first was not seen. What asks for their ports rejects them.
    pub fn orphans(&self) -> u64 {
        self.shared.orphans.load(Ordering::Relaxed)
    }

    /// Adds a filter: frames it matches are accepted too. Returns its number.
    pub fn add(&self, text: &str) -> Result<u64, FilterError> {
        let mut state = self.shared.lock();
        let predicates = state.compile(text)?;
        let id = state.next_id;
        state.edit(&predicates, Some(id), |_| false)?;
        state.texts.insert(id, text.to_owned());
        state.next_id += 1;
        self.shared.publish();
        Ok(id)
    }

    /// Replaces all filters by one, in one epoch; an empty text accepts everything. Returns its number.
    pub fn set(&self, text: &str) -> Result<Option<u64>, FilterError> {
        let mut state = self.shared.lock();
        let id = (!text.trim().is_empty()).then_some(state.next_id);
        let predicates = if id.is_some() { state.compile(text)? } else { Vec::new() };
        state.edit(&predicates, id, |_| true)?;
        state.texts.clear();
        if let Some(id) = id {
            state.texts.insert(id, text.to_owned());
            state.next_id += 1;
        }
        self.shared.publish();
        Ok(id)
    }

    /// Removes a filter. Without any filter every frame is accepted.
    pub fn remove(&self, id: u64) -> Result<(), FilterError> {
        let mut state = self.shared.lock();
        if state.texts.remove(&id).is_none() {
            let present = state.texts.keys().copied().collect();
            return Err(FilterError::NoSuchFilter { given: id, present });
        }
        state.edit(&[], None, |present| present == id)?;
        self.shared.publish();
        Ok(())
    }

    /// Edits the pass set of one link type directly, as trackers do; what `edit` changes is one epoch.
    pub fn edit_passes<T>(
        &self,
        link: LinkType,
        edit: impl FnOnce(&mut PassSet) -> T,
    ) -> Result<T, FilterError> {
        let mut state = self.shared.lock();
        let index = state.link(link)?;
        let result = edit(&mut state.links[index].passes);
        self.shared.publish();
        Ok(result)
    }

    /// Number of applied edits.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }

    /// The filters with their passes and hits, as of now.
    pub fn view(&self) -> Vec<FilterView> {
        let state = self.shared.lock();
        state.texts.iter().map(|(&id, text)| state.view(id, text)).collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave the state half edited: edits are applied by one commit per link type.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }
}

impl LinkPasses {
    fn new(link: LinkType) -> Self {
        LinkPasses { link, passes: PassSet::new(link), ids: BTreeMap::new() }
    }
}

impl State {
    /// Compiles a text for every link type in use.
    fn compile(&self, text: &str) -> Result<Vec<Predicate>, FilterError> {
        let compile = |links: &LinkPasses| {
            let options = Options { link: links.link, ..self.options };
            fyke_filter::compile_with(text, &options, &self.fragments).map_err(FilterError::from)
        };
        self.links.iter().map(compile).collect()
    }

    /// One edit of every pass set: removes the filters that `remove` names, adds the predicates (one per link type, or
    /// none) as filter `id`. Prepares all edits before it commits the first.
    fn edit(
        &mut self,
        predicates: &[Predicate],
        id: Option<u64>,
        remove: impl Fn(u64) -> bool,
    ) -> Result<(), FilterError> {
        let mut prepared = Vec::new();
        for (index, links) in self.links.iter_mut().enumerate() {
            let mut edit = links.passes.edit();
            for (_, &filter) in links.ids.iter().filter(|(id, _)| remove(**id)) {
                edit.remove_filter(filter)?;
            }
            let added = predicates.get(index).map(|predicate| edit.add_filter(predicate));
            prepared.push((edit, added.transpose()?));
        }
        let mut added = Vec::new();
        for (edit, filter) in prepared {
            edit.commit();
            added.push(filter);
        }
        for (links, filter) in self.links.iter_mut().zip(added) {
            links.ids.retain(|id, _| !remove(*id));
            links.ids.extend(id.zip(filter));
        }
        Ok(())
    }

    /// The index of the pass set for `link`; made from the texts when it is new.
    fn link(&mut self, link: LinkType) -> Result<usize, FilterError> {
        if let Some(index) = self.links.iter().position(|links| links.link == link) {
            return Ok(index);
        }
        let mut links = LinkPasses::new(link);
        let options = Options { link, ..self.options };
        let mut edit = links.passes.edit();
        for (&id, text) in &self.texts {
            let predicate = fyke_filter::compile_with(text, &options, &self.fragments)?;
            links.ids.insert(id, edit.add_filter(&predicate)?);
        }
        edit.commit();
        self.links.push(links);
        Ok(self.links.len() - 1)
    }

    fn view(&self, id: u64, text: &str) -> FilterView {
        let mut passes = Vec::new();
        let mut accepted = 0;
        for links in &self.links {
            let Some(&filter) = links.ids.get(&id) else { continue };
            let Some(view) = links.passes.filter(filter) else { continue };
            accepted += view.accepted();
            for pass in view.passes() {
                passes.push(PassDescription {
                    link: links.link,
                    id: pass.id.0,
                    text: in_words(&pass),
                    accepted: pass.accepted(),
                });
            }
        }
        FilterView { id, text: text.to_owned(), accepted, passes }
    }
}

/// The instructions of a pass, joined.
fn in_words(pass: &PassView<'_>) -> String {
    let words: Vec<String> = pass.describe().map(|view| view.to_string()).collect();
    if words.is_empty() { "every frame".to_owned() } else { words.join(" and ") }
}

/// One worker's side: judges batches under the filters as of the last refresh.
#[derive(Debug)]
pub struct FilterReader {
    shared: Arc<Shared>,
    epoch: u64,
    links: Vec<(LinkType, Reader)>,
    current: usize,
    /// Frames of the batch last evaluated that are fragments without their first.
    orphans: Mask,
    /// Bytes of frames as the device gave them.
    received: Vec<u8>,
}

impl FilterReader {
    /// Takes over the edits made since the last call; says whether there were any.
    pub fn refresh(&mut self) -> bool {
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        if epoch == self.epoch {
            return false;
        }
        // The lock keeps an edit from being seen on one link type and not yet on another.
        let _state = self.shared.lock();
        self.epoch = self.shared.epoch.load(Ordering::Acquire);
        for (_, reader) in &mut self.links {
            reader.refresh();
        }
        true
    }

    /// The epoch under which frames are judged.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The frames of `within` that a filter accepts. Fails when a link type turns up that a text does not fit.
    pub fn evaluate(&mut self, batch: &Batch<'_>, within: Mask) -> Result<Mask, FilterError> {
        let Some(first) = batch.frames().first() else { return Ok(Mask::EMPTY) };
        if let Some(fragments) = &self.shared.fragments {
            // In capture order and for all filters, whichever of them gets to see a frame.
            self.orphans = Mask::EMPTY;
            for index in within.iter() {
                if fragments.observe(&batch.frames()[index]) == Part::Orphan {
                    self.orphans.set(index);
                }
            }
        }
        if self.links.get(self.current).is_none_or(|(link, _)| *link != first.link) {
            self.current = self.link(first.link)?;
        }
        let reader = &mut self.links[self.current].1;
        let restored = |frame: &Frame| frame.meta.restored;
        if self.shared.as_received && batch.frames().iter().any(restored) {
            return Ok(evaluate_received(reader, &mut self.received, batch, within));
        }
        Ok(reader.evaluate_uncounted(batch, within))
    }

    /// Counts the frames `settled` of the batch last evaluated, for the passes that accepted them. To be called once
    /// the verdict of a frame is final, before the next evaluation.
    pub fn count(&mut self, settled: Mask) {
        let orphans = (settled & self.orphans).count() as u64;
        self.shared.orphans.fetch_add(orphans, Ordering::Relaxed);
        self.orphans = self.orphans.without(settled);
        if let Some((_, reader)) = self.links.get_mut(self.current) {
            reader.count(settled);
        }
    }

    fn link(&mut self, link: LinkType) -> Result<usize, FilterError> {
        if let Some(index) = self.links.iter().position(|(known, _)| *known == link) {
            return Ok(index);
        }
        let mut state = self.shared.lock();
        let index = state.link(link)?;
        self.links.push((link, state.links[index].passes.reader()));
        Ok(self.links.len() - 1)
    }
}

/// Judges the frames as the device gave them: a tag that the source has put back is in the metadata again. Costs a copy
/// of each such frame.
fn evaluate_received(
    reader: &mut Reader,
    room: &mut Vec<u8>,
    batch: &Batch<'_>,
    within: Mask,
) -> Mask {
    room.clear();
    let copies: Vec<_> = batch
        .frames()
        .iter()
        .map(|frame| {
            let start = room.len();
            frame.without_tag(room).map(|tag| (start..room.len(), tag))
        })
        .collect();
    let mut received = Batch::new();
    for (frame, copy) in batch.frames().iter().zip(copies) {
        let mut frame = *frame;
        if let Some((bytes, tag)) = copy {
            frame.wire_len = frame.wire_len.saturating_sub((frame.data.len() - bytes.len()) as u32);
            frame.data = &room[bytes];
            (frame.meta.vlan, frame.meta.restored) = (Some(tag), false);
        }
        // As many as there were, of the same link type: there is room.
        let _full = received.push(frame);
    }
    reader.evaluate_uncounted(&received, within)
}
