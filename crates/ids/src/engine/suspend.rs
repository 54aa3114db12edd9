//! Rules that take too long: after some verifications at a limit, a rule is left out for a while, so that one rule, by
//! mistake or by a hostile author, does not take the time of all others. If all rules together leave a verification
//! less than one may use, such verifications count by their work. The while doubles if it happens again, and what is
//! left out is counted. Source of the idea: `latency.rule.suspend` of Snort 3.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Verifications at a limit after which a rule is left out for the first time.
pub const STRIKES: u32 = 8;
/// Work at limits that counts as one verification.
const STRIKE: u64 = 1 << 14;
/// First time for which it is left out, in nanoseconds, and the longest.
const FIRST_NS: u64 = 1_000_000_000;
const LONGEST_NS: u64 = 64 * FIRST_NS;

/// Verifications at a limit, and the time for which the rule is left out. Written by one engine; atomic as rules are
/// shared with clients.
#[derive(Debug, Default)]
pub struct Suspension {
    strikes: AtomicU32,
    work: AtomicU64,
    until_ns: AtomicU64,
    wait_ns: AtomicU64,
}

impl Suspension {
    /// True if the rule is left out now.
    pub fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns.load(Ordering::Relaxed)
    }

    /// Counts a verification at a limit with its work; true if the rule is left out from now on. Once it was, one is
    /// enough, unless it has behaved for as long as it was left out.
    pub fn strike(&self, now_ns: u64, used: u64) -> bool {
        let work = self.work.load(Ordering::Relaxed).saturating_add(used);
        self.work.store(if work < STRIKE { work } else { 0 }, Ordering::Relaxed);
        if work < STRIKE {
            return false;
        }
        let (until_ns, wait_ns) =
            (self.until_ns.load(Ordering::Relaxed), self.wait_ns.load(Ordering::Relaxed));
        let behaved = wait_ns > 0 && now_ns.saturating_sub(until_ns) > wait_ns;
        if behaved {
            self.wait_ns.store(0, Ordering::Relaxed);
            self.strikes.store(0, Ordering::Relaxed);
        }
        let wait_ns = if behaved { 0 } else { wait_ns };
        let strikes = self.strikes.fetch_add(1, Ordering::Relaxed) + 1;
        if wait_ns == 0 && strikes < STRIKES {
            return false;
        }
        let wait_ns = (2 * wait_ns).clamp(FIRST_NS, LONGEST_NS);
        self.wait_ns.store(wait_ns, Ordering::Relaxed);
        self.until_ns.store(now_ns.saturating_add(wait_ns), Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_at_its_limit_is_left_out_longer_each_time() {
        const S: u64 = 1_000_000_000;
        let one = Suspension::default();
        let struck: Vec<bool> = (0..STRIKES).map(|_| one.strike(0, STRIKE)).collect();
        assert_eq!(struck.iter().filter(|struck| **struck).count(), 1);
        assert!(one.holds(S - 1) && !one.holds(S));
        assert!(one.strike(S, STRIKE) && one.holds(3 * S - 1) && !one.holds(3 * S));
        for _ in 0..20 {
            let end_ns = one.until_ns.load(Ordering::Relaxed);
            assert!(one.strike(end_ns, STRIKE));
        }
        let end_ns = one.until_ns.load(Ordering::Relaxed);
        assert!(one.holds(end_ns - LONGEST_NS + 1) && !one.holds(end_ns));
        // Small parts are added up.
        assert!(!one.strike(end_ns, STRIKE - 1) && one.strike(end_ns, 1));
        let end_ns = one.until_ns.load(Ordering::Relaxed);
        // After a time without limits, it begins anew.
        assert!(!one.strike(end_ns + LONGEST_NS + 1, STRIKE));
    }
}
