//! Requests of the control socket on the texts of a command: the filters of a capture, filters in the kernel, or
//! graphs.

use super::edits;
use fyke_control::{Peer, Request, Response, Stats};
use fyke_filters::Edits;
use fyke_graph::GraphHandle;
use std::time::Instant;

/// Current texts that clients can show and edit.
pub trait Editable {
    /// The texts with the log of their edits, or the reason why clients cannot edit them.
    fn logged(&self) -> Result<&dyn Edits, &'static str>;

    /// Number of edits applied.
    fn epoch(&self) -> u64;

    /// Returns the texts with their passes.
    fn show(&self) -> Response;

    /// Returns all counters.
    fn stats(&self) -> Stats;

    /// Runs a command for the rules of a pre-filter, of an interface if there are several.
    fn rules(&self, interface: Option<&str>, command: &str) -> Response;

    /// The graph, if frames run through one.
    fn graph(&self) -> Option<&GraphHandle> {
        None
    }
}

/// Executes a request of a client.
pub fn handle(texts: &impl Editable, request: Request, peer: Option<&Peer>) -> Response {
    let started = Instant::now();
    let request = match texts.logged() {
        Ok(logged) => match edits::handle(logged, request, peer) {
            Ok(response) => return response,
            Err(other) => other,
        },
        Err(_) => request,
    };
    let refused = |message: &str| Response::Error { message: message.to_owned() };
    match request {
        Request::Show => texts.show(),
        Request::Rules { command, interface } => texts.rules(interface.as_deref(), &command),
        Request::Pause | Request::Start => match texts.graph() {
            Some(graph) => {
                let by = peer.map(|peer| (peer, texts.logged().ok()));
                pause(graph, request == Request::Pause, by, texts.epoch(), started)
            }
            None => refused(edits::NO_PAUSE),
        },
        Request::Passes { .. } => refused(texts.logged().err().unwrap_or(edits::NO_PASSES)),
        Request::PauseReader { .. } => refused(
            "it has no readers; `fyke serve` has. Without a number, pause and start are for the program",
        ),
        Request::Try { .. }
        | Request::Why { .. }
        | Request::Frames { .. }
        | Request::Save { .. } => refused(edits::NO_FRAMES),
        Request::Load => refused(edits::NO_RULES),
        Request::Stats | Request::Describe | Request::Hello { .. } | Request::Watch { .. } => {
            Response::Stats(texts.stats())
        }
        Request::Set { .. }
        | Request::Add { .. }
        | Request::Delete { .. }
        | Request::Edit { .. }
        | Request::Undo { .. }
        | Request::Log { .. } => refused(texts.logged().err().unwrap_or(edits::NO_LOG)),
    }
}

/// Pauses a running graph, or lets it continue, by a client that is known; logged where edits are.
pub fn pause(
    handle: &GraphHandle,
    paused: bool,
    by: Option<(&Peer, Option<&dyn Edits>)>,
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
