//! Arguments of `fyke ids`, which judges traffic by rules.

use super::{PrivilegeArgs, SourceArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `fyke ids`.
#[derive(Debug, Args)]
#[command(after_help = "\
A rule that cannot be judged exactly is not used; standard error has their number, and
`fyke snort2ruler` lists them with their reasons. docs/ids.md describes which options are judged.

Examples:
  fyke ids -r in.pcapng -S my.rules                       a line for each alert
  fyke ids -r in.pcapng -S my.rules --eve - | jq .alert   alerts as Suricata's EVE JSON
  fyke ids -i eth0 -S my.rules --eve eve.json --set HOME_NET=10.0.0.0/8
  fyke ctl add 'alert tcp any any -> any 23 (msg:\"telnet\"; flags:S; sid:1000001;)'     while it runs
  fyke ctl del 1000001")]
pub struct IdsArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    #[command(flatten)]
    pub rules: RuleArgs,
    /// File with rules; several, each with its own -S
    #[arg(short = 'S', long = "rules", value_name = "RULES", required = true)]
    #[arg(action = clap::ArgAction::Append)]
    pub files: Vec<PathBuf>,
    /// Write alerts to FILE as lines of JSON with the names of Suricata's EVE output (`-` = standard output), not as
    /// text
    #[arg(long, value_name = "FILE")]
    pub eve: Option<PathBuf>,
    /// Add the payload of the packet to alerts in JSON, in base 64
    #[arg(long, requires = "eve")]
    pub payload: bool,
    /// Judge the streams of connections without a captured beginning, too
    #[arg(long)]
    pub midstream: bool,
    /// Do not open a control socket; the rules cannot be edited while fyke runs
    #[arg(long)]
    pub no_control: bool,
    /// Stop after N frames
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count_limit: Option<u64>,
}

/// Options for reading rules.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// Set a variable of addresses or ports, such as HOME_NET=10.0.0.0/8 (default: the values of Suricata)
    #[arg(long = "set", value_name = "NAME=VALUE", action = clap::ArgAction::Append)]
    pub variables: Vec<String>,
    /// Language of the rules (default: by the words that only one language has)
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub language: Option<Language>,
}

/// Language of rules.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Language {
    /// Suricata
    Suricata,
    /// Snort 2
    Snort2,
    /// Snort 3
    Snort3,
}
