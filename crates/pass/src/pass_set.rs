//! The pass set: the one writer, and what it publishes.
//!
//! A [`PassSet`] owns the current state, the table of distinct instructions and the shapes (`shapes.rs`). `commit`
//! compiles what the edit touched, makes it rows of tables where that is possible, puts a snapshot behind a mutex when
//! something else than rows of declared shapes changed, and raises the epoch; readers notice with one atomic load and
//! go on when *they* want to, between two batches. So a frame is judged under exactly one epoch and nobody waits for a
//! reader. Publishing costs O(touched passes × log passes), for declared rows O(rows); taking a snapshot is O(1). When
//! passes outside of tables changed, the first reader that evaluates lays them out (O(those), shared by all readers).
//!
//! Counters of accepted frames belong to passes, not to snapshots: they survive every edit of other passes, and of
//! the pass itself. Capacity: the papers' kernel set has room for 127 passes of 30 instructions
//! ([`Capacity::PAPER`]); in user space memory is the limit and the default is [`Capacity::default`].

use crate::describe::PassView;
use crate::edit::{Changes, Edit, EditError, check, set_of};
use crate::id::{Epoch, FilterId, PassId};
use crate::layout::{Instruction, Opcode};
use crate::lower::MAX_INSTRUCTIONS;
use crate::needs::{Extent, MAX_IPV4_HEADER, Needs};
use crate::plan::{Plan, Sharing};
use crate::reader::Reader;
use crate::rows::{Marks, Standing};
use crate::set::ValueSet;
use crate::shapes::{Layout, Live, Shapes};
use crate::state::{Compiled, FilterRow, Oracle, RowRef, State};
use crate::test::Test;
use fyke_filter::Predicate;
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

/// What readers evaluate, unchanging but for the rows of its tables.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Grows with every snapshot; several of them may be of one epoch.
    pub version: u64,
    pub epoch: Epoch,
    pub link: LinkType,
    pub state: State,
    /// Neither a filter nor a pass nor a row.
    pub accept_all: bool,
    tables: Arc<Tables>,
    /// All passes of the state one by one, by [`Sharing`]; made when a reader first asks.
    plans: [OnceLock<Plan>; 5],
}

/// The passes outside of tables and the tables; the same in many snapshots.
#[derive(Debug)]
struct Tables {
    loose: Arc<[PassId]>,
    live: Arc<[Arc<Live>]>,
    plan: OnceLock<Plan>,
}

impl Snapshot {
    /// The plan for evaluation.
    pub fn plan(&self, sharing: Sharing) -> &Plan {
        let Tables { loose, live, plan } = &*self.tables;
        match sharing {
            Sharing::All => plan.get_or_init(|| Plan::new(&self.state, loose, live, sharing)),
            _ => self.passes_one_by_one(sharing),
        }
    }

    /// A plan in which no pass of the state is a row; with the declared shapes unless everything is shared.
    pub fn passes_one_by_one(&self, sharing: Sharing) -> &Plan {
        self.plans[sharing as usize].get_or_init(|| {
            let order: Vec<PassId> = self.state.in_order().map(|(id, _)| id).collect();
            let declared = self.declared().filter(|_| sharing != Sharing::All).cloned();
            let declared: Vec<Arc<Live>> = declared.collect();
            Plan::new(&self.state, &order, &declared, sharing)
        })
    }

    /// The shapes whose rows are not in the state.
    pub fn declared(&self) -> impl Iterator<Item = &Arc<Live>> {
        self.tables.live.iter().filter(|live| live.declared)
    }

    /// Whether readers of both need the same memory.
    pub fn same_plan(&self, other: &Snapshot) -> bool {
        Arc::ptr_eq(&self.tables, &other.tables)
    }
}

/// What writer and readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    epoch: AtomicU64,
    /// Version of `current`.
    version: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
    pub marks: Marks,
}

impl Shared {
    /// The newest epoch.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// The newest snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest snapshot, unless it is this one.
    pub fn newer(&self, than: &Snapshot) -> Option<Arc<Snapshot>> {
        (self.version.load(Ordering::Acquire) != than.version).then(|| self.current())
    }

    /// The epochs that readers may look at, now or later.
    pub fn standing(&self) -> Standing {
        self.marks.standing(self.epoch())
    }

    fn publish(&self, snapshot: Snapshot) {
        let version = snapshot.version;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        self.version.store(version, Ordering::Release);
    }

    #[inline]
    fn set_epoch(&self, epoch: Epoch) {
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
    pub(crate) capacity: Capacity,
    pub(crate) epoch: Epoch,
    pub(crate) state: State,
    pub(crate) shapes: Shapes,
    version: u64,
    /// What the last snapshot says about an empty set.
    accept_all: bool,
    tables: Arc<Tables>,
    pub(crate) shared: Arc<Shared>,
    instructions: Instructions,
    conditions: HashMap<Arc<Condition>, u32>,
    /// Needs of filters that are still in use; similar texts share them.
    needs: Vec<Weak<Needs>>,
    /// Memory for the changes of rows of an edit.
    pub(crate) changes: Vec<RowChange>,
    /// Why the last row was refused.
    pub(crate) refused: Option<EditError>,
}

/// What an edit did to a row of a declared shape, in one word, so that it can be taken back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowChange(u64);

impl RowChange {
    /// Shapes have small numbers, so that the highest bit is free.
    const ENDED: u64 = 1 << 63;

    #[inline]
    pub fn added(row: RowRef) -> RowChange {
        RowChange(row.0)
    }

    #[inline]
    pub fn ended(row: RowRef) -> RowChange {
        RowChange(row.0 | RowChange::ENDED)
    }

    #[inline]
    fn row(self) -> RowRef {
        RowRef(self.0 & !RowChange::ENDED)
    }

    #[inline]
    fn is_end(self) -> bool {
        self.0 & RowChange::ENDED != 0
    }
}

/// The ordered evaluation of a filter, for looking at.
#[derive(Debug, Clone, Copy)]
pub struct Ordered<'a> {
    /// The text, or the condition, that it follows.
    pub predicate: Result<&'a Predicate, &'a Condition>,
    needs: &'a Needs,
}

impl Ordered<'_> {
    /// Frames that its passes judge as it does have so many bytes, and so many behind the IPv4 header at `ip`, when
    /// they have one there. `None` when that is not all that must be in them.
    pub fn complete(&self, ip: u32) -> Option<(u32, u32)> {
        let mut least = (0, 0);
        for (_, extent, _) in self.needs.each() {
            match extent {
                Extent::Fixed(end) => least.0 = least.0.max(end),
                Extent::Behind { ip: at, end } if at == ip => least.1 = least.1.max(end),
                // As if that header were as long as can be.
                Extent::Behind { ip: at, end } => {
                    let end = at.saturating_add(MAX_IPV4_HEADER).saturating_add(end);
                    least.0 = least.0.max(end);
                }
                Extent::Value(_) | Extent::Other => return None,
            }
        }
        Some(least)
    }
}

/// A filter text, for looking at.
#[derive(Debug, Clone, Copy)]
pub struct FilterView<'a> {
    /// Its number.
    pub id: FilterId,
    row: &'a FilterRow,
    state: &'a State,
    shapes: &'a Shapes,
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
        let tables =
            Arc::new(Tables { loose: Arc::default(), live: Arc::default(), plan: OnceLock::new() });
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
            shared: Arc::new(Shared {
                epoch: AtomicU64::new(0),
                version: AtomicU64::new(0),
                current: Mutex::new(Arc::new(snapshot)),
                marks: Marks::default(),
            }),
            instructions: Instructions::default(),
            conditions: HashMap::new(),
            needs: Vec::new(),
            changes: Vec::new(),
            refused: None,
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
        self.state.is_empty() && self.shapes.declared_rows() == 0
    }

    /// Number of passes, rows of declared shapes among them.
    pub fn pass_count(&self) -> usize {
        self.state.passes.len() + self.shapes.declared_rows()
    }

    /// How the passes are laid out.
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
        let (state, shapes, link) = (&self.state, &self.shapes, self.link);
        let view = move |(id, row)| FilterView { id: FilterId(id), row, state, shapes, link };
        state.filters.iter().map(view)
    }

    /// One filter.
    pub fn filter(&self, id: FilterId) -> Option<FilterView<'_>> {
        let (state, shapes, link) = (&self.state, &self.shapes, self.link);
        Some(FilterView { id, row: state.filters.get(id.0)?, state, shapes, link })
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

    /// Applies what an edit did to the state; the changes of declared rows are done already.
    pub(crate) fn publish(&mut self, changes: Changes) -> Epoch {
        let new_sets: Vec<u32> = changes.new_sets().collect();
        let Changes { mut state, touched, regrouped, detached, new_conditions, .. } = changes;
        let filters = |state: &State| (state.last_filter, state.filters.len());
        if touched.is_empty() && filters(&state) == filters(&self.state) {
            self.state.last_pass = state.last_pass;
            return self.publish_rows();
        }
        self.epoch = self.epoch.next();
        self.bury_rows();
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
        self.group(&mut state, &touched, &regrouped);
        for &id in &touched {
            if let Some(row) = self.state.pass(id) {
                row.body.instructions.iter().for_each(|one| self.instructions.give_back(one));
            }
        }
        self.shapes.changed |= detached;
        self.drop_unused(&mut state);
        self.state = state;
        self.publish_snapshot();
        self.shapes.reclaim(&self.shared);
        for instruction in self.shapes.drop_empty() {
            self.instructions.give_back(&instruction);
        }
        self.epoch
    }

    /// Applies the changes of declared rows, if there are any.
    #[inline]
    pub(crate) fn publish_rows(&mut self) -> Epoch {
        if self.changes.is_empty() {
            return self.epoch;
        }
        self.epoch = self.epoch.next();
        self.bury_rows();
        if self.shapes.changed || self.is_empty() != self.accept_all {
            self.publish_snapshot();
        } else {
            self.shared.set_epoch(self.epoch);
        }
        self.shapes.reclaim(&self.shared);
        self.epoch
    }

    #[inline]
    fn bury_rows(&mut self) {
        for change in self.changes.iter().filter(|change| change.is_end()) {
            self.shapes.bury(change.row());
        }
        self.changes.clear();
    }

    /// Takes back the changes of declared rows of an edit that is not committed.
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

    /// Makes rows of passes that appeared or changed, and ends those that they were.
    fn group(&mut self, state: &mut State, touched: &BTreeSet<PassId>, regrouped: &[PassId]) {
        let again = regrouped.iter().filter(|id| !touched.contains(id));
        let ids: Vec<PassId> = touched.iter().chain(again).copied().collect();
        for &id in &ids {
            if let Some(old) = self.state.pass(id) {
                let lives = state.passes.get_mut(id.0).map(|row| row.row = None).is_some();
                self.shapes.leave(id, old, lives, self.epoch);
            }
        }
        self.shapes.enter(state, ids.into_iter(), self.epoch, &self.shared);
        for number in std::mem::take(&mut self.shapes.made) {
            let common = self.shapes.get(number).map(|shape| shape.common().copied());
            for instruction in common.into_iter().flatten().collect::<Vec<_>>() {
                self.instructions.take(&instruction, state);
            }
        }
    }

    /// Decodes instructions, which then are in use.
    pub(crate) fn compile(&mut self, instructions: &[Instruction]) -> Vec<Arc<Compiled>> {
        let (known, state) = (&mut self.instructions, &self.state);
        instructions.iter().map(|instruction| known.take(instruction, state)).collect()
    }

    /// Instructions are no longer in use.
    pub(crate) fn forget(&mut self, instructions: &[Instruction]) {
        instructions.iter().for_each(|instruction| self.instructions.give_back(instruction));
    }

    /// Checks instructions and what they name.
    pub(crate) fn check_all(&self, instructions: &[Instruction]) -> Result<(), EditError> {
        instructions.iter().try_for_each(|instruction| check(instruction, &self.state))
    }

    /// Lets readers see the state and the epoch.
    pub(crate) fn publish_snapshot(&mut self) {
        if std::mem::take(&mut self.shapes.changed) {
            let (loose, live) = (self.shapes.loose(), self.shapes.live());
            self.tables = Arc::new(Tables { loose, live, plan: OnceLock::new() });
        }
        self.version += 1;
        self.accept_all = self.is_empty();
        self.shared.publish(Snapshot {
            version: self.version,
            epoch: self.epoch,
            link: self.link,
            state: self.state.clone(),
            accept_all: self.accept_all,
            tables: self.tables.clone(),
            plans: Default::default(),
        });
        self.shared.set_epoch(self.epoch);
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

    /// What gives frames their verdict that are too short for its passes; `None` when it was modified: then its passes
    /// do.
    pub fn ordered(&self) -> Option<Ordered<'a>> {
        let (oracle, needs) = self.row.ordered.as_ref()?;
        Some(match oracle {
            Oracle::Condition(condition) => Ordered { predicate: Err(condition), needs },
            Oracle::Predicate(predicate) => Ordered { predicate: Ok(predicate), needs },
        })
    }

    /// Its passes.
    pub fn passes(&self) -> impl Iterator<Item = PassView<'a>> + use<'a> {
        let (id, state, shapes, link) = (self.id, self.state, self.shapes, self.link);
        self.row.passes.clone().filter_map(move |number| {
            let row = state.pass(PassId(number)).filter(|row| row.filter == Some(id))?;
            Some(PassView::new(PassId(number), row, state, shapes, link))
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
