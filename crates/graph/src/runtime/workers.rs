//! Several workers: each runs a copy of the graph over its share of the conversations.
//!
//! The thread of the engine reads the sources and hands frames out by a hash of the outermost pair of addresses, both
//! directions alike, fragments with their first: whatever belongs together stays on one worker, in order. Nodes of
//! classes that only judge ([`Class::parallel`]) are made once per worker; all others exist once, behind a lock, so
//! that a file, a sampler or a top list is one for the whole graph. Counts are added up when somebody looks.
//!
//! Not with several workers: nodes that cut batches, and edits. Memory: at most [`QUEUED`] parcels of 256 frames per
//! worker; the sources wait for the slowest. Cost: a hash and a copy of each frame, and a lock per shared node and
//! batch. Order between conversations is not kept.
//!
//! [`Class::parallel`]: crate::node::Class::parallel

use super::nodes::{Input, Nodes, Slot};
use super::view::NodeView;
use crate::node::{Arrival, Counter, Emitted, Node, NodeError};
use fyke_capture::Interface;
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, Mask, walk};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Parcels that wait for a worker.
const QUEUED: usize = 8;
/// How often a worker lets time pass for its nodes and shows its counts.
const TICK: Duration = Duration::from_millis(100);

/// Frames on their way to a worker.
struct Parcel {
    /// The slot of their source.
    at: usize,
    source: u32,
    interfaces: Arc<[Interface]>,
    frames: Emitted,
    count: usize,
}

/// A worker as the engine sees it.
struct Worker {
    sender: Option<SyncSender<Parcel>>,
    filling: Option<Parcel>,
    view: Arc<Mutex<Vec<NodeView>>>,
    thread: Option<JoinHandle<()>>,
}

/// All workers.
pub(super) struct Crew {
    workers: Vec<Worker>,
    hashes: RandomState,
    interfaces: HashMap<u32, Arc<[Interface]>>,
    /// Whether a worker has ended before its time: nothing leads anywhere there.
    pub broken: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node that all workers use.
struct Shared {
    node: Arc<Mutex<One>>,
    /// Whether this is the worker that ticks and finishes it and shows its counters.
    is_first: bool,
}

struct One {
    node: Box<dyn Node>,
    failed: Option<NodeError>,
}

impl Node for Shared {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut one = lock(&self.node);
        if let Some(failed) = &one.failed {
            return Err(failed.clone());
        }
        match one.node.process(arrival) {
            Ok(passed) => {
                // Nothing cuts here, so the answer is final, and no other worker comes between.
                one.node.settle(arrival.mask());
                Ok(passed)
            }
            Err(error) => {
                one.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        if self.is_first { lock(&self.node).node.tick(emitted) } else { Ok(()) }
    }

    fn finish(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        if self.is_first { lock(&self.node).node.finish(emitted) } else { Ok(()) }
    }

    fn counters(&self) -> Vec<Counter> {
        if self.is_first { lock(&self.node).node.counters() } else { Vec::new() }
    }
}

/// The nodes of each worker, from those of the first and the copies of parallel ones for the others, by key.
pub(super) fn copies(first: Nodes, mut more: Vec<HashMap<u64, Box<dyn Node>>>) -> Vec<Nodes> {
    let mut all = vec![first];
    for _ in &more {
        let mut nodes = Nodes::default();
        nodes.interfaces.clone_from(&all[0].interfaces);
        all.push(nodes);
    }
    let count = all[0].slots.len();
    for index in 0..count {
        let slot = &mut all[0].slots[index];
        let plan = slot.plan.clone();
        let shared = slot.node.take().map(|node| match plan.class.parallel {
            true => Err(node),
            false => Ok(Arc::new(Mutex::new(One { node, failed: None }))),
        });
        let part = |shared: &Arc<Mutex<One>>, is_first| -> Box<dyn Node> {
            Box::new(Shared { node: Arc::clone(shared), is_first })
        };
        for (copy, made) in more.iter_mut().enumerate() {
            let node = match &shared {
                Some(Ok(shared)) => Some(part(shared, false)),
                _ => made.remove(&plan.key),
            };
            let mut plan = plan.clone();
            // The lock settles what is shared.
            plan.class.repeatable &= plan.class.parallel;
            all[copy + 1].slots.push(Slot::new(node, plan));
        }
        let slot = &mut all[0].slots[index];
        slot.plan.class.repeatable &= slot.plan.class.parallel;
        slot.node = match shared {
            Some(Ok(shared)) => Some(part(&shared, true)),
            Some(Err(node)) => Some(node),
            None => None,
        };
    }
    all.iter_mut().for_each(Nodes::arrange);
    all
}

impl Crew {
    /// Starts a thread for each copy.
    pub fn start(copies: Vec<Nodes>) -> std::io::Result<Crew> {
        let mut workers = Vec::new();
        for (number, nodes) in copies.into_iter().enumerate() {
            let (sender, receiver) = sync_channel(QUEUED);
            let view = Arc::new(Mutex::new(nodes.slots.iter().map(Slot::view).collect()));
            let shown = Arc::clone(&view);
            let thread = std::thread::Builder::new().name(format!("graph {number}"));
            let thread = thread.spawn(move || work(nodes, &receiver, &shown))?;
            let (sender, thread) = (Some(sender), Some(thread));
            workers.push(Worker { sender, filling: None, view, thread });
        }
        Ok(Crew { workers, hashes: RandomState::new(), interfaces: HashMap::new(), broken: false })
    }

    /// Hands the frames of a batch out.
    pub fn share(&mut self, at: usize, input: &Input<'_>) {
        let known = self.interfaces.get(&input.source);
        if known.is_none_or(|known| known.len() != input.interfaces.len()) {
            // What waits was captured with fewer interfaces, whose numbers stay the same.
            self.interfaces.insert(input.source, input.interfaces.into());
            self.flush();
        }
        for frame in input.batch.frames() {
            let place = (self.hashes.hash_one(ends(frame)) % self.workers.len() as u64) as usize;
            let other = |parcel: &Parcel| (parcel.source, parcel.at) != (input.source, at);
            if self.workers[place].filling.as_ref().is_some_and(other) {
                self.send(place);
            }
            let interfaces = &self.interfaces[&input.source];
            let worker = &mut self.workers[place];
            let parcel = worker.filling.get_or_insert_with(|| Parcel {
                at,
                source: input.source,
                interfaces: Arc::clone(interfaces),
                frames: Emitted::default(),
                count: 0,
            });
            parcel.frames.push(input.source, frame);
            parcel.count += 1;
            if parcel.count == BATCH_CAPACITY {
                self.send(place);
            }
        }
    }

    fn send(&mut self, place: usize) {
        let worker = &mut self.workers[place];
        if let Some(parcel) = worker.filling.take() {
            let sent = worker.sender.as_ref().is_some_and(|sender| sender.send(parcel).is_ok());
            self.broken |= !sent;
        }
    }

    /// Lets nobody wait for a parcel to be full.
    pub fn flush(&mut self) {
        (0..self.workers.len()).for_each(|place| self.send(place));
    }

    /// The nodes with the counts of all workers, at most a tenth of a second old.
    pub fn view(&self) -> Vec<NodeView> {
        let mut views = self.workers.iter().map(|worker| lock(&worker.view).clone());
        let mut sum = views.next().unwrap_or_default();
        for view in views {
            for (all, one) in sum.iter_mut().zip(view) {
                all.counts.add(&one.counts);
                all.failed = all.failed.take().or(one.failed);
                for counter in one.counters {
                    match all.counters.iter_mut().find(|known| known.name == counter.name) {
                        Some(known) => known.value += counter.value,
                        None => all.counters.push(counter),
                    }
                }
            }
        }
        sum
    }

    /// Waits until everything has been done. The first worker ends last, because it finishes what all of them use.
    pub fn finish(&mut self) {
        self.flush();
        for worker in self.workers.iter_mut().rev() {
            worker.sender = None;
            // A panic of a class is caught where it happens.
            let _ended = worker.thread.take().map(JoinHandle::join);
        }
    }
}

/// What a worker does.
fn work(mut nodes: Nodes, parcels: &Receiver<Parcel>, shown: &Mutex<Vec<NodeView>>) {
    let mut ticked = Instant::now();
    let mut failures = 0;
    loop {
        match parcels.recv_timeout(TICK) {
            Ok(parcel) => deliver(&mut nodes, &parcel),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if nodes.failures > failures {
            failures = nodes.failures;
            if !nodes.leads_anywhere() {
                break;
            }
        }
        if ticked.elapsed() >= TICK {
            nodes.tick();
            *lock(shown) = nodes.slots.iter().map(Slot::view).collect();
            ticked = Instant::now();
        }
    }
    (0..nodes.slots.len()).for_each(|index| nodes.finish(index));
    *lock(shown) = nodes.slots.iter().map(Slot::view).collect();
}

fn deliver(nodes: &mut Nodes, parcel: &Parcel) {
    let mut from = 0;
    loop {
        let (batch, source): (Batch<'_>, u32) = parcel.frames.batch(from);
        if batch.is_empty() {
            return;
        }
        from += batch.len();
        let input = Input {
            batch: &batch,
            source,
            interfaces: &parcel.interfaces,
            held: None,
            emitted: None,
        };
        nodes.arrive(parcel.at, &input);
    }
}

/// What the frames of a conversation have in common, both directions and all fragments.
fn ends(frame: &Frame<'_>) -> Option<(std::net::IpAddr, std::net::IpAddr)> {
    let layers = walk(frame);
    let ip = layers.outermost_ip()?;
    let (source, destination) = (ip.source(), ip.destination());
    Some((source.min(destination), source.max(destination)))
}
