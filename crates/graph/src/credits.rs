//! The passes that accepted the frames of a batch, from a filter node to the nodes after it in the same worker.
//!
//! A worker calls its nodes one after the other on its own thread, so a value of the thread is enough. The serial
//! number of the batch tells a node whether the value belongs to the batch that it sees.

use fyke_filters::FilterReader;
use fyke_print::Credit;
use fyke_ring::Mark;
use std::cell::RefCell;

#[derive(Default)]
struct Credits {
    serial: Option<u64>,
    frames: Vec<(usize, Credit)>,
}

thread_local! {
    static CREDITS: RefCell<Credits> = RefCell::default();
}

/// Leaves the passes that accepted the frames `passed` of a batch.
pub(crate) fn leave(serial: u64, reader: &FilterReader, passed: impl Iterator<Item = usize>) {
    CREDITS.with_borrow_mut(|credits| {
        credits.serial = Some(serial);
        credits.frames.clear();
        credits.frames.extend(passed.map(|index| (index, of_reader(reader, index))));
    });
}

fn of_reader(reader: &FilterReader, index: usize) -> Credit {
    let found = reader.credit(index);
    let filter = found.and_then(|(filter, _)| filter);
    Credit { filter, pass: found.map(|(_, pass)| pass), epoch: reader.epoch() }
}

/// The pass that accepted frame `index` of the last evaluated batch; `None` unless the reader reports it.
pub(crate) fn one(reader: &FilterReader, index: usize) -> Option<Credit> {
    reader.reports().then(|| of_reader(reader, index))
}

/// The class, the epoch and the pass of frame `index` of a batch, for an entry of a ring.
pub(crate) fn mark(serial: u64, index: usize, class: u32) -> Mark {
    let Some(credit) = of(serial, index) else { return Mark { class, ..Mark::default() } };
    let pass = credit.pass.map_or(0, |pass| pass as u32);
    Mark { class, epoch: credit.epoch as u32, pass }
}

/// The pass that accepted frame `index` of a batch; `None` if no node has left one.
pub(crate) fn of(serial: u64, index: usize) -> Option<Credit> {
    CREDITS.with_borrow(|credits| {
        if credits.serial != Some(serial) {
            return None;
        }
        let at = credits.frames.binary_search_by_key(&index, |(at, _)| *at).ok()?;
        Some(credits.frames[at].1)
    })
}
