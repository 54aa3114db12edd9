//! The readers and the texts that they follow; stores frames for them.
//!
//! The packet loop holds the table while it evaluates a batch, a reader's thread while it changes an entry. So a change
//! takes effect between two batches, and the count of frames before it is exact. Texts are compiled before, elsewhere.
//! Cost of a frame that is accepted: a copy for each group and a store for each reader; of one that is rejected: none.

use crate::group::{Buffer, Group};
use crate::message::Counts;
use fyke_capture::Interface;
use fyke_frame::{Batch, Frame, Mask};
use fyke_ring::{Index, Mark, RingError};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;

/// Most frames that a reader may leave unread.
pub const PLACES: usize = 1 << 16;

/// Frames that readers have not got, since the start of the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Frames that the kernel rejected.
    pub below: u64,
    /// True if it has rejected more without counting them.
    pub is_partial: bool,
    /// Frames that the capture dropped.
    pub dropped: u64,
}

/// Frames that a reader could have seen while it was running.
#[derive(Debug, Clone, Copy, Default)]
struct Meter {
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
    group: Group,
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
}

impl Reader {
    fn runs(&self) -> bool {
        !self.is_paused && !self.is_closed && !self.follows.is_empty()
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
    readers: BTreeMap<u64, Reader>,
    /// Readers that follow a filter.
    followers: HashMap<u64, Vec<u64>>,
    groups: HashMap<Group, Shared>,
    /// Frames evaluated.
    evaluated: u64,
    serial: u64,
    /// Bytes copied for groups that are gone.
    copied: u64,
    last: u64,
    scratch: Vec<u64>,
    found: Vec<u64>,
}

/// The memory that a reader maps: the packet buffer of its group, and its own index.
pub type Descriptors = [OwnedFd; 2];

impl Table {
    /// An empty table for frames of an interface.
    pub fn new(interface: Interface) -> Table {
        Table {
            interface,
            readers: BTreeMap::new(),
            followers: HashMap::new(),
            groups: HashMap::new(),
            evaluated: 0,
            serial: 0,
            copied: 0,
            last: 0,
            scratch: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Adds a reader, which follows nothing yet. Its number is never given again. `memory` is the size of the packet
    /// buffer in bytes, if the reader is the first of its group.
    ///
    /// # Errors
    /// There is no memory for its buffers.
    pub fn join(
        &mut self,
        group: &Group,
        snaplen: usize,
        memory: usize,
    ) -> Result<(u64, Descriptors), RingError> {
        let mut index = Index::create(PLACES, self.interface.link)?;
        let shared = match self.groups.get_mut(group) {
            Some(shared) => shared,
            None => {
                let buffer = Buffer::create(memory, &self.interface)?;
                self.groups.entry(group.clone()).or_insert(Shared { buffer, readers: 0 })
            }
        };
        if let Some(origin) = shared.buffer.origin() {
            index.comes_from(0, origin);
        }
        let copy = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map_err(duplicating);
        let descriptors = (copy(shared.buffer.packets().fd()), copy(index.fd()));
        let (Ok(packets), Ok(own)) = descriptors else {
            let error = descriptors.0.err().or(descriptors.1.err());
            self.drop_empty_groups();
            return Err(error.unwrap_or_else(|| duplicating(io::Error::last_os_error())));
        };
        shared.readers += 1;
        self.last += 1;
        let reader = Reader {
            group: group.clone(),
            index,
            snaplen,
            follows: Vec::new(),
            is_paused: false,
            is_closed: false,
            meter: Meter::default(),
            refused: 0,
        };
        self.readers.insert(self.last, reader);
        Ok((self.last, [packets, own]))
    }

    fn drop_empty_groups(&mut self) {
        let copied = &mut self.copied;
        self.groups.retain(|_, shared| {
            if shared.readers == 0 {
                *copied += shared.buffer.copied();
            }
            shared.readers > 0
        });
    }

    /// Sets the filters that a reader follows, from the next batch on. Returns the number of its frames before that.
    pub fn follow(&mut self, reader: u64, numbers: Vec<u64>, now: Elsewhere) -> u64 {
        let Some(one) = self.readers.get_mut(&reader) else { return 0 };
        for number in std::mem::replace(&mut one.follows, numbers) {
            forget(&mut self.followers, number, reader);
        }
        if one.runs() {
            for &number in &one.follows {
                self.followers.entry(number).or_default().push(reader);
            }
        }
        self.meter(reader, now)
    }

    /// Pauses a reader, or starts it again. Returns the number of its frames before that.
    pub fn pause(&mut self, reader: u64, is_paused: bool, now: Elsewhere) -> u64 {
        let Some(one) = self.readers.get_mut(&reader) else { return 0 };
        one.is_paused = is_paused;
        let follows = one.follows.clone();
        self.follow(reader, follows, now)
    }

    /// Starts or stops the counts of a reader. It has none while it follows nothing.
    fn meter(&mut self, reader: u64, now: Elsewhere) -> u64 {
        let evaluated = self.evaluated;
        let Some(one) = self.readers.get_mut(&reader) else { return 0 };
        match one.runs() {
            true => one.meter.start(evaluated, now),
            false => one.meter.stop(evaluated, now),
        }
        one.meter.read(evaluated, now).0
    }

    /// The counts of a reader.
    pub fn counts(&self, reader: u64, now: Elsewhere) -> Counts {
        let Some(one) = self.readers.get(&reader) else { return Counts::default() };
        let (evaluated, elsewhere) = one.meter.read(self.evaluated, now);
        let accepted = one.index.pushed();
        Counts {
            accepted,
            rejected: (evaluated + elsewhere.below).saturating_sub(accepted + one.refused),
            dropped: elsewhere.dropped,
            refused: one.refused,
            is_partial: elsewhere.is_partial,
        }
    }

    /// Stores no more frames for a reader: its index is closed. Returns its last counts.
    pub fn close(&mut self, reader: u64, now: Elsewhere) -> Counts {
        if let Some(one) = self.readers.get_mut(&reader) {
            one.is_closed = true;
            one.index.close();
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
            && let Some(shared) = self.groups.get_mut(&one.group)
        {
            shared.readers -= 1;
            if shared.readers == 0 {
                self.copied += shared.buffer.copied();
                empty = self.groups.remove(&one.group);
            }
        }
        (gone, empty)
    }

    /// Stores the accepted frames of a batch for their readers. `filters` adds to a list the numbers of the filters
    /// that accepted a frame, `epoch` the state of the set. Returns the frames that were stored for a reader.
    pub fn store(
        &mut self,
        batch: &Batch<'_>,
        arrived: Mask,
        accepted: Mask,
        epoch: u64,
        mut filters: impl FnMut(usize, &mut Vec<u64>),
    ) -> Mask {
        self.evaluated += arrived.count() as u64;
        self.serial += 1;
        // The index has 32 bits for it.
        let epoch = epoch as u32;
        let mut stored = Mask::EMPTY;
        let (mut scratch, mut found) =
            (std::mem::take(&mut self.scratch), std::mem::take(&mut self.found));
        for index in accepted.iter() {
            scratch.clear();
            filters(index, &mut scratch);
            found.clear();
            let of = |number| self.followers.get(number).into_iter().flatten().copied();
            found.extend(scratch.iter().flat_map(of));
            if found.len() > 1 {
                found.sort_unstable();
                found.dedup();
            }
            for &reader in &found {
                if self.give(reader, index, &batch.frames()[index], epoch) {
                    stored.set(index);
                }
            }
        }
        (self.scratch, self.found) = (scratch, found);
        stored
    }

    fn give(&mut self, reader: u64, index: usize, frame: &Frame<'_>, epoch: u32) -> bool {
        let Some(one) = self.readers.get_mut(&reader) else { return false };
        let Some(shared) = self.groups.get_mut(&one.group) else { return false };
        let mut frame = *frame;
        frame.data = &frame.data[..frame.data.len().min(one.snaplen)];
        let place = shared.buffer.place(self.serial, index, &frame);
        match &place {
            Some(placed) => one.index.push_as(0, placed, Mark { epoch, ..Mark::default() }),
            None => {
                one.index.refuse();
                one.refused += 1;
            }
        }
        place.is_some()
    }

    /// Closes the indices of all readers; returns their last counts.
    pub fn finish(&mut self, now: Elsewhere) -> Vec<(u64, Counts)> {
        let all: Vec<u64> = self.readers.keys().copied().collect();
        all.into_iter().map(|reader| (reader, self.close(reader, now))).collect()
    }

    /// Number of readers that run, of all readers, and of groups.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let running = self.readers.values().filter(|reader| reader.runs()).count();
        (running, self.readers.len(), self.groups.len())
    }

    /// Bytes of frames that were copied so far, for all groups.
    pub fn copied(&self) -> u64 {
        self.copied + self.groups.values().map(|shared| shared.buffer.copied()).sum::<u64>()
    }
}

fn duplicating(source: io::Error) -> RingError {
    RingError::Call { what: "duplicating a descriptor".to_owned(), source }
}

fn forget(followers: &mut HashMap<u64, Vec<u64>>, number: u64, reader: u64) {
    if let Some(list) = followers.get_mut(&number) {
        list.retain(|one| *one != reader);
        if list.is_empty() {
            followers.remove(&number);
        }
    }
}
