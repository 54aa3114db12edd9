//! Class `field`: gives each frame a header field as its class value, for class edges (`-80->`).
//!
//! Frames without the field are rejected. Fields are those of the innermost packet. Cost: a header walk. Source:
//! Streamline's `(sourceport) -80-> (inspect)`.

use crate::node::{Arrival, Class, Node, NodeError, Opens, Parameter};
use fyke_frame::{Frame, Mask, walk};

const FIELDS: [&str; 4] = ["sourceport", "destport", "protocol", "ipversion"];

struct Field(usize);

impl Field {
    fn value(&self, frame: &Frame<'_>) -> Option<u16> {
        let layers = walk(frame);
        match FIELDS[self.0] {
            "sourceport" => layers.ports().map(|ports| ports.source),
            "destport" => layers.ports().map(|ports| ports.destination),
            "protocol" => layers.innermost_level()?.ip_protocol().map(u16::from),
            _ => match layers.innermost_ip()?.source() {
                std::net::IpAddr::V4(_) => Some(4),
                std::net::IpAddr::V6(_) => Some(6),
            },
        }
    }
}

impl Node for Field {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut passed = Mask::EMPTY;
        for (index, frame) in arrival.frames() {
            if let Some(value) = self.value(frame) {
                arrival.classify(index, value.into());
                passed.set(index);
            }
        }
        Ok(passed)
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "field",
    summary: "gives frames the header field `expression` as class value",
    parameters: &[Parameter {
        name: "expression",
        summary: "sourceport (default), destport, protocol, ipversion",
    }],
    classifies: true,
    make: |settings| Ok(Box::new(Field(settings.choice("expression", &FIELDS)?))),
    repeatable: true,
    parallel: true,
    opens: Opens::nothing,
    ..Class::NODE
};
