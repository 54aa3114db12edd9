//! The state of another process, for errors that tell what to do.
//!
//! A process in another PID namespace looks like one that has ended, so only a connection that is closed already is
//! explained by that. Cost: one read of `/proc/PID/stat`.

use rustix::process::Pid;

/// The letter of a process in `/proc/PID/stat`; `None` if there is no such process.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in brackets, may have brackets and spaces.
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// True if no process has this id.
pub(crate) fn is_gone(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
}

/// True if no process of this id runs; one that waits for its parent has ended, too.
pub(crate) fn has_ended(pid: u32) -> bool {
    is_gone(pid) || matches!(state(pid), Some('Z' | 'X'))
}

/// Advice about a stopped process; `None` for one that runs.
pub(crate) fn stopped(pid: u32) -> Option<String> {
    let is_stopped = matches!(state(pid), Some('T' | 't'));
    is_stopped.then(|| format!(": it is stopped; `kill -CONT {pid}` continues it"))
}

/// Advice about a process that does not answer; begins with a separator, and is empty if there is none.
pub(crate) fn advice(pid: Option<u32>) -> String {
    let Some(pid) = pid else { return String::new() };
    let ended = || has_ended(pid).then_some(": it has ended; `fyke ctl list` shows those that run");
    let other = || ended().unwrap_or(": it is busy, or waits for a disk; try again").to_owned();
    stopped(pid).unwrap_or_else(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_runs_then_stops_then_ends() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let kill = |signal: &str| {
            let killed = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
            assert!(killed.success());
        };
        let wait = |done: &dyn Fn() -> bool| {
            let limit = Instant::now() + Duration::from_secs(20);
            while !done() {
                assert!(Instant::now() < limit, "{:?}", state(pid));
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        assert!(!has_ended(pid) && advice(Some(pid)).contains("busy"));
        kill("-STOP");
        wait(&|| advice(Some(pid)).contains(&format!("kill -CONT {pid}")));
        kill("-KILL");
        wait(&|| has_ended(pid));
        assert!(advice(Some(pid)).contains("has ended"));
        child.wait().unwrap();
        assert!(has_ended(pid) && has_ended(u32::MAX));
        assert_eq!(advice(None), "");
    }
}
