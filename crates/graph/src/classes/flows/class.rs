//! Class `flows`: writes a record for each conversation, as JSON lines, Arrow or IPFIX, and passes every frame.
//!
//! [`fyke_flow::records`] tells what a flow is and when it ends. In a live capture, where frames are as recent as the
//! system's clock, that clock ends silent flows if no frame arrives. If the records cannot be written, the node fails;
//! datagrams that the system does not accept count as refused. After [`tcp`](super::tcp), JSON records have the bytes
//! missing in each direction's stream; after a node that classifies, the class values. Cost: a header walk and a hash
//! look-up per frame.

mod arrow;
mod ipfix;

use crate::node::{Arrival, Class, Counter, Emitted, FrameFlow, MakeError, Node, NodeError, Opens};
use crate::node::{Parameter, Settings};
use arrow::Batches;
use fyke_capture::Output;
use fyke_flow::{Flows, clock};
use fyke_flow::records::{End, Limits, Packet, Record, Side};
use fyke_flow::streams::{Event, Flow, Piece};
use fyke_frame::{Mask, walk};
use ipfix::Exporter;
use std::io;
use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// Bytes that wait before the node takes no more frames.
const BUFFER: usize = 1 << 18;
const FORMATS: [&str; 4] = ["json", "ipfix", "arrow", "arrow-stream"];

/// Format of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Ipfix,
    Arrow,
    ArrowStream,
}

/// Formats in the order of [`FORMATS`].
const ALL_FORMATS: [Format; 4] = [Format::Json, Format::Ipfix, Format::Arrow, Format::ArrowStream];
/// Ends of file names that choose a format.
const ENDS: [(&str, Format); 4] = [
    (".ipfix", Format::Ipfix),
    (".arrow", Format::Arrow),
    (".feather", Format::Arrow),
    (".arrows", Format::ArrowStream),
];

enum Target {
    Json(Output),
    Arrow(Box<Batches>, Output),
    Ipfix(Exporter, Output),
    Collector(Exporter, UdpSocket),
}

/// Records on their way.
struct Records {
    target: Target,
    /// Number of records, by the reason of their end.
    written: [u64; End::ALL.len()],
    refused: u64,
}

struct FlowNode {
    flows: Flows,
    records: Records,
    other: u64,
    /// True if the last frames were as recent as the system's clock.
    is_live: bool,
    is_finished: bool,
    connections: Connections,
}

impl Records {
    fn add(&mut self, record: &Record) {
        self.written[record.end as usize - 1] += 1;
        match &mut self.target {
            Target::Json(out) => {
                json(record, out.buffer());
                out.mark(true);
            }
            Target::Arrow(batches, out) => batches.add(record, clock::system_ns(), out),
            Target::Ipfix(exporter, _) | Target::Collector(exporter, _) => {
                let full = exporter.add(record, clock::system_ns());
                self.send(full);
            }
        }
    }

    fn send(&mut self, message: Option<Vec<u8>>) {
        let Some(message) = message else { return };
        match &mut self.target {
            Target::Json(_) | Target::Arrow(..) => {}
            Target::Ipfix(_, out) => {
                out.buffer().extend(message);
                out.mark(true);
            }
            Target::Collector(_, socket) => {
                self.refused += u64::from(socket.send(&message).is_err());
            }
        }
    }

    /// Hands over the records that have waited for others for long enough.
    fn advance(&mut self) {
        let now_ns = clock::system_ns();
        match &mut self.target {
            Target::Json(_) => {}
            Target::Arrow(batches, out) => batches.advance(now_ns, out),
            Target::Ipfix(exporter, _) | Target::Collector(exporter, _) => {
                let message = exporter.take(now_ns);
                self.send(message);
            }
        }
    }

    /// Hands over all records; there will be no more.
    fn end(&mut self) {
        match &mut self.target {
            Target::Arrow(batches, out) => batches.end(out),
            _ => self.advance(),
        }
    }

    fn output(&mut self) -> Option<&mut Output> {
        match &mut self.target {
            Target::Json(out) | Target::Arrow(_, out) | Target::Ipfix(_, out) => Some(out),
            Target::Collector(..) => None,
        }
    }

    fn drain(&mut self, patience: Duration) -> Result<bool, NodeError> {
        if let Target::Arrow(batches, _) = &mut self.target
            && let Some(error) = batches.error()
        {
            return Err(NodeError::new(error));
        }
        let Some(out) = self.output() else { return Ok(true) };
        out.drain(Some(patience)).map_err(NodeError::new)
    }
}

/// The ends of the connection that has a flow number.
#[derive(Debug, Clone, Copy)]
struct Ends {
    connection: u64,
    /// The end that sent the first segment, and the other.
    ends: [SocketAddr; 2],
}

/// The ends of the connections with streams, by the number of the flow. Memory: 80 bytes for each number.
#[derive(Debug, Default)]
struct Connections(Vec<Option<Ends>>);

impl Connections {
    fn note(&mut self, flow: Flow, packet: &Packet) {
        let at = flow.number as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        if self.0[at].is_none_or(|known| known.connection != flow.connection) {
            let ends = match flow.forward {
                true => [packet.source, packet.destination],
                false => [packet.destination, packet.source],
            };
            self.0[at] = Some(Ends { connection: flow.connection, ends });
        }
    }

    /// Adds the bytes that are missing before a piece to the record of its connection.
    fn piece(&self, piece: &Piece<'_>, flows: &mut Flows) {
        let known = self.0.get(piece.flow as usize).copied().flatten();
        if let Some(Ends { connection, ends: [first, second] }) = known
            && connection == piece.connection
        {
            let (from, to) = if piece.forward { (first, second) } else { (second, first) };
            flows.missing(from, to, piece.missing);
        }
    }
}

/// Letters of TCP flags, from the lowest bit.
const FLAGS: &[u8; 8] = b"FSRPAUEC";

/// The letters of TCP flags that are set.
fn flags(tcp_flags: u8) -> impl Iterator<Item = char> {
    let all = FLAGS.iter().enumerate();
    all.filter(move |(bit, _)| tcp_flags >> bit & 1 == 1).map(|(_, letter)| char::from(*letter))
}

/// Writes a record as a line.
fn json(record: &Record, out: &mut Vec<u8>) {
    let Record { protocol, source, destination, start_ns, end_ns, .. } = record;
    let (from, to) = (source.ip(), destination.ip());
    // Writing to memory does not fail.
    let _ = write!(
        out,
        "{{\"start_ns\":{start_ns},\"end_ns\":{end_ns},\"protocol\":{protocol},\"source\":\"{from}\",\
         \"source_port\":{},\"destination\":\"{to}\",\"destination_port\":{},\"end\":\"{}\"",
        source.port(),
        destination.port(),
        record.end.name(),
    );
    for (name, side) in [("forward", record.forward), ("backward", record.backward)] {
        let Side { packets, bytes, tcp_flags, missing_bytes } = side;
        let _ =
            write!(out, ",\"{name}\":{{\"packets\":{packets},\"bytes\":{bytes},\"tcp_flags\":\"");
        out.extend(flags(tcp_flags).map(|letter| letter as u8));
        out.extend(b"\"");
        if missing_bytes > 0 {
            let _ = write!(out, ",\"missing_bytes\":{missing_bytes}");
        }
        out.extend(b"}");
    }
    let rules: Vec<_> =
        record.rules.iter().filter(|rule| **rule != 0).map(u32::to_string).collect();
    if !rules.is_empty() {
        let _ = write!(out, ",\"rules\":[{}]", rules.join(","));
    }
    out.extend(b"}\n");
}

impl Node for FlowNode {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let FlowNode { flows, records, other, is_live, connections, .. } = self;
        let (streams, batch) = (arrival.flows(), arrival.batch());
        let mut next = 0;
        let mut missing = |flows: &mut Flows, connections: &Connections, before: usize| {
            let event = |number| streams.and_then(|streams| streams.event(number, batch));
            while let Some(one) = event(next).filter(|one| one.at < before) {
                if let Event::Piece(piece) = one.event
                    && piece.missing > 0
                {
                    connections.piece(&piece, flows);
                }
                next += 1;
            }
        };
        for (index, frame) in arrival.frames() {
            missing(flows, connections, index);
            match Packet::of(frame, &walk(frame)) {
                Some(mut packet) => {
                    if let FrameFlow::Stream(flow) = arrival.flow(index) {
                        connections.note(flow, &packet);
                    }
                    packet.rule = arrival.class(index);
                    flows.packet(&packet, frame.timestamp_ns, &mut |record| records.add(record));
                }
                None => *other += 1,
            }
        }
        missing(flows, connections, usize::MAX);
        if let Some((_, frame)) = arrival.frames().last() {
            *is_live = clock::is_live(frame.timestamp_ns);
        }
        if let Target::Arrow(..) = records.target {
            records.advance();
        }
        if records.output().is_some_and(|out| out.waiting() >= BUFFER) {
            records.drain(Duration::ZERO)?;
        }
        Ok(arrival.mask())
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let FlowNode { flows, records, is_live, .. } = self;
        if *is_live {
            flows.expire(clock::system_ns(), &mut |record| records.add(record));
        }
        records.advance();
        records.drain(Duration::ZERO).map(drop)
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let is_full = self.records.output().is_some_and(|out| out.waiting() >= BUFFER);
        if is_full || self.is_finished { self.records.drain(patience) } else { Ok(true) }
    }

    fn give_up(&mut self) {
        if let Some(out) = self.records.output() {
            out.give_up();
        }
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let FlowNode { flows, records, .. } = self;
        flows.finish(&mut |record| records.add(record));
        records.end();
        self.is_finished = true;
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        let Records { target, written, refused } = &self.records;
        let records = ("records", written.iter().sum());
        let ends = End::ALL.iter().map(|&end| (end.name(), written[end as usize - 1]));
        let open = [("open", self.flows.open() as u64), ("not_ip", self.other)];
        let lost = match target {
            Target::Json(out) | Target::Ipfix(_, out) => ("lost_writes", out.lost()),
            Target::Arrow(batches, out) => {
                let waiting = if out.is_closed() { batches.waiting() } else { 0 };
                ("lost_writes", out.lost() + waiting)
            }
            Target::Collector(..) => ("refused_datagrams", *refused),
        };
        let all = [records].into_iter().chain(ends).chain(open).chain([lost]);
        all.map(|(name, count)| Counter::count(name, count)).collect()
    }
}

fn limits(settings: &Settings) -> Result<Limits, MakeError> {
    let seconds =
        |name, default| Ok(settings.number_or(name, 1..=86_400, default)? * 1_000_000_000);
    Ok(Limits {
        flows: settings.number_or("flows", 1..=16_777_216, 65_536)? as usize,
        idle_ns: seconds("idle", 60)?,
        active_ns: seconds("active", 300)?,
    })
}

/// Reads the format: that of `format=`, else IPFIX for collectors, else that of the file's name.
fn format(settings: &Settings) -> Result<Format, MakeError> {
    let target = settings.text("expression").unwrap_or("-");
    let is_given = settings.text("format").is_some();
    let chosen = ALL_FORMATS[settings.choice("format", &FORMATS)?];
    if target.starts_with("udp:") {
        return match is_given && chosen != Format::Ipfix {
            true => Err(MakeError::new("format", "a collector gets IPFIX; write others to a file")),
            false => Ok(Format::Ipfix),
        };
    }
    if is_given {
        return Ok(chosen);
    }
    if target.ends_with(".parquet") {
        let message = "records are not written as `.parquet`; expected .arrow, .json or .ipfix, \
            or a format=";
        return Err(MakeError::new("expression", message));
    }
    let by_name = ENDS.iter().find(|(end, _)| target.ends_with(end));
    Ok(by_name.map_or(Format::Json, |(_, format)| *format))
}

fn check(settings: &Settings) -> Result<(), MakeError> {
    limits(settings)?;
    format(settings)?;
    settings.number_or("domain", 0..=u64::from(u32::MAX), 1).map(drop)
}

fn collector(end: &str) -> io::Result<UdpSocket> {
    let not_found = || io::Error::new(io::ErrorKind::NotFound, "udp:HOST:PORT is expected");
    let address = end.to_socket_addrs()?.next().ok_or_else(not_found)?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let text = settings.text("expression").unwrap_or("-");
    let domain = settings.number_or("domain", 0..=u64::from(u32::MAX), 1)? as u32;
    let refused = |error: &dyn std::fmt::Display| MakeError::refused("expression", error);
    let output = || fyke_capture::create_output(Path::new(text), fyke_capture::PRIVATE);
    let format = format(settings)?;
    if text == "-" && format != Format::Json && io::stdout().is_terminal() {
        let message = "this format is not for a terminal; give a file or a pipe, or format=json";
        return Err(MakeError::new("expression", message));
    }
    let target = match (format, text.strip_prefix("udp:")) {
        (_, Some(end)) => Target::Collector(
            Exporter::new(domain),
            collector(end).map_err(|error| refused(&error))?,
        ),
        (Format::Ipfix, None) => {
            Target::Ipfix(Exporter::new(domain), output().map_err(|error| refused(&error))?)
        }
        (Format::Arrow | Format::ArrowStream, None) => {
            let mut out = output().map_err(|error| refused(&error))?;
            let batches = Batches::new(format == Format::Arrow, &mut out);
            Target::Arrow(Box::new(batches.map_err(|error| refused(&error))?), out)
        }
        (Format::Json, None) => Target::Json(output().map_err(|error| refused(&error))?),
    };
    let records = Records { target, written: [0; End::ALL.len()], refused: 0 };
    Ok(Box::new(FlowNode {
        flows: Flows::new(limits(settings)?),
        records,
        other: 0,
        is_live: false,
        is_finished: false,
        connections: Connections::default(),
    }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "flows",
    aliases: &["netflow"],
    summary: "writes a record for each conversation, as JSON lines, Arrow or IPFIX; passes every frame",
    parameters: &[
        Parameter { name: "expression", summary: "a file, - (default), or udp:HOST:PORT" },
        Parameter {
            name: "format",
            summary: "json (default), arrow (.arrow), arrow-stream (.arrows) or ipfix (.ipfix, udp)",
        },
        Parameter { name: "idle", summary: "seconds of silence that end a flow (60)" },
        Parameter { name: "active", summary: "seconds after which a long flow is reported (300)" },
        Parameter { name: "flows", summary: "most flows at a time (65536)" },
        Parameter { name: "domain", summary: "observation domain of IPFIX (1)" },
    ],
    ordered: |_| true,
    reads_streams: true,
    lasting: true,
    waits: true,
    check: Some(check),
    make,
    opens: |settings| match settings.text("expression").is_some_and(|to| to.starts_with("udp:")) {
        true => Opens::Network,
        false => Opens::File,
    },
    ..Class::NODE
};
