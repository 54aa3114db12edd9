//! ARP and RARP.

use crate::body::{Body, Flow, Step, put};
use crate::names;
use crate::text::{Cut, name_of};
use fyke_frame::ethertype;
use fyke_frame::walk::view::ArpView;

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
        put!(body, "ARP, ");
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
            Some(name) => put!(body, "{name} "),
            None => put!(body, "Unknown ({}) ", view.operation()),
        }
        operation(body, &view, about_ip)?;
    }
    put!(body, ", length {length}");
    Ok(Flow::End)
}

fn operation(body: &mut Body, view: &ArpView, about_ip: bool) -> Result<(), Cut> {
    let address = |bytes: Option<&[u8]>| -> Result<String, Cut> {
        let bytes = bytes.ok_or(Cut)?;
        Ok(match <[u8; 4]>::try_from(bytes) {
            _ if !about_ip => "<wrong proto type>".to_string(),
            Ok(octets) => std::net::Ipv4Addr::from(octets).to_string(),
            Err(_) => "<wrong len>".to_string(),
        })
    };
    let hardware = |bytes: Option<&[u8]>| -> Result<String, Cut> {
        let bytes = bytes.ok_or(Cut)?;
        let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(parts.join(":"))
    };
    match view.operation() {
        1 => {
            put!(body, "who-has {}", address(view.target_protocol())?);
            let target = view.target_hardware().ok_or(Cut)?;
            if target.iter().any(|byte| *byte != 0) {
                put!(body, " ({})", hardware(Some(target))?);
            }
            put!(body, " tell {}", address(view.sender_protocol())?);
        }
        2 => {
            put!(body, "{} is-at ", address(view.sender_protocol())?);
            put!(body, "{}", hardware(view.sender_hardware())?);
        }
        3 | 8 => {
            put!(body, "who-is {}", hardware(view.target_hardware())?);
            put!(body, " tell {}", hardware(view.sender_hardware())?);
        }
        4 => {
            put!(body, "{} at ", hardware(view.target_hardware())?);
            put!(body, "{}", address(view.target_protocol())?);
        }
        9 => {
            put!(body, "{} at ", hardware(view.sender_hardware())?);
            put!(body, "{}", address(view.sender_protocol())?);
        }
        _ => {}
    }
    Ok(())
}
