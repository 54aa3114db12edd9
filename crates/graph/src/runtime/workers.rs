//! Several workers: each runs a copy of the graph over its share of the conversations.
//!
//! | sources | reader | cost |
//! |---|---|---|
//! | interfaces | each worker: a ring of each ([`super::rings`]) | none; a lock while the front evaluates a batch |
//! | files, rings of others | the thread of the engine, which distributes parcels | a hash and a copy of each frame |
//!
//! Parcels are distributed by a hash of the outermost pair of addresses, as the kernel distributes the frames of
//! interfaces: all fragments have it, those of a tunnel's packets included. Both directions have the same hash. So the
//! segments of a connection stay on one worker, in order, unless tunnels between other ends carry some of them. Nodes
//! without state, or with the state of a conversation ([`Class::parallel`]), are made once per worker. All others exist
//! once, with a lock ([`super::once`]), so that the whole graph has one file or one top list. Counts are added when a
//! view is requested.
//!
//! A filter has one set of texts, which all workers read: an edit of it is in force for every worker at its next parcel
//! or batch. Edits of the graph reach every worker between two parcels, and the workers wait for each other, so each
//! frame runs through one graph. While the graph is paused, frames of interfaces are read and lost. The planner refuses
//! two kinds of nodes: nodes with results that depend on the order of all frames ([`Class::ordered`]) and, with
//! parcels, nodes that cut batches, because a cut would have to stop frames that other workers have already evaluated.
//! Memory: at most [`QUEUED`] parcels of 256 frames per worker; the sources wait for the slowest worker. Order between
//! conversations is kept only in outputs of interfaces ([`Class::in_time_order`]).
//!
//! [`Class::parallel`]: crate::node::Class::parallel
//! [`Class::ordered`]: crate::node::Class::ordered
//! [`Class::in_time_order`]: crate::node::Class::in_time_order

use super::engine::Patience;
use super::nodes::{Counted, Fresh, Input, Nodes};
use super::once;
use super::orders::{
    Asked, Edit, Meeting, NewRings, Order, Parcel, Shown, Signs, answer, lock, show, show_all,
    show_last,
};
use super::rings;
use crate::node::{Counter, Emitted};
use crate::plan::PlanNode;
use fyke_capture::{Account, Bell, Interface};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, walk};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most parcels that wait for a worker.
const QUEUED: usize = 8;
/// Pause between two attempts to hand an order to a worker whose queue is full.
const PAUSE: Duration = Duration::from_micros(200);
/// Longest wait of a worker for its outputs before it does its other work.
const PATIENCE: Duration = Duration::from_millis(20);
/// Longest wait for the counts of workers that read rings: more of them than processors take turns.
const SHOWN: Duration = Duration::from_millis(300);
/// Time after which counts are requested again: a worker may have failed with the request.
const RENEWED: Duration = Duration::from_secs(10);
/// Interval at which a worker ticks its nodes and publishes its counts.
const TICK: Duration = Duration::from_millis(100);

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
    signs: Arc<Signs>,
    /// True if workers read rings of their own.
    has_rings: bool,
    /// True if a worker has ended early: no branch is left there.
    broken: bool,
    /// Longest processor time of a worker for the last counts with those of filters.
    show_time: Duration,
    /// A request for counts with those of filters that workers have not answered yet.
    asking: Option<Asking>,
    /// Number of the last request for counts that such a request is for.
    asked: u64,
}

/// A request for all counts, until all workers have answered it.
struct Asking {
    began: Instant,
    done: SyncSender<Shown>,
    answers: Receiver<Shown>,
    /// Workers that do not have the request yet.
    unasked: Vec<usize>,
    /// Number of answers that are awaited from the others.
    left: usize,
    shown: Vec<Option<Counted>>,
    longest: Duration,
}

impl Crew {
    /// Starts threads without nodes; with `has_rings` they will read rings of their own. While `paused` is true, their
    /// frames are lost.
    pub fn start(count: usize, has_rings: bool, paused: Arc<AtomicBool>) -> std::io::Result<Crew> {
        let mut workers = Vec::new();
        let clocks = (0..count).map(|_| AtomicU64::new(0)).collect();
        let bell = |_| has_rings.then(Bell::new).and_then(Result::ok);
        let bells = (0..count).map(bell).collect();
        let signs = Arc::new(Signs { clocks, paused, bells, ..Signs::default() });
        for number in 0..count {
            let (sender, receiver) = sync_channel(QUEUED);
            let view = Arc::new(Mutex::new(Counted::default()));
            let shown = Arc::clone(&view);
            let thread = std::thread::Builder::new().name(format!("graph {number}"));
            let signs = Arc::clone(&signs);
            let thread = thread.spawn(move || match has_rings {
                true => rings::work(number, &receiver, &shown, &signs),
                false => work(number, &receiver, &shown, &signs),
            })?;
            let (sender, thread) = (Some(sender), Some(thread));
            workers.push(Worker { sender, filling: None, view, thread });
        }
        let (hashes, interfaces) = (RandomState::new(), HashMap::new());
        Ok(Crew {
            workers,
            hashes,
            interfaces,
            signs,
            has_rings,
            broken: false,
            show_time: Duration::ZERO,
            asking: None,
            asked: 0,
        })
    }

    /// Replaces the graph on every worker, between two parcels: parcels handed over before run through the old graph,
    /// parcels handed over later through the new one. `new` has the rings of new interfaces, for every worker.
    pub fn edit(
        &mut self,
        plan: &[PlanNode],
        made: Fresh,
        more: Vec<Fresh>,
        new: Vec<NewRings>,
        stays: &HashMap<u64, u64>,
        patience: &mut Patience<'_>,
    ) {
        self.flush(patience);
        // The answers are about nodes of the old graph.
        self.asking = None;
        let (done, all_done) = sync_channel(self.workers.len());
        let mut more = more;
        more.resize_with(self.workers.len() - 1, Fresh::new);
        let mut rings = rings::distribute(new, self.workers.len()).into_iter();
        let meeting = Arc::new(Meeting::new(self.workers.len()));
        let clocks = self.has_rings.then(|| Arc::clone(&self.signs.clocks));
        let (plan, all_parts) = once::parts(plan, made, more, clocks.as_ref());
        for (place, fresh) in all_parts.into_iter().enumerate() {
            let (meeting, done) = (Arc::clone(&meeting), done.clone());
            let rings = rings.next().unwrap_or_default();
            let (plan, stays) = (plan.clone(), stays.clone());
            let edit = Edit { plan, fresh, stays, rings, meeting, done };
            self.hand(place, Order::Edit(edit), patience);
        }
        drop(done);
        // Waits until the counts of all workers belong to one graph again.
        let mut left = self.workers.len();
        while left > 0 && !self.broken {
            match all_done.recv_timeout(PATIENCE) {
                Ok(()) => left -= 1,
                Err(RecvTimeoutError::Timeout) => self.look(patience),
                Err(RecvTimeoutError::Disconnected) => self.set_broken(),
            }
        }
    }

    /// Ends the run, and the waits of workers for one that is gone.
    fn set_broken(&mut self) {
        self.broken = true;
        self.signs.broken.store(true, Ordering::Relaxed);
    }

    /// Distributes the frames of a batch; with `is_lost`, to be counted as lost, because the graph is paused.
    pub fn share(
        &mut self,
        at: usize,
        input: &Input<'_>,
        is_lost: bool,
        patience: &mut Patience<'_>,
    ) {
        let known = self.interfaces.get(&input.source);
        if known.is_none_or(|known| known.len() != input.interfaces.len()) {
            // Waiting frames were captured with fewer interfaces, which keep their numbers.
            self.interfaces.insert(input.source, input.interfaces.into());
            self.flush(patience);
        }
        for frame in input.batch.frames() {
            let place = (self.hashes.hash_one(ends(frame)) % self.workers.len() as u64) as usize;
            let kind = (input.source, at, is_lost);
            let other = |parcel: &Parcel| (parcel.source, parcel.at, parcel.is_lost) != kind;
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
                is_lost,
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
                Ok(()) => return self.signs.ring(place),
                Err(TrySendError::Full(order)) => order,
                Err(TrySendError::Disconnected(_)) => break,
            };
            self.look(patience);
            std::thread::sleep(PAUSE);
        }
        self.set_broken();
    }

    /// Ends the waits of workers for frames.
    pub fn wake(&self) {
        (0..self.workers.len()).for_each(|place| self.signs.ring(place));
    }

    /// Makes workers give up their outputs if their time is over.
    pub fn look(&self, patience: &mut Patience<'_>) {
        if patience.is_over() {
            self.signs.give_up.store(true, Ordering::Relaxed);
        }
    }

    /// True if no branch is left on a worker.
    pub fn is_broken(&self) -> bool {
        self.broken || self.signs.broken.load(Ordering::Relaxed)
    }

    /// True if a node has ended the graph.
    pub fn has_ended(&self) -> bool {
        self.signs.ended.load(Ordering::Relaxed)
    }

    /// Number of nodes that have failed.
    pub fn failures(&self) -> usize {
        self.signs.failures.load(Ordering::Relaxed)
    }

    /// Sends all parcels, full or not.
    pub fn flush(&mut self, patience: &mut Patience<'_>) {
        (0..self.workers.len()).for_each(|place| self.send(place, patience));
    }

    /// Notes that counts are requested, by their number; returns the number of the request that the next ones answer. A
    /// request that is not answered yet is for earlier ones.
    pub fn asks_for(&mut self, asked: u64) -> u64 {
        if self.asking.is_none() {
            self.asked = asked;
        }
        self.asked
    }

    /// The counts of all workers together, at most a tenth of a second old. With `filters` they are collected now,
    /// and `None` if a worker has not answered yet: a later call has its answer.
    pub fn view(&mut self, filters: bool) -> Option<Counted> {
        let shown: Vec<_> = match filters {
            true => self.ask()?,
            false => self.workers.iter().map(|_| None).collect(),
        };
        let views = self.workers.iter().zip(shown);
        let mut views = views.map(|(worker, it)| it.unwrap_or_else(|| lock(&worker.view).clone()));
        let mut sum = views.next().unwrap_or_default();
        for view in views {
            for (source, outcome) in &view.outcomes {
                sum.outcomes.entry(*source).or_default().add(outcome);
            }
            for (text, accepted) in &view.texts {
                *sum.texts.entry(*text).or_default() += accepted;
            }
            for (text, accepted) in &view.last_removed {
                *sum.last_removed.entry(*text).or_default() += accepted;
            }
            sum.removed += view.removed;
            for (all, one) in sum.nodes.iter_mut().zip(view.nodes) {
                all.counts.add(&one.counts);
                all.unwritten += one.unwritten;
                if let (Some(all), Some(one)) = (&mut all.filters, one.filters) {
                    Arc::make_mut(all).add(&one);
                }
                all.failed = all.failed.take().or(one.failed);
                // Copies of a node have had the same filters.
                for (at, (text, frames)) in one.removed.into_iter().enumerate() {
                    match all.removed.get_mut(at) {
                        Some((_, sum)) => *sum += frames,
                        None => all.removed.push((text, frames)),
                    }
                }
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

    /// Requests all counts from the workers that have not ended; `None` until all have answered. A busy worker gets one
    /// request, however often this is called: its answer takes time, too.
    fn ask(&mut self) -> Option<Vec<Option<Counted>>> {
        // The thread of the engine reads no frames of rings, so it may wait for workers that do. Without rings it waits
        // a moment once, and reads frames until the answers are there.
        let longest = match (self.has_rings, &self.asking) {
            (true, _) => SHOWN,
            (false, None) => PATIENCE,
            (false, Some(_)) => Duration::ZERO,
        };
        let end = Instant::now() + longest;
        let asking = self.asking.take().filter(|asking| asking.began.elapsed() < RENEWED);
        let mut asking = asking.unwrap_or_else(|| self.begin_to_ask());
        if self.collect(&mut asking, end) {
            self.show_time = asking.longest;
            return Some(asking.shown);
        }
        self.asking = Some(asking);
        None
    }

    fn begin_to_ask(&self) -> Asking {
        let (done, answers) = sync_channel(self.workers.len());
        let unasked = (0..self.workers.len()).rev();
        let unasked = unasked.filter(|&place| self.workers[place].sender.is_some()).collect();
        let shown = self.workers.iter().map(|_| None).collect();
        let (began, longest) = (Instant::now(), Duration::ZERO);
        Asking { began, done, answers, unasked, left: 0, shown, longest }
    }

    /// Hands out the request and collects answers until this time; true if all are there.
    fn collect(&self, asking: &mut Asking, end: Instant) -> bool {
        let left = || end.saturating_duration_since(Instant::now());
        loop {
            if let Some(&place) = asking.unasked.last() {
                let order = Order::Show(Asked { place, done: asking.done.clone() });
                if let Some(sender) = &self.workers[place].sender {
                    match sender.try_send(order) {
                        Err(TrySendError::Full(_)) if left().is_zero() => return false,
                        Err(TrySendError::Full(_)) => {
                            std::thread::sleep(PAUSE);
                            continue;
                        }
                        Ok(()) => asking.left += 1,
                        // It has ended; its last counts stay.
                        Err(TrySendError::Disconnected(_)) => {}
                    }
                }
                self.signs.ring(place);
                asking.unasked.pop();
                continue;
            }
            if asking.left == 0 {
                return true;
            }
            let Ok(Shown { place, counted, took }) = asking.answers.recv_timeout(left()) else {
                return false;
            };
            asking.left -= 1;
            asking.longest = asking.longest.max(took);
            if counted.is_none() {
                // An edit of filters is being committed there.
                asking.unasked.push(place);
                std::thread::sleep(PAUSE);
            }
            asking.shown[place] = counted;
        }
    }

    /// Longest processor time of a worker for the last counts with those of filters. Waits for its turn do not count:
    /// on a busy machine they are long, and what takes long is shown seldom.
    pub fn show_time(&self) -> Duration {
        self.show_time
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
        self.asking = None;
        for place in (0..self.workers.len()).rev() {
            self.workers[place].sender = None;
            self.signs.ring(place);
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

/// Runs a worker that gets parcels.
fn work(place: usize, orders: &Receiver<Order>, shown: &Mutex<Counted>, signs: &Signs) {
    let give_up = &signs.give_up;
    let mut nodes = Nodes::default();
    let mut ticked = Instant::now();
    let mut failures = 0;
    loop {
        make_room(&mut nodes, give_up);
        match orders.recv_timeout(TICK) {
            Ok(Order::Frames(parcel)) => deliver(&mut nodes, &parcel),
            Ok(Order::Edit(edit)) => {
                let done = edit.rebuild(place, &mut nodes, signs);
                show(&nodes, shown);
                // The receiver is gone if the engine has stopped waiting.
                let _ended = done.send(());
            }
            Ok(Order::Show(asked)) => answer(&asked, || show_all(&nodes, shown)),
            Ok(Order::Account(accounts)) => nodes.account(&accounts),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if nodes.failures > failures {
            signs.failures.fetch_add(nodes.failures - failures, Ordering::Relaxed);
            failures = nodes.failures;
            // The worker continues until the engine ends it: others may wait for it at an edit.
            signs.broken.fetch_or(!nodes.leads_anywhere(), Ordering::Relaxed);
        }
        if ticked.elapsed() >= TICK {
            nodes.tick();
            show(&nodes, shown);
            ticked = Instant::now();
        }
    }
    (0..nodes.slots.len()).for_each(|index| nodes.finish(index));
    nodes.await_all();
    make_room(&mut nodes, give_up);
    show_last(&nodes, shown);
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
        match parcel.is_lost {
            true => nodes.lose_paused(parcel.at, &input),
            false => nodes.arrive(parcel.at, &input),
        }
    }
}

/// Addresses that all frames of a conversation share, in both directions and in all fragments: those of the outermost
/// packet, because later fragments of a tunnel's packet do not contain the inner headers.
fn ends(frame: &Frame<'_>) -> Option<(std::net::IpAddr, std::net::IpAddr)> {
    let ip = walk(frame).outermost_ip()?;
    let (source, destination) = (ip.source(), ip.destination());
    Some((source.min(destination), source.max(destination)))
}
