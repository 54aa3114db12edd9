//! The specialised tier: passes that have been stable for a while become generated eBPF, in the background.
//!
//! ```text
//! watching ──(no edit of a pass for a while)──▶ building, in a thread ──▶ swapped in, socket by socket
//!    ▲                                                                        │ an edit: that pass is interpreted
//!    └──(sockets back to the interpreter, a grace period)◀── stable again ────┘
//! ```
//!
//! A swap is one `SO_ATTACH_BPF` per socket, which the kernel does in one step: every frame is evaluated by the old
//! program or by the new one, and both give the verdict of the same passes. [`crate::passes`] describes how an edited
//! pass returns to the interpreter at once. Building does not slow edits down; the owner of the sockets calls
//! [`Tuner::step`] from time to time. x86-64 only: on other machines only the interpreter runs.

use crate::ebpf::ProgramError;
use crate::error::AttachError;
use crate::snapshot::Specialised;
use crate::space::Space;
use crate::sys;
use std::io;
use std::os::fd::BorrowedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Passes are stable if none was edited for this time.
pub const STABLE: Duration = Duration::from_millis(200);

#[derive(Debug)]
enum State {
    /// The number of edits seen, and the time at which this number was first seen.
    Watching {
        edits: u64,
        since: Instant,
    },
    Building(JoinHandle<Result<Specialised, ProgramError>>),
    /// The sockets use the interpreter again; the old program may still run.
    Ending(JoinHandle<io::Result<()>>, Specialised),
}

/// Keeps a space specialised.
#[derive(Debug)]
pub struct Tuner {
    state: State,
    /// Number of edits from which the program in use, or the refused program, was made.
    settled: Option<u64>,
    refused: Option<String>,
    stable: Duration,
}

impl Default for Tuner {
    fn default() -> Self {
        Tuner::after(STABLE)
    }
}

impl Tuner {
    /// Makes a tuner for which passes are stable if none was edited for this time.
    pub fn after(stable: Duration) -> Tuner {
        let state = State::Watching { edits: 0, since: Instant::now() };
        Tuner { state, settled: None, refused: None, stable }
    }

    /// Reason why the kernel refused a program; the interpreter continues to run.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Does the work that is due, without waiting; returns true if the sockets run a new program. `sockets` are all
    /// sockets to which the space is attached.
    ///
    /// # Errors
    /// A socket does not accept the program; it keeps its filter.
    pub fn step(
        &mut self,
        space: &mut Space,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<bool, AttachError> {
        self.step_with(space, |space| sockets.iter().try_for_each(|socket| space.attach(*socket)))
    }

    /// As [`Tuner::step`], for sockets that are searched when needed: `attach_all` attaches the space to each.
    ///
    /// # Errors
    /// Those of `attach_all`.
    pub fn step_with(
        &mut self,
        space: &mut Space,
        mut attach_all: impl FnMut(&Space) -> Result<(), AttachError>,
    ) -> Result<bool, AttachError> {
        let edits = space.view().edit_count();
        let watching = State::Watching { edits, since: Instant::now() };
        match std::mem::replace(&mut self.state, watching) {
            State::Watching { edits: seen, since } => {
                if space.view().is_cooked() {
                    return Ok(false);
                }
                if seen != edits || self.settled == Some(edits) || !cfg!(target_arch = "x86_64") {
                    return Ok(false);
                }
                self.state = State::Watching { edits: seen, since };
                if since.elapsed() >= self.stable {
                    self.settled = Some(edits);
                    let snapshot = space.snapshot()?;
                    let thread = std::thread::Builder::new().name("fyke-specialise".into());
                    self.state = State::Building(thread.spawn(|| snapshot.specialise())?);
                }
            }
            State::Building(thread) if !thread.is_finished() => {
                self.state = State::Building(thread);
            }
            State::Building(thread) => match thread.join() {
                Ok(Ok(made)) if space.is_specialised() => {
                    space.interpret();
                    attach_all(space)?;
                    let thread = std::thread::Builder::new().name("fyke-grace".into());
                    self.state = State::Ending(thread.spawn(sys::wait_for_readers)?, made);
                }
                Ok(Ok(made)) => return put_in(space, made, attach_all),
                Ok(Err(error)) => self.refused = Some(error.to_string()),
                Err(_) => self.refused = Some("its generator panicked".into()),
            },
            State::Ending(thread, made) if !thread.is_finished() => {
                self.state = State::Ending(thread, made);
            }
            State::Ending(thread, made) => match thread.join() {
                Ok(Ok(())) => {
                    space.uncover();
                    return put_in(space, made, attach_all);
                }
                // The old program may still run, so the interpreter stays.
                Ok(Err(error)) => self.refused = Some(error.to_string()),
                Err(_) => self.refused = Some("the waiting thread panicked".into()),
            },
        }
        Ok(false)
    }
}

/// Puts a program into use at all sockets.
fn put_in(
    space: &mut Space,
    made: Specialised,
    mut attach_all: impl FnMut(&Space) -> Result<(), AttachError>,
) -> Result<bool, AttachError> {
    space.adopt(made)?;
    attach_all(space)?;
    Ok(true)
}
