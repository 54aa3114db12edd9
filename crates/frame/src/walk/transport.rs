//! Protocols over IP: TCP, UDP, UDP-Lite, SCTP, DCCP, ICMP, IGMP.
//!
//! Transports with ports are recorded as soon as the ports are captured. A UDP length of 0 means
//! "all captured bytes" (RFC 2675). Sources: RFC 9293, 768, 3828, 9260, 4340, 792, 4443, 3376.

use super::cursor::{Cursor, Next};
use super::{Protocol, Stop, tunnel};

pub(super) fn tcp(cursor: &mut Cursor) -> Result<Next, Stop> {
    cursor.fixed::<4>()?;
    let header_len = cursor.rest().get(12).map_or(20, |byte| 4 * usize::from(byte >> 4));
    cursor.note(Protocol::Tcp, header_len.max(20))?;
    Err(if header_len < 20 { Stop::LengthLies } else { Stop::Done })
}

pub(super) fn udp(cursor: &mut Cursor) -> Result<Next, Stop> {
    let ports = cursor.fixed::<4>()?;
    let Ok(length) = cursor.be16(4) else {
        return Err(cursor.note(Protocol::Udp, 8).err().unwrap_or(Stop::Truncated));
    };
    if length != 0 {
        cursor.narrow(usize::from(length).max(8));
    }
    cursor.note(Protocol::Udp, 8)?;
    if (1..8).contains(&length) {
        return Err(Stop::LengthLies);
    }
    tunnel::in_udp(cursor, u16::from_be_bytes([ports[2], ports[3]]))
}

pub(super) fn udp_lite(cursor: &mut Cursor) -> Result<Next, Stop> {
    with_ports(cursor, Protocol::UdpLite, 8)
}

pub(super) fn sctp(cursor: &mut Cursor) -> Result<Next, Stop> {
    with_ports(cursor, Protocol::Sctp, 12)
}

pub(super) fn dccp(cursor: &mut Cursor) -> Result<Next, Stop> {
    cursor.fixed::<4>()?;
    let header_len = cursor.rest().get(4).map_or(12, |byte| 4 * usize::from(*byte));
    cursor.note(Protocol::Dccp, header_len.max(12))?;
    Err(if header_len < 12 { Stop::LengthLies } else { Stop::Done })
}

fn with_ports(cursor: &mut Cursor, protocol: Protocol, header_len: usize) -> Result<Next, Stop> {
    cursor.fixed::<4>()?;
    cursor.note(protocol, header_len)?;
    Err(Stop::Done)
}

pub(super) fn icmp(cursor: &mut Cursor, protocol: Protocol) -> Result<Next, Stop> {
    cursor.fixed::<4>()?;
    // Type, code and checksum are common to all messages; the meaning of the next four bytes
    // depends on the type.
    let captured = cursor.rest().len().min(8);
    cursor.note(protocol, captured.max(4))?;
    Err(Stop::Done)
}

pub(super) fn igmp(cursor: &mut Cursor) -> Result<Next, Stop> {
    cursor.fixed::<8>()?;
    cursor.note(Protocol::Igmp, 8)?;
    Err(Stop::Done)
}
