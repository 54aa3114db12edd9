//! Records of TCP connections: messages with a length, or lines.
//!
//! A protocol gives a function that finds the end of the first record. After a gap, or bytes that are no record,
//! reading begins again with the next piece of the stream. Memory: [`RECORD_LIMIT`] bytes for each direction of a
//! connection, [`TOTAL_LIMIT`] in all. Cost: O(bytes).

use crate::segment::Segment;
use fyke_flow::streams::{self, Piece, Policy, Streams};
use std::collections::HashMap;

/// Longest record; a longer one is skipped.
pub(crate) const RECORD_LIMIT: usize = 8 << 10;
/// Most bytes of unfinished records of all connections.
const TOTAL_LIMIT: usize = 4 << 20;
/// Most connections.
const CONNECTIONS: usize = 4_096;

/// Result of a look at the first bytes that are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// Its end has not arrived.
    Incomplete,
    /// It has this length, at least 1.
    Whole(usize),
    /// These bytes are no record.
    Foreign,
}

/// The connections.
#[derive(Debug)]
pub(crate) struct RecordStreams {
    streams: Streams,
    unfinished: Unfinished,
}

/// The unfinished records, by connection and direction.
#[derive(Debug)]
struct Unfinished {
    directions: HashMap<(u64, bool), Vec<u8>>,
    total: usize,
    find: fn(&[u8]) -> Record,
    long: u64,
}

impl RecordStreams {
    pub(crate) fn new(most: usize, find: fn(&[u8]) -> Record) -> RecordStreams {
        let limits = streams::Limits {
            connections: most.min(CONNECTIONS),
            direction_bytes: 64 << 10,
            bytes: TOTAL_LIMIT,
            ..streams::Limits::default()
        };
        let unfinished = Unfinished { directions: HashMap::new(), total: 0, find, long: 0 };
        RecordStreams { streams: Streams::new(limits, Policy::First), unfinished }
    }

    /// Takes a segment; returns copies of the records that it completes.
    pub(crate) fn segment(&mut self, segment: &Segment<'_>, now_ns: u64) -> Vec<Vec<u8>> {
        let (unfinished, mut whole) = (&mut self.unfinished, Vec::new());
        self.streams.segment(segment, now_ns, &mut |piece| unfinished.piece(&piece, &mut whole));
        whole
    }

    /// Forgets connections that are silent.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        let unfinished = &mut self.unfinished;
        self.streams.expire(now_ns, &mut |piece| unfinished.piece(&piece, &mut Vec::new()));
    }

    /// Number of records that were too long, or had no room.
    pub(crate) fn long(&self) -> u64 {
        self.unfinished.long
    }
}

impl Unfinished {
    fn piece(&mut self, piece: &Piece<'_>, whole: &mut Vec<Vec<u8>>) {
        let key = (piece.connection, piece.forward);
        let mut bytes = self.directions.remove(&key).unwrap_or_default();
        self.total -= bytes.len();
        if piece.bytes.is_empty() {
            return;
        }
        if piece.missing > 0 {
            bytes.clear();
        }
        bytes.extend_from_slice(piece.bytes);
        let mut at = 0;
        while at < bytes.len() {
            match (self.find)(&bytes[at..]) {
                Record::Whole(length @ 1..) if length <= bytes.len() - at => {
                    whole.push(bytes[at..at + length].to_vec());
                    at += length;
                }
                Record::Foreign | Record::Whole(0) => at = bytes.len(),
                Record::Whole(_) | Record::Incomplete => break,
            }
        }
        bytes.drain(..at);
        if bytes.len() > RECORD_LIMIT || self.total + bytes.len() > TOTAL_LIMIT {
            self.long += 1;
            bytes.clear();
        }
        if !bytes.is_empty() {
            self.total += bytes.len();
            self.directions.insert(key, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: &[u8]) -> Record {
        match bytes.iter().position(|&byte| byte == b'\n') {
            _ if bytes[0] == b'#' => Record::Foreign,
            Some(end) => Record::Whole(end + 1),
            None => Record::Incomplete,
        }
    }

    fn run(pieces: &[(&[u8], u64)]) -> (Vec<Vec<u8>>, Unfinished) {
        let mut unfinished =
            Unfinished { directions: HashMap::new(), total: 0, find: line, long: 0 };
        let mut whole = Vec::new();
        for (bytes, missing) in pieces {
            let (flow, connection, forward, offset) = (1, 1, true, 0);
            let missing = *missing;
            let piece = Piece { flow, connection, forward, missing, offset, bytes };
            unfinished.piece(&piece, &mut whole);
        }
        (whole, unfinished)
    }

    #[test]
    fn records_may_be_cut_anywhere_and_gaps_drop_the_one_they_are_in() {
        let text = b"one\ntwo\nthree\n";
        for size in 1..text.len() {
            let pieces: Vec<_> = text.chunks(size).map(|piece| (piece, 0)).collect();
            let (whole, unfinished) = run(&pieces);
            assert_eq!(whole, [&b"one\n"[..], b"two\n", b"three\n"], "{size}");
            assert_eq!(unfinished.total, 0);
        }
        let (whole, unfinished) = run(&[(b"on", 0), (b"wo\n", 3), (b"#x\ny\n", 0), (b"z", 0)]);
        assert_eq!((whole, unfinished.total), (vec![b"wo\n".to_vec()], 1));
        let (whole, unfinished) = run(&[(&[b'x'; RECORD_LIMIT + 1], 0), (b"a\n", 0)]);
        assert_eq!((whole, unfinished.long), (vec![b"a\n".to_vec()], 1));
    }
}
