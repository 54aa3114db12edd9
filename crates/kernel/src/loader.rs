//! A small process that keeps the right to load programs after this one has given it up, and loads programs for passes.
//!
//! ```text
//! start ─▶ hold the maps of a space ─▶ seal ─▶ passes ─▶ generate, load ─▶ the program's descriptor
//!          while the parent is trusted          a parent that may be hostile by now
//! ```
//!
//! | request | accepted | what the loader does |
//! |---|---|---|
//! | hold | until sealed | keeps copies of the maps that a space's programs use |
//! | seal | once | keeps CAP_BPF and CAP_PERFMON only, enters a sandbox without files; ends if it holds no maps |
//! | specialise | after the seal | checks the passes, generates their program over held maps, loads it, sends it |
//! | forget | any time | closes the maps of a space |
//!
//! It is a separate process as the monitor of OpenSSH is: the process that reads frames may be taken over, and must not
//! load programs then. **The loader never takes instructions of eBPF**: a request has passes, which it checks and
//! generates code from as `specialise.rs` always does. Such a program reads the first `HEAD_LIMIT` bytes of a
//! frame, counts, and accepts or rejects, which the parent can do by the interpreter anyway. A request has at most
//! `LIVE_WORDS` passes and `INSTRUCTION_LIMIT` instructions; after each the loader rests ([`REST`]). It opens no
//! file, and of bpf(2) its sandbox has the loading of programs only. It ends when its parent ends, even if that is
//! killed: it reads end of file. Cost: a forked process that sleeps; generating is as in the process itself.
//!
//! Source: Provos, Friedl and Honeyman, Preventing privilege escalation (USENIX Security 2003).

mod serve;
mod wire;

use crate::direct::Access;
use crate::ebpf::{Kind, Program};
use crate::layout::LIVE_WORDS;
use crate::snapshot::{OwnedMaps, Snapshot, Specialised};
use crate::specialise::{self, HEAD_LIMIT, INSTRUCTION_LIMIT};
use fyke_privilege::child::{self, Child, Ended};
use fyke_privilege::user;
use rustix::net::{sockopt, sockopt::Timeout};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use wire::{Answer, Request};

/// Most spaces with held maps.
pub const MAX_HELD: usize = 64;
/// Pause of the loader after each program, so that a hostile parent cannot keep a processor busy with it.
pub const REST: Duration = Duration::from_millis(100);
/// Longest wait for an answer; programs take tens of milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for the end of the process.
const END_PATIENCE: Duration = Duration::from_secs(1);

const _: () = assert!(HEAD_LIMIT <= 128 && LIVE_WORDS <= 256 && INSTRUCTION_LIMIT <= 1000);

/// The loader of this process.
#[derive(Debug)]
pub struct Loader {
    child: Child,
    /// One thread asks at a time.
    asked: Mutex<Asked>,
    sealed: AtomicBool,
    /// True once it has ended.
    gone: AtomicBool,
    /// True once this process ends it.
    is_ending: AtomicBool,
    /// Reports a silence and its end.
    tell: OnceLock<fn(&str)>,
}

/// Requests so far.
#[derive(Debug, Default)]
struct Asked {
    /// Number of the last one.
    number: u32,
    /// True while the last one has no answer; there is no other then.
    is_owed: bool,
    /// True if the silence was reported.
    is_silent: bool,
}

/// Maps of a space that the loader holds.
#[derive(Debug)]
pub struct Held {
    loader: &'static Loader,
    number: u32,
}

/// Reason why the loader has made no program; the interpreter continues to run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// The process has ended, so there will be no program any more.
    #[error("the process that loads programs has ended")]
    Gone,
    /// It does not answer.
    #[error("the process that loads programs does not answer")]
    Silent,
    /// It refuses, or the kernel does.
    #[error("{0}")]
    Refused(String),
    /// The system refuses.
    #[error("the process that loads programs cannot be reached: {0}")]
    System(#[from] io::Error),
}

static CURRENT: OnceLock<Loader> = OnceLock::new();

/// The loader of this process, if one was started; it may have ended.
pub fn current() -> Option<&'static Loader> {
    CURRENT.get()
}

/// Starts the loader, once, if this process may load programs. The process must have a single thread.
///
/// # Errors
/// When there are several threads, or when the system refuses.
pub fn start() -> io::Result<Option<&'static Loader>> {
    if !cfg!(target_arch = "x86_64") || current().is_some() || !user::may_load_programs() {
        return Ok(current());
    }
    let child = child::start(c"fyke-loader", serve::run)?;
    let loader = Loader {
        child,
        asked: Mutex::default(),
        sealed: AtomicBool::new(false),
        gone: AtomicBool::new(false),
        is_ending: AtomicBool::new(false),
        tell: OnceLock::new(),
    };
    Ok(Some(CURRENT.get_or_init(|| loader)))
}

impl Loader {
    /// Number of the process.
    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// True while it may answer.
    pub fn is_there(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    /// Hands over the maps of a space; its programs read frames by this access.
    pub(crate) fn hold(
        &'static self,
        maps: &OwnedMaps,
        access: Access,
    ) -> Result<Held, LoaderError> {
        let request = Request::Hold { processors: maps.processors, access };
        let fds = [&maps.passes, &maps.rows, &maps.tallies, &maps.tiers].map(AsFd::as_fd);
        let (answer, _) = self.ask(&request, &fds)?;
        Ok(Held { loader: self, number: answer.number })
    }

    /// Ends the phase in which maps are handed over. Afterwards the loader does not trust this process. Without maps it
    /// ends.
    ///
    /// # Errors
    /// It could not confine itself, and has ended; what comes later is interpreted.
    pub fn seal(&self) -> Result<(), LoaderError> {
        let sealed = self.ask(&Request::Seal, &[]).map(|(answer, _)| answer.number > 0);
        self.sealed.store(true, Ordering::Release);
        if !matches!(sealed, Ok(true)) {
            self.is_ending.store(true, Ordering::Release);
            self.gone.store(true, Ordering::Release);
            let _ended = self.child.end(END_PATIENCE);
        }
        sealed.map(|_| ())
    }

    /// True after [`seal`](Self::seal).
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Reports by `tell` when it does not answer, and when it answers again.
    pub fn report(&self, tell: fn(&str)) {
        let _first = self.tell.set(tell);
    }

    /// Waits, without a limit, until the process has ended, for a thread of its own. So it does not stay in the list of
    /// processes. `None` if this process ends it.
    pub fn wait_for_end(&self) -> Option<Ended> {
        let ended = self.child.wait_for_end();
        self.gone.store(true, Ordering::Release);
        (!self.is_ending.load(Ordering::Acquire)).then_some(ended)
    }

    /// Ends the process and waits for it, at most a second. A command calls this before it exits, so that no loader
    /// outlives it. Returns false if it still runs.
    #[must_use]
    pub fn end(&self) -> bool {
        self.is_ending.store(true, Ordering::Release);
        self.gone.store(true, Ordering::Release);
        self.child.end(END_PATIENCE)
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for its answer; answers to earlier requests, which came too late, are dropped. While
    /// one is not answered, no other is sent.
    fn ask(
        &self,
        request: &Request,
        fds: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(Answer, Option<OwnedFd>), LoaderError> {
        let asked = &mut *self.lock();
        if !self.is_there() {
            return Err(LoaderError::Gone);
        }
        let got = self.exchange(asked, request, fds);
        if matches!(got, Err(LoaderError::Gone)) {
            self.gone.store(true, Ordering::Release);
            // Waits for it, so that it does not stay in process lists.
            let _ended = self.child.end(END_PATIENCE);
        }
        let is_silent = matches!(got, Err(LoaderError::Silent));
        if is_silent != asked.is_silent && self.is_there() {
            asked.is_silent = is_silent;
            let text = match is_silent {
                true => {
                    "the process that loads programs does not answer: filters of later edits are interpreted until it \
                     does, which takes more time for each frame"
                }
                false => "the process that loads programs answers again",
            };
            self.tell.get().inspect(|tell| tell(text));
        }
        got
    }

    fn exchange(
        &self,
        asked: &mut Asked,
        request: &Request,
        fds: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(Answer, Option<OwnedFd>), LoaderError> {
        if asked.is_owed {
            // Requests without an answer would fill the channel.
            wire::wait_for_data(self.child.as_fd(), PATIENCE).map_err(failed)?;
        }
        asked.number = asked.number.wrapping_add(1);
        let sequence = asked.number;
        for kind in [Timeout::Send, Timeout::Recv] {
            sockopt::set_socket_timeout(&self.child, kind, Some(PATIENCE))
                .map_err(io::Error::from)?;
        }
        wire::send(self.child.as_fd(), &request.to_bytes(sequence), fds).map_err(failed)?;
        asked.is_owed = true;
        let mut bytes = [0; wire::LONGEST_ANSWER];
        loop {
            let (length, mut fds) =
                wire::receive(self.child.as_fd(), &mut bytes).map_err(failed)?;
            let (known, answer) = Answer::from_bytes(&bytes[..length]).ok_or(LoaderError::Gone)?;
            if known == sequence {
                asked.is_owed = false;
                return match answer.refusal {
                    None => Ok((answer, fds.pop())),
                    Some(why) => Err(LoaderError::Refused(why)),
                };
            }
        }
    }
}

/// The meaning of a failed call on the channel.
fn failed(error: rustix::io::Errno) -> LoaderError {
    use rustix::io::Errno;
    match error {
        Errno::AGAIN => LoaderError::Silent,
        Errno::PIPE | Errno::CONNRESET => LoaderError::Gone,
        error => LoaderError::System(error.into()),
    }
}

impl Held {
    /// As [`Snapshot::specialise`], by the loader.
    ///
    /// # Errors
    /// The loader has ended, does not answer, or refuses; the interpreter continues to run.
    pub fn specialise(&self, snapshot: Snapshot) -> Result<Specialised, LoaderError> {
        let covered = specialise::choose(snapshot.passes);
        let request =
            Request::specialise(self.number, snapshot.count_rejected, snapshot.short, &covered);
        let (answer, program) = self.loader.ask(&request, &[])?;
        let none = || LoaderError::Refused("the process that loads programs sent none".to_owned());
        let program = Program::of(program.ok_or_else(none)?, Kind::SocketFilter);
        Ok(Specialised::new(program, answer.access, covered))
    }
}

impl Drop for Held {
    /// Waits for nothing: a loader that does not take the request closes the maps when it ends.
    fn drop(&mut self) {
        let Ok(mut asked) = self.loader.asked.try_lock() else { return };
        asked.number = asked.number.wrapping_add(1);
        let request = Request::Forget { number: self.number }.to_bytes(asked.number);
        let _forgotten = wire::tell(self.loader.child.as_fd(), &request);
    }
}
