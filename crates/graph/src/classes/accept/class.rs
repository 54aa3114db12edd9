//! Class `accept`: passes every frame, or those of one direction. Cost: nothing per frame, or one comparison.

use crate::node::{Arrival, Class, MakeError, Needs, Node, NodeError, Opens, Parameter, Settings};
use fyke_frame::{Direction, Frame, Mask};

/// Frames that are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    All,
    In,
    Out,
}

struct Accept(Way);

impl Node for Accept {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let goes_out = |frame: &Frame<'_>| frame.meta.direction == Direction::Outbound;
        Ok(match self.0 {
            Way::All => arrival.mask(),
            // As libpcap's `inbound` on an interface: everything that this machine has not sent.
            Way::In => arrival.select(|frame| !goes_out(frame)),
            Way::Out => arrival.select(goes_out),
        })
    }
}

fn way(settings: &Settings) -> Result<Way, MakeError> {
    let ways = [Way::All, Way::In, Way::Out];
    let way = ways[settings.choice("direction", &["inout", "in", "out"])?];
    if way == Way::Out && settings.incoming_only() {
        let message = "out: `xdp:IF` captures incoming frames only, so no frame would pass; the device IF, without \
                       `xdp:`, captures those of both directions";
        return Err(MakeError::new("direction", message));
    }
    Ok(way)
}

/// The class.
pub const CLASS: Class = Class {
    name: "accept",
    aliases: &["inspect", "to_buffer"],
    summary: "passes every frame, or those of one direction",
    parameters: &[Parameter {
        name: "direction",
        summary: "in, out: only frames that arrived, that this machine sent (inout)",
    }],
    needs: |settings| match way(settings) {
        Ok(Way::In | Way::Out) => Needs::ThoseAfter,
        _ => (Class::NODE.needs)(settings),
    },
    check: Some(|settings| way(settings).map(drop)),
    make: |settings| Ok(Box::new(Accept(way(settings)?))),
    repeatable: true,
    parallel: true,
    opens: Opens::nothing,
    ..Class::NODE
};
