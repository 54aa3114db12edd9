//! The engines: their command lines, what they say at the end, and the plain ring.

use super::world::{CAPTURE, Running, pin};
use crate::bench::measure::thread_time;
use crate::bench::printed;
use crate::net::sys::count::CountingRing;
use crate::net::{Namespace, SERVERS_DEVICE};
use crate::peers::libpcap::Libpcap;
use fyke_frame::LinkType;
use fyke_frame::bpf::Instruction;
use socket2::{SockFilter, SockRef};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Names of the engines; `none` is the sender without a capture.
pub const ENGINES: [&str; 5] = ["none", "fyke", "tcpdump", "dumpcap", "af_packet"];
/// Longest filter that is passed as an argument; the system's limit is 128 KiB.
const MAX_ARGUMENT: usize = 100_000;

/// The filter and the output of an engine.
#[derive(Clone)]
pub(super) struct Job {
    /// The command `fyke`.
    pub fyke: PathBuf,
    /// Folder of this run.
    pub folder: PathBuf,
    pub sink: PathBuf,
    /// The filter; `None` for every frame.
    pub text: Option<String>,
}

/// Counts of an engine at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub accepted: u64,
    pub lost: u64,
}

/// An engine at work.
pub(super) enum Capture {
    Nothing,
    Process(&'static str, Running),
    Plain(Plain),
}

impl Capture {
    /// Starts an engine.
    ///
    /// # Errors
    /// The reason why it cannot run here.
    pub(super) fn start(
        engine: &'static str,
        at: &Namespace,
        job: &Job,
    ) -> Result<Capture, String> {
        match engine {
            "none" => Ok(Capture::Nothing),
            "af_packet" => Plain::start(at, job.text.as_deref()).map(Capture::Plain),
            _ => {
                let running = Running::start(at, command(engine, job)?, ready(engine))?;
                Ok(Capture::Process(engine, running))
            }
        }
    }

    /// Processor time so far.
    pub(super) fn processor_time(&self) -> Duration {
        match self {
            Capture::Nothing => Duration::ZERO,
            Capture::Process(_, running) => running.processor_time(),
            Capture::Plain(plain) => Duration::from_nanos(plain.used_ns.load(Ordering::Relaxed)),
        }
    }

    /// Ends the engine and returns its counts.
    pub(super) fn finish(self) -> Result<Counts, String> {
        match self {
            Capture::Nothing => Ok(Counts::default()),
            Capture::Process(engine, running) => counts(engine, &running.stop()?),
            Capture::Plain(plain) => plain.finish(),
        }
    }
}

/// The line that an engine prints when it captures.
pub(super) fn ready(engine: &str) -> &'static str {
    if engine == "dumpcap" { "File: " } else { "listening on" }
}

/// Builds the command line of an engine.
pub(super) fn command(engine: &str, job: &Job) -> Result<Command, String> {
    let program = if engine == "fyke" { job.fyke.as_path() } else { Path::new(engine) };
    let mut command = Command::new(program);
    match engine {
        "fyke" => command.args(["dump", "-n"]),
        // Files of the bench belong to this user.
        "tcpdump" => command.args(["-n", "-Z", "root"]),
        _ => command.args(["-q"]),
    };
    command.env("FYKE_RUNTIME_DIR", job.folder.join("run"));
    command.args(["-i", SERVERS_DEVICE, "-w"]).arg(&job.sink);
    match &job.text {
        None => {}
        Some(text) if engine == "dumpcap" && text.len() > MAX_ARGUMENT => {
            return Err("it reads no filter from a file, and this one is too long for an argument"
                .to_owned());
        }
        Some(text) if engine == "dumpcap" => _ = command.args(["-f", text]),
        Some(text) if text.len() > MAX_ARGUMENT => {
            let path = job.folder.join("filter");
            std::fs::write(&path, text).map_err(|error| error.to_string())?;
            command.arg("-F").arg(path);
        }
        Some(text) => _ = command.arg(text),
    }
    Ok(command)
}

/// Reads the counts that an engine prints at its end.
pub(super) fn counts(engine: &str, text: &str) -> Result<Counts, String> {
    let counts = match engine {
        "fyke" | "serve" => printed::sum(text).map(|sum| (sum.accepted, sum.lost())),
        "tcpdump" => {
            let before = |what: &str| text.lines().find_map(|line| line.strip_suffix(what));
            let accepted = before(" packets captured").or(before(" packet captured"));
            let lost = before(" packets dropped by kernel").or(before(" packet dropped by kernel"));
            number(accepted).zip(number(lost))
        }
        _ => {
            // Its counts begin with a carriage return.
            let mut lines = text.lines().map(|line| line.trim_start_matches('\r'));
            let mut line = |start: &str| lines.find_map(|line| line.strip_prefix(start));
            let accepted = number(line("Packets captured: "));
            let dropped = line("Packets received/dropped on interface");
            let dropped = dropped.and_then(|rest| rest.split_once("': "));
            let dropped = dropped.and_then(|(_, rest)| rest.split(' ').next()?.split_once('/'));
            accepted.zip(number(dropped.map(|(_, lost)| lost)))
        }
    };
    let counts = counts.map(|(accepted, lost)| Counts { accepted, lost });
    counts.ok_or_else(|| format!("its counts cannot be read: {text}"))
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.trim().parse().ok()
}

/// The plain ring, in a thread of this process.
pub(super) struct Plain {
    stop: Arc<AtomicBool>,
    used_ns: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<io::Result<Counts>>>,
}

impl Plain {
    fn start(at: &Namespace, text: Option<&str>) -> Result<Plain, String> {
        let program = text.map(program).transpose()?;
        let (stop, used_ns) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (ready, started) = std::sync::mpsc::channel();
        let (ended, used) = (Arc::clone(&stop), Arc::clone(&used_ns));
        let thread = at.spawn("af_packet", move || {
            pin(CAPTURE)?;
            let mut ring = CountingRing::open()?;
            if let Some(program) = program {
                SockRef::from(&ring).attach_filter(&program)?;
            }
            ring.start(SERVERS_DEVICE)?;
            let _is_waited_for = ready.send(());
            let mut counts = Counts::default();
            while !ended.load(Ordering::Relaxed) {
                counts.accepted += ring.take(50)?;
                used.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
            }
            counts.accepted += ring.take(0)?;
            counts.lost = ring.lost()?;
            Ok(counts)
        });
        let plain = Plain { stop, used_ns, thread: thread.map_err(|error| error.to_string())? };
        match started.recv() {
            Ok(()) => Ok(plain),
            Err(_) => plain.finish().and_then(|_| Err("the ring does not start".to_owned())),
        }
    }

    fn finish(self) -> Result<Counts, String> {
        self.stop.store(true, Ordering::Relaxed);
        let done = self.thread.join().map_err(|_| "the ring's thread panicked".to_owned())?;
        done.and_then(|done| done).map_err(|error| error.to_string())
    }
}

/// Compiles a filter to the kernel's classic BPF, by libpcap, as programs with a plain ring do.
pub(in crate::bench) fn program(text: &str) -> Result<Vec<SockFilter>, String> {
    let libpcap = Libpcap::load().map_err(|error| error.to_string())?;
    let program = libpcap.compile(LinkType::EN10MB, 262_144, text, true)?;
    let program = program.instructions();
    if program.len() > libc::BPF_MAXINSNS as usize {
        return Err(format!("its filter would have {} instructions", program.len()));
    }
    let convert = |one: &Instruction| SockFilter::new(one.code, one.jt, one.jf, one.k);
    Ok(program.iter().map(convert).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_last_lines() {
        let expected = Counts { accepted: 250, lost: 7 };
        let fyke = "listening on x\n1000 seen = 250 accepted + 743 rejected + 4 lost (ring) + 3 \
                    lost (writer); 0 edits\n";
        let tcpdump = "250 packets captured\n257 packets received by filter\n7 packets dropped by \
                       kernel\n";
        let dumpcap = "File: /dev/null\n\rPackets captured: 250\nPackets received/dropped on interface 'servers': \
                       250/7 (pcap:7/dumpcap:0/flushed:0/ps_ifdrop:0) (97.3%)\n";
        for (engine, text) in [("fyke", fyke), ("tcpdump", tcpdump), ("dumpcap", dumpcap)] {
            assert_eq!(counts(engine, text), Ok(expected), "{engine}");
            assert!(counts(engine, "nothing").is_err(), "{engine}");
        }
    }
}
