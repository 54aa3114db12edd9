//! HTTP/1: requests and responses of a connection.
//!
//! A head becomes a message as soon as it is complete; if a body follows, a second message with all buffers is given
//! when the body is complete, has reached [`MAX_BODY`], or its direction ends. Source: RFC 9112; the buffers are those
//! of Suricata's keywords. A direction that is not HTTP any more (an upgrade, a tunnel, a gap in a head) is given up;
//! after a line that begins no message, or a chunk without a length, the next line that begins one is looked for.

mod body;
mod head;
mod uri;

use super::{Give, Message};
use crate::buffer::{Application, Buffer};
use body::{Body, Framing};
use head::{Head, is_important, split_head};
use std::collections::VecDeque;

/// Bytes of a head that are kept; of the rest, only the fields that a buffer or the length of the body needs.
pub const MAX_HEAD: usize = 64 << 10;
/// Bytes of those fields.
const MAX_IMPORTANT: usize = 16 << 10;
/// Bytes of a line that are kept where heads are not.
const MAX_LINE: usize = 4096;
/// Bytes of a body that are judged.
pub const MAX_BODY: usize = 100 << 10;
/// Most requests that wait for their responses.
const MAX_WAITING: usize = 256;

/// Methods by which a connection is recognised.
const METHODS: &[&str] = &[
    "GET",
    "POST",
    "HEAD",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "CHECKOUT",
    "UNCHECKOUT",
    "CHECKIN",
    "UPDATE",
    "LABEL",
    "REPORT",
    "MKWORKSPACE",
    "MKACTIVITY",
    "BASELINE-CONTROL",
    "MERGE",
    "SEARCH",
    "ACL",
    "INVALID",
    "VERSION-CONTROL",
    "BCOPY",
    "BMOVE",
    "BDELETE",
    "BPROPFIND",
    "BPROPPATCH",
    "NOTIFY",
    "POLL",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
];

/// Kind of the request that a response answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Head,
    Connect,
    Other,
}

/// The messages of a connection.
#[derive(Debug, Default)]
pub struct Http {
    sides: [Side; 2],
    asked: VecDeque<Asked>,
}

#[derive(Debug, Default)]
struct Side {
    head: Vec<u8>,
    /// Place up to which no end of the head was found.
    seen: usize,
    /// The head is longer than [`MAX_HEAD`]: the line that is being read after that.
    after: Option<Line>,
    /// The line that is being read while no message is known to begin.
    lost: Option<Line>,
    body: Option<(Head, Body)>,
    ended: bool,
}

/// A line that is being read.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    /// Place in the head where its first part is, too.
    begun: Option<usize>,
}

impl Line {
    /// Takes bytes up to the end of the line; returns those after it, and the line if it is complete.
    fn take<'b>(&mut self, bytes: &'b [u8]) -> (&'b [u8], Option<Vec<u8>>) {
        let end = memchr::memchr(b'\n', bytes);
        let count = end.map_or(bytes.len(), |end| end + 1);
        let room = MAX_LINE - self.bytes.len().min(MAX_LINE);
        self.bytes.extend_from_slice(&bytes[..count.min(room)]);
        if count > room && end.is_some() {
            self.bytes.extend_from_slice(b"\r\n");
        }
        (&bytes[count..], end.map(|_| std::mem::take(&mut self.bytes)))
    }
}

/// True if a direction begins with a request or a response, none if it is too short to tell.
pub fn begins(bytes: &[u8], to_server: bool) -> Option<bool> {
    let starts = |text: &[u8]| {
        let common = text.len().min(bytes.len());
        let is_same = match to_server {
            true => text[..common] == bytes[..common],
            false => text[..common].eq_ignore_ascii_case(&bytes[..common]),
        };
        is_same.then_some(common == text.len())
    };
    let all: Vec<bool> = match to_server {
        true => METHODS
            .iter()
            .filter_map(|method| starts(&[method.as_bytes(), b" "].concat()))
            .collect(),
        false => {
            [&b"HTTP/1.0 "[..], b"HTTP/1.1 ", b"HTTP/0.9 "].into_iter().filter_map(starts).collect()
        }
    };
    match all.iter().find(|whole| **whole) {
        Some(_) => Some(true),
        None if all.is_empty() => Some(false),
        None => None,
    }
}

impl Http {
    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        let side = |side: &Side| {
            let body = side.body.as_ref().map_or(0, |(head, body)| head.held() + body.held());
            let lines = [&side.after, &side.lost];
            let lines = lines.into_iter().flatten().map(|line| line.bytes.capacity());
            side.head.capacity() + body + lines.sum::<usize>()
        };
        self.sides.iter().map(side).sum()
    }

    /// Takes the next bytes of a direction.
    pub fn bytes(&mut self, to_server: bool, missing: u64, bytes: &[u8], give: Give<'_>) {
        let at = usize::from(!to_server);
        if missing > 0 {
            self.gap(to_server, missing, give);
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.sides[at].ended {
            rest = self.next(to_server, rest, give);
        }
    }

    /// Lost bytes inside a body of known length are skipped; anywhere else the direction is given up.
    fn gap(&mut self, to_server: bool, missing: u64, give: Give<'_>) {
        let side = &mut self.sides[usize::from(!to_server)];
        let skipped = side.body.as_mut().is_some_and(|(_, body)| body.skip(missing));
        if !skipped && !side.ended {
            self.end(to_server, give);
            self.sides[usize::from(!to_server)].ended = true;
        }
    }

    /// Takes bytes of a head; returns those after it.
    fn head<'b>(&mut self, to_server: bool, bytes: &'b [u8], give: Give<'_>) -> &'b [u8] {
        let side = &mut self.sides[usize::from(!to_server)];
        let before = side.head.len();
        side.head.extend_from_slice(&bytes[..bytes.len().min(MAX_HEAD + 1 - before.min(MAX_HEAD))]);
        if before == 0 {
            // Empty lines before a message do not belong to it.
            let blank = side.head.iter().take_while(|byte| b"\r\n".contains(byte)).count();
            if blank > 0 {
                side.head.clear();
                return &bytes[blank..];
            }
        }
        let Some(len) = split_head(&side.head, side.seen) else {
            side.seen = side.head.len().saturating_sub(3);
            if side.head.len() <= MAX_HEAD {
                return &[];
            }
            let start = memchr::memrchr(b'\n', &side.head).map_or(0, |end| end + 1);
            let line = &side.head[start..];
            let bytes_of = line[..line.len().min(MAX_LINE)].to_vec();
            side.after = Some(Line { begun: Some(start), bytes: bytes_of });
            return &bytes[bytes.len().min(MAX_HEAD + 1 - before)..];
        };
        let text = std::mem::take(&mut side.head);
        side.seen = 0;
        match Head::read(&text[..len], to_server) {
            Some(head) => self.begin(to_server, head, false, give),
            None => {
                side.lost = Some(Line::default());
                // The first line is none of a message; a later one may be.
                let line = memchr::memchr(b'\n', &text).map_or(len, |end| end + 1);
                let mut rest = &text[line..len];
                while !rest.is_empty() && !self.sides[usize::from(!to_server)].ended {
                    rest = self.next(to_server, rest, give);
                }
            }
        }
        &bytes[len - before..]
    }

    /// Takes bytes of a head after the first [`MAX_HEAD`], of which only the important fields are kept; returns those
    /// after the head.
    fn after<'b>(&mut self, to_server: bool, bytes: &'b [u8], give: Give<'_>) -> &'b [u8] {
        let side = &mut self.sides[usize::from(!to_server)];
        let Some(after) = &mut side.after else { return bytes };
        let (rest, line) = after.take(bytes);
        let Some(line) = line else { return rest };
        let begun = after.begun.take();
        let is_kept = is_important(&line) && side.head.len() < MAX_HEAD + MAX_IMPORTANT;
        match begun {
            // The line of which the head has the first part.
            Some(start) if is_kept && start > 0 => {
                side.head.truncate(start);
                side.head.extend_from_slice(&line);
            }
            Some(_) if !line.trim_ascii().is_empty() => side.head.extend_from_slice(b"\r\n"),
            _ if line.trim_ascii().is_empty() => {
                side.after = None;
                side.seen = 0;
                side.head.extend_from_slice(b"\r\n");
                let text = std::mem::take(&mut side.head);
                match Head::read(&text, to_server) {
                    Some(head) => self.begin(to_server, head, true, give),
                    None => side.lost = Some(Line::default()),
                }
            }
            _ if is_kept => side.head.extend_from_slice(&line),
            _ => {}
        }
        rest
    }

    /// Looks for a line that begins a message; returns the bytes after those that are read.
    fn search<'b>(&mut self, to_server: bool, bytes: &'b [u8]) -> &'b [u8] {
        let side = &mut self.sides[usize::from(!to_server)];
        let Some(lost) = &mut side.lost else { return bytes };
        let (rest, line) = lost.take(bytes);
        if let Some(line) = line
            && begins(&line, to_server) == Some(true)
            && (!to_server
                || line.len() > MAX_LINE
                || memchr::memmem::find(&line, b" HTTP/").is_some())
        {
            side.lost = None;
            side.head = line;
        }
        rest
    }

    /// Takes the next bytes of whatever is expected; returns those after it.
    fn next<'b>(&mut self, to_server: bool, bytes: &'b [u8], give: Give<'_>) -> &'b [u8] {
        let side = &self.sides[usize::from(!to_server)];
        match (&side.body, &side.after, &side.lost) {
            (Some(_), ..) => self.body(to_server, bytes, give),
            (_, Some(_), _) => self.after(to_server, bytes, give),
            (_, _, Some(_)) => self.search(to_server, bytes),
            _ => self.head(to_server, bytes, give),
        }
    }

    /// Gives the message of a head, and prepares its body.
    fn begin(&mut self, to_server: bool, head: Head, is_cut: bool, give: Give<'_>) {
        let framing = match to_server {
            true => {
                let asked = match head.method() {
                    b"HEAD" => Asked::Head,
                    b"CONNECT" => Asked::Connect,
                    _ => Asked::Other,
                };
                if self.asked.len() < MAX_WAITING {
                    self.asked.push_back(asked);
                }
                head.framing(None)
            }
            false => {
                let status = head.status();
                let asked = match status {
                    // An interim response; the answer is still to come.
                    Some(100 | 102 | 103) => self.asked.front().copied(),
                    _ => self.asked.pop_front(),
                };
                let tunnel =
                    asked == Some(Asked::Connect) && status.is_some_and(|status| status / 100 == 2);
                if status == Some(101) || tunnel {
                    self.sides.iter_mut().for_each(|side| side.ended = true);
                }
                head.framing(Some(asked == Some(Asked::Head)))
            }
        };
        let complete = framing == Framing::Len(0);
        give(Message { is_cut, ..message(to_server, complete, &head, None) });
        if !complete {
            let body = Body::new(to_server, framing, head.encodings());
            self.sides[usize::from(!to_server)].body = Some((head, body));
        }
    }

    /// Takes bytes of a body; returns those after it.
    fn body<'b>(&mut self, to_server: bool, bytes: &'b [u8], give: Give<'_>) -> &'b [u8] {
        let side = &mut self.sides[usize::from(!to_server)];
        let Some((head, body)) = &mut side.body else { return bytes };
        let taken = body.take(bytes);
        if body.is_full() && !std::mem::replace(&mut body.given, true) {
            give(message(to_server, true, head, Some(body)));
        }
        let is_lost = body.is_lost();
        if body.is_over() || is_lost {
            if !body.given {
                give(message(to_server, true, head, Some(body)));
            }
            side.body = None;
            side.lost = is_lost.then(Line::default);
        }
        &bytes[taken..]
    }

    /// Ends a direction: gives the message with an incomplete head or body.
    pub fn end(&mut self, to_server: bool, give: Give<'_>) {
        let side = &mut self.sides[usize::from(!to_server)];
        let mut head = std::mem::take(&mut side.head);
        let is_cut = side.after.take().is_some();
        if is_cut {
            head.extend_from_slice(b"\r\n");
        }
        if !side.ended
            && !head.is_empty()
            && side.body.is_none()
            && let Some(head) = Head::read(&head, to_server)
        {
            give(Message { is_cut, ..message(to_server, true, &head, None) });
        }
        if let Some((head, mut body)) = side.body.take()
            && !body.given
        {
            body.finish();
            give(message(to_server, true, &head, Some(&mut body)));
        }
    }
}

/// A message with the buffers of a head and a body.
fn message(to_server: bool, complete: bool, head: &Head, body: Option<&mut Body>) -> Message {
    let mut buffers = head.buffers(to_server);
    let (mut is_encoded, mut is_damaged) = (false, false);
    if let Some(body) = body {
        let bytes = body.decoded().to_vec();
        (is_encoded, is_damaged) = (body.is_encoded, body.is_damaged);
        add_body(&mut buffers, to_server, head, &bytes);
        if let Some(bytes) = body.without_chunks().filter(|_| !to_server) {
            add_body(&mut buffers, to_server, head, &bytes);
        }
    }
    let whole = Message::whole(Application::Http, to_server, buffers);
    Message { complete, is_encoded, is_damaged, ..whole }
}

/// Adds the buffers of a body.
fn add_body(buffers: &mut Vec<(Buffer, Vec<u8>)>, to_server: bool, head: &Head, body: &[u8]) {
    if !body.is_empty() {
        match to_server {
            true => {
                buffers.push((Buffer::HttpRequestBody, body.to_vec()));
                let files =
                    head.files(body).into_iter().map(|file| (Buffer::FileData, file.to_vec()));
                buffers.extend(files);
            }
            false => {
                buffers.push((Buffer::HttpResponseBody, body.to_vec()));
                buffers.push((Buffer::FileData, body.to_vec()));
            }
        }
    }
}
