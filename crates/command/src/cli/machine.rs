//! Arguments of `fyke machine`, which runs programs of the pseudo machines.

use super::PrivilegeArgs;
use clap::Args;
use std::path::PathBuf;

/// `fyke machine`.
#[derive(Debug, Args)]
#[command(after_help = "\
Programs may be in the notation of the papers, of `tcpdump -d`, `-dd` or `-ddd`, or of bpf_asm. Names like
OFF_ETHERTYPE have values for TCP over IPv4 over Ethernet. Values of a session are given per program, as
FILE:NAME=VALUE,NAME=VALUE, or for all programs with -D. In CSPF, P[n] is word n of the packet.

Without --isa, the first word of a program decides: `begin` and instructions that only MPF has mean MPF,
other BPF instructions mean BPF, CSPF actions mean CSPF. `machine run` prints VERDICT<TAB>FRAMES; if several
programs accept a frame, its verdict is their names joined by `+`.

Examples:
  fyke machine asm --isa bpf filter.bpf                       print numbers in the format of `tcpdump -ddd`
  fyke machine disasm --isa bpf --format listing numbers.txt
  fyke machine run -D dst_addr=10.0.0.2 -D src_addr=10.0.0.1 -D src_port=80 \\
                    tcp.mpf:dst_port=3000 tcp.mpf:dst_port=3001 -r in.pcap   count the frames of each program
  fyke machine run --isa bpf filter.bpf -r in.pcap            count accepted and rejected frames")]
pub struct MachineArgs {
    /// Action
    #[arg(value_enum)]
    pub action: MachineAction,
    /// Machine of all programs (default: the first word of each program decides)
    #[arg(long, value_enum)]
    pub isa: Option<Isa>,
    /// Programs (`-` = standard input), each with its own values: FILE:NAME=VALUE,...
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Set a name to a value in all programs: a number or an IPv4 address
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// CSPF: read words in little-endian order, for programs written for a little-endian machine
    #[arg(long)]
    pub little_endian: bool,
    /// asm, disasm: output format
    #[arg(long, value_enum)]
    pub format: Option<MachineFormat>,
    /// run: capture file with the frames
    #[arg(short, long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// run: print only the number of accepted frames
    #[arg(long)]
    pub count: bool,
    /// run: interpret the programs instead of translating them to machine code
    #[arg(long)]
    pub interpret: bool,
}

/// The actions of `fyke machine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineAction {
    /// Assemble: text to numbers
    Asm,
    /// Disassemble: numbers to text
    Disasm,
    /// Validate, and print the reason if a program is invalid
    Check,
    /// Run on the frames of a file
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

/// Output formats of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineFormat {
    /// With labels, as bpf_asm reads it
    Asm,
    /// As `tcpdump -d`
    Listing,
    /// As `tcpdump -dd`
    C,
    /// As `tcpdump -ddd`
    Decimal,
}
