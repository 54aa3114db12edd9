//! Application protocols over TCP and UDP, by port. Payload of other protocols is shown by its
//! length.

mod control;
mod dhcp;
pub(crate) mod dns;
mod ike;
mod lines;
mod ntp;
mod pptp;
mod small;
mod snmp;
mod telnet;

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed};

/// Prints the text after the length of a TCP segment, if any.
pub(crate) fn over_tcp(body: &mut Body, from: u16, to: u16, payload: &Piece) -> Printed {
    let on = |ports: &[u16]| ports.contains(&from) || ports.contains(&to);
    let text = |body: &mut Body, name, methods| {
        body.out.push_str(": ");
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
    } else if on(&[5060]) && !body.options.like_tcpdump {
        text(body, "sip", Some(lines::SIP))
    } else if on(&[53]) {
        dns::over_tcp(body, payload)
    } else if on(&[23]) {
        telnet::print(body, payload)
    } else if on(&[179]) {
        put!(body, ": BGP");
        Ok(())
    } else if on(&[1723]) {
        pptp::print(body, payload)
    } else if on(&[6633, 6653]) {
        put!(body, ": OpenFlow");
        Ok(())
    } else if on(&[646]) {
        control::ldp(body, payload)
    } else {
        Ok(())
    }
}

/// Prints the payload of the UDP header at `index`; false if no printer knows the ports.
pub(crate) fn over_udp(
    body: &mut Body,
    index: usize,
    from: u16,
    to: u16,
    payload: &Piece,
) -> Result<bool, Cut> {
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
    } else if on(&[500, 7500, 8500]) {
        ike::print(body, index, payload)?;
    } else if on(&[4500]) {
        ike::in_udp(body, index, payload)?;
    } else if on(&[161, 162]) {
        snmp::print(body, payload)?;
    } else {
        return between_devices(body, from, to, payload);
    }
    Ok(true)
}

/// Prints what network devices send each other over UDP; false if no printer knows the ports.
fn between_devices(body: &mut Body, from: u16, to: u16, payload: &Piece) -> Result<bool, Cut> {
    let on = |ports: &[u16]| ports.contains(&from) || ports.contains(&to);
    if on(&[88, 750]) {
        control::kerberos(body, payload)?;
    } else if on(&[1701]) {
        control::l2tp(body, payload)?;
    } else if [from, to].iter().any(|port| (7000..=7009).contains(port)) {
        control::rx(body, payload)?;
    } else if on(&[521]) {
        control::ripng(body, payload)?;
    } else if on(&[6696, 6697]) {
        control::babel(body, payload)?;
    } else if on(&[1645, 1646, 1812, 1813, 1700, 3799]) {
        control::radius(body, payload)?;
    } else if to == 1985 {
        control::hsrp(body, payload)?;
    } else if on(&[646]) {
        control::ldp(body, payload)?;
    } else if from == 49152 {
        control::broadcom(body, payload)?;
    } else if [3784, 3785, 4784, 6784].contains(&to) {
        control::bfd(body, to, payload)?;
    } else if on(&[6343]) {
        control::sflow(body, payload)?;
    } else if on(&[4342]) {
        control::lisp(body, payload)?;
    } else if on(&[4789]) {
        crate::tunnel::loose_vxlan(body, payload)?;
    } else if to == 6081 {
        crate::tunnel::bad_geneve(body, payload)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}
