//! The C interface. Every function checks its pointers for NULL and calls safe code.

use crate::filter::{FykeCounts, FykeFilter, c_text, operation};
use fyke_kernel::{KernelPassId, KernelPasses};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::BorrowedFd;

thread_local! {
    /// Error of the last `fyke_open` of this thread.
    static OPENING: RefCell<CString> = RefCell::default();
}

fn handle<'a>(filter: *mut FykeFilter) -> Option<&'a mut FykeFilter> {
    // SAFETY: NULL or a pointer returned by `fyke_open` and not yet passed to `fyke_close`; used by one thread at a
    // time, as documented.
    unsafe { filter.as_mut() }
}

fn borrow<'a>(socket: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not −1, and used only during the call; the system call fails for a number that is not a descriptor.
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

/// Returns 0, or −1 and stores the error.
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

/// Returns the number of a text for C.
fn text_number(id: u64) -> Result<u32, String> {
    u32::try_from(id).map_err(|_| format!("the number of text {id} does not fit into 32 bits"))
}

/// Returns a number for C, or −1 and stores the error.
fn number<E: std::fmt::Display>(
    filter: *mut FykeFilter,
    make: impl FnOnce(&mut FykeFilter) -> Result<u32, E>,
) -> c_int {
    let Some(filter) = handle(filter) else { return -1 };
    let result = make(filter);
    filter.keep(result).and_then(|number| c_int::try_from(number).ok()).unwrap_or(-1)
}

/// Creates an empty filter, which accepts every frame, and attaches it to a packet socket
/// unless `socket` is −1. Returns NULL on failure; `fyke_error(NULL)` has the reason.
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

/// Attaches the filter to a packet socket and replaces the filter that the socket has.
/// Several sockets may share one filter.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_attach(filter: *mut FykeFilter, socket: c_int) -> c_int {
    let Some(descriptor) = borrow(socket) else { return -1 };
    done(filter, |filter| filter.attach(descriptor))
}

/// Frees the handle. Sockets keep the filter unchanged until they are closed.
///
/// # Safety
/// `filter` is NULL or came from `fyke_open`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fyke_close(filter: *mut FykeFilter) {
    if !filter.is_null() {
        // SAFETY: `fyke_open` created it from a box, and the caller does not use it afterwards.
        drop(unsafe { Box::from_raw(filter) });
    }
}

/// Adds a pass without instructions, which accepts every frame until it has some. Returns
/// its number, from 1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_new_pass(filter: *mut FykeFilter) -> c_int {
    number(filter, |filter| filter.by_hand(None, |passes| passes.add(&[])).map(|id| id.0))
}

/// Deletes a pass.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_del_pass(filter: *mut FykeFilter, id: c_int) -> c_int {
    done(filter, |filter| filter.by_hand(Some(pass(id)), |passes| passes.remove(pass(id))))
}

/// Copies a pass; returns the number of the copy.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_dup_pass(filter: *mut FykeFilter, id: c_int) -> c_int {
    number(filter, |filter| {
        filter.by_hand(None, |passes| passes.duplicate(pass(id))).map(|id| id.0)
    })
}

/// Sets instruction `index` of a pass (from 0; the number of instructions appends) to a
/// predefined operation, an `fyke_op`. `arg` is the mask of operations on addresses and
/// unused otherwise. The operation has no parameters yet.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_select_op(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    op: u32,
    arg: u32,
) -> c_int {
    done(filter, |filter| {
        let instruction =
            operation(op, arg).ok_or_else(|| format!("there is no operation {op}"))?;
        let change =
            |passes: &mut KernelPasses| passes.set_instruction(pass(id), index, instruction);
        filter.by_hand(Some(pass(id)), change).map_err(|error| error.to_string())
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
    done(filter, |filter| {
        filter.by_hand(Some(pass(id)), |passes| passes.add_operand(pass(id), index, value))
    })
}

/// Removes a parameter.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_del_param(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    value: u32,
) -> c_int {
    done(filter, |filter| {
        filter.by_hand(Some(pass(id)), |passes| passes.remove_operand(pass(id), index, value))
    })
}

/// Overwrites word `word` (0 = command, 1 to 7 = parameters) of an instruction. The
/// result must be a valid instruction.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_poke_inst(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    word: usize,
    value: u32,
) -> c_int {
    done(filter, |filter| {
        filter.by_hand(Some(pass(id)), |passes| passes.poke(pass(id), index, word, value))
    })
}

/// Replaces all texts and passes by a filter text (pcap-filter language, read as for a live
/// capture), in one step. Returns its number, from 1, for `fyke_delete_text`; 0 for the empty
/// text, which accepts every frame; or −1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_set_text(filter: *mut FykeFilter, text: *const c_char) -> c_int {
    number(filter, |filter| text_number(filter.add_text(string(text)?, true)?))
}

/// Adds a filter text, read as for a live capture: frames that it matches are accepted too.
/// Returns its number, from 1 and never used twice, for `fyke_delete_text`; or −1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_add_text(filter: *mut FykeFilter, text: *const c_char) -> c_int {
    number(filter, |filter| text_number(filter.add_text(string(text)?, false)?))
}

/// Deletes a filter text by its number. The last one is deleted only while there are passes:
/// without either, every frame is accepted, and `fyke_set_text` with an empty text does that.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_delete_text(filter: *mut FykeFilter, id: c_int) -> c_int {
    done(filter, |filter| filter.delete_text(u64::try_from(id).unwrap_or(0)))
}

/// Returns the frames that a filter text accepted so far; 0 if the text does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_text_accepted(filter: *mut FykeFilter, id: c_int) -> u64 {
    let id = u64::try_from(id).unwrap_or(0);
    handle(filter).map_or(0, |filter| filter.accepted_by_text(id))
}

/// Returns the frames that a pass accepted so far; 0 if the pass does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_accepted(filter: *mut FykeFilter, id: c_int) -> u64 {
    let accepted = |filter: &mut FykeFilter| filter.space(|space| space.view().accepted(pass(id)));
    handle(filter).and_then(accepted).unwrap_or(0)
}

/// Returns the totals of the filter so far.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_count(filter: *mut FykeFilter) -> FykeCounts {
    handle(filter).map(|filter| filter.counts()).unwrap_or_default()
}

/// Writes the instructions of a pass as text into `buffer` (NUL-terminated, truncated if
/// the buffer is too small). Returns the length of the whole text, or −1.
///
/// # Safety
/// `buffer` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fyke_print_pass(
    filter: *mut FykeFilter,
    id: c_int,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    let Some(filter) = handle(filter) else { return -1 };
    let lines = filter.space(|space| {
        let instructions = space.view().instructions(pass(id))?;
        Some(instructions.iter().map(|one| one.to_string()).collect::<Vec<String>>())
    });
    let Some(lines) = lines else { return -1 };
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

/// Returns the error of the last call on this filter; with NULL, that of the last
/// `fyke_open` of this thread. Valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_error(filter: *mut FykeFilter) -> *const c_char {
    match handle(filter) {
        Some(filter) => filter.error().as_ptr(),
        None => OPENING.with(|text| text.borrow().as_ptr()),
    }
}
