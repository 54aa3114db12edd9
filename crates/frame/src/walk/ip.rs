//! IPv4, IPv6, extension headers, IPsec.
//!
//! A total length (IPv4) or payload length (IPv6) of 0 means "all captured bytes": captured before
//! segmentation off-load, or a jumbogram. Later fragments end the walk; a first fragment is
//! followed up to its end. Sources: RFC 791, 8200, 2675, 4302, 4303, 6275, 7401, 5533.

use super::cursor::{Cursor, Next};
use super::{Numbered, Protocol, Stop};

/// Length of a fixed IPv6 header.
const V6_LEN: usize = 40;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Reads IPv4 or IPv6, by the version nibble.
pub(super) fn by_version(cursor: &mut Cursor) -> Result<Next, Stop> {
    match cursor.fixed::<1>()?[0] >> 4 {
        4 => v4(cursor),
        6 => v6(cursor),
        version => Err(Stop::UnknownProtocol(Numbered::Version(version))),
    }
}

pub(super) fn v4(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<20>()?;
    if header[0] >> 4 != 4 {
        return Err(Stop::WrongVersion(header[0] >> 4));
    }
    let header_len = 4 * usize::from(header[0] & 0xf);
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header_len < 20 {
        return Err(Stop::LengthLies);
    }
    if total_len != 0 {
        cursor.narrow(total_len.max(header_len));
    }
    cursor.note(Protocol::Ipv4, header_len)?;
    if total_len != 0 && total_len < header_len {
        return Err(Stop::LengthLies);
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if fragment & 0x1fff != 0 {
        return Err(Stop::Fragment);
    }
    if fragment & MORE_FRAGMENTS != 0 {
        cursor.enter_first_fragment();
    }
    Ok(Next::Ip { protocol: header[9], v6: false })
}

pub(super) fn v6(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<V6_LEN>()?;
    if header[0] >> 4 != 6 {
        return Err(Stop::WrongVersion(header[0] >> 4));
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if payload_len != 0 {
        cursor.narrow(V6_LEN + payload_len);
    }
    cursor.note(Protocol::Ipv6, V6_LEN)?;
    Ok(Next::Ip { protocol: header[6], v6: true })
}

/// Reads an extension header that starts with the next header's number and its own length in
/// eight-byte units.
pub(super) fn extension(cursor: &mut Cursor, number: u8) -> Result<Next, Stop> {
    let header = cursor.fixed::<2>()?;
    let protocol = match number {
        0 => Protocol::HopByHop,
        43 => Protocol::Routing,
        60 => Protocol::DestinationOptions,
        135 => Protocol::Mobility,
        139 => Protocol::Hip,
        _ => Protocol::Shim6,
    };
    cursor.note(protocol, 8 * (usize::from(header[1]) + 1))?;
    Ok(Next::Ip { protocol: header[0], v6: true })
}

pub(super) fn fragment(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<8>()?;
    cursor.note(Protocol::Fragment, 8)?;
    let fragment = u16::from_be_bytes([header[2], header[3]]);
    if fragment & 0xfff8 != 0 {
        return Err(Stop::Fragment);
    }
    if fragment & 1 != 0 {
        cursor.enter_first_fragment();
    }
    Ok(Next::Ip { protocol: header[0], v6: true })
}

pub(super) fn authentication(cursor: &mut Cursor, v6: bool) -> Result<Next, Stop> {
    let header = cursor.fixed::<12>()?;
    let header_len = 4 * (usize::from(header[1]) + 2);
    cursor.note(Protocol::Authentication, header_len.max(12))?;
    if header_len < 12 {
        return Err(Stop::LengthLies);
    }
    Ok(Next::Ip { protocol: header[0], v6 })
}

pub(super) fn esp(cursor: &mut Cursor) -> Result<Next, Stop> {
    cursor.fixed::<8>()?;
    cursor.note(Protocol::Esp, 8)?;
    Err(Stop::Encrypted)
}
