//! Arguments of `fyke top`, which shows a running fyke on a terminal.

use clap::Args;

/// `fyke top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys:
  q, Ctrl-C      quit; the running fyke continues
  Up, Down       select a filter
  a              add a filter
  t              try a filter: tell what it would accept, and change nothing
  d              remove the selected filter, after a question
  u              take back your last edit that can be taken back
  p              show the passes of the selected filter
  space          pause the capture, after a question, or let it continue

A filter that is refused stays in its line, to be corrected; Esc leaves it.

Examples:
  fyke top                    the only live capture that you own
  fyke top --pid 4711
  ssh -t host fyke top        a capture on another machine")]
pub struct TopArgs {
    /// Process to show; needed if several captures run, and for a fyke that reads files
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Milliseconds between two readings of the counts
    #[arg(
        long,
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(100..=60_000)
    )]
    pub interval_ms: u64,
}
