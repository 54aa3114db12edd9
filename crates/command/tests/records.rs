//! Flow records through the built command: files of Arrow and Parquet and streams, which pyarrow and DuckDB read, are
//! complete after a signal, and with a message if they are not complete.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Reads files and a stream with the packages, and compares them with the JSON lines.
const SCRIPT: &str = r#"
import json, sys
import duckdb
import pyarrow as pa
import pyarrow.feather, pyarrow.parquet
lines = [json.loads(line) for line in open("r.json")]
flows = pa.ipc.open_file("r.arrow").read_all()
assert flows == pa.feather.read_table("r.arrow")
assert pa.types.is_timestamp(flows.schema.field("start_ns").type), flows.schema
assert flows.schema.field("start_ns").type.tz == "UTC"
with open("r.arrows", "rb") as file:
    assert pa.ipc.open_stream(file).read_all() == flows
parquet = pa.parquet.read_table("r.parquet")
assert parquet == flows and parquet.schema.equals(flows.schema), parquet.schema
assert flows.num_rows == len(lines), (flows.num_rows, len(lines))
for row, line in zip(flows.to_pylist(), lines):
    assert row["start_ns"].value == line["start_ns"], (row, line)
    for name in ["protocol", "source", "source_port", "destination", "destination_port", "end"]:
        assert row[name] == line[name], (row, line)
    for name in ["forward", "backward"]:
        assert row[name] == {"missing_bytes": 0, **line[name]}, (row, line)
    assert row["rules"] == line.get("rules", []), (row, line)
query = "select count(*), sum(forward.packets + backward.packets), max(len(rules)) from flows"
found = duckdb.sql(query).fetchall()[0]
packets = sum(line["forward"]["packets"] + line["backward"]["packets"] for line in lines)
assert found == (len(lines), packets, 1), (found, packets)
assert found == duckdb.sql(query.replace("flows", "'r.parquet'")).fetchall()[0]
print(found)
"#;

/// Frames of this many connections, from two of them with a pattern.
fn frames(count: u16) -> Vec<Vec<u8>> {
    let segment = |port: u16, text: &[u8]| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(port, 80);
        packet.seq_ack(100, 0).flags(0x18).payload(text).build()
    };
    (1..=count)
        .map(|port| segment(port, if port.is_multiple_of(500) { b"needle" } else { b"others" }))
        .collect()
}

fn fyke(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(FYKE);
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The folder with pyarrow and DuckDB, if they are there.
fn packages() -> Option<PathBuf> {
    let target = std::env::current_exe().unwrap().parent().unwrap().join("../../python");
    let is_there = |name| target.join(name).exists();
    if ["READY", "pyarrow", "duckdb", "pandas"].into_iter().all(is_there) {
        return target.canonicalize().ok();
    }
    println!("skipped: no pyarrow or DuckDB in target/python: `cargo xtask setup` installs them");
    None
}

#[test]
fn pyarrow_and_duckdb_read_the_records() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames(1_000))).unwrap();
    // The rule of a connection is that of the node before, in all three.
    let graph = "(pcapin, in.pcap) > (tcp) > (strsearch, needle, stream=y) > (flows, r.json) > \
        (flows, r.arrow) > (flows, r.arrows) > (flows, r.parquet)";
    let output = fyke(folder.path(), &["run", "--no-control", "--stats", graph]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("records 2"), "{said}");
    let Some(target) = packages() else { return };
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).env("PYTHONPATH", target).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = python.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "(2, 2, 1)\n");
}

/// Starts a graph that reads this capture from a pipe, which stays open.
fn from_pipe(folder: &Path, graph: &str, frames: &[Vec<u8>]) -> Child {
    let mut command = Command::new(FYKE);
    command.current_dir(folder).args(["run", "--no-control", "--stats", graph]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&pcap::file(1, frames)).unwrap();
    child
}

/// The first bytes and the last ones of a file of Arrow.
fn is_complete(bytes: &[u8]) -> bool {
    bytes.starts_with(b"ARROW1\0\0") && bytes.ends_with(b"ARROW1") && bytes.len() > 16
}

/// The protocols of the rows of a file of Parquet.
fn protocols(path: &Path) -> parquet::errors::Result<Vec<u8>> {
    let reader = ParquetRecordBatchReader::try_new(std::fs::File::open(path)?, 10_000)?;
    let rows = |batch: RecordBatch| batch["protocol"].as_primitive::<UInt8Type>().values().to_vec();
    Ok(reader.flat_map(|batch| rows(batch.unwrap())).collect())
}

#[test]
fn a_file_is_complete_after_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let graph = "(pcapin, -) > (flows, r.arrow) > (flows, r.arrows) > (flows, r.parquet) > \
        (packetcount)";
    let mut child = from_pipe(folder.path(), graph, &frames(5_000));
    let open = |name: &str| std::fs::read(folder.path().join(name)).unwrap_or_default();
    let start = Instant::now();
    while open("r.arrow").is_empty() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(!is_complete(&open("r.arrow")));
    let parquet = folder.path().join("r.parquet");
    protocols(&parquet).unwrap_err();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    assert!(said.contains("records 5000"), "{said}");
    assert!(is_complete(&open("r.arrow")));
    assert_eq!(protocols(&parquet).unwrap(), [6; 5_000]);
    // The mark of the end.
    assert!(open("r.arrows").ends_with(&[255, 255, 255, 255, 0, 0, 0, 0]));
}

#[test]
fn an_incomplete_file_has_a_message() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames(5_000))).unwrap();
    for format in ["arrow", "parquet"] {
        let graph = format!("(pcapin, in.pcap) > (flows, /dev/full, format={format})");
        let output = fyke(folder.path(), &["run", "--no-control", "--stats", &graph]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("has failed: ") && said.contains("No space left"), "{said}");
    }
}

/// A file that is cut off before its footer has no row that can be read: all of them count as lost.
#[test]
fn without_its_footer_a_file_of_parquet_lost_all_records() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames(60_000))).unwrap();
    // Files of at most 8 blocks of 1,024 bytes, after which a write fails: the records need more.
    let mut command = Command::new("bash");
    let graph = "(pcapin, in.pcap) > (flows, r.parquet)";
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" run --no-control --stats \"$1\"";
    command.args(["-c", script, FYKE, graph]).current_dir(folder.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("r.parquet: File too large"), "{said}");
    assert!(said.contains("records 60000") && said.contains("lost_writes 60000"), "{said}");
    protocols(&folder.path().join("r.parquet")).unwrap_err();
}
