//! Numbers that `fyke` prints at the end of a capture.

/// The sum of a capture: `seen = accepted + rejected + taken + lost`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub seen: u64,
    pub accepted: u64,
    pub rejected: u64,
    pub taken: u64,
    /// Lost frames, by reason.
    pub lost: Vec<(String, u64)>,
}

impl Sum {
    /// Lost frames, for all reasons.
    pub(super) fn lost(&self) -> u64 {
        self.lost.iter().map(|(_, count)| count).sum()
    }

    /// Frames seen that have no outcome, or outcomes without a frame; 0 if the sum is right.
    pub(super) fn is_off_by(&self) -> u64 {
        self.seen.abs_diff(self.accepted + self.rejected + self.taken + self.lost())
    }
}

/// Reads the sum; `None` if the text has none.
pub(super) fn sum(text: &str) -> Option<Sum> {
    let is_sum = |line: &&str| line.contains(" seen") && line.contains(" accepted");
    let (left, right) = text.lines().find(is_sum)?.split(';').next()?.split_once(" = ")?;
    let seen = left.split(" seen").next()?.rsplit(' ').next()?.parse().ok()?;
    let mut sum = Sum { seen, ..Sum::default() };
    for term in right.split(" + ") {
        let (count, what) = term.split_once(' ')?;
        let count = count.parse().ok()?;
        match what.split(' ').next()? {
            "accepted" => sum.accepted = count,
            "rejected" => sum.rejected = count,
            "taken" => sum.taken = count,
            "lost" if count > 0 => {
                let why = what.trim_start_matches("lost").trim_matches([' ', '(', ')']);
                sum.lost.push((why.to_owned(), count));
            }
            "lost" => {}
            _ => return None,
        }
    }
    Some(sum)
}

/// The times of a tracker's edits in microseconds: median, 99th percentile.
pub(super) fn edits_us(text: &str) -> Option<[f64; 2]> {
    let line = text.lines().find_map(|line| line.strip_prefix("filter edits took "))?;
    let mut numbers = line.split(' ').filter_map(|word| word.parse::<f64>().ok());
    Some([numbers.next()?, numbers.next()?])
}

/// Announced connections that the filter of a tracker refused.
pub(super) fn refused(text: &str) -> u64 {
    let of = |line: &str| line.split("the filter refused ").nth(1)?.split(' ').next()?.parse().ok();
    text.lines().find_map(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_times_are_read() {
        let text = "listening on x\n\
                    fyke: the filter refused 2 announced connections\n\
                    filter edits took 3.5 us (median), 20.0 us (99th percentile)\n\
                    21 seen = 9 accepted (2 by look-back) + 5 rejected + 1 taken + 4 lost (ring) + \
                    2 lost (writer); 3 edits\n";
        let found = sum(text).unwrap();
        assert_eq!((found.seen, found.accepted, found.rejected, found.taken), (21, 9, 5, 1));
        assert_eq!(found.lost, [("ring".to_owned(), 4), ("writer".to_owned(), 2)]);
        assert_eq!((found.lost(), found.is_off_by()), (6, 0));
        assert_eq!((edits_us(text), refused(text)), (Some([3.5, 20.0]), 2));
        let by_fyke =
            "7 seen by fyke = 7 accepted + 1 rejected + 0 lost; rejected in the kernel: 9";
        let found = sum(by_fyke).unwrap();
        assert_eq!((found.lost(), found.is_off_by()), (0, 1));
        assert_eq!((sum("nothing"), edits_us("nothing"), refused("nothing")), (None, None, 0));
    }
}
