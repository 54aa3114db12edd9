//! ARP and RARP.

use crate::body::{Body, Flow, Step, put};
use crate::names;
use crate::show::{Show, say};
use crate::text::{Cut, hex, name_of};
use fyke_frame::ethertype;
use fyke_frame::walk::view::ArpView;
use std::net::Ipv4Addr;

const ARP_OPERATIONS: &[(u16, &str)] = &[
    (1, "Request"),
    (2, "Reply"),
    (3, "Reverse Request"),
    (4, "Reverse Reply"),
    (8, "Inverse Request"),
    (9, "Inverse Reply"),
    (10, "NACK Reply"),
];

const HARDWARE: &[(u16, &str)] = &[
    (1, "Ethernet"),
    (6, "TokenRing"),
    (7, "ArcNet"),
    (15, "FrameRelay"),
    (23, "Strip"),
    (24, "IEEE 1394"),
    (19, "ATM"),
    (32, "InfiniBand"),
];

pub(crate) fn print(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = ArpView::new(body.layers.data(), layer).ok_or(Cut)?;
    let length = body.whole(layer).wire_len;
    view.target_protocol().ok_or(Cut)?;
    if !body.options.link_header {
        say!(body, "ARP, ");
    }
    let about_ip = matches!(view.protocol(), ethertype::IPV4 | 0x1000);
    let unusual = !about_ip || view.protocol_len() != 4 || view.hardware_len() == 0;
    if unusual || body.options.verbose > 0 {
        match name_of(HARDWARE, view.hardware()) {
            Some(name) => put!(body, "{name}"),
            None => put!(body, "Unknown Hardware ({})", view.hardware()),
        }
        put!(body, " (len {}), ", view.hardware_len());
        match names::ethertype(view.protocol()) {
            Some(name) => put!(body, "{name}"),
            None => put!(body, "Unknown Protocol ({:#06x})", view.protocol()),
        }
        put!(body, " (len {})", view.protocol_len());
    }
    if !unusual || body.options.verbose > 0 {
        if body.options.verbose > 0 {
            put!(body, ", ");
        }
        match name_of(ARP_OPERATIONS, view.operation()) {
            Some(name) => say!(body, name, ' '),
            None => put!(body, "Unknown ({}) ", view.operation()),
        }
        operation(body, &view, about_ip)?;
    }
    say!(body, ", length ", length);
    Ok(Flow::End)
}

/// An address of the network layer.
enum Network {
    Ip(Ipv4Addr),
    Odd(&'static str),
}

impl Show for Network {
    fn show(&self, out: &mut String) {
        match self {
            Network::Ip(address) => address.show(out),
            Network::Odd(text) => text.show(out),
        }
    }
}

/// An address of the link layer, of any length.
struct Hardware<'a>(&'a [u8]);

impl Show for Hardware<'_> {
    fn show(&self, out: &mut String) {
        for (at, byte) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(':');
            }
            hex(&[*byte], out);
        }
    }
}

fn operation(body: &mut Body, view: &ArpView, about_ip: bool) -> Result<(), Cut> {
    let address = |bytes: Option<&[u8]>| -> Result<Network, Cut> {
        let bytes = bytes.ok_or(Cut)?;
        Ok(match <[u8; 4]>::try_from(bytes) {
            _ if !about_ip => Network::Odd("<wrong proto type>"),
            Ok(octets) => Network::Ip(octets.into()),
            Err(_) => Network::Odd("<wrong len>"),
        })
    };
    fn hardware(bytes: Option<&[u8]>) -> Result<Hardware<'_>, Cut> {
        Ok(Hardware(bytes.ok_or(Cut)?))
    }
    match view.operation() {
        1 => {
            say!(body, "who-has ", address(view.target_protocol())?);
            let target = hardware(view.target_hardware())?;
            if target.0.iter().any(|byte| *byte != 0) {
                say!(body, " (", target, ')');
            }
            say!(body, " tell ", address(view.sender_protocol())?);
        }
        2 => {
            say!(body, address(view.sender_protocol())?, " is-at ");
            say!(body, hardware(view.sender_hardware())?);
        }
        3 | 8 => {
            say!(body, "who-is ", hardware(view.target_hardware())?);
            say!(body, " tell ", hardware(view.sender_hardware())?);
        }
        4 => {
            say!(body, hardware(view.target_hardware())?, " at ");
            say!(body, address(view.target_protocol())?);
        }
        9 => {
            say!(body, hardware(view.sender_hardware())?, " at ");
            say!(body, address(view.sender_protocol())?);
        }
        _ => {}
    }
    Ok(())
}
