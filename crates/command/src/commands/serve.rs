//! `fyke serve`: captures once for many programs, which open filters of their own and read frames in shared memory.
//!
//! It runs a graph `device > serve` for each capture, in its own thread. Readers connect to the socket of a capture
//! ([`Server`](fyke_serve::Server)); the control socket shows all readers, their texts, and the frames that they have
//! not read yet or have lost ([`Live`]).

mod capture;
mod kept;
mod live;
mod log;
mod wanted;

use super::Failure;
use super::counts;
use super::dump::edit_hint;
use super::privilege::{Doors, Privileges};
use super::run::accounts;
use super::signals::{report_on_signal, stop_on_signals, stop_or_reload};
use crate::cli::ServeArgs;
use anyhow::Context;
use capture::{Capture, Ended, Running};
use fyke_control::Description;
use fyke_graph::GraphHandle;
use fyke_privilege::given;
use fyke_serve::policy::{self, Names};
use fyke_serve::{Left, Listening, PlaceError, Policy, Service};
use kept::{Kept, Manager};
use live::Live;
use log::Log;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use wanted::{Wanted, named, wanted};

/// Runs the command until a signal ends it.
pub fn run(args: ServeArgs) -> Result<(), Failure> {
    let text = args.config.as_deref().map(text_of).transpose()?.unwrap_or_default();
    let listed = args.config.as_deref().map(|path| policy::captures(path, &text)).transpose();
    let listed = listed.map_err(|error| Failure::Usage(error.to_string()))?.unwrap_or_default();
    if let Some(name) = &args.netns {
        fyke_privilege::namespace::enter(name)?;
    }
    let all = wanted(&args, &listed)?;
    let given = given::take().context("the descriptors of the service manager (LISTEN_FDS)")?;
    let (left, others) = Left::sort(given);
    let all = named(&args, all, Listening::given(others).map_err(refused)?)?;
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let mut manager = Manager::connect(left)?;
    let mut captures = open(all, &mut manager)?;
    manager.discard_others()?;
    let services: Vec<_> = captures.iter().map(|one| Arc::clone(&one.service)).collect();
    let policy = policy(&args, &text, &services)?;
    let interfaces = Interfaces::now(&services);
    captures.iter_mut().try_for_each(|one| one.prepare(&policy, args.count_all))?;
    let doors = if args.no_control { Doors::Closed } else { Doors::Filters };
    // All captures are of the same graph.
    let mut needs = captures[0].needs(doors);
    let reads = args.config.as_deref().map_or_else(Vec::new, files_of);
    (needs.makes_memory, needs.reads) = (true, reads);
    let entered = privileges.enter(&needs)?;
    entered.say_missing();
    let several = captures.len() > 1;
    let logs = captures.iter().map(|one| Log::new(several.then(|| one.name.clone())));
    let logs: Vec<Log> = logs.collect();
    interfaces.remark(&policy, &Log::new(None));
    let links: Vec<String> = captures.iter().map(Capture::link).collect();
    let started = captures.into_iter().zip(&logs).map(|(one, log)| one.start(policy.clone(), log));
    let (running, kept): (Vec<Running>, Vec<Kept>) =
        started.collect::<Result<Vec<_>, Failure>>()?.into_iter().unzip();
    let clients = entered.clients();
    let live = Arc::new(live(&running, &links));
    let control = match args.no_control {
        true => None,
        false => super::run::serve(&live, entered.sockets, true),
    };
    let hint = edit_hint(control.is_some().then_some(&*clients)).replace("edit:", "readers:");
    let mut hint = Some(hint);
    for ((one, link), log) in running.iter().zip(&links).zip(&logs) {
        let (interface, name, hint) = (&one.interface, &one.name, hint.take().unwrap_or_default());
        let text = format!("serving {interface}, link type {link}, as serve:{name}{hint}");
        log.say("serving", json!({"interface": interface, "link": link, "name": name}), &text);
    }
    manager.ready()?;
    kept.iter().zip(&logs).for_each(|(kept, log)| kept.report(log));
    let stop = signals((args, listed, interfaces), manager.is_there(), &running)?;
    let ended = run_all(running, &stop);
    close(ended, &logs)
}

/// The interfaces of the system when the service started; without rights it cannot look again.
struct Interfaces(Vec<String>);

impl Interfaces {
    fn now(services: &[Arc<Service>]) -> Interfaces {
        let own = services.iter().filter_map(|one| Some(one.interface()?.name.clone()));
        let all = fyke_capture::interfaces_available().unwrap_or_default();
        Interfaces(own.chain(all.into_iter().map(|one| one.name)).collect())
    }

    /// Reports interfaces in rules that are not there: the rule may be for one that appears later, or its name wrong.
    fn remark(&self, policy: &Policy, log: &Log) {
        for remark in policy.missing(|name| self.0.iter().any(|one| one == name)) {
            let fields =
                json!({"file": remark.file, "line": remark.line, "reason": remark.problem});
            log.say("policy_remark", fields, &format!("fyke: {remark}"));
        }
    }
}

/// Opens the captures in their order.
fn open(all: Vec<Wanted>, manager: &mut Manager) -> Result<Vec<Capture>, Failure> {
    let mut captures = Vec::<Capture>::new();
    for one in all {
        let service = match captures.first() {
            Some(first) => first.service.beside(),
            None => Service::new(),
        };
        captures.push(Capture::open(one, service, manager)?);
    }
    Ok(captures)
}

/// The running service as the control socket shows it.
fn live(running: &[Running], links: &[String]) -> Live {
    let interfaces: Vec<&str> = running.iter().map(|one| one.interface.as_str()).collect();
    let mut kinds: Vec<&str> = links.iter().map(String::as_str).collect();
    kinds.dedup();
    Live {
        captures: running.iter().map(Running::shown).collect(),
        description: Description::of_this_process(interfaces.join(", "), kinds.join(", ")),
    }
}

/// Listens to the signals that end the service, reload its policy, or ask for the counts.
fn signals(
    (args, listed, interfaces): (ServeArgs, Vec<policy::Capture>, Interfaces),
    is_managed: bool,
    running: &[Running],
) -> Result<Arc<AtomicBool>, Failure> {
    let seen = running.iter().map(|one| (one.name.clone(), one.handle.clone(), one.unseen.clone()));
    let seen: Vec<_> = seen.collect();
    let counts_of = |(name, handle, unseen): &(String, GraphHandle, super::unseen::Unseen)| {
        (name.clone(), accounts(&handle.view()) + &unseen.lines(true))
    };
    let log = Log::new(None);
    let stop = match args.config {
        // `systemctl reload` of a service without a policy must not end it.
        None if is_managed => stop_or_reload(move || {
            let text = "fyke: there is no policy to read again (--config); the service continues";
            log.say("policy_refused", json!({"reason": "there is none"}), text);
        })?,
        None => stop_on_signals()?,
        Some(_) => {
            let set: Vec<_> = running.iter().map(|one| one.server.set_policy()).collect();
            let services: Vec<_> = running.iter().map(|one| Arc::clone(&one.service)).collect();
            let set = move |policy: Policy| {
                let all = set.iter().map(|set| set(policy.clone()));
                all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
            };
            let known = (listed, interfaces);
            stop_or_reload(move || reload(&args, &services, &known, &set, &log))?
        }
    };
    report_on_signal(move || {
        let all: Vec<_> = seen.iter().map(counts_of).collect();
        match &all[..] {
            [(_, text)] => text.clone(),
            several => {
                several.iter().map(|(name, text)| format!("serve:{name}:\n{text}")).collect()
            }
        }
    })?;
    Ok(stop)
}

/// Runs all captures until one ends.
fn run_all(running: Vec<Running>, stop: &Arc<AtomicBool>) -> Vec<Ended> {
    let mut threads = Vec::new();
    let mut all = running.into_iter();
    let first = all.next();
    for one in all {
        let (stop, name) = (Arc::clone(stop), "capture".to_owned());
        let spawned = thread::Builder::new().name(name).spawn(move || one.run(&stop));
        threads.push(spawned);
    }
    if threads.iter().any(Result::is_err) {
        stop.store(true, Ordering::Relaxed);
    }
    let first = first.map(|one| one.run(stop));
    let joined = threads.into_iter().filter_map(|thread| thread.ok()?.join().ok());
    first.into_iter().chain(joined).collect()
}

/// Reports the sums at the end, and the first failure of a capture.
fn close(ended: Vec<Ended>, logs: &[Log]) -> Result<(), Failure> {
    if ended.len() < logs.len() {
        return Err(Failure::Running(anyhow::anyhow!("no thread for a capture could be started")));
    }
    for (one, log) in ended.iter().zip(logs) {
        let accounting = counts::accounting(&one.view);
        log.say("end", json!({"accounting": accounting}), &counts::sum(&accounting, 0, 0));
        let unseen = one.unseen.lines(false);
        if !unseen.is_empty() {
            log.say("unseen", json!({}), unseen.trim_end());
        }
    }
    ended.into_iter().try_for_each(|one| one.result)
}

/// The text of a policy file.
fn text_of(path: &Path) -> Result<String, Failure> {
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let mut text = String::new();
    let read = file.take(policy::MAX_BYTES + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    if text.len() as u64 > policy::MAX_BYTES {
        let message = format!("{}: longer than {} bytes", path.display(), policy::MAX_BYTES);
        return Err(Failure::Running(anyhow::anyhow!(message)));
    }
    Ok(super::without_mark(text))
}

/// Reads the policy; without a file, there are no rules. The filter of a rule is checked for each capture to which it
/// applies.
fn policy(args: &ServeArgs, text: &str, services: &[Arc<Service>]) -> Result<Policy, Failure> {
    let Some(path) = &args.config else { return Ok(Policy::default()) };
    let check = |filter: &str, interfaces: Option<&[String]>| {
        let is_for = |service: &&Arc<Service>| {
            let own = service.interface().map(|interface| &interface.name);
            interfaces.is_none_or(|all| own.is_some_and(|own| all.contains(own)))
        };
        let mut concerned: Vec<_> = services.iter().filter(is_for).collect();
        if concerned.is_empty() {
            // A rule for an interface that is captured at another time.
            concerned.extend(services.first());
        }
        concerned.into_iter().try_for_each(|service| service.check(filter))
    };
    let policy = Policy::read(path, text, &Names::of_system(), &check);
    policy.map_err(|error| Failure::Usage(error.to_string()))
}

/// Reads the policy again. One that is wrong, or that lists other captures, changes nothing.
fn reload(
    args: &ServeArgs,
    services: &[Arc<Service>],
    (listed, interfaces): &(Vec<policy::Capture>, Interfaces),
    set: &impl Fn(Policy) -> (usize, usize),
    log: &Log,
) {
    let Some(path) = &args.config else { return };
    let read = text_of(path).and_then(|text| policy(args, &text, services));
    let read = read.and_then(|policy| match policy.captures() == &listed[..] {
        true => Ok(policy),
        false => Err(Failure::Usage(format!(
            "{}: the captures have changed; restart the service to have them",
            path.display()
        ))),
    });
    match read {
        Ok(policy) => {
            interfaces.remark(&policy, log);
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
pub fn files_of(policy: &Path) -> Vec<PathBuf> {
    let folder = match policy.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let names = ["/etc/passwd", "/etc/group"].map(PathBuf::from);
    names.into_iter().filter(|path| path.exists()).chain([folder]).collect()
}

/// Converts the failure to open the socket.
fn refused(error: PlaceError) -> Failure {
    match error {
        PlaceError::Name { .. } => Failure::Usage(error.to_string()),
        other => Failure::Running(other.into()),
    }
}
