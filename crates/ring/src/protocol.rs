//! The order in which a writer stores and its readers load, for both kinds of buffers.
//!
//! **Packet buffer.** The writer announces how far it will overwrite (the *intent*), then stores
//! words. A reader loads words, then the intent: if a word was newer than the frame it belongs to,
//! the intent is newer too, and the frame is discarded. One look at the intent validates any number
//! of frames that were loaded before it.
//!
//! **Index.** Entry n is stored in slot n modulo the capacity, then the count is set to n + 1. A
//! reader that sees a word of entry n sees at least the count n, so it knows that the entry which
//! was in that slot is gone.
//!
//! **Places.** An entry has the lower 32 bits of its frame's place, which wrap around. The full
//! place follows from the *last* (largest) place that was pushed, because all entries from the
//! *floor* on lie within 2^32 words of it. A reader that sees a last place sees its floor.
//!
//! **Wake-ups.** A reader asks for a wake-up, then looks for an entry; the writer pushes entries, then
//! looks for requests. With a fence between on both sides, one of them sees the other.
//!
//! `tests/model.rs` model-checks exactly this code. Cost: a frame costs its words and one store; an
//! entry costs five stores.

use super::sync::{Ordering, fence};

/// Memory in words that a writer and its readers share.
pub trait Words {
    /// Reads a word; 0 outside the memory.
    fn load(&self, word: usize, order: Ordering) -> u64;
    /// Writes a word; does nothing outside the memory.
    fn store(&self, word: usize, value: u64, order: Ordering);
}

/// The word with the magic number, in every kind of memory.
pub const MAGIC: usize = 0;
/// Packet buffer: end of the words that are written or being written, counted since the start.
pub const INTENT: usize = 1;

/// Index: entries pushed so far.
pub const PUSHED: usize = 1;
/// Index: first word of the last place and the floor of each packet buffer.
pub const PLACES: usize = 16;
/// Index: packet buffers that its entries may name.
pub const MAX_BUFFERS: usize = 16;
/// Index: first of the words that tell, for each packet buffer, the interfaces of its frames.
pub const INTERFACES: usize = PLACES + 2 * MAX_BUFFERS;
/// Index: first word of the entries.
pub const ENTRIES: usize = INTERFACES + MAX_BUFFERS;
/// Words of an entry.
pub const ENTRY: usize = 3;

/// Page of a reader: 1 while it asks for a wake-up.
pub const ASLEEP: usize = 1;

/// Distance of places at which the floor moves. No packet buffer is larger.
pub const STEP: u64 = 1 << 30;

/// Word of the largest place of a buffer that was pushed.
const LAST: usize = 0;
/// Word of the number of the first entry with a place within reach of the last one.
const FLOOR: usize = 1;

fn place_word(buffer: usize, which: usize) -> usize {
    PLACES + 2 * (buffer % MAX_BUFFERS) + which
}

/// First word of the slot of an entry; `capacity` is a power of two.
pub fn slot(entry: u64, capacity: usize) -> usize {
    ENTRIES + ENTRY * (entry as usize & (capacity - 1))
}

/// Writer: announces that words up to `end` will be overwritten, before it stores any of them.
#[inline]
pub fn announce(memory: &impl Words, end: u64) {
    memory.store(INTENT, end, Ordering::Relaxed);
    fence(Ordering::Release);
}

/// Reader: the intent, after it has loaded the words of some frames.
#[inline]
pub fn intent(memory: &impl Words) -> u64 {
    fence(Ordering::Acquire);
    memory.load(INTENT, Ordering::Relaxed)
}

/// Reader: true if `words` words at `place` were whole when the intent was `intent`.
#[inline]
pub fn is_whole(intent: u64, place: u64, words: u64, capacity: u64) -> bool {
    let age = intent.wrapping_sub(place);
    words <= age && age <= capacity
}

/// The writer's own record of the places that it has pushed into one packet buffer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anchor {
    last: Option<u64>,
    entry: u64,
    place: u64,
}

impl Anchor {
    /// The largest place after entry `entry` with a frame at `place`, and the new floor if it moves.
    fn advance(&mut self, entry: u64, place: u64) -> (u64, Option<u64>) {
        let Some(before) = self.last.replace(place) else {
            (self.entry, self.place) = (entry, place);
            return (place, None);
        };
        // Nodes that store the same frames in another order push places that go back a little.
        let last = before.max(place);
        self.last = Some(last);
        let floor = match () {
            // All entries before this one are overwritten.
            () if last - before >= STEP => entry,
            // All entries before the anchor are.
            () if last - self.place >= STEP => self.entry,
            () => return (last, None),
        };
        (self.entry, self.place) = (entry, last);
        (last, Some(floor))
    }
}

/// Writer: stores entry number `entry` for a frame at `place` of a buffer, and counts it.
#[inline]
pub fn push(
    memory: &impl Words,
    capacity: usize,
    entry: u64,
    words: [u64; ENTRY],
    (buffer, place): (usize, u64),
    anchor: &mut Anchor,
) {
    let (last, floor) = anchor.advance(entry, place);
    if let Some(floor) = floor {
        memory.store(place_word(buffer, FLOOR), floor, Ordering::Relaxed);
    }
    // The floor before the last place; the count of the entry before, before this slot's words.
    memory.store(place_word(buffer, LAST), last, Ordering::Release);
    fence(Ordering::Release);
    let first = slot(entry, capacity);
    for (at, word) in (first..).zip(words) {
        memory.store(at, word, Ordering::Relaxed);
    }
    memory.store(PUSHED, entry.wrapping_add(1), Ordering::Release);
}

/// Reader: entries pushed so far; all of them were stored before.
#[inline]
pub fn pushed(memory: &impl Words) -> u64 {
    memory.load(PUSHED, Ordering::Acquire)
}

/// The oldest entry that the writer cannot be overwriting now, if `pushed` entries were pushed.
pub fn oldest(pushed: u64, capacity: usize) -> u64 {
    pushed.saturating_sub(capacity as u64 - 1)
}

/// Reader: the words of an entry that was pushed; to be validated by [`still_pushed`].
#[inline]
pub fn entry(memory: &impl Words, capacity: usize, entry: u64) -> [u64; ENTRY] {
    let first = slot(entry, capacity);
    // Neither `array::from_fn` nor `map`: they are calls for each word.
    let load = |at: usize| memory.load(first + at, Ordering::Relaxed);
    [load(0), load(1), load(2)]
}

/// Reader: entries pushed so far, after it has loaded the words of some entries. Entries before
/// [`oldest`] of this count are not valid.
#[inline]
pub fn still_pushed(memory: &impl Words) -> u64 {
    fence(Ordering::Acquire);
    memory.load(PUSHED, Ordering::Relaxed)
}

/// The last place of a buffer and the floor that belongs to it, for entries that were pushed before.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    last: u64,
    floor: u64,
}

impl Reach {
    /// Reader: loads them, after [`pushed`].
    #[inline]
    pub fn load(memory: &impl Words, buffer: usize) -> Reach {
        let last = memory.load(place_word(buffer, LAST), Ordering::Acquire);
        Reach { last, floor: memory.load(place_word(buffer, FLOOR), Ordering::Relaxed) }
    }

    /// The full place of an entry; `None` if its frame was overwritten long ago.
    #[inline]
    pub fn place(self, entry: u64, low: u32) -> Option<u64> {
        let behind = (self.last as u32).wrapping_sub(low);
        (entry >= self.floor).then(|| self.last.wrapping_sub(behind.into()))
    }
}

/// Reader: asks for a wake-up, or not any more. After a request it looks for frames once more.
pub fn ask(page: &impl Words, asleep: bool) {
    page.store(ASLEEP, asleep.into(), Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Writer: before it looks at the requests of readers for the entries that it has pushed.
pub fn before_requests() {
    fence(Ordering::SeqCst);
}

/// Writer: true if a reader asks for a wake-up.
#[inline]
pub fn asks(page: &impl Words) -> bool {
    page.load(ASLEEP, Ordering::Relaxed) != 0
}
