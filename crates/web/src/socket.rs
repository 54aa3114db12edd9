//! The WebSocket for programs: the counts of running fykes, and calls, over one connection.
//!
//! A message is a text of JSON. Each has a number, which its answer repeats; answers come in the order of messages:
//!
//! | message | answer |
//! |---|---|
//! | `{"id":1,"subscribe":[4711]}` | `{"id":1,"answer":{"subscribed":[4711]}}`, then events |
//! | `{"id":2,"pid":4711,"request":{"request":"try","text":"udp"}}` | `{"id":2,"answer":…}`, a `Response` of control |
//! | `{"id":3,"explain":"udp port 53"}` | `{"id":3,"answer":…}` as of `fyke explain --json` |
//! | a request that the fyke refuses | `{"id":4,"answer":{"response":"error","message":"…"}}` |
//! | anything else | `{"id":5,"error":"…"}` |
//!
//! Events have no number: `fykes`, `ended`, `fleet` if the server shows a group, and `{"event":"counts","pid":4711,
//! "more_filters":0,"more_nodes":0,"counts":…}` with the line of `fyke ctl --json watch` (`docs/counts.schema.json`).
//! At most ten of a kind are sent in a second, and each is the newest: a slow client misses those in between.
//!
//! Memory: one message, one answer, and the last event of each kind. A client that takes nothing for some seconds is
//! dropped and counted.

mod frames;

use crate::call::{self, Call};
use crate::hub::{Hub, Latest, Topic};
use crate::server::Options;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frames::{Message, Messages};
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, timeout, timeout_at};

/// Most fykes with counts in one socket.
const MAX_FOLLOWED: usize = 16;
/// Time limit for a client to take a frame.
const TAKE_LIMIT: Duration = Duration::from_secs(5);
/// A ping is sent after this time without a frame.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Time between two looks for new events.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a read.
const READ_BYTES: usize = 16 << 10;
/// Hashed together with a key (RFC 6455, section 1.3).
const HASHED_WITH: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Accept` for a request that opens a WebSocket; `None` if it opens none.
pub fn accept(headers: &HeaderMap) -> Option<String> {
    let has = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(wanted))
    };
    let fits = has(CONNECTION, "upgrade") && has(UPGRADE, "websocket");
    let fits = fits && has(SEC_WEBSOCKET_VERSION, "13");
    // 16 bytes in base 64.
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| fits && key.len() == 24)?;
    let hashed = [key.as_bytes(), HASHED_WITH].concat();
    let sum = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &hashed);
    Some(STANDARD.encode(sum))
}

/// The end of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client closed it, or broke the protocol.
    Closed,
    /// The client took nothing for too long.
    Slow,
}

/// For the writer.
enum Out {
    Frame(Vec<u8>),
    Follow(Vec<Latest>),
    /// The last frame.
    Close(Vec<u8>),
}

/// Serves a socket until it is closed.
pub async fn run(
    stream: impl AsyncRead + AsyncWrite,
    hub: &Arc<Hub>,
    options: &Arc<Options>,
) -> End {
    let (reader, writer) = tokio::io::split(stream);
    let (sender, receiver) = mpsc::channel(1);
    let mut answers = pin!(read(reader, sender, hub, options));
    let mut writes = pin!(write(writer, receiver));
    poll_fn(|context| match answers.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(End::Closed),
        Poll::Pending => writes.as_mut().poll(context),
    })
    .await
}

/// Reads messages, and answers one after the other; ends with the connection.
async fn read(
    mut reader: impl AsyncRead + Unpin,
    to: Sender<Out>,
    hub: &Arc<Hub>,
    options: &Arc<Options>,
) {
    let mut messages = Messages::default();
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let out = match messages.take() {
            Ok(None) => match reader.read(&mut bytes).await {
                Ok(count @ 1..) => {
                    messages.push(&bytes[..count]);
                    continue;
                }
                _ => return,
            },
            Ok(Some(Message::Ping(content))) => Out::Frame(frames::pong(&content)),
            Ok(Some(Message::Text(text))) => {
                let (line, feeds) = answer(&text, hub, options).await;
                if to.send(Out::Frame(frames::text(&line))).await.is_err() {
                    return;
                }
                match feeds {
                    Some(feeds) => Out::Follow(feeds),
                    None => continue,
                }
            }
            Ok(Some(Message::Close)) => Out::Close(frames::closed()),
            Err(fault) => Out::Close(fault.frame()),
        };
        let is_end = matches!(out, Out::Close(_));
        if to.send(out).await.is_err() {
            return;
        }
        if is_end {
            // The writer ends the socket.
            return std::future::pending().await;
        }
    }
}

/// Writes answers, and each new event of what is followed.
async fn write(mut writer: impl AsyncWrite + Unpin, mut from: Receiver<Out>) -> End {
    let mut feeds: Vec<Latest> = Vec::new();
    let mut last_sent = Instant::now();
    let mut next_look = Instant::now();
    loop {
        let mut frames = Vec::new();
        let mut is_end = false;
        match timeout_at(next_look, from.recv()).await {
            Ok(Some(Out::Frame(frame))) => frames = frame,
            Ok(Some(Out::Close(frame))) => (frames, is_end) = (frame, true),
            Ok(Some(Out::Follow(new))) => feeds = new,
            Ok(None) => return End::Closed,
            Err(_) => {
                next_look = Instant::now() + LOOK_INTERVAL;
                for feed in &mut feeds {
                    let latest = feed.borrow_and_update();
                    if latest.has_changed() && !latest.is_empty() {
                        frames.extend(frames::text(latest.trim_ascii_end()));
                    }
                }
                if frames.is_empty() && last_sent.elapsed() >= SIGN_OF_LIFE {
                    frames = frames::ping();
                }
            }
        }
        if frames.is_empty() {
            continue;
        }
        match timeout(TAKE_LIMIT, writer.write_all(&frames)).await {
            Ok(Ok(())) if !is_end => last_sent = Instant::now(),
            Ok(_) => return End::Closed,
            Err(_) => return End::Slow,
        }
    }
}

/// A message of a client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    id: u64,
    subscribe: Option<Vec<u32>>,
    pid: Option<u32>,
    request: Option<Value>,
    explain: Option<String>,
}

/// Answers a message; with what it wants to follow from now on.
async fn answer(
    text: &str,
    hub: &Arc<Hub>,
    options: &Arc<Options>,
) -> (Vec<u8>, Option<Vec<Latest>>) {
    let asked: Asked = match serde_json::from_str(text) {
        Ok(asked) => asked,
        Err(error) => {
            let line = json!({"id": null, "error": format!("not a message: {error}")});
            return (line.to_string().into_bytes(), None);
        }
    };
    let id = asked.id;
    let refused = |why: &str| (json!({"id": id, "error": why}).to_string().into_bytes(), None);
    let options = Arc::clone(options);
    let answered = match asked {
        Asked { subscribe: Some(mut pids), pid: None, request: None, explain: None, .. } => {
            pids.sort_unstable();
            pids.dedup();
            if pids.len() > MAX_FOLLOWED {
                return refused("a socket follows at most 16 running fykes");
            }
            let line = json!({"id": id, "answer": {"subscribed": pids}}).to_string();
            let topics = hub.common().chain(pids.into_iter().map(Topic::Lines));
            let mut feeds: Vec<_> = topics.map(|topic| hub.subscribe(topic)).collect();
            feeds.iter_mut().for_each(Latest::mark_changed);
            return (line.into_bytes(), Some(feeds));
        }
        Asked {
            pid: Some(pid), request: Some(request), subscribe: None, explain: None, ..
        } => {
            let call = Call { pid, request };
            tokio::task::spawn_blocking(move || call::answer(&call, &options)).await
        }
        Asked { explain: Some(filter), subscribe: None, pid: None, request: None, .. } => {
            let explained = tokio::task::spawn_blocking(move || options.looks.explain(&filter));
            match explained.await {
                Ok(Ok(value)) => Ok(value.to_string().into_bytes()),
                Ok(Err(why)) => return refused(&why),
                Err(error) => Err(error),
            }
        }
        _ => return refused("a message has one of: subscribe; pid with request; explain"),
    };
    match answered {
        Ok(line) => ([format!("{{\"id\":{id},\"answer\":").as_bytes(), &line, b"}"].concat(), None),
        Err(_) => refused("the call failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn a_request_is_accepted_as_in_the_rfc() {
        let mut headers = HeaderMap::new();
        assert_eq!(accept(&headers), None);
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        assert_eq!(accept(&headers), None);
        // Section 1.3.
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        headers.insert(SEC_WEBSOCKET_KEY, key);
        assert_eq!(accept(&headers).as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("8"));
        assert_eq!(accept(&headers), None);
    }
}
