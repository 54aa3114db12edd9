//! Copies of passes to be specialised, and the programs generated from them; `tier.rs` decides when to specialise.

use crate::direct::Access;
use crate::ebpf::{Kind, Program, ProgramError};
use crate::passes::Covered;
use crate::specialise::{self, Maps};
use crate::sys::TestRun;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Passes to be specialised, and the maps that the program will use.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) passes: Vec<Covered>,
    pub(crate) maps: OwnedMaps,
    pub(crate) count_rejected: bool,
    /// Frames with fewer bytes, or fewer after the IPv4 header, are evaluated in the texts' own order.
    pub(crate) short: (u32, u32),
}

#[derive(Debug)]
pub(crate) struct OwnedMaps {
    pub passes: OwnedFd,
    pub rows: OwnedFd,
    pub tallies: OwnedFd,
    pub processors: u32,
    pub tiers: OwnedFd,
}

/// A specialised program, not yet in use.
#[derive(Debug)]
pub struct Specialised {
    pub(crate) program: Program,
    access: Access,
    pub(crate) covered: Vec<Covered>,
}

impl OwnedMaps {
    pub(crate) fn lend(&self) -> Maps<'_> {
        Maps {
            passes: self.passes.as_fd(),
            rows: self.rows.as_fd(),
            tallies: self.tallies.as_fd(),
            processors: self.processors,
            tiers: self.tiers.as_fd(),
        }
    }
}

impl Specialised {
    pub(crate) fn new(program: Program, access: Access, covered: Vec<Covered>) -> Specialised {
        Specialised { program, access, covered }
    }

    /// Generates and loads the program of passes that can be generated.
    pub(crate) fn make(
        covered: Vec<Covered>,
        maps: Maps<'_>,
        access: Access,
        count_rejected: bool,
        short: (u32, u32),
    ) -> Result<Specialised, ProgramError> {
        let made = |access| {
            let code = specialise::write(&covered, maps, access, count_rejected, short)?;
            Program::load(Kind::SocketFilter, &code)
        };
        let (program, access) = match made(access) {
            Err(ProgramError::Refused { .. }) if access != Access::Copied => {
                (made(Access::Copied)?, Access::Copied)
            }
            made => (made?, access),
        };
        Ok(Specialised { program, access, covered })
    }

    /// Number of passes that the program covers.
    pub fn covered(&self) -> usize {
        self.covered.len()
    }

    /// As [`crate::Space::test_run`] would be if the space still had the passes of the snapshot and had adopted it.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        self.program.test_run(frame, repeat)
    }

    /// Access to a frame's bytes.
    pub fn access(&self) -> Access {
        self.access
    }
}

impl Snapshot {
    /// Generates, verifies and compiles the program: a tenth of a millisecond for a few passes, tens of milliseconds
    /// for hundreds.
    ///
    /// # Errors
    /// The kernel refuses; the interpreter continues to run.
    pub fn specialise(self) -> Result<Specialised, ProgramError> {
        self.specialise_with(Access::best())
    }

    /// As [`Snapshot::specialise`], for a program with this access to the frame's bytes, or with copies if the kernel
    /// refuses this access.
    ///
    /// # Errors
    /// The kernel refuses; the interpreter continues to run.
    pub fn specialise_with(self, access: Access) -> Result<Specialised, ProgramError> {
        let covered = specialise::choose(self.passes);
        Specialised::make(covered, self.maps.lend(), access, self.count_rejected, self.short)
    }
}
