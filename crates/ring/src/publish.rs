//! A socket that gives readers the buffers; the connection stays open while the writer lives.
//!
//! ```text
//!   writer ── greeting; index, wake-up, values, packet buffers ──▶ reader
//!          ◀── page ──────────────────────────────────────────── reader
//! ```
//!
//! The socket is made with mode 0600: its owner and root may connect, others if its mode is
//! changed. Its owner is the user that the process runs as, or becomes when it gives up root. A
//! thread accepts readers, takes one message of each (its page, `page.rs`), without ever
//! waiting for it, and shows five times a second that the writer lives. The packet loop looks at the
//! pages: it wakes the readers that sleep ([`Publication::wake`]) and, if slow readers are preferred,
//! holds frames that they need ([`Publication::held`]). At most [`MAX_READERS`] are served at a time.

use crate::index::Pulse;
pub use crate::page::HOLD_LIMIT;
use crate::page::{Hold, PageView};
use crate::{Held, Index, Packets, RingError, Values, sys};
use rustix::fs::{CWD, Mode, RenameFlags, renameat_with};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
    socket_with, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most readers at a time.
pub const MAX_READERS: usize = 64;
/// First bytes of every greeting; a digit and the end of the line follow.
const GREETING: &[u8] = b"fyke-ring ";
const HELLO: &[u8; 12] = b"fyke-ring 2\n";
/// The greeting, the number of packet buffers, and whether there are values.
const HELLO_LEN: usize = HELLO.len() + 2;
/// Most descriptors of the greeting.
const MAX_FDS: usize = 3 + crate::protocol::MAX_BUFFERS;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two heartbeats.
const BEAT: Duration = Duration::from_millis(200);

/// A published ring; others can request it until this value is dropped.
#[derive(Debug)]
pub struct Publication {
    path: PathBuf,
    listener: UnixListener,
    readers: Arc<Readers>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The readers that are connected.
#[derive(Debug, Default)]
struct Readers {
    list: Mutex<Vec<Arc<Slot>>>,
    /// Number of readers, and of those that have lent a page.
    count: AtomicUsize,
    paged: AtomicUsize,
}

/// A connected reader.
#[derive(Debug)]
struct Slot {
    stream: UnixStream,
    event: OwnedFd,
    page: OnceLock<PageView>,
    /// True if its message was taken: it is never read from again.
    is_read: AtomicBool,
    hold: Hold,
}

impl Readers {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes readers for which `keep` is false.
    fn retain(&self, keep: impl Fn(&Slot) -> bool) {
        let all: Vec<Arc<Slot>> = self.lock().clone();
        let gone: Vec<&Arc<Slot>> = all.iter().filter(|slot| !keep(slot)).collect();
        if !gone.is_empty() {
            self.lock().retain(|slot| !gone.iter().any(|gone| Arc::ptr_eq(gone, slot)));
            self.count();
        }
    }

    fn count(&self) {
        let list = self.lock();
        let paged = list.iter().filter(|slot| slot.page.get().is_some()).count();
        self.paged.store(paged, Ordering::Relaxed);
        self.count.store(list.len(), Ordering::Relaxed);
    }
}

/// The descriptors of a ring.
struct Buffers {
    index: OwnedFd,
    values: Option<OwnedFd>,
    packets: Vec<OwnedFd>,
}

impl Publication {
    /// Serves an index and its packet buffer at a socket.
    ///
    /// # Errors
    /// Another process serves there, or the system refuses.
    pub fn new(path: &Path, packets: &Packets, index: &Index) -> Result<Publication, RingError> {
        Publication::of(path, &[packets], index, None)
    }

    /// Serves an index with all packet buffers that its entries name, and values.
    ///
    /// # Errors
    /// As for [`new`](Self::new); or there are more than 16 packet buffers.
    pub fn of(
        path: &Path,
        packets: &[&Packets],
        index: &Index,
        values: Option<&Values>,
    ) -> Result<Publication, RingError> {
        let refused = |error| RingError::call(path.display().to_string(), error);
        let given = packets.len() as u64;
        if packets.is_empty() || packets.len() > crate::protocol::MAX_BUFFERS {
            let (what, expected) = ("the number of packet buffers", "1 to 16".to_owned());
            return Err(RingError::Foreign { what, given, expected });
        }
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(refused);
        let buffers = Buffers {
            index: own(index.fd())?,
            values: values.map(|values| own(values.fd())).transpose()?,
            packets: packets.iter().map(|packets| own(packets.fd())).collect::<Result<_, _>>()?,
        };
        let listener = listen(path)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let (stop, readers) = (Arc::new(AtomicBool::new(false)), Arc::new(Readers::default()));
        let accepts = listener.try_clone().map_err(refused)?;
        let server = Server {
            listener: accepts,
            buffers,
            readers: readers.clone(),
            pulse: index.pulse(),
            stop: stop.clone(),
        };
        server.pulse.beat();
        let thread = std::thread::Builder::new().name("ring".to_owned());
        let thread = thread.spawn(move || server.serve()).map_err(refused)?;
        Ok(Publication { path: path.to_owned(), listener, readers, stop, thread: Some(thread) })
    }

    /// Number of readers. Without one, nothing needs to be stored: a reader starts with the frames
    /// after its connection.
    #[inline]
    pub fn readers(&self) -> usize {
        self.readers.count.load(Ordering::Relaxed)
    }

    /// Number of readers that have lent a page: those that can be woken and held for.
    pub fn pages(&self) -> usize {
        self.readers.paged.load(Ordering::Relaxed)
    }

    /// Wakes the readers that sleep; after frames were pushed, once for a batch. Cost: a load if no
    /// reader has lent a page, else a fence and a load for each that has.
    pub fn wake(&self) {
        if self.readers.paged.load(Ordering::Relaxed) == 0 {
            return;
        }
        crate::protocol::before_requests();
        for slot in self.readers.lock().iter() {
            if slot.page.get().is_some_and(PageView::is_asleep) {
                sys::signal(slot.event.as_fd());
            }
        }
    }

    /// The frames that readers still need, for [`Packets::put_from`](crate::Packets::put_from). The
    /// entry that a reader needs is clamped to those that exist. A reader that holds frames and reads
    /// none for [`HOLD_LIMIT`] is passed over until it reads again.
    pub fn held(&self, index: &Index) -> Held {
        let mut held = Held::Nothing;
        for slot in self.readers.lock().iter() {
            let Some(page) = slot.page.get() else { continue };
            let (needed, is_full) = slot.hold.of(page, index);
            held = held.and(if is_full { Held::All } else { needed });
        }
        held
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

/// The thread that serves a ring.
struct Server {
    listener: UnixListener,
    buffers: Buffers,
    readers: Arc<Readers>,
    pulse: Pulse,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn serve(self) {
        while !self.stop.load(Ordering::Acquire) {
            self.pulse.beat();
            let slots: Vec<Arc<Slot>> = self.readers.lock().clone();
            let silent = slots.iter().filter(|slot| !slot.is_read.load(Ordering::Relaxed));
            let silent: Vec<&Arc<Slot>> = silent.collect();
            let mut fds = vec![self.listener.as_fd()];
            fds.extend(silent.iter().map(|slot| slot.stream.as_fd()));
            let ready = sys::wait(&fds, BEAT);
            for (slot, _) in silent.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
                slot.is_read.store(true, Ordering::Relaxed);
                if let Some(page) = take_page(&slot.stream) {
                    let _is_the_first = slot.page.set(page);
                    self.readers.count();
                }
            }
            self.readers.retain(|slot| !is_gone(&slot.stream));
            if ready[0] {
                self.accept();
            }
        }
    }

    /// Accepts all connections that wait.
    fn accept(&self) {
        for _ in 0..BACKLOG {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Without descriptors the connection stays in the queue.
                    let is_empty = error.kind() == io::ErrorKind::WouldBlock;
                    if !is_empty && !self.stop.load(Ordering::Acquire) {
                        std::thread::sleep(BEAT / 4);
                    }
                    return;
                }
            };
            self.readers.retain(|slot| !is_gone(&slot.stream));
            if self.readers.lock().len() == MAX_READERS {
                continue;
            }
            let Ok((event, theirs)) = sys::event() else { continue };
            // Before the greeting: a reader that has it gets all frames from then on.
            let slot = Arc::new(Slot {
                stream,
                event,
                page: OnceLock::new(),
                is_read: AtomicBool::new(false),
                hold: Hold::default(),
            });
            self.readers.lock().push(Arc::clone(&slot));
            self.readers.count();
            if self.buffers.hand_over(&slot, theirs.as_fd()).is_err() {
                self.readers.retain(|other| !std::ptr::eq(other, &*slot));
            }
        }
    }
}

impl Buffers {
    fn hand_over(&self, slot: &Slot, event: BorrowedFd<'_>) -> io::Result<()> {
        let mut fds = vec![self.index.as_fd(), event];
        fds.extend(self.values.as_ref().map(AsFd::as_fd));
        fds.extend(self.packets.iter().map(AsFd::as_fd));
        let mut hello = HELLO.to_vec();
        hello.extend([self.packets.len() as u8, self.values.is_some().into()]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&slot.stream, &[IoSlice::new(&hello)], &mut rights, flags)?;
        Ok(())
    }
}

/// Takes the page that a reader sends, without waiting.
fn take_page(stream: &UnixStream) -> Option<PageView> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    recvmsg(stream, &mut parts, &mut rights, flags).ok()?;
    let mut given = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            given.extend(fds);
        }
    }
    PageView::open(given.pop()?).ok()
}

/// Sends the page of a reader to its writer.
pub(crate) fn lend_page(stream: &UnixStream, page: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [page];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(stream, &[IoSlice::new(b"p")], &mut rights, flags)?;
    Ok(())
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

/// True if the other end of a connection has been closed, whatever it has sent before.
pub(crate) fn is_gone(stream: &UnixStream) -> bool {
    sys::is_closed(stream.as_fd())
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

/// The connection and the buffers that a writer hands to a reader.
pub(crate) struct Received {
    pub stream: UnixStream,
    pub index: OwnedFd,
    pub event: OwnedFd,
    pub values: Option<OwnedFd>,
    pub packets: Vec<OwnedFd>,
}

/// Requests the buffers from a process of root, of our user, or of `user`.
pub(crate) fn ask(path: &Path, user: Option<u32>) -> Result<Received, RingError> {
    let refused = |error: io::Error| RingError::call(path.display().to_string(), error);
    let stream = connect(path).map_err(refused)?;
    check_owner(&stream, path, user)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
    let mut hello = [0; HELLO_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut hello)];
    let got = recvmsg(&stream, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC);
    let got = got.map_err(|error| refused(error.into()))?;
    let mut given = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            given.extend(fds);
        }
    }
    if got.bytes == 0 {
        return Err(RingError::Full { path: path.display().to_string() });
    }
    let version = hello.strip_prefix(GREETING).and_then(<[u8]>::first);
    if let Some(version) = version.filter(|version| version.is_ascii_digit() && **version != b'2') {
        let (what, given) = ("the version of its protocol", u64::from(version - b'0'));
        return Err(RingError::Foreign { what, given, expected: "2".to_owned() });
    }
    let has_values = hello[HELLO_LEN - 1] == 1;
    let wanted = 2 + usize::from(has_values) + usize::from(hello[HELLO.len()]);
    if got.bytes != HELLO_LEN || !hello.starts_with(HELLO) || given.len() != wanted {
        let expected = "a greeting and its buffers".to_owned();
        return Err(RingError::Foreign { what: "the answer", given: got.bytes as u64, expected });
    }
    let mut given = given.into_iter();
    let (Some(index), Some(event)) = (given.next(), given.next()) else {
        let expected = "an index".to_owned();
        return Err(RingError::Foreign { what: "the answer", given: 0, expected });
    };
    let values = if has_values { given.next() } else { None };
    Ok(Received { stream, index, event, values, packets: given.collect() })
}
