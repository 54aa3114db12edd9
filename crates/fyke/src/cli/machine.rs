//! Arguments of `fyke machine`: programs of the pseudo machines.

use clap::Args;
use std::path::PathBuf;

/// `fyke machine`.
#[derive(Debug, Args)]
#[command(after_help = "\
Texts may be in the papers' notation, `tcpdump -d`, `-dd`, `-ddd` or bpf_asm's. Names like
OFF_ETHERTYPE have values for TCP over IPv4 over Ethernet; those of a session are given with -D.
CSPF's P[n] is word n of the packet.

Examples:
  fyke machine asm --isa bpf filter.bpf                       numbers as `tcpdump -ddd` prints them
  fyke machine disasm --isa bpf --format listing numbers.txt
  fyke machine run --isa mpf -D src_addr=10.0.0.1 -D src_port=80 -D dst_port=3000 \\
                    -D dst_addr=10.0.0.2 fig3.mpf -r in.pcap
  fyke machine run --isa bpf filter.bpf -r in.pcap            frames accepted and rejected
  fyke machine run --isa mpf one.mpf two.mpf -r in.pcap       collapsed; frames of each")]
pub struct MachineArgs {
    /// What to do
    #[arg(value_enum)]
    pub action: MachineAction,
    /// The machine
    #[arg(long, value_enum)]
    pub isa: Isa,
    /// Programs (`-` = standard input)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Give a name a value: a number or an IPv4 address
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// CSPF: read words as a little-endian machine does, for programs written for one
    #[arg(long)]
    pub little_endian: bool,
    /// What asm and disasm print
    #[arg(long, value_enum)]
    pub format: Option<MachineFormat>,
    /// run: the frames
    #[arg(short, long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// run: print the number of accepted frames and nothing else
    #[arg(long)]
    pub count: bool,
}

/// What `fyke machine` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineAction {
    /// Text to numbers
    Asm,
    /// Numbers to text
    Disasm,
    /// Say whether it may run, and why not
    Check,
    /// Run over the frames of a file
    Run,
}

/// Instruction sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Isa {
    /// The CMU/Stanford packet filter
    Cspf,
    /// Classic BPF with Linux's extensions
    Bpf,
    /// BPF with matches, fragments and postponing
    Mpf,
}

/// How programs are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineFormat {
    /// Labels; bpf_asm reads it
    Asm,
    /// As `tcpdump -d`
    Listing,
    /// As `tcpdump -dd`
    C,
    /// As `tcpdump -ddd`
    Decimal,
}
