//! Traffic of known content: frames of 100 bytes, of which every k-th is a *hit* that the case's filter accepts.
//!
//! The sender paces itself by sleeping, so its processor time is what sending costs; on a veth pair this includes the
//! filters of the other end, which run in the sender's context.

use super::world::{SENDER, pin};
use crate::bench::measure::time_of;
use crate::net::sys::send::{MAX_BATCH, PacketSender};
use crate::net::{CLIENTS_DEVICE, Namespace};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const FRAME_LEN: usize = 100;
/// Different frames without a hit.
const OTHERS: u16 = 64;
/// Position of the frame's number in a frame, after the headers.
pub(super) const NUMBER_AT: usize = 42;
/// Port of probes with number 0.
pub(super) const PROBE_PORT: u16 = 10_000;
/// The sender sleeps when it is ahead by more than this; probes are sent more evenly.
const AHEAD: Duration = Duration::from_micros(200);
/// Frames of a batch of probes.
const PROBE_BATCH: usize = 16;

type Bytes = [u8; FRAME_LEN];

/// Address and port of a hit's receiver.
pub(super) type End = (u32, u16);

/// The frames that are sent, in their order.
pub(super) struct Pattern {
    every: u64,
    hits: Vec<Bytes>,
    others: Vec<Bytes>,
}

impl Pattern {
    /// Every `every`-th frame is a hit for one of these ends, in turn.
    pub(super) fn new(every: u64, ends: &[End]) -> Pattern {
        let hits = ends.iter().enumerate().map(|(n, &end)| datagram(n as u16 % OTHERS, end));
        let other = |n: u16| datagram(n, (0x0a09_0000 + u32::from(n), 5_001 + n));
        let others = (0..OTHERS).map(other);
        Pattern { every, hits: hits.collect(), others: others.collect() }
    }

    /// Number of hits among the first `count` frames.
    pub(super) fn hits(&self, count: u64) -> u64 {
        count.div_ceil(self.every)
    }

    fn frame(&self, number: u64) -> &Bytes {
        let (list, place) = match number % self.every {
            0 => (&self.hits, number / self.every),
            _ => (&self.others, number),
        };
        &list[(place % list.len() as u64) as usize]
    }
}

/// A datagram from the `n`-th sender to an end.
fn datagram(n: u16, (address, port): End) -> Bytes {
    let mut frame = [0; FRAME_LEN];
    let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xff; 6]);
    put(6, &[2, 0, 0, 0, 0, 1, 8, 0, 0x45]);
    put(16, &(FRAME_LEN as u16 - 14).to_be_bytes());
    put(22, &[64, 17]);
    put(26, &(0x0a00_0001 + u32::from(n)).to_be_bytes());
    put(30, &address.to_be_bytes());
    put(34, &(1_024 + n).to_be_bytes());
    put(36, &port.to_be_bytes());
    put(38, &(FRAME_LEN as u16 - 34).to_be_bytes());
    frame
}

/// A task of a sender.
#[derive(Clone)]
pub(super) struct Order {
    pub pattern: Arc<Pattern>,
    /// Number of frames.
    pub count: u64,
    /// Frames per second; 0 for as many as possible.
    pub rate: u64,
    /// Ends the sender early.
    pub stop: Arc<AtomicBool>,
    /// Sends probes: every frame goes to [`PROBE_PORT`] plus this number, which changes between two batches.
    pub probe: Option<Arc<Probing>>,
}

/// The probes of a sender at work.
#[derive(Debug, Default)]
pub(super) struct Probing {
    /// Number of the probes that are sent.
    pub number: AtomicU16,
    /// Frames that were sent so far.
    pub sent: AtomicU64,
}

impl Probing {
    /// Waits until the sender has sent two more batches; at most 100 ms.
    pub(super) fn wait(&self) {
        let (begin, before) = (Instant::now(), self.sent.load(Ordering::Acquire));
        let wanted = before + 2 * PROBE_BATCH as u64;
        while self.sent.load(Ordering::Acquire) < wanted
            && begin.elapsed() < Duration::from_millis(100)
        {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Order {
    pub(super) fn new(pattern: &Arc<Pattern>, count: u64, rate: u64) -> Order {
        Order { pattern: Arc::clone(pattern), count, rate, stop: Arc::default(), probe: None }
    }
}

/// A finished task.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent {
    pub frames: u64,
    /// Processor time.
    pub used: Duration,
    pub took: Duration,
    /// Every number of probes, with the first frame that had it.
    pub probes: Vec<(u16, u64)>,
}

impl Sent {
    pub(super) fn ns_per_frame(&self) -> f64 {
        self.used.as_nanos() as f64 / self.frames.max(1) as f64
    }

    pub(super) fn rate(&self) -> f64 {
        self.frames as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// A sender at work.
pub(super) struct Sender(JoinHandle<io::Result<io::Result<Sent>>>);

impl Sender {
    /// Starts a thread in a namespace, on the sender's processor.
    pub(super) fn start(namespace: &Namespace, order: Order) -> io::Result<Sender> {
        let thread = namespace.spawn("sender", move || {
            pin(SENDER)?;
            send(&order)
        });
        thread.map(Sender)
    }

    /// Waits for the end.
    pub(super) fn finish(self) -> io::Result<Sent> {
        let done = self.0.join().map_err(|_| io::Error::other("the sender panicked"))?;
        done.and_then(|done| done)
    }
}

/// Sends and waits for the end.
pub(super) fn send_all(namespace: &Namespace, order: Order) -> io::Result<Sent> {
    Sender::start(namespace, order)?.finish()
}

fn send(order: &Order) -> io::Result<Sent> {
    let sender = PacketSender::open(CLIENTS_DEVICE)?;
    let mut sent = Sent::default();
    let begin = Instant::now();
    let mut result = Ok(());
    sent.used = time_of(true, || {
        while sent.frames < order.count && result.is_ok() && !order.stop.load(Ordering::Relaxed) {
            result = batch(&sender, order, &mut sent);
            pace(order, sent.frames, begin);
        }
    });
    sent.took = begin.elapsed();
    result.map(|()| sent)
}

fn batch(sender: &PacketSender, order: &Order, sent: &mut Sent) -> io::Result<()> {
    let most = if order.probe.is_some() { PROBE_BATCH } else { MAX_BATCH };
    let count = (order.count - sent.frames).min(most as u64) as usize;
    let mut frames = [[0; FRAME_LEN]; MAX_BATCH];
    for (number, frame) in (sent.frames..).zip(&mut frames[..count]) {
        *frame = *order.pattern.frame(number);
        frame[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
    }
    if let Some(probe) = order.probe.as_ref().map(|probe| probe.number.load(Ordering::Relaxed)) {
        let port = PROBE_PORT.wrapping_add(probe).to_be_bytes();
        frames[..count].iter_mut().for_each(|frame| frame[36..38].copy_from_slice(&port));
        if sent.probes.last().is_none_or(|last| last.0 != probe) {
            sent.probes.push((probe, sent.frames));
        }
    }
    let slices: [&[u8]; MAX_BATCH] = std::array::from_fn(|n| &frames[n][..]);
    match sender.send(&slices[..count]) {
        Ok(taken) => {
            sent.frames += taken as u64;
            if let Some(probe) = &order.probe {
                probe.sent.store(sent.frames, Ordering::Release);
            }
        }
        // The other end's queue is full: the same frames again.
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Sleeps while the sender is ahead of its rate.
fn pace(order: &Order, sent: u64, begin: Instant) {
    if order.rate == 0 {
        return;
    }
    let due = u128::from(sent) * 1_000_000_000 / u128::from(order.rate);
    let due = Duration::from_nanos(due as u64);
    let ahead = due.saturating_sub(begin.elapsed());
    if ahead > if order.probe.is_some() { Duration::ZERO } else { AHEAD } {
        std::thread::sleep(ahead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_where_they_are_counted() {
        let ends = [(0x0a01_0203, 53), (0x0a01_0204, 54)];
        let pattern = Pattern::new(4, &ends);
        let is_hit = |number| pattern.frame(number)[32] == 2;
        for count in [0, 1, 4, 5, 1_000] {
            let found = (0..count).filter(|&number| is_hit(number)).count() as u64;
            assert_eq!(found, pattern.hits(count));
        }
        assert_eq!(pattern.frame(4)[36..38], [0, 54]);
        assert_eq!(pattern.frame(1)[12..14], [8, 0]);
    }
}
