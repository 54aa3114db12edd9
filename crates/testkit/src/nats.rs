//! A NATS server of a test.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait until it listens.
const LIMIT: Duration = Duration::from_secs(60);

/// A server on loopback that keeps its streams in a folder; it is killed when it is dropped.
#[derive(Debug)]
pub struct NatsServer {
    child: Child,
    folder: PathBuf,
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
        let child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"])
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server starts");
        let server = NatsServer { child, folder: folder.to_owned(), port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < LIMIT, "the server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// Starts it again on the same folder after a kill.
    pub fn start_again(&mut self) {
        self.kill();
        *self = NatsServer::start(&self.folder.clone(), self.port);
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
