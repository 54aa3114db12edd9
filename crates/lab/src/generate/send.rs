//! Sends frames in turn at a rate, with one system call for many of them. Between the calls the thread sleeps; it never
//! waits in a loop.

use super::Frames;
use crate::net::sys::send::{MAX_BATCH, PacketSender};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A thread that is ahead of its rate by less than this sends on: shorter sleeps cost more than they even out.
const AHEAD: Duration = Duration::from_micros(200);
/// Longest sleep, after which the order to stop is looked at.
const NAP: Duration = Duration::from_millis(50);
/// Longest delay that is made up for by sending faster; what is beyond is given up.
const ARREARS: Duration = Duration::from_millis(20);
/// Pause after a refusal.
const REFUSED: Duration = Duration::from_micros(50);
/// Time without a frame taken after which the interface has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames of a call are those of this part of a second at most, so that low rates are even.
const CALLS_PER_SECOND: u64 = 2_000;

/// Rate, number and duration; without a number and a duration until it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    /// Frames per second; as many as possible by default.
    pub rate: Option<u64>,
    /// Number of frames.
    pub count: Option<u64>,
    /// Duration.
    pub time: Option<Duration>,
}

impl Order {
    /// Divides the order among at most this many threads. Rates and numbers add up, and none is 0.
    pub fn divided(&self, threads: usize) -> Vec<Order> {
        let most = [self.rate, self.count].into_iter().flatten().min().unwrap_or(u64::MAX);
        let threads = (threads as u64).min(most).max(1);
        let part = |all: u64, n: u64| all / threads + u64::from(n < all % threads);
        let order = |n| Order {
            rate: self.rate.map(|rate| part(rate, n)),
            count: self.count.map(|count| part(count, n)),
            time: self.time,
        };
        (0..threads).map(order).collect()
    }

    /// Number of frames after which the order is complete.
    fn frames(&self) -> u64 {
        let of_time = self.rate.zip(self.time).map(|(rate, time)| {
            u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
        });
        self.count.into_iter().chain(of_time).min().unwrap_or(u64::MAX)
    }

    /// Most frames of one call.
    fn batch(&self) -> u64 {
        self.rate
            .map_or(MAX_BATCH as u64, |rate| (rate / CALLS_PER_SECOND).clamp(1, MAX_BATCH as u64))
    }
}

/// Counts of a generator at work, of all its threads.
#[derive(Debug, Default)]
pub struct Counts {
    frames: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
}

/// Result of a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Frames that the kernel has taken.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// System calls of which the queue of the interface took no frame. The frames were sent again.
    pub refused: u64,
    /// Time from the first frame to the last.
    pub took: Duration,
}

impl Counts {
    /// Frames sent so far.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// All counts, with the time that they took.
    pub fn sent(&self, took: Duration) -> Sent {
        Sent {
            frames: self.frames(),
            bytes: self.bytes.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            took,
        }
    }
}

impl Sent {
    /// Frames per second.
    pub fn rate(&self) -> f64 {
        self.frames as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Bits of frames per second, without preambles and check sequences.
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.took.as_secs_f64().max(1e-9)
    }

    /// True if the machine sent less than 99 % of this rate.
    pub fn is_below(&self, wanted: Option<u64>) -> bool {
        wanted.is_some_and(|wanted| self.rate() < 0.99 * wanted as f64)
    }
}

/// Sends frames in turn until the order is complete or `stop` returns true, in the calling thread.
///
/// # Errors
/// The error of the system; a time-out when the interface takes no frame for some seconds.
pub fn send(
    sender: &PacketSender,
    frames: &Frames,
    order: &Order,
    counts: &Counts,
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    let (all, batch) = (order.frames(), order.batch());
    let begin = Instant::now();
    let mut pace = Pace { rate: order.rate, begin, sent: 0 };
    let mut taken_at = begin;
    while pace.sent < all && !stop() && order.time.is_none_or(|time| begin.elapsed() < time) {
        if pace.is_early() {
            continue;
        }
        let count = batch.min(all - pace.sent) as usize;
        let mut slices: [&[u8]; MAX_BATCH] = [&[]; MAX_BATCH];
        for (slice, number) in slices[..count].iter_mut().zip(pace.sent..) {
            *slice = frames.frame(number);
        }
        match sender.send(&slices[..count]) {
            Ok(taken) => {
                let bytes: usize = slices[..taken].iter().map(|frame| frame.len()).sum();
                counts.frames.fetch_add(taken as u64, Ordering::Relaxed);
                counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                pace.sent += taken as u64;
                taken_at = Instant::now();
            }
            Err(error) if is_full(&error) => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                if taken_at.elapsed() > PATIENCE {
                    let text = format!(
                        "it took no frame for {PATIENCE:?}: is it up, and is its other end up?"
                    );
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                std::thread::sleep(REFUSED);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// True if the queue of the interface or the socket has no room.
fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS) || error.kind() == io::ErrorKind::WouldBlock
}

/// Compares the frames sent with those due.
struct Pace {
    rate: Option<u64>,
    /// Beginning of the time in which the frames are due; later than that of the traffic if time was given up.
    begin: Instant,
    sent: u64,
}

impl Pace {
    /// Sleeps if the next frame is not due; returns true if it may not be due after that.
    fn is_early(&mut self) -> bool {
        let Some(rate) = self.rate else { return false };
        let due = u128::from(self.sent) * 1_000_000_000 / u128::from(rate.max(1));
        let due = Duration::from_nanos(u64::try_from(due).unwrap_or(u64::MAX));
        let elapsed = self.begin.elapsed();
        let ahead = due.saturating_sub(elapsed);
        if ahead > AHEAD {
            std::thread::sleep(ahead.min(NAP));
            return ahead > NAP;
        }
        if let Some(lost) = elapsed.saturating_sub(due).checked_sub(ARREARS) {
            self.begin += lost;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_order_add_up() {
        let order = Order { rate: Some(10), count: Some(7), time: Some(NAP) };
        let parts = order.divided(4);
        assert_eq!(parts.len(), 4);
        assert_eq!(parts.iter().map(|part| part.rate.unwrap()).sum::<u64>(), 10);
        assert_eq!(parts.iter().map(|part| part.count.unwrap()).sum::<u64>(), 7);
        assert!(parts.iter().all(|part| part.time == Some(NAP) && part.count > Some(0)));
        assert_eq!(Order { rate: Some(2), ..Order::default() }.divided(16).len(), 2);
        assert_eq!(Order::default().divided(3), [Order::default(); 3]);
    }

    #[test]
    fn an_order_ends_by_its_number_or_its_time() {
        let time = Some(Duration::from_millis(2_500));
        assert_eq!(Order { rate: Some(1_000), count: None, time }.frames(), 2_500);
        assert_eq!(Order { rate: Some(1_000), count: Some(9), time }.frames(), 9);
        assert_eq!(Order { rate: None, count: None, time }.frames(), u64::MAX);
        assert_eq!(Order { rate: Some(5), ..Order::default() }.batch(), 1);
        assert_eq!(Order { rate: Some(50_000), ..Order::default() }.batch(), 25);
        assert_eq!(Order::default().batch(), MAX_BATCH as u64);
    }

    #[test]
    fn a_thread_ahead_of_its_rate_sleeps_and_arrears_are_given_up() {
        let mut pace = Pace { rate: Some(1_000), begin: Instant::now(), sent: 30 };
        assert!(!pace.is_early());
        assert!(pace.begin.elapsed() >= Duration::from_millis(29));
        let hour = Duration::from_secs(3_600);
        let mut late = Pace { begin: Instant::now().checked_sub(hour).unwrap(), ..pace };
        assert!(!late.is_early());
        assert!(late.begin.elapsed() < hour);
    }
}
