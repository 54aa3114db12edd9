//! `fyke track` in typical use: FTP with tags and labels, in tunnels, on other ports, from files and on a trunk.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
/// Frames of a control connection, and of the data connection that it announces.
const CONTROL: usize = 4;
const DATA: usize = 6;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Builds a passive transfer on a control port, with other traffic; each packet is put into `outer`.
fn transfer(outer: &dyn Fn() -> Packet, control: u16, with_data: bool) -> Vec<Vec<u8>> {
    let syn = 2;
    let ack = 16;
    let client = |from, to, flags| outer().ipv4(CLIENT, SERVER).tcp(from, to).flags(flags);
    let server = |from, to, flags| outer().ipv4(SERVER, CLIENT).tcp(from, to).flags(flags);
    let reply = b"227 Entering Passive Mode (10,0,0,2,19,137)\r\n";
    let mut frames = vec![
        client(4000, control, syn).seq_ack(100, 0),
        server(control, 4000, syn | ack).seq_ack(500, 101),
        client(4000, control, ack).seq_ack(101, 501).payload(b"PASV\r\n"),
        server(control, 4000, ack).seq_ack(501, 107).payload(reply),
    ];
    assert_eq!(frames.len(), CONTROL);
    if with_data {
        frames.push(client(4001, 5001, syn).seq_ack(1, 0));
        frames.push(server(5001, 4001, syn | ack).seq_ack(1, 2));
        frames.extend(
            (0..DATA as u32 - 2)
                .map(|part| server(5001, 4001, ack).seq_ack(2 + part * 8, 2).payload(b"contents")),
        );
    }
    frames.push(client(4002, 443, syn));
    frames.push(outer().ipv4(CLIENT, SERVER).udp(4000, 5001));
    frames.iter().map(Packet::build).collect()
}

fn track(folder: &Path, link: u16, frames: &[Vec<u8>], options: &[&str]) -> (usize, String) {
    let (file, out) = (folder.join("in.pcap"), folder.join("out.pcapng"));
    std::fs::write(&file, pcap::file(link, frames)).unwrap();
    let output = Command::new(FYKE)
        .args(["track", "ftp", "-r"])
        .arg(&file)
        .arg("-w")
        .arg(&out)
        .args(options)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    (count(&out), said)
}

fn count(path: &Path) -> usize {
    let output: Output = Command::new(FYKE)
        .args(["dump", "--count", "-r"])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    text(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

type Outer = fn() -> Packet;

/// Headers before the IP header.
const TAGGED: [(&str, Outer); 7] = [
    ("none", Packet::ethernet),
    ("VLAN", || Packet::ethernet().vlan(5)),
    ("QinQ", || Packet::ethernet().qinq(7).vlan(5)),
    ("three tags", || Packet::ethernet().vlan(9).vlan(7).vlan(5)),
    ("MPLS", || Packet::ethernet().mpls(100)),
    ("VLAN and two labels", || Packet::ethernet().vlan(5).mpls(100).mpls(200)),
    ("PPPoE", || Packet::ethernet().pppoe(3).ppp()),
];

#[test]
fn files_with_tags_and_labels_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, outer) in TAGGED {
        let frames = transfer(&outer, 21, true);
        let (kept, said) = track(folder.path(), 1, &frames, &[]);
        assert_eq!(kept, CONTROL + DATA, "{name}: {said}");
        assert!(said.contains("1 data connections announced, 1 closed"), "{name}: {said}");
        assert!(!said.contains("warning"), "{name}: {said}");
        let (scoped, said) = track(folder.path(), 1, &frames, &["--scoped"]);
        assert_eq!(scoped, CONTROL + DATA, "{name}, scoped: {said}");
    }
    for (link, outer) in [(276, Packet::sll2 as Outer), (113, Packet::sll), (101, Packet::raw)] {
        let (kept, said) = track(folder.path(), link, &transfer(&outer, 21, true), &[]);
        assert_eq!(kept, CONTROL + DATA, "link type {link}: {said}");
    }
    let cooked: Outer = || Packet::sll2().vlan(5);
    let (kept, said) = track(folder.path(), 276, &transfer(&cooked, 21, true), &[]);
    assert_eq!(kept, CONTROL + DATA, "tag in a cooked capture: {said}");
}

#[test]
fn tunnels_take_scoped_and_other_servers_their_port() {
    let folder = tempfile::tempdir().unwrap();
    let vxlan = || Packet::ethernet().ipv4([192, 0, 2, 1], [192, 0, 2, 2]).vxlan(1).ether();
    let tunnelled = transfer(&vxlan, 21, true);
    assert_eq!(track(folder.path(), 1, &tunnelled, &[]).0, 0);
    let (kept, said) = track(folder.path(), 1, &tunnelled, &["--scoped"]);
    assert_eq!(kept, CONTROL + DATA, "{said}");
    let elsewhere = transfer(&|| Packet::ethernet().vlan(5), 2121, true);
    assert_eq!(track(folder.path(), 1, &elsewhere, &[]).0, 0);
    for ports in ["2121", "21,2121"] {
        let (kept, said) = track(folder.path(), 1, &elsewhere, &["--port", ports]);
        assert_eq!(kept, CONTROL + DATA, "{ports}: {said}");
    }
    let wrong = Command::new(FYKE)
        .args(["track", "ftp", "--port", "21,x", "-r", "in.pcap", "-w", "out.pcap"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("\"x\" is not a port"), "{}", text(&wrong.stderr));
}

#[test]
fn the_help_and_the_error_list_the_registry() {
    let fyke = |args: &[&str]| Command::new(FYKE).args(args).output().unwrap();
    let help = text(&fyke(&["track", "--help"]).stdout);
    let wrong = fyke(&["track", "gopher", "-r", "in.pcap", "-w", "out.pcap"]);
    assert_eq!(wrong.status.code(), Some(2));
    let refused = text(&wrong.stderr);
    for kind in fyke_track::TRACKERS {
        let is_row = |line: &str| {
            let row = line.trim().strip_prefix("- ").and_then(|row| row.strip_prefix(kind.name));
            row.is_some_and(|row| row.starts_with(':') && row.ends_with(kind.summary))
        };
        assert!(help.lines().any(is_row), "{}: {help}", kind.name);
        assert!(refused.contains(kind.name), "{refused}");
        let graph = fyke(&["explain", "--graph", "--", "track", kind.name, "-i", "lo", "-w", "x"]);
        let graph = text(&graph.stdout);
        assert!(graph.contains(&(kind.start_filter)(&[kind.port])), "{graph}");
        assert!(graph.contains(&format!("(track, expression={}", kind.name)), "{graph}");
    }
}

#[test]
fn connections_that_were_announced_and_never_came_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let frames = transfer(&Packet::ethernet, 21, false);
    let (kept, said) = track(folder.path(), 1, &frames, &[]);
    assert_eq!(kept, CONTROL, "{said}");
    assert!(said.contains("warning: no frame of a data connection arrived"), "{said}");
}

/// Replays transfers from near to far, one after another, while both ends and `any` are tracked.
const SCRIPT: &str = r#"
    set -eu
    veth
    ids=""
    for interface in near far any; do
        "$FYKE" track ftp $OPTIONS -i $interface -w $interface.pcapng 2> $interface.log &
        ids="$ids $!"
    done
    for id in $ids; do wait_for "$FYKE" ctl --pid $id show; done
    "$FYKE" run --no-control '(pcapin,in.pcap) > (tointerface,near)' 2> in.log
    sleep 1.5
    kill -INT $ids
    wait
"#;

#[test]
fn a_trunk_is_followed_live() {
    for (name, outer) in TAGGED {
        for options in ["", "--scoped"] {
            let folder = tempfile::tempdir().unwrap();
            let frames = transfer(&outer, 21, true);
            std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames)).unwrap();
            let namespace = Script::new(FYKE, folder.path()).env("OPTIONS", options);
            let Some(output) = namespace.run(SCRIPT) else { return };
            for interface in ["near", "far", "any"] {
                let log = folder.path().join(format!("{interface}.log"));
                let said = std::fs::read_to_string(log).unwrap_or_default();
                let said = format!("{said}{}", text(&output.stderr));
                let kept = count(&folder.path().join(format!("{interface}.pcapng")));
                // On `any` a frame is seen as it is sent and as it arrives; of what arrives with two tags Linux leaves
                // there the content of the inner one in the place of the IP header.
                let times = match (interface, name) {
                    ("any", "QinQ" | "three tags") => 1,
                    ("any", _) => 2,
                    _ => 1,
                };
                assert_eq!(kept, times * (CONTROL + DATA), "{name} on {interface}: {said}");
                assert!(said.contains("1 data connections announced"), "{said}");
            }
        }
    }
}
