//! Live frames of an interface before the host gets them (AF_XDP): the host does not get these frames.
//!
//! ```text
//! driver ─▶ program at XDP (Redirect) ─▶ socket of queue 0 ─▶ ring ─┐
//!                                     └▶ socket of queue n ─▶ ring ─┴▶ batches, in place
//! ```
//!
//! Each queue of the interface has a socket. All of them use one memory, in which the kernel stores each frame once;
//! the source lends frames in place and returns them later. The most recent ones are *held* for [`LookBack`]; fewer
//! are if less than a quarter of a queue's frames is free. Frames begin at 64·k + 2, so that IP headers are aligned. If
//! the kernel copies frames, one of more than 3,838 bytes arrives in several parts, which are put together.
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
//! | given to a socket, or its queue has none | the program ([`Redirect::counts`]) |
//! | too long for a frame of the memory, before Linux 6.6; the host gets it | the program |
//! | dropped by the socket: no free frame, ring full | the socket |
//! | delivered | this source |
//!
//! After a [stop](Source::stop) the program redirects no more, no run of it is left, and the rings are read to their
//! end; what only the program counted was not taken by a socket ([`crate::DROP_REASONS`]). So
//! `received = delivered + dropped`, exactly.
//!
//! An interface that disappears ends the source with an error, after the frames in its rings: new sockets would need
//! rights that the process has given up. Minimum kernel version: 5.10. Source: the kernel's af_xdp.rst.

mod order;

use crate::error::{LiveError, ReadError};
use crate::interfaces::{self, Capture};
use crate::rebind;
use crate::source::{
    DEFAULT_SNAPLEN, HeldFrames, HeldMark, Interface, LinkState, LookBack, Next, Notice,
    SocketFilter, Source, SourceStats,
};
use crate::sys::packet::{PacketSocket, grace_period};
use crate::sys::poll::{self, Edge};
use crate::sys::xdp::{FRAME, LONGEST, PACKET_AT, Received, Storing, Umem, XdpSocket};
use crate::sys::{devices, drops, time};
use fyke_frame::{BATCH_CAPACITY, Batch, Direction, Frame, LinkType, Meta};
use fyke_privilege::helper;
use order::QueueOrder;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two checks of the interface while no frame arrives.
const LOOK: Duration = Duration::from_millis(200);
/// Longest wait for a queue that another socket has just left.
const BUSY: Duration = Duration::from_secs(1);
/// Time between two attempts.
const BUSY_TICK: Duration = Duration::from_millis(5);
/// Fewest and most frames of a queue.
const QUEUE_FRAMES: (u32, u32) = (1 << 9, 1 << 17);
/// Most queues.
const MAX_QUEUES: u32 = 512;
/// Share of a queue's frames that may be held, or wait for earlier frames of other queues.
const HELD: u32 = 4;

/// Largest difference between the device's time of a frame and the system's at the program, up to which the device's
/// is used: a clock that is not set (by phc2sys) is farther off, and one of International Atomic Time is by 37 s.
pub const CLOCKS_AGREE_NS: u64 = 10_000_000;

/// Difference from which on the system's clock was set.
const CLOCK_IS_SET_NS: u64 = 1_000_000;

const NO_FREE_FRAME: usize = 0;
const NO_SOCKET: usize = 1;
const NOT_TAKEN: usize = 2;
const TOO_LONG: usize = 3;

/// The program of an interface that gives frames to sockets.
pub trait Redirect: Send {
    /// Gives the frames of a queue to a socket that is bound to it.
    ///
    /// # Errors
    /// The kernel refuses.
    fn connect(&mut self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()>;

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
    /// Frames of queues without a socket.
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
    /// KiB of the memory of all frames: 4 for each frame.
    pub buffer_kib: u32,
    /// True to hold frames for look-back.
    pub look_back: bool,
    /// True to receive frames that are addressed to other hosts.
    pub promiscuous: bool,
}

/// A frame that this process has.
#[derive(Debug, Clone)]
struct View {
    /// Its place in the memory, or that of its first part.
    place: Received,
    /// The bytes of one that came in parts, which are the kernel's again.
    long: Option<Box<[u8]>>,
    timestamp_ns: u64,
    sequence: u64,
    /// True if a tag was reinserted.
    restored: bool,
}

/// A capture by AF_XDP.
pub struct XdpSource {
    // Dropped first: the host gets its frames again before the sockets are closed.
    redirect: Box<dyn Redirect>,
    /// Keeps the interface in promiscuous mode; receives nothing.
    watch: PacketSocket,
    edge: Edge,
    sockets: Vec<XdpSocket>,
    umem: Umem,
    /// Frames of each queue.
    frames: u32,
    first_queue: u32,
    name: String,
    ifindex: u32,
    address: [u8; 6],
    snaplen: u32,
    interfaces: [Interface; 1],
    storing: Storing,
    timeout: Duration,
    look_back: bool,
    /// Frames that were lent and are not returned yet, oldest first; those of the current batch are the last.
    held: VecDeque<View>,
    /// Bytes of those that came in parts.
    long_bytes: usize,
    /// Number of frames of the current batch.
    lent: usize,
    received: Vec<Received>,
    /// Frames of several queues, in the order of time.
    order: QueueOrder,
    clocks: Clocks,
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
        let live = |error: LiveError| E::from(ReadError::Live(error));
        let name = &options.interface;
        let (found, queues) = check(options).map_err(live)?;
        let failed = |call| move |source| LiveError::Call { interface: name.clone(), call, source };
        let watch = PacketSocket::open(true)
            .map_err(|source| live(LiveError::from_socket(source, name)))?;
        let frames = frames_of_queue(options.buffer_kib, queues.end - queues.start);
        let umem = Umem::new(frames * (queues.end - queues.start));
        let umem = umem.map_err(failed("memfd")).map_err(live)?;
        let redirect = redirect()?;
        let interface = Interface {
            snaplen: options.snaplen,
            netmask: found.netmask,
            at_driver: true,
            ..Interface::new(name, found.link)
        };
        let mut source = XdpSource {
            edge: Edge::watch(watch.as_fd()).map_err(failed("epoll")).map_err(live)?,
            redirect,
            watch,
            sockets: Vec::new(),
            umem,
            frames,
            first_queue: queues.start,
            name: name.clone(),
            ifindex: found.ifindex,
            address: found.address,
            snaplen: options.snaplen,
            interfaces: [interface],
            storing: Storing::ZeroCopy,
            timeout: Duration::from_millis(20),
            look_back: options.look_back,
            held: VecDeque::new(),
            long_bytes: 0,
            lent: 0,
            received: Vec::with_capacity(BATCH_CAPACITY),
            order: QueueOrder::default(),
            clocks: Clocks::default(),
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
        };
        source.start(queues, options.promiscuous).map_err(live)?;
        Ok(source)
    }

    /// Opens the sockets, and gives them the frames of the interface.
    fn start(&mut self, queues: std::ops::Range<u32>, promiscuous: bool) -> Result<(), LiveError> {
        for queue in queues {
            self.open_queue(queue)?;
        }
        // A driver without copies refuses to run the program with longer frames.
        let parts = self.storing != Storing::Copy;
        self.redirect.set_longest(if parts { u32::MAX } else { LONGEST });
        if promiscuous {
            let joined = self.watch.promiscuous(self.ifindex);
            joined.map_err(|source| self.failed("PACKET_ADD_MEMBERSHIP", source))?;
        }
        self.redirect.set_on(true);
        Ok(())
    }

    fn open_queue(&mut self, queue: u32) -> Result<(), LiveError> {
        let first = self.sockets.first();
        let umem = first.is_none().then_some(&self.umem);
        let opened = XdpSocket::open(umem, self.frames);
        let mut socket = opened.map_err(|source| self.failed("AF_XDP", source))?;
        if first.is_none() && !self.redirect.is_native() {
            self.storing = Storing::CopyParts;
        }
        let deadline = Instant::now() + BUSY;
        loop {
            match socket.bind(self.ifindex, queue, self.storing, first) {
                Ok(()) => break,
                // A socket that was closed leaves its queue some milliseconds later.
                Err(error) if is(&error, libc::EBUSY) && Instant::now() < deadline => {
                    std::thread::sleep(BUSY_TICK);
                }
                Err(error) if is(&error, libc::EBUSY) => {
                    return Err(LiveError::QueueTaken { interface: self.name.clone(), queue });
                }
                Err(error) if is(&error, libc::ENETDOWN) => {
                    return Err(LiveError::Down { interface: self.name.clone() });
                }
                Err(_) if first.is_none() && self.storing == Storing::ZeroCopy => {
                    self.storing = Storing::CopyParts;
                }
                // A kernel that does not know the flag.
                Err(error)
                    if first.is_none()
                        && self.storing == Storing::CopyParts
                        && is(&error, libc::EINVAL) =>
                {
                    self.storing = Storing::Copy;
                }
                Err(error) => return Err(self.failed("bind", error)),
            }
        }
        let number = self.sockets.len() as u32;
        // An entry stays free, so that a full ring differs from an empty one.
        let frames = (number * self.frames..).take(self.frames as usize - 1);
        socket.fill(&mut self.umem, frames);
        self.edge.add(socket.as_fd()).map_err(|source| self.failed("epoll", source))?;
        let connected = self.redirect.connect(queue, socket.as_fd());
        connected.map_err(|source| self.failed("XSKMAP", source))?;
        self.sockets.push(socket);
        Ok(())
    }

    /// The queues that are captured.
    pub fn queues(&self) -> std::ops::Range<u32> {
        self.first_queue..self.first_queue + self.sockets.len() as u32
    }

    /// True if the driver stores frames in the memory without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.storing == Storing::ZeroCopy
    }

    /// Returns frames to the kernel: all that were lent, or those that need not be held.
    fn retire(&mut self) {
        self.lent = 0;
        let most = if self.look_back { self.held_limit() } else { 0 };
        let mut changed = false;
        while self.held.len() > most || (self.is_short() && !self.held.is_empty()) {
            let spare = (self.held.len() - most.min(self.held.len())).max(BATCH_CAPACITY);
            let count = spare.min(self.held.len());
            // Few system-wide stores: the frames of one queue are returned together.
            for (queue, socket) in self.sockets.iter_mut().enumerate() {
                let of_queue = |view: &&View| (view.place.frame / self.frames) as usize == queue;
                let whole = self.held.range(..count).filter(|view| view.long.is_none());
                let frames = whole.filter(of_queue).map(|view| view.place.frame);
                socket.fill(&mut self.umem, frames);
            }
            let long = self.held.drain(..count).filter_map(|view| view.long);
            self.long_bytes -= long.map(|bytes| bytes.len()).sum::<usize>();
            changed = true;
        }
        if changed {
            for socket in self.sockets.iter().filter(|socket| socket.needs_wakeup()) {
                // The call wakes the driver; whether there are frames does not matter here.
                let _frames = poll::readable(socket.as_fd(), 0);
            }
        }
    }

    /// Most frames that are held.
    fn held_limit(&self) -> usize {
        (self.frames / HELD) as usize * self.sockets.len()
    }

    /// True if a queue has few free frames, or much is held outside of the memory.
    fn is_short(&self) -> bool {
        let memory = self.frames as usize * self.sockets.len() * FRAME;
        self.long_bytes > memory / HELD as usize
            || self.sockets.iter().any(|socket| socket.free() < self.frames / 4)
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
        let read = self.sockets[queue].receive(&mut self.umem, limit, &mut self.received);
        read.map_err(|offset| LiveError::Damaged {
            interface: self.name.clone(),
            block: self.first_queue + queue as u32,
            offset,
        })
    }

    /// Reads all queues, and takes the frames that none can precede any more.
    fn receive_merged(&mut self) -> Result<(), LiveError> {
        let most = (self.frames / HELD) as usize;
        let now_ns = time::monotonic_ns();
        for queue in 0..self.sockets.len() {
            let room = most.saturating_sub(self.order.waiting(queue)).min(BATCH_CAPACITY);
            self.read(queue, room)?;
            let is_empty = self.sockets[queue].is_empty();
            let umem = &self.umem;
            let arrival_ns =
                |part| umem.arrival(part).map_or(now_ns, |arrival| arrival.monotonic_ns);
            self.order.add(queue, self.received.drain(..), arrival_ns, is_empty);
        }
        let end = self.stopped || self.gone;
        self.order.take(if end { u64::MAX } else { now_ns }, most, &mut self.received);
        Ok(())
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
            let changed = self.edge.wait(left_ms);
            changed.map_err(|source| self.failed("epoll_wait", source))?;
            if left.is_zero() {
                return self.receive();
            }
        }
    }

    /// Checks the interface while no frame arrives.
    fn check_link(&mut self) -> Result<(), LiveError> {
        for at in 0..self.sockets.len() {
            let error = self.sockets[at].take_error();
            match error.map_err(|source| self.failed("SO_ERROR", source))? {
                Some(error) if is(&error, libc::ENETDOWN) => self.gone = true,
                Some(error) => return Err(self.failed("capture", error)),
                None => {}
            }
        }
        if self.looked.elapsed() < LOOK || self.gone {
            return Ok(());
        }
        self.looked = Instant::now();
        let found = rebind::label(&self.name, self.ifindex);
        let found = found.map_err(|source| self.failed("look for the interface", source))?;
        // Without it, its sockets are about to report that it is gone.
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
        if self.has_new_queue || self.watched.elapsed() < LOOK {
            return;
        }
        self.watched = Instant::now();
        if self.redirect.counts().without_socket > 0 {
            self.has_new_queue = true;
            let state = LinkState::NewQueue;
            self.notices.push_back(Notice {
                interface: self.name.clone(),
                state,
                why: String::new(),
            });
        }
    }

    /// Sums up the counts; exact once the rings have been read to their end after a stop.
    fn count(&mut self) {
        let counts = self.redirect.counts();
        let (mut dropped, mut ring_full) = (0, 0);
        for socket in &self.sockets {
            // On failure the old counts stay; the kernel keeps counting.
            let Ok(counts) = socket.counts() else { return };
            dropped += counts.dropped;
            ring_full += counts.ring_full;
        }
        let stats = &mut self.stats;
        let known = dropped + ring_full;
        stats.freezes = ring_full;
        stats.dropped_by[NO_FREE_FRAME] = dropped;
        stats.dropped_by[NO_SOCKET] = counts.without_socket;
        stats.dropped_by[TOO_LONG] = counts.too_long;
        if self.ended {
            let taken = stats.delivered + known;
            stats.dropped_by[NOT_TAKEN] = counts.to_sockets.saturating_sub(taken);
        }
        stats.dropped = ring_full + stats.dropped_by.iter().sum::<u64>();
        // A socket may have counted a frame after the program's counts were read.
        let received = counts.to_sockets + counts.without_socket + counts.too_long;
        stats.received = received.max(stats.delivered + stats.dropped);
    }

    fn lend(&mut self) -> Next<'_> {
        let first_sequence = self.stats.delivered;
        let before = self.held.len();
        let (now_ns, clocks) = (now_ns(), self.clocks.now());
        let packets = self.received.chunk_by_mut(|part, _| part.continues);
        for (parts, sequence) in packets.zip(first_sequence..) {
            let arrival = self.umem.arrival(parts[0]);
            let tag = arrival.and_then(|arrival| arrival.tag);
            let restored = tag.is_some_and(|tag| self.umem.insert_tag(&mut parts[0], tag));
            let long = (parts.len() > 1).then(|| self.umem.gathered(parts));
            self.long_bytes += long.as_ref().map_or(0, |bytes| bytes.len());
            let timestamp_ns = arrival.map_or(now_ns, |arrival| {
                time_of(arrival.monotonic_ns.saturating_add(clocks), arrival.device_ns)
            });
            self.held.push_back(View { place: parts[0], long, timestamp_ns, sequence, restored });
        }
        self.lent = self.held.len() - before;
        self.stats.delivered += self.lent as u64;
        self.return_parts();
        let mut batch = Batch::new();
        batch.first_sequence = first_sequence;
        for view in self.held.range(before..) {
            let pushed = batch.push(self.frame(view));
            debug_assert!(pushed.is_ok(), "not too many, of one link type");
        }
        let mark = [before as u64, 0, 0, 0];
        Next::Frames(batch, LookBack::new(&*self, mark, &self.interfaces))
    }

    /// Gives the parts of long frames, which are copied, back to the kernel.
    fn return_parts(&mut self) {
        if self.received.len() == self.lent {
            return;
        }
        let long = self.received.chunk_by(|part, _| part.continues).filter(|all| all.len() > 1);
        let frames: Vec<u32> = long.flatten().map(|part| part.frame).collect();
        for (queue, socket) in self.sockets.iter_mut().enumerate() {
            let of_queue = |frame: &u32| (frame / self.frames) as usize == queue;
            socket.fill(&mut self.umem, frames.iter().copied().filter(of_queue));
        }
    }

    fn frame<'a>(&'a self, view: &'a View) -> Frame<'a> {
        let whole = match &view.long {
            Some(bytes) => bytes,
            None => self.umem.packet(view.place),
        };
        let data = &whole[..whole.len().min(self.snaplen as usize)];
        Frame {
            data,
            wire_len: whole.len() as u32,
            timestamp_ns: view.timestamp_ns,
            link: LinkType::EN10MB,
            interface: 0,
            meta: Meta {
                direction: direction(data, self.address),
                ifindex: self.ifindex,
                restored: view.restored,
                ..Meta::default()
            },
        }
    }

    fn failed(&self, call: &'static str, source: io::Error) -> LiveError {
        LiveError::Call { interface: self.name.clone(), call, source }
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

/// The device's time of a frame if its clock agrees with the system's, else the system's.
fn time_of(system_ns: u64, device_ns: Option<u64>) -> u64 {
    device_ns.filter(|ns| ns.abs_diff(system_ns) <= CLOCKS_AGREE_NS).unwrap_or(system_ns)
}

/// The time by which the system's clock is ahead of the monotonic one. Measured again and again it varies with the time
/// between two readings, which would put frames out of order; both run equally fast, so it stays until the system's
/// clock is set.
#[derive(Debug, Default)]
struct Clocks(u64);

impl Clocks {
    /// Nanoseconds to add to the monotonic clock.
    fn now(&mut self) -> u64 {
        let (before_ns, system_ns) = (time::monotonic_ns(), now_ns());
        self.adjust(before_ns, system_ns, time::monotonic_ns())
    }

    /// The same by three readings, of which the first and the last are of the monotonic clock.
    fn adjust(&mut self, before_ns: u64, system_ns: u64, after_ns: u64) -> u64 {
        let ahead_ns = system_ns.saturating_sub(before_ns);
        let pause_ns = after_ns.saturating_sub(before_ns);
        if self.0 == 0 || ahead_ns.abs_diff(self.0) > CLOCK_IS_SET_NS.saturating_add(pause_ns) {
            self.0 = ahead_ns;
        }
        self.0
    }
}

/// The time of the system, in nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn is(error: &io::Error, number: libc::c_int) -> bool {
    error.raw_os_error() == Some(number)
}

/// Number of frames of a queue, a power of two.
fn frames_of_queue(buffer_kib: u32, queues: u32) -> u32 {
    let (least, most) = QUEUE_FRAMES;
    let share = buffer_kib / (FRAME as u32 / 1024) / queues;
    let below = if share == 0 { 1 } else { 1 << share.ilog2() };
    below.clamp(least, most)
}

/// Finds the interface and its queues.
fn check(options: &XdpOptions) -> Result<(Capture, std::ops::Range<u32>), LiveError> {
    let name = &options.interface;
    if helper::current().is_some_and(helper::Helper::is_sealed) {
        return Err(LiveError::GivenUp { interface: name.clone() });
    }
    if !(1..=DEFAULT_SNAPLEN).contains(&options.snaplen) {
        let (what, expected) = ("snapshot length", "from 1 to 262,144");
        return Err(LiveError::Options { what, given: options.snaplen.into(), expected });
    }
    let found = interfaces::find(name)?;
    if found.ifindex == 0 || found.link != LinkType::EN10MB {
        return Err(LiveError::NotEthernet { interface: name.clone(), link: found.link });
    }
    if !devices::devices().is_ok_and(|all| all.iter().any(|one| one.name == *name && one.up)) {
        return Err(LiveError::Down { interface: name.clone() });
    }
    // Drivers that do not tell have one queue.
    let count = drops::queues(name).unwrap_or(1).clamp(1, MAX_QUEUES);
    match options.queue {
        None => Ok((found, 0..count)),
        Some(queue) if queue < count => Ok((found, queue..queue + 1)),
        Some(queue) => Err(LiveError::NoQueue { interface: name.clone(), queue, count }),
    }
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
                    true => Err(LiveError::DriverGone { interface: self.name.clone() }.into()),
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
        self.count();
        if let Some(filter) = &self.filter {
            self.stats.filtered = filter.rejected().unwrap_or(self.stats.filtered);
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

    fn stop(&mut self) -> bool {
        if !self.stopped && !self.ended {
            self.redirect.set_on(false);
            // Runs of the program, and the deliveries that they began, end before it.
            grace_period();
            self.stopped = true;
        }
        !self.ended
    }

    fn set_filter(&mut self, filter: Arc<dyn SocketFilter>) -> io::Result<()> {
        if self.stopped || self.ended {
            return Err(io::Error::other("the capture has been stopped"));
        }
        filter.take_driver(self.redirect.filter()?)?;
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
    fn the_memory_is_divided_among_the_queues() {
        assert_eq!(frames_of_queue(32_768, 1), 8_192);
        assert_eq!(frames_of_queue(32_768, 3), 2_048);
        assert_eq!(frames_of_queue(1, 1), 512);
        assert_eq!(frames_of_queue(u32::MAX, 1), 1 << 17);
    }

    #[test]
    fn times_are_in_order_until_the_clock_is_set() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.adjust(1_000, 5_000_001_000, 1_050), 5_000_000_000);
        // Read later than before; and after a long pause between the readings.
        assert_eq!(clocks.adjust(2_000, 5_000_060_000, 2_050), 5_000_000_000);
        assert_eq!(clocks.adjust(3_000, 5_009_000_000, 9_003_000), 5_000_000_000);
        assert_eq!(clocks.adjust(4_000, 7_000_004_000, 4_050), 7_000_000_000);
        assert_eq!(clocks.adjust(5_000, 6_000_005_000, 5_050), 6_000_000_000);
    }

    #[test]
    fn the_devices_time_is_used_if_its_clock_agrees() {
        let system_ns = 1_700_000_000_000_000_000;
        assert_eq!(time_of(system_ns, None), system_ns);
        assert_eq!(time_of(system_ns, Some(system_ns - 2_000)), system_ns - 2_000);
        // International Atomic Time, and a clock that counts from the start of the machine.
        assert_eq!(time_of(system_ns, Some(system_ns + 37_000_000_000)), system_ns);
        assert_eq!(time_of(system_ns, Some(5_000_000_000)), system_ns);
    }

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
