//! The readers and the texts that they follow; stores frames for them.
//!
//! The packet loop holds the table while it evaluates a batch, a reader's thread while it changes an entry. So a change
//! takes effect between two batches, and the count of frames before it is exact. Texts are compiled before, elsewhere.
//! Cost of a frame that is accepted: a copy for each group and a store for each reader; of one that is rejected: none.

use crate::group::{Buffer, Group};
use crate::message::Counts;
use crate::slots::Slots;
use fyke_capture::Interface;
use fyke_frame::{Batch, Frame, Mask};
use fyke_ring::protocol::Words;
use fyke_ring::{Held, Index, Mark, Memory, RingError, Waker};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most frames that a reader may leave unread.
pub const PLACES: usize = 1 << 16;
/// Memory of an index, in bytes.
const INDEX_BYTES: usize = PLACES * 24;

/// Frames that readers have not got, since the start of the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// Frames that the kernel rejected.
    pub below: u64,
    /// True if it has rejected more without counting them.
    pub is_partial: bool,
    /// Frames that the capture dropped.
    pub dropped: u64,
}

/// Frames that a reader could have seen while it was running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// Frames evaluated, and elsewhere, when it last started; `None` while it is paused.
    since: Option<(u64, Elsewhere)>,
    evaluated: u64,
    elsewhere: Elsewhere,
}

impl Meter {
    fn start(&mut self, evaluated: u64, elsewhere: Elsewhere) {
        self.since.get_or_insert((evaluated, elsewhere));
    }

    fn stop(&mut self, evaluated: u64, elsewhere: Elsewhere) {
        (self.evaluated, self.elsewhere) = self.read(evaluated, elsewhere);
        self.since = None;
    }

    fn read(&self, evaluated: u64, now: Elsewhere) -> (u64, Elsewhere) {
        let Some((first, then)) = self.since else { return (self.evaluated, self.elsewhere) };
        let elsewhere = Elsewhere {
            below: self.elsewhere.below + now.below.saturating_sub(then.below),
            is_partial: self.elsewhere.is_partial || now.is_partial,
            dropped: self.elsewhere.dropped + now.dropped.saturating_sub(then.dropped),
        };
        (self.evaluated + evaluated.saturating_sub(first), elsewhere)
    }
}

/// A reader.
#[derive(Debug)]
struct Reader {
    user: u32,
    group: Group,
    /// Place of the group among the [`Groups`].
    at: usize,
    index: Index,
    snaplen: usize,
    /// Numbers of the filters that it follows.
    follows: Vec<u64>,
    /// True while it has paused itself.
    is_paused: bool,
    /// True if its index is closed.
    is_closed: bool,
    meter: Meter,
    refused: u64,
    /// Counts of its graph, if it has one in place of texts.
    own: Option<Own>,
    /// Wakes it, if it can sleep.
    waker: Option<Waker>,
    /// True if it has got frames and was not woken since.
    has_new: bool,
    /// Frames that it got from a batch in which a process before this one was killed.
    had: u64,
    /// Its words of the log, if a process after this one may continue with it.
    slot: Option<usize>,
}

/// Counts of a reader's own graph.
#[derive(Debug, Default)]
struct Own {
    /// Frames that its graph has evaluated, without the batch that is evaluated.
    evaluated: u64,
    /// Frames of that batch.
    begun: u64,
    /// True once it counts.
    is_started: bool,
    /// True if it pauses from the next batch on.
    pauses: bool,
    /// Stored frames that nodes have made.
    made: u64,
    /// Frames that the service had evaluated before its graph got the first one; `None` before the first batch.
    base: Option<u64>,
}

/// State of a reader that a process before this one has served.
#[derive(Debug)]
pub struct Resuming {
    /// Its number.
    pub number: u64,
    /// Frames in its index so far.
    pub pushed: u64,
    /// Frames that did not fit.
    pub refused: u64,
    /// Frames of both that are of the batch in which the process was killed.
    pub had: u64,
    /// True while it has paused itself.
    pub is_paused: bool,
    /// Its counts.
    pub meter: Meter,
    /// Frames that its graph has evaluated and made, if it has one.
    pub own: Option<(u64, u64)>,
    /// Wakes it, if it can sleep.
    pub waker: Option<Waker>,
    /// Its words of the log.
    pub slot: usize,
}

/// Words of a reader in the log.
pub const SLOT_WORDS: usize = 8;
const TAG: usize = 0;
const BEGIN: usize = 1;
const OWN: usize = 2;
const MADE: usize = 3;
/// Refused frames that the index does not count, because processes before have refused them.
const REFUSED: usize = 4;
const HAD: usize = 5;
/// Frames that the service had evaluated before the graph of the reader got its first one, plus 1; 0 = not known.
const BASE: usize = 6;

/// The log of readers, after the words of the capture ([`fyke_capture::handover`]).
#[derive(Debug)]
pub struct Log(Arc<Memory>);

/// Words of a reader that were logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    /// Frames that did not fit.
    pub refused: u64,
    /// Frames that it got from batches in which a process was killed.
    pub had: u64,
    /// Frames that its graph has evaluated and made.
    pub own: (u64, u64),
}

impl Log {
    fn word(slot: usize, at: usize) -> usize {
        fyke_capture::handover::LOG_WORDS + slot * SLOT_WORDS + at
    }

    /// Reads the words of a reader with an index that has ended with these numbers of frames, pushed and refused.
    /// `evaluated` is the number of frames that were evaluated, without the batch in which the process was killed, if
    /// `was_killed` in one.
    pub fn read(
        memory: &Memory,
        slot: usize,
        (evaluated, was_killed): (u64, bool),
        (pushed, refused): (u64, u64),
    ) -> Logged {
        let word = |at: usize| memory.load(Log::word(slot, at), Ordering::Acquire);
        let refused = word(REFUSED) + refused;
        let had = match was_killed && word(TAG) == evaluated + 1 {
            true => (pushed + refused).saturating_sub(word(BEGIN)),
            false => 0,
        };
        // The graph gets every frame that the service evaluates, so its count needs no store at the end of a batch.
        let own = match word(BASE).checked_sub(1) {
            Some(base) => evaluated.saturating_sub(base),
            None => word(OWN),
        };
        Logged { refused, had: word(HAD) + had, own: (own, word(MADE)) }
    }

    fn store(&self, slot: usize, at: usize, value: u64) {
        self.0.store(Log::word(slot, at), value, Ordering::Release);
    }

    /// Begins the words of a reader.
    fn begin(&self, slot: usize, refused: u64, had: u64, own: &Own) {
        let words = [(TAG, 0), (REFUSED, refused), (HAD, had)];
        words.into_iter().for_each(|(at, word)| self.store(slot, at, word));
        self.store_own(slot, own);
    }

    /// Stores the counts of a reader's own graph.
    fn store_own(&self, slot: usize, own: &Own) {
        let base = own.base.map_or(0, |base| base + 1);
        let words = [(OWN, own.evaluated), (MADE, own.made), (BASE, base)];
        words.into_iter().for_each(|(at, word)| self.store(slot, at, word));
    }
}

impl Reader {
    fn runs(&self) -> bool {
        let has_filters = self.own.as_ref().map_or(!self.follows.is_empty(), |own| own.is_started);
        !self.is_paused && !self.is_closed && has_filters
    }
}

#[derive(Debug)]
struct Shared {
    buffer: Buffer,
    readers: usize,
}

/// All readers.
#[derive(Debug)]
pub struct Table {
    interface: Interface,
    readers: Slots<u64, Reader>,
    /// Places of the readers that follow a filter.
    followers: BTreeMap<u64, Vec<usize>>,
    groups: Slots<Group, Shared>,
    /// Frames evaluated.
    evaluated: u64,
    /// The batch that was evaluated last, by its serial, and the frames evaluated before it.
    batch: (u64, u64),
    /// Bytes copied for groups that are gone.
    copied: u64,
    /// The last number of a reader, of all tables of the process.
    last: Arc<AtomicU64>,
    /// Filters that accept a frame, and the places of the readers that follow one of them.
    scratch: Vec<u64>,
    found: Vec<usize>,
    /// Places of the readers that have new frames and can sleep.
    with_new: Vec<usize>,
    /// For a process after this one.
    log: Option<Log>,
}

/// The memory that a reader maps: the packet buffer of its group, and its own index.
pub type Descriptors = [OwnedFd; 2];

impl Table {
    /// An empty table for frames of an interface. `last` is the last number that a reader has got.
    pub fn new(interface: Interface, last: Arc<AtomicU64>) -> Table {
        Table {
            interface,
            readers: Slots::default(),
            followers: BTreeMap::new(),
            groups: Slots::default(),
            evaluated: 0,
            batch: (u64::MAX, 0),
            copied: 0,
            last,
            scratch: Vec::new(),
            found: Vec::new(),
            with_new: Vec::new(),
            log: None,
        }
    }

    /// Logs for a process after this one, and continues after `evaluated` frames.
    pub fn keep_log(&mut self, memory: Arc<Memory>, evaluated: u64) {
        self.evaluated = evaluated;
        self.log = Some(Log(memory));
    }

    /// Adds a reader, which follows nothing yet. Its number is never given again. `memory` is the size of the packet
    /// buffer in bytes, if the reader is the first of its group.
    ///
    /// # Errors
    /// There is no memory for its buffers.
    pub fn join(
        &mut self,
        (user, group): (u32, &Group),
        snaplen: usize,
        memory: usize,
        has_graph: bool,
    ) -> Result<(u64, Descriptors), RingError> {
        let new = Resuming {
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            pushed: 0,
            refused: 0,
            had: 0,
            is_paused: false,
            meter: Meter::default(),
            own: None,
            waker: None,
            slot: usize::MAX,
        };
        let number = new.number;
        Ok((number, self.enter((user, group), snaplen, memory, has_graph, new)?))
    }

    /// Adds a reader that a process before this one has served, with an index that begins where the old one ended.
    ///
    /// # Errors
    /// There is no memory for its buffers.
    pub fn enter(
        &mut self,
        (user, group): (u32, &Group),
        snaplen: usize,
        memory: usize,
        has_graph: bool,
        from: Resuming,
    ) -> Result<Descriptors, RingError> {
        let mut index = Index::starting_at(PLACES, self.interface.link, from.pushed)?;
        let at = match self.groups.place(group) {
            Some(place) => place,
            None => {
                let snaplen = self.interface.snaplen.min(group.snaplen);
                let interface = Interface { snaplen, ..self.interface.clone() };
                let buffer = Buffer::create(memory, &interface)?;
                self.groups.insert(group.clone(), Shared { buffer, readers: 0 })
            }
        };
        let descriptors = self.descriptors(at, &mut index);
        let [packets, own_index] = descriptors.inspect_err(|_| self.drop_if_empty(group))?;
        self.groups.at_mut(at).into_iter().for_each(|shared| shared.readers += 1);
        self.last.fetch_max(from.number, Ordering::Relaxed);
        let (evaluated, made) = from.own.unwrap_or_default();
        let is_started = from.own.is_some();
        let pauses = from.is_paused;
        let base = is_started.then(|| self.evaluated.saturating_sub(evaluated));
        let own = Own { evaluated, made, pauses, is_started, base, ..Own::default() };
        let slot = Some(from.slot).filter(|slot| *slot != usize::MAX);
        if let Some(slot) = slot {
            index.hand_on(true);
            self.log.iter().for_each(|log| log.begin(slot, from.refused, from.had, &own));
        }
        let reader = Reader {
            user,
            group: group.clone(),
            at,
            index,
            snaplen,
            follows: Vec::new(),
            is_paused: from.is_paused,
            is_closed: false,
            meter: from.meter,
            refused: from.refused,
            own: has_graph.then_some(own),
            waker: from.waker,
            has_new: false,
            had: from.had,
            slot,
        };
        self.readers.insert(from.number, reader);
        Ok([packets, own_index])
    }

    /// Bytes of memory that the readers of a user would have with one more in a group.
    pub fn memory_with(&self, user: u32, group: &Group, memory: usize) -> usize {
        let of_user = || self.readers.all().filter(|one| one.user == user);
        let buffers: HashSet<&Group> = of_user().map(|one| &one.group).chain([group]).collect();
        let size = |group: &&Group| {
            let shared = self.groups.get(group);
            shared.map_or(memory, |shared| shared.buffer.packets().bytes())
        };
        (of_user().count() + 1) * INDEX_BYTES + buffers.iter().map(size).sum::<usize>()
    }

    /// The memory that a reader maps: the packet buffer of its group, and its index.
    fn descriptors(&self, at: usize, index: &mut Index) -> Result<Descriptors, RingError> {
        let shared =
            self.groups.at(at).ok_or_else(|| duplicating(io::ErrorKind::NotFound.into()))?;
        if let Some(origin) = shared.buffer.origin() {
            index.comes_from(0, origin);
        }
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(duplicating);
        Ok([copy(shared.buffer.packets().fd())?, copy(index.fd())?])
    }

    /// Removes a group that has no reader; returns it, so that the caller frees it.
    fn take_if_empty(&mut self, group: &Group) -> Option<Shared> {
        let shared = self.groups.get(group).filter(|shared| shared.readers == 0)?;
        self.copied += shared.buffer.copied();
        self.groups.remove(group)
    }

    fn drop_if_empty(&mut self, group: &Group) {
        drop(self.take_if_empty(group));
    }

    /// Sets the filters that a reader follows, from the next batch on. Returns the number of its frames before that.
    pub fn follow(&mut self, reader: u64, numbers: Vec<u64>, now: Elsewhere) -> u64 {
        let Some(place) = self.readers.place(&reader) else { return 0 };
        let Some(one) = self.readers.at_mut(place) else { return 0 };
        for number in std::mem::replace(&mut one.follows, numbers) {
            forget(&mut self.followers, number, place);
        }
        if one.runs() {
            for &number in &one.follows {
                self.followers.entry(number).or_default().push(place);
            }
        }
        self.meter(reader, now)
    }

    /// Pauses a reader, or starts it again. Returns the number of its frames before that.
    pub fn pause(&mut self, reader: u64, is_paused: bool, now: Elsewhere) -> u64 {
        let Some(one) = self.readers.get_mut(&reader) else { return 0 };
        if let Some(own) = &mut one.own {
            // Between two batches: the node that counts them does it.
            own.pauses = is_paused;
            return own.evaluated;
        }
        one.is_paused = is_paused;
        let follows = one.follows.clone();
        self.follow(reader, follows, now)
    }

    /// Starts or stops the counts of a reader. It has none while it follows nothing.
    fn meter(&mut self, reader: u64, now: Elsewhere) -> u64 {
        let Some(one) = self.readers.get_mut(&reader) else { return 0 };
        let evaluated = one.own.as_ref().map_or(self.evaluated, |own| own.evaluated);
        match one.runs() {
            true => one.meter.start(evaluated, now),
            false => one.meter.stop(evaluated, now),
        }
        one.meter.read(evaluated, now).0
    }

    /// The counts of a reader.
    pub fn counts(&self, reader: u64, now: Elsewhere) -> Counts {
        let Some(one) = self.readers.get(&reader) else { return Counts::default() };
        let evaluated = one.own.as_ref().map_or(self.evaluated, |own| own.evaluated);
        let (evaluated, elsewhere) = one.meter.read(evaluated, now);
        let accepted = one.index.pushed();
        let made = one.own.as_ref().map_or(0, |own| own.made);
        let frames = (accepted + one.refused).saturating_sub(made);
        // Frames that it had got when a process was killed in their batch are not lost for it.
        let (dropped, frames) =
            (elsewhere.dropped.saturating_sub(one.had), frames.saturating_sub(one.had));
        if !one.group.filter.is_empty() {
            // How many frames are beyond its rule is not for this reader.
            let refused = one.refused;
            return Counts { accepted, rejected: 0, made, dropped, refused, is_partial: true };
        }
        Counts {
            accepted,
            rejected: (evaluated + elsewhere.below).saturating_sub(frames),
            made,
            dropped,
            refused: one.refused,
            is_partial: elsewhere.is_partial,
        }
    }

    /// Frames that a reader has not read, and those that it has lost without knowing it yet. `told` is what it reported
    /// that it has read and lost.
    pub fn behind(&self, reader: u64, told: u64) -> (u64, u64) {
        let Some(one) = self.readers.get(&reader) else { return (0, 0) };
        let Some(shared) = self.groups.at(one.at) else { return (0, 0) };
        let pushed = one.index.pushed();
        let position = one.waker.as_ref().map_or(0, Waker::position).max(told).min(pushed);
        let oldest = one.index.oldest_held(shared.buffer.packets());
        (pushed - position.max(oldest), oldest.saturating_sub(position))
    }

    /// Stores no more frames for a reader: its index is closed. Returns its last counts.
    pub fn close(&mut self, reader: u64, now: Elsewhere) -> Counts {
        if let Some(one) = self.readers.get_mut(&reader) {
            one.is_closed = true;
            one.index.close();
            Waker::wake(one.waker.iter());
        }
        self.follow(reader, Vec::new(), now);
        self.counts(reader, now)
    }

    /// Removes a reader and what only it used. The memory is returned, so that the caller frees it without the table.
    pub fn leave(&mut self, reader: u64) -> impl Sized + use<> {
        self.follow(reader, Vec::new(), Elsewhere::default());
        let gone = self.readers.remove(&reader);
        let mut empty = None;
        if let Some(one) = &gone
            && let Some(shared) = self.groups.at_mut(one.at)
        {
            shared.readers -= 1;
            empty = self.take_if_empty(&one.group);
        }
        (gone, empty)
    }

    /// Stores the accepted frames of a batch for their readers. `filters` adds to a list the numbers of the filters
    /// that accepted a frame, `epoch` the state of the set. Returns the frames that were stored for a reader.
    pub fn store(
        &mut self,
        batch: &Batch<'_>,
        serial: u64,
        arrived: Mask,
        accepted: Mask,
        epoch: u64,
        mut filters: impl FnMut(usize, &mut Vec<u64>),
    ) -> Mask {
        self.log_begin();
        self.batch = (serial, self.evaluated);
        self.evaluated += arrived.count() as u64;
        // The index has 32 bits for it.
        let epoch = epoch as u32;
        let mark = Mark { epoch, ..Mark::default() };
        let mut stored = Mask::EMPTY;
        let (mut scratch, mut found) =
            (std::mem::take(&mut self.scratch), std::mem::take(&mut self.found));
        let mut known: Vec<u64> = Vec::new();
        found.clear();
        for index in accepted.iter() {
            scratch.clear();
            filters(index, &mut scratch);
            // Frames in a row are often of the same readers.
            if scratch != known {
                self.find(&scratch, &mut found);
                std::mem::swap(&mut scratch, &mut known);
            }
            for &place in &found {
                if self.give(place, (serial, index), &batch.frames()[index], mark) {
                    stored.set(index);
                }
            }
        }
        (self.scratch, self.found) = (scratch, found);
        self.wake();
        stored
    }

    /// The places of the readers that follow one of these filters, each once.
    fn find(&self, filters: &[u64], found: &mut Vec<usize>) {
        found.clear();
        let of = |number| self.followers.get(number).into_iter().flatten().copied();
        found.extend(filters.iter().flat_map(of));
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
    }

    /// Logs the frames that readers have before a batch.
    fn log_begin(&mut self) {
        let Some(log) = &self.log else { return };
        for one in self.readers.all() {
            if let Some(slot) = one.slot {
                log.store(slot, BEGIN, one.index.pushed() + one.refused);
                log.store(slot, TAG, self.evaluated + 1);
            }
        }
    }

    /// Keeps a reader for a process after this one, which finds its words of the log in a slot. Returns its index, and
    /// its page with the descriptor that wakes it.
    ///
    /// # Errors
    /// There is no such reader, or no more descriptors.
    pub fn keep(&mut self, reader: u64, slot: usize) -> io::Result<Vec<OwnedFd>> {
        let one = self.readers.get_mut(&reader).ok_or(io::ErrorKind::NotFound)?;
        let wakers = one.waker.iter().flat_map(Waker::descriptors);
        let all = [one.index.fd()].into_iter().chain(wakers);
        let all =
            all.map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned()).collect::<Result<_, _>>()?;
        if let Some(log) = &self.log {
            log.begin(slot, 0, 0, one.own.as_ref().unwrap_or(&Own::default()));
        }
        one.slot = Some(slot);
        one.index.hand_on(true);
        Ok(all)
    }

    /// Undoes [`keep`](Self::keep): the reader ends with this process.
    pub fn keep_no_more(&mut self, reader: u64) {
        if let Some(one) = self.readers.get_mut(&reader) {
            one.slot = None;
            one.index.hand_on(false);
        }
    }

    /// The state of a reader that its log does not have: its pause and its counts. If its graph pauses or starts at the
    /// next batch, the counts are those from then on.
    pub fn state(&self, reader: u64, now: Elsewhere) -> (bool, Meter) {
        let Some(one) = self.readers.get(&reader) else { return Default::default() };
        let Some(own) = &one.own else { return (one.is_paused, one.meter) };
        let mut meter = one.meter;
        if own.pauses != one.is_paused && own.is_started {
            let evaluated = own.evaluated + own.begun;
            match own.pauses {
                true => meter.stop(evaluated, now),
                false => meter.start(evaluated, now),
            }
        }
        (own.pauses, meter)
    }

    /// Calls a reader, which may sleep, to read a message.
    pub fn call(&self, reader: u64) {
        if let Some(waker) = self.readers.get(&reader).and_then(|one| one.waker.as_ref()) {
            waker.call();
        }
    }

    /// Frames that the graph of a reader has evaluated.
    pub fn evaluated_own(&self, reader: u64) -> u64 {
        let own = self.readers.get(&reader).and_then(|one| one.own.as_ref());
        own.map_or(0, |own| own.evaluated)
    }

    /// Wakes a reader from now on when it sleeps and has frames.
    pub fn set_waker(&mut self, reader: u64, waker: Waker) {
        if let Some(one) = self.readers.get_mut(&reader) {
            one.waker = Some(waker);
        }
    }

    /// Wakes the readers that sleep and have new frames.
    fn wake(&mut self) {
        let mut all = std::mem::take(&mut self.with_new);
        for place in &all {
            if let Some(one) = self.readers.at_mut(*place) {
                one.has_new = false;
            }
        }
        let found = all.iter().filter_map(|place| self.readers.at(*place)?.waker.as_ref());
        Waker::wake(found);
        all.clear();
        self.with_new = all;
    }

    /// Starts the counts of a reader with a graph of its own, once that runs.
    pub fn start_own(&mut self, reader: u64, now: Elsewhere) {
        let one = self.readers.get_mut(&reader);
        if let Some(own) = one.and_then(|one| one.own.as_mut()) {
            own.is_started = true;
            self.meter(reader, now);
        }
    }

    /// Counts the batch before, and notes `count` frames of the batch that begins, by its serial, for a reader with a
    /// graph of its own. A pause begins and ends here.
    pub fn begin_own(&mut self, reader: u64, serial: Option<u64>, count: usize, now: Elsewhere) {
        // The service may have counted this batch already.
        let before = if serial == Some(self.batch.0) { self.batch.1 } else { self.evaluated };
        let Some(one) = self.readers.get_mut(&reader) else { return };
        let Some(own) = &mut one.own else { return };
        own.evaluated += std::mem::replace(&mut own.begun, count as u64);
        own.base.get_or_insert(before.saturating_sub(own.evaluated));
        if let (Some(log), Some(slot)) = (&self.log, one.slot) {
            log.store_own(slot, own);
        }
        if own.pauses != one.is_paused {
            one.is_paused = own.pauses;
            self.meter(reader, now);
        }
    }

    /// Stores frames that the graph of a reader passes. `mark` is what the graph knows of a frame. Returns those that
    /// were stored.
    pub fn store_own(
        &mut self,
        reader: u64,
        batch: &Batch<'_>,
        serial: u64,
        arrived: Mask,
        is_made: bool,
        mark: impl Fn(usize) -> Mark,
    ) -> Mask {
        let mut stored = Mask::EMPTY;
        let Some(place) = self.readers.place(&reader) else { return stored };
        if self.readers.at(place).is_none_or(|one| one.is_paused || one.is_closed) {
            return stored;
        }
        for index in arrived.iter() {
            if self.give(place, (serial, index), &batch.frames()[index], mark(index)) {
                stored.set(index);
            }
        }
        if let Some(one) = self.readers.at_mut(place).filter(|_| is_made)
            && let Some(own) = &mut one.own
        {
            own.made += arrived.count() as u64;
            if let (Some(log), Some(slot)) = (&self.log, one.slot) {
                log.store(slot, MADE, own.made);
            }
        }
        self.wake();
        stored
    }

    /// Stores a frame, known by its batch and its index there, for the reader at a place.
    fn give(&mut self, reader: usize, at: (u64, usize), frame: &Frame<'_>, mark: Mark) -> bool {
        let (held, is_full) = self.held(reader);
        let Some(one) = self.readers.at_mut(reader) else { return false };
        let Some(shared) = self.groups.at_mut(one.at) else { return false };
        let mut frame = *frame;
        frame.data = &frame.data[..frame.data.len().min(one.snaplen)];
        let place = (!is_full).then(|| shared.buffer.place(at, &frame, held)).flatten();
        match &place {
            Some(placed) => {
                one.index.push_as(0, placed, mark);
                if one.waker.is_some() && !std::mem::replace(&mut one.has_new, true) {
                    self.with_new.push(reader);
                }
            }
            None => {
                one.index.refuse();
                one.refused += 1;
            }
        }
        place.is_some()
    }

    /// If the group of a reader prefers slow ones: the frames that its readers still need, and true if this one has no
    /// room for another. Cost: O(readers) for a frame.
    fn held(&self, reader: usize) -> (Held, bool) {
        let own = self.readers.at(reader).filter(|one| one.group.prefers_slow);
        let Some(own) = own else { return (Held::Nothing, false) };
        let mut all = (Held::Nothing, false);
        for one in self.readers.all().filter(|one| one.at == own.at && !one.is_closed) {
            let Some(waker) = &one.waker else { continue };
            let (held, is_full) = waker.held(&one.index);
            all = (all.0.and(held), all.1 || (is_full && std::ptr::eq(one, own)));
        }
        all
    }

    /// Closes the indices of all readers, except those that are kept; returns their last counts.
    pub fn finish(&mut self, now: Elsewhere) -> Vec<(u64, Counts)> {
        let ends = self.readers.keyed().filter(|(_, one)| one.slot.is_none());
        let all: Vec<u64> = ends.map(|(number, _)| *number).collect();
        all.into_iter().map(|reader| (reader, self.close(reader, now))).collect()
    }

    /// Number of readers that run, of all readers, and of groups.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let running = self.readers.all().filter(|reader| reader.runs()).count();
        (running, self.readers.len(), self.groups.len())
    }

    /// Bytes of frames that were copied so far, for all groups.
    pub fn copied(&self) -> u64 {
        self.copied + self.groups.all().map(|shared| shared.buffer.copied()).sum::<u64>()
    }
}

fn duplicating(source: io::Error) -> RingError {
    RingError::Call { what: "duplicating a descriptor".to_owned(), source }
}

fn forget(followers: &mut BTreeMap<u64, Vec<usize>>, number: u64, reader: usize) {
    if let Some(list) = followers.get_mut(&number) {
        list.retain(|one| *one != reader);
        if list.is_empty() {
            followers.remove(&number);
        }
    }
}
