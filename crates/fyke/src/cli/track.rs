//! Arguments of `fyke track`: protocols that negotiate ports.

use super::{PrivilegeArgs, SourceArgs};
use clap::Args;
use std::path::PathBuf;

/// `fyke track`.
#[derive(Debug, Args)]
#[command(after_help = "\
VLAN tags and MPLS labels are looked through. Of frames with two tags, Linux damages those that
arrive on `any`: capture on the interface itself.

Examples:
  fyke track ftp -i eth0 -w ftp.pcapng
  fyke track ftp -i any --port 21,2121 -w ftp.pcapng
  fyke track ftp -r all.pcapng -w - | tcpdump -nr -")]
pub struct TrackArgs {
    /// What to follow
    #[arg(value_name = "PROTOCOL", value_parser = ["ftp"])]
    pub protocol: String,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Control ports to follow, instead of the protocol's own
    #[arg(long = "port", value_name = "N[,N]")]
    pub ports: Option<String>,
    /// Look into tunnels: filters are read by meaning (VLAN tags and MPLS labels are looked through anyway)
    #[arg(long)]
    pub scoped: bool,
    /// Write the frames to FILE (.pcap or pcapng by the name; `-` = standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Timestamps of a .pcap file have nanoseconds, not microseconds (.pcapng files always do)
    #[arg(long)]
    pub nano: bool,
    /// Stop after N accepted frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
}
