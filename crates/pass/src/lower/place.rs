//! Places that byte expressions name: `tcp[13]` is a byte after the IPv4 header, and `tcp[((tcp[12] & 0xf0) >> 2):4]`
//! the first word of the TCP payload, which L2 instructions reach.
//!
//! Recognises sums of constants and header lengths; everything else stays arithmetic.

use crate::isa::test::Base;
use fyke_frame::condition::{Expr, Operator};

/// The value of an expression that reads no byte.
pub(crate) fn constant(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Const(value) => Some(*value),
        Expr::Negate(inner) => Some(constant(inner)?.wrapping_neg()),
        Expr::Binary(operator, left, right) => {
            operator.apply(constant(left)?, constant(right)?).ok()
        }
        Expr::WireLen
        | Expr::Meta(_)
        | Expr::IpHeaderLen { .. }
        | Expr::Load { .. }
        | Expr::Select(..) => None,
    }
}

/// The base and the offset from it that `index + offset` means, in frame bytes.
pub(crate) fn place(index: &Expr, offset: u32) -> Option<(Base, u32)> {
    let mut sum = Sum { constant: offset, ip: None, second: None };
    sum.add(index)?;
    match sum {
        Sum { constant, ip: None, second: None } => Some((Base::Direct, constant)),
        Sum { constant, ip: Some(ip), second } => {
            let header = u16::try_from(ip).ok()?;
            let offset = constant.checked_sub(ip)?;
            match second {
                None => Some((Base::L1 { header }, offset)),
                Some((own, field)) if own == header => Some((Base::L2 { header, field }, offset)),
                Some(_) => None,
            }
        }
        Sum { ip: None, second: Some(_), .. } => None,
    }
}

/// A sum of a constant, the length of an IPv4 header, and the length of the header after it.
struct Sum {
    constant: u32,
    ip: Option<u32>,
    second: Option<(u16, u16)>,
}

impl Sum {
    fn add(&mut self, expr: &Expr) -> Option<()> {
        if let Some(value) = constant(expr) {
            self.constant = self.constant.checked_add(value)?;
            return Some(());
        }
        match expr {
            Expr::Binary(Operator::Add, left, right) => {
                self.add(left)?;
                self.add(right)
            }
            Expr::IpHeaderLen { ip } if self.ip.is_none() => {
                self.ip = Some(*ip);
                Some(())
            }
            _ if self.second.is_none() => {
                self.second = Some(second_length(expr)?);
                Some(())
            }
            _ => None,
        }
    }
}

/// Four times the high nibble of a byte after an IPv4 header, in the usual ways to write it: the header's place and the
/// byte's offset after it.
fn second_length(expr: &Expr) -> Option<(u16, u16)> {
    let Expr::Binary(operator, left, right) = expr else { return None };
    match (operator, constant(right)?) {
        (Operator::Shr, 2) => match &**left {
            Expr::Binary(Operator::And, byte, mask) if constant(mask) == Some(0xf0) => field(byte),
            _ => None,
        },
        (Operator::And, 0x3c) => match &**left {
            Expr::Binary(Operator::Shr, byte, by) if constant(by) == Some(2) => field(byte),
            _ => None,
        },
        (Operator::Mul, 4) | (Operator::Shl, 2) => match &**left {
            Expr::Binary(Operator::Shr, nibble, by) if constant(by) == Some(4) => match &**nibble {
                Expr::Binary(Operator::And, byte, mask) if constant(mask) == Some(0xf0) => {
                    field(byte)
                }
                byte => field(byte),
            },
            _ => None,
        },
        _ => None,
    }
}

/// One byte after an IPv4 header.
fn field(expr: &Expr) -> Option<(u16, u16)> {
    let Expr::Load { index, offset, width: fyke_frame::condition::Width::One } = expr else {
        return None;
    };
    match place(index, *offset)? {
        (Base::L1 { header }, field) => Some((header, u16::try_from(field).ok()?)),
        _ => None,
    }
}
