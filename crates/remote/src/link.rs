//! Messages over a TLS connection: one byte of kind and four of length (big-endian) before each.
//!
//! A link never waits but in [`turn`](Link::turn), which waits for the peer or for other descriptors. It reads at most
//! one message ahead, and what it has to send is bounded by its user, which sends the next batch when the one before is
//! gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;
use serde::Serialize;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Bytes before a message.
const HEAD: usize = 5;
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request or a response, as JSON.
    Json,
    /// Frames.
    Frames,
}

impl Kind {
    const fn byte(self) -> u8 {
        match self {
            Kind::Json => 1,
            Kind::Frames => 2,
        }
    }

    fn of(byte: u8) -> Option<Kind> {
        [Kind::Json, Kind::Frames].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// Reason why a connection ends.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer has closed it.
    #[error("the other end has closed the connection")]
    Closed,
    /// Nothing came for too long.
    #[error("the other end was silent for {0} s")]
    Silent(u64),
    /// A message is longer than the limit.
    #[error("a message has {given} bytes; at most {limit}")]
    TooLong {
        /// Its bytes.
        given: usize,
        /// The limit.
        limit: usize,
    },
    /// A message that breaks the protocol.
    #[error("it does not follow the protocol: {0}")]
    Wrong(String),
    /// TLS refuses.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The system refuses.
    #[error("{0}")]
    Call(#[from] io::Error),
}

/// Begin of the text of [`LinkError::Silent`], which a relay sends as the reason.
pub(crate) const SILENCE: &str = "the other end was silent for ";

impl LinkError {
    /// True if the network or the process at the other end may be the reason, so that another connection may last. TLS
    /// and the protocol fail again.
    pub fn is_loss(&self) -> bool {
        matches!(self, LinkError::Closed | LinkError::Silent(_) | LinkError::Call(_))
    }
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    socket: TcpStream,
    tls: Connection,
    /// Bytes that were received and not taken.
    inbox: Vec<u8>,
    /// Most bytes of a message of the peer.
    limit: usize,
    is_closed: bool,
    heard: Instant,
}

impl Link {
    /// Takes a connected socket.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(socket: TcpStream, tls: Connection, limit: usize) -> Result<Link, LinkError> {
        socket.set_nonblocking(true)?;
        // In a sandbox it may not be set; a relay sets it at the socket that accepts.
        let _inherited = socket.set_nodelay(true);
        let mut tls = tls;
        tls.set_buffer_limit(None);
        let (inbox, heard) = (Vec::new(), Instant::now());
        Ok(Link { socket, tls, inbox, limit, is_closed: false, heard })
    }

    /// Changes the limit of the peer's messages.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The TLS connection.
    pub fn tls(&self) -> &Connection {
        &self.tls
    }

    /// Completes the handshake.
    ///
    /// # Errors
    /// The peer is not trusted, or does not answer within `limit`.
    pub fn handshake(&mut self, limit: Duration) -> Result<(), LinkError> {
        let start = Instant::now();
        while self.tls.is_handshaking() {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(LinkError::Silent(limit.as_secs()));
            }
            self.turn(left, &[])?;
            if self.is_closed {
                return Err(LinkError::Closed);
            }
        }
        self.flush()
    }

    /// True while bytes wait for the peer.
    pub fn is_sending(&self) -> bool {
        self.tls.wants_write()
    }

    /// Time since the peer has sent something.
    pub fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Sends a message, as much as the socket takes now; [`turn`](Self::turn) sends the rest.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, kind: Kind, body: &[u8]) -> Result<(), LinkError> {
        let mut head = [kind.byte(), 0, 0, 0, 0];
        head[1..].copy_from_slice(&(body.len() as u32).to_be_bytes());
        self.tls.writer().write_all(&head)?;
        self.tls.writer().write_all(body)?;
        self.flush()
    }

    /// Sends a JSON message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_json(&mut self, message: &impl Serialize) -> Result<(), LinkError> {
        let body =
            serde_json::to_vec(message).map_err(|error| LinkError::Wrong(error.to_string()))?;
        self.send(Kind::Json, &body)
    }

    /// Tells the peer that nothing follows, sends what is left, and waits for the peer's end, all within `limit`: what
    /// the peer has not read would be lost if the socket were closed before.
    pub fn close(&mut self, limit: Duration) {
        self.tls.send_close_notify();
        let start = Instant::now();
        while self.tls.wants_write() && start.elapsed() < limit && !self.is_closed {
            if self.turn(limit, &[]).is_err() {
                return;
            }
        }
        let _gone = self.socket.shutdown(std::net::Shutdown::Write);
        while start.elapsed() < limit && !self.is_closed {
            self.inbox.clear();
            if self.turn(limit.saturating_sub(start.elapsed()), &[]).is_err() {
                return;
            }
        }
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until the peer sends something or takes something, or one of `others` is readable, at most for `patience`;
    /// then receives and sends.
    ///
    /// # Errors
    /// The connection is broken, or the peer breaks TLS.
    pub fn turn(&mut self, patience: Duration, others: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        let mut wanted = PollFlags::empty();
        let has_room = !self.has_message();
        if has_room && !self.is_closed {
            wanted |= PollFlags::IN;
        }
        if self.tls.wants_write() {
            wanted |= PollFlags::OUT;
        }
        let mut all = vec![PollFd::from_borrowed_fd(self.socket.as_fd(), wanted)];
        all.extend(others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let seconds = patience.as_secs().min(3_600) as i64;
        let time = Timespec { tv_sec: seconds, tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut all, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        self.flush()?;
        if has_room && !self.is_closed { self.receive() } else { Ok(()) }
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        let start = self.inbox.len();
        while self.inbox.len() - start < PIECE {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => {
                    self.is_closed = true;
                    break;
                }
                Ok(_) => self.heard = Instant::now(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The reason goes to the peer as an alert.
                    let _as_far_as_it_goes = self.flush();
                    return Err(error.into());
                }
            };
            let before = self.inbox.len();
            self.inbox.resize(before + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut self.inbox[before..])?;
            if state.peer_has_closed() {
                self.is_closed = true;
                break;
            }
        }
        self.flush()
    }

    fn head(&self) -> Option<(u8, usize)> {
        let head = self.inbox.first_chunk::<HEAD>()?;
        Some((head[0], u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize))
    }

    fn has_message(&self) -> bool {
        self.head().is_some_and(|(_, len)| len > self.limit || self.inbox.len() >= HEAD + len)
    }

    /// The next message that has arrived whole.
    ///
    /// # Errors
    /// It is too long or of an unknown kind, or the connection was closed and nothing is left.
    pub fn message(&mut self) -> Result<Option<(Kind, Vec<u8>)>, LinkError> {
        let Some((kind, len)) = self.head() else {
            return if self.is_closed { Err(LinkError::Closed) } else { Ok(None) };
        };
        let unknown = || LinkError::Wrong(format!("a message of kind {kind}"));
        let kind = Kind::of(kind).ok_or_else(unknown)?;
        if len > self.limit {
            return Err(LinkError::TooLong { given: len, limit: self.limit });
        }
        if self.inbox.len() < HEAD + len {
            return if self.is_closed { Err(LinkError::Closed) } else { Ok(None) };
        }
        let rest = self.inbox.split_off(HEAD + len);
        let mut body = std::mem::replace(&mut self.inbox, rest);
        body.drain(..HEAD);
        Ok(Some((kind, body)))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
