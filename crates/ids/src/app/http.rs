//! HTTP/1: requests and responses of a connection.
//!
//! A head becomes a message as soon as it is complete; if a body follows, a second message with all buffers is given
//! when the body is complete, has reached [`MAX_BODY`], or its direction ends. Source: RFC 9112; the buffers are those
//! of Suricata's keywords. A direction that is not HTTP any more (an upgrade, a tunnel, a gap in a head) is given up.

mod body;
mod head;
mod uri;

use super::{Give, Message};
use crate::buffer::{Application, Buffer};
use body::{Body, Framing};
use head::{Head, split_head};
use std::collections::VecDeque;

/// Longest head, in bytes.
pub const MAX_HEAD: usize = 64 << 10;
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
    body: Option<(Head, Body)>,
    ended: bool,
}

/// True if a direction begins with a request or a response, none if it is too short to tell.
pub fn begins(bytes: &[u8], to_server: bool) -> Option<bool> {
    let starts = |text: &[u8]| {
        let common = text.len().min(bytes.len());
        (text[..common] == bytes[..common]).then_some(common == text.len())
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
            side.head.capacity() + body
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
            rest = match self.sides[at].body {
                Some(_) => self.body(to_server, rest, give),
                None => self.head(to_server, rest, give),
            };
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
            side.ended |= side.head.len() > MAX_HEAD;
            return &[];
        };
        let text = std::mem::take(&mut side.head);
        side.seen = 0;
        let head = Head::read(&text[..len], to_server);
        let Some(head) = head else {
            side.ended = true;
            return &[];
        };
        self.begin(to_server, head, give);
        &bytes[len - before..]
    }

    /// Gives the message of a head, and prepares its body.
    fn begin(&mut self, to_server: bool, head: Head, give: Give<'_>) {
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
        give(message(to_server, complete, &head, None));
        if !complete {
            let body = Body::new(framing, head.encoding(to_server));
            self.sides[usize::from(!to_server)].body = Some((head, body));
        }
    }

    /// Takes bytes of a body; returns those after it.
    fn body<'b>(&mut self, to_server: bool, bytes: &'b [u8], give: Give<'_>) -> &'b [u8] {
        let side = &mut self.sides[usize::from(!to_server)];
        let Some((head, body)) = &mut side.body else { return bytes };
        let taken = body.take(bytes);
        if body.is_full() && !std::mem::replace(&mut body.given, true) {
            give(message(to_server, true, head, Some(body.decoded())));
        }
        if body.is_damaged() {
            side.ended = true;
        }
        if body.is_over() || side.ended {
            if !body.given {
                give(message(to_server, true, head, Some(body.decoded())));
            }
            side.body = None;
        }
        &bytes[taken..]
    }

    /// Ends a direction: gives the message with an incomplete head or body.
    pub fn end(&mut self, to_server: bool, give: Give<'_>) {
        let side = &mut self.sides[usize::from(!to_server)];
        let head = std::mem::take(&mut side.head);
        if !side.ended
            && side.body.is_none()
            && let Some(head) = Head::read(&head, to_server)
        {
            give(message(to_server, true, &head, None));
        }
        if let Some((head, mut body)) = side.body.take()
            && !body.given
        {
            give(message(to_server, true, &head, Some(body.decoded())));
        }
    }
}

/// A message with the buffers of a head and a body.
fn message(to_server: bool, complete: bool, head: &Head, body: Option<&[u8]>) -> Message {
    let mut buffers = head.buffers(to_server);
    if let Some(body) = body.filter(|body| !body.is_empty()) {
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
    Message { application: Application::Http, to_server, complete, buffers }
}
