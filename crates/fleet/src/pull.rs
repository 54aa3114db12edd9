//! Messages of a queue, one at a time.

use crate::unless_stopped;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::Consumer;
use async_nats::jetstream::consumer::pull::Config;
use futures_util::StreamExt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::timeout;

/// Time for which the broker holds a request while there is no message.
const WAIT: Duration = Duration::from_millis(500);
/// Longest wait for the answer to a request: a broker that ends loses it.
const LONGEST: Duration = Duration::from_millis(5_500);
/// Pause after a failure of the broker, and after a refusal.
pub const PAUSE: Duration = Duration::from_millis(200);

/// The next message; `None` if there is none yet, after a failure and a pause, or once `stop` is true.
///
/// A worker that refused the last message (`refused`) pauses, and then asks for what is there, without a request that
/// waits. So a message that becomes ready goes to a worker that waits for it, and seldom to one that refuses it again.
pub async fn next(
    queue: &Consumer<Config>,
    refused: bool,
    stop: &AtomicBool,
    note: &dyn Fn(&str),
) -> Option<Message> {
    let asked = async {
        if refused {
            tokio::time::sleep(PAUSE).await;
        }
        timeout(LONGEST, ask(queue, !refused)).await.ok().flatten()
    };
    match unless_stopped(stop, asked).await?? {
        Ok(message) => Some(message),
        Err(error) => {
            note(&format!("the queue: {error}"));
            unless_stopped(stop, tokio::time::sleep(PAUSE)).await;
            None
        }
    }
}

/// Requests one message.
async fn ask(queue: &Consumer<Config>, waits: bool) -> Option<Result<Message, async_nats::Error>> {
    let one = match waits {
        true => queue.batch().max_messages(1).expires(WAIT).messages().await,
        false => queue.fetch().max_messages(1).messages().await,
    };
    match one {
        Ok(mut messages) => messages.next().await,
        Err(error) => Some(Err(error.into())),
    }
}
