//! Streams that a graph rewrites, across segments: the built command against frames that are built with the new bytes,
//! and tshark as the reader of streams and checksums.

use fyke_testkit::generate::talk::Talk;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use fyke_testkit::random::Random;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const HIDE: &str = "filter hide\n\
    before:* \"PASS \" word:[^\\r\\n]{1,64} rest:** => before \"PASS \" fill(word, \"x\") hide(rest);\n\
    * => accept;\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(rules: &str) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hide.rul"), rules).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn fyke(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
        command.current_dir(self.0.path()).args(args).stdin(Stdio::null());
        command.output().expect("fyke runs")
    }

    /// Rewrites frames; returns those that pass, and the counters of the node.
    fn rewrite(&self, frames: &[Vec<u8>], tcp: &str, more: &str) -> (Vec<Vec<u8>>, String) {
        // A frame each millisecond.
        let record = |(number, frame): (u64, &Vec<u8>)| pcap::Record {
            timestamp_ns: number * 1_000_000,
            wire_len: frame.len() as u32,
            data: frame.clone(),
        };
        let records: Vec<_> = (0..).zip(frames).map(record).collect();
        let file = pcap::encode(1, &records, pcap::Layout::default());
        std::fs::write(self.path("in.pcap"), file).unwrap();
        let graph = format!(
            "(pcapin, in.pcap) > (tcp{tcp}) > {{r}}(ruler, hide.rul, stream=y{more}) > (tofile, out.pcap)"
        );
        let output = self.fyke(&["run", "--stats", "--no-control", &graph]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        let (_, records) = pcap::read(&self.path("out.pcap"), usize::MAX).unwrap();
        (records.into_iter().map(|record| record.data).collect(), said)
    }
}

/// The stream with every word after `PASS ` hidden.
fn hidden(text: &[u8]) -> Vec<u8> {
    let mut new = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        if !text[at..].starts_with(b"PASS ") {
            at += 1;
            continue;
        }
        let word =
            text[at + 5..].iter().take(64).take_while(|byte| !b"\r\n".contains(byte)).count();
        new[at + 5..at + 5 + word].fill(b'x');
        at += if word == 0 { 1 } else { 5 + word };
    }
    new
}

fn lines(random: &mut Random) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..1 + random.below(8) {
        match random.below(4) {
            0 => text.extend_from_slice(b"USER someone\r\n"),
            1 => text.extend((0..random.below(40)).map(|_| b'a' + random.below(26) as u8)),
            _ => {
                text.extend_from_slice(b"PASS ");
                text.extend((0..random.below(80)).map(|_| b'a' + random.below(26) as u8));
                text.extend_from_slice(b"\r\n");
            }
        }
    }
    text
}

/// A conversation, and the same with new bytes in each segment.
fn pair(random: &mut Random, number: u8) -> [Talk; 2] {
    let port = 20_000 + u16::from(number);
    let ends = match number % 3 {
        0 => (([0xfd; 16].into(), port), ([0xfe; 16].into(), 21)),
        _ => (([10, 0, 0, number].into(), port), ([10, 0, 1, 1].into(), 21)),
    };
    // Some begin just below the end of the sequence space.
    let first = if random.chance(3) { u32::MAX - 100 } else { random.number() as u32 };
    let mut talk = Talk::new(Packet::ethernet(), ends.0, ends.1, [first, first ^ 0x3fff_0000]);
    talk.handshake();
    for _ in 0..2 {
        let (asks, tells) = (lines(random), lines(random));
        talk.segment_len(1 + random.below(30)).client(&asks).server(&tells);
    }
    let mut streams: HashMap<bool, (u32, Vec<u8>)> = HashMap::new();
    for piece in &talk.pieces {
        let begins = piece.sequence.wrapping_add(1);
        let (_, text) = streams.entry(piece.forward).or_insert((begins, Vec::new()));
        text.extend_from_slice(&piece.payload);
    }
    streams.values_mut().for_each(|(_, text)| *text = hidden(text));
    match number % 5 {
        0 => &mut talk,
        1 => talk.reordered(random),
        2 => talk.retransmitted(random),
        3 => talk.overlapping(random),
        _ => talk.overlapping(random).retransmitted(random).reordered(random),
    }
    .close();
    let mut new = talk.clone();
    for piece in &mut new.pieces {
        let (begins, text) = &streams[&piece.forward];
        let at = piece.sequence.wrapping_sub(*begins) as usize;
        let len = piece.payload.len();
        if len > 0 {
            piece.payload.copy_from_slice(&text[at..at + len]);
        }
    }
    [talk, new]
}

/// Frames of conversations, taken in turn.
fn together(talks: &[Talk]) -> Vec<Vec<u8>> {
    let all: Vec<Vec<Vec<u8>>> = talks.iter().map(Talk::frames).collect();
    let longest = all.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|at| all.iter().filter_map(move |one| one.get(at).cloned())).collect()
}

fn tshark(file: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(arguments).stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Every frame, with its checksums, is the one that would have been captured had the ends sent the new bytes.
#[test]
fn disordered_streams_are_rewritten_in_every_frame() {
    let (mut random, seed) = Random::seeded(27);
    println!("seed {seed}");
    let folder = Folder::new(HIDE);
    let pairs: Vec<[Talk; 2]> = (1..=30).map(|number| pair(&mut random, number)).collect();
    let [given, expected] = [0, 1]
        .map(|side| together(&pairs.iter().map(|pair| pair[side].clone()).collect::<Vec<_>>()));
    assert_ne!(given, expected);
    let (got, said) = folder.rewrite(&given, "", "");
    assert_eq!(got.len(), expected.len(), "{said}");
    for (number, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[54..]).into_owned();
        assert!(got == expected, "frame {number}: {:?} {:?}", shown(got), shown(expected));
    }
    let Some(bad) = tshark(
        &folder.path("out.pcap"),
        &[
            "-o",
            "tcp.check_checksum:TRUE",
            "-o",
            "ip.check_checksum:TRUE",
            "-Y",
            "tcp.checksum.status == 0",
        ],
    ) else {
        return println!("skipped: no tshark");
    };
    assert_eq!(bad, "");
    // Both directions of each stream as tshark puts them together, before and after.
    for number in ["0", "7", "13", "19"] {
        let follow = format!("follow,tcp,raw,{number}");
        let [before, after] = ["in.pcap", "out.pcap"].map(|name| {
            let text = tshark(&folder.path(name), &["-q", "-z", &follow]).unwrap();
            let mut streams = [Vec::new(), Vec::new()];
            for line in text.lines().filter(|line| !line.contains([' ', '='])) {
                let digits = line.trim().as_bytes().chunks(2);
                let byte =
                    |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                streams[usize::from(line.starts_with('\t'))].extend(digits.filter_map(byte));
            }
            streams
        });
        assert!(before.concat().windows(5).any(|bytes| bytes == b"PASS "), "{number}");
        assert_eq!(before.map(|text| hidden(&text)), after, "stream {number}");
    }
}

fn segment(sequence: u32, acknowledgement: u32, payload: &[u8]) -> Vec<u8> {
    let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, 21);
    packet.seq_ack(sequence, acknowledgement).flags(0x18).payload(payload).build()
}

/// Bytes that no stream has, or that nothing was searched with, do not pass; other packets are rewritten one by one.
#[test]
fn no_byte_passes_unsearched() {
    let folder = Folder::new(HIDE);
    let udp = |payload: &[u8]| {
        Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(payload).build()
    };
    let fragment = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(7, 0, true);
    let answer = Packet::ethernet().ipv4([10, 0, 0, 2], [10, 0, 0, 1]).tcp(21, 4000);
    let frames = [
        segment(100, 0, b"hello PASS se"),
        // Early; the bytes before it come after the other end has acknowledged them, and are skipped.
        segment(120, 0, b"later"),
        answer.seq_ack(500, 125).flags(0x10).build(),
        segment(113, 0, b"cret\r\n."),
        udp(b"PASS topsecret"),
        udp(b"nothing"),
        fragment.ip_payload(17, b"PASS fragment...").build(),
        // Repeated with more bytes than the stream has.
        segment(119, 0, b".laterPASS again\n"),
    ];
    let (got, said) = folder.rewrite(&frames, "", "");
    let expected = [
        segment(100, 0, b"hello PASS xx"),
        frames[1].clone(),
        frames[2].clone(),
        udp(b"PASS xxxxxxxxx"),
        frames[5].clone(),
    ];
    assert_eq!(got, expected, "{said}");
    // The late one, the fragment and the last.
    assert!(said.contains("= 5 passed + 3 rejected"), "{said}");
}

/// A frame with the beginning of a match waits in a fixed memory; one that is let go does not pass.
#[test]
fn waiting_frames_are_bounded() {
    let folder = Folder::new(HIDE);
    let mut frames = vec![segment(100, 0, b"PASS se")];
    let other = |number: u16| {
        Packet::ethernet().ipv4([10, 0, 0, 3], [10, 0, 0, 4]).udp(number, 53).payload(b"?").build()
    };
    frames.extend((1..50).map(other));
    frames.push(segment(107, 0, b"cret\r\n"));
    let (got, said) = folder.rewrite(&frames, "", ", waiting=4000");
    assert_eq!(got.len(), 50, "{said}");
    assert!(
        !got.iter().any(|frame| frame.ends_with(b"se") || frame.ends_with(b"cret\r\n")),
        "{said}"
    );
    // As soon as time has passed.
    assert_eq!(folder.rewrite(&frames, "", ", wait=0").0.len(), 50);
    let (got, said) = folder.rewrite(&frames, "", "");
    assert_eq!(got.len(), 51, "{said}");
    assert_eq!(got[0], segment(100, 0, b"PASS xx"));
    assert_eq!(got[50], segment(107, 0, b"xxxx\r\n"));
}

#[test]
fn other_rules_are_refused_when_the_graph_is_checked() {
    let folder = Folder::new(HIDE);
    let check = |graph: &str| {
        let output = folder.fyke(&["run", "--check", graph]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let one = |rules: &str, more: &str| {
        std::fs::write(folder.path("rules.rul"), rules).unwrap();
        check(&format!(
            "(pcapin, in.pcap) > (tcp) > (ruler, rules.rul, stream=y{more}) > (tofile, out.pcap)"
        ))
    };
    assert_eq!(one(HIDE, "").0, Some(0), "{:?}", one(HIDE, ""));
    for (rules, more, expected) in [
        (HIDE.replace("\"PASS \" fill", "\"P \" fill").as_str(), "", "keep their lengths"),
        (&HIDE.replace("{1,64}", "+"), "", "at most 4096 bytes"),
        (&HIDE.replace("* => accept;", ""), "", "then `* => accept`"),
        (HIDE, ", conversation=y", "every frame passes"),
        (HIDE, ", flow_waiting=9", "waiting="),
        ("filter a for EN10MB: * => accept;", "", "streams have none"),
    ] {
        let (code, said) = one(rules, more);
        assert!(code == Some(2) && said.contains(expected), "{rules}: {code:?} {said}");
    }
    for (graph, expected) in [
        ("(tcp, payload=y) > (ruler, hide.rul, stream=y)", "`tcp` without `payload=y`"),
        ("(tcp) > !(ruler, hide.rul, stream=y)", "lets frames wait"),
        ("(tcp) > (ruler, hide.rul, stream=y) > (strsearch, x, stream=y)", "makes other frames"),
    ] {
        let (code, said) = check(&format!("(pcapin, in.pcap) > {graph} > (tofile, out.pcap)"));
        assert!(code == Some(2) && said.contains(expected), "{graph}: {code:?} {said}");
    }
}
