//! Passes against the ordered evaluation of their condition: the verdict is the same for every frame, whole or
//! truncated, alone or among other filters, in the batch evaluator and in the reference evaluator, with all settings of
//! sharing.

mod support;

use fyke_frame::condition::Compare;
use fyke_frame::{Condition, Frame, LinkType, Mask};
use fyke_pass::{Level, MatchMode, Matches, PassSet, Sharing};
use std::sync::Arc;
use support::Random;

const FRAMES: usize = 200;

fn check(set: &PassSet, conditions: &[Arc<Condition>], frames: &[Frame], seed: u64) {
    let batch = support::batch(frames);
    let oracle = |frame: &Frame| conditions.iter().any(|condition| condition.accepts(frame));
    let levels = Level::all().into_iter().map(|level| (Sharing::All, level));
    let settings = [Sharing::Copied, Sharing::Nothing].map(|sharing| (sharing, Level::best()));
    for (sharing, level) in levels.chain(settings) {
        let mut reader = set.reader();
        reader.set_sharing(sharing);
        reader.set_level(level);
        let mut matches = Matches::new(MatchMode::All);
        let verdicts = reader.evaluate(&batch, batch.all());
        let again = reader.evaluate_matches(&batch, batch.all(), &mut matches);
        assert_eq!(verdicts, again, "seed {seed}");
        short_queues(set, sharing, frames, 1 + seed as usize % 7);
        for (index, frame) in frames.iter().enumerate() {
            let expected = oracle(frame);
            let describe = || {
                let passes: Vec<String> = set.passes().map(|pass| pass.to_string()).collect();
                format!(
                    "seed {seed} frame {index} {:02x?}\n{conditions:#?}\n{passes:#?}",
                    frame.data
                )
            };
            assert_eq!(verdicts.get(index), expected, "{}", describe());
            let one = reader.judge_one(frame);
            assert_eq!(one.accepted, expected, "reference, {}", describe());
            let quick = reader.quick_verdict(frame).unwrap_or(expected);
            assert_eq!(quick, expected, "quick, {}", describe());
            assert_eq!(matches.of(index).next().is_some(), expected, "{}", describe());
            assert_eq!(
                matches.of(index).next().map(|found| found.pass),
                one.pass,
                "{}",
                describe()
            );
            for (number, condition) in conditions.iter().enumerate() {
                let named =
                    matches.of(index).any(|found| found.filter.unwrap().0 == number as u64 + 1);
                assert_eq!(named, condition.accepts(frame), "filter {number}, {}", describe());
            }
        }
    }
}

/// The same frames, a few at a time, are judged one by one: verdicts and first passes are the reference's, every frame
/// is counted once, and only the requested ones are judged.
fn short_queues(set: &PassSet, sharing: Sharing, frames: &[Frame], size: usize) {
    let mut reader = set.reader();
    reader.set_sharing(sharing);
    let mut matches = Matches::new(MatchMode::First);
    for queue in frames.chunks(size) {
        let batch = support::batch(queue);
        let verdicts = reader.evaluate_matches(&batch, batch.all(), &mut matches);
        for (at, frame) in queue.iter().enumerate() {
            let one = reader.judge_one(frame);
            assert_eq!(verdicts.get(at), one.accepted, "{:02x?}", frame.data);
            assert_eq!(matches.of(at).next().map(|found| found.pass), one.pass);
        }
        let last = Mask::first(size).without(Mask::first(size - 1));
        assert_eq!(reader.evaluate_uncounted(&batch, last), verdicts & last);
    }
    let asked = frames.chunks(size).filter(|queue| queue.len() == size).count();
    assert_eq!(reader.work().frames, (frames.len() + asked) as u64);
}

fn run(seeds: std::ops::Range<u64>, make: impl Fn(&mut Random) -> Condition, filters: u64) {
    let mut in_order = 0;
    // FYKE_ROUNDS=100 tests a hundred times as many seeds.
    let rounds = std::env::var("FYKE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let count = (seeds.end - seeds.start) * rounds.unwrap_or(1);
    let seeds = seeds.start..seeds.start + count;
    for seed in seeds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut set = PassSet::new(LinkType::EN10MB);
        let mut conditions = Vec::new();
        let mut edit = set.edit();
        for _ in 0..filters {
            let condition = Arc::new(make(&mut random));
            edit.add_condition(condition.clone(), "random").unwrap();
            conditions.push(condition);
        }
        edit.commit();
        in_order += set.filters().filter(|filter| filter.is_in_order()).count() as u64;
        let bytes: Vec<Vec<u8>> = (0..FRAMES).map(|_| support::frame_bytes(&mut random)).collect();
        let frames = support::frames(&mut random, &bytes);
        check(&set, &conditions, &frames, seed);
    }
    println!("{count} seeds, {in_order} texts in order");
    assert!(in_order * 10 <= count * filters, "{in_order} of {count} in order");
}

#[test]
fn single_primitives() {
    run(0..1_500, support::primitive, 1);
}

#[test]
fn texts() {
    run(0..800, |random| support::condition(random, 2), 1);
}

#[test]
fn deep_texts() {
    run(0..300, |random| support::condition(random, 3), 1);
}

#[test]
fn nonsense() {
    run(
        0..400,
        |random| {
            Condition::Any(
                (0..3)
                    .map(|_| {
                        Condition::All(
                            (0..4)
                                .map(|_| {
                                    let load = support::load(random);
                                    if random.chance(40) {
                                        Condition::Not(Box::new(load))
                                    } else {
                                        load
                                    }
                                })
                                .collect(),
                        )
                    })
                    .collect(),
            )
        },
        1,
    );
}

#[test]
fn several_filters() {
    run(0..200, |random| support::condition(random, 2), 4);
}

#[test]
fn only_the_frames_asked_about() {
    let mut random = Random(77);
    let bytes: Vec<Vec<u8>> = (0..256).map(|_| support::frame_bytes(&mut random)).collect();
    let frames = support::frames(&mut random, &bytes);
    let batch = support::batch(&frames);
    for seed in 0..100 {
        let mut random = Random(seed);
        let mut set = PassSet::new(LinkType::EN10MB);
        let condition = Arc::new(support::condition(&mut random, 2));
        let mut edit = set.edit();
        if edit.add_condition(condition, "").is_err() {
            continue;
        }
        edit.commit();
        let mut reader = set.reader();
        let all = reader.evaluate(&batch, batch.all());
        let within = Mask(std::array::from_fn(|_| random.next() << 32 | random.next()));
        assert_eq!(reader.evaluate(&batch, within), all & within, "seed {seed}");
    }
}

#[test]
fn lists_of_exceptions() {
    run(0..500, |random| support::exceptions(random, 2), 1);
}

/// Each filter has its own exceptions: a frame that one filter excludes another may accept.
#[test]
fn several_lists_of_exceptions() {
    run(0..150, |random| support::exceptions(random, 1), 4);
}

/// A reader that advances while lists are added and removed; enough of them that passes with exceptions become rows.
#[test]
fn lists_of_exceptions_come_and_go() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut set = PassSet::new(LinkType::EN10MB);
        let mut reader = set.reader();
        let bytes: Vec<Vec<u8>> = (0..FRAMES).map(|_| support::frame_bytes(&mut random)).collect();
        let frames = support::frames(&mut random, &bytes);
        let batch = support::batch(&frames);
        let mut present = Vec::new();
        for _ in 0..25 {
            let mut edit = set.edit();
            for _ in 0..1 + random.below(3) {
                if !present.is_empty() && random.chance(40) {
                    let at = random.below(present.len() as u64) as usize;
                    let (id, _) = present.swap_remove(at);
                    edit.remove_filter(id).unwrap();
                } else {
                    let exceptions = support::exceptions(&mut random, 1);
                    let port = support::port(
                        &[6, 17],
                        support::End::Either,
                        &Compare::Equal(random.below(200) as u32),
                    );
                    let all = match random.chance(70) {
                        true => Condition::All(vec![port, exceptions]),
                        false => exceptions,
                    };
                    let all = Arc::new(all);
                    present.push((edit.add_condition(all.clone(), "").unwrap(), all));
                }
            }
            edit.commit();
            reader.refresh();
            let verdicts = reader.evaluate(&batch, batch.all());
            for (at, frame) in frames.iter().enumerate() {
                let expected =
                    present.is_empty() || present.iter().any(|(_, one)| one.accepts(frame));
                assert_eq!(verdicts.get(at), expected, "seed {seed}: {:02x?}", frame.data);
                assert_eq!(reader.judge_one(frame).accepted, expected, "seed {seed}");
            }
        }
    }
}
