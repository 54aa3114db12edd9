//! Passes that a specialised program covers, and the list of the others, which the interpreter runs after it.
//!
//! The program evaluates a frame with the passes from which it was generated. Such a pass is in force only while its
//! *live word* is not 0. All other passes are in a second list through the same slots (*the rest*), which the
//! interpreter runs after the program. An edit of a covered pass inserts the new pass into the rest, then clears the
//! live word. In between, a frame may be evaluated by both, and never by neither. The verdict is then the one before or
//! the one after the edit, because the filter is an OR: a frame that one of them accepts is accepted, and a frame that
//! both reject is rejected. The rest has an order of its own, newest first, which does not affect verdicts. O(1) per
//! edit, however many passes are covered.
//!
//! A program runs its copies of passes that reject what they match ([`later`](super::later)) only while the rest is
//! empty, and leaves a frame to the interpreter if the live word of the one that matches is 0. If the rest is not
//! empty, they are its end, in their order (*the tail*). They change only while another pass accepts the frames that
//! they match, so no frame meets a part of them.
//!
//! Live words and rest are initialised while no program reads them ([`KernelPasses::cover`]), and edited by single
//! stores. A program reads a live word before the rest; processors that reorder loads would need a barrier, so the tier
//! is for x86-64.

use super::{KernelPassId, KernelPasses, is_later, start, trailer_word};
use crate::layout::{ACCEPT_SLOT, COUNT_LATER, Control, FLAG_COUNT_REJECTED, LIVE_WORDS, REST};
use fyke_pass::Instruction;
use std::collections::HashMap;
use std::mem::{offset_of, size_of};

/// Copy of a pass from which a specialised program is generated.
#[derive(Debug, Clone)]
pub(crate) struct Covered {
    pub id: KernelPassId,
    pub version: u64,
    pub counter: u32,
    pub instructions: Vec<Instruction>,
}

impl Covered {
    /// True if it rejects the frames that it matches.
    pub fn rejects(&self) -> bool {
        self.counter as usize >= COUNT_LATER
    }
}

/// The writer's state of the tier.
#[derive(Debug, Default)]
pub(super) struct Tier {
    active: bool,
    /// Covered passes and their live words.
    members: HashMap<KernelPassId, usize>,
    /// The other passes, with their neighbours in the rest.
    rest: HashMap<KernelPassId, Neighbours>,
    first: Option<KernelPassId>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Neighbours {
    previous: Option<KernelPassId>,
    next: Option<KernelPassId>,
}

/// Byte offset of a live word; live words follow the control words.
pub(crate) fn live_word(index: usize) -> usize {
    size_of::<Control>() + 4 * index
}

impl KernelPasses {
    /// Copies of the current passes, at most as many as can be covered.
    pub(crate) fn covered_now(&self) -> Vec<Covered> {
        let passes = self.ids().filter_map(|id| self.passes.get(&id).map(|pass| (id, pass)));
        passes
            .take(LIVE_WORDS)
            .map(|(id, pass)| Covered {
                id,
                version: pass.version,
                counter: pass.counter,
                instructions: pass.instructions.clone(),
            })
            .collect()
    }

    /// Number of edits of passes so far; rows do not count.
    pub fn edit_count(&self) -> u64 {
        self.edits
    }

    /// Number of passes that the interpreter runs after a specialised program; all if there is no such program.
    pub fn interpreted(&self) -> usize {
        if !self.tier.active {
            return self.passes.len();
        }
        self.tier.rest.keys().filter(|id| !self.tier.members.contains_key(id)).count()
    }

    /// True if a specialised program may be running.
    pub(crate) fn is_covered(&self) -> bool {
        self.tier.active
    }

    /// True if a specialised program evaluates a pass.
    pub(crate) fn covers(&self, id: KernelPassId) -> bool {
        self.tier.active && self.tier.members.contains_key(&id)
    }

    pub(crate) fn counts_rejected(&self) -> bool {
        self.memory.get(offset_of!(Control, flags)) & FLAG_COUNT_REJECTED != 0
    }

    /// Initialises live words and the rest for a program generated from `covered`, in this order. No program may read
    /// them meanwhile.
    pub(crate) fn cover(&mut self, covered: &[Covered]) {
        self.tier = Tier { active: true, ..Tier::default() };
        for (index, one) in covered.iter().enumerate() {
            let still = self.passes.get(&one.id).is_some_and(|pass| pass.version == one.version);
            self.memory.publish(live_word(index), u32::from(still));
            if still {
                self.tier.members.insert(one.id, index);
            }
        }
        let is_left = |id: &KernelPassId| !self.tier.members.contains_key(id) && !self.rejects(*id);
        let left: Vec<KernelPassId> = self.ids().filter(is_left).collect();
        self.attach_tail(!left.is_empty());
        left.into_iter().rev().for_each(|id| self.rest_insert(id));
        self.publish_rest();
    }

    /// True for a pass that rejects the frames that it matches.
    fn rejects(&self, id: KernelPassId) -> bool {
        self.passes.get(&id).is_some_and(|pass| is_later(pass.class))
    }

    /// The passes in force that reject, in their order: the last ones of the list.
    fn rejecting(&self) -> Vec<KernelPassId> {
        let previous = |id: &KernelPassId| self.passes.get(id).and_then(|pass| pass.previous);
        let from_last = std::iter::successors(self.main.last, previous);
        let mut found: Vec<_> = from_last.take_while(|id| self.rejects(*id)).collect();
        found.reverse();
        found
    }

    /// Appends the tail to the rest, if passes precede it there or the program lacks one of its passes.
    fn attach_tail(&mut self, follows: bool) {
        let tail = self.rejecting();
        if !follows && tail.iter().all(|id| self.tier.members.contains_key(id)) {
            return;
        }
        let missing: Vec<_> =
            tail.into_iter().filter(|id| !self.tier.rest.contains_key(id)).collect();
        let Some(&first) = missing.first() else { return };
        let next = |id: &KernelPassId| self.tier.rest.get(id).and_then(|one| one.next);
        let mut previous = std::iter::successors(self.tier.first, next).last();
        let before = previous;
        for (at, &id) in missing.iter().enumerate() {
            let next = missing.get(at + 1).copied();
            self.tier.rest.insert(id, Neighbours { previous, next });
            self.rest_link(id, next);
            previous = Some(id);
        }
        match before.and_then(|before| self.tier.rest.get_mut(&before)) {
            Some(last) => last.next = Some(first),
            None => self.tier.first = Some(first),
        }
        if before.is_some() {
            self.rest_link_after(before, Some(first));
        }
    }

    /// Empties the rest if nothing precedes the tail and the program has all of its passes.
    fn detach_tail(&mut self) {
        let is_whole = self.tier.first.is_some_and(|first| self.rejects(first))
            && self.tier.rest.keys().all(|id| self.tier.members.contains_key(id));
        if is_whole {
            self.tier.rest.clear();
            self.tier.first = None;
            self.publish_rest();
        }
    }

    /// Resets the state after the specialised program was removed and no run of it is left.
    pub(crate) fn uncover(&mut self) {
        self.tier = Tier::default();
    }

    /// Updates the rest after a pass received new slots: they replace the old ones, or make the pass part of the rest.
    pub(super) fn rest_changed(&mut self, id: KernelPassId) {
        if !self.tier.active {
            return;
        }
        if let Some(Neighbours { previous, next }) = self.tier.rest.get(&id).copied() {
            self.rest_link(id, next);
            self.rest_link_after(previous, Some(id));
        } else {
            self.attach_tail(true);
            self.rest_insert(id);
            self.publish_rest();
            self.clear_live_word(id);
        }
    }

    /// Updates the rest after a splice. Added passes are inserted before removed ones are taken out.
    pub(super) fn rest_spliced(&mut self, removed: &[KernelPassId], added: &[KernelPassId]) {
        if !self.tier.active {
            return;
        }
        let (tail, accepting): (Vec<_>, Vec<_>) = added.iter().partition(|id| self.rejects(**id));
        if !accepting.is_empty() || !tail.is_empty() {
            self.attach_tail(!accepting.is_empty() || !self.tier.rest.is_empty());
        }
        accepting.into_iter().for_each(|id| self.rest_insert(id));
        self.publish_rest();
        for id in removed {
            if let Some(Neighbours { previous, next }) = self.tier.rest.remove(id) {
                if let Some(after) = next.and_then(|next| self.tier.rest.get_mut(&next)) {
                    after.previous = previous;
                }
                match previous.and_then(|previous| self.tier.rest.get_mut(&previous)) {
                    Some(before) => before.next = next,
                    None => self.tier.first = next,
                }
                self.rest_link_after(previous, next);
            }
        }
        removed.iter().for_each(|&id| self.clear_live_word(id));
        self.detach_tail();
    }

    /// Publishes the head of the rest.
    pub(super) fn publish_rest(&mut self) {
        let place = match self.tier.first {
            None if self.is_empty() && self.empty_accepts => start(ACCEPT_SLOT),
            first => self.place_of(first),
        };
        self.memory.publish(offset_of!(Control, rest), place);
    }

    fn clear_live_word(&mut self, id: KernelPassId) {
        if let Some(index) = self.tier.members.remove(&id) {
            self.memory.publish(live_word(index), 0);
        }
    }

    /// Inserts a pass at the head; the head is not published yet.
    fn rest_insert(&mut self, id: KernelPassId) {
        let next = self.tier.first.replace(id);
        self.tier.rest.insert(id, Neighbours { previous: None, next });
        if let Some(after) = next.and_then(|next| self.tier.rest.get_mut(&next)) {
            after.previous = Some(id);
        }
        self.rest_link(id, next);
    }

    fn rest_link(&self, id: KernelPassId, next: Option<KernelPassId>) {
        let place = self.place_of(next);
        for &slot in self.passes.get(&id).map_or(&[][..], |pass| &pass.slots) {
            self.memory.publish(trailer_word(slot, REST), place);
        }
    }

    fn rest_link_after(&mut self, previous: Option<KernelPassId>, next: Option<KernelPassId>) {
        match previous {
            Some(previous) => self.rest_link(previous, next),
            None => self.publish_rest(),
        }
    }
}
