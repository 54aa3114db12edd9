//! The demonstration on a wire: its threads, their synchronisation, and the end.

use super::fyke_way::{Below, Captured, FykeWay, Settings};
use super::old_way::OldWay;
use super::recording::{self, UntilStop};
use super::side::Side;
use super::tally::Tally;
use super::{DemoError, Mode, Options, Outcome, TIME_LIMIT, Written};
use crate::background::Background;
use crate::ftp::{Exercise, Log, Stop};
use crate::net::{CLIENTS_DEVICE, Namespace, Privilege, World};
use fyke_capture::{Next, RingOptions, RingSource, Source, open_file};
use fyke_track::Limits;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time for which a closed connection is still captured.
const LINGER: Duration = Duration::from_millis(300);
/// Pause after the last transfer, for late packets and the removal of the last passes.
const SETTLE: Duration = Duration::from_millis(500);
/// Part of [`TIME_LIMIT`] reserved for the work after the traffic.
const REPORTING: Duration = Duration::from_secs(3);
/// Time limit for a thread to open its socket; the verifier of the kernel's filter takes 0.2 s.
const OPENING: Duration = Duration::from_secs(5);

pub(crate) type Started<T> = JoinHandle<std::io::Result<Result<T, String>>>;

/// Limits of the trackers of both ways.
pub(crate) fn limits() -> Limits {
    Limits { linger_ns: LINGER.as_nanos() as u64, ..Limits::default() }
}

/// Stops the threads on an early return.
pub(crate) struct OrderOnDrop<'a>(pub(crate) &'a Stop);

impl Drop for OrderOnDrop<'_> {
    fn drop(&mut self) {
        self.0.order();
    }
}

pub(crate) fn run(world: &World, options: Options, below: Below) -> Result<Outcome, DemoError> {
    let traffic = Stop::after(TIME_LIMIT - REPORTING);
    let capture = Stop::after(TIME_LIMIT - REPORTING + SETTLE * 2);
    let _ending = (OrderOnDrop(&traffic), OrderOnDrop(&capture));
    let recorder = start_recorder(world, &capture)?;
    let fyke = start_fyke(world, &capture, &options, below)?;
    let old = if options.old_way {
        OldWay::new(limits()).and_then(|old| start_old_way(world, &capture, old))
    } else {
        Err("it was not requested".to_string())
    };

    let wire_begin = Instant::now();
    let log = traffic_log(world, &options, &traffic)?;
    let duration = wire_begin.elapsed();
    std::thread::sleep(SETTLE);
    capture.order();

    let (recording, recording_lost) = finish("recording", recorder)?;
    let captured = finish("fyke", fyke)?;
    let (old, no_old_way) = match old {
        Ok(thread) => (Some(finish("the old way", thread)?), None),
        Err(reason) => (None, Some(reason)),
    };
    let old_way = old.map(|old| old_side(&recording, old, &log));
    let written = options.write.as_deref().map(read_again).transpose()?;
    let mut outcome = Outcome {
        mode: Mode::Wire {
            privilege: match world.privilege {
                Privilege::Root => "as root",
                Privilege::UserNamespace => "as an ordinary user",
            },
        },
        duration,
        accounting: captured.counts,
        placement: captured.placement.clone(),
        skipped: captured.results.skipped,
        fyke: fyke_side(&recording, captured, &log),
        old_way,
        no_old_way: no_old_way.filter(|_| options.old_way),
        written,
        problems: Vec::new(),
        options,
    };
    outcome.judge(&log.failures, recording_lost);
    Ok(outcome)
}

/// Compares fyke's capture with the recording.
pub(crate) fn fyke_side(recording: &Tally, captured: Captured, log: &Log) -> Side {
    let largest = captured.largest();
    let results = captured.results;
    Side {
        name: "fyke".to_string(),
        method: "edits in place",
        announced: results.announced,
        largest,
        updates: results.updates,
        failed_updates: results.failed_updates,
        failure: results.failure,
        ring_lost: captured.counts.lost,
        ..Side::compare(recording, &results.tally, &log.transfers)
    }
}

/// Compares the old way's capture with the recording.
pub(crate) fn old_side(recording: &Tally, old: OldWay, log: &Log) -> Side {
    Side {
        name: old.name(),
        method: "compile + attach",
        announced: old.announced,
        largest: format!("{} instructions", old.most_instructions),
        updates: old.updates,
        failed_updates: old.failed_updates,
        failure: old.failure,
        ring_lost: old.ring_lost,
        ..Side::compare(recording, &old.tally, &log.transfers)
    }
}

/// Counts the packets of a capture file by reading it back.
pub(crate) fn read_again(path: &Path) -> Result<Written, DemoError> {
    let failed = |error| DemoError::part("reading the capture file again", error);
    let mut source = open_file(path).map_err(failed)?;
    let mut frame_count = 0;
    loop {
        match source.next().map_err(failed)? {
            Next::Frames(batch, _) => frame_count += batch.len() as u64,
            Next::Idle => {}
            Next::End => return Ok(Written { path: path.to_path_buf(), frame_count }),
        }
    }
}

pub(crate) fn ring(
    device: &str,
    retire_ms: u32,
    block_size: u32,
    ring_bytes: u32,
) -> Result<RingSource, String> {
    let options = RingOptions {
        interface: Some(device.to_owned()),
        block_size,
        block_count: ring_bytes / block_size,
        retire_ms,
        timeout_ms: 20,
        promiscuous: false,
        ..RingOptions::default()
    };
    RingSource::open(options).map_err(|error| error.to_string())
}

fn start_recorder(world: &World, stop: &Stop) -> Result<Started<(Tally, u64)>, DemoError> {
    let stop = stop.clone();
    start(&world.clients, "recording", move |ready| {
        let mut source = ring(CLIENTS_DEVICE, 10, 1 << 20, 96 << 20)?;
        let _ = ready.send(());
        recording::record(&mut source, &stop).map_err(|error| error.to_string())
    })
}

fn start_fyke(
    world: &World,
    stop: &Stop,
    options: &Options,
    below: Below,
) -> Result<Started<Captured>, DemoError> {
    let stop = stop.clone();
    let (write, skip_edit) = (options.write.clone(), options.skip_edit);
    start(&world.clients, "fyke", move |ready| {
        let source = ring(CLIENTS_DEVICE, 10, 1 << 18, 64 << 20)?;
        let settings =
            Settings { limits: limits(), skip_edit, write: write.as_deref(), live: true, below };
        let fyke = FykeWay::new(&settings).map_err(|error| error.message())?;
        let source = UntilStop { source: Box::new(source), stop };
        let ready = || {
            let _ = ready.send(());
        };
        fyke.capture(Box::new(source), ready).map_err(|error| error.message())
    })
}

fn start_old_way(world: &World, stop: &Stop, old: OldWay) -> Result<Started<OldWay>, String> {
    let stop = stop.clone();
    let started = start(&world.clients, "the old way", move |ready| {
        let source = ring(CLIENTS_DEVICE, 1, 1 << 14, 64 << 20)?;
        old.capture(source, &stop, || {
            let _ = ready.send(());
        })
    });
    started.map_err(|error| error.to_string())
}

/// Starts a thread in a namespace and waits until it captures.
pub(crate) fn start<T: Send + 'static>(
    at: &Namespace,
    part: &'static str,
    work: impl FnOnce(Sender<()>) -> Result<T, String> + Send + 'static,
) -> Result<Started<T>, DemoError> {
    let (ready, is_ready) = channel();
    let thread = at.spawn(part, move || work(ready));
    let thread = thread.map_err(|error| DemoError::part(part, error))?;
    match is_ready.recv_timeout(OPENING) {
        Ok(()) => Ok(thread),
        // The thread has ended already; its result has the reason.
        Err(RecvTimeoutError::Disconnected) => match finish(part, thread) {
            Ok(_) => Err(DemoError::part(part, "ended before it began")),
            Err(error) => Err(error),
        },
        // The thread hangs and must not block the demonstration.
        Err(RecvTimeoutError::Timeout) => {
            Err(DemoError::part(part, format!("did not start within {OPENING:?}")))
        }
    }
}

pub(crate) fn finish<T>(part: &'static str, thread: Started<T>) -> Result<T, DemoError> {
    match thread.join() {
        Ok(Ok(Ok(result))) => Ok(result),
        Ok(Ok(Err(message))) => Err(DemoError::Part { part, message }),
        Ok(Err(error)) => Err(DemoError::part(part, error)),
        Err(_) => Err(DemoError::part(part, "its thread panicked")),
    }
}

/// Generates the traffic and shows its progress.
fn traffic_log(world: &World, options: &Options, stop: &Stop) -> Result<Log, DemoError> {
    let failed = |error| DemoError::part("traffic", error);
    let quiet = Stop::after(TIME_LIMIT);
    let _ending = OrderOnDrop(&quiet);
    let background =
        Background::start(world, options.background(), quiet.clone()).map_err(failed)?;
    let exercise = Exercise::start(world, options.ftp(), stop.clone()).map_err(failed)?;
    let (begin, terminal) = (Instant::now(), std::io::stderr().is_terminal());
    while !exercise.is_finished() {
        std::thread::sleep(Duration::from_millis(100));
        if terminal {
            let (seconds, open) = (begin.elapsed().as_secs_f64(), exercise.active());
            let mut stderr = std::io::stderr();
            let _ = write!(stderr, "\r{seconds:4.1} s, {open:3} data connections open \x1b[K");
        }
    }
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let mut log = exercise.finish();
    if let Err(error) = background.finish() {
        log.failures.push(format!("background: {error}"));
    }
    Ok(log)
}
