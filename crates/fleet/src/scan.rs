//! A scan: the same graph over many capture files, and the sums of its counts.

use crate::archive::{Job, MAX_FILES, NodeCounts, Queue, Row, ScanId, Stored};
use crate::broker::BrokerError;
use crate::keys::Author;
use crate::refused::Refusal;
use crate::rules::Rules;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::{Duration, Instant};

/// Number of jobs that wait for their acknowledgements at the same time.
const AT_ONCE: usize = 64;
/// Pause before the next request for rows.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest outage of the broker while jobs are made.
const OUTAGE: Duration = Duration::from_secs(30);
/// Most rows of one reading.
const READING: usize = 1_000;

/// Reason why a scan was not made, or is not known.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The broker refuses, or does not answer.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// It cannot be made.
    #[error("{0}")]
    Refused(String),
}

/// Results of a scan so far.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// Files with a result.
    pub done: u32,
    /// Files that could not be read to their end.
    pub failed: u32,
    /// Bytes of the files.
    pub bytes: u64,
    /// Workers that gave results.
    pub workers: BTreeSet<String>,
    /// Counts of each node, over all frames that were read.
    pub nodes: Vec<NodeCounts>,
    /// Alerts of each rule, by generator and number, with its message.
    pub alerts: BTreeMap<(u64, u64), (String, u64)>,
    /// Alerts of rules for which the row of a file had no room.
    pub more_alerts: u64,
}

impl Sums {
    fn add(&mut self, row: &Row) {
        self.done += 1;
        self.failed += u32::from(row.failed.is_some());
        self.bytes += row.bytes;
        self.workers.insert(row.worker.clone());
        for (at, node) in row.nodes.iter().enumerate() {
            match self.nodes.get_mut(at) {
                Some(sum) => sum.add(node),
                None => self.nodes.push(node.clone()),
            }
        }
        for alert in &row.alerts {
            let of = self.alerts.entry((alert.gid, alert.sid));
            of.or_insert_with(|| (alert.message.clone(), 0)).1 += alert.count;
        }
        self.more_alerts += row.more_alerts;
    }
}

/// Stores something, again if the broker was away: what is there twice changes no sum.
async fn stored<F: Future<Output = Result<(), BrokerError>>>(
    mut store: impl FnMut() -> F,
) -> Result<(), ScanError> {
    let end = Instant::now() + OUTAGE;
    loop {
        match store().await {
            Err(_) if Instant::now() < end => tokio::time::sleep(PAUSE).await,
            stored => return Ok(stored?),
        }
    }
}

/// A scan, and the sums of its rows so far.
#[derive(Debug)]
pub struct Scan {
    queue: Queue,
    id: ScanId,
    graph: String,
    rules: bool,
    /// The sequence from which on rows are read.
    from: u64,
    /// The sequence from which on refusals are read.
    refused_from: u64,
    /// True for files with a row.
    known: Vec<bool>,
    sums: Sums,
    is_cancelled: bool,
}

impl Scan {
    /// Makes the jobs of a scan.
    ///
    /// # Errors
    /// There are too many files, or the broker does not answer for 30 s; jobs that were made already are removed then.
    pub async fn start(
        queue: Queue,
        author: &Author,
        graph: &str,
        rules: Option<&Rules>,
        files: &[String],
    ) -> Result<Scan, ScanError> {
        if files.is_empty() || files.len() > MAX_FILES {
            return Err(ScanError::Refused(format!(
                "{} files; a scan has 1 to {MAX_FILES}",
                files.len()
            )));
        }
        let id = ScanId::random().map_err(ScanError::Refused)?;
        let count = files.len() as u32;
        if let Some(rules) = rules {
            stored(|| queue.add_rules(rules)).await?;
        }
        let (graph, has_rules) = (graph.to_owned(), rules.is_some());
        let made = Stored::Scan { graph: graph.clone(), files: count, rules: has_rules };
        stored(|| queue.store(&id, &made)).await?;
        let added = stream::iter((0..count).zip(files))
            .map(|(index, path)| {
                let rules = rules.map(Rules::reference);
                let mut job = Job::new(queue.group(), &id, index, path, &graph);
                job.rules = rules;
                let job = job.signed(author);
                let (queue, id) = (&queue, &id);
                async move {
                    let job = job.map_err(ScanError::Refused)?;
                    stored(|| queue.add_job(id, job.clone())).await
                }
            })
            .buffer_unordered(AT_ONCE)
            .try_for_each(|()| async { Ok(()) })
            .await;
        if let Err(error) = added {
            // If the broker is gone, its error is the one to show.
            let _best_effort = queue.cancel(&id).await;
            return Err(error);
        }
        Scan::resume(queue, id).await
    }

    /// Reads the rows of a scan that was made before, from the first one on.
    ///
    /// # Errors
    /// The broker does not answer, or knows no such scan.
    pub async fn resume(queue: Queue, id: ScanId) -> Result<Scan, ScanError> {
        match queue.stored(&id, 1).await? {
            Some((sequence, Stored::Scan { graph, files, rules })) => {
                let known = vec![false; (files as usize).min(MAX_FILES)];
                let (from, sums) = (sequence + 1, Sums::default());
                let refused_from = 1;
                let is_cancelled = false;
                Ok(Scan { queue, id, graph, rules, from, refused_from, known, sums, is_cancelled })
            }
            _ => Err(ScanError::Refused(format!(
                "the group {} has no scan {}",
                queue.group(),
                id.as_str()
            ))),
        }
    }

    /// Its number.
    pub fn id(&self) -> &ScanId {
        &self.id
    }

    /// Its group.
    pub fn group(&self) -> &str {
        self.queue.group().as_str()
    }

    /// Its graph.
    pub fn graph(&self) -> &str {
        &self.graph
    }

    /// True if rules judge its files.
    pub fn has_rules(&self) -> bool {
        self.rules
    }

    /// Number of its files.
    pub fn files(&self) -> usize {
        self.known.len()
    }

    /// The results so far.
    pub fn sums(&self) -> &Sums {
        &self.sums
    }

    /// True once each file has a result.
    pub fn is_complete(&self) -> bool {
        self.sums.done as usize == self.known.len()
    }

    /// True if its jobs have been removed: only files that workers had begun by then may still get results.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Reads rows that are new; waits a little if there is none.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn read(&mut self) -> Result<Vec<Row>, ScanError> {
        let mut rows = Vec::new();
        while rows.len() < READING {
            let Some((sequence, stored)) = self.queue.stored(&self.id, self.from).await? else {
                break;
            };
            self.from = sequence + 1;
            let row = match stored {
                Stored::Row(row) => row,
                Stored::Cancelled => {
                    self.is_cancelled = true;
                    continue;
                }
                Stored::Scan { .. } => continue,
            };
            // A second row of a file comes from a worker that ended before the queue knew.
            match self.known.get_mut(row.index as usize) {
                Some(known) if !*known => *known = true,
                _ => continue,
            }
            self.sums.add(&row);
            rows.push(row);
        }
        if rows.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(rows)
    }

    /// Reads refusals that are new, or have been repeated.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn refusals(&mut self) -> Result<Vec<Refusal>, ScanError> {
        let mut refusals = Vec::new();
        while refusals.len() < READING {
            let found = self.queue.refusal(&self.id, self.refused_from).await?;
            let Some((sequence, refusal)) = found else { break };
            self.refused_from = sequence + 1;
            refusals.push(refusal);
        }
        Ok(refusals)
    }

    /// True if a worker was at a file in the last 30 s.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn is_worked_on(&self) -> Result<bool, ScanError> {
        Ok(self.queue.is_worked_on(&self.id).await?)
    }

    /// Removes the jobs that no worker has begun; returns the number of those without a result.
    ///
    /// A server that was killed may have jobs again that were done. They are removed, too, and do not count, as far as
    /// their results have been read.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn cancel(&self) -> Result<u64, ScanError> {
        let removed = self.queue.cancel(&self.id).await?;
        Ok(removed.min(self.known.len() as u64 - u64::from(self.sums.done)))
    }
}
