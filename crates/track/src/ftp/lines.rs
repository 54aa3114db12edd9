//! One direction of a control connection: turns TCP segments into text lines, each line once.
//!
//! Segments are ordered by sequence number. Repeated bytes are skipped. An early segment is *peeked
//! at* at once, because the data connection will not wait (or the missing segment may never arrive:
//! the capture lost it), and is held until the gap is closed; then only the line across the gap is
//! new. If too much is held, the gap is skipped. Lines end with LF, a CR before it is dropped; a
//! line longer than [`LINE_LIMIT`] is returned truncated, when its end arrives.
//!
//! Memory: at most `LINE_LIMIT + HELD_BYTES` bytes. Cost: O(bytes).

/// Longest line that is kept. Relevant replies and commands are under 100 bytes.
pub(super) const LINE_LIMIT: usize = 512;
/// Most bytes held after a gap.
const HELD_BYTES: usize = 2_048;
/// Most segments held after a gap.
const HELD_SEGMENTS: usize = 8;
/// A segment further ahead than this belongs to another connection.
const WINDOW: u32 = 1 << 30;

/// A line without its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) bytes: &'a [u8],
    /// All bytes before it have been seen: it may be parsed as part of a multi-line reply.
    pub(super) in_order: bool,
}

/// Faults in the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) repeated_segments: u64,
    pub(super) early_segments: u64,
    pub(super) gaps: u64,
    pub(super) long_lines: u64,
}

/// The state of one direction.
#[derive(Debug, Default)]
pub(super) struct Lines {
    next: Option<u32>,
    partial: Vec<u8>,
    cut_off: bool,
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    sequence: u32,
    bytes: Vec<u8>,
}

impl Lines {
    /// Starts the connection: the first byte will have number `sequence + 1`.
    pub(super) fn start(&mut self, sequence: u32) {
        *self = Lines { next: Some(sequence.wrapping_add(1)), ..Lines::default() };
    }

    /// True if a segment with this number continues the direction, false if it is a repetition.
    pub(super) fn is_new(&self, sequence: u32) -> bool {
        self.next.is_none_or(|next| sequence.wrapping_sub(next) < WINDOW)
    }

    /// Takes a segment and passes on the lines that it completes. `payload_len` is its length on
    /// the wire; the capture may have less.
    pub(super) fn segment(
        &mut self,
        sequence: u32,
        payload: &[u8],
        payload_len: u32,
        faults: &mut Faults,
        line: &mut dyn FnMut(Line),
    ) {
        if payload_len == 0 {
            return;
        }
        let next = *self.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(next);
        if ahead != 0 && ahead < WINDOW {
            faults.early_segments += 1;
            self.hold(sequence, payload, faults, line);
            return;
        }
        let distance = next.wrapping_sub(sequence);
        if distance >= WINDOW {
            // The segment is of another connection, or follows a very long loss: restart.
            faults.gaps += 1;
            *self = Lines { next: Some(sequence), ..Lines::default() };
        } else if distance >= payload_len {
            faults.repeated_segments += 1;
            return;
        }
        let skip = self.next.map_or(0, |next| next.wrapping_sub(sequence)) as usize;
        self.next = Some(sequence.wrapping_add(payload_len));
        self.feed(payload.get(skip..).unwrap_or_default(), false, faults, line);
        if (payload.len() as u64) < u64::from(payload_len) {
            self.forget_line(faults);
        }
        self.drain(faults, line);
    }

    /// Cuts bytes into lines. If `peeked`, only the line that was begun before is new.
    fn feed(
        &mut self,
        mut bytes: &[u8],
        peeked: bool,
        faults: &mut Faults,
        line: &mut dyn FnMut(Line),
    ) {
        let mut known = peeked && self.partial.is_empty() && !self.cut_off;
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            if self.partial.is_empty() && !self.cut_off && end <= LINE_LIMIT {
                if !known {
                    line(Line { bytes: trim(&bytes[..end]), in_order: true });
                }
            } else {
                self.append(&bytes[..end]);
                faults.long_lines += u64::from(self.cut_off);
                line(Line { bytes: trim(&self.partial), in_order: true });
                self.partial.clear();
                self.cut_off = false;
            }
            known = peeked;
            bytes = &bytes[end + 1..];
        }
        self.append(bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = LINE_LIMIT - self.partial.len();
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.cut_off |= bytes.len() > room;
    }

    fn forget_line(&mut self, faults: &mut Faults) {
        faults.gaps += 1;
        self.partial.clear();
        self.cut_off = false;
    }

    fn hold(
        &mut self,
        sequence: u32,
        payload: &[u8],
        faults: &mut Faults,
        line: &mut dyn FnMut(Line),
    ) {
        if self.held.iter().any(|held| held.sequence == sequence) {
            faults.repeated_segments += 1;
            return;
        }
        let mut rest = payload;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            line(Line { bytes: trim(&rest[..end.min(LINE_LIMIT)]), in_order: false });
            rest = &rest[end + 1..];
        }
        let held_bytes: usize = self.held.iter().map(|held| held.bytes.len()).sum();
        let place = self.held.partition_point(|held| {
            let next = self.next.unwrap_or(sequence);
            held.sequence.wrapping_sub(next) < sequence.wrapping_sub(next)
        });
        let kept = payload[..payload.len().min(HELD_BYTES)].to_vec();
        let full = held_bytes + kept.len() > HELD_BYTES || self.held.len() >= HELD_SEGMENTS;
        self.held.insert(place, Held { sequence, bytes: kept });
        if full {
            self.forget_line(faults);
            self.next = self.held.first().map(|held| held.sequence);
            self.drain(faults, line);
        }
    }

    /// Processes held segments that follow without a gap.
    fn drain(&mut self, faults: &mut Faults, line: &mut dyn FnMut(Line)) {
        while let (Some(next), Some(first)) = (self.next, self.held.first()) {
            let distance = next.wrapping_sub(first.sequence);
            if distance >= WINDOW {
                return;
            }
            let held = self.held.remove(0);
            let Some(fresh) = held.bytes.get(distance as usize..) else { continue };
            self.next = Some(next.wrapping_add(fresh.len() as u32));
            self.feed(fresh, true, faults, line);
        }
    }
}

fn trim(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(segments: &[(u32, &str)]) -> (Vec<String>, Faults) {
        let (mut lines, mut faults, mut out) = (Lines::default(), Faults::default(), Vec::new());
        lines.start(99);
        for (sequence, text) in segments {
            let len = text.len() as u32;
            lines.segment(*sequence, text.as_bytes(), len, &mut faults, &mut |line| {
                out.push(String::from_utf8_lossy(line.bytes).into_owned());
            });
        }
        (out, faults)
    }

    #[test]
    fn lines_cross_segments() {
        let (out, faults) =
            run(&[(100, "22"), (102, "0 hi\r"), (107, "\n331 x\r\n22"), (117, "7 y\n")]);
        assert_eq!(out, ["220 hi", "331 x", "227 y"]);
        assert_eq!(faults, Faults::default());
    }

    #[test]
    fn repeated_and_overlapping_segments_give_each_line_once() {
        let (out, faults) =
            run(&[(100, "a\r\nb\r\n"), (100, "a\r\n"), (103, "b\r\nc\r\n"), (100, "a")]);
        assert_eq!(out, ["a", "b", "c"]);
        assert_eq!(faults.repeated_segments, 2);
    }

    #[test]
    fn an_early_segment_is_read_at_once_and_not_again() {
        let (out, faults) = run(&[(106, "c\r\nd\r\n"), (100, "a\r\nb\r\n"), (112, "e\r\n")]);
        assert_eq!(out, ["c", "d", "a", "b", "e"]);
        assert_eq!((faults.early_segments, faults.gaps), (1, 0));
    }

    #[test]
    fn a_line_across_a_gap_is_read_when_the_gap_closes() {
        let (out, _) = run(&[(104, "7 x\r\nlast\r\n"), (100, "a\n22"), (115, "z\n")]);
        assert_eq!(out, ["7 x", "last", "a", "227 x", "z"]);
    }

    #[test]
    fn a_lasting_gap_is_given_up() {
        let segments: Vec<(u32, String)> =
            (0..20).map(|i| (200 + i * 4, format!("{:02}\r\n", i))).collect();
        let borrowed: Vec<(u32, &str)> = segments.iter().map(|(s, t)| (*s, t.as_str())).collect();
        let (out, faults) = run(&borrowed);
        let all: Vec<String> = (0..20).map(|i| format!("{i:02}")).collect();
        assert_eq!(out, all);
        assert_eq!(faults.gaps, 1);
    }

    #[test]
    fn a_long_line_is_cut_off_and_the_next_is_whole() {
        let long = format!("227 {}\r\nnext\r\n", "x".repeat(3_000));
        let (head, tail) = long.split_at(1_500);
        let (out, faults) = run(&[(100, head), (1_600, tail)]);
        assert_eq!((out[0].len(), out[1].as_str()), (LINE_LIMIT, "next"));
        assert_eq!(faults.long_lines, 1);
    }

    #[test]
    fn sequence_numbers_wrap() {
        let (mut lines, mut faults, mut out) = (Lines::default(), Faults::default(), Vec::new());
        lines.start(u32::MAX - 2);
        for (sequence, text) in [(u32::MAX - 1, "ab"), (0, "c\n"), (u32::MAX, "bc\nd\n")] {
            let len = text.len() as u32;
            lines.segment(sequence, text.as_bytes(), len, &mut faults, &mut |line| {
                out.push(String::from_utf8_lossy(line.bytes).into_owned());
            });
        }
        assert_eq!(out, ["abc", "d"]);
    }
}
