//! Properties of the fragment tracker that hold for any input: shared by the fuzz target and `cargo test`.

use fyke_flow::postponed::Limits;
use fyke_flow::{Bounds, Clock, Fragment, FragmentTracker};
use fyke_frame::{Frame, LinkType, walk};

/// Tracks frames of any bytes at any time: memory is bounded and every fragment is counted. Returns their number.
pub fn fragments(mut data: &[u8]) -> u64 {
    let held = Limits { packets: 20, bytes: 10_000 };
    let bounds = Bounds { packets: 10, held, patience_ns: 1_000_000 };
    let mut tracker = FragmentTracker::new(bounds);
    let (mut clock, mut fragments, mut given_up) = (Clock::default(), 0, 0);
    while let [time, length, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        data = rest;
        let mut frame = Frame::new(LinkType::EN10MB, bytes);
        frame.timestamp_ns = clock.now_ns().wrapping_add(u64::from(*time) << (time % 48));
        let now_ns = clock.advance(frame.timestamp_ns);
        tracker.expire(now_ns, |_| given_up += 1);
        let Some(fragment) = Fragment::of(&walk(&frame)) else { continue };
        fragments += 1;
        if fragment.info.is_first() {
            tracker.first(fragment.key, (), now_ns);
        } else {
            tracker.follow(fragment.key, &frame, (), now_ns, |_| given_up += 1);
        }
        assert!(tracker.waiting() <= 20);
    }
    tracker.finish(|_| given_up += 1);
    let counted = tracker.counters();
    assert_eq!(counted.first + counted.followed + counted.held, fragments);
    assert_eq!(counted.woken + counted.expired + counted.no_room, counted.held);
    assert_eq!(counted.expired + counted.no_room, given_up);
    fragments
}
