//! Commands are graphs: what `explain --graph` prints for a command line, `fyke run` runs with the same result.

use fyke_testkit::corpus::Corpus;
use std::process::{Command, Output};

fn fyke(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fyke")).args(args).output().expect("fyke runs")
}

fn out(args: &[&str]) -> Vec<u8> {
    let output = fyke(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}\n{error}");
    output.stdout
}

fn graph_of(args: &[&str]) -> String {
    let explained = out(&[&["explain", "--graph", "--"], args].concat());
    let text = String::from_utf8(explained).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_graph_of_a_dump_prints_what_the_dump_prints() {
    let Some(corpus) = Corpus::open() else { return };
    let path = corpus.path("traces/mixed/snabb__sanitized4k.pcap");
    let file = path.to_str().unwrap();
    for options in [
        &["-n"][..],
        &["-nevv", "-c", "7", "vlan and tcp"],
        &["-nqtt", "-c", "400", "vlan", "and", "ip6"],
        &["-#XXn", "-s", "40", "-c", "20"],
        &["-n", "--scoped", "tcp port 443 or icmp"],
        &["-n", "not (tcp[tcpflags] & (tcp-syn|tcp-ack) != 0) and not \"quoted\""],
    ] {
        let args = [&["dump", "-r", file], options].concat();
        let dumped = fyke(&args);
        if dumped.status.code() == Some(2) {
            // A wrong expression is wrong either way.
            let refused = fyke(&[&["explain", "--graph", "--"], &args[..]].concat());
            assert_eq!(refused.status.code(), Some(2), "{options:?}");
            assert_eq!(refused.stderr, dumped.stderr, "{options:?}");
            continue;
        }
        assert!(!dumped.stdout.is_empty(), "{options:?}");
        assert_eq!(out(&["run", "--no-control", &graph_of(&args)]), dumped.stdout, "{options:?}");
    }
}

#[test]
fn the_graph_of_a_dump_writes_what_the_dump_writes() {
    let Some(corpus) = Corpus::open() else { return };
    let path = corpus.path("traces/mixed/snabb__sanitized4k.pcap");
    let file = path.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (options, ending) in
        [(&["vlan"][..], "pcap"), (&["-s", "60", "ip6"], "pcapng"), (&["-c", "3"], "pcap")]
    {
        let (dumped, ran) = (name(&format!("dumped.{ending}")), name(&format!("ran.{ending}")));
        let args = |to| [&["dump", "-r", file, "-w", to], options].concat();
        out(&args(&dumped));
        out(&["run", "--no-control", &graph_of(&args(&ran))]);
        assert_eq!(std::fs::read(&dumped).unwrap(), std::fs::read(&ran).unwrap(), "{options:?}");
    }
}

#[test]
fn track_and_count_are_graphs_and_others_say_that_they_are_not() {
    let track = graph_of(&["track", "ftp", "-i", "lo", "-w", "a b.pcapng", "-c", "9"]);
    assert_eq!(
        track,
        "(device, expression=lo, buffer=16384, lookback=y) > {filter}(filter, expression=\"tcp \
         port ftp\", lookback=y) > (limit, expression=9) > {track}(track, expression=ftp, live=y) \
         > (tofile, expression=\"a b.pcapng\")"
    );
    let count = graph_of(&["dump", "--count", "-r", "x.pcap", "-p"]);
    let counts = "(pcapin, expression=x.pcap) > {filter}(filter) > (packetcount, export=y)";
    assert_eq!(count, counts);
    let refused = fyke(&["explain", "--graph", "--", "ctl", "list"]);
    assert_eq!(refused.status.code(), Some(2));
}
