//! Section 4.1 of the FFPF thesis, "Fast-reader preference simulation": one writer and one reader at
//! constant rates, with the delays of a poll loop, on the real ring in virtual time.
//!
//! The claims: under a reasonable load, fast-reader preference is similar to tail drop; it
//! collapses only when the writer overwrites the whole buffer before a single packet is processed.
//! A reader processes a packet in place, so it checks twice: when it gets the packet, and after
//! the work.

use fyke_frame::{Frame, LinkType};
use fyke_ring::{Index, Lending, Packets, Publication, Reader, RingError};

/// Bytes of a packet; with its head a twelfth of a kibibyte, so the buffer has 85 of them.
const LEN: usize = 64;
const IN_BUFFER: u64 = 85;
/// Time between two packets of the writer; a poll loop looks again after twice that.
const WRITE: u64 = 100;
const POLL: u64 = 2 * WRITE;
const WRITES: u64 = 20_000;

#[derive(Debug, Default, Clone, Copy)]
struct Outcome {
    /// Packets that were valid after the work.
    processed: u64,
    /// Packets that were overwritten during the work.
    wasted: u64,
    /// Packets that were overwritten unread, or that found no room.
    missed: u64,
}

/// Runs one policy: each packet costs the reader `work`, in the writer's time units.
fn simulate(work: u64, tail_drop: bool) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ring");
    let mut packets = Packets::create(8192).unwrap();
    let mut index = Index::create(1024, LinkType::RAW).unwrap();
    let published = Publication::new(&path, &packets, &index).unwrap();
    let mut reader = Reader::connect(&path).unwrap();
    while published.pages() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut outcome = Outcome::default();
    let (mut written, mut lent) = (0, Vec::new());
    // The time at which the reader does its next step; a packet is lent while it works.
    let mut next_step = 0;
    // What waits when the writer ends is not counted.
    while written < WRITES {
        if written * WRITE <= next_step {
            let data = [written as u8; LEN];
            let frame = Frame::new(LinkType::RAW, &data);
            let held = if tail_drop { published.held(&index) } else { Default::default() };
            match packets.put_from(&frame, None, held) {
                Ok(placed) => index.push_as(0, &placed, Default::default()),
                Err(RingError::Held) => index.refuse(),
                Err(other) => panic!("{other}"),
            }
            written += 1;
            continue;
        }
        if !lent.is_empty() {
            reader.settle(&mut lent);
            outcome.wasted += u64::from(!lent[0].is_whole());
            lent.clear();
        }
        next_step += match reader.lend(&mut lent, 1) {
            Lending::Frames if !lent.is_empty() => work,
            _ => POLL,
        };
    }
    outcome.processed = reader.read();
    outcome.missed = reader.lost() - outcome.wasted + reader.refused();
    let all = outcome.processed + outcome.wasted + outcome.missed;
    assert_eq!(all + reader.waiting(), WRITES);
    outcome
}

/// The part of the packets that are processed, of both policies.
fn parts(work: u64) -> (f64, f64, Outcome) {
    let (fast, tail) = (simulate(work, false), simulate(work, true));
    assert_eq!(tail.wasted, 0, "tail drop overwrites nothing that is in work");
    let part = |outcome: Outcome| outcome.processed as f64 / WRITES as f64;
    println!("work {work}: {fast:?} {tail:?}");
    (part(fast), part(tail), fast)
}

#[test]
fn under_a_reasonable_load_nothing_is_missed() {
    for work in [WRITE / 10, WRITE / 2, WRITE * 9 / 10, WRITE] {
        let (fast, tail, outcome) = parts(work);
        // All but what arrives last.
        assert!(fast > 0.999 && tail > 0.999, "work {work}: {fast} {tail}");
        assert_eq!((outcome.wasted, outcome.missed), (0, 0));
    }
}

#[test]
fn under_overload_it_is_similar_to_tail_drop_and_few_packets_are_wasted() {
    for (work, similar, waste) in [
        (WRITE * 11 / 10, 0.98, 0.01),
        (WRITE * 3 / 2, 0.97, 0.02),
        (WRITE * 2, 0.96, 0.03),
        (WRITE * 4, 0.9, 0.1),
        (WRITE * 10, 0.7, 0.3),
    ] {
        let (fast, tail, outcome) = parts(work);
        assert!(fast > similar * tail, "work {work}: {fast} {tail}");
        let wasted = outcome.wasted as f64 / outcome.processed as f64;
        assert!(wasted < waste, "work {work}: {outcome:?}");
    }
}

#[test]
fn it_collapses_when_the_buffer_is_overwritten_within_the_work_on_a_packet() {
    // One packet in a few is still processed as long as the buffer outlives the work.
    let (fast, tail, _) = parts(WRITE * (IN_BUFFER / 2 - 2));
    assert!(fast > 0.2 * tail, "{fast} {tail}");
    let (fast, tail, outcome) = parts(WRITE * (IN_BUFFER + 10));
    assert!(fast < 0.1 * tail, "{fast} {tail}");
    assert!(outcome.wasted > 10 * outcome.processed, "{outcome:?}");
}
