//! A service in this process, on frames that a test sends, and raw connections to it.
#![allow(dead_code, reason = "each test file uses its part")]

use fyke_capture::{Interface, LookBack, Next, ReadError, Source, SourceStats};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_graph::node::{Class, Kind};
use fyke_graph::{Classes, GraphHandle};
use fyke_ring::{Read, Reader};
use fyke_serve::message::{Counts, Request, Response};
use fyke_serve::wire::{Assembler, Incoming, send};
use fyke_serve::{Connection, Listening, Policy, Server, Service};
use fyke_testkit::packet::Packet;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A source of frames from a channel.
struct Channel {
    receiver: Receiver<Vec<Vec<u8>>>,
    now: Vec<Vec<u8>>,
    interfaces: Vec<Interface>,
    stats: SourceStats,
    stopped: bool,
}

impl Source for Channel {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        if self.stopped {
            return Ok(Next::End);
        }
        let Ok(frames) = self.receiver.recv_timeout(Duration::from_millis(2)) else {
            return Ok(Next::Idle);
        };
        self.now = frames;
        let mut batch = Batch::new();
        for data in &self.now {
            batch.push(Frame::new(LinkType::EN10MB, data)).expect("at most a batch");
        }
        self.stats.received += self.now.len() as u64;
        self.stats.delivered += self.now.len() as u64;
        Ok(Next::Frames(batch, LookBack::none(&self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        self.stats
    }

    fn stop(&mut self) -> bool {
        self.stopped = true;
        true
    }
}

/// A service and the packet loop that feeds it.
pub struct World {
    pub server: Option<Server>,
    pub service: Arc<Service>,
    pub handle: GraphHandle,
    sender: SyncSender<Vec<Vec<u8>>>,
    sent: u64,
    stop: Arc<AtomicBool>,
    engine: Option<JoinHandle<()>>,
    pub folder: tempfile::TempDir,
}

impl World {
    pub fn new() -> World {
        World::with(Policy::default())
    }

    pub fn with(policy: Policy) -> World {
        let (sender, receiver) = sync_channel(4);
        let source = Channel {
            receiver,
            now: Vec::new(),
            interfaces: vec![Interface::new("test", LinkType::EN10MB)],
            stats: SourceStats::default(),
            stopped: false,
        };
        let source = Mutex::new(Some(source));
        let service = Service::new();
        let mut classes = Classes::new();
        let frames =
            Class { name: "frames", summary: "of a test", kind: Kind::Source, ..Class::NODE };
        classes.register_source(frames, move |_| {
            Ok(Box::new(source.lock().unwrap().take().expect("it is opened once")))
        });
        classes.register_with(fyke_serve::class::CLASS, fyke_serve::class::maker(&service));
        fyke_serve::graph::register(&mut classes, &service);
        let started = GraphHandle::start(&["{capture}(frames) > {serve}(serve)"], classes);
        let (mut engine, handle) = started.unwrap();
        service.begin(handle.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let engine = std::thread::spawn(move || engine.run(&stopped).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.sock");
        let socket = Listening::open(path.to_str().unwrap()).unwrap();
        let server = Some(Server::start(socket, Arc::clone(&service), policy).unwrap());
        let engine = Some(engine);
        World { server, service, handle, sender, sent: 0, stop, engine, folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("serve.sock")
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.path().to_str().unwrap(), None).unwrap()
    }

    /// Sends frames as one batch, and waits until they are evaluated.
    pub fn send(&mut self, ports: &[u16]) {
        let frames: Vec<_> = ports.iter().map(|&port| datagram(port)).collect();
        self.send_frames(frames);
    }

    pub fn send_frames(&mut self, frames: Vec<Vec<u8>>) {
        self.sent += frames.len() as u64;
        self.sender.send(frames).unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        let evaluated = || self.handle.snapshot().node("serve").unwrap().counts.arrived;
        while evaluated() < self.sent {
            assert!(Instant::now() < limit, "{} of {} frames", evaluated(), self.sent);
        }
    }

    /// A counter of the node.
    pub fn counter(&self, name: &str) -> u64 {
        let view = self.handle.snapshot();
        let counters = &view.node("serve").unwrap().counters;
        counters.iter().find(|counter| counter.name == name).unwrap().value as u64
    }

    /// Waits until a counter has a value.
    pub fn wait_for(&self, name: &str, value: u64) {
        let limit = Instant::now() + Duration::from_secs(20);
        while self.counter(name) != value {
            assert!(Instant::now() < limit, "{name} is {}, not {value}", self.counter(name));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the packet loop, then the service, as the command does.
    pub fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(engine) = self.engine.take() {
            engine.join().unwrap();
        }
        drop(self.server.take());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(engine) = self.engine.take() {
            let _failed_before = engine.join();
        }
    }
}

/// A datagram with the port in its payload, too.
pub fn datagram(port: u16) -> Vec<u8> {
    let payload = [&b"marker-"[..], port.to_string().as_bytes(), b"-"].concat();
    Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, port).payload(&payload).build()
}

/// The ports of the frames that a reader has now.
pub fn ports(reader: &mut Reader) -> Vec<u16> {
    let mut found = Vec::new();
    loop {
        let mut bytes = Vec::new();
        match reader.next(&mut bytes) {
            Read::Frame(_) => found.push(u16::from_be_bytes([bytes[36], bytes[37]])),
            Read::Nothing | Read::End | Read::Gone => return found,
        }
    }
}

pub fn counts(connection: &Connection) -> Counts {
    match connection.request(&Request::Counts { read: 0, lost: 0 }).unwrap() {
        Response::Counts(counts) => counts,
        other => panic!("{other:?}"),
    }
}

/// A connection that follows no protocol.
pub struct Raw {
    pub socket: OwnedFd,
    assembler: Assembler,
}

pub const PATIENCE: Duration = Duration::from_secs(20);

impl Raw {
    pub fn connect(path: &Path) -> Raw {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Raw { socket, assembler: Assembler::new(1 << 20) }
    }

    /// Sends a message; false if the service has closed the connection.
    pub fn send(&self, message: &str) -> bool {
        send(&self.socket, message.as_bytes(), &[], PATIENCE).is_ok()
    }

    /// The next answer and its descriptors; `None` if the connection is closed.
    pub fn answer(&mut self) -> Option<(Response, Vec<OwnedFd>)> {
        let mut descriptors = Vec::new();
        let (socket, into) = (&self.socket, Some(&mut descriptors));
        match self.assembler.receive(socket, Some(PATIENCE), into).unwrap() {
            Incoming::Message(message) => {
                Some((serde_json::from_slice(&message).unwrap(), descriptors))
            }
            Incoming::Closed => None,
            other => panic!("{other:?}"),
        }
    }

    pub fn error(&mut self) -> String {
        match self.answer() {
            Some((Response::Error { message }, descriptors)) => {
                assert!(descriptors.is_empty());
                message
            }
            other => panic!("{other:?}"),
        }
    }

    /// True if the service refuses this connection at once.
    pub fn is_refused(&mut self) -> bool {
        self.send(r#"{"request":"hello","versions":[1]}"#);
        matches!(self.answer(), Some((Response::Error { .. }, _)))
    }

    pub fn greet(&mut self) {
        assert!(self.send(r#"{"request":"hello","versions":[1]}"#));
        assert!(matches!(self.answer(), Some((Response::Hello(_), _))));
    }
}
