//! A capture without frames sleeps, and still answers at once; one under load answers with counts of now; the error of
//! one that may not open enough files names the limit. The built command on a real interface, in namespaces of its own.
//! Needs root.

mod common;

use common::{FYKE, Running, inside, send, send_while, veth};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Number of workers, more than processors.
const WORKERS: u64 = 16;

/// Times that all threads of a process have slept so far.
fn sleeps(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_thread = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks.filter_map(of_thread).sum()
}

/// Starts a capture of `v1` with workers, after the frames of the set-up of the interfaces.
fn start(workers: u64) -> Running {
    let mut command = Command::new(FYKE);
    let words = ["dump", "-n", "-i", "v1", "-w", "/dev/null", "--workers"];
    command.args(words).arg(workers.to_string());
    let dump = Running::start(command.stdout(Stdio::null()));
    dump.hear("listening on");
    dump.settle(0);
    std::thread::sleep(Duration::from_millis(700));
    dump
}

/// A wake-up every 20 ms would be a hundred for each thread.
#[test]
fn quiet_workers_sleep_and_frames_and_requests_wake_them() {
    if !inside("quiet_workers_sleep_and_frames_and_requests_wake_them") {
        return;
    }
    veth();
    let mut dump = start(WORKERS);
    let before = sleeps(dump.child.id());
    std::thread::sleep(Duration::from_secs(2));
    let wakes = sleeps(dump.child.id()) - before;
    assert!(wakes < 20 * (WORKERS + 2), "{wakes} wake-ups in two seconds without frames");
    for round in 1..=3 {
        send(1_000, 30);
        dump.settle(1_000 * round);
        // Longer than the time after which they rest.
        std::thread::sleep(Duration::from_millis(500));
    }
    dump.signal("INT");
    assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
    assert_eq!((dump.sum().seen, dump.sum().accepted), (3_000, 3_000));
}

/// Number of frames in the answer to `ctl stats`.
fn seen(dump: &Running) -> u64 {
    let stats = dump.ctl(&["stats"]);
    let words: Vec<_> = stats.split_whitespace().collect();
    let at = words.windows(2).position(|pair| pair == ["seen", "="]).unwrap();
    words[at - 1].parse().unwrap()
}

/// Counts of busy workers are at most 0.2 s old, in most attempts (the machine may be busy), and exact once the sender
/// has stopped.
#[test]
fn counts_of_busy_workers_are_those_of_now() {
    if !inside("counts_of_busy_workers_are_those_of_now") {
        return;
    }
    veth();
    let mut dump = start(2);
    let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let all = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            send_while(u64::MAX, 30, || {
                let number = sent.fetch_add(1, Ordering::Relaxed);
                if number.is_multiple_of(100) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                !stop.load(Ordering::Relaxed)
            })
        });
        let mut fresh = 0;
        for _ in 0..60 {
            let before = sent.load(Ordering::Relaxed).saturating_sub(1);
            std::thread::sleep(Duration::from_millis(200));
            fresh += u32::from(seen(&dump) >= before);
            if fresh == 10 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let all = sender.join().unwrap();
        assert_eq!(fresh, 10, "of 60 answers");
        all
    });
    dump.settle(all);
    dump.signal("INT");
    assert_eq!(dump.end().code(), Some(0), "{}", dump.said());
    assert_eq!((dump.sum().seen, dump.sum().lost), (all, 0), "{}", dump.said());
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
