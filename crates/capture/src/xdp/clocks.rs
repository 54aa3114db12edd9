//! Times of frames: by the monotonic clock of the program, or by the device's own clock if that agrees.

use crate::sys::time;
use std::time::{SystemTime, UNIX_EPOCH};

/// Largest difference between the device's time of a frame and the system's at the program, up to which the device's
/// is used: a clock that is not set (by phc2sys) is farther off, and one of International Atomic Time is by 37 s.
pub const CLOCKS_AGREE_NS: u64 = 10_000_000;

/// Difference from which on the system's clock was set.
const CLOCK_IS_SET_NS: u64 = 1_000_000;

/// The device's time of a frame if its clock agrees with the system's, else the system's.
pub(super) fn time_of(system_ns: u64, device_ns: Option<u64>) -> u64 {
    device_ns.filter(|ns| ns.abs_diff(system_ns) <= CLOCKS_AGREE_NS).unwrap_or(system_ns)
}

/// The time by which the system's clock is ahead of the monotonic one. Measured again and again it varies with the time
/// between two readings, which would put frames out of order; both run equally fast, so it stays until the system's
/// clock is set.
#[derive(Debug, Default)]
pub(super) struct Clocks(u64);

impl Clocks {
    /// Nanoseconds to add to the monotonic clock.
    pub fn now(&mut self) -> u64 {
        let (before_ns, system_ns) = (time::monotonic_ns(), now_ns());
        self.adjust(before_ns, system_ns, time::monotonic_ns())
    }

    /// The same by three readings, of which the first and the last are of the monotonic clock.
    fn adjust(&mut self, before_ns: u64, system_ns: u64, after_ns: u64) -> u64 {
        let ahead_ns = system_ns.saturating_sub(before_ns);
        let pause_ns = after_ns.saturating_sub(before_ns);
        if self.0 == 0 || ahead_ns.abs_diff(self.0) > CLOCK_IS_SET_NS.saturating_add(pause_ns) {
            self.0 = ahead_ns;
        }
        self.0
    }
}

/// The time of the system, in nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_order_until_the_clock_is_set() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.adjust(1_000, 5_000_001_000, 1_050), 5_000_000_000);
        // Read later than before; and after a long pause between the readings.
        assert_eq!(clocks.adjust(2_000, 5_000_060_000, 2_050), 5_000_000_000);
        assert_eq!(clocks.adjust(3_000, 5_009_000_000, 9_003_000), 5_000_000_000);
        assert_eq!(clocks.adjust(4_000, 7_000_004_000, 4_050), 7_000_000_000);
        assert_eq!(clocks.adjust(5_000, 6_000_005_000, 5_050), 6_000_000_000);
    }

    #[test]
    fn the_devices_time_is_used_if_its_clock_agrees() {
        let system_ns = 1_700_000_000_000_000_000;
        assert_eq!(time_of(system_ns, None), system_ns);
        assert_eq!(time_of(system_ns, Some(system_ns - 2_000)), system_ns - 2_000);
        // International Atomic Time, and a clock that counts from the start of the machine.
        assert_eq!(time_of(system_ns, Some(system_ns + 37_000_000_000)), system_ns);
        assert_eq!(time_of(system_ns, Some(5_000_000_000)), system_ns);
    }
}
