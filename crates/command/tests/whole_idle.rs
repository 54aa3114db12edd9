//! Captures without frames: their threads sleep, and still answer at once. What a capture says that may not open enough
//! files. The built command on a real interface, in namespaces of its own. Needs root.

mod common;

use common::{FYKE, Running, folder, inside, send, veth};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Number of workers, more than processors.
const WORKERS: u64 = 12;

/// Times that the threads of a process with this name have slept so far.
fn sleeps(pid: u32, thread: &str) -> Vec<u64> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let named = tasks.filter(|task| read(task.path().join("comm")).starts_with(thread));
    let of_thread = |task: std::fs::DirEntry| {
        let status = read(task.path().join("status"));
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    named.map(of_thread).collect()
}

/// Every sleep ends with a wake-up: at most some in a second for each thread, whatever the machine does meanwhile.
#[test]
fn quiet_workers_sleep_and_frames_and_requests_wake_them() {
    if !inside("quiet_workers_sleep_and_frames_and_requests_wake_them") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let (file, workers) = (at("out.pcapng"), WORKERS.to_string());
    let mut command = Command::new(FYKE);
    let words = ["dump", "-n", "-i", "v1", "-w", file.to_str().unwrap(), "--workers", &workers];
    let mut dump = Running::start(command.args(words).stdout(Stdio::null()));
    dump.hear("listening on");
    dump.settle(0);
    // Frames of the set-up of the interfaces are over.
    std::thread::sleep(Duration::from_millis(700));
    let before: u64 = sleeps(dump.child.id(), "graph").iter().sum();
    std::thread::sleep(Duration::from_secs(2));
    let after = sleeps(dump.child.id(), "graph");
    assert_eq!(after.len() as u64, WORKERS);
    let wakes = (after.iter().sum::<u64>() - before) / WORKERS;
    assert!(wakes < 40, "a worker wakes up {wakes} times in two seconds without frames");
    send(1_000, 30);
    dump.settle(1_000);
    dump.signal("INT");
    assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
    assert_eq!((dump.sum().seen, dump.sum().accepted), (1_000, 1_000));
}

#[test]
fn a_capture_that_may_not_open_enough_files_names_the_limit() {
    if !inside("a_capture_that_may_not_open_enough_files_names_the_limit") {
        return;
    }
    veth();
    for limit in ["6", "10", "14"] {
        let words = format!("ulimit -n {limit}; exec \"$0\" dump -n -i v1 -w /dev/null");
        let mut command = Command::new("bash");
        let mut dump = Running::start(command.args(["-c", &words, FYKE]).stdout(Stdio::null()));
        assert_eq!(dump.end().code(), Some(1), "{}", dump.said());
        let said = dump.said();
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(&format!("may have {limit} files")), "{said}");
        assert!(last.contains("ulimit -n") && last.contains("LimitNOFILE"), "{said}");
    }
}
