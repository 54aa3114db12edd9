//! `fyke exec`: edits the filter of real, unmodified programs while they capture, without losing a packet; every packet
//! socket of the program and its descendants has the filter from its first frame.

use fyke_lab::net::{self, World, WorldError};
use fyke_testkit::skip::unless_missing;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KEPT: u16 = 7001;
const SOMETIMES: u16 = 7002;
const PACKETS: u32 = 20_000;
const EDITS: usize = 20;
/// libpcap judges its first ring block by its own filter; tcpdump's blocks are handed over after a second.
const FIRST_BLOCK: Duration = Duration::from_millis(1_800);

fn fyke(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
    command.env("FYKE_RUNTIME_DIR", folder).args(arguments);
    command
}

fn control_folder(folder: &Path) -> PathBuf {
    let control = folder.join("run");
    std::fs::create_dir(&control).unwrap();
    std::fs::set_permissions(&control, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    control
}

/// Checks that all requirements are met; prints those that are not.
fn possible() -> Option<World> {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("skipped: tcpdump is not installed");
        return None;
    }
    let opened = fyke_kernel::Space::open(fyke_kernel::Options::default());
    unless_missing(opened, fyke_kernel::OpenError::is_unavailable)?;
    unless_missing(World::create(1, 1), WorldError::is_refused)
}

#[test]
fn tcpdump_is_edited_while_it_captures_and_loses_nothing() {
    edited_while_it_captures(net::SERVERS_DEVICE, PACKETS, |also| match also {
        true => format!("udp port {KEPT} or udp port {SOMETIMES}"),
        false => format!("udp port {KEPT}"),
    });
}

/// `-i any`: the socket delivers packets without a link header. The expressions use arithmetic, and one has thousands
/// of passes.
#[test]
fn a_cooked_capture_is_edited_too() {
    let pairs = (0..3_000_u16).map(|n| format!("or (host 10.77.0.1 and udp port {})", 20_000 + n));
    let pairs: Vec<String> = pairs.collect();
    edited_while_it_captures("any", PACKETS, move |also| {
        let kept = format!("ip[9] = 17 and udp[2:2] = {KEPT}");
        match also {
            true => format!("({kept}) or udp port {SOMETIMES} {}", pairs.join(" ")),
            false => kept,
        }
    });
}

/// tcpdump on a device, edited so that it also accepts the other port, and not, in turns.
fn edited_while_it_captures(device: &str, packets: u32, text: impl Fn(bool) -> String) {
    let Some(world) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    let file = folder.path().join("out.pcap");
    let start = ["exec", "--stats", "--", "tcpdump", "-Z", "root", "-B", "16384", "-ni"];
    let mut command = fyke(&control, &start);
    command.arg(device).arg("-w").arg(&file).arg(format!("udp port {KEPT}"));
    command.stderr(Stdio::piped());
    let running = world.servers.inside(move || command.spawn()).unwrap().unwrap();
    let pid = running.id().to_string();
    wait_for_filter(&control, &pid);

    let sender = world.clients.spawn("sender", move || send(packets)).unwrap();
    std::thread::sleep(FIRST_BLOCK);
    for edit in 0..EDITS {
        let done = fyke(&control, &["ctl", "--pid", &pid, "set", &text(edit % 2 == 0)]).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    sender.join().unwrap().unwrap();
    std::thread::sleep(FIRST_BLOCK);
    let said = stop(running);
    let (kept, sometimes) = count(&file);
    println!("{kept} of {packets} kept, {sometimes} of the other port\n{said}");
    assert!(said.contains("0 packets dropped by kernel"), "{said}");
    assert!(!said.contains("own filter"), "{said}");
    assert_eq!(kept, packets, "packets that every filter accepts");
    assert!(sometimes > 0 && sometimes < packets, "the edits took effect: {sometimes}");
}

fn wait_for_filter(control: &Path, pid: &str) {
    for _ in 0..200 {
        let shown = fyke(control, &["ctl", "--pid", pid, "show"]).output().unwrap();
        if String::from_utf8_lossy(&shown.stdout).contains("filter 1") {
            // tcpdump's own filter is replaced a few milliseconds after it was set.
            return std::thread::sleep(Duration::from_millis(1_500));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("fyke exec shows no filter");
}

fn send(packets: u32) {
    let socket = UdpSocket::bind((net::client_address(0), 0)).unwrap();
    for number in 0..packets {
        for port in [KEPT, SOMETIMES] {
            let target = (net::server_address(0), port);
            while socket.send_to(&number.to_be_bytes(), target).is_err() {}
        }
        if number % 10 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Ends tcpdump through fyke, and returns standard error.
fn stop(running: Child) -> String {
    signal("INT", running.id());
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn signal(name: &str, pid: u32) {
    Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
}

/// Counts the frames of both ports in the file.
fn count(file: &Path) -> (u32, u32) {
    let port = |port: u16| {
        let command = ["dump", "--count", "-r"];
        let mut dump = Command::new(env!("CARGO_BIN_EXE_fyke"));
        let output = dump.args(command).arg(file).arg(format!("udp dst port {port}")).output();
        // A file without its header has no frames yet.
        String::from_utf8_lossy(&output.unwrap().stdout).trim().parse().unwrap_or(0)
    };
    (port(KEPT), port(SOMETIMES))
}

/// Counts the same in a file that is being written.
fn count_so_far(file: &Path) -> (u32, u32) {
    if file.exists() { count(file) } else { (0, 0) }
}

/// Sends to both ports from before a program starts until it is stopped.
struct Sending(Arc<AtomicBool>);

impl Sending {
    fn start(world: &World) -> Sending {
        let over = Arc::new(AtomicBool::new(false));
        let flag = over.clone();
        let send = move || {
            let socket = UdpSocket::bind((net::client_address(0), 0)).unwrap();
            while !flag.load(Ordering::Relaxed) {
                for port in [KEPT, SOMETIMES] {
                    let _refused = socket.send_to(b"x", (net::server_address(0), port));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        world.clients.spawn("sending", send).unwrap();
        Sending(over)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts `fyke exec --stats --filter` with the port to keep, in the servers' network.
fn start(world: &World, control: &Path, program: &[&str]) -> Child {
    let filter = format!("udp dst port {KEPT}");
    let mut command = fyke(control, &["exec", "--stats", "--filter", &filter, "--"]);
    command.args(program).stdout(Stdio::piped()).stderr(Stdio::piped());
    world.servers.inside(move || command.spawn()).unwrap().unwrap()
}

fn ended(running: Child) -> (Output, String) {
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

fn installed(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        println!("skipped: {program} is not installed");
    }
    there
}

#[test]
fn whatever_starts_the_capture_only_filtered_frames_are_captured() {
    let Some(world) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    let _sending = Sending::start(&world);
    let device = net::SERVERS_DEVICE;
    let file = folder.path().join("out.pcap");
    let shown = file.display();
    let tcpdump = format!("tcpdump -Z root -U -ni {device} -w {shown} udp");
    let shell = format!("timeout -s INT 4 {tcpdump}; true");
    let capture = format!("tshark -q -a duration:4 -F pcap -i {device} -w {shown}");
    let mut programs = vec![
        vec!["bash", "-c", &shell],
        [vec!["timeout", "-s", "INT", "4"], tcpdump.split(' ').collect()].concat(),
    ];
    if installed("tshark") {
        programs.push(capture.split(' ').collect());
    }
    for program in programs {
        let (_, said) = ended(start(&world, &control, &program));
        let (kept, other) = count(&file);
        println!("{program:?}: {kept} kept, {other} of the other port\n{said}");
        assert!(kept > 100, "{said}");
        assert_eq!(other, 0, "no frame passes before the filter is there: {said}");
        std::fs::remove_file(&file).unwrap();
    }
}

/// An ordinary capture and a cooked one, with different link types, are edited at the same time.
#[test]
fn an_edit_is_for_all_sockets_of_all_descendants() {
    let Some(world) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    let files = ["one", "two"].map(|name| folder.path().join(name));
    let [one, two] = files.each_ref().map(|file| file.display());
    let device = net::SERVERS_DEVICE;
    let script = format!(
        "tcpdump -Z root -U -ni {device} -w {one} & tcpdump -Z root -U -ni any -w {two} & wait"
    );
    let running = start(&world, &control, &["bash", "-c", &script]);
    let pid = running.id().to_string();
    let _sending = Sending::start(&world);
    let both =
        |holds: &dyn Fn((u32, u32)) -> bool| files.iter().all(|file| holds(count_so_far(file)));
    assert!(becomes(|| both(&|(first, _)| first > 0)), "both capture: {}", alive("tcpdump").len());
    let before = files.each_ref().map(|file| count_so_far(file));
    let text = format!("udp dst port {SOMETIMES}");
    let edited = fyke(&control, &["ctl", "--pid", &pid, "set", &text]).output().unwrap();
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    // Frames that the first filter accepted wait in tcpdump's ring for a second at most, in the order of their arrival.
    assert!(becomes(|| both(&|(_, second)| second > 0)), "the edit reaches both");
    let middle = files.each_ref().map(|file| count_so_far(file));
    let more = |(file, middle): (&PathBuf, &(u32, u32))| count_so_far(file).1 > middle.1;
    assert!(becomes(|| files.iter().zip(&middle).all(more)), "and stays");
    signal("INT", running.id());
    let (_, said) = ended(running);
    let after = files.each_ref().map(|file| count(file));
    println!("{before:?} {middle:?} {after:?}\n{said}");
    for ((before, middle), after) in before.iter().zip(&middle).zip(&after) {
        assert!(before.0 > 0 && before.1 == 0, "the first filter: {before:?}");
        assert!(middle.1 > 0 && after.1 > middle.1, "the second: {middle:?} {after:?}");
        assert_eq!(middle.0, after.0, "and not the first any more");
    }
    assert!(said.contains("2 packet sockets"), "{said}");
}

#[test]
fn without_a_packet_socket_nothing_is_counted_and_all_say_so() {
    let Some(world) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    let running = start(&world, &control, &["bash", "-c", "sleep 4; exit 7"]);
    let pid = running.id().to_string();
    std::thread::sleep(Duration::from_secs(1));
    for action in ["show", "stats"] {
        let shown = fyke(&control, &["ctl", "--pid", &pid, action]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains("no packet socket has been opened"), "{action}: {shown}");
        assert!(!shown.contains("accepted") && !shown.contains("frames"), "{action}: {shown}");
    }
    let (output, said) = ended(running);
    assert_eq!(output.status.code(), Some(7), "the program's: {said}");
    assert!(said.contains("has not opened a packet socket yet"), "while it runs: {said}");
    assert!(said.contains("no packet socket has been opened"), "at the end: {said}");
}

/// Returns the processes with the mark in their command line.
fn alive(mark: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(mark))
        .collect()
}

/// Waits until a condition becomes true, however slow the machine is.
fn becomes(is_so: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn a_signal_to_us_alone_ends_all_that_was_started() {
    let Some(world) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    let device = net::SERVERS_DEVICE;
    let programs = [
        "tcpdump -Z nobody -ni DEVICE -w FILE",
        "tcpdump -Z nobody -ni DEVICE -w FILE; true",
        "trap '' INT TERM HUP; setpriv --reuid 65534 sleep 300 FILE 0 || sleep 301; true # FILE",
        "(setsid sh -c 'sleep 302; true # FILE' &) ; sleep 303; true # FILE",
    ];
    for (number, program) in programs.iter().enumerate() {
        for name in ["INT", "TERM", "HUP", "KILL"] {
            let file = folder.path().join(format!("mark-{number}-{name}"));
            let mark = file.display().to_string();
            let script = program.replace("FILE", &mark).replace("DEVICE", device);
            let running = start(&world, &control, &["bash", "-c", &script]);
            // The shell and its children, in addition to fyke itself.
            assert!(becomes(|| alive(&mark).len() > 1), "{script} runs");
            std::thread::sleep(Duration::from_millis(300));
            signal(name, running.id());
            let (_, said) = ended(running);
            assert!(becomes(|| alive(&mark).is_empty()), "{name}: {:?} {said}", alive(&mark));
        }
    }
}

/// SIGKILL of the guard: the program is killed, and fyke ends with the status of a killed program.
#[test]
fn a_guard_that_is_killed_takes_the_program_and_us_with_it() {
    let Some(world) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    let mark = folder.path().join("mark").display().to_string();
    let script = format!("trap '' INT TERM HUP; sleep 304; true # {mark}");
    let mut running = start(&world, &control, &["bash", "-c", &script]);
    // The shell, besides fyke and its guard, which have the mark in their command lines.
    assert!(becomes(|| alive(&mark).len() > 2), "{:?}", alive(&mark));
    let ours = running.id();
    let children = std::fs::read_to_string(format!("/proc/{ours}/task/{ours}/children")).unwrap();
    let [guard] = children.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("one child: {children}");
    };
    signal("KILL", guard.parse().unwrap());
    let start = Instant::now();
    while running.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let has_ended = running.try_wait().unwrap().is_some();
    let left = alive(&mark);
    for process in family(&mark) {
        signal("KILL", process);
    }
    let (output, said) = ended(running);
    assert!(has_ended, "we wait for a guard that is gone: {said}");
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(output.status.code(), Some(128 + 9), "{said}");
}

/// Numbers of the processes with the mark in their command line.
fn family(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let named = |number: &u32| {
        std::fs::read(format!("/proc/{number}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
    };
    numbers.filter(named).collect()
}

/// Thousands of sockets, calls with invalid pointers, and callers that are killed while they wait: the filter remains,
/// and its counts are exact.
#[test]
fn a_hostile_program_neither_gets_around_the_filter_nor_stops_it() {
    let Some(world) = possible() else { return };
    if !installed("python3") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    let script = include_str!("kernel_exec.py");
    let (output, said) = ended(start(&world, &control, &["python3", "-c", script]));
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{said}");
    assert!(output.status.success(), "{printed}{said}");
    // The loopback device shows 30 packets to the port when they are sent and when they arrive.
    assert!(printed.contains("after the race 60\n"), "{printed}{said}");
    assert!(printed.contains("received 60\n"), "{printed}{said}");
    assert!(said.contains("= 120 accepted"), "{said}");
}

#[test]
fn without_privilege_the_way_without_the_kernel_is_named() {
    let Some(_) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("fyke");
    std::fs::copy(env!("CARGO_BIN_EXE_fyke"), &copy).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", "--inh-caps=-all"]);
    let output = command.arg(&copy).args(["exec", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("fyke dump"), "{said}");
}

/// An unknown program keeps its own filter until the first edit: `show` and `stats` report this and do not count its
/// frames.
#[test]
fn who_judges_before_the_first_edit_is_said() {
    let Some(world) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("run");
    std::fs::create_dir(&control).unwrap();
    std::fs::set_permissions(&control, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let capture = format!("exec tcpdump -Z root -ni {} -w /dev/null tcp", net::SERVERS_DEVICE);
    let mut command = fyke(&control, &["exec", "--", "bash", "-c", &capture]);
    command.stderr(Stdio::piped());
    let running = world.servers.inside(move || command.spawn()).unwrap().unwrap();
    let pid = running.id().to_string();
    let ctl = |words: &[&str]| {
        let output = fyke(&control, &[&["ctl", "--pid", &pid], words].concat()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let own = "the program's own filter is used until the first edit; its frames are not counted\n";
    let said = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        ctl(&["show"]) == own
    });
    assert!(said, "{}", ctl(&["show"]));
    assert!(ctl(&["stats"]).contains(own), "{}", ctl(&["stats"]));
    let stats: serde_json::Value = serde_json::from_str(&ctl(&["--json", "stats"])).unwrap();
    assert_eq!(stats["own_filter"], serde_json::json!({ "text": null, "sockets": null }));
    // tcpdump has set its filter by now.
    std::thread::sleep(Duration::from_millis(1_500));
    ctl(&["set", "udp"]);
    assert!(ctl(&["show"]).starts_with("filter 1 "), "{}", ctl(&["show"]));
    let stats: serde_json::Value = serde_json::from_str(&ctl(&["--json", "stats"])).unwrap();
    assert_eq!(stats.get("own_filter"), None);
    stop(running);
}

/// Without a filter every frame would pass: the last one cannot be deleted, as in `fyke dump`, and the error names both
/// alternatives.
#[test]
fn the_last_filter_is_not_deleted() {
    if possible().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    let mut command = fyke(&control, &["exec", "--filter", "udp port 53", "--", "sleep", "60"]);
    let running = command.stderr(Stdio::piped()).spawn().unwrap();
    let pid = running.id().to_string();
    let ctl = |words: &[&str]| {
        let output = fyke(&control, &[&["ctl", "--pid", &pid], words].concat()).output().unwrap();
        let [error, out] = [&output.stderr, &output.stdout].map(|one| String::from_utf8_lossy(one));
        (output.status.code(), format!("{error}{out}"))
    };
    let start = Instant::now();
    while ctl(&["show"]).0 != Some(0) {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", ended(running).1);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, said) = ctl(&["del", "1"]);
    let both_ways = "`set ''` accepts everything, ending the capture stops it";
    assert!(status == Some(2) && said.contains(both_ways), "{status:?} {said}");
    assert!(ctl(&["show"]).1.contains("filter 1  udp port 53"));
    let added = ctl(&["add", "tcp"]);
    assert!(added.0 == Some(0) && ctl(&["del", "1"]).0 == Some(0), "{}", added.1);
    let shown = ctl(&["show"]).1;
    assert!(shown.contains("filter 2  tcp") && !shown.contains("filter 1 "), "{shown}");
    assert_eq!(ctl(&["set", ""]).0, Some(0));
    // An empty text that is added is a filter that accepts every frame, as in `fyke dump`.
    assert_eq!(ctl(&["add", ""]).0, Some(0));
    let shown = ctl(&["show"]).1;
    assert!(shown.contains("\nfilter 3 "), "{shown}");
    signal("TERM", running.id());
    ended(running);
}

/// Passes that are edited by hand are evaluated at the program's sockets, beside those of the texts, and stay when the
/// texts change.
#[test]
fn passes_are_edited_at_the_sockets_of_a_program() {
    let Some(world) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let control = control_folder(folder.path());
    let file = folder.path().join("out.pcap");
    let start = ["exec", "--stats", "--", "tcpdump", "-Z", "root", "-U", "-ni"];
    let mut command = fyke(&control, &start);
    command.arg(net::SERVERS_DEVICE).arg("-w").arg(&file).arg(format!("udp port {KEPT}"));
    command.stderr(Stdio::piped());
    let running = world.servers.inside(move || command.spawn()).unwrap().unwrap();
    let pid = running.id().to_string();
    wait_for_filter(&control, &pid);
    let ctl = |words: &[&str]| {
        let output = fyke(&control, &[&["ctl", "--pid", &pid], words].concat()).output().unwrap();
        let [error, out] = [&output.stderr, &output.stdout].map(|one| String::from_utf8_lossy(one));
        (output.status.code(), format!("{error}{out}"))
    };
    let sent = |packets| world.clients.spawn("sender", move || send(packets)).unwrap().join();
    sent(10).unwrap().unwrap();
    std::thread::sleep(FIRST_BLOCK);
    let sometimes = format!("add 1 {SOMETIMES}");
    let calls = ["new", "select 0 ether-ip-udp-nonfrag", "select 1 port-dst", &sometimes];
    let (status, said) = ctl(&[&["pass"], &calls[..]].concat());
    assert!(status == Some(0) && said.contains("epoch 2"), "{said}");
    let shown = ctl(&["show"]).1;
    let line = shown.lines().find(|line| line.contains(&format!("port = {SOMETIMES}")));
    let line = line.unwrap_or_else(|| panic!("no pass by hand: {shown}"));
    let id = line.split_whitespace().nth(1).unwrap().to_owned();
    sent(100).unwrap().unwrap();
    let until = |expected: (u32, u32)| {
        assert!(becomes(|| count_so_far(&file) == expected), "{:?}", count_so_far(&file));
    };
    until((110, 100));
    // Another value; the calls are one edit, and those that are refused change nothing.
    let (status, said) = ctl(&["pass", &format!("remove {id}.1 {SOMETIMES}"), "del 999"]);
    assert!(status == Some(2) && said.contains("999"), "{said}");
    let (status, said) = ctl(&["pass", "dup 1", &format!("del {id}"), "del 1"]);
    assert!(status == Some(2) && said.contains("is not one that was made by hand"), "{said}");
    let (status, said) = ctl(&["pass", "--node", "x", "new"]);
    assert!(status == Some(2) && said.contains("fyke exec has one filter"), "{said}");
    sent(100).unwrap().unwrap();
    until((210, 200));
    let change = [&format!("add {id}.1 {}", SOMETIMES + 1), &format!("remove {id}.1 {SOMETIMES}")];
    assert_eq!(ctl(&["pass", change[0], change[1]]).0, Some(0));
    // A text that is replaced leaves the pass, and without a text it alone accepts frames.
    assert_eq!(ctl(&["set", ""]).0, Some(0));
    sent(100).unwrap().unwrap();
    assert_eq!(ctl(&["add", &format!("udp port {KEPT}")]).0, Some(0));
    sent(100).unwrap().unwrap();
    until((310, 200));
    let (status, said) = ctl(&["undo", "2"]);
    assert!(status == Some(2) && said.contains("epoch 2 edited passes by hand"), "{said}");
    assert!(ctl(&["log"]).1.contains(", 4 calls on passes"), "{}", ctl(&["log"]).1);
    let stats = ctl(&["stats"]).1;
    assert!(stats.contains("by hand: 200 passes edited by hand"), "{stats}");
    // What the removed passes have accepted stays in the counts.
    assert_eq!(ctl(&["pass", &format!("del {id}")]).0, Some(0));
    let said = stop(running);
    // Those of the pass and of the first text: with the text that is in force, all that were accepted.
    assert!(said.contains("  frames of filters that have been removed: 410"), "{said}");
    assert!(said.contains(": 100 udp port 7001") && said.contains(" 510 accepted"), "{said}");
    assert!(said.contains("0 packets dropped by kernel"), "{said}");
}
