//! Flow records as IPFIX, with the fields of the way back as in RFC 5103.

use crate::records::ipfix::{Field, Template};
use fyke_flow::records::{Record, Side};
use std::net::IpAddr;

/// Private enterprise number that marks fields of the way back (RFC 5103).
const REVERSE: Option<u32> = Some(29_305);

/// Fields after the addresses, by number and length in bytes: start and end in milliseconds, ports, protocol, reason
/// of the end, and those of both directions: bytes, packets, TCP flags.
const fn fields(source: Field, destination: Field) -> [Field; 14] {
    [
        source,
        destination,
        (152, 8, None),
        (153, 8, None),
        (7, 2, None),
        (11, 2, None),
        (4, 1, None),
        (136, 1, None),
        (1, 8, None),
        (2, 8, None),
        (6, 2, None),
        (1, 8, REVERSE),
        (2, 8, REVERSE),
        (6, 2, REVERSE),
    ]
}

/// The templates for IPv4 and IPv6.
pub const TEMPLATES: &[Template] = &[
    Template { number: 256, fields: &fields((8, 4, None), (12, 4, None)) },
    Template { number: 257, fields: &fields((27, 16, None), (28, 16, None)) },
];

/// Appends the fields of a record, and returns the place of its template.
pub fn encode(record: &Record, out: &mut Vec<u8>) -> usize {
    for end in [record.source, record.destination] {
        match end.ip() {
            IpAddr::V4(address) => out.extend(address.octets()),
            IpAddr::V6(address) => out.extend(address.octets()),
        }
    }
    for time_ns in [record.start_ns, record.end_ns] {
        out.extend((time_ns / 1_000_000).to_be_bytes());
    }
    out.extend(record.source.port().to_be_bytes());
    out.extend(record.destination.port().to_be_bytes());
    out.extend([record.protocol, record.end as u8]);
    for Side { bytes, packets, tcp_flags, .. } in [record.forward, record.backward] {
        out.extend(bytes.to_be_bytes());
        out.extend(packets.to_be_bytes());
        out.extend(u16::from(tcp_flags).to_be_bytes());
    }
    usize::from(record.source.is_ipv6())
}
