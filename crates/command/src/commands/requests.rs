//! Requests of the control socket on the texts of a command: the filters of a capture, filters in the kernel, or
//! graphs.

use super::edits;
use fyke_control::{Peer, Request, Response, Stats};
use fyke_filters::FilterSet;
use fyke_graph::GraphHandle;
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

    /// The graph, if frames run through one.
    fn graph(&self) -> Option<&GraphHandle> {
        None
    }

    /// The filters, if their edits are logged.
    fn logged(&self) -> Option<&FilterSet> {
        None
    }
}

/// Executes a request of a client.
pub fn handle(texts: &impl Editable, request: Request, peer: Option<&Peer>) -> Response {
    let started = Instant::now();
    let request = match texts.logged() {
        Some(filters) => match edits::handle(filters, request, peer) {
            Ok(response) => return response,
            Err(other) => other,
        },
        None => request,
    };
    let edited = match request {
        Request::Set { text } => texts.set(&text).map(|id| id.into_iter().collect()),
        Request::Add { text } => texts.add(&text).map(|id| vec![id]),
        Request::Delete { id } => texts.remove(id).map(|()| Vec::new()),
        Request::Show => return texts.show(),
        Request::Rules { command } => return texts.rules(&command),
        Request::Edit { .. } | Request::Undo { .. } | Request::Log { .. } => {
            return Response::Error { message: edits::NO_LOG.to_owned() };
        }
        Request::Passes { .. } => {
            return Response::Error { message: edits::NO_PASSES.to_owned() };
        }
        Request::Pause | Request::Start => {
            return match texts.graph() {
                Some(graph) => {
                    let by = peer.map(|peer| (peer, texts.logged()));
                    pause(graph, request == Request::Pause, by, texts.epoch(), started)
                }
                None => Response::Error { message: edits::NO_PAUSE.to_owned() },
            };
        }
        Request::PauseReader { .. } => {
            let message = "it has no readers; `fyke serve` has. Without a number, pause and start are for the program";
            return Response::Error { message: message.to_owned() };
        }
        Request::Try { .. } | Request::Why { .. } | Request::Save { .. } => {
            return Response::Error { message: edits::NO_FRAMES.to_owned() };
        }
        Request::Stats | Request::Describe | Request::Hello { .. } | Request::Watch { .. } => {
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

/// Pauses a running graph, or lets it continue, by a client that is known; logged where edits are.
pub fn pause(
    handle: &GraphHandle,
    paused: bool,
    by: Option<(&Peer, Option<&FilterSet>)>,
    epoch: u64,
    started: Instant,
) -> Response {
    let changed = handle.pause(paused);
    let note = match (paused, changed) {
        (true, true) => {
            "paused: frames that arrive are lost (paused), files wait; `fyke ctl start` continues"
        }
        (true, false) => "it was paused already",
        (false, true) => "it continues",
        (false, false) => "it was not paused",
    };
    if changed {
        let author = by.map(|(peer, filters)| (edits::author(peer), filters));
        let name = author.as_ref().map_or("a client".to_owned(), |(author, _)| author.to_string());
        // Standard error of the capture must tell why frames are lost.
        note!("fyke: {} by {name}", if paused { "paused" } else { "continued" });
        if let Some((author, Some(filters))) = author {
            filters.log_pause(paused, author);
        }
    }
    let latency_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Response::Ok { epoch, ids: Vec::new(), latency_ns, notes: vec![note.to_owned()] }
}
