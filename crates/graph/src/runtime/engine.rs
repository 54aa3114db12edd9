//! The loop over sources: edits are taken over, every source is asked for a batch, the batch runs through the nodes.
//! While an output has no room nothing is read, and the sources hold what comes.
//!
//! At the end the sources are stopped, the frames that they had taken in run through the nodes, the nodes finish, and
//! their output is waited for. After a request to stop, an output that nobody takes is given up after [`OUTPUTS`], and
//! sources that are not empty are left after [`SOURCES`]. So a stop takes less than a second, and every frame that
//! arrived before it is counted.

use super::Made;
use super::handle::{Pending, Shared};
use super::nodes::{Counted, Fresh, Input, Nodes};
use super::outcome::Outcome;
use super::view::{GraphView, NodeView, SourceView};
use super::workers::Crew;
use crate::node::NodeError;
use crate::plan::Plan;
use fyke_capture::{Account, Interface, Next, Notice, ReadError, Source, SourceStats};
use fyke_filters::FilterSet;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often nodes are ticked and counts are published.
const TICK: Duration = Duration::from_millis(100);
/// What a snapshot may take to be made with every tick: a thousandth of the time.
const CHEAP: Duration = Duration::from_micros(100);
/// How often the last snapshot is tried, a millisecond apart.
const LAST_TRIES: usize = 100;
/// Why a source loses frames.
const DROPPED: &str = "capture ring full";
const UNREAD: &str = "not read before the stop";
/// How long frames are waited for before anything else is looked at.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same, when a source cannot tell that it has frames.
const POLL: Duration = Duration::from_millis(1);
/// How long outputs are waited for after a stop.
const OUTPUTS: Duration = Duration::from_millis(400);
/// How long what sources took in before a stop is read.
const SOURCES: Duration = Duration::from_millis(700);

/// A source, connected.
struct Inlet {
    key: u64,
    /// Where its slot is.
    at: usize,
    number: u32,
    source: Box<dyn Source>,
    is_live: bool,
    stats: SourceStats,
    ended: bool,
    /// Whether it was stopped and what it took in before belongs to the sum.
    stopped: bool,
    failed: Option<NodeError>,
}

/// The time from which outputs that nobody takes are given up.
pub(super) struct Patience<'a> {
    stop: &'a AtomicBool,
    since: Option<Instant>,
}

impl Patience<'_> {
    pub fn new(stop: &AtomicBool) -> Patience<'_> {
        Patience { stop, since: None }
    }

    /// Whether somebody asked to stop, and long enough ago.
    pub fn is_over(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
            && self.since.get_or_insert_with(Instant::now).elapsed() >= OUTPUTS
    }
}

type Notify = Box<dyn FnMut(&Notice) + Send>;

/// A graph at work.
pub struct Engine {
    inlets: Vec<Inlet>,
    nodes: Nodes,
    /// Who has the nodes instead, when there are several workers.
    crew: Option<Crew>,
    shared: Arc<Shared>,
    next_inlet: u32,
    started: Instant,
    error: Option<ReadError>,
    /// The texts by their numbers.
    texts: BTreeMap<u64, Arc<str>>,
    epoch: u64,
    /// Frames that sources lost which are no longer there.
    dropped_before: u64,
    /// Whether one can be made with every tick, so that there is a recent one when a source is waited for.
    snapshots_are_cheap: bool,
    /// Whether the first node that fails ends the graph.
    all_or_none: bool,
    /// Whether sources have been stopped and read as far as they will be.
    over: bool,
    notify: Option<Notify>,
}

impl Engine {
    pub(super) fn new(
        plan: Plan,
        made: Vec<(u64, Made)>,
        texts: BTreeMap<u64, Arc<str>>,
        shared: Arc<Shared>,
    ) -> Engine {
        let mut engine = Engine {
            inlets: Vec::new(),
            nodes: Nodes::default(),
            crew: None,
            shared,
            next_inlet: 0,
            started: Instant::now(),
            error: None,
            texts,
            epoch: 0,
            dropped_before: 0,
            snapshots_are_cheap: true,
            all_or_none: false,
            over: false,
            notify: None,
        };
        let never = AtomicBool::new(false);
        let patience = &mut Patience::new(&never);
        engine.connect(plan, made, Vec::new(), &HashMap::new(), patience);
        engine.publish(true);
        engine
    }

    /// Gives the nodes to several workers; `more` has the copies of parallel nodes for all but the first.
    pub(super) fn share(&mut self, more: Vec<Fresh>) -> std::io::Result<()> {
        let mut made = HashMap::new();
        let mut plan = Vec::new();
        for slot in self.nodes.slots.drain(..) {
            slot.node.map(|node| made.insert(slot.plan.key, node));
            plan.push(slot.plan);
        }
        self.nodes.await_all();
        let mut crew = Crew::start(more.len() + 1)?;
        let never = AtomicBool::new(false);
        crew.edit(&plan, made, more, &HashMap::new(), &mut Patience::new(&never));
        self.crew = Some(crew);
        Ok(())
    }

    /// Ends the graph as soon as one node has failed. Without it the graph ends when no branch is left.
    pub fn end_at_first_failure(&mut self) {
        self.all_or_none = true;
    }

    /// Has the events of interfaces told: down, up, gone, back.
    pub fn on_notice(&mut self, notify: impl FnMut(&Notice) + Send + 'static) {
        self.notify = Some(Box::new(notify));
    }

    /// The filters of the node of this name, for whoever wants to edit them.
    pub fn filters(&self, name: &str) -> Option<FilterSet> {
        let slot = self.nodes.slots.iter().find(|slot| slot.plan.name == name)?;
        slot.node.as_ref()?.filters().cloned()
    }

    /// The interfaces of all sources.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.inlets.iter().flat_map(|inlet| inlet.source.interfaces())
    }

    /// Runs until all sources have ended, a node ends the graph, no branch is left or `stop` becomes true. Then the
    /// frames that the sources have taken in go their way, and every node finishes, within a second after a stop.
    ///
    /// # Errors
    /// The first failure of a source; the other sources and all nodes have gone on to their end.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), ReadError> {
        let mut ticked = Instant::now();
        let mut failures = 0;
        let mut patience = Patience::new(stop);
        while !stop.load(Ordering::Relaxed) && !self.nodes.ended {
            if let Some(pending) = self.shared.take() {
                self.take_over(pending, &mut patience);
            }
            if self.nodes.make_room(PATIENCE) && !self.turn(&mut patience) {
                break;
            }
            if self.nodes.failures > failures {
                failures = self.nodes.failures;
                if self.all_or_none || !self.nodes.leads_anywhere() {
                    break;
                }
            }
            if self.crew.as_ref().is_some_and(|crew| crew.broken) {
                break;
            }
            if self.shared.is_asked() {
                self.publish(true);
            }
            if ticked.elapsed() >= TICK {
                match &mut self.crew {
                    Some(crew) => crew.flush(&mut patience),
                    None => self.nodes.tick(),
                }
                self.publish(self.snapshots_are_cheap);
                ticked = Instant::now();
            }
        }
        self.empty_sources(&mut patience);
        self.shared.close();
        self.publish(true);
        if let Some(crew) = &mut self.crew {
            crew.finish(&mut patience);
        }
        (0..self.nodes.slots.len()).for_each(|index| self.nodes.finish(index));
        self.nodes.await_all();
        while !self.nodes.make_room(PATIENCE) {
            if patience.is_over() {
                self.nodes.give_up();
            }
        }
        self.publish_last();
        self.error.take().map_or(Ok(()), Err)
    }

    /// Stops the sources and reads what they had taken in. After a node has ended the graph, that is only counted.
    fn empty_sources(&mut self, patience: &mut Patience<'_>) {
        let started = Instant::now();
        for inlet in self.inlets.iter_mut().filter(|inlet| !inlet.ended) {
            inlet.stopped = inlet.source.stop();
            inlet.ended = !inlet.stopped;
        }
        while !self.nodes.ended && started.elapsed() < SOURCES {
            if !self.nodes.make_room(PATIENCE) {
                if patience.is_over() {
                    self.nodes.give_up();
                }
            } else if !self.turn(patience) {
                break;
            }
        }
        self.over = true;
    }

    /// One batch of every source; false when all have ended. Several live ones are asked without waiting, and waited
    /// for together.
    fn turn(&mut self, patience: &mut Patience<'_>) -> bool {
        let mut more = false;
        let mut idle = true;
        for inlet in self.inlets.iter_mut().filter(|inlet| !inlet.ended) {
            match inlet.source.next() {
                Ok(Next::Frames(batch, held)) => {
                    idle = false;
                    let (source, interfaces) = (inlet.number, held.interfaces());
                    let input = Input {
                        batch: &batch,
                        source,
                        interfaces,
                        held: Some(held),
                        counted: true,
                        emitted: None,
                    };
                    match &mut self.crew {
                        Some(crew) => crew.share(inlet.at, &input, patience),
                        None => self.nodes.arrive(inlet.at, &input),
                    }
                }
                Ok(Next::Idle) => {
                    self.crew.iter_mut().for_each(|crew| crew.flush(patience));
                    while let Some(notice) = inlet.source.take_notice() {
                        self.notify.iter_mut().for_each(|notify| notify(&notice));
                    }
                }
                Ok(Next::End) => inlet.ended = true,
                Err(error) => {
                    inlet.ended = true;
                    inlet.failed = Some(NodeError::new(error.to_string()));
                    self.error.get_or_insert(error);
                }
            }
            more = true;
            if self.nodes.ended {
                break;
            }
        }
        // A source that is alone has waited already.
        if idle && more && self.inlets.len() > 1 {
            let live = self.inlets.iter().filter(|inlet| !inlet.ended);
            let readiness: Vec<_> = live.clone().map(|inlet| inlet.source.readiness()).collect();
            let wait = if readiness.iter().all(Option::is_some) { PATIENCE } else { POLL };
            let readiness: Vec<_> = readiness.into_iter().flatten().collect();
            fyke_capture::wait_for_any(&readiness, wait);
        }
        more
    }

    /// The counts as of now; with several workers, as of the last tenth of a second.
    pub fn view(&mut self) -> GraphView {
        self.look(false).unwrap_or_default()
    }

    /// The counts as of now, with those of filters if they are asked for; `None` when these cannot be had at once.
    fn look(&mut self, filters: bool) -> Option<GraphView> {
        let Counted { mut nodes, outcomes, texts: accepted } = match &mut self.crew {
            Some(crew) => crew.view(filters)?,
            None => self.nodes.counted(filters)?,
        };
        let mut outcome = Outcome::default();
        outcomes.values().for_each(|one| outcome.add(one));
        let mut sources = Vec::new();
        for inlet in &mut self.inlets {
            inlet.stats = inlet.source.stats();
            let SourceStats { received, dropped, ignored, .. } = inlet.stats;
            let node = &mut nodes[inlet.at];
            node.failed = inlet.failed.clone();
            let left = match self.over && inlet.stopped {
                true => received.saturating_sub(dropped + ignored + node.counts.arrived),
                false => 0,
            };
            let (unread, after_end) = if self.nodes.ended { (0, left) } else { (left, 0) };
            node.counts.lost = dropped + unread;
            node.counts.rejected = after_end;
            node.counts.arrived += dropped + left;
            let mut of_source = outcomes.get(&inlet.number).cloned().unwrap_or_default();
            for sum in [&mut of_source, &mut outcome] {
                sum.lose(DROPPED, dropped);
                sum.lose(UNREAD, unread);
                sum.rejected += after_end;
            }
            sources.push(SourceView {
                node: inlet.key,
                stats: inlet.stats,
                outcome: of_source,
                unread,
                after_end,
                ended: inlet.ended,
                interfaces: inlet.source.interfaces().to_vec(),
            });
        }
        outcome.lose(DROPPED, self.dropped_before);
        outcome.unwritten(&nodes);
        nodes.iter_mut().for_each(NodeView::settle);
        let text = |(&number, text): (&u64, &Arc<str>)| {
            (number, (Arc::clone(text), accepted.get(&number).copied().unwrap_or_default()))
        };
        Some(GraphView {
            sources,
            nodes,
            outcome,
            texts: self.texts.iter().map(text).collect(),
            epoch: self.epoch,
            elapsed: self.started.elapsed(),
        })
    }

    /// Shows the counts to others; a snapshot, with those of filters, is for whoever waits for one.
    fn publish(&mut self, snapshot: bool) -> bool {
        let (began, asked) = (Instant::now(), self.shared.asked());
        let Some(view) = self.look(snapshot) else { return false };
        self.account(&view);
        self.shared.publish(view, snapshot.then_some((began, asked)));
        if snapshot {
            self.snapshots_are_cheap = self.crew.is_none() && began.elapsed() < CHEAP;
        }
        true
    }

    /// Tells the nodes what has happened to the frames of live interfaces; a source of several does not know of which.
    fn account(&mut self, view: &GraphView) {
        let live = self.inlets.iter().zip(&view.sources).filter(|(inlet, _)| inlet.is_live);
        let accounts: Vec<_> = live
            .filter_map(|(inlet, of_source)| {
                let [interface] = inlet.source.interfaces() else { return None };
                let account = Account {
                    received: Some(of_source.outcome.seen()),
                    dropped: Some(of_source.stats.dropped),
                    accepted: Some(of_source.outcome.accepted),
                    ..Account::default()
                };
                Some((interface.clone(), account))
            })
            .collect();
        if accounts.is_empty() {
            return;
        }
        match &mut self.crew {
            Some(crew) => crew.account(accounts),
            None => self.nodes.account(&accounts),
        }
    }

    /// The last counts have to be shown, also when an edit is being committed to filters that judge no more frames.
    fn publish_last(&mut self) {
        for _ in 0..LAST_TRIES {
            if self.publish(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.publish(false);
    }

    /// Puts an edited graph in the place of the running one, between two batches.
    fn take_over(&mut self, pending: Pending, patience: &mut Patience<'_>) {
        self.connect(pending.plan, pending.made, pending.more, &pending.stays, patience);
        self.texts = pending.texts;
        self.epoch += 1;
        self.publish(self.snapshots_are_cheap);
        self.shared.taken_over();
    }

    /// Connects the nodes of a plan: those that stay (new key to old key), and those that were made for it.
    fn connect(
        &mut self,
        plan: Plan,
        made: Vec<(u64, Made)>,
        more: Vec<Fresh>,
        stays: &HashMap<u64, u64>,
        patience: &mut Patience<'_>,
    ) {
        let mut fresh = HashMap::new();
        let mut inlets: HashMap<u64, Inlet> =
            self.inlets.drain(..).map(|inlet| (inlet.key, inlet)).collect();
        for (key, made) in made {
            match made {
                Made::Node(node) => drop(fresh.insert(key, node)),
                Made::Source(source) => {
                    let number = self.next_inlet;
                    self.next_inlet += 1;
                    self.nodes.interfaces.insert(number, source.interfaces().to_vec());
                    let stats = SourceStats::default();
                    let (is_live, ended, stopped, failed) = (false, false, false, None);
                    let inlet = Inlet {
                        key,
                        at: 0,
                        number,
                        source,
                        is_live,
                        stats,
                        ended,
                        stopped,
                        failed,
                    };
                    inlets.insert(key, inlet);
                }
            }
        }
        for (at, node) in plan.nodes.iter().enumerate() {
            let is_live = node.class.name == "device";
            let inlet = inlets.remove(&node.key);
            self.inlets.extend(inlet.map(|inlet| Inlet { at, is_live, ..inlet }));
        }
        let gone = inlets.into_values().map(|mut inlet| inlet.source.stats().dropped);
        self.dropped_before += gone.sum::<u64>();
        let alone = self.inlets.len() < 2;
        for inlet in &mut self.inlets {
            inlet.source.set_patience(if alone { PATIENCE } else { Duration::ZERO });
        }
        match &mut self.crew {
            Some(crew) => crew.edit(&plan.nodes, fresh, more, stays, patience),
            None => self.nodes.rebuild(plan.nodes, fresh, stays),
        }
    }
}
