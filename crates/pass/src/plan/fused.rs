//! The fused form of a small plan: the input of the evaluator in [`judge/fused.rs`](crate::judge::fused).
//!
//! Made when a plan is laid out, O(instructions): the steps of all passes in a row, which results are kept because
//! several passes need them, and the frame length from which on no byte is missing.

use super::chunks::{Column, Location};
use super::program::Step;
use super::{MAX_PASSES, PLAIN_HEADER, Plan, PlanExtent};
use crate::isa::id::OrderKey;
use fyke_frame::Frame;

/// Largest number of kept results.
pub(crate) const MAX_KEPT: usize = 32;
/// Largest number of chunks, and of headers.
pub(crate) const MAX_PLACES: usize = 16;
/// "Not kept" in [`FusedStep::kept`].
pub(crate) const NOT_KEPT: u8 = u8::MAX;

/// One instruction of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FusedStep {
    /// Index into [`Plan::tests`].
    pub test: u32,
    /// Index of the kept result, or [`NOT_KEPT`].
    pub kept: u8,
}

/// A plan that the fused tier can evaluate.
#[derive(Debug)]
pub(crate) struct FusedPlan {
    /// For each pass of the plan: the end of its part of `steps`.
    ends: Vec<u32>,
    steps: Vec<FusedStep>,
    /// Number of passes before all rows.
    pub early: usize,
    /// For each table of the plan: the locations of its keys.
    pub shapes: Vec<FusedShape>,
    /// Number of results that are kept.
    pub kept: usize,
    /// Frames of this length without IPv4 options contain all bytes that instructions read.
    pub enough: u32,
    /// Frames of this length contain all bytes that filters need at places that are not computed.
    pub bound: u32,
    /// True if some filter needs a computed value.
    pub computed_needs: bool,
    /// True if all passes belong to one filter.
    pub alone: bool,
    /// For each base: number of bytes after it that instructions read.
    pub reach: [u32; MAX_PLACES],
    /// Bases, and the number of bytes that a frame must have in addition to the header that ends at the base. In
    /// shorter frames a filter's order matters.
    pub behind: Vec<(u32, u32)>,
    /// Frames of this length have the bytes of every entry of the list above.
    behind_bound: u32,
    /// Frames of this length without options have all bytes that filters need.
    pub plain_bound: u32,
}

/// A word of a key.
#[derive(Debug)]
pub(crate) struct FusedKey {
    pub location: Location,
    pub second: Option<Location>,
    pub mask: u32,
}

/// A table of the plan.
#[derive(Debug)]
pub(crate) struct FusedShape {
    pub keys: Vec<FusedKey>,
}

impl FusedPlan {
    /// The fused form of a plan, if it has one.
    pub fn of(plan: &Plan) -> Option<FusedPlan> {
        let small = plan.passes.len() <= MAX_PASSES
            && plan.chunks.len() <= MAX_PLACES
            && plan.bases.len() <= MAX_PLACES
            && plan.programs.len() <= MAX_PLACES;
        if !small {
            return None;
        }
        let mut fused = FusedPlan {
            ends: Vec::new(),
            steps: Vec::new(),
            early: early(plan),
            shapes: Vec::new(),
            kept: 0,
            enough: 0,
            bound: 0,
            computed_needs: false,
            alone: plan.is_one_filter(),
            reach: [0; MAX_PLACES],
            behind: Vec::new(),
            behind_bound: 0,
            plain_bound: 0,
        };
        let mut uses = vec![0_u32; plan.records];
        let own = plan.passes.iter().map(|pass| plan.steps_of(pass));
        let lists = own.chain(plan.shapes.iter().map(|shape| &shape.common[..]));
        for step in lists.clone().flatten() {
            uses[step.record as usize] += 1;
        }
        let shared = |record: u32| uses[record as usize] > 1;
        let mut kept: Vec<u32> = Vec::new();
        for list in lists {
            for step in list {
                let known = kept.iter().position(|&record| record == step.record);
                let place = match known {
                    Some(place) => place as u8,
                    None if kept.len() < MAX_KEPT && shared(step.record) => {
                        kept.push(step.record);
                        kept.len() as u8 - 1
                    }
                    None => NOT_KEPT,
                };
                fused.steps.push(FusedStep { test: step.test, kept: place });
                fused.require(plan, &plan.tests[step.test as usize].columns)?;
            }
            fused.ends.push(fused.steps.len() as u32);
        }
        fused.add_shapes(plan)?;
        fused.kept = kept.len();
        for need in plan.needs.iter().flat_map(|needs| &needs.list) {
            match need.extent {
                PlanExtent::Fixed(end) => fused.enough = fused.enough.max(end),
                PlanExtent::Behind { base, fixed } => fused.require_behind(plan, base, fixed),
                PlanExtent::Computed(column) => {
                    fused.require_column(plan, column)?;
                    fused.computed_needs = true;
                }
                PlanExtent::Other => return None,
            }
        }
        fused.bound = fused.enough.max(fused.behind_bound);
        let plain = fused.behind.iter().map(|&(_, fixed)| fixed.saturating_add(PLAIN_HEADER));
        fused.plain_bound = plain.fold(fused.enough, u32::max);
        Some(fused)
    }

    /// The instructions of a pass.
    #[inline]
    pub fn steps(&self, pass: usize) -> &[FusedStep] {
        let first = pass.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.steps[first as usize..self.ends[pass] as usize]
    }

    /// True if short queues can be judged frame by frame.
    #[inline]
    pub fn takes_small_batches(&self, plan: &Plan) -> bool {
        plan.shapes.is_empty()
    }

    /// Number of bytes after a base that instructions read.
    #[inline]
    pub fn reach(&self, base: u32) -> usize {
        self.reach[base as usize % MAX_PLACES] as usize
    }

    /// True if a frame without options contains every byte that an instruction or a filter's order needs.
    #[inline]
    pub fn is_enough(&self, plan: &Plan, frame: &Frame) -> bool {
        let data = frame.data;
        let long = |&(base, fixed): &(u32, u32)| {
            let base = &plan.bases[base as usize];
            let header = (base.plain_end - PLAIN_HEADER) as usize;
            base.base.start(data).is_ok_and(|end| end - header + fixed as usize <= data.len())
        };
        data.len() >= self.enough as usize
            && (data.len() >= self.behind_bound as usize || self.behind.iter().all(long))
            && (!self.computed_needs || plan.needs.iter().all(|needs| needs.needs.complete(frame)))
    }

    fn require(&mut self, plan: &Plan, columns: &[u32]) -> Option<()> {
        columns.iter().try_for_each(|&column| self.require_column(plan, column))
    }

    fn require_column(&mut self, plan: &Plan, column: u32) -> Option<()> {
        let location = match plan.columns[column as usize] {
            Column::At(location) => location,
            Column::Computed { program, .. } => {
                let steps = &plan.programs[program as usize].steps;
                return match steps.is_empty() {
                    true => None,
                    false => steps.iter().try_for_each(|step| match *step {
                        Step::Word { column, .. } => self.require_column(plan, column),
                        _ => Some(()),
                    }),
                };
            }
        };
        self.enough = self.enough.max(location.end);
        if let Some(base) = plan.bases.get(location.base as usize) {
            let reach = &mut self.reach[location.base as usize];
            *reach = (*reach).max(location.end - base.plain_end.min(location.end));
        }
        Some(())
    }

    fn require_behind(&mut self, plan: &Plan, base: u32, fixed: u32) {
        const LONGEST: u32 = 60;
        self.enough = self.enough.max(plan.bases[base as usize].header.end);
        self.behind_bound = self.behind_bound.max(fixed.saturating_add(LONGEST));
        self.behind.push((base, fixed));
    }
}

impl FusedPlan {
    /// Finds the locations of keys; `None` if one is in no chunk.
    fn add_shapes(&mut self, plan: &Plan) -> Option<()> {
        let location = |column: u32| match plan.columns[column as usize] {
            Column::At(location) => Some(location),
            Column::Computed { .. } => None,
        };
        for shape in &plan.shapes {
            let mut keys = Vec::with_capacity(shape.keys.len());
            for key in &shape.keys {
                self.require(plan, &[key.column])?;
                self.require(plan, key.second.as_slice())?;
                let second = match key.second {
                    Some(second) => Some(location(second)?),
                    None => None,
                };
                keys.push(FusedKey { location: location(key.column)?, second, mask: key.mask });
            }
            self.shapes.push(FusedShape { keys });
        }
        Some(())
    }

    /// Instructions that all rows of a table share.
    #[inline]
    pub fn common(&self, plan: &Plan, shape: usize) -> &[FusedStep] {
        self.steps(plan.passes.len() + shape)
    }
}

/// Number of passes that come before all rows of the plan's tables.
fn early(plan: &Plan) -> usize {
    let first: Option<OrderKey> = plan.shapes.iter().map(|shape| shape.published.first).min();
    first.map_or(plan.passes.len(), |first| {
        plan.passes.partition_point(|pass| pass.order_key < first)
    })
}
