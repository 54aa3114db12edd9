//! Arguments of `fyke explain`: how a text is read.

use super::PrivilegeArgs;
use clap::Args;
use std::path::PathBuf;

/// `fyke explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke explain 'ip src net 192.168.254.0/24 and tcp dst port 23'
  fyke explain --link LINUX_SLL2 --json port 53
  fyke explain -r in.pcap --frame 17 'tcp and not port 22'
  fyke explain -ddd --link RAW 'udp port 53'
  fyke explain --witness 'vlan or tcp port 80'
  fyke explain --graph -- dump -ni eth0 -w web.pcapng tcp port 80
  fyke explain --scoped -r in.pcap 'outer (vlan 5) and tcp port 80'")]
pub struct ExplainArgs {
    /// Link type, by libpcap's name without DLT_ (EN10MB, or the first that takes EXPR)
    #[arg(long, value_name = "NAME")]
    pub link: Option<String>,
    /// As a live capture on Linux reads EXPR: direction, interface, VLAN tags in the metadata (else: as for a file)
    #[arg(long, conflicts_with = "read")]
    pub live: bool,
    /// One JSON object for programs
    #[arg(long, conflicts_with = "read")]
    pub json: bool,
    /// Judge the frames of FILE too: how often each primitive was asked and held (link type: the file's)
    #[arg(short, long, value_name = "FILE", conflicts_with = "link")]
    pub read: Option<PathBuf>,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// With -r: what each primitive said about frame N, counted from 1, and so why it was accepted or rejected
    #[arg(long, value_name = "N", requires = "read",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub frame: Option<u64>,
    /// The program of classic BPF too, as tcpdump -d prints it
    #[arg(long)]
    pub bpf: bool,
    /// Only the program: -d as a listing, -dd as C, -ddd as numbers
    #[arg(short = 'd', action = clap::ArgAction::Count, conflicts_with_all = ["json", "read"])]
    pub dump: u8,
    /// Build a packet that EXPR judges differently when it is read by meaning, and show it
    #[arg(long, conflicts_with_all = ["json", "read", "live", "scoped"])]
    pub witness: bool,
    /// Read EXPR by meaning: innermost packet, outer (…), layer N (…), any (…); tags shift nothing
    #[arg(long)]
    pub scoped: bool,
    /// The words are a command line (dump, track, demux, rules, run): print the flow graph that it stands for, for
    /// `fyke run`
    #[arg(long, conflicts_with_all = ["json", "read", "link"])]
    pub graph: bool,
    /// Read the expression from FILE
    #[arg(short = 'F', value_name = "FILE")]
    pub expression_file: Option<PathBuf>,
    /// Filter expression in the pcap language
    #[arg(value_name = "EXPR")]
    pub expression: Vec<String>,
}
