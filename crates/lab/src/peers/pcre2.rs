//! PCRE2 as a peer: one expression, compiled to machine code, with all that Perl's expressions have.
//!
//! It is loaded at run time (Debian: `libpcre2-8-0`). Without it [`Pcre2::load`] returns an error, which the bench
//! notes. Nothing of it is linked.
//!
//! This file contains unsafe code: it calls C. All inputs are created here; results are freed by their owner.
#![allow(unsafe_code, reason = "calls the C library PCRE2 through pointers looked up at run time")]

use libc::{c_int, c_void};
use libloading::Library;
use std::ptr;
use std::sync::Arc;

const NAMES: &[&str] = &["libpcre2-8.so.0", "libpcre2-8.so"];
const JIT_COMPLETE: u32 = 1;

/// `i`, `s`, `m` and `x` after an expression.
pub const FLAGS: [(u8, u32); 4] = [(b'i', 0x8), (b's', 0x20), (b'm', 0x400), (b'x', 0x80)];

/// Memory that C allocates; only PCRE2 knows its layout.
type Opaque = *mut c_void;

struct Calls {
    compile: unsafe extern "C" fn(*const u8, usize, u32, *mut c_int, *mut usize, Opaque) -> Opaque,
    jit_compile: unsafe extern "C" fn(Opaque, u32) -> c_int,
    match_data: unsafe extern "C" fn(Opaque, Opaque) -> Opaque,
    run: unsafe extern "C" fn(Opaque, *const u8, usize, usize, u32, Opaque, Opaque) -> c_int,
    free_code: unsafe extern "C" fn(Opaque),
    free_match_data: unsafe extern "C" fn(Opaque),
    /// Declared last, so that it is unloaded last.
    _library: Library,
}

/// The library.
#[derive(Clone)]
pub struct Pcre2(Arc<Calls>);

/// A compiled expression and the memory for its matches.
pub struct Expression {
    code: Opaque,
    data: Opaque,
    calls: Arc<Calls>,
}

impl Pcre2 {
    /// Loads the installed library.
    ///
    /// # Errors
    /// If there is none, or if it lacks a function.
    pub fn load() -> Result<Pcre2, libloading::Error> {
        let mut last = None;
        for name in NAMES {
            // SAFETY: the library has no initialisers with effects.
            match unsafe { Library::new(*name) } {
                Ok(library) => return Ok(Pcre2(Arc::new(Calls::of(library)?))),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(libloading::Error::DlOpenUnknown))
    }

    /// Compiles an expression with flags of [`FLAGS`]; none if PCRE2 refuses it.
    pub fn compile(&self, text: &[u8], flags: u32) -> Option<Expression> {
        let (mut error, mut at) = (0, 0);
        // SAFETY: the text has the length passed; the code is owned by the result, and freed there.
        let code = unsafe {
            let null = ptr::null_mut();
            (self.0.compile)(text.as_ptr(), text.len(), flags, &raw mut error, &raw mut at, null)
        };
        if code.is_null() {
            return None;
        }
        // SAFETY: the code is valid; without machine code it is interpreted.
        let data = unsafe {
            (self.0.jit_compile)(code, JIT_COMPLETE);
            (self.0.match_data)(code, ptr::null_mut())
        };
        let made = Expression { code, data, calls: Arc::clone(&self.0) };
        (!data.is_null()).then_some(made)
    }
}

impl std::fmt::Debug for Pcre2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pcre2")
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Expression")
    }
}

impl Expression {
    /// True if the expression matches anywhere in `bytes`; at a limit of PCRE2 it does not.
    pub fn is_in(&mut self, bytes: &[u8]) -> bool {
        // SAFETY: code and match data belong together; `bytes` has the length passed.
        let status = unsafe {
            let (start, options) = (0, 0);
            let null = ptr::null_mut();
            (self.calls.run)(
                self.code,
                bytes.as_ptr(),
                bytes.len(),
                start,
                options,
                self.data,
                null,
            )
        };
        status >= 0
    }
}

impl Drop for Expression {
    fn drop(&mut self) {
        // SAFETY: both came from the library, null is allowed, and they are freed only here.
        unsafe {
            (self.calls.free_match_data)(self.data);
            (self.calls.free_code)(self.code);
        }
    }
}

impl Calls {
    fn of(library: Library) -> Result<Calls, libloading::Error> {
        // SAFETY: names and types are those of PCRE2's public header; the pointers live as long as the library, which
        // is stored with them.
        unsafe {
            Ok(Calls {
                compile: *library.get(b"pcre2_compile_8\0")?,
                jit_compile: *library.get(b"pcre2_jit_compile_8\0")?,
                match_data: *library.get(b"pcre2_match_data_create_from_pattern_8\0")?,
                run: *library.get(b"pcre2_match_8\0")?,
                free_code: *library.get(b"pcre2_code_free_8\0")?,
                free_match_data: *library.get(b"pcre2_match_data_free_8\0")?,
                _library: library,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_bytes() {
        let library = match Pcre2::load() {
            Ok(library) => library,
            Err(error) => return println!("skipped: {error}"),
        };
        let mut expression = library.compile(br"a(b|c)\1\x00", FLAGS[0].1).unwrap();
        assert!(expression.is_in(b"xABb\0") && !expression.is_in(b"abc\0"));
        assert!(library.compile(b"(", 0).is_none());
    }
}
