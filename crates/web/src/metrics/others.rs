//! Sums of what has no samples of its own.
//!
//! A counter must not fall: a monitoring system takes that for a new start, and adds the whole value to a rate. The sum
//! of the others falls when one of them becomes one of the busiest, or is removed. So this adds up what each counted
//! while it was among the others, from one answer to the next. Memory: a number for each filter and reader.

use fyke_control::Instance;
use std::collections::HashMap;

/// An id, and the place of what has none.
pub type Key = (u64, usize);

/// Counts at the last answer.
#[derive(Debug, Default)]
pub struct Others {
    sums: HashMap<(u32, &'static str), Sum>,
}

#[derive(Debug, Default)]
struct Sum {
    sum: u64,
    last: HashMap<Key, u64>,
}

impl Others {
    /// Forgets the fykes that have ended.
    pub(super) fn forget_all_but(&mut self, running: &[Instance]) {
        self.sums.retain(|(pid, _), _| running.iter().any(|instance| instance.pid == *pid));
    }

    /// The sum of the others' counts of a family; `None` if there are no others.
    pub(super) fn sum(
        &mut self,
        pid: u32,
        family: &'static str,
        first: &[(Key, u64)],
        rest: &[(Key, u64)],
    ) -> Option<u64> {
        if rest.is_empty() {
            self.sums.remove(&(pid, family));
            return None;
        }
        let Sum { sum, last } = self.sums.entry((pid, family)).or_default();
        for (key, count) in rest {
            let before = last.get(key).copied().unwrap_or(0);
            *sum = sum.saturating_add(count.saturating_sub(before));
        }
        *last = first.iter().chain(rest).copied().collect();
        Some(*sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_does_not_fall_when_the_busiest_change() {
        let mut others = Others::default();
        let mut sum = |first: [(u64, u64); 1], rest: &[(u64, u64)]| {
            let of =
                |part: &[(u64, u64)]| part.iter().map(|&(id, n)| ((id, 0), n)).collect::<Vec<_>>();
            others.sum(7, "frames", &of(&first), &of(rest))
        };
        assert_eq!(sum([(1, 100)], &[(2, 90), (3, 5)]), Some(95));
        // The second overtakes the first, which counts one more.
        assert_eq!(sum([(2, 150)], &[(1, 101), (3, 6)]), Some(97));
        // One is removed.
        assert_eq!(sum([(2, 150)], &[(3, 6)]), Some(97));
        assert_eq!(sum([(2, 150)], &[]), None);
    }
}
