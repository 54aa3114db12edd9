//! The list of live passes in the shared memory, and how it is edited while the program runs.
//!
//! Every edit is a *splice*: new passes are written to free slots, linked to each other and to what follows, and one
//! release store of a `next` word (or of the head) puts them in the place of a stretch of the list, which may be
//! empty. So any number of neighbouring passes appear, change or go away in one step, and a frame sees the list
//! before it or after it. The slots that were taken out keep their contents until a grace period has passed; that is
//! waited for when slots run out, not per edit. An edit is O(instructions written), whatever the size of the list.
//!
//! A pass of several slots has several `next` words; a frame reads exactly one of them, so it makes no difference that
//! they are stored one after the other.

use crate::error::KernelEditError;
use crate::layout::{
    ACCEPT_SLOT, CONTINUE, COUNT_EMPTY, COUNTER, COUNTERS, Control, FIRST_PASS_COUNTER,
    FLAG_COUNT_REJECTED, LAST, NEXT, OP_ROWS, OP_TRAILER, SLOT_INSTRUCTIONS, SLOTS, TRAILER,
};
use crate::rows::{Rows, TableId};
use crate::space::{Counters, Options};
use crate::sys::{self, Mapped};
use fyke_pass::{Instruction, Opcode};
use std::collections::HashMap;
use std::io;
use std::mem::{offset_of, size_of, take};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Number of a pass in the kernel, from 1; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelPassId(pub u32);

/// Most instructions of a pass.
pub const MAX_INSTRUCTIONS: usize = 64;

/// A pass to be.
#[derive(Debug, Clone, Copy)]
pub struct NewPass<'a> {
    /// What it tests.
    pub instructions: &'a [Instruction],
    /// The pass, removed in the same splice, whose count it goes on with.
    pub counts_for: Option<KernelPassId>,
}

#[derive(Debug)]
struct Pass {
    instructions: Vec<Instruction>,
    slots: Vec<u32>,
    /// Which edit wrote it.
    version: u64,
    counter: u32,
    /// What the counter held when the pass got it.
    counted_before: u64,
    previous: Option<KernelPassId>,
    next: Option<KernelPassId>,
}

/// The writer of the shared memory. There is one for each set of maps.
#[derive(Debug)]
pub struct KernelPasses {
    memory: Mapped,
    rows: Rows,
    counters: Arc<Counters>,
    budget: u32,
    passes: HashMap<KernelPassId, Pass>,
    first: Option<KernelPassId>,
    last: Option<KernelPassId>,
    last_id: u32,
    /// Instructions that a frame executes in the worst case.
    cost: usize,
    /// Edits so far.
    edits: u64,
    tier: Tier,
    /// What happens to frames while there is no pass.
    empty_accepts: bool,
    free: Vec<u32>,
    free_counters: Vec<u32>,
    /// Slots and counters that running programs may still be in.
    retired: Vec<u32>,
    retired_counters: Vec<u32>,
    retired_tables: Vec<(TableId, Vec<u64>)>,
    /// What was retired earlier, and the thread that waits for its readers.
    ending: Option<Ending>,
}

/// Retired things whose grace period has begun.
#[derive(Debug)]
struct Ending {
    slots: Vec<u32>,
    counters: Vec<u32>,
    tables: Vec<(TableId, Vec<u64>)>,
    wait: JoinHandle<io::Result<()>>,
}

/// Byte offset of an instruction.
fn at(instruction: u32) -> usize {
    size_of::<Control>() + instruction as usize * size_of::<Instruction>()
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
    /// Bytes of the map of passes that are used.
    pub const BYTES: usize =
        size_of::<Control>() + SLOTS * SLOT_INSTRUCTIONS * size_of::<Instruction>();

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
        let flags = if options.count_rejected { FLAG_COUNT_REJECTED } else { 0 };
        memory.prepare(offset_of!(Control, flags), flags);
        memory.publish(offset_of!(Control, head), start(ACCEPT_SLOT));
        KernelPasses {
            memory,
            rows: Rows::new(rows),
            counters,
            budget: options.budget,
            passes: HashMap::new(),
            first: None,
            last: None,
            last_id: 0,
            cost: 0,
            edits: 0,
            tier: Tier::default(),
            empty_accepts: true,
            free: (ACCEPT_SLOT + 1..SLOTS as u32).rev().collect(),
            free_counters: (FIRST_PASS_COUNTER as u32..COUNTERS as u32).rev().collect(),
            retired: Vec::new(),
            retired_counters: Vec::new(),
            retired_tables: Vec::new(),
            ending: None,
        }
    }

    /// Number of live passes.
    pub fn len(&self) -> usize {
        self.passes.len()
    }

    /// Whether there is no pass.
    pub fn is_empty(&self) -> bool {
        self.passes.is_empty()
    }

    /// The tables that instructions name.
    pub fn rows(&mut self) -> &mut Rows {
        &mut self.rows
    }

    /// The live passes in the order of evaluation.
    pub fn ids(&self) -> impl Iterator<Item = KernelPassId> {
        std::iter::successors(self.first, |id| self.passes.get(id).and_then(|pass| pass.next))
    }

    /// The last live pass.
    pub fn last(&self) -> Option<KernelPassId> {
        self.last
    }

    /// The instructions of a pass.
    pub fn instructions(&self, id: KernelPassId) -> Option<&[Instruction]> {
        self.passes.get(&id).map(|pass| &pass.instructions[..])
    }

    /// Frames that a pass accepted since it was made; edits of it do not start over.
    pub fn accepted(&self, id: KernelPassId) -> Option<u64> {
        let pass = self.passes.get(&id)?;
        Some(self.counters.sum(pass.counter as usize).wrapping_sub(pass.counted_before))
    }

    /// Changes what is kept of accepted frames.
    pub fn set_accept(&mut self, value: u32) {
        self.memory.publish(offset_of!(Control, accept), value);
    }

    /// Whether frames are accepted while there is no pass. They are, unless said otherwise.
    pub fn set_empty_accepts(&mut self, accepts: bool) {
        self.empty_accepts = accepts;
        self.link(None, self.place_of(self.first));
        self.publish_rest();
    }

    /// Adds a pass behind the others (`NewPass` and `SelectOp` in one).
    pub fn add(&mut self, instructions: &[Instruction]) -> Result<KernelPassId, KernelEditError> {
        let ids = self.splice(self.last, &[], &[NewPass { instructions, counts_for: None }])?;
        Ok(ids[0])
    }

    /// Adds a copy of a pass behind the others (`DupPass`).
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

    /// Replaces all instructions of a pass; it keeps its place and its count.
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

    /// Does what must never be done: writes an instruction of a live pass in its place, the words one after the
    /// other, with `pause` in between. The test of the publish protocol calls it to show that it would notice.
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

    /// Writes anywhere, anything: what a hostile writer could do.
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
        let (previous, counter) = (pass.previous, pass.counter);
        let mut instructions = pass.instructions.clone();
        change(&mut instructions)?;
        self.check(&instructions)?;
        let cost = self.cost - steps(self.get(id)?.instructions.len()) + steps(instructions.len());
        self.within_budget(cost)?;
        let slots = self.take_slots(slots_for(instructions.len()))?;
        let next = self.get(id)?.next;
        self.write(&slots, &instructions, counter, self.place_of(next));
        self.link(previous, start(slots[0]));
        self.cost = cost;
        self.edits += 1;
        let version = self.edits;
        if let Some(pass) = self.passes.get_mut(&id) {
            pass.instructions = instructions;
            pass.version = version;
            let old = std::mem::replace(&mut pass.slots, slots);
            self.retired.extend(old);
        }
        self.rest_changed(id);
        Ok(())
    }

    /// Puts new passes in the place of neighbouring ones, in one step. `removed` are the passes behind `after`, in
    /// order; either list may be empty.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn splice(
        &mut self,
        after: Option<KernelPassId>,
        removed: &[KernelPassId],
        added: &[NewPass<'_>],
    ) -> Result<Vec<KernelPassId>, KernelEditError> {
        let following = self.following(after, removed)?;
        let mut cost = self.cost;
        for id in removed {
            cost -= steps(self.get(*id)?.instructions.len());
        }
        for new in added {
            self.check(new.instructions)?;
            cost += steps(new.instructions.len());
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
            let pass = self.make(new, own, fresh, next);
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
        self.relink(after, next, ids.last().copied().or(after), following);
        for id in removed {
            if let Some(pass) = self.passes.remove(id) {
                self.retired.extend(pass.slots);
                if !added.iter().any(|new| new.counts_for == Some(*id)) {
                    self.retired_counters.push(pass.counter);
                }
            }
        }
        self.cost = cost;
        let place = self.place_of(self.after(after));
        self.link(after, place);
        self.rest_spliced(removed, &ids);
        Ok(ids)
    }

    /// Writes a new pass that nothing points to yet.
    fn make(
        &mut self,
        new: &NewPass<'_>,
        slots: Vec<u32>,
        fresh: u32,
        next: Option<KernelPassId>,
    ) -> Pass {
        let old = new.counts_for.and_then(|id| self.passes.get(&id));
        let (counter, counted_before) = match old {
            Some(old) => {
                self.free_counters.push(fresh);
                (old.counter, old.counted_before)
            }
            None => (fresh, self.counters.sum(fresh as usize)),
        };
        self.write(&slots, new.instructions, counter, self.place_of(next));
        let instructions = new.instructions.to_vec();
        let version = self.edits;
        Pass { instructions, slots, version, counter, counted_before, previous: None, next }
    }

    /// Repairs the writer's own links around a splice.
    fn relink(
        &mut self,
        after: Option<KernelPassId>,
        next: Option<KernelPassId>,
        before_following: Option<KernelPassId>,
        following: Option<KernelPassId>,
    ) {
        match after.and_then(|after| self.passes.get_mut(&after)) {
            Some(pass) => pass.next = next,
            None => self.first = next,
        }
        if let Some(pass) = next.and_then(|next| self.passes.get_mut(&next)) {
            pass.previous = after;
        }
        match following.and_then(|following| self.passes.get_mut(&following)) {
            Some(pass) => pass.previous = before_following,
            None => self.last = before_following,
        }
    }

    /// What comes behind `removed`, after checking that these are neighbours behind `after`.
    fn following(
        &self,
        after: Option<KernelPassId>,
        removed: &[KernelPassId],
    ) -> Result<Option<KernelPassId>, KernelEditError> {
        if let Some(after) = after {
            self.get(after)?;
        }
        let mut expected = self.after(after);
        for &id in removed {
            if expected != Some(id) {
                return Err(KernelEditError::NoPass { given: id.0 });
            }
            expected = self.get(id)?.next;
        }
        Ok(expected)
    }

    fn after(&self, id: Option<KernelPassId>) -> Option<KernelPassId> {
        match id {
            Some(id) => self.passes.get(&id).and_then(|pass| pass.next),
            None => self.first,
        }
    }

    fn get(&self, id: KernelPassId) -> Result<&Pass, KernelEditError> {
        self.passes.get(&id).ok_or(KernelEditError::NoPass { given: id.0 })
    }

    /// Instruction number where a pass starts; behind the last one the list ends.
    fn place_of(&self, id: Option<KernelPassId>) -> u32 {
        match id.and_then(|id| self.passes.get(&id)) {
            Some(pass) => start(pass.slots[0]),
            None => 0,
        }
    }

    /// The one store that publishes: where to go behind `after`, or at the start.
    fn link(&mut self, after: Option<KernelPassId>, place: u32) {
        match after.and_then(|after| self.passes.get(&after)) {
            Some(pass) => {
                for &slot in &pass.slots {
                    self.memory.publish(trailer_word(slot, NEXT), place);
                }
            }
            None if self.passes.is_empty() => {
                let place = if self.empty_accepts { start(ACCEPT_SLOT) } else { 0 };
                self.memory.publish(offset_of!(Control, head), place);
            }
            None => self.memory.publish(offset_of!(Control, head), place),
        }
    }

    /// Writes a pass to slots that nothing points to.
    fn write(&self, slots: &[u32], instructions: &[Instruction], counter: u32, next: u32) {
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
            trailer.params[COUNTER] = counter;
            self.memory.prepare_instruction(at(start(slot) + TRAILER as u32), &trailer);
        }
    }

    /// Whether a pass could run in the kernel; its room is not looked at.
    ///
    /// # Errors
    /// The first instruction that could not, or that there are too many.
    pub fn check(&self, instructions: &[Instruction]) -> Result<(), KernelEditError> {
        if instructions.len() > MAX_INSTRUCTIONS {
            let given = instructions.len();
            return Err(KernelEditError::PassFull { given, limit: MAX_INSTRUCTIONS });
        }
        for instruction in instructions {
            if instruction.command & fyke_pass::layout::OPCODE_MASK == OP_ROWS {
                continue;
            }
            instruction.validate()?;
            if matches!(instruction.opcode(), Some(Opcode::Cond | Opcode::DSet6)) {
                return Err(KernelEditError::Unsupported { test: instruction.to_string() });
            }
        }
        Ok(())
    }

    fn within_budget(&self, cost: usize) -> Result<(), KernelEditError> {
        let limit = self.budget;
        if cost > limit as usize {
            Err(KernelEditError::Budget { given: cost, limit })
        } else {
            Ok(())
        }
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
        let rest = rest.ok_or(KernelEditError::Full { limit: COUNTERS - FIRST_PASS_COUNTER })?;
        Ok(self.free_counters.split_off(rest))
    }

    /// Waits until no program can be in what was taken out, and makes it free. First what another thread has waited for
    /// already, which may be enough.
    fn reclaim(&mut self, enough: impl Fn(&Self) -> bool) -> Result<(), KernelEditError> {
        let full = KernelEditError::Full { limit: SLOTS - 2 };
        if !self.collect(true) {
            return Err(full);
        }
        let tables = &self.retired_tables;
        let nothing = self.retired.is_empty() && self.retired_counters.is_empty();
        if enough(self) || nothing && tables.is_empty() {
            return Ok(());
        }
        sys::wait_for_readers().map_err(|_| full)?;
        let (slots, counters) = (take(&mut self.retired), take(&mut self.retired_counters));
        let tables = take(&mut self.retired_tables);
        self.release(slots, counters, tables);
        Ok(())
    }

    /// Starts a thread that waits, long before slots run out, so that the edit need not. When there is no thread to be
    /// had, the edit that finds no slot waits itself.
    fn begin_reclaiming(&mut self) {
        if !self.collect(false) || self.ending.is_some() || self.retired.is_empty() {
            return;
        }
        let thread = std::thread::Builder::new().name("fyke-grace".into());
        if let Ok(wait) = thread.spawn(sys::wait_for_readers) {
            let (slots, counters) = (take(&mut self.retired), take(&mut self.retired_counters));
            let tables = take(&mut self.retired_tables);
            self.ending = Some(Ending { slots, counters, tables, wait });
        }
    }

    /// Takes back what a thread has waited for, if it is done or is to be waited for. False when waiting failed.
    fn collect(&mut self, wait: bool) -> bool {
        match self.ending.take() {
            Some(ending) if wait || ending.wait.is_finished() => {
                if !matches!(ending.wait.join(), Ok(Ok(()))) {
                    self.retired.extend(ending.slots);
                    self.retired_counters.extend(ending.counters);
                    self.retired_tables.extend(ending.tables);
                    return false;
                }
                self.release(ending.slots, ending.counters, ending.tables);
            }
            still => self.ending = still,
        }
        true
    }

    fn release(&mut self, slots: Vec<u32>, counters: Vec<u32>, tables: Vec<(TableId, Vec<u64>)>) {
        self.free.extend(slots);
        self.free_counters.extend(counters);
        for (table, keys) in tables {
            for key in keys {
                self.rows.remove(table, key);
            }
            self.rows.free_table(table);
        }
    }

    /// A table that live passes no longer name. Its rows stay until running programs have ended.
    pub(crate) fn retire_table(&mut self, table: TableId, keys: Vec<u64>) {
        self.retired_tables.push((table, keys));
    }

    /// A new table with these rows. What was retired makes room when there is none.
    pub(crate) fn table(&mut self, keys: &[u64]) -> Result<TableId, KernelEditError> {
        let full = KernelEditError::RowsFull { rows: self.rows.used(), limit: Rows::CAPACITY };
        if self.rows.used() + keys.len() > Rows::CAPACITY / 2 {
            let room = Rows::CAPACITY / 2;
            self.reclaim(|passes| passes.rows.used() + keys.len() <= room)?;
        }
        let table = self.rows.new_table().ok_or(full)?;
        for (count, &key) in keys.iter().enumerate() {
            if let Err(error) = self.rows.insert(table, key) {
                keys[..count].iter().for_each(|&key| {
                    self.rows.remove(table, key);
                });
                self.rows.free_table(table);
                return Err(error);
            }
        }
        Ok(table)
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

/// Steps of the program for a pass that fails at its end.
fn steps(instructions: usize) -> usize {
    instructions.max(1) + slots_for(instructions) - 1
}

#[cfg(test)]
mod tests;
mod tier;

use tier::Tier;
pub(crate) use tier::{Covered, live_word};
