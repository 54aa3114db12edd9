//! Arguments of `fyke lend`: filters and sockets for other programs of root.

use clap::Args;
use std::path::PathBuf;

/// `fyke lend`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each client that connects to SOCKET gets a packet socket of the interface and the memory of a filter in the kernel that
runs on it, both as descriptors: it edits by memory stores and reads its frames itself (fyke_kernel::Borrowed). Whatever
it writes to the memory harms only its own verdicts. When fyke ends, or the client hangs up, the filter rejects
everything. Needs root and Linux 6.9.

Clients must run as root too: a packet socket can be bound to other interfaces and send frames, also after fyke has
ended, so it gives its holder more than the frames that the filter accepts.

Example:
  fyke lend -i eth0 /run/fyke/eth0.sock")]
pub struct LendArgs {
    /// Interface whose frames clients may see
    #[arg(short, long, value_name = "IF")]
    pub interface: String,
    /// Refused for every user but root; here to say why
    #[arg(long, value_name = "UID", hide = true)]
    pub user: Option<u32>,
    /// Most clients at a time (each costs about 7 MB of the kernel's memory)
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = super::from_one())]
    pub clients: u32,
    /// Where to listen; a socket that a killed fyke has left is replaced
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
}
