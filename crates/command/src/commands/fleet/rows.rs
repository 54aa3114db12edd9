//! The file of `--rows`: results of a scan as CSV, as a file of Arrow or Parquet, or as JSON lines.
//!
//! CSV, Arrow and Parquet are tables. Without rules a file has a row for each node; with rules, a row for each rule
//! with alerts, and one without a rule if there are none.

use crate::commands::one_line;
use anyhow::Context;
use arrow_array::builder::{Float64Builder, StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use fyke_fleet::archive::{NodeCounts, Row};
use fyke_fleet::rules::Alert;
use fyke_graph::records::parquet::RowGroups;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

/// Most rows of a batch of Arrow.
const BATCH: usize = 4_096;

/// The columns of both tables, then those of nodes and those of rules.
const FILE: [(&str, Kind); 6] = [
    ("path", Kind::Text),
    ("worker", Kind::Text),
    ("attempt", Kind::Count),
    ("seconds", Kind::Real),
    ("bytes", Kind::Count),
    ("failed", Kind::Text),
];
const NODE: [(&str, Kind); 7] = [
    ("node", Kind::Text),
    ("arrived", Kind::Count),
    ("passed", Kind::Count),
    ("rejected", Kind::Count),
    ("taken", Kind::Count),
    ("lost", Kind::Count),
    ("counters", Kind::Text),
];
const RULE: [(&str, Kind); 6] = [
    ("gid", Kind::Count),
    ("sid", Kind::Count),
    ("message", Kind::Text),
    ("alerts", Kind::Count),
    ("first", Kind::Text),
    ("last", Kind::Text),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Count,
    Real,
}

/// A value of a row; `None` where a file has nothing.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    None,
    Text(String),
    Count(u64),
    Real(f64),
}

enum Writer {
    Json(BufWriter<File>),
    Csv(BufWriter<File>),
    Columns(Box<Columns>),
}

/// The file.
pub struct Rows {
    writer: Writer,
    /// True for a scan with rules.
    rules: bool,
}

impl Rows {
    /// Makes the file; its name tells the form: `.csv`, `.arrow`, `.parquet`, or else JSON lines.
    pub fn create(path: &Path, rules: bool) -> anyhow::Result<Rows> {
        let file = File::create_new(path).with_context(|| format!("--rows {}", path.display()))?;
        let out = BufWriter::new(file);
        let writer = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => {
                let names: Vec<_> = columns(rules).map(|(name, _)| name).collect();
                let mut out = out;
                writeln!(out, "{}", names.join(","))?;
                Writer::Csv(out)
            }
            Some("arrow") => {
                let file =
                    |schema: &SchemaRef| Ok(Batches::Arrow(FileWriter::try_new(out, schema)?));
                Writer::Columns(Box::new(Columns::new(file, rules)?))
            }
            Some("parquet") => {
                let file = |schema: &SchemaRef| Ok(Batches::Parquet(RowGroups::new(out, schema)?));
                Writer::Columns(Box::new(Columns::new(file, rules)?))
            }
            _ => Writer::Json(out),
        };
        Ok(Rows { writer, rules })
    }

    /// Adds the result of a file.
    pub fn add(&mut self, row: &Row) -> anyhow::Result<()> {
        match &mut self.writer {
            Writer::Json(out) => {
                serde_json::to_writer(&mut *out, row)?;
                Ok(writeln!(out)?)
            }
            Writer::Csv(out) => {
                for cells in table(row, self.rules) {
                    let fields: Vec<String> = cells.iter().map(field).collect();
                    writeln!(out, "{}", fields.join(","))?;
                }
                Ok(())
            }
            Writer::Columns(columns) => {
                table(row, self.rules).try_for_each(|cells| columns.add(cells))
            }
        }
    }

    /// Writes what is left.
    pub fn finish(self) -> anyhow::Result<()> {
        match self.writer {
            Writer::Json(mut out) | Writer::Csv(mut out) => Ok(out.flush()?),
            Writer::Columns(columns) => columns.finish(),
        }
    }
}

fn columns(rules: bool) -> impl Iterator<Item = (&'static str, Kind)> {
    let rest: &[(&str, Kind)] = if rules { &RULE } else { &NODE };
    FILE.iter().chain(rest).copied()
}

/// The rows of a file's result.
fn table(row: &Row, rules: bool) -> impl Iterator<Item = Vec<Cell>> + '_ {
    let text = |text: &str| Cell::Text(one_line(text).into_owned());
    let file = vec![
        text(&row.path),
        text(&row.worker),
        Cell::Count(row.attempt),
        Cell::Real(row.seconds),
        Cell::Count(row.bytes),
        row.failed.as_deref().map_or(Cell::None, text),
    ];
    let rest: Vec<Vec<Cell>> = match rules {
        true => row.alerts.iter().map(rule_cells).collect(),
        false => row.nodes.iter().map(node_cells).collect(),
    };
    let width = if rules { RULE.len() } else { NODE.len() };
    let none = rest.is_empty().then(|| vec![Cell::None; width]);
    rest.into_iter().chain(none).map(move |cells| [file.clone(), cells].concat())
}

fn node_cells(node: &NodeCounts) -> Vec<Cell> {
    let NodeCounts { node, arrived, passed, rejected, taken, lost, counters, .. } = node;
    let counters: Vec<_> =
        counters.iter().map(|(name, value)| format!("{}={value}", word(name))).collect();
    let counts = [arrived, passed, rejected, taken, lost].map(|count| Cell::Count(*count));
    let mut cells = vec![Cell::Text(one_line(node).into_owned())];
    cells.extend(counts);
    cells.push(Cell::Text(counters.join(" ")));
    cells
}

/// The name of a counter as a word: as in a string of JSON, with `\u` and digits for spaces, `=`, `\` and what is not
/// visible.
fn word(name: &str) -> String {
    let mut word = String::with_capacity(name.len());
    for letter in one_line(&name.replace('\\', "\\u005c")).chars() {
        match letter {
            ' ' | '=' => word += &format!("\\u{:04x}", u32::from(letter)),
            letter => word.push(letter),
        }
    }
    word
}

fn rule_cells(alert: &Alert) -> Vec<Cell> {
    let Alert { gid, sid, message, count, first, last } = alert;
    let text = |text: &String| Cell::Text(one_line(text).into_owned());
    let (gid, sid, count) = (Cell::Count(*gid), Cell::Count(*sid), Cell::Count(*count));
    vec![gid, sid, text(message), count, text(first), text(last)]
}

/// A value as a field of CSV (RFC 4180).
fn field(cell: &Cell) -> String {
    match cell {
        Cell::None => String::new(),
        Cell::Count(count) => count.to_string(),
        Cell::Real(real) => format!("{real:.6}"),
        Cell::Text(text) if text.contains([',', '"']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Cell::Text(text) => text.clone(),
    }
}

/// A column of the next batch.
enum Builder {
    Text(StringBuilder),
    Count(UInt64Builder),
    Real(Float64Builder),
}

/// The file of the batches.
enum Batches {
    Arrow(FileWriter<BufWriter<File>>),
    Parquet(RowGroups<BufWriter<File>>),
}

/// A file of Arrow or Parquet.
struct Columns {
    batches: Batches,
    schema: SchemaRef,
    builders: Vec<Builder>,
    waiting: usize,
}

impl Columns {
    fn new(
        file: impl FnOnce(&SchemaRef) -> Result<Batches, ArrowError>,
        rules: bool,
    ) -> anyhow::Result<Columns> {
        let field = |(name, kind)| {
            let kind = match kind {
                Kind::Text => DataType::Utf8,
                Kind::Count => DataType::UInt64,
                Kind::Real => DataType::Float64,
            };
            Field::new(name, kind, true)
        };
        let schema = Arc::new(Schema::new(columns(rules).map(field).collect::<Vec<_>>()));
        let batches = file(&schema)?;
        let builder = |(_, kind)| match kind {
            Kind::Text => Builder::Text(StringBuilder::new()),
            Kind::Count => Builder::Count(UInt64Builder::new()),
            Kind::Real => Builder::Real(Float64Builder::new()),
        };
        let builders = columns(rules).map(builder).collect();
        Ok(Columns { batches, schema, builders, waiting: 0 })
    }

    fn add(&mut self, cells: Vec<Cell>) -> anyhow::Result<()> {
        for (builder, cell) in self.builders.iter_mut().zip(cells) {
            match (builder, cell) {
                (Builder::Text(all), Cell::Text(text)) => all.append_value(text),
                (Builder::Count(all), Cell::Count(count)) => all.append_value(count),
                (Builder::Real(all), Cell::Real(real)) => all.append_value(real),
                (Builder::Text(all), _) => all.append_null(),
                (Builder::Count(all), _) => all.append_null(),
                (Builder::Real(all), _) => all.append_null(),
            }
        }
        self.waiting += 1;
        if self.waiting >= BATCH { self.complete() } else { Ok(()) }
    }

    fn complete(&mut self) -> anyhow::Result<()> {
        self.waiting = 0;
        let arrays = self.builders.iter_mut().map(|builder| -> ArrayRef {
            match builder {
                Builder::Text(all) => Arc::new(all.finish()),
                Builder::Count(all) => Arc::new(all.finish()),
                Builder::Real(all) => Arc::new(all.finish()),
            }
        });
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays.collect())?;
        match &mut self.batches {
            Batches::Arrow(writer) => Ok(writer.write(&batch)?),
            Batches::Parquet(writer) => Ok(writer.write(&batch)?),
        }
    }

    fn finish(mut self) -> anyhow::Result<()> {
        if self.waiting > 0 {
            self.complete()?;
        }
        let out = match &mut self.batches {
            Batches::Arrow(writer) => {
                writer.finish()?;
                writer.get_mut()
            }
            Batches::Parquet(writer) => {
                writer.finish()?;
                writer.get_mut()
            }
        };
        Ok(out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use arrow_ipc::reader::FileReader;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

    fn row(path: &str, alerts: usize) -> Row {
        let alert =
            |sid| Alert { gid: 1, sid, message: "a, \"b\"".into(), count: 7, ..Alert::default() };
        Row {
            index: 0,
            path: path.to_owned(),
            worker: "w".to_owned(),
            attempt: 1,
            seconds: 0.5,
            bytes: 9,
            nodes: vec![NodeCounts { node: "filter".into(), arrived: 3, ..NodeCounts::default() }],
            alerts: (0..alerts as u64).map(alert).collect(),
            more_alerts: 0,
            failed: None,
        }
    }

    /// The batches of a file of Arrow or Parquet.
    fn read(path: &Path) -> Vec<RecordBatch> {
        let file = File::open(path).unwrap();
        match path.extension().unwrap().to_str() {
            Some("arrow") => FileReader::try_new(file, None).unwrap().map(Result::unwrap).collect(),
            _ => {
                let reader = ParquetRecordBatchReader::try_new(file, 2 * BATCH).unwrap();
                reader.map(Result::unwrap).collect()
            }
        }
    }

    #[test]
    fn files_of_arrow_and_parquet_have_the_rows_of_the_csv_file() {
        let folder = tempfile::tempdir().unwrap();
        for (rules, end) in [false, true]
            .into_iter()
            .flat_map(|rules| ["arrow", "parquet"].into_iter().map(move |end| (rules, end)))
        {
            let path = |name: &str| folder.path().join(format!("{rules}-{end}.{name}"));
            let (mut csv, mut file) = (
                Rows::create(&path("csv"), rules).unwrap(),
                Rows::create(&path(end), rules).unwrap(),
            );
            for number in 0..BATCH {
                let row = row(&format!("{number}.pcap"), number % 3);
                csv.add(&row).unwrap();
                file.add(&row).unwrap();
            }
            csv.finish().unwrap();
            file.finish().unwrap();
            let text = std::fs::read_to_string(path("csv")).unwrap();
            let batches = read(&path(end));
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(text.lines().count() - 1, rows);
            assert_eq!(rows, if rules { BATCH + BATCH / 3 } else { BATCH });
            let names: Vec<_> =
                batches[0].schema().fields().iter().map(|it| it.name().clone()).collect();
            assert_eq!(text.lines().next().unwrap(), names.join(","));
            let column = if rules { "sid" } else { "arrived" };
            let counts = batches[0].column_by_name(column).unwrap().as_primitive::<UInt64Type>();
            match rules {
                true => {
                    assert!(counts.is_null_at(0) && counts.value(1) == 0 && counts.value(3) == 1)
                }
                false => assert!(counts.iter().all(|count| count == Some(3))),
            }
        }
    }

    #[test]
    fn names_of_counters_are_words_and_a_row_is_a_line() {
        let names = ["plain", "udp => 3", "a\tb", "a\nb", "a\\u0009b", "a\"b"];
        let counters = names.iter().map(|name| ((*name).to_owned(), 7.0)).collect();
        let node = NodeCounts { node: "x\ty".into(), counters, ..NodeCounts::default() };
        let cells = node_cells(&node);
        let (Some(Cell::Text(first)), Some(Cell::Text(last))) = (cells.first(), cells.last())
        else {
            panic!("{cells:?}")
        };
        assert_eq!(first, "x\\u0009y");
        let read = |word: &str| {
            let (name, value) = word.rsplit_once('=').unwrap();
            assert_eq!(value, "7");
            serde_json::from_str::<String>(&format!("\"{}\"", name.replace('"', "\\\""))).unwrap()
        };
        let mut back: Vec<String> = last.split(' ').map(read).collect();
        back.sort();
        let mut names = names;
        names.sort_unstable();
        assert_eq!(back, names);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let mut rows = Rows::create(&path, false).unwrap();
        rows.add(&Row { nodes: vec![node], ..row("a\tb\n.pcap", 0) }).unwrap();
        rows.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\t'), "{text}");
    }

    trait Nulls {
        fn is_null_at(&self, at: usize) -> bool;
    }

    impl<A: arrow_array::Array> Nulls for A {
        fn is_null_at(&self, at: usize) -> bool {
            self.is_null(at)
        }
    }
}
