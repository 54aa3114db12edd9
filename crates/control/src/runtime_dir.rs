//! The folder of the sockets: one `<pid>.sock` per running fyke, in a folder that only its user can
//! enter.
//!
//! `FYKE_RUNTIME_DIR` names the folder. Without it, the candidates are, in this order:
//! `$XDG_RUNTIME_DIR/fyke`; for root `/run/fyke`; `/tmp/fyke-<uid>`. A server takes the first that
//! it can use. A client looks in all of them, because `XDG_RUNTIME_DIR` may be set in one shell of
//! a user and not in another.
//!
//! A process that gives up root has two sockets: one in the folder of root, one in the folder of
//! the new user.
//!
//! The folder must be a real folder (no link), owned by this user, with no rights for others: in
//! `/tmp` another user could have made it first.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_control as control; }
//! use fyke::control::RuntimeDir;
//!
//! let dir = RuntimeDir::at("/run/user/1000/fyke");
//! assert!(dir.socket(17).starts_with(dir.path()));
//! assert!(!RuntimeDir::candidates().is_empty());
//! ```

use fyke_privilege::helper;
use fyke_privilege::user::variable;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The environment variable that overrides all other folders.
pub const ENVIRONMENT_OVERRIDE: &str = "FYKE_RUNTIME_DIR";

/// Most bytes of a socket path that the kernel accepts, without the final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// A folder for control sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeDir {
    path: PathBuf,
}

/// A name that this process has locked. Dropping it removes the file; after a kill, the next process takes the file
/// over.
#[derive(Debug)]
pub struct NameLock {
    path: PathBuf,
    _file: File,
}

impl NameLock {
    fn take(path: PathBuf) -> io::Result<Option<NameLock>> {
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // The process that had it may have removed this file meanwhile.
            let locked = file.metadata()?;
            let is_same =
                |there: Metadata| (there.dev(), there.ino()) == (locked.dev(), locked.ino());
            if path.symlink_metadata().is_ok_and(is_same) {
                // After root was given up, this process removes the file itself.
                let _ = helper::may_remove(&path);
                return Ok(Some(NameLock { path, _file: file }));
            }
        }
    }
}

impl Drop for NameLock {
    /// Removes the file while it is locked, so that no other process has locked it.
    fn drop(&mut self) {
        let _gone_already = helper::remove_file(&self.path);
    }
}

/// Removes the file of a lock that no process has.
fn remove_if_unlocked(path: &Path) {
    // A process that opens it meanwhile finds it locked, or gone, and tries again.
    let Ok(file) = OpenOptions::new().write(true).open(path) else { return };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && let (Ok(locked), Ok(there)) = (file.metadata(), path.symlink_metadata())
        && (locked.dev(), locked.ino()) == (there.dev(), there.ino())
    {
        let _gone_already = std::fs::remove_file(path);
    }
}

/// Reasons why a folder cannot hold control sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeDirError {
    /// It does not exist and cannot be made, or cannot be read.
    #[error("{}: {source}", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is a file or a link.
    #[error("{}: not a folder", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// Another user owns it.
    #[error("{}: belongs to user {owner}, expected user {expected}", path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// Its user id.
        owner: u32,
        /// The user id of this process.
        expected: u32,
    },
    /// Other users may enter it.
    #[error("{}: mode {mode:03o}, expected 700 (chmod 700 makes it so)", path.display())]
    Open {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The socket path is longer than the kernel accepts.
    #[error("{}: {given} bytes, a socket path has at most {MAX_SOCKET_PATH_BYTES}; \
             set {ENVIRONMENT_OVERRIDE} to a shorter folder", path.display())]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// Its length in bytes.
        given: usize,
    },
}

impl RuntimeDirError {
    /// Advice to follow the message; empty where the message has it.
    pub(crate) fn hint(&self) -> String {
        match self {
            // `chmod` is in the message.
            RuntimeDirError::Open { .. } => String::new(),
            RuntimeDirError::TooLong { .. } => String::new(),
            _ => format!("; set {ENVIRONMENT_OVERRIDE} to a folder of this user with mode 700"),
        }
    }
}

impl RuntimeDir {
    /// A folder that the caller chose; it is checked when it is used.
    pub fn at(path: impl Into<PathBuf>) -> RuntimeDir {
        RuntimeDir { path: path.into() }
    }

    /// All folders that may hold sockets of this user, the preferred one first.
    pub fn candidates() -> Vec<RuntimeDir> {
        let uid = geteuid().as_raw();
        let ours = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.uid() == uid);
        candidates(variable, ours, uid)
    }

    /// Folders for a process that was root and has become this user, where clients of the same user look. The folder
    /// that the environment names belongs to root, so this one has `-` and the user's number appended to its name.
    pub fn candidates_of_dropped() -> Vec<RuntimeDir> {
        RuntimeDir::candidates_of_dropped_to(geteuid().as_raw())
    }

    /// The same folders for a process that becomes the user of this number.
    pub(crate) fn candidates_of_dropped_to(uid: u32) -> Vec<RuntimeDir> {
        let ours = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.uid() == uid);
        let with_uid = |name: &str| {
            let mut value = variable(name)?;
            if name == ENVIRONMENT_OVERRIDE && !value.is_empty() {
                value.push(format!("-{uid}"));
            }
            Some(value)
        };
        candidates(with_uid, ours, uid)
    }

    /// Locks a name among the processes of this user; `None` while another process has it. The file is in the first
    /// folder that can be used.
    ///
    /// # Errors
    /// No folder can be used.
    pub fn try_lock(name: &str) -> io::Result<Option<NameLock>> {
        let mut refused = io::Error::other("no folder");
        for dir in RuntimeDir::candidates() {
            match dir.prepare(std::process::id()) {
                Err(error) => refused = io::Error::other(error),
                Ok(_socket) => return NameLock::take(dir.path.join(format!("{name}.lock"))),
            }
        }
        Err(refused)
    }

    /// Removes the locks with such a begin of the name that no process has any more: it was killed.
    pub fn remove_unlocked(prefix: &str) {
        for dir in RuntimeDir::candidates() {
            let entries = std::fs::read_dir(&dir.path).into_iter().flatten().flatten();
            let is_lock = |name: &str| name.starts_with(prefix) && name.ends_with(".lock");
            let locks = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_lock));
            locks.for_each(|entry| remove_if_unlocked(&entry.path()));
        }
    }

    /// The first folder that can be used, made if necessary.
    ///
    /// # Errors
    /// No folder can be used; the error is that of the last.
    pub fn usable() -> Result<RuntimeDir, RuntimeDirError> {
        let mut candidates = RuntimeDir::candidates();
        let pid = std::process::id();
        let at = candidates.iter().position(|dir| dir.prepare(pid).is_ok());
        let dir = candidates.swap_remove(at.unwrap_or(candidates.len() - 1));
        dir.prepare(pid).map(|_socket| dir)
    }

    /// True if the folder exists, belongs to this user and is closed to others.
    pub fn is_private(&self) -> bool {
        self.check().is_ok()
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the socket of a process.
    pub fn socket(&self, pid: u32) -> PathBuf {
        self.path.join(format!("{pid}.sock"))
    }

    /// Makes the folder if it does not exist (not its parents) and checks it; returns the socket
    /// path.
    pub(crate) fn prepare(&self, pid: u32) -> Result<PathBuf, RuntimeDirError> {
        let socket = self.socket(pid);
        let given = socket.as_os_str().len();
        if given > MAX_SOCKET_PATH_BYTES {
            return Err(RuntimeDirError::TooLong { path: socket, given });
        }
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(self.unusable(e)),
            _ => self.check().map(|()| socket),
        }
    }

    /// True if the folder exists, belongs to this user and is closed to others.
    pub(crate) fn check(&self) -> Result<(), RuntimeDirError> {
        let metadata = self.path.symlink_metadata().map_err(|e| self.unusable(e))?;
        self.judge(&metadata, geteuid().as_raw())
    }

    fn judge(&self, metadata: &Metadata, expected: u32) -> Result<(), RuntimeDirError> {
        let (path, owner, mode) = (self.path.clone(), metadata.uid(), metadata.mode() & 0o777);
        if !metadata.is_dir() {
            return Err(RuntimeDirError::NotAFolder { path });
        }
        if owner != expected {
            return Err(RuntimeDirError::NotOurs { path, owner, expected });
        }
        if mode & 0o077 != 0 {
            return Err(RuntimeDirError::Open { path, mode });
        }
        Ok(())
    }

    fn unusable(&self, source: io::Error) -> RuntimeDirError {
        RuntimeDirError::Unusable { path: self.path.clone(), source }
    }
}

fn candidates(
    environment: impl Fn(&str) -> Option<OsString>,
    is_ours: impl Fn(&Path) -> bool,
    uid: u32,
) -> Vec<RuntimeDir> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set(ENVIRONMENT_OVERRIDE) {
        return vec![RuntimeDir { path }];
    }
    // Root may have inherited the variable from the user that became root; that user's folder is
    // not used.
    let mut sessions: Vec<PathBuf> = set("XDG_RUNTIME_DIR").into_iter().collect();
    sessions.push(PathBuf::from(format!("/run/user/{uid}")));
    sessions.dedup();
    sessions.retain(|path| is_ours(path));
    let system = (uid == 0).then(|| PathBuf::from("/run"));
    let last = PathBuf::from(format!("/tmp/fyke-{uid}"));
    let named = sessions.into_iter().chain(system).map(|path| path.join("fyke"));
    named.chain([last]).map(|path| RuntimeDir { path }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn paths(variables: &[(&str, &str)], uid: u32) -> Vec<String> {
        let lookup = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        let is_ours = |path: &Path| path.ends_with(uid.to_string());
        let found = candidates(lookup, is_ours, uid);
        found.into_iter().map(|dir| dir.path.display().to_string()).collect()
    }

    #[test]
    fn places_by_environment_and_user() {
        let (xdg, own) = (("XDG_RUNTIME_DIR", "/run/user/7"), ("FYKE_RUNTIME_DIR", "/x"));
        assert_eq!(paths(&[xdg, own], 7), ["/x"]);
        assert_eq!(paths(&[xdg], 7), ["/run/user/7/fyke", "/tmp/fyke-7"]);
        assert_eq!(paths(&[("FYKE_RUNTIME_DIR", "")], 7), ["/run/user/7/fyke", "/tmp/fyke-7"]);
        assert_eq!(paths(&[], 0), ["/run/user/0/fyke", "/run/fyke", "/tmp/fyke-0"]);
        assert_eq!(paths(&[xdg], 0), paths(&[], 0), "the folder of another user");
    }

    #[test]
    fn a_folder_is_made_closed_to_others() {
        let base = tempfile::tempdir().unwrap();
        let dir = RuntimeDir::at(base.path().join("new"));
        assert_eq!(dir.prepare(5).unwrap(), base.path().join("new/5.sock"));
        assert_eq!(dir.path.metadata().unwrap().mode() & 0o777, 0o700);
        dir.prepare(5).unwrap();
    }

    #[test]
    fn folders_of_others_open_folders_links_and_files_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let dir = RuntimeDir::at(base.path().join("d"));
        fs::create_dir(&dir.path).unwrap();
        fs::set_permissions(&dir.path, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(dir.prepare(1), Err(RuntimeDirError::Open { mode: 0o750, .. })));
        fs::set_permissions(&dir.path, fs::Permissions::from_mode(0o700)).unwrap();
        let metadata = dir.path.symlink_metadata().unwrap();
        let somebody = metadata.uid() + 1;
        assert!(matches!(dir.judge(&metadata, somebody), Err(RuntimeDirError::NotOurs { .. })));
        let link = RuntimeDir::at(base.path().join("link"));
        symlink(&dir.path, &link.path).unwrap();
        assert!(matches!(link.prepare(1), Err(RuntimeDirError::NotAFolder { .. })));
        let file = RuntimeDir::at(base.path().join("file"));
        fs::write(&file.path, "").unwrap();
        assert!(matches!(file.prepare(1), Err(RuntimeDirError::NotAFolder { .. })));
        let orphan = RuntimeDir::at(base.path().join("no/such"));
        assert!(matches!(orphan.prepare(1), Err(RuntimeDirError::Unusable { .. })));
    }

    #[test]
    fn a_name_is_locked_once_and_its_file_goes_with_the_lock() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("name.lock");
        let take = || NameLock::take(path.clone()).unwrap();
        // The file of a process that was killed.
        fs::write(&path, "").unwrap();
        let lock = take().unwrap();
        assert!(take().is_none());
        drop(lock);
        assert!(!path.exists());
        assert!(take().is_some());
    }

    #[test]
    fn only_a_lock_that_nobody_has_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let (left, held) = (base.path().join("rules-1.lock"), base.path().join("rules-2.lock"));
        fs::write(&left, "").unwrap();
        let lock = NameLock::take(held.clone()).unwrap().unwrap();
        [&left, &held].into_iter().for_each(|path| remove_if_unlocked(path));
        assert!(!left.exists() && held.exists());
        drop(lock);
    }

    #[test]
    fn a_path_too_long_for_the_kernel_says_so() {
        let dir = RuntimeDir::at(format!("/tmp/{}", "x".repeat(110)));
        let message = dir.prepare(1).unwrap_err().to_string();
        assert!(
            message.contains("at most 107") && message.contains("FYKE_RUNTIME_DIR"),
            "{message}"
        );
    }
}
