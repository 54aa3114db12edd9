//! Arguments of `fyke exec`: a program with an editable filter.

use clap::Args;

/// `fyke exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
The program runs as it is; its packet sockets get a filter in the kernel that `fyke ctl` edits by memory stores. The
filter it starts with is the program's own: tcpdump's is read from its arguments, for others give --filter, or the
program keeps its own until the first edit. Needs root and Linux 6.9, or 5.17 for a slower form.
Programs on libpcap judge the first block of their ring (about the first second with frames) by the filter they were
started with too, whatever was edited.

Examples:
  fyke exec -- tcpdump -ni eth0 tcp port 80
  fyke ctl add 'udp port 53'             from another terminal
  fyke exec --filter 'icmp' -- my-capture eth0")]
pub struct ExecArgs {
    /// The filter to start with, when it is not to be the program's own
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Print exact accounting and hits per filter at the end
    #[arg(long)]
    pub stats: bool,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<std::ffi::OsString>,
}
