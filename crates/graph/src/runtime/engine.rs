//! The loop over the sources: it takes over edits, reads a batch from every source and runs it through the nodes.
//! While an output has no room, nothing is read, and the sources hold the frames that arrive.
//!
//! At the end, the loop stops the sources, runs the frames that they have already received through the nodes,
//! finishes the nodes and waits for their output. After a request to stop, it gives up output that is not consumed
//! within [`OUTPUTS`], and leaves sources that are not empty after [`SOURCES`]. So a stop takes less than a second,
//! and every frame that arrived before it is counted.

use super::Made;
use super::handle::{Pending, Shared, lock};
use super::nodes::{Counted, Fresh, Input, Nodes};
use super::orders::NewRings;
use super::outcome::{self, Outcome};
use super::shown::Boards;
use super::view::{GraphView, NodeView, SourceView};
use super::workers::Crew;
use crate::node::NodeError;
use crate::plan::Plan;
use fyke_capture::{
    Account, DROP_REASONS, Interface, Next, Notice, RING_FULL, ReadError, Source, SourceStats,
    processor_time,
};
use fyke_filters::FilterSet;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which nodes are ticked and counts are published.
const TICK: Duration = Duration::from_millis(100);
/// The same for the counts while no frame is evaluated; a caller that wants them gets new ones
/// ([`GraphHandle::view`](super::GraphHandle::view)).
const REST: Duration = Duration::from_secs(1);
/// Longest time of a snapshot that is made with every tick: a thousandth of the interval.
const CHEAP: Duration = Duration::from_micros(100);
/// Number of attempts to make the last snapshot, a millisecond apart.
const LAST_TRIES: usize = 100;
/// Reason for which frames of a source that has stopped are lost.
const UNREAD: &str = "not read before the stop";
/// Longest wait for frames before the loop does its other work, if the source does not listen to the loop's bell.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same if a source cannot signal that it has frames.
const POLL: Duration = Duration::from_millis(1);
/// Longest wait for outputs after a stop.
const OUTPUTS: Duration = Duration::from_millis(400);
/// Longest time for reading frames that sources received before a stop.
const SOURCES: Duration = Duration::from_millis(700);

/// A connected source.
struct Inlet {
    key: u64,
    /// Index of its slot.
    at: usize,
    number: u32,
    source: Box<dyn Source>,
    is_live: bool,
    /// True if its waits end when the bell of the loop rings.
    listens: bool,
    stats: SourceStats,
    ended: bool,
    /// True if it was stopped, and the frames that it received before count.
    stopped: bool,
    failed: Option<NodeError>,
}

/// The time from which outputs that are not consumed are given up.
pub(super) struct Patience<'a> {
    stop: &'a AtomicBool,
    since: Option<Instant>,
}

impl Patience<'_> {
    pub fn new(stop: &AtomicBool) -> Patience<'_> {
        Patience { stop, since: None }
    }

    /// True if a stop was requested at least [`OUTPUTS`] ago.
    pub fn is_over(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
            && self.since.get_or_insert_with(Instant::now).elapsed() >= OUTPUTS
    }
}

type Notify = Box<dyn FnMut(&Notice) + Send>;

/// A running graph.
pub struct Engine {
    inlets: Vec<Inlet>,
    nodes: Nodes,
    /// The workers, if there are several; they then have the nodes.
    crew: Option<Crew>,
    shared: Arc<Shared>,
    next_inlet: u32,
    started: Instant,
    error: Option<ReadError>,
    /// The texts by their numbers.
    texts: BTreeMap<u64, Arc<str>>,
    epoch: u64,
    /// Frames that sources lost, or the kernel rejected for them, before an edit removed them.
    removed: Outcome,
    /// True if a snapshot can be made with every tick, so that a recent one exists while the loop waits for a source.
    snapshots_are_cheap: bool,
    /// True if the first node that fails ends the graph.
    all_or_none: bool,
    /// Tag of the node that ends the run by its failure.
    vital: Option<String>,
    /// True if the sources have been stopped and nothing more will be read from them.
    over: bool,
    notify: Option<Notify>,
    /// Filters of nodes by their names; with several workers, those of the first.
    filters: HashMap<String, FilterSet>,
    /// Values in the memory of rings.
    boards: Boards,
    /// Time of the last publication, and true if no frame has come since.
    published: (Instant, bool),
}

impl Engine {
    /// Connects a graph; `more` has the copies of parallel nodes for all workers but the first.
    pub(super) fn new(
        plan: Plan,
        made: Vec<(u64, Made)>,
        more: Vec<Fresh>,
        texts: BTreeMap<u64, Arc<str>>,
        shared: Arc<Shared>,
        crew: Option<Crew>,
    ) -> Engine {
        let mut engine = Engine {
            inlets: Vec::new(),
            nodes: Nodes::alone(Arc::clone(&shared.paused)),
            crew,
            shared,
            next_inlet: 0,
            started: Instant::now(),
            error: None,
            texts,
            epoch: 0,
            removed: Outcome::default(),
            snapshots_are_cheap: true,
            all_or_none: false,
            vital: None,
            over: false,
            notify: None,
            filters: HashMap::new(),
            boards: Boards::default(),
            published: (Instant::now(), false),
        };
        let never = AtomicBool::new(false);
        let patience = &mut Patience::new(&never);
        engine.connect(plan, made, more, &HashMap::new(), patience);
        engine.publish(true);
        engine
    }

    /// Ends the graph as soon as one node fails. By default the graph ends when no branch is left.
    pub fn end_at_first_failure(&mut self) {
        self.all_or_none = true;
    }

    /// Ends the run when the node with this tag fails; the branch of another node that fails stops.
    pub fn end_at_failure_of(&mut self, tag: &str) {
        self.vital = Some(tag.to_owned());
    }

    fn has_lost_vital(&self) -> bool {
        self.vital.as_deref().is_some_and(|tag| self.nodes.has_failed(tag))
    }

    /// Sets the function that receives events of interfaces: down, up, gone, back.
    pub fn on_notice(&mut self, notify: impl FnMut(&Notice) + Send + 'static) {
        self.notify = Some(Box::new(notify));
    }

    /// The filters of a node, for editing by any thread, also while the graph runs. `name` is the node's
    /// [name](crate::plan::PlanNode::name): its tag or, if it has none, its class with a number if there are several
    /// nodes of the class. `None` if no node has this name, or if its class has no filters to edit
    /// ([`Class::editable`](crate::node::Class::editable)).
    ///
    /// The set belongs to this node as long as the node stays in the graph. If an edit of the graph makes the node
    /// anew, ask again; what was added to the old set is not in the new one.
    ///
    /// ```
    /// # mod fyke { pub(crate) use {fyke_capture as capture, fyke_frame as frame, fyke_graph as graph}; }
    /// use fyke::capture::MemorySource;
    /// use fyke::frame::{Frame, LinkType};
    /// use fyke::graph::{Classes, GraphHandle, Made};
    /// use std::sync::atomic::AtomicBool;
    ///
    /// let mut source = MemorySource::new(LinkType::EN10MB);
    /// source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
    /// let given = vec![("in", Made::Source(Box::new(source)))];
    /// let text = "{in}(pcapin, expression=unused) > {f}(bpf, expression=\"tcp port 80\") > (packetcount)";
    /// let (mut engine, handle) = GraphHandle::start_with(&[text], Classes::new(), given)?;
    ///
    /// let filters = engine.filters("f").expect("the tag of a filter");
    /// assert!(engine.filters("bpf").is_none(), "a node with a tag has no other name");
    /// assert!(engine.filters("packetcount").is_none(), "it has no filters");
    /// let added = filters.add("less 64")?; // from this thread or another one
    ///
    /// engine.run(&AtomicBool::new(false))?;
    /// let counts = filters.counts();
    /// let count = counts.iter().find(|count| count.id == added).expect("it is in force");
    /// assert_eq!(count.accepted, 1);
    /// assert_eq!(handle.view().node("f").map(|node| node.counts.passed), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn filters(&self, name: &str) -> Option<FilterSet> {
        self.filters.get(name).cloned()
    }

    /// The interfaces of all sources.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.inlets.iter().flat_map(|inlet| inlet.source.interfaces())
    }

    /// Runs until all sources have ended, a node ends the graph, no branch is left or `stop` becomes true. Then the
    /// frames that the sources have already received run through the graph, and every node finishes, within a second
    /// after a stop.
    ///
    /// # Errors
    /// The first failure of a source; the other sources and all nodes have continued to their end. A node that fails
    /// is no error here: see [`NodeView::failed`] and [`end_at_first_failure`](Self::end_at_first_failure).
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), ReadError> {
        self.shared.started();
        let mut ticked = Instant::now();
        let mut failures = 0;
        let mut patience = Patience::new(stop);
        while !stop.load(Ordering::Relaxed) && !self.has_ended() {
            if let Some(pending) = self.shared.take() {
                self.take_over(pending, &mut patience);
            }
            if self.nodes.make_room(PATIENCE) && !self.read_sources(&mut patience) {
                break;
            }
            if self.nodes.failures > failures {
                failures = self.nodes.failures;
                let is_over = self.all_or_none || self.has_lost_vital();
                if is_over || !self.nodes.leads_anywhere() {
                    break;
                }
            }
            let is_over =
                |crew: &Crew| crew.is_broken() || (self.all_or_none && crew.failures() > 0);
            if self.crew.as_ref().is_some_and(is_over) {
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
                self.publish_or_rest();
                ticked = Instant::now();
            }
        }
        self.shared.rest(false);
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

    /// Stops the sources and reads the frames that they have received. If a node has ended the graph, these are only
    /// counted.
    fn empty_sources(&mut self, patience: &mut Patience<'_>) {
        let started = Instant::now();
        for inlet in self.inlets.iter_mut().filter(|inlet| !inlet.ended) {
            inlet.stopped = inlet.source.stop();
            inlet.ended = !inlet.stopped;
        }
        self.crew.iter().for_each(Crew::wake);
        while !self.has_ended() && started.elapsed() < SOURCES {
            self.crew.iter().for_each(|crew| crew.look(patience));
            if !self.nodes.make_room(PATIENCE) {
                if patience.is_over() {
                    self.nodes.give_up();
                }
            } else if !self.read_sources(patience) {
                break;
            }
        }
        self.over = true;
    }

    fn has_ended(&self) -> bool {
        self.nodes.ended || self.crew.as_ref().is_some_and(Crew::has_ended)
    }

    /// Reads one batch of every source; false if all have ended. Several live sources are polled without waiting,
    /// then waited for together.
    fn read_sources(&mut self, patience: &mut Patience<'_>) -> bool {
        let mut more = false;
        let mut idle = true;
        let paused = self.shared.paused.load(Ordering::Relaxed);
        for inlet in self.inlets.iter_mut().filter(|inlet| !inlet.ended) {
            // Files wait; frames of interfaces arrive and are counted as lost.
            if paused && !inlet.is_live {
                more = true;
                continue;
            }
            match inlet.source.next() {
                Ok(Next::Frames(batch, held)) => {
                    idle = false;
                    self.published.1 = false;
                    self.shared.rest(false);
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
                        Some(crew) => {
                            // It may have been paused since the call that waited for these frames.
                            let is_paused = self.shared.paused.load(Ordering::Relaxed);
                            let is_lost = is_paused && inlet.is_live;
                            crew.share(inlet.at, &input, is_lost, patience);
                        }
                        None => self.nodes.arrive(inlet.at, &input),
                    }
                    let memory = batch.reuse();
                    inlet.source.take_back(memory);
                }
                Ok(Next::Idle) => {
                    self.crew.iter_mut().for_each(|crew| crew.flush(patience));
                }
                Ok(Next::End) => inlet.ended = true,
                Err(error) => {
                    inlet.ended = true;
                    inlet.failed = Some(NodeError::new(error.to_string()));
                    self.error.get_or_insert(error);
                }
            }
            while let Some(notice) = inlet.source.take_notice() {
                self.notify.iter_mut().for_each(|notify| notify(&notice));
            }
            more = true;
            if self.nodes.ended {
                break;
            }
        }
        if paused && idle && !self.inlets.iter().any(|inlet| inlet.is_live && !inlet.ended) {
            std::thread::sleep(PATIENCE);
            return more;
        }
        // A single source has waited already. The last reads may have taken the ring of a bell, so requests are looked
        // for between them and the wait.
        if idle && more && self.inlets.len() > 1 && !self.shared.is_called() {
            let live = self.inlets.iter().filter(|inlet| !inlet.ended);
            let readiness: Vec<_> = live.clone().map(|inlet| inlet.source.readiness()).collect();
            let wait = match readiness.iter().all(Option::is_some) {
                true if live.clone().all(|inlet| inlet.listens) => TICK,
                true => PATIENCE,
                false => POLL,
            };
            let readiness: Vec<_> = readiness.into_iter().flatten().collect();
            fyke_capture::wait_for_any(&readiness, wait);
        }
        more
    }

    /// The counts now; with several workers, those of the last tenth of a second.
    pub fn view(&mut self) -> GraphView {
        self.look(false, true).unwrap_or_default()
    }

    /// The counts now, including those of filters if `filters` is set; `None` if these are not available at once. If
    /// nothing waits for them, those of sources may be older.
    fn look(&mut self, filters: bool, is_awaited: bool) -> Option<GraphView> {
        let counted = match &mut self.crew {
            Some(crew) => crew.view(filters)?,
            None => self.nodes.counted(filters)?,
        };
        let Counted { mut nodes, outcomes, mut by_interface, texts: accepted, .. } = counted;
        let (last_removed, removed) = (counted.last_removed, counted.removed);
        let has_ended = self.has_ended();
        let is_awaited = is_awaited || self.over;
        let mut outcome = Outcome::default();
        outcomes.values().for_each(|one| outcome.add(one));
        let mut sources = Vec::new();
        for inlet in &mut self.inlets {
            inlet.stats = match is_awaited {
                true => inlet.source.stats(),
                false => inlet.source.recent_stats(),
            };
            let SourceStats { received, dropped, ignored, unreadable, filtered, .. } = inlet.stats;
            let lost = dropped + unreadable;
            let node = &mut nodes[inlet.at];
            node.failed = inlet.failed.clone();
            let left = match self.over && inlet.stopped {
                true => received.saturating_sub(lost + ignored + node.counts.arrived),
                false => 0,
            };
            let (unread, after_end) = if has_ended { (0, left) } else { (left, 0) };
            if let Some(all) = &mut self.nodes.never_read {
                all.insert(inlet.number, lost + filtered);
            }
            // The node itself counts what is lost while the graph is paused.
            node.counts.lost += lost + unread;
            node.counts.rejected = after_end + filtered;
            node.counts.arrived += lost + left + filtered;
            let mut of_source = outcomes.get(&inlet.number).cloned().unwrap_or_default();
            for sum in [&mut of_source, &mut outcome] {
                add_unevaluated(sum, &inlet.stats, (unread, after_end));
            }
            let merged = by_interface.remove(&inlet.number).unwrap_or_default();
            let is_over = self.over && inlet.stopped;
            let by_interface = match inlet.is_live {
                true if merged.is_empty() => vec![of_source.clone()],
                true => settle_merged(&*inlet.source, merged, is_over, has_ended),
                false => Vec::new(),
            };
            sources.push(SourceView {
                node: inlet.key,
                stats: inlet.stats,
                outcome: of_source,
                by_interface,
                unread,
                after_end,
                rings: inlet.source.stats_by_ring(),
                ended: inlet.ended,
                interfaces: inlet.source.interfaces().to_vec(),
            });
        }
        self.add_below(&sources, &mut nodes);
        outcome.add(&self.removed);
        outcome.unwritten(&nodes);
        let texts = self.counted_texts(&nodes, &accepted);
        nodes.iter_mut().for_each(NodeView::settle);
        Some(GraphView {
            sources,
            nodes,
            outcome,
            texts,
            last_removed,
            removed,
            epoch: self.epoch + self.shared.by_hand(),
            elapsed: self.started.elapsed(),
        })
    }

    /// Adds the frames that lower spaces rejected for later filters of a chain.
    fn add_below(&self, sources: &[SourceView], nodes: &mut [NodeView]) {
        for below in lock(&self.shared.below).iter() {
            let source = sources.iter().find(|source| Some(source.node) == below.device);
            let later = source.map(|source| &source.stats.later);
            later.into_iter().for_each(|later| below.add(later, nodes));
        }
    }

    /// The texts with the frames that their ends passed, without those that were not written afterwards.
    fn counted_texts(
        &self,
        nodes: &[NodeView],
        accepted: &BTreeMap<u64, u64>,
    ) -> BTreeMap<u64, (Arc<str>, u64)> {
        let text = |(&number, text): (&u64, &Arc<str>)| {
            let accepted = accepted.get(&number).copied().unwrap_or_default();
            let own = nodes.iter().filter(|node| node.texts.contains(&number));
            (number, (Arc::clone(text), accepted - outcome::late(own, accepted)))
        };
        self.texts.iter().map(text).collect()
    }

    /// Publishes the counts with a tick; seldom while no frame comes, because only the sources may have new ones.
    fn publish_or_rest(&mut self) {
        let (last, is_still) = self.published;
        // A source that cannot be called would keep a caller waiting.
        let can_call = self.crew.is_none() && self.inlets.iter().all(|inlet| inlet.listens);
        let rests = is_still && can_call && last.elapsed() < REST;
        self.shared.rest(rests);
        if !rests {
            self.publish(self.snapshots_are_cheap);
        }
    }

    /// Publishes the counts; a snapshot includes those of filters and answers all requests for a snapshot.
    fn publish(&mut self, snapshot: bool) -> bool {
        let (began, asked) = (processor_time(), self.shared.asked());
        let is_awaited = asked != self.shared.answered();
        let asked = match &mut self.crew {
            Some(crew) if snapshot => crew.asks_for(asked),
            _ => asked,
        };
        let Some(view) = self.look(snapshot, is_awaited) else { return false };
        self.account(&view);
        self.boards.show(&view);
        let own = processor_time().saturating_sub(began);
        let took = own.max(self.crew.as_ref().map_or(Duration::ZERO, Crew::show_time));
        self.shared.publish(view, snapshot.then_some((took, asked)));
        self.published = (Instant::now(), true);
        if snapshot {
            self.snapshots_are_cheap = self.crew.is_none() && own < CHEAP;
        }
        true
    }

    /// Passes the accounts of live interfaces to the nodes.
    fn account(&mut self, view: &GraphView) {
        let account = |(interface, outcome): (&Interface, &Outcome)| {
            let dropped = |(reason, _): &(&Arc<str>, &u64)| {
                ***reason == *RING_FULL || DROP_REASONS.contains(&&***reason)
            };
            let account = Account {
                received: (!outcome.uncounted).then(|| outcome.seen()),
                dropped: Some(outcome.lost.iter().filter(dropped).map(|(_, count)| count).sum()),
                accepted: Some(outcome.accepted),
                ..Account::default()
            };
            (interface.clone(), account)
        };
        let accounts: Vec<_> = view.by_interface().map(account).collect();
        if accounts.is_empty() {
            return;
        }
        match &mut self.crew {
            Some(crew) => crew.account(accounts),
            None => self.nodes.account(&accounts),
        }
    }

    /// Publishes the last counts, even if an edit of filters that evaluate no more frames is being committed.
    fn publish_last(&mut self) {
        for _ in 0..LAST_TRIES {
            if self.publish(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.publish(false);
    }

    /// Replaces the running graph by an edited one, between two batches.
    fn take_over(&mut self, pending: Pending, patience: &mut Patience<'_>) {
        self.connect(pending.plan, pending.made, pending.more, &pending.stays, patience);
        lock(&self.shared.below).iter_mut().for_each(|below| below.follow(&pending.stays));
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
        let (mut fresh, mut rings) = (HashMap::new(), Vec::new());
        let mut inlets: HashMap<u64, Inlet> =
            self.inlets.drain(..).map(|inlet| (inlet.key, inlet)).collect();
        for (key, made) in made {
            match made {
                Made::Node(node) => drop(fresh.insert(key, node)),
                Made::Source(source) => {
                    inlets.insert(key, self.inlet(key, source));
                }
                Made::Shares(source, shares) => {
                    let inlet = self.inlet(key, source);
                    rings.push(NewRings { key, number: inlet.number, shares });
                    inlets.insert(key, inlet);
                }
            }
        }
        self.name_filters(&plan, &fresh, stays);
        self.boards.rebuild(&fresh, stays);
        for (at, node) in plan.nodes.iter().enumerate() {
            let is_live = node.class.name == "device";
            let inlet = inlets.remove(&node.key);
            if let Some(inlet) = inlet.as_ref().filter(|_| is_live) {
                let count = inlet.source.interfaces().len();
                if count > 1 {
                    let none = || vec![Outcome::default(); count];
                    self.nodes.by_interface.entry(inlet.number).or_insert_with(none);
                }
            }
            self.inlets.extend(inlet.map(|inlet| Inlet { at, is_live, ..inlet }));
        }
        let alone = self.inlets.len() < 2;
        for inlet in &mut self.inlets {
            let bell = self.shared.bell.as_ref();
            inlet.listens = bell.is_some_and(|bell| inlet.source.listen(bell));
            let patience = if inlet.listens { TICK } else { PATIENCE };
            inlet.source.set_patience(if alone { patience } else { Duration::ZERO });
        }
        match &mut self.crew {
            Some(crew) => crew.edit(&plan.nodes, fresh, more, rings, stays, patience),
            None => self.nodes.rebuild(plan.nodes, fresh, stays),
        }
        // The counts of workers are final only now.
        for mut inlet in inlets.into_values() {
            let stats = inlet.source.stats();
            add_unevaluated(&mut self.removed, &stats, (0, 0));
        }
    }

    /// Connects a new source.
    fn inlet(&mut self, key: u64, source: Box<dyn Source>) -> Inlet {
        let number = self.next_inlet;
        self.next_inlet += 1;
        self.nodes.interfaces.insert(number, source.interfaces().to_vec());
        Inlet {
            key,
            at: 0,
            number,
            source,
            is_live: false,
            listens: false,
            stats: SourceStats::default(),
            ended: false,
            stopped: false,
            failed: None,
        }
    }

    /// Records the filters of the nodes of a plan under their names.
    fn name_filters(&mut self, plan: &Plan, fresh: &Fresh, stays: &HashMap<u64, u64>) {
        let mut before = std::mem::take(&mut self.filters);
        for node in &plan.nodes {
            let made = fresh.get(&node.key).and_then(|made| made.filters().cloned());
            let kept = stays.contains_key(&node.key).then(|| before.remove(&node.name)).flatten();
            if let Some(filters) = made.or(kept) {
                self.filters.insert(node.name.clone(), filters);
            }
        }
    }
}

/// Adds the frames of a source that were not evaluated: lost, by reason, or rejected in the kernel; and those that were
/// left at the end, unread or after a node had ended the graph.
fn add_unevaluated(sum: &mut Outcome, stats: &SourceStats, (unread, after_end): (u64, u64)) {
    stats.lost().for_each(|(reason, count)| sum.lose(reason, count));
    sum.lose(UNREAD, unread);
    sum.rejected += after_end + stats.filtered;
    sum.uncounted |= stats.filtered_uncounted;
}

/// Completes the outcomes of the interfaces of a source that merges them. Once the graph is over, frames that were not
/// evaluated are lost or, if a node has ended it, rejected.
fn settle_merged(
    source: &dyn Source,
    evaluated: Vec<Outcome>,
    is_over: bool,
    has_ended: bool,
) -> Vec<Outcome> {
    let all = evaluated.into_iter().zip(source.stats_by_interface());
    all.map(|(mut outcome, stats)| {
        let lost = stats.dropped + stats.unreadable + stats.ignored;
        let left = stats.received.saturating_sub(lost + outcome.seen());
        let left = if is_over { left } else { 0 };
        add_unevaluated(&mut outcome, &stats, if has_ended { (0, left) } else { (left, 0) });
        outcome
    })
    .collect()
}
