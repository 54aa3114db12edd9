//! Sandbox of a process, for root and other users alike: Landlock restricts files, seccomp restricts system calls.
//!
//! | part | what it allows | not enforced |
//! |---|---|---|
//! | Landlock | folders and TCP ports that [`Rules`] name; no signals to other processes | before Linux 5.13 |
//! | seccomp | a list of system calls; all others fail with EPERM | where the kernel is built without it |
//!
//! Both last until the process ends and apply to threads that start later. Open descriptors are not affected. A denied
//! call fails; the process is not killed. Source: landlock(7), seccomp(2).

mod calls;
mod files;
#[cfg(test)]
mod tests;

use crate::user;
use std::io;
use std::path::{Path, PathBuf};

/// Access that a process needs inside the sandbox, beyond its open descriptors.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Folders in which the process makes, overwrites and removes files.
    pub writes: Vec<PathBuf>,
    /// Folders and files that the process reads.
    pub reads: Vec<PathBuf>,
    /// Folders in which the process removes files.
    pub removes: Vec<PathBuf>,
    /// Allows the process to open internet and Unix sockets, no packet sockets.
    pub opens_sockets: bool,
    /// Ports of TCP that the process connects to; before Linux 6.7 any, if there is one.
    pub connects_to: Vec<u16>,
    /// Allows the process to make memory that it shares with others.
    pub makes_memory: bool,
    /// Allows the process to query interfaces and to bind sockets to them.
    pub looks_at_interfaces: bool,
    /// Allows the process to open packet sockets with rings, and groups of them; it needs the capability for it, too.
    pub opens_packet_rings: bool,
    /// Allows the process to send frames through an interface.
    pub sends_frames: bool,
    /// Allows the process to make memory executable, for programs compiled to machine code.
    pub makes_code: bool,
    /// Allows the process to load eBPF programs, and no other operation of bpf(2); it needs the capability, too.
    pub loads_programs: bool,
}

impl Rules {
    /// True if the process opens any files.
    pub fn opens_files(&self) -> bool {
        !self.writes.is_empty() || !self.reads.is_empty()
    }
}

/// Parts of the sandbox that the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enforced {
    /// True if Landlock is enforced, as far as this kernel supports it.
    pub files: bool,
    /// True if seccomp is enforced.
    pub calls: bool,
}

/// Failure to enter a sandbox that the kernel supports.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Landlock refuses.
    #[error("cannot restrict files (Landlock): {0}")]
    Files(#[from] landlock::RulesetError),
    /// A folder of the rules cannot be opened.
    #[error("cannot restrict files (Landlock): {0}")]
    Folder(#[from] landlock::PathFdError),
    /// The list of system calls cannot be compiled to a BPF program.
    #[error("cannot restrict system calls (seccomp): {0}")]
    Calls(#[from] seccompiler::BackendError),
    /// The kernel refuses the list.
    #[error("cannot restrict system calls (seccomp): {0}")]
    Refused(#[from] seccompiler::Error),
    /// The process cannot be protected from other processes.
    #[error("cannot protect the process from other processes: {0}")]
    Close(#[from] io::Error),
}

impl SandboxError {
    /// The error number of the system, if it is the kernel that refuses.
    pub fn errno(&self) -> Option<i32> {
        match self {
            SandboxError::Refused(
                seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error),
            )
            | SandboxError::Close(error) => error.raw_os_error(),
            _ => None,
        }
    }
}

/// A sandbox that is ready to be entered. Its folders are open already, since the new user may lack access to them.
pub struct Sandbox {
    files: files::Files,
    rules: Rules,
}

impl Sandbox {
    /// Opens the folders of the rules.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn prepare(rules: Rules) -> Result<Sandbox, SandboxError> {
        Ok(Sandbox { files: files::Files::prepare(&rules)?, rules })
    }

    /// Allows the removal of files in one more folder.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn allow_removing(self, folder: &Path) -> Result<Sandbox, SandboxError> {
        Ok(Sandbox { files: self.files.allow_removing(folder)?, ..self })
    }

    /// Enters the sandbox. Parts that the kernel does not support are skipped and reported as not enforced.
    ///
    /// # Errors
    /// When the kernel supports a part but refuses it.
    pub fn enter(self) -> Result<Enforced, SandboxError> {
        user::close_to_others()?;
        let files = self.files.enforce()?;
        let calls = calls::restrict(&self.rules)?;
        Ok(Enforced { files, calls })
    }
}

/// Prepares a sandbox and enters it.
///
/// # Errors
/// As for [`Sandbox::prepare`] and [`Sandbox::enter`].
pub fn enter(rules: Rules) -> Result<Enforced, SandboxError> {
    Sandbox::prepare(rules)?.enter()
}
