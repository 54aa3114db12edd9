//! Records as IPFIX messages (RFC 7011).
//!
//! A message has at most [`MESSAGE`] bytes, so that it fits a datagram, unless one record alone is longer. Each one
//! begins with the templates, because a collector may start, or lose datagrams, at any time; a file repeats them, which
//! RFC 5655 allows.

use super::Exported;
use std::marker::PhantomData;

/// Most bytes of a message.
pub const MESSAGE: usize = 1_400;
/// Length of the header of a set.
const SET: usize = 4;

/// Length of a field of variable length in a template.
pub const VARIABLE: u16 = 0xffff;

/// A field of a template: the number of its information element, its length in bytes, and the number of the enterprise
/// for elements that are not IANA's.
pub type Field = (u16, u16, Option<u32>);

/// A template.
#[derive(Debug, Clone, Copy)]
pub struct Template {
    /// Its number, from 256.
    pub number: u16,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

/// Messages that are being made.
pub struct Messages<R> {
    /// Observation domain.
    domain: u32,
    /// Number of records in the messages so far.
    sequence: u32,
    message: Vec<u8>,
    /// Start of the open set in the message, and the number of its template.
    set: Option<(usize, u16)>,
    records: u32,
    /// Fields of the record that is being added.
    fields: Vec<u8>,
    of: PhantomData<fn(R)>,
}

impl<R: Exported> Messages<R> {
    /// Makes messages of an observation domain.
    #[must_use]
    pub fn new(domain: u32) -> Messages<R> {
        Messages {
            domain,
            sequence: 0,
            message: Vec::new(),
            set: None,
            records: 0,
            fields: Vec::new(),
            of: PhantomData,
        }
    }

    /// Adds a record; returns the message before it if that is full.
    pub fn add(&mut self, record: &R, now_ns: u64) -> Option<Vec<u8>> {
        self.fields.clear();
        let number = R::templates().get(record.encode(&mut self.fields)?)?.number;
        let is_full = self.message.len() + SET + self.fields.len() > MESSAGE;
        let full = if is_full { self.take(now_ns) } else { None };
        if self.message.is_empty() {
            self.start();
        }
        if self.set.is_none_or(|(_, open)| open != number) {
            self.close_set();
            self.set = Some((self.message.len(), number));
            self.message.extend(number.to_be_bytes());
            self.message.extend([0; 2]);
        }
        self.message.append(&mut self.fields);
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
        for Template { number, fields } in R::templates() {
            message.extend(number.to_be_bytes());
            message.extend((fields.len() as u16).to_be_bytes());
            for &(element, len, enterprise) in *fields {
                let of_enterprise = if enterprise.is_some() { 0x8000 } else { 0 };
                message
                    .extend([(element | of_enterprise).to_be_bytes(), len.to_be_bytes()].concat());
                message.extend(enterprise.map(u32::to_be_bytes).into_iter().flatten());
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

/// Appends a text as a field of [`VARIABLE`] length, cut to 254 bytes.
pub fn text(text: &str, out: &mut Vec<u8>) {
    let mut end = text.len().min(254);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push(end as u8);
    out.extend_from_slice(&text.as_bytes()[..end]);
}
