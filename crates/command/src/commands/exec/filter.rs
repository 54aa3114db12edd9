//! Filter of `fyke exec`: its texts in the kernel, and the sockets that it applies to.
//!
//! A socket gets the program before it can receive a frame. Only the program's processes hold its sockets, so a socket
//! is closed when they close it. To change the program of all sockets, fyke searches for them again. Until the first
//! edit, the sockets may keep the program's own filter; then nothing is counted.

use super::super::Failure;
use super::super::requests::{self, Editable};
use super::super::{counts, edits};
use super::rules::ExecRules;
use fyke_control::{
    Accounting, Controlled, Description, EntryKind, FilterCount, FilterPasses, OwnFilter,
    PassCount, Peer, Request, Response, Stats,
};
use fyke_filters::{
    ByHand, CallsRefused, Change, Edits, FilterView, GroupError, HandCalls, KernelFilters, Ledger,
    Logged, Planned, SocketError,
};
use fyke_frame::LinkType;
use fyke_kernel::{Form, PacketSocket, family, sockets};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The filter of a program, which can be shown and edited.
#[derive(Debug)]
pub struct ExecFilter {
    filters: KernelFilters,
    rules: Option<ExecRules>,
    /// Held while a socket gets its program and while an edit is applied, so that no edit can come in between.
    policy: Mutex<Policy>,
    description: Description,
    started: Instant,
    ledger: Ledger,
}

/// Sockets that the filter applies to.
#[derive(Debug)]
struct Policy {
    /// Number of packet sockets so far.
    sockets: u64,
    /// Largest number of bytes that a program's own filter keeps of a frame.
    keeps: u32,
    /// Text of the filter that the program was started with, if it is known.
    own_text: Option<String>,
    /// Remark on the last edit.
    remark: Option<String>,
    /// True once the sockets run our program; before that they keep their own filter.
    active: bool,
}

impl ExecFilter {
    /// Loads the program. Without a text, the sockets keep their filter until the first edit.
    pub fn new(
        command: &[OsString],
        text: Option<&str>,
        own_text: Option<String>,
        rules: Option<ExecRules>,
    ) -> Result<ExecFilter, Failure> {
        let filters = KernelFilters::open(LinkType::EN10MB).map_err(|error| {
            let what = "this kernel cannot run the filter; fyke dump filters in user space";
            anyhow::anyhow!("{what}: {}", error.brief())
        })?;
        if filters.form() == Form::Callbacks {
            note!("fyke: using the slower form of the kernel program, for Linux before 6.9");
        }
        let first = text.filter(|text| !text.trim().is_empty());
        if let Some(text) = first {
            filters.add(text).map_err(|error| Failure::Usage(error.to_string()))?;
        }
        if let Some(rules) = &rules {
            rules.precede(&filters)?;
        }
        let ledger = Ledger::new(first, filters.epoch());
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let source = format!("packet sockets of `{}`", words.join(" "));
        let description = Description::of_this_process(source, LinkType::EN10MB.to_string());
        let owned = rules.as_ref().and_then(ExecRules::owned);
        Ok(ExecFilter {
            filters,
            rules,
            policy: Mutex::new(Policy {
                sockets: 0,
                keeps: 0,
                own_text,
                remark: None,
                active: text.is_some(),
            }),
            description: Description { rules: owned, ..description },
            started: Instant::now(),
            ledger,
        })
    }

    /// Lets texts have a limited time.
    pub fn own_ledger(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.ledger.belongs_to(weak);
    }

    /// Called once the program has been started.
    pub fn begin(&self) {
        self.rules.iter().for_each(ExecRules::begin);
    }

    fn lock(&self) -> MutexGuard<'_, Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the filter to a socket that cannot receive yet, then calls `receive`; no edit can come in between.
    pub fn take(
        &self,
        socket: &PacketSocket,
        receive: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut policy = self.lock();
        let link = socket.link().map_err(unknown_link)?;
        self.attach(&policy, socket, link, 0)?;
        receive()?;
        policy.sockets += 1;
        Ok(())
    }

    /// Attaches the filter for the link type that a socket is about to be bound to, then binds the socket.
    pub fn bind(
        &self,
        socket: &PacketSocket,
        address: &[u8],
        bind: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let policy = self.lock();
        // The kernel itself refuses an address without an interface.
        match socket.link_when_bound(address) {
            Ok(link) => {
                self.attach(&policy, socket, link, PacketSocket::interface_of(address))?;
            }
            Err(error) if error.raw_os_error().is_some() => {}
            Err(error) => return Err(unknown_link(error)),
        }
        bind()
    }

    /// Applies the program's change of its own filter: to its socket while that keeps its own filter, else to an unused
    /// socket. `change` returns the number of bytes that the program keeps of a frame.
    pub fn own_filter(&self, change: impl FnOnce(bool) -> io::Result<u32>) -> io::Result<()> {
        let mut policy = self.lock();
        let keeps = change(policy.active)?;
        if keeps > policy.keeps {
            policy.keeps = keeps;
            self.filters.set_accept(keeps);
        }
        Ok(())
    }

    /// Compiles passes that have been stable for a while.
    pub fn tune(&self) {
        let policy = self.lock();
        if !policy.active || policy.sockets == 0 {
            return;
        }
        // A socket with rules has the program of the rules; that gets the new one.
        let without_rules = |each: &mut dyn FnMut(&PacketSocket)| {
            for_each_socket(&mut |socket| {
                if !self.has_rules(socket, socket.interface().unwrap_or(0)) {
                    each(socket);
                }
            });
        };
        if let Err(error) = self.filters.tune(without_rules) {
            note!("fyke: a socket keeps its current filter program: {error}");
        }
    }

    /// Number of packet sockets so far.
    pub fn socket_count(&self) -> u64 {
        self.lock().sockets
    }

    /// Formats the counts.
    pub fn summary(&self) -> String {
        let stats = self.stats();
        if let Some(why) = stats.no_counts {
            return why;
        }
        if stats.own_filter.is_some() {
            return "the program's own filter was used; its frames are not counted".to_owned();
        }
        let (accounting, sockets) = (stats.accounting, self.socket_count());
        let mut text = String::new();
        let _infallible = writeln!(
            text,
            "{} seen in the kernel = {} accepted + {} rejected{}; {}; {sockets} packet sockets",
            accounting.seen,
            accounting.delivered,
            accounting.rejected,
            counts::parts(&[(accounting.rejected_by_rules, "by rules")]),
            edits::counted(stats.epoch)
        );
        for FilterCount { id, accepted, text: of, kind, .. } in stats.filters {
            let _infallible = match kind {
                EntryKind::Filter => writeln!(text, "  filter {id}: {accepted} {of}"),
                _ => writeln!(text, "  {of}: {accepted}"),
            };
        }
        text
    }

    /// True if a socket that is bound to an interface, or about to be, reads rules.
    fn has_rules(&self, socket: &PacketSocket, interface: u32) -> bool {
        let of_link =
            |link| self.rules.as_ref().is_some_and(|it| it.are_for(socket, interface, link));
        socket.link().is_ok_and(of_link)
    }

    /// Attaches to a socket the program for its link type, or the rules of its interface, which precede it.
    fn attach(
        &self,
        policy: &Policy,
        socket: &PacketSocket,
        link: LinkType,
        interface: u32,
    ) -> io::Result<()> {
        if !policy.active {
            return Ok(());
        }
        if let Some(rules) =
            self.rules.as_ref().filter(|rules| rules.are_for(socket, interface, link))
        {
            return rules.attach(socket);
        }
        self.filters.attach(socket.as_fd(), link).map_err(|error: SocketError| {
            note!("fyke: a packet socket is refused: {error}");
            io::Error::other(error)
        })
    }

    /// Applies an edit. The first edit replaces the sockets' own filters by ours.
    fn edit(&self, changes: &[Change<'_>]) -> Result<(), GroupError> {
        // Compile before taking the lock, because the program's calls wait for it.
        let lowered = self.filters.lower(changes)?;
        let mut policy = self.lock();
        self.filters.apply(lowered, ByHand::Stay)?;
        self.activate(&mut policy);
        Ok(())
    }

    /// Puts our filter in place of the program's own, after the first edit. It is in force on the sockets that take it.
    fn activate(&self, policy: &mut Policy) {
        let attached = policy.active || policy.sockets == 0;
        policy.active = true;
        policy.remark = match attached {
            true => None,
            false => self.attach_all(policy).err().map(|error| error.to_string()),
        };
    }

    fn attach_all(&self, policy: &Policy) -> anyhow::Result<()> {
        let mut refused = Ok(());
        for_each_socket(&mut |socket| {
            let link = socket.link().map_err(unknown_link);
            let interface = socket.interface().unwrap_or(0);
            let attached = link.and_then(|link| self.attach(policy, socket, link, interface));
            if let Err(error) = attached {
                refused = Err(anyhow::anyhow!("a socket keeps the program's own filter: {error}"));
            }
        });
        refused
    }

    fn accounting(&self) -> Accounting {
        let tallies = self.filters.tallies();
        let delivered = tallies.accepted + tallies.unfiltered;
        let rejected_by_rules = self.rules.as_ref().map(ExecRules::rejected);
        let rejected = tallies.rejected + tallies.capped + rejected_by_rules.unwrap_or(0);
        Accounting {
            seen: delivered + rejected,
            delivered,
            rejected,
            rejected_by_rules,
            ..Accounting::default()
        }
    }
}

impl Policy {
    /// Returns the reason why there are no counts.
    fn why_no_counts(&self) -> Option<String> {
        (self.sockets == 0)
            .then(|| "no packet socket has been opened, so there are no counts".to_owned())
    }

    /// Returns the program's own filter while that is in use.
    fn own_filter(&self) -> Option<OwnFilter> {
        (!self.active).then(|| OwnFilter { text: self.own_text.clone(), sockets: None })
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

/// Converts a text with its passes; with several link types, each pass names its own.
fn passes_of(view: FilterView, kind: EntryKind) -> FilterPasses {
    let several = view.passes.iter().map(|pass| pass.link).collect::<BTreeSet<_>>().len() > 1;
    let passes = view.passes.into_iter().map(|pass| {
        let text = if several { format!("{}: {}", pass.link, pass.text) } else { pass.text };
        PassCount { id: pass.id, text, accepted: pass.accepted }
    });
    FilterPasses {
        id: view.filter.id,
        text: view.filter.text.to_string(),
        kind,
        accepted: view.filter.accepted,
        label: None,
        passes: passes.collect(),
    }
}

impl Logged for ExecFilter {
    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn put(&self, edit: &Planned<'_>) -> Result<HashMap<u64, u64>, GroupError> {
        let before = if edit.removes() { self.accepted() } else { HashMap::new() };
        self.edit(edit.changes)?;
        Ok(before)
    }

    fn accepted(&self) -> HashMap<u64, u64> {
        self.filters.counts().into_iter().map(|count| (count.id, count.accepted)).collect()
    }

    fn epoch(&self) -> u64 {
        self.filters.epoch()
    }

    fn remarks(&self) -> Vec<String> {
        self.lock().remark.iter().cloned().collect()
    }

    fn accepts_all(&self) -> bool {
        self.lock().active && self.filters.is_empty() && self.filters.made_by_calls().is_none()
    }

    fn edit_passes(
        &self,
        node: Option<&str>,
        calls: &mut HandCalls<'_>,
    ) -> Option<Result<Vec<u64>, CallsRefused>> {
        if let Some(name) = node {
            let message = format!("node {name:?}: fyke exec has one filter; name no node");
            return Some(Err(CallsRefused::Whole(message)));
        }
        let mut policy = self.lock();
        let made = self.filters.edit_by_calls(calls);
        if made.is_ok() {
            self.activate(&mut policy);
        }
        Some(made)
    }
}

impl Editable for ExecFilter {
    fn logged(&self) -> Result<&dyn Edits, &'static str> {
        Ok(self)
    }

    fn epoch(&self) -> u64 {
        self.filters.epoch()
    }

    fn show(&self) -> Response {
        let policy = self.lock();
        let labels = self.ledger.labels();
        let filters = self.filters.view().into_iter().map(|view| {
            let label = labels.get(&view.filter.id).map(edits::label);
            FilterPasses { label, ..passes_of(view, EntryKind::Filter) }
        });
        let by_hand = self.filters.made_by_calls();
        let filters = filters.chain(by_hand.map(|view| passes_of(view, EntryKind::Tracker)));
        Response::Passes {
            epoch: self.filters.epoch(),
            filters: filters.collect(),
            nodes: Vec::new(),
            own_filter: policy.own_filter(),
            no_counts: policy.why_no_counts(),
            kernel: None,
        }
    }

    fn stats(&self) -> Stats {
        let policy = self.lock();
        let labels = self.ledger.labels();
        let count = |filter: fyke_filters::FilterCount, kind| FilterCount {
            id: filter.id,
            text: filter.text.to_string(),
            kind,
            accepted: filter.accepted,
            label: labels.get(&filter.id).map(edits::label),
        };
        let texts = self.filters.counts().into_iter();
        let by_hand = self.filters.made_by_calls().map(|view| view.filter).into_iter();
        // The kernel continues to count meanwhile, so the total is read last: it is never less than the sum of the
        // counts read before.
        let filters = texts.map(|filter| count(filter, EntryKind::Filter));
        let filters = filters.chain(by_hand.map(|filter| count(filter, EntryKind::Tracker)));
        let accepted = self.filters.removed();
        let removed = (accepted > 0).then(|| FilterCount {
            text: "frames of filters that have been removed".to_owned(),
            kind: EntryKind::Removed,
            accepted,
            ..FilterCount::default()
        });
        let filters = filters.chain(removed).collect();
        Stats {
            epoch: self.filters.epoch(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            accounting: self.accounting(),
            filters,
            nodes: Vec::new(),
            own_filter: policy.own_filter(),
            no_counts: policy.why_no_counts(),
            ..Stats::default()
        }
    }

    fn rules(&self, _interface: Option<&str>, command: &str) -> Response {
        let message = "this fyke exec reads no rules; start it with --rules IF";
        let none = || Response::Error { message: message.to_owned() };
        self.rules.as_ref().map_or_else(none, |rules| rules.command(command))
    }
}

impl Controlled for ExecFilter {
    fn handle(&self, request: Request) -> Response {
        requests::handle(self, request, None)
    }

    fn handle_from(&self, request: Request, peer: &Peer) -> Response {
        requests::handle(self, request, Some(peer))
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
