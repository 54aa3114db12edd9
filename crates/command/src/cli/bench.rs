//! Arguments of `fyke bench`, which compares engines.

use clap::Args;
use fyke_lab::net::MOST_ADDRESSES;
use std::path::PathBuf;

/// The benches of `fyke bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchName {
    /// Filters that do not change: F1-F6, D10-D100000, and real (all expressions of a file)
    Static,
    /// Change of one row among N, and the cost of edits for readers
    Update,
    /// Filters that change while they capture FTP; edits under load; costs in the kernel
    Dynamic,
    /// Bloom arrays: false positives compared with the formula, look-ups, edits
    Bloom,
    /// Demultiplexing by the MPF paper: table4, table5, fig6, fig7
    Demux,
    /// Patterns and rewriting: literals, regular, tags, r34, r35, r36
    Ruler,
    /// Flow graphs: cost of a node per packet, chains, fans, the stages of the FFPF paper
    Graph,
    /// Rules of Snort and Suricata on traffic: search beside Hyperscan, whole, edits of rules, pre-filter
    Ids,
    /// TCP streams put together, from 1,000 to 1,000,000 connections: in order, reordered, lost, dropped; patterns that
    /// are resumed, and rewriting across segments
    Streams,
    /// One worker compared with several on the same frames: F5, F6, D1000
    Workers,
    /// Live captures beside tcpdump, dumpcap and a plain ring: cost, first loss, start, edits
    Live,
    /// Readers of one capture beside as many captures by tcpdump: cost, stops, joins
    Share,
    /// Capture files counted, written, printed, compressed, beside tcpdump, tshark, dumpcap
    Scan,
    /// SIP calls at a rate, followed live; the cost of a frame with many ends expected
    Calls,
    /// Frames per second that this machine sends, at seven sizes from 64 to 1520 bytes (see fyke generate)
    Generate,
    /// All benches
    All,
}

/// `fyke bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
All engines of a case run in turn in one process, on the same frames. The bench first compares
their verdicts; if they differ, it ends with exit status 1. Figures are medians.

Examples:
  fyke bench static --smoke                     quick check that everything works (seconds)
  fyke bench static --trace day.pcap --json     full run (minutes); one JSON object per line
  fyke bench dynamic --case ftp --case sip --rates 100000,250000,333000,555000 --seconds 45 \
      --sessions 10x20 --rounds 3 --csv d.csv --plot plots
  fyke bench static --case F5 --case F6 --plot plots")]
pub struct BenchArgs {
    /// Bench to run
    #[arg(value_name = "BENCH")]
    pub bench: BenchName,
    /// Use only a few frames, to check that everything works
    #[arg(long)]
    pub smoke: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Write a chart (SVG) per case and setting into DIR
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Capture file for the real-trace settings
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// File with filter expressions to run as cases, one per line (ruler, ids: file with rules of Snort)
    #[arg(long, value_name = "FILE")]
    pub real_filters: Option<PathBuf>,
    /// Run only this case (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub case: Vec<String>,
    /// Run only this engine (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub engine: Vec<String>,
    /// Background traffic to try, in packets per second (dynamic): a setting for each; the reached rate is reported
    #[arg(long, visible_alias = "rates", value_name = "N[,N]", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    pub rate: Vec<u64>,
    /// FTP servers, and data connections of each that come and go (dynamic); each server has an address of its own
    #[arg(long, value_name = "NxN", value_parser = sessions)]
    pub sessions: Option<(usize, usize)>,
    /// Duration of the traffic in seconds (dynamic)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub seconds: Option<u16>,
    /// Number of rounds (live, share, scan, dynamic, calls, streams, generate); figures are medians over them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,
    /// Measure the pre-filter in the kernel (bloom): a frame by the tap and at XDP, a rule until it is in force
    #[arg(long)]
    pub live: bool,
    /// Write the figures as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Commit to record in the --csv file
    #[arg(long, value_name = "COMMIT", requires = "csv")]
    pub commit: Option<String>,
    /// Seed of the generated frames
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Reads servers and connections, such as `10x20`.
fn sessions(text: &str) -> Result<(usize, usize), String> {
    let number = |text: &str, most| text.parse().ok().filter(|number| (1..=most).contains(number));
    let most = usize::from(MOST_ADDRESSES);
    let read = text.split_once('x');
    let read =
        read.and_then(|(servers, each)| Some((number(servers, most)?, number(each, 1_000)?)));
    read.filter(|(servers, each)| servers * each <= 5_000).ok_or_else(|| {
        format!("expected SERVERSxCONNECTIONS such as 10x20: at most {most} servers, 5000 connections in all")
    })
}
