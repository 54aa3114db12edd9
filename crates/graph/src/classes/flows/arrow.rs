//! Flow records as Arrow. Names and nesting are those of the JSON lines.

use super::flags;
use crate::records::arrow::{time_type, times};
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, ListArray, StringArray, StructArray};
use arrow_array::{UInt8Array, UInt16Array, UInt64Array};
use arrow_schema::{DataType, Field, Fields, Schema};
use fyke_flow::records::{Record, Side};
use std::net::SocketAddr;
use std::sync::Arc;

fn side_fields() -> Fields {
    let field = |name: &str, kind| Field::new(name, kind, false);
    vec![
        field("packets", DataType::UInt64),
        field("bytes", DataType::UInt64),
        field("tcp_flags", DataType::Utf8),
        field("missing_bytes", DataType::UInt64),
    ]
    .into()
}

/// The columns and their types.
pub fn schema() -> Schema {
    let field = |name: &str, kind| Field::new(name, kind, false);
    let rule = Arc::new(Field::new("item", DataType::UInt32, true));
    Schema::new(vec![
        field("start_ns", time_type()),
        field("end_ns", time_type()),
        field("protocol", DataType::UInt8),
        field("source", DataType::Utf8),
        field("source_port", DataType::UInt16),
        field("destination", DataType::Utf8),
        field("destination_port", DataType::UInt16),
        field("end", DataType::Utf8),
        field("forward", DataType::Struct(side_fields())),
        field("backward", DataType::Struct(side_fields())),
        field("rules", DataType::List(rule)),
    ])
}

/// The columns of records.
pub fn columns(records: &[Record]) -> Vec<ArrayRef> {
    let addresses = |of: fn(&Record) -> SocketAddr| -> ArrayRef {
        let all = records.iter().map(|record| of(record).ip().to_string());
        Arc::new(StringArray::from_iter_values(all))
    };
    let ports = |of: fn(&Record) -> SocketAddr| -> ArrayRef {
        Arc::new(UInt16Array::from_iter_values(records.iter().map(|record| of(record).port())))
    };
    let rules = records
        .iter()
        .map(|record| Some(record.rules.iter().filter(|rule| **rule != 0).map(|rule| Some(*rule))));
    vec![
        times(records.iter().map(|record| record.start_ns)),
        times(records.iter().map(|record| record.end_ns)),
        Arc::new(UInt8Array::from_iter_values(records.iter().map(|record| record.protocol))),
        addresses(|record| record.source),
        ports(|record| record.source),
        addresses(|record| record.destination),
        ports(|record| record.destination),
        Arc::new(StringArray::from_iter_values(records.iter().map(|record| record.end.name()))),
        side(records.iter().map(|record| record.forward)),
        side(records.iter().map(|record| record.backward)),
        Arc::new(ListArray::from_iter_primitive::<UInt32Type, _, _>(rules)),
    ]
}

fn side(sides: impl Iterator<Item = Side> + Clone) -> ArrayRef {
    let count = |of: fn(Side) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(sides.clone().map(of)))
    };
    let letters = sides.clone().map(|side| flags(side.tcp_flags).collect::<String>());
    let columns = vec![
        count(|side| side.packets),
        count(|side| side.bytes),
        Arc::new(StringArray::from_iter_values(letters)),
        count(|side| side.missing_bytes),
    ];
    Arc::new(StructArray::new(side_fields(), columns, None))
}
