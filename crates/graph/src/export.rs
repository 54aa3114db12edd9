//! Exports: the frames that a node passes, in a ring in shared memory that other processes read.
//!
//! Exports of a process with buffers of the same size share one packet buffer: a frame is stored once, by the first
//! export that passes it, and every export adds an index entry. An export without readers stores nothing, because a
//! reader starts with the frames after its connection. If slow readers are preferred, the export has a packet buffer of
//! its own, since its readers decide which frames find room.
//!
//! A worker handles one batch after the other on its own thread, so the places of the frames of a batch are kept there.
//! Memory: the buffers, of which pages are used as frames arrive; 24 bytes for each frame of an index. Cost: a copy of
//! the frame for its first export, five stores for each other one. Source: FFPF, sections 2.4 and 2.6 of the paper and
//! 3.6 of the thesis (a packet is stored once, buffers on demand).

use crate::node::{Counter, MakeError, Parameter, Settings};
use crate::snaplen::{cut, snaplen};
use fyke_capture::Interface;
use fyke_frame::{BATCH_CAPACITY, Frame, LinkType, Mask};
use fyke_ring::{Held, Index, Mark, Origin, Packets, Placed, Publication, RingError, Values};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Memory for frames, in bytes, and entries of an index, by default.
const BUFFER_BYTES: u64 = 64 << 20;
const ENTRIES: u64 = 1 << 16;
/// Most values of a node that a ring shows.
const VALUES: usize = 256;
/// Limits of both.
const BUFFERS: std::ops::RangeInclusive<u64> = 8192..=1 << 30;
const INDEXES: std::ops::RangeInclusive<u64> = 16..=1 << 24;
/// Most packet buffers of which a thread remembers the places of a batch.
const REMEMBERED: usize = 16;

/// Parameter: the size of the packet buffer.
pub const BUFFER: Parameter =
    Parameter { name: "buffer", summary: "bytes for frames, with K, M or G (64M)" };
/// Parameter: the size of the index.
pub const FRAMES: Parameter =
    Parameter { name: "frames", summary: "most frames that wait for a reader (65536)" };
/// Parameter: the readers that are preferred.
pub const PREFER: Parameter = Parameter {
    name: "prefer",
    summary: "fast: a slow reader loses frames; slow: frames without room are refused",
};

/// Sizes and preference of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    buffer: usize,
    frames: usize,
    snaplen: usize,
    prefers_slow: bool,
}

impl Options {
    /// Reads the parameters.
    ///
    /// # Errors
    /// If one of them is not valid.
    pub fn read(settings: &Settings) -> Result<Options, MakeError> {
        let buffer = match settings.text("buffer") {
            Some(text) => bytes(text).ok_or_else(|| {
                let message = format!("{text} is not a size from 8K to 1G, such as 64M");
                MakeError::new("buffer", message)
            })?,
            None => BUFFER_BYTES,
        };
        Ok(Options {
            buffer: buffer as usize,
            frames: settings.number_or("frames", INDEXES, ENTRIES)? as usize,
            snaplen: snaplen(settings)?,
            prefers_slow: settings.choice("prefer", &["fast", "slow"])? == 1,
        })
    }
}

/// A size with its unit.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    BUFFERS.contains(&bytes).then_some(bytes)
}

/// Frames that a node passes, with what the export needs to know of them.
pub struct Passed<'a> {
    /// The batch.
    pub frames: &'a [Frame<'a>],
    /// The frames that pass.
    pub mask: Mask,
    /// Interfaces of the batch's source.
    pub interfaces: &'a [Interface],
    /// Number of the source.
    pub source: u32,
    /// Number of the batch.
    pub serial: u64,
}

/// A packet buffer.
struct Stored {
    /// Number of the buffer in this process.
    id: u64,
    packets: Packets,
}

/// The packet buffers that exports share, by their size, for as long as an export uses them.
static SHARED: Mutex<BTreeMap<usize, Weak<Mutex<Stored>>>> = Mutex::new(BTreeMap::new());
/// Packet buffers made so far.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Length and place of a stored frame; no place if there was no room for it.
type Place = Option<(usize, Option<Placed>)>;

/// The places of the frames of one batch in one packet buffer.
struct Places {
    buffer: u64,
    serial: u64,
    places: Box<[Place; BATCH_CAPACITY]>,
}

thread_local! {
    static PLACES: RefCell<Vec<Places>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An export.
pub struct Export {
    stored: Arc<Mutex<Stored>>,
    index: Index,
    values: Arc<Values>,
    options: Options,
    /// The last source, and the numbers of its interfaces in the buffer.
    origins: (Option<u32>, Vec<Option<u32>>),
    written: u64,
    /// Frames that are too large, or for which slow readers left no room.
    refused: u64,
    /// Frames that passed while there was no reader.
    unread: u64,
    published: Option<Publication>,
}

impl Export {
    /// Makes an export and publishes its ring at a socket. `interfaces` are those before the node, as far as they are
    /// known.
    ///
    /// # Errors
    /// There is no memory, or another process publishes there.
    pub fn new(
        path: &Path,
        options: Options,
        interfaces: &[Interface],
    ) -> Result<Export, RingError> {
        let link = interfaces.first().map_or(LinkType::EN10MB, |interface| interface.link);
        let stored = Stored::of(&options)?;
        let mut index = Index::create(options.frames, link)?;
        let mut buffer = lock(&stored);
        for interface in interfaces {
            if let Some(number) = buffer.packets.origin(&origin(interface)) {
                index.comes_from(0, number);
            }
        }
        let values = Values::create(VALUES)?;
        let published = Publication::of(path, &[&buffer.packets], &index, Some(&values))?;
        drop(buffer);
        Ok(Export {
            stored,
            index,
            values: Arc::new(values),
            options,
            origins: (None, Vec::new()),
            written: 0,
            refused: 0,
            unread: 0,
            published: Some(published),
        })
    }

    /// Adds the frames that a node passes.
    pub fn take(&mut self, passed: &Passed<'_>, mark: impl Fn(usize) -> Mark) {
        let Some(published) = &self.published else { return };
        if published.readers() == 0 {
            self.unread += passed.mask.count() as u64;
            return;
        }
        let held = match self.options.prefers_slow {
            true => published.held(&self.index),
            false => Held::Nothing,
        };
        let stored = Arc::clone(&self.stored);
        let stored = &mut *lock(&stored);
        self.know(passed, &mut stored.packets);
        PLACES.with_borrow_mut(|all| {
            let places = Places::of(all, stored.id, passed.serial);
            for index in passed.mask.iter() {
                let Some(frame) = passed.frames.get(index) else { break };
                let frame = cut(frame, self.options.snaplen);
                let place = match places[index] {
                    Some((len, place)) if len == frame.data.len() => place,
                    _ => {
                        let from = self.origins.1.get(frame.interface as usize);
                        let from = from.copied().flatten();
                        let place = stored.packets.put_from(&frame, from, held).ok();
                        places[index] = Some((frame.data.len(), place));
                        place
                    }
                };
                match place {
                    Some(placed) => {
                        self.index.push_as(0, &placed, mark(index));
                        self.written += 1;
                    }
                    None => {
                        self.index.refuse();
                        self.refused += 1;
                    }
                }
            }
        });
        if let Some(published) = &self.published {
            published.wake();
        }
    }

    /// Tells readers from which interfaces frames come: once for a source, and when it has new ones.
    fn know(&mut self, passed: &Passed<'_>, packets: &mut Packets) {
        let (source, count) = (passed.source, passed.interfaces.len());
        if self.origins.0 == Some(source) && self.origins.1.len() == count {
            return;
        }
        let numbers = passed.interfaces.iter().map(|one| packets.origin(&origin(one)));
        self.origins = (Some(source), numbers.collect());
        let known = self.origins.1.iter().flatten();
        known.for_each(|&number| self.index.comes_from(0, number));
    }

    /// Values that readers of the ring see.
    pub fn values(&self) -> Arc<Values> {
        Arc::clone(&self.values)
    }

    /// Ends the ring: no frame will follow.
    pub fn close(&mut self) {
        self.index.close();
        self.published = None;
    }

    /// Counters: frames in the ring, refused ones, and those that passed without a reader.
    pub fn counters(&self) -> Vec<Counter> {
        vec![
            Counter::count("written", self.written),
            Counter::count("refused", self.refused),
            Counter::count("unread", self.unread),
        ]
    }
}

impl Stored {
    /// The packet buffer for an export.
    fn of(options: &Options) -> Result<Arc<Mutex<Stored>>, RingError> {
        let new = || {
            let id = MADE.fetch_add(1, Ordering::Relaxed);
            let packets = Packets::create(options.buffer)?;
            Ok(Arc::new(Mutex::new(Stored { id, packets })))
        };
        if options.prefers_slow {
            return new();
        }
        let mut shared = lock(&SHARED);
        shared.retain(|_, stored| stored.strong_count() > 0);
        if let Some(stored) = shared.get(&options.buffer).and_then(Weak::upgrade) {
            return Ok(stored);
        }
        let stored = new()?;
        shared.insert(options.buffer, Arc::downgrade(&stored));
        Ok(stored)
    }
}

impl Places {
    /// The places of a batch in a packet buffer; none yet if the batch is new there.
    fn of(all: &mut Vec<Places>, buffer: u64, serial: u64) -> &mut [Place; BATCH_CAPACITY] {
        let at = match all.iter().position(|places| places.buffer == buffer) {
            Some(at) => at,
            None => {
                // Places of buffers that are gone stay until then.
                all.truncate(REMEMBERED - 1);
                let places = Box::new([None; BATCH_CAPACITY]);
                all.insert(0, Places { buffer, serial, places });
                0
            }
        };
        let places = &mut all[at];
        if places.serial != serial {
            places.serial = serial;
            places.places.fill(None);
        }
        &mut places.places
    }
}

/// An interface as a ring names it.
fn origin(interface: &Interface) -> Origin {
    Origin {
        name: interface.name.clone(),
        link: interface.link,
        snaplen: interface.snaplen,
        nanoseconds: interface.nanoseconds,
        netmask: interface.netmask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_limits() {
        assert_eq!(
            (bytes("8192"), bytes("8k"), bytes("64M")),
            (Some(8192), Some(8192), Some(64 << 20))
        );
        assert_eq!(bytes("1G"), Some(1 << 30));
        for wrong in ["", "M", "8191", "2G", "64MB", "-1", "99999999999G", "1.5M", "64 M"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
