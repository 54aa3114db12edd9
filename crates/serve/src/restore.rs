//! Takes up the readers that the process before this one has served.
//!
//! ```text
//! texts into the filter set, new rings ─▶ filter in the kernel, engine ─▶ graphs ─▶ frames flow ─▶ readers are told
//! ```
//!
//! A reader with changed rights, or one that this version cannot serve, is ended with the reason.

use crate::message::{Counts, HANDED_ON, Response, VERSIONS};
use crate::policy::{Peer, Policy, Terms};
use crate::service::{Service, Texts};
use crate::store::{KeptReader, Saved, Store};
use crate::table::{Descriptors, Elsewhere, Log, Resuming};
use crate::wire::send_json;
use fyke_ring::Waker;
use rustix::net::sockopt;
use rustix::process::geteuid;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A reader that continues.
#[derive(Debug)]
pub struct Restored {
    pub(crate) number: u64,
    pub(crate) link: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) pid: u32,
    pub(crate) terms: Terms,
    pub(crate) buffers: Descriptors,
    pub(crate) texts: Texts,
    pub(crate) saved: Saved,
    pub(crate) file: File,
    /// First entry of its new index.
    pub(crate) from: u64,
    /// Number of its graph, once it runs.
    pub(crate) graph: Option<u64>,
}

/// All readers that continue.
#[derive(Debug, Default)]
pub struct Restoration {
    pub(crate) readers: Vec<Restored>,
    /// The text that has the kernel pass every frame until the graphs of readers run.
    pub(crate) widened: Option<u64>,
}

impl Restoration {
    /// Number of readers.
    pub fn len(&self) -> usize {
        self.readers.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }
}

/// The process at the other end of a connection, and its id.
pub(crate) fn peer_of(socket: &OwnedFd) -> Result<(Peer, u32), String> {
    let peer = sockopt::socket_peercred(socket);
    let peer = peer.map_err(|error| format!("cannot read your user: {error}"))?;
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    let process = fyke_privilege::user::peer_process(socket).ok();
    Ok((Peer { user: peer.uid.as_raw(), group: peer.gid.as_raw(), process }, pid))
}

/// Restores the readers of a store, after the graph of the service was opened and before its filter is placed. Frames
/// wait until [`Server::start_with`](crate::Server::start_with) has the result.
pub fn restore(
    service: &Service,
    policy: &Policy,
    store: &Store,
    kept: Vec<KeptReader>,
) -> Restoration {
    let resumed = store.resumed();
    let evaluated = resumed.map_or(0, |(delivered, _, _)| delivered);
    if let Some(mut table) = service.table() {
        table.keep_log(Arc::clone(store.memory()), evaluated);
    }
    let mut all = Restoration::default();
    for one in kept {
        let (number, link) = (one.number, one.link.try_clone());
        let refused = match resumed {
            Some(resumed) => match restore_one(service, policy, store, one, resumed) {
                Ok(restored) => {
                    all.readers.push(restored);
                    continue;
                }
                Err(refused) => refused,
            },
            None => "the service captures anew, because its interface or its options have changed"
                .to_owned(),
        };
        store.forget(number, usize::MAX);
        let ended = Response::Ended { counts: Counts::default(), reason: refused };
        let _gone = link.map(|link| send_json(&link, &ended, &[], Duration::from_millis(1)));
    }
    if all.readers.iter().any(|one| one.saved.graph.is_some()) {
        all.widened = service.widen();
        store.capture().wait(true);
    }
    all
}

/// Counts on after the frames that processes before this one did not evaluate, once the filter in the kernel is placed
/// and the [service has begun](Service::begin). `below` is what the filter of the process before has counted; `None` if
/// its counters cannot be read. The counters of this one's filter are kept from now on.
///
/// # Errors
/// The service manager does not answer.
pub fn count_on(
    service: &Service,
    store: &Store,
    below: Option<u64>,
    kept_maps: usize,
) -> io::Result<()> {
    let lower = service.lower();
    let maps = lower.map_or_else(Vec::new, |lower| lower.count_maps());
    store.keep_counts(&maps, kept_maps)?;
    // A filter that does not count, or without kept counters.
    let is_blind = lower.is_some_and(|lower| lower.rejected().is_none()) || maps.is_empty();
    match store.resumed() {
        None => store.set_below(0, lower.is_some() && is_blind),
        Some((_, before, lost)) => {
            let before = Elsewhere {
                below: before.below + below.unwrap_or(0),
                is_partial: before.is_partial || below.is_none(),
                ..before
            };
            store.set_below(before.below, before.is_partial || (lower.is_some() && is_blind));
            service.goes_on(before, lost);
        }
    }
    Ok(())
}

fn restore_one(
    service: &Service,
    policy: &Policy,
    store: &Store,
    one: KeptReader,
    (delivered, _, lost): (u64, Elsewhere, u64),
) -> Result<Restored, String> {
    let KeptReader { number, link, index, waker, text: file, saved } = one;
    if saved.version < HANDED_ON || !VERSIONS.contains(&saved.version) {
        return Err("this version of the service does not speak the protocol of its reader".into());
    }
    let (peer, pid) = peer_of(&link)?;
    let ours = fyke_privilege::user::owner_of_new_files();
    let interface = service.interface().map_or("", |interface| &interface.name);
    let terms = policy.terms(peer, ours.unwrap_or_else(|| geteuid().as_raw()), interface)?;
    if !store.take_slot(saved.slot) {
        return Err("the log of the service has no place for it".to_owned());
    }
    let (pushed, refused) = fyke_ring::ended_at(index).map_err(|error| error.to_string())?;
    let evaluated = (delivered, lost > 0);
    let log = Log::read(store.memory(), saved.slot, evaluated, (pushed, refused));
    let waker = waker.map(|(page, event)| Waker::take_up(page, event)).transpose();
    let from = Resuming {
        number,
        pushed,
        refused: log.refused,
        had: log.had,
        is_paused: saved.is_paused,
        meter: saved.meter,
        own: saved.graph.is_some().then_some(log.own),
        waker: waker.map_err(|error| error.to_string())?,
        slot: saved.slot,
    };
    let has_graph = saved.graph.is_some();
    let restored = service.restore(peer.user, &terms, saved.snaplen, has_graph, from, &saved.texts);
    let (buffers, texts) = restored.map_err(|refused| refused.to_string())?;
    if let Err(error) = store.keep_index(number, buffers[1].as_fd()) {
        service.leave(number, &texts);
        return Err(format!("the service manager does not keep it: {error}"));
    }
    Ok(Restored {
        number,
        link,
        peer,
        pid,
        terms,
        buffers,
        texts,
        saved,
        file,
        from: pushed,
        graph: None,
    })
}
