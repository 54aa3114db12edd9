//! TCP: flags, numbers, options; then the application protocol, if a printer knows it.

use crate::application;
use crate::body::{Body, Flow, Step, put};
use crate::show::say;
use crate::text::{self, Cut, Piece, Printed, expected_checksum, name_of};
use crate::{ip, udp};
use fyke_frame::walk::view::{IpView, TcpView, tcp_flags};
use std::net::IpAddr;

const FLAGS: &[(u32, &str)] = &[
    (0x01, "F"),
    (0x02, "S"),
    (0x04, "R"),
    (0x08, "P"),
    (0x10, "."),
    (0x20, "U"),
    (0x40, "E"),
    (0x80, "W"),
];

const OPTIONS: &[(u8, &str)] = &[
    (0, "eol"),
    (1, "nop"),
    (2, "mss"),
    (3, "wscale"),
    (4, "sackOK"),
    (5, "sack"),
    (6, "echo"),
    (7, "echoreply"),
    (8, "TS"),
    (11, "cc"),
    (12, "ccnew"),
    (13, ""),
    (19, "md5"),
    (20, "scps"),
    (28, "uto"),
    (29, "tcp-ao"),
    (30, "mptcp"),
    (34, "tfo"),
    (254, "exp"),
];

pub(crate) fn print(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = TcpView::new(body.layers.data(), layer).ok_or(Cut)?;
    let whole = body.whole(layer);
    let (from, to) = (view.source_port(), view.destination_port());
    let services = body.options.services.as_ref();
    let name = |port: u16| ip::Port(port, services.and_then(|services| services.tcp(port)));
    let (source, destination) = (name(from), name(to));
    ip::ends(body, index, source, destination);
    let header_len = view.header_len().ok_or(Cut)?;
    whole.take(0, 20)?;
    let length = whole.wire_len;
    if header_len < 20 {
        let rest = length.wrapping_sub(header_len) as u32;
        put!(body, " tcp {rest} [bad hdr length {header_len} - too short, < 20]");
        return Ok(Flow::End);
    }
    if body.options.quiet {
        put!(body, "tcp {}", length.wrapping_sub(header_len) as u32);
        if header_len > length {
            put!(body, " [bad hdr length {header_len} - too long, > {length}]");
        }
        return Ok(Flow::End);
    }
    let flags = view.flags().ok_or(Cut)?;
    show_flags(body, flags);
    let numbers = numbers(body, index, &view, flags)?;
    if header_len > length {
        put!(body, " [bad hdr length {header_len} - too long, > {length}]");
        return Ok(Flow::End);
    }
    if body.options.verbose > 0 && !body.fragmented {
        show_checksum(body, index, &view, &whole)?;
    }
    let payload_len = length - header_len;
    let shows_sequence = flags & (tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST) != 0;
    if body.options.verbose > 1 || payload_len > 0 || shows_sequence {
        say!(body, ", seq ", numbers.sequence);
        if payload_len > 0 {
            say!(body, ':', numbers.sequence.wrapping_add(payload_len as u32));
        }
    }
    if flags & tcp_flags::ACK != 0 {
        say!(body, ", ack ", numbers.acknowledgement);
    }
    say!(body, ", win ", view.window().ok_or(Cut)?);
    if flags & tcp_flags::URG != 0 {
        put!(body, ", urg {}", view.urgent().ok_or(Cut)?);
    }
    if header_len > 20 {
        let bytes = Piece { data: view.option_bytes(), wire_len: header_len - 20 };
        if !options(body, &bytes, numbers.sack_start)? {
            return Ok(Flow::End);
        }
    }
    say!(body, ", length ", payload_len);
    if payload_len > 0 {
        whole.take(0, header_len)?;
        let payload = Piece { data: whole.from(header_len).data, wire_len: payload_len };
        if flags & tcp_flags::RST != 0 && body.options.verbose > 0 {
            reset_text(body, &payload);
        } else {
            application::over_tcp(body, from, to, &payload)?;
        }
    }
    Ok(Flow::End)
}

fn show_flags(body: &mut Body, flags: u8) {
    body.out.push_str("Flags [");
    for (bit, letter) in FLAGS {
        if u32::from(flags) & bit != 0 {
            body.out.push_str(letter);
        }
    }
    body.out.push_str(if flags == 0 { "none]" } else { "]" });
}

fn numbers(
    body: &mut Body,
    index: usize,
    view: &TcpView,
    flags: u8,
) -> Result<crate::sequence::Shown, Cut> {
    let sequence = view.sequence().ok_or(Cut)?;
    let acknowledgement = view.acknowledgement().ok_or(Cut)?;
    let plain = crate::sequence::Shown { sequence, acknowledgement, sack_start: 0 };
    if body.options.absolute_sequence || flags & tcp_flags::ACK == 0 {
        return Ok(plain);
    }
    let Some((from, to)) = nearest_ip(body, index) else { return Ok(plain) };
    let source = (view.source_port(), from);
    let destination = (view.destination_port(), to);
    let syn = flags & tcp_flags::SYN != 0;
    Ok(body.memory.sequences.shown(source, destination, sequence, acknowledgement, syn))
}

/// Source and destination address of the IP header around the layer at `index`.
pub(crate) fn nearest_ip(body: &Body, index: usize) -> Option<(IpAddr, IpAddr)> {
    let before = body.layers.as_slice().get(..index)?;
    let layer = before.iter().rfind(|layer| layer.protocol.is_ip())?;
    let ip = IpView::new(body.layers.data(), layer)?;
    Some((ip.source(), ip.destination()))
}

fn show_checksum(body: &mut Body, index: usize, view: &TcpView, whole: &Piece) -> Printed {
    let Ok(bytes) = whole.take(0, whole.wire_len) else { return Ok(()) };
    let Some(sum) = udp::transport_checksum(body, index, 6, bytes) else { return Ok(()) };
    let found = view.checksum().ok_or(Cut)?;
    put!(body, ", cksum {found:#06x}");
    match sum {
        0 => put!(body, " (correct)"),
        _ => put!(body, " (incorrect -> {:#06x})", expected_checksum(found, sum)),
    }
    Ok(())
}

/// Prints the options; false if one of them is bad, which ends the text.
fn options(body: &mut Body, bytes: &Piece, sack_start: u32) -> Result<bool, Cut> {
    body.out.push_str(", options [");
    let mut at = 0;
    while at < bytes.wire_len {
        if at > 0 {
            body.out.push(',');
        }
        let kind = bytes.u8(at)?;
        let len = if kind < 2 { 1 } else { usize::from(bytes.u8(at + 1)?) };
        if at + len > bytes.wire_len || (kind >= 2 && len < 2) {
            put!(body, "[bad opt]");
            if at > 0 {
                put!(body, "]");
            }
            return Ok(false);
        }
        match name_of(OPTIONS, kind) {
            Some(name) => body.out.push_str(name),
            None => put!(body, "unknown-{kind}"),
        }
        if kind >= 2 {
            let value = Piece { data: bytes.take(at + 2, len - 2)?, wire_len: len - 2 };
            if !option(body, kind, &value, sack_start)? {
                put!(body, "[bad opt]{}", if at > 0 { "]" } else { "" });
                return Ok(false);
            }
        }
        at += len;
        if kind == 0 {
            break;
        }
    }
    body.out.push(']');
    Ok(true)
}

/// Prints one option's value; false if it is too short for its kind.
fn option(body: &mut Body, kind: u8, value: &Piece, sack_start: u32) -> Result<bool, Cut> {
    let expected = match kind {
        2 | 20 | 28 => 2,
        3 => 1,
        4 => 0,
        6 | 7 | 11..=13 => 4,
        8 => 8,
        19 => 16,
        _ => value.wire_len,
    };
    if value.wire_len < expected {
        return Ok(false);
    }
    match kind {
        2 => say!(body, ' ', value.be16(0)?),
        3 => say!(body, ' ', value.u8(0)?),
        4 => {}
        5 if !value.wire_len.is_multiple_of(8) => put!(body, " invalid sack"),
        5 => {
            say!(body, ' ', value.wire_len / 8, ' ');
            for at in (0..value.wire_len).step_by(8) {
                let edge = |at| Ok(value.be32(at)?.wrapping_sub(sack_start));
                say!(body, '{', edge(at)?, ':', edge(at + 4)?, '}');
            }
        }
        6 | 7 | 11..=13 => put!(body, " {}", value.be32(0)?),
        8 => say!(body, " val ", value.be32(0)?, " ecr ", value.be32(4)?),
        19 => {
            put!(body, " ");
            text::hex(value.take(0, 16)?, body.out);
        }
        20 => put!(body, " cap {:02x} id {}", value.u8(0)?, value.u8(1)?),
        28 => {
            let raw = value.be16(0)?;
            let seconds = u32::from(raw >> 1) * if raw & 1 == 1 { 60 } else { 1 };
            put!(body, " {raw:#x} {seconds}");
        }
        34 => {
            body.out.push(' ');
            fast_open(body, value.data);
        }
        254 if value.wire_len < 2 => return Ok(false),
        254 if value.be16(0)? == 0xf989 => {
            put!(body, "-tfo");
            fast_open(body, &value.data[2..]);
        }
        254 => put!(body, "-{:04x}", value.be16(0)?),
        _ => {
            if value.wire_len > 0 {
                put!(body, " 0x");
                text::hex(value.data, body.out);
            }
        }
    }
    if value.wire_len != expected {
        put!(body, "[len {}]", value.wire_len + 2);
    }
    Ok(true)
}

fn fast_open(body: &mut Body, cookie: &[u8]) {
    match cookie.len() {
        0 => put!(body, " cookiereq"),
        4..=16 if cookie.len().is_multiple_of(2) => {
            put!(body, " cookie ");
            text::hex(cookie, body.out);
        }
        _ => put!(body, " (invalid)"),
    }
}

/// Prints the text with the reason that a reset may carry.
fn reset_text(body: &mut Body, payload: &Piece) {
    const SHOWN: usize = 30;
    let whole = payload.data.len() >= payload.wire_len;
    put!(body, "{}", if whole { " [RST" } else { " [!RST" });
    let shown = if payload.wire_len > SHOWN { SHOWN } else { payload.wire_len };
    put!(body, "{} ", if payload.wire_len > SHOWN { "+" } else { "" });
    text::escape(&payload.data[..shown.min(payload.data.len())], body.out);
    put!(body, "]");
}
