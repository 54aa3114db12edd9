//! Skinny (SCCP) of Cisco's phones: follows them and expects the media of their calls, RTP and RTCP over UDP.
//!
//! Reads where a phone listens (open receive channel acknowledgement) and where it sends to (start media transmission),
//! over TCP, with addresses of both forms of the protocol. A call is a phone's control connection; when a channel is
//! closed, its ends go once they are silent. Memory: [`Limits`]. Source: the messages as tshark and ndpi read them;
//! the protocol has no public specification.

use crate::base::{Base, Controls, Ends, Follows, Offer, each_port};
use crate::records::Record;
use crate::segment::{Content, Segment};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use fyke_frame::Frame;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The phone listens.
pub const LISTENS: Cause = Cause::new("Skinny OpenReceiveChannelAck");
/// The phone is told to send.
pub const SENDS: Cause = Cause::new("Skinny StartMediaTransmission");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "skinny",
    summary: "Skinny (SCCP) phones with RTP and RTCP (port 2000)",
    port: 2_000,
    causes: &[LISTENS, SENDS],
    start_filter: |ports| each_port(ports, "tcp port #"),
    held: Some(crate::kind::HELD_MEDIA),
    make: |ports, limits| Box::new(Skinny::at_ports(ports, limits)),
};

const OPEN_RECEIVE_CHANNEL_ACK: u32 = 0x22;
const START_MEDIA_TRANSMISSION: u32 = 0x8a;
const STOP_MEDIA_TRANSMISSION: u32 = 0x8b;
const CLOSE_RECEIVE_CHANNEL: u32 = 0x106;
/// Versions from this one on have addresses of both families.
const BOTH_FAMILIES: u32 = 17;
/// Most bytes of a message.
const MOST: usize = 4_096;

/// The tracker.
#[derive(Debug)]
pub struct Skinny {
    base: Base,
    controls: Controls,
}

impl Default for Skinny {
    fn default() -> Self {
        Skinny::at_ports(&[KIND.port], Limits::default())
    }
}

impl Skinny {
    /// A tracker of call managers at these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        Skinny { base: Base::new(&KIND, ports, limits), controls: Controls::new(limits, record) }
    }

    fn control(&mut self, ends: Ends, segment: &Segment<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let (call, messages) = self.controls.segment(&mut self.base, ends, segment, now_ns);
        for bytes in messages {
            match message(&bytes) {
                Some(Message::Channel { end, party, cause }) => {
                    let ports = [(end.port(), "RTP audio"), (end.port() | 1, "RTCP audio")];
                    for (port, label) in ports.into_iter().take(2 - usize::from(end.port() % 2)) {
                        let offer = Offer {
                            end: SocketAddr::new(end.ip(), port),
                            protocol: Protocol::Udp,
                            client: ends.sender(),
                            pair: false,
                            label,
                            cause,
                            origin: u64::from(party),
                            lifetime_ns: self.base.limits.announced_ns,
                            follows_call: true,
                        };
                        self.base.expect(call, offer, now_ns, events);
                    }
                }
                Some(Message::Closed { party }) => {
                    self.base.expectations.replace(call, u64::from(party), &[], now_ns);
                }
                None => {}
            }
        }
    }
}

/// The first message of bytes.
fn record(bytes: &[u8]) -> Record {
    let Some(head) = bytes.first_chunk::<12>() else { return Record::Incomplete };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let version = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    match (4..=MOST).contains(&length) && version <= 0xff {
        true => Record::Whole(8 + length),
        false => Record::Foreign,
    }
}

/// A message that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Channel { end: SocketAddr, party: u32, cause: Cause },
    Closed { party: u32 },
}

fn message(bytes: &[u8]) -> Option<Message> {
    let version = word(bytes, 4)?;
    let data = bytes.get(12..)?;
    let (address, cause) = match word(bytes, 8)? {
        OPEN_RECEIVE_CHANNEL_ACK if word(data, 0)? == 0 => (data.get(4..)?, LISTENS),
        START_MEDIA_TRANSMISSION => (data.get(8..)?, SENDS),
        STOP_MEDIA_TRANSMISSION | CLOSE_RECEIVE_CHANNEL => {
            return Some(Message::Closed { party: word(data, 4)? });
        }
        _ => return None,
    };
    let (host, rest) = if version >= BOTH_FAMILIES {
        let (family, rest) = (word(address, 0)?, address.get(4..)?);
        let host: &[u8; 16] = rest.first_chunk()?;
        let four = Ipv4Addr::new(host[0], host[1], host[2], host[3]);
        (if family == 0 { four.into() } else { Ipv6Addr::from(*host).into() }, rest.get(16..)?)
    } else {
        let host: &[u8; 4] = address.first_chunk()?;
        (IpAddr::from(*host), address.get(4..)?)
    };
    let port = u16::try_from(word(rest, 0)?).ok()?;
    let party = if cause == LISTENS { word(rest, 4)? } else { word(data, 4)? };
    Some(Message::Channel { end: SocketAddr::new(host, port), party, cause })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

impl Follows for Skinny {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        match content {
            Content::Tcp(segment) => {
                if let Some(ends) = self.base.ends(segment.source, segment.destination) {
                    self.control(ends, &segment, frame.timestamp_ns, events);
                }
            }
            Content::Udp(datagram) => drop(self.base.datagram(&datagram, frame)),
            Content::TcpFragment | Content::UdpFragment | Content::Other => {}
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        self.controls.expire(now_ns);
    }

    fn add_notices(&self, notices: &mut Vec<(&'static str, u64)>) {
        notices.push(("unreadable", self.controls.long()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(version: u32, id: u32, words: &[u32], address: &[u8], more: &[u32]) -> Vec<u8> {
        let mut data: Vec<u8> = id.to_le_bytes().to_vec();
        words.iter().for_each(|word| data.extend(word.to_le_bytes()));
        data.extend(address);
        more.iter().for_each(|word| data.extend(word.to_le_bytes()));
        let mut bytes = (data.len() as u32).to_le_bytes().to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn channels_of_both_forms_are_read() {
        let end = SocketAddr::from(([10, 0, 0, 7], 24_000));
        let channel = |cause| Some(Message::Channel { end, party: 5, cause });
        let old = built(0, OPEN_RECEIVE_CHANNEL_ACK, &[0], &[10, 0, 0, 7], &[24_000, 5]);
        assert_eq!((message(&old), record(&old)), (channel(LISTENS), Record::Whole(old.len())));
        let host = [10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let new = built(17, OPEN_RECEIVE_CHANNEL_ACK, &[0, 0], &host, &[24_000, 5]);
        assert_eq!(message(&new), channel(LISTENS));
        let start = built(0, START_MEDIA_TRANSMISSION, &[1, 5], &[10, 0, 0, 7], &[24_000, 20]);
        assert_eq!(message(&start), channel(SENDS));
        let closed = built(0, CLOSE_RECEIVE_CHANNEL, &[1, 5], &[], &[]);
        assert_eq!(message(&closed), Some(Message::Closed { party: 5 }));
        let refused = built(0, OPEN_RECEIVE_CHANNEL_ACK, &[1], &[10, 0, 0, 7], &[24_000, 5]);
        assert_eq!(message(&refused), None);
        (0..start.len() - 4).for_each(|len| assert_eq!(message(&start[..len]), None, "{len}"));
        assert_eq!(record(b"GET / HTTP/1.1\r\n"), Record::Foreign);
    }
}
