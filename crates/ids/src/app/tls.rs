//! TLS: the server name of the ClientHello, and the certificates up to TLS 1.2. Source: RFC 8446, 5246, 6066.
//!
//! Handshake messages may be cut over records and records over pieces. After the first encrypted record of a
//! direction nothing is read there.

mod certificate;
mod hello;

pub use hello::Hello;

use super::{Facts, Give, Message};
use crate::buffer::{Application, Buffer};
use crate::digest;

/// Longest handshake message.
const MAX_HANDSHAKE: usize = 1 << 16;
/// Most certificates of a chain.
const MAX_CERTIFICATES: usize = 16;
const RECORD: usize = 5;
/// Fixed part of a hello in the form of SSL 2.0.
const OLD_HELLO: usize = 11;
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;

/// The handshake of a connection, to the server and to the client.
#[derive(Debug, Default)]
pub struct Tls([Side; 2]);

#[derive(Debug, Default)]
struct Side {
    records: Vec<u8>,
    handshake: Vec<u8>,
    /// Buffers of the hello, which its certificates have, too.
    hello: Vec<(Buffer, Vec<u8>)>,
    /// A hello in the form of SSL 2.0 would have been there.
    begun: bool,
    ended: bool,
}

/// True if a stream begins with a hello, none if it is too short to tell.
pub fn begins(bytes: &[u8]) -> Option<bool> {
    let fits = |at: usize, test: fn(u8) -> bool| bytes.get(at).map(|byte| test(*byte));
    let tests = [
        fits(0, |byte| byte == HANDSHAKE),
        fits(1, |byte| byte == 3),
        fits(2, |byte| byte <= 4),
        fits(RECORD, |byte| byte == CLIENT_HELLO || byte == SERVER_HELLO),
    ];
    if tests.contains(&Some(false)) { old_hello(bytes).map(|len| len.is_some()) } else { tests[3] }
}

/// Length of a hello of TLS in the form of SSL 2.0 (RFC 5246, appendix E.2) at the beginning of a stream; the inner
/// none if there is none, the outer if the bytes are too few to tell.
fn old_hello(bytes: &[u8]) -> Option<Option<usize>> {
    let starts = |at: usize, test: fn(u8) -> bool| bytes.get(at).is_none_or(|byte| test(*byte));
    if !(starts(0, |byte| byte & 0x80 != 0)
        && starts(2, |byte| byte == CLIENT_HELLO)
        && starts(3, |byte| byte == 3)
        && starts(4, |byte| byte <= 4))
    {
        return Some(None);
    }
    let head = bytes.get(..OLD_HELLO)?;
    let number = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let (len, ciphers, session, challenge) = (number(0) & 0x7fff, number(5), number(7), number(9));
    let is_whole = len == OLD_HELLO - 2 + ciphers + session + challenge;
    Some((is_whole && ciphers % 3 == 0 && (16..=32).contains(&challenge)).then_some(2 + len))
}

impl Tls {
    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.0.iter().map(|side| side.records.capacity() + side.handshake.capacity()).sum()
    }

    /// Takes the next bytes of a direction.
    pub fn bytes(&mut self, to_server: bool, missing: u64, bytes: &[u8], give: Give<'_>) {
        let side = &mut self.0[usize::from(!to_server)];
        side.ended |= missing > 0;
        if side.ended {
            return;
        }
        side.records.extend_from_slice(bytes);
        if to_server && !side.begun {
            match old_hello(&side.records) {
                None => return,
                Some(Some(len)) if side.records.len() < len => return,
                Some(Some(len)) => {
                    let version = side.records[3..5].to_vec();
                    give(message(true, vec![(Buffer::TlsVersion, version)]));
                    side.records.drain(..len);
                }
                Some(None) => {}
            }
            side.begun = true;
        }
        let mut taken = 0;
        while let Some(head) = side.records.get(taken..taken + RECORD) {
            let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
            let (kind, start) = (head[0], taken + RECORD);
            // An alert may come between; what follows another kind of record is encrypted.
            side.ended |= kind != HANDSHAKE && kind != ALERT;
            let Some(record) = side.records.get(start..start + len) else { break };
            if kind == HANDSHAKE {
                side.handshake.extend_from_slice(record);
            }
            taken = start + len;
            if side.ended {
                break;
            }
        }
        side.records.drain(..taken);
        side.messages(to_server, give);
        if side.ended {
            *side = Side { ended: true, ..Side::default() };
        }
    }
}

impl Side {
    fn messages(&mut self, to_server: bool, give: Give<'_>) {
        let mut taken = 0;
        while let Some(head) = self.handshake.get(taken..taken + 4) {
            let len = usize::from(head[1]) << 16 | usize::from(head[2]) << 8 | usize::from(head[3]);
            if len > MAX_HANDSHAKE {
                self.ended = true;
                return;
            }
            let Some(body) = self.handshake.get(taken + 4..taken + 4 + len) else { break };
            match (head[0], to_server) {
                (CLIENT_HELLO, true) => give(hello(body, true)),
                (SERVER_HELLO, false) => {
                    let hello = hello(body, false);
                    self.hello.clone_from(&hello.buffers);
                    give(hello);
                }
                (CERTIFICATE, false) => give(certificates(body, self.hello.clone())),
                _ => {}
            }
            taken += 4 + len;
        }
        self.handshake.drain(..taken);
    }
}

fn message(to_server: bool, buffers: Vec<(Buffer, Vec<u8>)>) -> Message {
    Message::whole(Application::Tls, to_server, buffers)
}

/// The message of a hello; a damaged one has the server name only.
fn hello(body: &[u8], to_server: bool) -> Message {
    let name = server_name(body).filter(|_| to_server);
    let mut buffers: Vec<_> =
        name.map(|name| (Buffer::TlsServerName, name.to_vec())).into_iter().collect();
    let facts = Hello::of(body, to_server);
    if let (Facts::Hello(hello), Some(random)) = (&facts, body.get(2..2 + 32)) {
        buffers.extend([
            (Buffer::TlsVersion, hello.spoken().to_be_bytes().to_vec()),
            (Buffer::TlsRandom, random.to_vec()),
            (Buffer::TlsRandomTime, random[..4].to_vec()),
            (Buffer::TlsRandomBytes, random[4..].to_vec()),
        ]);
        let names = hello.applications.iter();
        buffers.extend(names.map(|name| (Buffer::TlsApplication, name.clone())));
        let text = hello.ja3(to_server);
        let hash = digest::hex(&digest::md5(text.as_bytes())).into_bytes();
        let kinds = match to_server {
            true => [Buffer::Ja3Hash, Buffer::Ja3String],
            false => [Buffer::Ja3ServerHash, Buffer::Ja3ServerString],
        };
        buffers.extend(kinds.into_iter().zip([hash, text.into_bytes()]));
        if to_server {
            buffers.push((Buffer::Ja4Hash, hello.ja4().into_bytes()));
        }
    }
    Message { facts, ..message(to_server, buffers) }
}

/// Takes a part with a length of `width` bytes before it.
fn part<'b>(bytes: &mut &'b [u8], width: usize) -> Option<&'b [u8]> {
    let head = bytes.get(..width)?;
    let len = head.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
    let (part, rest) = bytes[width..].split_at_checked(len)?;
    *bytes = rest;
    Some(part)
}

/// The name in the extension 0 of a ClientHello.
fn server_name(body: &[u8]) -> Option<&[u8]> {
    let mut rest = body.get(2 + 32..)?;
    part(&mut rest, 1)?;
    part(&mut rest, 2)?;
    part(&mut rest, 1)?;
    let mut extensions = part(&mut rest, 2)?;
    while let Some((kind, after)) = extensions.split_first_chunk::<2>() {
        extensions = after;
        let mut value = part(&mut extensions, 2)?;
        if *kind == [0, 0] {
            let mut names = part(&mut value, 2)?;
            while let Some((kind, after)) = names.split_first() {
                names = after;
                let name = part(&mut names, 2)?;
                if *kind == 0 {
                    return Some(name);
                }
            }
        }
    }
    None
}

/// The message of certificates, with the buffers of the hello before them.
fn certificates(body: &[u8], hello: Vec<(Buffer, Vec<u8>)>) -> Message {
    let mut buffers = hello;
    let mut rest = body;
    let mut chain = part(&mut rest, 3).unwrap_or_default();
    let mut count = 0;
    while count < MAX_CERTIFICATES
        && let Some(certificate) = part(&mut chain, 3)
    {
        if count == 0
            && let Some(found) = certificate::read(certificate)
        {
            buffers.extend([
                (Buffer::TlsSubject, found.subject),
                (Buffer::TlsIssuer, found.issuer),
                (Buffer::TlsSerial, found.serial),
                (Buffer::TlsFingerprint, digest::fingerprint(certificate)),
            ]);
            let names = found.alternatives.into_iter();
            buffers.extend(names.map(|name| (Buffer::TlsAlternativeName, name)));
        }
        buffers.push((Buffer::TlsCertificates, certificate.to_vec()));
        count += 1;
    }
    message(false, buffers)
}
