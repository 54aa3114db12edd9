//! Filters of captures as classic BPF on the socket, where no eBPF can be loaded. The built command on a real
//! interface, in namespaces of its own. Needs root.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, send, tool, veth};
use std::process::{Command, Stdio};

const IN_KERNEL: &str = "the filters run in the kernel, too (classic BPF";

/// Starts a command with an eBPF program that the verifier refuses.
fn start(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    let command = command.args(words).env("FYKE_KERNEL_FORM", "refused").stdout(Stdio::null());
    let running = Running::start(command);
    running.hear(if words[0] == "run" { "running" } else { "listening on" });
    running
}

/// The numbers of a sum that lacks the frames that the kernel rejected: seen, accepted, lost.
fn partial_sum(said: &str) -> (u64, u64, u64) {
    let line = said.lines().find(|line| line.contains(" seen by fyke = ")).expect(said);
    assert!(line.contains("; rejected in the kernel: not counted"), "{line}");
    let words: Vec<_> = line.split([' ', ';']).collect();
    let number = |what| {
        let at = words.iter().position(|word| *word == what).expect(line);
        words[at - 1].parse::<u64>().expect(line)
    };
    let [seen, accepted, rejected, lost] = ["seen", "accepted", "rejected", "lost"].map(number);
    assert_eq!(seen, accepted + rejected + lost, "{line}");
    (seen, accepted, lost)
}

#[test]
fn every_edit_of_a_filter_in_classic_bpf_is_exact() {
    if !inside("every_edit_of_a_filter_in_classic_bpf_is_exact") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("f.pcap");
    let mut running =
        start(&["dump", "-i", "v1", "--stats", "-w", file.to_str().unwrap(), "udp port 5001"]);
    let told = "v1: filters run in the kernel as classic BPF, which does not count the frames that it \
                rejects, because eBPF is refused: verifying the program";
    assert!(running.said().contains(told), "{}", running.said());
    let stats = running.ctl(&["stats"]);
    assert!(stats.contains(IN_KERNEL) && stats.contains("no eBPF: "), "{stats}");
    assert!(running.ctl(&["show"]).contains(IN_KERNEL));
    let mut expected = 0;
    // Every other frame goes to port 5001, the others to 5002.
    let long: String = (0..3_000).map(|n| format!("udp port {} or ", 10_000 + n)).collect();
    let too_long = format!("{long}udp port 5002");
    let edits: [(&[&str], u64, &str); 9] = [
        (&["stats"], 500, IN_KERNEL),
        (&["add", "udp port 5002"], 1_000, IN_KERNEL),
        (&["set", "udp port 7"], 0, IN_KERNEL),
        (&["set", &too_long], 500, "the kernel takes 4096"),
        (&["set", "not udp port 5001"], 500, IN_KERNEL),
        (&["set", ""], 1_000, "no filter rejects a frame"),
        (&["add", "udp port 5001 and len > 100"], 500, IN_KERNEL),
        (&["add", "ip[ip[2:4]] = 1"], 500, "computes a place"),
        (&["set", "arp or udp dst port 5001"], 500, IN_KERNEL),
    ];
    for (edit, accepted, then) in edits {
        // At once, while the socket is open, and then in the kernel.
        running.ctl(edit);
        for _ in 0..2 {
            send(1_000, 100);
            expected += accepted;
            running.wait_for(&format!("= {expected} accepted"));
            running.wait_for(then);
        }
    }
    let stats = running.ctl(&["--json", "stats"]);
    assert!(stats.contains("\"rejected_in_kernel\":\"not counted\""), "{stats}");
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let (seen, accepted, lost) = partial_sum(&running.said());
    assert_eq!((accepted, lost), (expected, 0), "{}", running.said());
    assert!(seen < 18_000, "the kernel rejected frames: {}", running.said());
    assert_eq!(frames_of(&file), expected);
}

#[test]
fn cooked_sockets_and_cut_frames_have_classic_filters() {
    if !inside("cooked_sockets_and_cut_frames_have_classic_filters") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("f.pcap");
    let path = file.to_str().unwrap();
    let cases: [(&[&str], u64); 4] = [
        // Sent on v0 and received on v1.
        (&["-i", "any", "udp dst port 5001"], 1_000),
        (&["-i", "any", "-y", "LINUX_SLL", "udp dst port 5001 and not outbound"], 500),
        (&["-i", "v1", "-s", "40", "udp dst port 5001"], 500),
        (&["-i", "v1", "-s", "40", "not udp dst port 5001"], 500),
    ];
    for (words, expected) in cases {
        let mut running = start(&[&["dump", "--stats", "-w", path], words].concat());
        running.wait_for(IN_KERNEL);
        send(1_000, 100);
        running.wait_for(&format!("= {expected} accepted"));
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        let (seen, accepted, lost) = partial_sum(&running.said());
        assert_eq!((seen, accepted, lost), (expected, expected, 0), "{words:?}");
        assert_eq!(frames_of(&file), expected);
    }
}

#[test]
fn a_capture_without_the_right_to_load_ebpf_says_so_and_filters_in_the_kernel() {
    if !inside("a_capture_without_the_right_to_load_ebpf_says_so_and_filters_in_the_kernel") {
        return;
    }
    veth();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-bpf,-sys_admin", FYKE, "dump", "-i", "v1", "--count"]);
    let mut running = Running::start(command.arg("udp port 5001").stdout(Stdio::null()));
    running.hear("listening on");
    let stats = running.ctl(&["stats"]);
    assert!(stats.contains(IN_KERNEL) && stats.contains("CAP_BPF"), "{stats}");
    send(1_000, 100);
    running.wait_for("500 seen by fyke = 500 accepted + 0 rejected + 0 lost");
    // The interface goes away, and its successor has the filter.
    tool("ip link del v0");
    running.hear("is gone");
    veth();
    running.hear("capturing on v1 again");
    send(1_000, 100);
    running.wait_for("1000 seen by fyke = 1000 accepted + 0 rejected + 0 lost");
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
}

#[test]
fn count_all_counts_every_frame() {
    if !inside("count_all_counts_every_frame") {
        return;
    }
    veth();
    let graph = "(device,v1) > (bpf,\"udp port 5001\",live=y) > (packetcount,export=y)";
    let commands: [&[&str]; 2] = [
        &["dump", "-i", "v1", "--count", "--count-all", "--stats", "udp port 5001"],
        &["run", "--stats", "--count-all", graph],
    ];
    for words in commands {
        let mut running = start(words);
        assert!(running.ctl(&["stats"]).contains("--count-all counts them in user space"));
        send(1_000, 100);
        running.wait_for("1000 seen = 500 accepted");
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        assert_eq!(running.sum().seen, 1_000);
    }
}

#[test]
fn edits_under_load_lose_no_frame_and_a_killed_capture_leaves_nothing() {
    if !inside("edits_under_load_lose_no_frame_and_a_killed_capture_leaves_nothing") {
        return;
    }
    veth();
    let mut running = start(&["dump", "-i", "v1", "--count", "--stats", "udp port 5001"]);
    let sender = std::thread::spawn(|| send(100_000, 100));
    let mut edits = 0;
    while !sender.is_finished() {
        // Every one of them accepts port 5001 and rejects 5002.
        let text = format!("udp port 5001 or udp port {}", 6_000 + edits);
        running.ctl(&["set", &text]);
        edits += 1;
        // Some edits follow at once, some after the program has been attached.
        std::thread::sleep(std::time::Duration::from_millis(if edits % 4 == 0 { 300 } else { 1 }));
    }
    sender.join().unwrap();
    running.wait_for("= 50000 accepted");
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let (_, accepted, lost) = partial_sum(&running.said());
    assert_eq!((accepted, lost), (50_000, 0), "{edits} edits: {}", running.said());

    let mut running = start(&["dump", "-i", "v1", "--count", "udp port 5001"]);
    running.signal("KILL");
    running.end();
    let sockets = std::fs::read_to_string("/proc/net/packet").unwrap();
    assert_eq!(sockets.lines().count(), 1, "{sockets}");
}
