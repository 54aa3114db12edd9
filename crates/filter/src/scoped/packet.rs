//! Evaluates primitives on one packet of a frame.

use super::Fragments;
use super::bytes;
use crate::ast::{AddressFamily, Carrier, Comparison, LlcFrame, PrimitiveKind, Side, Transport};
use crate::compat::ISIS;
use fyke_flow::fragments::PacketKey;
use fyke_frame::walk::view::{ArpView, GeneveView, IpView, MplsStack, PppoeView, VlanStack};
use fyke_frame::walk::{Layer, Layers, Numbered, Ports, Protocol, Scope, Stop};
use fyke_frame::{Direction, Frame, LinkType, OutOfBounds, ethertype};
use std::net::{IpAddr, Ipv4Addr};

/// ARP operations from this number on are RARP's.
const RARP: u16 = 3;
/// The LLC service access point of OSI protocols, and the offset of an IS-IS packet's type.
const SAP_OSI: u8 = 0xfe;
const ISIS_TYPE: usize = 4;
/// The packet type of sent frames in Linux cooked headers.
const SLL_OUTGOING: u8 = 4;

/// One packet: the headers of one level.
pub(super) struct Packet<'n, 'a> {
    pub(super) frame: &'n Frame<'a>,
    /// `None` if the frame has no readable header.
    scope: Option<Scope<'n, 'a>>,
    /// Reason for the end of the walk, if it ended in this packet.
    stop: Option<Stop>,
    fragments: &'n Fragments,
    netmask: Option<u32>,
    level: u8,
}

impl<'n, 'a> Packet<'n, 'a> {
    pub(super) fn new(
        frame: &'n Frame<'a>,
        layers: &'n Layers<'a>,
        level: u8,
        fragments: &'n Fragments,
        netmask: Option<u32>,
    ) -> Self {
        let innermost = layers.innermost().is_none_or(|layer| layer.level == level);
        let stop = innermost.then(|| layers.stop());
        Packet { frame, scope: layers.level(level), stop, fragments, netmask, level }
    }

    /// True if a primitive holds for this packet.
    pub(super) fn holds(&self, kind: &PrimitiveKind) -> Result<bool, OutOfBounds> {
        use PrimitiveKind as K;
        Ok(match kind {
            K::Port { transport, side, port } => {
                return self.ports_hold(*transport, *side, |found| found == *port);
            }
            K::PortRange { transport, side, low, high } => {
                return self.ports_hold(*transport, *side, |found| (*low..=*high).contains(&found));
            }
            K::Byte { offset, comparison, value } => {
                let byte = bytes::load(self, crate::ast::Header::Link, *offset, 1)?;
                return Ok(byte.is_some_and(|byte| compare(byte, *comparison, *value)));
            }
            K::Relation { left, comparison, right } => {
                let (left, right) = (bytes::value(self, left)?, bytes::value(self, right)?);
                return Ok(left
                    .zip(right)
                    .is_some_and(|(left, right)| compare(left, *comparison, right)));
            }
            K::Host { family, side, address } => {
                self.addresses_hold(*family, *side, |found| found == *address)
            }
            K::Net { family, side, network, mask } => {
                let inside =
                    |found: Ipv4Addr| found.to_bits() & mask.to_bits() == network.to_bits();
                self.addresses_hold(*family, *side, |found| match found {
                    IpAddr::V4(found) => inside(found),
                    IpAddr::V6(_) => false,
                })
            }
            K::Net6 { side, network, prefix_len } => {
                let mask = u128::MAX.checked_shl(128 - u32::from(*prefix_len)).unwrap_or(0);
                self.addresses_hold(AddressFamily::Ip6, *side, |found| match found {
                    IpAddr::V6(found) => found.to_bits() & mask == network.to_bits(),
                    IpAddr::V4(_) => false,
                })
            }
            K::Protocol { carrier, number } => self.protocol(*carrier, *number),
            K::Llc(frame) => self.llc(*frame),
            K::LengthAtMost(length) => self.frame.wire_len <= *length,
            K::LengthAtLeast(length) => self.frame.wire_len >= *length,
            K::Inbound => !self.outbound(),
            K::Outbound => self.outbound(),
            K::IfIndex(index) => self.frame.meta.ifindex == *index,
            K::ProtocolChain { carrier, number } => self.protocol(*carrier, *number),
            other => self.header_holds(other),
        })
    }

    /// Evaluates primitives about link headers, tags and IP destinations.
    fn header_holds(&self, kind: &PrimitiveKind) -> bool {
        use PrimitiveKind as K;
        let Some(scope) = &self.scope else { return false };
        let destination = || scope.ip().map(|ip| ip.destination());
        match kind {
            K::EtherHost { side, address } => scope.ethernet().is_some_and(|header| {
                let (source, destination) = (header.source().0, header.destination().0);
                both_ends(*side, source == *address, destination == *address)
            }),
            K::EtherBroadcast => scope.ethernet().is_some_and(|e| e.destination().0 == [0xff; 6]),
            K::EtherMulticast => scope.ethernet().is_some_and(|e| e.destination().0[0] & 1 == 1),
            K::IpMulticast => {
                matches!(destination(), Some(IpAddr::V4(to)) if to.is_multicast())
            }
            K::Ip6Multicast => {
                matches!(destination(), Some(IpAddr::V6(to)) if to.is_multicast())
            }
            K::IpBroadcast => match (destination(), self.netmask) {
                (Some(IpAddr::V4(to)), Some(mask)) => {
                    let host = to.to_bits() & !mask;
                    host == 0 || host == !mask
                }
                _ => false,
            },
            K::Vlan(id) => self
                .views(VlanStack::new)
                .any(|stack| stack.tags().any(|tag| id.is_none_or(|id| tag.id == id))),
            K::Mpls(label) => self.views(MplsStack::new).any(|stack| {
                stack.labels().any(|entry| label.is_none_or(|label| entry.label == label))
            }),
            K::PppoeDiscovery => self.announced(ethertype::PPPOE_DISCOVERY),
            K::PppoeSession(session) => {
                self.announced(ethertype::PPPOE_SESSION)
                    && self
                        .views(PppoeView::new)
                        .any(|header| session.is_none_or(|session| header.session() == session))
            }
            K::Geneve(network) => self
                .views(GeneveView::new)
                .any(|header| network.is_none_or(|network| header.vni() == network)),
            // The parser refuses scopes inside scopes, and words of one link type.
            _ => false,
        }
    }

    /// The headers of this packet, outermost first.
    pub(super) fn headers(&self) -> &'n [Layer] {
        self.scope.as_ref().map_or(&[], |scope| scope.layers())
    }

    /// The headers that `view` can decode.
    fn views<V>(&self, view: fn(&'a [u8], &Layer) -> Option<V>) -> impl Iterator<Item = V> {
        let data = self.frame.data;
        self.headers().iter().filter_map(move |layer| view(data, layer))
    }

    fn ip(&self) -> Option<IpView<'a>> {
        self.scope.as_ref()?.ip()
    }

    fn addresses_hold(
        &self,
        family: AddressFamily,
        side: Side,
        fits: impl Fn(IpAddr) -> bool,
    ) -> bool {
        let (source, destination) = match (self.ip(), self.scope.as_ref().and_then(Scope::arp)) {
            (Some(ip), _)
                if matches!(family, AddressFamily::Any)
                    || (family == AddressFamily::Ip6) == ip.source().is_ipv6()
                        && matches!(family, AddressFamily::Ip | AddressFamily::Ip6) =>
            {
                (Some(ip.source()), Some(ip.destination()))
            }
            (None, Some(arp)) if arp_is(&arp, family) => {
                (arp.sender_ipv4().map(IpAddr::V4), arp.target_ipv4().map(IpAddr::V4))
            }
            _ => return false,
        };
        both_ends(side, source.is_some_and(&fits), destination.is_some_and(&fits))
    }

    /// Tests the ports of the given transports. `Err` if they are in a fragment that was not seen.
    fn ports_hold(
        &self,
        transport: Option<Transport>,
        side: Side,
        fits: impl Fn(u16) -> bool,
    ) -> Result<bool, OutOfBounds> {
        let Some(ports) = self.ports()? else { return Ok(false) };
        let asked = match transport {
            None => matches!(ports.protocol, Protocol::Tcp | Protocol::Udp | Protocol::Sctp),
            Some(Transport::Tcp) => ports.protocol == Protocol::Tcp,
            Some(Transport::Udp) => ports.protocol == Protocol::Udp,
            Some(Transport::Sctp) => ports.protocol == Protocol::Sctp,
        };
        Ok(asked && both_ends(side, fits(ports.source), fits(ports.destination)))
    }

    fn ports(&self) -> Result<Option<Ports>, OutOfBounds> {
        let Some(scope) = &self.scope else { return Ok(None) };
        if let Some(ports) = scope.ports() {
            return Ok(Some(ports));
        }
        let Some(info) = scope.fragment().filter(|info| !info.is_first()) else {
            return match self.cut_before_ports() {
                true => Err(OutOfBounds),
                false => Ok(None),
            };
        };
        let Some(ip) = scope.ip() else { return Ok(None) };
        let (source, destination) = (ip.source(), ip.destination());
        // An IPv4 header names the carried protocol in every fragment; this protocol has no ports.
        if source.is_ipv4() && !matches!(info.protocol, 6 | 17 | 132) {
            return Ok(None);
        }
        let protocol = if source.is_ipv4() { info.protocol } else { 0 };
        let key = PacketKey { source, destination, id: info.id, protocol };
        self.fragments.ports_of(&key, self.frame.timestamp_ns).ok_or(OutOfBounds)
    }

    /// True if the IP header announces ports, but they were not captured.
    fn cut_before_ports(&self) -> bool {
        let announced = self.scope.as_ref().and_then(Scope::ip_protocol);
        matches!(self.stop, Some(Stop::Truncated | Stop::LengthLies))
            && matches!(announced, Some(6 | 17 | 132))
    }

    /// True if this is a fragment without the transport header.
    pub(super) fn is_later_fragment(&self) -> bool {
        let fragment = self.scope.as_ref().and_then(Scope::fragment);
        fragment.is_some_and(|info| !info.is_first())
    }

    fn protocol(&self, carrier: Carrier, number: u32) -> bool {
        let version = self.ip().map(|ip| ip.source().is_ipv6());
        match carrier {
            Carrier::Link => u16::try_from(number).is_ok_and(|number| self.carries(number)),
            Carrier::Ip => version == Some(false) && self.in_ip_chain(number),
            Carrier::Ip6 => version == Some(true) && self.in_ip_chain(number),
            Carrier::IpOrIp6 => self.in_ip_chain(number),
            Carrier::Osi => self.osi(0) == u8::try_from(number).ok(),
            Carrier::Isis => {
                self.osi(0).map(u32::from) == Some(ISIS)
                    && self.osi(ISIS_TYPE) == u8::try_from(number).ok()
            }
        }
    }

    /// A byte of the OSI packet, if this is one.
    fn osi(&self, at: usize) -> Option<u8> {
        let llc = self.headers().iter().find(|layer| layer.protocol == Protocol::Llc)?;
        let first = *self.frame.data.get(llc.offset as usize)?;
        (first == SAP_OSI).then(|| self.frame.data.get(llc.offset as usize + 3 + at).copied())?
    }

    /// True if the packet's network protocol, or one that announces it (a tag), has this EtherType;
    /// up to 1,500 if its LLC header has this service access point as destination.
    pub(super) fn carries(&self, number: u16) -> bool {
        if number < ethertype::MIN_ETHERTYPE {
            let llc = self.headers().iter().find(|layer| layer.protocol == Protocol::Llc);
            let sap = llc.and_then(|layer| self.frame.data.get(layer.offset as usize));
            return sap.is_some_and(|sap| u16::from(*sap) == number);
        }
        self.announced(number)
    }

    /// True if a link header, tag or the like of this packet announces this EtherType, in its bytes
    /// or by the header after it.
    fn announced(&self, number: u16) -> bool {
        let by_layer = self.headers().iter().any(|layer| match layer.protocol {
            Protocol::Ipv4 => number == ethertype::IPV4,
            Protocol::Ipv6 => number == ethertype::IPV6,
            Protocol::Arp => ArpView::new(self.frame.data, layer).is_some_and(|arp| {
                let rarp = (RARP..=4).contains(&arp.operation());
                number == if rarp { ethertype::REVARP } else { ethertype::ARP }
            }),
            _ => false,
        });
        let ethernet = self.scope.as_ref().and_then(Scope::ethernet);
        let in_header = ethernet.is_some_and(|header| header.ethertype() == number);
        let in_tags =
            self.views(VlanStack::new).any(|stack| stack.tags().any(|tag| tag.ethertype == number));
        let unknown = Stop::UnknownProtocol(Numbered::EtherType(number));
        by_layer || in_header || in_tags || self.stop == Some(unknown)
    }

    /// True if the IP header or an extension of it announces this protocol.
    fn in_ip_chain(&self, number: u32) -> bool {
        self.ip_chain().is_some_and(|(chain, _)| {
            chain.iter().any(|layer| self.announces(layer).map(u32::from) == Some(number))
        })
    }

    /// The IP header with its extensions, and the start of the transport header.
    pub(super) fn ip_chain(&self) -> Option<(&'n [Layer], usize)> {
        let headers = self.headers();
        let start = headers.iter().position(|layer| layer.protocol.is_ip())?;
        let extensions = headers[start + 1..].iter();
        let count = extensions.take_while(|layer| layer.protocol.is_ip_extension()).count();
        let chain = &headers[start..=start + count];
        Some((chain, chain.last()?.header_end()))
    }

    /// The protocol number in a header of the chain.
    pub(super) fn announces(&self, layer: &Layer) -> Option<u8> {
        let at = match layer.protocol {
            Protocol::Ipv4 => 9,
            Protocol::Ipv6 => 6,
            _ => 0,
        };
        self.frame.data.get(layer.header_range())?.get(at).copied()
    }

    fn llc(&self, asked: LlcFrame) -> bool {
        let llc = self.headers().iter().find(|layer| layer.protocol == Protocol::Llc);
        let Some(llc) = llc else { return false };
        let Some(&control) = self.frame.data.get(llc.offset as usize + 2) else {
            return asked == LlcFrame::Any;
        };
        match asked {
            LlcFrame::Any => true,
            LlcFrame::Information => control & 0x01 == 0,
            LlcFrame::Supervisory(kind) => {
                control & 0x03 == 0x01 && kind.is_none_or(|kind| control & 0x0f == kind)
            }
            LlcFrame::Unnumbered(kind) => {
                control & 0x03 == 0x03 && kind.is_none_or(|kind| control & 0xef == kind)
            }
        }
    }

    /// True if the capturing machine sent the frame: according to the source, or else to a cooked
    /// link header.
    fn outbound(&self) -> bool {
        let kind = match self.frame.link {
            LinkType::LINUX_SLL => self.frame.data.get(1),
            LinkType::LINUX_SLL2 => self.frame.data.get(10),
            _ => None,
        };
        match self.frame.meta.direction {
            Direction::Unknown => kind == Some(&SLL_OUTGOING),
            direction => direction == Direction::Outbound,
        }
    }

    /// Start of the packet: the frame's first byte for the outermost.
    pub(super) fn start(&self) -> usize {
        if self.level == 0 { 0 } else { self.headers().first().map_or(0, |h| h.offset as usize) }
    }

    /// Start of the network header of an unknown EtherType, if the walk ended there.
    pub(super) fn unknown_network(&self, number: u16) -> Option<usize> {
        let here = self.stop == Some(Stop::UnknownProtocol(Numbered::EtherType(number)));
        here.then(|| self.headers().last().map(Layer::header_end))?
    }
}

fn arp_is(arp: &ArpView, family: AddressFamily) -> bool {
    let rarp = (RARP..=4).contains(&arp.operation());
    match family {
        AddressFamily::Any => true,
        AddressFamily::Arp => !rarp,
        AddressFamily::Rarp => rarp,
        AddressFamily::Ip | AddressFamily::Ip6 => false,
    }
}

fn both_ends(side: Side, source: bool, destination: bool) -> bool {
    match side {
        Side::Either => source || destination,
        Side::Both => source && destination,
        Side::Source => source,
        Side::Destination => destination,
    }
}

pub(super) fn compare(left: u32, comparison: Comparison, right: u32) -> bool {
    match comparison {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::Less => left < right,
        Comparison::LessOrEqual => left <= right,
        Comparison::Greater => left > right,
        Comparison::GreaterOrEqual => left >= right,
    }
}
