//! Flow records: directions, ends, limits, and lengths of packets.

use super::*;
use fyke_frame::{LinkType, walk};

const S: u64 = 1_000_000_000;

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn tcp(from: &str, to: &str, tcp_flags: u8) -> Packet {
    let (source, destination) = (end(from), end(to));
    Packet { protocol: TCP, source, destination, bytes: 100, tcp_flags, rule: 0 }
}

/// Records of packets with their times in seconds, and of the flows that are open at the end.
fn records(limits: Limits, packets: &[(u64, Packet)]) -> Vec<Record> {
    let (mut flows, mut all) = (Flows::new(limits), Vec::new());
    for (second, packet) in packets {
        flows.packet(packet, second * S, &mut |record| all.push(*record));
    }
    flows.finish(&mut |record| all.push(*record));
    assert_eq!(flows.open(), 0);
    all
}

const A: &str = "10.0.0.2:4000";
const B: &str = "10.0.0.1:80";

#[test]
fn both_directions_are_one_flow_that_the_first_sender_started() {
    let packets = [(1, tcp(A, B, SYN)), (2, tcp(B, A, SYN | ACK)), (3, tcp(A, B, ACK))];
    let [one] = records(Limits::default(), &packets)[..] else { panic!() };
    assert_eq!((one.source, one.destination), (end(A), end(B)));
    assert_eq!((one.start_ns, one.end_ns, one.end), (S, 3 * S, End::Stopped));
    let side = Side { tcp_flags: SYN | ACK, ..Side::default() };
    assert_eq!(one.forward, Side { packets: 2, bytes: 200, ..side });
    assert_eq!(one.backward, Side { packets: 1, bytes: 100, ..side });
}

#[test]
fn missing_bytes_and_rules_are_recorded() {
    let (mut flows, mut all) = (Flows::new(Limits::default()), Vec::new());
    let mut report = |record: &Record| all.push(*record);
    // A flow that is not there has no record.
    flows.missing(end(A), end(B), 100);
    flows.packet(&tcp(A, B, ACK), S, &mut report);
    flows.packet(&Packet { rule: 9, ..tcp(B, A, ACK) }, S, &mut report);
    for rule in [1, 2, 3, 4, 9] {
        flows.packet(&Packet { rule, ..tcp(A, B, ACK) }, 2 * S, &mut report);
        flows.missing(end(A), end(B), 2);
    }
    flows.missing(end(B), end(A), 7);
    flows.finish(&mut report);
    let [one] = all[..] else { panic!() };
    assert_eq!((one.forward.missing_bytes, one.backward.missing_bytes), (10, 7));
    assert_eq!(one.rules, [9, 1, 2, 3]);
}

#[test]
fn a_connection_ends_with_its_last_fin_or_with_a_reset() {
    let fin = FIN | ACK;
    let closed = [(1, tcp(A, B, fin)), (2, tcp(B, A, fin)), (2, tcp(A, B, ACK))];
    // The same ends again, at once: a connection of its own.
    let again = [(3, tcp(A, B, SYN)), (3, tcp(B, A, RST)), (100, tcp(A, B, SYN))];
    let all = records(Limits::default(), &[&closed[..], &again].concat());
    let found: Vec<_> =
        all.iter().map(|one| (one.forward.packets, one.backward.packets, one.end)).collect();
    assert_eq!(found, [(2, 1, End::Closed), (1, 1, End::Closed), (1, 0, End::Stopped)]);
}

#[test]
fn silence_and_age_end_records_and_no_packet_is_lost() {
    let limits = Limits { idle_ns: 10 * S, active_ns: 30 * S, flows: 10 };
    let mut packets: Vec<_> = (0..100).step_by(5).map(|at| (at, tcp(B, A, ACK))).collect();
    packets.insert(1, (0, tcp(A, B, ACK)));
    packets.push((200, tcp(A, B, ACK)));
    let all = records(limits, &packets);
    let ends: Vec<_> = all.iter().map(|one| one.end).collect();
    assert_eq!(ends, [End::Active, End::Active, End::Active, End::Idle, End::Stopped]);
    // Parts keep their source; after silence the next sender is the source.
    let sources: Vec<_> = all.iter().map(|one| one.source).collect();
    assert_eq!(sources, [end(B), end(B), end(B), end(B), end(A)]);
    let sum: u64 = all.iter().map(|one| one.forward.packets + one.backward.packets).sum();
    assert_eq!(sum, packets.len() as u64);
}

#[test]
fn a_full_table_reports_the_flow_that_would_end_first() {
    let limits = Limits { flows: 2, ..Limits::default() };
    let packets: Vec<_> = (1..=4).map(|n| (n, tcp(&format!("10.0.0.9:{n}"), B, ACK))).collect();
    let all = records(limits, &packets);
    let found: Vec<_> = all.iter().map(|one| (one.source.port(), one.end)).collect();
    let (evicted, stopped) = (End::Evicted, End::Stopped);
    assert_eq!(found, [(1, evicted), (2, evicted), (3, stopped), (4, stopped)]);
}

#[test]
fn packets_have_the_length_of_their_ip_header() {
    let mut bytes = vec![0; 64];
    (bytes[12], bytes[14], bytes[17], bytes[23]) = (8, 0x45, 40, TCP);
    (bytes[35], bytes[37], bytes[46], bytes[47]) = (9, 80, 0x50, SYN);
    let packet = |bytes: &[u8]| {
        let frame = Frame::new(LinkType::EN10MB, bytes);
        Packet::of(&frame, &walk(&frame))
    };
    let one = packet(&bytes).unwrap();
    assert_eq!((one.bytes, one.tcp_flags, one.protocol), (40, SYN, TCP));
    assert_eq!((one.source.port(), one.destination.port()), (9, 80));
    // A later fragment has no ports, and a length of 0 means all bytes.
    (bytes[17], bytes[21]) = (0, 8);
    let one = packet(&bytes).unwrap();
    assert_eq!((one.bytes, one.tcp_flags, one.source.port()), (50, 0, 0));
    assert_eq!(packet(&bytes[..20]), None);
}
