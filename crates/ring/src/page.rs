//! The page that a reader lends to its writer: whether the reader sleeps, and the first entry that
//! it still needs.
//!
//! It is the only memory that the writer reads. The writer maps it read-only, accepts it only if it
//! cannot shrink, and takes its values as requests: a wake-up costs the writer one system call for
//! each batch, and an entry is clamped to those that exist ([`Publication::held`]).
//!
//! [`Publication::held`]: crate::Publication::held

use crate::protocol::{self, Words};
use crate::{Held, Index, Memory, RingError, sys};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest time for which a reader that is preferred may hold frames without reading one.
pub const HOLD_LIMIT: Duration = Duration::from_secs(1);
const NUMBER: u64 = u64::from_le_bytes(*b"fykepin1");
const NEEDED: usize = 2;
/// Words of the page.
const WORDS: usize = 8;

/// A page that a reader lends to a writer without a [`Publication`](crate::Publication), before it has the ring.
#[derive(Debug)]
pub struct Sleep(pub(crate) Page);

impl Sleep {
    /// A new page.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create() -> Result<Sleep, RingError> {
        Page::create(0).map(Sleep)
    }

    /// Asks for wake-ups, as a reader does that sleeps.
    pub fn ask(&self) {
        self.0.sleep(true);
    }

    /// The descriptor for the writer's [`Waker`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

/// The writer's side of a reader's [`Sleep`]: wakes the reader if it sleeps.
#[derive(Debug)]
pub struct Waker {
    page: PageView,
    event: OwnedFd,
    hold: Hold,
}

/// The entry that a reader needed last, and since when it holds frames because of it; 0 = it does not.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    needed: AtomicU64,
    since_ns: AtomicU64,
}

impl Hold {
    /// The frames that a reader still needs, and true if it needs the room of the next entry, too. The entry that it
    /// names is clamped to those that exist. A reader that holds frames and reads none for [`HOLD_LIMIT`] is passed
    /// over until it reads again.
    pub fn of(&self, page: &PageView, index: &Index) -> (Held, bool) {
        let needed = page.needed().min(index.pushed());
        let Some((entry, place)) = index.place_of(needed) else {
            self.since_ns.store(0, Ordering::Relaxed);
            return (Held::Nothing, false);
        };
        let (now_ns, since_ns) = (sys::now_ns(), self.since_ns.load(Ordering::Relaxed));
        let has_read = self.needed.fetch_max(needed, Ordering::Relaxed) < needed;
        if has_read || since_ns == 0 {
            self.since_ns.store(now_ns, Ordering::Relaxed);
        } else if u128::from(now_ns.saturating_sub(since_ns)) > HOLD_LIMIT.as_nanos() {
            return (Held::Nothing, false);
        }
        (Held::From(place), index.is_full(entry))
    }
}

impl Waker {
    /// Maps the page of a reader; also returns the descriptor for [`Reader::sleeps`](crate::Reader::sleeps).
    ///
    /// # Errors
    /// It is not such a page.
    pub fn open(page: OwnedFd) -> Result<(Waker, OwnedFd), RingError> {
        let page = PageView::open(page)?;
        let (event, theirs) = sys::event().map_err(|error| RingError::call("socketpair", error))?;
        Ok((Waker { page, event, hold: Hold::default() }, theirs))
    }

    /// Takes up the page and the descriptor of a reader from a process before this one.
    ///
    /// # Errors
    /// It is not the page of a reader.
    pub fn take_up(page: OwnedFd, event: OwnedFd) -> Result<Waker, RingError> {
        Ok(Waker { page: PageView::open(page)?, event, hold: Hold::default() })
    }

    /// The page and the descriptor, for a process after this one.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.page.fd(), self.event.as_fd()]
    }

    /// Wakes the reader, for another reason than frames.
    pub fn call(&self) {
        sys::signal(self.event.as_fd());
    }

    /// The first entry that the reader has not read, as it tells; unchecked.
    pub fn position(&self) -> u64 {
        self.page.needed()
    }

    /// If slow readers are preferred: the frames that the reader still needs, for
    /// [`Packets::put_from`](crate::Packets::put_from), and true if `index`, which is its own, has no room for another.
    pub fn held(&self, index: &Index) -> (Held, bool) {
        self.hold.of(&self.page, index)
    }

    /// Wakes the readers of a batch that sleep, after their frames were pushed. Never waits for a reader. Cost: a
    /// fence, a load for each reader, a system call for each that sleeps.
    pub fn wake<'w>(wakers: impl Iterator<Item = &'w Waker>) {
        let mut is_first = true;
        for waker in wakers {
            if std::mem::take(&mut is_first) {
                protocol::before_requests();
            }
            if waker.page.is_asleep() {
                sys::signal(waker.event.as_fd());
            }
        }
    }
}

/// The reader's side of the page.
#[derive(Debug)]
pub(crate) struct Page(Memory);

impl Page {
    /// A new page for a reader that needs the entries from `needed` on.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create(needed: u64) -> Result<Page, RingError> {
        let memory = Memory::named(c"fyke-page", WORDS)?;
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
        // Before the first load: a page of 64 bytes is none of a kind that cannot be loaded.
        if memory.words() != WORDS {
            let (given, expected) = (memory.words() as u64, WORDS.to_string());
            return Err(RingError::Foreign { what: "the number of words", given, expected });
        }
        crate::index::check_magic(&memory, NUMBER)?;
        Ok(PageView(memory))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
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
