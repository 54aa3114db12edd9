//! Arguments of `fyke run`: flow graphs.

use super::PrivilegeArgs;
use clap::Args;
use std::path::PathBuf;

/// `fyke run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke run '(pcapin, in.pcap) > (bpf, \"tcp port 80\") > (packetcount, export=y)'
  fyke run --check '(device,eth0) -> (BPF,\"udp\") | (BPF,\"tcp\") -> (bytecount,,8)'
  fyke run -f web.graph --stats
  fyke run --classes mpf      the parameters of a class; all classes without a name

While it runs: fyke ctl add '(device,eth0) > (bpf,udp) > (packetcount,export)';
equal beginnings are shared.")]
pub struct RunArgs {
    /// Read the graph from FILE (`-` = standard input; .toml = as TOML)
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print the graph as it will run, and open nothing
    #[arg(long)]
    pub check: bool,
    /// Print the graph in Graphviz's language, and open nothing
    #[arg(long)]
    pub dot: bool,
    /// Draw the graph into FILE, and open nothing
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Run, and draw the running graph with its rates every second
    #[arg(long, requires = "svg")]
    pub live_svg: bool,
    /// Show the counters of all nodes at the end, not only of exported ones
    #[arg(long)]
    pub all: bool,
    /// Threads that run the graph; the frames of a conversation stay on one of them, in order. Nodes that go by the
    /// order of all frames are refused
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,
    /// Counters as one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Print exact accounting per node at the end
    #[arg(long)]
    pub stats: bool,
    /// Do not open a control socket; this graph cannot be edited while it runs
    #[arg(long)]
    pub no_control: bool,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// List the classes with their parameters, or those that are named; `[live]`: changes while the node runs, without
    /// a reset
    #[arg(long)]
    pub classes: bool,
    /// Graphs; what they have in common at their beginning is shared
    #[arg(value_name = "GRAPH")]
    pub graph: Vec<String>,
}
