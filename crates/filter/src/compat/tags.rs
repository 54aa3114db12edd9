//! `vlan`, `mpls`, `pppoed`, `pppoes`, `geneve`: after each except `pppoed`, all later primitives
//! of the text test the bytes after that header.
//!
//! In a live capture the device may have removed the first VLAN tag from the bytes; then `vlan`
//! tests the metadata. Later primitives are shifted only in frames that still have their tag, and
//! only if `vlan` was evaluated: in `ip6 and vlan or udp`, frames that are not IPv6 reach `udp`
//! unshifted. [`Compat::vlan_reached`] is the condition for that.

use super::direction::meta;
use super::layout::Kind;
use super::place::{Place, Prologue, binary, bits, load};
use super::{Compat, Geneve, Meaning, Refusal, all, any, not};
use crate::ast::{Side, Transport};
use fyke_frame::condition::{Compare, Expr, Load, MetaField, Operator, Relation, Source, Width};
use fyke_frame::{Condition, ethertype};
use std::sync::Arc;

/// Length of a VLAN tag, and of an MPLS label.
const TAG_LEN: u32 = 4;
/// Length of a PPPoE header; the PPP protocol number follows.
const PPPOE_LEN: u32 = 6;
/// Length of the PPP protocol number.
const PPP_LEN: u32 = 2;
/// PPP's number of MPLS.
const PPP_MPLS: u32 = 0x0281;
/// Largest label.
const MAX_LABEL: u32 = 0xf_ffff;
/// Bits of a tag that are its identifier.
const IDENTIFIER: u32 = 0x0fff;
/// The port of Geneve, the bytes of its fixed header and of the UDP header before it.
const GENEVE_PORT: u32 = 6081;
const GENEVE_LEN: u32 = 8;
const UDP_LEN: u32 = 8;

impl Compat {
    pub(super) fn vlan(&mut self, identifier: Option<u16>) -> Meaning {
        if self.labels > 0 {
            return Err(Refusal::new("\"vlan\" cannot come after \"mpls\""));
        }
        match self.kind {
            Kind::Wlan(radio) if radio != super::layout::Radio::PerPacket => {}
            _ if self.is_ethernet() => {}
            _ => {
                let title = self.title;
                let refusal = Refusal::new(format!("\"vlan\" needs Ethernet, but this is {title}"));
                return Err(match self.kind {
                    Kind::Cooked | Kind::Cooked2 => refusal.with_hint(
                        "\"ether proto 0x8100\" finds tagged frames; capture from the interface \
                         itself, not from \"any\", for \"vlan\"",
                    ),
                    _ => refusal,
                });
            }
        }
        let tagged = any([
            self.carries(ethertype::VLAN.into())?,
            self.carries(ethertype::QINQ.into())?,
            self.carries(ethertype::QINQ_OLD.into())?,
        ]);
        let matches =
            identifier.map(|id| self.masked(&self.network(), Width::Two, IDENTIFIER, id.into()));
        let first = std::mem::replace(&mut self.tagged, true);
        let outermost = self.link_header.base.is_none() && self.link_header.offset == 0;
        if self.live && !first && outermost && self.is_ethernet() {
            return Ok(self.vlan_in_metadata(tagged, matches, identifier));
        }
        self.payload.offset = self.payload.offset.wrapping_add(TAG_LEN);
        self.link_type.offset = self.link_type.offset.wrapping_add(TAG_LEN);
        Ok(all([tagged].into_iter().chain(matches)))
    }

    /// Tests the tag in the metadata or in the bytes.
    fn vlan_in_metadata(
        &mut self,
        tagged: Condition,
        matches: Option<Condition>,
        identifier: Option<u16>,
    ) -> Condition {
        let taken_out = || meta(MetaField::VlanPresent, 1);
        let matches = matches.zip(identifier).map(|(in_bytes, identifier)| {
            let compare = Compare::Equal(identifier.into());
            let source = Source::Meta(MetaField::VlanTag);
            let in_metadata = Condition::Load(Load { source, mask: IDENTIFIER, compare });
            any([all([taken_out(), in_metadata]), all([not(taken_out()), in_bytes])])
        });
        let shifted = match &self.vlan_reached {
            Condition::Const(true) => not(taken_out()),
            reached => all([not(taken_out()), reached.clone()]),
        };
        let shift = Arc::new(Expr::Select(
            Arc::new(shifted),
            Arc::new(Expr::Const(TAG_LEN)),
            Arc::new(Expr::Const(0)),
        ));
        for place in [&mut self.payload, &mut self.link_type] {
            place.base = Some(shift.clone());
        }
        self.registers += 2;
        all([any([taken_out(), tagged])].into_iter().chain(matches))
    }

    pub(super) fn mpls(&mut self, label: Option<u32>) -> Meaning {
        let labelled = if self.labels > 0 {
            // The label before this one was not the bottom of the stack.
            let before = self.network().plus(TAG_LEN.wrapping_neg());
            self.masked(&before.plus(2), Width::One, 0x01, 0)
        } else if self.kind == Kind::Ppp {
            self.carries(PPP_MPLS)?
        } else if self.is_ethernet() || self.kind == Kind::Hdlc {
            self.carries(ethertype::MPLS.into())?
        } else {
            let title = self.title;
            return Err(Refusal::new(format!(
                "\"mpls\" needs Ethernet, PPP or HDLC, but this is {title}"
            )));
        };
        let matches = match label {
            Some(label) if label > MAX_LABEL => {
                return Err(Refusal::new(format!(
                    "the MPLS label {label} is more than {MAX_LABEL}"
                )));
            }
            Some(label) => {
                Some(self.masked(&self.network(), Width::Four, 0xffff_f000, label << 12))
            }
            None => None,
        };
        self.labels += 1;
        self.network = self.network.wrapping_add(TAG_LEN);
        self.network_without_snap = self.network_without_snap.wrapping_add(TAG_LEN);
        Ok(all([labelled].into_iter().chain(matches)))
    }

    pub(super) fn pppoe_discovery(&self) -> Meaning {
        self.carries(ethertype::PPPOE_DISCOVERY.into())
    }

    pub(super) fn pppoe_session(&mut self, session: Option<u16>) -> Meaning {
        let in_session = self.carries(ethertype::PPPOE_SESSION.into())?;
        let network = self.network();
        let matches =
            session.map(|session| self.masked(&network, Width::Four, 0xffff, session.into()));
        let mut header = network.plus(PPPOE_LEN);
        if !self.needed.get().payload {
            // Libpcap does not compute this place for the new header if no earlier primitive needed
            // it.
            header.prologue = Prologue::None;
        }
        let payload = Place { prologue: network.prologue, ..header.plus(PPP_LEN) };
        self.enter(Kind::Ppp, "PPP", header);
        self.link_type = self.link_header.clone();
        self.payload = payload;
        self.network = 0;
        self.network_without_snap = 0;
        Ok(all([in_session].into_iter().chain(matches)))
    }

    /// Enters another link header, at this place: later primitives test it.
    pub(super) fn enter(&mut self, kind: Kind, title: &'static str, place: Place) {
        self.in_lane = self.kind == Kind::SunAtm;
        self.previous = std::mem::replace(&mut self.link_header, place);
        (self.kind, self.title, self.geneve) = (kind, title, None);
    }

    /// Geneve over UDP over IPv4, else over IPv6. It carries an Ethernet header or none.
    pub(super) fn geneve(&mut self, network: Option<u32>) -> Meaning {
        let port = Compare::Equal(GENEVE_PORT);
        let to_port =
            |version| self.ports_of(version, Some(Transport::Udp), Side::Destination, &port);
        let after_ip = |(offset, width, mask, value)| {
            self.after_ip(UDP_LEN + offset, width, mask, Compare::Equal(value))
        };
        let behind_ip6 = |(offset, width, mask, value)| {
            let place = self.network().plus(super::port::IP6_HEADER_LEN + UDP_LEN + offset);
            self.masked(&place, width, mask, value)
        };
        let vni = network.map(|number| number << 8);
        let version_zero = (0, Width::One, 0xc0, 0);
        let fields = vni.map(|vni| (4, Width::Four, 0xffff_ff00, vni));
        let fields = || [version_zero].into_iter().chain(fields);
        let over_ip = all([to_port(4)?].into_iter().chain(fields().map(after_ip)));
        let over_ip6 = all([to_port(6)?].into_iter().chain(fields().map(behind_ip6)));
        let start = self.geneve_start(self.ip()?);
        let field = |offset, width| load(Some(start.clone()), offset, width);
        let options = binary(Operator::Mul, bits(field(0, Width::One), 0x3f), Expr::Const(4));
        let length = binary(Operator::Add, options, Expr::Const(GENEVE_LEN));
        let inner = Arc::new(Expr::Binary(Operator::Add, Arc::new(length), start.clone()));
        let number = Arc::new(field(2, Width::Two));
        let ethernet = Condition::Relation(
            Relation::Equal,
            number,
            Arc::new(Expr::Const(ethertype::TRANSPARENT_ETHERNET.into())),
        );
        // The number is read for any value; a frame that ends before it is rejected.
        let readable = any([ethernet.clone(), not(ethernet.clone())]);
        let select = |then: Expr, otherwise: Expr| {
            Expr::Select(Arc::new(ethernet.clone()), Arc::new(then), Arc::new(otherwise))
        };
        let after = |more| binary(Operator::Add, (*inner).clone(), Expr::Const(more));
        let type_field = binary(Operator::Add, (*start).clone(), Expr::Const(2));
        self.enter(Kind::Ethernet, "Geneve", Place::after((*inner).clone(), Prologue::None));
        self.in_lane = false;
        self.link_type = Place::after(select(after(12), type_field), Prologue::None);
        self.payload = Place::after(select(after(14), (*inner).clone()), Prologue::None);
        self.network = 0;
        self.geneve = Some(Geneve { has_ethernet: ethernet });
        self.jumps_in_code();
        // One register for each of the three places above.
        for _ in 0..3 {
            self.take_register()?;
        }
        Ok(all([any([over_ip, over_ip6]), readable]))
    }

    /// Start of the Geneve header in a Geneve frame: over IPv4 if the frame has IPv4.
    fn geneve_start(&self, ip: Condition) -> Arc<Expr> {
        let network = self.network();
        let (plain4, plain6) = (self.ip_header_len(), Expr::Const(super::port::IP6_HEADER_LEN));
        let plain6 = match self.base_of(&network) {
            Some(base) => Expr::Binary(Operator::Add, Arc::new(plain6), base),
            None => plain6,
        };
        let header_end = Expr::Select(Arc::new(ip), Arc::new(plain4), Arc::new(plain6));
        let constant = Expr::Const(network.offset.wrapping_add(UDP_LEN));
        Arc::new(binary(Operator::Add, header_end, constant))
    }
}
