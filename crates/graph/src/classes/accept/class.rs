//! Class `accept`: passes every frame. Cost: nothing per frame.

use crate::node::{Arrival, Class, Node, NodeError, Opens};
use fyke_frame::Mask;

struct Accept;

impl Node for Accept {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.mask())
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "accept",
    aliases: &["inspect", "to_buffer"],
    summary: "passes every frame",
    parameters: &[],
    make: |_| Ok(Box::new(Accept)),
    repeatable: true,
    parallel: true,
    opens: Opens::nothing,
    ..Class::NODE
};
