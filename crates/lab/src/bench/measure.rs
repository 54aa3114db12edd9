//! Rounds in which every engine has its turn, and medians.
//!
//! Interleaving spreads whatever else the machine does over all engines, so ratios hold where absolute figures
//! waver. Each engine runs after each other one equally often, because the one before it leaves tables and code in the
//! caches that a twin finds warm. The first round warms up and is not counted.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Measures one turn. A long one (a millisecond and more) by the time that the thread had the processor, so that what
/// else runs on the machine does not count; asking for that costs a system call, which is too much for short turns.
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

/// Processor time of all threads of this process so far; zero when the system does not tell.
pub fn process_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// What was measured for one engine, one value a round.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These values divided by those of the same rounds.
    pub fn over(&self, base: &Samples) -> Samples {
        let pairs = self.0.iter().zip(&base.0).filter(|&(_, &base)| base > 0.0);
        Samples(pairs.map(|(value, base)| value / base).collect())
    }

    /// The median; 0 without values.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The value that this part of all values does not exceed (nearest rank); 0 without values.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let rank = (part * last as f64).round() as usize;
        sorted.get(rank.min(last)).copied().unwrap_or(0.0)
    }
}

/// Time that one turn took, and how many units of work it did.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The time.
    pub time: Duration,
    /// Frames, edits, or whatever the time is divided by.
    pub units: usize,
}

/// Which engine has its turn at this place of a round. Each engine comes to every place once in so many rounds as there
/// are engines, and directly after each other one equally often in twice as many (Williams 1949), so nobody always
/// finds what a certain other one has left in the caches.
fn engine_at(place: usize, round: usize, engines: usize) -> usize {
    // 0, n - 1, 1, n - 2, …: no two neighbours are equally far apart. An odd number needs it backwards, too.
    let backwards = !engines.is_multiple_of(2) && !(round / engines).is_multiple_of(2);
    let place = if backwards { engines - 1 - place } else { place };
    let first = if place.is_multiple_of(2) { place / 2 } else { engines - place.div_ceil(2) };
    (first + round) % engines
}

/// Runs `rounds` rounds (and one to warm up) of all `engines`; gives each engine's nanoseconds per unit.
///
/// `prepare` runs before every round, outside the measured time; `turn` runs an engine and measures itself.
/// The order of the engines changes from round to round, so that each comes after each other one equally often.
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

    /// A twin that shares tables with another engine must not always run after it.
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
