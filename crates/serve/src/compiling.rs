//! The limit of the time for which texts and graphs of a user are compiled.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Period of the limit.
const MINUTE: Duration = Duration::from_secs(60);

/// Time for which texts and graphs of users were compiled.
#[derive(Debug, Default)]
pub(crate) struct Compiling(Mutex<BTreeMap<u32, Spent>>);

#[derive(Debug)]
struct Spent {
    /// Begin of the minute.
    since: Instant,
    time: Duration,
}

impl Compiling {
    /// Does work for a user, unless its time of this minute is spent.
    pub(crate) fn time<T>(
        &self,
        user: u32,
        limit: Duration,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, spent| spent.since.elapsed() < MINUTE);
        if let Some(spent) = all.get(&user).filter(|spent| spent.time >= limit) {
            let (limit, seconds) =
                (limit.as_millis(), MINUTE.saturating_sub(spent.since.elapsed()));
            return Err(format!(
                "texts and graphs of user {user} have taken {} ms of this minute to compile, of {limit} ms; try \
                 again in {} seconds",
                spent.time.as_millis(),
                seconds.as_secs() + 1
            ));
        }
        drop(all);
        let start = Instant::now();
        let done = work();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = all.entry(user).or_insert_with(|| Spent { since: start, time: Duration::ZERO });
        spent.time += start.elapsed();
        done
    }
}
