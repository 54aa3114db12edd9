//! The reading side: frames of one endpoint, in order, with an exact count of lost frames.
//!
//! | call | what | cost |
//! |---|---|---|
//! | [`Reader::next`] | copies one frame and validates it | two fences for each frame |
//! | [`Reader::lend`], [`Reader::settle`] | a batch in place, validated together | two fences for each batch |
//!
//! A frame in place is read word by word, by atomic loads, and its bytes may change until they are
//! validated: a program looks at them, or copies them, then settles the batch and discards what was
//! overwritten meanwhile. `DEPARTURE:` in FFPF a reader has a pointer to the frame; a reference to
//! bytes that another process can change is not sound in Rust.

use crate::entry::Entry;
use crate::index::IndexView;
use crate::packets::{Copied, PacketView};
use crate::page::{Page, Sleep};
use crate::protocol::{MAX_BUFFERS, Reach, is_whole};
use crate::publish::{self, Received};
use crate::{Origin, RingError, Values, sys};
use fyke_frame::LinkType;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Age of the last heartbeat from which on a writer without a connection is gone.
const SILENCE: Duration = Duration::from_millis(900);
/// Longest wait of a reader that cannot be woken.
const POLL: Duration = Duration::from_millis(1);

/// Result of [`Reader::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// A frame; its bytes were appended to the caller's buffer.
    Frame(Copied),
    /// No frame now.
    Nothing,
    /// No frame will follow: the writer has closed the ring.
    End,
    /// No frame will follow: the writer has ended without closing the ring, so its last frames may
    /// be missing. Without a connection this means that the heartbeat has stopped.
    Gone,
}

/// Result of [`Reader::lend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lending {
    /// Frames were lent, or lost.
    Frames,
    /// No frame now.
    Nothing,
    /// As [`Read::End`].
    End,
    /// As [`Read::Gone`].
    Gone,
}

/// A frame in place.
#[derive(Debug, Clone, Copy)]
pub struct Lent {
    /// Its metadata, not yet validated.
    pub head: Copied,
    number: u64,
    place: u64,
    is_whole: bool,
}

impl Lent {
    /// True if the batch was settled and the frame was whole until then.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}

/// A reader. It starts with the frames written after it connected.
#[derive(Debug)]
pub struct Reader {
    packets: Vec<PacketView>,
    index: IndexView,
    next: u64,
    read: u64,
    lost: u64,
    /// Frames that are lent and not settled.
    lent: u64,
    /// True if the writer has overwritten lent frames.
    is_overrun: bool,
    /// Frames that the writer had refused before.
    refused: u64,
    /// Frames that writers before this one have refused.
    refused_before: u64,
    page: Option<Page>,
    event: Option<OwnedFd>,
    values: Option<Values>,
    /// Open as long as the writer lives.
    stream: Option<UnixStream>,
}

impl Reader {
    /// Connects to the writer that publishes at a socket, a process of root or of our own user.
    ///
    /// # Errors
    /// No writer publishes there, it belongs to another user, or the received buffers are not a ring.
    pub fn connect(path: &Path) -> Result<Reader, RingError> {
        Reader::connect_to(path, None)
    }

    /// Connects to a writer that may also belong to this user.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_to(path: &Path, user: Option<u32>) -> Result<Reader, RingError> {
        let Received { stream, index, event, values, packets } = publish::ask(path, user)?;
        let mut reader = Reader::of(packets, index)?;
        reader.values = values.map(Values::open).transpose()?;
        // Without a page the reader polls.
        let page = Page::create(reader.next).ok();
        reader.page = page.filter(|page| publish::lend_page(&stream, page.fd()).is_ok());
        (reader.stream, reader.event) = (Some(stream), Some(event));
        Ok(reader)
    }

    /// Reads buffers that were received in another way.
    ///
    /// # Errors
    /// They are not a ring.
    pub fn open(packets: OwnedFd, index: OwnedFd) -> Result<Reader, RingError> {
        Reader::of(vec![packets], index)
    }

    /// Reads an index with all packet buffers that its entries name, in their order.
    ///
    /// # Errors
    /// They are not a ring, or there are more than 16 packet buffers.
    pub fn of(packets: Vec<OwnedFd>, index: OwnedFd) -> Result<Reader, RingError> {
        let given = packets.len() as u64;
        if packets.is_empty() || packets.len() > MAX_BUFFERS {
            let (what, expected) = ("the number of packet buffers", format!("1 to {MAX_BUFFERS}"));
            return Err(RingError::Foreign { what, given, expected });
        }
        let packets = packets.into_iter().map(PacketView::open).collect::<Result<_, _>>()?;
        let index = IndexView::open(index)?;
        let (next, refused) = (index.pushed(), index.refused());
        Ok(Reader {
            packets,
            index,
            next,
            read: 0,
            lost: 0,
            lent: 0,
            is_overrun: false,
            refused,
            refused_before: 0,
            page: None,
            event: None,
            values: None,
            stream: None,
        })
    }

    /// Lets the writer wake this reader: it has the page, and this is the descriptor that it gave for it.
    pub fn sleeps(&mut self, page: Sleep, event: OwnedFd) {
        (self.page, self.event) = (Some(page.0), Some(event));
    }

    /// Continues in the ring of a writer that has taken the place of the one before, from its entry `from` on. Call it
    /// when nothing is [waiting](Self::waiting); entries before `from` that were not read are lost.
    ///
    /// # Errors
    /// The descriptors are not a ring, or it does not continue where the old one ends; the reader stays in the old one.
    pub fn move_to(
        &mut self,
        packets: OwnedFd,
        index: OwnedFd,
        from: u64,
    ) -> Result<(), RingError> {
        let (packets, index) = (PacketView::open(packets)?, IndexView::open(index)?);
        if from < self.next || from > index.pushed() {
            let expected = format!("{} to {}", self.next, index.pushed());
            return Err(RingError::Foreign { what: "the first entry", given: from, expected });
        }
        self.give_back();
        self.refused_before = self.refused();
        (self.packets, self.index, self.refused) = (vec![packets], index, 0);
        self.lost += from - self.next;
        (self.next, self.is_overrun) = (from, false);
        self.need();
        Ok(())
    }

    /// True if the writer can wake this reader.
    pub fn is_woken(&self) -> bool {
        self.page.is_some() && self.event.is_some()
    }

    /// Link type of the first frames; others may follow.
    pub fn link(&self) -> LinkType {
        self.index.link()
    }

    /// Number of the ring: a writer that is started again has another one.
    pub fn generation(&self) -> u64 {
        self.index.generation()
    }

    /// Numbers of the interfaces that frames may come from, each with its packet buffer. The list
    /// grows before a frame of a new interface can be read.
    pub fn origins(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        self.packets.iter().enumerate().flat_map(|(buffer, view)| {
            let (set, count) = (self.index.interfaces(buffer), view.origins() as u32);
            let numbers = (0..count).filter(move |&number| set >> number & 1 != 0);
            numbers.map(move |number| (buffer as u8, number))
        })
    }

    /// An interface of a packet buffer.
    pub fn origin(&self, buffer: u8, number: u32) -> Option<Origin> {
        self.packets.get(usize::from(buffer))?.origin(number)
    }

    /// Most frames that wait for this reader.
    pub fn capacity(&self) -> u64 {
        self.index.capacity() as u64
    }

    /// Bytes that the packet buffers hold.
    pub fn bytes(&self) -> u64 {
        self.packets.iter().map(|view| view.capacity() * 8).sum()
    }

    /// Values that the writer shows, if it shows any.
    pub fn values(&self) -> Option<&Values> {
        self.values.as_ref()
    }

    /// Bytes that the writer has stored so far in all packet buffers, with the heads of frames.
    pub fn stored_bytes(&self) -> u64 {
        self.packets
            .iter()
            .fold(0, |sum: u64, view| sum.wrapping_add(view.intent().wrapping_mul(8)))
    }

    /// Frames read.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Frames overwritten before they could be read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Frames that the writer could not store since this reader started: they are too large, or
    /// slow readers held the room.
    pub fn refused(&self) -> u64 {
        self.refused_before + self.index.refused().saturating_sub(self.refused)
    }

    /// Frames that the writer has put and that are neither read nor lost yet.
    pub fn waiting(&self) -> u64 {
        self.index.pushed().saturating_sub(self.next) + self.lent
    }

    /// The next frame; its bytes are appended to `into`. Examines at most as many entries as the
    /// index has, whatever the writer does meanwhile.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Read {
        self.give_back();
        for _ in 0..self.index.capacity() {
            if let Err(end) = self.available() {
                return match end {
                    Lending::End => Read::End,
                    Lending::Gone => Read::Gone,
                    _ => Read::Nothing,
                };
            }
            let number = self.next;
            let entry = self.index.entry(number);
            let is_there = number >= self.index.still();
            self.next += 1;
            let copied = is_there.then(|| self.copy(number, entry, into)).flatten();
            match copied {
                Some(copied) => {
                    self.read += 1;
                    self.need();
                    return Read::Frame(copied);
                }
                None => self.lost += 1,
            }
        }
        self.need();
        Read::Nothing
    }

    /// Lends the next frames, at most `most`, in place of those in `into`; frames lent before that
    /// were not settled count as lost. If the writer has overwritten frames while they were lent,
    /// half of those that wait are skipped and lost: at the edge, all work would be in vain.
    pub fn lend(&mut self, into: &mut Vec<Lent>, most: usize) -> Lending {
        into.clear();
        self.give_back();
        let mut available = match self.available() {
            Ok(count) => count,
            Err(end) => return end,
        };
        if std::mem::take(&mut self.is_overrun) {
            let skipped = available / 2;
            (self.next, self.lost) = (self.next + skipped, self.lost + skipped);
            available -= skipped;
        }
        let available = available.min(most as u64);
        let first = self.next;
        let mut reaches = [None; MAX_BUFFERS];
        for number in first..first + available {
            let entry = self.index.entry(number);
            let buffer = usize::from(entry.buffer);
            let Some(view) = self.packets.get(buffer) else { continue };
            let reach: Reach =
                *reaches[buffer].get_or_insert_with(|| self.index.reach(entry.buffer));
            let Some(place) = reach.place(number, entry.place) else { continue };
            if let Some(head) = view.head(place, entry) {
                into.push(Lent { head, number, place, is_whole: false });
            }
        }
        // Entries that were overwritten while they were loaded; the frames are validated when the
        // batch is settled.
        let oldest = self.index.still();
        into.drain(..into.partition_point(|lent| lent.number < oldest));
        self.next = first + available;
        self.lent = into.len() as u64;
        self.lost += available - self.lent;
        Lending::Frames
    }

    /// Copies the bytes of a lent frame; to be validated by [`settle`](Self::settle).
    #[inline]
    pub fn copy_lent(&self, lent: &Lent, into: &mut Vec<u8>) {
        if let Some(view) = self.packets.get(usize::from(lent.head.entry.buffer)) {
            view.copy(lent.place, lent.head.len, into);
        }
    }

    /// A byte of a lent frame; to be validated by [`settle`](Self::settle).
    pub fn byte(&self, lent: &Lent, at: usize) -> Option<u8> {
        let view = self.packets.get(usize::from(lent.head.entry.buffer))?;
        (at < lent.head.len).then(|| view.eight(lent.place, at)[at % 8])
    }

    /// Validates all frames that are lent, and ends their loan.
    pub fn settle(&mut self, lent: &mut [Lent]) {
        let mut intents = [None; MAX_BUFFERS];
        let mut whole = 0;
        for one in lent.iter_mut().take(self.lent as usize) {
            let buffer = usize::from(one.head.entry.buffer);
            let Some(view) = self.packets.get(buffer) else { continue };
            let intent = *intents[buffer].get_or_insert_with(|| view.intent());
            one.is_whole = is_whole(intent, one.place, one.head.words(), view.capacity());
            whole += u64::from(one.is_whole);
        }
        self.is_overrun |= whole < self.lent;
        self.read += whole;
        self.lost += self.lent - whole;
        self.lent = 0;
        self.need();
    }

    /// Waits until there may be a frame or the writer has ended, at most `patience`; at most a
    /// millisecond if the writer cannot wake this reader.
    pub fn wait(&mut self, patience: Duration) {
        self.wait_or(patience, None);
    }

    /// The same, at most until `other` is readable; true if it is. A reader that the writer cannot wake does not look
    /// at it.
    pub fn wait_or(&mut self, patience: Duration, other: Option<BorrowedFd<'_>>) -> bool {
        let (Some(page), Some(event)) = (&self.page, &self.event) else {
            std::thread::sleep(patience.min(POLL));
            return false;
        };
        page.sleep(true);
        let mut ready = Vec::new();
        if self.index.pushed() <= self.next && !self.index.closed() {
            let stream = self.stream.as_ref().map(AsFd::as_fd);
            let fds: Vec<_> = [event.as_fd()].into_iter().chain(other).chain(stream).collect();
            ready = sys::wait(&fds, patience);
        }
        page.sleep(false);
        // A message that comes later ends the next wait.
        if ready.first().is_some_and(|ready| *ready) {
            sys::clear(event.as_fd());
        }
        other.is_some() && ready.get(1).is_some_and(|ready| *ready)
    }

    /// Descriptor that is readable after the writer has woken this reader, for programs that wait themselves; `None` if
    /// the writer cannot wake it.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().filter(|_| self.page.is_some()).map(AsFd::as_fd)
    }

    /// Asks the writer to make [`event`](Self::event) readable with the next frame. Returns false if there is already
    /// something to read, so that waiting would be wrong.
    pub fn begin_sleep(&self) -> bool {
        if let Some(page) = &self.page {
            page.sleep(true);
        }
        self.index.pushed() <= self.next && !self.index.closed()
    }

    /// Takes the request of [`begin_sleep`](Self::begin_sleep) back, and its messages.
    pub fn end_sleep(&self) {
        if let (Some(page), Some(event)) = (&self.page, &self.event) {
            page.sleep(false);
            sys::clear(event.as_fd());
        }
    }

    /// Entries that can be read now, after those that were overwritten were counted.
    fn available(&mut self) -> Result<u64, Lending> {
        let mut pushed = self.index.pushed();
        if pushed <= self.next {
            // A writer closes the index first, then its connections: so the connection is checked
            // before the index.
            let gone = self.writer_is_gone();
            let closed = self.index.closed();
            // Check the count again after the end was seen: entries pushed before the end are read
            // first.
            pushed = self.index.pushed();
            if pushed <= self.next {
                return Err(match () {
                    () if closed => Lending::End,
                    () if gone => Lending::Gone,
                    () => Lending::Nothing,
                });
            }
        }
        let oldest = self.index.oldest(pushed);
        if oldest > self.next {
            self.lost += oldest - self.next;
            self.next = oldest;
        }
        Ok(pushed - self.next)
    }

    /// Copies the frame of an entry and validates it.
    fn copy(&self, number: u64, entry: Entry, into: &mut Vec<u8>) -> Option<Copied> {
        let view = self.packets.get(usize::from(entry.buffer))?;
        let place = self.index.reach(entry.buffer).place(number, entry.place)?;
        let copied = view.head(place, entry)?;
        let before = into.len();
        view.copy(place, copied.len, into);
        if is_whole(view.intent(), place, copied.words(), view.capacity()) {
            return Some(copied);
        }
        into.truncate(before);
        None
    }

    /// Counts frames that were lent and never settled as lost.
    fn give_back(&mut self) {
        self.lost += std::mem::take(&mut self.lent);
    }

    /// Tells the writer which frames are not needed any more.
    fn need(&self) {
        if let Some(page) = &self.page {
            page.need(self.next);
        }
    }

    fn writer_is_gone(&self) -> bool {
        match (&self.stream, self.index.beat()) {
            (Some(stream), _) => publish::is_gone(stream),
            (None, 0) => false,
            (None, beat) => u128::from(sys::now_ns().saturating_sub(beat)) > SILENCE.as_nanos(),
        }
    }
}
