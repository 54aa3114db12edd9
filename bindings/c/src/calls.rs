//! The C interface. Every function checks its pointers for NULL and hands over to safe
//! code.

use crate::filter::{FykeCounts, FykeFilter, FykeOp, c_text, operation};
use fyke_kernel::KernelPassId;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::BorrowedFd;

thread_local! {
    /// Why the last `fyke_open` of this thread failed.
    static OPENING: RefCell<CString> = RefCell::default();
}

fn handle<'a>(filter: *mut FykeFilter) -> Option<&'a mut FykeFilter> {
    // SAFETY: NULL or what `fyke_open` returned and `fyke_close` was not called for; one thread at
    // a time, as documented.
    unsafe { filter.as_mut() }
}

fn borrow<'a>(socket: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not −1, and only used during the call; a number that is no descriptor makes the system call fail.
    (socket >= 0).then(|| unsafe { BorrowedFd::borrow_raw(socket) })
}

fn string<'a>(text: *const c_char) -> Result<&'a str, String> {
    if text.is_null() {
        return Err("the text is NULL".into());
    }
    // SAFETY: not NULL, and NUL-terminated as documented.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| format!("the text is not UTF-8: {error}"))
}

/// 0, or −1 with the error kept.
fn done<E: std::fmt::Display>(
    filter: *mut FykeFilter,
    change: impl FnOnce(&mut FykeFilter) -> Result<(), E>,
) -> c_int {
    let Some(filter) = handle(filter) else { return -1 };
    let result = change(filter);
    filter.keep(result).map_or(-1, |()| 0)
}

fn pass(number: c_int) -> KernelPassId {
    KernelPassId(u32::try_from(number).unwrap_or(0))
}

/// A number for C, or −1 with the error kept.
fn number<E: std::fmt::Display>(
    filter: *mut FykeFilter,
    make: impl FnOnce(&mut FykeFilter) -> Result<u32, E>,
) -> c_int {
    let Some(filter) = handle(filter) else { return -1 };
    let result = make(filter);
    filter.keep(result).and_then(|number| c_int::try_from(number).ok()).unwrap_or(-1)
}

/// Creates an empty filter, which accepts every frame, and attaches it to a packet socket
/// unless `socket` is −1. NULL when that fails; `fyke_error(NULL)` says why.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_open(socket: c_int) -> *mut FykeFilter {
    match FykeFilter::open(borrow(socket)) {
        Ok(filter) => Box::into_raw(Box::new(filter)),
        Err(error) => {
            OPENING.with(|text| *text.borrow_mut() = c_text(error));
            std::ptr::null_mut()
        }
    }
}

/// Attaches the filter to a packet socket, in the place of the filter that it has. Any
/// number of sockets may share one.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_attach(filter: *mut FykeFilter, socket: c_int) -> c_int {
    let Some(descriptor) = borrow(socket) else { return -1 };
    done(filter, |filter| filter.space().attach(descriptor))
}

/// Frees the handle. Sockets keep the filter as it is until they are closed.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_close(filter: *mut FykeFilter) {
    if !filter.is_null() {
        // SAFETY: `fyke_open` made it from a box, and the caller gives it up.
        drop(unsafe { Box::from_raw(filter) });
    }
}

/// A new pass without instructions, which accepts every frame until it gets some. Its
/// number, from 1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_new_pass(filter: *mut FykeFilter) -> c_int {
    number(filter, |filter| filter.space().passes().add(&[]).map(|id| id.0))
}

/// Deletes a pass.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_del_pass(filter: *mut FykeFilter, id: c_int) -> c_int {
    done(filter, |filter| filter.space().passes().remove(pass(id)))
}

/// A copy of a pass; the number of the copy.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_dup_pass(filter: *mut FykeFilter, id: c_int) -> c_int {
    number(filter, |filter| filter.space().passes().duplicate(pass(id)).map(|id| id.0))
}

/// Makes instruction `index` of a pass (from 0; the number of instructions appends) a
/// predefined operation, an `fyke_op`. `arg` is the mask of operations on addresses and
/// otherwise unused. The operation has no parameters yet.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_select_op(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    op: u32,
    arg: u32,
) -> c_int {
    done(filter, |filter| {
        let op = FykeOp::from_number(op).ok_or_else(|| format!("there is no operation {op}"))?;
        let instruction = operation(op, arg);
        let changed = filter.space().passes().set_instruction(pass(id), index, instruction);
        changed.map_err(|error| error.to_string())
    })
}

/// Adds a parameter: an alternative that the operation compares with.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_add_param(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    value: u32,
) -> c_int {
    done(filter, |filter| filter.space().passes().add_operand(pass(id), index, value))
}

/// Removes a parameter.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_del_param(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    value: u32,
) -> c_int {
    done(filter, |filter| filter.space().passes().remove_operand(pass(id), index, value))
}

/// Overwrites word `word` (0 = command, 1 to 7 = parameters) of an instruction. The
/// result has to be an instruction.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_poke_inst(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    word: usize,
    value: u32,
) -> c_int {
    done(filter, |filter| filter.space().passes().poke(pass(id), index, word, value))
}

/// Puts the passes of a filter text (pcap-filter language) in the place of all passes, in
/// one step. How many there are, or −1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_set_text(filter: *mut FykeFilter, text: *const c_char) -> c_int {
    number(filter, |filter| {
        let passes = filter.add_text(string(text)?, true)?;
        u32::try_from(passes).map_err(|error| error.to_string())
    })
}

/// Adds the passes of a filter text: frames it matches are accepted too. How many there
/// are, or −1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_add_text(filter: *mut FykeFilter, text: *const c_char) -> c_int {
    number(filter, |filter| {
        let passes = filter.add_text(string(text)?, false)?;
        u32::try_from(passes).map_err(|error| error.to_string())
    })
}

/// Frames that a pass accepted so far; 0 for a pass that is not there.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_accepted(filter: *mut FykeFilter, id: c_int) -> u64 {
    handle(filter).and_then(|filter| filter.space().view().accepted(pass(id))).unwrap_or(0)
}

/// What became of all frames so far.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_count(filter: *mut FykeFilter) -> FykeCounts {
    handle(filter).map(|filter| filter.counts()).unwrap_or_default()
}

/// The instructions of a pass for people, into `buffer` (NUL-terminated, cut where it
/// does not fit). The length of the whole text, or −1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_print_pass(
    filter: *mut FykeFilter,
    id: c_int,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    let Some(filter) = handle(filter) else { return -1 };
    let Some(instructions) = filter.space().view().instructions(pass(id)) else { return -1 };
    let lines: Vec<String> = instructions.iter().map(|one| one.to_string()).collect();
    let text = lines.join("\n");
    if !buffer.is_null() && size > 0 {
        let fits = text.len().min(size - 1);
        // SAFETY: the caller's buffer has `size` bytes, as documented, and `fits` is below it.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), buffer, fits);
            *buffer.add(fits) = 0;
        }
    }
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

/// Why the last call on this filter failed; with NULL, why the last `fyke_open` of this
/// thread did. Valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_error(filter: *mut FykeFilter) -> *const c_char {
    match handle(filter) {
        Some(filter) => filter.error().as_ptr(),
        None => OPENING.with(|text| text.borrow().as_ptr()),
    }
}
