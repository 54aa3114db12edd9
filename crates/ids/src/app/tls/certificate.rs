//! Names and serial number of a certificate. Source: RFC 5280, X.690.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Most attributes of a name.
const MAX_ATTRIBUTES: usize = 64;

/// Most other names of a subject.
const MAX_ALTERNATIVES: usize = 256;
/// Identifier of the extension with other names of the subject.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];
const BOOLEAN: u8 = 1;
const OCTETS: u8 = 4;
/// Tag of the extensions.
const EXTENSIONS: u8 = 0xa3;

/// The fields that are read of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Serial number, as `0A:FF`.
    pub serial: Vec<u8>,
    /// Issuer, as `C=US, O=Example, CN=example.org`.
    pub issuer: Vec<u8>,
    /// Subject, in the same form.
    pub subject: Vec<u8>,
    /// Other names of the subject: of hosts, mailboxes and resources, and addresses as text.
    pub alternatives: Vec<Vec<u8>>,
}

/// Short names of attributes, by their identifiers.
const ATTRIBUTES: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 42], "GN"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
];

/// Takes a value: its tag and its bytes.
fn value<'b>(bytes: &mut &'b [u8]) -> Option<(u8, &'b [u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (len, rest) = rest.split_first()?;
    let (len, rest) = match len {
        0..=0x7f => (usize::from(*len), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(len & 0x7f))?;
            (digits.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (inside, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some((*tag, inside))
}

/// Reads a certificate; none if it is damaged.
pub fn read(mut bytes: &[u8]) -> Option<Certificate> {
    let (_, mut certificate) = value(&mut bytes)?;
    let (_, mut signed) = value(&mut certificate)?;
    let mut first = value(&mut signed)?;
    if first.0 == 0xa0 {
        first = value(&mut signed)?;
    }
    let serial: Vec<String> = first.1.iter().map(|byte| format!("{byte:02X}")).collect();
    value(&mut signed)?;
    let (_, issuer) = value(&mut signed)?;
    value(&mut signed)?;
    let (_, subject) = value(&mut signed)?;
    // The key, then optional parts.
    value(&mut signed);
    let mut alternatives = Vec::new();
    while let Some((tag, mut part)) = value(&mut signed) {
        if tag == EXTENSIONS {
            alternatives = names_in(value(&mut part).unwrap_or_default().1).unwrap_or_default();
        }
    }
    Some(Certificate {
        alternatives,
        serial: serial.join(":").into_bytes(),
        issuer: name(issuer)?,
        subject: name(subject)?,
    })
}

/// The other names of the subject in the extensions.
fn names_in(mut extensions: &[u8]) -> Option<Vec<Vec<u8>>> {
    while let Some((_, mut extension)) = value(&mut extensions) {
        if value(&mut extension)?.1 != ALTERNATIVE_NAMES {
            continue;
        }
        let (mut tag, mut inside) = value(&mut extension)?;
        if tag == BOOLEAN {
            (tag, inside) = value(&mut extension)?;
        }
        if tag != OCTETS {
            return None;
        }
        let (_, mut names) = value(&mut inside)?;
        let mut found = Vec::new();
        while let Some((tag, name)) = value(&mut names)
            && found.len() < MAX_ALTERNATIVES
        {
            match (tag, name.len()) {
                (0x81 | 0x82 | 0x86, _) => found.push(name.to_vec()),
                (0x87, 4) => {
                    let address = Ipv4Addr::from(*name.first_chunk::<4>()?);
                    found.push(address.to_string().into_bytes());
                }
                (0x87, 16) => {
                    let address = Ipv6Addr::from(*name.first_chunk::<16>()?);
                    found.push(address.to_string().into_bytes());
                }
                _ => {}
            }
        }
        return Some(found);
    }
    None
}

fn name(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut count = 0;
    while !bytes.is_empty() {
        let (_, mut set) = value(&mut bytes)?;
        while !set.is_empty() {
            let (_, mut pair) = value(&mut set)?;
            let (_, kind) = value(&mut pair)?;
            let (_, text) = value(&mut pair)?;
            count += 1;
            if count > MAX_ATTRIBUTES {
                return Some(out);
            }
            if !out.is_empty() {
                out.extend_from_slice(b", ");
            }
            match ATTRIBUTES.iter().find(|(own, _)| *own == kind) {
                Some((_, short)) => out.extend_from_slice(short.as_bytes()),
                None => out.extend_from_slice(&dotted(kind)),
            }
            out.push(b'=');
            out.extend_from_slice(text);
        }
    }
    Some(out)
}

/// An identifier in numbers.
fn dotted(bytes: &[u8]) -> Vec<u8> {
    let mut numbers = Vec::new();
    let mut number = 0u64;
    for byte in bytes {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first.to_string());
                number -= first * 40;
            }
            numbers.push(number.to_string());
            number = 0;
        }
    }
    numbers.join(".").into_bytes()
}
