//! The page that a reader lends to its writer: whether the reader sleeps, and the first entry that
//! it still needs.
//!
//! It is the only memory that the writer reads. The writer maps it read-only, accepts it only if it
//! cannot shrink, and takes its values as requests: a wake-up costs the writer one system call for
//! each batch, and an entry is clamped to those that exist ([`Publication::held`]).
//!
//! [`Publication::held`]: crate::Publication::held

use crate::protocol::{self, Words};
use crate::{Memory, RingError};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

const NUMBER: u64 = u64::from_le_bytes(*b"fykepin1");
const NEEDED: usize = 2;
/// Words of the page.
const WORDS: usize = 8;

/// The reader's side of the page.
#[derive(Debug)]
pub(crate) struct Page(Memory);

impl Page {
    /// A new page for a reader that needs the entries from `needed` on.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create(needed: u64) -> Result<Page, RingError> {
        let memory = Memory::create(WORDS)?;
        memory.store(NEEDED, needed, Ordering::Relaxed);
        memory.store(0, NUMBER, Ordering::Release);
        Ok(Page(memory))
    }

    /// Tells the writer that entries before `entry` are not needed any more.
    #[inline]
    pub fn need(&self, entry: u64) {
        self.0.store(NEEDED, entry, Ordering::Release);
    }

    /// Asks for a wake-up, or not. After a request the reader looks for frames once more.
    pub fn sleep(&self, asleep: bool) {
        protocol::ask(&self.0, asleep);
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

/// The writer's side of the page.
#[derive(Debug)]
pub(crate) struct PageView(Memory);

impl PageView {
    /// Maps the page of a reader.
    ///
    /// # Errors
    /// It is not such a page.
    pub fn open(fd: OwnedFd) -> Result<PageView, RingError> {
        let memory = Memory::open(fd)?;
        crate::index::check_magic(&memory, NUMBER)?;
        let (given, expected) = (memory.words() as u64, WORDS.to_string());
        match memory.words() {
            WORDS => Ok(PageView(memory)),
            _ => Err(RingError::Foreign { what: "the number of words", given, expected }),
        }
    }

    /// True if the reader asks for a wake-up; after the writer has pushed, and a fence.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        protocol::asks(&self.0)
    }

    /// The first entry that the reader needs, unchecked.
    pub fn needed(&self) -> u64 {
        self.0.load(NEEDED, Ordering::Acquire)
    }
}
