//! Interfaces that disappeared and came back: finding them, and binding packet sockets to them again.
//!
//! In a capture that has given up its privileges, its helper process does both, with a copy of its socket
//! ([`PacketSockets`]). The kernel requires no capability for this; but a process that may bind a packet socket may
//! bind it to any interface.

use crate::interfaces::{self, Capture};
use crate::sharing;
use crate::sys::devices::{self, Device};
use crate::sys::packet::PacketSocket;
use fyke_frame::LinkType;
use fyke_privilege::helper::{self, Opened, Presence, Sockets};
use std::io;
use std::os::fd::BorrowedFd;

/// Access to packet sockets for the helper of a process.
#[derive(Debug, Clone, Copy)]
pub struct PacketSockets;

impl Sockets for PacketSockets {
    fn look(&self, interface: &str) -> io::Result<Option<Presence>> {
        look(interface)
    }

    fn named(&self, ifindex: u32) -> io::Result<Option<(String, Presence)>> {
        named(ifindex)
    }

    fn bind(&self, socket: BorrowedFd<'_>, to: &Presence, promiscuous: bool) -> io::Result<()> {
        bind(&PacketSocket::copy(socket)?, to, promiscuous)
    }

    fn open_group(
        &self,
        plan: &[u8],
        count: usize,
        to: &Presence,
        promiscuous: bool,
    ) -> io::Result<Vec<Opened>> {
        sharing::open_group(plan, count, to, promiscuous)
    }
}

/// The interface of this name, if it exists now.
pub(crate) fn look(name: &str) -> io::Result<Option<Presence>> {
    if devices::index(name).is_none() {
        return Ok(None);
    }
    // The interface may disappear in between.
    Ok(presence(name, devices::devices()?))
}

/// The interface of this index, with its name, if it exists now: an interface that is renamed keeps its index.
pub(crate) fn named(ifindex: u32) -> io::Result<Option<(String, Presence)>> {
    let devices = devices::devices()?;
    let name = devices.iter().find(|device| device.index == ifindex);
    let Some(name) = name.map(|device| device.name.clone()) else { return Ok(None) };
    Ok(presence(&name, devices).map(|presence| (name, presence)))
}

/// As [`named`], by the helper of this process if there is one.
pub(crate) fn named_here(ifindex: u32) -> io::Result<Option<(String, Presence)>> {
    helper::current().map_or_else(|| named(ifindex), |helper| helper.named(ifindex))
}

/// The label of a captured interface in notices, and whether it is up: its name at the start, and the one that it has
/// now if that is another. `None` if it does not exist any more.
pub(crate) fn label(name: &str, ifindex: u32) -> io::Result<Option<(String, bool)>> {
    let found = named_here(ifindex)?;
    Ok(found.map(|(now, presence)| match now == name {
        true => (now, presence.up),
        false => (format!("{name} (now {now})"), presence.up),
    }))
}

fn presence(name: &str, devices: Vec<Device>) -> Option<Presence> {
    let up = devices.iter().find(|device| device.name == name)?.up;
    let Capture { ifindex, link, loopback, .. } = interfaces::find_in(name, devices).ok()?;
    Some(Presence { ifindex, link: link.0.into(), loopback, up })
}

/// The link type of an interface.
pub(crate) fn link(found: &Presence) -> Option<LinkType> {
    u16::try_from(found.link).ok().map(LinkType)
}

/// Binds a socket to an interface.
pub(crate) fn bind(socket: &PacketSocket, to: &Presence, promiscuous: bool) -> io::Result<()> {
    socket.bind(to.ifindex)?;
    if promiscuous { socket.promiscuous(to.ifindex) } else { Ok(()) }
}
