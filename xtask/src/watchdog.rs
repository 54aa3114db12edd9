//! Ends a test program that hangs, so that a run names it and continues with the others.
//!
//! cargo starts one program at a time. A program hangs if it is the same one for five minutes and prints no line:
//! libtest prints a line for each test that ends, and one for a test that runs for over a minute.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest silence of a test program.
pub const SILENCE: Duration = Duration::from_secs(300);

/// Watches the programs that one process starts, until it is dropped.
pub struct Watchdog {
    lines: Arc<AtomicU64>,
    ended: Arc<Mutex<Vec<String>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches the children of the process `parent`.
    pub fn start(parent: u32, silence: Duration) -> Watchdog {
        let (lines, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (stop, stopped) = channel();
        let (seen, names) = (Arc::clone(&lines), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            let mut state = (Vec::new(), 0);
            let mut since = Instant::now();
            while stopped.recv_timeout(silence / 20) == Err(RecvTimeoutError::Timeout) {
                let now = (children(parent), seen.load(Ordering::Relaxed));
                if now != state {
                    (state, since) = (now, Instant::now());
                } else if since.elapsed() >= silence {
                    for child in &state.0 {
                        let name = name_of(*child);
                        eprintln!("{name}: no line for {} s; it is ended", silence.as_secs());
                        let _ = Command::new("kill").args(["-9", &child.to_string()]).status();
                        names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                    }
                    since = Instant::now();
                }
            }
        });
        Watchdog { lines, ended, stop: Some(stop), thread: Some(thread) }
    }

    /// Tells that a line was read.
    pub fn line(&self) {
        self.lines.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops watching; returns the names of the programs that it ended.
    pub fn stop(mut self) -> Vec<String> {
        self.join();
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn join(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.join();
    }
}

/// The processes that a process has started itself.
fn children(parent: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let mut all: Vec<u32> = lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
        })
        .collect();
    all.sort_unstable();
    all
}

fn name_of(process: u32) -> String {
    let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("{name} (process {process})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    #[test]
    fn a_silent_program_is_ended_and_one_that_prints_is_not() {
        let script = "for i in 1 2 3 4 5 6 7 8; do echo line; sleep 0.25; done & wait; sleep 600; echo after";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::start(shell.id(), Duration::from_secs(1));
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let lines: Vec<String> = lines.map(Result::unwrap).inspect(|_| watchdog.line()).collect();
        assert_eq!(lines.len(), 9, "{lines:?}");
        assert!(shell.wait().unwrap().success());
        let ended = watchdog.stop();
        assert!(ended.len() == 1 && ended[0].starts_with("sleep"), "{ended:?}");
    }
}
