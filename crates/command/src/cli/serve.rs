//! Arguments of `fyke serve`, which captures once for many programs.

use super::PrivilegeArgs;
use clap::Args;
use std::path::PathBuf;

/// `fyke serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Programs connect with `-i serve:NAME` (dump, track, demux, run) or by the protocol in docs/serve.md. A frame is copied
once for each user that reads it, however many of its programs do; the texts of all programs run as one filter, in the
kernel too. Each program has exact counts, and one that stops costs the others nothing.

Root and the user that fyke becomes are served; other users only by the rules of --config. SIGHUP reads the rules again:
programs with an unchanged rule lose nothing, others are ended with the reason.

Examples:
  fyke serve -i eth0                           serve the capture of eth0 under its name
  fyke dump -ni serve:eth0 'tcp port 443'      read it, from another terminal
  fyke track ftp -i serve:eth0 -w ftp.pcapng   another program on the same capture
  fyke serve -i eth0 -i eth1                   serve:eth0 and serve:eth1, of one process
  fyke serve -i eth0 --config serve.toml       serve other users too, by rules (docs/serve.md)
  fyke ctl stats                               all readers, their texts and counts")]
pub struct ServeArgs {
    /// Interface to capture on, by name or by its number in `dump -D`; `any` for all interfaces; by default, the first
    /// that is up. Several -i are several captures, each with its name
    #[arg(short, long, value_name = "IF", action = clap::ArgAction::Append)]
    pub interface: Vec<String>,
    /// Name that readers use, or a path of the socket (with a slash); by default, the name of the interface, or the
    /// socket that systemd has opened
    #[arg(long, value_name = "NAME|PATH")]
    pub name: Option<String>,
    /// File with the users to serve, the frames that each may have, limits, and the captures, if there is no -i
    /// (docs/serve.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Network namespace to capture in: a name of `ip netns`, or the id of a process in it
    #[arg(long, value_name = "NAME|PID")]
    pub netns: Option<String>,
    /// Do not put the interface into promiscuous mode
    #[arg(short = 'p', long, alias = "no-promiscuous-mode")]
    pub no_promiscuous: bool,
    /// Size of the capture ring in KiB (32768)
    #[arg(short = 'B', long, value_name = "KIB",
        value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub buffer_size: Option<u32>,
    /// Let fyke itself count every frame: its filters do not run in the kernel, which costs processor time
    #[arg(long)]
    pub count_all: bool,
    /// Do not open a control socket; `fyke ctl` does not see this service
    #[arg(long)]
    #[arg(help_heading = "Rights and control")]
    pub no_control: bool,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
}
