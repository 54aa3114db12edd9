//! LLC and SNAP. Source: IEEE 802.2, RFC 1042.

use super::{bridge, ipx, isis};
use crate::body::{Body, Flow, Step, put};
use crate::names;
use crate::text::{Cut, Piece, Printed, name_of};
use fyke_frame::walk::view::{EthernetView, MacAddr};
use fyke_frame::walk::{Layer, Protocol};

const SAPS: &[(u8, &str)] = &[
    (0x00, "Null"),
    (0x02, "802.1B I"),
    (0x03, "802.1B G"),
    (0x04, "SNA"),
    (0x06, "IP"),
    (0x0e, "ProWay NM"),
    (0x42, "STP"),
    (0x4e, "RS511"),
    (0x7e, "ISO8208"),
    (0x8e, "ProWay"),
    (0xaa, "SNAP"),
    (0xe0, "IPX"),
    (0xf0, "NetBeui"),
    (0xfe, "OSI"),
    (0xff, "Global"),
];

const UNNUMBERED: &[(u8, &str)] = &[
    (0x03, "ui"),
    (0xe3, "test"),
    (0xaf, "xid"),
    (0x63, "ua"),
    (0x43, "disc"),
    (0x0f, "dm"),
    (0x6f, "sabme"),
    (0x87, "frmr"),
];

const ORGANISATIONS: &[(u32, &str)] = &[
    (0x00_0000, "Ethernet"),
    (0x00_000c, "Cisco"),
    (0x00_005e, "IANA"),
    (0x00_0081, "Nortel Networks SONMP"),
    (0x00_00f8, "Cisco bridged"),
    (0x00_80c2, "Ethernet bridged"),
    (0x00_a03e, "ATM Forum"),
    (0x00_e02f, "DOCSIS Spanning Tree"),
    (0x08_0007, "Appletalk"),
    (0x00_9069, "Juniper"),
    (0x08_0009, "Hewlett-Packard"),
    (0x00_120f, "IEEE 802.3 Private"),
    (0x00_12bb, "ANSI/TIA"),
    (0x00_1b21, "DCBX"),
    (0x00_2320, "Nicira Networks"),
    (0x5c_16c7, "Big Switch Networks"),
    (0xb0_d2f5, "Vello Systems"),
    (0x00_2481, "HP"),
    (0x00_04ea, "HP-Labs"),
    (0x74_8771, "Infoblox Inc"),
    (0xa4_2305, "Open Networking Lab"),
    (0x00_049f, "Freescale"),
    (0x00_15ad, "Netronome"),
    (0x00_1018, "Broadcom"),
    (0x00_e004, "PMC-Sierra"),
    (0xd0_f0db, "Ericsson"),
];

const CISCO: u32 = 0x0c;
const CISCO_PROTOCOLS: &[(u16, &str)] = &[
    (0x010b, "PVST"),
    (0x010c, "VLAN Bridge"),
    (0x0111, "UDLD"),
    (0x2000, "CDP"),
    (0x2003, "VTP"),
    (0x2004, "DTP"),
];

const BRIDGED: u32 = 0x80c2;
const BRIDGED_PROTOCOLS: &[(u16, &str)] = &[
    (1, "Ethernet + FCS"),
    (2, "802.4 + FCS"),
    (3, "Token Ring + FCS"),
    (4, "FDDI + FCS"),
    (7, "Ethernet w/o FCS"),
    (8, "802.4 w/o FCS"),
    (9, "Token Ring w/o FCS"),
    (10, "FDDI w/o FCS"),
    (11, "802.6 + FCS"),
    (12, "802.6 w/o FCS"),
    (14, "BPDU"),
];

pub(crate) fn print(body: &mut Body, index: usize) -> Step {
    let layer = *body.at(index).ok_or(Cut)?;
    body.end = body.end.min(layer.wire_end as usize);
    let whole = body.whole(&layer);
    let (destination, source, control) = (whole.u8(0)?, whole.u8(1)?, whole.u8(2)?);
    let unnumbered = control & 3 == 3;
    let control = if unnumbered { u16::from(control) } else { whole.be16(2)?.swap_bytes() };
    if (destination, source) == (0xff, 0xff) {
        if body.options.link_header {
            put!(body, "IPX 802.3: ");
        }
        ipx::print(body, &whole)?;
        return Ok(Flow::End);
    }
    if body.options.link_header {
        let name = |sap: u8| name_of(SAPS, sap & 0xfe).unwrap_or("Unknown");
        put!(
            body,
            "LLC, dsap {} ({:#04x}) {}, ssap {} ({:#04x}) {}",
            name(destination),
            destination & 0xfe,
            if destination & 1 == 0 { "Individual" } else { "Group" },
            name(source),
            source & 0xfe,
            if source & 1 == 0 { "Command" } else { "Response" },
        );
        match unnumbered {
            true => put!(body, ", ctrl {control:#04x}: "),
            false => put!(body, ", ctrl {control:#06x}: "),
        }
    }
    let rest = body.payload(&layer);
    match (destination & 0xfe, source & 0xfe, control) {
        (0xaa, 0xaa, 3) => return snap(body, index),
        (0x42, 0x42, 3) => bridge::spanning_tree(body, &rest)?,
        (0xe0, 0xe0, 3) => {
            if body.options.link_header {
                put!(body, "IPX 802.2: ");
            }
            ipx::print(body, &rest)?;
        }
        (0xfe, 0xfe, 3) => isis::print(body, &rest)?,
        _ => plain(body, &layer, &whole, unnumbered.then_some(control as u8))?,
    }
    Ok(Flow::End)
}

/// Prints the control field of an LLC header; no printer knows its payload.
fn plain(body: &mut Body, layer: &Layer, whole: &Piece, unnumbered: Option<u8>) -> Printed {
    let (destination, source) = (whole.u8(0)? & 0xfe, whole.u8(1)? & 0xfe);
    if !body.options.link_header {
        let ends = addresses(body, layer);
        if let Some((from, _)) = ends {
            put!(body, "{from} ");
        }
        if source != destination {
            sap(body, source, "SSAP");
        }
        match ends {
            Some((_, to)) => put!(body, "> {to} "),
            None if source != destination => put!(body, "> "),
            None => {}
        }
        sap(body, destination, "DSAP");
    }
    let response = whole.u8(1)? & 1 == 1;
    let flags = |polls: bool| match (polls, response) {
        (false, false) => "Command",
        (false, true) => "Response",
        (true, false) => "Poll",
        (true, true) => "Final",
    };
    let length = whole.wire_len;
    let Some(control) = unnumbered else {
        let control = whole.be16(2)?.swap_bytes();
        let (sent, received) = (control >> 1 & 0x7f, control >> 9 & 0x7f);
        let flags = flags(control & 0x0100 != 0);
        if control & 1 == 0 {
            put!(body, "Information, send seq {sent}, ");
        } else {
            let names = ["Receiver Ready", "Receiver not Ready", "Reject", "?"];
            put!(body, "Supervisory, {}, ", names[usize::from(control >> 2 & 3)]);
        }
        put!(body, "rcv seq {received}, Flags [{flags}], length {length}");
        return Ok(());
    };
    put!(body, "Unnumbered, ");
    match name_of(UNNUMBERED, control & 0xef) {
        Some(name) => put!(body, "{name}"),
        None => put!(body, "{:02x}", control & 0xef),
    }
    put!(body, ", Flags [{}], length {length}", flags(control & 0x10 != 0));
    if control & 0xef == 0xaf && length > 3 && whole.u8(3)? == 0x81 {
        put!(body, ": {:02x} {:02x}", whole.u8(4)?, whole.u8(5)?);
    }
    Ok(())
}

fn sap(body: &mut Body, number: u8, kind: &str) {
    match name_of(SAPS, number) {
        Some(name) => put!(body, "{name} "),
        None if kind == "SSAP" => put!(body, "Unknown SSAP {number:#04x} "),
        None => put!(body, "Unknown DSAP {number:#04x} "),
    }
}

/// Source and destination of the Ethernet header around an LLC header.
fn addresses(body: &Body, llc: &Layer) -> Option<(MacAddr, MacAddr)> {
    let mut layers = body.layers.iter().filter(|layer| layer.level == llc.level);
    let ethernet = layers.find(|layer| layer.protocol == Protocol::Ethernet)?;
    let view = EthernetView::new(body.layers.data(), ethernet)?;
    Some((view.source(), view.destination()))
}

fn snap(body: &mut Body, index: usize) -> Step {
    let layer = *body.at(index).ok_or(Cut)?;
    body.protocol = "snap";
    let header = body.whole(&layer);
    let oui = header.take(3, 3)?;
    let oui = u32::from_be_bytes([0, oui[0], oui[1], oui[2]]);
    let number = header.be16(6)?;
    let bridged = matches!(oui, 0 | 0xf8);
    let kind = match oui {
        0 | 0xf8 | 0x08_0007 => names::ethertype(number),
        CISCO => name_of(CISCO_PROTOCOLS, number),
        BRIDGED => name_of(BRIDGED_PROTOCOLS, number),
        _ => None,
    };
    let kind = kind.unwrap_or("Unknown");
    let organisation = name_of(ORGANISATIONS, oui).unwrap_or("Unknown");
    let rest = body.payload(&layer);
    if body.options.link_header {
        put!(body, "oui {organisation} ({oui:#08x}), ");
        put!(body, "{} ", if oui == 0 { "ethertype" } else { "pid" });
        put!(body, "{kind} ({number:#06x}), length {}: ", rest.wire_len);
    }
    match (oui, number) {
        (CISCO, 0x010b | 0x010c) | (BRIDGED, 14) => bridge::spanning_tree(body, &rest)?,
        (CISCO, 0x0111) => bridge::link_detection(body, &rest)?,
        (CISCO, 0x2000) => bridge::discovery(body, &rest)?,
        (CISCO, 0x2003) => bridge::trunking(body, &rest)?,
        (CISCO, 0x2004) => {
            put!(body, "DTPv{}, length {}", rest.u8(0)?, rest.wire_len);
        }
        _ if bridged => return Ok(Flow::Next),
        _ if body.options.link_header => {}
        _ => {
            if let Some((from, to)) = addresses(body, &layer) {
                put!(body, "{from} > {to} ");
            }
            put!(body, "SNAP, oui {organisation} ({oui:#08x}), ");
            put!(body, "pid {kind} ({number:#06x}), length {}: ", rest.wire_len);
        }
    }
    Ok(Flow::End)
}
