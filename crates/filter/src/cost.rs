//! Upper bounds for the cost of a condition: the number of tests, and the bytes of the frame that
//! are read.

use fyke_frame::Condition;
use fyke_frame::condition::{Base, Expr, Load, Source, Width};

/// The most work that one frame can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Most tests.
    pub tests: usize,
    /// Frames with at least this many captured bytes contain all bytes that are read, unless
    /// `varies`.
    pub bytes: u64,
    /// True if the places of some bytes depend on the frame; `bytes` assumes an IPv4 header without
    /// options for them.
    pub varies: bool,
}

/// The cost of a condition. Takes a visit of every part of it.
pub fn cost(condition: &Condition) -> Cost {
    let mut cost = Cost::default();
    cost.condition(condition);
    cost
}

/// Length of an IPv4 header without options.
const IP_HEADER_LEN: u64 = 20;

impl Cost {
    fn condition(&mut self, condition: &Condition) {
        match condition {
            Condition::Const(_) => {}
            Condition::All(operands) | Condition::Any(operands) => {
                operands.iter().for_each(|operand| self.condition(operand));
            }
            Condition::Not(inner) => self.condition(inner),
            Condition::Load(load) => {
                self.tests += 1;
                self.load(load);
            }
            Condition::Address6(address) => {
                self.tests += 4;
                self.reach(u64::from(address.offset) + 16);
            }
            Condition::Relation(_, left, right) => {
                self.tests += 1;
                self.expression(left);
                self.expression(right);
            }
            Condition::Chain(chain) => {
                self.tests += 1;
                self.varies = true;
                self.reach(u64::from(chain.ip) + if chain.v6 { 40 } else { IP_HEADER_LEN });
            }
        }
    }

    fn load(&mut self, load: &Load) {
        let Source::Bytes { base, offset, width } = &load.source else { return };
        let end = u64::from(*offset) + *width as u64;
        match base {
            Base::Frame => self.reach(end),
            Base::IpHeaderEnd { ip } => {
                self.varies = true;
                self.reach(u64::from(*ip) + IP_HEADER_LEN + end);
            }
            Base::Computed(place) => {
                self.varies = true;
                self.reach(end);
                self.expression(place);
            }
        }
    }

    fn expression(&mut self, expr: &Expr) {
        match expr {
            Expr::Const(_) | Expr::WireLen | Expr::Meta(_) => {}
            Expr::IpHeaderLen { ip } => self.reach(u64::from(*ip) + 1),
            Expr::Load { index, offset, width } => self.byte_expression(index, *offset, *width),
            Expr::Negate(inner) => self.expression(inner),
            Expr::Binary(_, left, right) => {
                self.expression(left);
                self.expression(right);
            }
            Expr::Select(condition, then, otherwise) => {
                self.condition(condition);
                self.expression(then);
                self.expression(otherwise);
            }
        }
    }

    fn byte_expression(&mut self, index: &Expr, offset: u32, width: Width) {
        match index {
            Expr::Const(index) => {
                self.reach(u64::from(*index) + u64::from(offset) + width as u64);
            }
            computed => {
                self.varies = true;
                self.expression(computed);
            }
        }
    }

    fn reach(&mut self, end: u64) {
        self.bytes = self.bytes.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, compile};

    #[test]
    fn costs_are_counted() {
        let of = |text: &str| {
            let predicate = compile(text, &Options::default()).unwrap();
            let first = predicate.root().primitives().next().map(|one| cost(&one.condition));
            first.unwrap()
        };
        assert_eq!(of("ip"), Cost { tests: 1, bytes: 14, varies: false });
        assert_eq!(of("ip host 10.0.0.1"), Cost { tests: 3, bytes: 34, varies: false });
        assert_eq!(of("ip6[6] = 6").bytes, 21);
        assert!(of("tcp port 80").varies);
    }
}
