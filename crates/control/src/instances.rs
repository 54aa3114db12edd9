//! Finds the running fykes of this user.
//!
//! A socket without a listener is left over from a process that was killed: the name of a socket
//! appears when it already listens. It is removed by the next client that finds it, and by the next
//! fyke that has its socket in the same folder. A root client also looks into the folders of the
//! users that a root process becomes; their own clients may never come.

use crate::client::Client;
use crate::message::Description;
use crate::process::{is_gone, stopped};
use crate::runtime_dir::RuntimeDir;
use fyke_privilege::place::Place;
use fyke_privilege::user::User;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most sockets examined in one folder; no user runs more fykes.
const MAX_SOCKETS: usize = 4096;
/// Most sockets of ended processes that one [`sweep`] connects to; the next one tries the rest.
const MAX_SWEPT: usize = 64;
/// Time limit for one [`sweep`].
const SWEEP_LIMIT: Duration = Duration::from_secs(1);

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
            None => {
                let why = stopped(self.pid).unwrap_or_default();
                write!(f, "(does not answer{why})")
            }
        }
    }
}

/// The running fykes of this user, by process id.
pub fn list() -> Vec<Instance> {
    if geteuid().is_root() {
        let users = [User::of_sudo().ok().flatten(), User::of_system().ok()];
        for user in users.into_iter().flatten() {
            RuntimeDir::candidates_of_dropped_to(user.uid)
                .iter()
                .for_each(|dir| sweep(dir, user.uid));
        }
    }
    list_in(&RuntimeDir::candidates())
}

/// The running fykes with sockets in these folders, by process id. Folders that do not exist, or
/// that another user could have made, contribute none.
pub fn list_in(dirs: &[RuntimeDir]) -> Vec<Instance> {
    found_in(dirs).into_iter().map(|(found, _)| found).collect()
}

/// The same, each with the reason if it refuses to describe itself.
pub(crate) fn found_in(dirs: &[RuntimeDir]) -> Vec<(Instance, Option<String>)> {
    let mut found = Vec::new();
    for dir in dirs.iter().filter(|dir| dir.check().is_ok()) {
        let entries = fs::read_dir(dir.path()).into_iter().flatten().flatten();
        let sockets = entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.strip_suffix(".sock")?.parse().ok()?;
            Some((pid, entry.path()))
        });
        found.extend(sockets.take(MAX_SOCKETS).filter_map(|(pid, socket)| ask(pid, socket)));
    }
    found.sort_by_key(|(instance, _)| instance.pid);
    found
}

fn ask(pid: u32, socket: PathBuf) -> Option<(Instance, Option<String>)> {
    match Client::connect_to(&socket) {
        Ok(client) => {
            let client = client.introduced(pid, socket);
            let refusal = client.refusal().map(str::to_owned);
            client.target().cloned().map(|target| (target, refusal))
        }
        Err(e) if means_no_listener(&e) => {
            remove_if_left_over(&socket);
            None
        }
        // The process of another user; its answer would not be trusted.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => None,
        Err(_) => Some((Instance { pid, socket, description: None }, None)),
    }
}

/// True if a failed connection means that no process listens, rather than that the listener is
/// busy.
pub(crate) fn means_no_listener(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

fn remove_if_left_over(socket: &Path) {
    let ours = socket.symlink_metadata().is_ok_and(|m| m.uid() == geteuid().as_raw());
    if ours {
        let _somebody_was_faster = fs::remove_file(socket);
    }
}

/// Removes the sockets of ended processes, which refuse connections, from a folder of a user. A live
/// fyke is not disturbed: it is not connected to. The user of the folder may have filled it with
/// sockets that accept nothing, so no connection is waited for, and the time is limited.
pub(crate) fn sweep(dir: &RuntimeDir, owner: u32) {
    let start = Instant::now();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = open(dir.path(), flags, Mode::empty()) else { return };
    if !fstat(&folder).is_ok_and(|found| found.st_uid == owner && found.st_mode & 0o077 == 0) {
        return;
    }
    let entries = fs::read_dir(dir.path()).into_iter().flatten().flatten().take(MAX_SOCKETS);
    let of_ended = entries.map(|entry| entry.file_name()).filter(|name| {
        let pid = name.to_str().and_then(|name| {
            let pid = name.strip_suffix(".sock").or_else(|| name.strip_suffix(".new"))?;
            pid.parse().ok()
        });
        pid.is_some_and(is_gone)
    });
    for name in of_ended.take(MAX_SWEPT).take_while(|_| start.elapsed() < SWEEP_LIMIT) {
        let Ok(same) = folder.try_clone() else { return };
        let place = Place::within(same, &name);
        if has_no_listener(&place.path()) {
            let _somebody_was_faster = place.remove();
        }
    }
}

/// True if connecting to a socket is refused. A listener with a full queue (`EAGAIN`) is alive.
fn has_no_listener(socket: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Ok(address) = SocketAddrUnix::new(socket) else { return false };
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|ours| rustix::net::connect(&ours, &address))
        == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn this_process_is_there_and_impossible_ones_are_gone() {
        assert!(!is_gone(std::process::id()));
        assert!(is_gone(u32::MAX));
        assert!(is_gone(0));
    }

    #[test]
    fn a_sweep_waits_for_no_listener_and_removes_what_has_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        // No process has such a high number.
        let at = |pid: u32| folder.path().join(format!("{pid}.sock"));
        let full: Vec<_> = (0..12).map(|number| full_listener(&at(u32::MAX - number))).collect();
        drop(UnixListener::bind(at(u32::MAX - 12)).unwrap());
        let start = Instant::now();
        sweep(&RuntimeDir::at(folder.path()), geteuid().as_raw());
        let lasted = start.elapsed();
        assert!(lasted < Duration::from_secs(8), "{lasted:?}");
        assert!(!at(u32::MAX - 12).exists(), "no process listens");
        assert!((0..12).all(|number| at(u32::MAX - number).exists()), "they have listeners");
        drop(full);
    }

    /// A listener that accepts nothing, with a full queue.
    fn full_listener(path: &Path) -> (UnixListener, Vec<OwnedFd>) {
        let listener = UnixListener::bind(path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = SocketAddrUnix::new(path).unwrap();
        let flags = SocketFlags::NONBLOCK;
        let socket =
            || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let waiting = std::iter::from_fn(|| {
            let client = socket().unwrap();
            rustix::net::connect(&client, &address).ok().map(|()| client)
        });
        let waiting = waiting.collect();
        (listener, waiting)
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
