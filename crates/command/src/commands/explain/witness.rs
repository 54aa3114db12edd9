//! `fyke explain --witness`: finds a packet with different verdicts in the compat and the scoped reading.
//!
//! Packets are built from values in the expression (addresses, ports, tags, protocols), in plain form and with tags,
//! labels, sessions, tunnels, fragmentation, extension headers or truncation. Both readings evaluate each packet. The
//! shortest packet on which they differ is shown, with the result of each primitive. If there is none, the number of
//! packets tried is shown; this does not prove that the readings agree.

mod dress;

use super::super::Failure;
use fyke_filter::{Options, Predicate, PrimitiveKind as Kind, Reading};
use fyke_frame::{Frame, LinkType, OutOfBounds};
use fyke_print::{PrintOptions, Printer, TimeStyle};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Limit on packets that are tried.
const MAX_TRIED: usize = 200_000;
/// Time limit for trying packets.
const SEARCH_LIMIT: Duration = Duration::from_secs(2);
/// Limit on values of one kind that are taken from an expression.
const MAX_VALUES: usize = 6;
/// Addresses and ports for packets if the expression has none. Source: RFC 5737, RFC 3849.
const OTHER4: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1)];
const OTHER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const OTHER_PORT: u16 = 40_000;

/// Values that an expression names.
#[derive(Default)]
struct Named {
    ip: Vec<Ipv4Addr>,
    ip6: Vec<Ipv6Addr>,
    ports: Vec<u16>,
    protocols: Vec<u8>,
    vlans: Vec<u16>,
    labels: Vec<u32>,
    sessions: Vec<u16>,
    networks: Vec<u32>,
    macs: Vec<[u8; 6]>,
}

/// A packet and the description of how it was built.
struct Candidate {
    what: String,
    bytes: Vec<u8>,
}

/// Searches for a packet and describes it.
pub fn of(compat: &Predicate, options: &Options) -> Result<String, Failure> {
    if !dress::knows(compat.link()) {
        let message = "--witness builds packets only for some link types with IP:";
        let (known, link) = (dress::LINKS.join(", "), compat.link());
        return Err(Failure::Usage(format!("{message} {known}; not for {link}")));
    }
    let by_meaning = Options { reading: Reading::Scoped, ..*options };
    let scoped = fyke_filter::compile(compat.text(), &by_meaning)
        .map_err(|error| Failure::Usage(format!("invalid in the scoped reading: {error}")))?;
    let mut best: Option<Candidate> = None;
    let (mut tried, until) = (0, Instant::now() + SEARCH_LIMIT);
    let mut in_time = true;
    candidates(&named(compat), compat.link(), &mut |candidate| {
        tried += 1;
        let shorter = best.as_ref().is_none_or(|best| candidate.bytes.len() < best.bytes.len());
        let frame = Frame::new(compat.link(), &candidate.bytes);
        // Each packet gets fresh state, because the scoped reading remembers fragments.
        if shorter && scoped.afresh().accepts(&frame) != compat.accepts(&frame) {
            best = Some(candidate);
        }
        in_time = Instant::now() < until;
        tried < MAX_TRIED && in_time
    });
    let mut out = String::new();
    let Some(best) = best else {
        if !in_time {
            let limit = SEARCH_LIMIT.as_secs();
            return Ok(format!("no packet found in time ({tried} tried in {limit} s)\n"));
        }
        let _infallible = writeln!(
            out,
            "the readings agree on all {tried} packets tried; that does not prove that they always do"
        );
        return Ok(out);
    };
    let frame = Frame::new(compat.link(), &best.bytes);
    let _infallible = writeln!(out, "the readings differ on this packet: {}", best.what);
    let print =
        PrintOptions { time: TimeStyle::None, link_header: true, ..PrintOptions::default() };
    out.push_str("  ");
    Printer::new(print).line(&frame, &mut out);
    out.push('\n');
    for line in best.bytes.chunks(16) {
        let hex: Vec<String> = line
            .chunks(2)
            .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        let _infallible = writeln!(out, "  {}", hex.join(" "));
    }
    results(&mut out, "compat", compat, &frame);
    results(&mut out, "scoped", &scoped.afresh(), &frame);
    Ok(out)
}

/// Writes the result of each primitive.
fn results(out: &mut String, name: &str, predicate: &Predicate, frame: &Frame) {
    let mut answers = String::new();
    let verdict = predicate.trace(frame, &mut |primitive, answer| {
        let word = match answer {
            Ok(true) => "yes",
            Ok(false) => "no",
            Err(OutOfBounds) => "cannot be read",
        };
        let _infallible = writeln!(answers, "  {word:>14}  {primitive}");
    });
    let verdict = if verdict == Ok(true) { "accepts" } else { "rejects" };
    let _infallible = write!(out, "{name} {verdict} it\n{answers}");
}

fn named(predicate: &Predicate) -> Named {
    let mut named = Named::default();
    for primitive in predicate.root().primitives() {
        match &primitive.kind {
            Kind::Host { address: IpAddr::V4(address), .. } => named.ip.push(*address),
            Kind::Host { address: IpAddr::V6(address), .. } => named.ip6.push(*address),
            Kind::Net { network, .. } => named.ip.push(*network),
            Kind::Net6 { network, .. } => named.ip6.push(*network),
            Kind::Port { port, .. } => named.ports.push(*port),
            Kind::PortRange { low, .. } => named.ports.push(*low),
            Kind::Protocol { number, .. } | Kind::ProtocolChain { number, .. } => {
                named.protocols.extend(u8::try_from(*number).ok());
            }
            Kind::Vlan(Some(identifier)) => named.vlans.push(*identifier),
            Kind::Mpls(Some(label)) => named.labels.push(*label),
            Kind::PppoeSession(Some(session)) => named.sessions.push(*session),
            Kind::Geneve(Some(network)) => named.networks.push(*network),
            Kind::EtherHost { address, .. } => named.macs.push(*address),
            Kind::IpMulticast | Kind::EtherMulticast => named.ip.push(Ipv4Addr::new(224, 0, 0, 5)),
            _ => {}
        }
    }
    named.ip.extend(OTHER4);
    named.ip6.push(OTHER6);
    named.ports.push(OTHER_PORT);
    named.protocols.extend([17, 6]);
    named.vlans.push(1);
    named.labels.push(16);
    named.sessions.push(1);
    named.networks.push(1);
    named.macs.push([2, 0, 0, 0, 0, 1]);
    named.ip.dedup();
    named.ip.truncate(MAX_VALUES);
    named.ip6.truncate(MAX_VALUES);
    named.ports.truncate(MAX_VALUES);
    named.protocols.truncate(MAX_VALUES);
    named.macs.truncate(2);
    named
}

/// Passes packets to `give` until it has enough: plain packets, and packets in one additional header of each kind.
fn candidates(named: &Named, link: LinkType, give: &mut dyn FnMut(Candidate) -> bool) {
    for (what, number, packet) in packets(named) {
        for (how, number, packet) in around(named, number, &packet) {
            let bytes = match link {
                LinkType::EN10MB => ethernet(named, number, &packet),
                other => match dress::header(other, number) {
                    Some(header) => [header, packet].concat(),
                    None => continue,
                },
            };
            let what = format!("{what}{how}");
            if !give(Candidate { what, bytes }) {
                return;
            }
        }
    }
}

/// Builds network packets with their EtherTypes.
fn packets(named: &Named) -> Vec<(String, u16, Vec<u8>)> {
    let mut packets = Vec::new();
    for &protocol in &named.protocols {
        for &port in &named.ports {
            for ports in [(OTHER_PORT, port), (port, OTHER_PORT)] {
                let transport = transport(protocol, ports);
                for &address in &named.ip {
                    for (from, to) in [(OTHER4[0], address), (address, OTHER4[1])] {
                        versions4(&mut packets, from, to, protocol, &transport);
                    }
                }
                for &address in &named.ip6 {
                    for (from, to) in [(OTHER6, address), (address, OTHER6)] {
                        versions6(&mut packets, from, to, protocol, &transport);
                    }
                }
            }
        }
    }
    packets
}

fn versions4(
    into: &mut Vec<(String, u16, Vec<u8>)>,
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    transport: &[u8],
) {
    let name = protocol_name(protocol);
    into.push((format!("{name} over IPv4"), 0x0800, ip(from, to, protocol, 0, transport)));
    let later = ip(from, to, protocol, 0x0010, &[0; 8]);
    into.push((format!("a later fragment of {name} over IPv4"), 0x0800, later));
    let cut = ip(from, to, protocol, 0, transport)[..21].to_vec();
    into.push((format!("{name} over IPv4, cut short"), 0x0800, cut));
}

fn versions6(
    into: &mut Vec<(String, u16, Vec<u8>)>,
    from: Ipv6Addr,
    to: Ipv6Addr,
    protocol: u8,
    transport: &[u8],
) {
    let name = protocol_name(protocol);
    into.push((format!("{name} over IPv6"), 0x86dd, ip6(from, to, protocol, transport)));
    for (number, extension) in [(0, "hop-by-hop options"), (60, "destination options")] {
        let options = [&[protocol, 0, 1, 4, 0, 0, 0, 0], transport].concat();
        let what = format!("{name} after {extension} over IPv6");
        into.push((what, 0x86dd, ip6(from, to, number, &options)));
    }
    let fragment = [&[protocol, 0, 0, 1, 0, 0, 0, 1], transport].concat();
    into.push((
        format!("a first fragment of {name} over IPv6"),
        0x86dd,
        ip6(from, to, 44, &fragment),
    ));
}

/// Returns the plain packet, and the packet inside one header of each kind.
fn around(named: &Named, number: u16, packet: &[u8]) -> Vec<(String, u16, Vec<u8>)> {
    let mut all = vec![(String::new(), number, packet.to_vec())];
    let carried = number.to_be_bytes();
    for &vlan in &named.vlans {
        let tag = [vlan.to_be_bytes(), carried].concat();
        let twice = [vlan.to_be_bytes(), [0x81, 0x00]].concat();
        all.push((format!(", tagged {vlan}"), 0x8100, [&tag, packet].concat()));
        all.push((format!(", tagged {vlan} twice"), 0x88a8, [&twice, &tag, packet].concat()));
    }
    for &label in &named.labels {
        let entry = (label << 12 | 0x140).to_be_bytes();
        all.push((format!(", labelled {label}"), 0x8847, [&entry, packet].concat()));
    }
    for &session in &named.sessions {
        let ppp: u16 = if number == 0x0800 { 0x0021 } else { 0x0057 };
        let header = [
            &[0x11, 0][..],
            &session.to_be_bytes(),
            &(packet.len() as u16 + 2).to_be_bytes(),
            &ppp.to_be_bytes(),
        ]
        .concat();
        all.push((format!(", in PPPoE session {session}"), 0x8864, [&header, packet].concat()));
    }
    let [from, to] = OTHER4;
    let over_ip = |what: &str, protocol: u8, header: &[u8]| {
        let body = [header, packet].concat();
        (format!(", in {what}"), 0x0800, ip(from, to, protocol, 0, &body))
    };
    let in_ip = if number == 0x0800 { 4 } else { 41 };
    all.push(over_ip("IPv4", in_ip, &[]));
    all.push(over_ip("GRE", 47, &[&[0, 0], &carried[..]].concat()));
    let inner = ethernet(named, number, packet);
    let over_udp = |what: String, port: u16, header: &[u8], body: &[u8]| {
        let udp = udp((OTHER_PORT, port), &[header, body].concat());
        (what, 0x0800, ip(from, to, 17, 0, &udp))
    };
    let vxlan = [8, 0, 0, 0, 0, 0, 1, 0];
    all.push(over_udp(", in VXLAN".to_string(), 4789, &vxlan, &inner));
    for &network in &named.networks {
        let [_, a, b, c] = network.to_be_bytes();
        let geneve = [0, 0, 0x65, 0x58, a, b, c, 0];
        all.push(over_udp(format!(", in Geneve network {network}"), 6081, &geneve, &inner));
    }
    all
}

fn ethernet(named: &Named, number: u16, packet: &[u8]) -> Vec<u8> {
    let to = named.macs[0];
    let from = named.macs.get(1).copied().unwrap_or([2, 0, 0, 0, 0, 2]);
    [&to[..], &from, &number.to_be_bytes(), packet].concat()
}

fn ip(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, fragment: u16, body: &[u8]) -> Vec<u8> {
    let length = (20 + body.len() as u16).to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let mut header = vec![0x45, 0, length[0], length[1], 0, 1, fragment[0], fragment[1]];
    header.extend([64, protocol, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let sum =
        header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(body);
    header
}

fn ip6(from: Ipv6Addr, to: Ipv6Addr, next: u8, body: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((body.len() as u16).to_be_bytes());
    header.extend([next, 64]);
    header.extend(from.octets());
    header.extend(to.octets());
    header.extend(body);
    header
}

/// Builds a transport header, with ports if the protocol has them.
fn transport(protocol: u8, ports: (u16, u16)) -> Vec<u8> {
    let ends = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    match protocol {
        6 => [&ends[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]].concat(),
        17 => udp(ports, &[]),
        132 => [&ends[..], &[0; 8]].concat(),
        _ => vec![8, 0, 0, 0, 0, 1, 0, 1],
    }
}

fn udp(ports: (u16, u16), body: &[u8]) -> Vec<u8> {
    let length = (8 + body.len() as u16).to_be_bytes();
    [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &length, &[0, 0], body].concat()
}

fn protocol_name(protocol: u8) -> String {
    match protocol {
        1 => "ICMP".to_string(),
        6 => "TCP".to_string(),
        17 => "UDP".to_string(),
        58 => "ICMPv6".to_string(),
        132 => "SCTP".to_string(),
        other => format!("protocol {other}"),
    }
}
