//! The filter of `fyke exec`: texts, their passes, the kernel's copy of them, and the sockets that run it.

use super::super::Failure;
use anyhow::Context;
use fyke_control::{
    Accounting, Controlled, Description, FilterCount, FilterPasses, PassCount, Request, Response,
    Stats,
};
use fyke_filter::{Options, Predicate};
use fyke_frame::LinkType;
use fyke_kernel::{ClassicFilter, Mirror, PacketSocket, Space, Tuner};
use fyke_pass::{FilterId, PassSet};
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
    /// The sockets run our program; before that they keep their own filter.
    active: bool,
}

impl KernelFilter {
    /// Loads the program. Without a text the sockets keep their filter until the first edit.
    pub fn new(command: &[OsString], text: Option<&str>) -> Result<KernelFilter, Failure> {
        let space = Space::open(fyke_kernel::Options::default())
            .context("there is no kernel space here; fyke dump filters in user space")?;
        let state = State {
            space,
            tuner: Tuner::default(),
            mirror: Mirror::default(),
            passes: PassSet::new(LinkType::EN10MB),
            sockets: Vec::new(),
            refused: HashSet::new(),
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
        if !socket.has_link_header() {
            state.refused.insert(inode);
            eprintln!("fyke: a cooked socket (-i any) keeps the program's own filter");
            return;
        }
        if own.keeps > 0 {
            state.space.passes().set_accept(own.keeps);
        }
        if state.active
            && let Err(error) = state.space.attach(std::os::fd::AsFd::as_fd(&socket))
        {
            state.refused.insert(inode);
            eprintln!("fyke: a socket keeps the program's own filter: {error}");
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
            eprintln!("fyke: a socket keeps the program it has: {error}");
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
    /// Adds a filter, or puts it in the place of all there are; an empty text accepts every frame.
    fn add(&mut self, text: &str, alone: bool) -> Result<Vec<u64>, String> {
        let options = Options { link: self.passes.link(), ..Options::default() };
        let predicate = fyke_filter::compile(text, &options).map_err(|error| error.to_string())?;
        self.check(&predicate)?;
        let before: Vec<FilterId> = self.passes.filters().map(|filter| filter.id).collect();
        let mut edit = self.passes.edit();
        for &id in before.iter().filter(|_| alone) {
            edit.remove_filter(id).map_err(|error| error.to_string())?;
        }
        let mut ids = Vec::new();
        if !text.trim().is_empty() {
            ids.push(edit.add_filter(&predicate).map_err(|error| error.to_string())?);
        }
        edit.commit();
        if let Err(error) = self.publish() {
            // No room: the kernel still runs what it ran, and what was added goes away again.
            return Err(self.take_back(&ids, error));
        }
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    /// Whether the text can run in the kernel; asked before anything is changed.
    fn check(&self, predicate: &Predicate) -> Result<(), String> {
        let mut trial = PassSet::new(self.passes.link());
        let mut edit = trial.edit();
        edit.add_filter(predicate).map_err(|error| error.to_string())?;
        edit.commit();
        let mut passes = trial.passes();
        let checked = passes.try_for_each(|pass| self.space.view().check(pass.instructions));
        checked.map_err(|error| error.to_string())
    }

    fn remove(&mut self, id: u64) -> Result<(), String> {
        let mut edit = self.passes.edit();
        edit.remove_filter(FilterId(id)).map_err(|error| error.to_string())?;
        edit.commit();
        self.publish()
    }

    fn take_back(&mut self, ids: &[FilterId], error: String) -> String {
        let mut edit = self.passes.edit();
        for &id in ids {
            if let Err(other) = edit.remove_filter(id) {
                return format!("{error} ({other})");
            }
        }
        edit.commit();
        error
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

    fn filters(&self) -> Vec<FilterCount> {
        let shown = self.shown().into_iter();
        shown
            .map(|filter| FilterCount {
                id: filter.id,
                text: filter.text,
                accepted: filter.accepted,
            })
            .collect()
    }

    fn shown(&self) -> Vec<FilterPasses> {
        let filters = self.passes.filters().map(|filter| {
            let passes: Vec<PassCount> = filter
                .passes()
                .map(|pass| {
                    let tests: Vec<_> = pass.describe().map(|test| test.to_string()).collect();
                    let accepted = self.mirror.accepted(self.space.view(), pass.id).unwrap_or(0);
                    PassCount { id: pass.id.0, text: tests.join(" and "), accepted }
                })
                .collect();
            let accepted = passes.iter().map(|pass| pass.accepted).sum();
            FilterPasses { id: filter.id.0, text: filter.text().to_owned(), accepted, passes }
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
                return Response::Passes { epoch: state.passes.epoch().0, filters: state.shown() };
            }
            Request::Rules { .. } => {
                let message = "a filter in the kernel has no pre-filter".to_owned();
                return Response::Error { message };
            }
            Request::Stats | Request::Describe | Request::Watch { .. } => {
                return Response::Stats(Stats {
                    epoch: state.passes.epoch().0,
                    uptime_ms: self.started.elapsed().as_millis() as u64,
                    accounting: state.accounting(),
                    filters: state.filters(),
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
