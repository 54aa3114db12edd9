//! Jobs over capture files: a graph for each file of an archive, done by any of many workers.
//!
//! | name | subjects | content |
//! |---|---|---|
//! | stream `fykejobs-GROUP` | `fyke.GROUP.jobs.SCAN` | signed jobs; each is removed once its row is stored |
//! | bucket `fykerules-GROUP` | digest and part | rules of an IDS ([`rules`](crate::rules)); kept for 30 days |
//! | stream `fykerows-GROUP` | `fyke.GROUP.rows.SCAN` | graph and number of files, rows, its cancellation; 30 days |
//!
//! A job that a worker has not finished when it ends, is given to another one. So a file may have several rows, and the
//! first one counts: the sums are exact, whatever is killed.
//!
//! A job that a worker does not accept is left to others, with a [refusal](crate::refused).
//!
//! A job names a path below the folder that a worker offers, and a graph whose nodes open nothing but that file. It is
//! signed, as edits are, so a broker that is taken over cannot make or change jobs.

use crate::again::again;
use crate::alive::{Alive, SCANS};
use crate::broker::{
    BrokerError, Options, bucket, client, consumer_of, existing_or, failed, next_row, stream_of,
    streams,
};
use crate::keys::{Author, Trusted};
use crate::refused::{Refusal, Refusals};
use crate::rules::{Alert, Rules, RulesOf};
use crate::unaccepted::Unaccepted;
use crate::{Name, signed};
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, PurgeError, PurgeErrorKind, RetentionPolicy, Stream,
};
use async_nats::jetstream::{Context, kv};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Version of jobs.
const VERSION: u32 = 1;
/// Kind of the signature.
const KIND: &[u8] = b"fyke fleet job 1\n";
/// Most bytes of a message.
pub const MAX_BYTES: usize = 1 << 20;
/// Most bytes of a graph.
pub const MAX_GRAPH: usize = 64 << 10;
/// Most bytes of a path.
pub const MAX_PATH: usize = 4_096;
/// Most files of a scan.
pub const MAX_FILES: usize = 1_000_000;
/// Most bytes of all jobs, and of all rows.
const MAX_STREAM: i64 = 4 << 30;
/// Rows are kept for this time.
const ROW_AGE: Duration = Duration::from_secs(30 * 86_400);
/// A worker reports this often that it works on a job.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// Number of a scan: 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanId(String);

impl ScanId {
    /// A number that no other scan has.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random() -> Result<ScanId, String> {
        let mut bytes = [0; 8];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
            .map_err(|_| "the system gives no random numbers".to_owned())?;
        Ok(ScanId(crate::hex::of(&bytes)))
    }

    /// Takes a text as a number.
    ///
    /// # Errors
    /// It is none.
    pub fn new(text: &str) -> Result<ScanId, String> {
        match text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => Ok(ScanId(text.to_ascii_lowercase())),
            false => Err(format!("{text:?} is no number of a scan: 16 hexadecimal digits")),
        }
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A graph for a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Version of the message, [`VERSION`].
    version: u32,
    /// Its group, so that it is not valid for another one.
    group: String,
    /// Its scan.
    pub scan: ScanId,
    /// Place of the file in the list of the scan, from 0.
    pub index: u32,
    /// Path of the file below the folder of the worker.
    pub path: String,
    /// The graph; its source is `(pcapin, -)`, the file.
    pub graph: String,
    /// Rules that judge the frames that the graph passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<RulesOf>,
}

impl Job {
    /// A job of a scan.
    pub fn new(group: &Name, scan: &ScanId, index: u32, path: &str, graph: &str) -> Job {
        let (group, path, graph) = (group.to_string(), path.to_owned(), graph.to_owned());
        Job { version: VERSION, group, scan: scan.clone(), index, path, graph, rules: None }
    }

    /// The message with the signature of its author.
    ///
    /// # Errors
    /// It is too long.
    pub fn signed(&self, author: &Author) -> Result<Vec<u8>, String> {
        self.check_lengths()?;
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        signed::seal(KIND, author, text)
    }

    fn check_lengths(&self) -> Result<(), String> {
        for (what, length, limit) in
            [("graph", self.graph.len(), MAX_GRAPH), ("path", self.path.len(), MAX_PATH)]
        {
            if length > limit {
                return Err(format!("the {what} has {length} bytes; at most {limit}"));
            }
        }
        Ok(())
    }

    /// Reads a message, and checks its signature and its group.
    ///
    /// # Errors
    /// The message is no job, its author is not trusted, or it is for another group.
    pub fn read(message: &[u8], trusted: &Trusted, group: &Name) -> Result<Job, Unaccepted> {
        if message.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; at most {MAX_BYTES}", message.len()).into());
        }
        let (_, text) = signed::open(KIND, trusted, message)?;
        let job: Job = serde_json::from_str(&text)
            .map_err(|error| format!("this version does not know such a job: {error}"))?;
        if job.version != VERSION {
            return Err(format!("it has version {}, this fyke knows {VERSION}", job.version).into());
        }
        if job.group != group.as_str() {
            return Err(format!("it was signed for the group {:?}", job.group).into());
        }
        job.check_lengths()?;
        job.rules.as_ref().map_or(Ok(()), RulesOf::check)?;
        Ok(job)
    }
}

/// The exact counts of a node: arrived = passed + rejected + taken + lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Its tag, or its class.
    pub node: String,
    /// Frames that came to it.
    pub arrived: u64,
    /// Frames that it passed.
    pub passed: u64,
    /// Frames that it rejected.
    pub rejected: u64,
    /// Frames that it took.
    pub taken: u64,
    /// Frames that it lost.
    pub lost: u64,
    /// Its other counters.
    #[serde(default)]
    pub counters: BTreeMap<String, f64>,
    /// Those of them that are states, such as a number of rules. A sum has the value that they have in all of its
    /// parts; if it differs, the sum has only the name here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub states: BTreeSet<String>,
}

impl NodeCounts {
    /// Adds the counts of the same node over another file.
    pub fn add(&mut self, other: &NodeCounts) {
        self.arrived += other.arrived;
        self.passed += other.passed;
        self.rejected += other.rejected;
        self.taken += other.taken;
        self.lost += other.lost;
        for (name, value) in &other.counters {
            if !other.states.contains(name) {
                *self.counters.entry(name.clone()).or_default() += value;
            } else if self.states.insert(name.clone()) {
                self.counters.insert(name.clone(), *value);
            } else if self.counters.get(name) != Some(value) {
                self.counters.remove(name);
            }
        }
        // One that an earlier sum lacks, because its parts differ.
        for name in other.states.iter().filter(|name| !other.counters.contains_key(*name)) {
            self.states.insert(name.clone());
            self.counters.remove(name);
        }
    }
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Place of the file in the list.
    pub index: u32,
    /// Its path.
    pub path: String,
    /// The worker.
    pub worker: String,
    /// Number of times that the job was given to a worker.
    pub attempt: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Counts of the nodes of the graph, in their order; of a damaged file, over the frames before the damage.
    pub nodes: Vec<NodeCounts>,
    /// Alerts of the rules with some, the most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<Alert>,
    /// Alerts of further rules, for which a row has no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_alerts: u64,
    /// The reason if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A message under the subject of a scan's rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Stored {
    /// The first message: what the scan is.
    Scan {
        /// The graph.
        graph: String,
        /// Number of files.
        files: u32,
        /// True if rules judge them.
        #[serde(default)]
        rules: bool,
    },
    /// A result.
    Row(Row),
    /// The jobs that no worker had begun were removed.
    Cancelled,
}

/// The queue of a group's jobs and their rows.
#[derive(Debug, Clone)]
pub struct Queue {
    group: Name,
    jet: Context,
    jobs: Stream,
    rows: Stream,
    rules: kv::Store,
    refusals: Refusals,
    alive: Alive,
}

impl Queue {
    /// Connects, and makes the streams if they are not there.
    ///
    /// # Errors
    /// The broker cannot be reached, does not accept us, or has no JetStream.
    pub async fn connect(options: &Options, group: Name, name: &str) -> Result<Queue, BrokerError> {
        let jet = streams(&client(options, name).await?);
        Queue::over(jet, options.replicas.max(1), group).await
    }

    /// Connects to the jobs of a group that are there already, and makes nothing.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), or the group has no jobs.
    pub async fn open(options: &Options, group: Name, name: &str) -> Result<Queue, BrokerError> {
        let jet = streams(&client(options, name).await?);
        // The others were made with it.
        existing_or(&jet, format!("fykejobs-{group}"), || BrokerError::NoQueue {
            group: group.clone(),
            what: "scans",
            maker: "scan",
        })
        .await?;
        Queue::over(jet, options.replicas.max(1), group).await
    }

    async fn over(jet: Context, replicas: usize, group: Name) -> Result<Queue, BrokerError> {
        let config = Config {
            name: format!("fykejobs-{group}"),
            subjects: vec![format!("fyke.{group}.jobs.*")],
            retention: RetentionPolicy::WorkQueue,
            max_bytes: MAX_STREAM,
            max_message_size: MAX_BYTES as i32 + 1024,
            discard: DiscardPolicy::New,
            num_replicas: replicas,
            ..Config::default()
        };
        let jobs = stream_of(&jet, config, "making the queue of jobs").await?;
        let config = Config {
            name: format!("fykerows-{group}"),
            subjects: vec![format!("fyke.{group}.rows.*")],
            max_bytes: MAX_STREAM,
            max_age: ROW_AGE,
            max_message_size: MAX_BYTES as i32 + 1024,
            discard: DiscardPolicy::New,
            allow_direct: true,
            num_replicas: replicas,
            ..Config::default()
        };
        let rows = stream_of(&jet, config, "making the rows").await?;
        let config = Config { max_bytes: MAX_STREAM, max_age: ROW_AGE, ..Config::default() };
        let name = format!("fykerules-{group}");
        let rules = bucket(&jet, name, replicas, config, "making the bucket of rules").await?;
        let refusals = Refusals::connect(&jet, &group, "jobs", replicas).await?;
        let alive = Alive::connect(&jet, &group, replicas).await?;
        Ok(Queue { group, jet, jobs, rows, rules, refusals, alive })
    }

    /// The group.
    pub fn group(&self) -> &Name {
        &self.group
    }

    /// The refusals of its jobs.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Tells that a worker does a job of a scan.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn works(&self, scan: &ScanId) -> Result<(), BrokerError> {
        self.alive.say(SCANS, scan.as_str()).await
    }

    /// True if a worker has done a part of a job of a scan in the last 30 s.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn is_worked_on(&self, scan: &ScanId) -> Result<bool, BrokerError> {
        self.alive.is_there(SCANS, scan.as_str()).await
    }

    /// The first refusal of a job of a scan from a sequence on, with its sequence; `None` if there is none yet.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn refusal(
        &self,
        scan: &ScanId,
        from: u64,
    ) -> Result<Option<(u64, Refusal)>, BrokerError> {
        self.refusals.next(scan.as_str(), from).await
    }

    /// Adds a job; a job that was added twice is done twice, which changes no sum.
    ///
    /// # Errors
    /// The broker does not answer, or the queue is full.
    pub async fn add_job(&self, scan: &ScanId, job: Vec<u8>) -> Result<(), BrokerError> {
        let subject = format!("fyke.{}.jobs.{}", self.group, scan.as_str());
        let sent = self.jet.publish(subject, job.into()).await;
        sent.map_err(failed("adding a job"))?.await.map_err(failed("adding a job"))?;
        Ok(())
    }

    /// Stores rules for jobs.
    ///
    /// # Errors
    /// The broker does not take them.
    pub async fn add_rules(&self, rules: &Rules) -> Result<(), BrokerError> {
        for (key, part) in rules.parts() {
            let put = self.rules.put(&key, part.to_vec().into()).await;
            put.map_err(failed("storing the rules"))?;
        }
        Ok(())
    }

    /// Reads the rules of a job.
    ///
    /// # Errors
    /// The broker does not answer, or does not have the rules that the job was signed with.
    pub(crate) async fn rules(&self, of: &RulesOf) -> Result<Rules, BrokerError> {
        let what = "reading the rules of a job";
        let mut parts = Vec::new();
        for key in of.keys() {
            let part = self.rules.get(&key).await.map_err(failed(what))?;
            let missing = || failed(what)("a part is missing");
            parts.push(Vec::from(part.ok_or_else(missing)?));
        }
        of.joined(parts)
    }

    /// Removes the jobs of a scan that no worker has begun, and tells its readers; returns the number of messages.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn cancel(&self, scan: &ScanId) -> Result<u64, BrokerError> {
        let what = "removing jobs";
        let subject = format!("fyke.{}.jobs.{}", self.group, scan.as_str());
        let is_silence = |error: &PurgeError| {
            matches!(error.kind(), PurgeErrorKind::TimedOut | PurgeErrorKind::Request)
        };
        let purge = || self.jobs.purge().filter(&subject).into_future();
        let purged = again(what, is_silence, purge).await?.map_err(failed(what))?;
        self.store(scan, &Stored::Cancelled).await?;
        Ok(purged.purged)
    }

    /// The consumer that all workers share.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn jobs(&self) -> Result<Consumer<pull::Config>, BrokerError> {
        consumer_of(&self.jobs, "workers", pull::Config::default()).await
    }

    /// Stores something of a scan.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn store(&self, scan: &ScanId, what: &Stored) -> Result<(), BrokerError> {
        let subject = format!("fyke.{}.rows.{}", self.group, scan.as_str());
        let bytes = serde_json::to_vec(what).map_err(failed("writing a row"))?;
        let sent = self.jet.publish(subject, bytes.into()).await;
        sent.map_err(failed("storing a row"))?.await.map_err(failed("storing a row"))?;
        Ok(())
    }

    /// The first message of a scan from a sequence on, with its sequence; `None` if there is none yet.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn stored(
        &self,
        scan: &ScanId,
        from: u64,
    ) -> Result<Option<(u64, Stored)>, BrokerError> {
        let subject = format!("fyke.{}.rows.{}", self.group, scan.as_str());
        next_row(&self.rows, &subject, from).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_and_a_state_stays_while_all_parts_have_it() {
        let part = |alerts: f64, rules: f64| NodeCounts {
            arrived: 1,
            counters: [("alerts", alerts), ("rules", rules)].map(|(it, n)| (it.into(), n)).into(),
            states: ["rules".to_owned()].into(),
            ..NodeCounts::default()
        };
        let mut sum = part(3.0, 2.0);
        sum.add(&part(4.0, 2.0));
        assert_eq!(sum, NodeCounts { arrived: 2, ..part(7.0, 2.0) });
        let same = sum.clone();
        sum.add(&part(0.0, 5.0));
        sum.add(&part(0.0, 5.0));
        let alerts = BTreeMap::from([("alerts".to_owned(), 7.0)]);
        assert_eq!((&sum.counters, sum.arrived), (&alerts, 4));
        // In either order.
        let mut other = same;
        other.add(&sum);
        assert_eq!(other.counters.keys().collect::<Vec<_>>(), ["alerts"]);
        let mut none = NodeCounts::default();
        none.add(&part(1.0, 2.0));
        assert_eq!(none, part(1.0, 2.0));
    }

    #[test]
    fn a_job_is_accepted_from_a_trusted_author_in_its_group_only() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name| Author::create(&folder.path().join(name), Name::new(name).unwrap());
        let (anna, eve) = (key("anna").unwrap(), key("eve").unwrap());
        let trusted = Trusted::from_text(&anna.public_line()).unwrap();
        let (edge, core) = (Name::new("edge").unwrap(), Name::new("core").unwrap());
        let scan = ScanId::random().unwrap();
        assert_eq!(ScanId::new(scan.as_str()), Ok(scan.clone()));
        let job = Job::new(&edge, &scan, 3, "a/b.pcap", "(pcapin, -) > (packetcount)");
        let message = job.signed(&anna).unwrap();
        let read = |message: &[u8], group| Job::read(message, &trusted, group);
        assert_eq!(read(&message, &edge).unwrap(), job);
        assert!(read(&message, &core).unwrap_err().why.contains("\"edge\""));
        let changed = String::from_utf8(message.clone()).unwrap().replace("b.pcap", "c.pcap");
        assert!(read(changed.as_bytes(), &edge).unwrap_err().why.contains("not that of anna"));
        let foreign = read(&job.signed(&eve).unwrap(), &edge).unwrap_err();
        assert!(foreign.why.contains("not a trusted") && foreign.for_key, "{foreign}");
        for end in 0..message.len() {
            assert!(read(&message[..end], &edge).is_err());
        }
        let long = Job { path: "x".repeat(MAX_PATH + 1), ..job };
        assert!(long.signed(&anna).unwrap_err().contains("4097 bytes"));
        for wrong in ["", "0123", "0123456789abcdeg", "0123456789abcdef0"] {
            assert!(ScanId::new(wrong).is_err(), "{wrong}");
        }
    }
}
