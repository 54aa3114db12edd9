//! DNS: questions of messages, over UDP, and over TCP with a length before each. Source: RFC 1035, 7766.

use super::{Give, Message};
use crate::buffer::{Application, Buffer};

/// Most questions of a message.
const MAX_QUESTIONS: usize = 32;
/// Longest name, in bytes.
const MAX_NAME: usize = 255;
const HEADER: usize = 12;

/// The streams of a connection: bytes of an incomplete message, to the server and to the client.
#[derive(Debug, Default)]
pub struct Dns {
    sides: [Vec<u8>; 2],
    ended: [bool; 2],
}

impl Dns {
    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.sides.iter().map(Vec::capacity).sum()
    }

    /// Takes the next bytes of a direction.
    pub fn bytes(&mut self, to_server: bool, missing: u64, bytes: &[u8], give: Give<'_>) {
        let at = usize::from(!to_server);
        let side = &mut self.sides[at];
        if missing > 0 || self.ended[at] {
            self.ended[at] = true;
            side.clear();
            return;
        }
        side.extend_from_slice(bytes);
        let mut taken = 0;
        while let Some((body, len)) = framed(&side[taken..]) {
            match message(body) {
                Some(message) => give(message),
                None => self.ended[at] = true,
            }
            taken += len;
        }
        side.drain(..taken);
    }
}

/// The first message of a stream, and its length with the prefix, if it is complete.
fn framed(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let len = usize::from(u16::from_be_bytes(*bytes.first_chunk()?));
    Some((bytes.get(2..2 + len)?, 2 + len))
}

/// True if a stream begins with a message, none if it is too short to tell.
pub fn begins(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0, len, ..] if usize::from(*len) < HEADER + 5 => Some(false),
        // Messages of more than 4 KiB do not begin a connection.
        [high, ..] if *high > 16 => Some(false),
        _ if bytes.len() >= 2 + HEADER && header(&bytes[2..]).is_none() => Some(false),
        _ => framed(bytes).map(|(body, _)| message(body).is_some()),
    }
}

struct Header {
    is_answer: bool,
    questions: usize,
}

/// The header, if it can be one: a query or a notification, few questions, no reserved bit.
fn header(bytes: &[u8]) -> Option<Header> {
    let word = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (flags, questions) = (word(2)?, usize::from(word(4)?));
    let operation = flags >> 11 & 15;
    let is_answer = flags & 0x8000 != 0;
    let others = usize::from(word(6)?) + usize::from(word(8)?);
    let fits = matches!(operation, 0 | 4 | 5)
        && flags & 0x40 == 0
        && (1..=MAX_QUESTIONS).contains(&questions)
        && (is_answer || operation == 5 || others == 0);
    fits.then_some(Header { is_answer, questions })
}

/// The message in some bytes; none if they are no message of DNS.
pub fn message(bytes: &[u8]) -> Option<Message> {
    let header = header(bytes)?;
    let mut at = HEADER;
    let mut buffers = Vec::new();
    for _ in 0..header.questions {
        let (name, end) = name(bytes, at)?;
        let class = u16::from_be_bytes(*bytes.get(end + 2..)?.first_chunk()?) & 0x7fff;
        if !matches!(class, 1 | 3 | 4 | 254 | 255) {
            return None;
        }
        at = end + 4;
        if !header.is_answer {
            buffers.push((Buffer::DnsQuery, name));
        }
    }
    let (application, to_server) = (Application::Dns, !header.is_answer);
    Some(Message { application, to_server, complete: true, buffers })
}

/// A name with dots, and the place after it.
fn name(bytes: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let (mut at, mut end) = (start, None);
    let mut out = Vec::new();
    // Pointers go backwards only, so the loop ends.
    let mut lowest = start;
    loop {
        match *bytes.get(at)? {
            0 => return Some((out, end.unwrap_or(at + 1))),
            len @ 1..=63 => {
                if !out.is_empty() {
                    out.push(b'.');
                }
                out.extend_from_slice(bytes.get(at + 1..at + 1 + usize::from(len))?);
                at += 1 + usize::from(len);
            }
            high @ 0xc0.. => {
                let to = usize::from(high & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
                end.get_or_insert(at + 2);
                if to >= lowest {
                    return None;
                }
                (at, lowest) = (to, to);
            }
            _ => return None,
        }
        if out.len() > MAX_NAME {
            return None;
        }
    }
}
