//! Live capture by libpcap: opened on a device, its filter changed by its own `pcap_setfilter`.
//!
//! On Linux that call first attaches a filter that rejects everything, drains the socket, then attaches the new
//! filter, so that no frame of the old filter comes after it. Frames that arrive in between are lost, and no
//! counter includes them.
//!
//! This file contains unsafe code: it calls C. The handle belongs to one thread, as libpcap requires.
#![allow(
    unsafe_code,
    reason = "calls the C library libpcap through pointers looked up at run time"
)]

use super::libpcap::{NAMES, text};
use libc::{c_char, c_int, c_uchar, c_uint};
use libloading::Library;
use std::ffi::CString;
use std::ptr;

const ERROR_LEN: usize = 256;

#[repr(C)]
struct Program {
    length: c_uint,
    instructions: *mut u8,
}

#[repr(C)]
struct Header {
    time: libc::timeval,
    captured_len: c_uint,
    wire_len: c_uint,
}

#[repr(C)]
#[derive(Default)]
struct Statistics {
    received: c_uint,
    dropped: c_uint,
    dropped_by_device: c_uint,
}

#[repr(C)]
struct RawHandle {
    _private: [u8; 0],
}

type Handle = *mut RawHandle;

struct Calls {
    create: unsafe extern "C" fn(*const c_char, *mut c_char) -> Handle,
    set_snaplen: unsafe extern "C" fn(Handle, c_int) -> c_int,
    set_timeout: unsafe extern "C" fn(Handle, c_int) -> c_int,
    set_buffer_size: unsafe extern "C" fn(Handle, c_int) -> c_int,
    activate: unsafe extern "C" fn(Handle) -> c_int,
    setnonblock: unsafe extern "C" fn(Handle, c_int, *mut c_char) -> c_int,
    compile: unsafe extern "C" fn(Handle, *mut Program, *const c_char, c_int, c_uint) -> c_int,
    setfilter: unsafe extern "C" fn(Handle, *mut Program) -> c_int,
    freecode: unsafe extern "C" fn(*mut Program),
    next_ex: unsafe extern "C" fn(Handle, *mut *const Header, *mut *const c_uchar) -> c_int,
    stats: unsafe extern "C" fn(Handle, *mut Statistics) -> c_int,
    geterr: unsafe extern "C" fn(Handle) -> *const c_char,
    close: unsafe extern "C" fn(Handle),
    _library: Library,
}

/// A capture by libpcap.
pub struct LiveCapture {
    handle: Handle,
    calls: Calls,
}

impl LiveCapture {
    /// Opens a device in the calling thread's namespace, with frames delivered within a millisecond.
    ///
    /// # Errors
    /// If there is no libpcap; otherwise libpcap's message.
    pub fn open(device: &str, buffer_bytes: i32) -> Result<LiveCapture, String> {
        let calls = Calls::look_up()?;
        let device = CString::new(device).map_err(|error| error.to_string())?;
        let mut message = [0 as c_char; ERROR_LEN];
        // SAFETY: the name ends in zero, the buffer has the size libpcap requires.
        let handle = unsafe { (calls.create)(device.as_ptr(), message.as_mut_ptr()) };
        if handle.is_null() {
            // SAFETY: libpcap wrote a string that ends in zero.
            return Err(unsafe { text(message.as_ptr()) });
        }
        let capture = LiveCapture { handle, calls };
        // SAFETY: the handle is open and not yet activated.
        let status = unsafe {
            (capture.calls.set_snaplen)(handle, 256);
            (capture.calls.set_timeout)(handle, 1);
            (capture.calls.set_buffer_size)(handle, buffer_bytes);
            (capture.calls.activate)(handle)
        };
        if status < 0 {
            return Err(capture.error());
        }
        // SAFETY: the handle is open, the buffer has the size libpcap requires.
        if unsafe { (capture.calls.setnonblock)(handle, 1, message.as_mut_ptr()) } != 0 {
            return Err(capture.error());
        }
        Ok(capture)
    }

    /// Compiles a text and replaces the filter.
    ///
    /// # Errors
    /// libpcap's message.
    pub fn set_filter(&mut self, filter: &str) -> Result<(), String> {
        let filter = CString::new(filter).map_err(|error| error.to_string())?;
        let mut program = Program { length: 0, instructions: ptr::null_mut() };
        // SAFETY: the handle is open, the program is writable, the text ends in zero.
        let compiled = unsafe {
            (self.calls.compile)(self.handle, &mut program, filter.as_ptr(), 1, c_uint::MAX)
        };
        if compiled != 0 {
            return Err(self.error());
        }
        // SAFETY: the handle is open; the program is libpcap's and freed once.
        let status = unsafe {
            let status = (self.calls.setfilter)(self.handle, &mut program);
            (self.calls.freecode)(&mut program);
            status
        };
        if status == 0 { Ok(()) } else { Err(self.error()) }
    }

    /// Passes the next frame to `show`; returns false if there is none now.
    ///
    /// # Errors
    /// libpcap's message.
    pub fn next(&mut self, show: impl FnOnce(&[u8])) -> Result<bool, String> {
        let (mut header, mut data) = (ptr::null(), ptr::null());
        // SAFETY: the handle is open, both pointers are writable.
        match unsafe { (self.calls.next_ex)(self.handle, &mut header, &mut data) } {
            1 => {
                // SAFETY: if the result is 1, both point to valid memory until the next call; the header has the
                // number of bytes.
                let bytes =
                    unsafe { std::slice::from_raw_parts(data, (*header).captured_len as usize) };
                show(bytes);
                Ok(true)
            }
            0 => Ok(false),
            _ => Err(self.error()),
        }
    }

    /// Number of frames that passed the filter but did not fit into the ring.
    pub fn dropped(&mut self) -> u64 {
        let mut statistics = Statistics::default();
        // SAFETY: the handle is open, the structure is writable.
        unsafe { (self.calls.stats)(self.handle, &mut statistics) };
        statistics.dropped.into()
    }

    fn error(&self) -> String {
        // SAFETY: the handle is open, and its message lives as long.
        unsafe { text((self.calls.geterr)(self.handle)) }
    }
}

impl Drop for LiveCapture {
    fn drop(&mut self) {
        // SAFETY: the handle came from libpcap, is not null, and is closed only here.
        unsafe { (self.calls.close)(self.handle) }
    }
}

impl Calls {
    fn look_up() -> Result<Calls, String> {
        let mut failure = "there is no libpcap".to_owned();
        for name in NAMES {
            // SAFETY: loading runs the library's initialisers; libpcap's have no requirements.
            match unsafe { Library::new(name) } {
                Ok(library) => {
                    return Calls::of(library).map_err(|error| error.to_string());
                }
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    fn of(library: Library) -> Result<Calls, libloading::Error> {
        // SAFETY: the types are those of libpcap's public header, unchanged since version 1.0.
        unsafe {
            Ok(Calls {
                create: *library.get(b"pcap_create\0")?,
                set_snaplen: *library.get(b"pcap_set_snaplen\0")?,
                set_timeout: *library.get(b"pcap_set_timeout\0")?,
                set_buffer_size: *library.get(b"pcap_set_buffer_size\0")?,
                activate: *library.get(b"pcap_activate\0")?,
                setnonblock: *library.get(b"pcap_setnonblock\0")?,
                compile: *library.get(b"pcap_compile\0")?,
                setfilter: *library.get(b"pcap_setfilter\0")?,
                freecode: *library.get(b"pcap_freecode\0")?,
                next_ex: *library.get(b"pcap_next_ex\0")?,
                stats: *library.get(b"pcap_stats\0")?,
                geterr: *library.get(b"pcap_geterr\0")?,
                close: *library.get(b"pcap_close\0")?,
                _library: library,
            })
        }
    }
}
