//! Hyperscan as a peer: many regular expressions over a block of bytes, one automaton family, vector instructions.
//!
//! It is loaded at run time (Debian: `libhyperscan5`, version 5.4). Without it [`Hyperscan::load`] returns an
//! error, which the bench notes. Nothing of it is linked.
//!
//! This file contains unsafe code: it calls C. All inputs are created here; results are freed by their owner.
#![allow(
    unsafe_code,
    reason = "calls the C library Hyperscan through pointers looked up at run time"
)]

use libc::{c_char, c_int, c_uint, c_ulonglong, c_void};
use libloading::Library;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::Arc;

/// Names under which the library is installed.
const NAMES: &[&str] = &["libhs.so.5", "libhs.so"];
const DOT_ALL: c_uint = 2;
const SINGLE_MATCH: c_uint = 8;
const MODE_BLOCK: c_uint = 1;

/// Error: Hyperscan is not installed, or refuses the expressions.
#[derive(Debug, thiserror::Error)]
pub enum HyperscanError {
    /// The library is not installed.
    #[error("Hyperscan cannot be loaded: {0}")]
    Load(#[from] libloading::Error),
    /// The library refuses the expressions.
    #[error("Hyperscan does not compile the expressions: {0}")]
    Compile(String),
}

/// Memory that C allocates; only Hyperscan knows its layout.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

#[repr(C)]
struct CompileError {
    message: *const c_char,
    expression: c_int,
}

type OnMatch = unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

/// The functions used, and the library that must stay loaded for them.
struct Calls {
    #[allow(clippy::type_complexity, reason = "a C function's type")]
    compile_multi: unsafe extern "C" fn(
        *const *const c_char,
        *const c_uint,
        *const c_uint,
        c_uint,
        c_uint,
        *const c_void,
        *mut *mut Opaque,
        *mut *mut CompileError,
    ) -> c_int,
    free_compile_error: unsafe extern "C" fn(*mut CompileError) -> c_int,
    free_database: unsafe extern "C" fn(*mut Opaque) -> c_int,
    alloc_scratch: unsafe extern "C" fn(*const Opaque, *mut *mut Opaque) -> c_int,
    free_scratch: unsafe extern "C" fn(*mut Opaque) -> c_int,
    database_size: unsafe extern "C" fn(*const Opaque, *mut usize) -> c_int,
    scan: unsafe extern "C" fn(
        *const Opaque,
        *const c_char,
        c_uint,
        c_uint,
        *mut Opaque,
        OnMatch,
        *mut c_void,
    ) -> c_int,
    /// Declared last, so that it is unloaded last.
    _library: Library,
}

/// The library.
#[derive(Clone)]
pub struct Hyperscan(Arc<Calls>);

/// Compiled expressions and their scratch memory.
pub struct Database {
    database: *mut Opaque,
    scratch: *mut Opaque,
    calls: Arc<Calls>,
}

impl Hyperscan {
    /// Loads the installed library.
    ///
    /// # Errors
    /// If there is none, or if it lacks a function.
    pub fn load() -> Result<Hyperscan, HyperscanError> {
        let mut last = None;
        for name in NAMES {
            // SAFETY: the library's initialisers only read the processor's features.
            match unsafe { Library::new(*name) } {
                Ok(library) => return Ok(Hyperscan(Arc::new(Calls::of(library)?))),
                Err(error) => last = Some(error),
            }
        }
        Err(HyperscanError::Load(last.unwrap_or(libloading::Error::DlOpenUnknown)))
    }

    /// Compiles expressions (a dot is any byte); their numbers are their indices.
    ///
    /// # Errors
    /// The library's message about one of them.
    pub fn compile(&self, expressions: &[String]) -> Result<Database, HyperscanError> {
        let failed = |message: &str| HyperscanError::Compile(message.to_owned());
        let texts: Result<Vec<CString>, _> =
            expressions.iter().map(|text| CString::new(text.as_str())).collect();
        let texts = texts.map_err(|_| failed("a NUL in an expression"))?;
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let flags = vec![DOT_ALL | SINGLE_MATCH; texts.len()];
        let numbers: Vec<c_uint> = (0..).take(texts.len()).collect();
        let mut made =
            Database { database: ptr::null_mut(), scratch: ptr::null_mut(), calls: self.0.clone() };
        let mut error: *mut CompileError = ptr::null_mut();
        // SAFETY: the three arrays have the number of elements passed, and live until the call returns; the results
        // are owned by `made`, or freed below.
        let status = unsafe {
            (self.0.compile_multi)(
                pointers.as_ptr(),
                flags.as_ptr(),
                numbers.as_ptr(),
                numbers.len() as c_uint,
                MODE_BLOCK,
                ptr::null(),
                &raw mut made.database,
                &raw mut error,
            )
        };
        if status != 0 {
            if error.is_null() {
                return Err(failed("it does not say why"));
            }
            // SAFETY: on failure the library returns an error with a zero-terminated message, and it is freed once.
            let message = unsafe {
                let message = CStr::from_ptr((*error).message).to_string_lossy().into_owned();
                (self.0.free_compile_error)(error);
                message
            };
            return Err(HyperscanError::Compile(message));
        }
        // SAFETY: the database is valid; the scratch pointer is null, as the first call requires.
        let status = unsafe { (self.0.alloc_scratch)(made.database, &raw mut made.scratch) };
        if status == 0 { Ok(made) } else { Err(failed("no room to run them")) }
    }
}

impl std::fmt::Debug for Hyperscan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hyperscan")
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Database {
    /// Returns the lowest number of the expressions that match anywhere in `bytes`.
    pub fn first(&mut self, bytes: &[u8]) -> Option<u32> {
        let mut lowest = u32::MAX;
        let length = c_uint::try_from(bytes.len()).ok()?;
        // SAFETY: database and scratch belong together and are used only here; `bytes` has `length` bytes; `note`
        // gets the address of `lowest`, which outlives the call. A stop by the callback is not an error.
        unsafe {
            (self.calls.scan)(
                self.database,
                bytes.as_ptr().cast(),
                length,
                0,
                self.scratch,
                note,
                (&raw mut lowest).cast(),
            );
        }
        (lowest != u32::MAX).then_some(lowest)
    }

    /// Adds the numbers of all expressions that match in `bytes`, each once.
    pub fn all(&mut self, bytes: &[u8], found: &mut Vec<u32>) {
        let Ok(length) = c_uint::try_from(bytes.len()) else { return };
        // SAFETY: as in `first`; `collect` gets the address of `found`, which outlives the call.
        unsafe {
            (self.calls.scan)(
                self.database,
                bytes.as_ptr().cast(),
                length,
                0,
                self.scratch,
                collect,
                ptr::from_mut(found).cast(),
            );
        }
    }

    /// Memory of the compiled expressions.
    pub fn bytes(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is valid for the lifetime of `self`.
        unsafe { (self.calls.database_size)(self.database, &raw mut size) };
        size
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: both came from the library, null is allowed, and they are freed only here.
        unsafe {
            (self.calls.free_scratch)(self.scratch);
            (self.calls.free_database)(self.database);
        }
    }
}

/// Records the lowest number and stops at 0, since nothing is lower.
unsafe extern "C" fn note(
    number: c_uint,
    _from: c_ulonglong,
    _to: c_ulonglong,
    _flags: c_uint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the context is the address of a number that outlives the scan, and nothing else accesses it
    // meanwhile.
    let lowest = unsafe { &mut *context.cast::<u32>() };
    *lowest = number.min(*lowest);
    c_int::from(*lowest == 0)
}

/// Adds the number of an expression; each matches once in a scan.
unsafe extern "C" fn collect(
    number: c_uint,
    _from: c_ulonglong,
    _to: c_ulonglong,
    _flags: c_uint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the context is the address of a vector that outlives the scan, and nothing else accesses it meanwhile.
    unsafe { (*context.cast::<Vec<u32>>()).push(number) };
    0
}

impl Calls {
    fn of(library: Library) -> Result<Calls, HyperscanError> {
        // SAFETY: names and types are those of Hyperscan 5's public header; the pointers live as long as the
        // library, which is stored with them.
        unsafe {
            Ok(Calls {
                compile_multi: *library.get(b"hs_compile_multi\0")?,
                free_compile_error: *library.get(b"hs_free_compile_error\0")?,
                free_database: *library.get(b"hs_free_database\0")?,
                alloc_scratch: *library.get(b"hs_alloc_scratch\0")?,
                free_scratch: *library.get(b"hs_free_scratch\0")?,
                database_size: *library.get(b"hs_database_size\0")?,
                scan: *library.get(b"hs_scan\0")?,
                _library: library,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_is_found() {
        let library = match Hyperscan::load() {
            Ok(library) => library,
            Err(error) => return println!("skipped: {error}"),
        };
        let texts = ["abc", "b.*z", "[0-9]{3}"].map(str::to_owned);
        let mut database = library.compile(&texts).unwrap();
        assert!(database.bytes() > 0);
        for (bytes, expected) in
            [(&b"xx123bz"[..], Some(1)), (b"12", None), (b"abc123", Some(0)), (b"", None)]
        {
            assert_eq!(database.first(bytes), expected);
        }
        let error = library.compile(&["(".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("does not compile"), "{error}");
    }
}
