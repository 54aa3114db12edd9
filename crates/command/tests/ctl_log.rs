//! `fyke ctl log`, `undo`, `batch`, `try`, `why`, and filters with names, times and lists of addresses, on a running
//! `fyke dump`.

mod common;

use common::{FYKE, Running, folder, inside, runtime, send, veth};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `fyke ctl` on a running command; it may fail.
fn ctl(running: &Running, words: &[&str]) -> Output {
    let mut command = Command::new(FYKE);
    command.args(["ctl", "--pid", &running.child.id().to_string()]).args(words);
    command.env("FYKE_RUNTIME_DIR", runtime()).env_remove("SUDO_UID").output().unwrap()
}

/// The message of a request that is refused as wrong.
fn refused(running: &Running, words: &[&str]) -> String {
    let output = ctl(running, words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn json(running: &Running, words: &[&str]) -> Value {
    serde_json::from_str(&running.ctl(&[words, &["--json"]].concat())).unwrap()
}

/// Starts a capture of `v1` that can be edited.
fn capture(file: &Path, words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "v1", "-w", file.to_str().unwrap()]).args(words);
    let running = Running::start(command.stdout(Stdio::null()));
    running.hear("listening on");
    running
}

fn texts(running: &Running) -> Vec<String> {
    let stats = json(running, &["stats"]);
    let filters = stats["filters"].as_array().unwrap().iter();
    let own = filters.filter(|filter| filter["id"] != 0);
    own.map(|filter| filter["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn edits_are_logged_and_taken_back() {
    if !inside("edits_are_logged_and_taken_back") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"), &["udp port 5001"]);
    assert!(
        running.ctl(&["add", "--name", "second", "udp port 5002"]).contains("filter 2, epoch 2")
    );
    send(10, 20);
    running.settle(10);
    running.ctl(&["set", "arp"]);
    let log = running.ctl(&["log"]);
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].starts_with("epoch 1  20") && lines[0].ends_with("the command line"), "{log}");
    assert_eq!(lines[1], "    + filter 1: 5 accepted  udp port 5001", "{log}");
    assert!(lines[2].contains("  root (fyke ctl, process "), "{log}");
    assert_eq!(lines[3], "    + filter 2 second: 5 accepted  udp port 5002", "{log}");
    assert_eq!(lines[5], "    - filter 1: 5 accepted  udp port 5001", "{log}");
    assert_eq!(lines[7], "    + filter 3: 0 accepted  arp", "{log}");
    assert_eq!(running.ctl(&["log", "--last", "1"]).lines().count(), 4);
    // A filter of the second epoch has been removed by the third.
    let said = refused(&running, &["undo", "2"]);
    assert!(
        said.contains("filter 2 of epoch 2 has been removed since, in epoch 3 by root"),
        "{said}"
    );
    assert!(refused(&running, &["undo", "1"]).contains("only edits of users"));
    assert!(refused(&running, &["undo", "77"]).contains("epochs 1 to 3"));
    assert!(running.ctl(&["undo"]).contains("filter 4, filter 5, epoch 4"));
    assert_eq!(texts(&running), ["udp port 5001", "udp port 5002"]);
    let log = json(&running, &["log"]);
    assert_eq!(log["entries"][3]["undoes"], 3);
    assert_eq!(log["entries"][2]["undone"], 4);
    assert_eq!(log["entries"][2]["author"]["uid"], 0);
    send(10, 20);
    running.settle(20);
    assert!(running.ctl(&["show"]).contains("filter 5 second           5 frames  udp port 5002"));
    // The next undo takes back the edit before, under the number that its filter has now.
    assert!(running.ctl(&["undo"]).contains("epoch 5"));
    assert_eq!(texts(&running), ["udp port 5001"]);
    assert!(running.ctl(&["log"]).contains("taken back in epoch 5"), "{}", running.ctl(&["log"]));
    assert!(refused(&running, &["undo"]).contains("no edit of this user that can be taken back"));
    running.signal("INT");
    assert!(running.end().success());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (20, 20, 0));
}

#[test]
fn a_batch_is_one_edit_or_none() {
    if !inside("a_batch_is_one_edit_or_none") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"), &["arp"]);
    let batch = |text: &str| {
        std::fs::write(path("edits"), text).unwrap();
        path("edits").to_str().unwrap().to_owned()
    };
    let done = batch("add --name a udp port 5001 # one\n\nadd udp port 5002\ndel 1\n");
    assert!(running.ctl(&["batch", "-F", &done]).contains("filter 2, filter 3, epoch 2"));
    assert_eq!(texts(&running), ["udp port 5001", "udp port 5002"]);
    for (text, part) in [
        ("add icmp\n# no\nadd udp prot 1\n", "edits:3: "),
        ("add icmp\ndel 99\n", "edits:2: there is no filter 99"),
        ("add icmp\nadd --name a tcp\n", "edits:2: filter 2 has the name \"a\""),
        ("add icmp\nnone\n", "edits:2: \"none\" is none of"),
        (&"\0".repeat(1_000_000), "edits:1: "),
    ] {
        let said = refused(&running, &["batch", "-F", &batch(text)]);
        assert!(said.len() < 10_000, "{} bytes", said.len());
        assert!(said.contains(part), "{text:?}: {said}");
    }
    let said = refused(&running, &["batch", "-F", &batch("add icmp\nadd udp prot 1\n")]);
    assert!(said.contains("udp prot 1\n    ^~~~") || said.contains('^'), "{said}");
    assert!(said.contains("no edit was made"), "{said}");
    assert_eq!(texts(&running).len(), 2);
    assert_eq!(json(&running, &["stats"])["epoch"], 2);
    running.signal("INT");
    assert!(running.end().success());
}

#[test]
fn a_list_of_addresses_is_one_filter_and_one_line() {
    if !inside("a_list_of_addresses_is_one_filter_and_one_line") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"), &["arp"]);
    let list = |text: &str| {
        std::fs::write(path("list"), text).unwrap();
        path("list").to_str().unwrap().to_owned()
    };
    let hosts: String =
        (0..10_000).map(|n| format!("10.9.{}.{}\n", n / 250, n % 250)).collect::<String>()
            + "10.0.0.1 # sender\n";
    running.ctl(&["add", "--hosts", &list(&hosts)]);
    send(10, 20);
    running.settle(10);
    assert_eq!(json(&running, &["stats"])["accounting"]["delivered"], 10);
    let shown = running.ctl(&["show"]);
    assert!(shown.lines().count() < 10 && shown.len() < 2_000, "{shown}");
    assert!(shown.contains(" characters)"), "{shown}");
    assert!(running.ctl(&["stats"]).len() < 2_000);
    assert!(running.ctl(&["log"]).len() < 2_000);
    let full = running.ctl(&["show", "--full"]);
    assert!(full.contains("host 10.9.39.249 or host 10.0.0.1"), "{} bytes", full.len());
    // A set is one pass; pairs are a pass each.
    let pair = |n: usize| format!("(ip src host 10.9.0.{n} and udp dst port {})", 5_001 + n);
    std::fs::write(path("pairs"), (0..100).map(pair).collect::<Vec<_>>().join(" or\n")).unwrap();
    running.ctl(&["add", "-F", path("pairs").to_str().unwrap()]);
    let shown = running.ctl(&["show"]);
    assert!(shown.contains("    100 passes, 0 of them with frames; --full lists them"), "{shown}");
    let full = running.ctl(&["show", "--full"]);
    assert!(full.lines().count() > 100, "{full}");
    // With a byte order mark, as some editors write it.
    let only = list("\u{feff}10.0.0.1\n");
    let added = ctl(&running, &["add", "--hosts", &only, "udp port 5001"]);
    assert!(added.status.success());
    assert!(texts(&running).contains(&"(udp port 5001) and (host 10.0.0.1)".to_owned()));
    let said = refused(&running, &["add", "--hosts", &list("10.0.0.1\n10.0.0.400\n")]);
    assert!(said.contains("list:2: expected an address") && said.contains("^^^^^^^^^^"), "{said}");
    // The same text twice is a note, not an error.
    let again = ctl(&running, &["add", "arp"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && said.contains("has the same text as filter 1"), "{said}");
    running.signal("INT");
    assert!(running.end().success());
}

#[test]
fn a_filter_with_a_time_goes_by_itself() {
    if !inside("a_filter_with_a_time_goes_by_itself") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"), &["arp"]);
    running.ctl(&["add", "--name", "short", "--for", "1s", "udp"]);
    running.ctl(&["add", "--name", "long", "--for", "2h", "icmp"]);
    let shown = running.ctl(&["show"]);
    assert!(shown.contains("filter 3 long") && shown.contains(" min left"), "{shown}");
    let limit = Instant::now() + Duration::from_secs(20);
    while texts(&running).len() > 2 {
        assert!(Instant::now() < limit, "{}", running.ctl(&["show"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = running.ctl(&["log", "--last", "1"]);
    assert!(log.contains("  the end of its time\n    - filter 2 short: 0 accepted"), "{log}");
    running.ctl(&["del", "long"]);
    assert_eq!(texts(&running), ["arp"]);
    assert!(refused(&running, &["del", "long"]).contains("no filter has this name"));
    assert!(refused(&running, &["add", "--name", "9", "ip"]).contains("is no name for a filter"));
    assert!(refused(&running, &["add", "--for", "5", "ip"]).contains("a number and a unit"));
    running.signal("INT");
    assert!(running.end().success());
}

/// Frames that fyke counts itself are all there; those that the kernel rejects are named.
#[test]
fn a_filter_is_tried_before_it_is_added() {
    if !inside("a_filter_is_tried_before_it_is_added") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"), &["--count-all", "udp port 5001"]);
    send(100, 20);
    running.settle(100);
    // Frames are handed over within a tenth of a second.
    std::thread::sleep(Duration::from_millis(400));
    let tried = json(&running, &["try", "udp"]);
    assert_eq!(tried["past"]["frames"], 100, "{tried}");
    assert_eq!((&tried["accepted"], &tried["new"]), (&100.into(), &50.into()), "{tried}");
    assert_eq!(tried["in_force"], 50);
    assert_eq!(tried["first"].as_array().unwrap().len(), 5);
    let said = running.ctl(&["try", "--last", "10", "udp port 5002"]);
    assert!(said.starts_with("would accept 5 of the last 10 frames ("), "{said}");
    assert!(
        said.contains("5 of them new; the filters in force accept 5\nfirst of the new"),
        "{said}"
    );
    assert!(said.contains("10.0.0.2.5002: UDP"), "{said}");
    assert!(refused(&running, &["try", "udp prot 1"]).contains('^'));
    let why = running.ctl(&["why", "--last", "2"]);
    assert_eq!(why.matches("    filter 1: ").count(), 2, "{why}");
    assert!(why.contains("5002: UDP") && why.contains("port 5001: no"), "{why}");
    // Nothing has changed.
    assert_eq!((texts(&running).len(), &json(&running, &["stats"])["epoch"]), (1, &1.into()));
    running.signal("INT");
    assert!(running.end().success());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted), (100, 50));
}

/// The answer names the frames that the kernel has rejected, if it filters.
#[test]
fn frames_that_the_kernel_rejects_are_named() {
    if !inside("frames_that_the_kernel_rejects_are_named") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let running = capture(&path("out.pcapng"), &["udp port 5001"]);
    if !running.ctl(&["show"]).contains("(eBPF)") {
        println!("skipped: no eBPF here");
        return;
    }
    send(100, 20);
    running.settle(100);
    std::thread::sleep(Duration::from_millis(400));
    let said = running.ctl(&["try", "udp"]);
    assert!(said.contains("would accept 50 of the last 50 frames"), "{said}");
    assert!(said.contains("the kernel has rejected 50 frames since the start"), "{said}");
}

/// A capture of a pipe answers like one of an interface.
#[test]
fn a_filter_is_tried_on_a_file() {
    if !inside("a_filter_is_tried_on_a_file") {
        return;
    }
    let (_folder, path) = folder();
    let frames: Vec<_> = (0..60).map(|n| common::datagram(5001 + n % 3, 20)).collect();
    let bytes = fyke_testkit::pcap::file(1, &frames);
    let mut command = Command::new(FYKE);
    command.args([
        "dump",
        "-Z",
        "root",
        "-r",
        path("fifo").to_str().unwrap(),
        "-w",
        "/dev/null",
        "udp port 5001",
    ]);
    common::tool(&format!("mkfifo {}", path("fifo").display()));
    let (fifo, (begin, rest)) = (path("fifo"), bytes.split_at(bytes.len() - 10));
    let (begin, rest) = (begin.to_vec(), rest.to_vec());
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        let mut fifo = std::fs::File::create(fifo).unwrap();
        fifo.write_all(&begin).unwrap();
        let _ended = wait.recv();
        fifo.write_all(&rest).unwrap();
    });
    let mut running = Running::start(command.stdout(Stdio::null()));
    let limit = Instant::now() + Duration::from_secs(20);
    let tried = loop {
        let output = ctl(&running, &["try", "--json", "udp"]);
        let tried: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if tried["past"]["frames"] == 59 {
            break tried;
        }
        assert!(Instant::now() < limit, "{output:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((&tried["accepted"], &tried["new"]), (&59.into(), &39.into()), "{tried}");
    go.send(()).unwrap();
    writer.join().unwrap();
    assert!(running.end().success(), "{}", running.said());
}

/// A graph has no log.
/// Frames that arrive during a pause are lost, with the reason; the sum closes, with one worker and with two.
#[test]
fn frames_of_a_pause_are_lost_and_counted() {
    if !inside("frames_of_a_pause_are_lost_and_counted") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    for workers in ["1", "2"] {
        let options = ["--workers", workers, "--count-all", "udp port 5001"];
        let mut running = capture(&path("out.pcapng"), &options);
        send(10, 20);
        running.settle(10);
        assert!(ctl(&running, &["pause"]).status.success());
        running.hear("paused by root (fyke ctl, process ");
        assert!(String::from_utf8_lossy(&ctl(&running, &["pause"]).stderr).contains("already"));
        assert_eq!(json(&running, &["stats"])["paused"], true);
        send(20, 20);
        running.wait_for("30 seen = 5 accepted + 5 rejected + 20 lost (paused)");
        assert!(running.ctl(&["stats"]).contains("paused; `fyke ctl start` continues"));
        let stats = json(&running, &["stats"]);
        let source = &stats["nodes"][0];
        assert_eq!((&source["arrived"], &source["lost"]), (&30.into(), &20.into()), "{stats}");
        running.ctl(&["start"]);
        let log = running.ctl(&["log"]);
        let lines: Vec<_> = log.lines().filter(|line| line.contains("root (fyke ctl, ")).collect();
        assert_eq!(lines.len(), 2, "{log}");
        assert!(lines[0].ends_with("), pauses the capture"), "{log}");
        assert!(lines[1].ends_with("), ends the pause"), "{log}");
        send(30, 20);
        running.settle(60);
        running.signal("INT");
        assert!(running.end().success());
        let sum = running.sum();
        assert_eq!((sum.seen, sum.accepted, sum.rejected, sum.lost), (60, 20, 20, 20));
        assert_eq!(common::frames_of(&path("out.pcapng")), 20);
    }
}

/// Frames that were rejected, or not wanted yet, can still be had. The capture has given up root and opens nothing.
#[test]
fn frames_of_the_past_are_saved() {
    if !inside("frames_of_the_past_are_saved") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let name = |name: &str| path(name).to_str().unwrap().to_owned();
    for workers in ["1", "2"] {
        let mut command = Command::new(FYKE);
        command.args(["dump", "-Z", "nobody", "-i", "v1", "-w", &name("out.pcapng")]);
        command.args(["--keep", "60s,64MB"]);
        command.args(["--workers", workers, "udp port 5001"]);
        let mut running = Running::start(command.stdout(Stdio::null()));
        running.hear("keeping the frames of the last 60 s, at most 64000000 bytes");
        send(100, 20);
        running.settle(100);
        assert!(running.ctl(&["stats"]).contains("100 seen = 50 accepted + 50 rejected"));
        assert!(running.ctl(&["show"]).contains("keeps every frame"), "{}", running.ctl(&["show"]));
        std::thread::sleep(Duration::from_millis(400));
        assert!(
            running.ctl(&["save", &name("all.pcapng")]).starts_with("saved 100 of the last 100")
        );
        assert_eq!(common::frames_of(&path("all.pcapng")), 100);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(path("all.pcapng")).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        running.ctl(&["save", &name("some.pcap"), "--last", "50s", "udp port 5002"]);
        assert_eq!(common::frames_of(&path("some.pcap")), 50);
        std::thread::sleep(Duration::from_millis(1_100));
        running.ctl(&["save", &name("some.pcap"), "--last", "1s"]);
        assert_eq!(common::frames_of(&path("some.pcap")), 0);
        // A file without frames has its interface, and every reader reads it.
        running.ctl(&["save", &name("no.pcapng"), "tcp port 1"]);
        for file in ["no.pcapng", "some.pcap"] {
            assert_eq!(common::frames_of(&path(file)), 0);
            for program in [&["tcpdump"][..], &[FYKE, "dump"]] {
                let mut reader = Command::new(program[0]);
                reader.args(&program[1..]).args(["-nr", &name(file)]);
                let read = reader.output().unwrap();
                assert!(read.status.success() && read.stdout.is_empty(), "{file}: {read:?}");
            }
        }
        // A refusal leaves no new file, and an old one as it was.
        for file in ["none.pcapng", "all.pcapng"] {
            assert!(refused(&running, &["save", &name(file), "udp prot 1"]).contains('^'));
        }
        assert!(!path("none.pcapng").exists());
        assert_eq!(common::frames_of(&path("all.pcapng")), 100);
        assert!(refused(&running, &["save", &name("x.pcapng.gz")]).contains("omit the ending"));
        assert!(refused(&running, &["save", "-"]).contains("not to standard output"));
        assert!(!Path::new("-").exists());
        assert!(refused(&running, &["save", "/dev/null"]).contains("regular files only"));
        assert_eq!(json(&running, &["try", "udp"])["past"]["frames"], 100);
        running.signal("INT");
        assert!(running.end().success());
        assert_eq!(running.sum().lost, 0);
    }
    little_memory_has_the_last_frames(&path("small.pcapng"));
    let running = capture(&path("out.pcapng"), &["udp"]);
    let said = refused(&running, &["save", &name("none.pcapng")]);
    assert!(said.contains("start it with `fyke dump --keep 30s`"), "{said}");
    for (words, part) in [
        (&["--keep", "30"][..], "expected a time, a size, or both"),
        (&["--keep", "30s,40s"], "one time and one size"),
        (&["--keep", "1kB"], "from 1MB to 4TB"),
        (&["--keep", "30s", "--no-control"], "cannot be used with"),
    ] {
        let output = Command::new(FYKE).args(["dump", "-i", "v1"]).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(part), "{words:?}: {said}");
    }
}

/// The smallest recorder, after ten times as much as it keeps.
fn little_memory_has_the_last_frames(file: &Path) {
    let mut running = capture(Path::new("/dev/null"), &["--keep", "1MB", "udp port 5001"]);
    send(10_000, 1_000);
    running.settle(10_000);
    let saved = running.ctl(&["save", file.to_str().unwrap()]);
    let frames = common::frames_of(file);
    assert!((700..=910).contains(&frames), "{frames} frames of 1042 bytes: {saved}");
    running.signal("INT");
    assert!(running.end().success());
}

/// A disk that is full is an error at run time, and the capture continues.
#[test]
fn a_full_disk_is_named_by_save() {
    if !inside("a_full_disk_is_named_by_save") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    std::fs::create_dir(path("small")).unwrap();
    common::tool(&format!("mount -t tmpfs -o size=64k none {}", path("small").display()));
    let mut running = capture(&path("out.pcapng"), &["--keep", "1MB", "udp port 5001"]);
    send(200, 1_000);
    running.settle(200);
    std::thread::sleep(Duration::from_millis(400));
    let output = ctl(&running, &["save", path("small/all.pcapng").to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("nothing is saved"), "{output:?}");
    assert!(said.contains("os error 28"), "{said}");
    let left: Vec<_> = std::fs::read_dir(path("small")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(json(&running, &["stats"])["accounting"]["delivered"], 100);
    running.signal("INT");
    assert!(running.end().success());
    common::tool(&format!("umount {}", path("small").display()));
}

/// A capture's own output is refused under every name, and stays whole.
#[test]
fn save_refuses_the_outputs_of_the_capture() {
    if !inside("save_refuses_the_outputs_of_the_capture") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let name = |name: &str| path(name).to_str().unwrap().to_owned();
    for (user, file) in [("root", "own.pcap"), ("nobody", "other.pcapng")] {
        let mut command = Command::new(FYKE);
        command.args(["dump", "-Z", user, "-i", "v1", "-U", "-w", &name(file), "--keep", "60s"]);
        let shown = std::fs::File::create(path("shown")).unwrap();
        let mut running = Running::start(command.arg("udp port 5001").stdout(shown));
        running.hear("listening on");
        send(100, 20);
        running.settle(100);
        std::os::unix::fs::symlink(path(file), path(&format!("link-{file}"))).unwrap();
        std::fs::hard_link(path(file), path(&format!("hard-{file}"))).unwrap();
        for other in ["", "link-", "hard-"] {
            let said = refused(&running, &["save", &name(&format!("{other}{file}")), "udp port 9"]);
            assert!(said.contains("this fyke has the file open"), "{other}{file}: {said}");
        }
        assert!(refused(&running, &["save", &name("shown")]).contains("has the file open"));
        send(100, 20);
        running.settle(200);
        running.signal("INT");
        assert!(running.end().success());
        assert_eq!(running.sum().accepted, 100);
        assert_eq!(common::frames_of(&path(file)), 100);
    }
}

/// A file has its old contents until the new ones are complete, whenever `fyke ctl` is killed.
#[test]
fn a_killed_save_leaves_the_old_file() {
    if !inside("a_killed_save_leaves_the_old_file") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let running = capture(&path("out.pcapng"), &["--keep", "64MB", "udp port 5001"]);
    send(200, 1_000);
    running.settle(200);
    std::thread::sleep(Duration::from_millis(400));
    std::fs::create_dir(path("saved")).unwrap();
    let file = path("saved/all.pcapng");
    running.ctl(&["save", file.to_str().unwrap(), "udp port 5001"]);
    assert_eq!(common::frames_of(&file), 100);
    for delay_ms in 0..12 {
        let mut command = Command::new(FYKE);
        command.args(["ctl", "--pid", &running.child.id().to_string(), "save"]).arg(&file);
        command.env("FYKE_RUNTIME_DIR", runtime()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut save = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(5 * delay_ms));
        save.kill().unwrap();
        save.wait().unwrap();
        let frames = common::frames_of(&file);
        assert!([100, 200].contains(&frames), "{frames} frames");
    }
    running.ctl(&["save", file.to_str().unwrap()]);
    assert_eq!(common::frames_of(&file), 200);
}

/// Reports list the first of many filters and count the others; an answer after an edit has the edit in it.
#[test]
fn many_filters_are_counted_and_answers_are_up_to_date() {
    if !inside("many_filters_are_counted_and_answers_are_up_to_date") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"), &["arp"]);
    let edits: String = (1..=3_000).map(|n| format!("add udp dst port {}\n", 3_000 + n)).collect();
    std::fs::write(path("edits"), edits).unwrap();
    let edits = path("edits").to_str().unwrap().to_owned();
    for epoch in [2, 4, 6] {
        let added = running.ctl(&["batch", "-F", &edits]);
        assert!(added.contains(&format!("epoch {epoch}, ")), "{added}");
        let stats = running.ctl(&["stats"]);
        assert!(stats.contains(&format!("(epoch {epoch})")), "{stats}");
        if epoch == 2 {
            send(10, 20);
            running.settle(10);
            for report in ["stats", "show"] {
                let shown = running.ctl(&[report]);
                assert!(shown.lines().count() < 100, "{shown}");
                let more = "… 2981 more filters: 10 frames; --full lists them";
                assert!(shown.contains(more), "{shown}");
                let full = running.ctl(&[report, "--full"]);
                assert!(full.lines().count() > 3_000 && full.contains("dst port 6000"), "{report}");
            }
            assert_eq!(json(&running, &["stats"])["filters"].as_array().unwrap().len(), 3_001);
        }
        running.ctl(&["undo"]);
        let stats = running.ctl(&["stats"]);
        assert!(stats.contains(&format!("(epoch {})", epoch + 1)), "{stats}");
        assert!(!stats.contains("more filters"), "{stats}");
    }
    assert!(running.ctl(&["stats"]).contains("removed: 10 frames of filters that have been"));
    running.signal("INT");
    assert!(running.end().success());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (10, 10, 0));
}
