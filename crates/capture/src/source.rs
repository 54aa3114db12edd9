//! Sources of frames: the trait, its batches and counters.
//!
//! One thread requests batch after batch from a source. The frames of a batch are in the source's memory and are lent
//! until the next call; nothing is copied. Each batch has a [`LookBack`]: earlier frames that the source still holds,
//! so that a filter that was edited because of a frame can be run over earlier frames.

use crate::error::ReadError;
use crate::server::FrameServer;
use crate::socket::FilterSocket;
use crate::sys::poll::Bell;
use crate::xdp::DriverFilter;
use fyke_frame::{Batch, Frame, LinkType};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// Origin of frames: a network interface, or one interface of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Interface {
    /// Name (`eth0`); empty if the file has none.
    pub name: String,
    /// Description for users; often empty.
    pub description: String,
    /// Link type of its frames.
    pub link: LinkType,
    /// Most bytes of a frame that were captured.
    pub snaplen: u32,
    /// True if its timestamps need a finer unit than microseconds.
    pub nanoseconds: bool,
    /// Netmask of its first IPv4 address when it was opened; 0 for files and for interfaces without one.
    pub netmask: u32,
    /// True if its frames are taken at the driver, where only incoming ones pass.
    pub at_driver: bool,
    /// True if a program selects one of several rings for a frame, by the class of the text that accepts it.
    pub by_class: bool,
}

impl Interface {
    /// Creates an interface with the default snapshot length and timestamps in nanoseconds.
    pub fn new(name: &str, link: LinkType) -> Self {
        Interface {
            name: name.to_owned(),
            description: String::new(),
            link,
            snaplen: DEFAULT_SNAPLEN,
            nanoseconds: true,
            netmask: 0,
            at_driver: false,
            by_class: false,
        }
    }
}

/// Default snapshot length; no frame is longer.
pub const DEFAULT_SNAPLEN: u32 = 262_144;

/// Source of frames: a file, an interface, memory.
pub trait Source: Send {
    /// The interfaces known so far; `Frame::interface` is an index into them. Never shrinks, may grow with every
    /// batch.
    fn interfaces(&self) -> &[Interface];

    /// Returns the next frames: at most [`BATCH_CAPACITY`](fyke_frame::BATCH_CAPACITY), of one link type, in order.
    ///
    /// # Errors
    /// If the source is damaged or gone. Complete frames before the error have already been returned; every later
    /// call returns [`Next::End`].
    fn next(&mut self) -> Result<Next<'_>, ReadError>;

    /// Takes back the memory of a batch that was evaluated ([`Batch::reuse`]), for the next one. Optional.
    fn take_back(&mut self, _batch: Batch<'static>) {}

    /// Counts since the source was opened.
    fn stats(&mut self) -> SourceStats;

    /// The same for a view that nothing waits for: a source that gets counts from another process may return those of
    /// the last second.
    fn recent_stats(&mut self) -> SourceStats {
        self.stats()
    }

    /// Parts of the last result of [`stats`](Self::stats), one for each interface, of a source that merges the frames
    /// of several; empty for others.
    fn stats_by_interface(&self) -> Vec<SourceStats> {
        Vec::new()
    }

    /// Descriptor that signals available frames ([`crate::wait_for_any`]); `None` for sources that need no wait, or
    /// cannot signal.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Sets the longest wait of [`next`](Self::next) for frames. With zero it never waits: a quiet source must not
    /// delay others that the same thread reads.
    fn set_patience(&mut self, _patience: Duration) {}

    /// Has [`next`](Self::next) return [`Next::Idle`] early whenever the bell rings, so that a long wait for frames
    /// delays no other work of its thread. False if the source cannot; its waits should be short then.
    fn listen(&mut self, _bell: &Bell) -> bool {
        false
    }

    /// Stops accepting frames. Returns true if frames that arrived before may be left: [`next`](Self::next) returns
    /// them, and then [`Next::End`], within a bounded time. Returns false for sources without frames of their own,
    /// such as files.
    fn stop(&mut self) -> bool {
        false
    }

    /// Has the kernel reject frames before they reach this source.
    ///
    /// # Errors
    /// If the source is no socket, or the kernel refuses; then every frame reaches it as before.
    fn set_filter(&mut self, _filter: Arc<dyn SocketFilter>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "frames do not come from a packet socket"))
    }

    /// Has the kernel reject frames before they reach this source, by a filter for each of its interfaces, in their
    /// order.
    ///
    /// # Errors
    /// As [`set_filter`](Self::set_filter), which it is for a source of one interface; then some of the interfaces may
    /// have their filter.
    fn set_filters(&mut self, filters: &[Arc<dyn SocketFilter>]) -> io::Result<()> {
        match filters {
            [filter] => self.set_filter(Arc::clone(filter)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the source has one interface")),
        }
    }

    /// Counts of each ring, if frames are distributed over several.
    fn stats_by_ring(&self) -> Vec<SourceStats> {
        Vec::new()
    }

    /// Returns the next event of the interface that has not been returned yet.
    fn take_notice(&mut self) -> Option<Notice> {
        None
    }
}

/// An event of a captured interface. The capture continues in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Name of the interface.
    pub interface: String,
    /// New state.
    pub state: LinkState,
    /// Reason for the state; empty where the state tells all.
    pub why: String,
}

/// State of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// Present and up.
    Up,
    /// Present and down.
    Down,
    /// Deleted, or moved into another network namespace.
    Gone,
    /// Present again after it was gone.
    Back,
    /// It has more queues than at the start; only at the driver.
    NewQueue,
    /// The connection to the other machine is lost, and is made again.
    Lost,
    /// It is there again after this many milliseconds, of which frames are in no count.
    Returned(u64),
    /// The process that filters for this source takes its filters no longer, or takes them again.
    Filtering,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.interface;
        match self.state {
            LinkState::Up => write!(f, "{name}: the interface is up again"),
            LinkState::Down => write!(f, "{name}: the interface is down; waiting for it"),
            LinkState::Gone => write!(f, "{name}: the interface is gone; waiting for it"),
            LinkState::Back => write!(f, "capturing on {name} again"),
            LinkState::Filtering => write!(f, "{name}: {}", self.why),
            LinkState::Lost => write!(f, "{name}: {}; connecting again", self.why),
            LinkState::Returned(ms) => write!(
                f,
                "{name}: connected again; not seen: frames of {}.{} s{}",
                ms / 1_000,
                ms % 1_000 / 100,
                self.why
            ),
            LinkState::NewQueue => write!(
                f,
                "{name}: it has more queues now, and the host gets the frames of the new ones: \
                 start the capture again"
            ),
        }
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn interfaces(&self) -> &[Interface] {
        (**self).interfaces()
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        (**self).next()
    }

    fn take_back(&mut self, batch: Batch<'static>) {
        (**self).take_back(batch);
    }

    fn stats(&mut self) -> SourceStats {
        (**self).stats()
    }

    fn recent_stats(&mut self) -> SourceStats {
        (**self).recent_stats()
    }

    fn stats_by_interface(&self) -> Vec<SourceStats> {
        (**self).stats_by_interface()
    }

    fn stats_by_ring(&self) -> Vec<SourceStats> {
        (**self).stats_by_ring()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        (**self).readiness()
    }

    fn set_patience(&mut self, patience: Duration) {
        (**self).set_patience(patience);
    }

    fn listen(&mut self, bell: &Bell) -> bool {
        (**self).listen(bell)
    }

    fn stop(&mut self) -> bool {
        (**self).stop()
    }

    fn set_filter(&mut self, filter: Arc<dyn SocketFilter>) -> io::Result<()> {
        (**self).set_filter(filter)
    }

    fn set_filters(&mut self, filters: &[Arc<dyn SocketFilter>]) -> io::Result<()> {
        (**self).set_filters(filters)
    }

    fn take_notice(&mut self) -> Option<Notice> {
        (**self).take_notice()
    }
}

/// Result of [`Source::next`].
#[derive(Debug)]
pub enum Next<'a> {
    /// Frames (at least one), and earlier frames that are still held.
    Frames(Batch<'a>, LookBack<'a>),
    /// No frame arrived within the time-out; call again.
    Idle,
    /// No frame will come any more.
    End,
}

/// Reason of frames in [`SourceStats::dropped`] that have no other.
pub const RING_FULL: &str = "capture ring full";

/// Names of the entries of [`SourceStats::dropped_by`]: those of sockets at the driver, of rings in shared memory, and
/// of a relay.
pub const DROP_REASONS: [&str; 7] = [
    "no free frame",
    "queue without a socket",
    "not taken by the socket",
    "longer than 3,838 bytes",
    "too slow: overwritten in shared memory",
    "no room in shared memory",
    "too slow: not sent by the relay",
];
/// Numbers of reasons among [`DROP_REASONS`].
pub(crate) const OVERWRITTEN: usize = 4;
pub(crate) const NO_ROOM: usize = 5;
/// Number of the reason of a relay among [`DROP_REASONS`].
pub const NOT_SENT: usize = 6;

/// Number of counters for frames that only a later filter of a chain rejected.
pub const LATER: usize = 16;

/// Counters of a source since it was opened. `received = delivered + dropped + ignored + unreadable + pending`; pending
/// frames are counted by the kernel but not yet delivered, 0 after the source is drained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Frames that arrived at the source, including dropped ones.
    pub received: u64,
    /// Frames returned by [`Source::next`].
    pub delivered: u64,
    /// Frames lost because the ring was not read in time, or by fault injection.
    pub dropped: u64,
    /// Frames lost for other reasons than a full ring, part of `dropped`: [`DROP_REASONS`] names them.
    pub dropped_by: [u64; DROP_REASONS.len()],
    /// Frames ignored on purpose: outgoing copies of frames that the loopback interface also delivers as incoming.
    pub ignored: u64,
    /// Frames lost because their writer broke the rules of the source: another link type, or longer than the limit.
    pub unreadable: u64,
    /// Number of times that the ring was full and the kernel stopped filling it.
    pub freezes: u64,
    /// Frames of a file with a time that 64 bits of nanoseconds cannot hold (outside of 1970 to 2554): they have the
    /// nearest time within.
    pub clamped_times: u64,
    /// Frames that a filter in the kernel rejected ([`Source::set_filter`]); not part of `received`.
    pub filtered: u64,
    /// The part of them that only a later filter of a chain rejected ([`SocketFilter::later`]).
    pub later: [u64; LATER],
    /// True if a graph in a service rejects them, in place of texts.
    pub by_graph: bool,
    /// True if a filter in the kernel has rejected frames without counting them; `filtered` lacks those.
    pub filtered_uncounted: bool,
    /// True if that is because the policy of a service does not tell how many frames are beyond it.
    pub beyond_policy: bool,
    /// Number of times that the connection to another machine was lost.
    pub cuts: u64,
    /// Milliseconds without this connection: the frames of that time are in no count, and how many is not known.
    pub unseen_ms: u64,
    /// True if that is because a service has ended without its last counts.
    pub cut_off: bool,
}

impl SourceStats {
    /// Frames that the source lost, by reason.
    pub fn lost(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let others: u64 = self.dropped_by.iter().sum();
        let full = (RING_FULL, self.dropped.saturating_sub(others));
        let unreadable = ("unreadable in the ring", self.unreadable);
        let named = DROP_REASONS.into_iter().zip(self.dropped_by);
        [full].into_iter().chain(named).chain([unreadable]).filter(|(_, count)| *count > 0)
    }

    /// Takes over the counts of the filter before the source. The part is read first, so that it is not more than the
    /// whole.
    pub(crate) fn take_filtered(&mut self, filter: &dyn SocketFilter) {
        self.later = filter.later();
        let rejected = filter.rejected();
        self.filtered_uncounted = rejected.is_none();
        self.filtered = rejected.unwrap_or(self.filtered);
    }

    /// Adds the counts of another source.
    #[must_use]
    pub fn plus(self, other: &SourceStats) -> SourceStats {
        SourceStats {
            received: self.received + other.received,
            delivered: self.delivered + other.delivered,
            dropped: self.dropped + other.dropped,
            dropped_by: std::array::from_fn(|at| self.dropped_by[at] + other.dropped_by[at]),
            ignored: self.ignored + other.ignored,
            unreadable: self.unreadable + other.unreadable,
            freezes: self.freezes + other.freezes,
            clamped_times: self.clamped_times + other.clamped_times,
            filtered: self.filtered + other.filtered,
            later: std::array::from_fn(|at| self.later[at] + other.later[at]),
            filtered_uncounted: self.filtered_uncounted | other.filtered_uncounted,
            by_graph: self.by_graph | other.by_graph,
            beyond_policy: self.beyond_policy | other.beyond_policy,
            cuts: self.cuts + other.cuts,
            unseen_ms: self.unseen_ms + other.unseen_ms,
            cut_off: self.cut_off | other.cut_off,
        }
    }
}

/// A filter that the kernel, or another process, runs before frames reach the source.
pub trait SocketFilter: Send + Sync {
    /// Receives the socket; from now on the filter attaches programs to it and opens it.
    ///
    /// # Errors
    /// If the kernel refuses; then every frame reaches the source.
    fn take_socket(&self, socket: Arc<FilterSocket>) -> io::Result<()>;

    /// Receives the process that stores the frames; from now on the filter edits the texts there.
    ///
    /// # Errors
    /// If the filter is none of texts, or the process refuses; then every frame reaches the source.
    fn take_server(&self, _server: Arc<dyn FrameServer>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the filter runs in the kernel only"))
    }

    /// Receives a place at the driver; from now on the filter is there when it is needed.
    ///
    /// # Errors
    /// If the kernel refuses; then every frame reaches the source.
    fn take_driver(&self, _driver: Arc<dyn DriverFilter>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the filter is not one for the driver"))
    }

    /// Number of frames that it rejected; `None` if it has rejected frames without counting them.
    fn rejected(&self) -> Option<u64>;

    /// The part of them that only a later filter of a chain rejected, for each counter of the filter.
    fn later(&self) -> [u64; LATER] {
        [0; LATER]
    }
}

/// Data that comes with a batch: earlier frames that are still held, and the source's interfaces. The held frames are
/// those before the batch, accepted or not; none of the batch is among them.
#[derive(Clone, Copy)]
pub struct LookBack<'a> {
    held: Option<(&'a dyn HeldFrames, HeldMark)>,
    interfaces: &'a [Interface],
}

/// Identifies the frames that were held when a batch was made; its values have a meaning only for the source.
pub type HeldMark = [u64; 4];

/// Access to frames that a source still holds after it returned them.
pub trait HeldFrames {
    /// The held frames with their sequence numbers, oldest first, as of the batch for which `mark` was made.
    fn frames(&self, mark: HeldMark) -> Box<dyn Iterator<Item = (u64, Frame<'_>)> + '_>;

    /// The held frame with this sequence number. Sources of many frames find it without a search.
    fn frame(&self, mark: HeldMark, sequence: u64) -> Option<Frame<'_>> {
        self.frames(mark).find(|(number, _)| *number == sequence).map(|(_, frame)| frame)
    }

    /// The sequence number of the oldest held frame.
    fn oldest(&self, mark: HeldMark) -> Option<u64> {
        self.frames(mark).next().map(|(sequence, _)| sequence)
    }
}

impl fmt::Debug for LookBack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = self.held.map(|(_, mark)| mark);
        f.debug_struct("LookBack").field("mark", &mark).finish_non_exhaustive()
    }
}

impl<'a> LookBack<'a> {
    /// Creates a look-back without frames.
    pub const fn none(interfaces: &'a [Interface]) -> Self {
        LookBack { held: None, interfaces }
    }

    /// Creates a look-back of a source that holds frames; `mark` identifies them, see [`HeldFrames::frames`].
    pub const fn new(
        held: &'a dyn HeldFrames,
        mark: HeldMark,
        interfaces: &'a [Interface],
    ) -> Self {
        LookBack { held: Some((held, mark)), interfaces }
    }

    /// The interfaces known with this batch, equal to [`Source::interfaces`], which cannot be called while a batch is
    /// borrowed.
    pub fn interfaces(&self) -> &'a [Interface] {
        self.interfaces
    }

    /// The held frames with their sequence numbers, oldest first. Their link types may differ.
    pub fn frames(&self) -> impl Iterator<Item = (u64, Frame<'a>)> + use<'a> {
        self.held.into_iter().flat_map(|(held, mark)| held.frames(mark))
    }

    /// The held frame with this sequence number.
    pub fn frame(&self, sequence: u64) -> Option<Frame<'a>> {
        self.held.and_then(|(held, mark)| held.frame(mark, sequence))
    }

    /// The sequence number of the oldest held frame.
    pub fn oldest(&self) -> Option<u64> {
        self.held.and_then(|(held, mark)| held.oldest(mark))
    }
}
