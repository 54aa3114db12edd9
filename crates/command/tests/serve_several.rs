//! `fyke serve` with several captures in one process: each has its name, its readers and its counts, and all survive a
//! restart.

mod common;
#[path = "common/manager.rs"]
mod manager;

use common::{
    FYKE, Running, Sum, carrier_of, datagram, folder, frames_of, inside, runtime, tool, veth,
};
use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use manager::Manager;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes two pairs of interfaces: `v0` and `v1`, `w0` and `w1`.
fn two_pairs() {
    veth();
    tool("ip link add w0 type veth peer name w1");
    tool("ip link set w0 up");
    tool("ip link set w1 up");
    carrier_of(["w0", "w1"]);
}

/// Sends frames to port 5001 on an interface.
fn send(on: &str, count: u64) {
    let mut sink = InterfaceSink::open(on).unwrap();
    let interface = Interface::new(on, LinkType::EN10MB);
    let data = datagram(5001, 60);
    for _ in 0..count {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, &data)).unwrap();
    }
    assert_eq!(sink.stats().frames, count);
}

fn serve(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    Running::start(command.arg("serve").args(words))
}

fn dump(service: &str, words: &[&str], file: &Path) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", &format!("serve:{service}"), "-w"]).arg(file).args(words);
    let reader = Running::start(command.stdout(Stdio::null()));
    reader.hear("listening on serve:");
    reader
}

fn stopped(mut one: Running) -> Sum {
    one.signal("INT");
    assert!(one.end().success(), "{}", one.said());
    one.sum()
}

fn all(seen: u64) -> Sum {
    Sum { seen, accepted: seen, rejected: 0, lost: 0 }
}

#[test]
fn readers_choose_a_capture_by_its_name() {
    if !inside("readers_choose_a_capture_by_its_name") {
        return;
    }
    two_pairs();
    let (_folder, at) = folder();
    let config = at("serve.toml");
    let text = "[[capture]]\ninterface = \"v1\"\nname = \"outside\"\n\
                [[capture]]\ninterface = \"w1\"\nbuffer_kib = 4096\n\
                [[rule]]\nusers = [0]\ninterfaces = [\"w1\"]\nfilter = \"udp\"\n";
    std::fs::write(&config, text).unwrap();
    let path = config.to_str().unwrap();
    let mut service = serve(&["--config", path, "--log", "json"]);
    service.hear("as serve:outside");
    service.hear("as serve:w1");
    let files = [at("v1.pcapng"), at("w1.pcapng")];
    let outside = dump("outside", &[], &files[0]);
    let mut inside = dump("w1", &["udp port 5001"], &files[1]);
    send("v0", 300);
    send("w0", 200);
    outside.settle(300);
    inside.wait_for("200 seen by fyke = 200 accepted");
    let shown = service.ctl(&["stats"]);
    for line in ["500 seen = 500 accepted", "outside: 300 seen = 300 ", "w1: 200 seen = 200 "] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(shown.contains("(every frame)  (serve:outside, user 0"), "{shown}");
    // The numbers of readers are those of the whole service.
    service.ctl(&["pause", "2"]);
    send("w0", 100);
    send("v0", 100);
    service.wait_for("600 accepted");
    service.ctl(&["start", "2"]);
    outside.settle(400);
    assert_eq!(stopped(outside), all(400));
    // Its rule has a filter, so what it rejects is not told.
    inside.signal("INT");
    assert!(inside.end().success(), "{}", inside.said());
    assert!(inside.said().contains("200 seen by fyke = 200 accepted + 0 rejected + 0 lost"));
    assert_eq!(files.map(|file| frames_of(&file)), [400, 200]);
    // The rules are read again, the captures are not.
    std::fs::write(&config, text.replace("\"udp\"", "\"udp port 5001\"")).unwrap();
    service.signal("HUP");
    service.hear("the policy has been read again");
    std::fs::write(&config, text.replace("outside", "other")).unwrap();
    service.signal("HUP");
    service.hear("the captures have changed; restart the service");
    service.signal("TERM");
    assert!(service.end().success(), "{}", service.said());
    let said = service.said();
    let ends = said.lines().filter(|line| line.contains(r#""event":"end""#));
    let names: Vec<bool> = ends.map(|line| line.contains(r#""name":"outside""#)).collect();
    assert_eq!(names, [true, false], "{said}");
}

#[test]
fn a_restart_of_several_captures_loses_nothing() {
    if !inside("a_restart_of_several_captures_loses_nothing") {
        return;
    }
    two_pairs();
    let (folder, at) = folder();
    let manager = Manager::of(&["v1", "w1"], folder.path());
    let mut service = manager.start();
    let files = [at("v1.pcapng"), at("w1.pcapng")];
    let mut readers = [0, 1].map(|one| manager.dump_of(one, &["udp"], &files[one]));
    for (round, signal) in ["TERM", "KILL"].into_iter().enumerate() {
        send("v0", 100);
        send("w0", 70);
        let arrived = 200 * (round as u64 + 1) - 100;
        readers[0].settle(arrived);
        readers[1].settle(arrived / 100 * 70 - round as u64 * 70);
        service.signal(signal);
        assert_eq!(service.end().success(), signal == "TERM", "{}", service.said());
        send("v0", 100);
        service = manager.start();
        service.hear("v1.sock: the capture continues, with 1 readers");
        service.hear("w1.sock: the capture continues, with 1 readers");
    }
    // A process without the second capture ends its readers, with the reason, and keeps nothing of it.
    service.signal("TERM");
    assert!(service.end().success(), "{}", service.said());
    let words = ["-i", "v1"].map(str::to_owned);
    let service = manager.start_with(&words, 1);
    service.hear("the capture continues, with 1 readers");
    assert_eq!(readers[1].end().code(), Some(1));
    assert!(readers[1].said().contains("without this capture"), "{}", readers[1].said());
    assert_eq!(readers[1].sum(), all(140));
    let of_second = |name: &str| name.ends_with("w1.sock");
    assert!(!manager.kept.lock().unwrap().iter().any(|(name, _)| of_second(name)));
    let [first, _second] = readers;
    first.settle(400);
    assert_eq!(stopped(first), all(400));
    assert_eq!(files.map(|file| frames_of(&file)), [400, 140]);
    assert_eq!(stopped(service).lost, 0);
}

#[test]
fn wrong_lists_of_captures_say_what_is_expected() {
    let (_folder, at) = folder();
    let config = at("serve.toml");
    let path = config.to_str().unwrap();
    let refused = |text: &str, words: &[&str]| {
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(FYKE);
        command.arg("serve").args(words).env("FYKE_RUNTIME_DIR", runtime());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{text} {words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let one = "[[capture]]\ninterface = \"lo\"\n";
    for (text, words, why) in [
        ("", &["-i", "lo", "-i", "lo"][..], "-i lo: it is named twice"),
        ("", &["-i", "lo", "-i", "any", "--name", "x"], "it names one capture, and there are 2"),
        (one, &["-i", "lo", "--config", path], "lists the captures ([[capture]])"),
        ("[[capture]]\nname = \"x\"\n", &["--config", path], "serve.toml:1: missing field"),
        ("[[capture]]\ninterface = \"serve:x\"\n", &["--config", path], "name an interface"),
        (
            &format!("{one}name = \"/run/a\\nb\"\n"),
            &["--config", path],
            "serve.toml:3: \"/run/a\\nb\" is not a name of a service",
        ),
        (
            "[[rule]]\nusers = [1,\n99999999999]\n",
            &["-i", "lo", "--config", path],
            "serve.toml:3: invalid value: integer `99999999999`, expected the name of a user or group in quotes, or a \
             number from 0 to 4294967294",
        ),
        (
            "[[rule]]\nusers = [1]\ntexts = -1\n",
            &["-i", "lo", "--config", path],
            "serve.toml:3: texts is -1, expected 1 to 10000",
        ),
    ] {
        let said = refused(text, words);
        assert!(said.contains(why), "{why}: {said}");
    }
}
