//! Bodies: with a length, in chunks, or up to the end of the connection; plain or compressed.
//!
//! At most [`MAX_BODY`] bytes are kept and as many decoded, whatever a body claims; the rest is only counted. So a
//! compressed bomb costs no more than any other body.

use super::MAX_BODY;
use std::io::Read;

/// Longest line with the length of a chunk.
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
    /// Not.
    Plain,
    /// By gzip.
    Gzip,
    /// By deflate, with or without the header of zlib.
    Deflate,
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
    encoding: Encoding,
    decoded: Option<Vec<u8>>,
    /// The message with this body was given.
    pub given: bool,
}

impl Body {
    /// A body that begins.
    pub fn new(framing: Framing, encoding: Encoding) -> Body {
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
            encoding,
            decoded: None,
            given: false,
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

    /// True if its form is wrong.
    pub fn is_damaged(&self) -> bool {
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
        if self.line.len() + count > MAX_LINE {
            self.state = State::Damaged;
            return count;
        }
        self.line.extend_from_slice(&bytes[..count]);
        if end.is_none() {
            return count;
        }
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii();
        self.state = match self.state {
            State::Trailer if line.is_empty() => State::Over,
            State::Trailer => State::Trailer,
            State::AfterChunk if line.is_empty() => State::Line,
            State::Line => {
                let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
                let text = std::str::from_utf8(&line[..digits]).unwrap_or_default();
                match u64::from_str_radix(text, 16) {
                    Ok(0) => State::Trailer,
                    Ok(len) => State::Data(len),
                    Err(_) => State::Damaged,
                }
            }
            _ => State::Damaged,
        };
        count
    }

    /// The body without its compression; if that is damaged, what could be decoded of it.
    pub fn decoded(&mut self) -> &[u8] {
        if self.encoding == Encoding::Plain {
            return &self.kept;
        }
        let (kept, encoding) = (&self.kept, self.encoding);
        self.decoded.get_or_insert_with(|| {
            let decoded = match encoding {
                Encoding::Gzip => read(flate2::read::GzDecoder::new(&**kept)),
                Encoding::Plain | Encoding::Deflate => {
                    match read(flate2::read::ZlibDecoder::new(&**kept)) {
                        whole if !whole.is_empty() => whole,
                        _ => read(flate2::read::DeflateDecoder::new(&**kept)),
                    }
                }
            };
            if decoded.is_empty() { kept.clone() } else { decoded }
        })
    }
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
