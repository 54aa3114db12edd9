//! Texts of another process, over its control socket.

use super::Listed;
use crate::errors::Failure;
use fyke::control::{self, Client, EntryKind, Instance, Request, Response, Stats};
use fyke::filters::Change;

/// A connection to a running fyke.
pub struct Remote(Client);

impl Remote {
    /// Connects to the fyke with this process id.
    pub fn of_process(pid: u32) -> Result<Remote, Failure> {
        let mut client = Client::connect(Some(pid))?;
        client.hello("python")?;
        Ok(Remote(client))
    }

    /// Connects to the only running fyke with this source.
    pub fn named(name: &str) -> Result<Remote, Failure> {
        let all = control::list();
        let is_named = |one: &&Instance| {
            one.description.as_ref().is_some_and(|about| has_name(&about.source, name))
        };
        let found: Vec<_> = all.iter().filter(is_named).collect();
        let table = |all: &[&Instance]| {
            let row = |one: &&Instance| {
                let source = one.description.as_ref().map_or("", |about| about.source.as_str());
                format!("\n{:>8}  {source}", one.pid)
            };
            all.iter().map(row).collect::<String>()
        };
        match found[..] {
            [one] => Remote::of_process(one.pid),
            [] if all.is_empty() => Err(Failure::Capture(format!(
                "no running fyke of this user has the source {name:?}: none is running"
            ))),
            [] => Err(Failure::Capture(format!(
                "no running fyke of this user has the source {name:?}; running are:{}",
                table(&all.iter().collect::<Vec<_>>())
            ))),
            _ => Err(Failure::Capture(format!(
                "{} running fykes have the source {name:?}; give the process id of one:{}",
                found.len(),
                table(&found)
            ))),
        }
    }

    fn call(&mut self, request: Request) -> Result<Response, Failure> {
        Ok(self.0.call(request)?)
    }

    /// Makes the changes as one edit.
    pub fn edit(&mut self, changes: &[Change<'_>]) -> Result<Vec<Option<u64>>, Failure> {
        let requested = changes.iter().map(|change| match *change {
            Change::Add(text) => control::Change::Add {
                text: text.to_owned(),
                name: None,
                for_ms: None,
                snaplen: None,
            },
            Change::Set(text) => control::Change::Set { text: text.to_owned() },
            Change::Remove(id) => control::Change::Delete { id },
        });
        let response = match *changes {
            // Programs without a log of edits take single changes.
            [Change::Add(text)] => self.call(Request::Add { text: text.to_owned() }),
            [Change::Set(text)] => self.call(Request::Set { text: text.to_owned() }),
            [Change::Remove(id)] => self.call(Request::Delete { id }),
            _ => self.call(Request::Edit { changes: requested.collect() }),
        }?;
        match response {
            Response::Ok { ids, .. } => {
                let mut ids = ids.into_iter();
                let gives = |change: &Change<'_>| match change {
                    Change::Add(_) => true,
                    Change::Set(text) => !text.trim().is_empty(),
                    Change::Remove(_) => false,
                };
                Ok(changes.iter().map(|one| if gives(one) { ids.next() } else { None }).collect())
            }
            Response::Refused { change, message } => {
                Err(Failure::Filter(format!("change {change}: {message}"), None))
            }
            other => Err(unexpected(&other)),
        }
    }

    fn stats(&mut self) -> Result<Stats, Failure> {
        match self.call(Request::Stats)? {
            Response::Stats(stats) => Ok(stats),
            other => Err(unexpected(&other)),
        }
    }

    /// The texts.
    pub fn listed(&mut self) -> Result<Listed, Failure> {
        let filters = self.stats()?.filters.into_iter();
        let own = filters.filter(|one| matches!(one.kind, EntryKind::Filter | EntryKind::Graph));
        Ok(own.map(|one| (one.id, one.text, one.accepted)).collect())
    }

    /// Number of edits.
    pub fn epoch(&mut self) -> Result<u64, Failure> {
        Ok(self.stats()?.epoch)
    }
}

/// True if a source has this name: `eth0`, or `dns` of `dns (eth0)`.
fn has_name(source: &str, name: &str) -> bool {
    source == name || source.strip_prefix(name).is_some_and(|rest| rest.starts_with(" ("))
}

fn unexpected(response: &Response) -> Failure {
    Failure::Capture(format!("the running fyke answers with {response:?}"))
}
