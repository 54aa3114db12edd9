//! The filter of `fyke exec`: texts, their passes, the kernel's copy of them, and the sockets that run it.

use super::super::Failure;
use anyhow::Context;
use fyke_control::{
    Accounting, Controlled, Description, EntryKind, FilterCount, FilterPasses, OwnFilter,
    PassCount, Request, Response, Stats,
};
use fyke_filter::{Options, Predicate};
use fyke_frame::LinkType;
use fyke_kernel::{ClassicFilter, Form, Mirror, PacketSocket, Space, Tuner};
use fyke_pass::{FilterId, PassSet, PassView};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A filter in the kernel that can be looked at and edited.
#[derive(Debug)]
pub struct KernelFilter {
    state: Mutex<State>,
    description: Description,
    started: Instant,
}

#[derive(Debug)]
struct State {
    space: Space,
    /// What has been stable for a while runs as a program of its own.
    tuner: Tuner,
    mirror: Mirror,
    passes: PassSet,
    sockets: Vec<PacketSocket>,
    refused: HashSet<u64>,
    /// The text of the filter that the program was started with, where it is known.
    own_text: Option<String>,
    /// The sockets run our program; before that they keep their own filter.
    active: bool,
}

impl KernelFilter {
    /// Loads the program. Without a text the sockets keep their filter until the first edit.
    pub fn new(
        command: &[OsString],
        text: Option<&str>,
        own_text: Option<String>,
    ) -> Result<KernelFilter, Failure> {
        let space = Space::open(fyke_kernel::Options::default())
            .context("there is no kernel space here; fyke dump filters in user space")?;
        if space.form() == Form::Callbacks {
            note!("fyke: the form of the program for Linux before 6.9 runs, which is slower");
        }
        let state = State {
            space,
            tuner: Tuner::default(),
            mirror: Mirror::default(),
            passes: PassSet::new(LinkType::EN10MB),
            sockets: Vec::new(),
            refused: HashSet::new(),
            own_text,
            active: text.is_some(),
        };
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let source = format!("packet sockets of `{}`", words.join(" "));
        let filter = KernelFilter {
            state: Mutex::new(state),
            description: Description::of_this_process(source, LinkType::EN10MB.to_string()),
            started: Instant::now(),
        };
        if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
            filter.lock().add(text, false).map_err(Failure::Usage)?;
        }
        Ok(filter)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the socket is one of ours.
    pub fn knows(&self, inode: u64) -> bool {
        self.lock().sockets.iter().any(|socket| socket.inode == inode)
    }

    /// Whether the socket was found to be none for us.
    pub fn refused(&self, inode: u64) -> bool {
        self.lock().refused.contains(&inode)
    }

    /// Takes a socket over, or says why not.
    pub fn take(&self, socket: PacketSocket, own: ClassicFilter) {
        let mut state = self.lock();
        let inode = socket.inode;
        if let Err(why) = state.read_for(&socket) {
            state.refused.insert(inode);
            note!("fyke: a socket keeps the program's own filter: {why}");
            return;
        }
        if own.keeps > 0 {
            state.space.passes().set_accept(own.keeps);
        }
        if state.active
            && let Err(error) = state.space.attach(std::os::fd::AsFd::as_fd(&socket))
        {
            state.refused.insert(inode);
            note!("fyke: a socket keeps the program's own filter: {error}");
            return;
        }
        state.sockets.push(socket);
    }

    /// Does what is due for passes that have been stable for a while.
    pub fn tune(&self) {
        let State { space, tuner, sockets, active, .. } = &mut *self.lock();
        if !*active {
            return;
        }
        let sockets: Vec<_> = sockets.iter().map(std::os::fd::AsFd::as_fd).collect();
        if let Err(error) = tuner.step(space, &sockets) {
            note!("fyke: a socket keeps the program it has: {error}");
        }
    }

    /// The counts for people.
    pub fn summary(&self) -> String {
        let state = self.lock();
        let accounting = state.accounting();
        let mut text = String::new();
        let _infallible = writeln!(
            text,
            "{} seen in the kernel = {} accepted + {} rejected; {} edits",
            accounting.seen,
            accounting.delivered,
            accounting.rejected,
            state.passes.epoch()
        );
        for filter in state.filters() {
            let _infallible =
                writeln!(text, "  filter {}: {} {}", filter.id, filter.accepted, filter.text);
        }
        text
    }
}

impl State {
    /// Reads the texts for the frames of a socket, when it is the first one.
    fn read_for(&mut self, socket: &PacketSocket) -> Result<(), String> {
        let link = socket.link().map_err(|error| error.to_string())?;
        if link == self.passes.link() {
            return Ok(());
        }
        if !self.sockets.is_empty() {
            return Err(format!("its frames are {link}, those of others {}", self.passes.link()));
        }
        let space = Space::open(fyke_kernel::Options::default());
        let mut other = State {
            space: space.map_err(|error| error.to_string())?,
            tuner: Tuner::default(),
            mirror: Mirror::default(),
            passes: PassSet::new(link),
            sockets: Vec::new(),
            refused: std::mem::take(&mut self.refused),
            own_text: self.own_text.clone(),
            active: self.active,
        };
        for filter in self.passes.filters() {
            other.add(filter.text(), false)?;
        }
        // Whatever the texts: it has to know what the sockets hand over.
        let synced = other.mirror.sync(other.space.passes(), &other.passes);
        synced.map_err(|error| error.to_string())?;
        *self = other;
        Ok(())
    }

    /// Adds a filter, or puts it in the place of all there are; an empty text accepts every frame.
    fn add(&mut self, text: &str, alone: bool) -> Result<Vec<u64>, String> {
        let predicate = self.compile(text)?;
        self.check(&predicate)?;
        let before: Vec<(FilterId, String)> = match alone {
            true => self.passes.filters().map(|one| (one.id, one.text().to_owned())).collect(),
            false => Vec::new(),
        };
        let mut edit = self.passes.edit();
        for (id, _) in &before {
            edit.remove_filter(*id).map_err(|error| error.to_string())?;
        }
        let mut ids = Vec::new();
        if !text.trim().is_empty() {
            ids.push(edit.add_filter(&predicate).map_err(|error| error.to_string())?);
        }
        edit.commit();
        if let Err(error) = self.publish() {
            // No room: the kernel still runs what it ran. What was added goes away again, what was there is back.
            let before: Vec<String> = before.into_iter().map(|(_, text)| text).collect();
            return Err(self.take_back(&ids, &before, error));
        }
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    /// Reads a text as for a live capture: tags may be in a frame's metadata, frames have a direction.
    fn compile(&self, text: &str) -> Result<Predicate, String> {
        let options = Options { link: self.passes.link(), live: true, ..Options::default() };
        fyke_filter::compile(text, &options).map_err(|error| error.to_string())
    }

    /// Whether the text can run in the kernel; asked before anything is changed.
    fn check(&self, predicate: &Predicate) -> Result<(), String> {
        let mut trial = PassSet::new(self.passes.link());
        let mut edit = trial.edit();
        edit.add_filter(predicate).map_err(|error| error.to_string())?;
        edit.commit();
        Mirror::check(self.space.view(), &trial).map_err(|error| error.to_string())
    }

    fn remove(&mut self, id: u64) -> Result<(), String> {
        let mut edit = self.passes.edit();
        edit.remove_filter(FilterId(id)).map_err(|error| error.to_string())?;
        edit.commit();
        self.publish()
    }

    /// Undoes an edit of the set that the kernel has refused.
    fn take_back(&mut self, ids: &[FilterId], before: &[String], error: String) -> String {
        let texts: Result<Vec<Predicate>, String> =
            before.iter().map(|text| self.compile(text)).collect();
        let mut edit = self.passes.edit();
        let removed = ids.iter().try_for_each(|&id| edit.remove_filter(id));
        let mut done = removed.map_err(|other| other.to_string());
        for text in texts.iter().flatten() {
            done = done.and(edit.add_filter(text).map(|_| ()).map_err(|other| other.to_string()));
        }
        edit.commit();
        match texts.map(|_| ()).and(done).and_then(|()| self.publish()) {
            Ok(()) => error,
            Err(other) => format!("{error} ({other})"),
        }
    }

    /// Brings the kernel up to date, and the program to the sockets when this is the first edit.
    fn publish(&mut self) -> Result<(), String> {
        let passes = self.space.passes();
        self.mirror.sync(passes, &self.passes).map_err(|error| error.to_string())?;
        if !self.active {
            self.active = true;
            for socket in &self.sockets {
                let attached = self.space.attach(std::os::fd::AsFd::as_fd(socket));
                attached.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn accounting(&self) -> Accounting {
        let tallies = self.space.tallies();
        let delivered = tallies.accepted + tallies.unfiltered;
        let rejected = tallies.rejected + tallies.capped;
        Accounting { seen: delivered + rejected, delivered, rejected, ..Accounting::default() }
    }

    /// Who judges where our program does not run.
    fn own_filter(&self) -> Option<OwnFilter> {
        let text = self.own_text.clone();
        match (self.active, self.refused.len()) {
            (false, _) => Some(OwnFilter { text, sockets: None }),
            (true, 0) => None,
            (true, count) => Some(OwnFilter { text, sockets: Some(count as u64) }),
        }
    }

    fn filters(&self) -> Vec<FilterCount> {
        let shown = self.shown().into_iter();
        shown
            .map(|filter| FilterCount {
                id: filter.id,
                text: filter.text,
                kind: filter.kind,
                accepted: filter.accepted,
            })
            .collect()
    }

    fn shown(&self) -> Vec<FilterPasses> {
        let (counts, in_order, rows) = (
            self.mirror.accepted(self.space.view()),
            self.mirror.accepted_in_order(self.space.view()),
            self.mirror.rows(self.space.view()),
        );
        let filters = self.passes.filters().map(|filter| {
            let describe = |pass: &PassView<'_>| {
                let tests: Vec<_> = pass.describe().map(|test| test.to_string()).collect();
                tests.join(" and ")
            };
            let own = filter.passes().filter_map(|pass| {
                let accepted = *counts.get(&pass.id)?;
                Some(PassCount { id: pass.id.0, text: describe(&pass), accepted })
            });
            let mut passes: Vec<PassCount> = own.collect();
            let own = rows.iter().filter(|rows| rows.filter == Some(filter.id));
            for (rows, first) in
                own.zip(filter.passes().filter(|pass| !counts.contains_key(&pass.id)))
            {
                let text = format!("{} passes in a table, as {}", rows.rows, describe(&first));
                passes.push(PassCount { id: first.id.0, text, accepted: rows.accepted });
            }
            if passes.is_empty() && !in_order.contains_key(&filter.id) {
                let shared = rows.iter().filter(|rows| rows.filter.is_none());
                let together: u64 = shared.map(|rows| rows.accepted).sum();
                if let Some(first) = filter.passes().next() {
                    let text = format!(
                        "{}: in a table with other filters, whose rows accepted {together}",
                        describe(&first)
                    );
                    passes.push(PassCount { id: first.id.0, text, accepted: 0 });
                }
            }
            if let Some(&accepted) = in_order.get(&filter.id) {
                let text = "in the text's own order".to_owned();
                passes.push(PassCount { id: 0, text, accepted });
            }
            let accepted = passes.iter().map(|pass| pass.accepted).sum();
            let (id, text) = (filter.id.0, filter.text().to_owned());
            FilterPasses { id, text, kind: EntryKind::Filter, accepted, passes }
        });
        filters.collect()
    }
}

impl Controlled for KernelFilter {
    fn handle(&self, request: Request) -> Response {
        let mut state = self.lock();
        let started = Instant::now();
        let edited = match request {
            Request::Set { text } => state.add(&text, true),
            Request::Add { text } => state.add(&text, false),
            Request::Delete { id } => state.remove(id).map(|()| Vec::new()),
            Request::Show => {
                return Response::Passes {
                    epoch: state.passes.epoch().0,
                    filters: state.shown(),
                    nodes: Vec::new(),
                    own_filter: state.own_filter(),
                };
            }
            Request::Rules { .. } => {
                let message = "a filter in the kernel has no pre-filter".to_owned();
                return Response::Error { message };
            }
            Request::Stats | Request::Describe | Request::Watch { .. } => {
                // The kernel counts on meanwhile: what is read last is never less than the sum of what was read first.
                let filters = state.filters();
                return Response::Stats(Stats {
                    epoch: state.passes.epoch().0,
                    uptime_ms: self.started.elapsed().as_millis() as u64,
                    accounting: state.accounting(),
                    filters,
                    nodes: Vec::new(),
                    own_filter: state.own_filter(),
                });
            }
        };
        let latency_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match edited {
            Ok(ids) => {
                Response::Ok { epoch: state.passes.epoch().0, ids, latency_ns, notes: Vec::new() }
            }
            Err(message) => Response::Error { message },
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
