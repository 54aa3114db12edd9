//! A worker: does jobs over the capture files below a folder, several at once.

use crate::archive::{Job, NodeCounts, Queue, Row, SIGN_OF_LIFE, ScanId, Stored};
use crate::broker::BrokerError;
use crate::keys::Trusted;
use crate::pull::{self, PAUSE};
use crate::refused::{self, Claim, Refuser};
use crate::rules::{Alert, Rules, RulesOf};
use crate::unaccepted::Unaccepted;
use crate::unless_stopped;
use async_nats::jetstream::consumer::Consumer;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::{AckKind, Message};
use futures_util::future::join_all;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Number of workers that may begin a file without finishing it; then it has failed. Refusals do not count.
const ATTEMPTS: u64 = 5;

/// Longest outage of the broker while rules are read.
const OUTAGE: Duration = Duration::from_secs(30);

/// Runs graphs over files.
pub trait Judge: Send + Sync + 'static {
    /// The counts of a graph's nodes over a file, and the alerts of rules after it. It ends soon after `stop` is true.
    fn judge(&self, graph: &str, rules: Option<&Rules>, file: File, stop: &AtomicBool) -> Judged;
}

/// The outcome of a graph over a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Judged {
    /// Counts of its nodes; of a file that is damaged, over the frames before the damage.
    pub nodes: Vec<NodeCounts>,
    /// Alerts of rules, the most frequent first.
    pub alerts: Vec<Alert>,
    /// Alerts of further rules.
    pub more_alerts: u64,
    /// The reason if the graph was refused, or the file not read to its end.
    pub failed: Option<String>,
}

impl Judged {
    /// A failure without counts.
    pub fn failure(why: String) -> Judged {
        Judged { failed: Some(why), ..Judged::default() }
    }
}

/// Files of a worker that are done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Files with counts.
    pub files: u64,
    /// Files that could not be read to their end, and graphs that were refused.
    pub failed: u64,
}

/// A worker.
pub struct Worker<J> {
    /// Its name in rows.
    pub name: String,
    /// The authors of the jobs that it accepts.
    pub trusted: Trusted,
    /// The folder of the files.
    pub root: File,
    /// Runs graphs.
    pub judge: Arc<J>,
    /// Takes a line about a failure.
    pub note: Box<dyn Fn(&str)>,
    /// The rules of the last job with some.
    pub rules: Mutex<Option<Arc<Rules>>>,
    /// The jobs that it does not accept.
    pub refuser: Refuser,
    /// The scan of its last sign of life, and when that was.
    pub sign: Mutex<Option<(ScanId, Instant)>>,
}

impl<J> std::fmt::Debug for Worker<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<J: Judge> Worker<J> {
    /// Does jobs, `at_once` at a time, until `stop` is true; what is begun then is given to other workers.
    ///
    /// # Errors
    /// The broker refuses the queue at the start. Later failures only make the worker wait.
    pub async fn run(
        &self,
        queue: &Queue,
        at_once: usize,
        stop: &Arc<AtomicBool>,
    ) -> Result<Done, BrokerError> {
        let jobs = queue.jobs().await?;
        let lines = (0..at_once.max(1)).map(|_| self.line(queue, &jobs, stop));
        let done = join_all(lines).await;
        Ok(done.iter().fold(Done::default(), |sum, done| Done {
            files: sum.files + done.files,
            failed: sum.failed + done.failed,
        }))
    }

    /// Does one job after the other.
    async fn line(&self, queue: &Queue, jobs: &Consumer<Config>, stop: &Arc<AtomicBool>) -> Done {
        let (mut done, mut refused) = (Done::default(), false);
        while !stop.load(Ordering::Relaxed) {
            let Some(message) = pull::next(jobs, refused, stop, &*self.note).await else {
                continue;
            };
            match Job::read(&message.payload, &self.trusted, queue.group()) {
                Ok(job) => {
                    refused = false;
                    self.take(queue, job, &message, stop, &mut done).await;
                }
                Err(why) => {
                    refused = true;
                    // One that is not told comes again.
                    unless_stopped(stop, self.refuse(queue, &message, why)).await;
                }
            }
        }
        done
    }

    /// Does a job, and stores its row; then the queue forgets it.
    async fn take(
        &self,
        queue: &Queue,
        job: Job,
        message: &Message,
        stop: &Arc<AtomicBool>,
        done: &mut Done,
    ) {
        let (sequence, attempt) = refused::place(message);
        let start = Instant::now();
        let begun = match self.begun(queue, &job, message).await {
            Ok(begun) => begun,
            Err(error) => {
                (self.note)(&error.to_string());
                let _comes_again_anyhow = message.ack_with(AckKind::Nak(Some(PAUSE))).await;
                return;
            }
        };
        let (bytes, judged) = match begun > ATTEMPTS {
            true => {
                (0, Judged::failure(format!("{ATTEMPTS} workers began it, and none finished it")))
            }
            false => self.judged(queue, &job, message, stop).await,
        };
        if stop.load(Ordering::Relaxed) {
            let _comes_again_anyhow = message.ack_with(AckKind::Nak(None)).await;
            return;
        }
        let Judged { nodes, alerts, more_alerts, failed } = judged;
        match failed {
            None => done.files += 1,
            Some(_) => done.failed += 1,
        }
        let row = Stored::Row(Row {
            index: job.index,
            path: job.path,
            worker: self.name.clone(),
            attempt,
            seconds: start.elapsed().as_secs_f64(),
            bytes,
            nodes,
            alerts,
            more_alerts,
            failed,
        });
        while let Err(error) = queue.store(&job.scan, &row).await {
            (self.note)(&error.to_string());
            if stop.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        // If this is lost, another worker stores the row again, and the first one counts.
        let _ignored = message.ack().await;
        if attempt > 1 {
            // Refusals of a job that is done only need room.
            let _ignored = queue.refusals().forget(job.scan.as_str(), sequence).await;
        }
    }

    /// Gives a job back that is not accepted.
    async fn refuse(&self, queue: &Queue, message: &Message, why: Unaccepted) {
        // The last part of the subject; a message under another one is no job.
        let scan = message.subject.as_str().rsplit('.').next().map(ScanId::new);
        let (claim, of) = match scan {
            Some(Ok(scan)) => (Claim::of(&message.payload), scan.as_str().to_owned()),
            _ => (Claim::Foreign, "none".to_owned()),
        };
        let refusal = (claim, why);
        let as_whom = (of.as_str(), self.name.as_str());
        self.refuser.refuse(queue.refusals(), as_whom, message, refusal, &*self.note).await;
    }

    /// Number of workers that have begun a job: those that it was given to, without refusals.
    async fn begun(&self, queue: &Queue, job: &Job, message: &Message) -> Result<u64, BrokerError> {
        let (sequence, attempt) = refused::place(message);
        if attempt <= ATTEMPTS {
            return Ok(attempt);
        }
        let refused = queue.refusals().deliveries(job.scan.as_str(), sequence).await?;
        Ok(attempt.saturating_sub(refused).max(1))
    }

    /// Tells the scan that this worker does a job of it, at most once in two seconds.
    async fn live(&self, queue: &Queue, scan: &ScanId) {
        let mut sign = self.sign.lock().await;
        let is_fresh = |(of, at): &(ScanId, Instant)| of == scan && at.elapsed() < SIGN_OF_LIFE;
        if !sign.as_ref().is_some_and(is_fresh) && queue.works(scan).await.is_ok() {
            *sign = Some((scan.clone(), Instant::now()));
        }
    }

    /// The size of a job's file and the counts of its graph; meanwhile the queue gets signs of life.
    async fn judged(
        &self,
        queue: &Queue,
        job: &Job,
        message: &Message,
        stop: &Arc<AtomicBool>,
    ) -> (u64, Judged) {
        self.live(queue, &job.scan).await;
        let (file, bytes) = match open_below(&self.root, Path::new(&job.path)) {
            Ok(found) => found,
            Err(why) => return (0, Judged::failure(why)),
        };
        let rules = match &job.rules {
            None => None,
            Some(of) => match self.rules(queue, of, stop).await {
                Ok(rules) => Some(rules),
                Err(error) => return (bytes, Judged::failure(error.to_string())),
            },
        };
        let (judge, graph, stop) = (Arc::clone(&self.judge), job.graph.clone(), Arc::clone(stop));
        let judge = move || judge.judge(&graph, rules.as_deref(), file, &stop);
        let mut judging = tokio::task::spawn_blocking(judge);
        loop {
            match tokio::time::timeout(SIGN_OF_LIFE, &mut judging).await {
                Ok(Ok(judged)) => return (bytes, judged),
                Ok(Err(error)) => return (bytes, Judged::failure(error.to_string())),
                // If this is lost, another worker may begin the same job.
                Err(_) => {
                    let _may_be_lost = message.ack_with(AckKind::Progress).await;
                    self.live(queue, &job.scan).await;
                }
            }
        }
    }
}

impl<J> Worker<J> {
    /// The rules of a job, which are read once for all jobs of a scan.
    async fn rules(
        &self,
        queue: &Queue,
        of: &RulesOf,
        stop: &AtomicBool,
    ) -> Result<Arc<Rules>, BrokerError> {
        // Held while they are read, so that jobs that begin together read them once.
        let mut last = self.rules.lock().await;
        match &*last {
            Some(rules) if rules.digest() == of.digest => Ok(Arc::clone(rules)),
            _ => {
                let end = Instant::now() + OUTAGE;
                let rules = loop {
                    match queue.rules(of).await {
                        Err(error) if Instant::now() < end && !stop.load(Ordering::Relaxed) => {
                            (self.note)(&error.to_string());
                            tokio::time::sleep(PAUSE).await;
                        }
                        rules => break Arc::new(rules?),
                    }
                };
                *last = Some(Arc::clone(&rules));
                Ok(rules)
            }
        }
    }
}

/// Opens a regular file below a folder, never through a link that leads out of it.
fn open_below(root: &File, path: &Path) -> Result<(File, u64), String> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = openat2(root, path, flags, Mode::empty(), resolve);
    let file = File::from(opened.map_err(|error| match error {
        Errno::XDEV => "cannot open it: its path leads out of the worker's --root".to_owned(),
        error => format!("cannot open it: {error}"),
    })?);
    let metadata = file.metadata().map_err(|error| format!("cannot read it: {error}"))?;
    match metadata.is_file() {
        true => Ok((file, metadata.len())),
        false => Err("it is no regular file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_below_the_folder_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::write(root.join("a/b.pcap"), b"12345").unwrap();
        std::fs::write(folder.path().join("secret"), b"x").unwrap();
        std::os::unix::fs::symlink("../../secret", root.join("a/out")).unwrap();
        std::os::unix::fs::symlink("b.pcap", root.join("a/in")).unwrap();
        let root = File::open(&root).unwrap();
        let open = |path: &str| open_below(&root, Path::new(path)).map(|(_, bytes)| bytes);
        assert_eq!((open("a/b.pcap"), open("a/in")), (Ok(5), Ok(5)));
        for outside in ["../secret", "/etc/passwd", "a/out"] {
            let why = open(outside).unwrap_err();
            assert_eq!(why, "cannot open it: its path leads out of the worker's --root");
        }
        for wrong in ["a", "", "a/none"] {
            assert!(open(wrong).is_err(), "{wrong}");
        }
    }
}
