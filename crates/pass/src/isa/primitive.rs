//! Predefined instructions for Ethernet frames: the tests that users need most often, each as one instruction.
//!
//! The names follow the papers' libraries (`EtherIP_TCP_NonFrag`, `Ether_IPSrc`, `EtherIP_TCUDPDst`). All assume an
//! untagged Ethernet header and IPv4. A pass puts [`ether_ip`] or a similar instruction first, as the other tests do
//! not read the EtherType. Masks and addresses are numbers as they read (`0xc0a8fe00` is 192.168.254.0). Source: Swift,
//! sections 3.3.1 and 4.2, table 3.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_pass as pass}; }
//! use fyke::frame::{Batch, Frame, LinkType};
//! use fyke::pass::{PassSet, primitive};
//!
//! let mut set = PassSet::new(LinkType::EN10MB);
//! let mut edit = set.edit();
//! let pass = edit.new_pass()?;
//! edit.set_instruction(pass, 0, primitive::ether_arp())?;
//! edit.commit();
//! let mut bytes = [0; 60];
//! bytes[12..14].copy_from_slice(&[0x08, 0x06]);
//! let mut batch = Batch::new();
//! batch.push(Frame::new(LinkType::EN10MB, &bytes)).expect("the first of 256");
//! assert_eq!(set.reader().evaluate(&batch, batch.all()).count(), 1);
//! # Ok::<(), fyke::pass::EditError>(())
//! ```

use crate::isa::instruction::InstructionError;
use crate::isa::layout::{Instruction, Opcode};

/// Offset of the IPv4 header.
const IP: u16 = 14;
const ETHERTYPE: u16 = 12;
const SOURCE: u16 = 26;
const DESTINATION: u16 = 30;
/// Offset of the TCP header's length, in its high nibble.
const TCP_DATA_OFFSET: u16 = 12;

const TCP: u32 = 6;
const UDP: u32 = 17;

fn fixed(opcode: Opcode, offset: u16, mask: Option<u32>, operands: &[u32]) -> Instruction {
    let instruction = Instruction::new(opcode, offset);
    let instruction = match mask {
        Some(mask) => instruction.with_param(0, mask),
        None => instruction,
    };
    match instruction.behind_ipv4(IP).with_operands(operands) {
        Ok(instruction) => instruction,
        Err(error) => unreachable!("a constant number of operands fits: {error}"),
    }
}

/// EtherType equals.
pub fn ether_type(ethertype: u16) -> Instruction {
    fixed(Opcode::DSeq, ETHERTYPE, None, &[ethertype.into()])
}

/// IPv4.
pub fn ether_ip() -> Instruction {
    ether_type(0x0800)
}

/// IPv6.
pub fn ether_ip6() -> Instruction {
    ether_type(0x86dd)
}

/// ARP.
pub fn ether_arp() -> Instruction {
    ether_type(0x0806)
}

/// IPv4, carrying the protocol, not a fragment other than the first: three tests in one (`D_LEQ_M`).
pub fn ether_ip_proto_nonfrag(protocol: u8) -> Instruction {
    let protocol = u32::from(protocol);
    let words = [0x0800_0000, 0xffff_0000, 0, 0, protocol, 0x1fff_00ff];
    fixed(Opcode::DLeqM, ETHERTYPE, None, &words)
}

/// IPv4, TCP, not a later fragment.
pub fn ether_ip_tcp_nonfrag() -> Instruction {
    ether_ip_proto_nonfrag(TCP as u8)
}

/// IPv4, UDP, not a later fragment.
pub fn ether_ip_udp_nonfrag() -> Instruction {
    ether_ip_proto_nonfrag(UDP as u8)
}

/// IPv4 source within a network.
pub fn ip_src_net(mask: u32, address: u32) -> Instruction {
    fixed(Opcode::DMeq, SOURCE, Some(mask), &[address])
}

/// IPv4 destination within a network.
pub fn ip_dst_net(mask: u32, address: u32) -> Instruction {
    fixed(Opcode::DMeq, DESTINATION, Some(mask), &[address])
}

/// IPv4 source.
pub fn ip_src_host(address: u32) -> Instruction {
    fixed(Opcode::DEq, SOURCE, None, &[address])
}

/// IPv4 destination.
pub fn ip_dst_host(address: u32) -> Instruction {
    fixed(Opcode::DEq, DESTINATION, None, &[address])
}

/// IPv4 source or destination within a network (`D_DMEQ`).
pub fn ip_net_either(mask: u32, address: u32) -> Instruction {
    fixed(Opcode::DDmeq, SOURCE, Some(mask), &[address])
}

/// IPv4 source or destination.
pub fn ip_host_either(address: u32) -> Instruction {
    ip_net_either(u32::MAX, address)
}

/// IPv4 source within one network and destination within another (`D_BMEQ`).
pub fn ip_src_and_dst_net(src: (u32, u32), dst: (u32, u32)) -> Instruction {
    fixed(Opcode::DBmeq, SOURCE, None, &[src.1, src.0, dst.1, dst.0])
}

fn ports(opcode: Opcode, offset: u16, ports: &[u16]) -> Result<Instruction, InstructionError> {
    let mut list: Vec<u32> = ports.iter().map(|&port| port.into()).collect();
    list.sort_unstable();
    list.dedup();
    Instruction::new(opcode, offset).behind_ipv4(IP).with_operands(&list)
}

/// TCP or UDP source port is one of up to 12; needs [`ether_ip_tcp_nonfrag`] or a similar instruction before it.
pub fn ip_port_src(list: &[u16]) -> Result<Instruction, InstructionError> {
    ports(Opcode::L1Seq, 0, list)
}

/// TCP or UDP destination port is one of up to 12.
pub fn ip_port_dst(list: &[u16]) -> Result<Instruction, InstructionError> {
    ports(Opcode::L1Seq, 2, list)
}

/// TCP or UDP source or destination port is one of up to 12 (`L1_ESEQ`).
pub fn tcp_port_either(list: &[u16]) -> Result<Instruction, InstructionError> {
    ports(Opcode::L1Eseq, 0, list)
}

/// TCP or UDP source and destination port (`L1_SSEQ`).
pub fn ip_ports_both(source: u16, destination: u16) -> Instruction {
    fixed(Opcode::L1Sseq, 0, None, &[source.into(), destination.into()])
}

/// TCP or UDP source or destination port within an interval; refused when it is empty.
pub fn ip_portrange_either(low: u16, high: u16) -> Result<Instruction, InstructionError> {
    let interval = u32::from(high) << 16 | u32::from(low);
    let instruction = Instruction::new(Opcode::L1Srng, 0)
        .behind_ipv4(IP)
        .with_flags(crate::isa::layout::EITHER)
        .with_operands(&[interval])?;
    instruction.validate().map(|()| instruction)
}

/// The first words of a TCP payload equal these, up to 5 (`L2_LEQ`).
pub fn tcp_payload(words: &[u32]) -> Result<Instruction, InstructionError> {
    let instruction = Instruction::new(Opcode::L2Leq, 0)
        .behind_ipv4(IP)
        .second_length_at(TCP_DATA_OFFSET)
        .with_operands(words)?;
    instruction.validate().map(|()| instruction)
}

/// The first words of a TCP payload match (value, mask) each, up to 2 (`L2_LEQ_M`).
pub fn tcp_payload_masked(words: &[(u32, u32)]) -> Result<Instruction, InstructionError> {
    let words: Vec<u32> = words.iter().flat_map(|&(value, mask)| [value, mask]).collect();
    let instruction = Instruction::new(Opcode::L2LeqM, 0)
        .behind_ipv4(IP)
        .second_length_at(TCP_DATA_OFFSET)
        .with_operands(&words)?;
    instruction.validate().map(|()| instruction)
}

/// An instruction that is never true: a pass with it accepts nothing.
pub fn never() -> Instruction {
    Instruction::new(Opcode::Nop, 0).negated()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_valid() {
        let network = (0xffff_ff00, 0xc0a8_fe00);
        let fallible = [
            ip_port_src(&[21]),
            ip_port_dst(&[23]),
            tcp_port_either(&[80, 443, 80]),
            ip_portrange_either(1, 9),
            tcp_payload(&[0x4745_5420]),
            tcp_payload_masked(&[(0x4745_5400, 0xffff_ff00)]),
        ];
        let infallible = [
            ether_ip(),
            ether_ip6(),
            ether_arp(),
            ether_ip_tcp_nonfrag(),
            ether_ip_udp_nonfrag(),
            ip_src_net(network.0, network.1),
            ip_dst_net(network.0, network.1),
            ip_src_host(1),
            ip_dst_host(1),
            ip_host_either(1),
            ip_src_and_dst_net(network, network),
            ip_ports_both(1, 2),
            never(),
        ];
        let all = infallible.into_iter().chain(fallible.into_iter().map(Result::unwrap));
        all.for_each(|instruction| assert_eq!(instruction.validate(), Ok(())));
        assert!(ip_portrange_either(9, 1).is_err());
        assert!(tcp_port_either(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]).is_err());
    }
}
