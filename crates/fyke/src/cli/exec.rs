//! Arguments of `fyke exec`: a program with an editable filter.

use clap::Args;

/// `fyke exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
The program runs as it is; every packet socket that it or anything it starts opens gets a filter in the kernel, before
its first frame, that `fyke ctl` edits by memory stores. The filter it starts with is the program's own: tcpdump's is
read from its arguments, for others (also `bash -c 'tcpdump …'`) give --filter, or the program keeps its own until the
first edit. Ends when the last process that the program has started ends; SIGINT, SIGTERM and SIGHUP go to all of them,
and what is left after 0.7 s is killed. Needs root and Linux 6.9, or 5.17 for a slower form.
This is no sandbox: a socket that the program inherits or receives from another program is not filtered when it
arrives. io_uring, SOCK_PACKET sockets and sockets of 32-bit programs fail.
For about the first second, programs on libpcap also apply the filter that they were started with.

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
