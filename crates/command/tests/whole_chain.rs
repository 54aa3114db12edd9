//! Chains of filters after a device; the kernel rejects frames for each filter: exact counts of nodes and texts,
//! with several interfaces and workers, and during edits under load; and the places that `run --check` tells. The
//! built command on real interfaces, in namespaces of its own. Needs root.

mod common;

use common::{FYKE, Running, datagram, inside, tool, veth};
use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const IN_KERNEL: &str = "the filters run in the kernel, too";

fn tcp(port: u16) -> Vec<u8> {
    Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, port).flags(16).build()
}

/// Starts `fyke run` with its filters in the kernel; `None` with a printed reason if this machine has no kernel space.
fn run(words: &[&str]) -> Option<Running> {
    let mut command = Command::new(FYKE);
    let running =
        Running::start(command.args(["run", "--stats"]).args(words).stdout(Stdio::null()));
    running.hear("running");
    let stats = running.ctl(&["stats"]);
    if ["no clang", "CAP_BPF", "privilege"].iter().any(|why| stats.contains(why)) {
        println!("skipped: {stats}");
        return None;
    }
    Some(running)
}

/// Arrived, passed and rejected frames of a node; each node adds up.
fn counts(running: &Running, name: &str) -> [u64; 3] {
    let stats: serde_json::Value =
        serde_json::from_str(&running.ctl(&["--json", "stats"])).unwrap();
    let found = stats["nodes"].as_array().unwrap().iter().find(|node| node["node"] == name);
    let node = found.unwrap_or_else(|| panic!("no {name} in {stats}"));
    let [arrived, passed, rejected, lost] =
        ["arrived", "passed", "rejected", "lost"].map(|count| node[count].as_u64().unwrap());
    assert_eq!(arrived, passed + rejected + lost, "{node}");
    [arrived, passed, rejected]
}

/// The counts of a node in the last sums.
fn counts_at_end(running: &Running, name: &str) -> [u64; 3] {
    let said = running.said();
    let line = said
        .lines()
        .rfind(|line| line.split_whitespace().next() == Some(name) && line.contains(" arrived = "));
    let line = line.unwrap_or_else(|| panic!("no {name} in {said}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |what: &str| {
        let at = words.iter().position(|word| *word == what).unwrap();
        words[at - 1].parse::<u64>().unwrap()
    };
    let [arrived, passed, rejected, lost] = ["arrived", "passed", "rejected", "lost"].map(number);
    assert_eq!(arrived, passed + rejected + lost, "{line}");
    [arrived, passed, rejected]
}

fn send_on(name: &str, frames: &[Vec<u8>]) {
    let mut sink = InterfaceSink::open(name).unwrap();
    let interface = Interface::new(name, LinkType::EN10MB);
    for data in frames {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, data)).unwrap();
    }
    assert_eq!(sink.stats().frames, frames.len() as u64, "the interface takes every frame");
}

/// Makes a second pair of interfaces, `w0` and `w1`.
fn second_pair() {
    tool("ip link add w0 type veth peer name w1");
    tool("ip link set w0 up");
    tool("ip link set w1 up");
    common::carrier_of(["w0", "w1"]);
}

/// One device, several interfaces, several workers: nothing but what all filters accept reaches the last node, and each
/// filter has seen what the filters before it accepted.
#[test]
fn each_filter_of_a_chain_counts_what_the_kernel_rejects_for_it() {
    if !inside("each_filter_of_a_chain_counts_what_the_kernel_rejects_for_it") {
        return;
    }
    veth();
    second_pair();
    let filters = "{a}(filter,ip) > {b}(filter,udp) > {c}(filter,\"port 5001\") > \
                   {n}(packetcount,export=y)";
    let cases: [(&str, &[&str], u64); 3] = [
        ("(device,v1)", &[], 1),
        ("(device,v1,expression=w1)", &[], 2),
        ("(device,v1)", &["--workers", "2"], 1),
    ];
    let arp = Packet::ethernet().build();
    for (device, words, interfaces) in cases {
        let graph = format!("{device} > {filters}");
        let words: Vec<&str> = words.iter().copied().chain([graph.as_str()]).collect();
        let Some(mut running) = run(&words) else { return };
        let stats = running.ctl(&["stats"]);
        assert!(stats.contains(IN_KERNEL) && !stats.contains("except"), "{stats}");
        let one = [datagram(5001, 9), datagram(5002, 9), tcp(5001), arp.clone()];
        let frames: Vec<_> = one.iter().cycle().take(4 * 500).cloned().collect();
        send_on("v0", &frames);
        if interfaces == 2 {
            send_on("w0", &frames);
        }
        let (seen, each) = (4 * 500 * interfaces, 500 * interfaces);
        running.settle(seen);
        let expected = [
            ("device", [seen, 3 * each, each]),
            ("a", [3 * each, 3 * each, 0]),
            ("b", [3 * each, 2 * each, each]),
            ("c", [2 * each, each, each]),
            ("n", [each, each, 0]),
        ];
        for (name, expected) in expected {
            assert_eq!(counts(&running, name), expected, "{graph}: {name}");
        }
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        for (name, expected) in expected {
            assert_eq!(counts_at_end(&running, name), expected, "{graph}: {name}");
        }
        let sum = running.sum();
        assert_eq!((sum.seen, sum.accepted, sum.lost), (seen, each, 0), "{}", running.said());
    }
}

/// Sends frames of four kinds in turn until the end; returns their number.
fn send_until(ended: &AtomicBool) -> u64 {
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    let frames = [datagram(5001, 9), datagram(5002, 9), tcp(5001), tcp(5002)];
    let (mut sent, began) = (0_u64, Instant::now());
    while !ended.load(Ordering::Relaxed) {
        for data in frames.iter().cycle().take(300) {
            sink.write(&interface, &Frame::new(LinkType::EN10MB, data)).unwrap();
            sent += 1;
        }
        // 300,000 frames a second.
        let due = Duration::from_millis(sent / 300);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    assert_eq!(sink.stats().frames, sent, "the interface takes every frame");
    sent
}

/// Texts of both filters change while frames arrive. All frames are seen, each filter adds up, and the next one has
/// seen what it passed; the last edit leads back to the first texts.
#[test]
fn edits_of_a_chain_under_load_lose_no_count() {
    if !inside("edits_of_a_chain_under_load_lose_no_count") {
        return;
    }
    veth();
    let graph = |a: &str, b: &str| {
        format!("(device,v1) > {{a}}(filter,\"{a}\") > {{b}}(filter,\"{b}\") > {{n}}(packetcount)")
    };
    let first = graph("udp", "port 5001");
    let Some(mut running) = run(&[&first]) else { return };
    let texts = [
        graph("udp or tcp", "port 5001"),
        graph("udp or tcp", "port 5001 or port 5002"),
        graph("tcp", "port 5002"),
        graph("", "port 5002"),
        graph("udp", ""),
        graph("ip", "udp and port 5001"),
        // The chain ends, and begins again.
        "(device,v1) > {a}(filter,udp) > {n}(packetcount)".to_owned(),
        first.clone(),
    ];
    let ended = AtomicBool::new(false);
    let sent = std::thread::scope(|threads| {
        let sender = threads.spawn(|| send_until(&ended));
        for text in texts.iter().cycle().take(5 * texts.len()) {
            running.ctl(&["set", text]);
            let [_, passed, _] = counts(&running, "device");
            assert!(passed > 0);
            counts(&running, "a");
        }
        ended.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    running.settle(sent);
    let stats = running.ctl(&["stats"]);
    assert!(stats.contains(IN_KERNEL) && !stats.contains("except"), "{stats}");
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.lost), (sent, 0), "{}", running.said());
    let [device, a, b] = ["device", "a", "b"].map(|name| counts_at_end(&running, name));
    assert_eq!(device[0], sent);
    assert_eq!(a[0], device[1], "the first filter has seen what the kernel did not reject for it");
    // The last `b` is new since the edit before, so it has seen less than `a` has passed.
    assert!(b[0] > 0 && b[0] < a[1], "{a:?} {b:?}");
}

/// The same without edits that end the chain: then the second filter has seen all that the first one passed.
#[test]
fn the_next_filter_sees_what_the_one_before_it_passes_during_edits() {
    if !inside("the_next_filter_sees_what_the_one_before_it_passes_during_edits") {
        return;
    }
    veth();
    let graph = |a: &str, b: &str| {
        format!("(device,v1) > {{a}}(filter,\"{a}\") > {{b}}(filter,\"{b}\") > {{n}}(packetcount)")
    };
    let Some(mut running) = run(&[&graph("udp", "port 5001")]) else { return };
    let ended = AtomicBool::new(false);
    let sent = std::thread::scope(|threads| {
        let sender = threads.spawn(|| send_until(&ended));
        for round in 0..30 {
            let a = ["udp", "udp or tcp", "ip", "tcp"][round % 4];
            let b = ["port 5001", "port 5002", "less 200"][round % 3];
            running.ctl(&["set", &graph(a, b)]);
        }
        ended.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    running.settle(sent);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let [device, a, b, n] = ["device", "a", "b", "n"].map(|name| counts_at_end(&running, name));
    assert_eq!((device[0], device[1], a[1], b[1]), (sent, a[0], b[0], n[0]), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (sent, n[0], 0), "{}", running.said());
}

/// Lines of `run --check`: the filters in the kernel, and those in user space only, with the reason.
fn checked(graph: &str) -> (Vec<String>, Vec<(String, String)>, Option<String>) {
    let output = Command::new(FYKE).args(["run", "--check", graph]).output().unwrap();
    assert!(output.status.success(), "{graph}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut below, mut above, mut all) = (Vec::new(), Vec::new(), None);
    for line in text.lines() {
        if let Some((names, _)) = line.split_once(": in the kernel, too") {
            below.extend(names.split(", ").map(str::to_owned));
        } else if let Some((name, why)) = line.split_once(": in user space only: ") {
            above.push((name.to_owned(), why.to_owned()));
        } else if let Some((_, why)) = line.split_once(": the kernel passes every frame: ") {
            all = Some(why.to_owned());
        }
    }
    (below, above, all)
}

/// The places that `run --check` tells are those of the running graph.
#[test]
fn a_check_tells_the_places_of_the_running_graph() {
    if !inside("a_check_tells_the_places_of_the_running_graph") {
        return;
    }
    veth();
    let end = "(packetcount)";
    let graphs = [
        format!("(device,v1) > (filter,udp) > {end}"),
        format!("(device,v1) > (filter,udp) > (filter,\"port 5001\") > {end}"),
        format!("(device,v1) > (filter,ip) > (filter,udp) > (filter,\"port 5001\") > {end}"),
        format!("(device,v1) > (filter) > (filter,udp) > {end}"),
        format!("(device,v1) > (filter) > {end}"),
        format!("(device,v1) > (filter,udp) > (filter) > {end}"),
        format!("(device,v1) > [[(filter,udp) > {end}] | [{end}]]"),
        format!("(device,v1) > [[(filter,udp) > (filter,\"port 1\") > {end}] | [{end}]]"),
        format!("(device,v1) > [[(filter,udp) > {end}] | [(filter,tcp) > {end}]]"),
        format!("(device,v1) > [[(filter,udp) > {end}] | [(filter) > {end}]]"),
        format!("(device,v1) > (filter,ip) > [[(filter,udp) > {end}] | [(filter,tcp) > {end}]]"),
        format!("(device,v1) > (filter,udp,live=n) > {end}"),
        format!("(device,v1) > (filter,ip) > (filter,udp,live=n) > {end}"),
        format!("(device,v1) > (filter,udp,scoped=y) > {end}"),
        format!("(device,v1) > (filter,ip) > (filter,udp,scoped=y) > {end}"),
        format!("(device,v1) > (filter,udp,lookback=y) > (filter,\"port 1\") > {end}"),
        format!("(device,v1) > (filter,udp,tags=skip) > (filter,\"port 1\") > {end}"),
        format!("(device,v1) > (filter,ip) > (filter,udp,tags=skip) > {end}"),
        format!("(device,v1) > (sampler,2) > (filter,udp) > {end}"),
        format!("(device,v1) > (filter,ip) > (sampler,2) > (filter,udp) > {end}"),
        format!("(device,v1) > (filter,ip) > {end} > (filter,udp) > {end}"),
        format!("(device,v1) > (demux,\"udp => 1\") -1-> {end}"),
        format!("(device,v1) > (filter,ip) > (demux,\"udp => 1\") -1-> {end}"),
        format!("(device,v1) > (accept,direction=in) > (filter,ip) > (filter,udp) > {end}"),
    ];
    for graph in &graphs {
        let (below, above, all) = checked(graph);
        let Some(mut running) = run(&[graph]) else { return };
        let shown = running.ctl(&["show"]);
        let place = running.ctl(&["stats"]);
        let place = place.lines().find(|line| line.contains("the kernel")).unwrap_or_default();
        match &all {
            Some(why) => {
                assert!(below.is_empty() && !above.is_empty(), "{graph}: {below:?}");
                let is_told =
                    place.contains("the kernel passes every frame") && place.contains(why);
                assert!(is_told, "{graph}: {why} is not in {place}");
            }
            None => {
                assert!(place.contains(IN_KERNEL) && !below.is_empty(), "{graph}: {place}");
                for name in &below {
                    assert!(!place.contains(&format!(" {name} (")), "{graph}: {name}: {place}");
                }
                for (name, why) in &above {
                    let text = format!(" {name} ({why})");
                    assert!(place.contains(&text), "{graph}: {text} is not in {place}");
                }
            }
        }
        assert!(shown.contains(place.trim()), "{graph}: {shown}");
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
    }
}

/// An account needs every frame; the reason names no option that was not given.
#[test]
fn an_account_tells_why_the_kernel_passes_every_frame() {
    if !inside("an_account_tells_why_the_kernel_passes_every_frame") {
        return;
    }
    veth();
    let words = ["account", "-i", "v1", "--filter", "u=udp"];
    let mut running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
    running.hear("edit: fyke ctl");
    let stats = running.ctl(&["stats"]);
    assert!(
        stats.contains("the kernel passes every frame: it counts every frame itself"),
        "{stats}"
    );
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
}
