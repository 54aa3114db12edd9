//! Arguments of `fyke explain`, which shows how a filter expression is read.

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
  fyke explain --svg 'tcp port 80 or udp port 53' > filter.svg
  fyke explain --graph -- dump -ni eth0 -w web.pcapng tcp port 80
  fyke explain --scoped -r in.pcap 'outer (vlan 5) and tcp port 80'")]
pub struct ExplainArgs {
    /// Link type, by libpcap's name without DLT_ (default: EN10MB, or else the first for which EXPR is valid)
    #[arg(long, value_name = "NAME")]
    pub link: Option<String>,
    /// Read EXPR as a live capture on Linux does: direction, interface, VLAN tags in the metadata (default: as for a
    /// file)
    #[arg(long, conflicts_with = "read")]
    pub live: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "read")]
    pub json: bool,
    /// Print a picture as SVG: the passes, a table for those of one form, and the place where they run
    #[arg(long, conflicts_with_all = ["json", "read", "dump", "witness", "bpf"])]
    pub svg: bool,
    /// Evaluate the frames of FILE and count how often each primitive was evaluated and true (the link type is the
    /// file's)
    #[arg(short, long, value_name = "FILE", conflicts_with = "link")]
    pub read: Option<PathBuf>,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// With -r: show the result of each primitive for frame N (the first is 1), to see why it was accepted or rejected
    #[arg(long, value_name = "N", requires = "read",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub frame: Option<u64>,
    /// Print the classic BPF program too, in the format of tcpdump -d
    #[arg(long)]
    pub bpf: bool,
    /// Print only the classic BPF program: -d as a listing, -dd as C, -ddd as numbers
    #[arg(short = 'd', action = clap::ArgAction::Count, conflicts_with_all = ["json", "read"])]
    pub dump: u8,
    /// Build and show a packet for which EXPR has another result when it is read by meaning (--scoped)
    #[arg(long, conflicts_with_all = ["json", "read", "live", "scoped"])]
    pub witness: bool,
    /// Read EXPR by meaning: innermost packet, outer (…), layer N (…), any (…); tags do not shift offsets
    #[arg(long)]
    pub scoped: bool,
    /// Take the arguments as a command line (dump, track, demux, rules, run) and print its flow graph, in the form
    /// that `fyke run` reads
    #[arg(long, conflicts_with_all = ["json", "read", "link", "svg"])]
    pub graph: bool,
    /// Read the expression from FILE
    #[arg(short = 'F', value_name = "FILE")]
    pub expression_file: Option<PathBuf>,
    /// Filter expression in the pcap language
    #[arg(value_name = "EXPR")]
    pub expression: Vec<String>,
}
