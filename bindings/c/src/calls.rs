//! The C interface of filters in the kernel. Every function checks its arguments and calls safe code.

use crate::filter::{FykeCounts, FykeFilter};
use crate::handles::{close, guarded, open, with, with_error};
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::BorrowedFd;

/// Most parameters of an instruction.
const MAX_VALUES: usize = 16;

fn borrow<'a>(socket: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not −1, and used only during the call; the system call fails for a number that is not a descriptor.
    (socket >= 0).then(|| unsafe { BorrowedFd::borrow_raw(socket) })
}

/// Reads a text.
pub fn string<'a>(text: *const c_char) -> Result<&'a str, String> {
    if text.is_null() {
        return Err("the text is NULL".into());
    }
    // SAFETY: not NULL, and NUL-terminated as documented.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| format!("the text is not UTF-8: {error}"))
}

/// Returns 0, or −1.
pub fn status(done: Option<()>) -> c_int {
    done.map_or(-1, |()| 0)
}

/// Returns the number of a text for C.
pub fn number_of(id: u64) -> Result<u32, String> {
    u32::try_from(id).map_err(|_| format!("the number of text {id} does not fit into 32 bits"))
}

/// Returns the number of a pass.
fn pass(id: c_int) -> Result<u32, String> {
    u32::try_from(id).map_err(|_| format!("there is no pass {id}"))
}

/// Returns the number of a text of a filter.
fn text_number(id: c_int) -> Result<u64, String> {
    u64::try_from(id).map_err(|_| format!("there is no text {id}"))
}

/// Returns a number for C, or −1.
fn number(number: Option<u32>) -> c_int {
    number.and_then(|number| c_int::try_from(number).ok()).unwrap_or(-1)
}

/// Creates an empty filter, which accepts every frame, and attaches it to a packet socket
/// unless `socket` is −1. Returns NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_open(socket: c_int) -> *mut FykeFilter {
    let opened = guarded(|| match (borrow(socket), socket) {
        (None, ..-1) => Err(format!("{socket} is no descriptor")),
        (socket, _) => FykeFilter::open(socket),
    });
    opened.map_or(std::ptr::null_mut(), open)
}

/// Attaches the filter to a packet socket and replaces the filter that the socket has.
/// Several sockets may share one filter.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_attach(filter: *mut FykeFilter, socket: c_int) -> c_int {
    status(with(filter, |filter| {
        let socket = borrow(socket).ok_or_else(|| format!("{socket} is no descriptor"))?;
        filter.attach(socket)
    }))
}

/// Closes the handle; NULL is none. Sockets keep the filter unchanged until they are closed. Returns 0, or −1 if it is
/// not open.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_close(filter: *mut FykeFilter) -> c_int {
    if filter.is_null() || close(filter) { 0 } else { -1 }
}

/// Begins a group: edits of passes are collected until `fyke_commit`, and passes that begin in the group accept nothing
/// before it. Texts are not part of it (`fyke_edit_texts`).
#[unsafe(no_mangle)]
pub extern "C" fn fyke_begin(filter: *mut FykeFilter) -> c_int {
    status(with(filter, FykeFilter::begin))
}

/// Puts the open group in force, in one step: a frame is judged by the passes before it or after it. Counts of passes
/// stay. If the kernel refuses, nothing has changed and the group is still open.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_commit(filter: *mut FykeFilter) -> c_int {
    status(with(filter, FykeFilter::commit))
}

/// Discards the open group.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_abort(filter: *mut FykeFilter) -> c_int {
    status(with(filter, FykeFilter::abort))
}

/// Adds a pass without instructions. Returns its number, from 1; of a pass that begins in a group, from 2^30. A pass
/// without instructions accepts every frame: begin a group first, and no frame sees it before it is complete.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_new_pass(filter: *mut FykeFilter) -> c_int {
    number(with(filter, FykeFilter::new_pass))
}

/// Deletes a pass.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_del_pass(filter: *mut FykeFilter, id: c_int) -> c_int {
    status(with(filter, |filter| filter.delete(pass(id)?)))
}

/// Copies a pass; returns the number of the copy. The copy has no link to its original: the papers' tree of copied
/// passes, where a copy skips what its parent has evaluated, is not built.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_dup_pass(filter: *mut FykeFilter, id: c_int) -> c_int {
    number(with(filter, |filter| filter.duplicate(pass(id)?)))
}

/// Sets instruction `index` of a pass (from 0; the number of instructions appends) to a
/// predefined operation without parameters, a `fyke_op`, or a `fyke_op` with FYKE_NOT. `arg` is unused unless the
/// description of the operation names it.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_select_op(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    op: u32,
    arg: u32,
) -> c_int {
    status(with(filter, |filter| filter.set_instruction(pass(id)?, index, (op, arg, &[]))))
}

/// The same with all parameters at once, so that no frame sees the operation without them.
///
/// # Safety
/// `values` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fyke_set_inst(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    op: u32,
    arg: u32,
    values: *const u32,
    count: usize,
) -> c_int {
    status(with(filter, |filter| {
        if count > MAX_VALUES || (values.is_null() && count > 0) {
            return Err(format!("the parameters are NULL, or more than {MAX_VALUES}"));
        }
        let values = match count {
            0 => &[],
            // SAFETY: not NULL, and with this number of elements, as documented.
            _ => unsafe { std::slice::from_raw_parts(values, count) },
        };
        filter.set_instruction(pass(id)?, index, (op, arg, values))
    }))
}

/// Adds a parameter: an alternative that the operation compares with.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_add_param(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    value: u32,
) -> c_int {
    status(with(filter, |filter| filter.add_value(pass(id)?, index, value)))
}

/// Removes a parameter.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_del_param(
    filter: *mut FykeFilter,
    id: c_int,
    index: usize,
    value: u32,
) -> c_int {
    status(with(filter, |filter| filter.remove_value(pass(id)?, index, value)))
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
    status(with(filter, |filter| filter.poke(pass(id)?, index, word, value)))
}

/// Replaces all texts and passes by a filter text (pcap-filter language, read as for a live
/// capture), in one step. Returns its number, from 1, for `fyke_delete_text`; 0 for the empty
/// text, which accepts every frame; or −1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_set_text(filter: *mut FykeFilter, text: *const c_char) -> c_int {
    number(with(filter, |filter| number_of(filter.add_text(string(text)?, true)?)))
}

/// Adds a filter text, read as for a live capture: frames that it matches are accepted too.
/// Returns its number, from 1 and never used twice, for `fyke_delete_text`; or −1.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_add_text(filter: *mut FykeFilter, text: *const c_char) -> c_int {
    number(with(filter, |filter| number_of(filter.add_text(string(text)?, false)?)))
}

/// Deletes a filter text by its number. The last one is deleted only while there are passes:
/// without either, every frame is accepted, and `fyke_set_text` with an empty text does that.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_delete_text(filter: *mut FykeFilter, id: c_int) -> c_int {
    status(with(filter, |filter| {
        filter.edit_texts(&[fyke_filters::Change::Remove(text_number(id)?)]).map(drop)
    }))
}

/// Returns the frames that a filter text accepted so far; 0 if the text does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_text_accepted(filter: *mut FykeFilter, id: c_int) -> u64 {
    let accepted =
        |filter: &mut FykeFilter| Ok::<_, String>(filter.accepted_by_text(text_number(id)?));
    with(filter, accepted).unwrap_or(0)
}

/// Returns the frames that a pass accepted so far; 0 if the pass does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_accepted(filter: *mut FykeFilter, id: c_int) -> u64 {
    with(filter, |filter| Ok::<_, String>(filter.accepted_by_pass(pass(id)?))).unwrap_or(0)
}

/// Returns the totals of the filter so far.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_count(filter: *mut FykeFilter) -> FykeCounts {
    with(filter, |filter| Ok::<_, String>(filter.counts())).unwrap_or_default()
}

/// Writes the instructions of a pass, one to a line, into `buffer` (NUL-terminated, truncated if
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
    let text = with(filter, |filter| {
        let instructions = filter.instructions(pass(id)?);
        let instructions = instructions.ok_or_else(|| format!("there is no pass {id}"))?;
        let lines: Vec<String> = instructions.iter().map(|one| one.to_string()).collect();
        Ok::<_, String>(lines.join("\n"))
    });
    let Some(text) = text else { return -1 };
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

/// Returns the error of the last call of this thread that failed, on any handle. `filter` is not used. Valid until this
/// thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_error(filter: *mut FykeFilter) -> *const c_char {
    let _any = filter;
    with_error(|text| text.as_ptr())
}
