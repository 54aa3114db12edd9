//! What the writer publishes and readers evaluate: snapshots, and the cell that holds the newest one.
//!
//! The cell is locked for the exchange of one reference. What is replaced is kept by the writer until nobody holds it
//! ([`Retired`]), so that neither a reader nor the exchange frees the passes of an earlier state. Publishing is O(1).

use crate::isa::id::{Epoch, PassId};
use crate::plan::{Plan, Sharing};
use crate::state::State;
use crate::state::live::Live;
use crate::state::rows::{Marks, Standing};
use fyke_frame::LinkType;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Link types have aliases; two are the same when they are described alike.
pub(crate) fn same_link(one: LinkType, other: LinkType) -> bool {
    one == other || one.description().is_some_and(|link| link.numbers.contains(&other))
}

/// What readers evaluate, unchanging but for the rows of its tables.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Grows with every snapshot; several of them may be of one epoch.
    pub version: u64,
    pub epoch: Epoch,
    pub link: LinkType,
    pub state: State,
    /// Neither a filter nor a pass nor a row.
    pub accept_all: bool,
    pub tables: Arc<Tables>,
    /// All passes of the state one by one, by [`Sharing`]; made when a reader first asks.
    pub plans: [OnceLock<Plan>; 5],
}

/// The passes outside of tables and the tables; the same in many snapshots.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    loose: Arc<[PassId]>,
    live: Arc<[Arc<Live>]>,
    plan: OnceLock<Plan>,
}

impl Tables {
    pub fn new(loose: Arc<[PassId]>, live: Arc<[Arc<Live>]>) -> Tables {
        Tables { loose, live, plan: OnceLock::new() }
    }
}

impl Snapshot {
    /// The plan for evaluation.
    pub fn plan(&self, sharing: Sharing) -> &Plan {
        let Tables { loose, live, plan } = &*self.tables;
        match sharing {
            Sharing::All => plan.get_or_init(|| Plan::new(&self.state, loose, live, sharing)),
            _ => self.passes_one_by_one(sharing),
        }
    }

    /// A plan in which no pass of the state is a row; with the declared shapes unless everything is shared.
    pub fn passes_one_by_one(&self, sharing: Sharing) -> &Plan {
        self.plans[sharing as usize].get_or_init(|| {
            let order: Vec<PassId> = self.state.in_order().map(|(id, _)| id).collect();
            let declared = self.declared().filter(|_| sharing != Sharing::All).cloned();
            let declared: Vec<Arc<Live>> = declared.collect();
            Plan::new(&self.state, &order, &declared, sharing)
        })
    }

    /// The passes outside of tables.
    pub fn loose(&self) -> &[PassId] {
        &self.tables.loose
    }

    /// All shapes.
    pub fn shapes(&self) -> &[Arc<Live>] {
        &self.tables.live
    }

    /// The shapes whose rows are not in the state.
    pub fn declared(&self) -> impl Iterator<Item = &Arc<Live>> {
        self.tables.live.iter().filter(|live| live.declared)
    }

    /// Whether readers of both need the same memory.
    pub fn same_plan(&self, other: &Snapshot) -> bool {
        Arc::ptr_eq(&self.tables, &other.tables)
    }
}

/// What writer and readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    epoch: AtomicU64,
    /// Version of `current`.
    version: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
    pub marks: Marks,
}

impl Shared {
    pub fn new(snapshot: Snapshot) -> Shared {
        Shared {
            epoch: AtomicU64::new(snapshot.epoch.0),
            version: AtomicU64::new(snapshot.version),
            current: Mutex::new(Arc::new(snapshot)),
            marks: Marks::default(),
        }
    }

    /// The newest epoch.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// The newest snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest snapshot, unless it is this one.
    pub fn newer(&self, than: &Snapshot) -> Option<Arc<Snapshot>> {
        (self.version.load(Ordering::Acquire) != than.version).then(|| self.current())
    }

    /// The epochs that readers may look at, now or later.
    pub fn standing(&self) -> Standing {
        self.marks.standing(self.epoch())
    }

    /// Puts a snapshot in the place of the newest one, which it gives back. Its epoch is to be set then.
    pub fn publish(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        let version = snapshot.version;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, snapshot);
        drop(current);
        self.version.store(version, Ordering::Release);
        old
    }

    #[inline]
    pub fn set_epoch(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Release);
    }
}

/// Earlier states that nobody evaluates any more. Dropping it frees their passes: O(those that were replaced).
#[derive(Debug, Default)]
pub struct Retired {
    /// With the number of passes that dropping the snapshot frees.
    snapshots: Vec<(Arc<Snapshot>, usize)>,
}

impl Retired {
    /// Keeps a snapshot that was replaced by one that lacks `passes` of its passes.
    pub(crate) fn push(&mut self, snapshot: Arc<Snapshot>, passes: usize) {
        self.snapshots.push((snapshot, passes));
    }

    /// Those that no reader holds and that free at most `limit` passes, taken out.
    pub(crate) fn take_unused(&mut self, limit: usize) -> Retired {
        let unused = |(old, passes): &mut (Arc<Snapshot>, usize)| {
            Arc::strong_count(old) == 1 && *passes <= limit
        };
        Retired { snapshots: self.snapshots.extract_if(.., unused).collect() }
    }

    /// Passes that dropping it frees.
    pub fn pass_count(&self) -> usize {
        self.snapshots.iter().map(|(_, passes)| passes).sum()
    }
}
