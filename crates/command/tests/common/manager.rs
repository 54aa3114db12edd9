//! A service manager for tests: it opens sockets for `fyke serve`, and keeps descriptors, as systemd does.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::common::{FYKE, Running};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, listen, recvmsg, socket_with,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A service manager with a store of descriptors, as sd_notify(3) describes it.
pub struct Manager {
    /// Paths of the sockets, which are the names of the services.
    pub names: Vec<String>,
    words: Vec<String>,
    notify: PathBuf,
    listeners: Vec<OwnedFd>,
    pub kept: Arc<Mutex<Vec<(String, OwnedFd)>>>,
    ready: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Manager {
    /// A manager for a service on these interfaces, with a socket for each.
    pub fn of(interfaces: &[&str], folder: &Path) -> Manager {
        let unix = |kind| socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let paths: Vec<_> =
            interfaces.iter().map(|name| folder.join(format!("{name}.sock"))).collect();
        let listener = |path: &PathBuf| {
            let listener = unix(SocketType::SEQPACKET).unwrap();
            bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
            listen(&listener, 16).unwrap();
            // High numbers, so that none of them is overwritten when they become 3, 4, …
            fcntl_dupfd_cloexec(&listener, 300).unwrap()
        };
        let listeners = paths.iter().map(listener).collect();
        let notify = folder.join("notify");
        let socket = unix(SocketType::DGRAM).unwrap();
        bind(&socket, &SocketAddrUnix::new(&notify).unwrap()).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(20))).unwrap();
        let (kept, ready) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let ends = Arc::new(AtomicBool::new(false));
        let (keeps, hears, over) = (Arc::clone(&kept), Arc::clone(&ready), Arc::clone(&ends));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                receive(&socket, &keeps, &hears);
            }
        });
        let names = paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect();
        let words = interfaces.iter().flat_map(|name| ["-i".to_owned(), (*name).to_owned()]);
        Manager { names, words: words.collect(), notify, listeners, kept, ready, ends }
    }

    /// Starts the service with all descriptors that are kept, and waits until it is ready.
    pub fn start(&self) -> Running {
        self.start_with(&self.words, self.listeners.len())
    }

    /// The same with other options, and with the first sockets only.
    pub fn start_with(&self, words: &[String], sockets: usize) -> Running {
        let before = self.ready.load(Ordering::Relaxed);
        let kept = self.kept.lock().unwrap();
        let listeners = self.listeners[..sockets].iter().map(|one| ("listener", one));
        let all: Vec<_> =
            listeners.chain(kept.iter().map(|(name, fd)| (name.as_str(), fd))).collect();
        let moves =
            all.iter().enumerate().map(|(at, (_, fd))| format!("{}<&{}", at + 3, fd.as_raw_fd()));
        let closes = all.iter().map(|(_, fd)| format!("{}<&-", fd.as_raw_fd()));
        let redirections: Vec<String> = moves.chain(closes).collect();
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let script = format!(
            "exec {}; export LISTEN_PID=$$; exec {FYKE} serve {}",
            redirections.join(" "),
            words.join(" ")
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("LISTEN_FDS", all.len().to_string());
        command.env("LISTEN_FDNAMES", names.join(":")).env("FDSTORE", "1536");
        command.env("NOTIFY_SOCKET", &self.notify);
        all.iter().for_each(|(_, fd)| fcntl_setfd(fd, FdFlags::empty()).unwrap());
        let service = Running::start(&mut command);
        all.iter().for_each(|(_, fd)| fcntl_setfd(fd, FdFlags::CLOEXEC).unwrap());
        drop(kept);
        let limit = Instant::now() + Duration::from_secs(30);
        while self.ready.load(Ordering::Relaxed) == before {
            assert!(Instant::now() < limit, "the service is not ready: {}", service.said());
            std::thread::sleep(Duration::from_millis(2));
        }
        service
    }

    /// Ends the store, as for a service that is stopped.
    pub fn clear(&self) {
        self.kept.lock().unwrap().clear();
    }

    /// Starts a reader of the first service.
    pub fn dump(&self, words: &[&str], file: &Path) -> Running {
        self.dump_of(0, words, file)
    }

    /// Starts a reader of a service.
    pub fn dump_of(&self, service: usize, words: &[&str], file: &Path) -> Running {
        let mut command = Command::new(FYKE);
        command
            .args(["dump", "-i", &format!("serve:{}", self.names[service]), "-w"])
            .arg(file)
            .args(words);
        let reader = Running::start(command.stdout(Stdio::null()));
        reader.hear("listening on serve:");
        reader
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Takes a message of the service, if one arrives.
fn receive(socket: &OwnedFd, kept: &Mutex<Vec<(String, OwnedFd)>>, ready: &AtomicU64) {
    let mut bytes = [0; 512];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let Ok(got) = recvmsg(socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC) else { return };
    let given: Vec<OwnedFd> = rights
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(all) => Some(all.collect::<Vec<_>>()),
            _ => None,
        })
        .flatten()
        .map(|fd| fcntl_dupfd_cloexec(&fd, 300).unwrap())
        .collect();
    let text = String::from_utf8_lossy(&bytes[..got.bytes]).into_owned();
    let has = |line: &str| text.lines().any(|one| one == line);
    let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or_default();
    let mut kept = kept.lock().unwrap();
    if has("FDSTOREREMOVE=1") {
        kept.retain(|(known, _)| known != name);
    }
    if has("FDSTORE=1") {
        kept.extend(given.into_iter().map(|fd| (name.to_owned(), fd)));
    }
    if has("READY=1") {
        ready.fetch_add(1, Ordering::Relaxed);
    }
}
