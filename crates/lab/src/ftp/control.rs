//! Text lines of a control connection, with time limits.

use super::Stop;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const LINE_LIMIT: usize = 512;
const TICK: Duration = Duration::from_millis(100);

/// A control connection, either end.
pub(super) struct Control {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Control {
    pub(super) fn new(stream: TcpStream) -> io::Result<Control> {
        stream.set_nodelay(true)?;
        limit(&stream)?;
        Ok(Control { stream, buffer: Vec::new() })
    }

    pub(super) fn send(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(format!("{line}\r\n").as_bytes())
    }

    /// Sends a line in two segments.
    pub(super) fn send_split(&mut self, line: &str) -> io::Result<()> {
        let whole = format!("{line}\r\n");
        let (head, tail) = whole.split_at(whole.len() / 2);
        self.stream.write_all(head.as_bytes())?;
        std::thread::sleep(Duration::from_millis(2));
        self.stream.write_all(tail.as_bytes())
    }

    /// Reads the next line; an error if the other end has closed, the line is too long, or everything should end.
    pub(super) fn line(&mut self, stop: &Stop) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_string());
            }
            if self.buffer.len() > LINE_LIMIT {
                return Err(io::Error::other("a control line is too long"));
            }
            let mut bytes = [0; 256];
            let len = patient(stop, || self.stream.read(&mut bytes))?;
            if len == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.buffer.extend_from_slice(&bytes[..len]);
        }
    }

    /// Sends a command and returns the reply, which must begin with `expected`.
    pub(super) fn ask(&mut self, command: &str, expected: &str, stop: &Stop) -> io::Result<String> {
        self.send(command)?;
        self.expect(expected, stop)
    }

    /// Reads the next reply, which must begin with `expected`.
    pub(super) fn expect(&mut self, expected: &str, stop: &Stop) -> io::Result<String> {
        let reply = self.line(stop)?;
        if reply.starts_with(expected) {
            return Ok(reply);
        }
        Err(io::Error::other(format!("expected {expected}, got {reply:?}")))
    }
}

/// Sets time limits on a stream, short enough to notice the stop signal.
pub(super) fn limit(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))
}

/// Repeats an operation with a time limit until it succeeds or everything should end.
pub(super) fn patient<T>(
    stop: &Stop,
    mut operation: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match operation() {
            Err(error) if is_waiting(&error) => {
                if stop.is_over() {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            other => return other,
        }
    }
}

/// Returns true if the operation only exceeded its time limit.
pub(super) fn is_waiting(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
