//! `fyke resume`: a capture that was really killed is taken up with its filters and its file.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, runtime, send, tool, veth};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn capture(file: &Path, user: &str, words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", user, "-U", "-i", "v1", "-w", file.to_str().unwrap()]);
    let running = Running::start(command.args(words).stdout(Stdio::null()));
    running.hear("listening on");
    running
}

fn resume(words: &[&str]) -> Output {
    let mut command = Command::new(FYKE);
    command.arg("resume").args(words).env("FYKE_RUNTIME_DIR", runtime()).output().unwrap()
}

fn refused(words: &[&str]) -> String {
    let output = resume(words);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Frames in a file, as tcpdump reads it.
fn by_tcpdump(path: &Path) -> usize {
    let output = Command::new("tcpdump").args(["-nr", path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}

fn taken_up(name: &str, user: &str) {
    let (_folder, path) = folder();
    let file = path(name);
    let mut first = capture(&file, user, &["udp port 5001"]);
    let pid = first.child.id().to_string();
    assert!(refused(&[&pid]).contains("still running"), "{}", refused(&[&pid]));
    first.ctl(&["set", "udp port 5002"]);
    first.ctl(&["add", "--name", "more", "--for", "1h", "arp"]);
    send(10, 20);
    first.settle(10);
    first.signal("KILL");
    first.end();
    assert_eq!(frames_of(&file), 5, "{name}");
    // Half of a record.
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 7]).unwrap();
    let listed = String::from_utf8(resume(&[]).stdout).unwrap();
    assert!(listed.contains(&pid) && listed.contains("(2 filters)"), "{listed}");
    let mut command = Command::new(FYKE);
    let mut second = Running::start(command.args(["resume", &pid]).stdout(Stdio::null()));
    second.hear("resumed capture");
    second.hear("listening on");
    let log = second.ctl(&["log"]);
    assert!(log.contains("fyke resume, after a killed capture"), "{log}");
    assert!(log.contains("udp port 5002") && !log.contains("udp port 5001"), "{log}");
    assert!(log.contains(" more: 0 accepted, until "), "{log}");
    send(10, 20);
    second.settle(10);
    second.signal("INT");
    assert!(second.end().success(), "{}", second.said());
    assert_eq!((frames_of(&file), by_tcpdump(&file)), (9, 9), "{name}");
    assert!(refused(&[&pid]).contains("no killed capture"));
    let left = std::fs::read_dir(runtime()).into_iter().flatten().flatten();
    assert_eq!(left.count(), 0, "an end that is no kill leaves no resume file");
}

#[test]
fn a_killed_capture_is_taken_up() {
    if !inside("a_killed_capture_is_taken_up") {
        return;
    }
    veth();
    taken_up("out.pcapng", "root");
    taken_up("out.pcap", "root");
    taken_up("dropped.pcapng", "nobody");
}

/// `-c` counts the frames that the file has from before the kill.
#[test]
fn a_number_of_frames_is_that_of_the_whole_file() {
    if !inside("a_number_of_frames_is_that_of_the_whole_file") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    for name in ["out.pcapng", "out.pcap"] {
        let file = path(name);
        let mut first = capture(&file, "root", &["-c", "30", "udp port 5001"]);
        let mut pid = first.child.id().to_string();
        for frames in [10, 20] {
            send(20, 20);
            first.settle(20);
            first.signal("KILL");
            first.end();
            assert_eq!(frames_of(&file), frames, "{name}");
            let mut command = Command::new(FYKE);
            first = Running::start(command.args(["resume", &pid]).stdout(Stdio::null()));
            first.hear(&format!("the file has {frames} of the 30 frames of -c"));
            first.hear("listening on");
            pid = first.child.id().to_string();
        }
        send(40, 20);
        assert!(first.end().success(), "{}", first.said());
        assert_eq!(frames_of(&file), 30, "{name}");
    }
}

#[test]
fn what_was_replaced_or_damaged_is_refused() {
    if !inside("what_was_replaced_or_damaged_is_refused") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let file = path("out.pcapng");
    let mut first = capture(&file, "root", &["udp port 5001"]);
    let pid = first.child.id().to_string();
    first.signal("KILL");
    first.end();
    // Another file, and a link to the right one, have its name.
    std::fs::rename(&file, path("old")).unwrap();
    std::fs::write(&file, "mine").unwrap();
    assert!(refused(&[&pid]).contains("another file has taken the place"), "{}", refused(&[&pid]));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(path("old"), &file).unwrap();
    let before = std::fs::read(path("old")).unwrap();
    refused(&[&pid]);
    assert_eq!(std::fs::read(path("old")).unwrap(), before);
    assert!(refused(&["../x"]).contains("no killed capture"));
    let record = runtime().join(format!("{pid}.resume"));
    let bytes = std::fs::read(&record).unwrap();
    std::fs::write(&record, &bytes[..bytes.len() / 2]).unwrap();
    assert!(refused(&[&pid]).contains("is damaged"), "{}", refused(&[&pid]));
    std::fs::write(&record, &bytes).unwrap();
    Command::new("chown").arg("nobody").arg(&record).status().unwrap();
    assert!(refused(&[&pid]).contains("belongs to user"), "{}", refused(&[&pid]));
    Command::new("chown").arg("root").arg(&record).status().unwrap();
    assert!(resume(&["--forget", &pid]).status.success());
    assert!(!record.exists());
}

/// A folder without room: the capture and its edits continue, and later edits are recorded again.
#[test]
fn a_record_that_cannot_be_written_is_reported_once() {
    if !inside("a_record_that_cannot_be_written_is_reported_once") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let file = path("out.pcapng");
    std::fs::create_dir(runtime()).unwrap();
    let place = runtime().display().to_string();
    tool(&format!("mount -t tmpfs -o size=32k,mode=700 none {place}"));
    let mut first = capture(&file, "nobody", &["udp port 5001"]);
    let pid = first.child.id().to_string();
    let long = format!("udp{}port 5002", " ".repeat(60_000));
    first.ctl(&["add", "--name", "long", &long]);
    first.hear("`fyke resume` has older filters");
    first.ctl(&["add", "arp"]);
    send(10, 20);
    first.settle(10);
    assert!(first.ctl(&["stats"]).contains("10 seen = 10 accepted"));
    assert_eq!(first.said().matches("older filters").count(), 1, "{}", first.said());
    let listed = || String::from_utf8(resume(&[]).stdout).unwrap();
    first.ctl(&["del", "long"]);
    first.ctl(&["add", "udp port 5003"]);
    first.signal("KILL");
    first.end();
    assert!(listed().contains(&pid) && listed().contains("(3 filters)"), "{}", listed());
    assert!(resume(&["--forget", &pid]).status.success());
    assert!(listed().is_empty());
    tool(&format!("umount {place}"));
}

#[test]
fn filters_whose_times_are_over_are_left_out() {
    if !inside("filters_whose_times_are_over_are_left_out") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut device = capture(Path::new("/dev/null"), "root", &["udp port 5001"]);
    assert!(!device.said().contains("resume"), "{}", device.said());
    device.signal("KILL");
    device.end();
    assert!(resume(&[]).stdout.is_empty(), "a device is not continued");
    let mut first = capture(&path("out.pcapng"), "root", &["udp port 5001"]);
    let pid = first.child.id().to_string();
    first.ctl(&["add", "--name", "short", "--for", "2s", "arp"]);
    first.signal("KILL");
    first.end();
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    let mut command = Command::new(FYKE);
    let mut second = Running::start(command.args(["resume", &pid]).stdout(Stdio::null()));
    second.hear("1 filter of epoch 2, 1 more had ended");
    second.hear("listening on");
    second.ctl(&["add", "--for", "2s", "ip6"]);
    second.ctl(&["del", "1"]);
    let pid = second.child.id().to_string();
    second.signal("KILL");
    second.end();
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    let why = refused(&[&pid]);
    assert!(why.contains("every frame would be accepted"), "{why}");
    assert!(resume(&["--forget", &pid]).status.success());
}
