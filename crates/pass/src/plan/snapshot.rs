//! Snapshots, which the writer publishes and readers evaluate, and the cell that holds the newest one.
//!
//! The cell is locked only for the exchange of one reference. The writer keeps a replaced snapshot until no reader
//! holds it ([`Retired`]), so neither a reader nor the exchange frees the passes of an earlier state. Publishing is
//! O(1).

use crate::isa::id::{Epoch, PassId};
use crate::plan::{Plan, Sharing};
use crate::state::State;
use crate::state::published::PublishedShape;
use crate::state::rows::{PinnedEpochs, ReaderEpochs};
use fyke_frame::LinkType;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// True for equal link types. Link types have aliases; two with the same description are equal.
pub(crate) fn same_link(one: LinkType, other: LinkType) -> bool {
    one == other || one.description().is_some_and(|link| link.numbers.contains(&other))
}

/// The data that readers evaluate. Only the rows of its tables change.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Grows with every snapshot; several snapshots may have the same epoch.
    pub version: u64,
    pub epoch: Epoch,
    pub link: LinkType,
    pub state: State,
    /// True without filters, passes and rows.
    pub accept_all: bool,
    pub tables: Arc<Tables>,
    /// All passes of the state one by one, by [`Sharing`]; made on a reader's first request.
    pub plans: [OnceLock<Plan>; 5],
}

/// The passes outside of tables, and the tables; several snapshots share them.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    unindexed: Arc<[PassId]>,
    published: Arc<[Arc<PublishedShape>]>,
    plan: OnceLock<Plan>,
}

impl Tables {
    pub fn new(unindexed: Arc<[PassId]>, published: Arc<[Arc<PublishedShape>]>) -> Tables {
        Tables { unindexed, published, plan: OnceLock::new() }
    }
}

impl Snapshot {
    /// The plan for evaluation.
    pub fn plan(&self, sharing: Sharing) -> &Plan {
        let Tables { unindexed, published, plan } = &*self.tables;
        match sharing {
            Sharing::All => {
                plan.get_or_init(|| Plan::new(&self.state, unindexed, published, sharing))
            }
            _ => self.passes_one_by_one(sharing),
        }
    }

    /// A plan in which no pass of the state is a row; it has the declared shapes unless everything is shared.
    pub fn passes_one_by_one(&self, sharing: Sharing) -> &Plan {
        self.plans[sharing as usize].get_or_init(|| {
            let order: Vec<PassId> = self.state.in_order().map(|(id, _)| id).collect();
            let declared = self.declared().filter(|_| sharing != Sharing::All).cloned();
            let declared: Vec<Arc<PublishedShape>> = declared.collect();
            Plan::new(&self.state, &order, &declared, sharing)
        })
    }

    /// The passes outside of tables.
    pub fn unindexed(&self) -> &[PassId] {
        &self.tables.unindexed
    }

    /// All shapes.
    pub fn shapes(&self) -> &[Arc<PublishedShape>] {
        &self.tables.published
    }

    /// The declared shapes; their rows are not in the state.
    pub fn declared(&self) -> impl Iterator<Item = &Arc<PublishedShape>> {
        self.tables.published.iter().filter(|published| published.declared)
    }

    /// True if readers of both snapshots need the same memory.
    pub fn same_plan(&self, other: &Snapshot) -> bool {
        Arc::ptr_eq(&self.tables, &other.tables)
    }
}

/// Data that the writer and its readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    epoch: AtomicU64,
    /// Version of `current`.
    version: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
    pub readers: ReaderEpochs,
}

impl Shared {
    pub fn new(snapshot: Snapshot) -> Shared {
        Shared {
            epoch: AtomicU64::new(snapshot.epoch.0),
            version: AtomicU64::new(snapshot.version),
            current: Mutex::new(Arc::new(snapshot)),
            readers: ReaderEpochs::default(),
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

    /// The epochs that readers may read, now or later.
    pub fn pinned_epochs(&self) -> PinnedEpochs {
        self.readers.pinned_epochs(self.epoch())
    }

    /// Replaces the newest snapshot and returns the replaced one. The caller then sets the epoch.
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

/// Earlier states that no reader evaluates any more. Dropping it frees their passes: O(replaced passes).
#[derive(Debug, Default)]
pub struct Retired {
    /// Each with the number of passes that dropping the snapshot frees.
    snapshots: Vec<(Arc<Snapshot>, usize)>,
}

impl Retired {
    /// Keeps a snapshot; `passes` of its passes are not in its successor.
    pub(crate) fn push(&mut self, snapshot: Arc<Snapshot>, passes: usize) {
        self.snapshots.push((snapshot, passes));
    }

    /// Removes and returns the snapshots that no reader holds and that free at most `limit` passes together.
    pub(crate) fn take_unused(&mut self, limit: usize) -> Retired {
        let unused = |(old, passes): &mut (Arc<Snapshot>, usize)| {
            Arc::strong_count(old) == 1 && *passes <= limit
        };
        Retired { snapshots: self.snapshots.extract_if(.., unused).collect() }
    }

    /// Number of passes that dropping it frees.
    pub fn pass_count(&self) -> usize {
        self.snapshots.iter().map(|(_, passes)| passes).sum()
    }
}
