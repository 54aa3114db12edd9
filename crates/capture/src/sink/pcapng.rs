//! Writing the pcapng format: one section, interfaces with names and nanoseconds, directions, accounting at the end.
//! Source: draft-ietf-opsawg-pcapng.

use super::Account;
use crate::source::Interface;
use fyke_frame::{Direction, Frame, LinkType};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
/// Option of any block.
const COMMENT: u16 = 1;

/// The interfaces that one file has described so far.
#[derive(Debug, Default)]
pub(super) struct Pcapng {
    described: Vec<Described>,
    /// Index of the last frame's interface; the next frame mostly has the same one.
    last: usize,
}

/// Counts of the frames of an interface, and their time. A file gets the counts since the end of the file before it, so
/// that the counts of all files add up to those of the capture.
#[derive(Debug)]
pub(super) struct Accounted {
    pub interface: Interface,
    pub account: Account,
    pub time_ns: u64,
    /// Frames in earlier files of the same sink.
    pub before: u64,
    /// Frames of all files at the time of the account.
    pub written: u64,
    /// Sum of the counts in earlier files, and the end of the last of them.
    told: Account,
    told_ns: u64,
}

impl Accounted {
    /// Creates an interface without an account.
    pub(super) fn new(interface: Interface) -> Accounted {
        let (account, told) = (Account::default(), Account::default());
        Accounted { interface, account, time_ns: 0, before: 0, written: 0, told, told_ns: 0 }
    }

    /// The account with `here` frames in the current file. When a new file starts, the account is some frames old:
    /// frames written since then were also received and accepted.
    fn now(&self, here: u64) -> Account {
        let written = self.before + here;
        let more =
            |count: Option<u64>| count.map(|count| count + written.saturating_sub(self.written));
        Account {
            received: more(self.account.received),
            accepted: more(self.account.accepted),
            delivered: self.account.delivered.or(Some(written)),
            ..self.account
        }
    }

    /// Returns the counts since the end of the file before the current one, which has `here` frames.
    fn of_file(&self, here: u64) -> Account {
        let (now, told) = (self.now(here), &self.told);
        let since = |now: Option<u64>, told: Option<u64>| {
            now.map(|now| now.saturating_sub(told.unwrap_or(0)))
        };
        Account {
            received: since(now.received, told.received),
            interface_dropped: since(now.interface_dropped, told.interface_dropped),
            dropped: since(now.dropped, told.dropped),
            accepted: since(now.accepted, told.accepted),
            delivered: since(now.delivered, told.delivered),
        }
    }

    /// Ends the current file, which has `here` frames.
    pub(super) fn end_file(&mut self, here: u64) {
        (self.told, self.told_ns) = (self.now(here), self.time_ns);
        self.before += here;
    }
}

#[derive(Debug)]
struct Described {
    interface: Interface,
    link: LinkType,
    /// Frames in this file.
    frames: u64,
}

impl Pcapng {
    /// Writes the section header.
    pub(super) fn start(out: &mut Vec<u8>) -> Self {
        const APPLICATION: &str = concat!("fyke ", env!("CARGO_PKG_VERSION"));
        block(SECTION, out, |out| {
            out.extend_from_slice(&0x1a2b_3c4d_u32.to_ne_bytes());
            out.extend_from_slice(&1u16.to_ne_bytes());
            out.extend_from_slice(&0u16.to_ne_bytes());
            // The length of the section is not known in advance.
            out.extend_from_slice(&u64::MAX.to_ne_bytes());
            option(4, APPLICATION.as_bytes(), out);
            end_of_options(out);
        });
        Pcapng::default()
    }

    /// Returns the number of an interface, and describes it if it is new.
    pub(super) fn describe(
        &mut self,
        interface: &Interface,
        link: LinkType,
        snaplen: u32,
        out: &mut Vec<u8>,
    ) -> usize {
        let same = |known: &Described| known.link == link && known.interface == *interface;
        if self.described.get(self.last).is_some_and(same) {
            return self.last;
        }
        self.last = self.described.iter().position(same).unwrap_or_else(|| {
            block(INTERFACE, out, |out| {
                out.extend_from_slice(&link.0.to_ne_bytes());
                out.extend_from_slice(&0u16.to_ne_bytes());
                out.extend_from_slice(&snaplen.to_ne_bytes());
                text_option(2, &interface.name, out);
                text_option(3, &interface.description, out);
                option(9, &[9], out);
                end_of_options(out);
            });
            let interface = interface.clone();
            self.described.push(Described { interface, link, frames: 0 });
            self.described.len() - 1
        });
        self.last
    }

    /// Writes a frame of a described interface.
    pub(super) fn frame(
        &mut self,
        interface: usize,
        frame: &Frame<'_>,
        data: &[u8],
        out: &mut Vec<u8>,
    ) {
        self.described[interface].frames += 1;
        const HEADER: usize = 28;
        let flags = flags(frame.meta.direction);
        let options = if flags == 0 { 0 } else { 12 };
        let padded = data.len().next_multiple_of(4);
        let total = (HEADER + padded + options + 4) as u32;
        let [high, low] = halves(frame.timestamp_ns);
        let (interface, captured) = (interface as u32, data.len() as u32);
        let words = [ENHANCED_PACKET, total, interface, high, low, captured, frame.wire_len];
        let mut header = [0; HEADER];
        for (place, word) in header.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        // The flags, the end of the options and the length.
        let mut tail = [0; 16];
        let at = if flags == 0 { 12 } else { 0 };
        tail[..2].copy_from_slice(&2u16.to_ne_bytes());
        tail[2..4].copy_from_slice(&4u16.to_ne_bytes());
        tail[4..8].copy_from_slice(&flags.to_ne_bytes());
        tail[12..].copy_from_slice(&total.to_ne_bytes());
        out.reserve(total as usize);
        out.extend_from_slice(&header);
        out.extend_from_slice(data);
        out.extend_from_slice(&[0; 3][..padded - data.len()]);
        out.extend_from_slice(&tail[at..]);
    }

    /// Writes a frame of a described interface with comments.
    pub(super) fn commented(
        &mut self,
        interface: usize,
        frame: &Frame<'_>,
        data: &[u8],
        comments: &[String],
        out: &mut Vec<u8>,
    ) {
        self.described[interface].frames += 1;
        let flags = flags(frame.meta.direction);
        let [high, low] = halves(frame.timestamp_ns);
        block(ENHANCED_PACKET, out, |out| {
            for word in [interface as u32, high, low, data.len() as u32, frame.wire_len] {
                out.extend_from_slice(&word.to_ne_bytes());
            }
            out.extend_from_slice(data);
            pad(data.len(), out);
            comments.iter().for_each(|text| text_option(COMMENT, text, out));
            if flags != 0 {
                option(2, &flags.to_ne_bytes(), out);
            }
            end_of_options(out);
        });
    }

    /// The interfaces of this file, once each, with the number of their first description. An interface with frames of
    /// several link types is described several times.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = (usize, &Interface)> {
        let interfaces = self.described.iter().map(|known| &known.interface).enumerate();
        interfaces.filter(|(number, one)| {
            self.described[..*number].iter().all(|known| known.interface != **one)
        })
    }

    /// Frames of an interface in this file.
    pub(super) fn frames(&self, interface: &Interface) -> u64 {
        let of_interface = self.described.iter().filter(|known| known.interface == *interface);
        of_interface.map(|known| known.frames).sum()
    }

    /// Writes the accounting of the interfaces that the file has described, and comments that belong to no frame.
    pub(super) fn end(&self, accounted: &[Accounted], comments: &[String], out: &mut Vec<u8>) {
        let mut comments = comments.iter();
        for (number, interface) in self.interfaces() {
            let of_interface = accounted.iter().find(|one| one.interface == *interface);
            // Frames that were read from a file have no account.
            let counted = of_interface.filter(|accounted| accounted.account != Account::default());
            let Some(accounted) = counted else { continue };
            let account = accounted.of_file(self.frames(interface));
            block(STATISTICS, out, |out| {
                let [high, low] = halves(accounted.time_ns);
                for word in [number as u32, high, low] {
                    out.extend_from_slice(&word.to_ne_bytes());
                }
                if accounted.told_ns > 0 {
                    let [high, low] = halves(accounted.told_ns).map(u32::to_ne_bytes);
                    option(2, &[high, low].concat(), out);
                }
                comments.by_ref().for_each(|text| text_option(COMMENT, text, out));
                let counters = [
                    (4, account.received),
                    (5, account.interface_dropped),
                    (6, account.accepted),
                    (7, account.dropped),
                    (8, account.delivered),
                ];
                for (code, counter) in counters {
                    if let Some(counter) = counter {
                        option(code, &counter.to_ne_bytes(), out);
                    }
                }
                end_of_options(out);
            });
        }
        // Frames of a file have no account, which would take the comments.
        if comments.len() > 0 && !self.described.is_empty() {
            block(STATISTICS, out, |out| {
                out.extend_from_slice(&[0; 12]);
                comments.for_each(|text| text_option(COMMENT, text, out));
                end_of_options(out);
            });
        }
    }
}

/// Writes a block, with its length before and after the content.
fn block(kind: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&0u32.to_ne_bytes());
    content(out);
    let len = ((out.len() - start + 4) as u32).to_ne_bytes();
    out[start + 4..start + 8].copy_from_slice(&len);
    out.extend_from_slice(&len);
}

fn option(code: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&code.to_ne_bytes());
    out.extend_from_slice(&(value.len() as u16).to_ne_bytes());
    out.extend_from_slice(value);
    pad(value.len(), out);
}

fn text_option(code: u16, text: &str, out: &mut Vec<u8>) {
    const LIMIT: usize = 1024;
    let end = (0..=text.len().min(LIMIT)).rev().find(|&end| text.is_char_boundary(end));
    let text = &text[..end.unwrap_or(0)];
    if !text.is_empty() {
        option(code, text.as_bytes(), out);
    }
}

fn end_of_options(out: &mut Vec<u8>) {
    option(0, &[], out);
}

fn pad(len: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + len.next_multiple_of(4) - len, 0);
}

fn halves(number: u64) -> [u32; 2] {
    [(number >> 32) as u32, number as u32]
}

/// Flags of a direction. Bits 0 and 1: 1 in, 2 out. Bits 2 to 4: kind of address.
fn flags(direction: Direction) -> u32 {
    match direction {
        Direction::Unknown => 0,
        Direction::Inbound => 1 | 1 << 2,
        Direction::Multicast => 1 | 2 << 2,
        Direction::Broadcast => 1 | 3 << 2,
        Direction::OtherHost => 1 | 4 << 2,
        Direction::Outbound => 2,
    }
}
