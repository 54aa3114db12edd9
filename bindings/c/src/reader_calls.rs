//! The C interface of readers, and of groups of changes of texts.

use crate::calls::{number_of, status, string};
use crate::filter::FykeFilter;
use crate::handles::{close, guarded, open, with};
use crate::reader::{FYKE_END, FykeReader, FykeReaderCounts, PATIENCE, Taken};
use fyke_filters::Change;
use std::ffi::{c_char, c_int};
use std::time::{Duration, Instant};

/// Most frames of a call, changes of a group, bytes of a frame.
const MAX_FRAMES: usize = 1 << 20;
const MAX_CHANGES: usize = 1 << 20;
const MAX_LENGTH: usize = 1 << 30;

/// A frame. Its bytes are valid until the next call of `fyke_next` or `fyke_reader_close` on the reader.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FykeFrame {
    /// Captured bytes, from the link header on.
    pub data: *const u8,
    /// Number of captured bytes.
    pub captured: u32,
    /// Number of bytes on the wire.
    pub length: u32,
    /// Time of capture, nanoseconds since 1970.
    pub time_ns: u64,
    /// Link type, the number of capture files (LINKTYPE_): 1 is Ethernet.
    pub link: u32,
    /// Interface of the source, from 0.
    pub interface: u32,
}

/// Kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum FykeChangeKind {
    /// Adds a text.
    FykeAdd = 0,
    /// Replaces all texts by one; an empty one accepts every frame.
    FykeSet = 1,
    /// Deletes the text with a number, not the last one of all.
    FykeDelete = 2,
}

/// A change of the texts in force.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FykeChange {
    /// A `fyke_change_kind`.
    pub kind: u32,
    /// The text to add or set.
    pub text: *const c_char,
    /// The number of the text to delete; after the edit, the number of the text that was added or set, or 0.
    pub id: u32,
}

/// The changes of a C program.
fn changes_of<'a>(given: &'a [FykeChange]) -> Result<Vec<Change<'a>>, String> {
    let change = |one: &'a FykeChange| match one.kind {
        0 => string(one.text).map(Change::Add),
        1 => string(one.text).map(Change::Set),
        2 => Ok(Change::Remove(one.id.into())),
        kind => Err(format!("there is no change {kind}")),
    };
    let changes = given.iter().enumerate();
    changes.map(|(at, one)| change(one).map_err(|error| format!("change {at}: {error}"))).collect()
}

/// Edits texts and stores the numbers of the new ones.
///
/// # Safety
/// `changes` has `count` elements.
unsafe fn edit(
    changes: *mut FykeChange,
    count: usize,
    edit: impl FnOnce(&[Change<'_>]) -> Result<Vec<Option<u64>>, String>,
) -> Result<(), String> {
    if count > MAX_CHANGES {
        return Err(format!("{count} changes, and at most {MAX_CHANGES} are possible"));
    }
    if count == 0 {
        return Ok(());
    }
    if changes.is_null() {
        return Err("the changes are NULL".to_owned());
    }
    // SAFETY: not NULL, and with this number of elements, as documented.
    let given = unsafe { std::slice::from_raw_parts_mut(changes, count) };
    let ids = edit(&changes_of(given)?)?;
    for (one, id) in given.iter_mut().zip(ids) {
        if one.kind != FykeChangeKind::FykeDelete as u32 {
            one.id = number_of(id.unwrap_or(0))?;
        }
    }
    Ok(())
}

/// Makes several changes of the texts of a filter in the kernel as one edit: all or none, between two frames.
///
/// # Safety
/// `changes` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fyke_edit_texts(
    filter: *mut FykeFilter,
    changes: *mut FykeChange,
    count: usize,
) -> c_int {
    // SAFETY: as documented.
    status(with(filter, |filter| unsafe { edit(changes, count, |all| filter.edit_texts(all)) }))
}

/// Opens a reader: a capture file, "serve:NAME" (a running `fyke serve`), or an interface (which needs CAP_NET_RAW),
/// with a filter text; the empty text accepts every frame. Returns NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_reader_open(source: *const c_char, text: *const c_char) -> *mut FykeReader {
    let opened = guarded(|| FykeReader::open(string(source)?, string(text)?));
    opened.map_or(std::ptr::null_mut(), open)
}

/// Opens a reader without a source, for frames that the program has; `link` is libpcap's name of their link type, such
/// as "EN10MB". It needs no rights. Returns NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_reader_of(link: *const c_char, text: *const c_char) -> *mut FykeReader {
    let opened = guarded(|| FykeReader::without_source(string(link)?, string(text)?));
    opened.map_or(std::ptr::null_mut(), open)
}

/// Judges a frame that the program has: 1 accepted, 0 rejected, or −1. `length` is that on the wire, if bytes are
/// missing, else 0.
///
/// # Safety
/// `data` has `captured` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fyke_match(
    reader: *mut FykeReader,
    data: *const u8,
    captured: usize,
    length: u32,
) -> c_int {
    let judged = with(reader, |reader| {
        if data.is_null() || captured > MAX_LENGTH {
            return Err(format!("the frame is NULL, or longer than {MAX_LENGTH} bytes"));
        }
        // SAFETY: not NULL, and with this number of bytes, as documented.
        reader.matches(unsafe { std::slice::from_raw_parts(data, captured) }, length)
    });
    judged.map_or(-1, c_int::from)
}

/// Waits for accepted frames and stores up to `count` of them. Returns their number, 0 if none came within
/// `timeout_ms` (negative: no limit), FYKE_END at the end of a file or of the service, or −1; a service that was
/// killed is an error, also in all further calls. One thread at a time may use the frames of a reader; other threads
/// may edit, count and close it meanwhile: they wait for a twentieth of a second at most, and after
/// `fyke_reader_close` this call returns −1.
///
/// # Safety
/// `frames` has room for `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fyke_next(
    reader: *mut FykeReader,
    frames: *mut FykeFrame,
    count: usize,
    timeout_ms: c_int,
) -> c_int {
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let begin = Instant::now();
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
        let patience = left.map_or(PATIENCE, |left| left.min(PATIENCE));
        // SAFETY: as documented.
        let taken = with(reader, |reader| unsafe { take(reader, (frames, count), patience) });
        match taken {
            Some(Taken::Frames(0)) if left.is_none_or(|left| left > patience) => {}
            Some(Taken::Frames(count)) => return c_int::try_from(count).unwrap_or(c_int::MAX),
            Some(Taken::End) => return FYKE_END,
            None => return -1,
        }
    }
}

/// Waits for frames and stores them; between two such steps, calls of other threads have their turn.
///
/// # Safety
/// `frames` has room for `count` elements.
unsafe fn take(
    reader: &mut FykeReader,
    (frames, count): (*mut FykeFrame, usize),
    patience: Duration,
) -> Result<Taken, String> {
    if frames.is_null() || count == 0 {
        return Err("there is no room for frames".to_owned());
    }
    reader.next(count.min(MAX_FRAMES), patience, |place, kept, bytes| {
        let frame = FykeFrame {
            data: bytes.as_ptr(),
            captured: bytes.len() as u32, // frames have at most 32 bits of bytes
            length: kept.wire_len,
            time_ns: kept.timestamp_ns,
            link: kept.link.0.into(),
            interface: kept.interface,
        };
        // SAFETY: `place` is below `count`, and the caller has room for that number.
        unsafe { frames.add(place).write(frame) };
    })
}

/// Makes several changes of the texts of a reader as one edit, all or none. After it, `fyke_next` gives only frames
/// that the new texts accept, also of those that had arrived before. If a service does not answer within ten seconds
/// this fails, the texts stay, and the reader continues; the edit may be made again later.
///
/// # Safety
/// `changes` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fyke_reader_edit(
    reader: *mut FykeReader,
    changes: *mut FykeChange,
    count: usize,
) -> c_int {
    // SAFETY: as documented.
    status(with(reader, |reader| unsafe { edit(changes, count, |all| reader.edit(all)) }))
}

/// Returns the counts of a reader: seen = accepted + rejected + lost; `partial` is 1 if some frames are not counted.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_reader_count(reader: *mut FykeReader) -> FykeReaderCounts {
    with(reader, |reader| Ok::<_, String>(reader.counts())).unwrap_or_default()
}

/// Returns the frames that the program got and that this text accepted; 0 if the text does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_reader_text_accepted(reader: *mut FykeReader, id: u32) -> u64 {
    let accepted = with(reader, |reader| Ok::<_, String>(reader.accepted_by_text(id.into())));
    accepted.unwrap_or(0)
}

/// Closes a reader; NULL is none. Returns 0, or −1 if it is not open.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_reader_close(reader: *mut FykeReader) -> c_int {
    if reader.is_null() || close(reader) { 0 } else { -1 }
}
