//! Files of readers: a graph writes pcap files to descriptors that its reader has sent, with class `tofd`.
//!
//! ```text
//! reader ── files, with descriptors ─▶ service ── numbers ─▶ reader ── graph `… > (tofd, NUMBER)` ─▶ service
//! ```
//!
//! The service never opens a path for a reader; the descriptor has the rights with which the reader has opened it. Only
//! files and pipes that may be written are taken. Numbers are random, so a reader cannot name the file of another one.
//!
//! Writing never delays the capture: frames wait in a queue of [`MAX_QUEUED`] bytes, which a thread writes; a frame for
//! which there is no room is lost and counted at the node. When the reader ends, the thread has [`LAST_WRITES`] for the
//! rest. A pipe is written only when it has room. A file in a file system that does not answer holds its thread, which
//! counts for its user until it ends.
//!
//! Cost: a copy of each frame.

use fyke_frame::{Frame, Mask};
use fyke_graph::Classes;
use fyke_graph::node::{
    Arrival, Class, Counter, MakeError, Needs, Node, NodeError, Opens, Parameter, Settings,
};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes that wait for a file.
pub const MAX_QUEUED: usize = 4 << 20;
/// Most files of one user at a time.
pub const MAX_FILES: usize = 32;
/// Longest time for writing what waits when the reader has ended.
pub const LAST_WRITES: Duration = Duration::from_secs(1);
/// Bytes that a pipe with room takes without waiting.
const PAGE: usize = 4096;
const LOOK: Duration = Duration::from_millis(50);

/// Records of frames, and where each ends; the head of the file is none.
struct Chunk {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// Counts and state that the node and the thread of a file share.
#[derive(Debug, Default)]
struct Shared {
    queued: AtomicUsize,
    written: AtomicU64,
    lost: AtomicU64,
    /// True once the reader has ended.
    closing: AtomicBool,
    /// True once nothing more is written.
    is_over: AtomicBool,
    has_head: AtomicBool,
}

/// A file of a reader.
#[derive(Debug, Clone)]
struct Outlet {
    sender: Sender<Chunk>,
    shared: Arc<Shared>,
}

/// The files of all readers, by their numbers.
#[derive(Debug, Default)]
pub struct Files {
    all: Mutex<BTreeMap<u64, Outlet>>,
    /// Files of each user with threads that have not ended.
    of_users: Mutex<BTreeMap<u32, Arc<AtomicUsize>>>,
}

impl Files {
    /// Takes descriptors of a user; returns their numbers.
    ///
    /// # Errors
    /// One of them is not a file or pipe that may be written, or the user has too many; none is taken then.
    pub fn add(&self, user: u32, descriptors: Vec<OwnedFd>) -> Result<Vec<u64>, String> {
        let is_pipe = descriptors.iter().map(check).collect::<Result<Vec<bool>, String>>()?;
        let used = Arc::clone(
            self.of_users.lock().unwrap_or_else(PoisonError::into_inner).entry(user).or_default(),
        );
        let before = used.fetch_add(descriptors.len(), Ordering::Relaxed);
        if before + descriptors.len() > MAX_FILES {
            used.fetch_sub(descriptors.len(), Ordering::Relaxed);
            return Err(format!("{before} files of user {user} are open, of at most {MAX_FILES}"));
        }
        let mut numbers = Vec::new();
        for (descriptor, is_pipe) in descriptors.into_iter().zip(is_pipe) {
            let number = RandomState::new().hash_one(numbers.len()) >> 1 | 1;
            let (sender, receiver) = channel();
            let shared = Arc::new(Shared::default());
            let (writes, seat) = (Arc::clone(&shared), Seat(Arc::clone(&used)));
            let thread = thread::Builder::new().name("serve-file".to_owned());
            let spawned = thread.spawn(move || {
                let _until_the_end = seat;
                write(File::from(descriptor), is_pipe, &receiver, &writes);
            });
            spawned.map_err(|error| format!("no thread for a file: {error}"))?;
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(number, Outlet { sender, shared });
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// Ends files: what waits is written, for a while.
    pub fn end(&self, numbers: &[u64]) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for outlet in numbers.iter().filter_map(|number| all.remove(number)) {
            outlet.shared.closing.store(true, Ordering::Release);
        }
    }

    fn get(&self, number: u64) -> Option<Outlet> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}

/// Place of a file in the count of its user.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Checks a descriptor; true if it is a pipe.
fn check(descriptor: &OwnedFd) -> Result<bool, String> {
    let flags = fcntl_getfl(descriptor).map_err(|error| format!("a descriptor: {error}"))?;
    let may_write = flags.contains(OFlags::WRONLY) || flags.contains(OFlags::RDWR);
    if !may_write || flags.contains(OFlags::PATH) {
        return Err("a descriptor is not open for writing".to_owned());
    }
    let found = fstat(descriptor).map_err(|error| format!("a descriptor: {error}"))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(false),
        FileType::Fifo => Ok(true),
        other => Err(format!("a descriptor is {other:?}; expected a file or a pipe")),
    }
}

/// Writes chunks until the node or the reader has ended.
fn write(mut file: File, is_pipe: bool, chunks: &Receiver<Chunk>, shared: &Shared) {
    let mut deadline = None;
    let mut is_over = |shared: &Shared| {
        shared.closing.load(Ordering::Acquire)
            && deadline.get_or_insert_with(|| Instant::now() + LAST_WRITES) <= &mut Instant::now()
    };
    loop {
        let chunk = match chunks.recv_timeout(LOOK) {
            Ok(chunk) => chunk,
            Err(RecvTimeoutError::Timeout) if shared.closing.load(Ordering::Acquire) => break,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let mut done = 0;
        while done < chunk.bytes.len() && !is_over(shared) {
            let most = if is_pipe { PAGE } else { chunk.bytes.len() };
            if is_pipe && !has_room(&file) {
                continue;
            }
            let end = chunk.bytes.len().min(done + most);
            match file.write(&chunk.bytes[done..end]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => thread::sleep(LOOK),
                Err(_) => break,
            }
        }
        let written = chunk.ends.partition_point(|end| *end <= done) as u64;
        shared.written.fetch_add(written, Ordering::Relaxed);
        shared.lost.fetch_add(chunk.ends.len() as u64 - written, Ordering::Relaxed);
        shared.queued.fetch_sub(chunk.bytes.len(), Ordering::Release);
        if done < chunk.bytes.len() {
            // A file with half a record takes no other.
            break;
        }
    }
    shared.is_over.store(true, Ordering::Release);
    let left: u64 = chunks.try_iter().map(|chunk| chunk.ends.len() as u64).sum();
    shared.lost.fetch_add(left, Ordering::Relaxed);
}

fn has_room(file: &File) -> bool {
    // A reader that has closed its end is reported too; the write then fails.
    fyke_capture::wait_for_room(file.as_fd(), LOOK).unwrap_or(true)
}

struct ToFd {
    outlet: Outlet,
    snaplen: usize,
}

/// Head of a pcap file with nanoseconds, in the byte order of this machine.
fn head(link: u16, snaplen: u32) -> Vec<u8> {
    let versions = u32::from(2u16) | 4 << 16;
    let versions = if cfg!(target_endian = "big") { 2 << 16 | 4 } else { versions };
    let words = [0xa1b2_3c4d, versions, 0, 0, snaplen, u32::from(link)];
    words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

fn record(frame: &Frame<'_>, data: &[u8], into: &mut Vec<u8>) {
    let seconds = u32::try_from(frame.timestamp_ns / 1_000_000_000).unwrap_or(u32::MAX);
    let nanoseconds = (frame.timestamp_ns % 1_000_000_000) as u32;
    for word in [seconds, nanoseconds, data.len() as u32, frame.wire_len] {
        into.extend_from_slice(&word.to_ne_bytes());
    }
    into.extend_from_slice(data);
}

impl ToFd {
    fn put(&self, chunk: Chunk) {
        let (shared, count) = (&self.outlet.shared, chunk.ends.len() as u64);
        shared.queued.fetch_add(chunk.bytes.len(), Ordering::Acquire);
        let is_gone =
            shared.is_over.load(Ordering::Acquire) || self.outlet.sender.send(chunk).is_err();
        if is_gone {
            shared.lost.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl Node for ToFd {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let shared = &self.outlet.shared;
        let room = MAX_QUEUED.saturating_sub(shared.queued.load(Ordering::Acquire));
        let mut chunk = Chunk { bytes: Vec::new(), ends: Vec::new() };
        for (_, frame) in arrival.frames() {
            let data = &frame.data[..frame.data.len().min(self.snaplen)];
            if chunk.bytes.len() + 16 + data.len() > room {
                shared.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            record(frame, data, &mut chunk.bytes);
            chunk.ends.push(chunk.bytes.len());
        }
        if !chunk.ends.is_empty() {
            self.put(chunk);
        }
        Ok(arrival.mask())
    }

    fn lost(&self) -> u64 {
        self.outlet.shared.lost.load(Ordering::Relaxed)
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("written", self.outlet.shared.written.load(Ordering::Relaxed))]
    }
}

/// Name of the class.
pub const NAME: &str = "tofd";

const CLASS: Class = Class {
    name: NAME,
    summary: "writes a pcap file to a descriptor that the reader of a service has sent",
    parameters: &[
        Parameter { name: "expression", summary: "number of the file, as the service told it" },
        Parameter { name: "snaplen", summary: "most bytes of a frame (262144)" },
    ],
    opens: Opens::nothing,
    check: Some(|_| Ok(())),
    needs: |_| Needs::All("writes all frames"),
    ..Class::NODE
};

fn make(files: &Files, settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let number = settings.number("expression", 1..=u64::MAX)?;
    let snaplen = settings.number_or("snaplen", 1..=262_144, 262_144)? as u32;
    let outlet = files.get(number).ok_or_else(|| {
        MakeError::new("expression", "there is no file of this number; send its descriptor first")
    })?;
    let link = settings.link().unwrap_or(fyke_frame::LinkType::EN10MB).0;
    let node = ToFd { outlet, snaplen: snaplen as usize };
    if !node.outlet.shared.has_head.swap(true, Ordering::Relaxed) {
        node.put(Chunk { bytes: head(link, snaplen), ends: Vec::new() });
    }
    Ok(Box::new(node))
}

/// Adds the class to those of a service.
pub(crate) fn register(classes: &mut Classes, files: &Arc<Files>) {
    let files = Arc::clone(files);
    classes.register_with(CLASS, move |settings| make(&files, settings));
}
