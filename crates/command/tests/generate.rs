//! `fyke generate`: the frames that it reports are those that arrive, at any size; interfaces of the host are refused.

use fyke_lab::net::{World, WorldError};
use fyke_testkit::namespace::Script;
use fyke_testkit::skip::unless_missing;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn generate(words: &[&str]) -> Output {
    Command::new(FYKE).arg("generate").args(words).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The objects that a run prints; none if the system permits no namespaces.
fn objects(words: &[&str]) -> Option<Vec<Value>> {
    unless_missing(World::create(1, 1), WorldError::is_refused)?;
    let output = generate(&[words, &["--json"]].concat());
    assert!(output.status.success(), "{}", told(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn what_is_sent_arrives() {
    for more in [&[][..], &["--direct"], &["--threads", "3"], &["--rate", "40000"]] {
        let words = ["--count", "20000", "--sizes", "64-1520", "--flows", "100"];
        let Some(all) = objects(&[&words, more].concat()) else { return };
        let [one] = &all[..] else { panic!("{all:?}") };
        assert_eq!((&one["sent"], &one["arrived"]), (&20_000.into(), &20_000.into()), "{one}");
        let bytes = one["bytes"].as_u64().unwrap();
        assert!((20_000 * 64..=20_000 * 1_520).contains(&bytes), "{one}");
        assert!(one["seconds"].as_f64() > Some(0.0) && one["rate"].as_f64() > Some(0.0), "{one}");
    }
}

#[test]
fn a_rate_for_a_time_is_not_exceeded() {
    let Some(all) = objects(&["--rate", "2000", "--for", "500ms", "--size", "512"]) else { return };
    let sent = all[0]["sent"].as_u64().unwrap();
    assert!((1..=1_000).contains(&sent), "{all:?}");
    assert_eq!(all[0]["bytes"].as_u64(), Some(sent * 512), "{all:?}");
}

#[test]
fn a_sweep_has_all_sizes_and_every_frame_arrives() {
    let Some(all) = objects(&["--sweep", "--count", "3000"]) else { return };
    let sizes: Vec<_> = all.iter().map(|row| row["size"].as_str().unwrap()).collect();
    assert_eq!(sizes, ["64", "128", "256", "512", "1024", "1280", "1520"]);
    for row in &all {
        assert_eq!((&row["sent"], &row["arrived"]), (&3_000.into(), &3_000.into()), "{row}");
    }
    let output = generate(&["--sweep", "--count", "100"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(table.lines().count(), 8, "{table}");
    assert!(table.contains("frames/s") && table.contains(" 1520 "), "{table}");
}

/// Generates on an interface of a namespace while a capture on the other end, and one on the same interface, count.
const SCRIPT: &str = r#"
    set -eu
    veth
    "$FYKE" dump -i far -w far.pcap 2> far.log &
    one=$!
    "$FYKE" dump -i near -w near.pcap 2> near.log &
    two=$!
    for id in $one $two; do wait_for "$FYKE" ctl --pid $id show; done
    "$FYKE" generate -i near --count 900 --sizes imix --vlan 7 --protocol both --flows 30 > out.txt
    "$FYKE" generate -i near --count 1 --size 1515 > long.txt 2>&1 && exit 3
    "$FYKE" generate -i none --count 1 > none.txt 2>&1 && exit 4
    "$FYKE" generate -i lo --count 1 --size 60 > down.txt 2>&1 && exit 5
    ip link set lo up
    "$FYKE" generate -i lo --count 5 --size 9216 > lo.txt
    "$FYKE" generate -i near --sweep --count 20 > sweep.txt
    "$FYKE" generate -i near --rate 1000 --size 70 > interrupted.txt &
    three=$!
    sleep 0.5
    kill -INT $three
    wait $three
    sleep 0.5
    kill -INT $one $two
    wait $one $two
"#;

fn count(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new(FYKE);
    let output = command.args(["dump", "--count"]).args(words).current_dir(folder).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", told(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn captures_see_the_frames_as_they_were_ordered() {
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = Script::new(FYKE, folder.path()).run(SCRIPT) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(output.status.success(), "{:?}: {}", output.status, told(&output));
    let line = read("out.txt");
    assert!(line.starts_with("900 frames, ") && line.contains("0 calls refused"), "{line}");
    for file in ["far.pcap", "near.pcap"] {
        let of = |text: &str| count(folder.path(), &["-r", file, text]);
        assert_eq!(of("vlan 7"), "900", "{file}");
        assert_eq!(of("vlan 7 and net 198.18.0.0/15 and (udp or tcp)"), "900", "{file}");
        assert_eq!(of("vlan 7 and tcp port 9"), "450", "{file}");
        assert_eq!(of("vlan 7 and (len = 60 or len = 590 or len = 1514)"), "900", "{file}");
    }
    assert!(read("long.txt").contains("mtu 1501"), "{}", read("long.txt"));
    assert!(read("none.txt").contains("no interface none"), "{}", read("none.txt"));
    assert!(read("down.txt").contains("ip link set lo up"), "{}", read("down.txt"));
    assert!(read("lo.txt").starts_with("5 frames, 46080 bytes"), "{}", read("lo.txt"));
    let table = read("sweep.txt");
    let sizes = table.lines().skip(1).map(|row| row.split_whitespace().next().unwrap());
    // The MTU is 1500.
    assert_eq!(sizes.last(), Some("1514"), "{table}");
    let line = read("interrupted.txt");
    let number = |at: usize| line.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
    assert!(number(0) > 0 && number(2) == 70 * number(0), "{line}");
    let seen: u64 = count(folder.path(), &["-r", "far.pcap", "len = 70"]).parse().unwrap();
    assert_eq!(seen, number(0), "{line}");
}

/// A container: its namespace is that of its process 1, and another one is made in it.
const CONTAINER: &str = r#"
    set -eu
    mount -t proc proc /proc
    veth
    "$FYKE" generate -i near --count 1 > first.txt 2>&1 && exit 3
    "$FYKE" generate --count 10 --json > pair.txt
"#;

#[test]
fn the_namespace_of_process_1_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::new(FYKE, folder.path()).as_root().own_mounts();
    let Some(output) = script.run(CONTAINER) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(output.status.success(), "{:?}: {}", output.status, told(&output));
    assert!(read("first.txt").contains("process 1"), "{}", read("first.txt"));
    assert!(read("pair.txt").contains("\"arrived\":10,"), "{}", read("pair.txt"));
}

/// The name of an interface of the host that is not its loopback.
fn interface_of_the_host() -> Option<String> {
    let names = std::fs::read_dir("/sys/class/net").ok()?.flatten();
    let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.find(|name| {
        let kind = std::fs::read_to_string(format!("/sys/class/net/{name}/type"));
        kind.is_ok_and(|kind| kind.trim() == "1")
    })
}

#[test]
fn interfaces_of_the_host_are_refused_before_anything_is_sent() {
    let Some(name) = interface_of_the_host() else {
        return println!("skipped: this machine has no Ethernet interface");
    };
    let counter = format!("/sys/class/net/{name}/statistics/tx_packets");
    assert!(Path::new(&counter).exists());
    for more in [&[][..], &["--direct"], &["--sweep"]] {
        let words = [&["-i", &name, "--count", "1"][..], more].concat();
        let output = generate(&words);
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        assert!(told(&output).contains("network namespace"), "{}", told(&output));
        assert!(output.stdout.is_empty() || more == ["--sweep"], "{output:?}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    for (words, why) in [
        (&["--rate", "0"][..], "`max`"),
        (&["--size", "59"], "64-1520"),
        (&["--sizes", "1520-64"], "imix"),
        (&["--for", "0s"], "500ms"),
        (&["--flows", "0"], "65536"),
        (&["--vlan", "4096"], "4095"),
        (&["--threads", "17"], "16"),
        (&["--mac", "1:2:3"], "02:00:00:00:00:02"),
        (&["--netns", "blue"], "--interface"),
        (&["--sweep", "--size", "64"], "--sweep"),
        (&["--count", "1", "--flows", "65536", "--size", "9216"], "fewer flows"),
    ] {
        let output = generate(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", told(&output));
        assert!(told(&output).contains(why), "{words:?}: {}", told(&output));
    }
}
