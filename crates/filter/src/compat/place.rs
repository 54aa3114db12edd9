//! Places in a frame, as far as a text determines them: a constant offset, perhaps after a header
//! with its length in the frame. Also the tests of bytes there.

use super::Compat;
use fyke_frame::Condition;
use fyke_frame::condition::{Base, Compare, Expr, Load, Operator, Source, Width};
use std::sync::Arc;

/// Value that libpcap computes once, before the first test, if any test needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prologue {
    /// Nothing.
    None,
    /// Start of the link header, after a radio header.
    Header,
    /// End of the link header.
    Payload,
}

/// A place. Offsets wrap, as libpcap's do: places that a link type does not have are `u32::MAX`.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The part that depends on the frame.
    pub(super) base: Option<Arc<Expr>>,
    /// The constant part.
    pub(super) offset: u32,
    /// The value that has to be computed first.
    pub(super) prologue: Prologue,
}

impl Place {
    pub(super) fn at(offset: u32) -> Place {
        Place { base: None, offset, prologue: Prologue::None }
    }

    pub(super) fn after(base: Expr, prologue: Prologue) -> Place {
        Place { base: Some(Arc::new(base)), offset: 0, prologue }
    }

    pub(super) fn plus(&self, more: u32) -> Place {
        Place { offset: self.offset.wrapping_add(more), ..self.clone() }
    }

    fn base(&self) -> Base {
        self.base.clone().map_or(Base::Frame, Base::Computed)
    }
}

impl Compat {
    /// The part of a place that depends on the frame; notes that it is needed.
    pub(super) fn base_of(&self, place: &Place) -> Option<Arc<Expr>> {
        if place.base.is_some() {
            let mut needed = self.needed.get();
            needed.header |= place.prologue == Prologue::Header;
            needed.payload |= place.prologue == Prologue::Payload;
            self.needed.set(needed);
        }
        place.base.clone()
    }

    /// `P[place:width] & mask` compared.
    pub(super) fn test(
        &self,
        place: &Place,
        width: Width,
        mask: u32,
        compare: Compare,
    ) -> Condition {
        self.base_of(place);
        Condition::Load(Load::at(place.base(), place.offset, width, mask, compare))
    }

    /// Tests `P[place:width] & mask == value`. If all bits are masked out, the field is not loaded
    /// where libpcap's optimiser runs.
    pub(super) fn masked(&self, place: &Place, width: Width, mask: u32, value: u32) -> Condition {
        match (mask, &place.base) {
            (0, None) if !self.exact => Condition::Const(value == 0),
            _ => self.test(place, width, mask, Compare::Equal(value)),
        }
    }

    /// Tests that a whole field is equal to a value.
    pub(super) fn equal(&self, place: &Place, width: Width, value: u32) -> Condition {
        self.test(place, width, width.full_mask(), Compare::Equal(value))
    }

    /// Tests that any of these bits of a byte is set.
    pub(super) fn bit(&self, place: &Place, bits: u32) -> Condition {
        super::not(self.test(place, Width::One, bits, Compare::Equal(0)))
    }

    /// Compares bytes: from the end in words, then in a half word, then in a byte.
    pub(super) fn bytes(&self, place: &Place, bytes: &[u8]) -> Condition {
        let mut tests = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let width = match rest.len() {
                1 => Width::One,
                2 | 3 => Width::Two,
                _ => Width::Four,
            };
            let (before, last) = rest.split_at(rest.len() - width as usize);
            let value = last.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
            tests.push(self.equal(&place.plus(before.len() as u32), width, value));
            rest = before;
        }
        super::all(tests)
    }

    /// Start of the network header.
    pub(super) fn network(&self) -> Place {
        self.payload.plus(self.network)
    }

    /// Start of the network header after an LLC header without SNAP.
    pub(super) fn network_without_snap(&self) -> Place {
        self.payload.plus(self.network_without_snap)
    }

    /// The length of the IPv4 header, plus the part of its place that depends on the frame.
    pub(super) fn ip_header_len(&self) -> Expr {
        let network = self.network();
        match self.base_of(&network) {
            None => Expr::IpHeaderLen { ip: network.offset },
            Some(base) => {
                let byte = load(Some(base.clone()), network.offset, Width::One);
                let nibble = binary(Operator::And, byte, Expr::Const(0xf));
                let length = binary(Operator::Shl, nibble, Expr::Const(2));
                Expr::Binary(Operator::Add, Arc::new(length), base)
            }
        }
    }

    /// A test of bytes after the IPv4 header.
    pub(super) fn after_ip(
        &self,
        offset: u32,
        width: Width,
        mask: u32,
        compare: Compare,
    ) -> Condition {
        let network = self.network();
        match network.base {
            None => {
                let base = Base::IpHeaderEnd { ip: network.offset };
                Condition::Load(Load::at(base, offset, width, mask, compare))
            }
            Some(_) => {
                let base = Base::Computed(Arc::new(self.ip_header_len()));
                let offset = network.offset.wrapping_add(offset);
                Condition::Load(Load::at(base, offset, width, mask, compare))
            }
        }
    }
}

/// Bytes at a place.
pub(super) fn load(base: Option<Arc<Expr>>, offset: u32, width: Width) -> Expr {
    let index = base.unwrap_or_else(|| Arc::new(Expr::Const(0)));
    Expr::Load { index, offset, width }
}

/// Two operands.
pub(super) fn binary(operator: Operator, left: Expr, right: Expr) -> Expr {
    Expr::Binary(operator, Arc::new(left), Arc::new(right))
}

/// Bits of a byte, not shifted.
pub(super) fn bits(byte: Expr, mask: u32) -> Expr {
    binary(Operator::And, byte, Expr::Const(mask))
}

/// A test of the length on the wire.
pub(super) fn length(low: u32, high: u32) -> Condition {
    let compare = Compare::Range(low, high);
    Condition::Load(Load { source: Source::WireLen, mask: u32::MAX, compare })
}
