//! Filters of captures that also run in the kernel: edits, sums, and consumers that need the rejected frames. The built
//! command on a real interface, in namespaces of its own. Needs root.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, send, tool, veth};
use std::process::{Command, Stdio};

const IN_KERNEL: &str = "the filters run in the kernel, too";

fn ctl(running: &Running, words: &[&str]) -> String {
    running.ctl(words)
}

/// Starts a command on `v1`; `None` with a printed reason if this machine has no kernel space.
fn start(words: &[&str], ready: &str) -> Option<Running> {
    let mut command = Command::new(FYKE);
    let running = Running::start(command.args(words).stdout(Stdio::null()));
    running.hear(ready);
    let stats = ctl(&running, &["stats"]);
    let missing = ["no clang", "CAP_BPF", "privilege"].iter().any(|why| stats.contains(why));
    if missing {
        println!("skipped: {stats}");
        return None;
    }
    Some(running)
}

fn settle(running: &Running, seen: u64) {
    running.settle(seen);
}

#[test]
fn every_edit_of_a_filter_in_the_kernel_is_exact() {
    if !inside("every_edit_of_a_filter_in_the_kernel_is_exact") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("f.pcap");
    let words = ["dump", "-i", "v1", "--stats", "-w", file.to_str().unwrap(), "udp port 5001"];
    let Some(mut running) = start(&words, "listening on") else { return };
    assert!(ctl(&running, &["stats"]).contains(IN_KERNEL));
    let mut expected = 0;
    // Every other frame goes to port 5001, the others to 5002.
    let long: String = (0..500).map(|n| format!("udp port {} or ", 10_000 + n)).collect();
    let edits: [(&[&str], u64); 8] = [
        (&["stats"], 500),
        (&["add", "udp port 5002"], 1_000),
        (&["set", "udp port 7"], 0),
        (&["set", ""], 1_000),
        (&["set", &format!("{long}udp port 5002")], 500),
        (&["set", "ip broadcast"], 0),
        (&["set", "udp port 5001 and len > 100"], 500),
        (&["set", "not udp port 5001"], 500),
    ];
    for (number, (edit, accepted)) in edits.iter().enumerate() {
        ctl(&running, edit);
        send(1_000, 100);
        settle(&running, 1_000 * (number as u64 + 1));
        expected += accepted;
        let stats = ctl(&running, &["stats"]);
        assert!(stats.contains(&format!("= {expected} accepted")), "{edit:?}: {stats}");
    }
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (8_000, expected, 0), "{}", running.said());
    assert!(running.said().contains(IN_KERNEL), "{}", running.said());
    assert_eq!(frames_of(&file), expected);
}

#[test]
fn a_graph_that_gets_another_consumer_sees_all_frames() {
    if !inside("a_graph_that_gets_another_consumer_sees_all_frames") {
        return;
    }
    veth();
    let graph = "(device,v1) > (bpf,\"udp port 5001\",live=y) > {some}(packetcount,export=y)";
    let Some(mut running) = start(&["run", "--stats", graph], "running") else { return };
    assert!(ctl(&running, &["stats"]).contains(IN_KERNEL));
    send(1_000, 100);
    settle(&running, 1_000);
    ctl(&running, &["add", "(device,v1) > {all}(packetcount,export=y)"]);
    assert!(ctl(&running, &["stats"]).contains("all needs all frames"));
    send(1_000, 100);
    settle(&running, 2_000);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (2_000, 1_500, 0), "{}", running.said());
}

#[test]
fn frames_that_the_kernel_rejected_stay_in_the_sum_after_their_device_is_removed() {
    if !inside("frames_that_the_kernel_rejected_stay_in_the_sum_after_their_device_is_removed") {
        return;
    }
    veth();
    let graph = "(device,v1) > (bpf,\"udp port 5001\",live=y) > {some}(packetcount,export=y)";
    let other = "(device,v0) > {other}(packetcount,export=y)";
    let Some(mut running) = start(&["run", "--stats", graph, other], "running") else { return };
    send(1_000, 100);
    settle(&running, 2_000);
    ctl(&running, &["del", "1"]);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (2_000, 1_500, 0), "{}", running.said());
}

/// Frames of which only the link header is in one piece, because a packet socket sent them: the kernel program loads
/// the other bytes by a call. An edited text is interpreted, the first one is a program of its own.
#[test]
fn large_frames_of_packet_sockets_are_evaluated_like_small_ones() {
    if !inside("large_frames_of_packet_sockets_are_evaluated_like_small_ones") {
        return;
    }
    veth();
    common::tool("ip link set v0 mtu 9100");
    common::tool("ip link set v1 mtu 9100");
    let texts = [
        "udp port 5001",
        "udp dst portrange 4000-5001",
        "udp[2:2] = 5001",
        "udp[100] >= 0 and udp dst port 5001",
        "ip and udp dst port 5001",
    ];
    for text in texts {
        let words = ["dump", "-i", "v1", "--count", "--stats", text];
        let Some(mut running) = start(&words, "listening on") else { return };
        assert!(ctl(&running, &["stats"]).contains(IN_KERNEL), "{text}");
        let lens = [200, 3_000, 4_500, 8_500];
        lens.iter().for_each(|&len| send(100, len));
        settle(&running, 400);
        ctl(&running, &["set", "udp port 1"]);
        ctl(&running, &["set", text]);
        lens.iter().for_each(|&len| send(100, len));
        settle(&running, 800);
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        let sum = running.sum();
        assert_eq!((sum.seen, sum.accepted, sum.lost), (800, 400, 0), "{text}");
    }
}

#[test]
fn what_needs_rejected_frames_keeps_the_filter_in_user_space() {
    if !inside("what_needs_rejected_frames_keeps_the_filter_in_user_space") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("f.pcapng");
    let file = file.to_str().unwrap();
    let cases: [(&[&str], &str); 3] = [
        (&["dump", "-i", "v1", "-w", file, "--count-all", "udp port 5001"], "--count-all"),
        (&["dump", "-i", "v1", "-w", file, "--look-back", "udp port 5001"], "looks back"),
        (&["dump", "-i", "v1", "-w", file, "--scoped", "udp port 5001"], "scoped"),
    ];
    for (words, why) in cases {
        let mut running = start(words, "listening on").unwrap();
        let stats = ctl(&running, &["stats"]);
        assert!(stats.contains(why) && !stats.contains(IN_KERNEL), "{words:?}: {stats}");
        send(100, 100);
        settle(&running, 100);
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        assert_eq!(running.sum().seen, 100);
    }
}

#[test]
fn a_capture_that_starts_without_a_filter_gets_the_kernels_with_its_first_text() {
    if !inside("a_capture_that_starts_without_a_filter_gets_the_kernels_with_its_first_text") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("f.pcap");
    let words = ["dump", "-i", "v1", "--stats", "-w", file.to_str().unwrap()];
    let Some(mut running) = start(&words, "listening on") else { return };
    assert!(ctl(&running, &["stats"]).contains("no filter rejects a frame"));
    let long: String = (0..500).map(|n| format!("udp port {} or ", 10_000 + n)).collect();
    let long = format!("{long}udp port 5002");
    let edits: [(&[&str], u64); 6] = [
        (&["stats"], 1_000),
        (&["set", "udp port 5001"], 500),
        (&["set", ""], 1_000),
        (&["set", &long], 500),
        (&["set", ""], 1_000),
        (&["add", "udp port 7"], 0),
    ];
    let mut expected = 0;
    for (number, (edit, accepted)) in edits.iter().enumerate() {
        ctl(&running, edit);
        if edit.get(1).is_some_and(|text| !text.is_empty()) {
            running.wait_for(IN_KERNEL);
        }
        send(1_000, 100);
        settle(&running, 1_000 * (number as u64 + 1));
        expected += accepted;
    }
    assert!(ctl(&running, &["show"]).contains(&format!("{IN_KERNEL} (eBPF)")));
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (6_000, expected, 0), "{}", running.said());
    assert_eq!(frames_of(&file), expected);
}

#[test]
fn an_interface_that_goes_away_under_load_keeps_its_filter_in_the_kernel() {
    if !inside("an_interface_that_goes_away_under_load_keeps_its_filter_in_the_kernel") {
        return;
    }
    veth();
    let words = ["dump", "-i", "v1", "--stats", "--count", "udp port 5001"];
    let Some(mut running) = start(&words, "listening on") else { return };
    send(1_000, 100);
    settle(&running, 1_000);
    tool("ip link set v1 down");
    running.hear("is down");
    tool("ip link set v1 up");
    running.hear("is up again");
    common::carrier();
    send(1_000, 100);
    settle(&running, 2_000);
    tool("ip link del v0");
    running.hear("is gone");
    veth();
    running.hear("capturing on v1 again");
    send(1_000, 100);
    settle(&running, 3_000);
    tool("ip link set v1 down");
    tool("ip link set v1 name v2");
    tool("ip link set v2 up");
    send(1_000, 100);
    assert!(ctl(&running, &["stats"]).contains(IN_KERNEL));
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen - sum.accepted, sum.lost), (sum.accepted, 0), "{}", running.said());
    assert!(sum.seen >= 3_000, "{}", running.said());
}

/// Without a right that eBPF needs, filters are classic BPF. The counts name the right, once.
#[test]
fn a_right_that_is_missing_for_ebpf_is_named_once() {
    if !inside("a_right_that_is_missing_for_ebpf_is_named_once") {
        return;
    }
    veth();
    for (without, named) in [("bpf", "CAP_BPF"), ("perfmon", "CAP_PERFMON")] {
        let rights = format!("-{without},-sys_admin");
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", &rights, "--inh-caps", &rights, "--", FYKE, "dump"]);
        command.args(["-i", "v0", "-i", "v1", "-w", "/dev/null", "udp port 5001"]);
        let mut running = Running::start(command.stdout(Stdio::null()));
        running.hear("edit: ");
        let stats = ctl(&running, &["stats"]);
        if stats.contains("built without the kernel program") {
            println!("skipped: {stats}");
            return;
        }
        assert!(stats.contains("the filters run in the kernel, too (classic BPF; "), "{stats}");
        assert_eq!(stats.matches(named).count(), 1, "{stats}");
        assert_eq!(stats.matches("(os error ").count(), 1, "{stats}");
        assert!(stats.matches("failed to create map").count() < 2, "{stats}");
        assert!(!running.said().contains("refused"), "{}", running.said());
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
    }
}

#[test]
fn a_check_tells_where_filters_would_run() {
    let check = |graph: &str| {
        let output = Command::new(FYKE).args(["run", "--check", graph]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let placed = check("(device,lo) > (bpf,udp) > (packetcount,export=y)");
    assert!(placed.contains("bpf: in the kernel, too"), "{placed}");
    let file = check("(device,lo) > (bpf,udp,live=n) > (packetcount,export=y)");
    assert!(file.contains("passes every frame: bpf is read as for a file, by live=n"), "{file}");
    let rules = check("(device,lo) > (bloom,\"port=80\") > (packetcount,export=y)");
    assert!(rules.contains("bloom: its rules in the kernel, too"), "{rules}");
    assert!(rules.contains("the kernel passes every frame that passes the rules"), "{rules}");
    let own = check("(device,lo) > (bloom,\"port=80\",own=y) > (packetcount,export=y)");
    assert!(!own.contains("rules in the kernel") && !own.contains("passes the rules"), "{own}");
    let shared = check("(device,lo) > (bloom) > (bpf,udp) > (packetcount,export=y)");
    assert!(shared.contains("bloom: the rules of the interface in the kernel, too"), "{shared}");
    assert!(shared.contains("bpf: in the kernel, too"), "{shared}");
    let merged = check("(device,lo,expression=v0) > (bloom,\"port=80\") > (packetcount,export=y)");
    assert!(merged.contains("bloom: its rules in user space only"), "{merged}");
    let several = check("(device,lo,expression=v0) > (bpf,udp) > (packetcount,export=y)");
    assert!(several.contains("in the kernel, too") && several.contains("for each interface"));
    let not = check("(device,lo) > (packetcount,export=y) > (bpf,udp) > (drop)");
    assert!(not.contains("packetcount needs all frames"), "{not}");
    let explain = |words: &str| {
        let words = ["explain", "--graph", "--"].into_iter().chain(words.split(' '));
        let output = Command::new(FYKE).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for words in ["dump -i lo udp", "track ftp -i lo -w x", "demux -i lo udp=>count"] {
        let placed = explain(words);
        assert!(placed.contains("in the kernel, too"), "{words}: {placed}");
    }
    let not = explain("dump -i lo --look-back udp");
    assert!(not.contains("the kernel passes every frame: filter looks back"), "{not}");
    assert!(!explain("dump -r x.pcap udp").contains("kernel"));
}
