//! Byte expressions, lengths and `byte`.
//!
//! Surprises of libpcap: the check that a frame has the header at all is taken from the left
//! operand of an operator only, so `1 + tcp[0] = 5` does not require TCP; a divisor or shift count
//! is checked by the first number of its text, so `4 / ip[0]` is refused as a division by zero; and
//! an expression has only 16 registers.
//!
//! A comparison of a field with a number becomes a plain test; any other comparison becomes an
//! arithmetic relation.

use super::direction::metadata_at;
use super::layout::{Kind, Radio};
use super::place::{Place, length};
use super::port::{IP6_HEADER_LEN, IP6_NEXT_HEADER};
use super::{Compat, Meaning, Refusal, all, not};
use crate::ast::{Arithmetic, Carrier, Comparison, Header, Operator, PrimitiveKind};
use fyke_frame::Condition;
use fyke_frame::condition::{Base, Compare, Expr, Load, Relation, Source, Width};
use std::sync::Arc;

/// ICMPv6's number.
const ICMP6: u32 = 58;
/// Longest IPv4 header.
const MAX_IP_HEADER_LEN: u32 = 60;

impl Compat {
    pub(super) fn simple(&self, kind: &PrimitiveKind) -> Condition {
        match *kind {
            PrimitiveKind::LengthAtMost(most) => length(0, most),
            PrimitiveKind::LengthAtLeast(least) => length(least, u32::MAX),
            PrimitiveKind::Byte { offset, comparison, value } => {
                let place = self.link_header.plus(offset);
                let test =
                    |low, high| self.test(&place, Width::One, 0xff, Compare::Range(low, high));
                match comparison {
                    Comparison::Less => not(test(value, u32::MAX)),
                    Comparison::Greater => not(test(0, value)),
                    _ => self.equal(&place, Width::One, value),
                }
            }
            _ => Condition::Const(false),
        }
    }

    pub(super) fn relation(
        &self,
        left: &Arithmetic,
        comparison: Comparison,
        right: &Arithmetic,
    ) -> Meaning {
        check_operands(left)?;
        check_operands(right)?;
        let mut operands = Vec::new();
        self.header_checks(left, &mut operands)?;
        self.header_checks(right, &mut operands)?;
        operands.push(compare(&self.expression(left)?, comparison, &self.expression(right)?));
        if registers(left).max(1 + registers(right)) > self.registers_left() {
            return Err(Refusal::new("the expression needs more than 16 registers")
                .with_hint("a left operand in brackets needs fewer than a right one"));
        }
        Ok(all(operands))
    }

    /// The conditions for loading the bytes.
    fn header_checks(
        &self,
        arithmetic: &Arithmetic,
        into: &mut Vec<Condition>,
    ) -> Result<(), Refusal> {
        match arithmetic {
            Arithmetic::Number(_) | Arithmetic::Length => Ok(()),
            Arithmetic::Negate(inner) => self.header_checks(inner, into),
            Arithmetic::Binary(_, left, right) => {
                self.header_checks(left, into)?;
                // The checks are computed and refused where necessary, but not used.
                self.header_checks(right, &mut Vec::new())
            }
            Arithmetic::Load { header, index, .. } => {
                let before = into.len();
                self.header_checks(index, into)?;
                match *header {
                    Header::Link => {}
                    Header::Radio => match self.kind {
                        Kind::Wlan(Radio::Radiotap | Radio::Avs | Radio::Prism) => {}
                        _ => {
                            let message =
                                "\"radio\" reads a radio header, and the frames have none";
                            return Err(Refusal::new(message));
                        }
                    },
                    Header::Network(ethertype) => into.push(self.carries(ethertype.into())?),
                    Header::Transport(number) => {
                        into.insert(before, self.ip()?);
                        into.push(self.protocol(transport_carrier(number), number.into())?);
                        into.push(self.first_fragment());
                    }
                    Header::Icmp6 => {
                        let next = self.network().plus(IP6_NEXT_HEADER);
                        into.extend([self.ip6()?, self.equal(&next, Width::One, ICMP6)]);
                    }
                }
                Ok(())
            }
        }
    }

    fn expression(&self, arithmetic: &Arithmetic) -> Result<Expr, Refusal> {
        Ok(match arithmetic {
            Arithmetic::Number(value) => Expr::Const(*value),
            Arithmetic::Length => Expr::WireLen,
            Arithmetic::Negate(inner) => Expr::Negate(Arc::new(self.expression(inner)?)),
            Arithmetic::Binary(operator, left, right) => Expr::Binary(
                *operator,
                Arc::new(self.expression(left)?),
                Arc::new(self.expression(right)?),
            ),
            Arithmetic::Load { header, index, width } => self.load(*header, index, *width)?,
        })
    }

    fn load(&self, header: Header, index: &Arithmetic, width: Width) -> Result<Expr, Refusal> {
        let place = match header {
            Header::Radio => Place::at(0),
            Header::Link => self.link_header.clone(),
            Header::Network(_) | Header::Transport(_) => self.network(),
            Header::Icmp6 => self.network().plus(IP6_HEADER_LEN),
        };
        if let Some(metadata) = self.metadata_of(&place, index) {
            return metadata;
        }
        let index = Arc::new(self.expression(index)?);
        let index = match (header, self.base_of(&place)) {
            (Header::Transport(_), _) => {
                Arc::new(Expr::Binary(Operator::Add, index, Arc::new(self.ip_header_len())))
            }
            (_, Some(base)) => Arc::new(Expr::Binary(Operator::Add, index, base)),
            (_, None) => index,
        };
        Ok(Expr::Load { index, offset: place.offset, width })
    }

    /// Metadata of a live capture: places far below zero are Linux's metadata.
    fn metadata_of(&self, place: &Place, index: &Arithmetic) -> Option<Result<Expr, Refusal>> {
        // Only the optimiser sees that the place is constant. After another link header, libpcap
        // adds the length of that header, and there is no metadata at that place.
        let finds = self.live && !self.exact && place.offset == 0;
        let index = constant_value(index).filter(|_| finds)?;
        let field = metadata_at(&place.plus(index))?;
        let refused = || {
            Refusal::new("this offset is not known metadata").with_hint(
                "known are -4096 and 4 (packet type), 8 (interface), 44 (tag), 48 (tag present)",
            )
        };
        Some(field.map(Expr::Meta).ok_or_else(refused))
    }
}

/// The IP versions that a transport protocol's own name accepts.
pub(crate) fn transport_carrier(number: u8) -> Carrier {
    const IP_ONLY: [u8; 4] = [1, 2, 9, 112];
    if IP_ONLY.contains(&number) { Carrier::Ip } else { Carrier::IpOrIp6 }
}

/// Registers that are in use at the same time while the expression is computed.
fn registers(arithmetic: &Arithmetic) -> usize {
    match arithmetic {
        Arithmetic::Number(_) | Arithmetic::Length => 1,
        Arithmetic::Load { index, .. } => registers(index).max(2),
        Arithmetic::Negate(inner) => registers(inner),
        Arithmetic::Binary(_, left, right) => registers(left).max(1 + registers(right)),
    }
}

/// Refuses divisors of zero and shifts of more than 31, judged by the first number of their text.
fn check_operands(arithmetic: &Arithmetic) -> Result<(), Refusal> {
    let (operator, left, right) = match arithmetic {
        Arithmetic::Number(_) | Arithmetic::Length => return Ok(()),
        Arithmetic::Load { index: inner, .. } | Arithmetic::Negate(inner) => {
            return check_operands(inner);
        }
        Arithmetic::Binary(operator, left, right) => (*operator, left, right),
    };
    check_operands(left)?;
    check_operands(right)?;
    match first_number(right).and_then(|number| fault(operator, number)) {
        Some(message) if matches!(**right, Arithmetic::Number(_)) => Err(Refusal::new(message)),
        Some(message) => Err(Refusal::new(message)
            .with_hint("the first number on the right side counts as its value")),
        None => Ok(()),
    }
}

/// The error of an operator if its right side has this value.
fn fault(operator: Operator, right: u32) -> Option<&'static str> {
    match operator {
        Operator::Div if right == 0 => Some("division by zero"),
        Operator::Mod if right == 0 => Some("modulus by zero"),
        Operator::Shl | Operator::Shr if right > 31 => Some("shift by more than 31 bits"),
        _ => None,
    }
}

/// The error of a divisor that is computed to be zero, or of a shift of more than 31: refused if
/// any frame reaches it.
pub(crate) fn computed_fault(arithmetic: &Arithmetic) -> Option<Refusal> {
    match arithmetic {
        Arithmetic::Number(_) | Arithmetic::Length => None,
        Arithmetic::Load { index: inner, .. } | Arithmetic::Negate(inner) => computed_fault(inner),
        Arithmetic::Binary(operator, left, right) => {
            let own = || own_fault(*operator, constant(left), constant(right)?);
            let inner = computed_fault(left).or_else(|| computed_fault(right));
            inner.or_else(|| own().map(Refusal::new))
        }
    }
}

fn own_fault(operator: Operator, left: Option<Constant>, right: Constant) -> Option<&'static str> {
    let message = fault(operator, right.value)?;
    match left {
        // The operator has been folded away by the time that its right side is known.
        Some(left) if left.value == 0 && left.round < right.round => None,
        // A shift of a number by a number is computed, whatever the count.
        Some(left) if left.round <= right.round => {
            (!matches!(operator, Operator::Shl | Operator::Shr)).then_some(message)
        }
        _ => Some(message),
    }
}

/// A value that libpcap's optimiser finds without a frame, and the round in which it finds it: a
/// result of one round is used in the next.
#[derive(Debug, Clone, Copy)]
struct Constant {
    value: u32,
    round: usize,
}

/// The value of an expression, if libpcap knows it beforehand.
pub(crate) fn constant_value(arithmetic: &Arithmetic) -> Option<u32> {
    constant(arithmetic).map(|known| known.value)
}

fn constant(arithmetic: &Arithmetic) -> Option<Constant> {
    match arithmetic {
        Arithmetic::Number(value) => Some(Constant { value: *value, round: 0 }),
        Arithmetic::Length | Arithmetic::Load { .. } => None,
        Arithmetic::Negate(inner) => {
            constant(inner).map(|one| Constant { value: one.value.wrapping_neg(), ..one })
        }
        Arithmetic::Binary(operator, left, right) => {
            folded(*operator, constant(left), constant(right))
        }
    }
}

/// The result that libpcap knows beforehand.
fn folded(operator: Operator, left: Option<Constant>, right: Option<Constant>) -> Option<Constant> {
    use Operator as O;
    let zero = |round| Some(Constant { value: 0, round });
    let stays_zero = matches!(operator, O::Mul | O::Div | O::Mod | O::And | O::Shl | O::Shr);
    let after_left = left.filter(|left| stays_zero && left.value == 0);
    let after_right = matches!(operator, O::Mul | O::And);
    match (left, right) {
        (Some(left), Some(right)) => match after_left.filter(|left| left.round < right.round) {
            Some(left) => zero(left.round),
            None => {
                let round = left.round.max(right.round);
                operator.apply(left.value, right.value).ok().map(|value| Constant { value, round })
            }
        },
        (None, Some(right)) if after_right && right.value == 0 => zero(right.round + 1),
        _ => after_left.and_then(|left| zero(left.round)),
    }
}

/// The first number of the text of an expression.
fn first_number(arithmetic: &Arithmetic) -> Option<u32> {
    match arithmetic {
        Arithmetic::Number(value) => Some(*value),
        Arithmetic::Length => None,
        Arithmetic::Load { index: inner, .. } | Arithmetic::Negate(inner) => first_number(inner),
        Arithmetic::Binary(_, left, _) => first_number(left),
    }
}

/// The comparison of two expressions, as a plain test if possible.
fn compare(left: &Expr, comparison: Comparison, right: &Expr) -> Condition {
    let plain = match (left, right) {
        (Expr::Const(_), Expr::Const(_)) => None,
        (field, Expr::Const(value)) => compare_field(field, comparison, *value),
        (Expr::Const(value), field) => compare_field(field, mirrored(comparison), *value),
        _ => None,
    };
    plain.unwrap_or_else(|| {
        let relation = |relation| {
            Condition::Relation(relation, Arc::new(left.clone()), Arc::new(right.clone()))
        };
        match comparison {
            Comparison::Equal => relation(Relation::Equal),
            Comparison::NotEqual => not(relation(Relation::Equal)),
            Comparison::Greater => relation(Relation::Greater),
            Comparison::LessOrEqual => not(relation(Relation::Greater)),
            Comparison::GreaterOrEqual => relation(Relation::GreaterOrEqual),
            Comparison::Less => not(relation(Relation::GreaterOrEqual)),
        }
    })
}

/// A masked field compared with a number, if that is a plain test.
fn compare_field(field: &Expr, comparison: Comparison, value: u32) -> Option<Condition> {
    let (source, mask) = masked_field(field)?;
    let test = |compare| Condition::Load(Load { source, mask, compare });
    Some(match comparison {
        Comparison::Equal => test(Compare::Equal(value)),
        Comparison::NotEqual => not(test(Compare::Equal(value))),
        Comparison::Greater => test(Compare::Range(value.checked_add(1)?, u32::MAX)),
        Comparison::LessOrEqual => test(Compare::Range(0, value)),
        Comparison::GreaterOrEqual => test(Compare::Range(value, u32::MAX)),
        Comparison::Less => test(Compare::Range(0, value.checked_sub(1)?)),
    })
}

/// A field at a fixed place or right after the IPv4 header, with the bits that are compared.
pub(crate) fn masked_field(field: &Expr) -> Option<(Source, u32)> {
    match field {
        Expr::WireLen => Some((Source::WireLen, u32::MAX)),
        Expr::Meta(field) => Some((Source::Meta(*field), u32::MAX)),
        Expr::Binary(Operator::And, inner, mask) | Expr::Binary(Operator::And, mask, inner)
            if matches!(**mask, Expr::Const(_)) =>
        {
            let Expr::Const(bits) = **mask else { return None };
            let (source, mask) = masked_field(inner)?;
            Some((source, mask & bits))
        }
        Expr::Load { index, offset, width } => {
            let (base, offset) = match &**index {
                Expr::Const(index) => (Base::Frame, index.checked_add(*offset)?),
                Expr::Binary(Operator::Add, index, header) => match (&**index, &**header) {
                    (Expr::Const(index), Expr::IpHeaderLen { ip }) if ip == offset => {
                        index.checked_add(MAX_IP_HEADER_LEN)?;
                        (Base::IpHeaderEnd { ip: *ip }, *index)
                    }
                    _ => return None,
                },
                _ => return None,
            };
            Some((Source::Bytes { base, offset, width: *width }, width.full_mask()))
        }
        _ => None,
    }
}

/// The comparison with its sides exchanged.
fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        same => same,
    }
}
