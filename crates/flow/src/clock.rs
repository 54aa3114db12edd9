//! Time according to the packets: it never goes back, and a single wrong timestamp does not expire
//! everything.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_flow as flow; }
//! use fyke::flow::Clock;
//!
//! let mut clock = Clock::default();
//! assert_eq!(clock.advance(5_000), 5_000);
//! assert_eq!(clock.advance(4_000), 5_000); // never goes back
//! ```

use std::time::{Duration, SystemTime};

/// Largest age of a frame on arrival in a live capture.
const LIVE_NS: u64 = 5_000_000_000;

/// The system's clock, in nanoseconds since 1970.
pub fn system_ns() -> u64 {
    system_before_ns(Duration::ZERO)
}

/// The time that is this long before the system's clock, in nanoseconds since 1970.
pub fn system_before_ns(before: Duration) -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.saturating_sub(before).as_nanos()).unwrap_or(u64::MAX)
}

/// True if a frame is so recent by the system's clock that it comes from a live capture.
pub fn is_live(timestamp_ns: u64) -> bool {
    system_ns().checked_sub(timestamp_ns).is_some_and(|age_ns| age_ns <= LIVE_NS)
}

/// A time as RFC 3339 has it, in UTC, with nanoseconds: `2026-11-28T14:20:10.000000000Z`.
pub fn date_time(time_ns: u64) -> String {
    let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let (day, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0; years begin in March, so that the leap day is the last of one.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{rest:09}Z")
}

/// Largest step forward that a single packet may cause, in nanoseconds; a larger step is taken only
/// if the next packet is as late or later.
const LEAP_NS: u64 = 3_600_000_000_000;

/// The clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    now_ns: u64,
    /// The timestamp of the last packet, if it was too far ahead.
    leap_ns: Option<u64>,
    started: bool,
}

impl Clock {
    /// Returns the time after a packet with this timestamp.
    pub fn advance(&mut self, timestamp_ns: u64) -> u64 {
        if !self.started {
            self.started = true;
            self.now_ns = timestamp_ns;
            return self.now_ns;
        }
        if timestamp_ns <= self.now_ns.saturating_add(LEAP_NS) {
            self.leap_ns = None;
            self.now_ns = self.now_ns.max(timestamp_ns);
            return self.now_ns;
        }
        match self.leap_ns {
            Some(leap) if timestamp_ns >= leap => {
                self.leap_ns = None;
                self.now_ns = timestamp_ns;
            }
            _ => self.leap_ns = Some(timestamp_ns),
        }
        self.now_ns
    }

    /// The current time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000007Z"),
            (951_825_600, "2000-02-29T12:00:00.000000007Z"),
            (1_796_081_400, "2026-11-30T23:30:00.000000007Z"),
        ] {
            assert_eq!(date_time(seconds * 1_000_000_000 + 7), text);
        }
    }

    #[test]
    fn live_frames_are_as_recent_as_the_system() {
        let now_ns = system_ns();
        assert!(is_live(now_ns) && is_live(system_before_ns(Duration::from_secs(4))));
        assert!(!is_live(now_ns - 6_000_000_000) && !is_live(now_ns + 60_000_000_000));
    }

    #[test]
    fn time_goes_forward_and_leaps_need_a_witness() {
        let mut clock = Clock::default();
        assert_eq!(clock.advance(1000), 1000);
        assert_eq!(clock.advance(900), 1000);
        assert_eq!(clock.advance(u64::MAX), 1000);
        assert_eq!(clock.advance(1100), 1100);
        assert_eq!(clock.advance(9 * LEAP_NS), 1100);
        assert_eq!(clock.advance(9 * LEAP_NS + 5), 9 * LEAP_NS + 5);
    }
}
