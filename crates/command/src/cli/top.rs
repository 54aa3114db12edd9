//! Arguments of `fyke top`, which shows a running fyke on a terminal.

use clap::Args;
use std::path::PathBuf;

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

A filter that is refused stays in its line, to be corrected: Left, Right, Home, End, Backspace and Delete work as usual,
Esc leaves it.

Examples:
  fyke top                    the only live capture that you own
  fyke top --pid 4711
  ssh -t host fyke top        a capture on another machine
  fyke top --svg top.svg --readings 60")]
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
    /// Draw the screen into FILE as SVG, and end; needs no terminal
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// With --svg: columns and lines of the screen
    #[arg(long, value_name = "COLUMNSxLINES", default_value = "110x24", value_parser = size,
        requires = "svg")]
    pub size: (u16, u16),
    /// With --svg: number of readings of the counts
    #[arg(long, value_name = "N", default_value_t = 2, requires = "svg",
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub readings: u16,
}

/// Reads a size such as `110x24`.
fn size(text: &str) -> Result<(u16, u16), String> {
    let expected =
        || format!("expected COLUMNSxLINES, such as 110x24, each from 1 to 500; found {text:?}");
    let (columns, lines) = text.split_once('x').ok_or_else(expected)?;
    let number = |text: &str| text.parse().ok().filter(|number| (1..=500).contains(number));
    number(columns).zip(number(lines)).ok_or_else(expected)
}
