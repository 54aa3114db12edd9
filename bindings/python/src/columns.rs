//! Frames to columns: the schema of a batch, and the one copy of each frame.
//!
//! Headers are read by the header walk, only if a wanted column needs them. Addresses, ports, protocol, flags and
//! payload are those of the innermost packet, as far as the frame has it: fragments after the first have no ports.
//!
//! Cost: the walk (16 ns), the copy of the wanted bytes, and some nanoseconds for each other column.

use crate::address::Addresses;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, DictionaryArray, Int32Array, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use fyke::frame::walk::view::VlanStack;
use fyke::frame::walk::walk_again;
use fyke::frame::{Frame, Layers, LinkType, Protocol};
use fyke::graph::node::Arrival;
use std::net::IpAddr;
use std::sync::Arc;

/// Name of a column, and whether it is there if no columns are named.
type Known = (&'static str, bool);

/// All columns, in their order.
pub const COLUMNS: [Known; 17] = [
    ("time", true),
    ("length", true),
    ("captured", true),
    ("link", true),
    ("interface", true),
    ("vlan", true),
    ("source", true),
    ("destination", true),
    ("protocol", true),
    ("source_port", true),
    ("destination_port", true),
    ("flags", true),
    ("filter", true),
    ("pass", true),
    ("epoch", true),
    ("payload", true),
    ("frame", false),
];

/// Columns of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(Vec<&'static str>);

impl Wanted {
    /// The columns that are there if none are named.
    pub fn usual() -> Wanted {
        Wanted(COLUMNS.iter().filter(|(_, usual)| *usual).map(|(name, _)| *name).collect())
    }

    /// The named columns, in the order of the names.
    ///
    /// # Errors
    /// A name is unknown or there twice, or there is none.
    pub fn named(names: &[String]) -> Result<Wanted, String> {
        let known = || COLUMNS.map(|(name, _)| name).join(", ");
        let mut wanted = Vec::new();
        for name in names {
            match COLUMNS.iter().find(|(known, _)| known == name) {
                Some((name, _)) if wanted.contains(name) => {
                    return Err(format!("columns: {name:?} is there twice"));
                }
                Some((name, _)) => wanted.push(*name),
                None => {
                    return Err(format!(
                        "columns: there is no {name:?}; the columns are: {}",
                        known()
                    ));
                }
            }
        }
        if wanted.is_empty() {
            return Err(format!("columns: name at least one of: {}", known()));
        }
        Ok(Wanted(wanted))
    }

    fn has(&self, names: &[&str]) -> bool {
        self.0.iter().any(|name| names.contains(name))
    }

    /// True if a column tells which pass accepted a frame.
    pub fn needs_credits(&self) -> bool {
        self.has(&["filter", "pass", "epoch"])
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        let words = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let field = |&name: &&'static str| {
            let (kind, may_lack) = match name {
                "time" => (DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), false),
                "length" | "captured" | "interface" => (DataType::UInt32, false),
                "link" => (words(), false),
                "source" | "destination" => (words(), true),
                "protocol" => (DataType::UInt8, true),
                "vlan" | "source_port" | "destination_port" | "flags" => (DataType::UInt16, true),
                "filter" | "pass" | "epoch" => (DataType::UInt64, true),
                _ => (DataType::Binary, false),
            };
            Field::new(name, kind, may_lack)
        };
        Arc::new(Schema::new(self.0.iter().map(field).collect::<Vec<_>>()))
    }
}

/// A column of numbers that frames may lack.
#[derive(Debug)]
struct Numbers<T> {
    values: Vec<T>,
    valid: NullBufferBuilder,
}

impl<T: Copy + Default> Numbers<T> {
    fn new(rows: usize) -> Numbers<T> {
        Numbers { values: Vec::with_capacity(rows), valid: NullBufferBuilder::new(rows) }
    }

    fn push(&mut self, value: Option<T>) {
        self.values.push(value.unwrap_or_default());
        self.valid.append(value.is_some());
    }

    fn take(&mut self) -> (Vec<T>, Option<NullBuffer>) {
        (std::mem::take(&mut self.values), self.valid.finish())
    }
}

/// A column of bytes.
#[derive(Debug)]
struct Bytes {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Bytes {
    fn new(rows: usize, room: usize) -> Bytes {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Bytes { ends, bytes: Vec::with_capacity(room) }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // The sink ends a batch long before 2 GiB.
        self.ends.push(self.bytes.len() as i32);
    }

    fn take(&mut self) -> ArrayRef {
        let ends = OffsetBuffer::new(ScalarBuffer::from(std::mem::take(&mut self.ends)));
        let bytes = Buffer::from_vec(std::mem::take(&mut self.bytes));
        Arc::new(BinaryArray::new(ends, bytes, None))
    }

    /// Room for the next column, which will be about as large.
    fn next_room(&self) -> usize {
        self.bytes.len() + self.bytes.len() / 8
    }
}

/// Groups of columns that are wanted.
#[derive(Debug, Clone, Copy)]
struct Needs {
    walk: bool,
    addresses: bool,
    transport: bool,
    vlan: bool,
    credits: bool,
    payload: bool,
    frame: bool,
}

impl Needs {
    fn of(wanted: &Wanted) -> Needs {
        let addresses = wanted.has(&["source", "destination"]);
        let transport = wanted.has(&["protocol", "source_port", "destination_port", "flags"]);
        let (vlan, payload) = (wanted.has(&["vlan"]), wanted.has(&["payload"]));
        Needs {
            walk: addresses || transport || vlan || payload,
            addresses,
            transport,
            vlan,
            credits: wanted.needs_credits(),
            payload,
            frame: wanted.has(&["frame"]),
        }
    }
}

/// A batch that is being filled.
pub struct Columns {
    wanted: Wanted,
    schema: SchemaRef,
    needs: Needs,
    rows: usize,
    filled: Filled,
}

/// Values so far. Groups that are not wanted stay empty.
struct Filled {
    time: Vec<i64>,
    length: Vec<u32>,
    captured: Vec<u32>,
    interface: Vec<u32>,
    link: Vec<i32>,
    links: Vec<LinkType>,
    vlan: Numbers<u16>,
    source: Addresses,
    destination: Addresses,
    protocol: Numbers<u8>,
    ports: [Numbers<u16>; 2],
    flags: Numbers<u16>,
    credits: [Numbers<u64>; 3],
    payload: Bytes,
    frame: Bytes,
}

impl Columns {
    /// An empty batch with room for `rows` frames.
    pub fn new(wanted: &Wanted, rows: usize) -> Columns {
        let needs = Needs::of(wanted);
        let filled = Filled::new(needs, rows, [0, 0]);
        Columns { wanted: wanted.clone(), schema: wanted.schema(), needs, rows, filled }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.filled.time.len()
    }

    /// Bytes of frames.
    pub fn bytes(&self) -> usize {
        self.filled.payload.bytes.len() + self.filled.frame.bytes.len()
    }

    /// Appends a frame; `layers` is the memory of the header walk.
    pub fn push<'a>(
        &mut self,
        arrival: &Arrival<'a>,
        (index, frame): (usize, &Frame<'a>),
        layers: &mut Layers<'a>,
    ) {
        let Columns { needs, filled, .. } = self;
        filled.push(frame);
        if needs.walk {
            walk_again(frame, layers);
            filled.push_layers(*needs, frame, layers);
        }
        if needs.credits {
            let credit = arrival.credit(index);
            let [filter, pass, epoch] = &mut filled.credits;
            filter.push(credit.and_then(|credit| credit.filter));
            pass.push(credit.and_then(|credit| credit.pass));
            epoch.push(credit.map(|credit| credit.epoch));
        }
        if needs.frame {
            filled.frame.push(frame.data);
        }
    }

    /// Takes the frames so far as a batch.
    ///
    /// # Errors
    /// None that is expected: all columns have one value for each frame.
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let room = [self.filled.payload.next_room(), self.filled.frame.next_room()];
        let new = Filled::new(self.needs, self.rows, room);
        let mut filled = std::mem::replace(&mut self.filled, new);
        let columns = self.wanted.0.iter().map(|name| filled.take_column(name)).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

impl Filled {
    fn new(needs: Needs, rows: usize, [payload, frame]: [usize; 2]) -> Filled {
        let room = |wanted: bool| if wanted { rows } else { 0 };
        let transport = room(needs.transport);
        Filled {
            time: Vec::with_capacity(rows),
            length: Vec::with_capacity(rows),
            captured: Vec::with_capacity(rows),
            interface: Vec::with_capacity(rows),
            link: Vec::with_capacity(rows),
            links: Vec::new(),
            vlan: Numbers::new(room(needs.vlan)),
            source: Addresses::new(room(needs.addresses)),
            destination: Addresses::new(room(needs.addresses)),
            protocol: Numbers::new(transport),
            ports: [Numbers::new(transport), Numbers::new(transport)],
            flags: Numbers::new(transport),
            credits: std::array::from_fn(|_| Numbers::new(room(needs.credits))),
            payload: Bytes::new(room(needs.payload), payload),
            frame: Bytes::new(room(needs.frame), frame),
        }
    }

    fn push(&mut self, frame: &Frame<'_>) {
        self.time.push(i64::try_from(frame.timestamp_ns).unwrap_or(i64::MAX));
        self.length.push(frame.wire_len);
        self.captured.push(u32::try_from(frame.data.len()).unwrap_or(u32::MAX));
        self.interface.push(frame.interface);
        // Files have few link types.
        let known = self.links.iter().position(|&known| known == frame.link);
        let number = known.unwrap_or_else(|| {
            self.links.push(frame.link);
            self.links.len() - 1
        });
        self.link.push(number as i32); // at most 65,536
    }

    fn push_layers(&mut self, needs: Needs, frame: &Frame<'_>, layers: &Layers<'_>) {
        let all = layers.all();
        if needs.vlan {
            let stack = || layers.iter().find_map(|layer| VlanStack::new(layers.data(), layer));
            let tag = || stack().and_then(|stack| stack.tags().next()).map(|tag| tag.id);
            self.vlan.push(frame.meta.vlan.map(|control| control & 0xfff).or_else(tag));
        }
        if needs.addresses {
            let (source, destination) = match all.ip() {
                Some(ip) => (Some(ip.source()), Some(ip.destination())),
                None => {
                    let arp = all.arp();
                    let sender = arp.and_then(|arp| arp.sender_ipv4());
                    let target = arp.and_then(|arp| arp.target_ipv4());
                    (sender.map(IpAddr::V4), target.map(IpAddr::V4))
                }
            };
            self.source.push(source);
            self.destination.push(destination);
        }
        if needs.transport {
            self.protocol.push(all.ip_protocol());
            let ports = all.ports();
            self.ports[0].push(ports.map(|ports| ports.source));
            self.ports[1].push(ports.map(|ports| ports.destination));
            let flags = ports.filter(|ports| ports.protocol == Protocol::Tcp);
            let flags = flags.and_then(|_| Some(u16::from(all.tcp()?.flags()?)));
            self.flags.push(flags);
        }
        if needs.payload {
            self.payload.push(layers.payload());
        }
    }

    /// Takes a column; each is there once.
    fn take_column(&mut self, name: &str) -> ArrayRef {
        let numbers = |column: &mut Vec<u32>| -> ArrayRef {
            Arc::new(UInt32Array::new(std::mem::take(column).into(), None))
        };
        match name {
            "time" => {
                let values = std::mem::take(&mut self.time);
                Arc::new(TimestampNanosecondArray::new(values.into(), None).with_timezone("UTC"))
            }
            "length" => numbers(&mut self.length),
            "captured" => numbers(&mut self.captured),
            "interface" => numbers(&mut self.interface),
            "link" => {
                let keys = std::mem::take(&mut self.link);
                let words =
                    StringArray::from_iter_values(self.links.iter().map(LinkType::to_string));
                let keys = Int32Array::new(keys.into(), None);
                Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(words)))
            }
            "vlan" => halves(&mut self.vlan),
            "source" => self.source.take(),
            "destination" => self.destination.take(),
            "protocol" => {
                let (values, valid) = self.protocol.take();
                Arc::new(UInt8Array::new(values.into(), valid))
            }
            "source_port" => halves(&mut self.ports[0]),
            "destination_port" => halves(&mut self.ports[1]),
            "flags" => halves(&mut self.flags),
            "filter" => words(&mut self.credits[0]),
            "pass" => words(&mut self.credits[1]),
            "epoch" => words(&mut self.credits[2]),
            "payload" => self.payload.take(),
            _ => self.frame.take(),
        }
    }
}

fn halves(column: &mut Numbers<u16>) -> ArrayRef {
    let (values, valid) = column.take();
    Arc::new(UInt16Array::new(values.into(), valid))
}

fn words(column: &mut Numbers<u64>) -> ArrayRef {
    let (values, valid) = column.take();
    Arc::new(UInt64Array::new(values.into(), valid))
}
