//! Arguments of `fyke web`, which shows running fykes in a browser.

use clap::Args;

/// `fyke web`.
#[derive(Debug, Args)]
#[command(after_help = "\
The page is served on 127.0.0.1 only. The address that is printed contains a secret: everybody with the address can
edit your captures until fyke web ends. For a capture on another machine, forward the port:

  ssh -L 8888:127.0.0.1:8888 host fyke web --port 8888

Keys on the page: / types a filter, u takes back your last edit, r shows rejected frames, l shows the log of edits.

Examples:
  fyke web
  fyke web --port 8888 --read-only")]
pub struct WebArgs {
    /// Port on 127.0.0.1 (any that is free)
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Milliseconds between two readings of the counts
    #[arg(
        long,
        default_value_t = 200,
        value_parser = clap::value_parser!(u64).range(100..=60_000)
    )]
    pub interval_ms: u64,
    /// Refuse edits and pauses
    #[arg(long)]
    pub read_only: bool,
    /// Show whole lines of frames; without it, the addresses only, up to the first `: ` of a line
    #[arg(long)]
    pub payload: bool,
}
