//! Tunnel headers.

use crate::body::{Body, Flow, Step, put};
use crate::names;
use crate::text::{Cut, Piece, Printed, bits, hex};
use fyke_frame::walk::view::{GeneveView, GreView, GtpuView, VxlanView};

const GRE_FLAGS: &[(u32, &str)] = &[
    (0x8000, "checksum present"),
    (0x4000, "routing present"),
    (0x2000, "key present"),
    (0x1000, "sequence# present"),
    (0x0800, "source routing present"),
    (0x0080, "ack present"),
];

pub(crate) fn gre(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = GreView::new(body.layers.data(), layer).ok_or(Cut)?;
    let whole = body.whole(layer);
    put!(body, "GREv{}", view.version());
    if body.options.verbose > 0 {
        put!(body, ", Flags [{}]", bits(GRE_FLAGS, view.flags().into(), ", ", "none"));
    }
    if view.version() == 0 && view.flags() & 0xc000 != 0 {
        if body.options.verbose > 0 {
            put!(body, ", sum {:#x}", whole.be16(4)?);
        }
        put!(body, ", off {:#x}", whole.be16(6)?);
    }
    if view.flags() & 0x2000 != 0 {
        let key = view.key().ok_or(Cut)?;
        match view.version() {
            0 => put!(body, ", key={key:#x}"),
            _ => put!(body, ", call {}", key & 0xffff),
        }
    }
    if view.flags() & 0x1000 != 0 {
        put!(body, ", seq {}", view.sequence().ok_or(Cut)?);
    }
    if view.version() == 1 && view.flags() & 0x0080 != 0 {
        put!(body, ", ack {}", view.acknowledgement().ok_or(Cut)?);
    }
    let without_payload = view.version() == 1 && view.flags() & 0x1000 == 0;
    if without_payload {
        put!(body, ", no-payload");
    }
    if body.options.link_header {
        let number = view.protocol();
        let name = names::ethertype(number).unwrap_or("unknown");
        put!(body, ", proto {name} ({number:#06x})");
    }
    put!(body, ", length {}", whole.wire_len);
    if without_payload {
        return Ok(Flow::End);
    }
    body.break_or(": ");
    if body.options.like_tcpdump && !followed(&view) {
        put!(body, "gre-proto-{:#x}", view.protocol());
        return Ok(Flow::End);
    }
    Ok(Flow::Next)
}

/// True for the payloads of GRE that tcpdump follows.
fn followed(view: &GreView) -> bool {
    use fyke_frame::ethertype::{IPV4, IPV6, MPLS, PPP, TRANSPARENT_ETHERNET};
    match view.version() {
        0 => [IPV4, IPV6, MPLS, TRANSPARENT_ETHERNET].contains(&view.protocol()),
        _ => view.protocol() == PPP,
    }
}

pub(crate) fn erspan(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let header = body.whole(layer);
    let session = header.be16(2)? & 0x3ff;
    let kind = if header.u8(0)? >> 4 == 1 { "II" } else { "III" };
    put!(body, "ERSPAN type {kind}, session {session}, vlan {}", header.be16(0)? & 0xfff);
    body.break_or(": ");
    Ok(Flow::Next)
}

pub(crate) fn ether_ip(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    put!(body, "etherip, length {}", body.whole(layer).wire_len);
    body.break_or(": ");
    Ok(Flow::Next)
}

pub(crate) fn vxlan(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = VxlanView::new(body.layers.data(), layer).ok_or(Cut)?;
    let flags = bits(&[(0x08, "I")], view.flags().into(), "", "invalid");
    put!(body, "VXLAN, flags [{flags}] ({:#04x}), vni {}", view.flags(), view.vni());
    match body.options.like_tcpdump {
        true => put!(body, "\n"),
        false => body.break_or(": "),
    }
    Ok(Flow::Next)
}

/// Prints a VXLAN header that the walk does not follow: one from the port, without the flag I or
/// too short.
pub(crate) fn loose_vxlan(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "vxlan";
    put!(body, "VXLAN");
    if packet.wire_len < 8 {
        put!(body, " (invalid)");
        return Ok(());
    }
    let first = packet.u8(0)?;
    let flags = bits(&[(0x08, "I")], first.into(), "", "invalid");
    put!(body, ", flags [{flags}] ({first:#04x}), vni {}", packet.be32(4)? >> 8);
    Ok(())
}

/// Prints a Geneve header that the walk does not follow: too short or of another version.
pub(crate) fn bad_geneve(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "geneve";
    put!(body, "Geneve");
    if packet.wire_len < 8 {
        put!(body, " [length {} < 8] (invalid)", packet.wire_len);
        return Ok(());
    }
    match packet.u8(0)? >> 6 {
        0 => Err(Cut),
        version => {
            put!(body, " ERROR: unknown-version {version}");
            Ok(())
        }
    }
}

const GENEVE_FLAGS: &[(u32, &str)] = &[
    (0x80, "O"),
    (0x40, "C"),
    (0x20, "R1"),
    (0x10, "R2"),
    (0x08, "R3"),
    (0x04, "R4"),
    (0x02, "R5"),
    (0x01, "R6"),
];

pub(crate) fn geneve(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = GeneveView::new(body.layers.data(), layer).ok_or(Cut)?;
    let header = body.whole(layer);
    let flags = bits(GENEVE_FLAGS, header.u8(1)?.into(), "", "none");
    put!(body, "Geneve, Flags [{flags}], vni {:#x}", view.vni());
    let reserved = header.u8(7)?;
    if reserved != 0 {
        put!(body, ", rsvd {reserved:#x}");
    }
    if body.options.link_header {
        let number = view.protocol();
        let name = names::ethertype(number).unwrap_or("unknown");
        put!(body, ", proto {name} ({number:#06x})");
    }
    let option_len = 4 * usize::from(header.u8(0)? & 0x3f);
    let missing = (8 + option_len).saturating_sub(header.wire_len);
    if missing > 0 {
        put!(body, " truncated-geneve - {missing} bytes missing");
        return Ok(Flow::End);
    }
    let options = header.take(8, option_len)?;
    if option_len > 0 {
        put!(body, ", options [");
        match body.options.verbose {
            0 => put!(body, "{option_len} bytes"),
            _ => geneve_options(body, options),
        }
        put!(body, "]");
    }
    body.break_or(": ");
    Ok(Flow::Next)
}

fn geneve_options(body: &mut Body, options: &[u8]) {
    let mut rest = options;
    while let [class_high, class_low, kind, len, after @ ..] = rest {
        if rest.len() < options.len() {
            put!(body, ", ");
        }
        let class = u16::from_be_bytes([*class_high, *class_low]);
        let critical = if kind & 0x80 != 0 { "(C)" } else { "" };
        let len = 4 * usize::from(len & 0x1f);
        let name = match class {
            0 => "Standard",
            0x0100 => "Linux",
            0x0101 => "Open vSwitch",
            0x0102 => "Open Virtual Networking (OVN)",
            0x0103 => "In-band Network Telemetry (INT)",
            0x0104 => "VMware",
            0xfff0.. => "Experimental",
            _ => "Unknown",
        };
        put!(body, "class {name} ({class:#x}) type {kind:#x}{critical} len {}", len + 4);
        let Some(data) = after.get(..len) else {
            return put!(body, " [bad option length {len} > {}]", after.len());
        };
        if !data.is_empty() && body.options.verbose > 1 {
            put!(body, " data");
            for word in data.chunks(4) {
                put!(body, " ");
                hex(word, body.out);
            }
        }
        rest = &after[len..];
    }
}

const GTP_MESSAGES: &[(u8, &str)] = &[
    (1, "echo request"),
    (2, "echo response"),
    (26, "error indication"),
    (31, "supported extension headers notification"),
    (254, "end marker"),
    (255, "data"),
];

pub(crate) fn gtpu(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = GtpuView::new(body.layers.data(), layer).ok_or(Cut)?;
    match crate::text::name_of(GTP_MESSAGES, view.message()) {
        Some(name) => put!(body, "GTP-U, {name}"),
        None => put!(body, "GTP-U, message {}", view.message()),
    }
    put!(body, ", teid {:#x}", view.teid());
    if let Some(sequence) = view.sequence() {
        put!(body, ", seq {sequence}");
    }
    put!(body, ", length {}", view.length());
    if view.message() != 255 {
        return Ok(Flow::End);
    }
    body.break_or(": ");
    Ok(Flow::Next)
}
