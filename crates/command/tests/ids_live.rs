//! `fyke ids` while frames arrive: edits of many rules with every packet judged, a service as the source, state that
//! outlives edits.

mod common;

use common::{FYKE, Running, datagram, folder, inside, send, send_while, veth};
use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rules that no frame of the tests matches.
fn others(count: usize) -> String {
    let rule = |sid: usize| {
        let rest = ["udp any any -> any any", "tcp any any -> any 80"][sid % 2];
        format!("alert {rest} (content:\"word number {sid}\"; sid:{sid};)\n")
    };
    (1000..1000 + count).map(rule).collect()
}

/// Starts `fyke ids` on a source with rules, and alerts in `eve.json` beside them.
fn ids(source: &str, rules: &Path, words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    let eve = rules.with_file_name("eve.json");
    command.args(["ids", "-Z", "root", "-i", source, "-S"]).arg(rules).arg("--eve").arg(eve);
    let running = Running::start(command.args(words));
    running.answers();
    running
}

impl Running {
    /// Waits until requests are answered.
    fn answers(&self) {
        let answers = || {
            let mut command = Command::new(FYKE);
            command.args(["ctl", "--pid", &self.child.id().to_string(), "stats"]);
            command.env("FYKE_RUNTIME_DIR", common::runtime()).output().unwrap().status.success()
        };
        let start = std::time::Instant::now();
        while !answers() {
            assert!(start.elapsed().as_secs() < 20, "it does not answer: {}", self.said());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// The alerts of a file: number of lines with each sid, in the order of `sids`.
fn alerts<const N: usize>(folder: &Path, sids: [u64; N]) -> [u64; N] {
    let text = std::fs::read_to_string(folder.join("eve.json")).unwrap();
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    sids.map(|sid| all.iter().filter(|one| one["alert"]["signature_id"] == sid).count() as u64)
}

fn stopped(mut running: Running) -> String {
    running.signal("INT");
    assert!(running.end().success(), "{}", running.said());
    running.said()
}

const FIVES: &str = "alert udp any any -> any 5001 (content:\"|07 07 07 07 07|\"; sid:1;)";

#[test]
fn every_packet_is_judged_while_rules_are_edited() {
    if !inside("every_packet_is_judged_while_rules_are_edited") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let rules = at("my.rules");
    std::fs::write(&rules, format!("{}{FIVES}\n", others(1500))).unwrap();
    let running = ids("v1", &rules, &["--checksums", "no"]);
    let edited = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            // Frames arrive as long as there are edits, up to what the ring holds anyway.
            let pause = || std::thread::sleep(std::time::Duration::from_micros(100));
            send_while(60_000, 100, || {
                pause();
                !edited.load(Ordering::Relaxed)
            })
        });
        for number in 0..40 {
            let sid = 10_000 + number;
            let text =
                format!("alert udp any any -> any any (content:\"another {number}\"; sid:{sid};)");
            running.ctl(&["add", &text]);
            running.ctl(&["del", &(1000 + number).to_string()]);
        }
        edited.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    running.settle(sent);
    // A rule that is in force alerts on the next frame; one that is removed does not.
    running.ctl(&["add", "alert udp any any -> any 5002 (content:\"|07 07|\"; sid:2;)"]);
    send(20, 100);
    running.settle(sent + 20);
    running.ctl(&["del", "2"]);
    send(20, 100);
    running.settle(sent + 40);
    let said = stopped(running);
    let frames = sent + 40;
    assert!(said.contains(&format!("{frames} frames: {frames} judged")), "{said}");
    assert!(said.contains("1501 rules, ") && !said.contains("lost"), "{said}");
    // Frames with even numbers go to port 5001.
    assert_eq!(alerts(rules.parent().unwrap(), [1, 2]), [sent.div_ceil(2) + 20, 10]);
    println!("{sent} frames during 80 edits");
}

#[test]
fn a_service_is_a_source_of_rules_that_are_edited() {
    if !inside("a_service_is_a_source_of_rules_that_are_edited") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let mut command = Command::new(FYKE);
    let service = Running::start(command.args(["serve", "-i", "v1"]));
    service.hear("serving v1");
    let rules = at("my.rules");
    std::fs::write(&rules, format!("{}{FIVES}\n", others(50))).unwrap();
    let running = ids("serve:v1", &rules, &["--checksums", "no"]);
    send(2000, 100);
    running.settle(2000);
    running.ctl(&["add", "alert udp any any -> any 5002 (content:\"|07 07|\"; sid:2;)"]);
    send(2000, 100);
    running.settle(4000);
    let said = stopped(running);
    assert!(said.contains("4000 frames: 4000 judged"), "{said}");
    assert_eq!(alerts(rules.parent().unwrap(), [1, 2]), [2000, 1000]);
    // The nodes in the service choose the frames.
    let some = "(filter, udp port 5002, live=y)";
    let running = ids("serve:v1", &rules, &["--checksums", "no", "--serve-graph", some]);
    send(100, 100);
    running.wait_for(" 50 accepted");
    let said = stopped(running);
    assert!(said.contains("50 frames: 50 judged"), "{said}");
    assert_eq!(alerts(rules.parent().unwrap(), [1]), [0]);
    for (words, status, why) in [
        (&["-i", "serve:nothing"][..], 1, "no fyke serves \"nothing\""),
        (&["-i", "serve:"], 2, "the name of the service is missing"),
        (&["-i", "serve:v1", "-p"], 2, "-p: a service is captured by `fyke serve`"),
    ] {
        let mut refused = Command::new(FYKE);
        refused.arg("ids").args(words).arg("-S").arg(&rules);
        let output = refused.env("FYKE_RUNTIME_DIR", common::runtime()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(why), "{said}");
    }
    let mut running = ids("serve:v1", &rules, &[]);
    stopped(service);
    assert!(running.end().success(), "the end of a service is an end: {}", running.said());
}

/// Counts of limits, and names of flows and hosts, outlive edits; `set` keeps them, too.
#[test]
fn counts_and_names_outlive_edits_and_reloads() {
    if !inside("counts_and_names_outlive_edits_and_reloads") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let rules = at("my.rules");
    let first = "alert udp any any -> any 5001 (flowbits:set,seen; xbits:set,host,track ip_src,expire 600; \
        flowbits:noalert; content:\"|07|\"; sid:1;)\n\
        drop udp any any -> any 5001 (content:\"|07|\"; threshold:type limit,track by_src,count 3,seconds 3600; \
        sid:2;)\n\
        alert udp any any -> any 5001 (content:\"|07|\"; detection_filter:track by_src,count 4,seconds 3600; \
        sid:3;)\n";
    std::fs::write(&rules, first).unwrap();
    let running = ids("v1", &rules, &["--checksums", "no"]);
    let mut sink = InterfaceSink::open("v0").unwrap();
    let mut seen = 0;
    let mut frames = |count: u64, port: u16| {
        for _ in 0..count {
            let frame = Frame::new(LinkType::EN10MB, &datagram(port, 60)).data.to_vec();
            let interface = Interface::new("v0", LinkType::EN10MB);
            sink.write(&interface, &Frame::new(LinkType::EN10MB, &frame)).unwrap();
        }
        sink.flush().unwrap();
        seen += count;
        running.settle(seen);
    };
    frames(2, 5001);
    running.ctl(&["add", "alert udp any any -> any 5001 (flowbits:isset,seen; sid:4;)"]);
    running.ctl(&["add", "alert udp any any -> any 5002 (xbits:isset,host,track ip_src; sid:5;)"]);
    frames(2, 5001);
    frames(1, 5002);
    let more = format!(
        "{first}alert udp any any -> any 5001 (flowbits:isset,seen; sid:4;)\n\
         alert udp any any -> any 5002 (xbits:isset,host,track ip_src; sid:5;)\n"
    );
    let reloaded = at("more.rules");
    std::fs::write(&reloaded, more).unwrap();
    let shown = || {
        let text = running.ctl(&["show", "--full"]);
        let lines = text.lines().filter(|line| line.contains("sid:")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let before = shown();
    running.ctl(&["set", "-F", reloaded.to_str().unwrap()]);
    // Rules with the same text keep their matches.
    assert_eq!((before.len(), &before), (5, &shown()));
    frames(3, 5001);
    frames(1, 5002);
    stopped(running);
    // Of seven frames: three by the limit; those after the fourth by the filter; those after the edit by names.
    assert_eq!(alerts(rules.parent().unwrap(), [1, 2, 3, 4, 5]), [0, 3, 3, 5, 2]);
    let text = std::fs::read_to_string(at("eve.json")).unwrap();
    let drops = text.lines().filter(|line| line.contains("\"action\":\"would drop\""));
    assert_eq!(drops.count(), 3, "{text}");
}

/// A file of rules that is longer than a request replaces all rules, and every packet is judged meanwhile.
#[test]
fn a_long_file_of_rules_is_loaded_while_frames_arrive() {
    if !inside("a_long_file_of_rules_is_loaded_while_frames_arrive") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let rules = at("my.rules");
    std::fs::write(&rules, FIVES).unwrap();
    let running = ids("v1", &rules, &["--checksums", "no"]);
    let long = "x".repeat(30_000);
    let rule = |sid: usize| {
        format!(
            "alert udp any any -> any any (msg:\"{long}\"; content:\"word {sid}\"; sid:{sid};)\n"
        )
    };
    let more = at("more.rules");
    let text: String = (1000..1700).map(rule).collect();
    assert!(text.len() > 20 << 20);
    std::fs::write(&more, format!("# many rules\n\n{text}{FIVES}\nalert nonsense\n")).unwrap();
    let loaded = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let pause = || std::thread::sleep(std::time::Duration::from_micros(200));
            send_while(60_000, 100, || {
                pause();
                !loaded.load(Ordering::Relaxed)
            })
        });
        let said = running.ctl(&["set", "-F", more.to_str().unwrap()]);
        loaded.store(true, Ordering::Relaxed);
        assert!(said.contains("epoch 1"), "{said}");
        sender.join().unwrap()
    });
    running.settle(sent);
    let said = stopped(running);
    assert!(said.contains(&format!("{sent} frames: {sent} judged")), "{said}");
    assert!(said.contains("701 rules, ") && !said.contains("lost"), "{said}");
    assert_eq!(alerts(rules.parent().unwrap(), [1]), [sent.div_ceil(2)]);
}
