//! Where a frame can go: a capture file, a ring in shared memory, a socket, an interface, a counter.

use super::rings::{Ring, Rings};
use crate::commands::Failure;
use anyhow::Context;
use fyke_capture::{Interface, InterfaceSink, Sink, WriteOptions};
use fyke_frame::{Frame, LinkType};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// An endpoint.
pub struct Endpoint {
    kind: Kind,
    /// Number of the last delivery.
    last: Option<u64>,
    /// Frames that a socket's reader did not take.
    refused: u64,
    name: String,
}

enum Kind {
    Sink(Box<dyn Sink>),
    Udp(UdpSocket),
    Unix(UnixDatagram),
    Ring(Ring),
    Count,
}

impl Endpoint {
    /// Opens what a name stands for: `ring:PATH`, `udp:HOST:PORT`, `unix:PATH`, `if:NAME`, `count`, else a file.
    pub fn open(
        name: &str,
        interfaces: &[Interface],
        snaplen: u32,
        rings: &Rings,
    ) -> Result<Self, Failure> {
        let kind = if name == "count" {
            Kind::Count
        } else if let Some(path) = name.strip_prefix("ring:") {
            let link = interfaces.first().map_or(LinkType::EN10MB, |interface| interface.link);
            Kind::Ring(Ring::open(Path::new(path), link, rings)?)
        } else if let Some(address) = name.strip_prefix("udp:") {
            let local = if address.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(local)?;
            socket.connect(address).with_context(|| format!("cannot send to {name}"))?;
            Kind::Udp(socket)
        } else if let Some(path) = name.strip_prefix("unix:") {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path).with_context(|| format!("cannot send to {name}"))?;
            Kind::Unix(socket)
        } else if let Some(interface) = name.strip_prefix("if:") {
            Kind::Sink(Box::new(InterfaceSink::open(interface)?))
        } else {
            let interfaces = interfaces.to_vec();
            let options = WriteOptions { snaplen, interfaces, ..WriteOptions::default() };
            Kind::Sink(fyke_capture::create_file(Path::new(name), options)?)
        };
        Ok(Endpoint { kind, last: None, refused: 0, name: name.to_owned() })
    }

    /// Takes a frame, unless it got this delivery before.
    pub fn give(
        &mut self,
        frame: &Frame<'_>,
        interface: &Interface,
        delivery: u64,
    ) -> Result<(), Failure> {
        if self.last.replace(delivery) == Some(delivery) {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Sink(sink) => sink.write(interface, frame)?,
            // A datagram that nobody takes is lost, as on the wire; it is counted.
            Kind::Udp(socket) => self.refused += u64::from(socket.send(frame.data).is_err()),
            Kind::Unix(socket) => self.refused += u64::from(socket.send(frame.data).is_err()),
            Kind::Ring(ring) => ring.give(frame, delivery),
            Kind::Count => {}
        }
        Ok(())
    }

    /// Hands on what was taken.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if let Kind::Sink(sink) = &mut self.kind {
            sink.flush()?;
        }
        Ok(())
    }

    /// Ends it.
    pub fn finish(mut self) -> Result<(), Failure> {
        if let Kind::Ring(ring) = &self.kind {
            self.refused = ring.refused;
        }
        if self.refused > 0 {
            eprintln!("fyke: {}: {} frames were not taken", self.name, self.refused);
        }
        if let Kind::Sink(sink) = self.kind {
            sink.finish()?;
        }
        Ok(())
    }
}
