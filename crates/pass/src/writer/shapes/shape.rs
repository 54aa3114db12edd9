//! One shape: the writer's half, and the data for its readers.

use super::ROW_LIMIT;
use crate::isa::id::Epoch;
use crate::isa::id::OrderKey;
use crate::isa::layout::Instruction;
use crate::isa::test::Compiled;
use crate::isa::test::{Addresses, Base, Place, Test, Values};
use crate::lower::needs::Needs;
use crate::state::PassRow;
use crate::state::published::{KeyPlace, PublishedShape};
use crate::state::rows::{Arena, Residual, Row, Slot};
use fyke_table::{MAX_KEY_WORDS, RowTable, Seed, TableError};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Largest number of different needs that a shape keeps.
const MAX_NEEDS: usize = 8;
/// Number of residual tests from which on those of removed rows are released.
const MANY_RESIDUALS: usize = 4096;

/// Role of an instruction for the rows of a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    /// The same for all rows.
    Common(Instruction),
    /// Words of the key.
    Key,
    /// The selected bits of implied words are in the key; the instruction is tested after the look-up as well.
    Near(u8),
    /// Tested after the look-up.
    Residual,
}

#[derive(Debug)]
pub(crate) struct Shape {
    roles: Vec<Role>,
    /// The instructions with which it was declared or first found.
    pub model: Vec<Instruction>,
    pub published: Arc<PublishedShape>,
    table: RowTable,
    /// Declared by the caller.
    pub declared: bool,
    /// The same as in `published`.
    first: OrderKey,
    /// Set when `published` was replaced; cleared by the next snapshot.
    pub relaid: bool,
    /// Masks of the key's words.
    masks: [u32; MAX_KEY_WORDS],
    pub width: usize,
    /// The same as in `published`.
    slots: Arc<Arena<Slot>>,
    free: Vec<u32>,
    fresh: u32,
    pub rows: usize,
    /// Number of ended rows that are still in the table.
    pub dead: usize,
    known: HashMap<Vec<Instruction>, u32>,
    /// Slots of earlier tables, in which readers that have not advanced still count.
    pub retired: Vec<Arc<Arena<Slot>>>,
}

/// The words of an instruction that compares words with one value each, and the values.
pub(super) fn words_of(compiled: &Compiled) -> Option<Vec<(KeyPlace, u32)>> {
    if compiled.negated {
        return None;
    }
    let word = |place: Place, mask, second, value| {
        let mask = if place.width == 2 { mask & 0xffff } else { mask };
        (KeyPlace { place, mask, second }, value)
    };
    match &compiled.test {
        Test::Run(words) if !words.is_empty() => {
            Some(words.iter().map(|one| word(one.place, one.mask, None, one.value)).collect())
        }
        Test::AnyOf { place, second, mask, values: Values::List(list) } => match **list {
            [value] => Some(vec![word(*place, *mask, *second, value)]),
            _ => None,
        },
        _ => None,
    }
}

/// Words that an instruction implies, and their values; a frame that has them may still fail it. These are each word of
/// a prefix of an IPv6 address; of an interval, the bits that all its values have in common.
pub(super) fn near_words_of(compiled: &Compiled) -> Option<Vec<(KeyPlace, u32)>> {
    if compiled.negated {
        return None;
    }
    let words: Vec<(KeyPlace, u32)> = match &compiled.test {
        Test::Prefix { offset, second, mask, addresses: Addresses::One(value) } => (0..4)
            .map(|word| (word, (mask >> (96 - 32 * word)) as u32))
            .filter(|(_, mask)| *mask != 0)
            .map(|(word, mask)| {
                let place = Place::new(Base::Direct, offset + 4 * word, true, mask);
                let key = KeyPlace { place, mask, second: *second };
                (key, (value >> (96 - 32 * word)) as u32 & mask)
            })
            .collect(),
        Test::Range { place, second, mask, intervals } => {
            let all = if place.width == 2 { 0xffff } else { u32::MAX };
            let [(low, high)] = **intervals else { return None };
            if mask & all != all || low > high || high > all {
                return None;
            }
            let differ = u32::MAX.checked_shr((low ^ high).leading_zeros()).unwrap_or(0);
            let mask = all & !differ;
            match mask {
                0 => Vec::new(),
                _ => vec![(KeyPlace { place: *place, mask, second: *second }, low & mask)],
            }
        }
        _ => Vec::new(),
    };
    (!words.is_empty()).then_some(words)
}

/// The words that a [`Role::Near`] selects.
fn chosen(words: Vec<(KeyPlace, u32)>, choice: u8) -> impl Iterator<Item = (KeyPlace, u32)> {
    words.into_iter().enumerate().filter(move |(at, _)| choice >> at & 1 == 1).map(|(_, word)| word)
}

/// Number of the words that are at one of two places.
pub(super) fn either_words(words: &[(KeyPlace, u32)]) -> usize {
    words.iter().filter(|(key, _)| key.second.is_some()).count()
}

impl Shape {
    /// Key and residual tests of a pass, if it can be a row here.
    pub(super) fn fit(&self, row: &PassRow) -> Option<(Vec<u32>, Vec<usize>)> {
        let (mut key, mut residual) = (Vec::with_capacity(MAX_KEY_WORDS), Vec::new());
        let body = &row.body;
        for (index, (role, instruction)) in self.roles.iter().zip(&body.instructions).enumerate() {
            match role {
                Role::Common(common) if common == instruction => {}
                Role::Common(_) => return None,
                Role::Key => {
                    key.extend(words_of(&body.compiled[index])?.iter().map(|word| word.1));
                }
                Role::Near(choice) => {
                    let words = near_words_of(&body.compiled[index])?;
                    key.extend(chosen(words, *choice).map(|word| word.1));
                    residual.push(index);
                }
                Role::Residual => residual.push(index),
            }
        }
        Some((key, residual))
    }

    /// The number of these residual tests plus one; 0 for none. `None` if there are too many different ones.
    pub(super) fn residual(&mut self, row: &PassRow, indices: &[usize]) -> Option<u32> {
        if indices.is_empty() {
            return Some(0);
        }
        let key: Vec<Instruction> = indices.iter().map(|&at| row.body.instructions[at]).collect();
        if let Some(&known) = self.known.get(&key) {
            return Some(known);
        }
        let number = self.known.len() as u32;
        let tests = indices.iter().map(|&at| row.body.compiled[at].clone()).collect();
        self.published.residuals.make(number)?.set(tests).ok()?;
        self.known.insert(key, number + 1);
        Some(number + 1)
    }

    /// True if most of the numbered tests belong to removed rows.
    pub(super) fn keeps_old_residuals(&self) -> bool {
        self.known.len() > MANY_RESIDUALS.max(2 * (self.rows + self.dead))
    }

    /// The key of these operands, one for each word.
    #[inline]
    pub(super) fn key(&self, operands: &[u32]) -> [u32; MAX_KEY_WORDS] {
        let mut key = self.masks;
        key.iter_mut().zip(operands).for_each(|(mask, operand)| *mask &= operand);
        key
    }

    /// Adds a row that is in force from `born` on.
    #[inline]
    pub(super) fn add(
        &mut self,
        key: &[u32],
        row: Row,
        born: Epoch,
        changed: Epoch,
    ) -> Result<u32, TableError> {
        let number = self.free.last().copied().unwrap_or(self.fresh);
        let full = TableError::Full { limit: self.fresh as usize };
        let slot = self.slots.make(number).ok_or(full)?;
        slot.begin(born, changed, row);
        match self.table.add(key, number) {
            Ok(entry) => slot.set_entry(entry),
            Err(error) => {
                slot.end(Epoch(0));
                return Err(error);
            }
        }
        if self.free.pop().is_none() {
            self.fresh += 1;
        }
        self.rows += 1;
        if row.order_key < self.first {
            self.come_first(row.order_key);
        }
        Ok(number)
    }

    /// Records that a row comes before all others so far.
    #[cold]
    fn come_first(&mut self, order_key: OrderKey) {
        self.first = order_key;
        self.published = Arc::new(PublishedShape { first: order_key, ..(*self.published).clone() });
        self.relaid = true;
    }

    /// Releases a slot that no reader reads any more.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        if let Some(slot) = self.slots.get(number) {
            slot.end(Epoch(0));
            self.table.take(slot.entry());
            self.free.push(number);
        }
    }

    pub(super) fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number)
    }

    /// The operands of a row: the words of its key.
    pub fn key_of(&self, slot: &Slot) -> Vec<u32> {
        self.table.key_of(slot.entry())[..self.published.keys.len()].to_vec()
    }

    /// The indices of the instructions to which the words of the key belong, in the key's order.
    pub fn key_instructions(&self) -> impl Iterator<Item = usize> {
        let roles = self.roles.iter().enumerate();
        roles.filter(|(_, role)| **role == Role::Key).map(|(index, _)| index)
    }

    /// Rows that no edit has ended.
    pub fn kept(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let all = (0..self.fresh).filter_map(|number| Some((number, self.slots.get(number)?)));
        all.filter(|(_, slot)| slot.is_kept())
    }

    /// Rebuilds table and slots without rows that ended at epoch `now` or before; true on success. Readers of the old
    /// ones may keep them.
    pub(super) fn rebuild(&mut self, now: Epoch) -> bool {
        let mut table = RowTable::with_capacity(
            self.published.keys.len(),
            Seed::random(),
            self.rows,
            ROW_LIMIT,
        );
        let slots = Arc::new(Arena::<Slot>::new());
        let residuals = Arc::new(Arena::<OnceLock<Residual>>::new());
        let mut renumbered: HashMap<u32, u32> = HashMap::new();
        let mut free = Vec::new();
        for number in 0..self.fresh {
            let Some(new) = slots.make(number) else { return false };
            let Some(old) = self.slots.get(number).filter(|old| old.outlives(now)) else {
                free.push(number);
                continue;
            };
            let key = self.table.key_of(old.entry());
            let Ok(entry) = table.add(&key[..self.published.keys.len()], number) else {
                return false;
            };
            let residual = match old.residual() {
                0 => 0,
                known => {
                    let next = renumbered.len() as u32;
                    1 + *renumbered.entry(known).or_insert(next)
                }
            };
            old.copy_to(new, residual);
            new.set_entry(entry);
        }
        for (&old, &new) in &renumbered {
            let tests = self.published.residuals.get(old - 1).and_then(OnceLock::get);
            let Some((tests, cell)) = tests.zip(residuals.make(new)) else { return false };
            let _fresh = cell.set(tests.clone());
        }
        self.known.retain(|_, number| renumbered.contains_key(number));
        self.known.values_mut().for_each(|number| *number = renumbered[number] + 1);
        self.retired.push(std::mem::replace(&mut self.slots, slots.clone()));
        let earlier = self.retired.iter().map(Arc::downgrade).collect();
        let table_reader = table.reader();
        let published = (*self.published).clone();
        self.published = Arc::new(PublishedShape {
            table: table_reader,
            slots,
            residuals,
            earlier,
            ..published
        });
        (self.table, self.free, self.dead) = (table, free, 0);
        true
    }

    /// Adds the counts of slots that no reader uses any more.
    pub(super) fn fold_retired(&mut self) {
        let slots = &self.slots;
        let fresh = self.fresh;
        self.retired.retain(|old| {
            let unused = Arc::strong_count(old) == 1;
            for number in (0..fresh).filter(|_| unused) {
                if let (Some(old), Some(slot)) = (old.get(number), slots.get(number))
                    && old.order_key() == slot.order_key()
                {
                    let late = old.accepted.swap(0, Ordering::Relaxed);
                    slot.accepted.fetch_add(late, Ordering::Relaxed);
                }
            }
            !unused
        });
    }
}

impl Shape {
    /// A shape without rows; few rows will come before the order key `first`. `None` if the key would have no words
    /// or too many.
    pub(super) fn new(
        roles: Vec<Role>,
        model: Vec<Instruction>,
        compiled: &[Arc<Compiled>],
        declared: bool,
        first: OrderKey,
    ) -> Option<Shape> {
        let key_words = |(role, compiled): (&Role, &Arc<Compiled>)| match *role {
            Role::Key => words_of(compiled).unwrap_or_default(),
            Role::Near(choice) => {
                chosen(near_words_of(compiled).unwrap_or_default(), choice).collect()
            }
            Role::Common(_) | Role::Residual => Vec::new(),
        };
        let keys: Vec<KeyPlace> =
            roles.iter().zip(compiled).flat_map(key_words).map(|word| word.0).collect();
        if keys.is_empty() || keys.len() > MAX_KEY_WORDS {
            return None;
        }
        let common = (roles.iter().zip(compiled))
            .filter(|(role, _)| matches!(role, Role::Common(_)))
            .map(|(_, compiled)| compiled.clone())
            .collect();
        let table = RowTable::with_capacity(keys.len(), Seed::random(), 0, ROW_LIMIT);
        let slots = Arc::new(Arena::new());
        let published = PublishedShape {
            number: 0,
            declared,
            first,
            common,
            keys,
            table: table.reader(),
            slots: slots.clone(),
            residuals: Arc::new(Arena::new()),
            earlier: Vec::new(),
            needs: Vec::new(),
        };
        Some(Shape {
            roles,
            model,
            first,
            relaid: false,
            masks: std::array::from_fn(|at| published.keys.get(at).map_or(0, |word| word.mask)),
            width: published.keys.len(),
            published: Arc::new(published),
            declared,
            table,
            slots,
            free: Vec::new(),
            fresh: 0,
            rows: 0,
            dead: 0,
            known: HashMap::new(),
            retired: Vec::new(),
        })
    }

    /// Instructions that all rows share.
    pub fn common(&self) -> impl Iterator<Item = &Instruction> {
        self.roles.iter().filter_map(|role| match role {
            Role::Common(instruction) => Some(instruction),
            Role::Key | Role::Near(_) | Role::Residual => None,
        })
    }

    /// Ends a row: it is in force before `epoch` only.
    pub(super) fn end(&mut self, number: u32, epoch: Epoch) {
        if let Some(slot) = self.slots.get(number) {
            slot.end(epoch);
            self.rows -= 1;
        }
    }

    /// Takes the number of frames that a row has accepted, which is no longer counted here.
    pub(super) fn take_accepted(&self, number: u32) -> u64 {
        self.slot(number).map_or(0, |slot| slot.accepted.swap(0, Ordering::Relaxed))
    }

    /// Adds the needs of a row: frames that are too short for them are not looked up. True if they are new. Many
    /// different needs become one that applies more often, because each of them costs every batch.
    pub(super) fn need(&mut self, needs: &Arc<Needs>) -> bool {
        let known = &self.published.needs;
        if known.iter().any(|known| Arc::ptr_eq(known, needs) || known.covers(needs)) {
            return false;
        }
        let mut all = known.clone();
        all.push(needs.clone());
        if all.len() > MAX_NEEDS {
            all = vec![Arc::new(Needs::union(all.iter().map(|needs| &**needs)))];
        }
        self.published = Arc::new(PublishedShape { needs: all, ..(*self.published).clone() });
        true
    }

    /// True if a shape that was not declared has no row left, not even an ended one.
    pub(super) fn is_forgettable(&self) -> bool {
        !self.declared && self.rows == 0 && self.dead == 0
    }

    /// Makes room for `rows` more rows at once.
    pub fn reserve(&mut self, rows: usize) {
        self.table.reserve(rows);
        if let Some(last) = (self.fresh as usize + rows).checked_sub(1) {
            for number in self.fresh..last.min(ROW_LIMIT) as u32 {
                self.slots.make(number);
            }
        }
    }
}
