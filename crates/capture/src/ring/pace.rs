//! Rests of a reader while the kernel fills blocks fast: one wake-up for many blocks in place of one for each.
//!
//! A wake-up costs as much as some hundred frames, for the reader and for the processor that fills the blocks. A rest
//! is so short that the ring is half full at most when it ends, even if frames come [`BURST`] times as fast as before,
//! and half the time-out of a block at most, so that frames do not wait longer than in a block that is not full.
//!
//! PERF: a capture that writes every frame to `/dev/null` takes 61 ns of its process a frame in place of 82 (`fyke
//! bench live --case all-null`: 300,000 frames of 100 bytes a second, a veth pair).

use std::time::{Duration, Instant};

/// Growth of the rate for which a rest leaves room.
const BURST: u32 = 8;
/// Shortest rest: the system's clock for waits has milliseconds.
const SHORTEST: Duration = Duration::from_millis(2);
/// Fewest blocks that a rest must save a wake-up for.
const FEWEST: u32 = 2;

/// Speed at which blocks come, measured between two moments at which none was ready.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    /// Blocks since then.
    blocks: u32,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { since: now, blocks: 0 }
    }

    /// Counts a block.
    pub(super) fn count(&mut self) {
        self.blocks = self.blocks.saturating_add(1);
    }

    /// Returns the time to rest when no block is ready; `None` if blocks come too slowly, or too fast. `free` is the
    /// number of blocks that the kernel may fill, `retire` the time-out of a block.
    pub(super) fn rest(&mut self, now: Instant, free: u32, retire: Duration) -> Option<Duration> {
        let Pace { since, blocks } = std::mem::replace(self, Pace::new(now));
        let of_block = now.saturating_duration_since(since).checked_div(blocks)?;
        let rest = (of_block * (free / (2 * BURST))).min(retire / 2);
        (rest >= SHORTEST && rest >= of_block * FEWEST).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The rest after `blocks` blocks in `time`, with 256 free ones and a time-out of 20 ms.
    fn rest(blocks: u32, time: Duration) -> Option<Duration> {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        (0..blocks).for_each(|_| pace.count());
        let rest = pace.rest(begun + time, 256, 20 * MS);
        assert_eq!(pace.rest(begun + 2 * time, 256, 20 * MS), None, "no block since");
        rest
    }

    #[test]
    fn a_rest_is_as_long_as_the_ring_and_the_time_out_allow() {
        assert_eq!(rest(4, 10 * MS), Some(10 * MS), "half the time-out");
        assert_eq!(rest(40, 10 * MS), Some(4 * MS), "a sixteenth of the ring");
        assert_eq!(rest(1_000, 10 * MS), None, "too short to wait for");
        assert_eq!(rest(1, 20 * MS), None, "each block is filled by its time-out");
        assert_eq!(rest(0, 10 * MS), None);
        assert_eq!(rest(1, Duration::ZERO), None);
    }

    #[test]
    fn a_small_ring_has_no_rests() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        (0..10).for_each(|_| pace.count());
        assert_eq!(pace.rest(begun + 100 * MS, 31, 160 * MS), None);
    }
}
