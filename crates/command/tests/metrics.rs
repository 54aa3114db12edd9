//! `fyke metrics` in a namespace: its samples are the numbers of `ctl stats`; and `fyke completions`, `fyke man`.
#![cfg(feature = "web")]

mod common;

use common::{FYKE, Running, folder, inside, send, tool, veth};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Sends a request and returns the whole answer.
fn asked(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn scrape(port: u16) -> BTreeMap<String, u64> {
    let answer =
        asked(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(answer.contains("# EOF"), "{answer}");
    samples(&answer)
}

/// The samples with a whole number as their value.
fn samples(text: &str) -> BTreeMap<String, u64> {
    let samples = text.lines().filter(|line| line.starts_with("fyke_"));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

/// One edit and one refused request: in all classes of the time that are long enough.
fn edits_are_timed(value: &dyn Fn(&str) -> u64, pid: u32, stats: &serde_json::Value) {
    assert_eq!(value(&format!("fyke_edit_seconds_count{{pid=\"{pid}\"}}")), 1);
    assert_eq!(value(&format!("fyke_edits_refused_total{{pid=\"{pid}\"}}")), 1);
    let longest = stats["edits"]["max_ns"].as_u64().unwrap();
    assert_eq!((&stats["edits"]["edits"], &stats["edits"]["sum_ns"]), (&1.into(), &longest.into()));
    for (bound, ns) in [("0.00005", 50_000), ("0.025", 25_000_000), ("+Inf", u64::MAX)] {
        let name = format!("fyke_edit_seconds_bucket{{pid=\"{pid}\",le=\"{bound}\"}}");
        assert_eq!(value(&name), u64::from(longest <= ns), "{name}: {longest} ns");
    }
}

/// Other sites, other paths and other methods get nothing; many at once are all answered.
fn others_get_nothing(port: u16) {
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "405"),
    ] {
        assert!(asked(port, request).starts_with(&format!("HTTP/1.1 {status}")), "{request}");
    }
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..60).map(|_| scope.spawn(|| scrape(port))).collect();
        assert!(all.into_iter().all(|one| one.join().unwrap().len() > 10));
    });
}

/// Clients that take all connections and do not read hold up no scrape.
fn others_keep_nobody_out(port: u16) {
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2_000);
    let silent: Vec<_> = (0..32)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_nonblocking(true).unwrap();
            // As much as fits: the answers fill all queues.
            while stream.write(request.as_bytes()).is_ok() {}
            stream
        })
        .collect();
    assert!(scrape(port).len() > 10);
    drop(silent);
}

/// `--once` prints the Prometheus text format.
fn once_is_for_prometheus(pid: u32) {
    let once = Command::new(FYKE)
        .args(["metrics", "--once"])
        .env("FYKE_RUNTIME_DIR", common::runtime())
        .output()
        .unwrap();
    assert_eq!(once.status.code(), Some(0));
    assert_eq!(samples_of(&once.stdout)[&format!("fyke_up{{pid=\"{pid}\"}}")], 1);
    // The types of the Prometheus text format: its readers refuse a text with others.
    for line in String::from_utf8(once.stdout).unwrap().lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", _, kind] => assert!(["counter", "gauge", "histogram"].contains(&kind)),
            ["#", word, ..] => assert_eq!(word, "HELP", "{line}"),
            _ => {}
        }
    }
}

#[test]
fn a_scrape_has_the_numbers_of_the_statistics() {
    if !inside("a_scrape_has_the_numbers_of_the_statistics") {
        return;
    }
    veth();
    tool("ip link set lo up");
    let (_folder, path) = folder();
    let file = path("out.pcapng");
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "v1", "--count-all", "-w", file.to_str().unwrap()]);
    let mut capture = Running::start(command.arg("udp port 5001").stdout(Stdio::null()));
    capture.hear("listening on");
    capture.ctl(&["add", "--name", "voip\"1\"", "udp port 5002"]);
    let mut refused = Command::new(FYKE);
    refused.args(["ctl", "--pid", &capture.child.id().to_string(), "add", "udp dst prot 9"]);
    let refused = refused.env("FYKE_RUNTIME_DIR", common::runtime()).output().unwrap();
    assert!(!refused.status.success());
    let mut exporter = Running::start(
        Command::new(FYKE).args(["metrics", "--listen", "127.0.0.1:0"]).stdout(Stdio::null()),
    );
    exporter.hear("metrics at http://127.0.0.1:");
    let said = exporter.said();
    let (_, rest) = said.split_once("http://127.0.0.1:").unwrap();
    let port: u16 = rest.split('/').next().unwrap().parse().unwrap();
    send(500, 100);
    capture.settle(500);
    let pid = capture.child.id();
    let stats: serde_json::Value =
        serde_json::from_str(&capture.ctl(&["stats", "--json"])).unwrap();
    // An answer serves all requests of 200 ms.
    std::thread::sleep(Duration::from_millis(300));
    let samples = scrape(port);
    let value =
        |name: &str| samples.get(name).copied().unwrap_or_else(|| panic!("{name}: {samples:?}"));
    let accounting = &stats["accounting"];
    for (family, field) in [("seen", "seen"), ("accepted", "delivered"), ("rejected", "rejected")] {
        let name = format!("fyke_frames_{family}_total{{pid=\"{pid}\"}}");
        assert_eq!(Some(value(&name)), accounting[field].as_u64(), "{family}: {accounting}");
    }
    assert!(value(&format!("fyke_frames_seen_total{{pid=\"{pid}\"}}")) >= 500);
    assert_eq!(value(&format!("fyke_epoch{{pid=\"{pid}\"}}")), stats["epoch"].as_u64().unwrap());
    let filters = stats["filters"].as_array().unwrap();
    let (first, second) = (&filters[0], &filters[1]);
    let name = format!(
        "fyke_filter_accepted_frames_total{{pid=\"{pid}\",id=\"{}\",filter=\"udp port 5001\"}}",
        first["id"]
    );
    assert_eq!(Some(value(&name)), first["accepted"].as_u64());
    let name = format!(
        "fyke_filter_accepted_frames_total{{pid=\"{pid}\",id=\"{}\",filter=\"voip\\\"1\\\"\"}}",
        second["id"]
    );
    assert_eq!(Some(value(&name)), second["accepted"].as_u64());

    edits_are_timed(&value, pid, &stats);
    others_get_nothing(port);
    others_keep_nobody_out(port);
    once_is_for_prometheus(pid);
    exporter.signal("TERM");
    assert_eq!(exporter.end().code(), Some(0), "{}", exporter.said());
    capture.signal("INT");
    assert!(capture.end().success());
}

#[test]
fn readers_of_a_service_have_their_frames_and_their_lag() {
    if !inside("readers_of_a_service_have_their_frames_and_their_lag") {
        return;
    }
    veth();
    let mut service = Running::start(Command::new(FYKE).args(["serve", "-Z", "root", "-i", "v1"]));
    service.hear("serving v1");
    let reader = |text: &str| {
        let mut command = Command::new(FYKE);
        command.args(["dump", "-i", "serve:v1", "-w", "/dev/null", text]);
        let reader = Running::start(command.stdout(Stdio::null()));
        reader.hear("listening on serve:v1");
        reader
    };
    let (mut fast, mut stopped) = (reader("udp port 5001"), reader("udp"));
    stopped.signal("STOP");
    send(1_000, 100);
    fast.settle(1_000);
    service.settle(1_000);
    let once = || {
        let mut once = Command::new(FYKE);
        once.args(["metrics", "--once"]).env("FYKE_RUNTIME_DIR", common::runtime());
        samples_of(&once.output().unwrap().stdout)
    };
    let stats: serde_json::Value =
        serde_json::from_str(&service.ctl(&["stats", "--json"])).unwrap();
    let readers = stats["readers"].as_array().unwrap();
    assert_eq!(readers.len(), 2, "{stats}");
    let of = |running: &Running| {
        let pid = running.child.id();
        readers.iter().find(|one| one["pid"] == pid).unwrap_or_else(|| panic!("{pid}: {stats}"))
    };
    let samples = once();
    let service_pid = service.child.id();
    for (running, accepted, unread) in [(&fast, 500, 0), (&stopped, 1_000, 1_000)] {
        let one = of(running);
        assert_eq!((&one["accepted"], &one["lost"]), (&accepted.into(), &0.into()), "{one}");
        let labels = format!(
            "pid=\"{service_pid}\",id=\"{}\",capture=\"v1\",user=\"{}\",program={}",
            one["id"], one["user"], one["program"]
        );
        let frames = |outcome: &str| {
            let name = format!("fyke_reader_frames_total{{{labels},outcome=\"{outcome}\"}}");
            *samples.get(&name).unwrap_or_else(|| panic!("{name}: {samples:?}"))
        };
        assert_eq!(
            [frames("accepted"), frames("rejected"), frames("lost")],
            [accepted, 1_000 - accepted, 0]
        );
        assert_eq!(one["unread"], unread, "{one}");
        assert_eq!(samples[&format!("fyke_reader_unread_frames{{{labels}}}")], unread);
    }
    assert!(
        !samples.keys().any(|name| name.contains("filter=\"udp")
            && name.contains(&format!("pid=\"{service_pid}\""))),
        "{samples:?}"
    );
    stopped.signal("CONT");
    for running in [&mut fast, &mut stopped, &mut service] {
        running.signal("INT");
        assert!(running.end().success());
    }
}

fn samples_of(text: &[u8]) -> BTreeMap<String, u64> {
    samples(std::str::from_utf8(text).unwrap())
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = Command::new(FYKE).args(["metrics", "--listen", &address]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
}

#[test]
fn completions_know_the_options_of_the_commands() {
    for (shell, option) in
        [("bash", "--look-back"), ("zsh", "--look-back"), ("fish", "-l look-back")]
    {
        let script = Command::new(FYKE).args(["completions", shell]).output().unwrap();
        assert!(script.status.success());
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(script.contains("snort2ruler") && script.contains(option), "{shell}");
        if shell == "bash" {
            let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            assert!(bash.wait().unwrap().success(), "bash reads it");
        }
        if shell == "fish" {
            assert!(
                script.contains(" -s '#' ") && !script.contains(" -s # "),
                "fish reads a comment"
            );
        }
    }
}

/// Each page that another names, such as `fyke-ctl-add(1)`, has been written.
fn every_named_page_is_there(pages: &std::path::Path) {
    let mut named = 0;
    for page in std::fs::read_dir(pages).unwrap() {
        let text = std::fs::read_to_string(page.unwrap().path()).unwrap().replace('\\', "");
        for (before, _) in text.match_indices("(1)").map(|(at, _)| text.split_at(at)) {
            let begin =
                before.rfind(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
            let name = &before[begin.map_or(0, |at| at + 1)..];
            if name.starts_with("fyke") {
                assert!(pages.join(format!("{name}.1")).is_file(), "there is no page {name}");
                named += 1;
            }
        }
    }
    assert!(named > 60, "{named} names of pages");
}

#[test]
fn manual_pages_have_the_help_and_its_examples() {
    let (_folder, path) = folder();
    let pages = path("man");
    std::fs::create_dir(&pages).unwrap();
    let all = Command::new(FYKE).args(["man", "--all", pages.to_str().unwrap()]).output().unwrap();
    assert!(all.status.success(), "{all:?}");
    let read = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    assert!(read("fyke.1").contains(".TH FYKE 1"), "{}", read("fyke.1"));
    let dump = read("fyke-dump.1");
    assert!(dump.contains(".TH FYKE\\-DUMP 1") || dump.contains(".TH FYKE-DUMP 1"), "{dump}");
    let table = ".SH EXAMPLES\n.nf\n  Source   fyke dump \\-ni eth0   ";
    assert!(dump.contains(table) && dump.contains("look\\-back"), "{dump}");
    assert!(!pages.join("fyke-lend.1").exists(), "a removed command has no page");
    let one = Command::new(FYKE).args(["man", "dump"]).output().unwrap();
    assert_eq!(String::from_utf8(one.stdout).unwrap(), dump);
    let of_part = Command::new(FYKE).args(["man", "ctl", "add"]).output().unwrap();
    let add = String::from_utf8(of_part.stdout).unwrap();
    assert_eq!(add, read("fyke-ctl-add.1"));
    assert!(add.contains("\\-\\-hosts") && add.contains("fyke\\-ctl\\-add"), "{add}");
    every_named_page_is_there(&pages);
    let unknown = Command::new(FYKE).args(["man", "frob"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    let nowhere = Command::new(FYKE).args(["man", "--all", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("/nowhere/at/all/fyke.1"));
}
