//! `-i xdp:IF` with several workers: each has a socket of each queue, which the program at the driver selects by the
//! class value of a frame or by its addresses. Real interfaces in namespaces; needs root.

mod common;
#[path = "common/pairs.rs"]
mod pairs;

use common::{FYKE, Running, Sum, carrier, folder, inside, tool, veth};
use fyke_testkit::packet::Packet;
use pairs::{PAIRS, contents, ctl, frame, in_order, pair, read, send_all, settle, stop};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Makes `v0` and `v1`, each with this number of queues.
fn veth_with(queues: u32) {
    veth();
    tool("ip link delete v1");
    let queues = format!("numtxqueues {queues} numrxqueues {queues}");
    tool(&format!("ip link add v0 {queues} type veth peer name v1 {queues}"));
    ["v0", "v1"].iter().for_each(|name| tool(&format!("ip link set {name} up")));
    carrier();
}

/// Starts a command that captures at the driver; `None` without the rights for it.
fn start_any(words: &[&str]) -> Option<Running> {
    let mut command = Command::new(FYKE);
    let running = Running::start(command.args(words).stdout(Stdio::null()));
    let ready = if words[0] == "run" { "running" } else { "listening on" };
    let limit = Instant::now() + Duration::from_secs(20);
    while !running.said().contains(ready) {
        if running.said().contains("needs root or CAP_BPF") {
            println!("skipped: {}", running.said());
            return None;
        }
        assert!(Instant::now() < limit, "{}", running.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(running)
}

/// Starts a capture of three workers at the driver of `v1`, of which both ends have two queues.
fn start_at_driver(words: &[&str]) -> Option<Running> {
    veth_with(2);
    let first = ["dump", "-i", "xdp:v1", "--workers", "3", "--stats"];
    start_any(&[&first[..], words].concat())
}

/// Each worker has sockets of its own, and all of them one filter at the driver. Frames that are sent after the answer
/// to an edit are judged by the new filters on each of them, and each filter has its frames.
#[test]
fn an_edit_at_the_driver_is_in_force_for_all_workers() {
    if !inside("an_edit_at_the_driver_is_in_force_for_all_workers") {
        return;
    }
    let (_folder, at) = folder();
    let file = at("edited.pcapng");
    let words = ["-w", file.to_str().unwrap(), "udp port 7"];
    let Some(running) = start_at_driver(&words) else { return };
    let named = ["add", "--name", "both", "udp port 5001"];
    // Each edit, and the frames of which ports are accepted after it.
    let edits: [(&[&str], [bool; 2]); 6] = [
        (&["set", "udp port 5002"], [false, true]),
        (&named, [true, true]),
        (&["del", "both"], [false, true]),
        (&["set", "udp port 7"], [false, false]),
        (&["undo"], [false, true]),
        (&["set", ""], [true, true]),
    ];
    let (mut sent, mut expected) = (0, Vec::new());
    for (edit, accepts) in edits.iter().cycle().take(18) {
        ctl(&running, edit);
        let numbers = sent..sent + 2 * PAIRS;
        sent = numbers.end;
        send_all(numbers.clone().map(frame));
        expected.extend(numbers.filter(|number| accepts[*number as usize % 2]).map(frame));
        settle(&running, u64::from(sent));
        if *edit == named {
            let stats = ctl(&running, &["stats"]);
            for (text, count) in [("udp port 5002", 2 * PAIRS), ("udp port 5001", PAIRS)] {
                let end = format!(": {count} {text}");
                assert!(stats.lines().any(|line| line.ends_with(&end)), "{end}: {stats}");
            }
        }
    }
    let (sum, said) = stop(running);
    let (seen, accepted) = (u64::from(sent), expected.len() as u64);
    assert_eq!(sum, Sum { seen, accepted, rejected: seen - accepted, lost: 0 }, "{said}");
    expected.sort();
    assert_eq!(contents(read(&file)), expected);
}

#[test]
fn frames_of_a_pause_at_the_driver_are_lost_and_counted() {
    if !inside("frames_of_a_pause_at_the_driver_are_lost_and_counted") {
        return;
    }
    let words = ["-w", "/dev/null", "udp port 5001"];
    let Some(running) = start_at_driver(&words) else { return };
    // The kernel rejects the other half.
    send_all((0..1_000).map(frame));
    settle(&running, 1_000);
    ctl(&running, &["pause"]);
    send_all((0..3_000).map(frame));
    settle(&running, 4_000);
    assert!(ctl(&running, &["stats"]).contains("1500 lost (paused)"));
    ctl(&running, &["start"]);
    send_all((0..500).map(frame));
    settle(&running, 4_500);
    let (sum, said) = stop(running);
    let expected = Sum { seen: 4_500, accepted: 750, rejected: 2_250, lost: 1_500 };
    assert_eq!(sum, expected, "{said}");
}

/// The frames that each ring has received, of the last line about them.
fn rings(said: &str) -> Vec<u64> {
    let line = said.lines().rfind(|line| line.contains("its rings received"));
    let line = line.unwrap_or_else(|| panic!("no rings: {said}"));
    let numbers = line.split(|other: char| !other.is_ascii_digit());
    // The first number is of the name of the interface.
    numbers.filter_map(|digits| digits.parse().ok()).skip(1).collect()
}

/// All conversations are whole and in order, by every number of queues and workers, and several workers have some.
#[test]
fn conversations_stay_in_order_by_any_number_of_queues_and_workers() {
    if !inside("conversations_stay_in_order_by_any_number_of_queues_and_workers") {
        return;
    }
    let (_folder, at) = folder();
    for (queues, workers) in [(1, "2"), (1, "4"), (2, "1"), (2, "2"), (2, "4")] {
        veth_with(queues);
        let file = at(&format!("{queues}-{workers}.pcapng"));
        let graph = format!("(device,xdp:v1) > (tofile,{})", file.display());
        let words = ["run", "--workers", workers, "--stats", &graph];
        let Some(running) = start_any(&words) else { return };
        let frames: Vec<_> = (0..10_000).map(frame).collect();
        send_all(frames.clone());
        settle(&running, 10_000);
        let (sum, said) = stop(running);
        assert_eq!(sum, Sum { seen: 10_000, accepted: 10_000, rejected: 0, lost: 0 }, "{said}");
        if workers != "1" {
            let rings = rings(&said);
            assert_eq!(rings.iter().sum::<u64>(), 10_000, "{said}");
            assert!(rings.iter().all(|count| *count > 0), "{queues} queues: {rings:?}");
        }
        let written = read(&file);
        assert!(in_order(&written), "{queues} queues, {workers} workers");
        for of_pair in 0..PAIRS {
            let is_of = |data: &[u8]| {
                let ends =
                    [&data[26..30], &data[30..34]].map(|end| [end[0], end[1], end[2], end[3]]);
                let (near, far) = pair(of_pair);
                ends == [near, far] || ends == [far, near]
            };
            let got: Vec<_> =
                written.iter().map(|(_, data)| data).filter(|one| is_of(one)).collect();
            let sent: Vec<_> = frames.iter().filter(|one| is_of(one)).collect();
            assert!(got == sent, "{queues} queues, {workers} workers: pair {of_pair}");
        }
        assert_eq!(contents(written), contents(frames.into_iter().map(|one| (0, one)).collect()));
        tool("ip link delete v1");
    }
}

/// The frames of each endpoint go to the worker of its class value, of all conversations; the class after an edit holds
/// for later frames. The plan and the running capture tell so.
#[test]
fn endpoints_have_workers_of_their_own() {
    if !inside("endpoints_have_workers_of_their_own") {
        return;
    }
    let (_folder, at) = folder();
    let files = ["a.pcapng", "b.pcapng"].map(&at);
    let [a, b] = files.each_ref().map(|file| file.to_str().unwrap());
    let to = |text: &str, endpoint: &str| format!("{text} => {endpoint}");
    // For the text of an edit.
    let third = |number: u32| {
        let (near, far) = pair(number);
        Packet::ethernet().ipv4(near, far).udp(4000, 5003).payload(&number.to_be_bytes()).build()
    };
    let (first, second) = (to("udp port 5001", a), to("udp port 5002", b));
    let texts = "expression=\"udp port 5001 => 0\",expression=\"udp port 5002 => 1\"";
    let first_part = format!("(device,xdp:v1,classes=y) > {{d}}(demux,{texts}) -0-> (tofile,{a})");
    let graph = format!("[{first_part}] | [{{d}}() -1-> (tofile,{b})]");
    let cases: [&[&str]; 3] = [
        &["demux", "-i", "xdp:v1", "--workers", "2", "--stats", &first, &second],
        &["demux", "-i", "xdp:v1", "--by-endpoint", "--stats", &first, &second],
        &["run", "--workers", "2", "--stats", &graph],
    ];
    let told = "the program at the driver selects the worker of a frame by its class value";
    for words in cases {
        let planned: Vec<_> = match words[0] {
            "run" => vec!["run", "--check", &graph],
            _ => [&["explain", "--graph", "--"], words].concat(),
        };
        let output = Command::new(FYKE).args(&planned).output().unwrap();
        let planned = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(planned.contains(&format!("with several workers, {told}")), "{planned}");
        veth_with(2);
        let Some(running) = start_any(words) else { return };
        let shown = ctl(&running, &["show"]);
        assert!(shown.contains(&format!("v1: {told}")), "{shown}");
        send_all((0..4_000).map(frame));
        settle(&running, 4_000);
        let later = if words[0] == "demux" { 4_000..5_000 } else { 0..0 };
        if !later.is_empty() {
            ctl(&running, &["add", &to("udp port 5003", b)]);
            send_all(later.clone().map(third));
            settle(&running, 5_000);
        }
        let (sum, said) = stop(running);
        let more = later.len() as u64;
        let seen = 4_000 + more;
        assert_eq!(sum, Sum { seen, accepted: seen, rejected: 0, lost: 0 }, "{said}");
        assert_eq!(rings(&said), [2_000, 2_000 + more], "{said}");
        for (port, file) in files.iter().enumerate() {
            let got = read(file);
            assert!(in_order(&got), "{words:?}");
            let of_port = (0..4_000).filter(|number| *number as usize % 2 == port).map(frame);
            let added = later.clone().filter(|_| port == 1).map(third);
            let mut sent: Vec<_> = of_port.chain(added).collect();
            sent.sort();
            assert!(contents(got) == sent, "{words:?} {port}");
        }
        tool("ip link delete v1");
    }
}

/// The addresses select if the class value cannot, and the capture tells why.
#[test]
fn without_class_values_the_addresses_select() {
    if !inside("without_class_values_the_addresses_select") {
        return;
    }
    veth_with(2);
    let graph = "(device,xdp:v1,classes=y) > (filter,udp) > (packetcount)";
    let Some(running) = start_any(&["run", "--workers", "2", "--stats", graph]) else { return };
    let shown = ctl(&running, &["show"]);
    let told = "selects the worker of a frame by its addresses: the node after the device gives frames no class";
    assert!(shown.contains(told), "{shown}");
    send_all((0..4_000).map(frame));
    settle(&running, 4_000);
    let (_, said) = stop(running);
    let rings = rings(&said);
    assert!(rings.iter().sum::<u64>() == 4_000 && rings.iter().all(|count| *count > 0), "{said}");
}

/// Every frame that was sent has an outcome while filters are edited, also if a worker cannot follow; and at an
/// interrupt under load, every frame that was seen.
#[test]
fn the_sum_is_exact_under_load_with_edits_and_at_an_interrupt() {
    if !inside("the_sum_is_exact_under_load_with_edits_and_at_an_interrupt") {
        return;
    }
    let (_folder, at) = folder();
    let file = at("out.pcapng");
    let words = ["-B", "1024", "-w", file.to_str().unwrap(), "udp port 5001"];
    let Some(running) = start_at_driver(&words) else { return };
    let (done, sent) = (AtomicBool::new(false), AtomicU32::new(0));
    let load = || {
        while !done.load(Ordering::Relaxed) {
            let first = sent.load(Ordering::Relaxed);
            send_all((first..first + 500).map(frame));
            sent.store(first + 500, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(load);
        for _ in 0..5 {
            ctl(&running, &["add", "--name", "more", "udp port 5002"]);
            running.signal("STOP");
            // More than the memory holds.
            let before = sent.load(Ordering::Relaxed);
            while sent.load(Ordering::Relaxed) < before + 5_000 {
                std::thread::sleep(Duration::from_millis(5));
            }
            running.signal("CONT");
            ctl(&running, &["del", "more"]);
        }
        done.store(true, Ordering::Relaxed);
    });
    let before = u64::from(sent.load(Ordering::Relaxed));
    settle(&running, before);
    done.store(false, Ordering::Relaxed);
    let (sum, said) = std::thread::scope(|scope| {
        scope.spawn(load);
        std::thread::sleep(Duration::from_millis(200));
        let stopped = stop(running);
        done.store(true, Ordering::Relaxed);
        stopped
    });
    let after = u64::from(sent.load(Ordering::Relaxed));
    assert!(before < sum.seen && sum.seen <= after && sum.lost > 0, "{before} {after}: {said}");
    assert_eq!(sum.seen, sum.accepted + sum.rejected + sum.lost, "{said}");
    let written = read(&file);
    assert!(in_order(&written));
    assert_eq!(written.len() as u64, sum.accepted, "{said}");
    assert!(!said.contains("not taken by the socket"), "{said}");
}

/// A frame that comes in several parts is whole at its worker.
#[test]
fn long_frames_are_whole_at_every_worker() {
    if !inside("long_frames_are_whole_at_every_worker") {
        return;
    }
    let (_folder, at) = folder();
    let file = at("long.pcapng");
    veth_with(2);
    ["v0", "v1"].iter().for_each(|name| tool(&format!("ip link set {name} mtu 9000")));
    let graph = format!("(device,xdp:v1,buffer=4096) > (tofile,{})", file.display());
    let Some(running) = start_any(&["run", "--workers", "2", "--stats", &graph]) else { return };
    let long = |number: u32| {
        let (near, far) = pair(number);
        let len = [30, 3_796, 3_797, 7_600, 8_900][number as usize % 5];
        Packet::ethernet().ipv4(near, far).udp(1, 2).payload(&vec![number as u8; len]).build()
    };
    // More than the memory holds at once.
    for round in 0..20 {
        send_all((round * 100..round * 100 + 100).map(long));
        settle(&running, u64::from(round + 1) * 100);
    }
    let (sum, said) = stop(running);
    assert_eq!(sum, Sum { seen: 2_000, accepted: 2_000, rejected: 0, lost: 0 }, "{said}");
    assert!(rings(&said).iter().all(|count| *count > 0), "{said}");
    let mut sent: Vec<_> = (0..2_000).map(long).collect();
    sent.sort();
    assert!(contents(read(&file)) == sent, "{said}");
}

/// A limit is exact, and frames before an edit are found in the memory of every worker.
#[test]
fn limits_and_look_back_hold_for_all_workers() {
    if !inside("limits_and_look_back_hold_for_all_workers") {
        return;
    }
    let (_folder, at) = folder();
    let file = at("limit.pcapng");
    let Some(mut running) = start_at_driver(&["-c", "500", "-w", file.to_str().unwrap()]) else {
        return;
    };
    send_all((0..3_000).map(frame));
    assert!(running.end().success(), "{}", running.said());
    assert_eq!((running.sum().accepted, running.sum().lost), (500, 0), "{}", running.said());
    assert_eq!(read(&file).len(), 500);
    tool("ip link delete v1");
    let file = at("back.pcapng");
    let words = ["--look-back", "-w", file.to_str().unwrap(), "udp port 7"];
    let Some(running) = start_at_driver(&words) else { return };
    send_all((0..1_000).map(frame));
    settle(&running, 1_000);
    ctl(&running, &["add", "udp port 5002"]);
    send_all((1_000..1_100).map(frame));
    settle(&running, 1_100);
    let (_, said) = stop(running);
    let mut sent: Vec<_> = (0..1_100).filter(|number| number % 2 == 1).map(frame).collect();
    sent.sort();
    assert!(contents(read(&file)) == sent, "{said}");
}

/// The interface disappears: the frames in all rings are read and counted, the capture ends with an error.
#[test]
fn an_interface_that_disappears_ends_all_workers() {
    if !inside("an_interface_that_disappears_ends_all_workers") {
        return;
    }
    let (_folder, at) = folder();
    let file = at("gone.pcapng");
    let Some(mut running) = start_at_driver(&["-w", file.to_str().unwrap()]) else { return };
    send_all((0..2_000).map(frame));
    settle(&running, 2_000);
    send_all((2_000..2_200).map(frame));
    tool("ip link delete v1");
    assert_eq!(running.end().code(), Some(1), "{}", running.said());
    let said = running.said();
    assert!(said.contains("v1: the interface has disappeared; at the driver"), "{said}");
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted + sum.lost), (2_200, 2_200), "{said}");
    assert_eq!(read(&file).len() as u64, sum.accepted);
}

/// An interface may be named by its number.
#[test]
fn an_interface_has_its_number_at_the_driver_too() {
    if !inside("an_interface_has_its_number_at_the_driver_too") {
        return;
    }
    veth_with(1);
    let listed = Command::new(FYKE).args(["dump", "-D"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = listed.lines().find(|line| line.contains("v1")).unwrap();
    let number = line.split('.').next().unwrap();
    let (named, wrong) = (format!("xdp:{number}:0"), "xdp:99");
    let Some(running) = start_any(&["dump", "-i", &named, "-w", "/dev/null"]) else { return };
    assert!(running.said().contains("listening on v1"), "{}", running.said());
    stop(running);
    let refused = Command::new(FYKE).args(["dump", "-i", wrong]).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("no interface with this name or number; the numbers are 1 to"), "{why}");
}
