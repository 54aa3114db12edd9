//! The pass set: the only writer, and the snapshots that it publishes.
//!
//! A [`PassSet`] owns the current state, the table of distinct instructions and the shapes (`shapes.rs`). `commit`
//! compiles the touched passes and makes them rows of tables where possible. It publishes a snapshot if anything but
//! rows of declared shapes changed, and raises the epoch. Readers notice with one atomic load and advance when *they*
//! want to, between two batches. So a frame is judged under exactly one epoch, and the writer never waits for a reader.
//! A commit costs O(touched passes × log passes), for declared rows O(rows); nearly all of it precedes the exchange
//! that readers can notice, which is O(1). [`Edit::stage`] is a commit in these two steps. If passes outside of tables
//! changed, the first user of the new plan lays them out (O(those), shared by all readers): [`Staged::lay_out`], or a
//! reader.
//!
//! Counters of accepted frames belong to passes, not to snapshots: they survive every edit of other passes, and of the
//! pass itself. Capacity: the papers' kernel set has room for 127 passes of 30 instructions ([`Capacity::PAPER`]). In
//! user space memory is the limit; the default is [`Capacity::default`].
//!
//! [`Edit::stage`]: crate::Edit::stage
//! [`Staged::lay_out`]: crate::Staged::lay_out

use crate::isa::hash::MixMap;
use crate::isa::id::{Epoch, FilterId, PassId};
use crate::isa::layout::{Instruction, Opcode};
use crate::isa::test::Compiled;
use crate::isa::test::{SideTables, Test};
use crate::isa::value_set::ValueSet;
use crate::lower::MAX_INSTRUCTIONS;
use crate::lower::needs::Needs;
use crate::plan::snapshot::{Retired, Shared, Snapshot, Tables};
use crate::state::{Sides, State};
use crate::writer::changes::Changes;
use crate::writer::changes::RowChange;
use crate::writer::check::{check, set_of};
use crate::writer::describe::PassView;
use crate::writer::error::EditError;
use crate::writer::shapes::{Layout, Shapes};
use crate::writer::view::{FilterView, Viewer};
use fyke_frame::{Condition, LinkType};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};

/// Number of different needs from which on unused needs are searched for.
const MANY_NEEDS: usize = 64;

/// Capacity of a pass set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Largest number of passes.
    pub passes: usize,
    /// Largest number of instructions of one pass, up to 64.
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

#[derive(Debug)]
struct Entry {
    compiled: Arc<Compiled>,
    /// Number of places in passes that have the instruction.
    uses: usize,
}

/// The distinct instructions of the current state, each with a dense number.
#[derive(Debug, Default)]
struct Instructions {
    known: MixMap<Instruction, Entry>,
    free: Vec<u32>,
    next: u32,
    /// Number of distinct instructions that name each set or condition.
    set_uses: HashMap<u32, usize>,
    condition_uses: HashMap<u32, usize>,
    /// Sets and conditions that may be unused; `commit` checks these only.
    idle_sets: Vec<u32>,
    idle_conditions: Vec<u32>,
}

/// A set of passes that can be edited while others evaluate it.
#[derive(Debug)]
pub struct PassSet {
    link: LinkType,
    pub(crate) capacity: Capacity,
    pub(crate) epoch: Epoch,
    pub(crate) state: State,
    pub(crate) shapes: Shapes,
    version: u64,
    /// Value of `accept_all` in the last snapshot.
    accept_all: bool,
    tables: Arc<Tables>,
    pub(crate) shared: Arc<Shared>,
    retired: Retired,
    /// Number of passes of the published state that were removed or changed since.
    replaced: usize,
    /// `commit` frees replaced states only if that frees at most this number of passes.
    free_limit: usize,
    instructions: Instructions,
    conditions: HashMap<Arc<Condition>, u32>,
    /// Needs of filters that are in use; similar texts share them.
    needs: HashMap<u64, Weak<Needs>>,
    needs_hasher: RandomState,
    /// Number of needs from which on unused ones are removed.
    needs_limit: usize,
    /// Memory for the row changes of an edit.
    pub(crate) changes: Vec<RowChange>,
    /// The reason why the last row was refused.
    pub(crate) refused: Option<EditError>,
}

impl PassSet {
    /// An empty set for frames of one link type; it accepts every frame (`SPF_Open`).
    pub fn new(link: LinkType) -> PassSet {
        PassSet::with_capacity(link, Capacity::default())
    }

    /// An empty set of a given capacity; a pass has at most 64 instructions.
    pub fn with_capacity(link: LinkType, capacity: Capacity) -> PassSet {
        let instructions = capacity.instructions.min(MAX_INSTRUCTIONS);
        let state = State::default();
        let tables = Arc::<Tables>::default();
        let snapshot = Snapshot {
            version: 0,
            epoch: Epoch(0),
            link,
            state: state.clone(),
            accept_all: true,
            tables: tables.clone(),
            plans: Default::default(),
        };
        PassSet {
            link,
            capacity: Capacity { instructions, ..capacity },
            epoch: Epoch(0),
            state,
            shapes: Shapes::default(),
            version: 0,
            accept_all: true,
            tables,
            shared: Arc::new(Shared::new(snapshot)),
            retired: Retired::default(),
            replaced: 0,
            free_limit: usize::MAX,
            instructions: Instructions::default(),
            conditions: HashMap::new(),
            needs: HashMap::new(),
            needs_hasher: RandomState::new(),
            needs_limit: MANY_NEEDS,
            changes: Vec::new(),
            refused: None,
        }
    }

    /// Link type of the frames that the set judges.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// Capacity of the set.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// A viewer, which takes snapshots while the set is edited.
    pub fn viewer(&self) -> Viewer {
        Viewer::new(self.shared.clone())
    }

    /// Sets the limit of `commit`: it frees earlier states only if that frees at most `passes` passes, by default all
    /// of them. Others are left for [`PassSet::take_retired`].
    pub fn set_free_limit(&mut self, passes: usize) {
        self.free_limit = passes;
    }

    /// Removes and returns the earlier states that no reader holds any more, so that they can be dropped elsewhere.
    pub fn take_retired(&mut self) -> Retired {
        self.retired.take_unused(usize::MAX)
    }

    /// Number of passes that [`PassSet::take_retired`] has not returned yet, including those that readers hold.
    pub fn retired_passes(&self) -> usize {
        self.retired.pass_count()
    }

    /// Number of edits applied.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// True without filters and passes: every frame is accepted.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty() && self.shapes.declared_rows() == 0
    }

    /// Number of passes, including rows of declared shapes.
    pub fn pass_count(&self) -> usize {
        self.state.passes.len() + self.shapes.declared_rows()
    }

    /// Layout of the passes.
    pub fn layout(&self) -> Layout {
        self.shapes.layout()
    }

    /// Number of distinct instructions in all passes.
    pub fn instruction_count(&self) -> usize {
        self.instructions.known.len()
    }

    /// The passes in the order of evaluation: depth first, parents before children.
    pub fn passes(&self) -> impl Iterator<Item = PassView<'_>> {
        let (state, shapes) = (&self.state, &self.shapes);
        state.in_order().map(|(id, row)| PassView::new(id, row, state, shapes, self.link))
    }

    /// One pass.
    pub fn pass(&self, id: PassId) -> Option<PassView<'_>> {
        Some(PassView::new(id, self.state.pass(id)?, &self.state, &self.shapes, self.link))
    }

    /// A set that instructions name, by the number in their parameter.
    pub fn value_set(&self, number: u32) -> Option<&ValueSet> {
        self.state.sets.get(number.into()).map(|set| &**set)
    }

    /// The filters, oldest first.
    pub fn filters(&self) -> impl Iterator<Item = FilterView<'_>> {
        let ids = self.state.filters.iter().map(|(id, _)| FilterId(id));
        ids.filter_map(|id| self.filter(id))
    }

    /// One filter.
    pub fn filter(&self, id: FilterId) -> Option<FilterView<'_>> {
        FilterView::new(id, &self.state, &self.shapes, self.link)
    }

    /// The snapshot that readers see.
    pub(crate) fn published(&self) -> Arc<Snapshot> {
        self.shared.current()
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn condition_number(&self, condition: &Arc<Condition>) -> Option<u32> {
        self.conditions.get(condition).copied()
    }

    /// Shared needs: those of an earlier filter if they are equal.
    pub(crate) fn share(&mut self, needs: Needs) -> Arc<Needs> {
        let hash = self.needs_hasher.hash_one(&needs);
        let known = self.needs.get(&hash).and_then(Weak::upgrade).filter(|known| **known == needs);
        known.unwrap_or_else(|| {
            if self.needs.len() >= self.needs_limit {
                self.needs.retain(|_, known| known.strong_count() > 0);
                self.needs_limit = MANY_NEEDS.max(2 * self.needs.len());
            }
            let needs = Arc::new(needs);
            self.needs.insert(hash, Arc::downgrade(&needs));
            needs
        })
    }

    /// Applies the changes of an edit to the state; the changes of declared rows have been applied already. Readers see
    /// none of them until the returned snapshot is published.
    pub(crate) fn stage(&mut self, changes: Changes) -> Option<Arc<Snapshot>> {
        let new_sets: Vec<u32> = changes.new_sets().collect();
        let Changes { mut state, touched, regrouped, detached, new_conditions, .. } = changes;
        let filters = |state: &State| (state.last_filter, state.filters.len());
        if touched.is_empty() && filters(&state) == filters(&self.state) {
            self.state.last_pass = state.last_pass;
            return self.stage_rows();
        }
        self.epoch = self.epoch.next();
        self.retire_rows();
        for &id in &touched {
            if let Some(row) = state.passes.get_mut(id.0) {
                let body = Arc::make_mut(&mut row.body);
                let (known, sides) =
                    (&mut self.instructions, Sides(&state.sets, &state.conditions));
                let taken = body.instructions.iter().map(|one| known.acquire(one, &sides));
                body.compiled = taken.collect();
                row.changed = self.epoch;
            }
        }
        for (condition, number) in new_conditions {
            self.instructions.idle_conditions.push(number);
            self.conditions.insert(condition, number);
        }
        for number in new_sets {
            self.instructions.set_uses.entry(number).or_insert(0);
            self.instructions.idle_sets.push(number);
        }
        self.group(&mut state, &touched, &regrouped);
        for &id in &touched {
            if let Some(row) = self.state.pass(id) {
                row.body.instructions.iter().for_each(|one| self.instructions.release(one));
            }
        }
        self.shapes.changed |= detached;
        self.drop_unused(&mut state);
        self.state = state;
        self.replaced += touched.len();
        Some(self.snapshot())
    }

    /// Applies the changes of declared rows, if there are any, but does not raise the epoch.
    #[inline]
    pub(super) fn stage_rows(&mut self) -> Option<Arc<Snapshot>> {
        if self.changes.is_empty() {
            return None;
        }
        self.epoch = self.epoch.next();
        self.retire_rows();
        let more = self.shapes.changed || self.is_empty() != self.accept_all;
        more.then(|| self.snapshot())
    }

    /// Applies the changes of declared rows, if there are any.
    #[inline]
    pub(crate) fn publish_rows(&mut self) -> Epoch {
        if self.changes.is_empty() {
            return self.epoch;
        }
        let snapshot = self.stage_rows();
        self.reveal(snapshot);
        self.shapes.reclaim(&self.shared);
        self.epoch
    }

    /// Makes the staged changes visible to readers. O(1).
    #[inline]
    pub(super) fn reveal(&mut self, snapshot: Option<Arc<Snapshot>>) {
        if let Some(snapshot) = snapshot {
            let old = self.shared.publish(snapshot);
            self.retired.push(old, std::mem::take(&mut self.replaced));
        }
        self.shared.set_epoch(self.epoch);
    }

    /// Frees memory after an edit that readers see.
    pub(super) fn settle(&mut self) {
        self.shapes.reclaim(&self.shared);
        for instruction in self.shapes.drop_empty() {
            self.instructions.release(&instruction);
        }
        drop(self.retired.take_unused(self.free_limit));
    }

    #[inline]
    fn retire_rows(&mut self) {
        for change in self.changes.iter().filter(|change| change.is_end()) {
            self.shapes.retire(change.row());
        }
        self.changes.clear();
    }

    /// Undoes the changes of declared rows of an uncommitted edit.
    #[cold]
    pub(crate) fn undo_rows(&mut self) {
        while let Some(change) = self.changes.pop() {
            match change.is_end() {
                false => self.shapes.undo_add(change.row()),
                true => self.shapes.undo_end(change.row()),
            }
        }
    }

    /// Ends all rows of declared shapes.
    pub(crate) fn end_all_rows(&mut self) {
        for row in self.shapes.end_all_declared(self.epoch.next()) {
            self.changes.push(RowChange::ended(row));
        }
    }

    pub(crate) fn declared_rows(&self) -> usize {
        self.shapes.declared_rows()
    }

    /// Makes rows of passes that were added or changed, and ends their former rows.
    fn group(&mut self, state: &mut State, touched: &BTreeSet<PassId>, regrouped: &[PassId]) {
        let again = regrouped.iter().filter(|id| !touched.contains(id));
        let ids: Vec<PassId> = touched.iter().chain(again).copied().collect();
        for &id in &ids {
            if let Some(old) = self.state.pass(id) {
                let lives = state.passes.get_mut(id.0).map(|row| row.row = None).is_some();
                self.shapes.remove_pass(id, old, lives, self.epoch);
            }
        }
        self.shapes.add_passes(state, ids.into_iter(), self.epoch, &self.shared);
        for number in std::mem::take(&mut self.shapes.made) {
            let common = self.shapes.get(number).map(|shape| shape.common().copied());
            for instruction in common.into_iter().flatten().collect::<Vec<_>>() {
                self.instructions.acquire(&instruction, state);
            }
        }
    }

    /// Decodes instructions and counts their use.
    pub(crate) fn compile(&mut self, instructions: &[Instruction]) -> Vec<Arc<Compiled>> {
        let (known, state) = (&mut self.instructions, &self.state);
        instructions.iter().map(|instruction| known.acquire(instruction, state)).collect()
    }

    /// Ends the use of instructions.
    pub(crate) fn forget(&mut self, instructions: &[Instruction]) {
        instructions.iter().for_each(|instruction| self.instructions.release(instruction));
    }

    /// Checks instructions and the sets and conditions that they name.
    pub(crate) fn check_all(&self, instructions: &[Instruction]) -> Result<(), EditError> {
        instructions.iter().try_for_each(|instruction| check(instruction, &self.state))
    }

    /// Makes the state and the epoch visible to readers.
    pub(crate) fn publish_snapshot(&mut self) {
        let snapshot = self.snapshot();
        self.reveal(Some(snapshot));
    }

    /// A snapshot of the state and the epoch.
    fn snapshot(&mut self) -> Arc<Snapshot> {
        if std::mem::take(&mut self.shapes.changed) {
            self.tables = Arc::new(Tables::new(self.shapes.unindexed(), self.shapes.published()));
        }
        self.version += 1;
        self.accept_all = self.is_empty();
        Arc::new(Snapshot {
            version: self.version,
            epoch: self.epoch,
            link: self.link,
            state: self.state.clone(),
            accept_all: self.accept_all,
            tables: self.tables.clone(),
            plans: Default::default(),
        })
    }

    /// Drops sets and conditions that no instruction names any more. O(given-back instructions).
    fn drop_unused(&mut self, state: &mut State) {
        let Instructions { set_uses, condition_uses, idle_sets, idle_conditions, .. } =
            &mut self.instructions;
        for number in idle_sets.drain(..) {
            if set_uses.get(&number) == Some(&0) {
                set_uses.remove(&number);
                state.sets.remove(number.into());
            }
        }
        for number in idle_conditions.drain(..) {
            if condition_uses.get(&number).is_none_or(|&uses| uses == 0) {
                condition_uses.remove(&number);
                let condition = state.conditions.remove(number.into());
                condition.map(|condition| self.conditions.remove(&condition));
            }
        }
    }
}

impl Instructions {
    fn acquire(&mut self, instruction: &Instruction, state: &dyn SideTables) -> Arc<Compiled> {
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
        // Edits accept only valid instructions with known references; a false test is the safe result for others.
        let test = Test::decode(instruction, state);
        let negated = instruction.is_negated() != test.is_none();
        let test = test.unwrap_or(Test::True);
        let compiled = Arc::new(Compiled { slot, test, negated });
        self.known.insert(*instruction, Entry { compiled: compiled.clone(), uses: 1 });
        compiled
    }

    fn release(&mut self, instruction: &Instruction) {
        let Some(entry) = self.known.get_mut(instruction) else { return };
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        self.free.push(entry.compiled.slot);
        self.known.remove(instruction);
        let (set, condition) = names(instruction);
        for (number, uses, idle) in [
            (set, &mut self.set_uses, &mut self.idle_sets),
            (condition, &mut self.condition_uses, &mut self.idle_conditions),
        ] {
            if let Some(number) = number
                && let Some(uses) = uses.get_mut(&number)
            {
                *uses -= 1;
                if *uses == 0 {
                    idle.push(number);
                }
            }
        }
    }
}

/// The set and the condition that an instruction names.
fn names(instruction: &Instruction) -> (Option<u32>, Option<u32>) {
    let condition = instruction.opcode() == Some(Opcode::Cond);
    (set_of(instruction), condition.then_some(instruction.params[0]))
}
