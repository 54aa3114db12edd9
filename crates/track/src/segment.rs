//! The TCP segment in a frame: addresses, ports, sequence number, flags, payload.
//!
//! Steps over the link header, VLAN tags and IPv6 extension headers. Fragments are told apart, not put together.
//! Lengths come from the IP header, so link-layer padding is no payload; what the capture cut off is known by
//! `payload_len` being larger than `payload`.

use fyke_frame::{Frame, LinkType, ethertype};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
#[cfg(test)]
pub(crate) const ACK: u8 = 16;

const TCP: u8 = 6;
/// More VLAN tags or IPv6 extension headers than this are not real.
const MOST_HEADERS: usize = 8;

/// A TCP segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
    pub(crate) payload: &'a [u8],
    pub(crate) payload_len: u32,
}

/// What a frame holds for a tracker.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    Tcp(Segment<'a>),
    /// A fragment of a TCP segment: its ports or the end of its payload are elsewhere.
    TcpFragment,
    Other,
}

struct IpHeader<'a> {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    fragment: bool,
    payload: &'a [u8],
    payload_len: usize,
}

/// Reads a frame down to the TCP payload. Headers that are cut short or contradict themselves make it `Other`.
pub(crate) fn read<'a>(frame: &Frame<'a>) -> Content<'a> {
    match ip_header(frame.link, frame.data) {
        Some(ip) if ip.protocol != TCP => Content::Other,
        Some(ip) if ip.fragment => Content::TcpFragment,
        Some(ip) => tcp(&ip).map_or(Content::Other, Content::Tcp),
        None => Content::Other,
    }
}

fn ip_header(link: LinkType, data: &[u8]) -> Option<IpHeader<'_>> {
    let next = (link.description()?.next)(data)?;
    let (mut offset, mut kind) = (next.offset, next.ethertype);
    for _ in 0..MOST_HEADERS {
        match kind {
            ethertype::VLAN | ethertype::QINQ | ethertype::QINQ_OLD => {
                kind = be16(data, offset + 2)?;
                offset += 4;
            }
            ethertype::IPV4 => return ipv4(data.get(offset..)?),
            ethertype::IPV6 => return ipv6(data.get(offset..)?),
            _ => return None,
        }
    }
    None
}

fn ipv4(data: &[u8]) -> Option<IpHeader<'_>> {
    let header_len = usize::from(data.first()? & 0xf) * 4;
    if data[0] >> 4 != 4 || header_len < 20 {
        return None;
    }
    let payload = data.get(header_len..)?;
    // A length of 0 is a large segment that the sending machine captured before its card filled the field in.
    let payload_len = match usize::from(be16(data, 2)?) {
        0 => payload.len(),
        total => total.checked_sub(header_len)?,
    };
    Some(IpHeader {
        source: address4(data, 12)?,
        destination: address4(data, 16)?,
        protocol: data[9],
        fragment: be16(data, 6)? & 0x3fff != 0,
        payload: &payload[..payload.len().min(payload_len)],
        payload_len,
    })
}

fn ipv6(data: &[u8]) -> Option<IpHeader<'_>> {
    if data.first()? >> 4 != 6 {
        return None;
    }
    let payload = data.get(40..)?;
    let payload_len = match usize::from(be16(data, 4)?) {
        0 => payload.len(),
        length => length,
    };
    let mut ip = IpHeader {
        source: address6(data, 8)?,
        destination: address6(data, 24)?,
        protocol: data[6],
        fragment: false,
        payload: &payload[..payload.len().min(payload_len)],
        payload_len,
    };
    for _ in 0..MOST_HEADERS {
        let header_len = match ip.protocol {
            0 | 43 | 60 => usize::from(*ip.payload.get(1)?) * 8 + 8,
            44 => {
                ip.fragment |= be16(ip.payload, 2)? & 0xfff9 != 0;
                8
            }
            _ => return Some(ip),
        };
        ip.protocol = *ip.payload.first()?;
        if ip.fragment {
            return Some(ip);
        }
        ip.payload = ip.payload.get(header_len..)?;
        ip.payload_len = ip.payload_len.checked_sub(header_len)?;
    }
    None
}

fn tcp<'a>(ip: &IpHeader<'a>) -> Option<Segment<'a>> {
    let data = ip.payload;
    let header_len = usize::from(*data.get(12)? >> 4) * 4;
    if header_len < 20 {
        return None;
    }
    Some(Segment {
        source: SocketAddr::new(ip.source, be16(data, 0)?),
        destination: SocketAddr::new(ip.destination, be16(data, 2)?),
        sequence: u32::from_be_bytes(data.get(4..8)?.try_into().ok()?),
        flags: *data.get(13)?,
        payload: data.get(header_len..)?,
        payload_len: u32::try_from(ip.payload_len.checked_sub(header_len)?).ok()?,
    })
}

fn be16(data: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(offset..offset.checked_add(2)?)?.try_into().ok()?))
}

fn address4(data: &[u8], offset: usize) -> Option<IpAddr> {
    let bytes: [u8; 4] = data.get(offset..offset + 4)?.try_into().ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(bytes)))
}

fn address6(data: &[u8], offset: usize) -> Option<IpAddr> {
    let bytes: [u8; 16] = data.get(offset..offset + 16)?.try_into().ok()?;
    Some(IpAddr::V6(Ipv6Addr::from(bytes)))
}
