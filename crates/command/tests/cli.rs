//! Tests of the built command in typical use: exit statuses, pipes, files, and edits from another terminal.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn fyke(args: &[&str]) -> Output {
    Command::new(FYKE).args(args).stdin(Stdio::null()).output().expect("fyke runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn sample(folder: &Path) -> String {
    let frames = [
        Packet::ethernet()
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .tcp(1025, 80)
            .payload(b"GET /")
            .build(),
        Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1026, 53).build(),
        Packet::ethernet().ipv6([0x20; 16], [0x21; 16]).udp(1027, 53).build(),
    ];
    let path = folder.join("sample.pcap");
    std::fs::write(&path, pcap::file(1, &frames)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn count_prints_a_number_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = sample(folder.path());
    for (expression, count) in [("", "3\n"), ("udp", "2\n"), ("ip and port 53", "1\n")] {
        let output = fyke(&["dump", "--count", "-nr", &file, expression]);
        assert_eq!(text(&output.stdout), count, "{expression}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn options_mean_what_they_mean_to_tcpdump() {
    let folder = tempfile::tempdir().unwrap();
    let file = sample(folder.path());
    let plain = fyke(&["dump", "-ttnr", &file, "tcp", "port", "80"]);
    assert_eq!(text(&plain.stdout).lines().count(), 1, "{}", text(&plain.stderr));
    assert!(text(&plain.stdout).starts_with("0.000000 IP "), "{}", text(&plain.stdout));
    let behind = fyke(&["dump", "-r", &file, "udp", "-c1", "-nn", "-t"]);
    assert_eq!(text(&behind.stdout).lines().count(), 1);
    let from_file = folder.path().join("expression");
    std::fs::write(&from_file, "udp\nand ip6\n").unwrap();
    let read = fyke(&["dump", "--count", "-r", &file, "-F", from_file.to_str().unwrap()]);
    assert_eq!(text(&read.stdout), "1\n");
    std::fs::write(&from_file, "# what we look for: tcp\nudp # not tcp\nand ip6\n#").unwrap();
    let read = fyke(&["dump", "--count", "-r", &file, "-F", from_file.to_str().unwrap()]);
    assert_eq!(text(&read.stdout), "1\n", "comments are blanked: {}", text(&read.stderr));
    std::fs::write(&from_file, "udp # not tcp\nand ip7\n").unwrap();
    let read = fyke(&["dump", "--count", "-r", &file, "-F", from_file.to_str().unwrap()]);
    assert!(text(&read.stderr).contains("and ip7\n"), "{}", text(&read.stderr));
    for (words, count) in [("ip broadcast", "0\n"), ("not ip broadcast", "3\n")] {
        let read = fyke(&["dump", "--count", "-r", &file, words]);
        assert_eq!(text(&read.stdout), count, "the netmask is 0: {}", text(&read.stderr));
    }
}

#[test]
fn exit_status_says_what_kind_of_failure_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = sample(folder.path());
    let wrong = fyke(&["dump", "-r", &file, "tcp[0 = 1"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("        ^"), "{}", text(&wrong.stderr));
    assert_eq!(fyke(&["dump", "-r", "/nowhere/at/all.pcap"]).status.code(), Some(1));
    assert_eq!(fyke(&["dump", "--no-such-option"]).status.code(), Some(2));
    let link = fyke(&["explain", "--link", "NONSENSE", "ip"]);
    assert_eq!(link.status.code(), Some(2));
    assert!(text(&link.stderr).contains("unknown link type"));
}

#[test]
fn a_file_that_is_cut_short_gives_its_whole_frames_and_then_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = sample(folder.path());
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let output = fyke(&["dump", "--count", "-r", &file]);
    assert_eq!(text(&output.stdout), "2\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cut short"), "{}", text(&output.stderr));
}

#[test]
fn frames_go_through_pipes_both_ways() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return println!("skipped: no tcpdump to talk to");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = sample(folder.path());
    let script = format!(
        "tcpdump -r {file} -w - 2>/dev/null | {FYKE} dump -r - -w - udp | tcpdump -nr - 2>/dev/null"
    );
    let output = Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 2);
}

#[test]
fn explain_shows_the_papers_example() {
    let output = fyke(&["explain", "ip src net 192.168.254.0/24 and tcp dst port 23"]);
    assert!(
        text(&output.stdout).contains("1 pass with 3 instructions"),
        "{}",
        text(&output.stdout)
    );
    let json = fyke(&["explain", "--json", "udp port 53"]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["link"], "EN10MB");
    assert!(!value["passes"].as_array().unwrap().is_empty());
}

/// A dump on the loopback of a network namespace, edited while 600 numbered datagrams pass: none of port 5001 is
/// lost by the edits, all of port 5002 are there from the edit that asks for them on.
#[test]
fn a_running_dump_is_edited_from_another_terminal_without_losing_a_packet() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        set -eu
        ip link set lo up
        "$FYKE" dump -i lo -w out.pcapng 'udp dst port 5001' 2> log &
        dump=$!
        answers
        send() { for i in $(seq 100); do echo x > /dev/udp/127.0.0.1/$1; done; }
        send 5001; send 5002
        # An edit judges whatever has not been judged yet: let the ring's block be judged.
        sleep 0.3
        "$FYKE" ctl add 'udp dst port 5002' > added
        send 5001; send 5002
        "$FYKE" ctl set 'udp dst port 5001 or udp dst port 5002' > /dev/null
        send 5001; send 5002
        sleep 0.3
        "$FYKE" ctl --json stats > stats
        kill -INT $dump
        wait $dump
    "#;
    let namespace = Script::new(FYKE, folder.path());
    let Some(output) = namespace.run(script) else { return };
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    assert!(output.status.success(), "{}\n{log}", text(&output.stderr));
    let out = folder.path().join("out.pcapng");
    let count = |expression: &str| {
        let output = fyke(&["dump", "--count", "-r", out.to_str().unwrap(), expression]);
        text(&output.stdout).trim().parse::<u32>().unwrap()
    };
    assert_eq!(count("udp dst port 5001"), 300, "{log}");
    assert_eq!(count("udp dst port 5002"), 200, "{log}");
    let stats = std::fs::read_to_string(folder.path().join("stats")).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let accounting = &stats["accounting"];
    let number = |name: &str| accounting[name].as_u64().unwrap();
    assert_eq!(number("seen"), number("delivered") + number("rejected"), "{stats}");
    assert_eq!(number("delivered"), 500);
    assert!(log.contains("500 accepted"), "{log}");
}

#[test]
fn explain_over_a_file_counts_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = sample(folder.path());
    let counts = text(&fyke(&["explain", "-r", &file, "ip and not tcp"]).stdout);
    for line in ["1 of 3 frames accepted", "3 evaluated, 2 true", "2 evaluated, 1 true"] {
        assert!(counts.contains(line), "{line} in {counts}");
    }
    let why = text(&fyke(&["explain", "-r", &file, "--frame", "1", "ip and not tcp"]).stdout);
    for line in ["frame 1 is rejected", "Ipv4", "yes  ip", "yes  tcp"] {
        assert!(why.contains(line), "{line} in {why}");
    }
    let beyond = fyke(&["explain", "-r", &file, "--frame", "4", "ip"]);
    assert_eq!(beyond.status.code(), Some(2));
    assert!(text(&beyond.stderr).contains("3 frames"), "{}", text(&beyond.stderr));
}

#[test]
fn scoped_dump_and_explain_look_into_tunnels_and_follow_fragments() {
    let folder = tempfile::tempdir().unwrap();
    let tunnel = || Packet::ethernet().vlan(5).ipv4([192, 0, 2, 1], [192, 0, 2, 2]);
    let plain = || Packet::ethernet().ipv4([192, 0, 2, 1], [192, 0, 2, 2]);
    let frames = [
        tunnel().vxlan(1).ether().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(9, 80).build(),
        plain().fragment(7, 0, true).udp(9, 53).payload(&[0; 16]).build(),
        plain().protocol(17).fragment(7, 24, false).payload(&[1; 8]).build(),
        plain().protocol(17).fragment(8, 24, false).payload(&[1; 8]).build(),
    ];
    let path = folder.path().join("nested.pcap");
    std::fs::write(&path, pcap::file(1, &frames)).unwrap();
    let file = path.to_str().unwrap();
    for (expression, count) in [
        ("tcp port 80", "1\n"),
        ("outer (vlan 5) and tcp port 80", "1\n"),
        ("vlan", "0\n"),
        ("udp port 53", "2\n"),
        ("not udp port 53", "1\n"),
        ("host 192.0.2.1", "3\n"),
    ] {
        let output = fyke(&["dump", "--scoped", "--count", "-nr", file, expression]);
        assert_eq!(text(&output.stdout), count, "{expression}: {}", text(&output.stderr));
    }
    let stats = fyke(&["dump", "--scoped", "--stats", "--count", "-nr", file, "udp port 53"]);
    let stats = text(&stats.stderr);
    assert!(stats.contains("1 fragments without their first"), "{stats}");
    let explained = text(&fyke(&["explain", "--scoped", "-r", file, "udp port 53"]).stdout);
    for line in ["2 of 4 frames accepted", "compat accepts 1", "only scoped: 1, first frame 3"] {
        assert!(explained.contains(line), "{line} in {explained}");
    }
}
