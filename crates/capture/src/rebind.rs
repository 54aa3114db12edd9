//! Interfaces that disappeared and came back: finding them, and binding packet sockets to them again.
//!
//! In a capture that has given up its privileges, its helper process does both, with a copy of its socket
//! ([`PacketSockets`]). The kernel requires no capability for this; but a process that may bind a packet socket may
//! bind it to any interface.

use crate::interfaces::{self, Capture};
use crate::sharing;
use crate::sys::devices;
use crate::sys::packet::PacketSocket;
use fyke_frame::LinkType;
use fyke_privilege::helper::{Opened, Presence, Sockets};
use std::io;
use std::os::fd::BorrowedFd;

/// Access to packet sockets for the helper of a process.
#[derive(Debug, Clone, Copy)]
pub struct PacketSockets;

impl Sockets for PacketSockets {
    fn look(&self, interface: &str) -> io::Result<Option<Presence>> {
        look(interface)
    }

    fn name(&self, ifindex: u32) -> io::Result<Option<String>> {
        let mut devices = devices::devices()?.into_iter();
        Ok(devices.find(|device| device.index == ifindex).map(|device| device.name))
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
    let devices = devices::devices()?;
    let Some(device) = devices.iter().find(|device| device.name == name) else { return Ok(None) };
    let up = device.up;
    // The interface may disappear in between.
    let Ok(Capture { ifindex, link, loopback, .. }) = interfaces::find_in(name, devices) else {
        return Ok(None);
    };
    Ok(Some(Presence { ifindex, link: link.0.into(), loopback, up }))
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
