//! Arguments of `fyke demo`: the main job on generated traffic.

use clap::Args;
use std::path::PathBuf;

/// `fyke demo`.
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
