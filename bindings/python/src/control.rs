//! The control socket of a named capture: `fyke ctl`, and `LiveFilter` of other programs, show and edit its filter.

use crate::errors::Failure;
use fyke::control::{
    Accounting, Controlled, Description, EntryKind, FilterCount, FilterPasses, PassCount, Request,
    Response, Server, StartError, Stats,
};
use fyke::filters::{Change, FilterSet};
use fyke::graph::GraphHandle;
use std::sync::Arc;
use std::time::Instant;

/// Most characters of a name.
const MAX_NAME: usize = 200;

/// A capture that clients edit.
struct Named {
    filters: FilterSet,
    handle: GraphHandle,
    description: Description,
}

/// Serves the control socket of this process for a capture.
///
/// # Errors
/// The name is not one, there is no folder for the socket, or another capture of this process has it.
pub fn serve(
    (name, source, live): (&str, &str, bool),
    filters: FilterSet,
    handle: GraphHandle,
) -> Result<Server, Failure> {
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(Failure::Value(format!(
            "name has 1 to {MAX_NAME} characters and no control characters, not {name:?}"
        )));
    }
    let link = filters.reading().0.link.to_string();
    let description = Description::of_this_process(format!("{name} ({source})"), link);
    let description = Description { live, ..description };
    Server::start(Arc::new(Named { filters, handle, description })).map_err(|error| match error {
        StartError::Taken { .. } => Failure::Value(
            "name: another capture of this process has a name; one can be edited from outside"
                .into(),
        ),
        error => Failure::Capture(error.to_string()),
    })
}

impl Named {
    fn counts(&self) -> Vec<FilterCount> {
        let (counts, kind) = (self.filters.counts().into_iter(), EntryKind::Filter);
        let entry = |one: fyke::filters::FilterCount| FilterCount {
            id: one.id,
            text: one.text.to_string(),
            kind,
            accepted: one.accepted,
            label: None,
        };
        counts.map(entry).collect()
    }

    fn passes(&self) -> Response {
        let views = self.filters.view().into_iter().map(|view| FilterPasses {
            id: view.filter.id,
            text: view.filter.text.to_string(),
            accepted: view.filter.accepted,
            passes: view
                .passes
                .into_iter()
                .map(|pass| PassCount { id: pass.id, text: pass.text, accepted: pass.accepted })
                .collect(),
            ..FilterPasses::default()
        });
        Response::Passes {
            epoch: self.filters.epoch(),
            filters: views.collect(),
            nodes: Vec::new(),
            own_filter: None,
            no_counts: None,
            kernel: None,
        }
    }

    fn stats(&self) -> Stats {
        let view = self.handle.snapshot();
        let outcome = &view.outcome;
        let lost = outcome.lost.iter().map(|(why, count)| (why.to_string(), *count)).collect();
        Stats {
            epoch: self.filters.epoch(),
            uptime_ms: u64::try_from(view.elapsed.as_millis()).unwrap_or(u64::MAX),
            accounting: Accounting {
                seen: outcome.seen(),
                delivered: outcome.accepted,
                rejected: outcome.rejected,
                taken: outcome.taken,
                lost,
                ..Accounting::default()
            },
            filters: self.counts(),
            paused: self.handle.is_paused(),
            ..Stats::default()
        }
    }

    /// Makes changes as one edit.
    fn edit(&self, changes: &[Change<'_>]) -> Response {
        let started = Instant::now();
        match self.filters.edit(changes) {
            Ok(ids) => Response::Ok {
                epoch: self.filters.epoch(),
                ids: ids.into_iter().flatten().collect(),
                latency_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
                notes: Vec::new(),
            },
            Err(refused) if changes.len() > 1 => {
                Response::Refused { change: refused.place, message: refused.error.to_string() }
            }
            Err(refused) => Response::Error { message: refused.error.to_string() },
        }
    }

    fn edit_group(&self, changes: &[fyke::control::Change]) -> Response {
        use fyke::control::Change as Asked;
        let mut own = Vec::with_capacity(changes.len());
        for change in changes {
            own.push(match change {
                Asked::Add { text, name: None, for_ms: None, snaplen: None } => Change::Add(text),
                Asked::Set { text } => Change::Set(text),
                Asked::Delete { id } => Change::Remove(*id),
                Asked::Add { .. } => {
                    let message = "filters of a Python program have no name, time or snap length";
                    return Response::Error { message: message.to_owned() };
                }
            });
        }
        self.edit(&own)
    }

    fn pause(&self, paused: bool) -> Response {
        let changed = self.handle.pause(paused);
        let notes = if changed { Vec::new() } else { vec!["nothing has changed".to_owned()] };
        Response::Ok { epoch: self.filters.epoch(), ids: Vec::new(), latency_ns: 0, notes }
    }
}

impl Controlled for Named {
    fn handle(&self, request: Request) -> Response {
        match request {
            Request::Add { text } => self.edit(&[Change::Add(&text)]),
            Request::Set { text } => self.edit(&[Change::Set(&text)]),
            Request::Delete { id } => self.edit(&[Change::Remove(id)]),
            Request::Edit { changes } => self.edit_group(&changes),
            Request::Show => self.passes(),
            Request::Stats => Response::Stats(self.stats()),
            Request::Pause => self.pause(true),
            Request::Start => self.pause(false),
            _ => {
                let message = "a Python program does not do this; it takes set, add, del, batch, show, \
                               stats, watch, pause and start";
                Response::Error { message: message.to_owned() }
            }
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
