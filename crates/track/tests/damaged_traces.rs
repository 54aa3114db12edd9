//! Whole conversations and captures with damage: frames cut, dropped, doubled and swapped. No tracker panics, none
//! expects an end at an address that the whole conversation does not announce, and each end that opens closes once.

#[path = "samples/mod.rs"]
mod samples;

use fyke_capture::{Next, Source, open_file};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use fyke_track::{Cause, Event, Limits, Tracker, TrackerKind, p2p, registry};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

/// Strings that confirm an end of their own frame.
const PEERS: [Cause; 4] = [p2p::BITTORRENT, p2p::DHT, p2p::EDONKEY, p2p::GNUTELLA];
/// Most frames of a capture.
const FRAMES: usize = 3_000;

/// A frame of its own.
#[derive(Debug, Clone)]
struct Kept {
    bytes: Vec<u8>,
    wire_len: u32,
    timestamp_ns: u64,
    link: LinkType,
}

/// Result of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    addresses: BTreeSet<IpAddr>,
    opened: usize,
    /// Frames of data by the tracker, and by the ends that it has closed.
    data_frames: u64,
    closed_frames: u64,
}

fn run(kinds: &[&'static TrackerKind], frames: &[Kept]) -> Outcome {
    let mut tracker = registry::make(kinds, None, Limits::default());
    let (mut events, mut outcome) = (Vec::new(), Outcome::default());
    for kept in frames {
        let whole = Frame::new(kept.link, &kept.bytes);
        let frame = Frame { timestamp_ns: kept.timestamp_ns, wire_len: kept.wire_len, ..whole };
        tracker.frame(&frame, &mut events);
        let is_data = tracker.call().is_some_and(|part| part.label.is_some());
        outcome.data_frames += u64::from(is_data);
    }
    tracker.expire(u64::MAX, &mut events);
    assert!(tracker.expected().is_empty());
    let mut open = BTreeMap::new();
    for event in &events {
        match event {
            Event::Open(connection) => {
                outcome.opened += 1;
                // A peer is an end of its frame, not one that is announced.
                if !PEERS.contains(&connection.cause) {
                    outcome.addresses.insert(connection.server);
                }
                assert!(open.insert(connection.id, ()).is_none(), "opened once");
            }
            Event::Close(closed) => {
                outcome.closed_frames += closed.frame_count;
                assert!(
                    open.remove(&closed.connection.id).is_some(),
                    "closed once, after it opened"
                );
            }
        }
    }
    assert!(open.is_empty(), "closed at the end");
    outcome
}

/// Damages frames: a snap length for all, and faults of single frames.
fn damage(frames: &[Kept], random: &mut Random) -> Vec<Kept> {
    let snap = if random.chance(2) { 60 + random.below(400) } else { usize::MAX };
    let mut damaged = Vec::new();
    for kept in frames {
        let mut kept = kept.clone();
        kept.bytes.truncate(snap);
        match random.below(12) {
            0 => continue,
            1 => kept.bytes.truncate(random.below(kept.bytes.len().max(1))),
            2 => damaged.push(kept.clone()),
            _ => {}
        }
        damaged.push(kept);
    }
    for at in 1..damaged.len() {
        if random.chance(8) {
            let distance = random.below(6).min(at);
            damaged.swap(at, at - distance);
        }
    }
    damaged
}

fn check(
    name: &str,
    kinds: &[&'static TrackerKind],
    frames: &[Kept],
    random: &mut Random,
) -> usize {
    let whole = run(kinds, frames);
    assert_eq!(whole.data_frames, whole.closed_frames, "{name}");
    for round in 0..8 {
        let damaged = run(kinds, &damage(frames, random));
        let foreign: Vec<_> = damaged.addresses.difference(&whole.addresses).collect();
        assert_eq!(
            foreign,
            Vec::<&IpAddr>::new(),
            "{name}, round {round}: addresses never announced"
        );
        assert_eq!(damaged.data_frames, damaged.closed_frames, "{name}, round {round}");
    }
    whole.opened
}

#[test]
fn conversations_of_every_tracker() {
    let (mut random, seed) = Random::seeded(2604);
    println!("seed {seed}");
    for sample in samples::all() {
        let kind = registry::find(sample.protocol).unwrap();
        let frames = samples::build(&sample.sent, &Packet::ethernet);
        let kept = |(at, bytes): (usize, Vec<u8>)| Kept {
            wire_len: bytes.len() as u32,
            timestamp_ns: at as u64 * 20_000_000,
            link: LinkType::EN10MB,
            bytes,
        };
        let frames: Vec<_> = frames.into_iter().enumerate().map(kept).collect();
        for _ in 0..40 {
            assert!(
                check(sample.protocol, &[kind], &frames, &mut random) > 0,
                "{}",
                sample.protocol
            );
        }
    }
}

/// The captures of some folders, and their first frames.
fn captures() -> Vec<(PathBuf, Vec<Kept>)> {
    let (corpus, mut captures) = (Corpus::open(), Vec::new());
    for folder in ["traces/voip", "traces/ftp", "traces/tcp-streams", "traces/ipv6"] {
        let Some(folder) = corpus.shared(folder) else { continue };
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let Ok(mut source) = open_file(&path) else { continue };
            let mut frames = Vec::new();
            while let Ok(Next::Frames(batch, _)) = source.next() {
                frames.extend(batch.frames().iter().map(|frame| Kept {
                    bytes: frame.data.to_vec(),
                    wire_len: frame.wire_len,
                    timestamp_ns: frame.timestamp_ns,
                    link: frame.link,
                }));
                if frames.len() >= FRAMES {
                    break;
                }
            }
            captures.push((path, frames));
        }
    }
    captures
}

#[test]
fn captures_with_all_trackers() {
    let (mut random, seed) = Random::seeded(2605);
    println!("seed {seed}");
    let kinds: Vec<_> = registry::TRACKERS.iter().collect();
    let captures = captures();
    let opened: usize = captures
        .iter()
        .map(|(path, frames)| check(&path.display().to_string(), &kinds, frames, &mut random))
        .sum();
    println!("{} captures, {opened} ends", captures.len());
    assert!(captures.is_empty() || opened > 100, "{opened}");
}
