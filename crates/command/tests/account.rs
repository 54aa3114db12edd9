//! `fyke account` through the built command: counts equal those of `fyke dump` with the same filters, sums close, every
//! format has the same rows, and on interfaces what one sends is what the other receives.

mod common;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use common::{FYKE, Running, inside, send, tool, veth};
use fyke_capture::{Next, Source, open_file};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A row of CSV.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    begin: String,
    end: String,
    interface: String,
    direction: String,
    kind: String,
    name: String,
    frames: i64,
    bytes: Option<i64>,
}

fn rows(csv: &str) -> Vec<Row> {
    let mut lines = csv.split_terminator("\r\n");
    assert_eq!(lines.next(), Some("begin,end,interface,direction,kind,name,frames,bytes"));
    let row = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::to_owned).collect();
        let fields = <[String; 8]>::try_from(fields).unwrap_or_else(|_| panic!("{line}"));
        let [begin, end, interface, direction, kind, name, frames, bytes] = fields;
        let frames = frames.parse().unwrap();
        let bytes = (!bytes.is_empty()).then(|| bytes.parse().unwrap());
        Row { begin, end, interface, direction, kind, name, frames, bytes }
    };
    lines.map(row).collect()
}

fn fyke(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(FYKE);
    command.current_dir(folder).args(args).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The rows of an account on standard output.
fn account(folder: &Path, args: &[&str]) -> Vec<Row> {
    let output = fyke(folder, &[&["account", "-w", "-"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    rows(&String::from_utf8(output.stdout).unwrap())
}

/// Frames and bytes of all rows of a kind, by name.
fn sums<'r>(rows: impl IntoIterator<Item = &'r Row>, kind: &str) -> BTreeMap<String, (i64, i64)> {
    let mut sums = BTreeMap::new();
    for row in rows.into_iter().filter(|row| row.kind == kind) {
        let sum: &mut (i64, i64) = sums.entry(row.name.clone()).or_default();
        sum.0 += row.frames;
        sum.1 += row.bytes.unwrap_or(0);
    }
    sums
}

/// Frames and bytes on the wire of those frames of a file that `fyke dump` accepts.
fn dumped(folder: &Path, file: &Path, expression: &str) -> (i64, i64) {
    let out = folder.join("dumped.pcapng");
    let mut command = Command::new(FYKE);
    command.arg("dump").arg("-r").arg(file).arg("-w").arg(&out).arg(expression);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", file.display(), said(&output));
    let mut source = open_file(&out).unwrap();
    let mut sum = (0, 0);
    while let Next::Frames(batch, _) = source.next().unwrap() {
        for frame in batch.frames() {
            sum = (sum.0 + 1, sum.1 + i64::from(frame.wire_len));
        }
    }
    sum
}

const ONE: [u8; 4] = [10, 0, 0, 1];
const TWO: [u8; 4] = [10, 0, 0, 2];

fn udp(port: u16, len: usize) -> Vec<u8> {
    Packet::ethernet().ipv4(ONE, TWO).udp(4_000, port).payload(&vec![7; len]).build()
}

fn tcp(port: u16, payload: &[u8]) -> Vec<u8> {
    let packet = Packet::ethernet().ipv4(ONE, TWO).tcp(4_000, port).seq_ack(100, 0).flags(0x18);
    packet.payload(payload).build()
}

/// A frame a second, from 1970-01-01T00:00:00 on, to ports 50 to 59 in turn.
fn capture(folder: &Path, name: &str, frames: u16) {
    let frames: Vec<_> = (0..frames).map(|number| udp(50 + number % 10, 30)).collect();
    std::fs::write(folder.join(name), pcap::file(1, &frames)).unwrap();
}

#[test]
fn every_filter_counts_by_itself_and_the_rest_is_other() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "in.pcap", 95);
    let args = ["-r", "in.pcap", "-f", "one=udp port 53", "--filter", "two=port (53 or 54)"];
    let found = account(folder.path(), &args);
    let len = udp(50, 30).len() as i64;
    let sum = |frames: i64| (frames, frames * len);
    let expected = [("one", sum(10)), ("other", sum(75)), ("two", sum(20))];
    assert_eq!(sums(&found, "filter"), expected.map(|(name, sum)| (name.to_owned(), sum)).into());
    assert_eq!(sums(&found, "seen")[""], sum(95));
    // A file is one interval, from its first frame to its last, and has the name of the file.
    let times = |row: &Row| {
        row.begin == "1970-01-01T00:00:00.000000000Z" && row.end == "1970-01-01T00:01:34.000000000Z"
    };
    assert!(found.iter().all(times), "{found:?}");
    assert!(found.iter().all(|row| row.interface == "in.pcap" && row.direction == "unknown"));
}

#[test]
fn intervals_and_files_have_rows_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "a.pcap", 95);
    capture(folder.path(), "b.pcap", 30);
    let args = ["-r", "a.pcap", "-r", "b.pcap", "--every", "20s", "-f", "dns=port 53"];
    let found = account(folder.path(), &args);
    let frames = |file: &str, name: &str| -> Vec<_> {
        let rows = found.iter().filter(|row| row.interface == file && row.name == name);
        rows.map(|row| (row.begin[17..19].to_owned(), row.frames)).collect()
    };
    let at = |seconds: &str| seconds.to_owned();
    let dns = [("00", 2), ("20", 2), ("40", 2), ("00", 2), ("20", 2)];
    assert_eq!(frames("a.pcap", "dns"), dns.map(|(second, count)| (at(second), count)));
    assert_eq!(frames("b.pcap", "dns"), [(at("00"), 2), (at("20"), 1)]);
    let all = [("00", 20), ("20", 20), ("40", 20), ("00", 20), ("20", 15)];
    assert_eq!(frames("a.pcap", ""), all.map(|(second, count)| (at(second), count)));
    assert_eq!(frames("b.pcap", ""), [(at("00"), 20), (at("20"), 10)]);
    // A limit is met exactly.
    let found = account(folder.path(), &["-r", "a.pcap", "-c", "33", "--every", "20s"]);
    assert_eq!(sums(&found, "seen")[""].0, 33);
}

#[test]
fn classes_have_each_frame_once_and_the_difference_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let handshake = [&b"\x13BitTorrent protocol"[..], &[0; 8], &[7; 40]].concat();
    let frames = [
        udp(53, 30),
        tcp(80, b"GET / HTTP/1.0\r\n\r\n"),
        tcp(80, b"more"),
        // Not known yet, then confirmed, then of a known peer.
        tcp(51_413, b"before"),
        tcp(51_413, &handshake),
        tcp(51_413, b"encrypted"),
        udp(9_999, 10),
    ];
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames)).unwrap();
    let found = account(folder.path(), &["-r", "in.pcap", "--classes", "--nonzero"]);
    let count = |name: &str| sums(&found, "class").get(name).map_or(0, |sum| sum.0);
    let counts = ["dns", "web", "p2p", "unknown", "mail"].map(count);
    assert_eq!(counts, [1, 2, 2, 2, 0], "{found:?}");
    let bytes: i64 = sums(&found, "class").values().map(|sum| sum.1).sum();
    assert_eq!(bytes, frames.iter().map(|frame| frame.len() as i64).sum::<i64>());

    // The first class of a file has a frame; two lines of one name are one class.
    let list = "# ours\nall: tcp\nweb: tcp port 80\nrest: udp port 53\nrest: udp port 9999\n";
    std::fs::write(folder.path().join("list.txt"), list).unwrap();
    let found = account(folder.path(), &["-r", "in.pcap", "--classes=list.txt"]);
    let counts: Vec<_> =
        sums(&found, "class").into_iter().map(|(name, sum)| (name, sum.0)).collect();
    let expected = [("all", 5), ("rest", 2), ("unknown", 0), ("web", 0)];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));

    // The built-in list is a file for --classes.
    let output = fyke(folder.path(), &["account", "--list-classes"]);
    std::fs::write(folder.path().join("own.txt"), &output.stdout).unwrap();
    let own = account(folder.path(), &["-r", "in.pcap", "--classes=own.txt", "--nonzero"]);
    assert_eq!(own, account(folder.path(), &["-r", "in.pcap", "--classes", "--nonzero"]));
}

/// The first five captures by name: filters count what `fyke dump` accepts, and classes what was seen.
#[test]
fn counts_are_those_of_dump() {
    let corpus = Corpus::open();
    let traces = match corpus.shared("traces") {
        Some(shared) => {
            corpus.traces("").into_iter().filter(|path| path.starts_with(&shared)).collect()
        }
        None => corpus.traces(""),
    };
    let folder = tempfile::tempdir().unwrap();
    let texts = [("tcp", "tcp"), ("dns", "udp port 53"), ("long", "greater 200"), ("v6", "ip6")];
    for trace in traces.into_iter().take(5) {
        let file = trace.to_str().unwrap();
        let filters: Vec<_> = texts.iter().map(|(name, text)| format!("{name}={text}")).collect();
        let mut args = vec!["-r", file, "--every", "1s", "--classes"];
        args.extend(filters.iter().flat_map(|filter| ["--filter", filter]));
        let found = account(folder.path(), &args);
        let filters = sums(&found, "filter");
        for (name, text) in texts {
            assert_eq!(filters[name], dumped(folder.path(), &trace, text), "{file}: {text}");
        }
        let none = "not (tcp or udp port 53 or greater 200 or ip6)";
        assert_eq!(filters["other"], dumped(folder.path(), &trace, none), "{file}");
        let all = dumped(folder.path(), &trace, "");
        assert_eq!(sums(&found, "seen")[""], all, "{file}");
        let classes = sums(&found, "class");
        let sum = classes.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert_eq!(sum, all, "{file}: {classes:?}");
    }
}

/// Reads IPFIX: the records of each template, as texts of their fields, by element.
fn ipfix(bytes: &[u8]) -> Vec<BTreeMap<u16, Vec<u8>>> {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (mut at, mut records) = (0, Vec::new());
    let mut templates: BTreeMap<u16, Vec<(u16, u16)>> = BTreeMap::new();
    while at < bytes.len() {
        assert_eq!(word(at), 10, "the version of a message");
        let end = at + usize::from(word(at + 2));
        at += 16;
        while at < end {
            let (set, last) = (word(at), at + usize::from(word(at + 2)));
            at += 4;
            while at < last {
                if set == 2 {
                    let (number, count) = (word(at), usize::from(word(at + 2)));
                    let field = |field: usize| (word(at + 4 + 4 * field), word(at + 6 + 4 * field));
                    templates.insert(number, (0..count).map(field).collect());
                    at += 4 + 4 * count;
                    continue;
                }
                let mut record = BTreeMap::new();
                for &(element, len) in &templates[&set] {
                    let len: usize = if len == 0xffff {
                        at += 1;
                        bytes[at - 1].into()
                    } else {
                        len.into()
                    };
                    record.insert(element, bytes[at..at + len].to_vec());
                    at += len;
                }
                records.push(record);
            }
            assert_eq!(at, last);
        }
        assert_eq!(at, end);
    }
    records
}

#[test]
fn ipfix_has_the_rows_of_csv() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "in.pcap", 95);
    let args = ["-r", "in.pcap", "--every", "1s", "-f", "dns=port 53", "-f", "all=udp"];
    let expected = account(folder.path(), &args);
    let output = fyke(folder.path(), &[&["account", "-w", "r.ipfix"], &args[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let bytes = std::fs::read(folder.path().join("r.ipfix")).unwrap();
    let records = ipfix(&bytes);
    let number = |field: &[u8]| field.iter().fold(0i64, |all, byte| all << 8 | i64::from(*byte));
    let text = |field: &[u8]| String::from_utf8(field.to_vec()).unwrap();
    let found: Vec<_> = records
        .iter()
        .map(|record| {
            let [interface, kind, name] = [82, 372, 96].map(|element| text(&record[&element]));
            assert!(!record.contains_key(&61), "a file has no direction");
            (interface, kind, name, number(&record[&2]), number(&record[&1]))
        })
        .collect();
    let of = |row: &Row| {
        let Row { interface, kind, name, frames, bytes, .. } = row.clone();
        (interface, kind, name, frames, bytes.unwrap())
    };
    assert_eq!(found, expected.iter().map(of).collect::<Vec<_>>());
    let Ok(output) = Command::new("tshark")
        .arg("-r")
        .arg(folder.path().join("r.ipfix"))
        .args(["-T", "fields", "-e", "cflow.packets", "-E", "occurrence=a", "-E", "aggregator= "])
        .output()
    else {
        return println!("skipped: no tshark");
    };
    let packets: i64 = String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .map(|word| word.parse::<i64>().unwrap())
        .sum();
    let sum: i64 = expected.iter().map(|row| row.frames).sum();
    assert_eq!(packets, sum, "{}", said(&output));
}

#[test]
fn a_collector_gets_datagrams_and_filters_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "in.pcap", 95);
    let lines: String = (50..60).map(|port| format!("p{port}: udp port {port}\n")).collect();
    std::fs::write(folder.path().join("filters.txt"), lines).unwrap();
    let args = ["-r", "in.pcap", "--every", "20s", "-F", "filters.txt"];
    let expected = account(folder.path(), &args);
    assert!((50..55).all(|port| sums(&expected, "filter")[&format!("p{port}")].0 == 10));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let collector = format!("udp:{}", socket.local_addr().unwrap());
    let output = fyke(folder.path(), &[&["account", "-w", &collector], &args[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let (mut records, mut datagram) = (0, [0; 2_000]);
    while records < expected.len() {
        let len = socket.recv(&mut datagram).unwrap();
        assert!(len <= 1_400);
        records += ipfix(&datagram[..len]).len();
    }
    assert_eq!(records, expected.len());
    let follow = "p2p: follow p2p\n";
    std::fs::write(folder.path().join("filters.txt"), follow).unwrap();
    let output = fyke(folder.path(), &[&["account"], &args[..]].concat());
    assert!(said(&output).contains("`follow` is for classes"), "{}", said(&output));
}

/// Compares files of Arrow and Parquet and a stream of Arrow with the CSV, by pyarrow.
const SCRIPT: &str = r#"
import csv
import pyarrow as pa
import pyarrow.parquet
with open("r.csv", newline="") as file:
    lines = list(csv.DictReader(file))
table = pa.ipc.open_file("r.arrow").read_all()
with open("r.arrows", "rb") as file:
    assert pa.ipc.open_stream(file).read_all() == table
assert pa.parquet.read_table("r.parquet") == table
assert table.num_rows == len(lines), (table.num_rows, len(lines))
assert table.schema.field("begin").type == pa.timestamp("ns", "UTC"), table.schema
for row, line in zip(table.to_pylist(), lines):
    for name in ["interface", "direction", "kind", "name"]:
        assert row[name] == line[name], (row, line)
    assert row["frames"] == int(line["frames"]) and row["bytes"] == int(line["bytes"]), (row, line)
    assert row["begin"].isoformat()[:19] == line["begin"][:19], (row, line)
print(sum(row["frames"] for row in table.to_pylist() if row["kind"] == "seen"))
"#;

#[test]
fn arrow_and_parquet_have_the_rows_of_csv() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "in.pcap", 95);
    for file in ["r.csv", "r.arrow", "r.arrows", "r.parquet"] {
        let args = ["account", "-r", "in.pcap", "--every", "10s", "-f", "dns=port 53", "-w", file];
        let output = fyke(folder.path(), &args);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("95 frames, "), "{}", said(&output));
    }
    let bytes = std::fs::read(folder.path().join("r.arrow")).unwrap();
    assert!(bytes.starts_with(b"ARROW1\0\0") && bytes.ends_with(b"ARROW1"));
    let file = std::fs::File::open(folder.path().join("r.parquet")).unwrap();
    let batches = ParquetRecordBatchReader::try_new(file, 4_096).unwrap().map(Result::unwrap);
    let seen = batches.flat_map(|batch| {
        let kinds = batch["kind"].as_string::<i32>().iter();
        let frames = batch["frames"].as_primitive::<Int64Type>().values().iter();
        let seen = kinds.zip(frames).filter(|(kind, _)| *kind == Some("seen"));
        seen.map(|(_, frames)| *frames).collect::<Vec<_>>()
    });
    assert_eq!(seen.sum::<i64>(), 95);
    let target = std::env::current_exe().unwrap().parent().unwrap().join("../../python");
    if !["READY", "pyarrow"].into_iter().all(|name| target.join(name).exists()) {
        return println!("skipped: no pyarrow in target/python: `cargo xtask setup` installs it");
    }
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).env("PYTHONPATH", target).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = python.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "95\n");
}

#[test]
fn a_table_is_printed_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "in.pcap", 20);
    let output = fyke(folder.path(), &["account", "-r", "in.pcap", "-f", "dns=port 53"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("filter dns"), "{text}{}", said(&output));
    assert!(text.contains(" 10.0%\n") && text.contains(" 90.0%\n"), "{text}");
}

#[test]
fn a_full_disk_is_named_and_the_counts_are_right() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "in.pcap", 95);
    for format in ["csv", "arrow", "parquet", "ipfix"] {
        let args = ["account", "-r", "in.pcap", "-f", "dns=port 53", "--format", format];
        let output = fyke(folder.path(), &[&args[..], &["-w", "/dev/full"]].concat());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{format}: {said}");
        assert!(said.contains("/dev/full: No space left"), "{format}: {said}");
        assert!(said.contains("95 frames, "), "{format}: {said}");
        assert!(said.contains("could not be written"), "{format}: {said}");
    }
}

#[test]
fn mistakes_are_shown_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "in.pcap", 5);
    std::fs::write(folder.path().join("kept.csv"), "kept").unwrap();
    std::fs::write(folder.path().join("list.txt"), "web: tcp port 80\nmail\n").unwrap();
    for (wrong, part) in [
        (&["-f", "dns"][..], "expected 'NAME=EXPR'"),
        (&["-f", "dns="], "an expression is missing"),
        (&["-f", "a b=udp"], "the name `a b`"),
        (&["-f", "other=udp"], "choose another name"),
        (&["-f", "a=udp", "-f", "a=tcp"], "the name `a` is there twice"),
        (&["-f", "a=udp and"], "expected"),
        (&["--classes=list.txt"], "--classes list.txt: line 2: `mail`"),
        (&["--classes=none.txt"], "none.txt"),
        (&["--every", "1ms"], "not from 100ms to 1d"),
        (&["--every", "10"], "expected a number and a unit"),
        (&["--duration", "1s"], "cannot be used with"),
    ] {
        let args = [&["account", "-r", "in.pcap", "-w", "kept.csv"], wrong].concat();
        let output = fyke(folder.path(), &args);
        let status = if wrong[0] == "--classes=none.txt" { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(status), "{wrong:?}: {}", said(&output));
        assert!(said(&output).contains(part), "{wrong:?}: {}", said(&output));
        assert_eq!(std::fs::read(folder.path().join("kept.csv")).unwrap(), b"kept", "{wrong:?}");
    }
}

/// The rows of an interface and direction.
fn of<'r>(rows: &'r [Row], interface: &str, direction: &str) -> Vec<&'r Row> {
    let is = |row: &&Row| row.interface == interface && row.direction == direction;
    rows.iter().filter(is).collect()
}

fn start(folder: &Path, args: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.current_dir(folder).args(["account", "-i", "v0", "-i", "v1"]).args(args);
    let running = Running::start(&mut command);
    running.hear("listening on v1");
    running
}

#[test]
fn what_one_interface_sends_the_other_receives() {
    if !inside("what_one_interface_sends_the_other_receives") {
        return;
    }
    veth();
    let folder = tempfile::tempdir().unwrap();
    let args = ["--every", "1s", "-f", "even=udp port 5001", "-f", "none=tcp", "-w", "r.csv"];
    let mut running = start(folder.path(), &args);
    send(1_000, 100);
    running.settle(2_000);
    // A filter more, while it runs: it counts from now on, and the sums still close.
    running.ctl(&["add", "odd=udp port 5002"]);
    send(1_000, 200);
    running.settle(4_000);
    let shown = running.ctl(&["show"]);
    assert!(shown.contains("even=udp port 5001") && shown.contains("odd=udp port 5002"), "{shown}");
    running.signal("INT");
    let status = running.end();
    assert!(status.success(), "{}", running.said());
    let rows = rows(&std::fs::read_to_string(folder.path().join("r.csv")).unwrap());
    let frame = |len: i64| common::datagram(5001, len as usize).len() as i64;
    let bytes = 1_000 * (frame(100) + frame(200));
    for (interface, direction, other) in [("v0", "sent", "received"), ("v1", "received", "sent")] {
        let own = of(&rows, interface, direction);
        let filters = sums(own.iter().copied(), "filter");
        let count = |name: &str| filters[name].0;
        let counts = ["even", "odd", "none", "other"].map(count);
        assert_eq!(counts, [1_000, 500, 0, 500], "{interface}: {rows:?}");
        for kind in ["seen", "counter"] {
            assert_eq!(sums(own.iter().copied(), kind)[""], (2_000, bytes), "{interface} {kind}");
        }
        assert_eq!(sums(own, "difference")[""], (0, 0), "{interface}: {rows:?}");
        let other = of(&rows, interface, other);
        for kind in ["seen", "counter", "difference"] {
            assert_eq!(sums(other.iter().copied(), kind)[""], (0, 0), "{interface} {kind}");
        }
    }
    assert_eq!(sums(&rows, "lost")[""].0, 0);
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (4_000, 4_000, 0));
}

#[test]
fn edits_are_refused_with_a_reason_and_removed_filters_keep_their_rows() {
    if !inside("edits_are_refused_with_a_reason_and_removed_filters_keep_their_rows") {
        return;
    }
    veth();
    let folder = tempfile::tempdir().unwrap();
    let args = ["--every", "1h", "-f", "even=udp port 5001", "--classes", "-w", "r.csv"];
    let mut running = start(folder.path(), &args);
    send(100, 100);
    running.settle(200);
    let refused = |words: &[&str]| {
        let mut command = Command::new(FYKE);
        command.args(["ctl", "--pid", &running.child.id().to_string()]).args(words);
        let output = command.env("FYKE_RUNTIME_DIR", common::runtime()).output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        said(&output)
    };
    assert!(refused(&["add", "udp"]).contains("expected 'NAME=EXPR'"));
    assert!(refused(&["add", "even=tcp"]).contains("the name `even` is there twice"));
    assert!(refused(&["add", "x=udp and"]).contains("expected"));
    running.ctl(&["del", "1"]);
    running.ctl(&["add", "odd=udp port 5002"]);
    send(100, 100);
    running.settle(400);
    running.signal("TERM");
    assert!(running.end().success(), "{}", running.said());
    let rows = rows(&std::fs::read_to_string(folder.path().join("r.csv")).unwrap());
    let filters = sums(of(&rows, "v1", "received"), "filter");
    let counts = ["even", "odd", "other"].map(|name| filters[name].0);
    assert_eq!(counts, [50, 50, 100], "{rows:?}");
    let classes = sums(of(&rows, "v1", "received"), "class");
    assert_eq!(classes.values().map(|sum| sum.0).sum::<i64>(), 200, "{classes:?}");
}

#[test]
fn with_losses_the_sums_close_and_the_difference_is_what_was_lost() {
    if !inside("with_losses_the_sums_close_and_the_difference_is_what_was_lost") {
        return;
    }
    veth();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(FYKE);
    command.current_dir(folder.path()).args(["account", "-i", "v1", "-B", "512", "--every", "1s"]);
    let mut running = Running::start(command.args(["-f", "even=udp port 5001", "-w", "r.csv"]));
    running.hear("listening on");
    send(1_000, 100);
    running.settle(1_000);
    // Nothing is read, so the ring overflows.
    running.signal("STOP");
    send(5_000, 1_000);
    running.signal("CONT");
    running.settle(6_000);
    send(1_000, 100);
    running.settle(7_000);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let rows = rows(&std::fs::read_to_string(folder.path().join("r.csv")).unwrap());
    let [seen, counter, difference, lost] =
        ["seen", "counter", "difference", "lost"].map(|kind| sums(&rows, kind)[""].0);
    assert!(lost > 0 && seen >= 2_000, "{rows:?}");
    assert_eq!((seen + lost, counter, difference), (7_000, 7_000, lost), "{rows:?}");
    let filters = sums(&rows, "filter");
    assert_eq!(filters["even"].0 + filters["other"].0, seen);
    let sum = running.sum();
    assert_eq!((sum.accepted, sum.lost), (seen as u64, lost as u64));
}

#[test]
fn an_interface_that_is_made_again_is_compared_again() {
    if !inside("an_interface_that_is_made_again_is_compared_again") {
        return;
    }
    veth();
    let folder = tempfile::tempdir().unwrap();
    let mut running = start(folder.path(), &["--every", "1s", "-w", "r.csv"]);
    send(100, 100);
    running.settle(200);
    // An interval ends; its reading has these frames.
    std::thread::sleep(Duration::from_millis(1_200));
    tool("ip link del v0");
    for name in ["v0", "v1"] {
        running.hear(&format!("{name}: the interface is gone"));
    }
    veth();
    for name in ["v0", "v1"] {
        running.hear(&format!("capturing on {name} again"));
    }
    // The new interfaces are read at the end of an interval.
    std::thread::sleep(Duration::from_millis(2_200));
    send(100, 100);
    running.settle(400);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let rows = rows(&std::fs::read_to_string(folder.path().join("r.csv")).unwrap());
    let own = of(&rows, "v1", "received");
    assert_eq!(sums(own.iter().copied(), "seen")[""].0, 200, "{rows:?}");
    assert_eq!(sums(own.iter().copied(), "counter")[""].0, 200, "{rows:?}");
    assert_eq!(sums(own, "difference")[""], (0, 0), "{rows:?}");
}

#[test]
fn a_live_account_ends_after_its_duration_with_a_shorter_interval() {
    if !inside("a_live_account_ends_after_its_duration_with_a_shorter_interval") {
        return;
    }
    veth();
    tool("ip link set v1 mtu 9000");
    let folder = tempfile::tempdir().unwrap();
    let args = ["--every", "1d", "--duration", "5s", "-w", "r.csv", "--workers", "2"];
    let mut running = start(folder.path(), &args);
    send(200, 100);
    assert!(running.end().success(), "{}", running.said());
    let rows = rows(&std::fs::read_to_string(folder.path().join("r.csv")).unwrap());
    assert_eq!(sums(of(&rows, "v1", "received"), "seen")[""].0, 200, "{rows:?}");
    assert_eq!(sums(of(&rows, "v0", "sent"), "difference")[""], (0, 0), "{rows:?}");
    assert!(rows.iter().all(|row| row.begin < row.end), "{rows:?}");
}
