//! Properties of trackers that hold for any input: shared by the fuzz target and `cargo test`.

use fyke_frame::{Frame, LinkType};
use fyke_track::{Event, Limits, Tracker, registry};
use std::collections::HashSet;

/// Most calls and expectations of each tracker.
const MOST: usize = 16;

/// Gives all trackers messages of any bytes, in datagrams and segments at their control ports and elsewhere: memory is
/// bounded, and each connection is opened once and closed once. Returns the number of connections.
pub fn messages(mut data: &[u8]) -> usize {
    let limits = Limits { control_connections: MOST, data_connections: MOST, ..Limits::default() };
    let kinds: Vec<_> = registry::TRACKERS.iter().collect();
    let mut tracker = registry::make(&kinds, None, limits);
    let (mut events, mut now_ns) = (Vec::new(), 1);
    let mut sequence = 1_u32;
    while let [how, time, length, rest @ ..] = data {
        let (payload, rest) = rest.split_at((usize::from(*length) * 8).min(rest.len()));
        data = rest;
        now_ns += u64::from(*time) << (time % 32);
        let ports =
            [5_060, 554, 69, 21, 4_000, 4_001, 1_723, 6_667, 2_000, 2_427, 135, 1_720, 6_881];
        let port = ports[usize::from(*how >> 2) % ports.len()];
        let bytes = frame(*how, port, sequence, payload);
        sequence = sequence.wrapping_add(payload.len() as u32);
        let mut frame = Frame::new(LinkType::EN10MB, &bytes);
        frame.timestamp_ns = now_ns;
        tracker.frame(&frame, &mut events);
        assert!(tracker.expected().len() <= MOST * kinds.len());
    }
    tracker.expire(u64::MAX, &mut events);
    assert!(tracker.expected().is_empty());
    let mut open = HashSet::new();
    let mut opened = 0;
    for event in &events {
        match event {
            Event::Open(connection) => {
                opened += 1;
                assert!(open.insert(connection.id), "opened once");
            }
            Event::Close(closed) => assert!(open.remove(&closed.connection.id), "closed once"),
        }
    }
    assert!(open.is_empty());
    opened
}

/// A frame between 10.0.0.1 and 10.0.0.2: `how` chooses the direction and the protocol.
fn frame(how: u8, port: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let (reply, tcp) = (how & 1 == 1, how & 2 == 2);
    let transport = if tcp { 20 } else { 8 };
    let length = (20 + transport + payload.len()) as u16;
    let mut bytes = vec![0; 12];
    bytes.extend_from_slice(&[8, 0, 0x45, 0]);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 64, if tcp { 6 } else { 17 }, 0, 0]);
    let (from, to) = if reply { (2, 1) } else { (1, 2) };
    bytes.extend_from_slice(&[10, 0, 0, from, 10, 0, 0, to]);
    let (source, destination) = if reply { (port, 4_000) } else { (4_000, port) };
    bytes.extend_from_slice(&u16::to_be_bytes(source));
    bytes.extend_from_slice(&u16::to_be_bytes(destination));
    if tcp {
        bytes.extend_from_slice(&sequence.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, 0x50, 16, 0xff, 0xff, 0, 0, 0, 0]);
    } else {
        bytes.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&[0, 0]);
    }
    bytes.extend_from_slice(payload);
    bytes
}
