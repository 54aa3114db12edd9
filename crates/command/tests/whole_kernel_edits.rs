//! Many edits of a filter in the kernel while frames arrive: no frame is lost, and each added text is in force for its
//! time and no longer. The built command on a real interface, in namespaces of its own. Needs root.

mod common;

use common::{FYKE, Running, datagram, folder, inside, runtime, veth};
use fyke_capture::{Interface, InterfaceSink, Next, Sink, Source, open_file};
use fyke_control::runtime_dir::RuntimeDir;
use fyke_control::{Client, Request, Response};
use fyke_frame::{Frame, LinkType};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of texts that are added, and removed.
const TEXTS: usize = 1_000;
/// Frames before a pause of [`PAUSE`]: some 50,000 a second.
const BURST: usize = 10;
const PAUSE: Duration = Duration::from_micros(200);
/// Edits before a rest in which the texts of the moment become a generated program.
const STRETCH: usize = 125;
const REST: Duration = Duration::from_millis(700);

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    u64::try_from(now).unwrap()
}

/// Sends frames to ports 5001 and 5002 in turn, until the end; returns their number.
fn send_until(ended: &AtomicBool) -> u64 {
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    let frames = [datagram(5001, 60), datagram(5002, 60)];
    let mut sent = 0;
    while !ended.load(Ordering::Relaxed) {
        for data in frames.iter().cycle().take(BURST) {
            sink.write(&interface, &Frame::new(LinkType::EN10MB, data)).unwrap();
            sent += 1;
        }
        std::thread::sleep(PAUSE);
    }
    assert_eq!(sink.stats().frames, sent, "the interface takes every frame");
    sent
}

/// Adds and removes a text; returns the times before each addition and after its removal.
fn edit(client: &mut Client) -> Vec<(u64, u64)> {
    let mut windows = Vec::new();
    for number in 0..TEXTS {
        let begin = now_ns();
        let text = format!("udp port 5002 and len > {}", number % 50);
        let Ok(Response::Ok { ids, .. }) = client.call(Request::Add { text }) else {
            panic!("the text {number} is refused");
        };
        if number % 4 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Ok(Response::Ok { .. }) = client.call(Request::Delete { id: ids[0] }) else {
            panic!("the text {number} cannot be removed");
        };
        windows.push((begin, now_ns()));
        if number % STRETCH == STRETCH - 1 {
            std::thread::sleep(REST);
        }
    }
    windows
}

/// Times of the frames of a file to port 5002, and the number of those to port 5001.
fn times_of(file: &Path) -> (Vec<u64>, u64) {
    let (mut times, mut others) = (Vec::new(), 0);
    let mut source = open_file(file).unwrap();
    while let Next::Frames(batch, _) = source.next().unwrap() {
        for frame in batch.frames() {
            match u16::from_be_bytes([frame.data[36], frame.data[37]]) {
                5002 => times.push(frame.timestamp_ns),
                5001 => others += 1,
                port => panic!("port {port}"),
            }
        }
    }
    (times, others)
}

#[test]
fn thousands_of_edits_lose_nothing_and_are_in_force_for_their_time() {
    if !inside("thousands_of_edits_lose_nothing_and_are_in_force_for_their_time") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("edits.pcapng");
    let words = ["dump", "-i", "v1", "-w", file.to_str().unwrap(), "udp port 5001"];
    let mut running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
    running.hear("listening on");
    let stats = running.ctl(&["stats"]);
    if ["no clang", "CAP_BPF", "privilege"].iter().any(|why| stats.contains(why)) {
        return println!("skipped: {stats}");
    }
    assert!(stats.contains("the filters run in the kernel, too"), "{stats}");
    let folder = RuntimeDir::at(runtime());
    let mut client = Client::connect_in(&[folder], Some(running.child.id())).unwrap();
    let ended = AtomicBool::new(false);
    let (sent, windows) = std::thread::scope(|threads| {
        let sender = threads.spawn(|| send_until(&ended));
        let windows = edit(&mut client);
        ended.store(true, Ordering::Relaxed);
        (sender.join().unwrap(), windows)
    });
    running.settle(sent);
    assert!(running.ctl(&["stats"]).contains("the filters run in the kernel, too"));
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.lost), (sent, 0), "{}", running.said());
    let (times, others) = times_of(&file);
    assert_eq!(others, sent / 2, "the first text is in force all the time");
    assert_eq!(sum.accepted, others + times.len() as u64);
    assert!(times.len() > TEXTS / 4, "{} frames of added texts", times.len());
    let mut windows = windows.into_iter().peekable();
    for time in times {
        while windows.next_if(|(_, end)| *end < time).is_some() {}
        let inside = windows.peek().is_some_and(|(begin, _)| *begin <= time);
        assert!(inside, "a frame passed while no text accepted it");
    }
}

/// The text that accepts the frames was added to a running capture, so the program of the start does not cover it: the
/// interpreter evaluates it after that program, and other texts come and go beside it.
#[test]
fn edits_beside_an_added_text_reject_none_of_its_frames() {
    if !inside("edits_beside_an_added_text_reject_none_of_its_frames") {
        return;
    }
    veth();
    let words = ["dump", "-i", "v1", "-w", "/dev/null", "tcp"];
    let mut running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
    running.hear("listening on");
    let folder = RuntimeDir::at(runtime());
    let mut client = Client::connect_in(&[folder], Some(running.child.id())).unwrap();
    let mut call = |request| match client.call(request) {
        Ok(Response::Ok { ids, .. }) => ids,
        other => panic!("{other:?}"),
    };
    call(Request::Add { text: "udp".to_owned() });
    let ended = AtomicBool::new(false);
    let sent = std::thread::scope(|threads| {
        let sender = threads.spawn(|| send_until(&ended));
        for text in ["icmp", "tcp port 9", "greater 4294967294"].iter().cycle().take(2 * TEXTS) {
            let ids = call(Request::Add { text: (*text).to_owned() });
            call(Request::Delete { id: ids[0] });
        }
        ended.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    running.settle(sent);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.accepted, sum.rejected, sum.lost), (sent, 0, 0), "{}", running.said());
}

/// A text that is added later becomes part of a generated program, by a process that keeps the right to load one. The
/// sums stay exact while programs take each other's place, and after that process was killed.
#[test]
fn later_texts_become_a_program_and_stay_interpreted_without_its_loader() {
    if !inside("later_texts_become_a_program_and_stay_interpreted_without_its_loader") {
        return;
    }
    veth();
    let words = ["dump", "-i", "v1", "-w", "/dev/null", "udp port 5001"];
    let mut running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
    running.hear("listening on");
    let stats = running.ctl(&["stats"]);
    if ["no clang", "CAP_BPF", "privilege"].iter().any(|why| stats.contains(why)) {
        return println!("skipped: {stats}");
    }
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: programs are generated on x86-64 only");
    }
    let generated = "its program is generated from them";
    assert!(stats.contains(generated), "{stats}");
    let loader = loader_of(running.child.id()).expect("a loader");
    let ended = AtomicBool::new(false);
    let sent = std::thread::scope(|threads| {
        let sender = threads.spawn(|| send_until(&ended));
        let _after_a_failure = Ends(&ended);
        for round in 0..4 {
            running.ctl(&["add", &format!("udp port 5002 and len < {}", 100 + round)]);
            assert!(!running.ctl(&["stats"]).contains(generated), "it cannot be there yet");
            running.wait_for(generated);
        }
        // One that was stopped makes programs again, without another edit.
        signal("-STOP", &loader);
        running.ctl(&["add", "udp port 5004"]);
        running.wait_for("the process that loads programs does not answer");
        running.hear("the process that loads programs does not answer");
        signal("-CONT", &loader);
        running.wait_for(generated);
        running.hear("the process that loads programs answers again");
        signal("-KILL", &loader);
        running.hear(&format!("the loader process {loader} has ended by signal 9"));
        assert!(!Path::new(&format!("/proc/{loader}")).exists(), "it stays as a zombie");
        running.ctl(&["add", "udp port 5003"]);
        running.wait_for("the process that loads programs has ended");
        ended.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    running.settle(sent);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted + sum.rejected, sum.lost), (sent, sent, 0));
    assert!(sum.accepted > sent / 2, "the first text and a part of the others: {}", running.said());
}

/// A helper that was killed is reported, leaves no zombie, and the capture continues.
#[test]
fn a_killed_helper_is_reported_once() {
    if !inside("a_killed_helper_is_reported_once") {
        return;
    }
    veth();
    let words = ["dump", "-i", "v1", "-w", "/dev/null", "udp port 5001"];
    let mut running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
    running.hear("listening on");
    let helper = child_of(running.child.id(), "fyke-helper").expect("a helper");
    signal("-KILL", &helper);
    running.hear(&format!("the helper process {helper} has ended by signal 9"));
    assert!(!Path::new(&format!("/proc/{helper}")).exists(), "it stays as a zombie");
    common::send(1000, 60);
    running.settle(1000);
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    assert_eq!((running.sum().seen, running.sum().accepted), (1000, 500));
    assert_eq!(running.said().matches("the helper").count(), 1, "{}", running.said());
    // Only the helper could remove the socket of root.
    std::fs::remove_file(runtime().join(format!("{}.sock", running.child.id()))).unwrap();
}

/// The loader ends with its capture, after SIGKILL of that, too.
#[test]
fn the_loader_of_a_killed_capture_ends() {
    if !inside("the_loader_of_a_killed_capture_ends") {
        return;
    }
    veth();
    for signal in ["INT", "KILL"] {
        let words = ["dump", "-i", "v1", "-w", "/dev/null", "udp port 5001"];
        let mut running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
        running.hear("listening on");
        let Some(loader) = loader_of(running.child.id()) else {
            return println!("skipped: {}", running.ctl(&["stats"]));
        };
        running.signal(signal);
        let _status = running.end();
        let began = std::time::Instant::now();
        while Path::new(&format!("/proc/{loader}/exe")).read_link().is_ok() {
            assert!(began.elapsed() < Duration::from_secs(20), "the loader stays after {signal}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Ends a sender when it is dropped: the scope of a test that fails waits for it.
struct Ends<'e>(&'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The process that loads programs for a capture.
fn loader_of(capture: u32) -> Option<String> {
    child_of(capture, "fyke-loader")
}

fn child_of(capture: u32, name: &str) -> Option<String> {
    let capture = capture.to_string();
    let found = Command::new("pgrep").args(["-P", &capture, "-x", name]).output().unwrap();
    let pid = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    (!pid.is_empty()).then_some(pid)
}

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}
