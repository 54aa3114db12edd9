//! A socket that gives readers both buffers; the connection stays open while the writer lives.
//!
//! The socket is made with mode 0600: its owner and root may connect, others if its mode is
//! changed. Its owner is the user that the process runs as, or becomes when it gives up root. The
//! writer never reads from a client, so no client can delay it. At most [`MAX_READERS`] are served
//! at a time.

use crate::{Index, Packets, RingError};
use rustix::fs::{CWD, Mode, RenameFlags, renameat_with};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, recvmsg,
    sendmsg, socket_with, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most readers at a time.
pub const MAX_READERS: usize = 64;
const HELLO: &[u8] = b"fyke-ring 1\n";
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
const PATIENCE: Duration = Duration::from_secs(5);

/// A published ring; others can request it until this value is dropped.
#[derive(Debug)]
pub struct Publication {
    path: PathBuf,
    listener: UnixListener,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Publication {
    /// Serves an index and its packet buffer at a socket.
    ///
    /// # Errors
    /// Another process serves there, or the system refuses.
    pub fn new(path: &Path, packets: &Packets, index: &Index) -> Result<Publication, RingError> {
        let refused = |error| RingError::call(path.display().to_string(), error);
        let listener = listen(path)?;
        let buffers = [packets.fd(), index.fd()];
        let [Ok(packets), Ok(index)] = buffers.map(|fd| fd.try_clone_to_owned()) else {
            return Err(refused(io::Error::last_os_error()));
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let accepts = listener.try_clone().map_err(refused)?;
        let serve = move || serve(&accepts, &packets, &index, &stopped);
        let thread =
            std::thread::Builder::new().name("ring".to_owned()).spawn(serve).map_err(refused)?;
        Ok(Publication { path: path.to_owned(), listener, stop, thread: Some(thread) })
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = fyke_privilege::helper::remove_file(&self.path);
        // Wakes the thread; if that fails, the thread is not joined.
        let woken = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Listens at a path with a socket of mode 0600, and replaces a socket left by an ended process.
/// Linux applies the mode of the socket to the file that `bind` makes, so the file is never open to
/// others, whatever the umask.
///
/// # Errors
/// Another process listens there, or the system refuses.
pub fn listen(path: &Path) -> Result<UnixListener, RingError> {
    let shown = || path.display().to_string();
    let refused = |error: io::Error| RingError::call(shown(), error);
    match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            if std::fs::symlink_metadata(path).is_ok_and(|found| is_socket(&found)) {
                std::fs::remove_file(path).map_err(refused)?;
            }
        }
        Ok(_) => return Err(RingError::Taken { path: shown() }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(RingError::Taken { path: shown() });
        }
        Err(error) => return Err(refused(error)),
    }
    listen_at_once(path).map_err(refused)
}

/// Listens at a path that does not exist. The name appears when the socket already listens, so that
/// a client that finds it is not refused: the socket is bound under another name in the same folder
/// and renamed. If that name is too long for a socket, the path itself is bound.
fn listen_at_once(path: &Path) -> io::Result<UnixListener> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_file_name(format!(".{:x}-{number:x}.new", std::process::id()));
    let socket = private_socket()?;
    let Ok(address) = SocketAddrUnix::new(&draft) else {
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        // A capture that gives up root publishes for the user that it becomes.
        fyke_privilege::user::hand_over_socket(path)?;
        // Made after that, the socket is that user's own to remove.
        let _ = fyke_privilege::helper::will_remove(path);
        return Ok(UnixListener::from(socket));
    };
    // One that a dead process of our number has left.
    let _nothing_there = std::fs::remove_file(&draft);
    rustix::net::bind(&socket, &address)?;
    let named = rustix::net::listen(&socket, BACKLOG)
        .map_err(io::Error::from)
        // A capture that gives up root publishes for the user that it becomes.
        .and_then(|()| fyke_privilege::user::hand_over_socket(&draft))
        .and_then(|()| Ok(renameat_with(CWD, &draft, CWD, path, RenameFlags::NOREPLACE)?));
    if let Err(error) = named {
        let _gone = std::fs::remove_file(&draft);
        return Err(error);
    }
    // Made after the change of the user, the socket is that user's own to remove.
    let _ = fyke_privilege::helper::will_remove(path);
    Ok(UnixListener::from(socket))
}

/// A socket of mode 0600.
fn private_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    Ok(socket)
}

/// Connects, waiting at most [`PATIENCE`] for a slot in the queue.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn is_socket(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    found.file_type().is_socket()
}

fn serve(listener: &UnixListener, packets: &OwnedFd, index: &OwnedFd, stop: &AtomicBool) {
    let mut readers: Vec<UnixStream> = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        readers.retain(|reader| !is_gone(reader));
        if readers.len() < MAX_READERS && hand_over(&stream, packets, index).is_ok() {
            readers.push(stream);
        }
    }
}

fn hand_over(stream: &UnixStream, packets: &OwnedFd, index: &OwnedFd) -> io::Result<()> {
    let buffers = [packets.as_fd(), index.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&buffers));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(stream, &[IoSlice::new(HELLO)], &mut rights, flags)?;
    Ok(())
}

/// True if the other end of a connection has been closed.
pub(crate) fn is_gone(stream: &UnixStream) -> bool {
    let mut byte = [0u8; 1];
    match recv(stream, &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok((_, length)) => length == 0,
        Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
    }
}

/// Checks that the process at the other end belongs to root, to our user, to the user that we become, or to `user`.
fn check_owner(stream: &UnixStream, path: &Path, user: Option<u32>) -> Result<(), RingError> {
    let shown = || path.display().to_string();
    let peer = sockopt::socket_peercred(stream).map_err(|error| {
        let error = io::Error::from(error);
        RingError::call(shown(), error)
    })?;
    let peer = peer.uid.as_raw();
    let ours = rustix::process::geteuid().as_raw();
    let trusted = [Some(0), Some(ours), fyke_privilege::user::owner_of_new_files(), user];
    match trusted.contains(&Some(peer)) {
        true => Ok(()),
        false => Err(RingError::Stranger { path: shown(), user: peer }),
    }
}

/// Requests the buffers from a process of root, of our user, or of `user`.
pub(crate) fn ask(
    path: &Path,
    user: Option<u32>,
) -> Result<(UnixStream, OwnedFd, OwnedFd), RingError> {
    let refused = |error: io::Error| RingError::call(path.display().to_string(), error);
    let stream = connect(path).map_err(refused)?;
    check_owner(&stream, path, user)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
    let mut hello = [0; HELLO.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut hello)];
    let got = recvmsg(&stream, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC);
    let got = got.map_err(|error| refused(error.into()))?;
    let mut buffers = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(given) = message {
            buffers.extend(given);
        }
    }
    let mut buffers = buffers.into_iter();
    match (buffers.next(), buffers.next()) {
        (Some(packets), Some(index)) if got.bytes == HELLO.len() && hello == HELLO => {
            Ok((stream, packets, index))
        }
        _ if got.bytes == 0 => Err(RingError::Full { path: path.display().to_string() }),
        _ => {
            let expected = "a greeting and two buffers".to_owned();
            Err(RingError::Foreign { what: "the answer", given: got.bytes as u64, expected })
        }
    }
}
