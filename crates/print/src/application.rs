//! Application protocols over TCP and UDP, by port. Payload of other protocols is shown by its
//! length.

mod dhcp;
pub(crate) mod dns;
mod lines;
mod ntp;
mod small;

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed};

/// Prints the text after the length of a TCP segment, if any.
pub(crate) fn over_tcp(body: &mut Body, from: u16, to: u16, payload: &Piece) -> Printed {
    let on = |ports: &[u16]| ports.contains(&from) || ports.contains(&to);
    let text = |body: &mut Body, name, methods| {
        put!(body, ": ");
        lines::print(body, name, methods, payload)
    };
    if on(&[25]) {
        text(body, "smtp", None)
    } else if on(&[43]) {
        text(body, "whois", None)
    } else if on(&[22]) {
        lines::ssh(body, payload);
        Ok(())
    } else if on(&[21]) {
        text(body, "ftp", None)
    } else if on(&[80, 8080]) {
        text(body, "http", Some(lines::HTTP))
    } else if on(&[554, 8554]) {
        text(body, "rtsp", Some(lines::RTSP))
    } else if on(&[5060]) {
        text(body, "sip", Some(lines::SIP))
    } else if on(&[53]) {
        dns::over_tcp(body, payload)
    } else {
        Ok(())
    }
}

/// Prints a UDP payload; false if no printer knows the ports.
pub(crate) fn over_udp(body: &mut Body, from: u16, to: u16, payload: &Piece) -> Result<bool, Cut> {
    let on = |ports: &[u16]| ports.contains(&from) || ports.contains(&to);
    if on(&[53]) {
        dns::print(body, payload, false)?;
    } else if on(&[5353]) {
        dns::print(body, payload, true)?;
    } else if on(&[69]) {
        small::tftp(body, payload)?;
    } else if on(&[67, 68]) {
        dhcp::v4(body, payload)?;
    } else if on(&[520]) {
        crate::routing::rip(body, payload)?;
    } else if on(&[123]) {
        ntp::print(body, payload)?;
    } else if on(&[546, 547]) {
        dhcp::v6(body, payload)?;
    } else if on(&[5060]) {
        lines::print(body, "sip", Some(lines::SIP), payload)?;
    } else if on(&[514]) {
        small::syslog(body, payload)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}
