//! Text of conditions that have no instruction of their own: `P[14 + iplen(14) + 13] & 0x12 == 0x2`.
//!
//! `P[a:w]` are `w` bytes at frame offset `a`, `iplen(k)` is the length of the IPv4 header at `k`. Recursion is as deep
//! as the condition, which lowering limits.

use fyke_frame::Condition;
use fyke_frame::condition::{Base, Compare, Expr, MetaField, Relation, Source};
use std::fmt;

/// Prints a condition.
pub(crate) struct Shown<'a>(pub &'a Condition);

struct ShownExpr<'a>(&'a Expr);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Condition::Const(value) => write!(f, "{value}"),
            Condition::All(operands) => list(f, operands, " and "),
            Condition::Any(operands) => list(f, operands, " or "),
            Condition::Not(inner) => write!(f, "not {}", Shown(inner)),
            Condition::Load(load) => {
                match &load.source {
                    Source::Bytes { base, offset, width } => {
                        f.write_str("P[")?;
                        match base {
                            Base::Frame => {}
                            Base::IpHeaderEnd { ip } => write!(f, "{ip} + iplen({ip}) + ")?,
                            Base::Computed(expr) => write!(f, "{} + ", ShownExpr(expr))?,
                        }
                        write!(f, "{offset}:{}]", *width as u8)?;
                    }
                    Source::WireLen => f.write_str("len")?,
                    Source::Meta(field) => f.write_str(metadata(*field))?,
                }
                if load.mask != u32::MAX {
                    write!(f, " & {:#x}", load.mask)?;
                }
                match &load.compare {
                    Compare::Equal(value) => write!(f, " == {value:#x}"),
                    Compare::Range(low, high) => write!(f, " in {low}-{high}"),
                    Compare::OneOf(values) => write!(f, " in {} values", values.len()),
                }
            }
            Condition::Address6(address) => {
                let value = std::net::Ipv6Addr::from(address.value);
                let mask = std::net::Ipv6Addr::from(address.mask);
                write!(f, "P[{}:16] & {mask} == {value}", address.offset)
            }
            Condition::Relation(relation, left, right) => {
                let sign = match relation {
                    Relation::Equal => "==",
                    Relation::Greater => ">",
                    Relation::GreaterOrEqual => ">=",
                };
                write!(f, "{} {sign} {}", ShownExpr(left), ShownExpr(right))
            }
            Condition::Chain(chain) => {
                let version = if chain.v6 { 6 } else { 4 };
                write!(f, "{} in the header chain of IPv{version} at {}", chain.protocol, chain.ip)
            }
        }
    }
}

fn metadata(field: MetaField) -> &'static str {
    match field {
        MetaField::Direction => "direction",
        MetaField::IfIndex => "ifindex",
        MetaField::PacketType => "packet type",
        MetaField::VlanPresent => "tag present",
        MetaField::VlanTag => "tag",
    }
}

fn list(f: &mut fmt::Formatter<'_>, operands: &[Condition], join: &str) -> fmt::Result {
    for (index, operand) in operands.iter().enumerate() {
        write!(f, "{}({})", if index == 0 { "" } else { join }, Shown(operand))?;
    }
    Ok(())
}

impl fmt::Display for ShownExpr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expr::Const(value) if *value < 256 => write!(f, "{value}"),
            Expr::Const(value) => write!(f, "{value:#x}"),
            Expr::WireLen => f.write_str("len"),
            Expr::Meta(field) => f.write_str(metadata(*field)),
            Expr::IpHeaderLen { ip } => write!(f, "iplen({ip})"),
            Expr::Load { index, offset, width } => {
                write!(f, "P[{} + {offset}:{}]", ShownExpr(index), *width as u8)
            }
            Expr::Negate(inner) => write!(f, "-{}", ShownExpr(inner)),
            Expr::Select(condition, then, otherwise) => {
                let (then, otherwise) = (ShownExpr(then), ShownExpr(otherwise));
                write!(f, "({} ? {then} : {otherwise})", Shown(condition))
            }
            Expr::Binary(operator, left, right) => {
                let sign = operator.sign();
                write!(f, "({} {sign} {})", ShownExpr(left), ShownExpr(right))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::condition::Operator;
    use std::sync::Arc;

    #[test]
    fn arithmetic_reads_like_arithmetic() {
        let load = Arc::new(Expr::Load {
            index: Arc::new(Expr::IpHeaderLen { ip: 14 }),
            offset: 27,
            width: fyke_frame::condition::Width::One,
        });
        let sum = Expr::Binary(Operator::Add, load, Arc::new(Expr::WireLen));
        let seven = Arc::new(Expr::Const(7));
        let condition = Condition::Relation(Relation::Greater, Arc::new(sum), seven);
        assert_eq!(Shown(&condition).to_string(), "(P[iplen(14) + 27:1] + len) > 7");
    }
}
