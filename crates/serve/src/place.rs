//! Place of the socket of a service: a path, or a name in a folder that readers know.
//!
//! | service of | folder |
//! |---|---|
//! | anyone, if `FYKE_RUNTIME_DIR` is set | `$FYKE_RUNTIME_DIR/serve` |
//! | root | `/run/fyke-serve` |
//! | another user | `$XDG_RUNTIME_DIR/fyke-serve`, or `/tmp/fyke-serve-<uid>` |
//!
//! A reader looks for a name in its own folder, then in root's: also in `/run/fyke-serve`, because `FYKE_RUNTIME_DIR`
//! of a user is not that of root. Root looks in its own only. The folder must belong to root or the user of the
//! service, and be closed to writes of all others or sticky. Everybody may connect: the service looks at the user of
//! each peer. A reader looks at the user of the service, so it does not use a socket that another user planted under
//! the name.

use fyke_privilege::helper;
use rustix::fs::{CWD, Mode, RenameFlags, fchmod, renameat_with};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::geteuid;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Most bytes of a name.
pub const MAX_NAME: usize = 64;
/// Most names that are listed.
const MAX_NAMES: usize = 1_000;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Time limit for a place in the queue of a busy service.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reasons why a service has no socket, or a name leads to none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The name has characters that a file name should not have.
    #[error(
        "{given:?} is not a name of a service: expected 1 to {MAX_NAME} letters, digits and . _ - @ :, or the path of \
         a socket, with a slash and without control characters"
    )]
    Name {
        /// The name.
        given: String,
    },
    /// Another service listens there.
    #[error("{}: another fyke serves there; choose another --name", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// Another user could exchange the socket in this folder.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The descriptors of the service manager are not the sockets of the captures.
    #[error(
        "the service manager (LISTEN_FDS) has given {problem}; expected a socket of ListenSequentialPacket= for each \
         capture"
    )]
    Given {
        /// The descriptors that are there.
        problem: String,
    },
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Call {
        /// The socket or its folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Checks a name, or a path with a slash.
///
/// # Errors
/// It is neither.
pub fn check_name(given: &str) -> Result<(), PlaceError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@:".contains(&byte);
    let is_path = given.contains('/') && !given.ends_with('/') && !given.contains(char::is_control);
    let is_name = (1..=MAX_NAME).contains(&given.len())
        && given.bytes().all(is_plain)
        && !given.starts_with('.');
    match is_path || is_name {
        true => Ok(()),
        false => Err(PlaceError::Name { given: given.to_owned() }),
    }
}

/// The folder of a user's services.
fn folder_of(uid: u32, variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    if let Some(folder) = variable("FYKE_RUNTIME_DIR") {
        return folder.join("serve");
    }
    match variable("XDG_RUNTIME_DIR").filter(|_| uid != 0) {
        _ if uid == 0 => PathBuf::from("/run/fyke-serve"),
        Some(folder) => folder.join("fyke-serve"),
        None => PathBuf::from(format!("/tmp/fyke-serve-{uid}")),
    }
}

/// The folders in which readers of a user look for services, in this order.
fn folders_for(uid: u32, variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut all = vec![folder_of(uid, &variable)];
    if uid != 0 {
        all.extend([folder_of(0, &variable), folder_of(0, |_| None)]);
    }
    all.dedup();
    all
}

fn variable(name: &str) -> Option<PathBuf> {
    fyke_privilege::user::variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The path of the socket of a service of this user.
///
/// # Errors
/// The name is not valid.
pub fn socket_of(name: &str) -> Result<PathBuf, PlaceError> {
    check_name(name)?;
    match name.contains('/') {
        true => Ok(PathBuf::from(name)),
        false => Ok(folder_of(geteuid().as_raw(), variable).join(format!("{name}.sock"))),
    }
}

/// The paths at which a reader looks for a service, in this order.
///
/// # Errors
/// The name is not valid.
pub fn candidates(name: &str) -> Result<Vec<PathBuf>, PlaceError> {
    check_name(name)?;
    if name.contains('/') {
        return Ok(vec![PathBuf::from(name)]);
    }
    let folders = folders_for(geteuid().as_raw(), variable).into_iter();
    Ok(folders.map(|folder| folder.join(format!("{name}.sock"))).collect())
}

/// Names of the services of this user and of root, sorted. Sockets that killed services have left are among them.
pub fn names() -> Vec<String> {
    let folders = folders_for(geteuid().as_raw(), variable).into_iter();
    let entries = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_suffix(".sock")?;
        check_name(name).ok().map(|()| name.to_owned())
    };
    let mut all: Vec<String> = entries.filter_map(name).take(MAX_NAMES).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// An open socket of a service. Dropping it removes its file.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    /// Device and inode of our socket, so that no other file is removed; `None` for one that another process removes.
    identity: Option<(u64, u64)>,
    socket: OwnedFd,
}

impl Listening {
    /// Opens the socket of a name or path, and replaces one that an ended process has left. A folder that is missing is
    /// made if the name is no path.
    ///
    /// # Errors
    /// The name is not valid, another service listens there, or the folder is not safe.
    pub fn open(name: &str) -> Result<Listening, PlaceError> {
        let path = socket_of(name)?;
        prepare_folder(&path, !name.contains('/'))?;
        let failed = |source: io::Error| PlaceError::Call { path: path.clone(), source };
        match connect(&path) {
            Ok(_) => return Err(PlaceError::Taken { path }),
            Err(Errno::NOENT) => {}
            Err(Errno::CONNREFUSED) => remove_left_over(&path).map_err(failed)?,
            Err(Errno::AGAIN) => return Err(PlaceError::Taken { path }),
            Err(error) => return Err(failed(error.into())),
        }
        let socket = listen(&path).map_err(failed)?;
        let identity = Some(identity(&path).map_err(failed)?);
        // After root was given up, this process removes the socket through its helper.
        let _ = helper::will_remove(&path);
        Ok(Listening { path, identity, socket })
    }

    /// Takes the sockets that a service manager has opened for this process, from all descriptors that it has given
    /// beside those of the [store](mod@crate::store). Their files stay at the end.
    ///
    /// # Errors
    /// A descriptor is no such socket.
    pub fn given(descriptors: Vec<OwnedFd>) -> Result<Vec<Listening>, PlaceError> {
        let refused = |problem: &str| PlaceError::Given { problem: problem.to_owned() };
        let take = |socket: OwnedFd| {
            let kind = sockopt::socket_type(&socket);
            if kind != Ok(SocketType::SEQPACKET) || sockopt::socket_acceptconn(&socket) != Ok(true)
            {
                return Err(refused("a descriptor of another kind"));
            }
            let name = rustix::net::getsockname(&socket).ok();
            let name = name.and_then(|name| SocketAddrUnix::try_from(name).ok());
            let path = name.and_then(|name| Some(name.path()?.to_string_lossy().into_owned()));
            let path = path.map(PathBuf::from).ok_or_else(|| refused("a socket without a path"))?;
            Ok(Listening { path, identity: None, socket })
        };
        descriptors.into_iter().map(take).collect()
    }

    /// The path to which readers connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Some(ours) = self.identity else { return };
        let is_ours = match identity(&self.path) {
            Ok(found) => found == ours,
            // This process may not look; the helper process compares the identity.
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        };
        if is_ours {
            let _gone_already = helper::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|found| (found.dev(), found.ino()))
}

/// Makes the folder of a socket if `make` is set and it is missing; refuses one in which another user could exchange
/// the socket.
fn prepare_folder(socket: &Path, make: bool) -> Result<(), PlaceError> {
    let folder = match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let failed = |source| PlaceError::Call { path: folder.to_owned(), source };
    if make {
        // The folder of control sockets, which only its user may enter.
        let _there_already =
            folder.parent().map(|above| DirBuilder::new().mode(0o700).create(above));
        match DirBuilder::new().mode(0o755).create(folder) {
            // Whatever the umask: readers of other users reach the socket, and the service looks at them.
            Ok(()) => std::fs::set_permissions(folder, mode(0o755)).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let found = folder.symlink_metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => PlaceError::Folder {
            path: socket.to_owned(),
            problem: format!(
                "a name with a slash is the path of a socket, and there is no folder {}; make the folder, or give a \
                 name without a slash",
                folder.display()
            ),
        },
        _ => failed(error),
    })?;
    let refused = |problem: String| PlaceError::Folder { path: folder.to_owned(), problem };
    let (owner, bits, ours) = (found.uid(), found.mode() & 0o1777, geteuid().as_raw());
    if make && !found.is_dir() {
        return Err(refused("is not a folder".to_owned()));
    }
    if owner != ours && owner != 0 {
        let problem = format!("belongs to user {owner}, which could exchange the socket");
        return Err(refused(problem));
    }
    if bits & 0o022 != 0 && bits & 0o1000 == 0 {
        let problem = format!("others may write to it (mode {bits:o}) and exchange the socket");
        return Err(refused(problem));
    }
    Ok(())
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Connects, and waits at most a few seconds for a place in the queue.
pub(crate) fn connect(path: &Path) -> rustix::io::Result<OwnedFd> {
    let ours = socket()?;
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Send, Some(PATIENCE))?;
    rustix::net::connect(&ours, &SocketAddrUnix::new(path)?)?;
    Ok(ours)
}

fn remove_left_over(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match path.symlink_metadata()?.file_type().is_socket() {
        true => std::fs::remove_file(path),
        false => Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file, no socket")),
    }
}

/// Listens at a path. The name appears when the socket already listens, so that a reader that finds it is not refused.
fn listen(path: &Path) -> io::Result<OwnedFd> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_file_name(format!(".{:x}-{number:x}.new", std::process::id()));
    let ours = socket()?;
    // Linux gives the file of a socket the mode of the socket, less the umask.
    fchmod(&ours, Mode::from_raw_mode(0o666))?;
    // A dead process with our number may have left one.
    let _nothing_there = std::fs::remove_file(&draft);
    rustix::net::bind(&ours, &SocketAddrUnix::new(&draft)?)?;
    let named = rustix::net::listen(&ours, BACKLOG)
        .map_err(io::Error::from)
        .and_then(|()| std::fs::set_permissions(&draft, mode(0o666)))
        .and_then(|()| Ok(renameat_with(CWD, &draft, CWD, path, RenameFlags::NOREPLACE)?));
    if let Err(error) = named {
        let _gone = std::fs::remove_file(&draft);
        return Err(error);
    }
    Ok(ours)
}

fn mode(bits: u32) -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn names_are_checked() {
        for good in ["eth0", "a.b-c_d@e", "veth0@if2", "/run/x.sock", "./x"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "x".repeat(65);
        for wrong in
            ["", ".", "..", ".hidden", "a b", "a\n", "ä", "/x\ny", "./\u{1b}[2J", "a/", &long]
        {
            let error = check_name(wrong).unwrap_err().to_string();
            assert!(error.contains("is not a name of a service"), "{error}");
        }
    }

    #[test]
    fn each_user_has_a_folder() {
        let with =
            |name: &'static str| move |given: &str| (given == name).then(|| PathBuf::from("/x"));
        assert_eq!(folder_of(0, with("XDG_RUNTIME_DIR")), Path::new("/run/fyke-serve"));
        assert_eq!(folder_of(7, with("XDG_RUNTIME_DIR")), Path::new("/x/fyke-serve"));
        assert_eq!(folder_of(7, with("none")), Path::new("/tmp/fyke-serve-7"));
        assert_eq!(folder_of(0, with("FYKE_RUNTIME_DIR")), Path::new("/x/serve"));
        let looks = |uid, name| folders_for(uid, with(name));
        let of_root = Path::new("/run/fyke-serve");
        assert_eq!(looks(7, "FYKE_RUNTIME_DIR"), [Path::new("/x/serve"), of_root]);
        assert_eq!(looks(7, "XDG_RUNTIME_DIR"), [Path::new("/x/fyke-serve"), of_root]);
        assert_eq!(looks(0, "FYKE_RUNTIME_DIR"), [Path::new("/x/serve")]);
        assert_eq!(looks(0, "none"), [of_root]);
    }

    #[test]
    fn a_second_service_is_refused_and_a_dead_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let name = path.to_str().unwrap();
        let first = Listening::open(name).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
        assert!(matches!(Listening::open(name), Err(PlaceError::Taken { .. })));
        // As after a kill: the file stays.
        let Listening { socket, .. } = &first;
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
        let second = Listening::open(name).unwrap();
        drop(first);
        assert!(path.exists(), "the socket of another process is not removed");
        drop(second);
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        assert!(Listening::open(name).is_err(), "a file is not replaced");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = |mode| {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            Listening::open(folder.path().join("a.sock").to_str().unwrap())
        };
        assert!(matches!(open(0o777), Err(PlaceError::Folder { .. })));
        assert!(matches!(open(0o775), Err(PlaceError::Folder { .. })));
        assert!(open(0o1777).is_ok());
        assert!(open(0o755).is_ok());
    }
}
