//! Arguments of `fyke ruler`, which matches and rewrites packets by patterns.

use super::{PrivilegeArgs, SourceArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `fyke ruler`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke ruler check my.rul                          check the file and show its cost
  fyke ruler run my.rul -r in.pcapng               count the frames of each verdict
  fyke ruler run ids.rul -i eth0 --filter web --each    run one of several filters; a verdict per frame
  tcpdump -w - | fyke ruler run my.rul -r - --count     count the frames that pass
  fyke ruler run anonymise.rul -r in.pcapng -w out.pcapng --key-file key --report
  fyke ruler dot my.rul --filter hello | dot -Tsvg > hello.svg

`include \"layouts.rli\"` is built in. anonymise.rul and anonymise-cryptopan.rul are built in too; a file with
the same name takes precedence. anonymise-cryptopan.rul maps addresses with the published Crypto-PAn function,
which leaves 7 in 100,000 unchanged.
docs/ruler-language.md describes the language.")]
pub struct RulerArgs {
    /// The action.
    #[command(subcommand)]
    pub action: RulerAction,
}

/// The actions of `fyke ruler`.
#[derive(Debug, Subcommand)]
pub enum RulerAction {
    /// Check a file: errors, rules that can never match, cost
    Check {
        /// File with filters
        file: PathBuf,
    },
    /// Run the filters on frames
    Run(Box<RulerRunArgs>),
    /// Draw the automaton of a filter, for Graphviz
    Dot {
        /// File with filters
        file: PathBuf,
        /// Filter to draw, if the file has several
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
    /// Write timestamps of a .pcap file in nanoseconds, not microseconds (.pcapng files always have nanoseconds)
    #[arg(long, requires = "write")]
    pub nano: bool,
    /// Do not open a control socket
    #[arg(long)]
    pub no_control: bool,
    /// Run only this filter
    #[arg(long, value_name = "NAME")]
    pub filter: Option<String>,
    /// Print only the number of frames that passed
    #[arg(long, conflicts_with = "each")]
    pub count: bool,
    /// Print the verdict of each frame instead of counts
    #[arg(long)]
    pub each: bool,
    /// Key for hash, mac, prefix and cryptopan: a file with 64 hexadecimal digits (default: a new random key per run)
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Report, by kind of field, what was changed, what was left unchanged and what can still identify persons or hosts
    #[arg(long)]
    pub report: bool,
    /// Stop after N frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
    /// Print one JSON object
    #[arg(long, conflicts_with_all = ["count", "each"])]
    pub json: bool,
}
