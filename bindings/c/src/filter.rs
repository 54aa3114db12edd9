//! The filter of a handle: a kernel space and the text of the last error. Safe code only.

use fyke_filter::Options;
use fyke_frame::LinkType;
use fyke_kernel::{KernelPassId, Mirror, Space};
use fyke_pass::{Instruction, Opcode, PassSet, primitive};
use std::ffi::CString;
use std::fmt::Display;
use std::os::fd::BorrowedFd;

/// Offset of the IPv4 header in an untagged Ethernet frame.
const IP: u16 = 14;

/// Predefined operations for `fyke_select_op`. Those with parameters start without any,
/// and are false until
/// `fyke_add_param` has added one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum FykeOp {
    /// True for every frame.
    FykeTrue = 0,
    /// False for every frame.
    FykeNever = 1,
    /// IPv4.
    FykeEtherIp = 2,
    /// IPv6.
    FykeEtherIp6 = 3,
    /// ARP.
    FykeEtherArp = 4,
    /// IPv4, TCP, no later fragment.
    FykeEtherIpTcpNonfrag = 5,
    /// IPv4, UDP, no later fragment.
    FykeEtherIpUdpNonfrag = 6,
    /// IPv4 source address under a mask (`arg`); up to 6 parameters.
    FykeIpSrc = 7,
    /// IPv4 destination address under a mask (`arg`); up to 6 parameters.
    FykeIpDst = 8,
    /// Either IPv4 address under a mask (`arg`); up to 6 parameters.
    FykeIpHost = 9,
    /// Source port; up to 12 parameters.
    FykePortSrc = 10,
    /// Destination port; up to 12 parameters.
    FykePortDst = 11,
    /// Either port; up to 12 parameters.
    FykePort = 12,
    /// EtherType; up to 14 parameters.
    FykeEtherType = 13,
}

/// Totals of the frames of a filter's sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FykeCounts {
    /// Frames that a pass accepted, or that were accepted because there was no pass.
    pub accepted: u64,
    /// Frames that no pass accepted.
    pub rejected: u64,
    /// Frames rejected because their evaluation would exceed the limit on work.
    pub capped: u64,
}

/// A filter in the kernel.
#[derive(Debug)]
pub struct FykeFilter {
    space: Space,
    error: CString,
}

impl FykeOp {
    const ALL: [FykeOp; 14] = [
        FykeOp::FykeTrue,
        FykeOp::FykeNever,
        FykeOp::FykeEtherIp,
        FykeOp::FykeEtherIp6,
        FykeOp::FykeEtherArp,
        FykeOp::FykeEtherIpTcpNonfrag,
        FykeOp::FykeEtherIpUdpNonfrag,
        FykeOp::FykeIpSrc,
        FykeOp::FykeIpDst,
        FykeOp::FykeIpHost,
        FykeOp::FykePortSrc,
        FykeOp::FykePortDst,
        FykeOp::FykePort,
        FykeOp::FykeEtherType,
    ];

    /// Returns the operation with this number, or none if a C program passes a wrong number.
    pub(crate) fn from_number(number: u32) -> Option<FykeOp> {
        FykeOp::ALL.into_iter().find(|&op| op as u32 == number)
    }
}

/// Returns the operation without parameters.
pub fn operation(op: FykeOp, arg: u32) -> Instruction {
    let list = |opcode, offset| Instruction::new(opcode, offset).behind_ipv4(IP);
    match op {
        FykeOp::FykeTrue => Instruction::new(Opcode::Nop, 0),
        FykeOp::FykeNever => primitive::never(),
        FykeOp::FykeEtherIp => primitive::ether_ip(),
        FykeOp::FykeEtherIp6 => primitive::ether_ip6(),
        FykeOp::FykeEtherArp => primitive::ether_arp(),
        FykeOp::FykeEtherIpTcpNonfrag => primitive::ether_ip_tcp_nonfrag(),
        FykeOp::FykeEtherIpUdpNonfrag => primitive::ether_ip_udp_nonfrag(),
        FykeOp::FykeIpSrc => list(Opcode::DMeq, 26).with_param(0, arg),
        FykeOp::FykeIpDst => list(Opcode::DMeq, 30).with_param(0, arg),
        FykeOp::FykeIpHost => list(Opcode::DDmeq, 26).with_param(0, arg),
        FykeOp::FykePortSrc => list(Opcode::L1Seq, 0),
        FykeOp::FykePortDst => list(Opcode::L1Seq, 2),
        FykeOp::FykePort => list(Opcode::L1Eseq, 0),
        FykeOp::FykeEtherType => list(Opcode::DSeq, 12),
    }
}

impl FykeFilter {
    /// Loads the program, and attaches it if there is a socket.
    pub fn open(socket: Option<BorrowedFd<'_>>) -> Result<FykeFilter, String> {
        let space = Space::open(fyke_kernel::Options::default()).map_err(text)?;
        let filter = FykeFilter { space, error: CString::default() };
        match socket {
            Some(socket) => filter.space.attach(socket).map(|()| filter).map_err(text),
            None => Ok(filter),
        }
    }

    /// The kernel space.
    pub fn space(&mut self) -> &mut Space {
        &mut self.space
    }

    /// Adds the passes of a text; returns their number.
    pub fn add_text(&mut self, words: &str, alone: bool) -> Result<usize, String> {
        let link = LinkType::EN10MB;
        let options = Options { link, ..Options::default() };
        let predicate = fyke_filter::compile(words, &options).map_err(text)?;
        let mut set = PassSet::new(link);
        let mut edit = set.edit();
        edit.add_filter(&predicate).map_err(text)?;
        edit.commit();
        let passes = self.space.passes();
        let old: Vec<KernelPassId> = passes.ids().collect();
        let new = Mirror::append(passes, &set, alone.then_some(&old[..])).map_err(text)?;
        if new.is_empty() {
            passes.set_empty_accepts(words.trim().is_empty());
        }
        Ok(new.len())
    }

    /// The counters.
    pub fn counts(&self) -> FykeCounts {
        let tallies = self.space.tallies();
        FykeCounts {
            accepted: tallies.accepted + tallies.unfiltered,
            rejected: tallies.rejected,
            capped: tallies.capped,
        }
    }

    /// Stores a result's error for `fyke_error`.
    pub fn keep<T, E: Display>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.error = c_text(error)).ok()
    }

    /// The last error.
    pub fn error(&self) -> &CString {
        &self.error
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Converts a text for C; our errors contain no NUL, but a filter text quoted in one may.
pub fn c_text(error: impl Display) -> CString {
    CString::new(error.to_string().replace('\0', "?")).unwrap_or_default()
}
