//! libpcap as peer and oracle: compiles filter texts, runs the programs, reads capture files.
//!
//! It is loaded at run time; without it [`Libpcap::load`] returns an error and the caller skips the parts that need
//! it. A text is compiled for a *capture file* (libpcap compiles some texts differently for live captures): each
//! compilation opens an empty file of the link type from memory. Compilations are serialised, as older versions
//! require.
//!
//! This file contains unsafe code: it calls C. All inputs are checked or created here, all results are copied
//! before their owner is closed.
#![allow(
    unsafe_code,
    reason = "calls the C library libpcap through pointers looked up at run time"
)]

use fyke_frame::bpf::Instruction;
use fyke_frame::{Frame, LinkType};
use libc::{FILE, c_char, c_int, c_uchar, c_uint};
use libloading::Library;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// Names under which the library is installed.
pub(super) const NAMES: &[&str] = &["libpcap.so.0.8", "libpcap.so.1", "libpcap.so"];
/// Size of libpcap's error buffers.
const ERROR_LEN: usize = 256;
/// libpcap's value for an unknown netmask.
const NETMASK_UNKNOWN: u32 = u32::MAX;
/// Maximum number of frames that [`Libpcap::frames`] reads from one file.
const MAX_FRAMES: usize = 1 << 20;

/// Error: libpcap is not installed, or lacks a function.
#[derive(Debug, thiserror::Error)]
#[error("libpcap cannot be loaded: {0}")]
pub struct LoadError(#[from] libloading::Error);

/// Options of a compilation.
#[derive(Debug, Clone, Copy)]
pub struct Compile {
    /// Link type of the file.
    pub link: LinkType,
    /// Snapshot length of the file.
    pub snaplen: u32,
    /// Netmask, if known.
    pub netmask: Option<u32>,
    /// Runs libpcap's optimiser.
    pub optimize: bool,
    /// The file comes from a machine of the other byte order.
    pub swapped: bool,
}

/// Target of a compilation other than a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live<'a> {
    /// A capture on this interface; libpcap opens the interface, which needs the privilege to do so.
    Interface(&'a str),
    /// Any live capture of the link type, without the kernel's handling of VLAN tags.
    Any,
}

/// The library.
#[derive(Debug, Clone)]
pub struct Libpcap {
    calls: Arc<Calls>,
}

/// A compiled text.
#[derive(Debug, Clone)]
pub struct Program {
    instructions: Vec<Instruction>,
    calls: Arc<Calls>,
}

/// A frame read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedFrame {
    /// The captured bytes.
    pub data: Vec<u8>,
    /// Length on the wire.
    pub wire_len: u32,
    /// The file's link type.
    pub link: LinkType,
}

#[repr(C)]
struct RawProgram {
    length: c_uint,
    instructions: *mut Instruction,
}

#[repr(C)]
struct RawHeader {
    time: libc::timeval,
    captured_len: c_uint,
    wire_len: c_uint,
}

/// A capture handle; only libpcap knows its layout.
#[repr(C)]
struct RawHandle {
    _private: [u8; 0],
}

type Handle = *mut RawHandle;

/// The functions used, and the library that must stay loaded for them.
#[derive(Debug)]
struct Calls {
    fopen_offline: unsafe extern "C" fn(*mut FILE, *mut c_char) -> Handle,
    open_offline: unsafe extern "C" fn(*const c_char, *mut c_char) -> Handle,
    compile: unsafe extern "C" fn(Handle, *mut RawProgram, *const c_char, c_int, c_uint) -> c_int,
    freecode: unsafe extern "C" fn(*mut RawProgram),
    geterr: unsafe extern "C" fn(Handle) -> *const c_char,
    close: unsafe extern "C" fn(Handle),
    create: unsafe extern "C" fn(*const c_char, *mut c_char) -> Handle,
    activate: unsafe extern "C" fn(Handle) -> c_int,
    open_dead: unsafe extern "C" fn(c_int, c_int) -> Handle,
    link_number: unsafe extern "C" fn(*const c_char) -> c_int,
    next_ex: unsafe extern "C" fn(Handle, *mut *const RawHeader, *mut *const c_uchar) -> c_int,
    datalink: unsafe extern "C" fn(Handle) -> c_int,
    lib_version: unsafe extern "C" fn() -> *const c_char,
    validate: unsafe extern "C" fn(*const Instruction, c_int) -> c_int,
    filter: unsafe extern "C" fn(*const Instruction, *const c_uchar, c_uint, c_uint) -> c_uint,
    turn: Mutex<()>,
    /// Declared last, so that it is unloaded last.
    _library: Library,
}

/// An open handle, closed when dropped.
struct Open<'c> {
    handle: Handle,
    calls: &'c Calls,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from libpcap, is not null, and is closed only here.
        unsafe { (self.calls.close)(self.handle) }
    }
}

impl Libpcap {
    /// Loads the installed library.
    ///
    /// # Errors
    /// [`LoadError`] if there is none, or if it lacks a function.
    pub fn load() -> Result<Libpcap, LoadError> {
        let mut failure = None;
        for name in NAMES {
            // SAFETY: loading runs the library's initialisers; libpcap's have no requirements.
            match unsafe { Library::new(name) } {
                Ok(library) => return Ok(Libpcap { calls: Arc::new(Calls::look_up(library)?) }),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(libloading::Error::DlOpenUnknown).into())
    }

    /// Returns the library's version text, such as "libpcap version 1.10.3 (with TPACKET_V3)".
    pub fn version(&self) -> String {
        // SAFETY: the function has no arguments and returns a string that is never freed.
        unsafe { text((self.calls.lib_version)()) }
    }

    /// Compiles a text for a capture file of this link type.
    ///
    /// # Errors
    /// libpcap's own message.
    pub fn compile(
        &self,
        link: LinkType,
        snaplen: u32,
        filter: &str,
        optimize: bool,
    ) -> Result<Program, String> {
        let how = Compile { link, snaplen, netmask: None, optimize, swapped: false };
        self.compile_with(&how, filter)
    }

    /// Compiles a text with all options.
    ///
    /// # Errors
    /// libpcap's own message.
    pub fn compile_with(&self, how: &Compile, filter: &str) -> Result<Program, String> {
        let filter = CString::new(filter).map_err(|_| "the text has a zero byte".to_string())?;
        let calls = &*self.calls;
        let _turn = calls.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = file_header(how);
        let open = calls.open_memory(&mut file)?;
        self.compile_on(&open, how, &filter)
    }

    /// Opens a handle for many texts of a live capture.
    ///
    /// # Errors
    /// libpcap's own message.
    pub fn live(&self, how: &Compile, live: Live) -> Result<LiveHandle<'_>, String> {
        let calls = &*self.calls;
        let open = match live {
            Live::Interface(name) => calls.open_interface(name)?,
            Live::Any => calls.open_dead(how)?,
        };
        Ok(LiveHandle { libpcap: self, open, how: *how })
    }

    fn compile_on(&self, open: &Open, how: &Compile, filter: &CStr) -> Result<Program, String> {
        let calls = &*self.calls;
        let mut raw = RawProgram { length: 0, instructions: ptr::null_mut() };
        let netmask = how.netmask.unwrap_or(NETMASK_UNKNOWN);
        // SAFETY: the handle is open, `raw` is writable, the text ends in zero.
        let status = unsafe {
            (calls.compile)(open.handle, &mut raw, filter.as_ptr(), how.optimize.into(), netmask)
        };
        if status != 0 {
            // SAFETY: the handle is open, and its message lives as long.
            return Err(unsafe { text((calls.geterr)(open.handle)) });
        }
        let instructions = if raw.instructions.is_null() {
            Vec::new()
        } else {
            // SAFETY: libpcap stored a pointer to that many instructions, with the layout of `Instruction`.
            unsafe { std::slice::from_raw_parts(raw.instructions, raw.length as usize) }.to_vec()
        };
        // SAFETY: the program was created by `compile` and is freed once, after it was copied.
        unsafe { (calls.freecode)(&mut raw) };
        Ok(Program { instructions, calls: Arc::clone(&self.calls) })
    }

    /// Returns a program created elsewhere, if libpcap's checker accepts it.
    pub fn program(&self, instructions: Vec<Instruction>) -> Option<Program> {
        let length = c_int::try_from(instructions.len()).ok()?;
        // SAFETY: the pointer is to that many instructions, which are only read.
        let right = unsafe { (self.calls.validate)(instructions.as_ptr(), length) };
        (right != 0).then(|| Program { instructions, calls: Arc::clone(&self.calls) })
    }

    /// Reads the frames of a capture file, up to `limit` of them.
    ///
    /// # Errors
    /// libpcap's own message, if the file cannot be opened. A truncated file returns the frames before the end.
    pub fn frames(&self, path: &Path, limit: usize) -> Result<Vec<OwnedFrame>, String> {
        let calls = &*self.calls;
        let path = path.to_str().and_then(|path| CString::new(path).ok());
        let path =
            path.ok_or_else(|| "the path is not valid UTF-8 or has a zero byte".to_string())?;
        let mut message = [0 as c_char; ERROR_LEN];
        // SAFETY: the path ends in zero, the buffer has the size libpcap requires.
        let handle = unsafe { (calls.open_offline)(path.as_ptr(), message.as_mut_ptr()) };
        if handle.is_null() {
            // SAFETY: libpcap wrote a string that ends in zero.
            return Err(unsafe { text(message.as_ptr()) });
        }
        let open = Open { handle, calls };
        // SAFETY: the handle is open.
        let link = unsafe { (calls.datalink)(open.handle) };
        let link = LinkType(u16::try_from(link).map_err(|_| format!("link type {link}"))?);
        let mut frames = Vec::new();
        while frames.len() < limit.min(MAX_FRAMES) {
            let (mut header, mut data) = (ptr::null(), ptr::null());
            // SAFETY: the handle is open, both pointers are writable.
            if unsafe { (calls.next_ex)(open.handle, &mut header, &mut data) } != 1 {
                break;
            }
            // SAFETY: if the result is 1, both point to valid memory until the next call; the header has the number
            // of bytes.
            let (data, wire_len) = unsafe {
                let captured = (*header).captured_len as usize;
                let bytes = if captured == 0 {
                    Vec::new()
                } else {
                    std::slice::from_raw_parts(data, captured).to_vec()
                };
                (bytes, (*header).wire_len)
            };
            frames.push(OwnedFrame { data, wire_len, link });
        }
        Ok(frames)
    }
}

/// An open handle of a live capture.
pub struct LiveHandle<'l> {
    libpcap: &'l Libpcap,
    open: Open<'l>,
    how: Compile,
}

impl LiveHandle<'_> {
    /// Compiles a text.
    ///
    /// # Errors
    /// libpcap's own message.
    pub fn compile(&self, filter: &str, optimize: bool) -> Result<Program, String> {
        let filter = CString::new(filter).map_err(|_| "the text has a zero byte".to_string())?;
        let turn = &self.libpcap.calls.turn;
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.libpcap.compile_on(&self.open, &Compile { optimize, ..self.how }, &filter)
    }
}

impl OwnedFrame {
    /// Returns the frame as the type used by the other crates.
    pub fn frame(&self) -> Frame<'_> {
        let mut frame = Frame::new(self.link, &self.data);
        frame.wire_len = self.wire_len;
        frame
    }
}

impl Program {
    /// The instructions.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Returns true if libpcap's interpreter accepts a frame.
    pub fn matches(&self, data: &[u8], wire_len: u32) -> bool {
        if self.instructions.is_empty() {
            return true;
        }
        let captured = c_uint::try_from(data.len()).unwrap_or(c_uint::MAX);
        // SAFETY: the instructions were compiled or checked by libpcap, for its own interpreter, which checks every
        // load against `captured`, and there are that many bytes.
        let verdict = unsafe {
            (self.calls.filter)(self.instructions.as_ptr(), data.as_ptr(), wire_len, captured)
        };
        verdict != 0
    }
}

impl Calls {
    fn look_up(library: Library) -> Result<Calls, libloading::Error> {
        // SAFETY: the types are those of libpcap's public header, unchanged since version 0.8.
        unsafe {
            Ok(Calls {
                fopen_offline: *library.get(b"pcap_fopen_offline\0")?,
                open_offline: *library.get(b"pcap_open_offline\0")?,
                compile: *library.get(b"pcap_compile\0")?,
                freecode: *library.get(b"pcap_freecode\0")?,
                geterr: *library.get(b"pcap_geterr\0")?,
                close: *library.get(b"pcap_close\0")?,
                create: *library.get(b"pcap_create\0")?,
                activate: *library.get(b"pcap_activate\0")?,
                open_dead: *library.get(b"pcap_open_dead\0")?,
                link_number: *library.get(b"pcap_datalink_name_to_val\0")?,
                next_ex: *library.get(b"pcap_next_ex\0")?,
                datalink: *library.get(b"pcap_datalink\0")?,
                lib_version: *library.get(b"pcap_lib_version\0")?,
                validate: *library.get(b"bpf_validate\0")?,
                filter: *library.get(b"bpf_filter\0")?,
                turn: Mutex::new(()),
                _library: library,
            })
        }
    }

    /// Opens a file in memory, which must live as long as the handle.
    fn open_memory<'c>(&'c self, file: &'c mut [u8]) -> Result<Open<'c>, String> {
        // SAFETY: the memory outlives the stream, which is closed with the handle; mode "r" never writes.
        let stream = unsafe { libc::fmemopen(file.as_mut_ptr().cast(), file.len(), c"r".as_ptr()) };
        if stream.is_null() {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let mut message = [0 as c_char; ERROR_LEN];
        // SAFETY: the stream is open, the buffer has the size libpcap requires.
        let handle = unsafe { (self.fopen_offline)(stream, message.as_mut_ptr()) };
        if handle.is_null() {
            // SAFETY: libpcap does not close the stream if it fails; its message ends in zero.
            return Err(unsafe {
                libc::fclose(stream);
                text(message.as_ptr())
            });
        }
        Ok(Open { handle, calls: self })
    }
}

impl Calls {
    fn open_interface(&self, name: &str) -> Result<Open<'_>, String> {
        let name = CString::new(name).map_err(|_| "the name has a zero byte".to_string())?;
        let mut message = [0 as c_char; ERROR_LEN];
        // SAFETY: the name ends in zero, the buffer has the size libpcap requires.
        let handle = unsafe { (self.create)(name.as_ptr(), message.as_mut_ptr()) };
        if handle.is_null() {
            // SAFETY: libpcap wrote a string that ends in zero.
            return Err(unsafe { text(message.as_ptr()) });
        }
        let open = Open { handle, calls: self };
        // SAFETY: the handle was created and not activated before.
        match unsafe { (self.activate)(open.handle) } {
            0.. => Ok(open),
            // SAFETY: the handle is open, and its message lives as long.
            _ => Err(unsafe { text((self.geterr)(open.handle)) }),
        }
    }

    fn open_dead(&self, how: &Compile) -> Result<Open<'_>, String> {
        let name = CString::new(how.link.to_string()).map_err(|error| error.to_string())?;
        let snaplen = c_int::try_from(how.snaplen).unwrap_or(c_int::MAX);
        // SAFETY: the name ends in zero; the other call takes only numbers.
        let handle = unsafe { (self.open_dead)((self.link_number)(name.as_ptr()), snaplen) };
        match handle.is_null() {
            true => Err("no handle".to_string()),
            false => Ok(Open { handle, calls: self }),
        }
    }
}

/// Creates the header of an empty capture file.
fn file_header(how: &Compile) -> Vec<u8> {
    let words: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, how.snaplen, u32::from(how.link.0)];
    let mut bytes = Vec::with_capacity(24);
    for (index, word) in words.into_iter().enumerate() {
        match (how.swapped, index) {
            (false, _) => bytes.extend(word.to_ne_bytes()),
            // The version: two half words.
            (true, 1) => bytes.extend(word.rotate_left(16).swap_bytes().to_ne_bytes()),
            (true, _) => bytes.extend(word.swap_bytes().to_ne_bytes()),
        }
    }
    bytes
}

/// Copies a string.
///
/// # Safety
/// `pointer` is null or points to a string that ends in zero.
pub(super) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiles_runs_and_refuses() {
        let libpcap = match Libpcap::load() {
            Ok(libpcap) => libpcap,
            Err(error) => return println!("skipped: {error}"),
        };
        let program = libpcap.compile(LinkType::EN10MB, 262_144, "ip", true).unwrap();
        assert_eq!(program.instructions().len(), 4);
        let mut data = [0; 14];
        assert!(!program.matches(&data, 14));
        data[12] = 8;
        assert!(program.matches(&data, 14));
        assert!(!program.matches(&data[..13], 14));
        let refused = libpcap.compile(LinkType::EN10MB, 262_144, "inbound", true);
        assert!(refused.unwrap_err().contains("savefiles"));
    }

    #[test]
    fn the_byte_order_of_the_file_reaches_the_compiler() {
        let Ok(libpcap) = Libpcap::load() else { return println!("skipped: no libpcap") };
        let compile = |swapped| {
            let how = Compile {
                link: LinkType::NULL,
                snaplen: 65_535,
                netmask: None,
                optimize: true,
                swapped,
            };
            libpcap.compile_with(&how, "ip").unwrap().instructions()[1].k
        };
        assert_eq!((compile(false), compile(true)), (2_u32.to_be(), 2_u32.swap_bytes().to_be()));
    }
}
