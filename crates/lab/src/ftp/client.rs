//! The clients of one server: transfers started one by one, each in a thread of its own.

use super::control::{Control, limit};
use super::{Options, Stop, Transfer, server};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
const STACK_BYTES: usize = 128 * 1024;
/// Every third connection uses EPSV, every fifth is an upload.
const EXTENDED_EVERY: usize = 3;
const UPLOAD_EVERY: usize = 5;

/// Addresses and start time of the connections.
pub(super) struct Schedule {
    pub(super) server: SocketAddr,
    pub(super) client: IpAddr,
    pub(super) begin: Instant,
    pub(super) number: usize,
}

/// Runs all transfers of one server.
pub(super) fn run(
    schedule: &Schedule,
    options: &Options,
    stop: &Stop,
    active: &AtomicU64,
) -> Vec<io::Result<Transfer>> {
    let mut results = Vec::new();
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        for index in 0..options.connections {
            if !stop.sleep_until(schedule.begin + options.interval * index as u32) {
                let text = format!("stopped before transfer {index}");
                results.push(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
                break;
            }
            let kind = index + schedule.number;
            let work = move || session(schedule, kind, options, stop, active);
            match Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work) {
                Ok(thread) => started.push(thread),
                Err(error) => results.push(Err(error)),
            }
        }
        for thread in started {
            let panicked = |_| Err(io::Error::other("a session panicked"));
            results.push(thread.join().unwrap_or_else(panicked));
        }
    });
    results
}

fn session(
    schedule: &Schedule,
    kind: usize,
    options: &Options,
    stop: &Stop,
    active: &AtomicU64,
) -> io::Result<Transfer> {
    let extended = kind % EXTENDED_EVERY == EXTENDED_EVERY - 1;
    let upload = kind % UPLOAD_EVERY == UPLOAD_EVERY - 1;
    let mut control = Control::new(connect(schedule.client, schedule.server)?)?;
    control.expect("220-", stop)?;
    control.expect("220 ", stop)?;
    control.ask("USER fyke", "331", stop)?;
    control.ask("PASS lab", "230", stop)?;
    control.ask("TYPE I", "200", stop)?;
    let started_ns = now_ns();
    let (command, expected) = if extended { ("EPSV", "229") } else { ("PASV", "227") };
    let reply = control.ask(command, expected, stop)?;
    let server = announced(&reply, schedule.server.ip())?;
    let data = connect(schedule.client, server)?;
    let client = data.local_addr()?;
    active.fetch_add(1, Ordering::Relaxed);
    let verb = if upload { "STOR" } else { "RETR" };
    let done = control.ask(&format!("{verb} {}", options.size_bytes), "150", stop).and_then(|_| {
        if upload {
            server::send_paced(data, options.size_bytes, options, stop)?;
            Ok(options.size_bytes)
        } else {
            server::receive(data, stop)
        }
    });
    active.fetch_sub(1, Ordering::Relaxed);
    let bytes = done?;
    control.expect("226", stop)?;
    control.ask("QUIT", "221", stop)?;
    if bytes != options.size_bytes {
        let text = format!("{bytes} of {} bytes came from {server}", options.size_bytes);
        return Err(io::Error::other(text));
    }
    Ok(Transfer { server, client, extended, upload, bytes, started_ns, ended_ns: now_ns() })
}

/// Reads the port from the server's reply; this is the client, and the server's format is known.
fn announced(reply: &str, server: IpAddr) -> io::Result<SocketAddr> {
    let wrong = || io::Error::other(format!("no port in {reply:?}"));
    if reply.starts_with("229") {
        let port = reply.split('|').nth(3).and_then(|port| port.parse().ok()).ok_or_else(wrong)?;
        return Ok(SocketAddr::new(server, port));
    }
    let inner = reply.split(['(', ')']).nth(1).ok_or_else(wrong)?;
    let numbers: Vec<u8> = inner.split(',').filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [a, b, c, d, high, low] => {
            let port = u16::from_be_bytes([high, low]);
            Ok(SocketAddr::new([a, b, c, d].into(), port))
        }
        _ => Err(wrong()),
    }
}

/// Connects from a given address of this end.
fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), CONNECT_PATIENCE)?;
    let stream = TcpStream::from(socket);
    limit(&stream)?;
    Ok(stream)
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
