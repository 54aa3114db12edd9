//! Descriptors that a service manager gives to this process (sd_listen_fds(3)), and keeps for the process after it
//! (sd_notify(3), `FDSTORE=1`).
//!
//! | variable | what |
//! |---|---|
//! | `LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES` | descriptors from number 3 on, and their names |
//! | `NOTIFY_SOCKET` | where [`Keeper`] sends messages |
//! | `FDSTORE` | number of descriptors that are kept, if any are (systemd 254) |
//!
//! Cost: one message for a descriptor; nothing per packet.

use crate::sys;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Most descriptors that are taken.
const MOST: usize = 4096;
/// Longest wait for a busy service manager.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes the descriptors that the service manager has given to this process, with their names; they are closed on
/// `exec` from now on. A second call returns none.
///
/// # Errors
/// The variables name descriptors that are not open.
pub fn take() -> io::Result<Vec<(String, OwnedFd)>> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
    let ours = number("LISTEN_PID") == Some(std::process::id() as usize);
    let Some(count) = number("LISTEN_FDS").filter(|&count| ours && count > 0) else {
        return Ok(Vec::new());
    };
    if count > MOST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{count} are more than {MOST}"),
        ));
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    Ok(names.zip(sys::take_from(3, count)?).collect())
}

/// A service manager that keeps descriptors for the process after this one.
#[derive(Debug)]
pub struct Keeper {
    socket: OwnedFd,
    keeps: bool,
}

impl Keeper {
    /// Connects to the service manager of this process; `None` if there is none. Call it before the sandbox.
    ///
    /// # Errors
    /// The socket in `NOTIFY_SOCKET` cannot be reached.
    pub fn connect() -> io::Result<Option<Keeper>> {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
            path => SocketAddrUnix::new(path)?,
        };
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        connect(&socket, &address)?;
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        let kept = std::env::var("FDSTORE").ok().and_then(|count| count.parse::<usize>().ok());
        Ok(Some(Keeper { socket, keeps: kept.unwrap_or(0) > 0 }))
    }

    /// True if it keeps descriptors.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// Tells that the process is ready.
    ///
    /// # Errors
    /// The message cannot be sent.
    pub fn ready(&self) -> io::Result<()> {
        self.send("READY=1", None)
    }

    /// Has a descriptor kept under a name, of letters, digits and `-`.
    ///
    /// # Errors
    /// The message cannot be sent.
    pub fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        // Without FDPOLL=0 a socket with an error, as one of an interface that is down, is not kept.
        self.send(&format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}"), Some(descriptor))
    }

    /// Ends the keeping of the descriptors of a name.
    ///
    /// # Errors
    /// The message cannot be sent.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None)
    }

    fn send(&self, message: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let given: Vec<_> = descriptor.into_iter().collect();
        if !given.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(&given));
        }
        let parts = [IoSlice::new(message.as_bytes())];
        loop {
            match sendmsg(self.socket.as_fd(), &parts, &mut rights, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
