//! Messages of H.225.0 and H.245, encoded by hand in aligned PER.

use std::net::{IpAddr, SocketAddr};

/// A writer of aligned PER.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Bits of the last byte that are used; 0: it is full.
    used: u32,
}

impl Writer {
    pub fn bits(mut self, count: u32, value: u32) -> Writer {
        for bit in (0..count).rev() {
            if self.used == 0 {
                self.bytes.push(0);
            }
            let last = self.bytes.last_mut().unwrap();
            *last |= ((value >> bit & 1) as u8) << (7 - self.used);
            self.used = (self.used + 1) % 8;
        }
        self
    }

    /// Bytes from the next whole byte on.
    pub fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.bytes.extend(bytes);
        self.used = 0;
        self
    }

    pub fn word(self, value: u16) -> Writer {
        self.bytes(&value.to_be_bytes())
    }

    /// Bytes with their length.
    pub fn string(self, bytes: &[u8]) -> Writer {
        let length = bytes.len() as u16;
        let writer = match length {
            0..128 => self.bytes(&[length as u8]),
            _ => self.word(0x8000 | length),
        };
        writer.bytes(bytes)
    }

    /// A list of octet strings as an addition.
    pub fn strings(parts: &[Vec<u8>]) -> Vec<u8> {
        let first = Writer::default().bytes(&[parts.len() as u8]);
        parts.iter().fold(first, |writer, part| writer.string(part)).done()
    }

    /// Additions of a sequence: how many it knows, and those that are there.
    pub fn additions(self, count: u32, there: &[(u32, Vec<u8>)]) -> Writer {
        let mut writer = self.bits(7, count - 1);
        for index in 0..count {
            writer = writer.bits(1, u32::from(there.iter().any(|(at, _)| *at == index)));
        }
        there.iter().fold(writer, |writer, (_, value)| writer.string(value))
    }

    /// An addition of a choice.
    pub fn added(self, index: u32, value: &[u8]) -> Writer {
        self.bits(1, 1).bits(7, index).string(value)
    }

    pub fn done(self) -> Vec<u8> {
        self.bytes
    }
}

/// The protocol identifier of H.225.0, version 4.
const VERSION: [u8; 6] = [0, 8, 0x91, 0x4a, 0, 4];

/// A TransportAddress of H.225.0.
fn address_225(writer: Writer, end: SocketAddr) -> Writer {
    let writer = match end.ip() {
        IpAddr::V4(host) => writer.bits(4, 0).bytes(&host.octets()),
        IpAddr::V6(host) => writer.bits(4, 3).bits(1, 0).bytes(&host.octets()),
    };
    writer.word(end.port())
}

/// A TransportAddress of H.245.
fn address_245(writer: Writer, end: SocketAddr) -> Writer {
    let writer = writer.bits(2, 0);
    let writer = match end.ip() {
        IpAddr::V4(host) => writer.bits(4, 0).bits(1, 0).bytes(&host.octets()),
        IpAddr::V6(host) => writer.bits(4, 2).bits(1, 0).bytes(&host.octets()),
    };
    writer.word(end.port())
}

/// An EndpointType with a vendor and a terminal.
fn endpoint(writer: Writer) -> Writer {
    let writer = writer.bits(1, 0).bits(6, 0b010001);
    let writer = writer.bits(3, 0b010).bits(1, 0).bytes(&[0xb5, 0, 0, 0x12]);
    writer.bytes(&[4]).bytes(b"fyke ").bits(2, 0).bits(2, 0)
}

/// Kinds of call signalling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Setup,
    CallProceeding,
    Alerting,
    Connect,
    Facility,
    ReleaseComplete,
}

/// Content of call signalling.
#[derive(Debug, Clone, Default)]
pub struct Content {
    pub control: Option<SocketAddr>,
    pub fast_start: Vec<Vec<u8>>,
    pub tunnelled: Vec<Vec<u8>>,
}

/// A message of call signalling, with TPKT and Q.931.
pub fn signalling(kind: Kind, reference: u16, content: &Content) -> Vec<u8> {
    let has_more = u32::from(!content.fast_start.is_empty());
    let has_control = u32::from(content.control.is_some());
    let more = |index: u32| match has_more {
        1 => vec![(index, Writer::strings(&content.fast_start))],
        _ => vec![],
    };
    let end = |writer: Writer| match content.control {
        Some(end) => address_225(writer, end),
        None => writer,
    };
    let call = [vec![0], vec![7; 16]].concat();
    // The information and its first part: no user data; additions: tunnelling, and its messages.
    let writer = Writer::default().bits(2, 0).bits(2, 0b10);
    let (index, number) = match kind {
        Kind::Setup => (0, 0x05),
        Kind::CallProceeding => (1, 0x02),
        Kind::Connect => (2, 0x07),
        Kind::Alerting => (3, 0x01),
        Kind::ReleaseComplete => (5, 0x5a),
        Kind::Facility => (6, 0x62),
    };
    let writer = writer.bits(4, index);
    let writer = match kind {
        Kind::Setup => {
            let writer = writer.bits(1, 1).bits(7, has_control << 6 | 0b011_1000);
            let writer = end(writer.string(&VERSION));
            // An alias of digits, and one of text.
            let writer = writer.bytes(&[1]).bits(2, 0).bits(7, 2).bytes(&[0x12]).bits(4, 3);
            let writer = endpoint(writer).bytes(&[1]).bits(2, 1).bytes(&[0, 0, b'a']);
            let writer = address_225(writer, SocketAddr::from(([10, 0, 0, 2], 1_720)));
            let writer = writer.bits(1, 0).bytes(&[9; 16]).bits(3, 0).bits(3, 0);
            writer.additions(9, &[vec![(2, call)], more(6), flags()].concat())
        }
        Kind::CallProceeding | Kind::Alerting => {
            let writer = writer.bits(1, 1).bits(1, has_control).string(&VERSION);
            end(endpoint(writer)).additions(8, &[vec![(0, call)], more(4)].concat())
        }
        Kind::Connect => {
            let writer = end(writer.bits(1, 1).bits(1, has_control).string(&VERSION));
            let writer = endpoint(writer).bytes(&[9; 16]);
            writer.additions(8, &[vec![(0, call)], more(4)].concat())
        }
        Kind::Facility => {
            let writer = writer.bits(1, 1).bits(3, 0).string(&VERSION).bits(3, 3);
            let address = content.control.map(|end| address_225(Writer::default(), end).done());
            let address = address.map(|bytes| (6, bytes));
            let there = [vec![(0, call)], address.into_iter().collect(), more(7)].concat();
            writer.additions(8, &there)
        }
        Kind::ReleaseComplete => {
            let writer = writer.bits(1, 1).bits(1, 1).string(&VERSION).bits(1, 0).bits(4, 11);
            writer.additions(1, &[(0, call)])
        }
    };
    let mut parts = vec![(1, vec![0x80])];
    if !content.tunnelled.is_empty() {
        parts.push((2, Writer::strings(&content.tunnelled)));
    }
    q931(number, reference, &writer.additions(3, &parts).done())
}

/// Additions 7 and 8 of a Setup: flags.
fn flags() -> Vec<(u32, Vec<u8>)> {
    vec![(7, vec![0]), (8, vec![0])]
}

fn q931(kind: u8, reference: u16, user: &[u8]) -> Vec<u8> {
    let [high, low] = reference.to_be_bytes();
    let mut bytes = vec![8, 2, high, low, kind];
    if kind == 5 {
        // The bearer capability is in every Setup.
        bytes.extend([4, 3, 0x88, 0x93, 0xa5]);
    }
    bytes.push(0x7e);
    bytes.extend((user.len() as u16 + 1).to_be_bytes());
    bytes.push(5);
    bytes.extend(user);
    tpkt(&bytes)
}

/// A message with its TPKT header.
pub fn tpkt(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u16 + 4).to_be_bytes();
    [&[3, 0], &length[..], bytes].concat()
}

/// Types of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// G.711 µ-law.
    Audio,
    /// H.263 with two sizes.
    Video,
    /// H.261.
    OldVideo,
    /// T.38 over UDP.
    Fax,
}

fn data_type(writer: Writer, data: Data) -> Writer {
    match data {
        Data::Audio => writer.bits(4, 3).bits(5, 3).bytes(&[19]),
        Data::Video => {
            let writer = writer.bits(4, 2).bits(4, 3).bits(8, 0b0011_0000);
            // Intervals of the sizes, the rate in two bytes, five flags.
            writer.bits(10, 0b00001_00001).bits(2, 1).word(3_839).bits(5, 0)
        }
        Data::OldVideo => {
            writer.bits(4, 2).bits(4, 1).bits(3, 0b010).bits(3, 0).word(3_839).bits(1, 0)
        }
        Data::Fax => {
            // A protocol that is an addition, and a profile.
            let fax = Writer::default().added(6, &[0]).bits(4, 0).done();
            writer.bits(4, 4).bits(1, 0).added(2, &fax).bits(2, 1).word(144)
        }
    }
}

/// H2250LogicalChannelParameters.
fn parameters(media: Option<SocketAddr>, control: Option<SocketAddr>) -> Vec<u8> {
    let (has_media, has_control) = (u32::from(media.is_some()), u32::from(control.is_some()));
    let writer = Writer::default().bits(1, 0).bits(10, has_media << 7 | has_control << 5);
    let writer = media.into_iter().fold(writer.bytes(&[1]), address_245);
    control.into_iter().fold(writer, address_245).done()
}

/// An OpenLogicalChannel: forward to the receiver, with the sender's control end; in reverse with its media end too.
pub fn open(
    number: u16,
    data: Data,
    is_reverse: bool,
    media: Option<SocketAddr>,
    control: Option<SocketAddr>,
) -> Vec<u8> {
    open_in(Writer::default(), number, data, is_reverse, media, control)
}

fn open_in(
    writer: Writer,
    number: u16,
    data: Data,
    is_reverse: bool,
    media: Option<SocketAddr>,
    control: Option<SocketAddr>,
) -> Vec<u8> {
    let writer = writer.bits(2, is_reverse.into()).word(number - 1).bits(2, 0);
    let value = parameters(media, control);
    let writer = match is_reverse {
        true => {
            // No data and no multiplex forward.
            let writer = writer.bits(4, 1).added(1, &[0]);
            data_type(writer.bits(2, 1), data).added(0, &value)
        }
        false => data_type(writer, data).added(0, &value),
    };
    writer.done()
}

/// The same as a request of H.245.
pub fn request(number: u16, data: Data, control: SocketAddr) -> Vec<u8> {
    let writer = Writer::default().bits(3, 0).bits(5, 3);
    open_in(writer, number, data, false, None, Some(control))
}

/// An OpenLogicalChannelAck.
pub fn acknowledgement(number: u16, media: SocketAddr, control: SocketAddr) -> Vec<u8> {
    // The choice and the sequence have no additions; a session number of eight bits, and both ends.
    let value = Writer::default().bits(2, 0).bits(5, 0b01110);
    let value = address_245(address_245(value.bits(8, 1), media), control).done();
    let writer = Writer::default().bits(3, 1).bits(6, 5).bits(2, 0b10).word(number - 1);
    writer.additions(2, &[(1, value)]).done()
}

/// A CloseLogicalChannel by the opener.
pub fn close(number: u16) -> Vec<u8> {
    let writer = Writer::default().bits(3, 0).bits(5, 4).bits(1, 0).word(number - 1);
    writer.bits(1, 1).done()
}

/// An EndSessionCommand.
pub fn end_session() -> Vec<u8> {
    Writer::default().bits(3, 2).bits(4, 5).bits(3, 1).done()
}
