//! Shared parts of the tests of `fyke rules`: scripts with an interface that has rules, and the files that they leave.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::Path;
use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Functions for the scripts.
const FUNCTIONS: &str = r#"
    set -eu
    veth
    owned() { wait_for "$FYKE" rules far list; }
    refuse() { set +e; "$FYKE" rules "$@" 2>> refused; echo "$? $*" >> status; set -e; }
    listens() { grep -q "listening on" "$1"; }
"#;

/// Writes frames to two UDP ports, 100 of each, in turn.
fn frames(folder: &Path) {
    let frame = |port| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, port);
        packet.payload(&[7; 30]).build()
    };
    let frames: Vec<_> = (0..200).map(|n| frame(5001 + n % 2)).collect();
    std::fs::write(folder.join("frames.pcap"), pcap::file(1, &frames)).unwrap();
}

/// Runs a script as root; `None` if the machine does not permit it.
pub fn run(folder: &Path, script: &str) -> Option<()> {
    run_with(folder, script, |script| script)
}

/// The same with other settings of the script.
pub fn run_with(folder: &Path, script: &str, set: impl Fn(Script) -> Script) -> Option<()> {
    frames(folder);
    let script = format!("{FUNCTIONS}{script}");
    let output = set(Script::new(FYKE, folder).as_root()).run(&script)?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if told.contains("needs root or CAP_BPF") {
        println!("skipped: {told}");
        return None;
    }
    let logs = ["owner.log", "log", "log2"].map(|name| read(folder, name)).join("\n");
    assert!(output.status.success(), "{told}\n{logs}");
    Some(())
}

pub fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default()
}

pub fn count(folder: &Path, file: &str, expression: &str) -> u32 {
    let file = folder.join(file);
    let arguments = ["dump", "--count", "-r", file.to_str().unwrap(), expression];
    let output = Command::new(FYKE).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// Checks the exit statuses that a script has recorded, and the reasons of its refusals.
pub fn check_refusals(folder: &Path, statuses: &str, reasons: &[&str]) {
    let refused = read(folder, "refused");
    for reason in reasons {
        assert!(refused.contains(reason), "{reason}\n{refused}");
    }
    let status = read(folder, "status");
    assert_eq!(status.lines().map(|line| &line[..1]).collect::<String>(), statuses, "{status}");
}
