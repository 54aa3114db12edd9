//! System calls: whether the program runs with more rights than its user, threads without signals, and forks.

use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// True in a child that was forked after a handle was opened, until [`take_fork`].
static FORKED: AtomicBool = AtomicBool::new(false);

/// Shared by threads that hold a lock of this library, and taken whole while the program forks: so a child finds no
/// lock taken by a thread that it does not have. Readers go first, so a thread may share it twice.
static mut GATE: libc::pthread_rwlock_t = libc::PTHREAD_RWLOCK_INITIALIZER;

fn gate() -> *mut libc::pthread_rwlock_t {
    &raw mut GATE
}

/// Keeps the program from forking until it is dropped.
#[derive(Debug)]
pub struct NoFork(());

impl NoFork {
    /// Waits for a fork that is in progress.
    pub fn begin() -> NoFork {
        // SAFETY: a static lock, initialised.
        unsafe { libc::pthread_rwlock_rdlock(gate()) };
        NoFork(())
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        // SAFETY: this thread shares it.
        unsafe { libc::pthread_rwlock_unlock(gate()) };
    }
}

extern "C" fn before_fork() {
    // SAFETY: a static lock, initialised.
    unsafe { libc::pthread_rwlock_wrlock(gate()) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread locked it before the fork.
    unsafe { libc::pthread_rwlock_unlock(gate()) };
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    // Not unlocked: a lock for writing belongs to a thread by its number, and this one has another.
    // SAFETY: this thread is the only one of the process.
    unsafe { *gate() = libc::PTHREAD_RWLOCK_INITIALIZER };
}

/// Watches for forks from now on.
pub fn watch_forks() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions stay, because this library is never unloaded once it has handles (see `stay`).
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
    });
}

/// True once in a child that was forked.
pub fn take_fork() -> bool {
    FORKED.load(Ordering::Relaxed) && FORKED.swap(false, Ordering::Relaxed)
}

/// True if the program has more rights than its user, so that its environment is not to be trusted.
pub fn is_privileged() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Calls `start` with all signals blocked, so that threads which it starts get none of the program's.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` initialises the first set, `pthread_sigmask` the second; it fails only for a wrong
    // operation.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = start();
    // SAFETY: the set was initialised above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}
