//! Model check of the publish protocol under every interleaving that the memory model allows (up to three preemptions).
//!
//! `protocol.rs` is included unchanged, with loom's atomics instead of the standard ones, so the check covers the
//! production code. The slot is a plain atomic here, stored and loaded with the orderings of `row_table/rows.rs`. A
//! normal `cargo test` runs this check.

mod sync {
    pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

#[path = "../src/protocol.rs"]
#[allow(dead_code, reason = "the model needs a part of it")]
mod protocol;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use protocol::{change_value, read_entry, write_entry};
use sync::{AtomicU32, Ordering};

/// An entry of a two-word key and the slot that points to it (0 = free).
struct Row {
    entry: [AtomicU32; 4],
    slot: AtomicU64,
}

impl Row {
    fn new() -> Arc<Self> {
        let entry = std::array::from_fn(|_| AtomicU32::new(0));
        Arc::new(Row { entry, slot: AtomicU64::new(0) })
    }

    fn insert(&self, key: [u32; 2], value: u32) {
        write_entry(&self.entry, &key, value);
        self.slot.store(1, Ordering::Release);
    }

    fn remove(&self) {
        self.slot.store(0, Ordering::Release);
    }

    fn find(&self, key: [u32; 2]) -> Option<u32> {
        match self.slot.load(Ordering::Acquire) {
            0 => None,
            _ => read_entry(&self.entry, &key),
        }
    }
}

/// Explores all interleavings with at most three preemptions per thread; more find nothing new and take hours.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

const ONE: [u32; 2] = [1, 1];
const TWO: [u32; 2] = [2, 2];

#[test]
fn a_row_is_seen_whole_or_not_at_all() {
    model(|| {
        let row = Row::new();
        let writer = thread::spawn({
            let row = Arc::clone(&row);
            move || row.insert(ONE, 10)
        });
        let found = row.find(ONE);
        assert!(matches!(found, None | Some(10)), "{found:?}");
        writer.join().expect("writer");
        assert_eq!(row.find(ONE), Some(10));
    });
}

#[test]
fn an_entry_that_is_given_to_another_key_is_never_seen_torn() {
    for torn in [[1, 2], [2, 1]] {
        model(move || given_away(torn));
    }
    model(|| given_away(ONE));
}

/// `requested` is half of each key, or the old key.
fn given_away(requested: [u32; 2]) {
    {
        let row = Row::new();
        row.insert(ONE, 10);
        let writer = thread::spawn({
            let row = Arc::clone(&row);
            move || {
                row.remove();
                row.insert(TWO, 20);
            }
        });
        let found = row.find(requested);
        assert!(found.is_none() || (requested == ONE && found == Some(10)), "{found:?}");
        writer.join().expect("writer");
        assert_eq!((row.find(ONE), row.find(TWO)), (None, Some(20)));
    }
}

/// The new key's value must not be read for the old key, nor the old value for the new key.
#[test]
fn values_belong_to_their_keys() {
    model(|| {
        let row = Row::new();
        row.insert(ONE, 10);
        let writer = thread::spawn({
            let row = Arc::clone(&row);
            move || {
                row.remove();
                row.insert(TWO, 20);
            }
        });
        let found = row.find(TWO);
        assert!(matches!(found, None | Some(20)), "{found:?}");
        writer.join().expect("writer");
    });
}

#[test]
fn a_value_changes_in_place_and_the_row_is_never_missing() {
    model(|| {
        let row = Row::new();
        row.insert(ONE, 10);
        let writer = thread::spawn({
            let row = Arc::clone(&row);
            move || change_value(&row.entry, 11)
        });
        let (first, second) = (row.find(ONE), row.find(ONE));
        assert!(matches!(first, Some(10 | 11)), "{first:?}");
        assert!(second >= first, "{first:?} {second:?}");
        writer.join().expect("writer");
    });
}

/// Effects of the writer before an edit are visible to a reader that sees the edit.
#[test]
fn edits_are_seen_in_their_order() {
    model(|| {
        let (first, second) = (Row::new(), Row::new());
        let writer = thread::spawn({
            let (first, second) = (Arc::clone(&first), Arc::clone(&second));
            move || {
                first.insert(ONE, 10);
                second.insert(TWO, 20);
            }
        });
        if second.find(TWO).is_some() {
            assert_eq!(first.find(ONE), Some(10));
        }
        writer.join().expect("writer");
    });
}
