//! The kernel as a lower space ([`Superset`]): the texts of a [`FilterSet`](crate::FilterSet) in the kernel program of
//! the socket that the set's frames come from.
//!
//! | edit | while it is applied | afterwards |
//! |---|---|---|
//! | short texts | added to the kernel's before readers see them; equal forms share a table | removed texts leave it |
//! | long texts ([`LONG`]) | the kernel passes everything: one more text accepts all | a thread fills, then closes |
//! | the texts of the start, up to 1 MiB | – | become a program that runs faster than the interpreter |
//! | texts that came later | are interpreted | become such a program after 0.3 s without edits ([`generated`]) |
//! | texts that the kernel refuses | as for long ones | it stays open and tells the reason |
//!
//! Frames that the kernel rejects are counted there ([`KernelStage::rejected`]).

mod generated;

use crate::error::GroupError;
use crate::kernel::{ByHand, KernelFilters, LoweredGroup, SocketError};
use crate::superset::{LATER, Listing, Superset};
use crate::texts::Change;
use fyke_filter::Options;
use fyke_frame::LinkType;
use fyke_kernel::direct::Access;
use fyke_kernel::loader::{self, Held};
use fyke_kernel::{CountReader, Form, OpenError, Options as ProgramOptions, Sharing, Space};
use generated::Generator;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const _: () = assert!(LATER == fyke_kernel::layout::LATER);

/// Bytes of text from which an edit does not wait for the kernel.
const LONG: usize = 4 << 10;
/// Bytes of text up to which texts are brought into the kernel while the program may still be generated for them. Ten
/// thousand pairs of host and port have 400 KiB.
const AT_START: usize = 1 << 20;
/// Reason while a thread brings long texts into the kernel.
const FILLING: &str = "it is taking over the filters";

/// Texts in the kernel before a [`FilterSet`](crate::FilterSet); clones share them.
#[derive(Debug, Clone)]
pub struct KernelStage(Arc<Stage>);

#[derive(Debug)]
struct Stage {
    kernel: KernelFilters,
    counts: CountReader,
    /// True with a program that selects sockets: it evaluates the texts, and sockets take its decision over.
    distributes: bool,
    /// The maps in the process that may load programs once this one may not.
    held: Option<Held>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers in the kernel of texts.
    ids: BTreeMap<u64, u64>,
    /// Numbers in the kernel of the texts that only select a counter.
    later: Vec<u64>,
    /// Number in the kernel of the text that accepts everything; `None` while the texts decide.
    open: Option<u64>,
    /// Number of edits so far.
    edits: u64,
    /// True while long texts are to be brought into the kernel by a thread.
    filling: bool,
    /// True while there is that thread; there is one at most.
    has_filler: bool,
    /// Number of times that texts were brought in without it.
    fills: u64,
    /// Reason why the kernel cannot have the texts.
    reason: Option<String>,
    /// True once frames may be accepted by something that is no text.
    for_good: bool,
    /// True while there is no text, so that every frame is accepted; the kernel may still have the last ones.
    unfiltered: bool,
    /// True once threads may be started.
    begun: bool,
    /// The texts that the thread takes next.
    waiting: Option<Waiting>,
    generator: Generator,
}

/// Texts that the kernel gets later.
#[derive(Debug)]
struct Waiting {
    texts: Listing,
    /// Number of edits that they contain. An edit after these begins while the kernel passes everything: the kernel
    /// must do that until its texts are there.
    edits: u64,
}

impl KernelStage {
    /// Loads the kernel's program for the link type of `reading`, which must be as the set reads its texts. It passes
    /// every frame until texts arrive. `bytes` is the number of bytes to keep of each frame.
    ///
    /// # Errors
    /// If there is no kernel space, with what is missing.
    pub fn open(reading: Options, bytes: u32) -> Result<KernelStage, OpenError> {
        KernelStage::open_for(reading, bytes, false)
    }

    /// The same for a group of sockets, with a program that selects the socket of a frame by the class of the text that
    /// accepts it ([`share`](Self::share)).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_by_class(reading: Options, bytes: u32) -> Result<KernelStage, OpenError> {
        KernelStage::open_for(reading, bytes, true)
    }

    fn open_for(reading: Options, bytes: u32, distributes: bool) -> Result<KernelStage, OpenError> {
        let mut program =
            ProgramOptions { pass_capped: true, accept: bytes, distributes, ..Default::default() };
        // Kernels that need copies are older than 6.17; some of them take a second to refuse the loop.
        if program.access == Access::Copied {
            program.form = program.form.or(Some(Form::Callbacks));
        }
        KernelStage::open_with(reading, program)
    }

    /// Loads the program for frames at the driver of an interface with this address; see
    /// [`at_driver`](Self::at_driver).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_at_driver(reading: Options, address: [u8; 6]) -> Result<KernelStage, OpenError> {
        let program = ProgramOptions { pass_capped: true, ..ProgramOptions::at_driver(address) };
        KernelStage::open_with(reading, program)
    }

    fn open_with(reading: Options, program: ProgramOptions) -> Result<KernelStage, OpenError> {
        let kernel = KernelFilters::open_with(reading, program)?;
        let counts = kernel.count_reader();
        let distributes = program.distributes;
        let is_generated = !distributes && program.driver.is_none();
        let held = is_generated.then(|| kernel.space(Space::hold)).flatten();
        let state = Mutex::default();
        Ok(KernelStage(Arc::new(Stage { kernel, counts, distributes, held, state })))
    }

    /// Has the kernel filter the frames of a packet socket. Before the capture [begins](Superset::begin), while there
    /// is the right to load programs, the texts become one that runs faster than the interpreter.
    ///
    /// # Errors
    /// If the socket takes no program.
    pub fn attach(&self, socket: BorrowedFd<'_>, link: LinkType) -> Result<(), SocketError> {
        self.0.prepare(&mut self.0.lock(), link);
        self.0.kernel.attach(socket, link)
    }

    /// Lets texts that come while the capture runs become a generated program, too. `attach` calls
    /// [`attach`](Self::attach) for every socket that has a program, or tells the reason why one does not take it.
    pub fn generate_later(&self, attach: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.0.lock().generator.allow(Arc::new(attach));
    }

    /// Leaves texts that come while the capture runs to the interpreter, for this reason.
    pub fn interpret_later(&self, why: &str) {
        self.0.lock().generator.forbid(why.to_owned());
    }

    /// Describes the program that evaluates the texts; `None` while every frame passes.
    pub fn program(&self) -> Option<String> {
        self.texts()?;
        let (is_generated, interpreted) =
            self.0.kernel.space(|space| (space.is_specialised(), space.view().interpreted()));
        let text = match (is_generated, interpreted) {
            (true, 0) => return Some("its program is generated from them".to_owned()),
            (true, 1) => "its program is generated, with one pass interpreted".to_owned(),
            (true, more) => {
                format!("its program is generated, with {more} passes interpreted")
            }
            (false, _) => "its program interprets them".to_owned(),
        };
        let state = self.0.lock();
        Some(state.generator.why().map_or(text.clone(), |why| format!("{text}: {why}")))
    }

    /// Has a tap give the frames that it passes to the filter, in place of [`attach`](Self::attach).
    ///
    /// # Errors
    /// The error of `follow`.
    pub fn follow(
        &self,
        link: LinkType,
        follow: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.0.prepare(&mut self.0.lock(), link);
        self.0.kernel.space(|space| space.with_socket_program(follow))?
    }

    /// Puts the filter at a place at the driver, by `put`; it gives accepted frames to the program `deliver`.
    ///
    /// # Errors
    /// The error of `put`, or the kernel refuses.
    pub fn at_driver(
        &self,
        deliver: BorrowedFd<'_>,
        put: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.0.kernel.space(|space| space.with_driver_program(deliver, put))?
    }

    /// Gives the program that selects the socket of a frame to `share`. Frames of no text, or of one without a class,
    /// are distributed by conversation.
    ///
    /// # Errors
    /// The error of `share`, or the stage was not opened for this.
    pub fn share(&self, share: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        self.0.kernel.space(|space| space.with_fanout_program(share))?
    }

    /// Sets the classes of texts: those that are in the kernel at once, others when they are added. Class 1 is the
    /// first socket of the group. A text that the map lacks keeps its class.
    pub fn set_classes(&self, classes: BTreeMap<String, u32>) {
        let state = &mut *self.0.lock();
        let changed = self.0.kernel.set_classes(classes);
        let changed: Vec<_> = changed
            .iter()
            .filter_map(|(id, text)| {
                let number = state.ids.iter().find(|(_, known)| *known == id)?.0;
                Some((*number, *id, text))
            })
            .collect();
        let added = changed.iter().map(|(_, _, text)| Change::Add(text));
        let removed = changed.iter().map(|(_, id, _)| Change::Remove(*id));
        let group: Vec<_> = added.chain(removed).collect();
        // Without room, frames go to another socket than they could: that costs time, and no frame.
        if let Ok(ids) = self.0.kernel.edit(&group) {
            let numbers = changed.iter().map(|(number, ..)| *number);
            state.ids.extend(numbers.zip(ids.into_iter().flatten()));
        }
    }

    /// The texts in the kernel, to look at; only the set before it edits them.
    pub fn kernel(&self) -> &KernelFilters {
        &self.0.kernel
    }

    /// Number of frames that the kernel rejected.
    pub fn rejected(&self) -> u64 {
        self.0.counts.rejected()
    }

    /// The part of them that only a later filter of a chain rejected, for each counter
    /// ([`Superset::count_later`]).
    pub fn later(&self) -> [u64; LATER] {
        self.0.counts.later()
    }

    /// The maps of its counters, for a process after this one ([`CountReader::of`]).
    pub fn count_maps(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.0.counts.maps()
    }

    /// Passes one in `one_in` of the frames that the texts reject, chosen at random; 0 (the default) = none. Such a
    /// frame is not part of [`rejected`](Self::rejected): the set evaluates, rejects and counts it. Set it before
    /// [`attach`](Self::attach).
    pub fn set_sample(&self, one_in: u32) {
        self.0.kernel.set_sample(one_in);
    }

    /// Number of frames that passed as a sample.
    pub fn sampled(&self) -> u64 {
        self.0.counts.sampled()
    }

    /// Reason why the kernel passes everything at the moment; `None` if its texts decide.
    pub fn reason(&self) -> Option<String> {
        let state = self.0.lock();
        let passes_all = state.open.is_some() || state.ids.is_empty();
        match state.reason.clone() {
            None if state.filling => Some(FILLING.to_owned()),
            None if passes_all => Some("no filter rejects a frame".to_owned()),
            reason => reason,
        }
    }

    /// True if texts decide, or will soon: while not, a socket needs no program.
    pub fn is_needed(&self) -> bool {
        let state = self.0.lock();
        !state.for_good && !state.unfiltered && (state.filling || !state.ids.is_empty())
    }

    /// Number of texts in the kernel while these decide; `None` while every frame passes.
    pub fn texts(&self) -> Option<usize> {
        let state = self.0.lock();
        (state.open.is_none() && !state.ids.is_empty()).then_some(state.ids.len())
    }
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the kernel as it was before or after an edit; both pass enough.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel passes every frame. That fails only if the kernel has no room for one more pass; then all texts go,
    /// because the kernel without a text passes everything, too.
    fn open(&self, state: &mut State) {
        if state.open.is_some() || state.ids.is_empty() {
            return;
        }
        match self.kernel.add("") {
            Ok(id) => state.open = Some(id),
            Err(_no_room) => {
                // Cannot fail: it removes all.
                let _removed = self.kernel.set("");
                state.ids.clear();
                state.later.clear();
            }
        }
    }

    /// Before the capture begins: brings texts that wait for it into the kernel, if they are not too long, and
    /// generates the program for them.
    fn prepare(&self, state: &mut State, link: LinkType) {
        if state.begun {
            return;
        }
        let edits = state.edits;
        let is_soon_done = |waiting: &mut Waiting| {
            let bytes = waiting.texts.values().map(|text| text.len()).sum::<usize>();
            waiting.edits == edits && bytes <= AT_START
        };
        if let Some(waiting) = state.waiting.take_if(is_soon_done) {
            state.filling = false;
            if let Err(refused) = self.fill(state, &waiting.texts) {
                self.refuse(state, &refused);
            }
        }
        if !state.ids.is_empty() && !self.distributes {
            // The interpreter, which runs without it, has the same verdicts.
            let specialised = self.kernel.specialise(link);
            if specialised.is_ok() {
                state.generator.settle(self.kernel.space(|space| space.view().edit_count()));
            }
        }
    }

    /// Makes the kernel's texts those of the list, and lets them decide, in one step. Everything is lowered before the
    /// kernel's lock is taken.
    fn fill(&self, state: &mut State, texts: &Listing) -> Result<(), GroupError> {
        let mut group = Group::new(state, texts);
        group.changes.extend(state.open.map(OwnedChange::Remove));
        let changes: Vec<_> = group.changes.iter().map(OwnedChange::borrow).collect();
        let lowered = self.kernel.lower(&changes)?;
        self.enter(state, lowered, &group)?;
        state.fills += 1;
        state.open = None;
        Ok(())
    }

    /// Applies the changes of a group.
    fn enter(
        &self,
        state: &mut State,
        lowered: LoweredGroup<'_>,
        group: &Group,
    ) -> Result<(), GroupError> {
        let ids = self.kernel.apply(lowered, ByHand::Stay)?;
        for id in &group.gone {
            state.ids.remove(id);
        }
        state.ids.extend(group.new.iter().copied().zip(ids.into_iter().flatten()));
        state.reason = None;
        Ok(())
    }

    fn refuse(&self, state: &mut State, refused: &GroupError) {
        self.open(state);
        state.reason = Some(in_a_line(refused));
    }

    /// Replaces the texts that only select a counter.
    fn count_later(&self, state: &mut State, texts: &[(String, usize)]) -> Result<(), String> {
        let why_not = state.reason.clone().filter(|_| !texts.is_empty());
        let new: Vec<_> = texts.iter().map(|(text, slot)| (text.as_str(), *slot)).collect();
        let new = if why_not.is_some() { &[][..] } else { &new };
        if !new.is_empty() || !state.later.is_empty() {
            // Without a text that accepts, those that count would reject every frame.
            let opened = if state.ids.is_empty() { self.pass_all(state) } else { Ok(()) };
            match opened.and_then(|()| self.kernel.count_later(&state.later, new)) {
                Ok(ids) => state.later = ids,
                Err(refused) => {
                    // Removing needs no room.
                    let _removed = self.kernel.count_later(&state.later, &[]);
                    state.later.clear();
                    return Err(in_a_line(&refused));
                }
            }
        }
        why_not.map_or(Ok(()), Err)
    }
}

/// The first line of a refusal; those after it show the place in the text.
fn in_a_line(refused: &GroupError) -> String {
    refused.error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The changes that make the kernel's texts those of a list.
struct Group {
    changes: Vec<OwnedChange>,
    /// Numbers of the texts that are added, in the order of the changes, which begin with them.
    new: Vec<u64>,
    /// Numbers of those that leave.
    gone: Vec<u64>,
}

/// A change that a thread can own.
enum OwnedChange {
    Add(Arc<str>),
    Remove(u64),
}

impl OwnedChange {
    fn borrow(&self) -> Change<'_> {
        match self {
            OwnedChange::Add(text) => Change::Add(text),
            OwnedChange::Remove(id) => Change::Remove(*id),
        }
    }
}

impl Group {
    fn new(state: &State, texts: &Listing) -> Group {
        let missing = texts.iter().filter(|(id, _)| !state.ids.contains_key(id));
        let (new, mut changes): (Vec<_>, Vec<_>) =
            missing.map(|(&id, text)| (id, OwnedChange::Add(Arc::clone(text)))).unzip();
        let gone: Vec<_> = state.ids.keys().copied().filter(|id| !texts.contains_key(id)).collect();
        changes.extend(gone.iter().map(|id| OwnedChange::Remove(state.ids[id])));
        Group { changes, new, gone }
    }
}

impl Superset for KernelStage {
    fn begin(&self) {
        let state = &mut *self.0.lock();
        state.begun = true;
        // The texts that come from now on are interpreted at first, and the set after the kernel counts them.
        self.0.kernel.set_sharing(Sharing::Soon);
        if let Some(waiting) = state.waiting.take() {
            self.fill_later(state, waiting);
        }
        if self.0.held.is_none() && loader::current().is_some() {
            state
                .generator
                .forbid("the process that loads programs has not taken it over".to_owned());
        }
    }

    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        let state = &mut *self.0.lock();
        self.widened(state, added, unfiltered);
        generated::after_edit(&self.0, state);
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        let state = &mut *self.0.lock();
        self.narrowed(state, texts, removed);
        generated::after_edit(&self.0, state);
    }

    fn why_not_later(&self) -> Option<String> {
        self.0.distributes.then(|| "it selects the ring of a frame".to_owned())
    }

    fn count_later(&self, texts: &[(String, usize)]) -> Result<(), String> {
        let state = &mut *self.0.lock();
        let counted = self.0.count_later(state, texts);
        generated::after_edit(&self.0, state);
        counted
    }

    fn open_for_good(&self, reason: &'static str) {
        let state = &mut *self.0.lock();
        self.0.open(state);
        (state.for_good, state.reason) = (true, Some(reason.to_owned()));
    }
}

impl KernelStage {
    fn widened(&self, state: &mut State, added: &[(u64, &str)], unfiltered: bool) {
        state.edits += 1;
        if state.for_good || state.open.is_some() || state.ids.is_empty() {
            // Everything passes already.
            return;
        }
        if unfiltered || added.iter().map(|(_, text)| text.len()).sum::<usize>() >= LONG {
            return self.0.open(state);
        }
        let changes: Vec<_> = added.iter().map(|&(_, text)| Change::Add(text)).collect();
        match self.0.kernel.edit(&changes) {
            Ok(ids) => {
                state.ids.extend(added.iter().map(|&(id, _)| id).zip(ids.into_iter().flatten()))
            }
            Err(refused) => self.0.refuse(state, &refused),
        }
    }

    fn narrowed(&self, state: &mut State, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        (state.filling, state.waiting) = (false, None);
        if state.for_good {
            return;
        }
        if state.open.is_none() && !state.ids.is_empty() {
            // Widened by short texts: only what left has to go.
            let known: Vec<_> =
                removed.iter().copied().filter(|id| state.ids.contains_key(id)).collect();
            let changes: Vec<_> = known.iter().map(|id| Change::Remove(state.ids[id])).collect();
            if known.len() == state.ids.len() && !state.later.is_empty() {
                // Those that only select a counter would be left, and reject every frame.
                return self.0.open(state);
            }
            return match self.0.kernel.edit(&changes) {
                Ok(_) => state.ids.retain(|id, _| !known.contains(id)),
                Err(refused) => self.0.refuse(state, &refused),
            };
        }
        if state.reason.is_some() && removed.is_empty() {
            // What the kernel refused does not fit when there is more of it.
            return;
        }
        let texts = texts();
        let missing = texts.iter().filter(|(id, _)| !state.ids.contains_key(id));
        state.unfiltered = texts.is_empty();
        if state.unfiltered {
            state.reason = None;
            return;
        }
        if missing.map(|(_, text)| text.len()).sum::<usize>() >= LONG {
            let edits = state.edits;
            return self.fill_later(state, Waiting { texts, edits });
        }
        if let Err(refused) = self.0.fill(state, &texts) {
            self.0.refuse(state, &refused);
        }
    }

    /// Fills the kernel on a thread of its own. If the texts change meanwhile, the thread continues with the
    /// difference.
    fn fill_later(&self, state: &mut State, waiting: Waiting) {
        (state.filling, state.waiting, state.reason) = (true, Some(waiting), None);
        if !state.begun || state.has_filler {
            return;
        }
        let stage = Arc::clone(&self.0);
        let fill = move || {
            crate::user::lower_own_priority();
            while stage.fill_some() {}
            generated::after_edit(&stage, &mut stage.lock());
        };
        match std::thread::Builder::new().name("fyke-fill".into()).spawn(fill) {
            Ok(_) => state.has_filler = true,
            // Everything continues to pass; the next edit tries again.
            Err(error) => {
                (state.filling, state.waiting) = (false, None);
                state.reason = Some(format!("no thread: {error}"));
            }
        }
    }
}

impl Stage {
    /// Brings the texts that wait into the kernel, and closes it if these are still the texts; false if there are none,
    /// so that the thread ends.
    fn fill_some(&self) -> bool {
        let mut state = self.lock();
        let Some(Waiting { texts, edits }) = state.waiting.take() else {
            state.has_filler = false;
            return false;
        };
        let (fills, group) = (state.fills, Group::new(&state, &texts));
        drop(state);
        let changes: Vec<_> = group.changes.iter().map(OwnedChange::borrow).collect();
        let lowered = self.kernel.lower(&changes);
        let state = &mut *self.lock();
        if !state.filling || state.for_good || state.fills != fills {
            return true;
        }
        // Until all texts of the last edit are there, one more accepts everything.
        let entered = self.pass_all(state).and_then(|()| self.enter(state, lowered?, &group));
        match entered {
            Ok(()) if state.edits != edits => {}
            Ok(()) => {
                state.filling = false;
                if let Err(refused) = self.close(state) {
                    self.refuse(state, &refused);
                }
            }
            Err(_) if state.waiting.is_some() => {}
            Err(refused) => {
                state.filling = false;
                self.refuse(state, &refused);
            }
        }
        true
    }

    /// Has one text accept everything beside those that are being brought in.
    fn pass_all(&self, state: &mut State) -> Result<(), GroupError> {
        if state.open.is_none() {
            state.open = Some(self.kernel.add("").map_err(GroupError::at(0))?);
        }
        Ok(())
    }

    /// The texts decide from now on.
    fn close(&self, state: &mut State) -> Result<(), GroupError> {
        if let Some(open) = state.open {
            self.kernel.edit(&[Change::Remove(open)])?;
            state.open = None;
        }
        Ok(())
    }
}
