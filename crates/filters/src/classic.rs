//! The kernel as a lower space ([`Superset`]) without eBPF: the texts as one program of classic BPF on the socket,
//! which needs no privilege. It cannot be edited, so every edit opens the socket with one call; once there was no edit
//! for a while ([`PAUSE`]), a thread lowers the texts and attaches the program.
//!
//! What the program rejects is not counted. Cost of an edit: one system call, and a copy of the new texts.

mod program;

pub use program::classic_program;

use crate::superset::{Listing, Superset};
use fyke_filter::Options;
use fyke_filter::bpf::{Instruction, LowerError};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time without edits after which the texts become a program.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of text from which the start of a capture does not wait for the program.
const LONG: usize = 16 << 10;
/// Linux's error for a program that its option memory has no room for.
const NO_ROOM: io::ErrorKind = io::ErrorKind::OutOfMemory;

/// Reason why texts have no program for the kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassicError {
    /// A text has no program.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The program is longer than the kernel takes.
    #[error("the program would have {}instructions, the kernel takes {limit}", at_least(.given))]
    TooLong {
        /// The number of instructions, or of those of the first texts; `None` if they were not counted.
        given: Option<usize>,
        /// The kernel's limit.
        limit: usize,
    },
    /// A load at a computed place, or a division, may end the program before the other texts are evaluated.
    #[error(
        "a text computes a place or divides; beside other texts, that could reject their frames"
    )]
    Place,
    /// A text shifts by a computed number.
    #[error("a text shifts by a number that it computes")]
    Shift,
    /// A text tests a field that a cooked socket does not deliver.
    #[error("byte {offset} of the link header does not exist in the kernel")]
    Cooked {
        /// Offset in the link header.
        offset: u32,
    },
}

fn at_least(given: &Option<usize>) -> String {
    given.map_or_else(|| "too many ".to_owned(), |given| format!("at least {given} "))
}

/// A packet socket that takes programs of classic BPF.
pub trait ClassicSocket: Send + Sync {
    /// Replaces the program of the socket.
    ///
    /// # Errors
    /// The kernel refuses the program or has no room for it.
    fn attach(&self, program: &[Instruction]) -> io::Result<()>;

    /// Lets every frame pass.
    ///
    /// # Errors
    /// The kernel refuses.
    fn open(&self) -> io::Result<()>;

    /// Most bytes of a frame to keep.
    fn snaplen(&self) -> u32;
}

/// Texts before a [`FilterSet`](crate::FilterSet) as a program of classic BPF; clones share it.
#[derive(Debug, Clone)]
pub struct ClassicStage(Arc<Stage>);

#[derive(Debug)]
struct Stage {
    reading: Options,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    socket: Option<Arc<dyn ClassicSocket>>,
    texts: Listing,
    /// True if the texts that the stage was told are not all of them, because every frame was to pass.
    partial: bool,
    /// True while a program filters.
    narrow: bool,
    /// True once a program has filtered.
    uncounted: bool,
    /// Number of edits so far.
    edits: u64,
    /// Time for the next program.
    due: Option<Instant>,
    /// True if threads may be started, and while one runs.
    begun: bool,
    running: bool,
    /// Reason why there is no program of the texts.
    reason: Option<String>,
    for_good: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("narrow", &self.narrow).field("edits", &self.edits).finish()
    }
}

impl ClassicStage {
    /// Makes a stage for texts that are read like this, as the set reads them.
    pub fn new(reading: Options) -> ClassicStage {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let stage = Stage { reading, state, changed };
        stage.lock().partial = true;
        ClassicStage(Arc::new(stage))
    }

    /// Sets the socket. It passes every frame until there are texts.
    pub fn take_socket(&self, socket: Arc<dyn ClassicSocket>) {
        let state = &mut *self.0.lock();
        state.socket = Some(socket);
        self.0.follow(state);
    }

    /// True if frames were rejected, which are not counted.
    pub fn has_rejected(&self) -> bool {
        self.0.lock().uncounted
    }

    /// Reason why every frame passes at the moment; `None` if the texts decide.
    pub fn reason(&self) -> Option<String> {
        let state = self.0.lock();
        match &state.reason {
            Some(reason) => Some(reason.clone()),
            None if state.narrow => None,
            None if state.texts.is_empty() => Some("no filter rejects a frame".to_owned()),
            None => Some("it waits for a pause in the edits".to_owned()),
        }
    }
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the socket open or with a program of older texts, which the next edit opens.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lower(&self, texts: &Listing, bytes: u32) -> Result<Vec<Instruction>, ClassicError> {
        classic_program(texts.values().map(|text| &**text), &self.reading, bytes)
    }

    /// Attaches the program, or tells why not.
    fn close(&self, state: &mut State, program: Result<Vec<Instruction>, ClassicError>) {
        let Some(socket) = state.socket.clone().filter(|_| !state.for_good) else { return };
        let attached = program.map_err(|error| error.to_string()).and_then(|program| {
            let room = |error: io::Error| match error.kind() {
                NO_ROOM => format!(
                    "{} instructions need more option memory than net.core.optmem_max",
                    program.len()
                ),
                _ => error.to_string(),
            };
            socket.attach(&program).map_err(room)
        });
        match attached {
            Ok(()) => (state.narrow, state.uncounted, state.reason) = (true, true, None),
            Err(reason) => {
                self.open(state);
                state.reason = Some(reason);
            }
        }
    }

    /// Opens the socket.
    fn open(&self, state: &mut State) {
        state.narrow = false;
        let opened = state.socket.as_ref().map_or(Ok(()), |socket| socket.open());
        if let Err(error) = opened {
            state.reason = Some(format!("the socket does not open: {error}"));
        }
    }

    /// Makes the program that the texts need: at once before the capture starts, else after a pause.
    fn follow(self: &Arc<Self>, state: &mut State) {
        let Some(socket) = &state.socket else { return };
        if state.texts.is_empty() || state.for_good {
            return;
        }
        if state.begun {
            return self.schedule(state, Instant::now() + PAUSE);
        }
        if state.texts.values().map(|text| text.len()).sum::<usize>() >= LONG {
            state.due = Some(Instant::now());
            return;
        }
        let program = self.lower(&state.texts, socket.snaplen());
        self.close(state, program);
    }

    /// Has a thread lower the texts at the time that is due.
    fn schedule(self: &Arc<Self>, state: &mut State, due: Instant) {
        state.due = Some(due);
        if state.running {
            self.changed.notify_all();
            return;
        }
        let stage = Arc::clone(self);
        let run = move || stage.run();
        match std::thread::Builder::new().name("fyke-narrow".into()).spawn(run) {
            Ok(_) => state.running = true,
            // Everything continues to pass; the next edit tries again.
            Err(error) => state.reason = Some(format!("no thread: {error}")),
        }
    }

    /// Lowers the texts whenever a pause in the edits is long enough; ends when nothing is due.
    fn run(&self) {
        crate::user::lower_own_priority();
        let mut state = self.lock();
        loop {
            let Some(due) = state.due else {
                state.running = false;
                return;
            };
            let left = due.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.due = None;
            let (edits, texts) = (state.edits, state.texts.clone());
            let bytes = state.socket.as_ref().map_or(u32::MAX, |socket| socket.snaplen());
            drop(state);
            let program = self.lower(&texts, bytes);
            state = self.lock();
            if state.edits == edits && !texts.is_empty() {
                self.close(&mut state, program);
            }
        }
    }
}

impl Superset for ClassicStage {
    fn begin(&self) {
        let state = &mut *self.0.lock();
        state.begun = true;
        if state.due.is_some() {
            self.0.schedule(state, Instant::now());
        }
    }

    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        let state = &mut *self.0.lock();
        state.edits += 1;
        state.partial |= unfiltered;
        state.due = None;
        if state.for_good {
            return;
        }
        state.texts.extend(added.iter().map(|&(id, text)| (id, Arc::from(text))));
        if state.narrow {
            self.0.open(state);
        }
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        let state = &mut *self.0.lock();
        if state.for_good {
            return;
        }
        if state.partial {
            state.texts = texts();
            state.partial = state.texts.is_empty();
        }
        removed.iter().for_each(|id| drop(state.texts.remove(id)));
        state.reason = None;
        state.edits += 1;
        if state.texts.is_empty() && state.narrow {
            self.0.open(state);
        }
        self.0.follow(state);
    }

    fn open_for_good(&self, reason: &'static str) {
        let state = &mut *self.0.lock();
        state.edits += 1;
        state.due = None;
        state.texts.clear();
        self.0.open(state);
        (state.for_good, state.reason) = (true, Some(reason.to_owned()));
    }
}
