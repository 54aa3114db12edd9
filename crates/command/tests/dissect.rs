//! `fyke dump --dissect`: accepted frames as tshark prints them.

mod common;

use common::{FYKE, Running, folder, inside, send, veth};
use std::process::{Command, Stdio};

fn tshark() -> bool {
    let found = Command::new("tshark").arg("-v").stderr(Stdio::null()).output().is_ok();
    if !found {
        println!("skipped: no tshark");
    }
    found
}

/// Lines without times, which have nanoseconds only in one of the two.
fn without_times(text: &[u8]) -> Vec<String> {
    let words = |line: &str| {
        let mut words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        words.remove(1);
        words.join(" ")
    };
    String::from_utf8_lossy(text).lines().map(words).collect()
}

fn dump(words: &[&str]) -> std::process::Output {
    Command::new(FYKE).arg("dump").args(words).output().unwrap()
}

#[test]
fn accepted_frames_are_dissected_in_their_order() {
    if !tshark() {
        return;
    }
    let corpus = fyke_testkit::corpus::Corpus::open();
    let path = corpus.own("tcp-streams").join("everything-0.pcap");
    let path = path.to_str().unwrap();
    let theirs = Command::new("tshark").args(["-n", "-t", "a", "-r", path]).output().unwrap();
    let ours = dump(&["-nr", path, "--dissect"]);
    assert!(ours.status.success(), "{ours:?}");
    assert!(without_times(&ours.stdout).len() > 50);
    assert_eq!(without_times(&ours.stdout), without_times(&theirs.stdout));
    // Frames that the filter rejects do not reach it, and -w gets the same ones.
    let (_folder, at) = folder();
    let file = at("accepted.pcap");
    let file = file.to_str().unwrap();
    let few = dump(&["-nr", path, "--dissect", "-w", file, "-c", "5", "tcp[13] & 2 = 0"]);
    let whole = Command::new("tshark").args(["-n", "-t", "a", "-r", file]).output().unwrap();
    assert!(few.status.success(), "{few:?}");
    assert_eq!(without_times(&few.stdout), without_times(&whole.stdout));
    assert_eq!(without_times(&few.stdout).len(), 5);
    let details = dump(&["-nr", path, "--dissect", "-v", "-c", "1"]);
    assert!(String::from_utf8_lossy(&details.stdout).contains("Transmission Control Protocol"));
}

#[test]
fn a_missing_tshark_and_a_reader_that_leaves_are_no_surprise() {
    let corpus = fyke_testkit::corpus::Corpus::open();
    let path = corpus.own("tcp-streams").join("everything-0.pcap");
    let mut command = Command::new(FYKE);
    command.args(["dump", "--dissect", "-r"]).arg(&path).env("PATH", "/nowhere");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--dissect needs tshark") && said.contains("apt install"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    if !tshark() {
        return;
    }
    let script =
        format!("set -o pipefail; {FYKE} dump --dissect -r {} | head -n 1", path.display());
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_live_capture_is_dissected_while_it_runs_and_without_rights() {
    if !tshark() || !inside("a_live_capture_is_dissected_while_it_runs_and_without_rights") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let (lines, script) = (at("lines"), std::fs::File::create(at("lines")).unwrap());
    let mut running = Running::dump(&["-n", "--dissect", "udp port 5001"], script.into());
    let of_child = format!("pgrep -P {} tshark", running.child.id());
    let child = Command::new("sh").args(["-c", &of_child]).output().unwrap();
    let child = String::from_utf8_lossy(&child.stdout).trim().to_owned();
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    let capabilities = status.lines().find(|line| line.starts_with("CapEff:")).unwrap();
    assert!(capabilities.ends_with("0000000000000000"), "{status}");
    send(100, 100);
    let printed = || std::fs::read_to_string(&lines).unwrap().lines().count();
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while printed() < 50 {
        assert!(std::time::Instant::now() < limit, "{} lines: {}", printed(), running.said());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost, printed()), (100, 50, 0, 50));
}
