//! Flow records of real captures: packets and bytes compared with tshark's, IPFIX messages read by tshark, and Arrow
//! files and streams compared with the JSON lines.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_ipc::reader::{FileReader, StreamReader};
use fyke_capture::{WriteOptions, create_file};
use fyke_frame::{Frame, LinkType};
use fyke_graph::{Classes, GraphHandle, GraphView};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Packets and bytes from one end to the other: source, destination, ports.
type Totals = BTreeMap<[String; 4], (u64, u64)>;

fn run(text: &str) -> GraphView {
    let started = GraphHandle::start(&[text], Classes::new());
    let (mut engine, _) = started.unwrap_or_else(|error| panic!("{text}\n{error}"));
    engine.run(&AtomicBool::new(false)).unwrap();
    engine.view()
}

/// Lines of fields, separated by tabs; `None` without tshark.
fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Option<String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "occurrence=a", "-Y", filter, "-r"]).arg(path);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The value of a field of a JSON line, without quotes.
fn value<'l>(line: &'l str, name: &str) -> &'l str {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{line}"));
    rest.split([',', '}']).next().unwrap().trim_matches('"')
}

/// Both directions of each record: ends, packets, bytes.
fn directions(line: &str) -> [([String; 4], u64, u64); 2] {
    let names = ["source", "destination", "source_port", "destination_port"];
    let [from, to, from_port, to_port] = names.map(|name| value(line, name).to_owned());
    let back = [to.clone(), from.clone(), to_port.clone(), from_port.clone()];
    let [forward, backward] = ["forward", "backward"].map(|name| {
        let (_, side) = line.split_once(&format!("\"{name}\":")).unwrap();
        (value(side, "packets").parse().unwrap(), value(side, "bytes").parse().unwrap())
    });
    [([from, to, from_port, to_port], forward.0, forward.1), (back, backward.0, backward.1)]
}

#[test]
fn records_have_the_packets_and_bytes_that_tshark_counts() {
    let corpus = Corpus::open();
    let folder = tempfile::tempdir().unwrap();
    let (mut files, mut conversations) = (0, 0);
    for path in corpus.traces("tcp-streams") {
        // Packets within others (tunnels, ICMP errors) are counted by the inner one here, by both in tshark.
        let fields = ["ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "ip.len"];
        let Some(text) = tshark(&path, "tcp && ip && !ipv6 && !icmp", &fields) else {
            return println!("skipped: no tshark");
        };
        if text.contains(',') {
            println!("{}: packets within packets", path.display());
            continue;
        }
        let mut theirs = Totals::new();
        for line in text.lines() {
            let mut words = line.split('\t').map(str::to_owned);
            let ends = [(); 4].map(|()| words.next().unwrap());
            let total = theirs.entry(ends).or_default();
            total.0 += 1;
            total.1 += words.next().unwrap().parse::<u64>().unwrap();
        }
        let records = folder.path().join("records");
        let view = run(&format!("(pcapin, {}) > (flows, {})", path.display(), records.display()));
        let mut ours = Totals::new();
        let (mut packets, mut lines) = (0, 0);
        for line in std::fs::read_to_string(&records).unwrap().lines() {
            lines += 1;
            for (ends, count, bytes) in directions(line) {
                packets += count;
                if value(line, "protocol") == "6" && count > 0 && !ends[0].contains(':') {
                    let total = ours.entry(ends).or_default();
                    (total.0, total.1) = (total.0 + count, total.1 + bytes);
                }
            }
        }
        // Frames that tshark cannot show as TCP (cut, or a wrong header length) are left out.
        ours.retain(|ends, _| theirs.contains_key(ends));
        assert_eq!(ours, theirs, "{}", path.display());
        let node = &view.nodes[1];
        let counter = |name: &str| node.counters.iter().find(|one| one.name == name).unwrap().value;
        assert_eq!(counter("records") as u64, lines);
        assert_eq!(counter("not_ip") as u64 + packets, node.counts.passed, "{}", path.display());
        (files, conversations) = (files + 1, conversations + theirs.len());
    }
    println!("{files} files, {conversations} directions of conversations equal");
    assert!(files >= 10 && conversations > 100, "{files} files, {conversations} directions");
}

/// Writes datagrams as packets to the port of IPFIX, for tshark.
fn capture(datagrams: &[Vec<u8>], path: &Path) {
    let mut sink = create_file(path, WriteOptions::default()).unwrap();
    for datagram in datagrams {
        let len = datagram.len() as u16;
        let mut bytes = vec![0x45, 0];
        bytes.extend((len + 28).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([4739u16, 4739, len + 8, 0].map(u16::to_be_bytes).concat());
        bytes.extend(datagram);
        sink.write(
            &fyke_capture::Interface::new("", LinkType::RAW),
            &Frame::new(LinkType::RAW, &bytes),
        )
        .unwrap();
    }
    sink.finish().unwrap();
}

#[test]
fn a_collector_gets_the_records_as_ipfix() {
    let corpus = Corpus::open();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let port = socket.local_addr().unwrap().port();
    let path = corpus.traces("tcp-streams").into_iter().min_by_key(|path| {
        path.metadata().map(|file| file.len().abs_diff(100_000)).unwrap_or(u64::MAX)
    });
    let path = path.unwrap();
    let text = format!(
        "(pcapin, {}) > (filter, ip) > (flows, {}) > (flows, {}, domain=7) > \
         (flows, udp:127.0.0.1:{port})",
        path.display(),
        at("records.json").display(),
        at("records.ipfix").display(),
    );
    run(&text);
    let mut datagrams = Vec::new();
    let mut buffer = [0; 2_000];
    while let Ok(len) = socket.recv(&mut buffer) {
        assert!(len <= 1_400);
        datagrams.push(buffer[..len].to_vec());
    }
    // The file has the same messages, but for the domain and perhaps the second of the export.
    let file = std::fs::read(at("records.ipfix")).unwrap();
    let lens: usize = datagrams.iter().map(Vec::len).sum();
    assert_eq!((file.len(), file[..2].to_vec(), file[15]), (lens, vec![0, 10], 7));
    capture(&datagrams, &at("messages.pcap"));
    let fields = [
        "cflow.srcaddr",
        "cflow.dstaddr",
        "cflow.srcport",
        "cflow.dstport",
        "cflow.protocol",
        "cflow.flow_end_reason",
        "cflow.octets",
        "cflow.packets",
    ];
    let Some(theirs) = tshark(&at("messages.pcap"), "cflow", &fields) else {
        return println!("skipped: no tshark");
    };
    assert!(!theirs.contains("[Malformed"), "{theirs}");
    // A line for each message with lists of values; those of counts have both directions of each record in turn. Lists
    // of IPv4 addresses would leave out records with IPv6 addresses, so the graph has no such frames.
    let mut found = Vec::new();
    for line in theirs.lines() {
        let lists: Vec<Vec<&str>> =
            line.split('\t').map(|list| list.split(',').collect()).collect();
        for (index, address) in lists[0].iter().enumerate() {
            let one = |field: usize| lists[field][index].to_owned();
            let counts =
                [6, 7].map(|field: usize| lists[field][2 * index..2 * index + 2].join("+"));
            found.push((address.to_string(), [1, 2, 3, 4, 5].map(one), counts));
        }
    }
    let records = std::fs::read_to_string(at("records.json")).unwrap();
    let reasons = ["idle", "active", "closed", "stopped", "evicted"];
    let expected: Vec<_> = records
        .lines()
        .map(|line| {
            let [(_, packets, bytes), (_, back_packets, back_bytes)] = directions(line);
            let reason = reasons.iter().position(|one| *one == value(line, "end")).unwrap() + 1;
            let fields = ["destination", "source_port", "destination_port", "protocol"];
            let [to, from_port, to_port, protocol] =
                fields.map(|name| value(line, name).to_owned());
            let counts = [format!("{bytes}+{back_bytes}"), format!("{packets}+{back_packets}")];
            let fields = [to, from_port, to_port, protocol, reason.to_string()];
            (value(line, "source").to_owned(), fields, counts)
        })
        .collect();
    assert!(expected.len() > 3, "{records}");
    assert_eq!(found, expected);
}

#[test]
fn contradicting_settings_are_refused() {
    for (text, why) in [
        ("(flows, udp:127.0.0.1:1, format=json)", "a collector gets IPFIX"),
        ("(flows, x.json, idle=0)", "idle"),
        ("(flows, x.json, format=xml)", "not one of"),
        ("(flows, udp:127.0.0.1:1, format=arrow)", "a collector gets IPFIX"),
        ("(flows, udp:127.0.0.1:1, format=parquet)", "a collector gets IPFIX"),
        ("(flows, udp:127.0.0.1)", "127.0.0.1"),
        ("(flows, /nowhere/x.json)", "/nowhere/x.json"),
    ] {
        let graph = format!(
            "(pcapin, {}) > {text}",
            Corpus::open().own("tcp-streams").join("gaps-0.pcap").display()
        );
        let refused = GraphHandle::start(&[&graph], Classes::new()).err().unwrap();
        assert!(refused.to_string().contains(why), "{text}: {refused}");
    }
}

/// After `tcp` and rules, records have the missing bytes and the rules.
#[test]
fn records_have_missing_bytes_and_rules() {
    let folder = tempfile::tempdir().unwrap();
    let (input, records) = (folder.path().join("in.pcap"), folder.path().join("records"));
    let segment = |sequence: u32, payload: &[u8]| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, 80);
        packet.seq_ack(sequence, 0).flags(0x18).payload(payload).build()
    };
    let frames = [segment(100, b"abc"), segment(110, b"needle"), segment(116, b"more")];
    std::fs::write(&input, fyke_testkit::pcap::file(1, &frames)).unwrap();
    let graph = |rules: &str| {
        let (input, records) = (input.display(), records.display());
        run(&format!("(pcapin, {input}) > (tcp, held=1){rules} > (flows, {records})"));
        std::fs::read_to_string(folder.path().join("records")).unwrap()
    };
    let all = graph("");
    assert!(all.contains("\"packets\":3,") && all.contains("\"missing_bytes\":7"), "{all}");
    assert!(!all.contains("rules"), "{all}");
    // A gap that only the end of the capture closes is of the direction that lacks it.
    let segments = folder.path().join("records");
    run(&format!("(pcapin, {}) > (tcp) > (flows, {})", input.display(), segments.display()));
    let late = std::fs::read_to_string(&segments).unwrap();
    let (forward, backward) = late.split_once("\"backward\"").unwrap();
    assert!(forward.contains("\"missing_bytes\":7") && !backward.contains("missing"), "{late}");
    let matching = graph(" > (strsearch, needle, stream=y)");
    assert!(matching.contains("\"packets\":2,"), "{matching}");
    assert!(matching.contains("\"missing_bytes\":7") && matching.contains("\"rules\":[1]"));
}

/// The lines of a batch, as the class writes them as JSON.
fn lines(batch: &RecordBatch) -> Vec<String> {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let text = |name: &str, row| column(name).as_string::<i32>().value(row);
    let port = |name: &str, row| column(name).as_primitive::<UInt16Type>().value(row);
    let time = |name: &str, row| column(name).as_primitive::<TimestampNanosecondType>().value(row);
    let side = |name: &str, row| {
        let side = column(name).as_struct();
        let count =
            |name: &str| side.column_by_name(name).unwrap().as_primitive::<UInt64Type>().value(row);
        let flags = side.column_by_name("tcp_flags").unwrap().as_string::<i32>().value(row);
        let missing = match count("missing_bytes") {
            0 => String::new(),
            missing => format!(",\"missing_bytes\":{missing}"),
        };
        let (packets, bytes) = (count("packets"), count("bytes"));
        format!(
            "\"{name}\":{{\"packets\":{packets},\"bytes\":{bytes},\"tcp_flags\":\"{flags}\"{missing}}}"
        )
    };
    let line = |row| {
        let rules = column("rules").as_list::<i32>().value(row);
        let rules: Vec<_> =
            rules.as_primitive::<UInt32Type>().values().iter().map(u32::to_string).collect();
        let rules = match rules.len() {
            0 => String::new(),
            _ => format!(",\"rules\":[{}]", rules.join(",")),
        };
        format!(
            "{{\"start_ns\":{},\"end_ns\":{},\"protocol\":{},\"source\":\"{}\",\"source_port\":{},\
             \"destination\":\"{}\",\"destination_port\":{},\"end\":\"{}\",{},{}{rules}}}",
            time("start_ns", row),
            time("end_ns", row),
            column("protocol").as_primitive::<UInt8Type>().value(row),
            text("source", row),
            port("source_port", row),
            text("destination", row),
            port("destination_port", row),
            text("end", row),
            side("forward", row),
            side("backward", row),
        )
    };
    (0..batch.num_rows()).map(line).collect()
}

/// A capture of this many datagrams, each of another conversation, and of a connection with a gap.
fn many(path: &Path, count: u32) {
    let packet = |number: u32| {
        let [_, high, a, b] = number.to_be_bytes();
        Packet::ethernet().ipv4([10, high, a, b], [10, 0, 0, 2])
    };
    let mut frames: Vec<_> =
        (1..=count).map(|number| packet(number).udp(4000, 53).payload(b"x").build()).collect();
    for sequence in [100, 200] {
        let segment = packet(0).tcp(4000, 80).seq_ack(sequence, 0).flags(0x18);
        frames.push(segment.payload(b"needle").build());
    }
    std::fs::write(path, fyke_testkit::pcap::file(1, &frames)).unwrap();
}

#[test]
fn arrow_and_parquet_have_what_the_json_lines_have() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    many(folder.path().join("in.pcap").as_path(), 9_000);
    let names = ["r.json", "r.arrow", "r.arrows", "other", "r.parquet", "more"].map(at);
    let [json, file, stream, other, parquet, more] = &names;
    let view = run(&format!(
        "(pcapin, {}) > (tcp) > (strsearch, needle, stream=y) > (flows, {json})",
        at("in.pcap")
    ));
    assert_eq!(view.nodes[3].counts.passed, 2);
    let rules = std::fs::read_to_string(json).unwrap();
    assert!(rules.contains("\"rules\":[1]"), "{rules}");
    let text = format!(
        "(pcapin, {}) > (tcp) > (flows, {json}) > (flows, {file}) > (flows, {stream}) > \
         (flows, {other}, format=arrow-stream) > (flows, {parquet}) > (flows, {more}, format=parquet)",
        at("in.pcap")
    );
    let view = run(&text);
    let mut expected: Vec<_> =
        std::fs::read_to_string(json).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(expected.len(), 9_001);
    assert!(expected.iter().any(|line| line.contains("\"missing_bytes\":94")));
    expected.sort();
    let open = |path: &str| std::fs::File::open(path).unwrap();
    let batches: Vec<RecordBatch> =
        FileReader::try_new(open(file), None).unwrap().map(Result::unwrap).collect();
    let sizes: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(sizes, [4_096, 4_096, 809]);
    let sorted = |batches: &[RecordBatch]| {
        let mut all: Vec<_> = batches.iter().flat_map(lines).collect();
        all.sort();
        all
    };
    assert_eq!(sorted(&batches), expected);
    for path in [stream, other] {
        let batches = StreamReader::try_new(open(path), None).unwrap();
        let batches: Vec<RecordBatch> = batches.map(Result::unwrap).collect();
        assert_eq!(sorted(&batches), expected, "{path}");
    }
    for path in [parquet, more] {
        let reader = ParquetRecordBatchReaderBuilder::try_new(open(path)).unwrap();
        let groups = reader.metadata().row_groups().iter().map(|group| group.num_rows());
        assert_eq!(groups.collect::<Vec<_>>(), [9_001]);
        let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
        assert_eq!(sorted(&batches), expected, "{path}");
    }
    for node in &view.nodes[2..] {
        let counter = |name: &str| node.counters.iter().find(|one| one.name == name).unwrap().value;
        assert_eq!((counter("records"), counter("lost_writes")), (9_001.0, 0.0));
    }
}
