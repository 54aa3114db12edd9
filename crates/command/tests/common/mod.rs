//! Shared code of the tests of live runs: the built command on real interfaces, in its own namespaces, and its sums.
#![allow(dead_code, reason = "each test file uses its part")]

use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::namespace;
use fyke_testkit::packet::Packet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Returns true inside the test's own namespaces. Elsewhere it runs this test inside and passes on its failure.
pub fn inside(test: &str) -> bool {
    namespace::inside(test, &["-n", "-m", "--propagation", "private"], None)
}

pub fn tool(line: &str) {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a pair of interfaces, `v0` and `v1`, without traffic of their own.
pub fn veth() {
    for name in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        std::fs::write(path, "1").unwrap();
    }
    tool("ip link add v0 type veth peer name v1");
    tool("ip link set v0 up");
    tool("ip link set v1 up");
    carrier();
}

/// Waits until the kernel has noticed that `v0` and `v1` have a carrier; before that it drops what is sent.
pub fn carrier() {
    carrier_of(["v0", "v1"]);
}

/// The same for any pair of interfaces.
pub fn carrier_of(names: [&str; 2]) {
    let is_up = |name: &str| {
        let shown = Command::new("ip").args(["-o", "link", "show", "dev", name]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains(" state UP ")
    };
    let limit = Instant::now() + Duration::from_secs(20);
    while !names.into_iter().all(is_up) {
        assert!(Instant::now() < limit, "{names:?} have no carrier");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn datagram(port: u16, len: usize) -> Vec<u8> {
    let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, port);
    packet.payload(&vec![7; len]).build()
}

/// Sends this number of frames on `v0`, every other one to port 5001.
pub fn send(count: u64, len: usize) {
    send_while(count, len, || true);
}

pub fn send_while(count: u64, len: usize, go_on: impl Fn() -> bool) -> u64 {
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    let frames = [datagram(5001, len), datagram(5002, len)];
    for number in 0..count {
        if !go_on() {
            return number;
        }
        let data = &frames[number as usize % 2];
        sink.write(&interface, &Frame::new(LinkType::EN10MB, data)).unwrap();
    }
    assert_eq!(sink.stats().frames, count, "the interface takes every frame");
    count
}

/// A running command, and its output so far.
pub struct Running {
    pub child: Child,
    pub said: Arc<Mutex<String>>,
}

/// Folder of the control sockets of this test's commands.
pub fn runtime() -> PathBuf {
    std::env::temp_dir().join(format!("fyke-stops-{}", std::process::id()))
}

/// Ends the command if a check failed before, and removes the folders of control sockets once they are empty.
impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
        let own = runtime().file_name().unwrap().to_string_lossy().into_owned();
        let of_user = format!("{own}-");
        let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
        // The folder of root, and that of the user that a command has become.
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != own && !name.starts_with(&of_user) {
                continue;
            }
            let _others_still_use_it = std::fs::remove_dir(entry.path().join("serve"));
            let _others_still_use_it = std::fs::remove_dir(entry.path());
        }
    }
}

/// Numbers of the sum at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    pub seen: u64,
    pub accepted: u64,
    pub rejected: u64,
    pub lost: u64,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let mut child = command
            .env("FYKE_RUNTIME_DIR", runtime())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (errors, heard) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                *heard.lock().unwrap() += &(line + "\n");
            }
        });
        Running { child, said }
    }

    /// Starts `fyke dump -i v1` with additional arguments.
    pub fn dump(words: &[&str], stdout: Stdio) -> Running {
        let mut command = Command::new(FYKE);
        command.args(["dump", "--no-control", "-i", "v1"]).args(words).stdout(stdout);
        let running = Running::start(&mut command);
        running.hear("listening on");
        running
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until the output contains a text.
    pub fn hear(&self, text: &str) {
        let start = Instant::now();
        while !self.said().contains(text) {
            let patient = start.elapsed() < Duration::from_secs(20);
            assert!(patient, "{text:?} is not in: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn signal(&self, name: &str) {
        tool(&format!("kill -{name} {}", self.child.id()));
    }

    /// Sends a request with `fyke ctl`; returns the answer.
    pub fn ctl(&self, words: &[&str]) -> String {
        let mut command = Command::new(FYKE);
        command.args(["ctl", "--pid", &self.child.id().to_string()]).args(words);
        let output = command.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the frames that were sent have arrived.
    pub fn settle(&self, seen: u64) {
        self.wait_for(&format!(" {seen} seen = "));
    }

    /// Waits until the counts contain a text.
    pub fn wait_for(&self, text: &str) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !self.ctl(&["stats"]).contains(text) {
            assert!(Instant::now() < limit, "not {text:?}: {}", self.ctl(&["stats"]));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end. The limit of a minute is not a measurement: it detects a hang even on a busy machine.
    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // A thread reads the last output.
                std::thread::sleep(Duration::from_millis(50));
                return status;
            }
            if start.elapsed() > Duration::from_secs(60) {
                self.child.kill().unwrap();
                panic!("it does not end; it said: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the sum, after a check that it adds up.
    pub fn sum(&self) -> Sum {
        let said = self.said();
        let line = said.lines().find(|line| line.contains(" seen = "));
        let line = line.unwrap_or_else(|| panic!("no sum in: {said}"));
        let counts = line.split(';').next().unwrap();
        let number = |what: &str| {
            let words: Vec<&str> = counts.split(' ').collect();
            let pairs = words.windows(2).filter(|pair| pair[1] == what);
            pairs.map(|pair| pair[0].parse::<u64>().unwrap()).sum::<u64>()
        };
        let [seen, accepted, rejected, lost] = ["seen", "accepted", "rejected", "lost"].map(number);
        assert_eq!(seen, accepted + rejected + lost, "{line}");
        Sum { seen, accepted, rejected, lost }
    }
}

/// Counts the frames of a file; all of them must be complete.
pub fn frames_of(path: &Path) -> u64 {
    let output = Command::new(FYKE).args(["dump", "--count", "-r"]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", path.display());
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

pub fn folder() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, move |name: &str| path.join(name))
}

/// Reads the bytes that a pipe still holds after its writer has ended.
pub fn rest(running: &mut Running) -> Vec<u8> {
    let mut bytes = Vec::new();
    running.child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}
