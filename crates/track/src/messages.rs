//! Messages of SIP and RTSP: a start line, header fields, a body.
//!
//! [`Message::of`] reads one from a datagram. [`Framing`] cuts the bytes of TCP connections into messages: by
//! `Content-Length`, and over the frames of media that RTSP interleaves. Nothing is trusted: a length is bounded, a
//! connection that carries something else is skipped line by line.
//!
//! Memory: a message of up to [`MESSAGE_LIMIT`] bytes for each direction of a connection, [`TOTAL_LIMIT`] in all. Cost:
//! O(bytes). Source: RFC 3261, section 7 and 18.3; RFC 2326, section 10.12.

use crate::segment::Segment;
use fyke_flow::streams::{self, Piece, Policy, Streams};
use std::borrow::Cow;
use std::collections::HashMap;

/// Longest message over TCP; the body of a longer one is skipped, a longer header drops the message.
pub(crate) const MESSAGE_LIMIT: usize = 64 << 10;
/// Most bytes of unfinished messages of all connections.
pub(crate) const TOTAL_LIMIT: usize = 16 << 20;
/// Most header fields that are read.
const FIELD_LIMIT: usize = 256;

/// A message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    /// The first line, without its end.
    pub(crate) start: &'a [u8],
    fields: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The message of a datagram. One that is cut short has the whole lines that are there.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Message<'a>> {
        let bytes = skip_blank_lines(bytes);
        let (start, rest) = line(bytes);
        if !is_start(start) {
            return None;
        }
        let end = end_of_fields(rest).unwrap_or(rest.len());
        Some(Message { start, fields: &rest[..end], body: &rest[end..] })
    }

    /// The bytes of the message.
    pub(crate) fn copy(&self) -> Vec<u8> {
        [self.start, b"\r\n", self.fields, self.body].concat()
    }

    /// The value of the first header field with one of these names, without the blanks around it; folded lines are
    /// joined.
    pub(crate) fn field(&self, names: &[&str]) -> Option<Cow<'a, [u8]>> {
        let mut rest = self.fields;
        for _ in 0..FIELD_LIMIT {
            if rest.is_empty() {
                return None;
            }
            let (first, after) = line(rest);
            rest = after;
            let mut value: Option<Cow<'a, [u8]>> = None;
            if let Some(colon) = first.iter().position(|&byte| byte == b':') {
                let name = first[..colon].trim_ascii();
                if names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
                    value = Some(Cow::Borrowed(first[colon + 1..].trim_ascii()));
                }
            }
            while matches!(rest.first(), Some(b' ' | b'\t')) {
                let (folded, after) = line(rest);
                rest = after;
                if let Some(value) = &mut value {
                    let text = value.to_mut();
                    text.push(b' ');
                    text.extend_from_slice(folded.trim_ascii());
                }
            }
            if value.is_some() {
                return value;
            }
        }
        None
    }

    /// The code of a response.
    pub(crate) fn status(&self) -> Option<u16> {
        if !self.start.starts_with(b"SIP/") && !self.start.starts_with(b"RTSP/") {
            return None;
        }
        let word = self.start.split(|&byte| byte == b' ').nth(1)?;
        number(word).and_then(|code| u16::try_from(code).ok())
    }

    /// The method of a request.
    pub(crate) fn method(&self) -> Option<&'a [u8]> {
        match self.status() {
            None => self.start.split(|&byte| byte == b' ').next(),
            Some(_) => None,
        }
    }
}

/// True if a line starts a message: a response, or a request with a method in capitals and a version.
fn is_start(line: &[u8]) -> bool {
    let version = |word: &[u8]| word.starts_with(b"SIP/2") || word.starts_with(b"RTSP/1");
    let mut words = line.split(|&byte| byte == b' ');
    let first = words.next().unwrap_or_default();
    if version(first) {
        return true;
    }
    let method = !first.is_empty()
        && first.len() <= 32
        && first.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    method && words.next_back().is_some_and(|last| version(last.trim_ascii()))
}

/// The first line without its end, and what follows it.
pub(crate) fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => {
            let line = &bytes[..end];
            (line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..])
        }
        None => (bytes, &[]),
    }
}

fn skip_blank_lines(mut bytes: &[u8]) -> &[u8] {
    while let [b'\r' | b'\n' | 0, rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// Length of the header fields with the empty line after them.
fn end_of_fields(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(end) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        let line = &bytes[at..at + end];
        at += end + 1;
        if line.is_empty() || line == b"\r" {
            return Some(at);
        }
    }
    None
}

/// A decimal number of up to nine digits.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    let digits = text.trim_ascii();
    let valid = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    valid.then(|| digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}

/// Reads the messages of TCP connections.
#[derive(Debug)]
pub(crate) struct MessageStreams {
    streams: Streams,
    framing: Framing,
}

/// Bytes of a message, and number of its connection.
pub(crate) type Whole = (u64, Vec<u8>);

impl MessageStreams {
    pub(crate) fn new(connections: usize) -> MessageStreams {
        let limits = streams::Limits {
            connections,
            direction_bytes: 256 << 10,
            bytes: TOTAL_LIMIT,
            ..streams::Limits::default()
        };
        let streams = Streams::new(limits, Policy::First);
        MessageStreams { streams, framing: Framing::default() }
    }

    /// Takes a segment; returns the messages that it completes. They are copies, because they may lie in several
    /// segments; signalling is rare and short.
    pub(crate) fn segment(&mut self, segment: &Segment<'_>, now_ns: u64) -> Vec<Whole> {
        let (framing, mut whole) = (&mut self.framing, Vec::new());
        self.streams.segment(segment, now_ns, &mut |piece| {
            framing.piece(&piece, &mut |message| whole.push((piece.connection, message.copy())));
        });
        whole
    }

    /// Forgets connections that are silent.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        let framing = &mut self.framing;
        self.streams.expire(now_ns, &mut |piece| framing.piece(&piece, &mut |_| {}));
    }

    /// Messages that were too long to read.
    pub(crate) fn long(&self) -> u64 {
        self.framing.counters.long
    }
}

/// Counters of the framing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FramingCounters {
    /// Messages that were dropped or cut because they are too long, or because all of them hold too much.
    pub(crate) long: u64,
    /// Bytes that belong to no message.
    pub(crate) skipped_bytes: u64,
}

/// The unfinished messages of TCP connections.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    directions: HashMap<(u64, bool), Direction>,
    total: usize,
    pub(crate) counters: FramingCounters,
}

#[derive(Debug, Default)]
struct Direction {
    bytes: Vec<u8>,
    /// Bytes still to come that are not read.
    skip: usize,
    /// Bytes of the header that are known not to contain its end.
    searched: usize,
}

impl Framing {
    /// Takes a piece of a stream and passes on the messages that it completes.
    pub(crate) fn piece(&mut self, piece: &Piece<'_>, give: &mut dyn FnMut(&Message<'_>)) {
        let key = (piece.connection, piece.forward);
        if piece.bytes.is_empty() {
            if let Some(gone) = self.directions.remove(&key) {
                self.total -= gone.bytes.len();
            }
            return;
        }
        let direction = self.directions.entry(key).or_default();
        self.total -= direction.bytes.len();
        if piece.missing > 0 {
            let missing = usize::try_from(piece.missing).unwrap_or(usize::MAX);
            if !direction.bytes.is_empty() || direction.skip < missing {
                *direction = Direction::default();
            } else {
                direction.skip -= missing;
            }
        }
        let skip = direction.skip.min(piece.bytes.len());
        direction.skip -= skip;
        direction.bytes.extend_from_slice(&piece.bytes[skip..]);
        direction.cut(&mut self.counters, give);
        if self.total + direction.bytes.len() > TOTAL_LIMIT {
            self.counters.long += 1;
            *direction = Direction::default();
        }
        match direction.bytes.is_empty() && direction.skip == 0 {
            true => drop(self.directions.remove(&key)),
            false => self.total += direction.bytes.len(),
        }
    }

    /// Bytes held.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.total
    }
}

impl Direction {
    fn cut(&mut self, counters: &mut FramingCounters, give: &mut dyn FnMut(&Message<'_>)) {
        let mut at = 0;
        loop {
            let rest = &self.bytes[at..];
            let blank = rest.len() - skip_blank_lines(rest).len();
            at += blank;
            self.searched = self.searched.saturating_sub(blank);
            let left = self.bytes.len() - at;
            let used = match &self.bytes[at..] {
                [] => break,
                // A frame of media between the messages.
                [b'$', _, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
                [b'$', ..] => break,
                _ => match self.message(at, counters, give) {
                    Some(used) => used,
                    None => break,
                },
            };
            self.searched = 0;
            if used > left {
                self.skip = used - left;
                at = self.bytes.len();
                break;
            }
            at += used;
        }
        self.bytes.drain(..at.min(self.bytes.len()));
    }

    /// Reads the message or the useless line at an offset; returns its length, `None` if it is not complete.
    fn message(
        &mut self,
        at: usize,
        counters: &mut FramingCounters,
        give: &mut dyn FnMut(&Message<'_>),
    ) -> Option<usize> {
        let rest = &self.bytes[at..];
        let too_long = rest.len() > MESSAGE_LIMIT;
        let end = rest.iter().position(|&byte| byte == b'\n');
        let Some(end) = end else {
            // Not text: no start line is this long.
            let useless = rest.len() > 4_096;
            counters.skipped_bytes += if useless { rest.len() as u64 } else { 0 };
            return useless.then_some(rest.len());
        };
        let (start, after) = line(rest);
        if !is_start(start) {
            counters.skipped_bytes += end as u64 + 1;
            return Some(end + 1);
        }
        // The end of the header is up to three bytes before what has been searched.
        let from = self.searched.saturating_sub(4).min(after.len());
        let from = match from {
            0 => 0,
            from => {
                from + after[from..].iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1)
            }
        };
        let fields = end_of_fields(&after[from..]).map(|len| from + len);
        let Some(fields) = fields else {
            self.searched = if from == 0 { 0 } else { after.len() };
            counters.long += u64::from(too_long);
            return too_long.then_some(rest.len());
        };
        let head = end + 1 + fields;
        let message = Message { start, fields: &after[..fields], body: &[] };
        let length = message.field(&["content-length", "l"]);
        let length = length.and_then(|length| number(&length)).unwrap_or(0) as usize;
        if length > MESSAGE_LIMIT {
            counters.long += 1;
            give(&message);
            return Some(head + length);
        }
        let body = rest.get(head..head + length)?;
        give(&Message { body, ..message });
        Some(head + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pieces: &[(&[u8], u64)]) -> (Vec<String>, Framing) {
        let (mut framing, mut out) = (Framing::default(), Vec::new());
        for (bytes, missing) in pieces {
            let piece = Piece {
                flow: 1,
                connection: 1,
                forward: true,
                missing: *missing,
                offset: 0,
                bytes,
            };
            framing.piece(&piece, &mut |message| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                out.push(text(message.start) + "|" + &text(message.body));
            });
        }
        (out, framing)
    }

    const TWO: &[u8] =
        b"\r\n\r\nINVITE sip:a SIP/2.0\r\nl: 4\r\n\r\nbodySIP/2.0 200 OK\nContent-Length : 2\n\nab";

    #[test]
    fn messages_may_be_cut_anywhere() {
        let expected = ["INVITE sip:a SIP/2.0|body", "SIP/2.0 200 OK|ab"];
        for size in 1..=TWO.len() {
            let pieces: Vec<_> = TWO.chunks(size).map(|piece| (piece, 0)).collect();
            let (out, framing) = run(&pieces);
            assert_eq!(
                (out.as_slice(), framing.held_bytes()),
                (&expected.map(String::from)[..], 0)
            );
        }
    }

    #[test]
    fn media_between_messages_and_other_bytes_are_skipped() {
        let mut bytes =
            b"$\x00\x00\x05INVITgarbage\nOPTIONS rtsp://a RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_vec();
        bytes.extend_from_slice(&[b'$', 1, 1, 0]);
        bytes.extend_from_slice(&[7; 256]);
        bytes.extend_from_slice(b"RTSP/1.0 200 OK\r\n\r\n");
        for size in [1, 3, 100, bytes.len()] {
            let pieces: Vec<_> = bytes.chunks(size).map(|piece| (piece, 0)).collect();
            assert_eq!(
                run(&pieces).0,
                ["OPTIONS rtsp://a RTSP/1.0|", "RTSP/1.0 200 OK|"],
                "{size}"
            );
        }
    }

    #[test]
    fn lengths_that_lie_are_bounded() {
        let head = b"INVITE sip:a SIP/2.0\r\nContent-Length: 999999999\r\n\r\n";
        let (out, framing) = run(&[(head, 0), (&[b'x'; 100_000], 0)]);
        assert_eq!((out.len(), framing.held_bytes(), framing.counters.long), (1, 0, 1));
        let endless = [&b"INVITE sip:a SIP/2.0\r\n"[..], &b"a: b\r\n".repeat(20_000)].concat();
        let (out, framing) = run(&[(&endless, 0)]);
        assert_eq!((out.len(), framing.held_bytes(), framing.counters.long), (0, 0, 1));
        let binary = [1u8; 5_000];
        assert_eq!(run(&[(&binary, 0)]).1.held_bytes(), 0);
        // After a gap, the next message is found.
        let half = b"INVITE sip:a SIP/2.0\r\nContent-Length: 100\r\n\r\nabc";
        let (out, _) = run(&[(half, 0), (b"def\r\nBYE sip:a SIP/2.0\r\n\r\n", 50)]);
        assert_eq!(out, ["BYE sip:a SIP/2.0|"]);
    }

    #[test]
    fn fields_are_found_by_either_name_and_unfolded() {
        let message =
            b"SIP/2.0 183 Progress\r\nVia: x\r\ni : a\r\n b@c\r\nCSEQ: 7 INVITE\r\n\r\nv=0";
        let message = Message::of(message).unwrap();
        assert_eq!(message.field(&["call-id", "i"]).unwrap().as_ref(), b"a b@c");
        assert_eq!(message.field(&["cseq"]).unwrap().as_ref(), b"7 INVITE");
        assert_eq!(
            (message.status(), message.method(), message.body),
            (Some(183), None, &b"v=0"[..])
        );
        let cut = Message::of(b"INVITE sip:a SIP/2.0\r\nCall-ID: x\r\nCont").unwrap();
        assert_eq!((cut.method(), cut.body), (Some(&b"INVITE"[..]), &b""[..]));
        assert!(Message::of(b"hello\r\n").is_none() && Message::of(b"").is_none());
    }
}
