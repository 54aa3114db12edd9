//! Arguments of `fyke exec`, which runs a program with an editable filter.

use clap::Args;

/// `fyke exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
The program runs unmodified. Every packet socket that it or one of its descendants opens gets a filter in the kernel
before its first frame; `fyke ctl` edits this filter by memory stores. The first filter is the program's own: fyke
reads tcpdump's from its arguments. For other programs (also `bash -c 'tcpdump …'`) use --filter; without it, the
program's own filter applies until the first edit.
fyke exec ends when the last of these processes ends. SIGINT, SIGTERM and SIGHUP are sent to all of them; processes
that still run after 0.7 s are killed. Needs root and Linux 6.9, or 5.17 for a slower form.
This is not a sandbox: a socket that the program inherits or receives from another program is not filtered on
arrival. io_uring, SOCK_PACKET sockets and sockets of 32-bit programs fail.
For about the first second, libpcap programs also apply the filter they were started with.

With --rules, sockets that are bound to the interface also read its rules (fyke rules IF), before the filter; those of
other interfaces, and of all interfaces at once, do not. If no other fyke has the rules, this one has them.

Examples:
  fyke exec -- tcpdump -ni eth0 tcp port 80
  fyke exec --rules eth0 -- tcpdump -ni eth0
  fyke ctl add 'udp port 53'             from another terminal
  fyke exec --filter 'icmp' -- my-capture eth0")]
pub struct ExecArgs {
    /// First filter, instead of the program's own
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Read the rules of an interface, too (fyke rules IF): for sockets that are bound to it
    #[arg(long, value_name = "IF")]
    pub rules: Option<String>,
    /// Print exact counts, and the hits of each filter, at the end
    #[arg(long)]
    pub stats: bool,
    /// Program to run, and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<std::ffi::OsString>,
}
