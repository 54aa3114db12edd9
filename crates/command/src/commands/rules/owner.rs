//! `fyke rules IF --own` and `--drop`: a process that has the rules of an interface until it ends.
//!
//! ```text
//! fyke rules IF +… ─▶ control socket ─┐                   ┌─▶ taps: captures with --rules, of any fyke
//! echo +… > rules  ─▶ pipe ───────────┴─▶ rules ─▶ arrays ┴─▶ --drop: XDP
//! ```
//!
//! It stays root and reads no frame. When it ends, however, the kernel takes the XDP program off, and captures let
//! every frame pass.

use super::super::space::Claim;
use super::super::{Failure, counts, signals};
use super::pipes::Pipes;
use super::refusal;
use crate::cli::RulesArgs;
use anyhow::{Context, anyhow};
use fyke_control::{
    Accounting, Controlled, Description, Listening, OwnedRules, Request, Response, Server, Stats,
};
use fyke_graph::RuleSet;
use fyke_kernel::prefilter::{Arrays, Dropper};
use fyke_kernel::sys::objects;
use fyke_table::prefilter::PrefilterOptions;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks for signals and for the interface.
const TICK: Duration = Duration::from_millis(50);

/// The rules, shared with the control socket.
struct Owner {
    rules: RuleSet,
    dropper: Option<Dropper>,
    description: Description,
    started: Instant,
}

/// Has the rules of an interface until a signal, or until the interface is gone. `command` is executed first.
pub fn run(args: &RulesArgs, command: Option<String>) -> Result<(), Failure> {
    let interface = super::super::numbered(&args.interface)?;
    check(args, &interface)?;
    let _lock = lock(&interface)?;
    let options = options(args);
    let rules = RuleSet::with_options(options, false);
    if let Some(command) = &command {
        rules.command(command).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let arrays = Arrays::new(&options).context("the arrays cannot be made")?;
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
    let index = objects::interface_index(&interface).map_err(|_gone| absent(&interface))?;
    let owner = Arc::new(Owner {
        rules,
        dropper,
        description: description(&interface, &arrays)?,
        started: Instant::now(),
    });
    let server = Server::serve(vec![listening], Arc::clone(&owner) as _);
    let server = server.map_err(|error| Failure::Running(error.into()))?;
    owner.announce(&interface, &options, &pipes);
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        let is_gone = match &owner.dropper {
            Some(dropper) => dropper.is_detached().unwrap_or(false),
            None => objects::interface_index(&interface).ok() != Some(index),
        };
        if is_gone {
            drop(server);
            owner.close();
            return Err(Failure::Running(anyhow!("{interface} is gone, and its rules with it")));
        }
    }
    drop(server);
    owner.close();
    Ok(())
}

fn options(args: &RulesArgs) -> PrefilterOptions {
    let default = PrefilterOptions::default();
    PrefilterOptions {
        bits: args.bits.unwrap_or(default.bits),
        max_spaces: args.arrays.map_or(default.max_spaces, usize::from),
        ..default
    }
}

/// Refuses an interface that does not exist or is used by the host.
fn check(args: &RulesArgs, interface: &str) -> Result<(), Failure> {
    objects::interface_index(interface).map_err(|_absent| absent(interface))?;
    if !args.drop || args.take {
        return Ok(());
    }
    let used = refusal::of(interface).with_context(|| format!("cannot look at {interface}"))?;
    match used {
        None => Ok(()),
        Some(why) => Err(Failure::Running(anyhow!(
            "{why}, so the host would lose frames; --drop is for monitoring ports (--take drops here, too)"
        ))),
    }
}

/// Keeps other owners out until the end of the process.
fn lock(interface: &str) -> Result<File, Failure> {
    match super::super::space::claim(interface) {
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

fn description(interface: &str, arrays: &Arrays) -> Result<Description, Failure> {
    let rules = OwnedRules {
        interface: interface.to_owned(),
        namespace: super::super::space::namespace()?,
        map: arrays.number()?,
    };
    let description = Description::of_this_process(interface, "EN10MB");
    Ok(Description { live: false, rules: Some(rules), ..description })
}

impl Owner {
    fn announce(&self, interface: &str, options: &PrefilterOptions, pipes: &Pipes) {
        let what = match &self.dropper {
            Some(dropper) => format!("drops what they reject: {}", dropper.mode()),
            None => "captures read them with --rules".to_owned(),
        };
        note!("fyke: rules of {interface}: {what}; edit: fyke rules {interface}");
        note!("fyke: pipes and refused lines: {}", pipes.folder().display());
        let rate = |rules: u64| {
            let load = rules as f64 * 2.0 / options.bits as f64;
            format!("{:.1e} at {rules}", (1.0 - (-load).exp()).powi(2))
        };
        note!(
            "fyke: at most {} arrays of {} bits ({} KiB), 2 hash functions; expected false positives of a look-up by \
             rules in an array: {}, {}, {}",
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
        let (passed, dropped) =
            self.dropper.as_ref().map_or((0, 0), |it| (it.passed(), it.dropped()));
        Accounting {
            seen: passed + dropped,
            delivered: passed,
            rejected: dropped,
            rejected_by_rules: self.dropper.as_ref().map(|_| dropped),
            ..Accounting::default()
        }
    }

    /// Prints the counts at the end.
    fn close(&self) {
        if let Some(dropper) = &self.dropper {
            let sum = counts::sum(&self.accounting(), 0, 0);
            note!("{sum}; {} with headers that XDP does not read", dropper.unread());
        }
    }
}

impl Controlled for Owner {
    fn handle(&self, request: Request) -> Response {
        match request {
            Request::Rules { command } => match self.rules.command(&command) {
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
        self.description.clone()
    }
}
