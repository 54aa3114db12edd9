//! Counts, errors, and lists of devices.

use super::open::of_service;
use super::{Call, active, call};
use crate::c::{DEVICE_FLAGS, Device, ERROR, Pcap, Stat};
use crate::forward::{no_library, real};
use crate::handle::PREFIX;
use crate::{slots, sys};
use libc::{c_char, c_int, c_uint, c_void, size_t};
use std::ffi::{CStr, CString};

/// As in libpcap: received are the frames that the filter has accepted, with the lost ones.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_stats(pcap: *mut Pcap, stat: *mut Stat) -> c_int {
    match call(pcap) {
        Call::Ours(slot, _) if stat.is_null() => {
            slot.fail(ERROR, "the place for the counts is NULL")
        }
        Call::Ours(slot, handle) => active(slot, &handle, |active| {
            let counts = active.live.counts();
            // libpcap's counts have 32 bits, and wrap around.
            let found = Stat {
                received: counts.received as c_uint,
                dropped: counts.lost as c_uint,
                dropped_by_interface: 0,
            };
            // SAFETY: the program's place, which is not NULL.
            unsafe { *stat = found };
            0
        }),
        Call::Real => real!(pcap_stats(pcap => *mut Pcap, stat => *mut Stat) -> c_int, ERROR),
        Call::Wrong => ERROR,
    }
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_geterr(pcap: *mut Pcap) -> *mut c_char {
    let none = c"the handle is NULL".as_ptr().cast_mut();
    match slots::slot(pcap) {
        Some(slot) => slot.error(),
        None if pcap.is_null() => none,
        None => real!(pcap_geterr(pcap => *mut Pcap) -> *mut c_char, none),
    }
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_perror(pcap: *mut Pcap, prefix: *const c_char) {
    let Some(slot) = slots::slot(pcap) else {
        if !pcap.is_null() {
            real!(pcap_perror(pcap => *mut Pcap, prefix => *const c_char) -> (), ());
        }
        return;
    };
    // SAFETY: the buffer of a slot ends with NUL.
    let text = unsafe { CStr::from_ptr(slot.error()) }.to_string_lossy();
    let line = match prefix.is_null() {
        true => format!("{text}\n"),
        // SAFETY: not NULL, and ends with NUL, as libpcap's manual demands.
        false => format!("{}: {text}\n", unsafe { CStr::from_ptr(prefix) }.to_string_lossy()),
    };
    // Not by `eprintln`, which takes a lock that a child may find taken.
    // SAFETY: readable bytes of this length.
    let _closed = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_snapshot(pcap: *mut Pcap) -> c_int {
    match call(pcap) {
        Call::Ours(slot, handle) => active(slot, &handle, |active| active.settings.snaplen),
        Call::Real => real!(pcap_snapshot(pcap => *mut Pcap) -> c_int, ERROR),
        Call::Wrong => ERROR,
    }
}

/// As in libpcap; a service has one link type.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_datalink(pcap: *mut Pcap, link: c_int) -> c_int {
    match call(pcap) {
        Call::Ours(slot, handle) => active(slot, &handle, |active| match active.live.dlt() {
            own if own == link => 0,
            own => slot.fail(
                ERROR,
                &format!("{link} is not one of the DLTs of this device, which has {own} only"),
            ),
        }),
        Call::Real => real!(pcap_set_datalink(pcap => *mut Pcap, link => c_int) -> c_int, ERROR),
        Call::Wrong => ERROR,
    }
}

/// As in libpcap; a service has one kind of times.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_list_tstamp_types(pcap: *mut Pcap, list: *mut *mut c_int) -> c_int {
    match call(pcap) {
        Call::Ours(slot, _) if list.is_null() => slot.fail(ERROR, "the place for the list is NULL"),
        Call::Ours(..) => {
            // SAFETY: the program's place, which is not NULL.
            unsafe { *list = std::ptr::null_mut() };
            0
        }
        Call::Real => {
            real!(
                pcap_list_tstamp_types(pcap => *mut Pcap, list => *mut *mut c_int) -> c_int,
                ERROR
            )
        }
        Call::Wrong => ERROR,
    }
}

const NO_SENDING: &str = "a capture of fyke serve sends nothing";

/// As in libpcap; a handle of ours sends nothing.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_inject(pcap: *mut Pcap, data: *const c_void, len: size_t) -> c_int {
    match call(pcap) {
        Call::Ours(slot, _) => slot.fail(ERROR, NO_SENDING),
        Call::Real => real!(pcap_inject(pcap => *mut Pcap, data => *const c_void,
            len => size_t) -> c_int, ERROR),
        Call::Wrong => ERROR,
    }
}

/// As in libpcap; a handle of ours sends nothing.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_sendpacket(pcap: *mut Pcap, data: *const u8, len: c_int) -> c_int {
    match call(pcap) {
        Call::Ours(slot, _) => slot.fail(ERROR, NO_SENDING),
        Call::Real => real!(pcap_sendpacket(pcap => *mut Pcap, data => *const u8,
            len => c_int) -> c_int, ERROR),
        Call::Wrong => ERROR,
    }
}

/// As in libpcap; of a service, the network of its interface.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lookupnet(
    device: *const c_char,
    net: *mut u32,
    mask: *mut u32,
    errbuf: *mut c_char,
) -> c_int {
    let whole = |device: *const c_char| {
        real!(pcap_lookupnet(device => *const c_char, net => *mut u32, mask => *mut u32,
            errbuf => *mut c_char) -> c_int, { no_library(errbuf); ERROR })
    };
    match of_service(device) {
        None => whole(device),
        Some(Err(text)) => {
            slots::write_error(errbuf, &text);
            ERROR
        }
        Some(Ok((own, interface))) => {
            let name = CString::new(interface).unwrap_or_default();
            let status = whole(name.as_ptr());
            if status != 0 && !net.is_null() && !mask.is_null() {
                // SAFETY: the program's places, which are not NULL.
                unsafe { (*net, *mask) = (0, own) };
            }
            if own == 0 { status } else { 0 }
        }
    }
}

/// A device of the list, in memory that `pcap_freealldevs` frees; NULL if there is none.
fn device(name: &str) -> *mut Device {
    let copy = |text: String| {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: ends with NUL.
        unsafe { libc::strdup(text.as_ptr()) }
    };
    // SAFETY: `calloc` gives zeros, which are a device without anything.
    unsafe {
        let made: *mut Device = libc::calloc(1, size_of::<Device>()).cast();
        if !made.is_null() {
            (*made).name = copy(format!("{PREFIX}{name}"));
            (*made).description = copy(format!("capture {name} of fyke serve"));
            (*made).flags = DEVICE_FLAGS;
        }
        made
    }
}

/// As in libpcap; after the devices of the system come the captures of `fyke serve`.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_findalldevs(list: *mut *mut Device, errbuf: *mut c_char) -> c_int {
    let status = real!(pcap_findalldevs(list => *mut *mut Device, errbuf => *mut c_char) -> c_int,
        { no_library(errbuf); ERROR });
    if status != 0 || list.is_null() || sys::is_privileged() {
        return status;
    }
    let mut end = list;
    // SAFETY: a list of libpcap, which ends with NULL.
    while let Some(one) = unsafe { (*end).as_mut() } {
        end = &raw mut one.next;
    }
    for name in fyke_serve::place::names() {
        let made = device(&name);
        if made.is_null() {
            break;
        }
        // SAFETY: the end of the list, and a device that was made above.
        unsafe {
            *end = made;
            end = &raw mut (*made).next;
        }
    }
    status
}
