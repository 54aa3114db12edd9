//! Several workers on an interface, each with a ring of its own: sums, files and edits are those of one worker, which
//! captures the same frames beside them. The built command on a real interface, in namespaces of its own. Needs root.

mod common;
#[path = "common/pairs.rs"]
mod pairs;

use common::{FYKE, Running, Sum, folder, inside, tool, veth};
use fyke_testkit::packet::Packet;
use pairs::{PAIRS, contents, ctl, frame, in_order, pair, read, send_all, settle, start, stop};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn three_workers_write_what_one_writes_in_the_order_of_time() {
    if !inside("three_workers_write_what_one_writes_in_the_order_of_time") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    for (filter, accepted) in [("", 30_000), ("udp port 5001", 15_000), ("not udp", 0)] {
        let files = ["one.pcapng", "three.pcapng"].map(&at);
        let names = files.each_ref().map(|file| file.to_str().unwrap());
        let one = start(&["dump", "-i", "v1", "-w", names[0], filter]);
        let three = start(&["dump", "-i", "v1", "--workers", "3", "-w", names[1], filter]);
        send_all((0..30_000).map(frame));
        settle(&three, 30_000);
        let in_kernel = |running: &Running| ctl(running, &["stats"]).contains("in the kernel, too");
        assert_eq!(in_kernel(&three), in_kernel(&one), "{filter}");
        let ((one, _), (three, said)) = (stop(one), stop(three));
        let expected = Sum { seen: 30_000, accepted, rejected: 30_000 - accepted, lost: 0 };
        assert_eq!((one, three), (expected, expected), "{filter}: {said}");
        let [one, three] = files.map(|file| read(&file));
        assert!(in_order(&three), "{filter}");
        assert_eq!(one.len() as u64, accepted);
        assert_eq!(contents(three), contents(one), "{filter}");
    }
}

#[test]
fn lines_and_rotated_files_come_in_the_order_of_time() {
    if !inside("lines_and_rotated_files_come_in_the_order_of_time") {
        return;
    }
    veth();
    let (folder, at) = folder();
    let name = at("part.pcap");
    let words = ["dump", "-Z", "root", "-i", "v1", "--workers", "4", "-C", "1", "-w"];
    let rotated = start(&[&words[..], &[name.to_str().unwrap()]].concat());
    let mut command = Command::new(FYKE);
    let words = ["dump", "--no-control", "-nttt", "-i", "v1", "--workers", "2"];
    let lines = std::fs::File::create(at("lines")).unwrap();
    let printed = Running::start(command.args(words).stdout(lines));
    printed.hear("listening on");
    let long = |number| [frame(number), vec![0; 400]].concat();
    send_all((0..10_000).map(long));
    settle(&rotated, 10_000);
    let (sum, said) = stop(rotated);
    assert_eq!((sum.accepted, sum.lost), (10_000, 0), "{said}");
    let mut parts: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().path()).collect();
    parts.retain(|path| path.to_string_lossy().contains("part.pcap"));
    parts.sort_by_key(|path| path.to_string_lossy().len() as u64 * 1_000 + digits(path));
    assert!(parts.len() >= 4, "{parts:?}");
    let frames: Vec<_> = parts.iter().flat_map(|path| read(path)).collect();
    assert!(in_order(&frames) && frames.len() == 10_000, "{}", frames.len());
    let (sum, said) = stop(printed);
    assert_eq!((sum.accepted, sum.lost), (10_000, 0), "{said}");
    let lines = std::fs::read_to_string(at("lines")).unwrap();
    // A line begins with the time since the line before it, which is negative if they are not in order.
    assert!(
        lines.lines().count() == 10_000 && !lines.lines().any(|line| line.trim().starts_with('-'))
    );
}

/// The number at the end of the name of a file of a rotation.
fn digits(path: &Path) -> u64 {
    let name = path.to_string_lossy().into_owned();
    let end: String = name.chars().rev().take_while(char::is_ascii_digit).collect();
    end.chars().rev().collect::<String>().parse().unwrap_or(0)
}

#[test]
fn a_limit_of_several_workers_is_exact() {
    if !inside("a_limit_of_several_workers_is_exact") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    for (limit, workers) in [(1, "2"), (1_000, "3"), (7_777, "4")] {
        let (file, count) = (at("limited.pcap"), limit.to_string());
        let words = ["dump", "-i", "v1", "--workers", workers, "-c", &count];
        let mut running = start(&[&words[..], &["-w", file.to_str().unwrap(), "udp"]].concat());
        send_all((0..10_000).map(frame));
        assert!(running.end().success(), "{}", running.said());
        let sum = running.sum();
        assert_eq!((sum.accepted, sum.lost), (limit, 0), "{}", running.said());
        let frames = read(&file);
        assert!(frames.len() as u64 == limit && in_order(&frames));
    }
}

#[test]
fn an_edit_is_in_force_for_all_workers_and_looks_back_on_each() {
    if !inside("an_edit_is_in_force_for_all_workers_and_looks_back_on_each") {
        return;
    }
    veth();
    let words = ["dump", "-i", "v1", "--workers", "3", "-w", "/dev/null"];
    let plain = start(&[&words[..], &["udp port 5001"]].concat());
    let back = start(&[&words[..], &["--look-back", "udp port 5001"]].concat());
    for round in 1..=5 {
        send_all((0..1_000).map(frame));
        settle(&plain, 1_000 * round);
    }
    settle(&back, 5_000);
    let edit = ["add", "udp port 5002"];
    ctl(&plain, &edit);
    ctl(&back, &edit);
    // One frame for every pair of addresses, so one at least for every worker.
    send_all((0..2 * PAIRS).map(frame));
    let all = 5_000 + 2 * u64::from(PAIRS);
    settle(&plain, all);
    settle(&back, all);
    let ((plain, _), (back, said)) = (stop(plain), stop(back));
    assert_eq!((plain.accepted, plain.rejected), (2_500 + 2 * u64::from(PAIRS), 2_500));
    // A worker looks back at its next frame, to all frames of its conversations that its ring holds.
    assert_eq!((back.accepted, back.rejected, back.lost), (all, 0, 0), "{said}");
}

/// Checks that each ring has the filter, with eBPF and without: what an edit adds is accepted on all of them.
#[test]
fn every_ring_has_the_filter_in_the_kernel() {
    if !inside("every_ring_has_the_filter_in_the_kernel") {
        return;
    }
    veth();
    // The classic program passes frames that are too short for all of its loads.
    let padded = |number| {
        let mut bytes = frame(number);
        bytes.resize(100, 0);
        bytes
    };
    for (form, in_words) in [("", "(eBPF)"), ("refused", "(classic BPF")] {
        let mut command = Command::new(FYKE);
        command.args(["dump", "-i", "v1", "--workers", "3", "-w", "/dev/null", "udp port 5001"]);
        // A program that the verifier refuses.
        if !form.is_empty() {
            command.env("FYKE_KERNEL_FORM", form);
        }
        let running = Running::start(command.stdout(Stdio::null()));
        running.hear("listening on");
        let ask = || ctl(&running, &["--json", "stats"]);
        let until = |part: &str| {
            let limit = Instant::now() + Duration::from_secs(20);
            while !ask().contains(part) {
                assert!(Instant::now() < limit, "{part} is not in {}", ask());
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        assert!(ctl(&running, &["show"]).contains(in_words), "{}", ctl(&running, &["show"]));
        send_all((0..1_000).map(padded));
        until("\"delivered\":500,");
        match form.is_empty() {
            // The device's own rejections are the kernel's.
            true => until("\"arrived\":1000,\"passed\":500,\"rejected\":500,"),
            // What no ring hands over is not counted at all.
            false => until("\"seen\":500,"),
        }
        ctl(&running, &["add", "udp port 5002"]);
        for round in 1..=2 {
            send_all((0..1_000).map(padded));
            until(&format!("\"delivered\":{},", 500 + 1_000 * round));
            // Longer than the pause in the edits after which classic BPF has a narrow program again.
            std::thread::sleep(Duration::from_millis(500));
        }
        ctl(&running, &["set", "udp port 7"]);
        std::thread::sleep(Duration::from_millis(500));
        send_all((0..1_000).map(padded));
        if form.is_empty() {
            until("\"arrived\":4000,\"passed\":2500,\"rejected\":1500,");
        }
        ctl(&running, &["set", ""]);
        send_all((0..1_000).map(padded));
        until("\"delivered\":3500,");
        running.signal("INT");
    }
}

/// Control connection `number` up to the announcement of a data connection to `to`, and that connection. Its first
/// frame comes before the announcement.
fn transfer(number: u8, to: [u8; 4]) -> [Vec<Packet>; 3] {
    let (client, server) = ([10, 1, 0, number], [10, 1, 1, number]);
    let from =
        |from, to, ports: (u16, u16)| Packet::ethernet().ipv4(from, to).tcp(ports.0, ports.1);
    let [a, b, c, d] = to;
    let reply = format!("227 Entering Passive Mode ({a},{b},{c},{d},19,137)\r\n");
    let control = vec![
        from(client, server, (4000, 21)).flags(2).seq_ack(100, 0),
        from(server, client, (21, 4000)).flags(18).seq_ack(500, 101),
        from(client, server, (4000, 21)).flags(16).seq_ack(101, 501).payload(b"PASV\r\n"),
        from(server, client, (21, 4000)).flags(16).seq_ack(501, 107).payload(reply.as_bytes()),
    ];
    let early = vec![from(client, to, (4001, 5001)).flags(2).seq_ack(1, 0)];
    let data = vec![
        from(to, client, (5001, 4001)).flags(18).seq_ack(1, 2),
        from(to, client, (5001, 4001)).flags(16).seq_ack(2, 2).payload(b"contents"),
    ];
    [early, control, data]
}

/// The control connection belongs to one worker; the data connection to the same one if it has the same addresses, and
/// to any worker if the server announces another host. Look-back finds the first frame in both cases.
#[test]
fn a_tracker_follows_connections_across_workers() {
    if !inside("a_tracker_follows_connections_across_workers") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("ftp.pcapng");
    let words = ["track", "ftp", "-i", "v1", "--workers", "3", "-w", file.to_str().unwrap()];
    let running = start(&words);
    let mut sent = 0;
    let mut expected = Vec::new();
    for step in 0..3 {
        for number in 0..40 {
            let to = if number < 20 { [10, 1, 1, number] } else { [10, 1, 2, number] };
            let frames: Vec<_> = transfer(number, to)[step].iter().map(Packet::build).collect();
            sent += frames.len() as u64;
            expected.extend(frames.clone());
            send_all(frames);
        }
        settle(&running, sent);
    }
    let (sum, said) = stop(running);
    assert_eq!((sum.seen, sum.accepted, sum.lost), (sent, sent, 0), "{said}");
    // An announcement of another host counts for both hosts.
    assert!(said.contains("60 data connections announced"), "{said}");
    expected.sort();
    assert_eq!(contents(read(&file)), expected);
}

/// The later fragments have no ports: they follow their first fragment, which the same worker gets.
#[test]
fn fragments_of_a_datagram_stay_together() {
    if !inside("fragments_of_a_datagram_stay_together") {
        return;
    }
    veth();
    let fragments = |number: u32| {
        let (near, far) = pair(number);
        let port = if number.is_multiple_of(2) { 5001 } else { 5002 };
        let part =
            |offset, more| Packet::ethernet().ipv4(near, far).fragment(number as u16, offset, more);
        [
            part(0, true).udp(4000, port).payload(&[1; 16]).build(),
            part(24, false).ip_payload(17, &[2; 40]).build(),
        ]
    };
    let words = ["dump", "-i", "v1", "--scoped", "-w", "/dev/null", "udp port 5001"];
    let one = start(&words);
    let three = start(&[&words[..], &["--workers", "3"]].concat());
    send_all((0..2_000).flat_map(fragments));
    settle(&one, 4_000);
    settle(&three, 4_000);
    let ((one, _), (three, said)) = (stop(one), stop(three));
    assert_eq!((one, three.accepted), (three, 2_000), "{said}");
}

#[test]
fn every_branch_and_every_device_has_its_frames_once() {
    if !inside("every_branch_and_every_device_has_its_frames_once") {
        return;
    }
    veth();
    for workers in ["1", "3"] {
        let (_folder, at) = folder();
        let file = at("both.pcapng");
        let graph = format!(
            "[(device,v1) | (device,v0)] > {{all}}(packetcount,export=y) > (bpf,\"udp port 5001\",live=y) \
         > [(tofile,\"{}\") | {{some}}(packetcount,export=y)]",
            file.display()
        );
        let running = start(&["run", "--workers", workers, "--stats", &graph]);
        send_all((0..4_000).map(frame));
        settle(&running, 8_000);
        ctl(&running, &["add", "(device,v1) > {late}(packetcount,export=y)"]);
        send_all((0..1_000).map(frame));
        settle(&running, 10_000);
        let (sum, said) = stop(running);
        assert_eq!((sum.seen, sum.accepted, sum.lost), (10_000, 5_500, 0), "{said}");
        let frames = read(&file);
        assert_eq!(frames.len(), 5_000, "{said}");
        // One worker writes the frames of each interface in their order.
        assert!(workers == "1" || in_order(&frames), "{said}");
        for (node, arrived) in [("all", 10_000), ("some", 5_000), ("late", 1_000)] {
            let line = said
                .lines()
                .find(|line| line.starts_with(node))
                .unwrap_or_else(|| panic!("{said}"));
            assert!(line.contains(&format!("{arrived} arrived")), "{line}");
        }
    }
}

/// The loopback interface shows each packet twice; its outgoing copies are ignored, in the kernel, too.
#[test]
fn packets_of_the_loopback_interface_count_once() {
    if !inside("packets_of_the_loopback_interface_count_once") {
        return;
    }
    tool("ip link set lo up");
    let words = ["dump", "-i", "lo", "-w", "/dev/null", "udp port 5001"];
    let one = start(&words);
    let three = start(&[&words[..], &["--workers", "3"]].concat());
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // Receivers, without which the kernel would answer with ICMP.
    let bind = |port| std::net::UdpSocket::bind(("0.0.0.0", port)).unwrap();
    let _receivers = [bind(5001), bind(5002)];
    for number in 0..2_000_u16 {
        let host = std::net::Ipv4Addr::new(127, 0, 0, (number % 61) as u8 + 1);
        sender.send_to(&[1; 20], (host, 5001 + number % 2)).unwrap();
    }
    settle(&one, 2_000);
    settle(&three, 2_000);
    let ((one, _), (three, said)) = (stop(one), stop(three));
    assert_eq!((three, one.accepted), (one, 1_000), "{said}");
}

#[test]
fn losses_of_all_rings_are_in_the_sum() {
    if !inside("losses_of_all_rings_are_in_the_sum") {
        return;
    }
    veth();
    // The pipe is not read until all frames have arrived, so rings of 512 KiB overflow.
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", "v1", "--workers", "2", "-B", "512", "-w", "-"]);
    let mut running = Running::start(command.stdout(Stdio::piped()));
    running.hear("listening on");
    let long = |number| [frame(number), vec![0; 1_000]].concat();
    send_all((0..40_000).map(long));
    std::thread::sleep(Duration::from_millis(300));
    let pipe = running.child.stdout.take().unwrap();
    let read = std::thread::spawn(move || {
        let mut pipe = pipe;
        std::io::copy(&mut pipe, &mut std::io::sink()).unwrap()
    });
    std::thread::sleep(Duration::from_millis(300));
    let (sum, said) = stop(running);
    assert!(read.join().unwrap() > 0);
    assert_eq!(sum.seen, 40_000, "{said}");
    assert!(sum.lost > 0 && sum.accepted > 0, "{said}");
}

/// Frames are captured after the interface was down, and after it was deleted and made again, by a process that has
/// given up its rights; the filter in the kernel is on the new rings, too.
#[test]
fn an_interface_that_is_down_or_made_again_is_captured_further() {
    if !inside("an_interface_that_is_down_or_made_again_is_captured_further") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    for (filter, accepted) in [("", 1_000), ("udp port 5001", 500)] {
        let file = at("all.pcapng");
        let words = ["dump", "-i", "v1", "--workers", "3", "-w", file.to_str().unwrap(), filter];
        let running = start(&words);
        let in_kernel = || ctl(&running, &["stats"]).contains("in the kernel, too");
        let filtered = in_kernel();
        send_all((0..1_000).map(frame));
        settle(&running, 1_000);
        tool("ip link set v1 down");
        running.hear("v1: the interface is down");
        tool("ip link set v1 up");
        running.hear("is up again");
        common::carrier();
        std::thread::sleep(Duration::from_millis(200));
        send_all((0..1_000).map(frame));
        settle(&running, 2_000);
        let rounds = if filter.is_empty() { 1 } else { 2 };
        for times in 1..=rounds {
            tool("ip link delete v1");
            let limit = Instant::now() + Duration::from_secs(20);
            let count = |text: &str| running.said().matches(text).count();
            while count("v1: the interface is gone") < times {
                assert!(Instant::now() < limit, "{}", running.said());
                std::thread::sleep(Duration::from_millis(10));
            }
            veth();
            while count("capturing on v1 again") < times {
                assert!(Instant::now() < limit, "{}", running.said());
                std::thread::sleep(Duration::from_millis(10));
            }
            send_all((0..1_000).map(frame));
            settle(&running, 2_000 + 1_000 * times as u64);
        }
        assert_eq!(in_kernel(), filtered);
        let (sum, said) = stop(running);
        let (seen, accepted) = (2_000 + 1_000 * rounds as u64, accepted * (2 + rounds as u64));
        let expected = Sum { seen, accepted, rejected: seen - accepted, lost: 0 };
        assert_eq!(sum, expected, "{filter}: {said}");
        let frames = read(&file);
        assert!(in_order(&frames) && frames.len() as u64 == accepted, "{}", frames.len());
        tool("ip link delete v1");
        veth();
    }
}

/// The kernel puts the frames of each endpoint into a ring of its own, of all conversations; also after edits, and
/// after the interface was made again. Frames of two endpoints reach both.
#[test]
fn every_endpoint_has_a_ring_of_its_own() {
    if !inside("every_endpoint_has_a_ring_of_its_own") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let files = ["a.pcapng", "b.pcapng"].map(&at);
    let [a, b] = files.each_ref().map(|file| file.to_str().unwrap());
    let to = |text: &str, endpoint: &str| format!("{text} => {endpoint}");
    let (first, second) = (to("udp port 5001", a), to("udp port 5002", b));
    let by_endpoint = ["demux", "-i", "v1", "--by-endpoint", "--stats"];
    let running = start(&[&by_endpoint[..], &[&first, &second, "icmp => count"]].concat());
    let shown = ctl(&running, &["show"]);
    assert!(shown.contains("selects the ring of a frame by its class value"), "{shown}");
    let rings = |counts: &str| {
        let (line, limit) = (format!("v1: its rings received {counts} frames"), Instant::now());
        while !running.said().contains(&line) {
            assert!(limit.elapsed() < Duration::from_secs(20), "{}", running.said());
            running.signal("USR1");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let numbered = |range: std::ops::Range<u32>| send_all(range.map(frame));
    numbered(0..2_000);
    settle(&running, 2_000);
    rings("1000, 1000, 0");
    // A text that changes its endpoint, first beside the old one: its frames belong to two endpoints.
    ctl(&running, &["add", &to("udp port 5001", b)]);
    numbered(2_000..3_000);
    settle(&running, 3_000);
    ctl(&running, &["del", "1"]);
    numbered(3_000..4_000);
    settle(&running, 4_000);
    // A text that overlaps those of another endpoint, for a moment without frames.
    ctl(&running, &["add", "udp and less 1000 => count"]);
    ctl(&running, &["del", "5"]);
    numbered(4_000..5_000);
    settle(&running, 5_000);
    tool("ip link delete v1");
    running.hear("v1: the interface is gone");
    veth();
    running.hear("capturing on v1 again");
    numbered(5_000..6_000);
    settle(&running, 6_000);
    let (_first, said) = stop(running);
    assert!(said.contains("6000 seen = 6000 accepted + 0 rejected + 0 lost"), "{said}");
    // Those of port 5001 for two endpoints went to a ring by conversation.
    let last = said.lines().rfind(|line| line.contains("its rings received")).unwrap();
    let counts: Vec<u64> = last
        .split(|other: char| !other.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .skip(1)
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 6_000, "{last}");
    assert!(counts[1] >= 1_000 + 500 + 3_000 && counts[0] <= 1_500, "{last}");
    let port = |number: u32, port: u32| number % 2 + 5001 == port;
    let sent = |wanted: &dyn Fn(u32) -> bool| {
        let mut sent: Vec<_> = (0..6_000).filter(|&number| wanted(number)).map(frame).collect();
        sent.sort();
        sent
    };
    let [got_a, got_b] = files.map(|file| read(&file));
    assert!(in_order(&got_a) && in_order(&got_b));
    assert_eq!(contents(got_a), sent(&|number| number < 3_000 && port(number, 5001)));
    assert_eq!(contents(got_b), sent(&|number| number >= 2_000 || port(number, 5002)));
}

/// A filter is known by its name as soon as the edit that adds it is answered, whatever the workers publish meanwhile.
#[test]
fn a_named_filter_is_found_at_once() {
    if !inside("a_named_filter_is_found_at_once") {
        return;
    }
    veth();
    let running = start(&["dump", "-i", "v1", "--workers", "4", "-w", "/dev/null", "udp port 7"]);
    for number in 0..30 {
        let name = format!("name{number}");
        ctl(&running, &["add", "--name", &name, "udp port 9"]);
        let shown = ctl(&running, &["show"]);
        assert!(shown.contains(&name), "{shown}");
        ctl(&running, &["del", &name]);
        let shown = ctl(&running, &["show"]);
        assert!(!shown.contains(&name) && shown.contains("udp port 7"), "{shown}");
    }
    stop(running);
}

#[test]
fn what_needs_one_worker_is_refused() {
    let cases: [(&[&str], &str); 12] = [
        (&["dump", "-i", "lo", "--json", "--workers", "2"], "--json: with --workers"),
        (
            &["dump", "-r", "x.pcap", "--workers", "2"],
            "--workers: a file, a ring or a service is read by one thread",
        ),
        (&["dump", "-i", "lo", "--workers", "65"], "65"),
        (
            &["track", "sip", "-i", "lo", "--workers", "2", "-w", "{call}.pcapng"],
            "--workers: one thread puts calls together",
        ),
        (
            &["dump", "-i", "xdp:v9:0", "-i", "xdp:v9:1", "--workers", "2"],
            "-i xdp:v9:0: it cannot be captured together with other interfaces or queues",
        ),
        (&["dump", "-i", "xdp:v9:0", "-i", "xdp:v9:1"], "xdp:IF captures all queues of IF"),
        (&["demux", "-i", "lo", "--by-endpoint", "udp => count"], "there is one endpoint only"),
        (
            &["demux", "-r", "x.pcap", "--by-endpoint", "udp => count", "tcp => x.pcap"],
            "--by-endpoint: a file is read by one thread",
        ),
        (
            &["demux", "-i", "any", "--by-endpoint", "udp => count", "tcp => x.pcap"],
            "-i any: it is for interfaces by name",
        ),
        (
            &["run", "--workers", "2", "(device,lo) > (ratemeter)"],
            "depends on the order of all frames",
        ),
        (
            &["run", "--workers", "2", "(pcapin,x.pcap) > (limit,5)"],
            "does not run with several workers",
        ),
        (
            &["run", "--workers", "2", "[(device,lo) | (pcapin,x.pcap)] > (packetcount)"],
            "do not run together with several workers",
        ),
    ];
    for (words, message) in cases {
        let output = Command::new(FYKE).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(message), "{words:?}: {said}");
    }
}
