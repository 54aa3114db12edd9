//! PPPoE and PPP.

use crate::body::{Body, Flow, Step, put};
use crate::text::{Cut, Piece, Printed, escape, name_of};
use fyke_frame::walk::view::PppoeView;
use fyke_frame::walk::{Layer, Start, walk_from};
use fyke_frame::{LinkType, ethertype};

const PPPOE_CODES: &[(u8, &str)] =
    &[(0x00, ""), (0x07, "PADO"), (0x09, "PADI"), (0x19, "PADR"), (0x65, "PADS"), (0xa7, "PADT")];

const PPPOE_TAGS: &[(u16, &str)] = &[
    (0x0000, "EOL"),
    (0x0101, "Service-Name"),
    (0x0102, "AC-Name"),
    (0x0103, "Host-Uniq"),
    (0x0104, "AC-Cookie"),
    (0x0105, "Vendor-Specific"),
    (0x0110, "Relay-Session-ID"),
    (0x0120, "PPP-Max-Payload"),
    (0x0201, "Service-Name-Error"),
    (0x0202, "AC-System-Error"),
    (0x0203, "Generic-Error"),
];

pub(crate) fn pppoe(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = PppoeView::new(body.layers.data(), layer).ok_or(Cut)?;
    let rest = body.end.saturating_sub(layer.header_end());
    let (version, kind) = (view.version_type() >> 4, view.version_type() & 0xf);
    if version != 1 {
        put!(body, " [ver {version}]");
    }
    if kind != 1 {
        put!(body, " [type {kind}]");
    }
    match name_of(PPPOE_CODES, view.code()) {
        Some(name) => put!(body, "PPPoE {name}"),
        None => put!(body, "PPPoE PAD-{:x}", view.code()),
    }
    let length = usize::from(view.length());
    if length > rest {
        put!(body, " [len {length} > {rest}!]");
    }
    body.end = layer.header_end() + length.min(rest);
    if view.session() != 0 {
        put!(body, " [ses {:#x}]", view.session());
    }
    if view.code() == 0 {
        put!(body, " ");
        return Ok(Flow::Next);
    }
    pppoe_tags(body, layer)?;
    Ok(Flow::End)
}

fn pppoe_tags(body: &mut Body, layer: &Layer) -> Result<(), Cut> {
    let tags = body.payload(layer);
    let mut at = 0;
    while at < tags.wire_len {
        let (kind, len) = (tags.be16(at)?, usize::from(tags.be16(at + 2)?));
        let value = tags.take(at + 4, len)?;
        at += 4 + len;
        match name_of(PPPOE_TAGS, kind) {
            Some(name) => put!(body, " [{name}"),
            None => put!(body, " [TAG-{kind:#x}"),
        }
        let shown = &value[..value.len().min(79)];
        let printable = |byte: &&u8| (b' '..=b'~').contains(*byte);
        if value.is_empty() {
        } else if shown.iter().filter(printable).count() * 2 > shown.len() {
            put!(body, " \"");
            let visible = |byte: &u8| if printable(&byte) { *byte as char } else { '.' };
            body.out.extend(shown.iter().map(visible));
            put!(body, "\"");
        } else {
            put!(body, " 0x");
            value.iter().for_each(|byte| put!(body, "{byte:02X}"));
        }
        put!(body, "]");
        if kind == 0 {
            break;
        }
    }
    Ok(())
}

const PPP_PROTOCOLS: &[(u16, &str)] = &[
    (0x0021, "IP"),
    (0x0023, "OSI"),
    (0x002b, "IPX"),
    (0x003d, "MLPPP"),
    (0x0057, "IP6"),
    (0x00fd, "Compressed"),
    (0x0281, "MPLS"),
    (0x0283, "MPLS"),
    (0x8021, "IPCP"),
    (0x8023, "OSICP"),
    (0x8057, "IP6CP"),
    (0x80fd, "CCP"),
    (0x8281, "MPLSCP"),
    (0xc021, "LCP"),
    (0xc023, "PAP"),
    (0xc025, "LQM"),
    (0xc223, "CHAP"),
    (0xc227, "EAP"),
];

pub(crate) fn ppp(body: &mut Body, index: usize) -> Step {
    if body.options.link_header {
        let layer = body.at(index).ok_or(Cut)?;
        let whole = body.whole(layer);
        let number = ppp_number(whole.take(0, layer.header_len.into())?);
        let name = name_of(PPP_PROTOCOLS, number).unwrap_or("unknown");
        put!(body, "{name} ({number:#06x}), length {}: ", whole.wire_len);
    }
    Ok(Flow::Next)
}

fn ppp_number(header: &[u8]) -> u16 {
    match header {
        [.., high, low] if high & 1 == 0 => u16::from_be_bytes([*high, *low]),
        [.., low] => u16::from(*low),
        [] => 0,
    }
}

/// Prints PPP over a serial line, in HDLC-like framing (RFC 1662) or with Cisco's header. Bytes that are escaped
/// (RFC 1662, 4.2) are not restored.
pub(crate) fn serial(body: &mut Body) -> Printed {
    body.protocol = "ppp_hdlc";
    let frame = body.rest();
    frame.take(0, 4)?;
    let (address, control, number) = (frame.u8(0)?, frame.u8(1)?, frame.be16(2)?);
    let (start, skipped) = match address {
        0xff => (ethertype::PPP, 2),
        0x0f | 0x8f => (number, 4),
        _ => {
            put!(body, "unknown addr {address:02x}; ctrl {control:02x}");
            return Ok(());
        }
    };
    if body.options.link_header {
        put!(body, "{address:02x} {control:02x} {} ", frame.wire_len);
    }
    let packet = frame.from(skipped);
    let layers = walk_from(packet.data, packet.wire_len, Start::EtherType(start));
    if layers.is_empty() {
        put!(body, "unknown CHDLC protocol ({number:#06x})");
        return Ok(());
    }
    Body::new(body.options, body.memory, &layers, LinkType::PPP, packet.wire_len, body.out).print();
    Ok(())
}

const PPP_CODES: &[(u8, &str)] = &[
    (1, "Conf-Request"),
    (2, "Conf-Ack"),
    (3, "Conf-Nack"),
    (4, "Conf-Reject"),
    (5, "Term-Request"),
    (6, "Term-Ack"),
    (7, "Code-Reject"),
    (8, "Prot-Reject"),
    (9, "Echo-Request"),
    (10, "Echo-Reply"),
    (11, "Disc-Req"),
    (12, "Ident"),
    (13, "Time-Remaining"),
    (14, "Reset-Req"),
    (15, "Reset-Ack"),
];

/// Prints a PPP protocol that the walk does not follow. Codes of authentication have their own
/// names.
pub(crate) fn unknown(body: &mut Body, number: u16) -> Printed {
    let packet = body.rest();
    body.protocol = "ppp";
    let Some(name) = name_of(PPP_PROTOCOLS, number) else {
        put!(body, "unknown PPP protocol ({number:#06x}), length {}", packet.wire_len);
        return Ok(());
    };
    put!(body, "{name}, ");
    match number {
        0x8021 | 0x8023 | 0x8057 | 0x80fd | 0x8281 | 0xc021 => {
            let code = packet.u8(0)?;
            put!(body, "{} ({code:#04x})", name_of(PPP_CODES, code).unwrap_or("Unknown Opcode"));
            put!(body, ", id {}, length {}", packet.u8(1)?, packet.wire_len + 2);
        }
        0xc023 => pap(body, &packet)?,
        0xc223 => {
            let names = [(1, "Challenge"), (2, "Response"), (3, "Success"), (4, "Fail")];
            let code = packet.u8(0)?;
            put!(body, "{} ({code:#04x})", name_of(&names, code).unwrap_or("Unknown code"));
            put!(body, ", id {}, length {}", packet.u8(1)?, packet.wire_len + 2);
        }
        _ => put!(body, "length {}", packet.wire_len),
    }
    Ok(())
}

/// Prints password authentication. The password itself is shown with `-v` only.
fn pap(body: &mut Body, packet: &Piece) -> Printed {
    let code = packet.u8(0)?;
    let names = [(1, "Auth-Req"), (2, "Auth-ACK"), (3, "Auth-NACK")];
    put!(body, "{} ({code:#04x})", name_of(&names, code).unwrap_or("Unknown code"));
    put!(body, ", id {}", packet.u8(1)?);
    let fields: &[&str] = match (code, body.options.verbose) {
        (1, 0) if !body.options.like_tcpdump => &["Peer"],
        (1, _) => &["Peer", "Name"],
        (2 | 3, _) => &["Msg"],
        _ => &[],
    };
    let mut at = 4;
    for field in fields {
        let len = usize::from(packet.u8(at)?);
        put!(body, ", {field} ");
        escape(packet.take(at + 1, len)?, body.out);
        at += 1 + len;
    }
    Ok(())
}
