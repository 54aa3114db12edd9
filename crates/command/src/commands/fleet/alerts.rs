//! Rules of an IDS over a capture file of an archive: this program again, in a process with its sandbox.
//!
//! The rules are at the end of the job's graph, `… > {rules}(ids, …)`. They are read from memory of the worker. The
//! process prints alerts as they come, a line each, and they are added up here; so a file may have any number of them.

use super::archive::{counts, reason};
use crate::commands::Failure;
use anyhow::Context;
use fyke_fleet::rules::{Alert, MAX_BYTES, Rules};
use fyke_fleet::worker::Judged;
use fyke_graph::language::quoted;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most rules with alerts in the row of a file.
pub const MOST: usize = 1_000;
/// Most rules of which alerts are counted while a file is read.
const MAX_RULES: usize = 100_000;
/// Most bytes of a line, and of standard error.
const MAX_LINE: u64 = 1 << 20;
/// Time between two looks at the reason to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Reads files of rules, one after the other.
pub fn read(files: &[PathBuf]) -> Result<Rules, Failure> {
    let mut text = Vec::new();
    for path in files {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("--rules {shown}"))?;
        let read = file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text);
        read.with_context(|| format!("--rules {shown}"))?;
        text.push(b'\n');
    }
    let rules = Rules::new(text).map_err(|why| Failure::Usage(format!("--rules: {why}")))?;
    let variables = fyke_ids::Variables::default();
    let at = held(&rules)?;
    let found = fyke_ids::RuleFiles::read(&[path_of(&at)], None, &variables, &mut |_| ())?;
    match found.rules.is_empty() {
        true => Err(Failure::Usage(format!(
            "--rules: none of {} rules can be judged; `fyke snort2ruler` gives the reasons",
            found.total
        ))),
        false => {
            if found.refused > 0 {
                note!(
                    "fyke: {} of {} rules are not judged; `fyke snort2ruler` gives the reasons",
                    found.refused,
                    found.total
                );
            }
            Ok(rules)
        }
    }
}

/// The rules as a file in memory.
fn held(rules: &Rules) -> anyhow::Result<File> {
    let made = memfd_create("rules", MemfdFlags::CLOEXEC).context("memory for the rules")?;
    let mut file = File::from(made);
    file.write_all(rules.text()).context("memory for the rules")?;
    Ok(file)
}

/// A path by which this process, and those that it starts, open a file of this process.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
}

/// Runs a checked graph and rules after it over a file.
pub fn judge(graph: &str, rules: &Rules, file: File, limit: Duration, stop: &AtomicBool) -> Judged {
    match held(rules).and_then(|held| run(graph, &held, file, limit, stop)) {
        Ok(judged) => judged,
        Err(error) => Judged::failure(format!("{error:#}")),
    }
}

fn run(
    graph: &str,
    rules: &File,
    file: File,
    limit: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<Judged> {
    let path = path_of(rules).display().to_string();
    let whole = format!("{graph} > {{rules}}(ids, expression={}, eve=-)", quoted(&path));
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .args(["run", "--no-control", "--json", "--all", "--stats", "--", &whole])
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start fyke")?;
    let out = child.stdout.take().context("no standard output")?;
    let err = child.stderr.take().context("no standard error")?;
    let (told, lines) = channel();
    thread::spawn(move || told.send(sums(out)));
    let (said, notes) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is shown.
        let _partial = err.take(MAX_LINE).read_to_end(&mut bytes);
        said.send(String::from_utf8_lossy(&bytes).into_owned())
    });
    let (sums, stopped) = wait(&mut child, &lines, limit, stop);
    let status = child.wait().context("cannot wait for fyke")?;
    let err = notes.recv().unwrap_or_default();
    let sums = sums.unwrap_or_default();
    let failed = stopped.or(sums.failed.clone()).or_else(|| {
        let message = err.trim_end().rsplit("fyke: ").next().unwrap_or_default();
        (!status.success()).then(|| reason(message))
    });
    let (alerts, more_alerts) = sums.most_frequent();
    Ok(Judged { nodes: sums.nodes, alerts, more_alerts, failed })
}

/// Waits for the end of what a process prints; kills it if it takes too long.
fn wait(
    child: &mut Child,
    lines: &Receiver<Sums>,
    limit: Duration,
    stop: &AtomicBool,
) -> (Option<Sums>, Option<String>) {
    let end = Instant::now() + limit;
    let why = loop {
        match lines.recv_timeout(LOOK) {
            Ok(sums) => return (Some(sums), None),
            Err(RecvTimeoutError::Disconnected) => return (None, None),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                break "stopped".to_owned();
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(RecvTimeoutError::Timeout) => {
                break format!("it took more than {} s", limit.as_secs());
            }
        }
    };
    // It may have ended meanwhile.
    let _ended = child.kill();
    (lines.recv().ok(), Some(why))
}

/// Sums of the lines of a process.
#[derive(Default)]
struct Sums {
    nodes: Vec<fyke_fleet::archive::NodeCounts>,
    alerts: BTreeMap<(u64, u64), Alert>,
    failed: Option<String>,
    /// Alerts of rules beyond [`MAX_RULES`].
    more: u64,
}

/// Adds up the lines of a process.
fn sums(out: ChildStdout) -> Sums {
    let mut sums = Sums::default();
    let mut out = BufReader::new(out);
    let mut line = Vec::new();
    loop {
        line.clear();
        match out.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return sums,
            Ok(_) => {
                if let Err(why) = sums.add(&line) {
                    sums.failed.get_or_insert(why);
                }
            }
            Err(error) => {
                sums.failed.get_or_insert(error.to_string());
                return sums;
            }
        }
    }
}

impl Sums {
    /// Adds a line: an alert, or the counts of a node.
    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        let wrong = |error: serde_json::Error| format!("a line cannot be read: {error}");
        let value: Value = serde_json::from_slice(line).map_err(wrong)?;
        let Some(alert) = value.get("alert") else {
            self.nodes.push(counts(value)?);
            return Ok(());
        };
        let number = |name: &str| alert[name].as_u64().unwrap_or_default();
        let (gid, sid) = (number("gid"), number("signature_id"));
        let is_known = self.alerts.contains_key(&(gid, sid));
        if !is_known && self.alerts.len() >= MAX_RULES {
            self.more += 1;
            return Ok(());
        }
        let time = value["timestamp"].as_str().unwrap_or_default().to_owned();
        let first = || Alert {
            gid,
            sid,
            message: alert["signature"].as_str().unwrap_or_default().to_owned(),
            first: time.clone(),
            last: time.clone(),
            count: 0,
        };
        let found = self.alerts.entry((gid, sid)).or_insert_with(first);
        found.count += 1;
        // The form of times sorts as they do.
        if time < found.first {
            found.first.clone_from(&time);
        }
        if time > found.last {
            found.last = time;
        }
        Ok(())
    }

    /// The alerts that a row has room for, the most frequent first, and the number of the others.
    fn most_frequent(&self) -> (Vec<Alert>, u64) {
        let mut all: Vec<Alert> = self.alerts.values().cloned().collect();
        all.sort_by_key(|alert| std::cmp::Reverse(alert.count));
        let rest = all.split_off(all.len().min(MOST));
        (all, self.more + rest.iter().map(|alert| alert.count).sum::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_control::NodeCount;

    #[test]
    fn lines_of_alerts_and_of_nodes_are_added_up() {
        let mut sums = Sums::default();
        let alert = |sid: u64, time: &str| {
            format!(
                "{{\"timestamp\":\"{time}\",\"alert\":{{\"gid\":1,\"signature_id\":{sid},\"signature\":\"m{sid}\"}}}}"
            )
        };
        for (sid, time) in
            [(7, "2026-01-02"), (8, "2026-01-01"), (7, "2026-01-01"), (7, "2026-01-03")]
        {
            sums.add(alert(sid, time).as_bytes()).unwrap();
        }
        let node =
            NodeCount { node: "rules".into(), arrived: 4, passed: 4, ..NodeCount::default() };
        sums.add(&serde_json::to_vec(&node).unwrap()).unwrap();
        assert!(sums.add(b"{\"x\":1}").is_err() && sums.add(b"x").is_err());
        assert_eq!(sums.nodes[0].arrived, 4);
        let (alerts, more) = sums.most_frequent();
        let shown: Vec<_> =
            alerts.iter().map(|it| (it.sid, it.count, &it.first[..], &it.last[..])).collect();
        assert_eq!(shown, [(7, 3, "2026-01-01", "2026-01-03"), (8, 1, "2026-01-01", "2026-01-01")]);
        assert_eq!(more, 0);
        for sid in 10..10 + MOST as u64 {
            sums.add(alert(sid, "t").as_bytes()).unwrap();
        }
        let (alerts, more) = sums.most_frequent();
        assert_eq!((alerts.len(), more), (MOST, 2));
    }
}
