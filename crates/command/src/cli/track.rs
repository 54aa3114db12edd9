//! Arguments of `fyke track`, which follows protocols that negotiate ports.

use super::{PrivilegeArgs, SourceArgs};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use fyke_track::TRACKERS;
use std::path::PathBuf;

fn protocols() -> PossibleValuesParser {
    let value = |kind: &fyke_track::TrackerKind| PossibleValue::new(kind.name).help(kind.summary);
    PossibleValuesParser::new(TRACKERS.iter().map(value))
}

/// `fyke track`.
#[derive(Debug, Args)]
#[command(after_help = "\
Frames with VLAN tags or MPLS labels are tracked too. Linux damages frames with two tags that
arrive on `any`: capture on the interface itself.

Announcements are not trusted. Ends with a port below 1024 or an unspecified, loopback or broadcast
address are refused. At most 65536 ends are followed, 64 of a call, and 16384 calls of a protocol: the
oldest that nothing has reached, and the oldest call that was not answered, make room. What was
refused, omitted or given up is counted and reported at the end. A file is read once, without
look-back: data before its announcement is omitted.

Examples:
  fyke track ftp -i eth0 -w ftp.pcapng
  fyke track sip,rtsp -i eth0 -w calls.pcapng
  fyke track sip -i eth0 -w 'calls/{protocol}-{call}.pcapng' --summary calls.json
  fyke track sip -r calls.pcapng -w media.pcapng --wav 'audio/{call}.wav'
  fyke track ftp -i any --port 21,2121 -w ftp.pcapng
  fyke track ftp -r all.pcapng -w - | tcpdump -nr -")]
pub struct TrackArgs {
    /// Protocols to follow
    #[arg(
        value_name = "PROTOCOL[,PROTOCOL]",
        value_parser = protocols(),
        value_delimiter = ',',
        required = true,
        num_args = 1
    )]
    pub protocols: Vec<String>,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Control ports, instead of the protocol's standard port; only for one protocol
    #[arg(long = "port", value_name = "N[,N]")]
    pub ports: Option<String>,
    /// Do not look back: omit the frames of a data connection that arrive before its announcement has been read. The
    /// kernel then rejects all frames but those of control connections and announced connections; else it keeps all
    /// frames that may become part of one (FTP, IRC: TCP; PPTP: GRE; others: UDP without DNS, DHCP, NTP and the like)
    #[arg(long)]
    pub no_look_back: bool,
    /// Use the rules of the interface (fyke rules IF) before the filters: frames that they reject are not copied
    #[arg(long)]
    pub rules: bool,
    /// Track inside tunnels too: read filters by meaning (frames with VLAN tags or MPLS labels are tracked anyway)
    #[arg(long)]
    pub scoped: bool,
    /// Write the frames to FILE (.pcap or pcapng by the name; `-` = standard output). With {call} in the name, write
    /// each call to a file of its own; {protocol} is the protocol. Frames of no call are then not written
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Write a line of JSON for each call that has ended to FILE: ends, frames, RTP streams with loss and jitter
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Write the audio of calls as WAV: a file for each RTP stream with G.711, in which missing packets are silence.
    /// FILE needs {call}, which becomes CALL-STREAM; all files of a call begin at the same time
    #[arg(long, value_name = "FILE")]
    pub wav: Option<PathBuf>,
    /// Write timestamps of a .pcap file in nanoseconds, not microseconds (.pcapng files always have nanoseconds)
    #[arg(long)]
    pub nano: bool,
    /// Print exact counts, the hits of each filter, and frames that the interface dropped, at the end
    #[arg(long)]
    pub stats: bool,
    /// Stop after N accepted frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
}
