//! Frames: loops, next, break, waiting.
//!
//! A call waits as libpcap's does: `pcap_loop` and `pcap_next` until there is a frame, `pcap_dispatch` and
//! `pcap_next_ex` for the time-out of the handle. Frames gather for at most 20 ms, unless the mode is immediate.

use super::{Call, active, call};
use crate::c::{ERROR, ERROR_BREAK, Handler, Header, Pcap};
use crate::forward::real;
use crate::handle::{Active, Handle};
use crate::reading::{Packet, Run, Taken};
use crate::slots::Slot;
use libc::{c_char, c_int, c_uchar, timeval};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two looks if the service cannot wake this process.
const POLL: Duration = Duration::from_millis(5);
/// Frames that one dispatch without a limit gives: those of a batch.
const BATCH: c_int = 256;

/// Ways to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// As long as it takes.
    Forever,
    /// For the time-out of the handle, which may be none.
    TimeOut,
}

/// Result of a wait for frames.
enum Got {
    Run(Run),
    Nothing,
    Broken,
    End(String),
}

/// Returns true if the loop is to end; forgets the request.
fn is_broken(slot: &Slot, active: &Active) -> bool {
    let broken =
        slot.breaking.load(Ordering::Acquire) && slot.breaking.swap(false, Ordering::AcqRel);
    if broken {
        active.live.wakes.clear_break();
    }
    broken
}

/// Waits for frames.
fn next(slot: &Slot, handle: &Handle, active: &Active, patience: Patience) -> Got {
    let live = &active.live;
    let settings = active.settings;
    // The clock is read only if there is no frame: it costs as much as the rest of the call.
    let mut start = None;
    let limit = match patience {
        _ if handle.is_nonblocking() => Some(Duration::ZERO),
        Patience::TimeOut if settings.timeout_ms > 0 => {
            Some(Duration::from_millis(settings.timeout_ms.unsigned_abs().into()))
        }
        _ => None,
    };
    loop {
        if is_broken(slot, active) {
            return Got::Broken;
        }
        match live.take(active.direction.load(Ordering::Relaxed)) {
            Taken::Run(run) => return Got::Run(run),
            Taken::End(why) => return Got::End(why),
            Taken::Nothing => {}
        }
        // The handle may have been closed by another thread.
        if slot.handle().is_none_or(|now| !std::ptr::eq(&*now, handle)) {
            return Got::End("the handle is closed".to_owned());
        }
        let start = *start.get_or_insert_with(Instant::now);
        let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
        if left == Some(Duration::ZERO) {
            return Got::Nothing;
        }
        let nap = live.nap();
        if !nap.is_zero() && !settings.is_immediate {
            live.wakes.rest(left.map_or(nap, |left| nap.min(left)));
        } else if !live.is_woken() {
            live.wakes.rest(left.map_or(POLL, |left| POLL.min(left)));
        } else if live.arm() {
            live.wakes.wait(left);
            live.disarm();
        }
    }
}

/// Gives frames to a function: at most `count`, if that is positive.
fn run(
    slot: &Slot,
    handle: &Handle,
    active: &Active,
    (count, patience): (c_int, Patience),
    mut give: impl FnMut(&Header, &[u8]),
) -> c_int {
    let mut given = 0;
    let limit = match patience {
        _ if count > 0 => count,
        Patience::TimeOut => BATCH,
        Patience::Forever => c_int::MAX,
    };
    let counts = patience == Patience::TimeOut || count > 0;
    let mut run = None;
    while given < limit {
        // Frames are given without a lock, so that the program may call any function meanwhile.
        if let Some((header, bytes)) = run.as_ref().and_then(|run| next_of(run, slot, active)) {
            give(header, bytes);
            given += c_int::from(counts);
            continue;
        }
        // Its memory takes the next frames.
        run = None;
        // A dispatch waits for its first frame only.
        let got = match (patience, given) {
            (Patience::TimeOut, 1..) => more(slot, active),
            _ => next(slot, handle, active, patience),
        };
        match got {
            Got::Run(next) => run = Some(next),
            Got::Nothing if patience == Patience::Forever && !handle.is_nonblocking() => {}
            Got::Nothing => break,
            Got::Broken => return slot.fail(ERROR_BREAK, ""),
            Got::End(why) => return slot.fail(ERROR, &why),
        }
    }
    active.live.arm();
    if patience == Patience::Forever { 0 } else { given }
}

/// The next frame of a run, unless the loop is to end.
#[inline]
fn next_of<'a>(run: &'a Run, slot: &Slot, active: &Active) -> Option<Packet<'a>> {
    if slot.breaking.load(Ordering::Acquire) {
        return None;
    }
    run.next(active.live.rule(active.direction.load(Ordering::Relaxed)))
}

/// More frames for a dispatch that has given some: none if it would have to wait, or an error is to be told by the next
/// call.
fn more(slot: &Slot, active: &Active) -> Got {
    if slot.breaking.load(Ordering::Acquire) {
        return Got::Nothing;
    }
    match active.live.take(active.direction.load(Ordering::Relaxed)) {
        Taken::Run(run) => Got::Run(run),
        Taken::Nothing | Taken::End(_) => Got::Nothing,
    }
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_loop(
    pcap: *mut Pcap,
    count: c_int,
    callback: Option<Handler>,
    user: *mut c_uchar,
) -> c_int {
    let (slot, handle) = match call(pcap) {
        Call::Ours(slot, handle) => (slot, handle),
        Call::Real => {
            return real!(pcap_loop(pcap => *mut Pcap, count => c_int, callback => Option<Handler>,
                user => *mut c_uchar) -> c_int, ERROR);
        }
        Call::Wrong => return ERROR,
    };
    let Some(callback) = callback else { return slot.fail(ERROR, "the callback is NULL") };
    active(slot, &handle, |active| {
        run(slot, &handle, active, (count, Patience::Forever), |header, bytes| {
            // SAFETY: the program's function, called as libpcap's manual has it.
            unsafe { callback(user, header, bytes.as_ptr()) };
        })
    })
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dispatch(
    pcap: *mut Pcap,
    count: c_int,
    callback: Option<Handler>,
    user: *mut c_uchar,
) -> c_int {
    let (slot, handle) = match call(pcap) {
        Call::Ours(slot, handle) => (slot, handle),
        Call::Real => {
            return real!(
                pcap_dispatch(pcap => *mut Pcap, count => c_int, callback => Option<Handler>,
                user => *mut c_uchar) -> c_int, ERROR);
        }
        Call::Wrong => return ERROR,
    };
    let Some(callback) = callback else { return slot.fail(ERROR, "the callback is NULL") };
    active(slot, &handle, |active| {
        run(slot, &handle, active, (count, Patience::TimeOut), |header, bytes| {
            // SAFETY: the program's function, called as libpcap's manual has it.
            unsafe { callback(user, header, bytes.as_ptr()) };
        })
    })
}

/// As in libpcap: the frame stays until the next call on the handle.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_next_ex(
    pcap: *mut Pcap,
    header_of: *mut *mut Header,
    data: *mut *const c_uchar,
) -> c_int {
    let (slot, handle) = match call(pcap) {
        Call::Ours(slot, handle) => (slot, handle),
        Call::Real => {
            return real!(pcap_next_ex(pcap => *mut Pcap, header_of => *mut *mut Header,
                data => *mut *const c_uchar) -> c_int, ERROR);
        }
        Call::Wrong => return ERROR,
    };
    if header_of.is_null() || data.is_null() {
        return slot.fail(ERROR, "the place for the header or the frame is NULL");
    }
    active(slot, &handle, |active| {
        let result = loop {
            match next(slot, &handle, active, Patience::TimeOut) {
                Got::Run(run) => {
                    // Another thread may have taken the last one.
                    let Some((header, bytes)) = next_of(&run, slot, active) else { continue };
                    let header = handle.header.put(*header);
                    // SAFETY: not NULL; the program's places.
                    unsafe { (*header_of, *data) = (header, bytes.as_ptr()) };
                    break 1;
                }
                Got::Nothing => break 0,
                Got::Broken => break slot.fail(ERROR_BREAK, ""),
                Got::End(why) => break slot.fail(ERROR, &why),
            }
        };
        active.live.arm();
        result
    })
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_next(pcap: *mut Pcap, header: *mut Header) -> *const c_uchar {
    match call(pcap) {
        Call::Real => {
            let none = std::ptr::null();
            return real!(
                pcap_next(pcap => *mut Pcap, header => *mut Header) -> *const c_uchar,
                none
            );
        }
        Call::Wrong => return std::ptr::null(),
        Call::Ours(..) => {}
    }
    let (mut found, mut data) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: a handle of ours, and places of this function.
    if unsafe { pcap_next_ex(pcap, &mut found, &mut data) } != 1 {
        return std::ptr::null();
    }
    if !header.is_null() {
        // SAFETY: the program's place, and the header that the call has stored.
        unsafe { *header = *found };
    }
    data
}

/// As in libpcap; may be called in a signal handler, and by another thread, which it then wakes.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_breakloop(pcap: *mut Pcap) {
    match crate::slots::slot(pcap) {
        Some(slot) => slot.break_loop(),
        None if pcap.is_null() => {}
        None => real!(pcap_breakloop(pcap => *mut Pcap) -> (), ()),
    }
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setnonblock(
    pcap: *mut Pcap,
    is_nonblocking: c_int,
    errbuf: *mut c_char,
) -> c_int {
    match call(pcap) {
        Call::Ours(_, handle) => {
            handle.is_nonblocking.store(is_nonblocking != 0, Ordering::Relaxed);
            0
        }
        Call::Real => real!(pcap_setnonblock(pcap => *mut Pcap, is_nonblocking => c_int,
            errbuf => *mut c_char) -> c_int, ERROR),
        Call::Wrong => {
            crate::slots::write_error(errbuf, "the handle is closed");
            ERROR
        }
    }
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_getnonblock(pcap: *mut Pcap, errbuf: *mut c_char) -> c_int {
    match call(pcap) {
        Call::Ours(_, handle) => c_int::from(handle.is_nonblocking()),
        Call::Real => {
            real!(pcap_getnonblock(pcap => *mut Pcap, errbuf => *mut c_char) -> c_int, ERROR)
        }
        Call::Wrong => {
            crate::slots::write_error(errbuf, "the handle is closed");
            ERROR
        }
    }
}

fn descriptor(pcap: *mut Pcap) -> Option<c_int> {
    match call(pcap) {
        // libpcap has no status of its own for it here.
        Call::Ours(slot, handle) if handle.active().is_none() => {
            Some(slot.fail(ERROR, "the handle is not activated"))
        }
        Call::Ours(slot, handle) => {
            Some(active(slot, &handle, |active| active.live.wakes.fd().as_raw_fd()))
        }
        Call::Real => None,
        Call::Wrong => Some(ERROR),
    }
}

/// As in libpcap: readable when there may be frames.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_selectable_fd(pcap: *mut Pcap) -> c_int {
    descriptor(pcap)
        .unwrap_or_else(|| real!(pcap_get_selectable_fd(pcap => *mut Pcap) -> c_int, ERROR))
}

/// As in libpcap; a handle of ours has no socket, and returns the descriptor for `poll`.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fileno(pcap: *mut Pcap) -> c_int {
    descriptor(pcap).unwrap_or_else(|| real!(pcap_fileno(pcap => *mut Pcap) -> c_int, ERROR))
}

/// As in libpcap: a time only if the service cannot wake this process.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_required_select_timeout(pcap: *mut Pcap) -> *const timeval {
    static SHORT: timeval = timeval { tv_sec: 0, tv_usec: 5_000 };
    let none = std::ptr::null();
    match call(pcap) {
        Call::Ours(_, handle) => match handle.active() {
            Some(active) if !active.live.is_woken() => &raw const SHORT,
            _ => none,
        },
        Call::Real => {
            real!(pcap_get_required_select_timeout(pcap => *mut Pcap) -> *const timeval, none)
        }
        Call::Wrong => none,
    }
}
