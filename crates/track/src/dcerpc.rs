//! DCE-RPC: follows the endpoint mapper of a host and expects the connections to the services that it names.
//!
//! Reads the answers to `ept_map` over TCP, IPv4 and IPv6, in both byte orders, in NDR and NDR64: each tower in them
//! gives a protocol, a port and an address. A call is a connection to the mapper. The only other end is the client of
//! the mapper, because many clients use the same port. The client closes its connection to the mapper at once, so the
//! end of that ends nothing. Not read: answers in several fragments or encrypted, and the activation of objects (DCOM).
//! Memory: [`Limits`], 16 towers of an answer. Source: C706 (DCE 1.1: RPC), chapter 12 and appendices I, L and O;
//! MS-RPCE, section 2.2.1.2.

use crate::base::{Base, Controls, Ends, Follows, Offer, each_port};
use crate::records::Record;
use crate::segment::{Content, Segment};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use fyke_frame::Frame;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The answer of the endpoint mapper.
pub const MAP: Cause = Cause::new("DCE-RPC ept_map response");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "dcerpc",
    summary: "DCE-RPC endpoint mapper with the services that it names (port 135)",
    port: 135,
    causes: &[MAP],
    start_filter: |ports| each_port(ports, "tcp port #"),
    held: Some("tcp"),
    make: |ports, limits| Box::new(DceRpc::at_ports(ports, limits)),
};

const RESPONSE: u8 = 2;
/// Flags of a message that is its first and its last fragment.
const WHOLE: u8 = 3;
/// Bytes before the results: the header of an answer, and the handle of `ept_map`.
const HEADER: usize = 24;
const HANDLE: usize = 20;
/// Most bytes of a fragment.
const MOST: usize = 5_840;
/// Most towers of an answer.
const TOWERS: usize = 16;
/// Identifiers of the floors of a tower.
const FLOOR_TCP: u8 = 7;
const FLOOR_UDP: u8 = 8;
const FLOOR_IP: u8 = 9;

/// The tracker.
#[derive(Debug)]
pub struct DceRpc {
    base: Base,
    controls: Controls,
    over_limit: u64,
    other_address: u64,
}

impl Default for DceRpc {
    fn default() -> Self {
        DceRpc::at_ports(&[KIND.port], Limits::default())
    }
}

impl DceRpc {
    /// A tracker of endpoint mappers at these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        DceRpc {
            base: Base::new(&KIND, ports, limits),
            controls: Controls::new(limits, record),
            over_limit: 0,
            other_address: 0,
        }
    }

    fn control(&mut self, ends: Ends, segment: &Segment<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let (call, messages) = self.controls.segment(&mut self.base, ends, segment, now_ns);
        if !ends.from_server {
            return;
        }
        for towers in messages.iter().filter_map(|message| towers(message)) {
            self.over_limit += towers.len().saturating_sub(TOWERS) as u64;
            for tower in towers.into_iter().take(TOWERS) {
                let Some((protocol, host, port)) = service(tower) else { continue };
                let server = ends.server.ip();
                let host = if host.is_unspecified() { server } else { host };
                self.other_address += u64::from(host != server);
                let offer = Offer {
                    end: SocketAddr::new(host, port),
                    protocol,
                    client: ends.client.ip(),
                    pair: true,
                    label: "RPC service",
                    cause: MAP,
                    origin: 0,
                    lifetime_ns: self.base.limits.announced_ns,
                    follows_call: false,
                };
                self.base.expect(call, offer, now_ns, events);
            }
        }
    }
}

/// True if the numbers of a message are little-endian.
fn is_little(message: &[u8]) -> bool {
    message.get(4).is_some_and(|order| order >> 4 == 1)
}

/// The first message of bytes.
fn record(bytes: &[u8]) -> Record {
    let Some(head) = bytes.first_chunk::<16>() else { return Record::Incomplete };
    let length = [head[8], head[9]];
    let length = match is_little(bytes) {
        true => u16::from_le_bytes(length),
        false => u16::from_be_bytes(length),
    };
    match head[0] == 5 && head[1] <= 1 && (16..=MOST).contains(&usize::from(length)) {
        true => Record::Whole(length.into()),
        false => Record::Foreign,
    }
}

/// The towers of an answer to `ept_map`; `None` for any other message.
fn towers(message: &[u8]) -> Option<Vec<&[u8]>> {
    let is_answer = message.get(2) == Some(&RESPONSE) && message.get(3)? & WHOLE == WHOLE;
    // With a verifier the message may be encrypted, so its results are not read.
    if !is_answer || message.get(10..12)? != [0, 0] {
        return None;
    }
    let bytes = message.get(HEADER..)?;
    // Context numbers say which encoding was agreed on; an answer in one is none in the other.
    [4, 8].into_iter().find_map(|width| {
        Results { bytes, at: HANDLE, is_little: is_little(message), width }.towers()
    })
}

/// Results of a call as NDR encodes them: each number is aligned to its size.
struct Results<'a> {
    bytes: &'a [u8],
    at: usize,
    is_little: bool,
    /// Bytes of sizes and pointers: 4, or 8 in NDR64.
    width: usize,
}

impl<'a> Results<'a> {
    fn towers(mut self) -> Option<Vec<&'a [u8]>> {
        let count = u64::from(self.number()?);
        let (most, first, there) = (self.size()?, self.size()?, self.size()?);
        if count != there || first != 0 || there > most || there > self.bytes.len() as u64 / 12 {
            return None;
        }
        for _ in 0..there {
            // A pointer, which is not nil.
            self.size().filter(|pointer| *pointer != 0)?;
        }
        let mut towers = Vec::new();
        for _ in 0..there {
            let (size, length) = (self.size()?, self.number()?);
            if size != u64::from(length) {
                return None;
            }
            towers.push(self.take(length as usize)?);
        }
        // The status is the end.
        (self.number()? == 0 && self.at == self.bytes.len()).then_some(towers)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.at = self.at.next_multiple_of(4);
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn size(&mut self) -> Option<u64> {
        if self.width == 4 {
            return self.number().map(u64::from);
        }
        self.at = self.at.next_multiple_of(8);
        let bytes = self.take(8)?.try_into().ok()?;
        Some(if self.is_little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }
}

/// The service of a tower: its floors have an identifier and a value each.
fn service(tower: &[u8]) -> Option<(Protocol, IpAddr, u16)> {
    let (count, mut rest) = tower.split_first_chunk::<2>()?;
    let (mut port, mut host) = (None, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    for _ in 0..u16::from_le_bytes(*count) {
        let (identifier, value);
        (identifier, rest) = part(rest)?;
        (value, rest) = part(rest)?;
        match (identifier.first(), value) {
            (Some(&FLOOR_TCP), &[high, low]) => port = Some((Protocol::Tcp, high, low)),
            (Some(&FLOOR_UDP), &[high, low]) => port = Some((Protocol::Udp, high, low)),
            (Some(&FLOOR_IP), &[a, b, c, d]) => host = Ipv4Addr::new(a, b, c, d).into(),
            _ => {}
        }
    }
    let (protocol, high, low) = port?;
    Some((protocol, host, u16::from_be_bytes([high, low])))
}

/// A part with its length before it, and what follows.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_le_bytes(*length).into())
}

impl Follows for DceRpc {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        match content {
            Content::Tcp(segment) => match self.base.ends(segment.source, segment.destination) {
                Some(ends) => self.control(ends, &segment, frame.timestamp_ns, events),
                None => drop(self.base.segment(&segment, frame, events)),
            },
            Content::Udp(datagram) => drop(self.base.datagram(&datagram, frame)),
            Content::TcpFragment | Content::UdpFragment | Content::Other => {}
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        self.controls.expire(now_ns);
    }

    fn add_notices(&self, notices: &mut Vec<(&'static str, u64)>) {
        let Self { over_limit, other_address, .. } = *self;
        notices.extend([("unreadable", self.controls.long()), ("over_limit", over_limit)]);
        notices.push(("other_address", other_address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tracker;
    use fyke_frame::LinkType;
    use fyke_testkit::packet::Packet;

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [10, 0, 0, 2];

    /// A tower for TCP: an interface, an encoding, RPC, the port, the address.
    fn tower(port: u16, host: [u8; 4]) -> Vec<u8> {
        let mut bytes = vec![5, 0];
        let [high, low] = port.to_be_bytes();
        let floors: [(&[u8], &[u8]); 5] = [
            (&[13; 19], &[0, 0]),
            (&[13; 19], &[0, 0]),
            (&[11], &[0, 0]),
            (&[FLOOR_TCP], &[high, low]),
            (&[FLOOR_IP], &host),
        ];
        for part in floors.iter().flat_map(|(identifier, value)| [identifier, value]) {
            bytes.extend((part.len() as u16).to_le_bytes());
            bytes.extend(*part);
        }
        bytes
    }

    fn answer(towers: &[Vec<u8>], is_little: bool, width: usize) -> Vec<u8> {
        let number = |n: usize, size: usize| match is_little {
            true => n.to_le_bytes()[..size].to_vec(),
            false => n.to_be_bytes()[8 - size..].to_vec(),
        };
        let mut results = vec![0; HANDLE];
        let add = |results: &mut Vec<u8>, n: usize, size: usize| {
            results.resize(results.len().next_multiple_of(size), 0);
            results.extend(number(n, size));
        };
        let count = towers.len();
        add(&mut results, count, 4);
        [4, 0, count].into_iter().for_each(|n| add(&mut results, n, width));
        (0..count).for_each(|n| add(&mut results, n + 3, width));
        for tower in towers {
            add(&mut results, tower.len(), width);
            add(&mut results, tower.len(), 4);
            results.extend(tower);
        }
        add(&mut results, 0, 4);
        let mut bytes = vec![5, 0, RESPONSE, WHOLE, u8::from(is_little) << 4, 0, 0, 0];
        bytes.extend([number(HEADER + results.len(), 2), vec![0, 0], number(1, 4)].concat());
        bytes.extend([vec![0; 8], results].concat());
        bytes
    }

    #[test]
    fn services_of_all_encodings_are_read_and_damaged_answers_are_not() {
        for (is_little, width) in [(true, 4), (true, 8), (false, 4), (false, 8)] {
            let (one, two) = (tower(49_152, SERVER), tower(50_000, [0; 4]));
            let bytes = answer(&[one.clone(), two.clone()], is_little, width);
            assert_eq!(record(&bytes), Record::Whole(bytes.len()));
            assert_eq!(towers(&bytes), Some(vec![&one[..], &two]), "{is_little} {width}");
            for len in 0..bytes.len() {
                assert_eq!(towers(&bytes[..len]), None, "{len}");
            }
            let mut many = bytes.clone();
            many[HEADER + HANDLE..][..4].fill(255);
            assert_eq!(towers(&many), None);
        }
        assert_eq!(service(&tower(1, SERVER)), Some((Protocol::Tcp, SERVER.into(), 1)));
        assert_eq!(service(&tower(1, SERVER)[..50]), None);
    }

    #[test]
    fn a_service_is_expected_for_the_client_of_the_mapper() {
        let (mut tracker, mut events) = (DceRpc::default(), Vec::new());
        let mut frame = |packet: Packet| {
            let bytes = packet.build();
            tracker.frame(&Frame::new(LinkType::EN10MB, &bytes), &mut events);
            tracker.call().map(|part| part.label)
        };
        let bytes = answer(&[tower(49_152, [0; 4])], true, 4);
        for (at, piece) in bytes.chunks(40).enumerate() {
            let packet = Packet::ethernet().ipv4(SERVER, CLIENT).tcp(135, 4_000).flags(16);
            let sequence = 1 + 40 * at as u32;
            assert_eq!(frame(packet.seq_ack(sequence, 1).payload(piece)), Some(None));
        }
        let syn = |port| Packet::ethernet().ipv4(CLIENT, SERVER).tcp(4_001, port).flags(2);
        assert_eq!(frame(syn(49_153)), None);
        assert_eq!(frame(syn(49_152)), Some(Some("RPC service")));
        let [Event::Open(connection)] = events[..] else { panic!("{events:?}") };
        assert_eq!((connection.only_host(), connection.cause), (Some(CLIENT.into()), MAP));
    }
}
