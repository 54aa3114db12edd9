//! Memory that was removed from the lists: it keeps its contents until every program run that may use it has ended.
//!
//! The wait is one `membarrier` (15 to 25 ms), in a thread that starts long before memory runs out.

use super::KernelPasses;
use crate::code::Code;
use crate::error::KernelEditError;
use crate::layout::SLOTS;
use crate::rows::{Members, TableId};
use crate::sys;
use std::io;
use std::mem::take;
use std::thread::JoinHandle;

/// Memory that is no longer reachable.
#[derive(Debug, Default)]
pub(super) struct Retired {
    pub slots: Vec<u32>,
    pub counters: Vec<u32>,
    pub tables: Vec<(TableId, Members)>,
    pub code: Vec<Code>,
}

impl Retired {
    fn is_empty(&self) -> bool {
        let Retired { slots, counters, tables, code } = self;
        slots.is_empty() && counters.is_empty() && tables.is_empty() && code.is_empty()
    }
}

/// Retired memory during its grace period.
#[derive(Debug)]
pub(super) struct Ending {
    pub what: Retired,
    pub wait: JoinHandle<io::Result<()>>,
}

impl KernelPasses {
    /// Waits until no program can use retired memory, and frees it. First frees what another thread has waited for,
    /// which may be enough.
    pub(super) fn reclaim(
        &mut self,
        enough: impl Fn(&Self) -> bool,
    ) -> Result<(), KernelEditError> {
        let full = KernelEditError::Full { limit: SLOTS - 2 };
        if !self.collect(true) {
            return Err(full);
        }
        if enough(self) || self.retired.is_empty() {
            return Ok(());
        }
        sys::wait_for_readers().map_err(|_| full)?;
        let retired = take(&mut self.retired);
        self.release(retired);
        Ok(())
    }

    /// Starts a thread that waits, long before slots run out, so that edits need not wait. If no thread can be started,
    /// the edit that finds no slot waits itself.
    pub(super) fn begin_reclaiming(&mut self) {
        if !self.collect(false) || self.ending.is_some() || self.retired.slots.is_empty() {
            return;
        }
        let thread = std::thread::Builder::new().name("fyke-grace".into());
        if let Ok(wait) = thread.spawn(sys::wait_for_readers) {
            self.ending = Some(Ending { what: take(&mut self.retired), wait });
        }
    }

    /// Frees the memory for which a thread has waited, if the wait is over or `wait` is true. False if the wait failed.
    fn collect(&mut self, wait: bool) -> bool {
        match self.ending.take() {
            Some(ending) if wait || ending.wait.is_finished() => {
                if !matches!(ending.wait.join(), Ok(Ok(()))) {
                    self.retired.slots.extend(ending.what.slots);
                    self.retired.counters.extend(ending.what.counters);
                    self.retired.tables.extend(ending.what.tables);
                    self.retired.code.extend(ending.what.code);
                    return false;
                }
                self.release(ending.what);
            }
            still => self.ending = still,
        }
        true
    }

    fn release(&mut self, retired: Retired) {
        self.free.extend(retired.slots);
        self.free_counters.extend(retired.counters);
        retired.code.into_iter().for_each(|code| self.code.release(code));
        for (table, members) in retired.tables {
            self.rows.empty(table, &members);
            self.rows.free_table(table);
        }
    }
}
