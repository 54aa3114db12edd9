//! Many passes of one shape, collapsed into a table.
//!
//! Two passes have the same *shape* when they test the same words under the same masks for one value each, and are
//! otherwise the same instructions. From [`THRESHOLD`] rows on, such passes become rows of a hashed table (`table`):
//! what all rows have in common is tested once, the words that differ are the key, and the row that is found is the
//! pass that matches. So the cost of a frame grows with the number of shapes, not of passes. A pass whose key is
//! taken by an earlier one, and everything beyond [`MAX_SHAPES`], stays a pass of its own.
//!
//! Frames that are too short for a filter are judged by its ordered evaluator, pass by pass, as without tables.

use crate::plan::{NO_FILTER, Plan, Step, fitting};
use crate::test::{Test, Values};
use fyke_table::{MAX_KEY_WORDS, RowTable, Seed, TableReader};
use std::collections::HashMap;

/// Fewest rows that are worth a table: a table costs a frame as much as some ten passes.
pub(crate) const THRESHOLD: usize = 16;
/// Most tables of a plan.
pub(crate) const MAX_SHAPES: usize = 64;
/// "No shape" in `PlanPass::shape`.
pub(crate) const NO_SHAPE: u32 = u32::MAX;

/// Passes that are rows of one table.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What all rows test.
    pub common: Vec<Step>,
    /// Columns and masks of the words that are the key.
    pub keys: Vec<(u32, u32)>,
    /// From key to index of the pass.
    pub table: TableReader,
    /// Indices of the rows' needs.
    pub needs: Vec<u32>,
    pub rows: usize,
}

/// How the passes of a set are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// Tables.
    pub shapes: usize,
    /// Passes that are rows of a table.
    pub rows: usize,
    /// Passes that are evaluated one by one.
    pub loose: usize,
}

/// One instruction, in a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    /// A word that is compared with one value.
    Word(u32, u32),
    /// The end of an instruction made of words.
    End,
    /// Any other instruction.
    Test(u32),
}

impl Plan {
    /// Makes tables of passes of one shape, and lists the others.
    pub(crate) fn collapse(&mut self) {
        let mut shapes: HashMap<Vec<Part>, Vec<u32>> = HashMap::new();
        let enough = self.passes.len() >= THRESHOLD;
        for pass in (0..self.passes.len() as u32).take_while(|_| enough) {
            let parts = self.parts(pass);
            shapes.entry(parts).or_default().push(pass);
        }
        let mut shapes: Vec<Vec<u32>> =
            shapes.into_values().filter(|passes| passes.len() >= THRESHOLD).collect();
        // The largest first; the order of the first passes makes it the same in every run.
        shapes.sort_unstable_by_key(|passes| (std::cmp::Reverse(passes.len()), passes[0]));
        let mut seed = Seed::random();
        for passes in shapes {
            if self.shapes.len() < MAX_SHAPES {
                self.add_shape(&passes, &mut seed);
            }
        }
        let loose = |&pass: &u32| self.passes[pass as usize].shape == NO_SHAPE;
        self.loose = (0..self.passes.len() as u32).filter(loose).collect();
    }

    /// Whether an instruction is the comparison of words with one value each: columns, masks, values.
    fn words_of(&self, step: Step) -> Option<impl Iterator<Item = (u32, u32, u32)> + '_> {
        let test = &self.tests[step.test as usize];
        let words: Vec<(u32, u32)> = match &test.compiled.test {
            Test::Run(words) => {
                words.iter().map(|word| (fitting(&word.place, word.mask), word.value)).collect()
            }
            Test::AnyOf { place, second: None, mask, values: Values::List(list) } => match **list {
                [value] => vec![(fitting(place, *mask), value)],
                _ => return None,
            },
            _ => return None,
        };
        let plain = !test.compiled.negated && !words.is_empty();
        let columns = test.columns.iter().zip(words);
        plain.then(|| columns.map(|(&column, (mask, value))| (column, mask, value)))
    }

    fn parts(&self, pass: u32) -> Vec<Part> {
        let mut parts = Vec::new();
        for &step in self.steps_of(&self.passes[pass as usize]) {
            match self.words_of(step) {
                Some(words) => {
                    parts.extend(words.map(|(column, mask, _)| Part::Word(column, mask)));
                    parts.push(Part::End);
                }
                None => parts.push(Part::Test(step.test)),
            }
        }
        parts
    }

    /// Makes a table, unless the rows differ in nothing or in too much.
    fn add_shape(&mut self, passes: &[u32], seed: &mut Seed) {
        let first = self.steps_of(&self.passes[passes[0] as usize]).to_vec();
        let mut differs = vec![false; first.len()];
        for &pass in passes {
            let steps = self.steps_of(&self.passes[pass as usize]);
            for ((differs, step), first) in differs.iter_mut().zip(steps).zip(&first) {
                *differs |= step.test != first.test;
            }
        }
        let varying = |step: &Step| self.words_of(*step).into_iter().flatten();
        let key_steps = || first.iter().zip(&differs).filter(|(_, differs)| **differs);
        let keys: Vec<(u32, u32)> = key_steps()
            .flat_map(|(step, _)| varying(step).map(|(column, mask, _)| (column, mask)))
            .collect();
        if keys.is_empty() || keys.len() > MAX_KEY_WORDS {
            return;
        }
        let common = first.iter().zip(&differs).filter(|(_, differs)| !**differs);
        let common = common.map(|(step, _)| *step).collect();
        let mut table = RowTable::with_capacity(keys.len(), *seed, passes.len(), passes.len());
        let mut rows = Vec::new();
        let mut key = Vec::with_capacity(keys.len());
        for &pass in passes {
            let steps = self.steps_of(&self.passes[pass as usize]).iter().zip(&differs);
            key.clear();
            for (step, _) in steps.filter(|(_, differs)| **differs) {
                key.extend(varying(step).map(|(_, _, value)| value));
            }
            if table.get(&key).is_none() && table.insert(&key, pass) == Ok(None) {
                rows.push(pass);
            }
        }
        let number = self.shapes.len() as u32;
        let mut needs = Vec::new();
        for &row in &rows {
            let pass = &mut self.passes[row as usize];
            pass.shape = number;
            if pass.filter != NO_FILTER {
                needs.push(self.filters[pass.filter as usize].needs);
            }
        }
        needs.sort_unstable();
        needs.dedup();
        let table = table.reader();
        self.shapes.push(Shape { common, keys, table, needs, rows: rows.len() });
    }

    /// How the passes are laid out.
    pub(crate) fn layout(&self) -> Layout {
        let rows = self.shapes.iter().map(|shape| shape.rows).sum();
        Layout { shapes: self.shapes.len(), rows, loose: self.loose.len() }
    }
}
