//! Rows that are added and removed, and readers that advance, under every interleaving that the memory model allows (up
//! to three preemptions). `protocol.rs` is included unchanged, over loom's atomics; the table is one word here, with
//! the memory orders of `fyke-table`, which has a model for its own protocol. A normal `cargo test` runs it.

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/state/protocol.rs"]
#[allow(dead_code, reason = "the model needs a part of it")]
mod protocol;

use loom::sync::Arc;
use loom::thread;
use protocol::{advance, begin, is_live, pin, range, scan_fence};
use sync::{AtomicU64, Ordering};

/// One slot, the word of the table that points to it (0 = nothing does), the epoch and a reader epoch.
struct World {
    born: AtomicU64,
    died: AtomicU64,
    pass: AtomicU64,
    pointer: AtomicU64,
    epoch: AtomicU64,
    pinned: AtomicU64,
}

impl World {
    /// Epoch 1, at which pass 1 is a row; the reader pins it.
    fn new() -> Arc<World> {
        let word = AtomicU64::new;
        let (born, died, pass) = (word(0), word(0), word(0));
        let world = World { born, died, pass, pointer: word(0), epoch: word(0), pinned: word(1) };
        world.add(1, 1);
        world.epoch.store(1, Ordering::Release);
        Arc::new(world)
    }

    fn add(&self, pass: u64, epoch: u64) {
        begin(&self.born, &self.died, epoch, || self.pass.store(pass, Ordering::Relaxed));
        self.pointer.store(1, Ordering::Release);
    }

    /// Removes the row if the reader does not need it.
    fn reclaim(&self) -> bool {
        scan_fence();
        let (born, died) = (self.born.load(Ordering::Relaxed), self.died.load(Ordering::Relaxed));
        let needed = range(&self.pinned).is_some_and(|(first, last)| born <= last && first < died);
        if !needed {
            self.pointer.store(0, Ordering::Release);
        }
        !needed
    }

    /// The pass that has a row in force at an epoch.
    fn find(&self, at: u64) -> Option<u64> {
        if self.pointer.load(Ordering::Acquire) == 0 || !is_live(&self.born, &self.died, at) {
            return None;
        }
        Some(self.pass.load(Ordering::Relaxed))
    }

    fn go_on(&self) -> u64 {
        advance(&self.pinned);
        let epoch = self.epoch.load(Ordering::Acquire);
        pin(&self.pinned, epoch);
        epoch
    }
}

fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// Pass 1 ends at epoch 2; if the reader does not need it, its slot goes to pass 2 at epoch 3. At any epoch, the reader
/// sees exactly that epoch's row.
#[test]
fn a_reader_sees_exactly_the_rows_of_its_epoch() {
    model(|| {
        let world = World::new();
        let writer = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.died.store(2, Ordering::Release);
                world.epoch.store(2, Ordering::Release);
                if world.reclaim() {
                    world.add(2, 3);
                    world.epoch.store(3, Ordering::Release);
                }
            }
        });
        let expected = |epoch| [None, Some(1), None, Some(2)][epoch as usize];
        assert_eq!(world.find(1), Some(1));
        let epoch = world.go_on();
        assert_eq!(world.find(epoch), expected(epoch), "epoch {epoch}");
        writer.join().expect("writer");
    });
}

/// A row is made at epoch 2 and ends at epoch 3 while a reader advances from epoch 1: if it reaches epoch 2, the row is
/// there, although the reader announces that epoch too late.
#[test]
fn a_row_is_kept_for_a_reader_that_is_on_its_way() {
    model(|| {
        let world = World::new();
        world.died.store(0, Ordering::Release);
        let writer = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.add(2, 2);
                world.epoch.store(2, Ordering::Release);
                world.died.store(3, Ordering::Release);
                world.epoch.store(3, Ordering::Release);
                if world.reclaim() {
                    world.add(4, 4);
                    world.epoch.store(4, Ordering::Release);
                }
            }
        });
        let expected = |epoch| [None, None, Some(2), None, Some(4)][epoch as usize];
        let epoch = world.go_on();
        assert_eq!(world.find(epoch), expected(epoch), "epoch {epoch}");
        writer.join().expect("writer");
    });
}

/// A row is there from its epoch on and not before, and an edit of two rows is one edit.
#[test]
fn rows_of_one_edit_appear_together() {
    model(|| {
        let (one, two) = (World::new(), World::new());
        let writer = thread::spawn({
            let (one, two) = (Arc::clone(&one), Arc::clone(&two));
            move || {
                one.died.store(2, Ordering::Release);
                two.died.store(2, Ordering::Release);
                one.epoch.store(2, Ordering::Release);
            }
        });
        let epoch = one.go_on();
        let found = (one.find(epoch), two.find(epoch));
        let expected = if epoch == 1 { Some(1) } else { None };
        assert_eq!(found, (expected, expected));
        writer.join().expect("writer");
    });
}
