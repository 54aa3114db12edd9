//! The command line: what people type, and nothing of what it does.
//!
//! What works when typed into tcpdump works when typed into `fyke dump`: clustered options, an expression as one
//! argument or many words, options after the expression, `--` to end options. Exit status: 0 done, 1 failed while
//! running, 2 the command line or an expression is wrong.

use clap::{ArgAction, Args, Parser, Subcommand};
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
    /// Look at or edit the filters of a running fyke.
    Ctl(CtlArgs),
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
    /// The main job on generated traffic, self-contained: real FTP, live capture, edits per connection.
    #[cfg(feature = "lab")]
    Demo(DemoArgs),
}

/// Where frames come from.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Interface to capture on; `any` for all of them
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
    /// Capture ring size in KiB
    #[arg(short = 'B', long, value_name = "KIB", default_value_t = 16 * 1024)]
    pub buffer_size: u32,
}

/// `fyke dump`.
#[derive(Debug, Args)]
#[command(after_help = DUMP_EXAMPLES)]
pub struct DumpArgs {
    #[command(flatten)]
    pub source: SourceArgs,
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
    /// Do not stop and let nobody edit this capture: no control socket
    #[arg(long)]
    pub no_control: bool,
    /// After an edit, also deliver earlier frames that are still held in the capture ring
    #[arg(long)]
    pub look_back: bool,
    /// Link type of captured interfaces, for -L and -y as in tcpdump
    #[arg(short = 'y', value_name = "LINK", hide = true)]
    pub link_type: Option<String>,
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

/// `fyke explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke explain 'ip src net 192.168.254.0/24 and tcp dst port 23'
  fyke explain --link LINUX_SLL2 --json port 53
  fyke explain -r in.pcap --frame 17 'tcp and not port 22'
  fyke explain --scoped -r in.pcap 'outer (vlan 5) and tcp port 80'")]
pub struct ExplainArgs {
    /// Link type, by libpcap's name without DLT_
    #[arg(long, value_name = "NAME", default_value = "EN10MB")]
    pub link: String,
    /// One JSON object for programs
    #[arg(long, conflicts_with = "read")]
    pub json: bool,
    /// Judge the frames of FILE too: how often each primitive was asked and held (link type: the file's)
    #[arg(short, long, value_name = "FILE", conflicts_with = "link")]
    pub read: Option<PathBuf>,
    /// With -r: what each primitive said about frame N, counted from 1, and so why it was accepted or rejected
    #[arg(long, value_name = "N", requires = "read",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub frame: Option<u64>,
    /// Read EXPR by meaning: innermost packet, outer (…), layer N (…), any (…); tags shift nothing
    #[arg(long)]
    pub scoped: bool,
    /// Read the expression from FILE
    #[arg(short = 'F', value_name = "FILE")]
    pub expression_file: Option<PathBuf>,
    /// Filter expression in the pcap language
    #[arg(value_name = "EXPR")]
    pub expression: Vec<String>,
}

/// `fyke ctl`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke ctl list                         the running ones
  fyke ctl set 'tcp port 80'            replace the filter of the only running fyke
  fyke ctl --pid 4711 add 'host 10.0.0.7 and udp'
  fyke ctl show                         filters with their ids and hits
  fyke ctl del 2
  fyke ctl watch                        accounting once a second until Ctrl-C")]
pub struct CtlArgs {
    /// The process to talk to; needed when several run
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// JSON for programs
    #[arg(long)]
    pub json: bool,
    /// What to ask or change.
    #[command(subcommand)]
    pub action: CtlAction,
}

/// The actions of `fyke ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlAction {
    /// List running fykes
    List,
    /// Show filters and passes with their hits
    Show,
    /// Replace all filters by EXPR (nothing = accept everything)
    Set {
        /// Filter expression
        #[arg(value_name = "EXPR")]
        expression: Vec<String>,
    },
    /// Add EXPR: frames it matches are accepted too
    Add {
        /// Filter expression
        #[arg(value_name = "EXPR", required = true)]
        expression: Vec<String>,
    },
    /// Remove a filter
    Del {
        /// Number of the filter as `show` prints it
        id: u64,
    },
    /// Exact accounting
    Stats,
    /// Accounting again and again until interrupted
    Watch {
        /// Milliseconds between two reports
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
        interval_ms: u64,
    },
}

/// `fyke track`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke track ftp -i eth0 -w ftp.pcapng
  fyke track ftp -r all.pcapng -w - | tcpdump -nr -")]
pub struct TrackArgs {
    /// What to follow
    #[arg(value_name = "PROTOCOL", value_parser = ["ftp"])]
    pub protocol: String,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Write the frames to FILE (.pcap or pcapng by the name; `-` = standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Stop after N accepted frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
}

/// `fyke demux`.
#[derive(Debug, Args)]
#[command(after_help = "\
An endpoint is a capture file (`-` = standard output), udp:HOST:PORT, unix:PATH, if:NAME or count. Prints how many
frames every expression got, and how many none.

Examples:
  fyke demux -r in.pcap 'udp port 5060 => sip.pcapng' 'tcp port 80 => web.pcapng'
  fyke demux -r in.pcap --scoped 'udp port 53 => dns.pcap'    with all fragments of each answer
  fyke demux -i eth0 'host 10.0.0.7 => udp:127.0.0.1:9000'")]
pub struct DemuxArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// Fragments go where their first fragment went; ports are found behind IPv6 extension headers
    #[arg(long)]
    pub scoped: bool,
    /// How long a fragment waits for its first, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub patience_seconds: u64,
    /// Stop after N frames
    #[arg(short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Expressions in the pcap language, each with its endpoint
    #[arg(value_name = "EXPR => ENDPOINT", required = true)]
    pub rules: Vec<String>,
}

/// `fyke machine`.
#[derive(Debug, Args)]
#[command(after_help = "\
Texts may be in the papers' notation, `tcpdump -d`, `-dd`, `-ddd` or bpf_asm's. Names like OFF_ETHERTYPE have values for
TCP over IPv4 over Ethernet; the values of a session are given with -D. CSPF's P[n] is word n of the packet.

Examples:
  fyke machine asm --isa bpf filter.bpf                       numbers as `tcpdump -ddd` prints them
  fyke machine disasm --isa bpf --format listing numbers.txt
  fyke machine run --isa mpf -D src_addr=10.0.0.1 -D src_port=80 -D dst_port=3000 -D dst_addr=10.0.0.2 fig3.mpf -r in.pcap
  fyke machine run --isa mpf one.mpf two.mpf -r in.pcap       collapsed; frames of each")]
pub struct MachineArgs {
    /// What to do
    #[arg(value_enum)]
    pub action: MachineAction,
    /// The machine
    #[arg(long, value_enum)]
    pub isa: Isa,
    /// Programs (`-` = standard input)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Give a name a value: a number or an IPv4 address
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// CSPF: read words as a little-endian machine does, for programs written for one
    #[arg(long)]
    pub little_endian: bool,
    /// What asm and disasm print
    #[arg(long, value_enum)]
    pub format: Option<MachineFormat>,
    /// run: the frames
    #[arg(short, long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// run: print the number of accepted frames and nothing else
    #[arg(long)]
    pub count: bool,
}

/// What `fyke machine` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineAction {
    /// Text to numbers
    Asm,
    /// Numbers to text
    Disasm,
    /// Say whether it may run, and why not
    Check,
    /// Run over the frames of a file
    Run,
}

/// Instruction sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Isa {
    /// The CMU/Stanford packet filter
    Cspf,
    /// Classic BPF with Linux's extensions
    Bpf,
    /// BPF with matches, fragments and postponing
    Mpf,
}

/// How programs are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineFormat {
    /// Labels; bpf_asm reads it
    Asm,
    /// As `tcpdump -d`
    Listing,
    /// As `tcpdump -dd`
    C,
    /// As `tcpdump -ddd`
    Decimal,
}

/// `fyke ruler`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke ruler check my.rul                          is it right, and what will it cost
  fyke ruler run my.rul -r in.pcapng               verdicts and how many frames got each
  fyke ruler run anonymise.rul -r in.pcapng -w out.pcapng --key-file key

`include \"layouts.rli\"` is built in. The language: docs/ruler-language.md")]
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
}

/// `fyke ruler run`.
#[derive(Debug, Args)]
pub struct RulerRunArgs {
    /// File with filters
    pub file: PathBuf,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Write accepted and rewritten frames to FILE (.pcap or pcapng by the name; `-` = standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Only this filter
    #[arg(long, value_name = "NAME")]
    pub filter: Option<String>,
    /// Print the number of frames that passed and nothing else
    #[arg(long, conflicts_with = "each")]
    pub count: bool,
    /// Print the verdict of each frame instead of how many there were
    #[arg(long)]
    pub each: bool,
    /// Key for hash, mac and prefix: a file with 64 hexadecimal digits; without it, a new one for every run
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Stop after N frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
    /// One JSON object for programs
    #[arg(long, conflicts_with_all = ["count", "each"])]
    pub json: bool,
}

/// `fyke exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
The program runs as it is; its packet sockets get a filter in the kernel that `fyke ctl` edits by memory stores. The
filter it starts with is the program's own: tcpdump's is read from its arguments, for others give --filter, or the
program keeps its own until the first edit. Needs root and Linux 6.9. Programs on libpcap judge the first block of
their ring (about the first second with frames) by the filter they were started with too, whatever was edited.

Examples:
  fyke exec -- tcpdump -ni eth0 tcp port 80
  fyke ctl add 'udp port 53'             from another terminal
  fyke exec --filter 'icmp' -- my-capture eth0")]
pub struct ExecArgs {
    /// The filter to start with, when it is not to be the program's own
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Print exact accounting and hits per filter at the end
    #[arg(long)]
    pub stats: bool,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<std::ffi::OsString>,
}

/// `fyke demo`.
#[cfg(feature = "lab")]
#[derive(Debug, Args)]
#[command(after_help = "\
Everything happens in network namespaces that go away with the command; as an ordinary user
too, where the system allows user namespaces. Exit status 1 when a packet of a data connection
was missed or a count does not add up.

Examples:
  fyke demo
  fyke demo --skip-edit 7        leave one edit out: the demo must notice
  fyke demo --background-pps 0 --no-old-way --write ftp.pcapng")]
pub struct DemoArgs {
    /// FTP servers, each with an address of its own
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub servers: usize,
    /// Passive data connections of each server
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub connections: usize,
    /// Bytes of each transfer
    #[arg(long, value_name = "BYTES")]
    pub size: Option<u64>,
    /// How long the traffic should take
    #[arg(long, value_name = "SECONDS", default_value_t = 7.0)]
    pub seconds: f64,
    /// UDP packets a second that nobody wants
    #[arg(long, value_name = "N", default_value_t = 30_000)]
    pub background_pps: u64,
    /// Without the recompiling filter beside
    #[arg(long)]
    pub no_old_way: bool,
    /// Suppress the edit that the N-th announcement asks for
    #[arg(long, value_name = "N")]
    pub skip_edit: Option<u64>,
    /// Where the captured FTP traffic goes
    #[arg(short, long, value_name = "FILE", default_value = "fyke-demo.pcapng")]
    pub write: PathBuf,
    /// One JSON object for programs
    #[arg(long)]
    pub json: bool,
    /// Replay the traffic from memory, without namespaces
    #[arg(long)]
    pub from_memory: bool,
}
