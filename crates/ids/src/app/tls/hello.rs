//! Fields of a hello, for records: the version, the text that JA3 hashes, and JA4. Source: the descriptions
//! of JA3 (Althouse, Atkinson, Atkins, 2017) and JA4 (FoxIO, 2023) by their authors.

use super::part;
use crate::app::Facts;
use crate::digest;
use std::fmt::Write;

/// Most values of a list that are read.
const MOST: usize = 512;
const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURES: u16 = 13;
const APPLICATIONS: u16 = 16;
const SERVER_NAME: u16 = 0;
const VERSIONS: u16 = 43;

/// A hello of a client or a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// Version in the header of the hello.
    pub version: u16,
    /// Versions that are offered, or the one that is chosen.
    pub versions: Vec<u16>,
    /// Cipher suites: those offered, or the one that is chosen.
    pub ciphers: Vec<u16>,
    /// Types of the extensions, in order.
    pub extensions: Vec<u16>,
    /// Groups of keys.
    pub groups: Vec<u16>,
    /// Formats of points.
    pub formats: Vec<u8>,
    /// Algorithms of signatures.
    pub signatures: Vec<u16>,
    /// Protocols of the application.
    pub applications: Vec<Vec<u8>>,
}

impl Hello {
    /// The facts of a hello; none if it is damaged.
    pub fn of(body: &[u8], from_client: bool) -> Facts {
        Hello::read(body, from_client).map_or(Facts::None, |hello| Facts::Hello(Box::new(hello)))
    }

    fn read(body: &[u8], from_client: bool) -> Option<Hello> {
        let mut hello =
            Hello { version: u16::from_be_bytes(*body.first_chunk()?), ..Hello::default() };
        let mut rest = body.get(2 + 32..)?;
        part(&mut rest, 1)?;
        if from_client {
            hello.ciphers = words(part(&mut rest, 2)?);
            part(&mut rest, 1)?;
        } else {
            hello.ciphers = words(rest.get(..2)?);
            rest = rest.get(3..)?;
        }
        let Some(mut extensions) = part(&mut rest, 2) else { return Some(hello) };
        while let Some((kind, after)) = extensions.split_first_chunk::<2>()
            && hello.extensions.len() < MOST
        {
            extensions = after;
            let mut value = part(&mut extensions, 2)?;
            let kind = u16::from_be_bytes(*kind);
            hello.extensions.push(kind);
            match (kind, from_client) {
                (GROUPS, true) => hello.groups = words(part(&mut value, 2).unwrap_or_default()),
                (POINT_FORMATS, true) => {
                    hello.formats = part(&mut value, 1).unwrap_or_default().to_vec();
                }
                (SIGNATURES, true) => {
                    hello.signatures = words(part(&mut value, 2).unwrap_or_default());
                }
                (APPLICATIONS, _) => {
                    let mut names = part(&mut value, 2).unwrap_or_default();
                    while let Some(name) = part(&mut names, 1)
                        && hello.applications.len() < 16
                    {
                        hello.applications.push(name.to_vec());
                    }
                }
                (VERSIONS, true) => hello.versions = words(part(&mut value, 1).unwrap_or_default()),
                (VERSIONS, false) => hello.versions = words(value),
                _ => {}
            }
        }
        Some(hello)
    }

    /// The version that a client asks for first, or that a server has chosen.
    pub fn spoken(&self) -> u16 {
        let known = |version: &&u16| (0x0300..=0x0304).contains(*version) || **version >> 8 == 0x7f;
        match self.versions.iter().find(known).copied().unwrap_or(self.version) {
            // Drafts of TLS 1.3.
            draft if draft >> 8 == 0x7f => 0x0304,
            version => version,
        }
    }

    /// The text that JA3 hashes, or JA3S of a server: numbers of the version, the cipher suites and the extensions, and
    /// of a client's groups and formats. Reserved values are left out.
    pub fn ja3(&self, from_client: bool) -> String {
        let mut out = self.version.to_string();
        let mut add = |values: &[u16]| {
            out.push(',');
            let mut first = true;
            for value in values.iter().filter(|value| !is_reserved(**value)) {
                // Writing to a string does not fail.
                _ = write!(out, "{}{value}", if first { "" } else { "-" });
                first = false;
            }
        };
        add(&self.ciphers);
        add(&self.extensions);
        if from_client {
            add(&self.groups);
            add(&self.formats.iter().map(|format| u16::from(*format)).collect::<Vec<_>>());
        }
        out
    }
}

impl Hello {
    /// JA4 of a client's hello over TCP: version, server name or none, numbers of cipher suites and of extensions, the
    /// first protocol, and two hashes.
    pub fn ja4(&self) -> String {
        let plain = |values: &[u16]| -> Vec<u16> {
            values.iter().copied().filter(|value| !is_reserved(*value)).collect()
        };
        let (mut ciphers, all) = (plain(&self.ciphers), plain(&self.extensions));
        let offered = plain(&self.versions).into_iter().max().unwrap_or(self.version);
        let version = match offered {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            _ => "00",
        };
        let name = if all.contains(&SERVER_NAME) { 'd' } else { 'i' };
        let first = self.applications.iter().find(|name| !name.is_empty());
        let protocol = first.map_or("00".to_owned(), |name| ends_of(name));
        ciphers.sort_unstable();
        let named = |kind: &u16| *kind != SERVER_NAME && *kind != APPLICATIONS;
        let mut sorted: Vec<u16> = all.iter().copied().filter(named).collect();
        sorted.sort_unstable();
        let mut text = hex(&sorted);
        if !self.signatures.is_empty() {
            text = format!("{text}_{}", hex(&plain(&self.signatures)));
        }
        let hash = |text: &str| match text.is_empty() {
            true => "0".repeat(12),
            false => digest::hex(&digest::sha256(text.as_bytes())[..6]),
        };
        format!(
            "t{version}{name}{:02}{:02}{protocol}_{}_{}",
            ciphers.len().min(99),
            all.len().min(99),
            hash(&hex(&ciphers)),
            hash(&text)
        )
    }
}

/// The first and the last character of a name, or of its bytes as digits.
fn ends_of(name: &[u8]) -> String {
    let (first, last) = (name[0], name[name.len() - 1]);
    match first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        true => format!("{}{}", char::from(first), char::from(last)),
        false => format!("{:x}{:x}", first >> 4, last & 15),
    }
}

/// Four digits for each number, with commas.
fn hex(values: &[u16]) -> String {
    values.iter().map(|value| format!("{value:04x}")).collect::<Vec<_>>().join(",")
}

/// True for values that clients add at random (RFC 8701).
fn is_reserved(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).take(MOST).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the description of JA4.
    #[test]
    fn a_hello_has_the_names_of_the_description() {
        let hello = Hello {
            version: 0x0303,
            versions: vec![0x2a2a, 0x0304, 0x0303],
            ciphers: vec![
                0x8a8a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8,
                0xc013, 0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
            ],
            extensions: vec![
                0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023,
                0x0012, 0x002b, 0xff01, 0x000b, 0x000a, 0x0015, 0x3a3a,
            ],
            groups: vec![0x1a1a, 29, 23],
            formats: vec![0],
            signatures: vec![0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601],
            applications: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        assert_eq!(hello.ja4(), "t13d1516h2_8daaf6152771_e5627efa2ab1");
        let text = hello.ja3(true);
        assert!(
            text.starts_with("771,4865-4866-4867-49195-") && text.ends_with("-21,29-23,0"),
            "{text}"
        );
    }
}
