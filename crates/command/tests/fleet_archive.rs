//! `fyke worker` and `fyke fleet scan` with a real NATS server: the sums over an archive are exact, whatever is killed.
#![cfg(feature = "fleet")]

mod common;

use common::{FYKE, Running, folder, inside, tool};
use fyke_testkit::nats::NatsServer;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const FILES: usize = 120;
/// Frames of the first file, which takes a while.
const LONG: usize = 300_000;
/// Longest wait for something that comes soon.
const LIMIT: Duration = Duration::from_secs(60);

/// Number of frames to port 53 in a file; there is one to port 80, too.
fn dns_of(file: usize) -> usize {
    if file == 0 { LONG } else { file }
}

/// Writes capture files, and returns the list of their names.
fn archive(root: &Path) -> PathBuf {
    std::fs::create_dir_all(root.join("a")).unwrap();
    let mut names = String::new();
    for number in 0..FILES {
        let name = format!("a/{number}.pcap");
        let to = |port| {
            let ip = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
            ip.udp(4000, port).payload(b"x").build()
        };
        let mut frames = vec![to(53); dns_of(number)];
        frames.push(to(80));
        std::fs::write(root.join(&name), pcap::file(1, &frames)).unwrap();
        names += &format!("./{name}\n");
    }
    let list = root.join("list");
    std::fs::write(&list, names).unwrap();
    list
}

/// The files of a group.
struct Group(PathBuf);

impl Group {
    fn new(folder: PathBuf) -> Group {
        let mut authors = Vec::new();
        for name in ["anna", "eve"] {
            let key = folder.join(name);
            let mut made = Command::new(FYKE);
            made.args(["fleet", "key"]).arg(key).args(["--name", name]);
            let made = made.output().unwrap();
            assert!(made.status.success(), "{made:?}");
            if name == "eve" {
                std::fs::write(folder.join("authors"), &authors).unwrap();
                std::fs::write(folder.join("line"), &made.stdout).unwrap();
            }
            authors.extend(made.stdout);
        }
        std::fs::write(folder.join("all"), authors).unwrap();
        Group(folder)
    }

    fn worker(&self, name: &str, root: &Path) -> Running {
        self.worker_of("authors", name, root)
    }

    /// A worker that trusts the authors of a file.
    fn worker_of(&self, trust: &str, name: &str, root: &Path) -> Running {
        let mut command = Command::new(FYKE);
        command.args(["worker", "--group", "archive", "--name", name, "--at-once", "2", "--trust"]);
        command.arg(self.0.join(trust)).arg("--root").arg(root);
        let worker = Running::start(command.stdout(Stdio::null()));
        worker.hear("Ctrl-C ends fyke worker");
        worker
    }

    fn scan(&self, author: &str) -> Command {
        let mut command = Command::new(FYKE);
        command.args(["fleet", "scan", "--group", "archive", "--json", "--key"]);
        command.arg(self.0.join(author));
        command
    }
}

/// The sums that a scan printed.
fn sums(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The counts of the filter: arrived, passed, rejected.
fn filter_of(sums: &Value) -> [u64; 3] {
    let nodes = sums["nodes"].as_array().unwrap();
    let filter = nodes.iter().find(|node| node["node"] == "filter").unwrap();
    ["arrived", "passed", "rejected"].map(|name| filter[name].as_u64().unwrap())
}

/// Waits until a worker reads a file: a process of its own does that.
fn works(worker: &Running) {
    let threads = format!("/proc/{}/task", worker.child.id());
    let start = Instant::now();
    loop {
        for thread in std::fs::read_dir(&threads).unwrap() {
            let children = thread.unwrap().path().join("children");
            if !std::fs::read_to_string(children).unwrap_or_default().is_empty() {
                return;
            }
        }
        assert!(start.elapsed() < LIMIT, "the worker begins no job");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A worker is killed while it works, and the server, too: the sums are those of all files, each counted once.
fn nothing_is_lost_or_counted_twice(group: &Group, root: &Path, server: &mut NatsServer) {
    let list = archive(root);
    let (dns, all) = ((0..FILES).map(dns_of).sum::<usize>() as u64, FILES as u64);
    let mut first = group.worker("first", root);
    let rows = group.0.join("rows.csv");
    let mut scan = group.scan("anna");
    scan.arg("-V").arg(&list).arg("--rows").arg(&rows).arg("udp port 53");
    let scan = scan.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    works(&first);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    server.start_again();
    let mut second = group.worker("second", root);
    let output = scan.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = sums(&output);
    assert_eq!(filter_of(&told), [dns + all, dns, all], "{told}");
    assert_eq!((&told["done"], &told["failed"]), (&FILES.into(), &0.into()));
    let rows = std::fs::read_to_string(&rows).unwrap();
    // A line for each of the three nodes of each file, besides the head.
    assert_eq!(rows.lines().count(), 1 + 3 * FILES);
    assert!(rows.contains("a/0.pcap,second,2,"), "the killed worker's file came to the second");
    for number in [0, 7, FILES - 1] {
        let line = rows.lines().find(|line| {
            line.starts_with(&format!("a/{number}.pcap,")) && line.contains(",filter,")
        });
        let line = line.unwrap();
        let dns = dns_of(number);
        assert!(line.contains(&format!(",filter,{},{dns},1,0,0,", dns + 1)), "{line}");
    }

    // The rows can be read again.
    let mut again = Command::new(FYKE);
    again.args(["fleet", "scan", "--group", "archive", "--json", "--resume"]);
    let again = again.arg(told["scan"].as_str().unwrap()).output().unwrap();
    assert_eq!(filter_of(&sums(&again)), [dns + all, dns, all]);
    second.signal("INT");
    assert!(second.end().success(), "{}", second.said());
}

/// Files that are damaged, missing or outside, graphs that open files, and foreign authors.
fn what_is_wrong_is_named(group: &Group, root: &Path) {
    let worker = group.worker("third", root);
    let whole = std::fs::read(root.join("a/9.pcap")).unwrap();
    std::fs::write(root.join("cut.pcap"), &whole[..whole.len() - 5]).unwrap();
    std::fs::write(root.join("../secret"), &whole).unwrap();
    tool(&format!("mkfifo {}", root.join("fifo").display()));
    let mut scan = group.scan("anna");
    for name in ["cut.pcap", "../secret", "none", "fifo", "a/9.pcap"] {
        scan.args(["-r", name]);
    }
    let output = scan.arg("udp port 53").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = sums(&output);
    // Frames before the damage count.
    assert_eq!(filter_of(&told), [9 + 10, 9 + 9, 1], "{told}");
    assert_eq!((&told["done"], &told["failed"]), (&5.into(), &4.into()));
    let said = String::from_utf8_lossy(&output.stderr);
    for why in [
        "cut.pcap: ",
        "../secret: cannot open it: its path leads out",
        "none: cannot open",
        "no regular file",
    ] {
        assert!(said.contains(why), "{why}: {said}");
    }

    let graph = "(pcapin, -) > (tofile, /tmp/x)";
    let refused = group.scan("anna").args(["-r", "a/1.pcap", "--graph", graph]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let refused = group.scan("anna").args(["-r", "a/1.pcap", "udp prt 5"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("did you mean \"port\""));

    drop(worker);
}

/// Jobs of an author that one worker does not trust: another one does them; without it the scan tells why it ends.
fn refused_jobs_are_left_to_others(group: &Group, root: &Path) {
    let mut strict = group.worker("strict", root);
    let mut refused = group.scan("eve");
    refused.args(["--patience", "3", "-r", "a/1.pcap", "-r", "a/2.pcap", "udp port 53"]);
    let output = refused.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    let key = std::fs::read_to_string(group.0.join("line")).unwrap();
    let remedy = format!("add this line to its --trust file, and start it again: {}", key.trim());
    for part in ["worker strict refuses jobs of eve", &remedy, "2 jobs were removed"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(sums(&output)["refused"][0]["worker"], "strict");
    // The lines of the worker are not as many as the jobs.
    let lines = strict.said().matches("left to other workers").count();
    assert_eq!(lines, 1, "{}", strict.said());

    let mut scan = group.scan("eve");
    for number in 1..40 {
        scan.arg("-r").arg(format!("a/{number}.pcap"));
    }
    let mut scan = Running::start(scan.arg("udp port 53").stdout(Stdio::piped()));
    scan.hear("worker strict refuses jobs of eve");
    let mut second = group.worker_of("all", "trusting", root);
    assert!(scan.end().success(), "{}", scan.said());
    let told: Value = serde_json::from_slice(&common::rest(&mut scan)).unwrap();
    let dns: u64 = (1..40).sum();
    assert_eq!(filter_of(&told), [dns + 39, dns, 39], "{told}");
    assert_eq!((&told["done"], &told["failed"]), (&39.into(), &0.into()), "{told}");
    assert_eq!(told["workers"], serde_json::json!(["trusting"]));
    for worker in [&mut strict, &mut second] {
        worker.signal("INT");
        assert!(worker.end().success(), "{}", worker.said());
    }
}

/// Rules over the same files: alerts of each rule and file, in all forms of rows.
fn rules_are_judged_over_an_archive(group: &Group, root: &Path) {
    let mut worker = group.worker("fourth", root);
    let rules = group.0.join("my.rules");
    let text = "alert udp any any -> any 53 (msg:\"dns, all\"; sid:7; rev:1;)\n\
                alert udp any any -> any 80 (msg:\"not dns\"; sid:8; rev:1;)\n\
                alert udp any any -> any 9 (msg:\"none\"; sid:9; rev:1;)\n";
    std::fs::write(&rules, text).unwrap();
    let rows = group.0.join("alerts.csv");
    let mut scan = group.scan("anna");
    scan.args(["-r", "a/5.pcap", "-r", "a/9.pcap"])
        .arg("--rules")
        .arg(rows.with_file_name("my.rules"));
    let output = scan.arg("--rows").arg(&rows).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = sums(&output);
    let alerts: Vec<_> = told["alerts"].as_array().unwrap().iter().collect();
    let counts: Vec<_> =
        alerts.iter().map(|it| (it["sid"].as_u64(), it["alerts"].as_u64())).collect();
    assert_eq!(counts, [(Some(7), Some(14)), (Some(8), Some(2))], "{told}");
    let node =
        told["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "rules").unwrap();
    assert_eq!((&node["arrived"], &node["lost"]), (&16.into(), &0.into()));
    // A state, not a count: each of the two files had these rules.
    let counters = &node["counters"];
    assert_eq!((&counters["rules"], &counters["alerts"]), (&3.0.into(), &16.0.into()), "{node}");
    let table = std::fs::read_to_string(&rows).unwrap();
    assert!(
        table.contains("a/5.pcap,fourth,1,") && table.contains(",1,7,\"dns, all\",5,"),
        "{table}"
    );
    assert_eq!(table.lines().count(), 1 + 4, "{table}");
    // After a filter; a file without alerts has a row, too.
    for (name, mark) in [("alerts.arrow", "ARROW1"), ("alerts.parquet", "PAR1")] {
        let file = group.0.join(name);
        let mut scan = group.scan("anna");
        scan.args(["-r", "a/5.pcap"]).arg("--rules").arg(&rules).arg("--rows").arg(&file);
        let output = scan.arg("tcp").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(sums(&output)["alerts"], Value::Array(Vec::new()));
        let bytes = std::fs::read(&file).unwrap();
        let marks = bytes.starts_with(mark.as_bytes()) && bytes.ends_with(mark.as_bytes());
        assert!(marks, "{name}: {bytes:?}");
    }
    // Rules that are none are refused before a job is made.
    std::fs::write(&rules, "alert nothing\n").unwrap();
    let refused = group.scan("anna").args(["-r", "a/5.pcap"]).arg("--rules").arg(&rules).output();
    let said = String::from_utf8_lossy(&refused.unwrap().stderr).into_owned();
    assert!(said.contains("none of 1 rules can be judged"), "{said}");
    worker.signal("INT");
    assert!(worker.end().success(), "{}", worker.said());
}

/// A file is no folder of a worker; a scan without workers tells so; a file that is named again counts once.
fn mistakes_are_told(group: &Group, root: &Path) {
    let mut worker = Command::new(FYKE);
    worker.args(["worker", "--group", "archive", "--trust"]).arg(group.0.join("authors"));
    let refused = worker.arg("--root").arg(root.join("a/1.pcap")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("it is a file; give the folder"), "{said}");

    let mut scan = group.scan("anna");
    scan.args(["-r", "a/1.pcap", "-r", "./a/1.pcap", "-r", "a/2.pcap", "udp port 53"]);
    let mut scan = Running::start(scan.stdout(Stdio::piped()));
    scan.hear("a/1.pcap is named more than once");
    scan.hear("no worker of the group archive does a job of this scan");
    let mut worker = group.worker("late", root);
    assert!(scan.end().success(), "{}", scan.said());
    assert_eq!(scan.said().matches("no worker").count(), 1, "{}", scan.said());
    let told: Value = serde_json::from_slice(&common::rest(&mut scan)).unwrap();
    assert_eq!((&told["done"], filter_of(&told)), (&2.into(), [3 + 2, 3, 2]), "{told}");
    worker.signal("INT");
    assert!(worker.end().success(), "{}", worker.said());
}

/// A scan that is cancelled elsewhere ends; one that has ended has nothing to cancel, although a server that is killed
/// has some of its jobs again.
fn a_cancelled_scan_is_told(group: &Group, root: &Path, server: &mut NatsServer) {
    let cancel = |id: &str| {
        let mut cancel = Command::new(FYKE);
        cancel.args(["fleet", "scan", "--group", "archive", "--cancel", id]);
        let output = cancel.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let mut waits = group.scan("anna");
    waits.args(["-r", "a/1.pcap", "-r", "a/2.pcap", "udp port 53"]);
    let mut waits = Running::start(waits.stdout(Stdio::piped()));
    waits.hear("Ctrl-C leaves it to the workers");
    let said = waits.said();
    let id = said.split("scan ").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    let told = cancel(id);
    assert!(told.contains("2 jobs removed; 0 of 2 files have a result"), "{told}");
    assert_eq!(waits.end().code(), Some(1), "{}", waits.said());
    assert!(waits.said().contains("was cancelled (--cancel): 0 of 2 files"), "{}", waits.said());

    let mut worker = group.worker("sixth", root);
    let mut scan = group.scan("anna");
    scan.arg("-V").arg(root.join("list")).arg("udp port 53");
    let output = scan.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    worker.signal("KILL");
    worker.end();
    server.start_again();
    let told = cancel(sums(&output)["scan"].as_str().unwrap());
    assert!(told.contains(&format!("had ended: each of its {FILES} files has a result")), "{told}");
}

/// A worker that has refused a job ends although its server is gone, and works again with the next server.
fn a_worker_outlives_its_server(group: &Group, root: &Path, server: &mut NatsServer) {
    let [mut ends, mut stays] = ["ends", "stays"].map(|name| group.worker(name, root));
    let mut scan = group.scan("eve");
    for number in 1..9 {
        scan.arg("-r").arg(format!("a/{number}.pcap"));
    }
    let mut scan = Running::start(scan.stdout(Stdio::null()));
    for worker in [&ends, &stays] {
        worker.hear("left to other workers");
    }
    server.kill();
    ends.signal("TERM");
    assert!(ends.end().success(), "{}", ends.said());
    server.start_again();
    scan.signal("KILL");
    scan.end();
    let mut scan = group.scan("anna");
    let output = scan.args(["-r", "a/3.pcap", "udp port 53"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(sums(&output)["workers"], serde_json::json!(["stays"]));
    stays.signal("INT");
    assert!(stays.end().success(), "{}", stays.said());
}

#[test]
fn the_sums_of_an_archive_are_exact() {
    if !inside("the_sums_of_an_archive_are_exact") {
        return;
    }
    if !NatsServer::is_installed() {
        println!("skipped: nats-server is not installed");
        return;
    }
    tool("ip link set lo up");
    let (_folder, path) = folder();
    let mut server = NatsServer::start(&path("store"), 4222);
    std::fs::create_dir(path("keys")).unwrap();
    let group = Group::new(path("keys"));
    nothing_is_lost_or_counted_twice(&group, &path("root"), &mut server);
    what_is_wrong_is_named(&group, &path("root"));
    refused_jobs_are_left_to_others(&group, &path("root"));
    rules_are_judged_over_an_archive(&group, &path("root"));
    mistakes_are_told(&group, &path("root"));
    a_cancelled_scan_is_told(&group, &path("root"), &mut server);
    a_worker_outlives_its_server(&group, &path("root"), &mut server);
}
