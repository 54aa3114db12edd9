//! Flow records as IPFIX messages: RFC 7011, with the fields of the way back as in RFC 5103.
//!
//! A message has at most [`MESSAGE`] bytes, so that it fits a datagram. Each one begins with the templates, because a
//! collector may start, or lose datagrams, at any time; a file repeats them, which RFC 5655 allows.

use fyke_flow::records::{Record, Side};
use std::net::IpAddr;

/// Most bytes of a message.
const MESSAGE: usize = 1_400;
/// Numbers of the templates for IPv4 and IPv6.
const TEMPLATES: [u16; 2] = [256, 257];
/// Private enterprise number that marks fields of the way back (RFC 5103).
const REVERSE: u32 = 29_305;
/// Fields after the addresses, by number and length in bytes: start and end in milliseconds, ports, protocol, reason
/// of the end, and those of both directions: bytes, packets, TCP flags.
const FIELDS: [(u16, u16); 6] = [(152, 8), (153, 8), (7, 2), (11, 2), (4, 1), (136, 1)];
const OF_SIDE: [(u16, u16); 3] = [(1, 8), (2, 8), (6, 2)];

/// Messages that are being made.
pub struct Exporter {
    /// Observation domain.
    domain: u32,
    /// Number of records in the messages so far.
    sequence: u32,
    message: Vec<u8>,
    /// Start of the open set in the message, and its template.
    set: Option<(usize, u16)>,
    records: u32,
}

impl Exporter {
    /// Makes messages of an observation domain.
    pub fn new(domain: u32) -> Exporter {
        Exporter { domain, sequence: 0, message: Vec::new(), set: None, records: 0 }
    }

    /// Adds a record; returns the message before it if that is full.
    pub fn add(&mut self, record: &Record, now_ns: u64) -> Option<Vec<u8>> {
        let is_v6 = record.source.is_ipv6();
        let template = TEMPLATES[usize::from(is_v6)];
        // The longest record, and the header of a set.
        let is_full = self.message.len() + 128 > MESSAGE;
        let full = if is_full { self.take(now_ns) } else { None };
        if self.message.is_empty() {
            self.start();
        }
        if self.set.is_none_or(|(_, open)| open != template) {
            self.close_set();
            self.set = Some((self.message.len(), template));
            self.message.extend(template.to_be_bytes());
            self.message.extend([0; 2]);
        }
        encode(record, &mut self.message);
        self.records += 1;
        full
    }

    /// Returns the message with the records so far, if there are any.
    pub fn take(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.records == 0 {
            return None;
        }
        self.close_set();
        let mut message = std::mem::take(&mut self.message);
        let len = message.len() as u16;
        message[2..4].copy_from_slice(&len.to_be_bytes());
        message[4..8].copy_from_slice(&((now_ns / 1_000_000_000) as u32).to_be_bytes());
        message[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(std::mem::take(&mut self.records));
        Some(message)
    }

    fn start(&mut self) {
        let message = &mut self.message;
        // Version 10; length, time and sequence number are known at the end.
        message.extend(10u16.to_be_bytes());
        message.extend([0; 10]);
        message.extend(self.domain.to_be_bytes());
        // The set of templates has the number 2.
        let set = message.len();
        message.extend([0, 2, 0, 0]);
        for (template, addresses) in
            TEMPLATES.into_iter().zip([[(8, 4), (12, 4)], [(27, 16), (28, 16)]])
        {
            let count = addresses.len() + FIELDS.len() + 2 * OF_SIDE.len();
            message.extend(template.to_be_bytes());
            message.extend((count as u16).to_be_bytes());
            let forward = addresses.into_iter().chain(FIELDS).chain(OF_SIDE);
            for (field, len) in forward {
                message.extend([field.to_be_bytes(), u16::to_be_bytes(len)].concat());
            }
            for (field, len) in OF_SIDE {
                message.extend([(field | 0x8000).to_be_bytes(), u16::to_be_bytes(len)].concat());
                message.extend(REVERSE.to_be_bytes());
            }
        }
        set_len(message, set);
    }

    fn close_set(&mut self) {
        if let Some((start, _)) = self.set.take() {
            set_len(&mut self.message, start);
        }
    }
}

/// Writes the length of the set that ends the message.
fn set_len(message: &mut [u8], set: usize) {
    let len = (message.len() - set) as u16;
    message[set + 2..set + 4].copy_from_slice(&len.to_be_bytes());
}

fn encode(record: &Record, out: &mut Vec<u8>) {
    for end in [record.source, record.destination] {
        match end.ip() {
            IpAddr::V4(address) => out.extend(address.octets()),
            IpAddr::V6(address) => out.extend(address.octets()),
        }
    }
    for time_ns in [record.start_ns, record.end_ns] {
        out.extend((time_ns / 1_000_000).to_be_bytes());
    }
    out.extend(record.source.port().to_be_bytes());
    out.extend(record.destination.port().to_be_bytes());
    out.extend([record.protocol, record.end as u8]);
    for Side { bytes, packets, tcp_flags, .. } in [record.forward, record.backward] {
        out.extend(bytes.to_be_bytes());
        out.extend(packets.to_be_bytes());
        out.extend(u16::from(tcp_flags).to_be_bytes());
    }
}
