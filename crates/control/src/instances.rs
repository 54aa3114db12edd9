//! Finds the running fykes of this user.
//!
//! A socket without a listener is left over from a process that was killed. It is removed if this
//! user owns it and that process is gone; a process that still exists may be about to listen.

use crate::client::Client;
use crate::message::Description;
use crate::runtime_dir::RuntimeDir;
use rustix::process::{Pid, geteuid};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most sockets examined in one folder; no user runs more fykes.
const MAX_SOCKETS: usize = 4096;

/// A running fyke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its process id.
    pub pid: u32,
    /// Path of its socket.
    pub socket: PathBuf,
    /// Its description; `None` when it did not answer within a second.
    pub description: Option<Description>,
}

/// One line: process id and command line.
impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7}  ", self.pid)?;
        match &self.description {
            // An argument with line ends must not look like further lines.
            Some(description) => {
                let command_line = description.command_line.join(" ");
                write!(f, "{}", command_line.replace(['\n', '\t'], " "))
            }
            None => write!(f, "(does not answer)"),
        }
    }
}

/// The running fykes of this user, by process id.
pub fn list() -> Vec<Instance> {
    list_in(&RuntimeDir::candidates())
}

/// The running fykes with sockets in these folders, by process id. Folders that do not exist, or
/// that another user could have made, contribute none.
pub fn list_in(dirs: &[RuntimeDir]) -> Vec<Instance> {
    let mut found = Vec::new();
    for dir in dirs.iter().filter(|dir| dir.check().is_ok()) {
        let entries = fs::read_dir(dir.path()).into_iter().flatten().flatten();
        let sockets = entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.strip_suffix(".sock")?.parse().ok()?;
            Some((pid, entry.path()))
        });
        found.extend(sockets.take(MAX_SOCKETS).filter_map(|(pid, socket)| ask(pid, socket)));
    }
    found.sort_by_key(|instance| instance.pid);
    found
}

fn ask(pid: u32, socket: PathBuf) -> Option<Instance> {
    match Client::connect_to(&socket) {
        Ok(client) => client.introduced(pid, socket).target().cloned(),
        Err(e) if means_no_listener(&e) => {
            remove_if_left_over(pid, &socket);
            None
        }
        // The process of another user; its answer would not be trusted.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => None,
        Err(_) => Some(Instance { pid, socket, description: None }),
    }
}

/// True if a failed connection means that no process listens, rather than that the listener is
/// busy.
pub(crate) fn means_no_listener(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

fn remove_if_left_over(pid: u32, socket: &Path) {
    let ours = socket.symlink_metadata().is_ok_and(|m| m.uid() == geteuid().as_raw());
    if ours && is_gone(pid) {
        let _somebody_was_faster = fs::remove_file(socket);
    }
}

fn is_gone(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_and_impossible_ones_are_gone() {
        assert!(!is_gone(std::process::id()));
        assert!(is_gone(u32::MAX));
        assert!(is_gone(0));
    }

    #[test]
    fn an_instance_reads_as_one_line() {
        let mut description = Description::of_this_process("lo", "EN10MB");
        description.command_line = vec!["fyke".into(), "dump".into(), "-i".into(), "lo".into()];
        let mut instance =
            Instance { pid: 42, socket: PathBuf::new(), description: Some(description) };
        assert_eq!(instance.to_string(), "     42  fyke dump -i lo");
        instance.description = None;
        assert_eq!(instance.to_string(), "     42  (does not answer)");
    }
}
