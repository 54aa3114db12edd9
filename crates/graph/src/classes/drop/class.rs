//! Class `drop`: passes no frame. Cost: nothing per frame.

use crate::node::{Arrival, Class, Node, NodeError, Opens};
use fyke_frame::Mask;

struct Drop;

impl Node for Drop {
    fn process(&mut self, _: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(Mask::EMPTY)
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "drop",
    summary: "passes no frame",
    parameters: &[],
    make: |_| Ok(Box::new(Drop)),
    repeatable: true,
    parallel: true,
    opens: Opens::nothing,
    ..Class::NODE
};
