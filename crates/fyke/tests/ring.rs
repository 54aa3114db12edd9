//! Rings end to end: one process dispatches to two rings, two others read them, and all frames are accounted for.

use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn dump(ring: &Path, out: &Path) -> Child {
    let name = format!("ring:{}", ring.display());
    let mut command = Command::new(FYKE);
    command.args(["dump", "-U", "-i", &name, "-w"]).arg(out);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn what_a_demux_puts_into_rings_other_processes_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let packet = |port| {
        Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, port).payload(&[7; 30]).build()
    };
    let frames: Vec<Vec<u8>> = (0..3000).map(|number| packet(50 + number % 5)).collect();
    let file = pcap::file(1, &frames);
    let mut demux = Command::new(FYKE)
        .args(["demux", "-r", "-"])
        .arg(format!("udp => ring:{}", at("all").display()))
        .arg(format!("port 53 => ring:{}", at("some").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = demux.stdin.take().unwrap();
    // The header alone opens the source; the frames wait until both readers are there.
    input.write_all(&file[..24]).unwrap();
    input.flush().unwrap();
    until("the rings are published", || at("all").exists() && at("some").exists());
    let mut readers = [("all", "all.pcapng"), ("some", "some.pcapng")]
        .map(|(ring, out)| dump(&at(ring), &at(out)));
    until("both readers write", || at("all.pcapng").exists() && at("some.pcapng").exists());
    input.write_all(&file[24..]).unwrap();
    drop(input);
    assert!(demux.wait().unwrap().success());
    for reader in &mut readers {
        assert!(reader.wait().unwrap().success());
    }
    for (out, count) in [("all.pcapng", "3000\n"), ("some.pcapng", "600\n")] {
        let counted = Command::new(FYKE).args(["dump", "--count", "-r"]).arg(at(out)).output();
        assert_eq!(String::from_utf8_lossy(&counted.unwrap().stdout), count, "{out}");
    }
    assert!(!at("all").exists(), "the socket is gone with its writer");
    let nobody = Command::new(FYKE).args(["dump", "-i", "ring:/nowhere/at/all"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1));
}

/// A writer that is killed closes nothing: its reader has all that was written, says so and fails.
#[test]
fn the_reader_of_a_writer_that_was_killed_fails() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let file = pcap::file(1, &vec![packet; 100]);
    let mut demux = Command::new(FYKE)
        .args(["demux", "-r", "-"])
        .arg(format!("udp => ring:{}", at("ring").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = demux.stdin.take().unwrap();
    input.write_all(&file[..24]).unwrap();
    input.flush().unwrap();
    until("the ring is published", || at("ring").exists());
    let reader = Command::new(FYKE)
        .args(["dump", "-U", "-i"])
        .arg(format!("ring:{}", at("ring").display()))
        .arg("-w")
        .arg(at("out.pcap"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the reader writes", || at("out.pcap").exists());
    input.write_all(&file[24..]).unwrap();
    input.flush().unwrap();
    let whole = 24 + 100 * (file.len() as u64 - 24) / 100;
    let size = || std::fs::metadata(at("out.pcap")).map_or(0, |file| file.len());
    until("the frames are written", || size() >= whole);
    demux.kill().unwrap();
    demux.wait().unwrap();
    let output = reader.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("its writer has ended without closing the ring"), "{said}");
    assert!(said.contains("100 seen = 100 accepted"), "{said}");
}
