//! Edits: groups of changes to a pass set that take effect together.
//!
//! An [`Edit`] works on a copy of the state (a few references) and is either committed, which publishes one new
//! epoch, or dropped, which leaves no trace. Each call costs O(log passes) plus the size of the pass it touches;
//! changing a member of a set of n values copies the set once per edit, O(n). The calls are those of the papers'
//! libraries (`SPF_NewPass`, `SPF_DelPass`, `SPF_DupPass`, `SPF_SelectOp`, `SPF_AddParam`, `SPF_DelParam`,
//! `SPF_PokeInst`; `SPF_Open` is [`PassSet::new`]). Source: Swift, section 4.2; NPF, chapter IV.
//!
//! Editing a pass of a text detaches the whole text: from then on its passes are judged without the text, and an
//! out-of-bounds load fails only the pass that makes it, no longer the filter.

use crate::isa::id::RowRef;
use crate::isa::id::{Epoch, FilterId, PassId};
use crate::isa::id::{RowId, ShapeId};
use crate::isa::instruction::InstructionError;
use crate::isa::layout::{Instruction, Opcode};
use crate::isa::value_set::{SetId, ValueSet};
use crate::lower::{LowerError, MAX_INSTRUCTIONS};
use crate::plan::snapshot::same_link;
use crate::state::{Body, FilterRow, PassRow, State};
use crate::writer::changes::Changes;
use crate::writer::changes::RowChange;
use crate::writer::check::{check, set_of};
use crate::writer::error::EditError;
use crate::writer::lowered::{LoweredFilter, Named};
use crate::writer::pass_set::{Capacity, PassSet};
use crate::writer::staged::Staged;
use fyke_filter::Predicate;
use fyke_frame::{Condition, LinkType};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// "No pass" as the result of [`Edit::try_add_row`].
const NO_PASS: u64 = 0;

/// A group of changes; see the module.
#[must_use = "an edit that is not committed changes nothing"]
#[derive(Debug)]
pub struct Edit<'a> {
    pub(crate) set: &'a mut PassSet,
    /// Changes, except those of rows of declared shapes; made with the first change.
    pub(crate) work: Option<Box<Changes>>,
}

impl PassSet {
    /// Starts a group of changes.
    pub fn edit(&mut self) -> Edit<'_> {
        Edit::new(self)
    }
}

impl<'a> Edit<'a> {
    pub(crate) fn new(set: &'a mut PassSet) -> Self {
        Edit { set, work: None }
    }

    fn work(&mut self) -> &mut Changes {
        let set = &*self.set;
        self.work.get_or_insert_with(|| {
            Box::new(Changes {
                state: set.state().clone(),
                touched: BTreeSet::new(),
                regrouped: Vec::new(),
                detached: false,
                removed_filters: Some(Vec::new()),
                own_sets: HashMap::new(),
                new_conditions: HashMap::new(),
            })
        })
    }

    /// The state with the changes so far.
    fn state(&self) -> &State {
        self.work.as_ref().map_or(self.set.state(), |work| &work.state)
    }

    /// Makes the changes effective: a frame is judged under the new epoch if a reader refreshed and began to evaluate
    /// it after this returned. An edit without changes returns the current epoch.
    #[inline]
    pub fn commit(self) -> Epoch {
        match self.work {
            Some(_) => self.stage().publish(),
            None => self.set.publish_rows(),
        }
    }

    /// Does all of [`Edit::commit`], but readers do not see the changes yet; they can no longer be undone.
    pub fn stage(self) -> Staged<'a> {
        Staged::new(self)
    }

    /// Lowers a filter text and adds its passes as one filter. A text that would become too many passes is added as by
    /// [`Edit::add_ordered`]; [`FilterView::too_large`](crate::FilterView::too_large) has the reason. A text in the
    /// scoped reading always is: it tests headers at any depth.
    ///
    /// # Errors
    /// [`LowerError`] if the text was compiled for another link type or the set is full; then nothing has changed.
    pub fn add_filter(&mut self, predicate: &Predicate) -> Result<FilterId, LowerError> {
        self.same_link(predicate.link())?;
        self.add_lowered(LoweredFilter::new(predicate)?)
    }

    /// Adds a filter text as one pass for which the ordered evaluator judges frame by frame. This is slow, and editing
    /// the pass has no use.
    pub fn add_ordered(&mut self, predicate: &Predicate) -> Result<FilterId, LowerError> {
        self.add_lowered(LoweredFilter::ordered(predicate))
    }

    /// Lowers a condition and adds its passes as one filter, or adds it for the ordered evaluator if it would become
    /// too many passes. Views and errors show `text`.
    ///
    /// # Errors
    /// [`LowerError`] if the condition is nested too deeply or the set is full; then nothing has changed.
    pub fn add_condition(
        &mut self,
        condition: Arc<Condition>,
        text: &str,
    ) -> Result<FilterId, LowerError> {
        self.add_lowered(LoweredFilter::of_condition(condition, text)?)
    }

    /// Adds the passes of a text that was lowered before, as one filter.
    ///
    /// [`LowerError::Link`], [`LowerError::Full`]; then nothing has changed.
    /// [`LowerError::Link`], [`LowerError::Full`]; nothing has changed then.
    pub fn add_lowered(&mut self, mut lowered: LoweredFilter) -> Result<FilterId, LowerError> {
        lowered.link.map_or(Ok(()), |link| self.same_link(link))?;
        let Capacity { passes: limit, .. } = self.set.capacity();
        if self.pass_count() + lowered.passes.len() > limit {
            return Err(LowerError::Full { limit });
        }
        self.number(std::mem::take(&mut lowered.named), &mut lowered.passes);
        let LoweredFilter { text, oracle, passes, needs, too_large, .. } = lowered;
        let needs = self.set.share(needs);
        let work = self.work();
        work.state.last_filter += 1;
        let id = FilterId(work.state.last_filter);
        let first = work.state.last_pass + 1;
        for instructions in passes {
            self.append(row(instructions, 0, None, Some(id)));
        }
        let state = &mut self.work().state;
        let passes = first..state.last_pass + 1;
        let ordered = Some((oracle, needs));
        state.filters.insert(id.0, FilterRow { text, ordered, too_large, passes });
        Ok(id)
    }

    /// Removes a filter and its passes. Children that were duplicated from them become children of the passes' parents.
    pub fn remove_filter(&mut self, id: FilterId) -> Result<(), EditError> {
        let work = self.work();
        let row = work.state.filters.remove(id.0).ok_or(EditError::NoFilter { given: id })?;
        work.state.modified_filters -= usize::from(row.ordered.is_none());
        if let Some(removed) = &mut work.removed_filters {
            removed.push(id);
        }
        for pass in row.passes.clone() {
            let own = work.state.pass(PassId(pass)).is_some_and(|row| row.filter == Some(id));
            if own {
                work.state.remove(PassId(pass));
                work.touched.insert(PassId(pass));
            }
        }
        Ok(())
    }

    /// Removes everything but the declared shapes; an empty set accepts every frame.
    pub fn clear(&mut self) {
        let work = self.work();
        work.touched.extend(work.state.passes.iter().map(|(id, _)| PassId(id)));
        work.removed_filters = None;
        work.state = State {
            last_pass: work.state.last_pass,
            last_filter: work.state.last_filter,
            last_set: work.state.last_set,
            last_condition: work.state.last_condition,
            ..State::default()
        };
        self.set.end_all_rows();
    }

    /// Adds a pass without instructions, which accepts every frame until it gets some (`SPF_NewPass`).
    pub fn new_pass(&mut self) -> Result<PassId, EditError> {
        self.room()?;
        Ok(self.append(row(Vec::new(), 0, None, None)))
    }

    /// Adds a bit-exact copy as a child of the given pass, with all instructions marked as copied (`SPF_DupPass`). It
    /// belongs to no filter.
    pub fn duplicate_pass(&mut self, parent: PassId) -> Result<PassId, EditError> {
        self.room()?;
        let body =
            self.state().pass(parent).ok_or(EditError::NoPass { given: parent })?.body.clone();
        let copied = ones(body.instructions.len());
        // From now on two passes name the sets.
        for instruction in &body.instructions {
            let sets = &mut self.work().own_sets;
            if let Some(owner) = set_of(instruction).and_then(|set| sets.get_mut(&set)) {
                *owner = None;
            }
        }
        self.work().regrouped.push(parent);
        Ok(self.append(row(body.instructions.clone(), copied, Some(parent), None)))
    }

    /// Deletes a pass; its children become children of its parent (`SPF_DelPass`).
    pub fn delete_pass(&mut self, id: PassId) -> Result<(), EditError> {
        self.detach(id)?;
        let work = self.work();
        work.state.remove(id);
        work.touched.insert(id);
        Ok(())
    }

    /// Replaces the instruction at `index`, or appends it if the pass has `index` instructions (`SPF_SelectOp`, with
    /// the predefined operations of [`crate::primitive`]).
    pub fn set_instruction(
        &mut self,
        id: PassId,
        index: usize,
        instruction: Instruction,
    ) -> Result<(), EditError> {
        check(&instruction, self.state())?;
        let limit = self.set.capacity().instructions;
        let body = self.body(id)?;
        let length = body.instructions.len();
        if index > length {
            return Err(EditError::NoInstruction { given: index, length });
        }
        if index == limit {
            return Err(EditError::PassFull { limit });
        }
        self.detach(id)?;
        let body = self.body(id)?;
        if index == length {
            body.instructions.push(instruction);
        } else {
            body.instructions[index] = instruction;
        }
        body.copied &= !(1 << index);
        Ok(())
    }

    /// Adds a value to the alternatives of an instruction, or to the set that it names (`SPF_AddParam`). Does nothing
    /// if it is already there.
    pub fn add_operand(&mut self, id: PassId, index: usize, value: u32) -> Result<(), EditError> {
        self.change_operand(id, index, value, true)
    }

    /// Removes a value from the alternatives of an instruction, or from the set that it names (`SPF_DelParam`).
    /// Without alternatives an instruction is false (negated: true).
    pub fn remove_operand(
        &mut self,
        id: PassId,
        index: usize,
        value: u32,
    ) -> Result<(), EditError> {
        self.change_operand(id, index, value, false)
    }

    /// Overwrites one word of an instruction, 0 = the command word (`SPF_PokeInst`). The result must be a valid
    /// instruction.
    pub fn poke(
        &mut self,
        id: PassId,
        index: usize,
        word: usize,
        value: u32,
    ) -> Result<(), EditError> {
        let mut instruction = self.instruction(id, index)?;
        match word {
            0 => instruction.command = value,
            1..=7 => instruction.params[word - 1] = value,
            _ => return Err(EditError::NoWord { given: word }),
        }
        self.set_instruction(id, index, instruction)
    }

    /// Adds a row to a declared shape: a pass with the shape's instructions. `operands` has one value for each word of
    /// the varying instructions. About 25 ns; see [`PassSet::new_shape`].
    ///
    /// # Errors
    /// [`EditError::NoShape`], [`EditError::Operands`], [`EditError::SameRow`], [`EditError::Full`]
    ///
    /// PERF: the numbers are returned in two registers and a refusal through `set.refused`. A `Result` in memory is
    /// stored word by word and loaded as one (a store-forwarding stall), which costs as much as the table.
    #[inline]
    pub fn add_row(&mut self, shape: ShapeId, operands: &[u32]) -> Result<RowId, EditError> {
        let (pass, row) = self.try_add_row(shape, operands);
        match self.set.refused.take_if(|_| pass == NO_PASS) {
            Some(refused) => Err(refused),
            None => Ok(RowId { pass: PassId(pass), row }),
        }
    }

    /// Number and reference of the row; [`NO_PASS`] if it is refused, with the reason in `set.refused`.
    fn try_add_row(&mut self, shape: ShapeId, operands: &[u32]) -> (u64, RowRef) {
        let state = match &mut self.work {
            Some(work) => &mut work.state,
            None => &mut self.set.state,
        };
        let (pass, limit) = (state.last_pass + 1, self.set.capacity.passes);
        let room = state.passes.len() + self.set.shapes.declared_rows() < limit;
        let born = self.set.epoch.next();
        let added = match room {
            true => {
                let readers = &self.set.shared;
                self.set.shapes.add_declared(shape.0, operands, pass, born, readers)
            }
            false => Err(EditError::Full { limit }),
        };
        match added {
            Ok(row) => {
                state.last_pass = pass;
                self.set.changes.push(RowChange::added(row));
                (pass, row)
            }
            Err(error) => {
                self.set.refused = Some(error);
                (NO_PASS, RowRef::new(0, 0))
            }
        }
    }

    /// Removes a row of a declared shape.
    ///
    /// # Errors
    /// [`EditError::NoPass`] if it no longer exists.
    #[inline]
    pub fn remove_row(&mut self, id: RowId) -> Result<(), EditError> {
        if !self.set.shapes.end_declared(id.row, id.pass, self.set.epoch.next()) {
            return Err(EditError::NoPass { given: id.pass });
        }
        self.set.changes.push(RowChange::ended(id.row));
        Ok(())
    }

    /// Gives a row other operands: this makes a new row, at the end of the order of evaluation. A refusal changes
    /// nothing.
    ///
    /// # Errors
    /// Those of [`Edit::add_row`] and [`Edit::remove_row`]
    #[inline]
    pub fn change_row(&mut self, id: RowId, operands: &[u32]) -> Result<RowId, EditError> {
        self.remove_row(id)?;
        let added = self.add_row(ShapeId(id.row.shape()), operands);
        if added.is_err() && self.set.changes.pop().is_some() {
            self.set.shapes.undo_end(id.row);
        }
        added
    }

    /// Makes a set that instructions of this edit may name. `commit` drops a set that no instruction names.
    pub fn new_set(&mut self, values: ValueSet) -> SetId {
        let number = self.add_set(values);
        SetId(number)
    }

    fn change_operand(
        &mut self,
        id: PassId,
        index: usize,
        value: u32,
        add: bool,
    ) -> Result<(), EditError> {
        let mut instruction = self.instruction(id, index)?;
        let Some(number) = set_of(&instruction) else {
            if add {
                instruction.add_operand(value)?;
            } else {
                instruction.remove_operand(value)?;
            }
            return self.set_instruction(id, index, instruction);
        };
        let set = self.state().sets.get(number.into()).ok_or(EditError::NoSet { given: number })?;
        if set.inner().is_some() {
            return Err(EditError::SetOfPasses { given: number });
        }
        if set.holds_addresses() {
            return Err(EditError::SetKind { given: number, addresses: true });
        }
        if !add && !set.contains(value) {
            return Err(InstructionError::OperandAbsent { given: value }.into());
        }
        let set = set.clone();
        let own = self.work().own_sets.get(&number) == Some(&Some((id, index)));
        let number = if own { number } else { self.add_set((*set).clone()) };
        drop(set);
        if let Some(set) = self.work().state.sets.get_mut(number.into()) {
            let set = Arc::make_mut(set);
            if add {
                set.insert(value)
            } else {
                set.remove(value)
            };
        }
        let slot = usize::from(Opcode::DSet.form().first_operand);
        instruction.params[slot] = number;
        self.work().own_sets.insert(number, Some((id, index)));
        self.set_instruction(id, index, instruction)
    }

    fn same_link(&self, given: LinkType) -> Result<(), LowerError> {
        let expected = self.set.link();
        if same_link(given, expected) { Ok(()) } else { Err(LowerError::Link { given, expected }) }
    }

    /// Adds lowered passes that belong to no filter.
    pub(crate) fn add_passes(&mut self, mut passes: Vec<Vec<Instruction>>, named: Named) {
        self.number(named, &mut passes);
        for instructions in passes {
            self.append(row(instructions, 0, None, None));
        }
    }

    /// Stores the sets and conditions of lowered passes and writes their numbers into the instructions.
    fn number(&mut self, named: Named, passes: &mut [Vec<Instruction>]) {
        let sets: Vec<u32> = named.sets.into_iter().map(|set| self.add_set(set)).collect();
        let conditions =
            named.conditions.iter().map(|condition| self.add_condition_once(condition));
        let conditions: Vec<u32> = conditions.collect();
        if sets.is_empty() && conditions.is_empty() {
            return;
        }
        for instruction in passes.iter_mut().flatten() {
            let Some(opcode) = instruction.opcode() else { continue };
            let numbers = match opcode {
                Opcode::DSet | Opcode::L1Set | Opcode::DSet6 | Opcode::Passes => &sets,
                Opcode::Cond => &conditions,
                _ => continue,
            };
            let number = &mut instruction.params[usize::from(opcode.form().first_operand)];
            *number = numbers[*number as usize];
        }
    }

    /// Appends a pass to the state.
    fn append(&mut self, row: PassRow) -> PassId {
        let work = self.work();
        let id = work.state.append(row);
        work.touched.insert(id);
        id
    }

    fn pass_count(&self) -> usize {
        self.state().passes.len() + self.set.declared_rows()
    }

    fn room(&self) -> Result<(), EditError> {
        let limit = self.set.capacity().passes;
        if self.pass_count() >= limit { Err(EditError::Full { limit }) } else { Ok(()) }
    }

    /// Detaches the text of a pass: from now on its passes are judged without the text.
    fn detach(&mut self, id: PassId) -> Result<(), EditError> {
        let row = self.state().pass(id).ok_or(EditError::NoPass { given: id })?;
        if let Some(filter) = row.filter {
            let work = self.work();
            if let Some(row) =
                work.state.filters.get_mut(filter.0).filter(|row| row.ordered.is_some())
            {
                row.ordered = None;
                work.state.modified_filters += 1;
                work.detached = true;
            }
        }
        Ok(())
    }

    /// The body of a pass, for a change.
    fn body(&mut self, id: PassId) -> Result<&mut Body, EditError> {
        let work = self.work();
        let row = work.state.passes.get_mut(id.0).ok_or(EditError::NoPass { given: id })?;
        work.touched.insert(id);
        Ok(Arc::make_mut(&mut row.body))
    }

    fn instruction(&self, id: PassId, index: usize) -> Result<Instruction, EditError> {
        let row = self.state().pass(id).ok_or(EditError::NoPass { given: id })?;
        let length = row.body.instructions.len();
        let gone = EditError::NoInstruction { given: index, length };
        row.body.instructions.get(index).copied().ok_or(gone)
    }

    fn add_set(&mut self, set: ValueSet) -> u32 {
        let work = self.work();
        work.state.last_set += 1;
        let number = work.state.last_set;
        work.state.sets.insert(number.into(), Arc::new(set));
        work.own_sets.insert(number, None);
        number
    }

    /// The number of a condition; adds the condition if necessary.
    fn add_condition_once(&mut self, condition: &Arc<Condition>) -> u32 {
        if let Some(number) = self.set.condition_number(condition)
            && self.state().conditions.get(number.into()).is_some()
        {
            return number;
        }
        let work = self.work();
        if let Some(&number) = work.new_conditions.get(condition)
            && work.state.conditions.get(number.into()).is_some()
        {
            return number;
        }
        work.state.last_condition += 1;
        let number = work.state.last_condition;
        work.state.conditions.insert(number.into(), condition.clone());
        work.new_conditions.insert(condition.clone(), number);
        number
    }
}

impl Drop for Edit<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.set.changes.is_empty() {
            self.set.undo_rows();
        }
    }
}

fn row(
    instructions: Vec<Instruction>,
    copied: u64,
    parent: Option<PassId>,
    filter: Option<FilterId>,
) -> PassRow {
    PassRow {
        filter,
        parent,
        first_child: None,
        last_child: None,
        previous: None,
        next: None,
        body: Arc::new(Body { instructions, copied, compiled: Vec::new() }),
        accepted: Arc::new(AtomicU64::new(0)),
        changed: Epoch(0),
        label: None,
        row: None,
    }
}

/// The lowest `count` bits, at most 64.
fn ones(count: usize) -> u64 {
    debug_assert!(count <= MAX_INSTRUCTIONS);
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}
