//! Signs of life of shippers and workers.
//!
//! | name | subjects | content |
//! |---|---|---|
//! | stream `fykealive-GROUP` | `fyke.GROUP.alive.sessions.SESSION` | a shipper runs |
//! | | `fyke.GROUP.alive.scans.SCAN` | a worker does a job of the scan |
//!
//! A subject keeps its last message, which is empty, for 30 s by the clock of the broker. So no clocks are compared.

use crate::Name;
use crate::again::again;
use crate::broker::{BrokerError, failed, is_silent_read, stream_of};
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{Config, DirectGetErrorKind, Stream};
use std::time::Duration;

/// A sign of life disappears after this time.
const LIFE: Duration = Duration::from_secs(30);
/// Kind of the signs of shippers.
pub(crate) const SESSIONS: &str = "sessions";
/// Kind of the signs of workers.
pub(crate) const SCANS: &str = "scans";

/// The signs of life of a group.
#[derive(Debug, Clone)]
pub(crate) struct Alive {
    jet: Context,
    stream: Stream,
    prefix: String,
}

impl Alive {
    /// Makes the stream if it is not there.
    pub(crate) async fn connect(
        jet: &Context,
        group: &Name,
        replicas: usize,
    ) -> Result<Alive, BrokerError> {
        let config = Config {
            name: format!("fykealive-{group}"),
            subjects: vec![format!("fyke.{group}.alive.*.*")],
            max_age: LIFE,
            max_messages_per_subject: 1,
            allow_direct: true,
            num_replicas: replicas,
            ..Config::default()
        };
        let stream = stream_of(jet, config, "making the stream of signs of life").await?;
        Ok(Alive { jet: jet.clone(), stream, prefix: format!("fyke.{group}.alive") })
    }

    /// Tells that a shipper runs, or that a worker does a job of a scan.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn say(&self, kind: &str, of: &str) -> Result<(), BrokerError> {
        let what = "sending a sign of life";
        let sent = self.jet.publish(format!("{}.{kind}.{of}", self.prefix), "".into()).await;
        sent.map_err(failed(what))?.await.map(drop).map_err(failed(what))
    }

    /// True if there was a sign of life of a session or scan within the last 30 s.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(crate) async fn is_there(&self, kind: &str, of: &str) -> Result<bool, BrokerError> {
        let what = "looking for signs of life";
        let request =
            || self.stream.direct_get_last_for_subject(format!("{}.{kind}.{of}", self.prefix));
        match again(what, is_silent_read, request).await? {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(what)(error)),
        }
    }
}
