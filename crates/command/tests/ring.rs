//! Rings end to end: one process dispatches to two rings, two others read them, and all frames are accounted for.
//! Every filter gives the same verdict on a ring as on the device that fills it.

use fyke_frame::{Frame, LinkType};
use fyke_ring::{Index, Packets, Publication};
use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn dump(ring: &Path, out: &Path) -> Child {
    let name = format!("ring:{}", ring.display());
    let mut command = Command::new(FYKE);
    command.args(["dump", "-U", "-i", &name, "-w"]).arg(out);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn what_a_demux_puts_into_rings_other_processes_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let packet = |port| {
        Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, port).payload(&[7; 30]).build()
    };
    let frames: Vec<Vec<u8>> = (0..3000).map(|number| packet(50 + number % 5)).collect();
    let file = pcap::file(1, &frames);
    let mut demux = Command::new(FYKE)
        .args(["demux", "-r", "-"])
        .arg(format!("udp => ring:{}", at("all").display()))
        .arg(format!("port 53 => ring:{}", at("some").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = demux.stdin.take().unwrap();
    // The header alone opens the source; the frames wait until both readers exist.
    input.write_all(&file[..24]).unwrap();
    input.flush().unwrap();
    until("the rings are published", || at("all").exists() && at("some").exists());
    let mut readers = [("all", "all.pcapng"), ("some", "some.pcapng")]
        .map(|(ring, out)| dump(&at(ring), &at(out)));
    until("both readers write", || at("all.pcapng").exists() && at("some.pcapng").exists());
    input.write_all(&file[24..]).unwrap();
    drop(input);
    assert!(demux.wait().unwrap().success());
    for reader in &mut readers {
        assert!(reader.wait().unwrap().success());
    }
    for (out, count) in [("all.pcapng", "3000\n"), ("some.pcapng", "600\n")] {
        let counted = Command::new(FYKE).args(["dump", "--count", "-r"]).arg(at(out)).output();
        assert_eq!(String::from_utf8_lossy(&counted.unwrap().stdout), count, "{out}");
    }
    assert!(!at("all").exists(), "the socket is gone with its writer");
    let nobody = Command::new(FYKE).args(["dump", "-i", "ring:/nowhere/at/all"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1));
}

/// A killed writer does not close its ring: the reader gets all that was written, reports the end and fails.
#[test]
fn the_reader_of_a_writer_that_was_killed_fails() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let file = pcap::file(1, &vec![packet; 100]);
    let mut demux = Command::new(FYKE)
        .args(["demux", "-r", "-"])
        .arg(format!("udp => ring:{}", at("ring").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = demux.stdin.take().unwrap();
    input.write_all(&file[..24]).unwrap();
    input.flush().unwrap();
    until("the ring is published", || at("ring").exists());
    let reader = Command::new(FYKE)
        .args(["dump", "-U", "-i"])
        .arg(format!("ring:{}", at("ring").display()))
        .arg("-w")
        .arg(at("out.pcap"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the reader writes", || at("out.pcap").exists());
    input.write_all(&file[24..]).unwrap();
    input.flush().unwrap();
    let whole = 24 + 100 * (file.len() as u64 - 24) / 100;
    let size = || std::fs::metadata(at("out.pcap")).map_or(0, |file| file.len());
    until("the frames are written", || size() >= whole);
    demux.kill().unwrap();
    demux.wait().unwrap();
    let output = reader.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("its writer has ended without closing the ring"), "{said}");
    assert!(said.contains("100 seen = 100 accepted"), "{said}");
}

/// A writer that puts frames of another link type into its ring, without telling where they come from.
#[test]
fn frames_of_several_link_types_come_out_of_one_ring() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut packets = Packets::create(1 << 20).unwrap();
    let mut index = Index::create(4_096, LinkType::EN10MB).unwrap();
    let published = Publication::new(&at("ring"), &packets, &index).unwrap();
    let ring = format!("ring:{}", at("ring").display());
    let start = |words: &[&str]| {
        let mut command = Command::new(FYKE);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let name = |name: &str| at(name).to_str().unwrap().to_owned();
    let graph = format!("(device,{ring}) > (tofile,{})", name("run.pcapng"));
    let dump = ["dump", "--no-control", "-i", &ring, "-w", &name("dump.pcapng")];
    let readers = [start(&dump), start(&["run", "--no-control", &graph])];
    until("both write", || at("dump.pcapng").exists() && at("run.pcapng").exists());
    // The reader is connected before its file is made.
    let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    for number in 0..300 {
        let link = if number % 3 == 0 { LinkType::RAW } else { LinkType::EN10MB };
        index.push(packets.put(&Frame::new(link, &packet)).unwrap());
    }
    index.close();
    for reader in readers {
        let output = reader.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("300 seen = 300 accepted + 0 rejected + 0 lost"), "{said}");
    }
    drop(published);
    for out in ["run.pcapng", "dump.pcapng"] {
        let count = Command::new(FYKE).args(["dump", "--count", "-r"]).arg(at(out)).output();
        assert_eq!(String::from_utf8_lossy(&count.unwrap().stdout), "300\n", "{out}");
    }
}

/// `run --exports` makes a ring for each exported node, named after its tag or its class, and shows the memory of a
/// node in the counts.
#[test]
fn exported_nodes_are_rings_that_other_processes_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let packet = |port| {
        Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, port).payload(&[7; 30]).build()
    };
    let frames: Vec<Vec<u8>> = (0..3000).map(|number| packet(50 + number % 5)).collect();
    let file = pcap::file(1, &frames);
    let graph = "(pcapin,-) > {dns}(filter,port 53,export=y) > (packetcount,export=y)";
    let exports = folder.path().to_str().unwrap();
    let mut run = Command::new(FYKE)
        .args(["run", "--no-control", "--json", "--exports", exports, graph])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = run.stdin.take().unwrap();
    input.write_all(&file[..24]).unwrap();
    input.flush().unwrap();
    until("the rings are published", || at("dns").exists() && at("packetcount").exists());
    let mut readers = [("dns", "dns.pcapng"), ("packetcount", "counted.pcapng")]
        .map(|(ring, out)| dump(&at(ring), &at(out)));
    until("both readers write", || at("dns.pcapng").exists() && at("counted.pcapng").exists());
    input.write_all(&file[24..]).unwrap();
    drop(input);
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success());
    for reader in &mut readers {
        assert!(reader.wait().unwrap().success());
    }
    for out in ["dns.pcapng", "counted.pcapng"] {
        let count = Command::new(FYKE).args(["dump", "--count", "-r"]).arg(at(out)).output();
        assert_eq!(String::from_utf8_lossy(&count.unwrap().stdout), "600\n", "{out}");
    }
    let shown = String::from_utf8(output.stdout).unwrap();
    let nodes: Vec<serde_json::Value> =
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = nodes.iter().map(|node| node["node"].as_str().unwrap()).collect();
    assert_eq!(names, ["dns", "packetcount"]);
    assert_eq!(nodes[1]["memory"], serde_json::json!([600]));
    assert!(nodes[0].get("memory").is_none(), "a filter has no memory");
}

#[test]
fn wrong_folders_of_exports_are_refused() {
    let graph = "(pcapin,in.pcap) > (packetcount,export=y)";
    for (folder, part) in [("/nowhere/at/all", "not a folder"), ("/etc/passwd", "not a folder")] {
        let refused =
            Command::new(FYKE).args(["run", "--exports", folder, graph]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(part) && said.contains(folder), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let graph = "(pcapin,in.pcap) > [(filter,udp,export=y) | (filter,tcp,export=y)]";
    let refused = Command::new(FYKE).args(["run", "--check", "--exports", folder, graph]).output();
    let refused = refused.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("two nodes would be exported as bpf"), "{said}");
}

/// Tagged and plain frames arrive at `far`; the kernel removes the tags from the bytes.
const LIVE: &str = r#"
    set -eu
    veth
    "$FYKE" demux -i far "greater 0 => ring:$PWD/all" > demux.log 2>&1 &
    demux=$!
    wait_for test -S all
    number=0
    ids=""
    while read -r text; do
        "$FYKE" dump --count -i far "$text" > device$number 2> device$number.log &
        ids="$ids $!"
        "$FYKE" dump --count -i "ring:$PWD/all" "$text" > ring$number 2> ring$number.log &
        ids="$ids $!"
        number=$((number + 1))
    done < texts
    for id in $ids; do wait_for "$FYKE" ctl --pid $id show; done
    "$FYKE" ctl --pid $id add outbound 2> /dev/null
    "$FYKE" run --no-control '(pcapin,in.pcap) > (tointerface,near)' 2> in.log
    sleep 1.5
    kill -INT $demux $ids
    wait
"#;

/// Filters with the number of frames that they accept; the interfaces have numbers 2 and 3.
const TEXTS: [(&str, Option<u32>); 13] = [
    ("udp", Some(12)),
    ("udp and not vlan", Some(5)),
    ("vlan 5 and udp", Some(7)),
    ("ether[12:2] = 0x8100", Some(3)),
    ("vlan and vlan 6 and udp", Some(3)),
    ("outbound", Some(0)),
    ("udp and inbound", Some(12)),
    ("inbound and vlan 5", Some(10)),
    ("ether[-4092] = 3", Some(15)),
    ("ether[-4092] = 4", Some(0)),
    ("ifindex 2", None),
    ("ifindex 3", None),
    ("greater 0", Some(15)),
];

#[test]
fn a_ring_counts_what_its_device_counts() {
    let folder = tempfile::tempdir().unwrap();
    let udp = |packet: Packet| packet.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 53).build();
    let mut frames = vec![udp(Packet::ethernet()); 5];
    frames.extend(vec![udp(Packet::ethernet().vlan(5)); 7]);
    frames.extend(vec![udp(Packet::ethernet().vlan(5).vlan(6)); 3]);
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames)).unwrap();
    let texts: Vec<String> = TEXTS.iter().map(|(text, _)| format!("{text}\n")).collect();
    std::fs::write(folder.path().join("texts"), texts.concat()).unwrap();
    let namespace = Script::new(FYKE, folder.path()).limit_s(100);
    let Some(output) = namespace.run(LIVE) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    let read = |name: String| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let mut of_interfaces = 0;
    for (number, (text, count)) in TEXTS.iter().enumerate() {
        let logs = read(format!("device{number}.log")) + &read(format!("ring{number}.log"));
        let device = read(format!("device{number}"));
        assert_eq!(read(format!("ring{number}")), device, "{text}: {logs}{said}");
        match count {
            Some(count) => assert_eq!(device, format!("{count}\n"), "{text}: {logs}{said}"),
            None => of_interfaces += device.trim().parse::<u32>().unwrap(),
        }
    }
    assert_eq!(of_interfaces, 15, "one of the numbers is that of the interface");
}
