//! The snap length cuts what leaves the command, never what filters and trackers read. The built command on real
//! interfaces, in namespaces of its own.

mod common;

use common::{FYKE, Running, datagram, folder, frames_of, inside, send, tool, veth};
use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns the snap length of a pcap file, and the captured and the original length of each frame.
fn lengths(path: &Path) -> (u32, Vec<(u32, u32)>) {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (24, Vec::new());
    while at < bytes.len() {
        found.push((word(at + 8), word(at + 12)));
        at += 16 + word(at + 8) as usize;
    }
    (word(16), found)
}

fn start(words: &[&str]) -> Running {
    let mut command = Command::new(FYKE);
    let running = Running::start(command.args(words).stdout(Stdio::null()));
    running.hear("listening on");
    running
}

#[test]
fn filters_read_whole_frames_whatever_the_snap_length() {
    if !inside("filters_read_whole_frames_whatever_the_snap_length") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("out.pcap");
    let name = file.to_str().unwrap();
    let rule = format!("udp dst port 5001 => {name}");
    let dump = |interface, snaplen, more: &'static str, text| {
        let words = ["dump", "--no-control", "-i", interface, "-s", snaplen, "-w", name];
        let more = Some(more).filter(|more| !more.is_empty());
        words.into_iter().chain(more).chain([text]).collect::<Vec<_>>()
    };
    let cases = [
        (34, dump("v1", "34", "", "udp dst port 5001")),
        (60, dump("v1", "60", "", "udp[30] = 7 and udp dst port 5001")),
        (34, dump("any", "34", "", "inbound and udp dst port 5001")),
        (34, dump("v1", "34", "--scoped", "udp dst port 5001")),
        (34, vec!["demux", "--no-control", "-i", "v1", "-s", "34", &rule]),
    ];
    for (snaplen, words) in cases {
        let mut running = start(&words);
        assert!(running.said().contains(&format!("snap length {snaplen} bytes")));
        send(100, 30);
        running.signal("INT");
        assert!(running.end().success(), "{}", running.said());
        let (header, found) = lengths(&file);
        assert_eq!((header, found.len()), (snaplen, 50), "{words:?}: {}", running.said());
        assert!(found.iter().all(|(captured, wire)| *captured == snaplen && *wire >= 72));
    }
}

#[test]
fn endpoints_of_a_demux_get_cut_frames() {
    if !inside("endpoints_of_a_demux_get_cut_frames") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let receiver = UnixDatagram::bind(at("socket")).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (to_socket, to_ring) = (
        format!("udp dst port 5001 => unix:{}", at("socket").display()),
        format!("udp dst port 5001 => ring:{}", at("ring").display()),
    );
    let words = ["demux", "--no-control", "-i", "v1", "-s", "40", &to_socket, &to_ring];
    let mut demux = start(&words);
    let (ring, file) = (format!("ring:{}", at("ring").display()), at("ring.pcap"));
    let read = ["dump", "--no-control", "-i", &ring, "-w", file.to_str().unwrap()];
    let mut reader = start(&read);
    send(10, 30);
    let mut bytes = [0; 2048];
    for _ in 0..5 {
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 40);
    }
    demux.signal("INT");
    assert!(demux.end().success(), "{}", demux.said());
    assert!(reader.end().success(), "{}", reader.said());
    assert_eq!(lengths(&file).1, [(40, 72); 5], "{}", reader.said());
}

#[test]
fn a_tracker_reads_whole_frames_whatever_the_snap_length() {
    if !inside("a_tracker_reads_whole_frames_whatever_the_snap_length") {
        return;
    }
    veth();
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (syn, ack) = (2, 16);
    let to =
        |from, port, flags| Packet::ethernet().ipv4(client, server).tcp(from, port).flags(flags);
    let back =
        |from, port, flags| Packet::ethernet().ipv4(server, client).tcp(from, port).flags(flags);
    // The announced port comes after byte 96.
    let reply = b"227 Entering Passive Mode of this server (10,0,0,2,19,137)\r\n";
    let frames = [
        to(4000, 21, syn).seq_ack(100, 0),
        back(21, 4000, syn | ack).seq_ack(500, 101),
        to(4000, 21, ack).seq_ack(101, 501).payload(b"PASV\r\n"),
        back(21, 4000, ack).seq_ack(501, 107).payload(reply),
        to(4001, 5001, syn).seq_ack(1, 0),
        back(5001, 4001, syn | ack).seq_ack(1, 2),
        back(5001, 4001, ack).seq_ack(2, 2).payload(&[b'x'; 200]),
    ];
    let (_folder, at) = folder();
    let file = at("out.pcap");
    let words = ["track", "ftp", "-i", "v1", "-s", "96", "-w", file.to_str().unwrap()];
    let mut track = start(&words);
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    for frame in frames.iter().map(Packet::build) {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, &frame)).unwrap();
    }
    track.signal("INT");
    assert!(track.end().success(), "{}", track.said());
    let (header, found) = lengths(&file);
    assert_eq!((header, found.len()), (96, 7), "{}", track.said());
    assert_eq!(found[6], (96, 254));
}

#[test]
fn frames_of_a_file_stay_whole() {
    let (_folder, at) = folder();
    let (file, out) = (at("in.pcap"), at("out.pcap"));
    std::fs::write(&file, fyke_testkit::pcap::file(1, &[datagram(5001, 30)])).unwrap();
    let run = |snaplen: &str| {
        let mut command = Command::new(FYKE);
        command.args(["dump", "-s", snaplen, "-r"]).arg(&file).arg("-w").arg(&out);
        command.output().unwrap()
    };
    assert!(run("34").status.success());
    assert_eq!(lengths(&out).1, [(72, 72)]);
    let refused = run("300000");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("262144"), "{said}");
}

/// Sends 16 MiB to this host.
fn transfer() {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            (0..16).for_each(|_| stream.write_all(&vec![7; 1 << 20]).unwrap());
        });
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 16 << 20);
    });
}

#[test]
fn frames_of_big_tcp_are_whole_up_to_the_snap_length() {
    if !inside("frames_of_big_tcp_are_whole_up_to_the_snap_length") {
        return;
    }
    tool("ip link set lo up");
    tool("ip link set lo gso_max_size 400000 gro_max_size 400000");
    let (_folder, at) = folder();
    let file = at("out.pcap");
    for interface in ["lo", "any"] {
        let name = file.to_str().unwrap();
        // No filter: these frames have a jumbo header before TCP, which `tcp` does not skip.
        let mut dump = start(&["dump", "--no-control", "-i", interface, "-w", name]);
        transfer();
        dump.signal("INT");
        assert!(dump.end().success(), "{}", dump.said());
        assert_eq!(dump.sum().accepted, frames_of(&file));
        let (_, found) = lengths(&file);
        let longest = found.iter().map(|(captured, _)| *captured).max();
        assert!(longest > Some(131_072), "{interface}: no long frame, but {longest:?}");
        assert!(
            found.iter().all(|(captured, wire)| *captured == 262_144.min(*wire)),
            "{interface}: {found:?}"
        );
    }
}
