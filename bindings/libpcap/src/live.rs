//! A capture of a service: the connection, the texts in force, and the frames that wait for the program.
//!
//! ```text
//! ring of the service ─▶ chunk ─▶ filters ─▶ accepted frames ─▶ one frame after the other ─▶ the program
//!                                    ▲ edits: pcap_setfilter, fyke ctl └ evaluated again after an edit
//! ```
//!
//! The texts are a [`FilterSet`], which the service has, too: it stores no frames that they reject. The set decides
//! again here, so after `pcap_setfilter` a program gets only frames of the new filter, whatever the ring still holds.
//! Locks are held for moments, never while the program runs or this thread waits.

use crate::fork::NoFork;
use crate::reading::{Form, Reading, Rule, Taken};
use crate::wakes::Wakes;
use fyke_capture::{FrameServer, SharedSource, Source};
use fyke_control::{Accounting, Description, FilterCount, NOT_COUNTED, Stats};
use fyke_filter::Options;
use fyke_filters::{
    Author, CallsRefused, Change, Edit, EditLog, Edited, Edits, FilterError, FilterSet, GroupError,
    HandCalls, Inputs, Tags, UndoError,
};
use fyke_frame::LinkType;
use fyke_machine::bpf::run::Program;
use fyke_serve::lower::Lower;
use fyke_serve::{ConnectError, Connection};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longest wait for a thread that reads, in calls that may run in a signal handler.
const PATIENCE: Duration = Duration::from_millis(200);
/// Most programs without a text that an undo can bring back.
const MAX_REPLACED: usize = 64;
/// Refusal of a change that the instructions of a program have no place for.
const NO_TEXT: &str = "the program's own filter is instructions without a text, to which nothing can be added: `set` \
                       replaces it, and `undo` brings it back";

/// Reasons why there is no capture.
#[derive(Debug)]
pub enum OpenError {
    /// There is no such service.
    NotThere(String),
    /// It does not serve this user.
    Refused(String),
    /// Anything else.
    Other(String),
}

/// Reasons why a filter is not set; the one before stays.
#[derive(Debug)]
pub enum SetError {
    /// The text is refused.
    Text(String),
    /// The service does not answer, or has ended.
    Service(String),
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> OpenError {
        let text = error.to_string();
        match error {
            ConnectError::NotThere { .. } => OpenError::NotThere(text),
            ConnectError::Refused { .. } | ConnectError::Stranger { .. } => {
                OpenError::Refused(text)
            }
            _ => OpenError::Other(text),
        }
    }
}

/// Counts of libpcap.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Frames that the filter has accepted, with the lost ones.
    pub received: u64,
    /// Frames that were lost.
    pub lost: u64,
}

/// The frames, locked; the program cannot fork meanwhile.
struct Locked<'a> {
    reading: MutexGuard<'a, Reading>,
    _no_fork: NoFork,
}

impl Deref for Locked<'_> {
    type Target = Reading;

    fn deref(&self) -> &Reading {
        &self.reading
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Reading {
        &mut self.reading
    }
}

/// Programs without a text that edits of clients have replaced, by the number of the edit.
type Replaced = VecDeque<(u64, Arc<Program>)>;

/// Notes that an edit has replaced a program.
fn note(replaced: &mut Replaced, epoch: u64, program: Option<Arc<Program>>) {
    let Some(program) = program else { return };
    replaced.push_back((epoch, program));
    if replaced.len() > MAX_REPLACED {
        replaced.pop_front();
    }
}

/// A capture.
#[derive(Debug)]
pub struct Live {
    peer: Arc<Connection>,
    filters: FilterSet,
    reading: Mutex<Reading>,
    last: Mutex<Counts>,
    /// Held during an edit.
    editing: Mutex<Replaced>,
    /// Descriptors by which a thread waits.
    pub wakes: Wakes,
    description: Description,
    started: Instant,
}

impl Live {
    /// Connects to a service. From now on it stores every frame, until there is a filter.
    ///
    /// # Errors
    /// It is not there, or refuses.
    pub fn open(name: &str, form: Form) -> Result<Live, OpenError> {
        let system = |error: std::io::Error| OpenError::Other(format!("fyke:{name}: {error}"));
        let peer = Arc::new(Connection::open(name, None)?);
        let reader = peer.buffers(Vec::new(), 0)?;
        let hello = peer.hello();
        let link = LinkType(hello.link);
        let netmask = (hello.netmask != 0).then_some(hello.netmask);
        let options = Options { link, netmask, live: true, ..Options::default() };
        let inputs = Inputs { links: vec![link] };
        let filters = FilterSet::over(inputs, options, Tags::Read);
        filters.guard_threads(|| Box::new(NoFork::begin()));
        let server: Arc<dyn FrameServer> = Arc::<Connection>::clone(&peer);
        let mut source = SharedSource::served(&format!("fyke:{name}"), reader, server);
        source.set_patience(Duration::ZERO);
        let lower = Arc::new(Lower::default());
        filters.add_superset(Arc::<Lower>::clone(&lower));
        source.set_filter(lower).map_err(system)?;
        let mut wakes = Wakes::new().map_err(system)?;
        if let Some(event) = source.event() {
            wakes.add(event).map_err(system)?;
        }
        wakes.add(peer.as_fd()).map_err(system)?;
        let reading = Mutex::new(Reading::new(source, filters.reader(), link, form));
        let description = Description::of_this_process(format!("fyke:{name}"), link.to_string());
        let (last, started) = (Mutex::default(), Instant::now());
        let editing = Mutex::default();
        Ok(Live { peer, filters, reading, last, editing, wakes, description, started })
    }

    fn editing(&self) -> MutexGuard<'_, Replaced> {
        self.editing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program without a text that decides.
    fn program(&self) -> Option<Arc<Program>> {
        self.lock().program(self.filters.epoch())
    }

    fn not_set(&self, error: &FilterError) -> SetError {
        match error {
            FilterError::Space(why) => {
                let source = &self.description.source;
                SetError::Service(format!("{source}: {why}; the filter before stays"))
            }
            error => SetError::Text(error.to_string()),
        }
    }

    fn lock(&self) -> Locked<'_> {
        let no_fork = NoFork::begin();
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { reading, _no_fork: no_fork }
    }

    /// The lock of the frames, unless a thread holds it for long, which may be the one that this call has interrupted.
    fn lock_soon(&self) -> Option<Locked<'_>> {
        let (no_fork, start) = (NoFork::begin(), Instant::now());
        loop {
            match self.reading.try_lock() {
                Ok(reading) => return Some(Locked { reading, _no_fork: no_fork }),
                Err(TryLockError::Poisoned(reading)) => {
                    return Some(Locked { reading: reading.into_inner(), _no_fork: no_fork });
                }
                Err(TryLockError::WouldBlock) if start.elapsed() > PATIENCE => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Frames for the program; `direction` is a `PCAP_D_` number.
    pub fn take(&self, direction: i32) -> Taken {
        self.lock().take(&self.filters, direction)
    }

    /// The rule under which frames are given now.
    #[inline]
    pub fn rule(&self, direction: i32) -> Rule {
        Rule { epoch: self.filters.epoch(), direction }
    }

    /// Prepares the descriptor for the program's own `poll`. Returns true if there is nothing to read. No system call
    /// if frames were left before and are left now.
    pub fn arm(&self) -> bool {
        let reading = self.lock();
        let is_left = reading.is_left();
        if !is_left {
            // The messages of earlier frames are void: what is left is looked at afterwards.
            reading.end_sleep();
        }
        let is_empty = !is_left && reading.begin_sleep();
        // Within the lock, so that the descriptor is as the last look was.
        self.wakes.set_ready(!is_empty);
        is_empty
    }

    /// Ends what [`arm`](Self::arm) began.
    pub fn disarm(&self) {
        self.lock().end_sleep();
    }

    /// Time for which frames may gather after some have arrived.
    pub fn nap(&self) -> Duration {
        self.lock().nap()
    }

    /// True if the service wakes this process; if not, it has to look for frames.
    pub fn is_woken(&self) -> bool {
        self.lock().is_woken()
    }

    /// The data link type in libpcap's numbers.
    pub fn dlt(&self) -> i32 {
        // The numbers in files differ for these.
        match self.peer.hello().link {
            100 => 11,
            101 => 12,
            102 => 15,
            103 => 16,
            link => i32::from(link),
        }
    }

    /// Options for the texts of this capture.
    pub fn options(&self) -> Options {
        self.filters.reading().0
    }

    /// Replaces all filters by a text; an empty one accepts every frame.
    ///
    /// # Errors
    /// The text is refused, or the service does not answer; the filters are as before.
    pub fn set_text(&self, text: &str) -> Result<(), SetError> {
        let _no_fork = NoFork::begin();
        let _one_at_a_time = self.editing();
        self.filters.set(text).map(drop).map_err(|error| self.not_set(&error))
    }

    /// Replaces all filters by a program, which decides here about every frame of the service.
    ///
    /// # Errors
    /// The service does not answer; the filters are as before.
    pub fn set_program(&self, program: Program) -> Result<(), SetError> {
        let _no_fork = NoFork::begin();
        let _one_at_a_time = self.editing();
        // No frame is taken between the edit and the program that belongs to it.
        let mut reading = self.lock();
        self.filters.set("").map_err(|error| self.not_set(&error))?;
        reading.set_program(Some((self.filters.epoch(), Arc::new(program))));
        Ok(())
    }

    /// The counts of libpcap; earlier ones if this call has interrupted a thread that reads.
    pub fn counts(&self) -> Counts {
        let lock = |mutex: &Mutex<Counts>| match mutex.try_lock() {
            Ok(counts) => *counts,
            Err(_) => Counts::default(),
        };
        let Some(mut reading) = self.lock_soon() else { return lock(&self.last) };
        let (stats, tally) = (reading.stats(), reading.tally());
        let lost = stats.dropped + stats.unreadable + tally.foreign;
        let counts = Counts { received: tally.accepted + tally.waiting + lost, lost };
        drop(reading);
        if let Ok(mut last) = self.last.try_lock() {
            *last = counts;
        }
        counts
    }

    /// The texts in force.
    pub fn filters(&self) -> &FilterSet {
        &self.filters
    }
    /// The description for clients.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The counts for clients.
    pub fn stats(&self) -> Stats {
        let mut reading = self.lock();
        let (stats, tally) = (reading.stats(), reading.tally());
        let own_filter = reading.has_program(self.filters.epoch()).then(Default::default);
        drop(reading);
        let rejected = tally.rejected + stats.filtered;
        let named = [
            ("ring full", stats.dropped),
            ("too long", stats.unreadable),
            ("other link type", tally.foreign),
        ];
        let lost = named.iter().filter(|(_, count)| *count > 0);
        let accounting = Accounting {
            seen: tally.accepted + rejected + named.iter().map(|(_, count)| count).sum::<u64>(),
            delivered: tally.accepted,
            rejected,
            lost: lost.map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            rejected_in_kernel: stats.filtered_uncounted.then(|| NOT_COUNTED.to_owned()),
            ..Accounting::default()
        };
        let labels = self.filters.labels();
        let count = |filter: fyke_filters::FilterCount| FilterCount {
            id: filter.id,
            text: filter.text.to_string(),
            accepted: filter.accepted,
            label: labels.get(&filter.id).map(fyke_filters::clients::label),
            ..FilterCount::default()
        };
        Stats {
            epoch: self.filters.epoch(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            accounting,
            filters: self.filters.counts().into_iter().map(count).collect(),
            own_filter,
            ..Stats::default()
        }
    }
}

/// Edits of clients. A program without a text has no place in the list of texts: only a text that replaces it is
/// accepted, and an undo of that brings it back.
impl Edits for Live {
    fn edit_as(&self, edit: &Edit<'_>) -> Result<Edited, GroupError> {
        let mut replaced = self.editing();
        let program = self.program();
        let replaces = edit.changes.iter().any(|change| matches!(change, Change::Set(_)));
        if program.is_some() && !replaces {
            let error = FilterError::Program(NO_TEXT.to_owned());
            return Err(GroupError { place: 0, error });
        }
        let edited = self.filters.edit_as(edit)?;
        note(&mut replaced, edited.epoch, program);
        Ok(edited)
    }

    fn undo(&self, epoch: Option<u64>, author: Author) -> Result<(u64, Edited), UndoError> {
        let mut replaced = self.editing();
        let program = self.program();
        // No frame is taken between the edit and the program that belongs to it.
        let mut reading = self.lock();
        let (undone, edited) = self.filters.undo(epoch, author)?;
        let before = replaced.iter().find(|(epoch, _)| *epoch == undone);
        let before = before.filter(|_| self.filters.is_empty());
        reading.set_program(before.map(|(_, program)| (edited.epoch, Arc::clone(program))));
        note(&mut replaced, edited.epoch, program);
        Ok((undone, edited))
    }

    fn left_out(&self, undo: u64) -> Vec<(u64, Option<Arc<str>>)> {
        self.filters.left_out(undo)
    }

    fn log(&self, last: usize) -> EditLog {
        self.filters.log(last)
    }

    fn log_pause(&self, paused: bool, author: Author) {
        self.filters.log_pause(paused, author);
    }

    fn remarks(&self, ids: &[u64]) -> Vec<String> {
        self.filters.remarks(ids)
    }

    fn edit_passes(
        &self,
        node: Option<&str>,
        calls: &mut HandCalls<'_>,
    ) -> Option<Result<(u64, Vec<u64>), CallsRefused>> {
        match self.program() {
            Some(_) => Some(Err(CallsRefused::Whole(NO_TEXT.to_owned()))),
            None => Edits::edit_passes(&self.filters, node, calls),
        }
    }
}
