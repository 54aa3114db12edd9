//! Collapse: the choice of the passes that become rows, and of their shapes.

use super::Shapes;
use super::shape::{Role, Shape, either_words, near_words_of, words_of};
use crate::isa::id::RowRef;
use crate::isa::id::{Epoch, PassId};
use crate::isa::layout::Instruction;
use crate::isa::test::Compiled;
use crate::lower::THRESHOLD;
use crate::lower::needs::Needs;
use crate::plan::snapshot::Shared;
use crate::state::published::KeyPlace;
use crate::state::rows::Row;
use crate::state::{PassRow, State};
use fyke_table::MAX_KEY_WORDS;
use fyke_table::row_table::MAX_EITHER;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Largest number of passes of a kind per different key: a table in which every key has many rows is no better than
/// passes.
const PASSES_PER_KEY: usize = 4;

/// One word or instruction of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// A word that is compared with one value.
    Word(KeyPlace),
    /// A word that an instruction implies.
    Near(KeyPlace),
    /// The end of an instruction made of words.
    End,
    /// Any other instruction.
    Other,
}

/// Passes that could be rows of one shape.
#[derive(Debug, Default)]
pub(super) struct Kind {
    shapes: Vec<u32>,
    unindexed: BTreeSet<PassId>,
    /// Number of unindexed passes from which on a shape is tried again.
    next_try: usize,
    /// True if there were too many shapes to add one.
    capped: bool,
}

impl Kind {
    /// Number of passes that are not rows because there were too many shapes.
    pub fn capped(&self) -> usize {
        if self.capped { self.unindexed.len() } else { 0 }
    }
}

/// The kinds of a pass, as parts: by words that are compared with one value; then, if it differs, by implied words as
/// well.
fn kinds_of(compiled: &[Arc<Compiled>]) -> (Vec<Part>, Option<Vec<Part>>) {
    let near = compiled.iter().any(|one| words_of(one).is_none() && near_words_of(one).is_some());
    (parts_of(compiled, false), near.then(|| parts_of(compiled, true)))
}

fn parts_of(compiled: &[Arc<Compiled>], near: bool) -> Vec<Part> {
    let mut parts = Vec::with_capacity(2 * compiled.len());
    for one in compiled {
        match words_of(one) {
            Some(words) => {
                parts.extend(words.iter().map(|word| Part::Word(word.0)));
                parts.push(Part::End);
            }
            None => match near_words_of(one).filter(|_| near) {
                Some(words) => {
                    parts.extend(words.iter().map(|word| Part::Near(word.0)));
                    parts.push(Part::End);
                }
                None => parts.push(Part::Other),
            },
        }
    }
    parts
}

/// True if a pass can be a row: it is evaluated on its own and has a comparable order key.
fn may_be_row(row: &PassRow) -> bool {
    row.first_child.is_none() && row.label.as_ref().is_none_or(|label| label.len() <= 2)
}

fn needs_of<'a>(state: &'a State, row: &PassRow) -> Option<&'a Arc<Needs>> {
    let (_, needs) = state.filters.get(row.filter?.0)?.ordered.as_ref()?;
    Some(needs)
}

impl Shapes {
    /// Enters passes of the state that were added or changed: as rows in force from `epoch` on if possible, else as
    /// unindexed passes. Their instructions are compiled.
    pub fn add_passes(
        &mut self,
        state: &mut State,
        ids: impl Iterator<Item = PassId>,
        epoch: Epoch,
        readers: &Shared,
    ) {
        for id in ids {
            let Some(row) = state.pass(id) else { continue };
            if !may_be_row(row) {
                self.unindexed.insert(row.label(id), id);
                self.changed = true;
                continue;
            }
            let (parts, near) = kinds_of(&row.body.compiled);
            let kinds = || std::iter::once(&parts).chain(&near);
            let known = kinds().filter_map(|parts| self.kinds.get(parts));
            let shapes: Vec<u32> = known.flat_map(|kind| &kind.shapes).copied().collect();
            let found =
                shapes.into_iter().find_map(|shape| self.try_row(state, id, shape, epoch, readers));
            if let Some(place) = found {
                if let Some(row) = state.passes.get_mut(id.0) {
                    row.row = Some(place);
                }
                continue;
            }
            self.unindexed.insert(row.label(id), id);
            self.changed = true;
            for parts in kinds() {
                self.kinds.entry(parts.clone()).or_default().unindexed.insert(id);
            }
            for (parts, near) in kinds().zip([false, true]) {
                let due = |kind: &Kind| kind.unindexed.len() >= kind.next_try.max(THRESHOLD);
                if self.kinds.get(parts).is_some_and(due) {
                    self.make_shape(state, parts, near, epoch, readers);
                }
            }
        }
    }

    /// Removes an unindexed pass that became a row or was removed.
    fn remove_from_kinds(&mut self, id: PassId, compiled: &[Arc<Compiled>]) {
        let (parts, near) = kinds_of(compiled);
        for parts in std::iter::once(&parts).chain(&near) {
            if let Some(kind) = self.kinds.get_mut(parts) {
                kind.unindexed.remove(&id);
                if kind.unindexed.is_empty() && kind.shapes.is_empty() {
                    self.kinds.remove(parts);
                }
            }
        }
    }

    /// Removes a pass of the state that was removed or changed, from `epoch` on. `lives` if the pass itself stays.
    pub fn remove_pass(&mut self, id: PassId, row: &PassRow, lives: bool, epoch: Epoch) {
        let Some(place) = row.row else {
            self.unindexed.remove(&row.label(id));
            self.changed = true;
            self.remove_from_kinds(id, &row.body.compiled);
            return;
        };
        if let Some(shape) = self.get_mut(place.shape()) {
            shape.end(place.slot(), epoch);
            if lives {
                let so_far = shape.take_accepted(place.slot());
                row.accepted.fetch_add(so_far, std::sync::atomic::Ordering::Relaxed);
                let moved = self.moved.entry(id.0);
                moved.or_insert_with(|| (row.accepted.clone(), Vec::new())).1.push(place);
            }
        }
        self.retire(place);
    }

    /// Makes a pass a row of a shape, if it fits and there is room.
    fn try_row(
        &mut self,
        state: &State,
        id: PassId,
        number: u32,
        epoch: Epoch,
        readers: &Shared,
    ) -> Option<RowRef> {
        let row = state.pass(id)?;
        if self.get(number)?.keeps_old_residuals() {
            self.rebuild(number, Epoch(epoch.0 - 1));
        }
        let shape = self.get_mut(number)?;
        let (key, tests) = shape.fit(row)?;
        let residual = shape.residual(row, &tests)?;
        let of = |residual| Row { order_key: row.order_key(id), filter: row.filter, residual };
        let mut added = shape.add(&key, of(residual), epoch, row.changed);
        if added.is_err() && shape.dead > 0 {
            added = self.make_way(number, epoch, readers, |shape| {
                let residual = shape.residual(row, &tests).unwrap_or_default();
                shape.add(&key, of(residual), epoch, row.changed)
            });
        }
        let slot = added.ok()?;
        let shape = self.get_mut(number)?;
        let needs = needs_of(state, row).is_some_and(|needs| shape.need(needs));
        let relaid = std::mem::take(&mut shape.relaid);
        self.changed |= needs | relaid;
        Some(RowRef::new(number, slot))
    }

    /// Makes rows of the unindexed passes of a kind; a kind by implied words has them in the key.
    fn make_shape(
        &mut self,
        state: &mut State,
        parts: &[Part],
        near: bool,
        epoch: Epoch,
        readers: &Shared,
    ) {
        let Some(kind) = self.kinds.get_mut(parts) else { return };
        kind.next_try = 2 * kind.unindexed.len();
        let members: Vec<PassId> = kind.unindexed.iter().copied().collect();
        let rows: Vec<&PassRow> = members.iter().filter_map(|&id| state.pass(id)).collect();
        let Some(shape) = shape_of(&rows, near) else { return };
        let number = self.push(shape);
        if let Some(kind) = self.kinds.get_mut(parts) {
            kind.capped = number.is_none();
        }
        let Some(number) = number else { return };
        self.made.push(number);
        if let Some(kind) = self.kinds.get_mut(parts) {
            kind.shapes.push(number);
            kind.next_try = 0;
        }
        for id in members {
            let Some(place) = self.try_row(state, id, number, epoch, readers) else { continue };
            if let Some(row) = state.passes.get_mut(id.0) {
                self.unindexed.remove(&row.label(id));
                row.row = Some(place);
                let body = row.body.clone();
                self.remove_from_kinds(id, &body.compiled);
            }
        }
    }

    /// Removes shapes of passes that have no row left, not even an ended one; returns their common instructions.
    pub fn drop_empty(&mut self) -> Vec<Instruction> {
        let mut gone = Vec::new();
        for (number, place) in self.list.iter_mut().enumerate() {
            let empty = place.as_ref().is_some_and(Shape::is_forgettable);
            if let Some(shape) = place.take_if(|_| empty) {
                self.changed = true;
                self.kinds.retain(|_, kind| {
                    kind.shapes.retain(|&shape| shape != number as u32);
                    !(kind.shapes.is_empty() && kind.unindexed.is_empty())
                });
                gone.extend(shape.common().copied());
            }
        }
        gone
    }
}

/// The shape of passes of one kind; `None` if a table would cost more than it saves. If words that are compared with
/// one value do not distinguish most passes, implied words that do are added to the key, if the kind has them.
fn shape_of(rows: &[&PassRow], near: bool) -> Option<Shape> {
    let first = rows.first()?;
    let (model, compiled) = (&first.body.instructions, &first.body.compiled);
    let mut roles = Vec::new();
    let mut different: Vec<(usize, usize)> = Vec::new();
    for (index, (instruction, compiled)) in model.iter().zip(compiled).enumerate() {
        let values: HashSet<&Instruction> =
            rows.iter().map(|row| &row.body.instructions[index]).collect();
        roles.push(match words_of(compiled) {
            _ if values.len() == 1 => Role::Common(*instruction),
            Some(_) => {
                different.push((values.len(), index));
                Role::Residual
            }
            None => Role::Residual,
        });
    }
    // The words that distinguish most passes are the key, up to its capacity; the others are tested after the look-up.
    different.sort_unstable_by_key(|&(values, index)| (std::cmp::Reverse(values), index));
    let (mut room, mut either) = (MAX_KEY_WORDS, MAX_EITHER);
    let told_apart = different.first().map_or(1, |&(values, _)| values);
    for (_, index) in different {
        let words = words_of(&compiled[index]).unwrap_or_default();
        let rest = room.checked_sub(words.len());
        if let Some(rest) = rest.zip(either.checked_sub(either_words(&words))) {
            ((room, either), roles[index]) = (rest, Role::Key);
        }
    }
    let mut implied = if near { implied_words(rows, &roles) } else { Vec::new() };
    implied.sort_unstable_by_key(|&(values, ..)| std::cmp::Reverse(values));
    let mut told_apart = told_apart;
    for (values, index, at) in implied {
        let words = near_words_of(&compiled[index]).unwrap_or_default();
        let places = either_words(&words[at..=at]);
        if room == 0 || either < places || 2 * told_apart >= rows.len() {
            break;
        }
        (room, either, told_apart) = (room - 1, either - places, told_apart.max(values));
        let chosen = match roles[index] {
            Role::Near(chosen) => chosen,
            _ => 0,
        };
        roles[index] = Role::Near(chosen | 1 << at);
    }
    let shape = Shape::new(roles, model.clone(), compiled, false, [u64::MAX; 2])?;
    let keys: HashSet<Vec<u32>> = rows.iter().filter_map(|row| Some(shape.fit(row)?.0)).collect();
    (keys.len() * PASSES_PER_KEY >= rows.len()).then_some(shape)
}

/// Words that instructions outside of the key imply: the number of values of a word, the index of its instruction, and
/// its index there.
fn implied_words(rows: &[&PassRow], roles: &[Role]) -> Vec<(usize, usize, usize)> {
    let mut found = Vec::new();
    for index in (0..roles.len()).filter(|&index| roles[index] == Role::Residual) {
        let words = rows.iter().filter_map(|row| near_words_of(&row.body.compiled[index]));
        let mut values: Vec<HashSet<u32>> = Vec::new();
        for words in words {
            values.resize_with(words.len().max(values.len()), HashSet::new);
            words.iter().zip(&mut values).for_each(|(word, values)| {
                values.insert(word.1);
            });
        }
        let of = values.iter().enumerate().map(|(at, values)| (values.len(), index, at));
        found.extend(of.filter(|&(values, ..)| values > 1));
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::writer::pass_set::PassSet;
    use fyke_filter::{Options, compile};

    /// Texts with different guards have different needs; a shape keeps few of them, and readers' plans stay.
    #[test]
    fn rows_with_different_needs_share_a_few() {
        let options = Options::default();
        let mut set = PassSet::new(options.link);
        let mut plans = Vec::new();
        for tag in 1..400 {
            let text = format!("vlan {tag} and tcp port 80");
            let mut edit = set.edit();
            edit.add_filter(&compile(&text, &options).unwrap()).unwrap();
            edit.commit();
            plans.push(set.published());
        }
        let published = set.published().shapes().to_vec();
        assert!(
            published.len() > 1 && published.iter().all(|published| published.needs.len() <= 8),
            "{published:?}"
        );
        let changed = plans.windows(2).filter(|pair| !pair[0].same_plan(&pair[1])).count();
        assert!(changed < 60, "{changed} of 398 edits changed the plan");
    }
}
