//! Requests of the control socket on a set of filters: groups of changes, the log, and edits that take others back
//! (feature `control`).

mod passes;

use crate::{
    Author, Edit, EditRecord, Edited, Edits, FilterError, GroupError, InForce, RecordedChange,
    UndoError,
};
use fyke_control::{Change, EditAuthor, Label, LogEntry, LoggedChange, Peer, Request, Response};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Most characters of a text in the log.
const LOGGED_CHARS: usize = 1_000;
/// Most notes in one answer.
const MAX_NOTES: usize = 20;

/// Executes a request that edits filters or shows their log; returns any other request.
pub fn handle(
    filters: &dyn Edits,
    request: Request,
    peer: Option<&Peer>,
) -> Result<Response, Request> {
    let started = Instant::now();
    let author = peer.map(author).unwrap_or_default();
    let of_one = |refused: GroupError| refusal(refused.error);
    let (edited, undone) = match request {
        Request::Set { text } => (one(filters, Change::Set { text }, author).map_err(of_one), None),
        Request::Add { text } => {
            let change = Change::Add { text, name: None, for_ms: None, snaplen: None };
            (one(filters, change, author).map_err(of_one), None)
        }
        Request::Delete { id } => {
            (one(filters, Change::Delete { id }, author).map_err(of_one), None)
        }
        Request::Edit { changes } => match edit(filters, &changes, author) {
            Ok(edited) => (Ok(edited), None),
            Err(GroupError { error: FilterError::Space(message), .. }) => {
                return Ok(Response::Failed { message });
            }
            Err(GroupError { place, error }) => {
                return Ok(Response::Refused { change: place, message: error.to_string() });
            }
        },
        Request::Undo { epoch } => match filters.undo(epoch, author) {
            Ok((of, edited)) => (Ok(edited), Some(of)),
            Err(UndoError::Refused(error)) => (Err(refusal(error)), None),
            Err(error) => (Err(Response::Error { message: error.to_string() }), None),
        },
        Request::Log { last } => return Ok(log(filters, last)),
        Request::Passes { calls, node } => {
            let edited = passes::edit(filters, node.as_deref(), &calls, author, started);
            return edited.ok_or(Request::Passes { calls, node });
        }
        other => return Err(other),
    };
    let latency_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(match edited {
        Ok(Edited { epoch, ids }) => {
            let ids: Vec<_> = ids.into_iter().flatten().collect();
            let undone = undone.map(|of| undone_notes(filters, of, epoch)).unwrap_or_default();
            let notes = undone.into_iter().chain(notes(filters, &ids)).collect();
            Response::Ok { epoch, ids, latency_ns, notes }
        }
        Err(response) => response,
    })
}

/// Notes on an undo: the edit that it takes back, and filters that it does not add again.
fn undone_notes(filters: &dyn Edits, of: u64, epoch: u64) -> Vec<String> {
    let over = |(id, name): (u64, Option<Arc<str>>)| {
        let name = name.map(|name| format!(" {name}")).unwrap_or_default();
        format!("filter {id}{name} is not added again: its time is over")
    };
    let left_out = filters.left_out(epoch).into_iter().map(over);
    let notes = std::iter::once(format!("takes back epoch {of}")).chain(left_out);
    bounded(notes.collect())
}

/// The author of the edits of a client.
pub fn author(peer: &Peer) -> Author {
    let program = peer.program.as_deref().map(Arc::from);
    Author::Client { uid: peer.uid, pid: peer.pid, program }
}

fn one(filters: &dyn Edits, change: Change, author: Author) -> Result<Edited, GroupError> {
    edit(filters, &[change], author)
}

/// The answer to an edit that was not made: it is wrong, or could not be made now.
fn refusal(error: FilterError) -> Response {
    match error {
        FilterError::Space(message) => Response::Failed { message },
        other => Response::Error { message: other.to_string() },
    }
}

fn edit(filters: &dyn Edits, changes: &[Change], author: Author) -> Result<Edited, GroupError> {
    let label = |change: &Change| match change {
        Change::Add { name, for_ms, snaplen, .. } => crate::Label {
            name: name.as_deref().map(Arc::from),
            lifetime: for_ms.map(Duration::from_millis),
            snaplen: *snaplen,
        },
        _ => crate::Label::default(),
    };
    let labels: Vec<_> = changes.iter().map(label).collect();
    let changes: Vec<_> = changes.iter().map(borrowed).collect();
    filters.edit_as(&Edit { changes: &changes, labels: &labels, author })
}

fn borrowed(change: &Change) -> crate::Change<'_> {
    match change {
        Change::Add { text, .. } => crate::Change::Add(text),
        Change::Set { text } => crate::Change::Set(text),
        Change::Delete { id } => crate::Change::Remove(*id),
    }
}

/// Notes on filters that were added: those that are slow, and those with a text that is in force already.
pub fn notes(filters: &dyn Edits, ids: &[u64]) -> Vec<String> {
    bounded(filters.remarks(ids))
}

fn bounded(mut notes: Vec<String>) -> Vec<String> {
    if notes.len() > MAX_NOTES {
        let more = notes.len() - MAX_NOTES;
        notes.truncate(MAX_NOTES);
        notes.push(format!("{more} more notes of this kind"));
    }
    notes
}

fn log(filters: &dyn Edits, last: Option<u64>) -> Response {
    let last = last.map_or(usize::MAX, |last| usize::try_from(last).unwrap_or(usize::MAX));
    let log = filters.log(last);
    let trackers = log.trackers.unwrap_or_default();
    Response::Log {
        entries: log.records.iter().map(|record| entry(record, &trackers)).collect(),
        forgotten: log.forgotten,
    }
}

fn entry(record: &EditRecord, trackers: &str) -> LogEntry {
    LogEntry {
        epoch: record.epoch,
        edits: record.edits,
        unix_ms: unix_ms(record.at),
        author: match &record.author {
            Author::Client { uid, pid, program } => EditAuthor::Client {
                uid: *uid,
                pid: *pid,
                program: program.as_deref().map(str::to_owned),
            },
            Author::Program => EditAuthor::Program,
            Author::Tracker => EditAuthor::Tracker { name: trackers.to_owned() },
            Author::Resumed => EditAuthor::Resumed,
            Author::Expiry => EditAuthor::Expiry,
        },
        accepted: record.accepted,
        changes: record.changes.iter().map(change).collect(),
        more_changes: record.more_changes as u64,
        undoes: record.undoes,
        undone: record.undone,
        pause: record.pause,
        calls: record.calls,
    }
}

fn change(change: &RecordedChange) -> LoggedChange {
    LoggedChange {
        added: change.added,
        id: change.id,
        text: change.text.chars().take(LOGGED_CHARS).collect(),
        chars: change.text.chars().count() as u64,
        label: change.label.as_ref().map(label),
        accepted: change.accepted,
    }
}

/// The name and time of a filter for clients.
pub fn label(label: &InForce) -> Label {
    Label {
        name: label.name.as_deref().map(str::to_owned),
        expires_unix_ms: label.expires.map(unix_ms),
        snaplen: label.snaplen,
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
