//! Counters of the kernel program, as the writer reads them.

use crate::layout::{COUNT_LATER, COUNT_REJECTED, COUNT_SAMPLED, LATER};
use crate::sys::{COUNTERS_BYTES, Mapped};
use std::io;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Counters of all processors. The interpreter and specialised programs have separate memory, because a specialised
/// program can address a map of one value without a look-up.
#[derive(Debug)]
pub(crate) struct Counters {
    memory: Mapped,
    specialised: Option<Mapped>,
    pub processors: usize,
    /// The maps, for a process after this one.
    maps: Vec<OwnedFd>,
}

impl Counters {
    pub(crate) fn new(memory: Mapped, processors: usize) -> Counters {
        Counters { memory, specialised: None, processors, maps: Vec::new() }
    }

    /// Adds the counters of specialised programs.
    pub fn and(self, specialised: Mapped) -> Counters {
        Counters { specialised: Some(specialised), ..self }
    }

    /// Keeps the maps, for a process after this one.
    pub fn with_maps(self, maps: Vec<OwnedFd>) -> Counters {
        Counters { maps, ..self }
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

    /// Frames that no pass accepted.
    pub fn rejected(&self) -> u64 {
        let later = (COUNT_LATER..COUNT_LATER + LATER).map(|index| self.sum(index));
        later.fold(self.sum(COUNT_REJECTED), u64::wrapping_add)
    }
}

/// Reads the counters of a program while another thread edits its passes.
#[derive(Debug, Clone)]
pub struct CountReader(pub(crate) Arc<Counters>);

impl CountReader {
    /// Reads the counters of a program that a process before this one has loaded, from its [`maps`](Self::maps).
    ///
    /// # Errors
    /// They are not such maps.
    pub fn of(maps: &[OwnedFd]) -> io::Result<CountReader> {
        let [memory, specialised] = maps else {
            return Err(io::Error::other(format!("{} maps, expected 2", maps.len())));
        };
        let processors = processors()?;
        let open = |map: &OwnedFd| Mapped::new(map.as_fd(), processors * COUNTERS_BYTES);
        let counters = Counters::new(open(memory)?, processors).and(open(specialised)?);
        Ok(CountReader(Arc::new(counters)))
    }

    /// The maps of the counters, for a process after this one.
    pub fn maps(&self) -> Vec<BorrowedFd<'_>> {
        self.0.maps.iter().map(AsFd::as_fd).collect()
    }

    /// Frames that no pass accepted, with those of [`later`](Self::later).
    pub fn rejected(&self) -> u64 {
        self.0.rejected()
    }

    /// The part of them that passes of the class [`later`](crate::later) have rejected, for each counter.
    pub fn later(&self) -> [u64; LATER] {
        std::array::from_fn(|slot| self.0.sum(COUNT_LATER + slot))
    }

    /// Frames that no pass accepted and that were accepted as a sample; not part of the rejected ones.
    pub fn sampled(&self) -> u64 {
        self.0.sum(COUNT_SAMPLED)
    }
}

/// Number of processors for which counters exist.
fn processors() -> io::Result<usize> {
    aya::util::nr_cpus().map_err(|(what, source)| io::Error::new(source.kind(), what))
}
