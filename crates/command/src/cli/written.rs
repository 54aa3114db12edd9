//! Arguments of `fyke completions` and `fyke man`, which are written from the other arguments.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// `fyke completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke completions bash > /usr/share/bash-completion/completions/fyke
  fyke completions zsh > /usr/share/zsh/vendor-completions/_fyke
  fyke completions fish > /usr/share/fish/vendor_completions.d/fyke.fish
  source <(fyke completions bash)                      only in this shell")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// `fyke man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fyke man > fyke.1                                    the page of fyke itself
  fyke man dump | man -l -                             read the page of one command
  fyke man ctl add | man -l -                          and of one that belongs to another
  fyke man --all /usr/share/man/man1                   a file for each, such as fyke-ctl-add.1")]
pub struct ManArgs {
    /// Name of a command, such as dump or ctl add; without it, the page of fyke itself
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of fyke and of all its commands into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub all: Option<PathBuf>,
}
