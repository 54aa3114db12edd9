//! Set of words with one writer and many readers: a small set is in registers, a large one in a table.
//!
//! Up to 48 values, an edit makes a new [`RegisterSet`] (microseconds) and swaps it in. Above, a value is a row of a
//! [`RowTable`] and an edit is a few stores. A set that has moved to a table stays there until it has at most half as
//! many values as fit registers.

use crate::arch::Level;
use crate::hash::Seed;
use crate::layout::Column;
use crate::published::{Publisher, Subscriber};
use crate::register_set::{REGISTER_SET_LIMIT, RegisterSet};
use crate::row_table::{RowTable, TableError, TableReader};
use fyke_frame::Mask;

#[derive(Debug)]
enum Form {
    Registers(Box<RegisterSet>),
    Rows(TableReader),
}

/// Writer of the set.
#[derive(Debug)]
pub struct ValueSet {
    /// All values, sorted, while they are in registers.
    small: Vec<u32>,
    table: Option<RowTable>,
    publisher: Publisher<Form>,
    seed: Seed,
}

/// Reader of the set. Cheap to clone; one per thread.
#[derive(Debug, Clone)]
pub struct ValueSetReader {
    form: Subscriber<Form>,
    rows: Option<TableReader>,
    level: Level,
}

impl ValueSet {
    /// Creates the set of these values.
    ///
    /// # Errors
    /// There are more values than a table can hold.
    pub fn new(values: &[u32], seed: Seed) -> Result<Self, TableError> {
        let empty = RegisterSet::new(&[]).unwrap_or_else(|| unreachable!("nothing to place"));
        let publisher = Publisher::new(Form::Registers(Box::new(empty)));
        let mut set = ValueSet { small: Vec::new(), table: None, publisher, seed };
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        set.replace(sorted)?;
        Ok(set)
    }

    /// Creates a reader, for any thread.
    pub fn reader(&self) -> ValueSetReader {
        let mut reader =
            ValueSetReader { form: self.publisher.subscribe(), rows: None, level: Level::best() };
        reader.follow();
        reader
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.table.as_ref().map_or(self.small.len(), RowTable::len)
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the values are in registers.
    pub fn is_in_registers(&self) -> bool {
        self.table.is_none()
    }

    /// Adds a value; returns false if it was present.
    pub fn insert(&mut self, value: u32) -> Result<bool, TableError> {
        if let Some(table) = &mut self.table {
            return Ok(table.insert(&[value], 0)?.is_none());
        }
        let Err(at) = self.small.binary_search(&value) else { return Ok(false) };
        let mut values = self.small.clone();
        values.insert(at, value);
        self.replace(values)?;
        Ok(true)
    }

    /// Removes a value; returns false if it was absent.
    pub fn remove(&mut self, value: u32) -> bool {
        if let Some(table) = &mut self.table {
            let removed = table.remove(&[value]).is_some();
            if removed && table.len() <= REGISTER_SET_LIMIT / 2 {
                let values = self.values();
                // If no multiplier is found, the set stays in its table.
                let _stays = self.use_registers(values);
            }
            return removed;
        }
        let Ok(at) = self.small.binary_search(&value) else { return false };
        let mut values = self.small.clone();
        values.remove(at);
        self.replace(values).is_ok()
    }

    /// Returns all values in ascending order.
    pub fn values(&self) -> Vec<u32> {
        let Some(table) = &self.table else { return self.small.clone() };
        let mut values = Vec::with_capacity(table.len());
        table.for_each(|key, _| values.push(key[0]));
        values.sort_unstable();
        values
    }

    fn use_registers(&mut self, sorted: Vec<u32>) -> Result<(), Vec<u32>> {
        let Some(registers) = RegisterSet::new(&sorted) else { return Err(sorted) };
        self.publisher.publish(Form::Registers(Box::new(registers)));
        (self.small, self.table) = (sorted, None);
        Ok(())
    }

    fn replace(&mut self, sorted: Vec<u32>) -> Result<(), TableError> {
        let Err(sorted) = self.use_registers(sorted) else { return Ok(()) };
        let seed = Seed::fixed(self.seed.next());
        let limit = crate::row_table::DEFAULT_ROW_LIMIT;
        let mut table = RowTable::with_capacity(1, seed, sorted.len(), limit);
        for value in sorted {
            table.insert(&[value], 0)?;
        }
        self.publisher.publish(Form::Rows(table.reader()));
        (self.small, self.table) = (Vec::new(), Some(table));
        Ok(())
    }
}

impl ValueSetReader {
    /// Selects another instruction level than the fastest.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
        if let Some(rows) = &mut self.rows {
            rows.set_level(level);
        }
    }

    fn follow(&mut self) {
        self.rows = match self.form.current() {
            Form::Registers(_) => None,
            Form::Rows(rows) => Some(rows.clone()),
        };
        self.set_level(self.level);
    }

    fn refresh(&mut self) {
        if self.form.refresh() {
            self.follow();
        }
    }

    /// True if a value is in the set.
    pub fn contains(&mut self, value: u32) -> bool {
        self.refresh();
        match (&mut self.rows, self.form.current()) {
            (Some(rows), _) => rows.find(&[value]).is_some(),
            (None, Form::Registers(set)) => set.contains(value),
            (None, Form::Rows(_)) => false,
        }
    }

    /// Returns the lanes of `lanes` with a word in the set.
    pub fn contains_column(&mut self, column: &Column, lanes: Mask) -> Mask {
        self.refresh();
        match (&mut self.rows, self.form.current()) {
            (Some(rows), _) => {
                let mut values = [0; fyke_frame::BATCH_CAPACITY];
                rows.find_columns(&[column], lanes, &mut values).unwrap_or(Mask::EMPTY)
            }
            (None, Form::Registers(set)) => set.contains_column(column, lanes, self.level),
            (None, Form::Rows(_)) => Mask::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn edits_agree_with_a_set_across_both_forms() {
        let mut set = ValueSet::new(&[], Seed::fixed(1)).unwrap();
        let mut reader = set.reader();
        let mut model = BTreeSet::new();
        let mut random = Seed::fixed(2);
        let mut forms = [0; 2];
        for step in 0..3_000 {
            let draw = random.next();
            let value = (draw >> 32) as u32 % 150;
            // Grows for a while, then shrinks.
            if draw % 10 < if step / 500 % 2 == 0 { 8 } else { 1 } {
                assert_eq!(set.insert(value).unwrap(), model.insert(value));
            } else {
                assert_eq!(set.remove(value), model.remove(&value));
            }
            forms[usize::from(set.is_in_registers())] += 1;
            assert_eq!(set.len(), model.len());
            let column: Column = std::array::from_fn(|lane| lane as u32);
            for level in Level::all() {
                reader.set_level(level);
                let hits = reader.contains_column(&column, Mask::first(200));
                assert!(hits.iter().eq(model.iter().map(|&value| value as usize)), "{level:?}");
            }
            assert_eq!(reader.contains(value), model.contains(&value));
        }
        assert!(set.values().into_iter().eq(model));
        assert!(forms.iter().all(|&count| count > 100), "{forms:?}");
    }
}
