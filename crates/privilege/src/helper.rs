//! A small process that keeps what a capture needs later and answers a fixed list of requests.
//!
//! | request | until | what the helper does |
//! |---|---|---|
//! | hold | sealed | keeps a copy of a packet socket, with the name of its interface |
//! | will remove | sealed | keeps the path of a file, with its identity |
//! | seal | | takes no more of both, gives up all capabilities, enters a sandbox of its own |
//! | look | the end | tells of the interface that a held socket belongs to |
//! | bind | the end | binds a held socket to its interface again, after that was made anew |
//! | remove | the end | removes a file that was named before, if it is still the same |
//!
//! A request that comes later names only what was handed over while this process was still trusted: a socket by its
//! number, a file by its path. The helper reads no frames. It ends with its parent, however that ends, and removes then
//! what is left of the files.
//!
//! Messages are packets of a socket pair (SOCK_SEQPACKET), one request and one answer at a time.

mod serve;
mod wire;

use crate::sys;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair, sockopt,
};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use wire::{Answer, Kind, Request};

/// Most sockets that are held.
pub const MAX_SOCKETS: usize = 256;
/// Most files that are removed.
pub const MAX_FILES: usize = 256;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the helper does with packet sockets; the code of whoever opens them.
pub trait Sockets {
    /// The interface of this name, if there is one now.
    ///
    /// # Errors
    /// When the system does not tell.
    fn look(&self, interface: &str) -> io::Result<Option<Presence>>;

    /// Binds a socket to an interface again.
    ///
    /// # Errors
    /// When the system refuses.
    fn bind(&self, socket: BorrowedFd<'_>, to: &Presence, promiscuous: bool) -> io::Result<()>;
}

/// An interface that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Presence {
    /// Interface index.
    pub ifindex: u32,
    /// Number of its link type.
    pub link: u32,
    /// Index of the loopback interface; 0 = there is none.
    pub loopback: u32,
    /// Whether it is switched on.
    pub up: bool,
}

/// The helper of this process.
#[derive(Debug)]
pub struct Helper {
    channel: Mutex<OwnedFd>,
    sealed: AtomicBool,
    pid: i32,
}

static CURRENT: OnceLock<Helper> = OnceLock::new();

/// The helper of this process, if one was started.
pub fn current() -> Option<&'static Helper> {
    CURRENT.get()
}

/// Starts the helper, once. For a process with one thread.
///
/// # Errors
/// When there are several threads, a helper already, or the system refuses.
pub fn start(sockets: &dyn Sockets) -> io::Result<&'static Helper> {
    if current().is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(PATIENCE))?;
    let pid = sys::fork()?;
    if pid == 0 {
        let serve = || serve::run(theirs.as_raw_fd(), sockets);
        // A panic must not run on in what was the parent's code.
        let _ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
        sys::end();
    }
    drop(theirs);
    Ok(CURRENT.get_or_init(|| Helper {
        channel: Mutex::new(ours),
        sealed: AtomicBool::new(false),
        pid,
    }))
}

/// Removes a file; through the helper when this process may not.
///
/// # Errors
/// When neither may.
pub fn remove_file(path: &Path) -> io::Result<()> {
    let removed = std::fs::remove_file(path);
    let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match (&removed, current()) {
        (Err(error), Some(helper)) if denied(error) => helper.remove(path),
        _ => removed,
    }
}

/// Has the helper, if there is one, remove a file at the end of this process.
///
/// # Errors
/// When the helper refuses.
pub fn will_remove(path: &Path) -> io::Result<()> {
    current().map_or(Ok(()), |helper| helper.will_remove(path))
}

impl Helper {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Hands over a copy of a packet socket; its number for the requests that follow.
    ///
    /// # Errors
    /// After [`seal`](Self::seal), beyond [`MAX_SOCKETS`], and when the helper is gone.
    pub fn hold(
        &self,
        socket: BorrowedFd<'_>,
        interface: &str,
        promiscuous: bool,
    ) -> io::Result<u32> {
        let request = Request { kind: Kind::Hold, number: 0, flag: promiscuous };
        Ok(self.ask(request, interface.as_bytes(), Some(socket))?.number)
    }

    /// Names a file that is to be removed at the end of this process, or by [`remove`](Self::remove).
    ///
    /// # Errors
    /// After [`seal`](Self::seal), beyond [`MAX_FILES`], and when there is no such file.
    pub fn will_remove(&self, path: &Path) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let request = Request { kind: Kind::WillRemove, number: 0, flag: false };
        self.ask(request, path.as_os_str().as_bytes(), None).map(drop)
    }

    /// Ends the time in which sockets and files are handed over. From now on this process need not be trusted.
    ///
    /// # Errors
    /// When the helper is gone or could not confine itself.
    pub fn seal(&self) -> io::Result<()> {
        let request = Request { kind: Kind::Seal, number: 0, flag: false };
        self.ask(request, &[], None)?;
        self.sealed.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether this process opens no packet sockets any more.
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// The interface of a held socket, if there is one of that name now.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn look(&self, number: u32) -> io::Result<Option<Presence>> {
        let request = Request { kind: Kind::Look, number, flag: false };
        let answer = self.ask(request, &[], None)?;
        Ok(answer.present.then_some(answer.presence))
    }

    /// Binds a held socket to its interface again.
    ///
    /// # Errors
    /// When the interface is not there or the system refuses.
    pub fn bind(&self, number: u32) -> io::Result<Presence> {
        let request = Request { kind: Kind::Bind, number, flag: false };
        Ok(self.ask(request, &[], None)?.presence)
    }

    /// Removes a file that [`will_remove`](Self::will_remove) has named.
    ///
    /// # Errors
    /// When it was not named, is another one now, or cannot be removed.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let request = Request { kind: Kind::Remove, number: 0, flag: false };
        self.ask(request, path.as_os_str().as_bytes(), None).map(drop)
    }

    /// Lets the helper end and waits for that: at the end of a command, so that nothing of it is left behind.
    pub fn end(&self) {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        // The helper reads the end of the stream then.
        let _gone = rustix::net::shutdown(&*channel, rustix::net::Shutdown::Both);
        sys::wait_for(self.pid);
    }

    fn ask(
        &self,
        request: Request,
        text: &[u8],
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<Answer> {
        if text.len() > wire::MAX_TEXT {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let head = request.to_bytes();
        let parts = [IoSlice::new(&head), IoSlice::new(text)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
        if !sockets.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(&sockets));
        }
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        sendmsg(channel.as_fd(), &parts, &mut rights, SendFlags::NOSIGNAL)?;
        let mut bytes = [0u8; Answer::LEN];
        let length = loop {
            match recv(channel.as_fd(), &mut bytes, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?.1,
            }
        };
        let gone = || io::Error::other("the helper process has ended");
        let answer = Answer::from_bytes(&bytes[..length]).ok_or_else(gone)?;
        match answer.error {
            0 => Ok(answer),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}
