//! The tracker on invented dialogues, and on damaged frames.

use super::*;
use crate::Tracker;
use crate::{Cause, Closed, Reason};
use fyke_frame::LinkType;
use fyke_frame::walk::view::tcp_flags::ACK;
use std::net::IpAddr;

const SECOND: u64 = 1_000_000_000;
const SERVER: &str = "10.0.0.1";
const CLIENT: &str = "10.0.1.1";

/// A tracker and the events it has raised, with a clock.
struct Bench {
    ftp: Ftp,
    events: Vec<Event>,
    now_ns: u64,
}

fn packet(from: (&str, u16), to: (&str, u16), seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) = (from.0.parse().unwrap(), to.0.parse().unwrap());
    let ethernet = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ip = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ethernet.ipv4(source.octets(), destination.octets(), 64)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ethernet.ipv6(source.octets(), destination.octets(), 64)
        }
        _ => panic!("one address family"),
    };
    let mut tcp = ip.tcp(from.1, to.1, seq, 8_192);
    if flags & SYN != 0 {
        tcp = tcp.syn();
    }
    if flags & FIN != 0 {
        tcp = tcp.fin();
    }
    if flags & RST != 0 {
        tcp = tcp.rst();
    }
    if flags & ACK != 0 {
        tcp = tcp.ack(1);
    }
    let mut bytes = Vec::new();
    tcp.write(&mut bytes, payload).unwrap();
    bytes
}

impl Bench {
    fn new() -> Self {
        Bench { ftp: Ftp::default(), events: Vec::new(), now_ns: SECOND }
    }

    fn limited(limits: Limits) -> Self {
        Bench { ftp: Ftp::new(21, limits), ..Bench::new() }
    }

    fn send(&mut self, from: (&str, u16), to: (&str, u16), seq: u32, flags: u8, payload: &str) {
        let mut bytes = packet(from, to, seq, flags, payload.as_bytes());
        bytes.resize(bytes.len().max(60), 0);
        let mut frame = Frame::new(LinkType::EN10MB, &bytes);
        self.now_ns += 1_000;
        frame.timestamp_ns = self.now_ns;
        self.ftp.frame(&frame, &mut self.events);
    }

    fn reply(&mut self, seq: u32, text: &str) {
        self.send((SERVER, 21), (CLIENT, 4_000), seq, ACK, text);
    }

    fn opened(&self) -> Vec<(String, u16, Cause)> {
        let each = self.events.iter().filter_map(|event| match event {
            Event::Open(open) => Some((open.server.to_string(), open.port, open.cause)),
            Event::Close(_) => None,
        });
        each.collect()
    }

    fn closed(&self) -> Vec<Closed> {
        let each = self.events.iter().filter_map(|event| match event {
            Event::Close(closed) => Some(*closed),
            Event::Open(_) => None,
        });
        each.collect()
    }
}

#[test]
fn a_passive_connection_from_announcement_to_end() {
    let mut bench = Bench::new();
    bench.reply(100, "227 Entering Passive Mode (10,0,0,1,19,137).\r\n");
    assert_eq!(bench.opened(), [(SERVER.into(), 5_001, PASSIVE)]);
    let (server, client) = ((SERVER, 5_001), (CLIENT, 4_001));
    bench.send(client, server, 1, SYN, "");
    bench.send(server, client, 1, SYN | ACK, "");
    bench.send(server, client, 2, ACK, "data");
    bench.send(server, client, 6, FIN | ACK, "");
    bench.send(client, server, 2, FIN | ACK, "");
    assert!(bench.closed().is_empty(), "the last acknowledgement is still to come");
    bench.send(server, client, 7, ACK, "");
    bench.now_ns += SECOND;
    bench.ftp.expire(bench.now_ns, &mut bench.events);
    let closed = bench.closed()[0];
    assert_eq!((closed.reason, closed.frame_count, closed.from_syn), (Reason::Finished, 6, true));
    assert_eq!(closed.client_port, Some(4_001));
    assert_eq!(bench.ftp.data_connections(), 0);
    assert_eq!(bench.ftp.counters().data_frames, 6);
}

#[test]
fn a_repeated_reply_is_one_announcement() {
    let mut bench = Bench::new();
    let text = "227 Entering Passive Mode (10,0,0,1,19,137)\r\n";
    bench.reply(100, text);
    bench.reply(100, text);
    bench.reply(100 + text.len() as u32, text);
    assert_eq!(bench.opened().len(), 1);
    let counters = bench.ftp.counters();
    assert_eq!((counters.repeated_segments, counters.repeated), (1, 1));
}

#[test]
fn another_address_in_the_reply_is_expected_too() {
    let mut bench = Bench::new();
    bench.reply(100, "227 ok (192,168,7,7,19,137)\r\n");
    let addresses: Vec<String> = bench.opened().into_iter().map(|open| open.0).collect();
    assert_eq!(addresses, [SERVER, "192.168.7.7"]);
    bench.send((CLIENT, 4_001), (SERVER, 5_001), 1, SYN, "");
    let closed = bench.closed();
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0].reason, Reason::OtherAddress);
    assert_eq!(closed[0].connection.server.to_string(), "192.168.7.7");
    assert_eq!(bench.ftp.counters().other_address, 1);
}

#[test]
fn active_connections_listen_at_the_client() {
    let mut bench = Bench::new();
    bench.send((CLIENT, 4_000), (SERVER, 21), 1, ACK, "PORT 10,0,1,1,15,161\r\n");
    assert_eq!(bench.opened(), [(CLIENT.into(), 4_001, ACTIVE)]);
    bench.send((SERVER, 20), (CLIENT, 4_001), 1, SYN, "");
    bench.send((CLIENT, 4_001), (SERVER, 20), 1, RST | ACK, "");
    bench.now_ns += SECOND;
    bench.ftp.expire(bench.now_ns, &mut bench.events);
    assert_eq!(bench.closed()[0].reason, Reason::Reset);
}

#[test]
fn ipv6_with_multi_line_replies() {
    let mut bench = Bench::new();
    let (server, client) = (("2001:db8::1", 21), ("2001:db8::2", 4_000));
    bench.send(server, client, 100, ACK, "220-hello\r\n227 (1,2,3,4,5,6) is text\r\n220 now\r\n");
    assert!(bench.opened().is_empty());
    bench.send(server, client, 148, ACK, "229-Entering\r\n229 Extended (|||5001|)\r\n");
    assert_eq!(bench.opened(), [("2001:db8::1".into(), 5_001, EXTENDED_PASSIVE)]);
    bench.send(client, server, 1, ACK, "EPRT |2|2001:db8::2|6001|\r\n");
    assert_eq!(bench.opened()[1], ("2001:db8::2".into(), 6_001, EXTENDED_ACTIVE));
}

#[test]
fn an_encrypted_control_connection_is_counted_and_not_guessed_at() {
    let mut bench = Bench::new();
    let text = "234 Proceed with negotiation.\r\n";
    bench.reply(100, text);
    bench.reply(100 + text.len() as u32, "\x16\x03\x01\x00\x05\n227 (10,0,0,1,19,137)\n");
    bench.reply(100, text);
    assert!(bench.opened().is_empty());
    assert_eq!(bench.ftp.counters().encrypted, 1);
    bench.reply(900, "227 Entering Passive Mode (10,0,0,1,19,137)\r\n");
    assert_eq!(bench.opened().len(), 1, "readable again");
}

#[test]
fn a_listener_can_be_used_again_while_it_lingers() {
    let mut bench = Bench::new();
    let first = "227 (10,0,0,1,19,137)\r\n";
    bench.reply(100, first);
    let (server, client) = ((SERVER, 5_001), (CLIENT, 4_001));
    bench.send(client, server, 1, SYN, "");
    bench.send(server, client, 2, FIN | ACK, "");
    bench.send(client, server, 2, FIN | ACK, "");
    bench.reply(100 + first.len() as u32, first);
    assert_eq!(bench.opened().len(), 2);
    bench.send((CLIENT, 4_002), server, 1, SYN, "");
    bench.now_ns += SECOND;
    bench.ftp.expire(bench.now_ns, &mut bench.events);
    assert_eq!(bench.closed().len(), 1);
    assert_eq!(bench.closed()[0].client_port, Some(4_001));
    assert_eq!(bench.ftp.data_connections(), 1);
}

#[test]
fn silence_ends_everything() {
    let mut bench = Bench::new();
    bench.reply(100, "227 (10,0,0,1,19,137)\r\n");
    bench.send((CLIENT, 4_000), (SERVER, 21), 1, ACK, "PORT 10,0,1,1,15,161\r\n");
    bench.send((SERVER, 20), (CLIENT, 4_001), 1, SYN, "");
    bench.ftp.expire(bench.now_ns + 61 * SECOND, &mut bench.events);
    assert_eq!(bench.closed()[0].reason, Reason::Unused);
    bench.ftp.expire(bench.now_ns + 301 * SECOND, &mut bench.events);
    assert_eq!(bench.closed()[1].reason, Reason::Idle);
    assert_eq!(bench.ftp.data_connections(), 0);
}

#[test]
fn memory_is_bounded_and_every_open_gets_its_close() {
    let limits = Limits { data_connections: 5, control_connections: 3, ..Limits::default() };
    let mut bench = Bench::limited(limits);
    for host in 1..=40u16 {
        let client = format!("10.0.1.{host}");
        let text = format!("227 (10,0,0,1,19,{host})\r\n");
        bench.send((SERVER, 21), (&client, 4_000), 1, ACK, &text);
    }
    assert_eq!(bench.ftp.data_connections(), 5);
    assert_eq!((bench.opened().len(), bench.closed().len()), (40, 35));
    assert_eq!(bench.ftp.counters().control_evicted, 37);
    bench.ftp.expire(u64::MAX, &mut bench.events);
    assert_eq!(bench.closed().len(), 40);
}

#[test]
fn any_bytes_are_survived() {
    let mut bench = Bench::new();
    let base = packet((SERVER, 21), (CLIENT, 4_000), 7, ACK, b"227 (10,0,0,1,19,137)\r\n");
    let mut state = 1u64;
    for round in 0..20_000u32 {
        let mut bytes = base.clone();
        for _ in 0..1 + round % 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 25) as u8;
        }
        bytes.truncate(bytes.len() - (state >> 60) as usize);
        let mut frame = Frame::new(LinkType::EN10MB, &bytes);
        frame.timestamp_ns = u64::from(round) * 1_000_000;
        bench.ftp.frame(&frame, &mut bench.events);
    }
    let (opened, closed) = (bench.opened().len(), bench.closed().len());
    assert_eq!(opened - closed, bench.ftp.data_connections());
}
