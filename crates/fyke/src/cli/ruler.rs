//! Arguments of `fyke ruler`: patterns and rewriting.

use super::{PrivilegeArgs, SourceArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `fyke ruler`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke ruler check my.rul                          is it right, and what will it cost
  fyke ruler run my.rul -r in.pcapng               verdicts and how many frames got each
  fyke ruler run ids.rul -i eth0 --filter web --each    one filter of several, frame by frame
  tcpdump -w - | fyke ruler run my.rul -r - --count     how many frames passed
  fyke ruler run anonymise.rul -r in.pcapng -w out.pcapng --key-file key --report
  fyke ruler dot my.rul --filter hello | dot -Tsvg > hello.svg

`include \"layouts.rli\"` is built in. So are, when there is no such file, anonymise.rul and
anonymise-cryptopan.rul, with addresses as Crypto-PAn was published: 7 in 100,000 stay as they are.
The language: docs/ruler-language.md")]
pub struct RulerArgs {
    /// What to do with the rules.
    #[command(subcommand)]
    pub action: RulerAction,
}

/// The actions of `fyke ruler`.
#[derive(Debug, Subcommand)]
pub enum RulerAction {
    /// Is it right, which rules can never match, what does it cost
    Check {
        /// File with filters
        file: PathBuf,
    },
    /// Run the filters over frames
    Run(RulerRunArgs),
    /// Draw the automaton of a filter, for Graphviz
    Dot {
        /// File with filters
        file: PathBuf,
        /// Which filter, when there are several
        #[arg(long, value_name = "NAME")]
        filter: Option<String>,
    },
}

/// `fyke ruler run`.
#[derive(Debug, Args)]
pub struct RulerRunArgs {
    /// File with filters
    pub file: PathBuf,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Write accepted and rewritten frames to FILE (.pcap or pcapng by the name; `-` = standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Timestamps of a .pcap file have nanoseconds, not microseconds (.pcapng files always do)
    #[arg(long, requires = "write")]
    pub nano: bool,
    /// Do not open a control socket
    #[arg(long)]
    pub no_control: bool,
    /// Only this filter
    #[arg(long, value_name = "NAME")]
    pub filter: Option<String>,
    /// Print the number of frames that passed and nothing else
    #[arg(long, conflicts_with = "each")]
    pub count: bool,
    /// Print the verdict of each frame instead of how many there were
    #[arg(long)]
    pub each: bool,
    /// Key for hash, mac, prefix and cryptopan: a file with 64 hexadecimal digits; without it, a new one for every run
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Say what was changed, by kind of field, what was left as it was, and what still identifies
    #[arg(long)]
    pub report: bool,
    /// Stop after N frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
    /// One JSON object for programs
    #[arg(long, conflicts_with_all = ["count", "each"])]
    pub json: bool,
}
