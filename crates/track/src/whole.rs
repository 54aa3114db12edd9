//! Frames on their way to a tracker: packets that were sent in fragments are put together.
//!
//! A tracker reads a first fragment as far as it goes, and the packet once it is complete. All fragments of a packet
//! belong to the call of the packet, as far as it is known when they arrive. Memory: that of the [`Reassembler`], and
//! [`PACKETS`] packets of which the first fragment has arrived, about 150 bytes each. Cost: one walk over the headers
//! of a frame.

use crate::{CallFrame, Event, Tracker};
use fyke_flow::Ageing;
use fyke_flow::fragments::{Fragment, PacketKey};
use fyke_flow::reassembly::{Limits, Reassembler};
use fyke_flow::streams::{Policies, Policy};
use fyke_frame::Frame;
use fyke_frame::walk::walk;

/// Most packets of which the first fragment is remembered.
const PACKETS: usize = 16_384;
/// Time for which it is remembered, in nanoseconds.
const PATIENCE_NS: u64 = 30_000_000_000;

/// A frame after its tracker has read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Its call.
    pub(crate) call: Option<CallFrame>,
    /// True if it is a fragment of a packet that the filter has not accepted, as far as is known.
    pub(crate) is_foreign: bool,
}

/// The packets that are incomplete.
#[derive(Debug)]
pub(crate) struct Whole {
    packets: Reassembler,
    first: Ageing<PacketKey, Option<CallFrame>>,
}

impl Whole {
    pub(crate) fn new() -> Whole {
        let packets = Reassembler::new(Limits::default(), Policies::from(Policy::First));
        Whole { packets, first: Ageing::new(PACKETS) }
    }

    /// Passes a frame to a tracker.
    pub(crate) fn frame(
        &mut self,
        tracker: &mut dyn Tracker,
        frame: &Frame<'_>,
        events: &mut Vec<Event>,
    ) -> Taken {
        let layers = walk(frame);
        let Some(fragment) = Fragment::of(&layers) else {
            tracker.frame(frame, events);
            return Taken { call: tracker.call(), is_foreign: false };
        };
        let now_ns = frame.timestamp_ns;
        while self.first.pop_expired(now_ns).is_some() {}
        let mut taken = Taken::default();
        if fragment.info.is_first() {
            tracker.frame(frame, events);
            taken.call = tracker.call();
            // Filters do not see the ports of an IPv6 fragment, so they accept the first fragment of any packet.
            taken.is_foreign = fragment.key.source.is_ipv6() && taken.call.is_none();
        } else {
            tracker.expire(now_ns, events);
            match self.first.get(&fragment.key, now_ns) {
                Some(call) => taken.call = *call,
                None => taken.is_foreign = true,
            }
        }
        if let Some(packet) = self.packets.add(frame, &layers) {
            tracker.frame(&packet, events);
            taken.call = tracker.call().or(taken.call);
        }
        if !taken.is_foreign {
            let deadline = now_ns.saturating_add(PATIENCE_NS);
            self.first.insert(fragment.key, taken.call, deadline);
        }
        taken
    }
}
