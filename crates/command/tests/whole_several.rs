//! Several interfaces of one capture, each with the filters in the kernel: sums, counts of each interface, and edits
//! under load. The built command on real interfaces, in namespaces of its own. Needs root.

mod common;

use common::{FYKE, Running, datagram, folder, frames_of, inside, tool, veth};
use fyke_capture::{Interface, InterfaceSink, Next, Sink, Source, open_file};
use fyke_frame::{Frame, LinkType};
use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const IN_KERNEL: &str = "the filters run in the kernel, too";

/// Makes the pairs `v0`, `v1` and `w0`, `w1`.
fn two_pairs() {
    veth();
    tool("ip link add w0 type veth peer name w1");
    tool("ip link set w0 up");
    tool("ip link set w1 up");
}

/// Sends on an interface, every other frame to port 5001, until told to stop; returns the number of frames.
fn send_on(name: &str, mut go_on: impl FnMut(u64) -> bool) -> u64 {
    let mut sink = InterfaceSink::open(name).unwrap();
    let interface = Interface::new(name, LinkType::EN10MB);
    let frames = [datagram(5001, 100), datagram(5002, 100)];
    let mut sent = 0;
    while go_on(sent) {
        for data in &frames {
            sink.write(&interface, &Frame::new(LinkType::EN10MB, data)).unwrap();
        }
        sent += 2;
    }
    assert_eq!(sink.stats().frames, sent, "the interface takes every frame");
    sent
}

/// The number of frames of each interface of a file.
fn by_interface(file: &Path) -> HashMap<String, u64> {
    let mut source = open_file(file).unwrap();
    let mut counts = HashMap::new();
    while let Next::Frames(batch, held) = source.next().unwrap() {
        for frame in batch.frames() {
            let interface = &held.interfaces()[frame.interface as usize];
            *counts.entry(interface.name.clone()).or_default() += 1;
        }
    }
    counts
}

/// Starts a command; `form` is the form of the kernel program, for a machine that refuses some.
fn start(words: &[&str], form: Option<&str>) -> Option<Running> {
    let mut command = Command::new(FYKE);
    command.args(words).stdout(Stdio::null());
    if let Some(form) = form {
        command.env("FYKE_KERNEL_FORM", form);
    }
    let running = Running::start(&mut command);
    running.hear(if words[0] == "run" { "running" } else { "listening on" });
    let stats = running.ctl(&["stats"]);
    if ["no clang", "CAP_BPF", "privilege"].iter().any(|why| stats.contains(why)) {
        println!("skipped: {stats}");
        return None;
    }
    Some(running)
}

#[test]
fn each_interface_has_the_filter_in_the_kernel_and_its_count() {
    if !inside("each_interface_has_the_filter_in_the_kernel_and_its_count") {
        return;
    }
    two_pairs();
    tool("ip tuntap add t0 mode tun");
    tool("ip link set t0 up");
    let (_folder, at) = folder();
    let file = at("f.pcapng");
    let file = file.to_str().unwrap();
    let graph = format!(
        "(device, expression=v1, expression=w1, expression=t0) > (filter, expression=\"udp port \
         5001\", live=y) > (tofile, expression={file})"
    );
    let demux = format!("udp port 5001 => {file}");
    let three = ["-i", "v1", "-i", "w1", "-i", "t0"];
    let commands: [Vec<&str>; 3] = [
        [&["dump", "--stats", "-w", file, "udp port 5001"], &three[..]].concat(),
        [&["demux", "--stats"], &three[..], &[&demux]].concat(),
        vec!["run", "--stats", &graph],
    ];
    for words in commands {
        let Some(mut running) = start(&words, None) else { return };
        let stats = running.ctl(&["stats"]);
        assert!(stats.contains(&format!("{IN_KERNEL} (eBPF)")), "{words:?}: {stats}");
        send_on("v0", |sent| sent < 1_000);
        send_on("w0", |sent| sent < 600);
        running.settle(1_600);
        let counts = "rejected there: v1 500, w1 300, t0 0";
        for question in ["stats", "show"] {
            let answer = running.ctl(&[question]);
            assert!(answer.contains(counts), "{words:?}: {answer}");
        }
        if words[0] == "dump" {
            running.ctl(&["add", "ether host 1:2:3:4:5:6"]);
            let shown = running.ctl(&["show"]);
            let why = "t0: eBPF, passes every frame: a link-layer address needs";
            assert!(shown.contains(why) && !shown.contains("u000a"), "{shown}");
        }
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        let sum = running.sum();
        assert_eq!((sum.seen, sum.accepted, sum.lost), (1_600, 800, 0), "{}", running.said());
        assert_eq!(frames_of(file.as_ref()), 800, "{words:?}");
    }
}

#[test]
fn an_edit_under_load_loses_nothing_on_either_interface() {
    if !inside("an_edit_under_load_loses_nothing_on_either_interface") {
        return;
    }
    two_pairs();
    let (_folder, at) = folder();
    for form in [None, Some("refused")] {
        let file = at("f.pcapng");
        let name = file.to_str().unwrap();
        let words = ["dump", "-i", "v1", "-i", "w1", "-w", name, "udp port 5001"];
        let Some(mut running) = start(&words, form) else { return };
        let stop = AtomicBool::new(false);
        // Half of the frames are accepted before and after each edit, and at most a few thousand a second are sent.
        let paced = |_| {
            std::thread::sleep(Duration::from_micros(100));
            !stop.load(Ordering::Relaxed)
        };
        let (first, second) = std::thread::scope(|scope| {
            let (first, second) =
                (scope.spawn(|| send_on("v0", paced)), scope.spawn(|| send_on("w0", paced)));
            for round in 0..20 {
                running.ctl(&["set", &format!("udp port 5001 or udp port {round}")]);
                running.ctl(&["set", "udp port 5001"]);
                // Beyond the pause after which classic BPF has a narrow program again.
                std::thread::sleep(Duration::from_millis(if round % 5 == 0 { 400 } else { 1 }));
            }
            stop.store(true, Ordering::Relaxed);
            (first.join().unwrap(), second.join().unwrap())
        });
        let all = first + second;
        match form {
            None => running.settle(all),
            Some(_) => running.wait_for(&format!("{} accepted", all / 2)),
        }
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        let said = running.said();
        assert!(
            said.contains(&format!("{} accepted", all / 2)) && said.contains("0 lost"),
            "{said}"
        );
        assert_eq!(frames_of(&file), all / 2);
        let counts = by_interface(&file);
        for (interface, sent) in [("v1", first), ("w1", second)] {
            let count = counts.get(interface).copied();
            assert_eq!(count, Some(sent / 2), "{interface}");
        }
        if form.is_none() {
            assert_eq!(running.sum().seen, all);
        }
    }
}

#[test]
fn classic_bpf_filters_on_each_interface() {
    if !inside("classic_bpf_filters_on_each_interface") {
        return;
    }
    two_pairs();
    let words = ["dump", "-i", "v1", "-i", "w1", "-w", "/dev/null", "udp port 5001"];
    let Some(mut running) = start(&words, Some("refused")) else { return };
    let stats = running.ctl(&["stats"]);
    assert!(stats.contains(IN_KERNEL) && stats.contains("classic BPF"), "{stats}");
    assert!(stats.contains("v1 not counted, w1 not counted"), "{stats}");
    send_on("v0", |sent| sent < 1_000);
    send_on("w0", |sent| sent < 600);
    running.wait_for("800 seen by fyke = 800 accepted");
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
}
