//! Arguments of `fyke machine`: programs of the pseudo machines.

use super::PrivilegeArgs;
use clap::Args;
use std::path::PathBuf;

/// `fyke machine`.
#[derive(Debug, Args)]
#[command(after_help = "\
Texts may be in the papers' notation, `tcpdump -d`, `-dd`, `-ddd` or bpf_asm's. Names like
OFF_ETHERTYPE have values for TCP over IPv4 over Ethernet; those of a session follow the file,
FILE:NAME=VALUE,NAME=VALUE, or are given to all programs with -D. CSPF's P[n] is word n of the packet.

Without --isa the first word decides: `begin` and instructions that only MPF has mean MPF, other
instructions of BPF mean BPF, actions of CSPF mean CSPF. `machine run` prints VERDICT<TAB>FRAMES; the
verdict of a frame for several programs has all their names, joined by `+`.

Examples:
  fyke machine asm --isa bpf filter.bpf                       numbers as `tcpdump -ddd` prints them
  fyke machine disasm --isa bpf --format listing numbers.txt
  fyke machine run -D dst_addr=10.0.0.2 -D src_addr=10.0.0.1 -D src_port=80 \\
                    tcp.mpf:dst_port=3000 tcp.mpf:dst_port=3001 -r in.pcap   collapsed; frames of each
  fyke machine run --isa bpf filter.bpf -r in.pcap            frames accepted and rejected")]
pub struct MachineArgs {
    /// What to do
    #[arg(value_enum)]
    pub action: MachineAction,
    /// The machine of all programs (default: the first word of each decides)
    #[arg(long, value_enum)]
    pub isa: Option<Isa>,
    /// Programs (`-` = standard input), each with values of its own: FILE:NAME=VALUE,...
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Give a name a value in all programs: a number or an IPv4 address
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
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// run: print the number of accepted frames and nothing else
    #[arg(long)]
    pub count: bool,
    /// run: interpret the programs, do not translate them to machine code
    #[arg(long)]
    pub interpret: bool,
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
