//! A snap length for one filter (`fyke ctl add --snaplen`): the file has each frame with the longest length of the
//! filters that accept it, and its length on the wire.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, runtime, send, veth};
use fyke_capture::{FileOptions, FileSource, Next, Source};
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts a capture of `v1`.
fn capture(file: &Path, words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "v1", "-w", file.to_str().unwrap()]).args(words);
    let running = Running::start(command.stdout(Stdio::null()));
    running.hear("listening on");
    running
}

/// Destination port, captured bytes and bytes on the wire of each frame of a file.
fn frames(file: &Path) -> Vec<(u16, usize, u32)> {
    let mut source = FileSource::open(file, FileOptions::default()).unwrap();
    let mut found = Vec::new();
    loop {
        match source.next().unwrap() {
            Next::Frames(batch, _) => found.extend(batch.frames().iter().map(|frame| {
                let port = u16::from_be_bytes([frame.data[36], frame.data[37]]);
                (port, frame.data.len(), frame.wire_len)
            })),
            Next::End => return found,
            _ => {}
        }
    }
}

/// Runs `fyke ctl`; it may fail.
fn refused(running: &Running, words: &[&str]) -> String {
    let mut command = Command::new(FYKE);
    command.args(["ctl", "--pid", &running.child.id().to_string()]).args(words);
    let output = command.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn each_frame_has_the_longest_length_of_its_filters() {
    if !inside("each_frame_has_the_longest_length_of_its_filters") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let file = path("out.pcapng");
    let mut running = capture(&file, &["arp"]);
    // 442 bytes on the wire, 10 frames of each step: 5 to each port.
    let mut sent = 0;
    let mut step = |running: &Running| {
        send(10, 400);
        sent += 10;
        running.settle(sent);
    };
    running.ctl(&["add", "--snaplen", "96", "--name", "short", "udp"]);
    step(&running);
    running.ctl(&["add", "--snaplen", "200", "udp port 5002"]);
    assert!(
        running.ctl(&["show"]).contains("short          10 frames, at most 96 bytes each  udp")
    );
    assert!(running.ctl(&["log"]).contains("at most 200 bytes each  udp port 5002"));
    step(&running);
    running.ctl(&["add", "udp port 5001"]);
    step(&running);
    // Every length leaves; then the edit is taken back.
    running.ctl(&["set", "udp"]);
    step(&running);
    running.ctl(&["undo"]);
    step(&running);
    assert!(refused(&running, &["add", "--snaplen", "0", "ip"]).contains("1..=262144"));
    running.signal("INT");
    assert!(running.end().success());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.rejected, sum.lost), (50, 50, 0, 0));
    assert_eq!(frames_of(&file), 50);
    let written = frames(&file);
    let lengths = [(96, 96), (96, 200), (442, 200), (442, 442), (442, 200)];
    for (step, (of_5001, of_5002)) in lengths.into_iter().enumerate() {
        for &(port, captured, wire) in &written[10 * step..10 * step + 10] {
            let expected = if port == 5001 { of_5001 } else { of_5002 };
            assert_eq!((captured, wire), (expected, 442), "step {step}, port {port}");
        }
    }
}

#[test]
fn captures_that_cannot_cut_refuse_it() {
    if !inside("captures_that_cannot_cut_refuse_it") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"), &["--workers", "2", "arp"]);
    let said = refused(&running, &["add", "--snaplen", "96", "udp"]);
    assert!(said.contains("with one worker"), "{said}");
    assert!(running.ctl(&["add", "udp"]).contains("epoch 2"), "nothing was added before");
    running.signal("INT");
    assert!(running.end().success());
}
