//! Arguments of `fyke dump`, which captures or reads, filters, prints or writes frames.

use super::{PrivilegeArgs, SourceArgs, from_one};
use clap::{ArgAction, Args};
use std::path::PathBuf;

/// `fyke dump`.
#[derive(Debug, Args)]
#[command(after_help = DUMP_EXAMPLES)]
pub struct DumpArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Write frames to FILE instead of printing them (.pcap or pcapng by the name, compressed if it also ends in .gz,
    /// .zst or .lz4; `-` = standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// With -w: print frames too
    #[arg(long)]
    pub print: bool,
    /// Stop after N accepted frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
    /// Print only the number of accepted frames
    #[arg(long)]
    pub count: bool,
    /// Print exact counts, and the hits of each filter, at the end
    #[arg(long)]
    pub stats: bool,
    /// Read EXPR by meaning: innermost packet, outer (…), layer N (…), any (…); tags do not shift offsets
    #[arg(long)]
    pub scoped: bool,
    /// Accept only frames with PATTERN in their payload, as in '"GET /" [a-z]{1,8}' (docs/ruler-language.md)
    #[arg(long, value_name = "PATTERN")]
    pub payload: Option<String>,
    /// Read the expression from FILE
    #[arg(short = 'F', value_name = "FILE")]
    pub expression_file: Option<PathBuf>,
    /// Start a new output file after this many million bytes
    #[arg(short = 'C', value_name = "MB", requires = "write", value_parser = from_one())]
    pub file_size: Option<u32>,
    /// Start a new output file after this many seconds; FILE is a strftime pattern
    #[arg(short = 'G', value_name = "SECONDS", requires = "write", value_parser = from_one())]
    pub rotate_seconds: Option<u32>,
    /// With -C: keep N files and overwrite the oldest; with -G: stop after N files
    #[arg(short = 'W', value_name = "N", requires = "write", value_parser = from_one())]
    pub file_count: Option<u32>,
    /// Print timestamps, and write those of .pcap files, in nanoseconds, not microseconds (.pcapng files always have
    /// nanoseconds)
    #[arg(long)]
    pub nano: bool,
    /// Permission bits of new output files, in octal; an existing file keeps its own
    #[arg(long, value_name = "MODE", default_value = "600", requires = "write")]
    pub file_mode: String,
    /// Compress output files while capturing, whatever their names; -C counts bytes before compression
    #[arg(long, value_name = "FORMAT", requires = "write")]
    #[arg(value_parser = ["none", "gzip", "zstd", "lz4"])]
    pub compress: Option<String>,
    /// Do not open a control socket; this capture cannot be edited while it runs
    #[arg(long)]
    pub no_control: bool,
    /// After an edit, also deliver earlier frames that are still in the capture ring
    #[arg(long)]
    pub look_back: bool,
    /// Link type to capture with; -L lists those that the interface offers
    #[arg(short = 'y', long = "linktype", value_name = "LINK")]
    pub link_type: Option<String>,
    /// List the link types that the interface offers
    #[arg(short = 'L', long)]
    pub list_link_types: bool,
    /// List the interfaces that can be captured on
    #[arg(short = 'D', long)]
    pub list_interfaces: bool,
    #[command(flatten)]
    pub print_options: PrintArgs,
    /// Filter expression in the pcap language
    #[arg(value_name = "EXPR")]
    pub expression: Vec<String>,
}

const DUMP_EXAMPLES: &str = "\
Examples:
  fyke dump -nr in.pcapng 'tcp[tcpflags] & tcp-syn != 0'
  fyke dump -i any -w ftp.pcapng -c 1000 tcp port ftp
  fyke dump -r in.pcap.gz -w - udp | tcpdump -nr -
  fyke dump -i eth0 -G 60 -w 'web-%H%M%S.pcap' port 80

While it runs, from another terminal: fyke ctl set 'tcp port 80', fyke ctl show, fyke ctl stats.
SIGINT, SIGTERM and SIGHUP end the capture and print its summary; a second signal ends it at once.
SIGUSR1 prints the counts.
Expressions are in the language of pcap-filter(7); `fyke explain EXPR` shows how fyke reads one.";

/// Print options, with tcpdump's letters.
#[derive(Debug, Args)]
pub struct PrintArgs {
    /// Print addresses and ports as numbers (names of addresses are never looked up)
    #[arg(short, action = ArgAction::Count)]
    pub numeric: u8,
    /// Print the link header
    #[arg(short = 'e')]
    pub link_header: bool,
    /// Print less about each frame
    #[arg(short)]
    pub quiet: bool,
    /// Print more about each frame; repeat for still more
    #[arg(short, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print the bytes in hexadecimal (twice: with the link header)
    #[arg(short = 'x', action = ArgAction::Count)]
    pub hex: u8,
    /// Print the bytes in hexadecimal and ASCII (twice: with the link header)
    #[arg(short = 'X', action = ArgAction::Count)]
    pub hex_text: u8,
    /// Print the bytes as text
    #[arg(short = 'A', action = ArgAction::Count)]
    pub text: u8,
    /// Time: none (-t), since the epoch (-tt), since the previous frame (-ttt), with date (-tttt), since the first
    /// frame (-ttttt)
    #[arg(short = 't', action = ArgAction::Count)]
    pub time: u8,
    /// Flush standard output after every line
    #[arg(short = 'l')]
    pub line_buffered: bool,
    /// Flush the output file after every frame
    #[arg(short = 'U')]
    pub packet_buffered: bool,
    /// Number the frames
    #[arg(short = '#', long)]
    pub number: bool,
    /// Print absolute TCP sequence numbers, not relative to the start of the conversation
    #[arg(short = 'S')]
    pub absolute_sequence: bool,
    /// Ignored, for compatibility with tcpdump: fyke never verifies checksums
    #[arg(short = 'K', hide = true)]
    pub no_checksums: bool,
    /// Ignored, for compatibility with tcpdump
    #[arg(short = 'N', hide = true)]
    pub no_domains: bool,
    /// Ignored, for compatibility with tcpdump: there is no optimiser to switch off
    #[arg(short = 'O', hide = true)]
    pub no_optimise: bool,
}
