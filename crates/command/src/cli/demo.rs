//! Arguments of `fyke demo`, which shows the main job on generated traffic.

use clap::Args;
use std::path::PathBuf;

/// `fyke demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
The demo runs in network namespaces that are removed when the command ends. It needs no root if
the system allows user namespaces. Exit status 1 if a packet of a data connection was missed or
a count does not add up.

Examples:
  fyke demo
  fyke demo --skip-edit 7        omit one edit: the demo must detect it
  fyke demo --background-pps 0 --no-old-way --write ftp.pcapng")]
pub struct DemoArgs {
    /// Number of FTP servers, each with its own address
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub servers: usize,
    /// Number of passive data connections per server
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub connections: usize,
    /// Size of each transfer
    #[arg(long, value_name = "BYTES")]
    pub size: Option<u64>,
    /// Target duration of the traffic
    #[arg(long, value_name = "SECONDS", default_value_t = 7.0)]
    pub seconds: f64,
    /// Rate of background traffic: UDP packets per second that no filter accepts
    #[arg(long, value_name = "N", default_value_t = 30_000)]
    pub background_pps: u64,
    /// Do not run the recompiling filter for comparison
    #[arg(long)]
    pub no_old_way: bool,
    /// Omit the edit for the N-th announced data connection
    #[arg(long, value_name = "N")]
    pub skip_edit: Option<u64>,
    /// File for the captured FTP traffic
    #[arg(short, long, value_name = "FILE", default_value = "fyke-demo.pcapng")]
    pub write: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Replay the traffic from memory, without namespaces
    #[arg(long)]
    pub from_memory: bool,
}
