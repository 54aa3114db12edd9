//! Arguments of `fyke metrics`, which gives the counts of running fykes to monitoring systems.

use clap::Args;
use std::net::SocketAddr;

/// `fyke metrics`.
#[derive(Debug, Args)]
#[command(after_help = "\
The counts are those of `fyke ctl stats`: frames by outcome and by reason of a loss, filters, nodes, interfaces,
epochs. They are served at http://ADDRESS/metrics in the OpenMetrics text format, or in the Prometheus text format
if the client asks for that; --once prints the latter. Nothing can be edited there. The captures answer as they
answer `fyke ctl`, and never wait. Filter texts are part of the answer, so do not listen on an address that others
reach unless they may read these.

Examples:
  fyke metrics
  fyke metrics --listen 127.0.0.1:9470 --pid 4711
  fyke metrics --once > fyke.new && mv fyke.new fyke.prom          for node_exporter")]
pub struct MetricsArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9470")]
    pub listen: SocketAddr,
    /// Only the fyke with this process id
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Print the metrics once and end
    #[arg(long, conflicts_with = "listen")]
    pub once: bool,
}
