//! Blocks of a capture file, read ahead of the parser, in their order.
//!
//! | input | reader |
//! |---|---|
//! | regular file | a thread and the parser: each reads the next block at its own offset (pread), whenever it is free |
//! | decompressor | a thread |
//!
//! So two cores share the copy out of the page cache, which is most of the work, and the parser never guesses where a
//! record begins: it gets the bytes of the file in order. A block in which the file ended is the last one, whatever a
//! later block holds. A quiet pipe of compressed data makes the parser wait at most its patience.
//!
//! Cost: [`BLOCKS`] blocks of [`BLOCK`] bytes, two lock operations for each block. With one processor there is no
//! thread for regular files: the parser reads each block itself, into the same memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a block.
pub(super) const BLOCK: usize = 1 << 19;
/// Free bytes before a block, for the start of a record that ends in it: more than the longest frame and its header.
pub(super) const ROOM: usize = (1 << 18) + (1 << 12);
/// Most blocks that are read ahead.
const BLOCKS: usize = 6;
/// Pause between two attempts, for readers that cannot be polled.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Memory with `ROOM` free bytes and then `len` bytes of the file.
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) len: usize,
}

/// End of the input after a block.
enum Last {
    No,
    End,
    Failed(io::Error),
}

/// Result of [`Ahead::next`].
pub(super) enum Got {
    Block(Block),
    Idle,
    End,
}

/// The parser's side.
pub(super) struct Ahead {
    shared: Arc<Shared>,
    /// The file, if the parser may read blocks, too.
    file: Option<Arc<At>>,
    /// End after the last block that was taken.
    last: Last,
}

/// A regular file and the offset of its first block.
struct At {
    file: File,
    start: u64,
}

struct Shared {
    state: Mutex<State>,
    /// A block is ready.
    ready: Condvar,
    /// A block may be read, or the parser is gone.
    free: Condvar,
}

struct State {
    /// Number of the next block that no thread reads yet.
    next: u64,
    /// Number of the block that the parser takes next; `ready[n]` is block `wanted + n`.
    wanted: u64,
    ready: VecDeque<Option<(Block, Last)>>,
    /// No block after this one is read.
    end: u64,
    pool: Vec<Vec<u8>>,
    is_gone: bool,
}

impl Ahead {
    /// Reads a regular file from an offset.
    pub(super) fn of_file(file: File, start: u64) -> Ahead {
        let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        let (shared, file) = (Arc::new(Shared::new()), Arc::new(At { file, start }));
        if several {
            let (shared, file) = (Arc::clone(&shared), Arc::clone(&file));
            // Without a thread, the parser reads all blocks.
            let _ = spawn(move || shared.read_file(&file));
        }
        Ahead { shared, file: Some(file), last: Last::No }
    }

    /// Reads from a reader that may wait, in a thread. Returns the reader if there can be no thread.
    pub(super) fn of_reader(reader: Box<dyn Read + Send>) -> Result<Ahead, Box<dyn Read + Send>> {
        let shared = Arc::new(Shared::new());
        let (gives, takes) = std::sync::mpsc::sync_channel(1);
        let blocks = Arc::clone(&shared);
        let started = spawn(move || {
            if let Ok(reader) = takes.recv() {
                blocks.read_all(reader);
            }
        });
        if started.is_err() {
            return Err(reader);
        }
        match gives.send(reader) {
            Ok(()) => Ok(Ahead { shared, file: None, last: Last::No }),
            Err(unsent) => Err(unsent.0),
        }
    }

    /// Takes the next block; waits for it, at most `patience` if it comes from a reader.
    pub(super) fn next(&mut self, patience: Duration) -> io::Result<Got> {
        match std::mem::replace(&mut self.last, Last::End) {
            Last::No => {}
            Last::End => return Ok(Got::End),
            Last::Failed(error) => return Err(error),
        }
        let mut state = self.shared.lock();
        loop {
            if let Some(Some(_)) = state.ready.front() {
                break;
            }
            match &self.file {
                Some(file) if state.may_claim() => {
                    let (number, bytes) = state.claim();
                    drop(state);
                    let read = file.read(number, bytes);
                    state = self.shared.lock();
                    state.put(number, read);
                }
                Some(_) => state = wait(self.shared.ready.wait(state)),
                None => {
                    let waited = self.shared.ready.wait_timeout(state, patience);
                    let (now, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                    state = now;
                    if waited.timed_out() && !matches!(state.ready.front(), Some(Some(_))) {
                        self.last = Last::No;
                        return Ok(Got::Idle);
                    }
                }
            }
        }
        let taken = state.ready.pop_front().flatten();
        state.wanted += 1;
        drop(state);
        self.shared.free.notify_one();
        let Some((block, last)) = taken else { return Ok(Got::End) };
        self.last = last;
        Ok(Got::Block(block))
    }

    /// Gives the memory of a block back.
    pub(super) fn give_back(&mut self, bytes: Vec<u8>) {
        let mut state = self.shared.lock();
        if bytes.len() == ROOM + BLOCK && state.pool.len() < BLOCKS {
            state.pool.push(bytes);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.lock().is_gone = true;
        self.shared.free.notify_all();
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("read-ahead".to_owned()).spawn(work).map(drop)
}

type Waited<'s> = Result<MutexGuard<'s, State>, PoisonError<MutexGuard<'s, State>>>;

fn wait(result: Waited<'_>) -> MutexGuard<'_, State> {
    result.unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn may_claim(&self) -> bool {
        self.next < self.wanted + BLOCKS as u64 && self.next <= self.end
    }

    /// Takes the next block for reading.
    fn claim(&mut self) -> (u64, Vec<u8>) {
        let number = self.next;
        self.next += 1;
        (number, self.pool.pop().unwrap_or_default())
    }

    fn put(&mut self, number: u64, (block, last): (Block, Last)) {
        if !matches!(last, Last::No) {
            self.end = self.end.min(number);
        }
        let place = (number - self.wanted) as usize;
        while self.ready.len() <= place {
            self.ready.push_back(None);
        }
        self.ready[place] = Some((block, last));
    }
}

impl Shared {
    fn new() -> Shared {
        let state = State {
            next: 0,
            wanted: 0,
            ready: VecDeque::with_capacity(BLOCKS),
            end: u64::MAX,
            pool: Vec::with_capacity(BLOCKS),
            is_gone: false,
        };
        Shared { state: Mutex::new(state), ready: Condvar::new(), free: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a block may be read; `None` if no further block is needed.
    fn claim(&self) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if state.is_gone || state.next > state.end {
                return None;
            }
            if state.may_claim() {
                return Some(state.claim());
            }
            state = wait(self.free.wait(state));
        }
    }

    fn read_file(&self, file: &At) {
        while let Some((number, bytes)) = self.claim() {
            let read = file.read(number, bytes);
            self.lock().put(number, read);
            self.ready.notify_one();
        }
    }

    /// Each block is what one read returns, so that nothing waits for what comes later.
    fn read_all(&self, mut reader: Box<dyn Read + Send>) {
        while let Some((number, mut bytes)) = self.claim() {
            bytes.resize(ROOM + BLOCK, 0);
            let (len, last) = loop {
                match reader.read(&mut bytes[ROOM..]) {
                    Ok(0) => break (0, Last::End),
                    Ok(len) => break (len, Last::No),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        std::thread::sleep(A_MOMENT);
                    }
                    Err(error) => break (0, Last::Failed(error)),
                }
            };
            self.lock().put(number, (Block { bytes, len }, last));
            self.ready.notify_one();
        }
    }
}

impl At {
    /// Reads a block: all of it, unless the file ends in it or cannot be read.
    fn read(&self, number: u64, mut bytes: Vec<u8>) -> (Block, Last) {
        bytes.resize(ROOM + BLOCK, 0);
        let (mut len, start) = (0, self.start + number * BLOCK as u64);
        let last = loop {
            if len == BLOCK {
                break Last::No;
            }
            match self.file.read_at(&mut bytes[ROOM + len..], start + len as u64) {
                Ok(0) => break Last::End,
                Ok(count) => len += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Last::Failed(error),
            }
        };
        (Block { bytes, len }, last)
    }
}
