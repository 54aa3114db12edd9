//! Properties of streams and of the reassembly of IP packets that hold for any input: shared by the fuzz target and
//! `cargo test`.

use fyke_flow::reassembly::Reassembler;
use fyke_flow::streams::{Event, Handling, Limits, Policies, Policy, Segment, Streams};
use fyke_flow::{Fragment, reassembly};
use fyke_frame::{Frame, LinkType, walk};
use std::collections::HashMap;

/// Puts frames of any bytes together. Returns the number of delivered bytes.
pub fn streams(data: &[u8]) -> u64 {
    let [policy, options, rest @ ..] = data else { return 0 };
    let mut rest: &[u8] = rest;
    let policies = Policies::from(Policy::ALL[usize::from(*policy) % Policy::COUNT]);
    let (limits, handling) = if options & 1 == 1 { Handling::thesis() } else { Default::default() };
    let limits = Limits { connections: 20, bytes: 20_000, direction_bytes: 8_000, ..limits };
    let handling = Handling { policies: policies.clone(), ..handling };
    let mut streams = Streams::with(limits, handling);
    let bounds = reassembly::Limits { packets: 8, bytes: 8_000, ..Default::default() };
    let mut packets = Reassembler::new(bounds, policies);
    let mut ends: HashMap<(u64, bool), u64> = HashMap::new();
    let mut delivered = 0;
    let mut on = |event: Event<'_>| {
        let Event::Piece(piece) = event else { return };
        let end = ends.entry((piece.connection, piece.forward)).or_default();
        assert!(piece.bytes.is_empty() || *end + piece.missing == piece.offset);
        *end = piece.offset + piece.bytes.len() as u64;
        delivered += piece.bytes.len() as u64;
    };
    let mut now_ns = 0;
    while let [time, length, more @ ..] = rest {
        let (bytes, more) = more.split_at(usize::from(*length).min(more.len()));
        rest = more;
        now_ns += u64::from(*time) << (time % 40);
        let frame = Frame { timestamp_ns: now_ns, ..Frame::new(LinkType::EN10MB, bytes) };
        let layers = walk(&frame);
        if let Some(segment) = Segment::of(&layers) {
            let flow = streams.segment_events(&segment, now_ns, &mut on);
            if let Some(flow) = flow.filter(|_| time % 16 == 3) {
                streams.settle(flow.number, flow.connection, flow.forward, 1);
            }
        } else if Fragment::of(&layers).is_some()
            && let Some(whole) = packets.add(&frame, &layers)
            && let Some(segment) = Segment::of(&walk(&whole))
        {
            streams.segment_events(&segment, now_ns, &mut on);
        }
        if time % 16 == 5 {
            streams.expire_events(now_ns, &mut on);
        }
        assert!(streams.len() <= 20 && streams.held_bytes() <= 20_000);
        assert!(packets.held_bytes() <= 8_000);
    }
    streams.finish_events(&mut |_, event| on(event));
    assert_eq!((streams.len(), streams.held_bytes()), (0, 0));
    assert_eq!(streams.counters().delivered_bytes, delivered);
    delivered
}
