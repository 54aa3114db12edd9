//! Random numbers of generated traffic: the same seed gives the same traffic on every machine.

/// Random numbers with a seed (SplitMix64: Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator; the same seed gives the same numbers on every machine.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns any 64-bit number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.number() % limit as u64) as usize }
    }

    /// Shuffles values.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }

    /// Returns an index below `limit`; small ones are far more frequent.
    pub(crate) fn skewed(&mut self, limit: usize) -> usize {
        let unit = (self.number() >> 11) as f64 / (1u64 << 53) as f64;
        ((limit as f64 * unit * unit * unit) as usize).min(limit.saturating_sub(1))
    }
}
