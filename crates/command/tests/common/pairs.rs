//! Frames of many conversations on `v0`, and captures of them on `v1`.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::common::{FYKE, Running, Sum, runtime};
use fyke_capture::{Interface, InterfaceSink, Next, Sink, Source, open_file};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Pairs of addresses: that all of them belong to one of three workers is impossible in practice.
pub const PAIRS: u32 = 61;

pub fn pair(number: u32) -> ([u8; 4], [u8; 4]) {
    let pair = (number * 7 % PAIRS) as u8;
    ([10, 0, 0, pair], [10, 0, 1, pair])
}

/// Frame `number` of one of many conversations, in either direction; the number is in its payload. Every other frame
/// belongs to port 5001, the others to 5002.
pub fn frame(number: u32) -> Vec<u8> {
    let (near, far) = pair(number / 2);
    let (near, far) = if number.is_multiple_of(3) { (far, near) } else { (near, far) };
    let port = 5001 + (number % 2) as u16;
    let packet = Packet::ethernet().ipv4(near, far).udp(4000, port);
    packet.payload(&number.to_be_bytes()).build()
}

/// Sends frames on `v0`.
pub fn send_all(frames: impl IntoIterator<Item = Vec<u8>>) {
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    for frame in frames {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, &frame)).unwrap();
    }
}

/// Times and bytes of the frames of a file.
pub fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut source = open_file(path).unwrap();
    let mut frames = Vec::new();
    while let Next::Frames(batch, _) = source.next().unwrap() {
        frames.extend(batch.frames().iter().map(|one| (one.timestamp_ns, one.data.to_vec())));
    }
    frames
}

pub fn in_order(frames: &[(u64, Vec<u8>)]) -> bool {
    frames.windows(2).all(|two| two[0].0 <= two[1].0)
}

/// The bytes of all frames, sorted.
pub fn contents(frames: Vec<(u64, Vec<u8>)>) -> Vec<Vec<u8>> {
    let mut contents: Vec<_> = frames.into_iter().map(|(_, data)| data).collect();
    contents.sort();
    contents
}

/// Starts a command, and waits until it captures.
pub fn start(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    let running = Running::start(command.args(words).stdout(Stdio::null()));
    let ready = if words[0] == "run" { "running" } else { "listening on" };
    running.hear(ready);
    running
}

pub fn ctl(running: &Running, words: &[&str]) -> String {
    let mut command = Command::new(FYKE);
    command.args(["ctl", "--pid", &running.child.id().to_string()]).args(words);
    let output = command.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until this number of frames has been counted.
pub fn settle(running: &Running, seen: u64) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !ctl(running, &["stats"]).contains(&format!(" {seen} seen = ")) {
        assert!(Instant::now() < limit, "{}", ctl(running, &["stats"]));
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn stop(mut running: Running) -> (Sum, String) {
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    (running.sum(), running.said())
}
