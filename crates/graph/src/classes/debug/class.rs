//! Class `debug`: prints one line per frame to standard error, up to a limit, and passes the frame.

use crate::node::{Arrival, Class, Counter, Node, NodeError, Opens, Parameter};
use fyke_frame::Mask;
use std::io::{Write, stderr};

struct Debug {
    left: u64,
    silent: u64,
}

impl Node for Debug {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (index, frame) in arrival.frames() {
            if self.left == 0 {
                self.silent += 1;
                continue;
            }
            self.left -= 1;
            // A failed write does not matter: the text is for people only.
            let _ = writeln!(
                stderr(),
                "debug: {}.{:09} {} {} of {} bytes, class {}",
                frame.timestamp_ns / 1_000_000_000,
                frame.timestamp_ns % 1_000_000_000,
                frame.link,
                frame.data.len(),
                frame.wire_len,
                arrival.class(index)
            );
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("not_shown", self.silent)]
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "debug",
    summary: "prints one line per frame to standard error and passes the frame",
    parameters: &[Parameter { name: "limit", summary: "most lines (1000)" }],
    make: |settings| {
        let left = settings.number_or("limit", 0..=u64::MAX, 1000)?;
        Ok(Box::new(Debug { left, silent: 0 }))
    },
    // Standard error.
    opens: |_| Opens::File,
    ..Class::NODE
};
