//! `fyke dump -i` reads an expression as tcpdump does on the same interface: in a network namespace, both capture the
//! same traffic with the same filters and accept the same number of frames. The traffic has tags that the device
//! removes from the bytes, nested tags, and both directions.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::Path;
use std::process::Command;

/// Interface and filter. Arriving frames have their outer tag in the metadata, sent frames have it in the bytes.
const CAPTURES: &[(&str, &str)] = &[
    ("far", "udp"),
    ("far", "vlan"),
    ("far", "vlan 5 and udp"),
    ("far", "vlan 6"),
    ("far", "vlan and vlan 6 and udp"),
    ("far", "udp and not vlan"),
    ("far", "udp dst port 5001 or vlan 5"),
    ("far", "vlan 5 or udp dst port 5001"),
    ("far", "ip6 and vlan or udp"),
    ("far", "ether[12:2] = 0x8100"),
    ("far", "inbound and udp"),
    ("far", "outbound and udp"),
    ("far", "inbound and vlan 5 and tcp"),
    ("near", "inbound and udp"),
    ("near", "outbound and udp dst port 5001"),
    ("near", "vlan"),
    ("near", "vlan 9 or udp"),
    ("any", "inbound and udp"),
    ("any", "inbound and udp dst port 5001"),
    ("any", "inbound and udp and ip[2:2] = len"),
    ("any", "inbound and udp and len > 40"),
    ("any", "inbound and udp and less 30"),
    ("far", "udp and not ip broadcast"),
    ("any", "inbound and udp and not ip broadcast"),
];

/// Replays one file from near to far and one in the other direction.
const SCRIPT: &str = r#"
    set -eu
    veth
    number=0
    ids=""
    while IFS='	' read -r interface text; do
        tcpdump -Z root -n -U -i $interface -w peer$number.pcap "$text" 2> peer$number.log &
        ids="$ids $!"
        "$FYKE" dump --no-control -U -i $interface -w own$number.pcap "$text" 2> own$number.log &
        ids="$ids $!"
        number=$((number + 1))
    done < captures
    for file in $(seq 0 $((number - 1))); do
        wait_for grep -q 'listening on' peer$file.log
        wait_for grep -q 'listening on' own$file.log
    done
    "$FYKE" run --no-control '(pcapin,there.pcap) > (tointerface,near)' 2> there.log
    "$FYKE" run --no-control '(pcapin,back.pcap) > (tointerface,far)' 2> back.log
    sleep 1.5
    kill -INT $ids
    wait
"#;

fn times(count: usize, packet: &Packet) -> Vec<Vec<u8>> {
    vec![packet.build(); count]
}

/// Frames that are replayed in both directions.
fn traffic(folder: &Path) {
    let udp = |packet: Packet, port: u16| packet.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, port);
    let tagged = |id| Packet::ethernet().vlan(id);
    let there = [
        times(5, &udp(Packet::ethernet(), 5001)),
        times(7, &udp(tagged(5), 5001)),
        times(3, &udp(tagged(5).vlan(6), 5001)),
        times(2, &tagged(5).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, 80)),
        times(4, &tagged(5).ipv6([0x20; 16], [0x21; 16]).udp(4000, 53)),
    ];
    let back = [times(4, &udp(Packet::ethernet(), 5002)), times(6, &udp(tagged(9), 5002))];
    std::fs::write(folder.join("there.pcap"), pcap::file(1, &there.concat())).unwrap();
    std::fs::write(folder.join("back.pcap"), pcap::file(1, &back.concat())).unwrap();
}

#[test]
fn live_captures_accept_what_tcpdump_accepts() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return println!("skipped: no tcpdump here");
    }
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> =
        CAPTURES.iter().map(|(interface, text)| format!("{interface}\t{text}\n")).collect();
    std::fs::write(folder.path().join("captures"), lines.concat()).unwrap();
    traffic(folder.path());
    // tcpdump drops its privileges, which does not work in a user namespace.
    let namespace = Script::new(env!("CARGO_BIN_EXE_fyke"), folder.path()).as_root().limit_s(100);
    let Some(output) = namespace.run(SCRIPT) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    let count = |name: String| {
        let path = folder.path().join(&name);
        let read = Command::new(env!("CARGO_BIN_EXE_fyke"))
            .args(["dump", "--count", "-r"])
            .arg(&path)
            .output()
            .unwrap();
        let log = std::fs::read_to_string(path.with_extension("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&read.stdout).trim().to_owned();
        text.parse::<u64>().unwrap_or_else(|_| panic!("{name}: {text:?}\n{log}\n{said}"))
    };
    let mut total = 0;
    for (number, (interface, text)) in CAPTURES.iter().enumerate() {
        // Number of frames that the kernel's filter accepted. At first libpcap filters the frames that it reads again,
        // without metadata, and loses those that depend on the direction.
        let log = folder.path().join(format!("peer{number}.log"));
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let received = log.lines().find(|line| line.ends_with("received by filter"));
        let peer = received.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
        let peer = peer.unwrap_or_else(|| panic!("{text}: {log}"));
        let own = count(format!("own{number}.pcap"));
        println!("{interface}: {text}: {own}, tcpdump {peer}");
        assert_eq!(own, peer, "{interface}: {text}\n{said}");
        total += own;
    }
    // Dozens of frames prove that the namespace carried traffic.
    assert!(total > 100, "{total} frames\n{said}");
}
