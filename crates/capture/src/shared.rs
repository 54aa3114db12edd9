//! Frames that another process stores in shared memory: a ring that `fyke demux 'EXPR => ring:NAME'` publishes.
//!
//! Frames are copied out of the ring, a batch at a time, because its writer continues meanwhile; one check validates
//! the batch. They have the metadata that they had at the writer's source, so a filter evaluates them as it does there.
//! A ring may carry frames of several interfaces and link types: each becomes an interface of this source when its
//! first frame may arrive. Frames that the writer overwrote before they were copied count as dropped, and so do frames
//! that it could not store; frames longer than the limit count as unreadable.
//!
//! The source ends when the writer has ended and everything is read; with an error if the writer has not closed the
//! ring, because it was killed. After a stop it ends at the writer's position at that time. After
//! frames have arrived, the source naps once, because more often follow, for a time in which the ring does not fill up;
//! then it sleeps until the writer wakes it. So a burst costs few wake-ups, and silence none.
//!
//! The writer may be a [`FrameServer`], which filters frames by texts before it stores them: `fyke serve`. Then the
//! texts of the filters after the source are edited there ([`SocketFilter::take_server`]), and the frames that it
//! rejects or loses are in the counts. Without such filters it stores every frame. One that cannot wake this reader is
//! polled every five milliseconds.

use crate::error::ReadError;
use crate::server::{FrameServer, Moved, ServerCounts};
use crate::source::{
    DEFAULT_SNAPLEN, DROP_REASONS, Interface, LinkState, LookBack, NO_ROOM, Next, Notice,
    OVERWRITTEN, SocketFilter, Source, SourceStats,
};
use crate::sys::poll::{Bell, Edge};
use fyke_frame::{BATCH_CAPACITY, Batch, LinkType};
use fyke_ring::packets::Copied;
use fyke_ring::{Lending, Lent, Origin, Reader};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait of a call for a frame, by default.
const PATIENCE: Duration = Duration::from_millis(100);
/// Nap after frames have arrived: as an interface, a ring hands over frames after 20 ms at most. The second one is for
/// a ring that could fill up meanwhile.
const NAP: Duration = Duration::from_millis(20);
const SHORT_NAP: Duration = Duration::from_millis(1);
/// Part of the ring that may fill up during a nap.
const ROOM: u64 = 16;
/// Time between two polls of a silent source that no writer wakes.
const LONG_PAUSE: Duration = Duration::from_millis(5);
/// Longest wait after a stop for a server to store the frames that have arrived there.
const LAST_FRAMES: Duration = Duration::from_secs(2);
/// Age up to which a server's counts are recent. A request for them costs two processes a wake-up.
const RECENT: Duration = Duration::from_secs(1);
/// Number of the text that asks a server for every frame.
const EVERY_FRAME: u64 = u64::MAX;

/// Most interfaces of a source; frames of more are unreadable.
const MAX_INTERFACES: usize = 1 << 12;

/// Frames that were copied out of a ring together, at most a batch, of any link types.
#[derive(Debug, Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    frames: Vec<Lent>,
    /// The place of each frame.
    places: Vec<Place>,
}

/// The start of a frame's bytes in the chunk, and its interface.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    interface: u32,
}

/// Result of [`SharedSource::next_chunk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// The chunk has frames.
    Frames,
    /// There are none at the moment.
    Nothing,
    /// The source has ended.
    End,
}

impl Chunk {
    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The captured bytes of all frames, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The place of a frame's bytes among those of all; empty if there are fewer frames.
    #[inline]
    pub fn range(&self, index: usize) -> Range<usize> {
        let (Some(place), Some(frame)) = (self.places.get(index), self.frames.get(index)) else {
            return 0..0;
        };
        place.start..place.start + frame.head.len
    }

    /// True if all frames are of this link type.
    pub fn is_all(&self, link: LinkType) -> bool {
        self.frames.iter().all(|frame| frame.head.link == link)
    }

    /// The metadata of a frame.
    ///
    /// # Panics
    /// There are fewer.
    #[inline]
    pub fn head(&self, index: usize) -> &Copied {
        &self.frames[index].head
    }

    /// A frame.
    ///
    /// # Panics
    /// There are fewer.
    #[inline]
    pub fn frame(&self, index: usize) -> fyke_frame::Frame<'_> {
        let mut frame = self.frames[index].head.frame(&self.bytes[self.range(index)]);
        frame.interface = self.places[index].interface;
        frame
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
        self.places.clear();
    }

    /// Copies the bytes of the frames that a reader has lent, and settles them.
    fn copy(&mut self, reader: &mut Reader) {
        for lent in &self.frames {
            self.places.push(Place { start: self.bytes.len(), interface: NONE });
            if is_within_limit(lent) {
                reader.copy_lent(lent, &mut self.bytes);
            }
        }
        reader.settle(&mut self.frames);
    }

    /// Keeps the frames that are whole and have an interface; returns the number of whole ones without.
    fn keep(&mut self) -> u64 {
        let (mut kept, mut without) = (0, 0);
        for index in 0..self.frames.len() {
            let (frame, place) = (self.frames[index], self.places[index]);
            if frame.is_whole() && place.interface != NONE {
                (self.frames[kept], self.places[kept]) = (frame, place);
                kept += 1;
            } else {
                without += u64::from(frame.is_whole());
            }
        }
        self.frames.truncate(kept);
        self.places.truncate(kept);
        without
    }
}

/// No interface.
const NONE: u32 = u32::MAX;

fn is_within_limit(lent: &Lent) -> bool {
    lent.head.len <= DEFAULT_SNAPLEN as usize
}

/// The server of a source, and the requests to it so far.
#[derive(Debug)]
struct Server {
    peer: Arc<dyn FrameServer>,
    /// True once it has texts: of filters, or one that accepts every frame.
    has_texts: bool,
    /// Time after which its frames are not waited for; `None` before a stop.
    deadline: Option<Instant>,
    /// Its last counts, and true if it has ended without the last ones.
    counted: Option<(Instant, ServerCounts, bool)>,
}

impl Server {
    /// Its counts, at most this old; true if it has ended without the last ones.
    fn counts(&mut self, read: u64, lost: u64, age: Duration) -> (ServerCounts, bool) {
        let recent = self.counted.filter(|(at, ..)| at.elapsed() < age);
        let ask = || (Instant::now(), self.peer.counts(read, lost), self.peer.is_cut());
        let (_, counts, is_cut) = *self.counted.insert(recent.unwrap_or_else(ask));
        (counts, is_cut)
    }
}

/// A source that reads a ring.
#[derive(Debug)]
pub struct SharedSource {
    reader: Reader,
    interfaces: Vec<Interface>,
    /// Packet buffer and number of the interfaces that the ring names; `None` for frames without a named one.
    origins: Vec<(Option<(u8, u32)>, LinkType)>,
    /// Frames that were copied.
    chunk: Chunk,
    /// The first of them that is not returned: those of other link types than the first wait for the next call.
    next: usize,
    /// Memory for the next batch.
    spare: Option<Batch<'static>>,
    /// Frames longer than the limit: an error of the writer.
    unreadable: u64,
    patience: Duration,
    /// Frames read and lost, and bytes that the writer had stored, before the last nap.
    napped: (u64, u64),
    /// Number of frames, read and lost, after which a source that was stopped ends.
    end: u64,
    server: Option<Server>,
    /// The bell that ends waits.
    calls: Option<Edge>,
}

impl SharedSource {
    /// Connects to the ring that is published at a socket by a process of root, of our own user, or of `user`.
    ///
    /// # Errors
    /// When no process publishes one there, or one of another user.
    pub fn connect(name: &str, path: &Path, user: Option<u32>) -> Result<SharedSource, ReadError> {
        let reader = Reader::connect_to(path, user).map_err(|error| {
            let source = io::Error::other(error);
            ReadError::Open { name: name.to_owned(), source }
        })?;
        Ok(SharedSource::new(name, reader))
    }

    /// Reads a ring that is already connected; `name` is the name of the source in messages and files.
    pub fn new(name: &str, reader: Reader) -> SharedSource {
        let mut source = SharedSource {
            interfaces: Vec::new(),
            origins: Vec::new(),
            chunk: Chunk::default(),
            next: 0,
            spare: None,
            unreadable: 0,
            patience: PATIENCE,
            napped: (0, 0),
            end: u64::MAX,
            reader,
            server: None,
            calls: None,
        };
        source.look(name);
        if source.interfaces.is_empty() {
            let link = source.reader.link();
            source.add(name, None, Origin::new("", link));
        }
        source
    }

    /// Reads the frames that a server stores.
    pub fn served(name: &str, reader: Reader, server: Arc<dyn FrameServer>) -> SharedSource {
        let server = Server { peer: server, has_texts: false, deadline: None, counted: None };
        SharedSource { server: Some(server), ..SharedSource::new(name, reader) }
    }

    /// Descriptor that is readable after the writer has woken this source, for programs that wait themselves instead of
    /// in [`next`](Source::next); `None` if the writer cannot wake it.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.reader.event()
    }

    /// Asks for a wake-up by [`event`](Self::event). Returns false if there is something to read already.
    pub fn begin_sleep(&self) -> bool {
        self.copied() == 0 && self.reader.begin_sleep()
    }

    /// Takes the request of [`begin_sleep`](Self::begin_sleep) back.
    pub fn end_sleep(&self) {
        self.reader.end_sleep();
    }

    /// Copies the frames that are available into `chunk`, at most a batch, and never waits. Faster than
    /// [`next`](Source::next) for a program that keeps them: there is no second copy.
    ///
    /// # Errors
    /// The writer is gone, or the server refuses.
    pub fn next_chunk(&mut self, chunk: &mut Chunk) -> Result<Filled, ReadError> {
        chunk.clear();
        if self.copied() > 0 {
            // Left by `next`: in order, and rare.
            self.chunk.frames.drain(..self.next);
            self.chunk.places.drain(..self.next);
        } else {
            self.look_at_server()?;
            if self.fill()? {
                self.ended()?;
                return Ok(Filled::End);
            }
        }
        self.next = 0;
        std::mem::swap(&mut self.chunk, chunk);
        Ok(if chunk.is_empty() { Filled::Nothing } else { Filled::Frames })
    }

    /// Number of frames that wait to be read.
    pub fn waiting(&self) -> u64 {
        self.reader.waiting() + self.copied()
    }

    /// Frames that are copied and not returned.
    fn copied(&self) -> u64 {
        self.chunk.len().saturating_sub(self.next) as u64
    }

    /// Time for which a program lets frames gather if some have arrived since the last call; zero if none have.
    pub fn nap(&mut self) -> Duration {
        let seen = (self.reader.read() + self.reader.lost(), self.reader.stored_bytes());
        let (frames, bytes) = (seen.0 - self.napped.0, seen.1.wrapping_sub(self.napped.1));
        self.napped = seen;
        let fills = frames > self.reader.capacity() / ROOM || bytes > self.reader.bytes() / ROOM;
        match frames {
            0 => Duration::ZERO,
            _ if fills => SHORT_NAP,
            _ => NAP,
        }
    }

    /// Asks a server without texts for every frame; after a stop, looks whether the server has stored the last one.
    fn look_at_server(&mut self) -> Result<(), ReadError> {
        let Some(server) = &mut self.server else { return Ok(()) };
        if !server.has_texts {
            server.has_texts = true;
            let edited = server.peer.edit(&[], &[(EVERY_FRAME, "")]);
            let name = || self.interfaces[0].name.clone();
            edited.map_err(|source| ReadError::Server { name: name(), source })?;
        }
        if let Some(deadline) = server.deadline
            && (server.peer.end() || server.peer.is_gone() || Instant::now() >= deadline)
        {
            server.deadline = None;
            self.end = self.position();
        }
        Ok(())
    }

    /// Number of frames that the writer has put for this reader.
    fn position(&self) -> u64 {
        self.reader.read() + self.reader.lost() + self.reader.waiting()
    }

    fn is_server_gone(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.peer.is_gone())
    }

    /// The end, or the reason why a server has ended this source alone.
    fn ended(&self) -> Result<Next<'_>, ReadError> {
        let reason = self.server.as_ref().and_then(|server| server.peer.end_reason());
        reason.map_or(Ok(Next::End), |reason| {
            let (name, source) = (self.interfaces[0].name.clone(), io::Error::other(reason));
            Err(ReadError::Server { name, source })
        })
    }

    /// Adds the interfaces that the ring names.
    fn look(&mut self, name: &str) {
        let named: Vec<_> = self.reader.origins().collect();
        for (buffer, number) in named {
            let at = Some((buffer, number));
            if self.origins.iter().any(|(known, _)| *known == at) {
                continue;
            }
            if let Some(origin) = self.reader.origin(buffer, number) {
                self.add(name, at, origin);
            }
        }
    }

    fn add(&mut self, name: &str, at: Option<(u8, u32)>, origin: Origin) {
        self.origins.push((at, origin.link));
        self.interfaces.push(Interface {
            description: origin.name,
            snaplen: origin.snaplen.clamp(1, DEFAULT_SNAPLEN),
            nanoseconds: origin.nanoseconds,
            netmask: origin.netmask,
            ..Interface::new(name, origin.link)
        });
    }

    /// The number of a frame's interface among those of this source. Only an error of the writer, or a writer that
    /// names no interfaces, adds one here.
    fn interface(&mut self, copied: &Copied) -> Option<u32> {
        let buffer = copied.entry.buffer;
        for is_new in [false, true] {
            let at = copied.origin.map(|number| (buffer, number));
            let fits = |(known, link): &(Option<(u8, u32)>, LinkType)| {
                *link == copied.link && (*known == at || (is_new && known.is_none()))
            };
            if let Some(found) = self.origins.iter().position(fits) {
                return Some(found as u32);
            }
            let name = self.interfaces[0].name.clone();
            self.look(&name);
        }
        if self.interfaces.len() >= MAX_INTERFACES {
            return None;
        }
        let name = self.interfaces[0].name.clone();
        self.add(&name, None, Origin::new("", copied.link));
        Some(self.interfaces.len() as u32 - 1)
    }

    /// Copies the available frames, at most a batch; true if the ring has ended.
    fn fill(&mut self) -> Result<bool, ReadError> {
        self.chunk.clear();
        self.next = 0;
        let left = self.end.saturating_sub(self.reader.read() + self.reader.lost());
        if left == 0 {
            return Ok(true);
        }
        // Looked at first: a server closes the index before the connection.
        let is_empty = self.reader.waiting() == 0;
        let gone = is_empty && self.is_server_gone();
        if is_empty && let Some(server) = &self.server {
            if let Some(Moved { packets, index, from }) = server.peer.moved() {
                let moved = self.reader.move_to(packets, index, from);
                let name = || self.interfaces[0].name.clone();
                let failed =
                    |error| ReadError::Server { name: name(), source: io::Error::other(error) };
                return moved.map(|()| false).map_err(failed);
            }
            if gone && server.peer.is_over() {
                return Ok(true);
            }
        }
        match self.reader.lend(&mut self.chunk.frames, BATCH_CAPACITY.min(left as usize)) {
            Lending::Frames => {}
            Lending::Nothing if !gone => return Ok(false),
            Lending::End => return Ok(true),
            Lending::Gone | Lending::Nothing => {
                let name = self.interfaces[0].name.clone();
                return Err(ReadError::WriterGone { name });
            }
        }
        self.chunk.copy(&mut self.reader);
        self.name_interfaces();
        Ok(false)
    }

    /// Finds the interface of each frame of the chunk; discards the frames that are unreadable or not whole.
    fn name_interfaces(&mut self) {
        let mut chunk = std::mem::take(&mut self.chunk);
        let mut is_complete = true;
        // Most frames come from where the one before came from.
        let (mut last, mut number) = (None, NONE);
        for (lent, place) in chunk.frames.iter().zip(&mut chunk.places) {
            if lent.is_whole() && is_within_limit(lent) {
                let from = (lent.head.entry.buffer, lent.head.origin, lent.head.link);
                if last != Some(from) {
                    (last, number) = (Some(from), self.interface(&lent.head).unwrap_or(NONE));
                }
                place.interface = number;
            }
            is_complete &= place.interface != NONE;
        }
        if !is_complete {
            self.unreadable += chunk.keep();
        }
        self.chunk = chunk;
    }

    /// The counts, with those of the server that are at most this old.
    fn stats_within(&mut self, age: Duration) -> SourceStats {
        let (overwritten, no_room) = (self.reader.lost(), self.reader.refused());
        let (read, dropped) = (self.reader.read(), overwritten + no_room);
        let waiting = self.copied();
        let served = self.server.as_mut().map(|server| server.counts(read, dropped, age));
        let (served, cut_off) = served.unwrap_or_default();
        let mut dropped_by = [0; DROP_REASONS.len()];
        (dropped_by[OVERWRITTEN], dropped_by[NO_ROOM]) = (overwritten, no_room);
        SourceStats {
            received: read + dropped + served.dropped - waiting,
            delivered: read - self.unreadable - waiting,
            dropped: dropped + served.dropped,
            dropped_by,
            unreadable: self.unreadable,
            filtered: served.rejected,
            filtered_uncounted: served.is_partial || cut_off,
            cut_off,
            by_graph: self.server.as_ref().is_some_and(|server| server.peer.graph().is_some()),
            beyond_policy: self.server.as_ref().is_some_and(|server| server.peer.is_restricted()),
            ..SourceStats::default()
        }
    }

    /// Waits for frames: a nap after the last ones, else until the writer wakes this process. True if a bell has ended
    /// the wait.
    fn wait(&mut self, patience: Duration) -> bool {
        match self.nap() {
            Duration::ZERO if self.server.is_some() && !self.reader.is_woken() => {
                std::thread::sleep(LONG_PAUSE.min(patience));
                false
            }
            Duration::ZERO => {
                let calls = self.calls.as_ref();
                let is_called = self.reader.wait_or(patience, calls.map(Edge::fd));
                // Takes the ring.
                is_called && calls.is_some_and(|calls| calls.wait(0).is_ok())
            }
            nap => {
                std::thread::sleep(nap.min(patience));
                false
            }
        }
    }
}

impl Source for SharedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        let start = Instant::now();
        while self.copied() == 0 {
            self.look_at_server()?;
            let before = self.reader.read() + self.reader.lost();
            if self.fill()? {
                return self.ended();
            }
            if self.copied() > 0 {
                break;
            }
            let left = self.patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(Next::Idle);
            }
            // A writer of nothing but unreadable frames must not hold the caller.
            if self.reader.read() + self.reader.lost() == before && self.wait(left) {
                return Ok(Next::Idle);
            }
        }
        let mut batch = self.spare.take().unwrap_or_default();
        // There is space: at most one batch was copied.
        while self.next < self.chunk.len() && batch.push(self.chunk.frame(self.next)).is_ok() {
            self.next += 1;
        }
        Ok(Next::Frames(batch, LookBack::none(&self.interfaces)))
    }

    fn take_back(&mut self, batch: Batch<'static>) {
        self.spare = Some(batch);
    }

    fn stats(&mut self) -> SourceStats {
        self.stats_within(Duration::ZERO)
    }

    fn recent_stats(&mut self) -> SourceStats {
        self.stats_within(RECENT)
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn take_notice(&mut self) -> Option<Notice> {
        let why = self.server.as_ref()?.peer.take_remark()?;
        let interface = self.interfaces[0].name.clone();
        Some(Notice { interface, state: LinkState::Filtering, why })
    }

    fn listen(&mut self, bell: &Bell) -> bool {
        if self.calls.is_none() {
            self.calls = Edge::new().ok();
        }
        let listens = self.calls.as_ref().is_some_and(|calls| calls.listen(bell).is_ok());
        listens && self.reader.is_woken()
    }

    fn stop(&mut self) -> bool {
        if self.end != u64::MAX {
            return true;
        }
        match &mut self.server {
            Some(server) => {
                server.deadline.get_or_insert_with(|| Instant::now() + LAST_FRAMES);
            }
            None => self.end = self.position(),
        }
        true
    }

    fn set_filter(&mut self, filter: Arc<dyn SocketFilter>) -> io::Result<()> {
        let Some(server) = &mut self.server else {
            let message = "frames do not come from a packet socket";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        };
        filter.take_server(Arc::clone(&server.peer))?;
        server.has_texts = true;
        Ok(())
    }
}
