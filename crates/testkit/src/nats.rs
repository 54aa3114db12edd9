//! A NATS server of a test.

use std::ffi::{OsStr, OsString};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait until it listens.
const LIMIT: Duration = Duration::from_secs(60);

/// A server on loopback that keeps its streams in a folder; it is killed when it is dropped.
#[derive(Debug)]
pub struct NatsServer {
    child: Child,
    words: Vec<OsString>,
    port: u16,
}

impl NatsServer {
    /// True if there is a server program.
    pub fn is_installed() -> bool {
        Command::new("nats-server").arg("--version").output().is_ok()
    }

    /// Starts a server, and waits until it listens.
    ///
    /// # Panics
    /// It cannot be started, or does not listen within a minute.
    pub fn start(folder: &Path, port: u16) -> NatsServer {
        NatsServer::with_room(folder, port, "64GB")
    }

    /// The same with this room for streams, whatever the disk has.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn with_room(folder: &Path, port: u16, room: &str) -> NatsServer {
        let settings = folder.with_extension("conf");
        let text = format!("jetstream {{ store_dir: {folder:?}, max_file_store: {room} }}");
        std::fs::write(&settings, text).expect("the settings are written");
        NatsServer::with(port, &["-c".as_ref(), settings.as_os_str()])
    }

    /// Starts a server at a free port; `None`, with the reason, without the program.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn anywhere(folder: &Path) -> Option<NatsServer> {
        if !NatsServer::is_installed() {
            println!("skipped: nats-server is not installed");
            return None;
        }
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        Some(NatsServer::start(folder, free.expect("there is a free port").port()))
    }

    /// Starts a server with these further arguments, and waits until it listens.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn with(port: u16, words: &[&OsStr]) -> NatsServer {
        let child = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server starts");
        let words = words.iter().map(|&word| word.to_owned()).collect();
        let server = NatsServer { child, words, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < LIMIT, "the server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// Starts it again with the same arguments after a kill.
    pub fn start_again(&mut self) {
        self.kill();
        let words = std::mem::take(&mut self.words);
        let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
        *self = NatsServer::with(self.port, &words);
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
