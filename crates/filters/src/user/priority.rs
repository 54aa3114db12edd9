//! Work that takes long beside a packet loop.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// A tenth of the weight of a packet loop; at the lowest priority an edit would wait for minutes on a busy machine.
const NICE: i32 = 10;

/// Does something on a thread of its own at low priority and waits for it: whatever takes longer than a millisecond
/// while frames arrive. A thread cannot raise its priority again, hence one of its own; it costs some 50 µs. Nothing in
/// `work` may lock what a packet loop waits for.
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

/// Gives the calling thread low priority, for good.
pub(super) fn lower_own_priority() {
    // On Linux a priority is a thread's. Lowering it is never refused; the work is right at any.
    let _ignored = rustix::process::nice(NICE);
}
