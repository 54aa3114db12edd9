//! The server: one thread accepts connections, one thread handles each control connection.

use super::control::{Control, is_waiting, limit, patient};
use super::{Options, Stop};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::Builder;
use std::time::{Duration, Instant};

const MOST_SESSIONS: usize = 256;
const STACK_BYTES: usize = 128 * 1024;
const POLL: Duration = Duration::from_millis(2);
/// Time limit for a client to open the data connection.
const DATA_PATIENCE: Duration = Duration::from_secs(5);
/// Every seventh reply that announces a port is split over two segments.
const SPLIT_EVERY: usize = 7;

/// Serves until `stop` is set; signals `ready` when clients may connect.
pub(super) fn serve(
    address: SocketAddr,
    options: &Options,
    stop: &Stop,
    ready: &Sender<()>,
) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let _ = ready.send(());
    let (sessions, number) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        while !stop.is_over() {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_waiting(&error) => {
                    std::thread::sleep(POLL);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let sessions = &sessions;
            if sessions.fetch_add(1, Ordering::Relaxed) >= MOST_SESSIONS {
                sessions.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let split = number.fetch_add(1, Ordering::Relaxed) % SPLIT_EVERY == SPLIT_EVERY - 1;
            let work = move || {
                // A client that disconnects during its session ends only that session.
                let _ = session(stream, address.ip(), split, options, stop);
                sessions.fetch_sub(1, Ordering::Relaxed);
            };
            Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)?;
        }
        Ok(())
    })
}

fn session(
    stream: TcpStream,
    address: IpAddr,
    split: bool,
    options: &Options,
    stop: &Stop,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut control = Control::new(stream)?;
    control.send("220-fyke lab")?;
    control.send("220 ready")?;
    let mut listener: Option<TcpListener> = None;
    loop {
        let line = control.line(stop)?;
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match verb {
            "USER" => control.send("331 password, please")?,
            "PASS" => control.send("230 welcome")?,
            "TYPE" => control.send("200 as you like")?,
            "PASV" | "EPSV" => {
                let bound = TcpListener::bind((address, 0))?;
                let reply = announcement(verb, bound.local_addr()?);
                listener = Some(bound);
                if split { control.send_split(&reply)? } else { control.send(&reply)? }
            }
            "RETR" | "STOR" => {
                let Some(listener) = listener.take() else {
                    control.send("425 use PASV first")?;
                    continue;
                };
                control.send("150 here it comes")?;
                let data = accept(&listener, stop)?;
                drop(listener);
                match (verb, argument.parse()) {
                    ("RETR", Ok(size)) => send_paced(data, size, options, stop)?,
                    ("RETR", Err(_)) => {
                        control.send("550 a file's name is its size")?;
                        continue;
                    }
                    _ => receive(data, stop).map(drop)?,
                }
                control.send("226 done")?;
            }
            "QUIT" => return control.send("221 bye"),
            _ => control.send("502 not here")?,
        }
    }
}

fn announcement(verb: &str, bound: SocketAddr) -> String {
    let port = bound.port();
    match (verb, bound.ip()) {
        ("PASV", IpAddr::V4(ip)) => {
            let [a, b, c, d] = ip.octets();
            let (high, low) = (port >> 8, port & 0xff);
            format!("227 Entering Passive Mode ({a},{b},{c},{d},{high},{low}).")
        }
        ("PASV", IpAddr::V6(_)) => "425 use EPSV".to_string(),
        _ => format!("229 Entering Extended Passive Mode (|||{port}|)"),
    }
}

fn accept(listener: &TcpListener, stop: &Stop) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let limit_at = Instant::now() + DATA_PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                limit(&stream)?;
                return Ok(stream);
            }
            Err(error) if !is_waiting(&error) => return Err(error),
            Err(_) if stop.is_over() || Instant::now() > limit_at => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

/// Sends `size` bytes in bursts, the first one immediately.
pub(super) fn send_paced(
    mut data: TcpStream,
    size: u64,
    options: &Options,
    stop: &Stop,
) -> io::Result<()> {
    let burst_bytes = options.burst_bytes.max(1);
    let pause =
        Duration::from_secs_f64(burst_bytes as f64 / options.bytes_per_second.max(1) as f64);
    let chunk = [b'f'; 4_096];
    let (mut left, mut next) = (size, Instant::now());
    while left > 0 {
        if !stop.sleep_until(next) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        next += pause;
        let mut burst = left.min(burst_bytes);
        while burst > 0 {
            let part = &chunk[..burst.min(chunk.len() as u64) as usize];
            let sent = patient(stop, || data.write(part))? as u64;
            burst -= sent;
            left -= sent;
        }
    }
    Ok(())
}

/// Reads until the other end closes; returns the number of bytes.
pub(super) fn receive(mut data: TcpStream, stop: &Stop) -> io::Result<u64> {
    let (mut total, mut buffer) = (0, [0; 16 * 1024]);
    loop {
        match patient(stop, || data.read(&mut buffer))? {
            0 => return Ok(total),
            len => total += len as u64,
        }
    }
}
