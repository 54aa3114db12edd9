//! The frames of several queues in the order of time.
//!
//! The kernel shows a frame to this process at the end of a run of the driver's poll, so a frame of one queue may come
//! later than younger ones of another. A frame therefore waits until every other queue has a later one, or until it has
//! waited for [`WINDOW_NS`]. Within the window the order is exact; a queue that is later than that delays no other, and
//! neither does an idle one delay a queue of which a quarter of the frames wait: the kernel needs memory for more.
//!
//! Cost: O(log queues) for each frame. The frames stay in the memory that they arrived in.

use crate::sys::xdp::Received;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Longest wait of a frame for earlier ones of other queues.
const WINDOW_NS: u64 = 5_000_000;

/// Frames that wait, by queue.
#[derive(Default)]
pub(super) struct QueueOrder(Vec<Waiting>);

/// Frames of a queue that wait, oldest first.
#[derive(Default)]
struct Waiting {
    /// All parts of each packet, with its time of arrival.
    parts: VecDeque<(u64, Received)>,
    /// Number of packets.
    packets: usize,
    /// True if the queue had no other frames when it was read.
    is_read: bool,
}

impl QueueOrder {
    /// Number of packets of a queue that wait.
    pub fn waiting(&self, queue: usize) -> usize {
        self.0.get(queue).map_or(0, |waiting| waiting.packets)
    }

    /// True if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|waiting| waiting.packets == 0)
    }

    /// Time until the first frame has waited long enough; `None` if none waits.
    pub fn due_in(&self, now_ns: u64) -> Option<Duration> {
        let oldest = self.0.iter().filter_map(|waiting| waiting.parts.front()).map(|one| one.0);
        let due_ns = oldest.min()?.saturating_add(WINDOW_NS);
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }

    /// Adds whole packets of a queue, later than those of the last call; `arrival_ns` is for the first part of each.
    /// `is_read` is true if the queue has no others now.
    pub fn add(
        &mut self,
        queue: usize,
        parts: impl Iterator<Item = Received>,
        arrival_ns: impl Fn(&Received) -> u64,
        is_read: bool,
    ) {
        if self.0.len() <= queue {
            self.0.resize_with(queue + 1, Waiting::default);
        }
        let waiting = &mut self.0[queue];
        waiting.is_read = is_read;
        let mut within = None;
        for part in parts {
            let ns = within.unwrap_or_else(|| arrival_ns(&part));
            within = part.continues().then_some(ns);
            waiting.packets += usize::from(!part.continues());
            waiting.parts.push_back((ns, part));
        }
    }

    /// Takes all packets that wait, in no order.
    pub fn take_all(&mut self, to: &mut Vec<Received>) {
        for waiting in &mut self.0 {
            to.extend(waiting.parts.drain(..).map(|(_, part)| part));
            waiting.packets = 0;
        }
    }

    /// Takes the packets of the next batch, oldest first: those that no packet can precede any more at this time. A
    /// queue with `most` packets does not wait.
    pub fn take(&mut self, now_ns: u64, most: usize, to: &mut Vec<Received>) {
        let is_full = self.0.iter().any(|waiting| waiting.packets >= most);
        let until_ns = if is_full { u64::MAX } else { now_ns.saturating_sub(WINDOW_NS) };
        let head =
            |(queue, waiting): (usize, &Waiting)| Some(Reverse((waiting.parts.front()?.0, queue)));
        let mut heads: BinaryHeap<_> = self.0.iter().enumerate().filter_map(head).collect();
        let mut empty = self.0.iter().filter(|waiting| waiting.packets == 0);
        if !empty.clone().all(|waiting| waiting.is_read) {
            return;
        }
        let mut awaits = empty.next().is_some();
        for _ in 0..fyke_frame::BATCH_CAPACITY {
            let Some(Reverse((ns, queue))) = heads.pop() else { return };
            if awaits && ns > until_ns {
                return;
            }
            let waiting = &mut self.0[queue];
            waiting.take_first(to);
            match waiting.parts.front() {
                Some((ns, _)) => heads.push(Reverse((*ns, queue))),
                // Its next frames may be earlier than those of the others.
                None if !waiting.is_read => return,
                None => awaits = true,
            }
        }
    }
}

impl Waiting {
    /// Takes all parts of the first packet.
    fn take_first(&mut self, to: &mut Vec<Received>) {
        while let Some((_, part)) = self.parts.pop_front() {
            let is_last = !part.continues();
            to.push(part);
            if is_last {
                self.packets -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of a packet; its time is its place.
    fn part(at: u16, frame: u32, continues: bool) -> Received {
        Received::of_no_memory(frame, at, continues)
    }

    fn add(order: &mut QueueOrder, queue: usize, times: &[u16], is_read: bool) {
        let parts = times.iter().map(|&at| part(at, queue as u32, false));
        order.add(queue, parts, |part| part.at().into(), is_read);
    }

    fn times(order: &mut QueueOrder, now_ns: u64, most: usize) -> Vec<u16> {
        let mut taken = Vec::new();
        order.take(now_ns, most, &mut taken);
        taken.iter().map(Received::at).collect()
    }

    #[test]
    fn frames_wait_for_earlier_ones_of_other_queues() {
        let mut order = QueueOrder::default();
        add(&mut order, 0, &[1, 4, 9], true);
        add(&mut order, 1, &[], true);
        assert!(times(&mut order, 10, 100).is_empty(), "the second queue may have earlier ones");
        assert_eq!(order.due_in(10), Some(Duration::from_nanos(1 + WINDOW_NS - 10)));
        add(&mut order, 1, &[2, 3, 5], true);
        assert_eq!(times(&mut order, 11, 100), [1, 2, 3, 4, 5]);
        assert!(times(&mut order, 11, 100).is_empty(), "9 waits again");
        // A window later, nothing precedes it.
        assert_eq!(times(&mut order, 9 + WINDOW_NS, 100), [9]);
        assert!(order.is_empty() && order.due_in(0).is_none());
    }

    #[test]
    fn a_queue_that_has_more_is_read_first() {
        let mut order = QueueOrder::default();
        add(&mut order, 0, &[1, 2], false);
        add(&mut order, 1, &[5, 6], true);
        assert_eq!(times(&mut order, u64::MAX, 100), [1, 2], "the first queue has more before 5");
        assert!(times(&mut order, u64::MAX, 100).is_empty());
        add(&mut order, 0, &[3, 7], true);
        assert_eq!(times(&mut order, u64::MAX, 100), [3, 5, 6, 7]);
    }

    #[test]
    fn a_full_queue_waits_for_none() {
        let mut order = QueueOrder::default();
        add(&mut order, 0, &[1, 2, 3], true);
        add(&mut order, 1, &[], true);
        assert!(times(&mut order, 4, 4).is_empty());
        assert_eq!(times(&mut order, 4, 3), [1, 2, 3]);
    }

    #[test]
    fn parts_stay_together() {
        let mut order = QueueOrder::default();
        let long = [part(1, 0, true), part(7, 1, true), part(8, 2, false), part(9, 3, false)];
        order.add(0, long.into_iter(), |part| part.at().into(), true);
        add(&mut order, 1, &[2], true);
        assert_eq!(order.waiting(0), 2);
        assert_eq!(times(&mut order, u64::MAX, 100), [1, 7, 8, 2, 9]);
    }
}
