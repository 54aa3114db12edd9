//! The object of the pre-filter's programs, loaded for the arrays that they read.

use super::Arrays;
use super::layout::{ARRAYS_PLACE, TAP_BYTES, TAP_COUNTS_BYTES};
use crate::direct::Access;
use crate::error::{OpenError, VERIFYING};
use crate::space::{map, refused};
use crate::sys::Mapped;
use aya::programs::{Program, SchedClassifier, SocketFilter, Xdp};
use aya::{Ebpf, EbpfLoader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The object files, if clang was there to build them.
#[cfg(fyke_object)]
static OBJECTS: Option<Objects> = Some(Objects {
    copying: aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/prefilter.bpf.o")),
    direct: aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/prefilter_direct.bpf.o")),
});
#[cfg(not(fyke_object))]
static OBJECTS: Option<Objects> = None;

/// Object files built from one source.
#[derive(Clone, Copy)]
struct Objects {
    copying: &'static [u8],
    direct: &'static [u8],
}

/// Operation code of a load of 64 bits, in two instructions.
const LOAD_64: u8 = 0x18;
/// Mark of such a load in its register byte: the address of a map's value.
const VALUE_OF_MAP: u8 = 2 << 4;

/// Maps and programs that read some arrays.
#[derive(Debug)]
pub struct Object {
    pub ebpf: Ebpf,
    pub settings: Mapped,
    pub counts: Mapped,
    pub processors: usize,
}

impl Object {
    /// Makes the maps, and verifies the programs of these names.
    pub fn load(arrays: &Arrays, access: Access, names: &[&str]) -> Result<Object, OpenError> {
        let why = option_env!("FYKE_NO_OBJECT").unwrap_or("no clang");
        let objects = OBJECTS.ok_or(OpenError::NoObject { why })?;
        if let Access::Direct(places) = access
            && let Ok(loaded) = Object::load_one(&places.resolve(objects.direct), arrays, names)
        {
            return Ok(loaded);
        }
        Object::load_one(objects.copying, arrays, names)
    }

    fn load_one(object: &[u8], arrays: &Arrays, names: &[&str]) -> Result<Object, OpenError> {
        let processors = aya::util::nr_cpus().map_err(|(what, source)| OpenError::Refused {
            step: "counting processors",
            what: format!("{what}: {source}"),
        })?;
        let mask = (arrays.words() - 1) as u32;
        let object = with_arrays(object, arrays.map());
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("tap_counts", processors as u32).btf(None);
        loader.override_global("fyke_word_mask", &mask, true);
        let mut ebpf = loader.load(&object).map_err(refused("making the maps"))?;
        let settings = map(&ebpf, "tap", TAP_BYTES)?;
        let counts = map(&ebpf, "tap_counts", processors * TAP_COUNTS_BYTES)?;
        for name in names {
            let step = "finding the program";
            let absent = OpenError::Refused { step, what: format!("no program {name}") };
            match ebpf.program_mut(name) {
                Some(Program::SocketFilter(program)) => {
                    SocketFilter::load(program).map_err(refused(VERIFYING))?;
                }
                Some(Program::Xdp(program)) => Xdp::load(program).map_err(refused(VERIFYING))?,
                Some(Program::SchedClassifier(program)) => {
                    SchedClassifier::load(program).map_err(refused(VERIFYING))?;
                }
                _ => return Err(absent),
            }
        }
        Ok(Object { ebpf, settings, counts, processors })
    }

    /// Calls `use_it` with a loaded program.
    pub fn with_program<T>(
        &self,
        name: &str,
        use_it: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> std::io::Result<T> {
        let gone = || std::io::Error::other(format!("no program {name}"));
        let descriptor = match self.ebpf.program(name).ok_or_else(gone)? {
            Program::SocketFilter(program) => program.fd(),
            Program::Xdp(program) => program.fd(),
            Program::SchedClassifier(program) => program.fd(),
            _ => return Err(gone()),
        };
        Ok(use_it(descriptor.map_err(std::io::Error::other)?.as_fd()))
    }

    /// Sum of a counter over all processors.
    pub fn sum(&self, counter: usize) -> u64 {
        let of = |cpu| self.counts.get_double(cpu * TAP_COUNTS_BYTES + counter * 8);
        (0..self.processors).map(of).fold(0, u64::wrapping_add)
    }
}

/// Returns the object with the address of a map's value in place of the placeholder.
fn with_arrays(object: &[u8], map: BorrowedFd<'_>) -> Vec<u8> {
    let mut object = object.to_vec();
    let [low, high] = [ARRAYS_PLACE as u32, (ARRAYS_PLACE >> 32) as u32].map(u32::to_ne_bytes);
    let mut chunks = object.as_chunks_mut::<8>().0.iter_mut().peekable();
    while let Some(first) = chunks.next() {
        if first[0] != LOAD_64 || first[4..] != low {
            continue;
        }
        let Some(second) = chunks.next_if(|second| second[4..] == high) else { continue };
        first[1] = first[1] & 0xf | VALUE_OF_MAP;
        first[4..].copy_from_slice(&map.as_raw_fd().to_ne_bytes());
        second[4..].fill(0);
    }
    object
}
