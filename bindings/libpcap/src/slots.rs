//! The handles that programs have: addresses of slots in one static array.
//!
//! So a handle of ours is told from one of the system's libpcap by its address alone, in a signal handler too, and a
//! handle that was closed is refused instead of used. Slots are used again as late as possible.

use crate::c::{ERRBUF_SIZE, ERROR, ERROR_NOT_ACTIVATED, Pcap};
use crate::fork::NoFork;
use crate::forward::real;
use crate::handle::Handle;
use libc::{c_char, c_int, c_uint};
use rustix::event::EventfdFlags;
use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

/// Most handles at a time.
pub const MAX_HANDLES: usize = 256;
/// Attempts to look at a slot that another thread is changing.
const TRIES: usize = 10_000;
/// No descriptor.
const NONE: c_int = -1;

/// A place for a handle.
#[derive(Debug)]
pub struct Slot {
    /// True after `pcap_breakloop`, until a call has returned for it.
    pub breaking: AtomicBool,
    /// Descriptor of the capture that wakes the thread that waits for frames.
    waker: AtomicI32,
    /// Number of threads that may be about to write to it.
    waking: AtomicU32,
    handle: Mutex<Option<Arc<Handle>>>,
    /// True if the last error is that of the twin.
    is_of_twin: AtomicBool,
    error: Text,
}

/// The text of the last error, which programs read at their leisure.
#[derive(Debug)]
struct Text(UnsafeCell<[c_char; ERRBUF_SIZE]>);

// SAFETY: bytes; the last one is always NUL. As in libpcap, a program that uses a handle in several threads at once may
// read a mixture of two errors.
unsafe impl Sync for Text {}

static SLOTS: [Slot; MAX_HANDLES] = [const { Slot::new() }; MAX_HANDLES];
/// The slot of addresses between two others: it never has a handle.
static NOWHERE: Slot = Slot::new();
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Slot {
    const fn new() -> Slot {
        Slot {
            breaking: AtomicBool::new(false),
            waker: AtomicI32::new(NONE),
            waking: AtomicU32::new(0),
            handle: Mutex::new(None),
            is_of_twin: AtomicBool::new(false),
            error: Text(UnsafeCell::new([0; ERRBUF_SIZE])),
        }
    }

    /// The handle; `None` if it was closed. Never waits for long, so that it may be called in a signal handler.
    pub fn handle(&self) -> Option<Arc<Handle>> {
        let _no_fork = NoFork::begin();
        for _ in 0..TRIES {
            match self.handle.try_lock() {
                Ok(handle) => return handle.clone(),
                Err(TryLockError::Poisoned(handle)) => return handle.into_inner().clone(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }

    /// Takes the handle out, for closing. Never waits for long, so that it may be called in a signal handler.
    fn take(&self) -> Option<Arc<Handle>> {
        let _no_fork = NoFork::begin();
        for _ in 0..TRIES {
            match self.handle.try_lock() {
                Ok(mut handle) => return handle.take(),
                Err(TryLockError::Poisoned(handle)) => return handle.into_inner().take(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }

    /// Makes [`break_loop`](Self::break_loop) write to a descriptor, until the handle is closed.
    pub fn set_waker(&self, waker: RawFd) {
        self.waker.store(waker, Ordering::SeqCst);
        if self.breaking.load(Ordering::Acquire) {
            self.wake();
        }
    }

    /// Forgets the descriptor. Returns false if a thread may still be about to write to it.
    fn forget_waker(&self) -> bool {
        self.waker.store(NONE, Ordering::SeqCst);
        for _ in 0..TRIES {
            if self.waking.load(Ordering::SeqCst) == 0 {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    fn wake(&self) {
        self.waking.fetch_add(1, Ordering::SeqCst);
        let waker = self.waker.load(Ordering::SeqCst);
        if waker != NONE {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight readable bytes; `write` is safe in a signal handler.
            unsafe { libc::write(waker, one.as_ptr().cast(), one.len()) };
        }
        self.waking.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends the call that reads frames, or the next one. Safe in a signal handler.
    pub fn break_loop(&self) {
        self.breaking.store(true, Ordering::Release);
        self.wake();
    }

    /// Stores an error; returns the status.
    pub fn fail(&self, status: c_int, text: &str) -> c_int {
        write_error(self.error.0.get().cast(), text);
        self.is_of_twin.store(false, Ordering::Relaxed);
        status
    }

    /// The text of the last error, in memory that stays.
    pub fn error(&self) -> *mut c_char {
        let own: *mut c_char = self.error.0.get().cast();
        if self.is_of_twin.swap(false, Ordering::Relaxed)
            && let Some(handle) = self.handle()
            && let Some(twin) = handle.twin()
        {
            let text = real!(pcap_geterr(twin => *mut Pcap) -> *mut c_char, own);
            // SAFETY: a buffer of the twin, which the handle keeps open; it has `ERRBUF_SIZE` bytes.
            let text = unsafe {
                let len = libc::strnlen(text, ERRBUF_SIZE);
                std::slice::from_raw_parts(text.cast::<u8>(), len).to_vec()
            };
            write_error(own, &String::from_utf8_lossy(&text));
        }
        own
    }

    /// The address that programs have.
    fn address(&self) -> *mut Pcap {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Writes an error into a buffer of libpcap's size, cut to it; not if the buffer is NULL.
pub fn write_error(buffer: *mut c_char, text: &str) {
    if buffer.is_null() {
        return;
    }
    let mut end = text.len().min(ERRBUF_SIZE - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text[..end].replace('\0', " ");
    // SAFETY: the buffer has `ERRBUF_SIZE` bytes, as libpcap's manual demands, and the text is shorter.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
        *buffer.add(text.len()) = 0;
    }
}

/// In a child: descriptors of its own under the same numbers, so that it does not wake the parent.
extern "C" fn renew_wakers() {
    for slot in &SLOTS {
        // The other threads are not in this process.
        slot.waking.store(0, Ordering::SeqCst);
        let waker = slot.waker.load(Ordering::Acquire);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        if waker == NONE {
            continue;
        }
        // Without a free descriptor the parent's stays.
        if let Ok(own) = rustix::event::eventfd(0, flags) {
            // SAFETY: both are open; the second is replaced at once.
            unsafe { libc::dup3(own.as_raw_fd(), waker, libc::O_CLOEXEC) };
        }
    }
}

extern "C" fn watch_forks() {
    // SAFETY: the function stays as long as this library; when it is unloaded, the C library forgets it.
    unsafe { libc::pthread_atfork(None, None, Some(renew_wakers)) };
}

/// Called by the dynamic linker when it has loaded the library.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH: extern "C" fn() = watch_forks;

/// The slot of a handle; `None` for a handle of the system's libpcap. Looks at the address only.
pub fn slot(pcap: *mut Pcap) -> Option<&'static Slot> {
    let (at, first) = (pcap as usize, SLOTS.as_ptr() as usize);
    let distance = at.checked_sub(first)?;
    let slot = SLOTS.get(distance / size_of::<Slot>())?;
    // An address within a slot is not a handle.
    Some(if distance.is_multiple_of(size_of::<Slot>()) { slot } else { &NOWHERE })
}

/// Gives a handle an address; `None` if there are too many.
pub fn enter(handle: Handle) -> Option<*mut Pcap> {
    let _no_fork = NoFork::begin();
    for _ in 0..MAX_HANDLES {
        let slot = &SLOTS[NEXT.fetch_add(1, Ordering::Relaxed) % MAX_HANDLES];
        let Ok(mut place) = slot.handle.try_lock() else { continue };
        if place.is_none() {
            *place = Some(Arc::new(handle));
            slot.breaking.store(false, Ordering::Relaxed);
            slot.fail(0, "");
            return Some(slot.address());
        }
    }
    None
}

/// Takes a handle away from its address. `None` if it was closed before.
pub fn leave(slot: &Slot) -> Option<Arc<Handle>> {
    // Before the descriptor is forgotten: a thread that waits for frames then finds that the handle is gone.
    slot.break_loop();
    let is_quiet = slot.forget_waker();
    let handle = slot.take();
    match &handle {
        None => drop(slot.fail(ERROR, "the handle is closed")),
        Some(handle) if !is_quiet => {
            if let Some(active) = handle.active() {
                active.live.wakes.keep_breaker();
            }
        }
        Some(_) => {}
    }
    handle
}

/// A handle of the system's libpcap, which stays open until this is dropped if it is a twin.
#[derive(Debug)]
pub struct Held {
    /// Its address.
    pub pcap: *mut Pcap,
    _handle: Option<Arc<Handle>>,
}

/// The handle for a function that the system's libpcap carries out: the same, or the twin of one of ours. `None` if
/// there is none.
pub fn real_or_twin(pcap: *mut Pcap) -> Option<Held> {
    if pcap.is_null() {
        return None;
    }
    let Some(slot) = slot(pcap) else { return Some(Held { pcap, _handle: None }) };
    let handle = slot.handle()?;
    let twin = handle.twin()?;
    slot.is_of_twin.store(true, Ordering::Relaxed);
    Some(Held { pcap: twin, _handle: Some(handle) })
}

/// Fails a function on a handle that is not activated, or closed.
pub fn not_activated(pcap: *mut Pcap) -> c_int {
    match slot(pcap) {
        Some(slot) if slot.handle().is_some() => {
            slot.fail(ERROR_NOT_ACTIVATED, "the handle is not activated")
        }
        Some(slot) => slot.fail(ERROR, "the handle is closed"),
        None => ERROR,
    }
}

/// Fails a function that returns a file; returns NULL.
pub fn no_file<T>(pcap: *mut Pcap) -> *mut T {
    not_activated(pcap);
    std::ptr::null_mut()
}

/// Opens a twin, which knows a link type and its language but captures nothing.
pub fn open_twin(link: c_int, snaplen: c_int, is_nano: bool) -> *mut Pcap {
    let none = std::ptr::null_mut();
    let precision = c_uint::from(is_nano);
    real!(pcap_open_dead_with_tstamp_precision(
        link => c_int, snaplen => c_int, precision => c_uint) -> *mut Pcap, none)
}

/// Closes a twin.
pub fn close_twin(twin: *mut Pcap) {
    real!(pcap_close(twin => *mut Pcap) -> (), ());
}
