//! Arguments of `fyke lend`, a command that has ended: they are read, so that its callers get the reason.

use clap::Args;
use std::ffi::OsString;

/// `fyke lend`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct LendArgs {
    /// Arguments of the command as it was
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub given: Vec<OsString>,
}
