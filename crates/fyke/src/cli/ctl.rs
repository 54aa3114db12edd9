//! Arguments of `fyke ctl`: edit what runs.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `fyke ctl`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke ctl list                         the running ones
  fyke ctl set 'tcp port 80'            replace the filter of the only live capture
  fyke ctl --pid 4711 add 'host 10.0.0.7 and udp'
  fyke ctl set -F pairs.txt             a long one, from a file
  fyke ctl show                         filters with their ids and hits
  fyke ctl del 2
  fyke ctl watch                        accounting once a second until Ctrl-C

Without --pid, the only live capture that you own is taken; a fyke that reads files is reached with --pid.
Standard error names the process that answers; JSON names it as \"target\".")]
pub struct CtlArgs {
    /// The process to talk to; needed when several captures run, and for one that reads files
    #[arg(long, global = true, value_name = "PID")]
    pub pid: Option<u32>,
    /// JSON for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// What to ask or change.
    #[command(subcommand)]
    pub action: CtlAction,
}

/// The actions of `fyke ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlAction {
    /// List running fykes
    List,
    /// Show filters and passes with their hits
    Show,
    /// Replace all filters by EXPR (nothing = accept everything)
    Set {
        /// Read the expression from FILE
        #[arg(short = 'F', value_name = "FILE")]
        expression_file: Option<PathBuf>,
        /// Filter expression
        #[arg(value_name = "EXPR")]
        expression: Vec<String>,
    },
    /// Add EXPR: frames it matches are accepted too
    Add {
        /// Read the expression from FILE
        #[arg(short = 'F', value_name = "FILE")]
        expression_file: Option<PathBuf>,
        /// Filter expression
        #[arg(value_name = "EXPR", required_unless_present = "expression_file")]
        expression: Vec<String>,
    },
    /// Remove a filter, but not the last one: `set ''` accepts everything, ending the capture stops it
    Del {
        /// Number of the filter as `show` prints it
        id: u64,
    },
    /// Exact accounting of one moment: seen = accepted + rejected + taken + lost
    ///
    /// A frame is accepted when an end of a graph passes it (written, printed, counted), once however many do; else it
    /// is taken (a node holds or has replaced it), lost (with the reason) or rejected. A frame that several filters
    /// match counts for one of them. The time is that of the counts.
    Stats,
    /// Accounting again and again until interrupted
    Watch {
        /// Milliseconds between two reports
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
        interval_ms: u64,
    },
}
