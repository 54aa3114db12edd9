//! Slow work in a process that has a packet loop.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// A tenth of the weight of a packet loop; at the lowest priority an edit would wait for minutes on a busy machine.
const NICE: i32 = 10;

/// Does `work` in a new thread at low priority and waits for it; for work of more than a millisecond while frames
/// arrive. A thread cannot raise its priority again, so it cannot be the caller's; a new one costs about 50 µs. `work`
/// must not take a lock for which a packet loop waits.
pub(super) fn at_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let lowered = || {
        lower_own_priority();
        work()
    };
    scope(|threads| {
        let thread = Builder::new().name("fyke-long".into()).spawn_scoped(threads, lowered);
        let thread = thread.expect("a thread can be started");
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Gives the calling thread low priority for the rest of its life.
pub(crate) fn lower_own_priority() {
    // On Linux, priority belongs to a thread. Lowering it is always allowed, and the work is correct at any priority.
    let _ignored = rustix::process::nice(NICE);
}
