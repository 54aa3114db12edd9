//! Messages of a queue, one at a time.

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::Consumer;
use async_nats::jetstream::consumer::pull::Config;
use futures_util::StreamExt;
use std::time::Duration;

/// Longest wait for a message: after it, a worker looks if it has to stop.
const WAIT: Duration = Duration::from_millis(500);
/// Pause after a failure of the broker.
pub const PAUSE: Duration = Duration::from_millis(200);

/// The next message; `None` if there is none yet, or after a failure and a pause.
pub async fn next(queue: &Consumer<Config>, note: &dyn Fn(&str)) -> Option<Message> {
    let message = match queue.batch().max_messages(1).expires(WAIT).messages().await {
        Ok(mut messages) => messages.next().await,
        Err(error) => Some(Err(error.into())),
    };
    match message? {
        Ok(message) => Some(message),
        Err(error) => {
            note(&format!("the queue: {error}"));
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}
