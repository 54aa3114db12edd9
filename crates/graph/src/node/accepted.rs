//! The frames that a node accepts by addresses, ports and protocols, so that the planner can compare it with the
//! rules of a Bloom pre-filter before it ([`Class::accepts`](super::Class::accepts)).
//!
//! A node accepts frames in *alternatives*; an alternative is a set of facts that hold for all of its frames. A fact
//! may be missing, but never wrong. Cost: O(alternatives), when a graph is planned.

use fyke_filter::Node;
use fyke_filter::ast::{AddressFamily, Carrier, PrimitiveKind, Side, Transport};
use fyke_table::prefilter::Rule;
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

/// Most alternatives of a node.
const MAX_ALTERNATIVES: usize = 1 << 17;
/// Most visits of a text's nodes.
const MAX_VISITS: usize = 1 << 20;
/// Bits of the kinds of facts, for [`Accepted::shape`].
const PROTOCOL: u8 = 1;
const ADDRESSES: [u8; 2] = [2, 4];
const PORTS: [u8; 2] = [8, 16];

/// Facts about the frames of an alternative. Of two values, the first belongs to the source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Networks of the addresses, by prefix length.
    pub nets: [Option<(IpAddr, u8)>; 2],
    /// Ports.
    pub ports: [Option<u16>; 2],
    /// IP protocol.
    pub protocol: Option<u8>,
    /// True if the addresses are those of an IP packet.
    pub is_ip: bool,
}

impl Accepted {
    /// The kinds of facts that it has; rows of one table have the same.
    pub fn shape(&self) -> u8 {
        let mut shape = if self.protocol.is_some() { PROTOCOL } else { 0 };
        for end in 0..2 {
            shape |= if self.nets[end].is_some() { ADDRESSES[end] } else { 0 };
            shape |= if self.ports[end].is_some() { PORTS[end] } else { 0 };
        }
        shape
    }

    /// Adds what holds if a primitive does; `None` if later primitives may test other headers.
    fn with(mut self, kind: &PrimitiveKind, end: Option<usize>) -> Option<Accepted> {
        let ends = || (0..2).filter(move |&n| end.is_none_or(|end| n == end));
        match kind {
            PrimitiveKind::Host { family, address, .. } => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                ends().for_each(|n| self.nets[n] = Some((*address, bits)));
                self.is_ip |= matches!(family, AddressFamily::Ip | AddressFamily::Ip6);
                return (!matches!(family, AddressFamily::Arp | AddressFamily::Rarp))
                    .then_some(self);
            }
            PrimitiveKind::Net { family, network, mask, .. } => {
                let bits = mask.to_bits().leading_ones();
                if mask.to_bits().checked_shl(bits).unwrap_or(0) == 0 {
                    ends().for_each(|n| self.nets[n] = Some(((*network).into(), bits as u8)));
                }
                self.is_ip |= matches!(family, AddressFamily::Ip);
                return (!matches!(family, AddressFamily::Arp | AddressFamily::Rarp))
                    .then_some(self);
            }
            PrimitiveKind::Net6 { network, prefix_len, .. } => {
                ends().for_each(|n| self.nets[n] = Some(((*network).into(), *prefix_len)));
                self.is_ip = true;
            }
            PrimitiveKind::Port { transport, port, .. } => {
                ends().for_each(|n| self.ports[n] = Some(*port));
                self.is_ip = true;
                self.protocol = transport.map(number_of).or(self.protocol);
            }
            PrimitiveKind::Protocol {
                carrier: Carrier::Ip | Carrier::Ip6 | Carrier::IpOrIp6,
                number,
            } => {
                self.protocol = u8::try_from(*number).ok().or(self.protocol);
                self.is_ip = true;
            }
            PrimitiveKind::Protocol { carrier: Carrier::Link, number: 0x0800 | 0x86dd } => {
                self.is_ip = true;
            }
            PrimitiveKind::Vlan(_)
            | PrimitiveKind::Mpls(_)
            | PrimitiveKind::PppoeSession(_)
            | PrimitiveKind::Geneve(_)
            | PrimitiveKind::Signal(_) => return None,
            _ => {}
        }
        Some(self)
    }
}

fn number_of(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
        Transport::Sctp => 132,
    }
}

fn side_of(kind: &PrimitiveKind) -> Option<Side> {
    match kind {
        PrimitiveKind::Host { side, .. }
        | PrimitiveKind::Net { side, .. }
        | PrimitiveKind::Net6 { side, .. }
        | PrimitiveKind::Port { side, .. } => Some(*side),
        _ => None,
    }
}

/// Returns the alternatives of a text in the compat reading; `None` if there are too many, or if some test headers that
/// a rule's fields do not name.
pub(crate) fn alternatives(text: &Node) -> Option<Vec<Accepted>> {
    let mut found = Vec::new();
    let mut rest = vec![(Accepted::default(), vec![text])];
    for _ in 0..MAX_VISITS {
        let Some((facts, mut open)) = rest.pop() else { return Some(found) };
        let Some(node) = open.pop() else {
            found.push(facts);
            if found.len() > MAX_ALTERNATIVES {
                return None;
            }
            continue;
        };
        match node {
            Node::All(operands) => {
                open.extend(operands);
                rest.push((facts, open));
            }
            Node::Any(operands) => rest.extend(operands.iter().map(|one| {
                let mut open = open.clone();
                open.push(one);
                (facts, open)
            })),
            Node::Const(false) => {}
            // A test more leaves fewer frames.
            Node::Const(true) | Node::Not(_) => rest.push((facts, open)),
            Node::Primitive(primitive) => match side_of(&primitive.kind) {
                Some(Side::Either) => {
                    rest.push((facts.with(&primitive.kind, Some(0))?, open.clone()));
                    rest.push((facts.with(&primitive.kind, Some(1))?, open));
                }
                Some(Side::Source) => rest.push((facts.with(&primitive.kind, Some(0))?, open)),
                Some(Side::Destination) => rest.push((facts.with(&primitive.kind, Some(1))?, open)),
                _ => rest.push((facts.with(&primitive.kind, None)?, open)),
            },
        }
    }
    None
}

/// Rules, to be compared with alternatives.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    rules: HashSet<Rule>,
    /// Prefix lengths in use.
    prefixes: BTreeSet<u8>,
}

impl RuleIndex {
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> RuleIndex {
        let rules: HashSet<_> = rules.into_iter().collect();
        let prefixes = rules.iter().filter_map(|rule| Some(rule.net()?.1)).collect();
        RuleIndex { rules, prefixes }
    }

    /// True if every frame of an alternative matches a rule.
    pub fn pass(&self, facts: &Accepted) -> bool {
        facts.is_ip && (0..2).any(|end| self.pass_end(facts, end))
    }

    fn pass_end(&self, facts: &Accepted, end: usize) -> bool {
        let net = facts.nets[end];
        let shorter = |&&prefix: &&u8| net.is_some_and(|(_, bits)| prefix <= bits);
        let of_prefix =
            |&prefix: &u8| net.map(|(address, _)| Rule::default().with_net(address, prefix));
        let nets = self.prefixes.iter().filter(shorter).filter_map(of_prefix);
        let mut nets = nets.chain([Rule::default()]);
        nets.any(|rule| {
            let ports = [Some(rule), facts.ports[end].map(|port| rule.with_port(port))];
            ports.into_iter().flatten().any(|rule| {
                let of_protocol = facts.protocol.map(|number| rule.with_protocol(number));
                self.rules.contains(&rule)
                    || of_protocol.is_some_and(|rule| self.rules.contains(&rule))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_filter::Options;

    fn pass(rules: &[&str], text: &str) -> Option<bool> {
        let rules = RuleIndex::new(rules.iter().map(|rule| Rule::parse(rule).unwrap()));
        let predicate = fyke_filter::compile(text, &Options::default()).unwrap();
        let all = alternatives(predicate.root())?;
        Some(all.iter().all(|facts| rules.pass(facts)))
    }

    #[test]
    fn texts_are_compared_with_rules() {
        let rules = ["ip=10.0.0.1,port=80", "ip=10.1.0.0/16", "proto=icmp", "port=53,proto=udp"];
        for text in [
            "src host 10.0.0.1 and src port 80",
            "tcp and dst host 10.0.0.1 and dst port 80 or icmp",
            "ip host 10.1.2.3 or udp port 53 and not host 10.9.9.9",
            "ip net 10.1.2.0/24 and greater 100",
            "tcp and host 10.1.2.3",
        ] {
            assert_eq!(pass(&rules, text), Some(true), "{text}");
        }
        for text in [
            // The port may be that of the other end.
            "host 10.0.0.1 and port 80",
            "ip host 10.0.0.1",
            // ARP has no IP packet.
            "host 10.1.2.3",
            "ip net 10.0.0.0/8",
            "port 53",
            "tcp port 53",
            "not icmp",
            "ip host 10.1.2.3 or ip6",
            "",
        ] {
            assert_eq!(pass(&rules, text), Some(false), "{text}");
        }
        assert_eq!(pass(&rules, "vlan and ip host 10.1.2.3"), None);
        assert_eq!(pass(&rules, "arp host 10.1.2.3"), None);
    }
}
