//! Class `bytecount`: sums the lengths of frames and passes them. Cost: one addition per frame.

use crate::node::{Arrival, Class, Counter, Memory, Node, NodeError, Opens};
use fyke_frame::Mask;

struct ByteCount {
    bytes: u64,
    captured: u64,
    memory: Memory,
}

impl Node for ByteCount {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            self.bytes += u64::from(frame.wire_len);
            self.captured += frame.data.len() as u64;
        }
        self.memory.set(0, self.bytes);
        self.memory.set(1, self.captured);
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let (wire, captured) = (self.bytes, self.captured);
        vec![Counter::count("bytes", wire), Counter::count("captured_bytes", captured)]
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "bytecount",
    aliases: &["byte_counter"],
    summary: "sums lengths on the wire and passes the frames; word 0 of its memory is the sum",
    parameters: &[],
    memory: true,
    make: |settings| Ok(Box::new(ByteCount { bytes: 0, captured: 0, memory: settings.memory() })),
    opens: Opens::nothing,
    ..Class::NODE
};
