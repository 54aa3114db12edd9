//! `fyke dump --payload`: connections with a match in their payload, also across segments, from the match on or whole.

mod common;

use common::FYKE;
use fyke_capture::{Next, Source, open_file};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn dump(arguments: &[&str]) -> Output {
    Command::new(FYKE).arg("dump").args(arguments).output().unwrap()
}

fn succeeds(arguments: &[&str]) -> Output {
    let output = dump(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    output
}

/// A connection of two directions from `port`, and the text in segments of `len` bytes; the second one is late.
fn connection(port: u16, text: &[u8], len: usize) -> Vec<Vec<u8>> {
    let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let there = |sequence: u32, flags: u8, payload: &[u8]| {
        let packet = Packet::ethernet().ipv4(near, far).tcp(port, 80).seq_ack(sequence, 500);
        packet.flags(flags).payload(payload).build()
    };
    let back = |flags: u8| {
        let packet = Packet::ethernet().ipv4(far, near).tcp(80, port).seq_ack(499, 100);
        packet.flags(flags).build()
    };
    let mut frames = vec![there(99, 0x02, b""), back(0x12), there(100, 0x10, b"")];
    let parts = (0..).zip(text.chunks(len));
    frames.extend(parts.map(|(at, part)| there(100 + at * len as u32, 0x18, part)));
    frames.swap(4, 5);
    frames.push(there(100 + text.len() as u32, 0x11, b""));
    frames.push(back(0x11));
    frames
}

/// Frames of a file, by their bytes.
fn frames_of(path: &Path) -> Vec<Vec<u8>> {
    let mut source = open_file(path).unwrap();
    let mut all = Vec::new();
    while let Next::Frames(batch, _) = source.next().unwrap() {
        all.extend(batch.frames().iter().map(|frame| frame.data.to_vec()));
    }
    all
}

#[test]
fn connections_pass_from_the_match_on_or_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let good = connection(1, b"nothing to be found in this text", 5);
    let evil = connection(2, b"there is something evil in this text", 5);
    // Both at the same time.
    let mut frames = Vec::new();
    for index in 0..good.len().max(evil.len()) {
        frames.extend(good.get(index).cloned());
        frames.extend(evil.get(index).cloned());
    }
    std::fs::write(path("in.pcap"), pcap::file(1, &frames)).unwrap();
    let input = path("in.pcap");
    let (out, whole) = (path("out.pcap"), path("whole.pcap"));
    succeeds(&["-r", &input, "--payload", "\"evil\"", "-w", &out]);
    // `evil` ends in the fifth part.
    assert_eq!(frames_of(Path::new(&out)), evil[7..]);
    let options = ["--conversation", "--stats", "-w", &whole];
    let output = succeeds(&[&["-r", &input, "--payload", "\"evil\""][..], &options].concat());
    assert_eq!(frames_of(Path::new(&whole)), evil);
    let said = String::from_utf8_lossy(&output.stderr);
    let (seen, accepted) = (frames.len(), evil.len());
    let sum = format!("{seen} seen = {accepted} accepted + {} rejected + 0", seen - accepted);
    assert!(said.contains(&sum), "{said}");
    // The filter decides first.
    let count = |more: &[&str]| {
        let mut arguments =
            vec!["--count", "-r", &input, "--payload", "\"evil\"", "--conversation"];
        arguments.extend(more);
        String::from_utf8_lossy(&succeeds(&arguments).stdout).trim().to_owned()
    };
    assert_eq!(count(&["src port 2"]), (evil.len() - 2).to_string());
    assert_eq!(count(&["port 3"]), "0");
    // The first frames of the conversation, and no more.
    let limited = ["-c", "3", "--conversation", "-w", &out];
    succeeds(&[&["-r", &input, "--payload", "\"evil\""][..], &limited].concat());
    assert_eq!(frames_of(Path::new(&out)), evil[..3]);
    assert_eq!(count(&["-c", "4"]), "4");
    let output = dump(&["-r", &input, "--conversation"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--payload"));
}

/// A segment of the connection between port 1 and port 80; the reader's end is `there`.
fn segment(there: bool, sequence: u32, acknowledged: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let packet = match there {
        true => Packet::ethernet().ipv4(near, far).tcp(1, 80),
        false => Packet::ethernet().ipv4(far, near).tcp(80, 1),
    };
    packet.seq_ack(sequence, acknowledged).flags(flags).payload(payload).build()
}

/// A connection of which one segment was not captured.
fn with_gap() -> Vec<Vec<u8>> {
    vec![
        segment(true, 0, 0, 0x02, b""),
        segment(false, 500, 1, 0x12, b""),
        segment(true, 1, 501, 0x18, b"start"),
        segment(true, 100, 501, 0x18, b"xx evil yy"),
    ]
}

/// Runs `fyke dump --payload '"evil"' --count` over frames; returns the number, and the messages.
fn count(frames: &[Vec<u8>], more: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    std::fs::write(&input, pcap::file(1, frames)).unwrap();
    let arguments = ["-r", input.to_str().unwrap(), "--payload", "\"evil\"", "--count"];
    let output = succeeds(&[&arguments[..], more].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_match_after_a_lost_segment_is_found() {
    let mut frames = with_gap();
    // Known only at the end of the capture.
    let (found, said) = count(&frames, &[]);
    assert_eq!(found, "0");
    assert!(said.contains("1 connections matched only after their last frame"), "{said}");
    assert_eq!(count(&frames, &["--conversation"]), ("4".to_owned(), String::new()));
    // The receiver resets the connection: with and without an acknowledgement of what it has read.
    for reset in [segment(false, 501, 0, 0x04, b""), segment(false, 501, 110, 0x14, b"")] {
        frames.truncate(4);
        frames.push(reset);
        assert_eq!(count(&frames, &["--conversation"]).0, "5");
        assert_eq!(count(&frames, &[]), ("1".to_owned(), String::new()));
    }
    // The receiver acknowledges what follows the gap, so nothing is waited for.
    frames.truncate(4);
    frames.push(segment(false, 501, 110, 0x10, b""));
    frames.push(segment(true, 110, 501, 0x18, b"more"));
    assert_eq!(count(&frames, &[]), ("2".to_owned(), String::new()));
}

#[test]
fn parameters_of_streams_are_given_with_streams() {
    let mut frames = with_gap();
    frames.truncate(3);
    let mut damaged = segment(true, 8, 501, 0x18, b"XX");
    *damaged.last_mut().unwrap() ^= 0x55;
    frames.extend([
        segment(true, 6, 501, 0x18, b"ev"),
        damaged,
        segment(true, 8, 501, 0x18, b"il"),
    ]);
    assert_eq!(count(&frames, &[]).0, "0");
    assert_eq!(count(&frames, &["--streams", "checksum=y"]).0, "1");
    // The damaged segment passes with its conversation.
    assert_eq!(count(&frames, &["--streams", "checksum=y,gap=1", "--conversation"]).0, "6");
    for (given, expected) in [
        ("gap", "NAME=VALUE"),
        ("gap=x", "x is not a whole number"),
        ("unknown=1", "unknown"),
        ("payload=y", "--streams: `payload`"),
        ("nothing=1", "--streams: `nothing`: unknown parameter; expected one of: policy, "),
        ("gap=1) > (tofile", "1) > (tofile is not"),
        ("gap=-1", "--streams: gap: -1 is not"),
        ("gap=2,gap=3", "--streams: gap: given twice"),
        ("midstream=", "--streams: midstream: it has no value"),
        ("policy=linux@10.0.0.1/8", "--streams: policy: linux@10.0.0.1/8"),
    ] {
        let output = dump(&["-r", "in.pcap", "--payload", "\"evil\"", "--streams", given]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(expected), "{given}: {said}");
    }
    // Parameters may be given apart.
    assert_eq!(count(&frames, &["--streams", "gap=1", "--streams", "checksum=y"]).0, "1");
}

#[test]
fn wrong_patterns_are_refused() {
    let say = |patterns: &[&str]| {
        let all = patterns.iter().flat_map(|pattern| ["--payload", pattern]);
        let output = dump(&["-r", "in.pcap"].into_iter().chain(all).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{patterns:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (pattern, expected) in [
        ("", "--payload: the pattern is empty"),
        ("\"a\") => accept; * (\"GET\"", "pattern:1: a `)` without its `(`"),
        ("\"a\" => accept; \"GET\"", "pattern:1: the pattern ends before this"),
        ("(\"a\"", "pattern:1: a `(` without its `)`"),
        ("\"a\"\n| nothing", "pattern:2: "),
    ] {
        let said = say(&[pattern]);
        assert!(said.contains(expected), "{pattern}: {said}");
    }
    let said = say(&["\"a\"", "\"b\""]);
    assert!(said.contains("--payload: given twice"), "{said}");
}

#[test]
fn limits_of_conversations_are_reported() {
    let mut frames = vec![segment(true, 0, 0, 0x02, b"")];
    let long = [b'-'; 60_000];
    frames.extend((0..80).map(|at| segment(true, 1 + at * 60_000, 501, 0x18, &long)));
    frames.push(segment(true, 1 + 80 * 60_000, 501, 0x18, b"evil"));
    let (found, said) = count(&frames, &["--conversation"]);
    let let_go = 82 - found.parse::<usize>().unwrap();
    assert!(said.contains(&format!(" {let_go} of 82 frames that waited")), "{found}: {said}");
    let output = dump(&["-i", "lo", "--payload", "\"evil\"", "--conversation", "--workers", "2"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--conversation: "), "{said}");
}

/// Numbers of the frames of a stream, and the bytes of its directions.
type Followed = (Vec<usize>, [Vec<u8>; 2]);

/// The streams of a file, by tshark.
fn tshark_streams(path: &Path) -> Option<Vec<Followed>> {
    let run = |arguments: &[String]| {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r"]).arg(path).args(arguments).stdin(Stdio::null());
        let output = command.stderr(Stdio::null()).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let fields = ["-T", "fields", "-e", "frame.number", "-e", "tcp.stream"].map(str::to_owned);
    let mut numbers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for line in run(&fields)?.lines() {
        let (frame, stream) = line.split_once('\t')?;
        if let Ok(stream) = stream.split(',').next_back().unwrap_or_default().parse() {
            numbers.entry(stream).or_default().push(frame.parse().ok()?);
        }
    }
    let follow = numbers.keys().flat_map(|at| ["-z".into(), format!("follow,tcp,raw,{at}")]);
    let text = run(&std::iter::once("-q".to_owned()).chain(follow).collect::<Vec<_>>())?;
    let mut streams = Vec::new();
    for part in text.split("Follow: tcp,raw").skip(1) {
        let number = part.split_once("tcp.stream eq ")?.1.lines().next()?.parse().ok()?;
        let frames = numbers.remove(&number)?;
        let mut bytes = [Vec::new(), Vec::new()];
        for line in part.lines().skip(4).take_while(|line| !line.starts_with('=')) {
            let direction = usize::from(line.starts_with('\t'));
            let digits = line.trim().as_bytes().chunks(2);
            let pairs = digits.filter_map(|pair| std::str::from_utf8(pair).ok());
            bytes[direction].extend(pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()));
        }
        streams.push((frames, bytes));
    }
    Some(streams)
}

/// Captures without gaps and ports used twice, and a string in some of their streams.
const SAMPLES: [(&str, &str); 5] = [
    ("snabb__lamernews.pcap", "lamernews.com"),
    ("ndpi__waze.pcap", "gpsonextra"),
    ("suricata__smtp-long-DATA-line.pcap", "AUTH LOGIN"),
    ("suricata__file76.pcap", "no-cache"),
    ("pcpp__tcp-reassembly.pcap", "crsspxl"),
];

/// With --conversation, the frames are those of the streams in which tshark finds the string.
#[test]
fn conversations_are_the_streams_of_tshark() {
    let corpus = Corpus::open();
    let Some(folder) = corpus.shared("traces/tcp-streams") else {
        return println!("skipped: no shared captures");
    };
    if Command::new("tshark").arg("-v").stdout(Stdio::null()).status().is_err() {
        return println!("skipped: no tshark");
    }
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("out.pcapng");
    for (name, text) in SAMPLES {
        let path = folder.join(name);
        let streams = tshark_streams(&path).unwrap();
        let has = |bytes: &Vec<u8>| bytes.windows(text.len()).any(|one| one == text.as_bytes());
        let matching = streams.iter().filter(|(_, sides)| sides.iter().any(has));
        let expected: BTreeSet<usize> =
            matching.flat_map(|(frames, _)| frames.iter().copied()).collect();
        let all = frames_of(&path);
        let expected: Vec<_> = expected.iter().map(|number| all[number - 1].clone()).collect();
        assert!(!expected.is_empty() && expected.len() <= all.len(), "{name}");
        let pattern = format!("{:?}", text);
        let (input, output) = (path.to_str().unwrap(), out.to_str().unwrap());
        succeeds(&["-r", input, "--payload", &pattern, "--conversation", "-w", output, "tcp"]);
        let got = frames_of(&out);
        assert!(got == expected, "{name}: {} frames, {} expected", got.len(), expected.len());
    }
}
