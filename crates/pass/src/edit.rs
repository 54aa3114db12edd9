//! Edits: groups of changes to a pass set that take effect together.
//!
//! An [`Edit`] works on a copy of the state (a few references) and is either committed, which publishes one new
//! epoch, or dropped, which leaves no trace. Each call costs O(log passes) plus the size of the pass it touches;
//! changing a member of a set of n values copies the set once per edit, O(n). The calls are those of the papers'
//! libraries (`SPF_NewPass`, `SPF_DelPass`, `SPF_DupPass`, `SPF_SelectOp`, `SPF_AddParam`, `SPF_DelParam`,
//! `SPF_PokeInst`; `SPF_Open` is [`PassSet::new`]). Source: Swift, section 4.2; NPF, chapter IV.
//!
//! Editing a pass that a text became detaches the whole text: from then on its passes stand for themselves, and an
//! out-of-bounds load fails the pass that makes it, no longer the filter.

use crate::id::{Epoch, FilterId, PassId};
use crate::instruction::InstructionError;
use crate::layout::{Instruction, Opcode};
use crate::lower::{LowerError, Lowered, Lowering, MAX_INSTRUCTIONS, Store};
use crate::needs::Needs;
use crate::pass_set::{Capacity, PassSet, same_link};
use crate::primitive::never;
use crate::set::{SetId, ValueSet};
use crate::state::{Body, FilterRow, Oracle, PassRow, State};
use fyke_filter::{Predicate, Reading};
use fyke_frame::Condition;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Why a change was refused. Nothing has changed then; the edit can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// There is no such pass (any more).
    #[error("there is no pass {given}")]
    NoPass {
        /// The number given.
        given: PassId,
    },
    /// There is no such filter (any more).
    #[error("there is no filter {given}")]
    NoFilter {
        /// The number given.
        given: FilterId,
    },
    /// There is no such set.
    #[error("there is no set {given}")]
    NoSet {
        /// The number given.
        given: u32,
    },
    /// The set's members are of the other kind.
    #[error(
        "set {given} holds {}",
        if *addresses { "IPv6 addresses" } else { "words, not IPv6 addresses" }
    )]
    SetKind {
        /// The set's number.
        given: u32,
        /// Whether its members are addresses.
        addresses: bool,
    },
    /// There is no such condition.
    #[error("there is no condition {given}")]
    NoCondition {
        /// The number given.
        given: u32,
    },
    /// There is no such instruction. An index equal to the length appends, where that makes sense.
    #[error("instruction {given} does not exist: the pass has {length}")]
    NoInstruction {
        /// The index given.
        given: usize,
        /// Instructions of the pass.
        length: usize,
    },
    /// An instruction has eight words.
    #[error("an instruction has 8 words, there is no word {given}")]
    NoWord {
        /// The index given.
        given: usize,
    },
    /// The pass is full.
    #[error("a pass has room for {limit} instructions")]
    PassFull {
        /// Most instructions.
        limit: usize,
    },
    /// The set of passes is full.
    #[error("the pass set is full: {limit} passes")]
    Full {
        /// Most passes.
        limit: usize,
    },
    /// The bits are not an instruction, or an operand does not fit.
    #[error(transparent)]
    Instruction(#[from] InstructionError),
}

/// A group of changes; see the module.
#[must_use = "an edit that is not committed changes nothing"]
#[derive(Debug)]
pub struct Edit<'a> {
    set: &'a mut PassSet,
    state: State,
    /// Passes whose instructions changed, appeared or went away.
    touched: BTreeSet<PassId>,
    /// Sets that this edit made, with the one place that may still be changed without a copy.
    own_sets: HashMap<u32, Option<(PassId, usize)>>,
    new_conditions: HashMap<Arc<Condition>, u32>,
}

impl<'a> Edit<'a> {
    pub(crate) fn new(set: &'a mut PassSet) -> Self {
        let state = set.state().clone();
        Edit {
            set,
            state,
            touched: BTreeSet::new(),
            own_sets: HashMap::new(),
            new_conditions: HashMap::new(),
        }
    }

    /// Makes the changes effective: frames whose evaluation starts after this returns, by a reader that refreshed,
    /// are judged under the new epoch. An edit without changes gives the current epoch.
    pub fn commit(self) -> Epoch {
        let Edit { set, state, touched, own_sets, new_conditions } = self;
        set.publish(state, touched, own_sets.into_keys(), new_conditions)
    }

    /// Lowers a filter text and adds its passes as one filter.
    ///
    /// # Errors
    /// [`LowerError`] when it was read for another link type or would become too many or too long passes; nothing
    /// has changed then. [`Edit::add_ordered`] takes any text, and a text in the scoped reading always goes there: it
    /// asks for headers wherever they lie.
    pub fn add_filter(&mut self, predicate: &Predicate) -> Result<FilterId, LowerError> {
        if predicate.reading() == Reading::Scoped {
            return self.add_ordered(predicate);
        }
        self.same_link(predicate)?;
        let before = self.state.clone();
        let text = predicate.text();
        let result = self.lower(text, |lowering, store| lowering.predicate(predicate, store));
        self.install(before, result, text, Oracle::Predicate(predicate.clone()))
    }

    /// Adds a filter text as one pass that the ordered evaluator judges frame by frame: for texts that
    /// [`Edit::add_filter`] refuses. Slow, and its pass cannot be edited to any purpose.
    pub fn add_ordered(&mut self, predicate: &Predicate) -> Result<FilterId, LowerError> {
        self.same_link(predicate)?;
        let before = self.state.clone();
        let whole = Lowered { passes: vec![vec![never()]], needs: Needs::never() };
        let oracle = Oracle::Predicate(predicate.clone());
        self.install(before, Ok(whole), predicate.text(), oracle)
    }

    /// Lowers a condition and adds its passes as one filter. `text` is what views and errors show.
    pub fn add_condition(
        &mut self,
        condition: Arc<Condition>,
        text: &str,
    ) -> Result<FilterId, LowerError> {
        let before = self.state.clone();
        let result = self.lower(text, |lowering, store| lowering.condition(&condition, store));
        self.install(before, result, text, Oracle::Condition(condition.clone()))
    }

    /// Removes a filter and its passes. Children that were duplicated from them go to the passes' parents.
    pub fn remove_filter(&mut self, id: FilterId) -> Result<(), EditError> {
        let row = self.state.filters.remove(id.0).ok_or(EditError::NoFilter { given: id })?;
        for pass in row.passes.clone() {
            let own = self.state.pass(PassId(pass)).is_some_and(|row| row.filter == Some(id));
            if own {
                self.state.remove(PassId(pass));
                self.touched.insert(PassId(pass));
            }
        }
        Ok(())
    }

    /// Removes everything; an empty set accepts every frame.
    pub fn clear(&mut self) {
        self.touched.extend(self.state.passes.iter().map(|(id, _)| PassId(id)));
        self.state = State {
            last_pass: self.state.last_pass,
            last_filter: self.state.last_filter,
            last_set: self.state.last_set,
            last_condition: self.state.last_condition,
            ..State::default()
        };
    }

    /// A new pass without instructions, which accepts every frame until it gets some (`SPF_NewPass`).
    pub fn new_pass(&mut self) -> Result<PassId, EditError> {
        self.room()?;
        let id = self.state.append(row(Vec::new(), 0, None, None));
        self.touched.insert(id);
        Ok(id)
    }

    /// A bit-exact copy as a child of the given pass, with all instructions marked as copied (`SPF_DupPass`). It
    /// belongs to no filter.
    pub fn duplicate_pass(&mut self, parent: PassId) -> Result<PassId, EditError> {
        self.room()?;
        let body = self.state.pass(parent).ok_or(EditError::NoPass { given: parent })?.body.clone();
        let copied = ones(body.instructions.len());
        // From now on two passes name the sets.
        for instruction in &body.instructions {
            if let Some(owner) = set_of(instruction).and_then(|set| self.own_sets.get_mut(&set)) {
                *owner = None;
            }
        }
        let id = self.state.append(row(body.instructions.clone(), copied, Some(parent), None));
        self.touched.insert(id);
        Ok(id)
    }

    /// Deletes a pass; its children become children of its parent (`SPF_DelPass`).
    pub fn delete_pass(&mut self, id: PassId) -> Result<(), EditError> {
        self.detach(id)?;
        self.state.remove(id);
        self.touched.insert(id);
        Ok(())
    }

    /// Replaces the instruction at `index`, or appends it when the pass has `index` instructions (`SPF_SelectOp`,
    /// with the predefined operations of [`crate::primitive`]).
    pub fn set_instruction(
        &mut self,
        id: PassId,
        index: usize,
        instruction: Instruction,
    ) -> Result<(), EditError> {
        self.check(&instruction)?;
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

    /// Adds a value to the alternatives of an instruction, or to the set that it names (`SPF_AddParam`). Nothing
    /// happens when it is there.
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

    /// Overwrites one word of an instruction, 0 = the command word (`SPF_PokeInst`). The result has to be an
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

    /// Makes a set that instructions of this edit may name. A set that no instruction names at `commit` is gone.
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
        let set = self.state.sets.get(number.into()).ok_or(EditError::NoSet { given: number })?;
        if set.holds_addresses() {
            return Err(EditError::SetKind { given: number, addresses: true });
        }
        if !add && !set.contains(value) {
            return Err(InstructionError::OperandAbsent { given: value }.into());
        }
        let own = self.own_sets.get(&number) == Some(&Some((id, index)));
        let number = if own { number } else { self.add_set((**set).clone()) };
        if let Some(set) = self.state.sets.get_mut(number.into()) {
            let set = Arc::make_mut(set);
            if add {
                set.insert(value)
            } else {
                set.remove(value)
            };
        }
        let slot = usize::from(Opcode::DSet.form().first_operand);
        instruction.params[slot] = number;
        self.own_sets.insert(number, Some((id, index)));
        self.set_instruction(id, index, instruction)
    }

    fn lower<T>(
        &mut self,
        text: &str,
        lower: impl FnOnce(&Lowering, &mut dyn Store) -> Result<T, LowerError>,
    ) -> Result<T, LowerError> {
        lower(&Lowering::new(text), self)
    }

    fn same_link(&self, predicate: &Predicate) -> Result<(), LowerError> {
        let (given, expected) = (predicate.link(), self.set.link());
        if same_link(given, expected) { Ok(()) } else { Err(LowerError::Link { given, expected }) }
    }

    /// Adds the passes of a lowered text, or puts everything back.
    fn install(
        &mut self,
        before: State,
        lowered: Result<Lowered, LowerError>,
        text: &str,
        oracle: Oracle,
    ) -> Result<FilterId, LowerError> {
        let Capacity { passes: limit, .. } = self.set.capacity();
        let lowered = match lowered {
            Ok(lowered) if self.state.passes.len() + lowered.passes.len() <= limit => lowered,
            other => {
                self.state = before;
                return Err(other.err().unwrap_or(LowerError::Full { limit }));
            }
        };
        self.state.last_filter += 1;
        let id = FilterId(self.state.last_filter);
        let first = self.state.last_pass + 1;
        for instructions in lowered.passes {
            let pass = self.state.append(row(instructions, 0, None, Some(id)));
            self.touched.insert(pass);
        }
        let needs = self.set.share(lowered.needs);
        let passes = first..self.state.last_pass + 1;
        let filter = FilterRow { text: text.into(), ordered: Some((oracle, needs)), passes };
        self.state.filters.insert(id.0, filter);
        Ok(id)
    }

    fn room(&self) -> Result<(), EditError> {
        let limit = self.set.capacity().passes;
        if self.state.passes.len() >= limit { Err(EditError::Full { limit }) } else { Ok(()) }
    }

    /// The pass belongs to a text no longer as it was written.
    fn detach(&mut self, id: PassId) -> Result<(), EditError> {
        let row = self.state.pass(id).ok_or(EditError::NoPass { given: id })?;
        if let Some(filter) = row.filter
            && let Some(row) = self.state.filters.get_mut(filter.0)
            && row.ordered.is_some()
        {
            row.ordered = None;
        }
        Ok(())
    }

    /// The body of a pass, for changing.
    fn body(&mut self, id: PassId) -> Result<&mut Body, EditError> {
        let row = self.state.passes.get_mut(id.0).ok_or(EditError::NoPass { given: id })?;
        self.touched.insert(id);
        Ok(Arc::make_mut(&mut row.body))
    }

    fn instruction(&self, id: PassId, index: usize) -> Result<Instruction, EditError> {
        let row = self.state.pass(id).ok_or(EditError::NoPass { given: id })?;
        let length = row.body.instructions.len();
        let gone = EditError::NoInstruction { given: index, length };
        row.body.instructions.get(index).copied().ok_or(gone)
    }

    /// Checks an instruction and what it names.
    fn check(&self, instruction: &Instruction) -> Result<(), EditError> {
        instruction.validate()?;
        if let Some(given) = set_of(instruction) {
            let set = self.state.sets.get(given.into()).ok_or(EditError::NoSet { given })?;
            let addresses = set.holds_addresses();
            if addresses != (instruction.opcode() == Some(Opcode::DSet6)) {
                return Err(EditError::SetKind { given, addresses });
            }
        }
        if instruction.opcode() == Some(Opcode::Cond) {
            let given = instruction.params[0];
            let missing = EditError::NoCondition { given };
            self.state.conditions.get(given.into()).ok_or(missing)?;
        }
        Ok(())
    }

    fn add_set(&mut self, set: ValueSet) -> u32 {
        self.state.last_set += 1;
        let number = self.state.last_set;
        self.state.sets.insert(number.into(), Arc::new(set));
        self.own_sets.insert(number, None);
        number
    }
}

impl Store for Edit<'_> {
    fn set(&mut self, set: ValueSet) -> u32 {
        self.add_set(set)
    }

    fn condition(&mut self, condition: &Arc<Condition>) -> u32 {
        if let Some(number) = self.set.condition_number(condition)
            && self.state.conditions.get(number.into()).is_some()
        {
            return number;
        }
        if let Some(&number) = self.new_conditions.get(condition)
            && self.state.conditions.get(number.into()).is_some()
        {
            return number;
        }
        self.state.last_condition += 1;
        let number = self.state.last_condition;
        self.state.conditions.insert(number.into(), condition.clone());
        self.new_conditions.insert(condition.clone(), number);
        number
    }
}

/// The number of the set that an instruction names.
pub(crate) fn set_of(instruction: &Instruction) -> Option<u32> {
    let opcode = instruction.opcode()?;
    let names = matches!(opcode, Opcode::DSet | Opcode::L1Set | Opcode::DSet6);
    names.then(|| instruction.params[usize::from(opcode.form().first_operand)])
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
    }
}

/// The lowest `count` bits, at most 64.
fn ones(count: usize) -> u64 {
    debug_assert!(count <= MAX_INSTRUCTIONS);
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}
