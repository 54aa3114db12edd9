//! A channel to any number of TCP clients, each with the whole stream from the frame at which it connected
//! (pcap-over-IP).
//!
//! An [`Output`](super::Output) writes blocks that end with a complete record. The channel takes every block at once,
//! so the capture never waits for a client. It counts the frames in a block, and keeps the records that describe the
//! file and its interfaces: a new client gets these first. One thread accepts clients and writes. A client that reads
//! too slowly has at most [`WAITING`] bytes that wait; beyond that it loses whole blocks, and every lost frame is
//! counted, but no record that later ones need. There are [`CLIENTS`] seats; a client that takes nothing for [`STUCK`]
//! loses its own to a new one.
//!
//! Invariant, for each client: frames of the stream since it connected = `sent + lost + waiting`, where frames are
//! sent when their block is with the operating system. Cost: one copy of a block for all clients, and one system call
//! for each client and block.

use super::channel::Channel;
use super::{Format, WriteError};
use crate::sys::poll::{self, Interest};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most clients at a time.
const CLIENTS: usize = 16;
/// Most bytes that wait for a client.
const WAITING: usize = 8 << 20;
/// Time without progress after which a client gives its seat to a new one.
const STUCK: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 10_000 });
/// Most reads of what a client sends, in a row.
const MAX_READS: usize = 64;
/// Longest wait of the thread.
const SLICE_MS: u16 = 1_000;
/// Types of pcapng blocks: a section, an interface, a frame.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const FRAME: u32 = 6;

/// The address in a name such as `tcp:127.0.0.1:57012`, or `tcp:57012` for this machine only; `None` if the name is
/// that of a file.
///
/// # Errors
/// If the name begins with `tcp:` and has no address.
pub fn address(name: &Path) -> Result<Option<SocketAddr>, WriteError> {
    let Some(given) = name.to_str().and_then(|name| name.strip_prefix("tcp:")) else {
        return Ok(None);
    };
    let port = given.parse().ok().map(|port: u16| (IpAddr::V4(Ipv4Addr::LOCALHOST), port).into());
    let address: Option<SocketAddr> = port.or_else(|| given.parse().ok());
    address.filter(|address| address.port() > 0).map(Some).ok_or(WriteError::Options(
        "`tcp:` is followed by a port from 1, or by an address and a port, such as \
         tcp:127.0.0.1:57012 (a file of this name: ./tcp:…)",
    ))
}

/// Counts of clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clients {
    /// Clients that are connected.
    pub connected: u64,
    /// Frames that clients got, all clients together.
    pub sent: u64,
    /// Frames that clients did not get because they were too slow or left, all clients together.
    pub lost: u64,
}

pub(super) struct Listener {
    shared: Arc<Shared>,
    socket: Mutex<Option<TcpListener>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// A queue has become shorter.
    shorter: Condvar,
    /// Ends a wait of the thread.
    bell: UnixStream,
    heard: UnixStream,
}

struct State {
    format: Format,
    /// The first bytes of a new client.
    head: Vec<u8>,
    clients: Vec<Client>,
    /// Counts of clients that have left.
    gone: Clients,
    is_over: bool,
}

struct Client {
    socket: TcpStream,
    queue: VecDeque<Block>,
    /// Bytes of the first block that are sent.
    begun: usize,
    waiting: usize,
    /// Time at which it last took a byte, or nothing waited for it.
    moved: Instant,
    sent: u64,
    lost: u64,
}

#[derive(Clone)]
struct Block {
    bytes: Arc<[u8]>,
    frames: u64,
}

impl Listener {
    /// Listens at the address. Clients are accepted from the first [`attend`](Channel::attend) on.
    pub(super) fn bind(address: SocketAddr, format: Format) -> io::Result<Listener> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        let (head, clients, gone) = (Vec::new(), Vec::new(), Clients::default());
        let state = Mutex::new(State { format, head, clients, gone, is_over: false });
        let shared = Arc::new(Shared { state, shorter: Condvar::new(), bell, heard });
        Ok(Listener { shared, socket: Mutex::new(Some(socket)), thread: Mutex::new(None) })
    }
}

impl Channel for Listener {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        let (described, frames) = parts(state.format, state.head.is_empty(), bytes);
        state.head.extend_from_slice(&described);
        if !state.clients.is_empty() {
            let block = Block { bytes: bytes.into(), frames };
            let described = Block { bytes: described.into(), frames: 0 };
            state.clients.iter_mut().for_each(|client| client.push(&block, &described));
            drop(state);
            self.shared.ring();
        }
        Ok(bytes.len())
    }

    fn wait(&self, _patience: Duration) {}

    fn cut(&self, _bytes: u64) -> bool {
        false
    }

    fn file(&self) -> Option<&File> {
        None
    }

    /// Starts the thread, in the thread and with the restrictions of the packet loop.
    fn attend(&self) {
        let Some(socket) = lock(&self.socket).take() else { return };
        let shared = Arc::clone(&self.shared);
        let run = move || shared.run(&socket);
        let thread = std::thread::Builder::new().name("clients".to_owned()).spawn(run);
        // Without a thread there are no clients; the frames are counted as written.
        *lock(&self.thread) = thread.ok();
    }

    fn settle(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_settled = state.clients.iter().all(|client| client.queue.is_empty());
            if is_settled || left.is_zero() {
                return is_settled;
            }
            let waited = self.shared.shorter.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn give_up(&self) {
        let mut state = self.shared.lock();
        while let Some(client) = state.clients.pop() {
            state.end(client);
        }
    }

    fn clients(&self) -> Option<Clients> {
        let state = self.shared.lock();
        let mut all = Clients { connected: state.clients.len() as u64, ..state.gone };
        for client in &state.clients {
            all.sent += client.sent;
            all.lost += client.lost;
        }
        Some(all)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.ring();
        if let Some(thread) = lock(&self.thread).take() {
            // The thread does not panic; its clients would be closed with it.
            let _ = thread.join();
        }
    }
}

impl Client {
    /// Takes a block, or only the records in it that later blocks need.
    fn push(&mut self, block: &Block, described: &Block) {
        let taken = match self.waiting + block.bytes.len() <= WAITING || self.queue.is_empty() {
            true => block,
            false => {
                self.lost += block.frames;
                described
            }
        };
        if !taken.bytes.is_empty() {
            if self.queue.is_empty() {
                self.moved = Instant::now();
            }
            self.waiting += taken.bytes.len();
            self.queue.push_back(taken.clone());
        }
    }

    /// Writes what the socket takes; an error if the client has left.
    fn send(&mut self) -> io::Result<()> {
        while let Some(block) = self.queue.front() {
            match self.socket.write(&block.bytes[self.begun..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.begun += count;
                    self.waiting -= count;
                    self.moved = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.begun == block.bytes.len() {
                self.sent += block.frames;
                self.begun = 0;
                self.queue.pop_front();
            }
        }
        Ok(())
    }

    /// True if frames wait for the client and it has not taken any for a long time.
    fn is_stuck(&self) -> bool {
        !self.queue.is_empty() && self.moved.elapsed() >= STUCK
    }

    /// True if the client has closed the connection, or its end was reset. What it has sent is discarded.
    fn has_left(&mut self) -> bool {
        let mut ignored = [0; 4096];
        for _ in 0..MAX_READS {
            match self.socket.read(&mut ignored) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
        false
    }
}

impl State {
    /// Takes the counts of a client that leaves; what waited is lost.
    fn end(&mut self, mut client: Client) {
        let waiting: u64 = client.queue.iter().map(|block| block.frames).sum();
        self.gone.sent += client.sent;
        self.gone.lost += client.lost + waiting;
        // Bytes that were not read would make the close an error for the client.
        let mut ignored = [0; 4096];
        while client.socket.read(&mut ignored).is_ok_and(|count| count == ignored.len()) {}
    }

    /// Takes a client. If there is no seat, one that has left or does not read any more loses its own.
    fn accept(&mut self, socket: TcpStream) {
        if self.clients.len() >= CLIENTS {
            let left = self.clients.iter_mut().position(Client::has_left);
            let stuck = || self.clients.iter().position(Client::is_stuck);
            if let Some(place) = left.or_else(stuck) {
                let client = self.clients.swap_remove(place);
                self.end(client);
            }
        }
        if self.clients.len() >= CLIENTS || socket.set_nonblocking(true).is_err() {
            return;
        }
        let (queue, waiting) = (VecDeque::new(), 0);
        let moved = Instant::now();
        let mut client = Client { socket, queue, begun: 0, waiting, moved, sent: 0, lost: 0 };
        let head = Block { bytes: self.head.as_slice().into(), frames: 0 };
        client.push(&head, &head);
        self.clients.push(client);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn ring(&self) {
        // A full pipe has rung already.
        let _full = (&self.bell).write(&[1]);
    }

    fn run(&self, socket: &TcpListener) {
        loop {
            self.wait(socket);
            let mut ignored = [0; 64];
            while (&self.heard).read(&mut ignored).is_ok_and(|count| count == ignored.len()) {}
            let mut state = self.lock();
            while let Ok((accepted, _)) = socket.accept() {
                state.accept(accepted);
            }
            let mut place = 0;
            while let Some(client) = state.clients.get_mut(place) {
                match client.send() {
                    Ok(()) => place += 1,
                    Err(_) => {
                        let client = state.clients.swap_remove(place);
                        state.end(client);
                    }
                }
            }
            let is_over = state.is_over;
            if is_over {
                while let Some(client) = state.clients.pop() {
                    state.end(client);
                }
            }
            drop(state);
            self.shorter.notify_all();
            if is_over {
                return;
            }
        }
    }

    /// Waits for a client, a block, or space for one.
    fn wait(&self, socket: &TcpListener) {
        // Copies, because the capture gives blocks meanwhile.
        let full: Vec<TcpStream> = {
            let state = self.lock();
            let full = state.clients.iter().filter(|client| !client.queue.is_empty());
            full.filter_map(|client| client.socket.try_clone().ok()).collect()
        };
        let mut entries =
            vec![(socket.as_fd(), Interest::Read), (self.heard.as_fd(), Interest::Read)];
        entries.extend(full.iter().map(|socket| (socket.as_fd(), Interest::Write)));
        if poll::any(&entries, SLICE_MS).is_err() {
            // Prevents a busy loop.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The records of a block that describe the file and its interfaces, and the number of its frames. The block is ours,
/// so its lengths are right; a wrong one would end the walk.
fn parts(format: Format, is_first: bool, bytes: &[u8]) -> (Vec<u8>, u64) {
    const PCAP_HEADER: usize = 24;
    const PCAP_RECORD: usize = 16;
    let word = |rest: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(rest.get(at..at + 4)?.try_into().ok()?))
    };
    let (mut described, mut frames, mut rest) = (Vec::new(), 0, bytes);
    if format == Format::Pcap && is_first {
        let (header, records) = bytes.split_at(bytes.len().min(PCAP_HEADER));
        described.extend_from_slice(header);
        rest = records;
    }
    while !rest.is_empty() {
        let len = match format {
            Format::Pcap => word(rest, 8).map(|captured| PCAP_RECORD + captured as usize),
            Format::Pcapng => word(rest, 4).map(|total| total as usize),
        };
        let Some((record, after)) =
            len.filter(|len| *len > 0).and_then(|len| rest.split_at_checked(len))
        else {
            break;
        };
        match (format, word(record, 0)) {
            (Format::Pcap, _) | (Format::Pcapng, Some(FRAME)) => frames += 1,
            (Format::Pcapng, Some(SECTION | INTERFACE)) => described.extend_from_slice(record),
            (Format::Pcapng, _) => {}
        }
        rest = after;
    }
    (described, frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pcapng block of this length.
    fn block(kind: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&(len as u32).to_ne_bytes());
        bytes
    }

    #[test]
    fn a_client_that_takes_nothing_gives_its_seat_to_a_new_one() {
        let any_port = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = Listener::bind(any_port, Format::Pcapng).unwrap();
        let address = lock(&listener.socket).as_ref().unwrap().local_addr().unwrap();
        listener.write(&block(SECTION, 28)).unwrap();
        let silent: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        listener.attend();
        while listener.clients().unwrap().connected < CLIENTS as u64 {
            std::thread::sleep(Duration::from_millis(5));
        }
        // More than the queues of the system take.
        listener.write(&block(FRAME, 64 << 20)).unwrap();
        let mut head = [0; 4];
        let got = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            client.read_exact(&mut head).is_ok()
        });
        assert!(got, "no client loses its seat");
        assert_eq!(head, SECTION.to_ne_bytes());
        assert!(listener.clients().unwrap().lost > 0, "its frame is counted");
        drop(silent);
    }
}
