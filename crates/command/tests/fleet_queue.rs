//! `fyke fleet ship`, `take` and `sums` with a real NATS server: workers share the frames of several sensors, and the
//! sums close across all processes, whatever is killed.
#![cfg(feature = "fleet")]

mod common;

use common::{FYKE, Running, folder, inside, send, veth};
use fyke_testkit::nats::NatsServer;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for the sums to close: a batch of a killed worker waits 10 s.
const LIMIT: Duration = Duration::from_secs(90);
/// Frames to port 53 and to port 80 of each sensor.
const DNS: u64 = 120_000;
const WEB: u64 = 200_000;

struct Group(PathBuf);

impl Group {
    /// Makes the keys of two sensors, which workers trust, and of eve, which only workers with the file `all` trust.
    fn new(folder: PathBuf) -> Group {
        let mut authors = Vec::new();
        for name in ["oslo", "bergen", "eve"] {
            let mut made = Command::new(FYKE);
            made.args(["fleet", "key"]).arg(folder.join(name)).args(["--name", name]);
            let made = made.output().unwrap();
            assert!(made.status.success(), "{made:?}");
            if name == "eve" {
                std::fs::write(folder.join("authors"), &authors).unwrap();
            }
            authors.extend(made.stdout);
        }
        std::fs::write(folder.join("all"), authors).unwrap();
        Group(folder)
    }

    fn ship(&self, sensor: &str, queue: &str) -> Command {
        let mut command = Command::new(FYKE);
        command.args(["fleet", "ship", "--group", "edge", "--queue", queue, "--name", sensor]);
        command.arg("--key").arg(self.0.join(sensor));
        command
    }

    fn take(&self, name: &str, queue: &str, words: &[&str]) -> Running {
        self.take_of("authors", name, queue, words)
    }

    /// A worker that trusts the authors of a file.
    fn take_of(&self, trust: &str, name: &str, queue: &str, words: &[&str]) -> Running {
        let mut command = Command::new(FYKE);
        command.args(["fleet", "take", "--group", "edge", "--queue", queue, "--name", name]);
        command.args(["--at-once", "2", "--json", "--trust"]).arg(self.0.join(trust));
        let worker = Running::start(command.args(words).stdout(Stdio::piped()));
        worker.hear("takes from the queue");
        worker
    }

    fn sums_of(&self, queue: &str) -> Output {
        let mut command = Command::new(FYKE);
        command.args(["fleet", "sums", "--group", "edge", "--queue", queue, "--json"]);
        command.output().unwrap()
    }

    /// The sums; `None` while the server starts.
    fn sums(&self, queue: &str) -> Option<Value> {
        let output = self.sums_of(queue);
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
    let unknown = group.sums_of("dsn");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(said(&unknown).contains("nothing was shipped to the queue dsn of edge"), "{unknown:?}");
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
        // On a busy machine the second one may finish before the third has begun.
        sums["workers"].get(name).map_or(0, |worker| frames_of(worker)[0])
    });
    assert_eq!(shares.iter().sum::<u64>(), all, "{sums}");
    assert!(shares[0] > 0 && shares[1] + shares[2] > 0, "{shares:?}");
    // Each prints the sums of all at its end.
    for worker in [second, third] {
        assert_eq!(frames_of(&ended(worker)["all"])[0], all);
    }
}

/// Publishes bytes as a batch or a row, past fyke.
fn publish(subject: &str, bytes: &str) {
    let mut server = TcpStream::connect("127.0.0.1:4222").unwrap();
    let length = bytes.len();
    let asked = format!(
        "CONNECT {{\"verbose\":false}}\r\nPUB fyke.edge.{subject} {length}\r\n{bytes}\r\nPING\r\n"
    );
    server.write_all(asked.as_bytes()).unwrap();
    let mut lines = BufReader::new(server).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "PONG"));
}

/// Batches of an author that some workers do not trust go to one that does, after more refusals than the attempts that
/// a batch has; what is no batch is removed.
fn refused_batches_are_left_to_others(group: &Group, folder: &Path) {
    let file = folder.join("few.pcap");
    let ip = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    std::fs::write(&file, pcap::file(1, &vec![ip.udp(4000, 80).payload(b"x").build(); 100]))
        .unwrap();
    let mut ship = group.ship("eve", "web");
    assert!(ship.arg("-r").arg(&file).output().unwrap().status.success());
    publish("batches.web.x", "GET / HTTP/1.1");
    publish("taken.web", "no row");
    let strict = ["s1", "s2", "s3", "s4"].map(|name| group.take(name, "web", &[]));
    let sums = group.until("web", "refused six times", |sums| {
        let refused = sums["refused"].as_array().unwrap().iter();
        let deliveries = refused.map(|refusal| refusal["deliveries"].as_u64().unwrap());
        deliveries.sum::<u64>() > 5 && sums["removed"] == 1
    });
    let refusal = &sums["refused"][0];
    assert_eq!((&refusal["author"], &refusal["batches"]), (&"eve".into(), &1.into()), "{sums}");
    assert_eq!((&sums["waiting"], &sums["closed"]), (&1.into(), &false.into()), "{sums}");
    let said: String = strict.iter().map(Running::said).collect();
    assert!(said.contains("add the public line of eve to the --trust file"), "{said}");
    assert!(said.matches("left to other workers").count() <= 4, "once for each worker: {said}");
    let mut command = Command::new(FYKE);
    let output = command.args(["fleet", "sums", "--group", "edge", "--queue", "web"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    for part in ["refuses 1 batches of eve: ", "1 batches wait: still open", "1 messages were no"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let worker = group.take_of("all", "fourth", "web", &[]);
    let sums = group.until("web", "closed", |sums| sums["closed"] == true);
    let all = &sums["all"];
    assert_eq!((&all["batches"], &all["failed"]), (&1.into(), &0.into()), "{sums}");
    assert_eq!((frames_of(all)[0], &sums["refused"]), (100, &Value::Array(Vec::new())), "{sums}");
    ended(worker);
    strict.into_iter().for_each(|worker| drop(ended(worker)));
}

/// Graphs that open files, and sources that would be captured.
fn what_is_wrong_is_refused(group: &Group) {
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
    // Where the kernel does not count what it rejects, the frames are those `seen by fyke`.
    let said = ship.said();
    let sum = " = 1000 accepted + 1000 rejected + 0 lost";
    assert!(said.contains("2000 seen") && said.contains(sum), "{said}");
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

/// A shipper that is killed tells no account: the sums close over what it shipped, and name its session.
fn a_killed_shipper_leaves_no_queue_open(group: &Group) {
    let mut service = Command::new(FYKE);
    let mut service = Running::start(service.args(["serve", "-i", "v1"]).stdout(Stdio::null()));
    service.hear("serving v1");
    let mut ship = group.ship("oslo", "killed");
    let mut ship = Running::start(ship.args(["-i", "serve:v1", "udp port 5001"]));
    ship.hear("ships to the queue killed");
    send(2000, 100);
    group.until("killed", "shipped", |sums| sums["waiting"].as_u64() > Some(0));
    ship.signal("KILL");
    ship.end();
    let sums = group.sums("killed").unwrap();
    assert_eq!((&sums["silent"], &sums["closed"]), (&Value::Array(Vec::new()), &false.into()));
    let worker = group.take("sixth", "killed", &[]);
    let sums = group.until("killed", "closed", |sums| sums["closed"] == true);
    let account = &sums["shipped"][0];
    assert_eq!(sums["silent"], serde_json::json!([account["session"]]), "{sums}");
    assert_eq!(account["ended"], false, "{sums}");
    // What only its last account would have told.
    for unknown in ["seen", "rejected", "lost"] {
        assert_eq!(account.get(unknown), Some(&Value::Null), "{unknown}: {sums}");
    }
    assert_eq!(account["shipped"], sums["all"]["frames"], "{sums}");
    assert!(account["shipped"].as_u64() > Some(0), "{sums}");
    ended(worker);
    let mut command = Command::new(FYKE);
    let output = command.args(["fleet", "sums", "--group", "edge", "--queue", "killed"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let session = account["session"].as_str().unwrap();
    assert!(text.contains(&format!("session {session} gave no sign of life for 30 s")), "{text}");
    assert!(text.contains("all frames that are known to be shipped are in the sums"), "{text}");
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
    refused_batches_are_left_to_others(&group, &path("keys"));
    what_is_wrong_is_refused(&group);
    a_live_service_is_shipped(&group);
    a_killed_shipper_leaves_no_queue_open(&group);
}
