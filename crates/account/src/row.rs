//! A row of an account, and its forms: a line of CSV (RFC 4180), Arrow, IPFIX (RFC 7011).

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use fyke_flow::clock;
use fyke_frame::{Direction, Meta};
use fyke_graph::records::Exported;
use fyke_graph::records::arrow::{time_type, times};
use fyke_graph::records::ipfix::{self, Template, VARIABLE};
use std::fmt::Write;
use std::sync::Arc;

/// Frames and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of frames.
    pub frames: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        self.frames = self.frames.saturating_add(other.frames);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// The part of this tally that another one has not; 0 where that has more.
    #[must_use]
    pub fn without(self, other: Tally) -> Tally {
        Tally {
            frames: self.frames.saturating_sub(other.frames),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// Direction of frames, seen from the capturing host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Way {
    /// Sent by the host.
    Sent,
    /// Received on the interface, also frames for other hosts.
    Received,
    /// Not recorded, as in most files.
    Unknown,
}

impl Way {
    /// All directions, in the order of rows.
    pub const ALL: [Way; 3] = [Way::Sent, Way::Received, Way::Unknown];

    /// The direction of a frame.
    #[must_use]
    pub fn of(meta: &Meta) -> Way {
        match meta.direction {
            Direction::Unknown => Way::Unknown,
            Direction::Outbound => Way::Sent,
            Direction::Inbound
            | Direction::Broadcast
            | Direction::Multicast
            | Direction::OtherHost => Way::Received,
        }
    }

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        ["sent", "received", "unknown"][self as usize]
    }
}

/// The frames that a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Frames that a filter accepts; with the name `other`, those that no filter accepts.
    Filter,
    /// Frames of a class; with the name `unknown`, those of no class. The classes of an interface and direction have
    /// each of its frames once.
    Class,
    /// All frames that were read.
    Seen,
    /// The interface's own counter.
    Counter,
    /// The counter less what was seen, of the same time.
    Difference,
    /// Frames that arrived and were not read; their directions and lengths are not known.
    Lost,
}

impl Kind {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        ["filter", "class", "seen", "counter", "difference", "lost"][self as usize]
    }
}

/// A row of the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Begin of the interval, in nanoseconds since 1970.
    pub begin_ns: u64,
    /// Its end: the first nanosecond that does not belong to it, or the time of the last frame of a file.
    pub end_ns: u64,
    /// Name of the interface; that of the file if it has none.
    pub interface: Arc<str>,
    /// Direction of the frames.
    pub way: Way,
    /// The frames that it counts.
    pub kind: Kind,
    /// Name of the filter or class; empty for the other kinds.
    pub name: Arc<str>,
    /// Number of frames; only a difference may be negative.
    pub frames: i64,
    /// Bytes on the wire; `None` = not known.
    pub bytes: Option<i64>,
}

/// Header line of a file of CSV.
pub const CSV_HEADER: &str = "begin,end,interface,direction,kind,name,frames,bytes\r\n";

impl Row {
    /// Appends the row as a line of CSV.
    pub fn csv(&self, out: &mut Vec<u8>) {
        let mut line = String::new();
        for text in [
            &*clock::date_time(self.begin_ns),
            &*clock::date_time(self.end_ns),
            &*self.interface,
            self.way.word(),
            self.kind.word(),
            &*self.name,
        ] {
            quoted(text, &mut line);
            line.push(',');
        }
        let bytes = self.bytes.map_or_else(String::new, |bytes| bytes.to_string());
        // Writing to memory does not fail.
        let _ = write!(line, "{},{bytes}\r\n", self.frames);
        out.extend_from_slice(line.as_bytes());
    }
}

/// Appends a field of CSV, in quotes if it needs them.
fn quoted(text: &str, out: &mut String) {
    if text.contains([',', '"', '\r', '\n']) {
        out.push('"');
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    } else {
        out.push_str(text);
    }
}

/// flowStartMilliseconds, flowEndMilliseconds, interfaceName, applicationCategoryName (the kind), applicationName.
const BEGIN: [ipfix::Field; 5] = [
    (152, 8, None),
    (153, 8, None),
    (82, VARIABLE, None),
    (372, VARIABLE, None),
    (96, VARIABLE, None),
];
/// packetDeltaCount, octetDeltaCount.
const COUNTS: [ipfix::Field; 2] = [(2, 8, None), (1, 8, None)];
/// flowDirection: 0 = received, 1 = sent.
const DIRECTION: ipfix::Field = (61, 1, None);
/// droppedPacketDeltaCount.
const DROPPED: ipfix::Field = (133, 8, None);

/// Frames with a direction, frames without one, lost frames.
const TEMPLATES: &[Template] = &[
    Template {
        number: 260,
        fields: &[
            BEGIN[0], BEGIN[1], BEGIN[2], BEGIN[3], BEGIN[4], COUNTS[0], COUNTS[1], DIRECTION,
        ],
    },
    Template {
        number: 261,
        fields: &[BEGIN[0], BEGIN[1], BEGIN[2], BEGIN[3], BEGIN[4], COUNTS[0], COUNTS[1]],
    },
    Template { number: 262, fields: &[BEGIN[0], BEGIN[1], BEGIN[2], BEGIN[3], BEGIN[4], DROPPED] },
];

impl Exported for Row {
    fn schema() -> Schema {
        let text = |name: &str| Field::new(name, DataType::Utf8, false);
        Schema::new(vec![
            Field::new("begin", time_type(), false),
            Field::new("end", time_type(), false),
            text("interface"),
            text("direction"),
            text("kind"),
            text("name"),
            Field::new("frames", DataType::Int64, false),
            Field::new("bytes", DataType::Int64, true),
        ])
    }

    fn columns(rows: &[Row]) -> Vec<ArrayRef> {
        fn texts<'r>(rows: &'r [Row], of: impl Fn(&'r Row) -> &'r str) -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(of)))
        }
        vec![
            times(rows.iter().map(|row| row.begin_ns)),
            times(rows.iter().map(|row| row.end_ns)),
            texts(rows, |row| &*row.interface),
            texts(rows, |row| row.way.word()),
            texts(rows, |row| row.kind.word()),
            texts(rows, |row| &*row.name),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.frames))),
            Arc::new(rows.iter().map(|row| row.bytes).collect::<Int64Array>()),
        ]
    }

    fn templates() -> &'static [Template] {
        TEMPLATES
    }

    /// A difference has no form, because counts are not negative there; it is that of `counter` and `seen`.
    fn encode(&self, out: &mut Vec<u8>) -> Option<usize> {
        let frames = u64::try_from(self.frames).ok().filter(|_| self.kind != Kind::Difference)?;
        for time_ns in [self.begin_ns, self.end_ns] {
            out.extend((time_ns / 1_000_000).to_be_bytes());
        }
        for text in [&*self.interface, self.kind.word(), &*self.name] {
            ipfix::text(text, out);
        }
        out.extend(frames.to_be_bytes());
        let Some(bytes) = self.bytes else { return Some(2) };
        out.extend(bytes.unsigned_abs().to_be_bytes());
        match self.way {
            Way::Unknown => return Some(1),
            way => out.push(u8::from(way == Way::Sent)),
        }
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        Row {
            begin_ns: 1_700_000_000_000_000_000,
            end_ns: 1_700_000_010_000_000_000,
            interface: "eth0".into(),
            way: Way::Sent,
            kind: Kind::Filter,
            name: name.into(),
            frames: 3,
            bytes: Some(180),
        }
    }

    #[test]
    fn names_with_commas_and_quotes_are_one_field() {
        let mut out = Vec::new();
        row("a,\"b\"").csv(&mut out);
        Row { bytes: None, kind: Kind::Lost, way: Way::Unknown, name: "".into(), ..row("") }
            .csv(&mut out);
        let expected = "2023-11-14T22:13:20.000000000Z,2023-11-14T22:13:30.000000000Z,eth0,sent,filter,\
            \"a,\"\"b\"\"\",3,180\r\n2023-11-14T22:13:20.000000000Z,2023-11-14T22:13:30.000000000Z,eth0,\
            unknown,lost,,3,\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_record_of_ipfix_has_the_fields_of_its_template() {
        for (row, place, len) in [
            (row("dns"), 0, 8 + 8 + 5 + 7 + 4 + 8 + 8 + 1),
            (Row { way: Way::Unknown, ..row("dns") }, 1, 8 + 8 + 5 + 7 + 4 + 8 + 8),
            (Row { kind: Kind::Lost, bytes: None, ..row("") }, 2, 8 + 8 + 5 + 5 + 1 + 8),
        ] {
            let mut out = Vec::new();
            assert_eq!(row.encode(&mut out), Some(place));
            assert_eq!(out.len(), len, "{row:?}");
        }
        let mut out = Vec::new();
        let difference = Row { kind: Kind::Difference, frames: -3, ..row("") };
        assert_eq!((difference.encode(&mut out), out.len()), (None, 0));
    }
}
