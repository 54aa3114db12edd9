//! Arguments of `fyke lend`, which lends filters and sockets to other programs of root.

use clap::Args;
use std::path::PathBuf;

/// `fyke lend`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each client that connects to SOCKET receives two descriptors: a packet socket of the interface, and the memory of its
filter in the kernel. The client edits the filter by memory stores and reads its frames itself (fyke_kernel::Borrowed).
Invalid memory contents affect only the client's own verdicts. When fyke ends or the client disconnects, the filter
rejects everything. Needs root and Linux 6.9.

Clients must run as root too: the holder of a packet socket can bind it to other interfaces and send frames, even after
fyke has ended.

Example:
  fyke lend -i eth0 /run/fyke/eth0.sock")]
pub struct LendArgs {
    /// Interface to capture on
    #[arg(short, long, value_name = "IF")]
    pub interface: String,
    /// Refused for every user except root, with an error that explains why
    #[arg(long, value_name = "UID", hide = true)]
    pub user: Option<u32>,
    /// Limit on simultaneous clients (each takes about 7 MB of kernel memory)
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = super::from_one())]
    pub clients: u32,
    /// Path of the Unix socket to listen on; a socket left by a killed fyke is replaced
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
}
