//! Random numbers from a seed: a failing test prints its seed and can be repeated.
//!
//! Source: SplitMix64 (Steele, Lea, Flood 2014).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A generator; the same seed gives the same numbers everywhere.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Creates a generator with the seed in the environment variable `FYKE_SEED`, else this one.
    pub fn seeded(default: u64) -> (Random, u64) {
        let seed = std::env::var("FYKE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(default);
        (Random::new(seed), seed)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.number() % limit as u64) as usize }
    }

    /// True once in `one_in` times.
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// Returns a random element.
    ///
    /// # Panics
    /// When there is no element.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Runs the rounds of a test with random input: one with the seed of [`Random::seeded`], or, if the environment
/// variable `FYKE_FUZZ_SECONDS` is set, as many as fit into that time, each with a different seed. A round that panics
/// prints its seed.
pub fn rounds(default: u64, mut round: impl FnMut(&mut Random)) {
    let seconds = std::env::var("FYKE_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let by_clock = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_nanos() as u64
    };
    let default = if seconds.is_some() { by_clock() } else { default };
    let (_, first) = Random::seeded(default);
    println!("seed {first}");
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    for number in 0.. {
        let replay = Replay(first.wrapping_add(number));
        round(&mut Random::new(replay.0));
        if Instant::now() >= end {
            println!("{} rounds", number + 1);
            return;
        }
    }
}

/// Prints how to repeat a round if it panics.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this round again: FYKE_SEED={} (and no FYKE_FUZZ_SECONDS)", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.number(), random.number()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!((0..1000).all(|_| Random::new(3).below(10) < 10));
    }
}
