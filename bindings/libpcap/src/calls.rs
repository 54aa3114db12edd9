//! The functions that act on a handle: those of ours are carried out here, all others by the system's libpcap.
//!
//! | module | functions |
//! |---|---|
//! | `open` | create, settings, activate, close |
//! | `read` | loops, next, break, waiting |
//! | `filter` | compile, set a filter, direction |
//! | `about` | counts, errors, lists of devices |

pub mod about;
pub mod filter;
pub mod open;
pub mod read;

use crate::c::{ERROR, ERROR_NOT_ACTIVATED, Pcap};
use crate::handle::{Active, Handle};
use crate::slots::{Slot, slot};
use crate::{control, fork};
use libc::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A call on a handle.
enum Call {
    /// On one of ours.
    Ours(&'static Slot, Arc<Handle>),
    /// On one of the system's libpcap.
    Real,
    /// On one that is closed or NULL; the error is stored.
    Wrong,
}

fn call(pcap: *mut Pcap) -> Call {
    if pcap.is_null() {
        return Call::Wrong;
    }
    let Some(slot) = slot(pcap) else { return Call::Real };
    match slot.handle() {
        Some(handle) => Call::Ours(slot, handle),
        None => {
            slot.fail(ERROR, "the handle is closed");
            Call::Wrong
        }
    }
}

/// Runs our part of a function; a defect of ours is an error of the function, not the end of the program.
fn ours(slot: &Slot, run: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| slot.fail(ERROR, "fyke: a defect: please report it"))
}

/// Runs our part of a function on an activated handle.
fn active(slot: &Slot, handle: &Handle, run: impl FnOnce(&Active) -> c_int) -> c_int {
    let Some(active) = handle.active() else {
        return slot.fail(ERROR_NOT_ACTIVATED, "the handle is not activated");
    };
    if fork::take_fork() {
        // The child of a program that has made itself a daemon.
        let _no_fork = fork::NoFork::begin();
        active.live.filters().resume_expiry();
        control::begin(&active.live);
    }
    ours(slot, || run(active))
}
