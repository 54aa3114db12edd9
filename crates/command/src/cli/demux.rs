//! Arguments of `fyke demux`, which sends frames to endpoints by filter expressions.

use super::{PrivilegeArgs, SourceArgs};
use clap::Args;

/// `fyke demux`.
#[derive(Debug, Args)]
#[command(after_help = "\
An endpoint is a capture file (`-` = standard output), ring:PATH (shared memory, read with
`fyke dump -i ring:PATH`), udp:HOST:PORT, unix:PATH, if:NAME or count.
At the end it prints how many frames matched each expression, and how many matched none.

While it runs, without --scoped: fyke ctl show, fyke ctl add 'EXPR => ENDPOINT', fyke ctl del N. An edit
does not affect the counts and endpoints of other expressions. A new expression starts from zero, with an empty file.

Examples:
  fyke demux -r in.pcap 'udp port 5060 => sip.pcapng' 'tcp port 80 => web.pcapng'
  fyke demux -r in.pcap --scoped 'udp port 53 => dns.pcap'    write all fragments of each answer too
  fyke demux -i eth0 --by-endpoint 'port 5060 => sip.pcapng' 'port 80 => web.pcapng'    two threads
  fyke demux -i eth0 'udp => ring:/run/udp.ring' 'port 53 => ring:/run/dns.ring'
  fyke demux -i eth0 'host 10.0.0.7 => udp:127.0.0.1:9000'")]
pub struct DemuxArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Read expressions by meaning (innermost packet, `outer (...)`; tags do not shift offsets); send fragments to the
    /// endpoint of their first fragment
    #[arg(long)]
    pub scoped: bool,
    /// Send a frame only to the endpoint of the first expression that accepts it, not to all of them
    #[arg(long)]
    pub first: bool,
    /// Give each endpoint a thread and a capture ring of its own, of which the kernel selects that of a frame by its
    /// expression. Frames of several endpoints go to the ring of one and reach all; those of an endpoint that an edit
    /// adds go to the ring of another. At -i xdp:IF the program at the driver selects the socket in this way for
    /// --workers N, too, if there are N endpoints or more
    #[arg(long, conflicts_with_all = ["workers", "scoped", "count_all"])]
    pub by_endpoint: bool,
    /// With --scoped: longest wait of a fragment for its first fragment (default: 60)
    #[arg(long, value_name = "SECONDS")]
    pub patience_seconds: Option<u64>,
    /// Do not open a control socket; the expressions cannot be edited while they run
    #[arg(long)]
    pub no_control: bool,
    /// Write timestamps of .pcap files in nanoseconds, not microseconds (.pcapng files always have nanoseconds)
    #[arg(long)]
    pub nano: bool,
    /// Print exact counts of each node, and frames that the interface dropped, at the end
    #[arg(long)]
    pub stats: bool,
    /// Stop after N frames
    #[arg(short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Filter expressions in the pcap language, each with its endpoint
    #[arg(value_name = "EXPR => ENDPOINT", required = true)]
    pub rules: Vec<String>,
}
