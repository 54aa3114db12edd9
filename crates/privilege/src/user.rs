//! Change of user: finds the user that a root process can become, and becomes it.

use crate::sys;
use rustix::process::{
    DumpableBehavior, Gid, Uid, getegid, geteuid, getgid, getuid, set_dumpable_behavior,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// System users for a process that root started without sudo, in order of preference.
pub const SYSTEM_USERS: [&str; 3] = ["fyke", "tcpdump", "nobody"];

/// A number of the process that has connected a Unix socket, different from those of all other processes since the
/// system has started, also if a process number is given again.
///
/// # Errors
/// The kernel is older than Linux 6.9.
pub fn peer_process(socket: impl AsFd) -> io::Result<u64> {
    /// The file system of such descriptors, in which each process has an inode.
    const PIDFS: u64 = 0x5049_4446;
    let process = sys::peer_process(socket.as_fd())?;
    if rustix::fs::fstatfs(&process)?.f_type as u64 != PIDFS {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "processes have no unique number"));
    }
    Ok(rustix::fs::fstat(&process)?.st_ino)
}

/// A user with its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name; the number where there is no name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
}

/// Failure to find a user or to become it.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No such user.
    #[error("there is no user {0}")]
    Unknown(String),
    /// The user database cannot be read.
    #[error("cannot look up user {name}: {source}")]
    Lookup {
        /// Name or number.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A variable of sudo holds no number.
    #[error("{name}={given:?} is not a user or group id (sudo sets this variable)")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        given: String,
    },
    /// None of the system users exists.
    #[error("cannot drop root: none of the users {} exists", SYSTEM_USERS.join(", "))]
    NoSystemUser,
    /// The system refuses.
    #[error("cannot become user {name}: {source}")]
    Become {
        /// Name of the user.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Capabilities cannot be dropped.
    #[error("cannot drop capabilities: {0}")]
    Capabilities(io::Error),
}

impl User {
    /// The user with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<User, UserError> {
        let found = sys::user_by_name(name);
        let found = found.map_err(|source| UserError::Lookup { name: name.to_owned(), source })?;
        found.ok_or_else(|| UserError::Unknown(name.to_owned()))
    }

    /// The user that ran sudo (`SUDO_UID`, `SUDO_GID`); `None` for root or without sudo.
    ///
    /// # Errors
    /// When a variable holds no number.
    pub fn of_sudo() -> Result<Option<User>, UserError> {
        user_of(|name| std::env::var(name).ok(), |uid| sys::user_by_id(uid).ok().flatten())
    }

    /// The first of [`SYSTEM_USERS`] that exists.
    ///
    /// # Errors
    /// When none does.
    pub fn of_system() -> Result<User, UserError> {
        let mut found = SYSTEM_USERS.iter().filter_map(|name| User::named(name).ok());
        found.find(|user| user.uid != 0).ok_or(UserError::NoSystemUser)
    }

    /// True if this process already runs as this user.
    pub fn is_current(&self) -> bool {
        geteuid().as_raw() == self.uid
    }

    /// True if our user namespace maps this user. A process cannot become a user that is not mapped.
    pub fn is_mapped(&self) -> bool {
        let mapped = |file: &str, id: u32| {
            let map = std::fs::read_to_string(file).unwrap_or_default();
            // Without the file, the kernel has no user namespaces.
            map.is_empty() || map.lines().any(|line| covers(line, id))
        };
        mapped("/proc/self/uid_map", self.uid) && mapped("/proc/self/gid_map", self.gid)
    }

    /// Runs a closure with the file rights of this user, then becomes root again. The process must be root and have a
    /// single thread.
    ///
    /// # Errors
    /// When the process cannot become the user. The process aborts when it cannot become root again.
    pub fn with_rights<T>(&self, what: impl FnOnce() -> T) -> Result<T, UserError> {
        let done = sys::with_effective_user(self.uid, self.gid, what);
        done.map_err(|source| UserError::Become { name: self.name.clone(), source })
    }

    /// Checks that this user may make files in a folder.
    ///
    /// # Errors
    /// As for [`with_rights`](Self::with_rights).
    pub fn may_make_files_in(&self, folder: &impl AsFd) -> Result<bool, UserError> {
        use rustix::fs::{Access, AtFlags, accessat};
        let access = Access::WRITE_OK | Access::EXEC_OK;
        let may = || accessat(folder.as_fd(), Path::new("."), access, AtFlags::EACCESS).is_ok();
        self.with_rights(may)
    }
}

/// True if a line of `uid_map` or `gid_map` covers an id.
fn covers(line: &str, id: u32) -> bool {
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let (Some(first), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return false;
    };
    (first..first.saturating_add(count)).contains(&u64::from(id))
}

fn user_of(
    variable: impl Fn(&str) -> Option<String>,
    known: impl Fn(u32) -> Option<User>,
) -> Result<Option<User>, UserError> {
    let number = |name: &'static str| match variable(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        // The highest number means "leave as it is" to the kernel.
        Some(given) => match given.parse::<u32>() {
            Ok(id) if id != u32::MAX => Ok(Some(id)),
            _ => Err(UserError::Variable { name, given }),
        },
    };
    let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
    let Some(uid) = uid.filter(|&uid| uid != 0) else { return Ok(None) };
    let found = known(uid);
    let Some(gid) = gid.or(found.as_ref().map(|user| user.gid)) else {
        return Err(UserError::Unknown(uid.to_string()));
    };
    let name = found.map_or_else(|| uid.to_string(), |user| user.name);
    Ok(Some(User { name, uid, gid }))
}

/// Name of the user with this number; `None` if there is none.
pub fn name_of(uid: u32) -> Option<String> {
    Some(sys::user_by_id(uid).ok()??.name)
}

/// Names of users that were looked up for later.
static LEARNED: Mutex<Vec<(u32, Option<String>)>> = Mutex::new(Vec::new());

/// Looks up the name of a user for [`learned_name`]: a sandbox lets no process read the list of users later.
pub fn learn_name(uid: u32) {
    let name = name_of(uid);
    let mut learned = LEARNED.lock().unwrap_or_else(PoisonError::into_inner);
    learned.retain(|(known, _)| *known != uid);
    learned.push((uid, name));
}

/// Name of a user, if it was [looked up before](learn_name) and there was one. Reads no file.
pub fn learned_name(uid: u32) -> Option<String> {
    let learned = LEARNED.lock().unwrap_or_else(PoisonError::into_inner);
    learned.iter().find(|(known, _)| *known == uid).and_then(|(_, name)| name.clone())
}

/// True if this process is root (in its user namespace).
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// True if the program file gives this process effective ids that differ from the real ones, which are not root's: the
/// file is setuid or setgid.
pub fn is_setuid() -> bool {
    (geteuid() != getuid() || getegid() != getgid()) && !getuid().is_root()
}

/// An environment variable. `None` for one of fyke's own, `FYKE_…`, if the program has more rights than its user
/// (`AT_SECURE`, as for a file with capabilities), because the user sets the environment.
pub fn variable(name: &str) -> Option<OsString> {
    let ignored = name.starts_with("FYKE_") && sys::is_secure();
    std::env::var_os(name).filter(|_| !ignored)
}

/// True if this process has capabilities now.
pub fn has_capabilities() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| !sets.permitted.is_empty())
}

/// Becomes a user, in all threads, without supplementary groups and without any capability.
///
/// # Errors
/// When the system refuses; the process should end then.
pub fn become_user(user: &User) -> Result<(), UserError> {
    let refused = |source| UserError::Become { name: user.name.clone(), source };
    sys::become_user(user.uid, user.gid).map_err(refused)?;
    give_up_capabilities()
}

/// Drops all capabilities of this thread and of the threads that it starts.
///
/// # Errors
/// When the system refuses.
pub fn give_up_capabilities() -> Result<(), UserError> {
    keep(CapabilitySet::empty())
}

/// Drops all capabilities but the one that opens packet sockets, if there is that one.
///
/// # Errors
/// When the system refuses.
pub(crate) fn keep_packet_sockets() -> Result<(), UserError> {
    let now = rustix::thread::capabilities(None);
    let now = now.map_err(|error| UserError::Capabilities(error.into()))?;
    keep(now.permitted & CapabilitySet::NET_RAW)
}

/// Capabilities that a process needs to load programs for sockets which read frames in place (Linux 5.8).
const LOADING: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// True if this thread may load eBPF programs.
pub fn may_load_programs() -> bool {
    let now = rustix::thread::capabilities(None);
    now.is_ok_and(|now| now.effective.contains(CapabilitySet::BPF))
}

/// Drops all capabilities but those that load eBPF programs for sockets.
///
/// # Errors
/// When the system refuses.
pub fn keep_loading_programs() -> Result<(), UserError> {
    let now = rustix::thread::capabilities(None);
    let now = now.map_err(|error| UserError::Capabilities(error.into()))?;
    keep(now.permitted & LOADING)
}

fn keep(kept: CapabilitySet) -> Result<(), UserError> {
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable };
    // Kernels before 4.3 have no ambient set.
    let _ = rustix::thread::clear_ambient_capability_set();
    rustix::thread::set_capabilities(None, sets)
        .map_err(|error| UserError::Capabilities(error.into()))
}

/// Prevents other processes of the same user from reading memory and taking descriptors (ptrace, /proc), and prevents
/// this process from gaining rights by executing a program.
///
/// # Errors
/// When the system refuses.
pub fn close_to_others() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Owner of new files.
static OWNER: OnceLock<User> = OnceLock::new();

/// Sets, once, the owner of the files that this process makes while it is root.
pub fn new_files_belong_to(user: &User) {
    let _already_set = OWNER.set(user.clone());
}

/// User id of the owner of new files, if one is set.
pub fn owner_of_new_files() -> Option<u32> {
    OWNER.get().map(|owner| owner.uid)
}

/// Changes the owner of a file that this process has just made to [the owner of new files](new_files_belong_to), if one
/// is set.
///
/// # Errors
/// When the system refuses.
pub fn hand_over(file: impl AsFd) -> io::Result<()> {
    // What we make as that user is that user's.
    let Some(owner) = OWNER.get().filter(|owner| !owner.is_current()) else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    Ok(rustix::fs::fchown(file, Some(uid), Some(gid))?)
}

/// Changes the owner of a Unix socket file in the same way. Such a file cannot be opened, so another process may have
/// replaced it: the owner is changed only if it is a socket of ours with a single link.
///
/// # Errors
/// When the system refuses, or the file is not ours.
pub fn hand_over_socket(path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, FileType, Mode, OFlags, chownat, fstat, open};
    // What we make as that user is that user's.
    let Some(owner) = OWNER.get().filter(|owner| !owner.is_current()) else { return Ok(()) };
    let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&file)?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    if !is_socket || found.st_nlink != 1 || found.st_uid != geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another file is there now"));
    }
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    Ok(chownat(&file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sudo(variables: &[(&str, &str)]) -> Result<Option<User>, UserError> {
        let variable = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let known = |uid| (uid == 7).then(|| User { name: "seven".to_owned(), uid, gid: 70 });
        user_of(variable, known)
    }

    #[test]
    fn the_user_of_sudo() {
        let user = |name: &str, uid, gid| Some(User { name: name.to_owned(), uid, gid });
        assert_eq!(sudo(&[]).unwrap(), None);
        assert_eq!(sudo(&[("SUDO_UID", "0")]).unwrap(), None);
        assert_eq!(sudo(&[("SUDO_UID", "7")]).unwrap(), user("seven", 7, 70));
        let both = [("SUDO_UID", "7"), ("SUDO_GID", "8")];
        assert_eq!(sudo(&both).unwrap(), user("seven", 7, 8));
        let unknown = [("SUDO_UID", "9"), ("SUDO_GID", "8")];
        assert_eq!(sudo(&unknown).unwrap(), user("9", 9, 8));
        assert!(matches!(sudo(&[("SUDO_UID", "9")]), Err(UserError::Unknown(_))));
        for wrong in ["-1", "4294967295", "root", "7 "] {
            assert!(matches!(sudo(&[("SUDO_UID", wrong)]), Err(UserError::Variable { .. })));
        }
    }

    #[test]
    fn maps_of_ids() {
        assert!(covers("         0          0 4294967295", 65534));
        assert!(covers("0 1000 1", 0) && !covers("0 1000 1", 1));
        assert!(!covers("", 0) && !covers("x", 0));
    }

    #[test]
    fn names_are_looked_up() {
        assert_eq!(User::named("root").unwrap().uid, 0);
        assert!(matches!(User::named("no such user"), Err(UserError::Unknown(_))));
        assert_ne!(User::of_system().map_or(1, |user| user.uid), 0);
    }
}
