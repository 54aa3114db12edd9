//! `fyke exec`: runs an unmodified capturing program with a filter in the kernel that can be edited while it captures.
//!
//! ```text
//! fyke ── guard ── program ── its descendants
//!   socket, bind, setsockopt ─▶ held ─▶ the socket gets the filter before it can receive ─▶ the call returns
//!   control socket ─▶ edits are memory stores
//! ```
//!
//! No frame passes unfiltered and none is lost. If the initial filter is not known, each socket keeps the program's own
//! filter until the first edit. With `--rules`, sockets of one interface read its rules before the filter ([`rules`]).
//! fyke ends when the last process of the program has ended; a signal to fyke ends these processes.
//! [`fyke_kernel::family`] describes what happens if fyke is killed.

mod answer;
mod filter;
mod own_text;
mod rules;

use super::Failure;
use crate::cli::ExecArgs;
use anyhow::Context;
use filter::ExecFilter;
use fyke_control::Server;
use fyke_kernel::family::{self, Event, Family};
use rules::ExecRules;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between checks for passes that have been stable for a while.
const TICK: Duration = Duration::from_millis(50);
/// Time without a packet socket after which a note is printed.
const SILENCE: Duration = Duration::from_secs(2);
/// Time that the program has to end after a signal; then it is killed.
const PATIENCE: Duration = Duration::from_millis(700);

/// Runs the command; the exit status is the program's.
pub fn run(args: ExecArgs) -> Result<(), Failure> {
    let (program, arguments) =
        args.command.split_first().ok_or_else(|| Failure::Usage("no program".into()))?;
    if program.is_empty() {
        return Err(Failure::Usage("the name of the program is empty".into()));
    }
    let own = own_text::of(program, arguments);
    let text = args.filter.clone().or_else(|| own.clone());
    let rules = args.rules.as_deref().map(|interface| ExecRules::open(interface, text.is_some()));
    let rules = rules.transpose()?;
    let filter = Arc::new(ExecFilter::new(&args.command, text.as_deref(), own, rules)?);
    filter.own_ledger();
    // For the authors of edits: clients are of this user, or root.
    fyke_privilege::user::learn_name(rustix::process::geteuid().as_raw());
    let mut signals = vec![SIGINT, SIGTERM, SIGQUIT];
    if !super::signals::is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let (mut family, listener) = family::start(command, &signals)
        .with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
    let server = Server::start(filter.clone());
    if let Err(error) = &server {
        note!("fyke: this filter cannot be edited: {error}");
    }
    filter.begin();
    let answered = filter.clone();
    std::thread::Builder::new().name("fyke-answer".into()).spawn(move || {
        if let Err(error) = answer::serve(&listener, &answered) {
            note!("fyke: no further packet socket can be opened: {error}");
        }
    })?;
    let status = watch(&mut family, &filter)?;
    drop(server);
    if args.stats {
        note!("{}", filter.summary().trim_end());
    } else if filter.socket_count() == 0 {
        note!("fyke: the program has opened no packet socket");
    }
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::Status(u8::try_from(code).unwrap_or(1))),
        (None, signal) => {
            Err(Failure::Status(u8::try_from(128 + signal.unwrap_or(0)).unwrap_or(1)))
        }
    }
}

/// Tunes the filter and forwards signals until the last process has ended.
fn watch(family: &mut Family, filter: &ExecFilter) -> Result<ExitStatus, Failure> {
    let started = Instant::now();
    let (mut said, mut deadline) = (false, None);
    loop {
        match family.wait(TICK)? {
            Event::Ended(status) => return Ok(ExitStatus::from_raw(status)),
            // The terminal sent the signal to the program too, which decides whether to end.
            Event::Signal { from_terminal: true, .. } => {}
            Event::Signal { number, .. } => {
                family.signal(number);
                deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            }
            Event::None => {}
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            family.signal(SIGKILL);
        }
        filter.tune();
        if !said && started.elapsed() >= SILENCE && filter.socket_count() == 0 {
            said = true;
            note!("fyke: the program has not opened a packet socket yet");
        }
    }
}
