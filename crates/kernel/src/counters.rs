//! Counters of the kernel program, as the writer reads them.

use crate::layout::{COUNT_REJECTED, COUNT_SAMPLED};
use crate::sys::{COUNTERS_BYTES, Mapped};
use std::iter;
use std::sync::Arc;

/// Counters of all processors. The interpreter and specialised programs have separate memory, because a specialised
/// program can address a map of one value without a look-up.
#[derive(Debug)]
pub(crate) struct Counters {
    memory: Mapped,
    specialised: Option<Mapped>,
    pub processors: usize,
}

impl Counters {
    pub(crate) fn new(memory: Mapped, processors: usize) -> Counters {
        Counters { memory, specialised: None, processors }
    }

    /// Adds the counters of specialised programs.
    pub fn and(self, specialised: Mapped) -> Counters {
        Counters { specialised: Some(specialised), ..self }
    }

    #[cfg(test)]
    pub fn without_kernel() -> Counters {
        let memory = Mapped::anonymous(COUNTERS_BYTES).expect("memory for a test");
        Counters::new(memory, 1)
    }

    /// Sum of one counter over all processors.
    pub fn sum(&self, index: usize) -> u64 {
        iter::once(&self.memory)
            .chain(&self.specialised)
            .flat_map(|memory| {
                let of = |cpu| memory.get_double(cpu * COUNTERS_BYTES + index * 8);
                (0..self.processors).map(of)
            })
            .fold(0, u64::wrapping_add)
    }
}

/// Reads the counters of a program while another thread edits its passes.
#[derive(Debug, Clone)]
pub struct CountReader(pub(crate) Arc<Counters>);

impl CountReader {
    /// Frames that no pass accepted.
    pub fn rejected(&self) -> u64 {
        self.0.sum(COUNT_REJECTED)
    }

    /// Frames that no pass accepted and that were accepted as a sample; not part of the rejected ones.
    pub fn sampled(&self) -> u64 {
        self.0.sum(COUNT_SAMPLED)
    }
}
