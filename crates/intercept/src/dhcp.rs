//! DHCP: an acknowledgement tells which client has which address, and for how long.
//!
//! DHCP has no authentication: a host that can send as a server can name any client. Only messages from the port of
//! servers assign addresses. Source: RFC 2131, RFC 2132, RFC 3046.

use crate::facts::{Fact, Name, Place};
use std::net::Ipv4Addr;

/// Ports of servers and clients.
pub(crate) const SERVER: u16 = 67;
pub(crate) const CLIENT: u16 = 68;

const OPTIONS: usize = 240;
const COOKIE: [u8; 4] = [0x63, 0x82, 0x53, 0x63];
const SECOND: u64 = 1_000_000_000;

/// The options that are used.
#[derive(Default)]
struct Options<'a> {
    kind: Option<u8>,
    lease_s: Option<u32>,
    client: Option<&'a [u8]>,
    circuit: Option<&'a [u8]>,
    remote: Option<&'a [u8]>,
}

/// The next option or part of one: its number and its value.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let [number, length, ..] = **bytes else { return None };
    let value = bytes.get(2..2 + usize::from(length))?;
    *bytes = &bytes[2 + usize::from(length)..];
    Some((number, value))
}

fn options(mut bytes: &[u8]) -> Options<'_> {
    let mut found = Options::default();
    loop {
        while let [0, rest @ ..] = bytes {
            bytes = rest;
        }
        if bytes.first() == Some(&255) {
            return found;
        }
        let Some((number, value)) = next(&mut bytes) else { return found };
        match number {
            51 => found.lease_s = value.try_into().ok().map(u32::from_be_bytes),
            53 => found.kind = value.first().copied(),
            61 => found.client = Some(value),
            82 => {
                let mut parts = value;
                while let Some((part, value)) = next(&mut parts) {
                    match part {
                        1 => found.circuit = Some(value),
                        2 => found.remote = Some(value),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// Reads the payload of a datagram.
pub(crate) fn read(payload: &[u8], from_server: bool) -> Option<Fact> {
    let head = payload.get(..OPTIONS)?;
    if head[1] != 1 || head[2] != 6 || head[236..] != COOKIE {
        return None;
    }
    let options = options(&payload[OPTIONS..]);
    let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
    let mac: [u8; 6] = head[28..34].try_into().ok()?;
    let session = [&b"dhcp "[..], &mac].concat();
    match (head[0], options.kind?) {
        (2, 5) if from_server && !address(16).is_unspecified() => {
            let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            let names = [
                Some(Name::Mac(mac)),
                own(options.client).map(Name::ClientId),
                own(options.circuit).map(Name::Circuit),
                own(options.remote).map(Name::Remote),
            ];
            // All ones: for ever.
            let lease_s = options.lease_s.filter(|seconds| *seconds != u32::MAX);
            Some(Fact::Assigned {
                who: names.into_iter().flatten().collect(),
                session,
                places: vec![Place::Host(address(16).into())],
                lifetime_ns: lease_s.map(|seconds| u64::from(seconds).saturating_mul(SECOND)),
                why: "DHCP ACK",
            })
        }
        (1, 7) => Some(Fact::Ended { session, why: "DHCP RELEASE", forever: false }),
        (1, 4) => Some(Fact::Ended { session, why: "DHCP DECLINE", forever: false }),
        (2, 6) if from_server => Some(Fact::Ended { session, why: "DHCP NAK", forever: false }),
        _ => None,
    }
}
