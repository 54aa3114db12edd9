//! Seeded faults of rings and of interfaces that frames are sent to: readers that stop, continue and are killed, a
//! writer that is killed, an interface that refuses frames and goes down. Every sum adds up.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, send, tool, veth};
use fyke_testkit::random::{Random, rounds};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Frames of one step of a test.
const STEP: u64 = 300;
const STEPS: usize = 12;

/// Starts a reader of the ring that writes a file.
fn reader(ring: &str, file: &Path) -> Running {
    let mut command = Command::new(FYKE);
    let command = command.args(["dump", "--no-control", "-i", ring, "-w"]).arg(file);
    let running = Running::start(command.stdout(Stdio::null()));
    running.hear("listening on");
    running
}

/// One reader is left alone, one is stopped and continued, one is killed; at last the writer ends or is killed.
fn ring_round(random: &mut Random) {
    let (_folder, at) = folder();
    let ring = format!("ring:{}", at("ring").display());
    let to_ring = format!("udp => {ring}");
    let mut command = Command::new(FYKE);
    let command = command.args(["demux", "--no-control", "-i", "v1", &to_ring]);
    let mut writer = Running::start(command.stdout(Stdio::null()));
    let start = Instant::now();
    while !at("ring").exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", writer.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let names = ["steady", "stopped", "killed"];
    let [mut steady, mut stopped, mut killed] = names.map(|name| reader(&ring, &at(name)));
    let (kill_at, writer_dies) = (random.below(STEPS), random.chance(2));
    for step in 0..STEPS {
        if step == kill_at {
            killed.signal("KILL");
            killed.child.wait().unwrap();
        }
        stopped.signal(if random.chance(2) { "STOP" } else { "CONT" });
        send(STEP, 1 + random.below(1000));
    }
    stopped.signal("CONT");
    // The writer has taken all frames when its reader has written them.
    let sent = STEP * STEPS as u64;
    if writer_dies {
        std::thread::sleep(Duration::from_millis(random.below(50) as u64));
    }
    writer.signal(if writer_dies { "KILL" } else { "INT" });
    let status = writer.end();
    assert_eq!(status.success(), !writer_dies, "{}", writer.said());
    for (name, running) in [("steady", &mut steady), ("stopped", &mut stopped)] {
        let status = running.end();
        let said = running.said();
        assert_eq!(status.success(), !writer_dies, "{name}: {said}");
        let sum = running.sum();
        assert_eq!(sum.accepted, frames_of(&at(name)), "{name}: {said}");
        match writer_dies {
            true => assert!(sum.seen <= sent, "{name}: {said}"),
            false => assert_eq!(sum.seen, sent, "{name}: {said}"),
        }
    }
}

#[test]
fn readers_and_writers_of_a_ring_stop_and_die() {
    if !inside("readers_and_writers_of_a_ring_stop_and_die") {
        return;
    }
    veth();
    for seed in [4, 5, 6] {
        rounds(seed, ring_round);
    }
}

/// Numbers of a node in the output of `run --stats`.
fn account_of(said: &str, node: &str) -> [u64; 5] {
    let line = said.lines().find(|line| line.starts_with(node));
    let line = line.unwrap_or_else(|| panic!("no {node} in: {said}"));
    let words: Vec<&str> = line.split([' ', ';']).collect();
    ["arrived", "passed", "rejected", "taken", "lost"].map(|what| {
        let place = words.iter().position(|word| *word == what).unwrap();
        words[place - 1].parse().unwrap()
    })
}

/// The interface takes other lengths from step to step, goes down, and comes back or is removed.
fn interface_round(random: &mut Random) {
    tool("ip link add o0 type veth peer name o1");
    tool("ip link set o0 up");
    tool("ip link set o1 up");
    let mut command = Command::new(FYKE);
    let command = command.args(["dump", "--no-control", "-i", "o1", "--count"]);
    let mut sink = Running::start(command.stdout(Stdio::piped()));
    sink.hear("listening on");
    let graph = "(device,v1) > {out}(tointerface,o0,export=y)";
    let mut command = Command::new(FYKE);
    let command = command.args(["run", "--no-control", "--stats", graph]);
    let mut run = Running::start(command.stdout(Stdio::piped()));
    run.hear("running");
    let down_at = random.below(2 * STEPS);
    for step in 0..STEPS {
        if step == down_at {
            tool(random.pick(&["ip link set o0 down", "ip link delete o0"]));
        } else if step < down_at {
            tool(&format!("ip link set o0 mtu {}", 100 + random.below(1400)));
        }
        send(STEP, 1 + random.below(1400));
    }
    run.signal("INT");
    let status = run.end();
    let said = run.said();
    let sum = run.sum();
    // The graph continues; what the interface does not send is lost.
    assert!(status.success() && sum.seen == STEP * STEPS as u64, "{said}");
    assert!(sum.lost > 0 || down_at >= STEPS, "{said}");
    let [arrived, passed, rejected, taken, lost] = account_of(&said, "out");
    assert_eq!(arrived, sum.seen, "{said}");
    assert_eq!(arrived, passed + rejected + taken + lost, "{said}");
    let counters = String::from_utf8(common::rest(&mut run)).unwrap();
    let counter = |name: &str| {
        let line = counters.lines().find_map(|line| line.strip_prefix(&format!("out\t{name}\t")));
        line.unwrap_or_else(|| panic!("no {name} in: {counters}")).parse::<u64>().unwrap()
    };
    let sent = counter("sent");
    assert!(sent + counter("refused") >= passed, "a batch that fails is lost: {counters} {said}");
    // An interface that goes away takes its counts of the last frames with it.
    if down_at >= STEPS {
        assert_eq!(sent + counter("refused"), arrived, "{counters} {said}");
        sink.signal("INT");
        sink.end();
        let counted = String::from_utf8(common::rest(&mut sink)).unwrap();
        assert_eq!(counted.trim(), sent.to_string(), "the other end counts: {said}");
    } else {
        sink.child.kill().unwrap();
        sink.child.wait().unwrap();
    }
    // It may be gone already.
    let _either = Command::new("ip").args(["link", "delete", "o0"]).output().unwrap();
}

#[test]
fn an_interface_refuses_frames_and_goes_down() {
    if !inside("an_interface_refuses_frames_and_goes_down") {
        return;
    }
    veth();
    for seed in [4, 5, 6] {
        rounds(seed, interface_round);
    }
}
