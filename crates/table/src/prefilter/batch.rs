//! Look-up of a batch in the arrays: the same answers as frame by frame, with hashes computed for many frames at once.
//!
//! Frames are laid out in columns, [`LANES`] at a time ([`block`](super::block)). For each array, each wildcard pattern
//! in use, and source and destination, one loop of vector instructions then runs over the columns, and one loop tests
//! bits. Frames that are not plain are looked up one by one. Short circuits are those of the paper, for a whole block:
//! the second hash is computed if one of the block's frames needs it; the destination and further arrays are tried
//! while one of the frames has no hit.
//!
//! Patterns are read before bits, as everywhere: a rule that existed before the batch is never missed. A rule that is
//! added or removed during the batch may or may not apply to it.
//!
//! PERF: `fyke bench bloom --case array1`, engines `fyke-prefilter` and `fyke-prefilter-frames`.

use super::block::{Block, Sorted};
use super::counting::{LANES, Lanes, Query};
use super::plain::{Plain, plain};
use super::reader::{Answer, Plan};
use super::space::{IpKind, PORT, SpaceKind, SpaceView, VLAN, field_masks};
use crate::arch::{Job, Probe};
use fyke_frame::{Batch, LinkType, Mask};

/// Answers of the rules for the frames of a batch; frames in neither set certainly match no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answers {
    pub maybe: Mask,
    pub undecided: Mask,
}

/// Looks up the frames of `among`, which are in the batch, in the arrays.
pub struct Ask<'a, 'f> {
    pub plan: &'a Plan,
    pub batch: &'a Batch<'f>,
    pub among: Mask,
    pub block: &'a mut Block,
}

impl Job for Ask<'_, '_> {
    type Output = Answers;

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> Answers {
        let Ask { plan, batch, among, block } = self;
        let mut answers = Answers::default();
        if batch.frames().first().is_none_or(|first| first.link != LinkType::EN10MB) {
            one_by_one(plan, batch, among, &mut answers);
            return answers;
        }
        let v6 = |space: &SpaceView| matches!(space.kind, SpaceKind::Net(IpKind::V6, _));
        let addresses = plan.spaces.iter().any(v6);
        let mut unclear = Mask::EMPTY;
        for (number, &lanes) in among.0.iter().enumerate() {
            if lanes == 0 {
                continue;
            }
            let bytes = &batch.bytes()[LANES * number..];
            block.lay_out(probe, bytes, lanes);
            let Sorted { v6, nothing } = block.sort(probe, lanes);
            each(v6, |lane| block.put_v6(lane, bytes[lane], addresses));
            let rest = lanes & !(block.v4_lanes | block.v6_lanes | nothing);
            each(rest, |lane| match plain(bytes[lane]) {
                Plain::Packet(head) => block.put(lane, &head),
                Plain::Nothing => {}
                Plain::Unclear => unclear.set(LANES * number + lane),
            });
            (answers.maybe.0[number], answers.undecided.0[number]) = block.ask(probe, plan);
        }
        one_by_one(plan, batch, unclear, &mut answers);
        answers
    }
}

/// Calls a function for each lane of a set.
#[inline(always)]
fn each(mut lanes: u64, mut work: impl FnMut(usize)) {
    while lanes != 0 {
        work(lanes.trailing_zeros() as usize);
        lanes &= lanes - 1;
    }
}

/// Looks up frames that are not plain, one by one.
#[inline(never)]
fn one_by_one(plan: &Plan, batch: &Batch<'_>, among: Mask, answers: &mut Answers) {
    for index in among.iter() {
        match plan.walk(&batch.frames()[index]) {
            Answer::No => {}
            Answer::Maybe => answers.maybe.set(index),
            Answer::Undecided => answers.undecided.set(index),
        }
    }
}

impl Block {
    /// Looks up all arrays: returns the lanes that may match a rule, and those that cannot be decided.
    #[inline(always)]
    fn ask<P: Probe>(&self, probe: P, plan: &Plan) -> (u64, u64) {
        let all = self.v4_lanes | self.v6_lanes;
        let (mut rest, mut undecided) = (all, 0);
        for space in &plan.spaces {
            let concerned = match space.kind {
                SpaceKind::Any => all,
                SpaceKind::Net(IpKind::V4, _) => self.v4_lanes,
                SpaceKind::Net(IpKind::V6, _) => self.v6_lanes,
            };
            let mut patterns = space.patterns();
            while patterns != 0 {
                let pattern = patterns.trailing_zeros() as u8;
                patterns &= patterns - 1;
                let ported = if pattern & PORT != 0 { self.ported } else { u64::MAX };
                let tagged = if pattern & VLAN != 0 { self.tagged } else { u64::MAX };
                if pattern & PORT != 0 {
                    undecided |= concerned & self.hidden;
                }
                let lanes = rest & concerned & ported & tagged;
                rest &= !match space.kind {
                    SpaceKind::Any => self.hits(probe, space, pattern, &[[], []], lanes),
                    SpaceKind::Net(IpKind::V4, _) => {
                        self.hits(probe, space, pattern, &self.v4, lanes)
                    }
                    SpaceKind::Net(IpKind::V6, _) => {
                        self.hits(probe, space, pattern, &self.v6, lanes)
                    }
                };
            }
        }
        (all & !rest, undecided & rest)
    }

    /// Returns the lanes of `lanes` with a source or destination that may match a rule of this pattern.
    #[inline(always)]
    fn hits<P: Probe, const WORDS: usize>(
        &self,
        probe: P,
        space: &SpaceView,
        pattern: u8,
        addresses: &[[Lanes; WORDS]; 2],
        lanes: u64,
    ) -> u64 {
        let (fields, net) = (field_masks(pattern), space.kind.net_masks());
        // Without address and port, source and destination have the same key.
        let ends = if WORDS == 0 && pattern & PORT == 0 { 1 } else { 2 };
        let mut hits = 0;
        for (port, address) in self.port.iter().zip(addresses).take(ends) {
            let rest = lanes & !hits;
            if rest == 0 {
                break;
            }
            let query = Query {
                fields: [(&self.kind, fields[0]), (port, fields[1])],
                address: std::array::from_fn::<_, WORDS, _>(|n| (&address[n], net[n])),
            };
            hits |= space.bits.may_contain_lanes(probe, &query, rest);
        }
        hits
    }
}
