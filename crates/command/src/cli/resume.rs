//! Arguments of `fyke resume`, which takes a killed capture up again.

use clap::Args;

/// `fyke resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
A live `fyke dump` with a control socket leaves a resume file when it is killed: its arguments, the filters that were
in force last, and the file that it had open. Frames between its end and its new start are not seen.

Examples:
  fyke resume          list the captures that can be taken up
  fyke resume 4711     take up the capture of process 4711
  fyke resume --forget 4711")]
pub struct ResumeArgs {
    /// The capture, by the name in the list; without it, the captures are listed
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Remove the resume file instead of taking the capture up
    #[arg(long, requires = "name")]
    pub forget: bool,
}
