//! Rounds in which every engine has a turn, and medians.
//!
//! Interleaving distributes the effect of other load on the machine over all engines, so ratios are stable even if
//! absolute figures vary. Each engine runs equally often after each other one, because an engine that shares tables
//! and code with the one before it finds them in the caches. The first round is a warm-up and is not counted.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Measures one turn. A long one (a millisecond and more) is measured by the processor time of the thread, so that
/// other processes do not count; this needs a system call, which is too slow for short turns.
pub fn time_of(long: bool, work: impl FnOnce()) -> Duration {
    let thread = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    match if long { thread() } else { Err(nix::errno::Errno::ENOSYS) } {
        Ok(start) => {
            work();
            thread().unwrap_or(start).saturating_sub(start)
        }
        Err(_) => {
            let start = Instant::now();
            work();
            start.elapsed()
        }
    }
}

/// Processor time of this thread so far; zero if the system does not report it.
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Processor time of all threads of this process so far; zero if the system does not report it.
pub fn process_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Measured values of one engine, one per round.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Divides these values by those of the same rounds of `base`.
    pub fn over(&self, base: &Samples) -> Samples {
        let pairs = self.0.iter().zip(&base.0).filter(|&(_, &base)| base > 0.0);
        Samples(pairs.map(|(value, base)| value / base).collect())
    }

    /// The median; 0 without values.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The quantile by nearest rank; 0 without values.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let rank = (part * last as f64).round() as usize;
        sorted.get(rank.min(last)).copied().unwrap_or(0.0)
    }
}

/// Duration of one turn, and the units of work done.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The time.
    pub time: Duration,
    /// Number of frames, edits or other units.
    pub units: usize,
}

/// Returns the engine at this position of a round. In n rounds each of n engines takes every position once; in 2n
/// rounds it follows each other one equally often (Williams 1949). So no engine always profits from the caches of
/// the same predecessor.
pub(super) fn engine_at(place: usize, round: usize, engines: usize) -> usize {
    // 0, n - 1, 1, n - 2, …: the distance between neighbours is never the same. An odd number also needs the
    // reverse order.
    let backwards = !engines.is_multiple_of(2) && !(round / engines).is_multiple_of(2);
    let place = if backwards { engines - 1 - place } else { place };
    let first = if place.is_multiple_of(2) { place / 2 } else { engines - place.div_ceil(2) };
    (first + round) % engines
}

/// Runs `rounds` rounds (and one as a warm-up) of all `engines`; returns each engine's nanoseconds per unit.
///
/// `prepare` runs before every round, outside the measured time; `turn` runs an engine and measures it. The order
/// of the engines changes from round to round, so that each follows each other one equally often.
pub fn rounds<S>(
    state: &mut S,
    engines: usize,
    rounds: usize,
    mut prepare: impl FnMut(&mut S),
    mut turn: impl FnMut(&mut S, usize) -> Turn,
) -> Vec<Samples> {
    let mut samples = vec![Samples::default(); engines];
    for round in 0..=rounds {
        prepare(state);
        for place in 0..engines {
            let engine = engine_at(place, round, engines);
            let turn = turn(state, engine);
            if round > 0 {
                samples[engine].push(turn.time.as_nanos() as f64 / turn.units.max(1) as f64);
            }
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles() {
        let mut samples = Samples::default();
        assert!(samples.is_empty() && samples.median() == 0.0);
        [5.0, 1.0, 9.0].into_iter().for_each(|value| samples.push(value));
        assert_eq!(
            (samples.median(), samples.quantile(0.0), samples.quantile(1.0)),
            (5.0, 1.0, 9.0)
        );
        let mut base = Samples::default();
        [10.0, 0.0, 3.0].into_iter().for_each(|value| base.push(value));
        assert_eq!(samples.over(&base).0, [0.5, 3.0]);
    }

    /// An engine must not always run after one with which it shares tables.
    #[test]
    fn every_engine_comes_after_every_other_equally_often() {
        for engines in 1..=9 {
            let mut after = vec![vec![0; engines]; engines];
            let mut first = vec![0; engines];
            for round in 0..2 * engines {
                let order: Vec<usize> =
                    (0..engines).map(|place| engine_at(place, round, engines)).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..engines), "{engines}: {order:?}");
                order.windows(2).for_each(|pair| after[pair[0]][pair[1]] += 1);
                first[order[0]] += 1;
            }
            assert!(first.iter().all(|&count| count == 2), "{engines}: {first:?}");
            for (one, row) in after.iter().enumerate() {
                let others = row.iter().enumerate().filter(|(other, _)| *other != one);
                assert!(others.into_iter().all(|(_, &count)| count == 2), "{engines}: {after:?}");
            }
        }
    }

    #[test]
    fn every_engine_has_its_turn_in_every_round() {
        let mut turns = Vec::new();
        let all = rounds(
            &mut turns,
            2,
            2,
            |_| {},
            |turns, engine| {
                turns.push(engine);
                Turn { time: Duration::from_nanos(10 * (engine as u64 + 1)), units: 10 }
            },
        );
        assert_eq!(turns, [0, 1, 1, 0, 0, 1]);
        assert_eq!((all[0].len(), all[0].median(), all[1].median()), (2, 1.0, 2.0));
    }
}
