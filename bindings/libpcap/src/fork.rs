//! Forks: while the program forks, no thread holds a lock of this library, so a child finds all of them free.
//!
//! A thread is *inside* while it holds a lock ([`NoFork`]). A fork closes the gate, waits until no other thread is
//! inside, and opens the gate again in the parent and in the child. The gate is closed before the waiting, so threads
//! that come and go all the time do not delay a fork. A thread may enter several times, and a signal handler may enter
//! in a thread that is inside. Cost of entering: two atomic operations.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// Set in [`GATE`] during a fork; the other bits count the threads inside.
const CLOSED: u32 = 1 << 31;
static GATE: AtomicU32 = AtomicU32::new(0);
/// True in a child that was forked, until [`take_fork`].
static FORKED: AtomicBool = AtomicBool::new(false);
/// True in a process that has forked, and in its children: another process may share the descriptors.
static SHARED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Number of times that this thread is inside.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// True if this thread has closed the gate.
    static CLOSES: Cell<bool> = const { Cell::new(false) };
}

/// Time between two looks at the gate.
const PAUSE: Duration = Duration::from_micros(50);
/// Longest wait of a fork: more than any thread is inside, as an edit waits for the service for ten seconds at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps the program from forking until it is dropped.
#[derive(Debug)]
pub struct NoFork(PhantomData<*const ()>);

impl NoFork {
    /// Waits for a fork that is in progress.
    pub fn begin() -> NoFork {
        DEPTH.with(|depth| match depth.get() {
            0 => enter(depth),
            times => depth.set(times + 1),
        });
        NoFork(PhantomData)
    }
}

fn enter(depth: &Cell<u32>) {
    loop {
        // First, so that a signal handler which interrupts this thread below does not wait for a fork that waits for
        // this thread.
        depth.set(1);
        compiler_fence(Ordering::SeqCst);
        let free = |state: u32| (state & CLOSED == 0).then_some(state + 1);
        if GATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok() {
            return;
        }
        depth.set(0);
        compiler_fence(Ordering::SeqCst);
        std::thread::sleep(PAUSE);
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        DEPTH.with(|depth| {
            if depth.get() == 1 {
                GATE.fetch_sub(1, Ordering::Release);
                compiler_fence(Ordering::SeqCst);
            }
            depth.set(depth.get() - 1);
        });
    }
}

/// 1 if this thread is inside: then a signal handler forks, which has interrupted it.
fn own() -> u32 {
    DEPTH.with(|depth| depth.get().min(1))
}

extern "C" fn before_fork() {
    let start = Instant::now();
    while GATE.fetch_or(CLOSED, Ordering::Acquire) & CLOSED != 0 {
        // Another thread forks.
        if start.elapsed() > PATIENCE {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    CLOSES.with(|closes| closes.set(true));
    while GATE.load(Ordering::Acquire) & !CLOSED > own() && start.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
    }
    SHARED.store(true, Ordering::Relaxed);
}

extern "C" fn in_parent() {
    if CLOSES.with(|closes| closes.replace(false)) {
        GATE.fetch_and(!CLOSED, Ordering::Release);
    }
}

extern "C" fn in_child() {
    CLOSES.with(|closes| closes.set(false));
    // The other threads are not in this process.
    GATE.store(own(), Ordering::Release);
    FORKED.store(true, Ordering::Relaxed);
}

extern "C" fn watch() {
    // SAFETY: the functions stay as long as this library; when it is unloaded, the C library forgets them.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

/// Called by the dynamic linker when it has loaded the library, before there is a thread that could fork.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH: extern "C" fn() = watch;

/// True once in a child that was forked.
pub fn take_fork() -> bool {
    FORKED.load(Ordering::Relaxed) && FORKED.swap(false, Ordering::Relaxed)
}

/// True if another process may share the descriptors of this one.
pub fn is_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}
