//! Handlers of signals with system calls that are safe in a handler: sigaction(2), alarm(2), raise(3).

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Signals that tell a process to end.
const STOPS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// Time in seconds after which a signal ends the process unless it was taken.
const PATIENCE_S: libc::c_uint = 1;

/// Signals that have arrived, one bit each: bit 0 is signal 1.
static ARRIVED: AtomicU64 = AtomicU64::new(0);
/// True while the handlers keep signals.
static KEEPS: AtomicBool = AtomicBool::new(false);
/// Actions before [`keep`].
static BEFORE: Mutex<Vec<(libc::c_int, libc::sigaction)>> = Mutex::new(Vec::new());

fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

extern "C" fn stop(signal: libc::c_int) {
    if !KEEPS.load(Ordering::Relaxed) {
        return;
    }
    if ARRIVED.fetch_or(bit(signal), Ordering::Relaxed) == 0 {
        // SAFETY: the place of the error number of this thread, which the interrupted code may read.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: it is readable.
        let before = unsafe { *errno };
        // SAFETY: no memory is passed. A sandbox may forbid the call; the command has nearly started then.
        unsafe { libc::alarm(PATIENCE_S) };
        // SAFETY: it is writable.
        unsafe { *errno = before };
    }
}

extern "C" fn too_late(_: libc::c_int) {
    let arrived = ARRIVED.load(Ordering::Relaxed);
    if KEEPS.load(Ordering::Relaxed) && arrived != 0 {
        let signal = arrived.trailing_zeros() as libc::c_int + 1;
        // SAFETY: no handler and no memory is passed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: no memory is passed.
        unsafe { libc::raise(signal) };
    }
}

fn action(
    signal: libc::c_int,
    new: Option<extern "C" fn(libc::c_int)>,
) -> io::Result<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    let new = new.map(|handler| {
        // SAFETY: all fields are numbers, for which zero is valid: no flags, no signal blocked.
        let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        action
    });
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `new` is null or an action, and its handler calls async-signal-safe functions only; `before` is writable.
    super::done(unsafe { libc::sigaction(signal, new, before.as_mut_ptr()) })?;
    // SAFETY: the call has filled it in.
    Ok(unsafe { before.assume_init() })
}

/// Keeps the signals that tell a process to end, but SIGHUP if it is ignored.
pub(crate) fn keep() -> io::Result<()> {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if !before.is_empty() {
        return Ok(());
    }
    KEEPS.store(true, Ordering::Relaxed);
    before.push((libc::SIGALRM, action(libc::SIGALRM, Some(too_late))?));
    for signal in STOPS {
        if signal != libc::SIGHUP || action(signal, None)?.sa_sigaction != libc::SIG_IGN {
            before.push((signal, action(signal, Some(stop))?));
        }
    }
    Ok(())
}

/// Keeps no more signals; returns those that have arrived, one bit each: bit 0 is signal 1.
pub(crate) fn take() -> u64 {
    KEEPS.store(false, Ordering::Relaxed);
    ARRIVED.swap(0, Ordering::Relaxed)
}

/// Keeps no more signals, restores what they did before, and sends those that have arrived again.
pub(crate) fn give_back() {
    let arrived = take();
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    for (signal, action) in before.drain(..) {
        // SAFETY: the action is one that this process had.
        unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    }
    for signal in STOPS.into_iter().filter(|&signal| arrived & bit(signal) != 0) {
        // SAFETY: no memory is passed.
        unsafe { libc::raise(signal) };
    }
}
