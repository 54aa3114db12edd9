//! Refusals: jobs and batches that a worker does not accept and gives back for others.
//!
//! | name | subjects | content |
//! |---|---|---|
//! | stream `fykerefused-GROUP` | `fyke.GROUP.refused.jobs.SCAN.MESSAGE.WORKER` | refusal of a job; kept for 30 days |
//! | | `fyke.GROUP.refused.batches.QUEUE.MESSAGE.WORKER` | refusal of a batch |
//!
//! A subject keeps its last message only: one refusal for each message and worker, with the number of deliveries that
//! the worker refused. MESSAGE is the sequence of the job or batch in its stream, WORKER a digest of the worker's name.
//!
//! A refused message waits longer with each refusal, and the worker pauses and asks for no message in advance until it
//! accepts one. So a worker without the key of an author does not take the messages of that author from those that have
//! the key, and its requests to the broker are few.
//!
//! The author of a refusal is the one that the message names. It is not checked.

use crate::Name;
use crate::broker::{BrokerError, failed, next_row, stream_of};
use crate::hex;
use crate::unaccepted::Unaccepted;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Stream};
use async_nats::jetstream::{AckKind, Context, Message};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes of all refusals of a group.
const MAX_BYTES: i64 = 256 << 20;
/// Refusals are kept for this time, as rows are.
const AGE: Duration = Duration::from_secs(30 * 86_400);
/// Shortest and longest wait of a refused message while a worker refuses few.
const WAIT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Share of the wait for each message that a worker refuses: so they all come back at most 100 times a second.
const EACH: Duration = Duration::from_millis(10);
/// A message that does not come back for this time after its wait has been taken by another worker.
const GONE: Duration = Duration::from_secs(60);
/// Most refused messages that a worker remembers, and most pairs of author and scan that it has named.
const MAX_KNOWN: usize = 100_000;

/// A refusal of a job or a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The worker.
    pub worker: String,
    /// The author that the message names; empty if it names none.
    pub author: String,
    /// Sequence of the message in its stream.
    pub message: u64,
    /// Deliveries of it that the worker refused.
    pub deliveries: u64,
    /// The reason.
    pub reason: String,
    /// True if the worker would accept it with the key of its author.
    #[serde(default)]
    pub for_key: bool,
    /// True if it was no message of fyke, and has been removed from the queue.
    #[serde(default)]
    pub ended: bool,
}

impl Refusal {
    /// True for the refusal of another message by the same worker, of the same author and for the same reason.
    pub fn is_like(&self, other: &Refusal) -> bool {
        let [one, two] = [self, other].map(|it| (&it.worker, &it.author, &it.reason));
        one == two
    }
}

/// The sender of a message that is not accepted, as the message names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// An author, or no name; a worker with other keys, or of a later version, may accept the message.
    Author(String),
    /// No message of fyke.
    Foreign,
}

impl Claim {
    /// Reads the name of the author of a signed text, without a check.
    pub(crate) fn of(signed: &[u8]) -> Claim {
        match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(signed) {
            Ok(fields) => {
                let author = fields.get("author").and_then(|author| author.as_str());
                let author = author.filter(|author| Name::new(author).is_ok());
                Claim::Author(author.unwrap_or_default().to_owned())
            }
            Err(_) => Claim::Foreign,
        }
    }
}

/// The refusals of the jobs or of the batches of a group.
#[derive(Debug, Clone)]
pub(crate) struct Refusals {
    jet: Context,
    stream: Stream,
    prefix: String,
}

impl Refusals {
    /// Makes the stream if it is not there; `kind` is `jobs` or `batches`.
    pub(crate) async fn connect(
        jet: &Context,
        group: &Name,
        kind: &str,
        replicas: usize,
    ) -> Result<Refusals, BrokerError> {
        let config = Config {
            name: format!("fykerefused-{group}"),
            subjects: vec![format!("fyke.{group}.refused.>")],
            max_bytes: MAX_BYTES,
            max_age: AGE,
            max_messages_per_subject: 1,
            discard: DiscardPolicy::Old,
            allow_direct: true,
            num_replicas: replicas,
            ..Config::default()
        };
        let stream = stream_of(jet, config, "making the stream of refusals").await?;
        Ok(Refusals { jet: jet.clone(), stream, prefix: format!("fyke.{group}.refused.{kind}") })
    }

    fn subject(&self, of: &str, message: u64, worker: &str) -> String {
        let worker = hex::of(&digest(&SHA256, worker.as_bytes()).as_ref()[..8]);
        format!("{}.{of}.{message}.{worker}", self.prefix)
    }

    async fn put(&self, of: &str, refusal: &Refusal) -> Result<(), BrokerError> {
        let what = "storing a refusal";
        let subject = self.subject(of, refusal.message, &refusal.worker);
        let bytes = serde_json::to_vec(refusal).map_err(failed(what))?;
        let sent = self.jet.publish(subject, bytes.into()).await;
        sent.map_err(failed(what))?.await.map(drop).map_err(failed(what))
    }

    /// The deliveries of a message that this worker has refused.
    async fn by(&self, of: &str, message: u64, worker: &str) -> Result<u64, BrokerError> {
        let found = next_row(&self.stream, &self.subject(of, message, worker), 1).await?;
        Ok(found.map_or(0, |(_, refusal): (u64, Refusal)| refusal.deliveries))
    }

    /// The deliveries of a message that workers have refused.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn deliveries(&self, of: &str, message: u64) -> Result<u64, BrokerError> {
        let subject = format!("{}.{of}.{message}.*", self.prefix);
        let (mut from, mut sum) = (1, 0);
        while let Some((sequence, refusal)) =
            next_row::<Refusal>(&self.stream, &subject, from).await?
        {
            (from, sum) = (sequence + 1, sum + refusal.deliveries);
        }
        Ok(sum)
    }

    /// The first refusal of a scan or queue from a sequence on, with its sequence.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn next(
        &self,
        of: &str,
        from: u64,
    ) -> Result<Option<(u64, Refusal)>, BrokerError> {
        next_row(&self.stream, &format!("{}.{of}.>", self.prefix), from).await
    }

    /// Removes the refusals of a message that a worker has done.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn forget(&self, of: &str, message: u64) -> Result<(), BrokerError> {
        let subject = format!("{}.{of}.{message}.*", self.prefix);
        let purged = self.stream.purge().filter(subject).await;
        purged.map(drop).map_err(failed("removing refusals"))
    }
}

/// A message that a worker refuses.
#[derive(Debug, Clone, Copy)]
struct Known {
    deliveries: u64,
    /// The time at which it may come back.
    back: Instant,
}

/// The messages that a worker refuses, and the authors that it has named.
#[derive(Debug, Default)]
pub struct Refuser(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    messages: BTreeMap<u64, Known>,
    named: BTreeSet<(String, String)>,
    looked: Option<Instant>,
}

impl Memory {
    /// Counts a refusal; returns the refused deliveries of the message, and its wait.
    fn count(&mut self, message: u64, before: Option<u64>, now: Instant) -> (u64, Duration) {
        if self.looked.is_none_or(|looked| now.duration_since(looked) >= GONE) {
            self.looked = Some(now);
            self.messages.retain(|_, known| known.back + GONE > now);
        }
        if self.messages.len() >= MAX_KNOWN && !self.messages.contains_key(&message) {
            self.messages.pop_first();
        }
        let known = self.messages.entry(message);
        let known = known.or_insert(Known { deliveries: before.unwrap_or(0), back: now });
        known.deliveries += 1;
        let deliveries = known.deliveries;
        let of_all = EACH * self.messages.len() as u32;
        let wait = wait(deliveries).max(of_all);
        if let Some(known) = self.messages.get_mut(&message) {
            known.back = now + wait;
        }
        (deliveries, wait)
    }
}

/// The wait after a number of refusals of a message: twice as long after each.
fn wait(deliveries: u64) -> Duration {
    let doubled = deliveries.saturating_sub(1).min(16) as u32;
    (WAIT[0] * 2_u32.pow(doubled)).min(WAIT[1])
}

impl Refuser {
    /// Stores the refusal of a message, and gives it back after a wait; what is no message of fyke is removed.
    pub(crate) async fn refuse(
        &self,
        at: &Refusals,
        (of, worker): (&str, &str),
        message: &Message,
        (claim, not): (Claim, Unaccepted),
        note: &dyn Fn(&str),
    ) {
        let (sequence, delivered) = place(message);
        let ended = claim == Claim::Foreign;
        let author = match claim {
            Claim::Author(author) => author,
            Claim::Foreign => String::new(),
        };
        let is_known = self.memory().messages.contains_key(&sequence);
        let before = match delivered > 1 && !is_known {
            // If the broker does not answer, a worker that is started again counts anew.
            true => at.by(of, sequence, worker).await.ok(),
            false => None,
        };
        let (deliveries, wait) = self.memory().count(sequence, before, Instant::now());
        let Unaccepted { why: reason, for_key } = not;
        let worker = worker.to_owned();
        let refusal =
            Refusal { worker, author, message: sequence, deliveries, reason, for_key, ended };
        if self.is_new(of, &refusal.author) {
            note(&line(of, &refusal));
        }
        if let Err(error) = at.put(of, &refusal).await {
            note(&error.to_string());
            // Without its row a message is not ended; the row of the next refusal counts this one, too.
            let _comes_again_anyhow = message.ack_with(AckKind::Nak(Some(wait))).await;
            return;
        }
        let kind = if ended { AckKind::Term } else { AckKind::Nak(Some(wait)) };
        // If this is lost, it comes again and is refused again.
        let _ignored = message.ack_with(kind).await;
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if no refusal for this author and scan or queue has been named.
    fn is_new(&self, of: &str, author: &str) -> bool {
        let mut memory = self.memory();
        memory.named.len() < MAX_KNOWN && memory.named.insert((of.to_owned(), author.to_owned()))
    }
}

/// The line of a worker about the messages of an author.
fn line(of: &str, refusal: &Refusal) -> String {
    let Refusal { author, reason, for_key, ended, .. } = refusal;
    match (ended, for_key) {
        (true, _) => format!("{of}: removed a message that is not of fyke: {reason}"),
        (false, false) => format!("{of}: refused, and left to other workers: {reason}"),
        (false, true) => format!(
            "{of}: refused, and left to other workers: {reason}; to accept what {author} sends, add the public line of \
             {author} to the --trust file, and start this worker again"
        ),
    }
}

/// The sequence of a message in its stream, and the number of its deliveries.
pub(crate) fn place(message: &Message) -> (u64, u64) {
    message.info().map_or((0, 1), |info| (info.stream_sequence, info.delivered.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_waits_longer_with_each_refusal_and_with_many_others() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let waits: Vec<u64> = (0..7).map(|_| memory.count(1, None, now).1.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        // A worker that was started again counts on.
        assert_eq!(memory.count(2, Some(4), now), (5, Duration::from_secs(16)));
        for message in 3..=5_000 {
            memory.count(message, None, now);
        }
        assert_eq!(memory.count(5_000, None, now).1, Duration::from_secs(50));
        // Those that did not come back have been taken by others.
        let later = now + Duration::from_secs(200);
        assert_eq!(memory.count(1, None, later), (1, Duration::from_secs(1)));
        assert_eq!(memory.messages.len(), 1);
    }

    #[test]
    fn only_what_is_no_message_is_foreign() {
        let author = |name: &str| Claim::Author(name.to_owned());
        assert_eq!(Claim::of(br#"{"author":"eve","edit":"x","signature":"00"}"#), author("eve"));
        // A later version may have other fields.
        assert_eq!(Claim::of(br#"{"author":"eve","version":9}"#), author("eve"));
        assert_eq!(Claim::of(br#"{"author":"e v e"}"#), author(""));
        assert_eq!(Claim::of(b"{}"), author(""));
        for foreign in [&b""[..], b"GET / HTTP/1.1", b"[1]", b"{\"author\":\"eve\""] {
            assert_eq!(Claim::of(foreign), Claim::Foreign);
        }
    }
}
