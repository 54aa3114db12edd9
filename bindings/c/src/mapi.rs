//! Flows of MAPI: a source, a linear chain of functions, and a thread that applies it. Safe code only.
//!
//! The text of a `BPF_FILTER` at the head of the chain is that of the reader, so a service rejects the other frames
//! before they are stored. Results are counters in memory that stays until the flow is closed.
//!
//! Source: FFPF, section 6 (MAPI over flow graphs); the calls and functions are those of SCAMPI's MAPI.

use crate::mapi_derived::Cells;
use crate::mapi_functions::{Function, Given, chain};
use crate::reader::{FykeReader, Taken};
use fyke_frame::LinkType;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most functions of a flow.
const MAX_FUNCTIONS: usize = 64;
/// Most packets, and bytes of them, that wait for the program.
const MAX_PACKETS: usize = 65_536;
const MAX_BYTES: usize = 64 << 20;
/// Frames of one call of the reader.
const FRAMES: usize = 256;
/// Longest wait without a look at the end of the flow.
const LOOK: Duration = Duration::from_millis(50);

/// A packet that waits for the program.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Captured bytes.
    pub bytes: Vec<u8>,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Time of capture, nanoseconds since 1970.
    pub timestamp_ns: u64,
    /// Interface of the source, from 0.
    pub interface: u32,
    /// Link type.
    pub link: LinkType,
}

/// Packets on their way to the program.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Packet>,
    bytes: usize,
    ended: bool,
    error: Option<String>,
    /// True once the program has got the error.
    is_told: bool,
}

/// State that the thread of a flow and the program share.
pub struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    stop: AtomicBool,
}

/// A flow.
pub struct Flow {
    source: String,
    /// The chain; of a connected flow, its thread has it.
    functions: Vec<(Function, Cells)>,
    /// Results of the functions, by number.
    results: Vec<Cells>,
    /// The number of TO_BUFFER.
    buffer: Option<usize>,
    /// State that its thread shares with the program.
    pub shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

type Done<T> = Result<T, String>;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing is changed in steps.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a packet; `None`: the flow has ended.
    pub fn next(&self) -> Done<Option<Packet>> {
        let mut queue = self.lock();
        loop {
            if let Some(packet) = queue.packets.pop_front() {
                queue.bytes -= packet.bytes.len();
                self.changed.notify_all();
                return Ok(Some(packet));
            }
            if queue.ended || self.stop.load(Ordering::Relaxed) {
                queue.is_told = true;
                return queue.error.clone().map_or(Ok(None), Err);
            }
            let waited = self.changed.wait_timeout(queue, LOOK);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The error with which the flow has ended, unless the program has got it.
    pub fn untold(&self) -> Option<String> {
        let mut queue = self.lock();
        let is_told = std::mem::replace(&mut queue.is_told, true);
        queue.error.clone().filter(|_| !is_told)
    }

    /// Stores a packet. One of a file waits until there is room; false: there is none.
    pub fn push(&self, packet: Packet, waits: bool) -> bool {
        let mut queue = self.lock();
        let is_full =
            |queue: &Queue| queue.packets.len() >= MAX_PACKETS || queue.bytes >= MAX_BYTES;
        while is_full(&queue) {
            if !waits || self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let waited = self.changed.wait_timeout(queue, LOOK);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.bytes += packet.bytes.len();
        queue.packets.push_back(packet);
        self.changed.notify_all();
        true
    }
}

impl Flow {
    /// Makes a flow that is not connected.
    pub fn new(source: &str) -> Flow {
        let shared = Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        };
        Flow {
            source: source.to_owned(),
            functions: Vec::new(),
            results: Vec::new(),
            buffer: None,
            shared: Arc::new(shared),
            thread: None,
        }
    }

    /// Adds a function to the chain; returns its number.
    pub fn apply(&mut self, name: &str, given: &Given<'_>) -> Done<usize> {
        if self.is_connected() {
            return Err("the flow is connected: functions are applied before".to_owned());
        }
        let place = self.results.len();
        if place == MAX_FUNCTIONS {
            return Err(format!("a flow has at most {MAX_FUNCTIONS} functions"));
        }
        let (function, result) = Function::new(name, given)?;
        if matches!(function, Function::Buffer) {
            if self.buffer.is_some() {
                return Err("the flow has a TO_BUFFER: a flow has one".to_owned());
            }
            self.buffer = Some(place);
        }
        self.results.push(Arc::clone(&result));
        self.functions.push((function, result));
        Ok(place)
    }

    /// The result of a function.
    pub fn result(&self, function: i32) -> Option<&Cells> {
        self.results.get(usize::try_from(function).ok()?)
    }

    /// True if this function keeps packets and the flow is connected.
    pub fn is_buffer(&self, function: i32) -> bool {
        self.is_connected() && self.buffer.is_some_and(|own| usize::try_from(function) == Ok(own))
    }

    fn is_connected(&self) -> bool {
        self.thread.is_some()
    }

    /// Opens the source and starts the thread.
    pub fn connect(&mut self) -> Done<()> {
        if self.is_connected() {
            return Err("the flow is connected".to_owned());
        }
        let head = match self.functions.first() {
            Some((Function::Text(text) | Function::Head(text), _)) => text,
            _ => "",
        };
        let reader = FykeReader::open(&self.source, head)?;
        for (number, (function, _)) in self.functions.iter_mut().enumerate() {
            function.connect((reader.link(), number == 0), reader.interfaces())?;
        }
        let functions = std::mem::take(&mut self.functions);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("mapi".to_owned());
        let run = move || run(reader, functions, &shared);
        self.thread = Some(thread.spawn(run).map_err(|error| format!("no thread: {error}"))?);
        Ok(())
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.end();
    }
}

impl Flow {
    /// Ends the thread.
    pub fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the flow only.
            let _panic = thread.join();
        }
    }
}

/// Marks the end of a flow even if its thread panics.
struct Ending<'a>(&'a Shared, Option<String>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        (queue.ended, queue.error) = (true, self.1.take());
        self.0.changed.notify_all();
    }
}

/// The loop of a flow.
fn run(mut reader: FykeReader, mut functions: Vec<(Function, Cells)>, shared: &Shared) {
    let mut ending = Ending(shared, Some("the thread of the flow has failed".to_owned()));
    let read = read(&mut reader, &mut functions, shared);
    // All files are complete, whatever the others are.
    let finish = |(function, cells): (Function, Cells)| function.finish(&cells);
    let finished: Vec<_> = functions.into_iter().map(finish).collect();
    let finished: Done<()> = finished.into_iter().collect();
    ending.1 = read.and(finished).err();
}

/// Reads until the end of the source, or of the flow.
fn read(reader: &mut FykeReader, functions: &mut [(Function, Cells)], shared: &Shared) -> Done<()> {
    let waits = reader.is_file();
    while !shared.stop.load(Ordering::Relaxed) {
        let mut packets = Vec::new();
        let taken = reader.next(FRAMES, LOOK, |_, kept, bytes| {
            packets.push(Packet {
                bytes: bytes.to_vec(),
                wire_len: kept.wire_len,
                timestamp_ns: kept.timestamp_ns,
                interface: kept.interface,
                link: kept.link,
            });
        })?;
        for packet in packets {
            chain(functions, &packet, (shared, waits, reader.interfaces()))?;
        }
        if taken == Taken::End {
            break;
        }
    }
    Ok(())
}
