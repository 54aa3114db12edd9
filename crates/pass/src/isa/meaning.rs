//! Meaning of an instruction in the words of packet headers: "ip src or dst = 192.168.2.0/24" for a `D_DMEQ` at 26.
//!
//! A place has a name if the pass tests what is there: ports after TCP, UDP or SCTP, a fragment's protocol in a
//! fragment, and everything four bytes later after a VLAN tag. A place without a usual name has no meaning here, and
//! the description falls back to offsets.

use crate::isa::layout::{Addressing, Instruction, Opcode, Operands};
use fyke_frame::LinkType;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Offsets of the headers.
struct Map {
    ethertype: Option<u16>,
    network: u16,
}

/// Length of a VLAN tag.
const TAG_LEN: u16 = 4;
const AFTER_TAG: &str = "after the tag ";

/// The instructions of a pass in words, if their places have usual names, each with the size of the set that it names.
pub(crate) fn meanings(
    link: LinkType,
    pass: &[(&Instruction, Option<usize>)],
) -> Vec<Option<String>> {
    let Some(mut map) = Map::of(link) else { return vec![None; pass.len()] };
    let mut meanings: Vec<_> = pass.iter().map(|(one, set)| map.meaning(one, *set)).collect();
    let is_tag = |meaning: &Option<String>| meaning.as_deref().is_some_and(tests_for_tag);
    let tags =
        meanings.iter().zip(pass).map(|(meaning, (one, _))| is_tag(meaning) && !one.is_negated());
    let tags: Vec<bool> = tags.collect();
    if tags.contains(&true) {
        map.ethertype = map.ethertype.map(|at| at.saturating_add(TAG_LEN));
        map.network = map.network.saturating_add(TAG_LEN);
        for index in (0..pass.len()).filter(|index| !tags[*index]) {
            let after = map.meaning(pass[index].0, pass[index].1);
            meanings[index] = after.map(|meaning| format!("{AFTER_TAG}{meaning}"));
        }
    }
    let known = |index: usize| {
        let own = meanings[index].as_deref()?;
        has_ground(own, pass[index].0.is_negated(), &meanings).then(|| own.to_owned())
    };
    (0..pass.len()).map(known).collect()
}

/// True if the meaning is a test for an EtherType of VLAN tags and for no other.
fn tests_for_tag(meaning: &str) -> bool {
    let others = ["ip", "arp", "no later"];
    let values = meaning.strip_prefix("ethertype").filter(|values| values.contains("vlan"));
    values.is_some_and(|values| !others.iter().any(|other| values.contains(other)))
}

/// Tests if the pass contains the test on which a name depends. A negated test may have the name even if the pass does
/// not contain that test: "not port = 80" is the usual way to write it.
fn has_ground(own: &str, negated: bool, pass: &[Option<String>]) -> bool {
    let own = own.strip_prefix(AFTER_TAG).unwrap_or(own);
    let tested = |holds: &dyn Fn(&str) -> bool| pass.iter().flatten().any(|other| holds(other));
    let transport = |header: &str| {
        let named = |other: &str| ["tcp", "udp", "sctp"].iter().any(|one| other.contains(one));
        let untested = negated && !tested(&|other| other.contains("protocol"));
        untested || tested(&|other| other.contains(header) && named(other))
    };
    let ports = |own: &str| {
        let beginnings = ["port ", "source ", "destination "];
        beginnings.iter().any(|beginning| own.starts_with(beginning))
    };
    match own.strip_prefix("ip6 ") {
        _ if own.starts_with(IN_FRAGMENT) => {
            tested(&|other| other.contains("ip6 fragment") && !other.contains(IN_FRAGMENT))
        }
        Some(rest) if ports(rest) => transport("ip6 protocol "),
        None if ports(own) => transport("ip protocol "),
        _ => true,
    }
}

/// Name of the protocol that a fragment carries.
const IN_FRAGMENT: &str = "ip6 fragment's protocol";

impl Map {
    fn of(link: LinkType) -> Option<Map> {
        let description = link.description()?;
        let small = |offset: u32| u16::try_from(offset).ok();
        Some(Map {
            ethertype: description.ethertype_offset.and_then(small),
            network: small(description.header_len?)?,
        })
    }

    /// An instruction in words, if its place has a usual name. `members` is the size of the set that it names.
    fn meaning(&self, instruction: &Instruction, members: Option<usize>) -> Option<String> {
        let opcode = instruction.opcode()?;
        let form = opcode.form();
        if form.operands == Operands::Masked32 && form.addressing == Addressing::Direct {
            return self.run(instruction);
        }
        let place = match form.addressing {
            Addressing::Direct => self.fixed(instruction, opcode)?,
            Addressing::L1 if instruction.params[6] == u32::from(self.network) => {
                self.ports(instruction, opcode)?
            }
            _ => return None,
        };
        Some(match members {
            Some(members) => format!("{} in a set of {members}", place.name),
            None => format!("{} {}", place.name, place.values(instruction, opcode)?),
        })
    }
}

/// A named field.
struct Field {
    name: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    EtherType,
    Protocol,
    Address,
    Address6,
    Port,
    /// Source and destination.
    Ports,
}

impl Map {
    fn fixed(&self, instruction: &Instruction, opcode: Opcode) -> Option<Field> {
        let offset = instruction.offset();
        let behind = offset.checked_sub(self.network);
        let (first, kind) = match (instruction.is_wide(opcode), opcode) {
            (_, Opcode::DAddr6 | Opcode::DSet6) => match behind? {
                8 => ("ip6 src", Kind::Address6),
                24 => ("ip6 dst", Kind::Address6),
                _ => return None,
            },
            (true, _) => match behind? {
                12 => ("ip src", Kind::Address),
                16 => ("ip dst", Kind::Address),
                14 => ("arp sender", Kind::Address),
                24 => ("arp target", Kind::Address),
                40 => ("ip6 source and destination port", Kind::Ports),
                _ => return None,
            },
            (false, _) if Some(offset) == self.ethertype => ("ethertype", Kind::EtherType),
            (false, _) => match (behind?, instruction.mask(opcode)) {
                (6, 0xff00) => ("ip6 protocol", Kind::Protocol),
                (8, 0x00ff) => ("ip protocol", Kind::Protocol),
                (40, 0xff00) => (IN_FRAGMENT, Kind::Protocol),
                (40, 0xffff) => ("ip6 source port", Kind::Port),
                (42, 0xffff) => ("ip6 destination port", Kind::Port),
                _ => return None,
            },
        };
        let second = second_place(instruction, opcode);
        let name = match (first, second) {
            (_, 0) => first,
            ("ip src", 4) => "ip src or dst",
            ("arp sender", 10) => "arp sender or target",
            ("ip6 src", 16) => "ip6 src or dst",
            ("ip6 source port", 2) => "ip6 port",
            _ => return None,
        };
        Some(Field { name: name.to_owned(), kind })
    }

    fn ports(&self, instruction: &Instruction, opcode: Opcode) -> Option<Field> {
        if opcode == Opcode::L1Sseq {
            let name = "source and destination port".to_owned();
            let both = instruction.offset() == 0 && instruction.operands().len() == 2;
            return both.then_some(Field { name, kind: Kind::Ports });
        }
        if instruction.mask(opcode) != 0xffff {
            return None;
        }
        let name = match (instruction.offset(), second_place(instruction, opcode)) {
            (0, 0) => "source port",
            (2, 0) => "destination port",
            (0, 2) => "port",
            _ => return None,
        };
        Some(Field { name: name.to_owned(), kind: Kind::Port })
    }

    /// A run of masked words, if all its bytes belong to named fields.
    fn run(&self, instruction: &Instruction) -> Option<String> {
        let mut bytes = Vec::new();
        let start = instruction.offset();
        for (index, pair) in instruction.operands().chunks(2).enumerate() {
            for byte in 0..4 {
                let part = |word: u32| (word >> (24 - 8 * byte)) as u8;
                let at = start.checked_add(4 * index as u16 + byte)?;
                bytes.push((at, part(pair[0]), part(pair[1])));
            }
        }
        let value = |from: u16, width: u16| {
            let of =
                |at: u16| bytes.iter().find(|byte| byte.0 == at).map_or((0, 0), |b| (b.1, b.2));
            (from..from + width).fold((0, 0), |(value, mask), at| {
                (value << 8 | u32::from(of(at).0), mask << 8 | u32::from(of(at).1))
            })
        };
        let network = self.network;
        let mut parts = Vec::new();
        let mut named = Vec::new();
        let ethernet = (self.ethertype, network) == (Some(12), 14);
        for (name, at) in [("ether dst", 0), ("ether src", 6)] {
            let (high, low) = (value(at, 2), value(at + 2, 4));
            if ethernet && (high.1, low.1) == (0xffff, u32::MAX) {
                let [_, _, a, b] = high.0.to_be_bytes();
                let [c, d, e, f] = low.0.to_be_bytes();
                parts.push(format!("{name} {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"));
                named.extend(at..at + 6);
            }
        }
        if let Some(at) = self.ethertype
            && let (ethertype, 0xffff) = value(at, 2)
        {
            parts.push(format!("ethertype {}", Kind::EtherType.show(ethertype, 0)));
            named.extend([at, at + 1]);
        }
        if value(network + 6, 2) == (0, 0x1fff) {
            parts.push("no later fragment".to_owned());
            named.extend([network + 6, network + 7]);
        } else if let (protocol, 0xff00) = value(network + 6, 2) {
            match protocol >> 8 {
                IP6_FRAGMENT => parts.push("ip6 fragment".to_owned()),
                other => parts.push(format!("ip6 protocol {}", Kind::Protocol.show(other, 0))),
            }
            named.push(network + 6);
        }
        if let (protocol, 0xff) = value(network + 9, 1) {
            parts.push(format!("ip protocol {}", Kind::Protocol.show(protocol, 0)));
            named.push(network + 9);
        }
        for (name, at) in [("ip src", network + 12), ("ip dst", network + 16)] {
            let (address, mask) = value(at, 4);
            if mask != 0 {
                parts.push(format!("{name} {}", Kind::Address.show(address, mask)));
                named.extend(at..at + 4);
            }
        }
        let all = bytes.iter().all(|(at, _, mask)| *mask == 0 || named.contains(at));
        (all && !parts.is_empty()).then(|| parts.join(", "))
    }
}

impl Field {
    /// The operands in words.
    fn values(&self, instruction: &Instruction, opcode: Opcode) -> Option<String> {
        let operands = instruction.operands();
        if self.kind == Kind::Address6 {
            let value = operands.iter().fold(0, |value, &word| value << 32 | u128::from(word));
            return Some(format!("= {}/{}", Ipv6Addr::from(value), instruction.params[0]));
        }
        if self.kind == Kind::Ports {
            let (source, destination) = match operands[..] {
                [both] => (both >> 16, both & 0xffff),
                [source, destination] => (source, destination),
                _ => return None,
            };
            return Some(format!("= {source} and {destination}"));
        }
        let mask = instruction.mask(opcode);
        let shift = if mask == 0xff00 { 8 } else { 0 };
        let shown: Vec<String> = match opcode.form().operands {
            Operands::Any16 | Operands::Any32 => {
                operands.iter().map(|value| self.kind.show(value >> shift, mask)).collect()
            }
            Operands::Interval16 => {
                operands.iter().map(|word| format!("{}-{}", word & 0xffff, word >> 16)).collect()
            }
            _ => return None,
        };
        Some(match &shown[..] {
            [one] => format!("= {one}"),
            _ => format!("in {{{}}}", shown.join(", ")),
        })
    }
}

/// Next-header value of a fragment header.
const IP6_FRAGMENT: u32 = 44;

impl Kind {
    fn show(self, value: u32, mask: u32) -> String {
        let name = match (self, value) {
            (Kind::EtherType, 0x0800) => "ip",
            (Kind::EtherType, 0x0806) => "arp",
            (Kind::EtherType, 0x8035) => "rarp",
            (Kind::EtherType, 0x86dd) => "ip6",
            (Kind::EtherType, 0x8100) => "vlan",
            (Kind::EtherType, _) => return format!("{value:#06x}"),
            (Kind::Protocol, 1) => "icmp",
            (Kind::Protocol, 2) => "igmp",
            (Kind::Protocol, 6) => "tcp",
            (Kind::Protocol, 17) => "udp",
            (Kind::Protocol, 47) => "gre",
            (Kind::Protocol, 50) => "esp",
            (Kind::Protocol, 51) => "ah",
            (Kind::Protocol, 58) => "icmp6",
            (Kind::Protocol, 132) => "sctp",
            (Kind::Address, _) => {
                let bits = mask.leading_ones();
                let prefix = mask.count_ones() == bits;
                let address = Ipv4Addr::from(value);
                return match (bits, prefix) {
                    (32, _) => address.to_string(),
                    (_, true) => format!("{address}/{bits}"),
                    _ => format!("{address} mask {}", Ipv4Addr::from(mask)),
                };
            }
            _ => return value.to_string(),
        };
        name.to_owned()
    }
}

/// Distance to the second place; 0 if there is none.
pub(crate) fn second_place(instruction: &Instruction, opcode: Opcode) -> u32 {
    use Opcode as P;
    if matches!(opcode, P::DSet | P::L1Set | P::DSet6 | P::DPmeq | P::DAddr6) {
        return instruction.params[1];
    }
    if instruction.is_either() || matches!(opcode, P::DDmeq | P::L1Eseq) {
        return if instruction.is_wide(opcode) { 4 } else { 2 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive;

    fn ethernet(pass: &[Instruction]) -> Vec<Option<String>> {
        let pass: Vec<_> = pass.iter().map(|instruction| (instruction, None)).collect();
        meanings(LinkType::EN10MB, &pass)
    }

    #[test]
    fn usual_places_have_names() {
        let shown = |instruction| ethernet(&[instruction]).remove(0).unwrap();
        assert_eq!(shown(primitive::ether_ip()), "ethertype = ip");
        let tcp = "ethertype ip, no later fragment, ip protocol tcp";
        assert_eq!(shown(primitive::ether_ip_tcp_nonfrag()), tcp);
        let net = primitive::ip_net_either(0xffff_ff00, 0xc0a8_0200);
        assert_eq!(shown(net), "ip src or dst = 192.168.2.0/24");
        let both = primitive::ip_src_and_dst_net((0xff00_0000, 0x0a00_0000), (u32::MAX, 1));
        assert_eq!(shown(both), "ip src 10.0.0.0/8, ip dst 0.0.0.1");
    }

    #[test]
    fn ports_are_named_behind_a_transport_only() {
        let ports = primitive::tcp_port_either(&[443, 80]).unwrap();
        let pass = [primitive::ether_ip_tcp_nonfrag(), ports];
        assert_eq!(ethernet(&pass)[1].as_deref(), Some("port in {80, 443}"));
        let icmp = [primitive::ether_ip_proto_nonfrag(1), ports];
        assert_eq!(ethernet(&icmp)[1], None);
        assert_eq!(ethernet(&[ports]), [None]);
        assert_eq!(ethernet(&[ports.negated()])[0].as_deref(), Some("port in {80, 443}"));
        assert_eq!(ethernet(&[icmp[0], ports.negated()])[1], None);
    }

    #[test]
    fn after_a_tag_every_offset_is_four_bytes_larger() {
        let equal =
            |offset, value| Instruction::new(Opcode::DSeq, offset).with_operands(&[value]).unwrap();
        let pass = [equal(12, 0x8100), equal(16, 0x0800), equal(12, 0x0800)];
        let shown = ethernet(&pass);
        assert_eq!(shown[0].as_deref(), Some("ethertype = vlan"));
        assert_eq!(shown[1].as_deref(), Some("after the tag ethertype = ip"));
        assert_eq!(shown[2], None);
    }

    #[test]
    fn other_places_have_none() {
        assert_eq!(ethernet(&[Instruction::new(Opcode::DEq, 90)]), [None]);
        assert_eq!(meanings(LinkType(9_999), &[(&primitive::ether_ip(), None)]), [None]);
        assert_eq!(ethernet(&[primitive::never()]), [None]);
    }
}
