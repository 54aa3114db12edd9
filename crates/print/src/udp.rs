//! UDP and similar transports.

use crate::application;
use crate::body::{Body, Flow, Step, put};
use crate::show::say;
use crate::text::{Cut, Piece, expected_checksum};
use crate::{ip, names, tcp};
use fyke_frame::checksum;
use fyke_frame::walk::Protocol;
use fyke_frame::walk::view::UdpView;
use std::net::IpAddr;

pub(crate) fn print(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let view = UdpView::new(body.layers.data(), layer).ok_or(Cut)?;
    let whole = body.whole(layer);
    let (from, to) = (view.source_port(), view.destination_port());
    let services = body.options.services.as_ref();
    let name = |port: u16| ip::Port(port, services.and_then(|services| services.udp(port)));
    let (source, destination) = (name(from), name(to));
    ip::ends(body, index, source, destination);
    let mut length = whole.wire_len;
    if length < 8 {
        put!(body, "truncated-udp {length}");
        return Ok(Flow::End);
    }
    let claimed = match usize::from(view.length().ok_or(Cut)?) {
        0 if length > 65_535 => length,
        claimed => claimed,
    };
    if claimed < 8 {
        put!(body, "truncated-udplength {claimed}");
        return Ok(Flow::End);
    }
    whole.take(0, 8)?;
    let claimed = claimed - 8;
    length = (length - 8).min(claimed);
    if body.options.verbose > 0 && !body.fragmented {
        show_checksum(body, index, &view, &whole, length)?;
    }
    let tunnel = match body.kind(index + 1) {
        Some(Protocol::Gtpu) => !body.options.like_tcpdump,
        next => next.is_some(),
    };
    if tunnel && !body.options.quiet {
        body.end = layer.header_end() + length;
        return Ok(Flow::Next);
    }
    let payload = Piece { data: whole.from(8).data, wire_len: length };
    if body.options.quiet || !application::over_udp(body, index, from, to, &payload)? {
        plain(body, claimed, length);
    }
    Ok(Flow::End)
}

fn plain(body: &mut Body, claimed: usize, length: usize) {
    if claimed > length && !body.fragmented {
        put!(body, "UDP, bad length {claimed} > {length}");
    } else {
        say!(body, "UDP, length ", claimed);
    }
}

fn show_checksum(
    body: &mut Body,
    index: usize,
    view: &UdpView,
    whole: &Piece,
    length: usize,
) -> Result<(), Cut> {
    let Some((from, _)) = tcp::nearest_ip(body, index) else { return Ok(()) };
    if from.is_ipv4() && body.options.verbose < 2 {
        return Ok(());
    }
    let found = view.checksum().ok_or(Cut)?;
    if from.is_ipv4() && found == 0 {
        put!(body, "[no cksum] ");
        return Ok(());
    }
    let Ok(bytes) = whole.take(0, length + 8) else { return Ok(()) };
    match transport_checksum(body, index, 17, bytes) {
        Some(0) => put!(body, "[udp sum ok] "),
        Some(sum) => {
            let expected = expected_checksum(found, sum);
            put!(body, "[bad udp cksum {found:#06x} -> {expected:#06x}!] ");
        }
        None => {}
    }
    Ok(())
}

/// The checksum of a transport's bytes with the pseudo-header of the IP header around: 0 if it is
/// right. The pseudo-header has the final destination of a source route (RFC 8200, 8.1).
pub(crate) fn transport_checksum(
    body: &Body,
    index: usize,
    protocol: u8,
    bytes: &[u8],
) -> Option<u16> {
    let (source, destination) = tcp::nearest_ip(body, index)?;
    let destination = ip::final_destination(body, index).unwrap_or(destination);
    let len = u32::try_from(bytes.len()).ok()?.to_be_bytes();
    let tail = [len[0], len[1], len[2], len[3], 0, 0, 0, protocol];
    Some(match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            checksum(&[&from.octets(), &to.octets(), &tail, bytes])
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            checksum(&[&from.octets(), &to.octets(), &tail, bytes])
        }
        _ => return None,
    })
}

/// UDP-Lite and DCCP: ports and a length.
pub(crate) fn similar(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let whole = body.whole(layer);
    let (from, to) = (whole.be16(0)?, whole.be16(2)?);
    if layer.protocol == Protocol::UdpLite {
        // The addresses are printed already: only four protocols are printed together with their
        // ports.
        put!(body, "{from} > {to}: ");
    } else {
        ip::ends(body, index, from, to);
    }
    let payload_len = whole.wire_len.saturating_sub(layer.header_len.into());
    put!(body, "{}, length {payload_len}", names::cut(layer.protocol).to_ascii_uppercase());
    Ok(Flow::End)
}
