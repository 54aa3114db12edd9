//! What becomes of frames at the end: a capture that is stopped, limited, blocked, out of disk space, without its
//! interface. The built command on real interfaces, in namespaces of its own; every sum is compared with what was sent.

mod common;

use common::{
    FYKE, Running, carrier, datagram, folder, frames_of, inside, rest, send, send_while, tool, veth,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn frames_that_came_before_a_stop_are_all_counted() {
    if !inside("frames_that_came_before_a_stop_are_all_counted") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    for signal in ["INT", "TERM", "HUP"] {
        let file = at("out.pcapng");
        let words = ["-w", file.to_str().unwrap(), "port 5001"];
        let mut dump = Running::dump(&words, Stdio::null());
        send(60_000, 30);
        dump.signal(signal);
        assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
        let sum = dump.sum();
        assert_eq!((sum.seen, sum.rejected + sum.accepted), (60_000, 60_000 - sum.lost));
        assert_eq!(sum.accepted, frames_of(&file));
    }
}

/// `timeout` signals its child and then its process group, which is the child again.
#[test]
fn a_signal_that_is_sent_twice_leaves_the_summary_whole() {
    if !inside("a_signal_that_is_sent_twice_leaves_the_summary_whole") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    for pause in [0, 1, 3, 10, 30] {
        let file = at("out.pcapng");
        let words = ["-w", file.to_str().unwrap(), "port 5001"];
        let mut dump = Running::dump(&words, Stdio::null());
        send(60_000, 30);
        dump.signal("INT");
        std::thread::sleep(Duration::from_millis(pause));
        dump.signal("INT");
        assert_eq!(dump.end().code(), Some(0), "after {pause} ms: {}", dump.said());
        assert_eq!((dump.sum().seen, dump.sum().accepted), (60_000, frames_of(&file)));
    }
}

/// A script starts commands in the background with SIGINT ignored, and may stop them before they capture.
#[test]
fn a_signal_during_the_start_ends_a_capture_with_its_summary() {
    if !inside("a_signal_during_the_start_ends_a_capture_with_its_summary") {
        return;
    }
    veth();
    for signal in ["INT", "TERM", "HUP"] {
        let mut script = Command::new("sh");
        script.args(["-c", "trap '' INT; exec \"$0\" dump -i v1 -w /dev/null", FYKE]);
        let mut dump = Running::start(&mut script);
        let limit = Instant::now() + Duration::from_secs(20);
        // It forks its helper before it opens anything.
        let children = format!("/proc/{0}/task/{0}/children", dump.child.id());
        while std::fs::read_to_string(&children).unwrap().is_empty() {
            assert!(Instant::now() < limit, "no helper: {}", dump.said());
        }
        dump.signal(signal);
        assert_eq!(dump.end().code(), Some(0), "{signal}: {}", dump.said());
        assert_eq!(dump.sum().seen, 0);
    }
}

#[test]
fn a_signal_ends_a_start_that_waits_for_a_pipe() {
    let (_folder, at) = folder();
    let pipe = at("pipe");
    tool(&format!("mkfifo {}", pipe.display()));
    let mut command = Command::new(FYKE);
    let mut dump = Running::start(command.args(["dump", "--no-control", "-r"]).arg(&pipe));
    let caught = |line: &str| {
        let mask = line.strip_prefix("SigCgt:").map(|mask| u64::from_str_radix(mask.trim(), 16));
        mask.is_some_and(|mask| mask.unwrap() & 2 != 0)
    };
    let status = format!("/proc/{}/status", dump.child.id());
    let limit = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(&status).unwrap().lines().any(caught) {
        assert!(Instant::now() < limit, "no handler: {}", dump.said());
    }
    dump.signal("INT");
    let ended = std::os::unix::process::ExitStatusExt::signal(&dump.end());
    assert_eq!(ended, Some(2), "{}", dump.said());
}

#[test]
fn a_blocked_reader_loses_frames_and_does_not_hold_the_end() {
    if !inside("a_blocked_reader_loses_frames_and_does_not_hold_the_end") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let graph = "(device,v1) > {filter}(filter) > {out}(tofile,-)";
    let cases: [(&[&str], bool); 3] = [
        (&["dump", "--no-control", "-i", "v1", "-w", "-"], true),
        (&["dump", "--no-control", "-i", "v1", "-n", "-l"], false),
        (&["run", "--no-control", "--stats", "--workers", "2", graph], true),
    ];
    for (words, is_file) in cases {
        let mut command = Command::new(FYKE);
        let mut dump = Running::start(command.args(words).stdout(Stdio::piped()));
        dump.hear(if words[0] == "run" { "running" } else { "listening on" });
        // The pipe has no reader; it holds 64 KiB.
        send(60_000, 30);
        dump.signal("INT");
        assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
        let bytes = rest(&mut dump);
        let written = if is_file {
            let file = at("rest.pcapng");
            std::fs::write(&file, &bytes).unwrap();
            let output = Command::new(FYKE).args(["dump", "--count", "-r"]).arg(&file).output();
            String::from_utf8_lossy(&output.unwrap().stdout).trim().parse().unwrap()
        } else {
            bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
        };
        if words[0] == "run" {
            let said = dump.said();
            let out = said.lines().find(|line| line.starts_with("out ")).unwrap();
            let lost = 60_000 - written;
            let account =
                format!("60000 arrived = {written} passed + 0 rejected + 0 taken + {lost} lost");
            assert!(out.ends_with(&account), "{account}: {said}");
            continue;
        }
        let sum = dump.sum();
        assert_eq!((sum.seen, sum.accepted, sum.rejected), (60_000, written, 0), "{}", dump.said());
        assert!(dump.said().contains("lost (writer)"), "{}", dump.said());
    }
}

#[test]
fn a_stop_under_a_flood_closes_the_sum() {
    if !inside("a_stop_under_a_flood_closes_the_sum") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("out.pcap");
    let mut dump = Running::dump(&["-w", file.to_str().unwrap()], Stdio::null());
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let flood =
        std::thread::spawn(move || send_while(u64::MAX, 30, || !ended.load(Ordering::Relaxed)));
    std::thread::sleep(Duration::from_millis(500));
    dump.signal("INT");
    assert_eq!(dump.end().code(), Some(0));
    over.store(true, Ordering::Relaxed);
    let sent = flood.join().unwrap();
    let sum = dump.sum();
    assert!(sum.seen > 0 && sum.seen <= sent, "{sum:?} of {sent}");
    assert_eq!(sum.accepted, frames_of(&file));
}

#[test]
fn a_limit_counts_what_came_after_the_last_frame() {
    if !inside("a_limit_counts_what_came_after_the_last_frame") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("out.pcap");
    let words = ["-c", "100", "-w", file.to_str().unwrap(), "port 5001"];
    let mut dump = Running::dump(&words, Stdio::null());
    send(10_000, 30);
    assert_eq!(dump.end().code(), Some(0));
    let sum = dump.sum();
    assert_eq!((sum.accepted, sum.lost, frames_of(&file)), (100, 0, 100), "{}", dump.said());
    // At least the rest of its block arrived before the end.
    assert!(sum.seen > 200 && sum.seen <= 10_000, "{}", dump.said());
    // The kernel rejects other frames, and does not tell when.
    assert!(dump.said().contains(" or more after the last)"), "{}", dump.said());
}

#[test]
fn the_last_file_of_a_rotation_ends_the_capture() {
    if !inside("the_last_file_of_a_rotation_ends_the_capture") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("out.pcap");
    let words = ["-U", "-Z", "root", "-G", "3", "-W", "1", "-w", file.to_str().unwrap()];
    let mut dump = Running::dump(&words, Stdio::null());
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let flood = std::thread::spawn(move || {
        send_while(u64::MAX, 30, || {
            std::thread::sleep(Duration::from_millis(1));
            !ended.load(Ordering::Relaxed)
        })
    });
    assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let sum = dump.sum();
    assert_eq!((sum.lost, sum.accepted), (0, frames_of(&file)), "{}", dump.said());
    assert!(sum.accepted > 0 && sum.rejected > 0, "{}", dump.said());
}

#[test]
fn an_interface_goes_and_comes_back() {
    if !inside("an_interface_goes_and_comes_back") {
        return;
    }
    veth();
    let mut dump = Running::dump(&["--count"], Stdio::piped());
    send(5, 30);
    tool("ip link set v1 down");
    dump.hear("v1: the interface is down; waiting for it");
    tool("ip link set v1 up");
    dump.hear("v1: the interface is up again");
    carrier();
    send(5, 30);
    // With the same index, then with another one.
    for (round, more) in ["", "ip link add o0 type veth peer name o1"].iter().enumerate() {
        let index = std::fs::read_to_string("/sys/class/net/v1/ifindex");
        tool("ip link del v1");
        let start = Instant::now();
        while dump.said().matches("v1: the interface is gone; waiting for it").count() <= round {
            assert!(start.elapsed() < Duration::from_secs(20), "{}", dump.said());
            std::thread::sleep(Duration::from_millis(5));
        }
        if !more.is_empty() {
            tool(more);
        }
        match index {
            Ok(index) if more.is_empty() => {
                let index = index.trim();
                tool(&format!("ip link add v0 type veth peer name v1 index {index}"));
            }
            _ => tool("ip link add v0 type veth peer name v1"),
        }
        tool("ip link set v0 up");
        tool("ip link set v1 up");
        let start = Instant::now();
        while dump.said().matches("capturing on v1 again").count() <= round {
            assert!(start.elapsed() < Duration::from_secs(20), "{}", dump.said());
            std::thread::sleep(Duration::from_millis(5));
        }
        carrier();
        send(5, 30);
    }
    dump.signal("INT");
    assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
    assert_eq!(String::from_utf8_lossy(&rest(&mut dump)), "20\n", "{}", dump.said());
}

/// An interface keeps its index under another name, and so does its capture.
#[test]
fn an_interface_that_is_renamed_while_down_is_reported() {
    if !inside("an_interface_that_is_renamed_while_down_is_reported") {
        return;
    }
    for options in [&[][..], &["--workers", "2"], &["-Z", "root"]] {
        veth();
        let words = [&["--count"], options].concat();
        let mut dump = Running::dump(&words, Stdio::piped());
        send(5, 30);
        tool("ip link set v1 down");
        dump.hear("v1: the interface is down; waiting for it");
        tool("ip link set v1 name w1");
        // Another interface of the old name is not the captured one.
        tool("ip link add v1 type veth peer name other");
        tool("ip link set v1 up");
        std::thread::sleep(Duration::from_millis(200));
        assert!(!dump.said().contains("is up again"), "{}", dump.said());
        tool("ip link set w1 up");
        dump.hear("v1 (now w1): the interface is up again");
        common::carrier_of(["v0", "w1"]);
        send(5, 30);
        // It is known again by its old name.
        tool("ip link del v1");
        tool("ip link set w1 down");
        dump.hear("v1 (now w1): the interface is down");
        tool("ip link set w1 name v1");
        tool("ip link set v1 up");
        dump.hear("v1: the interface is up again");
        carrier();
        send(5, 30);
        dump.signal("INT");
        assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
        assert_eq!(String::from_utf8_lossy(&rest(&mut dump)), "15\n", "{}", dump.said());
        tool("ip link del v1");
    }
}

/// Frames arrive without a pause before and after, so the capture is never idle.
#[test]
fn an_interface_that_is_down_for_a_moment_is_reported_under_load() {
    if !inside("an_interface_that_is_down_for_a_moment_is_reported_under_load") {
        return;
    }
    veth();
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            send_while(u64::MAX, 60, || {
                std::thread::sleep(Duration::from_micros(200));
                !over.load(Ordering::Relaxed)
            })
        });
        for workers in ["1", "2"] {
            let words = ["-w", "/dev/null", "--workers", workers];
            let mut dump = Running::dump(&words, Stdio::null());
            for round in 1..=3 {
                tool("ip link set v1 down");
                tool("ip link set v1 up");
                let start = Instant::now();
                let times = |text: &str| dump.said().matches(text).count();
                while times("v1: the interface is down") < round || times("is up again") < round {
                    if start.elapsed() > Duration::from_secs(20) {
                        over.store(true, Ordering::Relaxed);
                        panic!("round {round}: {}", dump.said());
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            dump.signal("INT");
            assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
            assert!(dump.sum().accepted > 0);
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_full_disk_leaves_a_whole_file() {
    if !inside("a_full_disk_leaves_a_whole_file") {
        return;
    }
    veth();
    let (folder, _) = folder();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    tool(&format!("mount -t tmpfs -o size=1m none {}", disk.display()));
    let limited = ["bash", "-c", "ulimit -f 700; exec \"$@\"", "bash"];
    let cases: [(&str, &[&str], &str); 4] = [
        ("a.pcap", &[], "No space left on device"),
        ("b.pcapng", &[], "No space left on device"),
        ("c.pcap", &limited, "File too large"),
        ("d.pcapng", &limited, "File too large"),
    ];
    for (name, before, message) in cases {
        let file = disk.join(name);
        let mut words: Vec<&str> = before.to_vec();
        words.extend([FYKE, "dump", "--no-control", "-i", "v1", "-w", file.to_str().unwrap()]);
        let mut command = Command::new(words[0]);
        let mut dump = Running::start(command.args(&words[1..]).stdout(Stdio::null()));
        dump.hear("listening on");
        // 1 MiB holds about 700 of them.
        send(2_000, 1_400);
        assert_eq!(dump.end().code(), Some(1), "{}", dump.said());
        let sum = dump.sum();
        assert!(dump.said().contains(message), "{}", dump.said());
        assert!(dump.said().contains("lost (writer)"), "{}", dump.said());
        assert!(sum.accepted > 100 && sum.lost > 0, "{}", dump.said());
        assert_eq!(sum.accepted, frames_of(&file), "{name}: {}", dump.said());
        std::fs::remove_file(&file).unwrap();
    }
    tool(&format!("umount {}", disk.display()));
}

#[test]
fn a_file_has_one_writer() {
    if !inside("a_file_has_one_writer") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("out.pcap");
    let name = file.to_str().unwrap();
    let mut dump = Running::dump(&["-U", "-w", name], Stdio::null());
    send(10, 30);
    let second = Command::new(FYKE).args(["dump", "-i", "v1", "-w", name]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("out.pcap: already being written by another"), "{said}");
    let twice = format!("(device,v1) > [(tofile,{name}2) | (filter,udp) > (tofile,{name}2)]");
    let same = Command::new(FYKE).args(["run", &twice]).output().unwrap();
    let said = String::from_utf8_lossy(&same.stderr).into_owned();
    assert_eq!(same.status.code(), Some(1), "{said}");
    assert!(said.contains("out.pcap2: already being written by another"), "{said}");
    dump.signal("INT");
    assert!(dump.end().success());
    assert_eq!(frames_of(&file), 10, "the first writer was not disturbed");
    // Devices may be shared.
    let both = "(device,v1) > (limit,4) > [(tofile,/dev/null) | (filter,udp) > (tofile,/dev/null)]";
    let mut run = Running::start(Command::new(FYKE).args(["run", "--no-control", both]));
    run.hear("running");
    send(8, 30);
    assert!(run.end().success(), "{}", run.said());
}

#[test]
fn a_quiet_ring_does_not_hold_an_interface() {
    if !inside("a_quiet_ring_does_not_hold_an_interface") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let ring = format!("ring:{}", at("ring").display());
    // A ring without frames beside an interface with many.
    let quiet = format!("udp => {ring}");
    let mut writer = Command::new(FYKE);
    let writer = writer.args(["demux", "-i", "lo", &quiet]).stdout(Stdio::null());
    tool("ip link set lo up");
    let mut writer = Running::start(writer);
    let start = Instant::now();
    while !at("ring").exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", writer.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let graph =
        format!("[(device,{ring}) | (device,v1,buffer=4096)] > {{n}}(packetcount,export=y)");
    let mut command = Command::new(FYKE);
    let command = command.args(["run", "--no-control", "--stats", &graph]).stdout(Stdio::null());
    let mut run = Running::start(command);
    run.hear("running");
    send(600_000, 60);
    run.signal("INT");
    assert!(run.end().success(), "{}", run.said());
    let said = run.said();
    let count = said.lines().find(|line| line.starts_with("n ")).unwrap();
    assert!(count.contains(" 600000 arrived = 600000 passed"), "{said}");
    writer.signal("INT");
    assert!(writer.end().success());
}

#[test]
fn signals_are_taken_as_tcpdump_takes_them() {
    if !inside("signals_are_taken_as_tcpdump_takes_them") {
        return;
    }
    veth();
    let mut dump = Running::dump(&["-w", "/dev/null"], Stdio::null());
    send(7, 30);
    let start = Instant::now();
    // Counts are up to a tenth of a second old.
    while !dump.said().contains("7 seen = 7 accepted") {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", dump.said());
        dump.signal("USR1");
        std::thread::sleep(Duration::from_millis(50));
    }
    dump.signal("USR2");
    send(3, 30);
    dump.signal("HUP");
    assert_eq!(dump.end().code(), Some(0));
    dump.hear("10 seen = 10 accepted + 0 rejected + 0 lost");
    // Under nohup it continues.
    let mut command = Command::new("nohup");
    command.args([FYKE, "dump", "--no-control", "-i", "v1", "-w", "/dev/null"]);
    let mut dump = Running::start(command.stdout(Stdio::null()));
    dump.hear("listening on");
    dump.signal("HUP");
    send(3, 30);
    dump.signal("INT");
    assert_eq!(dump.end().code(), Some(0));
    assert_eq!(dump.sum().seen, 3);
}

#[test]
fn a_closed_or_full_standard_output_is_no_panic() {
    let (_folder, at) = folder();
    let file = at("in.pcap");
    let frames = vec![datagram(5001, 30); 3000];
    std::fs::write(&file, fyke_testkit::pcap::file(1, &frames)).unwrap();
    let shell = |text: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", text]).env("FYKE", FYKE).env("FILE", &file);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for words in ["dump --count -r $FILE", "dump -nr $FILE", "dump -r $FILE -w -", "run --classes"]
    {
        let (code, said) = shell(&format!("$FYKE {words} > /dev/full"));
        assert_eq!(code, Some(1), "{words}: {said}");
        assert!(said.contains("No space left on device"), "{words}: {said}");
        let (code, said) = shell(&format!("$FYKE {words} | true; exit ${{PIPESTATUS[0]}}"));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{words}");
        let (code, _) = shell(&format!("$FYKE {words} > /dev/full 2> /dev/full"));
        assert_eq!(code, Some(1), "{words}");
    }
}

/// Duration of the soak in seconds: two minutes, or `FYKE_SOAK_SECONDS`.
fn soak_time() -> Duration {
    let given = std::env::var("FYKE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(120))
}

/// Sends about 20,000 frames per second for this time.
fn send_for(time: Duration) -> u64 {
    let (start, sent) = (Instant::now(), std::cell::Cell::new(0u64));
    send_while(u64::MAX, 60, || {
        sent.set(sent.get() + 1);
        if sent.get().is_multiple_of(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed() < time
    })
}

/// Edits and queries the capture until `done`; returns the number of times.
fn edit_and_ask(capture: &Running, done: &AtomicBool) -> u64 {
    let pid = capture.child.id().to_string();
    let ctl = |words: &[&str]| {
        let mut command = Command::new(FYKE);
        command.args(["ctl", "--pid", &pid]).args(words).env("FYKE_RUNTIME_DIR", common::runtime());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let many: Vec<String> =
        (0..2_000).map(|n| format!("(host 10.2.{}.{} and port 9)", n / 250, n % 250)).collect();
    let many = many.join(" or ");
    let mut rounds = 0;
    while !done.load(Ordering::Relaxed) {
        ctl(&["add", &format!("tcp port {}", 1 + rounds % 60_000)]);
        ctl(&["stats"]);
        ctl(&["add", &many]);
        ctl(&["show"]);
        ctl(&["set", "udp port 5001"]);
        rounds += 1;
    }
    rounds
}

/// One round of the soak: a capture with edits and queries, one with a full disk, and a ring with a killed reader, all
/// on the same traffic.
fn soak_round(disk: &Path, at: impl Fn(&str) -> PathBuf) {
    let file = disk.join("soak.pcapng");
    let ring = format!("ring:{}", at("ring").display());
    let arguments = ["dump", "-i", "v1", "-w", "/dev/null", "udp port 5001"];
    let mut edited = Running::start(Command::new(FYKE).args(arguments).stdout(Stdio::null()));
    let mut full = Running::dump(&["-w", file.to_str().unwrap()], Stdio::null());
    let to_ring = format!("udp => {ring}");
    let mut demux = Running::start(Command::new(FYKE).args(["demux", "-i", "v1", &to_ring]));
    let start = Instant::now();
    while !at("ring").exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", demux.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    edited.hear("listening on");
    let read = ["dump", "--no-control", "-i", &ring, "-w", "/dev/null"];
    let mut killed = Running::start(Command::new(FYKE).args(read));
    let mut reader = Running::start(Command::new(FYKE).args(read));
    reader.hear("listening on");
    let done = AtomicBool::new(false);
    let (sent, rounds) = std::thread::scope(|threads| {
        let asking = threads.spawn(|| edit_and_ask(&edited, &done));
        let mut sent = send_for(Duration::from_secs(2));
        killed.child.kill().unwrap();
        killed.child.wait().unwrap();
        sent += send_for(Duration::from_secs(2));
        done.store(true, Ordering::Relaxed);
        (sent, asking.join().unwrap())
    });
    assert_eq!(full.end().code(), Some(1), "{}", full.said());
    let sum = full.sum();
    assert_eq!(sum.accepted, frames_of(&file), "{}", full.said());
    std::fs::remove_file(&file).unwrap();
    edited.signal("INT");
    assert!(edited.end().success(), "{}", edited.said());
    let sum = edited.sum();
    assert_eq!((sum.seen, sum.lost), (sent, 0), "{}", edited.said());
    assert!(sum.accepted >= sent / 2 && rounds > 0, "{}", edited.said());
    demux.signal("INT");
    assert!(demux.end().success(), "{}", demux.said());
    assert!(reader.end().success(), "{}", reader.said());
    let sum = reader.sum();
    assert_eq!(sum.seen, sent, "{}", reader.said());
}

/// Edits, queries, full disks and killed readers, repeatedly: every sum adds up, and undisturbed captures lose nothing.
#[test]
fn a_soak_of_edits_full_disks_and_killed_readers() {
    if !inside("a_soak_of_edits_full_disks_and_killed_readers") {
        return;
    }
    veth();
    let (folder, at) = folder();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    tool(&format!("mount -t tmpfs -o size=1m none {}", disk.display()));
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < soak_time() {
        soak_round(&disk, &at);
        rounds += 1;
    }
    println!("{rounds} rounds in {} s", start.elapsed().as_secs());
    tool(&format!("umount {}", disk.display()));
}
