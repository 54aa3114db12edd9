//! Filters: compile, set, direction.

use super::{Call, active, call};
use crate::c::{ERROR, Instruction, NETMASK_UNKNOWN, Pcap, Program};
use crate::forward::real;
use crate::handle::Active;
use crate::live::SetError;
use crate::texts;
use fyke_filter::Options;
use fyke_machine::bpf::Dialect;
use fyke_machine::bpf::run;
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// Most instructions of a program.
const MAX_INSTRUCTIONS: usize = 1 << 20;
/// Bytes of a text from which libpcap takes long.
const LONG: usize = 2 << 10;

/// The instructions of a program; `None` if it has none, or more than there can be.
fn instructions<'a>(program: *const Program) -> Option<&'a [Instruction]> {
    // SAFETY: NULL or a program, as libpcap's manual demands.
    let program = unsafe { program.as_ref() }?;
    let len = program.len as usize;
    if program.instructions.is_null() || !(1..=MAX_INSTRUCTIONS).contains(&len) {
        return None;
    }
    // SAFETY: the program has this number of instructions.
    Some(unsafe { std::slice::from_raw_parts(program.instructions, len) })
}

/// The text of an argument; a NULL is the empty text, as in libpcap.
fn text_of<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return Some("");
    }
    // SAFETY: not NULL, and ends with NUL, as libpcap's manual demands.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Stores a program of ours in memory that `pcap_freecode` frees.
fn store(program: *mut Program, made: &[Instruction]) -> bool {
    let Ok(len) = u32::try_from(made.len()) else { return false };
    // SAFETY: the size of the instructions; `copy` fills all of them; the program is not NULL.
    unsafe {
        let place: *mut Instruction = libc::calloc(made.len(), size_of::<Instruction>()).cast();
        if place.is_null() {
            return false;
        }
        std::ptr::copy_nonoverlapping(made.as_ptr(), place, made.len());
        *program = Program { len, instructions: place };
    }
    true
}

/// As in libpcap; the text is remembered for `pcap_setfilter`.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_compile(
    pcap: *mut Pcap,
    program: *mut Program,
    text: *const c_char,
    optimize: c_int,
    netmask: u32,
) -> c_int {
    let whole = |pcap: *mut Pcap| {
        real!(pcap_compile(pcap => *mut Pcap, program => *mut Program, text => *const c_char,
            optimize => c_int, netmask => u32) -> c_int, ERROR)
    };
    let (slot, handle) = match call(pcap) {
        Call::Ours(slot, handle) => (slot, handle),
        Call::Real => {
            let status = whole(pcap);
            remember(status, program, (text, netmask, link_of(pcap)));
            return status;
        }
        Call::Wrong => return ERROR,
    };
    if program.is_null() {
        return slot.fail(ERROR, "the place for the program is NULL");
    }
    active(slot, &handle, |active| {
        let Some(words) = text_of(text) else {
            return slot.fail(ERROR, "the filter is not UTF-8");
        };
        let options = options(active, netmask);
        let here = || texts::compile(words, &options).is_ok_and(|made| store(program, &made));
        let Some(twin) = crate::slots::real_or_twin(pcap) else { return ERROR };
        let status = match words.len() > LONG && here() {
            true => 0,
            false => whole(twin.pcap),
        };
        // A text for a live capture, such as `inbound`: the twin is none.
        let status = if status != 0 && here() { 0 } else { status };
        remember(status, program, (text, netmask, active.live.dlt()));
        status
    })
}

fn options(active: &Active, netmask: u32) -> Options {
    let netmask = (netmask != NETMASK_UNKNOWN).then(|| u32::from_be(netmask));
    let snaplen = active.settings.snaplen.unsigned_abs();
    Options { netmask, snaplen, ..active.live.options() }
}

/// The data link type of a handle of the system's libpcap.
fn link_of(pcap: *mut Pcap) -> c_int {
    real!(pcap_datalink(pcap => *mut Pcap) -> c_int, ERROR)
}

/// Remembers the text of a program, with its netmask and data link type.
fn remember(
    status: c_int,
    program: *const Program,
    (text, netmask, link): (*const c_char, u32, c_int),
) {
    if status == 0
        && let (Some(instructions), Some(text)) = (instructions(program), text_of(text))
    {
        texts::remember(instructions, link, text, netmask);
    }
}

/// As in libpcap; the text is remembered for `pcap_setfilter`.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_compile_nopcap(
    snaplen: c_int,
    link: c_int,
    program: *mut Program,
    text: *const c_char,
    optimize: c_int,
    netmask: u32,
) -> c_int {
    let status = real!(pcap_compile_nopcap(snaplen => c_int, link => c_int, program => *mut Program,
        text => *const c_char, optimize => c_int, netmask => u32) -> c_int, ERROR);
    remember(status, program, (text, netmask, link));
    status
}

/// As in libpcap. From the return on, a handle of ours gets only frames of the new filter.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setfilter(pcap: *mut Pcap, program: *mut Program) -> c_int {
    let (slot, handle) = match call(pcap) {
        Call::Ours(slot, handle) => (slot, handle),
        Call::Real => {
            return real!(
                pcap_setfilter(pcap => *mut Pcap, program => *mut Program) -> c_int,
                ERROR
            );
        }
        Call::Wrong => return ERROR,
    };
    let Some(given) = instructions(program) else {
        return slot.fail(ERROR, "no filter specified");
    };
    active(slot, &handle, |active| match set(active, given) {
        Ok(()) => 0,
        Err(text) => slot.fail(ERROR, &text),
    })
}

/// Sets a filter by the text of a program or, if that is not known or not permitted, by the program.
fn set(active: &Active, given: &[Instruction]) -> Result<(), String> {
    let own = active.live.options().netmask.unwrap_or(0);
    // The service reads texts with the netmask of its interface.
    let fits =
        |text: &texts::Text| !text.text.contains("broadcast") || u32::from_be(text.netmask) == own;
    if let Some(text) = texts::of(given, active.live.dlt()).filter(fits) {
        match active.live.set_text(&text.text) {
            Ok(()) => return Ok(()),
            Err(SetError::Service(why)) => return Err(why),
            // The instructions decide.
            Err(SetError::Text(_)) => {}
        }
    }
    let instruction = |one: &Instruction| fyke_machine::bpf::Instruction {
        code: one.code,
        jt: one.jt,
        jf: one.jf,
        k: one.k,
    };
    let program = run::Program::new(given.iter().map(instruction).collect(), Dialect::Bpf);
    let set = active.live.set_program(program.map_err(|error| format!("the filter: {error}"))?);
    set.map_err(|(SetError::Service(why) | SetError::Text(why))| why)
}

/// As in libpcap.
///
/// # Safety
/// As in libpcap's manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setdirection(pcap: *mut Pcap, direction: c_int) -> c_int {
    match call(pcap) {
        Call::Ours(slot, handle) => active(slot, &handle, |active| {
            if !(0..=2).contains(&direction) {
                return slot.fail(ERROR, "the direction is not one");
            }
            active.direction.store(direction, Ordering::Relaxed);
            0
        }),
        Call::Real => {
            real!(pcap_setdirection(pcap => *mut Pcap, direction => c_int) -> c_int, ERROR)
        }
        Call::Wrong => ERROR,
    }
}
