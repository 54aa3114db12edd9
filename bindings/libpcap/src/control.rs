//! The control socket of a program: `fyke ctl` shows and edits the filter of its first open handle.
//!
//! It is opened with the handle and closed with it. `FYKE_PCAP_CONTROL=0` leaves it out.

use crate::fork::NoFork;
use crate::live::Live;
use crate::sys;
use fyke_control::{
    Controlled, Description, EntryKind, FilterPasses, PassCount, Peer, Request, Response, Server,
    Stats,
};
use fyke_filters::clients;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Variable that leaves the control socket out if it is 0.
pub const VARIABLE: &str = "FYKE_PCAP_CONTROL";

/// The socket, and the capture that it is for.
struct Open {
    /// The process that opened it.
    pid: u32,
    live: Arc<Live>,
    server: Server,
}

fn open() -> MutexGuard<'static, Option<Open>> {
    static OPEN: Mutex<Option<Open>> = Mutex::new(None);
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the socket for a capture, if no other one has it. A program that cannot have one runs without.
pub fn begin(live: &Arc<Live>) {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "0") {
        return;
    }
    let _no_fork = NoFork::begin();
    let mut open = open();
    let pid = std::process::id();
    if let Some(other) = open.take_if(|open| open.pid != pid) {
        // The threads of the parent are not in this process, and its socket is not this one's to remove.
        std::mem::forget(other.server);
    }
    if open.is_some() {
        return;
    }
    let door = Arc::new(Door(Arc::clone(live)));
    if let Ok(server) = sys::without_signals(|| Server::start(door)) {
        *open = Some(Open { pid, live: Arc::clone(live), server });
    }
}

/// Closes the socket, if it is for this capture.
pub fn end(live: &Arc<Live>) {
    let ended = {
        let _no_fork = NoFork::begin();
        open().take_if(|open| Arc::ptr_eq(&open.live, live))
    };
    match ended {
        Some(ended) if ended.pid != std::process::id() => std::mem::forget(ended.server),
        // The server waits for its thread, which may need nothing that this one holds.
        Some(ended) => drop(ended),
        None => {}
    }
}

/// A capture as clients see it.
struct Door(Arc<Live>);

impl Door {
    fn show(&self) -> Response {
        let Stats { epoch, own_filter, .. } = self.0.stats();
        let labels = self.0.filters().labels();
        let passes = |view: fyke_filters::FilterView| FilterPasses {
            id: view.filter.id,
            text: view.filter.text.to_string(),
            kind: EntryKind::Filter,
            accepted: view.filter.accepted,
            label: labels.get(&view.filter.id).map(clients::label),
            passes: view
                .passes
                .into_iter()
                .map(|pass| PassCount { id: pass.id, text: pass.text, accepted: pass.accepted })
                .collect(),
        };
        let filters = self.0.filters().view().into_iter().map(passes).collect();
        let (nodes, no_counts, kernel) = (Vec::new(), None, None);
        Response::Passes { epoch, filters, nodes, own_filter, no_counts, kernel }
    }

    fn answer(&self, request: Request, peer: Option<&Peer>) -> Response {
        let _no_fork = NoFork::begin();
        match clients::handle(&*self.0, request, peer) {
            Ok(response) => response,
            Err(Request::Show) => self.show(),
            Err(Request::Stats) => Response::Stats(self.0.stats()),
            Err(_) => {
                let message = "this is a program of libpcap on fyke: it has show, set, add, del, batch, undo, log, \
                               stats and watch";
                Response::Error { message: message.to_owned() }
            }
        }
    }
}

impl Controlled for Door {
    fn handle(&self, request: Request) -> Response {
        self.answer(request, None)
    }

    fn handle_from(&self, request: Request, peer: &Peer) -> Response {
        self.answer(request, Some(peer))
    }

    fn describe(&self) -> Description {
        Description { pid: std::process::id(), ..self.0.description().clone() }
    }
}
