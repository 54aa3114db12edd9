//! Compares the verdicts of a case's engines, and computes the number of frames for each of them.

use super::super::BenchError;
use super::super::engine::{Engine, words};
use super::super::frames::Load;
use fyke_frame::BATCH_CAPACITY;
use std::time::{Duration, Instant};

/// Estimates an engine's time for one of the first frames of a load.
pub(super) fn per_frame(engine: &mut dyn Engine, load: &Load) -> Duration {
    let count = load.len().min(BATCH_CAPACITY);
    let mut verdicts = vec![0; words(count)];
    engine.judge(load, count, &mut verdicts);
    let start = Instant::now();
    engine.judge(load, count, &mut verdicts);
    start.elapsed() / count.max(1) as u32
}

/// Number of frames that fit into a time: all, or whole batches.
pub(super) fn within(time: Duration, per_frame: Duration, frames: usize) -> usize {
    let count = time.as_nanos() / per_frame.as_nanos().max(1);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count >= frames { frames } else { (count / BATCH_CAPACITY).max(1) * BATCH_CAPACITY }
        .min(frames)
}

/// Number of accepted frames and checksum of an engine that evaluated all frames.
pub(super) type Answer = Option<(u64, u64)>;

/// Compares the engines' verdicts bit by bit, on as many frames as the time of each allows.
pub(super) fn compare(
    case: &str,
    setting: &str,
    engines: &mut [Box<dyn Engine>],
    load: &Load,
    counts: &[[usize; 2]],
) -> Result<Vec<Answer>, BenchError> {
    let judges = (0..engines.len()).filter(|&index| engines[index].has_verdicts());
    let Some(first) = judges.max_by_key(|&index| counts[index][1]) else {
        return Ok(vec![None; engines.len()]);
    };
    let mut expected = vec![0; words(load.len())];
    let known = counts[first][1];
    engines[first].judge(load, known, &mut expected);
    let reference = engines[first].name().to_owned();
    let mut verdicts = vec![0; words(load.len())];
    let mut answers = Vec::new();
    for (engine, &[_, count]) in engines.iter_mut().zip(counts) {
        if !engine.has_verdicts() {
            answers.push(None);
            continue;
        }
        let count = count.min(known);
        verdicts.fill(0);
        engine.judge(load, count, &mut verdicts);
        let bit = |words: &[u64], frame: usize| words[frame / 64] >> (frame % 64) & 1 == 1;
        let differs = |&frame: &usize| bit(&verdicts, frame) != bit(&expected, frame);
        if let Some(frame) = (0..count).find(differs) {
            return Err(BenchError::Mismatch {
                case: case.to_owned(),
                setting: setting.to_owned(),
                engine: engine.name().to_owned(),
                reference,
                frame,
                frames: count,
                accepted: verdicts[frame / 64] >> (frame % 64) & 1 == 1,
            });
        }
        answers.push((count == load.len()).then(|| summary(&verdicts)));
    }
    Ok(answers)
}

/// Number of accepted frames, and a checksum of the verdicts.
fn summary(verdicts: &[u64]) -> (u64, u64) {
    let accepted = verdicts.iter().map(|word| u64::from(word.count_ones())).sum();
    let checksum = verdicts.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    });
    // Numbers beyond 2^53 are not exact in every JSON reader.
    (accepted, checksum >> 11)
}

#[cfg(test)]
mod tests {
    use super::super::super::frames::Arena;
    use super::super::super::traffic::Traffic;
    use super::*;

    /// Accepts the frames with numbers that are multiples of the divisor.
    struct Every(&'static str, usize);

    impl Engine for Every {
        fn name(&self) -> &str {
            self.0
        }

        fn judge(&mut self, _: &Load, count: usize, verdicts: &mut [u64]) {
            verdicts.fill(0);
            (0..count).step_by(self.1).for_each(|frame| verdicts[frame / 64] |= 1 << (frame % 64));
        }
    }

    #[test]
    fn engines_that_disagree_are_named_with_the_frame() {
        let mut traffic = Traffic::new(1);
        let arena = Arena::synthetic(&mut traffic, 1_000, 0);
        let load = Load::new(&arena, (0..1_000).collect());
        let counts = [[1_000, 1_000], [1_000, 512]];
        let mut alike: Vec<Box<dyn Engine>> =
            vec![Box::new(Every("a", 3)), Box::new(Every("b", 3))];
        let answers = compare("F0", "cache", &mut alike, &load, &counts).unwrap();
        assert_eq!(answers[0].map(|(accepted, _)| accepted), Some(334));
        assert_eq!(answers[1], None, "a part of the frames was compared");
        let mut unlike: Vec<Box<dyn Engine>> =
            vec![Box::new(Every("a", 3)), Box::new(Every("b", 6))];
        match compare("F0", "cache", &mut unlike, &load, &counts) {
            Err(BenchError::Mismatch { engine, reference, frame, accepted, .. }) => {
                assert_eq!(
                    (engine.as_str(), reference.as_str(), frame, accepted),
                    ("b", "a", 3, false)
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_slow_engine_gets_whole_batches() {
        let ms = Duration::from_millis;
        assert_eq!(within(ms(10), Duration::from_micros(1), 1_000_000), 9_984);
        assert_eq!(within(ms(10), Duration::from_micros(1), 1_000), 1_000);
        assert_eq!(within(ms(10), ms(1), 100), 100);
        assert_eq!(within(ms(10), ms(1), 1_000), 256);
    }
}
