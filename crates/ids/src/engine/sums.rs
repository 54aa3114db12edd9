//! Checksums of packets: a receiver drops a packet with a wrong one, so an attacker could show such packets to rules
//! only, and hide what the receiver reads.
//!
//! Judged are the header of IPv4, TCP and UDP, of packets that are captured whole. Cost: one pass over the packet.

use fyke_frame::checksum;
use fyke_frame::walk::view::{TcpView, UdpView};
use fyke_frame::walk::{Protocol, Scope};
use std::net::IpAddr;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Treatment of packets with a wrong checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksums {
    /// They are judged.
    Ignored,
    /// They are not judged.
    Required,
    /// They are not judged once their sender has used a right one in the flow, with a SYN or with payload. Before, they
    /// may have been captured before a device computed their checksums, or have other addresses than when it did.
    #[default]
    Learned,
}

/// Checksums of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// All are right.
    Right,
    /// One is wrong.
    Wrong,
    /// There is none to judge.
    Unknown,
}

/// The parts of a packet of which the checksums mean something.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// The header of IP: false for a packet that was put together here.
    pub header: bool,
    /// The transport: false if a device still has to compute it.
    pub transport: bool,
    /// Packets that may have been joined from segments, which then have the sum of the pseudo-header only.
    pub joined: bool,
}

/// Longest packet that comes over most networks, in bytes; a device or the kernel has joined a longer one.
const LONGEST: usize = 1500;

/// Judges the checksums of a level of a frame with these bytes.
pub fn of(level: &Scope<'_, '_>, data: &[u8], parts: Parts) -> Sum {
    if parts.header
        && let Some(layer) = level.find(Protocol::Ipv4)
        && let (Some(header), Some(four)) = (data.get(layer.header_range()), level.ipv4())
        && header.len() == four.header_len()
        && checksum(&[header]) != 0
    {
        return Sum::Wrong;
    }
    if !parts.transport || level.fragment().is_some_and(|fragment| !fragment.is_whole()) {
        return Sum::Unknown;
    }
    let Some(ip) = level.ip() else { return Sum::Unknown };
    let ends = (ip.source(), ip.destination());
    let sum = match (level.tcp(), level.udp()) {
        (Some(tcp), _) if parts.joined && is_joined(ends, &tcp) => None,
        (Some(tcp), _) => of_tcp(ends, &tcp),
        (None, Some(udp)) => of_udp(ends, &udp),
        (None, None) => None,
    };
    match sum {
        Some(0) => Sum::Right,
        Some(_) => Sum::Wrong,
        None => Sum::Unknown,
    }
}

/// Sum of a segment, 0 if it is right; none if the capture has cut it.
fn of_tcp(ends: (IpAddr, IpAddr), tcp: &TcpView<'_>) -> Option<u16> {
    let (header, payload) = (tcp.header(), tcp.payload());
    let whole = tcp.header_len() == Some(header.len()) && payload.len() == tcp.wire_payload_len();
    let len = u32::try_from(header.len() + payload.len()).ok()?;
    if whole { over(ends, TCP, len, header, payload) } else { None }
}

/// True if a segment is longer than a packet of most networks, and has the sum of the pseudo-header only.
fn is_joined(ends: (IpAddr, IpAddr), tcp: &TcpView<'_>) -> bool {
    let len = tcp.header().len() + tcp.wire_payload_len();
    len > LONGEST - 20
        && u32::try_from(len).is_ok_and(|len| {
            let sum = over(ends, TCP, len, &[], &[]);
            sum.is_some_and(|sum| tcp.checksum() == Some(!sum))
        })
}

/// Sum of a datagram, 0 if it is right; none if it has none, or the capture has cut it.
fn of_udp(ends: (IpAddr, IpAddr), udp: &UdpView<'_>) -> Option<u16> {
    let (header, payload) = (udp.header(), udp.payload());
    let len = udp.length().map(usize::from)?;
    let has_sum = udp.checksum().is_some_and(|sum| sum != 0);
    let whole = header.len() == 8 && len == 8 + payload.len();
    if whole && has_sum { over(ends, UDP, len as u32, header, payload) } else { None }
}

/// Sum of the pseudo-header with a length, a header of even length and a payload.
fn over(
    ends: (IpAddr, IpAddr),
    protocol: u8,
    len: u32,
    header: &[u8],
    payload: &[u8],
) -> Option<u16> {
    let end = [len.to_be_bytes(), [0, 0, 0, protocol]].concat();
    let sum = |from: &[u8], to: &[u8]| checksum(&[from, to, &end, header, payload]);
    match ends {
        (IpAddr::V4(from), IpAddr::V4(to)) => Some(sum(&from.octets(), &to.octets())),
        (IpAddr::V6(from), IpAddr::V6(to)) => Some(sum(&from.octets(), &to.octets())),
        _ => None,
    }
}
