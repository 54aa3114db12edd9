//! A small FTP server and client: the protocol over real sockets, with a log of the transfers.
//!
//! Servers implement USER, PASS, TYPE, PASV, EPSV, RETR, STOR and QUIT. A file's name is its size in bytes.
//! Transfers are paced in bursts with pauses between them, as by servers that limit their rate; a late update then
//! misses a whole burst (Swift, section 5.2). Some replies are split over two segments, as on real networks.
//!
//! An [`Exercise`] is the Swift experiment: some servers, each with transfers that are started one by one and
//! overlap. Its log is the reference for *which* connections there were; only a recording can count their packets,
//! since sockets do not.
//!
//! Threads block with time limits; all threads end within a fraction of a second after [`Stop`].

mod client;
mod control;
mod server;

use crate::net::{self, World};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Port of the control connections.
pub const CONTROL_PORT: u16 = 21;

/// Stop signal of all traffic: set explicitly or by a time limit.
#[derive(Debug, Clone)]
pub struct Stop {
    ordered: Arc<AtomicBool>,
    deadline: Instant,
}

impl Stop {
    /// Creates a signal that is set automatically after `limit`.
    pub fn after(limit: Duration) -> Stop {
        Stop { ordered: Arc::default(), deadline: Instant::now() + limit }
    }

    /// Sets the signal.
    pub fn order(&self) {
        self.ordered.store(true, Ordering::Relaxed);
    }

    /// Returns true if everything should end.
    pub fn is_over(&self) -> bool {
        self.ordered.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// Sleeps until `until`; returns false at once if everything should end.
    pub fn sleep_until(&self, until: Instant) -> bool {
        loop {
            let now = Instant::now();
            if self.is_over() {
                return false;
            }
            if now >= until {
                return true;
            }
            std::thread::sleep((until - now).min(Duration::from_millis(50)));
        }
    }
}

/// Amount and rate of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of servers, each with an address of its own.
    pub servers: usize,
    /// Number of data connections of each server.
    pub connections: usize,
    /// Time between two starts at one server.
    pub interval: Duration,
    /// Bytes of a transfer.
    pub size_bytes: u64,
    /// Bytes sent at once.
    pub burst_bytes: u64,
    /// Rate of a transfer, in bytes per second.
    pub bytes_per_second: u64,
}

impl Default for Options {
    /// The Swift experiment, scaled to about seven seconds.
    fn default() -> Self {
        Options {
            servers: 10,
            connections: 20,
            interval: Duration::from_millis(180),
            size_bytes: 240_000,
            burst_bytes: 48_000,
            bytes_per_second: 60_000,
        }
    }
}

impl Options {
    /// Duration of the exercise without delays.
    pub fn expected_duration(&self) -> Duration {
        let pause = self.burst_bytes as f64 / self.bytes_per_second.max(1) as f64;
        let pauses = self.size_bytes.saturating_sub(1) / self.burst_bytes.max(1);
        self.interval * self.connections as u32 + Duration::from_secs_f64(pause * pauses as f64)
    }
}

/// One data connection, as seen by its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The listening end.
    pub server: SocketAddr,
    /// The connecting end.
    pub client: SocketAddr,
    /// True if announced by reply 229 instead of 227.
    pub extended: bool,
    /// True if sent from client to server.
    pub upload: bool,
    /// Bytes transferred by the application.
    pub bytes: u64,
    /// Time of the request for the data connection, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Time of its end.
    pub ended_ns: u64,
}

/// Running servers and clients.
pub struct Exercise {
    stop: Stop,
    servers: Vec<JoinHandle<io::Result<io::Result<()>>>>,
    clients: Vec<JoinHandle<io::Result<Vec<io::Result<Transfer>>>>>,
    active: Arc<AtomicU64>,
}

/// Results of an exercise.
#[derive(Debug, Default)]
pub struct Log {
    /// All completed transfers.
    pub transfers: Vec<Transfer>,
    /// Errors of the others.
    pub failures: Vec<String>,
}

impl Exercise {
    /// Starts servers and clients in a world that has an address for each server; the clients of a server share
    /// one.
    pub fn start(world: &World, options: Options, stop: Stop) -> io::Result<Exercise> {
        let active = Arc::new(AtomicU64::new(0));
        let mut exercise =
            Exercise { stop: stop.clone(), servers: Vec::new(), clients: Vec::new(), active };
        for index in 0..options.servers {
            let address = SocketAddr::new(net::server_address(index).into(), CONTROL_PORT);
            let (ready, is_ready) = std::sync::mpsc::channel();
            let stop = stop.clone();
            let thread = world
                .servers
                .spawn("ftp-server", move || server::serve(address, &options, &stop, &ready))?;
            exercise.servers.push(thread);
            // If the server fails, its sender is dropped, so this call always returns.
            let _ = is_ready.recv();
        }
        let begin = Instant::now() + Duration::from_millis(50);
        for index in 0..options.servers {
            let schedule = client::Schedule {
                server: SocketAddr::new(net::server_address(index).into(), CONTROL_PORT),
                client: IpAddr::V4(net::client_address(index)),
                begin: begin + options.interval * index as u32 / options.servers as u32,
                number: index,
            };
            let (stop, active) = (stop.clone(), Arc::clone(&exercise.active));
            let thread = world
                .clients
                .spawn("ftp-clients", move || client::run(&schedule, &options, &stop, &active))?;
            exercise.clients.push(thread);
        }
        Ok(exercise)
    }

    /// Number of data connections open now.
    pub fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Returns true if all clients have finished.
    pub fn is_finished(&self) -> bool {
        self.clients.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the clients, stops the servers and returns the log.
    pub fn finish(self) -> Log {
        let mut log = Log::default();
        for thread in self.clients {
            match thread.join() {
                Ok(Ok(transfers)) => {
                    for transfer in transfers {
                        match transfer {
                            Ok(transfer) => log.transfers.push(transfer),
                            Err(error) => log.failures.push(format!("client: {error}")),
                        }
                    }
                }
                Ok(Err(error)) => log.failures.push(format!("client thread: {error}")),
                Err(_) => log.failures.push("a client thread panicked".into()),
            }
        }
        self.stop.order();
        for thread in self.servers {
            match thread.join() {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error)) | Err(error)) => log.failures.push(format!("server: {error}")),
                Err(_) => log.failures.push("a server thread panicked".into()),
            }
        }
        log
    }
}
