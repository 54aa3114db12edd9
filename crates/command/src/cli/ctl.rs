//! Arguments of `fyke ctl`, which edits the filters of a running fyke.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `fyke ctl`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke ctl list                         list running fykes
  fyke ctl set 'tcp port 80'            replace the filter of the only live capture
  fyke ctl --pid 4711 add 'host 10.0.0.7 and udp'
  fyke ctl set -F pairs.txt             read a long expression from a file
  fyke ctl show                         show filters with their ids and hits
  fyke ctl del 2
  fyke ctl watch                        print the counts every second until Ctrl-C

An edit is in force for the next frames that fyke reads. Frames that arrived up to 20 ms before it and are still in
the capture ring are evaluated by the new filters; `fyke dump --immediate-mode` reads frames at once.

Without --pid, fyke ctl talks to the only live capture that you own; use --pid for a fyke that reads files.
Standard error names the process that answers; JSON has it as \"target\".")]
pub struct CtlArgs {
    /// Process to talk to; needed if several captures run, and for a fyke that reads files
    #[arg(long, global = true, value_name = "PID")]
    pub pid: Option<u32>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The query or change.
    #[command(subcommand)]
    pub action: CtlAction,
}

/// The actions of `fyke ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlAction {
    /// List running fykes
    List,
    /// Show filters and evaluation passes with their hits
    Show,
    /// Replace all filters by EXPR (empty: accept everything)
    Set {
        /// Read the expression from FILE
        #[arg(short = 'F', value_name = "FILE")]
        expression_file: Option<PathBuf>,
        /// Filter expression
        #[arg(value_name = "EXPR")]
        expression: Vec<String>,
    },
    /// Add a filter EXPR; frames that it matches are accepted too
    Add {
        /// Read the expression from FILE
        #[arg(short = 'F', value_name = "FILE")]
        expression_file: Option<PathBuf>,
        /// Filter expression
        #[arg(value_name = "EXPR", required_unless_present = "expression_file")]
        expression: Vec<String>,
    },
    /// Remove a filter. The last one cannot be removed: to accept everything, use `set ''`; to stop, end the capture
    Del {
        /// Id of the filter, as printed by `show`
        id: u64,
    },
    /// Print the exact counts of one moment: seen = accepted + rejected + taken + lost
    ///
    /// A frame is accepted if at least one final node of a graph passes it (writes, prints or counts it); it counts
    /// once, even if several do. Any other frame is taken (a node holds or has replaced it), lost (with the reason) or
    /// rejected. A frame that several filters match counts for one of them. The time is the moment of the counts.
    Stats,
    /// Print the counts repeatedly until interrupted
    Watch {
        /// Milliseconds between two reports
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
        interval_ms: u64,
    },
}
