//! The ports of the rows that recent edits have added, so that look-back evaluates the frames with these ports only.
//!
//! Memory: at most [`EDITS`] edits with [`PORTS`] ports each. An edit with more, or one that is not known here, has no
//! entry; then every frame that is still held must be evaluated.

use std::collections::VecDeque;

/// Most edits that are remembered.
const EDITS: usize = 1_024;
/// Most ports of an edit.
const PORTS: usize = 256;

/// A row of a tracker: what lower spaces must let pass from an edit on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Filter text that accepts all frames of the row.
    pub text: String,
    /// If known: a TCP or UDP port that each of these frames has as source or destination.
    pub port: Option<u16>,
}

/// The recent edits, by epoch.
#[derive(Debug, Default)]
pub(super) struct News {
    edits: VecDeque<(u64, Vec<u16>)>,
}

impl News {
    /// Records that an edit has only added these rows, and removed others.
    pub(super) fn add(&mut self, epoch: u64, rows: &[Row]) {
        if rows.len() > PORTS {
            return;
        }
        let Some(ports) = rows.iter().map(|row| row.port).collect::<Option<Vec<u16>>>() else {
            return;
        };
        if self.edits.len() >= EDITS {
            self.edits.pop_front();
        }
        self.edits.push_back((epoch, ports));
    }

    /// The ports of rows added after epoch `from` and up to `to`; `None` if an edit between them is not known.
    pub(super) fn between(&self, from: u64, to: u64) -> Option<Vec<u16>> {
        let count = to.checked_sub(from)?;
        let begin = self.edits.partition_point(|(epoch, _)| *epoch <= from);
        let end = self.edits.partition_point(|(epoch, _)| *epoch <= to);
        if (end - begin) as u64 != count {
            return None;
        }
        let mut ports: Vec<u16> =
            self.edits.range(begin..end).flat_map(|(_, ports)| ports).copied().collect();
        ports.sort_unstable();
        ports.dedup();
        Some(ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(ports: &[u16]) -> Vec<Row> {
        let row = |port: &u16| Row { text: format!("udp port {port}"), port: Some(*port) };
        ports.iter().map(row).collect()
    }

    #[test]
    fn ports_are_known_only_if_every_edit_is() {
        let mut news = News::default();
        news.add(5, &rows(&[7, 8]));
        news.add(6, &[]);
        news.add(7, &rows(&[8, 3]));
        // 8 is an edit of a text.
        news.add(9, &rows(&[1]));
        assert_eq!(news.between(4, 7), Some(vec![3, 7, 8]));
        assert_eq!(news.between(5, 6), Some(Vec::new()));
        assert_eq!(news.between(9, 9), Some(Vec::new()));
        for (from, to) in [(3, 7), (7, 9), (6, 8), (9, 10), (9, 8)] {
            assert_eq!(news.between(from, to), None, "{from} {to}");
        }
    }

    #[test]
    fn long_and_many_edits_are_forgotten() {
        let mut news = News::default();
        news.add(1, &rows(&[1; PORTS + 1]));
        news.add(2, &[Row { text: "proto gre".to_owned(), port: None }]);
        assert_eq!((news.between(0, 1), news.between(1, 2)), (None, None));
        (3..3 + EDITS as u64 + 1).for_each(|epoch| news.add(epoch, &rows(&[epoch as u16])));
        assert_eq!(news.edits.len(), EDITS);
        assert_eq!((news.between(2, 3), news.between(3, 4)), (None, Some(vec![4])));
    }
}
