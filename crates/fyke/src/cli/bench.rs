//! Arguments of `fyke bench`: engines side by side.

use clap::Args;
use std::path::PathBuf;

/// The benches of `fyke bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchName {
    /// Filters that do not change: F1-F6, D10-D100000, and real (all texts of a file)
    Static,
    /// One change among N rows, and what edits cost readers
    Update,
    /// FTP followed by filters that change while they capture; edits under load; costs in the kernel
    Dynamic,
    /// Bloom arrays: false positives beside the formula, look-ups, edits
    Bloom,
    /// Demultiplexing by the MPF paper: table4, table5, fig6, fig7
    Demux,
    /// Patterns and rewriting: literals, regular, tags, r34, r35, r36
    Ruler,
    /// Flow graphs: what a node costs per packet, chains, fans, the FFPF paper's stages
    Graph,
    /// One worker and several over the same frames: F5, F6, D1000
    Workers,
    /// All benches
    All,
}

/// `fyke bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
All engines of a case run in one process on the same frames, in turn; their verdicts are compared
first, and a difference ends the bench with exit status 1. Figures are medians.

Examples:
  fyke bench static --smoke                     does everything work? (seconds)
  fyke bench static --trace day.pcap --json     minutes; one JSON object a line
  fyke bench static --case F5 --case F6 --plot plots")]
pub struct BenchArgs {
    /// Which bench
    #[arg(value_name = "BENCH")]
    pub bench: BenchName,
    /// A few frames only, to see that everything works
    #[arg(long)]
    pub smoke: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Write a chart (SVG) per case and setting into DIR
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Capture file for the real-trace settings
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Filter texts to run as cases, one a line
    #[arg(long, value_name = "FILE")]
    pub real_filters: Option<PathBuf>,
    /// Only this case (may be given again)
    #[arg(long, value_name = "NAME")]
    pub case: Vec<String>,
    /// Only this engine (may be given again)
    #[arg(long, value_name = "NAME")]
    pub engine: Vec<String>,
    /// Write the figures as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// What --csv names as the commit
    #[arg(long, value_name = "COMMIT", requires = "csv")]
    pub commit: Option<String>,
    /// Seed of the generated frames
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}
