//! The counters of interfaces, read exactly at the ends of intervals.
//!
//! A thread sleeps until the next end and reads the counters then, because the packet loop may be late. The packet loop
//! starts it, after the process has dropped its rights; it ends when [`Counters`] is dropped.

use crate::tallies::Readings;
use fyke_capture::TrafficWatch;
use fyke_flow::clock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest wait at a time: the system's clock may be set meanwhile.
const SLICE: Duration = Duration::from_secs(1);

/// The counters of the interfaces of a capture.
pub struct Counters {
    watch: Arc<Mutex<Option<TrafficWatch>>>,
    running: Option<Running>,
}

struct Running {
    /// Numbers of intervals with the counters at their ends.
    readings: Receiver<(u64, Readings)>,
    /// Ends the thread when it is dropped.
    _stop: Sender<()>,
}

impl Counters {
    /// Opens the counters of these interfaces. A system that does not show them is no reason not to count frames.
    pub fn open<'n>(names: impl IntoIterator<Item = &'n str>) -> Counters {
        let watch = TrafficWatch::open(names).ok();
        Counters { watch: Arc::new(Mutex::new(watch)), running: None }
    }

    /// The counters now.
    pub fn now(&self) -> Readings {
        read(&self.watch)
    }

    /// Starts the thread for intervals of this length, once.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn start(&mut self, every_ns: u64) -> std::io::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let (sender, readings) = channel();
        let (_stop, stopped) = channel();
        let watch = Arc::clone(&self.watch);
        let thread = std::thread::Builder::new().name("counters".to_owned());
        thread.spawn(move || run(&watch, every_ns.max(1), &sender, &stopped))?;
        self.running = Some(Running { readings, _stop });
        Ok(())
    }

    /// The readings since the last call, with the numbers of the intervals that ended with them.
    pub fn take(&self) -> Vec<(u64, Readings)> {
        self.running.iter().flat_map(|running| running.readings.try_iter()).collect()
    }
}

fn read(watch: &Mutex<Option<TrafficWatch>>) -> Readings {
    let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    watch.as_mut().map(TrafficWatch::read).unwrap_or_default()
}

fn run(
    watch: &Mutex<Option<TrafficWatch>>,
    every_ns: u64,
    sender: &Sender<(u64, Readings)>,
    stopped: &Receiver<()>,
) {
    let mut current = clock::system_ns() / every_ns;
    loop {
        let end_ns = current.saturating_add(1).saturating_mul(every_ns);
        let now_ns = clock::system_ns();
        let left = Duration::from_nanos(end_ns.saturating_sub(now_ns));
        if !left.is_zero() {
            match stopped.recv_timeout(left.min(SLICE)) {
                Err(RecvTimeoutError::Timeout) => continue,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let readings = read(watch);
        // After a leap of the clock, the interval that ended last has these counters.
        let ended = (clock::system_ns() / every_ns).saturating_sub(1).max(current);
        if sender.send((ended, readings)).is_err() {
            return;
        }
        current = ended.saturating_add(1);
    }
}
