//! System calls: whether the program runs with more rights than its user, and threads without signals.

use std::mem::MaybeUninit;

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
