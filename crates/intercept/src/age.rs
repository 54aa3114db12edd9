//! Files encrypted to a public key, in the format `age-encryption.org/v1` with X25519, so that `age -d` reads them.
//!
//! A file is a header, which holds a file key encrypted to the recipient, and chunks of 64 KiB, each with its own tag;
//! the last one is marked, so a cut file is known as such. The secret of the sender is forgotten once the header is
//! written: memory that is read later does not reveal earlier chunks of a closed file. Memory: one chunk. Ciphers are
//! those of `ring`; X25519 is that of `x25519-dalek`. Source: c2sp.org/age, RFC 7748, RFC 8439, BIP 173.

use crate::bech32;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::io::{self, BufRead, Read, Write};
use x25519_dalek::{PublicKey, StaticSecret};

/// Most plain bytes of a chunk.
const CHUNK: usize = 64 << 10;
const TAG: usize = 16;
const VERSION: &str = "age-encryption.org/v1";
const LABEL: &[u8] = b"age-encryption.org/v1/X25519";
/// Most bytes of a line of a header, and most lines.
const LINE: u64 = 4_096;
const LINES: usize = 4_096;

/// Error of a key or of an encrypted file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgeError {
    /// The text is no key of the kind that is expected.
    #[error("{0}")]
    Key(String),
    /// The system gives no random bytes.
    #[error("no random bytes from the system")]
    Random,
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not in the format.
    #[error("not an age file: {0}")]
    Format(&'static str),
    /// The file is encrypted to others.
    #[error("the file is not encrypted to this key")]
    OtherKey,
    /// A chunk was changed, or the file was cut.
    #[error("chunk {0} was changed, or the file ends too early: what precedes it is intact")]
    Damaged(u64),
}

/// A public key: `age1…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipient([u8; 32]);

impl Recipient {
    /// Parses `age1…`.
    ///
    /// # Errors
    /// If the text is something else.
    pub fn parse(text: &str) -> Result<Recipient, AgeError> {
        if text.starts_with("AGE-SECRET-KEY-") {
            let message = "a secret key is given; expected the public key, age1…".to_owned();
            return Err(AgeError::Key(message));
        }
        bech32::decode("age", text).map(Recipient).map_err(|problem| {
            AgeError::Key(format!("{text:?} is not a public key ({problem}); expected age1…"))
        })
    }
}

impl std::fmt::Display for Recipient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&bech32::encode("age", &self.0))
    }
}

/// A secret key: `AGE-SECRET-KEY-1…`.
pub struct Identity(StaticSecret);

impl Identity {
    /// A new key.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn generate() -> Result<Identity, AgeError> {
        Ok(Identity(StaticSecret::from(random::<32>()?)))
    }

    /// Parses a key, or the lines of a file with one; empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// If there is no key, or more than one.
    pub fn parse(text: &str) -> Result<Identity, AgeError> {
        let lines = text.lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(AgeError::Key("expected one line AGE-SECRET-KEY-1…".to_owned()));
        };
        // The text is not shown: it may be a secret with a typing error.
        let bytes = bech32::decode("age-secret-key-", line).map_err(|problem| {
            AgeError::Key(format!("not a secret key ({problem}); expected AGE-SECRET-KEY-1…"))
        })?;
        Ok(Identity(StaticSecret::from(bytes)))
    }

    /// The public key.
    pub fn recipient(&self) -> Recipient {
        Recipient(PublicKey::from(&self.0).to_bytes())
    }

    /// The text of the secret key.
    pub fn secret(&self) -> String {
        bech32::encode("age-secret-key-", &self.0.to_bytes()).to_ascii_uppercase()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity of {}", self.recipient())
    }
}

fn random<const N: usize>() -> Result<[u8; N], AgeError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| AgeError::Random)?;
    Ok(bytes)
}

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

fn derive(salt: &[u8], secret: &[u8], label: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    let filled = extracted.expand(&[label], Length).and_then(|okm| okm.fill(&mut key));
    filled.expect("32 bytes are within the limit of HKDF");
    key
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has 32 bytes");
    LessSafeKey::new(key)
}

/// The nonce of a chunk: its number, and whether it is the last.
fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[3..11].copy_from_slice(&number.to_be_bytes());
    bytes[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

fn unbase64<const N: usize>(text: &str) -> Option<[u8; N]> {
    BASE64.decode(text).ok()?.try_into().ok()
}

/// The key that encrypts the file key: of what both sides know.
fn wrapping_key(shared: &[u8; 32], share: &[u8; 32], recipient: &[u8; 32]) -> [u8; 32] {
    derive(&[&share[..], &recipient[..]].concat(), shared, LABEL)
}

fn header_tag(file_key: &[u8; 16], header: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &derive(&[], file_key, b"header")), header)
}

/// An encrypted file that is being written.
pub struct Encrypted<W: Write> {
    output: W,
    key: LessSafeKey,
    number: u64,
    chunk: Vec<u8>,
    hash: Context,
    written: u64,
    stored: u64,
}

/// Size and hash of a file after its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
}

impl<W: Write> Encrypted<W> {
    /// Writes the header of a file.
    ///
    /// # Errors
    /// If the system gives no random bytes, the key is one of the few that reveal everything, or a write fails.
    pub fn new(output: W, recipient: &Recipient) -> Result<Encrypted<W>, AgeError> {
        let file_key: [u8; 16] = random()?;
        let secret = StaticSecret::from(random::<32>()?);
        let share = PublicKey::from(&secret).to_bytes();
        let shared = secret.diffie_hellman(&PublicKey::from(recipient.0));
        if !shared.was_contributory() {
            return Err(AgeError::Key(format!("{recipient} is not a usable public key")));
        }
        let mut wrapped = file_key.to_vec();
        let key = cipher(&wrapping_key(shared.as_bytes(), &share, &recipient.0));
        let zero = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        key.seal_in_place_append_tag(zero, Aad::empty(), &mut wrapped)
            .expect("16 bytes can be encrypted");
        let mut header = format!(
            "{VERSION}\n-> X25519 {}\n{}\n---",
            BASE64.encode(share),
            BASE64.encode(&wrapped)
        );
        let tag = header_tag(&file_key, header.as_bytes());
        header.push_str(&format!(" {}\n", BASE64.encode(tag)));
        let salt: [u8; 16] = random()?;
        let key = cipher(&derive(&salt, &file_key, b"payload"));
        let (chunk, hash) = (Vec::with_capacity(CHUNK + TAG), Context::new(&SHA256));
        let mut file = Encrypted { output, key, number: 0, chunk, hash, written: 0, stored: 0 };
        file.put(&[header.as_bytes(), &salt].concat())?;
        Ok(file)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let mut chunk = std::mem::take(&mut self.chunk);
        self.key
            .seal_in_place_append_tag(nonce(self.number, is_last), Aad::empty(), &mut chunk)
            .map_err(|_| io::Error::other("a chunk could not be encrypted"))?;
        self.number += 1;
        let plain = (chunk.len() - TAG) as u64;
        let put = self.put(&chunk);
        chunk.clear();
        self.chunk = chunk;
        put?;
        self.stored += plain;
        Ok(())
    }

    /// Plain bytes that were given to the output, in whole chunks.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Plain bytes so far, with those that wait for the end of their chunk.
    pub fn given(&self) -> u64 {
        self.stored + self.chunk.len() as u64
    }

    /// Adds bytes. They are written once their chunk is full.
    ///
    /// # Errors
    /// If a write fails.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.chunk.len() == CHUNK {
                self.seal(false)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Writes the last chunk.
    ///
    /// # Errors
    /// If a write fails.
    pub fn finish(mut self) -> io::Result<(W, Written)> {
        self.seal(true)?;
        self.output.flush()?;
        let sha256 = crate::hex(self.hash.finish().as_ref());
        Ok((self.output, Written { bytes: self.written, sha256 }))
    }
}

fn line(input: &mut impl BufRead) -> Result<String, AgeError> {
    let mut bytes = Vec::new();
    input.take(LINE).read_until(b'\n', &mut bytes)?;
    match bytes.pop() {
        Some(b'\n') => {
            String::from_utf8(bytes).map_err(|_| AgeError::Format("the header is not text"))
        }
        _ => Err(AgeError::Format("the header does not end")),
    }
}

/// Reads the header; returns the file key.
fn file_key(input: &mut impl BufRead, identity: &Identity) -> Result<[u8; 16], AgeError> {
    let mut header = line(input)?;
    if header != VERSION {
        return Err(AgeError::Format("the first line is another one"));
    }
    header.push('\n');
    let mut found = None;
    for _ in 0..LINES {
        let text = line(input)?;
        if let Some(mac) = text.strip_prefix("--- ") {
            header.push_str("---");
            let key: [u8; 16] = found.ok_or(AgeError::OtherKey)?;
            let mac = unbase64::<32>(mac).ok_or(AgeError::Format("the tag of the header"))?;
            let wanted = hmac::Key::new(hmac::HMAC_SHA256, &derive(&[], &key, b"header"));
            hmac::verify(&wanted, header.as_bytes(), &mac)
                .map_err(|_| AgeError::Format("the header was changed"))?;
            return Ok(key);
        }
        if let Some(share) = text.strip_prefix("-> X25519 ") {
            let body = line(input)?;
            let share = unbase64::<32>(share).ok_or(AgeError::Format("a share of X25519"))?;
            let sealed = unbase64::<32>(&body).ok_or(AgeError::Format("a body of X25519"))?;
            header.push_str(&format!("{text}\n{body}\n"));
            found = found.or_else(|| unwrap(identity, &share, sealed));
        } else {
            header.push_str(&text);
            header.push('\n');
        }
    }
    Err(AgeError::Format("the header is too long"))
}

fn unwrap(identity: &Identity, share: &[u8; 32], mut sealed: [u8; 32]) -> Option<[u8; 16]> {
    let shared = identity.0.diffie_hellman(&PublicKey::from(*share));
    shared.was_contributory().then_some(())?;
    let key = cipher(&wrapping_key(shared.as_bytes(), share, &identity.recipient().0));
    let zero = Nonce::assume_unique_for_key([0; NONCE_LEN]);
    key.open_in_place(zero, Aad::empty(), &mut sealed).ok()?.try_into().ok()
}

/// Fills a buffer up to its length or the end of the input.
fn fill(input: &mut impl Read, buffer: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let missing = length.saturating_sub(buffer.len()) as u64;
    input.take(missing).read_to_end(buffer).map(drop)
}

/// Decrypts a file; returns the number of plain bytes. What was written before an error is intact.
///
/// # Errors
/// If the file is not encrypted to this key, was changed or cut, or reading or writing fails.
pub fn decrypt(
    mut input: impl BufRead,
    identity: &Identity,
    output: &mut impl Write,
) -> Result<u64, AgeError> {
    let key = file_key(&mut input, identity)?;
    let mut salt = [0; 16];
    input.read_exact(&mut salt).map_err(|_| AgeError::Format("it ends after the header"))?;
    let key = cipher(&derive(&salt, &key, b"payload"));
    let (mut held, mut total) = (Vec::new(), 0);
    for number in 0.. {
        // One byte more tells whether this is the last chunk.
        fill(&mut input, &mut held, CHUNK + TAG + 1)?;
        let is_last = held.len() <= CHUNK + TAG;
        let rest = held.split_off(held.len().min(CHUNK + TAG));
        let plain = key.open_in_place(nonce(number, is_last), Aad::empty(), &mut held);
        let plain = plain.map_err(|_| AgeError::Damaged(number))?;
        output.write_all(plain)?;
        total += plain.len() as u64;
        held = rest;
        if is_last {
            break;
        }
    }
    output.flush()?;
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encrypted(recipient: &Recipient, plain: &[u8]) -> Vec<u8> {
        let mut file = Encrypted::new(Vec::new(), recipient).unwrap();
        for part in plain.chunks(1_000) {
            file.write(part).unwrap();
        }
        let (bytes, written) = file.finish().unwrap();
        assert_eq!(written.bytes, bytes.len() as u64);
        bytes
    }

    #[test]
    fn what_is_encrypted_is_decrypted_and_each_change_is_found() {
        let identity = Identity::generate().unwrap();
        let again = Identity::parse(&format!("# a key\n{}\n", identity.secret())).unwrap();
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let plain: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
            let bytes = encrypted(&identity.recipient(), &plain);
            let mut out = Vec::new();
            assert_eq!(decrypt(&bytes[..], &again, &mut out).unwrap(), length as u64);
            assert!(out == plain, "{length}");
            for at in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert!(decrypt(&changed[..], &identity, &mut io::sink()).is_err(), "{at}");
                let cut = decrypt(&bytes[..at], &identity, &mut io::sink());
                assert!(cut.is_err(), "cut at {at} of {length}");
            }
        }
        let other = Identity::generate().unwrap();
        let bytes = encrypted(&identity.recipient(), b"secret");
        let refused = decrypt(&bytes[..], &other, &mut io::sink()).unwrap_err();
        assert!(matches!(refused, AgeError::OtherKey), "{refused}");
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
    }

    /// A pair of keys that `age-keygen` made.
    #[test]
    fn keys_have_the_form_of_age() {
        let secret = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
        let public = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
        let identity = Identity::parse(secret).unwrap();
        assert_eq!(identity.secret(), secret);
        assert_eq!(identity.recipient().to_string(), public);
        assert_eq!(Recipient::parse(public).unwrap(), identity.recipient());
        for wrong in
            ["age1", "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwk", secret]
        {
            assert!(Recipient::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Identity::parse(public).is_err());
    }
}
