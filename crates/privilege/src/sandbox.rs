//! The sandbox: files by Landlock, system calls by seccomp, whatever the user.
//!
//! | part | what it leaves | where it is missing |
//! |---|---|---|
//! | Landlock | folders that [`Rules`] name; no TCP, no signals to others | Linux < 5.13: not enforced |
//! | seccomp | a list of system calls; all others fail with EPERM | not in the kernel: not enforced |
//!
//! Both stay until the process ends, and threads that start later have them too. Descriptors that are open stay as they
//! are. A call that is denied fails; nothing is killed. Source: landlock(7), seccomp(2).

mod calls;
mod files;
#[cfg(test)]
mod tests;

use crate::user;
use std::io;
use std::path::{Path, PathBuf};

/// What a process needs after it has entered the sandbox, beyond its open descriptors.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Folders in which it makes, overwrites and removes files.
    pub writes: Vec<PathBuf>,
    /// Folders and files that it reads.
    pub reads: Vec<PathBuf>,
    /// Folders in which it removes files.
    pub removes: Vec<PathBuf>,
    /// Whether it opens sockets of the internet and of this machine. Packet sockets it never does.
    pub opens_sockets: bool,
    /// Whether it asks the kernel about interfaces, and binds sockets to them.
    pub looks_at_interfaces: bool,
    /// Whether it sends frames out of an interface.
    pub sends_frames: bool,
    /// Whether it makes memory executable: programs that become machine code.
    pub makes_code: bool,
}

impl Rules {
    /// Whether files are opened at all.
    pub fn opens_files(&self) -> bool {
        !self.writes.is_empty() || !self.reads.is_empty()
    }
}

/// What is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enforced {
    /// Whether Landlock is, with as much as this kernel knows of it.
    pub files: bool,
    /// Whether seccomp is.
    pub calls: bool,
}

/// Why a sandbox that the kernel has cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Landlock refuses.
    #[error("cannot restrict files (Landlock): {0}")]
    Files(#[from] landlock::RulesetError),
    /// A folder of the rules cannot be opened.
    #[error("cannot restrict files (Landlock): {0}")]
    Folder(#[from] landlock::PathFdError),
    /// The list of system calls cannot be made into a program.
    #[error("cannot restrict system calls (seccomp): {0}")]
    Calls(#[from] seccompiler::BackendError),
    /// The kernel refuses the list.
    #[error("cannot restrict system calls (seccomp): {0}")]
    Refused(#[from] seccompiler::Error),
    /// The process cannot be closed to others.
    #[error("cannot close the process to others: {0}")]
    Close(#[from] io::Error),
}

/// A sandbox that can be entered: its folders are open, for a user who could not open them later.
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

    /// Allows to remove files in one more folder.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn allow_removing(self, folder: &Path) -> Result<Sandbox, SandboxError> {
        Ok(Sandbox { files: self.files.allow_removing(folder)?, ..self })
    }

    /// Enters the sandbox. What the kernel does not have is left out and told.
    ///
    /// # Errors
    /// When the kernel has it and refuses.
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
