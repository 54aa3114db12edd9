//! Bodies: with a length, in chunks, or up to the end of the connection; plain or compressed.
//!
//! At most [`MAX_BODY`] bytes are kept and as many decoded, whatever a body claims; the rest is only counted. So a
//! compressed bomb costs no more than any other body.

use super::MAX_BODY;
use brotli_decompressor::{BrotliDecompressStream, BrotliState, StandardAlloc};
use std::io::Read;

/// Most compressions of one body, as in Suricata.
pub const MAX_LAYERS: usize = 2;
/// Bytes of a line with the length of a chunk that are read.
const MAX_LINE: usize = 1024;

/// The rule by which the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After this number of bytes.
    Len(u64),
    /// After the last chunk.
    Chunks,
    /// With the connection.
    UntilEnd,
}

/// Compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// By gzip.
    Gzip,
    /// By deflate, with or without the header of zlib.
    Deflate,
    /// By brotli.
    Brotli,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// This number of bytes is left of the body, or of its chunk.
    Data(u64),
    /// The line with the length of a chunk.
    Line,
    /// The end of the line after a chunk.
    AfterChunk,
    /// Fields after the last chunk.
    Trailer,
    UntilEnd,
    Over,
    Damaged,
}

/// A body that is being read.
#[derive(Debug)]
pub struct Body {
    state: State,
    in_chunks: bool,
    line: Vec<u8>,
    kept: Vec<u8>,
    /// The compressions, the last one first; none if one of them is not known.
    encodings: Option<Vec<Encoding>>,
    decoded: Option<Vec<u8>>,
    /// A compression could not be undone.
    pub is_encoded: bool,
    /// The length of a chunk is wrong.
    pub is_damaged: bool,
    /// The message with this body was given.
    pub given: bool,
    to_server: bool,
}

impl Body {
    /// A body that begins.
    pub fn new(to_server: bool, framing: Framing, encodings: Option<Vec<Encoding>>) -> Body {
        let state = match framing {
            Framing::Len(len) => State::Data(len),
            Framing::Chunks => State::Line,
            Framing::UntilEnd => State::UntilEnd,
        };
        Body {
            state,
            in_chunks: framing == Framing::Chunks,
            line: Vec::new(),
            kept: Vec::new(),
            is_encoded: encodings.is_none(),
            encodings,
            decoded: None,
            is_damaged: false,
            given: false,
            to_server,
        }
    }

    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.kept.capacity() + self.decoded.as_ref().map_or(0, Vec::capacity)
    }

    /// True if the body is complete.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// True if the place after the body is not known.
    pub fn is_lost(&self) -> bool {
        self.state == State::Damaged
    }

    /// True if no more of it is judged.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= MAX_BODY
    }

    /// Skips lost bytes; false if the place after them is not known.
    pub fn skip(&mut self, missing: u64) -> bool {
        match &mut self.state {
            State::UntilEnd => true,
            State::Data(left) if *left >= missing => {
                *left -= missing;
                if *left == 0 {
                    self.state = if self.in_chunks { State::AfterChunk } else { State::Over };
                }
                true
            }
            _ => false,
        }
    }

    /// Takes bytes; returns how many belong to the body.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            at += match self.state {
                State::Over | State::Damaged => break,
                State::UntilEnd => {
                    self.keep(rest);
                    rest.len()
                }
                State::Data(left) => {
                    let count = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.keep(&rest[..count]);
                    self.state = match left - count as u64 {
                        0 if self.in_chunks => State::AfterChunk,
                        0 => State::Over,
                        left => State::Data(left),
                    };
                    count
                }
                State::Line | State::AfterChunk | State::Trailer => self.line_of(rest),
            };
        }
        at
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_BODY - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Takes bytes of a line between chunks.
    fn line_of(&mut self, bytes: &[u8]) -> usize {
        let end = memchr::memchr(b'\n', bytes);
        let count = end.map_or(bytes.len(), |end| end + 1);
        if self.state == State::Line && !self.may_be_len(&bytes[..count]) {
            let line = std::mem::take(&mut self.line);
            self.state = self.lose(&line);
            return 0;
        }
        // The rest of a long line means nothing.
        let kept = count.min(MAX_LINE - self.line.len());
        self.line.extend_from_slice(&bytes[..kept]);
        if end.is_none() {
            return count;
        }
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        self.state = match self.state {
            State::Trailer if text.is_empty() => State::Over,
            State::Trailer => State::Trailer,
            State::Line if text.is_empty() => State::Line,
            State::Line => {
                let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
                match u64::from_str_radix(std::str::from_utf8(&text[..digits]).unwrap_or("x"), 16) {
                    Ok(0) => State::Trailer,
                    Ok(len) => State::Data(len),
                    Err(_) => self.lose(&line),
                }
            }
            // The end of a chunk, whatever is before it.
            _ => State::Line,
        };
        count
    }

    /// True if the next bytes of a line may continue one with the length of a chunk.
    fn may_be_len(&self, bytes: &[u8]) -> bool {
        let mut text = self.line.iter().chain(bytes).skip_while(|byte| byte.is_ascii_whitespace());
        let is_len = text.next().is_none_or(u8::is_ascii_hexdigit);
        // A long line may have other things after the length.
        is_len && (self.line.len() < MAX_LINE || !text.all(u8::is_ascii_hexdigit))
    }

    /// Ends the body: what looked like the length of a chunk may have been all of it.
    pub fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        if self.state == State::Line && !self.to_server && !line.trim_ascii().is_empty() {
            self.state = self.lose(&line);
        }
    }

    /// The body without chunks that the head does not announce, if it is nothing but chunks: some clients take other
    /// fields for the announcement.
    pub fn without_chunks(&mut self) -> Option<Vec<u8>> {
        if self.in_chunks || !self.kept.first()?.is_ascii_hexdigit() {
            return None;
        }
        let framing = Framing::Chunks;
        let mut inner = Body::new(self.to_server, framing, self.encodings.clone());
        inner.take(&self.kept);
        let is_whole = inner.is_over() || (self.is_full() && inner.kept.len() > MAX_BODY / 2);
        (is_whole && !inner.is_damaged).then(|| inner.decoded().to_vec())
    }

    /// A line without a length: a client reads what follows as the body, a server refuses the request.
    fn lose(&mut self, line: &[u8]) -> State {
        self.is_damaged = true;
        if self.to_server {
            return State::Damaged;
        }
        self.keep(line);
        State::UntilEnd
    }

    /// The body without its compressions; if one is damaged, what could be decoded of it.
    pub fn decoded(&mut self) -> &[u8] {
        let Some(encodings) = self.encodings.as_ref().filter(|all| !all.is_empty()) else {
            return &self.kept;
        };
        if self.decoded.is_none() {
            let mut whole = self.kept.clone();
            for encoding in encodings {
                let decoded = encoding.undo(&whole);
                if decoded.is_empty() && !whole.is_empty() {
                    self.is_encoded = true;
                    break;
                }
                whole = decoded;
            }
            self.decoded = Some(whole);
        }
        self.decoded.as_deref().unwrap_or_default()
    }
}

impl Encoding {
    /// Decompresses bytes, up to the limit and up to the first error.
    fn undo(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            // Clients look at the bytes, too.
            Encoding::Gzip | Encoding::Deflate if bytes.starts_with(&GZIP) => gzip(bytes),
            Encoding::Gzip | Encoding::Deflate if begins_zlib(bytes) => {
                read(flate2::read::ZlibDecoder::new(bytes))
            }
            Encoding::Gzip => Vec::new(),
            Encoding::Deflate => read(flate2::read::DeflateDecoder::new(bytes)),
            Encoding::Brotli => brotli(bytes),
        }
    }
}

/// The first bytes of gzip, with deflate as its compression.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
/// Most parts of a gzip, each with a header.
const MAX_MEMBERS: usize = 64;

/// True if the two bytes of zlib's header are right.
fn begins_zlib(bytes: &[u8]) -> bool {
    let &[first, second, ..] = bytes else { return false };
    first & 0xf == 8 && u16::from_be_bytes([first, second]).is_multiple_of(31)
}

/// Decompresses gzip up to the limit, as forgiving as clients are: checksums and unknown flags are not looked at.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    for _ in 0..MAX_MEMBERS {
        let Some(start) = gzip_header(rest) else { break };
        let mut inner = flate2::read::DeflateDecoder::new(&rest[start..]);
        out.extend_from_slice(&read(&mut inner));
        out.truncate(MAX_BODY);
        // The sum and the length follow.
        let end = start + usize::try_from(inner.total_in()).unwrap_or(usize::MAX);
        rest = rest.get(end.saturating_add(8)..).unwrap_or_default();
        if out.len() == MAX_BODY || !rest.starts_with(&GZIP) {
            break;
        }
    }
    out
}

/// Length of a header of gzip (RFC 1952).
fn gzip_header(bytes: &[u8]) -> Option<usize> {
    let flags = *bytes.get(3)?;
    let mut at = 10;
    if flags & 4 != 0 {
        let len = bytes.get(at..at + 2)?;
        at += 2 + usize::from(u16::from_le_bytes([len[0], len[1]]));
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            at += 1 + memchr::memchr(0, bytes.get(at..)?)?;
        }
    }
    at += if flags & 2 != 0 { 2 } else { 0 };
    (at <= bytes.len()).then_some(at)
}

/// Decompresses brotli up to the limit. A window has at most 16 MiB, as in browsers; larger ones are an error.
fn brotli(bytes: &[u8]) -> Vec<u8> {
    let alloc = StandardAlloc::default;
    let mut state = BrotliState::new_strict(alloc(), alloc(), alloc());
    let mut out = vec![0; MAX_BODY];
    let (mut left, mut at, mut room, mut end, mut total) = (bytes.len(), 0, MAX_BODY, 0, 0);
    // Whether there is more does not matter: what was decoded is judged.
    let _ = BrotliDecompressStream(
        &mut left, &mut at, bytes, &mut room, &mut end, &mut out, &mut total, &mut state,
    );
    out.truncate(end);
    out
}

/// Reads up to the limit, and up to the first error.
fn read(mut from: impl Read) -> Vec<u8> {
    let mut out = Vec::new();
    let mut room = [0; 8192];
    while out.len() < MAX_BODY
        && let Ok(count @ 1..) = from.read(&mut room)
    {
        out.extend_from_slice(&room[..count.min(MAX_BODY - out.len())]);
    }
    out
}
