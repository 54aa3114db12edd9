//! Background traffic: UDP at a constant rate, and TCP streams.
//!
//! No program reads the UDP sockets: the kernel drops packets once their queues are full. TCP streams are read.
//! Ports are above 20,000 at both ends of the servers' and clients' addresses and never the control port, so the
//! hosts of the data connections have other traffic too.

use crate::ftp::Stop;
use crate::net::{self, World};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Port of the UDP packets, on both ends.
pub const UDP_PORT: u16 = 20_001;
const TCP_PORT: u16 = 20_002;
const TICK: Duration = Duration::from_millis(1);
const TIME_LIMIT: Duration = Duration::from_millis(100);

/// Amount of background traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// UDP packets per second; 0 = no background traffic at all.
    pub packets_per_second: u64,
    /// Payload of a UDP packet in bytes.
    pub payload_bytes: usize,
    /// Number of TCP streams.
    pub streams: usize,
    /// Bytes per second of each stream.
    pub stream_bytes_per_second: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            packets_per_second: 20_000,
            payload_bytes: 200,
            streams: 4,
            stream_bytes_per_second: 250_000,
        }
    }
}

/// Running background traffic.
pub struct Background {
    stop: Stop,
    threads: Vec<JoinHandle<io::Result<io::Result<()>>>>,
    sent: Arc<AtomicU64>,
}

impl Background {
    /// Starts the traffic between the first addresses of both ends.
    pub fn start(world: &World, options: Options, stop: Stop) -> io::Result<Background> {
        let sent = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        if options.packets_per_second > 0 {
            let (ready, is_ready) = std::sync::mpsc::channel();
            let ending = stop.clone();
            threads.push(world.servers.spawn("background-sink", move || {
                let udp = UdpSocket::bind((net::server_address(0), UDP_PORT));
                let tcp = TcpListener::bind((net::server_address(0), TCP_PORT));
                let bound = udp.and_then(|udp| Ok((udp, tcp?)));
                let _ = ready.send(());
                sink(bound?, &ending)
            })?);
            let _ = is_ready.recv();
            let (ending, counter) = (stop.clone(), Arc::clone(&sent));
            threads.push(
                world
                    .clients
                    .spawn("background-udp", move || send_udp(&options, &ending, &counter))?,
            );
            for _ in 0..options.streams {
                let ending = stop.clone();
                threads.push(
                    world.clients.spawn("background-tcp", move || send_tcp(&options, &ending))?,
                );
            }
        }
        Ok(Background { stop, threads, sent })
    }

    /// UDP packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Stops the traffic; returns the number of UDP packets sent.
    pub fn finish(self) -> io::Result<u64> {
        self.stop.order();
        for thread in self.threads {
            let panicked = |_| io::Error::other("a background thread panicked");
            thread.join().map_err(panicked)???;
        }
        Ok(self.sent.load(Ordering::Relaxed))
    }
}

/// Sends the packets due in each millisecond; packets that could not be sent in time are skipped.
fn send_udp(options: &Options, stop: &Stop, sent: &AtomicU64) -> io::Result<()> {
    let socket = UdpSocket::bind((net::client_address(0), UDP_PORT))?;
    socket.connect((net::server_address(0), UDP_PORT))?;
    let payload = vec![b'u'; options.payload_bytes.min(1_400)];
    let mut last = Instant::now();
    let mut due = 0.0;
    while !stop.is_over() {
        std::thread::sleep(TICK);
        let now = Instant::now();
        let elapsed = (now - last).min(TICK * 20);
        last = now;
        due += elapsed.as_secs_f64() * options.packets_per_second as f64;
        while due >= 1.0 {
            due -= 1.0;
            match socket.send(&payload) {
                Ok(_) => {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                // The device's queue is full: this packet is not sent.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                // The other end has already closed.
                Err(_) if stop.is_over() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn send_tcp(options: &Options, stop: &Stop) -> io::Result<()> {
    let to = SocketAddr::new(net::server_address(0).into(), TCP_PORT);
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(3))?;
    stream.set_write_timeout(Some(TIME_LIMIT))?;
    const PAUSE: Duration = Duration::from_millis(20);
    let chunk = vec![b't'; (options.stream_bytes_per_second / 50).max(1) as usize];
    let mut next = Instant::now();
    while stop.sleep_until(next) {
        next += PAUSE;
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if is_waiting(&error) => {}
            Err(_) if stop.is_over() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Holds the UDP socket open and reads all streams.
fn sink((udp, tcp): (UdpSocket, TcpListener), stop: &Stop) -> io::Result<()> {
    tcp.set_nonblocking(true)?;
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while !stop.is_over() {
        while let Ok((stream, _)) = tcp.accept() {
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        streams.retain_mut(|stream| match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => is_waiting(&error),
        });
        std::thread::sleep(TICK * 5);
    }
    drop(udp);
    Ok(())
}

fn is_waiting(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
