//! The functions of MAPI's flows. Safe code only.
//!
//! | function | parameters | passes | result |
//! |---|---|---|---|
//! | `BPF_FILTER` | text | packets that the text accepts | their number |
//! | `STR_SEARCH` | text, offset, depth | packets with the text | their number |
//! | `SAMPLE` | value, mode | every value-th packet, or this percentage | their number |
//! | `PKT_COUNTER`, `BYTE_COUNTER` | | all | packets; bytes on the wire |
//! | `PKTINFO` | which | all | time or size of the last packet |
//! | `GAP` | | all | nanoseconds between the last two packets |
//! | `TO_FILE` | format, name, most packets | all | packets written |
//! | `TO_BUFFER` | | all, for the program | packets lost: the buffer was full |
//!
//! DEPARTURE: MAPI's probabilistic `SAMPLE` passes `value + 1` per cent (it compares with ≤), this one `value`.
//! Source: SCAMPI's MAPI, the library `stdflib`.

use crate::mapi::{Packet, Shared};
use crate::reader::FykeReader;
use fyke_capture::source::Interface;
use fyke_capture::{Sink, WriteOptions, create_file, sink::Format};
use fyke_frame::{Frame, LinkType};
use memchr::memmem::Finder;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::Ordering;

/// `MFF_PCAP`.
const PCAP: i32 = 0;
/// Modes of `SAMPLE`.
const PERIODIC: i32 = 0;
const PROBABILISTIC: i32 = 1;
/// Values of `PKTINFO`.
const TIME: i32 = 0;
const SIZE: i32 = 1;

/// Parameters of a function, as C gives them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given<'a> {
    /// The text, if the function has one.
    pub text: Option<&'a str>,
    /// The first and the second number.
    pub numbers: (i32, i32),
    /// The number of 64 bits.
    pub long: u64,
}

/// A capture file of `TO_FILE`.
pub struct File {
    name: String,
    most: u64,
    written: u64,
    sink: Option<Box<dyn Sink>>,
}

/// A function of a chain.
pub enum Function {
    /// A text, until the flow is connected.
    Text(String),
    /// The text of the reader, which has decided.
    Head(String),
    /// A text in the middle of the chain.
    Filter(Box<FykeReader>),
    /// Bytes to find, and where.
    Search(Box<Finder<'static>>, usize, usize),
    /// A period in packets, and the packets since the last one that passed.
    Every(u64, u64),
    /// A percentage, and the state of the random numbers.
    Percent(u64, u64),
    /// Counts packets.
    Packets,
    /// Counts bytes.
    Bytes,
    /// Time of the last packet.
    Time,
    /// Size of the last packet.
    Size,
    /// Time since the packet before, and the time of that.
    Gap(Option<u64>),
    /// A capture file.
    File(File),
    /// Packets for the program.
    Buffer,
}

type Done<T> = Result<T, String>;

impl Function {
    /// Makes a function.
    pub fn new(name: &str, given: Given<'_>) -> Done<Function> {
        let text = || given.text.ok_or_else(|| format!("{name} needs a text"));
        let number = |value: i32, least: i32, most: i32| match (least..=most).contains(&value) {
            true => Ok(value.unsigned_abs()),
            false => Err(format!("{name}: {value} is not from {least} to {most}")),
        };
        let size = |value| Ok::<_, String>(number(value, 0, i32::MAX)? as usize);
        let (first, second) = given.numbers;
        Ok(match name {
            "BPF_FILTER" => Function::Text(text()?.to_owned()),
            "STR_SEARCH" => {
                let finder = Box::new(Finder::new(text()?).into_owned());
                Function::Search(finder, size(first)?, size(second)?)
            }
            "SAMPLE" if second == PERIODIC => {
                Function::Every(number(first, 1, i32::MAX)?.into(), 0)
            }
            "SAMPLE" if second == PROBABILISTIC => {
                let seed = RandomState::new().hash_one(first) | 1;
                Function::Percent(number(first, 0, 100)?.into(), seed)
            }
            "SAMPLE" => return Err(format!("SAMPLE has no mode {second}")),
            "PKT_COUNTER" => Function::Packets,
            "BYTE_COUNTER" => Function::Bytes,
            "PKTINFO" if first == TIME => Function::Time,
            "PKTINFO" if first == SIZE => Function::Size,
            "PKTINFO" => return Err(format!("PKTINFO does not know {first}")),
            "GAP" => Function::Gap(None),
            "TO_FILE" if first == PCAP => {
                let most = if given.long == 0 { u64::MAX } else { given.long };
                Function::File(File { name: text()?.to_owned(), most, written: 0, sink: None })
            }
            "TO_FILE" => return Err(format!("TO_FILE has no format {first}")),
            "TO_BUFFER" => Function::Buffer,
            _ => {
                return Err(format!(
                    "there is no function {name}; there are BPF_FILTER, STR_SEARCH, SAMPLE, PKT_COUNTER, \
                     BYTE_COUNTER, PKTINFO, GAP, TO_FILE and TO_BUFFER"
                ));
            }
        })
    }

    /// Makes it ready for packets of this link type; `is_head`: the reader has its text.
    pub fn connect(&mut self, (link, is_head): (LinkType, bool), about: &[Interface]) -> Done<()> {
        match self {
            Function::Text(text) if is_head => *self = Function::Head(std::mem::take(text)),
            Function::Text(text) => {
                *self = Function::Filter(Box::new(FykeReader::of_link(link, text)?));
            }
            Function::File(file) => {
                file.sink = None; // of a connection that failed
                let options = WriteOptions {
                    format: Some(Format::Pcap),
                    interfaces: about.first().cloned().into_iter().collect(),
                    ..WriteOptions::default()
                };
                let made = create_file(Path::new(&file.name), options);
                file.sink = Some(made.map_err(|error| format!("TO_FILE: {error}"))?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies it to a packet; false if it does not pass. `place` is its result.
    fn apply(
        &mut self,
        packet: &Packet,
        place: usize,
        (shared, waits, about): (&Shared, bool, &[Interface]),
    ) -> Done<bool> {
        let result = &shared.results[place];
        let count = |number: u64| {
            result.fetch_add(number, Ordering::Relaxed);
        };
        let passes = |passes: bool| {
            count(passes.into());
            Ok(passes)
        };
        match self {
            Function::Text(_) => return Ok(false), // none in a connected flow
            Function::Head(_) | Function::Packets => count(1),
            Function::Filter(filter) => {
                return passes(filter.matches(&packet.bytes, packet.wire_len)?);
            }
            Function::Search(finder, offset, depth) => {
                let end = match *depth {
                    0 => packet.bytes.len(),
                    depth => offset.saturating_add(depth).min(packet.bytes.len()),
                };
                let part = packet.bytes.get(*offset..end);
                return passes(part.is_some_and(|part| finder.find(part).is_some()));
            }
            Function::Every(value, since) => {
                *since = (*since + 1) % *value;
                return passes(*since == 0);
            }
            Function::Percent(percent, state) => return passes(random(state) % 100 < *percent),
            Function::Bytes => count(packet.wire_len.into()),
            Function::Time => result.store(packet.timestamp_ns, Ordering::Relaxed),
            Function::Size => result.store(packet.wire_len.into(), Ordering::Relaxed),
            Function::Gap(before) => {
                let gap = before.map_or(0, |before| packet.timestamp_ns.saturating_sub(before));
                result.store(gap, Ordering::Relaxed);
                *before = Some(packet.timestamp_ns);
            }
            Function::File(file) => count(file.write(packet, about)?),
            Function::Buffer => count(u64::from(!shared.push(packet.clone(), waits))),
        }
        Ok(true)
    }

    /// Ends it with the flow.
    pub fn finish(self) -> Done<()> {
        match self {
            Function::File(File { sink: Some(sink), .. }) => {
                sink.finish().map(drop).map_err(|error| format!("TO_FILE: {error}"))
            }
            _ => Ok(()),
        }
    }
}

impl File {
    /// Writes a packet, unless it has enough; returns the number of those written, 0 or 1.
    fn write(&mut self, packet: &Packet, about: &[Interface]) -> Done<u64> {
        let interface = about.get(packet.interface as usize).or(about.first());
        let (Some(sink), Some(interface)) = (&mut self.sink, interface) else { return Ok(0) };
        if self.written >= self.most {
            return Ok(0);
        }
        let frame = Frame {
            wire_len: packet.wire_len,
            timestamp_ns: packet.timestamp_ns,
            interface: packet.interface,
            ..Frame::new(packet.link, &packet.bytes)
        };
        sink.write(interface, &frame).map_err(|error| format!("TO_FILE: {error}"))?;
        self.written += 1;
        Ok(1)
    }
}

/// The next number of a xorshift generator.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

/// Applies a chain to a packet.
///
/// # Errors
/// A function cannot continue: a file cannot be written.
pub fn chain(
    functions: &mut [Function],
    packet: &Packet,
    context: (&Shared, bool, &[Interface]),
) -> Done<()> {
    for (place, function) in functions.iter_mut().enumerate() {
        if !function.apply(packet, place, context)? {
            break;
        }
    }
    Ok(())
}
