//! Frames that sensors ship to a queue, and the counts of the workers that share them.
//!
//! | name | subjects | content |
//! |---|---|---|
//! | stream `fykebatches-GROUP` | `fyke.GROUP.batches.QUEUE.SESSION` | signed batches, until their rows are stored |
//! | stream `fyketaken-GROUP` | `fyke.GROUP.taken.QUEUE` | accounts of shippers and rows of workers; kept for 30 days |
//!
//! A message is four bytes (big-endian) with the length of a signed head, the head, and the frames. The head has the
//! digest of the frames, so a broker that is taken over cannot make or change batches. It can repeat one: a batch has
//! the number of its session and its place there, and of several rows of a batch the first one counts. Accounts and
//! rows are not signed, as those of an archive are not.
//!
//! A head also has the number of frames in the batches before it. So the last batch of a shipper that was killed tells
//! how many frames it had shipped. A batch that a worker does not accept is left to others, with a
//! [refusal](crate::refused).

use crate::again::again;
use crate::alive::{Alive, SESSIONS};
use crate::archive::NodeCounts;
use crate::broker::{
    BrokerError, Options, client, consumer_of, existing_or, failed, is_silent, next_row, stream_of,
    streams,
};
use crate::keys::{Author, Trusted};
use crate::refused::{Claim, Refusals};
use crate::sums::Sums;
use crate::unaccepted::Unaccepted;
use crate::{Name, hex, signed};
use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::context::{ConsumerInfoError, ConsumerInfoErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, LastRawMessageError, LastRawMessageErrorKind, RetentionPolicy, Stream,
};
use futures_util::TryStreamExt;
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
    /// Frames of the batches of the session before it.
    pub before: u64,
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
    pub fn read(message: &[u8], trusted: &Trusted, at: &Exchange) -> Result<Batch, Unaccepted> {
        Batch::opened(message, trusted, at.group.as_str(), at.queue.as_str())
    }

    /// The sender that a message names.
    pub(crate) fn claim(message: &[u8]) -> Claim {
        head_of(message).map_or(Claim::Foreign, |(head, _)| Claim::of(head))
    }

    /// The head of a batch, unchecked.
    fn peek(message: &[u8]) -> Option<Head> {
        let (head, _) = head_of(message).ok()?;
        serde_json::from_str(&signed::unchecked(head)?).ok()
    }

    fn opened(
        message: &[u8],
        trusted: &Trusted,
        group: &str,
        queue: &str,
    ) -> Result<Batch, Unaccepted> {
        let (head, frames) = head_of(message)?;
        let (_, text) = signed::open(KIND, trusted, head)?;
        let head: Head = serde_json::from_str(&text)
            .map_err(|error| format!("this version does not know such a batch: {error}"))?;
        if head.version != VERSION {
            return Err(
                format!("it has version {}, this fyke knows {VERSION}", head.version).into()
            );
        }
        if (head.group.as_str(), head.queue.as_str()) != (group, queue) {
            return Err(format!("it was signed for {}/{}", head.group, head.queue).into());
        }
        if head.digest != hex::of(digest(&SHA256, frames).as_ref()) {
            return Err("its frames are others than its author signed".into());
        }
        Ok(Batch { head, frames: frames.to_vec() })
    }
}

/// The signed head of a message, and its frames.
fn head_of(message: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let (length, rest) = message.split_first_chunk::<4>().ok_or("it has no head")?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_HEAD || length > rest.len() || message.len() > MAX_BYTES {
        return Err(format!("a head of {length} bytes in {}", message.len()));
    }
    Ok(rest.split_at(length))
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
    /// Frames of its source; before its end 0, as the next two are.
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
    /// Frames of the batches of the session before it.
    #[serde(default)]
    pub before: u64,
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
    refusals: Refusals,
    alive: Alive,
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
        Exchange::over(jet, options.replicas.max(1), group, queue).await
    }

    /// Connects to the queues of a group that are there already, and makes nothing.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), or the group has no queue.
    pub async fn open(
        options: &Options,
        group: Name,
        queue: Name,
        name: &str,
    ) -> Result<Exchange, BrokerError> {
        let jet = streams(&client(options, name).await?);
        // The others were made with it.
        existing_or(&jet, format!("fykebatches-{group}"), || BrokerError::NoQueue {
            group: group.clone(),
            what: "queues",
            maker: "ship",
        })
        .await?;
        Exchange::over(jet, options.replicas.max(1), group, queue).await
    }

    async fn over(
        jet: Context,
        replicas: usize,
        group: Name,
        queue: Name,
    ) -> Result<Exchange, BrokerError> {
        let config = Config {
            name: format!("fykebatches-{group}"),
            subjects: vec![format!("fyke.{group}.batches.*.*")],
            retention: RetentionPolicy::WorkQueue,
            max_bytes: MAX_WAITING,
            max_message_size: MAX_BYTES as i32,
            discard: DiscardPolicy::New,
            duplicate_window: ONCE,
            num_replicas: replicas,
            ..Config::default()
        };
        let batches = stream_of(&jet, config, "making the queue of batches").await?;
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
        let told = stream_of(&jet, config, "making the rows").await?;
        let refusals = Refusals::connect(&jet, &group, "batches", replicas).await?;
        let alive = Alive::connect(&jet, &group, replicas).await?;
        Ok(Exchange { group, queue, jet, batches, told, refusals, alive })
    }

    /// The queue.
    pub(crate) fn queue(&self) -> &Name {
        &self.queue
    }

    /// The refusals of its batches, and of those of the group's other queues.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Tells that a shipper runs; to be repeated every few seconds.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn live(&self, session: &str) -> Result<(), BrokerError> {
        self.alive.say(SESSIONS, session).await
    }

    /// The message of a batch of a session, signed by its author; `before` it come this many frames.
    ///
    /// # Errors
    /// It is too long, or has too many interfaces.
    pub fn sealed(
        &self,
        author: &Author,
        (sensor, session, sequence): (&Name, &str, u64),
        interfaces: &[Origin],
        [before, frames]: [u64; 2],
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
            before,
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
        let subject = format!("fyke.{}.batches.{}.{session}", self.group, self.queue);
        let sent = self.jet.publish_with_headers(subject, headers, message.into()).await;
        sent.map_err(failed("shipping frames"))?.await.map_err(failed("shipping frames"))?;
        Ok(())
    }

    /// The consumer that all workers of the queue share.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn shared(&self) -> Result<Consumer<pull::Config>, BrokerError> {
        let filter_subject = format!("fyke.{}.batches.{}.*", self.group, self.queue);
        let config = pull::Config { filter_subject, ..pull::Config::default() };
        consumer_of(&self.batches, self.queue.as_str(), config).await
    }

    /// Number of batches that no worker has finished.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn waiting(&self) -> Result<u64, BrokerError> {
        let what = "looking at the queue";
        let is_silence = |error: &ConsumerInfoError| {
            matches!(
                error.kind(),
                ConsumerInfoErrorKind::TimedOut | ConsumerInfoErrorKind::NoResponders
            )
        };
        let request = || self.batches.consumer_info(self.queue.as_str());
        match again(what, is_silence, request).await? {
            Ok(info) => return Ok(info.num_pending + info.num_ack_pending as u64),
            Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {}
            Err(error) => return Err(failed(what)(error)),
        }
        // No worker has read from the queue yet, so every batch waits.
        let subject = format!("fyke.{}.batches.{}.*", self.group, self.queue);
        let count = || async {
            let sessions = self.batches.info_with_subjects(&subject).await?;
            sessions.try_fold(0, async |sum, (_, count)| Ok(sum + count as u64)).await
        };
        again(what, is_silent, count).await?.map_err(failed(what))
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

    /// The head of the last batch of a session that waits.
    async fn last_waiting(&self, session: &str) -> Result<Option<Head>, BrokerError> {
        let what = "looking at the last batch of a shipper";
        let subject = format!("fyke.{}.batches.{}.{session}", self.group, self.queue);
        let is_silence =
            |error: &LastRawMessageError| error.kind() == LastRawMessageErrorKind::Other;
        let request = || self.batches.get_last_raw_message_by_subject(&subject);
        match again(what, is_silence, request).await? {
            Ok(message) => Ok(Batch::peek(&message.payload)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(failed(what)(error)),
        }
    }

    /// The sums of all accounts, rows and refusals so far.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn sums(&self) -> Result<Sums, BrokerError> {
        let (mut sums, mut from) = (Sums::default(), 1);
        // The second time the rows of batches that were finished before the look at those that wait.
        for is_last in [false, true] {
            while let Some((sequence, told)) = self.told(from).await? {
                from = sequence + 1;
                sums.add(told);
            }
            if !is_last {
                sums.waiting = self.waiting().await?;
            }
        }
        for session in sums.not_ended() {
            if !self.alive.is_there(SESSIONS, &session).await? {
                let last = self.last_waiting(&session).await?;
                sums.add_silent(&session, last.as_ref());
            }
        }
        let mut from = 1;
        while let Some((sequence, refusal)) = self.refusals.next(self.queue.as_str(), from).await? {
            from = sequence + 1;
            sums.add_refusal(refusal);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
            before: 20,
            interfaces: Vec::new(),
            digest: hex::of(digest(&SHA256, &body).as_ref()),
        };
        let text = serde_json::to_string(&head).unwrap();
        let sealed = |author| message(&signed::seal(KIND, author, text.clone()).unwrap(), &body);
        let (good, bad) = (sealed(&anna).unwrap(), sealed(&eve).unwrap());
        let read = |message: &[u8], queue: &str| Batch::opened(message, &trusted, "edge", queue);
        assert_eq!(Batch::peek(&bad).as_ref(), Some(&head));
        assert_eq!(Batch::claim(&bad), Claim::Author("eve".to_owned()));
        assert_eq!(Batch::claim(b"GET / HTTP/1.1"), Claim::Foreign);
        assert_eq!(read(&good, "dns"), Ok(Batch { head, frames: body.clone() }));
        assert!(read(&bad, "dns").is_err());
        assert!(read(&good, "http").unwrap_err().why.contains("edge/dns"));
        let mut changed = good.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(read(&changed, "dns").unwrap_err().why.contains("others than its author signed"));
        for end in 0..good.len() {
            assert!(read(&good[..end], "dns").is_err(), "{end}");
        }
        assert!(message(&[0; 10], &vec![0; MAX_BYTES]).unwrap_err().contains("at most 1048576"));
    }
}
