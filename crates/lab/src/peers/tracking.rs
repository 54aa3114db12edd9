//! "Opt-C" of the dynamic comparison: a hand-written kernel filter that tracks FTP by itself.
//!
//! `tracking/track.bpf.c` is compiled by the machine's own clang at the start of the comparison, as the static
//! peers are by its C compiler. It shows the optimum for one protocol: it needs no updates, so no update is ever
//! late. Another protocol needs another program.

use super::opt_c::{CompileError, Folder};
use aya::maps::{Array, MapError};
use aya::programs::{ProgramError, SocketFilter};
use aya::{Ebpf, EbpfError};
use std::os::fd::AsFd;
use std::process::Command;
use std::{fs, io};

const SOURCE: &str = include_str!("tracking/track.bpf.c");

/// Reason why the filter was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum TrackingError {
    /// clang is not installed, or refuses the source.
    #[error("clang: {0}")]
    Compile(#[from] CompileError),
    /// A system call failed.
    #[error(transparent)]
    Load(#[from] EbpfError),
    /// The kernel refuses the program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The program has no such map.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// The filter, loaded.
#[derive(Debug)]
pub struct TrackingFilter(Ebpf);

impl TrackingFilter {
    /// Compiles and loads the filter.
    ///
    /// # Errors
    /// [`TrackingError`], for example without clang or without privilege.
    pub fn load() -> Result<TrackingFilter, TrackingError> {
        let object = compile()?;
        let mut ebpf = Ebpf::load(&object)?;
        program(&mut ebpf)?.load()?;
        Ok(TrackingFilter(ebpf))
    }

    /// Attaches it to a socket, for the lifetime of `self`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn attach(&mut self, socket: impl AsFd) -> Result<(), TrackingError> {
        program(&mut self.0)?.attach(socket)?;
        Ok(())
    }

    /// Number of frames that it has accepted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accepted(&self) -> Result<u64, TrackingError> {
        let map = self.0.map("counts").ok_or_else(|| io::Error::other("no map of counts"));
        let map = map.map_err(CompileError::Start)?;
        Ok(Array::<_, u64>::try_from(map)?.get(&0, 0)?)
    }
}

fn program(ebpf: &mut Ebpf) -> Result<&mut SocketFilter, TrackingError> {
    let gone = || CompileError::Refused("the object has no program `track`".into());
    Ok(ebpf.program_mut("track").ok_or_else(gone)?.try_into()?)
}

fn compile() -> Result<Vec<u8>, CompileError> {
    let folder = Folder::new()?;
    let (input, output) = (folder.0.join("track.bpf.c"), folder.0.join("track.o"));
    fs::write(&input, SOURCE)?;
    let mut command = Command::new(std::env::var("CLANG").unwrap_or_else(|_| "clang".into()));
    command.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"]);
    // Debian has <asm/types.h> in a folder named after the machine.
    for entry in fs::read_dir("/usr/include")?.flatten() {
        if entry.path().join("asm/types.h").is_file() {
            command.arg("-I").arg(entry.path());
        }
    }
    let run = command.arg(&input).arg("-o").arg(&output).output()?;
    if !run.status.success() {
        let text = String::from_utf8_lossy(&run.stderr);
        return Err(CompileError::Refused(text.lines().next().unwrap_or_default().to_owned()));
    }
    Ok(fs::read(&output)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_takes_it() {
        let loaded = TrackingFilter::load().map_err(|error| error.to_string());
        let is_missing = |error: &String| error.contains("os error 1)");
        let Some(filter) = fyke_testkit::skip::unless_missing(loaded, is_missing) else { return };
        assert_eq!(filter.accepted().unwrap(), 0);
    }
}
