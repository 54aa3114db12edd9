//! Class `flows`: writes a record for each conversation, as JSON lines, Arrow, Parquet or IPFIX; passes every frame.
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
use crate::records::ipfix::Template;
use crate::records::{Exported, Format, Records, domain};
use arrow_array::ArrayRef;
use arrow_schema::Schema;
use fyke_flow::records::{End, Limits, Packet, Record, Side};
use fyke_flow::streams::{Event, Flow, Piece};
use fyke_flow::{Flows, clock};
use fyke_frame::{Mask, walk};
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

const FORMATS: [&str; 5] = ["json", "ipfix", "arrow", "arrow-stream", "parquet"];

/// Formats in the order of [`FORMATS`].
const ALL_FORMATS: [Format; 5] =
    [Format::Text, Format::Ipfix, Format::Arrow, Format::ArrowStream, Format::Parquet];

/// Records on their way.
struct Reports {
    records: Records<Record>,
    /// Number of records, by the reason of their end.
    written: [u64; End::ALL.len()],
}

struct FlowNode {
    flows: Flows,
    reports: Reports,
    other: u64,
    /// True if the last frames were as recent as the system's clock.
    is_live: bool,
    is_finished: bool,
    connections: Connections,
}

impl Exported for Record {
    fn schema() -> Schema {
        arrow::schema()
    }

    fn columns(records: &[Record]) -> Vec<ArrayRef> {
        arrow::columns(records)
    }

    fn templates() -> &'static [Template] {
        ipfix::TEMPLATES
    }

    fn encode(&self, out: &mut Vec<u8>) -> Option<usize> {
        Some(ipfix::encode(self, out))
    }
}

impl Reports {
    fn add(&mut self, record: &Record) {
        self.written[record.end as usize - 1] += 1;
        self.records.add(record);
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
        let FlowNode { flows, reports, other, is_live, connections, .. } = self;
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
                    flows.packet(&packet, frame.timestamp_ns, &mut |record| reports.add(record));
                }
                None => *other += 1,
            }
        }
        missing(flows, connections, usize::MAX);
        if let Some((_, frame)) = arrival.frames().last() {
            *is_live = clock::is_live(frame.timestamp_ns);
        }
        reports.records.advance_batches();
        if reports.records.is_full() {
            reports.records.drain(Duration::ZERO)?;
        }
        Ok(arrival.mask())
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let FlowNode { flows, reports, is_live, .. } = self;
        if *is_live {
            flows.expire(clock::system_ns(), &mut |record| reports.add(record));
        }
        reports.records.advance();
        reports.records.drain(Duration::ZERO).map(drop)
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let records = &mut self.reports.records;
        if records.is_full() || self.is_finished { records.drain(patience) } else { Ok(true) }
    }

    fn give_up(&mut self) {
        self.reports.records.give_up();
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let FlowNode { flows, reports, .. } = self;
        flows.finish(&mut |record| reports.add(record));
        reports.records.end();
        self.is_finished = true;
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        let Reports { records, written } = &self.reports;
        let all = ("records", written.iter().sum());
        let ends = End::ALL.iter().map(|&end| (end.name(), written[end as usize - 1]));
        let open = [("open", self.flows.open() as u64), ("not_ip", self.other)];
        let all = [all].into_iter().chain(ends).chain(open).chain([records.lost()]);
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
    let chosen = ALL_FORMATS[settings.choice("format", &FORMATS)?];
    let given = settings.text("format").map(|_| chosen);
    Format::of(settings.text("expression").unwrap_or("-"), given)
}

fn check(settings: &Settings) -> Result<(), MakeError> {
    limits(settings)?;
    format(settings)?;
    domain(settings).map(drop)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let text = settings.text("expression").unwrap_or("-");
    let records = Records::open(text, format(settings)?, domain(settings)?, json)?;
    let reports = Reports { records, written: [0; End::ALL.len()] };
    Ok(Box::new(FlowNode {
        flows: Flows::new(limits(settings)?),
        reports,
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
    summary: "writes a record for each conversation, as JSON lines, Arrow, Parquet or IPFIX; passes every frame",
    parameters: &[
        Parameter { name: "expression", summary: "a file, - (default), or udp:HOST:PORT" },
        Parameter {
            name: "format",
            summary: "json (default), arrow (.arrow), arrow-stream (.arrows), parquet (.parquet), ipfix (.ipfix, udp)",
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
