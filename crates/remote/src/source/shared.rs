//! The state that the packet loop, threads that edit and the receiving thread share.

use crate::batch::{self, Received};
use crate::link::{Kind, Link, LinkError};
use crate::message::{Counts, MAX_INTERFACES, Origin, Request, Response, Text};
use crate::source::WINDOW;
use fyke_capture::{FrameServer, ServerCounts};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of a message of a relay.
pub(super) const MAX_MESSAGE: usize = 1 << 20;
/// Time limit for an edit: a long text is compiled there.
const EDIT_LIMIT: Duration = Duration::from_secs(15);
/// Time after which a silent relay is given up; it tells its counts every second.
const SILENT: Duration = Duration::from_secs(15);
/// Time between two signs of life.
const BEAT: Duration = Duration::from_secs(5);
/// Longest wait of the receiving thread.
const TURN: Duration = Duration::from_millis(500);
/// Time for what is left to send at the end.
const LAST: Duration = Duration::from_millis(200);

/// Result of [`Shared::take`].
pub(super) enum Taken {
    /// Frames, and interfaces that are new with them.
    Frames(Received, Vec<Origin>),
    /// There are none at the moment.
    Nothing,
    /// The source has ended, with the reason if it is not the end of the capture.
    End(Option<String>),
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(Received, Vec<Origin>)>,
    /// Interfaces that are known, with those that wait for the next frames.
    interfaces: usize,
    more: Vec<Origin>,
    /// Bytes that the relay may still send; below zero after a message that was longer.
    granted: i64,
    /// Bytes of frames that were taken from the queue, and not granted again.
    freed: u64,
    /// Frames that have arrived.
    arrived: u64,
    counts: Counts,
    requests: Vec<Request>,
    /// Number of the last edit, and answers to edits.
    edits: u64,
    answers: BTreeMap<u64, Option<String>>,
    asked_end: bool,
    /// The end, with the reason if it is not that of the capture.
    end: Option<Option<String>>,
    is_closing: bool,
    beat: Option<Instant>,
}

/// The far end as this one knows it.
#[derive(Debug)]
pub(super) struct Shared {
    /// The connection until a thread has it.
    link: Mutex<Option<Link>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the thread that waits for the connection.
    wake: OwnedFd,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(link: Link, interfaces: usize) -> io::Result<Shared> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let state = State { interfaces, granted: WINDOW as i64, ..State::default() };
        Ok(Shared {
            link: Mutex::new(Some(link)),
            state: Mutex::new(state),
            changed: Condvar::new(),
            wake,
        })
    }

    fn wake(&self) {
        // It is readable already if this fails.
        let _full = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Hands the connection to a thread of its own.
    pub(super) fn run(self: &Arc<Shared>) -> io::Result<()> {
        let Some(link) = lock(&self.link).take() else { return Ok(()) };
        let shared = Arc::clone(self);
        let receive = move || {
            let mut link = link;
            while shared.step(&mut link, TURN) {}
            link.close(LAST);
        };
        thread::Builder::new().name("remote".to_owned()).spawn(receive).map(drop)
    }

    /// Sends what waits, and takes what has come; false at the end.
    fn step(&self, link: &mut Link, patience: Duration) -> bool {
        let outcome = self.exchange(link, patience);
        let mut state = lock(&self.state);
        if let Err(error) = outcome {
            state.end.get_or_insert_with(|| Some(error.to_string()));
        }
        let goes_on = state.end.is_none() && !state.is_closing;
        drop(state);
        self.changed.notify_all();
        goes_on
    }

    fn exchange(&self, link: &mut Link, patience: Duration) -> Result<(), LinkError> {
        for request in self.outgoing() {
            link.send_json(&request)?;
        }
        link.turn(patience, &[self.wake.as_fd()])?;
        let mut count = [0_u8; 8];
        // Empty if something else ended the wait.
        let _empty = rustix::io::read(&self.wake, &mut count);
        while let Some((kind, body)) = link.message()? {
            let state = &mut *lock(&self.state);
            match kind {
                Kind::Frames => state.take_frames(body),
                Kind::Json => state.take_response(&body),
            }
            .map_err(LinkError::Wrong)?;
            if state.end.is_some() {
                break;
            }
        }
        match link.silence() > SILENT {
            true => Err(LinkError::Silent(SILENT.as_secs())),
            false => Ok(()),
        }
    }

    /// The requests that are to be sent now.
    fn outgoing(&self) -> Vec<Request> {
        let state = &mut *lock(&self.state);
        let mut requests = std::mem::take(&mut state.requests);
        // In larger parts: a message for each batch would cost more than it tells.
        if state.freed >= WINDOW / 8 {
            requests.push(Request::Credit { bytes: state.freed });
            state.granted += std::mem::take(&mut state.freed) as i64;
        }
        if requests.is_empty() && state.beat.is_none_or(|beat| beat.elapsed() > BEAT) {
            requests.push(Request::Alive {});
        }
        if !requests.is_empty() {
            state.beat = Some(Instant::now());
        }
        requests
    }

    /// Takes frames from the queue; waits for some if there are none.
    pub(super) fn take(&self, patience: Duration) -> Taken {
        let until = Instant::now() + patience;
        let mut state = lock(&self.state);
        loop {
            if let Some((received, more)) = state.queue.pop_front() {
                state.freed += received.bytes() as u64;
                let tells = state.freed >= WINDOW / 8;
                drop(state);
                if tells {
                    self.wake();
                }
                return Taken::Frames(received, more);
            }
            if state.end.is_some() {
                // The reason is told once.
                return Taken::End(state.end.replace(None).flatten());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Taken::Nothing;
            }
            state = match self.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    pub(super) fn counts(&self) -> Counts {
        lock(&self.state).counts
    }

    pub(super) fn ask_for_end(&self) {
        let state = &mut *lock(&self.state);
        if !state.asked_end {
            state.asked_end = true;
            state.requests.push(Request::End {});
        }
        self.wake();
    }

    /// Gives the connection up.
    pub(super) fn close(&self) {
        lock(&self.state).is_closing = true;
        self.wake();
    }

    /// Makes an edit, and waits until it is in force there.
    pub(super) fn edit(&self, removed: &[u64], added: &[(u64, &str)]) -> io::Result<()> {
        let number = {
            let state = &mut *lock(&self.state);
            state.edits += 1;
            let add = added.iter().map(|&(id, text)| Text { id, text: text.to_owned() }).collect();
            let (number, remove) = (state.edits, removed.to_vec());
            state.requests.push(Request::Edit { number, remove, add });
            number
        };
        self.wake();
        let until = Instant::now() + EDIT_LIMIT;
        loop {
            let mut state = lock(&self.state);
            if let Some(refused) = state.answers.remove(&number) {
                let error = |why: String| io::Error::new(ErrorKind::InvalidInput, why);
                return refused.map_or(Ok(()), |why| Err(error(why)));
            }
            if let Some(end) = &state.end {
                let why = end.clone().unwrap_or_else(|| "the capture there has ended".to_owned());
                return Err(io::Error::new(ErrorKind::ConnectionAborted, why));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The edit may be in force there or not.
                let why = format!("no answer to an edit within {} s", EDIT_LIMIT.as_secs());
                state.end = Some(Some(why.clone()));
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
            drop(state);
            self.wait(left.min(TURN));
        }
    }

    /// Waits for a change: in the thread that has the connection, or here while none has it.
    fn wait(&self, patience: Duration) {
        if let Some(link) = &mut *lock(&self.link) {
            self.step(link, patience);
            return;
        }
        let state = lock(&self.state);
        let _changed_or_late = self.changed.wait_timeout(state, patience);
    }
}

impl State {
    fn take_frames(&mut self, body: Vec<u8>) -> Result<(), String> {
        let bytes = body.len();
        // A message begins while there is credit, and may be longer than what is left of it.
        if self.granted <= 0 || bytes > batch::MAX_BYTES {
            return Err("it sends more than it was granted".to_owned());
        }
        self.granted -= bytes as i64;
        let received = Received::new(body, self.interfaces)?;
        self.arrived += received.len() as u64;
        self.queue.push_back((received, std::mem::take(&mut self.more)));
        Ok(())
    }

    fn take_response(&mut self, body: &[u8]) -> Result<(), String> {
        let response = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        match response {
            Response::Edited { number, refused } if (1..=self.edits).contains(&number) => {
                self.answers.insert(number, refused);
            }
            Response::Edited { number, .. } => return Err(format!("there is no edit {number}")),
            Response::Interfaces { more } => {
                self.interfaces += more.len();
                if self.interfaces > MAX_INTERFACES {
                    return Err(format!("it has more than {MAX_INTERFACES} interfaces"));
                }
                self.more.extend(more);
            }
            Response::Counts(counts) => self.take_counts(counts)?,
            Response::Ended { counts, reason } => {
                self.take_counts(counts)?;
                self.end = Some(reason.map(|reason| format!("the relay: {reason}")));
            }
            Response::Refused { reason } => self.end = Some(Some(format!("the relay: {reason}"))),
            Response::Hello { .. } => return Err("it greets twice".to_owned()),
        }
        Ok(())
    }

    fn take_counts(&mut self, counts: Counts) -> Result<(), String> {
        if !counts.follows(&self.counts) {
            return Err("its counts go back".to_owned());
        }
        if counts.sent != self.arrived {
            let (sent, arrived) = (counts.sent, self.arrived);
            return Err(format!("it counts {sent} frames as sent, and {arrived} have arrived"));
        }
        self.counts = counts;
        Ok(())
    }
}

/// The far service, for the filters of this end.
#[derive(Debug)]
pub(super) struct Far(pub(super) Arc<Shared>, pub(super) bool);

impl FrameServer for Far {
    fn edit(&self, removed: &[u64], added: &[(u64, &str)]) -> io::Result<()> {
        self.0.edit(removed, added)
    }

    fn counts(&self, _: u64, _: u64) -> ServerCounts {
        let Counts { rejected, dropped, is_partial, .. } = self.0.counts();
        ServerCounts { rejected, dropped, is_partial }
    }

    fn end(&self) -> bool {
        self.0.ask_for_end();
        lock(&self.0.state).end.is_some()
    }

    fn end_reason(&self) -> Option<String> {
        lock(&self.0.state).end.clone().flatten()
    }

    fn is_gone(&self) -> bool {
        lock(&self.0.state).end.is_some()
    }

    fn is_restricted(&self) -> bool {
        self.1
    }
}
