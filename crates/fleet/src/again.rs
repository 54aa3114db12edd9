//! Requests to the broker that are made again if it is silent.
//!
//! A server that has just been started accepts connections before its streams answer, and drops requests until then. So
//! a request waits a short time at first and is repeated, each time with twice the patience, within
//! [`LIMIT`](crate::broker::LIMIT) in all. Only for requests that may be made twice: reads, and writes that name the
//! sequence before them.

use crate::broker::{BrokerError, LIMIT};
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Patience of the first attempt.
const FIRST: Duration = Duration::from_millis(200);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Makes a request until it is answered; an error counts as an answer unless `is_silence`.
///
/// # Errors
/// No answer within the limit.
pub(crate) async fn again<T, E: Display, F: Future<Output = Result<T, E>>>(
    what: &'static str,
    is_silence: impl Fn(&E) -> bool,
    mut request: impl FnMut() -> F,
) -> Result<Result<T, E>, BrokerError> {
    let end = Instant::now() + LIMIT;
    let mut patience = FIRST;
    loop {
        let why = match timeout(patience, request()).await {
            Ok(Err(error)) if is_silence(&error) => error.to_string(),
            Ok(answer) => return Ok(answer),
            Err(_) => "no answer".to_owned(),
        };
        let left = end.saturating_duration_since(Instant::now());
        if left <= PAUSE {
            let why = format!("{why} within {} s", LIMIT.as_secs());
            return Err(BrokerError::Failed { what, why });
        }
        sleep(PAUSE).await;
        patience = (patience * 2).min(left - PAUSE).max(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn a_silent_broker_gets_the_request_again_and_one_that_answers_does_not() {
        let calls = Cell::new(0);
        let request = || {
            calls.set(calls.get() + 1);
            let call = calls.get();
            async move {
                match call {
                    1 => std::future::pending().await,
                    2 => Err("silence"),
                    _ => Ok(call),
                }
            }
        };
        let answer = again("x", |error: &&str| *error == "silence", request).await;
        assert_eq!((answer.unwrap(), calls.get()), (Ok(3), 3));
        calls.set(0);
        let refused = || {
            calls.set(calls.get() + 1);
            async { Err::<(), _>("no") }
        };
        let answer = again("x", |error: &&str| *error == "silence", refused).await;
        assert_eq!((answer.unwrap(), calls.get()), (Err("no"), 1));
    }
}
