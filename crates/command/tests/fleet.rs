//! `fyke sensor` and `fyke fleet` with a real NATS server: captures on an interface of a namespace are edited together.
#![cfg(feature = "fleet")]

mod common;
#[path = "common/group.rs"]
mod group;

use common::{FYKE, Running, folder, inside, runtime, send, tool, veth};
use fyke_testkit::nats::NatsServer;
use group::{Group, capture, texts, until};
use std::path::Path;
use std::process::{Command, Stdio};

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

fn refused_edits_change_nothing(group: &Group, first: &Running) {
    // A filter that a fyke does not understand is refused there, and the command reports it.
    let wrong = group.edit("anna", "add", &["udp prt 5"]);
    assert_eq!(wrong.status.code(), Some(1));
    let told = String::from_utf8_lossy(&wrong.stdout);
    assert!(told.contains("in force at 0 of 2 sensors") && told.contains("prt"), "{told}");
    // An author that is not trusted changes nothing.
    let foreign = group.edit("eve", "add", &["tcp"]);
    assert_eq!(foreign.status.code(), Some(1));
    let told = String::from_utf8_lossy(&foreign.stdout);
    assert!(told.contains("\"eve\" is not a trusted author"), "{told}");
    assert_eq!(texts(first), ["udp"]);
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
    if !NatsServer::is_installed() {
        println!("skipped: nats-server is not installed");
        return;
    }
    veth();
    tool("ip link set lo up");
    let (_folder, path) = folder();
    let mut broker = NatsServer::start(&path("store"), 4222);
    std::fs::create_dir(path("keys")).unwrap();
    let group = Group::new(&path("keys"), 4222);
    let (mut first, mut second) = (capture(&path("1.pcapng")), capture(&path("2.pcapng")));
    let mut one = group.sensor("one", &first, &["--label", "site=oslo"]);
    let mut two = group.sensor("two", &second, &["--label", "site=bonn"]);

    let said = group.edited("anna", "add", &["udp port 5001"]);
    assert!(said.contains("edit 1: in force everywhere, 2 sensors"), "{said}");
    send(400, 100);
    first.settle(400);
    second.settle(400);
    for (capture, name) in [(&first, "one"), (&second, "two")] {
        assert_eq!(texts(capture), ["udp port 7", "udp port 5001"]);
        let sensor = until("the counts of the list", || {
            let mut sensors = group.sensors().into_iter();
            sensors.find(|it| it["name"] == name && it["fyke"]["seen"].as_u64() >= Some(400))
        });
        assert_eq!(sensor["fyke"]["accepted"], 200, "{sensor}");
    }
    edits_reach_their_sensors(&group, &first, &second);
    refused_edits_change_nothing(&group, &first);

    // While the server is away the captures continue, and local edits too; then the sensors catch up.
    broker.kill();
    first.ctl(&["add", "icmp"]);
    assert!(!group.edit("anna", "add", &["tcp"]).status.success());
    broker.start_again();
    group.edited("bert", "add", &["tcp port 80"]);
    group.follows("one", 8);
    group.follows("two", 8);
    assert_eq!(texts(&first), ["udp", "icmp", "tcp port 80"]);
    assert_eq!(texts(&second), ["udp", "tcp port 80"]);

    graphs_are_not_edited(&group, &path("made.pcap"));

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

    for sensor in [&mut one, &mut two] {
        sensor.signal("INT");
        assert_eq!(sensor.end().code(), Some(0), "{}", sensor.said());
    }
    assert!(group.sensors().is_empty());
    for capture in [&mut first, &mut second] {
        capture.signal("INT");
        assert!(capture.end().success());
    }
}

/// As the units of `docs/systemd` have it: a reader of a service, and a sensor that finds it by its source.
#[test]
fn a_sensor_finds_the_next_reader_of_a_service() {
    if !inside("a_sensor_finds_the_next_reader_of_a_service") {
        return;
    }
    if !NatsServer::is_installed() {
        println!("skipped: nats-server is not installed");
        return;
    }
    veth();
    tool("ip link set lo up");
    let (_folder, path) = folder();
    let _broker = NatsServer::start(&path("store"), 4222);
    std::fs::create_dir(path("keys")).unwrap();
    let group = Group::new(&path("keys"), 4222);
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
    for running in [&mut sensor, &mut second, &mut service] {
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
