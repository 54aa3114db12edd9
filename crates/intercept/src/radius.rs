//! RADIUS accounting: Start, Interim-Update and Stop tell which user has which addresses.
//!
//! A request counts only if its authenticator, the MD5 of the request and of the secret that it shares with the server,
//! is right; any other changes nothing. Responses and other packets are ignored. A request that is sent a second time
//! while its session lasts is believed; after the end of the session it is ignored (`users.rs`).
//! Source: RFC 2865, RFC 2866, RFC 3162, RFC 4818, RFC 6911.

use crate::facts::{Fact, Name, Place, masked};
use md5::{Digest, Md5};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ACCOUNTING_REQUEST: u8 = 4;
const HEADER: usize = 20;
const SECOND: u64 = 1_000_000_000;
/// Most addresses of a request.
const PLACES: usize = 16;

/// Secrets of RADIUS clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets {
    /// Address and length of its prefix, with the secret; the most exact first.
    list: Vec<(Option<Network>, Vec<u8>)>,
}

/// An address, and the length of its prefix in bits.
type Network = (IpAddr, u8);

impl Secrets {
    /// Parses lines `ADDRESS[/LENGTH] SECRET`, or `* SECRET` for all other addresses. Empty lines and lines that begin
    /// with `#` are ignored.
    ///
    /// # Errors
    /// If a line is something else; the message has its number and never the secret.
    pub(crate) fn parse(text: &str) -> Result<Secrets, String> {
        let mut list = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("line {}: {what}", number + 1);
            let expected = "expected ADDRESS[/LENGTH] SECRET, or * SECRET";
            let (client, secret) =
                line.split_once(char::is_whitespace).ok_or_else(|| wrong(expected))?;
            let client = match client {
                "*" => None,
                text => Some(network(text).ok_or_else(|| wrong(expected))?),
            };
            if list.iter().any(|(known, _)| *known == client) {
                return Err(wrong("this client has a secret already"));
            }
            list.push((client, secret.trim().as_bytes().to_vec()));
        }
        if list.is_empty() {
            return Err("there is no secret: expected ADDRESS[/LENGTH] SECRET, or * SECRET".into());
        }
        list.sort_by_key(|(client, _)| {
            std::cmp::Reverse(client.map_or(-1, |(_, length)| i16::from(length)))
        });
        Ok(Secrets { list })
    }

    fn of(&self, client: IpAddr) -> Option<&[u8]> {
        let matches = |network: &Option<(IpAddr, u8)>| {
            network.is_none_or(|(address, length)| is_in(client, address, length))
        };
        self.list.iter().find(|(network, _)| matches(network)).map(|(_, secret)| &secret[..])
    }
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address.parse().ok()?, Some(length.parse().ok()?)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = length.unwrap_or(most);
    (length <= most).then_some((address, length))
}

fn is_in(client: IpAddr, address: IpAddr, length: u8) -> bool {
    match (client, address) {
        (IpAddr::V4(client), IpAddr::V4(address)) => {
            let (client, address) = (client.to_ipv6_mapped(), address.to_ipv6_mapped());
            masked(client, 96 + length) == masked(address, 96 + length)
        }
        (IpAddr::V6(client), IpAddr::V6(address)) => {
            masked(client, length) == masked(address, length)
        }
        _ => false,
    }
}

/// Result of a packet at the accounting port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A request that tells something.
    Fact(Fact),
    /// No accounting request, or one that tells nothing.
    Nothing,
    /// A request of a client without a secret.
    NoSecret,
    /// A request with a wrong authenticator.
    Wrong,
    /// A request with attributes that contradict its length.
    Unreadable,
}

/// The attributes of a request that are used.
#[derive(Debug, Default)]
struct Attributes {
    status: Option<u32>,
    user: Option<Vec<u8>>,
    session: Option<Vec<u8>>,
    nas: Option<Vec<u8>>,
    places: Vec<Place>,
    timeout_s: Option<u32>,
    interim_s: Option<u32>,
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// A prefix attribute: a reserved byte, the length and the bytes that are not zero.
fn prefix(value: &[u8]) -> Option<Place> {
    let [_, length, bytes @ ..] = value else { return None };
    if *length > 128 || bytes.len() > 16 {
        return None;
    }
    let mut address = [0; 16];
    address[..bytes.len()].copy_from_slice(bytes);
    let address = masked(Ipv6Addr::from(address), *length);
    Some(match length {
        128 => Place::Host(address.into()),
        length => Place::Prefix(address, *length),
    })
}

fn attributes(mut bytes: &[u8]) -> Option<Attributes> {
    let mut found = Attributes::default();
    while !bytes.is_empty() {
        let [kind, length, ..] = *bytes else { return None };
        let value = bytes.get(2..usize::from(length))?;
        bytes = &bytes[usize::from(length)..];
        let place = match kind {
            1 => {
                found.user = Some(value.to_vec());
                None
            }
            4 | 95 => {
                found.nas = Some([&[kind], value].concat());
                None
            }
            32 => {
                found.nas.get_or_insert([&[kind], value].concat());
                None
            }
            27 => {
                found.timeout_s = number(value);
                None
            }
            40 => {
                found.status = number(value);
                None
            }
            44 => {
                found.session = Some(value.to_vec());
                None
            }
            85 => {
                found.interim_s = number(value);
                None
            }
            8 => Some(Place::Host(Ipv4Addr::from(number(value)?).into())),
            97 | 123 => Some(prefix(value)?),
            168 => Some(Place::Host(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into())),
            _ => None,
        };
        found.places.extend(place.filter(|_| found.places.len() < PLACES));
    }
    Some(found)
}

/// Reads the payload of a datagram from `client`.
pub(crate) fn read(payload: &[u8], client: IpAddr, secrets: &Secrets) -> Read {
    let Some(header) = payload.first_chunk::<HEADER>() else { return Read::Nothing };
    if header[0] != ACCOUNTING_REQUEST {
        return Read::Nothing;
    }
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let Some(packet) = payload.get(..length).filter(|packet| packet.len() >= HEADER) else {
        return Read::Unreadable;
    };
    let Some(secret) = secrets.of(client) else { return Read::NoSecret };
    let hashed = [&packet[..4], &[0; 16], &packet[HEADER..], secret].concat();
    if Md5::digest(&hashed)[..] != packet[4..HEADER] {
        return Read::Wrong;
    }
    let Some(found) = attributes(&packet[HEADER..]) else { return Read::Unreadable };
    fact(found, client).map_or(Read::Nothing, Read::Fact)
}

fn fact(found: Attributes, client: IpAddr) -> Option<Fact> {
    let nas = found.nas.unwrap_or_else(|| client.to_string().into_bytes());
    // The length ends the name of the client, so that no other one begins with it.
    let prefix = [b"radius ", &[nas.len() as u8][..], &nas].concat();
    let session = |id: Vec<u8>| [&prefix[..], &id].concat();
    match found.status? {
        status @ (1 | 3) => {
            // Three messages may be lost.
            let silence_s = found.interim_s.filter(|seconds| *seconds > 0);
            let silence_s = silence_s.map(|seconds| u64::from(seconds) * 3 + 60);
            let timeout_s = found.timeout_s.map(u64::from).filter(|_| status == 1);
            let lifetime_s = silence_s.or(timeout_s);
            Some(Fact::Assigned {
                who: found.user.into_iter().map(Name::User).collect(),
                session: session(found.session?),
                places: found.places,
                lifetime_ns: lifetime_s.map(|seconds| seconds.saturating_mul(SECOND)),
                why: if status == 1 { "RADIUS Start" } else { "RADIUS Interim-Update" },
            })
        }
        2 => {
            let session = session(found.session?);
            Some(Fact::Ended { session, why: "RADIUS Stop", forever: true })
        }
        7 => Some(Fact::AllEnded { prefix, why: "RADIUS Accounting-On" }),
        8 => Some(Fact::AllEnded { prefix, why: "RADIUS Accounting-Off" }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(secret: &[u8], attributes: &[u8]) -> Vec<u8> {
        let length = (HEADER + attributes.len()) as u16;
        let mut packet = vec![ACCOUNTING_REQUEST, 7];
        packet.extend(length.to_be_bytes());
        packet.extend([0; 16]);
        packet.extend(attributes);
        let hash = Md5::digest([&packet[..], secret].concat());
        packet[4..20].copy_from_slice(&hash);
        packet
    }

    fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
        [&[kind, value.len() as u8 + 2], value].concat()
    }

    #[test]
    fn only_requests_with_the_right_authenticator_are_read() {
        let secrets = Secrets::parse("10.0.0.0/8 general\n10.0.0.1 exact\n").unwrap();
        let client: IpAddr = [10, 0, 0, 1].into();
        let body = [
            attribute(40, &[0, 0, 0, 1]),
            attribute(1, b"alice"),
            attribute(44, b"s1"),
            attribute(8, &[192, 0, 2, 7]),
            attribute(97, &[0, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 2]),
        ];
        let packet = request(b"exact", &body.concat());
        let Read::Fact(Fact::Assigned { who, places, .. }) = read(&packet, client, &secrets) else {
            panic!("not read");
        };
        assert_eq!(who, [Name::User(b"alice".to_vec())]);
        let prefix = Place::Prefix("2001:db8:1:2::".parse().unwrap(), 64);
        assert_eq!(places, [Place::Host([192, 0, 2, 7].into()), prefix]);
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            let read = read(&changed, client, &secrets);
            assert!(!matches!(read, Read::Fact(_)), "byte {at}: {read:?}");
        }
        assert_eq!(read(&request(b"general", &body.concat()), client, &secrets), Read::Wrong);
        assert_eq!(read(&packet, [10, 0, 0, 2].into(), &secrets), Read::Wrong);
        assert_eq!(read(&packet, [11, 0, 0, 1].into(), &secrets), Read::NoSecret);
        let long = request(b"exact", &[1, 200, 0]);
        assert_eq!(read(&long, client, &secrets), Read::Unreadable);
        for wrong in ["", "secret", "10.0.0.0/40 x", "* a\n* b"] {
            assert!(Secrets::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
