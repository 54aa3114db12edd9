//! Live frames of an interface before the host gets them (AF_XDP): the host does not get these frames.
//!
//! ```text
//! driver ─▶ program at XDP (Redirect) ─▶ socket of queue 0 ─▶ ring ─┐
//!                                     └▶ socket of queue n ─▶ ring ─┴▶ batches, in place
//! ```
//!
//! Each queue of the interface has a socket, or one for each of several workers ([`XdpSource::open_several`]). The
//! program then selects the worker by the class that the filter before it gave the frame, or by the frame's pair of
//! addresses as [`crate::FlowHash`] does (after up to two tags; other frames go to the first worker). All sockets use
//! one memory, in which the kernel stores each frame once; the source lends frames in place and returns them later. The
//! most recent ones are *held* for [`LookBack`]; fewer are if less than a quarter of a queue's frames is free. Frames
//! begin at 64·k + 2, so that IP headers are aligned. If the kernel copies frames, one of more than 3,838 bytes arrives
//! in several parts, which are put together.
//!
//! A filter ([`Source::set_filter`]) runs before the sockets; the host gets what it rejects.
//!
//! Only incoming frames come this way. Their time is that at which the program redirected them, or that of reading if
//! the driver has no room for it before frames. The device's own time is used if it agrees with the system's
//! ([`CLOCKS_AGREE_NS`]). Frames of several queues are merged by time (module `order`). A tag that the device removed
//! from the bytes is reinserted if the driver tells it to programs at XDP; otherwise it is lost, and the driver must
//! leave tags in frames (`ethtool -K IF rxvlan off`).
//!
//! | a frame of the interface | counted by |
//! |---|---|
//! | given to a socket; its queue has none, or its worker has left | the program ([`Redirect::counts`]) |
//! | too long for a frame of the memory, before Linux 6.6; the host gets it | the program |
//! | dropped by the socket: no free frame, ring full | the socket |
//! | delivered | this source |
//!
//! Frames of a queue that is new since the start are left to the host, and a notice tells of it. A veth runs the
//! program for such a queue from its next start on only, so that until then nothing counts them.
//!
//! After a [stop](Source::stop) the program redirects no more, no run of it is left, and the rings are read to their
//! end; what only the program counted was not taken by a socket ([`crate::DROP_REASONS`]). So
//! `received = delivered + dropped`, exactly.
//!
//! An interface that disappears ends the source with an error, after the frames in its rings: new sockets would need
//! rights that the process has given up. Minimum kernel version: 5.10. Source: the kernel's af_xdp.rst.

mod clocks;
mod order;
mod queues;

use crate::error::{LiveError, ReadError};
use crate::rebind;
use crate::source::{
    HeldFrames, HeldMark, Interface, LinkState, LookBack, Next, Notice, SocketFilter, Source,
    SourceStats,
};
use crate::sys::poll::{self, Bell, Edge};
use crate::sys::time;
use crate::sys::xdp::{FRAME, PACKET_AT, Received, Storing, XdpSocket};
pub use clocks::CLOCKS_AGREE_NS;
use clocks::{now_ns, time_of};
use fyke_frame::{BATCH_CAPACITY, Batch, Direction, Frame, LinkType, Meta};
use order::QueueOrder;
pub(crate) use queues::Queues;
use queues::lock;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two checks of the interface while no frame arrives.
const LOOK: Duration = Duration::from_millis(200);
/// Share of a worker's frames of a queue that may be held, or wait for earlier frames of other queues.
const HELD: u32 = 4;
/// Pause after a wake-up for each frame of a queue's share of the memory. So the frames of a pause take at most half of
/// the share if 16 million come in a second.
const PAUSE_NS: u64 = 31;
/// Most workers.
pub const MAX_WORKERS: u32 = 64;

/// The program of an interface that gives frames to sockets.
pub trait Redirect: Send {
    /// Gives the frames of a queue for a worker to a socket that is bound to the queue.
    ///
    /// # Errors
    /// The kernel refuses, or the program is for fewer workers.
    fn connect(&mut self, queue: u32, worker: u32, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Sets the factor, an odd number, of the hash that selects the worker of a frame by its pair of addresses.
    fn set_factor(&self, factor: u32);

    /// Leaves the frames of some workers to the host, and counts them as those of queues without a socket. Bit n is
    /// for worker n.
    fn set_gone(&self, workers: u64);

    /// Starts or stops to redirect and to count. While it is off the host gets every frame.
    fn set_on(&self, on: bool);

    /// Leaves frames of more bytes to the host, and counts them.
    fn set_longest(&self, bytes: u32);

    /// Frames so far.
    fn counts(&self) -> Redirected;

    /// The place for a filter of the frames.
    ///
    /// # Errors
    /// The system refuses.
    fn filter(&mut self) -> io::Result<Arc<dyn DriverFilter>>;

    /// True if the program runs in the driver, which may then store frames without a copy.
    fn is_native(&self) -> bool;
}

/// The place of a [`Redirect`] for a program that filters before frames are given to sockets.
pub trait DriverFilter: Send + Sync {
    /// The program to which the filter gives the frames that it accepts.
    fn deliver(&self) -> BorrowedFd<'_>;

    /// Puts a filter in.
    ///
    /// # Errors
    /// The kernel refuses.
    fn put(&self, program: BorrowedFd<'_>) -> io::Result<()>;

    /// Switches it on or off.
    fn set_filtering(&self, on: bool);
}

/// Counts of a [`Redirect`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redirected {
    /// Frames that it gave to sockets.
    pub to_sockets: u64,
    /// Frames of queues without a socket, or of workers that have left.
    pub without_socket: u64,
    /// Frames that are too long for a socket.
    pub too_long: u64,
}

/// Options of a capture by AF_XDP.
#[derive(Debug, Clone)]
pub struct XdpOptions {
    /// Interface name.
    pub interface: String,
    /// The queue to capture from; `None` = all.
    pub queue: Option<u32>,
    /// Most bytes of a frame that are lent.
    pub snaplen: u32,
    /// KiB of the memory of all frames of a worker: 4 for each frame.
    pub buffer_kib: u32,
    /// True to hold frames for look-back.
    pub look_back: bool,
    /// True to receive frames that are addressed to other hosts.
    pub promiscuous: bool,
    /// True if the class of the text that accepts a frame selects one of several workers
    /// ([`Interface::by_class`]); by the pair of addresses otherwise.
    pub by_class: bool,
}

/// A frame that this process has.
#[derive(Debug)]
struct View {
    content: Content,
    timestamp_ns: u64,
    sequence: u64,
    /// True if a tag was reinserted.
    restored: bool,
    mark: DriverMark,
}

/// The bytes of a frame.
#[derive(Debug)]
enum Content {
    /// In the memory.
    Placed(Received),
    /// Those of one that came in parts, which are the kernel's again.
    Long(Box<[u8]>),
}

/// The decision about a frame by a filter at the driver, under the texts of the frame's arrival. A later edit may have
/// changed them, so it saves no evaluation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriverMark {
    /// Class of the text that accepted the frame, as set before the filter; 0 = none, or one above 65,535.
    pub class: u16,
    /// Number of the counter of that text; 0 = no text accepted the frame at the driver.
    pub row: u16,
}

/// A capture by AF_XDP, or the part of a worker.
pub struct XdpSource {
    // Dropped first: with the last source, the host gets its frames again before the sockets are closed.
    queues: Arc<Queues>,
    /// Number of the worker.
    worker: usize,
    edge: Edge,
    /// The sockets, by queue.
    sockets: Vec<XdpSocket>,
    snaplen: u32,
    interfaces: [Interface; 1],
    timeout: Duration,
    look_back: bool,
    /// Frames that were lent and are not returned yet, oldest first; those of the current batch are the last.
    held: VecDeque<View>,
    /// Bytes of those that came in parts.
    long_bytes: usize,
    /// Number of frames of the current batch.
    lent: usize,
    received: Vec<Received>,
    /// Parts of the packet that is put together.
    parts: Vec<Received>,
    /// Frames to return, by queue.
    spare: Vec<Vec<Received>>,
    /// Frames of several queues, in the order of time.
    order: QueueOrder,
    filter: Option<Arc<dyn SocketFilter>>,
    stats: SourceStats,
    state: LinkState,
    looked: Instant,
    /// Time of the last check for new queues, and if there are some.
    watched: Instant,
    has_new_queue: bool,
    notices: VecDeque<Notice>,
    stopped: bool,
    gone: bool,
    ended: bool,
}

impl XdpSource {
    /// Starts a capture. `redirect` makes the program of the interface; it is called when the memory is there.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, for an interface or a queue that does not exist, is down or is in use, for invalid options.
    pub fn open<E: From<ReadError>>(
        options: &XdpOptions,
        redirect: impl FnOnce() -> Result<Box<dyn Redirect>, E>,
    ) -> Result<XdpSource, E> {
        let mut one = XdpSource::open_several(options, 1, redirect)?;
        Ok(one.remove(0))
    }

    /// Starts a capture with a source for each of 1 to [`MAX_WORKERS`] workers; `redirect` makes a program for as many.
    /// Counts of a source are those of its sockets only, if there are several: [`crate::RingGroup::at_driver`] has the
    /// sum. If a source is dropped before the stop, the host gets its frames, which are counted as dropped.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_several<E: From<ReadError>>(
        options: &XdpOptions,
        workers: u32,
        redirect: impl FnOnce() -> Result<Box<dyn Redirect>, E>,
    ) -> Result<Vec<XdpSource>, E> {
        let (queues, sockets) = Queues::open(options, workers, redirect)?;
        let queues = Arc::new(queues);
        let all = sockets.into_iter().enumerate();
        let made = all.map(|(worker, sockets)| {
            let made = XdpSource::of_worker(options, worker, sockets, Arc::clone(&queues));
            made.map_err(|source| queues.failed("epoll", source))
        });
        made.collect::<Result<_, _>>().map_err(|error| E::from(ReadError::Live(error)))
    }

    fn of_worker(
        options: &XdpOptions,
        worker: usize,
        sockets: Vec<XdpSocket>,
        queues: Arc<Queues>,
    ) -> io::Result<XdpSource> {
        let edge = Edge::new()?;
        sockets.iter().try_for_each(|socket| edge.add(socket.as_fd()))?;
        let interface = Interface {
            snaplen: options.snaplen,
            netmask: queues.netmask,
            at_driver: true,
            by_class: options.by_class && queues.has_workers(),
            ..Interface::new(&options.interface, LinkType::EN10MB)
        };
        let mut spare = Vec::new();
        spare.resize_with(sockets.len(), Vec::new);
        Ok(XdpSource {
            queues,
            worker,
            edge,
            sockets,
            snaplen: options.snaplen,
            interfaces: [interface],
            timeout: Duration::from_millis(20),
            look_back: options.look_back,
            held: VecDeque::new(),
            long_bytes: 0,
            lent: 0,
            received: Vec::with_capacity(BATCH_CAPACITY),
            parts: Vec::new(),
            spare,
            order: QueueOrder::default(),
            filter: None,
            stats: SourceStats::default(),
            state: LinkState::Up,
            looked: Instant::now(),
            watched: Instant::now(),
            has_new_queue: false,
            notices: VecDeque::new(),
            stopped: false,
            gone: false,
            ended: false,
        })
    }

    /// The queues that are captured.
    pub fn queues(&self) -> std::ops::Range<u32> {
        let first = self.queues.first_queue;
        first..first + self.sockets.len() as u32
    }

    /// True if the driver stores frames in the memory without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.queues.storing == Storing::ZeroCopy
    }

    /// The decisions of the filter at the driver about the frames of the last batch, in their order.
    pub fn marks(&self) -> impl Iterator<Item = DriverMark> {
        self.held.range(self.held.len() - self.lent..).map(|view| view.mark)
    }

    /// Queues that this source shares with those of other workers.
    pub(crate) fn common(&self) -> Arc<Queues> {
        Arc::clone(&self.queues)
    }

    /// Returns frames to the kernel: all that were lent, or those that need not be held.
    fn retire(&mut self) {
        self.lent = 0;
        let most = if self.look_back { self.held_limit() } else { 0 };
        while self.held.len() > most || (self.is_short() && !self.held.is_empty()) {
            let spare = (self.held.len() - most.min(self.held.len())).max(BATCH_CAPACITY);
            let count = spare.min(self.held.len());
            for view in self.held.drain(..count) {
                match view.content {
                    Content::Placed(part) => self.spare[self.queues.queue_of(&part)].push(part),
                    Content::Long(bytes) => self.long_bytes -= bytes.len(),
                }
            }
            self.return_spare();
        }
    }

    /// Returns the spare frames to the kernel, those of a queue together: few system-wide stores, and one lock.
    fn return_spare(&mut self) {
        for (queue, spare) in self.spare.iter_mut().enumerate().filter(|(_, all)| !all.is_empty()) {
            let fill = self.queues.fill(queue);
            fill.put(spare.drain(..));
            if fill.needs_wakeup() {
                // The call wakes the driver; whether there are frames does not matter here.
                let _frames = poll::readable(self.sockets[queue].as_fd(), 0);
            }
        }
    }

    /// Most frames that are held.
    fn held_limit(&self) -> usize {
        (self.queues.share / HELD) as usize * self.sockets.len()
    }

    /// True if a queue has few free frames, or much is held outside of the memory.
    fn is_short(&self) -> bool {
        let memory = self.queues.share as usize * self.sockets.len() * FRAME;
        self.long_bytes > memory / HELD as usize || self.queues.is_short()
    }

    /// Takes over the frames of the next batch; false if there are none yet.
    fn receive(&mut self) -> Result<bool, LiveError> {
        self.received.clear();
        match self.sockets.len() {
            1 => self.read(0, BATCH_CAPACITY)?,
            _ => self.receive_merged()?,
        }
        Ok(!self.received.is_empty())
    }

    /// Reads frames of a queue.
    fn read(&mut self, queue: usize, limit: usize) -> Result<(), LiveError> {
        let read = self.sockets[queue].receive(limit, &mut self.received);
        read.map_err(|offset| LiveError::Damaged {
            interface: self.queues.name.clone(),
            block: self.queues.first_queue + queue as u32,
            offset,
        })
    }

    /// Reads all queues, and takes the frames that none can precede any more.
    fn receive_merged(&mut self) -> Result<(), LiveError> {
        let most = (self.queues.share / HELD) as usize;
        let now_ns = time::monotonic_ns();
        for queue in 0..self.sockets.len() {
            let room = most.saturating_sub(self.order.waiting(queue)).min(BATCH_CAPACITY);
            self.read(queue, room)?;
            let is_empty = self.sockets[queue].is_empty();
            let umem = &self.queues.umem;
            let arrival_ns =
                |part: &_| umem.arrival(part).map_or(now_ns, |arrival| arrival.monotonic_ns);
            self.order.add(queue, self.received.drain(..), arrival_ns, is_empty);
        }
        let end = self.stopped || self.gone;
        self.order.take(if end { u64::MAX } else { now_ns }, most, &mut self.received);
        Ok(())
    }

    /// Time from a wake-up to the read, in which more frames come: a wake-up costs more than the evaluation of a frame.
    fn pause(&self) -> Duration {
        Duration::from_nanos(u64::from(self.queues.share) * PAUSE_NS)
    }

    /// Waits for frames; false after the time-out.
    fn wait(&mut self) -> Result<bool, LiveError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if self.receive()? {
                return Ok(true);
            }
            if self.stopped {
                return Ok(false);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let left = self.order.due_in(time::monotonic_ns()).map_or(left, |due| left.min(due));
            let left_ms = left.as_micros().div_ceil(1_000).min(u128::from(u16::MAX)) as u16;
            // A caller that waits on the descriptor itself waits for the next change.
            let woken = self.edge.wait(left_ms);
            let woken = woken.map_err(|source| self.queues.failed("epoll_wait", source))?;
            if left.is_zero() || woken.is_called {
                return self.receive();
            }
            std::thread::sleep(self.pause());
        }
    }

    /// Checks the interface while no frame arrives.
    fn check_link(&mut self) -> Result<(), LiveError> {
        for at in 0..self.sockets.len() {
            let error = self.sockets[at].take_error();
            match error.map_err(|source| self.queues.failed("SO_ERROR", source))? {
                Some(error) if is(&error, libc::ENETDOWN) => self.gone = true,
                Some(error) => return Err(self.queues.failed("capture", error)),
                None => {}
            }
        }
        if self.looked.elapsed() < LOOK || self.gone || self.worker > 0 {
            return Ok(());
        }
        self.looked = Instant::now();
        // Without it, its sockets are about to report that it is gone; without a helper it cannot be looked for.
        let found = rebind::label(&self.queues.name, self.queues.ifindex).ok().flatten();
        let Some((interface, up)) = found else { return Ok(()) };
        let state = if up { LinkState::Up } else { LinkState::Down };
        if state != self.state {
            self.state = state;
            // Few at a time: the next check comes later.
            self.notices.truncate(2);
            self.notices.push_back(Notice { interface, state, why: String::new() });
        }
        Ok(())
    }

    /// Tells once that the interface has more queues than at the start.
    fn watch_queues(&mut self) {
        if self.has_new_queue || self.watched.elapsed() < LOOK || self.worker > 0 {
            return;
        }
        self.watched = Instant::now();
        if self.queues.has_new_queue() {
            self.has_new_queue = true;
            let (interface, state) = (self.queues.name.clone(), LinkState::NewQueue);
            self.notices.push_back(Notice { interface, state, why: String::new() });
        }
    }

    fn lend(&mut self) -> Next<'_> {
        let first_sequence = self.stats.delivered;
        let before = self.held.len();
        let (now_ns, clocks) = (now_ns(), lock(&self.queues.clocks).now());
        let mut received = std::mem::take(&mut self.received);
        for part in received.drain(..) {
            let is_whole = !part.continues();
            self.parts.push(part);
            if is_whole {
                let sequence = first_sequence + (self.held.len() - before) as u64;
                let view = self.view(sequence, now_ns, clocks);
                self.held.push_back(view);
            }
        }
        self.received = received;
        self.return_spare();
        self.lent = self.held.len() - before;
        self.stats.delivered += self.lent as u64;
        let mut batch = Batch::new();
        batch.first_sequence = first_sequence;
        for view in self.held.range(before..) {
            let pushed = batch.push(self.frame(view));
            debug_assert!(pushed.is_ok(), "not too many, of one link type");
        }
        let mark = [before as u64, 0, 0, 0];
        Next::Frames(batch, LookBack::new(&*self, mark, &self.interfaces))
    }

    /// Makes the frame of the parts of a packet. Those of a long one, which are copied, become spare.
    fn view(&mut self, sequence: u64, now_ns: u64, clocks: u64) -> View {
        let umem = &self.queues.umem;
        let arrival = umem.arrival(&self.parts[0]);
        let tag = arrival.and_then(|arrival| arrival.tag);
        let restored = tag.is_some_and(|tag| umem.insert_tag(&mut self.parts[0], tag));
        let content = match self.parts.pop() {
            Some(part) if self.parts.is_empty() => Content::Placed(part),
            last => {
                self.parts.extend(last);
                let bytes = umem.gathered(&self.parts);
                self.long_bytes += bytes.len();
                for part in self.parts.drain(..) {
                    self.spare[self.queues.queue_of(&part)].push(part);
                }
                Content::Long(bytes)
            }
        };
        let timestamp_ns = arrival.map_or(now_ns, |arrival| {
            time_of(arrival.monotonic_ns.saturating_add(clocks), arrival.device_ns)
        });
        let mark = arrival.map_or_else(DriverMark::default, |arrival| DriverMark {
            class: arrival.class,
            row: arrival.row,
        });
        View { content, timestamp_ns, sequence, restored, mark }
    }

    fn frame<'a>(&'a self, view: &'a View) -> Frame<'a> {
        let whole = match &view.content {
            Content::Long(bytes) => bytes,
            Content::Placed(part) => self.queues.umem.packet(part),
        };
        let data = &whole[..whole.len().min(self.snaplen as usize)];
        Frame {
            data,
            wire_len: whole.len() as u32,
            timestamp_ns: view.timestamp_ns,
            link: LinkType::EN10MB,
            interface: 0,
            meta: Meta {
                direction: direction(data, self.queues.address),
                ifindex: self.queues.ifindex,
                restored: view.restored,
                ..Meta::default()
            },
        }
    }
}

/// The frames of a worker that leaves: the host gets new ones, and other workers have the memory of those that wait.
impl Drop for XdpSource {
    fn drop(&mut self) {
        if !self.queues.has_workers() {
            return;
        }
        self.queues.leave(self.worker);
        self.order.take_all(&mut self.received);
        for queue in 0..self.sockets.len() {
            // After damage in the ring, the rest stays unread.
            let _damaged = self.read(queue, usize::MAX);
        }
        let unread = self.received.iter().filter(|part| !part.continues()).count();
        self.queues.add_unread(unread as u64);
        let held = self.held.drain(..).filter_map(|view| match view.content {
            Content::Placed(part) => Some(part),
            Content::Long(_) => None,
        });
        for part in held.chain(self.received.drain(..)) {
            self.spare[self.queues.queue_of(&part)].push(part);
        }
        self.return_spare();
    }
}

/// The direction of an incoming frame, as the kernel determines it for packet sockets.
fn direction(frame: &[u8], own: [u8; 6]) -> Direction {
    match frame.first_chunk::<6>() {
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Direction::Broadcast,
        Some(to) if to[0] & 1 != 0 => Direction::Multicast,
        Some(to) if *to == own => Direction::Inbound,
        _ => Direction::OtherHost,
    }
}

fn is(error: &io::Error, number: libc::c_int) -> bool {
    error.raw_os_error() == Some(number)
}

impl Source for XdpSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        if self.ended {
            return Ok(Next::End);
        }
        self.retire();
        self.watch_queues();
        let arrived = self.wait().and_then(|arrived| match arrived {
            // Frames that wait for those of other queues come before the end.
            false if !self.stopped => {
                self.check_link().and_then(|()| if self.gone { self.receive() } else { Ok(false) })
            }
            arrived => Ok(arrived),
        });
        match arrived {
            Ok(true) => Ok(self.lend()),
            Ok(false) if self.stopped || self.gone => {
                self.ended = true;
                match self.gone {
                    false => Ok(Next::End),
                    true => {
                        Err(LiveError::DriverGone { interface: self.queues.name.clone() }.into())
                    }
                }
            }
            Ok(false) => Ok(Next::Idle),
            Err(error) => {
                self.ended = true;
                Err(error.into())
            }
        }
    }

    fn stats(&mut self) -> SourceStats {
        // On failure the old counts stay; the kernel keeps counting.
        if let Some(stats) = Queues::of_sockets(&self.sockets, self.stats.delivered) {
            let filtered = self.stats.filtered;
            self.stats = match self.queues.has_workers() {
                true => SourceStats { filtered, ..stats },
                false => self.queues.complete(SourceStats { filtered, ..stats }, self.ended),
            };
        }
        if let Some(filter) = &self.filter {
            self.stats.take_filtered(&**filter);
        }
        self.stats
    }

    /// None while frames wait for those of other queues: time makes them ready.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.order.is_empty().then(|| self.edge.fd())
    }

    fn set_patience(&mut self, patience: Duration) {
        self.timeout = patience;
    }

    fn listen(&mut self, bell: &Bell) -> bool {
        self.edge.listen(bell).is_ok()
    }

    fn stop(&mut self) -> bool {
        if !self.stopped && !self.ended {
            self.queues.stop();
            self.stopped = true;
        }
        !self.ended
    }

    fn set_filter(&mut self, filter: Arc<dyn SocketFilter>) -> io::Result<()> {
        if self.stopped || self.ended {
            return Err(io::Error::other("the capture has been stopped"));
        }
        self.queues.set_filter(&filter)?;
        self.filter = Some(filter);
        Ok(())
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

/// Frames that were lent before the batch and not returned.
impl HeldFrames for XdpSource {
    fn frames(&self, [before, ..]: HeldMark) -> Box<dyn Iterator<Item = (u64, Frame<'_>)> + '_> {
        let held = self.held.range(..(before as usize).min(self.held.len()));
        Box::new(held.map(|view| (view.sequence, XdpSource::frame(self, view))))
    }

    fn frame(&self, [before, ..]: HeldMark, sequence: u64) -> Option<Frame<'_>> {
        let at = self.held.partition_point(|view| view.sequence < sequence);
        let view = self.held.get(at).filter(|_| at < before as usize)?;
        (view.sequence == sequence).then(|| XdpSource::frame(self, view))
    }
}

const _: () = assert!(PACKET_AT % 64 == 2, "IP headers are aligned");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direction_is_that_of_a_packet_socket() {
        let own = [2, 0, 0, 0, 0, 1];
        let to = |address: [u8; 6]| direction(&address, own);
        assert_eq!(to([0xff; 6]), Direction::Broadcast);
        assert_eq!(to([1, 0, 0x5e, 0, 0, 1]), Direction::Multicast);
        assert_eq!(to(own), Direction::Inbound);
        assert_eq!(to([2, 0, 0, 0, 0, 9]), Direction::OtherHost);
        assert_eq!(direction(&[2, 0], own), Direction::OtherHost);
    }
}
