//! A process that captures frames, filters them by texts, and stores them for a
//! [`SharedSource`](crate::shared::SharedSource).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

/// The process at the other end of a connection.
pub trait FrameServer: Send + Sync + fmt::Debug {
    /// Removes texts and adds texts with numbers of the caller, as one edit. From the return on, frames that one of
    /// the texts accepts are stored; before the first edit none are.
    ///
    /// # Errors
    /// The process refuses a text (`InvalidInput`) and nothing has changed, or it does not answer.
    fn edit(&self, removed: &[u64], added: &[(u64, &str)]) -> io::Result<()>;

    /// Counts of the frames that it has not stored; `read` and `lost` are those of the caller, for
    /// people that look at the process. Does not wait for a process that is busy: then these are earlier counts.
    fn counts(&self, read: u64, lost: u64) -> ServerCounts;

    /// Asks the process to store what has already arrived, and then nothing. Returns true once that is done; call it
    /// again until then.
    fn end(&self) -> bool;

    /// Reason why the process has ended this source alone, once; `None` if it has not.
    fn end_reason(&self) -> Option<String>;

    /// True if the process has closed the connection.
    fn is_gone(&self) -> bool;

    /// The ring of another process that continues with this reader, if one has taken the place of the one before; each
    /// is returned once.
    fn moved(&self) -> Option<Moved> {
        None
    }

    /// True if the process has ended in order and no other continues: the frames that are stored are all.
    fn is_over(&self) -> bool {
        false
    }

    /// True if the process has ended without its last counts: it may have rejected or lost more frames.
    fn is_cut(&self) -> bool {
        false
    }

    /// The graph that decides in the process which frames this source gets, if it has one in place of texts.
    fn graph(&self) -> Option<&str> {
        None
    }

    /// True if the process gives this source only some frames, whatever the texts say.
    fn is_restricted(&self) -> bool {
        false
    }

    /// Keeps a remark for the user of the source, which reports it as a [`Notice`](crate::Notice).
    fn tell(&self, _remark: String) {}

    /// The oldest remark that was not taken.
    fn take_remark(&self) -> Option<String> {
        None
    }
}

/// Frames of an interface that a process has not stored for a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Frames that no text accepts.
    pub rejected: u64,
    /// Frames that the process lost before it evaluated them.
    pub dropped: u64,
    /// True if the kernel has rejected frames without counting them.
    pub is_partial: bool,
}

/// A ring that continues where the one before it ends.
#[derive(Debug)]
pub struct Moved {
    /// The packet buffer.
    pub packets: OwnedFd,
    /// The index.
    pub index: OwnedFd,
    /// Number of its first entry.
    pub from: u64,
}
