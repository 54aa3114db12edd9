//! `fyke ctl log`, `undo`, `batch`, names and times on a running `fyke demux`, `run` and `exec`.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, runtime, send, send_while, veth};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `fyke ctl` on a running command; it may fail.
fn ctl(running: &Running, words: &[&str]) -> Output {
    let mut command = Command::new(FYKE);
    command.args(["ctl", "--pid", &running.child.id().to_string()]).args(words);
    command.env("FYKE_RUNTIME_DIR", runtime()).env_remove("SUDO_UID").output().unwrap()
}

/// The message of a request that is refused as wrong.
fn refused(running: &Running, words: &[&str]) -> String {
    let output = ctl(running, words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn texts(running: &Running) -> Vec<String> {
    let stats: Value = serde_json::from_str(&running.ctl(&["stats", "--json"])).unwrap();
    let filters = stats["filters"].as_array().unwrap().iter();
    // Frames of removed texts have an entry without a number.
    let filters = filters.filter(|filter| filter["id"] != 0);
    filters.map(|filter| filter["text"].as_str().unwrap().to_owned()).collect()
}

fn start(words: &[&str], sign: &str) -> Running {
    let mut command = Command::new(FYKE);
    let running = Running::start(command.args(words).stdout(Stdio::null()));
    running.hear(sign);
    running
}

/// Waits until a text is no longer in force.
fn wait_until_gone(running: &Running, text: &str) {
    let limit = Instant::now() + Duration::from_secs(20);
    while texts(running).iter().any(|one| one == text) {
        assert!(Instant::now() < limit, "{text} is still in force");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes a file of edits.
fn edits(file: &Path, lines: &str) -> String {
    std::fs::write(file, lines).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn expressions_of_demux_are_logged_and_taken_back() {
    if !inside("expressions_of_demux_are_logged_and_taken_back") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let [one, two] = ["one.pcapng", "two.pcapng"].map(|name| path(name).display().to_string());
    let first = format!("udp port 5001 => {one}");
    let mut running = start(
        &["demux", "-Z", "root", "--no-sandbox", "-i", "v1", "--count-all", &first],
        "listening on",
    );
    let second = format!("udp port 5002 => {two}");
    assert!(running.ctl(&["add", "--name", "second", &second]).contains("filter 2, epoch 1"));
    send(10, 20);
    running.settle(10);
    let log = running.ctl(&["log"]);
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].starts_with("epoch 0  20") && lines[0].ends_with("the command line"), "{log}");
    assert_eq!(lines[1], format!("    + filter 1: 5 accepted  {first}"));
    assert!(lines[2].contains("  root (fyke ctl, process "), "{log}");
    assert_eq!(lines[3], format!("    + filter 2 second: 5 accepted  {second}"));
    // Frames of the past are judged by the expressions, with their numbers.
    let tried = running.ctl(&["try", "udp"]);
    assert!(tried.starts_with("would accept 10 of the last 10 frames"), "{tried}");
    assert!(tried.contains("0 of them new; the filters in force accept 10"), "{tried}");
    // The undo closes the second file; the undo of that would write it from its beginning.
    assert!(running.ctl(&["undo"]).contains("epoch 2"));
    assert_eq!(texts(&running), [first.as_str()]);
    let why = running.ctl(&["why"]);
    assert!(why.contains("\n    filter 1: udp port 5001: no"), "{why}");
    let said = refused(&running, &["undo", "2"]);
    assert!(said.contains("two.pcapng") && said.contains("move the file away first"), "{said}");
    std::fs::rename(&two, path("kept.pcapng")).unwrap();
    assert!(running.ctl(&["undo", "2"]).contains("filter 3, epoch 3"));
    assert_eq!(texts(&running), [first.as_str(), second.as_str()]);
    assert!(refused(&running, &["add", "--name", "second", &first]).contains("has the name"));
    assert!(refused(&running, &["add", "--snaplen", "96", &first]).contains("snap length"));
    assert!(refused(&running, &["undo", "0"]).contains("only edits of users"));
    // A file of edits is one epoch; an error names its line.
    let wrong =
        edits(&path("wrong"), &format!("add arp => count\nadd udp prot 1 => {two}\ndel 1\n"));
    let said = refused(&running, &["batch", "-F", &wrong]);
    assert!(said.contains("wrong:2:") && said.contains('^'), "{said}");
    let batch = edits(&path("batch"), "add --for 300ms arp => count\ndel second\n");
    assert!(running.ctl(&["batch", "-F", &batch]).contains("epoch 4"));
    wait_until_gone(&running, "arp => count");
    assert_eq!(texts(&running), [first.as_str()]);
    assert!(running.ctl(&["log"]).contains("the end of its time"));
    assert!(refused(&running, &["del", "1"]).contains("is the last one"));
    running.ctl(&["pause"]);
    running.ctl(&["start"]);
    assert!(running.ctl(&["log", "--last", "2"]).contains("ends the pause"));
    running.signal("INT");
    assert!(running.end().success());
    assert_eq!(running.sum().accepted, 10, "{}", running.said());
}

#[test]
fn graphs_are_logged_and_taken_back() {
    if !inside("graphs_are_logged_and_taken_back") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let file = path("all.pcapng").display().to_string();
    let graph = "{in}(device, v1) > (filter, \"udp port 5001\") > (packetcount)";
    let words = ["run", "-Z", "root", "--no-sandbox", "--count-all", graph];
    let mut running = start(&words, "running");
    let second = format!("{{in}}(device, v1) > (tofile, \"{file}\")");
    running.ctl(&["add", "--name", "all", &second]);
    assert_eq!(texts(&running), [graph, &second]);
    send(10, 20);
    running.settle(10);
    let log = running.ctl(&["log"]);
    assert!(log.contains(&format!("+ filter 2 all: 10 accepted  {second}")), "{log}");
    let tried = running.ctl(&["try", "udp"]);
    assert!(tried.starts_with("would accept 10 of the last 10 frames"), "{tried}");
    assert!(tried.contains("5 of them new"), "{tried}");
    assert!(running.ctl(&["why"]).contains("filter 1: udp port 5001: no"));
    running.ctl(&["del", "all"]);
    assert!(refused(&running, &["undo"]).contains("move the file away first"));
    std::fs::remove_file(&file).unwrap();
    assert!(running.ctl(&["undo"]).contains("epoch 3"));
    assert_eq!(texts(&running), [graph, &second]);
    running.ctl(&["del", "all"]);
    assert!(refused(&running, &["del", "1"]).contains("only graph"));
    assert!(refused(&running, &["set", "(device"]).contains('^'));
    running.ctl(&["add", "--for", "300ms", "{in}(device, v1) > (bytecount)"]);
    wait_until_gone(&running, "{in}(device, v1) > (bytecount)");
    assert!(running.ctl(&["log", "--last", "1"]).contains("the end of its time"));
    running.signal("INT");
    assert!(running.end().success());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (10, 10, 0), "{}", running.said());
}

/// Texts are removed while frames come: the log has as many frames as their files, and all removed ones together make
/// the sum complete.
#[test]
fn the_log_has_all_frames_of_what_was_removed() {
    if !inside("the_log_has_all_frames_of_what_was_removed") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let demux = ["demux", "-Z", "root", "--no-sandbox", "-i", "v1"];
    let ends = ["udp port 5001 => count"];
    let graph = "{in}(device, v1) > (filter, \"udp port 5001\") > (packetcount)";
    for (number, words) in [
        [&demux[..], &["--first"], &ends].concat(),
        [&demux[..], &["--workers", "2"], &ends].concat(),
        vec!["run", "-Z", "root", "--no-sandbox", graph],
    ]
    .into_iter()
    .enumerate()
    {
        let report = std::fs::File::create(path("report")).unwrap();
        let mut running = Running::start(Command::new(FYKE).args(&words).stdout(report));
        running.hear("edit: fyke ctl");
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let sender = std::thread::spawn(move || {
            send_while(1_000_000, 20, || {
                std::thread::sleep(Duration::from_micros(100));
                !is_over.load(Ordering::Relaxed)
            })
        });
        let mut all = 0;
        for round in 0..12 {
            let file = path(&format!("{number}-{round}.pcapng"));
            let text = match words[0] {
                "run" => {
                    format!(
                        "{{in}}(device, v1) > (filter, \"udp\") > (tofile, \"{}\")",
                        file.display()
                    )
                }
                _ => format!("udp portrange 5002-5003 => {}", file.display()),
            };
            let added: Value =
                serde_json::from_str(&running.ctl(&["add", "--json", &text])).unwrap();
            std::thread::sleep(Duration::from_millis(20 + 3 * round));
            running.ctl(&["del", &added["ids"][0].to_string()]);
            let log = running.ctl(&["log", "--json", "--last", "1"]);
            let log: Value = serde_json::from_str(&log).unwrap();
            let logged = log["entries"][0]["changes"][0]["accepted"].as_u64().unwrap();
            assert_eq!(logged, frames_of(&file), "{words:?} {round}: {log}");
            all += logged;
        }
        assert!(all > 0, "frames were sent");
        let stats: Value = serde_json::from_str(&running.ctl(&["stats", "--json"])).unwrap();
        let filters = stats["filters"].as_array().unwrap();
        let removed = filters.iter().find(|filter| filter["kind"] == "removed").unwrap();
        assert_eq!(removed["accepted"], all, "{words:?}");
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        running.signal("INT");
        assert!(running.end().success());
        if words.contains(&"--first") {
            let said = std::fs::read_to_string(path("report")).unwrap();
            let count = |what: &str| {
                let line = said.lines().find_map(|line| line.strip_suffix(what));
                line.unwrap_or_else(|| panic!("no {what:?}: {said}")).parse::<u64>().unwrap()
            };
            assert_eq!(count("\tremoved"), all, "{said}");
            assert_eq!(running.sum().accepted, all + count("\tudp port 5001"), "{said}");
        }
    }
}

#[test]
fn filters_of_exec_are_logged_and_taken_back() {
    if !inside("filters_of_exec_are_logged_and_taken_back") {
        return;
    }
    veth();
    let program = ["tcpdump", "-Z", "root", "-U", "-i", "v1", "-w", "/dev/null"];
    let words = [&["exec", "--filter", "udp port 5001", "--"], &program[..]].concat();
    let mut running = start(&words, "listening on");
    running.ctl(&["add", "--name", "second", "udp port 5002"]);
    send(10, 20);
    running.settle(10);
    let log = running.ctl(&["log"]);
    assert!(log.contains("    + filter 1: 5 accepted  udp port 5001"), "{log}");
    assert!(log.contains("    + filter 2 second: 5 accepted  udp port 5002"), "{log}");
    assert!(running.ctl(&["undo"]).contains("epoch 3"));
    assert_eq!(texts(&running), ["udp port 5001"]);
    running.ctl(&["set", "arp"]);
    assert!(running.ctl(&["undo"]).contains("epoch 5"));
    assert_eq!(texts(&running), ["udp port 5001"]);
    running.ctl(&["add", "--for", "300ms", "icmp"]);
    wait_until_gone(&running, "icmp");
    assert!(refused(&running, &["add", "udp prot 1"]).contains('^'));
    running.signal("INT");
    running.end();
}
