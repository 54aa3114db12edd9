//! Byte conditions, which filter texts and link types are compiled to, and their slow and simple
//! evaluator.
//!
//! A [`Condition`] has the semantics of a classic BPF program without being one: loads of 1, 2 or 4
//! bytes in network byte order, masked and compared without sign, joined by and, or, not, evaluated
//! left to right until the result is known. One rule is important: **a load out of bounds ends the
//! evaluation and rejects the frame**, even inside `not`. So the order of operands is part of the
//! meaning for short frames, and operands may be reordered only if all their loads are known to be
//! within the frame.
//!
//! The evaluator here is the oracle of the faster engines; it costs one branch per node. Source:
//! McCanne & Jacobson 1993; the semantics of libpcap's interpreter.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_frame as frame; }
//! use fyke::frame::condition::{Condition, Load, Width};
//! use fyke::frame::{Frame, LinkType};
//!
//! // An Ethernet frame that carries ARP, and not what a load out of bounds rejects.
//! let arp = Condition::Load(Load::equal(12, Width::Two, 0xffff, 0x0806));
//! let mut bytes = [0; 60];
//! bytes[12..14].copy_from_slice(&[0x08, 0x06]);
//! assert_eq!(arp.holds(&Frame::new(LinkType::EN10MB, &bytes)), Ok(true));
//! assert!(arp.holds(&Frame::new(LinkType::EN10MB, &bytes[..13])).is_err());
//! ```

mod visit;

pub use visit::Visit;

use crate::Frame;
use std::sync::Arc;

/// Position from which a load counts its offset.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Base {
    /// The first captured byte.
    Frame,
    /// The end of the IPv4 header that starts at frame offset `ip`: `ip + 4 * (P[ip] & 0xf)`. The
    /// version nibble is ignored, as in BPF's `ldxb 4*([k]&0xf)`.
    IpHeaderEnd {
        /// Frame offset of the IPv4 header, in bytes.
        ip: u32,
    },
    /// A position that is computed from the frame.
    Computed(Arc<Expr>),
}

/// Number of bytes of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Width {
    /// One byte.
    One = 1,
    /// Two bytes, network order.
    Two = 2,
    /// Four bytes, network order.
    Four = 4,
}

/// Value of a load.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// Bytes of the frame.
    Bytes {
        /// Position from which `offset` counts.
        base: Base,
        /// Offset in bytes.
        offset: u32,
        /// Number of bytes.
        width: Width,
    },
    /// The frame's length on the wire.
    WireLen,
    /// Metadata of a live Linux capture that is not in the bytes; see [`MetaField`].
    Meta(MetaField),
}

/// Metadata fields that a condition can test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaField {
    /// [`crate::Direction`] as its number.
    Direction,
    /// Operating-system interface index.
    IfIndex,
    /// Linux's packet type: the direction's number less one.
    PacketType,
    /// 1 if the device has removed a VLAN tag from the bytes, else 0.
    VlanPresent,
    /// Priority and identifier of that tag; 0 if there was none.
    VlanTag,
}

/// Comparison of the loaded value after masking. All comparisons are unsigned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Compare {
    /// Equal to the value.
    Equal(u32),
    /// Within the closed interval.
    Range(u32, u32),
    /// One of the values, which are sorted ascending and free of duplicates.
    OneOf(Arc<[u32]>),
}

/// One test: load, mask, compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Load {
    /// The value that is loaded.
    pub source: Source,
    /// Bits that are compared; applied before the comparison.
    pub mask: u32,
    /// The comparison.
    pub compare: Compare,
}

/// A 128-bit masked comparison (IPv6 addresses) at a fixed offset, made word by word: it ends at
/// the first unequal word, before later words are loaded. Words with an empty mask are not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address6 {
    /// Frame offset of the address, in bytes.
    pub offset: u32,
    /// Bits that are compared; the most significant is the first on the wire.
    pub mask: u128,
    /// The address, already masked.
    pub value: u128,
}

/// Binary operators of the filter language's arithmetic, on wrapping unsigned 32-bit values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`; division by zero rejects the frame.
    Div,
    /// `%`; division by zero rejects the frame.
    Mod,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`; a count of 32 or more gives 0.
    Shl,
    /// `>>`; a count of 32 or more gives 0.
    Shr,
}

impl Operator {
    /// The operator as a filter text writes it.
    pub fn sign(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Sub => "-",
            Operator::Mul => "*",
            Operator::Div => "/",
            Operator::Mod => "%",
            Operator::And => "&",
            Operator::Or => "|",
            Operator::Xor => "^",
            Operator::Shl => "<<",
            Operator::Shr => ">>",
        }
    }
}

/// Arithmetic over bytes of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A number.
    Const(u32),
    /// The frame's length on the wire.
    WireLen,
    /// Metadata.
    Meta(MetaField),
    /// The low nibble of a byte, times four: an IPv4 header's length.
    IpHeaderLen {
        /// Frame offset of the IPv4 header, in bytes.
        ip: u32,
    },
    /// Bytes at frame offset `index` + `offset`; an overflow is out of bounds.
    Load {
        /// Computed part of the offset, counted from the first captured byte.
        index: Arc<Expr>,
        /// Constant part of the offset, in bytes.
        offset: u32,
        /// Number of bytes.
        width: Width,
    },
    /// Two's complement.
    Negate(Arc<Expr>),
    /// Two operands.
    Binary(Operator, Arc<Expr>, Arc<Expr>),
    /// One value if the condition holds, else the other; the condition is evaluated first, then
    /// only the chosen value.
    Select(Arc<Condition>, Arc<Expr>, Arc<Expr>),
}

/// Relational operators, unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `=`
    Equal,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// Searches for a protocol in chained extension headers, as `protochain` does. It copies libpcap's
/// method: the length of an authentication header is taken as the *offset* of the next header,
/// counted from the IP header. If that leads to an endless loop, the frame is rejected here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Frame offset of the IP header, in bytes.
    pub ip: u32,
    /// True for an IPv6 header; its extension headers are followed too.
    pub v6: bool,
    /// The protocol number to be found.
    pub protocol: u32,
}

/// A condition on a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// A constant.
    Const(bool),
    /// All operands hold; true if empty. Evaluated left to right up to the first that does not
    /// hold.
    All(Vec<Condition>),
    /// At least one operand holds; false if empty. Evaluated left to right up to the first that
    /// holds.
    Any(Vec<Condition>),
    /// The operand does not hold (but a load out of bounds inside still rejects).
    Not(Box<Condition>),
    /// One test.
    Load(Load),
    /// An IPv6 address or prefix.
    Address6(Address6),
    /// Two expressions compared.
    Relation(Relation, Arc<Expr>, Arc<Expr>),
    /// A protocol anywhere in a chain of headers.
    Chain(Chain),
}

/// A load lay outside the captured bytes, or a division had a zero divisor: the frame is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("load out of bounds")]
pub struct OutOfBounds;

impl Width {
    /// The mask of all bits that a load of this width can set.
    pub const fn full_mask(self) -> u32 {
        match self {
            Width::One => 0xff,
            Width::Two => 0xffff,
            Width::Four => 0xffff_ffff,
        }
    }
}

impl Compare {
    /// Compares a masked value.
    pub fn holds(&self, value: u32) -> bool {
        match self {
            Compare::Equal(operand) => value == *operand,
            Compare::Range(low, high) => (*low..=*high).contains(&value),
            Compare::OneOf(operands) => operands.binary_search(&value).is_ok(),
        }
    }
}

impl Load {
    /// The test `P[offset:width] & mask == value` at a fixed offset.
    pub fn equal(offset: u32, width: Width, mask: u32, value: u32) -> Load {
        Load::at(Base::Frame, offset, width, mask, Compare::Equal(value))
    }

    /// A test of bytes.
    pub fn at(base: Base, offset: u32, width: Width, mask: u32, compare: Compare) -> Load {
        Load { source: Source::Bytes { base, offset, width }, mask, compare }
    }

    /// Evaluates the test.
    pub fn holds(&self, frame: &Frame) -> Result<bool, OutOfBounds> {
        let value = match &self.source {
            Source::Bytes { base, offset, width } => {
                load(frame.data, base.offset(frame)?, *offset, *width)?
            }
            Source::WireLen => frame.wire_len,
            Source::Meta(field) => field.value(frame),
        };
        Ok(self.compare.holds(value & self.mask))
    }
}

impl MetaField {
    /// The value of the field in a frame.
    pub fn value(self, frame: &Frame) -> u32 {
        match self {
            MetaField::Direction => frame.meta.direction as u32,
            MetaField::IfIndex => frame.meta.ifindex,
            MetaField::PacketType => (frame.meta.direction as u32).saturating_sub(1),
            MetaField::VlanPresent => frame.meta.vlan.is_some().into(),
            MetaField::VlanTag => frame.meta.vlan.unwrap_or(0).into(),
        }
    }
}

impl Base {
    /// The frame offset of this base.
    pub fn offset(&self, frame: &Frame) -> Result<u32, OutOfBounds> {
        match self {
            Base::Frame => Ok(0),
            Base::IpHeaderEnd { ip } => {
                ip_header_len(frame.data, *ip)?.checked_add(*ip).ok_or(OutOfBounds)
            }
            Base::Computed(expr) => expr.value(frame),
        }
    }
}

impl Address6 {
    /// Evaluates the comparison.
    pub fn holds(&self, data: &[u8]) -> Result<bool, OutOfBounds> {
        for word in 0..4 {
            let shift = 96 - 32 * word;
            let mask = (self.mask >> shift) as u32;
            if mask == 0 {
                continue;
            }
            let loaded = load(data, self.offset, 4 * word, Width::Four)?;
            if loaded & mask != (self.value >> shift) as u32 & mask {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Expr {
    /// Evaluates the expression.
    pub fn value(&self, frame: &Frame) -> Result<u32, OutOfBounds> {
        Ok(match self {
            Expr::Const(value) => *value,
            Expr::WireLen => frame.wire_len,
            Expr::Meta(field) => field.value(frame),
            Expr::IpHeaderLen { ip } => ip_header_len(frame.data, *ip)?,
            Expr::Load { index, offset, width } => {
                load(frame.data, index.value(frame)?, *offset, *width)?
            }
            Expr::Negate(inner) => inner.value(frame)?.wrapping_neg(),
            Expr::Binary(operator, left, right) => {
                operator.apply(left.value(frame)?, right.value(frame)?)?
            }
            Expr::Select(condition, then, otherwise) => match condition.holds(frame)? {
                true => then.value(frame)?,
                false => otherwise.value(frame)?,
            },
        })
    }
}

impl Chain {
    /// Follows the headers. Every step except one after an authentication header leads further into
    /// the frame, and those exceptions can reach at most 256 offsets. So more steps than the frame
    /// has bytes plus 256 are a loop.
    pub fn holds(&self, data: &[u8]) -> Result<bool, OutOfBounds> {
        const HOP_BY_HOP: u32 = 0;
        const ROUTING: u32 = 43;
        const FRAGMENT: u32 = 44;
        const AUTHENTICATION: u32 = 51;
        const NONE: u32 = 59;
        const DESTINATION: u32 = 60;
        let byte = |at: u32, plus: u32| load(data, at, self.ip.wrapping_add(plus), Width::One);
        let mut number = byte(0, if self.v6 { 6 } else { 9 })?;
        let mut at = if self.v6 { 40 } else { ip_header_len(data, self.ip)? };
        for _ in 0..data.len() + 256 {
            if number == self.protocol || number == NONE {
                return Ok(number == self.protocol);
            }
            let next = match number {
                HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION if self.v6 => byte(at, 0)?,
                AUTHENTICATION => byte(at, 0)?,
                _ => return Ok(false),
            };
            at = match number {
                AUTHENTICATION => 4 * (byte(at + 1, 0)? + 2),
                _ => at.wrapping_add(8 * (byte(at, 1)? + 1)),
            };
            number = next;
        }
        Err(OutOfBounds)
    }
}

impl Operator {
    /// Applies the operator.
    pub fn apply(self, left: u32, right: u32) -> Result<u32, OutOfBounds> {
        Ok(match self {
            Operator::Add => left.wrapping_add(right),
            Operator::Sub => left.wrapping_sub(right),
            Operator::Mul => left.wrapping_mul(right),
            Operator::Div => left.checked_div(right).ok_or(OutOfBounds)?,
            Operator::Mod => left.checked_rem(right).ok_or(OutOfBounds)?,
            Operator::And => left & right,
            Operator::Or => left | right,
            Operator::Xor => left ^ right,
            Operator::Shl => left.checked_shl(right).unwrap_or(0),
            Operator::Shr => left.checked_shr(right).unwrap_or(0),
        })
    }
}

impl Condition {
    /// Evaluates the condition, left to right.
    pub fn holds(&self, frame: &Frame) -> Result<bool, OutOfBounds> {
        match self {
            Condition::Const(value) => Ok(*value),
            Condition::All(operands) => {
                for operand in operands {
                    if !operand.holds(frame)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Condition::Any(operands) => {
                for operand in operands {
                    if operand.holds(frame)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Condition::Not(inner) => Ok(!inner.holds(frame)?),
            Condition::Load(load) => load.holds(frame),
            Condition::Address6(address) => address.holds(frame.data),
            Condition::Chain(chain) => chain.holds(frame.data),
            Condition::Relation(relation, left, right) => {
                let (left, right) = (left.value(frame)?, right.value(frame)?);
                Ok(match relation {
                    Relation::Equal => left == right,
                    Relation::Greater => left > right,
                    Relation::GreaterOrEqual => left >= right,
                })
            }
        }
    }

    /// True if the frame is accepted: the condition holds and no load was out of bounds.
    pub fn accepts(&self, frame: &Frame) -> bool {
        self.holds(frame) == Ok(true)
    }
}

/// Loads `width` bytes in network order at `base + offset`; every overflow is out of bounds.
fn load(data: &[u8], base: u32, offset: u32, width: Width) -> Result<u32, OutOfBounds> {
    let start = base.checked_add(offset).ok_or(OutOfBounds)? as usize;
    let end = start.checked_add(width as usize).ok_or(OutOfBounds)?;
    let bytes = data.get(start..end).ok_or(OutOfBounds)?;
    Ok(bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
}

fn ip_header_len(data: &[u8], ip: u32) -> Result<u32, OutOfBounds> {
    Ok(4 * (load(data, ip, 0, Width::One)? & 0xf))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;

    fn tcp_to_port(port: u32) -> Condition {
        Condition::All(vec![
            Condition::Load(Load::equal(12, Width::Two, 0xffff, 0x0800)),
            Condition::Load(Load::at(
                Base::IpHeaderEnd { ip: 14 },
                2,
                Width::Two,
                0xffff,
                Compare::Equal(port),
            )),
        ])
    }

    #[test]
    fn a_load_out_of_bounds_rejects_even_under_not() {
        let mut bytes = vec![0; 40];
        (bytes[12], bytes[14], bytes[36], bytes[37]) = (8, 0x45, 0, 23);
        let frame = Frame::new(LinkType::EN10MB, &bytes);
        assert!(tcp_to_port(23).accepts(&frame));
        assert!(!tcp_to_port(24).accepts(&frame));
        let short = Frame::new(LinkType::EN10MB, &bytes[..37]);
        assert_eq!(tcp_to_port(23).holds(&short), Err(OutOfBounds));
        assert!(!Condition::Not(Box::new(tcp_to_port(24))).accepts(&short));
    }

    #[test]
    fn an_address_compares_word_by_word() {
        let mut bytes = vec![0; 12];
        bytes[0] = 0x20;
        let address = |mask, value| Address6 { offset: 0, mask, value };
        assert_eq!(address(u128::MAX, 1u128 << 100).holds(&bytes), Ok(false));
        assert_eq!(address(u128::MAX, 0x20u128 << 120).holds(&bytes), Err(OutOfBounds));
        assert_eq!(address(u128::MAX << 96, 0x20u128 << 120).holds(&bytes), Ok(true));
    }

    #[test]
    fn arithmetic_wraps_shifts_out_and_refuses_zero_divisors() {
        assert_eq!(Operator::Sub.apply(0, 1), Ok(u32::MAX));
        assert_eq!(Operator::Shl.apply(1, 32), Ok(0));
        assert_eq!(Operator::Mod.apply(1, 0), Err(OutOfBounds));
    }
}
