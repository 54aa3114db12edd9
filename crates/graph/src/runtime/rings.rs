//! Workers that read interfaces: each has a ring of its own of every interface, and evaluates its frames where the
//! kernel has put them.
//!
//! The kernel puts all frames of a pair of addresses into the ring of one worker, fragments too, in order
//! ([`fyke_capture::RingGroup`]). A filter has one set of texts, which all workers read: an edit, by a user or because
//! of a worker's frame, is in force for every worker at its next batch. Look-back of a worker reaches the frames that
//! its own rings hold, so all of its address pairs. Nodes that cut are evaluated by one worker at a
//! time ([`Nodes::front_gate`]), so a limit is exact. Outputs get the frames in the order of time ([`super::merge`]).
//!
//! Between two batches a worker carries out orders. For an edit of the graph all workers meet, so no frame is evaluated
//! between two graphs. Cost: two atomic loads and a check of the queue of orders per batch.

use super::merge::SETTLED;
use super::nodes::{Counted, Input, Nodes};
use super::orders::{Edit, NewRings, Order, Signs, WorkerRing, answer, show, show_all, show_last};
use fyke_capture::Next;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// Longest wait for frames or for outputs before a worker does its other work.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same for frames, if no worker has read one for this time: outputs wait for the clock of a quiet worker only
/// while others have frames for them. Orders and frames end the wait.
const REST: Duration = Duration::from_millis(250);
/// Interval at which a worker ticks its nodes and publishes its counts.
const TICK: Duration = Duration::from_millis(100);

/// Distributes the rings of new interfaces over the workers.
pub(super) fn distribute(new: Vec<NewRings>, workers: usize) -> Vec<Vec<WorkerRing>> {
    let mut all: Vec<Vec<WorkerRing>> = (0..workers).map(|_| Vec::new()).collect();
    for NewRings { key, number, shares } in new {
        for (rings, source) in all.iter_mut().zip(shares) {
            rings.push(WorkerRing { key, number, source, at: 0, clock: 0, ended: false });
        }
    }
    all
}

/// Longest time that one ring of a worker is ahead of another.
const AHEAD: Duration = Duration::from_millis(500);

struct Worker<'a> {
    place: usize,
    nodes: Nodes,
    rings: Vec<WorkerRing>,
    signs: &'a Signs,
    shown: &'a Mutex<Counted>,
    /// True if all rings listen to the bell.
    listens: bool,
}

/// Runs a worker until the engine closes its queue.
pub(super) fn work(place: usize, orders: &Receiver<Order>, shown: &Mutex<Counted>, signs: &Signs) {
    let mut nodes = Nodes::default();
    nodes.front_gate = Some(std::sync::Arc::clone(&signs.front));
    nodes.paused = Some(std::sync::Arc::clone(&signs.paused));
    let mut worker = Worker { place, nodes, rings: Vec::new(), signs, shown, listens: false };
    let (mut ticked, mut failures) = (Instant::now(), 0);
    loop {
        let has_room = worker.make_room();
        let reads = has_room && !worker.rings.is_empty() && !signs.ended.load(Ordering::Relaxed);
        let order = match reads || !has_room {
            true => orders.try_recv().map_err(|error| error == TryRecvError::Disconnected),
            false => {
                let order = orders.recv_timeout(PATIENCE);
                order.map_err(|error| error == RecvTimeoutError::Disconnected)
            }
        };
        match order {
            Ok(order) => worker.carry_out(order),
            Err(true) => break,
            Err(false) => {}
        }
        let is_idle = reads && !worker.read();
        if !reads || is_idle {
            // Frames of the others may have waited for this worker.
            worker.nodes.await_all();
        }
        if is_idle {
            // The last reads may have taken the ring of the bell that came with an order.
            match orders.try_recv() {
                Ok(order) => worker.carry_out(order),
                Err(TryRecvError::Empty) => worker.wait(),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        if worker.nodes.failures > failures {
            signs.failures.fetch_add(worker.nodes.failures - failures, Ordering::Relaxed);
            failures = worker.nodes.failures;
            signs.broken.fetch_or(!worker.nodes.leads_anywhere(), Ordering::Relaxed);
        }
        if ticked.elapsed() >= TICK {
            worker.nodes.tick();
            worker.show();
            ticked = Instant::now();
        }
    }
    worker.finish();
}

impl Worker<'_> {
    /// Waits a short time until the outputs have room; false if they have none.
    fn make_room(&mut self) -> bool {
        let has_room = self.nodes.make_room(PATIENCE);
        if !has_room && self.signs.give_up.load(Ordering::Relaxed) {
            self.nodes.give_up();
        }
        has_room
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Edit(edit) => self.edit(edit),
            Order::Show(asked) => answer(&asked, || {
                self.count_rings();
                show_all(&self.nodes, self.shown)
            }),
            Order::Account(accounts) => self.nodes.account(&accounts),
            Order::Frames(_) => debug_assert!(false, "these workers get no parcels"),
        }
    }

    /// Replaces the graph.
    fn edit(&mut self, mut edit: Edit) {
        self.rings.append(&mut edit.rings);
        let at = |key| edit.plan.iter().position(|node| node.key == key);
        self.rings.retain_mut(|ring| match at(ring.key) {
            Some(place) => {
                ring.at = place;
                true
            }
            None => false,
        });
        let done = edit.rebuild(self.place, &mut self.nodes, self.signs);
        self.set_patience();
        self.set_clock();
        self.show();
        // The receiver is gone if the engine has stopped waiting.
        let _ended = done.send(());
    }

    /// Publishes the counts of the nodes and of the rings.
    fn show(&mut self) {
        self.count_rings();
        show(&self.nodes, self.shown);
    }

    fn count_rings(&mut self) {
        self.rings.iter_mut().for_each(|ring| _ = ring.source.stats());
    }

    fn set_patience(&mut self) {
        let bell = self.signs.bells[self.place].as_ref();
        let listens = |ring: &mut WorkerRing| bell.is_some_and(|bell| ring.source.listen(bell));
        self.listens = self.rings.iter_mut().map(listens).fold(true, |all, one| all & one);
        let patience = if self.rings.len() == 1 { PATIENCE } else { Duration::ZERO };
        self.rings.iter_mut().for_each(|ring| ring.source.set_patience(patience));
    }

    /// True if no worker has read a frame for some time.
    fn is_quiet(&self) -> bool {
        let last = self.signs.last.load(Ordering::Relaxed);
        now_ns().saturating_sub(last) > REST.as_nanos() as u64
    }

    /// Longest wait for frames.
    fn patience(&self) -> Duration {
        if self.listens && self.is_quiet() { REST } else { PATIENCE }
    }

    /// Waits for frames of several rings; a single one has waited already.
    fn wait(&self) {
        let readiness: Vec<_> = self.rings.iter().map(|ring| ring.source.readiness()).collect();
        if readiness.len() > 1 && readiness.iter().all(Option::is_some) {
            let readiness: Vec<_> = readiness.into_iter().flatten().collect();
            fyke_capture::wait_for_any(&readiness, self.patience());
        }
    }

    /// Evaluates a batch of every ring; false if none has frames.
    fn read(&mut self) -> bool {
        let mut idle = true;
        let patience = self.patience();
        if let [ring] = &mut self.rings[..] {
            ring.source.set_patience(patience);
        }
        // A ring that is far ahead waits, because outputs wait for the other rings.
        let limit = self.earliest().saturating_add(AHEAD.as_nanos() as u64);
        for ring in self.rings.iter_mut().filter(|ring| ring.clock <= limit) {
            match ring.source.next() {
                Ok(Next::Frames(batch, held)) => {
                    idle = false;
                    let last = batch.frames().last().map_or(0, |frame| frame.timestamp_ns);
                    let input = Input {
                        batch: &batch,
                        source: ring.number,
                        interfaces: held.interfaces(),
                        held: Some(held),
                        counted: true,
                        emitted: None,
                    };
                    self.nodes.arrive(ring.at, &input);
                    let memory = batch.reuse();
                    ring.source.take_back(memory);
                    ring.clock = ring.clock.max(last);
                    self.signs.note(self.place, last);
                }
                Ok(Next::Idle) => ring.clock = ring.clock.max(settled_ns()),
                // The source that represents all rings reports a failure.
                Ok(Next::End) | Err(_) => ring.ended = true,
            }
            if self.nodes.ended {
                self.signs.ended.store(true, Ordering::Relaxed);
                break;
            }
        }
        let before = self.rings.len();
        self.rings.retain(|ring| !ring.ended);
        if self.rings.len() < before {
            self.set_patience();
        }
        self.set_clock();
        !idle
    }

    /// Publishes the earliest time of a frame that this worker may still pass on.
    fn set_clock(&self) {
        self.signs.clocks[self.place].store(self.earliest(), Ordering::Release);
    }

    fn earliest(&self) -> u64 {
        self.rings.iter().map(|ring| ring.clock).min().unwrap_or(u64::MAX)
    }

    /// Ends the rings and the nodes; their counts are final then.
    fn finish(mut self) {
        for ring in &mut self.rings {
            ring.source.stop();
        }
        self.rings.clear();
        self.set_clock();
        (0..self.nodes.slots.len()).for_each(|index| self.nodes.finish(index));
        self.nodes.await_all();
        while !self.make_room() {}
        show_last(&self.nodes, self.shown);
    }
}

impl Signs {
    /// Keeps the time of a frame that a worker has read, if it is later than the last one by a part of [`REST`]: so
    /// workers seldom write it. The first frame after a rest wakes the others, because outputs wait for their clocks.
    fn note(&self, place: usize, time_ns: u64) {
        let rest = REST.as_nanos() as u64;
        let last = self.last.load(Ordering::Relaxed);
        if time_ns <= last.saturating_add(rest / 16) {
            return;
        }
        let before = self.last.fetch_max(time_ns, Ordering::Relaxed);
        if time_ns > before.saturating_add(rest) {
            (0..self.bells.len())
                .filter(|&other| other != place)
                .for_each(|other| self.ring(other));
        }
    }
}

/// Time before which a quiet ring has handed over all frames, in nanoseconds.
fn settled_ns() -> u64 {
    fyke_flow::clock::system_before_ns(SETTLED)
}

fn now_ns() -> u64 {
    fyke_flow::clock::system_ns()
}
