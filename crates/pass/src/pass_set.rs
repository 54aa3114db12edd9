//! The pass set: the one writer, and what it publishes.
//!
//! A [`PassSet`] owns the current state and the table of distinct instructions. `commit` compiles what the edit
//! touched, puts a snapshot behind a mutex and raises the epoch; readers notice with one atomic load and take the
//! new snapshot when *they* want to, between two batches. So a frame is judged under exactly one epoch, nobody
//! waits for a reader, and a reader that is not evaluating costs nothing. Publishing costs O(touched passes ×
//! log passes); taking a snapshot is O(1), and the first reader that evaluates it lays it out (O(passes), shared by
//! all readers).
//!
//! Counters of accepted frames belong to passes, not to snapshots: they survive every edit of other passes, and of
//! the pass itself. Capacity: the papers' kernel set has room for 127 passes of 30 instructions
//! ([`Capacity::PAPER`]); in user space memory is the limit and the default is [`Capacity::default`].

use crate::describe::PassView;
use crate::edit::{Edit, set_of};
use crate::id::{Epoch, FilterId, PassId};
use crate::layout::{Instruction, Opcode};
use crate::lower::MAX_INSTRUCTIONS;
use crate::needs::Needs;
use crate::plan::Plan;
use crate::reader::Reader;
use crate::set::ValueSet;
use crate::state::{Compiled, FilterRow, State};
use crate::test::Test;
use fyke_frame::{Condition, LinkType};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Link types have aliases; two are the same when they are described alike.
pub(crate) fn same_link(one: LinkType, other: LinkType) -> bool {
    one == other || one.description().is_some_and(|link| link.numbers.contains(&other))
}

/// How much a pass set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Most passes.
    pub passes: usize,
    /// Most instructions of one pass, up to 64.
    pub instructions: usize,
}

impl Capacity {
    /// The papers' kernel set: 127 passes of 30 instructions.
    pub const PAPER: Capacity = Capacity { passes: 127, instructions: 30 };
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity { passes: 1 << 20, instructions: MAX_INSTRUCTIONS }
    }
}

/// One epoch, unchanging.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub epoch: Epoch,
    pub link: LinkType,
    pub state: State,
    /// The layout for evaluation, by [`crate::Sharing`]; made when a reader first asks.
    pub plans: [OnceLock<Plan>; 3],
}

/// What writer and readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    epoch: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
}

impl Shared {
    /// The newest epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// The newest snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn publish(&self, snapshot: Snapshot) {
        let epoch = snapshot.epoch;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        self.epoch.store(epoch.0, Ordering::Release);
    }
}

#[derive(Debug)]
struct Entry {
    compiled: Arc<Compiled>,
    /// Places in passes that hold the instruction.
    uses: usize,
}

/// The distinct instructions of the current state, each with a dense number.
#[derive(Debug, Default)]
struct Instructions {
    known: HashMap<Instruction, Entry>,
    free: Vec<u32>,
    next: u32,
    /// Distinct instructions that name a set or a condition.
    set_uses: HashMap<u32, usize>,
    condition_uses: HashMap<u32, usize>,
}

/// A set of passes that can be edited while others evaluate it.
#[derive(Debug)]
pub struct PassSet {
    link: LinkType,
    capacity: Capacity,
    epoch: Epoch,
    state: State,
    shared: Arc<Shared>,
    instructions: Instructions,
    conditions: HashMap<Arc<Condition>, u32>,
    /// Needs of filters that are still in use; similar texts share them.
    needs: Vec<Weak<Needs>>,
}

/// A filter text, for looking at.
#[derive(Debug, Clone, Copy)]
pub struct FilterView<'a> {
    /// Its number.
    pub id: FilterId,
    row: &'a FilterRow,
    state: &'a State,
    link: LinkType,
}

impl PassSet {
    /// An empty set for frames of one link type; it accepts every frame (`SPF_Open`).
    pub fn new(link: LinkType) -> PassSet {
        PassSet::with_capacity(link, Capacity::default())
    }

    /// An empty set of a given size; more than 64 instructions a pass are not possible.
    pub fn with_capacity(link: LinkType, capacity: Capacity) -> PassSet {
        let instructions = capacity.instructions.min(MAX_INSTRUCTIONS);
        let state = State::default();
        let snapshot =
            Snapshot { epoch: Epoch(0), link, state: state.clone(), plans: Default::default() };
        PassSet {
            link,
            capacity: Capacity { instructions, ..capacity },
            epoch: Epoch(0),
            state,
            shared: Arc::new(Shared {
                epoch: AtomicU64::new(0),
                current: Mutex::new(Arc::new(snapshot)),
            }),
            instructions: Instructions::default(),
            conditions: HashMap::new(),
            needs: Vec::new(),
        }
    }

    /// Link type of the frames that the set judges.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// How much the set holds.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// A reader at the current epoch.
    pub fn reader(&self) -> Reader {
        Reader::new(self.shared.clone())
    }

    /// Starts a group of changes.
    pub fn edit(&mut self) -> Edit<'_> {
        Edit::new(self)
    }

    /// Number of edits applied.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether there is neither a filter nor a pass: every frame is accepted.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// Number of passes.
    pub fn pass_count(&self) -> usize {
        self.state.passes.len()
    }

    /// Number of distinct instructions in all passes.
    pub fn instruction_count(&self) -> usize {
        self.instructions.known.len()
    }

    /// The passes in the order of evaluation: depth first, parents before children.
    pub fn passes(&self) -> impl Iterator<Item = PassView<'_>> {
        self.state.in_order().map(|(id, row)| PassView::new(id, row, &self.state, self.link))
    }

    /// One pass.
    pub fn pass(&self, id: PassId) -> Option<PassView<'_>> {
        Some(PassView::new(id, self.state.pass(id)?, &self.state, self.link))
    }

    /// A set that instructions name, by the number in their parameter.
    pub fn value_set(&self, number: u32) -> Option<&ValueSet> {
        self.state.sets.get(number.into()).map(|set| &**set)
    }

    /// The filters, oldest first.
    pub fn filters(&self) -> impl Iterator<Item = FilterView<'_>> {
        let (state, link) = (&self.state, self.link);
        let view = move |(id, row)| FilterView { id: FilterId(id), row, state, link };
        state.filters.iter().map(view)
    }

    /// One filter.
    pub fn filter(&self, id: FilterId) -> Option<FilterView<'_>> {
        let (state, link) = (&self.state, self.link);
        Some(FilterView { id, row: state.filters.get(id.0)?, state, link })
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn condition_number(&self, condition: &Arc<Condition>) -> Option<u32> {
        self.conditions.get(condition).copied()
    }

    /// The same needs as an earlier filter's, where they are equal.
    pub(crate) fn share(&mut self, needs: Needs) -> Arc<Needs> {
        let same = self.needs.iter().filter_map(Weak::upgrade).find(|known| **known == needs);
        same.unwrap_or_else(|| {
            self.needs.retain(|known| known.strong_count() > 0);
            let needs = Arc::new(needs);
            self.needs.push(Arc::downgrade(&needs));
            needs
        })
    }

    pub(crate) fn publish(
        &mut self,
        mut state: State,
        touched: BTreeSet<PassId>,
        new_sets: impl Iterator<Item = u32>,
        new_conditions: HashMap<Arc<Condition>, u32>,
    ) -> Epoch {
        let filters = |state: &State| (state.last_filter, state.filters.len());
        if touched.is_empty() && filters(&state) == filters(&self.state) {
            return self.epoch;
        }
        self.epoch = Epoch(self.epoch.0 + 1);
        for &id in &touched {
            if let Some(row) = state.passes.get(id.0) {
                let compiled = (row.body.instructions.iter())
                    .map(|instruction| self.instructions.take(instruction, &state))
                    .collect();
                if let Some(row) = state.passes.get_mut(id.0) {
                    Arc::make_mut(&mut row.body).compiled = compiled;
                    row.changed = self.epoch;
                }
            }
        }
        self.conditions.extend(new_conditions);
        for number in new_sets {
            self.instructions.set_uses.entry(number).or_insert(0);
        }
        for &id in &touched {
            if let Some(row) = self.state.pass(id) {
                row.body.instructions.iter().for_each(|one| self.instructions.give_back(one));
            }
        }
        self.drop_unused(&mut state);
        self.state = state.clone();
        let plans = Default::default();
        self.shared.publish(Snapshot { epoch: self.epoch, link: self.link, state, plans });
        self.epoch
    }

    /// Drops sets and conditions that no instruction names any more.
    fn drop_unused(&mut self, state: &mut State) {
        self.instructions.set_uses.retain(|&number, uses| {
            if *uses == 0 {
                state.sets.remove(number.into());
            }
            *uses > 0
        });
        let unused = self.conditions.len() > self.instructions.condition_uses.len();
        if unused || self.instructions.condition_uses.values().any(|&uses| uses == 0) {
            self.instructions.condition_uses.retain(|_, uses| *uses > 0);
            let uses = &self.instructions.condition_uses;
            self.conditions.retain(|_, number| {
                let used = uses.contains_key(number);
                if !used {
                    state.conditions.remove((*number).into());
                }
                used
            });
        }
    }
}

impl Instructions {
    fn take(&mut self, instruction: &Instruction, state: &State) -> Arc<Compiled> {
        if let Some(entry) = self.known.get_mut(instruction) {
            entry.uses += 1;
            return entry.compiled.clone();
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let (set, condition) = names(instruction);
        set.into_iter().for_each(|number| *self.set_uses.entry(number).or_insert(0) += 1);
        condition
            .into_iter()
            .for_each(|number| *self.condition_uses.entry(number).or_insert(0) += 1);
        // Edits let only valid instructions with known references in; a false test is the safe answer for others.
        let test = Test::decode(instruction, state);
        let negated = instruction.is_negated() != test.is_none();
        let test = test.unwrap_or(Test::True);
        let compiled = Arc::new(Compiled { slot, test, negated });
        self.known.insert(*instruction, Entry { compiled: compiled.clone(), uses: 1 });
        compiled
    }

    fn give_back(&mut self, instruction: &Instruction) {
        let Some(entry) = self.known.get_mut(instruction) else { return };
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        self.free.push(entry.compiled.slot);
        self.known.remove(instruction);
        let (set, condition) = names(instruction);
        for (number, uses) in [(set, &mut self.set_uses), (condition, &mut self.condition_uses)] {
            if let Some(uses) = number.and_then(|number| uses.get_mut(&number)) {
                *uses -= 1;
            }
        }
    }
}

/// The set and the condition that an instruction names.
fn names(instruction: &Instruction) -> (Option<u32>, Option<u32>) {
    let condition = instruction.opcode() == Some(Opcode::Cond);
    (set_of(instruction), condition.then_some(instruction.params[0]))
}

impl<'a> FilterView<'a> {
    /// The text it was made from.
    pub fn text(&self) -> &'a str {
        &self.row.text
    }

    /// Whether passes of it were edited, so that they no longer are what the text says.
    pub fn is_modified(&self) -> bool {
        self.row.ordered.is_none()
    }

    /// Frames of at least this many captured bytes are judged by passes without a closer look; `None` when it was
    /// modified or when there is no such length.
    pub fn complete_from(&self) -> Option<u32> {
        let (_, needs) = self.row.ordered.as_ref()?;
        (needs.bound() < u32::MAX).then_some(needs.bound())
    }

    /// Its passes.
    pub fn passes(&self) -> impl Iterator<Item = PassView<'a>> + use<'a> {
        let (id, state, link) = (self.id, self.state, self.link);
        self.row.passes.clone().filter_map(move |number| {
            let row = state.pass(PassId(number)).filter(|row| row.filter == Some(id))?;
            Some(PassView::new(PassId(number), row, state, link))
        })
    }

    /// Frames that its passes accepted.
    pub fn accepted(&self) -> u64 {
        self.passes().map(|pass| pass.accepted()).sum()
    }
}

impl ValueSet {
    pub(crate) fn number_of(state: &State, instruction: &Instruction) -> Option<(u32, usize)> {
        let number = set_of(instruction)?;
        Some((number, state.sets.get(number.into())?.len()))
    }
}
