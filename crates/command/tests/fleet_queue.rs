//! `fyke fleet ship`, `take` and `sums` with a real NATS server: workers share the frames of several sensors, and the
//! sums close across all processes, whatever is killed.
#![cfg(feature = "fleet")]

mod common;

use common::{FYKE, Running, folder, inside, send, veth};
use fyke_testkit::nats::NatsServer;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for the sums to close: a batch of a killed worker waits 10 s.
const LIMIT: Duration = Duration::from_secs(90);
/// Frames to port 53 and to port 80 of each sensor.
const DNS: u64 = 60_000;
const WEB: u64 = 20_000;

struct Group(PathBuf);

impl Group {
    /// Makes the keys of two sensors, which workers trust, and of eve.
    fn new(folder: PathBuf) -> Group {
        let mut authors = Vec::new();
        for name in ["oslo", "bergen", "eve"] {
            let mut made = Command::new(FYKE);
            made.args(["fleet", "key"]).arg(folder.join(name)).args(["--name", name]);
            let made = made.output().unwrap();
            assert!(made.status.success(), "{made:?}");
            if name != "eve" {
                authors.extend(made.stdout);
            }
        }
        std::fs::write(folder.join("authors"), authors).unwrap();
        Group(folder)
    }

    fn ship(&self, sensor: &str, queue: &str) -> Command {
        let mut command = Command::new(FYKE);
        command.args(["fleet", "ship", "--group", "edge", "--queue", queue, "--name", sensor]);
        command.arg("--key").arg(self.0.join(sensor));
        command
    }

    fn take(&self, name: &str, queue: &str, words: &[&str]) -> Running {
        let mut command = Command::new(FYKE);
        command.args(["fleet", "take", "--group", "edge", "--queue", queue, "--name", name]);
        command.args(["--at-once", "2", "--json", "--trust"]).arg(self.0.join("authors"));
        let worker = Running::start(command.args(words).stdout(Stdio::piped()));
        worker.hear("takes from the queue");
        worker
    }

    /// The sums; `None` while the server starts.
    fn sums(&self, queue: &str) -> Option<Value> {
        let mut command = Command::new(FYKE);
        command.args(["fleet", "sums", "--group", "edge", "--queue", queue, "--json"]);
        let output = command.output().unwrap();
        if !output.status.success() {
            return None;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}")))
    }

    fn until(&self, queue: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let sums = self.sums(queue);
            if let Some(sums) = sums.as_ref().filter(|sums| test(sums)) {
                return sums.clone();
            }
            assert!(start.elapsed() < LIMIT, "not {what}: {sums:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn capture(path: &Path) {
    let to = |port| {
        let ip = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        ip.udp(4000, port).payload(b"x").build()
    };
    let mut frames = vec![to(53); DNS as usize];
    frames.extend(vec![to(80); WEB as usize]);
    std::fs::write(path, pcap::file(1, &frames)).unwrap();
}

/// arrived, passed, rejected, taken and lost of the frames in a sum.
fn frames_of(sum: &Value) -> [u64; 5] {
    let node = &sum["nodes"][0];
    assert_eq!(node["node"], "frames", "{sum}");
    ["arrived", "passed", "rejected", "taken", "lost"].map(|name| node[name].as_u64().unwrap())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ended(mut worker: Running) -> Value {
    worker.signal("INT");
    assert!(worker.end().success(), "{}", worker.said());
    serde_json::from_slice(&common::rest(&mut worker)).unwrap()
}

/// A worker is killed while it works, and the server, too.
fn workers_share_what_sensors_ship(group: &Group, file: &Path, server: &mut NatsServer) {
    for sensor in ["oslo", "bergen"] {
        let mut ship = group.ship(sensor, "dns");
        let output = ship.arg("-r").arg(file).arg("udp dst port 53 or 80").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let all = DNS + WEB;
        assert!(said(&output).contains(&format!("{all} frames shipped in ")), "{}", said(&output));
    }
    let sums = group.sums("dns").unwrap();
    assert_eq!(sums["closed"], false, "{sums}");
    let mut first = group.take("first", "dns", &["udp dst port 53"]);
    group.until("dns", "begun", |sums| sums["all"]["batches"].as_u64() > Some(1));
    first.signal("KILL");
    first.end();
    server.start_again();
    let second = group.take("second", "dns", &["udp dst port 53"]);
    let third = group.take("third", "dns", &["udp dst port 53"]);
    let sums = group.until("dns", "closed", |sums| sums["closed"] == true);
    let all = 2 * (DNS + WEB);
    assert_eq!(frames_of(&sums["all"]), [all, 2 * DNS, 2 * WEB, 0, 0], "{sums}");
    let shares = ["first", "second", "third"].map(|name| {
        let worker = &sums["workers"][name];
        frames_of(worker)[0]
    });
    assert_eq!(shares.iter().sum::<u64>(), all, "{sums}");
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    // Each prints the sums of all at its end.
    for worker in [second, third] {
        assert_eq!(frames_of(&ended(worker)["all"])[0], all);
    }
}

/// Batches of an author that the workers do not trust, and graphs that open files.
fn what_is_wrong_is_refused(group: &Group, file: &Path) {
    let mut ship = group.ship("eve", "web");
    assert!(ship.arg("-r").arg(file).arg("udp dst port 80").output().unwrap().status.success());
    let worker = group.take("fourth", "web", &[]);
    worker.hear("a batch is refused: ");
    group.until("web", "empty", |sums| sums["waiting"] == 0);
    let sums = ended(worker);
    assert_eq!((&sums["closed"], &sums["all"]["batches"]), (&false.into(), &0.into()), "{sums}");
    let mut command = Command::new(FYKE);
    command.args(["fleet", "take", "--group", "edge", "--queue", "web", "--trust"]);
    command.arg(group.0.join("authors"));
    let output = command.args(["--graph", "(pcapin, -) > (tofile, /tmp/x)"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("opens more than memory"), "{}", said(&output));
    let output = group.ship("oslo", "web").args(["-i", "v1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("run `fyke serve -i v1`"), "{}", said(&output));
}

/// Frames of a running service; what its filter rejects is in the account of the sensor.
fn a_live_service_is_shipped(group: &Group) {
    let mut service = Command::new(FYKE);
    let mut service = Running::start(service.args(["serve", "-i", "v1"]).stdout(Stdio::null()));
    service.hear("serving v1");
    let mut ship = group.ship("oslo", "live");
    let mut ship = Running::start(ship.args(["-i", "serve:v1", "udp port 5001"]));
    ship.hear("ships to the queue live");
    let worker = group.take("fifth", "live", &["--graph", "(pcapin, -) > (sampler, 2)"]);
    send(2000, 100);
    group.until("live", "all frames", |sums| sums["all"]["frames"] == 1000);
    ship.signal("INT");
    assert!(ship.end().success(), "{}", ship.said());
    let sum = ship.sum();
    assert_eq!((sum.seen, sum.accepted, sum.rejected, sum.lost), (2000, 1000, 1000, 0));
    let sums = ended(worker);
    assert_eq!(sums["closed"], true, "{sums}");
    let account = &sums["shipped"][0];
    let of = |name: &str| account[name].as_u64().unwrap();
    assert_eq!([of("seen"), of("shipped"), of("rejected")], [2000, 1000, 1000], "{sums}");
    let [arrived, passed, rejected, ..] = frames_of(&sums["all"]);
    assert_eq!((arrived, passed + rejected), (1000, 1000), "{sums}");
    service.signal("INT");
    assert!(service.end().success());
}

#[test]
fn workers_of_a_queue_share_the_frames_of_sensors() {
    if !inside("workers_of_a_queue_share_the_frames_of_sensors") {
        return;
    }
    if !NatsServer::is_installed() {
        println!("skipped: nats-server is not installed");
        return;
    }
    veth();
    common::tool("ip link set lo up");
    let (_folder, path) = folder();
    let mut server = NatsServer::start(&path("store"), 4222);
    std::fs::create_dir(path("keys")).unwrap();
    let group = Group::new(path("keys"));
    let file = path("frames.pcap");
    capture(&file);
    workers_share_what_sensors_ship(&group, &file, &mut server);
    what_is_wrong_is_refused(&group, &file);
    a_live_service_is_shipped(&group);
}
