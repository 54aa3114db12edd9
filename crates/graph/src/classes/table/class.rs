//! Class `table`: looks up a frame's addresses and ports in a table; a frame with a row passes with the row's class
//! value.
//!
//! The key is one or several of `src`, `dst`, `sport`, `dport`, `proto`, of the innermost packet. Frames that lack
//! one of these fields, and frames without a row, are rejected, or pass with class value `default`. Cost: a header
//! walk and one hashed look-up, whatever the number of rows. Source: FFPF, section 3.4 (table-based classification).

use crate::node::{
    Accepted, Arrival, Class, Counter, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
use fyke_frame::{Frame, Mask, walk};
use std::collections::HashMap;
use std::net::IpAddr;

const FIELDS: [&str; 5] = ["src", "dst", "sport", "dport", "proto"];

/// Most rows.
const MAX_ROWS: usize = 1 << 22;

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Value {
    Address(IpAddr),
    Number(u16),
}

struct Table {
    key: Vec<usize>,
    rows: HashMap<Vec<Value>, u32>,
    default: Option<u32>,
    scratch: Vec<Value>,
    found: u64,
}

impl Table {
    /// Writes the key of a frame to `scratch`; false if the frame lacks a field.
    fn read(&mut self, frame: &Frame<'_>) -> bool {
        self.scratch.clear();
        let layers = walk(frame);
        let (Some(ip), ports) = (layers.innermost_ip(), layers.ports()) else { return false };
        let protocol = layers.innermost_level().and_then(|level| level.ip_protocol());
        for &field in &self.key {
            let value = match FIELDS[field] {
                "src" => Some(Value::Address(ip.source())),
                "dst" => Some(Value::Address(ip.destination())),
                "sport" => ports.map(|ports| Value::Number(ports.source)),
                "dport" => ports.map(|ports| Value::Number(ports.destination)),
                _ => protocol.map(|protocol| Value::Number(protocol.into())),
            };
            let Some(value) = value else { return false };
            self.scratch.push(value);
        }
        true
    }
}

impl Node for Table {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut passed = Mask::EMPTY;
        for (index, frame) in arrival.frames() {
            let row = if self.read(frame) { self.rows.get(&self.scratch).copied() } else { None };
            self.found += u64::from(row.is_some());
            if let Some(class) = row.or(self.default) {
                arrival.classify(index, class);
                passed.set(index);
            }
        }
        Ok(passed)
    }

    fn counters(&self) -> Vec<Counter> {
        let rows = Counter::count("rows", self.rows.len() as u64).common();
        vec![rows, Counter::count("found", self.found)]
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok((rows, default)) = read(settings, &self.key) else { return false };
        (self.rows, self.default) = (rows, default);
        true
    }
}

fn value(field: usize, text: &str) -> Option<Value> {
    match FIELDS[field] {
        "src" | "dst" => text.parse().ok().map(Value::Address),
        "proto" => match text {
            "tcp" => Some(Value::Number(6)),
            "udp" => Some(Value::Number(17)),
            "icmp" => Some(Value::Number(1)),
            number => number.parse::<u8>().ok().map(|number| Value::Number(number.into())),
        },
        _ => text.parse().ok().map(Value::Number),
    }
}

/// Parses `10.0.0.1 80 = 3`: the fields in the order of the key, and the class value.
fn row(key: &[usize], text: &str) -> Option<(Vec<Value>, u32)> {
    let (fields, class) = text.split_once('=')?;
    let mut words = fields.split_whitespace();
    let values: Option<Vec<_>> =
        key.iter().map(|&field| words.next().and_then(|word| value(field, word))).collect();
    (words.next().is_none()).then_some(())?;
    Some((values?, class.trim().parse().ok()?))
}

fn key(settings: &Settings) -> Result<Vec<usize>, MakeError> {
    let find = |name: &str| FIELDS.iter().position(|field| field.eq_ignore_ascii_case(name));
    let names = settings.required("key")?.split_whitespace();
    names.map(find).collect::<Option<Vec<_>>>().ok_or_else(|| {
        MakeError::new("key", format!("some of these, separated by blanks: {}", FIELDS.join(" ")))
    })
}

/// The rows by their key, and the class value of frames without one.
type Rows = (HashMap<Vec<Value>, u32>, Option<u32>);

fn read(settings: &Settings, key: &[usize]) -> Result<Rows, MakeError> {
    let mut rows = HashMap::new();
    let file = match settings.text("file") {
        None => String::new(),
        Some(path) => crate::texts::read(path, crate::texts::MAX_TEXT_BYTES)
            .map_err(|error| MakeError::refused("file", format!("{path}: {error}")))?,
    };
    let lines = file.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.map(|line| ("file", line));
    let given = settings.pairs().iter().filter(|(name, _)| name == "expression");
    let given = given.map(|(_, text)| ("expression", text.as_str()));
    for (parameter, text) in given.chain(lines).filter(|(_, text)| !text.is_empty()) {
        let Some((values, class)) = row(key, text) else {
            let names: Vec<_> = key.iter().map(|&field| FIELDS[field]).collect();
            let message = format!("{text:?} is not a row: {} = CLASS", names.join(" "));
            return Err(MakeError::new(parameter, message));
        };
        rows.insert(values, class);
        if rows.len() > MAX_ROWS {
            return Err(MakeError::new(parameter, format!("more than {MAX_ROWS} rows")));
        }
    }
    let default = match settings.text("default") {
        None => None,
        Some(_) => Some(settings.number("default", 0..=u64::from(u32::MAX))? as u32),
    };
    Ok((rows, default))
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let key = key(settings)?;
    let (rows, default) = read(settings, &key)?;
    Ok(Box::new(Table { key, rows, default, scratch: Vec::new(), found: 0 }))
}

/// Frames of each row.
fn accepts(settings: &Settings) -> Option<Vec<Accepted>> {
    if settings.text("file").is_some() {
        return None;
    }
    let key = key(settings).ok()?;
    let (rows, default) = read(settings, &key).ok()?;
    let accepted = |values: &Vec<Value>| {
        let mut accepted = Accepted { is_ip: true, ..Accepted::default() };
        for (&field, value) in key.iter().zip(values) {
            match (FIELDS[field], *value) {
                ("src" | "dst", Value::Address(address)) => {
                    let bits = if address.is_ipv4() { 32 } else { 128 };
                    accepted.nets[usize::from(FIELDS[field] == "dst")] = Some((address, bits));
                }
                ("proto", Value::Number(number)) => accepted.protocol = u8::try_from(number).ok(),
                (name, Value::Number(port)) => {
                    accepted.ports[usize::from(name == "dport")] = Some(port);
                }
                (_, Value::Address(_)) => {}
            }
        }
        accepted
    };
    default.is_none().then(|| rows.keys().map(accepted).collect())
}

/// The class.
pub const CLASS: Class = Class {
    name: "table",
    aliases: &["fwtable"],
    summary: "passes frames with a row for their addresses and ports; the row gives the class value",
    parameters: &[
        Parameter { name: "key", summary: "of src dst sport dport proto, separated by blanks" },
        Parameter { name: "expression", summary: "a row, VALUES = CLASS; may be repeated" },
        Parameter { name: "file", summary: "a file of rows, one a line" },
        Parameter { name: "default", summary: "class value of frames without a row (rejected)" },
    ],
    classifies: true,
    check: Some(|settings| {
        key(settings)?;
        if settings.text("file").is_none() { make(settings).map(drop) } else { Ok(()) }
    }),
    accepts,
    make,
    parallel: true,
    live: &["expression", "file", "default"],
    opens: |settings| match settings.text("file") {
        Some(_) => Opens::File,
        None => Opens::Nothing,
    },
    ..Class::NODE
};
