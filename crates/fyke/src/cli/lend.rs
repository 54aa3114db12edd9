//! Arguments of `fyke lend`: filters and sockets for programs without privilege.

use clap::Args;
use std::path::PathBuf;

/// `fyke lend`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each client that connects to SOCKET gets a packet socket of the interface and the memory of a filter in the kernel that
runs on it, both as descriptors: it edits by memory stores and reads its frames itself (fyke_kernel::Borrowed). Whatever
it writes harms only its own verdicts. When fyke ends, or the client hangs up, the filter rejects everything. Needs
root and Linux 6.9.

Example:
  fyke lend -i eth0 --user 1000 /run/fyke/eth0.sock")]
pub struct LendArgs {
    /// Interface whose frames clients may see
    #[arg(short, long, value_name = "IF")]
    pub interface: String,
    /// User who may connect besides root, by number
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// Most clients at a time (each costs about 7 MB of the kernel's memory)
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = super::from_one())]
    pub clients: u32,
    /// Where to listen; there must be nothing
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
}
