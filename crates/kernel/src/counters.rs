//! Counters of the program, for the writer.

use crate::sys::{COUNTERS_BYTES, Mapped};
use std::iter;

/// The counters of all processors: of the interpreter and of specialised programs, which have memory of their own
/// because one value can be addressed without a look-up.
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

    /// With the counters of specialised programs.
    pub fn and(self, specialised: Mapped) -> Counters {
        Counters { specialised: Some(specialised), ..self }
    }

    #[cfg(test)]
    pub fn without_kernel() -> Counters {
        let memory = Mapped::anonymous(COUNTERS_BYTES).expect("memory for a test");
        Counters::new(memory, 1)
    }

    /// The sum of a number over all processors.
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
