//! The functions of MAPI's flows. Safe code only.
//!
//! | function | parameters | passes | result |
//! |---|---|---|---|
//! | `BPF_FILTER` | text | packets that the text accepts | their number |
//! | `STR_SEARCH` | text, offset, depth | packets with the text | their number |
//! | `REGEXP` | expression | packets in which it is found | their number |
//! | `SAMPLE` | value, mode | every value-th packet, or this percentage | their number |
//! | `HASHSAMP` | share, 0 | conversations with a hash below share of 1,024 | their packets |
//! | `PKT_COUNTER`, `BYTE_COUNTER` | | all | packets; bytes on the wire |
//! | `PKTINFO` | which | all | time or size of the last packet |
//! | `GAP` | | all | nanoseconds between the last two packets |
//! | `TO_FILE` | format, name, most packets | all | packets written |
//! | `TO_BUFFER` | | all, for the program | packets lost: the buffer was full |
//!
//! Those on results of others are in `mapi_derived`.
//!
//! DEPARTURE: MAPI's probabilistic `SAMPLE` passes `value + 1` per cent (it compares with ≤), this one `value`. MAPI's
//! `HASHSAMP` chooses directions of TCP and UDP connections, this one conversations: both directions, of any protocol.
//! Source: SCAMPI's MAPI, the library `stdflib`.

use crate::mapi::{Packet, Shared};
use crate::mapi_derived::{Cells, Derived, cells};
use crate::reader::FykeReader;
use fyke_capture::source::Interface;
use fyke_capture::{Sink, WriteOptions, create_file, sink::Format};
use fyke_filter::Options;
use fyke_filters::Inputs;
use fyke_frame::{Frame, LinkType, walk};
use memchr::memmem::Finder;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
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
/// Values of the hash of `HASHSAMP`.
const SHARES: i32 = 1024;
/// Most bytes of the automaton of an expression.
const MAX_AUTOMATON: usize = 8 << 20;

/// Parameters of a function, as C gives them.
#[derive(Debug, Clone, Default)]
pub struct Given<'a> {
    /// Texts, in their order; `None`: it is NULL.
    pub texts: Vec<Option<&'a str>>,
    /// Numbers, in their order.
    pub numbers: Vec<u64>,
    /// Results that numbers name ([`operands`](crate::mapi_derived::operands)).
    pub results: Vec<Cells>,
}

impl<'a> Given<'a> {
    /// A text that the function needs.
    pub fn text(&self, name: &str, place: usize) -> Done<&'a str> {
        self.texts.get(place).copied().flatten().ok_or_else(|| format!("{name} needs a text"))
    }

    /// A number; 0 if it is left out.
    pub fn number(&self, place: usize) -> u64 {
        self.numbers.get(place).copied().unwrap_or_default()
    }

    /// A number of C's type `int`.
    fn int(&self, place: usize) -> i32 {
        self.number(place) as i32 // as C gave it
    }
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
    /// An expression to find.
    Expression(Box<Regex>),
    /// A share of the conversations.
    Share(u64),
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
    /// A function on results, or on times.
    Derived(Box<Derived>),
}

type Done<T> = Result<T, String>;

impl Function {
    /// Makes a function, and its result.
    pub fn new(name: &str, given: &Given<'_>) -> Done<(Function, Cells)> {
        if let Some((derived, result)) = Derived::new(name, given)? {
            return Ok((Function::Derived(Box::new(derived)), result));
        }
        Ok((Function::plain(name, given)?, cells(1)))
    }

    fn plain(name: &str, given: &Given<'_>) -> Done<Function> {
        let text = || given.text(name, 0);
        let number = |value: i32, least: i32, most: i32| match (least..=most).contains(&value) {
            true => Ok(value.unsigned_abs()),
            false => Err(format!("{name}: {value} is not from {least} to {most}")),
        };
        let size = |value| Ok::<_, String>(number(value, 0, i32::MAX)? as usize);
        let (first, second) = (given.int(0), given.int(1));
        Ok(match name {
            "BPF_FILTER" => Function::Text(checked(text()?)?),
            "STR_SEARCH" => {
                let finder = Box::new(Finder::new(text()?).into_owned());
                Function::Search(finder, size(first)?, size(second)?)
            }
            "REGEXP" => Function::Expression(expression(text()?)?),
            "SAMPLE" if second == PERIODIC => {
                Function::Every(number(first, 1, i32::MAX)?.into(), 0)
            }
            "SAMPLE" if second == PROBABILISTIC => {
                let seed = RandomState::new().hash_one(first) | 1;
                Function::Percent(number(first, 0, 100)?.into(), seed)
            }
            "SAMPLE" => return Err(format!("SAMPLE has no mode {second}")),
            "HASHSAMP" if second != 0 => {
                return Err("HASHSAMP keeps no results: its second number is 0".to_owned());
            }
            "HASHSAMP" => Function::Share(number(first, 1, SHARES)?.into()),
            "PKT_COUNTER" => Function::Packets,
            "BYTE_COUNTER" => Function::Bytes,
            "PKTINFO" if first == TIME => Function::Time,
            "PKTINFO" if first == SIZE => Function::Size,
            "PKTINFO" => return Err(format!("PKTINFO does not know {first}")),
            "GAP" => Function::Gap(None),
            "TO_FILE" if first == PCAP => Function::File(File::new(text()?, given.number(1))?),
            "TO_FILE" => return Err(format!("TO_FILE has no format {first}")),
            "TO_BUFFER" => Function::Buffer,
            _ => {
                return Err(format!(
                    "there is no function {name}; there are BPF_FILTER, STR_SEARCH, REGEXP, SAMPLE, HASHSAMP, \
                     STARTSTOP, PKT_COUNTER, BYTE_COUNTER, PKTINFO, GAP, BINOP, STATS, DIST, TO_FILE and TO_BUFFER"
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

    /// Applies it to a packet; false if it does not pass.
    fn apply(
        &mut self,
        packet: &Packet,
        cells: &Cells,
        (shared, waits, about): (&Shared, bool, &[Interface]),
    ) -> Done<bool> {
        let result = &cells[0];
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
            Function::Expression(found) => return passes(found.is_match(&*packet.bytes)),
            Function::Share(share) => {
                return passes(conversation(packet).is_some_and(|hash| hash < *share));
            }
            Function::Derived(derived) => return Ok(derived.apply(packet.timestamp_ns, cells)),
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

    /// Ends it with the flow. The result of a file is then the number of packets that are in it.
    pub fn finish(self, cells: &Cells) -> Done<()> {
        let Function::File(File { sink: Some(mut sink), .. }) = self else { return Ok(()) };
        let flushed = sink.flush();
        let stats = sink.stats();
        cells[0].store(stats.frames, Ordering::Relaxed);
        let finished = flushed.and_then(|()| sink.finish());
        if finished.is_err() || stats.lost == 0 {
            return finished.map(drop).map_err(|error| format!("TO_FILE: {error}"));
        }
        Err(format!("TO_FILE: {} packets could not be written", stats.lost))
    }
}

impl File {
    /// A file for `most` packets, or for all if that is 0. It is made when the flow is connected.
    fn new(name: &str, most: u64) -> Done<File> {
        let folder = Path::new(name).parent().filter(|folder| !folder.as_os_str().is_empty());
        if name.is_empty() || Path::new(name).is_dir() {
            return Err(format!("TO_FILE: {name:?} is not the name of a file"));
        }
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("TO_FILE: {name}: there is no folder {}", folder.display()));
        }
        let most = if most == 0 { u64::MAX } else { most };
        Ok(File { name: name.to_owned(), most, written: 0, sink: None })
    }

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

/// A text that some link type has; that of the source is known when the flow is connected.
fn checked(text: &str) -> Done<String> {
    let options = Options { live: true, ..Options::default() };
    let checked = Inputs { links: Vec::new() }.check(text, &options);
    checked.map_err(|refused| format!("BPF_FILTER: {}", refused.error))?;
    Ok(text.to_owned())
}

/// A regular expression on bytes, of bounded size.
fn expression(text: &str) -> Done<Box<Regex>> {
    let syntax = syntax::Config::new().unicode(false).utf8(false).dot_matches_new_line(true);
    let limits = Regex::config().utf8_empty(false).nfa_size_limit(Some(MAX_AUTOMATON));
    let made = Regex::builder().syntax(syntax).configure(limits).build(text);
    made.map(Box::new).map_err(|error| match error.syntax_error() {
        Some(syntax) => format!("REGEXP: {syntax}"),
        None => format!("REGEXP: {error}"),
    })
}

/// The hash of a packet's conversation, the same for both directions and for each run: below [`SHARES`]. `None` if it
/// has no IP addresses.
fn conversation(packet: &Packet) -> Option<u64> {
    let frame = Frame { wire_len: packet.wire_len, ..Frame::new(packet.link, &packet.bytes) };
    let layers = walk(&frame);
    let ip = layers.innermost_ip()?;
    let (source, destination) = match layers.ports() {
        Some(ports) => (ports.source, ports.destination),
        None => (0, 0),
    };
    let mut ends = [(ip.source(), source), (ip.destination(), destination)];
    ends.sort_unstable();
    let mut hasher = DefaultHasher::new();
    (ends, layers.innermost_level()?.ip_protocol()).hash(&mut hasher);
    Some(hasher.finish() % u64::from(SHARES.unsigned_abs()))
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
    functions: &mut [(Function, Cells)],
    packet: &Packet,
    context: (&Shared, bool, &[Interface]),
) -> Done<()> {
    for (function, result) in functions {
        if !function.apply(packet, result, context)? {
            break;
        }
    }
    Ok(())
}
