//! Sums of runs on a full disk: the sum, the rows of graphs and nodes, and the files have the same numbers, whatever
//! comes after the file or beside it. The built command on a real interface, in namespaces of its own.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, send, tool, veth};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Mounts a small disk in a folder.
fn disk(folder: &Path) -> PathBuf {
    let disk = folder.join("disk");
    std::fs::create_dir(&disk).unwrap();
    tool(&format!("mount -t tmpfs -o size=256k none {}", disk.display()));
    disk
}

/// Returns the numbers of the row of a node: arrived, passed, rejected, lost.
fn row(said: &str, name: &str) -> [u64; 4] {
    let line = said.lines().find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no row of {name} in: {said}"));
    let words: Vec<&str> = line.trim_end_matches(';').split_whitespace().collect();
    ["arrived", "passed", "rejected", "lost"].map(|what| {
        let at = words.iter().position(|word| word.trim_end_matches(';') == what).unwrap();
        words[at - 1].parse().unwrap()
    })
}

fn start(graphs: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["run", "--stats"]).args(graphs).stdout(Stdio::null());
    let running = Running::start(&mut command);
    running.hear("running");
    send(3_000, 100);
    running
}

fn run(graphs: &[&str]) -> Running {
    let mut running = start(graphs);
    running.signal("INT");
    assert_eq!(running.end().code(), Some(1), "{}", running.said());
    running
}

/// Asks a running command for its counts.
fn stats_of(running: &Running) -> Value {
    let mut command = Command::new(FYKE);
    command.args(["ctl", "--pid", &running.child.id().to_string(), "--json", "stats"]);
    let output = command.env("FYKE_RUNTIME_DIR", common::runtime()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {output:?}"))
}

#[test]
fn frames_that_a_full_disk_did_not_take_do_not_go_on() {
    if !inside("frames_that_a_full_disk_did_not_take_do_not_go_on") {
        return;
    }
    veth();
    let (folder, at) = folder();
    let disk = disk(folder.path());
    let (a, b) = (disk.join("a.pcap"), at("b.pcap"));
    let chain = format!("(device,v1) > (filter,udp) > {{a}}(tofile,{})", a.display());
    // A counter after it, then another file.
    for then in ["{n}(packetcount)".to_owned(), format!("{{n}}(tofile,{})", b.display())] {
        let running = run(&[&format!("{chain} > {then}")]);
        let (sum, said) = (running.sum(), running.said());
        let written = frames_of(&a);
        let [arrived, passed, rejected, lost] = row(&said, "a");
        assert!(lost > 0 && written > 100, "{said}");
        assert_eq!((passed, rejected, arrived), (written, 0, written + lost), "{said}");
        let next = row(&said, "n");
        assert_eq!(next[0], written, "{said}");
        assert_eq!((sum.accepted, sum.lost), (next[1], lost + next[3]), "{said}");
        if b.exists() {
            assert_eq!(next[1], frames_of(&b), "{said}");
            std::fs::remove_file(&b).unwrap();
        }
        std::fs::remove_file(&a).unwrap();
    }
    tool(&format!("umount {}", disk.display()));
}

#[test]
fn a_frame_that_one_of_several_outputs_did_not_take_is_lost() {
    if !inside("a_frame_that_one_of_several_outputs_did_not_take_is_lost") {
        return;
    }
    veth();
    let (folder, at) = folder();
    let disk = disk(folder.path());
    let (full, other) = (disk.join("a.pcap"), at("b.pcap"));
    let first = format!("(device,v1) > {{a}}(tofile,{})", full.display());
    let second = format!("(device,v1) > {{b}}(tofile,{})", other.display());
    let mut running = start(&[&first, &second]);
    // The rows of the graphs, while the second one still runs.
    let begun = Instant::now();
    let counts = loop {
        let stats = stats_of(&running);
        let accepted = |at: usize| stats["filters"][at]["accepted"].as_u64().expect("a count");
        if accepted(1) >= 3_000 {
            break [accepted(0), accepted(1)];
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{stats}");
        std::thread::sleep(Duration::from_millis(50));
    };
    running.signal("INT");
    assert_eq!(running.end().code(), Some(1), "{}", running.said());
    let (sum, said) = (running.sum(), running.said());
    let written = frames_of(&full);
    assert_eq!(frames_of(&other), sum.seen, "{said}");
    assert_eq!(counts, [written, sum.seen], "{said}");
    assert_eq!(row(&said, "b"), [sum.seen, sum.seen, 0, 0], "{said}");
    assert_eq!(row(&said, "a"), [sum.seen, written, 0, sum.seen - written], "{said}");
    assert_eq!((sum.accepted, sum.lost), (written, sum.seen - written), "{said}");
    std::fs::remove_file(&full).unwrap();
    // A frame that is printed and not in the file is lost.
    let words = ["-nq", "--print", "-w", full.to_str().unwrap()];
    let mut dump = Running::dump(&words, Stdio::null());
    send(3_000, 100);
    assert_eq!(dump.end().code(), Some(1), "{}", dump.said());
    let (sum, said) = (dump.sum(), dump.said());
    assert_eq!(sum.accepted, frames_of(&full), "{said}");
    assert!(sum.lost > 0 && said.contains(&format!("{} frames lost here", sum.lost)), "{said}");
    tool(&format!("umount {}", disk.display()));
}
