//! Class `tointerface`: sends frames on a network interface and passes them. Cost: one system call per frame.

use crate::node::{Arrival, Class, Counter, MakeError, Node, NodeError, Parameter};
use crate::snaplen::{SNAPLEN, cut, snaplen};
use fyke_capture::{InterfaceSink, Sink};
use fyke_frame::Mask;

struct ToInterface {
    sink: InterfaceSink,
    snaplen: usize,
}

impl Node for ToInterface {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            let interface = arrival.interface(frame);
            let frame = cut(frame, self.snaplen);
            self.sink.write(interface, &frame).map_err(NodeError::new)?;
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
    parameters: &[Parameter { name: "expression", summary: "the interface" }, SNAPLEN],
    check: Some(|settings| {
        settings.required("expression")?;
        snaplen(settings).map(drop)
    }),
    make: |settings| {
        let sink = InterfaceSink::open(settings.required("expression")?);
        let sink = sink.map_err(|error| MakeError::refused("expression", error))?;
        Ok(Box::new(ToInterface { sink, snaplen: snaplen(settings)? }))
    },
    ..Class::NODE
};
