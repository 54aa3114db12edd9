//! One source for several workers: each gets a source of its own with its share of the conversations, in order.
//!
//! A thread reads the source and distributes copies of its frames by [`FlowHash`], in parcels of up to 256 frames
//! that are returned and reused, so nothing is allocated after the start. The thread waits for a slow worker;
//! meanwhile the source holds the frames that arrive, or counts them as dropped. It does not wait for a worker that
//! is gone: its frames count as dropped. At most [`QUEUED`] parcels wait per worker. Order between conversations is
//! not kept. For an interface, several rings avoid the copy: [`crate::RingSource::open_several`].
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_capture as capture, fyke_frame as frame}; }
//! use fyke::capture::{MemorySource, Next, Source, fan_out};
//! use fyke::frame::{Frame, LinkType};
//!
//! let mut source = MemorySource::new(LinkType::EN10MB);
//! source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
//! source.repeat(1_000);
//! let shares = fan_out(source, 2)?;
//! let count = |mut share: fyke::capture::FanSource| {
//!     let mut count = 0;
//!     loop {
//!         match share.next().expect("memory cannot fail") {
//!             Next::Frames(batch, _) => count += batch.len(),
//!             Next::Idle => {}
//!             Next::End => return count,
//!         }
//!     }
//! };
//! let workers: Vec<_> = shares.into_iter().map(|one| std::thread::spawn(move || count(one))).collect();
//! let counts = workers.into_iter().map(|worker| worker.join().expect("no panic"));
//! assert_eq!(counts.sum::<usize>(), 1_000);
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::error::ReadError;
use crate::flow::FlowHash;
use crate::source::{Interface, LookBack, Next, Source, SourceStats};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Meta};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Most parcels that wait for a worker.
pub const QUEUED: usize = 8;
/// Longest wait of a call for a frame, by default.
const WAIT: Duration = Duration::from_millis(100);

/// Frames for a worker, all of one link type.
#[derive(Debug, Default)]
struct Parcel {
    bytes: Vec<u8>,
    frames: Vec<Place>,
    interfaces: Arc<[Interface]>,
}

/// A frame of a parcel.
#[derive(Debug)]
struct Place {
    bytes: Range<usize>,
    wire_len: u32,
    timestamp_ns: u64,
    link: LinkType,
    interface: u32,
    meta: Meta,
}

impl Parcel {
    fn push(&mut self, frame: &Frame<'_>) {
        let Frame { data, wire_len, timestamp_ns, link, interface, meta } = *frame;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(data);
        let bytes = start..self.bytes.len();
        self.frames.push(Place { bytes, wire_len, timestamp_ns, link, interface, meta });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }

    fn batch(&self) -> Batch<'_> {
        let mut batch = Batch::new();
        for place in &self.frames {
            let Place { wire_len, timestamp_ns, link, interface, meta, .. } = *place;
            let data = &self.bytes[place.bytes.clone()];
            let pushed = batch.push(Frame { data, wire_len, timestamp_ns, link, interface, meta });
            debug_assert!(pushed.is_ok(), "not too many, of one link type");
        }
        batch
    }
}

/// Message to a worker: frames, or the error that ends them.
type Sent = Result<Parcel, ReadError>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts of all workers.
#[derive(Debug)]
struct Counts {
    /// Counts of the source: it knows the frames that it dropped or left out.
    before: Mutex<SourceStats>,
    workers: Vec<Worker>,
}

/// Frame counts of one worker.
#[derive(Debug, Default)]
struct Worker {
    meant: AtomicU64,
    delivered: AtomicU64,
    gone: AtomicBool,
}

impl Counts {
    /// Number of frames assigned to workers that are gone and not delivered.
    fn lost(&self) -> u64 {
        let gone = self.workers.iter().filter(|worker| worker.gone.load(Ordering::Acquire));
        let lost = gone.map(|worker| {
            let delivered = worker.delivered.load(Ordering::Acquire);
            worker.meant.load(Ordering::Acquire).saturating_sub(delivered)
        });
        lost.sum()
    }
}

/// The source of one worker.
#[derive(Debug)]
pub struct FanSource {
    number: usize,
    parcels: Receiver<Sent>,
    /// Returns parcels that have been read.
    used: Sender<Parcel>,
    current: Parcel,
    counts: Arc<Counts>,
    patience: Duration,
    ended: bool,
}

/// Distributes the frames of a source over `workers` workers (at least one). The first of them also reports the
/// frames that the source dropped, and its failure.
///
/// # Errors
/// If the thread cannot be started.
pub fn fan_out(source: impl Source + 'static, workers: usize) -> io::Result<Vec<FanSource>> {
    let workers = workers.max(1);
    let counts = Arc::new(Counts {
        before: Mutex::default(),
        workers: (0..workers).map(|_| Worker::default()).collect(),
    });
    let mut shares = Vec::new();
    let interfaces: Arc<[Interface]> = source.interfaces().into();
    let mut feeds = Vec::new();
    for number in 0..workers {
        let (sender, parcels) = sync_channel(QUEUED);
        let (used, free) = channel();
        let interfaces = Arc::clone(&interfaces);
        feeds.push(Feed { sender: Some(sender), free, filling: Parcel::default() });
        shares.push(FanSource {
            number,
            parcels,
            used,
            current: Parcel { interfaces, ..Parcel::default() },
            counts: Arc::clone(&counts),
            patience: WAIT,
            ended: false,
        });
    }
    let feeder = Feeder { hash: FlowHash::random(), feeds, interfaces, counts };
    thread::Builder::new().name("fan".to_owned()).spawn(move || feeder.run(source))?;
    Ok(shares)
}

/// One worker, seen by the feeder.
struct Feed {
    /// `None` if the worker is gone.
    sender: Option<SyncSender<Sent>>,
    free: Receiver<Parcel>,
    filling: Parcel,
}

impl Feed {
    /// Sends the current parcel, and detects that the worker is gone.
    fn send(&mut self, interfaces: &Arc<[Interface]>, meant: &AtomicU64) {
        let mut empty = match self.free.try_recv() {
            Ok(parcel) => parcel,
            Err(TryRecvError::Empty) => Parcel::default(),
            Err(TryRecvError::Disconnected) => {
                self.sender = None;
                Parcel::default()
            }
        };
        empty.clear();
        let mut parcel = std::mem::replace(&mut self.filling, empty);
        if parcel.frames.is_empty() {
            return;
        }
        meant.fetch_add(parcel.frames.len() as u64, Ordering::Release);
        parcel.interfaces = Arc::clone(interfaces);
        if self.sender.as_ref().is_some_and(|sender| sender.send(Ok(parcel)).is_err()) {
            self.sender = None;
        }
    }
}

struct Feeder {
    hash: FlowHash,
    feeds: Vec<Feed>,
    interfaces: Arc<[Interface]>,
    counts: Arc<Counts>,
}

impl Feeder {
    /// Reads the source to its end, or until all workers are gone.
    fn run(mut self, mut source: impl Source) {
        let mut batches = 0;
        while self.feeds.iter().any(|feed| feed.sender.is_some()) {
            let more = match source.next() {
                Ok(Next::Frames(batch, look_back)) => {
                    self.share(&batch, look_back.interfaces());
                    batches += 1;
                    Ok(true)
                }
                Ok(Next::Idle) => {
                    batches = self.feeds.len();
                    Ok(true)
                }
                Ok(Next::End) => Ok(false),
                Err(error) => Err(error),
            };
            // A parcel is full about then, so frames do not wait longer.
            if batches >= self.feeds.len() || !matches!(more, Ok(true)) {
                self.flush();
                batches = 0;
                *lock(&self.counts.before) = source.stats();
            }
            match more {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let first = self.feeds.first().and_then(|feed| feed.sender.as_ref());
                    // The error is dropped if the first worker is gone.
                    let _told = first.map(|sender| sender.send(Err(error)));
                    return;
                }
            }
        }
    }

    fn share(&mut self, batch: &Batch<'_>, interfaces: &[Interface]) {
        if interfaces.len() != self.interfaces.len() {
            // Waiting frames were captured with fewer interfaces, which keep their numbers.
            self.interfaces = interfaces.into();
        }
        for frame in batch.frames() {
            let place = self.hash.worker(frame, self.feeds.len());
            let feed = &mut self.feeds[place];
            let full = feed.filling.frames.len() == BATCH_CAPACITY;
            if full || feed.filling.frames.first().is_some_and(|first| first.link != frame.link) {
                feed.send(&self.interfaces, &self.counts.workers[place].meant);
            }
            feed.filling.push(frame);
        }
    }

    fn flush(&mut self) {
        for (feed, worker) in self.feeds.iter_mut().zip(&self.counts.workers) {
            feed.send(&self.interfaces, &worker.meant);
        }
    }
}

impl Source for FanSource {
    fn interfaces(&self) -> &[Interface] {
        &self.current.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        if self.ended {
            return Ok(Next::End);
        }
        let next = match self.parcels.recv_timeout(self.patience) {
            Ok(Ok(parcel)) => parcel,
            Ok(Err(error)) => {
                self.ended = true;
                return Err(error);
            }
            Err(RecvTimeoutError::Timeout) => return Ok(Next::Idle),
            Err(RecvTimeoutError::Disconnected) => {
                self.ended = true;
                return Ok(Next::End);
            }
        };
        // The feeder may have ended; then the parcel is not needed any more.
        let _returned = self.used.send(std::mem::replace(&mut self.current, next));
        let mut batch = self.current.batch();
        let delivered = &self.counts.workers[self.number].delivered;
        batch.first_sequence = delivered.fetch_add(batch.len() as u64, Ordering::Release);
        Ok(Next::Frames(batch, LookBack::none(&self.current.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        let delivered = self.counts.workers[self.number].delivered.load(Ordering::Acquire);
        let own = SourceStats { received: delivered, delivered, ..SourceStats::default() };
        if self.number > 0 {
            return own;
        }
        let before = *lock(&self.counts.before);
        let dropped = before.dropped + self.counts.lost();
        let received = delivered + dropped + before.ignored + before.unreadable;
        SourceStats { received, delivered, dropped, ..before }
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }
}

impl Drop for FanSource {
    fn drop(&mut self) {
        self.counts.workers[self.number].gone.store(true, Ordering::Release);
    }
}
