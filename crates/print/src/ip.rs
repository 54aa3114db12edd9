//! IPv4, IPv6, extension headers, IPsec.
//!
//! The addresses are printed before the first header after IP; a transport's printer combines them
//! with its ports.

use crate::body::{Body, Flow, Step, put};
use crate::show::{Show, say};
use crate::text::{Cut, Piece, Printed, bits, expected_checksum, name_of};
use crate::{names, routing as protocols};
use fyke_frame::checksum;
use fyke_frame::walk::view::{IpView, Ipv4View, Ipv6View};
use fyke_frame::walk::{Layer, Protocol, Stop};
use std::net::{IpAddr, Ipv4Addr};

/// Protocols with a printer that shows the addresses together with the ports.
const WITH_PORTS: [u8; 4] = [6, 17, 33, 132];

/// Source and destination address of the IP header at `index`.
fn addresses(body: &Body, index: usize) -> Option<(IpAddr, IpAddr)> {
    let ip = IpView::new(body.layers.data(), body.at(index)?)?;
    Some((ip.source(), ip.destination()))
}

/// Last hop of the routing headers between IP and the transport at `index`, if a hop is left.
pub(crate) fn final_destination(body: &Body, index: usize) -> Option<IpAddr> {
    let before = body.layers.as_slice().get(..index)?;
    let start = before.iter().rposition(|layer| layer.protocol.is_ip())?;
    let is_routing = |layer: &&Layer| layer.protocol == Protocol::Routing;
    let header = body.whole(before[start..].iter().rfind(is_routing)?);
    let hops = usize::from(header.u8(1).ok()?) / 2;
    let left = header.u8(3).ok()?;
    if hops == 0 || left == 0 {
        return None;
    }
    let last = match header.u8(2).ok()? {
        0 | 2 => hops - 1,
        // Segments are listed from the last to the first (RFC 8754, 2).
        4 => 0,
        _ => return None,
    };
    header.ipv6(8 + 16 * last).ok().map(|address| IpAddr::V6(address.0))
}

/// Prints `a.1 > b.2: ` if IP is right before the transport at `index`, `1 > 2: ` if there is a
/// header between.
pub(crate) fn ends(body: &mut Body, index: usize, source: impl Show, destination: impl Show) {
    match index.checked_sub(1).and_then(|before| addresses(body, before)) {
        Some((from, to)) => say!(body, from, '.', source, " > ", to, '.', destination, ": "),
        None => say!(body, source, " > ", destination, ": "),
    }
}

/// A port: its name, if the option is set and it has one, or its number.
pub(crate) struct Port<'a>(pub(crate) u16, pub(crate) Option<&'a str>);

impl Show for Port<'_> {
    #[inline]
    fn show(&self, out: &mut String) {
        match self.1 {
            Some(name) => out.push_str(name),
            None => self.0.show(out),
        }
    }
}

pub(crate) fn v4(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = Ipv4View::new(body.layers.data(), layer).ok_or(Cut)?;
    let length = body.whole(layer).wire_len;
    let (total_len, header_len) = (usize::from(view.total_len()), view.header_len());
    body.ip_prefix("IP ");
    if length < total_len {
        put!(body, "truncated-ip - {} bytes missing! ", total_len - length);
    }
    if total_len != 0 && total_len < header_len {
        put!(body, "bad-len {total_len}");
        return Ok(Flow::End);
    }
    if total_len != 0 {
        body.end = layer.offset as usize + total_len;
    }
    body.fragmented = view.more_fragments();
    if body.options.verbose > 0 {
        v4_details(body, &view, layer)?;
    }
    let (source, destination) = (view.source(), view.destination());
    if view.fragment_offset() > 0 {
        let protocol = view.protocol();
        let known = [(1, "icmp"), (2, "igmp"), (6, "tcp"), (17, "udp"), (50, "esp"), (132, "sctp")];
        put!(body, "{source} > {destination}:");
        match name_of(&known, protocol).filter(|_| body.options.services.is_some()) {
            Some(name) => put!(body, " {name}"),
            None => put!(body, " ip-proto-{protocol}"),
        }
        return Ok(Flow::End);
    }
    before_next(body, index, view.protocol(), source.into(), destination.into());
    Ok(Flow::Next)
}

/// Prints the addresses, unless a printer with ports follows.
fn before_next(body: &mut Body, index: usize, protocol: u8, source: IpAddr, destination: IpAddr) {
    let with_ports = WITH_PORTS.contains(&protocol);
    if !with_ports {
        say!(body, source, " > ", destination, ": ");
    } else if body.at(index + 1).is_none() {
        say!(body, source, " > ", destination, ":");
    }
}

fn v4_details(body: &mut Body, view: &Ipv4View, layer: &Layer) -> Result<(), Cut> {
    let congestion = ["", ",ECT(1)", ",ECT(0)", ",CE"];
    put!(body, "(tos {:#x}{}", view.tos(), congestion[usize::from(view.tos() & 3)]);
    if view.ttl() > 0 {
        put!(body, ", ttl {}", view.ttl());
    }
    let flags = u32::from(view.reserved_flag()) << 2
        | u32::from(view.dont_fragment()) << 1
        | u32::from(view.more_fragments());
    let flags = bits(&[(1, "+"), (2, "DF"), (4, "rsvd")], flags, ", ", "none");
    put!(body, ", id {}, offset {}, flags [{flags}]", view.id(), view.fragment_offset());
    put!(body, ", proto {} ({})", names::ip_protocol(view.protocol()), view.protocol());
    put!(body, ", length {}", view.total_len());
    let option_len = view.header_len() - 20;
    if option_len > 0 {
        put!(body, ", options (");
        let options = Piece { data: view.options(), wire_len: option_len };
        let printed = v4_options(body, &options);
        put!(body, "{})", if printed.is_err() { " [truncated-option]" } else { "" });
    }
    if usize::from(layer.header_len) == view.header_len() {
        let header = &body.whole(layer).data[..view.header_len()];
        let sum = checksum(&[header]);
        if sum != 0 {
            let found = view.checksum();
            put!(body, ", bad cksum {found:x} (->{:x})!", expected_checksum(found, sum));
        }
    }
    put!(body, ")\n    ");
    Ok(())
}

const V4_OPTIONS: &[(u8, &str)] = &[
    (0, "EOL"),
    (1, "NOP"),
    (7, "RR"),
    (68, "timestamp"),
    (130, "security"),
    (131, "LSRR"),
    (137, "SSRR"),
    (148, "RA"),
    (152, "RFC1393"),
];

fn v4_options(body: &mut Body, options: &Piece) -> Result<(), Cut> {
    let mut at = 0;
    while at < options.wire_len {
        if at > 0 {
            put!(body, ",");
        }
        let kind = options.u8(at)?;
        match name_of(V4_OPTIONS, kind) {
            Some(name) => put!(body, "{name}"),
            None => put!(body, "unknown {kind}"),
        }
        let len = if kind < 2 { 1 } else { usize::from(options.u8(at + 1)?) };
        if len == 0 || (kind >= 2 && len < 2) || at + len > options.wire_len {
            put!(body, " [bad length {len}]");
            return Ok(());
        }
        let option = options.take(at, len)?;
        match kind {
            0 => return Ok(()),
            7 | 131 | 137 => route(body, option),
            148 if len < 4 => put!(body, " [bad length {len}]"),
            148 => {
                let value = u16::from_be_bytes([option[2], option[3]]);
                if value != 0 {
                    put!(body, " value {value}");
                }
            }
            _ => {}
        }
        at += len;
    }
    Ok(())
}

/// Prints recorded or prescribed routers.
fn route(body: &mut Body, option: &[u8]) {
    if option.len() < 3 {
        return put!(body, " [bad length {}]", option.len());
    }
    if !(option.len() + 1).is_multiple_of(4) {
        put!(body, " [bad length {}]", option.len());
    }
    let pointer = usize::from(option[2]);
    if pointer < 4 || !pointer.is_multiple_of(4) || pointer > option.len() + 2 {
        put!(body, " [bad ptr {pointer}]");
    }
    for (number, hop) in option[3..].chunks_exact(4).enumerate() {
        // A comma follows those that were passed.
        let passed = if pointer > 4 * number + 4 { "," } else { "" };
        put!(body, " {}{passed}", Ipv4Addr::new(hop[0], hop[1], hop[2], hop[3]));
    }
}

pub(crate) fn v6(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = Ipv6View::new(body.layers.data(), layer).ok_or(Cut)?;
    let length = body.whole(layer).wire_len;
    let payload_len = usize::from(view.payload_len());
    body.ip_prefix("IP6 ");
    if payload_len != 0 {
        if length < payload_len + 40 {
            put!(body, "truncated-ip6 - {} bytes missing!", payload_len + 40 - length);
        }
        body.end = layer.header_end() + payload_len;
    }
    body.fragmented = false;
    if body.options.verbose > 0 {
        put!(body, "(");
        if view.traffic_class() != 0 {
            put!(body, "class {:#04x}, ", view.traffic_class());
        }
        if view.flow_label() != 0 {
            put!(body, "flowlabel {:#07x}, ", view.flow_label());
        }
        let next = view.next_header();
        put!(body, "hlim {}, next-header {} ", view.hop_limit(), names::ip_protocol(next));
        put!(body, "({next}) payload length: {payload_len}) ");
    }
    let (source, destination) = (view.source().into(), view.destination().into());
    before_next(body, index, view.next_header(), source, destination);
    Ok(Flow::Next)
}

/// Prints hop-by-hop and destination options.
pub(crate) fn options(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let header = body.whole(layer);
    let len = 8 * (usize::from(header.u8(1)?) + 1);
    let options = header.take(2, len - 2)?;
    let hop_by_hop = layer.protocol == Protocol::HopByHop;
    put!(body, "{} ", if hop_by_hop { "HBH" } else { "DSTOPT" });
    if !hop_by_hop && body.options.verbose == 0 {
        return Ok(Flow::Next);
    }
    let mut rest = options;
    while let [kind, after @ ..] = rest {
        if *kind == 0 {
            rest = after;
            if body.options.verbose > 0 {
                put!(body, "(pad1)");
            }
            continue;
        }
        let (option_len, value) = after.split_first().ok_or(Cut)?;
        let value = value.get(..usize::from(*option_len)).ok_or(Cut)?;
        rest = &after[1 + value.len()..];
        if body.options.verbose > 0 {
            let value = Piece { data: value, wire_len: value.len() };
            match (kind, option_len) {
                (1, _) => put!(body, "(padn)"),
                (5, 2) => put!(body, "(rtalert: {:#06x}) ", value.be16(0)?),
                (0xc2, 4) => put!(body, "(jumbo: {}) ", value.be32(0)?),
                (0xc9, 16) => put!(body, "(homeaddr: {})", value.ipv6(0)?),
                _ => put!(body, "(opt_type {kind:#04x}: len={option_len})"),
            }
        }
    }
    if body.options.verbose > 0 {
        put!(body, " ");
    }
    Ok(Flow::Next)
}

pub(crate) fn routing(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let header = body.whole(layer);
    let (len, kind) = (header.u8(1)?, header.u8(2)?);
    put!(body, "RT6 (len={len}, type={kind}");
    put!(body, "{}, segleft={}", if kind == 0 { " [Deprecated]" } else { "" }, header.u8(3)?);
    match kind {
        0 | 2 => {
            let reserved = header.be32(4)?;
            if reserved != 0 || body.options.verbose > 0 {
                put!(body, ", rsv={reserved:#x}");
            }
        }
        4 => {
            let (last_entry, flags, tag) = (header.u8(4)?, header.u8(5)?, header.be16(6)?);
            put!(body, ", last-entry={last_entry}");
            if flags != 0 || body.options.verbose > 0 {
                put!(body, ", flags={flags:#x}");
            }
            put!(body, ", tag={tag:x}");
        }
        _ => {
            put!(body, " (unknown type)) ");
            return Ok(Flow::Next);
        }
    }
    if len % 2 == 1 {
        put!(body, " (invalid length {len}) (invalid)");
        return Ok(Flow::End);
    }
    for entry in 0..usize::from(len) / 2 {
        put!(body, ", [{entry}]{}", header.ipv6(8 + 16 * entry)?);
    }
    put!(body, ") ");
    Ok(Flow::Next)
}

pub(crate) fn fragment(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let header = body.whole(layer);
    let offset = header.be16(2)? & 0xfff8;
    let size = header.wire_len.saturating_sub(8);
    match body.options.verbose {
        0 => put!(body, "frag ({offset}|{size})"),
        _ => put!(body, "frag ({:#010x}:{offset}|{size})", header.be32(4)?),
    }
    body.fragmented = true;
    if offset != 0 {
        return Ok(Flow::End);
    }
    put!(body, " ");
    // A first fragment with no byte after its header has no protocol to name.
    let empty = body.layers.stop() == Stop::Fragment && body.payload(layer).data.is_empty();
    Ok(if empty { Flow::End } else { Flow::Next })
}

/// Prints extension headers by name only.
pub(crate) fn extension(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let header = body.whole(layer);
    put!(body, "{} (type={}, len={}) ", names::cut(layer.protocol), header.u8(2)?, header.u8(1)?);
    Ok(Flow::Next)
}

pub(crate) fn authentication(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let header = body.whole(layer);
    let len = usize::from(header.u8(1)?);
    put!(body, "AH(");
    if body.options.verbose > 0 {
        put!(body, "length={len}({}-bytes),", 4 * (len + 2));
    }
    let reserved = header.be16(2)?;
    if reserved != 0 {
        put!(body, "reserved={reserved:#x}[MustBeZero],");
    }
    put!(body, "spi={:#010x},seq={:#x},icv=0x", header.be32(4)?, header.be32(8)?);
    let icv_len = (4 * (len + 2)).saturating_sub(12);
    crate::text::hex(header.take(12, icv_len)?, body.out);
    put!(body, "): ");
    Ok(Flow::Next)
}

pub(crate) fn esp(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let header = body.whole(layer);
    put!(body, "ESP(spi={:#010x},seq={:#x})", header.be32(0)?, header.be32(4)?);
    put!(body, ", length {}", header.wire_len);
    Ok(Flow::End)
}

/// Prints an IP protocol that the walk does not follow.
pub(crate) fn unknown(body: &mut Body, number: u8) -> Printed {
    let rest = body.rest();
    if number == 113 && !body.options.quiet {
        return multicast(body, &rest);
    }
    if !protocols::over_ip(body, number, &rest)? {
        put!(body, " ip-proto-{number} {}", rest.wire_len);
    }
    Ok(())
}

/// Prints Pragmatic General Multicast. Source: RFC 3208.
fn multicast(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "pgm";
    let (from, to) = (packet.be16(0)?, packet.be16(2)?);
    ends(body, body.layers.len(), from, to);
    packet.take(0, 16)?;
    put!(body, "PGM, length {}", packet.be16(14)?);
    Ok(())
}
