//! Command-line arguments and their help texts, one file per command; [`crate::commands`] runs the commands.
//!
//! `fyke dump` accepts command lines of tcpdump: clustered options, an expression as one argument or several words,
//! options after the expression, `--` to end options. Exit status: 0 success, 1 failure at run time, 2 error in the
//! command line or in an expression.

mod account;
#[cfg(feature = "lab")]
mod bench;
mod ctl;
#[cfg(feature = "lab")]
mod demo;
mod demux;
mod dump;
mod exec;
mod explain;
mod extcap;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "lab")]
mod generate;
mod ids;
mod intercept;
mod lend;
mod machine;
mod mcp;
#[cfg(feature = "web")]
mod metrics;
mod relay;
mod resume;
mod ruler;
mod rules;
mod run;
mod serve;
mod snort2ruler;
pub mod tcpdump;
#[cfg(feature = "top")]
mod top;
mod track;
mod unknown;
#[cfg(feature = "web")]
mod web;
mod written;

pub use account::*;
#[cfg(feature = "lab")]
pub use bench::*;
pub use ctl::*;
#[cfg(feature = "lab")]
pub use demo::*;
pub use demux::*;
pub use dump::*;
pub use exec::*;
pub use explain::*;
pub use extcap::*;
#[cfg(feature = "fleet")]
pub use fleet::*;
#[cfg(feature = "lab")]
pub use generate::*;
pub use ids::*;
pub use intercept::*;
pub use lend::*;
pub use machine::*;
pub use mcp::*;
#[cfg(feature = "web")]
pub use metrics::*;
pub use relay::*;
pub use resume::*;
pub use ruler::*;
pub use rules::*;
pub use run::*;
pub use serve::*;
pub use snort2ruler::*;
#[cfg(feature = "top")]
pub use top::*;
pub use track::*;
pub use unknown::explained;
#[cfg(feature = "web")]
pub use web::*;
pub use written::*;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A dynamic packet filter and traffic monitor: its filters can be changed while they run, without losing a packet.
#[derive(Debug, Parser)]
#[command(name = "fyke", version, max_term_width = 110, after_help = EXAMPLES)]
#[command(args_override_self = true)]
pub struct Cli {
    /// Form of messages on standard error; a JSON object has the time, the kind of event and the message
    #[arg(long, global = true, value_name = "FORM", default_value = "text")]
    pub log: LogForm,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Forms of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogForm {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
}

/// Parser for a number of at least 1.
fn from_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

const EXAMPLES: &str = "\
Examples:
  fyke dump -ni eth0 'tcp port 443'          print matching frames as they arrive
  fyke dump -r in.pcapng --count udp         count matching frames of a file
  fyke ctl add 'udp port 53'                 add a filter to the running dump, from another terminal
  fyke explain 'ip and tcp port (21 or 80)'  show how a filter will run
  fyke track ftp -i eth0 -w ftp.pcapng       FTP with all its data connections
  fyke demo                                  see all of it work on generated traffic";

/// The commands of `fyke`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Capture frames or read them from a file; filter them; print or write them.
    Dump(Box<DumpArgs>),
    /// Show how a filter expression is read and how it will run.
    Explain(ExplainArgs),
    /// Run a flow graph of connected sources, filters, counters and sinks.
    Run(RunArgs),
    /// Show or edit the filters of a running fyke.
    Ctl(CtlArgs),
    /// Take a killed capture up again, with its filters and its file.
    Resume(ResumeArgs),
    /// Show a running fyke on a terminal: rates of filters and nodes, edits from the keyboard.
    #[cfg(feature = "top")]
    Top(TopArgs),
    /// Show running fykes as a page in a browser: rates, filters, edits, rejected frames.
    #[cfg(feature = "web")]
    Web(WebArgs),
    /// Answer assistants about running fykes, by the Model Context Protocol.
    Mcp(McpArgs),
    /// Serve the counts of running fykes to monitoring systems, in the OpenMetrics format.
    #[cfg(feature = "web")]
    Metrics(MetricsArgs),
    /// Show or edit the Bloom pre-filter of a running fyke.
    Rules(RulesArgs),
    /// Follow protocols that negotiate ports, and capture all of their connections.
    Track(TrackArgs),
    /// Capture the frames of users with a warrant, encrypted, while their addresses change.
    Intercept(Box<InterceptArgs>),
    /// Send each frame to every endpoint with an expression that matches it.
    Demux(DemuxArgs),
    /// Count the traffic of each interface and direction, by filters and classes of applications, in intervals.
    Account(Box<AccountArgs>),
    /// Assemble, print, check and run programs of the pseudo machines CSPF, BPF and MPF.
    Machine(MachineArgs),
    /// Match, classify and rewrite packets by patterns over their bytes; anonymise captures.
    Ruler(RulerArgs),
    /// Judge traffic by rules of Snort and Suricata, and write alerts.
    Ids(Box<IdsArgs>),
    /// Translate rules of Snort and Suricata, and report those that cannot be judged exactly.
    Snort2ruler(Snort2rulerArgs),
    /// Run an unmodified capturing program (tcpdump, …) with a filter that can be edited while it runs.
    Exec(ExecArgs),
    /// Give Wireshark, tshark and dumpcap interfaces with a filter that can be edited while they capture.
    Extcap(ExtcapArgs),
    /// Capture once for many programs: each opens filters of its own and reads frames without a copy of its own.
    Serve(ServeArgs),
    /// Give clients on other machines the frames of a service or a ring, by filters of their own, over TLS.
    Relay(RelayArgs),
    /// Keep the filters of a group of machines in force at the fyke of this one.
    #[cfg(feature = "fleet")]
    Sensor(SensorArgs),
    /// Do the jobs of `fyke fleet scan` over the capture files of a folder.
    #[cfg(feature = "fleet")]
    Worker(WorkerArgs),
    /// Show or edit the filters of a group of machines, in one order.
    #[cfg(feature = "fleet")]
    Fleet(FleetArgs),
    /// Removed: `fyke serve` takes its place.
    #[command(hide = true)]
    Lend(LendArgs),
    /// Print the completion script of a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages of fyke and its commands.
    Man(ManArgs),
    /// Show the main job on generated traffic: real FTP, live capture, one filter edit per connection.
    #[cfg(feature = "lab")]
    Demo(DemoArgs),
    /// Compare the speed of filter engines: fyke, libpcap, a JIT, compiled C.
    #[cfg(feature = "lab")]
    Bench(BenchArgs),
    /// Send generated frames at a rate, in network namespaces only.
    #[cfg(feature = "lab")]
    Generate(GenerateArgs),
}

/// User and sandbox of a command once its sockets and files are open.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rights and control")]
pub struct PrivilegeArgs {
    /// Become USER once sockets and files are open (`root`: stay root). Without this option, root becomes the user
    /// that ran sudo, or else the first of the users `fyke`, `tcpdump` and `nobody` that exists
    #[arg(short = 'Z', long = "relinquish-privileges", value_name = "USER")]
    pub user: Option<String>,
    /// Do not restrict file access (Landlock) and system calls (seccomp) while fyke reads frames
    #[arg(long)]
    pub no_sandbox: bool,
}

/// Source of the frames.
#[derive(Debug, Args)]
#[command(next_help_heading = "Source")]
pub struct SourceArgs {
    /// Interface to capture on, by name or by its number in `dump -D`; `any` for all interfaces; ring:PATH for a ring
    /// of `fyke demux`; serve:NAME for the capture of `fyke serve`; serve:HOST:PORT for one on another machine (`fyke
    /// relay`); xdp:IF (all its queues) or xdp:IF:QUEUE (one of them) to take incoming frames at the driver (AF_XDP):
    /// the host does not get them. Several -i: one capture of all of them, in the order of time; not for `any`,
    /// ring:, serve: and xdp:
    #[arg(short, long, value_name = "IF", conflicts_with = "read")]
    pub interface: Vec<String>,
    /// Network namespace to capture in: a name of `ip netns`, or the id of a process in it
    #[arg(long, value_name = "NAME|PID", conflicts_with = "read")]
    pub netns: Option<String>,
    /// Read frames from FILE (pcap or pcapng, also gzip, zstd or lz4; `-` = standard input). Several files, each with
    /// its own -r, are read as one capture, merged by time
    #[arg(short, long, value_name = "FILE", action = clap::ArgAction::Append)]
    pub read: Option<Vec<PathBuf>>,
    /// Read the files named in LIST, one name on a line, as if each had its -r (`-` = standard input)
    #[arg(short = 'V', long, value_name = "LIST", conflicts_with = "interface")]
    pub file_list: Option<PathBuf>,
    /// Bytes of each captured frame to print, write or send, at most 262144 (0 = 262144). Filters and trackers read
    /// whole frames; frames of a file stay whole
    #[arg(short, long, alias = "snapshot-length", value_name = "LEN", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=262_144))]
    pub snaplen: u32,
    /// Do not put the interface into promiscuous mode
    #[arg(short = 'p', long, alias = "no-promiscuous-mode")]
    pub no_promiscuous: bool,
    /// Size of the capture ring in KiB (32768), allocated while the capture runs. Each 128 KiB hold at least 20 ms of
    /// frames, so 32768 hold the frames of a 5 s pause. At the driver (xdp:IF) a frame takes 4 KiB, for each worker
    #[arg(short = 'B', long, value_name = "KIB",
        value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub buffer_size: Option<u32>,
    /// Let fyke itself count every frame: its filters do not run in the kernel, which costs processor time
    #[arg(long)]
    pub count_all: bool,
    /// Reason for which a command itself counts every frame, without that option.
    #[arg(skip)]
    pub counts_all: Option<&'static str>,
    /// With -i xdp:IF: take the frames also where the host needs them (an address, a route, a port of a bridge)
    #[arg(long)]
    pub take: bool,
    /// Number of threads that capture (not for -r). Each has a capture ring of its own of each interface (of the size
    /// in -B) and gets all frames of a pair of addresses; files and lines are written in the order of their times.
    /// At -i xdp:IF each has a socket of each queue, and -B is its part of their memory
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,
    /// With -i ring:PATH or serve:NAME: read those of USER too; without it, those of root and of your own user
    #[arg(long, value_name = "USER")]
    pub ring_user: Option<String>,

    /// With -i serve:NAME: let the service run the nodes GRAPH and read the frames that they pass, such as
    /// '(sampler,100) > (strsearch,password)'; only nodes that open nothing (docs/serve.md)
    #[arg(long, value_name = "GRAPH", requires = "interface")]
    pub serve_graph: Option<String>,
    #[command(flatten)]
    pub tls: TlsArgs,
}
