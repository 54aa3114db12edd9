//! Arguments of `fyke demux`: a frame to the endpoints whose expressions it matches.

use super::{PrivilegeArgs, SourceArgs};
use clap::Args;

/// `fyke demux`.
#[derive(Debug, Args)]
#[command(after_help = "\
An endpoint is a capture file (`-` = standard output), ring:PATH (shared memory, read with
`fyke dump -i ring:PATH`), udp:HOST:PORT, unix:PATH, if:NAME or count.
Prints how many frames every expression got, and how many none.

While it runs, without --scoped: fyke ctl show, fyke ctl add 'EXPR => ENDPOINT', fyke ctl del N. What stays
keeps its counts and its endpoint; one that comes anew begins anew, a file with nothing in it.

Examples:
  fyke demux -r in.pcap 'udp port 5060 => sip.pcapng' 'tcp port 80 => web.pcapng'
  fyke demux -r in.pcap --scoped 'udp port 53 => dns.pcap'    with all fragments of each answer
  fyke demux -i eth0 'udp => ring:/run/udp.ring' 'port 53 => ring:/run/dns.ring'
  fyke demux -i eth0 'host 10.0.0.7 => udp:127.0.0.1:9000'")]
pub struct DemuxArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Read expressions by meaning (innermost packet, `outer (...)`, tags shift nothing); fragments go where their
    /// first fragment went
    #[arg(long)]
    pub scoped: bool,
    /// A frame goes to the endpoint of the first expression that accepts it, not to those of all
    #[arg(long)]
    pub first: bool,
    /// With --scoped: how long a fragment waits for its first, in seconds (60)
    #[arg(long, value_name = "SECONDS")]
    pub patience_seconds: Option<u64>,
    /// Do not open a control socket; these expressions cannot be edited while they run
    #[arg(long)]
    pub no_control: bool,
    /// Timestamps of .pcap files have nanoseconds, not microseconds (.pcapng files always do)
    #[arg(long)]
    pub nano: bool,
    /// Stop after N frames
    #[arg(short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Expressions in the pcap language, each with its endpoint
    #[arg(value_name = "EXPR => ENDPOINT", required = true)]
    pub rules: Vec<String>,
}
