//! Frames that sensors ship to a queue, and the counts of the workers that share them.
//!
//! | name | subjects | content |
//! |---|---|---|
//! | stream `fykebatches-GROUP` | `fyke.GROUP.batches.QUEUE` | signed batches; each is removed once its row is stored |
//! | stream `fyketaken-GROUP` | `fyke.GROUP.taken.QUEUE` | accounts of shippers and rows of workers; kept for 30 days |
//!
//! A message is four bytes (big-endian) with the length of a signed head, the head, and the frames. The head has the
//! digest of the frames, so a broker that is taken over cannot make or change batches. It can repeat one: a batch has
//! the number of its session and its place there, and of several rows of a batch the first one counts. Accounts and
//! rows are not signed, as those of an archive are not.

use crate::archive::NodeCounts;
use crate::broker::{BrokerError, Options, client, failed, next_row, streams};
use crate::keys::{Author, Trusted};
use crate::{Name, hex, signed};
use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, Stream};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Version of batches.
const VERSION: u32 = 1;
/// Kind of the signature.
const KIND: &[u8] = b"fyke fleet batch 1\n";
/// Most bytes of a message: what a server accepts without configuration.
pub const MAX_BYTES: usize = 1 << 20;
/// Most bytes of a signed head.
const MAX_HEAD: usize = 128 << 10;
/// Most interfaces of a batch.
const MAX_INTERFACES: usize = 1_000;
/// Most bytes of all batches that wait, and of all rows.
const MAX_WAITING: i64 = 1 << 30;
const MAX_ROWS: i64 = 4 << 30;
/// Rows are kept for this time.
const ROW_AGE: Duration = Duration::from_secs(30 * 86_400);
/// A batch is given to another worker after this time without a sign of life.
const SILENT: Duration = Duration::from_secs(10);
/// Time in which the broker takes a batch once, however often it is sent.
const ONCE: Duration = Duration::from_secs(120);

/// Number of a run of a shipper: 16 hexadecimal digits.
///
/// # Errors
/// The system gives no random numbers.
pub fn session() -> Result<String, String> {
    Ok(crate::archive::ScanId::random()?.as_str().to_owned())
}

/// An interface of the frames of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Its name at the sensor.
    pub name: String,
    /// Number of its link type.
    pub link: u16,
    /// Most bytes of a frame.
    pub snaplen: u32,
}

/// The head of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    version: u32,
    group: String,
    queue: String,
    /// The shipper.
    pub sensor: String,
    /// Its run.
    pub session: String,
    /// Place of the batch in the session, from 1.
    pub sequence: u64,
    /// Number of frames.
    pub frames: u64,
    /// Interfaces of the frames.
    pub interfaces: Vec<Origin>,
    /// SHA-256 of the frames.
    digest: String,
}

/// A batch as a worker gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Its head.
    pub head: Head,
    /// Its frames, as bytes.
    pub frames: Vec<u8>,
}

impl Batch {
    /// Reads a message, and checks its signature, its queue and its digest.
    ///
    /// # Errors
    /// It is no batch, its author is not trusted, or it is for another queue.
    pub fn read(message: &[u8], trusted: &Trusted, at: &Exchange) -> Result<Batch, String> {
        Batch::opened(message, trusted, at.group.as_str(), at.queue.as_str())
    }

    fn opened(
        message: &[u8],
        trusted: &Trusted,
        group: &str,
        queue: &str,
    ) -> Result<Batch, String> {
        let (length, rest) = message.split_first_chunk::<4>().ok_or("it has no head")?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_HEAD || length > rest.len() || message.len() > MAX_BYTES {
            return Err(format!("a head of {length} bytes in {}", message.len()));
        }
        let (head, frames) = rest.split_at(length);
        let (_, text) = signed::open(KIND, trusted, head)?;
        let head: Head = serde_json::from_str(&text)
            .map_err(|error| format!("this version does not know such a batch: {error}"))?;
        if head.version != VERSION {
            return Err(format!("it has version {}, this fyke knows {VERSION}", head.version));
        }
        if (head.group.as_str(), head.queue.as_str()) != (group, queue) {
            return Err(format!("it was signed for {}/{}", head.group, head.queue));
        }
        if head.digest != hex::of(digest(&SHA256, frames).as_ref()) {
            return Err("its frames are others than its author signed".to_owned());
        }
        Ok(Batch { head, frames: frames.to_vec() })
    }
}

/// The account of a shipper: `seen = shipped + rejected + lost`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shipped {
    /// Its name.
    pub sensor: String,
    /// Its run.
    pub session: String,
    /// Batches that the queue has.
    pub batches: u64,
    /// Frames in them.
    pub shipped: u64,
    /// Frames of its source; 0 before its end.
    pub seen: u64,
    /// Those that its filter rejected.
    pub rejected: u64,
    /// Those that were lost, by reason.
    pub lost: BTreeMap<String, u64>,
    /// True at its end.
    pub ended: bool,
}

/// The result of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakenRow {
    /// The shipper's run, and the place of the batch there.
    pub session: String,
    /// Place of the batch.
    pub sequence: u64,
    /// Its frames.
    pub frames: u64,
    /// The worker.
    pub worker: String,
    /// Number of times that the batch was given to a worker.
    pub attempt: u64,
    /// Frames of the batch by their outcome in the graph; then those of each node, in their order.
    pub nodes: Vec<NodeCounts>,
    /// The reason if it failed: its frames are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A message about a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Told {
    /// The account of a shipper so far.
    Shipped(Shipped),
    /// The result of a batch.
    Taken(TakenRow),
}

/// The queue that shippers and workers share.
#[derive(Debug, Clone)]
pub struct Exchange {
    group: Name,
    queue: Name,
    jet: Context,
    batches: Stream,
    told: Stream,
}

impl Exchange {
    /// Connects, and makes the streams if they are not there.
    ///
    /// # Errors
    /// The broker cannot be reached, does not accept us, or has no JetStream.
    pub async fn connect(
        options: &Options,
        group: Name,
        queue: Name,
        name: &str,
    ) -> Result<Exchange, BrokerError> {
        let jet = streams(&client(options, name).await?);
        let replicas = options.replicas.max(1);
        let config = Config {
            name: format!("fykebatches-{group}"),
            subjects: vec![format!("fyke.{group}.batches.*")],
            retention: RetentionPolicy::WorkQueue,
            max_bytes: MAX_WAITING,
            max_message_size: MAX_BYTES as i32,
            discard: DiscardPolicy::New,
            duplicate_window: ONCE,
            num_replicas: replicas,
            ..Config::default()
        };
        let making = "making the queue of batches (the server needs JetStream: nats-server -js)";
        let batches = jet.get_or_create_stream(config).await.map_err(failed(making))?;
        let config = Config {
            name: format!("fyketaken-{group}"),
            subjects: vec![format!("fyke.{group}.taken.*")],
            max_bytes: MAX_ROWS,
            max_age: ROW_AGE,
            max_message_size: MAX_BYTES as i32,
            discard: DiscardPolicy::New,
            allow_direct: true,
            num_replicas: replicas,
            ..Config::default()
        };
        let told = jet.get_or_create_stream(config).await.map_err(failed("making the rows"))?;
        Ok(Exchange { group, queue, jet, batches, told })
    }

    /// The message of a batch of a session, signed by its author.
    ///
    /// # Errors
    /// It is too long, or has too many interfaces.
    pub fn sealed(
        &self,
        author: &Author,
        (sensor, session, sequence): (&Name, &str, u64),
        interfaces: &[Origin],
        frames: u64,
        body: &[u8],
    ) -> Result<Vec<u8>, String> {
        if interfaces.len() > MAX_INTERFACES {
            let given = interfaces.len();
            return Err(format!("a batch of {given} interfaces; at most {MAX_INTERFACES}"));
        }
        let head = Head {
            version: VERSION,
            group: self.group.to_string(),
            queue: self.queue.to_string(),
            sensor: sensor.to_string(),
            session: session.to_owned(),
            sequence,
            frames,
            interfaces: interfaces.to_vec(),
            digest: hex::of(digest(&SHA256, body).as_ref()),
        };
        let text = serde_json::to_string(&head).map_err(|error| error.to_string())?;
        message(&signed::seal(KIND, author, text)?, body)
    }

    /// Hands a batch to the queue; the broker takes one with the same session and sequence once within two minutes.
    ///
    /// # Errors
    /// The broker does not answer, or the queue is full.
    pub async fn ship(
        &self,
        session: &str,
        sequence: u64,
        message: Vec<u8>,
    ) -> Result<(), BrokerError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{session}-{sequence}"));
        let subject = format!("fyke.{}.batches.{}", self.group, self.queue);
        let sent = self.jet.publish_with_headers(subject, headers, message.into()).await;
        sent.map_err(failed("shipping frames"))?.await.map_err(failed("shipping frames"))?;
        Ok(())
    }

    /// The consumer that all workers of the queue share.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn shared(&self) -> Result<Consumer<pull::Config>, BrokerError> {
        let config = pull::Config {
            durable_name: Some(self.queue.to_string()),
            filter_subject: format!("fyke.{}.batches.{}", self.group, self.queue),
            ack_policy: AckPolicy::Explicit,
            ack_wait: SILENT,
            max_ack_pending: 100_000,
            ..pull::Config::default()
        };
        let found = self.batches.get_or_create_consumer(self.queue.as_str(), config).await;
        found.map_err(failed("making the consumer of the queue"))
    }

    /// Number of batches that no worker has finished.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn waiting(&self) -> Result<u64, BrokerError> {
        let mut shared = self.shared().await?;
        let info = shared.info().await.map_err(failed("looking at the queue"))?;
        Ok(info.num_pending + info.num_ack_pending as u64)
    }

    /// Stores an account or a row.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn tell(&self, told: &Told) -> Result<(), BrokerError> {
        let subject = format!("fyke.{}.taken.{}", self.group, self.queue);
        let bytes = serde_json::to_vec(told).map_err(failed("writing a row"))?;
        let sent = self.jet.publish(subject, bytes.into()).await;
        sent.map_err(failed("storing a row"))?.await.map_err(failed("storing a row"))?;
        Ok(())
    }

    /// The first account or row from a sequence of the stream on, with its sequence; `None` if there is none.
    ///
    /// # Errors
    /// The broker does not answer.
    async fn told(&self, from: u64) -> Result<Option<(u64, Told)>, BrokerError> {
        let subject = format!("fyke.{}.taken.{}", self.group, self.queue);
        next_row(&self.told, &subject, from).await
    }

    /// The sums of all accounts and rows so far.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn sums(&self) -> Result<Sums, BrokerError> {
        let (mut sums, mut from) = (Sums::default(), 1);
        while let Some((sequence, told)) = self.told(from).await? {
            from = sequence + 1;
            sums.add(told);
        }
        sums.waiting = self.waiting().await?;
        Ok(sums)
    }
}

fn message(head: &[u8], body: &[u8]) -> Result<Vec<u8>, String> {
    let length = 4 + head.len() + body.len();
    if head.len() > MAX_HEAD || length > MAX_BYTES {
        return Err(format!("a batch of {length} bytes; at most {MAX_BYTES}"));
    }
    Ok([&(head.len() as u32).to_be_bytes(), head, body].concat())
}

/// The batches of a session that have a row: all up to a place, and some after it.
#[derive(Debug, Clone, Default)]
struct Known {
    up_to: u64,
    after: std::collections::BTreeSet<u64>,
}

impl Known {
    /// Adds a batch; false if it is known.
    fn insert(&mut self, sequence: u64) -> bool {
        if sequence <= self.up_to || !self.after.insert(sequence) {
            return false;
        }
        while self.after.remove(&(self.up_to + 1)) {
            self.up_to += 1;
        }
        true
    }
}

/// Batches and frames of a worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WorkerSum {
    /// Batches with a row that counts.
    pub batches: u64,
    /// Their frames.
    pub frames: u64,
    /// Batches that failed; their frames are lost.
    pub failed: u64,
    /// Batches of which another row counts, and their frames: they were delivered again.
    pub again: u64,
    /// Frames of those.
    pub again_frames: u64,
    /// Frames by their outcome, and counts of each node.
    pub nodes: Vec<NodeCounts>,
}

impl WorkerSum {
    /// Adds the row of a batch that counts.
    pub fn add(&mut self, row: &TakenRow) {
        self.batches += 1;
        self.frames += row.frames;
        self.failed += u64::from(row.failed.is_some());
        add_nodes(&mut self.nodes, &row.nodes);
    }
}

fn add_nodes(sums: &mut Vec<NodeCounts>, nodes: &[NodeCounts]) {
    for (at, node) in nodes.iter().enumerate() {
        match sums.get_mut(at) {
            Some(sum) => sum.add(node),
            None => sums.push(node.clone()),
        }
    }
}

/// The sums of a queue: what was shipped to it, what was taken from it.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// The last account of each run of a shipper.
    pub shipped: BTreeMap<String, Shipped>,
    /// The workers, by name.
    pub workers: BTreeMap<String, WorkerSum>,
    /// All of them.
    pub all: WorkerSum,
    /// Batches that no worker has finished.
    pub waiting: u64,
    known: BTreeMap<String, Known>,
}

impl Sums {
    fn add(&mut self, told: Told) {
        match told {
            Told::Shipped(account) => drop(self.shipped.insert(account.session.clone(), account)),
            Told::Taken(row) => {
                let worker = self.workers.entry(row.worker.clone()).or_default();
                match self.known.entry(row.session.clone()).or_default().insert(row.sequence) {
                    true => {
                        worker.add(&row);
                        self.all.add(&row);
                    }
                    false => {
                        for sum in [worker, &mut self.all] {
                            sum.again += 1;
                            sum.again_frames += row.frames;
                        }
                    }
                }
            }
        }
    }

    /// Frames that were shipped.
    pub fn frames_shipped(&self) -> u64 {
        self.shipped.values().map(|account| account.shipped).sum()
    }

    /// True if every frame that was shipped has an outcome, and all shippers have ended.
    pub fn is_closed(&self) -> bool {
        let batches: u64 = self.shipped.values().map(|account| account.batches).sum();
        let ended = self.shipped.values().all(|account| account.ended);
        ended
            && self.waiting == 0
            && (batches, self.frames_shipped()) == (self.all.batches, self.all.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(worker: &str, sequence: u64) -> Told {
        let node = NodeCounts { arrived: 10, passed: 4, rejected: 6, ..NodeCounts::default() };
        Told::Taken(TakenRow {
            session: "s".to_owned(),
            sequence,
            frames: 10,
            worker: worker.to_owned(),
            attempt: 1,
            nodes: vec![node],
            failed: None,
        })
    }

    #[test]
    fn of_several_rows_of_a_batch_the_first_counts() {
        let mut sums = Sums::default();
        for (worker, sequence) in [("a", 2), ("b", 1), ("b", 2), ("a", 1), ("a", 3)] {
            sums.add(row(worker, sequence));
        }
        assert_eq!((sums.all.batches, sums.all.frames, sums.all.again), (3, 30, 2));
        let [a, b] = ["a", "b"].map(|name| sums.workers[name].clone());
        assert_eq!((a.batches, a.again, b.batches, b.again, b.again_frames), (2, 1, 1, 1, 10));
        assert_eq!((sums.all.nodes[0].arrived, sums.all.nodes[0].passed), (30, 12));
        assert!(!sums.is_closed());
        let account = Shipped { batches: 3, shipped: 30, ended: true, ..Shipped::default() };
        sums.add(Told::Shipped(account));
        assert!(sums.is_closed());
    }

    #[test]
    fn a_batch_is_accepted_from_a_trusted_author_whole_and_for_its_queue_only() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name| Author::create(&folder.path().join(name), Name::new(name).unwrap());
        let (anna, eve) = (key("anna").unwrap(), key("eve").unwrap());
        let trusted = Trusted::from_text(&anna.public_line()).unwrap();
        let body = vec![7; 1_000];
        let head = Head {
            version: VERSION,
            group: "edge".to_owned(),
            queue: "dns".to_owned(),
            sensor: "oslo".to_owned(),
            session: session().unwrap(),
            sequence: 1,
            frames: 10,
            interfaces: Vec::new(),
            digest: hex::of(digest(&SHA256, &body).as_ref()),
        };
        let text = serde_json::to_string(&head).unwrap();
        let sealed = |author| message(&signed::seal(KIND, author, text.clone()).unwrap(), &body);
        let (good, bad) = (sealed(&anna).unwrap(), sealed(&eve).unwrap());
        let read = |message: &[u8], queue: &str| Batch::opened(message, &trusted, "edge", queue);
        assert_eq!(read(&good, "dns"), Ok(Batch { head, frames: body.clone() }));
        assert!(read(&bad, "dns").is_err());
        assert!(read(&good, "http").unwrap_err().contains("edge/dns"));
        let mut changed = good.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(read(&changed, "dns").unwrap_err().contains("others than its author signed"));
        for end in 0..good.len() {
            assert!(read(&good[..end], "dns").is_err(), "{end}");
        }
        assert!(message(&[0; 10], &vec![0; MAX_BYTES]).unwrap_err().contains("at most 1048576"));
    }
}
