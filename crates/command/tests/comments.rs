//! Comments in pcapng files: one for each edit, and with `--annotate` one for each frame.

mod common;

use common::{FYKE, Running, folder, inside, send, veth};
use std::path::Path;
use std::process::{Command, Stdio};

/// The comments of each packet block and of each statistics block of a pcapng file, in order.
fn comments(file: &Path) -> Vec<(u32, Vec<String>)> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let (kind, length) = (word(at), word(at + 4) as usize);
        assert_eq!(word(at + length - 4) as usize, length, "both lengths of the block at {at}");
        let options = match kind {
            6 => at + 28 + (word(at + 20) as usize).next_multiple_of(4),
            5 => at + 20,
            _ => at + length,
        };
        if options < at + length {
            found.push((kind, options_of(&bytes[options..at + length - 4])));
        }
        at += length;
    }
    found
}

fn options_of(mut bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let [a, b, c, d, rest @ ..] = bytes {
        let (code, length) = (u16::from_ne_bytes([*a, *b]), u16::from_ne_bytes([*c, *d]) as usize);
        if code == 1 {
            found.push(String::from_utf8(rest[..length].to_vec()).unwrap());
        }
        bytes = &rest[length.next_multiple_of(4)..];
    }
    found
}

fn start(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", "v1"]).args(words).stdout(Stdio::null());
    let dump = Running::start(&mut command);
    dump.hear("listening on");
    dump
}

/// Captures half of 20 frames, edits, captures all of 20 frames, edits again; returns the comments.
fn edited(file: &str, options: &[&str]) -> Vec<(u32, Vec<String>)> {
    let mut dump = start(&[&["-w", file], options, &["udp port 5001"]].concat());
    send(20, 60);
    dump.settle(20);
    dump.ctl(&["add", "--name", "more", "udp port 5002 or udp port 5000"]);
    send(20, 60);
    dump.settle(40);
    dump.ctl(&["set", "tcp"]);
    dump.signal("INT");
    assert!(dump.end().success(), "{}", dump.said());
    comments(Path::new(file))
}

#[test]
fn every_edit_has_a_comment() {
    if !inside("every_edit_has_a_comment") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let file = path("edits.pcapng");
    let found = edited(file.to_str().unwrap(), &[]);
    let texts: Vec<_> = found.iter().filter(|(_, texts)| !texts.is_empty()).collect();
    let [(6, first), (5, last)] = &texts[..] else { panic!("{texts:?}") };
    let [first, last] = [first, last].map(|texts| texts.join("\n"));
    assert!(first.starts_with("fyke: epoch 2, by root (fyke ctl, process "), "{first}");
    let text = ": adds filter 2 more (udp port 5002 or udp port 5000)";
    assert!(first.ends_with(text), "{first}");
    assert!(last.starts_with("fyke: epoch 3, ") && last.ends_with("adds filter 3 (tcp)"), "{last}");
    // The first frame after the edit has it.
    let at = found.iter().position(|(_, texts)| !texts.is_empty());
    assert_eq!(at, Some(10));
    let read = Command::new(FYKE).args(["dump", "--count", "-r"]).arg(&file).output().unwrap();
    let expected = format!("{}\n", found.len() - 1);
    assert_eq!(String::from_utf8(read.stdout).unwrap(), expected);
}

#[test]
fn annotated_frames_name_filter_pass_and_epoch() {
    if !inside("annotated_frames_name_filter_pass_and_epoch") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let file = path("frames.pcapng");
    let found = edited(file.to_str().unwrap(), &["--annotate"]);
    let frames: Vec<_> = found.iter().filter(|(kind, _)| *kind == 6).collect();
    let of = |start: &str| {
        let is = |frame: &&&(u32, Vec<String>)| frame.1.last().unwrap().starts_with(start);
        frames.iter().filter(is).count()
    };
    let last = |end: &str| frames.iter().filter(|one| one.1.last().unwrap().ends_with(end)).count();
    assert_eq!(of("fyke: filter 1, pass "), 20, "{frames:?}");
    assert_eq!(of("fyke: filter 2, pass ") + 20, frames.len(), "{frames:?}");
    assert_eq!(last(", epoch 1"), 10, "{frames:?}");
    assert_eq!(last(", epoch 2") + 10, frames.len(), "{frames:?}");
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&file).args(["-Y", "frame.comment", "-T", "fields", "-e", "frame.number"]);
    match tshark.output() {
        Ok(output) => {
            let lines = String::from_utf8_lossy(&output.stdout).lines().count();
            assert_eq!(lines, frames.len(), "{output:?}");
        }
        Err(error) => println!("tshark is not installed: {error}"),
    }
}

#[test]
fn frames_of_look_back_are_late() {
    if !inside("frames_of_look_back_are_late") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let file = path("late.pcapng");
    let mut dump = start(&["--look-back", "--annotate", "-w", file.to_str().unwrap(), "tcp"]);
    send(20, 60);
    dump.settle(20);
    dump.ctl(&["add", "udp port 5001"]);
    send(20, 60);
    dump.settle(40);
    dump.signal("INT");
    assert!(dump.end().success(), "{}", dump.said());
    let found = comments(&file);
    let frames: Vec<_> = found.iter().filter(|(kind, _)| *kind == 6).collect();
    let late = frames.iter().filter(|one| one.1.last().unwrap().ends_with(", epoch 2, late"));
    assert_eq!((late.count(), frames.len()), (10, 20), "{frames:?}");
}

#[test]
fn comments_without_a_place_are_refused() {
    let (_folder, path) = folder();
    let file = path("out.pcap");
    for (words, says) in [
        (&["-i", "lo", "-w", file.to_str().unwrap(), "--annotate"][..], "write a pcapng file"),
        (&["-i", "lo", "--annotate"], "--write"),
        (&["-i", "lo", "-w", "x.pcapng", "--annotate", "--workers", "2"], "--workers"),
    ] {
        let output = Command::new(FYKE).arg("dump").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        assert!(!file.exists());
    }
}
