//! `inbound`, `outbound` and `ifindex`: from the link header or, in a live capture on Linux, from
//! the metadata.

use super::layout::Kind;
use super::place::Place;
use super::{Compat, Meaning, Refusal, not};
use fyke_frame::condition::{Compare, Load, MetaField, Source, Width};
use fyke_frame::{Condition, Direction};

/// The packet type "sent by us" of Linux cooked headers.
const SENT: u32 = 4;
/// Offsets of Linux's metadata and of its fields, in loads relative to the link header.
const METADATA: u32 = 0_u32.wrapping_sub(0x1000);
const METADATA_END: u32 = 64;
const PACKET_TYPE: u32 = 4;
const INTERFACE: u32 = 8;

impl Compat {
    pub(super) fn direction(&self, outbound: bool) -> Meaning {
        let at = |offset| self.link_header.plus(offset);
        let byte = |offset, value| self.equal(&at(offset), Width::One, value);
        let either = |sent| if outbound { sent } else { not(sent) };
        Ok(match self.kind {
            Kind::Cooked => either(self.equal(&at(0), Width::Two, SENT)),
            Kind::Cooked2 => either(byte(10, SENT)),
            Kind::Slip => not(either(byte(0, 0))),
            Kind::Ipnet => self.equal(&at(2), Width::Two, if outbound { 1 } else { 2 }),
            Kind::PacketLog => byte(60, if outbound { 2 } else { 1 }),
            Kind::PppPppd => byte(0, outbound.into()),
            Kind::Juniper => self.masked(&at(3), Width::One, 0x01, (!outbound).into()),
            _ if self.live => {
                let sent = Direction::Outbound as u32;
                either(self.metadata(PACKET_TYPE, Width::Two, MetaField::Direction, sent, SENT))
            }
            _ => {
                let title = self.title;
                return Err(Refusal::new(format!(
                    "\"inbound\" and \"outbound\" are not known for {title} when reading a file"
                ))
                .with_hint("the file does not record the direction of packets"));
            }
        })
    }

    pub(super) fn ifindex(&self, index: u32) -> Meaning {
        if self.kind == Kind::Cooked2 {
            return Ok(self.equal(&self.link_header.plus(4), Width::Four, index));
        }
        if self.live {
            return Ok(self.metadata(INTERFACE, Width::Four, MetaField::IfIndex, index, index));
        }
        let title = self.title;
        Err(Refusal::new(format!("\"ifindex\" is not known for {title} when reading a file")))
    }

    /// Tests that a metadata field has this value. After another link header, libpcap adds the
    /// length of that header, and there is no metadata at that place.
    fn metadata(
        &self,
        at: u32,
        width: Width,
        field: MetaField,
        value: u32,
        loaded: u32,
    ) -> Condition {
        let place = self.link_header.plus(METADATA.wrapping_add(at));
        match (&place.base, self.link_header.offset) {
            (None, 0) => meta(field, value),
            _ => self.equal(&place, width, loaded),
        }
    }
}

/// Tests that a metadata field has this value.
pub(super) fn meta(field: MetaField, value: u32) -> Condition {
    let compare = Compare::Equal(value);
    Condition::Load(Load { source: Source::Meta(field), mask: u32::MAX, compare })
}

/// The metadata that a load at a constant place of a live capture reads, if Linux has it.
pub(super) fn metadata_at(place: &Place) -> Option<Option<MetaField>> {
    let which = place.offset.checked_sub(METADATA)?;
    if place.base.is_some() || which >= METADATA_END {
        return None;
    }
    Some(match which {
        PACKET_TYPE => Some(MetaField::PacketType),
        INTERFACE => Some(MetaField::IfIndex),
        44 => Some(MetaField::VlanTag),
        48 => Some(MetaField::VlanPresent),
        _ => None,
    })
}
