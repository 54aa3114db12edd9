//! Filter texts in the kernel: a program for each link type of the sockets, all with the same texts.
//!
//! Texts are compiled as for a live capture: a tag that the device removed is in the metadata, and frames have a
//! direction. Compiling and lowering happen before the lock is taken. Under the lock, every link type first *prepares*
//! the group of changes, which includes each step that can be refused; then all apply it. A refusal cancels the
//! preparation: numbers, counts and passes remain as before. Only a new link type is slow under the lock: its program
//! is loaded (about 20 ms) and all texts are lowered for it.
//!
//! Passes made by hand ([`KernelFilters::by_hand`]) follow those of texts. Passes of a text change only with the text.

mod link;

use crate::error::{FilterError, GroupError};
use crate::lowered::{Fit, LoweredTexts};
use crate::texts::{Change, Texts};
use crate::user::{BY_HAND, CallsRefused, HandCalls};
use crate::view::{FilterCount, FilterView};
use fyke_filter::Options;
use fyke_frame::LinkType;
pub use fyke_kernel::ByHand;
use fyke_kernel::{
    AttachError, CountReader, Form, KernelEditError, KernelPassId, KernelPasses, OpenError,
    PacketSocket, Sharing, Snapshot, Space, Tallies,
};
use link::{LinkFilters, Pending};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of bits for the number of a pass; the bits above hold its link type.
const LINK_SHIFT: u32 = 32;

/// Reason why a socket did not get the filters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The program for the socket's link type cannot be loaded.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A text does not fit the socket's link type.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The socket does not accept a program.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Filter texts in force on packet sockets, editable from any thread.
#[derive(Debug)]
pub struct KernelFilters {
    /// Reading of texts; the link type is that of each socket.
    reading: Options,
    writer: Mutex<Writer>,
    epoch: AtomicU64,
    /// Frames that removed passes had accepted, as far as they have been counted.
    removed: AtomicU64,
}

#[derive(Debug)]
struct Writer {
    texts: Texts,
    /// One for each link type that a socket has had; the first exists from the start.
    links: Vec<LinkFilters>,
    reading: Options,
    options: fyke_kernel::Options,
    /// Number of bytes to keep of accepted frames, if it was set.
    accept: Option<u32>,
    /// One in this number of rejected frames passes; 0 = none.
    sample: u32,
    /// Classes of texts that are added from now on.
    classes: BTreeMap<String, u32>,
    sharing: Sharing,
}

/// A group of changes with its texts lowered for the link types in use.
#[derive(Debug)]
pub struct LoweredGroup<'a> {
    changes: &'a [Change<'a>],
    texts: LoweredTexts,
    /// Classes of texts, by the index of their change.
    classes: BTreeMap<usize, u32>,
}

impl KernelFilters {
    /// Loads the program for a link type. Without a text, every frame is accepted.
    ///
    /// # Errors
    /// The system has no kernel space.
    pub fn open(link: LinkType) -> Result<KernelFilters, OpenError> {
        let reading = Options { link, live: true, netmask: Some(0), ..Options::default() };
        KernelFilters::open_with(reading, fyke_kernel::Options::default())
    }

    /// The same with a way to read texts, and options for the program of each link type.
    ///
    /// # Errors
    /// As [`KernelFilters::open`].
    pub(crate) fn open_with(
        reading: Options,
        options: fyke_kernel::Options,
    ) -> Result<KernelFilters, OpenError> {
        let links = vec![LinkFilters::new(Space::open(options)?, reading.link)];
        let writer = Writer {
            texts: Texts::default(),
            links,
            reading,
            options,
            accept: None,
            sample: 0,
            classes: BTreeMap::new(),
            sharing: Sharing::default(),
        };
        let (epoch, removed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(KernelFilters { reading, writer: Mutex::new(writer), epoch, removed })
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        // At worst, a panic in another thread leaves a group that only some link types have.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Form of the program.
    pub fn form(&self) -> Form {
        self.lock().links[0].space.form()
    }

    /// Compiles and lowers the texts of a group, without a lock, for [`KernelFilters::apply`].
    ///
    /// # Errors
    /// A text does not fit all link types of the sockets so far.
    pub fn lower<'a>(&self, changes: &'a [Change<'a>]) -> Result<LoweredGroup<'a>, GroupError> {
        let links = self.lock().link_types();
        let mut texts = LoweredTexts::default();
        texts.lower(changes, &links, |text, link| self.lower_one(text, link))?;
        let group = LoweredGroup { changes, texts, classes: BTreeMap::new() };
        group.check().map(|()| group)
    }

    fn lower_one(&self, text: &str, link: LinkType) -> Result<Fit, FilterError> {
        link::lower(text, &Options { link, ..self.reading })
    }

    /// Applies a group of changes as one edit, all of it or nothing. Returns the number of each new text.
    ///
    /// # Errors
    /// The first change that is refused.
    pub fn apply(
        &self,
        group: LoweredGroup<'_>,
        by_hand: ByHand,
    ) -> Result<Vec<Option<u64>>, GroupError> {
        if group.changes.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.lock().apply(group, by_hand)?;
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(ids)
    }

    /// Lowers and applies a group, by [`KernelFilters::lower`] and [`KernelFilters::apply`].
    ///
    /// # Errors
    /// The first change that is refused.
    pub fn edit(&self, changes: &[Change<'_>]) -> Result<Vec<Option<u64>>, GroupError> {
        self.apply(self.lower(changes)?, ByHand::Stay)
    }

    /// Replaces texts that reject the frames that they match by others, in their order, each with the number of its
    /// counter ([`Superset::count_later`](crate::Superset::count_later)). Returns their numbers.
    ///
    /// # Errors
    /// A text is refused; then nothing has changed.
    pub(crate) fn count_later(
        &self,
        old: &[u64],
        new: &[(&str, usize)],
    ) -> Result<Vec<u64>, GroupError> {
        let added = new.iter().map(|(text, _)| Change::Add(text));
        let changes: Vec<_> = added.chain(old.iter().map(|&id| Change::Remove(id))).collect();
        let mut group = self.lower(&changes)?;
        let class = |(place, (_, slot)): (usize, &(&str, usize))| {
            (place, fyke_kernel::later(place as u32, *slot as u32))
        };
        group.classes = new.iter().enumerate().map(class).collect();
        Ok(self.apply(group, ByHand::Stay)?.into_iter().flatten().collect())
    }

    /// Adds a text: frames that it matches are accepted, too. Returns its number.
    ///
    /// # Errors
    /// The text is not a filter, cannot run in the kernel, or does not fit.
    pub fn add(&self, text: &str) -> Result<u64, FilterError> {
        let ids = self.edit(&[Change::Add(text)]).map_err(|refused| refused.error)?;
        Ok(ids.into_iter().flatten().next().unwrap_or_default())
    }

    /// Replaces all texts by one, in one step; an empty text accepts every frame. Returns its number.
    ///
    /// # Errors
    /// As [`KernelFilters::add`].
    pub fn set(&self, text: &str) -> Result<Option<u64>, FilterError> {
        let ids = self.edit(&[Change::Set(text)]).map_err(|refused| refused.error)?;
        Ok(ids.into_iter().flatten().next())
    }

    /// Removes a text, unless every frame would be accepted without it.
    ///
    /// # Errors
    /// There is no such text, or it is the last one.
    pub fn remove(&self, id: u64) -> Result<(), FilterError> {
        self.edit(&[Change::Remove(id)]).map(drop).map_err(|refused| refused.error)
    }

    /// Number of edits of the texts.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.lock().texts.listed().len()
    }

    /// True if there is no text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the filter of a socket with these filters. The first socket of a link type loads its program.
    ///
    /// # Errors
    /// The program cannot be loaded, a text does not fit the link type, or the socket accepts no program.
    pub fn attach(&self, socket: BorrowedFd<'_>, link: LinkType) -> Result<(), SocketError> {
        let mut writer = self.lock();
        let place = writer.link(link)?;
        Ok(writer.links[place].space.attach(socket)?)
    }

    /// Gives the program that sockets of a link type get to `take`, now and whenever another takes its place: for a
    /// program that runs before it. One at most.
    ///
    /// # Errors
    /// The program cannot be loaded, a text does not fit the link type, or `take` fails.
    pub fn give_program(
        &self,
        link: LinkType,
        take: impl Fn(BorrowedFd<'_>) -> std::io::Result<()> + Send + 'static,
    ) -> Result<(), SocketError> {
        let mut writer = self.lock();
        let place = writer.link(link)?;
        writer.links[place].give_program(Box::new(take)).map_err(AttachError::from)?;
        Ok(())
    }

    /// Generates a program of the present texts; sockets that are attached from now on run it. Texts that are edited
    /// later are interpreted. Without a program, and with a sample, all texts are.
    pub(crate) fn specialise(&self, link: LinkType) -> Result<(), SocketError> {
        let mut writer = self.lock();
        let place = writer.link(link)?;
        if writer.sample == 0 {
            writer.links[place].space.specialise().map_err(AttachError::from)?;
        }
        Ok(())
    }

    /// Sets the number of bytes to keep of accepted frames.
    pub fn set_accept(&self, bytes: u32) {
        let mut writer = self.lock();
        writer.accept = Some(bytes);
        writer.links.iter_mut().for_each(|one| one.space.passes().set_accept(bytes));
    }

    /// Sets when texts share tables, from the next edit on.
    pub(crate) fn set_sharing(&self, sharing: Sharing) {
        let mut writer = self.lock();
        writer.sharing = sharing;
        writer.links.iter_mut().for_each(|one| one.set_sharing(sharing));
    }

    /// Accepts one in `one_in` of the frames that no text accepts, chosen at random; 0 (the default) = none.
    pub(crate) fn set_sample(&self, one_in: u32) {
        let mut writer = self.lock();
        writer.sample = one_in;
        writer.links.iter_mut().for_each(|one| one.space.passes().set_sample(one_in));
    }

    /// Sets the classes of texts that are added from now on, and returns the numbers and texts of those that have
    /// another class so far. A text that the map lacks keeps its class; one that is new has none (0).
    pub(crate) fn set_classes(&self, classes: BTreeMap<String, u32>) -> Vec<(u64, Arc<str>)> {
        let mut writer = self.lock();
        let old = std::mem::replace(&mut writer.classes, classes);
        let changed = |text: &str| {
            let class = writer.classes.get(text);
            class.is_some_and(|class| old.get(text).unwrap_or(&0) != class)
        };
        let listed = writer.texts.listed().iter().filter(|(_, text)| changed(text));
        listed.map(|(&id, text)| (id, Arc::clone(text))).collect()
    }

    /// Does the work that is due for passes that have been stable for a while. `sockets` must call its argument with
    /// every socket that has the filters.
    ///
    /// # Errors
    /// A socket does not accept the program; it keeps the one that it has.
    pub fn tune(&self, sockets: impl Fn(&mut dyn FnMut(&PacketSocket))) -> Result<(), AttachError> {
        let mut writer = self.lock();
        let tuned: Vec<_> = writer.links.iter_mut().map(|one| one.tune(&sockets)).collect();
        tuned.into_iter().collect()
    }

    /// The counters of the program of the first link type, readable while an edit is being applied.
    pub(crate) fn count_reader(&self) -> CountReader {
        self.lock().links[0].space.count_reader()
    }

    /// Frames accepted and rejected, on all link types.
    pub fn tallies(&self) -> Tallies {
        let writer = self.lock();
        let mut sum = Tallies::default();
        for one in writer.links.iter().map(|one| one.space.tallies()) {
            sum.accepted += one.accepted;
            sum.rejected += one.rejected;
            sum.unfiltered += one.unfiltered;
            sum.capped += one.capped;
        }
        sum
    }

    /// Frames that texts and passes had accepted that have been removed. Exact while no frames arrive; otherwise the
    /// kernel counts on while the counts are read, and it is at most the true number.
    pub fn removed(&self) -> u64 {
        let writer = self.lock();
        let left = |link: &LinkFilters| {
            // In this order: a frame that arrives in between is counted as one of a pass that is there.
            let accepted = link.space.tallies().accepted;
            accepted.saturating_sub(link.counts().sum())
        };
        let now = writer.links.iter().map(left).sum();
        self.removed.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// The texts with their current counts.
    pub fn counts(&self) -> Vec<FilterCount> {
        let writer = self.lock();
        let counts: Vec<_> = writer.links.iter().map(LinkFilters::counts).collect();
        let links = || writer.links.iter().zip(&counts);
        let count = |(&id, text): (&u64, &Arc<str>)| FilterCount {
            id,
            text: text.clone(),
            accepted: links().map(|(link, counts)| link.accepted(id, counts)).sum(),
        };
        writer.texts.listed().iter().map(count).collect()
    }

    /// The texts with their current counts and passes. All passes that are rows of a table are shown as one. Numbers of
    /// passes are unique over all link types.
    pub fn view(&self) -> Vec<FilterView> {
        let writer = self.lock();
        let counts: Vec<_> = writer.links.iter().map(LinkFilters::counts).collect();
        let view = |(&id, text): (&u64, &Arc<str>)| {
            let mut passes = Vec::new();
            for (place, (link, counts)) in writer.links.iter().zip(&counts).enumerate() {
                let own = link.described(id, counts).into_iter();
                passes.extend(own.map(|mut pass| {
                    pass.id |= (place as u64) << LINK_SHIFT;
                    pass
                }));
            }
            let accepted = passes.iter().map(|pass| pass.accepted).sum();
            FilterView { filter: FilterCount { id, text: text.clone(), accepted }, passes }
        };
        writer.texts.listed().iter().map(view).collect()
    }

    /// Calls `look` with the space of the first link type.
    pub fn space<T>(&self, look: impl FnOnce(&Space) -> T) -> T {
        look(&self.lock().links[0].space)
    }

    /// Calls `edit` with the space of the first link type.
    pub(crate) fn space_mut<T>(&self, edit: impl FnOnce(&mut Space) -> T) -> T {
        edit(&mut self.lock().links[0].space)
    }

    /// Copies the passes of the first link type for a generated program; `None` for sockets of a cooked capture, and
    /// with a sample, which such a program does not take.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn snapshot(&self) -> std::io::Result<Option<Snapshot>> {
        let writer = self.lock();
        let space = &writer.links[0].space;
        let is_possible = writer.sample == 0 && !space.is_cooked();
        is_possible.then(|| space.snapshot()).transpose()
    }

    /// Edits passes of the first link type by hand, as calls of a client do: one edit, all of it or nothing. They are
    /// beside those of the texts, and frames of other link types are evaluated by the texts alone. Returns the passes
    /// that were made.
    ///
    /// # Errors
    /// A call is refused, or the kernel cannot run a pass.
    pub fn edit_by_calls(&self, calls: &mut HandCalls<'_>) -> Result<Vec<u64>, CallsRefused> {
        let links = &mut self.lock().links;
        let made = links[0].edit_by_hand(|edit| (calls.carry_out)(edit))?;
        let has_by_hand = links[0].has_by_hand();
        links[1..].iter_mut().for_each(|link| link.set_rejects_if_empty(has_by_hand));
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(made)
    }

    /// The passes that such calls have made, with their counts, under the number 0; `None` if there are none.
    pub fn made_by_calls(&self) -> Option<FilterView> {
        let first = &self.lock().links[0];
        let passes = first.described_by_hand(&first.counts());
        let accepted = passes.iter().map(|pass| pass.accepted).sum();
        let filter = FilterCount { id: 0, text: BY_HAND.into(), accepted };
        (!passes.is_empty()).then_some(FilterView { filter, passes })
    }

    /// Edits passes of the first link type by hand; they follow those of the texts. `pass` is the pass to edit.
    ///
    /// # Errors
    /// The pass belongs to a text.
    pub fn by_hand<T>(
        &self,
        pass: Option<KernelPassId>,
        edit: impl FnOnce(&mut KernelPasses) -> Result<T, KernelEditError>,
    ) -> Result<T, ByHandError> {
        let first = &mut self.lock().links[0];
        if let Some(pass) = pass.filter(|pass| first.owns(*pass)) {
            return Err(ByHandError::OfText { pass });
        }
        Ok(edit(first.space.passes())?)
    }
}

/// Reason why a pass cannot be edited by hand.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ByHandError {
    /// The pass belongs to a text.
    #[error("pass {} belongs to a text, which can only be removed or replaced as a whole", .pass.0)]
    OfText {
        /// The pass.
        pass: KernelPassId,
    },
    /// The kernel refuses the edit.
    #[error(transparent)]
    Edit(#[from] KernelEditError),
}

impl LoweredGroup<'_> {
    /// Checks that every text fits all link types: the kernel cannot count frames of a link type that a text does not
    /// fit.
    fn check(&self) -> Result<(), GroupError> {
        for (place, fits) in self.texts.iter() {
            if let Some(Err(unfit)) = fits.iter().find(|fit| fit.is_err()) {
                return Err(GroupError { place, error: unfit.clone().into() });
            }
        }
        Ok(())
    }
}

impl Writer {
    fn link_types(&self) -> Vec<LinkType> {
        self.links.iter().map(LinkFilters::link).collect()
    }

    /// Index of the filters for a link type; makes them if the link type is new.
    fn link(&mut self, link: LinkType) -> Result<usize, SocketError> {
        if let Some(place) = self.links.iter().position(|one| one.link() == link) {
            return Ok(place);
        }
        let mut made = LinkFilters::new(Space::open(self.options)?, link);
        made.set_sharing(self.sharing);
        made.fill(self.texts.listed(), &self.reading)?;
        if let Some(bytes) = self.accept {
            made.space.passes().set_accept(bytes);
        }
        made.space.passes().set_sample(self.sample);
        made.set_rejects_if_empty(self.links[0].has_by_hand());
        self.links.push(made);
        Ok(self.links.len() - 1)
    }

    fn apply(
        &mut self,
        mut group: LoweredGroup<'_>,
        by_hand: ByHand,
    ) -> Result<Vec<Option<u64>>, GroupError> {
        let reading = self.reading;
        // For link types that have appeared since the texts were lowered.
        let lower = |text: &str, link| link::lower(text, &Options { link, ..reading });
        group.texts.lower(group.changes, &self.link_types(), lower)?;
        group.check()?;
        let others = by_hand == ByHand::Stay && self.links.iter().any(LinkFilters::has_others);
        let resolved = self.texts.resolve(group.changes, others)?;
        let mut lowered = group.texts.fitting();
        let class_of = |place: usize| {
            let text = group.changes.get(place).and_then(|change| change.text());
            let own = group.classes.get(&place);
            own.or_else(|| self.classes.get(text?)).copied().unwrap_or(0)
        };
        let mut pending: Vec<Pending<'_>> = Vec::with_capacity(self.links.len());
        for (index, link) in self.links.iter_mut().enumerate() {
            let take = |place| lowered.take(place, index);
            match link.prepare(&resolved, take, class_of, by_hand) {
                Ok(prepared) => pending.push(prepared),
                Err(refused) => {
                    pending.into_iter().for_each(Pending::cancel);
                    return Err(blame(group.changes, refused));
                }
            }
        }
        let committed: Vec<_> = pending.into_iter().map(Pending::commit).collect();
        let links = self.links.iter_mut().zip(committed);
        let applied: Vec<_> =
            links.map(|(link, committed)| link.apply(&resolved, committed)).collect();
        self.texts.apply(&resolved, group.changes);
        // Everything that the kernel can refuse was prepared, so an error here is a bug.
        applied.into_iter().collect::<Result<(), _>>().map_err(GroupError::at(0))?;
        Ok(resolved.ids)
    }
}

/// Finds the change with the text that the kernel refuses; the error quotes only the start of a long text.
fn blame(changes: &[Change<'_>], refused: GroupError) -> GroupError {
    let FilterError::Kernel(KernelEditError::Text { text, .. }) = &refused.error else {
        return refused;
    };
    let quoted = text.trim_end_matches(" …");
    let names = |change: &Change<'_>| change.text().is_some_and(|text| text.starts_with(quoted));
    let place = changes.iter().position(names).unwrap_or(refused.place);
    GroupError { place, ..refused }
}
