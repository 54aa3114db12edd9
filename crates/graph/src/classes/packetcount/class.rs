//! Class `packetcount`: counts frames and passes them. Cost: one population count per batch.

use crate::node::{Arrival, Class, Counter, Memory, Node, NodeError, Opens};
use fyke_frame::Mask;

struct PacketCount {
    packets: u64,
    memory: Memory,
}

impl Node for PacketCount {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.mask())
    }

    fn settle(&mut self, frames: Mask) {
        self.packets += frames.count() as u64;
        self.memory.set(0, self.packets);
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("packets", self.packets)]
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "packetcount",
    aliases: &["pkt_counter", "host_packetcount"],
    summary: "counts frames and passes them; word 0 of its memory is the count",
    parameters: &[],
    memory: true,
    repeatable: true,
    make: |settings| Ok(Box::new(PacketCount { packets: 0, memory: settings.memory() })),
    opens: Opens::nothing,
    ..Class::NODE
};
