//! Background traffic: UDP at a constant rate, and TCP streams.
//!
//! UDP packets are frames of the generator ([`crate::generate`]) for no device's address (MAC), so no host answers.
//! TCP streams are real and are read.
//! Ports are above 20,000 at both ends of the servers' and clients' addresses and never the control port, so the
//! hosts of the data connections have other traffic too.

use crate::ftp::Stop;
use crate::generate::{Counts, Ends, Frames, MAX_THREADS, Order, frame, send};
use crate::net::sys::send::PacketSender;
use crate::net::{self, CLIENTS_DEVICE, World};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Port of the UDP packets, on both ends.
pub const UDP_PORT: u16 = 20_001;
const TCP_PORT: u16 = 20_002;
/// Headers of Ethernet, IPv4 and UDP.
const HEADERS_LEN: usize = 42;
/// Packets per second for which one thread is enough.
const RATE_OF_A_SENDER: u64 = 250_000;
const TICK: Duration = Duration::from_millis(1);
const TIME_LIMIT: Duration = Duration::from_millis(100);

/// Amount of background traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// UDP packets per second; 0 = no background traffic at all.
    pub packets_per_second: u64,
    /// Payload of a UDP packet in bytes, 18 to 1,400.
    pub payload_bytes: usize,
    /// Number of TCP streams.
    pub streams: usize,
    /// Bytes per second of each stream.
    pub stream_bytes_per_second: u64,
    /// True to send UDP past the queueing discipline: quicker, but captures on the clients' device do not see it.
    pub direct: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            packets_per_second: 20_000,
            payload_bytes: 200,
            streams: 4,
            stream_bytes_per_second: 250_000,
            direct: false,
        }
    }
}

/// Running background traffic.
pub struct Background {
    stop: Stop,
    threads: Vec<JoinHandle<io::Result<io::Result<()>>>>,
    counts: Arc<Counts>,
}

impl Background {
    /// Starts the traffic between the first addresses of both ends.
    pub fn start(world: &World, options: Options, stop: Stop) -> io::Result<Background> {
        let counts = Arc::<Counts>::default();
        let mut threads = Vec::new();
        if options.packets_per_second > 0 && options.streams > 0 {
            let (ready, is_ready) = std::sync::mpsc::channel();
            let ending = stop.clone();
            threads.push(world.servers.spawn("background-sink", move || {
                let tcp = TcpListener::bind((net::server_address(0), TCP_PORT));
                let _ = ready.send(());
                sink(&tcp?, &ending)
            })?);
            let _ = is_ready.recv();
        }
        if options.packets_per_second > 0 {
            let order = Order { rate: Some(options.packets_per_second), ..Order::default() };
            for order in order.divided(senders(options.packets_per_second)) {
                let (ending, counter) = (stop.clone(), Arc::clone(&counts));
                let work = move || send_udp(&options, &order, &ending, &counter);
                threads.push(world.clients.spawn("background-udp", work)?);
            }
            for _ in 0..options.streams {
                let ending = stop.clone();
                threads.push(
                    world.clients.spawn("background-tcp", move || send_tcp(&options, &ending))?,
                );
            }
        }
        Ok(Background { stop, threads, counts })
    }

    /// UDP packets sent so far.
    pub fn sent(&self) -> u64 {
        self.counts.frames()
    }

    /// Stops the traffic; returns the number of UDP packets sent.
    pub fn finish(self) -> io::Result<u64> {
        self.stop.order();
        for thread in self.threads {
            let panicked = |_| io::Error::other("a background thread panicked");
            thread.join().map_err(panicked)???;
        }
        Ok(self.counts.frames())
    }
}

/// Number of threads that send: more than one where the rate needs more than a processor, and there are more.
fn senders(packets_per_second: u64) -> usize {
    let wanted = packets_per_second.div_ceil(RATE_OF_A_SENDER).max(1);
    let there = std::thread::available_parallelism().map_or(1, usize::from);
    usize::try_from(wanted).unwrap_or(there).min(there).min(MAX_THREADS)
}

/// Sends the packets at their rate; packets that could not be sent in time are skipped.
fn send_udp(options: &Options, order: &Order, stop: &Stop, counts: &Counts) -> io::Result<()> {
    let sender = match options.direct {
        true => PacketSender::open(CLIENTS_DEVICE),
        false => PacketSender::open_queued(CLIENTS_DEVICE),
    };
    let ends = Ends {
        source: SocketAddrV4::new(net::client_address(0), UDP_PORT),
        destination: SocketAddrV4::new(net::server_address(0), UDP_PORT),
        mac: None,
    };
    let size = HEADERS_LEN + options.payload_bytes.min(1_400);
    let frames = Frames::of_one(&frame(&ends, false, None, size as u16));
    send(&sender?, &frames, order, counts, &|| stop.is_over())
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

/// Reads all streams.
fn sink(tcp: &TcpListener, stop: &Stop) -> io::Result<()> {
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
    Ok(())
}

fn is_waiting(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
