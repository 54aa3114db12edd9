//! The pcapng format: sections of blocks, with any number of interfaces of any link type.
//!
//! Each section has its own byte order and its own interface numbers; [`Frame::interface`](fyke_frame::Frame) numbers
//! the interfaces of all sections. Packets are in three kinds of block (enhanced, simple, and the obsolete one);
//! other blocks are skipped. Refuses the files that libpcap 1.10 refuses, with two exceptions: link types, snapshot
//! lengths and byte orders may differ between interfaces and sections, and a file without interfaces is an empty
//! capture. Source: draft-ietf-opsawg-pcapng; for tolerated errors, libpcap's sf-pcapng.c.

use super::order::Order;
use super::{Record, Step, largest_snaplen, usable_snaplen};
use crate::error::Problem;
use crate::source::Interface;
use fyke_frame::{Direction, LinkType};

/// Type of a section header, equal in both byte orders.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Length of the head (type, length) and the trailer (length).
const FRAME_LEN: u32 = 12;
const SECTION_LEN: u32 = 28;
const SECTION_LIMIT: u32 = 1 << 20;
/// Longest block, unless a link type has longer frames.
const BLOCK_LIMIT: u32 = 16 << 20;
/// Additional length for options, beyond the longest frame of a link type.
const OPTIONS_LIMIT: u32 = 131_072;

/// Most interfaces that one file may describe.
const INTERFACE_LIMIT: usize = 65_536;
/// Most bytes that are kept of a name or a description.
const TEXT_LIMIT: usize = 256;

/// Reads blocks of one file.
pub(super) struct Pcapng {
    pub(super) order: Order,
    /// Index of the section's first interface in the file's list.
    first_interface: usize,
    /// Clocks of the section's interfaces.
    clocks: Vec<Clock>,
    block_limit: u32,
    in_section: bool,
}

/// Time format of an interface.
#[derive(Debug, Clone, Copy)]
struct Clock {
    units_per_second: u64,
    offset_seconds: u64,
    snaplen: u32,
}

impl Pcapng {
    pub(super) fn new() -> Self {
        Pcapng {
            order: Order::Little,
            first_interface: 0,
            clocks: Vec::new(),
            block_limit: BLOCK_LIMIT,
            in_section: false,
        }
    }

    /// Decodes the next block; adds new interfaces to `interfaces`.
    pub(super) fn step(
        &mut self,
        unparsed: &[u8],
        interfaces: &mut Vec<Interface>,
    ) -> Result<Step, Problem> {
        if unparsed.len() < 8 {
            return Ok(Step::Need { what: "block header", bytes: 8 });
        }
        let kind = self.order.u32(unparsed, 0);
        if kind == SECTION {
            return self.section(unparsed, interfaces.len());
        }
        let len = self.order.u32(unparsed, 4);
        if len < FRAME_LEN || !len.is_multiple_of(4) || len > self.block_limit {
            let (least, limit) = (FRAME_LEN, self.block_limit);
            return Err(Problem::BlockLength { given: len, least, limit });
        }
        let Some(block) = unparsed.get(..len as usize) else {
            return Ok(Step::Need { what: "block", bytes: len as usize });
        };
        self.check_trailer(block)?;
        let body = Body { order: self.order, kind, bytes: &block[8..block.len() - 4] };
        match kind {
            INTERFACE => self.interface(&body, interfaces)?,
            ENHANCED_PACKET => return self.enhanced(&body, interfaces, block.len()),
            SIMPLE_PACKET => return self.simple(&body, interfaces, block.len()),
            OBSOLETE_PACKET => return self.obsolete(&body, interfaces, block.len()),
            _ => {}
        }
        Ok(Step::Skip { len: block.len() })
    }

    fn check_trailer(&self, block: &[u8]) -> Result<(), Problem> {
        let head = self.order.u32(block, 4);
        let tail = self.order.u32(block, block.len() - 4);
        if head == tail { Ok(()) } else { Err(Problem::BlockTrailer { head, tail }) }
    }

    /// Starts a section: new byte order, no interfaces yet.
    fn section(&mut self, unparsed: &[u8], described: usize) -> Result<Step, Problem> {
        const WHAT: &str = "section header";
        if unparsed.len() < 12 {
            return Ok(Step::Need { what: WHAT, bytes: 12 });
        }
        let order = match (Order::Little.u32(unparsed, 8), Order::Big.u32(unparsed, 8)) {
            (BYTE_ORDER_MAGIC, _) => Order::Little,
            (_, BYTE_ORDER_MAGIC) => Order::Big,
            (other, _) => return Err(Problem::ByteOrder(other)),
        };
        let len = order.u32(unparsed, 4);
        let whole_words = len.is_multiple_of(4) || !self.in_section;
        if !(SECTION_LEN..=SECTION_LIMIT).contains(&len) || !whole_words {
            let (least, limit) = (SECTION_LEN, SECTION_LIMIT);
            return Err(Problem::BlockLength { given: len, least, limit });
        }
        let Some(block) = unparsed.get(..len as usize) else {
            return Ok(Step::Need { what: WHAT, bytes: len as usize });
        };
        let (major, minor) = (order.u16(block, 12), order.u16(block, 14));
        // As in libpcap, later sections may have any minor version; some writers use 1.2 for 1.0.
        if major != 1 || !self.in_section && !matches!(minor, 0 | 2) {
            return Err(Problem::Version { format: "pcapng", major, minor });
        }
        self.order = order;
        if std::mem::replace(&mut self.in_section, true) {
            // libpcap does not check the trailer of the first section header.
            self.check_trailer(block)?;
        }
        self.first_interface = described;
        self.clocks.clear();
        Ok(Step::Skip { len: block.len() })
    }

    fn interface(
        &mut self,
        body: &Body<'_>,
        interfaces: &mut Vec<Interface>,
    ) -> Result<(), Problem> {
        if interfaces.len() == INTERFACE_LIMIT {
            return Err(Problem::TooManyInterfaces(INTERFACE_LIMIT));
        }
        let fixed = body.fixed(8, "interface description")?;
        let link = LinkType(self.order.u16(fixed, 0));
        let snaplen = usable_snaplen(link, self.order.u32(fixed, 4));
        let mut interface = Interface { snaplen, nanoseconds: false, ..Interface::new("", link) };
        let mut clock = Clock { units_per_second: 1_000_000, offset_seconds: 0, snaplen };
        interface_options(body, &body.bytes[8..], &mut interface, &mut clock)?;
        interface.nanoseconds = !1_000_000_u64.is_multiple_of(clock.units_per_second);
        let needed = FRAME_LEN + 20 + largest_snaplen(link) + OPTIONS_LIMIT;
        self.block_limit = self.block_limit.max(needed);
        self.clocks.push(clock);
        interfaces.push(interface);
        Ok(())
    }

    fn enhanced(
        &self,
        body: &Body<'_>,
        interfaces: &[Interface],
        len: usize,
    ) -> Result<Step, Problem> {
        let fixed = body.fixed(20, "packet header")?;
        let interface = self.order.u32(fixed, 0);
        let time = self.time(fixed, 4);
        let (captured, wire_len) = (self.order.u32(fixed, 12), self.order.u32(fixed, 16));
        let mut record = self.record(interface, time, captured, wire_len, interfaces)?;
        record.data_at = 28;
        let data = body.data(20, captured)?;
        // Options follow the padded data. libpcap does not read them, so nothing in them is an error.
        let rest = &body.bytes[(20 + data.len().next_multiple_of(4)).min(body.bytes.len())..];
        record.direction = direction(self.order, rest);
        Ok(Step::Frame { record, len })
    }

    fn simple(
        &self,
        body: &Body<'_>,
        interfaces: &[Interface],
        len: usize,
    ) -> Result<Step, Problem> {
        let wire_len = self.order.u32(body.fixed(4, "packet header")?, 0);
        let snaplen = self.clocks.first().map_or(0, |clock| clock.snaplen);
        let captured = wire_len.min(snaplen);
        let mut record = self.record(0, 0, captured, wire_len, interfaces)?;
        record.data_at = 12;
        body.data(4, captured)?;
        Ok(Step::Frame { record, len })
    }

    fn obsolete(
        &self,
        body: &Body<'_>,
        interfaces: &[Interface],
        len: usize,
    ) -> Result<Step, Problem> {
        let fixed = body.fixed(20, "packet header")?;
        let interface = u32::from(self.order.u16(fixed, 0));
        let time = self.time(fixed, 4);
        let (captured, wire_len) = (self.order.u32(fixed, 12), self.order.u32(fixed, 16));
        let mut record = self.record(interface, time, captured, wire_len, interfaces)?;
        record.data_at = 28;
        body.data(20, captured)?;
        Ok(Step::Frame { record, len })
    }

    /// Reads two words, the high one first in either byte order.
    fn time(&self, fixed: &[u8], at: usize) -> u64 {
        u64::from(self.order.u32(fixed, at)) << 32 | u64::from(self.order.u32(fixed, at + 4))
    }

    fn record(
        &self,
        interface: u32,
        time: u64,
        captured: u32,
        wire_len: u32,
        interfaces: &[Interface],
    ) -> Result<Record, Problem> {
        let index = self.first_interface + interface as usize;
        let (Some(clock), Some(described)) =
            (self.clocks.get(interface as usize), interfaces.get(index))
        else {
            let described = self.clocks.len() as u32;
            return Err(Problem::UnknownInterface { given: interface, described });
        };
        if captured > clock.snaplen {
            return Err(Problem::CapturedLength { given: captured, limit: clock.snaplen });
        }
        let (timestamp_ns, clamped) = clock.nanoseconds(time);
        Ok(Record {
            data_at: 0,
            captured,
            wire_len,
            timestamp_ns,
            clamped,
            link: described.link,
            interface: index as u32,
            ifindex: 0,
            direction: Direction::Unknown,
        })
    }
}

impl Clock {
    /// Nanoseconds since 1970; true if the time is outside the range of 64 bits: then the nearest value within it.
    fn nanoseconds(&self, time: u64) -> (u64, bool) {
        let seconds = (time / self.units_per_second).wrapping_add(self.offset_seconds);
        let fraction = u128::from(time % self.units_per_second) * 1_000_000_000;
        let fraction = (fraction / u128::from(self.units_per_second)) as u64;
        if (seconds as i64) < 0 {
            return (0, true);
        }
        let exact = seconds.checked_mul(1_000_000_000).and_then(|sum| sum.checked_add(fraction));
        (exact.unwrap_or(u64::MAX), exact.is_none())
    }
}

/// Content of a block between head and trailer.
struct Body<'a> {
    order: Order,
    kind: u32,
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    fn fixed(&self, len: usize, what: &'static str) -> Result<&'a [u8], Problem> {
        self.bytes.get(..len).ok_or(Problem::BlockContent { kind: self.kind, what })
    }

    fn data(&self, at: usize, captured: u32) -> Result<&'a [u8], Problem> {
        let data = self.bytes[at..].get(..captured as usize);
        data.ok_or(Problem::BlockContent { kind: self.kind, what: "packet data" })
    }
}

/// Reads the options of an interface description, as strictly as libpcap.
fn interface_options(
    body: &Body<'_>,
    mut rest: &[u8],
    interface: &mut Interface,
    clock: &mut Clock,
) -> Result<(), Problem> {
    const END: u16 = 0;
    const NAME: u16 = 2;
    const DESCRIPTION: u16 = 3;
    const RESOLUTION: u16 = 9;
    const OFFSET: u16 = 14;
    let (mut resolution_seen, mut offset_seen) = (false, false);
    while !rest.is_empty() {
        let short = |what| Problem::BlockContent { kind: body.kind, what };
        if rest.len() < 4 {
            return Err(short("option header"));
        }
        let (code, len) = (body.order.u16(rest, 0), body.order.u16(rest, 2));
        let padded = usize::from(len).next_multiple_of(4);
        let value = rest.get(4..4 + padded).ok_or(short("option"))?;
        let value = &value[..usize::from(len)];
        rest = &rest[4 + padded..];
        let expect = |expected| match len == expected {
            true => Ok(()),
            false => Err(Problem::OptionLength { code, given: len, expected }),
        };
        match code {
            END => return expect(0),
            NAME => interface.name = text(value),
            DESCRIPTION => interface.description = text(value),
            RESOLUTION => {
                expect(1)?;
                if std::mem::replace(&mut resolution_seen, true) {
                    return Err(Problem::OptionTwice(code));
                }
                clock.units_per_second = units_per_second(value[0])?;
            }
            OFFSET => {
                expect(8)?;
                if std::mem::replace(&mut offset_seen, true) {
                    return Err(Problem::OptionTwice(code));
                }
                clock.offset_seconds = body.order.u64(value, 0);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Units per second of a timestamp resolution; the upper bit chooses between powers of two and of ten.
fn units_per_second(resolution: u8) -> Result<u64, Problem> {
    let exponent = u32::from(resolution & 0x7f);
    let base: u64 = if resolution & 0x80 != 0 { 2 } else { 10 };
    base.checked_pow(exponent).ok_or(Problem::Resolution(resolution))
}

/// A text up to its first zero byte and up to the limit, without control characters.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    let text = String::from_utf8_lossy(&value[..end.min(TEXT_LIMIT)]);
    text.chars().filter(|letter| !letter.is_control()).collect()
}

/// Direction from the flags option of an enhanced packet block, if there is one.
fn direction(order: Order, mut rest: &[u8]) -> Direction {
    const END: u16 = 0;
    const FLAGS: u16 = 2;
    while rest.len() >= 4 {
        let (code, len) = (order.u16(rest, 0), usize::from(order.u16(rest, 2)));
        let Some(value) = rest.get(4..4 + len.next_multiple_of(4)) else { break };
        match (code, len) {
            (END, _) => break,
            (FLAGS, 4) => return direction_of(order.u32(value, 0)),
            _ => rest = &rest[4 + value.len()..],
        }
    }
    Direction::Unknown
}

/// Direction from flags: bits 0 and 1 are the direction, bits 2 to 4 the kind of address.
fn direction_of(flags: u32) -> Direction {
    match (flags & 3, flags >> 2 & 7) {
        (2, _) => Direction::Outbound,
        (_, 2) => Direction::Multicast,
        (_, 3) => Direction::Broadcast,
        (_, 4) => Direction::OtherHost,
        (1, _) => Direction::Inbound,
        _ => Direction::Unknown,
    }
}
