//! DNS: questions and answers of messages, over UDP, and over TCP with a length before each. Source: RFC 1035, 7766.

use super::{Give, Message};
use crate::buffer::{Application, Buffer};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most questions of a message.
const MAX_QUESTIONS: usize = 32;
/// Most answers that are recorded.
pub const MAX_ANSWERS: usize = 64;
/// Types of answers with data that is recorded.
const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const PTR: u16 = 12;
const MX: u16 = 15;
const TXT: u16 = 16;
const AAAA: u16 = 28;
/// Longest name, in bytes.
const MAX_NAME: usize = 255;
const SOA: u16 = 6;
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

/// A question: the name and the type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Name with dots.
    pub name: Vec<u8>,
    /// Type, such as 1 for A.
    pub kind: u16,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Name with dots.
    pub name: Vec<u8>,
    /// Type.
    pub kind: u16,
    /// Time for which it may be kept, in seconds.
    pub ttl: u32,
    /// An address, a name or a text; the others are empty.
    pub data: Vec<u8>,
}

/// A message, for records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Identifier.
    pub id: u16,
    /// Flags, with the operation and the code of the response.
    pub flags: u16,
    /// Questions.
    pub questions: Vec<Question>,
    /// Answers, at most [`MAX_ANSWERS`], up to the first damaged one.
    pub answers: Vec<Answer>,
}

/// The message in some bytes; none if they are no message of DNS.
pub fn message(bytes: &[u8]) -> Option<Message> {
    let header = header(bytes)?;
    let mut at = HEADER;
    let (mut buffers, mut questions) = (Vec::new(), Vec::new());
    for _ in 0..header.questions {
        let (name, end) = name(bytes, at)?;
        let (kind, class) = (word(bytes, end)?, word(bytes, end + 2)? & 0x7fff);
        if !matches!(class, 1 | 3 | 4 | 254 | 255) {
            return None;
        }
        at = end + 4;
        buffers.push((Buffer::DnsQueries, name.clone()));
        let of_message = if header.is_answer { Buffer::DnsResponse } else { Buffer::DnsQuery };
        buffers.push((of_message, name.clone()));
        questions.push(Question { name, kind });
    }
    let flags = word(bytes, 2)?;
    buffers.push((Buffer::DnsOperation, vec![(flags >> 11) as u8 & 15]));
    buffers.push((Buffer::DnsCode, vec![flags as u8 & 15]));
    let mut answers = Vec::new();
    let sections = [Buffer::DnsAnswers, Buffer::DnsAuthorities, Buffer::DnsAdditionals];
    for (number, section) in sections.into_iter().enumerate() {
        let count = usize::from(word(bytes, 6 + 2 * number)?);
        let mut taken = 0;
        while taken < count.min(MAX_ANSWERS)
            && let Some((answer, end)) = answer(bytes, at)
        {
            (taken, at) = (taken + 1, end);
            buffers.push((section, answer.name.clone()));
            if header.is_answer {
                buffers.push((Buffer::DnsResponse, answer.name.clone()));
                if matches!(answer.kind, NS | CNAME | PTR | MX | SOA) {
                    buffers.push((Buffer::DnsResponse, answer.data.clone()));
                }
                if number == 0 {
                    answers.push(answer);
                }
            }
        }
        if taken < count {
            break;
        }
    }
    let facts = Facts { id: word(bytes, 0)?, flags, questions, answers };
    let whole = Message::whole(Application::Dns, !header.is_answer, buffers);
    Some(Message { facts: super::Facts::Dns(Box::new(facts)), ..whole })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// An answer, and the place after it.
fn answer(bytes: &[u8], at: usize) -> Option<(Answer, usize)> {
    let (name, end) = name(bytes, at)?;
    let kind = word(bytes, end)?;
    let ttl = u32::from_be_bytes(*bytes.get(end + 4..)?.first_chunk()?);
    let start = end + 10;
    let after = start + usize::from(word(bytes, end + 8)?);
    let raw = bytes.get(start..after)?;
    let data = match (kind, raw.len()) {
        (A, 4) => Ipv4Addr::from_bits(u32::from_be_bytes(*raw.first_chunk()?)).to_string(),
        (AAAA, 16) => Ipv6Addr::from_bits(u128::from_be_bytes(*raw.first_chunk()?)).to_string(),
        (NS | CNAME | PTR | SOA, _) => {
            return Some((Answer { name, kind, ttl, data: self::name(bytes, start)?.0 }, after));
        }
        (MX, 3..) => {
            return Some((
                Answer { name, kind, ttl, data: self::name(bytes, start + 2)?.0 },
                after,
            ));
        }
        // Several texts, each with its length before it.
        (TXT, _) => {
            let mut texts = Vec::new();
            let mut rest = raw;
            while let Some((len, more)) = rest.split_first()
                && let Some((text, more)) = more.split_at_checked(usize::from(*len))
            {
                texts.extend_from_slice(text);
                rest = more;
            }
            return Some((Answer { name, kind, ttl, data: texts }, after));
        }
        _ => String::new(),
    };
    Some((Answer { name, kind, ttl, data: data.into_bytes() }, after))
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
