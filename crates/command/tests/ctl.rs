//! `fyke ctl` with commands that have no filter node: `demux` and `ruler run`; and its options.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Ten datagrams to each of three ports.
fn datagrams(folder: &Path) {
    let frames = [5001, 5002, 5003].into_iter().flat_map(|port| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, port);
        vec![packet.payload(b"hay").build(); 10]
    });
    std::fs::write(folder.join("in.pcap"), pcap::file(1, &frames.collect::<Vec<_>>())).unwrap();
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default()
}

fn count(folder: &Path, file: &str) -> String {
    let mut command = Command::new(FYKE);
    command.current_dir(folder).args(["dump", "--no-control", "--count", "-r", file]);
    String::from_utf8_lossy(&command.output().unwrap().stdout).trim().to_owned()
}

/// Expressions are added and removed; the others keep their counts and files, and no frame is lost.
#[test]
fn a_running_demux_is_shown_counted_and_edited() {
    let folder = tempfile::tempdir().unwrap();
    datagrams(folder.path());
    let script = r#"
        "$FYKE" demux -i far 'udp dst port 5001 => one.pcap' 'udp dst port 5002 => two.pcap' \
            > counts 2> log &
        demux=$!
        answers
        send in.pcap; saw 30
        "$FYKE" ctl add 'udp dst port 5003 => three.pcap' > added 2>&1
        send in.pcap; saw 60
        "$FYKE" ctl show > shown 2> /dev/null
        "$FYKE" ctl del 1 > deleted 2>&1
        send in.pcap; saw 90
        "$FYKE" ctl stats --json > stats 2> /dev/null
        "$FYKE" ctl list > listed
        for wrong in 'udp' 'udp =>' 'tcp prot 1 => four.pcap' ''; do
            "$FYKE" ctl add "$wrong" >> wrong 2>&1 && echo taken >> wrong
        done
        "$FYKE" ctl del 2 > /dev/null 2>&1
        "$FYKE" ctl del 3 > last 2>&1 && echo taken >> last
        "$FYKE" ctl del 9 > none 2>&1 && echo taken >> none
        "$FYKE" ctl set 'udp dst port 5001 => five.pcap' > /dev/null 2>&1
        send in.pcap; saw 120
        kill -INT $demux
        wait $demux
    "#;
    let namespace = Script::new(FYKE, folder.path());
    let Some(output) = namespace.run(&format!("set -eu; veth; {script}")) else { return };
    let read = |name: &str| read(folder.path(), name);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), read("log"));
    assert!(output.status.success(), "{said}");
    assert!(read("added").contains("filter 3, epoch 1"), "{}", read("added"));
    let shown = read("shown");
    for line in
        ["20 frames  udp dst port 5001 => one.pcap", "10 frames  udp dst port 5003 => three"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    let stats: Value = serde_json::from_str(&read("stats")).unwrap();
    let filters = stats["filters"].as_array().unwrap();
    let counted: Vec<_> = filters.iter().map(|one| (&one["text"], &one["accepted"])).collect();
    assert_eq!(counted.len(), 3, "{stats}");
    assert!(filters[2]["kind"] == "removed" && *counted[2].1 == 20, "{stats}");
    assert!(counted[0].0 == "udp dst port 5002 => two.pcap" && *counted[0].1 == 30, "{stats}");
    assert!(counted[1].0 == "udp dst port 5003 => three.pcap" && *counted[1].1 == 20, "{stats}");
    let accounting = &stats["accounting"];
    assert!(accounting["seen"] == 90 && accounting["delivered"] == 70, "{stats}");
    assert!(read("listed").contains("far"), "{}", read("listed"));
    for part in ["'EXPR => ENDPOINT'", "an endpoint is missing", "^", "found an empty text"] {
        assert!(read("wrong").contains(part), "{part}: {}", read("wrong"));
    }
    assert!(!read("wrong").contains("taken") && !folder.path().join("four.pcap").exists());
    assert!(read("last").contains("the last one") && !read("last").contains("taken"));
    assert!(read("last").contains("`set 'EXPR => ENDPOINT'`"), "{}", read("last"));
    assert!(read("none").contains("there is no filter 9"), "{}", read("none"));
    assert_eq!(read("counts").lines().next(), Some("10\tudp dst port 5001"), "{said}");
    for (file, frames) in
        [("one.pcap", "20"), ("two.pcap", "30"), ("three.pcap", "20"), ("five.pcap", "10")]
    {
        assert_eq!(count(folder.path(), file), frames, "{file}: {said}");
    }
}

/// With `--scoped`, held fragments refer to expressions by number, so the expressions cannot be edited. `--no-control`
/// opens no socket.
#[test]
fn a_scoped_demux_is_shown_and_not_edited() {
    let folder = tempfile::tempdir().unwrap();
    datagrams(folder.path());
    let script = r#"
        "$FYKE" demux --scoped -i far 'udp dst port 5001 => count' > counts 2> log &
        demux=$!
        answers
        send in.pcap; saw 30
        "$FYKE" ctl show > shown 2>&1
        "$FYKE" ctl add 'udp => count' > added 2>&1 && echo taken >> added
        kill -INT $demux; wait $demux
        "$FYKE" demux --no-control -i far 'udp dst port 5001 => count' > counts 2> log &
        demux=$!
        sleep 0.5
        "$FYKE" ctl list > listed 2>&1
        kill -INT $demux; wait $demux
    "#;
    let namespace = Script::new(FYKE, folder.path());
    let Some(output) = namespace.run(&format!("set -eu; veth; {script}")) else { return };
    let read = |name: &str| read(folder.path(), name);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(read("shown").contains("10 frames  udp dst port 5001 => count"), "{}", read("shown"));
    assert!(read("added").contains("start another"), "{}", read("added"));
    assert!(!read("added").contains("taken") && read("listed").contains("no running fyke"));
}

#[test]
fn a_running_ruler_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    datagrams(folder.path());
    let rules = "filter hay * \"hay\" * => accept;\nfilter straw * \"straw\" * => accept;\n";
    std::fs::write(folder.path().join("two.rul"), rules).unwrap();
    let script = r#"
        "$FYKE" ruler run two.rul -i far > counts 2> log &
        ruler=$!
        answers
        send in.pcap; saw 30
        "$FYKE" ctl --json stats > stats 2> /dev/null
        "$FYKE" ctl show > shown 2> /dev/null
        for edit in "set udp" "add udp" "del 1"; do
            "$FYKE" ctl $edit >> edits 2>&1 && echo taken >> edits
        done
        kill -INT $ruler
        wait $ruler
    "#;
    let namespace = Script::new(FYKE, folder.path());
    let Some(output) = namespace.run(&format!("set -eu; veth; {script}")) else { return };
    let read = |name: &str| read(folder.path(), name);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), read("log"));
    assert!(output.status.success(), "{said}");
    let stats: Value = serde_json::from_str(&read("stats")).unwrap();
    let accounting = &stats["accounting"];
    assert!(accounting["seen"] == 30 && accounting["delivered"] == 30, "{stats}");
    assert!(accounting["rejected"] == 0 && stats["filters"][1]["accepted"] == 0, "{stats}");
    assert!(read("shown").contains("30 frames  hay"), "{}", read("shown"));
    assert_eq!(read("edits").matches("then `fyke ctl set`").count(), 3, "{}", read("edits"));
    assert!(!read("edits").contains("taken"));
    assert!(read("counts").contains("hay\taccept\t30"), "{}", read("counts"));
}

/// `--json` and `--pid` may follow the action.
#[test]
fn options_are_taken_before_and_after_the_action() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        ip link set lo up
        "$FYKE" dump --count -i lo udp > /dev/null 2> log &
        dump=$!
        answers
        pid=$("$FYKE" ctl list --json | sed 's/.*"pid":\([0-9]*\).*/\1/')
        "$FYKE" ctl show --json --pid $pid > after 2> /dev/null
        "$FYKE" ctl --pid $pid --json show > before 2> /dev/null
        "$FYKE" ctl add --json -F text > added 2> /dev/null
        kill -INT $dump
        wait $dump
    "#;
    std::fs::write(folder.path().join("text"), "tcp").unwrap();
    let namespace = Script::new(FYKE, folder.path());
    let Some(output) = namespace.run(&format!("set -eu; veth; {script}")) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = |name: &str| -> Value { serde_json::from_str(&read(folder.path(), name)).unwrap() };
    assert_eq!(json("after"), json("before"));
    assert_eq!(json("after")["filters"][0]["text"], "udp");
    assert_eq!(json("added")["response"], "ok");
}

/// A process that does not answer, or that has ended, is named with what to do about it.
#[test]
fn a_stopped_and_an_ended_fyke_are_reported_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        ip link set lo up
        "$FYKE" dump --count -i lo udp > /dev/null 2> log &
        dump=$!
        answers
        kill -STOP $dump
        "$FYKE" ctl --pid $dump stats > named 2>&1 || echo "code $?" >> named
        "$FYKE" ctl stats > unnamed 2>&1 || echo "code $?" >> unnamed
        "$FYKE" ctl list > listed 2>&1
        kill -CONT $dump
        "$FYKE" ctl --pid $dump stats > again 2> /dev/null
        kill -KILL $dump
        wait $dump 2> /dev/null || true
        "$FYKE" ctl --pid $dump stats > ended 2>&1 || echo "code $?" >> ended
        echo $dump > pid
    "#;
    let namespace = Script::new(FYKE, folder.path()).among_all_processes();
    let Some(output) = namespace.run(&format!("set -eu; {script}")) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| read(folder.path(), name);
    let pid = read("pid").trim().to_owned();
    let stopped = format!("it is stopped; `kill -CONT {pid}` continues it");
    let named = read("named");
    assert!(named.contains(&format!("process {pid} did not answer within 5s: ")), "{named}");
    for name in ["named", "unnamed", "listed"] {
        assert!(read(name).contains(&stopped), "{name}: {}", read(name));
    }
    assert!(named.ends_with("code 1\n"), "{named}");
    assert!(read("again").contains(" = 0 accepted"), "{}", read("again"));
    let ended = read("ended");
    assert!(ended.contains(&pid) && ended.ends_with("code 1\n"), "{ended}");
    assert!(!ended.contains("64 clients"), "{ended}");
}
