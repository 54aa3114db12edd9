//! Devices: creates a veth pair, adds addresses, disables offloads, brings the devices up.
//!
//! Numbers are those of `linux/if_link.h`, `linux/if_addr.h` and `linux/ethtool_netlink.h` (offloads through
//! netlink: Linux 5.6).

use super::WorldError;
use super::netlink::{Family, Netlink, NetlinkError, Request, attribute};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
/// `NLM_F_CREATE | NLM_F_EXCL`
const CREATE: u16 = 0x400 | 0x200;
const UP: u32 = 1;
const AF_INET: u8 = 2;

/// Offloads that join or split segments, or leave checksums to hardware that does not exist.
const OFFLOADS: &[&str] = &[
    "tx-checksum-ip-generic",
    "tx-scatter-gather",
    "tx-generic-segmentation",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "rx-gro",
];

/// Creates a veth pair: `name` in the namespace of this thread, `peer` in the other one.
pub(super) fn make_pair(name: &str, peer: &str, other: &File, mtu: u32) -> Result<(), WorldError> {
    let namespace = other.as_fd().as_raw_fd() as u32;
    let request = Request::new(NEW_LINK, CREATE, &link_header(0, 0))
        .text(3, name)
        .put(4, &mtu.to_ne_bytes())
        .nest(18, &[], |info| {
            info.text(1, "veth").nest(2, &[], |data| {
                data.nest(1, &link_header(0, 0), |end| {
                    end.text(3, peer).put(4, &mtu.to_ne_bytes()).put(28, &namespace.to_ne_bytes())
                })
            })
        });
    let made = Netlink::open(Family::Route).and_then(|mut route| route.ask(request));
    made.map(drop).map_err(|source| WorldError::Link { step: "make a veth pair", source })
}

/// Adds the addresses of a device and brings it up.
pub(super) fn set_up(
    name: &str,
    addresses: impl Iterator<Item = Ipv4Addr>,
    prefix_len: u8,
) -> Result<(), WorldError> {
    let fail = |step| move |source| WorldError::Link { step, source };
    let index = nix::net::if_::if_nametoindex(name)
        .map_err(|errno| fail("find the device")(NetlinkError::Socket(errno.into())))?;
    // Disables router solicitations and similar packets: only the traffic generators should send.
    let quiet = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    let _ = std::fs::write(quiet, "1");
    let mut route = Netlink::open(Family::Route).map_err(fail("open netlink"))?;
    for address in addresses {
        let mut fixed = vec![AF_INET, prefix_len, 0, 0];
        fixed.extend_from_slice(&index.to_ne_bytes());
        let request = Request::new(NEW_ADDRESS, CREATE, &fixed)
            .put(2, &address.octets())
            .put(1, &address.octets());
        route.ask(request).map_err(fail("add an address"))?;
    }
    take_offloads(name).map_err(fail("turn offloads off"))?;
    for device in [index, 1] {
        let request = Request::new(NEW_LINK, 0, &link_header(device, UP));
        route.ask(request).map_err(fail("bring a device up"))?;
    }
    Ok(())
}

/// State of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkState {
    /// Link type, `ARPHRD_…`.
    pub kind: u16,
    /// True if it is up.
    pub is_up: bool,
    /// Longest packet in bytes, without the header of the link.
    pub mtu: u32,
    /// Frames received so far.
    pub received: u64,
    /// Frames sent so far.
    pub sent: u64,
}

/// Reads the state of an interface in the namespace of the calling thread.
///
/// # Errors
/// [`NetlinkError`], such as an unknown name.
pub fn link_state(name: &str) -> Result<LinkState, NetlinkError> {
    const MTU: u16 = 4;
    const STATISTICS: u16 = 23;
    let index =
        nix::net::if_::if_nametoindex(name).map_err(|errno| NetlinkError::Refused(errno.into()))?;
    let mut route = Netlink::open(Family::Route)?;
    let answer = route.ask(Request::new(GET_LINK, 0, &link_header(index, 0)))?;
    let short = || NetlinkError::Answer { len: answer.len() };
    let header = answer.get(..16).ok_or_else(short)?;
    let attributes = answer.get(16..).unwrap_or_default();
    let word = |kind| attribute(attributes, kind)?.try_into().ok().map(u32::from_ne_bytes);
    let counts = attribute(attributes, STATISTICS).unwrap_or_default();
    let count = |number: usize| {
        let bytes = counts.get(8 * number..8 * number + 8)?.try_into().ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    Ok(LinkState {
        kind: u16::from_ne_bytes([header[2], header[3]]),
        is_up: header[8] & UP as u8 != 0,
        mtu: word(MTU).ok_or_else(short)?,
        received: count(0).ok_or_else(short)?,
        sent: count(1).ok_or_else(short)?,
    })
}

/// Disables the offloads that change the form of frames.
fn take_offloads(name: &str) -> Result<(), NetlinkError> {
    const CONTROL: u16 = 16;
    const GET_FAMILY: u8 = 3;
    const SET_FEATURES: u8 = 12;
    let mut generic = Netlink::open(Family::Generic)?;
    let ask = Request::new(CONTROL, 0, &[GET_FAMILY, 1, 0, 0]).text(2, "ethtool");
    let answer = generic.ask(ask)?;
    let number = answer.get(4..).and_then(|attributes| attribute(attributes, 1));
    let number = number.and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let Some(family) = number else {
        return Err(NetlinkError::Socket(io::Error::other("no ethtool family")));
    };
    let request = Request::new(family, 0, &[SET_FEATURES, 1, 0, 0])
        .nest(1, &[], |header| header.text(2, name))
        .nest(3, &[], |wanted| {
            wanted.nest(3, &[], |bits| {
                OFFLOADS
                    .iter()
                    .fold(bits, |bits, offload| bits.nest(1, &[], |bit| bit.text(2, offload)))
            })
        });
    generic.ask(request).map(drop)
}

/// `struct ifinfomsg`
fn link_header(index: u32, flags: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}
