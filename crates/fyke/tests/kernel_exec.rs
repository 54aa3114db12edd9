//! `fyke exec -- tcpdump`: the real tcpdump, unmodified, its filter edited while it captures, and no packet lost.

use fyke_lab::net::{self, World, WorldError};
use fyke_testkit::skip::unless_missing;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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

/// Whether everything is there; prints what is not.
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

/// `-i any`: the socket hands packets over without a link header. The texts compute, and one has thousands of passes.
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
    let control = folder.path().join("run");
    std::fs::create_dir(&control).unwrap();
    std::fs::set_permissions(&control, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
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

/// Ends tcpdump as Ctrl-C would, and returns what was said on standard error.
fn stop(running: Child) -> String {
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let children = std::fs::read_to_string(children).unwrap();
    for child in children.split_whitespace() {
        Command::new("kill").args(["-INT", child]).status().unwrap();
    }
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// Frames of both ports in the file.
fn count(file: &Path) -> (u32, u32) {
    let port = |port: u16| {
        let command = ["dump", "--count", "-r"];
        let mut dump = Command::new(env!("CARGO_BIN_EXE_fyke"));
        let output = dump.args(command).arg(file).arg(format!("udp dst port {port}")).output();
        String::from_utf8_lossy(&output.unwrap().stdout).trim().parse().unwrap()
    };
    (port(KEPT), port(SOMETIMES))
}

/// A program that is not known to us keeps its filter until the first edit: `show` and `stats` say so and count none of
/// its frames.
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
    let own = "the program's own filter judges until the first edit; its frames are not counted\n";
    let said = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        ctl(&["show"]) == own
    });
    assert!(said, "{}", ctl(&["show"]));
    assert!(ctl(&["stats"]).contains(own), "{}", ctl(&["stats"]));
    let stats: serde_json::Value = serde_json::from_str(&ctl(&["--json", "stats"])).unwrap();
    assert_eq!(stats["own_filter"], serde_json::json!({ "text": null, "sockets": null }));
    // tcpdump has set its filter by then.
    std::thread::sleep(Duration::from_millis(1_500));
    ctl(&["set", "udp"]);
    assert!(ctl(&["show"]).starts_with("filter 1 "), "{}", ctl(&["show"]));
    let stats: serde_json::Value = serde_json::from_str(&ctl(&["--json", "stats"])).unwrap();
    assert_eq!(stats.get("own_filter"), None);
    stop(running);
}
