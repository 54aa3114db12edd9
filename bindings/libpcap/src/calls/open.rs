//! Handles: create, settings, activate, close.

use super::{Call, call, ours};
use crate::c::{
    ERROR, ERROR_ACTIVATED, ERROR_TSTAMP_PRECISION_NOTSUP, Pcap, WARNING_TSTAMP_TYPE_NOTSUP,
};
use crate::forward::{no_library, real};
use crate::handle::{Handle, PREFIX, Settings};
use crate::{control, slots, sys};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// The name of a service in the name of a device.
fn service<'a>(device: *const c_char) -> Option<&'a str> {
    if device.is_null() || sys::is_privileged() {
        return None;
    }
    // SAFETY: not NULL, and ends with NUL, as libpcap's manual demands.
    unsafe { CStr::from_ptr(device) }.to_str().ok()?.strip_prefix(PREFIX)
}

/// The netmask and the interface of a service, for `pcap_lookupnet`.
pub(super) fn of_service(device: *const c_char) -> Option<Result<(u32, String), String>> {
    let name = service(device)?;
    let connection = fyke_serve::Connection::open(name, None);
    Some(connection.map_err(|error| error.to_string()).map(|connection| {
        let hello = connection.hello();
        (hello.netmask.to_be(), hello.interface.clone())
    }))
}

/// As in libpcap; `fyke:NAME` is the capture of `fyke serve` with this name.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_create(device: *const c_char, errbuf: *mut c_char) -> *mut Pcap {
    match service(device) {
        Some(name) => create(name, errbuf),
        None => {
            real!(
                pcap_create(device => *const c_char, errbuf => *mut c_char) -> *mut Pcap,
                no_library(errbuf)
            )
        }
    }
}

fn create(name: &str, errbuf: *mut c_char) -> *mut Pcap {
    slots::enter(Handle::new(name)).unwrap_or_else(|| {
        let text = format!("fyke: at most {} handles at a time", slots::MAX_HANDLES);
        slots::write_error(errbuf, &text);
        std::ptr::null_mut()
    })
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_live(
    device: *const c_char,
    snaplen: c_int,
    promiscuous: c_int,
    timeout_ms: c_int,
    errbuf: *mut c_char,
) -> *mut Pcap {
    let Some(name) = service(device) else {
        return real!(pcap_open_live(
            device => *const c_char, snaplen => c_int, promiscuous => c_int, timeout_ms => c_int,
            errbuf => *mut c_char) -> *mut Pcap, no_library(errbuf));
    };
    let pcap = create(name, errbuf);
    let Call::Ours(slot, handle) = call(pcap) else { return std::ptr::null_mut() };
    handle.set(|settings| (settings.snaplen, settings.timeout_ms) = (snaplen, timeout_ms));
    drop(handle);
    // SAFETY: a handle that was created above.
    if unsafe { pcap_activate(pcap) } >= 0 {
        return pcap;
    }
    // SAFETY: the buffer of a slot ends with NUL.
    let text = unsafe { CStr::from_ptr(slot.error()) }.to_string_lossy().into_owned();
    slots::write_error(errbuf, &text);
    // SAFETY: a handle that was created above.
    unsafe { pcap_close(pcap) };
    std::ptr::null_mut()
}

/// As in libpcap: connects to the service.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_activate(pcap: *mut Pcap) -> c_int {
    let (slot, handle) = match call(pcap) {
        Call::Ours(slot, handle) => (slot, handle),
        Call::Real => return real!(pcap_activate(pcap => *mut Pcap) -> c_int, ERROR),
        Call::Wrong => return ERROR,
    };
    ours(slot, || match handle.activate() {
        Ok(active) => {
            slot.set_waker(active.live.wakes.breaker());
            active.live.arm();
            control::begin(&active.live);
            0
        }
        Err((status, text)) => slot.fail(status, &text),
    })
}

/// As in libpcap. A handle of ours may be closed while another thread reads from it; that call then ends.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_close(pcap: *mut Pcap) {
    match call(pcap) {
        Call::Ours(slot, _) => {
            if let Some(handle) = slots::leave(slot)
                && let Some(active) = handle.active()
            {
                let _defect = ours(slot, || {
                    control::end(&active.live);
                    0
                });
            }
        }
        Call::Real => real!(pcap_close(pcap => *mut Pcap) -> (), ()),
        Call::Wrong => {}
    }
}

fn set(pcap: *mut Pcap, change: impl FnOnce(&mut Settings)) -> Option<c_int> {
    match call(pcap) {
        Call::Ours(slot, handle) => Some(match handle.set(change) {
            0 => 0,
            _ => slot.fail(ERROR_ACTIVATED, "the handle is activated already"),
        }),
        Call::Real => None,
        Call::Wrong => Some(ERROR),
    }
}

macro_rules! settings {
    ($(fn $name:ident($value:ident: c_int) { $change:expr })*) => {$(
        /// As in libpcap.
        ///
        /// # Safety
        /// As in libpcap's manual.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(pcap: *mut Pcap, $value: c_int) -> c_int {
            let change: fn(&mut Settings, c_int) = $change;
            match set(pcap, |settings| change(settings, $value)) {
                Some(status) => status,
                None => real!($name(pcap => *mut Pcap, $value => c_int) -> c_int, ERROR),
            }
        }
    )*};
}

settings! {
    fn pcap_set_snaplen(value: c_int) { |settings, value| settings.snaplen = value }
    fn pcap_set_timeout(value: c_int) { |settings, value| settings.timeout_ms = value }
    fn pcap_set_immediate_mode(value: c_int) {
        |settings, value| settings.is_immediate = value != 0
    }
    fn pcap_set_rfmon(value: c_int) { |settings, value| settings.is_monitor = value != 0 }
    fn pcap_set_promisc(value: c_int) { |_, _| {} }
    fn pcap_set_buffer_size(value: c_int) { |_, _| {} }
    fn pcap_set_protocol_linux(value: c_int) { |_, _| {} }
}

/// As in libpcap; the service has one kind of times.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_tstamp_type(pcap: *mut Pcap, kind: c_int) -> c_int {
    match set(pcap, |_| {}) {
        Some(0) if kind != 0 => WARNING_TSTAMP_TYPE_NOTSUP,
        Some(status) => status,
        None => real!(pcap_set_tstamp_type(pcap => *mut Pcap, kind => c_int) -> c_int, ERROR),
    }
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_tstamp_precision(pcap: *mut Pcap, precision: c_int) -> c_int {
    let is_known = (0..=1).contains(&precision);
    let change = |settings: &mut Settings| {
        if is_known {
            settings.is_nano = precision == 1;
        }
    };
    match set(pcap, change) {
        Some(0) if !is_known => ERROR_TSTAMP_PRECISION_NOTSUP,
        Some(status) => status,
        None => {
            real!(pcap_set_tstamp_precision(pcap => *mut Pcap, precision => c_int) -> c_int, ERROR)
        }
    }
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_tstamp_precision(pcap: *mut Pcap) -> c_int {
    match call(pcap) {
        Call::Ours(_, handle) => c_int::from(handle.settings().is_nano),
        Call::Real => real!(pcap_get_tstamp_precision(pcap => *mut Pcap) -> c_int, ERROR),
        Call::Wrong => ERROR,
    }
}

/// As in libpcap; a service has no monitor mode.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_can_set_rfmon(pcap: *mut Pcap) -> c_int {
    match call(pcap) {
        Call::Ours(..) => 0,
        Call::Real => real!(pcap_can_set_rfmon(pcap => *mut Pcap) -> c_int, ERROR),
        Call::Wrong => ERROR,
    }
}
