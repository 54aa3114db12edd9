//! Rules by a hostile author and traffic made for them: the work of all is bounded, what is left out is counted, and
//! other rules are judged. Work is counted, not timed.

use super::*;
use crate::work::MAX_WORK;

/// Most units for the frames so far, of which each has this length at most.
fn bound(talk: &Talk, frame_len: u64) -> u64 {
    let frames = talk.engine.counters().frames;
    // The last verification may use more than is left, by a part that is not interrupted.
    MOST_WORK + frames * (WORK_PER_FRAME + WORK_PER_BYTE * frame_len) + MAX_WORK
}

const NEEDLE: &str = "alert udp any any -> any any (content:\"needle\"; sid:9999;)\n";

#[test]
fn a_hundred_expressions_that_explode_leave_the_other_rules_their_work() {
    let one = |sid: u32| {
        format!("alert udp any any -> any any (pcre:\"/(a*)*(a*)*\\1b{sid}$/\"; sid:{sid};)\n")
    };
    let mut talk = Talk::new(&((1..=100).map(one).collect::<String>() + NEEDLE));
    let payload = ["a".repeat(1200), "needle".to_owned(), "a".repeat(100)].concat();
    for _ in 0..100 {
        talk.udp(true, payload.as_bytes());
    }
    assert_eq!(talk.sids(), [9999; 100]);
    let counters = talk.engine.counters();
    assert!(counters.work <= bound(&talk, 1400), "{counters:?}");
    assert!(counters.unjudged > 0 && counters.suspended > 0, "{counters:?}");
    // Without their work, the same frames cost next to nothing.
    let before = counters.work;
    for _ in 0..20 {
        talk.udp(true, payload.as_bytes());
    }
    let after = talk.engine.counters();
    assert!(after.work - before < 20 * WORK_PER_BYTE * 1400 / 2, "{after:?}");
    assert_eq!(talk.sids(), [9999; 20]);
}

#[test]
fn two_thousand_rules_of_four_contents_are_bounded_in_packets_and_streams() {
    for protocol in ["udp", "tcp"] {
        let one = |sid: u32| {
            format!(
                "alert {protocol} any any -> any any (content:\"abababab\"; \
                 content:\"babababa\"; distance:0; content:\"abab\"; distance:0; \
                 content:\"{sid}\"; distance:0; sid:{sid};)\n"
            )
        };
        let needle = NEEDLE.replace("udp", protocol);
        let mut talk = Talk::new(&((1000..3000).map(one).collect::<String>() + &needle));
        let payload = "ab".repeat(500) + "needle" + &"ab".repeat(100);
        if protocol == "tcp" {
            talk.open();
        }
        for _ in 0..30 {
            match protocol {
                "udp" => talk.udp(true, payload.as_bytes()),
                _ => talk.send(true, ACK, payload.as_bytes()),
            }
        }
        assert_eq!(talk.sids(), [9999; 30], "{protocol}");
        let counters = talk.engine.counters();
        assert!(counters.work <= bound(&talk, 1300), "{counters:?}");
        assert!(counters.unjudged + counters.limited > 1000, "{counters:?}");
        // A rule that is left out in a stream is judged with later bytes.
        if protocol == "tcp" {
            talk.time_ns += 200_000_000_000;
            talk.open();
            talk.send(true, ACK, b"abababab babababa abab 1234");
            for _ in 0..4 {
                talk.send(true, ACK, &[b'.'; 1400]);
            }
            assert_eq!(talk.sids(), [1234]);
        }
    }
}

#[test]
fn headers_with_many_members_and_small_segments_are_bounded() {
    let ports: String = (0..4000).map(|port| format!("{},", port * 7 + 1)).collect();
    let one = |sid: u32| {
        format!(
            "alert tcp any any -> any ![{ports}9] (content:\"abc\"; content:!\"abcd\"; sid:{sid};)\n"
        )
    };
    let mut talk = Talk::new(&(1..=20).map(one).collect::<String>());
    talk.open();
    talk.send(true, ACK, &b"abcd".repeat(350));
    for _ in 0..3000 {
        talk.send(true, ACK, b"e");
    }
    let counters = talk.engine.counters();
    assert!(counters.work <= MOST_WORK + 3004 * (WORK_PER_FRAME + WORK_PER_BYTE * 60) + MAX_WORK);
    assert!(counters.unjudged > 0, "{counters:?}");
}
