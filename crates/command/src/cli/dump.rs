//! Arguments of `fyke dump`, which captures or reads, filters, prints or writes frames.

use super::{PrivilegeArgs, SourceArgs, from_one};
use clap::{ArgAction, Args, ValueEnum};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Limits of the frames that `--keep` keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Age of the oldest frame in seconds.
    pub seconds: Option<u64>,
    /// Bytes of all frames.
    pub bytes: Option<u64>,
}

/// Parses the limits of `--keep`.
fn keep(text: &str) -> Result<Keep, String> {
    let mut keep = Keep::default();
    for part in text.split(',') {
        let place = match (super::time(part), size(part)) {
            (Ok(time), _) => (&mut keep.seconds, time.as_millis().div_ceil(1_000) as u64),
            (_, Some(bytes)) => (&mut keep.bytes, bytes),
            _ => {
                return Err("expected a time, a size, or both: 30s, 512MB, 30s,2GB".into());
            }
        };
        if place.0.replace(place.1).is_some() {
            return Err("one time and one size can be given".into());
        }
    }
    match keep {
        Keep { bytes: Some(bytes), .. } if !KEEP_BYTES.contains(&bytes) => {
            Err("the size of the frames is from 1MB to 4TB".into())
        }
        Keep { seconds: Some(31_536_001..), .. } => Err("the time is at most 365 days".into()),
        keep => Ok(keep),
    }
}

/// Sizes that `--keep` takes.
const KEEP_BYTES: std::ops::RangeInclusive<u64> = 1_000_000..=4_000_000_000_000;

fn size(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// `fyke dump`.
#[derive(Debug, Args)]
#[command(after_help = DUMP_EXAMPLES, version, disable_version_flag = true)]
pub struct DumpArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Write frames to FILE instead of printing them (.pcap or pcapng by the name, compressed if it also ends in .gz,
    /// .zst or .lz4; `-` = standard output). tcp:ADDRESS:PORT listens for programs that read them, such as `tshark -i
    /// TCP@ADDRESS:PORT`; tcp:PORT is for those of this machine
    #[arg(short, long, value_name = "FILE")]
    #[arg(help_heading = "Files")]
    pub write: Option<PathBuf>,
    /// With -w: print frames too
    #[arg(long)]
    #[arg(help_heading = "Files")]
    pub print: bool,
    /// Stop after N accepted frames
    #[arg(short, value_name = "N", value_parser = frames)]
    #[arg(help_heading = "Filter")]
    pub count_limit: Option<u64>,
    /// Print only the number of accepted frames
    #[arg(long)]
    #[arg(help_heading = "Lines")]
    pub count: bool,
    /// Print exact counts, the hits of each filter, and frames that the interface dropped, at the end
    #[arg(long)]
    #[arg(help_heading = "Filter")]
    pub stats: bool,
    /// Read EXPR by meaning: innermost packet, outer (…), layer N (…), any (…); tags do not shift offsets
    #[arg(long)]
    #[arg(help_heading = "Filter")]
    pub scoped: bool,
    /// Use the rules of the interface (fyke rules IF) before the filter: frames that they reject are not copied; of
    /// several interfaces, each has its own
    #[arg(long)]
    #[arg(help_heading = "Filter")]
    pub rules: bool,
    /// Accept only flows with PATTERN in their payload: TCP connections, also across segments, UDP flows, and other
    /// packets one by one. They are accepted from the frame on with which the match is known; after a lost segment
    /// that may be a later one than the frame with PATTERN. PATTERN as in '"GET /" [a-z]{1,8}'
    /// (docs/ruler-language.md)
    #[arg(long, value_name = "PATTERN", action = clap::ArgAction::Append)]
    #[arg(help_heading = "Filter")]
    pub payload: Vec<String>,
    /// With --payload: accept the frames of the connection before the match too, up to 4 MiB for each and 256 MiB in
    /// all, in a capture up to 30 seconds; a frame counts about 300 bytes more than its length. Not with --workers
    #[arg(long, requires = "payload")]
    #[arg(help_heading = "Filter")]
    pub conversation: bool,
    /// With --payload: parameters of the class tcp (fyke run --classes tcp), as in policy=linux,gap=2,checksum=y;
    /// may be given several times
    #[arg(long, value_name = "PARAMETERS", requires = "payload", action = clap::ArgAction::Append)]
    #[arg(help_heading = "Filter")]
    pub streams: Vec<String>,
    /// Print what Wireshark's dissectors say: tshark reads the accepted frames (with -v: all details)
    #[arg(long, conflicts_with = "count")]
    #[arg(help_heading = "Lines")]
    pub dissect: bool,
    /// Keep the last frames in memory, rejected ones too, for `fyke ctl save`: 30s, 2GB, or both (30s,2GB)
    ///
    /// Without a size, at most 1 GiB of frames. The kernel then rejects no frame, because it would be missing.
    #[arg(long, value_name = "TIME|SIZE", value_parser = keep, conflicts_with = "no_control")]
    #[arg(help_heading = "Filter")]
    pub keep: Option<Keep>,
    /// Read the expression from FILE
    #[arg(short = 'F', value_name = "FILE")]
    #[arg(help_heading = "Filter")]
    pub expression_file: Option<PathBuf>,
    /// Start a new output file after this many million bytes
    #[arg(short = 'C', value_name = "MB", requires = "write", value_parser = million_bytes)]
    #[arg(help_heading = "Files")]
    pub file_size: Option<u32>,
    /// Start a new output file after this many seconds; FILE is a strftime pattern
    #[arg(short = 'G', value_name = "SECONDS", requires = "write", value_parser = from_one())]
    #[arg(help_heading = "Files")]
    pub rotate_seconds: Option<u32>,
    /// With -C: keep N files and overwrite the oldest; with -G: stop after N files
    #[arg(short = 'W', value_name = "N", requires = "write", value_parser = from_one())]
    #[arg(help_heading = "Files")]
    pub file_count: Option<u32>,
    /// With -C or -G: run COMMAND with the name of each complete file as its argument, without a shell, with the rights
    /// of the user that fyke becomes and at the lowest priority
    #[arg(short = 'z', value_name = "COMMAND")]
    pub rotate_command: Option<String>,
    /// Digits of printed timestamps, and of those in .pcap files (.pcapng files always have nanoseconds)
    #[arg(long, value_name = "micro|nano", hide_possible_values = true, value_enum)]
    #[arg(default_value_t = Precision::Micro, overrides_with_all = ["micro", "nano"])]
    #[arg(help_heading = "Lines")]
    pub time_stamp_precision: Precision,
    /// Short for --time-stamp-precision=micro
    #[arg(long, overrides_with_all = ["time_stamp_precision", "nano"])]
    #[arg(help_heading = "Lines")]
    pub micro: bool,
    /// Short for --time-stamp-precision=nano
    #[arg(long, overrides_with_all = ["time_stamp_precision", "micro"])]
    #[arg(help_heading = "Lines")]
    pub nano: bool,
    /// Permission bits of new output files, in octal; an existing file keeps its own
    #[arg(long, value_name = "MODE", default_value = "600", requires = "write")]
    #[arg(help_heading = "Files")]
    pub file_mode: String,
    /// Compress output files while capturing, whatever their names; -C counts bytes before compression
    #[arg(long, value_name = "FORMAT", requires = "write")]
    #[arg(value_parser = ["none", "gzip", "zstd", "lz4"])]
    pub compress: Option<String>,
    /// With -w: a comment at each frame with the filter and the pass that accepted it, the epoch, and `late` for frames
    /// of --look-back. A pcapng file has a comment for each edit of the filters without this option too
    #[arg(long, requires = "write")]
    #[arg(help_heading = "Files")]
    pub annotate: bool,
    /// Stop when standard input ends: for a program that starts this one, with a pipe, and may be killed
    #[arg(long)]
    #[arg(help_heading = "Rights and control")]
    pub until_stdin_ends: bool,
    /// Do not open a control socket; this capture cannot be edited while it runs
    #[arg(long)]
    #[arg(help_heading = "Rights and control")]
    pub no_control: bool,
    /// After an edit, also deliver earlier frames that are still in the capture ring
    #[arg(long)]
    #[arg(help_heading = "Filter")]
    pub look_back: bool,
    /// Link type to capture with; -L lists those that the interface offers
    #[arg(short = 'y', long = "linktype", value_name = "LINK")]
    #[arg(help_heading = "Source")]
    pub link_type: Option<String>,
    /// List the link types that the interface offers
    #[arg(short = 'L', long = "list-data-link-types", alias = "list-link-types")]
    #[arg(help_heading = "Lists")]
    pub list_link_types: bool,
    /// List the interfaces that can be captured on
    #[arg(short = 'D', long)]
    #[arg(help_heading = "Lists")]
    pub list_interfaces: bool,
    /// Capture only frames that this host receives (in) or sends (out)
    #[arg(short = 'Q', long, value_name = "in|out|inout", hide_possible_values = true, value_enum)]
    #[arg(help_heading = "Filter")]
    pub direction: Option<Direction>,
    /// Clock of the timestamps; -J lists those that the interface offers
    #[arg(short = 'j', long, value_name = "TYPE")]
    #[arg(help_heading = "Source")]
    pub time_stamp_type: Option<String>,
    /// List the clocks that the interface offers
    #[arg(short = 'J', long)]
    #[arg(help_heading = "Lists")]
    pub list_time_stamp_types: bool,
    /// Deliver frames within a millisecond, not after up to 20; the capture ring then holds a shorter pause
    #[arg(long)]
    #[arg(help_heading = "Source")]
    pub immediate_mode: bool,
    /// Print the filter as a program of classic BPF and stop; -dd: as C; -ddd: as numbers. The link type is that of
    /// -r, -i or -y, else Ethernet
    #[arg(short = 'd', action = ArgAction::Count)]
    #[arg(help_heading = "Lists")]
    pub dump_program: u8,
    /// Print the version
    #[arg(long, action = ArgAction::Version)]
    #[arg(help_heading = "Lists")]
    pub version: Option<bool>,
    /// Called as `tcpdump`: its files and messages.
    #[arg(skip)]
    pub as_tcpdump: bool,
    /// The killed capture that is taken up.
    #[arg(skip)]
    pub resumed: Option<crate::commands::record::Resumed>,
    #[command(flatten)]
    pub print_options: PrintArgs,
    /// Filter expression in the pcap language
    #[arg(value_name = "EXPR", help_heading = "Filter")]
    pub expression: Vec<String>,
}

/// Reads the value of -c.
fn frames(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected a number of frames, from 1".to_owned())
}

/// Reads the value of -C.
fn million_bytes(text: &str) -> Result<u32, String> {
    let size = text.parse().ok().filter(|size| *size > 0);
    size.ok_or_else(|| "not a whole number of million bytes, from 1".to_owned())
}

/// Digits of timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// Six.
    Micro,
    /// Nine.
    Nano,
}

/// Time for colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// True if standard output gets colours.
    pub fn is_on(self) -> bool {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
                !set("NO_COLOR") && !dumb && std::io::stdout().is_terminal()
            }
        }
    }
}

/// Direction of captured frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Received by this host.
    In,
    /// Sent by this host.
    Out,
    /// Both.
    Inout,
}

impl PrintArgs {
    /// True if the bytes of frames are printed.
    pub fn dumps_bytes(&self) -> bool {
        self.hex > 0 || self.hex_text > 0 || self.text > 0
    }
}

impl DumpArgs {
    /// True if timestamps have nanoseconds.
    pub fn nanoseconds(&self) -> bool {
        self.nano || self.time_stamp_precision == Precision::Nano
    }
}

const DUMP_EXAMPLES: &str = "\
Examples:
  Source   fyke dump -ni eth0                               frames as they arrive
           fyke dump -i eth0 -i eth1 -w both.pcapng         two interfaces in one file
           fyke dump --netns blue -ni any                   in a network namespace
           fyke dump -i xdp:eth1 -w out.pcapng udp          frames of a monitoring port, at the driver
           fyke dump -nr in.pcapng                          frames of a file
  Filter   fyke dump -nr in.pcapng 'tcp[tcpflags] & tcp-syn != 0'
           fyke dump -i any -w ftp.pcapng -c 1000 tcp port ftp
           fyke dump -ni eth0 -Q in --payload '\"GET /\"' port 80
           fyke dump -r in.pcap --payload '\"evil\"' --conversation -w evil.pcap
  Files    fyke dump -r in.pcap.gz -w - udp | tcpdump -nr -
           fyke dump -i eth0 -G 60 -w 'web-%H%M%S.pcap' port 80
           fyke dump -i eth0 -C 100 -W 10 -w ring.pcap      the last 1000 MB
  Lines    fyke dump -ttttvvr in.pcap -c 5 icmp
           fyke dump -xXnr in.pcap --lengths --nano
  Lists    fyke dump -D; fyke dump -L -i any; fyke dump -d tcp port 80
  Rights   sudo fyke dump -i eth0 -Z tcpdump -w /tmp/out.pcap

The filter also runs in the kernel, so frames that it rejects are not copied; --scoped, --look-back,
--keep and --count-all keep it in fyke. `fyke explain --graph -- dump -i eth0 tcp` prints where it
would run and why, and so does `fyke ctl stats` while it runs.
While it runs, from another terminal: fyke ctl set 'tcp port 80', fyke ctl show, fyke ctl stats.
SIGINT, SIGTERM and SIGHUP end the capture and print its summary; another one a second later
ends it at once.
SIGUSR1 prints the counts.
Expressions are in the language of pcap-filter(7); `fyke explain EXPR` shows how fyke reads one.
A link to fyke that is called tcpdump takes tcpdump's command lines and has its messages and files
(docs/tcpdump.md).";

/// Print options, with tcpdump's letters.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lines")]
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
    /// Flush the output file, and standard output, after every frame
    #[arg(short = 'U', long)]
    pub packet_buffered: bool,
    /// Number the frames
    #[arg(short = '#', long)]
    pub number: bool,
    /// Print the captured and the original length of each frame
    #[arg(long)]
    pub lengths: bool,
    /// Print absolute TCP sequence numbers, not relative to the start of the conversation
    #[arg(short = 'S', long = "absolute-tcp-sequence-numbers")]
    pub absolute_sequence: bool,
    /// Print a JSON object for each frame, on one line (docs/lines.schema.json)
    #[arg(long)]
    pub json: bool,
    /// Colour the lines by protocol and flags: `auto` does on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// Print exactly tcpdump's lines, without the packets in tunnels that tcpdump does not follow (docs/lines.md)
    #[arg(long)]
    pub like_tcpdump: bool,
    /// Ignored, for compatibility with tcpdump: fyke never verifies checksums
    #[arg(short = 'K', long = "dont-verify-checksums", hide = true)]
    pub no_checksums: bool,
    /// Ignored, for compatibility with tcpdump: names of addresses are never looked up
    #[arg(short = 'N', hide = true)]
    pub no_domains: bool,
    /// Ignored, for compatibility with tcpdump: names of addresses are never looked up
    #[arg(short = 'f', hide = true)]
    pub foreign_numeric: bool,
    /// Ignored, for compatibility with tcpdump: no NFS handle is decoded
    #[arg(short = 'u', hide = true)]
    pub undecoded_handles: bool,
    /// Ignored, for compatibility with tcpdump: no number of an autonomous system is printed
    #[arg(short = 'b', hide = true)]
    pub as_dot: bool,
    /// Ignored, as in tcpdump
    #[arg(short = 'a', hide = true)]
    pub address_names: bool,
    /// With -d: do not optimise the program
    #[arg(short = 'O', long = "no-optimize")]
    pub no_optimise: bool,
}
