//! Class `tosocket`: sends each frame as a datagram to another program, over UDP or a Unix socket, and passes it.
//!
//! The receiver gets the captured bytes and nothing else. The node does not wait: a datagram that the system does not
//! accept at once counts as refused. Cost: one system call per frame.

use crate::node::{
    Arrival, Class, Counter, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
use crate::snaplen::{SNAPLEN, cut, snaplen};
use fyke_frame::Mask;
use std::io;
use std::net::{ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;

enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

struct ToSocket {
    socket: Socket,
    snaplen: usize,
    sent: u64,
    refused: u64,
}

impl Node for ToSocket {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            let data = cut(frame, self.snaplen).data;
            let sent = match &self.socket {
                Socket::Udp(socket) => socket.send(data),
                Socket::Unix(socket) => socket.send(data),
            };
            match sent {
                Ok(_) => self.sent += 1,
                // The receiver is full or temporarily absent, or does not accept a frame of this length.
                Err(_) => self.refused += 1,
            }
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("sent", self.sent), Counter::count("refused", self.refused)]
    }
}

/// Destination of the datagrams.
enum Target<'a> {
    Udp(&'a str, u16),
    Unix(&'a str),
}

fn target(settings: &Settings) -> Result<Target<'_>, MakeError> {
    let text = settings.required("expression")?;
    let udp = |end: &'_ str| -> Option<(usize, u16)> {
        let (host, port) = end.rsplit_once(':')?;
        (!host.is_empty()).then_some((host.len(), port.parse().ok()?))
    };
    let found = match text.split_once(':') {
        Some(("udp", end)) => udp(end).map(|(host, port)| Target::Udp(&end[..host], port)),
        Some(("unix", path)) if !path.is_empty() => Some(Target::Unix(path)),
        _ => None,
    };
    found.ok_or_else(|| MakeError::new("expression", "udp:HOST:PORT or unix:PATH is expected"))
}

fn open(target: &Target<'_>) -> io::Result<Socket> {
    match target {
        Target::Udp(host, port) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let not_found = || io::Error::new(io::ErrorKind::NotFound, "no such host");
            let address = (host, *port).to_socket_addrs()?.next().ok_or_else(not_found)?;
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            Ok(Socket::Udp(socket))
        }
        Target::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Ok(Socket::Unix(socket))
        }
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let socket = open(&target(settings)?);
    let socket = socket.map_err(|error| {
        let name = settings.text("expression").unwrap_or_default();
        let hint = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                "; start the program that receives there first"
            }
            _ => "",
        };
        MakeError::refused("expression", format!("{name}: {error}{hint}"))
    })?;
    Ok(Box::new(ToSocket { socket, snaplen: snaplen(settings)?, sent: 0, refused: 0 }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "tosocket",
    aliases: &["to_socket"],
    summary: "sends each frame as a datagram to `expression` and passes it",
    parameters: &[Parameter { name: "expression", summary: "udp:HOST:PORT or unix:PATH" }, SNAPLEN],
    check: Some(|settings| {
        target(settings)?;
        snaplen(settings).map(drop)
    }),
    make,
    opens: |_| Opens::Network,
    ..Class::NODE
};
