//! Class `arrow`: copies the frames that arrive into batches for Python.
//!
//! A batch ends with its number of frames, with [`MAX_BYTES`] of them, or, if Python waits, after a tenth of a second.
//! Frames that Python does not take are lost, with the reason `writer`.

use crate::columns::{Columns, Wanted};
use crate::queue::Queue;
use fyke::frame::{Layers, Mask};
use fyke::graph::node::{Arrival, Class, Emitted, MakeError, Node, NodeError, Opens};
use std::sync::Arc;
use std::time::Duration;

/// Name of the class.
pub const NAME: &str = "arrow";
/// Most bytes of frames in a batch, but for the last one.
const MAX_BYTES: usize = 16 << 20;

/// The class; its node is given by the program, once.
pub const CLASS: Class = Class {
    name: NAME,
    summary: "gives the frames to this Python program",
    parameters: &[],
    waits: true,
    opens: Opens::nothing,
    check: Some(|_| Ok(())),
    make: |_| {
        let message = "the node (arrow) exists once, from the start of the graph: an edit leaves it where it is";
        Err(MakeError::new("", message))
    },
    ..Class::NODE
};

/// The node.
pub struct Sink {
    columns: Columns,
    rows: usize,
    queue: Arc<Queue>,
    /// Frames that passed and were discarded.
    lost: u64,
    finished: bool,
}

impl Sink {
    /// A node that fills batches of at most `rows`.
    pub fn new(wanted: &Wanted, rows: usize, queue: Arc<Queue>) -> Sink {
        Sink { columns: Columns::new(wanted, rows), rows, queue, lost: 0, finished: false }
    }

    /// Gives the frames so far to Python.
    fn flush(&mut self) -> Result<(), NodeError> {
        let rows = self.columns.len();
        if rows > 0 && !self.queue.push(self.columns.take().map_err(NodeError::new)?) {
            self.lost += rows as u64;
        }
        Ok(())
    }
}

impl Node for Sink {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut layers = Layers::new();
        for at in arrival.frames() {
            self.columns.push(arrival, at, &mut layers);
            if self.columns.len() >= self.rows || self.columns.bytes() >= MAX_BYTES {
                self.flush()?;
            }
        }
        Ok(arrival.mask())
    }

    fn tick(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        // A batch that waits is not hurried: the next one grows meanwhile.
        if self.queue.is_empty(Duration::ZERO) { self.flush() } else { Ok(()) }
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        Ok(match self.finished {
            true => self.queue.is_empty(patience),
            false => self.queue.has_room(patience),
        })
    }

    fn give_up(&mut self) {
        self.queue.close();
    }

    fn lost(&self) -> u64 {
        self.lost + self.queue.discarded()
    }

    fn finish(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        self.finished = true;
        self.flush()
    }
}
