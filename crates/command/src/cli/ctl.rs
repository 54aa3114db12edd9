//! Arguments of `fyke ctl`, which edits the filters of a running fyke.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// `fyke ctl`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke ctl list                         list running fykes
  fyke ctl set 'tcp port 80'            replace the filter of the only live capture
  fyke ctl --pid 4711 add 'host 10.0.0.7 and udp'
  fyke ctl add --name voip --for 5m 'udp port 5060'
  fyke ctl add --hosts suspects.txt     one filter for a list of addresses, nets and ports
  fyke ctl set -F pairs.txt             read a long expression from a file
  fyke ctl batch -F edits.txt           several edits as one
  fyke ctl show                         show filters with their ids and hits
  fyke ctl del voip
  fyke ctl try 'udp portrange 5000-6000'    tell what a filter would accept, before it is added
  fyke ctl why --last 3                 tell which primitive rejected the last frames
  fyke ctl save before.pcapng --last 30s 'host 10.0.0.7'    from `fyke dump --keep 60s`
  fyke ctl log                          show all edits with author and time
  fyke ctl undo                         take your last edit back
  fyke ctl watch                        print the counts every second until Ctrl-C

An edit is in force for the next frames that fyke reads. Frames that arrived shortly before it and are still in the
capture ring (at most 20 ms; 160 where frames only go to a file) are evaluated by the new filters; `fyke dump
--immediate-mode` reads frames at once.

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
    ///
    /// Long texts are cut, and the passes of a filter that has more than 64 are counted; --full prints them all.
    Show {
        /// Print whole texts and all passes
        #[arg(long)]
        full: bool,
    },
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
    Add(AddArgs),
    /// Remove a filter. The last one cannot be removed: to accept everything, use `set ''`; to stop, end the capture
    Del {
        /// Id or name of the filter, as printed by `show`
        #[arg(value_name = "ID|NAME")]
        filter: String,
    },
    /// Make several edits as one: all are in force from the same frame on, or none is
    ///
    /// FILE has one edit a line; empty lines and text after # are skipped:
    ///
    ///   add [--name NAME] [--for TIME] [--snaplen LEN] EXPR
    ///   set EXPR
    ///   del ID|NAME
    ///
    /// Each edit sees the filters that the lines before it leave, but a filter that the file adds has no id or name in
    /// it yet. An error names the line.
    #[command(verbatim_doc_comment)]
    Batch {
        /// File with the edits; - is standard input
        #[arg(short = 'F', value_name = "FILE")]
        file: PathBuf,
    },
    /// Edit single passes, instruction by instruction, as one edit: all calls are in force from the same frame on
    ///
    /// Each argument is one call:
    ///
    ///   new                                    a pass without instructions, which accepts every frame
    ///   dup PASS                               a copy of a pass, also of one of a filter
    ///   del PASS                               delete a pass
    ///   select [PASS.]INDEX OPERATION [MASK]   set or append an instruction, without parameters
    ///   add [PASS.]INDEX VALUE                 add a parameter to it
    ///   remove [PASS.]INDEX VALUE              remove a parameter
    ///   poke [PASS.]INDEX WORD VALUE           overwrite a word of it
    ///
    /// Without PASS, the pass that the last `new` or `dup` before has made. Operations: true, never, ether-ip,
    /// ether-ip6, ether-arp, ether-ip-tcp-nonfrag, ether-ip-udp-nonfrag, ip-src, ip-dst, ip-host (these three with a
    /// mask), port-src, port-dst, port, ether-type. Values: 80, 0x50, 10.0.0.1. Frames that such a pass accepts are
    /// accepted beside those of the filters; the kernel passes all frames from then on. For `fyke dump`, `track`, `run`
    /// (in the only node with filters, or in the one that --node names) and `exec` (evaluated in the kernel).
    ///
    ///   fyke ctl pass new 'select 0 ether-ip-udp-nonfrag' 'select 1 port-dst' 'add 1 5001'
    #[command(verbatim_doc_comment)]
    Pass {
        /// The calls
        #[arg(value_name = "CALL", required = true)]
        calls: Vec<String>,
        /// With `fyke run`: tag or name of the node with the passes
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
    },
    /// Show the edits so far: epoch, time, author, filters, and the frames that these have accepted since
    ///
    /// The user and the process of an author are those that the kernel reports; the program is what the client calls
    /// itself. Edits by trackers that follow each other are one line. fyke keeps the last 1000 entries, and fewer if
    /// their texts are longer than 64 MiB. For `fyke dump`, `track`, `demux`, `run` and `exec`.
    Log {
        /// Show only the last N edits
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        last: Option<u64>,
        /// Print texts of up to 1000 characters
        #[arg(long)]
        full: bool,
    },
    /// Take an edit back by a new one
    ///
    /// Without EPOCH, your last edit that can be taken back; again, the one before. What the edit added is removed,
    /// and what it removed is added again, with new ids and counts. If a filter of the edit has been removed since,
    /// `undo EPOCH` is refused and names the user. Other filters stay as they are. An undo can be taken back by its
    /// epoch. Edits of trackers are never taken back. An undo that would overwrite a file is refused.
    Undo {
        /// The epoch of the edit, as printed by `log`
        epoch: Option<u64>,
    },
    /// Tell what a filter EXPR would accept, without changing anything
    ///
    /// EXPR is evaluated on the last frames that arrived at the filters: the last 4096, or fewer if they have more than
    /// 8 MiB. Of more than about 25,000 frames per second fyke keeps some batches only; the answer tells of how many
    /// frames. Frames that the kernel rejects do not arrive: `fyke dump --count-all` lets them. For `fyke dump`,
    /// `track`, `demux`, and `run` if its graph has one filter or one demultiplexer.
    Try {
        /// Read the expression from FILE
        #[arg(short = 'F', value_name = "FILE")]
        expression_file: Option<PathBuf>,
        /// Evaluate only the last N frames
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        last: Option<u64>,
        /// Filter expression
        #[arg(value_name = "EXPR", required_unless_present = "expression_file")]
        expression: Vec<String>,
    },
    /// Tell which primitive of each filter rejected the last rejected frames
    ///
    /// Frames are those of `try`. The first 8 filters are explained.
    Why {
        /// Explain the last N rejected frames
        #[arg(
            long,
            value_name = "N",
            default_value_t = 5,
            value_parser = clap::value_parser!(u64).range(1..=1_000)
        )]
        last: u64,
    },
    /// Print the last frames with their bytes, and why rejected ones were rejected
    ///
    /// Frames are those of `try`.
    Frames {
        /// Print the last N frames
        #[arg(
            long,
            value_name = "N",
            default_value_t = 5,
            value_parser = clap::value_parser!(u64).range(1..=1_000)
        )]
        last: u64,
        /// Only frames that a filter in force accepts
        #[arg(long, conflicts_with = "rejected")]
        accepted: bool,
        /// Only frames that no filter in force accepts
        #[arg(long)]
        rejected: bool,
    },
    /// Write frames of the past to FILE, rejected ones too, from a capture with `fyke dump --keep`
    ///
    /// FILE is pcapng, or pcap if its name ends in .pcap. A new file has mode 600. fyke ctl opens it; the capture
    /// writes to the open file at low priority, and needs no access to the folder. The file takes its name when it is
    /// complete; a file that the capture has open, such as its own output, is refused.
    Save {
        /// File to write; an existing one is replaced by a new one
        file: PathBuf,
        /// Only frames of the last TIME: 30s, 5m
        #[arg(long, value_name = "TIME", value_parser = time)]
        last: Option<Duration>,
        /// Only frames that EXPR accepts
        #[arg(value_name = "EXPR")]
        expression: Vec<String>,
    },
    /// Stop evaluating frames until `start`, and keep everything else as it is
    ///
    /// Frames of interfaces that arrive meanwhile count as lost, with the reason `paused`; frames that the kernel
    /// rejects stay rejected. Files and pipes are not read. For `fyke dump`, `track`, `demux` and `run`. With the
    /// number of a reader of `fyke serve`, as `ctl show` tells it: that reader gets no frames, and has no counts of
    /// them.
    Pause {
        /// Reader of a service
        #[arg(value_name = "READER")]
        reader: Option<u64>,
    },
    /// End a pause
    Start {
        /// Reader of a service
        #[arg(value_name = "READER")]
        reader: Option<u64>,
    },
    /// Print the exact counts of one moment: seen = accepted + rejected + taken + lost
    ///
    /// A frame is accepted if at least one final node of a graph passes it (writes, prints or counts it); it counts
    /// once, even if several do. Any other frame is taken (a node holds or has replaced it), lost (with the reason) or
    /// rejected. A frame that several filters match counts for one of them. The time is the moment of the counts.
    Stats {
        /// Print whole texts
        #[arg(long)]
        full: bool,
    },
    /// Print the counts repeatedly until interrupted
    Watch {
        /// Milliseconds between two reports
        #[arg(long, default_value_t = 1000)]
        #[arg(value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
        interval_ms: u64,
        /// Print whole texts
        #[arg(long)]
        full: bool,
    },
}

/// `fyke ctl add`, and the lines `add` of `fyke ctl batch`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Name of the filter, for `show`, `log` and `del`; no other filter in force has it
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Remove the filter after TIME: 500ms, 30s, 5m, 2h, 1d
    ///
    /// The last filter stays, unless every frame was accepted before it was added.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub lifetime: Option<Duration>,
    /// Write at most LEN bytes of each of its frames, from 1 to 262144; their length on the wire stays
    ///
    /// If several filters accept a frame, the longest counts; a filter without this option writes whole frames. For
    /// `fyke dump` without --workers; frames that it has written before, or that --keep holds, stay whole.
    #[arg(long, value_name = "LEN", value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub snaplen: Option<u32>,
    /// Read addresses, nets and ports from FILE, one a line, and match frames of any of them
    ///
    /// Lines: 10.0.0.7, 10.1.0.0/16, 2001:db8::1, 2001:db8::/32, 5060, 5000-5010, tcp/443, udp/5000-5010;
    /// text after # is skipped; - is standard input. With EXPR, frames must match EXPR too.
    #[arg(long, value_name = "FILE", conflicts_with = "expression_file")]
    pub hosts: Option<PathBuf>,
    /// Read the expression from FILE
    #[arg(short = 'F', value_name = "FILE")]
    pub expression_file: Option<PathBuf>,
    /// Filter expression
    #[arg(value_name = "EXPR", required_unless_present_any = ["expression_file", "hosts"])]
    pub expression: Vec<String>,
}

/// Parses a time such as `5m`.
pub fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("expected a number and a unit: 500ms, 30s, 5m, 2h, 1d".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    let total = number.checked_mul(ms).filter(|total| *total > 0);
    total.map(Duration::from_millis).ok_or_else(|| format!("{text} is not a possible time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1d", 86_400_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for wrong in ["", "5", "m", "0s", "-5m", "5 m", "1.5h", "99999999999999999999s"] {
            assert!(time(wrong).is_err(), "{wrong:?}");
        }
        assert!(time("18446744073709551615d").is_err());
    }
}
