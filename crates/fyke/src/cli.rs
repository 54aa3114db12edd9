//! The command line: what people type, and nothing of what it does. One file per command.
//!
//! What works when typed into tcpdump works when typed into `fyke dump`: clustered options, an expression as one
//! argument or many words, options after the expression, `--` to end options. Exit status: 0 done, 1 failed while
//! running, 2 the command line or an expression is wrong.

#[cfg(feature = "lab")]
mod bench;
mod ctl;
#[cfg(feature = "lab")]
mod demo;
mod demux;
mod dump;
mod exec;
mod explain;
mod lend;
mod machine;
mod ruler;
mod rules;
mod run;
mod track;

#[cfg(feature = "lab")]
pub use bench::*;
pub use ctl::*;
#[cfg(feature = "lab")]
pub use demo::*;
pub use demux::*;
pub use dump::*;
pub use exec::*;
pub use explain::*;
pub use lend::*;
pub use machine::*;
pub use ruler::*;
pub use rules::*;
pub use run::*;
pub use track::*;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A dynamic packet filter and traffic monitor: filters that change while they run, without losing a packet.
#[derive(Debug, Parser)]
#[command(name = "fyke", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A number from 1 on.
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
    /// Capture or read frames, filter, print or write them.
    Dump(Box<DumpArgs>),
    /// Show how a filter text is understood and how it will run.
    Explain(ExplainArgs),
    /// Run a flow graph: sources, filters, counters and sinks, connected.
    Run(RunArgs),
    /// Look at or edit the filters of a running fyke.
    Ctl(CtlArgs),
    /// The Bloom pre-filter in front of the filters of a running fyke.
    Rules(RulesArgs),
    /// Follow protocols that negotiate ports, and capture everything that belongs to them.
    Track(TrackArgs),
    /// Give every frame to the endpoints whose expressions it matches.
    Demux(DemuxArgs),
    /// Assemble, print, check and run programs of the pseudo machines CSPF, BPF and MPF.
    Machine(MachineArgs),
    /// Match, classify and rewrite packets by patterns over their bytes; hide what must not be shared.
    Ruler(RulerArgs),
    /// Run a program that captures (tcpdump, …) unmodified, with a filter that can be edited meanwhile.
    Exec(ExecArgs),
    /// Lend filters in the kernel, and sockets that run them, to other programs of root.
    Lend(LendArgs),
    /// The main job on generated traffic, self-contained: real FTP, live capture, edits per connection.
    #[cfg(feature = "lab")]
    Demo(DemoArgs),
    /// Measure engines side by side: fyke, libpcap, a JIT, compiled C.
    #[cfg(feature = "lab")]
    Bench(BenchArgs),
}

/// Whom a command becomes once its sockets and files are open, and what it may do then.
#[derive(Debug, Args)]
pub struct PrivilegeArgs {
    /// Once sockets and files are open, become USER (`root`: stay root). Without it, root becomes sudo's user, else
    /// the first of fyke, tcpdump, nobody
    #[arg(short = 'Z', long = "relinquish-privileges", value_name = "USER")]
    pub user: Option<String>,
    /// Do not restrict files and system calls (Landlock, seccomp) while frames are read
    #[arg(long)]
    pub no_sandbox: bool,
}

/// Where frames come from.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Interface to capture on, or its number in `dump -D`; `any` for all of them; ring:PATH for a ring of `fyke demux`
    #[arg(short, long, value_name = "IF", conflicts_with = "read")]
    pub interface: Option<String>,
    /// Read frames from FILE (pcap, pcapng, gzip or zstd; `-` = standard input)
    #[arg(short, long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// Bytes to keep of each frame (0 = 262144)
    #[arg(short, long, value_name = "LEN", default_value_t = 0)]
    pub snaplen: u32,
    /// Do not put the interface into promiscuous mode
    #[arg(short = 'p', long)]
    pub no_promiscuous: bool,
    /// Memory of the capture ring in KiB, taken while the capture runs; each 128 KiB holds frames for 20 ms or more, so
    /// 32768 outlast a pause of 5 s
    #[arg(short = 'B', long, value_name = "KIB", default_value_t = 32 * 1024)]
    pub buffer_size: u32,
}
