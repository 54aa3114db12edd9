//! Filter of `fyke exec`: its texts, and a kernel program for each link type of the sockets.
//!
//! A socket gets the program before it can receive a frame. Only the program's processes hold its sockets, so a socket
//! is closed when they close it. To change the program of all sockets, fyke searches for them again.

use super::super::Failure;
use super::link::{LinkFilter, Text};
use anyhow::Context;
use fyke_control::{
    Accounting, Controlled, Description, EntryKind, FilterCount, FilterPasses, OwnFilter, Request,
    Response, Stats,
};
use fyke_frame::LinkType;
use fyke_graph::FilterError;
use fyke_kernel::{Form, PacketSocket, Space, family, sockets};
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A filter in the kernel that can be shown and edited.
#[derive(Debug)]
pub struct KernelFilter {
    state: Mutex<State>,
    description: Description,
    started: Instant,
}

#[derive(Debug)]
struct State {
    /// One filter for each link type that a socket has had; the one for Ethernet exists from the start.
    links: Vec<LinkFilter>,
    texts: Vec<Text>,
    last_id: u64,
    edits: u64,
    /// Packet sockets so far.
    sockets: u64,
    /// Largest number of bytes that a program's own filter keeps of a frame.
    keeps: u32,
    /// Text of the filter that the program was started with, if it is known.
    own_text: Option<String>,
    /// True once the sockets run our program; before that they keep their own filter.
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
            .context("this kernel cannot run the filter; fyke dump filters in user space")?;
        if space.form() == Form::Callbacks {
            note!("fyke: using the slower form of the kernel program, for Linux before 6.9");
        }
        let ethernet = LinkFilter::new(space, LinkType::EN10MB, &[]).map_err(Failure::Usage)?;
        let mut state = State {
            links: vec![ethernet],
            texts: Vec::new(),
            last_id: 0,
            edits: 0,
            sockets: 0,
            keeps: 0,
            own_text,
            active: text.is_some(),
        };
        if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
            state.add(text, false).map_err(Failure::Usage)?;
        }
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let source = format!("packet sockets of `{}`", words.join(" "));
        Ok(KernelFilter {
            state: Mutex::new(state),
            description: Description::of_this_process(source, LinkType::EN10MB.to_string()),
            started: Instant::now(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the filter to a socket that cannot receive yet, then calls `receive`; no edit can come in between.
    pub fn take(
        &self,
        socket: &PacketSocket,
        receive: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        let link = socket.link().map_err(unknown_link)?;
        state.attach(socket, link)?;
        receive()?;
        state.sockets += 1;
        Ok(())
    }

    /// Attaches the filter for the link type that a socket is about to be bound to, then binds the socket.
    pub fn bind(
        &self,
        socket: &PacketSocket,
        address: &[u8],
        bind: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        // The kernel itself refuses an address without an interface.
        match socket.link_when_bound(address) {
            Ok(link) => state.attach(socket, link)?,
            Err(error) if error.raw_os_error().is_some() => {}
            Err(error) => return Err(unknown_link(error)),
        }
        bind()
    }

    /// Applies the program's change of its own filter: to its socket while that keeps its own filter, else to an unused
    /// socket. `change` returns the number of bytes that the program keeps of a frame.
    pub fn own_filter(&self, change: impl FnOnce(bool) -> io::Result<u32>) -> io::Result<()> {
        let mut state = self.lock();
        let keeps = change(state.active)?;
        if keeps > state.keeps {
            state.keeps = keeps;
            state.links.iter_mut().for_each(|link| link.set_accept(keeps));
        }
        Ok(())
    }

    /// Compiles passes that have been stable for a while.
    pub fn tune(&self) {
        let State { links, active, sockets, .. } = &mut *self.lock();
        if !*active || *sockets == 0 {
            return;
        }
        for link in links {
            if let Err(error) = link.tune(for_each_socket) {
                note!("fyke: a socket keeps its current filter program: {error}");
            }
        }
    }

    /// Packet sockets so far.
    pub fn socket_count(&self) -> u64 {
        self.lock().sockets
    }

    /// Formats the counts.
    pub fn summary(&self) -> String {
        let state = self.lock();
        if let Some(why) = state.why_no_counts() {
            return why;
        }
        if !state.active {
            return "the program's own filter was used; its frames are not counted".to_owned();
        }
        let accounting = state.accounting();
        let mut text = String::new();
        let _infallible = writeln!(
            text,
            "{} seen in the kernel = {} accepted + {} rejected; {} edits; {} packet sockets",
            accounting.seen, accounting.delivered, accounting.rejected, state.edits, state.sockets
        );
        for filter in state.shown() {
            let _infallible =
                writeln!(text, "  filter {}: {} {}", filter.id, filter.accepted, filter.text);
        }
        text
    }
}

/// Calls `each` with every packet socket of the program and its descendants.
fn for_each_socket(each: &mut dyn FnMut(&PacketSocket)) {
    sockets::for_each(&family::descendants(std::process::id()), each);
}

fn unknown_link(error: io::Error) -> io::Error {
    note!("fyke: a packet socket is refused: {error}");
    io::ErrorKind::Unsupported.into()
}

impl State {
    /// Attaches to a socket the program for its link type.
    fn attach(&mut self, socket: &PacketSocket, link: LinkType) -> io::Result<()> {
        if !self.active {
            return Ok(());
        }
        self.of_link(link)
            .and_then(|link| link.attach(socket).map_err(|error| error.to_string()))
            .map_err(|why| {
                note!("fyke: a packet socket is refused: {why}");
                io::Error::other(why)
            })
    }

    /// Returns the filter for a link type; makes it for the first socket of that type.
    fn of_link(&mut self, link: LinkType) -> Result<&mut LinkFilter, String> {
        let place = match self.links.iter().position(|one| one.link() == link) {
            Some(place) => place,
            None => {
                let space = Space::open(fyke_kernel::Options::default());
                let space = space.map_err(|error| error.to_string())?;
                let mut made = LinkFilter::new(space, link, &self.texts)?;
                if self.keeps > 0 {
                    made.set_accept(self.keeps);
                }
                self.links.push(made);
                self.links.len() - 1
            }
        };
        Ok(&mut self.links[place])
    }

    /// Adds a filter, or replaces all filters by it; an empty text accepts every frame.
    fn add(&mut self, text: &str, alone: bool) -> Result<Vec<u64>, String> {
        let mut texts = if alone { Vec::new() } else { self.texts.clone() };
        let mut ids = Vec::new();
        if !text.trim().is_empty() {
            ids.push(self.last_id + 1);
            texts.push(Text { id: self.last_id + 1, text: text.to_owned() });
        }
        self.change_to(texts)?;
        self.last_id += ids.len() as u64;
        Ok(ids)
    }

    fn remove(&mut self, id: u64) -> Result<(), String> {
        let mut texts = self.texts.clone();
        texts.retain(|text| text.id != id);
        if texts.len() == self.texts.len() {
            return Err(format!("there is no filter {id}"));
        }
        if texts.is_empty() {
            return Err(FilterError::LastFilter(id).to_string());
        }
        self.change_to(texts)
    }

    /// Makes an edit for all link types, or for none if one refuses it.
    fn change_to(&mut self, texts: Vec<Text>) -> Result<(), String> {
        let changed = self.links.iter_mut().try_for_each(|link| link.change_to(&texts));
        if let Err(error) = changed {
            let back = self.links.iter_mut().try_for_each(|link| link.change_to(&self.texts));
            return Err(match back {
                Ok(()) => error,
                Err(other) => format!("{error} ({other})"),
            });
        }
        self.texts = texts;
        self.edits += 1;
        if self.active || self.sockets == 0 {
            self.active = true;
            return Ok(());
        }
        // The first edit replaces the sockets' own filters by ours.
        self.active = true;
        let mut refused = Ok(());
        for_each_socket(&mut |socket| {
            let link = socket.link().map_err(unknown_link);
            if let Err(error) = link.and_then(|link| self.attach(socket, link)) {
                refused = Err(format!("a socket keeps the program's own filter: {error}"));
            }
        });
        refused
    }

    /// Returns the reason why there are no counts.
    fn why_no_counts(&self) -> Option<String> {
        if self.sockets == 0 {
            return Some("no packet socket has been opened, so there are no counts".to_owned());
        }
        None
    }

    /// Returns the program's own filter while that is in use.
    fn own_filter(&self) -> Option<OwnFilter> {
        (!self.active).then(|| OwnFilter { text: self.own_text.clone(), sockets: None })
    }

    fn accounting(&self) -> Accounting {
        let mut sum = Accounting::default();
        for tallies in self.links.iter().map(LinkFilter::tallies) {
            sum.delivered += tallies.accepted + tallies.unfiltered;
            sum.rejected += tallies.rejected + tallies.capped;
        }
        sum.seen = sum.delivered + sum.rejected;
        sum
    }

    /// Returns the texts with the counts of all link types.
    fn shown(&self) -> Vec<FilterPasses> {
        let several = self.links.len() > 1;
        let of = |text: &Text| {
            let mut whole = FilterPasses {
                id: text.id,
                text: text.text.clone(),
                kind: EntryKind::Filter,
                accepted: 0,
                passes: Vec::new(),
            };
            for (place, link) in self.links.iter().enumerate() {
                let Some(shown) = link.shown(text.id) else { continue };
                whole.accepted += shown.accepted;
                whole.passes.extend(shown.passes.into_iter().map(|mut pass| {
                    if several {
                        pass.text = format!("{}: {}", link.link(), pass.text);
                    }
                    // Each link type numbers its passes from 1; renumber them to be distinct.
                    pass.id |= (place as u64) << 32;
                    pass
                }));
            }
            whole
        };
        self.texts.iter().map(of).collect()
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
                    epoch: state.edits,
                    filters: state.shown(),
                    nodes: Vec::new(),
                    own_filter: state.own_filter(),
                    no_counts: state.why_no_counts(),
                };
            }
            Request::Rules { .. } => {
                let message = "a filter in the kernel has no pre-filter".to_owned();
                return Response::Error { message };
            }
            Request::Stats | Request::Describe | Request::Watch { .. } => {
                let count = |filter: FilterPasses| FilterCount {
                    id: filter.id,
                    text: filter.text,
                    kind: filter.kind,
                    accepted: filter.accepted,
                };
                // The kernel continues to count meanwhile, so the total is read last: it is never less than the sum of
                // the counts read before.
                let filters = state.shown().into_iter().map(count).collect();
                return Response::Stats(Stats {
                    epoch: state.edits,
                    uptime_ms: self.started.elapsed().as_millis() as u64,
                    accounting: state.accounting(),
                    filters,
                    nodes: Vec::new(),
                    own_filter: state.own_filter(),
                    no_counts: state.why_no_counts(),
                });
            }
        };
        let latency_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match edited {
            Ok(ids) => Response::Ok { epoch: state.edits, ids, latency_ns, notes: Vec::new() },
            Err(message) => Response::Error { message },
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
