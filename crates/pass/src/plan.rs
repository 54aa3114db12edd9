//! A snapshot laid out for evaluation.
//!
//! Passes in the order of evaluation, every distinct instruction once, every distinct word of the frame once. Which
//! passes share the answer of an instruction is decided here, by giving instructions *records*: the same record
//! means evaluated once per batch. Passes that are rows of tables (`shapes.rs`) are not in it, only their shapes are: so
//! it is made anew when passes outside of tables change, O(those passes), and stays when rows come and go.

use crate::columns::{Column, PlanBase, Spot, Stretch, spot, windows};
use crate::id::{Epoch, FilterId, PassId};
use crate::lanes::Lanes;
use crate::needs::Needs;
use crate::rows::Turn;
use crate::shapes::Live;
use crate::state::{Compiled, Oracle, State};
use crate::test::{Base, Place, Test, Values};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Which answers are shared, for measuring what sharing is worth. The verdict is the same in all settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// An instruction is evaluated once per batch, whichever passes hold it, and many passes of one shape are one
    /// look-up. Includes what hierarchical execution and the computation cache do in the papers.
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
    pub turn: Turn,
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
    /// What must hold of the words: one for each column of a run, one for all places of another test.
    pub lanes: Vec<Lanes>,
}

/// The needs of filters, with what is enough for most frames.
#[derive(Debug)]
pub(crate) struct PlanNeeds {
    pub needs: Arc<Needs>,
    /// Frames of at least this many bytes, whose IPv4 headers at these bases have no options, are complete.
    pub enough: Option<(u32, Box<[u32]>)>,
}

/// The layout.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub passes: Vec<PlanPass>,
    pub steps: Vec<Step>,
    pub tests: Vec<PlanTest>,
    pub records: usize,
    /// The words that instructions read.
    pub columns: Vec<Column>,
    /// Columns that are filled one by one.
    pub slow: usize,
    pub bases: Vec<PlanBase>,
    /// Offsets of the windows.
    pub windows: Vec<u32>,
    pub filters: Vec<PlanFilter>,
    pub needs: Vec<PlanNeeds>,
    pub shapes: Vec<PlanShape>,
}

/// A table of rows.
#[derive(Debug)]
pub(crate) struct PlanShape {
    pub live: Arc<Live>,
    /// What all rows test.
    pub common: Vec<Step>,
    /// Columns and masks of the words that are the key.
    pub keys: Vec<(u32, u32)>,
    /// Indices of the rows' needs.
    pub needs: Vec<u32>,
}

/// Length of an IPv4 header without options.
const PLAIN_HEADER: u32 = 20;

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
    /// Lays out the passes of `order`, which come in the order of evaluation, and the tables.
    pub fn new(state: &State, order: &[PassId], shapes: &[Arc<Live>], sharing: Sharing) -> Plan {
        let mut plan = Plan::default();
        let mut tests: Vec<u32> = Vec::new();
        let mut columns = HashMap::new();
        let mut filters: HashMap<u64, u32> = HashMap::new();
        let mut needs: HashMap<usize, u32> = HashMap::new();
        let mut places: HashMap<PassId, u32> = HashMap::new();
        let mut last_of_filter: HashMap<u32, usize> = HashMap::new();
        for (id, row) in order.iter().filter_map(|&id| Some((id, state.pass(id)?))) {
            let filter = row.filter.and_then(|filter| {
                let (oracle, own) = state.filters.get(filter.0)?.ordered.as_ref()?;
                Some(index_of(&mut filters, &mut plan.filters, filter.0, |_| PlanFilter {
                    id: filter,
                    oracle: oracle.clone(),
                    needs: index_of(&mut needs, &mut plan.needs, Arc::as_ptr(own) as usize, |_| {
                        PlanNeeds { needs: own.clone(), enough: None }
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
                turn: row.turn(id),
                changed: row.changed,
                accepted: row.accepted.clone(),
            });
        }
        last_of_filter.into_values().for_each(|pass| plan.passes[pass].last_of_filter = true);
        // Records of their own come behind those of all steps.
        let mut spare = plan.steps.len() as u32;
        for live in shapes {
            let mut shape = plan.shape(live, &mut tests, &mut columns, &mut needs);
            for step in shape.common.iter_mut().filter(|_| sharing != Sharing::All) {
                (step.record, spare) = (spare, spare + 1);
            }
            plan.shapes.push(shape);
        }
        let common = plan.shapes.iter().flat_map(|shape| &shape.common);
        let highest = plan.steps.iter().chain(common).map(|step| step.record as usize + 1);
        plan.records = highest.max().unwrap_or(0);
        plan.lay_out(&columns);
        plan
    }

    fn shape(
        &mut self,
        live: &Arc<Live>,
        tests: &mut Vec<u32>,
        columns: &mut HashMap<Place, u32>,
        needs: &mut HashMap<usize, u32>,
    ) -> PlanShape {
        let mut step = |compiled| {
            let test = self.test(tests, columns, compiled);
            Step { test, record: test }
        };
        let common = live.common.iter().map(&mut step).collect();
        let mut column = |&(place, mask): &(Place, u32)| {
            let next = columns.len() as u32;
            (*columns.entry(place).or_insert(next), mask)
        };
        let keys = live.keys.iter().map(&mut column).collect();
        let need = |own: &Arc<Needs>| {
            index_of(needs, &mut self.needs, Arc::as_ptr(own) as usize, |_| PlanNeeds {
                needs: own.clone(),
                enough: None,
            })
        };
        let needs = live.needs.iter().map(need).collect();
        PlanShape { live: live.clone(), common, keys, needs }
    }

    /// Decides where the words come from.
    fn lay_out(&mut self, places: &HashMap<Place, u32>) {
        let mut order: Vec<(u32, Place)> = places.iter().map(|(&place, &at)| (at, place)).collect();
        order.sort_unstable_by_key(|&(at, _)| at);
        for needs in &mut self.needs {
            needs.enough = needs.needs.enough().map(|(length, headers)| {
                let base = |&header| {
                    let header = u16::try_from(header).ok()?;
                    Some(base_of(&mut self.bases, Base::L1 { header }))
                };
                let bases: Option<Vec<u32>> = headers.iter().map(base).collect();
                // A header that has no base cannot be looked at: nothing is enough then.
                bases.map_or((u32::MAX, [].into()), |bases| (length, bases.into()))
            });
        }
        let bases: Vec<u32> =
            order.iter().map(|(_, place)| base_of(&mut self.bases, place.base)).collect();
        let fixed = order.iter().filter_map(|(_, place)| plain_place(place));
        let headers = self.bases.iter().filter_map(|base| header_of(base.base));
        self.windows = windows(fixed.chain(headers).collect());
        let find = |stretch, needed| spot(&self.windows, stretch, needed);
        for base in &mut self.bases {
            base.header = header_of(base.base).and_then(|stretch| find(stretch, stretch.width));
        }
        for ((_, place), base) in order.into_iter().zip(bases) {
            let at: Option<Spot> =
                plain_place(&place).and_then(|stretch| find(stretch, place.needed));
            self.columns.push(match (place.base, at) {
                (Base::Direct, Some(spot)) => Column::Direct(spot),
                (_, plain) => {
                    self.slow += 1;
                    Column::Behind { place, base, slow: self.slow as u32 - 1, plain }
                }
            });
        }
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
            let mut column = |place| {
                let next = columns.len() as u32;
                *columns.entry(place).or_insert(next)
            };
            let columns = places.into_iter().map(&mut column).collect();
            let lanes = lanes_of(&compiled.test);
            self.tests.push(PlanTest { compiled: compiled.clone(), columns, lanes });
        }
        known[slot]
    }
}

/// The number of a base, which is added when it is new.
fn base_of(bases: &mut Vec<PlanBase>, base: Base) -> u32 {
    let known = bases.iter().position(|known| known.base == base);
    known.unwrap_or_else(|| {
        bases.push(PlanBase { base, header: None });
        bases.len() - 1
    }) as u32
}

/// Where a place is when the IPv4 header has no options.
fn plain_place(place: &Place) -> Option<Stretch> {
    let start = match place.base {
        Base::Direct => 0,
        Base::L1 { header } => u32::from(header) + PLAIN_HEADER,
        Base::L2 { .. } => return None,
    };
    Some(Stretch { offset: start + place.offset, width: place.width })
}

/// The byte that says how long the base's IPv4 header is.
fn header_of(base: Base) -> Option<Stretch> {
    match base {
        Base::L1 { header } => Some(Stretch { offset: header.into(), width: 1 }),
        Base::Direct | Base::L2 { .. } => None,
    }
}

/// What an instruction asks of its words.
fn lanes_of(test: &Test) -> Vec<Lanes> {
    let of = |place: &Place, mask: u32| if place.width == 2 { mask & 0xffff } else { mask };
    match test {
        Test::Run(words) => {
            let lanes = words
                .iter()
                .map(|word| Lanes::Equal { mask: of(&word.place, word.mask), value: word.value });
            lanes.collect()
        }
        Test::AnyOf { place, mask, values: Values::List(list), .. } => {
            vec![Lanes::one_of(of(place, *mask), list)]
        }
        Test::AnyOf { place, mask, values: Values::Set(set), .. } => {
            vec![Lanes::member(of(place, *mask), set)]
        }
        Test::Range { place, mask, intervals, .. } => {
            vec![Lanes::within(of(place, *mask), intervals)]
        }
        _ => Vec::new(),
    }
}

/// The copied marks of a pass whose instruction is still the same in the parent.
fn still_copied(row: &crate::state::PassRow, parent: &crate::state::PassRow) -> u64 {
    let pairs = row.body.instructions.iter().zip(&parent.body.instructions).enumerate();
    let equal = pairs.filter(|(_, (own, parents))| own == parents);
    row.body.copied & equal.fold(0, |mask, (index, _)| mask | 1 << index)
}
