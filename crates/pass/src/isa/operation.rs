//! The predefined operations by name, which programs select for an instruction without knowing its bits
//! (`SPF_SelectOp`).
//!
//! They are for untagged Ethernet frames, like [`primitive`]. Those with parameters start without any and are false
//! until one is added. Source: Swift, section 4.2.

use crate::isa::layout::{Instruction, Opcode};
use crate::isa::primitive;

/// Offset of the IPv4 header.
const IP: u16 = 14;

/// A predefined operation. The numbers are those of C's `fyke_op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// True for every frame.
    True = 0,
    /// False for every frame.
    Never = 1,
    /// IPv4.
    EtherIp = 2,
    /// IPv6.
    EtherIp6 = 3,
    /// ARP.
    EtherArp = 4,
    /// IPv4, TCP, no later fragment.
    EtherIpTcpNonfrag = 5,
    /// IPv4, UDP, no later fragment.
    EtherIpUdpNonfrag = 6,
    /// IPv4 source address under a mask; up to 6 parameters.
    IpSrc = 7,
    /// IPv4 destination address under a mask; up to 6 parameters.
    IpDst = 8,
    /// Either IPv4 address under a mask; up to 6 parameters.
    IpHost = 9,
    /// Source port; up to 12 parameters.
    PortSrc = 10,
    /// Destination port; up to 12 parameters.
    PortDst = 11,
    /// Either port; up to 12 parameters.
    Port = 12,
    /// EtherType; up to 14 parameters.
    EtherType = 13,
}

impl Operation {
    /// The operations with their names, in the order of their numbers.
    pub const ALL: [(Operation, &'static str); 14] = [
        (Operation::True, "true"),
        (Operation::Never, "never"),
        (Operation::EtherIp, "ether_ip"),
        (Operation::EtherIp6, "ether_ip6"),
        (Operation::EtherArp, "ether_arp"),
        (Operation::EtherIpTcpNonfrag, "ether_ip_tcp_nonfrag"),
        (Operation::EtherIpUdpNonfrag, "ether_ip_udp_nonfrag"),
        (Operation::IpSrc, "ip_src"),
        (Operation::IpDst, "ip_dst"),
        (Operation::IpHost, "ip_host"),
        (Operation::PortSrc, "port_src"),
        (Operation::PortDst, "port_dst"),
        (Operation::Port, "port"),
        (Operation::EtherType, "ether_type"),
    ];

    /// The operation with this name; `-` and `_` are the same.
    pub fn named(name: &str) -> Option<Operation> {
        let name = name.replace('-', "_");
        Operation::ALL.into_iter().find(|(_, own)| *own == name).map(|(operation, _)| operation)
    }

    /// The operation with this number.
    pub fn numbered(number: u32) -> Option<Operation> {
        Operation::ALL.get(usize::try_from(number).ok()?).map(|(operation, _)| *operation)
    }

    /// True if it compares addresses under a mask.
    pub fn takes_mask(self) -> bool {
        matches!(self, Operation::IpSrc | Operation::IpDst | Operation::IpHost)
    }

    /// The instruction, without parameters. `mask` is for those that [take one](Self::takes_mask).
    pub fn instruction(self, mask: u32) -> Instruction {
        let list = |opcode, offset| Instruction::new(opcode, offset).behind_ipv4(IP);
        match self {
            Operation::True => Instruction::new(Opcode::Nop, 0),
            Operation::Never => primitive::never(),
            Operation::EtherIp => primitive::ether_ip(),
            Operation::EtherIp6 => primitive::ether_ip6(),
            Operation::EtherArp => primitive::ether_arp(),
            Operation::EtherIpTcpNonfrag => primitive::ether_ip_tcp_nonfrag(),
            Operation::EtherIpUdpNonfrag => primitive::ether_ip_udp_nonfrag(),
            Operation::IpSrc => list(Opcode::DMeq, 26).with_param(0, mask),
            Operation::IpDst => list(Opcode::DMeq, 30).with_param(0, mask),
            Operation::IpHost => list(Opcode::DDmeq, 26).with_param(0, mask),
            Operation::PortSrc => list(Opcode::L1Seq, 0),
            Operation::PortDst => list(Opcode::L1Seq, 2),
            Operation::Port => list(Opcode::L1Eseq, 0),
            Operation::EtherType => list(Opcode::DSeq, 12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_find_the_same_operation() {
        for (number, (operation, name)) in (0..).zip(Operation::ALL) {
            assert_eq!(operation as u32, number);
            assert_eq!(Operation::numbered(number), Some(operation));
            assert_eq!(Operation::named(&name.replace('_', "-")), Some(operation));
        }
        assert_eq!((Operation::numbered(14), Operation::named("ether")), (None, None));
    }
}
