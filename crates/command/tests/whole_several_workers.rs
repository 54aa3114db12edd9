//! Several interfaces and several workers: each worker has a ring of each interface. Sums, files and edits are those of
//! one worker, and each interface has an account of its own. The built command on real interfaces, in namespaces of its
//! own. Needs root.

mod common;

use common::{FYKE, Running, Sum, carrier_of, folder, frames_of, inside, tool, veth};
use fyke_capture::{Interface, InterfaceSink, Next, Sink, Source, open_file};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pairs of addresses: that all of them belong to one of two workers is impossible in practice.
const PAIRS: u32 = 61;
const TWO: [&str; 4] = ["-i", "v1", "-i", "w1"];

/// Makes the pair `w0`, `w1`.
fn second_pair() {
    tool("ip link add w0 type veth peer name w1");
    tool("ip link set w0 up");
    tool("ip link set w1 up");
    carrier_of(["w0", "w1"]);
}

fn two_pairs() {
    veth();
    second_pair();
}

/// Frame `number` that is sent on an interface, of one of many conversations, in either direction; name and number are
/// in its payload. Every other frame belongs to port 5001, the others to 5002.
fn frame(name: &str, number: u32) -> Vec<u8> {
    let pair = (number / 2 * 7 % PAIRS) as u8;
    let (near, far) = ([10, 0, 0, pair], [10, 0, 1, pair]);
    let (near, far) = if number.is_multiple_of(3) { (far, near) } else { (near, far) };
    let port = 5001 + (number % 2) as u16;
    let payload = [name.as_bytes(), &number.to_be_bytes()].concat();
    Packet::ethernet().ipv4(near, far).udp(4000, port).payload(&payload).build()
}

/// Sends frames on an interface.
fn send_on(name: &str, frames: impl IntoIterator<Item = Vec<u8>>) {
    let mut sink = InterfaceSink::open(name).unwrap();
    let interface = Interface::new(name, LinkType::EN10MB);
    for frame in frames {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, &frame)).unwrap();
    }
}

/// Sends `first` numbered frames on `v0` and `second` on `w0`, at the same time.
fn send_both(first: u32, second: u32) {
    std::thread::scope(|scope| {
        for (name, count) in [("v0", first), ("w0", second)].into_iter().filter(|one| one.1 > 0) {
            scope.spawn(move || send_on(name, (0..count).map(|number| frame(name, number))));
        }
    });
}

/// Frames of a file: their times, the names of their interfaces, and their bytes.
fn read(path: &Path) -> Vec<(u64, String, Vec<u8>)> {
    let mut source = open_file(path).unwrap();
    let mut frames = Vec::new();
    while let Next::Frames(batch, held) = source.next().unwrap() {
        for frame in batch.frames() {
            let name = held.interfaces()[frame.interface as usize].name.clone();
            frames.push((frame.timestamp_ns, name, frame.data.to_vec()));
        }
    }
    frames
}

fn in_order(frames: &[(u64, String, Vec<u8>)]) -> bool {
    frames.windows(2).all(|two| two[0].0 <= two[1].0)
}

/// Names and bytes of all frames, sorted.
fn contents(frames: Vec<(u64, String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut contents: Vec<_> = frames.into_iter().map(|(_, name, data)| (name, data)).collect();
    contents.sort();
    contents
}

/// The numbered frames that are accepted, `first` sent on `v0` and `second` on `w0`; with `half`, those to port 5001.
fn expected(first: u32, second: u32, half: bool) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (name, from, count) in [("v1", "v0", first), ("w1", "w0", second)] {
        let numbers = (0..count).filter(|number| !half || number.is_multiple_of(2));
        all.extend(numbers.map(|number| (name.to_owned(), frame(from, number))));
    }
    all.sort();
    all
}

/// Starts a command, and waits until it captures.
fn start(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    let running = Running::start(command.args(words).stdout(Stdio::null()));
    running.hear(if words[0] == "run" { "running" } else { "listening on" });
    running
}

fn stop(mut running: Running) -> (Sum, String) {
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    (running.sum(), running.said())
}

/// Waits until a text has been reported `times` times.
fn hear_times(running: &Running, text: &str, times: usize) {
    let limit = Instant::now() + Duration::from_secs(20);
    while running.said().matches(text).count() < times {
        assert!(Instant::now() < limit, "{text}: {}", running.said());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn frames_of_two_interfaces_come_in_the_order_of_time_with_their_names() {
    if !inside("frames_of_two_interfaces_come_in_the_order_of_time_with_their_names") {
        return;
    }
    two_pairs();
    let (_folder, at) = folder();
    for (filter, half) in [("", false), ("udp port 5001", true)] {
        let files = ["one.pcapng", "two.pcapng", "three.pcapng"].map(&at);
        let running = ["1", "2", "3"].iter().zip(&files).map(|(workers, file)| {
            let name = file.to_str().unwrap();
            let words = ["dump", "--stats", "--workers", workers, "-w", name, filter];
            start(&[&words[..1], &TWO, &words[1..]].concat())
        });
        let running: Vec<_> = running.collect();
        send_both(9_000, 5_000);
        running.iter().for_each(|one| one.settle(14_000));
        for (running, file) in running.into_iter().zip(files) {
            let (sum, said) = stop(running);
            let accepted = if half { 7_000 } else { 14_000 };
            let all = Sum { seen: 14_000, accepted, rejected: 14_000 - accepted, lost: 0 };
            assert_eq!(sum, all, "{said}");
            for (name, seen) in [("v1", 9_000), ("w1", 5_000)] {
                let accepted = if half { seen / 2 } else { seen };
                let rejected = seen - accepted;
                let line = format!(
                    "  {name}: {seen} seen = {accepted} accepted + {rejected} rejected + 0 lost"
                );
                assert!(said.contains(&line), "{line}: {said}");
                assert!(said.contains(&format!("dropped by interface {name}")), "{said}");
            }
            let frames = read(&file);
            assert!(in_order(&frames), "{filter}");
            assert!(contents(frames) == expected(9_000, 5_000, half), "{filter}");
        }
    }
}

/// The last block of the file about an interface has the counts of this interface.
#[test]
fn the_file_has_the_account_of_each_interface() {
    if !inside("the_file_has_the_account_of_each_interface") {
        return;
    }
    two_pairs();
    let (_folder, at) = folder();
    for workers in ["1", "2"] {
        let file = at("f.pcapng");
        let words = ["dump", "--workers", workers, "-w", file.to_str().unwrap(), "udp port 5001"];
        let running = start(&[&words[..1], &TWO, &words[1..]].concat());
        send_both(1_000, 600);
        running.settle(1_600);
        // Later than the last frame by more than the time between two accounts.
        std::thread::sleep(Duration::from_millis(300));
        stop(running);
        let accounts = statistics(&std::fs::read(&file).unwrap());
        let counted: Vec<_> = accounts.values().map(|one| (one[&4], one[&6])).collect();
        // The interfaces of a file are in the order of their first frames.
        assert!(
            counted.contains(&(1_000, 500)) && counted.contains(&(600, 300)),
            "received and accepted: {accounts:?}"
        );
    }
}

/// The numbers in the last interface statistics block of each interface, by the code of the option.
fn statistics(bytes: &[u8]) -> BTreeMap<u32, BTreeMap<u16, u64>> {
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
    let (mut found, mut at) = (BTreeMap::new(), 0);
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        if word(at) == 5 {
            let (mut options, mut option) = (BTreeMap::new(), at + 20);
            while half(option) != 0 {
                let (code, size) = (half(option), usize::from(half(option + 2)));
                if let Ok(value) = bytes[option + 4..option + 4 + size].try_into() {
                    options.insert(code, u64::from_ne_bytes(value));
                }
                option += 4 + size.next_multiple_of(4);
            }
            found.insert(word(at + 8), options);
        }
        at += len;
    }
    found
}

#[test]
fn a_limit_on_two_interfaces_is_exact() {
    if !inside("a_limit_on_two_interfaces_is_exact") {
        return;
    }
    two_pairs();
    let (_folder, at) = folder();
    for (limit, workers) in [(1, "2"), (1_000, "3"), (7_777, "2")] {
        let (file, count) = (at("limited.pcapng"), limit.to_string());
        let words = ["dump", "--stats", "--workers", workers, "-c", &count, "-w"];
        let words = [&words[..1], &TWO, &words[1..], &[file.to_str().unwrap(), "udp"]].concat();
        let mut running = start(&words);
        send_both(10_000, 10_000);
        assert!(running.end().success(), "{}", running.said());
        let (sum, said) = (running.sum(), running.said());
        assert_eq!((sum.accepted, sum.lost), (limit, 0), "{said}");
        let frames = read(&file);
        assert!(frames.len() as u64 == limit && in_order(&frames));
        for name in ["v1", "w1"] {
            let written = frames.iter().filter(|one| one.1 == name).count();
            assert!(said.contains(&format!("= {written} accepted")), "{name} {written}: {said}");
        }
    }
}

#[test]
fn an_edit_under_load_is_in_force_on_every_ring() {
    if !inside("an_edit_under_load_is_in_force_on_every_ring") {
        return;
    }
    two_pairs();
    let words = ["dump", "--workers", "2", "-w", "/dev/null", "udp port 5001"];
    let running = start(&[&words[..1], &TWO, &words[1..]].concat());
    let is_over = AtomicBool::new(false);
    // Half of the frames are accepted before and after each edit.
    let send = |name: &'static str| {
        let mut sent = 0;
        while !is_over.load(Ordering::Relaxed) {
            send_on(name, (sent..sent + 20).map(|number| frame(name, number)));
            sent += 20;
            std::thread::sleep(Duration::from_millis(2));
        }
        u64::from(sent)
    };
    let (first, second) = std::thread::scope(|scope| {
        let (first, second) = (scope.spawn(|| send("v0")), scope.spawn(|| send("w0")));
        for round in 0..20 {
            running.ctl(&["set", &format!("udp port 5001 or udp port {round}")]);
            running.ctl(&["set", "udp port 5001"]);
        }
        is_over.store(true, Ordering::Relaxed);
        (first.join().unwrap(), second.join().unwrap())
    });
    let all = first + second;
    running.settle(all);
    running.ctl(&["add", "udp port 5002"]);
    send_both(500, 700);
    running.settle(all + 1_200);
    let stats = running.ctl(&["stats"]);
    let rejected = format!("rejected there: v1 {}, w1 {}", first / 2, second / 2);
    assert!(!stats.contains("(eBPF)") || stats.contains(&rejected), "{rejected}: {stats}");
    for (name, seen, new) in [("v1", first, 500), ("w1", second, 700)] {
        let accepted = seen / 2 + new;
        let line = format!("{name}: {} seen = {accepted} accepted", seen + new);
        assert!(stats.contains(&line), "{line}: {stats}");
    }
    let json = running.ctl(&["--json", "stats"]);
    assert!(json.contains("\"interfaces\":[{\"interface\":\"v1\",\"seen\":"), "{json}");
    let (sum, said) = stop(running);
    let expected = Sum { seen: all + 1_200, accepted: all / 2 + 1_200, rejected: all / 2, lost: 0 };
    assert_eq!(sum, expected, "{said}");
}

/// While one interface is down, deleted and made again, the frames of the other one are captured, and the account of
/// each closes.
#[test]
fn an_interface_that_disappears_does_not_end_the_others() {
    if !inside("an_interface_that_disappears_does_not_end_the_others") {
        return;
    }
    two_pairs();
    let (_folder, at) = folder();
    let file = at("f.pcapng");
    let words =
        ["dump", "--stats", "--workers", "2", "-w", file.to_str().unwrap(), "udp port 5001"];
    let running = start(&[&words[..1], &TWO, &words[1..]].concat());
    let (mut on_v, mut on_w) = (0, 0);
    let mut send = |first: u32, second: u32| {
        send_both(first, second);
        (on_v, on_w) = (on_v + u64::from(first), on_w + u64::from(second));
        running.settle(on_v + on_w);
    };
    send(1_000, 800);
    tool("ip link set w1 down");
    hear_times(&running, "w1: the interface is down", 1);
    send(400, 0);
    tool("ip link set w1 up");
    hear_times(&running, "w1: the interface is up again", 1);
    carrier_of(["w0", "w1"]);
    std::thread::sleep(Duration::from_millis(200));
    send(500, 600);
    for times in 1..=2 {
        tool("ip link delete w1");
        hear_times(&running, "w1: the interface is gone", times);
        send(400, 0);
        second_pair();
        hear_times(&running, "capturing on w1 again", times);
        send(300, 200);
    }
    let (sum, said) = stop(running);
    let all = on_v + on_w;
    let expected = Sum { seen: all, accepted: all / 2, rejected: all / 2, lost: 0 };
    assert_eq!(sum, expected, "{said}");
    for (name, seen) in [("v1", on_v), ("w1", on_w)] {
        let line = format!("  {name}: {seen} seen = {} accepted", seen / 2);
        assert!(said.contains(&line), "{line}: {said}");
    }
    let frames = read(&file);
    assert!(in_order(&frames) && frames.len() as u64 == all / 2, "{}", frames.len());
    for (name, seen) in [("v1", on_v), ("w1", on_w)] {
        assert_eq!(frames.iter().filter(|one| one.1 == name).count() as u64, seen / 2, "{name}");
    }
}

/// The control connection is on one interface, its data connection on the other one; its first frame comes before the
/// announcement.
#[test]
fn a_tracker_follows_a_connection_to_the_other_interface() {
    if !inside("a_tracker_follows_a_connection_to_the_other_interface") {
        return;
    }
    two_pairs();
    let (_folder, at) = folder();
    let file = at("ftp.pcapng");
    let words = ["track", "ftp", "--workers", "2", "-w", file.to_str().unwrap()];
    let running = start(&[&words[..2], &TWO, &words[2..]].concat());
    let from =
        |from, to, ports: (u16, u16)| Packet::ethernet().ipv4(from, to).tcp(ports.0, ports.1);
    let (mut sent, mut expected) = (0, Vec::new());
    for step in 0..3 {
        for number in 0..20_u8 {
            let (client, server) = ([10, 1, 0, number], [10, 1, 1, number]);
            let reply = format!("227 Entering Passive Mode (10,1,1,{number},19,137)\r\n");
            let (name, packets) = match step {
                0 => ("w0", vec![from(client, server, (4001, 5001)).flags(2).seq_ack(1, 0)]),
                1 => (
                    "v0",
                    vec![
                        from(client, server, (4000, 21)).flags(2).seq_ack(100, 0),
                        from(server, client, (21, 4000)).flags(18).seq_ack(500, 101),
                        from(client, server, (4000, 21))
                            .flags(16)
                            .seq_ack(101, 501)
                            .payload(b"PASV\r\n"),
                        from(server, client, (21, 4000))
                            .flags(16)
                            .seq_ack(501, 107)
                            .payload(reply.as_bytes()),
                    ],
                ),
                _ => (
                    "w0",
                    vec![
                        from(server, client, (5001, 4001)).flags(18).seq_ack(1, 2),
                        from(server, client, (5001, 4001))
                            .flags(16)
                            .seq_ack(2, 2)
                            .payload(b"contents"),
                    ],
                ),
            };
            let frames: Vec<_> = packets.iter().map(Packet::build).collect();
            sent += frames.len() as u64;
            let captured = if name == "v0" { "v1" } else { "w1" };
            expected.extend(frames.iter().map(|data| (captured.to_owned(), data.clone())));
            send_on(name, frames);
        }
        running.settle(sent);
    }
    let (sum, said) = stop(running);
    assert_eq!((sum.seen, sum.accepted, sum.lost), (sent, sent, 0), "{said}");
    expected.sort();
    assert_eq!(contents(read(&file)), expected);
}

#[test]
fn demux_and_graphs_of_several_devices_have_all_frames() {
    if !inside("demux_and_graphs_of_several_devices_have_all_frames") {
        return;
    }
    two_pairs();
    let (_folder, at) = folder();
    let files = ["joined.pcapng", "apart.pcapng", "other.pcapng"].map(&at);
    let [joined, apart, other] = files.each_ref().map(|file| file.to_str().unwrap());
    let demux = format!("udp port 5001 => {joined}");
    // One path of its own, and one where both devices join.
    let graph = format!(
        "{{v}}(device,v1) > (filter,\"udp port 5002\",live=y) > (tofile,\"{apart}\"); \
         [{{v}}() | (device,w1)] > (filter,\"udp port 5001\",live=y) > (tofile,\"{joined}\"); \
         (device,w1) > (filter,\"udp port 5002\",live=y) > (tofile,\"{other}\")"
    );
    let graphs: Vec<&str> = graph.split("; ").collect();
    let two = [&["demux", "--stats", "--workers", "2"], &TWO[..], &[&demux]].concat();
    let several = [&["run", "--stats", "--workers", "2"], &graphs[..]].concat();
    for (words, accepted) in [(two, 800), (several, 1_600)] {
        let running = start(&words);
        send_both(1_000, 600);
        running.settle(1_600);
        let (sum, said) = stop(running);
        let expected = Sum { seen: 1_600, accepted, rejected: 1_600 - accepted, lost: 0 };
        assert_eq!(sum, expected, "{words:?}: {said}");
        for (name, seen) in [("v1", 1_000), ("w1", 600)] {
            assert!(said.contains(&format!("  {name}: {seen} seen = ")), "{words:?}: {said}");
        }
        let frames = read(&files[0]);
        assert!(in_order(&frames) && contents(frames) == self::expected(1_000, 600, true));
    }
    for (file, name, count) in [(&files[1], "v1", 500), (&files[2], "w1", 300)] {
        let frames = read(file);
        assert!(frames.len() == count && frames.iter().all(|one| one.1 == name), "{name}");
    }
}

/// A node reads its texts with one netmask, that of the first interface, and so does the kernel of the others.
#[test]
fn interfaces_with_different_netmasks_are_filtered_in_the_kernel() {
    if !inside("interfaces_with_different_netmasks_are_filtered_in_the_kernel") {
        return;
    }
    two_pairs();
    tool("ip addr add 10.9.0.1/24 dev v1");
    tool("ip addr add 10.8.0.1/16 dev w1");
    let (_folder, at) = folder();
    let file = at("f.pcapng");
    let file = file.to_str().unwrap();
    let demux = format!("ip broadcast => {file}");
    let to =
        |last| Packet::ethernet().ipv4([10, 8, 0, 9], [10, 8, 0, last]).udp(4000, 5001).build();
    for words in [&["dump", "--stats", "-w", file, "ip broadcast"][..], &["demux", &demux]] {
        let running = start(&[words, &["--workers", "2"], &TWO].concat());
        let stats = running.ctl(&["stats"]);
        if words[0] == "dump" && !stats.contains("CAP_BPF") && !stats.contains("no clang") {
            assert!(
                stats.contains("the filters run in the kernel, too (eBPF); rejected"),
                "{stats}"
            );
        }
        // A broadcast by the first interface's netmask, and none by the second's.
        send_on("w0", (0..10).flat_map(|_| [to(255), to(7)]));
        running.settle(20);
        let (sum, said) = stop(running);
        assert_eq!(sum, Sum { seen: 20, accepted: 10, rejected: 10, lost: 0 }, "{words:?}: {said}");
        assert_eq!(frames_of(file.as_ref()), 10, "{words:?}");
    }
}

/// Filters that are read with different netmasks share the filter in the kernel, except for `ip broadcast`, which the
/// kernel would read differently.
#[test]
fn only_ip_broadcast_with_another_netmask_opens_the_kernel() {
    if !inside("only_ip_broadcast_with_another_netmask_opens_the_kernel") {
        return;
    }
    two_pairs();
    tool("ip addr add 10.9.0.1/24 dev v1");
    tool("ip addr add 10.8.0.1/16 dev w1");
    let counted = "> (packetcount)";
    let graph = format!(
        "[(device, v1) | {{second}}(device, w1)] > [(filter, arp, live=y) {counted} | (filter, tcp, live=y) {counted}]"
    );
    let second = |filter: &str| format!("{{second}}() > (filter, {filter}, live=y) {counted}");
    let mut running = Running::start(
        Command::new(FYKE).args(["run", &graph, &second("udp port 5001")]).stdout(Stdio::null()),
    );
    running.hear("running");
    let stats = running.ctl(&["stats"]);
    let has_kernel = !["CAP_BPF", "no clang"].iter().any(|why| stats.contains(why));
    assert!(!has_kernel || !stats.contains("passes every frame"), "{stats}");
    running.ctl(&["add", &second("\"ip broadcast\"")]);
    let stats = running.ctl(&["stats"]);
    let why = "the kernel passes every frame (eBPF): a filter with `ip broadcast` is read with another netmask";
    assert!(!has_kernel || stats.contains(why), "{stats}");
    let to =
        |last| Packet::ethernet().ipv4([10, 7, 0, 9], [10, 8, 0, last]).udp(4000, 5002).build();
    let all = Packet::ethernet().ipv4([10, 7, 0, 9], [10, 8, 255, 255]).udp(4000, 5002).build();
    send_on("w0", (0..10).flat_map(|_| [to(255), to(7), all.clone()]));
    running.settle(30);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (30, 10, 0), "{}", running.said());
}

#[test]
fn what_would_merge_or_repeat_frames_is_refused() {
    let cases: [(&[&str], &str); 4] = [
        (
            &["run", "--workers", "2", "(device,a,expression=b) > (packetcount)"],
            "write a node for each of them: [(device, a) | (device, b)]",
        ),
        (
            &["dump", "-i", "any", "-i", "v1", "--workers", "2"],
            "-i any: it cannot be captured together with other interfaces",
        ),
        (&["track", "ftp", "-i", "v1", "-i", "v1", "--workers", "2", "-w", "f"], "named twice"),
        (
            &["run", "--workers", "2", "[(device,a) | (device,b)] > (ratemeter)"],
            "depends on the order of all frames",
        ),
    ];
    for (words, message) in cases {
        let output = Command::new(FYKE).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(message), "{words:?}: {said}");
    }
}
