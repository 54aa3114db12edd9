//! Entry into a network namespace: the process then sees the interfaces there, and makes its sockets there.
//!
//! The process stays there until it ends, with its helper, as under `ip netns exec`. Files and control sockets are
//! where they were, because only the network namespace changes.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Folder in which `ip netns` keeps its namespaces.
const NAMES: &str = "/run/netns";
/// Most names in an error.
const MAX_NAMES: usize = 20;

/// Failure to enter a network namespace.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// No namespace has this name, and it is no process id.
    #[error("there is no network namespace {given}; {}", known(.names))]
    Unknown {
        /// Name or process id.
        given: String,
        /// The names of `ip netns`.
        names: Vec<String>,
    },
    /// No process has this id.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The file is no network namespace.
    #[error("{0} is not a network namespace")]
    Other(String),
    /// The system refuses.
    #[error("cannot enter network namespace {given}: {source} (root may, or CAP_SYS_ADMIN)")]
    Refused {
        /// Name or process id.
        given: String,
        /// Error of the system.
        source: io::Error,
    },
}

fn known(names: &[String]) -> String {
    match names.len() {
        0 => format!("{NAMES} has none; the id of a process names its namespace"),
        _ => format!("there are: {}; the id of a process names its namespace", names.join(", ")),
    }
}

/// Enters a network namespace, given by its name in `ip netns` or by the id of a process in it. A name takes precedence
/// over a process id. Must be called while the process has a single thread.
///
/// # Errors
/// When there is no such namespace, or the system refuses.
pub fn enter(given: &str) -> Result<(), NamespaceError> {
    let refused =
        |source: Errno| NamespaceError::Refused { given: given.to_owned(), source: source.into() };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let named = place(given).map(|path| openat(CWD, path, flags, Mode::empty()));
    let file = match (named, given.parse::<u32>()) {
        (Some(Ok(file)), _) => file,
        (None | Some(Err(Errno::NOENT)), Ok(process)) => {
            match openat(CWD, format!("/proc/{process}/ns/net"), flags, Mode::empty()) {
                Err(Errno::NOENT) => return Err(NamespaceError::NoProcess(process)),
                other => other.map_err(refused)?,
            }
        }
        (None | Some(Err(Errno::NOENT)), Err(_)) => {
            return Err(NamespaceError::Unknown { given: given.to_owned(), names: names() });
        }
        (Some(Err(error)), _) => return Err(refused(error)),
    };
    match move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)) {
        // The name is the process's business; the file may be anything.
        Err(Errno::INVAL) => Err(NamespaceError::Other(given.to_owned())),
        other => other.map_err(refused),
    }
}

/// Path of the namespace with this name; `None` if it cannot be a name.
fn place(given: &str) -> Option<PathBuf> {
    let is_name =
        !given.is_empty() && !given.contains(['/', '\0']) && ![".", ".."].contains(&given);
    is_name.then(|| Path::new(NAMES).join(given))
}

/// The names of `ip netns`, sorted.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(NAMES).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names.truncate(MAX_NAMES);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_paths() {
        assert_eq!(place("blue").as_deref(), Some(Path::new("/run/netns/blue")));
        for wrong in ["", "..", ".", "../../proc/1/ns/net", "/proc/1/ns/net", "a\0b"] {
            assert_eq!(place(wrong), None, "{wrong:?}");
            assert!(matches!(enter(wrong), Err(NamespaceError::Unknown { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert!(matches!(enter("no such namespace"), Err(NamespaceError::Unknown { .. })));
        assert!(matches!(enter("4294967295"), Err(NamespaceError::NoProcess(u32::MAX))));
    }
}
