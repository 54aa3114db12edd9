//! Arguments of `fyke ids`, which judges traffic by rules.

use super::{PrivilegeArgs, SourceArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `fyke ids`.
#[derive(Debug, Args)]
#[command(after_help = "\
A rule that cannot be judged exactly is not used; standard error has their number, and
`fyke snort2ruler` lists them with their reasons. docs/ids.md describes which options are judged.

Examples:
  fyke ids -r in.pcapng -S my.rules                       a line for each alert
  fyke ids -r in.pcapng -S my.rules --eve - | jq .alert   alerts as Suricata's EVE JSON
  fyke ids -i eth0 -S my.rules --eve eve.json --set HOME_NET=10.0.0.0/8
  fyke ids --prefilter my.rules > my.filter               frames that no rule needs stay in the kernel:
  fyke dump -i eth0 -F my.filter -w - | fyke ids -r - -S my.rules
  fyke ctl add 'alert tcp any any -> any 23 (msg:\"telnet\"; flags:S; sid:1000001;)'     while it runs
  fyke ctl del 1000001")]
pub struct IdsArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    #[command(flatten)]
    pub rules: RuleArgs,
    /// File with rules; several, each with its own -S
    #[arg(
        short = 'S',
        long = "rules",
        value_name = "RULES",
        required_unless_present = "prefilter"
    )]
    #[arg(action = clap::ArgAction::Append)]
    pub files: Vec<PathBuf>,
    /// Print a filter expression that accepts every frame that the rules of a file may need, and judge nothing;
    /// several files, each with its own --prefilter
    #[arg(long, value_name = "RULES", action = clap::ArgAction::Append)]
    #[arg(conflicts_with_all = ["files", "interface", "read", "file_list", "eve"])]
    pub prefilter: Vec<PathBuf>,
    /// Write alerts to FILE as lines of JSON with the names of Suricata's EVE output (`-` = standard output), not as
    /// text; at SIGHUP, FILE is opened again, for rotation
    #[arg(long, value_name = "FILE")]
    pub eve: Option<PathBuf>,
    /// Write records among the alerts, too: flow (at the end of each), dns (queries and answers), tls (hellos and
    /// certificate, with JA3 and JA4), http (a request with its response), packet (those after an alert of a rule with
    /// `tag`), stats (every ten seconds of the capture, and at its end); with commas between them
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', requires = "eve")]
    pub records: Vec<RecordKind>,
    /// Add the payload of the packet to alerts in JSON, in base 64
    #[arg(long, requires = "eve")]
    pub payload: bool,
    /// Judge the streams of connections without a captured beginning, too
    #[arg(long)]
    pub midstream: bool,
    /// Take the handshake of a connection of which only one direction is captured for complete: rules with
    /// flow:established judge it
    #[arg(long)]
    pub one_direction: bool,
    /// Take frames with the same addresses and ports for one connection, whatever their VLAN tags are
    #[arg(long)]
    pub ignore_vlan: bool,
    /// Judge packets with a wrong checksum of IPv4, TCP or UDP, which their receivers drop: no = judge them; yes =
    /// leave them out; auto = on an interface, leave them out, but for those of which the kernel tells that a device
    /// still computes the checksum; in a file, leave them out once their sender has used a right one in the flow, but
    /// for packets over 1,500 bytes that were joined before they were captured
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub checksums: ChecksumChoice,
    /// Bytes that count where segments of TCP or fragments overlap: first (default), last, bsd, linux, windows,
    /// solaris, old-linux, vista, hpux10, hpux11, irix, macos; linux@10.0.0.0/8 is for these receivers only; several,
    /// each with its own --policy
    #[arg(long = "policy", value_name = "POLICY", action = clap::ArgAction::Append)]
    pub policies: Vec<String>,
    /// Most memory for flows, with what they hold, in MiB; flows that have ended or got no answer make room first
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub memory: u64,
    /// Do not open a control socket; the rules cannot be edited while fyke runs
    #[arg(long)]
    pub no_control: bool,
    /// Stop after N frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
}

/// Kind of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RecordKind {
    /// Flows
    Flow,
    /// Messages of DNS
    Dns,
    /// Handshakes of TLS
    Tls,
    /// Requests of HTTP
    Http,
    /// Packets after an alert of a rule with `tag`
    Packet,
    /// Counters
    Stats,
}

/// Packets with a wrong checksum that are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChecksumChoice {
    /// Those of which it is known
    Auto,
    /// All
    Yes,
    /// None
    No,
}

/// Options for reading rules.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// Set a variable of addresses or ports, such as HOME_NET=10.0.0.0/8 (default: the values of Suricata)
    #[arg(long = "set", value_name = "NAME=VALUE", action = clap::ArgAction::Append)]
    pub variables: Vec<String>,
    /// Language of the rules (default: by the words that only one language has)
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub language: Option<Language>,
}

/// Language of rules.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Language {
    /// Suricata
    Suricata,
    /// Snort 2
    Snort2,
    /// Snort 3
    Snort3,
}
