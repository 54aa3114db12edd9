//! `fyke sensor` and `fyke fleet` with a real NATS server: captures on an interface of a namespace are edited together.
#![cfg(feature = "fleet")]

mod common;
#[path = "common/group.rs"]
mod group;

use common::{FYKE, Running, folder, inside, runtime, send};
use group::{Group, Two, texts, until};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Standard output and standard error.
fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn edits_reach_their_sensors(group: &Group, first: &Running, second: &Running) {
    // Only one site; then a replacement, which removes the captures' own filters, too.
    group.edited("bert", "add", &["--only", "site=oslo", "udp port 5003"]);
    assert_eq!(texts(first), ["udp port 7", "udp port 5001", "udp port 5003"]);
    assert_eq!(texts(second), ["udp port 7", "udp port 5001"]);
    group.edited("anna", "del", &["1"]);
    assert_eq!(texts(second), ["udp port 7"]);
    let said = group.edited("anna", "undo", &[]);
    assert!(said.contains("edit 4: in force everywhere, 2 sensors"), "{said}");
    assert_eq!(texts(second), ["udp port 7", "udp port 5001"]);
    group.edited("anna", "set", &["udp"]);
    assert_eq!((texts(first), texts(second)), (vec!["udp".to_owned()], vec!["udp".to_owned()]));
}

fn refused_edits_change_nothing(group: &mut Group, first: &Running) {
    // A wrong text is refused here, and is no edit.
    for action in ["add", "set", "try"] {
        let wrong = match action {
            "try" => group.fleet("try", &["udp prt 5"]),
            action => group.edit("anna", action, &["udp prt 5"]),
        };
        let (told, why) = said(&wrong);
        assert_eq!(wrong.status.code(), Some(2), "{action}: {told}{why}");
        assert!(why.contains("prt") && why.contains('^') && told.is_empty(), "{told}{why}");
    }
    // A filter for another link type is refused by the fykes, and the command reports it, in lines.
    let wrong = group.edit("anna", "add", &["wlan type mgt"]);
    assert_eq!(wrong.status.code(), Some(1));
    let (told, why) = said(&wrong);
    assert!(told.contains("edit 6: in force at 0 of 2 sensors"), "{told}");
    assert!(
        told.contains("\n  one refuses it: ") && told.contains("\n        wlan type"),
        "{told}"
    );
    assert!(!told.contains("\\u000a"), "{told}");
    assert!(why.contains("it stays in the group; `fyke fleet undo 6` takes it back"), "{why}");
    let tried = group.fleet("try", &["wlan type mgt"]);
    assert_eq!(tried.status.code(), Some(2));
    assert!(said(&tried).1.contains("2 of 2 sensors refuse the filter"), "{tried:?}");
    // An author that is not trusted here makes no edit.
    let foreign = group.edit("eve", "add", &["tcp"]);
    assert_eq!(foreign.status.code(), Some(1));
    let (told, why) = said(&foreign);
    assert!(why.contains("eve is not a trusted author with this key"), "{told}{why}");
    // One that the sensors do not trust changes nothing, and there is nothing to take back.
    group.trust = "everybody";
    let foreign = group.edit("eve", "add", &["tcp"]);
    group.trust = "authors";
    assert_eq!(foreign.status.code(), Some(1));
    let (told, why) = said(&foreign);
    assert!(told.contains("\"eve\" is not a trusted author"), "{told}");
    assert!(why.contains("no effect there that `fyke fleet undo` could take back"), "{why}");
    assert!(!why.contains("fleet undo 7"), "{why}");
    assert_eq!(texts(first), ["udp"]);
}

/// Two captures run here, and the sensor is told of neither: the group learns their number, and no command line.
fn a_reason_has_no_command_lines(group: &Group) {
    let mut command = Command::new(FYKE);
    command.arg("sensor").args(group.args()).args(["--name", "which", "--label", "kind=any"]);
    let mut sensor = Running::start(command.stdout(Stdio::null()));
    until("the sensor is listed", || {
        group.sensors().iter().any(|it| it["name"] == "which").then_some(())
    });
    let refused = group.edit("anna", "add", &["--only", "kind=any", "udp port 9"]);
    assert_eq!(refused.status.code(), Some(1));
    let tried = group.fleet("try", &["--only", "kind=any", "udp port 9"]);
    assert_eq!(tried.status.code(), Some(1), "{tried:?}");
    for (told, _) in [said(&refused), said(&tried)] {
        assert!(told.contains("2 live captures run on its machine"), "{told}");
        assert!(!told.contains("dump") && !told.contains("v1"), "{told}");
    }
    sensor.signal("INT");
    assert_eq!(sensor.end().code(), Some(0), "{}", sensor.said());
}

/// A text beside `fyke run` would be a graph, which could make the file.
fn graphs_are_not_edited(group: &Group, file: &Path) {
    let mut command = Command::new(FYKE);
    command.args(["run", "-Z", "root", "(device, v1) > (bpf, \"udp\") > (packetcount)"]);
    let mut run = Running::start(command.stdout(Stdio::null()));
    until("the graph runs", || {
        let shown = Command::new(FYKE)
            .args(["ctl", "--pid", &run.child.id().to_string(), "show"])
            .env("FYKE_RUNTIME_DIR", runtime())
            .output()
            .unwrap();
        shown.status.success().then_some(())
    });
    let mut sensor = group.sensor("graphs", &run, &["--label", "kind=graph"]);
    let text = format!("(device, v1) > (tofile, \"{}\")", file.display());
    assert_eq!(group.edit("anna", "add", &[&text]).status.code(), Some(2), "no filter");
    let text = format!("udp => (tofile, \"{}\")", file.display());
    let told = group.edit("anna", "add", &["--only", "kind=graph", &text]);
    assert_eq!(told.status.code(), Some(1));
    let told = String::from_utf8_lossy(&told.stdout);
    assert!(told.contains("its filters are flow graphs"), "{told}");
    assert!(!file.exists());
    sensor.signal("INT");
    assert_eq!(sensor.end().code(), Some(0), "{}", sensor.said());
    run.signal("INT");
    run.end();
}

#[test]
fn two_captures_are_edited_together() {
    if !inside("two_captures_are_edited_together") {
        return;
    }
    let Some(mut fleet) = Two::start() else { return };
    let made = fleet.path("made.pcap");
    let Two { broker, group, first, second, .. } = &mut fleet;
    let said = group.edited("anna", "add", &["udp port 5001"]);
    assert!(said.contains("edit 1: in force everywhere, 2 sensors"), "{said}");
    send(400, 100);
    first.settle(400);
    second.settle(400);
    for (capture, name) in [(&*first, "one"), (&*second, "two")] {
        assert_eq!(texts(capture), ["udp port 7", "udp port 5001"]);
        let sensor = until("the counts of the list", || {
            let mut sensors = group.sensors().into_iter();
            sensors.find(|it| it["name"] == name && it["fyke"]["seen"].as_u64() >= Some(400))
        });
        assert_eq!(sensor["fyke"]["accepted"], 200, "{sensor}");
    }
    edits_reach_their_sensors(group, first, second);
    refused_edits_change_nothing(group, first);

    // While the server is away the captures continue, and local edits too; then the sensors catch up.
    broker.kill();
    first.ctl(&["add", "icmp"]);
    assert!(!group.edit("anna", "add", &["tcp"]).status.success());
    // An edit that begins meanwhile waits a few seconds for the server.
    let key = group.key("bert");
    let mut add = Command::new(FYKE);
    add.args(["fleet", "add"]).args(group.args()).arg("--key").arg(key);
    add.args(["--wait", "20", "tcp port 80"]);
    let mut add = Running::start(add.stdout(Stdio::null()));
    broker.start_again();
    assert!(add.end().success(), "{}", add.said());
    group.follows("one", 8);
    group.follows("two", 8);
    assert_eq!(texts(first), ["udp", "icmp", "tcp port 80"]);
    assert_eq!(texts(second), ["udp", "tcp port 80"]);

    a_reason_has_no_command_lines(group);
    graphs_are_not_edited(group, &made);

    // A second sensor of the same name is refused, while the first one runs.
    let mut command = Command::new(FYKE);
    command.arg("sensor").args(group.args()).args(["--name", "one"]);
    let mut same = Running::start(command.stdout(Stdio::null()));
    assert_eq!(same.end().code(), Some(1));
    assert!(same.said().contains("the name one is that of a sensor on"), "{}", same.said());
    let log = group.fleet("log", &[]);
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains("edit 7  refused: \"eve\" is not a trusted author"), "{log}");
    assert!(log.contains("edit 4  anna  add udp port 5001 (takes back 3)"), "{log}");
    let told = group.fleet("try", &["udp port 5002"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("2 sensors: ") && told.contains("would accept"), "{told}");

    fleet.end();
}

/// The filters of a sensor stay in force after its end, and its next run leaves those of local users alone.
#[test]
fn a_sensor_that_is_started_again_repeats_nothing() {
    if !inside("a_sensor_that_is_started_again_repeats_nothing") {
        return;
    }
    let (_folder, path) = folder();
    let Some((_broker, group)) = Group::start(&path) else { return };
    let start = |file: &str| {
        let mut command = Command::new(FYKE);
        command.args(["dump", "-Z", "root", "-i", "v1", "-w"]).arg(path(file));
        let capture = Running::start(command.arg("udp port 7").stdout(Stdio::null()));
        capture.hear("listening on");
        capture
    };
    let beside = || {
        let mut command = Command::new(FYKE);
        command.arg("sensor").args(group.args()).args(["--name", "one", "--beside", "v1"]);
        let sensor = Running::start(command.stdout(Stdio::null()));
        sensor.hear("beside the fyke with process id");
        sensor
    };
    let (mut capture, mut sensor) = (start("1.pcapng"), beside());
    group.edited("anna", "set", &["udp port 5001"]);
    capture.ctl(&["add", "icmp"]);
    assert_eq!(texts(&capture), ["udp port 5001", "icmp"]);
    sensor.signal("INT");
    assert!(sensor.end().success(), "{}", sensor.said());
    sensor = beside();
    group.edited("anna", "add", &["tcp port 80"]);
    assert_eq!(texts(&capture), ["udp port 5001", "icmp", "tcp port 80"]);

    // Killed; meanwhile there is an edit, and a local user removes a filter of the group.
    sensor.signal("KILL");
    sensor.end();
    let key = group.key("anna");
    let add = ["--key", key.to_str().unwrap(), "--wait", "0.2", "tcp port 81"];
    assert!(!group.fleet("add", &add).status.success(), "no sensor answers");
    sensor = beside();
    group.follows("one", 3);
    assert_eq!(texts(&capture), ["udp port 5001", "icmp", "tcp port 80", "tcp port 81"]);
    capture.ctl(&["del", "fleet/edge/2"]);
    group.edited("anna", "del", &["2", "1"]);
    assert_eq!(texts(&capture), ["icmp", "tcp port 81"]);
    let log = capture.ctl(&["log"]);
    assert!(log.contains("fyke sensor of edge, edit 4"), "{log}");

    // The next fyke gets the filters of the group and, by its `set`, no others.
    capture.signal("KILL");
    capture.end();
    capture = start("2.pcapng");
    until("the filters of the group at the next fyke", || {
        (texts(&capture) == ["tcp port 81"]).then_some(())
    });
    for running in [&mut sensor, &mut capture] {
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
    }
}

/// The streams of a server, as its folder has them.
fn streams(store: &Path) -> Vec<String> {
    let folder = store.join("jetstream/$G/streams");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Sums and scans of a group that has none, with the options for the server and the group.
fn queues_are_not_made_by_reading(group: &[String]) {
    let id = "0123456789abcdef";
    for (words, missing) in [
        (&["sums", "--queue", "q"][..], "no queues"),
        (&["scan", "--resume", id], "no scans"),
        (&["scan", "--cancel", id], "no scans"),
    ] {
        let output = Command::new(FYKE).arg("fleet").args(words).args(group).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(said(&output).1.contains(&format!("has {missing} on this server")), "{output:?}");
    }
}

#[test]
fn commands_that_read_make_no_group_and_names_are_checked() {
    if !inside("commands_that_read_make_no_group_and_names_are_checked") {
        return;
    }
    let (_folder, path) = folder();
    let Some((_broker, group)) = Group::start(&path) else { return };
    let reads = ["list", "show", "log", "watch"].map(|action| group.fleet(action, &[]));
    let others = [
        group.fleet("try", &["udp"]),
        group.edit("anna", "del", &["1"]),
        group.edit("anna", "undo", &[]),
    ];
    for output in reads.iter().chain(&others) {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let (told, why) = said(output);
        assert!(why.contains("the group edge does not exist on this server"), "{told}{why}");
    }
    queues_are_not_made_by_reading(&group.args()[..4]);
    let foreign = group.edit("eve", "add", &["udp"]);
    assert!(said(&foreign).1.contains("eve is not a trusted author"), "{foreign:?}");
    assert_eq!(streams(&path("store")), [""; 0]);
    group.edited("anna", "add", &["udp"]);
    assert_eq!(streams(&path("store")).len(), 4);
    let shown = group.fleet("show", &[]);
    assert!(said(&shown).0.contains("edit 1: 1 filters"), "{shown:?}");
    for name in ["a/b", "a.b", "a\nb", "a\u{1b}b", ""] {
        for words in [
            &["fleet", "list", "--trust", "none", "--group", name][..],
            &["fleet", "key", "file", "--name", name],
            &["sensor", "--trust", "none", "--group", "edge", "--name", name],
        ] {
            let output = Command::new(FYKE).args(words).current_dir(path("keys")).output().unwrap();
            let (_, why) = said(&output);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {why}");
            assert!(why.contains("a name has 1 to 64 of the letters a-z"), "{words:?}: {why}");
            assert_eq!(why.lines().count(), 1, "{why:?}");
        }
    }
}

/// As the units of `docs/systemd` have it: a reader of a service, and a sensor that finds it by its source.
#[test]
fn a_sensor_finds_the_next_reader_of_a_service() {
    if !inside("a_sensor_finds_the_next_reader_of_a_service") {
        return;
    }
    let (_folder, path) = folder();
    let Some((_broker, group)) = Group::start(&path) else { return };
    let mut serve = Command::new(FYKE);
    let mut service = Running::start(serve.args(["serve", "-i", "v1"]).stdout(Stdio::null()));
    service.hear("serving v1");
    let reader = |file: &str| {
        let mut command = Command::new(FYKE);
        command.args(["dump", "-i", "serve:v1", "-Z", "root", "-G", "3600", "-w"]).arg(path(file));
        let reader = Running::start(command.arg("port 1 and port 2").stdout(Stdio::null()));
        reader.hear("listening on serve:v1");
        reader
    };
    let mut first = reader("first-%H.pcapng");
    let mut sensor = Command::new(FYKE);
    sensor.arg("sensor").args(group.args()).args(["--name", "one", "--beside", "serve:v1"]);
    let mut sensor = Running::start(sensor.stdout(Stdio::null()));
    sensor.hear("beside the fyke with process id");
    group.edited("anna", "add", &["udp port 5001"]);
    assert_eq!(texts(&first), ["port 1 and port 2", "udp port 5001"]);
    first.signal("KILL");
    first.end();
    let mut second = reader("second-%H.pcapng");
    until("the filter of the group at the next reader", || {
        (texts(&second) == ["port 1 and port 2", "udp port 5001"]).then_some(())
    });
    send(200, 100);
    second.wait_for(" 100 accepted");
    // Frames that the service rejects do not arrive at the reader, so they cannot be tried.
    let tried = until("the rejected frames are named", || {
        let (told, _) = said(&group.fleet("try", &["udp"]));
        told.contains("serve:v1 has rejected 100 frames since the start").then_some(told)
    });
    assert!(tried.contains("one: would accept 100 of the last 100 frames"), "{tried}");
    for running in [&mut sensor, &mut second, &mut service] {
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
    }
}

/// While a service is stopped, its reader can make no edit: the edit is not refused, and is in force
/// once the service continues, before those that came later.
#[test]
fn an_edit_waits_for_a_stopped_service() {
    if !inside("an_edit_waits_for_a_stopped_service") {
        return;
    }
    let (_folder, path) = folder();
    let Some((_broker, group)) = Group::start(&path) else { return };
    let mut serve = Command::new(FYKE);
    let mut service = Running::start(serve.args(["serve", "-i", "v1"]).stdout(Stdio::null()));
    service.hear("serving v1");
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", "serve:v1", "-Z", "root", "-w"]).arg(path("reader.pcapng"));
    let mut reader = Running::start(command.arg("udp port 7").stdout(Stdio::null()));
    reader.hear("listening on serve:v1");
    let mut sensor = group.sensor("one", &reader, &[]);
    group.edited("anna", "add", &["udp port 5001"]);
    service.signal("STOP");
    let key = group.key("anna");
    for text in ["udp port 5002", "udp port 5003"] {
        let add = group.fleet("add", &["--key", key.to_str().unwrap(), "--wait", "0.1", text]);
        let (told, _) = said(&add);
        assert!(told.contains("one has not answered"), "{told}");
    }
    let unable = |it: &serde_json::Value| {
        it["trouble"].as_str().is_some_and(|why| why.contains("make edits now"))
    };
    let lagging = until("the sensor waits", || {
        let sensors = group.sensors();
        assert_eq!(sensors.len(), 1, "it shows that it lives: {sensors:?}");
        sensors.into_iter().find(unable)
    });
    let why = lagging["trouble"].as_str().unwrap();
    assert!(why.contains("edits wait for it"), "{why}");
    assert_eq!((&lagging["sequence"], &lagging["refused"]), (&1.into(), &0.into()), "{lagging}");
    let pid = reader.child.id().to_string();
    let mut add = Command::new(FYKE);
    add.args(["ctl", "--pid", &pid, "add", "icmp"]).env("FYKE_RUNTIME_DIR", runtime());
    let add = add.output().unwrap();
    assert_eq!(add.status.code(), Some(1), "the text is right: {add:?}");
    assert_eq!(texts(&reader), ["udp port 7", "udp port 5001"]);
    service.signal("CONT");
    let sensor_is = until("both edits are in force", || {
        group.sensors().into_iter().find(|it| it["sequence"] == 3)
    });
    assert_eq!(
        (&sensor_is["refused"], &sensor_is["trouble"]),
        (&0.into(), &serde_json::Value::Null)
    );
    assert_eq!(texts(&reader), ["udp port 7", "udp port 5001", "udp port 5002", "udp port 5003"]);
    for running in [&mut sensor, &mut reader, &mut service] {
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
    }
}

/// systemd reads the units; the command of the project is not installed where they name it.
#[test]
fn systemd_reads_the_units_of_recorders_and_sensors() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: systemd-analyze is not installed");
        return;
    }
    let (folder, path) = folder();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systemd");
    for entry in std::fs::read_dir(units).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap().replace("/usr/bin/fyke", FYKE);
        std::fs::write(folder.path().join(entry.file_name()), text).unwrap();
    }
    let verify = |unit: &str| {
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no", unit]);
        let paths = format!("{}:", folder.path().display());
        let output = command.env("SYSTEMD_UNIT_PATH", paths).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for unit in ["fyke-record@v1.service", "fyke-sensor@v1.service"] {
        let (is_right, said) = verify(unit);
        let own = unit.split('@').next().unwrap();
        let is_own = |line: &&str| line.contains(&format!("{own}@"));
        let remarks: Vec<_> = said.lines().filter(is_own).collect();
        assert!(is_right && remarks.is_empty(), "{unit}: {said}");
    }
    // It would tell of a command that is not there.
    let wrong = std::fs::read_to_string(path("fyke-sensor@.service")).unwrap();
    std::fs::write(path("fyke-sensor@.service"), wrong.replace(FYKE, "/no/fyke")).unwrap();
    let (is_right, said) = verify("fyke-sensor@v1.service");
    assert!(!is_right && said.contains("/no/fyke"), "{said}");
}
