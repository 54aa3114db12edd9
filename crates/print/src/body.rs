//! The text of a frame: one header after the other, then the reason why there are no more.

use crate::PrintOptions;
use crate::memory::Memory;
use crate::text::{Cut, Piece, Printed, name_of};
use crate::{arp, icmp, icmp6, ip, link, names, ppp, sctp, tcp, tunnel, udp};
use fyke_frame::walk::view::{GeneveView, GreView, VlanStack};
use fyke_frame::walk::{Layer, Layers, Numbered, Protocol, Stop};
use fyke_frame::{LinkType, ethertype};

/// Longest text: lists that a packet can make longer than itself (names after pointers) end at
/// this length.
const FULL_LEN: usize = 32_768;

/// Appends to the text of a [`Body`].
macro_rules! put {
    ($body:expr, $($part:tt)*) => {{
        use std::fmt::Write as _;
        // Writing to a string cannot fail.
        let _ = write!($body.out, $($part)*);
    }};
}
pub(crate) use put;

/// Continuation after a header's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Print the next header, or the reason why there is none.
    Next,
    /// Stop: the text is complete.
    End,
}

/// Result of a header's printer.
pub(crate) type Step = Result<Flow, Cut>;

/// The text of a frame under construction.
pub(crate) struct Body<'p, 'a> {
    pub(crate) options: &'p PrintOptions,
    pub(crate) memory: &'p mut Memory,
    pub(crate) layers: &'p Layers<'a>,
    pub(crate) link: LinkType,
    pub(crate) out: &'p mut String,
    /// Name that is shown if the bytes end too early.
    pub(crate) protocol: &'static str,
    /// End of the packet that is being printed, according to its headers: it may be beyond the
    /// captured bytes and, if a header is wrong, beyond the frame.
    pub(crate) end: usize,
    /// The packet is a fragment.
    pub(crate) fragmented: bool,
    /// Number of ICMP errors around this packet.
    pub(crate) quotes: u8,
    /// Length of the text before this frame's.
    start_len: usize,
}

impl<'p, 'a> Body<'p, 'a> {
    pub(crate) fn new(
        options: &'p PrintOptions,
        memory: &'p mut Memory,
        layers: &'p Layers<'a>,
        link: LinkType,
        wire_len: usize,
        out: &'p mut String,
    ) -> Self {
        let end = wire_len.max(layers.data().len());
        let start_len = out.len();
        Body {
            options,
            memory,
            layers,
            link,
            out,
            protocol: "",
            end,
            fragmented: false,
            quotes: 0,
            start_len,
        }
    }

    /// Appends the text of all headers.
    pub(crate) fn print(&mut self) {
        if self.options.link_header && self.first().is_some_and(|layer| layer.protocol.is_ip()) {
            put!(self, "ip: ");
        }
        if link::is_wireless(self.link) {
            match link::wireless(self) {
                Ok(Flow::Next) if !self.layers.is_empty() => {}
                Ok(Flow::Next) => return put!(self, " [|llc]"),
                Ok(Flow::End) => return,
                Err(Cut) => return put!(self, " [|{}]", self.protocol),
            }
        }
        for index in 0..self.layers.len() {
            let layer = self.layers.as_slice()[index];
            self.protocol = names::cut(layer.protocol);
            match self.layer(index, &layer) {
                Ok(Flow::Next) => {}
                Ok(Flow::End) => return,
                Err(Cut) => return put!(self, " [|{}]", self.protocol),
            }
        }
        if self.ending().is_err() {
            put!(self, " [|{}]", self.protocol);
        }
    }

    fn layer(&mut self, index: usize, layer: &Layer) -> Step {
        match layer.protocol {
            Protocol::Ethernet => link::ethernet(self, index),
            Protocol::Link => link::other(self, index),
            Protocol::Llc => link::llc(self, index),
            Protocol::Vlan => link::vlan(self, index),
            Protocol::Mpls => link::mpls(self, index),
            Protocol::ControlWord => link::control_word(self, index),
            Protocol::Pppoe => ppp::pppoe(self, index),
            Protocol::Ppp => ppp::ppp(self, index),
            Protocol::Arp => arp::print(self, index),
            Protocol::Ipv4 => ip::v4(self, index),
            Protocol::Ipv6 => ip::v6(self, index),
            Protocol::HopByHop | Protocol::DestinationOptions => ip::options(self, index),
            Protocol::Routing => ip::routing(self, index),
            Protocol::Fragment => ip::fragment(self, index),
            Protocol::Mobility | Protocol::Hip | Protocol::Shim6 => ip::extension(self, index),
            Protocol::Authentication => ip::authentication(self, index),
            Protocol::Esp => ip::esp(self, index),
            Protocol::Tcp => tcp::print(self, index),
            Protocol::Udp => udp::print(self, index),
            Protocol::UdpLite | Protocol::Dccp => udp::similar(self, index),
            Protocol::Sctp => sctp::print(self, index),
            Protocol::Icmp => icmp::print(self, index),
            Protocol::Icmpv6 => icmp6::print(self, index),
            Protocol::Igmp => icmp::igmp(self, index),
            Protocol::Gre => tunnel::gre(self, index),
            Protocol::Erspan => tunnel::erspan(self, index),
            Protocol::Vxlan => tunnel::vxlan(self, index),
            Protocol::Geneve => tunnel::geneve(self, index),
            Protocol::Gtpu => tunnel::gtpu(self, index),
            Protocol::EtherIp => tunnel::ether_ip(self, index),
        }
    }

    fn first(&self) -> Option<&Layer> {
        self.layers.iter().next()
    }

    /// True if the text has reached the length at which lists end.
    pub(crate) fn is_full(&self) -> bool {
        self.out.len() - self.start_len > FULL_LEN
    }

    /// The layer at `index`.
    pub(crate) fn at(&self, index: usize) -> Option<&'p Layer> {
        self.layers.as_slice().get(index)
    }

    /// The protocol of the layer at `index`.
    pub(crate) fn kind(&self, index: usize) -> Option<Protocol> {
        self.at(index).map(|layer| layer.protocol)
    }

    /// The layer from its first byte to the end of its payload.
    pub(crate) fn whole(&self, layer: &Layer) -> Piece<'a> {
        let start = layer.offset as usize;
        let data = self.layers.data().get(start..layer.end as usize).unwrap_or(&[]);
        Piece { data, wire_len: self.end.saturating_sub(start) }
    }

    /// The bytes after the layer's header.
    pub(crate) fn payload(&self, layer: &Layer) -> Piece<'a> {
        let data = self.layers.data().get(layer.payload_range()).unwrap_or(&[]);
        Piece { data, wire_len: self.end.saturating_sub(layer.header_end()) }
    }

    /// Prints a line break and indentation if the text has several lines, `separator` if it has
    /// one.
    pub(crate) fn break_or(&mut self, separator: &str) {
        self.out.push_str(if self.options.verbose > 0 { "\n\t" } else { separator });
    }

    /// Prints the reason why there is no further header.
    fn ending(&mut self) -> Printed {
        match self.layers.stop() {
            Stop::Done => {
                if self.expected_ip_protocol() == Some(59) {
                    put!(self, "no next header");
                }
            }
            Stop::Truncated | Stop::LengthLies if self.expected_ip_protocol() == Some(2) => {
                icmp::igmp_message(self, &self.rest())?;
            }
            Stop::Truncated | Stop::Fragment => {
                let name = self.next_name();
                put!(self, " [|{name}]");
            }
            Stop::LengthLies => self.ending_lies(),
            Stop::WrongVersion(version) => self.ending_version(version),
            Stop::TooDeep => put!(self, " [too many headers]"),
            Stop::Encrypted | Stop::UnknownProtocol(Numbered::Llc(_)) => {}
            Stop::UnknownProtocol(Numbered::LinkType(50)) => ppp::serial(self)?,
            Stop::UnknownProtocol(Numbered::LinkType(number)) => self.ending_link(number),
            Stop::UnknownProtocol(Numbered::EtherType(number)) => {
                link::unknown_ethertype(self, number)?;
            }
            Stop::UnknownProtocol(Numbered::Ip(number)) => ip::unknown(self, number)?,
            Stop::UnknownProtocol(Numbered::Ppp(number)) => ppp::unknown(self, number)?,
            Stop::UnknownProtocol(Numbered::Version(_)) => {
                let rest = self.rest_len();
                put!(self, " unknown payload, length {rest}");
            }
        }
        Ok(())
    }

    /// The bytes after the last header.
    pub(crate) fn rest(&self) -> Piece<'a> {
        match self.layers.innermost() {
            Some(last) => self.payload(last),
            None => Piece { data: self.layers.data(), wire_len: self.end },
        }
    }

    fn ending_lies(&mut self) {
        let first = self.layers.payload().first().copied();
        match (self.announced_ethertype(), first) {
            (Some(ethertype::IPV4), Some(first)) if first >> 4 == 4 && first & 0xf < 5 => {
                self.ip_prefix("IP ");
                put!(self, "bad-hlen {}", 4 * (first & 0xf));
            }
            (Some(ethertype::IPV4), _) => {
                let rest = self.rest_len();
                self.ip_prefix("IP ");
                put!(self, "truncated-ip {rest}");
            }
            (Some(ethertype::IPV6), _) => {
                let rest = self.rest_len();
                put!(self, "truncated-ip6 {rest}");
            }
            _ => match self.next_name() {
                name @ ("ether" | "llc" | "arp") => put!(self, " [|{name}]"),
                name => put!(self, " [bad {name} length]"),
            },
        }
    }

    fn ending_version(&mut self, version: u8) {
        match self.announced_ethertype() {
            Some(ethertype::IPV6) => {
                self.ip_prefix("IP6 ");
                put!(self, "version error: {version} != 6");
            }
            _ if version == 6 => put!(self, "IP6, wrong link-layer encapsulation (invalid)"),
            _ => put!(self, "IP{version} (invalid)"),
        }
    }

    fn ending_link(&mut self, number: u16) {
        let end = self.end;
        put!(self, "link type {number}, length {end}");
        if LinkType(number).description().is_none() {
            put!(self, ": not decoded");
        }
    }

    /// Prints `IP ` or `IP6 `, which `-e` leaves out because it shows the EtherType.
    pub(crate) fn ip_prefix(&mut self, prefix: &str) {
        if !self.options.link_header {
            self.out.push_str(prefix);
        }
    }

    /// Bytes from the end of the last header to the end of the packet.
    pub(crate) fn rest_len(&self) -> usize {
        self.end.saturating_sub(self.layers.innermost().map_or(0, Layer::header_end))
    }

    fn expected_ip_protocol(&self) -> Option<u8> {
        let last = self.layers.innermost()?.protocol;
        let scope = self.layers.all();
        (last.is_ip() || last.is_ip_extension()).then(|| scope.ip_protocol())?
    }

    /// The EtherType that the last header announces.
    pub(crate) fn announced_ethertype(&self) -> Option<u16> {
        let data = self.layers.data();
        let Some(last) = self.layers.innermost() else {
            if self.link == LinkType::EN10MB && self.quotes == 0 {
                return None;
            }
            return Some(ethertype::IPV4);
        };
        match last.protocol {
            Protocol::Ethernet => self.whole(last).be16(12).ok(),
            Protocol::Vlan => VlanStack::new(data, last)?.tags().last().map(|tag| tag.ethertype),
            Protocol::Llc => self.whole(last).be16(6).ok(),
            Protocol::Gre => GreView::new(data, last).map(|gre| gre.protocol()),
            Protocol::Geneve => GeneveView::new(data, last).map(|geneve| geneve.protocol()),
            Protocol::Ppp => {
                let known = [(0x21, ethertype::IPV4), (0x57, ethertype::IPV6)];
                let number = self.whole(last).data.get(last.header_len as usize - 1)?;
                known.iter().find(|(ppp, _)| ppp == number).map(|(_, ethertype)| *ethertype)
            }
            Protocol::Link => link::announced(self, last),
            _ => match self.expected_ip_protocol() {
                Some(4) => Some(ethertype::IPV4),
                Some(41) => Some(ethertype::IPV6),
                _ => None,
            },
        }
    }

    /// Name of the header that should come next, for a text about a cut or an error.
    fn next_name(&self) -> &'static str {
        if let Some(number) = self.expected_ip_protocol() {
            return names::cut_ip(number);
        }
        let announced = self.announced_ethertype().and_then(|number| {
            if number < ethertype::MIN_ETHERTYPE {
                return Some("llc");
            }
            let known = [
                (ethertype::IPV4, "ip"),
                (ethertype::IPV6, "ip6"),
                (ethertype::ARP, "arp"),
                (ethertype::REVARP, "arp"),
                (ethertype::VLAN, "vlan"),
                (ethertype::QINQ, "vlan"),
                (ethertype::MPLS, "mpls"),
                (ethertype::PPPOE_SESSION, "pppoe"),
                (ethertype::TRANSPARENT_ETHERNET, "ether"),
            ];
            name_of(&known, number)
        });
        announced.unwrap_or(match self.layers.innermost() {
            None | Some(Layer { protocol: Protocol::Vxlan, .. }) => "ether",
            Some(last) => names::cut(last.protocol),
        })
    }
}
