//! Streams and buckets of a group at the broker.
//!
//! | name | subjects or keys | content |
//! |---|---|---|
//! | stream `fyke-GROUP` | `fyke.GROUP.edits` | signed edits, kept for ever; a full stream refuses new ones |
//! | stream `fyke-GROUP-answers` | `fyke.GROUP.answers.SENSOR` | answers, the last million |
//! | bucket `fyke-GROUP-sensors` | name of a sensor | its entry; it disappears 30 s after the last one |
//! | bucket `fyke-GROUP-snapshots` | `head`, parts | the filters after an edit ([`snapshot`](crate::snapshot)) |
//! | – | `fyke.GROUP.ask` | questions, with an inbox for the answers |
//!
//! A reader asks for the messages after the last one that it knows, by number. So the broker keeps no consumer for it
//! that could be lost or pile up; a subscription to the edits only tells that there are some.

use crate::Name;
use crate::again::again;
use crate::edit::MAX_BYTES;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::context::{
    ContextBuilder, CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind,
    KeyValueError, KeyValueErrorKind, PublishError, PublishErrorKind, RequestError,
    RequestErrorKind,
};
use async_nats::jetstream::stream::{
    Config, ConsumerError, ConsumerErrorKind, DirectGetError, DirectGetErrorKind, DiscardPolicy,
    LastRawMessageError, LastRawMessageErrorKind, Stream,
};
use async_nats::jetstream::{Context, ErrorCode, kv, message::StreamMessage};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, HeaderMap};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::de::DeserializeOwned;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time for an answer of the broker.
pub const LIMIT: Duration = Duration::from_secs(5);
/// Time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for the acknowledgement of a message.
const ACK_LIMIT: Duration = Duration::from_secs(1);
/// An entry of the list of sensors disappears after this time.
pub const ENTRY_AGE: Duration = Duration::from_secs(30);
/// Most edits of a group.
const MAX_EDITS: i64 = 1_000_000;
const MAX_EDIT_BYTES: i64 = 1 << 30;
const MAX_ANSWERS: i64 = 1_000_000;
const MAX_SNAPSHOT_BYTES: i64 = 512 << 20;
/// A job or batch is given to another worker after this time without a sign of life.
const SILENT: Duration = Duration::from_secs(10);
/// Most jobs or batches of a queue that workers have at the same time.
const MAX_BEGUN: i64 = 100_000;
/// A stream that a server has no room for gets a tenth of its room, again down to the least.
const SHARE: i64 = 10;
const LEAST_BYTES: i64 = 16 << 20;
/// Messages that are requested at once.
const AT_ONCE: usize = 64;

/// Address and rights at the broker.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Its address: `nats://HOST:PORT`, `tls://HOST:PORT`.
    pub server: String,
    /// User and password.
    pub user: Option<(String, String)>,
    /// File with the certificates that it is checked with, besides those of the system.
    pub ca: Option<PathBuf>,
    /// Files with our own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Number of servers that keep each message; 0 counts as 1.
    pub replicas: usize,
}

/// A failure at the broker.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// There is no connection.
    #[error("{server}: {why}")]
    Connect {
        /// The address.
        server: String,
        /// The reason.
        why: String,
    },
    /// The group has not been made.
    #[error(
        "the group {0} does not exist on this server: the first `fyke sensor` or `fyke fleet add` makes it (--group \
         names another one)"
    )]
    NoGroup(Name),
    /// The group has no jobs or batches.
    #[error(
        "the group {group} has no {what} on this server: `fyke fleet {maker}` makes them (--group names another one)"
    )]
    NoQueue {
        /// The group.
        group: Name,
        /// The missing messages.
        what: &'static str,
        /// The command that makes them.
        maker: &'static str,
    },
    /// The server keeps no streams.
    #[error(
        "the broker has no JetStream, which keeps the messages of a group: start it with `nats-server -js`"
    )]
    NoStreams,
    /// The server has no room for the stream.
    #[error(
        "the broker: {making}: it has no room for streams; without a setting its room is three quarters of the free \
         disk: set `jetstream {{ max_file_store: 64GB }}` in its configuration"
    )]
    NoRoom {
        /// The request.
        making: &'static str,
    },
    /// Another edit came first.
    #[error("another edit came first")]
    Conflict,
    /// It refuses, or does not answer.
    #[error("the broker: {what}: {why}")]
    Failed {
        /// The request.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

pub(crate) fn failed<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> BrokerError {
    move |error| BrokerError::Failed { what, why: error.to_string() }
}

/// Connects to the broker as a client with this name; again for a while if it does not listen, as one that is
/// started again.
pub(crate) async fn client(options: &Options, name: &str) -> Result<Client, BrokerError> {
    let end = Instant::now() + LIMIT;
    loop {
        match settings(options, name).connect(&options.server).await {
            Err(error) if is_away(&error) && Instant::now() < end => sleep(PAUSE).await,
            connected => {
                return connected.map_err(|error| BrokerError::Connect {
                    server: options.server.clone(),
                    why: error.to_string(),
                });
            }
        }
    }
}

/// True for a failure of a broker that does not listen.
fn is_away(error: &ConnectError) -> bool {
    matches!(error.kind(), ConnectErrorKind::Io | ConnectErrorKind::TimedOut)
}

fn settings(options: &Options, name: &str) -> ConnectOptions {
    let mut connecting = ConnectOptions::new()
        .name(name)
        .connection_timeout(LIMIT)
        .request_timeout(Some(LIMIT))
        // At most a second between two attempts: a sensor has to catch up soon after the broker is back.
        .reconnect_delay_callback(|attempt| {
            Duration::from_millis((20u64 << attempt.min(6)).min(1_000))
        });
    if let Some((user, password)) = &options.user {
        connecting = connecting.user_and_password(user.clone(), password.clone());
    }
    if let Some(ca) = &options.ca {
        connecting = connecting.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &options.certificate {
        connecting = connecting.add_client_certificate(certificate.clone(), key.clone());
    }
    let tls = options.server.starts_with("tls://") || options.certificate.is_some();
    connecting.require_tls(tls)
}

/// True for an error of a server that cannot answer yet.
pub(crate) fn is_silent(error: &RequestError) -> bool {
    matches!(error.kind(), RequestErrorKind::NoResponders | RequestErrorKind::TimedOut)
}

/// True for a failure of a read that a server may answer later.
pub(crate) fn is_silent_read(error: &DirectGetError) -> bool {
    matches!(error.kind(), DirectGetErrorKind::TimedOut | DirectGetErrorKind::Request)
}

/// The first row of a subject from a sequence on, with its sequence; `None` if there is none yet.
///
/// # Errors
/// The broker does not answer.
pub(crate) async fn next_row<T: DeserializeOwned>(
    rows: &Stream,
    subject: &str,
    from: u64,
) -> Result<Option<(u64, T)>, BrokerError> {
    let (what, mut from) = ("reading the rows", from);
    loop {
        let request = || rows.direct_get_next_for_subject(subject, Some(from));
        match again(what, is_silent_read, request).await? {
            Ok(StreamMessage { sequence, payload, .. }) => {
                // Any client of the server can send a message here that is no row.
                if let Ok(row) = serde_json::from_slice(&payload) {
                    return Ok(Some((sequence, row)));
                }
                from = sequence + 1;
            }
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(what)(error)),
        }
    }
}

/// A stream, which is made if it is not there; with less room if the server has little.
///
/// # Errors
/// The broker does not answer, refuses the stream, or has no JetStream.
pub(crate) async fn stream_of(
    jet: &Context,
    config: Config,
    making: &'static str,
) -> Result<Stream, BrokerError> {
    let is_silence = |error: &CreateStreamError| match error.kind() {
        CreateStreamErrorKind::JetStreamUnavailable => has_streams(jet),
        kind => matches!(kind, CreateStreamErrorKind::TimedOut | CreateStreamErrorKind::Response),
    };
    let mut config = config;
    loop {
        let made = again(making, is_silence, || jet.get_or_create_stream(config.clone())).await?;
        let Err(error) = made else { return made.map_err(failed(making)) };
        let is_short = matches!(error.kind(), CreateStreamErrorKind::JetStream(refused)
            if refused.error_code() == ErrorCode::STORAGE_RESOURCES_EXCEEDED);
        match error.kind() {
            CreateStreamErrorKind::JetStreamUnavailable => return Err(BrokerError::NoStreams),
            // A full stream refuses messages, so with less room nothing is lost either.
            _ if is_short && config.max_bytes > LEAST_BYTES => {
                config.max_bytes = (config.max_bytes / SHARE).max(LEAST_BYTES);
            }
            _ if is_short => return Err(BrokerError::NoRoom { making }),
            _ => return Err(failed(making)(error)),
        }
    }
}

/// True if the server has announced JetStream.
fn has_streams(jet: &Context) -> bool {
    jet.client().server_info().jetstream
}

/// A bucket of keys and values, which is made if it is not there.
///
/// A bucket is a stream of this form. Its stream is made here, because the client's own call reads limits of the
/// account that NATS 2.9 does not tell.
pub(crate) async fn bucket(
    jet: &Context,
    name: String,
    replicas: usize,
    config: Config,
    making: &'static str,
) -> Result<kv::Store, BrokerError> {
    let config = Config {
        name: format!("KV_{name}"),
        subjects: vec![format!("$KV.{name}.>")],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        allow_direct: true,
        num_replicas: replicas,
        ..config
    };
    stream_of(jet, config, making).await?;
    existing_bucket(jet, name, making).await
}

/// A bucket that is there already.
async fn existing_bucket(
    jet: &Context,
    name: String,
    opening: &'static str,
) -> Result<kv::Store, BrokerError> {
    let is_silence = |error: &KeyValueError| error.kind() == KeyValueErrorKind::GetBucket;
    let opened = again(opening, is_silence, || jet.get_key_value(name.clone())).await?;
    opened.map_err(failed(opening))
}

/// A stream of a group that is there already.
///
/// # Errors
/// It is not, or the broker does not answer.
async fn existing(jet: &Context, name: String, group: &Name) -> Result<Stream, BrokerError> {
    existing_or(jet, name, || BrokerError::NoGroup(group.clone())).await
}

/// A stream that is there already, or the error if it is not.
///
/// # Errors
/// That one, or the broker does not answer.
pub(crate) async fn existing_or(
    jet: &Context,
    name: String,
    missing: impl FnOnce() -> BrokerError,
) -> Result<Stream, BrokerError> {
    let what = "looking for the group";
    let lacks_streams = |error: &GetStreamError| {
        let request = error.source().and_then(|source| source.downcast_ref::<RequestError>());
        let kind = request.map(RequestError::kind);
        kind == Some(RequestErrorKind::NoResponders) && !has_streams(jet)
    };
    let is_silence = |error: &GetStreamError| {
        error.kind() == GetStreamErrorKind::Request && !lacks_streams(error)
    };
    let found = again(what, is_silence, || jet.get_stream(name.clone())).await?;
    found.map_err(|error| match error.kind() {
        GetStreamErrorKind::JetStream(refused) if refused.code() == 404 => missing(),
        GetStreamErrorKind::Request if lacks_streams(&error) => BrokerError::NoStreams,
        _ => failed(what)(error),
    })
}

/// The consumer that all workers of a queue share, which is made if it is not there.
///
/// # Errors
/// The broker does not answer.
pub(crate) async fn consumer_of(
    stream: &Stream,
    name: &str,
    config: pull::Config,
) -> Result<Consumer<pull::Config>, BrokerError> {
    let what = "making the consumer of the queue";
    let config = pull::Config {
        durable_name: Some(name.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: SILENT,
        max_ack_pending: MAX_BEGUN,
        ..config
    };
    let is_silence = |error: &ConsumerError| {
        matches!(error.kind(), ConsumerErrorKind::TimedOut | ConsumerErrorKind::Request)
    };
    let made = again(what, is_silence, || stream.get_or_create_consumer(name, config.clone()));
    made.await?.map_err(failed(what))
}

/// Requests to the streams of a client.
pub(crate) fn streams(client: &Client) -> Context {
    // The acknowledgement of a message may be lost with a server that is killed.
    ContextBuilder::new().timeout(LIMIT).ack_timeout(ACK_LIMIT).build(client.clone())
}

/// The broker, and what it keeps for a group.
#[derive(Debug, Clone)]
pub struct Broker {
    group: Name,
    client: Client,
    jet: Context,
    edits: Stream,
    answers: Stream,
    sensors: kv::Store,
    snapshots: kv::Store,
}

impl Broker {
    /// Connects, and makes the streams of the group if they are not there.
    ///
    /// # Errors
    /// The broker cannot be reached, does not accept us, or has no JetStream.
    pub async fn connect(
        options: &Options,
        group: Name,
        name: &str,
    ) -> Result<Broker, BrokerError> {
        let client = client(options, name).await?;
        let jet = streams(&client);
        let replicas = options.replicas.max(1);
        let config = Config {
            name: format!("fyke-{group}"),
            subjects: vec![format!("fyke.{group}.edits")],
            max_messages: MAX_EDITS,
            max_bytes: MAX_EDIT_BYTES,
            max_message_size: MAX_BYTES as i32 + 1024,
            discard: DiscardPolicy::New,
            allow_direct: true,
            deny_delete: true,
            deny_purge: true,
            num_replicas: replicas,
            ..Config::default()
        };
        let edits = stream_of(&jet, config, "making the stream of the group").await?;
        let answers = Config {
            name: format!("fyke-{group}-answers"),
            subjects: vec![format!("fyke.{group}.answers.*")],
            max_messages: MAX_ANSWERS,
            num_replicas: replicas,
            ..Config::default()
        };
        let answers = stream_of(&jet, answers, "making the stream of answers").await?;
        let listing = Config { max_age: ENTRY_AGE, deny_delete: true, ..Config::default() };
        let sensors = format!("fyke-{group}-sensors");
        let sensors =
            bucket(&jet, sensors, replicas, listing, "making the list of sensors").await?;
        let snapshots = Config { max_bytes: MAX_SNAPSHOT_BYTES, ..Config::default() };
        let bucket_of = format!("fyke-{group}-snapshots");
        let making = "making the bucket of snapshots";
        let snapshots = bucket(&jet, bucket_of, replicas, snapshots, making).await?;
        Ok(Broker { group, client, jet, edits, answers, sensors, snapshots })
    }

    /// Connects to a group that is there already, and makes nothing.
    ///
    /// # Errors
    /// The group is not there, or the broker cannot be reached, does not accept us, or has no JetStream.
    pub async fn open(options: &Options, group: Name, name: &str) -> Result<Broker, BrokerError> {
        let client = client(options, name).await?;
        let jet = streams(&client);
        let edits = existing(&jet, format!("fyke-{group}"), &group).await?;
        let answers = existing(&jet, format!("fyke-{group}-answers"), &group).await?;
        let buckets = ["sensors", "snapshots"].map(|kind| format!("fyke-{group}-{kind}"));
        for bucket in &buckets {
            existing(&jet, format!("KV_{bucket}"), &group).await?;
        }
        let [sensors, snapshots] = buckets;
        let opening = "opening the buckets of the group";
        let sensors = existing_bucket(&jet, sensors, opening).await?;
        let snapshots = existing_bucket(&jet, snapshots, opening).await?;
        Ok(Broker { group, client, jet, edits, answers, sensors, snapshots })
    }

    /// The group.
    pub fn group(&self) -> &Name {
        &self.group
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The list of sensors.
    pub fn sensors(&self) -> &kv::Store {
        &self.sensors
    }

    /// A value of the bucket of snapshots; `None` if it is not there.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn snapshot(&self, key: &str) -> Result<Option<Vec<u8>>, BrokerError> {
        let what = "reading a snapshot";
        let is_silence = |error: &kv::EntryError| error.kind() != kv::EntryErrorKind::InvalidKey;
        let value = again(what, is_silence, || self.snapshots.get(key)).await?;
        Ok(value.map_err(failed(what))?.map(Vec::from))
    }

    /// Stores a value in the bucket of snapshots.
    ///
    /// # Errors
    /// The broker does not take it.
    pub(crate) async fn put_snapshot(&self, key: &str, value: Vec<u8>) -> Result<(), BrokerError> {
        let what = "storing a snapshot";
        let put = self.snapshots.put(key, value.into()).await;
        put.map(drop).map_err(failed(what))
    }

    /// Removes a value from the bucket of snapshots.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn remove_snapshot(&self, key: &str) -> Result<(), BrokerError> {
        // Not by the bucket's own call, which leaves a mark for each key.
        let subject = format!("$KV.fyke-{}-snapshots.{key}", self.group);
        let removed = self.snapshots.stream.purge().filter(subject).await;
        removed.map(drop).map_err(failed("removing a snapshot"))
    }

    /// The subject of a kind of message.
    pub fn subject(&self, kind: &str) -> String {
        format!("fyke.{}.{kind}", self.group)
    }

    /// The last sequence of the group.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn last(&self) -> Result<u64, BrokerError> {
        let what = "asking for the last edit";
        let info = again(what, is_silent, || self.edits.get_info()).await?.map_err(failed(what))?;
        Ok(info.state.last_sequence)
    }

    /// The message of an edit; `None` if there is none with this sequence yet.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn edit(&self, sequence: u64) -> Result<Option<Vec<u8>>, BrokerError> {
        let what = "reading an edit";
        match again(what, is_silent_read, || self.edits.direct_get(sequence)).await? {
            Ok(message) => Ok(Some(message.payload.to_vec())),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(what)(error)),
        }
    }

    /// The messages of the edits from `first` to `last`, many at once.
    ///
    /// # Errors
    /// The broker does not answer, or does not have one of them any more.
    pub async fn range(&self, first: u64, last: u64) -> Result<Vec<(u64, Vec<u8>)>, BrokerError> {
        stream::iter(first..=last)
            .map(|sequence| async move {
                let message = self.edit(sequence).await?.ok_or_else(|| BrokerError::Failed {
                    what: "reading an edit",
                    why: format!("it does not have edit {sequence}"),
                })?;
                Ok((sequence, message))
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Adds an edit after the sequence `after`, and returns its own.
    ///
    /// # Errors
    /// Another edit came first, or the broker does not answer: it may have taken the edit then.
    pub async fn publish(&self, message: Vec<u8>, after: u64) -> Result<u64, BrokerError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", after.to_string());
        let what = "adding the edit";
        // Made twice, it is a conflict with itself: the broker takes one edit after `after`.
        let is_silence = |error: &PublishError| {
            matches!(error.kind(), PublishErrorKind::TimedOut | PublishErrorKind::StreamNotFound)
        };
        let sent = again(what, is_silence, || {
            let (subject, message) = (self.subject("edits"), message.clone().into());
            let sent = self.jet.publish_with_headers(subject, headers.clone(), message);
            async move { sent.await?.await }
        });
        let ack = sent.await?.map_err(|error| match error.kind() {
            PublishErrorKind::WrongLastSequence => BrokerError::Conflict,
            _ => failed(what)(error),
        })?;
        Ok(ack.sequence)
    }

    /// The entries of the sensors that run, by name.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn entries(&self) -> Result<Vec<Vec<u8>>, BrokerError> {
        let what = "reading the list of sensors";
        // Not the client's list of keys, which waits for ever if an entry is written again meanwhile.
        let list = || async {
            let subjects = self.sensors.stream.info_with_subjects(">").await?;
            subjects.try_collect::<Vec<(String, usize)>>().await
        };
        let subjects = again(what, is_silent, list).await?.map_err(failed(what))?;
        let mut entries = Vec::new();
        for key in subjects.iter().filter_map(|(subject, _)| subject.rsplit('.').next()) {
            let is_silence =
                |error: &kv::EntryError| error.kind() != kv::EntryErrorKind::InvalidKey;
            let entry = again(what, is_silence, || self.sensors.get(key)).await?;
            entries.extend(entry.map_err(failed(what))?.map(Vec::from));
        }
        Ok(entries)
    }

    /// The last message with answers of a sensor, and the time at which it was stored, milliseconds since 1970.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn last_answers(
        &self,
        sensor: &Name,
    ) -> Result<Option<(Vec<u8>, u64)>, BrokerError> {
        let what = "reading the last answers of a sensor";
        let subject = self.subject(&format!("answers.{sensor}"));
        let is_silence =
            |error: &LastRawMessageError| error.kind() == LastRawMessageErrorKind::Other;
        let request = || self.answers.get_last_raw_message_by_subject(&subject);
        match again(what, is_silence, request).await? {
            Ok(message) => {
                let unix_ms = message.time.unix_timestamp_nanos() / 1_000_000;
                let unix_ms = u64::try_from(unix_ms).unwrap_or_default();
                Ok(Some((message.payload.to_vec(), unix_ms)))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(failed(what)(error)),
        }
    }

    /// Stores answers of a sensor.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn answer(&self, sensor: &str, answers: Vec<u8>) -> Result<(), BrokerError> {
        let subject = self.subject(&format!("answers.{sensor}"));
        let sent = self.jet.publish(subject, answers.into()).await;
        let ack = sent.map_err(failed("storing answers"))?;
        ack.await.map(|_| ()).map_err(failed("storing answers"))
    }
}
