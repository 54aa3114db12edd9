//! `fyke serve`: captures once for many programs, which open filters of their own and read frames in shared memory.
//!
//! It runs the graph `device > serve`. Readers connect to its socket ([`Server`]); the control socket shows the
//! readers, their texts, and the frames that they have not read yet or have lost ([`Live`]).

mod kept;
mod log;

use super::Failure;
use super::counts;
use super::dump::edit_hint;
use super::graphs;
use super::privilege::{Doors, Needs, Privileges};
use super::requests::{self, Editable};
use super::run::accounts;
use super::signals::{report_on_signal, stop_on_signals, stop_or_reload};
use super::space::Kernel;
use super::unseen::Unseen;
use crate::cli::{ServeArgs, SourceArgs};
use anyhow::Context;
use fyke_control::{
    Controlled, Description, EntryKind, FilterCount, FilterPasses, Request, Response, Stats,
};
use fyke_filters::Edits;
use fyke_graph::runtime::Opened;
use fyke_graph::{GraphHandle, GraphView};
use fyke_privilege::given;
use fyke_serve::message::Edited;
use fyke_serve::policy::{self, Names};
use fyke_serve::server::ReaderView;
use fyke_serve::service::Refused;
use fyke_serve::{Left, Listening, PlaceError, Policy, Server, Service};
use kept::Kept;
use log::Log;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Runs the command until a signal ends it.
pub fn run(args: ServeArgs) -> Result<(), Failure> {
    let source = source(&args)?;
    let log = Log::new(args.log);
    super::enter_namespace(&source)?;
    let interface = super::interface(&source)?;
    if interface.starts_with("ring:") || interface.starts_with("serve:") {
        return Err(Failure::Usage(format!(
            "-i {interface}: frames of another fyke are served by that one; name an interface"
        )));
    }
    let given = given::take().context("the descriptors of the service manager (LISTEN_FDS)")?;
    let (left, others) = Left::sort(given);
    let given = Listening::given(others).map_err(refused)?;
    let name = name(&args, &interface, given.as_ref())?;
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let mut kept = Kept::open(left)?;
    let service = Service::new();
    let mut opened = open(&source, &service)?;
    let policy = policy(&args, &service)?;
    // The texts of readers before the filter in the kernel, which would reject their frames.
    let restored = kept.restore(&service, &policy);
    opened.place(&Kernel { count_all: args.count_all });
    kept.keep_capture()?;
    let socket = given.map_or_else(|| Listening::open(&name), Ok).map_err(refused)?;
    let unseen = Unseen::start(opened.plan(), false);
    let doors = if args.no_control { Doors::Closed } else { Doors::Filters };
    let reads = args.config.as_deref().map_or_else(Vec::new, files_of);
    let mut needs = Needs::of(opened.plan(), doors);
    (needs.makes_memory, needs.reads) = (true, reads);
    let entered = privileges.enter(&needs)?;
    let (mut engine, handle) = opened.start().map_err(graphs::refused)?;
    // The failure of a node of a reader's graph ends that reader.
    engine.end_at_failure_of(graphs::SERVE);
    engine.on_notice(log.of_notices());
    entered.say_missing();
    service.begin(handle.clone());
    kept.count_on(&service)?;
    let clients = entered.clients();
    let (shared, report) = (Arc::clone(&service), Some(log.of_readers()));
    let server = Server::start_with(socket, shared, policy, kept.store(), restored, report)?;
    let live = Arc::new(Live {
        handle: handle.clone(),
        readers: Box::new(server.readers()),
        pause: Box::new(server.pause()),
        description: Description::of_this_process(interface.as_str(), link(&service)),
    });
    let control = match args.no_control {
        true => None,
        false => super::run::serve(&live, entered.sockets, true),
    };
    let hint = edit_hint(control.is_some().then_some(&*clients)).replace("edit:", "readers:");
    let link = link(&service);
    let text = format!("serving {interface}, link type {link}, as serve:{name}{hint}");
    log.say("serving", json!({"interface": interface, "link": link, "name": name}), &text);
    kept.ready(log)?;
    let stop = match args.config {
        None => stop_on_signals()?,
        Some(_) => {
            let (set, service) = (server.set_policy(), Arc::clone(&service));
            stop_or_reload(move || reload(&args, &service, &set, log))?
        }
    };
    let (seen, drops) = (handle.clone(), unseen.clone());
    report_on_signal(move || accounts(&seen.view()) + &drops.lines(true))?;
    let result = engine.run(&stop);
    drop(server);
    close(engine.view(), &unseen, log)?;
    Ok(result?)
}

/// Opens the graph of the service; nothing is placed in the kernel yet.
fn open(source: &SourceArgs, service: &Arc<Service>) -> Result<Opened, Failure> {
    let mut classes = graphs::classes();
    classes.register_with(fyke_serve::class::CLASS, fyke_serve::class::maker(service));
    fyke_serve::graph::register(&mut classes, service);
    let (capture, node) = (fyke_serve::graph::CAPTURE, graphs::SERVE);
    let device = graphs::plain_source(source, false)?;
    let text = format!("{{{capture}}}{device} > {{{node}}}({})", fyke_serve::class::NAME);
    GraphHandle::open(&[&text], classes, 1).map_err(graphs::refused)
}

/// Reports the sums at the end, and the failure of the service's own node.
fn close(mut view: GraphView, unseen: &Unseen, log: Log) -> Result<(), Failure> {
    let accounting = counts::accounting(&view);
    let sum = counts::sum(&accounting, 0, 0);
    log.say("end", json!({"accounting": accounting}), &sum);
    let unseen = unseen.lines(false);
    if !unseen.is_empty() {
        log.say("unseen", json!({}), unseen.trim_end());
    }
    // The failure of a reader's node was told to that reader.
    view.nodes.retain(|node| node.name == graphs::SERVE);
    graphs::node_failure(&view)
}

/// The name that readers use: that of the socket if the service manager has opened one.
fn name(args: &ServeArgs, interface: &str, given: Option<&Listening>) -> Result<String, Failure> {
    let path = given.map(|given| given.path().display().to_string());
    let name = match (&args.name, path) {
        (Some(name), Some(path)) => {
            let message = format!("--name {name}: the service manager has opened {path}; omit it");
            return Err(Failure::Usage(message));
        }
        (Some(name), None) => name.clone(),
        (None, path) => path.unwrap_or_else(|| interface.to_owned()),
    };
    let checked = fyke_serve::place::check_name(&name);
    checked.map(|()| name).map_err(|error| Failure::Usage(format!("--name: {error}")))
}

/// Reads the policy; without one, there are no rules.
fn policy(args: &ServeArgs, service: &Service) -> Result<Policy, Failure> {
    let Some(path) = &args.config else { return Ok(Policy::default()) };
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let mut text = String::new();
    let read = file.take(policy::MAX_BYTES + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    if text.len() as u64 > policy::MAX_BYTES {
        let message = format!("{}: longer than {} bytes", path.display(), policy::MAX_BYTES);
        return Err(Failure::Running(anyhow::anyhow!(message)));
    }
    let check = |text: &str| service.check(text);
    let policy = Policy::read(path, &text, &Names::of_system(), &check);
    policy.map_err(|error| Failure::Usage(error.to_string()))
}

/// Reads the policy again. One that is wrong changes nothing.
fn reload(args: &ServeArgs, service: &Service, set: &impl Fn(Policy) -> (usize, usize), log: Log) {
    match policy(args, service) {
        Ok(policy) => {
            let (stay, ended) = set(policy);
            let text = format!(
                "fyke: the policy has been read again: {stay} readers stay, {ended} are ended"
            );
            log.say("policy_read", json!({"stay": stay, "ended": ended}), &text);
        }
        Err(error) => {
            let text = format!("fyke: {}; the policy before it stays in force", error.message());
            log.say("policy_refused", json!({"reason": error.message()}), &text);
        }
    }
}

/// Files that a reload of the policy reads: its folder, in which the file may be replaced, and the names of users.
fn files_of(policy: &Path) -> Vec<PathBuf> {
    let folder = match policy.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let names = ["/etc/passwd", "/etc/group"].map(PathBuf::from);
    names.into_iter().filter(|path| path.exists()).chain([folder]).collect()
}

fn link(service: &Service) -> String {
    service.interface().map_or_else(String::new, |interface| interface.link.to_string())
}

/// Converts the failure to open the socket.
fn refused(error: PlaceError) -> Failure {
    match error {
        PlaceError::Name { .. } => Failure::Usage(error.to_string()),
        other => Failure::Running(other.into()),
    }
}

/// The options of a capture.
fn source(args: &ServeArgs) -> Result<SourceArgs, Failure> {
    if let [first, second, ..] = &args.interface[..] {
        return Err(Failure::Usage(format!(
            "-i {first} -i {second}: a service captures on one interface; start one for each, or take `-i any`"
        )));
    }
    Ok(SourceArgs {
        interface: args.interface.clone(),
        netns: args.netns.clone(),
        read: None,
        file_list: None,
        snaplen: 0,
        no_promiscuous: args.no_promiscuous,
        buffer_size: args.buffer_size,
        count_all: args.count_all,
        workers: 1,
        ring_user: None,
        take: false,
        serve_graph: None,
    })
}

/// Pauses a reader of this number, or starts it again; `None` if there is none.
type Pause = dyn Fn(u64, bool) -> Option<Result<Edited, Refused>> + Send + Sync;

/// The service as people see it on the control socket.
struct Live {
    handle: GraphHandle,
    readers: Box<dyn Fn() -> Vec<ReaderView> + Send + Sync>,
    pause: Box<Pause>,
    description: Description,
}

/// Describes a reader on one line.
fn described(reader: &ReaderView) -> String {
    let texts: Vec<&str> = reader.texts.iter().map(String::as_str).collect();
    let texts = match texts[..] {
        [] => "(no text yet)".to_owned(),
        [""] => "(every frame)".to_owned(),
        _ => texts.join(" | "),
    };
    let (rejected, unread) = (reader.counts.rejected, reader.unread);
    let lost = reader.lost + reader.overwritten + reader.counts.dropped;
    format!(
        "{texts}  (user {}, process {}, {}; {rejected} rejected, {unread} unread, {lost} lost)",
        reader.user, reader.pid, reader.program
    )
}

impl Live {
    /// Pauses a reader, or starts it again.
    fn pause(&self, id: u64, is_paused: bool) -> Response {
        let started = Instant::now();
        let Some(paused) = (self.pause)(id, is_paused) else {
            let readers = (self.readers)();
            let readers: Vec<_> = readers.iter().map(|one| one.number.to_string()).collect();
            let readers = readers.join(", ");
            let message = format!("there is no reader {id}; the readers are: {readers}");
            return Response::Error { message };
        };
        let note =
            if is_paused { "it gets no frames until `fyke ctl start`" } else { "it gets frames" };
        match paused {
            Ok(edited) => Response::Ok {
                epoch: edited.epoch,
                ids: Vec::new(),
                latency_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
                notes: vec![note.to_owned()],
            },
            Err(refused) => Response::Error { message: refused.to_string() },
        }
    }

    fn entries(&self) -> Vec<FilterCount> {
        let entry = |reader: &ReaderView| FilterCount {
            id: reader.number,
            text: described(reader),
            kind: EntryKind::Reader,
            accepted: reader.counts.accepted,
            label: None,
        };
        (self.readers)().iter().map(entry).collect()
    }
}

/// The reason why the texts cannot be edited here.
const OF_READERS: &str = "the texts of a service belong to its readers: edit a reader (fyke ctl --pid PID), or start \
                          one with `fyke dump -i serve:NAME EXPR`";

impl Editable for Live {
    fn logged(&self) -> Result<&dyn Edits, &'static str> {
        Err(OF_READERS)
    }

    fn epoch(&self) -> u64 {
        self.handle.epoch()
    }

    fn show(&self) -> Response {
        let entry = |one: FilterCount| FilterPasses {
            id: one.id,
            text: one.text,
            kind: one.kind,
            accepted: one.accepted,
            passes: Vec::new(),
            label: None,
        };
        let view = self.handle.snapshot();
        Response::Passes {
            epoch: view.epoch,
            filters: self.entries().into_iter().map(entry).collect(),
            nodes: counts::nodes(&view),
            own_filter: None,
            no_counts: None,
            kernel: super::space::placement(&self.handle),
        }
    }

    fn stats(&self) -> Stats {
        let view = self.handle.snapshot();
        Stats {
            epoch: view.epoch,
            uptime_ms: u64::try_from(view.elapsed.as_millis()).unwrap_or(u64::MAX),
            accounting: counts::accounting(&view),
            filters: self.entries(),
            nodes: counts::nodes(&view),
            own_filter: None,
            no_counts: None,
            kernel: super::space::placement(&self.handle),
            paused: self.handle.is_paused(),
            kept_at: None,
        }
    }

    fn rules(&self, _: &str) -> Response {
        Response::Error { message: "a service has no rules; its readers may have".to_owned() }
    }
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        match request {
            Request::Pause | Request::Start => {
                let message = "a service runs for its readers; `fyke ctl show` has their numbers: fyke ctl pause \
                               READER";
                Response::Error { message: message.to_owned() }
            }
            Request::PauseReader { id, is_paused } => self.pause(id, is_paused),
            request => requests::handle(self, request, None),
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
