//! The lists of passes in the shared memory, edited while the program runs.
//!
//! Every edit is a *splice*: new passes are written to free slots, and linked to each other and to the pass that
//! follows. One release store of a `next` word (or of the head) then replaces a range of the list, which may be empty.
//! So any number of neighbouring passes appear, change or disappear in one step, and a frame sees the list before the
//! edit or after it. Removed slots keep their contents until a grace period has passed. The writer waits for it when it
//! runs out of slots, not at each edit. An edit is O(instructions written), whatever the size of the list.
//!
//! A pass of several slots has several `next` words. A frame reads exactly one of them, so it does not matter that they
//! are stored one after the other.

use crate::code::{Code, CodeMemory};
use crate::counters::Counters;
use crate::error::KernelEditError;
use crate::layout::{
    ACCEPT_SLOT, CLASS, CODE_LIMIT, CODE_WORDS, CONTINUE, COOKED_BYTES, COUNT_EMPTY, COUNT_LATER,
    COUNTER, Control, FIRST_PASS_COUNTER, FLAG_COUNT_REJECTED, FLAG_PASS_CAPPED, LAST, LATER, NEXT,
    OP_CODE, OP_ROWS, OP_TRAILER, SLOT_INSTRUCTIONS, SLOTS, TRAILER,
};
use crate::options::Options;
use crate::rows::{Members, Rows, TableId};
use crate::sys::Mapped;
use fyke_pass::{Instruction, Opcode};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem::{offset_of, size_of};
use std::sync::Arc;

/// Number of a pass in the kernel, from 1; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelPassId(pub u32);

/// Most instructions of a pass.
pub const MAX_INSTRUCTIONS: usize = 64;

/// A pass to be added.
#[derive(Debug, Clone, Copy)]
pub struct NewPass<'a> {
    /// Its instructions.
    pub instructions: &'a [Instruction],
    /// The pass, removed in the same splice, that hands its count to the new pass.
    pub counts_for: Option<KernelPassId>,
    /// The class of the frames that it accepts: the number of a socket plus one, 0 = none; or that of a pass that
    /// rejects them ([`later`]).
    pub class: u32,
}

/// Bit of the class of a pass that rejects the frames that it matches.
const LATER_CLASS: u32 = 1 << 31;
/// Position of the rank in such a class.
const RANK_SHIFT: u32 = 8;

/// The class of a pass that counts the frames that it matches in counter `slot` of [`LATER`], and rejects them. Such
/// passes come after all others, in the order of `rank` (up to 2^23).
pub fn later(rank: u32, slot: u32) -> u32 {
    LATER_CLASS | (rank << RANK_SHIFT) | (slot % LATER as u32)
}

/// True for the class of a pass that rejects the frames that it matches.
pub(crate) fn is_later(class: u32) -> bool {
    class & LATER_CLASS != 0
}

#[derive(Debug)]
struct Pass {
    list: List,
    instructions: Vec<Instruction>,
    slots: Vec<u32>,
    /// Number of the edit that wrote it.
    version: u64,
    counter: u32,
    class: u32,
    /// Value of the counter when the pass received it.
    counted_before: u64,
    previous: Option<KernelPassId>,
    next: Option<KernelPassId>,
}

/// The words of a pass's trailer that tell what to do with the frames that it accepts.
#[derive(Debug, Clone, Copy)]
struct Marks {
    counter: u32,
    class: u32,
}

/// The writer of the shared memory. There is one for each set of maps.
#[derive(Debug)]
pub struct KernelPasses {
    memory: Mapped,
    rows: Rows,
    counters: Arc<Counters>,
    budget: u32,
    passes: HashMap<KernelPassId, Pass>,
    main: Ends,
    short: Ends,
    last_id: u32,
    /// Number of edits so far.
    edits: u64,
    tier: Tier,
    /// True if frames are accepted while there is no pass.
    empty_accepts: bool,
    free: Vec<u32>,
    free_counters: Vec<u32>,
    code: CodeMemory,
    /// Slots, tables and code that running programs may still use.
    retired: Retired,
    /// Those retired earlier, and the thread that waits for their grace period.
    ending: Option<Ending>,
}

/// Byte offset of the code: after the instructions, and after two more that the program may read past the last.
const CODE_AT: usize = at((SLOTS * SLOT_INSTRUCTIONS + 2) as u32);

/// Byte offset of an instruction.
const fn at(instruction: u32) -> usize {
    size_of::<Control>() + instruction as usize * size_of::<Instruction>()
}

/// Byte offset of a word of code.
pub(crate) const fn code_at(word: u32) -> usize {
    CODE_AT + 8 * word as usize
}

/// Byte offset of a word of a slot's trailer.
fn trailer_word(slot: u32, param: usize) -> usize {
    at(start(slot) + TRAILER as u32) + 4 + 4 * param
}

/// Number of a slot's first instruction.
fn start(slot: u32) -> u32 {
    slot * SLOT_INSTRUCTIONS as u32
}

impl KernelPasses {
    /// Length in bytes of the used part of the map of passes.
    pub const BYTES: usize = code_at(CODE_WORDS as u32);

    pub(crate) fn new(
        memory: Mapped,
        rows: Mapped,
        counters: Arc<Counters>,
        options: Options,
    ) -> KernelPasses {
        let last = Instruction { command: Opcode::Nop as u32 | LAST, ..Instruction::default() };
        memory.prepare_instruction(at(start(ACCEPT_SLOT)), &last);
        memory.prepare(trailer_word(ACCEPT_SLOT, COUNTER), COUNT_EMPTY as u32);
        memory.prepare(offset_of!(Control, budget), options.budget);
        memory.prepare(offset_of!(Control, accept), options.accept);
        memory.prepare(offset_of!(Control, reject), options.reject);
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let flags = flag(options.count_rejected, FLAG_COUNT_REJECTED)
            | flag(options.pass_capped, FLAG_PASS_CAPPED);
        memory.prepare(offset_of!(Control, flags), flags);
        let factor = RandomState::new().hash_one(0) as u32 | 1;
        memory.prepare(offset_of!(Control, factor), factor);
        memory.publish(offset_of!(Control, head), start(ACCEPT_SLOT));
        KernelPasses {
            memory,
            rows: Rows::new(rows),
            counters,
            budget: options.budget,
            passes: HashMap::new(),
            main: Ends::default(),
            short: Ends::default(),
            last_id: 0,
            edits: 0,
            tier: Tier::default(),
            empty_accepts: true,
            free: (ACCEPT_SLOT + 1..SLOTS as u32).rev().collect(),
            free_counters: (FIRST_PASS_COUNTER as u32..COUNT_LATER as u32).rev().collect(),
            code: CodeMemory::default(),
            retired: Retired::default(),
            ending: None,
        }
    }

    /// Number of passes in force.
    pub fn len(&self) -> usize {
        self.ids().count()
    }

    /// Number of passes in both lists.
    pub(crate) fn pass_count(&self) -> usize {
        self.passes.len()
    }

    /// True if there is no pass.
    pub fn is_empty(&self) -> bool {
        self.main.first.is_none()
    }

    /// The tables to which instructions refer.
    pub fn rows(&mut self) -> &mut Rows {
        &mut self.rows
    }

    /// The passes in force, in the order of evaluation.
    pub fn ids(&self) -> impl Iterator<Item = KernelPassId> {
        std::iter::successors(self.main.first, |id| self.passes.get(id).and_then(|pass| pass.next))
    }

    /// The passes in force of a list, in the order of evaluation.
    pub(crate) fn ids_of(&self, list: List) -> impl Iterator<Item = KernelPassId> {
        let next = |id: &KernelPassId| self.passes.get(id).and_then(|pass| pass.next);
        std::iter::successors(self.ends(list).first, next)
    }

    /// The last pass of a list.
    pub(crate) fn last_of(&self, list: List) -> Option<KernelPassId> {
        self.ends(list).last
    }

    /// Removes a pass from its list.
    pub(crate) fn remove_from_list(&mut self, id: KernelPassId) -> Result<(), KernelEditError> {
        let Pass { list, previous, .. } = *self.get(id)?;
        self.splice_list(list, previous, &[id], &[]).map(drop)
    }

    /// The last pass.
    pub fn last(&self) -> Option<KernelPassId> {
        self.main.last
    }

    /// The instructions of a pass.
    pub fn instructions(&self, id: KernelPassId) -> Option<&[Instruction]> {
        self.passes.get(&id).map(|pass| &pass.instructions[..])
    }

    /// Frames that a pass has accepted since it was added; edits of the pass do not reset the count.
    pub fn accepted(&self, id: KernelPassId) -> Option<u64> {
        let pass = self.passes.get(&id)?;
        if is_later(pass.class) {
            return Some(0);
        }
        Some(self.counters.sum(pass.counter as usize).wrapping_sub(pass.counted_before))
    }

    /// Changes the number of bytes kept of accepted frames.
    pub fn set_accept(&mut self, value: u32) {
        self.memory.publish(offset_of!(Control, accept), value);
    }

    /// Accepts one in `one_in` of the frames that no pass accepts, chosen at random; 0 (the default) = none. A
    /// specialised program accepts none.
    pub fn set_sample(&mut self, one_in: u32) {
        self.memory.publish(offset_of!(Control, sample), one_in);
    }

    /// Accepts or rejects frames while there is no pass. The default is to accept.
    pub fn set_empty_accepts(&mut self, accepts: bool) {
        self.empty_accepts = accepts;
        self.link(List::Main, None, self.place_of(self.main.first));
        self.publish_rest();
    }

    /// Makes frames run the short list if they have fewer than `below` bytes, or fewer than `after_header` after the
    /// IPv4 header at 14.
    pub(crate) fn set_short(&mut self, below: u32, after_header: u32) {
        self.memory.publish(offset_of!(Control, short_below), below);
        self.memory.publish(offset_of!(Control, short_behind), after_header);
    }

    /// The two values that [`KernelPasses::set_short`] has set.
    pub(crate) fn short(&self) -> (u32, u32) {
        let get = |at| self.memory.get(at);
        (get(offset_of!(Control, short_below)), get(offset_of!(Control, short_behind)))
    }

    /// Makes texts see frames as in files of cooked captures; for sockets that deliver no link header.
    pub(crate) fn set_cooked(&mut self) {
        self.memory.publish(offset_of!(Control, cooked), COOKED_BYTES);
    }

    /// True after [`KernelPasses::set_cooked`].
    pub(crate) fn is_cooked(&self) -> bool {
        self.memory.get(offset_of!(Control, cooked)) != 0
    }

    /// Writes a program of classic BPF; [`KernelPasses::retire_code`] frees it.
    pub(crate) fn code(&mut self, program: &[u64]) -> Result<Code, KernelEditError> {
        if self.code.largest() < program.len() {
            self.reclaim(|passes| passes.code.largest() >= program.len())?;
        }
        let code = self.code.take(program.len())?;
        for (word, &value) in (code.place..).zip(program) {
            self.memory.publish_double(code_at(word), value);
        }
        Ok(code)
    }

    pub(crate) fn retire_code(&mut self, code: Code) {
        self.retired.code.push(code);
    }

    /// Adds a pass after the others (`NewPass` and `SelectOp` in one).
    pub fn add(&mut self, instructions: &[Instruction]) -> Result<KernelPassId, KernelEditError> {
        self.set_short(0, 0);
        let ids = self.splice(
            self.main.last,
            &[],
            &[NewPass { instructions, counts_for: None, class: 0 }],
        )?;
        Ok(ids[0])
    }

    /// Adds a copy of a pass after the others (`DupPass`).
    pub fn duplicate(&mut self, id: KernelPassId) -> Result<KernelPassId, KernelEditError> {
        let instructions = self.get(id)?.instructions.clone();
        self.add(&instructions)
    }

    /// Removes a pass (`DelPass`).
    pub fn remove(&mut self, id: KernelPassId) -> Result<(), KernelEditError> {
        let before = self.get(id)?.previous;
        self.splice(before, &[id], &[])?;
        Ok(())
    }

    /// Replaces one instruction, or appends it (`SelectOp`).
    pub fn set_instruction(
        &mut self,
        id: KernelPassId,
        index: usize,
        instruction: Instruction,
    ) -> Result<(), KernelEditError> {
        self.edit(id, |instructions| {
            if index == instructions.len() {
                instructions.push(instruction);
            } else {
                *pick(instructions, index)? = instruction;
            }
            Ok(())
        })
    }

    /// Adds a value to an instruction's alternatives (`AddParam`).
    pub fn add_operand(
        &mut self,
        id: KernelPassId,
        index: usize,
        value: u32,
    ) -> Result<(), KernelEditError> {
        self.edit(id, |instructions| Ok(pick(instructions, index)?.add_operand(value)?))
    }

    /// Removes a value from an instruction's alternatives (`DelParam`).
    pub fn remove_operand(
        &mut self,
        id: KernelPassId,
        index: usize,
        value: u32,
    ) -> Result<(), KernelEditError> {
        self.edit(id, |instructions| Ok(pick(instructions, index)?.remove_operand(value)?))
    }

    /// Overwrites one word of an instruction, 0 = the command word (`PokeInst`).
    pub fn poke(
        &mut self,
        id: KernelPassId,
        index: usize,
        word: usize,
        value: u32,
    ) -> Result<(), KernelEditError> {
        self.edit(id, |instructions| {
            let instruction = pick(instructions, index)?;
            match word {
                0 => instruction.command = value,
                1..=7 => instruction.params[word - 1] = value,
                _ => return Err(KernelEditError::NoWord { given: word }),
            }
            Ok(())
        })
    }

    /// Replaces all instructions of a pass; the pass keeps its position and its count.
    pub fn replace(
        &mut self,
        id: KernelPassId,
        instructions: &[Instruction],
    ) -> Result<(), KernelEditError> {
        self.edit(id, |own| {
            own.clear();
            own.extend_from_slice(instructions);
            Ok(())
        })
    }

    /// Violates the publish protocol: overwrites an instruction of a reachable pass in place, word by word, with
    /// `pause` in between. The protocol's test calls it to show that the test can fail.
    #[doc(hidden)]
    pub fn tear(
        &mut self,
        id: KernelPassId,
        index: usize,
        instruction: Instruction,
        pause: impl Fn(),
    ) -> Result<(), KernelEditError> {
        let place = at(start(self.get(id)?.slots[0]) + index as u32);
        let command = self.memory.get(place) & LAST | instruction.command;
        self.memory.publish(place, command);
        for (index, &param) in instruction.params.iter().enumerate() {
            pause();
            self.memory.publish(place + 4 + 4 * index, param);
        }
        Ok(())
    }

    /// Writes any value at any offset, as a hostile writer could.
    pub(crate) fn scribble(&mut self, at: u64, value: u64) {
        self.memory.publish(at as usize % (Self::BYTES / 4) * 4, value as u32);
        self.rows.scribble(at, value);
    }

    fn edit(
        &mut self,
        id: KernelPassId,
        change: impl FnOnce(&mut Vec<Instruction>) -> Result<(), KernelEditError>,
    ) -> Result<(), KernelEditError> {
        let pass = self.get(id)?;
        let (list, previous) = (pass.list, pass.previous);
        let marks = Marks { counter: pass.counter, class: pass.class };
        let mut instructions = pass.instructions.clone();
        change(&mut instructions)?;
        self.check(&instructions)?;
        let before = Cost::of(&self.get(id)?.instructions);
        let cost = self.ends(list).cost.less(before).plus(Cost::of(&instructions));
        self.within_budget(cost)?;
        let slots = self.take_slots(slots_for(instructions.len()))?;
        let next = self.get(id)?.next;
        self.write(&slots, &instructions, marks, self.place_of(next));
        self.set_short(0, 0);
        self.link(list, previous, start(slots[0]));
        self.ends_mut(list).cost = cost;
        self.edits += 1;
        let version = self.edits;
        if let Some(pass) = self.passes.get_mut(&id) {
            pass.instructions = instructions;
            pass.version = version;
            let old = std::mem::replace(&mut pass.slots, slots);
            self.retired.slots.extend(old);
        }
        self.rest_changed(id);
        Ok(())
    }

    /// Replaces neighbouring passes with new ones, in one step. `removed` are the passes after `after`, in order;
    /// either list may be empty.
    ///
    /// # Errors
    /// An edit that is refused changes nothing.
    pub fn splice(
        &mut self,
        after: Option<KernelPassId>,
        removed: &[KernelPassId],
        added: &[NewPass<'_>],
    ) -> Result<Vec<KernelPassId>, KernelEditError> {
        self.set_short(0, 0);
        self.splice_list(List::Main, after, removed, added)
    }

    /// Makes sure that these splices, one in each list, have room and are allowed.
    pub(crate) fn make_room(&mut self, splices: &[&Splice<'_>]) -> Result<(), KernelEditError> {
        let (mut slots, mut counters) = (0, 0);
        for splice in splices {
            self.following(splice.list, splice.after, &splice.removed)?;
            let mut cost = self.ends(splice.list).cost;
            for id in &splice.removed {
                cost = cost.less(Cost::of(&self.get(*id)?.instructions));
            }
            for new in &splice.added {
                self.check(new.instructions)?;
                cost = cost.plus(Cost::of(new.instructions));
                slots += slots_for(new.instructions.len());
            }
            self.within_budget(cost)?;
            counters += splice.added.len();
        }
        let taken = self.take_slots(slots)?;
        self.free.extend(taken);
        let taken = self.take_counters(counters)?;
        self.free_counters.extend(taken);
        Ok(())
    }

    /// As [`KernelPasses::splice`], in the given list.
    pub(crate) fn splice_list(
        &mut self,
        list: List,
        after: Option<KernelPassId>,
        removed: &[KernelPassId],
        added: &[NewPass<'_>],
    ) -> Result<Vec<KernelPassId>, KernelEditError> {
        let following = self.following(list, after, removed)?;
        let mut cost = self.ends(list).cost;
        for id in removed {
            cost = cost.less(Cost::of(&self.get(*id)?.instructions));
        }
        for new in added {
            self.check(new.instructions)?;
            cost = cost.plus(Cost::of(new.instructions));
            if let Some(given) = new.counts_for.filter(|id| !removed.contains(id)) {
                return Err(KernelEditError::NoPass { given: given.0 });
            }
        }
        self.within_budget(cost)?;
        self.edits += 1;
        let wanted = added.iter().map(|new| slots_for(new.instructions.len())).sum();
        let mut slots = self.take_slots(wanted)?;
        let mut counters = match self.take_counters(added.len()) {
            Ok(counters) => counters,
            Err(error) => {
                self.free.extend(slots);
                return Err(error);
            }
        };
        let mut ids = Vec::with_capacity(added.len());
        let mut next = following;
        for new in added.iter().rev() {
            let own = slots.split_off(slots.len() - slots_for(new.instructions.len()));
            let fresh = counters.pop().unwrap_or(0);
            let pass = self.make(list, new, own, fresh, next);
            self.last_id += 1;
            let id = KernelPassId(self.last_id);
            self.passes.insert(id, pass);
            if let Some(following) = next.and_then(|next| self.passes.get_mut(&next)) {
                following.previous = Some(id);
            }
            next = Some(id);
            ids.push(id);
        }
        ids.reverse();
        self.relink(list, after, next, ids.last().copied().or(after), following);
        self.ends_mut(list).cost = cost;
        let place = self.place_of(self.after(list, after));
        self.link(list, after, place);
        if list == List::Main {
            self.rest_spliced(removed, &ids);
        }
        // Only now: a removed pass that is not known has no place, so a link to it would end the list.
        for id in removed {
            if let Some(pass) = self.passes.remove(id) {
                self.retired.slots.extend(pass.slots);
                let is_handed_over = added.iter().any(|new| new.counts_for == Some(*id));
                if !is_handed_over && !is_later(pass.class) {
                    self.retired.counters.push(pass.counter);
                }
            }
        }
        Ok(ids)
    }

    /// Writes a new pass that is not reachable yet.
    fn make(
        &mut self,
        list: List,
        new: &NewPass<'_>,
        slots: Vec<u32>,
        fresh: u32,
        next: Option<KernelPassId>,
    ) -> Pass {
        let old = new.counts_for.and_then(|id| self.passes.get(&id));
        let class = new.class;
        let (counter, counted_before) = match old {
            _ if is_later(class) => {
                self.free_counters.push(fresh);
                (COUNT_LATER as u32 + class % LATER as u32, 0)
            }
            Some(old) => {
                self.free_counters.push(fresh);
                (old.counter, old.counted_before)
            }
            None => (fresh, self.counters.sum(fresh as usize)),
        };
        let marks = Marks { counter, class: if is_later(class) { 0 } else { class } };
        self.write(&slots, new.instructions, marks, self.place_of(next));
        let instructions = new.instructions.to_vec();
        let version = self.edits;
        let previous = None;
        Pass { list, instructions, slots, version, counter, class, counted_before, previous, next }
    }

    /// Repairs the writer's own links around a splice.
    fn relink(
        &mut self,
        list: List,
        after: Option<KernelPassId>,
        next: Option<KernelPassId>,
        before_following: Option<KernelPassId>,
        following: Option<KernelPassId>,
    ) {
        match after.and_then(|after| self.passes.get_mut(&after)) {
            Some(pass) => pass.next = next,
            None => self.ends_mut(list).first = next,
        }
        if let Some(pass) = next.and_then(|next| self.passes.get_mut(&next)) {
            pass.previous = after;
        }
        match following.and_then(|following| self.passes.get_mut(&following)) {
            Some(pass) => pass.previous = before_following,
            None => self.ends_mut(list).last = before_following,
        }
    }

    /// The pass that follows `removed`, after a check that these are neighbours after `after`.
    fn following(
        &self,
        list: List,
        after: Option<KernelPassId>,
        removed: &[KernelPassId],
    ) -> Result<Option<KernelPassId>, KernelEditError> {
        if let Some(after) = after {
            self.get(after)?;
        }
        let mut expected = self.after(list, after);
        for &id in removed {
            if expected != Some(id) {
                return Err(KernelEditError::NoPass { given: id.0 });
            }
            expected = self.get(id)?.next;
        }
        Ok(expected)
    }

    fn after(&self, list: List, id: Option<KernelPassId>) -> Option<KernelPassId> {
        match id {
            Some(id) => self.passes.get(&id).and_then(|pass| pass.next),
            None => self.ends(list).first,
        }
    }

    fn ends(&self, list: List) -> &Ends {
        match list {
            List::Main => &self.main,
            List::Short => &self.short,
        }
    }

    fn ends_mut(&mut self, list: List) -> &mut Ends {
        match list {
            List::Main => &mut self.main,
            List::Short => &mut self.short,
        }
    }

    fn get(&self, id: KernelPassId) -> Result<&Pass, KernelEditError> {
        self.passes.get(&id).ok_or(KernelEditError::NoPass { given: id.0 })
    }

    /// Instruction number of the first instruction of a pass; for `None` the end of the list.
    fn place_of(&self, id: Option<KernelPassId>) -> u32 {
        match id.and_then(|id| self.passes.get(&id)) {
            Some(pass) => start(pass.slots[0]),
            None => 0,
        }
    }

    /// The one store that publishes an edit: sets the successor of `after`, or the head.
    fn link(&mut self, list: List, after: Option<KernelPassId>, place: u32) {
        match after.and_then(|after| self.passes.get(&after)) {
            Some(pass) => {
                for &slot in &pass.slots {
                    self.memory.publish(trailer_word(slot, NEXT), place);
                }
            }
            None if self.empty_accepts && self.ends(list).first.is_none() => {
                self.memory.publish(list.head(), start(ACCEPT_SLOT));
            }
            None => self.memory.publish(list.head(), place),
        }
    }

    /// Writes a pass to slots that are not reachable.
    fn write(&self, slots: &[u32], instructions: &[Instruction], marks: Marks, next: u32) {
        let truth = [Instruction::default()];
        let instructions = if instructions.is_empty() { &truth[..] } else { instructions };
        for (index, &slot) in slots.iter().enumerate() {
            let own = &instructions[index * TRAILER..instructions.len().min((index + 1) * TRAILER)];
            for (number, instruction) in own.iter().enumerate() {
                let last = index * TRAILER + number + 1 == instructions.len();
                let flag = if last { LAST } else { 0 };
                let instruction =
                    Instruction { command: instruction.command | flag, ..*instruction };
                self.memory.prepare_instruction(at(start(slot) + number as u32), &instruction);
            }
            let mut trailer = Instruction { command: OP_TRAILER, ..Instruction::default() };
            trailer.params[NEXT] = next;
            trailer.params[CONTINUE] = slots.get(index + 1).map_or(0, |&slot| start(slot));
            trailer.params[COUNTER] = marks.counter;
            trailer.params[CLASS] = marks.class;
            self.memory.prepare_instruction(at(start(slot) + TRAILER as u32), &trailer);
        }
    }

    /// Checks that the kernel program can run a pass; does not check that there is room for it.
    ///
    /// # Errors
    /// The first instruction that it cannot run, or there are too many.
    pub fn check(&self, instructions: &[Instruction]) -> Result<(), KernelEditError> {
        if instructions.len() > MAX_INSTRUCTIONS {
            let given = instructions.len();
            return Err(KernelEditError::PassFull { given, limit: MAX_INSTRUCTIONS });
        }
        for instruction in instructions {
            let opcode = instruction.command & fyke_pass::layout::OPCODE_MASK;
            if opcode == OP_ROWS || opcode == OP_CODE {
                continue;
            }
            instruction.validate()?;
            if matches!(instruction.opcode(), Some(Opcode::Cond | Opcode::Passes)) {
                return Err(KernelEditError::Unsupported { test: instruction.to_string() });
            }
        }
        Ok(())
    }

    fn within_budget(&self, cost: Cost) -> Result<(), KernelEditError> {
        for (given, limit) in [(cost.instructions, self.budget), (cost.code, CODE_LIMIT)] {
            if given > limit as usize {
                return Err(KernelEditError::Budget { given, limit });
            }
        }
        Ok(())
    }

    fn take_slots(&mut self, count: usize) -> Result<Vec<u32>, KernelEditError> {
        if self.free.len() < count {
            self.reclaim(|passes| passes.free.len() >= count)?;
        } else if self.free.len() < SLOTS / 2 {
            self.begin_reclaiming();
        }
        let rest = self.free.len().checked_sub(count);
        let rest = rest.ok_or(KernelEditError::Full { limit: SLOTS - 2 })?;
        Ok(self.free.split_off(rest))
    }

    fn take_counters(&mut self, count: usize) -> Result<Vec<u32>, KernelEditError> {
        if self.free_counters.len() < count {
            self.reclaim(|passes| passes.free_counters.len() >= count)?;
        }
        let rest = self.free_counters.len().checked_sub(count);
        let rest = rest.ok_or(KernelEditError::Full { limit: COUNT_LATER - FIRST_PASS_COUNTER })?;
        Ok(self.free_counters.split_off(rest))
    }

    /// Retires a table that no pass in force refers to. Its rows stay until running programs have ended.
    pub(crate) fn retire_table(&mut self, table: TableId, members: Members) {
        self.retired.tables.push((table, members));
    }

    /// Makes a table with these members. If there is no room, retired memory is reclaimed first.
    pub(crate) fn table(&mut self, members: &Members) -> Result<TableId, KernelEditError> {
        if !self.rows.has_room(members) {
            self.reclaim(|passes| passes.rows.has_room(members))?;
        }
        self.rows.table(members)
    }
}

fn pick(
    instructions: &mut [Instruction],
    index: usize,
) -> Result<&mut Instruction, KernelEditError> {
    let length = instructions.len();
    instructions.get_mut(index).ok_or(KernelEditError::NoInstruction { given: index, length })
}

fn slots_for(instructions: usize) -> usize {
    instructions.div_ceil(TRAILER).max(1)
}

/// Instructions that the program executes for a pass that fails at its last instruction.
fn steps(instructions: usize) -> usize {
    instructions.max(1) + slots_for(instructions) - 1
}

mod lists;
mod retired;
#[cfg(test)]
mod tests;
mod tier;

use lists::{Cost, Ends};
pub(crate) use lists::{List, Splice};
use retired::{Ending, Retired};
use tier::Tier;
pub(crate) use tier::{Covered, live_word};
