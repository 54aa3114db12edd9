//! Outputs of several workers with rings: one file or one list of lines, in the order of the frames' times.
//!
//! A worker copies its frames into its queue (one for each source) and passes them. The holder of the lock writes the
//! earliest frames as long as no worker can have an earlier one: a worker's *clock* is the time of the last frame that
//! it has evaluated or, if its rings are quiet, [`SETTLED`] ago. A worker with [`QUEUE`] bytes waits until the others
//! have caught up, so no frame is written too early and memory is bounded; its ring holds the frames that arrive.
//!
//! Two frames change their order only if the kernel hands over a block more than [`SETTLED`] after its frames arrived,
//! or has stored them in another order in one ring. Frames that the output does not take are counted as lost later.
//! A batch of the output has frames of several sources, so their interfaces get common numbers.
//! Cost: a copy of each frame that arrives; a comparison for each change between two rings.

use super::nodes::next_serial;
use super::orders::lock;
use crate::node::columns::Column;
use crate::node::{Arrival, Counter, Emitted, Node, NodeError, Settings};
use fyke_capture::{Account, Interface};
use fyke_filters::FilterSet;
use fyke_frame::{Batch, Frame, Mask};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time after which a quiet ring has handed over all frames that arrived before: four times that of a block.
pub(super) const SETTLED: Duration = Duration::from_millis(100);
/// Bytes of a queue from which its worker waits.
const QUEUE: usize = 4 << 20;
/// Bytes that a frame takes besides its own.
const OVERHEAD: usize = 128;
/// Pause of a worker with a full queue.
const PAUSE: Duration = Duration::from_millis(1);
/// Most chunks that are kept for later frames.
const SPARE: usize = 64;

/// Frames of a batch.
#[derive(Default)]
struct Chunk {
    frames: Emitted,
    /// Times by which the frames are ordered; never smaller than those before.
    keys: Vec<u64>,
    bytes: usize,
}

/// Frames of a source that a worker has evaluated.
struct Queue {
    worker: usize,
    source: u32,
    chunks: VecDeque<Chunk>,
    /// Index of the next frame of the first chunk.
    at: usize,
    bytes: usize,
    last_key: u64,
    /// Interfaces of its source, and the index of each among those of all sources.
    interfaces: Vec<Interface>,
    places: Vec<u32>,
}

/// Position of a frame in a queue: chunk and index.
type Place = (usize, usize);

impl Queue {
    fn key(&self, (chunk, index): Place) -> Option<u64> {
        self.chunks.get(chunk)?.keys.get(index).copied()
    }

    fn after(&self, (chunk, index): Place) -> Place {
        let is_last = self.chunks.get(chunk).is_none_or(|one| index + 1 >= one.keys.len());
        if is_last { (chunk + 1, 0) } else { (chunk, index + 1) }
    }

    fn new(worker: usize, source: u32) -> Queue {
        let (chunks, interfaces, places) = (VecDeque::new(), Vec::new(), Vec::new());
        Queue { worker, source, chunks, at: 0, bytes: 0, last_key: 0, interfaces, places }
    }

    /// Adds the frames that arrive; `all` are the interfaces of all sources.
    fn push(&mut self, arrival: &Arrival<'_>, mut chunk: Chunk, all: &mut Vec<Interface>) {
        if self.interfaces != arrival.interfaces() {
            self.interfaces = arrival.interfaces().to_vec();
            self.places = self.interfaces.iter().map(|one| place_of(one, all)).collect();
        }
        for (_, frame) in arrival.frames() {
            self.last_key = self.last_key.max(frame.timestamp_ns);
            chunk.keys.push(self.last_key);
            let interface = self.places[frame.interface as usize];
            chunk.frames.push(self.source, &Frame { interface, ..*frame });
            chunk.bytes += frame.data.len() + OVERHEAD;
        }
        self.bytes += chunk.bytes;
        self.chunks.push_back(chunk);
    }

    /// Adds the frames up to a time to a batch; false if the batch takes no more.
    fn take<'q>(&'q self, limit: u64, place: &mut Place, batch: &mut Batch<'q>) -> bool {
        while self.key(*place).is_some_and(|key| key <= limit) {
            let Some((frame, _)) = self.chunks[place.0].frames.get(place.1) else { return false };
            if batch.push(frame).is_err() {
                return false;
            }
            *place = self.after(*place);
        }
        true
    }

    /// Removes the frames before a position.
    fn cut(&mut self, place: Place, spare: &mut Vec<Chunk>) {
        for _ in 0..place.0 {
            let Some(mut chunk) = self.chunks.pop_front() else { break };
            self.bytes -= chunk.bytes;
            if spare.len() < SPARE {
                chunk.frames.clear();
                chunk.keys.clear();
                chunk.bytes = 0;
                spare.push(chunk);
            }
        }
        self.at = place.1;
    }

    fn frames(&self) -> u64 {
        let all: usize = self.chunks.iter().map(|chunk| chunk.keys.len()).sum();
        (all - self.at) as u64
    }
}

/// The queues of all workers.
#[derive(Default)]
struct Queues {
    list: Vec<Queue>,
    /// Interfaces of all sources; the index of one never changes.
    interfaces: Vec<Interface>,
    spare: Vec<Chunk>,
    /// True if no frame will come any more.
    finishing: bool,
}

/// The output and the queues before it.
struct Merge {
    node: Box<dyn Node>,
    queues: Queues,
    /// Positions of the frames that are written next; kept for its memory.
    places: Vec<Place>,
    failed: Option<NodeError>,
    /// Frames that the output has not taken.
    lost: u64,
    has_room: bool,
    finished: bool,
}

/// The share of one worker.
pub(super) struct Merging {
    all: Arc<Mutex<Merge>>,
    clocks: Arc<[AtomicU64]>,
    worker: usize,
    ended: bool,
}

impl Merge {
    fn fail(&mut self, error: NodeError) {
        self.lost += self.queues.list.iter().map(Queue::frames).sum::<u64>();
        self.queues.list.clear();
        self.failed.get_or_insert(error);
    }

    fn check(&self) -> Result<(), NodeError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn ask_for_room(&mut self, patience: Duration) {
        match self.node.make_room(patience) {
            Ok(has_room) => self.has_room = has_room,
            Err(error) => self.fail(error),
        }
    }

    /// Writes the frames that come before every frame that a worker may still bring, as far as the output has room.
    fn drain(&mut self, clocks: &[AtomicU64]) {
        if !self.has_room && self.failed.is_none() {
            self.ask_for_room(Duration::ZERO);
        }
        while self.has_room && self.failed.is_none() && self.write(clocks) {
            self.ask_for_room(Duration::ZERO);
        }
    }

    /// Writes a batch; false if there is none.
    fn write(&mut self, clocks: &[AtomicU64]) -> bool {
        let Merge { node, queues, places, .. } = self;
        places.clear();
        places.extend(queues.list.iter().map(|queue| (0, queue.at)));
        let (mut batch, mut source) = (Batch::new(), None);
        while let Some((number, limit)) = queues.earliest(places, clocks) {
            let queue = &queues.list[number];
            source.get_or_insert(queue.source);
            if !queue.take(limit, &mut places[number], &mut batch) {
                break;
            }
        }
        let Some(source) = source.filter(|_| !batch.is_empty()) else { return false };
        let written = hand_over(&mut **node, &batch, source, &queues.interfaces);
        let count = batch.len() as u64;
        for (queue, place) in queues.list.iter_mut().zip(places) {
            queue.cut(*place, &mut queues.spare);
        }
        match written {
            Ok(lost) => self.lost += lost,
            Err(error) => {
                self.lost += count;
                self.fail(error);
            }
        }
        true
    }
}

/// Index of an interface among those of all sources, which get it if it is new.
fn place_of(interface: &Interface, all: &mut Vec<Interface>) -> u32 {
    let known = all.iter().position(|one| one == interface);
    let place = known.unwrap_or_else(|| {
        all.push(interface.clone());
        all.len() - 1
    });
    place as u32
}

/// The earliest time of a frame that a worker may still bring.
fn least(clocks: &[AtomicU64]) -> u64 {
    clocks.iter().map(|clock| clock.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
}

impl Queues {
    /// Index of the queue of a worker for the frames of a source.
    fn of(&mut self, worker: usize, source: u32) -> usize {
        let known =
            self.list.iter().position(|queue| (queue.worker, queue.source) == (worker, source));
        known.unwrap_or_else(|| {
            self.list.push(Queue::new(worker, source));
            self.list.len() - 1
        })
    }

    /// Adds the frames that arrive at a worker.
    fn push(&mut self, worker: usize, arrival: &Arrival<'_>) {
        let chunk = self.spare.pop().unwrap_or_default();
        let number = self.of(worker, arrival.source());
        self.list[number].push(arrival, chunk, &mut self.interfaces);
    }

    /// The queue with the earliest frame, and the time up to which its frames come before those of all others.
    fn earliest(&self, places: &[Place], clocks: &[AtomicU64]) -> Option<(usize, u64)> {
        let (mut first, mut limit) = (None, if self.finishing { u64::MAX } else { least(clocks) });
        for (number, queue) in self.list.iter().enumerate() {
            match (queue.key(places[number]), first) {
                (Some(key), None) => first = Some((key, number)),
                (Some(key), Some((least, _))) if key < least => {
                    limit = limit.min(least);
                    first = Some((key, number));
                }
                (Some(key), _) => limit = limit.min(key),
                (None, _) => {}
            }
        }
        let (key, number) = first?;
        (key <= limit).then_some((number, limit))
    }
}

/// Hands a batch to the output; returns how many of its frames it lost.
fn hand_over(
    node: &mut dyn Node,
    batch: &Batch<'_>,
    source: u32,
    interfaces: &[Interface],
) -> Result<u64, NodeError> {
    let (classes, mut assigned, mut emitted) =
        (Column::new(false), Column::default(), Emitted::default());
    let mut arrival = Arrival {
        batch,
        mask: batch.all(),
        interfaces,
        source,
        classes: &classes,
        assigned: &mut assigned,
        emitted: &mut emitted,
        held: None,
        serial: next_serial(),
        origin: None,
        position: 0,
        settled: None,
        taken: Mask::EMPTY,
        lost: Mask::EMPTY,
        cut: None,
        ends: false,
        flows: None,
        votes: &mut Vec::new(),
        given: None,
        pause: None,
    };
    node.process(&mut arrival)?;
    let lost = (arrival.lost & batch.all()).count() as u64;
    node.settle(batch.all());
    Ok(lost)
}

impl Merging {
    /// Makes the shares of an output, one for each worker.
    pub fn shares(node: Box<dyn Node>, clocks: &Arc<[AtomicU64]>) -> Vec<Merging> {
        let all = Arc::new(Mutex::new(Merge {
            node,
            queues: Queues::default(),
            places: Vec::new(),
            failed: None,
            lost: 0,
            has_room: true,
            finished: false,
        }));
        let share = |worker| Merging {
            all: Arc::clone(&all),
            clocks: Arc::clone(clocks),
            worker,
            ended: false,
        };
        (0..clocks.len()).map(share).collect()
    }

    fn is_first(&self) -> bool {
        self.worker == 0
    }
}

impl Node for Merging {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut all = lock(&self.all);
        all.check()?;
        if !arrival.mask().is_empty() {
            all.queues.push(self.worker, arrival);
        }
        all.drain(&self.clocks);
        Ok(arrival.mask())
    }

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        if !self.is_first() {
            return Ok(());
        }
        let mut all = lock(&self.all);
        all.drain(&self.clocks);
        all.check()?;
        all.node.tick(emitted)
    }

    /// The first worker ends last, and ends the output.
    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.ended = true;
        lock(&self.all).queues.finishing |= self.is_first();
        Ok(())
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let mut all = lock(&self.all);
        all.check()?;
        if self.ended && !self.is_first() {
            return Ok(true);
        }
        if !all.finished {
            all.drain(&self.clocks);
        }
        let finishing = all.queues.finishing;
        let is_empty = || all.queues.list.iter().all(|queue| queue.frames() == 0);
        if finishing && !all.finished && is_empty() {
            all.finished = true;
            all.node.finish(&mut Emitted::default())?;
        }
        all.check()?;
        all.ask_for_room(patience);
        all.check()?;
        let own = all.queues.list.iter().filter(|queue| queue.worker == self.worker);
        // The worker on which all others wait never waits itself.
        let is_ahead = || self.clocks[self.worker].load(Ordering::Relaxed) > least(&self.clocks);
        let is_full = own.map(|queue| queue.bytes).sum::<usize>() > QUEUE && is_ahead();
        let has_room = all.has_room && !is_full && finishing == all.finished;
        drop(all);
        if is_full {
            std::thread::sleep(PAUSE.min(patience));
        }
        Ok(has_room)
    }

    fn give_up(&mut self) {
        lock(&self.all).node.give_up();
    }

    fn connect(&mut self, filters: &FilterSet) {
        if self.is_first() {
            lock(&self.all).node.connect(filters);
        }
    }

    fn lost(&self) -> u64 {
        if !self.is_first() {
            return 0;
        }
        let all = lock(&self.all);
        all.node.lost() + all.lost
    }

    fn account(&mut self, accounts: &[(Interface, Account)]) {
        if self.is_first() {
            lock(&self.all).node.account(accounts);
        }
    }

    fn counters(&self) -> Vec<Counter> {
        if self.is_first() { lock(&self.all).node.counters() } else { Vec::new() }
    }

    fn change(&mut self, settings: &Settings) -> bool {
        !self.is_first() || lock(&self.all).node.change(settings)
    }
}
