//! Arguments of `fyke snort2ruler`, which translates rules.

use super::RuleArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `fyke snort2ruler`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is translated into something weaker or different: a rule with an option that is not judged exactly is
refused, with the reason. Exit status 0 also with refused rules, 2 if no rule is translated.

Examples:
  fyke snort2ruler my.rules                       counts, and the refused rules
  fyke snort2ruler my.rules --report json         the same as one JSON object
  fyke snort2ruler my.rules -o judged.rules       the translated rules, for `fyke ids -S`")]
pub struct Snort2rulerArgs {
    /// File with rules (`-` = standard input)
    pub file: PathBuf,
    /// Write the translated rules to FILE, each with the bytes that it is found by (`-` = standard output)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Form of the report
    #[arg(long, value_enum, value_name = "FORM")]
    pub report: Option<ReportForm>,
    #[command(flatten)]
    pub rules: RuleArgs,
}

/// Form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportForm {
    /// Lines for people
    Text,
    /// One JSON object: rules, translated, refused (sid, line, reason)
    Json,
}
