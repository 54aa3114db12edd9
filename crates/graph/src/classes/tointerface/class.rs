//! Class `tointerface`: sends frames on a network interface and passes them. Cost: one system call per frame.

use crate::node::{Arrival, Class, Counter, MakeError, Node, NodeError};
use fyke_capture::{InterfaceSink, Sink};
use fyke_frame::Mask;

struct ToInterface {
    sink: InterfaceSink,
}

impl Node for ToInterface {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            self.sink.write(arrival.interface(frame), frame).map_err(NodeError::new)?;
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let stats = self.sink.stats();
        vec![Counter::count("sent", stats.frames), Counter::count("refused", stats.refused)]
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "tointerface",
    aliases: &["transmit"],
    summary: "sends frames on the network interface `expression` and passes them",
    check: Some(|settings| settings.required("expression").map(|_| ())),
    make: |settings| {
        let sink = InterfaceSink::open(settings.required("expression")?);
        let sink = sink.map_err(|error| MakeError::refused("expression", error))?;
        Ok(Box::new(ToInterface { sink }))
    },
    ..Class::NODE
};
