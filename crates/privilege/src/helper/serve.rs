//! Helper side of the channel: a loop that reads one request and sends one answer.

use super::wire::{self, Answer, Kind, MAX_TEXT, NAME_LEN, Request};
use super::{Fetched, Group, MAX_FILES, MAX_SOCKETS, Opened, Sockets};
use crate::sandbox::{self, Rules};
use crate::user::UserError;
use crate::{sys, user};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::ffi::OsStr;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A packet socket of the capture.
struct Socket {
    socket: OwnedFd,
    interface: String,
    promiscuous: bool,
}

/// A thing that was handed over, by its number.
enum Held {
    Socket(Socket),
    Group(Group),
}

impl Held {
    fn interface(&self) -> &str {
        match self {
            Held::Socket(socket) => &socket.interface,
            Held::Group(group) => group.interface(),
        }
    }

    /// Number of sockets.
    fn count(&self) -> usize {
        match self {
            Held::Socket(_) => 1,
            Held::Group(group) => group.count(),
        }
    }
}

/// A file to remove.
struct File {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// True if it stays when the parent is killed.
    on_request: bool,
}

struct Serving<'s> {
    sockets: &'s dyn Sockets,
    held: Vec<Held>,
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
        let mut fetched = None;
        let result = match parsed {
            Some((request, text)) if request.kind == Kind::Fetch => {
                serving.fetch(request.number, text).map(|(answer, socket)| {
                    fetched = Some(socket);
                    answer
                })
            }
            Some((request, text)) => serving.answer(request, text, socket),
            None if length == 0 => break,
            None => Err(ErrorKind::InvalidInput.into()),
        };
        let answer = result.unwrap_or_else(|error| Answer {
            error: error.raw_os_error().unwrap_or(libc::EINVAL),
            ..Answer::default()
        });
        let answer = Answer { sequence, ..answer };
        if answer_with(&channel, answer, fetched.as_ref()).is_err() {
            break;
        }
    }
    serving.remove_all();
}

/// Receives the next request, and the first of the descriptors that come with it.
fn receive(channel: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    loop {
        match wire::receive(channel, bytes) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Sends an answer, with a socket or without.
fn answer_with(channel: &OwnedFd, answer: Answer, socket: Option<&Opened>) -> io::Result<()> {
    let bytes = answer.to_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let sockets: Vec<BorrowedFd<'_>> = socket.iter().map(|one| one.socket.as_fd()).collect();
    if !sockets.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    sendmsg(channel, &[IoSlice::new(&bytes)], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

impl Serving<'_> {
    fn answer(
        &mut self,
        request: Request,
        text: &[u8],
        socket: Option<OwnedFd>,
    ) -> io::Result<Answer> {
        let handed_over =
            matches!(request.kind, Kind::Hold | Kind::HoldGroup | Kind::WillRemove | Kind::Seal);
        if handed_over && self.sealed {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        match request.kind {
            Kind::Hold => self.hold(request.flag, text, socket),
            Kind::HoldGroup => self.hold_group(request, text),
            Kind::WillRemove => self.will_remove(Path::new(OsStr::from_bytes(text)), request.flag),
            Kind::Seal => self.seal(),
            Kind::Named => {
                let found = self.sockets.named(request.number)?;
                let present = found.is_some();
                let (text, presence) = found.unwrap_or_default();
                let mut name = [0; NAME_LEN];
                // The last byte stays zero.
                let bytes = text.bytes().take(NAME_LEN - 1);
                name.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
                Ok(Answer { present, presence, name, ..Answer::default() })
            }
            Kind::Look => {
                let found = self.sockets.look(self.held(request.number)?.interface())?;
                let (present, presence) = (found.is_some(), found.unwrap_or_default());
                Ok(Answer { present, presence, ..Answer::default() })
            }
            Kind::Bind => {
                let Held::Socket(held) = self.held(request.number)? else {
                    return Err(ErrorKind::InvalidInput.into());
                };
                let Socket { socket, interface, promiscuous } = held;
                let found = self.sockets.look(interface)?;
                let presence = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
                self.sockets.bind(socket.as_fd(), &presence, *promiscuous)?;
                Ok(Answer { present: true, presence, ..Answer::default() })
            }
            // Its answer comes with a socket.
            Kind::Fetch => Err(ErrorKind::InvalidInput.into()),
            Kind::Remove => {
                let path = Path::new(OsStr::from_bytes(text));
                let place = self.files.iter().position(|file| file.path == path);
                let place = place.ok_or_else(|| io::Error::from_raw_os_error(libc::EPERM))?;
                let file = self.files.swap_remove(place);
                file.remove().map(|()| Answer::default())
            }
        }
    }

    fn held(&self, number: u32) -> io::Result<&Held> {
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
        let held: usize = self.held.iter().map(Held::count).sum();
        let (Some(socket), true) = (socket, held < MAX_SOCKETS) else {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        };
        self.held.push(Held::Socket(Socket { socket, interface, promiscuous }));
        Ok(Answer { number: self.held.len() as u32 - 1, ..Answer::default() })
    }

    fn hold_group(&mut self, request: Request, text: &[u8]) -> io::Result<Answer> {
        let (&len, text) = text.split_first().ok_or(ErrorKind::InvalidInput)?;
        let (plan, name) = text.split_at_checked(len.into()).ok_or(ErrorKind::InvalidInput)?;
        let count = request.number as usize;
        let held: usize = self.held.iter().map(Held::count).sum();
        if count > MAX_SOCKETS || held + count > MAX_SOCKETS {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let group = Group::new(&String::from_utf8_lossy(name), request.flag, count, plan)?;
        self.held.push(Held::Group(group));
        Ok(Answer { number: self.held.len() as u32 - 1, ..Answer::default() })
    }

    fn fetch(&mut self, number: u32, member: &[u8]) -> io::Result<(Answer, Opened)> {
        let member = member.try_into().map(u32::from_ne_bytes);
        let member = member.map_err(|_| ErrorKind::InvalidInput)?;
        let held = usize::try_from(number).ok().and_then(|number| self.held.get_mut(number));
        let Some(Held::Group(group)) = held else {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        };
        let Fetched { opened, generation, presence } =
            group.fetch(self.sockets, member as usize)?;
        let blocks = opened.blocks;
        let answer =
            Answer { number: generation, blocks, present: true, presence, ..Answer::default() };
        Ok((answer, opened))
    }

    fn will_remove(&mut self, path: &Path, on_request: bool) -> io::Result<Answer> {
        if self.files.len() >= MAX_FILES || !path.is_absolute() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.files.push(File { path: path.to_owned(), identity: identity(path)?, on_request });
        Ok(Answer::default())
    }

    /// Confines the helper: it keeps interface queries, `bind`, packet sockets if it has a group, and removal of files
    /// from the folders of named files.
    fn seal(&mut self) -> io::Result<Answer> {
        self.sealed = true;
        std::mem::replace(&mut self.closed, Ok(()))?;
        let opens = self.held.iter().any(|held| matches!(held, Held::Group(_)));
        let dropped = match opens {
            true => user::keep_packet_sockets(),
            false => user::give_up_capabilities(),
        };
        dropped.map_err(|error| match error {
            UserError::Capabilities(source) => source,
            other => io::Error::other(other),
        })?;
        let folder = |file: &File| file.path.parent().map(Path::to_owned);
        let removes = self.files.iter().filter_map(folder).collect();
        let rules = Rules {
            removes,
            looks_at_interfaces: true,
            opens_packet_rings: opens,
            ..Rules::default()
        };
        sandbox::enter(rules).map_err(|error| match error.errno() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(error),
        })?;
        Ok(Answer::default())
    }

    fn remove_all(&mut self) {
        for file in self.files.drain(..).filter(|file| !file.on_request) {
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
