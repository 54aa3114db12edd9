//! Frames that the kernel passes for the commands with several consumers: trackers with look-back and without,
//! demultiplexers, branches of a graph, many texts, cooked sockets. The built command on a real interface, in
//! namespaces of its own; sums are exact. Needs root.

mod common;

use common::{FYKE, Running, datagram, folder, frames_of, inside, rest, send, veth};
use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const IN_KERNEL: &str = "the filters run in the kernel, too";
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Starts a command with its filters in the kernel; `None` with a printed reason if this machine has no kernel space.
fn start(words: &[&str], ready: &str, stdout: Stdio) -> Option<Running> {
    let running = Running::start(Command::new(FYKE).args(words).stdout(stdout));
    running.hear(ready);
    let stats = running.ctl(&["stats"]);
    if ["no clang", "CAP_BPF", "privilege"].iter().any(|why| stats.contains(why)) {
        println!("skipped: {stats}");
        return None;
    }
    assert!(stats.contains(IN_KERNEL), "{words:?}: {stats}");
    Some(running)
}

/// The counts of a node.
fn node(running: &Running, name: &str) -> serde_json::Value {
    let stats: serde_json::Value =
        serde_json::from_str(&running.ctl(&["--json", "stats"])).unwrap();
    let found = stats["nodes"].as_array().unwrap().iter().find(|node| node["node"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {stats}")).clone()
}

/// Frames that have arrived at a node; the kernel rejected the others.
fn arrived(running: &Running, name: &str) -> u64 {
    node(running, name)["arrived"].as_u64().unwrap()
}

fn send_all(frames: &[Vec<u8>]) {
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    for data in frames {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, data)).unwrap();
    }
    assert_eq!(sink.stats().frames, frames.len() as u64, "the interface takes every frame");
}

fn from_client(from: u16, to: u16, flags: u8, sequence: u32) -> Packet {
    Packet::ethernet().ipv4(CLIENT, SERVER).tcp(from, to).flags(flags).seq_ack(sequence, 1)
}

fn from_server(from: u16, to: u16, flags: u8, sequence: u32) -> Packet {
    Packet::ethernet().ipv4(SERVER, CLIENT).tcp(from, to).flags(flags).seq_ack(sequence, 1)
}

/// A control connection that announces port 5001 of the server: 3 frames.
fn announcement() -> Vec<Vec<u8>> {
    let reply = b"227 Entering Passive Mode (10,0,0,2,19,137)\r\n";
    let frames = [
        from_client(4000, 21, SYN, 100),
        from_server(21, 4000, SYN | ACK, 500),
        from_server(21, 4000, ACK, 501).payload(reply),
    ];
    frames.iter().map(Packet::build).collect()
}

/// Frames of the announced connection.
fn data(count: u32) -> Vec<Vec<u8>> {
    let frame = |number| from_server(5001, 4001, ACK, 2 + number * 8).payload(b"contents").build();
    let first = from_client(4001, 5001, SYN, 1).build();
    std::iter::once(first).chain((1..count).map(frame)).collect()
}

#[test]
fn data_that_arrives_before_its_announcement_is_read_is_captured() {
    if !inside("data_that_arrives_before_its_announcement_is_read_is_captured") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("ftp.pcapng");
    let words = ["track", "ftp", "-i", "v1", "-w", file.to_str().unwrap()];
    let Some(mut running) = start(&words, "listening on", Stdio::null()) else { return };
    let mut seen = 0;
    for round in 0..20 {
        send(200, 100);
        // The command is stopped, so the data arrives before it has read the announcement.
        running.signal("STOP");
        send_all(&[announcement(), data(50)].concat());
        running.signal("CONT");
        let others: Vec<_> = (0..10).map(|n| from_client(9_000 + n, 443, ACK, 1).build()).collect();
        send_all(&others);
        seen += 200 + 3 + 50 + 10;
        running.settle(seen);
        assert_eq!(arrived(&running, "filter"), (round + 1) * 63, "UDP is rejected in the kernel");
    }
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (seen, 20 * 53, 0), "{}", running.said());
    assert_eq!(frames_of(&file), 20 * 53);
}

#[test]
fn without_look_back_the_kernel_passes_expected_connections_only() {
    if !inside("without_look_back_the_kernel_passes_expected_connections_only") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("ftp.pcapng");
    let words = ["track", "ftp", "-i", "v1", "--no-look-back", "-w", file.to_str().unwrap()];
    let Some(mut running) = start(&words, "listening on", Stdio::null()) else { return };
    let tagged = |count| -> Vec<Vec<u8>> {
        let outer = || Packet::ethernet().vlan(7).vlan(5).ipv4(CLIENT, SERVER);
        (0..count).map(|_| outer().tcp(4001, 5001).flags(ACK).seq_ack(2, 2).build()).collect()
    };
    send_all(&data(10));
    running.settle(10);
    assert_eq!(arrived(&running, "filter"), 0, "nothing is announced");
    send_all(&announcement());
    running.settle(13);
    send_all(&data(50));
    // Of two tags, the device removes one; the kernel does not read past the other.
    send_all(&tagged(5));
    running.settle(68);
    assert_eq!(arrived(&running, "filter"), 58);
    let stats = running.ctl(&["stats"]);
    assert!(stats.contains("= 58 accepted"), "{stats}");
    send_all(&[from_server(5001, 4001, RST, 402).build()]);
    // A closed connection is captured for one more second.
    let began = Instant::now();
    while node(&running, "track")["counters"]["closed"] != 1 {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", node(&running, "track"));
        std::thread::sleep(Duration::from_millis(50));
    }
    send_all(&data(10));
    running.settle(79);
    assert_eq!(arrived(&running, "filter"), 59, "the row has left the kernel");
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (79, 59, 0), "{}", running.said());
    assert_eq!(frames_of(&file), 59);
}

#[test]
fn a_demultiplexer_gets_the_union_of_its_texts() {
    if !inside("a_demultiplexer_gets_the_union_of_its_texts") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let (one, two) = (at("one.pcap"), at("two.pcap"));
    let rules = [
        format!("udp port 5001 => {}", one.display()),
        format!("tcp port 21 => {}", two.display()),
    ];
    let words = ["demux", "-i", "v1", &rules[0], &rules[1]];
    let Some(mut running) = start(&words, "listening on", Stdio::piped()) else { return };
    send(1_000, 100);
    send_all(&announcement());
    running.settle(1_003);
    assert_eq!(arrived(&running, "demux"), 503);
    running.ctl(&["add", &format!("udp port 5002 and len > 200 => {}", two.display())]);
    send(1_000, 300);
    running.settle(2_003);
    assert_eq!(arrived(&running, "demux"), 1_503);
    running.ctl(&["del", "1"]);
    send(1_000, 100);
    running.settle(3_003);
    assert_eq!(arrived(&running, "demux"), 1_503, "neither text accepts a frame");
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (3_003, 1_503, 0), "{}", running.said());
    let counts = String::from_utf8(rest(&mut running)).unwrap();
    assert!(counts.contains("1500\treject"), "{counts}");
    assert_eq!((frames_of(&one), frames_of(&two)), (1_000, 503));
}

#[test]
fn branches_of_a_graph_get_the_union_of_their_filters() {
    if !inside("branches_of_a_graph_get_the_union_of_their_filters") {
        return;
    }
    veth();
    let branch = |text: &str, tag: &str| {
        format!("(device,v1) > (bpf,\"{text}\") > {{{tag}}}(packetcount,export=y)")
    };
    let everything = "(device,v1) > {all}(packetcount,export=y)";
    let (first, second) = (branch("udp port 5001", "a"), branch("udp port 7", "b"));
    let words = ["run", "--stats", &first, &second];
    let Some(mut running) = start(&words, "running", Stdio::null()) else { return };
    // Edit, frames of a thousand that it accepts, and why the kernel passes all.
    let steps: [(&[&str], u64, &str); 6] = [
        (&["stats"], 500, IN_KERNEL),
        (&["add", &branch("udp port 5002", "c")], 1_000, IN_KERNEL),
        (&["del", "1"], 500, IN_KERNEL),
        (&["add", everything], 1_000, "all needs all frames"),
        (&["del", "4"], 500, IN_KERNEL),
        (&["del", "3"], 0, IN_KERNEL),
    ];
    let (mut seen, mut accepted) = (0, 0);
    for (edit, count, why) in steps {
        running.ctl(edit);
        send(1_000, 100);
        (seen, accepted) = (seen + 1_000, accepted + count);
        running.settle(seen);
        let stats = running.ctl(&["stats"]);
        assert!(stats.contains(&format!("= {accepted} accepted")), "{edit:?}: {stats}");
        assert!(stats.contains(why), "{edit:?}: {stats}");
    }
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (seen, accepted, 0), "{}", running.said());
}

/// A chain of filters is in the kernel, and the counts of each are exact. While another node gets the frames that the
/// first one accepts, only that one is there.
#[test]
fn a_chain_of_filters_is_in_the_kernel() {
    if !inside("a_chain_of_filters_is_in_the_kernel") {
        return;
    }
    veth();
    let chain =
        "(device,v1) > {a}(filter,udp) > {b}(filter,\"port 5001\") > {n}(packetcount,export=y)";
    let Some(mut running) = start(&["run", "--stats", chain], "running", Stdio::null()) else {
        return;
    };
    assert!(!running.ctl(&["stats"]).contains("except"), "{}", running.ctl(&["stats"]));
    // An edit of the graph changes the places, too.
    let place =
        ", except b (a filter before it counts the frames that it accepts, and m gets them, too)";
    let shared = "(device,v1) > {a}(filter,udp) > \
                  [[{b}(filter,\"port 5001\") > {n}(packetcount,export=y)] | [{m}(packetcount)]]";
    running.ctl(&["set", shared]);
    assert!(running.ctl(&["stats"]).contains(place), "{}", running.ctl(&["stats"]));
    running.ctl(&["set", chain]);
    assert!(!running.ctl(&["stats"]).contains("except"), "{}", running.ctl(&["stats"]));
    let tcp = from_client(9_000, 443, ACK, 1).build();
    send_all(&[datagram(5001, 9), datagram(5002, 9), tcp.clone(), datagram(5001, 9), tcp]);
    running.settle(5);
    let counts = |name: &str| {
        let node = node(&running, name);
        ["arrived", "passed", "rejected"].map(|count| node[count].as_u64().unwrap())
    };
    assert_eq!((counts("a"), counts("b")), ([3, 3, 0], [3, 2, 1]));
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (5, 2, 0), "{}", running.said());
}

/// A filter after a device means what it means to `dump`: the tag that the interface has removed is no part of the
/// header. With `live=n` it is read as for a file, in user space.
#[test]
fn a_graph_on_a_device_is_filtered_in_the_kernel_as_a_capture_is() {
    if !inside("a_graph_on_a_device_is_filtered_in_the_kernel_as_a_capture_is") {
        return;
    }
    veth();
    let tagged = |port| Packet::ethernet().vlan(7).ipv4(CLIENT, SERVER).udp(4000, port).build();
    let frames: Vec<_> = (0..100).flat_map(|_| [tagged(5001), datagram(5001, 9)]).collect();
    let filter = |live: &str| {
        let filter = format!("(filter,\"udp port 5001\"{live})");
        format!("(device,v1) > {filter} > {{n}}(packetcount,export=y)")
    };
    let demux = "(device,v1) > (demux,\"udp port 5001 => 1\") -1-> {n}(packetcount,export=y)";
    let cases = [
        ("dump", "udp port 5001".to_owned(), 200),
        ("run", filter(""), 200),
        ("run", filter(",live=y"), 200),
        ("run", demux.to_owned(), 200),
        ("run", filter(",live=n"), 100),
    ];
    for (command, text, accepted) in cases {
        let words: &[&str] = match command {
            "dump" => &["dump", "-i", "v1", "-w", "/dev/null", &text],
            _ => &["run", "--stats", &text],
        };
        let ready = if command == "dump" { "listening on" } else { "running" };
        let mut running = if accepted == 200 {
            let Some(running) = start(words, ready, Stdio::null()) else { return };
            running
        } else {
            let running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
            running.hear(ready);
            assert!(running.ctl(&["stats"]).contains("is read as for a file"), "{text}");
            running
        };
        send_all(&frames);
        send_all(&[datagram(5002, 9)]);
        running.settle(201);
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        let sum = running.sum();
        assert_eq!((sum.seen, sum.accepted, sum.lost), (201, accepted, 0), "{text}");
    }
}

#[test]
fn hundreds_of_texts_are_in_the_kernel_and_leave_it() {
    if !inside("hundreds_of_texts_are_in_the_kernel_and_leave_it") {
        return;
    }
    veth();
    let words = ["dump", "-i", "v1", "-w", "/dev/null", "udp port 7"];
    let Some(mut running) = start(&words, "listening on", Stdio::null()) else { return };
    let texts: Vec<_> = (0..300).map(|n| format!("udp port {} and len > 60", 4_900 + n)).collect();
    for text in &texts {
        running.ctl(&["add", text]);
    }
    assert!(running.ctl(&["stats"]).contains(IN_KERNEL));
    let frames: Vec<_> = (0..600).map(|n| datagram(4_800 + n, 100)).collect();
    send_all(&frames);
    running.settle(600);
    assert_eq!(arrived(&running, "filter"), 300);
    // The first text has number 1.
    for number in 2..=200 {
        running.ctl(&["del", &number.to_string()]);
    }
    send_all(&frames);
    running.settle(1_200);
    assert_eq!(arrived(&running, "filter"), 300 + 101);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (1_200, 401, 0), "{}", running.said());
}

#[test]
fn cooked_sockets_are_filtered_in_the_kernel() {
    if !inside("cooked_sockets_are_filtered_in_the_kernel") {
        return;
    }
    veth();
    let sockets = ["-i any", "-i any --scoped"];
    for (place, words) in sockets.iter().enumerate() {
        let (_folder, at) = folder();
        let file = at("any.pcapng");
        let text = "udp port 5001 and len > 100";
        let mut all: Vec<_> = ["dump"].into_iter().chain(words.split(' ')).collect();
        all.extend(["-w", file.to_str().unwrap(), text]);
        let in_kernel = place == 0;
        let mut running = match in_kernel {
            true => {
                let Some(running) = start(&all, "listening on", Stdio::null()) else { return };
                running
            }
            false => {
                let running = Running::start(Command::new(FYKE).args(&all).stdout(Stdio::null()));
                running.hear("listening on");
                assert!(running.ctl(&["stats"]).contains("the kernel passes every frame"));
                running
            }
        };
        // Each frame leaves `v0` and arrives at `v1`.
        send(1_000, 100);
        send(500, 20);
        running.settle(3_000);
        let expected = if in_kernel { 1_000 } else { 3_000 };
        assert_eq!(arrived(&running, "filter"), expected, "{words}");
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        let sum = running.sum();
        assert_eq!((sum.seen, sum.accepted, sum.lost), (3_000, 1_000, 0), "{}", running.said());
        assert_eq!(frames_of(&file), 1_000);
    }
}
