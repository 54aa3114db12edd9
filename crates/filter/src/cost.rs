//! Upper bounds for the cost of a condition: the number of tests, and the bytes of the frame that
//! are read.

use fyke_frame::Condition;
use fyke_frame::condition::{Base, Expr, Load, Source, Visit};
use std::sync::Arc;

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

impl<'c> Visit<'c> for Cost {
    fn condition(&mut self, condition: &'c Condition) {
        match condition {
            Condition::Const(_) | Condition::All(_) | Condition::Any(_) | Condition::Not(_) => {}
            Condition::Load(load) => {
                self.tests += 1;
                self.load(load);
            }
            Condition::Address6(address) => {
                self.tests += 4;
                self.reach(u64::from(address.offset) + 16);
            }
            Condition::Relation(..) => self.tests += 1,
            Condition::Chain(chain) => {
                self.tests += 1;
                self.varies = true;
                self.reach(u64::from(chain.ip) + if chain.v6 { 40 } else { IP_HEADER_LEN });
            }
        }
        condition.parts(self);
    }

    fn expression(&mut self, expr: &'c Arc<Expr>) {
        match &**expr {
            Expr::IpHeaderLen { ip } => self.reach(u64::from(*ip) + 1),
            Expr::Load { index, offset, width } => match **index {
                Expr::Const(index) => {
                    self.reach(u64::from(index) + u64::from(*offset) + *width as u64);
                }
                _ => self.varies = true,
            },
            _ => {}
        }
        expr.parts(self);
    }
}

impl Cost {
    fn load(&mut self, load: &Load) {
        let Source::Bytes { base, offset, width } = &load.source else { return };
        let end = u64::from(*offset) + *width as u64;
        match base {
            Base::Frame => self.reach(end),
            Base::IpHeaderEnd { ip } => {
                self.varies = true;
                self.reach(u64::from(*ip) + IP_HEADER_LEN + end);
            }
            Base::Computed(_) => {
                self.varies = true;
                self.reach(end);
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
