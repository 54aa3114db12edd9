//! The benches that run the built command as a process, at smoke size: every figure is there and plausible, and all
//! programs find the same frames. `live` needs root and namespaces; a program that is not installed is left out.

use fyke_lab::net::{World, WorldError};
use fyke_testkit::skip::unless_missing;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn bench(words: &[&str], temporary: &Path) -> Output {
    let mut command = Command::new(FYKE);
    command.arg("bench").args(words).env("TMPDIR", temporary).output().unwrap()
}

/// The measurements of a bench at smoke size; it leaves no files.
fn measured(name: &str, more: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let words: Vec<&str> = [name, "--smoke", "--json"].iter().chain(more).copied().collect();
    let output = bench(&words, folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    print!("{said}");
    assert!(output.status.success(), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files are left");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn figure(all: &[Value], case: &str, engine: &str, setting: &str) -> Option<f64> {
    let is_it = |one: &&Value| {
        let has = |key: &str, text: &str| one[key].as_str().is_some_and(|it| it.contains(text));
        one["case"] == case && one["engine"] == engine && has("setting", setting)
    };
    all.iter().find(is_it)?["value"].as_f64()
}

fn accepted(all: &[Value], case: &str) -> Vec<u64> {
    let of = all.iter().filter(|one| one["case"] == case);
    let mut found: Vec<_> = of.filter_map(|one| one["accepted"].as_u64()).collect();
    found.dedup();
    found
}

#[test]
fn dynamic_takes_rates_and_a_duration() {
    let folder = tempfile::tempdir().unwrap();
    let refused = bench(&["calls", "--smoke", "--rate", "5"], folder.path());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("bench dynamic"), "{said}");
    if unless_missing(World::create(1, 1), WorldError::is_refused).is_none() {
        return;
    }
    let words = ["--case", "ftp", "--engine", "fyke-user", "--rate", "300,900", "--seconds", "1"];
    let all = measured("dynamic", &words);
    for rate in ["300/s wanted", "900/s wanted"] {
        let of = |case: &str| figure(&all, case, "fyke-user", rate);
        assert_eq!(of("connections captured"), Some(6.0), "{all:?}");
        assert!(of("background reached") > Some(0.0), "{all:?}");
    }
}

#[test]
fn the_product_follows_ftp_and_sip_beside_background_and_its_sums_close() {
    if unless_missing(World::create(1, 1), WorldError::is_refused).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (csv, plots) = (folder.path().join("d.csv"), folder.path().join("plots"));
    let words = ["--case", "ftp", "--case", "sip", "--rates", "2000,5000", "--seconds", "2"];
    let more =
        ["--sessions", "3x4", "--engine", "fyke-track", "--engine", "fyke-track-no-look-back"];
    let files = ["--csv", csv.to_str().unwrap(), "--plot", plots.to_str().unwrap()];
    let all = measured("dynamic", &[&words[..], &more, &files].concat());
    for (engine, looks_back) in [("fyke-track", true), ("fyke-track-no-look-back", false)] {
        for rate in ["2000/s wanted", "5000/s wanted"] {
            let of = |case: &str| figure(&all, case, engine, &format!("12 connections, {rate}"));
            assert_eq!(of("connections captured"), Some(12.0), "{engine} {rate}: {all:?}");
            let [sent, captured, missed] = ["sent", "captured", "missed"]
                .map(|what| of(&format!("packets of data connections {what}")).unwrap());
            assert!(sent > 12.0 * 100.0 && sent == captured + missed, "{sent} {captured} {missed}");
            assert!(!looks_back || missed == 0.0, "{missed} missed of {sent}");
            for case in ["wrong verdicts", "updates refused", "frames without an outcome", "lost"] {
                assert_eq!(of(case), Some(0.0), "{engine} {rate}: {case}");
            }
            assert!(of("background reached") > Some(0.0) && of("update p50") > Some(0.0));
            // Two seconds at 50 calls a second, with 12 packets each.
            let of = |case: &str| figure(&all, &format!("sip, {case}"), engine, rate);
            assert_eq!(of("packets of calls sent"), Some(1_200.0), "{all:?}");
            let missed = of("packets missed").unwrap();
            assert_eq!(of("packets captured"), Some(1_200.0 - missed), "{engine} {rate}");
            assert!(!looks_back || missed == 0.0, "{missed} missed");
            for case in ["frames without an outcome", "lost", "packets captured after the end"] {
                assert_eq!(of(case), Some(0.0), "{engine} {rate}: {case}");
            }
        }
    }
    let text = std::fs::read_to_string(csv).unwrap();
    assert!(text.contains(",\"12 connections, 2000/s wanted\","), "{text}");
    for name in ["update", "missed", "reached", "sip-update", "sip-missed"] {
        let svg = std::fs::read_to_string(plots.join(format!("dynamic-rates-{name}.svg")));
        let svg = svg.unwrap();
        assert!(svg.contains("2000, 5000") && svg.matches("<polyline").count() == 2, "{svg}");
    }
}

#[test]
fn generate_sweeps_the_sizes_and_draws_a_curve() {
    if unless_missing(World::create(1, 1), WorldError::is_refused).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let all = measured("generate", &["--plot", folder.path().to_str().unwrap()]);
    for engine in ["udp", "tcp", "udp-threads"] {
        for size in ["64 bytes", "512 bytes", "1520 bytes"] {
            assert!(figure(&all, "sweep, frames", engine, size) > Some(0.0), "{engine} {size}");
        }
    }
    let svg = std::fs::read_to_string(folder.path().join("generate-frames.svg")).unwrap();
    assert_eq!(svg.matches("<polyline").count(), 3, "{svg}");
}

#[test]
fn live_measures_every_engine_and_edits_lose_nothing() {
    if unless_missing(World::create(1, 1), WorldError::is_refused).is_none() {
        return;
    }
    let all = measured("live", &[]);
    assert_eq!(accepted(&all, "all-tmpfs"), [6_000], "{all:?}");
    // One frame in 256 of 1,000 and of 5,000.
    assert_eq!(accepted(&all, "pairs-100"), [24], "{all:?}");
    for engine in ["fyke", "af_packet"] {
        for case in ["all-tmpfs", "pairs-100"] {
            let own = figure(&all, case, engine, "of the process");
            assert!(own.is_some_and(|ns| (0.0..1e6).contains(&ns)), "{case} {engine} {own:?}");
            assert_eq!(figure(&all, case, engine, "lost"), Some(0.0), "{case} {engine}");
        }
        assert!(figure(&all, "first-loss", engine, "without a pause") > Some(100.0));
    }
    let alone = figure(&all, "all-tmpfs", "none", "without a capture");
    assert!(alone > Some(0.0), "{alone:?}");
    let start = figure(&all, "start", "fyke", "first frame");
    assert!(start.is_some_and(|ms| ms > 0.1 && ms < 20_000.0), "{start:?}");
    for (case, expected) in
        [("lost", 0.0), ("missing or wrong", 0.0), ("additions without a frame", 0.0)]
    {
        let found = figure(&all, &format!("edits, {case}"), "fyke", "50 edits");
        assert_eq!(found, Some(expected), "{case}");
    }
    assert!(figure(&all, "edits, latency p50", "fyke", "50 edits") > Some(0.0));
    for setting in ["1 worker", "2 workers", "2 workers, over one"] {
        assert!(figure(&all, "workers", "fyke", setting) > Some(0.0), "{setting}: {all:?}");
    }
}

#[test]
fn share_measures_readers_beside_tcpdump() {
    if unless_missing(World::create(1, 1), WorldError::is_refused).is_none() {
        return;
    }
    let all = measured("share", &[]);
    // One frame in 4 of 1,000 and of 4,000; every frame for both readers.
    assert_eq!(accepted(&all, "own-2"), [1_250], "{all:?}");
    assert_eq!(accepted(&all, "all-2"), [10_000], "{all:?}");
    for case in ["own-2", "all-2"] {
        for engine in ["fyke", "serve"] {
            let own = figure(&all, case, engine, "of the processes");
            assert!(own.is_some_and(|ns| (0.0..1e6).contains(&ns)), "{case} {engine} {own:?}");
            assert_eq!(figure(&all, case, engine, "lost"), Some(0.0), "{case} {engine}");
        }
    }
    // Left out, with a note, without tcpdump or the library.
    if figure(&all, "all-2", "drop-in", "of the processes").is_some() {
        let ratio = figure(&all, "all-2", "drop-in", "of the readers, of tcpdump's");
        assert!(ratio.is_some_and(|ratio| ratio > 0.0), "{ratio:?}");
        assert_eq!(figure(&all, "own-2", "drop-in", "lost"), Some(0.0));
    }
    for engine in ["fyke", "serve"] {
        // A frame of 100 bytes and its head, once for both readers.
        let stored = figure(&all, "all-2", engine, "stored by the writer");
        assert!(stored.is_some_and(|bytes| (100.0..150.0).contains(&bytes)), "{stored:?}");
        let ratio = figure(&all, "all-2", engine, "stored, of one reader's");
        assert!(ratio.is_some_and(|ratio| (0.99..1.01).contains(&ratio)), "{engine} {ratio:?}");
        let idle = figure(&all, "all-2", engine, "while no frame arrives");
        assert!(idle.is_some_and(|percent| (0.0..50.0).contains(&percent)), "{idle:?}");
        assert_eq!(figure(&all, "stop", engine, "lost by the others"), Some(0.0), "{engine}");
        assert_eq!(figure(&all, "join", engine, "lost by the others"), Some(0.0), "{engine}");
        assert!(figure(&all, "join", engine, "to connect, median") > Some(0.0), "{engine}");
    }
}

#[test]
fn scan_measures_every_program_and_they_agree() {
    let all = measured("scan", &["--rounds", "1"]);
    assert_eq!(accepted(&all, "count"), [5_000], "{all:?}");
    assert_eq!(accepted(&all, "write"), [1_000], "{all:?}");
    for case in ["count", "write", "print", "gunzip"] {
        for what in ["by the clock", "processor time"] {
            let setting = format!("page cache, 1 core, {what}");
            let found = figure(&all, case, "fyke", &setting);
            assert!(found.is_some_and(|ns| ns > 0.0), "{case} {what}: {found:?}");
        }
    }
    assert!(figure(&all, "count", "read", "page cache, 1 core, by the clock") > Some(0.0));
}

#[test]
fn a_trace_of_the_user_is_scanned_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("three.pcap");
    let packet = fyke_testkit::packet::Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let frames = vec![packet.udp(4_000, 5_001).payload(&[7; 100]).build(); 3];
    std::fs::write(&file, fyke_testkit::pcap::file(1, &frames)).unwrap();
    let all = measured("scan", &["--trace", file.to_str().unwrap(), "--case", "write"]);
    assert_eq!(accepted(&all, "write"), [3], "{all:?}");
    assert!(file.exists());
}

#[test]
fn options_that_these_benches_do_not_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (words, why) in [
        (&["static", "--rounds", "3"][..], "scan, live, share"),
        (&["live", "--trace", "x.pcap"], "--trace"),
        (&["live", "--sessions", "2x2"], "bench dynamic"),
        (&["dynamic", "--sessions", "251x1"], "250"),
        (&["dynamic", "--sessions", "10"], "10x20"),
        (&["scan", "--case", "nothing"], "count, write"),
        (&["scan", "--engine", "nothing"], "tshark"),
        (&["live", "--rounds", "0"], "0"),
    ] {
        let output = bench(words, folder.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let output = bench(&["scan", "--trace", "/no/such/file.pcap"], folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/no/such/file.pcap"), "{said}");
}
