//! Programs of texts that come while the capture runs: the interpreter runs them until there has been no edit for a
//! while, then a generated program does.
//!
//! ```text
//! edit ─▶ no edit for QUIET ─▶ copy the passes ─▶ generate, load ─▶ sockets: interpreter ─▶ no run of the old program
//!                               (process with the right to)                 is left ─▶ sockets: the new program
//! ```
//!
//! | at every moment | |
//! |---|---|
//! | verdicts | those of the passes in force: a pass that was edited since the copy is interpreted after the program |
//! | counts | both count into memory that stays; a frame is counted by one of them |
//! | a refusal | the interpreter continues; [`KernelStage::program`](super::KernelStage::program) tells why |
//! | a silence | the same, and the request is repeated until the process answers |
//!
//! A thread of low priority does it, without a lock while it generates. Programs take at most one part in [`SHARE`] of
//! its time, so a text that is edited all the time stays interpreted beside the program of the others; a program that
//! takes longer than [`LONGEST`] takes a larger part.

use super::{Stage, State};
use crate::user::lower_own_priority;
use fyke_kernel::Space;
use fyke_kernel::loader::LoaderError;
use fyke_kernel::sys::wait_for_readers;
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// Time without an edit after which a program is generated.
pub(super) const QUIET: Duration = Duration::from_millis(300);
/// Shortest pause after a program, in times of what the program took.
const SHARE: u32 = 20;
/// Longest time that counts for this: a process that was stopped meanwhile has not worked all the time.
const LONGEST: Duration = Duration::from_millis(250);
/// Pause before the next request to a process that does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Puts the program of the moment on all sockets that have one.
type Attach = dyn Fn() -> Result<(), String> + Send + Sync;

/// State of the generation.
#[derive(Default)]
pub(super) struct Generator {
    attach: Option<Arc<Attach>>,
    /// True while a thread waits for a pause, or generates.
    runs: bool,
    /// Number of edits from which the program in use was generated, or the one that was refused.
    settled: Option<u64>,
    rests_until: Option<Instant>,
    /// Reason why texts are interpreted.
    why: Option<String>,
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Generator");
        shown.field("runs", &self.runs).field("settled", &self.settled).field("why", &self.why);
        shown.finish_non_exhaustive()
    }
}

/// Reason why there is no new program.
enum Failed {
    /// There will be none any more.
    ForGood(String),
    /// The same texts may have one later.
    Later(String),
    /// The texts after the next edit may have one.
    Now(String),
}

impl Generator {
    /// Allows programs of later texts.
    pub fn allow(&mut self, attach: Arc<Attach>) {
        self.attach = Some(attach);
    }

    /// Allows none.
    pub fn forbid(&mut self, why: String) {
        (self.attach, self.why) = (None, Some(why));
    }

    /// Records that the texts of this number of edits have a program.
    pub fn settle(&mut self, edits: u64) {
        self.settled = Some(edits);
    }

    /// Reason why texts are interpreted, if they will stay so.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

/// Has a program generated when there is no edit any more; called after each edit.
pub(super) fn after_edit(stage: &Arc<Stage>, state: &mut State) {
    let generator = &mut state.generator;
    if !cfg!(target_arch = "x86_64") || !state.begun || stage.distributes {
        return;
    }
    let edits = edit_count(stage);
    if generator.runs || generator.attach.is_none() || generator.settled == Some(edits) {
        return;
    }
    let rest = generator.rests_until.map(|until| until.saturating_duration_since(Instant::now()));
    let (stage, pause) = (Arc::downgrade(stage), rest.unwrap_or_default().max(QUIET));
    let thread = Builder::new().name("fyke-generate".into());
    match thread.spawn(move || run(&stage, edits, pause)) {
        Ok(_) => generator.runs = true,
        // The next edit tries again.
        Err(error) => generator.why = Some(format!("no thread: {error}")),
    }
}

fn edit_count(stage: &Stage) -> u64 {
    stage.kernel.space(|space| space.view().edit_count())
}

fn run(stage: &Weak<Stage>, mut seen: u64, mut pause: Duration) {
    lower_own_priority();
    loop {
        sleep(pause);
        let Some(stage) = stage.upgrade() else { return };
        let edits = edit_count(&stage);
        if edits != seen {
            (seen, pause) = (edits, QUIET);
            continue;
        }
        let began = Instant::now();
        let outcome = generate(&stage);
        let mut rest = began.elapsed().min(LONGEST) * SHARE;
        let state = &mut *stage.lock();
        let generator = &mut state.generator;
        (generator.settled, generator.why) = (Some(seen), None);
        generator.rests_until = Some(Instant::now() + rest);
        match outcome {
            Ok(()) => {}
            Err(Failed::Later(why)) => {
                (generator.settled, generator.why) = (None, Some(why));
                rest = RETRY;
            }
            Err(Failed::Now(why)) => generator.why = Some(why),
            Err(Failed::ForGood(why)) => generator.forbid(why),
        }
        seen = edit_count(&stage);
        if state.generator.settled == Some(seen) || state.generator.attach.is_none() {
            // Under the lock, so that the next edit starts another thread.
            state.generator.runs = false;
            return;
        }
        pause = rest.max(QUIET);
    }
}

/// Generates the program of the passes of this moment, and puts it on the sockets.
fn generate(stage: &Stage) -> Result<(), Failed> {
    let attach = {
        let state = stage.lock();
        let is_open = state.open.is_some() || state.ids.is_empty() || state.unfiltered;
        match &state.generator.attach {
            Some(attach) if !is_open && !state.for_good => Arc::clone(attach),
            // Every frame passes; the edit that ends this asks again.
            _ => return Ok(()),
        }
    };
    let now = |error: &dyn fmt::Display| Failed::Now(error.to_string());
    let Some(snapshot) = stage.kernel.snapshot().map_err(|error| now(&error))? else {
        return Ok(());
    };
    let made = match &stage.held {
        Some(held) => held.specialise(snapshot).map_err(|error| match error {
            LoaderError::Gone => Failed::ForGood(error.to_string()),
            LoaderError::Silent => Failed::Later(error.to_string()),
            error => now(&error),
        })?,
        None => snapshot.specialise().map_err(|error| now(&error))?,
    };
    if made.covered() == 0 {
        return Err(Failed::Now("no code is generated for their tests".to_owned()));
    }
    if stage.kernel.space(Space::is_covered) {
        stage.kernel.space_mut(Space::interpret);
        // A socket that keeps the old program would read the memory that is written below.
        attach().map_err(Failed::Now)?;
        wait_for_readers().map_err(|error| now(&error))?;
        stage.kernel.space_mut(Space::uncover);
    }
    stage.kernel.space_mut(|space| space.adopt(made)).map_err(|error| now(&error))?;
    attach().map_err(Failed::Now)
}
