//! Frames in memory, cache- or DRAM-resident, in the form that each engine needs.
//!
//! An [`Arena`] owns the bytes of many frames, each at address 16n + 2 as drivers place them, so that the IPv4
//! header is aligned. A [`Load`] is a selection of its frames in some order, in three forms built outside the
//! measured time: [`Frame`]s, full batches (ours), and 16-byte descriptors (for compiled C and JIT: less memory to
//! read).

use super::BenchError;
use super::traffic::{Random, Traffic};
use crate::peers::native::{AHEAD, Descriptor};
use fyke_capture::{Next, Source};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType};
use std::path::Path;

/// Frames of a cache-resident load: with their descriptors they fit into a second-level cache of 1 MiB.
pub const CACHE_FRAMES: usize = 4_096;
/// Maximum bytes of frames read from a file.
const MAX_FILE_BYTES: usize = 2 << 30;

#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    len: u32,
    wire_len: u32,
}

/// The bytes of many Ethernet frames.
#[derive(Debug, Default)]
pub struct Arena {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Arena {
    /// Copies a frame into the arena.
    pub fn push(&mut self, data: &[u8], wire_len: u32) {
        let start = self.bytes.len().next_multiple_of(16) + 2;
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(data);
        self.places.push(Place { start, len: data.len() as u32, wire_len });
    }

    /// Generates frames: at least this number and at least this many bytes.
    pub fn synthetic(traffic: &mut Traffic, min_frames: usize, min_bytes: usize) -> Arena {
        let mut arena = Arena { bytes: Vec::with_capacity(min_bytes + 4096), places: Vec::new() };
        let mut frame = Vec::with_capacity(2048);
        while arena.places.len() < min_frames || arena.bytes.len() < min_bytes {
            traffic.next(&mut frame);
            arena.push(&frame, frame.len() as u32);
        }
        arena
    }

    /// Reads the Ethernet frames of a capture file, up to `max_bytes` of them (0 = all up to 2 GiB).
    ///
    /// # Errors
    /// If the file cannot be read or has no Ethernet frame.
    pub fn from_file(path: &Path, max_bytes: usize) -> Result<Arena, BenchError> {
        let failed = |message: String| BenchError::File { path: path.to_owned(), message };
        let limit = if max_bytes == 0 { MAX_FILE_BYTES } else { max_bytes };
        let mut source =
            fyke_capture::open_file(path).map_err(|error| failed(error.to_string()))?;
        let mut arena = Arena::default();
        while arena.bytes.len() < limit {
            match source.next().map_err(|error| failed(error.to_string()))? {
                Next::Frames(batch, _) => {
                    let ethernet = |frame: &&Frame| frame.link == LinkType::EN10MB;
                    for frame in batch.frames().iter().filter(ethernet) {
                        arena.push(frame.data, frame.wire_len);
                    }
                }
                Next::Idle => {}
                Next::End => break,
            }
        }
        if arena.places.is_empty() {
            return Err(failed("there is no Ethernet frame in it".to_owned()));
        }
        Ok(arena)
    }

    /// Appends copies of the frames until there are this many bytes.
    pub fn repeat_to(&mut self, min_bytes: usize) {
        let once = self.places.len();
        self.bytes.reserve((min_bytes + 4096).saturating_sub(self.bytes.len()));
        while once > 0 && self.bytes.len() < min_bytes {
            for index in 0..once {
                let Place { start, len, wire_len } = self.places[index];
                let target = self.bytes.len().next_multiple_of(16) + 2;
                self.bytes.resize(target, 0);
                self.bytes.extend_from_within(start..start + len as usize);
                self.places.push(Place { start: target, len, wire_len });
            }
        }
    }

    /// Copies some frames into a compact arena, so that gaps affect neither caches nor address translation.
    ///
    /// # Panics
    /// If a number is out of range.
    pub fn copy_of(&self, numbers: &[u32]) -> Arena {
        let mut arena = Arena::default();
        for &number in numbers {
            let frame = self.frame(number as usize);
            arena.push(frame.data, frame.wire_len);
        }
        arena
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there are no frames.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of memory used by the frames.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns one frame.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn frame(&self, index: usize) -> Frame<'_> {
        let place = &self.places[index];
        let data = &self.bytes[place.start..place.start + place.len as usize];
        let mut frame = Frame::new(LinkType::EN10MB, data);
        frame.wire_len = place.wire_len;
        frame
    }
}

/// Frames of an arena in some order.
#[derive(Debug)]
pub struct Load<'a> {
    arena: &'a Arena,
    order: Vec<u32>,
    batches: Vec<Batch<'a>>,
    descriptors: Vec<Descriptor<'a>>,
}

impl<'a> Load<'a> {
    /// Creates a load of these frames in this order. The last batch may be partial.
    pub fn new(arena: &'a Arena, order: Vec<u32>) -> Load<'a> {
        let count = order.len().div_ceil(BATCH_CAPACITY);
        let batches = (0..count).map(|_| Batch::new()).collect();
        let descriptors = vec![Descriptor::default(); order.len() + AHEAD];
        let mut load = Load { arena, order, batches, descriptors };
        load.lay_out();
        load
    }

    /// Shuffles the frames.
    pub fn shuffle(&mut self, random: &mut Random) {
        random.shuffle(&mut self.order);
        self.lay_out();
    }

    /// Loads headers and descriptors into the cache, so that each engine finds them there even if the engine before
    /// it has evicted them. A repeated order would train the processor's branch prediction.
    pub fn touch(&self) {
        let mut sum = 0_u32;
        for batch in &self.batches {
            for (data, len) in batch.bytes().iter().zip(&batch.lengths().0) {
                let byte = |at: usize| u32::from(data.get(at).copied().unwrap_or(0));
                sum ^= byte(12) ^ byte(60) ^ len;
            }
        }
        let lens = self.descriptors.iter().map(Descriptor::captured_len);
        std::hint::black_box(lens.fold(sum, |sum, len| sum ^ len));
    }

    fn lay_out(&mut self) {
        let chunks = self.order.chunks(BATCH_CAPACITY);
        for (batch, numbers) in self.batches.iter_mut().zip(chunks) {
            batch.clear();
            for &number in numbers {
                // All frames are Ethernet, and a chunk is at most one batch long.
                let pushed = batch.push(self.arena.frame(number as usize));
                debug_assert!(pushed.is_ok());
            }
        }
        let count = self.order.len();
        for index in 0..if count == 0 { 0 } else { count + AHEAD } {
            let frame = self.arena.frame(self.order[index % count] as usize);
            self.descriptors[index] = Descriptor::new(&frame);
        }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns true if there are no frames.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Indices of the frames in the arena, in order.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Batches; all but the last are full.
    pub fn batches(&self) -> &[Batch<'a>] {
        &self.batches
    }

    /// Descriptors: one per frame, and [`AHEAD`] more for engines that prefetch.
    pub fn descriptors(&self) -> &[Descriptor<'a>] {
        &self.descriptors
    }
}

/// Evicts the caches: more memory than they hold, read line by line.
#[derive(Debug)]
pub struct Eviction(Vec<u64>);

impl Eviction {
    /// Allocates this many bytes.
    pub fn new(bytes: usize) -> Eviction {
        Eviction(vec![1; bytes / 8])
    }

    /// Reads the memory.
    pub fn run(&mut self) {
        self.0.iter_mut().step_by(8).for_each(|word| *word = word.wrapping_add(1));
        std::hint::black_box(&self.0);
    }
}
