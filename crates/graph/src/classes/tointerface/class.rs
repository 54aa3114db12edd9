//! Class `tointerface`: sends frames on a network interface and passes them. Cost: one system call per frame.
//!
//! If the interface's queue is full, the node waits at most 20 ms per batch; after that, frames are lost and do not
//! pass. Frames are also lost while the interface is down or gone. The graph continues.

use crate::node::{Arrival, Class, Counter, MakeError, Node, NodeError, Opens, Parameter};
use crate::snaplen::{SNAPLEN, cut, snaplen};
use fyke_capture::{InterfaceSink, Sink};
use fyke_frame::Mask;

struct ToInterface {
    sink: InterfaceSink,
    snaplen: usize,
}

impl Node for ToInterface {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let (until, mut lost) = (InterfaceSink::deadline(), Mask::EMPTY);
        for (index, frame) in arrival.frames() {
            let frame = cut(frame, self.snaplen);
            if !self.sink.send(&frame, until).map_err(NodeError::new)? {
                lost.set(index);
            }
        }
        arrival.lose(lost);
        Ok(arrival.mask().without(lost))
    }

    fn counters(&self) -> Vec<Counter> {
        let (stats, losses) = (self.sink.stats(), self.sink.losses());
        vec![
            Counter::count("sent", stats.frames),
            Counter::count("refused", stats.refused),
            Counter::count("queue_full", losses.queue_full),
            Counter::count("interface_down", losses.down),
        ]
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
    opens: |_| Opens::Device,
    ..Class::NODE
};
