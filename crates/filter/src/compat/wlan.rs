//! 802.11: addresses, types, directions, and the ends of its headers.
//!
//! The place of an address depends on the frame's type and direction, which are tested before it.
//! The ends of a radio header and of the 802.11 header are computed once before the first test, if
//! a test needs them: the whole filter rejects a frame that is too short for that. Source: IEEE
//! 802.11; radiotap.org; the code of libpcap 1.10.3.

use super::layout::{Kind, Radio};
use super::place::{Place, Prologue, binary, bits, load};
use super::{Compat, Meaning, Refusal, all, any, not};
use crate::ast::{Side, WlanAddress};
use fyke_frame::Condition;
use fyke_frame::condition::{Compare, Expr, Load, Operator, Relation, Source, Width};
use std::sync::Arc;

/// Bits of the first byte of the frame control: its type.
const DATA: u32 = 0x08;
const CONTROL: u32 = 0x04;
/// Bits of the second byte.
const TO_SYSTEM: u32 = 0x01;
const FROM_SYSTEM: u32 = 0x02;
/// Offsets of the four addresses.
const ADDRESSES: [u32; 4] = [4, 10, 16, 24];
/// Shortest header of a data frame.
const HEADER_LEN: u32 = 24;
/// Length of a Prism header; the same link type also has AVS headers, which contain their length.
const PRISM_LEN: u32 = 144;

impl Compat {
    /// True if this is 802.11, with or without a radio header.
    pub(super) fn is_wlan(&self) -> bool {
        matches!(self.kind, Kind::Wlan(_))
    }

    /// A data frame.
    pub(super) fn wlan_data(&self) -> Condition {
        all([not(self.control(CONTROL)), self.control(DATA)])
    }

    /// Any of these bits of the first byte.
    fn control(&self, bits: u32) -> Condition {
        self.bit(&self.link_header, bits)
    }

    /// Any of these bits of the second byte.
    fn toward(&self, bits: u32) -> Condition {
        self.bit(&self.link_header.plus(1), bits)
    }

    pub(super) fn wlan_side(&self, side: Side, address: &[u8]) -> Condition {
        let at = |number: usize| self.wlan_address_is(number, address);
        super::host::sides(side, self.wlan_source(&at), self.wlan_destination(&at))
    }

    fn wlan_address_is(&self, number: usize, address: &[u8]) -> Condition {
        self.bytes(&self.link_header.plus(ADDRESSES[number - 1]), address)
    }

    /// Tests the source of data and management frames; control frames have none.
    fn wlan_source(&self, at: &impl Fn(usize) -> Condition) -> Condition {
        let from_system =
            any([all([not(self.toward(TO_SYSTEM)), at(3)]), all([self.toward(TO_SYSTEM), at(4)])]);
        let data = any([
            all([not(self.toward(FROM_SYSTEM)), at(2)]),
            all([self.toward(FROM_SYSTEM), from_system]),
        ]);
        let management = all([not(self.control(DATA)), at(2)]);
        all([not(self.control(CONTROL)), any([management, all([self.control(DATA), data])])])
    }

    /// Tests the destination of data and management frames. `at` is the test of an address.
    pub(super) fn wlan_destination(&self, at: &impl Fn(usize) -> Condition) -> Condition {
        let data =
            any([all([not(self.toward(TO_SYSTEM)), at(1)]), all([self.toward(TO_SYSTEM), at(3)])]);
        let management = all([not(self.control(DATA)), at(1)]);
        all([not(self.control(CONTROL)), any([management, all([self.control(DATA), data])])])
    }

    /// A destination with the multicast bit.
    pub(super) fn wlan_multicast(&self) -> Condition {
        self.wlan_destination(&|number| self.bit(&self.link_header.plus(ADDRESSES[number - 1]), 1))
    }

    /// One of the addresses by its number or role.
    pub(super) fn wlan_host(&self, which: WlanAddress, address: &[u8; 6]) -> Meaning {
        if !self.is_wlan() {
            return self.wlan_only("\"addr1\" to \"addr4\", \"ra\" and \"ta\"");
        }
        let at = |number| self.wlan_address_is(number, address);
        let kind = |mask, value| self.masked(&self.link_header, Width::One, mask, value);
        let is_control = || kind(0x0c, CONTROL);
        // Clear-to-send frames and acknowledgements have only one address.
        let has_second =
            || any([not(is_control()), all([not(kind(0xf0, 0xc0)), not(kind(0xf0, 0xd0))])]);
        Ok(match which {
            WlanAddress::First => at(1),
            WlanAddress::Second => all([has_second(), at(2)]),
            WlanAddress::Third => all([not(is_control()), at(3)]),
            WlanAddress::Fourth => {
                all([self.masked(&self.link_header.plus(1), Width::One, 0x03, 0x03), at(4)])
            }
            WlanAddress::Receiver => all([self.control(DATA), at(1)]),
            WlanAddress::Transmitter => all([self.control(DATA), has_second(), at(2)]),
        })
    }

    pub(super) fn wlan_type(&self, value: u32, mask: u32) -> Meaning {
        self.needs_wlan_header("\"type\" and \"subtype\"")?;
        Ok(self.masked(&self.link_header, Width::One, mask, value))
    }

    pub(super) fn wlan_direction(&self, direction: u32) -> Meaning {
        self.needs_wlan_header("\"dir\"")?;
        Ok(self.masked(&self.link_header.plus(1), Width::One, 0x03, direction))
    }

    /// Refuses primitives that do not work after per-packet information.
    fn needs_wlan_header(&self, what: &str) -> Result<(), Refusal> {
        match self.kind {
            Kind::Wlan(radio) if radio != Radio::PerPacket => Ok(()),
            _ => self.wlan_only(what).map(|_| ()),
        }
    }

    fn wlan_only(&self, what: &str) -> Meaning {
        let title = self.title;
        Err(Refusal::new(format!("{what} need 802.11 headers, but this is {title}")))
    }
}

/// Start of the 802.11 header.
pub(super) fn header(radio: Radio) -> Place {
    let little_endian = || {
        let high = binary(Operator::Shl, load(None, 3, Width::One), Expr::Const(8));
        binary(Operator::Or, high, load(None, 2, Width::One))
    };
    let avs = || load(None, 4, Width::Four);
    let length = match radio {
        Radio::None => return Place::at(0),
        Radio::Radiotap | Radio::PerPacket => little_endian(),
        Radio::Avs => avs(),
        Radio::Prism => {
            let cookie = Load::equal(0, Width::Four, 0xffff_f000, 0x8021_1000);
            Expr::Select(
                Arc::new(Condition::Load(cookie)),
                Arc::new(avs()),
                Arc::new(Expr::Const(PRISM_LEN)),
            )
        }
    };
    Place::after(length, Prologue::Header)
}

/// End of the 802.11 header, as for a data frame: 24 bytes, two more with quality of service,
/// rounded up where radiotap records that drivers padded it.
pub(super) fn payload(radio: Radio, header: &Place) -> Place {
    let start = || header.base.clone().unwrap_or_else(|| Arc::new(Expr::Const(0)));
    let control = |mask| {
        let byte = load(Some(start()), 0, Width::One);
        nonzero(bits(byte, mask))
    };
    let plain = binary(Operator::Add, (*start()).clone(), Expr::Const(HEADER_LEN));
    let with_qos = Expr::Select(
        Arc::new(control(0x80)),
        Arc::new(binary(Operator::Add, plain.clone(), Expr::Const(2))),
        Arc::new(plain.clone()),
    );
    let data_len = match radio {
        Radio::Radiotap => {
            let up = binary(Operator::Add, with_qos.clone(), Expr::Const(3));
            let rounded = binary(Operator::And, up, Expr::Const(!3));
            Expr::Select(Arc::new(padded()), Arc::new(rounded), Arc::new(with_qos))
        }
        _ => with_qos,
    };
    let is_data = Condition::All(vec![control(DATA), not(control(CONTROL))]);
    let length = Expr::Select(Arc::new(is_data), Arc::new(data_len), Arc::new(plain));
    Place::after(length, Prologue::Payload)
}

/// Tests that radiotap's first word has the bit for a flags field, and that this field has the bit
/// for padding.
fn padded() -> Condition {
    let absent = |bit: u32| Condition::Load(Load::equal(4, Width::Four, bit.swap_bytes(), 0));
    let flag = |offset| not(Condition::Load(Load::equal(offset, Width::One, 0x20, 0)));
    Condition::All(vec![
        not(absent(0x0000_0002)),
        absent(0x8000_0000),
        any([all([not(absent(0x0000_0001)), flag(16)]), all([absent(0x0000_0001), flag(8)])]),
    ])
}

fn nonzero(value: Expr) -> Condition {
    Condition::Relation(Relation::Greater, Arc::new(value), Arc::new(Expr::Const(0)))
}

/// Computes a place before the first test.
pub(super) fn compute(place: &Place) -> Option<Condition> {
    let base = place.base.clone()?;
    Some(Condition::Relation(Relation::GreaterOrEqual, base, Arc::new(Expr::Const(0))))
}

/// Per-packet information: if no 802.11 follows, the frame is rejected, whatever the rest of the
/// filter is.
pub(super) fn per_packet_is_wlan() -> Condition {
    let number = Condition::Load(Load {
        source: Source::Bytes {
            base: fyke_frame::condition::Base::Frame,
            offset: 4,
            width: Width::Four,
        },
        mask: u32::MAX,
        compare: Compare::Equal(105_u32.swap_bytes()),
    });
    // A division by zero rejects.
    let holds = Expr::Select(Arc::new(number), Arc::new(Expr::Const(1)), Arc::new(Expr::Const(0)));
    let one = Expr::Const(1);
    let divided = binary(Operator::Div, one.clone(), holds);
    Condition::Relation(Relation::Equal, Arc::new(divided), Arc::new(one))
}
