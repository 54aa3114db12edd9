//! Segments that receivers refuse, or accept only if the other end confirms them.

use super::table::Connection;
use super::{On, Segment, Streams};
use fyke_frame::walk::view::tcp_flags::{ACK, RST, SYN};

impl Streams {
    /// True if a segment without ACK, or with SYN, is refused by its receiver. Keeps the number of a SYN that may begin
    /// another connection.
    pub(super) fn is_refused(&mut self, place: u32, from: usize, segment: &Segment<'_>) -> bool {
        let Some(known) = self.table.at_mut(place) else { return false };
        let flags = segment.flags & (SYN | RST | ACK);
        if flags & RST != 0 {
            return false;
        }
        if flags & SYN == 0 {
            return flags & ACK == 0;
        }
        let is_other = flags == SYN
            && known.heads[1 - from].has_begun()
            && known.heads[from].begins_elsewhere(segment.sequence);
        if is_other && self.handling.renewal {
            known.change(from, |direction| direction.note_rival(segment.sequence));
        }
        // A receiver in an established connection answers a SYN with an acknowledgement (RFC 5961, 4).
        is_other || known.heads[from].end() > 0
    }

    /// Takes an unusual acknowledgement. True if the segment is complete with that: its bytes are set aside, because
    /// they acknowledge what was never sent.
    pub(super) fn learn(
        &mut self,
        place: u32,
        from: usize,
        (segment, number): (&Segment<'_>, u32),
        now_ns: u64,
        on: On<'_>,
    ) -> bool {
        let Some(known) = self.table.at_mut(place) else { return false };
        let (mut is_doubtful, usual) = (false, segment.flags & (SYN | RST) == 0);
        let skips = known.change(1 - from, |direction| {
            is_doubtful = usual && segment.payload_len > 0 && direction.never_sent(number);
            match is_doubtful {
                true => direction.hears_far(number),
                false => direction.acknowledge(number),
            }
        });
        if skips {
            self.work(place, 1 - from, on, |direction, counters, _, give| {
                direction.skip_received(now_ns, counters, give);
            });
            self.note_end(place);
        }
        let is_wanted =
            |known: &Connection| !known.heads[from].is_settled() && known.heads[from].has_begun();
        if !is_doubtful || !self.table.at(place).is_some_and(is_wanted) {
            return false;
        }
        let bytes = self.limits.direction_bytes;
        self.work(place, from, on, |direction, counters, _, give| {
            direction.set_aside(segment, now_ns, counters);
            while direction.held_bytes() > bytes {
                direction.skip(now_ns, counters, give);
            }
        });
        self.note_end(place);
        self.make_room(now_ns, on);
        true
    }
}

/// True if a SYN begins another connection between the ends of a known one at once: that has ended, or only one of its
/// ends has been seen. Else the other end has to answer ([`answered`]).
pub(super) fn renews(known: &Connection, from: usize, segment: &Segment<'_>) -> bool {
    let over = known.is_over();
    let other = known.heads[from].begins_elsewhere(segment.sequence);
    // A client that was refused may try again with the same number.
    let again = over && segment.flags & ACK == 0;
    let alone = segment.flags & ACK == 0 && !known.heads[1 - from].has_begun();
    again || other && (over || alone)
}

/// Number of the first byte of the other end, if a SYN answers one of it that begins another connection.
pub(super) fn answered(known: &Connection, from: usize, segment: &Segment<'_>) -> Option<u32> {
    let answers = segment.flags & (SYN | ACK | RST) == SYN | ACK;
    segment.acknowledged.filter(|number| answers && known.rests[1 - from].rival() == Some(*number))
}
