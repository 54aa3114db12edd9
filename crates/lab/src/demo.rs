//! The demonstration: real passive-mode FTP, captured by a filter that is edited during the capture.
//!
//! ```text
//!  clients' namespace                                        servers' namespace
//!  FTP clients, background ──── veth ═══════════════ veth ──── FTP servers, sinks
//!                                │
//!            ┌───────────────────┼────────────────────┐   three packet sockets on the same device
//!        recording             fyke                old way
//!     everything, counted   pass set, edited    libpcap's program,
//!     per connection        in place            compiled and attached again
//! ```
//!
//! fyke starts with `ip and tcp port ftp`, reads the replies that announce data connections, and adds, changes and
//! removes passes. The old way does the same with a growing expression. The clients' log has the list of data
//! connections, the recording has their packets. The recording is made on the captured device, not at the other end
//! of the wire, because a frame lost in between could not be captured at all.
//!
//! If namespaces are not permitted, the same traffic is generated in memory and replayed, and the output states
//! this. Everything ends within [`TIME_LIMIT`].

pub(crate) mod expression;
pub(crate) mod fyke_way;
mod latency;
pub(crate) mod live;
mod memory;
pub(crate) mod old_way;
pub(crate) mod recording;
mod report;
mod side;
mod synthetic;
pub(crate) mod tally;

pub use latency::{Latencies, Nanoseconds};
pub use side::{DataConnection, Side, Spread};
pub use tally::Comparison;

use crate::net::{World, WorldError};
use crate::{background, ftp};
use fyke_graph::placement::Space;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum duration of a demonstration.
pub const TIME_LIMIT: Duration = Duration::from_secs(19);
/// Maximum bytes of all transfers together.
const MOST_BYTES: u64 = 300_000_000;
/// Initial filter of fyke.
pub const START_FILTER: &str = "ip and tcp port ftp";

/// Options of the demonstration.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Number of FTP servers, each with an address of its own; 1 to 250.
    pub servers: usize,
    /// Number of data connections of each server; 1 to 200.
    pub connections: usize,
    /// Bytes of a transfer.
    pub size_bytes: u64,
    /// Duration of the traffic, 1 to 12 seconds.
    pub seconds: f64,
    /// Unwanted UDP packets per second; 0 = no background.
    pub background_pps: u64,
    /// Runs the old way at the same time.
    pub old_way: bool,
    /// Suppresses the edit for the n-th announcement (from 1): the demonstration must detect this.
    pub skip_edit: Option<u64>,
    /// File for the captured FTP traffic.
    pub write: Option<PathBuf>,
    /// Prints one JSON object instead of a table.
    pub json: bool,
    /// Replays from memory even if namespaces are available.
    pub from_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            servers: 10,
            connections: 20,
            size_bytes: 240_000,
            seconds: 7.0,
            background_pps: 30_000,
            old_way: true,
            skip_edit: None,
            write: Some(PathBuf::from("fyke-demo.pcapng")),
            json: false,
            from_memory: false,
        }
    }
}

/// Location of the traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Between namespaces.
    Wire {
        /// Privilege used to create them.
        privilege: &'static str,
    },
    /// In memory only.
    Memory {
        /// The reason.
        reason: String,
    },
}

/// fyke's counts of all frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Frames that arrived at the socket.
    pub received: u64,
    /// Frames that were evaluated.
    pub seen: u64,
    /// Frames that were accepted and passed on, including late ones.
    pub delivered: u64,
    /// Accepted frames that were captured before the edit that accepts them.
    pub late: u64,
    /// Frames that were evaluated and not accepted.
    pub rejected: u64,
    /// Rejected frames that the kernel rejected.
    pub in_kernel: u64,
    /// Frames that were lost before evaluation because the ring was full.
    pub lost: u64,
}

/// The capture file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of packets in it, counted by reading it back.
    pub frame_count: u64,
}

/// Result of the demonstration.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Options of the run.
    pub options: Options,
    /// Location of the traffic.
    pub mode: Mode,
    /// Duration of the traffic.
    pub duration: Duration,
    /// Results of fyke.
    pub fyke: Side,
    /// Results of the old way, if it ran.
    pub old_way: Option<Side>,
    /// Reason why the old way did not run.
    pub no_old_way: Option<String>,
    /// fyke's counts.
    pub accounting: Counts,
    /// Description of the place of fyke's filter; `None` without a space below.
    pub placement: Option<String>,
    /// True if an edit was suppressed as requested.
    pub skipped: bool,
    /// The capture file.
    pub written: Option<Written>,
    /// Problems found; empty if everything is correct.
    pub problems: Vec<String>,
}

impl Outcome {
    /// Returns true if every frame is accounted for: `received = seen + lost` and `seen = delivered + rejected`.
    pub fn is_accounted_for(&self) -> bool {
        let counts = &self.accounting;
        counts.received == counts.seen + counts.lost
            && counts.seen == counts.delivered + counts.rejected
    }

    /// Returns true if there are no problems; otherwise the command exits with 1.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    /// Collects all problems.
    fn judge(&mut self, failures: &[String], recording_lost: u64) {
        let mut problems = Vec::new();
        let expected = self.options.servers * self.options.connections;
        if self.fyke.data.len() != expected {
            let done = self.fyke.data.len();
            problems.push(format!("the traffic itself: {done} of {expected} transfers succeeded"));
        }
        problems.extend(
            failures.iter().take(3).map(|failure| format!("the traffic itself: {failure}")),
        );
        if recording_lost > 0 {
            problems.push(format!(
                "the recording lost {recording_lost} frames: the number of missed packets is not exact"
            ));
        }
        let damaged = self.fyke.data.len() - self.fyke.whole();
        if damaged > 0 {
            let all = self.fyke.data.len();
            problems.push(format!("fyke: {damaged} of {all} data connections are incomplete"));
        }
        let control = &self.fyke.control;
        if control.missed + control.foreign > 0 {
            problems.push(format!(
                "control connections: fyke missed {} packets and has {} extra packets",
                control.missed, control.foreign
            ));
        }
        if self.fyke.failed_updates > 0 {
            problems.push(format!("{} edits were refused", self.fyke.failed_updates));
        }
        if !self.is_accounted_for() {
            problems.push(format!("the counts do not add up: {:?}", self.accounting));
        }
        if let Some(written) = &self.written {
            let (read, wanted) = (written.frame_count, self.accounting.delivered);
            if read != wanted {
                problems.push(format!("the capture file holds {read} packets instead of {wanted}"));
            }
        }
        if let Some(number) = self.options.skip_edit {
            problems.push(match self.skipped {
                true => format!("edit {number} was suppressed, as requested"),
                false => format!("there was no edit {number} to suppress"),
            });
        }
        self.problems = problems;
    }
}

/// Reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// An option is out of range.
    #[error("{option} is {given}, it must be {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// The given value.
        given: String,
        /// The permitted values.
        expected: &'static str,
    },
    /// The namespaces could not be set up.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A part could not be started, or it failed.
    #[error("{part}: {message}")]
    Part {
        /// The part.
        part: &'static str,
        /// Its message.
        message: String,
    },
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

impl DemoError {
    fn part(part: &'static str, error: impl std::fmt::Display) -> DemoError {
        DemoError::Part { part, message: error.to_string() }
    }

    /// The message without the name of the part, for callers that add it.
    fn message(self) -> String {
        match self {
            DemoError::Part { message, .. } => message,
            other => other.to_string(),
        }
    }
}

/// Runs the demonstration and writes its result. May give the process a user namespace of its own; see
/// [`crate::net`].
pub fn run(options: Options, out: &mut dyn Write) -> Result<Outcome, DemoError> {
    run_over(options, None, out)
}

/// Runs the demonstration; on a wire, fyke's filter also runs in the space below, if it can.
///
/// # Errors
/// As for [`run`].
pub fn run_over(
    options: Options,
    below: Option<&'static (dyn Space + Sync)>,
    out: &mut dyn Write,
) -> Result<Outcome, DemoError> {
    options.check()?;
    let json = options.json;
    let reason = match options.from_memory {
        true => Some("it was requested".to_string()),
        false => None,
    };
    let outcome = match reason {
        Some(reason) => memory::run(options, reason)?,
        None => match World::create(options.servers, options.servers) {
            Ok(world) => live::run(&world, options, below)?,
            Err(error @ WorldError::TooManyAddresses { .. }) => return Err(error.into()),
            // Namespaces are refused, or a permission to join them is missing.
            Err(error) => memory::run(options, error.to_string())?,
        },
    };
    if json {
        writeln!(out, "{}", report::json(&outcome))?;
    } else {
        report::table(&outcome, out)?;
    }
    Ok(outcome)
}

impl Options {
    fn check(&self) -> Result<(), DemoError> {
        let wrong =
            |option, given: String, expected| Err(DemoError::Option { option, given, expected });
        if !(1..=250).contains(&self.servers) {
            return wrong("the number of servers", self.servers.to_string(), "from 1 to 250");
        }
        if !(1..=200).contains(&self.connections) || self.servers * self.connections > 2_000 {
            let given = self.connections.to_string();
            return wrong("connections per server", given, "from 1 to 200, at most 2,000 in total");
        }
        if !(1.0..=12.0).contains(&self.seconds) {
            return wrong("the duration in seconds", self.seconds.to_string(), "from 1 to 12");
        }
        if !(1..=10_000_000).contains(&self.size_bytes) {
            let given = self.size_bytes.to_string();
            return wrong("the size of a transfer", given, "from 1 to 10,000,000 bytes");
        }
        let total = self.size_bytes.saturating_mul((self.servers * self.connections) as u64);
        if total > MOST_BYTES {
            let given = format!("{total} bytes");
            return wrong("all transfers together", given, "at most 300,000,000 bytes");
        }
        if self.background_pps > 1_000_000 {
            let given = self.background_pps.to_string();
            return wrong("the background", given, "at most 1,000,000 packets per second");
        }
        Ok(())
    }

    /// FTP options for the requested duration: half of it to start transfers, half of it for each transfer.
    fn ftp(&self) -> ftp::Options {
        const BURSTS: u64 = 5;
        let half = Duration::from_secs_f64(self.seconds / 2.0);
        let burst_bytes = self.size_bytes.div_ceil(BURSTS);
        let pause = half.as_secs_f64() / (BURSTS - 1) as f64;
        ftp::Options {
            servers: self.servers,
            connections: self.connections,
            interval: half / self.connections as u32,
            size_bytes: self.size_bytes,
            burst_bytes,
            bytes_per_second: ((burst_bytes as f64 / pause) as u64).max(1),
        }
    }

    fn background(&self) -> background::Options {
        background::Options { packets_per_second: self.background_pps, ..Default::default() }
    }
}
