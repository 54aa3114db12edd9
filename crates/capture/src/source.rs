//! What a source of frames is.
//!
//! A source is asked for the next batch, again and again, by one thread. The frames of a batch lie in memory of the
//! source and are lent until the next call; nothing is copied. Together with a batch comes a [`LookBack`]: the frames
//! handed out before it that the source still holds, so that a filter that was edited because of a frame can be run
//! over what went before.

use crate::error::ReadError;
use fyke_frame::{Batch, Frame, LinkType};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Where frames come from: a network interface, or one interface of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Interface {
    /// Name (`eth0`); empty when the file does not say.
    pub name: String,
    /// For people; often empty.
    pub description: String,
    /// What the first byte of its frames is.
    pub link: LinkType,
    /// Most bytes of a frame that were captured.
    pub snaplen: u32,
    /// Whether whole microseconds do not do for its timestamps.
    pub nanoseconds: bool,
    /// Netmask of its first IPv4 address when it was opened; 0 for files, and where there is none.
    pub netmask: u32,
}

impl Interface {
    /// An interface with the usual snapshot length and timestamps of a nanosecond.
    pub fn new(name: &str, link: LinkType) -> Self {
        Interface {
            name: name.to_owned(),
            description: String::new(),
            link,
            snaplen: DEFAULT_SNAPLEN,
            nanoseconds: true,
            netmask: 0,
        }
    }
}

/// Snapshot length when nobody asks for another: no frame is longer.
pub const DEFAULT_SNAPLEN: u32 = 262_144;

/// Frames from a file, an interface, memory.
pub trait Source: Send {
    /// The interfaces known so far; `Frame::interface` is an index into it. Never shrinks, may grow with every batch.
    fn interfaces(&self) -> &[Interface];

    /// The next frames: at most [`fyke_frame::BATCH_CAPACITY`], of one link type, in order.
    ///
    /// # Errors
    /// When the source is damaged or gone. Frames that are whole have been handed out before; afterwards every call
    /// answers [`Next::End`].
    fn next(&mut self) -> Result<Next<'_>, ReadError>;

    /// What has been counted since the source was opened.
    fn stats(&mut self) -> SourceStats;

    /// What tells that there may be frames ([`crate::wait_for_any`]); nothing for sources that need not be waited for,
    /// or cannot.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// How long [`next`](Self::next) waits for frames at most. With zero it never waits: a quiet source must not hold
    /// others that are asked by the same thread.
    fn set_patience(&mut self, _patience: Duration) {}

    /// Takes no more frames in. True when there may be frames that arrived before: [`next`](Self::next) hands them out
    /// and answers [`Next::End`] then, in a bounded time. False for sources that hold nothing of their own accord, such
    /// as files.
    fn stop(&mut self) -> bool {
        false
    }

    /// The next event of the interface that nobody was told of yet.
    fn take_notice(&mut self) -> Option<Notice> {
        None
    }
}

/// An event of an interface that is captured from. The capture goes on in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Name of the interface.
    pub interface: String,
    /// Its state from now on.
    pub state: LinkState,
}

/// State of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// There and switched on.
    Up,
    /// There and switched off.
    Down,
    /// Deleted, or moved into another network namespace.
    Gone,
    /// There again after it was gone.
    Back,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.interface;
        match self.state {
            LinkState::Up => write!(f, "{name}: the interface is up again"),
            LinkState::Down => write!(f, "{name}: the interface is down; waiting for it"),
            LinkState::Gone => write!(f, "{name}: the interface is gone; waiting for it"),
            LinkState::Back => write!(f, "capturing on {name} again"),
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

    fn stats(&mut self) -> SourceStats {
        (**self).stats()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        (**self).readiness()
    }

    fn set_patience(&mut self, patience: Duration) {
        (**self).set_patience(patience);
    }

    fn stop(&mut self) -> bool {
        (**self).stop()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        (**self).take_notice()
    }
}

/// Answer of [`Source::next`].
#[derive(Debug)]
pub enum Next<'a> {
    /// Frames (at least one), and those handed out before that are still held.
    Frames(Batch<'a>, LookBack<'a>),
    /// Nothing came within the time-out; ask again.
    Idle,
    /// No frame will ever come again.
    End,
}

/// Counters of a source since it was opened. `received = delivered + dropped + ignored + pending`, where pending is
/// what the kernel has counted but not yet shown; it is 0 once the source is drained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Frames that arrived at the source, dropped ones included.
    pub received: u64,
    /// Frames handed out by [`Source::next`].
    pub delivered: u64,
    /// Frames lost because nobody emptied the ring in time, or by fault injection.
    pub dropped: u64,
    /// Frames left out on purpose: the outgoing copy of what the loopback interface shows again as incoming.
    pub ignored: u64,
    /// How often the ring was full and the kernel stopped filling it.
    pub freezes: u64,
}

/// What comes with a batch: frames that were handed out before it and are still held, and the source's interfaces.
#[derive(Clone, Copy)]
pub struct LookBack<'a> {
    held: Option<(&'a dyn HeldFrames, HeldMark)>,
    interfaces: &'a [Interface],
}

/// Identifies the frames that were held when a batch was made; the numbers are the source's own.
pub type HeldMark = [u64; 4];

/// Frames that a source still holds after it handed them out.
pub trait HeldFrames {
    /// The held frames with their sequence numbers, oldest first, as of the batch that `mark` was made for.
    fn frames(&self, mark: HeldMark) -> Box<dyn Iterator<Item = (u64, Frame<'_>)> + '_>;
}

impl fmt::Debug for LookBack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = self.held.map(|(_, mark)| mark);
        f.debug_struct("LookBack").field("mark", &mark).finish_non_exhaustive()
    }
}

impl<'a> LookBack<'a> {
    /// For sources that hold nothing.
    pub const fn none(interfaces: &'a [Interface]) -> Self {
        LookBack { held: None, interfaces }
    }

    /// For a source that holds frames; `mark` identifies them, see [`HeldFrames::frames`].
    pub const fn new(
        held: &'a dyn HeldFrames,
        mark: HeldMark,
        interfaces: &'a [Interface],
    ) -> Self {
        LookBack { held: Some((held, mark)), interfaces }
    }

    /// The interfaces that are known with this batch, as [`Source::interfaces`] has them: it cannot be asked while a
    /// batch is borrowed.
    pub fn interfaces(&self) -> &'a [Interface] {
        self.interfaces
    }

    /// The held frames with their sequence numbers, oldest first. Their link types may differ.
    pub fn frames(&self) -> impl Iterator<Item = (u64, Frame<'a>)> + use<'a> {
        self.held.into_iter().flat_map(|(held, mark)| held.frames(mark))
    }
}
