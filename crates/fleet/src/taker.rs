//! A worker of a queue: evaluates batches that sensors have shipped, several at once.
//!
//! A batch is acknowledged after its row is stored. So a batch of a worker that is killed comes to another one. If only
//! the acknowledgement was lost, there may be two rows, of which the first one counts.

use crate::archive::{NodeCounts, SIGN_OF_LIFE};
use crate::broker::BrokerError;
use crate::exchange::{Batch, Exchange, TakenRow, Told};
use crate::keys::Trusted;
use crate::pull::{self, PAUSE};
use crate::refused::{self, Refuser};
use crate::sums::WorkerSum;
use crate::unless_stopped;
use async_nats::jetstream::consumer::Consumer;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::{AckKind, Message};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// Number of workers that may begin a batch without finishing it; then its frames are lost. Refusals do not
/// count.
const ATTEMPTS: u64 = 5;

/// Evaluates batches.
pub trait Evaluate: Send + Sync + 'static {
    /// Frames of a batch by their outcome, and the counts of each node.
    ///
    /// # Errors
    /// The bytes are no frames, or the graph fails; then no frame of the batch counts.
    fn evaluate(&self, batch: &Batch) -> Result<Vec<NodeCounts>, String>;
}

/// A worker of a queue.
pub struct Taker<E> {
    /// Its name in rows.
    pub name: String,
    /// The authors of the batches that it accepts.
    pub trusted: Trusted,
    /// Evaluates batches.
    pub evaluate: Arc<E>,
    /// Takes a line about a failure.
    pub note: Box<dyn Fn(&str)>,
    /// Batches that it has finished.
    pub done: Mutex<WorkerSum>,
    /// The batches that it does not accept.
    pub refuser: Refuser,
}

impl<E> std::fmt::Debug for Taker<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taker").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<E: Evaluate> Taker<E> {
    /// Takes batches, `at_once` at a time, until `stop` is true; a batch that is begun then is finished.
    ///
    /// # Errors
    /// The broker refuses the queue at the start. Later failures only make the worker wait.
    pub async fn run(
        &self,
        from: &Exchange,
        at_once: usize,
        stop: &Arc<AtomicBool>,
    ) -> Result<WorkerSum, BrokerError> {
        let shared = from.shared().await?;
        join_all((0..at_once.max(1)).map(|_| self.line(from, &shared, stop))).await;
        Ok(self.done.lock().await.clone())
    }

    /// Takes one batch after the other.
    async fn line(&self, from: &Exchange, shared: &Consumer<Config>, stop: &Arc<AtomicBool>) {
        let mut refused = false;
        while !stop.load(Ordering::Relaxed) {
            let Some(message) = pull::next(shared, refused, stop, &*self.note).await else {
                continue;
            };
            match Batch::read(&message.payload, &self.trusted, from) {
                Ok(batch) => {
                    refused = false;
                    self.take(from, Arc::new(batch), &message, stop).await;
                }
                Err(why) => {
                    refused = true;
                    let refusal = (Batch::claim(&message.payload), why);
                    let as_whom = (from.queue().as_str(), self.name.as_str());
                    let at = from.refusals();
                    let told = self.refuser.refuse(at, as_whom, &message, refusal, &*self.note);
                    // One that is not told comes again.
                    unless_stopped(stop, told).await;
                }
            }
        }
    }

    /// Evaluates a batch, and stores its row; then the queue forgets it.
    async fn take(
        &self,
        from: &Exchange,
        batch: Arc<Batch>,
        message: &Message,
        stop: &Arc<AtomicBool>,
    ) {
        let (sequence, attempt) = refused::place(message);
        let begun = match self.begun(from, message).await {
            Ok(begun) => begun,
            Err(error) => {
                (self.note)(&error.to_string());
                let _comes_again_anyhow = message.ack_with(AckKind::Nak(Some(PAUSE))).await;
                return;
            }
        };
        let evaluated = match begun > ATTEMPTS {
            true => Err(format!("{ATTEMPTS} workers began it, and none finished it")),
            false => self.evaluated(&batch, message).await,
        };
        let (nodes, failed) = match evaluated {
            Ok(nodes) => (nodes, None),
            Err(why) => {
                (self.note)(&format!("{} frames are lost: {why}", batch.head.frames));
                (Vec::new(), Some(why))
            }
        };
        let row = TakenRow {
            session: batch.head.session.clone(),
            sequence: batch.head.sequence,
            frames: batch.head.frames,
            before: batch.head.before,
            worker: self.name.clone(),
            attempt,
            nodes,
            failed,
        };
        let told = Told::Taken(row.clone());
        while let Err(error) = from.tell(&told).await {
            (self.note)(&error.to_string());
            if stop.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.done.lock().await.add(&row);
        // If this is lost, another worker stores the row again, and the first one counts.
        let _ignored = message.ack().await;
        if attempt > 1 {
            // If this is lost, a refusal is shown longer than it holds.
            let _ignored = from.refusals().forget(from.queue().as_str(), sequence).await;
        }
    }

    /// Number of workers that have begun a batch: those that it was given to, without refusals.
    async fn begun(&self, from: &Exchange, message: &Message) -> Result<u64, BrokerError> {
        let (sequence, attempt) = refused::place(message);
        if attempt <= ATTEMPTS {
            return Ok(attempt);
        }
        let refused = from.refusals().deliveries(from.queue().as_str(), sequence).await?;
        Ok(attempt.saturating_sub(refused).max(1))
    }

    /// The counts of a batch; meanwhile the queue gets signs of life.
    async fn evaluated(
        &self,
        batch: &Arc<Batch>,
        message: &Message,
    ) -> Result<Vec<NodeCounts>, String> {
        let (evaluate, batch) = (Arc::clone(&self.evaluate), Arc::clone(batch));
        let mut evaluating = tokio::task::spawn_blocking(move || evaluate.evaluate(&batch));
        loop {
            match tokio::time::timeout(SIGN_OF_LIFE, &mut evaluating).await {
                Ok(Ok(evaluated)) => return evaluated,
                Ok(Err(error)) => return Err(error.to_string()),
                // If this is lost, another worker may begin the same batch.
                Err(_) => drop(message.ack_with(AckKind::Progress).await),
            }
        }
    }
}
