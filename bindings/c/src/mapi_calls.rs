//! The C interface of MAPI. Its header is `include/mapi.h`, written by hand: `mapi_apply_function` has a variable
//! number of parameters, and is a function of the header.

use crate::calls::string;
use crate::handles::{PerProcess, fail, guarded, with_error};
use crate::mapi::{Flow, Packet, Shared};
use crate::mapi_derived::{Cells, operands};
use crate::mapi_functions::Given;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_ushort, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A result of a function, `mapi_results_t`.
#[derive(Debug)]
#[repr(C)]
pub struct Results {
    res: *mut c_void,
    ts: c_ulonglong,
    size: c_int,
}

/// The beginning of a packet, `struct mapipkt`.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    ts: c_ulonglong,
    ifindex: c_ushort,
    caplen: c_uint,
    wlen: c_uint,
    pkt: u8,
}

/// A flow, and the memory that its program reads.
struct Entry {
    flow: Mutex<Flow>,
    shared: Arc<Shared>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// In boxes: addresses that a program has must not change.
    results: BTreeMap<c_int, Box<Results>>,
    packet: Vec<u64>,
}

// SAFETY: the pointers in it are to counters of the flow, which lives as long, and only the program follows them.
unsafe impl Send for Memory {}

type Flows = BTreeMap<c_int, Arc<Entry>>;

/// The flows of each process, by number.
static FLOWS: PerProcess<Flows> = PerProcess::new(Flows::new());
/// The last number. A child continues after those of its parent, so that it cannot mistake one for its own.
static LAST: AtomicI32 = AtomicI32::new(0);

fn flows() -> MutexGuard<'static, Flows> {
    FLOWS.lock(Flows::new)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in a call is reported by that call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry(flow: c_int) -> Result<Arc<Entry>, String> {
    let found = flows().get(&flow).cloned();
    found.ok_or_else(|| format!("there is no flow {flow} in process {}", std::process::id()))
}

/// Creates a flow.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_create_flow(device: *const c_char) -> c_int {
    let created = guarded(|| {
        let flow = Flow::new(string(device)?);
        let shared = Arc::clone(&flow.shared);
        let (flow, memory) = (Mutex::new(flow), Mutex::default());
        let next = |last: c_int| last.checked_add(1);
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = last.map_err(|_| "too many flows")? + 1;
        flows().insert(number, Arc::new(Entry { flow, shared, memory }));
        Ok::<_, String>(number)
    });
    created.unwrap_or(-1)
}

/// `MFF_PCAP`.
const PCAP: c_int = 0;

/// Creates a flow on a capture file.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_create_offline(path: *const c_char, format: c_int) -> c_int {
    let known = guarded(|| match format {
        PCAP => Ok(()),
        other => {
            Err(format!("there is no format {other} of capture files; MFF_PCAP is the only one"))
        }
    });
    known.map_or(-1, |()| mapi_create_flow(path))
}

/// Most parameters of one kind.
const MAX_PARAMETERS: usize = 16;

/// The result of a function of a flow.
fn result(flow: c_int, function: c_int) -> Result<Cells, String> {
    let entry = entry(flow)?;
    let found = lock(&entry.flow).result(function).cloned();
    found.ok_or_else(|| format!("flow {flow} has no function {function}"))
}

/// A parameter array of C.
fn array<'a, T>(first: *const T, count: usize) -> Result<&'a [T], String> {
    match count {
        0 => Ok(&[]),
        _ if first.is_null() => Err("the parameters are NULL".to_owned()),
        1..=MAX_PARAMETERS => {
            // SAFETY: not NULL, and the program's array of this number, as the header demands.
            Ok(unsafe { std::slice::from_raw_parts(first, count) })
        }
        _ => Err(format!("{count} parameters, and at most {MAX_PARAMETERS} are possible")),
    }
}

/// Adds a function to the chain of a flow.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_apply(
    flow: c_int,
    name: *const c_char,
    texts: *const *const c_char,
    text_count: usize,
    numbers: *const c_ulonglong,
    number_count: usize,
) -> c_int {
    let applied = guarded(|| {
        let name = string(name)?;
        let text = |text: &*const c_char| match text.is_null() {
            true => Ok(None),
            false => string(*text).map(Some),
        };
        let texts = array(texts, text_count)?.iter().map(text).collect::<Result<_, _>>()?;
        let mut given =
            Given { texts, numbers: array(numbers, number_count)?.to_vec(), results: Vec::new() };
        for &place in operands(name) {
            // Numbers of C's type `int`.
            let of = (given.number(place) as c_int, given.number(place + 1) as c_int);
            given.results.push(result(of.0, of.1)?);
        }
        let number = lock(&entry(flow)?.flow).apply(name, &given)?;
        c_int::try_from(number).map_err(|error| error.to_string())
    });
    applied.unwrap_or(-1)
}

/// Opens the source of a flow and begins to read.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_connect(flow: c_int) -> c_int {
    guarded(|| lock(&entry(flow)?.flow).connect()).map_or(-1, |()| 0)
}

/// Returns the result of a function.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_read_results(flow: c_int, function: c_int) -> *mut Results {
    let read = guarded(|| {
        let (entry, cells) = (entry(flow)?, result(flow, function)?);
        let mut memory = lock(&entry.memory);
        let size = size_of_val(&*cells) as c_int; // at most some 100,000
        let res = cells.as_ptr().cast_mut().cast();
        let result = memory
            .results
            .entry(function)
            .or_insert_with(|| Box::new(Results { res, ts: 0, size }));
        // Counts of the thread are visible before the time.
        std::sync::atomic::fence(Ordering::Acquire);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        result.ts = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        Ok::<_, String>(std::ptr::from_mut(&mut **result))
    });
    read.unwrap_or(std::ptr::null_mut())
}

/// Returns the next packet of TO_BUFFER.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_get_next_pkt(flow: c_int, function: c_int) -> *mut Header {
    let next = guarded(|| {
        let entry = entry(flow)?;
        if !lock(&entry.flow).is_buffer(function) {
            return Err(format!("function {function} of flow {flow} is no connected TO_BUFFER"));
        }
        // Without the lock of the flow: another thread may close it meanwhile.
        let packet = entry.shared.next()?;
        Ok(packet.map(|packet| store(&mut lock(&entry.memory).packet, &packet)))
    });
    match next {
        Some(Some(header)) => header,
        Some(None) => {
            fail("the flow has ended");
            std::ptr::null_mut()
        }
        None => std::ptr::null_mut(),
    }
}

/// Stores a packet in the form of C.
fn store(memory: &mut Vec<u64>, packet: &Packet) -> *mut Header {
    let start = offset_of!(Header, pkt);
    let size = (start + packet.bytes.len()).max(size_of::<Header>());
    memory.clear();
    memory.resize(size.div_ceil(size_of::<u64>()), 0);
    let header: *mut Header = memory.as_mut_ptr().cast();
    // SAFETY: the memory is aligned to eight bytes and has room for the header and for all bytes from `pkt` on.
    unsafe {
        (*header).ts = packet.timestamp_ns;
        (*header).ifindex = packet.interface as c_ushort; // MAPI has 16 bits
        (*header).caplen = packet.bytes.len() as c_uint; // a frame has at most 32 bits of bytes
        (*header).wlen = packet.wire_len;
        let to = header.cast::<u8>().add(start);
        std::ptr::copy_nonoverlapping(packet.bytes.as_ptr(), to, packet.bytes.len());
    }
    header
}

/// Ends a flow.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_close_flow(flow: c_int) -> c_int {
    let closed = guarded(|| {
        let entry = entry(flow)?;
        flows().remove(&flow);
        lock(&entry.flow).end();
        entry.shared.untold().map_or(Ok(()), Err)
    });
    closed.map_or(-1, |()| 0)
}

/// Returns the error of this thread's last call that failed.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_last_error() -> *const c_char {
    with_error(|text| text.as_ptr())
}
