//! Ranges of the fragments of a packet as Linux keeps them since 4.19 (`net/ipv4/inet_fragment.c`): a fragment that
//! begins at the end of the one with the highest end continues its run, any other one begins a run.

/// Result for a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is kept.
    New,
    /// It has nothing new, and is ignored.
    Repeated,
    /// It overlaps others, or contradicts the length: the packet is discarded.
    Discarded,
}

/// Runs of fragments, which do not overlap. Memory: 16 bytes for each.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// First offset and end, in the order of offsets.
    runs: Vec<(u64, u64)>,
    /// Highest end so far.
    len: u64,
    /// True if the last fragment is there.
    has_last: bool,
}

impl Runs {
    /// Takes a fragment's range; O(log n) and, if it arrives out of order, a move of the runs after it.
    pub fn add(&mut self, (start, end): (u64, u64), more: bool) -> Verdict {
        let contradicts = match more {
            false => end < self.len || self.has_last && end != self.len,
            true => end > self.len && self.has_last,
        };
        if contradicts || start == end {
            return Verdict::Discarded;
        }
        self.has_last |= !more;
        self.len = self.len.max(end);
        if let Some(last) = self.runs.last_mut()
            && last.1 < end
        {
            if start < last.1 {
                return Verdict::Discarded;
            }
            match start == last.1 {
                true => last.1 = end,
                false => self.runs.push((start, end)),
            }
            return Verdict::New;
        }
        let after = self.runs.partition_point(|run| run.1 <= start);
        match self.runs.get(after) {
            Some(run) if run.0 <= start && end <= run.1 => Verdict::Repeated,
            Some(run) if run.0 < end => Verdict::Discarded,
            _ => {
                self.runs.insert(after, (start, end));
                Verdict::New
            }
        }
    }
}
