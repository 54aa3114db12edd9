//! The things that a service gets from the process before it by the service manager, and leaves to the next
//! ([`Store`]).

use super::super::Failure;
use super::log::Log;
use anyhow::Context;
use fyke_kernel::CountReader;
use fyke_privilege::given::Keeper;
use fyke_serve::store::{KeptReader, key_of};
use fyke_serve::{Left, Policy, Restoration, Service, Store};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const STORE: &str = "the store of the service manager";
const MANAGER: &str = "the service manager (NOTIFY_SOCKET)";

/// The service manager, and what it has kept.
pub struct Manager {
    keeper: Option<Arc<Keeper>>,
    /// By the keys of the captures.
    left: BTreeMap<String, Left>,
}

impl Manager {
    /// Connects to the service manager, if there is one. Call it before the sandbox.
    pub fn connect(left: BTreeMap<String, Left>) -> Result<Manager, Failure> {
        let keeper = Keeper::connect().context(MANAGER)?.map(Arc::new);
        Ok(Manager { keeper, left })
    }

    /// Opens the store of a capture. Call it before the capture is opened.
    pub fn open(&mut self, name: &str) -> Result<Kept, Failure> {
        let mut left = self.left.remove(&key_of(name)).unwrap_or_default();
        let (mut store, mut readers) = (None, Vec::new());
        if let Some(keeper) = self.keeper.as_ref().filter(|keeper| keeper.keeps()) {
            let opened = Store::open(Arc::clone(keeper), key_of(name), &mut left).context(STORE)?;
            (store, readers) = (Some(Arc::new(opened.0)), opened.1);
        }
        let maps: Vec<_> = std::mem::take(&mut left.counts).into_values().collect();
        let reader = (!maps.is_empty()).then(|| CountReader::of(&maps)).transpose();
        Ok(Kept { store, readers, counts: (maps.len(), reader), restored: 0 })
    }

    /// Ends the captures that were kept and that this process does not have.
    pub fn discard_others(&mut self) -> Result<(), Failure> {
        let Some(keeper) = self.keeper.as_ref().filter(|keeper| keeper.keeps()) else {
            return Ok(());
        };
        for (key, left) in std::mem::take(&mut self.left) {
            let reason = "the service was started again without this capture";
            left.discard(&key, keeper, reason).context(STORE)?;
        }
        Ok(())
    }

    /// True if a service manager has started this process.
    pub fn is_there(&self) -> bool {
        self.keeper.is_some()
    }

    /// Tells the service manager that readers can connect.
    pub fn ready(&self) -> Result<(), Failure> {
        Ok(self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.ready()).context(MANAGER)?)
    }
}

/// The store of a capture, if there is one, and what was in it.
pub struct Kept {
    store: Option<Arc<Store>>,
    readers: Vec<KeptReader>,
    /// Number of maps with the counters of the filter that the process before had in the kernel, and a reader for them.
    counts: (usize, io::Result<Option<CountReader>>),
    /// Readers that continue.
    restored: usize,
}

impl Kept {
    /// The store.
    pub fn store(&self) -> Option<Arc<Store>> {
        self.store.clone()
    }

    /// Restores the readers.
    pub fn restore(&mut self, service: &Service, policy: &Policy) -> Restoration {
        let Some(store) = &self.store else { return Restoration::default() };
        let readers = std::mem::take(&mut self.readers);
        let restored = fyke_serve::restore(service, policy, store, readers);
        self.restored = restored.len();
        restored
    }

    /// Has the open capture kept.
    pub fn keep_capture(&self) -> Result<(), Failure> {
        let kept = self.store.as_ref().map_or(Ok(()), |store| store.keep_capture());
        Ok(kept.context(STORE)?)
    }

    /// Continues with the counts of the process before; its filter is no longer attached.
    pub fn count_on(&self, service: &Service) -> Result<(), Failure> {
        let Some(store) = &self.store else { return Ok(()) };
        let (maps, reader) = &self.counts;
        // Its program may still run for a frame; without the call, that frame is not counted.
        let _counted = fyke_kernel::sys::wait_for_readers();
        let reader = reader.as_ref().ok();
        let below = reader.map(|one| one.as_ref().map_or(0, CountReader::rejected));
        Ok(fyke_serve::count_on(service, store, below, *maps).context(STORE)?)
    }

    /// Reports a capture that continues.
    pub fn report(&self, log: &Log) {
        if self.store.as_ref().is_some_and(|store| store.capture().resumed().is_some()) {
            let text = format!("fyke: the capture continues, with {} readers", self.restored);
            log.say("continues", json!({"readers": self.restored}), &text);
        }
    }
}
