//! Events of a service for its log: readers that come and go, and those that are refused.
//!
//! A hostile client can cause any number of them, so at most [`PER_SECOND`] are reported in a second; the next one
//! tells how many were left out. Threads of readers report them, never the packet loop.

use crate::message::Counts;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most events in a second.
pub const PER_SECOND: u32 = 50;

/// The process at the other end of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Client {
    /// Its user.
    pub user: u32,
    /// Its id; 0 if it is in another PID namespace.
    pub process: u32,
    /// The name of its program, as it told it; empty before the greeting.
    pub program: String,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A reader has opened its buffers.
    Opened {
        /// Its number.
        reader: u64,
        /// Its process.
        client: Client,
        /// Its texts, or its graph.
        texts: Vec<String>,
    },
    /// A reader has left.
    Left {
        /// Its number.
        reader: u64,
        /// Its process.
        client: Client,
        /// Its last counts.
        counts: Counts,
        /// Frames that it had read and lost at its last request for counts.
        read: (u64, u64),
        /// The reason, if the service ended it.
        reason: Option<String>,
    },
    /// A connection, or its first request, was refused.
    Refused {
        /// Its process.
        client: Client,
        /// The reason.
        reason: String,
    },
    /// Events that were left out of the log.
    Omitted {
        /// Their number.
        count: u64,
    },
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, process {}", self.user, self.process)?;
        if !self.program.is_empty() {
            write!(f, ", {}", self.program)?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Opened { reader, client, texts } => {
                let texts = match &texts[..] {
                    [every] if every.is_empty() => "(every frame)".to_owned(),
                    texts => texts.join(" | "),
                };
                write!(f, "reader {reader} opened ({client}): {texts}")
            }
            Event::Left { reader, client, counts, read: (read, lost), reason } => {
                let Counts { accepted, rejected, .. } = counts;
                write!(
                    f,
                    "reader {reader} left ({client}): {accepted} accepted, {rejected} rejected, "
                )?;
                write!(f, "{read} read and {lost} lost at its last report")?;
                reason.as_ref().map_or(Ok(()), |reason| write!(f, "; ended: {reason}"))
            }
            Event::Refused { client, reason } => write!(f, "refused ({client}): {reason}"),
            Event::Omitted { count } => write!(f, "{count} events of readers were not reported"),
        }
    }
}

/// Takes events.
pub type Report = dyn Fn(&Event) + Send + Sync;

/// Events, limited before the log.
pub(crate) struct Events {
    report: Option<Box<Report>>,
    limit: LogLimit,
}

/// A limit of [`PER_SECOND`] lines of a log.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begin: Option<Instant>,
    reported: u32,
    omitted: u64,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    pub fn new(report: Option<Box<Report>>) -> Events {
        Events { report, limit: LogLimit::default() }
    }

    pub fn report(&self, event: &Event) {
        self.report_at(event, Instant::now());
    }

    fn report_at(&self, event: &Event, now: Instant) {
        let Some(report) = &self.report else { return };
        let Some(count) = self.limit.take(now) else { return };
        if count > 0 {
            report(&Event::Omitted { count });
        }
        report(event);
    }
}

impl LogLimit {
    /// Takes a line at a time: the number of lines that were left out before it; `None` if it must be left out.
    pub fn take(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over =
            window.begin.is_none_or(|begin| now.duration_since(begin) >= Duration::from_secs(1));
        if is_over {
            (window.begin, window.reported) = (Some(now), 0);
        }
        if window.reported >= PER_SECOND {
            window.omitted += 1;
            return None;
        }
        window.reported += 1;
        Some(std::mem::take(&mut window.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_flood_is_counted_and_not_reported() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        let events =
            Events::new(Some(Box::new(move |event| into.lock().unwrap().push(event.clone()))));
        let refused = Event::Refused { client: Client::default(), reason: "full".to_owned() };
        let start = Instant::now();
        (0..1_000).for_each(|_| events.report_at(&refused, start));
        assert_eq!(seen.lock().unwrap().len(), PER_SECOND as usize);
        events.report_at(&refused, start + Duration::from_secs(1));
        let seen = seen.lock().unwrap();
        let omitted = Event::Omitted { count: 1_000 - u64::from(PER_SECOND) };
        assert_eq!(seen[PER_SECOND as usize..], [omitted, refused]);
    }
}
