//! Commands are graphs: `fyke run` runs the output of `explain --graph` with the same result as the command.

use fyke_testkit::corpus::Corpus;
use fyke_testkit::namespace::Script;
use std::path::Path;
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
    for path in Corpus::open().busy() {
        prints_alike(path.to_str().unwrap());
    }
}

fn prints_alike(file: &str) {
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
            // An invalid expression is refused by both.
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
    for path in Corpus::open().busy() {
        writes_alike(path.to_str().unwrap());
    }
}

fn writes_alike(file: &str) {
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
        "(device, expression=lo, buffer=32768, lookback=y) > {rules}(bloom, own=y) > \
         {filter}(filter, \
         expression=\"tcp port ftp or (ip[0] & 0xf0 = 0x40 and ip[6:2] & 0x1fff != 0) or ip6 proto 44\", \
         live=y, tags=skip, lookback=y) > (limit, expression=9) > \
         {track}(track, expression=ftp, live=y, fragments=y) > (tofile, expression=\"a b.pcapng\")"
    );
    let count = graph_of(&["dump", "--count", "-r", "x.pcap"]);
    let counts = "(pcapin, expression=x.pcap) > {filter}(filter) > (packetcount, export=y)";
    assert_eq!(count, counts);
    let refused = fyke(&["explain", "--graph", "--", "ctl", "list"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn only_frames_that_go_to_a_file_and_nowhere_else_wait_for_others() {
    let waits =
        |args: &[&str]| graph_of(&[&["dump", "-i", "lo"], args].concat()).contains("delay=160");
    assert!(waits(&["-w", "x.pcap"]) && waits(&["-w", "x.pcap", "-c", "3", "udp"]));
    let soon: [&[&str]; 9] = [
        &[],
        &["--count"],
        &["-w", "-"],
        &["-w", "x.pcap", "--print"],
        &["-w", "x.pcap", "-U"],
        &["-w", "x.pcap", "--immediate-mode"],
        &["-w", "x.pcap", "--look-back"],
        &["-w", "x.pcap", "--workers", "2"],
        &["-w", "x.pcap", "-i", "v1"],
    ];
    for args in soon {
        assert!(!waits(args), "{args:?}");
    }
}

#[test]
fn the_graph_of_a_demux_writes_what_the_demux_writes() {
    let corpus = Corpus::open();
    for mixed in corpus.busy() {
        demuxes_alike(&mixed, &corpus.own("fragments/v4-shuffled.pcap"));
    }
    if let Some(path) = corpus.shared("traces/fragments/arkime__socks5-http-302-frag.pcap") {
        demuxes_alike(&corpus.own("mixed/busy.pcap"), &path);
    }
}

fn demuxes_alike(mixed: &Path, path: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (file, options) in [
        (mixed, &[][..]),
        (mixed, &["--first", "-c", "3000", "-s", "90"]),
        (path, &["--scoped"]),
        (mixed, &["--scoped", "--patience-seconds", "1"]),
    ] {
        let rules = |run: &str| {
            [
                "outer (udp) => u",
                "ip => i",
                "tcp port 443 => t",
                "vlan and tcp => t",
                "arp => count",
            ]
            .map(|rule| match rule.strip_suffix("count") {
                Some(_) => rule.to_owned(),
                None => format!("{}.pcap", rule.replace("=> ", &format!("=> {}", name(run)))),
            })
            .map(|rule| match options.contains(&"--scoped") {
                true => rule,
                false => rule.replace("outer (udp)", "vlan and udp"),
            })
        };
        let args = |run: &str| {
            let file = file.to_str().unwrap();
            let mut args = vec!["demux".to_owned(), "-r".to_owned(), file.to_owned()];
            args.extend(options.iter().map(|option| (*option).to_owned()));
            args.extend(rules(run));
            args
        };
        let of = |run: &str| args(run).iter().map(String::as_str).collect::<Vec<_>>().join("\u{1}");
        let (first, second) = (of("demux"), of("graph"));
        let counted = out(&first.split('\u{1}').collect::<Vec<_>>());
        let text = graph_of(&second.split('\u{1}').collect::<Vec<_>>());
        let ran = String::from_utf8(out(&["run", "--no-control", &text])).unwrap();
        for end in ["u", "i", "t"] {
            let [demux, graph] = ["demux", "graph"]
                .map(|run| std::fs::read(name(&format!("{run}{end}.pcap"))).unwrap());
            assert!(demux.len() >= 24 && demux == graph, "{options:?} {end}");
        }
        // The counters of the node equal the lines of the command.
        let counted = String::from_utf8(counted).unwrap();
        let numbers = counted.lines().map(|line| line.split('\t').next().unwrap().to_owned());
        let shown = ran.lines().map(|line| line.rsplit('\t').next().unwrap().to_owned());
        let both: Vec<_> = numbers.zip(shown).collect();
        assert_eq!(both.len(), 6);
        assert!(both.iter().all(|(one, other)| one == other), "{both:?}");
    }
}

#[test]
fn rules_edit_a_node_of_a_graph() {
    let shown = graph_of(&["rules", "lo", "+ip=10.0.0.1,port=80"]);
    let expected = "(device, expression=lo) > {rules}(bloom, own=y, \
                    expression=\"ip=10.0.0.1,port=80\", enable=n) > {filter}(filter, live=y)";
    assert_eq!(shown, expected);
    let negative = graph_of(&["rules", "lo", "negative", "1"]);
    assert!(negative.contains("{rules}(bloom, own=y, negative=1)"), "{negative}");
}

/// In a network namespace: frames are sent through an interface, and a live graph is drawn, watched and edited.
#[test]
fn live_graphs_send_are_drawn_watched_and_edited() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        set -eu
        ip link set lo up
        veth
        "$FYKE" run --svg live.svg --live-svg --stats \
            '(device,lo) > {f}(filter,"udp dst port 5001") > {n}(packetcount,export)' > counts 2> log &
        run=$!
        answers
        send() { for i in $(seq 50); do echo x > /dev/udp/127.0.0.1/$1; done; }
        send 5001; send 5002
        sleep 0.4
        "$FYKE" ctl set '(device,lo) > {f}(filter,"udp dst port 5002") > {n}(packetcount,export)'
        send 5001; send 5002
        sleep 1.3
        timeout 2 "$FYKE" ctl --json watch --interval-ms 200 > watched || true
        cp live.svg seen.svg
        # 100 datagrams of lo become frames on the wire between near and far.
        "$FYKE" dump --no-control -i far -c 100 -w wire.pcap 'udp port 5001' 2> dumped &
        dump=$!
        wait_for grep -q listening dumped
        "$FYKE" run --no-control '(device,lo) > (filter,"udp dst port 5001") > (limit,100) >
            {t}(tointerface,near,export)' > sent 2> sender &
        sleep 0.5
        send 5001; send 5001
        wait $dump
        kill -INT $run
        wait $run
    "#;
    let namespace = Script::new(env!("CARGO_BIN_EXE_fyke"), folder.path());
    let Some(output) = namespace.run(script) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}\n{}", read("log"), read("sender"));
    assert!(read("counts").contains("n\tpackets\t100"), "{}\n{}", read("counts"), read("log"));
    let svg = read("seen.svg");
    assert!(svg.starts_with("<svg") && svg.contains("100 arrived, "), "{svg}");
    let watched = read("watched");
    let last: serde_json::Value = serde_json::from_str(watched.lines().last().unwrap()).unwrap();
    let nodes = last["nodes"].as_array().unwrap();
    let node = |name: &str| nodes.iter().find(|node| node["node"] == name).unwrap();
    assert!(node("f")["passed"] == 100 && node("n")["arrived"] == 100, "{last}");
    // The new graph has accepted the frames since the edit.
    assert!(last["filters"][0]["accepted"] == 50, "{last}");
    let wire = folder.path().join("wire.pcap");
    assert_eq!(out(&["dump", "--count", "-r", wire.to_str().unwrap()]), b"100\n");
}
