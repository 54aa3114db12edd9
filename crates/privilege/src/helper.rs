//! A small process that keeps sockets and files that a capture needs later, and answers a fixed list of requests.
//!
//! | request | accepted until | what the helper does |
//! |---|---|---|
//! | hold | sealed | keeps a copy of a packet socket, with the name of its interface |
//! | hold a group | sealed | keeps the description of sockets that share the frames of an interface ([`Group`]) |
//! | will remove | sealed | keeps the path of a file, with its identity; of some, for requests only |
//! | seal | sealed | refuses these four requests from now on, drops its capabilities, enters its own sandbox |
//! | named | the end | tells the name and the state of the interface with an index |
//! | look | the end | describes the interface that a held socket belongs to |
//! | bind | the end | binds a held socket to its interface again, after the interface was recreated |
//! | fetch | the end | opens the sockets of a held group again, and gives a member its own |
//! | remove | the end | removes a named file, if it is still the same file |
//!
//! After the seal, a request can name only a socket (by number) or a file (by path) that was handed over before it,
//! while the parent was still trusted. Only a helper with a group keeps a capability, CAP_NET_RAW, and may open packet
//! sockets. The helper reads no frames. It ends when its parent ends, even if the parent is
//! killed, and then removes the named files that still exist, except those for requests only.
//!
//! Messages are packets of a socket pair (SOCK_SEQPACKET), one request and one answer at a time. Both carry the number
//! of the request, so that an answer after the time limit of its request is dropped.

mod group;
mod serve;
mod wire;

use crate::child::{self, Ended};
use crate::sys;
pub use group::{Fetched, Group, MAX_PLAN, Opened};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair, sockopt,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};
use wire::{Answer, Kind, Request};

/// Limit on held sockets.
pub const MAX_SOCKETS: usize = 256;
/// Limit on files to remove.
pub const MAX_FILES: usize = 256;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for the removal of files; after one that took this long, the next ones wait for nothing.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for the end of the helper; half of it after a removal that took too long.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Interval between checks whether another thread is done with the helper.
const PAUSE: Duration = Duration::from_millis(1);

/// Operations of the helper on packet sockets, implemented by the crate that opens them.
pub trait Sockets {
    /// Looks up the interface of this name; `None` if there is none now.
    ///
    /// # Errors
    /// When the system call fails.
    fn look(&self, interface: &str) -> io::Result<Option<Presence>>;

    /// Looks up the interface with this index, with its name; `None` if there is none now.
    ///
    /// # Errors
    /// When the system call fails.
    fn named(&self, ifindex: u32) -> io::Result<Option<(String, Presence)>>;

    /// Binds a socket to an interface again.
    ///
    /// # Errors
    /// When the system refuses.
    fn bind(&self, socket: BorrowedFd<'_>, to: &Presence, promiscuous: bool) -> io::Result<()>;

    /// Opens `count` sockets that share the frames of an interface, and deliver nothing yet. `plan` has the options.
    ///
    /// # Errors
    /// For an invalid plan; when the system refuses.
    fn open_group(
        &self,
        plan: &[u8],
        count: usize,
        to: &Presence,
        promiscuous: bool,
    ) -> io::Result<Vec<Opened>>;
}

/// An interface that exists now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Presence {
    /// Interface index.
    pub ifindex: u32,
    /// Number of its link type.
    pub link: u32,
    /// Index of the loopback interface; 0 if there is none.
    pub loopback: u32,
    /// True if the interface is up.
    pub up: bool,
}

/// The helper of this process.
#[derive(Debug)]
pub struct Helper {
    channel: OwnedFd,
    /// Number of the last request; one thread asks at a time.
    asked: Mutex<u32>,
    sealed: AtomicBool,
    /// True after a removal that the helper did not confirm in time.
    is_late: AtomicBool,
    /// True once this process ends the helper.
    is_ending: AtomicBool,
    pid: i32,
    /// The process itself, whatever its number means later; `None` before Linux 5.3.
    process: Option<OwnedFd>,
}

static CURRENT: OnceLock<Helper> = OnceLock::new();

/// The helper of this process, if one was started.
pub fn current() -> Option<&'static Helper> {
    CURRENT.get()
}

/// Starts the helper, once. The process must have a single thread.
///
/// # Errors
/// When there are several threads, when a helper runs already, or when the system refuses.
pub fn start(sockets: &dyn Sockets) -> io::Result<&'static Helper> {
    if current().is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let pid = sys::fork()?;
    if pid == 0 {
        let serve = || serve::run(theirs.as_raw_fd(), sockets);
        // A panic must not unwind into the parent's code.
        let _ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
        sys::end();
    }
    drop(theirs);
    let process = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    Ok(CURRENT.get_or_init(|| Helper {
        channel: ours,
        asked: Mutex::new(0),
        sealed: AtomicBool::new(false),
        is_late: AtomicBool::new(false),
        is_ending: AtomicBool::new(false),
        pid,
        process,
    }))
}

/// Removes a file, through the helper if this process lacks permission.
///
/// # Errors
/// When both fail.
pub fn remove_file(path: &Path) -> io::Result<()> {
    let removed = std::fs::remove_file(path);
    let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match (&removed, current()) {
        (Err(error), Some(helper)) if denied(error) => helper.remove(path),
        _ => removed,
    }
}

/// Makes the helper, if there is one, remove a file when this process ends.
///
/// # Errors
/// When the helper refuses.
pub fn will_remove(path: &Path) -> io::Result<()> {
    current().map_or(Ok(()), |helper| helper.will_remove(path))
}

/// Makes the helper, if there is one, remove a file by [`remove_file`], but not when this process is killed.
///
/// # Errors
/// When the helper refuses.
pub fn may_remove(path: &Path) -> io::Result<()> {
    current().map_or(Ok(()), |helper| helper.may_remove(path))
}

impl Helper {
    /// Process id of the helper.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Hands over a copy of a packet socket and returns its number, which later requests use.
    ///
    /// # Errors
    /// After [`seal`](Self::seal), beyond [`MAX_SOCKETS`], and when the helper has ended.
    pub fn hold(
        &self,
        socket: BorrowedFd<'_>,
        interface: &str,
        promiscuous: bool,
    ) -> io::Result<u32> {
        let request = Request { kind: Kind::Hold, number: 0, flag: promiscuous, sequence: 0 };
        Ok(self.ask(request, interface.as_bytes(), Some(socket))?.number)
    }

    /// Hands over the description of `count` sockets that share the frames of an interface, and returns the number of
    /// the group, for [`look`](Self::look) and [`fetch`](Self::fetch). `plan` is passed to [`Sockets::open_group`].
    ///
    /// # Errors
    /// As [`hold`](Self::hold), and for a plan that is longer than [`MAX_PLAN`].
    pub fn hold_group(
        &self,
        interface: &str,
        promiscuous: bool,
        count: u32,
        plan: &[u8],
    ) -> io::Result<u32> {
        let request =
            Request { kind: Kind::HoldGroup, number: count, flag: promiscuous, sequence: 0 };
        let len = u8::try_from(plan.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let text = [&[len], plan, interface.as_bytes()].concat();
        Ok(self.ask(request, &text, None)?.number)
    }

    /// Fetches the socket of a member of a group, which is opened again if the interface was made again.
    ///
    /// # Errors
    /// As [`Group::fetch`].
    pub fn fetch(&self, number: u32, member: u32) -> io::Result<Fetched> {
        let request = Request { kind: Kind::Fetch, number, flag: false, sequence: 0 };
        let (answer, socket) = self.exchange(PATIENCE, request, &member.to_ne_bytes(), None)?;
        let socket = socket.ok_or_else(|| io::Error::other("the helper has sent no socket"))?;
        let opened = Opened { socket, blocks: answer.blocks };
        Ok(Fetched { opened, generation: answer.number, presence: answer.presence })
    }

    /// Names a file to remove when this process ends, or earlier by [`remove`](Self::remove).
    ///
    /// # Errors
    /// After [`seal`](Self::seal), beyond [`MAX_FILES`], and when there is no such file.
    pub fn will_remove(&self, path: &Path) -> io::Result<()> {
        self.name_file(path, false)
    }

    /// Names a file to remove by [`remove`](Self::remove) only: it stays when this process is killed.
    ///
    /// # Errors
    /// As [`will_remove`](Self::will_remove).
    pub fn may_remove(&self, path: &Path) -> io::Result<()> {
        self.name_file(path, true)
    }

    fn name_file(&self, path: &Path, on_request: bool) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let request = Request { kind: Kind::WillRemove, number: 0, flag: on_request, sequence: 0 };
        self.ask(request, path.as_os_str().as_bytes(), None).map(drop)
    }

    /// Ends the phase in which sockets and files are handed over. Afterwards the helper does not trust this process.
    ///
    /// # Errors
    /// When the helper has ended or could not confine itself.
    pub fn seal(&self) -> io::Result<()> {
        let request = Request { kind: Kind::Seal, number: 0, flag: false, sequence: 0 };
        self.ask(request, &[], None)?;
        self.sealed.store(true, Ordering::Release);
        Ok(())
    }

    /// True once this process can no longer open packet sockets.
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Looks up the interface with this index, with its name; `None` if there is none now.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn named(&self, ifindex: u32) -> io::Result<Option<(String, Presence)>> {
        let request = Request { kind: Kind::Named, number: ifindex, flag: false, sequence: 0 };
        let answer = self.ask(request, &[], None)?;
        let name = answer.name.split(|byte| *byte == 0).next().unwrap_or_default();
        let named = || (String::from_utf8_lossy(name).into_owned(), answer.presence);
        Ok(answer.present.then(named))
    }

    /// Looks up the interface of a held socket; `None` if no interface has its name now.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn look(&self, number: u32) -> io::Result<Option<Presence>> {
        let request = Request { kind: Kind::Look, number, flag: false, sequence: 0 };
        let answer = self.ask(request, &[], None)?;
        Ok(answer.present.then_some(answer.presence))
    }

    /// Binds a held socket to its interface again.
    ///
    /// # Errors
    /// When the interface does not exist or the system refuses.
    pub fn bind(&self, number: u32) -> io::Result<Presence> {
        let request = Request { kind: Kind::Bind, number, flag: false, sequence: 0 };
        Ok(self.ask(request, &[], None)?.presence)
    }

    /// Removes a file that was named with [`will_remove`](Self::will_remove).
    ///
    /// # Errors
    /// When it was not named, was replaced by another file, or cannot be removed; when the helper does not confirm it
    /// within a second, or did not confirm an earlier one. The helper then removes the file when it ends.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let request = Request { kind: Kind::Remove, number: 0, flag: false, sequence: 0 };
        let patience = match self.is_late.load(Ordering::Acquire) {
            true => return Err(silent()),
            false => REMOVAL_PATIENCE,
        };
        let removed = self.ask_within(patience, request, path.as_os_str().as_bytes(), None);
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        if removed.as_ref().is_err_and(is_late) {
            self.is_late.store(true, Ordering::Release);
        }
        removed.map(drop)
    }

    /// Waits, without a limit, until the helper has ended, for a thread of its own. So it does not stay in the list of
    /// processes. `None` if this process ends it.
    pub fn wait_for_end(&self) -> Option<Ended> {
        let ended = child::wait_for_end(self.channel.as_fd(), self.pid);
        (!self.is_ending.load(Ordering::Acquire)).then_some(ended)
    }

    /// Ends the helper and waits for it; kills it after half of the time if that is permitted. With the removals of
    /// files before, this takes at most two seconds. A command calls this before it exits, so that no helper outlives
    /// it. Returns false if it still runs.
    ///
    /// After a change of the user, the helper belongs to another user and cannot be killed. It ends by itself as soon
    /// as it runs again and its file system answers.
    #[must_use]
    pub fn end(&self) -> bool {
        self.is_ending.store(true, Ordering::Release);
        // The helper then reads end of file, and so does a thread of this process that waits for an answer.
        let _gone = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
        let is_late = self.is_late.load(Ordering::Acquire);
        let half = if is_late { END_PATIENCE / 4 } else { END_PATIENCE / 2 };
        if sys::wait_for(self.pid, half) {
            return true;
        }
        if let Some(process) = &self.process {
            // Not permitted after a change of the user; then the other half remains.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        sys::wait_for(self.pid, half)
    }

    fn ask(
        &self,
        request: Request,
        text: &[u8],
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<Answer> {
        self.ask_within(PATIENCE, request, text, socket)
    }

    fn ask_within(
        &self,
        patience: Duration,
        request: Request,
        text: &[u8],
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<Answer> {
        self.exchange(patience, request, text, socket).map(|(answer, _)| answer)
    }

    /// Sends a request and waits for its answer. Answers to earlier requests, which came too late, are dropped, with
    /// their sockets.
    fn exchange(
        &self,
        patience: Duration,
        request: Request,
        text: &[u8],
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Answer, Option<OwnedFd>)> {
        if text.len() > wire::MAX_TEXT {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let end = Instant::now() + patience;
        let mut asked = self.turn(end)?;
        *asked = asked.wrapping_add(1);
        let request = Request { sequence: *asked, ..request };
        let head = request.to_bytes();
        let parts = [IoSlice::new(&head), IoSlice::new(text)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
        if !sockets.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(&sockets));
        }
        let send = || sendmsg(self.channel.as_fd(), &parts, &mut rights, SendFlags::NOSIGNAL);
        self.until(end, sockopt::Timeout::Send, send)?;
        loop {
            let mut bytes = [0u8; Answer::LEN];
            let receive = || wire::receive(&self.channel, &mut bytes);
            let (length, socket) = self.until(end, sockopt::Timeout::Recv, receive)?;
            let answer = Answer::from_bytes(&bytes[..length]).ok_or_else(gone)?;
            if answer.sequence == request.sequence {
                return match answer.error {
                    0 => Ok((answer, socket)),
                    error => Err(io::Error::from_raw_os_error(error)),
                };
            }
        }
    }

    /// Waits until no other thread asks.
    fn turn(&self, end: Instant) -> io::Result<MutexGuard<'_, u32>> {
        loop {
            match self.asked.try_lock() {
                Ok(asked) => return Ok(asked),
                Err(TryLockError::Poisoned(asked)) => return Ok(asked.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return Err(silent()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Repeats an interrupted call on the channel, until a point in time.
    fn until<T>(
        &self,
        end: Instant,
        kind: sockopt::Timeout,
        mut call: impl FnMut() -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // Zero would mean no limit.
            if left < PAUSE {
                return Err(silent());
            }
            sockopt::set_socket_timeout(&self.channel, kind, Some(left))?;
            match call() {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(silent()),
                // Not as a pipe that a reader of output has closed, which ends a command without an error.
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(gone()),
                other => return Ok(other?),
            }
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the helper process has ended; start the capture again")
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the helper process does not answer")
}
