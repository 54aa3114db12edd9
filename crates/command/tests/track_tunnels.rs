//! `fyke track` of each protocol inside VLANs, MPLS, GTP and VXLAN: all frames of a conversation are captured, and
//! those of others are not.

#[path = "../../track/tests/samples/mod.rs"]
mod samples;

use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use samples::{By, at, build, says};
use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Headers before the IP header of a conversation, by name; true if `--scoped` is needed.
type Wrapping = (&'static str, bool, fn() -> Packet);

fn outer() -> Packet {
    Packet::ethernet().ipv4([192, 0, 2, 1], [192, 0, 2, 2])
}

const WRAPPINGS: [Wrapping; 7] = [
    ("nothing", false, Packet::ethernet),
    ("VLAN", false, || Packet::ethernet().vlan(5)),
    ("QinQ", false, || Packet::ethernet().qinq(7).vlan(5)),
    ("MPLS", false, || Packet::ethernet().mpls(100)),
    ("two MPLS labels", false, || Packet::ethernet().mpls(100).mpls(101)),
    ("GTP", true, || outer().gtpu(7)),
    ("VXLAN", true, || outer().vxlan(7).ether()),
];

#[test]
fn each_tracker_follows_its_protocol_in_every_encapsulation() {
    let mut wrong = Vec::new();
    for sample in samples::all() {
        for (name, needs_scope, begin) in WRAPPINGS {
            for scoped in [false, true] {
                // With `--scoped` a filter reads the innermost packet, which a tunnel of PPTP is not.
                let is_inside = sample.protocol == "pptp" && scoped;
                if needs_scope && !scoped || is_inside {
                    continue;
                }
                if let Err(problem) = track(&sample, begin, scoped) {
                    wrong
                        .push(format!("{} in {name}, scoped {scoped}: {problem}", sample.protocol));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tracks a conversation with frames of others after it; `Err` if other frames than those of the conversation were
/// captured.
fn track(sample: &samples::Sample, begin: fn() -> Packet, scoped: bool) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut sent = sample.sent.clone();
    let stranger = [10, 0, 0, 77];
    sent.push(says(By::Udp, at(stranger, 30_001), at([10, 0, 0, 78], 30_000), b"other"));
    sent.push(says(By::Tcp, at(stranger, 30_001), at([10, 0, 0, 78], 30_000), b"other"));
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &build(&sent, &begin))).unwrap();
    let mut command = Command::new(FYKE);
    let args = ["track", "-Z", "root", sample.protocol, "-r", "in.pcap", "-w", "out.pcap"];
    command.args(args).args(scoped.then_some("--scoped")).current_dir(folder.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(said);
    }
    let count = Command::new(FYKE)
        .args(["dump", "--count", "-r", "out.pcap"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let kept = String::from_utf8_lossy(&count.stdout).trim().to_owned();
    if kept == sample.sent.len().to_string() {
        return Ok(());
    }
    Err(format!("{kept} frames instead of {}: {said}", sample.sent.len()))
}
