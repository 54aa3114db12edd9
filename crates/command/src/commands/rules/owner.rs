//! `fyke rules IF --own`, `--tcx` and `--drop`: a process that has the rules of an interface until it ends.
//!
//! ```text
//! fyke rules IF +… ─▶ control socket ─┐                   ┌─▶ taps: captures with --rules, of any fyke
//! echo +… > rules  ─▶ pipe ───────────┴─▶ rules ─▶ arrays ┼─▶ --tcx: counts and copies, both directions
//!                                                         └─▶ --drop: XDP
//! ```
//!
//! It stays root and reads no frame. The interface is known by its number: when it is renamed, its rules stay. When the
//! process ends, however, the kernel takes the XDP program off, and captures let every frame pass.

use super::super::space::Claim;
use super::super::{Failure, counts, signals};
use super::pipes::Pipes;
use crate::cli::RulesArgs;
use anyhow::{Context, anyhow};
use fyke_control::{
    Accounting, Controlled, Description, Listening, NameLock, OwnedRules, Request, Response,
    Server, Stats,
};
use fyke_graph::RuleSet;
use fyke_kernel::prefilter::{Arrays, Dropper, Watched, Watcher};
use fyke_kernel::redirect::host_needs;
use fyke_kernel::sys::objects;
use fyke_table::prefilter::{PrefilterOptions, expected_rate};
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks for signals and for the interface.
const TICK: Duration = Duration::from_millis(50);

/// Interval between checks whether the host uses the interface.
const LOOK: Duration = Duration::from_secs(1);

/// The rules, shared with the control socket.
struct Owner {
    rules: RuleSet,
    dropper: Option<Dropper>,
    watcher: Option<Watcher>,
    /// Has the name of the interface, which may change.
    description: Mutex<Description>,
    started: Instant,
}

/// The interface, which may be renamed.
struct Place {
    index: u32,
    name: String,
    pipes: Pipes,
}

/// Has the rules of an interface until a signal, or until the interface is gone. `command` is executed first.
pub fn run(args: &RulesArgs, command: Option<String>) -> Result<(), Failure> {
    let interface = super::super::numbered(&args.interface)?;
    let index = check(args, &interface)?;
    let options = options(args)?;
    let arrays = Arrays::new(&options).map_err(|error| no_arrays(args, &interface, &error))?;
    let _lock = lock(&interface, index)?;
    let rules = RuleSet::with_options(options, false);
    if let Some(command) = &command {
        rules.command(command).map_err(|error| super::wrong(error.to_string()))?;
    }
    rules.with(|rules| arrays.follow(rules)).context("the arrays cannot be mapped")?;
    let listening = Listening::open().map_err(|error| Failure::Running(error.into()))?;
    let folder = listening.path().parent().map(ToOwned::to_owned).unwrap_or_default();
    let pipes = Pipes::open(&folder, &interface, &rules)
        .with_context(|| format!("{interface}: cannot have its rules"))?;
    let stop = signals::stop_on_signals()?;
    let dropper = match args.drop {
        true => Some(Dropper::attach(&arrays, &interface).map_err(|e| Failure::Running(e.into()))?),
        false => None,
    };
    let watcher = match args.tcx {
        true => Some(Watcher::attach(&arrays, &interface, args.copy_to.as_deref())?),
        false => None,
    };
    let description = Mutex::new(description(&interface, index, &arrays)?);
    let owner = Arc::new(Owner { rules, dropper, watcher, description, started: Instant::now() });
    let server = Server::serve(vec![listening], Arc::clone(&owner) as _);
    let server = server.map_err(|error| Failure::Running(error.into()))?;
    owner.announce(&interface, args.copy_to.as_deref(), &options, &pipes);
    // With --take, the user knows that the host needs the interface.
    let watches_host = args.drop && !args.take;
    let ended = owner.stay(&stop, Place { index, name: interface, pipes }, watches_host);
    drop(server);
    owner.close();
    ended
}

/// The failure to make the arrays.
fn no_arrays(args: &RulesArgs, interface: &str, error: &io::Error) -> Failure {
    let way = match (args.drop, args.tcx) {
        (true, _) => "--drop",
        (false, true) => "--tcx",
        (false, false) => "--own",
    };
    let what = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "only root can have the rules of {interface} (CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are missing): start \
             it as root, as in sudo fyke rules {interface} {way}"
        ),
        io::ErrorKind::InvalidInput => {
            format!("{error}; give fewer of them (--arrays N), or smaller ones (--bits N)")
        }
        _ => format!("the arrays of the rules cannot be made: {error}"),
    };
    Failure::Running(anyhow!(what))
}

fn options(args: &RulesArgs) -> Result<PrefilterOptions, Failure> {
    let default = PrefilterOptions::default();
    // Rules without an address have an array, too.
    let needed = args.prefixes.map(|prefixes| prefixes.len() + 1);
    let max_spaces = match (args.arrays.map(usize::from), needed) {
        (Some(given), Some(needed)) if given < needed => {
            return Err(Failure::Usage(format!(
                "--arrays {given}: --prefixes needs {needed} arrays, one of them for rules without an address"
            )));
        }
        (given, needed) => given.or(needed).unwrap_or(default.max_spaces),
    };
    Ok(PrefilterOptions {
        bits: args.bits.unwrap_or(default.bits),
        hash_pairs: args.hash_pairs.unwrap_or(default.hash_pairs),
        max_spaces,
        prefixes: args.prefixes,
        ..default
    })
}

/// Refuses an interface that does not exist or is used by the host; returns its number.
fn check(args: &RulesArgs, interface: &str) -> Result<u32, Failure> {
    let index = objects::interface_index(interface).map_err(|_absent| absent(interface))?;
    if !args.drop || args.take {
        return Ok(index);
    }
    let used = host_needs(interface).with_context(|| format!("cannot look at {interface}"))?;
    match used {
        None => Ok(index),
        Some(why) => Err(Failure::Running(anyhow!(
            "{why}, so the host would lose frames; --drop is for monitoring ports (--take drops here, too)"
        ))),
    }
}

/// Keeps other owners out until the end of the process.
fn lock(interface: &str, index: u32) -> Result<NameLock, Failure> {
    match super::super::space::claim(interface, index) {
        Ok(Claim::Ours(lock)) => Ok(lock),
        Ok(Claim::Of(pid, _)) => {
            Err(Failure::Running(anyhow!("process {pid} has the rules of {interface} already")))
        }
        Err(why) => Err(Failure::Running(anyhow!(why))),
    }
}

fn absent(interface: &str) -> Failure {
    Failure::Running(anyhow!("there is no interface {interface}"))
}

fn description(interface: &str, index: u32, arrays: &Arrays) -> Result<Description, Failure> {
    let rules = OwnedRules {
        interface: interface.to_owned(),
        namespace: super::super::space::namespace()?,
        map: arrays.number()?,
        index,
    };
    let description = Description::of_this_process(interface, "EN10MB");
    Ok(Description { live: false, rules: Some(rules), ..description })
}

impl Place {
    /// The new name of the interface, if it was renamed.
    fn new_name(&self) -> Option<String> {
        let name = objects::link_facts(self.index).ok()?.name;
        (!name.is_empty() && name != self.name).then_some(name)
    }

    /// True if the interface was deleted, or moved into another network namespace.
    fn is_gone(&self, dropper: Option<&Dropper>) -> bool {
        // A program at XDP moves with the interface.
        let is_detached = dropper.is_some_and(|dropper| dropper.is_detached().unwrap_or(false));
        let absent = Some(Errno::NODEV.raw_os_error());
        let facts = objects::link_facts(self.index);
        is_detached || facts.is_err_and(|error| error.raw_os_error() == absent)
    }
}

impl Owner {
    /// Waits for a signal, and follows the interface until it is gone. `watches_host`: it must stay without a use by
    /// the host.
    fn stay(
        &self,
        stop: &AtomicBool,
        mut place: Place,
        mut watches_host: bool,
    ) -> Result<(), Failure> {
        let mut looked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            if place.is_gone(self.dropper.as_ref()) {
                let name = &place.name;
                return Err(Failure::Running(anyhow!("{name} is gone, and its rules with it")));
            }
            if let Some(name) = place.new_name() {
                self.rename(&mut place, name);
            }
            if watches_host && looked.elapsed() >= LOOK {
                looked = Instant::now();
                if let Ok(Some(why)) = host_needs(&place.name) {
                    note!("fyke: {why} now: the host loses what the rules reject");
                    watches_host = false;
                }
            }
        }
        Ok(())
    }

    /// Continues under a new name of the interface.
    fn rename(&self, place: &mut Place, name: String) {
        let mut described = self.described();
        described.source.clone_from(&name);
        described.rules.iter_mut().for_each(|rules| rules.interface.clone_from(&name));
        drop(described);
        let moved = place.pipes.rename(&name);
        let old = std::mem::replace(&mut place.name, name);
        let (name, folder) = (&place.name, place.pipes.folder().display());
        note!(
            "fyke: {old} is named {name} now, and its rules stay; edit: fyke rules {name}; pipes: {folder}"
        );
        if let Err(error) = moved {
            note!("fyke: the folder of the pipes keeps its name: {error}");
        }
    }

    fn described(&self) -> MutexGuard<'_, Description> {
        self.description.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(
        &self,
        interface: &str,
        copy_to: Option<&str>,
        options: &PrefilterOptions,
        pipes: &Pipes,
    ) {
        let what = match (&self.dropper, &self.watcher, copy_to) {
            (Some(dropper), ..) => format!("drops what they reject: {}", dropper.mode()),
            (None, Some(_), Some(to)) => {
                format!("copies what passes them to {to}, of both directions (tcx)")
            }
            (None, Some(_), None) => "counts frames of both directions (tcx)".to_owned(),
            (None, None, _) => "captures read them with --rules".to_owned(),
        };
        note!("fyke: rules of {interface}: {what}; edit: fyke rules {interface}");
        note!("fyke: pipes and refused lines: {}", pipes.folder().display());
        let hashes = 2 * u32::from(options.hash_pairs);
        let rate =
            |rules: u64| format!("{:.1e} at {rules}", expected_rate(rules, options.bits, hashes));
        let prefixes = options.prefixes.map(|some| format!(" ({some})")).unwrap_or_default();
        note!(
            "fyke: at most {} arrays{prefixes} of {} bits ({} KiB), {hashes} hash functions; expected false positives \
             of a look-up by rules in an array: {}, {}, {}",
            options.max_spaces,
            options.bits,
            options.bits.div_ceil(8192),
            rate(100),
            rate(1_000),
            rate(10_000)
        );
        if !self.rules.with(|rules| rules.is_enabled()) {
            note!(
                "fyke: the rules are off, so every frame passes; on: fyke rules {interface} enable 1"
            );
        }
    }

    fn accounting(&self) -> Accounting {
        let counts = match (&self.dropper, &self.watcher) {
            (Some(dropper), _) => {
                Some(Watched { passed: dropper.passed(), rejected: dropper.dropped() })
            }
            (None, Some(watcher)) => {
                let [one, two] = watcher.counts();
                let (passed, rejected) = (one.passed + two.passed, one.rejected + two.rejected);
                Some(Watched { passed, rejected })
            }
            (None, None) => None,
        };
        let Watched { passed, rejected } = counts.unwrap_or_default();
        Accounting {
            seen: passed + rejected,
            delivered: passed,
            rejected,
            rejected_by_rules: counts.map(|counts| counts.rejected),
            ..Accounting::default()
        }
    }

    /// Prints the counts at the end.
    fn close(&self) {
        if let Some(dropper) = &self.dropper {
            let sum = counts::sum(&self.accounting(), 0, 0);
            note!("{sum}; {} with headers that XDP does not read", dropper.unread());
        }
        if let Some(watcher) = &self.watcher {
            for (way, counts) in ["in", "out"].into_iter().zip(watcher.counts()) {
                let Watched { passed, rejected } = counts;
                note!(
                    "{way}: {} seen = {passed} passed + {rejected} rejected by rules",
                    passed + rejected
                );
            }
            let (unread, failed) = (watcher.unread(), watcher.not_copied());
            note!(
                "{unread} passed with headers that the program does not read; {failed} not copied"
            );
        }
    }
}

impl Controlled for Owner {
    fn handle(&self, request: Request) -> Response {
        match request {
            Request::Rules { command, .. } => match self.rules.command(&command) {
                Ok(text) => Response::Rules { text },
                Err(error) => Response::Error { message: error.to_string() },
            },
            Request::Stats => {
                let uptime = self.started.elapsed().as_millis();
                Response::Stats(Stats {
                    uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
                    accounting: self.accounting(),
                    ..Stats::default()
                })
            }
            _ => {
                let message = "this fyke has rules and no filters; edit them with fyke rules";
                Response::Error { message: message.to_owned() }
            }
        }
    }

    fn describe(&self) -> Description {
        self.described().clone()
    }
}
