//! Which passes a specialised program covers, and how the others are run behind it.
//!
//! The program judges a frame by what it was made from. A pass of it counts only as long as its *live word* says so;
//! what it does not cover is a second list through the same slots (*the rest*), which the interpreter runs behind it.
//! An edit of a covered pass puts the new one into the rest, then clears the live word. In between a frame may meet
//! both: its verdict is then that of before or of after, because the filter is an OR: what either accepts is accepted
//! by one of the two, and what both reject is rejected by both. There is no moment in which it meets neither. The
//! rest has its own order, newest first, which makes no difference to a verdict. O(1) an edit, whatever is covered.
//!
//! Live words and rest are written while no program reads them ([`KernelPasses::cover`]), and edited by single stores.
//! A program reads a live word before the rest; processors that reorder loads would need more, so the tier is for
//! x86-64.

use super::{KernelPassId, KernelPasses, start, trailer_word};
use crate::layout::{ACCEPT_SLOT, Control, FLAG_COUNT_REJECTED, LIVE_WORDS, REST};
use fyke_pass::Instruction;
use std::collections::HashMap;
use std::mem::{offset_of, size_of};

/// A pass as a specialised program was made from it.
#[derive(Debug, Clone)]
pub(crate) struct Covered {
    pub id: KernelPassId,
    pub version: u64,
    pub counter: u32,
    pub instructions: Vec<Instruction>,
}

/// The writer's side.
#[derive(Debug, Default)]
pub(super) struct Tier {
    active: bool,
    /// Covered passes and their live words.
    members: HashMap<KernelPassId, usize>,
    /// The others, with their neighbours in the rest.
    rest: HashMap<KernelPassId, Neighbours>,
    first: Option<KernelPassId>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Neighbours {
    previous: Option<KernelPassId>,
    next: Option<KernelPassId>,
}

/// Byte offset of a live word, behind the control words.
pub(crate) fn live_word(index: usize) -> usize {
    size_of::<Control>() + 4 * index
}

impl KernelPasses {
    /// The passes as they are now, at most as many as can be covered.
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

    /// Edits of passes so far; rows do not count.
    pub fn edit_count(&self) -> u64 {
        self.edits
    }

    /// Passes that the interpreter runs behind a specialised program; all when there is none.
    pub fn interpreted(&self) -> usize {
        if self.tier.active { self.tier.rest.len() } else { self.passes.len() }
    }

    /// Whether a specialised program may be running.
    pub(crate) fn is_covered(&self) -> bool {
        self.tier.active
    }

    pub(crate) fn counts_rejected(&self) -> bool {
        self.memory.get(offset_of!(Control, flags)) & FLAG_COUNT_REJECTED != 0
    }

    /// Prepares live words and the rest for a program made from `covered`, in this order. No program may read them.
    pub(crate) fn cover(&mut self, covered: &[Covered]) {
        self.tier = Tier { active: true, ..Tier::default() };
        for (index, one) in covered.iter().enumerate() {
            let still = self.passes.get(&one.id).is_some_and(|pass| pass.version == one.version);
            self.memory.publish(live_word(index), u32::from(still));
            if still {
                self.tier.members.insert(one.id, index);
            }
        }
        let left: Vec<KernelPassId> =
            self.ids().filter(|id| !self.tier.members.contains_key(id)).collect();
        left.into_iter().rev().for_each(|id| self.rest_insert(id));
        self.publish_rest();
    }

    /// There is no specialised program any more, and none runs.
    pub(crate) fn uncover(&mut self) {
        self.tier = Tier::default();
    }

    /// A pass has new slots: they take its place in the rest, or they make it part of the rest.
    pub(super) fn rest_changed(&mut self, id: KernelPassId) {
        if !self.tier.active {
            return;
        }
        if let Some(Neighbours { previous, next }) = self.tier.rest.get(&id).copied() {
            self.rest_link(id, next);
            self.rest_link_behind(previous, Some(id));
        } else {
            self.rest_insert(id);
            self.publish_rest();
            self.kill(id);
        }
    }

    /// Passes have come and gone. What comes is there before what goes is away.
    pub(super) fn rest_spliced(&mut self, removed: &[KernelPassId], added: &[KernelPassId]) {
        if !self.tier.active {
            return;
        }
        added.iter().for_each(|&id| self.rest_insert(id));
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
                self.rest_link_behind(previous, next);
            }
        }
        removed.iter().for_each(|&id| self.kill(id));
    }

    /// What the interpreter runs behind the specialised program.
    pub(super) fn publish_rest(&mut self) {
        let place = match self.tier.first {
            None if self.is_empty() && self.empty_accepts => start(ACCEPT_SLOT),
            first => self.place_of(first),
        };
        self.memory.publish(offset_of!(Control, rest), place);
    }

    fn kill(&mut self, id: KernelPassId) {
        if let Some(index) = self.tier.members.remove(&id) {
            self.memory.publish(live_word(index), 0);
        }
    }

    /// Puts a pass at the front; not yet published.
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

    fn rest_link_behind(&mut self, previous: Option<KernelPassId>, next: Option<KernelPassId>) {
        match previous {
            Some(previous) => self.rest_link(previous, next),
            None => self.publish_rest(),
        }
    }
}
