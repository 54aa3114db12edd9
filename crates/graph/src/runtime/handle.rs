//! The handle of a running graph, for other threads: it reads counts and edits texts.
//!
//! The thread that requests an edit plans it and makes its nodes; the packet loop only moves nodes. An edit that is
//! refused changes nothing.

use super::filters;
use super::nodes::Fresh;
use super::view::GraphView;
use super::workers::Crew;
use super::{Engine, InstantiateError, Made};
use crate::classes::Classes;
use crate::kept::Kept;
use crate::language::TextError;
use crate::node::Kind;
use crate::placement::{self, Below, Held, Placement, Space};
use crate::plan::Plan;
use fyke_capture::{Bell, Interface};
use fyke_filters::FilterSet;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait of an edit for the packet loop, which looks for edits between two batches.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// Longest wait for a snapshot that is due.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(1);
/// Longest wait until a snapshot is due, for callers that need one after an edit.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(30);
/// Shortest time between two snapshots, and its least multiple of the time that the last one took.
const SNAPSHOT_PAUSE: Duration = Duration::from_millis(5);
const SNAPSHOT_SHARE: u32 = 50;

/// Most workers.
pub const MAX_WORKERS: usize = 64;

/// Reason why a graph is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The text is not a graph.
    #[error("{0}")]
    Text(#[from] TextError),
    /// A node cannot be made.
    #[error(transparent)]
    Instantiate(#[from] InstantiateError),
    /// There is no text of this number.
    #[error("there is no graph {given}; the graphs are: {present}")]
    NoSuchText {
        /// Number in the request.
        given: u64,
        /// Numbers of the graphs.
        present: String,
    },
    /// The last text cannot be removed: a graph without nodes does nothing.
    #[error("this is the only graph; end the run instead")]
    LastText,
    /// The graph needs a single worker.
    #[error("{0}")]
    Workers(String),
    /// A given node or source has no place in the graph, or several ([`GraphHandle::start_with`]).
    #[error("the given {name:?} should be one node of the graph: {problem}")]
    Given {
        /// Tag or class with which it was given.
        name: String,
        /// The problem, with the nodes of the graph.
        problem: String,
    },
    /// A worker could not be started.
    #[error("cannot start a worker: {0}")]
    Thread(#[from] std::io::Error),
    /// The packet loop has ended.
    #[error("the graph has ended")]
    Ended,
    /// No thread runs the graph, so that nothing takes over the edit.
    #[error("no thread runs the graph: call Engine::run in another thread first")]
    NotRunning,
    /// The packet loop did not take over the edit in time.
    #[error("the graph did not take over the edit within {} seconds", TAKE_OVER.as_secs())]
    NoAnswer,
}

/// An edit that waits for the packet loop.
pub(super) struct Pending {
    pub plan: Plan,
    pub made: Vec<(u64, Made)>,
    /// Copies of parallel nodes for all workers but the first.
    pub more: Vec<Fresh>,
    /// Old keys of the nodes that stay, by their keys in the plan.
    pub stays: HashMap<u64, u64>,
    pub texts: BTreeMap<u64, Arc<str>>,
}

/// State shared by the packet loop and the handles.
#[derive(Default)]
pub(super) struct Shared {
    waiting: AtomicBool,
    pending: Mutex<Option<Pending>>,
    done: Condvar,
    /// True once the packet loop has begun.
    started: AtomicBool,
    closed: AtomicBool,
    epoch: AtomicU64,
    /// Number of edits of passes by hand, which no edit of the graph hands over.
    by_hand: AtomicU64,
    /// True while frames are not evaluated.
    pub paused: Arc<AtomicBool>,
    view: Mutex<Views>,
    /// Signals that a snapshot has been published, or that none will be.
    shown: Condvar,
    /// Number of snapshots requested so far.
    asked: AtomicU64,
    /// Value of `asked` that the last snapshot answers.
    answered: AtomicU64,
    /// True while the published counts may be old, because no frame comes.
    rests: AtomicBool,
    /// Frames that lower spaces reject for later filters of a chain.
    pub below: Mutex<Vec<Below>>,
    /// Ends the wait of the packet loop for frames; `None` if the system refused it, and then waits are short.
    pub bell: Option<Bell>,
}

/// The views that the packet loop published last.
#[derive(Default)]
struct Views {
    last: Arc<GraphView>,
    /// The last view with the counts of filters.
    snapshot: Arc<GraphView>,
    /// Earliest time of the next snapshot; it answers all requests until then.
    not_before: Option<Instant>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Takes the waiting edit, if there is one: one atomic load if there is none.
    pub fn take(&self) -> Option<Pending> {
        if !self.waiting.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.pending).take()
    }

    pub fn started(&self) {
        self.started.store(true, Ordering::Release);
    }

    pub fn taken_over(&self) {
        let _pending = lock(&self.pending);
        self.waiting.store(false, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::Release);
        self.done.notify_all();
    }

    /// Number of edits of passes by hand.
    pub fn by_hand(&self) -> u64 {
        self.by_hand.load(Ordering::Acquire)
    }

    /// Counts an edit of passes by hand.
    pub fn count_by_hand(&self) {
        self.by_hand.fetch_add(1, Ordering::AcqRel);
    }

    fn ring(&self) {
        self.bell.iter().for_each(Bell::ring);
    }

    pub fn close(&self) {
        let _pending = lock(&self.pending);
        self.closed.store(true, Ordering::Release);
        self.done.notify_all();
        let _views = lock(&self.view);
        self.shown.notify_all();
    }

    /// True if a snapshot is due: one atomic load and a comparison if none was requested.
    pub fn is_asked(&self) -> bool {
        self.asked() != self.answered()
            && lock(&self.view).not_before.is_none_or(|time| time <= Instant::now())
    }

    /// True if an edit waits or a snapshot is due.
    pub fn is_called(&self) -> bool {
        self.waiting.load(Ordering::Acquire) || self.is_asked()
    }

    /// Notes that the published counts may be old from now on, or not.
    pub fn rest(&self, rests: bool) {
        self.rests.store(rests, Ordering::Release);
    }

    /// Number of snapshots requested so far.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// Number of snapshots requested before the last one began.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Publishes the counts. For a snapshot, `snapshot` has the time that it took, so that snapshots take a small share
    /// of the loop's time, and the number of requests when it began.
    pub fn publish(&self, view: GraphView, snapshot: Option<(Duration, u64)>) {
        let view = Arc::new(view);
        let mut views = lock(&self.view);
        let mut old = [None, None];
        if let Some((took, asked)) = snapshot {
            self.answered.store(asked, Ordering::Release);
            old[0] = Some(std::mem::replace(&mut views.snapshot, view.clone()));
            let pause = (took * SNAPSHOT_SHARE).max(SNAPSHOT_PAUSE);
            views.not_before = Some(Instant::now() + pause);
            self.shown.notify_all();
        }
        old[1] = Some(std::mem::replace(&mut views.last, view));
        drop(views);
        // Frees the old views without the lock.
        drop(old);
    }

    /// Waits for a snapshot that begins after this call; returns the last one if the loop does not answer in time. The
    /// time begins when the loop may take the next snapshot, but at most `patience` after the call.
    fn snapshot(&self, patience: Duration) -> Arc<GraphView> {
        let called = Instant::now();
        let mut views = lock(&self.view);
        let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let waits = || {
            self.answered.load(Ordering::Acquire) < number && !self.closed.load(Ordering::Acquire)
        };
        while waits() {
            let due = views.not_before.map_or(called, |time| time.max(called));
            let end = due.min(called + patience) + SNAPSHOT_LIMIT;
            let now = Instant::now();
            // The loop makes the next snapshot when it is due, and not before.
            let until = if now < due { due.min(end) } else { end };
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                break;
            }
            if until == end {
                self.ring();
            }
            let waited = self.shown.wait_timeout(views, left);
            views = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        views.snapshot.clone()
    }

    /// Hands an edit to the packet loop and waits until it is in force, also for a loop that is yet to begin.
    fn hand_over(&self, edit: Pending) -> Result<(), EditError> {
        let mut pending = lock(&self.pending);
        if self.closed.load(Ordering::Acquire) {
            return Err(EditError::Ended);
        }
        *pending = Some(edit);
        self.waiting.store(true, Ordering::Release);
        self.ring();
        let waits = |_: &mut Option<Pending>| {
            self.waiting.load(Ordering::Acquire) && !self.closed.load(Ordering::Acquire)
        };
        let waited = self.done.wait_timeout_while(pending, TAKE_OVER, waits);
        let (mut pending, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if pending.take().is_some() || timeout.timed_out() {
            self.waiting.store(false, Ordering::Release);
            return Err(match self.closed.load(Ordering::Acquire) {
                true => EditError::Ended,
                false if self.started.load(Ordering::Acquire) => EditError::NoAnswer,
                false => EditError::NotRunning,
            });
        }
        Ok(())
    }
}

/// Handle of a running graph; clones refer to the same graph.
#[derive(Clone)]
pub struct GraphHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) editor: Arc<Mutex<Editor>>,
}

/// A graph that is made but not connected: its sources and files are open, and no thread is started.
pub struct Opened {
    editor: Editor,
    made: Vec<(u64, Made)>,
    /// Copies of parallel nodes for all workers but the first.
    more: Vec<Fresh>,
}

impl Opened {
    /// Runs filters in a lower space as well, where the graph allows it ([`crate::placement`]).
    pub fn place(&mut self, space: &dyn Space) {
        let plan = &self.editor.plan;
        self.editor.placements = placement::place(plan, &mut self.made, space);
    }

    /// The reason why the graph must not start: a node needs rules of an interface that cannot be read.
    pub fn refused_rules(&self) -> Option<String> {
        let places = self.editor.placements.iter().filter_map(|one| one.tap.as_ref());
        places.flat_map(|place| &place.parts).find_map(|part| part.refused.clone())
    }

    /// The frames that a node of this graph keeps, if one does.
    pub fn kept(&self) -> Option<Kept> {
        self.made.iter().find_map(|(_, made)| match made {
            Made::Node(node) => node.kept().cloned(),
            _ => None,
        })
    }

    /// Has the node with this name keep some of the frames that arrive at it, on every worker, for questions after the
    /// fact. Returns false if there is no such node.
    pub fn keep(&mut self, name: &str, kept: &Kept) -> bool {
        let of_name = self.editor.plan.nodes.iter().find(|node| node.name == name);
        let Some(key) = of_name.map(|node| node.key) else { return false };
        keep_at(key, kept, &mut self.made, &mut self.more);
        true
    }

    /// The same for the only filter or demultiplexer, also for one that an edit makes later.
    pub fn keep_at_filter(&mut self, kept: &Kept) {
        if let Some(node) = self.editor.plan.only_filter() {
            keep_at(node.key, kept, &mut self.made, &mut self.more);
        }
        self.editor.kept = Some(kept.clone());
    }

    /// The plan of the graph.
    pub fn plan(&self) -> &Plan {
        &self.editor.plan
    }

    /// Connects the graph; one thread must run the engine.
    ///
    /// # Errors
    /// If the thread of a worker cannot be started.
    pub fn start(self) -> Result<(Engine, GraphHandle), EditError> {
        let Opened { editor, made, more } = self;
        let below = placement::begin(&editor.placements).into();
        let shared = Arc::new(Shared { bell: Bell::new().ok(), below, ..Shared::default() });
        let (plan, texts) = (editor.plan.clone(), editor.texts.clone());
        let crew = match editor.workers {
            1 => None,
            count => {
                let paused = Arc::clone(&shared.paused);
                Some(Crew::start(count, editor.plan.has_rings(), paused)?)
            }
        };
        let engine = Engine::new(plan, made, more, texts, Arc::clone(&shared), crew);
        Ok((engine, GraphHandle { shared, editor: Arc::new(Mutex::new(editor)) }))
    }
}

/// Has a node keep frames, on every worker, if it is one of these that were made.
fn keep_at(key: u64, kept: &Kept, made: &mut [(u64, Made)], more: &mut [Fresh]) {
    for (of, made) in made {
        if let (Made::Node(node), true) = (made, *of == key) {
            node.keep(kept);
        }
    }
    let more = more.iter_mut().filter_map(|fresh| fresh.get_mut(&key));
    more.for_each(|node| node.keep(kept));
}

fn no_such_text(given: u64, texts: &BTreeMap<u64, Arc<str>>) -> EditError {
    let present: Vec<_> = texts.keys().map(u64::to_string).collect();
    EditError::NoSuchText { given, present: present.join(", ") }
}

pub(super) struct Editor {
    pub workers: usize,
    classes: Classes,
    texts: BTreeMap<u64, Arc<str>>,
    next_id: u64,
    pub plan: Plan,
    notes: Vec<String>,
    placements: Vec<Placement>,
    held: Held,
    /// The frames that the only filter keeps.
    kept: Option<Kept>,
    /// The running filters of nodes, by their keys.
    pub filters: HashMap<u64, FilterSet>,
}

/// Reason why an edit of a graph with several workers is refused.
const OTHER_SOURCES: &str = "several workers read either interfaces or other sources, as the graph began; start \
                             another run for this one";

fn refuse_workers(plan: &Plan) -> Result<(), EditError> {
    plan.needs_one_worker().map_or(Ok(()), |reason| Err(EditError::Workers(reason)))
}

/// Finds the key of the node that a given one becomes: the node with this tag, or the only one of this class.
fn place_of(plan: &Plan, name: &str, given: &Made) -> Result<u64, EditError> {
    let refuse = |problem| Err(EditError::Given { name: name.to_owned(), problem });
    let tagged = plan.nodes.iter().find(|node| node.tags.contains(name));
    let class = name.to_ascii_lowercase();
    let mut of_class = plan
        .nodes
        .iter()
        .filter(|node| node.class.name == class || node.class.aliases.contains(&class.as_str()));
    let (node, second) = match tagged {
        Some(node) => (node, None),
        None => match of_class.next() {
            Some(node) => (node, of_class.next()),
            None => {
                let names: Vec<_> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
                return refuse(format!("the nodes are: {}", names.join(", ")));
            }
        },
    };
    if let Some(second) = second {
        let (one, other) = (&node.text, &second.text);
        return refuse(format!("it may be {one} or {other}; name it by a tag, `{{tag}}(…)`"));
    }
    match (given, node.class.kind) {
        (Made::Source(_), Kind::Node) => refuse(format!("a source, and {} is none", node.text)),
        (Made::Node(_), Kind::Source) => refuse(format!("no source, and {} is one", node.text)),
        _ => Ok(node.key),
    }
}

/// Interfaces of sources, by the key of their node.
type Open = HashMap<u64, Vec<Interface>>;

impl Editor {
    /// Copies of the parallel nodes that a plan needs, for all workers but the first, which has those in `first`.
    fn copies(
        &self,
        plan: &Plan,
        texts: &[&str],
        stays: &HashMap<u64, u64>,
        open: &Open,
        first: &[(u64, Made)],
    ) -> Result<Vec<Fresh>, EditError> {
        // Nodes that exist once for all workers are treated as if they stayed.
        let once = plan.nodes.iter().filter(|node| !node.class.parallel);
        let mut there: HashMap<u64, u64> = once.map(|node| (node.key, node.key)).collect();
        there.extend(stays);
        let share = |(key, made): &(u64, Made)| match made {
            Made::Node(node) if !there.contains_key(key) => Some((*key, node.for_worker()?)),
            _ => None,
        };
        let mut sharing: Vec<Fresh> =
            (1..self.workers).map(|_| first.iter().filter_map(share).collect()).collect();
        there.extend(sharing.first().into_iter().flatten().map(|(&key, _)| (key, key)));
        // After new sources a copy does not know the interfaces; it learns them from frames.
        let copy = |mut sharing: Fresh| {
            let made = Made::all(plan, &there, open);
            let made = made.map_err(|error| error.blame(texts))?.into_iter();
            let nodes = made.filter_map(|(key, made)| match made {
                Made::Node(node) => Some((key, node)),
                Made::Source(_) | Made::Shares(..) => None,
            });
            sharing.extend(nodes);
            Ok(sharing)
        };
        sharing.drain(..).map(copy).collect()
    }

    /// Frames that the nodes of a new plan need held: those that stay, and those that are made for it.
    fn held_after(&self, stays: &HashMap<u64, u64>, made: &[(u64, Made)]) -> Held {
        let kept = stays.iter().filter_map(|(&new, old)| Some((new, self.held.get(old)?.clone())));
        kept.chain(placement::held(made)).collect()
    }
}

impl GraphHandle {
    /// True once a thread runs the engine, so that edits are taken over.
    pub fn runs(&self) -> bool {
        self.shared.started.load(Ordering::Acquire)
    }

    /// Plans and makes the graph of some texts; one thread must run the engine.
    ///
    /// # Errors
    /// If a text is not a graph, or a node cannot be made; then nothing is left open.
    pub fn start(texts: &[&str], classes: Classes) -> Result<(Engine, GraphHandle), EditError> {
        GraphHandle::start_with(texts, classes, Vec::new())
    }

    /// Starts a graph with nodes and sources that the program has made itself, each for the node with this tag, or
    /// for the only node of this class. They exist once: a graph that is edited later makes new nodes by their class.
    /// To make several, register a class with state instead ([`Classes::register_with`]).
    ///
    /// ```
    /// # mod fyke { pub(crate) use {fyke_capture as capture, fyke_frame as frame, fyke_graph as graph}; }
    /// use fyke::capture::MemorySource;
    /// use fyke::frame::LinkType;
    /// use fyke::graph::{Classes, GraphHandle, Made};
    ///
    /// let given = |name| vec![(name, Made::Source(Box::new(MemorySource::new(LinkType::EN10MB))))];
    /// // The parameters of the node are those of its class; a given source does not read them.
    /// let text = "{in}(pcapin, expression=unused) > (packetcount)";
    /// assert!(GraphHandle::start_with(&[text], Classes::new(), given("in")).is_ok());
    /// assert!(GraphHandle::start_with(&[text], Classes::new(), given("pcapin")).is_ok());
    /// let refused = GraphHandle::start_with(&[text], Classes::new(), given("out")).err();
    /// assert!(refused.is_some_and(|error| error.to_string().contains("the nodes are: in, packetcount")));
    /// ```
    ///
    /// # Errors
    /// As for [`start`](Self::start), and if a given node or source does not belong to exactly one node.
    pub fn start_with(
        texts: &[&str],
        classes: Classes,
        given: Vec<(&str, Made)>,
    ) -> Result<(Engine, GraphHandle), EditError> {
        GraphHandle::open_with(texts, classes, given, 1)?.start()
    }

    /// Runs a graph on several workers; the frames of a conversation stay on one of them, in order. If all sources are
    /// interfaces, each worker has a ring of each. Else no node may cut batches. No node may depend on the order of all
    /// frames.
    ///
    /// # Errors
    /// As for [`start`](Self::start), and if a thread cannot be started. A graph that several workers cannot run is
    /// refused before anything is opened.
    pub fn start_workers(
        texts: &[&str],
        classes: Classes,
        workers: usize,
    ) -> Result<(Engine, GraphHandle), EditError> {
        GraphHandle::open(texts, classes, workers)?.start()
    }

    /// Plans and makes the graph of some texts for `workers` workers, and starts no thread yet: in between, a process
    /// can give up the privileges that opening sources and files needed.
    ///
    /// # Errors
    /// As for [`start_workers`](Self::start_workers).
    pub fn open(texts: &[&str], classes: Classes, workers: usize) -> Result<Opened, EditError> {
        GraphHandle::open_with(texts, classes, Vec::new(), workers)
    }

    /// The same with nodes and sources that the program has made itself, as for [`start_with`](Self::start_with).
    ///
    /// # Errors
    /// As for [`start_workers`](Self::start_workers).
    pub fn open_with(
        texts: &[&str],
        classes: Classes,
        given: Vec<(&str, Made)>,
        workers: usize,
    ) -> Result<Opened, EditError> {
        let plan = Plan::to_open(texts, &classes)?;
        let workers = workers.clamp(1, MAX_WORKERS);
        if workers > 1 {
            refuse_workers(&plan)?;
        }
        let mut made = Vec::new();
        let mut stays = HashMap::new();
        let mut open = HashMap::new();
        for (name, one) in given {
            let key = place_of(&plan, name, &one)?;
            if !matches!(one, Made::Node(_)) {
                open.insert(key, one.interfaces().to_vec());
            }
            stays.insert(key, key);
            made.push((key, one));
        }
        let rest = Made::all_for(&plan, &stays, &open, workers);
        made.extend(rest.map_err(|error| error.blame(texts))?);
        let editor = Editor {
            workers,
            classes,
            texts: (1..).zip(texts.iter().map(|text| Arc::from(*text))).collect(),
            next_id: texts.len() as u64 + 1,
            plan,
            notes: Vec::new(),
            placements: Vec::new(),
            held: placement::held(&made),
            kept: None,
            filters: filters::filters_of(&made).collect(),
        };
        let sources = made.iter().filter(|(_, made)| !matches!(made, Made::Node(_)));
        let open: Open = sources.map(|(key, made)| (*key, made.interfaces().to_vec())).collect();
        let stays = open.keys().map(|&key| (key, key)).collect();
        let more = editor.copies(&editor.plan, texts, &stays, &open, &made)?;
        Ok(Opened { editor, made, more })
    }

    /// Adds a text to the running graph; nodes that it shares with other texts exist once. Returns its number.
    ///
    /// # Errors
    /// If it is refused; then nothing has changed.
    pub fn add(&self, text: &str) -> Result<u64, EditError> {
        let mut editor = lock(&self.editor);
        let id = editor.next_id;
        let mut texts = editor.texts.clone();
        texts.insert(id, text.into());
        self.apply(&mut editor, texts)?;
        editor.next_id += 1;
        Ok(id)
    }

    /// Replaces one text by another; nodes that they share stay.
    ///
    /// # Errors
    /// If it is refused; then nothing has changed.
    pub fn replace(&self, id: u64, text: &str) -> Result<(), EditError> {
        let mut editor = lock(&self.editor);
        let mut texts = editor.texts.clone();
        match texts.get_mut(&id) {
            Some(old) => *old = text.into(),
            None => return Err(no_such_text(id, &texts)),
        }
        self.apply(&mut editor, texts)
    }

    /// Replaces all texts by one; nodes that it shares with them stay. Returns its number.
    ///
    /// # Errors
    /// If it is refused; then nothing has changed.
    pub fn set(&self, text: &str) -> Result<u64, EditError> {
        let mut editor = lock(&self.editor);
        let id = editor.next_id;
        self.apply(&mut editor, BTreeMap::from([(id, text.into())]))?;
        editor.next_id += 1;
        Ok(id)
    }

    /// Replaces all texts by these, with their numbers; nodes that they share with the old ones stay.
    ///
    /// # Errors
    /// If it is refused; then nothing has changed.
    pub fn put(&self, texts: BTreeMap<u64, Arc<str>>) -> Result<(), EditError> {
        if texts.is_empty() {
            return Err(EditError::LastText);
        }
        let mut editor = lock(&self.editor);
        let last = texts.keys().next_back().copied().unwrap_or_default();
        self.apply(&mut editor, texts)?;
        editor.next_id = editor.next_id.max(last + 1);
        Ok(())
    }

    /// Removes a text, and the nodes that no other text contains.
    ///
    /// # Errors
    /// If it is refused; then nothing has changed.
    pub fn remove(&self, id: u64) -> Result<(), EditError> {
        let mut editor = lock(&self.editor);
        let mut texts = editor.texts.clone();
        if texts.remove(&id).is_none() {
            return Err(no_such_text(id, &texts));
        }
        if texts.is_empty() {
            return Err(EditError::LastText);
        }
        self.apply(&mut editor, texts)
    }

    fn apply(&self, editor: &mut Editor, texts: BTreeMap<u64, Arc<str>>) -> Result<(), EditError> {
        let list: Vec<_> = texts.values().map(|text| &**text).collect();
        let mut plan = Plan::to_open(&list, &editor.classes)?;
        plan.number(&texts.keys().copied().collect::<Vec<_>>());
        if editor.workers > 1 {
            refuse_workers(&plan)?;
            if plan.has_rings() != editor.plan.has_rings() {
                return Err(EditError::Workers(OTHER_SOURCES.to_owned()));
            }
        }
        let stays = plan.stays(&editor.plan);
        let notes = plan.made_anew(&editor.plan, &stays);
        let open = self.open_sources();
        let checked = Made::check_edit(&plan, &stays);
        checked.map_err(|error| error.blame(&list))?;
        let made = Made::all_for(&plan, &stays, &open, editor.workers);
        let mut made = made.map_err(|error| error.blame(&list))?;
        let mut more = editor.copies(&plan, &list, &stays, &open, &made)?;
        if let (Some(kept), Some(node)) = (&editor.kept, plan.only_filter()) {
            keep_at(node.key, kept, &mut made, &mut more);
        }
        let held = editor.held_after(&stays, &made);
        let widened = placement::widen(&plan, &editor.placements, &stays, &made, &held);
        let running = filters::filters_after(&editor.filters, &stays, &made);
        let pending = Pending { plan: plan.clone(), made, more, stays, texts: texts.clone() };
        if let Err(refused) = self.shared.hand_over(pending) {
            widened.cancel(&editor.placements);
            return Err(refused);
        }
        let new = widened.narrow(&mut editor.placements, &plan, &held, &running);
        lock(&self.shared.below).extend(new);
        (editor.plan, editor.texts, editor.notes, editor.held) = (plan, texts, notes, held);
        editor.filters = running;
        Ok(())
    }

    /// The interfaces of the running sources.
    fn open_sources(&self) -> Open {
        let sources = self.view().sources.into_iter();
        sources.map(|source| (source.node, source.interfaces)).collect()
    }

    /// The texts with their numbers.
    pub fn texts(&self) -> BTreeMap<u64, Arc<str>> {
        lock(&self.editor).texts.clone()
    }

    /// Notes for the user about the last edit: nodes that were made anew although they have a tag, and why.
    pub fn notes(&self) -> Vec<String> {
        lock(&self.editor).notes.clone()
    }

    /// Nodes of the texts that change nothing: left out, or not, each with the reason.
    pub fn left_out(&self) -> Vec<String> {
        lock(&self.editor).plan.left_out.clone()
    }

    /// The class that a text names so.
    pub fn class(&self, name: &str) -> Option<crate::node::Class> {
        lock(&self.editor).classes.find(name)
    }

    /// The texts of the only filter or demultiplexer as a set of their own; `None` if there is none, or several.
    pub fn only_filter(&self) -> Option<FilterSet> {
        let editor = lock(&self.editor);
        let node = editor.plan.only_filter()?;
        node.class.filters?(&node.settings)
    }

    /// The key of the only filter or demultiplexer; `None` if there is none, or several.
    pub fn filter_key(&self) -> Option<u64> {
        lock(&self.editor).plan.only_filter().map(|node| node.key)
    }

    /// Places of the filters after devices.
    pub fn placements(&self) -> Vec<Placement> {
        lock(&self.editor).placements.clone()
    }

    /// Pauses the graph, or lets it continue; returns true if that is a change. While it is paused, frames of
    /// interfaces are lost, with the reason `paused`, and files are not read. In force from the next batch on.
    pub fn pause(&self, paused: bool) -> bool {
        self.shared.paused.swap(paused, Ordering::AcqRel) != paused
    }

    /// True while it is paused.
    pub fn is_paused(&self) -> bool {
        self.shared.paused.load(Ordering::Acquire)
    }

    /// Number of edits in force.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire) + self.shared.by_hand()
    }

    /// The counts, at most a tenth of a second old.
    pub fn view(&self) -> GraphView {
        let view = match self.shared.rests.load(Ordering::Acquire) {
            true => self.shared.snapshot(Duration::ZERO),
            false => lock(&self.shared.view).last.clone(),
        };
        (*view).clone()
    }

    /// All counts at one moment after the call, including those of filters. The packet loop collects them between two
    /// batches, for all requests together, and uses at most a fiftieth of its time for it. A loop that waits for its
    /// source, such as a pipe, answers later; then this is the previous snapshot, and [`GraphView::elapsed`] tells
    /// its time.
    pub fn snapshot(&self) -> Arc<GraphView> {
        self.shared.snapshot(Duration::ZERO)
    }

    /// As [`GraphHandle::snapshot`], but waits for the share of time, too, which makes snapshots of many filters rare:
    /// for callers that need the counts after an edit.
    pub fn snapshot_when_due(&self) -> Arc<GraphView> {
        self.shared.snapshot(SNAPSHOT_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot that has taken long makes the next one late; it is waited for if that is wanted.
    #[test]
    fn a_snapshot_that_is_not_due_yet_is_waited_for() {
        let shared = Shared::default();
        shared.publish(GraphView::default(), Some((SNAPSHOT_LIMIT / 25, 0)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !shared.closed.load(Ordering::Acquire) {
                    if shared.is_asked() {
                        let view = GraphView { epoch: 7, ..GraphView::default() };
                        shared.publish(view, Some((Duration::ZERO, shared.asked())));
                    }
                    std::thread::sleep(SNAPSHOT_PAUSE);
                }
            });
            let view = shared.snapshot(SNAPSHOT_PATIENCE);
            shared.close();
            assert_eq!(view.epoch, 7);
        });
    }
}
