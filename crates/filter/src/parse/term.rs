//! Terms: operands that begin with a keyword.

use super::identifier::{End, Qualifiers, What};
use super::{Allowed, Error, Operand, Parsed, Parser};
use crate::ast::{
    Carrier, Comparison, Field, LlcFrame, Node, PrimitiveKind, Side, Signal, WlanAddress,
};
use crate::compat::{ISIS, transport_carrier};
use crate::keywords::Keyword;
use crate::lex::{Kind, Symbol};
use crate::names;
use std::ops::Range;

impl Parser<'_> {
    /// Reads a term that begins with this keyword, which is the next token.
    pub(super) fn term(&mut self, keyword: Keyword) -> Parsed<Operand> {
        let start = self.token.span.start;
        if keyword.is_protocol() {
            return self.protocol(keyword, start);
        }
        if keyword.is_qualifier() {
            return self.qualified(None, start);
        }
        if keyword == Keyword::Len {
            let arithmetic = self.arithmetic()?;
            return Ok(Operand::Arithmetic(arithmetic, start..self.end));
        }
        let kind = match keyword {
            Keyword::Broadcast | Keyword::Multicast => return self.cast(None, keyword, start),
            Keyword::Less => PrimitiveKind::LengthAtMost(self.operand_number()?),
            Keyword::Greater => PrimitiveKind::LengthAtLeast(self.operand_number()?),
            Keyword::Ifindex => PrimitiveKind::IfIndex(self.operand_number()?),
            Keyword::Byte => self.byte()?,
            Keyword::Vlan => PrimitiveKind::Vlan(self.optional("VLAN identifier", 0xfff)?),
            Keyword::Mpls => PrimitiveKind::Mpls(self.optional("MPLS label", 0xf_ffff)?),
            Keyword::Llc => PrimitiveKind::Llc(self.llc()?),
            Keyword::Pppoes => PrimitiveKind::PppoeSession(self.optional("session", 0xffff)?),
            Keyword::Geneve => PrimitiveKind::Geneve(self.optional("Geneve network", 0xff_ffff)?),
            Keyword::Type | Keyword::Subtype | Keyword::Dir => self.wlan(keyword)?,
            Keyword::Ifname
            | Keyword::Ruleset
            | Keyword::Rulenum
            | Keyword::Subrulenum
            | Keyword::Reason
            | Keyword::Action => self.log(keyword)?,
            _ => {
                if let Some(field) = Field::from_text(keyword.text()) {
                    return self.field(field);
                }
                let place = self.advance()?.span;
                match keyword {
                    Keyword::Pppoed => PrimitiveKind::PppoeDiscovery,
                    Keyword::Inbound => PrimitiveKind::Inbound,
                    Keyword::Outbound if self.options.incoming_only => {
                        let what =
                            "this capture gets incoming frames only, so \"outbound\" never holds";
                        return Err(Error::new(self.text, place, what).with_hint(Some(
                            "capture outgoing frames with -i IF, without \"xdp:\"",
                        )));
                    }
                    Keyword::Outbound => PrimitiveKind::Outbound,
                    _ => match Signal::from_text(keyword.text()) {
                        Some(signal) => PrimitiveKind::Signal(signal),
                        None => return Err(self.misplaced(keyword, place)),
                    },
                }
            }
        };
        Ok(Operand::Term(self.primitive(kind, start..self.end)?, None))
    }

    /// The name of a protocol: alone, before qualifiers, or before bytes.
    fn protocol(&mut self, protocol: Keyword, start: usize) -> Parsed<Operand> {
        let place = self.advance()?.span;
        match self.token.kind {
            Kind::Symbol(Symbol::OpenIndex) => {
                let (arithmetic, _) = self.load(protocol, place)?;
                Ok(Operand::Arithmetic(arithmetic, start..self.end))
            }
            Kind::Keyword(cast @ (Keyword::Broadcast | Keyword::Multicast)) => {
                self.cast(Some(protocol), cast, start)
            }
            Kind::Keyword(next @ (Keyword::Type | Keyword::Subtype | Keyword::Dir)) => {
                let kind = self.wlan(next)?;
                Ok(Operand::Term(self.primitive(kind, start..self.end)?, None))
            }
            Kind::Keyword(next) if next.is_qualifier() => self.qualified(Some(protocol), start),
            _ => {
                if let Some(kinds) = protocol.isis_kinds() {
                    return self.isis(kinds, place);
                }
                let Some((carrier, number)) = protocol.number() else {
                    return Err(self.not_alone(protocol, place));
                };
                let kind = PrimitiveKind::Protocol { carrier, number };
                Ok(Operand::Term(self.primitive(kind, place)?, None))
            }
        }
    }

    /// Reads qualifiers and the identifiers they apply to.
    fn qualified(&mut self, protocol: Option<Keyword>, start: usize) -> Parsed<Operand> {
        let end = self.side()?;
        let with_side = end.is_some();
        let what = match self.token.kind {
            Kind::Keyword(Keyword::Host) => Some(What::Host),
            Kind::Keyword(Keyword::Net) => Some(What::Net),
            Kind::Keyword(Keyword::Port) => Some(What::Port),
            Kind::Keyword(Keyword::Portrange) => Some(What::PortRange),
            Kind::Keyword(Keyword::Proto) if !with_side => Some(What::Protocol),
            Kind::Keyword(Keyword::Protochain) if !with_side => Some(What::ProtocolChain),
            Kind::Keyword(Keyword::Gateway) if !with_side => {
                let place = self.advance()?.span;
                return Err(self.misplaced(Keyword::Gateway, place));
            }
            _ => None,
        };
        if what.is_some() {
            self.advance()?;
        }
        let qualifiers =
            Qualifiers { protocol, end: end.unwrap_or_default(), what: what.unwrap_or(What::Host) };
        self.term_start = Some(start);
        let operand = self.operand(Some(qualifiers), Allowed::Identifiers)?;
        let node = self.as_identifier(operand, Some(qualifiers))?;
        Ok(Operand::Term(node, Some(qualifiers)))
    }

    /// `src`, `dst`, `src or dst`, `src and dst` and the like, and the addresses of 802.11.
    fn side(&mut self) -> Parsed<Option<End>> {
        let (side, other) = match self.token.kind {
            Kind::Keyword(Keyword::Src) => (Side::Source, Keyword::Dst),
            Kind::Keyword(Keyword::Dst) => (Side::Destination, Keyword::Src),
            Kind::Keyword(keyword) => {
                let Some(which) = keyword.wlan_address() else { return Ok(None) };
                self.advance()?;
                return Ok(Some(End::Wlan(which)));
            }
            _ => return Ok(None),
        };
        self.advance()?;
        let joined = match self.token.kind {
            Kind::Symbol(Symbol::Or) => Side::Either,
            Kind::Symbol(Symbol::And) => Side::Both,
            _ => return Ok(Some(End::Side(side))),
        };
        self.advance()?;
        if self.token.kind != Kind::Keyword(other) {
            return Err(self.unexpected(&format!("\"{}\"", other.text())));
        }
        self.advance()?;
        Ok(Some(End::Side(joined)))
    }

    /// `broadcast` or `multicast`, which is the next token.
    fn cast(&mut self, protocol: Option<Keyword>, cast: Keyword, start: usize) -> Parsed<Operand> {
        self.advance()?;
        let span = start..self.end;
        let kind = match (cast, protocol) {
            (Keyword::Broadcast, None | Some(Keyword::Link)) => PrimitiveKind::EtherBroadcast,
            (Keyword::Broadcast, Some(Keyword::Ip)) => PrimitiveKind::IpBroadcast,
            (Keyword::Multicast, None | Some(Keyword::Link)) => PrimitiveKind::EtherMulticast,
            (Keyword::Multicast, Some(Keyword::Ip)) => PrimitiveKind::IpMulticast,
            (Keyword::Multicast, Some(Keyword::Ip6)) => PrimitiveKind::Ip6Multicast,
            (_, Some(other)) => {
                let message = format!("\"{}\" has no \"{}\"", other.text(), cast.text());
                let known = if cast == Keyword::Broadcast { "" } else { ", \"ip6\"" };
                return Err(Error::new(self.text, span, message)
                    .expected(format!("\"ether\", \"ip\"{known} or nothing before it")));
            }
            _ => return Err(self.misplaced(cast, span)),
        };
        Ok(Operand::Term(self.primitive(kind, span)?, None))
    }

    /// `byte OFFSET = VALUE`, and `<`, `>`.
    fn byte(&mut self) -> Parsed<PrimitiveKind> {
        let offset = self.operand_number()?;
        let comparison = match self.token.kind {
            Kind::Symbol(Symbol::Equal) => Comparison::Equal,
            Kind::Symbol(Symbol::Less) => Comparison::Less,
            Kind::Symbol(Symbol::Greater) => Comparison::Greater,
            Kind::Symbol(symbol @ (Symbol::Ampersand | Symbol::Bar)) => {
                let sign = if symbol == Symbol::Bar { '|' } else { '&' };
                let message = format!("\"byte\" with \"{sign}\" is not supported");
                return Err(Error::new(self.text, self.token.span.clone(), message).with_hint(
                    Some(format!(
                        "libpcap forgets to read the byte; write \"link[{offset}] {sign} … != 0\""
                    )),
                ));
            }
            _ => return Err(self.unexpected("\"=\", \"<\" or \">\"")),
        };
        let value = self.operand_number()?;
        Ok(PrimitiveKind::Byte { offset, comparison, value })
    }

    /// Matches any of several types of IS-IS packets.
    fn isis(&mut self, kinds: &[u32], place: Range<usize>) -> Parsed<Operand> {
        let mut nodes = Vec::with_capacity(kinds.len());
        for &number in kinds {
            let kind = PrimitiveKind::Protocol { carrier: Carrier::Isis, number };
            nodes.push(self.primitive(kind, place.clone())?);
        }
        Ok(Operand::Term(Node::Any(nodes), None))
    }

    /// Skips `llc` and reads the name of a kind of frame after it, if there is one.
    fn llc(&mut self) -> Parsed<LlcFrame> {
        self.advance()?;
        let named = match self.token.kind {
            Kind::Name => self.lexer.text_of(&self.token),
            Kind::Keyword(Keyword::Rulenum) => "rnr",
            _ => return Ok(LlcFrame::Any),
        };
        let frame = names::LLC_FRAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(named));
        let Some((_, frame)) = frame else {
            return Err(
                self.unexpected("a kind of LLC frame, such as \"i\", \"s\", \"u\" or \"xid\"")
            );
        };
        self.advance()?;
        Ok(*frame)
    }

    /// Skips the next token and reads the number after it.
    pub(super) fn operand_number(&mut self) -> Parsed<u32> {
        self.advance()?;
        let Kind::Number(value) = self.token.kind else { return Err(self.unexpected("a number")) };
        self.advance()?;
        Ok(value)
    }

    /// Skips the next token and reads the number after it, if there is one, perhaps in brackets.
    fn optional<T: TryFrom<u32>>(&mut self, what: &str, limit: u32) -> Parsed<Option<T>> {
        self.advance()?;
        let start = self.token.span.start;
        let mut open = 0_usize;
        while self.take(Symbol::Open)? {
            open += 1;
        }
        let Kind::Number(value) = self.token.kind else {
            return if open == 0 { Ok(None) } else { Err(self.unexpected("a number")) };
        };
        self.advance()?;
        for _ in 0..open {
            if !self.take(Symbol::Close)? {
                return Err(self.unexpected("\")\""));
            }
        }
        match T::try_from(value) {
            Ok(number) if value <= limit => Ok(Some(number)),
            _ => {
                let message = format!("the {what} {value} is more than {limit}");
                Err(Error::new(self.text, start..self.end, message))
            }
        }
    }

    /// The error for a keyword that is not allowed here.
    fn misplaced(&self, keyword: Keyword, place: Range<usize>) -> Error {
        let word = keyword.text();
        let (message, hint) = match keyword {
            Keyword::Gateway => (
                "\"gateway\" is not supported by any libpcap with IPv6".to_string(),
                "\"ether host ADDRESS and not host ADDRESS\" means the same",
            ),
            Keyword::Mask => (
                "\"mask\" has no network before it".to_string(),
                "write it after the address of a network",
            ),
            Keyword::Radio => {
                ("\"radio\" is not a protocol".to_string(), "write \"radio[0]\" for its first byte")
            }
            _ => (
                format!("\"{word}\" is not expected here"),
                "a name like this needs a \"\\\" before it",
            ),
        };
        Error::new(self.text, place, message).with_hint(Some(hint))
    }

    /// The error for a protocol's name that is no term by itself.
    fn not_alone(&self, protocol: Keyword, place: Range<usize>) -> Error {
        match protocol {
            Keyword::Link => {
                let message = "the name of the link layer alone is not a filter";
                Error::new(self.text, place, message)
                    .expected("\"host\", \"proto\", \"broadcast\", \"multicast\" or \"[\" after it")
            }
            _ => self.misplaced(protocol, place),
        }
    }
}

impl Keyword {
    /// True if this is the name of a protocol.
    pub(super) fn is_protocol(self) -> bool {
        use Keyword as K;
        self.number().is_some() || self.isis_kinds().is_some() || matches!(self, K::Link | K::Radio)
    }

    /// True if this can begin qualifiers, after the protocol's name if there is one.
    fn is_qualifier(self) -> bool {
        use Keyword as K;
        matches!(self, K::Src | K::Dst | K::Host | K::Net | K::Port | K::Portrange)
            || matches!(self, K::Proto | K::Protochain | K::Gateway)
            || self.wlan_address().is_some()
    }

    /// The address of an 802.11 header that this keyword names.
    fn wlan_address(self) -> Option<WlanAddress> {
        Some(match self {
            Keyword::Addr1 => WlanAddress::First,
            Keyword::Addr2 => WlanAddress::Second,
            Keyword::Addr3 => WlanAddress::Third,
            Keyword::Addr4 => WlanAddress::Fourth,
            Keyword::Ra => WlanAddress::Receiver,
            Keyword::Ta => WlanAddress::Transmitter,
            _ => return None,
        })
    }

    /// The types of IS-IS packets that the name means, in the order of libpcap's tests.
    fn isis_kinds(self) -> Option<&'static [u32]> {
        Some(match self {
            Keyword::L1 => &[26, 24, 18, 15, 17],
            Keyword::L2 => &[27, 25, 20, 16, 17],
            Keyword::Iih => &[17, 15, 16],
            Keyword::Lsp => &[18, 20],
            Keyword::Snp => &[27, 26, 24, 25],
            Keyword::Csnp => &[24, 25],
            Keyword::Psnp => &[26, 27],
            _ => return None,
        })
    }

    /// The number that the protocol's name alone means, and its carrier.
    fn number(self) -> Option<(Carrier, u32)> {
        let transport = |number: u8| (transport_carrier(number), u32::from(number));
        Some(match self {
            Keyword::Ip => (Carrier::Link, 0x0800),
            Keyword::Arp => (Carrier::Link, 0x0806),
            Keyword::Rarp => (Carrier::Link, 0x8035),
            Keyword::Ip6 => (Carrier::Link, 0x86dd),
            Keyword::Atalk => (Carrier::Link, 0x809b),
            Keyword::Aarp => (Carrier::Link, 0x80f3),
            Keyword::Decnet => (Carrier::Link, 0x6003),
            Keyword::Lat => (Carrier::Link, 0x6004),
            Keyword::Sca => (Carrier::Link, 0x6007),
            Keyword::Mopdl => (Carrier::Link, 0x6001),
            Keyword::Moprc => (Carrier::Link, 0x6002),
            Keyword::Iso => (Carrier::Link, 0xfe),
            Keyword::Stp => (Carrier::Link, 0x42),
            Keyword::Ipx => (Carrier::Link, 0xe0),
            Keyword::Netbeui => (Carrier::Link, 0xf0),
            Keyword::Clnp => (Carrier::Osi, 0x81),
            Keyword::Esis => (Carrier::Osi, 0x82),
            Keyword::Isis => (Carrier::Osi, ISIS),
            Keyword::Icmp6 => (Carrier::Ip6, 58),
            Keyword::Tcp => transport(6),
            Keyword::Udp => transport(17),
            Keyword::Sctp => transport(132),
            Keyword::Icmp => transport(1),
            Keyword::Igmp => transport(2),
            Keyword::Igrp => transport(9),
            Keyword::Pim => transport(103),
            Keyword::Vrrp | Keyword::Carp => transport(112),
            Keyword::Ah => transport(51),
            Keyword::Esp => transport(50),
            _ => return None,
        })
    }
}
