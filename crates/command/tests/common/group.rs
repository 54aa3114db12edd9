//! A group of machines for tests: keys, sensors and edits of `fyke fleet`.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::common::{FYKE, Running, folder, runtime, tool, veth};
use fyke_testkit::nats::NatsServer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for something that comes soon.
const LIMIT: Duration = Duration::from_secs(30);

/// Repeats until there is a result.
pub fn until<T>(what: &str, mut result: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = result() {
            return result;
        }
        assert!(start.elapsed() < LIMIT, "{what}: not after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files and the address of a group.
pub struct Group {
    folder: PathBuf,
    port: u16,
    /// Name of the file of trusted authors.
    pub trust: &'static str,
}

impl Group {
    /// Makes the keys of anna and bert; the group trusts them, and not eve. The file `everybody` has eve, too.
    pub fn new(folder: &Path, port: u16) -> Group {
        let group = Group { folder: folder.to_owned(), port, trust: "authors" };
        let (mut authors, mut everybody) = (String::new(), String::new());
        for name in ["anna", "bert", "eve"] {
            let made = Command::new(FYKE)
                .args(["fleet", "key", group.key(name).to_str().unwrap(), "--name", name])
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
            let line = String::from_utf8(made.stdout).unwrap();
            everybody += &line;
            if name != "eve" {
                authors += &line;
            }
        }
        std::fs::write(folder.join("authors"), authors).unwrap();
        std::fs::write(folder.join("everybody"), everybody).unwrap();
        group
    }

    /// Starts a server in the namespaces of a test, with `v0` and `v1`; `None`, with the reason, without the program.
    pub fn start(path: &impl Fn(&str) -> PathBuf) -> Option<(NatsServer, Group)> {
        if !NatsServer::is_installed() {
            println!("skipped: nats-server is not installed");
            return None;
        }
        veth();
        tool("ip link set lo up");
        let broker = NatsServer::start(&path("store"), 4222);
        std::fs::create_dir(path("keys")).unwrap();
        Some((broker, Group::new(&path("keys"), 4222)))
    }

    pub fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    pub fn args(&self) -> Vec<String> {
        let server = format!("nats://127.0.0.1:{}", self.port);
        let trust = self.folder.join(self.trust).to_str().unwrap().to_owned();
        ["--server", &server, "--group", "edge", "--trust", &trust].map(str::to_owned).to_vec()
    }

    pub fn sensor(&self, name: &str, capture: &Running, labels: &[&str]) -> Running {
        let mut command = Command::new(FYKE);
        command.arg("sensor").args(self.args()).args(["--name", name]);
        command.args(["--pid", &capture.child.id().to_string()]).args(labels);
        let sensor = Running::start(command.stdout(Stdio::null()));
        sensor.hear("beside the fyke with process id");
        sensor
    }

    pub fn fleet(&self, action: &str, words: &[&str]) -> Output {
        let mut command = Command::new(FYKE);
        command.args(["fleet", action]).args(self.args()).args(words);
        command.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap()
    }

    pub fn edit(&self, author: &str, action: &str, words: &[&str]) -> Output {
        let key = self.key(author);
        let key = ["--key", key.to_str().unwrap(), "--wait", "20"];
        self.fleet(action, &[&key[..], words].concat())
    }

    /// The same, which must succeed; returns what it printed.
    pub fn edited(&self, author: &str, action: &str, words: &[&str]) -> String {
        let output = self.edit(author, action, words);
        assert!(output.status.success(), "{action} {words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn sensors(&self) -> Vec<Value> {
        let output = self.fleet("list", &["--json"]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until a sensor has answered an edit.
    pub fn follows(&self, name: &str, sequence: u64) -> Value {
        until(&format!("{name} has answered edit {sequence}"), || {
            let mut sensors = self.sensors().into_iter();
            sensors.find(|it| it["name"] == name && it["sequence"].as_u64() >= Some(sequence))
        })
    }
}

/// Two captures with a sensor beside each: `one` in Oslo, `two` in Bonn.
pub struct Two {
    pub broker: NatsServer,
    pub group: Group,
    pub first: Running,
    pub second: Running,
    pub one: Running,
    pub two: Running,
    folder: tempfile::TempDir,
}

impl Two {
    /// Starts them in the namespaces of a test; `None`, with the reason, without a server program.
    pub fn start() -> Option<Two> {
        let (folder, path) = folder();
        let (broker, group) = Group::start(&path)?;
        let (first, second) = (capture(&path("1.pcapng")), capture(&path("2.pcapng")));
        let one = group.sensor("one", &first, &["--label", "site=oslo"]);
        let two = group.sensor("two", &second, &["--label", "site=bonn"]);
        Some(Two { broker, group, first, second, one, two, folder })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends the sensors, then the captures.
    pub fn end(mut self) {
        for running in [&mut self.one, &mut self.two] {
            running.signal("INT");
            assert_eq!(running.end().code(), Some(0), "{}", running.said());
        }
        assert!(self.group.sensors().is_empty());
        for running in [&mut self.first, &mut self.second] {
            running.signal("INT");
            assert!(running.end().success(), "{}", running.said());
        }
    }
}

pub fn capture(file: &Path) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "v1", "--count-all", "-w", file.to_str().unwrap()]);
    let capture = Running::start(command.arg("udp port 7").stdout(Stdio::null()));
    capture.hear("listening on");
    capture
}

/// The texts of a capture's filters.
pub fn texts(capture: &Running) -> Vec<String> {
    let shown: Value = serde_json::from_str(&capture.ctl(&["show", "--json"])).unwrap();
    let filters = shown["filters"].as_array().unwrap().iter();
    // Not the entry of those that have been removed.
    let filters = filters.filter(|filter| filter["id"] != 0);
    filters.map(|filter| filter["text"].as_str().unwrap().to_owned()).collect()
}
