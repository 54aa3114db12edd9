//! Compat: the condition that libpcap makes of each primitive.
//!
//! A text is read from left to right, and [`Compat`] is the state of the reader: the headers that
//! the text has stepped over so far. `vlan`, `mpls`, `pppoes`, `geneve` and `lane` move that place
//! for everything after them in the text, regardless of `or`, `not` and brackets. Each primitive
//! becomes a [`Condition`] whose tests are in the order in which libpcap's code makes them, because
//! a load out of bounds ends the evaluation there.
//!
//! | file | what |
//! |---|---|
//! | `layout.rs` | the offsets of the fields of each link type |
//! | `place.rs` | places, constant or after headers of variable length, and tests of bytes there |
//! | `link.rs` | protocols of the link layer, under tags and labels |
//! | `wlan.rs` | 802.11: its header, addresses, types, directions |
//! | `host.rs` | `host`, `net`, IPv4, ARP, RARP, IPv6 |
//! | `port.rs` | `port`, `portrange` |
//! | `protocol.rs` | `proto`, `protochain` and the names of protocols |
//! | `ether.rs` | `ether host`, `broadcast`, `multicast` |
//! | `tags.rs` | `vlan`, `mpls`, `pppoed`, `pppoes`, `geneve` |
//! | `bytes.rs` | byte expressions, `len`, `less`, `greater`, `byte` |
//! | `llc.rs`, `osi.rs`, `decnet.rs` | `llc`; `iso`, `isis` and their like; `decnet host` |
//! | `signal.rs` | ATM, signalling system 7, packet-filter logs |
//! | `direction.rs` | `inbound`, `outbound`, `ifindex` |
//!
//! A family is a file with one function from its part of [`PrimitiveKind`] to a condition; adding one is that file,
//! its kinds in `ast.rs`, its words in the parser and one line in [`Compat::condition`].
//!
//! Source: the generated code of libpcap 1.10.3, without its optimiser, with one exception: a field
//! at a constant place is not loaded if all its bits are masked out (`net 0.0.0.0/0`), as with the
//! optimiser.

mod bytes;
mod decnet;
mod direction;
mod ether;
mod host;
mod layout;
mod link;
mod llc;
mod osi;
mod place;
mod port;
mod protocol;
mod signal;
mod tags;
mod wlan;

use crate::Options;
use crate::ast::PrimitiveKind;
use fyke_frame::Condition;
use fyke_frame::condition::Compare;
use layout::{Kind, Radio};
use place::Place;
use std::cell::Cell;

pub(crate) use bytes::{computed_fault, constant_value, masked_field, transport_carrier};
pub(crate) use osi::ISIS;

/// Reason why libpcap refuses a primitive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// In one line.
    pub(crate) message: String,
    /// Advice, if there is any.
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

/// Result of this module's functions.
type Meaning = Result<Condition, Refusal>;

/// Registers of the BPF machine.
const REGISTERS: usize = 16;

/// Geneve, if the reader is inside a Geneve tunnel.
#[derive(Debug, Clone)]
struct Geneve {
    /// Holds if the tunnel carries an Ethernet header.
    has_ethernet: Condition,
}

/// Values that must be computed before the first test.
#[derive(Debug, Clone, Copy, Default)]
struct Needed {
    header: bool,
    payload: bool,
}

/// Facts about a text that are known only after it was read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    /// The condition under which the first `vlan` is evaluated.
    pub(crate) vlan_reached: Condition,
    /// libpcap does not optimise it.
    pub(crate) unoptimized: bool,
}

impl Known {
    /// No facts.
    pub(crate) fn nothing() -> Known {
        Known { vlan_reached: Condition::Const(true), unoptimized: false }
    }
}

/// State of the reader of a text.
#[derive(Debug, Clone)]
pub(crate) struct Compat {
    /// The link header that the reader is in, and its name.
    kind: Kind,
    title: &'static str,
    link_header: Place,
    /// The link header around it.
    previous: Place,
    /// The field that contains the protocol of the next header.
    link_type: Place,
    /// End of the link header.
    payload: Place,
    /// Bytes from there to the network header, without and with an LLC header that has no SNAP.
    network: u32,
    network_without_snap: u32,
    /// MPLS labels stepped over.
    labels: u32,
    /// True if a VLAN tag was stepped over.
    tagged: bool,
    /// True if the frame is raw ATM, and the reader is in LAN emulation.
    atm: bool,
    in_lane: bool,
    geneve: Option<Geneve>,
    /// The 802.11 header that the frame began with.
    radio: Option<Radio>,
    needed: Cell<Needed>,
    /// True if libpcap does not optimise this text.
    jumps: bool,
    /// True if a field is loaded even if all its bits are masked out, as in texts that
    /// libpcap does not optimise.
    exact: bool,
    /// Registers that are in use until the end.
    registers: usize,
    /// True for a live capture on Linux.
    live: bool,
    /// Live: the condition under which the first `vlan` is evaluated.
    vlan_reached: Condition,
    swapped: bool,
    /// `None` = unknown, so `ip broadcast` is refused.
    netmask: Option<u32>,
}

impl Compat {
    /// The state at the beginning of a text, or the reason for refusing it. `known` are the facts
    /// that an earlier reading of the same text found.
    pub(crate) fn new(options: &Options, known: &Known) -> Result<Compat, Refusal> {
        if options.snaplen == 0 {
            return Err(Refusal::new("a snapshot length of 0 rejects all packets"));
        }
        let layout = layout::layout(options.link)
            .ok_or_else(|| Refusal::new(format!("{} has no filters", options.link)))?;
        let radio = match layout.kind {
            Kind::Wlan(radio) => Some(radio),
            _ => None,
        };
        let link_header = match radio {
            Some(radio) => wlan::header(radio),
            None => Place::at(layout.link_header),
        };
        let payload = match layout.kind {
            Kind::Wlan(radio) => wlan::payload(radio, &link_header),
            Kind::PacketLog => signal::log_len(),
            _ => Place::at(layout.payload),
        };
        Ok(Compat {
            kind: layout.kind,
            title: options.link.description().map_or("this link type", |link| link.title),
            previous: link_header.clone(),
            link_header,
            link_type: Place::at(layout.link_type),
            payload,
            network: layout.network,
            network_without_snap: layout.without_snap,
            labels: 0,
            tagged: false,
            atm: layout.kind == Kind::SunAtm,
            in_lane: false,
            geneve: None,
            radio,
            needed: Cell::default(),
            jumps: radio == Some(Radio::Prism),
            exact: known.unoptimized,
            registers: 0,
            live: options.live,
            vlan_reached: known.vlan_reached.clone(),
            swapped: options.swapped,
            netmask: options.netmask,
        })
    }

    /// The condition of a primitive here; afterwards the reader is after it.
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
            K::ProtocolChain { carrier, number } => self.protocol_chain(*carrier, *number),
            K::Llc(frame) => self.llc(*frame),
            K::DecnetHost { side, address } => self.decnet(*side, *address),
            K::EtherHost { .. } | K::EtherBroadcast | K::EtherMulticast => self.ether(kind),
            K::ArcnetHost { side, address } => self.arcnet(*side, *address),
            K::WlanHost { which, address } => self.wlan_host(*which, address),
            K::WlanType { value, mask } => self.wlan_type((*value).into(), (*mask).into()),
            K::WlanDirection(direction) => self.wlan_direction(*direction),
            K::IpBroadcast => self.ip_broadcast(),
            K::IpMulticast => self.ip_multicast(),
            K::Ip6Multicast => self.ip6_multicast(),
            K::Vlan(identifier) => self.vlan(*identifier),
            K::Mpls(label) => self.mpls(*label),
            K::PppoeDiscovery => self.pppoe_discovery(),
            K::PppoeSession(session) => self.pppoe_session(*session),
            K::Geneve(network) => self.geneve(*network),
            K::Signal(signal) => self.signal(*signal),
            K::Field { field, comparison, value } => self.field(*field, *comparison, *value),
            K::LogNumber { field, value } => self.log_number(*field, *value),
            K::LogName { field, name } => self.log_name(*field, name),
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

    /// The values that libpcap computes before the first test; the frame is rejected when they
    /// cannot be computed.
    pub(crate) fn prologue(&self) -> Option<Condition> {
        let needed = self.needed.get();
        let check = self.first_test();
        let header = self.radio.map(wlan::header);
        let header_len =
            header.as_ref().filter(|_| needed.header || needed.payload).and_then(wlan::compute);
        let payload = match self.radio.zip(header.as_ref()) {
            Some((radio, header)) => Some(wlan::payload(radio, header)),
            None => needed.payload.then(signal::log_len),
        };
        let payload_end = payload.as_ref().filter(|_| needed.payload).and_then(wlan::compute);
        let computed: Vec<_> = check.into_iter().chain(header_len).chain(payload_end).collect();
        (!computed.is_empty()).then(|| all(computed))
    }

    /// The test that libpcap makes before all others: 802.11 follows the per-packet information.
    pub(crate) fn first_test(&self) -> Option<Condition> {
        let per_packet = self.radio == Some(Radio::PerPacket) && self.is_wlan();
        per_packet.then(wlan::per_packet_is_wlan)
    }

    /// True if libpcap's optimiser runs on this text: it does not if the code jumps within a test.
    pub(crate) fn is_optimized(&self) -> bool {
        let wlan_payload = self.radio.is_some() && self.needed.get().payload;
        !self.jumps && !wlan_payload
    }

    /// Notes that the code of this text jumps within a test.
    fn jumps_in_code(&mut self) {
        self.jumps = true;
    }

    /// Takes a register, until the end or until the caller releases it.
    fn take_register(&mut self) -> Result<(), Refusal> {
        if self.registers_left() == 0 {
            return Err(Refusal::new("the text needs more than 16 registers"));
        }
        self.registers += 1;
        Ok(())
    }

    fn registers_left(&self) -> usize {
        let needed = self.needed.get();
        let taken = self.registers + usize::from(needed.header) + usize::from(needed.payload);
        REGISTERS.saturating_sub(taken)
    }
}

/// Negation.
fn not(condition: Condition) -> Condition {
    match condition {
        Condition::Not(inner) => *inner,
        Condition::Const(value) => Condition::Const(!value),
        other => Condition::Not(Box::new(other)),
    }
}

/// All of them in this order, flat and without operands that cannot change the outcome.
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

/// Any of them in this order, flat and without operands that cannot change the outcome.
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
