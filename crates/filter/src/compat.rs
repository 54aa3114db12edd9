//! Compat: what libpcap makes of each primitive, for a capture file.
//!
//! A text is read from left to right, and [`Compat`] is where its reading stands: which headers the text has stepped
//! over so far. `vlan`, `mpls` and `pppoes` move that place for everything that follows them in the text, whatever
//! `or`, `not` and brackets say. Each primitive becomes a [`Condition`] whose tests stand in the order in which
//! libpcap's code makes them, because a load out of bounds ends the evaluation there.
//!
//! | file | primitives |
//! |---|---|
//! | `link.rs` | protocols of the link layer, under tags and labels |
//! | `host.rs` | `host`, `net`, IPv4, ARP, RARP, IPv6 |
//! | `port.rs` | `port`, `portrange` |
//! | `protocol.rs` | `proto` and the names of protocols |
//! | `ether.rs` | `ether host`, `broadcast`, `multicast` |
//! | `tags.rs` | `vlan`, `mpls`, `pppoed`, `pppoes` |
//! | `bytes.rs` | byte expressions, `len`, `less`, `greater`, `byte` |
//! | `llc.rs`, `osi.rs`, `decnet.rs` | `llc`; `iso`, `isis` and their like; `decnet host` |
//! | `direction.rs` | `inbound`, `outbound`, `ifindex` |
//!
//! A family is a file with one function from its part of [`PrimitiveKind`] to a condition; adding one is that file,
//! its kinds in `ast.rs`, its words in the parser and one line in [`Compat::condition`].
//!
//! Source: the generated code of libpcap 1.10.3, without its optimiser, but for one thing: what is masked away
//! entirely (`net 0.0.0.0/0`) is not loaded, as with the optimiser.

mod bytes;
mod decnet;
mod direction;
mod ether;
mod host;
mod link;
mod llc;
mod osi;
mod port;
mod protocol;
mod tags;

use crate::Options;
use crate::ast::PrimitiveKind;
use fyke_frame::condition::{Base, Compare, Load, Width};
use fyke_frame::link::Link;
use fyke_frame::{Condition, LinkType};

pub(crate) use bytes::{computed_fault, constant_value, transport_carrier};
pub(crate) use osi::ISIS;

/// Why libpcap refuses a primitive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// In one line.
    pub(crate) message: String,
    /// Advice, where there is any.
    pub(crate) hint: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), hint: None }
    }

    pub(crate) fn with_hint(mut self, hint: &'static str) -> Refusal {
        self.hint = Some(hint);
        self
    }
}

/// Shorthand of this module.
type Meaning = Result<Condition, Refusal>;

/// The link header that the reading is in.
#[derive(Debug, Clone, Copy)]
enum Layer {
    /// The frame's own, possibly with tags.
    Outer(&'static Link),
    /// A PPP header without HDLC framing, after `pppoes`.
    Ppp,
}

/// Where the reading of a text stands. All places are frame offsets in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Compat {
    layer: Layer,
    /// Start of the link header.
    link_header: u32,
    /// Bytes of tags stepped over.
    tags: u32,
    /// End of the link header, tags included.
    payload: u32,
    /// Bytes from `payload` to the network header: MPLS labels stepped over.
    labels: u32,
    /// Length of an LLC header without SNAP, where one may follow the link header.
    llc_len: u32,
    /// `None` = not known, so `ip broadcast` is refused.
    netmask: Option<u32>,
}

impl Compat {
    /// The beginning of a text, or why there can be none.
    pub(crate) fn new(options: &Options) -> Result<Compat, Refusal> {
        if options.snaplen == 0 {
            return Err(Refusal::new("a snapshot length of 0 rejects all packets"));
        }
        let link = link::outermost(options).ok_or_else(|| {
            Refusal::new(format!("filters for {} are not supported yet", options.link))
        })?;
        Ok(Compat {
            layer: Layer::Outer(link),
            link_header: 0,
            tags: 0,
            payload: link.header_len,
            labels: 0,
            llc_len: if options.link == LinkType::EN10MB { 3 } else { 0 },
            netmask: options.netmask,
        })
    }

    /// The meaning of a primitive here; afterwards the reading stands behind it.
    pub(crate) fn condition(&mut self, kind: &PrimitiveKind) -> Meaning {
        use PrimitiveKind as K;
        match kind {
            K::Host { .. } | K::Net { .. } | K::Net6 { .. } => self.address(kind),
            K::Port { transport, side, port } => {
                self.ports(*transport, *side, &Compare::Equal((*port).into()))
            }
            K::PortRange { transport, side, low, high } => {
                self.ports(*transport, *side, &Compare::Range((*low).into(), (*high).into()))
            }
            K::Protocol { carrier, number } => self.protocol(*carrier, *number),
            K::Llc(frame) => self.llc(*frame),
            K::DecnetHost { side, address } => self.decnet(*side, *address),
            K::EtherHost { .. } | K::EtherBroadcast | K::EtherMulticast => self.ether(kind),
            K::IpBroadcast => self.ip_broadcast(),
            K::IpMulticast => self.ip_multicast(),
            K::Ip6Multicast => self.ip6_multicast(),
            K::Vlan(identifier) => self.vlan(*identifier),
            K::Mpls(label) => self.mpls(*label),
            K::PppoeDiscovery => self.pppoe_discovery(),
            K::PppoeSession(session) => self.pppoe_session(*session),
            K::LengthAtMost(_) | K::LengthAtLeast(_) | K::Byte { .. } => Ok(self.simple(kind)),
            K::Relation { left, comparison, right } => self.relation(left, *comparison, right),
            K::Inbound => self.direction(false),
            K::Outbound => self.direction(true),
            K::IfIndex(index) => self.ifindex(*index),
            K::Within(place, _) => {
                Err(Refusal::new(format!("\"{place} (…)\" belongs to the scoped reading")))
            }
        }
    }

    /// Whether the link header says which protocol follows. Without, a name of a host means IP addresses only.
    pub(crate) fn has_link_type(&self) -> bool {
        match self.layer {
            Layer::Outer(link) => link.header_len > 0,
            Layer::Ppp => true,
        }
    }

    /// Start of the network header.
    fn network(&self) -> u32 {
        self.payload.wrapping_add(self.labels)
    }

    /// `P[network + offset:width] & mask` compared.
    fn network_test(&self, offset: u32, width: Width, mask: u32, compare: Compare) -> Condition {
        test(self.network().wrapping_add(offset), width, mask, compare)
    }
}

/// A test of bytes at a fixed place.
fn test(offset: u32, width: Width, mask: u32, compare: Compare) -> Condition {
    Condition::Load(Load::at(Base::Frame, offset, width, mask, compare))
}

/// A whole field at a fixed place is equal to a value.
fn equal(offset: u32, width: Width, value: u32) -> Condition {
    test(offset, width, width.full_mask(), Compare::Equal(value))
}

/// Negation.
fn not(condition: Condition) -> Condition {
    match condition {
        Condition::Not(inner) => *inner,
        Condition::Const(value) => Condition::Const(!value),
        other => Condition::Not(Box::new(other)),
    }
}

/// All of them in this order, flat and without what cannot change the outcome.
fn all(operands: impl IntoIterator<Item = Condition>) -> Condition {
    let operands = operands.into_iter();
    let mut flat = Vec::with_capacity(operands.size_hint().0);
    for operand in operands {
        match operand {
            Condition::Const(true) => {}
            Condition::All(inner) => flat.extend(inner),
            other => flat.push(other),
        }
        if matches!(flat.last(), Some(Condition::Const(false))) {
            break;
        }
    }
    match flat.len() {
        0 => Condition::Const(true),
        1 => flat.remove(0),
        _ => Condition::All(flat),
    }
}

/// Any of them in this order, flat and without what cannot change the outcome.
fn any(operands: impl IntoIterator<Item = Condition>) -> Condition {
    let operands = operands.into_iter();
    let mut flat = Vec::with_capacity(operands.size_hint().0);
    for operand in operands {
        match operand {
            Condition::Const(false) => {}
            Condition::Any(inner) => flat.extend(inner),
            other => flat.push(other),
        }
        if matches!(flat.last(), Some(Condition::Const(true))) {
            break;
        }
    }
    match flat.len() {
        0 => Condition::Const(false),
        1 => flat.remove(0),
        _ => Condition::Any(flat),
    }
}
