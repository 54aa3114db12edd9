//! Turns an address, a name or a number, with the qualifiers that apply to it, into a primitive.

use super::{Parsed, Parser};
use crate::ast::{AddressFamily, Carrier, Node, PrimitiveKind, Side, Transport, WlanAddress};
use crate::compat::Refusal;
use crate::keywords::Keyword;
use crate::lex::{Kind, Symbol};
use crate::names;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Kind of an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// An address; also if there is only a direction.
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
    ProtocolChain,
}

/// End of a packet that an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Side(Side),
    /// An address of 802.11 by its number or role.
    Wlan(WlanAddress),
}

impl Default for End {
    fn default() -> End {
        End::Side(Side::default())
    }
}

/// Qualifiers before an identifier, or inherited from the operand before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Qualifiers {
    pub(super) protocol: Option<Keyword>,
    pub(super) end: End,
    pub(super) what: What,
}

/// An identifier as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identifier<'t> {
    Number(u32),
    /// Two to four numbers joined by dots.
    Dotted(&'t str),
    /// Numbers with a prefix length.
    DottedPrefix(&'t str, u32),
    /// Numbers with a mask, written in the same form.
    DottedMask(&'t str, &'t str),
    /// An IPv6 address with its prefix length, 128 if none was written.
    Ip6(Ipv6Addr, u32),
    Ether([u8; 6]),
    Arcnet(u8),
    Name(&'t str),
}

/// A parsed address and the bits of it that are compared.
#[derive(Debug, Clone, Copy)]
struct Masked {
    value: u32,
    mask: u32,
}

type Kinds = Result<PrimitiveKind, Refusal>;

impl<'t> Parser<'t> {
    /// Reads an identifier that is not a plain number.
    pub(super) fn identifier(&mut self) -> Parsed<(Identifier<'t>, Range<usize>)> {
        let token = self.advance()?;
        let text = self.lexer.text_of(&token);
        let start = token.span.start;
        let identifier = match token.kind {
            Kind::Dotted if self.take(Symbol::Slash)? => {
                Identifier::DottedPrefix(text, self.prefix_len()?)
            }
            Kind::Dotted if self.token.kind == Kind::Keyword(Keyword::Mask) => {
                self.advance()?;
                if self.token.kind != Kind::Dotted {
                    return Err(self.unexpected("a mask such as 255.255.0.0"));
                }
                let mask = self.advance()?;
                Identifier::DottedMask(text, self.lexer.text_of(&mask))
            }
            Kind::Dotted => Identifier::Dotted(text),
            Kind::Ip6(address) => {
                let slash = self.take(Symbol::Slash)?;
                Identifier::Ip6(address, if slash { self.prefix_len()? } else { 128 })
            }
            Kind::Ether(address) => Identifier::Ether(address),
            Kind::Arcnet(address) => Identifier::Arcnet(address),
            _ => Identifier::Name(text),
        };
        Ok((identifier, start..self.end))
    }

    fn prefix_len(&mut self) -> Parsed<u32> {
        let Kind::Number(length) = self.token.kind else {
            return Err(self.unexpected("the length of the prefix in bits"));
        };
        self.advance()?;
        Ok(length)
    }

    /// The primitive that an identifier makes with these qualifiers.
    pub(super) fn identify(
        &mut self,
        (identifier, place): (Identifier, Range<usize>),
        qualifiers: Option<Qualifiers>,
    ) -> Parsed<Node> {
        let start = self.term_start.take().unwrap_or(place.start);
        let Some(qualifiers) = qualifiers else {
            let shown = &self.text[place.clone()];
            let message = format!("\"{shown}\" has no qualifier such as \"host\" or \"port\"");
            return Err(super::Error::new(self.text, place, message)
                .expected("\"host\", \"net\", \"port\", \"portrange\" or \"proto\" before it"));
        };
        let span = start..place.end;
        let kind = match (&identifier, qualifiers.what) {
            (Identifier::Name(name), What::Host) => {
                return self.named_host(name, place, qualifiers, span);
            }
            _ => kind(&identifier, qualifiers),
        };
        let kind = kind.map_err(|refusal| self.refused(place, refusal))?;
        self.primitive(kind, span)
    }

    /// The addresses of a name, all of them.
    fn named_host(
        &mut self,
        name: &str,
        place: Range<usize>,
        qualifiers: Qualifiers,
        span: Range<usize>,
    ) -> Parsed<Node> {
        let addresses = self
            .addresses(name, qualifiers.protocol)
            .map_err(|refusal| self.refused(place.clone(), refusal))?;
        let side = qualifiers.side().map_err(|refusal| self.refused(place.clone(), refusal))?;
        let both = self.compat.has_link_type() || qualifiers.protocol.is_some();
        let mut nodes = Vec::new();
        for address in addresses {
            let family = match (address, qualifiers.protocol) {
                (IpAddr::V4(_), Some(Keyword::Ip6)) | (IpAddr::V6(_), Some(Keyword::Ip)) => {
                    continue;
                }
                (IpAddr::V4(_), None) if !both => Ok(AddressFamily::Ip),
                (IpAddr::V4(_), _) => family(qualifiers),
                (IpAddr::V6(_), _) => family6(qualifiers),
            };
            let family = family.map_err(|refusal| self.refused(place.clone(), refusal))?;
            let kind = PrimitiveKind::Host { family, side, address };
            nodes.push(self.primitive(kind, span.clone())?);
        }
        match nodes.len() {
            0 => {
                let message = format!("\"{name}\" has no address of that family");
                Err(super::Error::new(self.text, place, message))
            }
            1 => Ok(nodes.remove(0)),
            _ => Ok(Node::Any(nodes)),
        }
    }

    fn addresses(&self, name: &str, protocol: Option<Keyword>) -> Result<Vec<IpAddr>, Refusal> {
        match protocol {
            Some(Keyword::Link) => {
                return Err(Refusal::new(format!("the Ethernet host \"{name}\" is not known"))
                    .with_hint("write its address, such as 00:11:22:33:44:55"));
            }
            Some(Keyword::Decnet) => return Err(decnet_name()),
            _ => {}
        }
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let Some(resolve) = self.options.resolve else {
            return Err(Refusal::new(format!("the host \"{name}\" is not known"))
                .with_hint("host names are not resolved here; write the address"));
        };
        let addresses = resolve(name);
        if addresses.is_empty() {
            return Err(Refusal::new(format!("the host \"{name}\" is not known")));
        }
        Ok(addresses)
    }
}

impl Qualifiers {
    /// Source and destination; the addresses of 802.11 are neither.
    fn side(self) -> Result<Side, Refusal> {
        match self.end {
            End::Side(side) => Ok(side),
            End::Wlan(_) => Err(Refusal::new(
                "\"addr1\" to \"addr4\", \"ra\" and \"ta\" are for 802.11 addresses only",
            )
            .with_hint("write \"wlan addr1 00:11:22:33:44:55\"")),
        }
    }
}

fn kind(identifier: &Identifier, qualifiers: Qualifiers) -> Kinds {
    match (identifier, qualifiers.what) {
        (Identifier::Arcnet(address), What::Host) if qualifiers.protocol == Some(Keyword::Link) => {
            Ok(PrimitiveKind::ArcnetHost { side: qualifiers.side()?, address: *address })
        }
        (Identifier::Arcnet(_), _) => {
            Err(Refusal::new("an ARCnet address needs \"link host\" before it"))
        }
        (Identifier::Ether(address), What::Host) if qualifiers.protocol == Some(Keyword::Link) => {
            Ok(match qualifiers.end {
                End::Side(side) => PrimitiveKind::EtherHost { side, address: *address },
                End::Wlan(which) => PrimitiveKind::WlanHost { which, address: *address },
            })
        }
        (Identifier::Ether(_), _) => {
            Err(Refusal::new("an Ethernet address needs \"ether host\" before it"))
        }
        (Identifier::Ip6(address, length), _) => ip6(*address, *length, qualifiers),
        (Identifier::DottedPrefix(..) | Identifier::DottedMask(..), _) => {
            network(identifier, qualifiers)
        }
        (Identifier::Dotted(text), What::Host | What::Net) => {
            if qualifiers.protocol == Some(Keyword::Decnet) {
                return decnet(decnet_address(text), qualifiers);
            }
            address(dotted(text)?, qualifiers)
        }
        (Identifier::Dotted(_), _) => {
            Err(Refusal::new("an address cannot be a port or a protocol"))
        }
        (Identifier::Number(value), What::Host | What::Net)
            if qualifiers.protocol == Some(Keyword::Decnet) =>
        {
            decnet(Some(*value as u16), qualifiers)
        }
        (Identifier::Number(value), What::Host) => {
            address(Masked { value: *value, mask: u32::MAX }, qualifiers)
        }
        (Identifier::Number(value), What::Net) => address(justified(*value), qualifiers),
        (Identifier::Number(value), What::Port) => {
            let port = port_number((*value).into())?;
            let transport = transport(qualifiers)?;
            Ok(PrimitiveKind::Port { transport, side: qualifiers.side()?, port })
        }
        (Identifier::Number(value), What::PortRange) => {
            port_range(transport(qualifiers)?, qualifiers, (*value).into(), (*value).into())
        }
        (Identifier::Number(value), What::Protocol | What::ProtocolChain) => {
            protocol(*value, qualifiers)
        }
        (Identifier::Name(name), What::Port) => {
            let named = transport(qualifiers)?;
            let service = names::service(name).ok_or_else(|| unknown_port(name))?;
            let transport = fitting(name, named, service.transport)?;
            Ok(PrimitiveKind::Port { transport, side: qualifiers.side()?, port: service.port })
        }
        (Identifier::Name(name), What::PortRange) => named_range(name, qualifiers),
        (Identifier::Name(name), What::Net) => {
            let network = names::network(name)
                .ok_or_else(|| Refusal::new(format!("the network \"{name}\" is not known")))?;
            address(justified(network), qualifiers)
        }
        (Identifier::Name(name), What::Protocol | What::ProtocolChain) => {
            named_protocol(name, qualifiers)
        }
        (Identifier::Name(name), What::Host) => {
            Err(Refusal::new(format!("the host \"{name}\" is not known")))
        }
    }
}

/// An IPv4 address or network with its family.
fn address(address: Masked, qualifiers: Qualifiers) -> Kinds {
    let Masked { value, mask } = address;
    let side = qualifiers.side()?;
    let family = family(qualifiers)?;
    if mask == u32::MAX {
        let address = IpAddr::V4(value.into());
        return Ok(PrimitiveKind::Host { family, side, address });
    }
    Ok(PrimitiveKind::Net { family, side, network: value.into(), mask: Ipv4Addr::from(mask) })
}

/// The family of IPv4 addresses.
fn family(qualifiers: Qualifiers) -> Result<AddressFamily, Refusal> {
    match qualifiers.protocol {
        None => Ok(AddressFamily::Any),
        Some(Keyword::Ip) => Ok(AddressFamily::Ip),
        Some(Keyword::Arp) => Ok(AddressFamily::Arp),
        Some(Keyword::Rarp) => Ok(AddressFamily::Rarp),
        Some(Keyword::Decnet) => Err(decnet_name()),
        Some(other) => Err(no_addresses(other, "IPv4")),
    }
}

/// The family of IPv6 addresses.
fn family6(qualifiers: Qualifiers) -> Result<AddressFamily, Refusal> {
    match qualifiers.protocol {
        None | Some(Keyword::Ip6) => Ok(AddressFamily::Ip6),
        Some(other) => Err(no_addresses(other, "IPv6")),
    }
}

fn no_addresses(protocol: Keyword, version: &str) -> Refusal {
    let word = protocol.text();
    Refusal::new(format!("\"{word}\" has no {version} addresses")).with_hint(match protocol {
        Keyword::Ip | Keyword::Ip6 | Keyword::Arp | Keyword::Rarp => {
            "\"ip\", \"arp\" and \"rarp\" have IPv4 addresses, \"ip6\" has IPv6 addresses"
        }
        Keyword::Link => "an Ethernet address is six bytes in hexadecimal, joined by \":\"",
        _ => "join two filters with \"and\", such as \"tcp and host 10.0.0.1\"",
    })
}

fn decnet_name() -> Refusal {
    Refusal::new("this is not a DECnet address").with_hint("write area and node, such as 10.15")
}

fn decnet(address: Option<u16>, qualifiers: Qualifiers) -> Kinds {
    let address = address.ok_or_else(decnet_name)?;
    Ok(PrimitiveKind::DecnetHost { side: qualifiers.side()?, address })
}

/// Area and node; text after them is ignored.
fn decnet_address(text: &str) -> Option<u16> {
    let (area, rest) = text.split_once('.')?;
    let node = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (area, node): (u32, u32) = (area.parse().ok()?, rest[..node].parse().ok()?);
    Some((area << 10 & 0xfc00) as u16 | (node & 0x03ff) as u16)
}

fn ip6(address: Ipv6Addr, length: u32, qualifiers: Qualifiers) -> Kinds {
    if length > 128 {
        return Err(Refusal::new(format!("the prefix length {length} is more than 128")));
    }
    let host_bits = u128::MAX.checked_shr(length).unwrap_or(0);
    if u128::from(address) & host_bits != 0 {
        let message = format!("{address}/{length} has bits set outside the network");
        return Err(Refusal::new(message).with_hint("the bits after the prefix have to be zero"));
    }
    let side = qualifiers.side()?;
    match (qualifiers.what, length) {
        (What::Host | What::Net, 128) => {
            let family = family6(qualifiers)?;
            Ok(PrimitiveKind::Host { family, side, address: IpAddr::V6(address) })
        }
        (What::Net, _) => {
            family6(qualifiers)?;
            Ok(PrimitiveKind::Net6 { side, network: address, prefix_len: length as u8 })
        }
        (What::Host, _) => Err(needs_net("a prefix")),
        _ => Err(Refusal::new("an address cannot be a port or a protocol")),
    }
}

fn needs_net(what: &str) -> Refusal {
    Refusal::new(format!("{what} needs \"net\" before it"))
        .with_hint("\"host\" is one address, \"net\" is a network, as in \"net 10.0.0.0/8\"")
}

/// An address with a prefix length or a mask.
fn network(identifier: &Identifier, qualifiers: Qualifiers) -> Kinds {
    let (value, mask) = match identifier {
        Identifier::DottedPrefix(_, length @ 33..) => {
            return Err(Refusal::new(format!("the prefix length {length} is more than 32")));
        }
        Identifier::DottedPrefix(text, length) => {
            (dotted(text)?.value, u32::MAX.checked_shl(32 - length).unwrap_or(0))
        }
        Identifier::DottedMask(text, mask) => (dotted(text)?.value, dotted(mask)?.value),
        _ => (0, 0),
    };
    if value & !mask != 0 {
        let (network, mask) = (Ipv4Addr::from(value), Ipv4Addr::from(mask));
        let message = format!("{network} has bits set outside the mask {mask}");
        return Err(Refusal::new(message)
            .with_hint("the bits outside the mask have to be zero, as in 10.0.0.0/8"));
    }
    match qualifiers.what {
        // Libpcap takes the low half of the number, whatever the meaning.
        What::Net if qualifiers.protocol == Some(Keyword::Decnet) => {
            decnet(Some(value as u16), qualifiers)
        }
        What::Net => address(Masked { value, mask }, qualifiers),
        _ => Err(needs_net("a prefix or mask")),
    }
}

/// Two to four decimal bytes; with fewer than four, the others are not compared.
fn dotted(text: &str) -> Result<Masked, Refusal> {
    let invalid = || Refusal::new(format!("\"{text}\" is not a valid IPv4 address"));
    let (mut value, mut bits) = (0_u32, 0);
    for part in text.split('.') {
        let digits = part.trim_start_matches('0');
        let byte: u8 = match digits {
            "" => 0,
            _ => digits.parse().map_err(|_| invalid())?,
        };
        value = value << 8 | u32::from(byte);
        bits += 8;
    }
    match bits {
        8..=32 => Ok(Masked { value: value << (32 - bits), mask: u32::MAX << (32 - bits) }),
        _ => Err(invalid()),
    }
}

/// A network given as one number: moved to the left until its first byte is not zero.
fn justified(value: u32) -> Masked {
    let mut network = Masked { value, mask: u32::MAX };
    while network.value != 0 && network.value >> 24 == 0 {
        network.value <<= 8;
        network.mask <<= 8;
    }
    network
}

/// The transport protocol of ports.
fn transport(qualifiers: Qualifiers) -> Result<Option<Transport>, Refusal> {
    match qualifiers.protocol {
        None => Ok(None),
        Some(Keyword::Tcp) => Ok(Some(Transport::Tcp)),
        Some(Keyword::Udp) => Ok(Some(Transport::Udp)),
        Some(Keyword::Sctp) => Ok(Some(Transport::Sctp)),
        Some(other) => {
            let word = other.text();
            Err(Refusal::new(format!("\"{word}\" has no ports"))
                .with_hint("\"tcp\", \"udp\" and \"sctp\" have ports, or nothing before \"port\""))
        }
    }
}

/// Checks that a named port has the transport for which its name is registered.
fn fitting(
    name: &str,
    wanted: Option<Transport>,
    registered: Option<Transport>,
) -> Result<Option<Transport>, Refusal> {
    match (wanted, registered) {
        (Some(wanted), Some(registered)) if wanted != registered => {
            Err(Refusal::new(format!("the port \"{name}\" is known for {registered} only"))
                .with_hint("write its number"))
        }
        (Some(wanted), _) => Ok(Some(wanted)),
        (None, registered) => Ok(registered),
    }
}

fn port_number(value: i64) -> Result<u16, Refusal> {
    u16::try_from(value)
        .map_err(|_| Refusal::new(format!("{value} is not a port; ports are 0 to 65535")))
}

fn unknown_port(name: &str) -> Refusal {
    let hint = if number_range(name).is_some() {
        "\"portrange\" takes a first and a last port"
    } else {
        "write its number"
    };
    Refusal::new(format!("the port \"{name}\" is not known")).with_hint(hint)
}

fn port_range(
    transport: Option<Transport>,
    qualifiers: Qualifiers,
    first: i64,
    last: i64,
) -> Kinds {
    let (first, last) = (port_number(first)?, port_number(last)?);
    let (low, high) = (first.min(last), first.max(last));
    Ok(PrimitiveKind::PortRange { transport, side: qualifiers.side()?, low, high })
}

/// `FIRST-LAST`, numbers or names.
fn named_range(text: &str, qualifiers: Qualifiers) -> Kinds {
    let named = transport(qualifiers)?;
    if let Some((first, last)) = number_range(text) {
        return port_range(named, qualifiers, first, last);
    }
    let unknown = || Refusal::new(format!("\"{text}\" is not a range of ports"));
    let (first, last) = text.split_once('-').ok_or_else(unknown)?;
    let first = names::service(first).ok_or_else(unknown)?;
    let last = names::service(last).ok_or_else(unknown)?;
    let registered = first.transport.filter(|_| first.transport == last.transport);
    let transport = fitting(text, named, registered)?;
    port_range(transport, qualifiers, first.port.into(), last.port.into())
}

/// Two numbers joined by a minus; text after them is ignored.
fn number_range(text: &str) -> Option<(i64, i64)> {
    let number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        let end = text.len() - digits.len() + length;
        // A number that is too long is no port either.
        let value = text[..end].parse().unwrap_or(i64::MAX);
        (length > 0).then_some((value, end))
    };
    let (first, end) = number(text)?;
    let (last, _) = number(text[end..].strip_prefix('-')?)?;
    Some((first, last))
}

fn protocol(number: u32, qualifiers: Qualifiers) -> Kinds {
    if qualifiers.what == What::ProtocolChain {
        let carrier = match qualifiers.protocol {
            None => Carrier::IpOrIp6,
            Some(Keyword::Ip) => Carrier::Ip,
            Some(Keyword::Ip6) => Carrier::Ip6,
            Some(other) => {
                let message = format!("\"{}\" has no chain of headers to search", other.text());
                return Err(Refusal::new(message).with_hint(
                    "\"ip\" and \"ip6\" have one, or write nothing before \"protochain\"",
                ));
            }
        };
        return Ok(PrimitiveKind::ProtocolChain { carrier, number });
    }
    let carrier = match qualifiers.protocol {
        None => Carrier::IpOrIp6,
        Some(Keyword::Link) => Carrier::Link,
        Some(Keyword::Ip) => Carrier::Ip,
        Some(Keyword::Ip6) => Carrier::Ip6,
        Some(Keyword::Iso) => Carrier::Osi,
        Some(Keyword::Isis) => Carrier::Isis,
        Some(other) => {
            let message = format!("\"{}\" does not carry other protocols", other.text());
            return Err(Refusal::new(message)
                .with_hint("\"ether\", \"ip\" and \"ip6\" do, or write nothing before \"proto\""));
        }
    };
    Ok(PrimitiveKind::Protocol { carrier, number })
}

fn named_protocol(name: &str, qualifiers: Qualifiers) -> Kinds {
    let number = match qualifiers.protocol {
        None | Some(Keyword::Ip | Keyword::Ip6) => names::ip_protocol(name).map(u32::from),
        Some(Keyword::Link) => names::link_protocol(name).map(u32::from),
        Some(Keyword::Iso) => match name {
            "clnp" => Some(0x81),
            "esis" => Some(0x82),
            "isis" => Some(0x83),
            _ => None,
        },
        _ => None,
    };
    match number {
        Some(number) => protocol(number, qualifiers),
        None => {
            protocol(0, qualifiers)?;
            Err(Refusal::new(format!("the protocol \"{name}\" is not known"))
                .with_hint("write its number"))
        }
    }
}
