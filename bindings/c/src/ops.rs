//! Operations for instructions of passes: the predefined tests that C programs select.
//!
//! Those that are selected by name too, as by `fyke ctl pass`, are [`Operation`]'s, with the same numbers. The others
//! are here.

use fyke_pass::{Instruction, Opcode, Operation, primitive};

/// Offsets in an untagged Ethernet frame.
const IP: u16 = 14;
const IP_SOURCE: u16 = 26;
const IP_DESTINATION: u16 = 30;
const IP6_SOURCE: u16 = 22;
const IP6_DESTINATION: u16 = 38;
/// Offset of the TCP header's length.
const TCP_DATA_OFFSET: u16 = 12;

/// Bit that is added to an operation to negate it.
pub const FYKE_NOT: u32 = 0x8000_0000;

/// Predefined operations. `arg` and the parameters are numbers as they read: 0xc0a8fe00 is 192.168.254.0. All assume
/// an untagged Ethernet header; those on addresses and ports do not read the EtherType, so a pass tests it first, as by
/// FYKE_ETHER_IP_TCP_NONFRAG. Operations "all at once" are selected by `fyke_set_inst` only, the others also by
/// `fyke_select_op`, and are then false until `fyke_add_param` has added a parameter.
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
    /// Source port of TCP or UDP in IPv4; up to 12 parameters.
    FykePortSrc = 10,
    /// Destination port; up to 12 parameters.
    FykePortDst = 11,
    /// Either port; up to 12 parameters.
    FykePort = 12,
    /// EtherType; up to 14 parameters.
    FykeEtherType = 13,
    /// IPv4, this protocol (`arg`), no later fragment.
    FykeEtherIpProtoNonfrag = 14,
    /// IPv4 source address; up to 7 parameters.
    FykeIpSrcHost = 15,
    /// IPv4 destination address; up to 7 parameters.
    FykeIpDstHost = 16,
    /// IPv4 source in a network and destination in another: address, mask, address, mask, all at once.
    FykeIpSrcAndDstNet = 17,
    /// Source port and destination port, both, all at once.
    FykePortsBoth = 18,
    /// Source port in one of up to 6 ranges, each FYKE_RANGE(low, high).
    FykePortRangeSrc = 19,
    /// Destination port in one of up to 6 ranges, each FYKE_RANGE(low, high).
    FykePortRangeDst = 20,
    /// Either port in one of up to 6 ranges, each FYKE_RANGE(low, high).
    FykePortRange = 21,
    /// First words of a TCP payload in IPv4, up to 5, all at once.
    FykeTcpPayload = 22,
    /// First words of a TCP payload under masks: word, mask, up to 2 of each, all at once.
    FykeTcpPayloadMasked = 23,
    /// IPv6 source in a network: `arg` is the length of the prefix; four words, all at once.
    FykeIp6Src = 24,
    /// IPv6 destination in a network, the same.
    FykeIp6Dst = 25,
    /// Either IPv6 address in a network, the same.
    FykeIp6Host = 26,
}

/// All operations, by number.
const ALL: [FykeOp; 27] = {
    use FykeOp::*;
    [
        FykeTrue,
        FykeNever,
        FykeEtherIp,
        FykeEtherIp6,
        FykeEtherArp,
        FykeEtherIpTcpNonfrag,
        FykeEtherIpUdpNonfrag,
        FykeIpSrc,
        FykeIpDst,
        FykeIpHost,
        FykePortSrc,
        FykePortDst,
        FykePort,
        FykeEtherType,
        FykeEtherIpProtoNonfrag,
        FykeIpSrcHost,
        FykeIpDstHost,
        FykeIpSrcAndDstNet,
        FykePortsBoth,
        FykePortRangeSrc,
        FykePortRangeDst,
        FykePortRange,
        FykeTcpPayload,
        FykeTcpPayloadMasked,
        FykeIp6Src,
        FykeIp6Dst,
        FykeIp6Host,
    ]
};

/// Parameters of an operation.
enum Takes {
    /// None.
    Nothing,
    /// Alternatives, from none on.
    Any,
    /// From one number of parameters to another, a multiple of the third, all of which must hold.
    All(usize, usize, usize),
}

impl FykeOp {
    fn takes(self) -> Takes {
        use FykeOp::*;
        match self {
            FykeTrue | FykeNever | FykeEtherIp | FykeEtherIp6 | FykeEtherArp => Takes::Nothing,
            FykeEtherIpTcpNonfrag | FykeEtherIpUdpNonfrag => Takes::Nothing,
            FykeEtherIpProtoNonfrag => Takes::Nothing,
            FykeIpSrc | FykeIpDst | FykeIpHost | FykeIpSrcHost | FykeIpDstHost => Takes::Any,
            FykePortSrc | FykePortDst | FykePort | FykeEtherType => Takes::Any,
            FykePortRangeSrc | FykePortRangeDst | FykePortRange => Takes::Any,
            FykeIpSrcAndDstNet | FykeIp6Src | FykeIp6Dst | FykeIp6Host => Takes::All(4, 4, 1),
            FykePortsBoth => Takes::All(2, 2, 1),
            FykeTcpPayload => Takes::All(1, 5, 1),
            FykeTcpPayloadMasked => Takes::All(2, 4, 2),
        }
    }

    /// The instruction without parameters.
    fn instruction(self, arg: u32) -> Result<Instruction, String> {
        use FykeOp::*;
        if let Some(named) = Operation::numbered(self as u32) {
            return Ok(named.instruction(arg));
        }
        let list = |opcode, offset| Instruction::new(opcode, offset).behind_ipv4(IP);
        let payload = |opcode| list(opcode, 0).second_length_at(TCP_DATA_OFFSET);
        let network = |offset, distance: u16| {
            let one = Instruction::new(Opcode::DAddr6, offset).with_param(0, arg);
            one.with_param(1, distance.into())
        };
        if matches!(self, FykeIp6Src | FykeIp6Dst | FykeIp6Host) && !(1..=128).contains(&arg) {
            return Err(format!("the length of an IPv6 prefix is from 1 to 128, not {arg}"));
        }
        Ok(match self {
            FykeEtherIpProtoNonfrag => {
                let protocol = u8::try_from(arg)
                    .map_err(|_| format!("a protocol of IP is from 0 to 255, not {arg}"))?;
                primitive::ether_ip_proto_nonfrag(protocol)
            }
            FykeIpSrcHost => list(Opcode::DEq, IP_SOURCE),
            FykeIpDstHost => list(Opcode::DEq, IP_DESTINATION),
            FykeIpSrcAndDstNet => list(Opcode::DBmeq, IP_SOURCE),
            FykePortsBoth => list(Opcode::L1Sseq, 0),
            FykePortRangeSrc => list(Opcode::L1Srng, 0),
            FykePortRangeDst => list(Opcode::L1Srng, 2),
            FykePortRange => list(Opcode::L1Srng, 0).with_flags(fyke_pass::layout::EITHER),
            FykeTcpPayload => payload(Opcode::L2Leq),
            FykeTcpPayloadMasked => payload(Opcode::L2LeqM),
            FykeIp6Src => network(IP6_SOURCE, 0),
            FykeIp6Dst => network(IP6_DESTINATION, 0),
            FykeIp6Host => network(IP6_SOURCE, IP6_DESTINATION - IP6_SOURCE),
            _ => return Err(format!("there is no operation {}", self as u32)),
        })
    }
}

/// Makes the instruction of an operation, which may be negated, with its parameters.
pub fn instruction(number: u32, arg: u32, values: &[u32]) -> Result<Instruction, String> {
    let place = usize::try_from(number & !FYKE_NOT).unwrap_or(usize::MAX);
    let op = *ALL.get(place).ok_or_else(|| format!("there is no operation {place}"))?;
    let plain = op.instruction(arg)?;
    let count = values.len();
    let with_values = match op.takes() {
        Takes::Nothing if count > 0 => {
            return Err(format!("operation {place} has no parameters, {count} are given"));
        }
        Takes::All(least, most, step)
            if !(least..=most).contains(&count) || !count.is_multiple_of(step) =>
        {
            return Err(format!(
                "operation {place} needs {} parameters at once (fyke_set_inst), {count} are given",
                if least == most { least.to_string() } else { format!("{least} to {most}") }
            ));
        }
        Takes::Nothing => plain,
        Takes::Any | Takes::All(..) => {
            plain.with_operands(values).map_err(|error| error.to_string())?
        }
    };
    Ok(if number & FYKE_NOT == 0 { with_values } else { with_values.negated() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_numbers() {
        assert!(ALL.iter().enumerate().all(|(place, &op)| op as usize == place));
    }

    /// C's names are those of the library, so the numbers mean the same.
    #[test]
    fn operations_that_have_names_are_the_same_by_number() {
        for (operation, name) in Operation::ALL {
            let here = ALL[operation as usize];
            let own = format!("{here:?}").to_lowercase();
            assert_eq!(own, format!("fyke{}", name.replace('_', "")));
            assert_eq!(here.instruction(7), Ok(operation.instruction(7)));
        }
    }

    #[test]
    fn operations_are_those_of_the_library() {
        let made = |op: FykeOp, arg, values: &[u32]| instruction(op as u32, arg, values).unwrap();
        let network = (0xffff_ff00, 0xc0a8_fe00);
        let swapped = [network.1, network.0, network.1, network.0];
        let both = primitive::ip_src_and_dst_net(network, network);
        assert_eq!(made(FykeOp::FykeIpSrcAndDstNet, 0, &swapped), both);
        assert_eq!(made(FykeOp::FykePortsBoth, 0, &[1, 2]), primitive::ip_ports_both(1, 2));
        let range = primitive::ip_portrange_either(7, 9).unwrap();
        assert_eq!(made(FykeOp::FykePortRange, 0, &[9 << 16 | 7]), range);
        let payload = primitive::tcp_payload(&[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(made(FykeOp::FykeTcpPayload, 0, &[1, 2, 3, 4, 5]), payload);
        let masked = primitive::tcp_payload_masked(&[(1, 2), (3, 4)]).unwrap();
        assert_eq!(made(FykeOp::FykeTcpPayloadMasked, 0, &[1, 2, 3, 4]), masked);
        assert_eq!(made(FykeOp::FykeIpSrcHost, 0, &[5]), primitive::ip_src_host(5));
        assert_eq!(instruction(FYKE_NOT, 0, &[]).unwrap(), primitive::never());
    }

    #[test]
    fn wrong_numbers_of_parameters_are_refused() {
        let six = [0; 6];
        for (op, arg, values) in [
            (FykeOp::FykeEtherIp, 0, &six[..1]),
            (FykeOp::FykePortsBoth, 0, &six[..1]),
            (FykeOp::FykeTcpPayload, 0, &six[..0]),
            (FykeOp::FykeTcpPayload, 0, &six[..6]),
            (FykeOp::FykeTcpPayloadMasked, 0, &six[..3]),
            (FykeOp::FykeIp6Src, 129, &six[..4]),
            (FykeOp::FykeEtherIpProtoNonfrag, 256, &six[..0]),
        ] {
            assert!(instruction(op as u32, arg, values).is_err(), "{op:?}");
        }
        assert!(instruction(27, 0, &[]).is_err());
    }
}
