//! `fyke exec`: any capturing program, unmodified, with a filter in the kernel that is edited while it captures.
//!
//! ```text
//! start the program ─▶ wait for its packet sockets ─▶ wait until they have their own filter
//!   ─▶ the same filter as passes in the kernel, put in its place in one step ─▶ control socket ─▶ edits are stores
//! ```
//!
//! The program's filter is replaced, not removed, so no frame passes unfiltered and none is lost. When the initial
//! filter is not known the program keeps its own until the first edit.

mod filter;
mod own_text;

use super::Failure;
use crate::cli::ExecArgs;
use anyhow::Context;
use filter::KernelFilter;
use fyke_control::Server;
use fyke_kernel::{Process, sockets};
use std::collections::HashMap;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Between two looks for new sockets while the program starts, and later.
const EARLY: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(50);
/// How long a program is taken to be starting.
const STARTING: Duration = Duration::from_secs(5);
/// A socket without a filter, or with one that rejects everything, is taken as it is after this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the command; its exit status is the program's.
pub fn run(args: ExecArgs) -> Result<(), Failure> {
    let (program, arguments) =
        args.command.split_first().ok_or_else(|| Failure::Usage("no program".into()))?;
    let own = own_text::of(program, arguments);
    let text = args.filter.clone().or_else(|| own.clone());
    let filter = Arc::new(KernelFilter::new(&args.command, text.as_deref(), own)?);
    // Ctrl-C goes to the program, which then ends, and so do we.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        signal_hook::flag::register(signal, ignored.clone())?;
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let mut child = sockets::die_with_parent(&mut command)
        .spawn()
        .with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
    let server = Server::start(filter.clone());
    if let Err(error) = &server {
        note!("fyke: nobody can edit this filter: {error}");
    }
    let watched = watch(&mut child, &filter);
    let status = child.wait()?;
    drop(server);
    watched?;
    if args.stats {
        note!("{}", filter.summary().trim_end());
    }
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::Status(u8::try_from(code).unwrap_or(1))),
        None => {
            use std::os::unix::process::ExitStatusExt;
            let signal = status.signal().unwrap_or(0);
            Err(Failure::Status(u8::try_from(128 + signal).unwrap_or(1)))
        }
    }
}

/// Gives the filter to every packet socket that the program opens, until it ends.
fn watch(child: &mut Child, filter: &KernelFilter) -> Result<(), Failure> {
    let process = Process::open(child.id()).context("cannot watch the program")?;
    let started = Instant::now();
    let mut first_seen: HashMap<u64, Instant> = HashMap::new();
    while child.try_wait()?.is_none() {
        // The program may end between any two lines: then there is nothing to find.
        for socket in process.packet_sockets().unwrap_or_default() {
            let seen = *first_seen.entry(socket.inode).or_insert_with(Instant::now);
            if filter.knows(socket.inode) || filter.refused(socket.inode) {
                continue;
            }
            let own = socket.classic_filter()?;
            if own.keeps > 0 || seen.elapsed() > PATIENCE {
                filter.take(socket, own);
            }
        }
        filter.tune();
        let pause = if started.elapsed() < STARTING { EARLY } else { LATER };
        std::thread::sleep(pause);
    }
    Ok(())
}
