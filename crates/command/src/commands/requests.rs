//! Requests of the control socket on the texts of a command: the filters of a capture, filters in the kernel, or
//! graphs.

use fyke_control::{Request, Response, Stats};
use std::fmt::Display;
use std::time::Instant;

/// Current texts that clients can show and edit.
pub trait Editable {
    /// Reason for refusing an edit.
    type Error: Display;

    /// Replaces all texts by this one; returns its number, if it has one.
    fn set(&self, text: &str) -> Result<Option<u64>, Self::Error>;

    /// Adds a text; returns its number.
    fn add(&self, text: &str) -> Result<u64, Self::Error>;

    /// Removes a text.
    fn remove(&self, id: u64) -> Result<(), Self::Error>;

    /// Number of edits applied.
    fn epoch(&self) -> u64;

    /// Returns notes on an edit that returned these numbers.
    fn notes(&self, ids: &[u64]) -> Vec<String>;

    /// Returns the texts with their passes.
    fn show(&self) -> Response;

    /// Returns all counters.
    fn stats(&self) -> Stats;

    /// Runs a command for the rules of a pre-filter.
    fn rules(&self, command: &str) -> Response;
}

/// Executes a request.
pub fn handle(texts: &impl Editable, request: Request) -> Response {
    let started = Instant::now();
    let edited = match request {
        Request::Set { text } => texts.set(&text).map(|id| id.into_iter().collect()),
        Request::Add { text } => texts.add(&text).map(|id| vec![id]),
        Request::Delete { id } => texts.remove(id).map(|()| Vec::new()),
        Request::Show => return texts.show(),
        Request::Rules { command } => return texts.rules(&command),
        Request::Stats | Request::Describe | Request::Watch { .. } => {
            return Response::Stats(texts.stats());
        }
    };
    let latency_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    match edited {
        Ok(ids) => {
            let notes = texts.notes(&ids);
            Response::Ok { epoch: texts.epoch(), ids, latency_ns, notes }
        }
        Err(error) => Response::Error { message: error.to_string() },
    }
}
