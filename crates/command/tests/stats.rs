//! Numbers that a running fyke shows: each frame is counted once, an answer is of one moment, and JSON has data fields.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Runs a script in its own network namespace; `None` if that is not permitted.
fn in_namespace(folder: &Path, script: &str) -> Option<Output> {
    let namespace = Script::new(FYKE, folder).limit_s(100);
    let output = namespace.run(&format!("set -eu; veth; {script}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(output)
}

fn datagrams(count: usize, port: u16) -> Vec<Vec<u8>> {
    let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, port);
    vec![packet.payload(&[7; 1000]).build(); count]
}

/// Builds a capture file with this number of datagrams to each of these ports.
fn write(path: &Path, ports: &[(usize, u16)]) {
    let frames: Vec<_> = ports.iter().flat_map(|&(count, port)| datagrams(count, port)).collect();
    std::fs::write(path, pcap::file(1, &frames)).unwrap();
}

fn read_json(folder: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(!lines.is_empty(), "{name} is empty");
    lines
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn sum(values: &[Value], key: &str) -> u64 {
    values.iter().map(|value| number(value, key)).sum()
}

fn node<'v>(stats: &'v Value, name: &str) -> &'v Value {
    let found = list(stats, "nodes").iter().find(|node| node["node"] == name);
    found.unwrap_or_else(|| panic!("no node {name} in {stats}"))
}

/// Checks every sum of an answer of `stats`.
fn assert_closed(stats: &Value) {
    let accounting = &stats["accounting"];
    let lost: u64 =
        accounting["lost"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let fates = ["delivered", "rejected", "taken"].map(|fate| number(accounting, fate));
    assert_eq!(number(accounting, "seen"), fates.iter().sum::<u64>() + lost, "{stats}");
    for node in list(stats, "nodes") {
        let parts = ["passed", "rejected", "taken", "lost"].map(|part| number(node, part));
        assert_eq!(number(node, "arrived"), parts.iter().sum::<u64>(), "{node}");
    }
}

/// Overlapping branches, one of which fails while it writes the frames of the first port: each frame counts once, and a
/// frame that an output lacks is lost, whichever other branch has it.
#[test]
fn every_frame_has_one_fate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    write(&file, &[(500, 5001), (300, 5002), (70, 5003), (11, 5004)]);
    let graph = format!(
        "(pcapin,\"{}\") > [[(filter,\"udp dst portrange 5001-5002\") > {{a}}(packetcount)] | \
         [(filter,\"udp dst port 5002\") > {{b}}(packetcount)] | \
         [(filter,\"udp dst port 5003 or 5001\") > {{full}}(tofile,/dev/full)]]",
        file.display()
    );
    let output = Command::new(FYKE).args(["run", "--stats", "--no-control", &graph]).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    // The batch in which the writer failed is lost to it, later ones to the failed node.
    let sum = "881 seen = 300 accepted + 11 rejected + ";
    let lost =
        said.lines().find_map(|line| line.strip_prefix(sum)).unwrap_or_else(|| panic!("{said}"));
    let numbers = lost.split(' ').filter_map(|word| word.parse::<u64>().ok());
    assert_eq!(numbers.sum::<u64>(), 570, "{said}");
    assert!(
        lost.contains("lost (full has failed) + ") && lost.ends_with("lost (writer)"),
        "{said}"
    );
}

/// Two graphs on one device; the ids of `show` are those of `stats`, and nothing is a sentence.
#[test]
fn a_running_graph_says_what_it_rejects() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("in.pcap"), &[(5, 5001), (4, 5002), (3, 5003), (8, 5004)]);
    let script = r#"
        "$FYKE" run --count-all '(device,far) > [[{a}(filter,"udp dst port 5001") > (packetcount)] |
            [{b}(filter,"udp dst portrange 5001-5002") > (packetcount)]]' > /dev/null 2> log &
        answers
        "$FYKE" ctl add '(device,far) > {c}(filter,"udp dst portrange 5002-5003")' > /dev/null
        send in.pcap
        saw 20
        "$FYKE" ctl --json stats > stats
        "$FYKE" ctl stats > stats.txt
        "$FYKE" ctl --json show > show
        "$FYKE" ctl show > show.txt
        "$FYKE" ctl del 1 > /dev/null
        send in.pcap
        saw 40
        "$FYKE" ctl --json stats > after
        kill -INT %1; wait %1
    "#;
    let Some(_) = in_namespace(folder.path(), script) else { return };
    let stats = &read_json(folder.path(), "stats")[0];
    assert_closed(stats);
    let accounting = &stats["accounting"];
    assert_eq!(
        (number(accounting, "delivered"), number(accounting, "rejected")),
        (12, 8),
        "{stats}"
    );
    let graphs: Vec<_> = list(stats, "filters")
        .iter()
        .map(|one| (number(one, "id"), number(one, "accepted")))
        .collect();
    assert_eq!(graphs, [(1, 9), (2, 7)], "{stats}");
    for (name, class, text, passed) in [
        ("a", "bpf", "(filter, expression=\"udp dst port 5001\")", 5),
        ("b", "bpf", "(filter, expression=\"udp dst portrange 5001-5002\")", 9),
        ("device", "device", "(device, expression=far)", 20),
    ] {
        let node = node(stats, name);
        assert_eq!((node["class"].as_str(), node["text"].as_str()), (Some(class), Some(text)));
        assert_eq!((number(node, "arrived"), number(node, "passed")), (20, passed), "{node}");
    }
    let show = &read_json(folder.path(), "show")[0];
    let ids =
        |of: &Value, key| list(of, key).iter().map(|one| number(one, "id")).collect::<Vec<_>>();
    assert_eq!(ids(show, "filters"), ids(stats, "filters"));
    assert_eq!(ids(show, "nodes"), ids(stats, "nodes"));
    let shown: Vec<_> =
        list(show, "filters").iter().flat_map(|graph| ids(graph, "passes")).collect();
    assert!(shown.iter().all(|id| ids(stats, "nodes").contains(id)), "{show}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let sum = "20 seen = 12 accepted + 8 rejected + 0 lost";
    assert!(read("stats.txt").contains(sum), "{}", read("stats.txt"));
    assert!(
        read("show.txt").contains("20 arrived = 5 passed + 15 rejected"),
        "{}",
        read("show.txt")
    );
    // Counts of frames before an edit are kept; ids of nodes are not reused.
    let after = &read_json(folder.path(), "after")[0];
    assert_closed(after);
    let accounting = &after["accounting"];
    assert_eq!(
        (number(accounting, "delivered"), number(accounting, "rejected")),
        (19, 21),
        "{after}"
    );
    // The second entry has the frames of removed graphs.
    assert_eq!(ids(after, "filters"), [2, 0]);
    assert_eq!(number(node(after, "c"), "id"), number(node(stats, "c"), "id"));
}

/// While frames arrive and filters are added and removed, the counts of every answer add up: the accepted frames are
/// the sum over the filters, including removed ones.
#[test]
fn one_answer_is_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("in.pcap"), &[(3000, 5001), (2000, 5002), (1000, 5003)]);
    let script = r#"
        "$FYKE" dump -i far --count 'udp dst port 5001' > /dev/null 2> log &
        answers
        (for round in $(seq 200); do [ -e done ] && break; send in.pcap; done) &
        sender=$!
        "$FYKE" ctl --json watch --interval-ms 10 > watched &
        watch=$!
        for round in $(seq 30); do
            "$FYKE" ctl add 'udp dst port 5002' | grep -o 'filter [0-9]*' > id
            "$FYKE" ctl --json stats >> answers
            "$FYKE" ctl --json show >> shown
            "$FYKE" ctl del $(cut -d' ' -f2 id) > /dev/null
            "$FYKE" ctl --json stats >> answers
        done
        touch done
        wait $sender
        kill -INT %1; wait %1
        wait $watch || true
    "#;
    let Some(_) = in_namespace(folder.path(), script) else { return };
    let mut answers = read_json(folder.path(), "answers");
    assert_eq!(answers.len(), 60);
    answers.extend(read_json(folder.path(), "watched"));
    for stats in &answers {
        assert_closed(stats);
        let accepted = sum(list(stats, "filters"), "accepted");
        assert_eq!(accepted, number(&stats["accounting"], "delivered"), "{stats}");
        assert_eq!(accepted, number(node(stats, "filter"), "passed"), "{stats}");
    }
    let last = &answers[59]["accounting"];
    assert!(number(last, "rejected") > 0 && number(last, "delivered") > 0, "no traffic: {last}");
    for shown in read_json(folder.path(), "shown") {
        for filter in list(&shown, "filters").iter().filter(|filter| number(filter, "id") > 0) {
            assert_eq!(sum(list(filter, "passes"), "accepted"), number(filter, "accepted"));
        }
    }
}

/// A connection that a tracker follows is in the list, under its tracker's name, and cannot be deleted.
#[test]
fn what_a_tracker_accepts_is_in_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let there = |text: &str, sequence: u32, answer: u32| {
        let packet = Packet::ethernet().ipv4(client, server).tcp(40_000, 21);
        packet.flags(0x18).seq_ack(sequence, answer).payload(text.as_bytes()).build()
    };
    let back = |text: &str, sequence: u32, answer: u32| {
        let packet = Packet::ethernet().ipv4(server, client).tcp(21, 40_000);
        packet.flags(0x18).seq_ack(sequence, answer).payload(text.as_bytes()).build()
    };
    let data = Packet::ethernet().ipv4(client, server).tcp(40_001, 51_210).flags(0x10);
    let mut frames = vec![
        there("PASV\r\n", 100, 500),
        back("227 Entering Passive Mode (10,0,0,2,200,10)\r\n", 500, 106),
    ];
    frames.extend(vec![data.payload(&[7; 100]).build(); 7]);
    frames.extend(datagrams(4, 5001));
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames)).unwrap();
    let script = r#"
        "$FYKE" track ftp --count-all -i far -w out.pcapng 2> log &
        answers
        send in.pcap
        saw 13
        "$FYKE" ctl --json stats > stats
        "$FYKE" ctl --json show > show
        "$FYKE" ctl show > show.txt
        "$FYKE" ctl del 0 2> refused && exit 1
        kill -INT %1; wait %1
    "#;
    let Some(_) = in_namespace(folder.path(), script) else { return };
    let stats = &read_json(folder.path(), "stats")[0];
    assert_closed(stats);
    let entries: Vec<_> = list(stats, "filters")
        .iter()
        .map(|one| (number(one, "id"), one["text"].as_str().unwrap(), number(one, "accepted")))
        .collect();
    let control = format!("tcp port ftp or {}", fyke_track::FRAGMENTS);
    assert_eq!(entries, [(1, control.as_str(), 2), (0, "track ftp", 7)], "{stats}");
    assert_eq!(number(node(stats, "filter"), "passed"), 9);
    let accounting = &stats["accounting"];
    assert_eq!(
        (number(accounting, "delivered"), number(accounting, "rejected")),
        (9, 4),
        "{stats}"
    );
    let show = &read_json(folder.path(), "show")[0];
    let tracked = &list(show, "filters")[1];
    assert_eq!((tracked["kind"].as_str(), number(tracked, "accepted")), (Some("tracker"), 7));
    // After its passes: what the tracker expects, with its frames.
    let is_expected = |one: &&serde_json::Value| number(one, "id") >= 1 << 48;
    let (expected, passes): (Vec<_>, Vec<_>) =
        list(tracked, "passes").iter().partition(is_expected);
    let accepted = |list: &[&serde_json::Value]| -> u64 {
        list.iter().map(|one| number(one, "accepted")).sum()
    };
    assert_eq!((accepted(&passes), expected.len(), accepted(&expected)), (7, 1, 7), "{show}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(
        read("show.txt").contains("tracker           7 frames  track ftp"),
        "{}",
        read("show.txt")
    );
    assert!(read("refused").contains("there is no filter 0"), "{}", read("refused"));
}

/// The counters of the interface statistics blocks of a pcapng file, by their option codes.
fn statistics(file: &Path) -> Vec<Vec<(u32, u64)>> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut blocks) = (0, Vec::new());
    while at < bytes.len() {
        if word(at) == 5 {
            let (mut option, mut counters) = (at + 20, Vec::new());
            while word(option) != 0 {
                let value = bytes[option + 4..option + 12].try_into().unwrap();
                counters.push((word(option) & 0xffff, u64::from_ne_bytes(value)));
                option += 12;
            }
            blocks.push(counters);
        }
        at += word(at + 4) as usize;
    }
    blocks
}

/// Received, accepted by the filter, dropped by the system, delivered: at the end of each file.
#[test]
fn a_live_capture_ends_with_its_statistics() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("in.pcap"), &[(5, 5001), (4, 5002), (3, 5003), (8, 5004)]);
    let long = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 5001);
    let frames = vec![long.payload(&[7; 1400]).build(); 1500];
    std::fs::write(folder.path().join("long.pcap"), pcap::file(1, &frames)).unwrap();
    let script = r#"
        "$FYKE" dump --count-all -i far -w out.pcapng 'udp dst port 5001' 2> log &
        answers
        send in.pcap
        saw 20
        kill -INT %1; wait %1
        "$FYKE" dump --count-all -i far -Z root -w turn.pcapng -C 1 'udp' 2> log2 &
        second=$!
        answers
        send long.pcap
        saw 1500
        kill -INT $second; wait $second
        if command -v capinfos > /dev/null; then
            for file in out.pcapng turn.pcapng turn.pcapng1 turn.pcapng2; do
                capinfos $file 2>&1 | grep -c 'Number of stat entries = 1' >> entries
            done
        else
            echo absent > entries
        fi
    "#;
    let Some(_) = in_namespace(folder.path(), script) else { return };
    let path = |name: &str| folder.path().join(name);
    assert_eq!(statistics(&path("out.pcapng")), [vec![(4, 20), (6, 5), (7, 0), (8, 5)]]);
    let entries = std::fs::read_to_string(path("entries")).unwrap();
    if entries == "absent\n" {
        println!("skipped: capinfos is not installed");
    } else {
        assert_eq!(entries, "1\n1\n1\n1\n");
    }
    let mut sums = [0; 3];
    for (number, name) in ["turn.pcapng", "turn.pcapng1", "turn.pcapng2"].iter().enumerate() {
        let blocks = statistics(&path(name));
        let mut counters = blocks[0].as_slice();
        if number > 0 {
            // The time from which the counts are.
            let ((2, since), rest) = counters.split_first().unwrap() else {
                panic!("{name}: {blocks:?}");
            };
            assert!(*since > 0, "{name}");
            counters = rest;
        }
        let &[(4, received), (6, accepted), (7, 0), (8, delivered)] = counters else {
            panic!("{name}: {blocks:?}");
        };
        let of_file = [received, accepted, delivered];
        sums = std::array::from_fn(|one| sums[one] + of_file[one]);
    }
    assert_eq!(sums, [1500; 3], "the files together have the counts of the capture");
}

/// Counters of nodes are shown with `--stats`, those that are not zero; as JSON, of all nodes.
#[test]
fn counters_of_streams_are_shown_and_their_counts_close() {
    let folder = tempfile::tempdir().unwrap();
    let segment = |sequence: u32, payload: &[u8]| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, 80);
        packet.seq_ack(sequence, 0).flags(0x18).payload(payload).build()
    };
    let mut frames = vec![segment(100, b"abc"), segment(110, b"later"), segment(115, b"needle")];
    frames.extend(datagrams(2, 5001));
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames)).unwrap();
    let graph = "(pcapin, in.pcap) > (tcp) > (strsearch, needle, stream=y) > (flows, records.json)";
    let run = |options: &[&str]| {
        let mut command = Command::new(FYKE);
        command.current_dir(folder.path()).args(["run", "--no-control", graph]).args(options);
        command.output().unwrap()
    };
    let output = run(&["--stats"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("tcp ")).unwrap();
    assert!(lines[at].ends_with("5 arrived = 5 passed + 0 rejected + 0 taken + 0 lost"), "{said}");
    let expected = "  connections 1, midstream 1, datagram_flows 1, most_flows 2, ";
    assert!(lines[at + 1].starts_with(expected), "{said}");
    assert!(lines[at + 1].contains("gaps 1, missing_bytes 7, copied_bytes 11"), "{said}");
    assert!(!lines[at + 1].contains(" 0,"), "{said}");
    let output = run(&["--stats", "--json"]);
    std::fs::write(folder.path().join("nodes"), &output.stdout).unwrap();
    let nodes = read_json(folder.path(), "nodes");
    let names: Vec<_> = nodes.iter().map(|node| node["node"].as_str().unwrap()).collect();
    assert_eq!(names, ["pcapin", "tcp", "strsearch", "flows"]);
    for node in &nodes {
        let parts = ["passed", "rejected", "taken", "lost"].map(|part| number(node, part));
        assert_eq!(number(node, "arrived"), parts.iter().sum::<u64>(), "{node}");
    }
    assert_eq!(number(&nodes[1]["counters"], "missing_bytes"), 7);
    assert_eq!(number(&nodes[1]["counters"], "refused"), 0);
}
