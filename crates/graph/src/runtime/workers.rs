//! Several workers: each runs a copy of the graph over its share of the conversations.
//!
//! The thread of the engine reads the sources and distributes frames by a hash of the innermost pair of addresses
//! (for fragments, their own pair). Both directions have the same hash, and fragments that of their first one. So the
//! segments of a connection stay on one worker, in order, whichever tunnels carry them. Nodes without state, or with
//! the state of a conversation ([`Class::parallel`]), are made once per worker. All others exist once, with a lock,
//! so that the whole graph has one file or one top list. Counts are added when a view is requested.
//!
//! Edits reach every worker between two parcels, so each frame runs through one graph. The planner refuses two kinds
//! of nodes with several workers: nodes that cut batches, because a cut would have to stop frames that other workers
//! have already evaluated, and nodes whose results depend on the order of all frames ([`Class::ordered`]). Memory: at
//! most [`QUEUED`] parcels of 256 frames per worker; the sources wait for the slowest worker. Cost: a hash and a copy
//! of each frame, and a lock per shared node and batch. Order between conversations is not kept.
//!
//! [`Class::parallel`]: crate::node::Class::parallel
//! [`Class::ordered`]: crate::node::Class::ordered

use super::engine::Patience;
use super::nodes::{Counted, Fresh, Input, Nodes};
use crate::node::{Arrival, Counter, Emitted, Node, NodeError, Settings};
use crate::plan::PlanNode;
use crate::rules::RuleSet;
use fyke_capture::{Account, Interface};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, Mask, walk};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most parcels that wait for a worker.
const QUEUED: usize = 8;
/// Pause between two attempts to hand an order to a worker whose queue is full.
const PAUSE: Duration = Duration::from_micros(200);
/// Longest wait of a worker for its outputs before it does its other work.
const PATIENCE: Duration = Duration::from_millis(20);
/// Interval at which a worker ticks its nodes and publishes its counts.
const TICK: Duration = Duration::from_millis(100);

/// Frames for a worker.
struct Parcel {
    /// Index of the slot of their source.
    at: usize,
    source: u32,
    interfaces: Arc<[Interface]>,
    frames: Emitted,
    count: usize,
}

/// An order to a worker.
enum Order {
    Frames(Parcel),
    /// Publishes all counts, including those of filters.
    Show(SyncSender<()>),
    /// Accounts of live interfaces; for the first worker.
    Account(Vec<(Interface, Account)>),
    Edit(Edit),
}

/// A new graph for a worker.
struct Edit {
    plan: Vec<PlanNode>,
    fresh: Fresh,
    stays: HashMap<u64, u64>,
    done: SyncSender<()>,
}

/// A worker, seen by the engine.
struct Worker {
    sender: Option<SyncSender<Order>>,
    filling: Option<Parcel>,
    view: Arc<Mutex<Counted>>,
    thread: Option<JoinHandle<()>>,
}

/// All workers.
pub(super) struct Crew {
    workers: Vec<Worker>,
    hashes: RandomState,
    interfaces: HashMap<u32, Arc<[Interface]>>,
    /// True if workers give up output that is not consumed.
    give_up: Arc<AtomicBool>,
    /// True if a worker has ended early: no branch is left there.
    pub broken: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node that all workers use.
struct Shared {
    node: Arc<Mutex<One>>,
    rules: Option<RuleSet>,
    /// True on the worker that ticks and finishes the node and shows its counters.
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
                // No node cuts here, so the result is final, and no other worker comes between.
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

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let mut one = lock(&self.node);
        if let Some(failed) = &one.failed {
            return Err(failed.clone());
        }
        let answer = one.node.make_room(patience);
        if let Err(error) = &answer {
            one.failed = Some(error.clone());
        }
        answer
    }

    fn give_up(&mut self) {
        lock(&self.node).node.give_up();
    }

    fn pass_written(&mut self, at_once: bool) {
        lock(&self.node).node.pass_written(at_once);
    }

    fn lost(&self) -> u64 {
        if self.is_first { lock(&self.node).node.lost() } else { 0 }
    }

    fn account(&mut self, accounts: &[(Interface, Account)]) {
        if self.is_first {
            lock(&self.node).node.account(accounts);
        }
    }

    fn counters(&self) -> Vec<Counter> {
        if self.is_first { lock(&self.node).node.counters() } else { Vec::new() }
    }

    fn rules(&self) -> Option<&RuleSet> {
        self.rules.as_ref()
    }

    fn change(&mut self, settings: &Settings) -> bool {
        !self.is_first || lock(&self.node).node.change(settings)
    }
}

/// Distributes the nodes: each worker gets copies of the parallel ones and a share of every other.
fn parts(plan: &[PlanNode], mut made: Fresh, more: Vec<Fresh>) -> Vec<Fresh> {
    let mut all: Vec<Fresh> = std::iter::once(Fresh::new()).chain(more).collect();
    for node in plan {
        let Some(one) = made.remove(&node.key) else { continue };
        if node.class.parallel {
            all[0].insert(node.key, one);
            continue;
        }
        let rules = one.rules().cloned();
        let shared = Arc::new(Mutex::new(One { node: one, failed: None }));
        for (worker, part) in all.iter_mut().enumerate() {
            let (node_share, rules) = (Arc::clone(&shared), rules.clone());
            let share = Shared { node: node_share, rules, is_first: worker == 0 };
            part.insert(node.key, Box::new(share));
        }
    }
    all
}

impl Crew {
    /// Starts threads without nodes.
    pub fn start(count: usize) -> std::io::Result<Crew> {
        let mut workers = Vec::new();
        let give_up = Arc::new(AtomicBool::new(false));
        for number in 0..count {
            let (sender, receiver) = sync_channel(QUEUED);
            let view = Arc::new(Mutex::new(Counted::default()));
            let shown = Arc::clone(&view);
            let thread = std::thread::Builder::new().name(format!("graph {number}"));
            let gives_up = Arc::clone(&give_up);
            let thread = thread.spawn(move || work(&receiver, &shown, &gives_up))?;
            let (sender, thread) = (Some(sender), Some(thread));
            workers.push(Worker { sender, filling: None, view, thread });
        }
        let (hashes, interfaces) = (RandomState::new(), HashMap::new());
        Ok(Crew { workers, hashes, interfaces, give_up, broken: false })
    }

    /// Replaces the graph on every worker, between two parcels: parcels handed over before run through the old graph,
    /// parcels handed over later through the new one.
    pub fn edit(
        &mut self,
        plan: &[PlanNode],
        made: Fresh,
        more: Vec<Fresh>,
        stays: &HashMap<u64, u64>,
        patience: &mut Patience<'_>,
    ) {
        self.flush(patience);
        let (done, all_done) = sync_channel(self.workers.len());
        let mut more = more;
        more.resize_with(self.workers.len() - 1, Fresh::new);
        for (place, fresh) in parts(plan, made, more).into_iter().enumerate() {
            let mut plan = plan.to_vec();
            // A shared node settles in `process`, with its lock held.
            plan.iter_mut().for_each(|node| node.class.repeatable &= node.class.parallel);
            let edit = Edit { plan, fresh, stays: stays.clone(), done: done.clone() };
            self.hand(place, Order::Edit(edit), patience);
        }
        drop(done);
        // Waits until the counts of all workers belong to one graph again.
        let mut left = self.workers.len();
        while left > 0 && !self.broken {
            match all_done.recv_timeout(PATIENCE) {
                Ok(()) => left -= 1,
                Err(RecvTimeoutError::Timeout) => self.look(patience),
                Err(RecvTimeoutError::Disconnected) => self.broken = true,
            }
        }
    }

    /// Distributes the frames of a batch.
    pub fn share(&mut self, at: usize, input: &Input<'_>, patience: &mut Patience<'_>) {
        let known = self.interfaces.get(&input.source);
        if known.is_none_or(|known| known.len() != input.interfaces.len()) {
            // Waiting frames were captured with fewer interfaces, which keep their numbers.
            self.interfaces.insert(input.source, input.interfaces.into());
            self.flush(patience);
        }
        for frame in input.batch.frames() {
            let place = (self.hashes.hash_one(ends(frame)) % self.workers.len() as u64) as usize;
            let other = |parcel: &Parcel| (parcel.source, parcel.at) != (input.source, at);
            if self.workers[place].filling.as_ref().is_some_and(other) {
                self.send(place, patience);
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
                self.send(place, patience);
            }
        }
    }

    /// Hands the current parcel to a worker, after its queue has room.
    fn send(&mut self, place: usize, patience: &mut Patience<'_>) {
        if let Some(parcel) = self.workers[place].filling.take() {
            self.hand(place, Order::Frames(parcel), patience);
        }
    }

    fn hand(&mut self, place: usize, mut order: Order, patience: &mut Patience<'_>) {
        while let Some(sender) = &self.workers[place].sender {
            order = match sender.try_send(order) {
                Ok(()) => return,
                Err(TrySendError::Full(order)) => order,
                Err(TrySendError::Disconnected(_)) => break,
            };
            self.look(patience);
            std::thread::sleep(PAUSE);
        }
        self.broken = true;
    }

    /// Makes workers give up their outputs if their time is over.
    fn look(&self, patience: &mut Patience<'_>) {
        if patience.is_over() {
            self.give_up.store(true, Ordering::Relaxed);
        }
    }

    /// Sends all parcels, full or not.
    pub fn flush(&mut self, patience: &mut Patience<'_>) {
        (0..self.workers.len()).for_each(|place| self.send(place, patience));
    }

    /// The counts of all workers together, at most a tenth of a second old. With `filters` they are collected now,
    /// and `None` if a worker is too busy to answer.
    pub fn view(&mut self, filters: bool) -> Option<Counted> {
        if filters {
            let (done, all_done) = sync_channel(self.workers.len());
            let mut asked = 0;
            for sender in self.workers.iter().filter_map(|worker| worker.sender.as_ref()) {
                sender.try_send(Order::Show(done.clone())).ok()?;
                asked += 1;
            }
            (0..asked).try_for_each(|_| all_done.recv_timeout(PATIENCE)).ok()?;
        }
        let mut views = self.workers.iter().map(|worker| lock(&worker.view).clone());
        let mut sum = views.next().unwrap_or_default();
        for view in views {
            for (source, outcome) in &view.outcomes {
                sum.outcomes.entry(*source).or_default().add(outcome);
            }
            for (text, accepted) in &view.texts {
                *sum.texts.entry(*text).or_default() += accepted;
            }
            for (all, one) in sum.nodes.iter_mut().zip(view.nodes) {
                all.counts.add(&one.counts);
                all.unwritten += one.unwritten;
                if let (Some(all), Some(one)) = (&mut all.filters, one.filters) {
                    Arc::make_mut(all).add(&one);
                }
                all.failed = all.failed.take().or(one.failed);
                for (at, counter) in one.counters.into_iter().enumerate() {
                    // Copies of a node mostly return their counters in the same order.
                    let same = |known: &Counter| known.name == counter.name;
                    let place = match all.counters.get(at).is_some_and(same) {
                        true => Some(at),
                        false => all.counters.iter().position(same),
                    };
                    match place {
                        Some(_) if counter.is_common => {}
                        Some(place) => all.counters[place].value += counter.value,
                        None => all.counters.push(counter),
                    }
                }
            }
        }
        Some(sum)
    }

    /// Passes the accounts of live interfaces to the nodes that exist once.
    pub fn account(&mut self, accounts: Vec<(Interface, Account)>) {
        let sender = self.workers.first().and_then(|worker| worker.sender.as_ref());
        // A worker whose queue is full gets the next account.
        let _told = sender.is_some_and(|sender| sender.try_send(Order::Account(accounts)).is_ok());
    }

    /// Waits until all work is done. The first worker ends last, because it finishes the shared nodes.
    pub fn finish(&mut self, patience: &mut Patience<'_>) {
        self.flush(patience);
        for place in (0..self.workers.len()).rev() {
            self.workers[place].sender = None;
            let Some(thread) = self.workers[place].thread.take() else { continue };
            while !thread.is_finished() {
                self.look(patience);
                std::thread::sleep(PAUSE);
            }
            // A panic of a class is caught in the worker's thread.
            let _ended = thread.join();
        }
    }
}

/// Runs a worker.
fn work(orders: &Receiver<Order>, shown: &Mutex<Counted>, give_up: &AtomicBool) {
    let show = |nodes: &Nodes, filters| match nodes.counted(filters) {
        Some(counted) => {
            *lock(shown) = counted;
            true
        }
        None => false,
    };
    let mut nodes = Nodes::default();
    let mut ticked = Instant::now();
    let mut failures = 0;
    loop {
        make_room(&mut nodes, give_up);
        match orders.recv_timeout(TICK) {
            Ok(Order::Frames(parcel)) => deliver(&mut nodes, &parcel),
            Ok(Order::Edit(edit)) => {
                nodes.rebuild(edit.plan, edit.fresh, &edit.stays);
                show(&nodes, false);
                // The receiver is gone if the engine has stopped waiting.
                let _ended = edit.done.send(());
            }
            Ok(Order::Show(done)) => {
                // The receiver is gone if the engine has stopped waiting.
                let _ended = show(&nodes, true).then(|| done.send(()));
            }
            Ok(Order::Account(accounts)) => nodes.account(&accounts),
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
            show(&nodes, false);
            ticked = Instant::now();
        }
    }
    (0..nodes.slots.len()).for_each(|index| nodes.finish(index));
    nodes.await_all();
    make_room(&mut nodes, give_up);
    if !show(&nodes, true) {
        show(&nodes, false);
    }
}

/// Waits until the outputs have room or are given up.
fn make_room(nodes: &mut Nodes, give_up: &AtomicBool) {
    while !nodes.make_room(PATIENCE) {
        if give_up.load(Ordering::Relaxed) {
            nodes.give_up();
        }
    }
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
            counted: true,
            emitted: None,
        };
        nodes.arrive(parcel.at, &input);
    }
}

/// Addresses that all frames of a conversation share, in both directions and in all fragments: those of the innermost
/// packet, or of the outermost packet that is a fragment, because later fragments do not contain the inner headers.
fn ends(frame: &Frame<'_>) -> Option<(std::net::IpAddr, std::net::IpAddr)> {
    let layers = walk(frame);
    let fragmented =
        layers.levels().find(|level| level.fragment().is_some_and(|fragment| !fragment.is_whole()));
    let ip = fragmented.and_then(|level| level.ip()).or_else(|| layers.innermost_ip())?;
    let (source, destination) = (ip.source(), ip.destination());
    Some((source.min(destination), source.max(destination)))
}
