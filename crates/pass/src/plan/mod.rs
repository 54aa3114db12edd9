//! A snapshot laid out for evaluation.
//!
//! The plan has the passes in the order of evaluation, every distinct instruction once and every distinct word of the
//! frame once. It decides which passes share the result of an instruction: instructions with the same *record* are
//! evaluated once per batch. Of the passes that are rows of tables (`shapes.rs`) it has only the shapes. So it is made
//! anew when passes outside of tables change, O(those passes), and stays when rows are added or removed.

pub(crate) mod chunks;
pub(crate) mod fused;
pub(crate) mod op;
pub(crate) mod program;
pub(crate) mod snapshot;
pub(crate) mod stencil;
pub(crate) mod word_test;

use crate::isa::id::OrderKey;
use crate::isa::id::{Epoch, FilterId, PassId};
use crate::isa::inner::InnerPasses;
use crate::isa::test::Compiled;
use crate::isa::test::{Base, Place, Test, Values};
use crate::lower::needs::{Extent, Guard, Needs};
use crate::lower::oracle::Oracle;
use crate::plan::chunks::{Chunk, Location, NO_BASE, Stretch, add_chunks, location};
use crate::plan::chunks::{Column, PlanBase};
pub(crate) use crate::plan::op::Op;
use crate::plan::op::{fitting, op_of, sources_of};
use crate::plan::program::{Draft, Program, Source, Sources};
use crate::plan::word_test::WordTest;
use crate::state::State;
use crate::state::published::{KeyPlace, PublishedShape};
use fused::FusedPlan;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use stencil::Stenciled;

/// Sharing of results between passes, for measuring the worth of sharing, of tables and of operands side by side
/// (Swift, table 7). The verdict is the same in all settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Sharing {
    /// An instruction is evaluated once per batch, even if several passes have it, and many passes of one shape are one
    /// look-up. Includes the papers' hierarchical execution and computation cache.
    #[default]
    All,
    /// A copied instruction takes the result of its parent's (hierarchical execution).
    Copied,
    /// Every pass evaluates its own instructions.
    Nothing,
    /// Like [`Sharing::All`], without tables.
    Instructions,
    /// Like [`Sharing::Instructions`], but every operand of an instruction is compared on its own, as if it were an
    /// instruction of its own.
    SingleOperands,
}

/// "No filter" in [`PlanPass::filter`].
pub(crate) const NO_FILTER: u32 = u32::MAX;

/// An instruction of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Index into [`Plan::tests`].
    pub test: u32,
    /// Index of the result.
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
    /// Instructions that were copied from the parent and are still equal there.
    pub copied: u64,
    /// True for the last pass of its filter, in the order of evaluation.
    pub last_of_filter: bool,
    pub order_key: OrderKey,
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
    pub op: Op,
}

/// The needs of filters.
#[derive(Debug)]
pub(crate) struct PlanNeeds {
    pub needs: Arc<Needs>,
    pub list: Vec<PlanNeed>,
}

/// Bytes that a frame must contain, unless one of the guards does not hold.
#[derive(Debug)]
pub(crate) struct PlanNeed {
    /// Columns, and the tests that they must satisfy.
    pub guards: Box<[(Column, WordTest)]>,
    pub extent: PlanExtent,
    /// No frame without it is accepted, whatever the guards.
    pub must: bool,
}

/// See [`Extent`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum PlanExtent {
    Fixed(u32),
    /// The header that ends at the base, and `fixed` more bytes.
    Behind {
        base: u32,
        fixed: u32,
    },
    /// The column has a value.
    Computed(u32),
    Other,
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
    /// Columns that are computed.
    pub programs: Vec<Program>,
    pub bases: Vec<PlanBase>,
    pub chunks: Vec<Chunk>,
    /// The offsets of the chunks.
    pub chunk_offsets: Vec<u32>,
    /// Number of chunks, from the first on, that are loaded when a batch begins.
    pub first_chunks: usize,
    pub filters: Vec<PlanFilter>,
    pub needs: Vec<PlanNeeds>,
    pub shapes: Vec<PlanShape>,
    /// Sets of passes that instructions evaluate.
    pub inner: Vec<Arc<dyn InnerPasses>>,
    /// The form for stencils, if the plan has one.
    pub stenciled: Option<Stenciled>,
    /// The fused form, if the plan is small.
    pub fused: Option<FusedPlan>,
}

/// A word of a key: the column, or one of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanKey {
    pub column: u32,
    pub second: Option<u32>,
    pub mask: u32,
}

/// A table of rows.
#[derive(Debug)]
pub(crate) struct PlanShape {
    pub published: Arc<PublishedShape>,
    /// Tests of all rows.
    pub common: Vec<Step>,
    /// The words of the key.
    pub keys: Vec<PlanKey>,
    /// Indices of the rows' needs.
    pub needs: Vec<u32>,
}

/// Largest number of passes of a small plan.
pub(crate) const MAX_PASSES: usize = 32;
/// Length of an IPv4 header without options.
pub(crate) const PLAIN_HEADER: u32 = 20;
/// Largest offset of the chunks that are loaded when a batch begins: most instructions of most filters read only these
/// bytes, on the frame's first cache line.
const FIRST_OFFSET: u32 = 30;
/// Largest number of chunks that are loaded together.
const FIRST_CHUNKS: usize = 3;

/// The number of a key; keys are numbered in the order of their first appearance.
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
    pub fn new(
        state: &State,
        order: &[PassId],
        shapes: &[Arc<PublishedShape>],
        sharing: Sharing,
    ) -> Plan {
        let mut plan = Plan::default();
        let mut tests: Vec<u32> = Vec::new();
        let mut sources = Sources::default();
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
                        PlanNeeds { needs: own.clone(), list: Vec::new() }
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
                let test = plan.test(&mut tests, &mut sources, compiled);
                let record = match sharing {
                    Sharing::All | Sharing::Instructions | Sharing::SingleOperands => test,
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
                order_key: row.order_key(id),
                changed: row.changed,
                accepted: row.accepted.clone(),
            });
        }
        last_of_filter.into_values().for_each(|pass| plan.passes[pass].last_of_filter = true);
        // Steps of rows get records after those of all other steps.
        let mut spare = plan.steps.len() as u32;
        for published in shapes {
            let mut shape = plan.shape(published, &mut tests, &mut sources, &mut needs);
            for step in shape.common.iter_mut().filter(|_| sharing != Sharing::All) {
                (step.record, spare) = (spare, spare + 1);
            }
            plan.shapes.push(shape);
        }
        let common = plan.shapes.iter().flat_map(|shape| &shape.common);
        let highest = plan.steps.iter().chain(common).map(|step| step.record as usize + 1);
        plan.records = highest.max().unwrap_or(0);
        plan.lay_out(sources);
        plan.choose_ways(sharing);
        plan
    }

    /// Makes the forms for the quicker tiers. Stencils share the common parts of passes, so they are only for settings
    /// that share them.
    fn choose_ways(&mut self, sharing: Sharing) {
        if sharing == Sharing::SingleOperands {
            self.tests.iter_mut().for_each(|test| test.split(&self.columns));
        }
        self.fused = FusedPlan::of(self);
        if matches!(sharing, Sharing::All | Sharing::Instructions) {
            self.stenciled = Stenciled::of(self);
        }
    }

    fn shape(
        &mut self,
        published: &Arc<PublishedShape>,
        tests: &mut Vec<u32>,
        sources: &mut Sources,
        needs: &mut HashMap<usize, u32>,
    ) -> PlanShape {
        let mut step = |compiled| {
            let test = self.test(tests, sources, compiled);
            Step { test, record: test }
        };
        let common = published.common.iter().map(&mut step).collect();
        let mut column = |place: Place| sources.column(Source::Place(place));
        let mut key = |key: &KeyPlace| PlanKey {
            column: column(key.place),
            second: key.second.map(|distance| column(key.place.moved(distance))),
            mask: key.mask,
        };
        let keys = published.keys.iter().map(&mut key).collect();
        let need = |own: &Arc<Needs>| {
            index_of(needs, &mut self.needs, Arc::as_ptr(own) as usize, |_| PlanNeeds {
                needs: own.clone(),
                list: Vec::new(),
            })
        };
        let needs = published.needs.iter().map(need).collect();
        PlanShape { published: published.clone(), common, keys, needs }
    }

    /// Decides from which chunks the words come.
    fn lay_out(&mut self, mut sources: Sources) {
        let extents = self.needs.iter().flat_map(|needs| needs.needs.each());
        for (_, extent, _) in extents {
            if let Extent::Value(expr) = extent {
                sources.column(Source::of(expr));
            }
        }
        let mut headers: Vec<u16> = Vec::new();
        let mut stretch = |draft: &Draft| match draft {
            Draft::Word(place) => stretch_of(&mut headers, place),
            Draft::Computed(_) => None,
        };
        let stretches: Vec<Option<Stretch>> = sources.list.iter().map(&mut stretch).collect();
        let read = stretches.iter().flatten().copied();
        let lengths = |headers: &[u16]| headers.iter().map(|&at| fixed(at.into(), 1)).collect();
        let lengths_read: Vec<Stretch> = lengths(&headers);
        add_chunks(&mut self.chunks, read.chain(lengths_read).collect());
        let first = self.chunks.iter().take_while(|chunk| chunk.offset <= FIRST_OFFSET);
        self.first_chunks = first.count().min(FIRST_CHUNKS);
        self.add_needs(&mut headers, &mut sources);
        add_chunks(&mut self.chunks, lengths(&headers));
        self.chunk_offsets = self.chunks.iter().map(|chunk| chunk.offset).collect();
        self.bases = headers
            .into_iter()
            .filter_map(|header| {
                let (base, at) = (Base::L1 { header }, u32::from(header));
                let location = location(&self.chunks, fixed(at, 1), 1)?;
                Some(PlanBase { base, header: location, plain_end: at + PLAIN_HEADER })
            })
            .collect();
        for (draft, stretch) in sources.list.into_iter().zip(stretches) {
            let column = match (draft, stretch) {
                (Draft::Computed(program), _) => self.computed(program),
                (Draft::Word(place), Some(stretch)) => {
                    let location = location(&self.chunks, stretch, place.needed);
                    Column::At(location.expect("every stretch has a chunk"))
                }
                (Draft::Word(_), None) => {
                    unreachable!("values after two headers are computed columns")
                }
            };
            self.columns.push(column);
        }
        let columns = &self.columns;
        for test in &mut self.tests {
            test.op = match &test.compiled.test {
                Test::Passes(set) => {
                    self.inner.push(set.clone());
                    Op::Passes(self.inner.len() as u32 - 1)
                }
                other => op_of(other, &test.columns, columns),
            };
        }
    }

    /// The column of a program; its word follows those of the chunks.
    fn computed(&mut self, program: Program) -> Column {
        let number = self.programs.len();
        self.programs.push(program);
        let (chunk, word) = (self.chunks.len() + number / 4, number % 4);
        let location =
            Location { chunk: chunk as u32, word: word as u8, shift: 0, end: 0, base: NO_BASE };
        Column::Computed { program: number as u32, location }
    }

    /// Lays out the needs of filters.
    fn add_needs(&mut self, headers: &mut Vec<u16>, sources: &mut Sources) {
        let all = self.needs.iter().flat_map(|needs| needs.needs.each());
        let guards = all.flat_map(|(guards, ..)| guards);
        let stretches = guards.map(|guard| fixed(guard.offset, guard.width)).collect();
        add_chunks(&mut self.chunks, stretches);
        let chunks = &self.chunks;
        let guard = |guard: &Guard| {
            let location = location(chunks, fixed(guard.offset, guard.width), guard.width)?;
            Some((Column::At(location), WordTest::equal(guard.mask, guard.value, location.shift)))
        };
        for needs in &mut self.needs {
            let each = needs.needs.each().map(|(guards, extent, must)| PlanNeed {
                must,
                guards: guards.iter().filter_map(guard).collect(),
                extent: match extent {
                    Extent::Fixed(end) => PlanExtent::Fixed(end),
                    Extent::Behind { ip, end } => match u16::try_from(ip) {
                        Ok(header) => PlanExtent::Behind {
                            base: base_of(headers, header),
                            fixed: ip.saturating_add(end),
                        },
                        Err(_) => PlanExtent::Other,
                    },
                    Extent::Value(expr) => PlanExtent::Computed(sources.column(Source::of(expr))),
                    Extent::Other => PlanExtent::Other,
                },
            });
            needs.list = each.collect();
        }
    }

    /// True if all passes belong to one filter.
    pub fn is_one_filter(&self) -> bool {
        self.shapes.is_empty() && self.passes.iter().all(|pass| pass.filter == 0)
    }

    /// The steps of a pass.
    pub fn steps_of(&self, pass: &PlanPass) -> &[Step] {
        &self.steps[pass.first as usize..pass.end as usize]
    }

    fn test(
        &mut self,
        known: &mut Vec<u32>,
        sources: &mut Sources,
        compiled: &Arc<Compiled>,
    ) -> u32 {
        let slot = compiled.slot as usize;
        if known.len() <= slot {
            known.resize(slot + 1, u32::MAX);
        }
        if known[slot] == u32::MAX {
            known[slot] = self.tests.len() as u32;
            let read = sources_of(&compiled.test).into_iter();
            let columns = read.map(|source| sources.column(source)).collect();
            let op = Op::OneByOne;
            self.tests.push(PlanTest { compiled: compiled.clone(), columns, op });
        }
        known[slot]
    }
}

impl PlanTest {
    /// Compares each operand on its own.
    fn split(&mut self, columns: &[Column]) {
        let Test::AnyOf { place, mask, values, .. } = &self.compiled.test else { return };
        let values: Vec<u32> = match values {
            Values::List(list) => list.to_vec(),
            Values::Set(set) => set.members().into_iter().map(|value| value as u32).collect(),
        };
        let mask = fitting(place, *mask);
        // A member with bits outside of the mask never matches.
        let values = values.into_iter().filter(|value| value & !mask == 0);
        let each = |value| {
            let one = move |&index: &u32| {
                (index, WordTest::equal(mask, value, columns[index as usize].shift()))
            };
            self.columns.iter().map(one)
        };
        let (own, tests): (Vec<u32>, Vec<WordTest>) = values.flat_map(each).unzip();
        if !own.is_empty() {
            (self.columns, self.op) = (own, Op::AnyOf(tests.into()));
        }
    }
}

/// The number of a header, which is added if it is new.
fn base_of(headers: &mut Vec<u16>, header: u16) -> u32 {
    let known = headers.iter().position(|&known| known == header);
    known.unwrap_or_else(|| {
        headers.push(header);
        headers.len() - 1
    }) as u32
}

fn fixed(offset: u32, width: u8) -> Stretch {
    Stretch { offset, width, base: NO_BASE }
}

/// The stretch of a place, if the IPv4 header before it (if any) has no options; `None` after a second header.
fn stretch_of(headers: &mut Vec<u16>, place: &Place) -> Option<Stretch> {
    match place.base {
        Base::Direct => Some(fixed(place.offset, place.width)),
        Base::L1 { header } => Some(Stretch {
            offset: u32::from(header) + PLAIN_HEADER + place.offset,
            width: place.width,
            base: base_of(headers, header),
        }),
        Base::L2 { .. } => None,
    }
}

/// The copied marks of the instructions of a pass that are still the same in the parent.
fn still_copied(row: &crate::state::PassRow, parent: &crate::state::PassRow) -> u64 {
    let pairs = row.body.instructions.iter().zip(&parent.body.instructions).enumerate();
    let equal = pairs.filter(|(_, (own, parents))| own == parents);
    row.body.copied & equal.fold(0, |mask, (index, _)| mask | 1 << index)
}
