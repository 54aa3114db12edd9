//! `fyke bench share`: readers with filters of their own on one capture, beside as many captures with tcpdump.
//!
//! ```text
//!   fyke:     one `fyke demux` stores each frame once ── rings ──▶ N × `fyke dump -i ring:…`
//!   serve:    one `fyke serve`, of which the readers are N × `fyke dump -i serve:… FILTER`
//!   drop-in:  one `fyke serve`, and N × `tcpdump -i fyke:…` on fyke's library of libpcap's interface
//!   tcpdump:  N × `tcpdump`, each with a socket of its own
//! ```
//!
//! The world, the traffic and the cost are those of `fyke bench live`; the cost is that of all processes together. Both
//! kinds write what they accept to `/dev/null`. All captures share one processor.
//!
//! | case | what |
//! |---|---|
//! | `own-1` … `own-8` | N readers, each with a filter of its own; together they accept one frame in 4 |
//! | `all-1` … `all-8` | N readers that all accept every frame |
//! | `stop` | one of three readers is stopped during the traffic, and continued: frames that the others lose |
//! | `join` | readers that come and go during the traffic: the time that it takes, frames that the others lose |
//!
//! In every run, what a reader accepted and lost must be what was sent for it. Bytes that the writer stores for all
//! readers are compared with those of one reader (`all-N`) that gets the same frames; they are the position of the
//! writer in the packet buffer, which it announces to all readers. After the traffic the processor time of all
//! processes is measured while no frame arrives.

use super::Start;
use super::engines::{Counts, counts};
use super::traffic::{End, Order, Pattern, Sender, send_all};
use super::world::{Folder, Running};
use crate::bench::measure::{Samples, engine_at};
use crate::bench::report::{Measurement, Report};
use crate::bench::{BenchError, Options, Progress};
use crate::net::{SERVERS_DEVICE, World};
use fyke_ring::Reader;
use fyke_serve::Connection;
use fyke_serve::message::Text;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The bench's name in reports.
pub const BENCH: &str = "share";
/// Names of the engines; `none` is the sender without a capture.
pub const ENGINES: [&str; 5] = ["none", "fyke", "serve", "drop-in", "tcpdump"];
/// Engines with one capture for all readers.
const SHARED: [&str; 3] = ["fyke", "serve", "drop-in"];
/// Those of them with readers of fyke.
const OWN: [&str; 2] = ["fyke", "serve"];
const CASES: [&str; 10] =
    ["own-1", "own-2", "own-4", "own-8", "all-1", "all-2", "all-4", "all-8", "stop", "join"];
/// Cases at smoke size.
const SMOKE_CASES: [&str; 5] = ["own-2", "all-1", "all-2", "stop", "join"];
/// One frame in this number is accepted by the readers of `own-N` together.
const SHARE: u64 = 4;
/// Port of the frames for the first reader; the next ones have the next ports.
const PORT: u16 = 20_000;

/// Size of the measurement.
#[derive(Clone, Copy)]
struct Scale {
    first: u64,
    count: u64,
    rate: u64,
    settle: Duration,
    rounds: usize,
    joins: usize,
}

struct Bench {
    world: World,
    fyke: PathBuf,
    folder: Folder,
    scale: Scale,
}

/// The captures of an engine.
struct Captures {
    engine: &'static str,
    writer: Option<Running>,
    readers: Vec<Running>,
}

/// One engine in one round.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Nanoseconds per frame sent: of the sender, of all captures, and of their readers alone.
    sender: f64,
    own: f64,
    readers: f64,
    lost: u64,
    accepted: u64,
    /// Bytes that the writer stored, per frame sent.
    stored: f64,
    /// Share of a processor of all processes together while no frame arrives, in percent.
    idle: f64,
}

/// Bytes per frame that the writer stores for a single reader (`all-1`), by engine.
type Single = HashMap<&'static str, f64>;

/// Runs the bench.
///
/// # Errors
/// [`BenchError`]; without namespaces or privilege the message states what is missing.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let there: &[&str] = if options.smoke { &SMOKE_CASES } else { &CASES };
    let Start { cases, engines, world, fyke, folder, mut report } =
        Start::of(options, there, &ENGINES)?;
    let scale = match options.smoke {
        true => Scale {
            first: 1_000,
            count: 4_000,
            rate: 50_000,
            settle: Duration::from_millis(1_200),
            rounds: 1,
            joins: 20,
        },
        false => Scale {
            first: 300_000,
            count: 900_000,
            rate: 300_000,
            settle: Duration::from_millis(1_200),
            rounds: 5,
            joins: 500,
        },
    };
    let scale = Scale { rounds: options.rounds.unwrap_or(scale.rounds), ..scale };
    let bench = Bench { world, fyke, folder, scale };
    let mut single = Single::new();
    for (index, case) in cases.iter().enumerate() {
        progress(case, index, cases.len());
        let done = match case.rsplit_once('-').map(|(kind, size)| (kind, size.parse())) {
            Some((kind, Ok(readers))) => {
                bench.cost((kind, readers), &engines, &mut single, &mut report)
            }
            _ if *case == "stop" => bench.each(&engines, |engine| bench.stop(engine, &mut report)),
            _ => bench.each(&engines, |engine| bench.join(engine, &mut report)),
        };
        done.map_err(|why| BenchError::Other(format!("{case}: {why}")))?;
    }
    progress("done", cases.len(), cases.len());
    Ok(report)
}

/// The filter of a reader.
fn text(kind: &str, reader: usize) -> String {
    match kind {
        "all" => "greater 0".to_owned(),
        _ => format!("udp dst port {}", PORT + reader as u16),
    }
}

/// A text that accepts none of the frames.
fn nothing() -> Text {
    Text { id: 1, text: "udp dst port 7".to_owned() }
}

fn pattern(kind: &str, readers: usize) -> Arc<Pattern> {
    let end = |reader: usize| -> End { (0x0a01_0109, PORT + reader as u16) };
    let ends: Vec<End> = (0..readers).map(end).collect();
    Arc::new(Pattern::new(if kind == "all" { 1 } else { SHARE }, &ends))
}

/// Frames among the first `count` that a reader accepts.
fn expected(kind: &str, pattern: &Pattern, count: u64, readers: usize, reader: usize) -> u64 {
    match kind {
        "all" => count,
        _ => (pattern.hits(count) + (readers - 1 - reader) as u64) / readers as u64,
    }
}

impl Bench {
    fn ring(&self, reader: usize) -> PathBuf {
        self.folder.file(&format!("{reader}.ring"))
    }

    /// Path of the socket of the service.
    fn service(&self) -> PathBuf {
        self.folder.file("serve.sock")
    }

    /// Measures the chosen engines with one capture for all readers.
    fn each(
        &self,
        engines: &[&'static str],
        mut measure: impl FnMut(&'static str) -> Result<(), String>,
    ) -> Result<(), String> {
        OWN.into_iter().filter(|one| engines.contains(one)).try_for_each(&mut measure)
    }

    /// A folder with fyke's library under libpcap's name, beside the command as it was built, or as it is installed.
    fn library(&self) -> Result<PathBuf, String> {
        let beside = self.fyke.parent().unwrap_or(Path::new("."));
        let places = ["libfyke_pcap.so", "deps/libfyke_pcap.so", "../lib/fyke/pcap/libpcap.so.0.8"];
        let found = places.iter().map(|place| beside.join(place)).find(|path| path.exists());
        let found = found.and_then(|path| path.canonicalize().ok());
        let found = found.ok_or_else(|| format!("no {} beside {}", places[0], self.fyke.display()));
        let (found, folder) = (found?, self.folder.file("pcap"));
        let link = |name: &str| match std::os::unix::fs::symlink(&found, folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        };
        let made = std::fs::create_dir_all(&folder)
            .and_then(|()| ["libpcap.so.0.8", "libpcap.so.1"].into_iter().try_for_each(link));
        made.map(|()| folder).map_err(|error| error.to_string())
    }

    /// Connects to the capture as a further reader; dropping the result leaves.
    fn further_reader(&self, engine: &str) -> Result<Box<dyn std::any::Any>, String> {
        if engine == "fyke" {
            let reader = Reader::connect(&self.ring(0)).map_err(|error| error.to_string())?;
            return Ok(Box::new(reader));
        }
        let name = self.service().display().to_string();
        let connection = Connection::open(&name, None).map_err(|error| error.to_string())?;
        let reader = connection.buffers(vec![nothing()], 0).map_err(|error| error.to_string())?;
        Ok(Box::new((connection, reader)))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("FYKE_RUNTIME_DIR", self.folder.file("run"));
        command
    }

    /// Starts the captures of an engine.
    fn start(&self, engine: &'static str, kind: &str, readers: usize) -> Result<Captures, String> {
        let at = &self.world.servers;
        let mut captures = Captures { engine, writer: None, readers: Vec::new() };
        if engine == "none" {
            return Ok(captures);
        }
        if engine == "fyke" {
            let mut command = self.command(&self.fyke);
            command.args(["demux", "--no-control", "-i", SERVERS_DEVICE]);
            for reader in 0..readers {
                let ring = self.ring(reader);
                command.arg(format!("{} => ring:{}", text(kind, reader), ring.display()));
            }
            let writer = Running::launch(at, command)?;
            let begin = Instant::now();
            while !(0..readers).all(|reader| self.ring(reader).exists()) {
                if begin.elapsed() > Duration::from_secs(20) {
                    return Err(format!("the writer does not start: {}", writer.printed()));
                }
                sleep(Duration::from_millis(2));
            }
            captures.writer = Some(writer);
        }
        if engine == "serve" || engine == "drop-in" {
            let mut command = self.command(&self.fyke);
            command.args(["serve", "--no-control", "-i", SERVERS_DEVICE, "--name"]);
            command.arg(self.service());
            captures.writer = Some(Running::start(at, command, "serving ")?);
        }
        for reader in 0..readers {
            let mut command = match engine {
                "fyke" | "serve" => self.command(&self.fyke),
                _ => self.command(Path::new("tcpdump")),
            };
            match engine {
                "fyke" => {
                    command.args(["dump", "-n", "--no-control", "-w", "/dev/null", "-i"]);
                    command.arg(format!("ring:{}", self.ring(reader).display()));
                }
                "serve" => {
                    command.args(["dump", "-n", "--no-control", "-w", "/dev/null", "-i"]);
                    command.arg(format!("serve:{}", self.service().display()));
                    command.arg(text(kind, reader));
                }
                _ => {
                    command.args(["-n", "-Z", "root", "-w", "/dev/null", "-i"]);
                    if engine == "drop-in" {
                        command.env("LD_LIBRARY_PATH", self.library()?);
                        command.arg(format!("fyke:{}", self.service().display()));
                    } else {
                        command.arg(SERVERS_DEVICE);
                    }
                    command.arg(text(kind, reader));
                }
            }
            captures.readers.push(Running::start(at, command, "listening on")?);
        }
        Ok(captures)
    }

    /// Measures the cost of a case with all engines.
    fn cost(
        &self,
        (kind, readers): (&str, usize),
        engines: &[&'static str],
        single: &mut Single,
        report: &mut Report,
    ) -> Result<(), String> {
        let case = format!("{kind}-{readers}");
        let mut there = Vec::new();
        for &engine in engines {
            match self.start(engine, kind, readers).and_then(|captures| captures.finish(None)) {
                Ok(_) => there.push(engine),
                Err(why) if !OWN.contains(&engine) => {
                    report.note(format!("without {engine}: {why}"))
                }
                Err(why) => return Err(why),
            }
        }
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); there.len()];
        for round in 0..self.scale.rounds {
            for place in 0..there.len() {
                let at = engine_at(place, round, there.len());
                let run = self.run_once(there[at], kind, readers);
                runs[at].push(run.map_err(|why| format!("{}: {why}", there[at]))?);
            }
        }
        publish(&case, &there, &runs, report);
        stored(&case, &there, &runs, single, report);
        Ok(())
    }

    /// Runs an engine once over the traffic and checks its counts.
    fn run_once(&self, engine: &'static str, kind: &str, readers: usize) -> Result<Run, String> {
        let Scale { first, count, rate, settle, .. } = self.scale;
        let pattern = pattern(kind, readers);
        let wrong = |error: std::io::Error| error.to_string();
        let captures = self.start(engine, kind, readers)?;
        send_all(&self.world.clients, Order::new(&pattern, first, rate)).map_err(wrong)?;
        sleep(settle);
        let stored = self.stored(engine)?;
        let [begin, begin_readers] = captures.processor_times();
        let order = Order::new(&pattern, count, rate);
        let sent = send_all(&self.world.clients, order).map_err(wrong)?;
        sleep(settle);
        let [end, end_readers] = captures.processor_times();
        let stored = self.stored(engine)?.saturating_sub(stored);
        sleep(settle);
        let [idle, idle_readers] = captures.processor_times();
        let (idle, idle_readers) =
            (idle.saturating_sub(end), idle_readers.saturating_sub(end_readers));
        let used = end.saturating_sub(begin).saturating_sub(idle);
        let by_readers = end_readers.saturating_sub(begin_readers).saturating_sub(idle_readers);
        let sent_for = |reader| {
            let of = |count| expected(kind, &pattern, count, readers, reader);
            of(first) + of(count)
        };
        let Counts { accepted, lost } = captures.finish(Some(&sent_for))?;
        Ok(Run {
            sender: sent.ns_per_frame(),
            own: used.as_nanos() as f64 / count as f64,
            readers: by_readers.as_nanos() as f64 / count as f64,
            lost,
            accepted,
            stored: stored as f64 / count as f64,
            idle: idle.as_secs_f64() / settle.as_secs_f64() * 100.0,
        })
    }

    /// Bytes that the writer has stored so far.
    fn stored(&self, engine: &str) -> Result<u64, String> {
        match engine {
            "fyke" => {
                let reader = Reader::connect(&self.ring(0)).map_err(|error| error.to_string())?;
                Ok(reader.stored_bytes())
            }
            // All readers are of one user, so this one shares their packet buffer.
            "serve" | "drop-in" => {
                let name = self.service().display().to_string();
                let connection =
                    Connection::open(&name, None).map_err(|error| error.to_string())?;
                let reader = connection.buffers(vec![nothing()], 0);
                Ok(reader.map_err(|error| error.to_string())?.stored_bytes())
            }
            _ => Ok(0),
        }
    }

    /// One of three readers is stopped while frames arrive, and continued.
    fn stop(&self, engine: &'static str, report: &mut Report) -> Result<(), String> {
        let Scale { count, rate, settle, .. } = self.scale;
        let (kind, readers) = ("all", 3);
        let pattern = pattern(kind, readers);
        let captures = self.start(engine, kind, readers)?;
        let signal = |signal| {
            let pid = Pid::from_raw(captures.readers[0].id().cast_signed());
            kill(pid, signal).map_err(|error| error.to_string())
        };
        signal(Signal::SIGSTOP)?;
        let sent = send_all(&self.world.clients, Order::new(&pattern, count, rate));
        signal(Signal::SIGCONT)?;
        sent.map_err(|error| error.to_string())?;
        sleep(settle);
        let all = captures.finish_each()?;
        for (reader, Counts { accepted, lost }) in all.iter().enumerate() {
            if accepted + lost != count {
                return Err(format!(
                    "{engine}: reader {reader}: {accepted} and {lost} lost of {count}"
                ));
            }
        }
        let mut push = |setting: &str, value: u64| {
            let one = Measurement::value(BENCH, "stop", engine, setting, value as f64, "frames");
            report.push(one);
        };
        push("lost by the reader that stopped", all[0].lost);
        push("lost by the others", all[1..].iter().map(|counts| counts.lost).sum());
        Ok(())
    }

    /// Readers come and go while frames arrive.
    fn join(&self, engine: &'static str, report: &mut Report) -> Result<(), String> {
        let Scale { rate, settle, joins, .. } = self.scale;
        let (kind, readers) = ("all", 2);
        let captures = self.start(engine, kind, readers)?;
        let order = Order::new(&pattern(kind, readers), rate * 600, rate);
        let stop = Arc::clone(&order.stop);
        let sender = Sender::start(&self.world.clients, order);
        let sender = sender.map_err(|error| error.to_string())?;
        let (mut comes, mut goes) = (Samples::default(), Samples::default());
        for _ in 0..joins {
            let begin = Instant::now();
            let reader = self.further_reader(engine)?;
            comes.push(begin.elapsed().as_secs_f64() * 1e3);
            let begin = Instant::now();
            drop(reader);
            goes.push(begin.elapsed().as_secs_f64() * 1e3);
            sleep(Duration::from_millis(2));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let sent = sender.finish().map_err(|error| error.to_string())?;
        sleep(settle);
        let all = captures.finish_each()?;
        for (reader, Counts { accepted, lost }) in all.iter().enumerate() {
            if accepted + lost != sent.frames {
                let of = sent.frames;
                return Err(format!(
                    "{engine}: reader {reader}: {accepted} and {lost} lost of {of}"
                ));
            }
        }
        let mut push = |setting: &str, value: f64, unit: &str| {
            let one = Measurement::value(BENCH, "join", engine, setting, value, unit);
            report.push(one.runs(joins));
        };
        push("to connect, median", comes.median(), "ms");
        push("to connect, 99 %", comes.quantile(0.99), "ms");
        push("to leave, median", goes.median(), "ms");
        push(
            "lost by the others",
            all.iter().map(|counts| counts.lost).sum::<u64>() as f64,
            "frames",
        );
        Ok(())
    }
}

impl Captures {
    /// Processor time so far of all processes, and of the readers.
    fn processor_times(&self) -> [Duration; 2] {
        let readers: Duration = self.readers.iter().map(Running::processor_time).sum();
        let writer: Duration = self.writer.iter().map(Running::processor_time).sum();
        [readers + writer, readers]
    }

    /// Ends all processes; returns the counts of each reader.
    fn finish_each(self) -> Result<Vec<Counts>, String> {
        let engine = if self.engine == "drop-in" { "tcpdump" } else { self.engine };
        let each = self.readers.into_iter().map(|reader| counts(engine, &reader.stop()?));
        let all = each.collect::<Result<Vec<Counts>, String>>()?;
        self.writer.map_or(Ok(()), |writer| writer.stop().map(drop))?;
        Ok(all)
    }

    /// Ends all processes and adds their counts; each reader's must be what was sent for it.
    fn finish(self, expected: Option<&dyn Fn(usize) -> u64>) -> Result<Counts, String> {
        let mut sum = Counts::default();
        for (reader, Counts { accepted, lost }) in self.finish_each()?.into_iter().enumerate() {
            let wanted = expected.map(|expected| expected(reader));
            if let Some(wanted) = wanted.filter(|wanted| accepted + lost != *wanted) {
                return Err(format!(
                    "reader {reader}: {accepted} accepted and {lost} lost, but {wanted} were sent"
                ));
            }
            (sum.accepted, sum.lost) = (sum.accepted + accepted, sum.lost + lost);
        }
        Ok(sum)
    }
}

/// Reports medians, ratios to tcpdump, and losses.
fn publish(case: &str, engines: &[&str], runs: &[Vec<Run>], report: &mut Report) {
    let of = |engine: &str| engines.iter().position(|name| *name == engine).map(|at| &runs[at]);
    let samples = |runs: &[Run], figure: &dyn Fn(usize, &Run) -> f64| {
        let mut samples = Samples::default();
        runs.iter().enumerate().for_each(|(round, run)| samples.push(figure(round, run)));
        samples
    };
    let base = |round: usize| of("none").and_then(|runs| runs.get(round)).map(|run| run.sender);
    let in_all = |round: usize, run: &Run| run.sender - base(round).unwrap_or(0.0) + run.own;
    let theirs = of("tcpdump").map(|runs| samples(runs, &in_all));
    let readers = |_: usize, run: &Run| run.readers;
    let their_readers = of("tcpdump").map(|runs| samples(runs, &readers));
    for (engine, runs) in engines.iter().zip(runs) {
        let mut push = |setting: &str, value: f64, unit: &str| {
            let one = Measurement::value(BENCH, case, engine, setting, value, unit);
            let accepted = runs.last().filter(|_| *engine != "none").map(|run| run.accepted);
            report.push(Measurement { accepted, ..one.runs(runs.len()) });
        };
        if *engine == "none" {
            push(
                "sender without a capture",
                samples(runs, &|_, run| run.sender).median(),
                "ns/frame",
            );
            continue;
        }
        let all = samples(runs, &in_all);
        push("cost in all", all.median(), "ns/frame");
        push("of the processes", samples(runs, &|_, run| run.own).median(), "ns/frame");
        let own_readers = samples(runs, &readers);
        push("of the readers", own_readers.median(), "ns/frame");
        if let (Some(theirs), "drop-in") = (&their_readers, *engine) {
            push("of the readers, of tcpdump's", own_readers.over(theirs).median(), "ratio");
        }
        push("lost", runs.iter().map(|run| run.lost).sum::<u64>() as f64, "frames");
        if let (Some(theirs), true) = (&theirs, SHARED.contains(engine)) {
            push("cost in all, of tcpdump's", all.over(theirs).median(), "ratio");
        }
        push("while no frame arrives", samples(runs, &|_, run| run.idle).median(), "%");
    }
}

/// Reports the bytes that the writers store, and for `all-N` their ratio to those of `all-1`.
fn stored(
    case: &str,
    engines: &[&'static str],
    runs: &[Vec<Run>],
    single: &mut Single,
    report: &mut Report,
) {
    for (engine, runs) in engines.iter().zip(runs).filter(|(one, _)| SHARED.contains(*one)) {
        let mut samples = Samples::default();
        runs.iter().for_each(|run| samples.push(run.stored));
        let stored = samples.median();
        let mut push = |setting: &str, value: f64, unit: &str| {
            let one = Measurement::value(BENCH, case, engine, setting, value, unit);
            report.push(one.runs(runs.len()));
        };
        push("stored by the writer", stored, "bytes/frame");
        if case == "all-1" {
            single.insert(engine, stored);
        }
        if let Some(one) = single.get(engine).filter(|_| case.starts_with("all-")) {
            push("stored, of one reader's", stored / one, "ratio");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hit_is_expected_by_one_reader() {
        for readers in [1, 2, 4, 8] {
            let pattern = pattern("own", readers);
            for count in [0, 1, 4, 5, 33, 1_000] {
                let each = (0..readers).map(|one| expected("own", &pattern, count, readers, one));
                assert_eq!(each.sum::<u64>(), pattern.hits(count), "{readers} {count}");
            }
        }
    }
}
