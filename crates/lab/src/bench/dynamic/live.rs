//! One run: a world, its FTP and background traffic, a recording of the traffic on the wire, and one way of
//! capturing.
//!
//! Each way has a run of its own, because on two processors they would disturb each other. The recording is made on
//! the same device, that of the servers, and has TCP only: the sender counts the background, and sends it past the
//! queueing discipline at the clients' end. The capturing thread of every way has a higher priority than ordinary
//! threads if permitted, as if it had a machine of its own; a process has that of an ordinary one.

use super::Setting;
use super::product::{self, Tracking};
use super::ways::{self, Captured, Product};
use crate::background::Background;
use crate::bench::Options;
use crate::bench::measure::Samples;
use crate::demo::fyke_way::{FykeWay, Settings};
use crate::demo::live::{OrderOnDrop, Started, finish, limits, ring, start};
use crate::demo::old_way::OldWay;
use crate::demo::recording::{self, UntilStop};
use crate::demo::tally::{Comparison, Ends, Tally};
use crate::ftp::{CONTROL_PORT, Exercise, Log, Stop};
use crate::net::{SERVERS_DEVICE, World};
use fyke_capture::RingSource;
use socket2::{SockFilter, SockRef};
use std::time::{Duration, Instant};

/// Time that a run takes beyond the expected one, at most.
const TIME_LIMIT: Duration = Duration::from_secs(40);
/// Pause after the last transfer, for late packets and the last updates.
const SETTLE: Duration = Duration::from_millis(450);

/// Results of a run.
#[derive(Debug)]
pub(super) struct Run {
    /// All data connections, in the order of their start.
    pub connections: Vec<Comparison>,
    /// Frames of control connections on the wire and captured.
    pub control: Comparison,
    /// Nanoseconds of each update, in order.
    pub updates: Vec<u64>,
    /// Frames that were accepted and then lost on the way up.
    pub lost: u64,
    /// Frames that were captured but not requested, or captured twice.
    pub wrong: u64,
    /// Updates that were refused.
    pub failed: u64,
    /// Background packets per second that were actually sent.
    pub background: f64,
    /// Numbers of a process.
    pub product: Option<Product>,
    /// Errors of the traffic itself.
    pub failures: Vec<String>,
}

impl Run {
    /// Number of data connections of which at least one frame was captured.
    pub fn captured_connections(&self) -> usize {
        self.connections.iter().filter(|connection| connection.captured > 0).count()
    }

    /// Number of frames captured, of control and data connections.
    pub fn captured_frames(&self) -> u64 {
        self.data(|connection| connection.captured) + self.control.captured
    }

    /// Share of the frames on the wire that were captured, of control and data connections, in percent.
    pub fn capture_ratio(&self) -> f64 {
        let on_wire = self.data(|connection| connection.on_wire) + self.control.on_wire;
        100.0 * self.captured_frames() as f64 / on_wire.max(1) as f64
    }

    /// Sum over the data connections.
    pub fn data(&self, of: impl Fn(&Comparison) -> u64) -> u64 {
        self.connections.iter().map(of).sum()
    }

    /// A part of the updates was done within this time, in nanoseconds; of a process only the median and the 99th
    /// percentile are known.
    pub fn update_ns(&self, part: f64) -> Option<f64> {
        if let Some(product) = &self.product {
            return product.edits_ns.map(|edits| edits[usize::from(part > 0.5)]);
        }
        let mut samples = Samples::default();
        self.updates.iter().for_each(|&ns| samples.push(ns as f64));
        (!samples.is_empty()).then(|| samples.quantile(part))
    }
}

/// A way at work.
enum Way {
    Thread(Started<Captured>),
    Process(Tracking),
}

impl Way {
    fn start(engine: &str, world: &World, stop: &Stop, options: &Options) -> Result<Way, String> {
        if product::ENGINES.contains(&engine) {
            return Tracking::start(engine, world, options).map(Way::Process);
        }
        let (stop, name) = (stop.clone(), engine.to_owned());
        let thread = start(&world.servers, "capture", move |ready| {
            way(&name, &stop, || {
                let _ = ready.send(());
            })
        });
        thread.map(Way::Thread).map_err(|error| error.to_string())
    }

    fn finish(self) -> Result<Captured, String> {
        match self {
            Way::Thread(thread) => finish("capture", thread).map_err(|error| error.to_string()),
            Way::Process(tracking) => tracking.finish(),
        }
    }
}

/// Runs one way once.
pub(super) fn run(engine: &str, setting: &Setting, options: &Options) -> Result<Run, String> {
    let world = World::create(setting.ftp.servers, setting.ftp.servers);
    let world = world.map_err(|error| error.to_string())?;
    let limit = TIME_LIMIT + setting.ftp.expected_duration();
    let (traffic, capture) = (Stop::after(limit), Stop::after(limit + SETTLE));
    let _ending = (OrderOnDrop(&traffic), OrderOnDrop(&capture));
    let text = |error: crate::demo::DemoError| error.to_string();
    let stop = capture.clone();
    let recorder = start(&world.servers, "recording", move |ready| {
        let mut source = ring(SERVERS_DEVICE, 10, 1 << 20, 64 << 20)?;
        only_tcp(&source)?;
        let _ = ready.send(());
        recording::record(&mut source, &stop).map_err(|error| error.to_string())
    });
    let recorder = recorder.map_err(text)?;
    let way = Way::start(engine, &world, &capture, options)?;
    let (log, background) = exercise(&world, setting, &traffic)?;
    std::thread::sleep(SETTLE);
    capture.order();
    let captured = way.finish()?;
    let (recording, recording_lost) = finish("recording", recorder).map_err(text)?;
    let mut run = compare(&recording, captured, &log, background);
    if recording_lost > 0 {
        run.failures.push(format!("the recording lost {recording_lost} frames"));
    }
    Ok(run)
}

fn way(engine: &str, stop: &Stop, ready: impl FnOnce()) -> Result<Captured, String> {
    let _as_any_other = fyke_kernel::run_before_others();
    match engine {
        "fyke-kernel" => ways::kernel(stop, ready),
        "opt-c" => ways::opt_c(stop, ready),
        "fyke-user" => fyke_user(stop, ready),
        "libpcap" => {
            let source = ring(SERVERS_DEVICE, 1, 1 << 14, 64 << 20)?;
            let old = OldWay::new(limits())?.capture(source, stop, ready)?;
            Ok(Captured {
                tally: old.tally,
                updates: old.updates.values().to_vec(),
                lost: old.ring_lost,
                failed: old.failed_updates,
                product: None,
            })
        }
        other => Err(format!("there is no way {other}")),
    }
}

/// Runs fyke in user space, with look-back.
fn fyke_user(stop: &Stop, ready: impl FnOnce()) -> Result<Captured, String> {
    let source = ring(SERVERS_DEVICE, 10, 1 << 18, 64 << 20)?;
    let settings =
        Settings { limits: limits(), skip_edit: None, write: None, live: true, below: None };
    let fyke = FykeWay::new(&settings).map_err(|error| error.to_string())?;
    let source = UntilStop { source: Box::new(source), stop: stop.clone() };
    let captured = fyke.capture(Box::new(source), ready).map_err(|error| error.to_string())?;
    Ok(Captured {
        updates: captured.results.updates.values().to_vec(),
        lost: captured.counts.lost,
        failed: captured.results.failed_updates,
        tally: captured.results.tally,
        product: None,
    })
}

/// Restricts the recording to IPv4 and TCP, without the background.
fn only_tcp(source: &RingSource) -> Result<(), String> {
    let program = [
        SockFilter::new(0x28, 0, 0, 12),
        SockFilter::new(0x15, 0, 3, 0x800),
        SockFilter::new(0x30, 0, 0, 23),
        SockFilter::new(0x15, 0, 1, 6),
        SockFilter::new(0x06, 0, 0, u32::MAX),
        SockFilter::new(0x06, 0, 0, 0),
    ];
    SockRef::from(source).attach_filter(&program).map_err(|error| error.to_string())
}

/// Runs the traffic; returns the background packets sent per second.
fn exercise(world: &World, setting: &Setting, stop: &Stop) -> Result<(Log, f64), String> {
    let quiet = Stop::after(TIME_LIMIT + setting.ftp.expected_duration());
    let _ending = OrderOnDrop(&quiet);
    let options = crate::background::Options {
        packets_per_second: setting.background_pps,
        payload_bytes: 60,
        direct: true,
        ..Default::default()
    };
    let background = Background::start(world, options, quiet.clone());
    let background = background.map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let exercise = Exercise::start(world, setting.ftp, stop.clone());
    let exercise = exercise.map_err(|error| error.to_string())?;
    while !exercise.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut log = exercise.finish();
    let seconds = begin.elapsed().as_secs_f64();
    let sent = background.finish().unwrap_or_else(|error| {
        log.failures.push(format!("background: {error}"));
        0
    });
    Ok((log, sent as f64 / seconds))
}

fn compare(recording: &Tally, captured: Captured, log: &Log, background: f64) -> Run {
    let mut transfers: Vec<_> = log.transfers.iter().collect();
    transfers.sort_by_key(|transfer| transfer.started_ns);
    let tally = &captured.tally;
    let connections: Vec<Comparison> = transfers
        .iter()
        .map(|transfer| recording.compare(Ends::new(transfer.server, transfer.client), tally))
        .collect();
    let mut control = Comparison::default();
    for ends in recording.with_port(CONTROL_PORT) {
        control.add(&recording.compare(ends, tally));
    }
    let sum = |of: fn(&Comparison) -> u64| connections.iter().map(of).sum::<u64>() + of(&control);
    let wanted = sum(|one| one.captured);
    let foreign = sum(|one| one.foreign);
    Run {
        wrong: tally.frame_count.saturating_sub(wanted) + foreign,
        connections,
        control,
        updates: captured.updates,
        lost: captured.lost,
        failed: captured.failed,
        background,
        product: captured.product,
        failures: log.failures.clone(),
    }
}
