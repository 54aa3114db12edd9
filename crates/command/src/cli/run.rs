//! Arguments of `fyke run`, which runs flow graphs.

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
  fyke run --exports /run/rings '(device,eth0) > {web}(filter,tcp port 80,export=y)'
  fyke run --classes mpf      list the parameters of a class; without a name, list all classes

Filters directly after a device also run in the kernel, so frames that they reject are not copied:
  fyke run '(device,eth0) > (filter,tcp port 80) > (tofile,web.pcapng)'
--check prints where each filter would run, and why not in the kernel: after another node, with
a node beside it that needs all frames, or with live=n, which reads it as for a file. The kernel
counts its frames only if fyke may load eBPF programs (as root or with CAP_BPF).

While it runs: fyke ctl add '(device,eth0) > (bpf,udp) > (packetcount,export)';
graphs with the same first nodes share them.")]
pub struct RunArgs {
    /// Read the graph from FILE (`-` = standard input; .toml: in TOML format)
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Check the graph and print it as it would run, without opening its sources and sinks
    #[arg(long)]
    pub check: bool,
    /// Print the graph in Graphviz's language, without opening its sources and sinks
    #[arg(long)]
    pub dot: bool,
    /// Draw the graph into FILE (SVG; `-` = standard output), without opening its sources and sinks
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// With --svg: run the graph and draw it with its rates every second
    #[arg(long, requires = "svg")]
    pub live_svg: bool,
    /// Print the counters of all nodes at the end, not only of exported ones
    #[arg(long)]
    pub all: bool,
    /// Number of threads that run the graph; one thread gets all frames of a conversation, in order. Nodes that depend
    /// on the order of all frames are refused
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,
    /// Print counters as one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Print exact counts and the counters of each node, and frames that the interface dropped, at the end. With
    /// `--json`, print all nodes
    #[arg(long)]
    pub stats: bool,
    /// Publish the frames that each node with `export=y` passes, as the ring DIR/NAME: the tag of the node, or its
    /// class. Read with `fyke dump -i ring:DIR/NAME`
    #[arg(long, value_name = "DIR")]
    pub exports: Option<PathBuf>,
    /// Let fyke itself count every frame: filters do not run in the kernel, which costs processor time
    #[arg(long)]
    pub count_all: bool,
    /// Do not open a control socket; the graph cannot be edited while it runs
    #[arg(long)]
    pub no_control: bool,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// List all classes, or the named ones, with their parameters; `[live]`: can be changed while the node runs,
    /// without a reset
    #[arg(long)]
    pub classes: bool,
    /// Graphs; graphs with the same first nodes share them
    #[arg(value_name = "GRAPH")]
    pub graph: Vec<String>,
}
