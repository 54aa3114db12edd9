//! The peer-to-peer tracker on strings of each protocol, and beside tshark.

#[path = "samples/mod.rs"]
mod samples;

use fyke_capture::{Next, Source, open_file};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use fyke_track::{Event, P2p, Tracker};
use samples::{By, at, build, data, says};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const ONE: [u8; 4] = [10, 0, 0, 1];
const TWO: [u8; 4] = [10, 0, 0, 2];

fn handshake() -> Vec<u8> {
    [&b"\x13BitTorrent protocol"[..], &[0; 8], &[7; 40]].concat()
}

/// A first message that confirms, its transport and port, the label, and tshark's name of the protocol, if it reads it
/// by default.
fn strings() -> Vec<(By, u16, Vec<u8>, &'static str, &'static str)> {
    let id = [b'i'; 20];
    let query = [&b"d1:ad2:id20:"[..], &id, b"e1:q4:ping1:t2:aa1:y1:qe"].concat();
    let answer = [&b"d1:rd2:id20:"[..], &id, b"e1:t2:aa1:y1:re"].concat();
    let utp = [&[0x01, 0, 0, 9][..], &[0; 16], &handshake()].concat();
    let tracker = [0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, 1, 2, 3, 4].to_vec();
    let hello = [&[0xe3, 40, 0, 0, 0, 1, 16][..], &[5; 38]].concat();
    let gnutella = b"GNUTELLA CONNECT/0.6\r\nUser-Agent: x\r\n\r\n".to_vec();
    let kademlia = [&[0xe4, 0x21, 2][..], &[3; 32]].concat();
    vec![
        (By::Tcp, 51_413, handshake(), "BitTorrent", "bittorrent"),
        (By::Udp, 51_413, query, "BitTorrent DHT", "bt-dht"),
        (By::Udp, 51_413, answer, "BitTorrent DHT", "bt-dht"),
        (By::Udp, 51_413, utp, "BitTorrent uTP", ""),
        (By::Udp, 51_413, tracker, "BitTorrent tracker", ""),
        (By::Tcp, 4_662, hello, "eDonkey", "edonkey"),
        (By::Tcp, 6_346, gnutella, "Gnutella", "gnutella"),
        (By::Udp, 4_672, kademlia, "Kademlia", "edonkey"),
        (By::Udp, 4_665, vec![0xe3, 0x96, 1, 2, 3, 4], "eDonkey", "edonkey"),
        (By::Udp, 6_346, b"GND\x01\x02\x01\0\0".to_vec(), "Gnutella", ""),
    ]
}

/// Runs frames; returns the numbers of those of a peer, and the labels of what was announced.
fn run(frames: &[Vec<u8>]) -> (BTreeSet<usize>, Vec<&'static str>) {
    let (mut tracker, mut events, mut found) = (P2p::default(), Vec::new(), BTreeSet::new());
    for (index, bytes) in frames.iter().enumerate() {
        let timestamp_ns = index as u64 * 1_000_000;
        let frame = Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, bytes) };
        tracker.frame(&frame, &mut events);
        if tracker.call().is_some() {
            found.insert(index + 1);
        }
    }
    let label = |event: &Event| match event {
        Event::Open(connection) => Some(connection.label),
        Event::Close(_) => None,
    };
    (found, events.iter().filter_map(label).collect())
}

#[test]
fn a_string_confirms_a_peer_and_all_hosts_at_its_end_are_followed() {
    for (by, port, payload, label, theirs) in strings() {
        let (one, two) = (at(ONE, 40_000), at(TWO, port));
        let mut sent = vec![
            says(by, one, two, b"before"),
            data(by, one, two, &payload),
            data(by, two, one, &[0x17; 60]),
        ];
        if by == By::Udp {
            // Other hosts, long after.
            sent.extend((3..30).map(|host| data(by, at([10, 0, 0, host], 9_000), two, &[1; 60])));
        }
        sent.push(says(by, at(ONE, 40_001), at([10, 0, 0, 9], port), &[1; 60]));
        let frames = build(&sent, &Packet::ethernet);
        let (found, labels) = run(&frames);
        let expected: BTreeSet<_> =
            (1..=sent.len()).filter(|number| sent[number - 1].is_data).collect();
        assert_eq!(found, expected, "{label}");
        assert!(labels.iter().all(|one| *one == label) && !labels.is_empty(), "{labels:?}");
        if !theirs.is_empty() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("one.pcap");
            std::fs::write(&path, pcap::file(1, &frames)).unwrap();
            let Some(numbers) = tshark(&path, theirs) else { continue };
            assert!(numbers.contains(&2), "{label}: tshark reads {numbers:?}");
        }
        // The same bytes at the port of a known service, and cut short, confirm nothing.
        let service = build(&[says(by, one, at(TWO, 443), &payload)], &Packet::ethernet);
        assert_eq!(run(&service).1.len(), 0, "{label}");
        for length in 0..payload.len().min(8) {
            let cut = build(&[says(by, one, two, &payload[..length])], &Packet::ethernet);
            assert_eq!(run(&cut).1.len(), 0, "{label}, {length} bytes");
        }
    }
}

/// The numbers of the frames that tshark dissects as a protocol.
fn tshark(path: &Path, protocol: &str) -> Option<BTreeSet<usize>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path);
    let output = command.args(["-Y", protocol, "-T", "fields", "-e", "frame.number"]).output();
    let Ok(output) = output else {
        eprintln!("tshark is not installed: the frames are not compared with it");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().map(|line| line.parse().unwrap()).collect())
}

/// On captures with peers: every frame that tshark dissects as BitTorrent belongs to a peer.
#[test]
fn frames_of_bittorrent_in_captures_are_found_as_tshark_finds_them() {
    let Some(folder) = Corpus::open().shared("traces/tcp-streams") else { return };
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains("torrent") {
            continue;
        }
        let Some(theirs) = tshark(&path, "bittorrent") else { return };
        let (found, frames) = of_file(&path);
        let missing: Vec<_> = theirs.difference(&found).collect();
        assert_eq!(missing, Vec::<&usize>::new(), "{name}");
        println!("{name}: {frames} frames, {} of tshark, {} ours", theirs.len(), found.len());
        compared += theirs.len();
    }
    assert!(compared > 0);
}

/// The numbers of the frames of peers in a file, and how many frames it has.
fn of_file(path: &Path) -> (BTreeSet<usize>, usize) {
    let mut source = open_file(path).unwrap();
    let (mut tracker, mut events) = (P2p::default(), Vec::new());
    let (mut found, mut number) = (BTreeSet::new(), 0);
    while let Next::Frames(batch, _) = source.next().unwrap() {
        for frame in batch.frames() {
            number += 1;
            tracker.frame(frame, &mut events);
            if tracker.call().is_some() {
                found.insert(number);
            }
        }
    }
    (found, number)
}

/// Captures of other protocols: no peer is invented.
#[test]
fn calls_and_transfers_are_no_peers() {
    for sample in samples::all() {
        let (found, labels) = run(&build(&sample.sent, &Packet::ethernet));
        let is_peer = sample.protocol == "p2p";
        assert_eq!(
            (!found.is_empty(), !labels.is_empty()),
            (is_peer, is_peer),
            "{}",
            sample.protocol
        );
    }
    let Some(folder) = Corpus::open().shared("traces/voip") else { return };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(of_file(&path).0.len(), 0, "{}", path.display());
    }
}
