//! Model check of the order of loads and stores under every interleaving that the memory model
//! allows (up to three preemptions).
//!
//! `protocol.rs` is included unchanged, with loom's atomics instead of the words of shared memory,
//! so the check covers the production code. A normal `cargo test` runs this check.

mod sync {
    pub use loom::sync::atomic::{Ordering, fence};
}

#[path = "../src/protocol.rs"]
#[allow(dead_code, reason = "the model needs a part of it")]
mod protocol;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use protocol::{Anchor, ENTRY, Reach, Words};
use sync::Ordering;

/// Memory with only the words that a model uses: loom keeps a history of each.
struct Small {
    words: Vec<(usize, AtomicU64)>,
}

impl Small {
    fn new(words: impl IntoIterator<Item = usize>) -> Small {
        Small { words: words.into_iter().map(|word| (word, AtomicU64::new(0))).collect() }
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        let found = self.words.iter().find(|(number, _)| *number == word);
        &found.unwrap_or_else(|| panic!("word {word} is not in the model")).1
    }
}

impl Words for Small {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }
}

/// Explores all interleavings with at most three preemptions per thread.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// First word of the model's frames; each is one word, and the buffer has two.
const FRAMES: usize = 8;
const CAPACITY: u64 = 2;

fn put(memory: &Small, number: u64) {
    protocol::announce(memory, number + 1);
    let word = FRAMES + (number % CAPACITY) as usize;
    memory.store(word, 100 + number, Ordering::Relaxed);
}

/// A frame that the intent calls whole has the bytes of its place.
#[test]
fn a_frame_is_read_whole_or_not_at_all() {
    model(|| {
        let memory = Arc::new(Small::new([protocol::INTENT, FRAMES, FRAMES + 1]));
        put(&memory, 0);
        let writer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || (1..4).for_each(|number| put(&memory, number))
        });
        let seen = memory.load(FRAMES, Ordering::Relaxed);
        let intent = protocol::intent(&*memory);
        if protocol::is_whole(intent, 0, 1, CAPACITY) {
            assert_eq!(seen, 100);
        }
        writer.join().expect("writer");
    });
}

/// The words of an index of two entries, of which a reader can use one at a time.
fn index_words() -> impl Iterator<Item = usize> {
    let places = protocol::PLACES..protocol::PLACES + 2;
    let entries = protocol::ENTRIES..protocol::ENTRIES + 2 * ENTRY;
    std::iter::once(protocol::PUSHED).chain(places).chain(entries)
}

/// An entry that the count calls valid is the one that was pushed under its number, and its place
/// follows from the last place.
#[test]
fn an_entry_is_read_whole_or_not_at_all() {
    model(|| {
        let memory = Arc::new(Small::new(index_words()));
        let writer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                let mut anchor = Anchor::default();
                for entry in 0..3 {
                    // The second and the third are far from the one before.
                    let place = 7 + entry * (protocol::STEP * 5);
                    let words = [entry + 10, entry + 20, entry + 30];
                    protocol::push(&*memory, 2, entry, words, (0, place), &mut anchor);
                }
            }
        });
        let pushed = protocol::pushed(&*memory);
        if let Some(entry) = pushed.checked_sub(1) {
            let words = protocol::entry(&*memory, 2, entry);
            let still = protocol::still_pushed(&*memory);
            if entry >= protocol::oldest(still, 2) {
                assert_eq!(words, [entry + 10, entry + 20, entry + 30]);
            }
            let place = 7 + entry * (protocol::STEP * 5);
            let found = Reach::load(&*memory, 0).place(entry, place as u32);
            assert!(found.is_none_or(|found| found == place), "{found:?} {place}");
            if still == pushed {
                // Nothing newer was seen, but the last place may be newer; then the floor is, too.
                assert!(found.is_some() || protocol::pushed(&*memory) >= pushed);
            }
        }
        writer.join().expect("writer");
    });
}

/// The request of a reader for a wake-up, and the writer's look at it: one of them sees the other.
#[test]
fn a_reader_that_sleeps_is_seen_or_sees_the_frame() {
    model(|| {
        let memory = Arc::new(Small::new([0, protocol::ASLEEP]));
        let writer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                memory.store(0, 1, Ordering::Release);
                protocol::before_requests();
                protocol::asks(&*memory)
            }
        });
        protocol::ask(&*memory, true);
        let pushed = memory.load(0, Ordering::Acquire);
        let asleep = writer.join().expect("writer");
        assert!(pushed == 1 || asleep);
    });
}
