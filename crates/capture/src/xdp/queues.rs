//! The queues of an interface: their memory and fill rings, and the program that gives their frames to sockets. The
//! sources of all workers have them in common.
//!
//! Each worker has a socket of each queue, with a receive ring for its share of the memory; a worker that is slow takes
//! frames up to this share, and what it holds. The fill ring of a queue has an entry for each of the queue's frames.
//!
//! Cost: one lock for the frames of a batch and queue; none to receive.

use super::clocks::Clocks;
use super::{MAX_WORKERS, Redirect, XdpOptions, is};
use crate::error::{LiveError, ReadError};
use crate::flow::FlowHash;
use crate::interfaces::{self, Capture};
use crate::source::{DEFAULT_SNAPLEN, SocketFilter, SourceStats};
use crate::sys::packet::{PacketSocket, grace_period};
use crate::sys::xdp::{FRAME, FillRing, LONGEST, Received, Storing, Umem, XdpSocket};
use crate::sys::{devices, drops};
use fyke_frame::LinkType;
use fyke_privilege::helper;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// Longest wait for a queue that another socket has just left.
const BUSY: Duration = Duration::from_secs(1);
/// Time between two attempts.
const BUSY_TICK: Duration = Duration::from_millis(5);
/// Fewest and most frames of a queue for each worker.
const QUEUE_FRAMES: (u32, u32) = (1 << 9, 1 << 17);
/// Most queues.
const MAX_QUEUES: u32 = 512;

const NO_FREE_FRAME: usize = 0;
const NO_SOCKET: usize = 1;
const NOT_TAKEN: usize = 2;
const TOO_LONG: usize = 3;

/// The queues of an interface and their program.
pub(crate) struct Queues {
    // Dropped first: the host gets its frames again before the sockets are closed.
    redirect: Mutex<Box<dyn Redirect>>,
    /// Keeps the interface in promiscuous mode; receives nothing.
    watch: PacketSocket,
    pub(super) umem: Arc<Umem>,
    /// The fill rings, by queue.
    fills: Vec<FillRing>,
    pub(super) storing: Storing,
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) address: [u8; 6],
    pub(super) netmask: u32,
    pub(super) first_queue: u32,
    workers: u32,
    /// Number of queues of the interface at the start, if all of them are captured.
    all: Option<u32>,
    /// Frames of each queue for each worker, a power of two.
    pub(super) share: u32,
    pub(super) clocks: Mutex<Clocks>,
    filter: Mutex<Option<Arc<dyn SocketFilter>>>,
    stopped: Once,
    /// A bit for each worker that has left before the stop.
    gone: AtomicU64,
    /// Frames in the rings of workers that have left.
    unread: AtomicU64,
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queues {
    /// Opens the sockets, by worker and queue, and gives them the frames of the interface. `redirect` makes the
    /// program; it is called when the memory is there.
    ///
    /// # Errors
    /// As [`super::XdpSource::open_several`].
    pub(super) fn open<E: From<ReadError>>(
        options: &XdpOptions,
        workers: u32,
        redirect: impl FnOnce() -> Result<Box<dyn Redirect>, E>,
    ) -> Result<(Queues, Vec<Vec<XdpSocket>>), E> {
        let live = |error: LiveError| E::from(ReadError::Live(error));
        let name = &options.interface;
        let (found, queues) = check(options, workers).map_err(live)?;
        let failed = |call| move |source| LiveError::Call { interface: name.clone(), call, source };
        let watch = PacketSocket::open(true)
            .map_err(|source| live(LiveError::from_socket(source, name)))?;
        let count = queues.end - queues.start;
        let share = frames_of_queue(options.buffer_kib, count);
        let memory = Umem::new(share * workers * count);
        let (umem, frames) = memory.map_err(failed("memfd")).map_err(live)?;
        let mut opened = Queues {
            redirect: Mutex::new(redirect()?),
            watch,
            umem,
            fills: Vec::new(),
            storing: Storing::ZeroCopy,
            name: name.clone(),
            ifindex: found.ifindex,
            address: found.address,
            netmask: found.netmask,
            first_queue: queues.start,
            workers,
            all: options.queue.is_none().then_some(count),
            share,
            clocks: Mutex::default(),
            filter: Mutex::default(),
            stopped: Once::new(),
            gone: AtomicU64::new(0),
            unread: AtomicU64::new(0),
        };
        let sockets = opened.start(queues, options.promiscuous, frames).map_err(live)?;
        Ok((opened, sockets))
    }

    fn start(
        &mut self,
        queues: Range<u32>,
        promiscuous: bool,
        frames: Vec<Received>,
    ) -> Result<Vec<Vec<XdpSocket>>, LiveError> {
        let mut sockets: Vec<Vec<XdpSocket>> = Vec::new();
        sockets.resize_with(self.workers as usize, Vec::new);
        for queue in queues {
            for worker in 0..self.workers as usize {
                let known = &sockets[0];
                let first = if worker == 0 { known.first() } else { known.last() };
                let socket = self.open_socket(queue, worker == 0, first)?;
                let redirect = self.redirect.get_mut().unwrap_or_else(PoisonError::into_inner);
                let connected = redirect.connect(queue, worker as u32, socket.as_fd());
                connected.map_err(|source| self.failed("XSKMAP", source))?;
                sockets[worker].push(socket);
            }
        }
        let mut frames = frames.into_iter();
        for fill in &self.fills {
            // An entry stays free, so that a full ring differs from an empty one.
            fill.put(frames.by_ref().take(self.frames() as usize).skip(1));
        }
        let redirect = self.redirect.get_mut().unwrap_or_else(PoisonError::into_inner);
        redirect.set_factor(FlowHash::of_process().factor());
        // A driver without copies refuses to run the program with longer frames.
        let parts = self.storing != Storing::Copy;
        redirect.set_longest(if parts { u32::MAX } else { LONGEST });
        if promiscuous {
            let joined = self.watch.promiscuous(self.ifindex);
            joined.map_err(|source| self.failed("PACKET_ADD_MEMBERSHIP", source))?;
        }
        lock(&self.redirect).set_on(true);
        Ok(sockets)
    }

    /// Opens a socket of a queue; `first` as for [`XdpSocket::bind`].
    fn open_socket(
        &mut self,
        queue: u32,
        fills: bool,
        first: Option<&XdpSocket>,
    ) -> Result<XdpSocket, LiveError> {
        let opened = XdpSocket::open(&self.umem, self.share);
        let socket = opened.map_err(|source| self.failed("AF_XDP", source))?;
        if first.is_none() {
            socket.register().map_err(|source| self.failed("XDP_UMEM_REG", source))?;
            if !lock(&self.redirect).is_native() {
                self.storing = Storing::CopyParts;
            }
        }
        if fills {
            let made = socket.make_fill_ring(self.frames().next_power_of_two());
            self.fills.push(made.map_err(|source| self.failed("XDP_UMEM_FILL_RING", source))?);
        }
        let deadline = Instant::now() + BUSY;
        loop {
            match socket.bind(self.ifindex, queue, self.storing, first) {
                Ok(()) => return Ok(socket),
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
    }

    /// True if there are sources of other workers.
    pub(super) fn has_workers(&self) -> bool {
        self.workers > 1
    }

    /// Frames of each queue, for all workers.
    pub(super) fn frames(&self) -> u32 {
        self.share * self.workers
    }

    /// The queue of a frame, counted from the first one that is captured.
    pub(super) fn queue_of(&self, part: &Received) -> usize {
        (part.frame() / self.frames()) as usize
    }

    /// The fill ring of a queue.
    pub(super) fn fill(&self, queue: usize) -> &FillRing {
        &self.fills[queue]
    }

    /// True if a queue has few free frames.
    pub(super) fn is_short(&self) -> bool {
        self.fills.iter().any(|fill| fill.free() < self.frames() / 4)
    }

    /// Puts a filter before the sockets; the filter of another worker is the same one.
    ///
    /// # Errors
    /// As [`SocketFilter::take_driver`].
    pub(super) fn set_filter(&self, filter: &Arc<dyn SocketFilter>) -> io::Result<()> {
        let mut known = lock(&self.filter);
        if !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, filter)) {
            let place = lock(&self.redirect).filter()?;
            filter.take_driver(place)?;
            *known = Some(Arc::clone(filter));
        }
        Ok(())
    }

    /// Stops the program; when this returns, in any thread, no run of it is left, and the sockets get no more frames.
    pub(super) fn stop(&self) {
        self.stopped.call_once(|| {
            lock(&self.redirect).set_on(false);
            // Runs of the program, and the deliveries that they began, end before it.
            grace_period();
        });
    }

    /// Leaves the frames of a worker to the host from now on. When this returns, its sockets get no more frames.
    pub(super) fn leave(&self, worker: usize) {
        if self.stopped.is_completed() {
            return;
        }
        let redirect = lock(&self.redirect);
        let gone = self.gone.fetch_or(1 << worker, Ordering::AcqRel) | 1 << worker;
        redirect.set_gone(gone);
        drop(redirect);
        grace_period();
    }

    /// Counts packets that a worker has left in its rings.
    pub(super) fn add_unread(&self, packets: u64) {
        self.unread.fetch_add(packets, Ordering::AcqRel);
    }

    /// True if the interface has a queue without a socket.
    pub(super) fn has_new_queue(&self) -> bool {
        // A driver may not run the program for a new queue (veth until its next start), so that nothing counts its
        // frames.
        let has_more =
            |all| drops::queues_by(self.watch.as_fd(), &self.name).is_ok_and(|now| now > all);
        let is_whole = self.gone.load(Ordering::Acquire) == 0;
        is_whole
            && (lock(&self.redirect).counts().without_socket > 0 || self.all.is_some_and(has_more))
    }

    /// Counts of the sockets of a worker, and its delivered frames; `None` if the kernel does not tell.
    pub(super) fn of_sockets(sockets: &[XdpSocket], delivered: u64) -> Option<SourceStats> {
        let mut stats = SourceStats { delivered, ..SourceStats::default() };
        for socket in sockets {
            let counts = socket.counts().ok()?;
            stats.dropped_by[NO_FREE_FRAME] += counts.dropped;
            stats.freezes += counts.ring_full;
        }
        stats.dropped = stats.freezes + stats.dropped_by[NO_FREE_FRAME];
        stats.received = stats.delivered + stats.dropped;
        Some(stats)
    }

    /// Completes the sum of the counts of all workers by those of the program; exact if all rings have been read to
    /// their end after a stop, which `is_final` tells.
    pub(crate) fn complete(&self, mut stats: SourceStats, is_final: bool) -> SourceStats {
        let counts = lock(&self.redirect).counts();
        stats.dropped_by[NO_SOCKET] = counts.without_socket;
        stats.dropped_by[TOO_LONG] = counts.too_long;
        if is_final {
            let taken = stats.delivered + stats.dropped + self.unread.load(Ordering::Acquire);
            stats.dropped_by[NOT_TAKEN] = counts.to_sockets.saturating_sub(taken);
        }
        stats.dropped = stats.freezes + stats.dropped_by.iter().sum::<u64>();
        // A socket may have counted a frame after the program's counts were read.
        let received = counts.to_sockets + counts.without_socket + counts.too_long;
        stats.received = received.max(stats.delivered + stats.dropped);
        stats
    }

    pub(super) fn failed(&self, call: &'static str, source: io::Error) -> LiveError {
        LiveError::Call { interface: self.name.clone(), call, source }
    }
}

/// Number of frames of a queue for a worker, a power of two.
fn frames_of_queue(buffer_kib: u32, queues: u32) -> u32 {
    let (least, most) = QUEUE_FRAMES;
    let share = buffer_kib / (FRAME as u32 / 1024) / queues;
    let below = if share == 0 { 1 } else { 1 << share.ilog2() };
    below.clamp(least, most)
}

/// Finds the interface and its queues.
fn check(options: &XdpOptions, workers: u32) -> Result<(Capture, Range<u32>), LiveError> {
    let name = &options.interface;
    if helper::current().is_some_and(helper::Helper::is_sealed) {
        return Err(LiveError::GivenUp { interface: name.clone() });
    }
    if !(1..=DEFAULT_SNAPLEN).contains(&options.snaplen) {
        let (what, expected) = ("snapshot length", "from 1 to 262,144");
        return Err(LiveError::Options { what, given: options.snaplen.into(), expected });
    }
    if !(1..=MAX_WORKERS).contains(&workers) {
        let (what, expected) = ("number of workers", "from 1 to 64");
        return Err(LiveError::Options { what, given: workers.into(), expected });
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
}
