//! Arguments of `fyke account`, which counts traffic by interface, direction, filter and class.

use super::{PrivilegeArgs, SourceArgs, ctl};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Formats of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AccountFormat {
    /// A table for each interval
    Table,
    /// Lines of comma-separated values with a header (RFC 4180)
    Csv,
    /// Messages of IPFIX (RFC 7011)
    Ipfix,
    /// A file of Arrow
    Arrow,
    /// A stream of Arrow
    ArrowStream,
    /// A file of Parquet
    Parquet,
}

impl AccountFormat {
    /// The word of the graph class.
    pub fn word(self) -> &'static str {
        match self {
            AccountFormat::Table => "table",
            AccountFormat::Csv => "csv",
            AccountFormat::Ipfix => "ipfix",
            AccountFormat::Arrow => "arrow",
            AccountFormat::ArrowStream => "arrow-stream",
            AccountFormat::Parquet => "parquet",
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(86_400);
    let given = ctl::time(text)?;
    match range.contains(&given) {
        true => Ok(given),
        false => Err(format!("{text} is not from 100ms to 1d")),
    }
}

/// `fyke account`.
#[derive(Debug, Args)]
#[command(after_help = "\
A row counts the frames of one interface, direction (sent, received, unknown) and interval:
  filter NAME    frames that the filter accepts; each filter counts by itself
  filter other   frames that no filter accepts
  class NAME     frames of the class; a frame has the first class that it belongs to
  class unknown  frames of no class: what is left by difference
  seen           all frames that were read
  counter        what the interface itself has counted meanwhile, also without this capture
  difference     counter less seen
  lost           frames that arrived and were not read (the capture ring was full)
Bytes are those of whole frames on the wire. Files have no counters, and most of them no directions.

While it runs: fyke ctl show, fyke ctl add 'NAME=EXPR', fyke ctl del N. An edit does not affect the
counts of other filters.

Examples:
  fyke account -i eth0 -i eth1 --filter web='tcp port 80 or 443' --filter dns='udp port 53'
  fyke account -i eth0 --every 1m --classes -w account.csv
  fyke account -r a.pcap -r b.pcap --filter voip='udp portrange 10000-20000' -w -
  fyke account -i eth0 --classes=services.txt --every 10s -w udp:collector:4739
  fyke account -r week.pcapng --every 1h --classes --nonzero -w week.parquet
  fyke account --list-classes > services.txt")]
pub struct AccountArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Count the frames that EXPR accepts, in the pcap language, under NAME; may be repeated
    #[arg(short = 'f', long = "filter", value_name = "NAME=EXPR")]
    pub filters: Vec<String>,
    /// Read filters from FILE, `NAME: EXPR` a line (`-` = standard input)
    #[arg(short = 'F', long, value_name = "FILE")]
    pub filter_file: Option<PathBuf>,
    /// Count classes of applications, too: those of FILE, or the built-in ones. A line is `NAME: EXPR`, or `NAME:
    /// follow PROTOCOL[,PROTOCOL]` for connections that a tracker of `fyke track` recognises
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub classes: Option<Option<PathBuf>>,
    /// Print the built-in classes, in the form of a file for --classes
    #[arg(long)]
    pub list_classes: bool,
    /// Length of an interval, such as 10s, 5m, 1h; from 100ms to 1d. Intervals begin at multiples of it since 1970, in
    /// UTC. Default: 10s for interfaces; a file is one interval
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub every: Option<Duration>,
    /// Write the rows to FILE: CSV, or by the name Arrow (.arrow, .arrows), Parquet (.parquet) or IPFIX (.ipfix); `-` =
    /// standard output; udp:HOST:PORT = a collector of IPFIX. Without it, tables are printed
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Format of the rows, whatever the name of the file
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<AccountFormat>,
    /// Leave out the rows of filters and classes without frames
    #[arg(long)]
    pub nonzero: bool,
    /// Observation domain in IPFIX (default: 1)
    #[arg(long, value_name = "N")]
    pub domain: Option<u32>,
    /// Read expressions by meaning (innermost packet, `outer (...)`; tags do not shift offsets); fragments count for
    /// the filters of their first fragment
    #[arg(long)]
    pub scoped: bool,
    /// Stop after this time, such as 1h
    #[arg(long, value_name = "TIME", value_parser = ctl::time, conflicts_with = "read")]
    pub duration: Option<Duration>,
    /// Stop after N frames
    #[arg(short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Do not open a control socket; the filters cannot be edited while they run
    #[arg(long)]
    pub no_control: bool,
    /// Print exact counts of each node, and frames that the interface dropped, at the end
    #[arg(long)]
    pub stats: bool,
}
