//! Arguments of `fyke dump`: capture or read, filter, print or write; and how frames are printed.

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
    /// Write frames to FILE (.pcap or pcapng by the name; `-` = standard output) instead of printing
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Print frames although they are written to a file
    #[arg(long)]
    pub print: bool,
    /// Stop after N accepted frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
    /// Print the number of accepted frames and nothing else
    #[arg(long)]
    pub count: bool,
    /// Print exact accounting and hits per filter at the end
    #[arg(long)]
    pub stats: bool,
    /// Read EXPR by meaning: innermost packet, outer (…), layer N (…), any (…); tags shift nothing
    #[arg(long)]
    pub scoped: bool,
    /// Only frames whose payload holds PATTERN, as in '"GET /" [a-z]{1,8}' (docs/ruler-language.md)
    #[arg(long, value_name = "PATTERN")]
    pub payload: Option<String>,
    /// Read the expression from FILE
    #[arg(short = 'F', value_name = "FILE")]
    pub expression_file: Option<PathBuf>,
    /// New output file after this many million bytes
    #[arg(short = 'C', value_name = "MB", requires = "write", value_parser = from_one())]
    pub file_size: Option<u32>,
    /// New output file after this many seconds; FILE is a strftime pattern
    #[arg(short = 'G', value_name = "SECONDS", requires = "write", value_parser = from_one())]
    pub rotate_seconds: Option<u32>,
    /// With -C: keep this many files and overwrite the oldest; with -G: stop after so many
    #[arg(short = 'W', value_name = "N", requires = "write", value_parser = from_one())]
    pub file_count: Option<u32>,
    /// Timestamps have nanoseconds, not microseconds: those that are printed, and those in .pcap files (.pcapng files
    /// always do)
    #[arg(long)]
    pub nano: bool,
    /// Permission bits of new output files, in octal; a file that is there keeps its own
    #[arg(long, value_name = "MODE", default_value = "600", requires = "write")]
    pub file_mode: String,
    /// Do not open a control socket; this capture cannot be edited while it runs
    #[arg(long)]
    pub no_control: bool,
    /// After an edit, also deliver earlier frames that are still held in the capture ring
    #[arg(long)]
    pub look_back: bool,
    /// Link type to capture with, one that the interface offers (-L lists them)
    #[arg(short = 'y', long = "linktype", value_name = "LINK")]
    pub link_type: Option<String>,
    /// List the link types that the interface offers
    #[arg(short = 'L', long)]
    pub list_link_types: bool,
    /// List the interfaces one can capture on
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
SIGINT, SIGTERM and SIGHUP end it with its summary, a second one at once; SIGUSR1 prints the counts.
The expression language is pcap-filter(7)'s; `fyke explain EXPR` shows how a text is read.";

/// How frames are printed; the letters are tcpdump's.
#[derive(Debug, Args)]
pub struct PrintArgs {
    /// Print addresses and ports as numbers (names of addresses are never looked up)
    #[arg(short, action = ArgAction::Count)]
    pub numeric: u8,
    /// Print the link header
    #[arg(short = 'e')]
    pub link_header: bool,
    /// Print less
    #[arg(short)]
    pub quiet: bool,
    /// Print more; repeat for still more
    #[arg(short, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print the bytes in hexadecimal (twice: link header too)
    #[arg(short = 'x', action = ArgAction::Count)]
    pub hex: u8,
    /// Print the bytes in hexadecimal and ASCII (twice: link header too)
    #[arg(short = 'X', action = ArgAction::Count)]
    pub hex_text: u8,
    /// Print the bytes as text
    #[arg(short = 'A', action = ArgAction::Count)]
    pub text: u8,
    /// Time: none (-t), epoch (-tt), since the frame before (-ttt), date (-tttt), since the first (-ttttt)
    #[arg(short = 't', action = ArgAction::Count)]
    pub time: u8,
    /// Flush after every line
    #[arg(short = 'l')]
    pub line_buffered: bool,
    /// Flush the output file after every frame
    #[arg(short = 'U')]
    pub packet_buffered: bool,
    /// Number the frames
    #[arg(short = '#', long)]
    pub number: bool,
    /// Print TCP sequence numbers as they are, not counted from the start of the conversation
    #[arg(short = 'S')]
    pub absolute_sequence: bool,
    /// Accepted for tcpdump's sake: checksums are never judged
    #[arg(short = 'K', hide = true)]
    pub no_checksums: bool,
    /// Accepted for tcpdump's sake
    #[arg(short = 'N', hide = true)]
    pub no_domains: bool,
    /// Accepted for tcpdump's sake: there is no optimiser to switch off
    #[arg(short = 'O', hide = true)]
    pub no_optimise: bool,
}
