//! Values that a writer shows its readers: names, types and numbers in sealed memory. FFPF's memory
//! buffer (section 2.4 of the paper).
//!
//! Words: a magic number, the number of values; then eight words for each: five of its name, its
//! type, its value. A value is one word, so it is never torn; two values may be of two moments.
//! Cost: one store for a value.

use crate::index::check_magic;
use crate::protocol::{MAGIC, Words};
use crate::{Memory, RingError};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

const NUMBER: u64 = u64::from_le_bytes(*b"fykeval1");
const COUNT: usize = 1;
const FIRST: usize = 8;
const ENTRY: usize = 8;
const KIND: usize = 5;
const VALUE: usize = 6;
/// Longest name, in bytes; a longer one is cut.
pub const MAX_NAME: usize = 40;
/// Most values.
pub const MAX_VALUES: usize = 4096;

/// A number that a writer shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A count, or a word of a node's memory.
    Count(u64),
    /// A number that may have a fraction.
    Number(f64),
}

impl Value {
    fn to_words(self) -> [u64; 2] {
        match self {
            Value::Count(count) => [0, count],
            Value::Number(number) => [1, number.to_bits()],
        }
    }

    fn from_words(kind: u64, word: u64) -> Value {
        if kind == 1 { Value::Number(f64::from_bits(word)) } else { Value::Count(word) }
    }
}

/// Values of this process, or of another one.
#[derive(Debug)]
pub struct Values {
    memory: Memory,
    capacity: usize,
}

impl Values {
    /// Room for `count` values, at most [`MAX_VALUES`], that only this process can set.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create(count: usize) -> Result<Values, RingError> {
        let capacity = count.clamp(1, MAX_VALUES);
        let memory = Memory::create(FIRST + ENTRY * capacity)?;
        memory.store(MAGIC, NUMBER, Ordering::Release);
        Ok(Values { memory, capacity })
    }

    /// Maps values of another process.
    ///
    /// # Errors
    /// The memory holds no values.
    pub fn open(fd: OwnedFd) -> Result<Values, RingError> {
        let memory = Memory::open(fd)?;
        check_magic(&memory, NUMBER)?;
        let capacity = (memory.words().saturating_sub(FIRST) / ENTRY).min(MAX_VALUES);
        Ok(Values { memory, capacity })
    }

    /// Most values.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        (self.memory.load(COUNT, Ordering::Acquire) as usize).min(self.capacity)
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the value at a position, with its name and type if the position is the next new one; the
    /// type stays. Positions beyond that, and values of another process, stay as they are.
    pub fn set(&self, at: usize, name: &str, value: Value) {
        let count = self.len();
        if at > count || at >= self.capacity {
            return;
        }
        let [kind, word] = value.to_words();
        let first = FIRST + at * ENTRY;
        if at == count {
            let mut end = name.len().min(MAX_NAME);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            self.memory.write(first, &name.as_bytes()[..end]);
            self.memory.store(first + KIND, kind, Ordering::Relaxed);
        }
        self.memory.store(first + VALUE, word, Ordering::Relaxed);
        if at == count {
            self.memory.store(COUNT, at as u64 + 1, Ordering::Release);
        }
    }

    /// The value at a position, with its name.
    pub fn get(&self, at: usize) -> Option<(String, Value)> {
        if at >= self.len() {
            return None;
        }
        let first = FIRST + at * ENTRY;
        let word = |at: usize| self.memory.load(first + at, Ordering::Relaxed);
        let mut name = Vec::new();
        self.memory.read(first, MAX_NAME, &mut name);
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        Some((name, Value::from_words(word(KIND), word(VALUE))))
    }

    /// All values with their names.
    pub fn iter(&self) -> impl Iterator<Item = (String, Value)> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// The first value of this name.
    pub fn named(&self, name: &str) -> Option<Value> {
        self.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The descriptor that readers receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }
}
