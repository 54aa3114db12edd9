//! Signals that arrive while a command starts: SIGINT, SIGTERM and SIGHUP are kept until it can end in order.
//!
//! A shell script starts commands in the background with SIGINT ignored, so that one that comes before the handler
//! would be lost; with the default action it would end the command without its counts.
//!
//! ```text
//! main ─▶ keep ─▶ open, drop rights (a second at most after a signal, then it ends the process) ─▶ handlers ─▶ take
//!             └─▶ give_back, for a command that has no end in order
//! ```

use crate::sys::signals;
use std::io;

/// Keeps SIGINT, SIGTERM and, unless it is ignored, SIGHUP. One that is not [taken](take) within a second has its
/// default action then, because what the command waits for may never come.
///
/// # Errors
/// The system refuses.
pub fn keep() -> io::Result<()> {
    signals::keep()
}

/// Keeps no more signals; call it when handlers are there. Returns the signals that have arrived, one bit each: bit 0
/// is signal 1.
pub fn take() -> u64 {
    signals::take()
}

/// Keeps no more signals, restores their actions, and sends those that have arrived again.
pub fn give_back() {
    signals::give_back();
}
