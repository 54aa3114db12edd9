//! `fyke ruler` in typical use: check, run and dot; one key for several files; secrets that must never be printed.

use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn fyke(args: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_fyke");
    Command::new(command).args(args).stdin(Stdio::null()).output().expect("fyke runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(args: &[&str]) -> Output {
    let output = fyke(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    output
}

/// A little-endian pcap file of Ethernet frames.
fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut file = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(262_144u32.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
        file.extend([[0; 4], [0; 4], length, length].concat());
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}

fn http(host: [u8; 4], line: &str) -> Vec<u8> {
    let text = format!("GET /{line} HTTP/1.1\r\nHost: secret.example\r\nCookie: id=4711\r\n\r\n");
    Packet::ethernet().ipv4(host, [192, 0, 2, 9]).tcp(4321, 80).payload(text.as_bytes()).build()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.name(name)
    }
}

#[test]
fn check_tells_costs_and_warnings_and_refuses_what_is_wrong() {
    let folder = Folder::new();
    let good = folder.write(
        "good.rul",
        "filter web * \"GET \" * => accept 1; * \"GET /x\" * => accept 2; * \"GET \" [a-z] * => accept 3;",
    );
    let out = text(&succeeds(&["ruler", "check", &good]).stdout);
    assert!(out.starts_with("web: rules 3, "), "{out}");
    assert!(out.contains("compiled in ") && out.contains("this rule never wins"), "{out}");

    let slow = folder.write("slow.rul", "filter slow * [ab] .{20} [cd] => accept;");
    let out = text(&succeeds(&["ruler", "check", &slow]).stdout);
    assert!(out.contains("slow.rul:1: over the limit on states"), "{out}");
    assert!(out.contains("slow.rul:1: this rule may match anywhere"), "{out}");
    let large = folder.write("large.rul", "filter large \"x\" ([a-f]{1,9} [0-9]){500} => accept;");
    let out = text(&succeeds(&["ruler", "check", &large]).stdout);
    assert!(out.contains("large.rul:1: this rule has 10001 positions"), "{out}");

    let wrong = folder.write("wrong.rul", "filter f\n  \"abc\" => acept;\n");
    let output = fyke(&["ruler", "check", &wrong]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("wrong.rul:2:") && message.contains('^'), "{message}");
    assert_eq!(fyke(&["ruler", "check", &folder.name("none.rul")]).status.code(), Some(1));
}

#[test]
fn run_prints_verdicts_that_add_up_to_all_frames() {
    let folder = Folder::new();
    let rules = folder.write(
        "web.rul",
        "filter web * \"GET /a\" * => accept 7; * \"/b\" * => reject; h:.#14 r:* \"/c\" * => r h;",
    );
    let lines = ["a", "b", "c", "a", "d"];
    let frames: Vec<Vec<u8>> = lines.iter().map(|line| http([10, 0, 0, 1], line)).collect();
    write_pcap(&folder.path("in.pcap"), &frames);
    let input = folder.name("in.pcap");
    let out = text(&succeeds(&["ruler", "run", &rules, "-r", &input]).stdout);
    assert_eq!(out, "reject\t2\naccept 7\t2\nrewrite\t1\n");
    let out = text(&succeeds(&["ruler", "run", &rules, "-r", &input, "--count"]).stdout);
    assert_eq!(out, "3\n");
    let out = text(&succeeds(&["ruler", "run", &rules, "-r", &input, "--each"]).stdout);
    assert_eq!(out.lines().count(), 5);
    assert!(out.starts_with("1\tweb\taccept 7\n2\tweb\treject\n3\tweb\trewrite\n"), "{out}");
    let written = folder.name("out.pcap");
    succeeds(&["ruler", "run", &rules, "-r", &input, "-w", &written]);
    let (_, records) = pcap::read(Path::new(&written), 10).expect("a pcap file");
    let lens: Vec<usize> = records.iter().map(|record| record.data.len()).collect();
    let at = frames[2].windows(2).position(|window| window == b"/c").unwrap();
    assert_eq!(lens, [frames[0].len(), at, frames[3].len()]);
    assert_eq!(records[1].data[at - 14..], frames[2][..14]);
}

/// Several filters: all of them run on every frame in one pass, each with the same verdict as alone.
#[test]
fn filters_run_together_and_answer_as_alone() {
    let folder = Folder::new();
    let rules = folder.write(
        "three.rul",
        "filter web * \"GET /a\" * => accept 7; * \"GET\" * => accept 8;
         filter dots * \"/b\" * => reject; h:.#14 r:* \"/c\" * => r h; .#14 b\"0100....\" * => accept;
         filter late * \"/d\" .{0,40} => accept 1;",
    );
    let frames: Vec<Vec<u8>> =
        ["a", "b", "c", "a", "d"].iter().map(|line| http([10, 0, 0, 1], line)).collect();
    write_pcap(&folder.path("in.pcap"), &frames);
    let input = folder.name("in.pcap");
    let all = text(&succeeds(&["ruler", "run", &rules, "-r", &input, "--each"]).stdout);
    assert_eq!(all.lines().count(), 15, "{all}");
    for name in ["web", "dots", "late"] {
        let args = ["ruler", "run", &rules, "-r", &input, "--each", "--filter", name];
        let alone = text(&succeeds(&args).stdout);
        let of = |line: &&str| line.split('\t').nth(1) == Some(name);
        assert_eq!(all.lines().filter(of).collect::<Vec<_>>(), alone.lines().collect::<Vec<_>>());
    }
    let checked = text(&succeeds(&["ruler", "check", &rules]).stdout);
    assert!(checked.contains("together (web, dots, late): automata 1, "), "{checked}");
    let output = fyke(&["ruler", "run", &rules, "-r", &input, "-w", &folder.name("out.pcap")]);
    assert_eq!(output.status.code(), Some(2), "two filters would write one frame");
}

#[test]
fn one_key_gives_one_answer_in_all_files_and_is_never_printed() {
    let folder = Folder::new();
    let digits = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
    let key = folder.write("key", digits);
    let other = folder.write("other", &digits.replace('0', "5"));
    let shared = http([10, 9, 8, 7], "private");
    write_pcap(&folder.path("a.pcap"), std::slice::from_ref(&shared));
    write_pcap(&folder.path("b.pcap"), &[http([10, 9, 8, 6], "x"), shared.clone()]);
    let hide = |key: &str, input: &str, output: &str| {
        let (input, output) = (folder.name(input), folder.name(output));
        let args =
            ["ruler", "run", "anonymise.rul", "-r", &input, "-w", &output, "--key-file", key];
        let done = succeeds(&args);
        let said = text(&done.stdout) + &text(&done.stderr);
        assert!(said.contains("changed: "), "{said}");
        let secrets = [digits, &digits[..16], "00 11 22", "secret", "4711", "private"];
        assert!(secrets.iter().all(|secret| !said.contains(secret)), "{said}");
        let (_, records) = pcap::read(Path::new(&output), 10).expect("a pcap file");
        records.into_iter().map(|record| record.data).collect::<Vec<_>>()
    };
    let first = hide(&key, "a.pcap", "a.out.pcap");
    let second = hide(&key, "b.pcap", "b.out.pcap");
    assert_eq!(first[0], second[1], "the same frame in another file");
    assert_ne!(first[0], hide(&other, "a.pcap", "c.out.pcap")[0], "another key");
    // Neighbouring addresses stay neighbours: 31 bits of the source addresses are the same.
    assert_eq!(first[0][26..29], second[0][26..29]);
    assert_eq!((first[0][29] ^ second[0][29]), 1);
    for secret in [&shared[26..30], b"secret", b"4711", b"private"] {
        assert!(!first[0].windows(secret.len()).any(|window| window == secret));
    }

    let short = folder.write("short", "0011");
    let input = folder.name("a.pcap");
    let output = fyke(&["ruler", "run", "anonymise.rul", "-r", &input, "--key-file", &short]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("64 hexadecimal digits") && !message.contains("0011"), "{message}");
}

/// Published Crypto-PAn keeps some addresses; the default keeps none, and the report counts both.
#[test]
fn the_report_counts_what_was_changed_and_says_what_identifies() {
    let folder = Folder::new();
    let key = folder.write("key", &"0f1e2d3c4b5a69788796a5b4c3d2e1f0".repeat(2));
    // All first bytes many times over, so that some address is a fixed point of the published function.
    let frames: Vec<Vec<u8>> = (0..60_000u32)
        .map(|number| {
            let [a, b, c, d] = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
            let packet = Packet::ethernet().ipv4([a, b, c, d], [10, 0, 0, 1]).udp(1, 2);
            packet.payload(b"secret").build()
        })
        .collect();
    write_pcap(&folder.path("in.pcap"), &frames);
    let run = |rules: &str, json: bool| {
        let (input, output) = (folder.name("in.pcap"), folder.name("out.pcap"));
        let mut args = vec!["ruler", "run", rules, "-r", &input, "-w", &output];
        args.extend(["--key-file", &key, "--report"]);
        args.extend(json.then_some("--json"));
        let done = succeeds(&args);
        let (_, records) = pcap::read(&folder.path("out.pcap"), frames.len()).expect("a pcap file");
        let same = |(old, new): &(&Vec<u8>, pcap::Record)| old[26..30] == new.data[26..30];
        let kept = frames.iter().zip(records).filter(same).count();
        (kept, text(&done.stdout), text(&done.stderr))
    };
    let (kept, _, said) = run("anonymise.rul", false);
    assert_eq!(kept, 0);
    for part in ["60000 rewritten, 0 passed unchanged", "120000 changed, 0 as before", "timestamps"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (kept, _, said) = run("anonymise-cryptopan.rul", false);
    assert!(kept > 0, "{said}");
    assert!(said.contains(&format!("{} changed, {kept} as before", 120_000 - kept)), "{said}");
    let (_, out, _) = run("anonymise.rul", true);
    let line = out.lines().find(|line| line.contains("\"report\"")).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(line).unwrap();
    let fields = report["report"]["fields"].as_array().unwrap();
    let mac = fields.iter().find(|one| one["function"] == "mac").unwrap();
    assert_eq!((&mac["values"], &mac["left"]), (&120_000.into(), &0.into()), "{line}");
    assert!(report["report"]["still_identifies"].as_array().unwrap().len() > 5);
}

/// Figure 6.2 of the thesis: `*hello*` has six states.
#[test]
fn dot_draws_the_automaton_of_the_thesis() {
    let folder = Folder::new();
    let rules = folder.write("hello.rul", "filter hello * \"hello\" * => accept;");
    let out = text(&succeeds(&["ruler", "dot", &rules]).stdout);
    assert!(out.starts_with("digraph \"hello\" {") && out.ends_with("}\n"), "{out}");
    let states = out
        .lines()
        .filter(|line| line.trim_start().starts_with('s') && line.contains("shape=circle"));
    assert_eq!(states.count(), 6, "{out}");
    let two = folder.write("two.rul", "filter a \"x\" => accept; filter b \"y\" => accept;");
    assert_eq!(fyke(&["ruler", "dot", &two]).status.code(), Some(2));
    assert!(
        text(&succeeds(&["ruler", "dot", &two, "--filter", "b"]).stdout).contains("digraph \"b\"")
    );
}

/// After the filter, only the payload decides; headers do not count.
#[test]
fn dump_looks_into_payloads() {
    let folder = Folder::new();
    let lines = ["abc", "b", "abd", "x"];
    // A connection each.
    let frames = (1..).zip(lines).map(|(host, line)| http([10, 0, 0, host], line));
    write_pcap(&folder.path("in.pcap"), &frames.collect::<Vec<_>>());
    let input = folder.name("in.pcap");
    let count = |more: &[&str]| {
        let mut args = vec!["dump", "--count", "-nr", &input];
        args.extend(more);
        text(&succeeds(&args).stdout)
    };
    assert_eq!(count(&["--payload", "\"GET /ab\" [c-e]"]), "2\n");
    assert_eq!(count(&["--payload", "\"get /\"i", "port 80"]), "4\n");
    assert_eq!(count(&["--payload", "\"GET /\"", "port 81"]), "0\n");
    // The addresses are in the header.
    assert_eq!(count(&["--payload", "10.0.0.1"]), "0\n");
    let output = fyke(&["dump", "-r", &input, "--payload", "\"GET"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains('^'), "{message}");
}
