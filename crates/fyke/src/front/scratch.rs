//! Memory for evaluating frames, taken from a pool by the thread that evaluates.
//!
//! The pool is that of `regex-automata`: the first thread owns a place that it takes without a lock, by one
//! atomic load; other threads share stacks that they try to lock and never wait for.

use fyke_filters::received;
use fyke_frame::{Batch, Frame, Mask};
use fyke_pass::Reader;
use regex_automata::util::pool;

type Create = Box<dyn Fn() -> Scratch + Send + Sync>;

/// The pool of a filter.
pub(super) type Pool = pool::Pool<Scratch, Create>;

/// Memory that one thread needs to evaluate frames.
#[derive(Debug)]
pub(super) struct Scratch {
    passes: Reader,
    /// Frames are evaluated as the device delivered them.
    as_received: bool,
    received: Vec<u8>,
    single: Single,
}

/// The memory of a batch of one frame.
#[derive(Debug, Default)]
pub(super) struct Single(Option<Batch<'static>>);

/// A pool of memory for these passes.
pub(super) fn pool(passes: &Reader, as_received: bool) -> Pool {
    let passes = passes.clone();
    let create = move || Scratch {
        passes: passes.clone(),
        as_received,
        received: Vec::new(),
        single: Single::default(),
    };
    Pool::new(Box::new(create))
}

impl Scratch {
    /// The accepted frames of a batch.
    pub fn batch(&mut self, batch: &Batch<'_>) -> Mask {
        let Scratch { passes, as_received, received, .. } = self;
        let mut judge = |batch: &Batch<'_>| passes.evaluate_uncounted(batch, batch.all());
        match as_received {
            true => received::as_received(batch, received, judge),
            false => judge(batch),
        }
    }

    /// Returns true if one frame is accepted.
    pub fn frame(&mut self, frame: &Frame<'_>) -> bool {
        let mut single = std::mem::take(&mut self.single);
        let accepted = single.run(frame, |batch| self.batch(batch).get(0));
        self.single = single;
        accepted
    }
}

impl Single {
    /// Calls `evaluate` with a batch of this frame only.
    pub fn run<T>(&mut self, frame: &Frame<'_>, evaluate: impl FnOnce(&Batch<'_>) -> T) -> T {
        let mut batch = self.0.take().unwrap_or_default().reuse();
        // An empty batch has room.
        let _full = batch.push(*frame);
        let result = evaluate(&batch);
        self.0 = Some(batch.reuse());
        result
    }
}
