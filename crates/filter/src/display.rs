//! The canonical text of a predicate: every qualifier written out, every mixture of `and` and `or` in brackets.
//! It parses back to an equal predicate. Costs a visit of every node, without recursion over the tree.

use crate::ast::{
    AddressFamily, Arithmetic, Carrier, Comparison, Header, LlcFrame, LogField, Node, Primitive,
    PrimitiveKind, Side, Transport, WlanAddress,
};
use crate::names;
use fyke_frame::condition::Width;
use std::fmt::{self, Display, Formatter};
use std::net::Ipv4Addr;

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        /// Parts that remain to be written, last first.
        enum Rest<'a> {
            Node(&'a Node),
            Operand(&'a Node),
            Text(&'static str),
        }
        let mut rest = vec![Rest::Node(self)];
        while let Some(next) = rest.pop() {
            let node = match next {
                Rest::Text(text) => {
                    f.write_str(text)?;
                    continue;
                }
                Rest::Operand(node @ (Node::All(_) | Node::Any(_))) => {
                    f.write_str("(")?;
                    rest.push(Rest::Text(")"));
                    node
                }
                Rest::Operand(node) | Rest::Node(node) => node,
            };
            let (operands, between) = match node {
                Node::Primitive(primitive) => {
                    write!(f, "{primitive}")?;
                    continue;
                }
                Node::Const(true) => continue,
                // No text has this value; print a text that rejects everything.
                Node::Const(false) => {
                    f.write_str("less 0")?;
                    continue;
                }
                Node::Not(inner) => {
                    f.write_str("not ")?;
                    rest.push(Rest::Operand(inner));
                    continue;
                }
                Node::All(operands) => (operands, " and "),
                Node::Any(operands) => (operands, " or "),
            };
            for (index, operand) in operands.iter().enumerate().rev() {
                rest.push(Rest::Operand(operand));
                if index > 0 {
                    rest.push(Rest::Text(between));
                }
            }
        }
        Ok(())
    }
}

impl Display for Primitive {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Display for PrimitiveKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use PrimitiveKind as K;
        match self {
            K::Host { family, side, address } => {
                write!(f, "{family}{side}host {address}")
            }
            K::Net { family, side, network, mask } => {
                write!(f, "{family}{side}net {}", Network(*network, *mask))
            }
            K::Net6 { side, network, prefix_len } => {
                write!(f, "ip6 {side}net {network}/{prefix_len}")
            }
            K::Port { transport, side, port } => {
                write!(f, "{}{side}port {port}", Before(*transport))
            }
            K::PortRange { transport, side, low, high } => {
                write!(f, "{}{side}portrange {low}-{high}", Before(*transport))
            }
            K::Protocol { carrier, number } => protocol(f, *carrier, *number),
            K::ProtocolChain { carrier: Carrier::Ip, number } => {
                write!(f, "ip protochain {number}")
            }
            K::ProtocolChain { carrier: Carrier::Ip6, number } => {
                write!(f, "ip6 protochain {number}")
            }
            K::ProtocolChain { number, .. } => write!(f, "protochain {number}"),
            K::ArcnetHost { side, address } => write!(f, "link {side}host ${:x}", address & 0xf),
            K::WlanHost { which, address } => write!(f, "wlan {which} {}", Mac(*address)),
            K::WlanType { value, mask } => wlan_type(f, *value, *mask),
            K::WlanDirection(direction) => {
                match names::name_of(names::WLAN_DIRECTIONS, *direction) {
                    Some(name) => write!(f, "dir {name}"),
                    None => write!(f, "dir {direction}"),
                }
            }
            K::Geneve(number) => numbered(f, "geneve", *number),
            K::Signal(signal) => f.write_str(signal.text()),
            K::Field { field, comparison, value } => {
                write!(f, "{} {comparison} {value}", field.text())
            }
            K::LogNumber { field, value } => log_number(f, *field, *value),
            K::LogName { field, name } => write!(f, "{} {}", field.text(), Escaped(name)),
            K::DecnetHost { side, address } => {
                write!(f, "decnet {side}host {}.{}", address >> 10, address & 0x3ff)
            }
            K::Llc(frame) => write!(f, "{frame}"),
            K::EtherHost { side, address } => write!(f, "ether {side}host {}", Mac(*address)),
            K::EtherBroadcast => f.write_str("ether broadcast"),
            K::EtherMulticast => f.write_str("ether multicast"),
            K::IpBroadcast => f.write_str("ip broadcast"),
            K::IpMulticast => f.write_str("ip multicast"),
            K::Ip6Multicast => f.write_str("ip6 multicast"),
            K::Vlan(number) => numbered(f, "vlan", *number),
            K::Mpls(number) => numbered(f, "mpls", *number),
            K::PppoeDiscovery => f.write_str("pppoed"),
            K::PppoeSession(number) => numbered(f, "pppoes", *number),
            K::LengthAtMost(length) => write!(f, "less {length}"),
            K::LengthAtLeast(length) => write!(f, "greater {length}"),
            K::Byte { offset, comparison, value } => {
                write!(f, "byte {offset} {comparison} {value}")
            }
            K::Relation { left, comparison, right } => write!(f, "{left} {comparison} {right}"),
            K::Inbound => f.write_str("inbound"),
            K::Outbound => f.write_str("outbound"),
            K::IfIndex(index) => write!(f, "ifindex {index}"),
            K::Within(place, inner) => write!(f, "{place} ({inner})"),
        }
    }
}

/// Six bytes in hexadecimal.
struct Mac([u8; 6]);

impl Display for Mac {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A name, escaped so that it is not read as anything else.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\\{}", self.0)
    }
}

impl Display for WlanAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WlanAddress::First => "addr1",
            WlanAddress::Second => "addr2",
            WlanAddress::Third => "addr3",
            WlanAddress::Fourth => "addr4",
            WlanAddress::Receiver => "ra",
            WlanAddress::Transmitter => "ta",
        })
    }
}

fn wlan_type(f: &mut Formatter<'_>, value: u8, mask: u8) -> fmt::Result {
    let (kind, subtype) = (value & 0x0c, value & 0xf0);
    match names::name_of(names::WLAN_TYPES, kind.into()) {
        Some(name) => write!(f, "type {name}")?,
        None => write!(f, "type {kind:#04x}")?,
    }
    if mask & 0xf0 == 0 {
        return Ok(());
    }
    let subtypes = names::WLAN_SUBTYPES.iter().find(|(of, _)| *of == kind);
    match subtypes.and_then(|(_, subtypes)| names::name_of(subtypes, subtype.into())) {
        Some(name) => write!(f, " subtype {name}"),
        None => write!(f, " subtype {subtype:#04x}"),
    }
}

fn log_number(f: &mut Formatter<'_>, field: LogField, value: u32) -> fmt::Result {
    let word = field.text();
    let name = match field {
        LogField::Reason => names::name_of(names::LOG_REASONS, value),
        LogField::Action => names::name_of(names::LOG_ACTIONS, value),
        _ => None,
    };
    match name {
        Some(name) => write!(f, "{word} {name}"),
        None => write!(f, "{word} {value}"),
    }
}

fn numbered(f: &mut Formatter<'_>, word: &str, number: Option<impl Display>) -> fmt::Result {
    match number {
        Some(number) => write!(f, "{word} {number}"),
        None => f.write_str(word),
    }
}

/// Writes the shortest text for a protocol.
fn protocol(f: &mut Formatter<'_>, carrier: Carrier, number: u32) -> fmt::Result {
    match PROTOCOLS.iter().find(|known| (known.1, known.2) == (carrier, number)) {
        Some((name, ..)) => f.write_str(name),
        None => match carrier {
            Carrier::Link => write!(f, "ether proto {number:#x}"),
            Carrier::Ip => write!(f, "ip proto {number}"),
            Carrier::Ip6 => write!(f, "ip6 proto {number}"),
            Carrier::IpOrIp6 => write!(f, "proto {number}"),
            Carrier::Osi => write!(f, "iso proto {number}"),
            Carrier::Isis => write!(f, "isis proto {number}"),
        },
    }
}

/// Protocols with a name that alone implies carrier and number.
const PROTOCOLS: &[(&str, Carrier, u32)] = &[
    ("ip", Carrier::Link, 0x0800),
    ("arp", Carrier::Link, 0x0806),
    ("rarp", Carrier::Link, 0x8035),
    ("ip6", Carrier::Link, 0x86dd),
    ("atalk", Carrier::Link, 0x809b),
    ("aarp", Carrier::Link, 0x80f3),
    ("decnet", Carrier::Link, 0x6003),
    ("lat", Carrier::Link, 0x6004),
    ("sca", Carrier::Link, 0x6007),
    ("mopdl", Carrier::Link, 0x6001),
    ("moprc", Carrier::Link, 0x6002),
    ("iso", Carrier::Link, 0xfe),
    ("stp", Carrier::Link, 0x42),
    ("ipx", Carrier::Link, 0xe0),
    ("netbeui", Carrier::Link, 0xf0),
    ("clnp", Carrier::Osi, 0x81),
    ("esis", Carrier::Osi, 0x82),
    ("isis", Carrier::Osi, 0x83),
    ("icmp6", Carrier::Ip6, 58),
    ("tcp", Carrier::IpOrIp6, 6),
    ("udp", Carrier::IpOrIp6, 17),
    ("sctp", Carrier::IpOrIp6, 132),
    ("pim", Carrier::IpOrIp6, 103),
    ("ah", Carrier::IpOrIp6, 51),
    ("esp", Carrier::IpOrIp6, 50),
    ("icmp", Carrier::Ip, 1),
    ("igmp", Carrier::Ip, 2),
    ("igrp", Carrier::Ip, 9),
    ("vrrp", Carrier::Ip, 112),
];

impl Display for LlcFrame {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match names::LLC_FRAMES.iter().find(|(_, frame)| frame == self) {
            Some((name, _)) => write!(f, "llc {name}"),
            None => f.write_str("llc"),
        }
    }
}

/// Written with the blank after it; empty if there is no qualifier.
impl Display for AddressFamily {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressFamily::Any => "",
            AddressFamily::Ip => "ip ",
            AddressFamily::Arp => "arp ",
            AddressFamily::Rarp => "rarp ",
            AddressFamily::Ip6 => "ip6 ",
        })
    }
}

/// Written with the blank after it; empty if there is no qualifier.
impl Display for Side {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Either => "",
            Side::Source => "src ",
            Side::Destination => "dst ",
            Side::Both => "src and dst ",
        })
    }
}

impl Display for Transport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Sctp => "sctp",
        })
    }
}

/// A transport as a qualifier.
struct Before(Option<Transport>);

impl Display for Before {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |transport| write!(f, "{transport} "))
    }
}

/// A network with the shorter of prefix length and mask.
struct Network(Ipv4Addr, Ipv4Addr);

impl Display for Network {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mask = u32::from(self.1);
        if mask.leading_ones() + mask.trailing_zeros() == 32 {
            write!(f, "{}/{}", self.0, mask.leading_ones())
        } else {
            write!(f, "{} mask {}", self.0, self.1)
        }
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        })
    }
}

impl Display for Arithmetic {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Arithmetic::Number(value) => write!(f, "{value}"),
            Arithmetic::Length => f.write_str("len"),
            Arithmetic::Load { header, index, width: Width::One } => {
                write!(f, "{}[{index}]", name_of(*header))
            }
            Arithmetic::Load { header, index, width } => {
                write!(f, "{}[{index}:{}]", name_of(*header), *width as u8)
            }
            Arithmetic::Negate(inner) => write!(f, "- {}", Bracketed(inner)),
            Arithmetic::Binary(operator, left, right) => {
                write!(f, "{} {} {}", Bracketed(left), operator.sign(), Bracketed(right))
            }
        }
    }
}

/// An operand, in brackets when it has operators itself.
struct Bracketed<'a>(&'a Arithmetic);

impl Display for Bracketed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Arithmetic::Binary(..) | Arithmetic::Negate(_) => write!(f, "({})", self.0),
            plain => plain.fmt(f),
        }
    }
}

fn name_of(header: Header) -> &'static str {
    let named = |carrier, number| {
        PROTOCOLS.iter().find(|known| (known.1, known.2) == (carrier, number)).map(|known| known.0)
    };
    match header {
        Header::Link => Some("link"),
        Header::Radio => Some("radio"),
        Header::Icmp6 => Some("icmp6"),
        Header::Network(ethertype) => named(Carrier::Link, ethertype.into()),
        Header::Transport(number) => {
            let number = number.into();
            named(Carrier::Ip, number).or_else(|| named(Carrier::IpOrIp6, number))
        }
    }
    // The parser makes no other headers.
    .unwrap_or("link")
}
