//! Class `toring`: puts frames into a ring in shared memory, for other processes to read, and passes them.
//!
//! A frame is stored once, whatever the number of rings of this process that receive it (and cut it to the same
//! length): they share one packet buffer
//! and have an index buffer each. Readers that are too slow lose the oldest frames and are told the number; the graph
//! does not wait for them. Memory: 64 MiB for all rings, and 8 bytes for each of the 65,536 frames of a ring. Cost: a
//! copy of the frame for the first ring, a store for each other one. Source: FFPF, section 2.4 (packet and index
//! buffers).

use crate::snaplen::{SNAPLEN, cut, snaplen};
use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Parameter};
use crate::node::Settings;
use fyke_frame::{BATCH_CAPACITY, LinkType, Mask};
use fyke_ring::{Index, Packets, Publication};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Memory for frames, in bytes.
const PACKET_BYTES: usize = 64 << 20;
/// Most frames of a ring.
const PLACES: usize = 1 << 16;

/// The packet buffer of this process, for as long as a ring uses it.
static SHARED: Mutex<Weak<Mutex<Stored>>> = Mutex::new(Weak::new());

/// State that all rings share.
struct Stored {
    packets: Packets,
    /// Batch that was stored last, and the lengths and positions of its frames; no position for a frame that did not
    /// fit.
    serial: Option<u64>,
    places: [Option<(usize, Option<u64>)>; BATCH_CAPACITY],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ToRing {
    stored: Arc<Mutex<Stored>>,
    index: Index,
    link: LinkType,
    snaplen: usize,
    written: u64,
    /// Frames that are too large, or of a link type other than the ring's.
    refused: u64,
    published: Option<Publication>,
}

impl Node for ToRing {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut stored = lock(&self.stored);
        let stored = &mut *stored;
        if stored.serial.replace(arrival.serial()) != Some(arrival.serial()) {
            stored.places = [None; BATCH_CAPACITY];
        }
        for (index, frame) in arrival.frames() {
            let (fits, frame) = (frame.link == self.link, cut(frame, self.snaplen));
            let stored_place = || match stored.places[index] {
                Some((len, place)) if len == frame.data.len() => place,
                _ => {
                    let place = stored.packets.put(&frame).ok();
                    stored.places[index] = Some((frame.data.len(), place));
                    place
                }
            };
            match fits.then(stored_place).flatten() {
                Some(place) => {
                    self.index.push(place);
                    self.written += 1;
                }
                None => self.refused += 1,
            }
        }
        Ok(arrival.mask())
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.index.close();
        self.published = None;
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("written", self.written), Counter::count("refused", self.refused)]
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let path = settings.required("expression")?;
    let refused = |what: &str, error: &dyn std::fmt::Display| {
        MakeError::refused("expression", format!("{what} {path}: {error}"))
    };
    let no_memory = |error| refused("no memory for the ring", &error);
    let mut shared = lock(&SHARED);
    let stored = match shared.upgrade() {
        Some(stored) => stored,
        None => {
            let packets = Packets::create(PACKET_BYTES).map_err(no_memory)?;
            let places = [None; BATCH_CAPACITY];
            Arc::new(Mutex::new(Stored { packets, serial: None, places }))
        }
    };
    let link = settings.link().unwrap_or(LinkType::EN10MB);
    let index = Index::create(PLACES, link).map_err(no_memory)?;
    let published = Publication::new(Path::new(path), &lock(&stored).packets, &index);
    let published = published.map_err(|error| refused("cannot publish the ring", &error))?;
    *shared = Arc::downgrade(&stored);
    let published = Some(published);
    let snaplen = snaplen(settings)?;
    Ok(Box::new(ToRing { stored, index, link, snaplen, written: 0, refused: 0, published }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "toring",
    aliases: &["to_ring"],
    summary: "puts frames into the ring in shared memory `expression` and passes them",
    lasting: true,
    parameters: &[
        Parameter { name: "expression", summary: "the path at which readers find the ring" },
        SNAPLEN,
    ],
    check: Some(|settings| {
        settings.required("expression")?;
        snaplen(settings).map(drop)
    }),
    make,
    ..Class::NODE
};
