//! `fyke generate`: sends generated frames in network namespaces, and prints what was sent.

use super::signals::stop_on_signals;
use super::{Failure, output};
use crate::cli::GenerateArgs;
use fyke_lab::generate::{
    Contents, Counts, FramesError, GenerateError, Options, Order, Pair, Row, Sent, run as send,
    sweep,
};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two lines of progress on a terminal.
const PROGRESS: Duration = Duration::from_secs(1);
/// Duration for each size of a sweep.
const SWEEP_TIME: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn run(args: GenerateArgs) -> Result<(), Failure> {
    if let Some(namespace) = &args.netns {
        fyke_privilege::namespace::enter(namespace)?;
    }
    // Before any thread is started: an ordinary user can make namespaces only then.
    let pair = match args.interface {
        Some(_) => None,
        None => Some(Pair::create()?),
    };
    let stop = stop_on_signals()?;
    let options = options(&args);
    if args.sweep {
        return run_sweep(&args, &options, pair.as_ref(), &stop);
    }
    let counts = Arc::<Counts>::default();
    let progress = (!args.json && std::io::stderr().is_terminal())
        .then(|| Progress::start(&counts))
        .transpose()?;
    let done = match &pair {
        Some(pair) => {
            pair.run(&options, &stop, &counts).map(|(sent, arrived)| (sent, Some(arrived)))
        }
        None => send(&options, &stop, &counts).map(|sent| (sent, None)),
    };
    if let Some(progress) = progress {
        progress.end();
    }
    let (sent, arrived) = done.map_err(failure)?;
    match args.json {
        true => writeln!(output(), "{}", object(&args, &sent, arrived))?,
        false => writeln!(output(), "{}", line(&args, &sent, arrived))?,
    }
    Ok(())
}

fn options(args: &GenerateArgs) -> Options {
    let time = args.time.or((args.sweep && args.count.is_none()).then_some(SWEEP_TIME));
    Options {
        interface: args.interface.clone().unwrap_or_default(),
        contents: Contents {
            sizes: args.size,
            flows: args.flows,
            protocol: args.protocol.into(),
            vlan: args.vlan,
            mac: args.mac.map(|mac| mac.0),
            seed: args.seed,
        },
        order: Order { rate: args.rate.0, count: args.count, time },
        threads: args.threads as usize,
        direct: args.direct,
    }
}

fn failure(error: GenerateError) -> Failure {
    match error {
        GenerateError::Frames(error @ FramesError::Memory { .. }) => {
            Failure::Usage(error.to_string())
        }
        other => other.into(),
    }
}

fn run_sweep(
    args: &GenerateArgs,
    options: &Options,
    pair: Option<&Pair>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    if !args.json {
        let arrived = if pair.is_some() { "     arrived" } else { "" };
        writeln!(
            output(),
            "{:>5} {:>11} {:>9} {:>11}{arrived} {:>8}",
            "bytes",
            "frames/s",
            "Mbit/s",
            "frames",
            "refused"
        )?;
    }
    let mut written = Ok(());
    let swept = sweep(options, pair, stop, |row| {
        let line = if args.json { row_object(args, row).to_string() } else { row_line(row) };
        let done = writeln!(output(), "{line}").and_then(|()| std::io::stdout().flush());
        if done.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        written = std::mem::replace(&mut written, Ok(())).and(done);
    });
    swept.map_err(failure)?;
    Ok(written?)
}

fn row_line(row: &Row) -> String {
    let arrived = row.arrived.map(|arrived| format!(" {arrived:>11}")).unwrap_or_default();
    format!(
        "{:>5} {:>11.0} {:>9.1} {:>11}{arrived} {:>8}",
        row.size,
        row.sent.rate(),
        row.sent.bits_per_second() / 1e6,
        row.sent.frames,
        row.sent.refused
    )
}

/// The closing line.
fn line(args: &GenerateArgs, sent: &Sent, arrived: Option<u64>) -> String {
    let wanted = match args.rate.0 {
        None => String::new(),
        Some(rate) if sent.is_below(args.rate.0) => {
            format!(" of {rate} wanted: this machine sent no more")
        }
        Some(rate) => format!(" of {rate} wanted"),
    };
    let arrived = arrived.map(|arrived| format!("; {arrived} arrived")).unwrap_or_default();
    format!(
        "{} frames, {} bytes sent in {:.3} s{arrived}; {:.0} frames/s{wanted}, {:.1} Mbit/s; {} refused by the queue",
        sent.frames,
        sent.bytes,
        sent.took.as_secs_f64(),
        sent.rate(),
        sent.bits_per_second() / 1e6,
        refusals(sent.refused)
    )
}

fn refusals(count: u64) -> String {
    if count == 1 { "1 call".to_owned() } else { format!("{count} calls") }
}

fn object(args: &GenerateArgs, sent: &Sent, arrived: Option<u64>) -> Value {
    json!({
        "interface": args.interface,
        "size": args.size.to_string(),
        "sent": sent.frames,
        "arrived": arrived,
        "bytes": sent.bytes,
        "refused": sent.refused,
        "seconds": sent.took.as_secs_f64(),
        "rate": sent.rate(),
        "wanted": args.rate.0,
        "bits_per_second": sent.bits_per_second(),
    })
}

fn row_object(args: &GenerateArgs, row: &Row) -> Value {
    let mut object = object(args, &row.sent, row.arrived);
    object["size"] = json!(row.size.to_string());
    object
}

/// A thread that rewrites a line of progress on a terminal.
struct Progress {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Progress {
    fn start(counts: &Arc<Counts>) -> std::io::Result<Progress> {
        let (over, counts) = (Arc::<AtomicBool>::default(), Arc::clone(counts));
        let ended = Arc::clone(&over);
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let (begin, mut before) = (Instant::now(), 0);
            while !ended.load(Ordering::Relaxed) {
                std::thread::park_timeout(PROGRESS);
                let (seconds, frames) = (begin.elapsed().as_secs_f64(), counts.frames());
                let mut stderr = std::io::stderr();
                let now = frames - before;
                let _ = write!(stderr, "\r{seconds:6.1} s, {frames} frames, {now} frames/s \x1b[K");
                before = frames;
            }
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        })?;
        Ok(Progress { over, thread })
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ended = self.thread.join();
    }
}
