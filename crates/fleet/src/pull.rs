//! Messages of a queue, one at a time.

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::Consumer;
use async_nats::jetstream::consumer::pull::Config;
use futures_util::StreamExt;
use std::time::Duration;

/// Longest wait for a message: after it, a worker looks if it has to stop.
const WAIT: Duration = Duration::from_millis(500);
/// Pause after a failure of the broker, and after a refusal.
pub const PAUSE: Duration = Duration::from_millis(200);

/// The next message; `None` if there is none yet, or after a failure and a pause.
///
/// A worker that refused the last message (`refused`) pauses, and then asks for what is there, without a request that
/// waits. So a message that becomes ready goes to a worker that waits for it, and seldom to one that refuses it again.
pub async fn next(queue: &Consumer<Config>, refused: bool, note: &dyn Fn(&str)) -> Option<Message> {
    let message = match refused {
        false => match queue.batch().max_messages(1).expires(WAIT).messages().await {
            Ok(mut messages) => messages.next().await,
            Err(error) => Some(Err(error.into())),
        },
        true => {
            tokio::time::sleep(PAUSE).await;
            match queue.fetch().max_messages(1).messages().await {
                Ok(mut messages) => messages.next().await,
                Err(error) => Some(Err(error.into())),
            }
        }
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
