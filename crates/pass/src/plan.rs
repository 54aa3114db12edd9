//! A snapshot laid out for evaluation.
//!
//! Passes in the order of evaluation, every distinct instruction once, every distinct word of the frame once. Which
//! passes share the answer of an instruction is decided here, by giving instructions *records*: the same record
//! means evaluated once per batch. O(passes) to make, once per epoch that is evaluated; this is where the
//! table-backed layout for many passes of one shape will come in.

use crate::id::{Epoch, FilterId, PassId};
use crate::needs::Needs;
use crate::state::{Compiled, Oracle, State};
use crate::test::{Base, Place, Test};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Which answers are shared, for measuring what sharing is worth. The verdict is the same in all settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// An instruction is evaluated once per batch, whichever passes hold it. Includes what hierarchical execution
    /// and the computation cache do in the papers.
    #[default]
    All,
    /// A copied instruction takes the answer of its parent's (hierarchical execution).
    Copied,
    /// Every pass evaluates its own instructions.
    Nothing,
}

/// "No filter" in [`PlanPass::filter`].
pub(crate) const NO_FILTER: u32 = u32::MAX;

/// An instruction of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Index into [`Plan::tests`].
    pub test: u32,
    /// Index of the answer.
    pub record: u32,
}

#[derive(Debug)]
pub(crate) struct PlanPass {
    pub id: PassId,
    /// Index into [`Plan::filters`], or [`NO_FILTER`].
    pub filter: u32,
    /// The pass's part of [`Plan::steps`].
    pub first: u32,
    pub end: u32,
    /// Index of the parent pass plus one; 0 = top level.
    pub parent: u32,
    /// Instructions copied from the parent and still equal there.
    pub copied: u64,
    /// The last pass of its filter, in the order of evaluation.
    pub last_of_filter: bool,
    /// The edit that made or last changed it.
    pub changed: Epoch,
    pub accepted: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) struct PlanFilter {
    pub id: FilterId,
    pub oracle: Oracle,
    /// Index into [`Plan::needs`].
    pub needs: u32,
}

/// A distinct instruction with the columns that it reads.
#[derive(Debug)]
pub(crate) struct PlanTest {
    pub compiled: Arc<Compiled>,
    /// One for each word of a run, or for each of the places.
    pub columns: Vec<u32>,
}

/// The layout.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// An empty set accepts everything.
    pub accept_all: bool,
    pub passes: Vec<PlanPass>,
    pub steps: Vec<Step>,
    pub tests: Vec<PlanTest>,
    pub records: usize,
    /// The words that instructions read, and the index of their base.
    pub columns: Vec<(Place, u32)>,
    pub bases: Vec<Base>,
    pub filters: Vec<PlanFilter>,
    pub needs: Vec<Arc<Needs>>,
}

/// Numbers things in the order of their first appearance.
fn index_of<K: std::hash::Hash + Eq, V>(
    known: &mut HashMap<K, u32>,
    list: &mut Vec<V>,
    key: K,
    make: impl FnOnce(&mut Vec<V>) -> V,
) -> u32 {
    if let Some(&index) = known.get(&key) {
        return index;
    }
    let value = make(list);
    list.push(value);
    let index = list.len() as u32 - 1;
    known.insert(key, index);
    index
}

impl Plan {
    pub fn new(state: &State, sharing: Sharing) -> Plan {
        let mut plan = Plan { accept_all: state.is_empty(), ..Plan::default() };
        let mut tests: Vec<u32> = Vec::new();
        let mut columns = HashMap::new();
        let mut filters: HashMap<u64, u32> = HashMap::new();
        let mut needs: HashMap<usize, u32> = HashMap::new();
        let mut places: HashMap<PassId, u32> = HashMap::new();
        let mut last_of_filter: HashMap<u32, usize> = HashMap::new();
        for (id, row) in state.in_order() {
            let filter = row.filter.and_then(|filter| {
                let (oracle, own) = state.filters.get(filter.0)?.ordered.as_ref()?;
                Some(index_of(&mut filters, &mut plan.filters, filter.0, |_| PlanFilter {
                    id: filter,
                    oracle: oracle.clone(),
                    needs: index_of(&mut needs, &mut plan.needs, Arc::as_ptr(own) as usize, |_| {
                        own.clone()
                    }),
                }))
            });
            let parent = row.parent.and_then(|parent| places.get(&parent)).map_or(0, |at| at + 1);
            let copied = match row.parent.and_then(|parent| state.pass(parent)) {
                Some(parent) => still_copied(row, parent),
                None => 0,
            };
            let first = plan.steps.len() as u32;
            for (index, compiled) in row.body.compiled.iter().enumerate() {
                let test = plan.test(&mut tests, &mut columns, compiled);
                let record = match sharing {
                    Sharing::All => test,
                    Sharing::Copied if copied >> index & 1 == 1 => {
                        let parent = &plan.passes[parent as usize - 1];
                        plan.steps[parent.first as usize + index].record
                    }
                    Sharing::Copied | Sharing::Nothing => plan.steps.len() as u32,
                };
                plan.steps.push(Step { test, record });
            }
            let filter = filter.unwrap_or(NO_FILTER);
            last_of_filter.insert(filter, plan.passes.len());
            places.insert(id, plan.passes.len() as u32);
            plan.passes.push(PlanPass {
                id,
                filter,
                first,
                end: plan.steps.len() as u32,
                parent,
                copied,
                last_of_filter: false,
                changed: row.changed,
                accepted: row.accepted.clone(),
            });
        }
        last_of_filter.into_values().for_each(|pass| plan.passes[pass].last_of_filter = true);
        let highest = plan.steps.iter().map(|step| step.record as usize + 1);
        plan.records = highest.max().unwrap_or(0);
        plan
    }

    /// The steps of a pass.
    pub fn steps_of(&self, pass: &PlanPass) -> &[Step] {
        &self.steps[pass.first as usize..pass.end as usize]
    }

    fn test(
        &mut self,
        known: &mut Vec<u32>,
        columns: &mut HashMap<Place, u32>,
        compiled: &Arc<Compiled>,
    ) -> u32 {
        let slot = compiled.slot as usize;
        if known.len() <= slot {
            known.resize(slot + 1, u32::MAX);
        }
        if known[slot] == u32::MAX {
            known[slot] = self.tests.len() as u32;
            let places: Vec<Place> = match &compiled.test {
                Test::Run(words) => words.iter().map(|word| word.place).collect(),
                Test::AnyOf { place, second, .. } | Test::Range { place, second, .. } => {
                    let other = second.map(|distance| place.moved(distance));
                    std::iter::once(*place).chain(other).collect()
                }
                _ => Vec::new(),
            };
            let columns = places.into_iter().map(|place| self.column(columns, place)).collect();
            self.tests.push(PlanTest { compiled: compiled.clone(), columns });
        }
        known[slot]
    }

    fn column(&mut self, known: &mut HashMap<Place, u32>, place: Place) -> u32 {
        let bases = &mut self.bases;
        index_of(known, &mut self.columns, place, |_| {
            let base = bases.iter().position(|&base| base == place.base).unwrap_or_else(|| {
                bases.push(place.base);
                bases.len() - 1
            });
            (place, base as u32)
        })
    }
}

/// The copied marks of a pass whose instruction is still the same in the parent.
fn still_copied(row: &crate::state::PassRow, parent: &crate::state::PassRow) -> u64 {
    let pairs = row.body.instructions.iter().zip(&parent.body.instructions).enumerate();
    let equal = pairs.filter(|(_, (own, parents))| own == parents);
    row.body.copied & equal.fold(0, |mask, (index, _)| mask | 1 << index)
}
