//! A small real FTP server and client: the protocol over real sockets, with a log of what was transferred.
//!
//! Servers know USER, PASS, TYPE, PASV, EPSV, RETR, STOR and QUIT. A file's name is its size in bytes. Transfers are
//! paced in bursts with silence between them, which is what rate-limited servers do and what makes an update that
//! comes late miss a whole burst (Swift, section 5.2). Some replies are split over two segments, as happens.
//!
//! An [`Exercise`] is the Swift experiment (S41): some servers, for each of them transfers that are started one by one
//! and overlap. Its log is the ground truth of *which* connections there were; how many packets they had only a
//! recording can tell, for sockets do not count them.
//!
//! Threads block with time limits; nothing outlives the [`Stop`] by more than a fraction of a second.

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

/// Ends all traffic: by order or when its time has come.
#[derive(Debug, Clone)]
pub struct Stop {
    ordered: Arc<AtomicBool>,
    deadline: Instant,
}

impl Stop {
    /// Stops by itself after `limit`.
    pub fn after(limit: Duration) -> Stop {
        Stop { ordered: Arc::default(), deadline: Instant::now() + limit }
    }

    /// Stops now.
    pub fn order(&self) {
        self.ordered.store(true, Ordering::Relaxed);
    }

    /// Whether everything should end.
    pub fn is_over(&self) -> bool {
        self.ordered.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// Sleeps until `until`, or until everything should end: then false.
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

/// How much traffic, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of servers, each with an address of its own.
    pub servers: usize,
    /// Data connections of each server.
    pub connections: usize,
    /// Time between two starts at one server.
    pub interval: Duration,
    /// Bytes of a transfer.
    pub size_bytes: u64,
    /// Bytes sent at once.
    pub burst_bytes: u64,
    /// Pace of a transfer, in bytes per second.
    pub bytes_per_second: u64,
}

impl Default for Options {
    /// S41, sized to be over in about seven seconds.
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
    /// How long the exercise takes when nothing holds it up.
    pub fn expected_duration(&self) -> Duration {
        let pause = self.burst_bytes as f64 / self.bytes_per_second.max(1) as f64;
        let pauses = self.size_bytes.saturating_sub(1) / self.burst_bytes.max(1);
        self.interval * self.connections as u32 + Duration::from_secs_f64(pause * pauses as f64)
    }
}

/// One data connection, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The listening end.
    pub server: SocketAddr,
    /// The connecting end.
    pub client: SocketAddr,
    /// Announced by 229 instead of 227.
    pub extended: bool,
    /// From client to server.
    pub upload: bool,
    /// Bytes transferred by the application.
    pub bytes: u64,
    /// When the data connection was asked for, in nanoseconds since 1970.
    pub started_ns: u64,
    /// When it was over.
    pub ended_ns: u64,
}

/// Servers and clients at work.
pub struct Exercise {
    stop: Stop,
    servers: Vec<JoinHandle<io::Result<io::Result<()>>>>,
    clients: Vec<JoinHandle<io::Result<Vec<io::Result<Transfer>>>>>,
    active: Arc<AtomicU64>,
}

/// What an exercise leaves behind.
#[derive(Debug, Default)]
pub struct Log {
    /// Every transfer that was completed.
    pub transfers: Vec<Transfer>,
    /// What went wrong in the others.
    pub failures: Vec<String>,
}

impl Exercise {
    /// Starts servers and clients in a world that has an address for each server; a server's clients share one.
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
            // The sender is dropped when the server fails, so this ends in any case.
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

    /// Data connections open now.
    pub fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Whether all clients have finished.
    pub fn is_finished(&self) -> bool {
        self.clients.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the clients, ends the servers and returns the log.
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
