//! A capture that outlives its process: the socket and its ring are kept elsewhere (a service manager), and a log in
//! shared memory tells the process after it where to continue.
//!
//! ```text
//! log: position │ frames that are evaluated now │ totals       written before and after each batch
//! next process: map the ring again ─▶ release the blocks that were read ─▶ skip the frames before the position
//! ```
//!
//! The kernel continues filling the ring meanwhile, so no frame is lost that the ring has room for. If the process was
//! killed, the batch that it was evaluating is not evaluated again: its frames are lost and counted ([`Resumed`]),
//! because it is not known how far it got, and a frame that ended one process should not end the next.
//!
//! The log has two records and the number of the valid one, so it is whole whenever the process is killed. Two counts
//! may then lack a moment: the kernel's counters since they were read, if the process is killed between reading and
//! logging them. A frame with a removed VLAN tag that is just being reinserted is damaged.
//!
//! Cost: about 24 stores for a batch.

use super::{Block, Current, RingOptions, RingSource, Walk, block};
use crate::error::LiveError;
use crate::interfaces::Capture;
use crate::sharing;
use crate::socket::needs_program;
use crate::source::SourceStats;
use crate::sys::packet::{PacketSocket, RingSize};
use fyke_frame::LinkType;
use fyke_ring::Memory;
use fyke_ring::protocol::Words;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Words of the log at the start of the memory; the rest is for others.
pub const LOG_WORDS: usize = 64;

const NUMBER: u64 = u64::from_le_bytes(*b"fykelog1");
/// Number of the valid record.
const VALID: usize = 1;
/// Properties of the capture: [`Shape`].
const SHAPE: usize = 8;
/// The two records.
const RECORDS: [usize; 2] = [32, 48];

/// Properties that a kept socket must have for this capture: bytes and number of blocks, interface, link type, snap
/// length, promiscuous mode, number of blocks that were requested.
type Shape = [u64; 7];

/// Totals and position, over all processes of the capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Record {
    /// Block that is read, or the next one.
    block: u64,
    /// Its sequence number.
    sequence: u64,
    /// Frames of it that are settled.
    done: u64,
    /// Frames after them that are evaluated now, with ignored ones.
    begun: u64,
    /// Those of them that are not ignored.
    lent: u64,
    delivered: u64,
    ignored: u64,
    /// As the kernel counts.
    received: u64,
    dropped: u64,
}

impl Record {
    fn words(self) -> [u64; 9] {
        let Record { block, sequence, done, begun, lent, delivered, ignored, received, dropped } =
            self;
        [block, sequence, done, begun, lent, delivered, ignored, received, dropped]
    }

    fn load(memory: &Memory) -> Record {
        let first = RECORDS[memory.load(VALID, Ordering::Acquire) as usize & 1];
        let word = |at: usize| memory.load(first + at, Ordering::Relaxed);
        Record {
            block: word(0),
            sequence: word(1),
            done: word(2),
            begun: word(3),
            lent: word(4),
            delivered: word(5),
            ignored: word(6),
            received: word(7),
            dropped: word(8),
        }
    }

    fn store(self, memory: &Memory) {
        let valid = 1 - (memory.load(VALID, Ordering::Relaxed) & 1);
        let first = RECORDS[valid as usize];
        for (at, word) in (first..).zip(self.words()) {
            memory.store(at, word, Ordering::Relaxed);
        }
        memory.store(VALID, valid, Ordering::Release);
    }
}

/// The place at which a capture continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resumed {
    /// Frames that processes before this one have delivered and evaluated.
    pub delivered: u64,
    /// Frames that were lost until they ended.
    pub dropped: u64,
    /// Frames of the batch in which the process before was killed; this source counts them as dropped.
    pub lost: u64,
}

/// A capture that is handed from process to process. [`offer`] it before the source is opened.
#[derive(Debug)]
pub struct Handover {
    memory: Arc<Memory>,
    given: Mutex<Option<OwnedFd>>,
    socket: OnceLock<OwnedFd>,
    resumed: OnceLock<Resumed>,
    waits: AtomicBool,
}

static OFFERED: Mutex<Option<Arc<Handover>>> = Mutex::new(None);

/// Offers a handover to the next capture ring that this process opens.
pub fn offer(handover: Arc<Handover>) {
    *OFFERED.lock().unwrap_or_else(PoisonError::into_inner) = Some(handover);
}

fn offered() -> Option<Arc<Handover>> {
    OFFERED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Handover {
    /// A handover with its log, of at least [`LOG_WORDS`] words, and the socket that was kept, if one was.
    pub fn new(memory: Arc<Memory>, kept: Option<OwnedFd>) -> Arc<Handover> {
        Arc::new(Handover {
            memory,
            given: Mutex::new(kept),
            socket: OnceLock::new(),
            resumed: OnceLock::new(),
            waits: AtomicBool::new(false),
        })
    }

    /// The socket to keep, once the source is open.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.get().map(AsFd::as_fd)
    }

    /// The place at which the source continues; `None` if it has begun anew.
    pub fn resumed(&self) -> Option<Resumed> {
        self.resumed.get().copied()
    }

    /// True if a kept log is there and names a process that was killed in a batch, or has ended in order: the number of
    /// frames delivered before that batch. For others that log their own state by it.
    pub fn batch(&self) -> u64 {
        Record::load(&self.memory).delivered
    }

    /// Lets the source wait with the first frame, or not any more.
    pub fn wait(&self, waits: bool) {
        self.waits.store(waits, Ordering::Release);
    }

    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// The kept socket and its number of blocks, if it captures what is wanted. `shape` has 0 blocks.
    fn kept(&self, mut shape: Shape) -> Option<(PacketSocket, u32)> {
        let word = |at: usize| self.memory.load(at, Ordering::Relaxed);
        shape[1] = word(SHAPE + 1);
        let is_same = word(0) == NUMBER && (0..7).all(|at| word(SHAPE + at) == shape[at]);
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner).take();
        let socket = given.filter(|_| is_same)?;
        Some((PacketSocket::copy(socket.as_fd()).ok()?, u32::try_from(shape[1]).ok()?))
    }
}

/// A socket with its ring, for a source.
pub(super) struct Opened {
    pub(super) socket: PacketSocket,
    pub(super) block_count: u32,
    /// True if it was kept, so that it is bound already.
    pub(super) is_kept: bool,
    pub(super) log: Option<Box<Log>>,
}

/// Takes the socket that was kept for this capture, or opens one. A capture of several rings (`at_once` is false) is
/// not handed on.
pub(super) fn open(
    options: &RingOptions,
    found: &Capture,
    link: LinkType,
    name: &str,
    at_once: bool,
) -> Result<Opened, LiveError> {
    let handover = at_once.then(offered).flatten();
    let mut shape = [
        options.block_size.into(),
        0,
        found.ifindex.into(),
        link.0.into(),
        options.snaplen.into(),
        options.promiscuous.into(),
        options.block_count.into(),
    ];
    let kept = handover.as_ref().and_then(|handover| handover.kept(shape));
    let is_kept = kept.is_some();
    let (socket, block_count) = match kept {
        Some(kept) => kept,
        None => create(options, found, name, at_once)?,
    };
    shape[1] = block_count.into();
    let log = |handover| Log::open(handover, &socket, (!is_kept).then_some(shape)).map(Box::new);
    let log = handover.map(log).transpose().map_err(failed(name, "dup"))?;
    Ok(Opened { socket, block_count, is_kept, log })
}

fn failed(name: &str, call: &'static str) -> impl FnOnce(std::io::Error) -> LiveError {
    let interface = name.to_owned();
    move |source| LiveError::Call { interface, call, source }
}

/// Opens a socket with its ring, not bound yet; returns its number of blocks.
fn create(
    options: &RingOptions,
    found: &Capture,
    name: &str,
    at_once: bool,
) -> Result<(PacketSocket, u32), LiveError> {
    let socket = PacketSocket::open(!found.cooked);
    let socket = socket.map_err(|source| LiveError::from_socket(source, name))?;
    socket.reserve(block::RESERVE).map_err(failed(name, "PACKET_RESERVE"))?;
    if found.is_loopback {
        // Older kernels do not know this option; then `Shape::loopback` ignores the copies.
        let _ = socket.ignore_outgoing();
    }
    if !at_once {
        socket.show_nothing().map_err(failed(name, "SO_ATTACH_FILTER"))?;
    } else if needs_program(options.snaplen, found.cooked) {
        socket.cut(options.snaplen).map_err(failed(name, "SO_ATTACH_FILTER"))?;
    }
    let RingOptions { block_size, block_count, retire_ms, .. } = *options;
    let size = RingSize { block_size, block_count, retire_ms };
    let created = sharing::create_ring(&socket, size);
    let block_count = created.map_err(failed(name, "PACKET_RX_RING"))?;
    Ok((socket, block_count))
}

/// The log of a running source.
pub(super) struct Log {
    pub(super) handover: Arc<Handover>,
    base: Record,
    record: Record,
    /// Sequence number of the block that is read or was read last.
    sequence: u64,
    /// Frames that the kernel will count and that were delivered by a process before.
    owed: u64,
    pub(super) is_frozen: bool,
}

impl Log {
    /// A log for a socket: one that was kept, or a new one of this shape.
    fn open(
        handover: Arc<Handover>,
        socket: &PacketSocket,
        shape: Option<Shape>,
    ) -> std::io::Result<Log> {
        let memory = &handover.memory;
        if let Some(shape) = shape {
            for (at, word) in (SHAPE..).zip(shape) {
                memory.store(at, word, Ordering::Relaxed);
            }
            Record::default().store(memory);
            memory.store(0, NUMBER, Ordering::Release);
        }
        let record = Record::load(memory);
        let _first = handover.socket.set(socket.as_fd().try_clone_to_owned()?);
        let sequence = record.sequence;
        Ok(Log { handover, base: record, record, sequence, owed: 0, is_frozen: false })
    }

    /// Counts that the kernel has reported; returns the frames that are new to this process.
    pub(super) fn counted(&mut self, packets: u64, drops: u64) -> u64 {
        self.record.received += packets;
        self.record.dropped += drops;
        self.record.store(&self.handover.memory);
        let paid = self.owed.min(packets);
        self.owed -= paid;
        packets - paid
    }

    /// Logs that a block is read.
    pub(super) fn takes(&mut self, block: &[u8]) {
        self.sequence = block::sequence(block).unwrap_or(self.sequence);
    }
}

impl RingSource {
    /// Logs that the frames that were lent are evaluated.
    pub(super) fn settle(&mut self) {
        let Some(log) = &mut self.log else { return };
        let (block, sequence, done) = match &self.current {
            Some(current) if current.walk.left > 0 => {
                (current.block.number, log.sequence, current.block.prepared)
            }
            Some(_) => (self.next_block, log.sequence.wrapping_add(1), 0),
            None => (self.next_block, log.record.sequence, 0),
        };
        let before = log.record;
        log.record.block = block.into();
        (log.record.sequence, log.record.done) = (sequence, done.into());
        (log.record.begun, log.record.lent) = (0, 0);
        log.record.delivered = log.base.delivered + self.stats.delivered;
        log.record.ignored = log.base.ignored + self.stats.ignored;
        if log.record != before {
            log.record.store(&log.handover.memory);
        }
    }

    /// Logs that the frames that are prepared are lent now. `before` frames of the block were lent before.
    pub(super) fn begin(&mut self, before: u32) {
        let (Some(log), Some(current)) = (&mut self.log, &self.current) else { return };
        log.record.block = current.block.number.into();
        (log.record.sequence, log.record.done) = (log.sequence, before.into());
        log.record.begun = u64::from(current.block.prepared - before);
        log.record.lent = self.views.len() as u64;
        log.record.store(&log.handover.memory);
    }

    /// Continues where the process before has ended: releases the blocks that it has read, and skips the frames that it
    /// has evaluated or was evaluating.
    pub(super) fn resume(&mut self) -> Result<(), LiveError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let (record, count) = (log.record, self.ring.block_count());
        let number = record.block as u32 % count;
        for other in (0..count).filter(|other| *other != number) {
            if self.ring.take(other) {
                let found = block::sequence(self.ring.bytes(other));
                match found.is_some_and(|found| found < record.sequence) {
                    true => self.ring.release(other),
                    false => self.ring.leave(other),
                }
            }
        }
        self.next_block = number;
        let skipped = (record.done + record.begun) as u32;
        if skipped > 0 && self.ring.take(number) {
            let bytes = self.ring.bytes(number);
            let at = block::start(bytes).map_err(|at| self.damaged(number, at))?;
            let mut walk = Walk { at: at.at, left: at.left };
            for _ in 0..skipped.min(at.left) {
                let view = block::view(self.ring.bytes(number), &mut walk, &self.shape);
                view.map_err(|at| self.damaged(number, at))?;
            }
            let block = Block { number, first_sequence: 0, first_at: at.at, prepared: skipped };
            let requested = walk.at as usize;
            self.current = Some(Current { block, walk, requested });
            self.next_block = (number + 1) % count;
        }
        let Some(log) = &mut self.log else { return Ok(()) };
        let shown = record.delivered + record.ignored + record.dropped;
        log.owed = shown.saturating_sub(record.received);
        self.stats = SourceStats {
            received: record.received.saturating_sub(shown),
            dropped: record.lent,
            ignored: record.begun - record.lent,
            ..self.stats
        };
        let Record { delivered, dropped, lent: lost, .. } = record;
        // The kernel's counts lack the frames that were lost with their batch.
        (log.base.ignored, log.record.dropped) = (record.ignored, dropped + lost);
        let _first = log.handover.resumed.set(Resumed { delivered, dropped, lost });
        Ok(())
    }
}
