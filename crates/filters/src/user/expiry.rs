//! Removes filters at the end of their time: an edit like any other, in a thread that exists while there are such
//! filters.
//!
//! The last filter stays, because without a filter every frame would be accepted; but if every frame was accepted
//! before it was added, every frame is accepted again.

use super::{FilterSet, Shared, lock};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Interval between two looks at the times: a filter is removed at most this much late.
const PAUSE: Duration = Duration::from_millis(50);

impl Shared {
    /// Starts the thread if there is none.
    pub(super) fn expire_later(self: &Arc<Self>) {
        if self.expires.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::downgrade(self);
        let run = move || run(&shared);
        if std::thread::Builder::new().name("fyke-expiry".into()).spawn(run).is_err() {
            // The next filter with a limited time tries again.
            self.expires.store(false, Ordering::Release);
        }
    }

    /// True if a filter has a limited time.
    pub(super) fn has_timed(&self) -> bool {
        let listed = lock(&self.listed);
        listed.journal.labels().values().any(|label| label.deadline.is_some())
    }
}

fn run(shared: &Weak<Shared>) {
    loop {
        std::thread::sleep(PAUSE);
        let Some(shared) = shared.upgrade() else { return };
        let _guard = shared.guard.get().map(|guard| guard());
        let due = lock(&shared.listed).journal.expired(Instant::now());
        let filters = FilterSet { shared };
        due.into_iter().for_each(|id| filters.expire(id));
        let shared = &filters.shared;
        if !shared.has_timed() {
            shared.expires.store(false, Ordering::Release);
            // One may have come after the look.
            if !shared.has_timed() || shared.expires.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}
