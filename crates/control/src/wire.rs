//! Reads and writes lines on a Unix stream socket, with limits for length and time.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Time limits for a peer.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until the first byte of a line; `None` waits without limit.
    pub first_byte: Option<Duration>,
    /// From the first byte to the line end.
    pub whole_line: Duration,
}

/// Result of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A line without its end.
    Line(Vec<u8>),
    /// No byte arrived within [`Patience::first_byte`].
    Quiet,
    /// The peer closed between two lines.
    Closed,
    /// A line began and did not end in time, or the peer closed in the middle of it.
    Broken,
    /// The line is longer than the limit; the rest of the stream cannot be split into lines any
    /// more.
    TooLong,
}

/// Reads lines and keeps the bytes after them.
#[derive(Debug)]
pub struct LineReader {
    stream: UnixStream,
    /// Bytes received and not yet handed out; at most the limit and one chunk.
    buffer: Vec<u8>,
    /// Number of bytes at the start of the buffer that are known to hold no line end.
    scanned: usize,
    max_bytes: usize,
    /// True if the peer may send open files.
    takes_files: bool,
    /// The last file that came with the bytes.
    file: Option<OwnedFd>,
}

const CHUNK_BYTES: usize = 64 << 10;

impl LineReader {
    /// Reads `stream`; a line has at most `max_bytes`.
    pub fn new(stream: UnixStream, max_bytes: usize) -> LineReader {
        let (buffer, scanned) = (Vec::new(), 0);
        LineReader { stream, buffer, scanned, max_bytes, takes_files: false, file: None }
    }

    /// Reads a stream on which the peer may send open files, one with each line.
    pub fn with_files(stream: UnixStream, max_bytes: usize) -> LineReader {
        LineReader { takes_files: true, ..LineReader::new(stream, max_bytes) }
    }

    /// Takes the last file that came. The kernel may hand it over with the line before its own, so it stays until it is
    /// taken.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.file.take()
    }

    /// Receives bytes. Of several files the kernel and this function close all but one.
    fn receive(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        if !self.takes_files {
            return self.stream.read(chunk);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(chunk)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.stream, &mut parts, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.file = files.last().or(self.file.take());
            }
        }
        Ok(received.bytes)
    }

    /// Waits for the next line.
    ///
    /// # Errors
    /// The error of the system, except time-outs.
    pub fn next(&mut self, patience: Patience) -> io::Result<Incoming> {
        let start = Instant::now();
        let mut began = (!self.buffer.is_empty()).then_some(start);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            if let Some(line) = self.take_line() {
                let fits = line.len() <= self.max_bytes;
                return Ok(if fits { Incoming::Line(line) } else { Incoming::TooLong });
            }
            if self.buffer.len() > self.max_bytes {
                return Ok(Incoming::TooLong);
            }
            let deadline = match began {
                Some(began) => Some(began + patience.whole_line),
                None => patience.first_byte.map(|limit| start + limit),
            };
            let over = if began.is_some() { Incoming::Broken } else { Incoming::Quiet };
            if !set_time_left(deadline, |left| self.stream.set_read_timeout(left))? {
                return Ok(over);
            }
            match self.receive(&mut chunk) {
                Ok(0) => {
                    let clean = self.buffer.is_empty();
                    return Ok(if clean { Incoming::Closed } else { Incoming::Broken });
                }
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    began.get_or_insert_with(Instant::now);
                }
                Err(e) if is_timeout(&e) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(Incoming::Closed),
                Err(e) => return Err(e),
            }
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|at| self.scanned + at) else {
            self.scanned = self.buffer.len();
            return None;
        };
        let rest = self.buffer.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.buffer, rest);
        self.scanned = 0;
        line.pop();
        Some(line)
    }
}

/// Writes a line with its end, all of it within `limit`. Bytes that fit into the socket's buffer
/// are written even after the limit.
///
/// # Errors
/// `TimedOut` if the peer does not read, or the error of the system.
pub fn write_line(stream: &UnixStream, line: &[u8], limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    for mut part in [line, b"\n"] {
        while !part.is_empty() {
            let in_time = set_time_left(Some(deadline), |left| stream.set_write_timeout(left))?;
            // Without NOSIGNAL, a closed peer would end a program that keeps SIGPIPE's default
            // action.
            let flags = SendFlags::NOSIGNAL;
            let flags = if in_time { flags } else { flags | SendFlags::DONTWAIT };
            let chunk = &part[..part.len().min(CHUNK_BYTES)];
            match send(stream, chunk, flags).map_err(io::Error::from) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => part = &part[count..],
                Err(e) if is_timeout(&e) && !in_time => return Err(ErrorKind::TimedOut.into()),
                Err(e) if is_timeout(&e) || e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

/// Writes a line as [`write_line`] does, with an open file.
///
/// # Errors
/// As for [`write_line`].
pub fn write_line_with(
    stream: &UnixStream,
    line: &[u8],
    file: BorrowedFd<'_>,
    limit: Duration,
) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    // There is room for one file.
    let _fits = control.push(SendAncillaryMessage::ScmRights(&files));
    set_time_left(Some(deadline), |left| stream.set_write_timeout(left))?;
    let first = &line[..line.len().min(CHUNK_BYTES)];
    let sent = sendmsg(stream, &[IoSlice::new(first)], &mut control, SendFlags::NOSIGNAL)?;
    write_line(stream, &line[sent..], deadline.saturating_duration_since(Instant::now()))
}

/// Sets the socket's time-out to the time left; false when none is left.
fn set_time_left(
    deadline: Option<Instant>,
    set: impl FnOnce(Option<Duration>) -> io::Result<()>,
) -> io::Result<bool> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) {
        return Ok(false);
    }
    // The kernel counts in microseconds and takes zero as "no limit".
    set(left.map(|left| left.max(Duration::from_micros(1))))?;
    Ok(true)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    const SHORT: Duration = Duration::from_millis(30);
    const PATIENCE: Patience = Patience { first_byte: Some(SHORT), whole_line: SHORT };

    fn pair() -> (UnixStream, LineReader) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, LineReader::new(theirs, 10))
    }

    #[test]
    fn lines_arrive_whole_however_they_are_cut() {
        let (mut peer, mut reader) = pair();
        peer.write_all(b"one\ntw").unwrap();
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Line(b"one".to_vec()));
        peer.write_all(b"o\n\n").unwrap();
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Line(b"two".to_vec()));
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Line(Vec::new()));
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Quiet);
        drop(peer);
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Closed);
    }

    #[test]
    fn ten_bytes_fit_and_eleven_do_not() {
        let (mut peer, mut reader) = pair();
        peer.write_all(b"0123456789\n0123456789x\n").unwrap();
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Line(b"0123456789".to_vec()));
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::TooLong);
        let (mut peer, mut reader) = pair();
        peer.write_all(b"no end in sight").unwrap();
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::TooLong);
    }

    #[test]
    fn a_line_that_does_not_end_is_broken_even_when_it_drips() {
        let (mut peer, mut reader) = pair();
        let dripping = std::thread::spawn(move || {
            for _ in 0..8 {
                peer.write_all(b"x").unwrap();
                std::thread::sleep(SHORT / 3);
            }
            peer
        });
        let patience = Patience { first_byte: None, whole_line: SHORT };
        assert_eq!(reader.next(patience).unwrap(), Incoming::Broken);
        drop(dripping.join().unwrap());
        let (mut peer, mut reader) = pair();
        peer.write_all(b"half").unwrap();
        drop(peer);
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Broken);
    }

    #[test]
    fn what_fits_is_written_even_without_time() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        write_line(&ours, b"late", Duration::ZERO).unwrap();
        let mut reader = LineReader::new(theirs, 10);
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Line(b"late".to_vec()));
    }

    #[test]
    fn a_line_comes_with_a_file() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, mut pipe) = (LineReader::with_files(theirs, 100), io::pipe().unwrap());
        write_line(&ours, b"one", SHORT).unwrap();
        write_line_with(&ours, b"two", pipe.1.as_fd(), SHORT).unwrap();
        drop(pipe.1);
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Line(b"one".to_vec()));
        assert_eq!(reader.next(PATIENCE).unwrap(), Incoming::Line(b"two".to_vec()));
        let mut file = std::fs::File::from(reader.take_file().unwrap());
        file.write_all(b"x").unwrap();
        drop(file);
        let mut read = String::new();
        pipe.0.read_to_string(&mut read).unwrap();
        assert_eq!(read, "x");
        // Taken once.
        assert!(reader.take_file().is_none());
    }

    #[test]
    fn writing_to_a_peer_that_does_not_read_ends() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let error = write_line(&ours, &vec![b'x'; 8 << 20], SHORT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
