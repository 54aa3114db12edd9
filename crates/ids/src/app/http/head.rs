//! The head of a request or a response: its first line, its fields, and the buffers made of them.

use super::body::{Encoding, Framing, MAX_LAYERS};
use super::uri::{Uri, normalise};
use crate::buffer::Buffer;
use std::collections::HashMap;

/// Fields of a head from which on a table finds the repeated ones.
const MANY_FIELDS: usize = 32;

/// Most parts of a form.
const MAX_PARTS: usize = 256;

/// A head.
#[derive(Debug)]
pub struct Head {
    /// First line and fields, with the empty line.
    text: Vec<u8>,
    /// First line, without its end.
    line: Vec<u8>,
    /// The three parts of the first line.
    parts: [Vec<u8>; 3],
    /// Fields in the order in which they come first; values of a repeated field are joined by a comma.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the first line with its end.
    line_len: usize,
}

/// Length of the head with its empty line, if that is there. The search begins at `from`.
pub fn split_head(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = memchr::memchr(b'\n', bytes.get(at..)?) {
        at += found + 1;
        match bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// Fields while they are read.
#[derive(Default)]
struct Fields {
    all: Vec<(Vec<u8>, Vec<u8>)>,
    /// Places of the names in small letters, if there are [`MANY_FIELDS`].
    places: HashMap<Vec<u8>, usize>,
}

impl Fields {
    /// Adds a line: a field, or the continuation of the last one.
    fn add(&mut self, line: &[u8]) {
        if let (Some(b' ' | b'\t'), Some((_, value))) = (line.first(), self.all.last_mut()) {
            if !value.is_empty() {
                value.push(b' ');
            }
            value.extend_from_slice(line.trim_ascii());
            return;
        }
        // A line without a colon has no name.
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii()),
            None => (&b""[..], line.trim_ascii()),
        };
        match self.place(name) {
            // Of two lengths, the first counts.
            Some(_) if name.eq_ignore_ascii_case(b"content-length") => {}
            Some(at) => {
                self.all[at].1.extend_from_slice(b", ");
                self.all[at].1.extend_from_slice(value);
            }
            None => {
                if self.all.len() >= MANY_FIELDS && !name.is_empty() {
                    self.places.insert(name.to_ascii_lowercase(), self.all.len());
                }
                self.all.push((name.to_vec(), value.to_vec()));
            }
        }
    }

    /// Place of the field with a name.
    fn place(&self, name: &[u8]) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let first = &self.all[..self.all.len().min(MANY_FIELDS)];
        let found = first.iter().position(|(own, _)| own.eq_ignore_ascii_case(name));
        found.or_else(|| match self.places.is_empty() {
            true => None,
            false => self.places.get(&name.to_ascii_lowercase()).copied(),
        })
    }
}

/// True if a line has a field that a buffer is made of, or that gives the length of the body.
pub fn is_important(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    let name = line[..colon].trim_ascii();
    let framing = ["transfer-encoding", "content-encoding", "host"];
    let names = FIELDS.iter().map(|(_, own, _)| *own).chain(framing);
    names.into_iter().any(|own| own.as_bytes().eq_ignore_ascii_case(name))
}

impl Head {
    /// Reads a head; none if it is no head of HTTP.
    pub fn read(text: &[u8], to_server: bool) -> Option<Head> {
        let line_len = memchr::memchr(b'\n', text)? + 1;
        let line = without_end(&text[..line_len]).to_vec();
        let parts = if to_server { request_line(&line)? } else { response_line(&line)? };
        let mut fields = Fields::default();
        for line in text[line_len..].split_inclusive(|byte| *byte == b'\n').map(without_end) {
            if line.is_empty() {
                break;
            }
            fields.add(line);
        }
        Some(Head { text: text.to_vec(), line, parts, fields: fields.all, line_len })
    }

    /// Bytes that it holds: the text, and its parts once more.
    pub fn held(&self) -> usize {
        2 * self.text.len()
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| &**value)
    }

    /// The method of a request.
    pub fn method(&self) -> &[u8] {
        &self.parts[0]
    }

    /// The status of a response, if it is a number.
    pub fn status(&self) -> Option<u16> {
        std::str::from_utf8(&self.parts[1]).ok()?.parse().ok()
    }

    /// Length of the body; `answers_head` is none for a request.
    pub fn framing(&self, answers_head: Option<bool>) -> Framing {
        let has = |name: &str, word: &[u8]| {
            let value = self.field(name).unwrap_or_default().to_ascii_lowercase();
            memchr::memmem::find(&value, word).is_some()
        };
        let is_interim = self.status().is_some_and(|status| status / 100 == 1);
        let is_bodiless = matches!(self.status(), Some(204 | 304));
        if answers_head == Some(true) || (answers_head.is_some() && (is_interim || is_bodiless)) {
            // With the last response of a connection, some servers send a body nevertheless.
            return match answers_head == Some(false) && is_bodiless && has("connection", b"close") {
                true => Framing::UntilEnd,
                false => Framing::Len(0),
            };
        }
        if has("transfer-encoding", b"chunked") {
            return Framing::Chunks;
        }
        // Junk around the number is read over, as Suricata does.
        let digits = self.field("content-length").map(|value| {
            let from = value.iter().position(u8::is_ascii_digit).unwrap_or(value.len());
            let count = value[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let digits = std::str::from_utf8(&value[from..from + count]).unwrap_or_default();
            if digits.is_empty() { 0 } else { digits.parse().unwrap_or(u64::MAX) }
        });
        let is_number = |value: &[u8]| value.iter().all(u8::is_ascii_digit);
        let is_clear = self.field("content-length").is_none_or(is_number);
        match (digits, answers_head) {
            // Nothing follows the last response of a connection.
            (Some(_), Some(_)) if !is_clear && has("connection", b"close") => Framing::UntilEnd,
            (Some(len), _) => Framing::Len(len),
            (None, None) => Framing::Len(0),
            (None, Some(_)) => Framing::UntilEnd,
        }
    }

    /// Compressions of the body, the last one first; none if one is not known, or there are more than
    /// [`MAX_LAYERS`].
    pub fn encodings(&self) -> Option<Vec<Encoding>> {
        let mut found = Vec::new();
        let field = |name| self.field(name).unwrap_or_default();
        let values = [field("transfer-encoding"), field("content-encoding")];
        for word in values.iter().flat_map(|value| value.split(|byte| *byte == b',').rev()) {
            match &*word.trim_ascii().to_ascii_lowercase() {
                b"" | b"identity" | b"chunked" => {}
                b"gzip" | b"x-gzip" => found.push(Encoding::Gzip),
                b"deflate" | b"x-deflate" => found.push(Encoding::Deflate),
                b"br" => found.push(Encoding::Brotli),
                _ => return None,
            }
        }
        (found.len() <= MAX_LAYERS).then_some(found)
    }

    /// The buffers of the head.
    pub fn buffers(&self, to_server: bool) -> Vec<(Buffer, Vec<u8>)> {
        let mut found = Vec::with_capacity(16);
        let mut add = |buffer, bytes: &[u8]| {
            if !bytes.is_empty() {
                found.push((buffer, bytes.to_vec()));
            }
        };
        let [first, second, third] = &self.parts;
        if to_server {
            add(Buffer::HttpMethod, first);
            add(Buffer::HttpRequestLine, &self.line);
            add(Buffer::HttpUriRaw, second);
            add(Buffer::HttpProtocol, third);
            let Uri { normalised, host } = normalise(second, first == b"CONNECT");
            add(Buffer::HttpUri, &normalised);
            let named = self.field("host").unwrap_or_default();
            let host = host.as_deref().unwrap_or(named);
            add(Buffer::HttpHostRaw, host);
            add(Buffer::HttpHost, &without_port(host).to_ascii_lowercase());
        } else {
            add(Buffer::HttpProtocol, first);
            add(Buffer::HttpStatusCode, second);
            add(Buffer::HttpStatusMessage, third);
            add(Buffer::HttpResponseLine, &self.line);
        }
        add(Buffer::HttpStart, &self.text);
        add(Buffer::HttpHeaderRaw, &self.text[self.line_len..]);
        add(Buffer::HttpHeader, &self.headers(to_server));
        add(Buffer::HttpHeaderNames, &self.names());
        let each = if to_server { Buffer::HttpRequestHeader } else { Buffer::HttpResponseHeader };
        let fields = self.fields.iter();
        found.extend(fields.map(|(name, value)| (each, [name, &b": "[..], value].concat())));
        for (buffer, name, directions) in FIELDS {
            if directions.is_none_or(|own| own == to_server)
                && let Some(value) = self.field(name)
            {
                // A field without a value is there.
                found.push((*buffer, value.to_vec()));
            }
        }
        found
    }

    /// The files in the body of a request: those of a form in parts, or the body as one file.
    pub fn files<'b>(&self, body: &'b [u8]) -> Vec<&'b [u8]> {
        let kind = self.field("content-type").unwrap_or_default();
        if !kind.to_ascii_lowercase().starts_with(b"multipart/form-data") {
            return vec![body];
        }
        let Some(at) = memchr::memmem::find(kind, b"boundary=") else { return Vec::new() };
        let boundary =
            kind[at + 9..].split(|byte| b"; ,".contains(byte)).next().unwrap_or_default();
        let boundary = boundary
            .strip_prefix(b"\"")
            .and_then(|text| text.strip_suffix(b"\""))
            .unwrap_or(boundary);
        let mark = [b"--", boundary].concat();
        let places: Vec<usize> = memchr::memmem::find_iter(body, &mark).take(MAX_PARTS).collect();
        let ends = places.iter().skip(1).copied().chain([body.len()]);
        let parts = places.iter().zip(ends).map(|(start, end)| &body[start + mark.len()..end]);
        parts.filter_map(file_of).collect()
    }

    /// All fields but cookies, one on a line.
    fn headers(&self, to_server: bool) -> Vec<u8> {
        let cookie = if to_server { "cookie" } else { "set-cookie" };
        let mut out = Vec::with_capacity(self.text.len());
        for (name, value) in
            self.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(cookie.as_bytes()))
        {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        out
    }

    fn names(&self) -> Vec<u8> {
        if self.fields.is_empty() {
            return Vec::new();
        }
        let mut out = b"\r\n".to_vec();
        for (name, _) in &self.fields {
            out.extend_from_slice(name);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

/// The file in a part of a form; none if the part has no name of a file.
fn file_of(part: &[u8]) -> Option<&[u8]> {
    let len = split_head(part, 0)?;
    let head = part[..len].to_ascii_lowercase();
    memchr::memmem::find(&head, b"filename=")?;
    let file = &part[len..];
    Some(file.strip_suffix(b"\r\n").or_else(|| file.strip_suffix(b"\n")).unwrap_or(file))
}

/// Buffers with the value of one field, and the direction in which they are there.
const FIELDS: &[(Buffer, &str, Option<bool>)] = &[
    (Buffer::HttpUserAgent, "user-agent", Some(true)),
    (Buffer::HttpCookie, "cookie", Some(true)),
    (Buffer::HttpCookie, "set-cookie", Some(false)),
    (Buffer::HttpReferer, "referer", Some(true)),
    (Buffer::HttpAccept, "accept", Some(true)),
    (Buffer::HttpAcceptEncoding, "accept-encoding", Some(true)),
    (Buffer::HttpAcceptLanguage, "accept-language", Some(true)),
    (Buffer::HttpConnection, "connection", None),
    (Buffer::HttpContentType, "content-type", None),
    (Buffer::HttpContentLength, "content-length", None),
    (Buffer::HttpServer, "server", Some(false)),
    (Buffer::HttpLocation, "location", Some(false)),
];

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A host without its port.
fn without_port(host: &[u8]) -> &[u8] {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|byte| *byte == b']').map(|at| at + 1),
        _ => host.iter().position(|byte| *byte == b':'),
    };
    &host[..end.unwrap_or(host.len())]
}

/// Method, URI and protocol. The URI may have spaces; HTTP/0.9 has no protocol.
fn request_line(line: &[u8]) -> Option<[Vec<u8>; 3]> {
    let is_space = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let end = line.iter().position(is_space)?;
    let (method, rest) = (&line[..end], line[end..].trim_ascii());
    if method.is_empty() || !method.iter().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let last = rest.iter().rposition(is_space).map_or(0, |at| at + 1);
    let (uri, protocol) = match rest[last..].starts_with(b"HTTP/") {
        true => (rest[..last].trim_ascii_end(), &rest[last..]),
        false => (rest, &rest[..0]),
    };
    Some([method.to_vec(), uri.to_vec(), protocol.to_vec()])
}

/// Protocol, status and reason.
fn response_line(line: &[u8]) -> Option<[Vec<u8>; 3]> {
    if !line.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/")) {
        return None;
    }
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let mut word = || words.next().unwrap_or_default().trim_ascii().to_vec();
    Some([word(), word(), word()])
}
