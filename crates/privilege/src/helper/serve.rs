//! Helper side of the channel: a loop that reads one request and sends one answer.

use super::wire::{Answer, Kind, MAX_TEXT, NAME_LEN, Request};
use super::{MAX_FILES, MAX_SOCKETS, Sockets};
use crate::sandbox::{self, Rules};
use crate::user::UserError;
use crate::{sys, user};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::ffi::OsStr;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A packet socket of the capture.
struct Socket {
    socket: OwnedFd,
    interface: String,
    promiscuous: bool,
}

/// A file to remove.
struct File {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

struct Serving<'s> {
    sockets: &'s dyn Sockets,
    held: Vec<Socket>,
    files: Vec<File>,
    /// Error of the protection from other processes.
    closed: io::Result<()>,
    sealed: bool,
}

/// Serves requests until the other end is closed, then removes the named files.
pub(super) fn run(channel: i32, sockets: &dyn Sockets) {
    sys::ignore_signals();
    if sys::keep_only(channel).is_err() {
        return;
    }
    // The parent gets the error from `seal`, and ends.
    let closed = user::close_to_others();
    // The name is only for process lists such as `ps`.
    let _ = rustix::thread::set_name(c"fyke-helper");
    let channel = sys::kept();
    let (held, files) = (Vec::new(), Vec::new());
    let mut serving = Serving { sockets, held, files, closed, sealed: false };
    let mut bytes = [0; Request::LEN + MAX_TEXT];
    while let Ok((length, socket)) = receive(&channel, &mut bytes) {
        let parsed = Request::from_bytes(&bytes[..length]);
        let sequence = parsed.map_or(0, |(request, _)| request.sequence);
        let result = match parsed {
            Some((request, text)) => serving.answer(request, text, socket),
            None if length == 0 => break,
            None => Err(ErrorKind::InvalidInput.into()),
        };
        let answer = result.unwrap_or_else(|error| Answer {
            error: error.raw_os_error().unwrap_or(libc::EINVAL),
            ..Answer::default()
        });
        let answer = Answer { sequence, ..answer };
        if send(&channel, &answer.to_bytes(), SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
    serving.remove_all();
}

/// Receives the next request, and the first of the descriptors that come with it.
fn receive(channel: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(channel, &mut [IoSliceMut::new(bytes)], &mut rights, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut socket = None;
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(sockets) = message {
            socket = socket.or(sockets.into_iter().next());
        }
    }
    Ok((received.bytes, socket))
}

impl Serving<'_> {
    fn answer(
        &mut self,
        request: Request,
        text: &[u8],
        socket: Option<OwnedFd>,
    ) -> io::Result<Answer> {
        let handed_over = [Kind::Hold, Kind::WillRemove, Kind::Seal].contains(&request.kind);
        if handed_over && self.sealed {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        match request.kind {
            Kind::Hold => self.hold(request.flag, text, socket),
            Kind::WillRemove => self.will_remove(Path::new(OsStr::from_bytes(text))),
            Kind::Seal => self.seal(),
            Kind::Name => {
                let found = self.sockets.name(request.number)?;
                let mut name = [0; NAME_LEN];
                // The last byte stays zero.
                let bytes = found.as_deref().unwrap_or_default().bytes().take(NAME_LEN - 1);
                name.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
                Ok(Answer { present: found.is_some(), name, ..Answer::default() })
            }
            Kind::Look => {
                let found = self.sockets.look(&self.held(request.number)?.interface)?;
                let (present, presence) = (found.is_some(), found.unwrap_or_default());
                Ok(Answer { present, presence, ..Answer::default() })
            }
            Kind::Bind => {
                let Socket { socket, interface, promiscuous } = self.held(request.number)?;
                let found = self.sockets.look(interface)?;
                let presence = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
                self.sockets.bind(socket.as_fd(), &presence, *promiscuous)?;
                Ok(Answer { present: true, presence, ..Answer::default() })
            }
            Kind::Remove => {
                let path = Path::new(OsStr::from_bytes(text));
                let place = self.files.iter().position(|file| file.path == path);
                let place = place.ok_or_else(|| io::Error::from_raw_os_error(libc::EPERM))?;
                let file = self.files.swap_remove(place);
                file.remove().map(|()| Answer::default())
            }
        }
    }

    fn held(&self, number: u32) -> io::Result<&Socket> {
        let found = usize::try_from(number).ok().and_then(|number| self.held.get(number));
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn hold(
        &mut self,
        promiscuous: bool,
        text: &[u8],
        socket: Option<OwnedFd>,
    ) -> io::Result<Answer> {
        let interface = String::from_utf8_lossy(text).into_owned();
        let (Some(socket), true) = (socket, self.held.len() < MAX_SOCKETS) else {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        };
        self.held.push(Socket { socket, interface, promiscuous });
        Ok(Answer { number: self.held.len() as u32 - 1, ..Answer::default() })
    }

    fn will_remove(&mut self, path: &Path) -> io::Result<Answer> {
        if self.files.len() >= MAX_FILES || !path.is_absolute() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.files.push(File { path: path.to_owned(), identity: identity(path)? });
        Ok(Answer::default())
    }

    /// Confines the helper: it keeps interface queries, `bind`, and removal of files from the folders of named files.
    fn seal(&mut self) -> io::Result<Answer> {
        self.sealed = true;
        std::mem::replace(&mut self.closed, Ok(()))?;
        user::give_up_capabilities().map_err(|error| match error {
            UserError::Capabilities(source) => source,
            other => io::Error::other(other),
        })?;
        let folder = |file: &File| file.path.parent().map(Path::to_owned);
        let removes = self.files.iter().filter_map(folder).collect();
        let rules = Rules { removes, looks_at_interfaces: true, ..Rules::default() };
        sandbox::enter(rules).map_err(|error| match error.errno() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(error),
        })?;
        Ok(Answer::default())
    }

    fn remove_all(&mut self) {
        for file in self.files.drain(..) {
            // The file may have been removed already.
            let _ = file.remove();
        }
    }
}

impl File {
    fn remove(&self) -> io::Result<()> {
        match identity(&self.path)? == self.identity {
            true => std::fs::remove_file(&self.path),
            false => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|found| (found.dev(), found.ino()))
}
