//! A capture without frames sleeps, and still answers at once; the error of one that may not open enough files names
//! the limit. The built command on a real interface, in namespaces of its own. Needs root.

mod common;

use common::{FYKE, Running, inside, send, veth};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Times that the main thread of a process has slept so far.
fn sleeps(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// Every sleep ends with a wake-up: at most some in a second, whatever the machine does meanwhile.
#[test]
fn a_quiet_capture_sleeps_and_frames_and_requests_wake_it() {
    if !inside("a_quiet_capture_sleeps_and_frames_and_requests_wake_it") {
        return;
    }
    veth();
    let mut command = Command::new(FYKE);
    let words = ["dump", "-n", "-i", "v1"];
    let mut dump = Running::start(command.args(words).stdout(Stdio::null()));
    dump.hear("listening on");
    dump.settle(0);
    // Frames of the set-up of the interfaces are over.
    std::thread::sleep(Duration::from_millis(700));
    let before = sleeps(dump.child.id());
    std::thread::sleep(Duration::from_secs(2));
    let wakes = sleeps(dump.child.id()) - before;
    assert!(wakes < 60, "it wakes up {wakes} times in two seconds without frames");
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
